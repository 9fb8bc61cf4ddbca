//! Backup and restore of the embedded store, for people: what a copy is, and what can go wrong with one.
//!
//! A backup is one file: the store's database as of one moment, whole. It is taken of a running store through its own
//! process ([`Store::backup`]), since one process opens a store, or of the directory of one that does not run
//! ([`copy_closed`]). It holds every event that was acknowledged before it began (P1), and it knows that it is a copy: the
//! names under which Redis was told of the store's events are retired in it, and a store refuses to open under a retired
//! name. Otherwise keys of events that came after the backup, and are not in it, would answer for it.

use std::fs::File;
use std::path::{Path, PathBuf};

use tokio::sync::OwnedSemaphorePermit;

use super::{Backend, OpenError, Store, sqlite};
use crate::time::Timestamp;

/// Said wherever a backup of a shared store is asked for.
pub const SHARED_HELP: &str = "the events lie in PostgreSQL: back that up with its own tools, such as pg_dump or continuous archiving, \
                               which also restore it";

/// A copy of a running store, to be read from the start. The disk space it takes is freed when it is dropped.
#[derive(Debug)]
pub struct Backup {
    /// Has no name any more.
    pub file: File,
    /// Its length.
    pub bytes: u64,
    /// The next one may begin when this is gone.
    pub(super) _turn: OwnedSemaphorePermit,
}

/// Why there is no backup. The store is as it was.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// It is no embedded store.
    #[error("{SHARED_HELP}")]
    Shared,
    /// One at a time.
    #[error("another backup is being taken")]
    Running,
    /// The copy is made beside the store before it is handed out.
    #[error(
        "a copy takes {needed} bytes beside the store for a moment, and {free} are free above `store.min_free`: free some, \
         or stop the server and use `--store DIRECTORY`"
    )]
    NoRoom {
        /// What it takes.
        needed: u64,
        /// What there is.
        free: u64,
    },
    /// The log cannot be reused while the copy is made.
    #[error(
        "so much was written meanwhile that the store's log grew to {wal_bytes} bytes: try again when less comes in, or \
         stop the server and use `--store DIRECTORY`"
    )]
    TooBusy {
        /// The log's length.
        wal_bytes: u64,
    },
    /// Nobody waits for it any more, or the store is closing.
    #[error("the store is closing")]
    Stopped,
    /// Reading or writing failed.
    #[error("the copy failed: {0}")]
    Failed(String),
}

/// What a backup holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// Its length.
    pub bytes: u64,
    /// The version of its tables.
    pub schema: i32,
    /// When it was taken; unknown for a database that was copied by other means.
    pub taken_at: Option<Timestamp>,
    /// When its newest event was received.
    pub newest_event: Option<Timestamp>,
    /// Dispatches that are not finished: pending, leased or held.
    pub waiting: u64,
    /// Dispatches that were given up.
    pub dead: u64,
    /// Calls with an Idempotency-Key that ran.
    pub running_calls: u64,
    /// Names in Redis that must not be used with it.
    pub retired: Vec<String>,
}

/// Why a file or a directory could not be copied or restored. Both are as they were.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The store cannot be opened, or another process has it open.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// No store lies there.
    #[error("there is no store in {0:?}")]
    NoStore(PathBuf),
    /// The file is there, and is no backup.
    #[error("{path:?} is no backup of a store: {why}")]
    NotABackup {
        /// The file.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// There is a store where one is to be restored.
    #[error("there is a store in {0:?} already; `--force` moves it into a directory beside it")]
    Occupied(PathBuf),
    /// The file system refused.
    #[error("{path:?} could not be written or read")]
    Io {
        /// What.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The database refused.
    #[error("the copy failed: {0}")]
    Failed(String),
}

/// A store that was restored.
#[derive(Debug)]
pub struct Restored {
    /// What it holds.
    pub contents: Contents,
    /// Where the store is that lay there.
    pub replaced: Option<PathBuf>,
}

impl Store {
    /// Copies the store as it is now, while it goes on: every event with a receipt from before the call is in the copy.
    /// Given up, within a moment, when the future is dropped or the store closes.
    pub async fn backup(&self) -> Result<Backup, BackupError> {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.backup().await,
            Backend::Postgres(_) => Err(BackupError::Shared),
            #[cfg(test)]
            Backend::Memory(_) => Err(BackupError::Shared),
        }
    }
}

/// Copies the store in `directory`, which no process has open, into the new file `to`. Its files stay as they are, also
/// where an older version wrote them.
///
/// # Errors
/// See [`CopyError`]; `to` is then removed.
pub fn copy_closed(directory: &Path, to: &Path, now: Timestamp) -> Result<(), CopyError> {
    sqlite::backup::copy_closed(directory, to, now)
}

/// What the backup in `file` holds; with `thorough`, after checking every page and index of it.
///
/// # Errors
/// It is no backup, or is damaged, or a newer version wrote it.
pub fn inspect(file: &Path, thorough: bool) -> Result<Contents, CopyError> {
    sqlite::backup::inspect(file, thorough)
}

/// Puts the backup in `file` into `directory` as a store, once all of it is checked. A crash leaves either what was there
/// or what is restored, or a store that refuses to open until this is repeated; never an empty one.
///
/// # Errors
/// See [`CopyError`].
pub fn restore(file: &Path, directory: &Path, force: bool, now: Timestamp) -> Result<Restored, CopyError> {
    sqlite::restore::restore(file, directory, force, now)
}
