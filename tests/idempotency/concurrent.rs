//! Requests that come while the first one runs.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use crate::ground::{App, Gate, Ground, assert_first, assert_problem, assert_replayed, is_replay, job, json};
use crate::harness::{Response, Server, eventually};

on_both_stores! {
    a_repetition_while_the_first_runs_is_told_to_come_back,
    another_request_while_the_first_runs_is_a_reuse,
    twenty_and_fifty_at_once_are_one_call,
    who_waits_gets_the_answer,
    who_waits_too_long_is_told_to_come_back,
    who_waited_for_a_call_that_was_released_makes_its_own,
    a_client_that_hangs_up_cancels_nothing,
    an_orderly_stop_finishes_what_runs,
    calls_that_run_are_bounded,
}

/// Sends the request on a connection that stays open, and waits until the app has it.
fn begin(server: &Server, app: &App, key: &str, count: usize) -> crate::harness::Connection {
    let mut first = server.connect();
    first.send(&job(key, "{}").bytes());
    app.upstream.wait_for(count);
    first
}

// IK-01
fn a_repetition_while_the_first_runs_is_told_to_come_back(ground: &Ground) {
    let gate = Gate::default();
    let app = gate.app();
    let server = ground.start(&app.upstream, "");
    let mut first = begin(&server, &app, "k", 1);
    for _ in 0..2 {
        let second = server.send(&job("k", "{}"));
        assert_problem(&second, 409, "idempotency-key-outstanding");
        assert_eq!(second.header("Retry-After"), Some("1"));
        assert_eq!(
            second.json()["title"],
            "A request is outstanding for this Idempotency-Key"
        );
    }
    gate.open();
    assert_first(&first.read());
    assert_replayed(&server.send(&job("k", "{}")));
    assert_eq!(app.made(), 1);
}

fn another_request_while_the_first_runs_is_a_reuse(ground: &Ground) {
    let gate = Gate::default();
    let app = gate.app();
    let server = ground.start(&app.upstream, "wait = \"5s\"");
    let mut first = begin(&server, &app, "k", 1);
    // At once, though the route waits for answers.
    assert_problem(&server.send(&job("k", "{\"other\":1}")), 422, "idempotency-key-reused");
    gate.open();
    assert_first(&first.read());
    assert_eq!(app.made(), 1);
}

fn at_once(server: &Server, count: usize, key: &str) -> Vec<Response> {
    let barrier = Barrier::new(count);
    thread::scope(|scope| {
        let senders: Vec<_> = (0..count)
            .map(|_| {
                scope.spawn(|| {
                    barrier.wait();
                    server.send(&job(key, "{}"))
                })
            })
            .collect();
        senders.into_iter().map(|sender| sender.join().unwrap()).collect()
    })
}

fn twenty_and_fifty_at_once_are_one_call(ground: &Ground) {
    let app = App::start();
    let server = ground.start(&app.upstream, "");
    for (round, count) in [20, 50].into_iter().enumerate() {
        let key = format!("k{round}");
        let answers = at_once(&server, count, &key);
        assert_eq!(app.made(), round + 1, "{count} at once");
        let fresh = answers
            .iter()
            .filter(|answer| answer.status == 202 && !is_replay(answer));
        assert_eq!(fresh.count(), 1);
        let body = format!("{{\"id\":\"job_{}\"}}", round + 1);
        for answer in &answers {
            match answer.status {
                202 => assert_eq!(answer.text(), body),
                _ => assert_problem(answer, 409, "idempotency-key-outstanding"),
            }
        }
    }
}

fn who_waits_gets_the_answer(ground: &Ground) {
    let app = App::answering(|number, _| {
        // Long enough for all of them to be there.
        thread::sleep(Duration::from_millis(300));
        json(202, &format!("{{\"id\":\"job_{number}\"}}"))
    });
    let server = ground.start(&app.upstream, "wait = \"30s\"");
    let answers = at_once(&server, 50, "k");
    assert_eq!(app.made(), 1);
    assert!(
        answers.iter().all(|answer| answer.text() == "{\"id\":\"job_1\"}"),
        "{answers:?}"
    );
    assert_eq!(answers.iter().filter(|answer| is_replay(answer)).count(), 49);
}

