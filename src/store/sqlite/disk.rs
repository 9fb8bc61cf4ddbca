//! The disk budget: accepting stops before the disk is full, settling goes on (P10, ST-06).
//!
//! Two limits are looked at each second: `store.max_bytes` over what the store's live data takes, and `store.min_free` on
//! the file system. For the case that somebody else fills the disk, a small file is kept in reserve: when a write finds
//! the disk full it is given up, so that what is stored can still be settled, and accepting stops until it is back.
//!
//! Also looked at: whether the names of the open files still lead to them. What is written to a file that was removed or
//! renamed is gone with the process, so accepting stops for good.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rusqlite::Connection;

use super::Shared;
use super::schema::{Files, PAGE_SIZE, private};

/// Room for the state changes of some ten thousand dispatches.
const RESERVE_BYTES: u64 = 8 << 20;

/// The reserve file, as the writer sees it.
#[derive(Debug)]
pub(super) struct Reserve {
    path: PathBuf,
}

impl Reserve {
    pub(super) fn new(files: &Files) -> Self {
        Self {
            path: files.reserve.clone(),
        }
    }

    /// Gives its space to the writes that are left.
    pub(super) fn release(&self, shared: &Shared) {
        shared.disk_spent.store(true, Ordering::Relaxed);
        match std::fs::remove_file(&self.path) {
            Ok(()) => tracing::warn!("the disk is full: the reserve is given up, so that stored events can be settled"),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => tracing::warn!(error = error.to_string(), "the reserve could not be given up"),
        }
    }
}

/// Looks at the limits; on the helper thread.
#[derive(Debug)]
pub(super) struct DiskWatch {
    files: Files,
    max_bytes: u64,
    min_free: u64,
    shared: Arc<Shared>,
    spent: bool,
    /// The files that are open, and which ones they are.
    open: [(PathBuf, Option<FileId>); 3],
}

/// Device and inode: no other file has them while this one is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileId(u64, u64);

