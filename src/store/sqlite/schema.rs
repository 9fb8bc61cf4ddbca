//! Opening the database: one process, private files, durable commits, a schema we know.
//!
//! Promises kept here: P1 (`synchronous = FULL` is read back, so a build or a pragma typo cannot lower it), one process
//! per store (a lock on its directory, held while the store is open), a schema written by a newer version is refused
//! with the files untouched, a store of which a file is missing is refused, damage is loud.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, FileControl, OpenFlags, OptionalExtension};

use crate::store::OpenError;

/// "hslc": marks the file as ours.
const APPLICATION_ID: i32 = 0x6873_6c63;
/// The newest schema this version knows; also the number of [`MIGRATIONS`].
pub(super) const SCHEMA_VERSION: i32 = 6;
const MIGRATIONS: [&str; 6] = [
    include_str!("schema_1.sql"),
    include_str!("schema_2.sql"),
    include_str!("schema_3.sql"),
    include_str!("schema_4.sql"),
    include_str!("schema_5.sql"),
    include_str!("schema_6.sql"),
];

/// Pages of 8 KiB: measured best for rows of 1 to 2 KiB (four or five a page, no overflow page up to 8 KiB).
pub(super) const PAGE_SIZE: u32 = 8192;

/// Where the files are.
#[derive(Clone, Debug)]
pub(super) struct Files {
    pub(super) directory: PathBuf,
    pub(super) database: PathBuf,
    pub(super) wal: PathBuf,
    /// The index of the log, in memory that SQLite's connections share.
    pub(super) shm: PathBuf,
    pub(super) reserve: PathBuf,
    /// A copy that is being made.
    pub(super) copying: PathBuf,
    /// A database that is being restored.
    pub(super) restoring: PathBuf,
}

impl Files {
    pub(super) fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            database: directory.join("hooksluice.db"),
            wal: directory.join("hooksluice.db-wal"),
            shm: directory.join("hooksluice.db-shm"),
            reserve: directory.join("reserve"),
            copying: directory.join("backup.tmp"),
            restoring: directory.join("restore.tmp"),
        }
    }
}

/// The process's right to the store: released when dropped.
#[derive(Debug)]
pub(super) struct Lock {
    /// The directory itself: a file in it could be deleted, and a second process would lock its successor.
    _directory: File,
    /// A file in it: on a network file system the lock on a directory holds on this machine only.
    _file: File,
}

/// Creates the directory where it is missing and takes the lock.
pub(super) fn lock(files: &Files) -> Result<Lock, OpenError> {
    let directory = &files.directory;
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(|error| OpenError::io(directory, error))?;
    let locked = |path: &Path, file: std::io::Result<File>| {
        let file = file.map_err(|error| OpenError::io(path, error))?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => Err(OpenError::Locked {
                path: directory.clone(),
            }),
            Err(TryLockError::Error(error)) => Err(OpenError::io(path, error)),
        }
    };
    let path = directory.join("lock");
    Ok(Lock {
        _directory: locked(directory, File::open(directory))?,
        _file: locked(&path, private(&path))?,
    })
}

/// Opens the writer's connection, creating or migrating the schema. `wal_bytes`: see [`lay_out_wal`].
pub(super) fn open_writer(files: &Files, wal_bytes: u64) -> Result<Connection, OpenError> {
    super::disk::warn_of_place(&files.directory);
    let version = known_version(&files.database)?;
    refuse_incomplete(files, version)?;
    for path in [&files.copying, &files.restoring] {
        super::backup::remove(path);
    }
    private(&files.database).map_err(|error| OpenError::io(&files.database, error))?;
    let mut conn = connect(&files.database, OpenFlags::SQLITE_OPEN_READ_WRITE, 8 << 10)?;
    conn.pragma_update(None, "page_size", PAGE_SIZE)?;
    let mode: String = conn.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))?;
    if mode != "wal" {
        return Err(OpenError::Unsuitable(format!(
            "its file system does not allow a write-ahead log (journal mode is {mode})"
        )));
    }
    conn.pragma_update(None, "synchronous", "FULL")?;
    let synchronous: i64 = conn.pragma_query_value(None, "synchronous", |row| row.get(0))?;
    if synchronous != 2 {
        return Err(OpenError::Unsuitable(format!(
            "commits would not be synced (synchronous is {synchronous})"
        )));
    }
    migrate(&mut conn)?;
    lay_out_wal(&files.wal, wal_bytes).map_err(|error| OpenError::io(&files.wal, error))?;
    sync_directory(&files.directory).map_err(|error| OpenError::io(&files.directory, error))?;
    Ok(conn)
}

