//! [`Pace`]: how often something may start (`rate`, `burst`), as arithmetic on one point in time. Lanes hold attempts to
//! it (P7), sources their inbound `rate`.
//!
//! This is the generic cell rate algorithm (ITU-T I.371): the only state is when the next attempt is due if they were
//! spread evenly. A start is allowed up to `burst - 1` intervals before that. It needs no timer and no refill, and
//! cannot drift.
//!
//! **Shares.** Several holders may divide one pace: each has `units` of `of` of its rate and of its burst, and units move
//! between them while they run. What the pace as a whole allows must hold for all together. Seen as a bucket, a holder has
//! `allowance + interval - ahead` of credit, which is how far it may run ahead; credits of all holders together are never
//! more than the whole's, and neither is the speed at which they grow. So a change keeps the credit, in starts, where it
//! fits into the new bucket, cuts it where it does not, and never adds any: new units come with an empty bucket, and units
//! given up take along what the bucket cannot hold any more.
//!
//! **Another pace.** The same holds when `rate` and `burst` themselves change while it is in use: what was credit stays, as so
//! many starts, where it fits into the new bucket, and a limit where there was none begins without any. So in no span is more
//! started than the rates that held in it allow, with one burst.

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
    /// The whole, of which this may be a share.
    rate: Rate,
    burst: u32,
    /// Even distance between two starts; `None` when the share is nothing.
    bucket: Option<Bucket>,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
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
            let burst = burst.unwrap_or(1).max(1);
            let interval = rate.per / rate.count.max(1);
            Limited {
                rate,
                burst,
                bucket: Some(Bucket::full(interval, burst)),
            }
        }))
    }

    /// From now on `units` of `of` of another whole; see the module.
    pub fn retune(&mut self, rate: Option<Rate>, burst: Option<u32>, (units, of): (u32, u32), now: Monotonic) {
        let bucket = self.0.take().and_then(|limited| limited.bucket);
        self.0 = rate.map(|rate| Limited {
            rate,
            burst: burst.unwrap_or(1).max(1),
            bucket,
        });
        self.set_share(units, of, now);
    }

    /// From now on `units` of `of` of the whole; see the module.
    pub fn set_share(&mut self, units: u32, of: u32, now: Monotonic) {
        if let Some(limited) = &mut self.0 {
            let (units, of) = (units.min(of), of.max(1));
            let burst = share_of(u64::from(limited.burst), units, of);
            let burst = u32::try_from(burst).unwrap_or(u32::MAX);
            limited.bucket = (burst > 0).then(|| {
                // Rounded up: all shares together are never faster than the whole.
                let nanos = limited.rate.per.as_nanos().saturating_mul(u128::from(of));
                let starts = u128::from(limited.rate.count.max(1)) * u128::from(units);
                let interval = from_nanos(nanos.div_ceil(starts));
                let credit = limited.bucket.map_or(0, |bucket| bucket.credit_after(interval, now));
                Bucket::with_credit(interval, burst, from_nanos(credit), now)
            });
        }
    }

    /// Whether the share is too small for any start.
    pub fn is_closed(&self) -> bool {
        self.0.as_ref().is_some_and(|limited| limited.bucket.is_none())
    }

    /// When the next attempt may start, if not at `now`. A closed pace has no such time: ask [`Pace::is_closed`].
    pub fn not_before(&self, now: Monotonic) -> Option<Monotonic> {
        let bucket = self.0.as_ref()?.bucket?;
        let ahead = bucket.due.since(now);
        (ahead > bucket.allowance).then(|| now.after(ahead.saturating_sub(bucket.allowance)))
    }

    /// An attempt starts.
    pub fn start(&mut self, now: Monotonic) {
        if let Some(bucket) = self.0.as_mut().and_then(|limited| limited.bucket.as_mut()) {
            bucket.due = bucket.due.max(now).after(bucket.interval);
        }
    }

    /// How many may start from now on within `time`, if no more than that: what lies ready need not be more.
    pub fn starts_within(&self, time: Duration) -> Option<u64> {
        let limited = self.0.as_ref()?;
        let Some(bucket) = limited.bucket else {
            return Some(0);
        };
        let span = bucket.allowance.saturating_add(time).as_nanos();
        let starts = span / bucket.interval.as_nanos().max(1) + 1;
        Some(u64::try_from(starts).unwrap_or(u64::MAX))
    }
}

impl Bucket {
    fn full(interval: Duration, burst: u32) -> Self {
        Self {
            interval,
            allowance: interval
                .saturating_mul(burst.saturating_sub(1))
                .saturating_add(TIMER_SLACK),
            due: Monotonic::default(),
        }
    }

    fn with_credit(interval: Duration, burst: u32, credit: Duration, now: Monotonic) -> Self {
        let full = Self::full(interval, burst);
        Self {
            due: now.after(full.most_ahead().saturating_sub(credit)),
            ..full
        }
    }

    /// How far ahead the schedule is when there is no credit left.
    fn most_ahead(self) -> Duration {
        self.allowance.saturating_add(self.interval)
    }

    /// The credit's nanoseconds if as many starts were `interval` apart; rounded down.
    fn credit_after(self, interval: Duration, now: Monotonic) -> u128 {
        let credit = self.most_ahead().saturating_sub(self.due.since(now));
        credit.as_nanos().saturating_mul(interval.as_nanos()) / self.interval.as_nanos().max(1)
    }
}

/// `units` of `of` of a whole number, rounded down.
pub fn share_of(whole: u64, units: u32, of: u32) -> u64 {
    let share = u128::from(whole) * u128::from(units.min(of)) / u128::from(of.max(1));
    u64::try_from(share).unwrap_or(whole)
}

fn from_nanos(nanos: u128) -> Duration {
    u64::try_from(nanos).map_or(Duration::MAX, Duration::from_nanos)
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
    fn a_share_is_that_part_of_rate_and_burst() {
        let mut pace = Pace::new(rate(10, 1), Some(5));
        pace.set_share(2, 5, ms(0));
        assert_eq!(starts(&mut pace, 10_000, 10_000), 2);
        assert_eq!(starts(&mut pace, 10_001, 20_001), 40);
        pace.set_share(0, 5, ms(20_001));
        assert!(pace.is_closed());
        assert_eq!(pace.starts_within(Duration::MAX), Some(0));
    }

    #[test]
    fn new_units_bring_no_credit_and_units_given_up_take_theirs_along() {
        let mut newcomer = Pace::new(rate(10, 1), Some(5));
        newcomer.set_share(0, 5, ms(0));
        newcomer.set_share(5, 5, ms(10_000));
        assert_eq!(starts(&mut newcomer, 10_000, 10_000), 0);
        assert_eq!(starts(&mut newcomer, 10_001, 10_100), 1);

        let mut pace = Pace::new(rate(10, 1), Some(5));
        pace.set_share(2, 5, ms(10_000));
        pace.set_share(5, 5, ms(10_000));
        assert_eq!(starts(&mut pace, 10_000, 10_000), 2, "three went with the units");
    }

    #[test]
    fn a_share_that_is_renewed_changes_nothing() {
        let mut pace = Pace::new(rate(10, 1), Some(5));
        pace.set_share(3, 5, ms(10_000));
        let mut renewed = pace.clone();
        let mut count = 0;
        for now in 10_000..12_000 {
            renewed.set_share(3, 5, ms(now));
            count += starts(&mut renewed, now, now);
        }
        // Each renewal rounds a nanosecond down, never up.
        let expected = starts(&mut pace, 10_000, 11_999);
        assert!(count == expected || count + 1 == expected, "{count} of {expected}");
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
