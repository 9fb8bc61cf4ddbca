//! [`Pace`]: how often something may start (`rate`, `burst`), as arithmetic on one point in time. Lanes hold attempts to
//! it (P7), sources their inbound `rate`.
//!
//! This is the generic cell rate algorithm (ITU-T I.371): the only state is when the next attempt is due if they were
//! spread evenly. A start is allowed up to `burst - 1` intervals before that. It needs no timer and no refill, and
//! cannot drift.

use std::time::Duration;

use crate::reader::Rate;
use crate::time::Monotonic;

/// Timers fire up to a few milliseconds late; this much lateness is made up for, so that `10000/s` means 10,000 a second.
const TIMER_SLACK: Duration = Duration::from_millis(5);

/// How often something may start.
#[derive(Clone, Debug)]
pub struct Pace(Option<Limited>);

#[derive(Clone, Debug)]
struct Limited {
    /// Even distance between two starts.
    interval: Duration,
    /// How far ahead of the even schedule a start may be.
    allowance: Duration,
    /// When the next start is due on the even schedule.
    due: Monotonic,
}

impl Pace {
    /// At most `rate`, evenly spread, of which `burst` (default 1) may start at once. No `rate`: no limit.
    pub fn new(rate: Option<Rate>, burst: Option<u32>) -> Self {
        Self(rate.map(|rate| {
            let interval = rate.per / rate.count.max(1);
            let burst = burst.unwrap_or(1).max(1);
            Limited {
                interval,
                allowance: interval.saturating_mul(burst - 1) + TIMER_SLACK,
                due: Monotonic::default(),
            }
        }))
    }

    /// When the next attempt may start, if not at `now`.
    pub fn not_before(&self, now: Monotonic) -> Option<Monotonic> {
        let limited = self.0.as_ref()?;
        let ahead = limited.due.since(now);
        (ahead > limited.allowance).then(|| now.after(ahead.saturating_sub(limited.allowance)))
    }

    /// An attempt starts.
    pub fn start(&mut self, now: Monotonic) {
        if let Some(limited) = &mut self.0 {
            limited.due = limited.due.max(now).after(limited.interval);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Monotonic {
        Monotonic::from_start(Duration::from_millis(millis))
    }

    fn rate(count: u32, secs: u64) -> Option<Rate> {
        Some(Rate {
            count,
            per: Duration::from_secs(secs),
        })
    }

    /// Starts as often as allowed in `[from, to]` milliseconds, looking once a millisecond.
    fn starts(pace: &mut Pace, from: u64, to: u64) -> usize {
        let mut count = 0;
        for now in from..=to {
            while pace.not_before(ms(now)).is_none() {
                pace.start(ms(now));
                count += 1;
                assert!(count < 1_000_000, "no limit at all");
            }
        }
        count
    }

    #[test]
    fn without_a_rate_there_is_no_limit() {
        let mut pace = Pace::new(None, Some(1));
        for _ in 0..10 {
            pace.start(ms(0));
        }
        assert_eq!(pace.not_before(ms(0)), None);
    }

    #[test]
    fn starts_are_spread_evenly_and_never_exceed_the_rate() {
        let mut pace = Pace::new(rate(10, 1), None);
        pace.start(ms(1000));
        assert_eq!(pace.not_before(ms(1000)), Some(ms(1095)));
        assert_eq!(pace.not_before(ms(1094)), Some(ms(1095)));
        assert_eq!(pace.not_before(ms(1095)), None);

        for (count, per, window, expected) in [
            (10, 1, 10_000, 100),
            (600, 60, 10_000, 100),
            (1000, 1, 2000, 2000),
            (10_000, 1, 2000, 20_000),
        ] {
            let mut pace = Pace::new(rate(count, per), None);
            let started = starts(&mut pace, 5000, 5000 + window);
            assert!(
                (expected..=expected + 60).contains(&started),
                "{count}/{per}s gave {started} in {window} ms"
            );
        }
    }

    #[test]
    fn a_burst_starts_at_once_and_is_earned_back_at_the_rate() {
        let mut pace = Pace::new(rate(10, 1), Some(5));
        assert_eq!(starts(&mut pace, 10_000, 10_000), 5);
        assert_eq!(starts(&mut pace, 10_001, 10_100), 1);
        assert_eq!(
            starts(&mut pace, 11_000, 11_000),
            5,
            "a quiet time earns one burst, not more"
        );
        assert_eq!(starts(&mut pace, 60_000, 60_000), 5);
    }

    #[test]
    fn an_absurd_rate_is_no_limit_and_no_panic() {
        let mut pace = Pace::new(rate(u32::MAX, 1), Some(u32::MAX));
        for _ in 0..1000 {
            pace.start(ms(0));
        }
        assert_eq!(pace.not_before(ms(0)), None);
        let mut slow = Pace::new(rate(0, 3600), Some(0));
        slow.start(ms(0));
        assert_eq!(slow.not_before(ms(0)), Some(ms(3_600_000 - 5)));
    }
}
