//! What readers see: topics, the ends of partitions, documents and cursors, as of one commit.
//!
//! The collections are persistent, so a view costs next to nothing to keep: the writer works on its own, a
//! failed commit goes back to the one before, and readers get a new one in one step once it is durable.

use crate::position::{PartitionRef, Pos};
use imbl::{HashMap, OrdMap};
use prombus_core::{Cursor, CursorKey, Document, TopicName, TopicState};
use std::sync::Arc;
use uuid::Uuid;

/// The kept offsets of a partition: `first <= offset < next`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// The first that is kept.
    pub first: u64,
    /// The first that is not written.
    pub next: u64,
}

/// The state as of one commit.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct View {
    /// How many commits there were.
    pub sequence: u64,
    /// The end of the last batch.
    pub end: Pos,
    /// Topics by name.
    pub topics: OrdMap<TopicName, Arc<TopicState>>,
    /// Partitions that ever had an event or were trimmed.
    pub spans: HashMap<PartitionRef, Span>,
    /// Documents by collection and key.
    pub documents: OrdMap<(String, String), Arc<Document>>,
    /// Cursors.
    pub cursors: OrdMap<CursorKey, Arc<Cursor>>,
    /// The number of the next topic.
    pub next_topic: u32,
    /// When the last commit was taken.
    pub last_recorded_ts: u64,
    /// The greatest id that the engine has made.
    pub last_hub_id: Uuid,
}

/// A change of the state beside events, as it is logged.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// A topic as it is now.
    Topic(TopicState),
    /// A topic is gone.
    TopicGone(TopicName),
    /// The bounds of a partition (after a trim, and in checkpoints).
    Span(PartitionRef, Span),
    /// A document of a collection as it is now.
    Document(String, Document),
    /// A document of a collection is gone.
    DocumentGone(String, String),
    /// A cursor as it is now.
    Cursor(CursorKey, Cursor),
    /// A cursor is gone.
    CursorGone(CursorKey),
    /// The counters of a checkpoint.
    Counters(Counters),
}

/// What a checkpoint holds beside topics, documents and cursors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counters {
    /// How many commits there were.
    pub sequence: u64,
    /// From where the journal is to be applied.
    pub end: Pos,
    /// The number of the next topic.
    pub next_topic: u32,
    /// When the last commit was taken.
    pub last_recorded_ts: u64,
    /// The greatest id that the engine has made.
    pub last_hub_id: Uuid,
    /// The epoch of the run that wrote it.
    pub epoch: u64,
}

impl View {
    /// The bounds of a partition.
    pub fn span(&self, partition: PartitionRef) -> Span {
        self.spans.get(&partition).copied().unwrap_or_default()
    }

    /// Makes a change.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Topic(state) => {
                self.next_topic = self.next_topic.max(state.number.0 + 1);
                self.topics.insert(state.name.clone(), Arc::new(state));
            }
            Change::TopicGone(name) => self.remove_topic(&name),
            Change::Span(partition, span) => {
                self.spans.insert(partition, span);
            }
            Change::Document(collection, document) => {
                self.documents.insert((collection, document.key.clone()), Arc::new(document));
            }
            Change::DocumentGone(collection, key) => {
                self.documents.remove(&(collection, key));
            }
            Change::Cursor(key, cursor) => {
                self.cursors.insert(key, Arc::new(cursor));
            }
            Change::CursorGone(key) => {
                self.cursors.remove(&key);
            }
            Change::Counters(counters) => {
                self.sequence = counters.sequence;
                self.end = counters.end;
                self.next_topic = counters.next_topic;
                self.last_recorded_ts = counters.last_recorded_ts;
                self.last_hub_id = counters.last_hub_id;
            }
        }
    }

    fn remove_topic(&mut self, name: &TopicName) {
        let Some(topic) = self.topics.remove(name) else { return };
        for partition in 0..topic.config.partitions {
            self.spans.remove(&PartitionRef { topic: topic.number.0, partition });
        }
        let gone: Vec<CursorKey> = self.cursors.keys().filter(|key| key.topic == *name).cloned().collect();
        for key in gone {
            self.cursors.remove(&key);
        }
    }

    /// Everything as changes that make it anew, for a checkpoint.
    pub fn changes(&self, epoch: u64) -> impl Iterator<Item = Change> + '_ {
        let topics = self.topics.values().map(|topic| Change::Topic((**topic).clone()));
        let spans = self.spans.iter().map(|(partition, span)| Change::Span(*partition, *span));
        let documents = self
            .documents
            .iter()
            .map(|((collection, _), d)| Change::Document(collection.clone(), (**d).clone()));
        let cursors =
            self.cursors.iter().map(|(key, cursor)| Change::Cursor(key.clone(), (**cursor).clone()));
        let counters = Change::Counters(Counters {
            sequence: self.sequence,
            end: self.end,
            next_topic: self.next_topic,
            last_recorded_ts: self.last_recorded_ts,
            last_hub_id: self.last_hub_id,
            epoch,
        });
        topics.chain(spans).chain(documents).chain(cursors).chain([counters])
    }
}
