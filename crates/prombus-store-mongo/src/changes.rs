//! What commits that were staged change.

use crate::event_doc::NewEvent;
use crate::event_id::At;
use crate::facts::{CursorId, Facts};
use crate::head::{Catalog, CollectionHead, Head, Part};
use bytes::Bytes;
use prombus_core::{
    ChangedSet, CollectionState, Cursor, CursorKey, Document, KnownEvent, Offset, Offsets, Partition,
    TopicName, TopicState,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use uuid::Uuid;

/// What one commit changes, or several.
#[derive(Debug, Default)]
pub struct Changes {
    pub topics: BTreeMap<TopicName, Option<Arc<TopicState>>>,
    /// By the number of the topic, and the partition.
    pub parts: BTreeMap<(u32, u32), Part>,
    /// What topics are called of which partitions change.
    pub names: BTreeMap<u32, TopicName>,
    pub dropped_topics: Vec<u32>,
    pub given_up: Vec<GivenUp>,
    pub events: Vec<NewEvent>,
    pub ids: HashMap<(u32, Uuid), KnownEvent>,
    /// What is remembered of events that are deleted.
    pub remembered: HashMap<(u32, Uuid), KnownEvent>,
    pub keys: HashMap<(u32, String), Uuid>,
    pub cursors: BTreeMap<CursorId, (CursorKey, Option<Cursor>)>,
    pub collections: BTreeMap<Arc<str>, Option<CollectionState>>,
    pub dropped_collections: Vec<u32>,
    pub documents: BTreeMap<(u32, String), Option<Document>>,
    /// Documents that have these values in a unique index, or had them in an earlier commit.
    pub holders: HashMap<Bytes, Vec<String>>,
    /// Rows of indexes that are made: the number of the collection, the key of the document, and the key of the row.
    pub index_rows: Vec<(u32, String, Bytes)>,
    pub catalog: Option<Catalog>,
    pub changed_set: ChangedSet,
}

/// Events of one incarnation of a topic that are given up.
#[derive(Debug)]
pub struct GivenUp {
    pub topic: u32,
    pub partition: Partition,
    pub which: Which,
}

/// Which events of a partition.
#[derive(Debug)]
pub enum Which {
    /// Those below the second offset, which becomes the first; the first one was the first before.
    Below(Offset, Offset),
    /// Single ones.
    Single(Offsets),
}

impl GivenUp {
    pub fn has(&self, topic: u32, (partition, offset): At) -> bool {
        let is_one = match &self.which {
            Which::Below(_, first) => offset < *first,
            Which::Single(offsets) => offsets.contains(offset),
        };
        is_one && self.partition == partition && self.topic == topic
    }
}

impl Changes {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.topics.is_empty()
            && self.parts.is_empty()
            && self.given_up.is_empty()
            && self.events.is_empty()
            && self.cursors.is_empty()
            && self.collections.is_empty()
            && self.documents.is_empty()
            && self.index_rows.is_empty()
            && self.catalog.is_none()
    }

    /// With what a later commit changes.
    pub fn add(&mut self, later: Self) {
        self.topics.extend(later.topics);
        self.parts.extend(later.parts);
        self.names.extend(later.names);
        self.dropped_topics.extend(later.dropped_topics);
        self.given_up.extend(later.given_up);
        self.events.extend(later.events);
        self.ids.extend(later.ids);
        self.remembered.extend(later.remembered);
        self.keys.extend(later.keys);
        self.cursors.extend(later.cursors);
        self.collections.extend(later.collections);
        self.dropped_collections.extend(later.dropped_collections);
        self.documents.extend(later.documents);
        for (values, keys) in later.holders {
            self.holders.entry(values).or_default().extend(keys);
        }
        self.index_rows.extend(later.index_rows);
        self.catalog = later.catalog.or(self.catalog);
        self.changed_set.add(&later.changed_set);
    }

    /// The names of all topics whose heads change.
    pub fn topic_names(&self) -> impl Iterator<Item = &TopicName> {
        let mut names: Vec<&TopicName> = self.topics.keys().chain(self.names.values()).collect();
        names.sort_unstable();
        names.dedup();
        names.into_iter()
    }

    /// What becomes of the head of a topic; `None` where it goes.
    pub fn head(&self, facts: &Facts, name: &TopicName) -> Option<Head> {
        let before = facts.heads.get(name).and_then(Option::as_ref);
        let state = match self.topics.get(name) {
            Some(state) => state.clone()?,
            None => before?.state.clone(),
        };
        let mut head = match before {
            Some(before) if before.state.number == state.number => Head { state, ..Head::clone(before) },
            // A revision that no earlier incarnation has had, as far as this hub knows it.
            before => Head { state, rev: before.map_or(0, |before| before.rev), parts: Vec::new() },
        };
        head.rev += 1;
        head.parts.resize(head.state.config.partitions as usize, Part::default());
        let number = head.number();
        for ((_, partition), part) in self.parts.range((number, 0)..=(number, u32::MAX)) {
            if let Some(known) = head.parts.get_mut(*partition as usize) {
                *known = *part;
            }
        }
        Some(head)
    }

    /// What becomes of the head of a collection; `None` where it goes.
    pub fn collection(&self, facts: &Facts, name: &Arc<str>) -> Option<CollectionHead> {
        let state = self.collections.get(name)?.clone()?;
        let before = facts.collections.get(name).and_then(Option::as_ref);
        Some(CollectionHead { state, rev: before.map_or(0, |before| before.rev) + 1 })
    }
}
