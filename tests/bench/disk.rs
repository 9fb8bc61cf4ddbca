//! The disk's own price: a 1 KiB append and fdatasync, in the directory where the stores lie.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use hooksluice::time::Clock;

/// Median latency of the appends made in `time`.
pub(crate) fn sync_latency(directory: &Path, time: Duration) -> Duration {
    let clock = Clock::system();
    let mut file = File::create(directory.join("sync")).unwrap();
    let record = [0x5a; 1024];
    let begin = clock.monotonic();
    let mut all = Vec::new();
    while clock.monotonic().since(begin) < time {
        let start = clock.monotonic();
        file.write_all(&record).unwrap();
        file.sync_data().unwrap();
        all.push(clock.monotonic().since(start));
    }
    all.sort_unstable();
    all[all.len() / 2]
}
