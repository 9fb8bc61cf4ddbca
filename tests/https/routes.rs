//! Routes to upstreams behind TLS.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use crate::authority::Authority;
use crate::door::{Door, Plan};
use crate::harness::{Answer, Request, Server, Setup, Upstream};
use crate::trusting;

const ROUTE: &str = "[routes.rest]\npath = \"/{*rest}\"\nupstream = \"app\"\n";
const KEYED: &str = "[routes.jobs]\npath = \"/jobs\"\nupstream = \"app\"\n\
                     idempotency = { methods = [\"POST\"], scope = \"public\" }\n";

/// Serves each connection in a thread of its own.
fn raw(serve: impl Fn(TcpStream) + Send + Sync + Copy + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            std::thread::spawn(move || serve(stream));
        }
    });
    address
}

/// Reads to the end of a head.
fn head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return None,
        }
    }
    Some(String::from_utf8_lossy(&head).into_owned())
}

struct Site {
    // Ends before its directory.
    server: Server,
    _setup: Setup,
    door: Door,
}

fn site(behind: SocketAddr, rude: bool, configure: impl FnOnce(Setup) -> Setup) -> Site {
    let authority = Authority::new();
    let certificate = authority.server(&["localhost"]);
    let plan = Plan::new(&certificate);
    let door = Door::open(behind, if rude { plan.rude() } else { plan });
    let setup = configure(trusting(&door.url(), &authority, ""));
    Site {
        server: setup.start(),
        _setup: setup,
        door,
    }
}

