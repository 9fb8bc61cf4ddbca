//! The fault campaign: replicas behind a balancer on real Redis and PostgreSQL, faults from a script that dice write,
//! senders that repeat what was not acknowledged; at the end heal, drain, and hold what the senders saw against what the
//! upstream saw and what the stores have.
//!
//! - P1: every delivery id that was acknowledged is delivered, with the bytes that were sent.
//! - P2: no delivery id has two event ids, at the upstream or among the events that were dispatched.
//! - P7: in a quiet phase the upstream's concurrency holds over all replicas of the shared store.
//! - P8: the dispatches balance.
//! - P9: no two attempts of an event have the same number, and the numbers increase as they arrive but for what a stopped
//!   process sent late.
//! - P10: every answer is 200, or 503 with `Retry-After`; a replica that is neither killed nor stopped always answers.
//!
//! `HOOKSLUICE_LONG=1` makes it ten minutes instead of less than two, `HOOKSLUICE_SECONDS` any number;
//! `HOOKSLUICE_SEED` repeats the dice of an earlier run (the machine's timing still differs).
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test stops at the first surprise and says what it does"
)]

#[allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "each test binary uses its part of it"
)]
#[path = "../harness/harness.rs"]
mod harness;

mod senders;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hooksluice::time::Clock;

use crate::harness::dice::{Dice, body, seed};
use crate::harness::fleet::Fleet;
use crate::harness::ledger::{Accountant, Weather};
use crate::harness::postgres::Postgres;
use crate::harness::redis::{self, Redis};
use crate::harness::relay::Relay;
use crate::harness::{Server, Setup, sign};
use crate::senders::Traffic;
use crate::world::{Fault, World};

const REPLICAS: usize = 3;
const SENDERS: usize = 6;
const CONCURRENCY: usize = 6;
/// Delivering everything after the last fault must not take longer.
const DRAIN: Duration = Duration::from_secs(120);

#[test]
fn on_a_shared_store_nothing_acknowledged_is_lost_or_doubled() {
    let clock = Clock::system();
    let accountant = Accountant::start();
    let postgres = Postgres::start();
    let database = postgres.database();
    let primary = Redis::start();
    let replica = primary.replica();
    let redis_links: Vec<_> = (0..REPLICAS).map(|_| Relay::to(primary.address())).collect();
    let postgres_links: Vec<_> = (0..REPLICAS).map(|_| Relay::to(postgres.address())).collect();
    let setups = redis_links.iter().zip(&postgres_links).map(|(redis, postgres)| {
        setup(&accountant)
            .postgres(&database.url_by(postgres.address()))
            .redis(&redis::url(redis.address()), "")
    });
    let fleet = Fleet::start(setups.collect());
    let world = World::new(
        fleet,
        redis_links,
        postgres_links,
        vec![primary, replica],
        Some(postgres),
        &clock,
    );
    let (world, traffic) = campaign(world, &Fault::SHARED, &accountant, &clock, seconds(100));

    let servers: Vec<_> = world.fleet.servers().collect();
    drain(&servers[..1], &clock);
    let stored = stored(&servers[..1]);
    judge(&world, &traffic, &accountant, &stored);
    balance(servers[0]);
    for redis in &world.redis {
        redis.assert_all_expire();
    }
    the_pace_holds(&world, &accountant, &clock);
}

#[test]
fn on_separate_stores_a_redis_that_remembers_lets_nothing_through_twice() {
    let clock = Clock::system();
    let accountant = Accountant::start();
    let redis = Redis::durable();
    let links: Vec<_> = (0..REPLICAS).map(|_| Relay::to(redis.address())).collect();
    let setups = links.iter().map(|link| {
        setup(&accountant).redis(
            &redis::url(link.address()),
            "namespace = \"campaign\"\non_down = \"refuse\"",
        )
    });
    let fleet = Fleet::start(setups.collect());
    let world = World::new(fleet, links, Vec::new(), vec![redis], None, &clock);
    let (world, traffic) = campaign(world, &Fault::SEPARATE, &accountant, &clock, seconds(60));

    let servers: Vec<_> = world.fleet.servers().collect();
    drain(&servers, &clock);
    let stored = stored(&servers);
    judge(&world, &traffic, &accountant, &stored);
    for server in servers {
        balance(server);
    }
    world.redis[0].assert_all_expire();
}

