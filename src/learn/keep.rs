//! A secret becomes a file of its source's directory: whole and durable, or not there at all.
//!
//! Hidden files are none of the configuration's, so that nothing is taken for a secret before it has its name.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::secret::Secret;
use crate::time::Timestamp;

/// How names of files that are kept begin.
const PREFIX: &str = "learned-";

/// Why a secret is not kept.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotKept {
    /// The directory holds one by now.
    #[error("the directory holds a secret by now")]
    Sealed,
    /// Another process writes there.
    #[error("another process keeps a secret there at this moment")]
    Locked,
    /// The system says no.
    #[error("{0}")]
    Failed(#[from] io::Error),
    /// The configuration with it was refused.
    #[error("the configuration could not be built with it: see above")]
    NotTakenOver,
    /// The server shuts down.
    #[error("the server is shutting down")]
    Closing,
}

/// It is durable.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) path: PathBuf,
}

/// A hidden file that is gone when it is dropped.
struct Hidden {
    path: PathBuf,
    file: File,
}

impl Hidden {
    fn create(directory: &Path, name: &str) -> io::Result<Self> {
        let path = directory.join(format!(".{name}"));
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(&path)?;
        Ok(Self { path, file })
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        // Renamed, it is gone already.
        fs::remove_file(&self.path).ok();
    }
}

/// Makes `secret` a file that only this user may read. `alone`: only if the directory holds none yet. `at` and `dice` make
/// its name, which is the secret's label.
pub(super) fn keep(directory: &Path, secret: &Secret, alone: bool, at: Timestamp, dice: u16) -> Result<Kept, NotKept> {
    let handle = File::open(directory)?;
    if lock(&handle)? {
        remove_leftovers(directory)?;
    }
    if alone && has_visible_file(directory)? {
        return Err(NotKept::Sealed);
    }
    let at = at.to_string().replace(':', "-");
    let name = format!("{PREFIX}{at}-{dice:04x}");
    let path = directory.join(&name);
    if path.try_exists()? {
        return Err(io::Error::from(io::ErrorKind::AlreadyExists).into());
    }
    let mut hidden = Hidden::create(directory, &name)?;
    hidden.file.write_all(secret.expose())?;
    // As an editor would leave it: one line end is none of the secret.
    hidden.file.write_all(b"\n")?;
    hidden.file.sync_all()?;
    fs::rename(&hidden.path, &path)?;
    match handle.sync_all() {
        Ok(()) => Ok(Kept { path }),
        Err(error) => {
            // What may not outlive a power cut is not kept.
            fs::remove_file(&path)?;
            Err(error.into())
        }
    }
}

/// Undoes what was kept.
pub(super) fn take_back(path: &Path) -> Result<(), NotKept> {
    fs::remove_file(path)?;
    if let Some(directory) = path.parent() {
        File::open(directory)?.sync_all()?;
    }
    Ok(())
}

/// Whether anything could be kept there.
pub(super) fn probe(directory: &Path) -> Result<(), NotKept> {
    let probe = Hidden::create(directory, "learn-probe");
    match probe {
        Ok(_) => Ok(()),
        // Another process probes, or died at it; either could write.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(directory.join(".learn-probe")).ok();
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// Held until the handle is closed. Not every file system has such locks (`false`); without them two processes that are
/// armed at the same moment may keep one secret each.
fn lock(handle: &File) -> Result<bool, NotKept> {
    match rustix::fs::flock(handle, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Err(NotKept::Locked),
        Err(_) => Ok(false),
    }
}

/// What processes left behind that died before a secret had its name.
fn remove_leftovers(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let hidden = name.as_encoded_bytes().strip_prefix(b".");
        if hidden.is_some_and(|name| name.starts_with(PREFIX.as_bytes())) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn has_visible_file(directory: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        if !hidden && fs::metadata(entry.path()).is_ok_and(|found| found.is_file()) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const AT: Timestamp = Timestamp::from_secs(1_764_500_000);

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    #[test]
    fn a_secret_is_one_file_that_nobody_else_may_read() {
        let directory = tempfile::tempdir().unwrap();
        let kept = keep(directory.path(), &Secret::new("s3cr3t"), true, AT, 0xab).unwrap();
        assert_eq!(fs::read(&kept.path).unwrap(), b"s3cr3t\n");
        assert_eq!(fs::metadata(&kept.path).unwrap().permissions().mode() & 0o777, 0o600);
        let name = names(directory.path());
        assert_eq!(name.len(), 1, "{name:?}");
        assert!(
            name[0].starts_with("learned-2025-11-30T") && name[0].len() <= 64,
            "{name:?}"
        );
        assert!(!name[0].contains(':'), "{name:?}");
    }

    #[test]
    fn only_the_first_is_kept_where_one_is_wanted() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(".hidden"), "x").unwrap();
        fs::create_dir(directory.path().join("inside")).unwrap();
        keep(directory.path(), &Secret::new("first"), true, AT, 1).unwrap();
        let second = keep(directory.path(), &Secret::new("second"), true, AT, 2).unwrap_err();
        assert!(matches!(second, NotKept::Sealed), "{second}");
        keep(directory.path(), &Secret::new("second"), false, AT, 2).unwrap();
        // Nothing is ever overwritten.
        assert!(keep(directory.path(), &Secret::new("third"), false, AT, 2).is_err());
        assert_eq!(names(directory.path()).len(), 4);
    }

    #[test]
    fn what_is_taken_back_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let kept = keep(directory.path(), &Secret::new("s"), true, AT, 1).unwrap();
        take_back(&kept.path).unwrap();
        assert!(names(directory.path()).is_empty());
    }

    #[test]
    fn what_a_process_left_behind_that_died_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(".learned-2025-11-30T00-00-00.000Z-0001"), "half").unwrap();
        fs::write(directory.path().join(".other"), "not ours").unwrap();
        let kept = keep(directory.path(), &Secret::new("s"), true, AT, 1).unwrap();
        let mut names = names(directory.path());
        names.sort();
        assert_eq!(names, [".other", kept.path.file_name().unwrap().to_str().unwrap()]);
    }

    #[test]
    fn while_another_process_writes_nothing_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let other = File::open(directory.path()).unwrap();
        assert!(lock(&other).unwrap());
        let refused = keep(directory.path(), &Secret::new("s"), true, AT, 1).unwrap_err();
        assert!(matches!(refused, NotKept::Locked), "{refused}");
        drop(other);
        keep(directory.path(), &Secret::new("s"), true, AT, 1).unwrap();
    }

    #[test]
    fn a_probe_tells_what_writing_would_and_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            probe(directory.path()).unwrap();
        }
        assert!(names(directory.path()).is_empty());
        fs::write(directory.path().join(".learn-probe"), "").unwrap();
        probe(directory.path()).unwrap();
        let gone = directory.path().join("gone");
        assert!(probe(&gone).unwrap_err().to_string().contains("No such file"));
        assert!(keep(&gone, &Secret::new("s"), true, AT, 1).is_err());
    }
}
