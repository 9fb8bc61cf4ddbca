//! The durable store: append, admit, lease, settle.
//!
//! [`Store`] is a handle; the work is done by one writer thread over SQLite (see the `sqlite` module for how and why).
//! Its promises: P1 (a [`Receipt`] exists only after the commit and its sync), P2 (the unique key decides, once, at
//! admission), P6 (queues, windows and the unadmitted tail are bounded), P8 (nothing undelivered is removed), P9 (an
//! attempt's number is durable before its lease is handed out, and a lost lease cannot settle).

pub mod codec;
pub mod model;
pub mod query;
pub mod settings;
mod sqlite;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::HeaderMap;
use rusqlite::ErrorCode;
use tokio::sync::oneshot;

pub use self::query::{
    AttemptRecord, Counts, Discarded, DispatchSummary, EventDetail, EventFilter, EventPage, EventSummary, Replayed,
    UpstreamCounts,
};
pub use self::sqlite::Feed;

use self::model::{
    AppendError, Finished, LaneRecord, LeasedDispatch, NewEvent, Next, Notice, Receipt, Settled, StoredEvent,
};
use self::settings::StoreSettings;
use self::sqlite::Backend;
use crate::headers;
use crate::id::{EventId, Position, UpstreamName};
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
    backend: Arc<Backend>,
}

impl Store {
    /// Opens the store in `settings.path`, creating it where it is missing, and ends every earlier lease.
    ///
    /// `upstreams` are those of the configuration; dispatches of others are held. `notices` is called by the writer
    /// thread after each commit, in commit order; it must not block. Blocks for as long as opening takes.
    pub fn open(
        settings: StoreSettings,
        upstreams: Vec<UpstreamName>,
        clock: Clock,
        notices: Box<dyn FnMut(Notice) + Send>,
    ) -> Result<Self, OpenError> {
        Ok(Self {
            backend: Arc::new(Backend::open(
                settings,
                upstreams,
                clock,
                notices,
                sqlite::Tuning::default(),
            )?),
        })
    }

    #[cfg(test)]
    fn open_tuned(
        settings: StoreSettings,
        upstreams: Vec<UpstreamName>,
        clock: Clock,
        notices: Box<dyn FnMut(Notice) + Send>,
        tuning: sqlite::Tuning,
    ) -> Result<Self, OpenError> {
        Ok(Self {
            backend: Arc::new(Backend::open(settings, upstreams, clock, notices, tuning)?),
        })
    }

    /// Makes a verified request durable. The event is on its way when this returns; dropping the future cancels nothing
    /// (P1). The receipt comes after commit and sync.
    pub fn append(&self, event: NewEvent) -> impl Future<Output = Result<Receipt, AppendError>> + Send + use<> {
        let (receipt, received) = oneshot::channel();
        let refused = self.backend.append(into_append(event, receipt)).err();
        async move {
            match refused {
                Some(error) => Err(error),
                None => received
                    .await
                    .unwrap_or_else(|_gone| Err(AppendError::Failed("the store's writer has ended".to_owned()))),
            }
        }
    }

    /// The dispatches of an upstream; `None` when it is not in the configuration. One feed per upstream.
    pub fn feed(&self, upstream: &UpstreamName) -> Option<Feed> {
        self.backend.feed(upstream)
    }

    /// Whether a lease still holds, as far as this process knows: a person may have discarded its dispatch. Cheap; for
    /// the moment before the first byte.
    pub fn holds(&self, lease: &LeasedDispatch) -> bool {
        self.backend.holds(lease)
    }

    /// Records how an attempt ended and ends its lease, in one transaction. Waits while the store cannot write, so the
    /// outcome is not lost while the process lives; fails only once the store is closing. Under way when this returns.
    pub fn settle(
        &self,
        finished: Finished,
        next: Next,
    ) -> impl Future<Output = Result<Settled, StoreError>> + Send + use<> {
        let (settled, answer) = oneshot::channel();
        let refused = self.backend.settle(finished, next, settled).err();
        async move {
            match refused {
                Some(error) => Err(error),
                None => answer.await.map_err(|_gone| StoreError::Closing),
            }
        }
    }

