//! WebSockets pass, and nothing else that could become a tunnel.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use data_encoding::BASE64;
use sha1::{Digest, Sha1};

use crate::harness::{Connection, Server, Setup, eventually};
use crate::raw::{Raw, head, value};
use crate::route;

const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
const HANDSHAKE: &str = "GET /ws?a=b HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
                         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                         Sec-WebSocket-Protocol: chat\r\n\r\n";

struct Ground {
    server: Server,
    _setup: Setup,
}

fn ground(upstream: SocketAddr, lines: &str, configure: impl FnOnce(Setup) -> Setup) -> Ground {
    let setup = Setup::for_address(upstream).allow_log("no source is configured");
    let setup = configure(setup.table_after(&route("rest", "/{*rest}", lines)));
    Ground {
        server: setup.start(),
        _setup: setup,
    }
}

/// Answers each handshake with these bytes, then echoes what comes, as it is.
fn answering(answer: String) -> Raw {
    Raw::start(move |mut stream| {
        while let Some(_head) = head(&mut stream) {
            stream.write_all(answer.as_bytes()).unwrap();
            if answer.starts_with("HTTP/1.1 101") {
                let mut piece = [0; 1024];
                while let Ok(read @ 1..) = stream.read(&mut piece) {
                    if stream.write_all(&piece[..read]).is_err() {
                        return;
                    }
                }
                return;
            }
        }
    })
}

fn switching() -> String {
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: \
         {ACCEPT}\r\nSec-WebSocket-Protocol: chat\r\n\r\n"
    )
}

#[track_caller]
fn read_exactly(connection: &mut Connection, expected: &[u8]) {
    let mut found = vec![0; expected.len()];
    connection.0.stream.read_exact(&mut found).unwrap();
    assert_eq!(found, expected);
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
    let upstream = listener.local_addr().unwrap();
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
    let ground = ground(upstream, "", |setup| setup);
    let url = format!("ws://{}/ws", ground.server.address());
    runtime.block_on(async {
        let (mut socket, answer) = tokio_tungstenite::connect_async(url).await.unwrap();
        assert_eq!(answer.status(), 101);
        for message in [
            Message::text("hello \u{442}"),
            Message::binary(vec![b'\n'; 100]),
            Message::binary(vec![7; 3 << 20]),
            Message::text(""),
        ] {
            socket.send(message.clone()).await.unwrap();
            assert_eq!(socket.next().await.unwrap().unwrap(), message);
        }
        ground
            .server
            .wait_for_metric("hooksluice_tunnels", &["route=\"rest\""], 1.0);
        socket.close(None).await.unwrap();
        while let Some(Ok(_)) = socket.next().await {}
    });
    ground.server.wait_for_metric("hooksluice_tunnels", &[], 0.0);
    let labels = ["outcome=\"upgraded\""];
    ground
        .server
        .wait_for_metric("hooksluice_route_requests_total", &labels, 1.0);
}

