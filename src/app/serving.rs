//! [`Parts`]: what serves the public listener and outlives a configuration, and how one configuration after the other is
//! served with it.

use std::sync::{Arc, OnceLock};

use ipnet::IpNet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::Live;
use crate::dedupe::front::Front;
use crate::dedupe::redis::Redis;
use crate::forward::Forwarder;
use crate::ingest::body::{Bodies, Budget};
use crate::ingest::source::Limits;
use crate::ingest::{Ingest, IngestSettings};
use crate::learn::Learners;
use crate::net::tls::Certificates;
use crate::public::Serving;
use crate::routes::idempotency::memory::Memory;
use crate::routes::idempotency::{self, SharedParts};
use crate::routes::{Routes, RoutesSettings};
use crate::store::Store;
use crate::telemetry::metrics::Metrics;
use crate::time::Clock;

/// See the module.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) limits: Limits,
    pub(super) store: Store,
    pub(super) front: Front,
    pub(super) redis: Option<Redis>,
    /// Of idempotent calls.
    pub(super) answers: Memory,
    pub(super) forwarder: Forwarder,
    pub(super) learners: Learners,
    pub(super) metrics: Metrics,
    pub(super) clock: Clock,
    pub(super) tracker: TaskTracker,
    /// Ends tunnels and idle connections.
    pub(super) stop: CancellationToken,
    /// What handshakes of the public listener take, where it speaks TLS.
    pub(super) certificates: Option<Arc<Certificates>>,
    /// From the first route with `idempotency` on: its calls run over reloads, and their repetitions must find them.
    pub(super) calls: OnceLock<idempotency::Shared>,
}

impl Parts {
    /// Serves the configuration of the start.
    pub(super) fn first(&self, live: &Live) -> Serving {
        let sources = live.sources.clone();
        Serving {
            ingest: Ingest::new(
                IngestSettings {
                    limits: self.limits.clone(),
                    sources,
                    trusted_proxies: live.trusted_proxies.clone(),
                    budget: self.budget(Bodies::Events),
                    learners: self.learners.clone(),
                },
                self.store.clone(),
                self.front.clone(),
                self.forwarder.clone(),
                self.metrics.clone(),
                self.clock.clone(),
                self.tracker.clone(),
            ),
            routes: Routes::new(
                self.routes(live),
                &live.sources,
                self.metrics.clone(),
                self.clock.clone(),
                self.tracker.clone(),
                self.stop.clone(),
            ),
            health_path: live.health_path.clone(),
        }
    }

    /// Serves the configuration behind that of `before`.
    pub(super) fn next(&self, before: &Serving, live: &Live) -> Serving {
        let proxies: Vec<IpNet> = live.trusted_proxies.clone();
        Serving {
            ingest: before.ingest.successor(live.sources.clone(), proxies),
            routes: before.routes.successor(self.routes(live), &live.sources),
            health_path: live.health_path.clone(),
        }
    }

    fn routes(&self, live: &Live) -> RoutesSettings {
        let has_keys = live.routes.iter().any(|route| route.idempotency.is_some());
        RoutesSettings {
            idempotency: has_keys.then(|| self.calls.get_or_init(|| self.calls()).clone()),
            routes: live.routes.clone(),
            trusted_proxies: live.trusted_proxies.clone(),
            body_timeout: self.limits.body_timeout,
        }
    }

    fn calls(&self) -> idempotency::Shared {
        idempotency::Shared::new(SharedParts {
            store: self.store.clone(),
            memory: self.answers.clone(),
            redis: self.redis.clone(),
            budget: self.budget(Bodies::Calls),
            body_timeout: self.limits.body_timeout,
            running: self.limits.connections,
            metrics: self.metrics.clone(),
            clock: self.clock.clone(),
            tracker: self.tracker.clone(),
        })
    }

    fn budget(&self, bodies: Bodies) -> Budget {
        Budget::new(self.limits.in_flight, bodies, self.metrics.clone())
    }
}
