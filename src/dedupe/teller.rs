//! [`Teller`]: tells Redis what is durable and what is dead, after the answer, in its own time.
//!
//! **Theory of operation.** What the protocol's [`Stage::Tell`](super::protocol::Stage::Tell) says is put into a bounded
//! queue, one telling for each key, and told in slices of one pipeline each, again and again until Redis has it. Two
//! things may be lost on the way, and neither is an event: a full queue drops its oldest *durable* (the next duplicate
//! then costs the store a look), and on a shared store one that has waited for [`TOO_LATE`] is dropped, since the event
//! may have died at another replica meanwhile. Deaths are never lost: the store keeps a mark of each until it is told
//! here that Redis has it, and its marks are read at the start and every [`REREAD`].
//!
//! **Promises.** P6: [`TELLS`] bounds the queue. DESIGN section 3: a death that Redis has not been told yet is known
//! here ([`Teller::has_death`]), so that a redelivery goes to the store and revives, whatever old value Redis holds.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::debug;

use self::queue::{Number, Pushed, Queue};
use super::protocol::{Arrangement, Tell};
use super::redis::{Redis, SLICE, Telling, Told};
use super::settings::Namespace;
use crate::id::SourceName;
use crate::key::DedupeKey;
use crate::store::model::Death;
use crate::telemetry::metrics::{Metrics, RedisMetrics, TellDropped};
use crate::time::Clock;

mod queue;

/// What may wait at once: some 10 MiB.
pub const TELLS: usize = 32_768;
/// On a shared store a durable telling that has waited for so long is dropped.
pub const TOO_LATE: Duration = Duration::from_secs(10);
/// How often the store's marks of deaths are read again: another replica may have left some behind.
pub const REREAD: Duration = Duration::from_secs(5);
/// Marks of deaths that are read at once.
const DEATHS: usize = 1024;
/// First pause after a telling that Redis did not take; it doubles.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// An answer that comes later.
pub type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The store's durable marks of deaths.
pub struct Deaths {
    /// Up to so many deaths that Redis has not been told; none when the store cannot say now.
    pub untold: Box<dyn Fn(usize) -> Later<Vec<Death>> + Send + Sync>,
    /// Redis has been told these. A failure is no harm: they are told again.
    pub told: Box<dyn Fn(Vec<Death>) -> Later<()> + Send + Sync>,
}

impl Deaths {
    /// Of a store that keeps no marks: a death is told from memory only.
    pub fn unmarked() -> Self {
        Self {
            untold: Box::new(|_| Box::pin(std::future::ready(Vec::new()))),
            told: Box::new(|_| Box::pin(std::future::ready(()))),
        }
    }
}

impl fmt::Debug for Deaths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Deaths")
    }
}

/// Tells Redis. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Teller(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    redis: Redis,
    arrangement: Arrangement,
    queue: Mutex<Queue>,
    /// Something was put into the queue.
    more: Notify,
    metrics: Arc<RedisMetrics>,
    clock: Clock,
}

impl Teller {
    /// Starts the task that tells, until `stop`; what then still waits is told once more, so Redis's own task must end
    /// after this one.
    pub fn start(
        redis: Redis,
        arrangement: Arrangement,
        deaths: Deaths,
        metrics: &Metrics,
        clock: Clock,
        tracker: &TaskTracker,
        stop: CancellationToken,
    ) -> Self {
        let teller = Self(Arc::new(Shared {
            redis,
            arrangement,
            queue: Mutex::new(Queue::new(TELLS)),
            more: Notify::new(),
            metrics: metrics.redis(),
            clock,
        }));
        let shared = Arc::clone(&teller.0);
        tracker.spawn(async move { shared.run(&deaths, &stop).await });
        teller
    }

    /// Tells what has just become true in the store that is the current one.
    pub fn tell(&self, source: SourceName, key: DedupeKey, tell: Tell) {
        match self.0.redis.namespace() {
            Some(namespace) => self.tell_of(namespace, source, key, tell),
            None => self.0.metrics.tell_dropped(TellDropped::OtherStore),
        }
    }

    /// Tells what has just become true in the store that this is the namespace of: for whoever knows in which one the
    /// commit was made.
    pub fn tell_of(&self, namespace: Namespace, source: SourceName, key: DedupeKey, tell: Tell) {
        self.0.push(Telling {
            namespace,
            source,
            key,
            tell,
            since: self.0.clock.monotonic(),
        });
        self.0.more.notify_one();
    }

    /// A dispatch died. The store has marked it, so that it is told even if this process ends before.
    pub fn died(&self, death: Death) {
        let Death { source, key, event } = death;
        self.tell(source, key, Tell::Dead { event });
    }

    /// Whether a death of the key is known here and not to Redis yet.
    pub fn has_death(&self, source: &SourceName, key: &DedupeKey) -> bool {
        let queue = self.0.queue();
        queue.deaths() > 0 && queue.has_death(&(source.clone(), *key))
    }

    /// How much waits or is being told.
    pub fn len(&self) -> usize {
        self.0.queue().len()
    }

