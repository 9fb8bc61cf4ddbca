//! Requests that are refused before anything is done, and those whose key means nothing.

use crate::ground::{App, Ground, assert_first, assert_problem, assert_replayed, is_replay, job, plain};
use crate::harness::{Request, client};

on_both_stores! {
    a_missing_malformed_or_doubled_key_is_refused_and_nothing_is_done,
    without_required_a_request_without_a_key_is_a_new_one_each_time,
    quoted_and_bare_are_the_same_key,
    a_key_on_another_method_is_passed_on_and_ignored,
    a_body_over_the_limit_leaves_the_key_unused,
    a_body_that_ends_early_leaves_the_key_unused,
    http_2_requests_have_keys_too,
}

// IK-15
fn a_missing_malformed_or_doubled_key_is_refused_and_nothing_is_done(ground: &Ground) {
    let app = App::start();
    let server = ground.start(&app.upstream, "required = true");
    let missing = server.send(&plain("{}"));
    assert_problem(&missing, 400, "idempotency-key-missing");
    assert_eq!(missing.json()["title"], "Idempotency-Key is missing");
    for malformed in [
        "\"unterminated",
        "",
        "\"\"",
        "   ",
        "\"a\";v=1",
        "a;v=1",
        "\"a\", \"b\"",
        "a, b",
        "(\"a\" \"b\")",
        "kl\u{e4}",
        &"k".repeat(256),
        &format!("\"{}\"", "k".repeat(256)),
    ] {
        let answer = server.send(&job(malformed, "{}"));
        assert_problem(&answer, 400, "idempotency-key-malformed");
    }
    assert_problem(
        &server.send(&job("a", "{}").header("Idempotency-Key", "a")),
        400,
        "idempotency-key-malformed",
    );
    // Named as a header of this hop it would not reach the app.
    let hop = job("a", "{}").header("Connection", "Idempotency-Key");
    assert_problem(&server.send(&hop), 400, "idempotency-key-malformed");
    assert_eq!(app.made(), 0);
    assert_first(&server.send(&job(&"k".repeat(255), "{}")));
    assert_replayed(&server.send(&job(&"k".repeat(255), "{}")));
}

fn without_required_a_request_without_a_key_is_a_new_one_each_time(ground: &Ground) {
    let app = App::start();
    let server = ground.start(&app.upstream, "");
    for number in 1..=2 {
        let answer = server.send(&plain("{}"));
        assert_eq!(answer.text(), format!("{{\"id\":\"job_{number}\"}}"));
        assert!(!is_replay(&answer));
    }
}

fn quoted_and_bare_are_the_same_key(ground: &Ground) {
    let app = App::start();
    let server = ground.start(&app.upstream, "");
    assert_first(&server.send(&job("abc", "{}")));
    assert_replayed(&server.send(&job("\"abc\"", "{}")));
    assert_replayed(&server.send(&job("  abc\t", "{}")));
    assert_problem(&server.send(&job("\"abc\"", "{ }")), 422, "idempotency-key-reused");
    assert_eq!(
        server.send(&job("ABC", "{}")).text(),
        "{\"id\":\"job_2\"}",
        "keys are case-sensitive"
    );
}

// IK-12
fn a_key_on_another_method_is_passed_on_and_ignored(ground: &Ground) {
    let app = App::start();
    let server = ground.start(&app.upstream, "required = true");
    let mut made = 0;
    for method in ["GET", "HEAD", "OPTIONS", "DELETE", "PUT"] {
        for key in ["k", "\"unterminated"] {
            // Without credentials too: nobody asks whose key it is.
            let request = Request::new(method, "/jobs").header("Idempotency-Key", key);
            let answer = server.send(&request);
            made += 1;
            assert_eq!(answer.status, 202, "{method}: {answer:?}");
            assert!(!is_replay(&answer));
            let received = app.upstream.wait_for(made).pop().unwrap();
            assert_eq!(received.header("Idempotency-Key"), Some(key), "{method}");
        }
    }
    assert_eq!(app.made(), made, "each was carried out");
    assert_eq!(
        server.metric("hooksluice_idempotency_records", &[]),
        0.0,
        "nothing is stored"
    );
}

fn a_body_over_the_limit_leaves_the_key_unused(ground: &Ground) {
    let app = App::start();
    let server = ground.start(&app.upstream, "max_body = \"1KiB\"");
    let large = "x".repeat(1025);
    assert_problem(&server.send(&job("k", &large)), 413, "request-body-too-large");
    // Of unknown length.
    let answer = server.send_bytes(&job("k", "").chunked(&[&[b'x'; 1000], &[b'x'; 25]]));
    assert_problem(&answer, 413, "request-body-too-large");
    assert_eq!(app.made(), 0);
    assert_first(&server.send(&job("k", &"x".repeat(1024))));
}

fn a_body_that_ends_early_leaves_the_key_unused(ground: &Ground) {
    let app = App::start();
    let server = ground.start(&app.upstream, "");
    let mut connection = server.connect();
    let whole = job("k", "{\"a\":1}").bytes();
    connection.send(&whole[..whole.len() - 1]);
    connection.finish_sending();
    let answer = connection.try_read(false);
    if let Ok(Some(answer)) = answer {
        assert_problem(&answer, 400, "request-body-broken");
    }
    assert_eq!(app.made(), 0);
    assert_first(&server.send(&job("k", "{\"b\":1}")));
}

fn http_2_requests_have_keys_too(ground: &Ground) {
    let app = App::start();
    let server = ground.start(&app.upstream, "");
    let status = client::http2(server.address(), &job("k", ""), vec![b"{".to_vec(), b"}".to_vec()]);
    assert_eq!(status, 202);
    assert_replayed(&server.send(&job("k", "{}")));
    assert_eq!(
        client::http2(server.address(), &job("k", ""), vec![b"{}".to_vec()]),
        202
    );
    assert_eq!(
        client::http2(server.address(), &job("k", ""), vec![b"{ }".to_vec()]),
        422
    );
    assert_eq!(app.made(), 1);
}
