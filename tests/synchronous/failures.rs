//! What is not answered costs a new attempt and no more: never a kept failure, never two attempts at once, never a lost event.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::harness::{Answer, Received, eventually, sign};
use crate::scene::{DEADLINE, Engine, Scene, assert_not_answered, says, slash};

/// The first so many attempts of each event are answered 500, the next ones 200.
fn fails_first(failures: u32) -> impl Fn(&Received) -> Answer + Send + Sync + 'static {
    move |received| match received.attempt() {
        attempt if attempt <= failures => says(500, "", "sorry"),
        _ => says(200, "", "sunny"),
    }
}

pub(crate) fn after_a_500_the_provider_s_next_try_is_the_next_attempt(engine: Engine) {
    let scene = Scene::new(engine, fails_first(2));
    assert_not_answered(&scene.send("a"));
    assert_not_answered(&scene.send("a"));
    for _ in 0..2 {
        let answer = scene.send("a");
        assert_eq!((answer.status, answer.text().as_str()), (200, "sunny"));
    }
    assert_eq!(scene.attempts("a"), [1, 2, 3]);
    assert_eq!((scene.answered("failed"), scene.answered("kept")), (2.0, 1.0));
}

pub(crate) fn a_copy_that_waits_makes_the_next_attempt_when_the_first_fails(engine: Engine) {
    let scene = Scene::new(engine, |received| match received.attempt() {
        1 => Answer::After(Duration::from_millis(500), Answer::Status(500).into()),
        _ => says(200, "", "sunny"),
    });
    let first = scene.sends("a");
    scene.app.wait_for(1);
    let answer = scene.send("a");
    assert_eq!((answer.status, answer.text().as_str()), (200, "sunny"));
    assert_not_answered(&first.join().unwrap());
    assert_eq!(
        (scene.attempts("a").as_slice(), scene.busy.most()),
        ([1, 2].as_slice(), 1)
    );
}

pub(crate) fn there_are_never_two_attempts_at_once(engine: Engine) {
    let scene = Scene::with(
        engine,
        "late = \"queue\"",
        |setup| setup.upstream("retry = { first = \"1ms\", max = \"5ms\" }"),
        |received| match received.attempt() % 4 {
            0 => says(200, "", "sunny"),
            _ => Answer::After(Duration::from_millis(60), Answer::Status(503).into()),
        },
    );
    let copies: Vec<_> = (0..15)
        .map(|number| {
            std::thread::sleep(Duration::from_millis(number * 7 % 40));
            scene.sends("a")
        })
        .collect();
    for copy in copies {
        let answer = copy.join().unwrap();
        assert!(matches!(answer.status, 200 | 503), "{answer:?}");
    }
    assert_eq!(scene.attempts("a"), [1, 2, 3, 4]);
    assert_eq!(scene.busy.most(), 1);
}

pub(crate) fn an_app_that_hangs_is_answered_for_in_time_and_what_it_says_later_is_kept(engine: Engine) {
    let scene = Scene::new(engine, |_| Answer::After(DEADLINE, says(200, "", "at last").into()));
    let clock = hooksluice::time::Clock::system();
    let began = clock.monotonic();
    assert_not_answered(&scene.send("a"));
    let took = clock.monotonic().since(began);
    assert!(took < DEADLINE, "the provider had gone after {took:?}");
    // One that comes while it still runs waits for it.
    let answer = scene.send("a");
    assert_eq!((answer.status, answer.text().as_str()), (200, "at last"));
    assert_eq!(scene.attempts("a"), [1]);
    assert_eq!((scene.answered("late"), scene.answered("kept")), (1.0, 1.0));
}

pub(crate) fn a_paused_upstream_is_said_at_once_and_nothing_is_lost(engine: Engine) {
    let scene = Scene::new(engine, |_| says(200, "", "sunny"));
    scene.send("known");
    scene.order("pause");
    assert_not_answered(&scene.send("a"));
    assert_eq!(scene.answered("paused"), 1.0);
    assert_eq!(
        scene.send("known").text(),
        "sunny",
        "what was said before needs no upstream"
    );
    assert_eq!(scene.dispatches("pending"), 1.0);
    scene.order("resume");
    let answer = scene.send("a");
    assert_eq!((answer.status, answer.text().as_str()), (200, "sunny"));
    assert_eq!(scene.attempts("a"), [1], "no attempt was counted that was none");
}

