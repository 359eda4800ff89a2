//! Answers that are serialised by hand, because a hub writes very many of them: published events and deliveries.

use crate::commit::CommittedAnswer;
use crate::media::JSON;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use prombus_core::{Appended, Durability, Event, Receipt, TopicName};
use prombus_engine::commits::CommitAnswer;
use prombus_engine::groups::Delivery;
use serde::Serialize;
use tokio::time::Instant;
use uuid::Uuid;

/// Approximate size of the answer for one event.
const PUBLISHED_BYTES: usize = 224;
/// Approximate size of a delivery without its payload.
pub(crate) const DELIVERY_BYTES: usize = 448;

/// The end of every JSON answer, so that a terminal shows its prompt on a new line. Documents lack it, because their
/// ETag covers their exact bytes.
pub(crate) const JSON_END: &[u8] = b"\n";

/// A body that is already JSON.
pub(crate) fn json(status: StatusCode, mut body: Vec<u8>) -> Response {
    body.extend_from_slice(JSON_END);
    (status, [(header::CONTENT_TYPE, JSON)], body).into_response()
}

/// A value as JSON.
pub(crate) fn json_of(status: StatusCode, value: &impl Serialize) -> Response {
    // Answers have only string keys, so serialising cannot fail.
    json(status, serde_json::to_vec(value).unwrap_or_default())
}

/// Approximate size of an event that was found.
pub(crate) fn size(found: &Option<Event>) -> usize {
    found.as_ref().map_or(0, |event| event.payload.len())
}

/// One event, without an envelope.
pub(crate) fn event(event: &Event) -> Response {
    let mut out = Vec::with_capacity(event.payload.len() + PUBLISHED_BYTES);
    event.write_json(&mut out);
    json(StatusCode::OK, out)
}

/// The answer to one event.
pub(crate) fn published(topic: &TopicName, receipt: &Receipt) -> Response {
    let mut out = Vec::with_capacity(PUBLISHED_BYTES + topic.as_str().len());
    out.push(b'{');
    for event in &receipt.events {
        write_published(event, Some((topic, receipt.durability)), &mut out);
    }
    out.push(b'}');
    json(status(receipt), out)
}

/// The answer to an array of events.
pub(crate) fn published_batch(topic: &TopicName, receipt: &Receipt) -> Response {
    let each = PUBLISHED_BYTES + topic.as_str().len();
    let mut out = Vec::with_capacity(64 + receipt.events.len() * each);
    out.extend_from_slice(b"{\"count\":");
    out.extend_from_slice(itoa::Buffer::new().format(receipt.events.len()).as_bytes());
    out.push(b',');
    write_all(receipt.events.iter().map(|event| (event, Some((topic, receipt.durability)))), &mut out);
    out.push(b'}');
    json(status(receipt), out)
}

/// `201`, or `200` if all events are duplicates.
fn status(receipt: &Receipt) -> StatusCode {
    if receipt.events.iter().all(|event| event.duplicate) { StatusCode::OK } else { StatusCode::CREATED }
}

/// The field that says what was waited for, after others.
pub(crate) fn durability(durability: Durability) -> &'static [u8] {
    match durability {
        Durability::Sync => b",\"durability\":\"sync\"",
        Durability::Interval => b",\"durability\":\"interval\"",
    }
}

/// The fields that say where an event is, without braces; and its topic and how durable it is, unless whoever asked
/// knows the one and is told the other once for all events.
pub(crate) fn write_published(event: &Appended, of: Option<(&TopicName, Durability)>, out: &mut Vec<u8>) {
    let mut number = itoa::Buffer::new();
    out.extend_from_slice(b"\"id\":\"");
    out.extend_from_slice(event.id.hyphenated().encode_lower(&mut Uuid::encode_buffer()).as_bytes());
    if let Some((topic, _)) = of {
        out.extend_from_slice(b"\",\"topic\":\"");
        out.extend_from_slice(topic.as_str().as_bytes());
    }
    out.extend_from_slice(b"\",\"partition\":");
    out.extend_from_slice(number.format(event.partition.0).as_bytes());
    out.extend_from_slice(b",\"offset\":");
    out.extend_from_slice(number.format(event.offset.0).as_bytes());
    out.extend_from_slice(b",\"ts\":");
    out.extend_from_slice(number.format(event.ts).as_bytes());
    out.extend_from_slice(of.map_or(&b""[..], |(_, how)| durability(how)));
    out.extend_from_slice(if event.duplicate { b",\"duplicate\":true" } else { b",\"duplicate\":false" });
}

/// The field that has all events.
pub(crate) fn write_all<'a>(
    events: impl Iterator<Item = (&'a Appended, Option<(&'a TopicName, Durability)>)>,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(b"\"events\":[");
    for (index, (event, of)) in events.enumerate() {
        out.extend_from_slice(if index > 0 { b",{" } else { b"{" });
        write_published(event, of, out);
        out.push(b'}');
    }
    out.push(b']');
}

