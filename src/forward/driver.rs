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

mod urgent;

use std::any::Any;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, error, info, warn};

use crate::forward::answer::{Answers, WaitedFor};
use crate::forward::attempt::{self, Answer, Want};
use crate::forward::backoff::{self, Dice};
use crate::forward::breaker::BreakerState;
use crate::forward::driver::urgent::Urgent;
use crate::forward::lane::{Asked, Lane, LaneStatus, Slot, Step};
use crate::forward::message::{Body, Envelope};
use crate::forward::orders::{Obey, Orders};
use crate::forward::settings::{SourceSettings, UpstreamSettings};
use crate::forward::{outcome, signature};
use crate::id::{EventId, SourceName};
use crate::net::connections::Connections;
use crate::store::model::{Finished, LaneRecord, LaneSave, LeasedDispatch, Next, Outcome, Settled};
use crate::store::{Feed, Store, StoreError};
use crate::telemetry::metrics::{Metrics, UpstreamMetrics};
use crate::time::{Clock, Monotonic, Timestamp};

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
    pub(super) sources: HashMap<SourceName, SourceSettings>,
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

/// One upstream's lane with everything it needs.
#[derive(Debug)]
pub(super) struct Driver {
    settings: UpstreamSettings,
    envelope: Envelope,
    connections: Arc<Connections<Body>>,
    metrics: Arc<UpstreamMetrics>,
    common: Arc<Common>,
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
            envelope: Envelope::new(&settings.origin, settings.preserve_host),
            connections: Arc::new(Connections::new(
                &settings.origin,
                settings.protocol,
                common.clock.clone(),
                common.tracker.clone(),
            )),
            metrics: common.metrics.upstream(&settings.name),
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
            settings,
            common,
        }
    }

    /// The lane task: runs until told to stop or the store closes.
    pub(super) async fn run(self: Arc<Self>, mut feed: Feed) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut stopped = pin!(self.common.stop.cancelled());
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
        self.connections.close_all();
        self.save_record().await;
    }

    /// A person stops the lane, at all replicas and over restarts, or starts it again. It is obeyed here in any case; an
    /// error says that the store did not take it.
    pub(super) async fn order(self: &Arc<Self>, order: Obey) -> Result<(), StoreError> {
        self.change_state(|state, now| {
            state.orders.given();
            obey(state, order, now);
        });
        info!(upstream = %self.settings.name, ?order, "ordered by a person");
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
            saved = self.common.store.save_lane_record(self.settings.name.clone(), save) => saved,
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

    pub(super) fn settings(&self) -> &UpstreamSettings {
        &self.settings
    }

    /// Holds the lane to what the store says is this replica's; answers how much may lie ready for it, where another
    /// replica could send it.
    fn take_over_share(&self, now: Monotonic) -> Option<usize> {
        let share = self.common.store.share(&self.settings.name);
        if share != self.state().lane.share() {
            self.change(|lane, now| lane.set_share(share, now));
        }
        self.state().lane.appetite(now)
    }

    /// When the share lapses, if that lies ahead.
    fn lapse(&self, now: Monotonic) -> Option<Monotonic> {
        self.state().lane.lapses_at().filter(|end| *end > now)
    }

    /// `waited_for`: a sender wants to hear of it.
    pub(super) fn launch(self: &Arc<Self>, dispatch: LeasedDispatch, running: Running, waited_for: Option<WaitedFor>) {
        let task = Arc::clone(self).attempt(dispatch, running, waited_for);
        // Boxed: an attempt is some 5 KB, which the tracker and the runtime would copy four times.
        self.common.tracker.spawn(Box::pin(task));
    }

    /// One attempt from its first byte until the store has its outcome.
    async fn attempt(self: Arc<Self>, dispatch: LeasedDispatch, running: Running, waited_for: Option<WaitedFor>) {
        if !self.common.store.holds(&dispatch) {
            debug!(event = %dispatch.event.id, upstream = %self.settings.name, "not attempted: the lease was lost");
            return;
        }
        let started_at = self.common.clock.now();
        let began = self.now();
        let answer = tokio::select! {
            biased;
            answer = unpanicked(self.exchange(&dispatch, started_at)) => Some(answer),
            () = self.common.cut.cancelled() => None,
        };
        let took = self.now().since(began);
        let due = waited_for.as_ref().map(|waited_for| waited_for.due);
        let (answer, next, settling) = match answer {
            Some(answer) => {
                let (next, settling) = self.judge(&dispatch, &answer, running, due);
                (answer, next, settling)
            }
            None => {
                // Ours, not the upstream's doing: it is repeated at the next start, and no back-off is due.
                let now = self.common.clock.now();
                let due = due.map_or(now, |due| due.max(now));
                (
                    attempt::unknown("cut off by our shutdown".to_owned()),
                    Next::Retry { due },
                    running.cut_off(),
                )
            }
        };
        self.metrics.attempt(&answer.outcome, took);
        self.log_attempt(&dispatch, &answer.outcome, took);
        let finished = Finished {
            lease: dispatch,
            outcome: answer.outcome,
            started_at,
            took,
            excerpt: answer.excerpt,
            reply: answer.reply.clone().filter(|_reply| next == Next::Delivered),
        };
        self.settle(finished, next).await;
        drop(settling);
        // Not before it is durable: a duplicate after a crash must hear the same.
        if let Some(waited_for) = waited_for {
            waited_for.tell(answer.reply);
        }
    }

    async fn exchange(&self, dispatch: &LeasedDispatch, now: Timestamp) -> Answer {
        let source = self.common.sources.get(&dispatch.event.source);
        let target = source.and_then(|source| source.forward_path.as_ref());
        let signature = source.map_or_else(Vec::new, |source| {
            signature::fresh(self.settings.signature, &source.verifier, &dispatch.event, now)
        });
        let request = self.envelope.request(dispatch, target, signature);
        let want = match source.and_then(|source| source.synchronous) {
            Some(_) => Want::Reply,
            None => Want::Excerpt,
        };
        attempt::exchange(&self.connections, request, self.settings.timeout, want).await
    }

    /// What the answer means for the lane and for the dispatch; `due`: when it is the lane's, if a sender waits for it.
    fn judge(
        self: &Arc<Self>,
        dispatch: &LeasedDispatch,
        answer: &Answer,
        running: Running,
        due: Option<Timestamp>,
    ) -> (Next, Settling) {
        let retry = &self.settings.retry;
        let now = self.common.clock.now();
        let retry_after = answer
            .retry_after
            .as_ref()
            .filter(|_| outcome::honours_retry_after(&answer.outcome))
            .and_then(|value| backoff::retry_after(value, retry, now));
        let asked = retry_after.map(|wait| Asked {
            event: dispatch.event.id,
            wait,
        });
        let (settling, stopped_total) = running.ended(&answer.outcome, asked);
        let stopped_anywhere = self.common.store.stopped_total(&self.settings.name);
        let stopped_total = stopped_total.max(stopped_anywhere.unwrap_or_default());
        let context = outcome::Context {
            now,
            clock_started_at: dispatch.clock_started_at,
            stopped: stopped_total.saturating_sub(dispatch.clock_stopped_before),
            attempts_on_clock: dispatch.attempts_on_clock,
            retry_after,
            clock_trusted: self.common.store.clock_is_trusted(),
        };
        let dice = Dice(rand::random());
        let next = match (due, self.synchronous(dispatch)) {
            (Some(due), Some(synchronous)) => {
                outcome::next_while_waited_for(&answer.outcome, synchronous.late, retry, &context, due, dice)
            }
            _ => outcome::next(&answer.outcome, retry, &context, dice),
        };
        (next, settling)
    }

    /// Hands the outcome to the store, which waits while it cannot write: the outcome is not lost while the process
    /// lives. How many wait is bounded by the lane; after the cut they wait no longer, so that a store which cannot write
    /// does not hold up the end.
    async fn settle(&self, finished: Finished, next: Next) {
        let upstream = &self.settings.name;
        let id = finished.lease.event.id;
        let death = (next == Next::Dead).then(|| Death {
            source: finished.lease.event.source.clone(),
            event: id,
            attempts: finished.lease.attempt,
            why: finished.outcome.clone().into(),
        });
        let settled = tokio::select! {
            biased;
            settled = self.common.store.settle(finished, next) => settled,
            () = self.after_cut() => Err(StoreError::Closing),
        };
        match settled {
            Ok(Settled::Recorded) => {}
            Ok(Settled::LeaseLost) => {
                warn!(event = %id, %upstream, "outcome not recorded: the lease was lost");
                return;
            }
            Err(error) => {
                warn!(event = %id, %upstream, %error, "outcome not recorded: it will be attempted again");
                return;
            }
        }
        if let Some(death) = death {
            self.mourn(&death);
        }
    }

    /// A dispatch died: counted, and said with the command that replays it.
    fn mourn(&self, death: &Death) {
        let (id, upstream) = (death.event, &self.settings.name);
        self.metrics.dead.add(1);
        let (outcome, detail): (_, &dyn std::fmt::Display) = match &death.why {
            Why::Outcome(outcome) => (outcome.as_str(), &Detail(outcome)),
            Why::Late => ("late", &"its sender waited and was not answered"),
        };
        error!(
            source = %death.source,
            event = %id,
            %upstream,
            attempts = death.attempts,
            outcome,
            %detail,
            replay = %format_args!("hooksluice events replay {id} --to {upstream}"),
            "dispatch is dead"
        );
    }

    async fn after_cut(&self) {
        self.common.cut.cancelled().await;
        tokio::time::sleep(STORE_PATIENCE).await;
    }

    fn log_attempt(&self, dispatch: &LeasedDispatch, outcome: &Outcome, took: Duration) {
        let upstream = &self.settings.name;
        debug!(
            source = %dispatch.event.source, event = %dispatch.event.id, %upstream, attempt = dispatch.attempt,
            outcome = outcome.as_str(), detail = %Detail(outcome), took_ms = took.as_millis(), "attempt ended"
        );
        if matches!(outcome, Outcome::Delivered { .. }) {
            return;
        }
        let now = self.now();
        let more = {
            let mut state = self.state();
            if state.warned.is_some_and(|warned| now.since(warned) < WARN_EVERY) {
                state.unwarned += 1;
                return;
            }
            state.warned = Some(now);
            std::mem::take(&mut state.unwarned)
        };
        warn!(
            source = %dispatch.event.source, event = %dispatch.event.id, %upstream, attempt = dispatch.attempt,
            outcome = outcome.as_str(), detail = %Detail(outcome), not_shown = more, "attempt failed"
        );
    }

    /// Once a second.
    async fn keep_house(&self) {
        self.connections.close_idle();
        self.look_around();
        let status = self.show();
        let missing = status.stopped_total.saturating_sub(self.state().saved);
        if missing >= RECORD_EVERY {
            self.save_record().await;
        }
    }

    /// What other replicas did.
    fn look_around(&self) {
        let name = &self.settings.name;
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
        self.metrics.paused.set(i64::from(status.paused));
        self.metrics
            .breaker_open
            .set(i64::from(status.breaker == BreakerState::Open));
        self.metrics.held_for(status.held_for.unwrap_or_default());
        status
    }

    /// Saves what the store should remember, if it takes it soon. If not, the next tick tries again; a crash before
    /// that counts some stopped time as running.
    async fn save_record(&self) {
        let saved = tokio::time::timeout(STORE_PATIENCE, self.try_save_record()).await;
        if !matches!(saved, Ok(Ok(()))) {
            debug!(upstream = %self.settings.name, "could not save the lane's record");
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
        let name = self.settings.name.clone();
        let saved = self.common.store.save_lane_record(name, save).await?;
        let mut state = self.state();
        state.saved = state.saved.max(saved.stopped_total);
        Ok(())
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
            self.common.store.report_share_use(&self.settings.name, used);
        }
        let wake = !state.urgent.is_empty() || (state.blocked && state.lane.step(now) != Step::WaitForChange);
        if wake {
            state.blocked = false;
        }
        drop(state);
        if wake {
            self.changed.notify_one();
        }
        let upstream = &self.settings.name;
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

/// A slot in use. Dropped without an outcome (a panic), it is freed all the same.
#[derive(Debug)]
pub(super) struct Running {
    driver: Arc<Driver>,
    slot: Option<Slot>,
}

impl Running {
    fn new(driver: Arc<Driver>, slot: Slot) -> Self {
        driver.metrics.in_flight.add(1);
        Self {
            driver,
            slot: Some(slot),
        }
    }

    /// The attempt has an outcome; with it, for how long the lane was stopped so far.
    fn ended(mut self, outcome: &Outcome, asked: Option<Asked>) -> (Settling, Duration) {
        let health = outcome::health(outcome);
        let slot = self.slot.take();
        let stopped_total = self.driver.change(|lane, now| {
            if let Some(slot) = slot {
                lane.ended(slot, health, asked, now);
            }
            lane.stopped_total(now)
        });
        self.driver.metrics.in_flight.add(-1);
        self.driver
            .metrics
            .last_progress
            .set(self.driver.common.clock.now().as_secs());
        (Settling(Some(Arc::clone(&self.driver))), stopped_total)
    }

    /// The attempt was let go of: it says nothing about the upstream.
    fn cut_off(self) -> Settling {
        Settling(None)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.driver.metrics.in_flight.add(-1);
            self.driver.change(|lane, now| lane.abandoned(slot, now));
        }
    }
}

/// An ended attempt whose outcome is on its way to the store.
#[derive(Debug)]
struct Settling(Option<Arc<Driver>>);

impl Drop for Settling {
    fn drop(&mut self) {
        if let Some(driver) = &self.0 {
            driver.change(|lane, _now| lane.settled());
        }
    }
}

/// The work's answer; a panic in it is an unknown outcome like any other, with its back-off, and not a loop.
async fn unpanicked(work: impl Future<Output = Answer>) -> Answer {
    let mut work = pin!(work);
    std::future::poll_fn(move |context| {
        // Unwind safe: after a panic the future is not polled again.
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
            Ok(poll) => poll,
            Err(panic) => {
                error!(
                    panic = panic_text(panic.as_ref()),
                    "an attempt panicked: please report this"
                );
                Poll::Ready(attempt::unknown("a defect in hooksluice: see its log".to_owned()))
            }
        }
    })
    .await
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    match panic.downcast_ref::<&str>() {
        Some(text) => text,
        None => panic.downcast_ref::<String>().map_or("", String::as_str),
    }
}

/// What is told of a dispatch that died.
#[derive(Debug)]
struct Death {
    source: SourceName,
    event: EventId,
    attempts: u32,
    why: Why,
}

/// Why it died.
#[derive(Debug)]
enum Why {
    /// Of how its last attempt ended.
    Outcome(Outcome),
    /// Nobody waits for its answer any more.
    Late,
}

impl From<Outcome> for Why {
    fn from(outcome: Outcome) -> Self {
        Self::Outcome(outcome)
    }
}

/// An outcome's status or cause.
struct Detail<'a>(&'a Outcome);

impl std::fmt::Display for Detail<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Outcome::Delivered { status } | Outcome::Refused { status } => write!(f, "{}", status.as_u16()),
            Outcome::NotSent { cause } | Outcome::Unknown { cause } => f.write_str(cause),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_in_an_attempt_is_an_unknown_outcome() {
        let answer = unpanicked(async {
            tokio::task::yield_now().await;
            panic!("on purpose")
        })
        .await;
        assert!(matches!(answer.outcome, Outcome::Unknown { .. }), "{answer:?}");
    }
}
