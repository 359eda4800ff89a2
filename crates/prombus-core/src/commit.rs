//! A commit as data: everything in it happens, or none of it.
//!
//! One call for all kinds of change, because that is what makes projections exactly-once, publishes
//! conditional and dead-lettering atomic. Every condition is on something that the same commit writes, so a
//! store whose transactions see a snapshot needs no more than to detect that two of them write the same thing.

use crate::collection::{self, CollectionConfig};
use crate::document::{DocumentWrite, WriteError, WriteOp};
use crate::error::CommitError;
use crate::event::NewEvent;
use crate::event_copy::EventCopy;
use crate::json::Json;
use crate::offsets::Offsets;
use crate::placing::NewTopics;
use crate::position::{Epoch, Offset, Partition, Sequence, TopicNumber};
use crate::topic::{Durability, TopicConfig, TopicName, TopicRef};
use bytes::Bytes;
use bytestring::ByteString;
use std::sync::Arc;
use uuid::Uuid;

/// What is to change, in this order: configuration, events, cursors, documents. A cursor may be in a topic that a changefeed
/// makes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Commit {
    /// Topics to make, alter, delete or trim.
    pub config: Vec<ConfigChange>,
    /// Events to append.
    pub events: Vec<Append>,
    /// Copies of them, which are appended behind all of them.
    pub event_copies: Vec<EventCopy>,
    /// Documents to write.
    pub documents: Vec<DocumentWrite>,
    /// Cursors to move.
    pub cursors: Vec<CursorMove>,
    /// Whose events and writes these are. The hub asks more of what comes from others; a store asks the same of all.
    pub origin: Origin,
    /// What it may come to.
    pub limits: CommitLimits,
    /// How its events make topics that do not exist, those of changefeeds too; `None` where only topics of the hub's
    /// own come into being by themselves.
    pub auto_create: Option<Arc<NewTopics>>,
    /// What its events were made for: topics as they were when these were checked. If one is another by now, the commit is
    /// [`CommitError::Outdated`].
    pub expected_topics: Vec<TopicFence>,
    /// Events that are taken only if they repeat an id, by number, from the lowest. If one does not, the commit is
    /// [`CommitError::NotDuplicate`].
    pub only_duplicates: Vec<usize>,
    /// The headers that events came with where others were put in their place for that, by the number of the event:
    /// see [`Commit::unchecked`].
    pub headers_before: Vec<(usize, Option<Box<Json>>)>,
}

/// Whose a commit is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Origin {
    /// A producer's or a consumer's.
    #[default]
    Producer,
    /// What the hub makes of users' events: those that projections publish, and dead letters that go back. New dead letters
    /// may be among them.
    Derived,
    /// The hub's own: dead letters, records of snapshots, definitions, cursors.
    Hub,
}

/// A topic as it was when a commit was made, which must still be so when it happens: see [`TopicFence::holds`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicFence {
    /// Its name.
    pub name: TopicName,
    /// Which one of that name it was, and its revision; `None` where there was none.
    pub state: Option<(TopicNumber, u64)>,
}

/// What a commit may come to, which only the store that makes it happen can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommitLimits {
    /// The largest event that a changefeed may publish: [`WriteError::ChangeTooLarge`] otherwise.
    pub event_bytes: usize,
    /// The most topics, those of the hub's own included, which may always be made: one more is
    /// [`CommitError::TooManyTopics`].
    pub topics: usize,
    /// The most collections, those of the hub's own not counted: one more is [`CommitError::TooManyCollections`].
    pub collections: usize,
    /// The most partitions that some readers may have together: more is [`CommitError::TooManyReaderPartitions`]. Whoever
    /// makes a reader, or lets a topic grow, asks for this; readers that are there go on without.
    pub reader_partitions: Option<ReaderLimit>,
}

/// How many partitions readers of one kind may have together. A reader that has a cursor in the first partition of its
/// topic has all of them, whether it has been there yet or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReaderLimit {
    /// How the names of these readers begin.
    pub readers: &'static str,
    /// How many.
    pub most: usize,
}

impl Default for CommitLimits {
    /// There are none.
    fn default() -> Self {
        let most = usize::MAX;
        Self { event_bytes: most, topics: most, collections: most, reader_partitions: None }
    }
}

impl CommitLimits {
    /// The stricter of both; of limits on readers, the own one.
    pub fn and(self, other: Self) -> Self {
        Self {
            event_bytes: self.event_bytes.min(other.event_bytes),
            topics: self.topics.min(other.topics),
            collections: self.collections.min(other.collections),
            reader_partitions: self.reader_partitions.or(other.reader_partitions),
        }
    }

