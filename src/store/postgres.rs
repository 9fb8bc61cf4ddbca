//! The shared store on PostgreSQL: any number of replicas on one database.
//!
//! **Motivation.** One process with an embedded store is as available as its machine. Behind a load balancer any replica
//! must be able to take any event, recognise a duplicate that another one took, and go on with what a dead one had.
//!
//! **Theory of operation.**
//! - *Append is admission.* A batch is one transaction, written in one go ([transaction]): it takes the keys, stores the
//!   events that got theirs and makes their dispatches ([append]). The unique key decides, whoever asks (P2).
//! - A dispatch is inserted as leased to the replica that took the event while its lane has room; the rest is pending and
//!   claimed by whoever has room, with `SKIP LOCKED` ([claim]).
//! - *Leases* end by the database's clock, and for their holder earlier, by its own monotonic clock ([leases]). They are
//!   renewed while they are out, and end for a replica that is gone or was stopped ([keep]).
//! - *Shares* divide an upstream's pace over the replicas ([tick]).
//! - Nothing rests on session state: no session setting, advisory lock, named statement, or `LISTEN` that something depends
//!   on. A pooler in transaction mode may stand between.
//! - A lost connection fails what was under way; what may have been committed is tried again under the same ids and tokens,
//!   and finds itself.
//!
//! **Promises.** P1: a receipt is sent after a commit with `synchronous_commit` at least `on`, read back inside the
//! transaction, and after a synchronous standby has it where there is one. P2: `PRIMARY KEY (source, kind, key)`. P6: every
//! queue and pool has a bound. P7: units of pace are granted under a lock. P8: each change of a dispatch's state changes the
//! tally in the same transaction. P9: `attempts` is raised in the transaction before a lease is handed out; settling asks for
//! the lease's token. P10: all that the database does is an error, never a panic.

mod append;
mod ask;
mod calls;
mod claim;
mod connect;
mod database;
mod hand_out;
mod inbox;
mod janitor;
mod keep;
mod lanes;
mod leases;
mod listen;
mod manage;
mod names;
pub(super) mod probe;
mod query;
mod reconfigure;
mod records;
mod redis;
mod schema;
mod secrets;
mod settle;
mod shared;
mod stored;
mod tick;
mod transaction;

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{Notify, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use self::calls::Calls;
use self::connect::{Connector, Failure, Target};
use self::database::{Ages, Database};
use self::inbox::{Decline, Inbox, Settle, Waiting};
use self::lanes::{Lane, Lanes};
use self::leases::{Leases, Orphans};
use self::names::Names;
use self::shared::Shared;
use crate::id::{EventId, UpstreamName};
use crate::key::KeyKind;
use crate::measure::Histogram;
use crate::store::append::Append;
use crate::store::model::{
    AppendError, DispatchState, Finished, LaneRecord, LeasedDispatch, Next, Notice, Outcome, Settled, Share, ShareUse,
};
use crate::store::reply::{Found, Unattempted, Want};
use crate::store::settings::{BadUrl, LaneSettings, PostgresSettings, StoreSettings};
use crate::store::window::Feed;
use crate::store::{OpenError, StoreError};
use crate::time::{Clock, Monotonic};

/// Tasks that append, each with a batch under way.
const APPENDERS: i16 = 2;
/// Writers' numbers in the tally, behind those of the appenders.
const SETTLER: i16 = APPENDERS;
const CLAIMER: i16 = APPENDERS + 1;
const KEEPER: i16 = APPENDERS + 2;
const MANAGER: i16 = APPENDERS + 3;
const JANITOR: i16 = APPENDERS + 4;
const ASKER: i16 = APPENDERS + 5;
/// How long closing waits for a database that does not answer.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);

/// Times that tests make shorter.
#[derive(Clone, Debug)]
pub(super) struct Tuning {
    /// How long a lease lasts that nobody renews.
    pub(super) lease_ttl: Duration,
    /// The same of a call.
    pub(super) call_ttl: Duration,
    /// How long a share of an upstream's pace lasts.
    pub(super) share_ttl: Duration,
    /// Between two heartbeats.
    pub(super) tick: Duration,
    /// What leases and shares are judged by on our side; `None`: the store's clock.
    pub(super) lease_clock: Option<Clock>,
    /// Between two rounds of forgetting.
    pub(super) janitor: Duration,
    /// How much time a partition covers; by default a part of `retention`.
    pub(super) part_width: Option<Duration>,
    ages: Ages,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            lease_ttl: Duration::from_secs(15),
            call_ttl: Duration::from_secs(10),
            share_ttl: Duration::from_secs(10),
            tick: Duration::from_secs(2),
            lease_clock: None,
            janitor: Duration::from_secs(60),
            part_width: None,
            ages: Ages::Server,
        }
    }
}

