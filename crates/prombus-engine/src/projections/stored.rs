//! How projections are stored: a document for each in a collection of the hub's own, and cursors of their topic.

use super::definition::{Definition, IndexDefinition};
use prombus_core::collection;
use prombus_core::{
    CursorKey, CursorMove, Document, DocumentWrite, Documents, EventLog, Json, Partition, ReadError,
    ScanRequest, TopicName, WriteOp,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Whose cursors say where a projection is.
const LIVE: &str = "projection:";
/// Whose cursors say where the rebuild of a projection is.
const REBUILD: &str = "projection-rebuild:";
/// How many projections are read at once.
const PAGE: usize = 1_000;

/// What is known of a projection beside where it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// What it is.
    pub definition: Definition,
    /// What its collections were made by; another one where the definition has changed since.
    pub made: Definition,
    /// Whether other definitions than `made` have written to the collections, so that only a rebuild makes them whole.
    #[serde(default)]
    pub mixed: bool,
    /// How often its cursors had moved when it was defined as it is.
    #[serde(default)]
    pub moves: u64,
    /// Whether its collections are being made anew.
    #[serde(default)]
    pub rebuilding: bool,
    /// Whether that may go without events that are no longer kept.
    #[serde(default)]
    pub partial: bool,
    /// Of which incarnation of the topic, if there was one.
    #[serde(default)]
    pub rebuilt_from: Option<u32>,
    /// Whether the key of every event that was applied was compared with that of its document, as the definition has it now.
    /// What an earlier build has applied was not.
    #[serde(default)]
    pub keys_compared: bool,
    /// The same of the events of the rebuild.
    #[serde(default)]
    pub rebuild_compares: bool,
}

impl Record {
    /// Whether its collections were made by another definition, in part.
    pub fn is_stale(&self) -> bool {
        self.mixed || essence(&self.definition) != essence(&self.made)
    }

    /// A projection that has done nothing yet.
    pub fn new(definition: Definition) -> Self {
        let made = definition.clone();
        Self {
            definition,
            made,
            mixed: false,
            moves: 0,
            rebuilding: false,
            partial: false,
            rebuilt_from: None,
            keys_compared: true,
            rebuild_compares: false,
        }
    }

    /// The same projection with another definition, when its cursors have moved so often.
    pub fn redefined(&self, definition: Definition, moves: u64) -> Self {
        let mixed = self.mixed || (self.is_stale() && moves != self.moves);
        let moves = if definition.topic == self.definition.topic { moves } else { 0 };
        let keys_compared = self.keys_compared && writes_same_keys(&self.definition, &definition);
        let made = self.made.clone();
        Self { made, mixed, moves, keys_compared, ..Self::new(definition) }
    }
}

/// Whether two definitions see the same documents in the same events.
fn writes_same_keys(one: &Definition, other: &Definition) -> bool {
    let keys = |definition: &Definition| {
        let Definition { topic, collection, key, normalize, .. } = definition;
        (topic.clone(), collection.clone(), key.clone(), *normalize)
    };
    keys(one) == keys(other)
}

/// What decides the content of collections. Indexes, changefeeds and retries take effect at once; of those, only what
/// must be unique decides which events fail.
fn essence(definition: &Definition) -> Definition {
    let mut essence = definition.clone();
    keep_unique(&mut essence.indexes);
    (essence.changefeed, essence.retries) = (None, None);
    for write in &mut essence.write {
        keep_unique(&mut write.indexes);
        write.changefeed = None;
    }
    essence
}

/// Those that are unique, in an order that does not matter.
fn keep_unique(indexes: &mut Vec<IndexDefinition>) {
    indexes.retain(IndexDefinition::is_unique);
    indexes.sort_by_cached_key(|index| format!("{index:?}"));
}

/// The collection that says which projections there are.
pub(super) fn collection_name() -> Arc<str> {
    collection::internal_name("hub", "projections")
}

/// What is stored of a projection, if it can be read.
pub(super) async fn record_of(documents: &dyn Documents, name: &str) -> Result<Option<Record>, ReadError> {
    let stored = documents.document(&collection_name(), name).await?;
    Ok(stored.and_then(|stored| serde_json::from_slice(stored.body.as_bytes()).ok()))
}

/// What stores a projection, or forgets it.
pub(super) fn write(name: &str, record: Option<&Record>) -> DocumentWrite {
    let op = match record {
        Some(record) => {
            WriteOp::Set(Json::from_stored(serde_json::to_vec(record).unwrap_or_default().into()))
        }
        None => WriteOp::Delete,
    };
    DocumentWrite::new(&collection_name(), name, op)
}

