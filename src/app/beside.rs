//! [`Beside`]: what stands beside the store and knows what it has made durable: the memory of recent keys and, where it is
//! configured, Redis. Built before the store, since the store tells it of every commit; joined to it afterwards.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::warn;

use crate::dedupe::arbiter::arbitrate;
use crate::dedupe::front::{Behind, Front};
use crate::dedupe::memory::RecentKeys;
use crate::dedupe::observer::Observer;
use crate::dedupe::protocol::{Arrangement, Protocol};
use crate::dedupe::redis::Redis;
use crate::dedupe::renew::renew;
use crate::dedupe::settings::{Namespace, RedisSettings};
use crate::dedupe::teller::{Deaths, Teller};
use crate::routes::idempotency::memory::Memory;
use crate::store::Store;
use crate::store::model::Notice;
use crate::store::settings::{Place, StoreSettings};
use crate::telemetry::metrics::Metrics;
use crate::time::Clock;

/// Keys that the in-process memory holds: some 10 MiB.
pub(super) const RECENT_KEYS: usize = 65_536;
/// How long the memory believes a key on a shared store: a dispatch that dies at another replica must be revived by a
/// redelivery soon after, and nobody can tell us in time.
const SHARED_MEMORY: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug)]
pub(super) struct Beside {
    memory: Arc<RecentKeys>,
    /// Of idempotent calls.
    answers: Memory,
    behind: Option<Behind>,
    /// What Redis's keys begin with, where the store's identity is part of it.
    namespace: watch::Sender<Option<Namespace>>,
    /// As configured.
    own_namespace: Option<Namespace>,
    /// Set once the store is open; the teller reads its marks of deaths.
    store: Arc<OnceLock<Store>>,
    metrics: Metrics,
    clock: Clock,
    /// Whoever talks to Redis for the store, and the teller.
    talking: Tasks,
    /// The connection to Redis, which ends last: the teller has last words.
    connection: Tasks,
}

/// Tasks that end together.
#[derive(Debug, Default)]
struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
}

impl Tasks {
    async fn end(self) {
        self.stop.cancel();
        self.tracker.close();
        self.tracker.wait().await;
    }
}

impl Beside {
    /// Starts what does not need the store.
    pub(super) fn start(
        store: &StoreSettings,
        redis: Option<RedisSettings>,
        answers: Memory,
        metrics: &Metrics,
        clock: &Clock,
    ) -> Self {
        let arrangement = match &store.place {
            Place::Postgres(_) => Arrangement::Shared,
            Place::Sqlite(_) => Arrangement::Separate(redis.as_ref().map(|redis| redis.on_down).unwrap_or_default()),
        };
        let mut memory = RecentKeys::new(RECENT_KEYS, store.digest_window);
        if arrangement == Arrangement::Shared {
            memory = memory.for_seconds(SHARED_MEMORY, clock.clone());
        }
        let memory = Arc::new(memory);
        let (talking, connection) = (Tasks::default(), Tasks::default());
        let own_namespace = redis.as_ref().and_then(|redis| redis.namespace.clone());
        let known = own_namespace.clone().filter(|_| arrangement != Arrangement::Shared);
        let namespace = watch::Sender::new(known);
        let opened = Arc::new(OnceLock::new());
        let behind = redis.map(|settings| {
            let redis = Redis::start(
                settings,
                namespace.subscribe(),
                metrics,
                clock.clone(),
                &connection.tracker,
                connection.stop.clone(),
            );
            let teller = Teller::start(
                redis.clone(),
                arrangement,
                deaths(&opened),
                metrics,
                clock.clone(),
                &talking.tracker,
                talking.stop.clone(),
            );
            Behind {
                redis,
                teller,
                protocol: Protocol {
                    arrangement,
                    digest_window: store.digest_window,
                },
            }
        });
        Self {
            memory,
            answers,
            behind,
            namespace,
            own_namespace,
            store: opened,
            metrics: metrics.clone(),
            clock: clock.clone(),
            talking,
            connection,
        }
    }

