//! Publishing an array of events, and what its answer means.

use super::calls::{Answer, Calls};
use prombus_client::{HubError, Published, PublishedBatch};
use prombus_core::json::write_string;
use prombus_core::{Append, Appended, CommitError, Durability, Offset, Partition, Placement, TopicName};
use serde_json::{Map, Value};

/// Posts the events as an array. The hub chooses partitions, but for events without a key, which name theirs.
pub async fn publish(
    calls: &Calls,
    topic: &TopicName,
    events: &[Append],
) -> Result<(Vec<Appended>, Durability), CommitError> {
    let path = ["v1", "topics", topic.as_str(), "events"];
    let answer = calls.post(&path, body(events)).await.map_err(CommitError::Unavailable)?;
    match answer.status {
        200 | 201 => receipt(&answer),
        _ => Err(refusal(&hub_error(&answer), topic, events)),
    }
}

/// By hand, because payloads must arrive as they are.
fn body(events: &[Append]) -> Vec<u8> {
    let mut out = Vec::new();
    for append in events {
        out.push(if out.is_empty() { b'[' } else { b',' });
        write_event(&mut out, append);
    }
    out.push(b']');
    out
}

fn write_event(out: &mut Vec<u8>, append: &Append) {
    let event = &append.event;
    out.extend_from_slice(b"{\"payload\":");
    out.extend_from_slice(event.payload.as_bytes());
    if let Some(key) = &event.key {
        out.extend_from_slice(b",\"key\":");
        write_string(out, key);
    }
    if let Some(id) = event.id {
        out.extend_from_slice(format!(",\"id\":\"{id}\"").as_bytes());
    }
    if let Some(ts) = event.ts {
        out.extend_from_slice(format!(",\"ts\":{ts}").as_bytes());
    }
    let texts = [
        ("sid", &event.sid),
        ("headers", &event.headers),
        ("tags", &event.tags),
        ("caused_by", &event.caused_by),
    ];
    for (name, text) in texts {
        if let Some(text) = text {
            out.extend_from_slice(format!(",\"{name}\":").as_bytes());
            out.extend_from_slice(text.as_bytes());
        }
    }
    if let (None, Placement::Named(partition)) = (&event.key, append.placement) {
        out.extend_from_slice(format!(",\"partition\":{partition}").as_bytes());
    }
    if let Some(expect) = append.expect {
        let last = expect.last_id.map_or("null".to_owned(), |id| format!("\"{id}\""));
        out.extend_from_slice(format!(",\"expect\":{{\"last_id\":{last}}}").as_bytes());
    }
    out.push(b'}');
}

fn receipt(answer: &Answer) -> Result<(Vec<Appended>, Durability), CommitError> {
    let wrong = |why: String| CommitError::Unavailable(format!("{why}: {}", answer.unexpected()));
    let PublishedBatch { count, events } =
        serde_json::from_slice(&answer.body).map_err(|error| wrong(error.to_string()))?;
    if count != events.len() {
        return Err(wrong("count is not the number of events".into()));
    }
    if (answer.status == 200) != events.iter().all(|event| event.duplicate) {
        return Err(wrong("200 is for duplicates, and for nothing else".into()));
    }
    appended(&events).map_err(wrong)
}

/// What a hub says of the events of a publish, as a log says it.
pub fn appended(events: &[Published]) -> Result<(Vec<Appended>, Durability), String> {
    let mut all = Vec::with_capacity(events.len());
    for Published { id, topic, partition, offset, ts, durability, duplicate } in events {
        if (topic, durability) != (&events[0].topic, &events[0].durability) {
            return Err("all events are of one topic".into());
        }
        let id = id.parse().map_err(|error| format!("{id}: {error}"))?;
        let (partition, offset) = (Partition(*partition), Offset(*offset));
        all.push(Appended { id, partition, offset, ts: *ts, duplicate: *duplicate });
    }
    let durability = match events.first() {
        Some(first) => Durability::try_from(first.durability.to_string())?,
        None => Durability::default(),
    };
    Ok((all, durability))
}

fn hub_error(answer: &Answer) -> HubError {
    let details: Map<String, Value> = serde_json::from_slice(&answer.body).unwrap_or_default();
    let code = details.get("error").and_then(Value::as_str).unwrap_or_default().to_owned();
    HubError { status: answer.status, code, message: answer.unexpected(), details }
}

/// Why a hub refuses to publish `events`, as a log says it.
pub fn refusal(error: &HubError, topic: &TopicName, events: &[Append]) -> CommitError {
    let index = error.number("index").unwrap_or_default() as usize;
    match (error.status, error.code.as_str()) {
        (404, "not_found") => CommitError::TopicNotFound(topic.clone()),
        (409, "id_conflict") => {
            let id = events.get(index).and_then(|append| append.event.id);
            CommitError::IdConflict { index, id: id.unwrap_or_default() }
        }
        (412, "expectation_failed") => {
            let actual = error.details.get("actual").and_then(|actual| actual["last_id"].as_str());
            CommitError::ExpectationFailed { index, actual: actual.and_then(|id| id.parse().ok()) }
        }
        (413, "too_large") => {
            CommitError::TooLarge { bytes: 0, limit: error.number("limit").unwrap_or_default() as usize }
        }
        (507, "disk_full") => CommitError::NoRoom,
        _ => CommitError::Unavailable(error.to_string()),
    }
}