#[test]
fn the_handshake_passes_and_the_tunnel_is_clean() {
    let upstream = answering(switching());
    let ground = ground(upstream.address(), "", |setup| setup);
    let mut connection = ground.server.connect();
    connection.send(HANDSHAKE.as_bytes());
    let answer = connection.read();
    assert_eq!(answer.status, 101);
    assert_eq!(answer.header("upgrade"), Some("websocket"));
    assert!(answer.header("connection").unwrap().eq_ignore_ascii_case("upgrade"));
    assert_eq!(answer.header("sec-websocket-accept"), Some(ACCEPT));
    assert_eq!(answer.header("sec-websocket-protocol"), Some("chat"));
    assert_eq!(answer.header("content-length"), None);
    // Bytes that would be a violation in a head, and a head that would be a request.
    for bytes in [
        b"\n\n\r\x00\xff".as_slice(),
        b"GET /hidden HTTP/1.1\nHost: x\r\n\r\n",
        &[b'\n'; 900],
    ] {
        connection.send(bytes);
        read_exactly(&mut connection, bytes);
    }
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn a_tunnel_opens_only_on_a_proof_that_the_upstream_means_it() {
    let head = "HTTP/1.1 101 Switching Protocols\r\n";
    for lines in [
        format!("Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {KEY}\r\n"),
        "Connection: Upgrade\r\nUpgrade: websocket\r\n".to_owned(),
        format!("Connection: Upgrade\r\nUpgrade: h2c\r\nSec-WebSocket-Accept: {ACCEPT}\r\n"),
        format!("Connection: Upgrade\r\nUpgrade: websocket, h2c\r\nSec-WebSocket-Accept: {ACCEPT}\r\n"),
        format!("Connection: Upgrade\r\nSec-WebSocket-Accept: {ACCEPT}\r\n"),
        format!("Upgrade: websocket\r\nSec-WebSocket-Accept: {ACCEPT}\r\n"),
        format!(
            "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {ACCEPT}\r\nSec-WebSocket-Accept: {ACCEPT}\r\n"
        ),
    ] {
        let upstream = answering(format!("{head}{lines}\r\n"));
        let ground = ground(upstream.address(), "", |setup| setup.allow_log("gave no answer"));
        let mut connection = ground.server.connect();
        connection.send(HANDSHAKE.as_bytes());
        let answer = connection.read();
        assert_eq!(answer.status, 502, "{lines}");
        assert!(connection.closes_within(Duration::from_secs(10)), "{lines}");
    }
}

#[test]
fn what_the_upstream_says_instead_is_passed_on_and_nothing_is_read_behind_the_handshake() {
    let upstream = answering("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno".to_owned());
    let ground = ground(upstream.address(), "", |setup| setup);
    let mut connection = ground.server.connect();
    connection.send(format!("{HANDSHAKE}GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes());
    let answer = connection.read();
    assert_eq!((answer.status, &*answer.body), (403, b"no".as_slice()));
    assert!(connection.closes_within(Duration::from_secs(10)), "no second answer");
}

#[test]
fn what_only_looks_like_a_handshake_is_refused() {
    let upstream = answering(switching());
    let ground = ground(upstream.address(), "", |setup| setup);
    for (from, to, status) in [
        ("GET", "POST", 400),
        (KEY, "c2hvcnQ=", 400),
        (KEY, "not base64 of 16 byt", 400),
        ("Sec-WebSocket-Key:", "X-Key:", 400),
        (
            "Sec-WebSocket-Protocol: chat",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
            400,
        ),
        ("Version: 13", "Version: 8", 426),
        ("Sec-WebSocket-Version: 13\r\n", "", 426),
        ("Host: x\r\n", "Host: x\r\nContent-Length: 3\r\n", 400),
        ("Host: x\r\n", "Host: x\r\nTransfer-Encoding: chunked\r\n", 400),
    ] {
        let text = HANDSHAKE.replace(from, to);
        assert_ne!(text, HANDSHAKE);
        let mut connection = ground.server.connect();
        connection.send(text.as_bytes());
        let answer = connection.read();
        assert_eq!(answer.status, status, "{to}");
        if status == 426 {
            assert_eq!(answer.header("sec-websocket-version"), Some("13"));
        }
        assert!(connection.closes_within(Duration::from_secs(10)), "{to}");
    }
    assert_eq!(upstream.connections(), 0);
}

#[test]
fn no_other_upgrade_reaches_an_upstream_that_would_take_it() {
    // It switches to whatever it is asked for.
    let upstream = Raw::start(|mut stream| {
        while let Some(head) = head(&mut stream) {
            let answer = match (value(&head, "upgrade"), value(&head, "http2-settings")) {
                (None, None) => "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nplain".to_owned(),
                (upgrade, _) => format!(
                    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {}\r\n\r\n",
                    upgrade.unwrap_or("h2c")
                ),
            };
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    let ground = ground(upstream.address(), "", |setup| setup);
    for upgrade in [
        "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n",
        "Connection: Upgrade\r\nUpgrade: H2C\r\n",
        "Connection: HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n",
        "Upgrade: h2c\r\n",
        "Connection: Upgrade\r\nUpgrade: TLS/1.0, h2c\r\n",
        "Connection: Upgrade\r\nUpgrade: connect-udp\r\n",
        "Connection: Upgrade\r\nUpgrade: websocketx\r\n",
        // Not asked for with `Connection`, so it is none (RFC 9110 section 7.8).
        "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
    ] {
        let mut connection = ground.server.connect();
        connection.send(format!("GET /x HTTP/1.1\r\nHost: x\r\n{upgrade}\r\n").as_bytes());
        let answer = connection.read();
        assert_eq!((answer.status, &*answer.body), (200, b"plain".as_slice()), "{upgrade}");
        assert_eq!(answer.header("upgrade"), None);
    }
}

#[test]
fn a_tunnel_that_is_silent_for_too_long_ends_and_one_that_speaks_does_not() {
    let upstream = answering(switching());
    let ground = ground(upstream.address(), "idle_timeout = \"700ms\"", |setup| {
        // Neither limit of the listener is one of a tunnel.
        setup.tables("[limits]\nidle_timeout = \"200ms\"\nhead_timeout = \"200ms\"")
    });
    let mut connection = ground.server.connect();
    connection.send(HANDSHAKE.as_bytes());
    assert_eq!(connection.read().status, 101);
    for _ in 0..6 {
        std::thread::sleep(Duration::from_millis(250));
        connection.send(b"ping");
        read_exactly(&mut connection, b"ping");
    }
    assert!(connection.closes_within(Duration::from_secs(10)));
    ground.server.wait_for_metric("hooksluice_tunnels", &[], 0.0);
}

#[test]
fn a_tunnel_takes_the_place_of_a_connection_and_ends_with_the_server() {
    let upstream = answering(switching());
    let ground = ground(upstream.address(), "", |setup| {
        setup.tables("[limits]\nconnections = 1")
    });
    let mut tunnel = ground.server.connect();
    tunnel.send(HANDSHAKE.as_bytes());
    assert_eq!(tunnel.read().status, 101);
    let mut waiting = ground.server.connect();
    waiting.send(b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n");
    let place = |server: &Server| server.metric("hooksluice_connections", &[]);
    eventually("the second connection to wait", || {
        (ground.server.metric("hooksluice_connections_refused_total", &[]) > 0.0).then_some(())
    });
    assert_eq!(place(&ground.server), 1.0);
    drop(waiting);
    ground.server.stop();
    assert!(
        tunnel.closes_within(Duration::from_secs(10)),
        "ended, not cut off at the end of the grace"
    );
}

#[test]
fn the_test_s_own_accept_value_is_right() {
    let digest = Sha1::digest(format!("{KEY}258EAFA5-E914-47DA-95CA-C5AB0DC85B11"));
    assert_eq!(BASE64.encode(&digest), ACCEPT);
}