#[test]
fn a_request_passes_and_says_where_it_came_from() {
    let upstream = Upstream::scripted(|_| Answer::Raw(b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok".to_vec()));
    let site = site(upstream.address(), false, |setup| setup.table_after(ROUTE));
    let request = Request::post("/orders?x=1", "{}").header("Host", "shop.test");
    let answer = site.server.send(&request);
    assert_eq!((answer.status, answer.text().as_str()), (201, "ok"));
    let received = upstream.only();
    let host = format!("localhost:{}", site.door.port());
    assert_eq!(received.header("Host"), Some(host.as_str()));
    assert_eq!(received.header("X-Forwarded-Host"), Some("shop.test"));
    // How the client came, not how we go on.
    assert_eq!(received.header("X-Forwarded-Proto"), Some("http"));
    assert_eq!(received.target, "/orders?x=1");
}

/// Each byte is answered before the next is sent: nothing waits for a whole body.
#[test]
fn a_body_streams_up_while_its_answer_streams_down() {
    let echo = raw(|mut stream| {
        let _head = head(&mut stream).unwrap();
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            .unwrap();
        let mut byte = [0];
        // Chunks go back as they are.
        while let Ok(1) = stream.read(&mut byte) {
            if stream.write_all(&byte).is_err() {
                return;
            }
        }
    });
    let site = site(echo, false, |setup| setup.table_after(ROUTE));
    let mut client = TcpStream::connect(site.server.address()).unwrap();
    client
        .write_all(b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        .unwrap();
    client.write_all(b"3\r\none\r\n").unwrap();
    let head = head(&mut client).unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let mut answered = Vec::new();
    let mut until = |client: &mut TcpStream, done: fn(&[u8]) -> bool| {
        let mut byte = [0];
        while !done(&answered) {
            assert_eq!(client.read(&mut byte).unwrap(), 1, "ended early");
            answered.push(byte[0]);
        }
    };
    until(&mut client, |answered| content(answered) == b"one");
    client.write_all(b"3\r\ntwo\r\n").unwrap();
    until(&mut client, |answered| content(answered) == b"onetwo");
    client.write_all(b"0\r\n\r\n").unwrap();
    until(&mut client, |answered| answered.ends_with(b"0\r\n\r\n"));
}

/// What a chunked body holds as far as it is there; in which chunks it travels is each hop's own affair (RFC 9112
/// section 7.1).
fn content(mut chunked: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    while let Some(end) = chunked.windows(2).position(|pair| pair == b"\r\n") {
        let size = std::str::from_utf8(&chunked[..end]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        let chunk = &chunked[end + 2..];
        content.extend_from_slice(&chunk[..size.min(chunk.len())]);
        chunked = chunk.get(size + 2..).unwrap_or_default();
    }
    content
}

#[test]
fn a_large_body_arrives_whole_in_both_directions() {
    let body: Vec<u8> = (0..3_000_000_u32)
        .map(|n| n.to_le_bytes()[0] ^ n.to_le_bytes()[1])
        .collect();
    let echoed = |body: &[u8]| {
        let mut answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
        answer.extend_from_slice(body);
        answer
    };
    let upstream = Upstream::scripted(move |received| Answer::Raw(echoed(&received.body)));
    let site = site(upstream.address(), false, |setup| setup.table_after(ROUTE));
    let answer = site.server.send(&Request::post("/large", body.clone()));
    assert_eq!(answer.status, 200);
    assert!(answer.body == body, "the body changed on the way");
}

#[test]
fn messages_go_both_ways_through_a_websocket() {
    use futures_util::{SinkExt, StreamExt};
    use tokio_tungstenite::tungstenite::Message;

    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let behind = listener.local_addr().unwrap();
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
    let site = site(behind, false, |setup| setup.table_after(ROUTE));
    let url = format!("ws://{}/ws", site.server.address());
    runtime.block_on(async {
        let (mut socket, answer) = tokio_tungstenite::connect_async(url).await.unwrap();
        assert_eq!(answer.status(), 101);
        for message in [Message::text("hello"), Message::binary(vec![7; 1 << 20])] {
            socket.send(message.clone()).await.unwrap();
            assert_eq!(socket.next().await.unwrap().unwrap(), message);
        }
        socket.close(None).await.unwrap();
        while let Some(Ok(_)) = socket.next().await {}
    });
    site.server.wait_for_metric("hooksluice_tunnels", &[], 0.0);
}

/// An answer without a length ends with its connection. Whether it is whole, only `close_notify` says (RFC 9112
/// section 9.8).
#[test]
fn an_answer_without_length_is_whole_only_when_tls_was_closed() {
    let upstream = || {
        raw(|mut stream| {
            let _head = head(&mut stream);
            stream
                .write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhalf of the ans")
                .unwrap();
        })
    };
    let polite = site(upstream(), false, |setup| setup.table_after(ROUTE));
    assert_eq!(polite.server.send(&Request::new("GET", "/x")).text(), "half of the ans");

    let rude = site(upstream(), true, |setup| setup.table_after(ROUTE));
    let mut client = rude.server.connect();
    client.send(&Request::new("GET", "/x").bytes());
    let answer = client.try_read(false);
    assert!(!matches!(answer, Ok(Some(_))), "taken for whole: {answer:?}");
    rude.server
        .wait_for_metric("hooksluice_route_answers_cut_total", &["by=\"upstream\""], 1.0);
}

/// With a length the answer is whole, however the connection ends. It says that it ends, so that the next request does
/// not set out on it.
#[test]
fn an_answer_with_its_length_needs_no_close() {
    let upstream = raw(|mut stream| {
        let _head = head(&mut stream);
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nwhole")
            .unwrap();
    });
    let site = site(upstream, true, |setup| setup.table_after(ROUTE));
    for _ in 0..3 {
        assert_eq!(site.server.send(&Request::new("GET", "/x")).text(), "whole");
    }
}

/// The same for a kept answer: what was cut off is not what a repetition is told.
#[test]
fn a_cut_answer_is_not_kept_under_an_idempotency_key() {
    let upstream = raw(|mut stream| {
        let _head = head(&mut stream);
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhalf of the ans")
            .unwrap();
    });
    let site = site(upstream, true, |setup| {
        setup
            .table_after(KEYED)
            .allow_log("nobody knows whether a call took effect")
    });
    let mut client = site.server.connect();
    client.send(&keyed().bytes());
    let first = client.try_read(false);
    assert!(!matches!(&first, Ok(Some(answer)) if answer.status == 200), "{first:?}");
    let second = site.server.send(&keyed());
    assert!(second.status >= 400, "{second:?}");
    assert!(!second.text().contains("half"), "{second:?}");
}

fn keyed() -> Request {
    Request::post("/jobs", "{}").header("Idempotency-Key", "\"k1\"")
}

/// Not a byte was sent, so the same call may be made again under the same key.
#[test]
fn a_failed_handshake_leaves_an_idempotency_key_free() {
    let (right, wrong) = (Authority::new(), Authority::new());
    let upstream = Upstream::start();
    let door = Door::open(upstream.address(), Plan::new(&wrong.server(&["localhost"])));
    let setup = trusting(&door.url(), &right, "")
        .table_after(KEYED)
        .allow_log("the upstream's certificate is not trusted: unknown issuer");
    let server = setup.start();
    assert_eq!(server.send(&keyed()).status, 502);
    assert!(upstream.received().is_empty());
    // FW-12: nothing is started anew for it.
    door.change(Plan::new(&right.server(&["localhost"])));
    assert_eq!(server.send(&keyed()).status, 200);
    assert_eq!(server.send(&keyed()).status, 200);
    upstream.only();
}

#[test]
fn a_refused_client_certificate_leaves_an_idempotency_key_free() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let certificate = authority.server(&["localhost"]);
    let upstream = Upstream::start();
    let door = Door::open(upstream.address(), Plan::new(&certificate).for_clients_of(&clients));
    let setup = trusting(&door.url(), &authority, "")
        .table_after(KEYED)
        .allow_log("the upstream demands a client certificate");
    let server = setup.start();
    assert_eq!(server.send(&keyed()).status, 502);
    assert!(upstream.received().is_empty());
    door.change(Plan::new(&certificate));
    assert_eq!(server.send(&keyed()).status, 200);
    upstream.only();
}
