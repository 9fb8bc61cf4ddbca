//! `GET /api/v1/status`, and the numbers of the store for metrics.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;

use super::Admin;
use super::dto::{
    ConfigurationStatus, IdempotencyStatus, RedisStatus, RefusalStatus, RefusedStatus, RouteStatus, SecretStatus,
    SenderStatus, SourceStatus, Status, StoreStatus, UpstreamStatus,
};
use super::error::ApiError;
use crate::learn::Learning;
use crate::reload;
use crate::store::model::DispatchState;
use crate::store::records::RecordKind;
use crate::store::{Counts, UpstreamCounts};
use crate::telemetry::metrics::{
    LastRefusal, RecordMetrics, RequestOutcome, RouteMetrics, RouteOutcome, SecretFacts, SecretUse, SourceMetrics,
    Standing, UpstreamMetrics,
};
use crate::time::{Monotonic, Timestamp};

/// How long a status waits for the store's numbers: a person looks.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) async fn status(State(admin): State<Arc<Admin>>) -> Result<Json<Status>, ApiError> {
    // What this process knows by itself is worth most while the store does not answer.
    let (counts, unknown) = match tokio::time::timeout(PATIENCE, refresh(&admin)).await {
        Ok(Ok(counts)) => (counts, None),
        Ok(Err(error)) => (Counts::default(), Some(format!("the counts are unknown: {error}"))),
        Err(_late) => (
            Counts::default(),
            Some("the counts are unknown: no answer in time".to_owned()),
        ),
    };
    let (now, moment) = (admin.clock.now(), admin.clock.monotonic());
    let not_ready = admin.not_ready();
    let problem = admin.store.is_writable().err().map(|error| error.to_string());
    Ok(Json(Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        now: now.to_string(),
        uptime_seconds: admin.clock.monotonic().since(admin.started).as_secs(),
        ready: not_ready.is_none(),
        not_ready,
        configuration: configuration(admin.reloads.state()),
        store: StoreStatus {
            writable: problem.is_none(),
            problem: problem.or(unknown),
            unadmitted: counts.unadmitted,
            bytes: counts.used_bytes,
            wal_bytes: counts.wal_bytes,
            free_bytes: counts.free_bytes,
        },
        redis: admin.metrics.redis_if_any().map(|redis| RedisStatus {
            up: redis.up.get() != 0,
            breaker_open: redis.breaker_open.get() != 0,
            waiting_tells: u64::try_from(redis.tells_queued.get()).unwrap_or(0),
        }),
        idempotency: admin.metrics.records_if_any().map(idempotency),
        sources: admin
            .metrics
            .sources()
            .iter()
            .filter(|(_, metrics)| !metrics.is_removed())
            .map(|(name, metrics)| {
                let learn = admin.learners.standing(name);
                source(name.as_str(), metrics, learn.as_ref(), now, moment)
            })
            .collect(),
        routes: admin
            .metrics
            .routes()
            .iter()
            .filter(|(_, metrics)| !metrics.is_removed())
            .map(|(name, metrics)| route(name.as_str(), metrics))
            .collect(),
        shadowed: admin.metrics.server().shadowed.get(),
        upstreams: admin
            .metrics
            .upstreams()
            .iter()
            .map(|(name, metrics)| {
                let none = UpstreamCounts::default();
                upstream(name.as_str(), counts.upstreams.get(name).unwrap_or(&none), metrics, now)
            })
            .collect(),
    }))
}

/// Asks the store for its numbers, and leaves them in the metrics.
pub(super) async fn refresh(admin: &Admin) -> Result<Counts, ApiError> {
    let moment = admin.clock.monotonic();
    for (_name, source) in admin.metrics.sources() {
        source.judge_patience(moment);
    }
    let writable = admin.store.is_writable().is_ok();
    admin.metrics.store().writable.set(i64::from(writable));
    let trusted = admin.store.clock_is_trusted();
    admin.metrics.store().clock_trusted.set(i64::from(trusted));
    let counts = admin.store.counts().await?;
    let now = admin.clock.now();
    let store = admin.metrics.store();
    store.unadmitted.set(signed(counts.unadmitted));
    store.bytes.set(signed(counts.used_bytes));
    store.wal_bytes.set(signed(counts.wal_bytes));
    if let Some(free) = counts.free_bytes {
        store.free_bytes.set(signed(free));
        store.has_disk.set(1);
    }
    // Those of the configuration exist from the start; those that left it if they ever had a dispatch.
    for (name, counted) in &counts.upstreams {
        let metrics = admin.metrics.upstream(name);
        for state in DispatchState::ALL {
            metrics.set_dispatches(state, in_state(counted, state));
        }
        metrics.made.set(signed(counted.made));
        metrics.pruned.set(signed(counted.pruned));
        let oldest = counted.oldest_pending.map_or(0, |oldest| millis_since(now, oldest));
        metrics.oldest_pending.set(oldest);
    }
    admin.metrics.keep_upstreams(|| {
        let configured = admin.store.upstreams().into_iter();
        configured.chain(counts.upstreams.keys().cloned()).collect()
    });
    if let Some(records) = admin.metrics.records_if_any() {
        let counts = admin.store.record_counts().await?;
        for kind in RecordKind::ALL {
            records.set_records(kind, counts.kinds.get(&kind).copied().unwrap_or(0));
        }
        let oldest = counts
            .oldest_ambiguous
            .map_or(0, |oldest| millis_since(now, oldest).max(1));
        records.oldest_ambiguous.set(oldest);
    }
    Ok(counts)
}

