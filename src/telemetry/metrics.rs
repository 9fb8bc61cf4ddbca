//! Metrics of the data path: plain relaxed atomics behind handles that are resolved once.
//!
//! # Motivation
//!
//! A request may cost a few microseconds, so counting it must not take a lock, hash a label or allocate. The metric
//! crate's own families look up a map under a lock, and its histograms are a mutex each; therefore the values live
//! here, in one struct per source and per upstream, and [`exposition`](super::exposition) prints them with that crate
//! when somebody scrapes. Each struct is aligned to 128 bytes (two cache lines, which is what current processors
//! fetch together), so that the counters of one source do not slow down those of another.
//!
//! # Balance (P8)
//!
//! Every request to a source ends in exactly one outcome of `hooksluice_requests_total{source,outcome}`:
//!
//! | outcome | when |
//! |---|---|
//! | `accepted` | appended and synced; whether it is new is decided by admission, after the answer |
//! | `duplicate` | known to be a duplicate of a durable event at the time of the answer |
//! | `challenge` | a hand-shake or probe (`HEAD`, `OPTIONS`, a `GET` where the provider probes) that we answered ourselves |
//! | `rejected` | refused with a 4xx; the reason is in `rejections_total`, or the method was wrong (405) |
//! | `failed` | 408, 429, 503, or the client left before its request was whole; the cause is in `failures_total` |
//!
//! A request whose sender waits for the upstream's answer is `accepted` once its event is durable, whatever it is answered
//! then; `hooksluice_answers_total{source,answer}` says that.
//!
//! Every accepted one is admitted once, into `events_stored_total` or `duplicates_total`. Within the life of a
//! process, `received` being the sum over all outcomes and `unadmitted_at_start` what the previous process left:
//!
//! ```text
//! received + unadmitted_at_start
//!   = challenge + rejected + failed + duplicates_total + events_stored_total + unadmitted
//! ```
//!
//! Of dispatches, which outlive processes, the store keeps the tallies:
//! `dispatches_made_total = Σ dispatches{state} + dispatches_pruned_total`, for each upstream.

mod idempotency;
mod redis;
mod routes;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

pub use self::idempotency::{KeyMetrics, KeyOutcome, KnownBy, RecordMetrics};
pub use self::redis::{LookResult, RedisMetrics, RedisOperation, TellDropped};
pub use self::routes::{OpenTunnel, RouteMetrics, RouteOutcome, Running};

use crate::id::{RouteName, SourceName, UpstreamName};
pub use crate::measure::{BUCKETS_MICROS, Counter, Gauge, Histogram};
use crate::store::model::{Admission, DispatchState, Outcome};
use crate::time::Timestamp;
use crate::verify::Reason;

/// All metrics of one server. Cheap to clone; clones share the values.
#[derive(Clone, Debug, Default)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    sources: RwLock<BTreeMap<SourceName, Arc<SourceMetrics>>>,
    upstreams: RwLock<BTreeMap<UpstreamName, Arc<UpstreamMetrics>>>,
    routes: RwLock<BTreeMap<RouteName, Arc<RouteMetrics>>>,
    server: ServerMetrics,
    store: StoreMetrics,
    redis: OnceLock<Arc<RedisMetrics>>,
    keys: RwLock<BTreeMap<RouteName, Arc<KeyMetrics>>>,
    records: OnceLock<Arc<RecordMetrics>>,
}

impl Metrics {
    /// Nothing counted yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The metrics of this source, made at the first call. Resolve it once and keep it: this takes a lock.
    pub fn source(&self, name: &SourceName) -> Arc<SourceMetrics> {
        get_or_make(&self.0.sources, name)
    }

    /// The metrics of this upstream, made at the first call. Resolve it once and keep it: this takes a lock.
    pub fn upstream(&self, name: &UpstreamName) -> Arc<UpstreamMetrics> {
        get_or_make(&self.0.upstreams, name)
    }

    /// The metrics of this route, made at the first call. Resolve it once and keep it: this takes a lock.
    pub fn route(&self, name: &RouteName) -> Arc<RouteMetrics> {
        get_or_make(&self.0.routes, name)
    }

    /// What belongs to no source: connections, heads, memory.
    pub fn server(&self) -> &ServerMetrics {
        &self.0.server
    }

    /// The store's.
    pub fn store(&self) -> &StoreMetrics {
        &self.0.store
    }

    /// Redis's, which exist (and are exposed) from the first call on: a deployment without Redis shows none.
    pub fn redis(&self) -> Arc<RedisMetrics> {
        Arc::clone(self.0.redis.get_or_init(Arc::default))
    }

