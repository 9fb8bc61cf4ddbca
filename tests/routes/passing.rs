//! What passes through unchanged, and the few things that change.

use std::time::Duration;

use crate::harness::{Answer, Request, Upstream};
use crate::{everything, route};

fn answering(bytes: &'static [u8]) -> Upstream {
    Upstream::scripted(|_| Answer::Raw(bytes.to_vec()))
}

#[test]
fn a_request_and_its_answer_pass_unchanged() {
    let stage = everything(
        answering(
            b"HTTP/1.1 201 Created\r\nX-Note: \xd1\x82\r\nSet-Cookie: a=1\r\nX-Note: \xff\r\nSet-Cookie: b=2\r\n\
              Location: /orders/1\r\nContent-Length: 4\r\n\r\n\x00ab\xff",
        ),
        |setup| setup,
    );
    let request = Request::post("/Orders/%2f//a?b=%20&c", b"\x00\xffbody".as_slice())
        .header("X-Tag", b"\xd1\x82")
        .header("Authorization", "Bearer x")
        .header("X-Tag", "")
        .header("X-Tag", b"\xff");
    let answer = stage.server.send(&request);
    assert_eq!(answer.status, 201);
    assert_eq!(answer.body, b"\x00ab\xff");
    let notes = crate::harness::wire::values(&answer.lines, "x-note");
    assert_eq!(notes, [b"\xd1\x82".as_slice(), b"\xff"]);
    let cookies = crate::harness::wire::values(&answer.lines, "set-cookie");
    assert_eq!(cookies, [b"a=1", b"b=2"]);
    assert_eq!(answer.header("location"), Some("/orders/1"));
    let received = stage.upstream.only();
    assert_eq!(received.method, "POST");
    assert_eq!(received.target, "/Orders/%2f//a?b=%20&c");
    assert_eq!(received.body, b"\x00\xffbody");
    assert_eq!(received.values("x-tag"), [b"\xd1\x82".as_slice(), b"", b"\xff"]);
    assert_eq!(received.header("authorization"), Some("Bearer x"));
    assert_eq!(received.values("content-length"), [b"6"]);
    stage.server.wait_for_metric(
        "hooksluice_route_requests_total",
        &["route=\"rest\"", "outcome=\"2xx\""],
        1.0,
    );
    assert_eq!(stage.server.events("").len(), 0, "a route stores nothing");
    let status = stage.server.admin_get("/api/v1/status").json();
    let route = &status["routes"][0];
    assert_eq!(
        (&route["name"], &route["path"], &route["upstream"], &route["answered"]),
        (&"rest".into(), &"/{*rest}".into(), &"app".into(), &1.into())
    );
}

// FW-01
#[test]
fn hop_by_hop_headers_go_no_further_in_either_direction() {
    let stage = everything(
        answering(
            b"HTTP/1.1 200 OK\r\nConnection: X-Secret, keep-alive\r\nX-Secret: 1\r\nKeep-Alive: timeout=5\r\n\
              Upgrade: h2c\r\nProxy-Authenticate: Basic\r\nX-Kept: 1\r\nContent-Length: 0\r\n\r\n",
        ),
        |setup| setup,
    );
    let request = Request::post("/x", "abc")
        .header("Connection", "close, X-Foo")
        .header("X-Foo", "1")
        .header("Keep-Alive", "1")
        .header("TE", "trailers")
        .header("Trailer", "X-T")
        .header("Upgrade", "h2c")
        .header("HTTP2-Settings", "AAMAAABkAAQAAP__")
        .header("Proxy-Authorization", "Basic eDp5")
        .header("Proxy-Connection", "keep-alive")
        .header("Expect", "100-continue")
        .header("X-Kept", "1");
    let mut connection = stage.server.connect();
    connection.send(&request.bytes());
    let mut answer = connection.read();
    if answer.status == 100 {
        answer = connection.read();
    }
    assert_eq!(answer.status, 200);
    for name in ["x-secret", "keep-alive", "upgrade", "proxy-authenticate"] {
        assert_eq!(answer.header(name), None, "{name}");
    }
    assert_eq!(answer.header("x-kept"), Some("1"));
    let received = stage.upstream.only();
    for name in [
        "connection",
        "x-foo",
        "keep-alive",
        "te",
        "trailer",
        "upgrade",
        "http2-settings",
        "proxy-authorization",
        "proxy-connection",
        "expect",
        "transfer-encoding",
    ] {
        assert_eq!(received.header(name), None, "{name}");
    }
    assert_eq!(received.header("x-kept"), Some("1"));
    assert_eq!(received.body, b"abc");
}

