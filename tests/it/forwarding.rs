//! Forwarding: what the upstream gets, how often, and when.

use std::time::Duration;

use hooksluice::time::Clock;

use crate::harness::sign::{self, SECRET};
use crate::harness::{Answer, Received, Request, Setup, Stage, Upstream, eventually};

/// Retries within a fraction of a second.
const QUICK: &str = "retry = { first = \"100ms\", max = \"200ms\" }";

fn raw(text: &str) -> Answer {
    Answer::Raw(text.as_bytes().to_vec())
}

/// A server whose upstream refuses once with `first` and then answers 200; the wait between the two attempts.
fn wait_after(first: &'static str, upstream: &str) -> Duration {
    let answering = Upstream::scripted(move |received| {
        if received.attempt() == 1 {
            raw(first)
        } else {
            Answer::Status(200)
        }
    });
    let stage = Stage::with(answering, |setup| setup.upstream(upstream).plain().allow_log("app"));
    let clock = Clock::system();
    assert_eq!(
        stage.server.send(&sign::plain("/hooks/plain", "wait", b"{}")).status,
        200
    );
    stage.upstream.wait_for(1);
    let start = clock.monotonic();
    stage.upstream.wait_for(2);
    clock.monotonic().since(start)
}

/// Every outcome the event's attempts had, oldest first.
fn outcomes(stage: &Stage, received: &Received) -> Vec<String> {
    let event = stage
        .server
        .admin_get(&format!("/api/v1/events/{}", received.event_id()))
        .json();
    let attempts = event["attempts"].as_array().unwrap().clone();
    attempts
        .iter()
        .map(|attempt| attempt["outcome"].as_str().unwrap().to_owned())
        .collect()
}

// FW-01
#[test]
fn headers_that_speak_of_one_connection_are_not_passed_on() {
    let stage = Stage::new(|setup| setup.plain());
    let request = sign::plain("/hooks/plain", "fw-01", b"{}")
        .header("Connection", "keep-alive, X-Foo, Upgrade, HTTP2-Settings, X-Signature")
        .header("X-Foo", "1")
        .header("Keep-Alive", "timeout=5")
        .header("TE", "trailers")
        .header("Trailer", "X-T")
        .header("Upgrade", "h2c")
        .header("HTTP2-Settings", "AAMAAABkAARAAAAAAAIAAAAA")
        .header("Proxy-Authorization", "Basic eA==")
        .header("Proxy-Connection", "keep-alive")
        .header("X-Kept", "one")
        .header("X-Other", "o")
        .header("X-Kept", "two");
    let received = stage.accept(&request);
    for name in [
        "X-Foo",
        "Keep-Alive",
        "TE",
        "Trailer",
        "Upgrade",
        "HTTP2-Settings",
        "Proxy-Authorization",
        "Proxy-Connection",
        "Expect",
        "Transfer-Encoding",
    ] {
        assert!(received.values(name).is_empty(), "{name} was passed on");
    }
    assert_eq!(received.values("X-Kept"), [&b"one"[..], b"two"]);
    assert_eq!(received.values("Content-Length"), [b"2"]);
}

// FW-02
#[test]
fn a_request_with_two_readings_is_malformed() {
    let stage = Stage::new(|setup| setup.plain());
    let request = |lines: &str, body: &str| {
        let mut bytes = sign::plain("/hooks/plain", "fw-02", b"{}").head();
        bytes.extend(lines.as_bytes());
        bytes.extend(b"\r\n");
        bytes.extend(body.as_bytes());
        bytes
    };
    for (lines, body) in [
        (
            "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
            "2\r\n{}\r\n0\r\n\r\n",
        ),
        ("Transfer-Encoding: chunked, identity\r\n", "2\r\n{}\r\n0\r\n\r\n"),
        ("Transfer-Encoding : chunked\r\n", "2\r\n{}\r\n0\r\n\r\n"),
        ("Content-Length: 2\r\nContent-Length: 3\r\n", "{}"),
        ("Content-Length: +2\r\n", "{}"),
        ("Content-Length: 2\r\nX-Fold: a\r\n b\r\n", "{}"),
        ("Transfer-Encoding: chunked\r\n", "0x2\r\n{}\r\n0\r\n\r\n"),
    ] {
        stage.leaves_nothing(|| {
            let mut connection = stage.server.connect();
            connection.send(&request(lines, body));
            assert_eq!(connection.read().status, 400, "{lines:?}");
            assert!(
                connection.closes_within(Duration::from_secs(5)),
                "{lines:?}: still open"
            );
        });
    }
}

