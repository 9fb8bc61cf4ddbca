//! What of an answer is given again, and what is passed on without being kept.

use crate::ground::{App, Gate, Ground, Site, answer, assert_problem, is_replay, job, plain};
use crate::harness::Response;
use crate::harness::wire;

on_both_stores! {
    a_replay_has_the_headers_of_the_answer_and_none_of_its_moment,
    headers_of_the_operator_are_replayed_line_by_line,
    an_upstream_cannot_mark_its_answers_as_replays,
    bodies_are_replayed_byte_for_byte,
    an_answer_that_is_too_large_is_passed_on_whole_and_never_asked_for_again,
    an_event_stream_is_passed_on_as_it_comes,
    an_answer_with_trailers_is_passed_on_and_not_kept,
}

const RICH: &str = "Content-Type: application/json\r\nLocation: /orders/1\r\nETag: \"v1\"\r\nLink: </a>; rel=next\r\n\
    Link: </b>; rel=prev\r\nLast-Modified: Mon, 30 Nov 2026 00:00:00 GMT\r\nCache-Control: no-store\r\nVary: Accept\r\n\
    Content-Language: de\r\nContent-Disposition: inline\r\nSet-Cookie: session=1\r\nSet-Cookie: b=2\r\n\
    Date: Mon, 30 Nov 2020 00:00:00 GMT\r\nAge: 7\r\nX-Request-Id: 17\r\nX-RateLimit-Remaining: 3\r\nRateLimit: \"a\";r=3\r\n\
    WWW-Authenticate: Basic\r\nProxy-Status: x\r\nConnection: X\r\nX: 1\r\nX-Order: 1\r\nX-Order: 2\r\n";

const KEPT: [&str; 9] = [
    "Content-Type",
    "Location",
    "ETag",
    "Link",
    "Last-Modified",
    "Cache-Control",
    "Vary",
    "Content-Language",
    "Content-Disposition",
];

fn values<'a>(response: &'a Response, name: &str) -> Vec<&'a [u8]> {
    wire::values(&response.lines, name)
}

// IK-10, IK-13
fn a_replay_has_the_headers_of_the_answer_and_none_of_its_moment(ground: &Ground) {
    let app = App::answering(|_, _| answer(201, RICH, "{\"id\":1}"));
    let server = ground.start(&app.upstream, "");
    let first = server.send(&job("k", "{}"));
    assert_eq!(first.status, 201);
    assert_eq!(values(&first, "Set-Cookie").len(), 2, "the first answer is untouched");
    assert_eq!(first.header("X-Request-Id"), Some("17"));
    assert_eq!(first.header("X-RateLimit-Remaining"), Some("3"));
    assert_eq!(first.header("WWW-Authenticate"), Some("Basic"));
    let again = server.send(&job("k", "{}"));
    assert!(is_replay(&again) && !is_replay(&first));
    assert_eq!((again.status, &again.body), (201, &first.body));
    for name in KEPT {
        assert!(!values(&again, name).is_empty(), "{name}");
        assert_eq!(values(&again, name), values(&first, name), "{name}");
    }
    for name in [
        "Set-Cookie",
        "Age",
        "X-Request-Id",
        "X-RateLimit-Remaining",
        "RateLimit",
        "WWW-Authenticate",
        "Proxy-Status",
        "X",
        "X-Order",
        "Transfer-Encoding",
    ] {
        assert_eq!(again.header(name), None, "{name}");
    }
    assert_ne!(
        again.header("Date"),
        Some("Mon, 30 Nov 2020 00:00:00 GMT"),
        "of its own"
    );
    assert_eq!(again.header("Content-Length"), Some("8"));
}

fn headers_of_the_operator_are_replayed_line_by_line(ground: &Ground) {
    let app = App::raw(
        [
            b"HTTP/1.1 201 Created\r\nX-Order: caf\xe9\r\nX-Order: 2\r\nX-Request-Id: 17\r\nX-Other: 1\r\n".as_slice(),
            b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
        ]
        .concat(),
    );
    let server = ground.start(&app.upstream, "replay_headers = [\"X-Order\", \"x-request-id\"]");
    assert_eq!(server.send(&job("k", "{}")).text(), "abc");
    let again = server.send(&job("k", "{}"));
    assert_eq!(values(&again, "X-Order"), [b"caf\xe9".as_slice(), b"2"]);
    assert_eq!(again.header("X-Request-Id"), Some("17"));
    assert_eq!(again.header("X-Other"), None);
    assert_eq!(again.header("Content-Length"), Some("3"), "computed anew");
}

