//! The bodies of answers as the types of the ports.

use bytes::Bytes;
use prombus_core::{Bounds, Event, Json, Kept, Offset, Partition, TopicConfig, TopicName};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use uuid::Uuid;

/// A topic as it is answered.
pub struct Shown {
    /// Its name.
    pub name: TopicName,
    /// Its settings.
    pub config: TopicConfig,
    bounds: Vec<ShownBounds>,
}

#[derive(Deserialize)]
struct ShownBounds {
    partition: Partition,
    first: Offset,
    next: Offset,
    horizon_ts: u64,
}

impl Shown {
    /// From the answer for one topic.
    pub fn parse(body: &[u8]) -> Result<Self, String> {
        Self::from_values(serde_json::from_slice(body).map_err(wrong)?)
    }

    /// From the answer for all topics.
    pub fn parse_list(body: &[u8]) -> Result<Vec<Self>, String> {
        #[derive(Deserialize)]
        struct List {
            topics: Vec<Map<String, Value>>,
        }
        let list: List = serde_json::from_slice(body).map_err(wrong)?;
        list.topics.into_iter().map(Self::from_values).collect()
    }

    fn from_values(mut values: Map<String, Value>) -> Result<Self, String> {
        let mut take = |name: &str| values.remove(name).unwrap_or_default();
        let name = serde_json::from_value(take("topic")).map_err(wrong)?;
        let bounds: Vec<ShownBounds> = serde_json::from_value(take("bounds")).map_err(wrong)?;
        // What else is said of a topic than its settings is none of ours.
        let settings = serde_json::to_value(TopicConfig::default()).map_err(wrong)?;
        values.retain(|name, _| settings.get(name).is_some());
        let config: TopicConfig = serde_json::from_value(Value::Object(values)).map_err(wrong)?;
        let numbered = bounds.iter().zip(0..).all(|(bounds, n)| bounds.partition == Partition(n));
        if !numbered || bounds.len() != config.partitions as usize {
            return Err(format!("topic {name} does not have bounds for each of its partitions"));
        }
        Ok(Self { name, config, bounds })
    }

    /// What is kept of a partition that the topic has, as far as that is shown.
    pub fn kept(&self, partition: Partition) -> Option<Kept> {
        let found = self.bounds.get(partition.0 as usize)?;
        let bounds = Bounds { first: found.first, next: found.next };
        Some(Kept { bounds, bytes: 0, horizon_ts: found.horizon_ts, has_holes: false })
    }
}

/// A revision that changes when the settings do.
pub fn revision(config: &TopicConfig) -> u64 {
    let mut hasher = DefaultHasher::new();
    format!("{config:?}").hash(&mut hasher);
    hasher.finish()
}

/// A page of events.
pub struct WirePage {
    /// The events.
    pub events: Vec<Event>,
    /// What goes back as `cursor=`.
    pub next: Option<String>,
}

impl WirePage {
    /// From an answer.
    pub fn parse(body: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Answered {
            count: usize,
            events: Vec<WireEvent>,
            next: Option<String>,
        }
        let Answered { count, events, next } = serde_json::from_slice(body).map_err(wrong)?;
        if count != events.len() {
            return Err(format!("a page says that it has {count} events, and has {}", events.len()));
        }
        Ok(Self { events: events.into_iter().map(WireEvent::into_event).collect::<Result<_, _>>()?, next })
    }
}

/// One event.
pub fn event(body: &[u8]) -> Result<Event, String> {
    serde_json::from_slice::<WireEvent>(body).map_err(wrong)?.into_event()
}

/// The event of one key, if the answer to several has it.
pub fn event_of_key(body: &[u8], key: &str) -> Result<Option<Event>, String> {
    #[derive(Deserialize)]
    struct Answered {
        events: HashMap<String, WireEvent>,
    }
    let mut answered: Answered = serde_json::from_slice(body).map_err(wrong)?;
    answered.events.remove(key).map(WireEvent::into_event).transpose()
}

/// Leaves about so many bytes of events, and at least one where there is one.
pub fn cut(events: &mut Vec<Event>, max_bytes: usize) {
    let mut bytes = 0;
    let fitting = events.iter().take_while(|event| {
        let fits = bytes == 0 || bytes < max_bytes;
        bytes += event.payload.len();
        fits
    });
    let count = fitting.count();
    events.truncate(count);
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireEvent {
    id: Uuid,
    ts: u64,
    recorded_ts: Option<u64>,
    topic: TopicName,
    key: Option<String>,
    partition: Partition,
    offset: Offset,
    sid: Option<Box<RawValue>>,
    headers: Option<Box<RawValue>>,
    payload: Box<RawValue>,
    caused_by: Option<Box<RawValue>>,
    tags: Option<Box<RawValue>>,
}

impl WireEvent {
    fn into_event(self) -> Result<Event, String> {
        let json =
            |raw: Box<RawValue>| Json::parse(Bytes::copy_from_slice(raw.get().as_bytes())).map_err(wrong);
        let optional = |raw: Option<Box<RawValue>>| raw.map(|raw| json(raw).map(Box::new)).transpose();
        if self.recorded_ts == Some(self.ts) {
            return Err("recorded_ts is said only where it differs from ts".into());
        }
        Ok(Event {
            id: self.id,
            ts: self.ts,
            recorded_ts: self.recorded_ts.unwrap_or(self.ts),
            topic: self.topic,
            key: self.key.map(Into::into),
            partition: self.partition,
            offset: self.offset,
            sid: optional(self.sid)?,
            headers: optional(self.headers)?,
            payload: json(self.payload)?,
            caused_by: optional(self.caused_by)?,
            tags: optional(self.tags)?,
        })
    }
}

fn wrong(error: impl ToString) -> String {
    error.to_string()
}