/// Has the log cut back to its length where a foreign reader made it grow. Only once opening cannot fail any more: the
/// last connection to close would cut a log with a limit to nothing.
pub(super) fn limit_wal(conn: &Connection, wal_bytes: u64) -> Result<(), rusqlite::Error> {
    conn.pragma_update(None, "journal_size_limit", i64::try_from(wal_bytes).unwrap_or(i64::MAX))
}

/// A further connection to a store that [`open_writer`] has opened, for checkpoints.
pub(super) fn open_checkpointer(files: &Files) -> Result<Connection, rusqlite::Error> {
    let conn = connect(&files.database, OpenFlags::SQLITE_OPEN_READ_WRITE, 256)?;
    conn.pragma_update(None, "synchronous", "FULL")?;
    Ok(conn)
}

/// A further connection that cannot write.
pub(super) fn open_reader(files: &Files) -> Result<Connection, rusqlite::Error> {
    connect(&files.database, OpenFlags::SQLITE_OPEN_READ_ONLY, 2 << 10)
}

fn connect(path: &Path, access: OpenFlags, cache_kib: i64) -> Result<Connection, rusqlite::Error> {
    let conn = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    // First, so that a connection that gets no further leaves the log where it is.
    let mut keep = 1;
    conn.file_control(None::<&str>, FileControl::PersistWal(&mut keep))?;
    conn.set_prepared_statement_cache_capacity(96);
    // Another connection of ours holds a lock for as long as a page copy takes, never longer.
    conn.busy_timeout(std::time::Duration::from_secs(5))?;
    conn.pragma_update(None, "cache_size", -cache_kib)?;
    conn.pragma_update(None, "trusted_schema", "OFF")?;
    // Plans do not depend on bound values: otherwise a LIMIT that changes between 1 and more is parsed again.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // Checkpoints run where they delay nobody; see checkpoint.rs.
    conn.pragma_update(None, "wal_autocheckpoint", 0)?;
    Ok(conn)
}

/// Refuses a store that has lost a file: SQLite would start an empty one in its place, or without what only the log
/// held.
///
/// A first opening that was interrupted leaves no such sight: the log is made after the database's first page is
/// synced, the version reaches that page through the log, and the reserve comes last. Nor does a backup of the database
/// alone, put into an empty directory.
pub(super) fn refuse_incomplete(files: &Files, version: Option<i32>) -> Result<(), OpenError> {
    let filled = |path: &Path| match std::fs::symlink_metadata(path) {
        Ok(file) => Ok(file.len() > 0),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(OpenError::io(path, error)),
    };
    let (lost, signs) = match version {
        // A restore that was interrupted may just have moved the old one aside.
        None => (
            &files.database,
            vec![&files.wal, &files.reserve, &files.shm, &files.restoring],
        ),
        Some(_) if filled(&files.wal)? => return Ok(()),
        Some(0) => (&files.wal, vec![&files.reserve]),
        Some(_) => (&files.wal, vec![&files.reserve, &files.shm]),
    };
    for sign in signs {
        if filled(sign)? {
            return Err(OpenError::Incomplete {
                lost: lost.clone(),
                sign: sign.clone(),
            });
        }
    }
    Ok(())
}