fn configuration(state: reload::State) -> ConfigurationStatus {
    ConfigurationStatus {
        loaded_at: state.loaded_at.to_string(),
        refused: state.refused.map(|refusal| RefusedStatus {
            at: refusal.at.to_string(),
            why: refusal.why.to_string(),
        }),
    }
}

/// As of the last look at the store.
fn idempotency(metrics: &RecordMetrics) -> IdempotencyStatus {
    let in_state = |kind| u64::try_from(metrics.records(kind)).unwrap_or(0);
    let oldest = u64::try_from(metrics.oldest_ambiguous.get()).unwrap_or(0);
    IdempotencyStatus {
        running: in_state(RecordKind::Running),
        done: in_state(RecordKind::Done),
        unstored: in_state(RecordKind::Unstored),
        ambiguous: in_state(RecordKind::Ambiguous),
        oldest_ambiguous_seconds: (oldest > 0).then_some(oldest / 1000),
    }
}

fn source(
    name: &str,
    metrics: &SourceMetrics,
    learn: Option<&Learning>,
    now: Timestamp,
    moment: Monotonic,
) -> SourceStatus {
    let (path, provider) = metrics.place();
    SourceStatus {
        name: name.to_owned(),
        path,
        provider,
        accepted: metrics.requests(RequestOutcome::Accepted),
        duplicates: metrics.duplicates(),
        conflicts: metrics.conflicts(),
        rejected: metrics.requests(RequestOutcome::Rejected),
        rejections: metrics
            .rejections_by_word()
            .filter(|(_, count)| *count > 0)
            .map(|(reason, count)| (reason.to_owned(), count))
            .collect(),
        failed: metrics.requests(RequestOutcome::Failed),
        secrets: metrics
            .secrets_at(now)
            .iter()
            .map(|(secret, facts, standing)| secret_status(secret, facts, *standing, now))
            .collect(),
        learn: learn.map(super::sources::status),
        sender: metrics.patience().map(|patience| {
            let used = patience.used(moment);
            SenderStatus {
                gives_up_after: patience.rule().rule.to_string(),
                confidence: patience.rule().confidence.as_str().to_owned(),
                used_percent: used.sure / 10,
                possibly_used_percent: used.possible / 10,
            }
        }),
        last_refusals: metrics.last_refusals().newest_first().iter().map(refusal).collect(),
    }
}

fn refusal(refusal: &LastRefusal) -> RefusalStatus {
    RefusalStatus {
        at: refusal.at.to_string(),
        client: refusal.client.to_string(),
        reason: refusal.reason.to_owned(),
        hint: refusal.hint.as_deref().map(str::to_owned),
    }
}

fn secret_status(secret: &SecretUse, facts: &SecretFacts, standing: Standing, now: Timestamp) -> SecretStatus {
    let said = |at: Option<Timestamp>| at.map(|at| at.to_string());
    SecretStatus {
        label: secret.label.clone(),
        known_since: said(facts.since),
        last_used_at: said(facts.last_used),
        others: facts.others,
        not_after: said(secret.not_after),
        ends_in_seconds: secret.not_after.map(|end| end.since(now).as_secs()),
        standing: standing.as_str().to_owned(),
        unused_seconds: facts.last_used.or(facts.since).map(|from| now.since(from).as_secs()),
    }
}

fn route(name: &str, metrics: &RouteMetrics) -> RouteStatus {
    let sum = |outcomes: &[RouteOutcome]| outcomes.iter().map(|outcome| metrics.requests(*outcome)).sum();
    let now = |gauge: i64| u64::try_from(gauge).unwrap_or(0);
    let (path, upstream) = metrics.place();
    RouteStatus {
        name: name.to_owned(),
        path,
        upstream,
        answered: sum(&[
            RouteOutcome::Success,
            RouteOutcome::Redirect,
            RouteOutcome::ClientError,
            RouteOutcome::Upgraded,
        ]),
        upstream_errors: sum(&[RouteOutcome::ServerError]),
        failed: sum(&[RouteOutcome::Unreachable, RouteOutcome::Broken, RouteOutcome::TimedOut]),
        refused: sum(&[RouteOutcome::Refused, RouteOutcome::TooSlow]),
        client_left: sum(&[RouteOutcome::ClientLeft]),
        waiting: now(metrics.waiting.get()),
        tunnels: now(metrics.tunnels.get()),
    }
}

fn upstream(name: &str, counts: &UpstreamCounts, metrics: &UpstreamMetrics, now: Timestamp) -> UpstreamStatus {
    let progress = metrics.last_progress.get();
    UpstreamStatus {
        name: name.to_owned(),
        pending: in_state(counts, DispatchState::Pending),
        leased: in_state(counts, DispatchState::Leased),
        delivered: in_state(counts, DispatchState::Delivered),
        dead: in_state(counts, DispatchState::Dead),
        discarded: in_state(counts, DispatchState::Discarded),
        held: in_state(counts, DispatchState::Held),
        oldest_pending_seconds: counts.oldest_pending.map(|oldest| now.since(oldest).as_secs()),
        in_flight: u64::try_from(metrics.in_flight.get()).unwrap_or(0),
        paused: metrics.paused.get() != 0,
        breaker_open: metrics.breaker_open.get() != 0,
        held_for_seconds: u64::try_from(metrics.held_seconds.get()).ok().filter(|left| *left > 0),
        last_progress_at: (progress > 0).then(|| Timestamp::from_secs(progress).to_string()),
    }
}

fn in_state(counts: &UpstreamCounts, state: DispatchState) -> u64 {
    counts.states.get(&state).copied().unwrap_or(0)
}

fn millis_since(now: Timestamp, earlier: Timestamp) -> i64 {
    i64::try_from(now.since(earlier).as_millis()).unwrap_or(i64::MAX)
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
