//! [`Driver`]: carries out what the pure [`Lane`] says for one upstream. One lane task takes dispatches from the store's
//! feed as the lane allows; each attempt is a task of its own.
//!
//! A dispatch is in one of three hands: the feed's (leased, in the store's window), the lane task's (one at most, taken
//! while the lane changed its mind), an attempt's. Whoever drops it unsettled, also by a panic or at the end of the
//! process, gives it back; the guards here free its slot likewise. So nothing is lost and no slot leaks (P8, P7).
//!
//! **Replicas of a shared store.** Each has a driver for the upstream. What they must agree on goes through the store:
//!
//! - *The pace.* Each time round, the lane takes over [`Store::share`], and it reports what it makes of it in the same
//!   hold of the lock, so that the store never believes units free that an attempt was just started on. A lane that may
//!   start nothing leaves nothing lying in its window; one with a part of the pace, only what it will start soon.
//! - *Pause and resume.* [`Orders`] says which order counts; the record is looked at once a second.
//! - *Stopped time.* Each lane counts its own; the store keeps the largest that any of them saved, and each lane counts on
//!   from there. So the give-up clocks stand still while any replica is stopped, no moment counts twice, and an error
//!   keeps a dispatch for longer, never for less.

mod attempts;
mod urgent;

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::Notify;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};

use crate::forward::answer::Answers;
use crate::forward::breaker::BreakerState;
use crate::forward::driver::attempts::{Death, Running, Why};
use crate::forward::driver::urgent::Urgent;
use crate::forward::lane::{Lane, LaneStatus, Step};
use crate::forward::message::{Body, Envelope};
use crate::forward::orders::{Obey, Orders};
use crate::forward::settings::{SourceSettings, UpstreamSettings};
use crate::id::{SourceName, UpstreamName};
use crate::net::connections::Connections;
use crate::store::model::{LaneRecord, LaneSave, LeasedDispatch};
use crate::store::{Feed, Store, StoreError};
use crate::telemetry::metrics::{Metrics, UpstreamMetrics};
use crate::time::{Clock, Monotonic};

/// How often idle connections are closed and the lane's record is looked at.
const TICK: Duration = Duration::from_secs(1);
/// Stopped time that may be missing from the store's record after a crash.
const RECORD_EVERY: Duration = Duration::from_secs(10);
/// How long a lane waits for a store that does not answer, where it must not wait for ever: for its record, and for
/// outcomes after attempts were cut off.
const STORE_PATIENCE: Duration = Duration::from_secs(2);
/// How long a person waits for the store to take an order.
const ORDER_PATIENCE: Duration = Duration::from_secs(10);
/// Warnings about attempts that failed come at most this often; the ones between are counted.
const WARN_EVERY: Duration = Duration::from_secs(10);

/// What all lanes share.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) sources: ArcSwap<Sources>,
    pub(super) store: Store,
    pub(super) metrics: Metrics,
    pub(super) clock: Clock,
    pub(super) tracker: TaskTracker,
    /// Senders that wait for an answer.
    pub(super) answers: Arc<Answers>,
    /// Take no more from the feeds.
    pub(super) stop: CancellationToken,
    /// Let go of running attempts.
    pub(super) cut: CancellationToken,
}

pub(super) type Sources = HashMap<SourceName, Arc<SourceSettings>>;

impl Common {
    pub(super) fn source(&self, name: &SourceName) -> Option<Arc<SourceSettings>> {
        self.sources.load().get(name).cloned()
    }
}

/// What the configuration makes of an upstream. An exchange is made with the one it began with.
#[derive(Debug)]
struct Setup {
    settings: Arc<UpstreamSettings>,
    envelope: Envelope,
    connections: Arc<Connections<Body>>,
    metrics: Arc<UpstreamMetrics>,
}

impl Setup {
    /// `connections` that are open already, or new ones.
    fn new(settings: UpstreamSettings, connections: Option<Arc<Connections<Body>>>, common: &Common) -> Self {
        let connections = connections.unwrap_or_else(|| {
            Arc::new(Connections::new(
                &settings.remote,
                common.clock.clone(),
                common.tracker.clone(),
            ))
        });
        Self {
            envelope: Envelope::new(&settings.remote.origin, settings.preserve_host),
            connections,
            metrics: common.metrics.upstream(&settings.name),
            settings: Arc::new(settings),
        }
    }
}

