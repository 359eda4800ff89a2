//! Answers that are serialised by hand, because a hub writes very many of them: published events and deliveries.

use crate::media::JSON;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use prombus_core::{Appended, Durability, Event, Receipt, TopicName};
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
    let writer = PublishedWriter::new(topic, receipt.durability);
    let mut out = Vec::with_capacity(PUBLISHED_BYTES + topic.as_str().len());
    for event in &receipt.events {
        writer.write(event, &mut out);
    }
    json(status(receipt), out)
}

/// The answer to an array of events.
pub(crate) fn published_batch(topic: &TopicName, receipt: &Receipt) -> Response {
    let writer = PublishedWriter::new(topic, receipt.durability);
    let each = PUBLISHED_BYTES + topic.as_str().len();
    let mut out = Vec::with_capacity(64 + receipt.events.len() * each);
    out.extend_from_slice(b"{\"count\":");
    out.extend_from_slice(itoa::Buffer::new().format(receipt.events.len()).as_bytes());
    out.extend_from_slice(b",\"events\":[");
    for (index, event) in receipt.events.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        writer.write(event, &mut out);
    }
    out.extend_from_slice(b"]}");
    json(status(receipt), out)
}

/// `201`, or `200` if all events are duplicates.
fn status(receipt: &Receipt) -> StatusCode {
    if receipt.events.iter().all(|event| event.duplicate) { StatusCode::OK } else { StatusCode::CREATED }
}

/// Writes the answers of one commit, whose topic and durability are the same for all events.
struct PublishedWriter {
    after_id: Vec<u8>,
    after_ts: &'static [u8],
}

impl PublishedWriter {
    fn new(topic: &TopicName, durability: Durability) -> Self {
        let after_id = format!("\",\"topic\":\"{topic}\",\"partition\":").into_bytes();
        let after_ts: &[u8] = match durability {
            Durability::Sync => b",\"durability\":\"sync\",\"duplicate\":",
            Durability::Interval => b",\"durability\":\"interval\",\"duplicate\":",
        };
        Self { after_id, after_ts }
    }

    fn write(&self, event: &Appended, out: &mut Vec<u8>) {
        let mut number = itoa::Buffer::new();
        out.extend_from_slice(b"{\"id\":\"");
        out.extend_from_slice(event.id.hyphenated().encode_lower(&mut Uuid::encode_buffer()).as_bytes());
        out.extend_from_slice(&self.after_id);
        out.extend_from_slice(number.format(event.partition.0).as_bytes());
        out.extend_from_slice(b",\"offset\":");
        out.extend_from_slice(number.format(event.offset.0).as_bytes());
        out.extend_from_slice(b",\"ts\":");
        out.extend_from_slice(number.format(event.ts).as_bytes());
        out.extend_from_slice(self.after_ts);
        out.extend_from_slice(if event.duplicate { b"true}" } else { b"false}" });
    }
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
