//! The store is away, or goes away in the middle of a call.

use crate::ground::{
    App, Gate, NOBODY_KNOWS, Site, assert_first, assert_problem, assert_replayed, is_replay, job, route,
};
use crate::harness::disk::{Full, Tmpfs};
use crate::harness::postgres::Postgres;
use crate::harness::{Setup, eventually};

#[test]
fn without_its_database_nothing_is_forwarded() {
    let mut postgres = Postgres::start();
    let database = postgres.database();
    let app = App::start();
    let server = Site::open(
        route(Setup::new(&app.upstream).postgres(&database.url()), "")
            .allow_log("store")
            .allow_log("database")
            .allow_log("no key could be taken"),
    );
    assert_first(&server.send(&job("before", "{}")));
    postgres.kill();
    for _ in 0..2 {
        assert_problem(&server.send(&job("during", "{}")), 503, "store-unavailable");
    }
    assert_eq!(app.made(), 1, "nothing was forwarded");
    assert_replayed(&server.send(&job("before", "{}")));
    postgres.restart();
    eventually("the key to be taken", || {
        let answer = server.send(&job("during", "{}"));
        (answer.status == 202).then_some(())
    });
    assert_eq!(app.made(), 2, "once");
}

#[test]
fn with_a_full_disk_nothing_is_forwarded() {
    let Some(disk) = Tmpfs::try_mount(192 << 20) else {
        println!("mounting is not allowed here: nothing to see");
        return;
    };
    let app = App::start();
    let server = Site::open(
        route(Setup::new(&app.upstream).store_on(disk.path()), "")
            // Without a memory of answers, what is known is read from the disk.
            .tables("[store]\nmin_free = \"16MiB\"\n[limits]\nreplay_cache = \"0B\"")
            .allow_log("tmpfs")
            .allow_log("store")
            .allow_log("no key could be taken"),
    );
    assert_first(&server.send(&job("before", "{}")));
    let full = Full::fill(&disk, 1 << 20);
    server.wait_until_refusing();
    assert_problem(&server.send(&job("during", "{}")), 503, "store-unavailable");
    assert_eq!(app.made(), 1, "nothing was forwarded");
    assert_replayed(&server.send(&job("before", "{}")));
    assert_problem(&server.send(&job("before", "[]")), 422, "idempotency-key-reused");
    drop(full);
    server.wait_until_writable();
    assert_eq!(server.send(&job("during", "{}")).text(), "{\"id\":\"job_2\"}");
}

// The answer is there, and cannot be made durable: the client must not have it.
#[test]
fn a_database_that_goes_in_the_middle_of_a_call_lets_no_answer_out() {
    let mut postgres = Postgres::start();
    let database = postgres.database();
    let gate = Gate::default();
    let app = gate.app();
    let server = Site::open(
        route(Setup::new(&app.upstream).postgres(&database.url()), "")
            .allow_log("store")
            .allow_log("database")
            .allow_log("the end of a call")
            .allow_log("lease")
            .allow_log("no key could be taken")
            .allow_log(NOBODY_KNOWS),
    );
    let mut client = server.connect();
    client.send(&job("k", "{}").bytes());
    app.upstream.wait_for(1);
    postgres.kill();
    gate.open();
    assert_problem(&client.read(), 504, "outcome-unknown");
    postgres.restart();
    // It is recorded when the database is back, or nobody knows; it is never carried out again.
    let answer = eventually("the end to be known", || {
        let answer = server.send(&job("k", "{}"));
        matches!(answer.status, 202 | 504).then_some(answer)
    });
    match answer.status {
        202 => assert!(is_replay(&answer)),
        _ => assert_problem(&answer, 504, "outcome-unknown"),
    }
    assert_eq!(app.made(), 1);
}