    /// Whether Redis has been told everything.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, telling: Telling) {
        let mut queue = self.queue();
        let pushed = queue.push(telling);
        self.count(&queue);
        drop(queue);
        if pushed == Pushed::Overflowed {
            self.metrics.tell_dropped(TellDropped::Overflow);
        }
    }

    fn count(&self, queue: &Queue) {
        self.metrics
            .tells_queued
            .set(i64::try_from(queue.len()).unwrap_or(i64::MAX));
    }

    async fn run(&self, deaths: &Deaths, stop: &CancellationToken) {
        let mut pause = PAUSE_FIRST;
        let mut reread = self.clock.monotonic();
        let mut more_marks = false;
        loop {
            let now = self.clock.monotonic();
            if now >= reread || (more_marks && self.queue().deaths() == 0) {
                more_marks = self.reread(deaths).await;
                reread = now.after(REREAD);
            }
            if !self.queue().has_waiting() {
                tokio::select! {
                    () = self.more.notified() => {}
                    () = tokio::time::sleep(reread.since(now)) => {}
                    () = stop.cancelled() => return self.last_words(deaths).await,
                }
                continue;
            }
            let is_ready = tokio::select! {
                () = self.redis.ready() => true,
                () = tokio::time::sleep(PAUSE_MAX) => false,
                () = stop.cancelled() => return self.last_words(deaths).await,
            };
            if !is_ready {
                // What is too late is dropped also while Redis is away.
                self.drop_late();
                continue;
            }
            if self.tell_slice(deaths).await {
                pause = PAUSE_FIRST;
                continue;
            }
            tokio::select! {
                () = tokio::time::sleep(pause.mul_f64(rand::random_range(0.5..1.0))) => {}
                () = stop.cancelled() => return self.last_words(deaths).await,
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// At the end what still waits is told once, if Redis is there.
    async fn last_words(&self, deaths: &Deaths) {
        while self.redis.is_up() && self.queue().has_waiting() && self.tell_slice(deaths).await {}
    }

    /// Reads the store's marks; says whether there may be more.
    async fn reread(&self, deaths: &Deaths) -> bool {
        let Some(namespace) = self.redis.namespace() else {
            return false;
        };
        let untold = (deaths.untold)(DEATHS).await;
        let is_full = untold.len() >= DEATHS;
        for Death { source, key, event } in untold {
            self.push(Telling {
                namespace: namespace.clone(),
                source,
                key,
                tell: Tell::Dead { event },
                since: self.clock.monotonic(),
            });
        }
        is_full
    }

    fn is_late(&self, telling: &Telling) -> bool {
        self.arrangement == Arrangement::Shared
            && !matches!(telling.tell, Tell::Dead { .. })
            && self.clock.monotonic().since(telling.since) >= TOO_LATE
    }

    fn drop_late(&self) {
        let mut queue = self.queue();
        for (number, telling) in queue.take(usize::MAX) {
            if self.is_late(&telling) {
                queue.done(number, &telling);
                self.metrics.tell_dropped(TellDropped::TooLate);
            } else {
                queue.again(number, &telling);
            }
        }
        self.count(&queue);
    }

    /// The next slice, without what has become too late.
    fn next_slice(&self) -> (Vec<Number>, Vec<Telling>) {
        let mut queue = self.queue();
        let (late, fresh): (Vec<_>, Vec<_>) = queue
            .take(SLICE)
            .into_iter()
            .partition(|(_, telling)| self.is_late(telling));
        for (number, telling) in &late {
            queue.done(*number, telling);
            self.metrics.tell_dropped(TellDropped::TooLate);
        }
        self.count(&queue);
        fresh.into_iter().unzip()
    }

    /// Tells one slice; says whether Redis took all of it.
    async fn tell_slice(&self, deaths: &Deaths) -> bool {
        let (numbers, tellings) = self.next_slice();
        let told = self.redis.tell(&tellings).await;
        let mut dead = Vec::new();
        let mut refused = 0;
        let mut all = true;
        {
            let mut queue = self.queue();
            for ((number, telling), told) in numbers.into_iter().zip(&tellings).zip(told) {
                match told {
                    Told::Yes => {
                        if let Tell::Dead { event } = telling.tell {
                            dead.push(Death {
                                source: telling.source.clone(),
                                key: telling.key,
                                event,
                            });
                        }
                        queue.done(number, telling);
                    }
                    Told::Silent => {
                        all = false;
                        queue.again(number, telling);
                    }
                    Told::Refused => {
                        refused += 1;
                        self.metrics.tell_dropped(TellDropped::Refused);
                        queue.done(number, telling);
                    }
                    Told::OtherStore => {
                        self.metrics.tell_dropped(TellDropped::OtherStore);
                        queue.done(number, telling);
                    }
                }
            }
            self.count(&queue);
        }
        if refused > 0 {
            debug!(
                refused,
                "redis does not let us run scripts; a key goes on naming a copy that is gone"
            );
        }
        if !dead.is_empty() {
            (deaths.told)(dead).await;
        }
        all
    }
}