    /// Redis's, when it is configured.
    pub fn redis_if_any(&self) -> Option<&RedisMetrics> {
        self.0.redis.get().map(Arc::as_ref)
    }

    /// Those of the idempotent calls of this route, made at the first call. Resolve it once and keep it: this takes a lock.
    pub fn keys(&self, route: &RouteName) -> Arc<KeyMetrics> {
        get_or_make(&self.0.keys, route)
    }

    /// What the routes with `idempotency` share, which exists (and is exposed) from the first call on.
    pub fn records(&self) -> Arc<RecordMetrics> {
        Arc::clone(self.0.records.get_or_init(Arc::default))
    }

    /// What the routes with `idempotency` share, where there is one.
    pub fn records_if_any(&self) -> Option<&RecordMetrics> {
        self.0.records.get().map(Arc::as_ref)
    }

    /// All routes with `idempotency`, by name.
    pub fn routes_with_keys(&self) -> Vec<(RouteName, Arc<KeyMetrics>)> {
        all(&self.0.keys)
    }

    /// All sources seen so far, by name.
    pub fn sources(&self) -> Vec<(SourceName, Arc<SourceMetrics>)> {
        all(&self.0.sources)
    }

    /// All upstreams seen so far, by name.
    pub fn upstreams(&self) -> Vec<(UpstreamName, Arc<UpstreamMetrics>)> {
        all(&self.0.upstreams)
    }

    /// All routes seen so far, by name.
    pub fn routes(&self) -> Vec<(RouteName, Arc<RouteMetrics>)> {
        all(&self.0.routes)
    }
}

fn get_or_make<K: Ord + Clone, V: Default>(map: &RwLock<BTreeMap<K, Arc<V>>>, name: &K) -> Arc<V> {
    if let Some(found) = map.read().unwrap_or_else(PoisonError::into_inner).get(name) {
        return Arc::clone(found);
    }
    let mut map = map.write().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(map.entry(name.clone()).or_default())
}

fn all<K: Clone, V>(map: &RwLock<BTreeMap<K, Arc<V>>>) -> Vec<(K, Arc<V>)> {
    let map = map.read().unwrap_or_else(PoisonError::into_inner);
    map.iter()
        .map(|(name, value)| (name.clone(), Arc::clone(value)))
        .collect()
}

/// How a request to a source ended; see the balance in the [module's documentation](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// Appended and synced.
    Accepted,
    /// Known to be a duplicate at the time of the answer.
    Duplicate,
    /// A hand-shake or probe.
    Challenge,
    /// Refused with a 4xx.
    Rejected,
    /// 408, 429, 503, or the client left.
    Failed,
}

impl RequestOutcome {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Accepted,
        Self::Duplicate,
        Self::Challenge,
        Self::Rejected,
        Self::Failed,
    ];

    /// The label's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Duplicate => "duplicate",
            Self::Challenge => "challenge",
            Self::Rejected => "rejected",
            Self::Failed => "failed",
        }
    }
}

/// Why a request ended as [`RequestOutcome::Failed`]: the bound or part that was at its end (P6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The body did not arrive within `limits.body_timeout` (408).
    TooSlow,
    /// The client left before its body was whole; nobody to answer.
    Incomplete,
    /// Over the source's inbound `rate` (429).
    RateLimited,
    /// `limits.in_flight` or the store's queue is full (503).
    Overloaded,
    /// `store.max_bytes` or `store.min_free` is reached (503).
    DiskBudget,
    /// The store could not write (503).
    StoreFailed,
    /// Shutting down (503).
    Closing,
}

impl Failure {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::TooSlow,
        Self::Incomplete,
        Self::RateLimited,
        Self::Overloaded,
        Self::DiskBudget,
        Self::StoreFailed,
        Self::Closing,
    ];

    /// The label's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TooSlow => "too_slow",
            Self::Incomplete => "incomplete",
            Self::RateLimited => "rate_limited",
            Self::Overloaded => "overloaded",
            Self::DiskBudget => "disk_budget",
            Self::StoreFailed => "store_failed",
            Self::Closing => "closing",
        }
    }
}

/// How a sender that waits for the upstream's own answer (`reply = "upstream"`) was answered. The request itself is
/// `accepted`, whatever this says, since its event is durable; one that failed earlier is counted there alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SenderAnswer {
    /// The upstream's 2xx or 3xx, just given.
    Relayed,
    /// The one that it gave to an earlier attempt.
    Kept,
    /// The upstream's 4xx.
    Refused,
    /// Over, without an answer that was kept: acknowledged.
    Over,
    /// 503: the attempt failed.
    Failed,
    /// 503: nothing came in the sender's time.
    Late,
    /// 503: the upstream is paused.
    Paused,
    /// 503: its breaker is open.
    BreakerOpen,
    /// 503: its slots, or the places to wait for them, are taken.
    Full,
    /// 503: shutting down.
    Closing,
    /// 503: the store failed.
    Store,
    /// 503: another store has the event.
    Elsewhere,
}