// FW-04, SC-05
#[test]
fn a_stranger_can_neither_say_who_it_is_nor_speak_for_us() {
    let stage = everything(Upstream::start(), |setup| setup);
    let request = Request::new("GET", "/x")
        .header("X-Forwarded-For", "10.0.0.1")
        .header("X-Forwarded-For", "10.0.0.2")
        .header("X_Forwarded_For", "10.0.0.3")
        .header("Forwarded", "for=1.2.3.4")
        .header("X-Forwarded-Proto", "https")
        .header("X-Forwarded-Host", "evil.test")
        .header("X-Original-URL", "/hooks/plain")
        .header("X-Rewrite-URL", "/hooks/plain")
        .header("Hooksluice-Event-Id", "x")
        .header("Hooksluice_Source", "stripe")
        .header("HOOKSLUICE-Verified", "true");
    assert_eq!(stage.server.send(&request).status, 200);
    let received = stage.upstream.only();
    assert_eq!(received.values("x-forwarded-for"), [b"127.0.0.1"]);
    assert_eq!(received.values("x-forwarded-proto"), [b"http"]);
    assert_eq!(received.values("x-forwarded-host"), [b"hooks.example.test"]);
    for (name, _) in &received.lines {
        let name = name.to_ascii_lowercase();
        assert!(!name.starts_with("hooksluice"), "{name}");
        assert!(
            !["x_forwarded_for", "forwarded", "x-original-url", "x-rewrite-url"].contains(&name.as_str()),
            "{name}"
        );
    }
}

// FW-04
#[test]
fn a_trusted_proxy_is_believed_and_added_to_the_same_line() {
    let stage = everything(Upstream::start(), |setup| {
        setup.tables("[server]\ntrusted_proxies = [\"127.0.0.0/8\"]")
    });
    let request = Request::new("GET", "/x")
        .header("X-Forwarded-For", "203.0.113.9")
        .header("X-Forwarded-Proto", "https")
        .header("X-Forwarded-Host", "shop.test");
    stage.server.send(&request);
    let received = stage.upstream.only();
    assert_eq!(received.values("x-forwarded-for"), [b"203.0.113.9, 127.0.0.1"]);
    assert_eq!(received.values("x-forwarded-proto"), [b"https"]);
    assert_eq!(received.values("x-forwarded-host"), [b"shop.test"]);
}

// FW-05
#[test]
fn host_is_the_upstream_s_unless_it_is_preserved() {
    for (lines, preserved) in [("", false), ("preserve_host = true", true)] {
        let stage = everything(Upstream::start(), |setup| setup.upstream(lines));
        stage
            .server
            .send(&Request::new("GET", "/x").header("Host", "shop.test"));
        let received = stage.upstream.only();
        let own = stage.upstream.address().to_string();
        let expected = if preserved { "shop.test" } else { own.as_str() };
        assert_eq!(received.values("host"), [expected.as_bytes()]);
        assert_eq!(received.header("x-forwarded-host"), Some("shop.test"));
    }
}

#[test]
fn every_method_and_every_kind_of_framing_passes() {
    let stage = everything(Upstream::start(), |setup| setup);
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"] {
        let mut request = Request::new(method, "/x");
        for body in [b"".as_slice(), b"some body"] {
            request.body = body.to_vec();
            let before = stage.upstream.received().len();
            assert_eq!(stage.server.send(&request).status, 200, "{method}");
            let received = stage.upstream.wait_for(before + 1).pop().unwrap();
            assert_eq!((received.method.as_str(), &*received.body), (method, body));
        }
        request.body.clear();
        let before = stage.upstream.received().len();
        let answer = stage.server.send_bytes(&request.chunked(&[b"some ", b"body"]));
        assert_eq!(answer.status, 200, "{method}");
        let received = stage.upstream.wait_for(before + 1).pop().unwrap();
        assert_eq!(received.body, b"some body", "{method}, chunked");
        assert_eq!(received.values("transfer-encoding"), [b"chunked"], "{method}");
        assert!(received.values("content-length").is_empty(), "{method}");
    }
}

