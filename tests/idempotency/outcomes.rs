//! What each answer of the upstream, and each way to have none, means for the key.

use crate::ground::{App, Ground, NOBODY_KNOWS, Site, answer, assert_problem, is_replay, job, json, records};
use crate::harness::{Answer, Server, Setup, Upstream, eventually, server};

on_both_stores! {
    answers_of_the_app_are_kept,
    not_now_is_passed_on_and_frees_the_key,
    what_says_nothing_of_the_app_closes_the_key,
    an_app_that_cannot_be_reached_frees_the_key,
    an_answer_that_ends_early_is_never_replayed,
    an_app_that_answers_too_late_closes_the_key,
    an_app_that_dedupes_itself_is_asked_again,
    a_connection_that_the_app_had_closed_costs_nothing,
}

fn answers_of_the_app_are_kept(ground: &Ground) {
    let app = App::answering(|number, received| {
        let status = received.target.trim_start_matches('/').parse().unwrap();
        answer(status, "Location: /x\r\n", &format!("{number}"))
    });
    let server = ground.start(&app.upstream, "");
    let kept = [
        200, 201, 202, 301, 302, 303, 307, 400, 402, 404, 405, 406, 410, 411, 412, 413, 415, 422, 424, 451, 500, 501,
    ];
    for (number, status) in kept.into_iter().enumerate() {
        let request = || {
            let mut request = job(&format!("k{status}"), "{}");
            request.target = format!("/{status}");
            request
        };
        let first = server.send(&request());
        assert_eq!((first.status, is_replay(&first)), (status, false));
        let again = server.send(&request());
        assert_eq!((again.status, is_replay(&again)), (status, true));
        assert_eq!(again.body, first.body, "{status}");
        assert_eq!(app.made(), number + 1);
    }
}

fn not_now_is_passed_on_and_frees_the_key(ground: &Ground) {
    let app = App::answering(|number, received| {
        let status = received.target.trim_start_matches('/').parse().unwrap();
        answer(status, "Retry-After: 7\r\nX-Why: busy\r\n", &format!("{number}"))
    });
    let server = ground.start(&app.upstream, "");
    let released = [401, 403, 408, 409, 421, 425, 429, 503];
    for (round, status) in released.into_iter().enumerate() {
        for again in 1..=2 {
            let mut request = job(&format!("k{status}"), "{}");
            request.target = format!("/{status}");
            let answer = server.send(&request);
            assert_eq!((answer.status, is_replay(&answer)), (status, false));
            assert_eq!(answer.text(), format!("{}", round * 2 + again), "carried out each time");
            assert_eq!(answer.header("Retry-After"), Some("7"));
            assert_eq!(answer.header("X-Why"), Some("busy"));
        }
    }
    // The key is free for another request too.
    let mut request = job("k429", "{ }");
    request.target = "/200".to_owned();
    assert_eq!(server.send(&request).status, 200);
    let released = server.metric("hooksluice_idempotency_total", &["outcome=\"released\""]);
    assert_eq!(released, 16.0);
}

/// The call is ambiguous: 504 to everybody, and no second forward.
#[track_caller]
fn assert_closed(server: &Server, app: &App, key: &str) {
    let made = app.made();
    assert_problem(&server.send(&job(key, "{}")), 504, "outcome-unknown");
    assert_problem(&server.send(&job(key, "{ }")), 422, "idempotency-key-reused");
    assert_eq!(app.made(), made, "it is not carried out again");
    assert_eq!(records(server, "ambiguous").len(), 1);
    let log = server.log_text();
    assert!(log.contains("hooksluice idempotency resolve jobs/"), "{log}");
    assert!(!log.contains(key), "no key is logged");
}

fn what_says_nothing_of_the_app_closes_the_key(ground: &Ground) {
    for status in [502, 503, 504, 520] {
        let app = App::answering(move |_, _| json(status, "{\"from\":\"a gateway\"}"));
        let server = Site::open(ground.setup(&app.upstream, "").allow_log(NOBODY_KNOWS));
        let key = format!("key-of-{status}");
        assert_problem(&server.send(&job(&key, "{}")), 504, "outcome-unknown");
        let closed = records(&server, "ambiguous");
        let ours = closed.iter().filter(|record| record["key"] == key.as_str()).count();
        assert_eq!(ours, 1);
        assert_problem(&server.send(&job(&key, "{}")), 504, "outcome-unknown");
        assert_eq!(app.made(), 1);
    }
    let app = App::answering(|_, _| Answer::Close);
    let server = Site::open(Ground::sqlite().setup(&app.upstream, "").allow_log(NOBODY_KNOWS));
    assert_problem(&server.send(&job("key-of-close", "{}")), 504, "outcome-unknown");
    assert_closed(&server, &app, "key-of-close");
}

