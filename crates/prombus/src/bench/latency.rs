//! Latencies in buckets finer than 2 %, so that memory does not grow with the number of requests.

use std::cell::Cell;
use std::time::Duration;

/// Buckets for each doubling.
const FINE: u32 = 64;
/// Enough doublings for hours, in microseconds.
const DOUBLINGS: u32 = 34;

/// Counted latencies.
#[derive(Debug)]
pub struct Latencies {
    counts: Box<[Cell<u64>]>,
    total: Cell<u64>,
    longest: Cell<u64>,
}

impl Default for Latencies {
    fn default() -> Self {
        let counts = vec![Cell::new(0); (FINE * DOUBLINGS) as usize].into();
        Self { counts, total: Cell::new(0), longest: Cell::new(0) }
    }
}

impl Latencies {
    /// Counts one.
    pub fn record(&self, latency: Duration) {
        let us = latency.as_micros() as u64;
        let bucket = &self.counts[bucket_of(us).min(self.counts.len() - 1)];
        bucket.set(bucket.get() + 1);
        self.total.set(self.total.get() + 1);
        self.longest.set(self.longest.get().max(us));
    }

    /// How many there are.
    pub fn total(&self) -> u64 {
        self.total.get()
    }

    /// The longest, in microseconds.
    pub fn longest_us(&self) -> u64 {
        self.longest.get()
    }

    /// The latency that `share` of all stay within, in microseconds; 0 if there are none.
    pub fn quantile_us(&self, share: f64) -> u64 {
        let wanted = ((self.total.get() as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count.get();
            if seen >= wanted {
                return upper_end_of(bucket).min(self.longest.get());
            }
        }
        self.longest.get()
    }
}

/// Small values have a bucket each; above, each doubling is cut into [`FINE`] equal buckets.
fn bucket_of(us: u64) -> usize {
    if us < u64::from(FINE) {
        return us as usize;
    }
    let doubling = us.ilog2() - FINE.ilog2();
    let within = (us >> doubling) - u64::from(FINE);
    ((doubling + 1) * FINE) as usize + within as usize
}

fn upper_end_of(bucket: usize) -> u64 {
    let (doubling, within) = (bucket as u32 / FINE, bucket as u64 % u64::from(FINE));
    match doubling {
        0 => within,
        doubling => ((u64::from(FINE) + within + 1) << (doubling - 1)) - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_cover_everything_in_order() {
        let mut last = 0;
        for us in 0..1_000_000 {
            let bucket = bucket_of(us);
            assert!(bucket == last || bucket == last + 1, "{us}");
            assert!(
                upper_end_of(bucket) >= us && upper_end_of(bucket) as f64 <= us as f64 * 1.02 + 1.0,
                "{us}"
            );
            last = bucket;
        }
    }

    #[test]
    fn quantiles_are_near_the_true_ones() {
        let latencies = Latencies::default();
        assert_eq!(latencies.quantile_us(0.5), 0);
        (1..=10_000).for_each(|us| latencies.record(Duration::from_micros(us)));
        for (share, exact) in [(0.5, 5_000.0), (0.99, 9_900.0), (1.0, 10_000.0)] {
            let measured = latencies.quantile_us(share) as f64;
            assert!(measured >= exact && measured <= exact * 1.02, "{share}: {measured}");
        }
        assert_eq!((latencies.total(), latencies.longest_us()), (10_000, 10_000));
        latencies.record(Duration::from_secs(1 << 40));
    }
}
