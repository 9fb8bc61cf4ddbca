//! Whose key it is: two callers never meet, and a request without a caller has no keys.

use crate::ground::{App, Ground, assert_first, assert_problem, assert_replayed, is_replay, job};
use crate::harness::Request;

on_both_stores! {
    two_callers_with_one_key_are_apart,
    a_request_without_one_caller_is_refused,
    callers_are_told_apart_by_a_cookie,
    a_public_route_shares_its_keys,
}

fn by(header: &str, value: &str) -> Request {
    Request::post("/jobs", "{}")
        .header("Content-Type", "application/json")
        .header("Idempotency-Key", "K")
        .header(header, value)
}

// IK-06
fn two_callers_with_one_key_are_apart(ground: &Ground) {
    let app = App::start();
    let server = ground.start(&app.upstream, "");
    assert_first(&server.send(&by("Authorization", "Bearer A")));
    let b = server.send(&by("Authorization", "Bearer B"));
    assert_eq!(b.text(), "{\"id\":\"job_2\"}");
    assert!(!is_replay(&b));
    assert_replayed(&server.send(&by("Authorization", "Bearer A")));
    // A new token is a new caller; a header that stays says otherwise.
    assert_eq!(
        server.send(&by("Authorization", "Bearer A2")).text(),
        "{\"id\":\"job_3\"}"
    );
    drop(server);

    let server = ground.start(&app.upstream, "scope = \"header:X-User-Id\"");
    let user = |token| by("X-User-Id", "7").header("Authorization", token);
    assert_eq!(server.send(&user("Bearer A")).text(), "{\"id\":\"job_4\"}");
    assert!(is_replay(&server.send(&user("Bearer rotated"))));
}

fn a_request_without_one_caller_is_refused(ground: &Ground) {
    let app = App::start();
    let server = ground.start(&app.upstream, "");
    let nobody = || Request::post("/jobs", "{}").header("Idempotency-Key", "K");
    for request in [
        nobody(),
        nobody().header("Authorization", ""),
        nobody()
            .header("Authorization", "Bearer A")
            .header("Authorization", "Bearer B"),
        // Taken away before it reaches the app, which would see nobody.
        nobody()
            .header("Authorization", "Bearer A")
            .header("Connection", "Authorization"),
    ] {
        assert_problem(&server.send(&request), 400, "idempotency-key-without-caller");
    }
    assert_eq!(app.made(), 0);
    // Without a key nobody asks who it is.
    assert_eq!(server.send(&Request::post("/jobs", "{}")).status, 202);
}

fn callers_are_told_apart_by_a_cookie(ground: &Ground) {
    let app = App::start();
    let server = ground.start(&app.upstream, "scope = \"cookie:session\"");
    assert_first(&server.send(&by("Cookie", "theme=dark; session=A")));
    assert_replayed(&server.send(&by("Cookie", "session=A; theme=light")));
    assert_replayed(&server.send(&by("Cookie", "theme=light").header("Cookie", "session=A")));
    assert_eq!(server.send(&by("Cookie", "session=B")).text(), "{\"id\":\"job_2\"}");
    for cookies in [
        "theme=dark",
        "session=",
        "Session=A",
        "session=A; session=B",
        "session=A; session=A",
    ] {
        assert_problem(
            &server.send(&by("Cookie", cookies)),
            400,
            "idempotency-key-without-caller",
        );
    }
    assert_problem(
        &server.send(&by("Authorization", "Bearer A")),
        400,
        "idempotency-key-without-caller",
    );
}

fn a_public_route_shares_its_keys(ground: &Ground) {
    let app = App::start();
    let server = ground.start(&app.upstream, "scope = \"public\"");
    assert_first(&server.send(&by("Authorization", "Bearer A")));
    assert_replayed(&server.send(&by("Authorization", "Bearer B")));
    assert_replayed(&server.send(&by("X-Other", "1")));
    assert_problem(&server.send(&job("K", "{ }")), 422, "idempotency-key-reused");
}
