//! What the hub answers, as a client holds it. Fields that a client does not know are passed over.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Where a published event is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    /// Its id.
    pub id: String,
    /// Its topic. The WebSocket does not repeat it, because whoever published knows it.
    #[serde(default)]
    pub topic: Arc<str>,
    /// Its partition.
    pub partition: u32,
    /// Its place in the partition.
    pub offset: u64,
    /// Its event time in epoch milliseconds.
    pub ts: u64,
    /// What was waited for: `sync` or `interval`. The WebSocket says it once for all events of a frame.
    #[serde(default)]
    pub durability: Cow<'static, str>,
    /// Whether it was there already, and this is the first one's position.
    pub duplicate: bool,
}

/// A page of the dead letters of a topic.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DeadLettersPage {
    /// The topic that the letters are in.
    pub topic: String,
    /// How many there are in this page.
    pub count: usize,
    /// The letters.
    pub events: Vec<EventRecord>,
    /// What asks for the next page; `None` at the end.
    pub next: Option<String>,
    /// Those letters of this page that were replayed, by id. An older hub does not say.
    #[serde(default)]
    pub replayed: BTreeMap<String, bool>,
}

/// The answer to an array.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedBatch {
    /// How many events there were.
    pub count: usize,
    /// One for each, in order.
    pub events: Vec<Published>,
}

/// The answer to NDJSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Imported {
    /// How many events are in.
    pub count: u64,
    /// How many of them were in before; left out where that is none.
    #[serde(default, skip_serializing_if = "is_none")]
    pub duplicates: u64,
}

/// Whether a number is left out.
fn is_none(number: &u64) -> bool {
    *number == 0
}

/// An event as it is read; its JSON parts are the texts that the producer sent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EventRecord {
    /// Its id.
    pub id: String,
    /// Event time in epoch milliseconds.
    pub ts: u64,
    /// When the hub took it, where that differs from `ts`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded_ts: Option<u64>,
    /// Its topic.
    pub topic: String,
    /// Its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Its partition.
    pub partition: u32,
    /// Its place in the partition.
    pub offset: u64,
    /// A string.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sid: Option<String>,
    /// Strings by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers: Option<HashMap<String, String>>,
    /// Any JSON.
    pub payload: Box<RawValue>,
    /// What it was caused by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caused_by: Option<Vec<String>>,
    /// Its tags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<String>>,
}

/// A page of `GET /v1/topics/{topic}/events`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EventsPage {
    /// The topic.
    pub topic: String,
    /// How many events the page has.
    pub count: usize,
    /// The events.
    pub events: Vec<EventRecord>,
    /// What goes back as `cursor=`; `None` at the end.
    pub next: Option<String>,
}

/// The latest events of keys; a key without events is left out.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KeyEvents {
    /// The event of each key.
    pub events: HashMap<String, EventRecord>,
}

/// The state of a key at a time.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StateAnswer {
    /// The key.
    pub key: String,
    /// Its state: the text of a payload, or what payloads came to.
    pub state: Box<RawValue>,
    /// The time of the last event that counts.
    pub ts: u64,
    /// Its offset in the partition of the key.
    pub offset: u64,
    /// How many events were applied.
    pub applied: u64,
    /// The snapshot that they were applied to, if any.
    pub base: Option<Box<RawValue>>,
}

/// The payload of an event of a snapshot topic: the latest event of a key.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SnapshotRecord {
    /// The key.
    pub key: String,
    /// The payload of the event; `null` where the key has ended.
    pub payload: Box<RawValue>,
    /// Its time.
    pub ts: u64,
    /// Its partition.
    pub partition: u32,
    /// Its offset.
    pub offset: u64,
    /// The greatest time of all events of the key up to that one.
    pub max_ts: u64,
}

/// The setting `snapshot` of a topic, and how far its snapshots have come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotAnswer {
    /// The topic that they go to.
    pub topic: String,
    /// The time between two passes.
    pub every_ms: u64,
    /// How many passes have ended.
    pub pass: u64,
    /// By partition: every key whose last event lies below has its record.
    pub through: Vec<u64>,
    /// When the first of these passes began; it changes when the records are begun anew, and is 0 until then.
    pub since: u64,
    /// `through` as a `Last-Event-ID`.
    pub resume: String,
}

/// What a partition holds: `first <= offset < next`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionBounds {
    /// The partition.
    pub partition: u32,
    /// The first offset that is kept.
    pub first: u64,
    /// The first offset that is not written yet.
    pub next: u64,
    /// The time from which on the events that are kept say what the state of every key was.
    #[serde(default)]
    pub horizon_ts: u64,
}

/// The body of `POST /v1/topics/{topic}/clean`: there is nothing to choose.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CleanRequest {}

/// What a cleaning pass did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CleanAnswer {
    /// How many events went.
    pub reclaimed_events: u64,
    /// What they counted for.
    pub reclaimed_bytes: u64,
    /// What each partition holds now.
    pub partitions: Vec<PartitionBounds>,
}

/// The body of `POST /v1/topics/{topic}/trim`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrimRequest {
    /// The partition.
    pub partition: u32,
    /// The first offset to keep.
    pub before: u64,
}

/// What forgetting a key did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForgetAnswer {
    /// How many events of the topic went.
    pub events: u64,
}

/// A topic as it is now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TopicAnswer {
    /// Its name.
    pub topic: String,
    /// What each partition holds.
    pub bounds: Vec<PartitionBounds>,
    /// How many offsets the partitions hold together.
    pub events: u64,
    /// Its settings by name.
    #[serde(flatten)]
    pub config: Map<String, Value>,
}

impl TopicAnswer {
    /// Its setting `snapshot`, and how far its snapshots have come; `None` where it has none.
    pub fn snapshot(&self) -> Result<Option<SnapshotAnswer>, serde_json::Error> {
        self.config.get("snapshot").map_or(Ok(None), Option::deserialize)
    }
}

/// All topics, by name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Topics {
    /// The topics.
    pub topics: Vec<TopicAnswer>,
}
