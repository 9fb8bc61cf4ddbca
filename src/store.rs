//! The durable store: append, admit, lease, settle.
//!
//! [`Store`] is a handle on a backend: embedded (SQLite, one writer thread; see the `sqlite` module for how and why), or
//! shared by replicas (PostgreSQL; see the `postgres` module).
//! Its promises: P1 (a [`Receipt`] exists only after the commit and its sync), P2 (the unique key decides, once, at
//! admission), P6 (queues, windows and the unadmitted tail are bounded), P8 (nothing undelivered is removed), P9 (an
//! attempt's number is durable before its lease is handed out, and a lost lease cannot settle).

mod append;
pub mod backup;
mod calls;
mod claims;
pub mod codec;
#[cfg(test)]
mod memory;
pub mod model;
mod postgres;
pub mod probe;
pub mod query;
pub mod records;
pub mod reply;
pub mod secrets;
pub mod settings;
mod sqlite;
mod trust;
mod window;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::ErrorCode;
use tokio::sync::{oneshot, watch};

pub use self::claims::Claims;
pub use self::query::{
    AttemptRecord, Counts, Discarded, DispatchSummary, EventDetail, EventFilter, EventPage, EventSummary, Replayed,
    UpstreamCounts,
};
pub use self::window::Feed;

use self::append::Append;
use self::model::{
    AppendError, Claim, Death, Finished, LaneRecord, LaneSave, LeasedDispatch, NewEvent, Next, Notice, Receipt,
    Settled, Share, ShareUse, Undelivered,
};
use self::reply::{Found, Unattempted, Want};
use self::secrets::{SecretNote, SecretRecord};
use self::settings::{LaneSettings, Live, Place, StoreSettings};
use crate::id::{EventId, UpstreamName};
use crate::measure::Histogram;
use crate::time::Clock;

/// Why a store could not be opened. Its files are as they were.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error("another process has the store in {path:?} open; one store serves one process")]
    Locked {
        /// Its directory.
        path: PathBuf,
    },
    /// A newer version wrote it.
    #[error("{path:?} has schema {found}, written by a newer version of hooksluice; this one knows up to {known}")]
    Newer {
        /// The database.
        path: PathBuf,
        /// Its schema.
        found: i32,
        /// The newest this version can read.
        known: i32,
    },
    /// It is a copy, and Redis was told of the events of the store that was copied under this name.
    #[error(
        "the store was restored from a backup, and Redis may hold keys under `[dedupe.redis] namespace = {namespace:?}` of \
         events that came after the backup and are lost: deliveries of them would be dropped. Choose another namespace, the \
         same at every replica"
    )]
    Retired {
        /// The name.
        namespace: String,
    },
    /// The file is something else.
    #[error("{path:?} is not a hooksluice store")]
    NotOurs {
        /// The file.
        path: PathBuf,
    },
    /// The place cannot hold a durable store.
    #[error("this place cannot hold a durable store: {0}")]
    Unsuitable(String),
    /// Its contents contradict themselves.
    #[error("the store is damaged: {0}")]
    Damaged(String),
    /// A file of it is missing or empty, and the others show that it once was not.
    #[error(
        "{lost:?} is missing or empty, but {sign:?} shows that the store was in use: opening it would lose events. Put the \
         file back or restore a backup. To start with an empty store, remove the whole directory; to go on with the \
         database without what only its log (-wal) held, remove all files but hooksluice.db"
    )]
    Incomplete {
        /// What is missing.
        lost: PathBuf,
        /// What is still there.
        sign: PathBuf,
    },
    /// The file system refused.
    #[error("{path:?} could not be opened")]
    Io {
        /// What was to be opened.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The database refused; a damaged file says so here.
    #[error("the store's database could not be opened: {0}")]
    Database(String),
}

impl From<rusqlite::Error> for OpenError {
    /// With one cause in words: SQLite's own error repeats them as its source.
    fn from(error: rusqlite::Error) -> Self {
        let mut why = sqlite::describe(&error);
        if let Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) = error.sqlite_error_code() {
            why.push_str("; the file is damaged: restore a backup, after keeping a copy of the directory");
        }
        Self::Database(why)
    }
}

