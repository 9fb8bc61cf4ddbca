//! [`Breaker`]: stops attempts at an upstream that fails, asks it with one probe at a time, and comes back gently (P7).
//!
//! ```text
//!             10 failures in a row                   the wait is over
//!  Closed ──────────────────────────▶ Open ──────────────────────────▶ Probing
//!    ▲                                 ▲ │ wait 5 s, doubles to 60 s      │  │
//!    │ limit reached concurrency       │ └◀───────────── probe failed ────┘  │
//!    └──────────── Ramping ────────────┘ 3 failures in a row                 │
//!                     ▲                                                      │
//!                     └──────────────────────────────────── probe answered ──┘
//! ```
//!
//! An upstream that answers is healthy, even with a 4xx: a poison event must not stop the others. Each change to
//! `Open` or `Probing` begins a new epoch, and the result of an attempt from an older one is ignored, so that slow
//! attempts from before an outage can neither prolong nor end it.

use std::time::Duration;

use crate::time::Monotonic;

/// Failures in a row that open the breaker.
pub const FAILURES_TO_OPEN: u32 = 10;
/// Failures in a row that open it again while it closes.
pub const FAILURES_TO_REOPEN: u32 = 3;
/// First wait before a probe; it doubles with each probe that fails.
pub const PROBE_FIRST: Duration = Duration::from_secs(5);
/// Longest wait before a probe.
pub const PROBE_MAX: Duration = Duration::from_secs(60);

/// What an attempt says about the upstream's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It answered: 2xx, 3xx, 4xx but 429.
    Answered,
    /// Connecting, TLS or the exchange failed, it took too long, or the answer was 5xx or 429.
    Failing,
}

/// Whether an attempt may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admits {
    /// It may.
    Yes,
    /// Not before this time.
    NotBefore(Monotonic),
    /// Not before a running attempt has ended.
    AfterAnAttempt,
}

/// The breaker's state, as people see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// Attempts go on as usual.
    Closed,
    /// No attempts, or a single probe.
    Open,
    /// Closing: the number of attempts at once grows with each answer.
    Ramping,
}

impl BreakerState {
    /// The word used in metrics and the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::Ramping => "ramping",
        }
    }
}

/// Which epoch an attempt started in. Handed back with its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch(u64);

/// The breaker of one upstream.
#[derive(Clone, Debug)]
pub struct Breaker {
    state: State,
    epoch: u64,
    /// As many attempts at once as this process may make; the ramp ends there.
    full: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed {
        failures: u32,
    },
    Open {
        until: Monotonic,
        wait: Duration,
    },
    Probing {
        wait: Duration,
    },
    Ramping {
        limit: usize,
        failures: u32,
        wait: Duration,
    },
}

impl Breaker {
    /// Closed, for an upstream that takes `full` attempts at once.
    pub const fn new(full: usize) -> Self {
        Self {
            state: State::Closed { failures: 0 },
            epoch: 0,
            full,
        }
    }

    /// Whether another attempt may start while `running` are.
    pub fn admits(&self, running: usize, now: Monotonic) -> Admits {
        match self.state {
            State::Closed { .. } => Admits::Yes,
            State::Open { until, .. } if now < until => Admits::NotBefore(until),
            State::Open { .. } => Admits::Yes,
            State::Probing { .. } => Admits::AfterAnAttempt,
            State::Ramping { limit, .. } if running < limit => Admits::Yes,
            State::Ramping { .. } => Admits::AfterAnAttempt,
        }
    }

    /// An admitted attempt starts; from `Open` it is the probe.
    pub fn start(&mut self) -> Epoch {
        if let State::Open { wait, .. } = self.state {
            self.enter(State::Probing { wait });
        }
        Epoch(self.epoch)
    }

