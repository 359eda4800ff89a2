//! A histogram that costs two atomic additions an observation.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets, in microseconds; the last bucket has none.
pub const BOUNDS_US: [u64; 14] =
    [50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000, 5_000_000];

/// Durations, counted in the buckets of [`BOUNDS_US`].
#[derive(Debug, Default)]
pub struct Histogram {
    counts: [AtomicU64; BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
}

impl Histogram {
    /// Counts one duration.
    pub fn observe(&self, duration: Duration) {
        self.observe_many(duration, 1);
    }

    /// Counts the same duration several times.
    pub fn observe_many(&self, duration: Duration, count: u64) {
        let us = duration.as_micros() as u64;
        let bucket = BOUNDS_US.partition_point(|bound| *bound < us);
        self.counts[bucket].fetch_add(count, Ordering::Relaxed);
        self.sum_us.fetch_add(us.saturating_mul(count), Ordering::Relaxed);
    }

    /// The number of observations in each bucket, not cumulated.
    pub fn counts(&self) -> [u64; BOUNDS_US.len() + 1] {
        std::array::from_fn(|i| self.counts[i].load(Ordering::Relaxed))
    }

    /// The sum of all observations in microseconds.
    pub fn sum_us(&self) -> u64 {
        self.sum_us.load(Ordering::Relaxed)
    }
}