impl FileId {
    /// Of the file with this name; `None` when there is none.
    fn of(path: &Path) -> std::io::Result<Option<Self>> {
        match std::fs::symlink_metadata(path) {
            Ok(file) => Ok(Some(Self(file.dev(), file.ino()))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl DiskWatch {
    pub(super) fn new(files: &Files, max_bytes: u64, min_free: u64, shared: &Arc<Shared>) -> Self {
        Self {
            files: files.clone(),
            max_bytes,
            min_free,
            shared: Arc::clone(shared),
            spent: false,
            open: [&files.database, &files.wal, &files.shm].map(|path| (path.clone(), FileId::of(path).ok().flatten())),
        }
    }

    pub(super) fn look(&mut self, conn: &Connection) {
        if self.files_are_lost() {
            return;
        }
        let used = used_bytes(conn);
        if let Some(used) = used {
            self.shared.used_bytes.store(used, Ordering::Relaxed);
        }
        let free = rustix::fs::statvfs(&self.files.directory)
            .ok()
            .map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize));
        if let Some(free) = free {
            self.shared.free_bytes.store(free, Ordering::Relaxed);
        }
        let over = used.is_some_and(|used| used >= self.max_bytes);
        let scarce = free.is_some_and(|free| free < self.min_free);
        let spent = over || scarce || !self.keep_reserve(free);
        if spent != self.spent {
            if spent {
                tracing::error!(
                    used,
                    free,
                    max_bytes = self.max_bytes,
                    min_free = self.min_free,
                    "the store's disk budget is spent: accepting stops, settling goes on"
                );
            } else {
                tracing::info!(used, free, "the store's disk budget is kept again: accepting goes on");
            }
            self.spent = spent;
        }
        self.shared.disk_spent.store(spent, Ordering::Relaxed);
    }

    /// Whether an open file is not the one that its name leads to; once found, it stays so.
    fn files_are_lost(&self) -> bool {
        if self.shared.lost.get().is_some() {
            return true;
        }
        // A name that cannot be looked up tells nothing.
        let lost =
            |known: &Option<FileId>, path: &Path| FileId::of(path).is_ok_and(|now| now.is_none() || now != *known);
        let Some((path, _known)) = self.open.iter().find(|(path, known)| lost(known, path)) else {
            return false;
        };
        let why = format!("{path:?} was removed or replaced while it was open");
        tracing::error!(
            file = path.display().to_string(),
            "a file of the store was removed or replaced while it was open: nothing is accepted until a restart; put the \
             file back, or restore a backup, before that"
        );
        self.shared.lost.get_or_init(|| why);
        true
    }

    /// Whether the reserve is there; makes it where there is room.
    fn keep_reserve(&self, free: Option<u64>) -> bool {
        if std::fs::metadata(&self.files.reserve).is_ok_and(|file| file.len() >= RESERVE_BYTES) {
            return true;
        }
        if free.is_some_and(|free| free < RESERVE_BYTES.saturating_mul(2)) {
            return false;
        }
        let made = private(&self.files.reserve).and_then(|file| {
            Ok(rustix::fs::fallocate(
                &file,
                rustix::fs::FallocateFlags::empty(),
                0,
                RESERVE_BYTES,
            )?)
        });
        match made {
            Ok(()) => true,
            // A file system without fallocate has no reserve, and works without.
            Err(error) if error.kind() == std::io::ErrorKind::Unsupported => true,
            Err(_full) => {
                drop(std::fs::remove_file(&self.files.reserve));
                false
            }
        }
    }
}

/// Says so where what is stored may not outlive the machine, or where locks and syncs may not do what they promise.
pub(super) fn warn_of_place(directory: &Path) {
    if let Some((name, danger)) = danger_at(directory) {
        tracing::warn!(
            directory = directory.display().to_string(),
            file_system = name,
            "the store lies on {name}: {danger}"
        );
    }
}

/// As [`danger_of`], for the file system that holds `directory`.
pub(super) fn danger_at(directory: &Path) -> Option<(&'static str, &'static str)> {
    let place = rustix::fs::statfs(directory).ok()?;
    // The field's type differs between platforms; the magic numbers have 32 bits.
    let magic = i128::from(place.f_type) & 0xffff_ffff;
    danger_of(u32::try_from(magic).unwrap_or(0))
}

/// The name of a file system that is no place for a store, by the magic number of statfs(2), and why.
fn danger_of(magic: u32) -> Option<(&'static str, &'static str)> {
    const MEMORY: &str = "stored events are lost when the machine stops";
    const LAYER: &str = "stored events are lost when the container is removed; put the store on a volume";
    const NETWORK: &str = "it may be a network file system, whose locks and syncs are not those of a local disk";
    Some(match magic {
        0x0102_1994 => ("tmpfs", MEMORY),
        0x8584_58f6 => ("ramfs", MEMORY),
        0x794c_7630 => ("overlayfs", LAYER),
        0x6969 => ("nfs", NETWORK),
        0x517b | 0xfe53_4d42 | 0xff53_4d42 => ("smb", NETWORK),
        0x0102_1997 => ("9p", NETWORK),
        0x00c3_6400 => ("ceph", NETWORK),
        0x0bd0_0bd0 => ("lustre", NETWORK),
        0x5346_414f | 0x6b41_4653 => ("afs", NETWORK),
        0x6573_5546 => ("fuse", NETWORK),
        _ => return None,
    })
}

/// What the live data takes. Free pages inside the file are room; the log has its fixed length on top.
fn used_bytes(conn: &Connection) -> Option<u64> {
    let pragma = |name| conn.pragma_query_value(None, name, |row| row.get::<_, u64>(0));
    let pages = pragma("page_count").ok()?;
    let free = pragma("freelist_count").ok()?;
    Some(pages.saturating_sub(free).saturating_mul(u64::from(PAGE_SIZE)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_in_memory_is_known_and_a_disk_is_no_danger() {
        let magic = |path: &str| {
            let place = rustix::fs::statfs(path).unwrap();
            u32::try_from(i128::from(place.f_type) & 0xffff_ffff).unwrap()
        };
        if Path::new("/dev/shm").is_dir() {
            assert_eq!(danger_of(magic("/dev/shm")).unwrap().0, "tmpfs");
        }
        // ext4, XFS, Btrfs, ZFS.
        for sound in [0xef53, 0x5846_5342, 0x9123_683e, 0x2fc1_2fc1] {
            assert_eq!(danger_of(sound), None);
        }
    }
}
