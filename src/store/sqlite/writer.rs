//! The writer thread: takes all that waits, makes one transaction of it, commits, answers.
//!
//! A turn either commits whole, and then its effects become visible (receipts, notices, windows, counts), or it is rolled
//! back whole, and then the memory is as before: effects wait in [`Turn`] until the commit has returned.
//!
//! **Sharing the thread.** Appends that wait always go into the next transaction. While they do, admission gets a share
//! that grows with the unadmitted tail, so a burst is answered at append speed and the tail stays below its bound; when
//! none waits, admission has the thread. Work that nobody waits for lingers a moment for appends, to share their sync.

mod append;
mod turn;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use rusqlite::{Connection, params};
use tokio::sync::watch;

use self::turn::apply;
pub(super) use self::turn::{Move, Reply, Turn};

use super::calls::Calls;
use super::checkpoint::{Helper, Wal};
use super::disk::Reserve;
use super::inbox::{Ask, Decline, Inbox, LeaseRef, Order, Patience, Settle, Work};
use super::keys::Keys;
use super::retention::Retention;
use super::schema::{Files, Lock};
use super::{Outlet, Shared, States, Status, Tuning, describe, recover, schema};
use crate::id::{EventId, SourceName, UpstreamName};
use crate::key::DedupeKey;
use crate::store::OpenError;
use crate::store::append::Append;
use crate::store::claims::Desk;
use crate::store::model::{AppendError, BodyMark, Claim, DispatchState, LaneRecord, Notice, StoredEvent};
use crate::store::settings::{SqliteSettings, StoreSettings};
use crate::store::trust::TimeTrust;
use crate::store::window::{Ready, Room, WINDOW_MAX, Window};
use crate::time::Clock;

/// Appends per transaction, at most: bounds what one failed commit refuses and how long a commit takes.
const BATCH_MAX: usize = 1_024;
/// Bytes of appends per transaction, about.
const BATCH_BYTES_MAX: usize = 16 << 20;
/// Settles per transaction, at most.
const SETTLES_MAX: usize = 512;
/// Events admitted per transaction while no append waits.
const ADMIT_MAX: usize = 512;
/// How long work that nobody waits for lingers for an append to share a sync with.
const LINGER: Duration = Duration::from_micros(500);
/// How long an idle writer sleeps before it looks at its timers.
const IDLE: Duration = Duration::from_secs(1);
/// The same while dispatches wait for their time.
const IDLE_WITH_TIMERS: Duration = Duration::from_millis(100);
/// Pause after a turn that failed, so that a full disk does not keep a core busy.
const FAILED_PAUSE: Duration = Duration::from_millis(50);
/// Positions reserved at a time: one small write per so many events.
const POSITIONS_RESERVED: i64 = 65_536;
/// Admitted positions between two saves of the tally, which bounds the recount at opening.
const TALLY_EVERY: i64 = 16_384;
/// So many turns a full window may hold admission up; then its lane counts as slow.
const FULL_TURNS_MAX: u32 = 16;
/// Remembered routes (sets of upstreams).
const ROUTES_MAX: usize = 1_024;

/// An appended event that waits for admission.
#[derive(Clone, Debug)]
pub(super) struct Appended {
    pub(super) id: EventId,
    pub(super) source: u32,
    pub(super) source_name: SourceName,
    pub(super) lanes: Arc<[usize]>,
    pub(super) key: DedupeKey,
    pub(super) content: Option<[u8; 32]>,
    pub(super) body_mark: BodyMark,
    pub(super) received_at: crate::time::Timestamp,
    /// Memory it stands for.
    pub(super) weight: usize,
    /// The event itself, to be handed to a lane at once; `None` where it could not be read.
    pub(super) event: Option<Arc<StoredEvent>>,
    /// What Redis said, on a separate store.
    pub(super) claim: Option<Claim>,
}

/// Appended events in position order: the first ones in memory, the rest in the store.
#[derive(Debug)]
pub(super) struct Tail {
    pub(super) events: VecDeque<Appended>,
    pub(super) bytes: usize,
    /// All that wait, in memory or not.
    pub(super) count: usize,
    /// Positions from here on are only in the store.
    pub(super) loaded_end: i64,
}

