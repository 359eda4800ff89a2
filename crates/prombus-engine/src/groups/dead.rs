//! Dead letters: what becomes of an event that has failed for the last time.

use super::GroupError;
use super::group::Group;
use super::pull::Body;
use super::state::FinalFailure;
use bytes::Bytes;
use prombus_core::{Append, Event, Json, NewEvent, TopicName, json};
use serde::Deserialize;
use std::collections::HashMap;
use std::sync::Arc;
use uuid::Uuid;

/// How many dead letters are written at once.
pub const MAX_AT_ONCE: usize = 64;
/// And about how many bytes of them.
const MAX_BYTES_AT_ONCE: usize = 4 << 20;
/// Counts how often an event came back from the dead letters.
pub const REPLAYS_HEADER: &str = "x-dlq-replays";

/// An event that is to be settled as dead, with its letter; without one where the event is gone.
pub struct DeadLetterWrite {
    /// The event.
    pub dying: FinalFailure,
    /// Its letter.
    pub letter: Option<Append>,
}

/// Writes the letters of events that have failed for the last time: of all, or as many as go into one commit.
pub async fn prepare(
    group: &Arc<Group>,
    dying: Vec<FinalFailure>,
) -> Result<Vec<DeadLetterWrite>, GroupError> {
    let mut burials = Vec::new();
    let mut bytes = 0;
    for mut dying in dying {
        if bytes > MAX_BYTES_AT_ONCE {
            break;
        }
        let original = group.body(dying.partition, dying.offset).await?;
        dying.is_lost = matches!(original, Body::Lost(_));
        let letter = original.event().map(|original| letter(group, &dying, &original)).transpose()?;
        bytes += letter.as_ref().map_or(0, |letter| letter.event.size());
        burials.push(DeadLetterWrite { dying, letter });
    }
    Ok(burials)
}

fn letter(group: &Group, dying: &FinalFailure, original: &Event) -> Result<Append, GroupError> {
    let failure = Failure {
        reader: Reader::Group(group.name().as_str()),
        reason: &dying.reason,
        attempts: dying.attempts,
        replays: dying.replays,
        now_ms: group.now().wall_ms,
    };
    letter_of(original, &failure).ok_or_else(|| {
        GroupError::Failed(format!("the name of topic {} is too long for dead letters", original.topic))
    })
}

/// Who fails events.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reader<'a> {
    /// A group.
    Group(&'a str),
    /// A projection.
    Projection(&'a str),
}

/// How an event has failed for the last time.
pub(crate) struct Failure<'a> {
    /// Who failed it.
    pub reader: Reader<'a>,
    /// What it failed with.
    pub reason: &'a str,
    /// How often it was tried.
    pub attempts: u32,
    /// How often it came back from the dead letters before.
    pub replays: u32,
    /// When that was.
    pub now_ms: u64,
}

/// The dead letter of an event; `None` where the name of its topic would be too long.
pub(crate) fn letter_of(original: &Event, failure: &Failure<'_>) -> Option<Append> {
    let topic = original.topic.dead_letters()?;
    let Failure { reader, reason, attempts, replays, now_ms } = failure;
    let replays = (*replays).max(replays_of(original));
    let (kind, name) = match reader {
        Reader::Group(name) => ("group", name),
        Reader::Projection(name) => ("projection", name),
    };
    let mut text = Vec::with_capacity(original.payload.len() + 512);
    text.extend_from_slice(b"{\"topic\":");
    json::write_string(&mut text, original.topic.as_str());
    text.extend_from_slice(format!(",\"{kind}\":").as_bytes());
    json::write_string(&mut text, name);
    text.extend_from_slice(b",\"original\":");
    original.write_json(&mut text);
    text.extend_from_slice(b",\"err\":");
    json::write_string(&mut text, reason);
    text.extend_from_slice(format!(",\"ts\":{now_ms},\"attempts\":{attempts}}}").as_bytes());
    let mut event = NewEvent::new(Json::from_stored(text.into()));
    event.key = original.key.clone();
    event.caused_by = Some(strings(&[&original.id.to_string()]).into());
    event.headers = (replays > 0).then(|| replays_header(replays).into());
    Some(Append::new(topic, event))
}

/// A JSON array of texts.
pub fn strings(texts: &[&str]) -> Json {
    Json::from_stored(Bytes::from(serde_json::to_vec(texts).unwrap_or_default()))
}

