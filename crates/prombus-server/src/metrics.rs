//! What is counted, and the Prometheus text that reports it.

use axum::http::StatusCode;
use parking_lot::RwLock;
use prombus_core::histogram::BOUNDS_US;
use prombus_core::{Histogram, Receipt, StoreStatus, TopicName};
use prombus_engine::groups::{Group, GroupStatus, GroupTimes};
use prombus_engine::projections::ProjectionFigures;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

/// The route label of requests that match no route.
const NO_ROUTE: &str = "none";
/// Status classes: 1xx to 5xx.
const CLASSES: usize = 5;

/// The gateway's counters.
pub(crate) struct Metrics {
    requests: BTreeMap<&'static str, [AtomicU64; CLASSES]>,
    published: RwLock<HashMap<TopicName, AtomicU64>>,
    filter_errors: AtomicU64,
}

impl Metrics {
    /// Counters for these routes.
    pub fn new(routes: impl Iterator<Item = &'static str>) -> Self {
        Self {
            requests: routes.chain([NO_ROUTE]).map(|route| (route, Default::default())).collect(),
            published: RwLock::default(),
            filter_errors: AtomicU64::new(0),
        }
    }

    pub fn count_request(&self, route: Option<&str>, status: StatusCode) {
        let class = usize::from(status.as_u16() / 100).clamp(1, CLASSES) - 1;
        if let Some(classes) = self.requests.get(route.unwrap_or(NO_ROUTE)) {
            classes[class].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts what a publish appended, without duplicates.
    pub fn count_published(&self, topic: &TopicName, receipt: &Receipt) {
        self.add_published(topic, receipt.events.iter().filter(|event| !event.duplicate).count() as u64);
    }

    /// Counts events that were appended.
    pub fn add_published(&self, topic: &TopicName, new: u64) {
        if let Some(count) = self.published.read().get(topic) {
            count.fetch_add(new, Ordering::Relaxed);
            return;
        }
        self.published.write().entry(topic.clone()).or_default().fetch_add(new, Ordering::Relaxed);
    }

    /// Removes the counter of a deleted topic, so that there are never more counters than topics.
    pub fn forget_topic(&self, topic: &TopicName) {
        self.published.write().remove(topic);
    }

    pub fn count_filter_errors(&self, new: u64) {
        self.filter_errors.fetch_add(new, Ordering::Relaxed);
    }

    /// Everything as Prometheus text; `store` is how the store is doing, if there is one.
    pub fn text(&self, version: &str, store: Option<&StoreStatus>) -> String {
        let mut text = Text(String::new());
        text.family("build_info", "gauge", "Version of the running hub.");
        text.sample("build_info", &[("version", version)], 1);
        text.family(
            "events_published_total",
            "counter",
            "Events published by clients, excluding duplicates.",
        );
        let published = self.published.read();
        let mut topics: Vec<_> = published.iter().collect();
        topics.sort_by_key(|(topic, _)| topic.as_str());
        for (topic, count) in topics {
            let labels = [("topic", topic.as_str())];
            text.sample("events_published_total", &labels, count.load(Ordering::Relaxed));
        }
        text.family("filter_errors_total", "counter", "Events on which a filter failed; they do not match.");
        text.sample("filter_errors_total", &[], self.filter_errors.load(Ordering::Relaxed));
        text.family("http_requests_total", "counter", "Requests answered, by route and status class.");
        for (route, classes) in &self.requests {
            for (class, count) in classes.iter().enumerate() {
                let (class, count) = (format!("{}xx", class + 1), count.load(Ordering::Relaxed));
                if count > 0 {
                    text.sample("http_requests_total", &[("route", route), ("status", &class)], count);
                }
            }
        }
        if let Some(store) = store {
            text.store(store);
        }
        text.0
    }
}

/// The figures of one group.
pub(crate) struct GroupSample {
    topic: String,
    group: String,
    /// In the order of [`GROUP_FAMILIES`].
    values: [u64; GROUP_FAMILIES.len()],
}

/// Name, type and help of the metrics of each group.
const GROUP_FAMILIES: [(&str, &str, &str); 10] = [
    ("events_delivered_total", "counter", "Deliveries to consumers."),
    ("events_acked_total", "counter", "Events that consumers acked."),
    ("events_nacked_total", "counter", "Events that consumers nacked."),
    (
        "events_redelivered_total",
        "counter",
        "Deliveries of events that were delivered before without being settled, or were replayed from the dead letters.",
    ),
    (DEAD_LETTERED, "counter", "Events that became dead letters."),
    (
        "events_lost_to_retention_total",
        "counter",
        "Events that retention removed before the group got to them.",
    ),
    (
        "group_filter_errors_total",
        "counter",
        "Events on which the filter of the group failed; they do not match.",
    ),
    ("events_inflight", "gauge", "Open leases."),
    ("group_lag_events", "gauge", "Unsettled events."),
    (
        "group_lag_ms",
        "gauge",
        "Age of the oldest unsettled event, in the 64 partitions with the highest lag, in milliseconds.",
    ),
];

impl GroupSample {
    pub fn new(group: &Group, status: &GroupStatus, lag_ms: u64) -> Self {
        let counters = group.counters();
        Self {
            topic: group.topic().name.to_string(),
            group: group.name().to_string(),
            values: [
                counters.delivered.get(),
                counters.acked.get(),
                counters.nacked.get(),
                counters.redelivered.get(),
                counters.dead_lettered.get(),
                status.partitions.iter().map(|partition| partition.lost).sum(),
                counters.filter_errors.get(),
                status.partitions.iter().map(|partition| partition.in_flight).sum(),
                status.partitions.iter().map(|partition| partition.lag).sum(),
                lag_ms,
            ],
        }
    }
}

/// What a hub has among others.
pub(crate) fn cluster_text(claimed: usize, hubs: usize) -> String {
    format!(
        "# HELP claimed_topics Topics that are at home on this hub.\n\
         # TYPE claimed_topics gauge\n\
         claimed_topics {claimed}\n\
         # HELP cluster_hubs Hubs that take part, this one included.\n\
         # TYPE cluster_hubs gauge\n\
         cluster_hubs {hubs}\n"
    )
}

/// The metrics of connections.
pub(crate) fn connections_text(open: u64, buffered: usize) -> String {
    let mut text = Text(String::new());
    let help = "Memory held by the requests and answers of all connections, in bytes.";
    text.family("connection_buffer_bytes", "gauge", help);
    text.sample("connection_buffer_bytes", &[], buffered);
    text.family("ws_connections", "gauge", "Open WebSocket connections.");
    text.sample("ws_connections", &[], open);
    text.0
}

/// The metrics of schemas. A topic that has some is there before anything violates them.
pub(crate) fn schemas_text(violations: &BTreeMap<TopicName, u64>) -> String {
    let mut text = Text(String::new());
    let help = "Events that violated the schema of their topic, both refused and accepted.";
    text.family("schema_violations_total", "counter", help);
    for (topic, count) in violations {
        text.sample("schema_violations_total", &[("topic", topic.as_str())], count);
    }
    text.0
}

/// What was given up of a partition.
pub(crate) struct KeptSample {
    pub topic: TopicName,
    pub partition: u32,
    pub first: u64,
    pub horizon_ts: u64,
}

/// What snapshots of a topic do not have yet.
pub(crate) struct SnapshotSample {
    pub topic: TopicName,
    pub lag: u64,
}

/// The metrics of topics with snapshots.
pub(crate) fn snapshots_text(samples: &[SnapshotSample], durations: &Histogram) -> String {
    let mut text = Text(String::new());
    let help = "Duration of passes that publish snapshots of a topic.";
    text.family("snapshot_duration_ms", "histogram", help);
    text.histogram("snapshot_duration_ms", durations);
    text.family(
        "snapshot_lag_events",
        "gauge",
        "Events recorded since the last snapshot pass over their topic.",
    );
    for sample in samples {
        text.sample("snapshot_lag_events", &[("topic", sample.topic.as_str())], sample.lag);
    }
    text.0
}

/// The metrics of topics that let events go.
pub(crate) fn cleaning_text(kept: &[KeptSample], durations: &Histogram) -> String {
    let mut text = Text(String::new());
    text.family("cleaning_duration_ms", "histogram", "Duration of cleaning passes over a topic.");
    text.histogram("cleaning_duration_ms", durations);
    let mut gauge = |name: &str, help: &str, value: fn(&KeptSample) -> u64| {
        text.family(name, "gauge", help);
        for sample in kept {
            let partition = sample.partition.to_string();
            let labels = [("topic", sample.topic.as_str()), ("partition", &partition)];
            text.sample(name, &labels, value(sample));
        }
    };
    let help = "First retained offset, for topics with retention or compaction.";
    gauge("topic_first_offset", help, |sample| sample.first);
    let help = "Time from which the state of every key is known, in milliseconds since 1970.";
    gauge("topic_horizon_ts", help, |sample| sample.horizon_ts);
    text.0
}

const DEAD_LETTERED: &str = "events_dead_lettered_total";

/// The metrics of groups and projections.
pub(crate) fn readers_text(
    groups: &[GroupSample],
    times: &GroupTimes,
    projections: &[ProjectionFigures],
) -> String {
    let mut text = Text(String::new());
    for (at, (name, kind, help)) in GROUP_FAMILIES.into_iter().enumerate() {
        text.family(name, kind, help);
        for sample in groups {
            let labels = [("topic", sample.topic.as_str()), ("group", sample.group.as_str())];
            text.sample(name, &labels, sample.values[at]);
        }
        if name == DEAD_LETTERED {
            for status in projections {
                let labels = [("topic", status.topic.as_str()), ("projection", &status.name)];
                text.sample(name, &labels, status.errors);
            }
        }
    }
    text.family("projection_lag_events", "gauge", "Events that a projection has not processed yet.");
    for status in projections {
        text.sample("projection_lag_events", &[("projection", &status.name)], status.lag);
    }
    for (name, help, histogram) in [
        ("subscribe_poll_duration_ms", "Duration of pulls, including waiting.", &times.pulls),
        ("delivery_handler_duration_ms", "Time from a delivery to its ack or nack.", &times.handlers),
        ("delivery_latency_ms", "Time from recording an event to its first delivery.", &times.latencies),
    ] {
        text.family(name, "histogram", help);
        text.histogram(name, histogram);
    }
    text.0
}

/// Name, source and help of the metrics of a store on MongoDB; on others, they stay at 0.
const TRANSACTION_FAMILIES: [(&str, &str, &str); 5] = [
    ("store_transactions_total", "transactions", "MongoDB transactions that were committed."),
    (
        "store_transaction_conflicts_total",
        "transaction_conflicts",
        "Attempts of MongoDB transactions that met another transaction.",
    ),
    (
        "store_transaction_retries_total",
        "transaction_retries",
        "Attempts of MongoDB transactions that failed, for whatever reason, conflicts included.",
    ),
    (
        "store_transactions_unknown_total",
        "transactions_unknown",
        "MongoDB transactions of which it was not known in time whether they were committed.",
    ),
    (
        "store_change_streams_reopened_total",
        "change_streams_reopened",
        "How often the hub has connected anew to hear of other hubs' commits.",
    ),
];

/// Prometheus text that is being written. Writing to a string cannot fail.
struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        self.0.push_str(name);
        for (index, (label, text)) in labels.iter().enumerate() {
            let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.0, "{}{label}=\"{escaped}\"", if index == 0 { '{' } else { ',' });
        }
        let _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    fn store(&mut self, store: &StoreStatus) {
        self.family("store_disk_bytes", "gauge", "Disk space used by the store.");
        self.sample("store_disk_bytes", &[], store.extra("disk_bytes"));
        self.family("store_disk_free_bytes", "gauge", "Free disk space.");
        self.sample("store_disk_free_bytes", &[], store.extra("disk_free_bytes"));
        let help = "Disk space still occupied by removed events.";
        self.family("store_dead_bytes", "gauge", help);
        self.sample("store_dead_bytes", &[], store.extra("dead_bytes"));
        let help = "Disk space reclaimed since the hub was started.";
        self.family("store_reclaimed_bytes_total", "counter", help);
        self.sample("store_reclaimed_bytes_total", &[], store.extra("reclaimed_bytes"));
        for (name, extra, help) in TRANSACTION_FAMILIES {
            self.family(name, "counter", help);
            self.sample(name, &[], store.extra(extra));
        }
        self.family("store_flush_duration_ms", "histogram", "Duration of flushes, in milliseconds.");
        self.histogram("store_flush_duration_ms", &store.flushes);
    }

