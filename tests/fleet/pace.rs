//! P7 over replicas: an upstream is one thing, however many send to it.

use std::time::Duration;

use hooksluice::time::Clock;

use crate::grounds::{Grounds, accept, assert_once, delivered, request, settled};
use crate::harness::fleet::{Balancer, Fleet};
use crate::harness::ledger::Weather;
use crate::harness::{Server, eventually};

/// So many ids by several senders at once.
fn send(balancer: &Balancer, name: &str, count: usize) {
    std::thread::scope(|scope| {
        for sender in 0..4 {
            scope.spawn(move || {
                for number in (sender..count).step_by(4) {
                    let answer = balancer.send(&request(&format!("{name}-{number}")));
                    assert_eq!(answer.status, 200, "{answer:?}");
                }
            });
        }
    });
}

#[test]
fn concurrency_holds_over_replicas_also_when_they_come_and_go() {
    let grounds = Grounds::new();
    let configure = || {
        grounds
            .shared()
            .upstream("concurrency = 4")
            .allow_log("\"level\":\"WARN\"")
    };
    let mut fleet = Fleet::start((0..3).map(|_| configure()).collect());
    grounds.accountant.set_weather(Weather::Slow(Duration::from_millis(20)));
    send(&fleet.balancer(), "three", 150);
    delivered(&grounds.accountant, 150);
    fleet.stop(2);
    send(&fleet.balancer(), "two", 100);
    delivered(&grounds.accountant, 250);
    fleet.restart(2);
    send(&fleet.balancer(), "again", 150);
    delivered(&grounds.accountant, 400);
    settled(&fleet);
    assert_once(&grounds.accountant, 400);
    let highest = grounds.accountant.take_highest();
    println!("at most {highest} at a time");
    assert!(highest <= 4, "{highest} at one time");
    // Nor less than could be: the units are spread over all.
    assert!(highest >= 3, "{highest} at one time");
}

// One replica alone, with all of the work, gets to use all of the pace.
#[test]
fn a_lone_replica_of_a_fleet_uses_all_of_the_concurrency_in_the_end() {
    let grounds = Grounds::new();
    let configure = || {
        grounds
            .shared()
            .upstream("concurrency = 4")
            .allow_log("\"level\":\"WARN\"")
    };
    let mut fleet = Fleet::start((0..2).map(|_| configure()).collect());
    grounds.accountant.set_weather(Weather::Slow(Duration::from_millis(50)));
    fleet.kill(1);
    let mut round = 0;
    eventually("all of the pace", || {
        // No further ahead than is soon delivered.
        let delivered = grounds.accountant.read(|ledger| ledger.delivered.len());
        if round * 4 < delivered + 40 {
            round += 1;
            send(&fleet.balancer(), &format!("round-{round}"), 4);
        }
        (grounds.accountant.take_highest() == 4).then_some(())
    });
    delivered(&grounds.accountant, round * 4);
}

#[test]
fn a_rate_holds_over_replicas() {
    const EVENTS: usize = 120;
    let grounds = Grounds::new();
    let clock = Clock::system();
    // Leases are held for longer here than elsewhere; one that is settled while it is renewed is called lost.
    let configure = || {
        let setup = grounds.shared().allow_log("leases were lost");
        setup.upstream("rate = \"20/s\"\nburst = 5")
    };
    let fleet = Fleet::start((0..3).map(|_| configure()).collect());
    let start = clock.monotonic();
    send(&fleet.balancer(), "id", EVENTS);
    delivered(&grounds.accountant, EVENTS);
    let took = clock.monotonic().since(start);
    settled(&fleet);
    assert_once(&grounds.accountant, EVENTS);
    println!("{EVENTS} events in {took:?}");
    // What the rate lets through at the earliest; nothing is said about the latest.
    let earliest = Duration::from_secs_f64((EVENTS - 5) as f64 / 20.0);
    assert!(took >= earliest.mul_f64(0.95), "{took:?} for {EVENTS} events");
}

#[test]
fn one_upstream_that_is_slow_at_all_replicas_delays_no_other() {
    let grounds = Grounds::new();
    let other = crate::harness::ledger::Accountant::start();
    let address = other.upstream.address();
    let configure = || {
        grounds
            .shared()
            .upstream(&format!(
                "concurrency = 3\n[upstreams.other]\nurl = \"http://{address}\""
            ))
            .source_to("other", "other")
    };
    let fleet = Fleet::start((0..2).map(|_| configure()).collect());
    grounds.accountant.set_weather(Weather::Slow(Duration::from_secs(30)));
    for number in 0..20 {
        accept(fleet.server(number % 2), &format!("id-{number}"));
    }
    for number in 0..20 {
        let id = format!("id-{number}");
        let request = crate::harness::sign::plain("/hooks/other", &id, &crate::harness::dice::body(&id));
        assert_eq!(fleet.server(number % 2).send(&request).status, 200);
    }
    delivered(&other, 20);
    grounds.accountant.read(|ledger| assert!(ledger.attempts <= 3));
    // Ends the waiting.
    grounds.accountant.set_weather(Weather::Fair);
}

#[test]
fn a_pause_at_one_replica_is_seen_by_all_and_by_those_that_start_later() {
    let grounds = Grounds::new();
    let mut fleet = Fleet::start((0..3).map(|_| grounds.shared().allow_log("paused")).collect());
    let paused = |fleet: &Fleet, wanted: bool| {
        eventually("all replicas to see it", || {
            let seen = |server: &Server| {
                let status = server.admin_get("/api/v1/status").json();
                status["upstreams"][0]["paused"] == wanted
            };
            fleet.servers().all(seen).then_some(())
        });
    };
    accept(fleet.server(0), "before");
    delivered(&grounds.accountant, 1);
    settled(&fleet);
    let answer = fleet.server(0).admin_post("/api/v1/upstreams/app/pause", "{}");
    assert_eq!(answer.status, 200, "{answer:?}");
    paused(&fleet, true);
    fleet.stop(1);
    fleet.restart(1);
    paused(&fleet, true);
    // A paused upstream loses nothing: all accept.
    for number in 0..30 {
        accept(fleet.server(number % 3), &format!("during-{number}"));
    }
    grounds.accountant.read(|ledger| assert_eq!(ledger.attempts, 1));
    let answer = fleet.server(2).admin_post("/api/v1/upstreams/app/resume", "{}");
    assert_eq!(answer.status, 200, "{answer:?}");
    paused(&fleet, false);
    delivered(&grounds.accountant, 31);
    settled(&fleet);
    assert_once(&grounds.accountant, 31);
}
