//! A request and its repetitions: the answer given again, over restarts, to the end of its time.

use crate::ground::{App, Ground, assert_first, assert_problem, assert_replayed, is_replay, job, plain, records};
use crate::harness::{Request, eventually};

on_both_stores! {
    a_repetition_gets_the_answer_and_carries_nothing_out,
    an_answer_outlives_a_restart_and_a_kill_after_the_first_answer,
    a_key_is_new_again_after_its_time,
    another_request_under_the_key_is_refused_whatever_differs,
    reordered_json_is_another_request_unless_the_route_says_otherwise,
    keys_are_counted_shown_and_bounded_in_memory,
}

fn a_repetition_gets_the_answer_and_carries_nothing_out(ground: &Ground) {
    let app = App::start();
    let server = ground.start(&app.upstream, "");
    let first = server.send(&job("k1", "{\"url\":\"a\"}"));
    assert_first(&first);
    for _ in 0..3 {
        let again = server.send(&job("k1", "{\"url\":\"a\"}"));
        assert_replayed(&again);
        assert_eq!(again.header("Content-Type"), first.header("Content-Type"));
        assert_eq!(again.header("Content-Length"), Some("14"));
    }
    let other = server.send(&job("k2", "{\"url\":\"a\"}"));
    assert_eq!(other.text(), "{\"id\":\"job_2\"}", "another key is another job");
    assert!(!is_replay(&other));
    let received = app.upstream.received();
    assert_eq!(received.len(), 2);
    assert_eq!(
        received[0].header("Idempotency-Key"),
        Some("k1"),
        "the key goes on to the app"
    );
    assert_eq!(received[0].body, b"{\"url\":\"a\"}");
    assert_eq!(received[0].header("Authorization"), Some("Bearer A"));
}

// IK-16
fn an_answer_outlives_a_restart_and_a_kill_after_the_first_answer(ground: &Ground) {
    let app = App::start();
    let setup = ground.setup(&app.upstream, "");
    let mut server = setup.start();
    assert_first(&server.send(&job("killed", "{}")));
    server.kill();
    drop(server);
    let server = setup.start();
    assert_replayed(&server.send(&job("killed", "{}")));
    server.stop();
    let server = setup.start();
    assert_replayed(&server.send(&job("killed", "{}")));
    assert_problem(&server.send(&job("killed", "{ }")), 422, "idempotency-key-reused");
    assert_eq!(app.made(), 1);
}

fn a_key_is_new_again_after_its_time(ground: &Ground) {
    let app = App::start();
    let server = ground.start(&app.upstream, "ttl = \"2s\"");
    assert_first(&server.send(&job("k", "{}")));
    let second = eventually("the key to be new", || {
        let answer = server.send(&job("k", "{}"));
        (!is_replay(&answer)).then_some(answer)
    });
    assert_eq!(second.text(), "{\"id\":\"job_2\"}");
    // Also for another request.
    eventually("the key to be new for another request", || {
        (server.send(&job("k", "{\"other\":1}")).status == 202).then_some(())
    });
    assert_eq!(app.made(), 3);
}

// IK-07, IK-08
fn another_request_under_the_key_is_refused_whatever_differs(ground: &Ground) {
    let app = App::start();
    let server = ground.start(&app.upstream, "methods = [\"POST\", \"PUT\"]");
    let request = |method: &str, target: &str, kind: &str, body: &str| {
        let request = Request {
            body: body.into(),
            ..Request::new(method, target)
        };
        request
            .header("Authorization", "Bearer A")
            .header("Content-Type", kind)
            .header("Idempotency-Key", "K")
    };
    let json = "application/json";
    assert_first(&server.send(&request("POST", "/a", json, "{\"a\":1}")));
    for other in [
        request("POST", "/a", json, "{\"a\":2}"),
        request("POST", "/b", json, "{\"a\":1}"),
        request("POST", "/a/cancel", json, "{\"a\":1}"),
        request("PUT", "/a", json, "{\"a\":1}"),
        request("POST", "/a?x=1", json, "{\"a\":1}"),
        request("POST", "/a", json, "{\"a\": 1}"),
        request("POST", "/a", "text/plain", "{\"a\":1}"),
        request("POST", "/a", json, ""),
        request("POST", "/a", json, "{}"),
    ] {
        assert_problem(&server.send(&other), 422, "idempotency-key-reused");
    }
    assert_eq!(app.made(), 1, "nothing was forwarded");
    // The record is untouched.
    assert_replayed(&server.send(&request("POST", "/a", json, "{\"a\":1}")));
}

