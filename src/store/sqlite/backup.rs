//! Copies of a store: of an open one while it goes on, and of a closed one.
//!
//! **Theory of operation.** The pages are copied by SQLite's backup interface, over a connection that only reads and
//! inside one read transaction, so that what is copied is the store of one moment however long it takes. The writer is not
//! waited for and does not wait. What a read transaction costs is that the log cannot start anew (ST-07): so the copy goes
//! to the local disk and not to whoever wants it, and is given up when the log, or what is left of the disk, reaches a
//! bound. Each step is synced, so that a commit's sync never waits for more than one.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::backup::{Backup as Pages, StepResult};
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};

use super::schema::{self, Files, PAGE_SIZE, private};
use super::{Backend, describe};
use crate::store::backup::{Backup, BackupError, Contents, CopyError};
use crate::time::Timestamp;

/// Pages of a step: 4 MiB.
const STEP_PAGES: i32 = 512;
/// The first schema that knows of copies.
const KNOWS_COPIES: i32 = 5;

/// Tells a copy that nobody waits for it any more.
struct Waiting(Arc<AtomicBool>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Backend {
    pub(in crate::store) async fn backup(self: &Arc<Self>) -> Result<Backup, BackupError> {
        let turn = Arc::clone(&self.copying).try_acquire_owned();
        let turn = turn.map_err(|_taken| BackupError::Running)?;
        let left = Arc::new(AtomicBool::new(false));
        let waiting = Waiting(Arc::clone(&left));
        let backend = Arc::clone(self);
        let copied = tokio::task::spawn_blocking(move || {
            let (file, bytes) = backend.copy(&left)?;
            Ok(Backup {
                file,
                bytes,
                _turn: turn,
            })
        })
        .await;
        drop(waiting);
        copied.unwrap_or_else(|ended| Err(BackupError::Failed(ended.to_string())))
    }

    fn copy(&self, left: &AtomicBool) -> Result<(File, u64), BackupError> {
        let path = self.files.copying.clone();
        let failed = |error: rusqlite::Error| BackupError::Failed(describe(&error));
        let source = schema::open_reader(&self.files).map_err(failed)?;
        let watch = |remaining: u64| {
            if left.load(Ordering::Relaxed) || *self.ended.borrow() {
                return Err(BackupError::Stopped);
            }
            let stat = rustix::fs::statvfs(&self.files.directory);
            let free = stat.map_or(u64::MAX, |stat| stat.f_bavail.saturating_mul(stat.f_frsize));
            let free = free.saturating_sub(self.min_free);
            if free < remaining {
                let needed = remaining;
                return Err(BackupError::NoRoom { needed, free });
            }
            match std::fs::metadata(&self.files.wal).map(|log| log.len()) {
                Ok(wal_bytes) if wal_bytes > self.copy_wal_max => Err(BackupError::TooBusy { wal_bytes }),
                Ok(_) | Err(_) => Ok(()),
            }
        };
        let copied = copy_pages(&source, &path, self.clock.now(), watch);
        // Without a name it is gone with its last reader, however that ends.
        let file = copied.and_then(|()| File::open(&path).map_err(|error| BackupError::Failed(error.to_string())));
        remove(&path);
        let file = file?;
        let bytes = file
            .metadata()
            .map_err(|error| BackupError::Failed(error.to_string()))?
            .len();
        Ok((file, bytes))
    }
}

pub(in crate::store) fn copy_closed(directory: &Path, to: &Path, now: Timestamp) -> Result<(), CopyError> {
    let files = Files::new(directory);
    if !files.database.exists() {
        return Err(CopyError::NoStore(directory.to_owned()));
    }
    let _lock = schema::lock(&files)?;
    let version = schema::known_version(&files.database)?;
    if version.is_none_or(|version| version == 0) {
        return Err(CopyError::NoStore(directory.to_owned()));
    }
    schema::refuse_incomplete(&files, version)?;
    // A connection makes these where they are missing, and a store without its log that has the log's index is refused.
    let made: Vec<_> = [&files.wal, &files.shm]
        .into_iter()
        .filter(|file| !file.exists())
        .collect();
    let source = schema::open_reader(&files).map_err(|error| CopyError::Failed(describe(&error)));
    let copied = source.and_then(|source| {
        copy_pages(&source, to, now, |_remaining| Ok(())).map_err(|error| CopyError::Failed(error.to_string()))
    });
    for file in made {
        drop(std::fs::remove_file(file));
    }
    if copied.is_err() {
        remove(to);
    }
    copied
}

/// Copies the store of one moment into the new file `to` and marks it as a copy. `watch` is asked before each step, with
/// the bytes that are left.
fn copy_pages(
    source: &Connection,
    to: &Path,
    now: Timestamp,
    watch: impl Fn(u64) -> Result<(), BackupError>,
) -> Result<(), BackupError> {
    let failed = |error: rusqlite::Error| BackupError::Failed(describe(&error));
    let refused = |error: std::io::Error| BackupError::Failed(error.to_string());
    source.execute_batch("BEGIN").map_err(failed)?;
    // A transaction begins with its first look.
    let pages: u64 = source
        .pragma_query_value(None, "page_count", |row| row.get(0))
        .map_err(failed)?;
    let version: i32 = source
        .query_row("SELECT user_version FROM pragma_user_version", [], |row| row.get(0))
        .map_err(failed)?;
    watch(pages.saturating_mul(u64::from(PAGE_SIZE)))?;
    remove(to);
    let file = private(to).map_err(refused)?;
    let mut copy = open_copy(to).map_err(failed)?;
    copy.pragma_update(None, "synchronous", "OFF").map_err(failed)?;
    {
        let copying = Pages::new(source, &mut copy).map_err(failed)?;
        loop {
            match copying.step(STEP_PAGES).map_err(failed)? {
                StepResult::Done => break,
                StepResult::More => {}
                // Nobody else has the copy open, and the source is only read.
                _ => return Err(BackupError::Failed("a file was locked".to_owned())),
            }
            file.sync_data().map_err(refused)?;
            let remaining = u64::try_from(copying.progress().remaining).unwrap_or(0);
            watch(remaining.saturating_mul(u64::from(PAGE_SIZE)))?;
        }
    }
    source.execute_batch("COMMIT").map_err(failed)?;
    stand_alone(&copy).map_err(failed)?;
    if version >= KNOWS_COPIES {
        mark(&copy, Some(now)).map_err(failed)?;
    }
    drop(copy);
    file.sync_all().map_err(refused)
}

/// A connection to a copy: nobody else's, so that no other file is needed beside it.
pub(super) fn open_copy(path: &Path) -> rusqlite::Result<Connection> {
    let conn = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    conn.pragma_update(None, "trusted_schema", "OFF")?;
    conn.query_row("PRAGMA locking_mode = EXCLUSIVE", [], |_row| Ok(()))?;
    Ok(conn)
}

/// From a database with a log to one that is a single file.
pub(super) fn stand_alone(conn: &Connection) -> rusqlite::Result<()> {
    conn.query_row("PRAGMA journal_mode = DELETE", [], |_row| Ok(()))?;
    conn.pragma_update(None, "synchronous", "FULL")
}

/// Retires the names in Redis; `taken_at` is kept where it is known already.
pub(super) fn mark(conn: &Connection, taken_at: Option<Timestamp>) -> rusqlite::Result<()> {
    conn.execute(include_str!("retire_namespaces.sql"), [])?;
    conn.execute(
        include_str!("note_copy.sql"),
        params![taken_at.map(Timestamp::as_millis)],
    )?;
    Ok(())
}

pub(in crate::store) fn inspect(path: &Path, thorough: bool) -> Result<Contents, CopyError> {
    let bytes = check_file(path)?;
    let failed = |error: rusqlite::Error| CopyError::Failed(describe(&error));
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags).map_err(failed)?;
    conn.pragma_update(None, "trusted_schema", "OFF").map_err(failed)?;
    if thorough {
        check_pages(&conn, path)?;
    }
    contents(&conn, bytes).map_err(failed)
}

