//! The crash campaign: SIGKILL at random moments under load with duplicates, restart, go on; at the end drain, and hold
//! what the senders saw against what the upstream saw.
//!
//! - P1: every event that was acknowledged is delivered, with the bytes that were sent.
//! - P2: no dedupe key has two event ids, at the upstream or in the store.
//! - P9: the attempts of one event carry numbers that strictly increase, over all restarts.
//!
//! `HOOKSLUICE_LONG=1` makes 500 kills of 30, `HOOKSLUICE_CRASH_KILLS` any number; `HOOKSLUICE_CRASH_SEED` repeats the
//! dice of an earlier run (the machine's timing still differs).
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

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hooksluice::time::Clock;

use crate::harness::dice::{Dice, body, seed};
use crate::harness::{Answer, Connection, Received, Server, Setup, Upstream, eventually, sign};

const SENDERS: u64 = 8;
/// Draining everything after the last kill must not take longer.
const DRAIN: Duration = Duration::from_secs(120);

#[test]
fn nothing_acknowledged_is_lost_or_doubled_by_kills_at_random_moments() {
    let kills = kills();
    let seed = seed("HOOKSLUICE_CRASH_SEED");
    println!("{kills} kills, HOOKSLUICE_CRASH_SEED={seed}");
    let mut dice = Dice(seed);
    let seen = Arc::new(Mutex::new(Seen::default()));
    let recorder = Arc::clone(&seen);
    let upstream = Upstream::forgetful(move |received| recorder.lock().unwrap().record(received));
    let setup = Setup::new(&upstream)
        .upstream("retry = { first = \"20ms\", max = \"500ms\" }")
        .plain()
        .allow_log("\"upstream\":\"app\"");
    let mut acknowledged = BTreeSet::new();
    for round in 0..kills {
        seen.lock().unwrap().weather = match dice.below(4) {
            0 => Weather::Slow,
            1 => Weather::Refusing,
            _ => Weather::Fair,
        };
        let mut server = setup.start();
        let pause = Duration::from_millis(dice.below(400));
        acknowledged.extend(load_until_killed(&mut server, round, &mut dice, pause));
    }
    assert!(!acknowledged.is_empty(), "the campaign never got an answer");

    seen.lock().unwrap().weather = Weather::Fair;
    let server = setup.start();
    drain(&server);
    let seen = seen.lock().unwrap();
    println!(
        "{} acknowledged, {} delivered in {} attempts",
        acknowledged.len(),
        seen.delivered.len(),
        seen.attempts
    );
    let lost: Vec<_> = acknowledged.difference(&seen.delivered).collect();
    assert!(lost.is_empty(), "acknowledged and not delivered: {lost:?}");
    assert!(seen.wrong.is_empty(), "{:#?}", seen.wrong);
    let stored = stored(&server);
    let doubled: Vec<_> = stored.iter().filter(|(_, events)| events.len() > 1).collect();
    assert!(doubled.is_empty(), "one delivery id, several events: {doubled:?}");
    for (id, event) in &seen.events {
        assert_eq!(
            stored.get(id),
            Some(&vec![event.clone()]),
            "the store and the upstream disagree about {id}"
        );
    }
}

fn kills() -> u64 {
    let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    match (set("HOOKSLUICE_CRASH_KILLS"), set("HOOKSLUICE_LONG")) {
        (Some(kills), _) => kills.parse().unwrap(),
        (None, Some(_)) => 500,
        (None, None) => 30,
    }
}

/// What the upstream saw, over the whole campaign.
#[derive(Default)]
struct Seen {
    /// Event id by delivery id.
    events: HashMap<String, String>,
    /// The highest attempt number by delivery id.
    numbers: HashMap<String, u32>,
    /// Delivery ids that were answered 200.
    delivered: BTreeSet<String>,
    attempts: u64,
    weather: Weather,
    wrong: Vec<String>,
}

/// How the upstream behaves in one round.
#[derive(Clone, Copy, Default)]
enum Weather {
    /// 200, and now and then 500.
    #[default]
    Fair,
    /// 200 after a while: most attempts are under way at the kill.
    Slow,
    /// Never 200: the backlog grows.
    Refusing,
}

