//! The scenarios of the articles that started this, against hooksluice in front of an app that knows nothing of keys.

use crate::ground::{App, Gate, Ground, job, plain};
use crate::harness::Response;

on_both_stores! {
    the_api_of_the_article_without_a_line_of_its_code,
    the_middleware_of_the_guide_without_its_holes,
}

fn shown(answer: &Response) -> String {
    format!("{} {}", answer.status, answer.text())
}

/// "6. Idempotency key on the API": `202 job_1`, `202 job_1`, 422, `202 job_2`.
fn the_api_of_the_article_without_a_line_of_its_code(ground: &Ground) {
    let app = App::start();
    let server = ground.start(&app.upstream, "");
    let (a, b) = (
        "{\"url\":\"https://example.com/a\"}",
        "{\"url\":\"https://example.com/b\"}",
    );
    assert_eq!(
        shown(&server.send(&job("key-1", a))),
        "202 {\"id\":\"job_1\"}",
        "first call"
    );
    assert_eq!(
        shown(&server.send(&job("key-1", a))),
        "202 {\"id\":\"job_1\"}",
        "same key, same body"
    );
    assert_eq!(server.send(&job("key-1", b)).status, 422, "same key, other body");
    assert_eq!(shown(&server.send(&plain(a))), "202 {\"id\":\"job_2\"}", "no key");
    assert_eq!(app.made(), 2);
}

/// The guide's middleware answers 409 while the first runs and replays status and body; but keys of all callers are one,
/// the lock is gone after 30 s, two requests at once both run, and an answer that is no JSON is never stored.
fn the_middleware_of_the_guide_without_its_holes(ground: &Ground) {
    let gate = Gate::default();
    let app = gate.app();
    let server = ground.start(&app.upstream, "");
    let mut first = server.connect();
    first.send(&job("key-2", "{\"amount\":100}").bytes());
    app.upstream.wait_for(1);
    let retry = server.send(&job("key-2", "{\"amount\":100}"));
    assert_eq!(retry.status, 409, "request already in progress, retry shortly");
    assert!(retry.header("Retry-After").is_some());
    let other = job("key-2", "{\"amount\":200}");
    assert_eq!(server.send(&other).status, 422, "used with a different request body");
    gate.open();
    assert_eq!(shown(&first.read()), "202 {\"id\":\"job_1\"}");
    assert_eq!(
        shown(&server.send(&job("key-2", "{\"amount\":100}"))),
        "202 {\"id\":\"job_1\"}"
    );
    assert_eq!(app.made(), 1);
}
