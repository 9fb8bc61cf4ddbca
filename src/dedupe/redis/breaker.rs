//! [`Breaker`]: stops asking a Redis that does not answer in time, so that looks cost nothing while it is away.
//!
//! ```text
//!           5 silent looks in a row            the wait is over
//!  Closed ─────────────────────────▶ Open ───────────────────────▶ Probing
//!    ▲                                ▲ wait 0.5 s, doubles to 5 s    │  │
//!    │                                └────────────── probe silent ───┘  │
//!    └──────────────────────────────────────────── probe answered ───────┘
//! ```
//!
//! It is for looks only: they stand on the way of an answer. Claims and tellings have patience of their own and go on.
//! Probes are made by the task that keeps the connection, never by a look. Each opening begins a new epoch, and a look
//! that began in an older one says nothing about the present.

use std::time::Duration;

use crate::time::Monotonic;

/// Silent looks in a row that open the breaker.
pub const SILENT_TO_OPEN: u32 = 5;
/// First wait before a probe; it doubles with each probe that fails.
pub const PROBE_FIRST: Duration = Duration::from_millis(500);
/// Longest wait before a probe.
pub const PROBE_MAX: Duration = Duration::from_secs(5);

/// Which epoch a look began in. Handed back with its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch(u64);

/// See the [module's documentation](self).
#[derive(Clone, Debug)]
pub struct Breaker {
    state: State,
    epoch: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed { silent: u32 },
    Open { until: Monotonic, wait: Duration },
    Probing { wait: Duration },
}

impl Default for Breaker {
    fn default() -> Self {
        Self {
            state: State::Closed { silent: 0 },
            epoch: 0,
        }
    }
}

impl Breaker {
    /// Whether Redis may be asked.
    pub const fn admits(&self) -> Option<Epoch> {
        match self.state {
            State::Closed { .. } => Some(Epoch(self.epoch)),
            State::Open { .. } | State::Probing { .. } => None,
        }
    }

    /// A look ended, with an answer or without.
    pub fn ended(&mut self, epoch: Epoch, answered: bool, now: Monotonic) {
        let State::Closed { silent } = self.state else { return };
        if epoch.0 != self.epoch {
            return;
        }
        self.state = match (answered, silent + 1) {
            (true, _) => State::Closed { silent: 0 },
            (false, silent) if silent < SILENT_TO_OPEN => State::Closed { silent },
            (false, _) => {
                self.epoch += 1;
                State::Open {
                    until: now.after(PROBE_FIRST),
                    wait: PROBE_FIRST,
                }
            }
        };
    }

    /// When the next probe is due; `None` while none is needed.
    pub const fn probe_due(&self) -> Option<Monotonic> {
        match self.state {
            State::Open { until, .. } => Some(until),
            State::Closed { .. } | State::Probing { .. } => None,
        }
    }

    /// The probe starts, whether it is due or not (a new connection need not wait for it).
    pub fn probe(&mut self) {
        if let State::Open { wait, .. } = self.state {
            self.state = State::Probing { wait };
        }
    }

    /// A probe ended. One that was made for another reason, while the breaker was closed, changes nothing.
    pub fn probed(&mut self, answered: bool, now: Monotonic) {
        let State::Probing { wait } = self.state else { return };
        self.state = if answered {
            State::Closed { silent: 0 }
        } else {
            let wait = (wait * 2).min(PROBE_MAX);
            State::Open {
                until: now.after(wait),
                wait,
            }
        };
    }

    /// For people.
    pub const fn is_open(&self) -> bool {
        !matches!(self.state, State::Closed { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Monotonic {
        Monotonic::from_start(Duration::from_millis(millis))
    }

    fn silent(breaker: &mut Breaker, times: u32, now: Monotonic) {
        for _ in 0..times {
            let epoch = breaker.admits().unwrap();
            breaker.ended(epoch, false, now);
        }
    }

    #[test]
    fn five_silent_looks_in_a_row_open_it_and_four_do_not() {
        let mut breaker = Breaker::default();
        silent(&mut breaker, 4, at(0));
        let epoch = breaker.admits().unwrap();
        breaker.ended(epoch, true, at(0));
        silent(&mut breaker, 4, at(0));
        assert!(!breaker.is_open());
        silent(&mut breaker, 1, at(0));
        assert!(breaker.is_open() && breaker.admits().is_none());
        assert_eq!(breaker.probe_due(), Some(at(500)));
    }

    #[test]
    fn a_probe_that_is_answered_closes_it_and_a_silent_one_doubles_the_wait() {
        let mut breaker = Breaker::default();
        silent(&mut breaker, SILENT_TO_OPEN, at(0));
        let mut now = 500;
        for wait in [1000, 2000, 4000, 5000, 5000] {
            breaker.probe();
            assert_eq!(breaker.probe_due(), None, "one at a time");
            assert!(breaker.admits().is_none());
            breaker.probed(false, at(now));
            assert_eq!(breaker.probe_due(), Some(at(now + wait)));
            now += wait;
        }
        breaker.probe();
        breaker.probed(true, at(now));
        assert!(breaker.admits().is_some());
        // A new outage begins with the first wait again.
        silent(&mut breaker, SILENT_TO_OPEN, at(now));
        assert_eq!(breaker.probe_due(), Some(at(now + 500)));
    }

    #[test]
    fn looks_from_before_the_outage_say_nothing() {
        let mut breaker = Breaker::default();
        let old = breaker.admits().unwrap();
        silent(&mut breaker, SILENT_TO_OPEN, at(0));
        breaker.ended(old, true, at(1));
        assert!(breaker.is_open(), "an answer to an old look is not the probe's");
        breaker.probe();
        breaker.probed(true, at(500));
        for _ in 0..SILENT_TO_OPEN {
            breaker.ended(old, false, at(501));
        }
        assert!(!breaker.is_open());
    }

    #[test]
    fn a_probe_without_an_outage_changes_nothing() {
        let mut breaker = Breaker::default();
        breaker.probe();
        breaker.probed(false, at(0));
        assert!(!breaker.is_open());
    }
}
