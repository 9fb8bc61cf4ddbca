//! Forwarding: stored events go to their upstreams at the upstreams' own pace.
//!
//! # Theory of operation
//!
//! Each upstream has a [`lane`](lane::Lane) and one task that takes leased dispatches from the store's feed as the lane
//! allows. Each attempt is a task: it composes the [`message`], makes one [exchange](attempt::exchange), asks
//! [`outcome::next`] what becomes of the dispatch, and settles. Everything that decides (lane, breaker, back-off,
//! give-up, signature policy) is pure; everything that acts (driver, connections, attempt) decides nothing.
//!
//! A sender may wait for its event's answer ([`answer`]): whoever has it asks the store for the dispatch, waits for a slot
//! of the lane ahead of its queue, and the attempt is one like any other, but that its whole answer is kept and told.
//!
//! # Promises
//!
//! - **P4** The message is the stored one, but for what section 4 of the design names.
//! - **P7** Lanes share nothing that one could hold up: no permit, no connection, no queue. A slot is taken before a
//!   dispatch is sent and freed when the upstream has answered or failed to.
//! - **P8** A dispatch leaves a lane settled, or is given back by whoever drops it.
//! - **P9** The attempt's number is durable before the lane has the dispatch, and nothing is sent twice under one
//!   number. An attempt without an answer is `unknown` and is tried again.

pub mod answer;
pub mod attempt;
pub mod backoff;
pub mod breaker;
mod driver;
#[cfg(test)]
mod h2_tests;
pub mod lane;
pub mod message;
pub mod orders;
pub mod outcome;
#[cfg(test)]
mod retune_tests;
pub mod settings;
#[cfg(test)]
mod share_tests;
pub mod signature;
pub mod standard_webhooks;
mod tempo;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::HeaderMap;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::error;

use crate::forward::driver::{Common, Driver};
use crate::forward::lane::LaneStatus;
use crate::forward::orders::Obey;
use crate::forward::settings::{SourceSettings, UpstreamSettings};
use crate::id::{SourceName, UpstreamName};
use crate::store::{Store, StoreError};
use crate::telemetry::metrics::Metrics;
use crate::time::Clock;
use crate::verify::record::Record;
use crate::verify::{Verifier, presets};

/// The running lanes. Cheap to clone; all clones are the same forwarder.
#[derive(Clone, Debug)]
pub struct Forwarder {
    /// Of the configured upstreams.
    lanes: Arc<ArcSwap<Lanes>>,
    /// All that there were.
    known: Arc<Mutex<BTreeMap<UpstreamName, Known>>>,
    stop: CancellationToken,
    cut: CancellationToken,
    common: Arc<Common>,
}

type Lanes = BTreeMap<UpstreamName, Arc<Driver>>;

/// A lane that runs or ran. One whose upstream has left the configuration is kept: its attempts may still run, and if the
/// upstream comes back they count, and so does what was started under its rate (P7). There are as many as there were names.
#[derive(Debug)]
struct Known {
    driver: Arc<Driver>,
    /// Ends the lane task.
    stop: CancellationToken,
}

/// One upstream for people.
#[derive(Debug)]
pub struct UpstreamView {
    /// As configured.
    pub settings: Arc<UpstreamSettings>,
    /// Its lane.
    pub lane: LaneStatus,
    /// Whether the store has the last order to pause or to resume that was given here; if not, a restart undoes it.
    pub order_is_saved: bool,
}

/// Why a lane did not do what a person asked.
#[derive(Debug, thiserror::Error)]
pub enum LaneError {
    /// No such `[upstreams.NAME]`.
    #[error("there is no upstream {0} in the configuration")]
    UnknownUpstream(UpstreamName),
    /// It did, but the store does not remember it, as far as is known: a restart would undo it, and other replicas do not
    /// know of it.
    #[error("the store could not remember it")]
    NotRecorded(#[source] StoreError),
}

/// Where requests of a source carry a signature or a token, which people are not shown. Of a source that is not
/// configured any more nobody knows the provider: then it is wherever any preset has it.
#[derive(Debug)]
pub struct ProofPlaces(Option<Arc<Verifier>>);

impl ProofPlaces {
    /// In the header with this name, in lower case.
    pub fn in_header(&self, name: &str) -> bool {
        self.any(|record| record.signs_in_header(name))
    }

    /// In the query parameter with this name.
    pub fn in_query(&self, name: &str) -> bool {
        self.any(|record| record.signs_in_query(name))
    }

    /// The body without the tokens that the provider writes into it; `None` where it has none.
    pub fn without_tokens(&self, headers: &HeaderMap, body: &Bytes, mask: &[u8]) -> Option<Vec<u8>> {
        if let Some(verifier) = &self.0 {
            return verifier.record().without_tokens(headers, body, mask);
        }
        let mut masked = None;
        for record in presets::all() {
            let body = masked.as_ref().unwrap_or(body);
            let without = record.without_tokens(headers, body, mask);
            masked = without.map(Bytes::from).or(masked);
        }
        masked.map(Vec::from)
    }

    fn any(&self, has: impl Fn(&Record) -> bool) -> bool {
        match &self.0 {
            Some(verifier) => has(verifier.record()),
            None => presets::all().any(|record| has(&record)),
        }
    }
}

impl Forwarder {
    /// Starts a lane for each upstream. `sources` say where their events go at the upstream, and sign them anew.
    ///
    /// The store was opened with the same upstreams. All tasks are `tracker`'s. To end: [`Forwarder::stop_leasing`], wait for the tracker for as long as attempts may
    /// take, [`Forwarder::cut_off`], wait again.
    pub fn start(
        upstreams: Vec<UpstreamSettings>,
        sources: impl IntoIterator<Item = (SourceName, SourceSettings)>,
        store: Store,
        metrics: Metrics,
        clock: Clock,
        tracker: TaskTracker,
    ) -> Self {
        let sources = sources.into_iter().map(|(name, settings)| (name, Arc::new(settings)));
        let common = Arc::new(Common {
            sources: ArcSwap::from_pointee(sources.collect()),
            store,
            metrics,
            clock,
            tracker,
            answers: Arc::default(),
            stop: CancellationToken::new(),
            cut: CancellationToken::new(),
        });
        let forwarder = Self {
            lanes: Arc::default(),
            known: Arc::default(),
            stop: common.stop.clone(),
            cut: common.cut.clone(),
            common,
        };
        forwarder.have_lanes(upstreams);
        forwarder
    }

