//! A redelivery after death brings the event back to life (the provider's "redeliver" button), wherever it died and
//! whatever Redis knew about it.

use crate::grounds::{
    Grounds, accept, dead_mark, events, holder, lived, redeliver, request, settled, state, wait_for_state,
};
use crate::harness::Setup;
use crate::harness::eventually;
use crate::harness::fleet::Fleet;
use crate::harness::ledger::{Accountant, Weather};
use crate::harness::redis;
use crate::harness::relay::Relay;

/// Dies after one attempt, loudly.
fn mortal(setup: Setup) -> Setup {
    setup
        .upstream("retry = { first = \"50ms\", max = \"50ms\", max_attempts = 1 }")
        .allow_log("app")
        .allow_log("\"level\":\"WARN\"")
}

fn plain(accountant: &Accountant) -> Setup {
    mortal(Setup::new(&accountant.upstream).plain())
}

#[test]
fn a_redelivery_revives_at_any_replica_and_after_a_second_death() {
    let grounds = Grounds::new();
    let accountant = &grounds.accountant;
    let configure = || {
        plain(accountant)
            .postgres(&grounds.database.url())
            .redis(&grounds.redis.url(), "")
    };
    let fleet = Fleet::start(vec![configure(), configure()]);
    accountant.set_weather(Weather::Only(500));
    accept(fleet.server(0), "x");
    wait_for_state(fleet.server(0), "x", "dead");
    dead_mark(&grounds.redis);
    // With max_attempts spent, at the other one.
    redeliver(fleet.server(1), accountant, "x");
    wait_for_state(fleet.server(1), "x", "dead");
    redeliver(fleet.server(0), accountant, "x");
    wait_for_state(fleet.server(1), "x", "dead");
    accountant.set_weather(Weather::Fair);
    redeliver(fleet.server(0), accountant, "x");
    lived(fleet.server(0), accountant, "x", &[1, 2, 3, 4]);
    // Delivered is delivered.
    accept(fleet.server(0), "x");
    accept(fleet.server(1), "x");
    settled(&fleet);
    lived(fleet.server(1), accountant, "x", &[1, 2, 3, 4]);
    // Once `dead:`, it stays so for its time; it means "go to the store".
    assert!(grounds.redis.keys().values().any(|value| value.starts_with("dead:")));
    grounds.redis.assert_all_expire();
}

#[test]
fn a_redelivery_revives_what_died_while_redis_was_away() {
    let grounds = Grounds::new();
    let accountant = &grounds.accountant;
    let links: Vec<_> = (0..2).map(|_| Relay::to(grounds.redis.address())).collect();
    let configure = |link: &Relay| {
        Setup::new(&accountant.upstream)
            .plain()
            .upstream("retry = { first = \"2s\", max = \"2s\", max_attempts = 2 }")
            .allow_log("app")
            .allow_log("\"level\":\"WARN\"")
            .postgres(&grounds.database.url())
            .redis(&redis::url(link.address()), "")
    };
    let fleet = Fleet::start(links.iter().map(configure).collect());
    accountant.set_weather(Weather::Only(500));
    for id in ["while-away", "after"] {
        accept(fleet.server(0), id);
    }
    eventually("Redis to be told", || (grounds.redis.keys().len() == 2).then_some(()));
    for link in &links {
        link.refuse();
    }
    for id in ["while-away", "after"] {
        wait_for_state(fleet.server(0), id, "dead");
    }
    accountant.set_weather(Weather::Fair);
    redeliver(fleet.server(1), accountant, "while-away");
    lived(fleet.server(1), accountant, "while-away", &[1, 2, 3]);
    for link in &links {
        link.heal();
    }
    // Redis still holds the live mark, until it is told.
    redeliver(fleet.server(1), accountant, "after");
    lived(fleet.server(1), accountant, "after", &[1, 2, 3]);
    // Keys of an era before the last replica came may still be there; nobody asks for them.
    eventually("both deaths to be told", || {
        let dead = grounds.redis.keys();
        let dead = dead.values().filter(|value| value.starts_with("dead:"));
        (dead.count() == 2).then_some(())
    });
    grounds.redis.assert_all_expire();
}

#[test]
fn a_redelivery_revives_what_died_after_a_take_over() {
    let grounds = Grounds::new();
    let accountant = &grounds.accountant;
    let configure = || {
        Setup::new(&accountant.upstream)
            .plain()
            .upstream("retry = { first = \"50ms\", max = \"50ms\", max_attempts = 2 }")
            .allow_log("app")
            .allow_log("\"level\":\"WARN\"")
            .postgres(&grounds.database.url())
            .redis(&grounds.redis.url(), "")
    };
    let mut fleet = Fleet::start(vec![configure(), configure()]);
    // The first attempt hangs until its replica is dead; the second one is another replica's.
    accountant.set_weather(Weather::Slow(std::time::Duration::from_secs(60)));
    accept(fleet.server(0), "x");
    let first = holder(&fleet, accountant);
    let other = 1 - first;
    accountant.set_weather(Weather::Only(500));
    fleet.kill(first);
    wait_for_state(fleet.server(other), "x", "dead");
    dead_mark(&grounds.redis);
    fleet.restart(first);
    accountant.set_weather(Weather::Fair);
    redeliver(fleet.server(first), accountant, "x");
    wait_for_state(fleet.server(other), "x", "delivered");
    assert_eq!(events(fleet.server(first), "x").len(), 1);
}

#[test]
fn a_discarded_event_stays_discarded_and_a_replay_goes_past_dedupe() {
    let grounds = Grounds::new();
    let accountant = &grounds.accountant;
    let configure = || {
        plain(accountant)
            .postgres(&grounds.database.url())
            .redis(&grounds.redis.url(), "")
    };
    let fleet = Fleet::start(vec![configure(), configure()]);
    accountant.set_weather(Weather::Only(500));
    for id in ["discarded", "replayed"] {
        accept(fleet.server(0), id);
        wait_for_state(fleet.server(0), id, "dead");
    }
    accountant.set_weather(Weather::Fair);
    let path = |id: &str, what: &str| {
        let event = events(fleet.server(1), id)[0]["id"].as_str().unwrap().to_owned();
        format!("/api/v1/events/{event}/{what}")
    };
    // By a person at the other replica.
    assert_eq!(
        fleet.server(1).admin_post(&path("discarded", "discard"), "{}").status,
        200
    );
    assert_eq!(
        fleet.server(1).admin_post(&path("replayed", "replay"), "{}").status,
        200
    );
    wait_for_state(fleet.server(0), "replayed", "delivered");
    for server in fleet.servers() {
        assert_eq!(server.send(&request("discarded")).status, 200);
    }
    settled(&fleet);
    assert_eq!(state(fleet.server(0), "discarded").as_deref(), Some("discarded"));
    accountant.read(|ledger| {
        assert_eq!(ledger.numbers("discarded"), [1]);
        assert_eq!(ledger.numbers("replayed"), [1, 2]);
    });
}