// FW-04
#[test]
fn what_a_stranger_says_about_itself_is_not_believed() {
    let stage = Stage::new(|setup| setup.plain());
    let request = sign::plain("/hooks/plain", "fw-04", b"{}")
        .header("X-Forwarded-For", "10.0.0.1")
        .header("X-Forwarded-Proto", "https")
        .header("X-Forwarded-Host", "evil.test")
        .header("Hooksluice-Event-Id", "forged")
        .header("Hooksluice-Replay", "true")
        .header("Hooksluice_Source", "forged")
        .header("Hooksluice-Anything", "forged");
    let received = stage.accept(&request);
    assert_eq!(received.values("X-Forwarded-For"), [b"127.0.0.1"]);
    assert_eq!(received.values("X-Forwarded-Proto"), [b"http"]);
    assert_eq!(received.values("X-Forwarded-Host"), [b"hooks.example.test"]);
    assert_ne!(received.event_id(), "forged");
    assert_eq!(received.header("Hooksluice-Source"), Some("plain"));
    for name in ["Hooksluice-Replay", "Hooksluice_Source", "Hooksluice-Anything"] {
        assert!(received.values(name).is_empty(), "{name} came from outside");
    }
}

// FW-04
#[test]
fn a_trusted_proxy_is_believed_about_the_client() {
    let stage = Stage::new(|setup| setup.tables("[server]\ntrusted_proxies = [\"127.0.0.1/32\"]").plain());
    let request = sign::plain("/hooks/plain", "trusted", b"{}")
        .header("X-Forwarded-For", "198.51.100.7")
        .header("X-Forwarded-Proto", "https")
        .header("X-Forwarded-Host", "public.example.test");
    let received = stage.accept(&request);
    let [line] = received.values("X-Forwarded-For")[..] else {
        panic!("not one line: {received:?}");
    };
    assert!(line.starts_with(b"198.51.100.7"), "{received:?}");
    assert_eq!(received.header("X-Forwarded-Proto"), Some("https"));
    assert_eq!(received.header("X-Forwarded-Host"), Some("public.example.test"));
}

// FW-05
#[test]
fn the_host_is_the_upstream_s_unless_it_is_to_be_preserved() {
    let stage = Stage::new(|setup| setup.plain());
    let received = stage.accept(&sign::plain("/hooks/plain", "fw-05", b"{}"));
    assert_eq!(
        received.header("Host"),
        Some(stage.upstream.address().to_string().as_str())
    );
    assert_eq!(received.header("X-Forwarded-Host"), Some("hooks.example.test"));
    let stage = Stage::new(|setup| setup.upstream("preserve_host = true").plain());
    let received = stage.accept(&sign::plain("/hooks/plain", "fw-05", b"{}"));
    assert_eq!(received.header("Host"), Some("hooks.example.test"));
}

#[test]
fn every_forward_says_what_it_is() {
    let stage = Stage::new(|setup| setup.plain());
    let received = stage.accept(&sign::plain("/hooks/plain?a=1&b=%20+x", "said", b"{}"));
    let id = received.event_id();
    assert!(id.len() == 36 && id.as_bytes()[14] == b'7', "not a UUIDv7: {id}");
    assert_eq!(received.attempt(), 1);
    assert_eq!(received.header("Hooksluice-Source"), Some("plain"));
    assert_eq!(received.header("Hooksluice-Delivery-Id"), Some("said"));
    let received_at = received.header("Hooksluice-Received-At").unwrap();
    assert!(received_at.ends_with('Z') && received_at.contains('T'), "{received_at}");
    assert_eq!(received.header("Hooksluice-Scope"), None);
    assert_eq!(received.header("Hooksluice-Replay"), None);
}

#[test]
fn a_source_may_forward_to_another_path() {
    let stage = Stage::new(|setup| setup.source("plain", "hmac", SECRET, "forward_path = \"/app/in?x=1\""));
    assert_eq!(
        stage
            .server
            .send(&sign::plain("/hooks/plain?y=2", "path", b"{}"))
            .status,
        200
    );
    assert_eq!(stage.upstream.only().target, "/app/in?x=1");
}

