//! The embedded store on SQLite: one writer thread, group commit, deferred admission.
//!
//! **Motivation.** An accept must be durable before its answer, and a burst must be answered at the disk's speed. What an
//! accept costs is a sync and the pages it dirties. Syncs are shared (everything that waits goes into one transaction);
//! pages are kept few by appending to one table without any index and deciding about duplicates afterwards.
//!
//! **Theory of operation.**
//! - Callers encode a request and put it into the [inbox]; the [writer] takes all that waits, gives each event the next
//!   *position* of a counter that is never set back, inserts, commits (one sync), and sends the receipts.
//! - *Admission* ([admit]) follows in position order, in slices, in the same thread: the [unique key](keys) decides; new
//!   events get their dispatch rows, duplicates lose their row. What is admitted needs no mark of its own: the largest
//!   position in `dispatch` is it, since every admitted event has a dispatch and a duplicate's row is gone. (Copies of
//!   events in another replica's store have a row in `elsewhere` instead.)
//! - Where replicas have a store each, an event waits for its [claim] before it is admitted.
//! - A dispatch whose lane is caught up is inserted as leased, with attempt 1 granted, and handed to the lane through
//!   its [window](super::window) without being read back; others wait as pending in the store and are claimed in due order
//!   ([lease]).
//! - Where a sender waits for the upstream's answer, its event is not for the lane: who has the sender [asks](ask) for the
//!   dispatch, and is answered once the event is admitted.
//! - Settles, returned leases, people's orders and claims share the next transaction.
//! - A helper thread copies the log into the database file ([checkpoint]) and prepares key partitions for sealing.
//!
//! **Promises.** P1: receipts are sent only after `COMMIT` returned with `synchronous = FULL`. P2: one thread decides over
//! one key structure, in order. P6: every queue has a bound. P8: rows of undelivered dispatches are never removed. P9:
//! `attempts` is raised in the transaction before a lease is handed out; settling asks for the lease's token.

mod admit;
mod ask;
pub(super) mod backup;
mod calls;
mod checkpoint;
mod claim;
mod disk;
mod filter;
mod inbox;
mod keys;
mod lease;
mod manage;
pub(super) mod probe;
mod reader;
mod reconfigure;
mod recover;
pub(super) mod restore;
mod retention;
mod schema;
mod seal;
mod writer;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use rusqlite::types::{ToSql, ToSqlOutput};
use tokio::sync::{Semaphore, oneshot, watch};

use self::inbox::{Ask, Decline, Inbox, LeaseRef, Order, Settle};
use self::reader::Reader;
use self::schema::Files;
use crate::id::{EventId, LeaseToken, Position, UpstreamName};
use crate::measure::Histogram;
use crate::store::append::Append;
use crate::store::claims::{Claims, Desk};
use crate::store::model::{
    AppendError, Claim, Death, DispatchState, Finished, LaneRecord, LaneSave, LeasedDispatch, Next, Notice, Settled,
    Share, ShareUse, Undelivered,
};
use crate::store::reply::{Found, Unattempted, Want};
use crate::store::secrets::{SecretNote, SecretRecord};
use crate::store::settings::{LaneSettings, Live, SqliteSettings, StoreSettings};
use crate::store::window::{Feed, Window};
use crate::store::{
    Counts, Discarded, EventDetail, EventFilter, EventPage, OpenError, Replayed, StoreError, UpstreamCounts,
};
use crate::time::Clock;

/// Idle read connections that are kept.
const READERS_MAX: usize = 2;

/// Sizes that tests make smaller.
#[derive(Clone, Debug)]
pub(super) struct Tuning {
    /// Length of the write-ahead log, written once and used in place.
    pub(super) wal_bytes: u64,
    /// Keys per partition.
    pub(super) partition_keys: usize,
    /// Appended events kept in memory for admission; the others are read back.
    pub(super) tail_events: usize,
    /// Bytes of them.
    pub(super) tail_bytes: usize,
    /// A backup is given up when the log, which cannot start anew meanwhile, is longer than this.
    pub(super) copy_wal_max: u64,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            wal_bytes: 64 << 20,
            partition_keys: keys::PARTITION_KEYS,
            tail_events: 8_192,
            tail_bytes: 8 << 20,
            copy_wal_max: 4 << 30,
        }
    }
}