impl SenderAnswer {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Relayed,
        Self::Kept,
        Self::Refused,
        Self::Over,
        Self::Failed,
        Self::Late,
        Self::Paused,
        Self::BreakerOpen,
        Self::Full,
        Self::Closing,
        Self::Store,
        Self::Elsewhere,
    ];

    /// The label's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Relayed => "relayed",
            Self::Kept => "kept",
            Self::Refused => "refused",
            Self::Over => "over",
            Self::Failed => "failed",
            Self::Late => "late",
            Self::Paused => "paused",
            Self::BreakerOpen => "breaker_open",
            Self::Full => "full",
            Self::Closing => "closing",
            Self::Store => "store",
            Self::Elsewhere => "elsewhere",
        }
    }
}

/// The counters of one source.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct SourceMetrics {
    requests: [Counter; RequestOutcome::ALL.len()],
    rejections: [Counter; Reason::ALL.len()],
    failures: [Counter; Failure::ALL.len()],
    events_stored: Counter,
    duplicates: Counter,
    conflicts: Counter,
    revived: Counter,
    signature_age: Gauge,
    accept: Histogram,
    answers: [Counter; SenderAnswer::ALL.len()],
    waiting: Gauge,
    secrets: OnceLock<Box<[SecretUse]>>,
}

/// When a secret last vouched for a request.
#[derive(Debug)]
pub struct SecretUse {
    /// The operator's label, or `#` and the secret's place in the list, from 0.
    pub label: String,
    last_used: AtomicI64,
}

impl SecretUse {
    /// The last use since the start of this process.
    pub fn last_used(&self) -> Option<Timestamp> {
        match self.last_used.load(Ordering::Relaxed) {
            0 => None,
            seconds => Some(Timestamp::from_secs(seconds)),
        }
    }
}