// FW-07
#[test]
fn retry_after_is_honoured_within_bounds() {
    let max = "retry = { first = \"100ms\", max = \"2s\" }";
    let answer = |status: &str, value: &str| -> &'static str {
        let text = format!("HTTP/1.1 {status} X\r\nRetry-After: {value}\r\nContent-Length: 0\r\n\r\n");
        Box::leak(text.into_boxed_str())
    };
    for status in ["429", "503"] {
        let waited = wait_after(answer(status, "1"), max);
        assert!(waited >= Duration::from_millis(950), "{status}: {waited:?}");
    }
    let far = wait_after(answer("429", "99999999"), max);
    assert!(
        far >= Duration::from_millis(1900) && far < Duration::from_secs(10),
        "{far:?}"
    );
    let at_once = wait_after(answer("503", "0"), max);
    assert!(
        at_once >= Duration::from_millis(950),
        "no immediate repeat: {at_once:?}"
    );
    for nonsense in ["-5", "abc", ""] {
        let waited = wait_after(answer("429", nonsense), max);
        assert!(waited < Duration::from_millis(900), "{nonsense:?}: {waited:?}");
    }
}

// FW-09
#[test]
fn an_answer_that_breaks_off_is_one_attempt_with_an_unknown_outcome() {
    for broken in ["HTTP/1.1 2", "gibberish\r\n\r\n", ""] {
        let answering = Upstream::scripted(move |received| match received.attempt() {
            1 if broken.is_empty() => Answer::Close,
            1 => Answer::After(Duration::from_millis(20), Box::new(raw(broken))),
            _ => Answer::Status(200),
        });
        // A peer that sent half an answer closes the connection; a sample that keeps it open would be a timeout.
        let stage = Stage::with(answering, |setup| {
            setup
                .upstream(&format!("{QUICK}\ntimeout = \"1s\""))
                .plain()
                .allow_log("app")
        });
        assert_eq!(
            stage.server.send(&sign::plain("/hooks/plain", "fw-09", b"{}")).status,
            200
        );
        let received = stage.upstream.wait_for(2);
        assert_eq!(received[1].attempt(), 2, "every request on the wire has its number");
        eventually("both attempts to be recorded", || {
            (outcomes(&stage, &received[0]).len() == 2).then_some(())
        });
        let outcomes = outcomes(&stage, &received[0]);
        assert_eq!(outcomes, ["unknown", "delivered"], "{broken:?}");
    }
}

// FW-09: the app has acted and said so; only its body broke off.
#[test]
fn a_success_whose_body_breaks_off_is_a_success() {
    let half = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc";
    let stage = Stage::with(Upstream::scripted(move |_| raw(half)), |setup| {
        setup.upstream("timeout = \"1s\"").plain()
    });
    let received = stage.accept(&sign::plain("/hooks/plain", "fw-09", b"{}"));
    eventually("the attempt to be recorded", || {
        (outcomes(&stage, &received) == ["delivered"]).then_some(())
    });
    stage.upstream.only();
}

// FW-10
#[test]
fn a_timeout_is_an_unknown_outcome_and_never_two_attempts_at_once() {
    let answering = Upstream::scripted(|received| match received.attempt() {
        1 => Answer::After(Duration::from_secs(3), Box::new(Answer::Status(200))),
        _ => Answer::Status(200),
    });
    let stage = Stage::with(answering, |setup| {
        setup
            .upstream(&format!("{QUICK}\ntimeout = \"1s\""))
            .plain()
            .allow_log("app")
    });
    let clock = Clock::system();
    assert_eq!(
        stage.server.send(&sign::plain("/hooks/plain", "fw-10", b"{}")).status,
        200
    );
    stage.upstream.wait_for(1);
    let start = clock.monotonic();
    let received = stage.upstream.wait_for(2);
    assert!(
        clock.monotonic().since(start) >= Duration::from_millis(950),
        "the second attempt came too early"
    );
    assert_eq!(received[0].event_id(), received[1].event_id());
    eventually("both attempts to be recorded", || {
        (outcomes(&stage, &received[0]).len() == 2).then_some(())
    });
    assert_eq!(outcomes(&stage, &received[0]), ["unknown", "delivered"]);
}