/// The key of a dispatch row: position and upstream in one integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct DispatchId(i64);

impl DispatchId {
    /// Bits for the upstream's number.
    const UPSTREAM_BITS: u32 = 14;

    fn new(position: i64, upstream: u32) -> Self {
        Self((position << Self::UPSTREAM_BITS) | i64::from(upstream))
    }

    /// The smallest that an event's dispatches can have; those of the next event start at `first(position + 1)`.
    fn first(position: i64) -> Self {
        Self::new(position, 0)
    }

    fn position(self) -> i64 {
        self.0 >> Self::UPSTREAM_BITS
    }

    fn upstream(self) -> u32 {
        u32::try_from(self.0 & ((1 << Self::UPSTREAM_BITS) - 1)).unwrap_or(0)
    }
}

impl ToSql for DispatchId {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        self.0.to_sql()
    }
}

/// The number that a state has in the database.
fn state_number(state: DispatchState) -> i64 {
    match state {
        DispatchState::Pending => 0,
        DispatchState::Leased => 1,
        DispatchState::Dead => 2,
        DispatchState::Held => 3,
        DispatchState::Delivered => 4,
        DispatchState::Discarded => 5,
    }
}

/// Reads back [`state_number`].
fn state_from(number: i64) -> Option<DispatchState> {
    DispatchState::ALL
        .into_iter()
        .find(|state| state_number(*state) == number)
}

/// Dispatches of one upstream by [`state_number`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct States([i64; 6]);

impl States {
    fn get(&self, state: DispatchState) -> i64 {
        let at = usize::try_from(state_number(state)).unwrap_or(0);
        self.0.get(at).copied().unwrap_or(0)
    }

    fn add(&mut self, state: DispatchState, change: i64) {
        let at = usize::try_from(state_number(state)).unwrap_or(0);
        if let Some(count) = self.0.get_mut(at) {
            *count += change;
        }
    }
}

/// What the writer tells others after each turn.
#[derive(Clone, Debug, Default)]
struct Status {
    lanes: Vec<LaneStatus>,
    unadmitted: u64,
    unadmitted_max: u64,
    records: calls::Counted,
    /// Why the last write failed, if it did.
    failing: Option<String>,
}

#[derive(Clone, Debug)]
struct LaneStatus {
    name: UpstreamName,
    upstream: u32,
    configured: bool,
    states: States,
    made: i64,
    pruned: i64,
    record: LaneRecord,
}

/// Where the dispatches of an upstream come out.
#[derive(Clone, Debug)]
struct Outlet {
    /// Its number in the database.
    upstream: u32,
    /// `None` when it has left the configuration: attempts may still run.
    window: Option<Arc<Window>>,
}