#[cfg(test)]
impl Tuning {
    /// Ages by the store's clock, which tests set; leases by the machine's, as the database has them.
    pub(super) fn for_tests() -> Self {
        Self {
            lease_clock: Some(Clock::system()),
            janitor: Duration::from_millis(200),
            part_width: Some(Duration::from_secs(20)),
            ages: Ages::Own,
            ..Self::default()
        }
    }
}

/// The shared store, behind [`super::Store`].
pub(super) struct Backend {
    shared: Arc<Shared>,
    /// The tasks that append, settle, claim and so on.
    tasks: TaskTracker,
    appenders: TaskTracker,
    settler: TaskTracker,
    /// The tasks that drive connections.
    connections: TaskTracker,
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backend")
            .field("shared", &self.shared)
            .finish_non_exhaustive()
    }
}

impl Backend {
    pub(super) async fn open(
        settings: StoreSettings,
        place: &PostgresSettings,
        lanes: Vec<LaneSettings>,
        clock: Clock,
        notices: Box<dyn FnMut(Notice) + Send>,
        tuning: Tuning,
    ) -> Result<Self, OpenError> {
        let unsuitable = |error: BadUrl| OpenError::Unsuitable(error.to_string());
        let failed = |failure: Failure| OpenError::Database(failure.to_string());
        let target = Target::read(place.url()).map_err(unsuitable)?;
        let connections = TaskTracker::new();
        let connector = Connector::new(target, connections.clone()).map_err(unsuitable)?;
        let lease_clock = tuning.lease_clock.clone().unwrap_or_else(|| clock.clone());
        schema::prepare(&connector, &lease_clock).await?;
        let database = Database::new(&connector, clock.clone(), tuning.ages).map_err(failed)?;
        let numbers = Names::upstreams();
        numbers
            .learn(&database, lanes.iter().map(|lane| lane.upstream.as_str()))
            .await
            .map_err(failed)?;
        let lanes = lanes.into_iter().map(|lane| {
            let number = numbers.id(lane.upstream.as_str()).unwrap_or(0);
            Lane::new(lane.upstream, number, lane.units)
        });
        let shared = Arc::new(Shared {
            replica: Uuid::from_bytes(rand::random()),
            counter: (rand::random::<u32>() >> 1).into(),
            lanes: Lanes::new(lanes),
            keep_deaths: settings.keep_deaths,
            settings: ArcSwap::from_pointee(settings),
            clock,
            lease_clock,
            database,
            inbox: Inbox::default(),
            leases: Leases::default(),
            orphans: Orphans::default(),
            sources: Names::sources(),
            upstreams: numbers,
            routes: Names::routes(),
            calls: Calls::default(),
            notices: Mutex::new(notices),
            unreadable: Mutex::default(),
            failing: Mutex::default(),
            disk_spent: false.into(),
            used_bytes: 0.into(),
            clock_trusted: true.into(),
            trust: Mutex::default(),
            keeps_house: false.into(),
            replicas: 1.into(),
            poll_wanted: false.into(),
            commit_times: Arc::default(),
            orders: tokio::sync::Mutex::default(),
            reconfiguring: tokio::sync::Mutex::default(),
            asks: tokio::sync::Semaphore::new(ask::AT_ONCE),
            deaths: tokio::sync::Mutex::default(),
            claims: Notify::new(),
            ticks: Notify::new(),
            buried: Notify::new(),
            announce: Notify::new(),
            closing: CancellationToken::new(),
            kept: CancellationToken::new(),
            given_up: CancellationToken::new(),
            frozen: CancellationToken::new(),
            closed: false.into(),
            tuning,
        });
        manage::make_lanes(&shared).await.map_err(failed)?;
        tick::tick(&shared).await.map_err(failed)?;
        let newest = janitor::newest(&shared).await.map_err(failed)?;
        shared.trust_the_clocks(newest);
        janitor::measure(&shared).await.map_err(failed)?;
        janitor::have_parts(&shared).await.map_err(failed)?;
        let backend = Self {
            shared: Arc::clone(&shared),
            tasks: TaskTracker::new(),
            appenders: TaskTracker::new(),
            settler: TaskTracker::new(),
            connections,
        };
        for writer in 0..APPENDERS {
            backend.appenders.spawn(append::run(Arc::clone(&shared), writer));
            backend.appenders.spawn(calls::begin::run(Arc::clone(&shared), writer));
        }
        backend.settler.spawn(settle::run(Arc::clone(&shared), SETTLER));
        backend
            .settler
            .spawn(calls::end::run(Arc::clone(&shared), calls::ENDER));
        backend.settler.spawn(calls::keep::run(Arc::clone(&shared)));
        backend.tasks.spawn(claim::run(Arc::clone(&shared), CLAIMER));
        backend.tasks.spawn(tick::run(Arc::clone(&shared)));
        backend.tasks.spawn(janitor::run(Arc::clone(&shared)));
        backend.tasks.spawn(listen::announce(Arc::clone(&shared)));
        backend.tasks.spawn(listen::listen(Arc::clone(&shared), connector));
        backend.settler.spawn(keep::run(shared, KEEPER));
        Ok(backend)
    }

