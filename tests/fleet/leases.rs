//! Replicas that die, stop, are cut off or replaced: their work goes on elsewhere, and nobody waits for them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::grounds::{
    Grounds, accept, assert_once, delivered, events, holder, noisy, request, settled, setup, wait_for_state,
};
use crate::harness::bouncer::Bouncer;
use crate::harness::dice::{Dice, seed};
use crate::harness::eventually;
use crate::harness::fleet::{Balancer, Fleet, SENDER_PATIENCE};
use crate::harness::ledger::Weather;
use crate::harness::relay::{Relay, Trap};
use crate::harness::{Server, client};

/// Sends until it is acknowledged, as a provider does.
fn insist(balancer: &Balancer, id: &str) {
    eventually("an acknowledgement", || match balancer.try_send(&request(id)) {
        Ok(Some(answer)) if answer.status == 200 => Some(()),
        Ok(Some(answer)) if answer.status == 503 && answer.header("Retry-After").is_some() => None,
        Ok(Some(answer)) => panic!("{answer:?}"),
        Ok(None) | Err(_) => None,
    });
}

// ST-01 over replicas
#[test]
fn what_a_dead_replica_had_leased_is_taken_over() {
    let grounds = Grounds::new();
    let mut fleet = Fleet::start((0..3).map(|_| noisy(grounds.shared())).collect());
    grounds.accountant.set_weather(Weather::Slow(Duration::from_secs(60)));
    for number in 0..30 {
        accept(fleet.server(0), &format!("id-{number}"));
    }
    eventually("attempts under way", || {
        grounds.accountant.read(|ledger| (ledger.attempts > 10).then_some(()))
    });
    fleet.kill(0);
    grounds.accountant.set_weather(Weather::Fair);
    grounds.accountant.upstream.close_connections();
    eventually("everything to be delivered by the others", || {
        let left = fleet.server(1).events("state=delivered").len();
        (left == 30).then_some(())
    });
    grounds.accountant.read(|ledger| {
        assert!(ledger.wrong.is_empty(), "{:?}", ledger.wrong);
        assert_eq!(ledger.late, 0);
        for number in 0..30 {
            assert!(ledger.numbers(&format!("id-{number}")).len() <= 2, "taken over once");
        }
    });
}