/// What the threads and handles of one store share.
pub(super) struct Shared {
    inbox: Inbox,
    /// Events of a separate store that wait for their claim.
    desk: Arc<Desk>,
    /// The upstreams that are or were configured since the opening. Replaced by the writer alone.
    outlets: ArcSwap<HashMap<UpstreamName, Outlet>>,
    status: Mutex<Status>,
    /// Leases that a person ended while they were out.
    revoked: Mutex<HashSet<LeaseToken>>,
    revoked_len: AtomicUsize,
    /// `max_bytes` or `min_free` is reached: appends are refused.
    disk_spent: AtomicBool,
    /// A file was removed or replaced while it was open: why nothing is accepted until a restart.
    lost: OnceLock<String>,
    /// By upstream: no pending or leased dispatch has a smaller id.
    oldest_open: Mutex<HashMap<u32, i64>>,
    used_bytes: AtomicU64,
    wal_used_bytes: AtomicU64,
    free_bytes: AtomicU64,
    /// Of transactions with appended events: begun with `COMMIT`, ended by its sync.
    commit_times: Arc<Histogram>,
    clock_trusted: AtomicBool,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    fn status<T>(&self, look: impl FnOnce(&mut Status) -> T) -> T {
        look(&mut self.status.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// An upstream's number in the database, if it is or was configured since the opening.
    fn number(&self, upstream: &UpstreamName) -> Option<u32> {
        self.outlets.load().get(upstream).map(|outlet| outlet.upstream)
    }

    /// The window of a configured upstream.
    fn window(&self, upstream: &UpstreamName) -> Option<Arc<Window>> {
        self.outlets.load().get(upstream)?.window.clone()
    }

    fn revoke(&self, token: LeaseToken) {
        let mut revoked = self.revoked.lock().unwrap_or_else(PoisonError::into_inner);
        revoked.insert(token);
        self.revoked_len.store(revoked.len(), Ordering::Release);
    }

    fn oldest_open(&self, upstream: u32) -> i64 {
        let oldest = self.oldest_open.lock().unwrap_or_else(PoisonError::into_inner);
        oldest.get(&upstream).copied().unwrap_or(0)
    }

    /// A reader that started at `from` found `oldest`; does not count if an older one came back to life meanwhile.
    fn found_oldest_open(&self, upstream: u32, from: i64, found: i64) {
        let mut oldest = self.oldest_open.lock().unwrap_or_else(PoisonError::into_inner);
        let held = oldest.entry(upstream).or_insert(0);
        if *held == from {
            *held = found;
        }
    }

    /// A dispatch is pending again that may be older than all others.
    fn reopened(&self, id: DispatchId) {
        let mut oldest = self.oldest_open.lock().unwrap_or_else(PoisonError::into_inner);
        let held = oldest.entry(id.upstream()).or_insert(0);
        *held = id.0.min(*held);
    }

    fn forget_revoked(&self, token: LeaseToken) {
        if self.revoked_len.load(Ordering::Acquire) > 0 {
            let mut revoked = self.revoked.lock().unwrap_or_else(PoisonError::into_inner);
            revoked.remove(&token);
            self.revoked_len.store(revoked.len(), Ordering::Release);
        }
    }
}

/// The embedded store, behind [`super::Store`].
pub(super) struct Backend {
    shared: Arc<Shared>,
    files: Files,
    readers: Mutex<Vec<Reader>>,
    ended: watch::Receiver<bool>,
    clock: Clock,
    /// See [`SqliteSettings::separate`].
    separate: bool,
    /// Deaths that are being told, with their numbers.
    telling: Mutex<HashMap<EventId, i64>>,
    /// The right to make a copy, of which there is one.
    copying: Arc<Semaphore>,
    copy_wal_max: u64,
    min_free: u64,
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backend")
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}

impl Backend {
    pub(super) fn open(
        settings: StoreSettings,
        place: &SqliteSettings,
        lanes: Vec<LaneSettings>,
        clock: Clock,
        notices: Box<dyn FnMut(Notice) + Send>,
        tuning: Tuning,
    ) -> Result<Self, OpenError> {
        let (ended_sender, ended) = watch::channel(false);
        let upstreams = lanes.into_iter().map(|lane| lane.upstream).collect();
        let copy_wal_max = tuning.copy_wal_max;
        let shared = writer::start(settings, place, upstreams, clock.clone(), notices, tuning, ended_sender)?;
        Ok(Self {
            clock,
            separate: place.separate,
            telling: Mutex::default(),
            copying: Arc::new(Semaphore::new(1)),
            copy_wal_max,
            min_free: place.min_free,
            shared,
            files: Files::new(&place.path),
            readers: Mutex::new(Vec::new()),
            ended,
        })
    }

    pub(super) fn append(&self, append: Append) -> Result<(), AppendError> {
        self.has_files()?;
        if self.shared.disk_spent.load(Ordering::Relaxed) {
            return Err(AppendError::DiskBudget);
        }
        self.shared.inbox.append(append)
    }

    pub(super) fn upstreams(&self) -> Vec<UpstreamName> {
        let outlets = self.shared.outlets.load();
        let configured = outlets.iter().filter(|(_name, outlet)| outlet.window.is_some());
        configured.map(|(name, _outlet)| name.clone()).collect()
    }

    pub(super) fn feed(&self, upstream: &UpstreamName) -> Option<Feed> {
        let shared = Arc::clone(&self.shared);
        Some(Feed {
            window: self.shared.window(upstream)?,
            nudge: Box::new(move || shared.inbox.nudge()),
        })
    }

    pub(super) fn holds(&self, lease: &LeasedDispatch) -> bool {
        if self.shared.revoked_len.load(Ordering::Acquire) == 0 {
            return true;
        }
        let revoked = self.shared.revoked.lock().unwrap_or_else(PoisonError::into_inner);
        !revoked.contains(&lease.token)
    }

    pub(super) fn settle(
        &self,
        mut finished: Finished,
        next: Next,
        settled: oneshot::Sender<Settled>,
    ) -> Result<(), StoreError> {
        let Some(upstream) = self.shared.number(&finished.lease.upstream) else {
            return Err(StoreError::UnknownUpstream(finished.lease.upstream.clone()));
        };
        // From here on the settle stands for the lease. If the store is closing, the next opening ends the lease.
        finished.lease.give_back = None;
        self.shared.inbox.settle(Settle {
            lease: LeaseRef {
                dispatch: DispatchId::new(finished.lease.event.id.position().get(), upstream),
                token: finished.lease.token,
            },
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

    pub(super) async fn lease_now(&self, want: Want) -> Result<Found, StoreError> {
        let (found, answer) = oneshot::channel();
        self.shared.inbox.ask(Ask { want, found })?;
        answer.await.unwrap_or_else(|_gone| Err(self.not_carried_out()))
    }

    pub(super) fn take_ready(&self, upstream: &UpstreamName, event: EventId) -> Option<LeasedDispatch> {
        self.shared.window(upstream)?.take(event)
    }

    pub(super) fn decline(
        &self,
        mut lease: LeasedDispatch,
        then: Unattempted,
        settled: oneshot::Sender<Settled>,
    ) -> Result<(), StoreError> {
        let Some(upstream) = self.shared.number(&lease.upstream) else {
            return Err(StoreError::UnknownUpstream(lease.upstream.clone()));
        };
        lease.give_back = None;
        self.shared.inbox.decline(Decline {
            lease: LeaseRef {
                dispatch: DispatchId::new(lease.event.id.position().get(), upstream),
                token: lease.token,
            },
            then,
            settled,
        })
    }

    pub(super) async fn events(
        self: &Arc<Self>,
        filter: EventFilter,
        before: Option<EventId>,
        limit: usize,
    ) -> Result<EventPage, StoreError> {
        self.read(move |reader| reader.events(&filter, before, limit)).await
    }

    pub(super) async fn event(self: &Arc<Self>, id: EventId) -> Result<Option<EventDetail>, StoreError> {
        self.read(move |reader| reader.event(id)).await
    }

    pub(super) async fn replay(
        &self,
        event: EventId,
        upstreams: Option<Vec<UpstreamName>>,
    ) -> Result<Replayed, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.shared.inbox.order(Order::Replay {
            event,
            upstreams,
            reply,
        })?;
        answer.await.unwrap_or_else(|_gone| Err(self.not_carried_out()))
    }

    pub(super) async fn discard(
        &self,
        event: EventId,
        upstream: Option<UpstreamName>,
    ) -> Result<Discarded, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.shared.inbox.order(Order::Discard { event, upstream, reply })?;
        answer.await.unwrap_or_else(|_gone| Err(self.not_carried_out()))
    }

    pub(super) async fn save_lane_record(
        &self,
        upstream: UpstreamName,
        save: LaneSave,
    ) -> Result<LaneRecord, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.shared.inbox.order(Order::SaveLane { upstream, save, reply })?;
        answer.await.unwrap_or_else(|_gone| Err(self.not_carried_out()))
    }

    pub(super) async fn reconfigure(&self, live: Live) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        self.shared.inbox.order(Order::Reconfigure { live, reply })?;
        answer.await.unwrap_or_else(|_gone| Err(self.not_carried_out()))
    }

    pub(super) fn claims(&self) -> Option<Claims> {
        self.separate.then(|| self.shared.desk.claims()).flatten()
    }

    pub(super) fn claimed(&self, claims: Vec<(EventId, Claim)>) {
        self.shared.inbox.claimed(claims);
    }

    pub(super) async fn untold_deaths(self: &Arc<Self>, limit: usize) -> Result<Vec<Death>, StoreError> {
        let untold = self.read(move |reader| reader.untold_deaths(limit)).await?;
        let mut telling = self.telling.lock().unwrap_or_else(PoisonError::into_inner);
        *telling = untold.iter().map(|(death, times)| (death.event, *times)).collect();
        Ok(untold.into_iter().map(|(death, _times)| death).collect())
    }

    pub(super) async fn deaths_told(&self, deaths: Vec<Death>) -> Result<(), StoreError> {
        let deaths = {
            let mut telling = self.telling.lock().unwrap_or_else(PoisonError::into_inner);
            let numbered = deaths.iter().filter_map(|death| {
                let times = telling.remove(&death.event)?;
                Some((death.event.position().get(), times))
            });
            numbered.collect()
        };
        let (reply, answer) = oneshot::channel();
        self.shared.inbox.order(Order::DeathsTold { deaths, reply })?;
        answer.await.unwrap_or_else(|_gone| Err(self.not_carried_out()))
    }

    pub(super) async fn note_secrets(&self, notes: Vec<SecretNote>) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        self.shared.inbox.order(Order::NoteSecrets { notes, reply })?;
        answer.await.unwrap_or_else(|_gone| Err(self.not_carried_out()))
    }

