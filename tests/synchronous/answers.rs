//! What the app says is what the sender hears, once and for all.

use std::time::Duration;

use crate::harness::{Answer, eventually};
use crate::scene::{Engine, Scene, assert_not_answered, says, slash};

const TWIML: &str = "<Response><Say>hi</Say></Response>";

fn twiml() -> Answer {
    says(
        200,
        "Content-Type: text/xml\r\nX-App: yes\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nHooksluice-Duplicate: forged\r\n",
        TWIML,
    )
}

// RS-18
pub(crate) fn an_answer_is_relayed_kept_and_given_to_duplicates_also_after_a_restart(engine: Engine) {
    let mut scene = Scene::new(engine, |_| twiml());
    let first = scene.send("a");
    assert_eq!((first.status, first.text().as_str()), (200, TWIML), "{first:?}");
    assert_eq!(first.header("Content-Type"), Some("text/xml"));
    assert_eq!(first.header("X-App"), Some("yes"));
    assert_eq!(first.header("X-Hop"), None, "it was for the hop between us and the app");
    assert_eq!(first.header("Hooksluice-Duplicate"), None);
    for restart in [false, true] {
        if restart {
            scene.kill_and_restart();
        }
        let again = scene.send("a");
        assert_eq!((again.status, again.text().as_str()), (200, TWIML), "{again:?}");
        assert_eq!(again.header("Content-Type"), Some("text/xml"));
        assert_eq!(again.header("Hooksluice-Duplicate"), Some("true"));
    }
    assert_eq!(scene.attempts("a"), [1]);
    assert_eq!(scene.dispatches("delivered"), 1.0);
    let received = &scene.app.received()[0];
    assert_eq!(received.header("Hooksluice-Source"), Some("slash"));
    assert_eq!(received.body, slash("a").body);
}

// RS-18: Twilio follows it.
pub(crate) fn a_redirect_is_relayed_with_its_place(engine: Engine) {
    let scene = Scene::new(engine, |_| {
        says(307, "Location: /voice/next?x=1\r\nSet-Cookie: call=1\r\n", "")
    });
    for duplicate in [None, Some("true")] {
        let answer = scene.send("a");
        assert_eq!(answer.status, 307, "{answer:?}");
        assert_eq!(answer.header("Location"), Some("/voice/next?x=1"));
        assert_eq!(answer.header("Set-Cookie"), Some("call=1"));
        assert_eq!(answer.header("Hooksluice-Duplicate"), duplicate);
    }
    assert_eq!(scene.attempts("a"), [1]);
    assert_eq!(scene.dispatches("delivered"), 1.0);
}

pub(crate) fn a_refusal_is_relayed_and_not_kept(engine: Engine) {
    let scene = Scene::new(engine, |received| match received.attempt() {
        1 => says(404, "Content-Type: text/plain\r\n", "no such command"),
        _ => says(200, "", "sunny"),
    });
    let refused = scene.send("a");
    assert_eq!((refused.status, refused.text().as_str()), (404, "no such command"));
    assert_eq!(refused.header("Hooksluice-Duplicate"), None);
    assert_eq!(scene.dispatches("pending"), 1.0, "it may be asked again");
    let again = scene.send("a");
    assert_eq!((again.status, again.text().as_str()), (200, "sunny"));
    assert_eq!(scene.attempts("a"), [1, 2]);
    assert_eq!((scene.answered("refused"), scene.answered("relayed")), (1.0, 1.0));
}

// DD-01
pub(crate) fn of_twenty_copies_at_once_one_is_attempted_and_all_hear_the_same(engine: Engine) {
    let scene = Scene::new(engine, |_| Answer::After(Duration::from_millis(300), twiml().into()));
    for round in 0..3 {
        let id = format!("id-{round}");
        let copies: Vec<_> = (0..20).map(|_| scene.sends(&id)).collect();
        let answers: Vec<_> = copies.into_iter().map(|copy| copy.join().unwrap()).collect();
        assert!(
            answers
                .iter()
                .all(|answer| answer.status == 200 && answer.text() == TWIML),
            "{answers:?}"
        );
        let first = answers
            .iter()
            .filter(|answer| answer.header("Hooksluice-Duplicate").is_none());
        assert_eq!(first.count(), 1);
        assert_eq!(scene.attempts(&id), [1]);
    }
    assert_eq!(scene.busy.most(), 1);
}