    /// An attempt ended.
    pub fn ended(&mut self, epoch: Epoch, health: Health, now: Monotonic) {
        if epoch.0 != self.epoch {
            return;
        }
        match (self.state, health) {
            (State::Closed { .. }, Health::Answered) => self.state = State::Closed { failures: 0 },
            (State::Closed { failures }, Health::Failing) if failures + 1 < FAILURES_TO_OPEN => {
                self.state = State::Closed { failures: failures + 1 };
            }
            (State::Closed { .. }, Health::Failing) => self.open(PROBE_FIRST, now),

            (State::Probing { wait }, Health::Answered) => {
                self.state = State::Ramping {
                    limit: 2,
                    failures: 0,
                    wait,
                };
                self.close_if_ramped();
            }
            (State::Probing { wait }, Health::Failing) => self.open((wait * 2).min(PROBE_MAX), now),

            (State::Ramping { limit, wait, .. }, Health::Answered) => {
                self.state = State::Ramping {
                    limit: limit + 1,
                    failures: 0,
                    wait,
                };
                self.close_if_ramped();
            }
            (State::Ramping { limit, failures, wait }, Health::Failing) if failures + 1 < FAILURES_TO_REOPEN => {
                self.state = State::Ramping {
                    limit,
                    failures: failures + 1,
                    wait,
                };
            }
            (State::Ramping { wait, .. }, Health::Failing) => self.open((wait * 2).min(PROBE_MAX), now),

            // No attempt carries the epoch of an open breaker: starting one ends it.
            (State::Open { .. }, Health::Answered | Health::Failing) => {}
        }
    }

    /// An attempt was given up without a result. If it was the probe, the next one may start at once.
    pub fn abandoned(&mut self, epoch: Epoch, now: Monotonic) {
        if let State::Probing { wait } = self.state
            && epoch.0 == self.epoch
        {
            self.enter(State::Open { until: now, wait });
        }
    }

    /// Forgets the outage: a person says that the upstream is back.
    pub fn reset(&mut self) {
        self.enter(State::Closed { failures: 0 });
    }

    /// From now on `full` attempts at once may be made. It ends no ramp: that takes an answer, so that a share which is
    /// small for a moment does not let a returning upstream be flooded when it grows.
    pub fn set_full(&mut self, full: usize) {
        self.full = full;
    }

    /// How much of the time between `from` and `to`, in which nothing else happened to it, attempts were refused.
    pub fn refused_between(&self, from: Monotonic, to: Monotonic) -> Duration {
        match self.state {
            State::Closed { .. } | State::Ramping { .. } => Duration::ZERO,
            State::Open { until, .. } => until.min(to).since(from),
            State::Probing { .. } => to.since(from),
        }
    }

    /// For people.
    pub const fn state(&self) -> BreakerState {
        match self.state {
            State::Closed { .. } => BreakerState::Closed,
            State::Open { .. } | State::Probing { .. } => BreakerState::Open,
            State::Ramping { .. } => BreakerState::Ramping,
        }
    }

    fn open(&mut self, wait: Duration, now: Monotonic) {
        self.enter(State::Open {
            until: now.after(wait),
            wait,
        });
    }

    fn close_if_ramped(&mut self) {
        if let State::Ramping { limit, .. } = self.state
            && limit >= self.full
        {
            self.state = State::Closed { failures: 0 };
        }
    }

