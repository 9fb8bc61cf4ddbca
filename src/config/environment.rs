//! What a configuration may refer to: environment variables, secret files and the time.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::time::{Clock, Timestamp};

/// Larger than any key or certificate; a path to a device or a log must not fill the memory.
pub const MAX_SECRET_FILE: u64 = 64 << 10;

/// Where references of a configuration are looked up. It remembers which files were, so that whoever runs the
/// configuration can watch them.
pub struct Environment {
    clock: Clock,
    lookup: Lookup,
    referred: Mutex<BTreeSet<PathBuf>>,
}

enum Lookup {
    Process,
    Fixed {
        variables: BTreeMap<String, Vec<u8>>,
        files: BTreeMap<PathBuf, Vec<u8>>,
    },
}

/// Not the content: it is secret.
impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.lookup {
            Lookup::Process => "Environment(process)",
            Lookup::Fixed { .. } => "Environment(fixed)",
        })
    }
}

impl Environment {
    /// This process's environment and the machine's files.
    pub fn process(clock: Clock) -> Self {
        Self {
            clock,
            lookup: Lookup::Process,
            referred: Mutex::default(),
        }
    }

    /// An environment with nothing in it but what [`Environment::with_variable`] and [`Environment::with_file`] put
    /// there.
    pub fn fixed(now: Timestamp) -> Self {
        Self {
            clock: Clock::manual(now),
            lookup: Lookup::Fixed {
                variables: BTreeMap::new(),
                files: BTreeMap::new(),
            },
            referred: Mutex::default(),
        }
    }

    /// Adds a variable to a fixed environment; does nothing to the process's.
    #[must_use]
    pub fn with_variable(mut self, name: &str, value: impl Into<Vec<u8>>) -> Self {
        if let Lookup::Fixed { variables, .. } = &mut self.lookup {
            variables.insert(name.to_owned(), value.into());
        }
        self
    }

    /// Adds a file to a fixed environment; does nothing to the machine's.
    #[must_use]
    pub fn with_file(mut self, path: &str, content: impl Into<Vec<u8>>) -> Self {
        if let Lookup::Fixed { files, .. } = &mut self.lookup {
            files.insert(PathBuf::from(path), content.into());
        }
        self
    }

    /// Every file and directory that was looked at so far, there or not, as the configuration names it: in the order of
    /// their paths, each once.
    pub fn referred(&self) -> Vec<PathBuf> {
        let referred = self.referred.lock().unwrap_or_else(PoisonError::into_inner);
        referred.iter().cloned().collect()
    }

    /// Whatever looks at a file or a directory notes it here first: what is missing today may be there tomorrow.
    fn note(&self, path: &Path) {
        let mut referred = self.referred.lock().unwrap_or_else(PoisonError::into_inner);
        referred.insert(path.to_owned());
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(super) fn variable(&self, name: &str) -> Option<Vec<u8>> {
        match &self.lookup {
            // An empty name, `=` or NUL can name no variable.
            Lookup::Process => std::env::var_os(OsStr::new(name)).map(|value| value.as_bytes().to_vec()),
            Lookup::Fixed { variables, .. } => variables.get(name).cloned(),
        }
    }

    /// A file of at most [`MAX_SECRET_FILE`] bytes; a larger one is an error.
    pub(super) fn file(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.note(path);
        match &self.lookup {
            Lookup::Process => read_limited(path, MAX_SECRET_FILE),
            Lookup::Fixed { files, .. } => files
                .get(path)
                .cloned()
                .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound)),
        }
    }
}

/// Reads a file of at most `limit` bytes.
pub(super) fn read_limited(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).is_ok_and(|len| len <= limit) {
        Ok(bytes)
    } else {
        Err(io::Error::from(io::ErrorKind::FileTooLarge))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_over_the_limit_is_an_error_and_not_cut() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read_limited(&path, 5).unwrap(), b"12345");
        assert_eq!(read_limited(&path, 4).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert!(read_limited(dir.path(), 5).is_err());
    }

    #[test]
    fn each_file_that_was_looked_at_is_remembered_once_there_or_not() {
        let environment = Environment::fixed(Timestamp::from_secs(1)).with_file("/b", "x");
        assert!(environment.referred().is_empty());
        for path in ["/b", "/a", "/b"] {
            assert_eq!(environment.file(Path::new(path)).is_ok(), path == "/b");
        }
        assert_eq!(environment.referred(), [PathBuf::from("/a"), PathBuf::from("/b")]);
    }
}
