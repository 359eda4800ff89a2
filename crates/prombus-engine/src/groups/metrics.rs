//! What is counted of groups.

use prombus_core::Histogram;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A count that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// How much it is.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What is counted of one group, since the hub started.
#[derive(Debug, Default)]
pub struct GroupCounters {
    /// Deliveries.
    pub delivered: Counter,
    /// Events that a consumer acked.
    pub acked: Counter,
    /// Events that a consumer nacked.
    pub nacked: Counter,
    /// Deliveries of events that had been delivered and not settled, or replayed from the dead letters.
    pub redelivered: Counter,
    /// Events that became dead letters.
    pub dead_lettered: Counter,
    /// Events that the filter failed on, and so did not match.
    pub filter_errors: Counter,
}

/// What is measured of all groups together.
#[derive(Debug, Default)]
pub struct GroupTimes {
    /// How long pulls took, waiting included.
    pub pulls: Histogram,
    /// From a delivery to its ack or nack.
    pub handlers: Histogram,
    /// From when the hub recorded an event to its first delivery.
    pub latencies: Histogram,
}

/// Where a group counts.
#[derive(Debug, Clone, Default)]
pub struct GroupMetrics {
    /// Its own counts.
    pub counters: Arc<GroupCounters>,
    /// The times of all groups.
    pub times: Arc<GroupTimes>,
}

/// Equal durations that come one after another, counted as one observation of many.
#[derive(Debug, Default)]
pub struct Tally {
    duration: Duration,
    count: u64,
}

impl Tally {
    /// Adds a duration.
    pub fn add(&mut self, duration: Duration, to: &Histogram) {
        if self.duration != duration {
            self.flush(to);
            self.duration = duration;
        }
        self.count += 1;
    }

    /// Puts what is left into the histogram.
    pub fn flush(&mut self, to: &Histogram) {
        if self.count > 0 {
            to.observe_many(self.duration, std::mem::take(&mut self.count));
        }
    }
}
