//! Receipts as documents: what a commit has done, kept by that commit itself, so that it can be told again.
//!
//! A kept receipt names neither topics nor documents: whoever asks again brings the commit, and the digest shows that
//! it is the same one. So it takes a few dozen bytes for each event and is bounded by the commit, not by what a
//! document may take.

use crate::commit::{Appended, Receipt};
use crate::json::Json;
use crate::position::{Offset, Partition, Sequence};
use crate::topic::Durability;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// What a commit has done, and the digest of what was asked of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptReceipt {
    /// The digest.
    pub request: u128,
    /// What was done. Its sequence means nothing, since it may be of a store that was open before.
    pub receipt: Receipt,
}

/// The document of a kept receipt.
#[derive(Serialize, Deserialize)]
struct Body {
    /// As hexadecimal digits: few readers of JSON keep 128 bits of a number.
    request: String,
    durability: Durability,
    events: Vec<(Uuid, Partition, Offset, u64, bool)>,
    versions: Vec<u64>,
}

/// The body of the document that keeps `receipt`.
pub fn body(request: u128, receipt: &Receipt) -> Json {
    let event = |done: &Appended| (done.id, done.partition, done.offset, done.ts, done.duplicate);
    let body = Body {
        request: format!("{request:032x}"),
        durability: receipt.durability,
        events: receipt.events.iter().map(event).collect(),
        versions: receipt.versions.clone(),
    };
    // Numbers and ids always have a text.
    Json::from_stored(serde_json::to_vec(&body).unwrap_or_default().into())
}

impl KeptReceipt {
    /// The receipt that [`body`] made a document of; `None` where the document is something else.
    pub fn parse(body: &Json) -> Option<Self> {
        let Body { request, durability, events, versions } = serde_json::from_slice(body.as_bytes()).ok()?;
        let appended =
            |(id, partition, offset, ts, duplicate)| Appended { id, partition, offset, ts, duplicate };
        let events = events.into_iter().map(appended).collect();
        let receipt = Receipt { events, versions, durability, sequence: Sequence(0) };
        Some(Self { request: u128::from_str_radix(&request, 16).ok()?, receipt })
    }
}
