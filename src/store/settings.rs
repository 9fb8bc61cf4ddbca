//! `[store]` and the parts of `[dedupe]` and `[limits]` that a store is held to.

use std::path::PathBuf;
use std::time::Duration;

/// What an embedded store is opened with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreSettings {
    /// Directory of the embedded store (created with mode 0700).
    pub path: PathBuf,
    /// How long finished events are kept with their bodies.
    pub retention: Duration,
    /// How long dead dispatches and their events are kept.
    pub dead_retention: Duration,
    /// Bytes the store's files may take; over it accepting stops, settling goes on.
    pub max_bytes: u64,
    /// Bytes that must stay free on the file system; below it accepting stops, settling goes on.
    pub min_free: u64,
    /// How long keys made by a `dedupe` rule are remembered, at least.
    pub window: Duration,
    /// How long keys made from a content digest are remembered, exactly.
    pub digest_window: Duration,
    /// Bound on appended events that wait for admission.
    pub unadmitted: usize,
}

impl Default for StoreSettings {
    fn default() -> Self {
        Self {
            path: PathBuf::from("hooksluice-data"),
            retention: Duration::from_secs(3 * 86_400),
            dead_retention: Duration::from_secs(30 * 86_400),
            max_bytes: 20 << 30,
            min_free: 512 << 20,
            window: Duration::from_secs(7 * 86_400),
            digest_window: Duration::from_secs(300),
            unadmitted: 100_000,
        }
    }
}