/// One upstream, as the writer sees it.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) upstream: u32,
    pub(super) name: UpstreamName,
    /// `None` for an upstream that is not in the configuration.
    pub(super) window: Option<Arc<Window>>,
    /// No pending dispatch is due before this; `None` when there is none.
    pub(super) next_due: Option<crate::time::Timestamp>,
    /// Turns in a row that found its window full while it was caught up.
    pub(super) full_turns: u32,
    pub(super) states: States,
    pub(super) made: i64,
    pub(super) pruned: i64,
    pub(super) record: LaneRecord,
}

impl Lane {
    /// One with no dispatches, as far as is known.
    pub(super) fn new(upstream: u32, name: UpstreamName, window: Option<Arc<Window>>) -> Self {
        Self {
            upstream,
            name,
            window,
            next_due: None,
            full_turns: 0,
            states: States::default(),
            made: 0,
            pruned: 0,
            record: LaneRecord::default(),
        }
    }

    /// Notes that a dispatch is pending and due then. Early is harmless (a claim finds nothing), late is not.
    pub(super) fn pending_from(&mut self, due: crate::time::Timestamp) {
        self.next_due = Some(self.next_due.map_or(due, |next| next.min(due)));
    }
}

/// A lease that comes back unsettled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Returned {
    pub(super) lease: LeaseRef,
    /// It lay ready and was never taken: its attempt's number is free again.
    pub(super) unused: bool,
}

/// A set of upstreams, as configured, made ready once.
#[derive(Clone, Debug)]
struct Route {
    upstreams: Arc<[UpstreamName]>,
    lanes: Arc<[usize]>,
    blob: Arc<[u8]>,
}

/// See the module.
pub(super) struct Writer {
    pub(super) shared: Arc<Shared>,
    pub(super) conn: Connection,
    pub(super) settings: StoreSettings,
    pub(super) tuning: Tuning,
    pub(super) clock: Clock,
    notices: Box<dyn FnMut(Notice) + Send>,
    pub(super) sources: HashMap<SourceName, u32>,
    pub(super) source_names: HashMap<u32, SourceName>,
    pub(super) lanes: Vec<Lane>,
    pub(super) lane_of: HashMap<u32, usize>,
    routes: Vec<Route>,
    appends: VecDeque<Append>,
    pub(super) settles: VecDeque<Settle>,
    pub(super) declines: Vec<Decline>,
    /// Those whose event is not admitted yet wait here.
    pub(super) asks: Vec<Ask>,
    pub(super) give_backs: Vec<Returned>,
    pub(super) orders: VecDeque<Order>,
    pub(super) calls: Calls,
    pub(super) tail: Tail,
    pub(super) keys: Keys,
    /// Nothing is admitted without a claim.
    pub(super) separate: bool,
    /// Positions below were laid out for their claim.
    pub(super) laid_out_end: i64,
    /// There are or may be copies of events that are elsewhere.
    pub(super) has_elsewhere: bool,
    pub(super) next_position: i64,
    reserved_end: i64,
    tally_position: i64,
    pub(super) retention: Retention,
    pub(super) trust: TimeTrust,
    /// The wall clock as this turn has it, which the trust was asked about.
    pub(super) now: crate::time::Timestamp,
    pub(super) reserve: Reserve,
    pub(super) helper: Helper,
    pub(super) wal: Wal,
    wal_frames: Arc<AtomicU32>,
    /// The last turn admitted nothing, for lack of room in a window.
    admission_waits: bool,
    corrupt: bool,
    closing: bool,
    /// Closed after the connection: closing it drops this process's locks on the file.
    database_file: Option<std::fs::File>,
    /// Released last.
    _lock: Lock,
}