fn replays_header(replays: u32) -> Json {
    Json::from_stored(format!("{{\"{REPLAYS_HEADER}\":\"{replays}\"}}").into())
}

/// How often an event came back from the dead letters.
fn replays_of(event: &Event) -> u32 {
    headers_of(event).get(REPLAYS_HEADER).and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// The headers of an event.
fn headers_of(event: &Event) -> HashMap<String, String> {
    event.headers.as_ref().and_then(|h| serde_json::from_slice(h.as_bytes()).ok()).unwrap_or_default()
}

/// Who has failed an event, as its dead letter says.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailedBy {
    /// This group. Older builds wrote this of projections, too.
    Group(String),
    /// This projection.
    Projection(String),
}

/// A dead letter as it is read back.
#[derive(Debug, Clone)]
pub struct DeadLetter {
    /// The letter itself.
    pub event: Event,
    /// The topic of the original.
    pub topic: TopicName,
    /// Who failed it.
    pub failed_by: FailedBy,
    /// The original's id.
    pub original_id: Uuid,
    /// The original's partition.
    pub partition: u32,
    /// The original's offset.
    pub offset: u64,
    /// How often it came back from the dead letters.
    pub replays: u32,
    /// The original's times: its own, and when it was recorded.
    times: (u64, u64),
    original: Json,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    topic: TopicName,
    #[serde(default)]
    group: Option<String>,
    #[serde(default)]
    projection: Option<String>,
    #[serde(borrow)]
    original: &'a serde_json::value::RawValue,
}

#[derive(Deserialize)]
struct Original<'a> {
    id: Uuid,
    ts: u64,
    #[serde(default)]
    recorded_ts: Option<u64>,
    partition: u32,
    offset: u64,
    #[serde(default)]
    key: Option<String>,
    #[serde(borrow, default)]
    sid: Option<&'a serde_json::value::RawValue>,
    #[serde(default)]
    headers: Option<HashMap<String, String>>,
    #[serde(borrow)]
    payload: &'a serde_json::value::RawValue,
    #[serde(borrow, default)]
    tags: Option<&'a serde_json::value::RawValue>,
}

impl DeadLetter {
    /// The letter that an event of a `dlq.` topic is; `None` where it is something else.
    pub fn parse(event: Event) -> Option<Self> {
        let envelope: Envelope<'_> = serde_json::from_slice(event.payload.as_bytes()).ok()?;
        let original: Original<'_> = serde_json::from_str(envelope.original.get()).ok()?;
        Some(Self {
            topic: envelope.topic,
            failed_by: match envelope.projection {
                Some(projection) => FailedBy::Projection(projection),
                None => FailedBy::Group(envelope.group?),
            },
            original_id: original.id,
            partition: original.partition,
            offset: original.offset,
            replays: replays_of(&event),
            times: (original.ts, original.recorded_ts.unwrap_or(original.ts)),
            original: Json::from_stored(Bytes::copy_from_slice(envelope.original.get().as_bytes())),
            event,
        })
    }

    /// Whether this is its original, and not what a topic of the same name has in the same place.
    pub fn is_of(&self, event: &Event) -> bool {
        event.id == self.original_id && (event.ts, event.recorded_ts) == self.times
    }

    /// The original as a new event, caused by the original and by the letter.
    pub fn revived(&self) -> Option<NewEvent> {
        let original: Original<'_> = serde_json::from_slice(self.original.as_bytes()).ok()?;
        let own = |raw: &serde_json::value::RawValue| {
            Json::from_stored(Bytes::copy_from_slice(raw.get().as_bytes()))
        };
        let mut headers = original.headers.unwrap_or_default();
        headers.insert(REPLAYS_HEADER.into(), (self.replays + 1).to_string());
        let mut event = NewEvent::new(own(original.payload));
        event.key = original.key.map(Into::into);
        event.sid = original.sid.map(own).map(Box::new);
        event.tags = original.tags.map(own).map(Box::new);
        event.headers =
            Some(Json::from_stored(serde_json::to_vec(&headers).unwrap_or_default().into()).into());
        event.caused_by = Some(strings(&[&self.original_id.to_string(), &self.event.id.to_string()]).into());
        Some(event)
    }
}
