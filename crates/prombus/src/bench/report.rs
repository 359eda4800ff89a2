//! The results of a run.

use super::latency::Latencies;
use super::{BenchArgs, Mode};
use crate::failure::Failure;
use crate::output::{self, Record};
use serde::Serialize;
use std::rc::Rc;
use std::time::Duration;

/// What was counted.
pub struct Measured {
    pub events: u64,
    pub bytes: u64,
    pub elapsed: Duration,
    pub latencies: Rc<Latencies>,
}

/// The figures, and what was measured.
#[derive(Debug, Serialize)]
pub struct Report {
    mode: Mode,
    events: u64,
    batch: u32,
    connections: u32,
    size: u32,
    topics: u32,
    own_ids: bool,
    keys: u64,
    requests: u64,
    seconds: f64,
    events_per_s: f64,
    /// Bodies only: what was published, or what was read.
    mb_per_s: f64,
    p50_us: u64,
    p99_us: u64,
    max_us: u64,
}

impl Report {
    pub fn new(args: &BenchArgs, measured: Measured) -> Self {
        let Measured { events, bytes, elapsed, latencies } = measured;
        let seconds = elapsed.as_secs_f64().max(f64::EPSILON);
        Self {
            mode: args.mode,
            events,
            batch: args.batch,
            connections: args.connections,
            size: args.size,
            topics: args.topics,
            own_ids: args.own_ids,
            keys: args.keys,
            requests: latencies.total(),
            seconds: rounded(seconds),
            events_per_s: rounded(events as f64 / seconds),
            mb_per_s: rounded(bytes as f64 / 1e6 / seconds),
            p50_us: latencies.quantile_us(0.5),
            p99_us: latencies.quantile_us(0.99),
            max_us: latencies.longest_us(),
        }
    }

    /// Writes it to stdout.
    pub fn write(&self, as_json: bool) -> Result<(), Failure> {
        let columns = ["events", "seconds", "events/s", "MB/s", "requests", "p50 us", "p99 us", "max us"];
        let cells = vec![
            self.events.to_string(),
            self.seconds.to_string(),
            format!("{:.0}", self.events_per_s),
            self.mb_per_s.to_string(),
            self.requests.to_string(),
            self.p50_us.to_string(),
            self.p99_us.to_string(),
            self.max_us.to_string(),
        ];
        let record = Record::of(self, cells)?;
        if as_json {
            return output::write_all(format!("{}\n", record.json).as_bytes());
        }
        output::write_records(&columns, &[record])
    }
}

/// Three decimals are more than enough.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
