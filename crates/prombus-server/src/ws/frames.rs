//! Frames that the hub sends, serialised by hand because there are very many of them.

use super::session::Key;
use crate::answers::{self, DELIVERY_BYTES, DeliveryWriter};
use crate::commit::CommittedAnswer;
use crate::error::ApiError;
use prombus_core::json::write_string;
use prombus_core::{Partition, Receipt};
use prombus_engine::groups::Delivery;

/// What goes back with the answer, as it was given: JSON.
pub(crate) type Corr = Option<String>;

fn with_corr(op: &str, corr: &str) -> Vec<u8> {
    format!("{{\"op\":\"{op}\",\"corr\":{corr}").into_bytes()
}

pub(crate) fn ok(corr: &str) -> Vec<u8> {
    let mut out = with_corr("OK", corr);
    out.push(b'}');
    out
}

pub(crate) fn published(corr: &str, array: bool, receipt: &Receipt) -> Vec<u8> {
    let mut out = with_corr("OK", corr);
    out.extend_from_slice(answers::durability(receipt.durability));
    out.push(b',');
    if array {
        answers::write_all(receipt.events.iter().map(|event| (event, None)), &mut out);
    } else if let Some(event) = receipt.events.first() {
        answers::write_published(event, None, &mut out);
    }
    out.push(b'}');
    out
}

/// What a commit has done, beside the fields of every answer.
pub(crate) fn committed(corr: &str, answer: &CommittedAnswer) -> Vec<u8> {
    let mut out = with_corr("OK", corr);
    out.push(b',');
    answer.write(&mut out);
    out.push(b'}');
    out
}

pub(crate) fn err(corr: &Corr, error: &ApiError) -> Vec<u8> {
    let mut out = match corr {
        Some(corr) => with_corr("ERR", corr),
        None => b"{\"op\":\"ERR\"".to_vec(),
    };
    out.extend_from_slice(b",\"code\":\"");
    out.extend_from_slice(error.code().as_str().as_bytes());
    out.extend_from_slice(b"\",\"msg\":");
    write_string(&mut out, error.message());
    for (name, value) in error.details() {
        out.push(b',');
        write_string(&mut out, name);
        out.push(b':');
        out.extend_from_slice(value.to_string().as_bytes());
    }
    out.push(b'}');
    out
}

fn of_group(op: &str, key: &Key, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("{{\"op\":\"{op}\",\"topic\":\"{}\",\"group\":", key.topic).as_bytes());
    write_string(out, key.group.as_str());
}

pub(crate) fn event(key: &Key, one: &Delivery, max_attempts: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(DELIVERY_BYTES + one.event.payload.len());
    of_group("EVENT", key, &mut out);
    out.push(b',');
    DeliveryWriter::new(max_attempts).write(one, &mut out);
    out.push(b'}');
    out
}

pub(crate) fn events(key: &Key, many: &[Delivery], max_attempts: u32) -> Vec<u8> {
    let payloads: usize = many.iter().map(|one| one.event.payload.len()).sum();
    let mut out = Vec::with_capacity(DELIVERY_BYTES * (many.len() + 1) + payloads);
    of_group("EVENTS", key, &mut out);
    out.push(b',');
    answers::deliveries(many, max_attempts, &mut out);
    out.push(b'}');
    out
}

pub(crate) fn assigned(key: &Key, partitions: &[Partition]) -> Vec<u8> {
    let mut out = Vec::new();
    of_group("ASSIGNED", key, &mut out);
    let partitions: Vec<u32> = partitions.iter().map(|partition| partition.0).collect();
    out.extend_from_slice(format!(",\"partitions\":{}}}", serde_json::json!(partitions)).as_bytes());
    out
}