    pub(super) async fn secrets(self: &Arc<Self>) -> Result<Vec<SecretRecord>, StoreError> {
        self.read(|reader| reader.secrets()).await
    }

    pub(super) async fn undelivered_keys(
        self: &Arc<Self>,
        older_than: Duration,
        after: Option<EventId>,
        limit: usize,
    ) -> Result<Vec<Undelivered>, StoreError> {
        let before = self.clock.now().before(older_than);
        self.read(move |reader| reader.undelivered(before, after, limit)).await
    }

    /// Why an order's answer never came.
    fn not_carried_out(&self) -> StoreError {
        if *self.ended.borrow() {
            StoreError::Closing
        } else {
            StoreError::Failed("it could not be carried out".to_owned())
        }
    }

    pub(super) fn lane_record(&self, upstream: &UpstreamName) -> LaneRecord {
        self.shared.status(|status| {
            let lane = status.lanes.iter().find(|lane| lane.name == *upstream);
            lane.map_or_else(LaneRecord::default, |lane| lane.record)
        })
    }

    /// Its lock proves that no other process has it open.
    pub(super) fn share(&self, _upstream: &UpstreamName) -> Option<Share> {
        None
    }

    pub(super) fn report_share_use(&self, _upstream: &UpstreamName, _used: ShareUse) {}