pub(crate) fn an_open_breaker_is_said_at_once_and_a_sender_may_be_the_probe(engine: Engine) {
    let up = Arc::new(AtomicBool::new(false));
    let is_up = Arc::clone(&up);
    let scene = Scene::new(engine, move |_| {
        if is_up.load(Ordering::SeqCst) {
            says(200, "", "sunny")
        } else {
            Answer::Status(500)
        }
    });
    for number in 0..10 {
        assert_not_answered(&scene.send(&format!("id-{number}")));
    }
    assert_not_answered(&scene.send("a"));
    assert_eq!((scene.answered("failed"), scene.answered("breaker_open")), (10.0, 1.0));
    assert!(scene.attempts("a").is_empty());
    up.store(true, Ordering::SeqCst);
    // The first probe is allowed after five seconds.
    eventually("the breaker to let a sender through", || {
        let answer = scene.send("a");
        if answer.status == 200 {
            return Some(());
        }
        assert_not_answered(&answer);
        std::thread::sleep(Duration::from_millis(200));
        None
    });
    assert_eq!(scene.attempts("a"), [1]);
}

pub(crate) fn a_full_lane_is_waited_for_and_then_said(engine: Engine) {
    let scene = Scene::with(
        engine,
        "",
        |setup| setup.upstream("concurrency = 1"),
        |received| match received.header("X-Delivery-Id") {
            Some("slow") => Answer::After(DEADLINE * 3 / 4, says(200, "", "slow").into()),
            Some("quick") => Answer::After(Duration::from_millis(300), says(200, "", "quick").into()),
            _ => says(200, "", "sunny"),
        },
    );
    let quick = scene.sends("quick");
    scene.app.wait_for(1);
    assert_eq!(scene.send("a").text(), "sunny", "it waited for the slot");
    assert_eq!(quick.join().unwrap().text(), "quick");
    let slow = scene.sends("slow");
    scene.app.wait_for(3);
    assert_not_answered(&scene.send("b"));
    assert_eq!(scene.answered("full"), 1.0);
    assert_eq!(slow.join().unwrap().text(), "slow");
    assert_eq!(scene.send("b").text(), "sunny");
    assert_eq!((scene.attempts("b").as_slice(), scene.busy.most()), ([1].as_slice(), 1));
}

pub(crate) fn a_sender_goes_ahead_of_the_queue(engine: Engine) {
    let scene = Scene::with(
        engine,
        "",
        |setup| setup.upstream("concurrency = 1"),
        |_| Answer::After(Duration::from_millis(100), says(200, "", "sunny").into()),
    );
    for number in 0..20 {
        let queued = sign::plain("/hooks/plain", &format!("queued-{number}"), b"{}");
        assert_eq!(scene.server.send(&queued).status, 200);
    }
    scene.app.wait_for(1);
    assert_eq!(scene.send("a").text(), "sunny");
    let before = scene.app.received().len();
    assert!(before < 15, "{before} went before it");
    scene.app.wait_for(21);
}

pub(crate) fn a_late_one_that_waits_in_the_queue_is_attempted_for_the_provider_s_next_try(engine: Engine) {
    let scene = Scene::with(
        engine,
        "late = \"queue\"",
        |setup| setup.upstream("concurrency = 1"),
        |received| match (received.header("X-Delivery-Id"), received.attempt()) {
            (Some("a"), 1) => Answer::Status(500),
            (Some("a"), _) => says(200, "", "sunny"),
            _ => Answer::After(Duration::from_millis(400), Answer::Status(200).into()),
        },
    );
    assert_not_answered(&scene.send("a"));
    for number in 0..40 {
        let queued = sign::plain("/hooks/plain", &format!("queued-{number}"), b"{}");
        assert_eq!(scene.server.send(&queued).status, 200);
    }
    let state = || scene.server.events("source=slash")[0]["dispatches"][0]["state"].clone();
    eventually("it to be in the lane's queue", || (state() == "leased").then_some(()));
    let answer = scene.send("a");
    assert_eq!((answer.status, answer.text().as_str()), (200, "sunny"));
    let before = scene.app.received().len();
    assert!(before < 40, "{before} went before it");
    assert_eq!(scene.busy.most(), 1);
}