/// One upstream's lane with everything it needs.
#[derive(Debug)]
pub(super) struct Driver {
    name: UpstreamName,
    setup: ArcSwap<Setup>,
    common: Arc<Common>,
    /// The lane task has it. A lane that comes back waits for the end of the task that it had before.
    baton: tokio::sync::Mutex<()>,
    /// Never held over an await.
    state: Mutex<State>,
    /// Wakes the lane task when `state.blocked` was set, or a sender came.
    changed: Notify,
}

#[derive(Debug)]
struct State {
    lane: Lane,
    /// The lane task waits for a change and not for the feed. Who brings the change wakes it; at full speed nobody
    /// needs to.
    blocked: bool,
    /// Senders that wait for a slot.
    urgent: Urgent,
    /// Which of people's orders it obeys.
    orders: Orders,
    /// The stopped time that the store has.
    saved: Duration,
    warned: Option<Monotonic>,
    unwarned: u64,
}

impl Driver {
    pub(super) fn new(settings: UpstreamSettings, record: LaneRecord, common: Arc<Common>) -> Self {
        let now = common.clock.monotonic();
        Self {
            name: settings.name.clone(),
            baton: tokio::sync::Mutex::default(),
            changed: Notify::new(),
            state: Mutex::new(State {
                lane: Lane::new(&settings, record.paused, record.stopped_total, now),
                blocked: false,
                urgent: Urgent::default(),
                orders: Orders::new(record),
                saved: record.stopped_total,
                warned: None,
                unwarned: 0,
            }),
            setup: ArcSwap::from_pointee(Setup::new(settings, None, &common)),
            common,
        }
    }

    /// From now on the upstream has these settings. Attempts that run go on as they began; new ones have new connections
    /// where the old ones lead elsewhere.
    pub(super) fn retune(&self, settings: UpstreamSettings) {
        let before = self.setup.load_full();
        if *before.settings == settings {
            return;
        }
        let kept = settings.remote == before.settings.remote;
        let connections = kept.then(|| Arc::clone(&before.connections));
        self.take_over(settings, connections);
        if !kept {
            before.connections.close_all();
        }
        info!(upstream = %self.name, new_connections = !kept, "the upstream's settings have changed");
    }

    /// The upstream is in the configuration again. What it left running still counts, and its breaker is as it was.
    pub(super) fn come_back(&self, settings: UpstreamSettings) {
        self.take_over(settings, None);
    }

    fn take_over(&self, settings: UpstreamSettings, connections: Option<Arc<Connections<Body>>>) {
        let setup = Arc::new(Setup::new(settings, connections, &self.common));
        self.setup.store(Arc::clone(&setup));
        self.change(|lane, now| lane.retune(&setup.settings, now));
    }

    /// The upstream has left the configuration, and its lane task is about to end.
    pub(super) fn retire(&self) {
        self.setup.load().connections.close_all();
        info!(upstream = %self.name, "the upstream has left the configuration: its dispatches are held");
    }

