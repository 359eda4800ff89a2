//! Publishing an array of events, and what its answer means.

use super::calls::{Answer, Calls};
use prombus_core::json::write_string;
use prombus_core::{Append, Appended, CommitError, Durability, Offset, Partition, Placement, TopicName};
use serde::Deserialize;
use uuid::Uuid;

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
        _ => Err(refusal(&answer, topic, events)),
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

#[derive(Deserialize)]
struct Published {
    id: Uuid,
    topic: TopicName,
    partition: Partition,
    offset: Offset,
    ts: u64,
    durability: Durability,
    duplicate: bool,
}

#[derive(Deserialize)]
struct Batch {
    count: usize,
    events: Vec<Published>,
}

fn receipt(answer: &Answer) -> Result<(Vec<Appended>, Durability), CommitError> {
    let wrong = |why: String| CommitError::Unavailable(format!("{why}: {}", answer.unexpected()));
    let Batch { count, events } =
        serde_json::from_slice(&answer.body).map_err(|error| wrong(error.to_string()))?;
    if count != events.len() {
        return Err(wrong("count is not the number of events".into()));
    }
    if (answer.status == 200) != events.iter().all(|event| event.duplicate) {
        return Err(wrong("200 is for duplicates, and for nothing else".into()));
    }
    if events.iter().any(|event| event.topic != events[0].topic) {
        return Err(wrong("all events are of one topic".into()));
    }
    let durability = events.iter().map(|event| event.durability).max().unwrap_or_default();
    let appended = |event: Published| {
        let Published { id, partition, offset, ts, duplicate, .. } = event;
        Appended { id, partition, offset, ts, duplicate }
    };
    Ok((events.into_iter().map(appended).collect(), durability))
}

fn refusal(answer: &Answer, topic: &TopicName, events: &[Append]) -> CommitError {
    let values = answer.values();
    let index = answer.number("index") as usize;
    match (answer.status, values["error"].as_str()) {
        (404, Some("not_found")) => CommitError::TopicNotFound(topic.clone()),
        (409, Some("id_conflict")) => {
            let id = events.get(index).and_then(|append| append.event.id);
            CommitError::IdConflict { index, id: id.unwrap_or_default() }
        }
        (412, Some("expectation_failed")) => {
            let actual = values["actual"]["last_id"].as_str().and_then(|id| id.parse().ok());
            CommitError::ExpectationFailed { index, actual }
        }
        (413, Some("too_large")) => {
            CommitError::TooLarge { bytes: 0, limit: answer.number("limit") as usize }
        }
        (507, Some("disk_full")) => CommitError::NoRoom,
        _ => CommitError::Unavailable(answer.unexpected()),
    }
}
