//! The JSON of the status.

use serde::{Deserialize, Serialize};

use super::{ConfigurationStatus, LearnStatus, RouteStatus, UpstreamStatus};

/// `GET /api/v1/status`.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Status {
    /// The server's version.
    pub version: String,
    /// RFC 3339, UTC.
    pub now: String,
    /// Seconds since the start.
    pub uptime_seconds: u64,
    /// What `/readyz` says.
    pub ready: bool,
    /// Why not, if not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub not_ready: Option<String>,
    /// The running configuration.
    #[serde(default)]
    pub configuration: ConfigurationStatus,
    /// The store.
    pub store: StoreStatus,
    /// Redis, where it is configured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub redis: Option<RedisStatus>,
    /// Calls with an `Idempotency-Key`, where a route has `idempotency`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub idempotency: Option<IdempotencyStatus>,
    /// By name.
    pub sources: Vec<SourceStatus>,
    /// By name.
    #[serde(default)]
    pub routes: Vec<RouteStatus>,
    /// Requests that no route served because their path could be taken for a source's.
    #[serde(default)]
    pub shadowed: u64,
    /// By name.
    pub upstreams: Vec<UpstreamStatus>,
}

/// The store in a status.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct StoreStatus {
    /// Whether it takes events.
    pub writable: bool,
    /// Why not, if not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub problem: Option<String>,
    /// Appended events that wait for admission.
    pub unadmitted: u64,
    /// Bytes that its live data takes on disk.
    pub bytes: u64,
    /// Bytes of its write-ahead log.
    pub wal_bytes: u64,
    /// Bytes free on its file system; absent where that is a database's.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub free_bytes: Option<u64>,
}

/// Redis in a status.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct RedisStatus {
    /// Whether there is a connection that can be used.
    pub up: bool,
    /// Looks are not asked at the moment, because too many were not answered in time.
    pub breaker_open: bool,
    /// What it has not been told yet.
    pub waiting_tells: u64,
}

/// Records of idempotent calls in a status.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct IdempotencyStatus {
    /// Calls that run.
    pub running: u64,
    /// Calls whose answer is kept.
    pub done: u64,
    /// Calls whose answer was passed on without being kept.
    pub unstored: u64,
    /// Calls of which nobody knows whether they took effect.
    pub ambiguous: u64,
    /// Age of the oldest of these; absent when there is none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub oldest_ambiguous_seconds: Option<u64>,
}

/// One source in a status. Counts are since the start of the process.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct SourceStatus {
    /// Its name.
    pub name: String,
    /// Its path.
    pub path: String,
    /// Its provider.
    pub provider: String,
    /// Requests that were appended.
    pub accepted: u64,
    /// Of those, or known before, duplicates.
    pub duplicates: u64,
    /// Duplicates with other bytes.
    pub conflicts: u64,
    /// Refused requests.
    pub rejected: u64,
    /// Refusals by reason; only those that occurred.
    pub rejections: Vec<(String, u64)>,
    /// Ended by a bound or a failure of ours.
    pub failed: u64,
    /// Its secrets, in the order of the configuration.
    pub secrets: Vec<SecretStatus>,
    /// Where its secret arrives in band, how that stands.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub learn: Option<LearnStatus>,
    /// How near its sender is to giving up; absent where it is not known when it does.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sender: Option<SenderStatus>,
    /// Its last refusals, the newest first; under a flood only some are noted.
    #[serde(default)]
    pub last_refusals: Vec<RefusalStatus>,
}

/// How much of a sender's patience is used, by what this process has answered since its start.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct SenderStatus {
    /// Its rule, in words.
    pub gives_up_after: String,
    /// `documented`, or `hint`: nobody has confirmed the rule.
    pub confidence: String,
    /// Of its limit, by requests whose signature held; 100 and more when it is reached.
    pub used_percent: u64,
    /// The same if refused requests that may have been the sender's were.
    pub possibly_used_percent: u64,
}

/// One refusal, with the likely cause.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct RefusalStatus {
    /// When it came.
    pub at: String,
    /// The client's address.
    pub client: String,
    /// Why, as in `rejections`.
    pub reason: String,
    /// The likely cause, where it could be shown; the sender does not learn it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hint: Option<String>,
}

/// One secret of a source.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct SecretStatus {
    /// Its label, or `#` and its place.
    pub label: String,
    /// When it was first seen in a configuration; absent until the store has said. RFC 3339, UTC, as the others.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub known_since: Option<String>,
    /// When it last vouched for a request, at any replica; absent if never since `known_since`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last_used_at: Option<String>,
    /// How many requests other secrets of the source have vouched for since then, or since `known_since`.
    pub others: u64,
    /// When it ends; absent if it does not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub not_after: Option<String>,
    /// How long until then, 0 if it is past.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ends_in_seconds: Option<u64>,
    /// `ended`, `never_used`, `in_use`, `quiet` (unused, but so was every other) or `safe_to_remove`.
    pub standing: String,
    /// For how long it has not been used, in seconds; absent until the store has said.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub unused_seconds: Option<u64>,
}
