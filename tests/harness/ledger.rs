//! What an upstream saw over a long time, in little memory: counts and what must never be, not bodies.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::dice::body;
use super::{Answer, Received, Upstream};

/// How the upstream behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Weather {
    /// 200, and now and then 500.
    Changing,
    /// 200.
    #[default]
    Fair,
    /// 200 after this time.
    Slow(Duration),
    /// Always this status.
    Only(u16),
}

/// An upstream that keeps a [`Ledger`].
pub(crate) struct Accountant {
    pub(crate) upstream: Upstream,
    ledger: Arc<Mutex<Ledger>>,
}

impl Accountant {
    pub(crate) fn start() -> Self {
        let ledger = Arc::new(Mutex::new(Ledger::default()));
        let writer = Arc::clone(&ledger);
        let upstream = Upstream::forgetful(move |received| {
            let (answer, pause) = writer.lock().unwrap().begin(received);
            std::thread::sleep(pause);
            // Before the answer is out: after it, the next attempt may already have begun, which is no overlap.
            writer.lock().unwrap().running -= 1;
            answer
        });
        Self { upstream, ledger }
    }

    pub(crate) fn set_weather(&self, weather: Weather) {
        self.ledger.lock().unwrap().weather = weather;
    }

    pub(crate) fn read<T>(&self, look: impl FnOnce(&Ledger) -> T) -> T {
        look(&self.ledger.lock().unwrap())
    }

    /// The highest number of attempts at one time since this was last asked.
    pub(crate) fn take_highest(&self) -> usize {
        let mut ledger = self.ledger.lock().unwrap();
        let running = ledger.running;
        std::mem::replace(&mut ledger.highest, running)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    weather: Weather,
    /// By delivery id.
    seen: HashMap<String, Seen>,
    /// Delivery ids that were answered 200.
    pub(crate) delivered: BTreeSet<String>,
    pub(crate) attempts: u64,
    /// Attempts that came after one with a higher number: a process was stopped right before the first byte.
    pub(crate) late: u64,
    /// What must not be, in words.
    pub(crate) wrong: Vec<String>,
    running: usize,
    highest: usize,
}

#[derive(Debug)]
struct Seen {
    event: String,
    /// Attempt numbers in the order in which they came.
    numbers: Vec<u32>,
    /// How many of them were answered 200.
    delivered: u32,
}

impl Ledger {
    fn begin(&mut self, received: &Received) -> (Answer, Duration) {
        self.attempts += 1;
        self.running += 1;
        self.highest = self.highest.max(self.running);
        let id = received.header("X-Delivery-Id").unwrap().to_owned();
        let event = received.event_id();
        let number = received.attempt();
        let seen = self.seen.entry(id.clone()).or_insert_with(|| Seen {
            event: event.to_owned(),
            numbers: Vec::new(),
            delivered: 0,
        });
        if seen.event != event {
            self.wrong.push(format!("{id} came as {} and as {event}", seen.event));
            // An event of its own, with numbers of its own.
            seen.event = event.to_owned();
            seen.numbers.clear();
        }
        if seen.numbers.contains(&number) {
            self.wrong
                .push(format!("{id}: attempt {number} came twice: {:?}", seen.numbers));
        }
        if seen.numbers.last().is_some_and(|last| number < *last) {
            self.late += 1;
        }
        seen.numbers.push(number);
        if received.body != body(&id) {
            self.wrong.push(format!("{id}: other bytes"));
        }
        let (status, pause) = match self.weather {
            Weather::Changing if self.attempts.is_multiple_of(16) => (500, Duration::ZERO),
            Weather::Changing | Weather::Fair => (200, Duration::ZERO),
            Weather::Slow(pause) => (200, pause),
            Weather::Only(status) => (status, Duration::ZERO),
        };
        if status == 200 {
            seen.delivered += 1;
            self.delivered.insert(id);
        }
        (Answer::Status(status), pause)
    }

    /// Event id by delivery id.
    pub(crate) fn events(&self) -> impl Iterator<Item = (&str, &str)> {
        self.seen.iter().map(|(id, seen)| (id.as_str(), seen.event.as_str()))
    }

    /// Attempt numbers of a delivery id, in the order in which they came.
    pub(crate) fn numbers(&self, id: &str) -> Vec<u32> {
        self.seen.get(id).map(|seen| seen.numbers.clone()).unwrap_or_default()
    }

    /// Delivery ids that were answered 200 more than once: repeats that a lost lease or a crash explains.
    pub(crate) fn repeated(&self) -> usize {
        self.seen.values().filter(|seen| seen.delivered > 1).count()
    }
}
