//! What is counted of upstreams.

use std::time::Duration;

use super::{Counter, Gauge, Histogram};
use crate::store::model::{DispatchState, Outcome};

/// The words of [`Outcome::as_str`], in the order of [`outcome_index`].
pub const ATTEMPT_OUTCOMES: [&str; 4] = ["delivered", "refused", "not_sent", "unknown"];

pub(super) const fn outcome_index(outcome: &Outcome) -> usize {
    match outcome {
        Outcome::Delivered { .. } => 0,
        Outcome::Refused { .. } => 1,
        Outcome::NotSent { .. } => 2,
        Outcome::Unknown { .. } => 3,
    }
}

/// The counters of one upstream.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct UpstreamMetrics {
    attempts: [Counter; ATTEMPT_OUTCOMES.len()],
    attempt: Histogram,
    /// Dispatches given up since the start of this process.
    pub dead: Counter,
    /// Attempts that run now.
    pub in_flight: Gauge,
    /// 1 while a person has paused it.
    pub paused: Gauge,
    /// 1 while its breaker is open.
    pub breaker_open: Gauge,
    /// Seconds, rounded up, for which its lane is still held because it asked for it (`Retry-After`); 0 when not.
    pub held_seconds: Gauge,
    /// Unix time in seconds of the last settled attempt; 0 before the first.
    pub last_progress: Gauge,
    dispatches: [Gauge; DispatchState::ALL.len()],
    /// Age in milliseconds of the oldest dispatch that is due; filled at each scrape.
    pub oldest_pending: Gauge,
    /// Dispatches ever made, from the store; filled at each scrape.
    pub made: Gauge,
    /// Dispatches removed by retention, from the store; filled at each scrape.
    pub pruned: Gauge,
}

impl UpstreamMetrics {
    /// Its lane is held for so much longer.
    pub fn held_for(&self, left: Duration) {
        let seconds = left.as_millis().div_ceil(1000);
        self.held_seconds.set(i64::try_from(seconds).unwrap_or(i64::MAX));
    }

    /// An attempt ended so, `took` after it began.
    pub fn attempt(&self, outcome: &Outcome, took: Duration) {
        if let Some(counter) = self.attempts.get(outcome_index(outcome)) {
            counter.add(1);
        }
        self.attempt.observe(took);
    }

    /// Attempts by the words of [`ATTEMPT_OUTCOMES`].
    pub fn attempts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        ATTEMPT_OUTCOMES.into_iter().zip(self.attempts.iter().map(Counter::get))
    }

    /// How long attempts took.
    pub fn attempt_times(&self) -> &Histogram {
        &self.attempt
    }

    /// Sets the number of dispatches in this state, as the store counts them.
    pub fn set_dispatches(&self, state: DispatchState, count: u64) {
        if let Some(gauge) = self.dispatches.get(state as usize) {
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// Dispatches in this state at the last scrape.
    pub fn dispatches(&self, state: DispatchState) -> i64 {
        self.dispatches.get(state as usize).map_or(0, Gauge::get)
    }
}
