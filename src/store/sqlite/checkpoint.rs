//! Keeping the write-ahead log short, off the writer's path; and the other slow work of the helper thread.
//!
//! **Theory of operation.** The log is a file of a fixed length that is rewritten in place (schema.rs). When commits fill
//! more than half of it, the helper thread copies them into the database file over its own connection (`PASSIVE`, which
//! delays nobody) and syncs that file. Commits that came meanwhile are left over; rounds go on until little is left,
//! which the writer then copies itself between two turns. With everything copied, its next commit starts the log anew
//! at the front. SQLite syncs the database file only when a checkpoint copies the log to its very end, so without the
//! helper's own sync the writer's last step would wait for all of it.
//!
//! A reader of ours never holds a snapshot for longer than a page of results. A foreign one (a shell with an open
//! transaction) can keep the log from starting anew: then it grows, and that is said (ST-07).

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;

use super::disk::DiskWatch;
use super::filter::Column;
use super::keys::{self, Map, Sealed};
use super::schema::{self, Files, PAGE_SIZE};
use super::writer::Writer;
use super::{Shared, describe};
use crate::store::OpenError;

/// A commit's page in the log: the page and its frame header.
const FRAME_BYTES: u64 = PAGE_SIZE as u64 + 24;
/// So few left-over pages are copied by the writer itself.
const LEFT_FEW: u32 = 256;
/// Rounds of the helper before the writer copies whatever is left.
const ROUNDS_MAX: u32 = 4;
/// How often the helper looks at the disk.
const TICK: Duration = Duration::from_secs(1);

/// How far the log is copied.
#[derive(Debug, Default)]
pub(super) struct Wal {
    copying: bool,
    round: u32,
    /// Not tried again below this many frames, after a foreign reader was in the way.
    blocked_below: u32,
    warned: bool,
}

enum Job {
    Seal { map: Arc<Map>, column: Column },
    Copy,
}

/// The helper thread, as the writer sees it. Never more than one job of a kind is under way.
#[derive(Debug)]
pub(super) struct Helper {
    jobs: Option<SyncSender<Job>>,
    sealed: Receiver<Sealed>,
    /// Frames of the log that are copied.
    copied: Receiver<u32>,
    thread: Option<JoinHandle<File>>,
}

impl Helper {
    pub(super) fn start(files: &Files, max_bytes: u64, min_free: u64, shared: &Arc<Shared>) -> Result<Self, OpenError> {
        let conn = schema::open_checkpointer(files)?;
        // Closed after every connection of this process: closing a file drops the process's locks on it (POSIX).
        let database = File::options()
            .read(true)
            .write(true)
            .open(&files.database)
            .map_err(|error| OpenError::io(&files.database, error))?;
        let mut disk = DiskWatch::new(files, max_bytes, min_free, shared);
        disk.look(&conn);
        let (jobs, job_queue) = sync_channel(2);
        let (sealed_sender, sealed) = sync_channel(1);
        let (copied_sender, copied) = sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("store-helper".to_owned())
            .spawn(move || {
                loop {
                    match job_queue.recv_timeout(TICK) {
                        Ok(Job::Seal { map, column }) => {
                            let made = keys::seal(&map, &column);
                            drop(map);
                            if sealed_sender.send(made).is_err() {
                                break;
                            }
                        }
                        Ok(Job::Copy) => {
                            let frames = copy(&conn, &database);
                            if copied_sender.send(frames).is_err() {
                                break;
                            }
                        }
                        Err(RecvTimeoutError::Timeout) => {}
                        Err(RecvTimeoutError::Disconnected) => break,
                    }
                    disk.look(&conn);
                }
                drop(conn);
                database
            })
            .map_err(|error| OpenError::Unsuitable(format!("a thread could not be started: {error}")))?;
        Ok(Self {
            jobs: Some(jobs),
            sealed,
            copied,
            thread: Some(thread),
        })
    }

    /// Has a frozen partition sorted.
    pub(super) fn seal(&self, map: Arc<Map>, column: Column) {
        self.send(Job::Seal { map, column });
    }

    /// The sorted partition, once it is there; with `wait`, waits for it.
    pub(super) fn sealed(&self, wait: bool) -> Option<Sealed> {
        if wait {
            self.sealed.recv().ok()
        } else {
            self.sealed.try_recv().ok()
        }
    }

    fn send(&self, job: Job) {
        match self.jobs.as_ref().map(|jobs| jobs.try_send(job)) {
            Some(Ok(())) => {}
            Some(Err(TrySendError::Full(_) | TrySendError::Disconnected(_))) | None => {
                tracing::error!("the store's helper thread does not answer");
            }
        }
    }

    /// Ends the thread; its connection is closed then.
    pub(super) fn stop(&mut self) -> Option<File> {
        self.jobs = None;
        self.thread.take().and_then(|thread| thread.join().ok())
    }
}

/// One passive checkpoint with a sync of the database file; returns how many frames of the log are copied.
fn copy(conn: &Connection, database: &File) -> u32 {
    match passive(conn) {
        Ok((_frames, copied)) => {
            if let Err(error) = database.sync_data() {
                tracing::warn!(error = error.to_string(), "the database file could not be synced");
            }
            copied
        }
        Err(error) => {
            tracing::warn!(
                error = describe(&error),
                "the log could not be copied into the database"
            );
            0
        }
    }
}

/// Frames in the log, and how many of them are copied.
fn passive(conn: &Connection) -> rusqlite::Result<(u32, u32)> {
    conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| {
        let frames: i64 = row.get(1)?;
        let copied: i64 = row.get(2)?;
        Ok((u32::try_from(frames).unwrap_or(0), u32::try_from(copied).unwrap_or(0)))
    })
}

impl Writer {
    /// Between two turns: looks whether the log has to be copied, and how far that is.
    pub(super) fn checkpoint_step(&mut self, frames: u32) {
        let bytes = u64::from(frames).saturating_mul(FRAME_BYTES);
        self.shared.wal_used_bytes.store(bytes, Ordering::Relaxed);
        if self.wal.copying {
            match self.helper.copied.try_recv() {
                Ok(copied) => self.copied(frames, copied),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => {}
            }
        } else if bytes > self.tuning.wal_bytes / 2 && frames >= self.wal.blocked_below {
            self.wal.round = 1;
            self.wal.copying = true;
            self.helper.send(Job::Copy);
        } else if bytes <= self.tuning.wal_bytes / 2 {
            self.wal.blocked_below = 0;
        }
    }

    fn copied(&mut self, frames: u32, copied: u32) {
        let left = frames.saturating_sub(copied);
        if left > LEFT_FEW && self.wal.round < ROUNDS_MAX {
            self.wal.round += 1;
            self.helper.send(Job::Copy);
            return;
        }
        self.wal.copying = false;
        match passive(&self.conn) {
            Ok((frames, copied)) if copied >= frames => {
                self.wal.blocked_below = 0;
                self.wal.warned = false;
            }
            Ok((frames, copied)) => {
                self.wal.blocked_below = frames.saturating_add(frames / 8);
                let bytes = u64::from(frames).saturating_mul(FRAME_BYTES);
                if bytes > self.tuning.wal_bytes.saturating_mul(4) && !self.wal.warned {
                    self.wal.warned = true;
                    tracing::warn!(
                        bytes,
                        copied,
                        "the store's log grows: a backup, or some other program, holds a read transaction open on it"
                    );
                }
            }
            Err(error) => {
                self.wal.blocked_below = frames.saturating_add(frames / 8);
                tracing::warn!(
                    error = describe(&error),
                    "the log could not be copied into the database"
                );
            }
        }
    }
}