/// The schema's version; `None` where there is no database. Looks at the header's bytes without SQLite, since SQLite's
/// own opening may already write.
pub(super) fn known_version(path: &Path) -> Result<Option<i32>, OpenError> {
    let mut header = [0; 100];
    match File::open(path).and_then(|mut file| file.read_exact(&mut header)) {
        Ok(()) => {}
        // Missing, or cut off before the first page was complete: SQLite would start it anew.
        Err(error)
            if matches!(
                error.kind(),
                std::io::ErrorKind::NotFound | std::io::ErrorKind::UnexpectedEof
            ) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(OpenError::io(path, error)),
    }
    if !header.starts_with(b"SQLite format 3\0") {
        return Err(OpenError::NotOurs { path: path.to_owned() });
    }
    let number = |at: usize| {
        let bytes = header.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, i32::from_be_bytes)
    };
    let (version, application) = (number(60), number(68));
    if application != APPLICATION_ID && (application, version) != (0, 0) {
        return Err(OpenError::NotOurs { path: path.to_owned() });
    }
    if version > SCHEMA_VERSION {
        return Err(OpenError::Newer {
            path: path.to_owned(),
            found: version,
            known: SCHEMA_VERSION,
        });
    }
    Ok(Some(version))
}

/// How long a database must be, by its header; at least a header's length.
pub(super) fn whole_length(path: &Path) -> std::io::Result<u64> {
    let mut header = [0; 100];
    File::open(path)?.read_exact(&mut header)?;
    let [.., a, b, c, d] = *header.first_chunk::<32>().unwrap_or(&[0; 32]);
    Ok(u64::from(u32::from_be_bytes([a, b, c, d])).saturating_mul(u64::from(PAGE_SIZE)))
}

/// Refuses a copy that would go on under a name of the store it was copied from: Redis may hold keys there of events that
/// came after the copy, and would have new deliveries of them dropped. Writes nothing.
pub(super) fn refuse_retired(conn: &Connection, namespace: &str) -> Result<(), OpenError> {
    let retired: Option<bool> = conn
        .query_row(include_str!("is_retired.sql"), [namespace], |row| row.get(0))
        .optional()?;
    match retired {
        Some(true) => Err(OpenError::Retired {
            namespace: namespace.to_owned(),
        }),
        Some(false) | None => Ok(()),
    }
}

/// Notes that Redis is told of this store's events under this name.
pub(super) fn use_namespace(conn: &Connection, namespace: &str) -> rusqlite::Result<()> {
    let known: Option<bool> = conn
        .query_row(include_str!("is_retired.sql"), [namespace], |row| row.get(0))
        .optional()?;
    if known.is_none() {
        conn.execute(include_str!("use_namespace.sql"), [namespace])?;
    }
    Ok(())
}

pub(super) fn migrate(conn: &mut Connection) -> Result<(), OpenError> {
    let version: i32 = conn.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let start = usize::try_from(version).unwrap_or(0);
    for (step, sql) in MIGRATIONS.iter().enumerate().skip(start) {
        let tx = conn.transaction()?;
        tx.execute_batch(sql)?;
        tx.pragma_update(None, "application_id", APPLICATION_ID)?;
        tx.pragma_update(
            None,
            "user_version",
            i32::try_from(step).unwrap_or(i32::MAX).saturating_add(1),
        )?;
        tx.commit()?;
    }
    if start < MIGRATIONS.len() {
        // So that the version stands in the header itself, where the next opening looks first.
        conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_row| Ok(()))?;
    }
    Ok(())
}

/// Writes the log's whole length once: zeros behind what it holds, which SQLite's recovery takes for its end. From then
/// on the log is rewritten in place, so that a commit's sync has no file growth to record: measured 0.23 ms in place
/// against 3.2 ms growing (ext4). SQLite removes a log that lies beside an empty database, so this comes after the
/// schema.
fn lay_out_wal(path: &Path, bytes: u64) -> std::io::Result<()> {
    let file = private(path)?;
    let mut at = file.metadata()?.len();
    // In small pieces: the page cache keeps the size of the writes, and the kernel counts (and may write) whole pieces
    // when a commit changes a part of one.
    let zeros = [0; 4096];
    while at < bytes {
        let len = usize::try_from(bytes - at).unwrap_or(zeros.len()).min(zeros.len());
        let Some(part) = zeros.get(..len) else { break };
        file.write_all_at(part, at)?;
        at = at.saturating_add(u64::try_from(len).unwrap_or(u64::MAX));
    }
    file.sync_all()
}

