//! [`Patience`]: how near a sender is to giving up on us, counted as the sender counts.
//!
//! What a stranger can make us answer must not look like the sender's failures. So two counts are kept: of requests whose
//! signature held ([`Seen::Success`], [`Seen::Failure`]), on which warnings rest; and one that also takes in refused requests
//! that may have been the sender's ([`Seen::Doubtful`]), which is shown to people as what it is.
//!
//! Each process counts what it answered itself, from its start: failures that the sender saw while nothing ran are unknown.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::time::Monotonic;
use crate::verify::record::{DisableRule, FactsConfidence};

/// Of the limit, in thousandths: where people are warned.
const HALF: u64 = 500;
/// Below it a further warning may come.
const CALM: u64 = 250;
/// Between two warnings about one source.
const WARN_EVERY: Duration = Duration::from_secs(600);
/// Parts of a share's window.
const PARTS: u32 = 60;

/// What the sender has been answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// 2xx, in the sender's time.
    Success,
    /// Anything else, or too late, though the request was the sender's.
    Failure,
    /// Refused or failed, and nobody can say whose it was.
    Doubtful,
}

/// The rule of a source's sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderRule {
    /// When it gives up.
    pub rule: DisableRule,
    /// How sure that is.
    pub confidence: FactsConfidence,
}

/// How much of the sender's patience is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Thousandths of the limit, by what was the sender's for sure; 1000 and more when it is reached.
    pub sure: u64,
    /// The same if refused requests that may have been the sender's were.
    pub possible: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Patience {
    rule: SenderRule,
    /// Whether a success changes anything: while all is well it costs one load.
    listens: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    sure: Count,
    possible: Count,
    warned: Option<Monotonic>,
    /// It was calm since the last warning.
    calmed: bool,
}

impl Patience {
    /// Nothing has been seen.
    pub fn new(rule: SenderRule) -> Self {
        Self {
            rule,
            listens: AtomicBool::new(matches!(rule.rule, DisableRule::Share { .. })),
            state: Mutex::default(),
        }
    }

    /// The sender's rule.
    pub fn rule(&self) -> SenderRule {
        self.rule
    }

    /// Counts an answer. `Some` when people must be warned now: half of the limit is used, and they were not told yet.
    pub fn saw(&self, seen: Seen, now: Monotonic) -> Option<Used> {
        if seen == Seen::Success && !self.listens.load(Ordering::Acquire) {
            return None;
        }
        let rule = self.rule.rule;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if seen != Seen::Doubtful {
            state.sure.saw(&rule, seen == Seen::Success, now);
        }
        state.possible.saw(&rule, seen == Seen::Success, now);
        let counts_all = matches!(rule, DisableRule::Share { .. });
        self.listens
            .store(counts_all || seen != Seen::Success, Ordering::Release);
        state.warns(&rule, now)
    }

    /// As of now: a share falls by itself.
    pub fn used(&self, now: Monotonic) -> Used {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.used(&self.rule.rule, now)
    }
}

impl State {
    fn used(&mut self, rule: &DisableRule, now: Monotonic) -> Used {
        Used {
            sure: self.sure.used(rule, now),
            possible: self.possible.used(rule, now),
        }
    }

    fn warns(&mut self, rule: &DisableRule, now: Monotonic) -> Option<Used> {
        let used = self.used(rule, now);
        if used.sure < CALM {
            self.calmed = true;
        }
        let again = |at: Monotonic| self.calmed && now.since(at) >= WARN_EVERY;
        if used.sure < HALF || !self.warned.is_none_or(again) {
            return None;
        }
        self.warned = Some(now);
        self.calmed = false;
        Some(used)
    }
}

/// What decides for either shape of the rule; only that of the rule in force is kept.
#[derive(Debug, Default)]
struct Count {
    in_a_row: u32,
    first_failure: Option<Monotonic>,
    last_failure: Monotonic,
    /// Number of the part of the window, successes and failures in it; at most [`PARTS`] + 1 of them.
    parts: VecDeque<(u64, u32, u32)>,
}

impl Count {
    fn saw(&mut self, rule: &DisableRule, success: bool, now: Monotonic) {
        match (rule, success) {
            (DisableRule::InARow { .. }, true) => *self = Self::default(),
            (DisableRule::InARow { .. }, false) => {
                self.in_a_row = self.in_a_row.saturating_add(1);
                self.first_failure.get_or_insert(now);
                self.last_failure = now;
            }
            (DisableRule::Share { within, .. }, _) => {
                let number = part(now, *within);
                self.forget(number);
                if self.parts.back().is_none_or(|(last, ..)| *last < number) {
                    self.parts.push_back((number, 0, 0));
                }
                if let Some((_, successes, failures)) = self.parts.back_mut() {
                    let counter = if success { successes } else { failures };
                    *counter = counter.saturating_add(1);
                }
            }
        }
    }

    fn forget(&mut self, number: u64) {
        let from = number.saturating_sub(u64::from(PARTS));
        while self.parts.front().is_some_and(|(part, ..)| *part < from) {
            self.parts.pop_front();
        }
    }

