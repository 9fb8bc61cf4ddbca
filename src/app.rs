//! [`App`]: everything that runs, built in order and ended in order, in one place.
//!
//! **Start**: memory and Redis, which need not answer → store (its lock first, so that a second process fails before it
//! touches anything) → forwarder → admin
//! listener → public listener. Nothing is answered before the store is open.
//!
//! **Reload**: another configuration is taken over while all of it runs ([`reload`]); what serves requests is exchanged, what
//! outlives a configuration is in [`serving`].
//!
//! **End** (DESIGN section 7): say so (`/readyz` 503, `Connection: close`) → wait `shutdown_delay`, so that load
//! balancers notice → stop accepting and finish inbound requests (long streams go on beside what follows) → stop leasing
//! and finish attempts until `shutdown_grace` → hand back leases and close the store → admin listener last, so that the end can be watched.

mod beside;
mod judge;
mod reload;
mod serving;
mod watch;

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use anyhow::Context as _;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use self::beside::{Beside, RECENT_KEYS};
pub use self::judge::Start;
use self::reload::Reloader;
use self::serving::Parts;
use crate::admin::Admin;
use crate::config::{Config, Live};
use crate::dedupe::teller::TELLS;
use crate::forward::Forwarder;
use crate::forward::answer::QUESTIONS_MAX;
use crate::forward::settings::{SourceSettings, UpstreamSettings};
use crate::ingest::remember::remember;
use crate::ingest::source::Source;
use crate::learn::Learners;
use crate::net::listen::{self, ListenSettings};
use crate::net::systemd::Notify;
use crate::net::tls::Certificates;
use crate::public::Public;
use crate::reload::{Desk, Reloads};
use crate::routes::idempotency::memory::Memory;
use crate::store::Store;
use crate::store::settings::{Place, StoreSettings};
use crate::telemetry::logging::Logging;
use crate::telemetry::metrics::Metrics;
use crate::time::{Clock, Monotonic};

/// The running server.
#[derive(Debug)]
pub struct App {
    start: Start,
    logging: Logging,
    reloads: Reloads,
    desk: Desk,
    clock: Clock,
    metrics: Metrics,
}

impl App {
    /// Nothing is opened yet.
    pub fn new(start: Start, logging: Logging, clock: Clock) -> Self {
        let (reloads, desk) = Reloads::new(clock.now());
        Self {
            start,
            logging,
            reloads,
            desk,
            clock,
            metrics: Metrics::new(),
        }
    }

    /// Where reloads are asked for; until it runs they wait.
    pub fn reloads(&self) -> Reloads {
        self.reloads.clone()
    }

    /// Runs until `stop`, then ends in order. Returns once the store is closed.
    pub async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        let Self {
            start,
            logging,
            reloads,
            desk,
            clock,
            metrics,
        } = self;
        let config = &start.loaded.config;
        let (store_settings, redis) = (config.store(), config.redis());
        metrics.server().limits.get_or_init(|| bounds(config));
        let answers = Memory::new(config.fixed.limits.replay_cache);
        let beside = Beside::start(&store_settings, redis, answers.clone(), &metrics, &clock);
        // A database may be waited for.
        let store = tokio::select! {
            store = open_store(store_settings, &config.live, &clock, &beside) => store?,
            () = stop.cancelled() => {
                info!("stopped before the store was open");
                return Ok(());
            }
        };
        beside.join(&store);
        let Config { fixed, live } = &start.loaded.config;
        let (limits, place) = (fixed.limits.clone(), fixed.store.place.clone());

        let ingest_tasks = TaskTracker::new();
        let forward_tasks = TaskTracker::new();
        let admin_tasks = TaskTracker::new();
        let forwarder = Forwarder::start(
            live.upstreams.clone(),
            live.sources
                .iter()
                .map(|source| (source.name.clone(), for_forwarding(source))),
            store.clone(),
            metrics.clone(),
            clock.clone(),
            forward_tasks.clone(),
        );

        let forget_nothing = CancellationToken::new();
        let remembering = admin_tasks.spawn(remember(
            metrics.clone(),
            store.clone(),
            clock.clone(),
            forget_nothing.clone(),
        ));

        let admin_listener = bind(fixed.admin.listen, "admin.listen")?;
        let admin_address = admin_listener.local_addr()?;
        let stop_admin = CancellationToken::new();
        let learners = Learners::new(clock.clone(), reloads.clone(), ingest_tasks.clone());
        let admin = Admin::new(
            fixed.admin.clone(),
            forwarder.clone(),
            store.clone(),
            reloads,
            learners.clone(),
            metrics.clone(),
            clock.clone(),
        );
        let shutting_down = admin.shutting_down();
        admin_tasks.spawn(admin.serve(admin_listener, stop_admin.clone()));