/// The answer to a commit.
pub(crate) fn committed(answer: &CommittedAnswer) -> Response {
    let mut out = vec![b'{'];
    answer.write(&mut out);
    out.push(b'}');
    json(StatusCode::OK, out)
}

/// The fields of what a commit has done. They always have the same order: a commit that is repeated is answered byte for
/// byte as it was first.
pub(crate) fn write_committed(answer: &CommitAnswer, out: &mut Vec<u8>) {
    write_all(answer.events.iter().map(|(topic, event)| (event, Some((topic, answer.durability)))), out);
    out.extend_from_slice(b",\"versions\":");
    // It has text keys only, so writing it cannot fail.
    let _ = serde_json::to_writer(out, &answer.versions);
}

/// Writes deliveries: the event and its context.
pub(crate) struct DeliveryWriter {
    now: Instant,
    after_attempt: String,
}

impl DeliveryWriter {
    pub fn new(max_attempts: u32) -> Self {
        let after_attempt = format!(",\"maxAttempts\":{max_attempts},\"ack_deadline_ms\":");
        Self { now: Instant::now(), after_attempt }
    }

    /// One delivery, without its braces.
    pub fn write(&self, delivery: &Delivery, out: &mut Vec<u8>) {
        let mut number = itoa::Buffer::new();
        out.extend_from_slice(b"\"event\":");
        delivery.event.write_json(out);
        out.extend_from_slice(b",\"ctx\":{\"attempt\":");
        out.extend_from_slice(number.format(delivery.attempt).as_bytes());
        out.extend_from_slice(self.after_attempt.as_bytes());
        let left = delivery.deadline.saturating_duration_since(self.now);
        out.extend_from_slice(number.format(left.as_millis()).as_bytes());
        out.extend_from_slice(b",\"lease\":\"");
        delivery.lease.write(out);
        out.extend_from_slice(b"\"}");
    }
}

/// What deliveries take, about.
pub(crate) fn size_of_all(deliveries: &[Delivery]) -> usize {
    let payloads: usize = deliveries.iter().map(|delivery| delivery.event.payload.len()).sum();
    payloads + DELIVERY_BYTES * (deliveries.len() + 1)
}

/// The field with all deliveries.
pub(crate) fn deliveries(deliveries: &[Delivery], max_attempts: u32, out: &mut Vec<u8>) {
    out.reserve(size_of_all(deliveries));
    let writer = DeliveryWriter::new(max_attempts);
    out.extend_from_slice(b"\"deliveries\":[");
    for (index, delivery) in deliveries.iter().enumerate() {
        out.extend_from_slice(if index > 0 { b",{" } else { b"{" });
        writer.write(delivery, out);
        out.push(b'}');
    }
    out.push(b']');
}

#[cfg(test)]
mod tests {
    use super::*;
    use prombus_core::{Offset, Partition};
    use std::collections::BTreeMap;

    const ID: &str = "019f1c2f-7d4b-7c5e-8d54-0d7e7d2b7f10";

    fn appended(duplicate: bool) -> Appended {
        let (partition, offset) = (Partition(2), Offset(41));
        Appended { id: ID.parse().unwrap(), partition, offset, ts: 1_794_924_966_781, duplicate }
    }

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn an_event_is_told_with_its_topic_or_without() {
        let topic = TopicName::parse("out").unwrap();
        let of = Some((&topic, Durability::Interval));
        let expected = format!(
            r#""id":"{ID}","topic":"out","partition":2,"offset":41,"ts":1794924966781,"durability":"interval","duplicate":true"#
        );
        assert_eq!(text(|out| write_published(&appended(true), of, out)), expected);
        let one =
            format!(r#"{{"id":"{ID}","partition":2,"offset":41,"ts":1794924966781,"duplicate":false}}"#);
        let all = [appended(false), appended(false)];
        let expected = format!(r#""events":[{one},{one}]"#);
        assert_eq!(text(|out| write_all(all.iter().map(|event| (event, None)), out)), expected);
    }

    /// Repeated commits are answered from what was kept of them, and clients may compare the bytes.
    #[test]
    fn a_commit_is_answered_with_the_same_bytes_each_time() {
        let topic = TopicName::parse("out").unwrap();
        let versions = |all: &[(&str, u64)]| all.iter().map(|(key, n)| ((*key).to_owned(), *n)).collect();
        let answer = CommitAnswer {
            events: vec![(topic.clone(), appended(false)), (topic, appended(true))],
            durability: Durability::Sync,
            versions: BTreeMap::from([
                ("b".into(), versions(&[("k", 0)])),
                ("a".into(), versions(&[("\"", 7), ("é", 8)])),
            ]),
            repeated: true,
        };
        let event = |duplicate: bool| {
            let of = Some((&answer.events[0].0, Durability::Sync));
            text(|out| write_published(&appended(duplicate), of, out))
        };
        let versions = r#"{"a":{"\"":7,"é":8},"b":{"k":0}}"#;
        let expected =
            format!(r#""events":[{{{}}},{{{}}}],"versions":{versions}"#, event(false), event(true));
        assert_eq!(text(|out| write_committed(&answer, out)), expected);
    }
}
