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
mod patience;
mod redis;
mod refusals;
mod reload;
mod routes;
mod secret;
mod source;
mod tls;
mod upstream;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

pub use self::idempotency::{KeyMetrics, KeyOutcome, KnownBy, RecordMetrics};
pub use self::patience::{Patience, Seen, SenderRule, Used};
pub use self::redis::{LookResult, RedisMetrics, RedisOperation, TellDropped};
pub use self::refusals::{LastRefusal, LastRefusals};
pub use self::reload::{ReloadMetrics, ReloadOutcome};
pub use self::routes::{OpenTunnel, RouteMetrics, RouteOutcome, Running};
pub use self::secret::{Noted, SecretFacts, SecretUse, Standing};
pub use self::source::{Failure, KeyFetch, RequestOutcome, SenderAnswer, SourceMetrics};
pub use self::tls::{HandshakeOutcome, TlsMetrics};
pub use self::upstream::{ATTEMPT_OUTCOMES, UpstreamMetrics};

use crate::id::{RouteName, SourceName, UpstreamName};
pub use crate::measure::{BUCKETS_MICROS, Counter, Gauge, Histogram};

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
    tls: OnceLock<Arc<TlsMetrics>>,
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

    /// Those of TLS on the public listener, which exist (and are exposed) from the first call on.
    pub fn tls(&self) -> Arc<TlsMetrics> {
        Arc::clone(self.0.tls.get_or_init(Arc::default))
    }

    /// Those of TLS on the public listener, when it is configured.
    pub fn tls_if_any(&self) -> Option<&TlsMetrics> {
        self.0.tls.get().map(Arc::as_ref)
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

    /// Forgets the upstreams that are not in `known`, which is asked once nobody can get to know another: they were never
    /// counted for. Who had resolved one must do it again if it comes back.
    pub fn keep_upstreams(&self, known: impl FnOnce() -> BTreeSet<UpstreamName>) {
        let mut upstreams = self.0.upstreams.write().unwrap_or_else(PoisonError::into_inner);
        let known = known();
        upstreams.retain(|name, _metrics| known.contains(name));
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
    /// Loads of the configuration.
    pub reloads: ReloadMetrics,
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
    /// 0 while expiry stands still because the wall clock jumped.
    pub clock_trusted: Gauge,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::upstream::outcome_index;
    use super::*;
    use crate::store::model::{Admission, DispatchState, Outcome};
    use crate::store::secrets::SecretMark;
    use crate::time::Timestamp;
    use crate::verify::Reason;

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
        for (index, outcome) in HandshakeOutcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, index);
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

    fn secret(label: Option<&str>, index: usize) -> SecretUse {
        let name = SourceName::new("stripe");
        let mark = SecretMark::of(&name, &crate::secret::Secret::new(format!("secret {index}")));
        SecretUse::new(label, index, mark, 0)
    }

    #[test]
    fn a_secret_without_label_is_named_by_its_place() {
        let source = SourceMetrics::default();
        source.configured([secret(Some("2026-11"), 0), secret(None, 1)]);
        source.secrets()[1].used(Timestamp::from_secs(42));
        let secrets = source.secrets();
        let seen: Vec<_> = secrets.iter().map(|s| (s.label.as_str(), s.last_used())).collect();
        assert_eq!(seen, [("2026-11", None), ("#1", Some(Timestamp::from_secs(42)))]);
    }

    #[test]
    fn a_secret_keeps_its_last_use_when_the_list_changes_and_loses_it_with_its_source() {
        let source = SourceMetrics::default();
        source.configured([secret(None, 0)]);
        let used = source.secrets();
        used[0].used(Timestamp::from_secs(42));
        source.configured([secret(Some("new"), 2), used[0].moved(None, 1)]);
        assert_eq!(source.secrets()[1].label, "#1");
        assert_eq!(source.secrets()[1].last_used(), Some(Timestamp::from_secs(42)));
        source.removed();
        assert!(source.is_removed() && source.secrets().is_empty());
    }

    #[test]
    fn handles_of_one_name_share_their_values() {
        let metrics = Metrics::new();
        let name = SourceName::new("stripe");
        metrics.source(&name).challenge();
        assert_eq!(metrics.clone().source(&name).requests(RequestOutcome::Challenge), 1);
    }
}
