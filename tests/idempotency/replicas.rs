//! Two replicas on one database.

use std::sync::Barrier;
use std::thread;

use crate::ground::{App, Gate, NOBODY_KNOWS, assert_first, assert_problem, assert_replayed, is_replay, job, route};
use crate::harness::postgres::{Database, Postgres};
use crate::harness::{Setup, eventually};

fn setup(app: &App, database: &Database, lines: &str) -> Setup {
    route(Setup::new(&app.upstream).postgres(&database.url()), lines)
}

#[test]
fn a_key_at_both_replicas_at_once_is_one_call() {
    let postgres = Postgres::shared();
    let database = postgres.database();
    let app = App::start();
    let setups = [
        setup(&app, &database, "wait = \"20s\""),
        setup(&app, &database, "wait = \"20s\""),
    ];
    let servers = setups.each_ref().map(Setup::start);
    for round in 1..=10 {
        let key = format!("k{round}");
        let barrier = Barrier::new(8);
        let answers: Vec<_> = thread::scope(|scope| {
            let senders: Vec<_> = (0..8)
                .map(|n| {
                    let (barrier, server, key) = (&barrier, &servers[n % 2], &key);
                    scope.spawn(move || {
                        barrier.wait();
                        server.send(&job(key, "{}"))
                    })
                })
                .collect();
            senders.into_iter().map(|sender| sender.join().unwrap()).collect()
        });
        assert_eq!(app.made(), round);
        let body = format!("{{\"id\":\"job_{round}\"}}");
        assert!(answers.iter().all(|answer| answer.text() == body), "{answers:?}");
        assert_eq!(answers.iter().filter(|answer| !is_replay(answer)).count(), 1);
    }
}

// IK-03: the lease is renewed while the app works, for longer than it lasts.
#[test]
fn a_call_that_outlasts_its_lease_keeps_its_key_at_the_other_replica() {
    let postgres = Postgres::shared();
    let database = postgres.database();
    let gate = Gate::default();
    let app = gate.app();
    let setups = [setup(&app, &database, ""), setup(&app, &database, "")];
    let [one, other] = setups.each_ref().map(Setup::start);
    let mut first = one.connect();
    first.send(&job("k", "{}").bytes());
    app.upstream.wait_for(1);
    let clock = hooksluice::time::Clock::system();
    let began = clock.monotonic();
    // Longer than a lease of 10 s lasts.
    while clock.monotonic().since(began) < std::time::Duration::from_secs(13) {
        assert_problem(&other.send(&job("k", "{}")), 409, "idempotency-key-outstanding");
        thread::sleep(std::time::Duration::from_millis(250));
    }
    assert_problem(&other.send(&job("k", "{ }")), 422, "idempotency-key-reused");
    gate.open();
    assert_first(&first.read());
    assert_replayed(&other.send(&job("k", "{}")));
    assert_eq!(app.made(), 1);
}

#[test]
fn a_replica_killed_in_the_middle_of_a_call_leaves_the_key_closed_once_its_lease_is_over() {
    let postgres = Postgres::shared();
    let database = postgres.database();
    let gate = Gate::default();
    let app = gate.app();
    let setups = [
        setup(&app, &database, ""),
        setup(&app, &database, "").allow_log(NOBODY_KNOWS),
    ];
    let [mut one, other] = setups.each_ref().map(Setup::start);
    let mut first = one.connect();
    first.send(&job("k", "{}").bytes());
    app.upstream.wait_for(1);
    assert_problem(&other.send(&job("k", "{}")), 409, "idempotency-key-outstanding");
    one.kill();
    // Nobody but its lease says that it is gone.
    assert_problem(&other.send(&job("k", "{}")), 409, "idempotency-key-outstanding");
    let answer = eventually("the lease to be over", || {
        let answer = other.send(&job("k", "{}"));
        (answer.status != 409).then_some(answer)
    });
    assert_problem(&answer, 504, "outcome-unknown");
    gate.open();
    assert_problem(&other.send(&job("k", "{}")), 504, "outcome-unknown");
    assert_eq!(app.made(), 1);
}