fn who_waits_too_long_is_told_to_come_back(ground: &Ground) {
    let gate = Gate::default();
    let app = gate.app();
    let server = ground.start(&app.upstream, "wait = \"300ms\"");
    let mut first = begin(&server, &app, "k", 1);
    assert_problem(&server.send(&job("k", "{}")), 409, "idempotency-key-outstanding");
    gate.open();
    assert_first(&first.read());
}

fn who_waited_for_a_call_that_was_released_makes_its_own(ground: &Ground) {
    let gate = Gate::default();
    let at = gate.clone();
    let app = App::answering(move |number, _| {
        at.pass();
        match number {
            1 => json(429, "{}"),
            _ => json(202, "{\"id\":\"job_1\"}"),
        }
    });
    let server = ground.start(&app.upstream, "wait = \"30s\"");
    let mut first = begin(&server, &app, "k", 1);
    let mut second = server.connect();
    second.send(&job("k", "{}").bytes());
    gate.open();
    assert_eq!(first.read().status, 429);
    assert_first(&second.read());
    assert_eq!(app.made(), 2);
}

// IK-01: the first caller goes away.
fn a_client_that_hangs_up_cancels_nothing(ground: &Ground) {
    let gate = Gate::default();
    let app = gate.app();
    let server = ground.start(&app.upstream, "");
    drop(begin(&server, &app, "k", 1));
    assert_problem(&server.send(&job("k", "{}")), 409, "idempotency-key-outstanding");
    gate.open();
    eventually("the answer to be kept", || {
        let answer = server.send(&job("k", "{}"));
        (answer.status == 202).then(|| assert_replayed(&answer))
    });
    assert_eq!(app.made(), 1);
}

fn an_orderly_stop_finishes_what_runs(ground: &Ground) {
    let gate = Gate::default();
    let app = gate.app();
    let setup = ground.setup(&app.upstream, "");
    let server = setup.start();
    drop(begin(&server, &app, "gone", 1));
    let mut waiting = begin(&server, &app, "waiting", 2);
    server.ask_to_stop();
    eventually("the server to stop accepting", || (!server.is_ready()).then_some(()));
    gate.open();
    assert_eq!(waiting.read().status, 202);
    server.stop();
    let server = setup.start();
    assert!(is_replay(&server.send(&job("gone", "{}"))));
    assert!(is_replay(&server.send(&job("waiting", "{}"))));
    assert_eq!(app.made(), 2);
}

fn calls_that_run_are_bounded(ground: &Ground) {
    let gate = Gate::default();
    let app = gate.app();
    let setup = ground.setup(&app.upstream, "").tables("[limits]\nconnections = 2");
    let server = setup.start();
    // Their clients leave, so that it is not the connections that bound them.
    for number in 1..=2 {
        begin_and_leave(&server, &app, &format!("k{number}"), number);
        server.wait_for_metric("hooksluice_connections", &[], 0.0);
    }
    assert_eq!(server.metric("hooksluice_idempotency_running", &[]), 2.0);
    assert_problem(&server.send(&job("k3", "{}")), 503, "overloaded");
    gate.open();
    server.wait_for_metric("hooksluice_idempotency_running", &[], 0.0);
    assert_eq!(server.send(&job("k3", "{}")).status, 202);
}

/// A request over HTTP/2 whose connection is closed once the app has it.
fn begin_and_leave(server: &Server, app: &App, key: &str, count: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let request = hyper::Request::post("http://hooks.example.test/jobs")
        .header("authorization", "Bearer A")
        .header("content-type", "application/json")
        .header("idempotency-key", key)
        .body(http_body_util::Full::new(bytes::Bytes::from_static(b"{}")))
        .unwrap();
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(server.address()).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http2::handshake(
            hyper_util::rt::TokioExecutor::new(),
            hyper_util::rt::TokioIo::new(stream),
        )
        .await
        .unwrap();
        let arrived = async {
            while app.made() < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            answer = sender.send_request(request) => panic!("answered: {answer:?}"),
            ended = connection => panic!("ended: {ended:?}"),
            () = arrived => {}
        }
    });
}