    /// What the store tells of its commits.
    pub(super) fn notices(&self) -> Box<dyn FnMut(Notice) + Send> {
        let redis = self
            .behind
            .as_ref()
            .map(|behind| (behind.teller.clone(), behind.protocol));
        let observer = Observer::new(Arc::clone(&self.memory), redis);
        let memory = Arc::clone(&self.memory);
        let metrics = self.metrics.clone();
        Box::new(move |notice: Notice| {
            if let Notice::Admitted { source, admission, .. } = &notice {
                metrics.source(source).admitted(admission);
            }
            observer.observe(&notice);
            let keys = i64::try_from(memory.len()).unwrap_or(i64::MAX);
            metrics.server().recent_keys.set(keys);
        })
    }

    /// The store is open: what needs it starts.
    pub(super) fn join(&self, store: &Store) {
        if self.store.set(store.clone()).is_err() {
            warn!("joined to a second store");
        }
        if let Some(identity) = store.identity() {
            let follow = follow(
                identity,
                self.own_namespace.clone(),
                self.namespace.clone(),
                Arc::clone(&self.memory),
                self.answers.clone(),
                self.talking.stop.clone(),
            );
            self.talking.tracker.spawn(follow);
        }
        let Some(behind) = &self.behind else { return };
        if let (Arrangement::Separate(on_down), Some(claims)) = (behind.protocol.arrangement, store.claims()) {
            let Tasks { tracker, stop } = &self.talking;
            tracker.spawn(renew(store.clone(), behind.redis.clone(), stop.clone()));
            tracker.spawn(arbitrate(
                claims,
                store.clone(),
                behind.redis.clone(),
                behind.protocol,
                on_down,
                self.clock.clone(),
                stop.clone(),
            ));
        }
    }

    /// What the data path asks.
    pub(super) fn front(&self) -> Front {
        Front::new(Arc::clone(&self.memory), self.behind.clone())
    }

    /// Redis, where it is configured.
    pub(super) fn redis(&self) -> Option<Redis> {
        self.behind.as_ref().map(|behind| behind.redis.clone())
    }

    /// Ends all of it; the store's marks of what Redis was not told stay for the next start.
    pub(super) async fn stop(self) {
        self.talking.end().await;
        self.connection.end().await;
    }
}

/// The store's marks, once there is a store.
fn deaths(store: &Arc<OnceLock<Store>>) -> Deaths {
    let (untold, told) = (Arc::clone(store), Arc::clone(store));
    Deaths {
        untold: Box::new(move |most| {
            let store = untold.get().cloned();
            Box::pin(async move {
                match store {
                    // A store that cannot say now is asked again soon.
                    Some(store) => store.untold_deaths(most).await.unwrap_or_default(),
                    None => Vec::new(),
                }
            })
        }),
        told: Box::new(move |deaths| {
            let store = told.get().cloned();
            Box::pin(async move {
                if let Some(store) = store
                    && let Err(error) = store.deaths_told(deaths).await
                {
                    tracing::debug!(%error, "deaths will be told again");
                }
            })
        }),
    }
}

/// Keeps the namespace what the shared store's identity makes it. Another identity is another store: what the memories
/// know does not speak for it.
async fn follow(
    mut identity: watch::Receiver<Option<Arc<str>>>,
    own: Option<Namespace>,
    namespace: watch::Sender<Option<Namespace>>,
    memory: Arc<RecentKeys>,
    answers: Memory,
    stop: CancellationToken,
) {
    let (mut last, mut known) = (None, None);
    loop {
        let now = identity.borrow_and_update().clone();
        if now != last {
            memory.clear();
            namespace.send_replace(now.as_deref().and_then(|identity| joined(own.as_ref(), identity)));
        }
        // Answers that were given may be given again while the store is away; another store is asked anew.
        if now.is_some() && now != known {
            answers.clear();
            known.clone_from(&now);
        }
        last = now;
        tokio::select! {
            () = stop.cancelled() => return,
            changed = identity.changed() => if changed.is_err() { return },
        }
    }
}

fn joined(own: Option<&Namespace>, identity: &str) -> Option<Namespace> {
    match own {
        Some(own) => Namespace::new(&format!("{own}.{identity}")),
        None => Namespace::new(identity),
    }
}
