//! What is counted of idempotent calls.
//!
//! Every request with a key on a route with `idempotency` (and every one without a required key) ends in exactly one
//! outcome of `hooksluice_idempotency_total{route,outcome}`.

use crate::measure::{Counter, Gauge};
use crate::store::records::RecordKind;

/// How a request with a key ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOutcome {
    /// Forwarded, and its answer kept.
    Kept,
    /// Forwarded, and its answer passed on without being kept.
    Unstored,
    /// Forwarded, and the app said "not now": the key is free again.
    Released,
    /// Not forwarded, since the upstream could not be reached: the key is free again (502).
    Unreachable,
    /// Forwarded, and nobody knows whether it took effect (504).
    Ambiguous,
    /// Answered with what was kept.
    Replayed,
    /// Its call still ran (409).
    Outstanding,
    /// Its call's answer was not kept (409).
    NotStored,
    /// Nobody knows what became of its call (504).
    Unknown,
    /// The key was another request's (422).
    Mismatch,
    /// No key, a malformed one, or no caller (400); the body too large or not there in time (413, 408).
    Refused,
    /// Ours: store away, no room (503).
    Failed,
}

impl KeyOutcome {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Kept,
        Self::Unstored,
        Self::Released,
        Self::Unreachable,
        Self::Ambiguous,
        Self::Replayed,
        Self::Outstanding,
        Self::NotStored,
        Self::Unknown,
        Self::Mismatch,
        Self::Refused,
        Self::Failed,
    ];

    /// The label's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Unstored => "unstored",
            Self::Released => "released",
            Self::Unreachable => "unreachable",
            Self::Ambiguous => "ambiguous",
            Self::Replayed => "replayed",
            Self::Outstanding => "outstanding",
            Self::NotStored => "not_stored",
            Self::Unknown => "unknown",
            Self::Mismatch => "mismatch",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

/// Who knew a key that had been used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownBy {
    /// This process's memory.
    Memory,
    /// Redis.
    Redis,
    /// The durable record.
    Store,
}

impl KnownBy {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Memory, Self::Redis, Self::Store];

    /// The label's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Redis => "redis",
            Self::Store => "store",
        }
    }
}

/// The counters of one route with `idempotency`.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct KeyMetrics {
    outcomes: [Counter; KeyOutcome::ALL.len()],
    known: [Counter; KnownBy::ALL.len()],
}

impl KeyMetrics {
    /// A request ended so.
    pub fn ended(&self, outcome: KeyOutcome) {
        if let Some(counter) = self.outcomes.get(outcome as usize) {
            counter.add(1);
        }
    }

    /// A key was known to have been used.
    pub fn known(&self, by: KnownBy) {
        if let Some(counter) = self.known.get(by as usize) {
            counter.add(1);
        }
    }

    /// Requests that ended so.
    pub fn outcomes(&self, outcome: KeyOutcome) -> u64 {
        self.outcomes.get(outcome as usize).map_or(0, Counter::get)
    }

    /// Keys that were known so.
    pub fn known_by(&self, by: KnownBy) -> u64 {
        self.known.get(by as usize).map_or(0, Counter::get)
    }
}

/// What all routes with `idempotency` share; exists where there is one.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct RecordMetrics {
    records: [Gauge; RecordKind::ALL.len()],
    /// Calls that run in this process; bound by `limits.connections`.
    pub running: Gauge,
    /// Bytes of answers in memory; bound by `limits.replay_cache`.
    pub cache_bytes: Gauge,
    /// Age in milliseconds of the oldest ambiguous record; 0 where there is none. Filled at each scrape.
    pub oldest_ambiguous: Gauge,
}

impl RecordMetrics {
    /// Sets the number of records in this state, as the store counts them.
    pub fn set_records(&self, kind: RecordKind, count: u64) {
        if let Some(gauge) = self.records.get(kind as usize) {
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// Records in this state at the last scrape.
    pub fn records(&self, kind: RecordKind) -> i64 {
        self.records.get(kind as usize).map_or(0, Gauge::get)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_by_word_is_the_place_in_its_list() {
        for (index, outcome) in KeyOutcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, index);
        }
        for (index, by) in KnownBy::ALL.into_iter().enumerate() {
            assert_eq!(by as usize, index);
        }
        for (index, kind) in RecordKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index);
        }
    }
}