    fn histogram(&mut self, name: &str, histogram: &Histogram) {
        let in_ms = |us: u64| us as f64 / 1000.0;
        let bucket = format!("{name}_bucket");
        let (mut total, counts) = (0, histogram.counts());
        for (count, bound) in counts.iter().zip(BOUNDS_US) {
            total += count;
            self.sample(&bucket, &[("le", &in_ms(bound).to_string())], total);
        }
        total += counts[BOUNDS_US.len()];
        self.sample(&bucket, &[("le", "+Inf")], total);
        self.sample(&format!("{name}_sum"), &[], in_ms(histogram.sum_us()));
        self.sample(&format!("{name}_count"), &[], total);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn the_text_has_every_family_once_and_cumulated_buckets() {
        let metrics = Metrics::new(["/a"].into_iter());
        metrics.count_request(Some("/a"), StatusCode::OK);
        metrics.count_request(Some("/a"), StatusCode::CREATED);
        metrics.count_request(None, StatusCode::NOT_FOUND);
        metrics.count_filter_errors(3);
        let flushes = Arc::new(Histogram::default());
        for us in [10, 60, 70, 400, 9_000_000] {
            flushes.observe(Duration::from_micros(us));
        }
        let extra =
            vec![("disk_bytes", 7), ("dead_bytes", 3), ("reclaimed_bytes", 4), ("transaction_conflicts", 5)];
        let status = StoreStatus { kind: "disk", failed: None, is_full: false, extra, flushes };
        let text = metrics.text("1\"2", Some(&status));
        for line in [
            "build_info{version=\"1\\\"2\"} 1",
            "http_requests_total{route=\"/a\",status=\"2xx\"} 2",
            "http_requests_total{route=\"none\",status=\"4xx\"} 1",
            "filter_errors_total 3",
            "store_disk_bytes 7",
            "store_disk_free_bytes 0",
            "store_dead_bytes 3",
            "store_reclaimed_bytes_total 4",
            "store_transactions_total 0",
            "store_transaction_conflicts_total 5",
            "# TYPE store_flush_duration_ms histogram",
            "store_flush_duration_ms_bucket{le=\"0.05\"} 1",
            "store_flush_duration_ms_bucket{le=\"0.1\"} 3",
            "store_flush_duration_ms_bucket{le=\"0.5\"} 4",
            "store_flush_duration_ms_bucket{le=\"5000\"} 4",
            "store_flush_duration_ms_bucket{le=\"+Inf\"} 5",
            "store_flush_duration_ms_sum 9000.54",
            "store_flush_duration_ms_count 5",
        ] {
            assert_eq!(text.lines().filter(|l| *l == line).count(), 1, "{line}\n{text}");
        }
    }
}
