//! From a backup to a store.
//!
//! The new database is made whole under another name, checked, brought to this version's schema and marked as a copy,
//! before anything that lies in the directory is touched. What lay there is moved aside in an order in which, wherever it
//! stops, an opening either finds a whole store or refuses what it finds (see `refuse_incomplete`).

use std::fs::File;
use std::path::{Path, PathBuf};

use super::backup::{self, check_file, check_pages, contents, io, open_copy, remove, stand_alone};
use super::describe;
use super::schema::{self, Files, Lock, private};
use crate::store::backup::{Contents, CopyError, Restored};
use crate::time::Timestamp;

pub(in crate::store) fn restore(
    file: &Path,
    directory: &Path,
    force: bool,
    now: Timestamp,
) -> Result<Restored, CopyError> {
    // Before the directory is made for it.
    let bytes = check_file(file)?;
    let files = Files::new(directory);
    let lock = schema::lock(&files)?;
    let occupied = [&files.database, &files.wal, &files.shm, &files.reserve]
        .into_iter()
        .any(|path| path.symlink_metadata().is_ok());
    if occupied && !force {
        return Err(CopyError::Occupied(directory.to_owned()));
    }
    let contents = make(file, bytes, &files.restoring).inspect_err(|_error| remove(&files.restoring))?;
    // Not removed if this fails: it shows an opening that a store was about to be here.
    let replaced = put(&files, occupied.then_some(now), &lock)?;
    Ok(Restored { contents, replaced })
}

/// A checked copy of `file` that this version can open.
fn make(file: &Path, bytes: u64, fresh: &Path) -> Result<Contents, CopyError> {
    remove(fresh);
    let mut target = private(fresh).map_err(|source| io(fresh, source))?;
    let mut from = File::open(file).map_err(|source| io(file, source))?;
    std::io::copy(&mut from, &mut target).map_err(|source| io(fresh, source))?;
    drop(target);
    let failed = |error: rusqlite::Error| CopyError::Failed(describe(&error));
    let mut conn = open_copy(fresh).map_err(failed)?;
    stand_alone(&conn).map_err(failed)?;
    check_pages(&conn, file)?;
    schema::migrate(&mut conn)?;
    backup::mark(&conn, None).map_err(failed)?;
    let contents = contents(&conn, bytes).map_err(failed)?;
    drop(conn);
    let synced = File::open(fresh).and_then(|file| file.sync_all());
    synced.map_err(|source| io(fresh, source))?;
    Ok(contents)
}

/// Moves the new database into its place; what lay there goes into a directory beside it, named after `replaced_at`.
fn put(files: &Files, replaced_at: Option<Timestamp>, _held: &Lock) -> Result<Option<PathBuf>, CopyError> {
    let aside = replaced_at.map(|now| files.directory.join(format!("replaced-{}", now.as_millis())));
    let refused = |path: &Path| {
        let path = path.to_owned();
        move |source| io(&path, source)
    };
    if let Some(aside) = &aside {
        std::fs::create_dir(aside).map_err(refused(aside))?;
        // The database first: without it, any other that is left shows that there was a store.
        for path in [&files.database, &files.wal, &files.shm] {
            let target = aside.join(path.file_name().unwrap_or_default());
            match std::fs::rename(path, &target) {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(io(path, error)),
            }
        }
        schema::sync_directory(aside).map_err(refused(aside))?;
    }
    std::fs::rename(&files.restoring, &files.database).map_err(refused(&files.database))?;
    schema::sync_directory(&files.directory).map_err(refused(&files.directory))?;
    // Last: beside a database without its log it makes an opening refuse. It holds nothing.
    match std::fs::remove_file(&files.reserve) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(io(&files.reserve, error)),
        Ok(()) | Err(_) => {}
    }
    schema::sync_directory(&files.directory).map_err(refused(&files.directory))?;
    Ok(aside)
}