impl Seen {
    /// Every attempt is checked as it comes; what the upstream is like at the moment decides about it.
    fn record(&mut self, received: &Received) -> Answer {
        self.attempts += 1;
        let id = received.header("X-Delivery-Id").unwrap().to_owned();
        let event = received.event_id().to_owned();
        let number = received.attempt();
        let known = self.events.entry(id.clone()).or_insert_with(|| event.clone());
        if *known != event {
            self.wrong.push(format!("{id} came as {known} and as {event}"));
        }
        let last = self.numbers.insert(id.clone(), number).unwrap_or(0);
        if number <= last {
            self.wrong.push(format!("{id}: attempt {number} after {last}"));
        }
        if received.body != body(&id) {
            self.wrong.push(format!("{id}: other bytes"));
        }
        match self.weather {
            Weather::Fair if self.attempts.is_multiple_of(16) => Answer::Status(500),
            // Not a 5xx, which would soon keep attempts away.
            Weather::Refusing => Answer::Status(404),
            Weather::Fair | Weather::Slow => {
                self.delivered.insert(id);
                match self.weather {
                    Weather::Slow => Answer::After(Duration::from_millis(30), Box::new(Answer::Status(200))),
                    Weather::Fair | Weather::Refusing => Answer::Status(200),
                }
            }
        }
    }
}

/// Senders at full speed until the server is killed; the delivery ids that they were given a 200 for.
fn load_until_killed(server: &mut Server, round: u64, dice: &mut Dice, pause: Duration) -> BTreeSet<String> {
    let acknowledged = Mutex::new(BTreeSet::new());
    let address = server.address();
    std::thread::scope(|scope| {
        for sender in 0..SENDERS {
            let mut dice = Dice(dice.roll());
            let acknowledged = &acknowledged;
            scope.spawn(move || {
                // On a busy machine the kill may come before this sender has begun.
                let Ok(mut connection) = Connection::try_open(address) else {
                    return;
                };
                let mut sent: Vec<String> = Vec::new();
                loop {
                    // Every fourth request is a duplicate, often of one whose answer is not old.
                    let id = if !sent.is_empty() && dice.below(4) == 0 {
                        let back = usize::try_from(dice.below(20)).unwrap() % sent.len();
                        sent[sent.len() - 1 - back].clone()
                    } else if round > 0 && dice.below(50) == 0 {
                        // A retry of what an earlier life of the server may have seen.
                        format!("{}-{sender}-{}", round - 1, dice.below(30))
                    } else {
                        let id = format!("{round}-{sender}-{}", sent.len());
                        sent.push(id.clone());
                        id
                    };
                    let request = sign::plain("/hooks/plain", &id, &body(&id));
                    let answer = connection
                        .try_send(&request.bytes())
                        .and_then(|()| connection.try_read(false));
                    match answer {
                        Ok(Some(answer)) if answer.status == 200 => {
                            acknowledged.lock().unwrap().insert(id);
                        }
                        Ok(Some(answer)) if answer.status == 503 => {}
                        Ok(Some(answer)) => panic!("{answer:?}"),
                        // Killed.
                        Ok(None) | Err(_) => return,
                    }
                }
            });
        }
        std::thread::sleep(pause);
        server.kill();
    });
    acknowledged.into_inner().unwrap()
}

/// Until nothing waits for admission or delivery.
fn drain(server: &Server) {
    let clock = Clock::system();
    let start = clock.monotonic();
    loop {
        let open: f64 = ["pending", "leased"]
            .iter()
            .map(|state| server.metric("hooksluice_dispatches", &[&format!("state=\"{state}\"")]))
            .sum();
        if open + server.metric("hooksluice_unadmitted", &[]) == 0.0 {
            break;
        }
        assert!(clock.monotonic().since(start) < DRAIN, "{open} dispatches still wait");
        std::thread::sleep(Duration::from_millis(50));
    }
    eventually("the server to be healthy", || {
        (server.admin_get("/healthz").status == 200).then_some(())
    });
}

/// Event ids by delivery id, as the store has them.
fn stored(server: &Server) -> BTreeMap<String, Vec<String>> {
    let mut stored: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut cursor = String::new();
    loop {
        let page = server.admin_get(&format!("/api/v1/events?limit=500{cursor}")).json();
        for event in page["events"].as_array().unwrap() {
            let text = |name: &str| event[name].as_str().unwrap().to_owned();
            stored.entry(text("delivery_id")).or_default().push(text("id"));
        }
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return stored,
        }
    }
}
