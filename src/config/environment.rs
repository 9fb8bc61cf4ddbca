//! What a configuration may refer to: environment variables, secret files and the time.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::OFlags;
use rustls::pki_types::CertificateDer;

use crate::time::{Clock, Timestamp};

/// Larger than any key or certificate; a path to a device or a log must not fill the memory.
pub const MAX_SECRET_FILE: u64 = 64 << 10;

/// Opens without waiting for the other end of a pipe.
const NONBLOCK: i32 = OFlags::NONBLOCK.bits().cast_signed();

/// What is said of a pipe, a device or a directory.
pub(super) const NOT_A_FILE: &str = "not a regular file";

/// Files of a directory of secrets: each request may be tried with every one.
pub(super) const MAX_SECRET_FILES: usize = 64;

/// Where references of a configuration are looked up. It remembers which files were, so that whoever runs the
/// configuration can watch them.
pub struct Environment {
    clock: Clock,
    lookup: Lookup,
    referred: Mutex<BTreeSet<PathBuf>>,
    judges_modes: bool,
}

enum Lookup {
    Process,
    Fixed {
        variables: BTreeMap<String, Vec<u8>>,
        files: BTreeMap<PathBuf, Vec<u8>>,
        roots: Vec<CertificateDer<'static>>,
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
            judges_modes: false,
        }
    }

    /// The same, and secrets that every user of the machine may read are warned about: `check` tells a person, while a
    /// server in a container would log it at each start without anybody else being there.
    #[must_use]
    pub fn judging_modes(mut self) -> Self {
        self.judges_modes = true;
        self
    }

    /// An environment with nothing in it but what [`Environment::with_variable`] and [`Environment::with_file`] put
    /// there.
    pub fn fixed(now: Timestamp) -> Self {
        Self {
            clock: Clock::manual(now),
            lookup: Lookup::Fixed {
                variables: BTreeMap::new(),
                files: BTreeMap::new(),
                roots: Vec::new(),
            },
            referred: Mutex::default(),
            judges_modes: false,
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

    /// Gives a fixed environment root certificates; does nothing to the machine's.
    #[must_use]
    pub fn with_system_roots(mut self, certificates: Vec<CertificateDer<'static>>) -> Self {
        if let Lookup::Fixed { roots, .. } = &mut self.lookup {
            *roots = certificates;
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

    /// The files of a directory, by name: what is not hidden and, symbolic links followed, a regular file. At most one
    /// more than [`MAX_SECRET_FILES`].
    pub(super) fn directory(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        self.note(path);
        let mut files = match &self.lookup {
            Lookup::Process => visible_files(path)?,
            Lookup::Fixed { files, .. } => {
                let inside: Vec<_> = files
                    .keys()
                    .filter(|file| file.parent() == Some(path))
                    .cloned()
                    .collect();
                match inside.is_empty() {
                    true => return Err(io::Error::from(io::ErrorKind::NotFound)),
                    false => inside,
                }
            }
        };
        files.retain(|file| !is_hidden(file));
        files.sort_unstable();
        Ok(files)
    }

    /// Whether every user of the machine may read this file, and that is to be told.
    pub(super) fn is_open_to_all(&self, path: &Path) -> bool {
        match (&self.lookup, self.judges_modes) {
            (Lookup::Process, true) => open_to_all(path),
            (Lookup::Process, false) | (Lookup::Fixed { .. }, _) => false,
        }
    }

    /// A file of at most [`MAX_SECRET_FILE`] bytes; a larger one is an error.
    pub(super) fn file(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.file_up_to(path, MAX_SECRET_FILE)
    }

    /// A file of at most `limit` bytes; a larger one is an error.
    pub(super) fn file_up_to(&self, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
        self.note(path);
        match &self.lookup {
            Lookup::Process => read_limited(path, limit),
            Lookup::Fixed { files, .. } => files
                .get(path)
                .cloned()
                .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound)),
        }
    }

    /// The root certificates that the machine trusts: a file of some hundred KiB, read anew at each call. `SSL_CERT_FILE`
    /// and `SSL_CERT_DIR` name others. They are no references of the configuration, so nobody watches them.
    pub(super) fn system_roots(&self) -> Vec<CertificateDer<'static>> {
        match &self.lookup {
            // What cannot be read is told by what is then missing: most systems have something odd in their directory.
            Lookup::Process => rustls_native_certs::load_native_certs().certs,
            Lookup::Fixed { roots, .. } => roots.clone(),
        }
    }
}

