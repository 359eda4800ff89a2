//! What is known of the database while commits are staged, and what has to be read first.
//!
//! Staging waits for nothing, so it stages on what is known. Where it asks for something that is not, that is noted, and what
//! it makes then is thrown away: what was noted is read in the transaction, and the commits are staged again.
//!
//! Heads and the catalog may be known from before the transaction. That is safe for what the transaction writes, because
//! it only matches them as they were; where anything else rests on them, [`Facts::forget_cached`] has them read again.

use crate::event_id::At;
use crate::head::{Catalog, CollectionHead, Head};
use bytes::Bytes;
use parking_lot::Mutex;
use prombus_core::{Cursor, CursorKey, Document, KnownEvent, Partition, TopicName};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use uuid::Uuid;

/// A cursor in one incarnation of its topic.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CursorId {
    pub topic: u32,
    pub reader: String,
    pub partition: Partition,
}

impl CursorId {
    pub fn new(topic: u32, key: &CursorKey) -> Self {
        Self { topic, reader: key.reader.clone(), partition: key.partition }
    }
}

/// Events of a key, the latest first, as far as they are known.
#[derive(Debug, Clone, Default)]
pub struct Latest {
    pub found: Vec<(At, Uuid)>,
    /// Whether there are no others.
    pub is_all: bool,
}

/// Something to read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    Head(TopicName),
    Collection(Arc<str>),
    Catalog,
    CollectionNames,
    /// All cursors in the first partitions of topics, and all topics.
    AllCursors,
    Cursor(CursorId),
    Document(u32, String),
    Id(u32, Uuid),
    /// Events of a key, behind those that are known.
    Latest(TopicName, String),
    /// Which documents have these values in a unique index.
    Holders(Bytes),
    /// Documents that an index is to be made of.
    Step(u32, Option<String>),
    /// What events that are given up are to be remembered by.
    Published(u32, Partition, Vec<u64>),
}

/// What is known beyond one transaction.
#[derive(Debug, Default)]
pub struct Cache {
    pub heads: HashMap<TopicName, Arc<Head>>,
    pub collections: HashMap<Arc<str>, Arc<CollectionHead>>,
    pub catalog: Option<Catalog>,
}

/// What is known while one transaction is made.
#[derive(Debug, Default)]
pub struct Facts {
    pub heads: HashMap<TopicName, Option<Arc<Head>>>,
    pub collections: HashMap<Arc<str>, Option<Arc<CollectionHead>>>,
    pub catalog: Option<Catalog>,
    pub collection_names: Option<Vec<Arc<str>>>,
    pub all_cursors: Option<Vec<(CursorId, CursorKey)>>,
    pub cursors: HashMap<CursorId, Option<Cursor>>,
    pub documents: HashMap<u32, HashMap<String, Option<Document>>>,
    pub ids: HashMap<(u32, Uuid), Option<KnownEvent>>,
    pub latest: HashMap<(TopicName, String), Latest>,
    pub holders: HashMap<Bytes, Vec<String>>,
    pub step: Option<Vec<Document>>,
    pub published: HashMap<(u32, Partition), HashMap<u64, Option<KnownEvent>>>,
    /// Whether some of this is from before the transaction.
    is_cached: bool,
    /// Behind a lock, because it is noted by whoever only looks.
    needs: Mutex<BTreeSet<Need>>,
}

impl Facts {
    /// The same, of which some is from before the transaction.
    #[must_use]
    pub fn cached(self) -> Self {
        Self { is_cached: true, ..self }
    }

    /// Has everything read again that was known before the transaction. Whether there was anything.
    pub fn forget_cached(&mut self) -> bool {
        let was_cached = std::mem::take(&mut self.is_cached);
        if was_cached {
            self.heads.clear();
            self.collections.clear();
            self.catalog = None;
            // They were read for heads that may have been others.
            self.cursors.clear();
            self.documents.clear();
            self.ids.clear();
            self.latest.clear();
            self.holders.clear();
            self.step = None;
            self.published.clear();
        }
        was_cached
    }

    /// What was asked for and is not known.
    pub fn take_needs(&self) -> BTreeSet<Need> {
        std::mem::take(&mut self.needs.lock())
    }

    fn need<T>(&self, known: Option<T>, need: impl FnOnce() -> Need) -> Option<T> {
        if known.is_none() {
            self.needs.lock().insert(need());
        }
        known
    }

    pub fn head(&self, name: &TopicName) -> Option<&Arc<Head>> {
        self.need(self.heads.get(name), || Need::Head(name.clone()))?.as_ref()
    }

    pub fn collection(&self, name: &str) -> Option<&Arc<CollectionHead>> {
        self.need(self.collections.get(name), || Need::Collection(name.into()))?.as_ref()
    }

    pub fn catalog(&self) -> Catalog {
        self.need(self.catalog, || Need::Catalog).unwrap_or_default()
    }

    pub fn collection_names(&self) -> &[Arc<str>] {
        self.need(self.collection_names.as_deref(), || Need::CollectionNames).unwrap_or_default()
    }

    pub fn all_cursors(&self) -> &[(CursorId, CursorKey)] {
        self.need(self.all_cursors.as_deref(), || Need::AllCursors).unwrap_or_default()
    }

    pub fn cursor(&self, id: &CursorId) -> Option<&Cursor> {
        self.need(self.cursors.get(id), || Need::Cursor(id.clone()))?.as_ref()
    }

    pub fn document(&self, collection: u32, key: &str) -> Option<&Document> {
        let known = self.documents.get(&collection).and_then(|documents| documents.get(key));
        self.need(known, || Need::Document(collection, key.to_owned()))?.as_ref()
    }

    pub fn published(&self, topic: u32, id: Uuid) -> Option<KnownEvent> {
        *self.need(self.ids.get(&(topic, id)), || Need::Id(topic, id))?
    }

    /// The latest event of a key that is left.
    pub fn latest(&self, topic: &TopicName, key: &str, is_left: impl Fn(At) -> bool) -> Option<Uuid> {
        let known = self.latest.get(&(topic.clone(), key.to_owned()));
        let left = known.and_then(|known| known.found.iter().find(|(at, _)| is_left(*at)));
        if left.is_none() && !known.is_some_and(|known| known.is_all) {
            self.needs.lock().insert(Need::Latest(topic.clone(), key.to_owned()));
        }
        left.map(|(_, id)| *id)
    }

    pub fn holders(&self, values: &Bytes) -> &[String] {
        let known = self.holders.get(values).map(Vec::as_slice);
        self.need(known, || Need::Holders(values.clone())).unwrap_or_default()
    }

    pub fn step(&self, collection: u32, after: Option<&str>) -> &[Document] {
        let need = || Need::Step(collection, after.map(str::to_owned));
        self.need(self.step.as_deref(), need).unwrap_or_default()
    }

    /// What events are to be remembered by that are given up, of those that are there.
    pub fn given_up(&self, topic: u32, partition: Partition, offsets: &[u64]) -> Vec<KnownEvent> {
        let known = self.published.get(&(topic, partition));
        let look = |offset: &u64| known.and_then(|known| known.get(offset));
        let missing: Vec<u64> = offsets.iter().filter(|offset| look(offset).is_none()).copied().collect();
        if !missing.is_empty() {
            self.needs.lock().insert(Need::Published(topic, partition, missing));
        }
        offsets.iter().filter_map(|offset| *look(offset)?).collect()
    }

    /// Whether a collection was there before the commits that are staged.
    pub fn is_old_collection(&self, number: u32) -> bool {
        // One that is made has asked for the catalog.
        self.catalog.is_none_or(|catalog| number < catalog.next_collection)
    }
}