    /// Refuses a change of a document whose event would be too large.
    pub fn check_change(&self, index: usize, event: &NewEvent) -> Result<(), CommitError> {
        let (bytes, limit) = (event.size(), self.event_bytes);
        if bytes <= limit {
            return Ok(());
        }
        let key = event.key.as_ref().map(ToString::to_string).unwrap_or_default();
        Err(CommitError::BadWrite { index, key, error: WriteError::ChangeTooLarge { bytes, limit } })
    }

    /// Refuses a new topic where there are `count`, as many as may be.
    pub fn check_new_topic(&self, name: &TopicName, count: usize) -> Result<(), CommitError> {
        let limit = self.topics;
        let fits = count < limit || name.is_internal();
        if fits { Ok(()) } else { Err(CommitError::TooManyTopics { limit }) }
    }

    /// Refuses a commit after which readers have more partitions than they may. `cursors` are all that there are then; they
    /// are looked at only where `at_most`, which says how many partitions their readers can have, does not decide it
    /// already. `partitions_of` says how many partitions a topic has then.
    pub fn check_readers<'a, K: Iterator<Item = &'a CursorKey>>(
        &self,
        at_most: impl FnOnce() -> usize,
        cursors: impl FnOnce() -> K,
        partitions_of: impl Fn(&TopicName) -> u32,
    ) -> Result<(), CommitError> {
        let Some(ReaderLimit { readers, most: limit }) = self.reader_partitions else { return Ok(()) };
        if at_most() <= limit {
            return Ok(());
        }
        let is_one = |key: &&CursorKey| key.partition == Partition(0) && key.reader.starts_with(readers);
        let count: usize = cursors().filter(is_one).map(|key| partitions_of(&key.topic) as usize).sum();
        if count <= limit { Ok(()) } else { Err(CommitError::TooManyReaderPartitions { limit }) }
    }

    /// Refuses a new collection where there are as many as may be. They are counted only where `at_most` does not
    /// say already that there are fewer.
    pub fn check_new_collection<'a, N: Iterator<Item = &'a Arc<str>>>(
        &self,
        name: &str,
        at_most: usize,
        all: impl FnOnce() -> N,
    ) -> Result<(), CommitError> {
        let limit = self.collections;
        let fits = || all().filter(|name| !collection::is_internal(name)).count() < limit;
        match at_most < limit || collection::is_internal(name) || fits() {
            true => Ok(()),
            false => Err(CommitError::TooManyCollections { limit }),
        }
    }
}

impl Commit {
    /// A commit of the hub's own, with nothing in it yet.
    pub fn by_hub() -> Self {
        Self { origin: Origin::Hub, ..Self::default() }
    }

    /// The size that limits go by: that of its events, their copies and its writes.
    pub fn size(&self) -> usize {
        self.event_sizes().sum::<usize>() + self.documents.iter().map(DocumentWrite::size).sum::<usize>()
    }

    /// What the commit must at least be waited for, before its topics are asked: configuration and documents
    /// belong to no single topic and are always flushed.
    pub fn least_durability(&self) -> Durability {
        let has_topic_parts = !self.events.is_empty() || !self.cursors.is_empty();
        if has_topic_parts && self.config.is_empty() && self.documents.is_empty() {
            Durability::Interval
        } else {
            Durability::Sync
        }
    }

    /// The commit as it came, without what a check against its [topics](Self::expected_topics) has left on it: whoever
    /// checks it again starts from here, because the topics may be others by then.
    pub fn unchecked(&mut self) {
        if std::mem::take(&mut self.expected_topics).is_empty() {
            return;
        }
        self.event_copies.clear();
        self.only_duplicates.clear();
        for (index, headers) in self.headers_before.drain(..) {
            if let Some(append) = self.events.get_mut(index) {
                append.event.headers = headers;
            }
        }
    }

    /// Takes out an event that the commit was refused for. The others are as they came.
    pub fn take_out(&mut self, index: usize) -> Option<Append> {
        self.unchecked();
        (index < self.events.len()).then(|| self.events.remove(index))
    }