    /// A page of at most `limit` (and 500) events below `before`, newest first. Looks at a bounded number of events, so a
    /// page may be short while there is more.
    pub async fn events(
        &self,
        filter: EventFilter,
        before: Option<Position>,
        limit: usize,
    ) -> Result<EventPage, StoreError> {
        self.backend
            .read(move |reader| reader.events(&filter, before, limit))
            .await
    }

    /// One event with its dispatches and attempts.
    pub async fn event(&self, id: EventId) -> Result<Option<EventDetail>, StoreError> {
        self.backend.read(move |reader| reader.event(id)).await
    }

    /// Makes dispatches of an event pending again, whatever became of them: those of the named upstreams (made where
    /// there is none), or all it has. Past dedupe and freshness; attempt numbers go on.
    pub async fn replay(&self, event: EventId, upstreams: Option<Vec<UpstreamName>>) -> Result<Replayed, StoreError> {
        self.backend.replay(event, upstreams).await
    }

    /// Gives up dispatches that are not delivered, for good, by a person's decision: that of one upstream, or all.
    pub async fn discard(&self, event: EventId, upstream: Option<UpstreamName>) -> Result<Discarded, StoreError> {
        self.backend.discard(event, upstream).await
    }

    /// How many dispatches there are.
    pub async fn counts(&self) -> Result<Counts, StoreError> {
        let counts = self.backend.counts();
        self.backend
            .read(move |reader| reader.with_oldest_pending(counts))
            .await
    }

    /// How long the commits (with their sync) of appended events took since the store was opened.
    pub fn commit_times(&self) -> Arc<Histogram> {
        self.backend.commit_times()
    }

    /// Whether an append would be taken now.
    pub fn is_writable(&self) -> Result<(), AppendError> {
        self.backend.is_writable()
    }

    /// Whether the wall clock can be trusted for giving up: false for an hour after it was found to jump (DESIGN
    /// section 3, "Time").
    pub fn clock_is_trusted(&self) -> bool {
        self.backend.clock_is_trusted()
    }

    /// What a lane saved last; the default for one that never did.
    pub fn lane_record(&self, upstream: &UpstreamName) -> LaneRecord {
        self.backend.lane_record(upstream)
    }

    /// Saves what a lane must remember over a restart.
    pub async fn save_lane_record(&self, upstream: UpstreamName, record: LaneRecord) -> Result<(), StoreError> {
        self.backend.save_lane_record(upstream, record).await
    }

    /// Finishes what was handed in, gives unused leases back, and closes. Feeds end. Other handles answer "closing".
    pub async fn close(self) {
        self.backend.close().await;
    }
}

/// Takes a verified request apart, on the calling task, so that the writer thread only binds values.
fn into_append(new: NewEvent, receipt: oneshot::Sender<Result<Receipt, AppendError>>) -> sqlite::Append {
    let NewEvent {
        source,
        upstreams,
        request,
        key,
        content,
        body_mark,
    } = new;
    let proof = request.proof();
    let scope = match (proof.scope.as_deref(), request.record_scope()) {
        (None, None) => None,
        (Some(scope), None) | (None, Some(scope)) => Some(scope.to_owned()),
        (Some(scope), Some(record)) => Some(format!("{scope}/{record}")),
    };
    let secret_label = proof.label.as_deref().map(str::to_owned);
    let verified = proof.secret_index.is_some();
    let delivery_id = request.delivery_id().map(str::to_owned);
    let event_type = request.event_type().map(str::to_owned);
    let request = request.into_request();
    let mut headers: HeaderMap = request.head.headers;
    headers::strip_untrusted(&mut headers);
    let event = StoredEvent {
        id: EventId::from_bytes([0; 16]),
        source,
        scope,
        secret_label,
        delivery_id,
        event_type,
        verified,
        received_at: request.head.received_at,
        method: request.head.method,
        target: request.head.target,
        authority: request.head.authority,
        client: request.head.client,
        headers,
        body: request.body,
    };
    sqlite::Append {
        head: codec::encode_head(&event),
        event: Arc::new(event),
        upstreams,
        key,
        content,
        body_mark,
        random: rand::random(),
        receipt,
    }
}

#[cfg(test)]
mod tests;