/// A link that leads nowhere is an error: a secret is missing, which must not go unnoticed.
fn visible_files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if !is_hidden(&path) && std::fs::metadata(&path)?.is_file() {
            files.push(path);
        }
        if files.len() > MAX_SECRET_FILES {
            break;
        }
    }
    Ok(files)
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_none_or(|name| name.as_bytes().starts_with(b"."))
}

/// By its mode and those of all directories above it, symbolic links followed. What cannot be looked at is not open.
fn open_to_all(path: &Path) -> bool {
    let others = |path: &Path, bit: u32| std::fs::metadata(path).is_ok_and(|found| found.mode() & bit != 0);
    std::fs::canonicalize(path)
        .is_ok_and(|path| others(&path, 0o004) && path.ancestors().skip(1).all(|above| others(above, 0o001)))
}

/// Reads a regular file of at most `limit` bytes.
///
/// Nothing else is waited for: opening a pipe with no writer would never end, and with it no reload any more. A pipe that
/// this process was started with (`/dev/stdin`, `/dev/fd/N`) is open already.
pub(super) fn read_limited(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = if path == Path::new("/dev/stdin") || path.starts_with("/dev/fd") {
        File::open(path)?
    } else {
        let file = OpenOptions::new().read(true).custom_flags(NONBLOCK).open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, NOT_A_FILE));
        }
        file
    };
    file.take(limit + 1).read_to_end(&mut bytes)?;
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
    fn a_file_is_open_to_all_when_every_directory_above_it_is() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let mode = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        let path = dir.path().join("secret");
        std::fs::write(&path, "12345").unwrap();
        mode(&path, 0o644);
        mode(dir.path(), 0o755);
        assert!(open_to_all(&path));
        mode(dir.path(), 0o750);
        assert!(!open_to_all(&path));
        mode(dir.path(), 0o755);
        mode(&path, 0o640);
        assert!(!open_to_all(&path));
        assert!(!open_to_all(&dir.path().join("none")));
    }

    /// As Kubernetes mounts a secret: links through a hidden directory that is swapped as a whole.
    #[test]
    fn the_files_of_a_directory_are_the_visible_ones_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let environment = Environment::process(Clock::system());
        let data = dir.path().join("..2026");
        std::fs::create_dir(&data).unwrap();
        std::os::unix::fs::symlink("..2026", dir.path().join("..data")).unwrap();
        for name in ["b", "a"] {
            std::fs::write(data.join(name), name).unwrap();
            std::os::unix::fs::symlink(format!("..data/{name}"), dir.path().join(name)).unwrap();
        }
        std::fs::write(dir.path().join(".hidden"), "x").unwrap();
        std::fs::create_dir(dir.path().join("folder")).unwrap();
        let found = environment.directory(dir.path()).unwrap();
        assert_eq!(found, ["a", "b"].map(|name| dir.path().join(name)));

        std::os::unix::fs::symlink("nowhere", dir.path().join("c")).unwrap();
        assert_eq!(
            environment.directory(dir.path()).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
    }

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
    fn a_pipe_or_a_device_is_refused_and_not_waited_for() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("secret");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        for path in [pipe.as_path(), Path::new("/dev/zero"), dir.path()] {
            let error = read_limited(path, 5).unwrap_err();
            assert_eq!(error.to_string(), NOT_A_FILE, "{}", path.display());
        }
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
