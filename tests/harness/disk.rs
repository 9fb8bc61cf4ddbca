//! A disk that can be full: a small tmpfs where mounting is allowed.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// A file system in memory of a fixed size; unmounted when dropped.
#[derive(Debug)]
pub(crate) struct Tmpfs {
    directory: TempDir,
}

impl Tmpfs {
    /// Needs the right to mount; tests that need it say so by failing here.
    pub(crate) fn mount(bytes: u64) -> Self {
        Self::try_mount(bytes).expect("mounting a tmpfs needs root; run the tests as root or in a container")
    }

    /// `None` where mounting is not allowed.
    pub(crate) fn try_mount(bytes: u64) -> Option<Self> {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let status = Command::new("mount")
            .args([
                "-t",
                "tmpfs",
                "-o",
                &format!("size={bytes},mode=0700"),
                "hooksluice-test",
            ])
            .arg(directory.path())
            .stderr(std::process::Stdio::null())
            .status()
            .ok()?;
        status.success().then_some(Self { directory })
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // Lazily: a server that a failed test left behind may still be there for a moment.
        Command::new("umount").arg("-l").arg(self.path()).status().ok();
    }
}

/// A disk filled up; there is room again when dropped.
#[derive(Debug)]
pub(crate) struct Full {
    ballast: PathBuf,
}

impl Full {
    /// Leaves `free` bytes.
    pub(crate) fn fill(disk: &Tmpfs, free: u64) -> Self {
        let ballast = disk.path().join("ballast");
        let mut file = File::create(&ballast).unwrap();
        let mut size = 1 << 20;
        while size > 0 {
            if file.write_all(&vec![0; size]).is_err() {
                size /= 2;
            }
        }
        let length = file.metadata().unwrap().len();
        file.set_len(length.checked_sub(free).unwrap()).unwrap();
        Self { ballast }
    }
}

impl Drop for Full {
    fn drop(&mut self) {
        std::fs::remove_file(&self.ballast).ok();
    }
}