fn reordered_json_is_another_request_unless_the_route_says_otherwise(ground: &Ground) {
    let (one, other) = ("{\"a\":1,\"b\":2}", "{\"b\":2, \"a\":1.0}");
    let app = App::start();
    let server = ground.start(&app.upstream, "");
    assert_first(&server.send(&job("bytes", one)));
    assert_problem(&server.send(&job("bytes", other)), 422, "idempotency-key-reused");
    drop(server);

    let server = ground.start(&app.upstream, "fingerprint = \"canonical-json\"");
    let first = server.send(&job("canonical", one));
    let again = server.send(&job("canonical", other));
    assert!(is_replay(&again), "{again:?}");
    assert_eq!(again.body, first.body);
    // What would lose something on the way is told apart by its bytes.
    for (n, (one, other)) in [
        ("9007199254740993", "9007199254740992"),
        ("{\"a\":1,\"a\":2}", "{\"a\":2}"),
        ("{\"a\":\"\\ud800\"}", "{\"a\":\"\\ud801\"}"),
    ]
    .into_iter()
    .enumerate()
    {
        let key = format!("lossy-{n}");
        assert_eq!(server.send(&job(&key, one)).status, 202);
        assert_problem(&server.send(&job(&key, other)), 422, "idempotency-key-reused");
    }
}

fn keys_are_counted_shown_and_bounded_in_memory(ground: &Ground) {
    let big = "x".repeat(100_000);
    let app = App::answering(move |_, _| crate::ground::answer(200, "", &big));
    let setup = ground
        .setup(&app.upstream, "")
        .tables("[limits]\nreplay_cache = \"1MiB\"");
    let server = setup.start();
    for n in 0..30 {
        assert_eq!(server.send(&job(&format!("k{n}"), "{}")).status, 200);
    }
    let bytes = server.metric("hooksluice_replay_cache_bytes", &[]);
    assert!((100_000.0..=1_048_576.0).contains(&bytes), "{bytes}");
    let bound = server.metric("hooksluice_limit", &["name=\"limits.replay_cache\""]);
    assert_eq!(bound, 1_048_576.0);
    // What memory has let go of, the store has.
    for n in 0..30 {
        let again = server.send(&job(&format!("k{n}"), "{}"));
        assert!(is_replay(&again) && again.body.len() == 100_000);
    }
    assert_eq!(app.made(), 30);
    server.send(&job("k1", "{ }"));
    server.send(&job("\"", "{}"));
    for (outcome, count) in [("kept", 30.0), ("replayed", 30.0), ("mismatch", 1.0), ("refused", 1.0)] {
        let label = format!("outcome=\"{outcome}\"");
        let counted = server.metric("hooksluice_idempotency_total", &["route=\"jobs\"", &label]);
        assert_eq!(counted, count, "{outcome}");
    }
    assert!(server.metric("hooksluice_idempotency_known_total", &["by=\"store\""]) > 0.0);
    assert_eq!(
        server.metric("hooksluice_idempotency_records", &["state=\"done\""]),
        30.0
    );
    assert_eq!(server.metric("hooksluice_idempotency_running", &[]), 0.0);
    let listed = records(&server, "done");
    assert_eq!(listed.len(), 30);
    assert_eq!(listed[0]["key"], "k29", "newest first");
    assert_eq!(listed[0]["status"], 200);
    assert_eq!(
        server.send(&plain("{}")).status,
        200,
        "without a key it is an ordinary request"
    );
}