/// The length of a file whose header is that of a whole backup.
pub(super) fn check_file(path: &Path) -> Result<u64, CopyError> {
    let not_one = |why: &str| CopyError::NotABackup {
        path: path.to_owned(),
        why: why.to_owned(),
    };
    let bytes = std::fs::metadata(path).map_err(|source| io(path, source))?.len();
    match schema::known_version(path)? {
        None => return Err(not_one("it is empty")),
        Some(0) => return Err(not_one("it has no tables")),
        Some(_) => {}
    }
    let beside = PathBuf::from(format!("{}-wal", path.display()));
    if std::fs::metadata(beside).is_ok_and(|log| log.len() > 0) {
        return Err(not_one(
            "a log (-wal) lies beside it, so it is a database in use; copy it with `hooksluice store backup`",
        ));
    }
    match schema::whole_length(path).map_err(|source| io(path, source))? {
        whole if whole > bytes => Err(not_one("its end is missing")),
        _ => Ok(bytes),
    }
}

pub(super) fn check_pages(conn: &Connection, path: &Path) -> Result<(), CopyError> {
    let found: rusqlite::Result<String> = conn.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0));
    let why = match found {
        Ok(found) if found == "ok" => return Ok(()),
        Ok(found) => found,
        Err(error) => describe(&error),
    };
    Err(CopyError::NotABackup {
        path: path.to_owned(),
        why: format!("it is damaged: {why}"),
    })
}

pub(super) fn contents(conn: &Connection, bytes: u64) -> rusqlite::Result<Contents> {
    let schema: i32 = conn.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let count = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, u64>(0));
    let newest = conn
        .query_row(
            "SELECT received_at FROM event ORDER BY position DESC LIMIT 1",
            [],
            |row| row.get(0),
        )
        .optional()?;
    let mut contents = Contents {
        bytes,
        schema,
        taken_at: None,
        newest_event: newest.map(Timestamp::from_millis),
        waiting: count("SELECT count(*) FROM dispatch WHERE state IN (0, 1, 3) AND state < 4")?,
        dead: count("SELECT count(*) FROM dispatch WHERE state = 2 AND state < 4")?,
        running_calls: 0,
        retired: Vec::new(),
    };
    if schema >= 4 {
        contents.running_calls = count("SELECT count(*) FROM record WHERE state IN (0, 3) AND state = 0")?;
    }
    if schema >= KNOWS_COPIES {
        let taken_at: Option<i64> = conn.query_row("SELECT copied_at FROM meta WHERE id = 1", [], |row| row.get(0))?;
        contents.taken_at = taken_at.map(Timestamp::from_millis);
        let mut names = conn.prepare("SELECT name FROM namespace WHERE retired = 1 ORDER BY name")?;
        contents.retired = names.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    }
    Ok(contents)
}

pub(super) fn io(path: &Path, source: std::io::Error) -> CopyError {
    CopyError::Io {
        path: path.to_owned(),
        source,
    }
}

/// Removes a copy and what SQLite may have put beside it.
pub(super) fn remove(path: &Path) {
    for end in ["", "-wal", "-shm", "-journal"] {
        let path = PathBuf::from(format!("{}{end}", path.display()));
        match std::fs::remove_file(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => tracing::warn!(
                file = path.display().to_string(),
                error = error.to_string(),
                "a temporary file could not be removed"
            ),
        }
    }
}
