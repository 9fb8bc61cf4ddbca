//! Requests whose end can be read in two ways: one answer, the connection closes, and what reaches the upstream is at
//! most one request with one framing (FW-02).

use std::time::Duration;

use crate::everything;
use crate::harness::{Stage, Upstream};

/// A second request, which must never be one of its own.
const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n";

/// Sends `bytes` with a hidden request behind them; returns the statuses of all answers until the connection closes.
#[track_caller]
fn statuses(stage: &Stage, bytes: &str) -> Vec<u16> {
    let mut connection = stage.server.connect();
    // The server may have closed before all of it is written.
    connection.try_send(format!("{bytes}{HIDDEN}").as_bytes()).ok();
    let mut statuses = Vec::new();
    while let Ok(Some(answer)) = connection.try_read(false) {
        statuses.push(answer.status);
        assert!(statuses.len() < 4, "{bytes:?}: {statuses:?}");
    }
    statuses
}

#[track_caller]
fn refused(heads: &[&str], may_begin: bool) {
    let stage = everything(Upstream::start(), |setup| setup.allow_log("gave no answer"));
    for head in heads {
        let before = stage.upstream.received().len();
        let found = statuses(&stage, head);
        assert_eq!(found, [400], "{head:?}");
        let received = stage.upstream.received();
        assert!(
            received.iter().all(|request| request.target != "/hidden"),
            "{head:?}: {received:?}"
        );
        assert_eq!(received.len(), before, "{head:?} {may_begin}");
    }
}

#[test]
fn heads_with_two_readings_are_refused() {
    refused(
        &[
            "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
            "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
            "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nContent-Length: 4\r\n\r\nabcd",
            "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 4, 4\r\n\r\nabcd",
            "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 4, 5\r\n\r\nabcde",
            "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: +4\r\n\r\nabcd",
            "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: -4\r\n\r\nabcd",
            "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 0x4\r\n\r\nabcd",
            "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 4 4\r\n\r\nabcd",
            "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: \r\n\r\nabcd",
            "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\nabcd",
            "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length : 4\r\n\r\nabcd",
            "POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
            "POST /x HTTP/1.1\r\nHost: x\r\n Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
            "POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n",
            "POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
            "POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
            "POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n",
            "POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
            "POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "POST /x HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
            "POST /x HTTP/1.1\r\nHost: x\r\nX: a\r\n b\r\nContent-Length: 0\r\n\r\n",
            "POST /x HTTP/1.1\r\nHost: x\r\nX: a\r\n\tb\r\nContent-Length: 0\r\n\r\n",
            "POST /x HTTP/1.1\nHost: x\r\nContent-Length: 0\r\n\r\n",
            "POST /x HTTP/1.1\r\nHost: x\nContent-Length: 0\r\n\r\n",
            "POST /x HTTP/1.1\r\nHost: x\r\nX: a\rContent-Length: 9\r\nContent-Length: 0\r\n\r\n",
            "POST /x HTTP/1.1\r\nHost: x\r\nX\0: a\r\nContent-Length: 0\r\n\r\n",
            "POST /x HTTP/1.1\r\nHost: x\r\nX: a\0b\r\nContent-Length: 0\r\n\r\n",
            "POST /x HTTP/1.1\r\nHost: x\r\n: a\r\nContent-Length: 0\r\n\r\n",
            "POST /x HTTP/1.1\r\nHost: x\r\nno colon\r\nContent-Length: 0\r\n\r\n",
            "POST /x HTTP/1.1\r\nHost: x\r\nHost: y\r\nContent-Length: 0\r\n\r\n",
            "POST /x HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
            "POST /x y HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
            "POST  /x HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
            "POST /x HTTP/1.2\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
            "POST /x\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
        ],
        false,
    );
}

#[test]
fn broken_chunks_end_the_request_and_the_connection() {
    let start = "POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    let bodies = [
        "0x7\r\nabcdefg\r\n0\r\n\r\n",
        "+7\r\nabcdefg\r\n0\r\n\r\n",
        "-1\r\n\r\n0\r\n\r\n",
        "7 7\r\nabcdefg\r\n0\r\n\r\n",
        "g\r\nabc\r\n0\r\n\r\n",
        "\r\nabc\r\n0\r\n\r\n",
        "ffffffffffffffffff\r\nabc\r\n0\r\n\r\n",
        "10000000000000003\r\nabc\r\n0\r\n\r\n",
        "3\r\nabcX\r\n0\r\n\r\n",
        "3\r\nabc0\r\n\r\n",
        "3\nabc\n0\n\n",
        "3\rabc\r\n0\r\n\r\n",
        "3;a=b\nabc\r\n0\r\n\r\n",
        "3;a=\rb\r\nabc\r\n0\r\n\r\n",
        "3;a=\r\nabc\n0\r\n\r\n",
    ];
    let chunked: Vec<String> = bodies.iter().map(|body| format!("{start}{body}")).collect();
    let chunked: Vec<&str> = chunked.iter().map(String::as_str).collect();
    refused(&chunked, true);
}

#[test]
fn nothing_is_read_behind_a_chunked_request() {
    let stage = everything(Upstream::start(), |setup| setup);
    let start = "POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    for body in [
        "0\r\n\r\n",
        "3\r\nabc\r\n0\r\n\r\n",
        "3;ext=\"GET / HTTP/1.1\"\r\nabc\r\n0\r\n\r\n",
        "003\r\nabc\r\n000\r\n\r\n",
        "3\r\nabc\r\n0\r\nContent-Length: 30\r\nTransfer-Encoding: chunked\r\nHost: evil\r\n\r\n",
    ] {
        let before = stage.upstream.received().len();
        assert_eq!(statuses(&stage, &format!("{start}{body}")), [200], "{body:?}");
        let received = stage.upstream.wait_for(before + 1);
        assert_eq!(received.len(), before + 1, "{body:?}");
        let last = &received[before];
        assert_eq!((last.target.as_str(), last.values("content-length").len()), ("/x", 0));
        assert_eq!(last.values("transfer-encoding"), [b"chunked"]);
        assert_eq!(last.header("host"), Some(stage.upstream.address().to_string().as_str()));
    }
}

#[test]
fn pipelined_requests_are_answered_one_by_one_in_order() {
    let stage = everything(Upstream::start(), |setup| setup);
    let mut connection = stage.server.connect();
    connection.send(
        b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nGETGET /b HTTP/1.1\r\nHost: x\r\n\r\n\
          POST /c HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
    );
    for _ in 0..3 {
        assert_eq!(connection.read().status, 200);
    }
    let received = stage.upstream.wait_for(3);
    let targets: Vec<&str> = received.iter().map(|request| request.target.as_str()).collect();
    assert_eq!(targets, ["/a", "/b", "/c"]);
    assert_eq!(received[0].body, b"GET");
}

#[test]
fn a_body_that_ends_early_ends_the_request() {
    let stage = everything(Upstream::start(), |setup| setup.allow_log("gave no answer"));
    for bytes in [
        "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc",
        "POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    ] {
        let mut connection = stage.server.connect();
        connection.send(bytes.as_bytes());
        connection.finish_sending();
        let answer = connection.try_read(false);
        assert!(
            matches!(&answer, Ok(None)) || answer.as_ref().is_ok_and(|a| a.as_ref().unwrap().status == 400),
            "{bytes:?}: {answer:?}"
        );
        assert!(connection.closes_within(Duration::from_secs(10)));
    }
    assert_eq!(
        stage.upstream.received().len(),
        0,
        "a request that is not whole is none"
    );
}