    pub(super) fn stopped_total(&self, _upstream: &UpstreamName) -> Option<Duration> {
        None
    }

    pub(super) async fn counts(self: &Arc<Self>) -> Result<Counts, StoreError> {
        let counts = self.last_counts();
        self.read(move |reader| reader.with_oldest_pending(counts)).await
    }

    /// The counts as of the writer's last turn, without the oldest pending times.
    fn last_counts(&self) -> Counts {
        let mut counts = self.shared.status(|status| {
            let mut upstreams = BTreeMap::new();
            for lane in &status.lanes {
                let mut states: BTreeMap<DispatchState, u64> = DispatchState::ALL
                    .into_iter()
                    .map(|state| (state, u64::try_from(lane.states.get(state)).unwrap_or(0)))
                    .collect();
                if !lane.configured {
                    // Nobody takes them: they wait for their upstream to come back.
                    let away = states.insert(DispatchState::Pending, 0).unwrap_or(0);
                    *states.entry(DispatchState::Held).or_default() += away;
                    if lane.made == 0 {
                        continue;
                    }
                }
                upstreams.insert(
                    lane.name.clone(),
                    UpstreamCounts {
                        states,
                        made: u64::try_from(lane.made).unwrap_or(0),
                        pruned: u64::try_from(lane.pruned).unwrap_or(0),
                        oldest_pending: None,
                    },
                );
            }
            Counts {
                upstreams,
                unadmitted: status.unadmitted,
                unadmitted_max: status.unadmitted_max,
                ..Counts::default()
            }
        });
        counts.used_bytes = self.shared.used_bytes.load(Ordering::Relaxed);
        counts.free_bytes = Some(self.shared.free_bytes.load(Ordering::Relaxed));
        counts.wal_bytes = self.shared.wal_used_bytes.load(Ordering::Relaxed);
        counts
    }