/// Opens everything and starts the thread.
pub(super) fn start(
    settings: StoreSettings,
    place: &SqliteSettings,
    upstreams: Vec<UpstreamName>,
    clock: Clock,
    notices: Box<dyn FnMut(Notice) + Send>,
    tuning: Tuning,
    ended: watch::Sender<bool>,
) -> Result<Arc<Shared>, OpenError> {
    let files = Files::new(&place.path);
    let lock = schema::lock(&files)?;
    let mut conn = schema::open_writer(&files, tuning.wal_bytes)?;
    if let Some(namespace) = &place.namespace {
        schema::refuse_retired(&conn, namespace)?;
    }
    let wal_frames = Arc::new(AtomicU32::new(0));
    let recovered = recover::recover(&mut conn, &upstreams, &tuning)?;
    watch_wal(&mut conn, &wal_frames)?;
    let configured = recovered.lanes.iter().filter(|lane| lane.window.is_some());
    let outlets: HashMap<UpstreamName, Outlet> = configured
        .map(|lane| {
            let (upstream, window) = (lane.upstream, lane.window.clone());
            (lane.name.clone(), Outlet { upstream, window })
        })
        .collect();
    let shared = Arc::new(Shared {
        inbox: Inbox::new(),
        desk: Arc::new(Desk::default()),
        outlets: ArcSwap::from_pointee(outlets),
        status: Mutex::new(Status {
            unadmitted_max: u64::try_from(settings.unadmitted).unwrap_or(u64::MAX),
            ..Status::default()
        }),
        revoked: Mutex::default(),
        revoked_len: 0.into(),
        disk_spent: false.into(),
        lost: std::sync::OnceLock::new(),
        oldest_open: Mutex::default(),
        used_bytes: 0.into(),
        wal_used_bytes: 0.into(),
        free_bytes: 0.into(),
        commit_times: Arc::default(),
        clock_trusted: true.into(),
    });
    let helper = Helper::start(&files, settings.max_bytes, place.min_free, &shared)?;
    schema::limit_wal(&conn, tuning.wal_bytes)?;
    if let Some(namespace) = &place.namespace {
        schema::use_namespace(&conn, namespace)?;
    }
    let now = clock.now();
    let trust = TimeTrust::new(now, clock.monotonic(), recovered.newest);
    let lane_of = recovered
        .lanes
        .iter()
        .enumerate()
        .map(|(slot, lane)| (lane.upstream, slot))
        .collect();
    let mut writer = Writer {
        shared: Arc::clone(&shared),
        reserve: Reserve::new(&files),
        conn,
        retention: Retention::default(),
        settings,
        tuning,
        clock,
        notices,
        source_names: recovered.sources.iter().map(|(name, id)| (*id, name.clone())).collect(),
        sources: recovered.sources,
        lanes: recovered.lanes,
        lane_of,
        routes: Vec::new(),
        appends: VecDeque::new(),
        settles: VecDeque::new(),
        declines: Vec::new(),
        asks: Vec::new(),
        give_backs: Vec::new(),
        orders: VecDeque::new(),
        calls: Calls::new(recovered.routes, recovered.records),
        tail: Tail {
            events: VecDeque::new(),
            bytes: 0,
            count: recovered.unadmitted,
            loaded_end: recovered.admitted_end,
        },
        keys: recovered.keys,
        separate: place.separate,
        laid_out_end: 0,
        has_elsewhere: place.separate || recovered.has_elsewhere,
        next_position: recovered.next_position,
        reserved_end: recovered.next_position,
        tally_position: recovered.tally_position,
        trust,
        now,
        helper,
        wal: Wal::default(),
        wal_frames,
        admission_waits: false,
        corrupt: false,
        closing: false,
        database_file: None,
        _lock: lock,
    };
    // Before anybody can ask what has expired.
    writer.keep_time();
    writer.finish_partition_at_open()?;
    writer.publish_status(0);
    let spawned = std::thread::Builder::new()
        .name("store-writer".to_owned())
        .spawn(move || {
            let end = EndGuard {
                shared: Arc::clone(&writer.shared),
                ended,
            };
            writer.run();
            drop(writer);
            drop(end);
        });
    match spawned {
        Ok(_thread) => Ok(shared),
        Err(error) => Err(OpenError::Unsuitable(format!("a thread could not be started: {error}"))),
    }
}