fn an_upstream_cannot_mark_its_answers_as_replays(ground: &Ground) {
    let app = App::answering(|_, _| answer(200, "Idempotency-Replayed: true\r\n", ""));
    let server = ground.start(&app.upstream, "");
    assert_eq!(server.send(&job("k", "{}")).header("Idempotency-Replayed"), None);
    assert!(is_replay(&server.send(&job("k", "{}"))));
    // Nor those of requests that have no key, or another method.
    assert_eq!(server.send(&plain("{}")).header("Idempotency-Replayed"), None);
    let get = crate::harness::Request::new("GET", "/jobs");
    assert_eq!(server.send(&get).header("Idempotency-Replayed"), None);
}

fn bodies_are_replayed_byte_for_byte(ground: &Ground) {
    let bytes: Vec<u8> = (0..=255).cycle().take(70_000).collect();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
        bytes.len()
    );
    let app = App::raw([head.as_bytes(), &bytes].concat());
    let setup = ground.setup(&app.upstream, "");
    let server = setup.start();
    assert_eq!(server.send(&job("k", "{}")).body, bytes);
    let again = server.send(&job("k", "{}"));
    assert_eq!(again.body, bytes);
    assert_eq!(again.header("Content-Encoding"), Some("gzip"));
    server.stop();
    let server = setup.start();
    assert_eq!(server.send(&job("k", "{}")).body, bytes, "from the store");
    assert_eq!(app.made(), 1);

    let app = App::raw("HTTP/1.1 204 No Content\r\nETag: \"x\"\r\n\r\n");
    let server = ground.start(&app.upstream, "");
    for _ in 0..2 {
        let answer = server.send(&job("empty", "{}"));
        assert_eq!((answer.status, answer.body.len()), (204, 0));
        assert_eq!(answer.header("ETag"), Some("\"x\""));
    }
    assert_eq!(app.made(), 1);
}

fn an_answer_that_is_too_large_is_passed_on_whole_and_never_asked_for_again(ground: &Ground) {
    let body = "0123456789".repeat(500);
    let chunked = format!(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
        body.len()
    );
    let announced = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    for (key, raw) in [("chunked", chunked), ("announced", announced)] {
        let app = App::raw(raw);
        let setup = ground.setup(&app.upstream, "max_stored = \"1KiB\"");
        let server = setup.start();
        let first = server.send(&job(key, "{}"));
        assert_eq!((first.status, first.text()), (200, body.clone()));
        assert_problem(&server.send(&job(key, "{}")), 409, "response-not-stored");
        assert_problem(&server.send(&job(key, "{ }")), 422, "idempotency-key-reused");
        server.stop();
        let server = setup.start();
        assert_problem(&server.send(&job(key, "{}")), 409, "response-not-stored");
        assert_eq!(app.made(), 1, "never carried out again");
    }
}

fn an_event_stream_is_passed_on_as_it_comes(ground: &Ground) {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    let gate = Gate::default();
    let (upstream, address) = streaming(head, gate.clone());
    let server = Site::open(ground.setup_for(address, ""));
    let mut client = server.connect();
    client.send(&job("k", "{}").bytes());
    // The first event is here while the stream goes on.
    let seen = client.0.read_until(b"data: 1\n\n");
    assert!(seen.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&seen));
    assert_problem(&server.send(&job("k", "{}")), 409, "response-not-stored");
    gate.open();
    client.0.read_until(b"data: 2\n\n");
    upstream.join().unwrap();
}

/// An app that takes one request, sends one event, waits at the gate, and sends another.
fn streaming(head: &'static str, gate: Gate) -> (std::thread::JoinHandle<()>, std::net::SocketAddr) {
    use std::io::Write;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let app = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut wire = wire::Wire::new(stream);
        wire.read_message(false).unwrap().unwrap();
        wire.stream.write_all(head.as_bytes()).unwrap();
        wire.stream.write_all(b"9\r\ndata: 1\n\n\r\n").unwrap();
        gate.pass();
        wire.stream.write_all(b"9\r\ndata: 2\n\n\r\n0\r\n\r\n").unwrap();
    });
    (app, address)
}

fn an_answer_with_trailers_is_passed_on_and_not_kept(ground: &Ground) {
    let app = App::raw(
        "HTTP/1.1 200 OK\r\nTrailer: Grpc-Status\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nGrpc-Status: 0\r\n\r\n",
    );
    let server = ground.start(&app.upstream, "");
    let request = job("k", "{}").header("TE", "trailers");
    assert_eq!(server.send(&request).text(), "ok");
    assert_problem(&server.send(&request), 409, "response-not-stored");
    assert_eq!(app.made(), 1);
}