    /// The lane task: runs until told to stop, or until the store closes or has no such upstream any more.
    pub(super) async fn run(self: Arc<Self>, mut feed: Feed, stop: CancellationToken) {
        let _one_task_at_a_time = self.baton.lock().await;
        self.state().urgent.open();
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut stopped = pin!(stop.cancelled());
        let mut in_hand: Option<LeasedDispatch> = None;
        loop {
            let now = self.now();
            let appetite = self.take_over_share(now);
            self.serve_urgent(in_hand.is_some() || feed.has_ready());
            if let Some(dispatch) = in_hand.take() {
                let slot = self.state().lane.start(now);
                match slot {
                    Some(slot) => self.launch(dispatch, Running::new(Arc::clone(&self), slot), None),
                    None => in_hand = Some(dispatch),
                }
            }
            let step = self.step(now);
            if let Some(appetite) = appetite {
                if appetite == 0
                    && let Some(dispatch) = in_hand.take()
                {
                    feed.put_back(dispatch);
                }
                feed.limit(appetite);
            }
            let alarm = match step {
                Step::WaitUntil(time) => Some(time),
                Step::Start | Step::WaitForChange => None,
            };
            let alarm = alarm.into_iter().chain(self.lapse(now)).min();
            let wait = alarm.map_or(Duration::ZERO, |time| time.since(now));
            tokio::select! {
                biased;
                () = &mut stopped => break,
                () = self.changed.notified() => {}
                _ = tick.tick() => self.keep_house().await,
                () = tokio::time::sleep(wait), if alarm.is_some() => {}
                () = std::future::ready(()), if step == Step::Start && in_hand.is_some() => {}
                next = feed.next(), if step == Step::Start && in_hand.is_none() => match next {
                    Some(dispatch) => in_hand = self.still_wanted(dispatch),
                    None => break,
                },
            }
        }
        drop(in_hand);
        self.refuse_urgent();
        // The store gives the units to others when nothing runs here that needs them.
        self.take_over_share(self.now());
        if self.common.stop.is_cancelled() {
            self.setup.load().connections.close_all();
        }
        self.save_record().await;
        if !self.common.stop.is_cancelled() {
            self.hide();
        }
    }

    /// A person stops the lane, at all replicas and over restarts, or starts it again. It is obeyed here in any case; an
    /// error says that the store did not take it.
    pub(super) async fn order(self: &Arc<Self>, order: Obey) -> Result<(), StoreError> {
        self.change_state(|state, now| {
            state.orders.given();
            obey(state, order, now);
        });
        info!(upstream = %self.name, ?order, "ordered by a person");
        self.show();
        // A task of its own: who asked may go away, and the answer must be heard.
        let driver = Arc::clone(self);
        let saving = self.common.tracker.spawn(async move { driver.save_order(order).await });
        match tokio::time::timeout(ORDER_PATIENCE, saving).await {
            Ok(Ok(saved)) => saved,
            Ok(Err(ended)) => Err(StoreError::Failed(ended.to_string())),
            Err(_elapsed) => Err(StoreError::Failed("it has not answered yet".to_owned())),
        }
    }

    async fn save_order(&self, order: Obey) -> Result<(), StoreError> {
        let save = LaneSave {
            order: Some(order == Obey::Pause),
            stopped_total: self.change(Lane::stopped_total),
        };
        let saved = tokio::select! {
            biased;
            saved = self.common.store.save_lane_record(self.name.clone(), save) => saved,
            () = self.after_cut() => Err(StoreError::Closing),
        };
        let record = saved.as_ref().ok().copied();
        self.change_state(|state, now| {
            state.saved = record.map_or(state.saved, |record| record.stopped_total.max(state.saved));
            if let Some(order) = state.orders.answered(record) {
                obey(state, order, now);
            }
        });
        self.show();
        saved.map(|_record| ())
    }

    pub(super) fn status(&self) -> LaneStatus {
        let now = self.now();
        self.state().lane.status(now)
    }

    /// Whether the store has the last order that was given here.
    pub(super) fn order_is_saved(&self) -> bool {
        self.state().orders.are_saved()
    }

    pub(super) fn settings(&self) -> Arc<UpstreamSettings> {
        Arc::clone(&self.setup.load().settings)
    }

    /// Holds the lane to what the store says is this replica's; answers how much may lie ready for it, where another
    /// replica could send it.
    fn take_over_share(&self, now: Monotonic) -> Option<usize> {
        let share = self.common.store.share(&self.name);
        if share != self.state().lane.share() {
            self.change(|lane, now| lane.set_share(share, now));
        }
        self.state().lane.appetite(now)
    }

    /// When the share lapses, if that lies ahead.
    fn lapse(&self, now: Monotonic) -> Option<Monotonic> {
        self.state().lane.lapses_at().filter(|end| *end > now)
    }

