//! Upstreams and clients that fail, and what the other side is told.

use std::time::Duration;

use crate::everything;
use crate::harness::{Answer, Request, Stage, Upstream, eventually};

#[track_caller]
fn counted(stage: &Stage, outcome: &str, count: f64) {
    let labels = ["route=\"rest\"", &format!("outcome=\"{outcome}\"")];
    stage
        .server
        .wait_for_metric("hooksluice_route_requests_total", &labels, count);
}

// FW-12
#[test]
fn an_upstream_that_is_away_is_502_and_the_first_call_after_it_is_back_works() {
    let stage = everything(Upstream::start(), |setup| setup.allow_log("gave no answer"));
    assert_eq!(stage.server.send(&Request::new("GET", "/x")).status, 200);
    stage.upstream.stop();
    for _ in 0..3 {
        let answer = stage.server.send(&Request::post("/x?token=s3cret", "abc"));
        assert_eq!(answer.status, 502);
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
        assert_eq!(answer.json()["type"], "urn:hooksluice:problem:upstream-unreachable");
        assert!(!answer.text().contains("127.0.0.1"), "{}", answer.text());
    }
    counted(&stage, "unreachable", 3.0);
    let log = stage.server.log_text();
    assert!(log.contains("connection refused"), "{log}");
    assert!(!log.contains("s3cret") && !log.contains("/x"), "{log}");
    stage.upstream.start_again();
    assert_eq!(stage.server.send(&Request::new("GET", "/x")).status, 200);
}

#[test]
fn an_upstream_that_does_not_answer_is_504() {
    let stage = everything(Upstream::scripted(|_| Answer::Hang), |setup| {
        setup.upstream("timeout = \"200ms\"").allow_log("gave no answer")
    });
    let answer = stage.server.send(&Request::post("/x", "abc"));
    assert_eq!(answer.status, 504);
    assert_eq!(answer.json()["type"], "urn:hooksluice:problem:upstream-timeout");
    counted(&stage, "timeout", 1.0);
    assert_eq!(stage.upstream.received().len(), 1, "nothing is sent twice");
}

#[test]
fn what_is_no_answer_is_502_and_nothing_is_sent_twice() {
    for raw in [
        "",
        "HTTP/1.1 2",
        "nonsense\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
    ] {
        let bytes = raw.as_bytes().to_vec();
        let upstream = Upstream::scripted(move |_| match bytes.is_empty() {
            true => Answer::Hang,
            false => Answer::Raw(bytes.clone()),
        });
        let stage = everything(upstream, |setup| setup.allow_log("gave no answer"));
        let mut connection = stage.server.connect();
        connection.send(&Request::post("/x", "abc").bytes());
        stage.upstream.wait_for(1);
        if raw.is_empty() || raw == "HTTP/1.1 2" {
            std::thread::sleep(Duration::from_millis(100));
            stage.upstream.close_connections();
        }
        let answer = connection.read();
        assert_eq!(answer.status, 502, "{raw:?}");
        assert_eq!(answer.json()["type"], "urn:hooksluice:problem:upstream-answer-broken");
        counted(&stage, "broken", 1.0);
        assert_eq!(stage.upstream.received().len(), 1, "{raw:?}");
    }
}

#[test]
fn an_answer_that_is_cut_short_is_not_passed_off_as_whole() {
    let stage = everything(
        Upstream::scripted(|_| {
            Answer::Raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n".to_vec())
        }),
        |setup| setup,
    );
    let mut connection = stage.server.connect();
    connection.send(&Request::new("GET", "/x").bytes());
    stage.upstream.wait_for(1);
    assert!(connection.answers_within(Duration::from_secs(10)));
    stage.upstream.close_connections();
    assert!(connection.try_read(false).is_err(), "the end must be missing");
    let labels = ["by=\"upstream\""];
    stage
        .server
        .wait_for_metric("hooksluice_route_answers_cut_total", &labels, 1.0);
}

#[test]
fn a_client_that_leaves_cancels_the_call() {
    let stage = everything(Upstream::scripted(|_| Answer::Hang), |setup| setup);
    let mut connection = stage.server.connect();
    connection.send(&Request::new("GET", "/x").bytes());
    stage.upstream.wait_for(1);
    drop(connection);
    counted(&stage, "client_left", 1.0);
    eventually("the call to end", || {
        (stage.server.metric("hooksluice_route_waiting", &[]) == 0.0).then_some(())
    });
}

#[test]
fn a_client_that_only_closes_its_side_still_gets_an_answer_that_comes_soon() {
    let stage = everything(
        Upstream::scripted(|_| Answer::After(Duration::from_millis(200), Box::new(Answer::Status(200)))),
        |setup| setup,
    );
    let mut connection = stage.server.connect();
    connection.send(&Request::new("GET", "/x").bytes());
    connection.finish_sending();
    assert_eq!(connection.read().status, 200);
}

#[test]
fn a_body_that_stands_still_is_408_and_one_that_moves_slowly_is_not_late() {
    let stage = everything(Upstream::start(), |setup| {
        setup
            .upstream("timeout = \"300ms\"")
            .tables("[limits]\nbody_timeout = \"400ms\"")
    });
    let head = b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\n";
    let mut slow = stage.server.connect();
    slow.send(head);
    for _ in 0..8 {
        std::thread::sleep(Duration::from_millis(100));
        slow.send(b"x");
    }
    assert_eq!(
        slow.read().status,
        200,
        "longer than the upstream's timeout, but never silent"
    );
    let mut still = stage.server.connect();
    still.send(head);
    let answer = still.read();
    assert_eq!(answer.status, 408);
    assert_eq!(answer.json()["type"], "urn:hooksluice:problem:request-body-timeout");
    assert!(still.closes_within(Duration::from_secs(10)));
    counted(&stage, "too_slow", 1.0);
}
