//! The disk budget: accepting stops before the disk is full, settling goes on (P10, ST-06).
//!
//! Two limits are looked at each second: `store.max_bytes` over what the store's live data takes, and `store.min_free` on
//! the file system. For the case that somebody else fills the disk, a small file is kept in reserve: when a write finds
//! the disk full it is given up, so that what is stored can still be settled, and accepting stops until it is back.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rusqlite::Connection;

use super::Shared;
use super::schema::{Files, PAGE_SIZE, private};
use crate::store::settings::StoreSettings;

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
}

impl DiskWatch {
    pub(super) fn new(files: &Files, settings: &StoreSettings, shared: &Arc<Shared>) -> Self {
        Self {
            files: files.clone(),
            max_bytes: settings.max_bytes,
            min_free: settings.min_free,
            shared: Arc::clone(shared),
            spent: false,
        }
    }

    pub(super) fn look(&mut self, conn: &Connection) {
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

/// What the live data takes. Free pages inside the file are room; the log has its fixed length on top.
fn used_bytes(conn: &Connection) -> Option<u64> {
    let pragma = |name| conn.pragma_query_value(None, name, |row| row.get::<_, u64>(0));
    let pages = pragma("page_count").ok()?;
    let free = pragma("freelist_count").ok()?;
    Some(pages.saturating_sub(free).saturating_mul(u64::from(PAGE_SIZE)))
}