// P1
pub(crate) fn a_sender_that_hangs_up_cancels_nothing(engine: Engine) {
    let scene = Scene::new(engine, |_| Answer::After(Duration::from_millis(500), twiml().into()));
    let mut connection = scene.server.connect();
    connection.send(&slash("a").bytes());
    scene.app.wait_for(1);
    drop(connection);
    let again = scene.send("a");
    assert_eq!((again.status, again.text().as_str()), (200, TWIML));
    assert_eq!(again.header("Hooksluice-Duplicate"), Some("true"));
    assert_eq!(scene.attempts("a"), [1]);
    // Also before anything has begun.
    for number in 0..50 {
        let mut connection = scene.server.connect();
        connection.send(&slash(&format!("gone-{number}")).bytes());
        drop(connection);
    }
    let stored = scene
        .server
        .metric("hooksluice_events_stored_total", &["source=\"slash\""]);
    assert!(stored >= 1.0);
    eventually("nobody to wait any more", || {
        let waiting = scene.server.metric("hooksluice_answers_waiting", &[]);
        let open = scene.dispatches("pending") + scene.dispatches("leased");
        (waiting == 0.0 && open == 0.0).then_some(())
    });
}

pub(crate) fn an_answer_that_is_too_long_is_nobody_s_and_no_second_attempt(engine: Engine) {
    let scene = Scene::new(engine, |_| says(200, "", &"x".repeat((1 << 20) + 1)));
    for duplicate in [None, Some("true")] {
        let answer = scene.send("a");
        assert_eq!((answer.status, answer.body.len()), (502, 0));
        assert_eq!(answer.header("Hooksluice-Duplicate"), duplicate);
    }
    assert_eq!(scene.attempts("a"), [1]);
    assert_eq!(scene.dispatches("delivered"), 1.0);
}

pub(crate) fn an_answer_is_relayed_whole_up_to_the_bound(engine: Engine) {
    let scene = Scene::new(engine, |_| says(200, "", &"x".repeat(1 << 20)));
    for _ in 0..2 {
        let answer = scene.send("a");
        assert_eq!((answer.status, answer.body.len()), (200, 1 << 20));
    }
    assert_eq!(scene.attempts("a"), [1]);
}

// P8
pub(crate) fn counters_balance(engine: Engine) {
    let scene = Scene::new(engine, |received| match received.header("X-Delivery-Id") {
        Some("bad") => Answer::Status(500),
        _ => twiml(),
    });
    scene.send("a");
    scene.send("a");
    assert_not_answered(&scene.send("bad"));
    let unsigned = crate::harness::Request::post("/hooks/slash", "x");
    assert_eq!(scene.server.send(&unsigned).status, 401);
    assert_eq!(
        scene
            .server
            .send(&crate::harness::Request::new("HEAD", "/hooks/slash"))
            .status,
        200
    );
    scene.wait_for_dispatches("dead", 1.0);
    let source = ["source=\"slash\""];
    let sum = |name: &str, labels: &[&str]| scene.server.metric(name, &[&source[..], labels].concat());
    assert_eq!(sum("hooksluice_requests_total", &[]), 5.0);
    assert_eq!(sum("hooksluice_requests_total", &["outcome=\"accepted\""]), 3.0);
    assert_eq!(sum("hooksluice_requests_total", &["outcome=\"failed\""]), 0.0);
    assert_eq!(sum("hooksluice_events_stored_total", &[]), 2.0);
    assert_eq!(sum("hooksluice_duplicates_total", &[]), 1.0);
    assert_eq!(sum("hooksluice_answers_total", &[]), 3.0);
    for how in ["relayed", "kept", "failed"] {
        assert_eq!(scene.answered(how), 1.0, "{how}");
    }
    let made = scene.server.metric("hooksluice_dispatches_made_total", &[]);
    assert_eq!((made, scene.server.metric("hooksluice_dispatches", &[])), (2.0, 2.0));
}
