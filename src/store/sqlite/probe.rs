//! A look at the place of an embedded store, without touching it: no file is made, no lock is taken, no database opened,
//! so that it can be had beside a running server.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::Access;

use super::disk::danger_at;
use super::schema::{self, Files};
use crate::finding::Finding;
use crate::store::settings::SqliteSettings;

const KEY: &str = "store.sqlite.path";

pub(in crate::store) fn probe(settings: &SqliteSettings) -> Vec<Finding> {
    let files = Files::new(&settings.path);
    let shown = settings.path.display();
    let mut found = Vec::new();
    // What will be made is made in the nearest directory that is there.
    let Some(place) = settings
        .path
        .ancestors()
        .find(|path| path.exists() || path.as_os_str().is_empty())
    else {
        return found;
    };
    let place = if place.as_os_str().is_empty() {
        Path::new(".")
    } else {
        place
    };
    let is_there = place == settings.path;
    if !place.is_dir() {
        found.push(Finding::fail(
            KEY,
            format!("{} is no directory", place.display()),
            "name a directory, or one that can be made",
        ));
        return found;
    }
    match rustix::fs::access(place, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK) {
        Err(error) => found.push(Finding::fail(
            KEY,
            format!("{} cannot be written: {}", place.display(), std::io::Error::from(error)),
            "give it to the user that hooksluice runs as (chown), or name another directory",
        )),
        Ok(()) if is_there => found.push(Finding::ok(KEY, format!("{shown} is writable"))),
        Ok(()) => found.push(Finding::ok(KEY, format!("{shown} will be made in {}", place.display()))),
    }
    if let Some((name, danger)) = danger_at(place) {
        found.push(Finding::warn(
            KEY,
            format!("{shown} lies on {name}: {danger}"),
            "use a directory on a local disk, or a volume on one",
        ));
    }
    found.extend(room(place, settings.min_free));
    if is_there {
        found.push(tables(&files));
        if let Some(process) = holder(&files.directory) {
            found.push(Finding::ok(
                KEY,
                format!("a running server has it open (process {process})"),
            ));
        }
    }
    found
}

fn room(place: &Path, min_free: u64) -> Option<Finding> {
    const KEY: &str = "store.min_free";
    let stat = rustix::fs::statvfs(place).ok()?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
    Some(if free < min_free {
        Finding::fail(
            KEY,
            format!(
                "{} free of {} wanted: nothing would be accepted",
                mib(free),
                mib(min_free)
            ),
            "free some space, use another file system, or lower `store.min_free`",
        )
    } else if free / 2 < min_free {
        Finding::warn(
            KEY,
            format!("{} free: accepting stops at {}", mib(free), mib(min_free)),
            "free some space before it is used up",
        )
    } else {
        Finding::ok(KEY, format!("{} free", mib(free)))
    })
}

/// What the database's header says, read as bytes.
fn tables(files: &Files) -> Finding {
    let version = schema::known_version(&files.database);
    let looked = version.and_then(|version| schema::refuse_incomplete(files, version).map(|()| version));
    match looked {
        Ok(None | Some(0)) => Finding::ok(KEY, "no store yet: the first start makes it"),
        Ok(Some(version)) if version < schema::SCHEMA_VERSION => Finding::ok(
            KEY,
            format!(
                "schema {version}: the next start brings it to {}, and older versions cannot open it then",
                schema::SCHEMA_VERSION
            ),
        ),
        Ok(Some(version)) => Finding::ok(KEY, format!("schema {version}")),
        Err(error) => {
            let text = error.to_string();
            let why = std::error::Error::source(&error).map_or(text.clone(), |source| format!("{text}: {source}"));
            Finding::fail(
                KEY,
                why,
                "run the version that wrote it, restore a backup, or name another directory",
            )
        }
    }
}

/// The process that has the store's lock, as the kernel lists it. Nothing is asked of the lock itself: a server that starts
/// at this moment would find it taken.
fn holder(directory: &Path) -> Option<u32> {
    let lock = std::fs::metadata(directory.join("lock")).ok()?;
    let file = format!(":{}", lock.ino());
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    holder_in(&locks, &file)
}

/// From lines such as `1: FLOCK  ADVISORY  WRITE 4242 fd:01:1835022 0 EOF`.
fn holder_in(locks: &str, file: &str) -> Option<u32> {
    locks.lines().find_map(|line| {
        let words: Vec<_> = line.split_ascii_whitespace().collect();
        match words.as_slice() {
            [_, "FLOCK", _, "WRITE", process, place, ..] if place.ends_with(file) => process.parse().ok(),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Verdict;

    fn settings(path: &Path) -> SqliteSettings {
        SqliteSettings {
            path: path.to_owned(),
            min_free: 0,
            ..SqliteSettings::default()
        }
    }

    #[test]
    fn the_holder_of_a_lock_is_read_from_the_kernel_s_list() {
        let locks = "1: POSIX  ADVISORY  WRITE 7 fd:01:42 0 EOF\n2: FLOCK  ADVISORY  READ  8 fd:01:42 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 9 fd:01:421 0 EOF\n4: FLOCK  ADVISORY  WRITE 10 fd:01:42 0 EOF\n";
        assert_eq!(holder_in(locks, ":42"), Some(10));
        assert_eq!(holder_in(locks, ":43"), None);
    }

    #[test]
    fn a_look_makes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b");
        let found = probe(&settings(&path));
        assert!(found[0].said.contains("will be made"), "{found:?}");
        assert!(!directory.path().join("a").exists());
    }

    #[test]
    fn a_directory_that_cannot_hold_a_store_says_what_to_do() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        let found = probe(&settings(&file.join("store")));
        assert_eq!(found[0].verdict, Verdict::Fail);
        let mut full = settings(directory.path());
        full.min_free = u64::MAX;
        let found = probe(&full);
        let room = found.iter().find(|found| found.key == "store.min_free").unwrap();
        assert_eq!(room.verdict, Verdict::Fail);
        std::fs::write(directory.path().join("hooksluice.db"), b"#!/bin/sh\n".repeat(100)).unwrap();
        let found = probe(&settings(directory.path()));
        assert!(
            found
                .iter()
                .any(|found| found.said.contains("is not a hooksluice store")),
            "{found:?}"
        );
        for found in found {
            assert_eq!(found.help.is_some(), found.verdict != Verdict::Ok, "{found:?}");
        }
    }
}