    pub(super) fn append(&self, mut append: Append) -> Result<(), AppendError> {
        if self.shared.disk_spent.load(Ordering::Relaxed) {
            return Err(AppendError::DiskBudget);
        }
        let since = self.shared.leases_now();
        self.has_answered_lately(since)?;
        if let Some(event) = Arc::get_mut(&mut append.event) {
            let counter = self.shared.counter.fetch_add(1, Ordering::Relaxed);
            event.id = EventId::shared(event.received_at, counter, rand::random());
        }
        self.shared.inbox.append(Waiting { append, since })
    }

    /// While the database has been away for longer than an append would wait for it, nobody else needs to wait.
    fn has_answered_lately(&self, now: Monotonic) -> Result<(), AppendError> {
        let failing = self.shared.failing.lock().unwrap_or_else(PoisonError::into_inner);
        match &*failing {
            Some((since, why)) if now.since(*since) >= append::PATIENCE => Err(AppendError::Failed(why.clone())),
            Some(_) | None => Ok(()),
        }
    }

    pub(super) fn upstreams(&self) -> Vec<UpstreamName> {
        let configured = self.shared.lanes.iter().filter(|lane| lane.is_configured());
        configured.map(|lane| lane.name.clone()).collect()
    }

    pub(super) fn feed(&self, upstream: &UpstreamName) -> Option<Feed> {
        let (_slot, lane) = self.shared.lanes.configured(upstream)?;
        let shared = Arc::clone(&self.shared);
        Some(Feed {
            window: lane.window(),
            nudge: Box::new(move || shared.claims.notify_one()),
        })
    }

    pub(super) fn holds(&self, lease: &LeasedDispatch) -> bool {
        self.shared.leases.holds(lease.token, self.shared.leases_now())
    }

