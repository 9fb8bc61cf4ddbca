//! Counters, gauges and histograms: relaxed atomics, so that counting costs the data path no lock and no allocation.
//!
//! What is counted is named in [`telemetry::metrics`](crate::telemetry::metrics); these are only the values, for parts
//! that must not know it, such as the store.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// A count that only grows. Relaxed: a scrape needs each value, not an order among them.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `count`.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// The value now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A value that goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// Adds `count`, which may be negative.
    pub fn add(&self, count: i64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Sets the value.
    pub fn set(&self, value: i64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The value now.
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Upper bounds of the buckets, in microseconds: dense around a sync (0.1 to 10 ms), up to the longest default
/// timeout (30 s).
pub const BUCKETS_MICROS: [u64; 18] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    5_000_000, 10_000_000, 30_000_000,
];

/// How long something took, counted in fixed buckets: two relaxed additions an observation, no lock.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [Counter; BUCKETS_MICROS.len() + 1],
    sum_micros: Counter,
}

impl Histogram {
    /// Counts one duration.
    pub fn observe(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = BUCKETS_MICROS.partition_point(|bound| *bound < micros);
        if let Some(counter) = self.buckets.get(bucket) {
            counter.add(1);
        }
        self.sum_micros.add(micros);
    }

    /// Sum of all durations, in microseconds.
    pub fn sum_micros(&self) -> u64 {
        self.sum_micros.get()
    }

    /// How many were counted in each bucket, not cumulated; the last bucket has no upper bound.
    pub fn buckets(&self) -> [u64; BUCKETS_MICROS.len() + 1] {
        std::array::from_fn(|index| self.buckets.get(index).map_or(0, Counter::get))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_counted_in_the_first_bucket_that_holds_it() {
        let histogram = Histogram::default();
        histogram.observe(Duration::from_micros(50));
        histogram.observe(Duration::from_micros(51));
        histogram.observe(Duration::from_secs(31));
        let buckets = histogram.buckets();
        assert_eq!((buckets[0], buckets[1], buckets[BUCKETS_MICROS.len()]), (1, 1, 1));
        assert_eq!(histogram.sum_micros(), 31_000_101);
    }
}