    /// Once a second.
    async fn keep_house(&self) {
        self.setup.load().connections.close_idle();
        self.look_around();
        let status = self.show();
        let missing = status.stopped_total.saturating_sub(self.state().saved);
        if missing >= RECORD_EVERY {
            self.save_record().await;
        }
    }

    /// What other replicas did.
    fn look_around(&self) {
        let name = &self.name;
        let record = self.common.store.lane_record(name);
        let stopped = self.common.store.stopped_total(name);
        let obeyed = self.change_state(|state, now| {
            if let Some(stopped) = stopped {
                state.lane.raise_stopped(stopped, now);
                state.saved = state.saved.max(stopped);
            }
            let order = state.orders.seen(record)?;
            obey(state, order, now);
            Some(order)
        });
        if let Some(order) = obeyed {
            info!(upstream = %name, ?order, "ordered by a person at another replica");
        }
    }

    /// Leaves the lane's state in the metrics.
    fn show(&self) -> LaneStatus {
        let status = self.status();
        let metrics = &self.setup.load().metrics;
        metrics.paused.set(i64::from(status.paused));
        metrics
            .breaker_open
            .set(i64::from(status.breaker == BreakerState::Open));
        metrics.held_for(status.held_for.unwrap_or_default());
        status
    }

    /// There is no lane any more whose state could be shown.
    fn hide(&self) {
        let metrics = &self.setup.load().metrics;
        metrics.paused.set(0);
        metrics.breaker_open.set(0);
        metrics.held_for(Duration::ZERO);
    }

    /// Saves what the store should remember, if it takes it soon. If not, the next tick tries again; a crash before
    /// that counts some stopped time as running.
    async fn save_record(&self) {
        let saved = tokio::time::timeout(STORE_PATIENCE, self.try_save_record()).await;
        if !matches!(saved, Ok(Ok(()))) {
            debug!(upstream = %self.name, "could not save the lane's record");
        }
    }

    async fn try_save_record(&self) -> Result<(), StoreError> {
        let save = LaneSave {
            order: None,
            stopped_total: self.change(Lane::stopped_total),
        };
        if save.stopped_total == self.state().saved {
            return Ok(());
        }
        let name = self.name.clone();
        let saved = self.common.store.save_lane_record(name, save).await?;
        let mut state = self.state();
        state.saved = state.saved.max(saved.stopped_total);
        Ok(())
    }

    fn metrics(&self) -> Arc<UpstreamMetrics> {
        Arc::clone(&self.setup.load().metrics)
    }

    fn step(&self, now: Monotonic) -> Step {
        let mut state = self.state();
        let step = state.lane.step(now);
        state.blocked = step != Step::Start;
        step
    }

    fn change<T>(&self, change: impl FnOnce(&mut Lane, Monotonic) -> T) -> T {
        self.change_state(|state, now| change(&mut state.lane, now))
    }

    /// Changes the lane, wakes the lane task if it waits for that, and tells the store of its share and people of the
    /// breaker.
    fn change_state<T>(&self, change: impl FnOnce(&mut State, Monotonic) -> T) -> T {
        let now = self.now();
        let mut state = self.state();
        let before = state.lane.breaker_state();
        let result = change(&mut state, now);
        let after = state.lane.breaker_state();
        if let Some(used) = state.lane.share_use() {
            self.common.store.report_share_use(&self.name, used);
        }
        let wake = !state.urgent.is_empty() || (state.blocked && state.lane.step(now) != Step::WaitForChange);
        if wake {
            state.blocked = false;
        }
        drop(state);
        if wake {
            self.changed.notify_one();
        }
        let upstream = &self.name;
        match after {
            _ if before == after => {}
            BreakerState::Open => warn!(%upstream, "breaker opened: the upstream fails"),
            BreakerState::Ramping => info!(%upstream, "breaker closing: the upstream answers"),
            BreakerState::Closed => info!(%upstream, "breaker closed"),
        }
        result
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The pure core is whole between any two of its steps.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Monotonic {
        self.common.clock.monotonic()
    }
}

fn obey(state: &mut State, order: Obey, now: Monotonic) {
    match order {
        Obey::Pause => state.lane.pause(now),
        Obey::Resume => state.lane.resume(now),
    }
}
