//! Replicas on one store, what the configuration must say, and how it stands beside the rest.

use std::process::Output;
use std::time::Duration;

use crate::harness::fleet::Fleet;
use crate::harness::postgres::Postgres;
use crate::harness::{Answer, Received, Setup, Stage, Upstream, client, eventually, server, sign};
use crate::scene::{self, Busy, DEADLINE, says, slash};

// DD-01, DD-10
#[test]
fn copies_at_two_replicas_make_one_attempt_and_all_hear_the_same() {
    let busy = Busy::default();
    let seen = busy.clone();
    let app = Upstream::scripted(move |_| {
        seen.enter();
        std::thread::sleep(Duration::from_millis(400));
        seen.leave();
        says(200, "Content-Type: text/xml\r\n", "<Response/>")
    });
    let postgres = Postgres::shared();
    let database = postgres.database();
    let fleet = Fleet::start((0..2).map(|_| scene::over(&app, Some(&database), "")).collect());
    let warmed = warm_up(&fleet, &app);
    for round in 0..5 {
        let request = slash(&format!("id-{round}"));
        let answers: Vec<_> = std::thread::scope(|scope| {
            let sends: Vec<_> = (0..10)
                .map(|number| {
                    let (address, request) = (fleet.server(number % 2).address(), &request);
                    scope.spawn(move || client::try_exchange(address, request).unwrap().unwrap())
                })
                .collect();
            sends.into_iter().map(|send| send.join().unwrap()).collect()
        });
        assert!(
            answers
                .iter()
                .all(|answer| answer.status == 200 && answer.text() == "<Response/>"),
            "{answers:?}"
        );
        let first = answers
            .iter()
            .filter(|answer| answer.header("Hooksluice-Duplicate").is_none());
        assert_eq!(first.count(), 1);
        assert_eq!(app.received().len(), warmed + round + 1, "one attempt for each");
    }
    assert_eq!(busy.most(), 1);
}

#[test]
fn what_a_dead_replica_attempted_is_attempted_again_at_the_other_for_the_provider() {
    let app = Upstream::scripted(|received| match received.attempt() {
        1 if received.header("X-Delivery-Id") == Some("a") => Answer::Hang,
        _ => says(200, "", "sunny"),
    });
    let postgres = Postgres::shared();
    let database = postgres.database();
    let mut fleet = Fleet::start((0..2).map(|_| scene::over(&app, Some(&database), "")).collect());
    let warmed = warm_up(&fleet, &app);
    let mut connection = fleet.server(0).connect();
    connection.send(&slash("a").bytes());
    app.wait_for(warmed + 1);
    fleet.kill(0);
    eventually("the next attempt", || {
        let answer = fleet.server(1).send(&slash("a"));
        (answer.status == 200).then(|| assert_eq!(answer.text(), "sunny"))
    });
    let received = app.received();
    let attempts: Vec<_> = received.iter().skip(warmed).map(Received::attempt).collect();
    assert_eq!(attempts, [1, 2]);
}

/// Until each replica has its part of the pace; how many requests the app has had then.
fn warm_up(fleet: &Fleet, app: &Upstream) -> usize {
    for (index, server) in fleet.servers().enumerate() {
        eventually("a share of the pace", || {
            (server.send(&slash(&format!("warm-{index}"))).status == 200).then_some(())
        });
    }
    app.received().len()
}

fn check(setup: &Setup) -> Output {
    let mut command = server::program();
    command
        .args(["check", "--without-secrets", "-c"])
        .arg(setup.write_config());
    command.output().unwrap()
}

// RS-18
#[test]
fn a_preset_whose_answer_means_something_needs_the_upstream_s_reply() {
    let app = Upstream::start();
    let provider = "[providers.voice]\nextends = \"hmac\"\nsync_only = true";
    let setup = |lines: &str| {
        Setup::new(&app)
            .table_after(provider)
            .source("voice", "voice", sign::SECRET, lines)
    };
    let refused = check(&setup(""));
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned() + &String::from_utf8_lossy(&refused.stdout);
    assert!(said.contains("add `reply = \"upstream\"`"), "{said}");
    let accepted = check(&setup("reply = \"upstream\""));
    assert_eq!(accepted.status.code(), Some(0), "{accepted:?}");
}

// Both kinds of source at one upstream, from one provider with a challenge.
#[test]
fn a_slash_command_is_answered_by_the_app_and_a_challenge_by_us() {
    let app = Upstream::scripted(|_| says(200, "Content-Type: application/json\r\n", "{\"text\":\"sunny\"}"));
    let stage = Stage::with(app, |setup| {
        setup.source(
            "slack",
            "slack",
            sign::SECRET,
            "reply = \"upstream\"\nid_missing = \"digest\"",
        )
    });
    let signed = |body: &str| {
        let now = crate::harness::unix_now().to_string();
        let mac = sign::sha256(
            sign::SECRET.as_bytes(),
            &[b"v0:", now.as_bytes(), b":", body.as_bytes()],
        );
        crate::harness::Request::post("/hooks/slack", body)
            .header("X-Slack-Request-Timestamp", &now)
            .header("X-Slack-Signature", format!("v0={}", sign::hex(&mac)))
    };
    let challenge = stage
        .server
        .send(&signed("{\"type\":\"url_verification\",\"challenge\":\"abc\"}"));
    assert_eq!((challenge.status, challenge.text().as_str()), (200, "abc"));
    assert!(stage.upstream.received().is_empty());
    let command = "command=%2Fweather&text=94070&trigger_id=13345224609.738474920.8088930838d88f008e0";
    for duplicate in [None, Some("true")] {
        let answer = stage.server.send(&signed(command));
        assert_eq!((answer.status, answer.text().as_str()), (200, "{\"text\":\"sunny\"}"));
        assert_eq!(answer.header("Content-Type"), Some("application/json"));
        assert_eq!(answer.header("Hooksluice-Duplicate"), duplicate);
    }
    assert_eq!(stage.upstream.received().len(), 1);
}

#[test]
fn a_shutdown_lets_a_running_attempt_end_and_answers_its_sender() {
    let app = Upstream::scripted(|_| Answer::After(DEADLINE / 4, says(200, "", "sunny").into()));
    let (setup, _none) = scene::setup(&app, scene::Engine::Sqlite, "");
    let mut server = setup.start();
    let address = server.address();
    let sender = std::thread::spawn(move || client::try_exchange(address, &slash("a")).unwrap().unwrap());
    app.wait_for(1);
    server.ask_to_stop();
    assert_eq!(sender.join().unwrap().text(), "sunny");
    assert!(server.wait_for_end().success());
    drop(server);
    let server = setup.start();
    let answer = server.send(&slash("a"));
    assert_eq!(
        (answer.text().as_str(), answer.header("Hooksluice-Duplicate")),
        ("sunny", Some("true"))
    );
}