pub(crate) fn what_is_late_dies_and_the_provider_s_next_try_revives_it(engine: Engine) {
    let scene = Scene::new(engine, fails_first(1));
    assert_not_answered(&scene.send("a"));
    assert_eq!((scene.dispatches("pending"), scene.dispatches("dead")), (1.0, 0.0));
    scene.wait_for_dispatches("dead", 1.0);
    assert_eq!(scene.attempts("a"), [1], "it died without a further attempt");
    let line = scene.server.wait_for_log(&["dispatch is dead", "late"]);
    assert!(line.contains("hooksluice events replay"), "{line}");
    scene.server.wait_for_metric("hooksluice_dead_total", &[], 1.0);
    let answer = scene.send("a");
    assert_eq!((answer.status, answer.text().as_str()), (200, "sunny"));
    assert_eq!(scene.attempts("a"), [1, 2]);
    assert_eq!((scene.dispatches("dead"), scene.dispatches("delivered")), (0.0, 1.0));
    assert_eq!(scene.server.metric("hooksluice_revived_total", &[]), 1.0);
}

pub(crate) fn what_is_late_may_go_to_the_queue_and_its_answer_is_kept(engine: Engine) {
    let scene = Scene::with(
        engine,
        "late = \"queue\"",
        |setup| setup.upstream("retry = { first = \"10ms\", max = \"20ms\" }"),
        fails_first(2),
    );
    assert_not_answered(&scene.send("a"));
    assert_eq!(
        scene.attempts("a"),
        [1],
        "until the provider has gone, it is the provider's"
    );
    scene.wait_for_dispatches("delivered", 1.0);
    assert_eq!(scene.attempts("a"), [1, 2, 3]);
    let answer = scene.send("a");
    assert_eq!((answer.status, answer.text().as_str()), (200, "sunny"));
    assert_eq!(answer.header("Hooksluice-Duplicate"), Some("true"));
}

// P9
pub(crate) fn a_kill_in_an_attempt_leaves_the_next_to_the_provider(engine: Engine) {
    let mut scene = Scene::new(engine, |received| match received.attempt() {
        1 => Answer::Hang,
        _ => says(200, "", "sunny"),
    });
    let mut connection = scene.server.connect();
    connection.send(&slash("a").bytes());
    let event = scene.app.wait_for(1)[0].event_id().to_owned();
    scene.kill_and_restart();
    // On Postgres the lease of the dead process lasts for up to 15 s.
    eventually("the next attempt", || {
        let answer = scene.send("a");
        (answer.status == 200).then(|| assert_eq!(answer.text(), "sunny"))
    });
    assert_eq!(scene.attempts("a"), [1, 2]);
    assert!(scene.app.received().iter().all(|received| received.event_id() == event));
}

pub(crate) fn a_replay_of_what_died_is_attempted_by_the_lane(engine: Engine) {
    let seen: Arc<Mutex<Vec<Option<String>>>> = Arc::default();
    let replays = Arc::clone(&seen);
    let scene = Scene::new(engine, move |received| {
        replays
            .lock()
            .unwrap()
            .push(received.header("Hooksluice-Replay").map(str::to_owned));
        fails_first(1)(received)
    });
    assert_not_answered(&scene.send("a"));
    scene.wait_for_dispatches("dead", 1.0);
    let event = scene.server.events("")[0]["id"].as_str().unwrap().to_owned();
    let replayed = scene.server.admin_post(&format!("/api/v1/events/{event}/replay"), "{}");
    assert_eq!(replayed.status, 200, "{replayed:?}");
    scene.wait_for_dispatches("delivered", 1.0);
    assert_eq!(*seen.lock().unwrap(), [None, Some("true".to_owned())]);
    let answer = scene.send("a");
    assert_eq!(
        (answer.text().as_str(), answer.header("Hooksluice-Duplicate")),
        ("sunny", Some("true"))
    );
}