impl OpenError {
    fn io(path: &Path, source: std::io::Error) -> Self {
        Self::Io {
            path: path.to_owned(),
            source,
        }
    }
}

/// Why the store did not do what it was asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// It is shutting down.
    #[error("the store is closing")]
    Closing,
    /// Too much waits.
    #[error("the store's queue is full")]
    Overloaded,
    /// Reading or writing failed.
    #[error("the store failed: {0}")]
    Failed(String),
    /// A replay named an upstream that is not in the configuration.
    #[error("no upstream is named {0}")]
    UnknownUpstream(UpstreamName),
}

/// A handle on the open store; clones share it. The store closes with [`Store::close`], or when the last handle is gone.
#[derive(Clone, Debug)]
pub struct Store {
    backend: Backend,
}

/// Where it is.
#[derive(Clone, Debug)]
enum Backend {
    /// Embedded, for one process.
    Sqlite(Arc<sqlite::Backend>),
    /// Shared by replicas.
    Postgres(Arc<postgres::Backend>),
    /// The reference that tests compare with.
    #[cfg(test)]
    Memory(Arc<memory::Backend>),
}

impl Store {
    /// Opens the store that `settings` name, creating it where it is missing.
    ///
    /// `lanes` are the upstreams of the configuration; dispatches of others are held. `notices` is called after each commit,
    /// in commit order; it must not block.
    pub async fn open(
        settings: StoreSettings,
        lanes: Vec<LaneSettings>,
        clock: Clock,
        notices: Box<dyn FnMut(Notice) + Send>,
    ) -> Result<Self, OpenError> {
        match settings.place.clone() {
            Place::Sqlite(place) => {
                let open =
                    move || sqlite::Backend::open(settings, &place, lanes, clock, notices, sqlite::Tuning::default());
                let opened = tokio::task::spawn_blocking(open).await;
                let backend = opened.map_err(|ended| OpenError::Unsuitable(ended.to_string()))??;
                Ok(Self {
                    backend: Backend::Sqlite(Arc::new(backend)),
                })
            }
            Place::Postgres(_) => Self::open_shared(settings, lanes, clock, notices, postgres::Tuning::default()).await,
        }
    }

    /// As [`Store::open`], where nothing can be awaited.
    #[cfg(test)]
    pub(crate) fn open_embedded(
        settings: StoreSettings,
        lanes: Vec<LaneSettings>,
        clock: Clock,
        notices: Box<dyn FnMut(Notice) + Send>,
    ) -> Result<Self, OpenError> {
        Self::open_tuned(settings, lanes, clock, notices, sqlite::Tuning::default())
    }

    #[cfg(test)]
    fn open_tuned(
        settings: StoreSettings,
        lanes: Vec<LaneSettings>,
        clock: Clock,
        notices: Box<dyn FnMut(Notice) + Send>,
        tuning: sqlite::Tuning,
    ) -> Result<Self, OpenError> {
        let Place::Sqlite(place) = settings.place.clone() else {
            return Err(OpenError::Unsuitable("not embedded".to_owned()));
        };
        let backend = sqlite::Backend::open(settings, &place, lanes, clock, notices, tuning)?;
        Ok(Self {
            backend: Backend::Sqlite(Arc::new(backend)),
        })
    }

    /// Replicas of one store in memory.
    #[cfg(test)]
    pub(crate) fn in_memory<const N: usize>(lanes: &[LaneSettings], clock: &Clock) -> [Self; N] {
        let place = memory::Place::default();
        std::array::from_fn(|_| {
            let settings = StoreSettings::default();
            let backend = memory::Backend::open(&place, settings, lanes.to_vec(), clock.clone(), Box::new(|_| ()));
            Self {
                backend: Backend::Memory(backend),
            }
        })
    }

    /// This replica of a store in memory has this share from now on.
    #[cfg(test)]
    pub(crate) fn grant(&self, upstream: &UpstreamName, share: Share) {
        if let Backend::Memory(memory) = &self.backend {
            memory.grant(upstream.clone(), share);
        }
    }

    /// What this replica's lane made of it.
    #[cfg(test)]
    pub(crate) fn share_use(&self, upstream: &UpstreamName) -> Option<ShareUse> {
        match &self.backend {
            Backend::Memory(memory) => memory.share_use(upstream),
            Backend::Sqlite(_) | Backend::Postgres(_) => None,
        }
    }