/// Lets SQLite say after each commit how many pages the log holds.
fn watch_wal(conn: &mut Connection, frames: &Arc<AtomicU32>) -> rusqlite::Result<()> {
    let frames = Arc::clone(frames);
    conn.wal_hook(Some(move |_wal: &mut rusqlite::hooks::Wal, pages: std::ffi::c_int| {
        frames.store(u32::try_from(pages).unwrap_or(0), Ordering::Relaxed);
        Ok(())
    }))
}

/// Whatever ends the writer, also a panic: nobody waits for it in vain.
struct EndGuard {
    shared: Arc<Shared>,
    ended: watch::Sender<bool>,
}

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.shared.inbox.close();
        self.shared.desk.close();
        // Dropping what still waits answers it: the receivers see that the senders are gone.
        drop(self.shared.inbox.take(Patience::None, false));
        for window in self
            .shared
            .outlets
            .load()
            .values()
            .filter_map(|outlet| outlet.window.as_ref())
        {
            window.close().into_iter().for_each(|ready| ready.dispatch.forget());
        }
        if std::thread::panicking() {
            tracing::error!("the store's writer panicked; nothing is accepted until a restart");
        }
        self.ended.send_replace(true);
    }
}

impl Writer {
    fn run(&mut self) {
        loop {
            let stalled = self.is_stalled() && !self.closing;
            let work = self.shared.inbox.take(self.patience(), stalled);
            self.accept(work);
            if self.closing && self.is_stalled() {
                // No claim comes any more.
                for append in self.appends.drain(..) {
                    let _hung_up = append.receipt.send(Err(AppendError::Closing));
                }
            }
            if self.closing && self.is_idle() {
                break;
            }
            if !self.turn() {
                std::thread::sleep(FAILED_PAUSE);
                if self.closing {
                    break;
                }
            }
        }
        self.finish();
    }

    fn accept(&mut self, work: Work) {
        self.appends.extend(work.appends);
        self.settles.extend(work.settles);
        self.declines.extend(work.declines);
        // Whoever waits no more is not kept while the store cannot answer.
        self.asks.retain(|ask| !ask.found.is_closed());
        self.asks.extend(work.asks);
        let dropped = work.give_backs.into_iter();
        self.give_backs
            .extend(dropped.map(|lease| Returned { lease, unused: false }));
        self.orders.extend(work.orders);
        self.calls.begins.extend(work.begins);
        self.calls.endings.extend(work.endings);
        self.note_claims(work.claims);
        self.closing |= work.closing;
    }

    fn is_idle(&self) -> bool {
        self.appends.is_empty()
            && self.settles.is_empty()
            && self.declines.is_empty()
            && self.give_backs.is_empty()
            && self.orders.is_empty()
            && self.calls.none_waits()
    }

    fn patience(&self) -> Patience {
        let room_for_appends = self.tail.count < self.settings.unadmitted;
        if self.closing
            || (!self.appends.is_empty() && room_for_appends)
            || !self.orders.is_empty()
            || self.has_ready_asks()
            || !self.calls.none_waits()
            || self.settles.len() > SETTLES_MAX / 8
            || (self.tail.count > ADMIT_MAX / 16 && self.may_admit() && !self.admission_waits)
        {
            return Patience::None;
        }
        if !self.settles.is_empty()
            || !self.declines.is_empty()
            || !self.give_backs.is_empty()
            || self.may_admit()
            || self.claim_is_due()
            || self.keys.frozen.as_ref().is_some_and(|frozen| frozen.sealed.is_some())
            || self.retention.is_pruning()
            || self.calls.more_expired
        {
            return Patience::Linger(LINGER);
        }
        if self.keys.frozen.is_some() {
            return Patience::Idle(IDLE_WITH_TIMERS);
        }
        let lanes = self.lanes.iter().filter(|lane| lane.window.is_some());
        match lanes.filter_map(|lane| lane.next_due).min() {
            // A lane whose window is full has to ask, so a due date that has passed is no reason to hurry.
            Some(due) => {
                let wait = due.since(self.clock.now());
                let wait = if wait.is_zero() { IDLE_WITH_TIMERS } else { wait };
                Patience::Idle(wait.clamp(Duration::from_millis(1), IDLE_WITH_TIMERS))
            }
            None => Patience::Idle(IDLE),
        }
    }