// FW-12
#[test]
fn an_upstream_that_returns_is_delivered_to_without_a_restart() {
    let stage = Stage::new(|setup| setup.upstream(QUICK).plain().allow_log("app"));
    stage.accept(&sign::plain("/hooks/plain", "before", b"{}"));
    for round in 0..3 {
        stage.upstream.stop();
        let id = format!("during-{round}");
        assert_eq!(stage.server.send(&sign::plain("/hooks/plain", &id, b"{}")).status, 200);
        std::thread::sleep(Duration::from_millis(300));
        stage.upstream.start_again();
        eventually("the event of the outage", || {
            let received = stage.upstream.received();
            received
                .iter()
                .any(|received| received.header("X-Delivery-Id") == Some(id.as_str()))
                .then_some(())
        });
        stage.accept(&sign::plain("/hooks/plain", &format!("after-{round}"), b"{}"));
    }
}

#[test]
fn an_upstream_that_closes_idle_connections_costs_no_attempt() {
    let close = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let stage = Stage::with(Upstream::scripted(move |_| raw(close)), |setup| setup.plain());
    for round in 0..5 {
        let received = stage.accept(&sign::plain("/hooks/plain", &format!("idle-{round}"), b"{}"));
        assert_eq!(received.attempt(), 1);
        eventually("the answer to be recorded", || {
            (outcomes(&stage, &received) == ["delivered"]).then_some(())
        });
        stage.upstream.close_connections();
        std::thread::sleep(Duration::from_millis(100));
    }
}

// FW-13
#[test]
fn a_404_of_a_bad_deploy_disables_nothing() {
    let stage = Stage::with(Upstream::scripted(|_| Answer::Status(404)), |setup| {
        setup.upstream(QUICK).plain().allow_log("app")
    });
    for number in 0..5 {
        let request = sign::plain("/hooks/plain", &format!("fw-13-{number}"), b"{}");
        assert_eq!(stage.server.send(&request).status, 200);
    }
    stage.upstream.wait_for(10);
    stage.upstream.set_script(|_| Answer::Status(200));
    eventually("all five to be delivered", || {
        (stage.server.events("state=delivered").len() == 5).then_some(())
    });
}

#[test]
fn gone_is_final_and_a_redirect_is_not_followed() {
    let elsewhere = Upstream::start();
    let redirect: &'static str = Box::leak(
        format!(
            "HTTP/1.1 307 X\r\nLocation: http://{}/taken\r\nContent-Length: 0\r\n\r\n",
            elsewhere.address()
        )
        .into_boxed_str(),
    );
    let answering = Upstream::scripted(move |received| match received.header("X-Delivery-Id") {
        Some("gone") => Answer::Status(410),
        _ if received.attempt() == 1 => raw(redirect),
        _ => Answer::Status(200),
    });
    let stage = Stage::with(answering, |setup| setup.upstream(QUICK).plain().allow_log("app"));
    assert_eq!(
        stage.server.send(&sign::plain("/hooks/plain", "gone", b"{}")).status,
        200
    );
    eventually("410 to be final", || {
        (stage.server.events("state=dead").len() == 1).then_some(())
    });
    assert_eq!(
        stage.server.send(&sign::plain("/hooks/plain", "moved", b"{}")).status,
        200
    );
    eventually("the redirected one to be tried again", || {
        (stage.server.events("state=delivered").len() == 1).then_some(())
    });
    assert!(elsewhere.received().is_empty());
}

// LD-02
#[test]
fn one_poison_event_delays_no_other() {
    let answering = Upstream::scripted(|received| {
        Answer::Status(if received.header("X-Delivery-Id") == Some("poison") {
            500
        } else {
            200
        })
    });
    let stage = Stage::with(answering, |setup| {
        setup
            .upstream("concurrency = 1\nretry = { first = \"10s\" }")
            .plain()
            .allow_log("app")
    });
    assert_eq!(
        stage.server.send(&sign::plain("/hooks/plain", "poison", b"{}")).status,
        200
    );
    for number in 0..25 {
        let request = sign::plain("/hooks/plain", &format!("good-{number}"), b"{}");
        assert_eq!(stage.server.send(&request).status, 200);
    }
    eventually("the good ones", || {
        (stage.server.events("state=delivered").len() == 25).then_some(())
    });
    assert_eq!(stage.server.events("state=pending").len(), 1);
}

