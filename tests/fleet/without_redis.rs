//! Redis away, slow, wrong, full, emptied: its errors are no answers, and nothing is only there.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use crate::grounds::{Grounds, accept, assert_once, delivered, noisy, request, separate, settled, setup};
use crate::harness::Server;
use crate::harness::eventually;
use crate::harness::fleet::Fleet;
use crate::harness::ledger::Accountant;
use crate::harness::redis::{self, Redis, Reply};

/// Something that looks like Redis and answers every command with this error.
fn always(error: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut writer = stream.try_clone().unwrap();
                // One answer for each array; what is in it are lines that begin otherwise.
                for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
                    if line.starts_with(b"*") && writer.write_all(format!("-{error}\r\n").as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// New ids are accepted and forwarded.
fn new_ids_go_through(server: &Server, accountant: &Accountant, name: &str) {
    for number in 0..20 {
        let request = request(&format!("{name}-{number}"));
        let mut connection = server.connect();
        connection.send(&request.bytes());
        // Far more than any look may take; the machine may be busy.
        assert!(connection.answers_within(Duration::from_secs(5)), "{name}: {number}");
        assert_eq!(connection.read().status, 200, "{name}: {number}");
    }
    eventually(&format!("all of {name} to be delivered"), || {
        let there = |number: &i32| accountant.read(|ledger| ledger.delivered.contains(&format!("{name}-{number}")));
        (0..20).all(|number| there(&number)).then_some(())
    });
}

/// On a shared store and on one of its own, a server starts with this Redis and takes new ids.
fn costs_no_answer(grounds: &Grounds, name: &str, url: &str) {
    let shared = setup(&grounds.accountant)
        .postgres(&grounds.database.url())
        .redis(url, "");
    let namespace = format!("namespace = \"{name}\"\non_down = \"store\"\nadmit_timeout = \"300ms\"");
    let embedded = setup(&grounds.accountant).redis(url, &namespace);
    for (arrangement, setup) in [("shared", shared), ("embedded", embedded)] {
        // A wrong password is a person's to mend.
        let setup = noisy(setup).allow_log("edis");
        let server = setup.start();
        new_ids_go_through(&server, &grounds.accountant, &format!("{name}-{arrangement}"));
        eventually(&format!("an error of {name} that is counted, {arrangement}"), || {
            (server.metric("hooksluice_dedupe_backend_errors_total", &[]) > 0.0).then_some(())
        });
        // In order: others on the same store would repeat what it had not settled.
        server.stop();
    }
}

// DD-03
#[test]
fn an_error_of_redis_is_not_an_answer() {
    let grounds = Grounds::new();
    let errors = [
        "LOADING Redis is loading the dataset in memory",
        "OOM command not allowed when used memory > 'maxmemory'.",
        "READONLY You can't write against a read only replica.",
        "MOVED 3999 127.0.0.1:6381",
        "CLUSTERDOWN The cluster is down",
        "NOAUTH Authentication required.",
        "ERR unknown command",
    ];
    std::thread::scope(|scope| {
        for error in errors {
            let grounds = &grounds;
            scope.spawn(move || {
                let name = error.split(' ').next().unwrap();
                costs_no_answer(grounds, name, &redis::url(always(error)));
            });
        }
    });
    let times = 20 * 2 * errors.len() as u64;
    grounds
        .accountant
        .read(|ledger| assert_eq!(ledger.attempts, times, "each once"));
}

// DD-03
#[test]
fn a_redis_that_is_down_silent_read_only_or_full_costs_no_answer() {
    let grounds = Grounds::new();
    let mut down = Redis::start();
    down.kill();
    let silent = Redis::start();
    silent.freeze();
    let full = Redis::with(&["maxmemory 1mb", "maxmemory-policy noeviction"]);
    while let Reply::Integer(_) = full.command(&["APPEND", "filler", &"x".repeat(1 << 10)]) {}
    let primary = Redis::start();
    let read_only = primary.replica();
    std::thread::scope(|scope| {
        for (name, redis) in [
            ("down", &down),
            ("silent", &silent),
            ("full", &full),
            ("read-only", &read_only),
        ] {
            let grounds = &grounds;
            scope.spawn(move || costs_no_answer(grounds, name, &redis.url()));
        }
    });
    grounds
        .accountant
        .read(|ledger| assert_eq!(ledger.attempts, 20 * 2 * 4, "each once"));
}

// DD-04
#[test]
fn with_redis_down_every_duplicate_is_recognised_by_the_store() {
    const EVENTS: usize = 1000;
    let mut grounds = Grounds::new();
    grounds.redis.kill();
    let fleet = Fleet::start((0..3).map(|_| noisy(grounds.shared())).collect());
    let balancer = fleet.balancer();
    std::thread::scope(|scope| {
        for thread in 0..5 {
            let balancer = &balancer;
            scope.spawn(move || {
                for number in (thread..EVENTS).step_by(5) {
                    for _ in 0..2 {
                        let answer = balancer.send(&request(&format!("id-{number}")));
                        assert_eq!(answer.status, 200);
                    }
                }
            });
        }
    });
    delivered(&grounds.accountant, EVENTS);
    settled(&fleet);
    assert_once(&grounds.accountant, EVENTS);
    let events = EVENTS as f64;
    assert_eq!(fleet.metric("hooksluice_events_stored_total", &[]), events);
    assert_eq!(fleet.metric("hooksluice_duplicates_total", &[]), events);
    assert_eq!(fleet.metric("hooksluice_requests_total", &["outcome=\"failed\""]), 0.0);
    // Once it is back, it is used and learns.
    grounds.redis.restart();
    let mut round = 0;
    eventually("Redis to be used again", || {
        round += 1;
        accept(fleet.server(0), &format!("after-{round}"));
        (!grounds.redis.keys().is_empty()).then_some(())
    });
    grounds.redis.assert_all_expire();
}

// DD-06
#[test]
fn every_key_is_written_by_one_command_with_its_end() {
    let accountant = Accountant::start();
    let grounds = Grounds::new();
    let redis = &grounds.redis;
    let monitor = redis.monitor();
    let fleet = Fleet::start(vec![separate(&accountant, &redis.url()), grounds.shared()]);
    for number in 0..20 {
        for server in fleet.servers() {
            accept(server, &format!("id-{number}"));
            accept(server, &format!("id-{number}"));
        }
    }
    delivered(&accountant, 20);
    delivered(&grounds.accountant, 20);
    eventually("all keys", || (redis.keys().len() == 40).then_some(()));
    let seen = monitor.lines();
    let writes: Vec<_> = seen
        .iter()
        .filter(|line| line.to_lowercase().contains("\"set\""))
        .collect();
    assert!(writes.len() >= 40, "{seen:#?}");
    for line in writes {
        let line = line.to_lowercase();
        assert!(line.contains("\"px\"") || line.contains("\"pxat\""), "{line}");
        assert!(!line.contains('{'), "braces would pin a source to one slot: {line}");
    }
    for line in &seen {
        let line = line.to_lowercase();
        for word in ["\"setnx\"", "\"persist\"", "\"del\"", "\"multi\""] {
            assert!(!line.contains(word), "{line}");
        }
    }
    redis.assert_all_expire();
}

// DD-07
#[test]
fn evicted_and_flushed_keys_make_nothing_new_on_a_shared_store() {
    const EVENTS: usize = 3000;
    let mut grounds = Grounds::new();
    grounds.redis = Redis::with(&["maxmemory 1500kb", "maxmemory-policy allkeys-lru"]);
    let fleet = Fleet::start((0..2).map(|_| noisy(grounds.shared())).collect());
    for server in fleet.servers() {
        server.wait_for_log(&["maxmemory", "allkeys-lru"]);
    }
    let balancer = fleet.balancer();
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let balancer = &balancer;
            scope.spawn(move || {
                for number in (thread..EVENTS).step_by(6) {
                    assert_eq!(balancer.send(&request(&format!("id-{number}"))).status, 200);
                }
            });
        }
    });
    delivered(&grounds.accountant, EVENTS);
    let Reply::Integer(kept) = grounds.redis.command(&["DBSIZE"]) else {
        panic!("DBSIZE answers a number");
    };
    println!("{kept} of {EVENTS} keys were not evicted");
    assert!(usize::try_from(kept).unwrap() < EVENTS, "nothing was evicted");
    grounds.redis.flush();
    for number in (0..EVENTS).step_by(100) {
        for server in fleet.servers() {
            accept(server, &format!("id-{number}"));
        }
    }
    settled(&fleet);
    assert_once(&grounds.accountant, EVENTS);
}

// DD-08
#[test]
fn what_waits_for_the_upstream_is_not_in_redis() {
    let mut grounds = Grounds::new();
    let accountant = Accountant::start();
    let mut fleet = Fleet::start(vec![
        noisy(grounds.shared()),
        noisy(grounds.shared()),
        noisy(setup(&accountant).redis(&grounds.redis.url(), "namespace = \"a\"")),
    ]);
    grounds.accountant.upstream.stop();
    accountant.upstream.stop();
    for number in 0..50 {
        accept(fleet.server(number % 2), &format!("id-{number}"));
        accept(fleet.server(2), &format!("id-{number}"));
    }
    grounds.redis.flush();
    grounds.redis.restart();
    for index in 0..3 {
        fleet.kill(index);
    }
    for index in 0..3 {
        fleet.launch(index);
    }
    fleet.wait_until_ready();
    grounds.accountant.upstream.start_again();
    accountant.upstream.start_again();
    delivered(&grounds.accountant, 50);
    delivered(&accountant, 50);
    settled(&fleet);
}