// DD-12: the owner of a lease that was lost finds out, and its outcome changes nothing.
#[test]
fn a_replica_that_was_stopped_for_longer_than_its_lease_cannot_settle() {
    let grounds = Grounds::new();
    let fleet = Fleet::start((0..2).map(|_| noisy(grounds.shared())).collect());
    grounds.accountant.set_weather(Weather::Slow(Duration::from_secs(2)));
    accept(fleet.server(0), "x");
    let first = holder(&fleet, &grounds.accountant);
    let other = 1 - first;
    // Its answer waits in the socket of a stopped process.
    fleet.server(first).freeze();
    eventually("another attempt", || {
        grounds.accountant.read(|ledger| (ledger.attempts == 2).then_some(()))
    });
    wait_for_state(fleet.server(other), "x", "delivered");
    fleet.server(first).thaw();
    eventually("it to be back", || fleet.server(first).is_ready().then_some(()));
    accept(fleet.server(first), "y");
    wait_for_state(fleet.server(first), "y", "delivered");
    let event = &events(fleet.server(0), "x")[0];
    assert_eq!(event["dispatches"][0]["state"], "delivered");
    let id = event["id"].as_str().unwrap();
    let detail = fleet.server(1).admin_get(&format!("/api/v1/events/{id}")).json();
    let numbers: Vec<_> = detail["attempts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["number"].clone())
        .collect();
    assert_eq!(numbers, [2], "the lost lease recorded nothing: {detail}");
    grounds
        .accountant
        .read(|ledger| assert_eq!(ledger.numbers("x"), [1, 2]));
}

// DD-12
#[test]
fn a_long_attempt_keeps_its_lease() {
    let grounds = Grounds::new();
    let fleet = grounds.fleet(2);
    // Longer than a lease.
    grounds.accountant.set_weather(Weather::Slow(Duration::from_secs(20)));
    accept(fleet.server(0), "x");
    wait_for_state(fleet.server(1), "x", "delivered");
    assert_once(&grounds.accountant, 1);
}

// DD-11
#[test]
fn a_replica_that_is_replaced_in_the_middle_of_an_attempt_hands_it_over() {
    let grounds = Grounds::new();
    let configure = || noisy(grounds.shared().tables("[server]\nshutdown_grace = \"500ms\""));
    let mut fleet = Fleet::start((0..2).map(|_| configure()).collect());
    grounds.accountant.set_weather(Weather::Slow(Duration::from_secs(60)));
    accept(fleet.server(0), "x");
    let first = holder(&fleet, &grounds.accountant);
    grounds.accountant.set_weather(Weather::Fair);
    fleet.stop(first);
    wait_for_state(fleet.server(1 - first), "x", "delivered");
    grounds
        .accountant
        .read(|ledger| assert_eq!(ledger.numbers("x"), [1, 2]));
}

// DD-11
#[test]
fn a_rolling_restart_under_load_loses_and_doubles_nothing() {
    let grounds = Grounds::new();
    let mut fleet = Fleet::start((0..3).map(|_| grounds.shared()).collect());
    let balancer = fleet.balancer();
    let stop = AtomicBool::new(false);
    let sent = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for sender in 0..4 {
            let (balancer, stop, sent) = (&balancer, &stop, &sent);
            scope.spawn(move || {
                let mut number = 0;
                while !stop.load(Ordering::SeqCst) {
                    insist(balancer, &format!("{sender}-{number}"));
                    number += 1;
                    sent.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::SeqCst);
            }
        }
        let _stop = Stop(&stop);
        for index in 0..3 {
            let before = sent.load(Ordering::SeqCst);
            eventually("some load", || {
                (sent.load(Ordering::SeqCst) > before + 50).then_some(())
            });
            fleet.stop(index);
            fleet.restart(index);
        }
    });
    let sent = sent.load(Ordering::SeqCst);
    println!("{sent} sent over three restarts");
    delivered(&grounds.accountant, sent);
    settled(&fleet);
    assert_once(&grounds.accountant, sent);
}

// DD-16: nothing tells the others that there is work but the store itself.
#[test]
fn what_waits_is_found_without_a_word_of_it() {
    let grounds = Grounds::new();
    let bouncer = Bouncer::start(grounds.postgres.address(), &grounds.database);
    let url = grounds.database.url_by(bouncer.address());
    let configure = || noisy(setup(&grounds.accountant).postgres(&url));
    let mut fleet = Fleet::start(vec![configure(), configure()]);
    grounds.accountant.upstream.stop();
    for number in 0..100 {
        accept(fleet.server(0), &format!("id-{number}"));
    }
    fleet.kill(0);
    grounds.accountant.upstream.start_again();
    delivered(&grounds.accountant, 100);
    settled(&fleet);
}

/// Its commit is on the way and does not arrive; another replica gets the same delivery.
#[test]
fn a_replica_that_is_cut_off_before_its_commit_does_not_hold_up_the_key() {
    let grounds = Grounds::new();
    let links: Vec<_> = (0..2).map(|_| Relay::to(grounds.postgres.address())).collect();
    let configure = |link: &Relay| {
        noisy(setup(&grounds.accountant))
            .postgres(&grounds.database.url_by(link.address()))
            .redis(&grounds.redis.url(), "")
    };
    let fleet = Fleet::start(links.iter().map(configure).collect());
    for server in fleet.servers() {
        accept(server, "warm");
    }
    for round in 0..3 {
        let id = format!("id-{round}");
        links[0].trap("COMMIT", Trap::HoldBefore);
        std::thread::scope(|scope| {
            let server = fleet.server(0);
            let held = scope.spawn(|| client::exchange_within(server.address(), &request(&id), SENDER_PATIENCE * 3));
            links[0].wait_for_trap();
            eventually("an answer of the other one", || {
                let answer = fleet.server(1).send(&request(&id));
                assert!(matches!(answer.status, 200 | 503), "{answer:?}");
                (answer.status == 200).then_some(())
            });
            wait_for_state(fleet.server(1), &id, "delivered");
            links[0].heal();
            let answer = held.join().unwrap().unwrap().expect("an answer");
            assert!(matches!(answer.status, 200 | 503), "{answer:?}");
        });
        eventually("it to be back", || {
            (server_accepts(fleet.server(0), &format!("after-{round}"))).then_some(())
        });
    }
    settled(&fleet);
    grounds
        .accountant
        .read(|ledger| assert!(ledger.wrong.is_empty(), "{:?}", ledger.wrong));
    for round in 0..3 {
        assert_eq!(events(fleet.server(1), &format!("id-{round}")).len(), 1);
    }
}