#[test]
fn answers_without_a_body_say_what_they_would_have_had() {
    for (method, raw, length) in [
        ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n", Some("1234")),
        ("GET", "HTTP/1.1 204 No Content\r\nX: y\r\n\r\n", None),
        ("GET", "HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\n\r\n", None),
        ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", Some("0")),
        (
            "GET",
            "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            Some("0"),
        ),
    ] {
        let raw = raw.as_bytes().to_vec();
        let stage = everything(Upstream::scripted(move |_| Answer::Raw(raw.clone())), |setup| setup);
        let mut connection = stage.server.connect();
        for _ in 0..2 {
            connection.send(&Request::new(method, "/x").bytes());
            let answer = connection.try_read(true).unwrap().unwrap();
            assert_eq!(answer.header("content-length"), length, "{method} {answer:?}");
        }
    }
}

#[test]
fn an_answer_that_ends_with_its_connection_is_passed_on_whole() {
    let stage = everything(
        Upstream::scripted(|_| Answer::Raw(b"HTTP/1.0 200 OK\r\n\r\nto the end".to_vec())),
        |setup| setup,
    );
    let mut connection = stage.server.connect();
    connection.send(&Request::new("GET", "/x").bytes());
    eventually_received(&stage);
    stage.upstream.close_connections();
    assert_eq!(connection.read().body, b"to the end");
}

fn eventually_received(stage: &crate::harness::Stage) {
    stage.upstream.wait_for(1);
    // The answer is on its way; only then may the connection end.
    std::thread::sleep(Duration::from_millis(100));
}

#[test]
fn clients_of_http_1_0_are_served() {
    let stage = everything(
        answering(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"),
        |setup| setup,
    );
    let answer = stage.server.send_bytes(b"GET /x HTTP/1.0\r\n\r\n");
    assert_eq!((answer.status, &*answer.body), (200, b"abc".as_slice()));
    assert_eq!(answer.header("transfer-encoding"), None);
    assert_eq!(stage.upstream.only().values("host").len(), 1);
}

#[test]
fn redirects_are_the_client_s_affair() {
    let stage = everything(
        answering(b"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"),
        |setup| setup,
    );
    let answer = stage.server.send(&Request::new("GET", "/x"));
    assert_eq!(answer.status, 307);
    assert_eq!(answer.header("location"), Some("http://127.0.0.1:1/"));
    stage.upstream.only();
}

#[test]
fn one_hundred_continue_is_said_only_when_the_body_is_wanted() {
    let stage = everything(Upstream::start(), |setup| setup.allow_log("gave no answer"));
    let head = b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n";
    let mut connection = stage.server.connect();
    connection.send(head);
    assert_eq!(connection.read().status, 100);
    connection.send(b"body");
    assert_eq!(connection.read().status, 200);
    assert_eq!(stage.upstream.only().body, b"body");
    stage.upstream.stop();
    let mut connection = stage.server.connect();
    connection.send(head);
    assert_eq!(connection.read().status, 502, "nobody is there to want it");
}

#[test]
fn the_longest_route_serves_and_others_are_not_found() {
    let other = Upstream::scripted(|_| Answer::Status(202));
    let stage = crate::harness::Stage::new(|setup| {
        setup
            .plain()
            .tables(&format!("[upstreams.other]\nurl = \"http://{}\"\n", other.address()))
            .table_after(&route("api", "/api/{*rest}", ""))
            .table_after("[routes.special]\npath = \"/api/special\"\nupstream = \"other\"\n")
    });
    for (path, status) in [
        ("/api", 200),
        ("/api/", 200),
        ("/api/x", 200),
        ("/api/special", 202),
        ("/api/special/x", 200),
        ("/apis", 404),
        ("/", 404),
    ] {
        assert_eq!(stage.server.send(&Request::new("GET", path)).status, status, "{path}");
    }
}

#[test]
fn a_body_over_the_route_s_limit_is_refused() {
    let stage = crate::harness::Stage::new(|setup| {
        setup
            .plain()
            .table_after(&route("rest", "/{*rest}", "max_body = \"10B\""))
    });
    assert_eq!(stage.server.send(&Request::post("/x", "1234567890")).status, 200);
    let answer = stage.server.send(&Request::post("/x", "12345678901"));
    assert_eq!(answer.status, 413);
    assert_eq!(answer.json()["type"], "urn:hooksluice:problem:request-body-too-large");
    let chunked = Request::new("POST", "/x").chunked(&[b"123456", b"789012"]);
    assert_eq!(stage.server.send_bytes(&chunked).status, 413);
    assert_eq!(stage.upstream.received().len(), 1);
}
