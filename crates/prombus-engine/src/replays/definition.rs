//! What a bulk replay copies, and what it makes of it.

use super::ReplaysError;
use crate::filter::Filter;
use crate::projections::expression::{Compiler, Expression, Facts};
use crate::query::{From, Query, QueryPosition, Reader};
use bytes::Bytes;
use prombus_core::{
    Event, EventLog, EventLogExt, Json, NewEvent, Offset, Partition, TopicName, TopicState, json,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;

/// The header that says which replay a copy is of.
pub const REPLAY_HEADER: &str = "x-replay";
/// The longest name.
const MAX_NAME_BYTES: usize = 200;

/// What a user asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Definition {
    /// What is read.
    pub source: Source,
    /// Only events for which this is true, in CEL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// What their copies have in place of what they have, in CEL.
    #[serde(default)]
    pub map: Mapping,
    /// Where the copies go.
    pub target: TopicName,
    /// The most copies a second; as fast as it can where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<u64>,
}

/// A range of a topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The topic.
    pub topic: TopicName,
    /// Where it begins.
    pub from: From,
    /// Only this partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<Partition>,
    /// Only events whose `ts` is at or before this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_ts: Option<u64>,
}

/// Expressions over an event for parts of its copy. What has none is copied as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapping {
    /// The payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
    /// The key; `null` for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// The offsets of a partition that are still to be copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Left {
    pub next: u64,
    pub end: u64,
}

impl Left {
    pub fn count(self) -> u64 {
        self.end.saturating_sub(self.next)
    }
}

/// Refuses a name that no replay can have.
pub(super) fn check_name(name: &str) -> Result<(), ReplaysError> {
    let fits = !name.is_empty() && name.len() <= MAX_NAME_BYTES && !name.chars().any(char::is_control);
    match fits {
        true => Ok(()),
        false => Err(ReplaysError::Bad(format!(
            "the name of a replay has 1 to {MAX_NAME_BYTES} bytes and no control characters"
        ))),
    }
}

impl Definition {
    /// Refuses what makes no sense, whatever the hub has.
    pub(super) fn check(&self) -> Result<(), ReplaysError> {
        if self.target.is_internal() {
            return Err(ReplaysError::Bad(format!(
                "topic {} belongs to the hub itself; replay into one whose name does not start with dlq. or system.",
                self.target
            )));
        }
        match self.rate_per_s {
            Some(0) => Err(ReplaysError::Bad("rate_per_s must be at least 1".to_owned())),
            _ => Ok(()),
        }
    }

    /// The range as it is now, by partition. Its end stays where it is from then on, so that a replay into the topic that it
    /// reads comes to one.
    pub(super) async fn range(
        &self,
        log: &Arc<dyn EventLog>,
        topic: &TopicState,
    ) -> Result<Vec<Left>, ReplaysError> {
        let query = Query { partition: self.source.partition, ..Query::of_all(self.source.from) };
        let starts = Reader::new(log.clone(), topic.clone(), query, QueryPosition::START)?.starts().await?;
        let mut range = vec![Left { next: 0, end: 0 }; starts.len()];
        // Where a key was placed in a higher partition as the topic grew, its events in lower ones were committed before.
        for (at, start) in starts.iter().enumerate().rev() {
            let bounds = log.bounds(&topic.pinned(), Partition(at as u32)).await?;
            let next = (*start).max(bounds.first).min(bounds.next);
            range[at] = Left { next: next.0, end: bounds.next.0 };
        }
        Ok(range)
    }
}

/// A definition whose expressions are compiled.
pub(super) struct Recipe {
    pub filter: Option<Filter>,
    to_ts: Option<u64>,
    payload: Option<Expression>,
    key: Option<Expression>,
    /// Whether to map an event may take long.
    pub is_costly: bool,
    /// The name of the replay, as JSON.
    name: Json,
    /// The headers of a copy whose event has none.
    headers: Json,
}

impl Recipe {
    pub async fn compile(name: &str, definition: &Definition) -> Result<Self, ReplaysError> {
        let Definition { source, filter, map, .. } = definition;
        let filter = Filter::compile_any(filter.as_deref()).await?;
        let mut compiler = Compiler::default();
        let mut compiled = [None, None];
        for (at, (place, source)) in
            [("map.payload", &map.payload), ("map.key", &map.key)].into_iter().enumerate()
        {
            if let Some(source) = source {
                compiled[at] = Some(compiler.compile(place, source).await?);
            }
        }
        let [payload, key] = compiled;
        let mut text = Vec::with_capacity(name.len() + 2);
        json::write_string(&mut text, name);
        let name = Json::from_stored(Bytes::from(text));
        let mut headers = Vec::new();
        headers.extend_from_slice(format!("{{\"{REPLAY_HEADER}\":").as_bytes());
        headers.extend_from_slice(name.as_bytes());
        headers.push(b'}');
        Ok(Self {
            filter,
            to_ts: source.to_ts,
            payload,
            key,
            is_costly: compiler.is_costly(),
            name,
            headers: Json::from_stored(headers.into()),
        })
    }

    /// Whether the event is in the range by its time.
    pub fn is_in_time(&self, event: &Event) -> bool {
        self.to_ts.is_none_or(|to| event.ts <= to)
    }

    /// The copy of an event, or why there is none.
    pub fn copy(&self, event: &Event) -> Result<NewEvent, String> {
        let (mut payload, mut key) = (event.payload.clone(), event.key.clone());
        if self.payload.is_some() || self.key.is_some() {
            let facts = Facts::of(event)?;
            if let Some(expression) = &self.payload {
                let value = expression.value(&facts).map_err(|failure| failure.to_string())?;
                payload = Json::from_value(&value);
            }
            if let Some(expression) = &self.key {
                key = match expression.value(&facts).map_err(|failure| failure.to_string())? {
                    Value::String(key) => Some(key.into()),
                    Value::Null => None,
                    other => return Err(format!("map.key: the key must be a string or null, not {other}")),
                };
            }
        }
        let cause = format!("[\"{}\"]", event.id.hyphenated());
        Ok(NewEvent {
            id: None,
            ts: Some(event.ts),
            key,
            sid: event.sid.clone(),
            headers: Some(Box::new(self.headers_of(event)?)),
            payload,
            caused_by: Some(Box::new(Json::from_stored(cause.into()))),
            tags: event.tags.clone(),
        })
    }

    /// The headers of an event with that of the replay. A payload that is another one is not of the version that its event was.
    fn headers_of(&self, event: &Event) -> Result<Json, String> {
        let Some(headers) = &event.headers else { return Ok(self.headers.clone()) };
        let headers: Map<String, Value> =
            serde_json::from_slice(headers.as_bytes()).map_err(|error| error.to_string())?;
        let mut text = vec![b'{'];
        for (name, value) in &headers {
            let is_stale = self.payload.is_some() && name == crate::schemas::VERSION_HEADER;
            if is_stale || name == REPLAY_HEADER {
                continue;
            }
            json::write_string(&mut text, name);
            text.push(b':');
            json::write_string(&mut text, value.as_str().unwrap_or_default());
            text.push(b',');
        }
        text.extend_from_slice(format!("\"{REPLAY_HEADER}\":").as_bytes());
        text.extend_from_slice(self.name.as_bytes());
        text.push(b'}');
        Ok(Json::from_stored(text.into()))
    }
}

/// Where an event is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Origin {
    pub partition: Partition,
    pub offset: Offset,
    pub id: uuid::Uuid,
}

impl Origin {
    pub fn of(event: &Event) -> Self {
        Self { partition: event.partition, offset: event.offset, id: event.id }
    }
}
