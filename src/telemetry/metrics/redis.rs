//! What is counted of Redis, where it is configured.

use crate::measure::{Counter, Gauge};

/// An operation that Redis is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedisOperation {
    /// Connecting and the first contact.
    Connect,
    /// A look on the way of an answer.
    Look,
    /// A claim of admission.
    Claim,
    /// A telling.
    Tell,
    /// A renewal of a key's time.
    Renew,
    /// Keeping the answer of an idempotent call.
    Keep,
}

impl RedisOperation {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Connect,
        Self::Look,
        Self::Claim,
        Self::Tell,
        Self::Renew,
        Self::Keep,
    ];

    /// The label's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Look => "look",
            Self::Claim => "claim",
            Self::Tell => "tell",
            Self::Renew => "renew",
            Self::Keep => "keep",
        }
    }
}

/// How a look at Redis ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookResult {
    /// A duplicate: it cost the store nothing.
    Hit,
    /// Nothing durable known; the store decides.
    Miss,
    /// No answer in time, or an error.
    Silent,
    /// Not asked: no connection, an open breaker, or no namespace.
    Skipped,
}

impl LookResult {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Hit, Self::Miss, Self::Silent, Self::Skipped];

    /// The label's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Miss => "miss",
            Self::Silent => "silent",
            Self::Skipped => "skipped",
        }
    }
}

/// Why Redis was not told something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TellDropped {
    /// The queue was full.
    Overflow,
    /// On a shared store: it waited so long that it may no longer be true.
    TooLate,
    /// The store became another one meanwhile.
    OtherStore,
    /// Redis does not let us (scripts forbidden by its ACL).
    Refused,
}

impl TellDropped {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Overflow, Self::TooLate, Self::OtherStore, Self::Refused];

    /// The label's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Overflow => "overflow",
            Self::TooLate => "too_late",
            Self::OtherStore => "other_store",
            Self::Refused => "refused",
        }
    }
}

/// Redis's, as this process sees it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct RedisMetrics {
    errors: [Counter; RedisOperation::ALL.len()],
    looks: [Counter; LookResult::ALL.len()],
    tells_dropped: [Counter; TellDropped::ALL.len()],
    /// 1 while there is a connection that has passed its first contact.
    pub up: Gauge,
    /// 1 while looks are not asked because too many were not answered.
    pub breaker_open: Gauge,
    /// What waits for being told; bound by the teller's queue.
    pub tells_queued: Gauge,
}

impl RedisMetrics {
    /// An operation was not answered, or with an error.
    pub fn failed(&self, operation: RedisOperation) {
        if let Some(counter) = self.errors.get(operation as usize) {
            counter.add(1);
        }
    }

    /// A look ended so.
    pub fn looked(&self, result: LookResult) {
        if let Some(counter) = self.looks.get(result as usize) {
            counter.add(1);
        }
    }

    /// A telling was dropped.
    pub fn tell_dropped(&self, cause: TellDropped) {
        if let Some(counter) = self.tells_dropped.get(cause as usize) {
            counter.add(1);
        }
    }

    /// Operations that failed.
    pub fn errors(&self, operation: RedisOperation) -> u64 {
        self.errors.get(operation as usize).map_or(0, Counter::get)
    }

    /// Looks that ended so.
    pub fn looks(&self, result: LookResult) -> u64 {
        self.looks.get(result as usize).map_or(0, Counter::get)
    }

    /// Tellings dropped for this cause.
    pub fn tells_dropped(&self, cause: TellDropped) -> u64 {
        self.tells_dropped.get(cause as usize).map_or(0, Counter::get)
    }
}