/// A stored projection.
pub(super) struct Stored {
    pub name: String,
    pub record: Record,
    /// Why the record is not what is stored, if that cannot be read: then its topic is all that is known, if anything is.
    pub unreadable: Option<String>,
}

/// Stands for a topic that nobody knows.
const UNKNOWN_TOPIC: &str = "system.unknown";

impl Stored {
    fn of(document: Document) -> Result<Self, ReadError> {
        let Document { key: name, body, .. } = document;
        let error = match serde_json::from_slice(body.as_bytes()) {
            Ok(record) => return Ok(Self { name, record, unreadable: None }),
            Err(error) => error,
        };
        let told = body.to_value().ok();
        let told = told.as_ref().and_then(|record| record.get("definition")?.get("topic")?.as_str());
        let topic = TopicName::parse(told.unwrap_or(UNKNOWN_TOPIC));
        let topic = topic.or_else(|_| TopicName::parse(UNKNOWN_TOPIC));
        let topic = topic.map_err(|error| ReadError::Corrupt(format!("projection {name:?}: {error}")))?;
        // Whatever it has written, nobody knows by which definition.
        let record = Record { mixed: true, ..Record::new(Definition::in_code(topic)) };
        Ok(Self {
            name,
            record,
            unreadable: Some(format!("this version cannot use what is stored of it: {error}")),
        })
    }
}

/// All projections.
pub(super) async fn load(documents: &dyn Documents) -> Result<Vec<Stored>, ReadError> {
    let mut all = Vec::new();
    let mut after = None;
    loop {
        let request = ScanRequest { collection: collection_name().to_string(), after, limit: PAGE };
        let page = documents.scan(request).await?;
        after = page.last().map(|document| document.key.clone());
        let full = page.len() == PAGE;
        for document in page {
            all.push(Stored::of(document)?);
        }
        if !full {
            return Ok(all);
        }
    }
}

/// The collections that a projection owns, those that are made anew included.
pub(super) async fn owned_by(documents: &dyn Documents, name: &str) -> Result<Vec<Arc<str>>, ReadError> {
    let all = documents.collections().await?;
    let owned = all.into_iter().filter(|state| state.config.owner.as_projection() == Some(name));
    Ok(owned.map(|state| state.name).collect())
}

/// Where a projection, or its rebuild, is in a partition.
pub(super) fn cursor_key(topic: &TopicName, name: &str, rebuild: bool, partition: u32) -> CursorKey {
    let prefix = if rebuild { REBUILD } else { LIVE };
    CursorKey { topic: topic.clone(), reader: format!("{prefix}{name}"), partition: Partition(partition) }
}

/// The collection that stands in for another one while it is made anew.
pub(super) fn shadow(collection: &str) -> Arc<str> {
    collection::internal_name(collection, "rebuild")
}

/// The collection that says which events a projection has failed and not made up for, and whether it has met [`OTHER_KEYS`].
pub(super) fn failures_of(projection: &str) -> Arc<str> {
    collection::internal_name(projection, "failed")
}

/// The document there that says that events were about documents with other keys than their own.
pub(super) const OTHER_KEYS: &str = "other keys";

/// What is said there of an event, by its place.
pub(super) fn failed_key(partition: u32, offset: u64) -> String {
    format!("{partition}:{offset}")
}

/// The topics that cursors of a projection are in.
pub(super) async fn topics_of(log: &dyn EventLog, topic: &TopicName) -> Result<Vec<TopicName>, ReadError> {
    match topic.as_str() == UNKNOWN_TOPIC {
        true => Ok(log.topics().await?.into_iter().map(|topic| topic.name).collect()),
        false => Ok(vec![topic.clone()]),
    }
}

/// What removes the cursors of a projection, or of its rebuild.
pub(super) async fn without_cursors(
    log: &dyn EventLog,
    topic: &TopicName,
    name: &str,
    rebuild: bool,
) -> Result<Vec<CursorMove>, ReadError> {
    let Some(topic) = log.topic(topic).await? else { return Ok(Vec::new()) };
    let mut moves = Vec::new();
    for partition in 0..topic.config.partitions {
        let key = cursor_key(&topic.name, name, rebuild, partition);
        if let Some(cursor) = log.cursor(&key).await? {
            let (expect_version, epoch) = (cursor.version, cursor.epoch);
            moves.push(CursorMove { key, incarnation: Some(topic.number), expect_version, epoch, to: None });
        }
    }
    Ok(moves)
}