fn an_app_that_cannot_be_reached_frees_the_key(ground: &Ground) {
    let app = App::start();
    let setup = ground.setup(&app.upstream, "").allow_log("upstream");
    app.upstream.stop();
    let server = setup.start();
    for _ in 0..2 {
        assert_problem(&server.send(&job("k", "{}")), 502, "upstream-unreachable");
    }
    app.upstream.start_again();
    eventually("the app to be reached", || {
        (server.send(&job("k", "{}")).status == 202).then_some(())
    });
    assert_eq!(app.made(), 1);
    assert!(is_replay(&server.send(&job("k", "{}"))));
    drop(server);

    let nowhere = Site::open(ground.setup_for(server::free_address(), "").allow_log("upstream"));
    assert_problem(&nowhere.send(&job("nowhere", "{}")), 502, "upstream-unreachable");
    assert_eq!(records(&nowhere, "running").len(), 0);
    assert_eq!(records(&nowhere, "ambiguous").len(), 0);
}

fn an_answer_that_ends_early_is_never_replayed(ground: &Ground) {
    for (key, part) in [
        (
            "key-announced",
            "HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\n{\"id\":",
        ),
        (
            "key-chunked",
            "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n6\r\n{\"id\":\r\n",
        ),
        ("key-head", "HTTP/1.1 201 Created\r\nContent-Le"),
    ] {
        let (app, upstream) = breaking(part);
        let server = Site::open(ground.setup(&upstream, "").allow_log(NOBODY_KNOWS));
        let answer = server.send(&job(key, "{}"));
        assert_problem(&answer, 504, "outcome-unknown");
        let again = server.send(&job(key, "{}"));
        assert_problem(&again, 504, "outcome-unknown");
        assert_eq!(app.load(std::sync::atomic::Ordering::SeqCst), 1);
    }
}

/// An app that sends a part of an answer to each request, and closes.
fn breaking(part: &'static str) -> (std::sync::Arc<std::sync::atomic::AtomicUsize>, Upstream) {
    let count = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let made = std::sync::Arc::clone(&count);
    let upstream = Upstream::scripted(move |_| {
        made.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        Answer::Part(part.into())
    });
    (count, upstream)
}

fn late(ground: &Ground, lines: &str) -> (App, Setup) {
    let app = App::answering(|number, _| match number {
        1 => Answer::Hang,
        _ => json(202, "{\"id\":\"job_1\"}"),
    });
    let setup = ground
        .setup(&app.upstream, lines)
        .upstream("timeout = \"300ms\"")
        .allow_log(NOBODY_KNOWS);
    (app, setup)
}

fn an_app_that_answers_too_late_closes_the_key(ground: &Ground) {
    let (app, setup) = late(ground, "");
    let server = setup.start();
    assert_problem(&server.send(&job("key-of-late", "{}")), 504, "outcome-unknown");
    assert_closed(&server, &app, "key-of-late");
    let ambiguous = server.metric("hooksluice_idempotency_total", &["outcome=\"ambiguous\""]);
    assert_eq!(ambiguous, 1.0);
    // The first request, its repetition, and another request with the key: none was answered by the app.
    let route = |outcome: &str| server.metric("hooksluice_route_requests_total", &[&format!("outcome=\"{outcome}\"")]);
    assert_eq!((route("broken"), route("refused")), (1.0, 2.0));
    assert_eq!((route("5xx"), route("4xx")), (0.0, 0.0));
    let unknown = server.metric("hooksluice_idempotency_total", &["outcome=\"unknown\""]);
    assert_eq!(unknown, 1.0, "each request ends in one outcome");
    assert!(server.metric("hooksluice_oldest_ambiguous_seconds", &[]) > 0.0);
}

fn an_app_that_dedupes_itself_is_asked_again(ground: &Ground) {
    let (app, setup) = late(ground, "on_ambiguous = \"retry\"");
    let server = setup.start();
    let first = server.send(&job("k", "{}"));
    assert_eq!(first.status, 504);
    assert!(first.header("Retry-After").is_some(), "it may be repeated");
    assert_problem(&server.send(&job("k", "{ }")), 422, "idempotency-key-reused");
    let again = server.send(&job("k", "{}"));
    assert_eq!((again.status, is_replay(&again)), (202, false));
    assert_eq!(app.upstream.received()[1].header("Idempotency-Key"), Some("k"));
    assert!(is_replay(&server.send(&job("k", "{}"))));
    assert_eq!(app.made(), 2);
}

// An idle connection that ended: nothing was sent over it, so nothing is unknown.
fn a_connection_that_the_app_had_closed_costs_nothing(ground: &Ground) {
    let app = App::start();
    let server = ground.start(&app.upstream, "");
    for number in 1..=5 {
        let answer = server.send(&job(&format!("k{number}"), "{}"));
        assert_eq!(answer.status, 202);
        app.upstream.close_connections();
    }
    assert_eq!(app.made(), 5);
    assert_eq!(records(&server, "done").len(), 5);
}
