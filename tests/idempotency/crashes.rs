//! SIGKILL of the upstream and of hooksluice at named points: what was sent is never sent again, and what nobody knows is
//! said to be unknown.

use crate::ground::{App, Gate, Ground, NOBODY_KNOWS, Site, assert_problem, job, records, route};
use crate::harness::{Answer, Setup, eventually};

on_both_stores! {
    an_upstream_killed_in_the_middle_of_its_answer_leaves_the_key_closed,
    a_kill_in_the_middle_of_a_call_leaves_the_key_closed,
    a_kill_right_after_the_first_answer_leaves_it_to_be_replayed,
    a_kill_before_the_client_has_its_answer_replays_or_closes_and_never_repeats,
}

/// Another hooksluice, which passes everything on to the app, stands for an upstream that can be killed.
fn upstream_to_kill(app: &App) -> (Setup, crate::harness::Server) {
    let setup = Setup::new(&app.upstream)
        .table_after("[routes.all]\npath = \"/{*rest}\"\nupstream = \"app\"")
        .allow_log("no source is configured");
    let server = setup.start();
    (setup, server)
}

fn an_upstream_killed_in_the_middle_of_its_answer_leaves_the_key_closed(ground: &Ground) {
    let part = "HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\n{\"id\":";
    let app = App::answering(move |_, _| Answer::Raw(part.into()));
    let (_setup, mut upstream) = upstream_to_kill(&app);
    let server = Site::open(ground.setup_for(upstream.address(), "").allow_log(NOBODY_KNOWS));
    let mut client = server.connect();
    client.send(&job("k", "{}").bytes());
    app.upstream.wait_for(1);
    // The head and a part of the body are on their way; nothing says when they are there, and nothing depends on it.
    upstream.kill();
    assert_problem(&client.read(), 504, "outcome-unknown");
    assert_problem(&server.send(&job("k", "{}")), 504, "outcome-unknown");
    assert_problem(&server.send(&job("k", "{ }")), 422, "idempotency-key-reused");
    assert_eq!(app.made(), 1, "no second forward");
}

// IK-02: after the forward, before the answer.
fn a_kill_in_the_middle_of_a_call_leaves_the_key_closed(ground: &Ground) {
    let gate = Gate::default();
    let app = gate.app();
    let setup = ground
        .setup(&app.upstream, "")
        .allow_log(NOBODY_KNOWS)
        .allow_log("calls ran when the store was last open");
    let mut server = setup.start();
    let mut client = server.connect();
    client.send(&job("k", "{}").bytes());
    app.upstream.wait_for(1);
    server.kill();
    drop(server);
    gate.open();
    let server = setup.start();
    if ground.is_postgres() {
        // Another replica could still be at it: until the lease is over nobody says that it is lost.
        let answer = server.send(&job("k", "{}"));
        if answer.status != 504 {
            assert_problem(&answer, 409, "idempotency-key-outstanding");
        }
        eventually("the lease to be over", || {
            (server.send(&job("k", "{}")).status == 504).then_some(())
        });
    }
    // The embedded store's lock proves that its owner is gone.
    assert_problem(&server.send(&job("k", "{}")), 504, "outcome-unknown");
    assert_problem(&server.send(&job("k", "{ }")), 422, "idempotency-key-reused");
    assert_eq!(app.made(), 1, "no second forward");
    let ambiguous = records(&server, "ambiguous");
    assert_eq!(ambiguous.len(), 1);
    assert_eq!(ambiguous[0]["key"], "k");
    let resolve = format!(
        "hooksluice idempotency resolve {} --release",
        ambiguous[0]["record"].as_str().unwrap()
    );
    let line = server.wait_for_log(&[NOBODY_KNOWS, &resolve]);
    assert!(line.contains("ERROR"), "{line}");
    let told = server.log_text().matches(&resolve).count();
    assert_eq!(told, 1, "once per call");
}

// IK-16
fn a_kill_right_after_the_first_answer_leaves_it_to_be_replayed(ground: &Ground) {
    let app = App::start();
    let setup = ground.setup(&app.upstream, "");
    for round in 0..5 {
        let mut server = setup.start();
        let key = format!("k{round}");
        let first = server.send(&job(&key, "{}"));
        server.kill();
        drop(server);
        let server = setup.start();
        let again = server.send(&job(&key, "{}"));
        assert_eq!((again.status, &again.body), (first.status, &first.body));
        assert_eq!(again.header("Idempotency-Replayed"), Some("true"));
        assert_eq!(app.made(), round + 1);
    }
}

/// At any moment between the app's answer and the client's: the kill comes when the app has just answered.
fn a_kill_before_the_client_has_its_answer_replays_or_closes_and_never_repeats(ground: &Ground) {
    let app = App::start();
    let setup = ground
        .setup(&app.upstream, "")
        .allow_log(NOBODY_KNOWS)
        .allow_log("calls ran when the store was last open");
    for round in 1..=8 {
        let mut server = setup.start();
        let mut client = server.connect();
        client.send(&job(&format!("k{round}"), "{}").bytes());
        app.upstream.wait_for(round);
        server.kill();
    }
    let server = setup.start();
    for round in 1..=8 {
        let key = format!("k{round}");
        let answer = eventually("no call to run", || {
            let answer = server.send(&job(&key, "{}"));
            (answer.status != 409).then_some(answer)
        });
        match answer.status {
            202 => assert_eq!(answer.text(), format!("{{\"id\":\"job_{round}\"}}")),
            _ => assert_problem(&answer, 504, "outcome-unknown"),
        }
    }
    assert_eq!(app.made(), 8, "each was carried out once");
}

/// Between the record and the first byte: the upstream is not reached, since the network holds everything back.
#[test]
fn a_kill_between_the_record_and_the_first_byte_leaves_the_key_closed() {
    let app = App::start();
    let relay = crate::harness::relay::Relay::to(app.upstream.address());
    relay.hold();
    let setup = route(Setup::for_address(relay.address()), "")
        .allow_log(NOBODY_KNOWS)
        .allow_log("calls ran when the store was last open");
    let mut server = setup.start();
    let mut client = server.connect();
    client.send(&job("k", "{}").bytes());
    server.wait_for_metric("hooksluice_idempotency_records", &["state=\"running\""], 1.0);
    server.kill();
    drop(server);
    let server = setup.start();
    assert_problem(&server.send(&job("k", "{}")), 504, "outcome-unknown");
    assert_eq!(app.made(), 0, "nothing reached the app, and nobody can know that");
}