    /// One transaction. False when it failed.
    fn turn(&mut self) -> bool {
        self.keep_time();
        if self.corrupt {
            self.refuse_appends("the database is damaged");
            return false;
        }
        let mut turn = Turn {
            // A store that failed tries again by itself: the tally is the smallest thing to write.
            save_tally: self.is_failing(),
            rooms: self
                .lanes
                .iter()
                .map(|lane| {
                    lane.window.as_ref().map_or(
                        Room {
                            dispatches: 0,
                            bytes: 0,
                        },
                        |window| window.room(),
                    )
                })
                .collect(),
            ..Turn::default()
        };
        match self.write(&mut turn) {
            Ok(()) => {
                let dirty = turn.dirty;
                self.publish(turn);
                self.after_commit(dirty);
                true
            }
            Err(error) => {
                self.undo(turn, &error);
                false
            }
        }
    }

    fn write(&mut self, turn: &mut Turn) -> rusqlite::Result<()> {
        self.learn_names()?;
        self.conn.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        self.take_orders(turn)?;
        self.end_calls(turn)?;
        self.begin_calls(turn)?;
        self.record_settles(turn, SETTLES_MAX)?;
        self.record_declines(turn)?;
        self.take_back(turn)?;
        let batch = self.append_batch();
        let quota = self.admission_quota(batch, &turn.rooms);
        self.admission_waits = quota == 0 && self.may_admit();
        self.admit(turn, quota)?;
        self.answer_asks(turn)?;
        self.write_appends(turn, batch)?;
        self.claim(turn, batch > 0)?;
        self.seal_step(turn, batch > 0)?;
        self.prune_step(turn, batch)?;
        self.expire_records(turn)?;
        if turn.save_tally || self.admitted_end().saturating_sub(self.tally_position) >= TALLY_EVERY {
            self.write_tally(turn)?;
        }
        let begun = self.clock.monotonic();
        self.conn.prepare_cached("COMMIT")?.execute([])?;
        // Only those that senders wait for; a turn without events may have nothing to sync.
        if batch > 0 {
            self.shared.commit_times.observe(self.clock.monotonic().since(begun));
        }
        Ok(())
    }

    /// How many of the waiting appends go into this turn.
    fn append_batch(&self) -> usize {
        let room = self.settings.unadmitted.saturating_sub(self.tail.count);
        let mut bytes = 0_usize;
        self.appends
            .iter()
            .take(BATCH_MAX.min(room))
            .take_while(|append| {
                let first = bytes == 0;
                bytes = bytes.saturating_add(append.bytes());
                first || bytes <= BATCH_BYTES_MAX
            })
            .count()
    }

    /// How many events may be admitted in a turn that appends `batch`: proportional control on the tail. At a half of
    /// its bound admission is as fast as appending, so the tail settles there under an endless burst.
    fn admission_quota(&mut self, batch: usize, rooms: &[Room]) -> usize {
        if !self.may_admit() {
            return 0;
        }
        let quota = if batch == 0 {
            ADMIT_MAX
        } else {
            let bound = self.settings.unadmitted.max(2);
            (batch.saturating_mul(self.tail.count) / (bound / 2)).min(ADMIT_MAX)
        };
        quota.min(self.admission_cap(rooms))
    }

    /// What a lane takes at once need not be read back later. So where a lane keeps up, admission goes no further than its
    /// window, and waits a moment for it to empty; where it does not, its events wait in the store as pending.
    fn admission_cap(&mut self, rooms: &[Room]) -> usize {
        let now = self.clock.now();
        let mut cap = usize::MAX;
        for (lane, room) in self.lanes.iter_mut().zip(rooms) {
            let Some(window) = &lane.window else { continue };
            if lane.next_due.is_some_and(|due| due <= now) {
                continue;
            }
            if room.dispatches >= WINDOW_MAX / 4 && room.bytes > 0 {
                lane.full_turns = 0;
                cap = cap.min(room.dispatches);
            } else if lane.full_turns < FULL_TURNS_MAX {
                lane.full_turns += 1;
                // The feed wakes us when the window runs low.
                window.backlog.store(true, Ordering::Release);
                cap = 0;
            }
        }
        cap
    }