    fn used(&mut self, rule: &DisableRule, now: Monotonic) -> u64 {
        match *rule {
            DisableRule::InARow { failures, failing_for } => {
                let counted = thousandths(u64::from(self.in_a_row), u64::from(failures));
                // From failure to failure, since a sender that has nothing to send does not fail.
                let lasted = self
                    .first_failure
                    .map_or(Duration::ZERO, |first| self.last_failure.since(first));
                let timed = thousandths(millis(lasted), millis(failing_for));
                match (failures, failing_for.is_zero()) {
                    (_, true) => counted,
                    (0, false) => timed,
                    (_, false) => counted.min(timed),
                }
            }
            DisableRule::Share {
                percent,
                within,
                at_least,
            } => {
                self.forget(part(now, within));
                let sum =
                    |of: fn(&(u64, u32, u32)) -> u32| self.parts.iter().map(|part| u64::from(of(part))).sum::<u64>();
                let (successes, failures) = (sum(|part| part.1), sum(|part| part.2));
                let all = successes + failures;
                let share = thousandths(failures.saturating_mul(100), all.saturating_mul(u64::from(percent)));
                if failures == 0 {
                    0
                } else {
                    share.min(thousandths(all, u64::from(at_least)))
                }
            }
        }
    }
}

fn part(now: Monotonic, within: Duration) -> u64 {
    let part = (millis(within) / u64::from(PARTS)).max(1);
    millis(now.since(Monotonic::default())) / part
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn thousandths(value: u64, limit: u64) -> u64 {
    value.saturating_mul(1000).checked_div(limit).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patience(rule: DisableRule) -> Patience {
        Patience::new(SenderRule {
            rule,
            confidence: FactsConfidence::Documented,
        })
    }

    fn in_a_row(failures: u32, hours: u64) -> Patience {
        patience(DisableRule::InARow {
            failures,
            failing_for: Duration::from_secs(hours * 3600),
        })
    }

    fn at(minutes: u64) -> Monotonic {
        Monotonic::from_start(Duration::from_secs(minutes * 60))
    }

    #[test]
    fn people_are_warned_once_at_half_of_the_failures_in_a_row() {
        let patience = in_a_row(8, 0);
        for number in 1..=3 {
            assert_eq!(patience.saw(Seen::Failure, at(number)), None);
        }
        let warned = patience.saw(Seen::Failure, at(4)).unwrap();
        assert_eq!((warned.sure, warned.possible), (500, 500));
        for number in 5..=9 {
            assert_eq!(patience.saw(Seen::Failure, at(number)), None, "told once");
        }
        assert_eq!(patience.used(at(9)).sure, 1125);
        patience.saw(Seen::Success, at(10));
        assert_eq!(patience.used(at(10)), Used::default());
    }

    #[test]
    fn a_success_begins_the_count_anew_and_the_next_outage_is_told_again_but_not_at_once() {
        let patience = in_a_row(4, 0);
        assert!(patience.saw(Seen::Failure, at(0)).is_none());
        assert!(patience.saw(Seen::Failure, at(0)).is_some());
        patience.saw(Seen::Success, at(1));
        for _ in 0..3 {
            assert!(patience.saw(Seen::Failure, at(2)).is_none(), "a minute after the first");
        }
        patience.saw(Seen::Success, at(3));
        assert!(patience.saw(Seen::Failure, at(20)).is_none());
        assert!(patience.saw(Seen::Failure, at(20)).is_some());
    }

    #[test]
    fn a_rule_by_time_counts_from_failure_to_failure_and_one_with_both_needs_both() {
        let patience = in_a_row(0, 24);
        assert!(patience.saw(Seen::Failure, at(0)).is_none());
        assert_eq!(patience.used(at(100_000)).sure, 0, "nothing has come since");
        assert!(patience.saw(Seen::Failure, at(11 * 60)).is_none());
        assert!(patience.saw(Seen::Failure, at(12 * 60)).is_some());
        let both = in_a_row(10, 24);
        for _ in 0..9 {
            assert!(both.saw(Seen::Failure, at(0)).is_none());
        }
        assert!(both.saw(Seen::Failure, at(6 * 60)).is_none());
        assert_eq!(both.used(at(6 * 60)).sure, 250);
        assert!(both.saw(Seen::Failure, at(12 * 60)).is_some());
    }

    #[test]
    fn a_rule_by_share_needs_its_deliveries_and_forgets_what_left_its_window() {
        let share = patience(DisableRule::Share {
            percent: 95,
            within: Duration::from_secs(3600),
            at_least: 100,
        });
        for number in 1..50 {
            assert!(share.saw(Seen::Failure, at(number % 10)).is_none(), "{number}");
        }
        assert!(share.saw(Seen::Failure, at(10)).is_some());
        for _ in 0..150 {
            share.saw(Seen::Success, at(11));
        }
        // 50 of 200 failed, of 95 %.
        assert_eq!(share.used(at(11)).sure, 263);
        assert_eq!(share.used(at(75)).sure, 0);
        share.saw(Seen::Failure, at(75));
        assert_eq!(share.used(at(75)).sure, 10);
    }

    #[test]
    fn what_a_stranger_can_cause_is_counted_apart_and_warns_nobody() {
        let patience = in_a_row(4, 0);
        for _ in 0..100 {
            assert_eq!(patience.saw(Seen::Doubtful, at(1)), None);
        }
        let used = patience.used(at(1));
        assert_eq!((used.sure, used.possible), (0, 25_000));
        assert!(patience.saw(Seen::Failure, at(1)).is_none());
        assert!(patience.saw(Seen::Failure, at(1)).is_some());
        patience.saw(Seen::Success, at(2));
        assert_eq!(patience.used(at(2)), Used::default());
    }
}
