//! Connections that misbehave, end early, or live long.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use crate::ground::{Authority, Secure, tls, trusting};
use crate::harness::{Answer, PATIENCE, Request, Setup, Stage, Upstream, eventually, sign};

const ROUTE: &str = "[routes.rest]\npath = \"/app/{*rest}\"\nupstream = \"app\"\n";

struct Ground {
    stage: Stage,
    authority: Authority,
}

impl Ground {
    fn new(upstream: Upstream, configure: impl FnOnce(Setup) -> Setup) -> Self {
        let authority = Authority::new("tests");
        let leaf = authority.issue(&["a.test"]);
        let stage = Stage::with(upstream, |setup| {
            configure(tls(setup.plain().table_after(ROUTE), &[&leaf], ""))
        });
        Self { stage, authority }
    }

    fn open(&self) -> Secure {
        Secure::open(self.stage.server.address(), "a.test", &trusting(&self.authority))
    }

    fn socket(&self) -> TcpStream {
        let socket = TcpStream::connect(self.stage.server.address()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    }

    #[track_caller]
    fn counted(&self, outcome: &str, times: f64) {
        let label = format!("outcome=\"{outcome}\"");
        self.stage
            .server
            .wait_for_metric("hooksluice_tls_handshakes_total", &[&label], times);
    }
}

/// 200, so many milliseconds later.
fn late(millis: u64) -> Answer {
    Answer::After(Duration::from_millis(millis), Box::new(Answer::Status(200)))
}

fn everything(socket: &mut impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A reset ends it as well as an end.
    let _ended = socket.read_to_end(&mut bytes);
    bytes
}

#[test]
fn a_handshake_that_does_not_end_is_closed_and_gives_its_place_back() {
    let limits = "[limits]\nhead_timeout = \"300ms\"\nconnections = 4";
    let ground = Ground::new(Upstream::start(), |setup| setup.tables(limits));
    let mut silent = ground.socket();
    let mut begun = ground.socket();
    // A record of the handshake that says it is longer than what comes.
    begun.write_all(&[0x16, 3, 1, 2, 0, 1]).unwrap();
    assert_eq!(everything(&mut silent), b"");
    assert_eq!(everything(&mut begun), b"");
    ground.counted("too_slow", 2.0);
    ground.stage.server.wait_for_metric("hooksluice_connections", &[], 0.0);
    assert_eq!(
        ground.open().exchange(&Request::new("GET", "/none")).unwrap().status,
        404
    );
    // Behind the handshake a head has the same time.
    let mut slow = ground.open();
    slow.send(b"GET / HTTP/1.1\r\n").unwrap();
    assert!(slow.read().is_err());
    ground
        .stage
        .server
        .wait_for_metric("hooksluice_heads_refused_total", &["cause=\"too_slow\""], 1.0);
}

#[test]
fn plain_http_is_answered_so_that_a_person_understands_it() {
    let ground = Ground::new(Upstream::start(), |setup| setup);
    let request = sign::plain("/hooks/plain", "lost", &[b'x'; 100_000]);
    let answer = ground.stage.server.send(&request);
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("https:"), "{answer:?}");
    ground.counted("plain_http", 1.0);
    assert!(ground.stage.server.events("").is_empty());
}

#[test]
fn what_is_no_tls_and_what_leaves_is_counted() {
    let ground = Ground::new(Upstream::start(), |setup| setup);
    let mut noise = ground.socket();
    noise.write_all(&[0; 64]).unwrap();
    everything(&mut noise);
    ground.counted("failed", 1.0);
    drop(ground.socket());
    ground.counted("left", 1.0);
    ground.stage.server.wait_for_metric("hooksluice_connections", &[], 0.0);
}

#[test]
fn a_sender_that_closes_its_side_still_gets_its_answer() {
    let upstream = Upstream::scripted(|_| late(300));
    let ground = Ground::new(upstream, |setup| setup);
    for politely in [true, false] {
        for request in [
            sign::plain("/hooks/plain", &format!("half-{politely}"), b"{}"),
            Request::new("GET", "/app/x"),
        ] {
            let mut connection = ground.open();
            connection.send(&request.bytes()).unwrap();
            if politely {
                connection.finish_sending();
            } else {
                connection.0.sock.shutdown(Shutdown::Write).unwrap();
            }
            assert_eq!(
                connection.read().unwrap().status,
                200,
                "{} politely: {politely}",
                request.target
            );
        }
    }
}

