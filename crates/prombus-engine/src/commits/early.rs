//! What early builds kept of commits with an id: the answer, and nothing of the request.

use super::Outline;
use prombus_core::{Appended, Durability, Json, Offset, Partition, Receipt, Sequence, TopicName};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use uuid::Uuid;

/// An answer as it was given then.
#[derive(Deserialize)]
pub(super) struct EarlyAnswer {
    events: Vec<EarlyEvent>,
    /// By collection and key.
    versions: BTreeMap<String, BTreeMap<String, u64>>,
}

#[derive(Deserialize)]
struct EarlyEvent {
    id: Uuid,
    topic: String,
    partition: Partition,
    offset: Offset,
    ts: u64,
    durability: Durability,
    duplicate: bool,
}

impl EarlyAnswer {
    /// The answer that a document keeps; `None` where the document is something else.
    pub fn parse(body: &Json) -> Option<Self> {
        serde_json::from_slice(body.as_bytes()).ok()
    }

    /// What came of a commit if this may be its answer: it publishes to the same topics and writes the same documents.
    /// It is answered with the same bytes again, because answers have been written in the same way since.
    pub fn receipt_of(self, outline: &Outline) -> Option<Receipt> {
        let told = self.events.iter().map(|event| event.topic.as_str());
        let version =
            |(collection, key): &(Arc<str>, String)| self.versions.get(&**collection)?.get(key).copied();
        let versions = outline.documents.iter().map(version).collect::<Option<Vec<u64>>>()?;
        let distinct: BTreeSet<_> = outline.documents.iter().collect();
        let is_same = told.eq(outline.topics.iter().map(TopicName::as_str))
            && distinct.len() == self.versions.values().map(BTreeMap::len).sum::<usize>();
        let durability = self.events.first().map_or(Durability::Sync, |event| event.durability);
        let appended = |EarlyEvent { id, partition, offset, ts, duplicate, .. }| Appended {
            id,
            partition,
            offset,
            ts,
            duplicate,
        };
        is_same.then(|| Receipt {
            events: self.events.into_iter().map(appended).collect(),
            versions,
            durability,
            sequence: Sequence(0),
        })
    }
}