    fn enter(&mut self, state: State) {
        self.epoch += 1;
        self.state = state;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Monotonic {
        Monotonic::from_start(Duration::from_secs(secs))
    }

    fn fail(breaker: &mut Breaker, times: u32, now: Monotonic) {
        for _ in 0..times {
            let epoch = breaker.start();
            breaker.ended(epoch, Health::Failing, now);
        }
    }

    fn opened(now: Monotonic) -> Breaker {
        let mut breaker = Breaker::new(4);
        fail(&mut breaker, FAILURES_TO_OPEN, now);
        assert_eq!(breaker.state(), BreakerState::Open);
        breaker
    }

    #[test]
    fn ten_failures_in_a_row_open_it_and_nine_do_not() {
        let mut breaker = Breaker::new(4);
        fail(&mut breaker, 9, at(0));
        let epoch = breaker.start();
        breaker.ended(epoch, Health::Answered, at(0));
        fail(&mut breaker, 9, at(0));
        assert_eq!(breaker.admits(0, at(0)), Admits::Yes);
        fail(&mut breaker, 1, at(0));
        assert_eq!(breaker.admits(0, at(0)), Admits::NotBefore(at(5)));
    }

    #[test]
    fn one_probe_at_a_time_with_waits_that_double_to_a_minute() {
        let mut breaker = opened(at(0));
        let mut now = 0;
        for wait in [5, 10, 20, 40, 60, 60] {
            assert_eq!(breaker.admits(0, at(now)), Admits::NotBefore(at(now + wait)));
            now += wait;
            assert_eq!(breaker.admits(0, at(now)), Admits::Yes);
            let probe = breaker.start();
            assert_eq!(breaker.admits(1, at(now)), Admits::AfterAnAttempt);
            breaker.ended(probe, Health::Failing, at(now));
        }
    }

    #[test]
    fn it_closes_with_a_ramp() {
        let mut breaker = opened(at(0));
        let probe = breaker.start();
        breaker.ended(probe, Health::Answered, at(5));
        assert_eq!(breaker.state(), BreakerState::Ramping);
        assert_eq!(breaker.admits(1, at(5)), Admits::Yes);
        assert_eq!(breaker.admits(2, at(5)), Admits::AfterAnAttempt);
        let (first, second) = (breaker.start(), breaker.start());
        breaker.ended(first, Health::Answered, at(6));
        assert_eq!(breaker.admits(2, at(6)), Admits::Yes);
        assert_eq!(breaker.admits(3, at(6)), Admits::AfterAnAttempt);
        breaker.ended(second, Health::Answered, at(6));
        assert_eq!(breaker.state(), BreakerState::Closed);
        // A new outage begins with the first wait again.
        fail(&mut breaker, FAILURES_TO_OPEN, at(7));
        assert_eq!(breaker.admits(0, at(7)), Admits::NotBefore(at(12)));
    }

    #[test]
    fn a_poison_event_does_not_open_it_again_while_it_closes() {
        let mut breaker = opened(at(0));
        let probe = breaker.start();
        breaker.ended(probe, Health::Answered, at(5));
        fail(&mut breaker, FAILURES_TO_REOPEN - 1, at(5));
        assert_eq!(breaker.state(), BreakerState::Ramping);
        fail(&mut breaker, 1, at(5));
        assert_eq!(
            breaker.admits(0, at(5)),
            Admits::NotBefore(at(15)),
            "the wait goes on doubling"
        );
    }

    #[test]
    fn an_upstream_with_one_slot_needs_no_ramp() {
        let mut breaker = Breaker::new(1);
        fail(&mut breaker, FAILURES_TO_OPEN, at(0));
        let probe = breaker.start();
        breaker.ended(probe, Health::Answered, at(5));
        assert_eq!(breaker.state(), BreakerState::Closed);
    }

    #[test]
    fn a_share_that_is_small_for_a_moment_ends_no_ramp() {
        let mut breaker = Breaker::new(16);
        fail(&mut breaker, FAILURES_TO_OPEN, at(0));
        let probe = breaker.start();
        breaker.ended(probe, Health::Answered, at(5));
        breaker.set_full(1);
        breaker.set_full(16);
        assert_eq!(breaker.admits(2, at(5)), Admits::AfterAnAttempt);
        breaker.set_full(1);
        let last = breaker.start();
        breaker.ended(last, Health::Answered, at(6));
        assert_eq!(breaker.state(), BreakerState::Closed, "one slot needs no ramp");
    }

    #[test]
    fn results_from_before_the_outage_change_nothing() {
        let mut breaker = Breaker::new(4);
        let (slow_good, slow_bad) = (breaker.start(), breaker.start());
        fail(&mut breaker, FAILURES_TO_OPEN, at(0));
        breaker.ended(slow_good, Health::Answered, at(1));
        assert_eq!(breaker.admits(0, at(1)), Admits::NotBefore(at(5)));
        let probe = breaker.start();
        breaker.ended(slow_bad, Health::Failing, at(5));
        assert_eq!(breaker.admits(1, at(5)), Admits::AfterAnAttempt, "the probe still runs");
        breaker.ended(probe, Health::Answered, at(6));
        assert_eq!(breaker.state(), BreakerState::Ramping);
    }

    #[test]
    fn an_abandoned_probe_leaves_room_for_the_next() {
        let mut breaker = opened(at(0));
        let probe = breaker.start();
        breaker.abandoned(probe, at(6));
        assert_eq!(breaker.admits(0, at(6)), Admits::Yes);
    }

    #[test]
    fn time_is_refused_only_while_attempts_are() {
        let mut breaker = opened(at(10));
        let secs = |breaker: &Breaker, from, to| breaker.refused_between(at(from), at(to)).as_secs();
        assert_eq!(secs(&breaker, 10, 13), 3);
        assert_eq!(
            secs(&breaker, 10, 100),
            5,
            "after the wait nothing is refused, though nothing was due"
        );
        assert_eq!(secs(&breaker, 20, 100), 0);
        let probe = breaker.start();
        assert_eq!(secs(&breaker, 100, 107), 7);
        breaker.ended(probe, Health::Answered, at(107));
        assert_eq!(secs(&breaker, 107, 110), 0);
    }
}
