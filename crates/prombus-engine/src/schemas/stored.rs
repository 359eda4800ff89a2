//! How schemas are stored: for each topic a head, which says what there is, and for each version a document with its text,
//! in collections of the hub's own.
//!
//! Both name the topic by its number, so that one that was made anew under the same name has no schemas, whatever of
//! the old one is still there.

use super::upcast::Upcaster;
use prombus_core::{
    Document, DocumentWrite, Documents, Json, ReadError, TopicName, TopicNumber, TopicState, WriteOp,
    collection,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What there is for a topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The number of the topic.
    topic: u32,
    /// The versions, from the lowest.
    pub versions: Vec<VersionHead>,
    /// How documents are raised, by the version that they are raised from.
    #[serde(default)]
    pub upcasters: BTreeMap<u32, Upcaster>,
}

/// What is known of a version beside its schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionHead {
    /// Its number.
    pub version: u32,
    /// When it was registered, in epoch milliseconds.
    pub registered_ts: u64,
}

impl Head {
    /// Of a topic for which there is nothing yet.
    pub fn new(topic: TopicNumber) -> Self {
        Self { topic: topic.0, versions: Vec::new(), upcasters: BTreeMap::new() }
    }

    /// The number of the topic.
    pub fn topic(&self) -> TopicNumber {
        TopicNumber(self.topic)
    }

    /// The latest version, if there is one.
    pub fn latest(&self) -> Option<u32> {
        self.versions.last().map(|last| last.version)
    }

    /// What is known of a version, if it is registered.
    pub fn version(&self, version: u32) -> Option<VersionHead> {
        let at = self.versions.binary_search_by_key(&version, |known| known.version).ok()?;
        self.versions.get(at).copied()
    }

    /// The next version that is registered.
    pub fn next_after(&self, version: u32) -> Option<u32> {
        self.versions.iter().map(|known| known.version).find(|known| *known > version)
    }

    /// What it takes in memory, about.
    pub fn size(&self) -> usize {
        let ops: usize = self.upcasters.values().map(Upcaster::size).sum();
        128 + self.versions.len() * size_of::<VersionHead>() + ops
    }
}

/// A head as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredHead {
    /// The head.
    pub head: Head,
    /// The version of its document, which its removal is conditional on; 0 where there is none.
    pub version: u64,
}

/// A version of a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSchema {
    /// What is known of it.
    pub head: VersionHead,
    /// The schema as it was given, white space aside.
    pub text: Json,
}

/// A version as it is stored. The text is one value of the document, whatever is in it.
#[derive(Serialize, Deserialize)]
struct VersionRecord {
    registered_ts: u64,
    schema: String,
}

/// The collection of heads.
fn heads() -> Arc<str> {
    collection::internal_name("hub", "schemas")
}

/// The collection of versions.
fn versions() -> Arc<str> {
    collection::internal_name("hub", "schema-versions")
}

fn version_key(topic: TopicNumber, version: u32) -> String {
    format!("{}:{version}", topic.0)
}

fn stored<T: Serialize>(record: &T) -> WriteOp {
    WriteOp::Set(Json::from_stored(serde_json::to_vec(record).unwrap_or_default().into()))
}

fn read<T: DeserializeOwned>(document: &Document) -> Result<T, ReadError> {
    serde_json::from_slice(document.body.as_bytes()).map_err(|error| {
        ReadError::Corrupt(format!("schema {:?} cannot be used by this version: {error}", document.key))
    })
}

/// What there is for a topic.
pub async fn load_head(documents: &dyn Documents, topic: &TopicState) -> Result<StoredHead, ReadError> {
    let none = |version| StoredHead { head: Head::new(topic.number), version };
    let Some(document) = documents.document(&heads(), topic.name.as_str()).await? else {
        return Ok(none(0));
    };
    let head: Head = read(&document)?;
    match head.topic() == topic.number {
        true => Ok(StoredHead { head, version: document.version }),
        false => Ok(none(document.version)),
    }
}

/// A version of a topic's schema, if it is registered.
pub async fn load_version(
    documents: &dyn Documents,
    head: &Head,
    version: u32,
) -> Result<Option<StoredSchema>, ReadError> {
    let Some(known) = head.version(version) else { return Ok(None) };
    let key = version_key(head.topic(), version);
    let Some(document) = documents.document(&versions(), &key).await? else { return Ok(None) };
    let record: VersionRecord = read(&document)?;
    Ok(Some(StoredSchema { head: known, text: Json::from_stored(record.schema.into()) }))
}

/// What stores another head for a topic, in a commit that also moves the revision of the topic on, and so is refused if
/// somebody else has done the same.
pub fn write_head(topic: &TopicName, head: &Head, now_ms: u64) -> DocumentWrite {
    DocumentWrite { ts: now_ms, ..DocumentWrite::new(&heads(), topic.as_str(), stored(head)) }
}

/// Whether a write stores a head for a topic.
pub fn is_head_of(write: &DocumentWrite, topic: &TopicName) -> bool {
    write.key == topic.as_str() && matches!(write.op, WriteOp::Set(_)) && write.collection == heads()
}

/// What stores a new version.
pub fn write_version(topic: TopicNumber, head: VersionHead, text: &Json) -> DocumentWrite {
    let schema = String::from_utf8_lossy(text.as_bytes()).into_owned();
    let record = VersionRecord { registered_ts: head.registered_ts, schema };
    DocumentWrite {
        ts: head.registered_ts,
        ..DocumentWrite::new(&versions(), version_key(topic, head.version), stored(&record))
    }
}

/// What removes everything that there is for a topic.
pub fn removal(topic: &TopicName, before: &StoredHead) -> Vec<DocumentWrite> {
    if before.version == 0 {
        return Vec::new();
    }
    let number = before.head.topic();
    let gone = before.head.versions.iter().map(|known| version_key(number, known.version));
    let gone = gone.map(|key| DocumentWrite::new(&versions(), key, WriteOp::Delete));
    let head = DocumentWrite {
        if_version: Some(before.version),
        ..DocumentWrite::new(&heads(), topic.as_str(), WriteOp::Delete)
    };
    gone.chain([head]).collect()
}
