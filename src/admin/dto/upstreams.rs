//! The JSON of upstreams and their lanes.

use serde::{Deserialize, Serialize};

/// One upstream in a status.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct UpstreamStatus {
    /// Its name.
    pub name: String,
    /// Dispatches that wait for their time.
    pub pending: u64,
    /// Dispatches that are being attempted, or handed out to be.
    pub leased: u64,
    /// Dispatches that are done and still kept.
    pub delivered: u64,
    /// Dispatches given up.
    pub dead: u64,
    /// Dispatches given up by a person.
    pub discarded: u64,
    /// Dispatches that wait for their upstream's return or for a person.
    pub held: u64,
    /// Age of the oldest undelivered dispatch; absent when there is none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub oldest_pending_seconds: Option<u64>,
    /// Attempts that run now.
    pub in_flight: u64,
    /// Whether a person has paused it.
    pub paused: bool,
    /// Whether its breaker is open.
    pub breaker_open: bool,
    /// For how long its lane is still held, because it answered several events in a row with `Retry-After`; absent when
    /// it is not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub held_for_seconds: Option<u64>,
    /// When an attempt was last settled; absent if not since the start.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last_progress_at: Option<String>,
}

/// `GET /api/v1/upstreams`.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Upstreams {
    /// Those of the configuration, by name.
    pub upstreams: Vec<Upstream>,
}

/// One upstream with its lane: in a list, and the answer to a pause or a resume.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Upstream {
    /// Its name.
    pub name: String,
    /// Where it is, without credentials.
    pub url: String,
    /// Whether a person has paused it.
    pub paused: bool,
    /// Whether the store has the last order to pause or to resume; if not, a restart undoes it.
    pub order_saved: bool,
    /// `closed`, `open` or `ramping`.
    pub breaker: String,
    /// For how long it is still held, because it answered several events in a row with `Retry-After`; absent when it is
    /// not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub held_for_seconds: Option<u64>,
    /// Attempts that run now, in this process.
    pub running: u64,
    /// Attempts at the same time, at most, over all replicas of a shared store.
    pub concurrency: u64,
    /// Attempts per period, at most, over all replicas of a shared store; absent when there is no limit.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rate: Option<String>,
    /// This process's part of concurrency, rate and burst; absent where no other process shares them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub share: Option<ShareStatus>,
    /// Dispatches that wait or are being attempted.
    pub backlog: u64,
    /// Age of the oldest undelivered dispatch; absent when there is none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub oldest_pending_seconds: Option<u64>,
}

/// A part of an upstream's pace.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct ShareStatus {
    /// Units that this process has.
    pub units: u32,
    /// Units in all.
    pub of: u32,
}
