//! Wall-clock and monotonic time, taken from a [`Clock`] so that tests can set it.
//!
//! This is the only file that reads the machine's clocks. Ages that must survive a restart (windows, retention,
//! give-up) use [`Timestamp`]; intervals within one process use [`Monotonic`].

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// A point in wall-clock time: milliseconds since 1970-01-01T00:00:00Z, leap seconds not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The given number of milliseconds since the Unix epoch.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// The given number of seconds since the Unix epoch (saturating).
    pub const fn from_secs(secs: i64) -> Self {
        Self(secs.saturating_mul(1000))
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// Whole seconds since the Unix epoch, rounded down.
    pub const fn as_secs(self) -> i64 {
        self.0.div_euclid(1000)
    }

    /// This time plus `duration` (saturating).
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(millis(duration)))
    }

    /// This time minus `duration` (saturating).
    pub fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(millis(duration)))
    }

    /// How long ago `earlier` was; zero when `earlier` lies in the future.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// RFC 3339 in UTC with milliseconds, such as `2026-11-29T20:15:00.123Z`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(time) => write!(f, "{time:.3}"),
            // Outside jiff's years -9999..=9999 there is no RFC 3339 form; the number is still exact.
            Err(_) => write!(f, "{}ms", self.0),
        }
    }
}

/// Time since this process started; never goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Monotonic(Duration);

impl Monotonic {
    /// The given time after the process's start.
    pub const fn from_start(elapsed: Duration) -> Self {
        Self(elapsed)
    }

    /// This time plus `duration` (saturating).
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }

    /// How long ago `earlier` was; zero when it lies ahead.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// Where time comes from. Cheap to clone; all clones of a manual clock move together.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    System { start: std::time::Instant },
    Manual(Arc<AtomicI64>),
}

impl Clock {
    /// The machine's clocks.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clocks")]
    pub fn system() -> Self {
        Self(Source::System {
            start: std::time::Instant::now(),
        })
    }

    /// A clock that stands still until [`Clock::set`] moves it.
    pub fn manual(now: Timestamp) -> Self {
        Self(Source::Manual(Arc::new(AtomicI64::new(now.0))))
    }

    /// Moves a manual clock; does nothing to the system's.
    pub fn set(&self, now: Timestamp) {
        if let Source::Manual(millis) = &self.0 {
            millis.store(now.0, Ordering::SeqCst);
        }
    }

    /// The wall-clock time.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clocks")]
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::System { .. } => match std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH) {
                Ok(since) => Timestamp(millis(since)),
                Err(before) => Timestamp(millis(before.duration()).saturating_neg()),
            },
            Source::Manual(millis) => Timestamp(millis.load(Ordering::SeqCst)),
        }
    }

    /// The monotonic time. A manual clock's monotonic time is its wall time, which is enough for tests that only move
    /// it forward.
    pub fn monotonic(&self) -> Monotonic {
        match &self.0 {
            Source::System { start } => Monotonic(start.elapsed()),
            Source::Manual(millis) => Monotonic(Duration::from_millis(
                u64::try_from(millis.load(Ordering::SeqCst)).unwrap_or(0),
            )),
        }
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_print_as_rfc_3339_with_milliseconds() {
        assert_eq!(
            Timestamp::from_millis(1_700_000_000_123).to_string(),
            "2023-11-14T22:13:20.123Z"
        );
        assert_eq!(Timestamp::from_millis(i64::MAX).to_string(), "9223372036854775807ms");
    }

    #[test]
    fn a_time_before_the_epoch_rounds_down_to_whole_seconds() {
        assert_eq!(Timestamp::from_millis(-1).as_secs(), -1);
    }

    #[test]
    fn arithmetic_saturates() {
        let end = Timestamp::from_millis(i64::MAX);
        assert_eq!(end.after(Duration::MAX), end);
        assert_eq!(Timestamp::from_secs(i64::MAX), end);
        assert_eq!(
            Timestamp::from_millis(5).since(Timestamp::from_millis(9)),
            Duration::ZERO
        );
    }

    #[test]
    fn clones_of_a_manual_clock_move_together() {
        let clock = Clock::manual(Timestamp::from_secs(1));
        let other = clock.clone();
        clock.set(Timestamp::from_secs(2));
        assert_eq!(other.now(), Timestamp::from_secs(2));
    }
}