    pub(super) fn settle(
        &self,
        mut finished: Finished,
        next: Next,
        settled: oneshot::Sender<Settled>,
    ) -> Result<(), StoreError> {
        // From here on the settle stands for the lease. If the store is closing, the lease lapses.
        finished.lease.give_back = None;
        let Some((lease, key)) = self.shared.leases.find(finished.lease.token) else {
            // Not one of ours, or settled already.
            let _stopped = settled.send(Settled::LeaseLost);
            return Ok(());
        };
        self.shared.inbox.settle(Settle {
            lease,
            source: finished.lease.event.source.clone(),
            key,
            attempt: finished.lease.attempt,
            outcome: finished.outcome,
            next,
            started_at: finished.started_at,
            took: finished.took,
            excerpt: finished.excerpt,
            reply: finished.reply,
            settled,
        })
    }

    pub(super) fn take_ready(&self, upstream: &UpstreamName, event: EventId) -> Option<LeasedDispatch> {
        let (_slot, lane) = self.shared.lanes.named(upstream)?;
        lane.window().take(event)
    }

    pub(super) fn decline(
        &self,
        mut lease: LeasedDispatch,
        then: Unattempted,
        settled: oneshot::Sender<Settled>,
    ) -> Result<(), StoreError> {
        lease.give_back = None;
        let Some((held, key)) = self.shared.leases.find(lease.token) else {
            let _stopped = settled.send(Settled::LeaseLost);
            return Ok(());
        };
        self.shared.inbox.decline(Decline {
            lease: held,
            source: lease.event.source.clone(),
            key,
            then,
            settled,
        })
    }

    /// See [`Store::lease_now`](super::Store::lease_now): here every event that was answered is admitted.
    pub(super) async fn lease_now(&self, want: Want) -> Result<Found, StoreError> {
        // A task of its own, so that a lease is not written without being heard of because nobody waits any more.
        let shared = Arc::clone(&self.shared);
        let asking = self.tasks.spawn(async move { ask::lease_now(&shared, &want).await });
        asking.await.map_err(|ended| StoreError::Failed(ended.to_string()))?
    }

    pub(super) fn commit_times(&self) -> Arc<Histogram> {
        Arc::clone(&self.shared.commit_times)
    }

    pub(super) fn is_writable(&self) -> Result<(), AppendError> {
        if self.shared.closing.is_cancelled() {
            return Err(AppendError::Closing);
        }
        if self.shared.disk_spent.load(Ordering::Relaxed) {
            return Err(AppendError::DiskBudget);
        }
        let failing = self.shared.failing.lock().unwrap_or_else(PoisonError::into_inner);
        match &*failing {
            Some((_since, why)) => Err(AppendError::Failed(why.clone())),
            None => Ok(()),
        }
    }

    pub(super) fn clock_is_trusted(&self) -> bool {
        self.shared.clock_trusted.load(Ordering::Relaxed)
    }

    /// The name under which others (Redis) may speak for this store; `None` while it is not known which store answers.
    pub(super) fn identity(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.shared.database.identity()
    }

    /// This replica's part of an upstream's pace (P7). Cheap.
    pub(super) fn share(&self, upstream: &UpstreamName) -> Option<Share> {
        let (_slot, lane) = self.shared.lanes.named(upstream)?;
        let now = self.shared.leases_now();
        let state = lane.state();
        let left = state.granted_until.since(now);
        Some(Share {
            units: state.units(now),
            of: state.of,
            valid_until: Some(self.shared.clock.monotonic().after(left)),
        })
    }

    /// What the lane makes of it.
    pub(super) fn report_share_use(&self, upstream: &UpstreamName, used: ShareUse) {
        if let Some((_slot, lane)) = self.shared.lanes.named(upstream) {
            lane.state().used = used;
        }
    }

    pub(super) fn lane_record(&self, upstream: &UpstreamName) -> LaneRecord {
        let lane = self.shared.lanes.named(upstream);
        lane.map_or_else(LaneRecord::default, |(_slot, lane)| lane.state().record)
    }

    pub(super) fn stopped_total(&self, upstream: &UpstreamName) -> Option<Duration> {
        let (_slot, lane) = self.shared.lanes.named(upstream)?;
        Some(lane.state().record.stopped_total)
    }