impl SourceMetrics {
    /// Names the source's secrets by their labels, in the order of the configuration; the first call counts.
    pub fn name_secrets<'a>(&self, labels: impl IntoIterator<Item = Option<&'a str>>) {
        self.secrets.get_or_init(|| {
            labels
                .into_iter()
                .enumerate()
                .map(|(index, label)| SecretUse {
                    label: label.map_or_else(|| format!("#{index}"), str::to_owned),
                    last_used: AtomicI64::new(0),
                })
                .collect()
        });
    }

    /// Appended, synced and answered, `took` after its head was complete.
    pub fn accepted(&self, took: Duration) {
        self.ended(RequestOutcome::Accepted);
        self.accept.observe(took);
    }

    /// Answered as a duplicate without an append, `took` after its head was complete.
    pub fn duplicate(&self, conflict: bool, took: Duration) {
        self.ended(RequestOutcome::Duplicate);
        self.duplicates.add(1);
        if conflict {
            self.conflicts.add(1);
        }
        self.accept.observe(took);
    }

    /// Answered from the provider's record.
    pub fn challenge(&self) {
        self.ended(RequestOutcome::Challenge);
    }

    /// Refused for this reason. [`Reason::TooSlow`] is [`Failure::TooSlow`] too: count it by [`SourceMetrics::failed`].
    pub fn rejected(&self, reason: Reason) {
        self.ended(RequestOutcome::Rejected);
        if let Some(counter) = self.rejections.get(reason as usize) {
            counter.add(1);
        }
    }

    /// Refused for its method (405).
    pub fn method_not_allowed(&self) {
        self.ended(RequestOutcome::Rejected);
    }

    /// Ended by a bound or a failure of ours.
    pub fn failed(&self, failure: Failure) {
        self.ended(RequestOutcome::Failed);
        if let Some(counter) = self.failures.get(failure as usize) {
            counter.add(1);
        }
        if failure == Failure::TooSlow
            && let Some(counter) = self.rejections.get(Reason::TooSlow as usize)
        {
            counter.add(1);
        }
    }

    /// What admission decided about an event that was accepted earlier.
    pub fn admitted(&self, admission: &Admission) {
        match admission {
            Admission::New | Admission::Held => self.events_stored.add(1),
            Admission::Duplicate { conflict, .. } => {
                self.duplicates.add(1);
                if *conflict {
                    self.conflicts.add(1);
                }
            }
            Admission::Elsewhere { .. } => self.duplicates.add(1),
            Admission::Revived { .. } => {
                self.duplicates.add(1);
                self.revived.add(1);
            }
        }
    }

    /// A sender that waited for the upstream's answer was answered so.
    pub fn answered(&self, how: SenderAnswer) {
        if let Some(counter) = self.answers.get(how as usize) {
            counter.add(1);
        }
    }

    /// Senders that were answered so.
    pub fn answers(&self, how: SenderAnswer) -> u64 {
        self.answers.get(how as usize).map_or(0, Counter::get)
    }

    /// Senders that wait for the upstream's answer now.
    pub fn waiting(&self) -> &Gauge {
        &self.waiting
    }

    /// The secret at this index of the configuration vouched for a request.
    pub fn secret_used(&self, index: usize, now: Timestamp) {
        if let Some(used) = self.secrets.get().and_then(|secrets| secrets.get(index)) {
            let seconds = now.as_secs();
            // Looked at before it is written: one write a second leaves the line shared between the cores.
            if used.last_used.load(Ordering::Relaxed) != seconds {
                used.last_used.store(seconds, Ordering::Relaxed);
            }
        }
    }

    /// A signature that holds covers this time.
    pub fn signature_age(&self, received_at: Timestamp, signed_at: Timestamp) {
        let age = received_at.as_millis().saturating_sub(signed_at.as_millis());
        self.signature_age.set(age);
    }

    /// Requests that ended so.
    pub fn requests(&self, outcome: RequestOutcome) -> u64 {
        self.requests.get(outcome as usize).map_or(0, Counter::get)
    }

    /// Refusals for this reason.
    pub fn rejections(&self, reason: Reason) -> u64 {
        self.rejections.get(reason as usize).map_or(0, Counter::get)
    }

    /// Refusals by the word of their reason; every reason is there.
    pub fn rejections_by_word(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Reason::ALL
            .into_iter()
            .map(|reason| (reason.as_str(), self.rejections(reason)))
    }

    /// Failures for this cause.
    pub fn failures(&self, failure: Failure) -> u64 {
        self.failures.get(failure as usize).map_or(0, Counter::get)
    }

    /// Admitted as new.
    pub fn events_stored(&self) -> u64 {
        self.events_stored.get()
    }

    /// Duplicates, found by a look or by admission.
    pub fn duplicates(&self) -> u64 {
        self.duplicates.get()
    }

    /// Duplicates with other bytes than the event they repeat.
    pub fn conflicts(&self) -> u64 {
        self.conflicts.get()
    }

    /// Duplicates that brought a dead dispatch back.
    pub fn revived(&self) -> u64 {
        self.revived.get()
    }

    /// How old the latest signature was when it arrived, in milliseconds; negative when it came from the future, 0 where
    /// the scheme signs no time.
    pub fn latest_signature_age(&self) -> i64 {
        self.signature_age.get()
    }

    /// From the complete head to the answer, for accepted requests and duplicates.
    pub fn accept_times(&self) -> &Histogram {
        &self.accept
    }

    /// The source's secrets, in the order of the configuration.
    pub fn secrets(&self) -> &[SecretUse] {
        self.secrets.get().map_or(&[], |secrets| secrets)
    }

    fn ended(&self, outcome: RequestOutcome) {
        if let Some(counter) = self.requests.get(outcome as usize) {
            counter.add(1);
        }
    }
}

/// The words of [`Outcome::as_str`], in the order of [`outcome_index`].
pub const ATTEMPT_OUTCOMES: [&str; 4] = ["delivered", "refused", "not_sent", "unknown"];