    fn take_orders(&mut self, turn: &mut Turn) -> rusqlite::Result<()> {
        // A few a turn: each is small, and replaying many must not hold up accepts.
        for _ in 0..16 {
            let Some(order) = self.orders.pop_front() else { break };
            let reply = self.obey(turn, order)?;
            turn.replies.push(reply);
        }
        Ok(())
    }

    /// The first position that is not admitted.
    pub(super) fn admitted_end(&self) -> i64 {
        match self.tail.events.front() {
            Some(first) => first.id.position().get(),
            None => self.tail.loaded_end,
        }
    }

    /// Saves the tally as it will be once this turn is committed.
    fn write_tally(&mut self, turn: &mut Turn) -> rusqlite::Result<()> {
        let mut save = self.conn.prepare_cached(include_str!("save_tally.sql"))?;
        for (slot, lane) in self.lanes.iter().enumerate() {
            let (mut made, mut pruned, mut states) = (lane.made, lane.pruned, lane.states);
            for step in turn.moves.iter().filter(|step| step.lane == slot) {
                apply(step, &mut states, &mut made, &mut pruned);
            }
            save.execute(params![
                lane.upstream,
                made,
                pruned,
                states.get(DispatchState::Discarded)
            ])?;
        }
        let end = self.admitted_end();
        self.conn
            .prepare_cached(include_str!("save_tally_position.sql"))?
            .execute([end])?;
        self.tally_position = end;
        turn.dirty = true;
        Ok(())
    }

    fn is_failing(&self) -> bool {
        self.shared.status(|status| status.failing.is_some())
    }

    pub(super) fn tail_is_in_memory(&self) -> bool {
        self.tail.count == self.tail.events.len()
    }

    fn after_commit(&mut self, dirty: bool) {
        if dirty && self.shared.status(|status| status.failing.take().is_some()) {
            tracing::info!("the store can write again");
        }
        let frames = self.wal_frames.load(Ordering::Relaxed);
        self.checkpoint_step(frames);
        self.freeze_when_full();
    }

    /// Gives unused leases back and leaves the files in order.
    fn finish(&mut self) {
        let mut unused = Vec::new();
        for lane in &self.lanes {
            if let Some(window) = &lane.window {
                for Ready { dispatch, .. } in window.close() {
                    unused.push(LeaseRef {
                        dispatch: super::DispatchId::new(dispatch.event.id.position().get(), lane.upstream),
                        token: dispatch.token,
                    });
                    dispatch.forget();
                }
            }
        }
        let work = self.shared.inbox.take(Patience::None, false);
        self.accept(work);
        let mut turn = Turn::default();
        let closed = self.close_transaction(&mut turn, &unused);
        match closed {
            Ok(()) => self.publish(turn),
            Err(error) => tracing::warn!(
                error = describe(&error),
                "leases could not be handed back; the next start ends them"
            ),
        }
        self.database_file = self.helper.stop();
        // The log is kept at its length for the next start; a limit would cut it to nothing when the last connection closes.
        let kept = self
            .conn
            .pragma_update(None, "journal_size_limit", -1)
            .and_then(|()| self.conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_row| Ok(())));
        if let Err(error) = kept {
            tracing::warn!(
                error = describe(&error),
                "the log could not be copied into the database at closing"
            );
        }
    }

    fn close_transaction(&mut self, turn: &mut Turn, unused: &[LeaseRef]) -> rusqlite::Result<()> {
        if self.corrupt {
            return Ok(());
        }
        self.conn.execute_batch("BEGIN IMMEDIATE")?;
        self.record_settles(turn, usize::MAX)?;
        self.record_declines(turn)?;
        self.end_all_calls(turn)?;
        self.take_back(turn)?;
        for lease in unused {
            self.give_back(turn, *lease, 1)?;
        }
        self.write_tally(turn)?;
        self.conn.execute_batch("COMMIT")
    }
}