// P7
#[test]
fn an_upstream_never_sees_more_at_once_than_it_asked_for() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counted, seen) = (Arc::clone(&now), Arc::clone(&most));
    let answering = Upstream::scripted(move |_| {
        let running = counted.fetch_add(1, Ordering::SeqCst) + 1;
        seen.fetch_max(running, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(10));
        counted.fetch_sub(1, Ordering::SeqCst);
        Answer::Status(200)
    });
    let stage = Stage::with(answering, |setup| {
        setup
            .upstream("concurrency = 3")
            .plain()
            .source("other", "hmac", SECRET, "")
    });
    for number in 0..60 {
        let target = if number % 2 == 0 {
            "/hooks/plain"
        } else {
            "/hooks/other"
        };
        let request = sign::plain(target, &number.to_string(), b"{}");
        assert_eq!(stage.server.send(&request).status, 200);
    }
    stage.upstream.wait_for(60);
    assert_eq!(most.load(Ordering::SeqCst), 3);
}

// P7
#[test]
fn an_upstream_s_rate_holds_over_all_sources() {
    let stage = Stage::new(|setup| {
        setup
            .upstream("rate = \"20/s\"\nburst = 1")
            .plain()
            .source("other", "hmac", SECRET, "")
    });
    let clock = Clock::system();
    let start = clock.monotonic();
    for number in 0..30 {
        let target = if number % 2 == 0 {
            "/hooks/plain"
        } else {
            "/hooks/other"
        };
        let request = sign::plain(target, &number.to_string(), b"{}");
        assert_eq!(stage.server.send(&request).status, 200);
    }
    stage.upstream.wait_for(30);
    let took = clock.monotonic().since(start);
    assert!(
        took >= Duration::from_millis(1400),
        "30 events at 20/s took only {took:?}"
    );
}

// SC-05
#[test]
fn no_request_line_steers_the_forward_elsewhere() {
    let elsewhere = Upstream::start();
    let stage = Stage::new(|setup| setup.plain());
    let body = b"{}";
    let absolute = format!("http://{}/hooks/plain", elsewhere.address());
    let received = {
        let request = sign::plain(&absolute, "absolute", body);
        assert_eq!(stage.server.send(&request).status, 200);
        stage.upstream.wait_for(1).pop().unwrap()
    };
    assert_eq!(received.target, "/hooks/plain");
    for target in [
        "//evil.test/hooks/plain",
        "/http://evil.test/x",
        "/@evil.test",
        "/\\evil.test",
        "evil.test:443",
    ] {
        let answer = stage.server.send(&sign::plain(target, "other", body));
        assert!((400..500).contains(&answer.status), "{target}: {answer:?}");
    }
    let connect = stage.server.send(&Request::new("CONNECT", "evil.test:443"));
    assert!((400..500).contains(&connect.status), "{connect:?}");
    assert_eq!(stage.upstream.received().len(), 1);
    assert!(elsewhere.received().is_empty());
}

// DD-11
#[test]
fn an_attempt_that_a_shutdown_overtakes_is_finished_or_recognisably_repeated() {
    let upstream = Upstream::scripted(|received| {
        let time = Duration::from_secs(if received.attempt() == 1 { 2 } else { 0 });
        Answer::After(time, Box::new(Answer::Status(200)))
    });
    let setup = Setup::new(&upstream)
        .tables("[server]\nshutdown_grace = \"10s\"")
        .plain()
        .allow_log("app");
    let server = setup.start();
    assert_eq!(server.send(&sign::plain("/hooks/plain", "finished", b"{}")).status, 200);
    upstream.wait_for(1);
    server.stop();
    // The grace was long enough: the attempt counted, nothing is repeated.
    let server = setup.start();
    eventually("the event to be delivered", || {
        (server.events("state=delivered").len() == 1).then_some(())
    });
    assert_eq!(upstream.received().len(), 1);
    drop(server);
    let setup = Setup::new(&upstream)
        .tables("[server]\nshutdown_grace = \"100ms\"")
        .plain()
        .allow_log("app");
    let server = setup.start();
    assert_eq!(server.send(&sign::plain("/hooks/plain", "repeated", b"{}")).status, 200);
    upstream.wait_for(2);
    server.stop();
    let _server = setup.start();
    let received = upstream.wait_for(3);
    assert_eq!(received[2].event_id(), received[1].event_id());
    assert_eq!((received[1].attempt(), received[2].attempt()), (1, 2));
}