    /// Whether it does nothing but remove: what a store takes as long as it can, because it makes room.
    pub fn only_removes(&self) -> bool {
        // There are no copies without events.
        let Self {
            config,
            events,
            event_copies: _,
            documents,
            cursors,
            origin: _,
            limits: _,
            auto_create: _,
            expected_topics: _,
            only_duplicates: _,
            headers_before: _,
        } = self;
        // The settings of a collection that goes are only there to be compared with those that it has.
        let goes = |named: &Arc<str>| {
            config
                .iter()
                .any(|change| matches!(change, ConfigChange::DropCollection { name } if name == named))
        };
        // What users delete may be told by changefeeds, which is more than removing.
        let is_definition_gone = |write: &DocumentWrite| {
            matches!(write.op, WriteOp::Delete) && collection::is_internal(&write.collection)
        };
        let removes = |change: &ConfigChange| match change {
            ConfigChange::PutCollection { name, .. } => goes(name),
            change => change.removes(),
        };
        events.is_empty()
            && documents.iter().all(is_definition_gone)
            && config.iter().all(removes)
            && cursors.iter().all(|step| step.to.is_none())
    }
}

/// What a commit may make, unless a store is told otherwise.
pub const DEFAULT_RESULT_BYTES: usize = 64 << 20;
/// The least that a store can be told: the largest document, what its changefeed tells of it and what a commit with
/// an id remembers have to fit.
pub const MIN_RESULT_BYTES: usize = 16 << 20;
/// The most that a store can be told.
pub const MAX_RESULT_BYTES: usize = 512 << 20;
/// Whatever is made counts as at least so much, because that is about what a store keeps beside it.
const LEAST_COUNTED: usize = 64;

/// Counts what a commit makes while it is staged, so that a small request cannot make a store write or hold without
/// bound: its events and those of changefeeds, cursors, and each document as large as it ever was in the commit.
#[derive(Debug, Clone, Copy)]
pub struct ResultBytes {
    counted: usize,
    limit: usize,
}

impl ResultBytes {
    /// Nothing was made yet, of at most `limit`.
    pub fn new(limit: usize) -> Self {
        Self { counted: 0, limit }
    }

    /// Counts one thing that is made.
    pub fn count(&mut self, bytes: usize) -> Result<(), CommitError> {
        self.count_more(bytes.saturating_add(LEAST_COUNTED))
    }

    /// Counts by how much a thing that was counted before has grown.
    pub fn count_more(&mut self, bytes: usize) -> Result<(), CommitError> {
        self.counted = self.counted.saturating_add(bytes);
        match self.counted > self.limit {
            true => Err(CommitError::TooLarge { bytes: self.counted, limit: self.limit }),
            false => Ok(()),
        }
    }
}

/// One event to append.
#[derive(Debug, Clone, PartialEq)]
pub struct Append {
    /// Where to.
    pub topic: TopicName,
    /// Which partition.
    pub placement: Placement,
    /// What must hold for it.
    pub expect: Option<Expect>,
    /// The event.
    pub event: NewEvent,
}

impl Append {
    /// An event that goes where its key says, unconditionally.
    pub fn new(topic: TopicName, event: NewEvent) -> Self {
        Self { topic, placement: Placement::Auto, expect: None, event }
    }
}

impl From<Vec<Append>> for Commit {
    /// Appends all of these events, or none.
    fn from(events: Vec<Append>) -> Self {
        Self { events, ..Self::default() }
    }
}

impl Placement {
    /// The partition that the producer named, if any.
    pub fn named(self) -> Option<Partition> {
        match self {
            Self::Auto => None,
            Self::Named(partition) => Some(partition),
        }
    }
}

impl From<Option<Partition>> for Placement {
    fn from(named: Option<Partition>) -> Self {
        named.map_or(Self::Auto, Self::Named)
    }
}

/// How the partition of an event is chosen, when it is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// By its key, or its producer's id, or round robin. Events of a key never go to a lower partition than its earlier
    /// ones (jump hashing sees to that), so partition and offset order them.
    Auto,
    /// The producer named it. Whoever names one for an event with a key keeps to that order.
    Named(Partition),
}

/// A condition on the latest event of the new event's key in the topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expect {
    /// The id that it must have; `None`: the key must have no event yet.
    pub last_id: Option<Uuid>,
}