/// Opens for reading and writing, creating with mode 0600. A symbolic link is refused: SQLite keeps the log beside the
/// link's target, and the lock would be somebody else's file.
pub(super) fn private(path: &Path) -> std::io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or(0))
        .open(path)
}

pub(super) fn sync_directory(path: &Path) -> std::io::Result<()> {
    File::open(path)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rusqlite::StatementStatus;

    use super::*;

    /// The statements, as the source files hold them.
    fn statements() -> Vec<(String, String)> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/sqlite");
        let mut statements = Vec::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            if name.ends_with(".sql") && !name.starts_with("schema_") {
                statements.push((name, std::fs::read_to_string(path).unwrap()));
            }
        }
        assert!(statements.len() > 30);
        statements
    }

    fn opened() -> (tempfile::TempDir, Connection) {
        let directory = tempfile::TempDir::new().unwrap();
        let conn = open_writer(&Files::new(directory.path()), 1 << 20).unwrap();
        (directory, conn)
    }

    #[test]
    fn commits_are_synced_in_full() {
        let (_directory, conn) = opened();
        let synchronous: i64 = conn.pragma_query_value(None, "synchronous", |row| row.get(0)).unwrap();
        assert_eq!(synchronous, 2);
        let journal: String = conn.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
        assert_eq!(journal, "wal");
    }

    #[test]
    fn the_log_keeps_its_length_over_a_close() {
        let (directory, conn) = opened();
        let files = Files::new(directory.path());
        assert_eq!(std::fs::metadata(&files.wal).unwrap().len(), 1 << 20);
        limit_wal(&conn, 1 << 20).unwrap();
        conn.execute("UPDATE meta SET key_floor = 1", []).unwrap();
        conn.pragma_update(None, "journal_size_limit", -1).unwrap();
        drop(conn);
        assert_eq!(std::fs::metadata(&files.wal).unwrap().len(), 1 << 20);
    }

    /// A statement whose plan depends on the values bound would be parsed again at each run.
    #[test]
    fn no_statement_is_prepared_again_for_its_values() {
        let (_directory, conn) = opened();
        for (name, sql) in statements() {
            conn.execute_batch("BEGIN").unwrap();
            let mut statement = conn.prepare(&sql).unwrap_or_else(|error| panic!("{name}: {error}"));
            for value in 1..4 {
                for parameter in 1..=statement.parameter_count() {
                    statement.raw_bind_parameter(parameter, value).unwrap();
                }
                // Constraints may refuse the values; that the statement ran is enough.
                let mut rows = statement.raw_query();
                while let Ok(Some(_row)) = rows.next() {}
            }
            assert_eq!(statement.get_status(StatementStatus::RePrepare), 0, "{name}");
            drop(statement);
            conn.execute_batch("ROLLBACK").unwrap();
        }
    }

    #[test]
    fn no_statement_sorts_and_few_read_a_whole_table() {
        let (_directory, conn) = opened();
        let mut whole = BTreeSet::new();
        for (name, sql) in statements() {
            let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            for parameter in 1..=statement.parameter_count() {
                statement.raw_bind_parameter(parameter, 1).unwrap();
            }
            let mut rows = statement.raw_query();
            while let Some(row) = rows.next().unwrap() {
                let step: String = row.get(3).unwrap();
                if step.contains("TEMP B-TREE") || step.starts_with("SCAN") {
                    whole.insert(format!("{name}: {step}"));
                }
            }
        }
        // The first at sealing, over some hundred rows; secrets are as many as the configuration has; the others once, at opening.
        let known = [
            "drop_key_extra.sql: SCAN key_extra",
            "forget_secrets.sql: SCAN secret",
            "made_since.sql: USE TEMP B-TREE FOR GROUP BY",
            "open_count.sql: SCAN dispatch USING COVERING INDEX dispatch_open",
            "record_counts.sql: SCAN record USING COVERING INDEX record_expiry",
            "retire_namespaces.sql: SCAN namespace",
            "secrets.sql: SCAN secret",
        ];
        assert_eq!(whole, known.map(str::to_owned).into());
    }
}