const fn outcome_index(outcome: &Outcome) -> usize {
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

/// What belongs to no source.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct ServerMetrics {
    /// Open inbound connections; bound by `limits.connections`.
    pub connections: Gauge,
    /// Accepted connections.
    pub connections_accepted: Counter,
    /// Times that accepting waited because `limits.connections` was reached.
    pub connections_refused: Counter,
    /// Heads over `limits.head` (431).
    pub heads_too_large: Counter,
    /// Connections closed because a head took longer than `limits.head_timeout`.
    pub heads_too_slow: Counter,
    /// Heads that are not HTTP (400).
    pub heads_malformed: Counter,
    /// Connections closed after `limits.idle_timeout`.
    pub idle_closed: Counter,
    /// Connections closed because the client did not take its answers for `limits.body_timeout`.
    pub stalled_closed: Counter,
    /// Requests for a path that neither a source nor a route has (404).
    pub not_found: Counter,
    /// Requests whose path could be taken for a source's, and that a route would have served otherwise (404).
    pub shadowed: Counter,
    /// Body bytes held for requests to sources; bound by `limits.in_flight`.
    pub in_flight_bytes: Gauge,
    /// Body bytes held for requests with an `Idempotency-Key` and for answers to them that are being read; bound by
    /// `limits.in_flight` too, but apart.
    pub calls_in_flight_bytes: Gauge,
    /// Keys held by the in-process memory of recent keys.
    pub recent_keys: Gauge,
    /// The configured bounds, set once at the start.
    pub limits: OnceLock<Vec<(&'static str, u64)>>,
}

/// The store's.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct StoreMetrics {
    /// How long commits with their sync took: the store's own histogram, put here when both exist.
    pub commit: OnceLock<Arc<Histogram>>,
    /// Appended events that wait for admission; filled at each scrape.
    pub unadmitted: Gauge,
    /// Bytes that the store's live data takes on disk; filled at each scrape.
    pub bytes: Gauge,
    /// Bytes of the store's write-ahead log; filled at each scrape.
    pub wal_bytes: Gauge,
    /// Bytes free on the store's file system, as of the last second; filled at each scrape.
    pub free_bytes: Gauge,
    /// 1 once `free_bytes` is known; a database's disk is its own matter.
    pub has_disk: Gauge,
    /// 1 while the store takes events.
    pub writable: Gauge,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_by_word_is_the_place_in_its_list() {
        for (index, outcome) in RequestOutcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, index);
        }
        for (index, failure) in Failure::ALL.into_iter().enumerate() {
            assert_eq!(failure as usize, index);
        }
        for (index, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index);
        }
        for (index, operation) in RedisOperation::ALL.into_iter().enumerate() {
            assert_eq!(operation as usize, index);
        }
        for (index, result) in LookResult::ALL.into_iter().enumerate() {
            assert_eq!(result as usize, index);
        }
        for (index, cause) in TellDropped::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, index);
        }
        for (index, state) in DispatchState::ALL.into_iter().enumerate() {
            assert_eq!(state as usize, index);
        }
        let status = http::StatusCode::OK;
        let cause = String::new();
        for outcome in [
            Outcome::Delivered { status },
            Outcome::Refused { status },
            Outcome::NotSent { cause: cause.clone() },
            Outcome::Unknown { cause },
        ] {
            assert_eq!(ATTEMPT_OUTCOMES.get(outcome_index(&outcome)), Some(&outcome.as_str()));
        }
    }

    #[test]
    fn requests_balance_once_admission_has_decided() {
        let event = crate::id::EventId::from_bytes([7; 16]);
        let source = SourceMetrics::default();
        source.challenge();
        source.rejected(Reason::WrongSignature);
        source.method_not_allowed();
        source.failed(Failure::TooSlow);
        source.duplicate(false, Duration::ZERO);
        for admission in [
            Admission::New,
            Admission::Held,
            Admission::Duplicate {
                of: event,
                conflict: true,
            },
            Admission::Revived { of: event },
            Admission::Elsewhere { of: event, dead: false },
        ] {
            source.accepted(Duration::ZERO);
            source.admitted(&admission);
        }
        let received: u64 = RequestOutcome::ALL.into_iter().map(|o| source.requests(o)).sum();
        let ended = source.requests(RequestOutcome::Challenge)
            + source.requests(RequestOutcome::Rejected)
            + source.requests(RequestOutcome::Failed)
            + source.duplicates()
            + source.events_stored();
        assert_eq!(received, 10);
        assert_eq!(received, ended);
        assert_eq!((source.conflicts(), source.revived()), (1, 1));
        assert_eq!(source.rejections(Reason::TooSlow), 1);
    }

    #[test]
    fn a_secret_without_label_is_named_by_its_place() {
        let source = SourceMetrics::default();
        source.name_secrets([Some("2026-11"), None]);
        source.secret_used(1, Timestamp::from_secs(42));
        source.secret_used(9, Timestamp::from_secs(42));
        let seen: Vec<_> = source
            .secrets()
            .iter()
            .map(|s| (s.label.as_str(), s.last_used()))
            .collect();
        assert_eq!(seen, [("2026-11", None), ("#1", Some(Timestamp::from_secs(42)))]);
    }

    #[test]
    fn handles_of_one_name_share_their_values() {
        let metrics = Metrics::new();
        let name = SourceName::new("stripe");
        metrics.source(&name).challenge();
        assert_eq!(metrics.clone().source(&name).requests(RequestOutcome::Challenge), 1);
    }
}