    pub(super) fn commit_times(&self) -> Arc<Histogram> {
        Arc::clone(&self.shared.commit_times)
    }

    pub(super) fn is_writable(&self) -> Result<(), AppendError> {
        if *self.ended.borrow() {
            return Err(AppendError::Closing);
        }
        self.has_files()?;
        if self.shared.disk_spent.load(Ordering::Relaxed) {
            return Err(AppendError::DiskBudget);
        }
        match self.shared.status(|status| status.failing.clone()) {
            Some(why) => Err(AppendError::Failed(why)),
            None => Ok(()),
        }
    }

    fn has_files(&self) -> Result<(), AppendError> {
        match self.shared.lost.get() {
            Some(why) => Err(AppendError::Failed(why.clone())),
            None => Ok(()),
        }
    }

    pub(super) fn clock_is_trusted(&self) -> bool {
        self.shared.clock_trusted.load(Ordering::Relaxed)
    }

    /// Runs a query on a connection that only reads, off the async threads.
    async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        query: impl FnOnce(&mut Reader) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let backend = Arc::clone(self);
        let answer = tokio::task::spawn_blocking(move || {
            let idle = backend.readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let mut reader = match idle {
                Some(reader) => reader,
                None => Reader::open(&backend.files, Arc::clone(&backend.shared))?,
            };
            let answer = query(&mut reader)?;
            let mut readers = backend.readers.lock().unwrap_or_else(PoisonError::into_inner);
            if readers.len() < READERS_MAX {
                readers.push(reader);
            }
            Ok(answer)
        })
        .await;
        match answer {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(StoreError::Failed(describe(&error))),
            Err(ended) => Err(StoreError::Failed(ended.to_string())),
        }
    }

    pub(super) async fn close(&self) {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.shared.inbox.close();
        self.shared.desk.close();
        let mut ended = self.ended.clone();
        // An error means that the writer is gone, which is what is waited for.
        if ended.wait_for(|ended| *ended).await.is_err() {
            tracing::error!("the store's writer ended before it was closed");
        }
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.shared.inbox.close();
        self.shared.desk.close();
    }
}

/// A database error for people: with SQLite's own words.
pub(super) fn describe(error: &rusqlite::Error) -> String {
    match error.sqlite_error() {
        Some(code) => format!("{error} (SQLite code {})", code.extended_code),
        None => error.to_string(),
    }
}

/// A count as SQLite takes it.
fn to_i64(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The position with this number; positions in the store are in range.
fn position(number: i64) -> Position {
    Position::new(number).unwrap_or(Position::MAX)
}