        let listener = bind(fixed.listen, "listen")?;
        let address = listener.local_addr()?;
        let stop_accepting = CancellationToken::new();
        let certificates = live
            .tls
            .clone()
            .map(|tls| Arc::new(Certificates::new(tls, metrics.clone(), clock.clone())));
        let tls = certificates.is_some();
        let parts = Parts {
            limits: fixed.limits.clone(),
            store: store.clone(),
            front: beside.front(),
            redis: beside.redis(),
            answers,
            forwarder: forwarder.clone(),
            learners,
            metrics: metrics.clone(),
            clock: clock.clone(),
            tracker: ingest_tasks.clone(),
            stop: stop_accepting.clone(),
            certificates: certificates.clone(),
            calls: OnceLock::new(),
        };
        let public = Arc::new(Public::new(parts.first(live), metrics.clone(), ingest_tasks.clone()));
        let cut_off = CancellationToken::new();
        let accepting = ingest_tasks.spawn(listen::serve(
            listener,
            ListenSettings {
                connections: limits.connections,
                head: limits.head,
                head_timeout: limits.head_timeout,
                idle_timeout: limits.idle_timeout,
                write_timeout: limits.body_timeout,
            },
            certificates,
            Arc::clone(&public),
            metrics,
            clock.clone(),
            ingest_tasks.clone(),
            stop_accepting.clone(),
            cut_off.clone(),
        ));
        let notify = Notify::from_environment();
        let closing = CancellationToken::new();
        let fed = store.clone();
        admin_tasks.spawn(notify.clone().feed(move || !fed.has_ended(), closing.clone()));
        info!(
            version = env!("CARGO_PKG_VERSION"),
            listen = %address,
            tls,
            admin = %admin_address,
            store = %place,
            "listening"
        );
        notify.ready().await;
        let reloader = Reloader::new(start, desk, parts, Arc::clone(&public), logging, notify.clone());
        let running = reloader.live();
        let reloading = admin_tasks.spawn(reloader.run(shutting_down.clone()));

        stop.cancelled().await;

        info!("shutting down");
        notify.stopping().await;
        shutting_down.cancel();
        public.start_draining();
        // From here on nothing changes any more.
        reloading.await.context("the reloader failed")?;
        let Live {
            shutdown_delay,
            shutdown_grace,
            ..
        } = **running.load();
        tokio::time::sleep(shutdown_delay).await;

        stop_accepting.cancel();
        let now = clock.monotonic();
        let (half, deadline) = (now.after(shutdown_grace / 2), now.after(shutdown_grace));
        accepting.await.context("the accept loop failed")?;
        ingest_tasks.close();
        // Half of the time at most: a stream of a route may have no end, and attempts want theirs too.
        if !within(half, &clock, ingest_tasks.wait()).await {
            info!(open = ingest_tasks.len(), "inbound requests still run");
        }
        drop(public);

        forwarder.stop_leasing();
        forward_tasks.close();
        if !within(deadline, &clock, forward_tasks.wait()).await {
            warn!(
                running = forward_tasks.len(),
                "attempts were cut off at the end of shutdown_grace and will be repeated"
            );
        }
        if !within(deadline, &clock, ingest_tasks.wait()).await {
            warn!(
                open = ingest_tasks.len(),
                "inbound requests were cut off at the end of shutdown_grace"
            );
        }
        cut_off.cancel();
        // What still runs is let go of, recorded as unknown, before the store closes.
        forwarder.cut_off();
        forward_tasks.wait().await;

        forget_nothing.cancel();
        remembering.await.context("the use of secrets was not noted")?;
        closing.cancel();
        store.close().await;
        beside.stop().await;
        stop_admin.cancel();
        admin_tasks.close();
        admin_tasks.wait().await;
        info!("stopped");
        Ok(())
    }
}

/// The configured bounds under their keys, so that a metric of use can be seen beside its bound (P6). Durations in
/// seconds.
fn bounds(config: &Config) -> Vec<(&'static str, u64)> {
    let (limits, store) = (&config.fixed.limits, &config.fixed.store);
    let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    let mut bounds = vec![
        ("limits.connections", count(limits.connections)),
        ("limits.head", count(limits.head)),
        ("limits.head_timeout", limits.head_timeout.as_secs()),
        ("limits.body", limits.body),
        ("limits.body_timeout", limits.body_timeout.as_secs()),
        ("limits.idle_timeout", limits.idle_timeout.as_secs()),
        ("limits.in_flight", limits.in_flight),
        ("limits.unadmitted", count(limits.unadmitted)),
        ("limits.replay_cache", limits.replay_cache),
        ("store.max_bytes", store.max_bytes),
        ("recent_keys", count(RECENT_KEYS)),
        ("answers_waiting", count(QUESTIONS_MAX)),
    ];
    if config.fixed.redis.is_some() {
        bounds.push(("tells", count(TELLS)));
    }
    if let Place::Sqlite(sqlite) = &store.place {
        bounds.push(("store.min_free", sqlite.min_free));
    }
    bounds
}

async fn open_store(settings: StoreSettings, live: &Live, clock: &Clock, beside: &Beside) -> anyhow::Result<Store> {
    let lanes = live.upstreams.iter().map(UpstreamSettings::for_store).collect();
    let place = settings.place.to_string();
    Store::open(settings, lanes, clock.clone(), beside.notices())
        .await
        .with_context(|| format!("could not open the store in {place}"))
}

/// What lanes need to know of a source.
fn for_forwarding(source: &Source) -> SourceSettings {
    SourceSettings {
        forward_path: source.forward_path.clone(),
        verifier: Arc::clone(&source.verifier),
        synchronous: source.synchronous,
    }
}

fn bind(address: SocketAddr, key: &str) -> anyhow::Result<TcpListener> {
    listen::bind(address).with_context(|| format!("could not listen on {address} (`{key}`)"))
}

/// Waits for `done` until `deadline`; says whether it came.
async fn within(deadline: Monotonic, clock: &Clock, done: impl Future<Output = ()>) -> bool {
    tokio::time::timeout(deadline.since(clock.monotonic()), done)
        .await
        .is_ok()
}