fn setup(accountant: &Accountant) -> Setup {
    Setup::new(&accountant.upstream)
        .upstream(&format!("concurrency = {CONCURRENCY}"))
        .upstream("retry = { first = \"50ms\", max = \"1s\" }")
        .plain()
        // Everything that can fail does.
        .allow_log("\"level\":\"WARN\"")
        .allow_log("the database does not take what it is given")
        // At a start; a supervisor tries again.
        .allow_log("the store's database could not be opened")
}

fn seconds(usual: u64) -> Duration {
    let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    Duration::from_secs(match (set("HOOKSLUICE_SECONDS"), set("HOOKSLUICE_LONG")) {
        (Some(seconds), _) => seconds.parse().unwrap(),
        (None, Some(_)) => 600,
        (None, None) => usual,
    })
}

/// Faults and senders for this long, then everything is healed and every sender has repeated what was missing.
fn campaign(
    mut world: World,
    faults: &[Fault],
    accountant: &Accountant,
    clock: &Clock,
    time: Duration,
) -> (World, Traffic) {
    let seed = seed("HOOKSLUICE_SEED");
    println!("{} s of faults, HOOKSLUICE_SEED={seed}", time.as_secs());
    let mut dice = Dice(seed);
    let stop = AtomicBool::new(false);
    let balancer = world.fleet.balancer();
    let traffic = std::thread::scope(|scope| {
        let senders: Vec<_> = (0..SENDERS)
            .map(|number| {
                let dice = Dice(dice.roll());
                let (balancer, stop) = (&balancer, &stop);
                scope.spawn(move || senders::send(&format!("s{number}"), balancer, stop, clock, dice))
            })
            .collect();
        // Also when a fault panics: the scope waits for its threads.
        let _guard = SetWhenDropped(&stop);
        let start = clock.monotonic();
        let mut next = start;
        while clock.monotonic().since(start) < time {
            world.tend();
            if clock.monotonic() >= next {
                accountant.set_weather(match dice.below(4) {
                    0 => Weather::Slow(Duration::from_millis(30)),
                    1 => Weather::Only(404),
                    _ => Weather::Changing,
                });
                let fault = faults[dice.index(faults.len())];
                world.harm(fault, &mut dice);
                next = clock.monotonic().after(Duration::from_millis(300 + dice.below(1500)));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        world.heal();
        accountant.set_weather(Weather::Changing);
        stop.store(true, Ordering::SeqCst);
        let mut traffic = Traffic::default();
        for sender in senders {
            traffic.add(sender.join().unwrap());
        }
        traffic
    });
    (world, traffic)
}

struct SetWhenDropped<'a>(&'a AtomicBool);

impl Drop for SetWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// What must hold whatever happened.
fn judge(world: &World, traffic: &Traffic, accountant: &Accountant, stored: &BTreeMap<String, BTreeSet<String>>) {
    let doubled: Vec<_> = stored.iter().filter(|(_, events)| events.len() > 1).collect();
    let highest = accountant.take_highest();
    accountant.read(|ledger| {
        println!(
            "{} ids sent in {} requests: {} acknowledged ({} answers said duplicate), {} answers 503, {} without an \
             answer, slowest 200 after {:?}",
            traffic.sent,
            traffic.requests,
            traffic.acknowledged.len(),
            traffic.duplicates,
            traffic.unavailable,
            traffic.unanswered.len(),
            traffic.slowest,
        );
        println!(
            "{} delivered in {} attempts, {} of them more than once, {} attempts came late, at most {highest} at a time",
            ledger.delivered.len(),
            ledger.attempts,
            ledger.repeated(),
            ledger.late,
        );
        println!("{} ids with two events; faults: {:?}", doubled.len(), world.counts);
        let lost: Vec<_> = traffic.acknowledged.difference(&ledger.delivered).collect();
        assert!(lost.is_empty(), "acknowledged and not delivered: {lost:?}");
        assert!(ledger.wrong.is_empty(), "{:#?}", ledger.wrong);
        let frozen = world.counts.get("SIGSTOP of a replica").copied().unwrap_or(0);
        let bound = frozen * u64::try_from(CONCURRENCY).unwrap();
        assert!(ledger.late <= bound, "{} attempts came late", ledger.late);
        for (id, event) in ledger.events() {
            let known = stored.get(id).is_some_and(|events| events.contains(event));
            assert!(known, "the stores do not know {event} of {id}");
        }
    });
    assert!(doubled.is_empty(), "one delivery id, several events: {doubled:?}");
    assert!(!traffic.acknowledged.is_empty(), "the campaign never got an answer");
    assert!(traffic.wrong.is_empty(), "{:#?}", traffic.wrong);
    assert_eq!(traffic.given_up, 0, "copies that were never acknowledged");
    let silent: Vec<_> = traffic
        .unanswered
        .iter()
        .filter(|one| !world.was_away(one.replica, one.from, one.to))
        .collect();
    assert!(
        silent.is_empty(),
        "replicas that were there did not answer: {silent:#?}"
    );
}

/// Until nothing waits for admission or delivery.
fn drain(servers: &[&Server], clock: &Clock) {
    let start = clock.monotonic();
    loop {
        let open = |server: &&Server| {
            let states = ["pending", "leased"].map(|state| format!("state=\"{state}\""));
            let dispatches = states
                .iter()
                .map(|state| server.metric("hooksluice_dispatches", &[state]));
            dispatches.sum::<f64>() + server.metric("hooksluice_unadmitted", &[])
        };
        let open: f64 = servers.iter().map(open).sum();
        if open == 0.0 {
            return;
        }
        assert!(clock.monotonic().since(start) < DRAIN, "{open} still wait");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Event ids by delivery id, of events that have dispatches.
fn stored(servers: &[&Server]) -> BTreeMap<String, BTreeSet<String>> {
    let mut stored: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for server in servers {
        let mut cursor = String::new();
        loop {
            let page = server.admin_get(&format!("/api/v1/events?limit=500{cursor}")).json();
            for event in page["events"].as_array().unwrap() {
                let text = |name: &str| event[name].as_str().unwrap().to_owned();
                // A copy of what another store dispatches is kept, and stays.
                if !event["dispatches"].as_array().unwrap().is_empty() {
                    stored.entry(text("delivery_id")).or_default().insert(text("id"));
                }
            }
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
    }
    stored
}

/// P8: every dispatch that was made is somewhere.
fn balance(server: &Server) {
    let made = server.metric("hooksluice_dispatches_made_total", &[]);
    let now = server.metric("hooksluice_dispatches", &[]);
    let pruned = server.metric("hooksluice_dispatches_pruned_total", &[]);
    println!("{made} dispatches made = {now} there + {pruned} pruned");
    assert!(made > 0.0);
    assert_eq!(made, now + pruned, "dispatches balance");
}

/// P7, when nobody is stopped and no lease is lost.
fn the_pace_holds(world: &World, accountant: &Accountant, clock: &Clock) {
    accountant.set_weather(Weather::Slow(Duration::from_millis(20)));
    accountant.take_highest();
    let before = accountant.read(|ledger| ledger.delivered.len());
    let balancer = world.fleet.balancer();
    std::thread::scope(|scope| {
        for sender in 0..SENDERS {
            let balancer = &balancer;
            scope.spawn(move || {
                for number in 0..50 {
                    let id = format!("quiet-{sender}-{number}");
                    let answer = balancer.send(&sign::plain("/hooks/plain", &id, &body(&id)));
                    assert_eq!(answer.status, 200);
                }
            });
        }
    });
    drain(&[world.fleet.server(0)], clock);
    let delivered = accountant.read(|ledger| ledger.delivered.len()) - before;
    assert_eq!(delivered, SENDERS * 50);
    let highest = accountant.take_highest();
    println!("in quiet: {delivered} delivered, at most {highest} at a time of {CONCURRENCY}");
    assert!(highest <= CONCURRENCY, "{highest} attempts at one time");
}