fn server_accepts(server: &Server, id: &str) -> bool {
    let answer = server.send(&request(id));
    assert!(matches!(answer.status, 200 | 503), "{answer:?}");
    answer.status == 200
}

/// SIGSTOP at any instruction, under load; everything that it was working on comes to the other one.
#[test]
fn a_stopped_replica_does_not_hold_up_its_keys() {
    let seed = seed("HOOKSLUICE_SEED");
    println!("HOOKSLUICE_SEED={seed}");
    let mut dice = Dice(seed);
    let grounds = Grounds::new();
    let fleet = Fleet::start((0..2).map(|_| noisy(grounds.shared())).collect());
    let mut sent = 0;
    for round in 0..8 {
        let at_once: usize = 24;
        std::thread::scope(|scope| {
            let address = fleet.server(0).address();
            for number in 0..at_once {
                // Its own answer does not matter; it may come after the thaw.
                scope.spawn(move || {
                    let request = request(&format!("{round}-{number}"));
                    client::exchange_within(address, &request, SENDER_PATIENCE).ok()
                });
            }
            std::thread::sleep(Duration::from_micros(dice.below(30_000)));
            fleet.server(0).freeze();
            for number in 0..at_once {
                eventually("an answer of the other one", || {
                    server_accepts(fleet.server(1), &format!("{round}-{number}")).then_some(())
                });
            }
            fleet.server(0).thaw();
        });
        sent += at_once;
    }
    delivered(&grounds.accountant, sent);
    settled(&fleet);
    grounds
        .accountant
        .read(|ledger| assert!(ledger.wrong.is_empty(), "{:?}", ledger.wrong));
    assert_eq!(fleet.server(0).events("state=delivered").len(), sent);
}

// The commit has its effect and nobody hears of it: the answer is 503 or the truth, and there is one event.
#[test]
fn a_commit_whose_answer_was_lost_makes_one_event() {
    let grounds = Grounds::new();
    let link = Relay::to(grounds.postgres.address());
    let configure = |address| {
        noisy(setup(&grounds.accountant))
            .postgres(&grounds.database.url_by(address))
            .redis(&grounds.redis.url(), "")
    };
    let fleet = Fleet::start(vec![configure(link.address()), configure(grounds.postgres.address())]);
    let mut count = 0;
    for trap in [Trap::CutAfter, Trap::CutBefore, Trap::HalfClose, Trap::HoldAfter] {
        for round in 0..3 {
            let id = format!("{trap:?}-{round}");
            link.trap("COMMIT", trap);
            std::thread::scope(|scope| {
                let server = fleet.server(0);
                let sent =
                    scope.spawn(|| client::exchange_within(server.address(), &request(&id), SENDER_PATIENCE * 3));
                link.wait_for_trap();
                if trap == Trap::HoldAfter {
                    eventually("an answer of the other one", || {
                        server_accepts(fleet.server(1), &id).then_some(())
                    });
                    link.heal();
                }
                let answer = sent.join().unwrap().unwrap().expect("an answer");
                assert!(matches!(answer.status, 200 | 503), "{answer:?}");
            });
            for server in fleet.servers() {
                eventually("a retry to be acknowledged", || {
                    server_accepts(server, &id).then_some(())
                });
            }
            count += 1;
            delivered(&grounds.accountant, count);
            assert_eq!(events(fleet.server(1), &id).len(), 1, "{id}");
        }
    }
    settled(&fleet);
    grounds
        .accountant
        .read(|ledger| assert!(ledger.wrong.is_empty(), "{:?}", ledger.wrong));
}