    async fn open_shared(
        settings: StoreSettings,
        lanes: Vec<LaneSettings>,
        clock: Clock,
        notices: Box<dyn FnMut(Notice) + Send>,
        tuning: postgres::Tuning,
    ) -> Result<Self, OpenError> {
        let Place::Postgres(place) = settings.place.clone() else {
            return Err(OpenError::Unsuitable("not shared".to_owned()));
        };
        let backend = postgres::Backend::open(settings, &place, lanes, clock, notices, tuning).await?;
        Ok(Self {
            backend: Backend::Postgres(Arc::new(backend)),
        })
    }

    /// Takes over what another configuration says of upstreams and sources, as if the store had been closed and opened with
    /// it, but that nothing stops. On failure nothing has changed. One call at a time.
    ///
    /// - An upstream that is new has a [`Store::feed`], and its held dispatches go on. One that was there before and came
    ///   back has a new feed.
    /// - The feed of one that is gone ends. What lay ready in it is handed back with its attempts unused, as far as that can
    ///   be written now; its pending dispatches count as held from here on. Attempts that run are settled as ever.
    /// - Units are divided anew between replicas by their next heartbeats. While replicas have different configurations, the
    ///   smallest number of units is divided, so that all together never use more than the largest pace.
    /// - `window`: a key that is younger is never forgotten. After the window has shrunk a key may go as soon as it is older
    ///   than the new one, also one that was taken under the longer; one that was forgotten does not come back when it grows.
    /// - `synchronous` decides for events that are appended (embedded: admitted) from here on.
    pub async fn reconfigure(&self, live: Live) -> Result<(), StoreError> {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.reconfigure(live).await,
            Backend::Postgres(postgres) => postgres.reconfigure(live).await,
            #[cfg(test)]
            Backend::Memory(memory) => memory.reconfigure(&live),
        }
    }

    /// Makes a verified request durable. The event is on its way when this returns; dropping the future cancels nothing
    /// (P1). The receipt comes after commit and sync.
    pub fn append(&self, event: NewEvent) -> impl Future<Output = Result<Receipt, AppendError>> + Send + use<> {
        let (receipt, received) = oneshot::channel();
        let append = Append::new(event, receipt);
        let refused = match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.append(append),
            Backend::Postgres(postgres) => postgres.append(append),
            #[cfg(test)]
            Backend::Memory(memory) => memory.append(append),
        }
        .err();
        async move {
            match refused {
                Some(error) => Err(error),
                None => received
                    .await
                    .unwrap_or_else(|_gone| Err(AppendError::Failed("the store's writer has ended".to_owned()))),
            }
        }
    }

    /// The appended events of a separate store, to be asked about in Redis; `None` for any other, and the second time.
    /// Nothing is admitted but what is answered with [`Store::claimed`].
    pub fn claims(&self) -> Option<Claims> {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.claims(),
            Backend::Postgres(_) => None,
            #[cfg(test)]
            Backend::Memory(_) => None,
        }
    }

    /// Hands back what Redis said about events from [`Store::claims`], in any order. A claim that is late holds up the
    /// admission of all that was appended after its event.
    pub fn claimed(&self, claims: Vec<(EventId, Claim)>) {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.claimed(claims),
            // It admits without asking.
            Backend::Postgres(_) => drop(claims),
            #[cfg(test)]
            Backend::Memory(_) => drop(claims),
        }
    }

    /// Events of which a dispatch died and that were not [told](Store::deaths_told) yet, oldest first; kept only with
    /// [`StoreSettings::keep_deaths`].
    pub async fn untold_deaths(&self, limit: usize) -> Result<Vec<Death>, StoreError> {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.untold_deaths(limit).await,
            Backend::Postgres(postgres) => postgres.untold_deaths(limit).await,
            #[cfg(test)]
            Backend::Memory(memory) => Ok(memory.untold_deaths(limit)),
        }
    }

    /// Forgets deaths that [`Store::untold_deaths`] answered and that have been told since. A death that came after that
    /// look stays.
    pub async fn deaths_told(&self, deaths: Vec<Death>) -> Result<(), StoreError> {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.deaths_told(deaths).await,
            Backend::Postgres(postgres) => postgres.deaths_told(deaths).await,
            #[cfg(test)]
            Backend::Memory(memory) => {
                memory.deaths_told(&deaths);
                Ok(())
            }
        }
    }

    /// Events received longer ago than `older_than` that have a dispatch which is pending, leased, held or dead: at most
    /// `limit`, in the order of their ids, those behind `after`. Empty at the end.
    pub async fn undelivered_keys(
        &self,
        older_than: Duration,
        after: Option<EventId>,
        limit: usize,
    ) -> Result<Vec<Undelivered>, StoreError> {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.undelivered_keys(older_than, after, limit).await,
            Backend::Postgres(postgres) => postgres.undelivered_keys(older_than, after, limit).await,
            #[cfg(test)]
            Backend::Memory(memory) => Ok(memory.undelivered_keys(older_than, after, limit)),
        }
    }

    /// Keeps what was seen of secrets since they were last noted: what is new is added to what is known. A secret that
    /// was never noted before is known from now on.
    pub async fn note_secrets(&self, mut notes: Vec<SecretNote>) -> Result<(), StoreError> {
        // The same secret twice in a list is one secret.
        notes.sort_by(|one, other| (&one.source, one.mark).cmp(&(&other.source, other.mark)));
        notes.dedup_by(|later, kept| {
            let same = (&later.source, later.mark) == (&kept.source, kept.mark);
            if same {
                kept.used = kept.used.max(later.used);
                kept.others = kept.others.min(later.others);
            }
            same
        });
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.note_secrets(notes).await,
            Backend::Postgres(postgres) => postgres.note_secrets(notes).await,
            #[cfg(test)]
            Backend::Memory(memory) => {
                memory.note_secrets(notes);
                Ok(())
            }
        }
    }

    /// What is known of all secrets that were noted, by any replica, whether or not they are still configured.
    pub async fn secrets(&self) -> Result<Vec<SecretRecord>, StoreError> {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.secrets().await,
            Backend::Postgres(postgres) => postgres.secrets().await,
            #[cfg(test)]
            Backend::Memory(memory) => Ok(memory.secrets()),
        }
    }

    /// The upstreams of the configuration, by name.
    pub fn upstreams(&self) -> Vec<UpstreamName> {
        let mut upstreams = match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.upstreams(),
            Backend::Postgres(postgres) => postgres.upstreams(),
            #[cfg(test)]
            Backend::Memory(memory) => memory.upstreams(),
        };
        upstreams.sort_unstable();
        upstreams
    }

    /// The dispatches of an upstream; `None` when it is not in the configuration. One feed per upstream.
    pub fn feed(&self, upstream: &UpstreamName) -> Option<Feed> {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.feed(upstream),
            Backend::Postgres(postgres) => postgres.feed(upstream),
            #[cfg(test)]
            Backend::Memory(memory) => memory.feed(upstream),
        }
    }

    /// Whether a lease still holds, as far as this process knows: a person may have discarded its dispatch. Cheap; for
    /// the moment before the first byte.
    pub fn holds(&self, lease: &LeasedDispatch) -> bool {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.holds(lease),
            Backend::Postgres(postgres) => postgres.holds(lease),
            #[cfg(test)]
            Backend::Memory(memory) => memory.holds(lease),
        }
    }

    /// Records how an attempt ended and ends its lease, in one transaction. Waits while the store cannot write, so the
    /// outcome is not lost while the process lives; fails only once the store is closing. Under way when this returns.
    pub fn settle(
        &self,
        finished: Finished,
        next: Next,
    ) -> impl Future<Output = Result<Settled, StoreError>> + Send + use<> {
        let (settled, answer) = oneshot::channel();
        let refused = match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.settle(finished, next, settled),
            Backend::Postgres(postgres) => postgres.settle(finished, next, settled),
            #[cfg(test)]
            Backend::Memory(memory) => memory.settle(finished, next, settled),
        }
        .err();
        async move {
            match refused {
                Some(error) => Err(error),
                None => answer.await.map_err(|_gone| StoreError::Closing),
            }
        }
    }

    /// Asks for an event's dispatch itself, for a sender that waits for the upstream's answer. Answered once the event is
    /// admitted. What waited, or was dead, is leased to who asks, with the attempt's number durable (P9).
    pub fn lease_now(&self, want: Want) -> impl Future<Output = Result<Found, StoreError>> + Send + use<> {
        let backend = self.backend.clone();
        async move {
            match &backend {
                Backend::Sqlite(sqlite) => sqlite.lease_now(want).await,
                Backend::Postgres(postgres) => postgres.lease_now(want).await,
                #[cfg(test)]
                Backend::Memory(memory) => memory.lease_now(&want),
            }
        }
    }

    /// Takes a dispatch that lies ready for its lane out of the lane's window, for a sender that waits: it is late, and the
    /// lane has not come to it yet.
    pub fn take_ready(&self, upstream: &UpstreamName, event: EventId) -> Option<LeasedDispatch> {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.take_ready(upstream, event),
            Backend::Postgres(postgres) => postgres.take_ready(upstream, event),
            #[cfg(test)]
            Backend::Memory(memory) => memory.take_ready(upstream, event),
        }
    }

    /// Ends a lease whose attempt was not begun. Waits while the store cannot write, as [`Store::settle`] does. Under way
    /// when this returns.
    pub fn decline(
        &self,
        lease: LeasedDispatch,
        then: Unattempted,
    ) -> impl Future<Output = Result<Settled, StoreError>> + Send + use<> {
        let (settled, answer) = oneshot::channel();
        let refused = match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.decline(lease, then, settled),
            Backend::Postgres(postgres) => postgres.decline(lease, then, settled),
            #[cfg(test)]
            Backend::Memory(memory) => memory.decline(lease, then, settled),
        }
        .err();
        async move {
            match refused {
                Some(error) => Err(error),
                None => answer.await.map_err(|_gone| StoreError::Closing),
            }
        }
    }

    /// A page of at most `limit` (and 500) events before `before`, newest first. Looks at a bounded number of events, so a
    /// page may be short while there is more.
    pub async fn events(
        &self,
        filter: EventFilter,
        before: Option<EventId>,
        limit: usize,
    ) -> Result<EventPage, StoreError> {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.events(filter, before, limit).await,
            Backend::Postgres(postgres) => postgres.events(filter, before, limit).await,
            #[cfg(test)]
            Backend::Memory(memory) => Ok(memory.events(&filter, before, limit)),
        }
    }

    /// One event with its dispatches and attempts.
    pub async fn event(&self, id: EventId) -> Result<Option<EventDetail>, StoreError> {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.event(id).await,
            Backend::Postgres(postgres) => postgres.event(id).await,
            #[cfg(test)]
            Backend::Memory(memory) => Ok(memory.event(id)),
        }
    }

    /// Makes dispatches of an event pending again, whatever became of them: those of the named upstreams (made where
    /// there is none), or all it has. Past dedupe and freshness; attempt numbers go on.
    pub async fn replay(&self, event: EventId, upstreams: Option<Vec<UpstreamName>>) -> Result<Replayed, StoreError> {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.replay(event, upstreams).await,
            Backend::Postgres(postgres) => postgres.replay(event, upstreams).await,
            #[cfg(test)]
            Backend::Memory(memory) => memory.replay(event, upstreams),
        }
    }

    /// Gives up dispatches that are not delivered, for good, by a person's decision: that of one upstream, or all.
    pub async fn discard(&self, event: EventId, upstream: Option<UpstreamName>) -> Result<Discarded, StoreError> {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.discard(event, upstream).await,
            Backend::Postgres(postgres) => postgres.discard(event, upstream).await,
            #[cfg(test)]
            Backend::Memory(memory) => memory.discard(event, upstream.as_ref()),
        }
    }

    /// How many dispatches there are.
    pub async fn counts(&self) -> Result<Counts, StoreError> {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.counts().await,
            Backend::Postgres(postgres) => postgres.counts().await,
            #[cfg(test)]
            Backend::Memory(memory) => Ok(memory.counts()),
        }
    }

    /// How long the commits (with their sync) of appended events took since the store was opened.
    pub fn commit_times(&self) -> Arc<Histogram> {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.commit_times(),
            Backend::Postgres(postgres) => postgres.commit_times(),
            #[cfg(test)]
            Backend::Memory(memory) => memory.commit_times(),
        }
    }

    /// Whether an append would be taken now.
    pub fn is_writable(&self) -> Result<(), AppendError> {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.is_writable(),
            Backend::Postgres(postgres) => postgres.is_writable(),
            #[cfg(test)]
            Backend::Memory(memory) => memory.is_writable(),
        }
    }

    /// Whether the store has ended although nobody closed it, so that only a new process can take events. False while a
    /// disk or a database fails: those come back by themselves, and are away for a new process too.
    pub fn has_ended(&self) -> bool {
        matches!(self.is_writable(), Err(AppendError::Closing))
    }

    /// Whether the wall clock can be trusted for giving up: false for an hour after it was found to jump (DESIGN
    /// section 3, "Time").
    pub fn clock_is_trusted(&self) -> bool {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.clock_is_trusted(),
            Backend::Postgres(postgres) => postgres.clock_is_trusted(),
            #[cfg(test)]
            Backend::Memory(_) => true,
        }
    }

    /// What the lanes of an upstream saved last, as far as this process knows: on a shared store a copy that is a moment
    /// old. The default for one that never saved. Cheap.
    pub fn lane_record(&self, upstream: &UpstreamName) -> LaneRecord {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.lane_record(upstream),
            Backend::Postgres(postgres) => postgres.lane_record(upstream),
            #[cfg(test)]
            Backend::Memory(memory) => memory.lane_record(upstream),
        }
    }

    /// Saves what a lane must remember, and answers the record as it is then. Carried out even if the future is dropped
    /// after its first poll.
    pub async fn save_lane_record(&self, upstream: UpstreamName, save: LaneSave) -> Result<LaneRecord, StoreError> {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.save_lane_record(upstream, save).await,
            Backend::Postgres(postgres) => postgres.save_lane_record(upstream, save).await,
            #[cfg(test)]
            Backend::Memory(memory) => memory.save_lane_record(upstream, save),
        }
    }

    /// How much of an upstream's pace this replica has (P7); `None` where no other process shares it, and it has all.
    /// Cheap: asked before each attempt.
    pub fn share(&self, upstream: &UpstreamName) -> Option<Share> {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.share(upstream),
            Backend::Postgres(postgres) => postgres.share(upstream),
            #[cfg(test)]
            Backend::Memory(memory) => memory.share(upstream),
        }
    }

    /// What the lane makes of its [`Store::share`]: told whenever it took over another one, and whenever an attempt
    /// ended, in that order. Units may be granted to others once `applied` and `busy` are below them. Cheap.
    pub fn report_share_use(&self, upstream: &UpstreamName, used: ShareUse) {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.report_share_use(upstream, used),
            Backend::Postgres(postgres) => postgres.report_share_use(upstream, used),
            #[cfg(test)]
            Backend::Memory(memory) => memory.report_share_use(upstream, used),
        }
    }

    /// For how long an upstream was stopped in total over all replicas (the largest that any of them saved), a moment
    /// old; `None` where there is only one, which knows it best. Cheap.
    pub fn stopped_total(&self, upstream: &UpstreamName) -> Option<Duration> {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.stopped_total(upstream),
            Backend::Postgres(postgres) => postgres.stopped_total(upstream),
            #[cfg(test)]
            Backend::Memory(memory) => Some(memory.lane_record(upstream).stopped_total),
        }
    }

    /// The identity of a shared store: another one after a fail-over, a recovery or a clone, and unknown while the store is
    /// away. None where the store is this process's own.
    pub fn identity(&self) -> Option<watch::Receiver<Option<Arc<str>>>> {
        match &self.backend {
            Backend::Sqlite(_) => None,
            Backend::Postgres(postgres) => Some(postgres.identity()),
            #[cfg(test)]
            Backend::Memory(_) => None,
        }
    }

    /// Finishes what was handed in, gives unused leases back, and closes. Feeds end. Other handles answer "closing".
    pub async fn close(self) {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.close().await,
            Backend::Postgres(postgres) => postgres.close().await,
            #[cfg(test)]
            Backend::Memory(memory) => memory.close(),
        }
    }
}

#[cfg(test)]
mod tests;