    /// Finishes what was handed in, gives unused leases and the shares back, and closes.
    pub(super) async fn close(&self) {
        let shared = &self.shared;
        if shared.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        shared.inbox.close();
        shared.calls.close();
        shared.closing.cancel();
        shared.frozen.cancel();
        let patience = tokio::time::sleep(CLOSE_PATIENCE + append::PATIENCE);
        let in_order = async {
            self.appenders.close();
            self.appenders.wait().await;
            self.tasks.close();
            self.tasks.wait().await;
            for (slot, lane) in shared.lanes.iter().enumerate() {
                shared.give_back_window(slot, lane.window().close());
            }
            shared.inbox.close_endings();
            shared.calls.close_endings();
            shared.kept.cancel();
            self.settler.close();
            let settled = tokio::time::timeout(CLOSE_PATIENCE, self.settler.wait()).await;
            if settled.is_err() {
                tracing::warn!("the database does not answer: leases lapse, and their attempts are repeated");
            }
            manage::leave(shared).await;
        };
        tokio::select! {
            () = in_order => {}
            () = patience => tracing::warn!("the store was closed without the database"),
        }
        for lane in shared.lanes.iter() {
            lane.window()
                .close()
                .into_iter()
                .for_each(|ready| ready.dispatch.forget());
        }
        self.let_go();
        self.connections.close();
        let gone = tokio::time::timeout(Duration::from_secs(1), self.connections.wait()).await;
        if gone.is_err() {
            tracing::debug!("database connections were left behind");
        }
    }

    /// Renews and beats no more, as a stopped process; what it is asked for it still does.
    #[cfg(test)]
    pub(super) fn freeze(&self) {
        self.shared.kept.cancel();
        self.shared.frozen.cancel();
    }

    /// Ends as a killed process does: nothing is finished, nothing handed back.
    #[cfg(test)]
    pub(super) async fn crash(&self) {
        self.let_go();
        for tasks in [&self.appenders, &self.tasks, &self.settler] {
            tasks.close();
            tasks.wait().await;
        }
        for lane in self.shared.lanes.iter() {
            lane.window()
                .close()
                .into_iter()
                .for_each(|ready| ready.dispatch.forget());
        }
    }

    /// Ends all tasks, whatever they do.
    fn let_go(&self) {
        let shared = &self.shared;
        shared.closing.cancel();
        shared.kept.cancel();
        shared.frozen.cancel();
        shared.given_up.cancel();
        shared.inbox.clear();
        shared.calls.clear();
        shared.database.close();
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.let_go();
        for lane in self.shared.lanes.iter() {
            lane.window()
                .close()
                .into_iter()
                .for_each(|ready| ready.dispatch.forget());
        }
    }
}

/// The number that a state has in the database.
fn state_number(state: DispatchState) -> i16 {
    match state {
        DispatchState::Pending => 0,
        DispatchState::Leased => 1,
        DispatchState::Dead => 2,
        DispatchState::Held => 3,
        DispatchState::Delivered => 4,
        DispatchState::Discarded => 5,
    }
}

/// Reads back [`state_number`]; the table's check allows no other.
fn state_from(number: i16) -> DispatchState {
    DispatchState::ALL
        .into_iter()
        .find(|state| state_number(*state) == number)
        .unwrap_or(DispatchState::Held)
}

/// The number that an outcome has in the database.
fn outcome_number(outcome: &Outcome) -> i16 {
    match outcome {
        Outcome::Delivered { .. } => 0,
        Outcome::Refused { .. } => 1,
        Outcome::NotSent { .. } => 2,
        Outcome::Unknown { .. } => 3,
    }
}

/// Reads the `key_kind` column.
fn key_kind(number: i16) -> KeyKind {
    if number == 1 { KeyKind::Digest } else { KeyKind::Rule }
}

/// A URL for people: hosts with ports, and the database.
pub(super) fn shown(url: &crate::secret::Secret) -> Result<String, BadUrl> {
    Target::read(url).map(|target| target.to_string())
}