    /// Takes over another configuration, whole, after [`Store::reconfigure`] did; it cannot fail. Once shutdown has begun
    /// nothing changes any more.
    ///
    /// - A lane whose settings are the same is not touched.
    /// - A changed one takes the new pace at once: what runs goes on, and nothing starts until both the new concurrency and
    ///   the new rate allow it; a change never refills a burst (P7). Breaker, pause, hold and stopped time stay. Connections
    ///   are new where the old ones lead elsewhere; attempts that run keep theirs.
    /// - A new one starts. One that was there before goes on as it was left.
    /// - A removed one makes no further attempt. Those that run end by themselves and are settled. Senders that wait for a
    ///   slot are told.
    /// - A source's settings hold for the next attempt. Events of a source that is gone are delivered as they were received,
    ///   as after a start without it. An event whose sender did not wait is delivered as promised, also once
    ///   its source has become synchronous.
    pub fn reconfigure(
        &self,
        upstreams: Vec<UpstreamSettings>,
        sources: impl IntoIterator<Item = (SourceName, SourceSettings)>,
    ) {
        if self.stop.is_cancelled() {
            return;
        }
        let sources = sources.into_iter().map(|(name, settings)| (name, Arc::new(settings)));
        self.common.sources.store(Arc::new(sources.collect()));
        self.have_lanes(upstreams);
    }

    /// Makes the lanes those of `upstreams`.
    fn have_lanes(&self, upstreams: Vec<UpstreamSettings>) {
        let common = &self.common;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lanes = BTreeMap::new();
        for settings in upstreams {
            let name = settings.name.clone();
            if let Some(Known { driver, .. }) = known.get(&name).filter(|lane| !lane.stop.is_cancelled()) {
                driver.retune(settings);
                lanes.insert(name, Arc::clone(driver));
                continue;
            }
            let Some(feed) = common.store.feed(&name) else {
                error!(upstream = %name, "the store was opened without this upstream: its dispatches wait");
                continue;
            };
            let driver = match known.get(&name) {
                Some(Known { driver, .. }) => {
                    driver.come_back(settings);
                    Arc::clone(driver)
                }
                None => {
                    let record = common.store.lane_record(&name);
                    Arc::new(Driver::new(settings, record, Arc::clone(common)))
                }
            };
            let stop = common.stop.child_token();
            common.tracker.spawn(Arc::clone(&driver).run(feed, stop.clone()));
            lanes.insert(name.clone(), Arc::clone(&driver));
            known.insert(name, Known { driver, stop });
        }
        for (name, Known { driver, stop }) in known.iter() {
            if !lanes.contains_key(name) && !stop.is_cancelled() {
                driver.retire();
                stop.cancel();
            }
        }
        self.lanes.store(Arc::new(lanes));
    }

    /// Stops an upstream's lane until it is resumed, at all replicas of a shared store and over restarts. Running attempts
    /// end by themselves; sources go on accepting.
    pub async fn pause(&self, upstream: &UpstreamName) -> Result<(), LaneError> {
        let lane = self.lane(upstream)?;
        lane.order(Obey::Pause).await.map_err(LaneError::NotRecorded)
    }

    /// Starts an upstream's lane again, with a closed breaker and a hold that it had asked for ended; also where it was
    /// not paused.
    pub async fn resume(&self, upstream: &UpstreamName) -> Result<(), LaneError> {
        let lane = self.lane(upstream)?;
        lane.order(Obey::Resume).await.map_err(LaneError::NotRecorded)
    }

    /// Where requests of a source carry what its provider proves them with, while the source is configured.
    pub fn proof_places(&self, source: &SourceName) -> ProofPlaces {
        let sources = self.common.sources.load();
        ProofPlaces(sources.get(source).map(|source| Arc::clone(&source.verifier)))
    }

    /// The upstreams with their lanes as they are now, by name.
    pub fn upstreams(&self) -> Vec<UpstreamView> {
        let lanes = self.lanes.load();
        let view = |lane: &Arc<Driver>| UpstreamView {
            settings: lane.settings(),
            lane: lane.status(),
            order_is_saved: lane.order_is_saved(),
        };
        lanes.values().map(view).collect()
    }

    /// The lanes as they are now, by name.
    pub fn status(&self) -> BTreeMap<UpstreamName, LaneStatus> {
        let lanes = self.lanes.load();
        lanes.iter().map(|(name, lane)| (name.clone(), lane.status())).collect()
    }

    /// Shutdown, first step: lanes take no more dispatches. Running attempts go on.
    pub fn stop_leasing(&self) {
        self.stop.cancel();
    }

    /// Shutdown, last step: attempts that still run are let go of, recorded as `unknown`, and due at once.
    pub fn cut_off(&self) {
        self.cut.cancel();
    }

    fn lane(&self, upstream: &UpstreamName) -> Result<Arc<Driver>, LaneError> {
        match self.lanes.load().get(upstream) {
            Some(lane) => Ok(Arc::clone(lane)),
            None => Err(LaneError::UnknownUpstream(upstream.clone())),
        }
    }
}