/// A change of topics.
#[derive(Debug, Clone, PartialEq)]
pub enum ConfigChange {
    /// Makes a topic that does not exist.
    CreateTopic {
        /// Its name.
        name: TopicName,
        /// Its settings.
        config: TopicConfig,
    },
    /// Replaces the settings of a topic.
    AlterTopic {
        /// Its name.
        name: TopicName,
        /// The revision that the new settings were made from.
        expect_revision: u64,
        /// The new settings; partitions may only grow.
        config: TopicConfig,
    },
    /// Deletes a topic with its events and cursors.
    DeleteTopic {
        /// Its name.
        name: TopicName,
    },
    /// Gives up the events of a partition below an offset.
    Trim {
        /// The incarnation of the topic that was read.
        topic: TopicRef,
        /// The partition.
        partition: Partition,
        /// The first offset that is kept; lower than the present first, or higher than next, is clamped.
        before: Offset,
        /// What goes with them.
        loss: Loss,
    },
    /// Gives up single events of a partition and leaves holes where they were: offsets keep their numbers.
    Discard {
        /// The incarnation of the topic that was read.
        topic: TopicRef,
        /// The partition.
        partition: Partition,
        /// Their offsets; those that are not kept are passed over.
        offsets: Arc<Offsets>,
        /// What goes with them.
        loss: Loss,
    },
    /// Has the store erase a key for good the next time that it is [asked to](crate::EventLog::erase): what it still holds
    /// of events of that key that were given up, in this commit or before, and of documents under that name that are gone.
    /// What can be read stays as it is.
    Forget {
        /// The incarnation of the topic that the key is of.
        topic: TopicRef,
        /// The key.
        key: ByteString,
    },
    /// Makes a collection, or replaces the settings of one. New indexes are made for the documents that are there, at
    /// once or beside, as [`Progress`](crate::collection::Progress) says; those that failed are begun anew. A unique
    /// index over documents with the same values is refused where the store knows that at once, and fails otherwise. An
    /// index over [values that are too long](crate::collection::MAX_INDEX_VALUE_BYTES) always fails.
    PutCollection {
        /// Its name.
        name: Arc<str>,
        /// The revision that the new settings were made from; 0 where there must be no such collection.
        expect_revision: u64,
        /// The new settings.
        config: CollectionConfig,
    },
    /// Removes a collection with its documents, if it is there.
    DropCollection {
        /// Its name.
        name: Arc<str>,
    },
    /// Gives a collection the name of another one, which goes with its documents, if it is there. The settings stay.
    SwapCollection {
        /// The collection that gets another name.
        from: Arc<str>,
        /// The name that it gets.
        to: Arc<str>,
    },
}

impl ConfigChange {
    /// Whether it gives something up and adds nothing.
    fn removes(&self) -> bool {
        match self {
            Self::DeleteTopic { .. }
            | Self::Trim { .. }
            | Self::Discard { .. }
            | Self::Forget { .. }
            | Self::DropCollection { .. } => true,
            Self::CreateTopic { .. }
            | Self::AlterTopic { .. }
            | Self::PutCollection { .. }
            | Self::SwapCollection { .. } => false,
        }
    }
}

/// What goes with events that are given up, as counted by whoever has read them: a store does not read them again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Loss {
    /// Their [sizes](crate::Event::size).
    pub bytes: u64,
    /// The time from which on what is left still says what every key was; `None` where that is not told by these events,
    /// because nobody may ask for them any more.
    pub horizon_ts: Option<u64>,
}

/// Whose position in which partition.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CursorKey {
    /// The topic that is read.
    pub topic: TopicName,
    /// Who reads: a group or a projection.
    pub reader: String,
    /// The partition.
    pub partition: Partition,
}

/// A compare-and-set of one cursor, fenced by epoch.
#[derive(Debug, Clone, PartialEq)]
pub struct CursorMove {
    /// Which cursor.
    pub key: CursorKey,
    /// The incarnation of the topic that the mover has read; refused once the topic was deleted and made again.
    pub incarnation: Option<TopicNumber>,
    /// The version that it must have now; 0 where there must be none.
    pub expect_version: u64,
    /// The epoch of the mover's [claim](crate::Claim); refused if the cursor has seen a later one.
    pub epoch: Epoch,
    /// Where it goes; `None` removes it.
    pub to: Option<CursorTarget>,
}

impl CursorMove {
    /// The size that limits go by, about.
    pub fn size(&self) -> usize {
        let detail = self.to.as_ref().map_or(0, |to| to.detail.len());
        self.key.topic.as_str().len() + self.key.reader.len() + detail
    }
}

/// The content of a cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CursorTarget {
    /// The first offset that is not settled.
    pub next: Offset,
    /// What the reader needs beside (settled offsets above `next`, attempts): its own affair.
    pub detail: Bytes,
}

/// What came of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// One for each event of the commit, in order.
    pub events: Vec<Appended>,
    /// The versions of the written documents, in order; 0 for a deleted one.
    pub versions: Vec<u64>,
    /// What was waited for: the strictest that one of its topics asks for.
    pub durability: Durability,
    /// Reads of the same open store at this sequence or later see the commit.
    pub sequence: Sequence,
}

/// Where an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Its id.
    pub id: Uuid,
    /// Its partition.
    pub partition: Partition,
    /// Its offset.
    pub offset: Offset,
    /// Its event time.
    pub ts: u64,
    /// Whether it was there already, and this is the first one's position.
    pub duplicate: bool,
}
