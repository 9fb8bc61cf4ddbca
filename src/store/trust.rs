//! Whether a wall clock may decide what is old.

use std::time::Duration;

use crate::time::{Monotonic, Timestamp};

/// The clock is doubted after a jump of more than this against the monotonic one.
const JUMP: Duration = Duration::from_secs(600);
/// A start so long after the newest stored time doubts the clock as well.
const GAP: Duration = Duration::from_secs(86_400);
/// And for this long.
const DOUBT: Duration = Duration::from_secs(3600);

/// Whether the wall clock may decide what is old (DESIGN section 3, "Time").
#[derive(Debug)]
pub(super) struct TimeTrust {
    wall: Timestamp,
    monotonic: Monotonic,
    doubted_until: Option<Monotonic>,
}

impl TimeTrust {
    /// `newest` is the newest time in the store.
    pub(super) fn new(wall: Timestamp, monotonic: Monotonic, newest: Option<Timestamp>) -> Self {
        let doubt = newest.is_some_and(|newest| newest.since(wall) > JUMP || wall.since(newest) > GAP);
        Self {
            wall,
            monotonic,
            doubted_until: doubt.then(|| monotonic.after(DOUBT)),
        }
    }

    /// Looks at both clocks; says whether the wall clock is trusted.
    pub(super) fn observe(&mut self, wall: Timestamp, monotonic: Monotonic) -> bool {
        let expected = self.wall.after(monotonic.since(self.monotonic));
        if expected.since(wall).max(wall.since(expected)) > JUMP {
            self.doubted_until = Some(monotonic.after(DOUBT));
        }
        self.wall = wall;
        self.monotonic = monotonic;
        if self.doubted_until.is_some_and(|until| monotonic >= until) {
            self.doubted_until = None;
        }
        self.doubted_until.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn at(secs: u64) -> (Timestamp, Monotonic) {
        let secs_signed = i64::try_from(secs).unwrap();
        (
            Timestamp::from_secs(1_700_000_000 + secs_signed),
            Monotonic::from_start(Duration::from_secs(secs)),
        )
    }

    #[test]
    fn a_clock_that_agrees_is_trusted() {
        let (wall, monotonic) = at(0);
        let mut trust = TimeTrust::new(wall, monotonic, Some(wall.before(HOUR)));
        for secs in [1, 100, 100_000] {
            let (wall, monotonic) = at(secs);
            assert!(trust.observe(wall, monotonic));
        }
    }

    #[test]
    fn a_jump_either_way_is_doubted_until_an_hour_agreed() {
        for jump in [true, false] {
            let (wall, monotonic) = at(0);
            let mut trust = TimeTrust::new(wall, monotonic, None);
            let moved = |wall: Timestamp| if jump { wall.after(HOUR) } else { wall.before(HOUR) };
            let (wall, monotonic) = at(10);
            assert!(!trust.observe(moved(wall), monotonic));
            let (wall, monotonic) = at(3000);
            assert!(!trust.observe(moved(wall), monotonic), "fifty minutes are not an hour");
            let (wall, monotonic) = at(3700);
            assert!(trust.observe(moved(wall), monotonic));
        }
    }

    #[test]
    fn a_second_jump_starts_the_hour_again() {
        let (wall, monotonic) = at(0);
        let mut trust = TimeTrust::new(wall, monotonic, None);
        let (wall, monotonic) = at(10);
        assert!(!trust.observe(wall.after(HOUR), monotonic));
        let (wall, monotonic) = at(3000);
        assert!(!trust.observe(wall, monotonic), "the jump back is a jump");
        let (wall, monotonic) = at(3700);
        assert!(!trust.observe(wall, monotonic));
        let (wall, monotonic) = at(6700);
        assert!(trust.observe(wall, monotonic));
    }

    #[test]
    fn a_start_far_from_the_newest_stored_time_is_doubted() {
        let (wall, monotonic) = at(0);
        for newest in [
            wall.after(Duration::from_secs(660)),
            wall.before(Duration::from_secs(90_000)),
        ] {
            let mut trust = TimeTrust::new(wall, monotonic, Some(newest));
            assert!(!trust.observe(wall, monotonic));
            let (wall, monotonic) = at(3700);
            assert!(trust.observe(wall, monotonic));
        }
    }
}
