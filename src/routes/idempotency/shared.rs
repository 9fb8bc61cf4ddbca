//! [`Shared`]: what all routes with `idempotency` have in common.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::TaskTracker;

use super::finished::Finished;
use super::flights::Flights;
use super::memory::Memory;
use crate::dedupe::redis::Redis;
use crate::ingest::body::Budget;
use crate::routes::log::Limited;
use crate::store::Store;
use crate::store::records::RecordKey;
use crate::telemetry::metrics::{Metrics, RecordMetrics};
use crate::time::Clock;

/// Answers that are on their way to Redis at once; what comes on top is not kept there.
const KEEPING_MAX: usize = 16;

/// What it is built from.
#[derive(Debug)]
pub struct SharedParts {
    /// Where records are.
    pub store: Store,
    /// Answers in this process.
    pub memory: Memory,
    /// Answers in Redis, where it is configured.
    pub redis: Option<Redis>,
    /// Of bodies in memory (`limits.in_flight`).
    pub budget: Budget,
    /// Time for a body (`limits.body_timeout`).
    pub body_timeout: Duration,
    /// Calls that may run at once (`limits.connections`): those whose clients have left run on.
    pub running: usize,
    /// The server's.
    pub metrics: Metrics,
    /// The server's.
    pub clock: Clock,
    /// Of calls: they end before the store closes.
    pub tracker: TaskTracker,
}

/// See the module. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Shared {
    pub(super) store: Store,
    pub(super) memory: Memory,
    pub(super) redis: Option<Redis>,
    pub(super) flights: Flights,
    pub(super) budget: Budget,
    pub(super) body_timeout: Duration,
    pub(super) metrics: Metrics,
    pub(super) clock: Clock,
    /// Of calls: they end before the store closes.
    pub(super) tracker: TaskTracker,
    log: Arc<Limited>,
    running: Arc<Semaphore>,
    keeping: Arc<Semaphore>,
    records: Arc<RecordMetrics>,
}

/// The right to run a call; counted while it exists.
#[derive(Debug)]
pub(super) struct Running {
    _permit: OwnedSemaphorePermit,
    records: Arc<RecordMetrics>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.records.running.add(-1);
    }
}

impl Shared {
    /// No call runs yet.
    pub fn new(parts: SharedParts) -> Self {
        Self {
            store: parts.store,
            memory: parts.memory,
            redis: parts.redis,
            flights: Flights::default(),
            budget: parts.budget,
            body_timeout: parts.body_timeout,
            records: parts.metrics.records(),
            metrics: parts.metrics,
            clock: parts.clock,
            tracker: parts.tracker,
            log: Arc::new(Limited::new()),
            running: Arc::new(Semaphore::new(parts.running)),
            keeping: Arc::new(Semaphore::new(KEEPING_MAX)),
        }
    }

    /// Room for one more call.
    pub(super) fn run(&self) -> Option<Running> {
        let permit = Arc::clone(&self.running).try_acquire_owned().ok()?;
        self.records.running.add(1);
        Some(Running {
            _permit: permit,
            records: Arc::clone(&self.records),
        })
    }

    /// Lines of the log that were left out before this one, if one may be written now: an outage must not fill the disk.
    pub(super) fn may_log(&self) -> Option<u64> {
        self.log.turn(self.clock.monotonic())
    }

    /// Remembers the end of a call in this process.
    pub(super) fn remember(&self, key: &RecordKey, finished: &Arc<Finished>, ttl: Duration) {
        self.memory.put(key.clone(), Arc::clone(finished), ttl, &self.clock);
        let bytes = i64::try_from(self.memory.bytes()).unwrap_or(i64::MAX);
        self.records.cache_bytes.set(bytes);
    }

    /// Lets Redis have the end of a call, for what is left of its time; beside the answer, and only if there is room.
    pub(super) fn publish(&self, key: &RecordKey, finished: &Arc<Finished>) {
        let Some(redis) = &self.redis else { return };
        let left = finished.expires_at.since(self.clock.now());
        let Ok(permit) = Arc::clone(&self.keeping).try_acquire_owned() else {
            return;
        };
        if left.is_zero() {
            return;
        }
        let (redis, key, finished) = (redis.clone(), key.clone(), Arc::clone(finished));
        self.tracker.spawn(async move {
            redis.keep(&key.route, &key.digest, &finished.encode(), left).await;
            drop(permit);
        });
    }
}