#[test]
fn a_client_that_leaves_ends_its_call() {
    let ground = Ground::new(Upstream::scripted(|_| Answer::Hang), |setup| setup);
    for (left, politely) in [(1.0, true), (2.0, false)] {
        let mut connection = ground.open();
        connection.send(&Request::new("GET", "/app/x").bytes()).unwrap();
        ground.stage.upstream.wait_for(if politely { 1 } else { 2 });
        if politely {
            connection.finish_sending();
        }
        drop(connection);
        let labels = ["route=\"rest\"", "outcome=\"client_left\""];
        ground
            .stage
            .server
            .wait_for_metric("hooksluice_route_requests_total", &labels, left);
    }
    ground.stage.server.wait_for_metric("hooksluice_connections", &[], 0.0);
}

#[test]
fn what_is_sent_behind_a_request_is_neither_lost_nor_taken_for_its_end() {
    let upstream = Upstream::scripted(|_| late(100));
    let ground = Ground::new(upstream, |setup| setup);
    let mut connection = ground.open();
    let requests: Vec<Request> = (0..5)
        .map(|n| Request::post(&format!("/app/{n}"), vec![b'x'; n * 3000]))
        .collect();
    for request in &requests {
        connection.send(&request.bytes()).unwrap();
    }
    for _ in &requests {
        assert_eq!(connection.read().unwrap().status, 200);
    }
    let received = ground.stage.upstream.wait_for(5);
    for (request, received) in requests.iter().zip(received) {
        assert_eq!((&received.target, &received.body), (&request.target, &request.body));
    }
}

#[test]
fn a_client_that_takes_nothing_loses_its_connection() {
    let mut answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 8 << 20).into_bytes();
    answer.resize(answer.len() + (8 << 20), b'x');
    let upstream = Upstream::scripted(move |_| Answer::Raw(answer.clone()));
    let ground = Ground::new(upstream, |setup| setup.tables("[limits]\nbody_timeout = \"500ms\""));
    let mut connection = ground.open();
    connection.send(&Request::new("GET", "/app/x").bytes()).unwrap();
    ground
        .stage
        .server
        .wait_for_metric("hooksluice_stalled_closed_total", &[], 1.0);
    ground.stage.server.wait_for_metric("hooksluice_connections", &[], 0.0);
}

#[test]
fn a_connection_that_idles_is_closed() {
    let ground = Ground::new(Upstream::start(), |setup| {
        setup.tables("[limits]\nidle_timeout = \"200ms\"")
    });
    let mut connection = ground.open();
    assert_eq!(connection.exchange(&Request::new("GET", "/none")).unwrap().status, 404);
    assert!(everything(&mut connection.0).is_empty());
    eventually("the end to be counted", || {
        (ground.stage.server.metric("hooksluice_idle_closed_total", &[]) == 1.0).then_some(())
    });
}

#[test]
fn a_websocket_passes_through_a_route() {
    use futures_util::{SinkExt, StreamExt};
    use tokio_tungstenite::tungstenite::Message;

    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let app = listener.local_addr().unwrap();
    runtime.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
            while let Some(Ok(message)) = socket.next().await {
                if message.is_text() || message.is_binary() {
                    socket.send(message).await.unwrap();
                }
            }
        }
    });
    let authority = Authority::new("tests");
    let leaf = authority.issue(&["a.test"]);
    let setup = tls(Setup::for_address(app).plain().table_after(ROUTE), &[&leaf], "");
    let server = setup.start();
    runtime.block_on(async {
        let socket = tokio::net::TcpStream::connect(server.address()).await.unwrap();
        let connector = tokio_rustls::TlsConnector::from(trusting(&authority));
        let name = rustls::pki_types::ServerName::try_from("a.test").unwrap();
        let stream = connector.connect(name, socket).await.unwrap();
        let (mut socket, answer) = tokio_tungstenite::client_async("wss://a.test/app/ws", stream)
            .await
            .unwrap();
        assert_eq!(answer.status(), 101);
        for message in [
            Message::text("hello \u{442}"),
            Message::binary(vec![7; 3 << 20]),
            Message::text(""),
        ] {
            socket.send(message.clone()).await.unwrap();
            assert_eq!(socket.next().await.unwrap().unwrap(), message);
        }
        server.wait_for_metric("hooksluice_tunnels", &["route=\"rest\""], 1.0);
        socket.close(None).await.unwrap();
        while let Some(Ok(_)) = socket.next().await {}
    });
    server.wait_for_metric("hooksluice_tunnels", &[], 0.0);
    server.wait_for_metric("hooksluice_connections", &[], 0.0);
}
