//! Senders as providers are: each id comes one to three times, at once or later, and is repeated until it is acknowledged.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hooksluice::time::{Clock, Monotonic};

use crate::harness::dice::{Dice, body};
use crate::harness::fleet::{Balancer, Lines};
use crate::harness::{Request, Response, sign};

/// Tries of one copy before its sender gives up.
const TRIES: u32 = 400;
const PAUSE: Duration = Duration::from_millis(5);

/// What senders saw.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    /// Delivery ids that were answered 200 at least once.
    pub(crate) acknowledged: BTreeSet<String>,
    /// Delivery ids that were sent.
    pub(crate) sent: u64,
    /// Requests, over all copies and tries.
    pub(crate) requests: u64,
    /// Answers 200 that said so.
    pub(crate) duplicates: u64,
    /// Answers 503 with `Retry-After`.
    pub(crate) unavailable: u64,
    pub(crate) given_up: u64,
    pub(crate) unanswered: Vec<Unanswered>,
    /// Any other answer.
    pub(crate) wrong: Vec<String>,
    /// The longest time to a 200.
    pub(crate) slowest: Duration,
}

/// A request that got no answer from this replica.
#[derive(Clone, Debug)]
pub(crate) struct Unanswered {
    pub(crate) replica: usize,
    pub(crate) from: Monotonic,
    pub(crate) to: Monotonic,
    /// Only shown.
    #[expect(dead_code, reason = "Debug prints it")]
    pub(crate) why: String,
}

impl Traffic {
    pub(crate) fn add(&mut self, other: Self) {
        self.acknowledged.extend(other.acknowledged);
        self.sent += other.sent;
        self.requests += other.requests;
        self.duplicates += other.duplicates;
        self.unavailable += other.unavailable;
        self.given_up += other.given_up;
        self.unanswered.extend(other.unanswered);
        self.wrong.extend(other.wrong);
        self.slowest = self.slowest.max(other.slowest);
    }
}

struct Sender<'a> {
    balancer: &'a Balancer,
    lines: Lines,
    traffic: Traffic,
    clock: Clock,
}

/// Sends until `stop`, then repeats what is not acknowledged yet.
pub(crate) fn send(name: &str, balancer: &Balancer, stop: &AtomicBool, clock: &Clock, mut dice: Dice) -> Traffic {
    let mut sender = Sender {
        balancer,
        lines: Lines::default(),
        traffic: Traffic::default(),
        clock: clock.clone(),
    };
    let mut number = 0;
    while !stop.load(Ordering::SeqCst) {
        // Now and then the copy of one that is not new any more.
        let again = number > 0 && dice.below(10) == 0;
        let id = if again {
            let back = dice.below(number.min(300)) + 1;
            format!("{name}-{}", number - back)
        } else {
            number += 1;
            sender.traffic.sent += 1;
            format!("{name}-{}", number - 1)
        };
        let copies = 1 + dice.index(3);
        sender.deliver(&id, copies, &mut dice);
        std::thread::sleep(PAUSE);
    }
    sender.traffic
}

impl Sender<'_> {
    /// All copies at once to replicas in turn; those that got no 200 are sent again.
    fn deliver(&mut self, id: &str, copies: usize, dice: &mut Dice) {
        let request = sign::plain("/hooks/plain", id, &body(id));
        let mut missing = self.burst(id, &request, copies);
        for _ in 0..TRIES {
            if missing == 0 {
                return;
            }
            std::thread::sleep(Duration::from_millis(50 + dice.below(250)));
            missing = self.burst(id, &request, missing);
        }
        self.traffic.given_up += 1;
    }

    /// How many of the copies were not acknowledged.
    fn burst(&mut self, id: &str, request: &Request, copies: usize) -> usize {
        let mut under_way = Vec::new();
        for _ in 0..copies {
            let Some(replica) = self.balancer.next() else {
                break;
            };
            if under_way.iter().any(|(busy, _)| *busy == replica) {
                // One request at a time on a connection.
                continue;
            }
            let from = self.clock.monotonic();
            self.traffic.requests += 1;
            match self.lines.write(self.balancer, replica, request) {
                Ok(()) => under_way.push((replica, from)),
                Err(error) => self.unanswered(replica, from, &error),
            }
        }
        let mut acknowledged = 0;
        for (replica, from) in under_way {
            match self.lines.read(replica) {
                Ok(answer) => {
                    if self.judge(id, replica, &answer) {
                        acknowledged += 1;
                        let took = self.clock.monotonic().since(from);
                        self.traffic.slowest = self.traffic.slowest.max(took);
                    }
                }
                Err(error) => self.unanswered(replica, from, &error),
            }
        }
        copies - acknowledged
    }

    /// Whether it is a 200.
    fn judge(&mut self, id: &str, replica: usize, answer: &Response) -> bool {
        match answer.status {
            200 => {
                self.traffic.acknowledged.insert(id.to_owned());
                self.traffic.duplicates += u64::from(answer.header("Hooksluice-Duplicate") == Some("true"));
                true
            }
            503 if answer.header("Retry-After").is_some() => {
                self.traffic.unavailable += 1;
                false
            }
            _ => {
                self.traffic.wrong.push(format!("{id} at {replica}: {answer:?}"));
                false
            }
        }
    }

    fn unanswered(&mut self, replica: usize, from: Monotonic, error: &std::io::Error) {
        self.traffic.unanswered.push(Unanswered {
            replica,
            from,
            to: self.clock.monotonic(),
            why: format!("{:?}: {error}", error.kind()),
        });
    }
}
