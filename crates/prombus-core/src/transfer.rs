//! The port for moving everything that a store holds to a store of another kind, exactly as it is.
//!
//! The other ports assign offsets, ids and times themselves, so what is moved needs a way in of its own. Everything that the
//! other ports show is read through them; this one adds what they do not show, and puts pieces in as they were.
//!
//! [`fill`] and [`compare`] are the two halves of a move. Neither store is served meanwhile. What was put once may be put
//! again, so a move that was interrupted goes on where the target ends.

mod comparing;
mod filling;

pub use comparing::{Moved, Tally, compare};
pub use filling::fill;

use crate::collection::CollectionState;
use crate::commit::CursorKey;
use crate::document::Document;
use crate::error::{CommitError, ReadError};
use crate::event::Event;
use crate::ports::{Cursor, Documents, EventLog, Kept};
use crate::position::{Partition, TopicNumber};
use crate::rules::KnownEvent;
use crate::topic::{TopicName, TopicState};
use async_trait::async_trait;
use bytes::Bytes;
use filling::AT_ONCE;
use std::sync::Arc;

/// A store whose contents can be moved.
///
/// A store that takes pieces was opened for that, and takes nothing else until it is [complete](Self::complete) and was opened
/// again. Until then, nobody can open it in any other way, whatever happens to whoever fills it.
#[async_trait]
pub trait Transfer: EventLog + Documents {
    /// What the store counts.
    async fn counters(&self) -> Result<Counters, ReadError>;

    /// What recognises the ids of events that were given up: for each id of a topic that would be answered by such an event
    /// at the time of the request, that event. Ids that the store made itself may be missing.
    ///
    /// Pages begin where the one before says, and the last one says nothing. What is in a page is bounded by what the
    /// store reads at a time; it may be empty before the last. While nothing is committed, all pages together are the same
    /// whenever they are read.
    async fn remembered(&self, request: RememberedRequest) -> Result<RememberedPage, ReadError>;

    /// Cursors in a topic, in the order of their keys, from the first after `request.after`: at most `limit`, and fewer only at the
    /// end. Also those in partitions that the topic does not have.
    async fn cursors(&self, request: CursorsRequest) -> Result<Vec<(CursorKey, Cursor)>, ReadError>;

    /// Puts pieces in their order, durably when it returns; after an error, some of them may be there.
    ///
    /// A piece that is there already is as if it was not put again. Events come in the order of their offsets, behind all that
    /// their partition has; offsets that are passed over are given up.
    async fn put(&self, pieces: Vec<Piece>) -> Result<(), CommitError>;

    /// Everything was put: when this has returned, durably, the store can be opened like any other.
    async fn complete(&self) -> Result<(), CommitError>;
}

/// What is put.
#[derive(Debug, Clone, PartialEq)]
pub enum Piece {
    /// A topic, with its number.
    Topic(TopicState),
    /// Events of one partition of a topic that was put.
    Events(Vec<Event>),
    /// What is kept of a partition. Events up to its end that were not put were given up.
    Kept {
        /// The topic, which was put.
        topic: TopicName,
        /// The partition.
        partition: Partition,
        /// What is kept of it.
        kept: Kept,
    },
    /// What recognises the ids of events that were given up, with their topics, which were put.
    Remembered(Vec<(TopicName, KnownEvent)>),
    /// Cursors in topics that were put.
    Cursors(Vec<(CursorKey, Cursor)>),
    /// A collection, with its number. Its indexes are not being made; those that are ready get the rows of documents that are
    /// put later. It counts as many documents as it says.
    Collection(CollectionState),
    /// Documents of a collection that was put.
    Documents {
        /// The collection.
        collection: Arc<str>,
        /// The documents, in the order of their keys.
        documents: Vec<Document>,
    },
    /// What the store counts from: behind everything else.
    Counters(Counters),
}

/// What a store counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counters {
    /// The number of the next topic: none is used twice.
    pub next_topic: TopicNumber,
    /// The number of the next collection.
    pub next_collection: u32,
    /// Nothing was recorded later than this. Where it is put, nothing is recorded earlier.
    pub recorded_ts: u64,
}

/// Which cursors to tell.
#[derive(Debug, Clone)]
pub struct CursorsRequest {
    /// Their topic.
    pub topic: TopicName,
    /// The reader and the partition of the one after which to go on.
    pub after: Option<(String, Partition)>,
    /// Maximum number of cursors; at least 1.
    pub limit: usize,
}

impl CursorsRequest {
    /// The least key that may be asked for, and whether it is the one after which to go on.
    pub fn from(&self) -> (CursorKey, bool) {
        let (reader, partition) = self.after.clone().unwrap_or((String::new(), Partition(0)));
        (CursorKey { topic: self.topic.clone(), reader, partition }, self.after.is_some())
    }
}

/// What to tell of ids of events that were given up.
#[derive(Debug, Clone)]
pub struct RememberedRequest {
    /// The time by which windows go: an id that would not be recognised then is not told.
    pub now_ms: u64,
    /// Where the page before this says that the next one begins.
    pub from: Option<Bytes>,
}

/// Some of them.
#[derive(Debug, Clone, PartialEq)]
pub struct RememberedPage {
    /// The events, with their topics.
    pub events: Vec<(TopicName, KnownEvent)>,
    /// Where the next page begins, which only this store understands.
    pub next: Option<Bytes>,
}

/// How far a move is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransferProgress {
    /// Whether everything is there, and being compared.
    pub is_comparing: bool,
    /// How many events and documents were gone over.
    pub done: u64,
    /// How many there are, about.
    pub of: u64,
}

/// Why a move has not come to its end.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TransferError {
    /// A store cannot be read.
    #[error("the {side} cannot be read: {error}")]
    Read {
        /// Which one.
        side: &'static str,
        /// Why.
        error: ReadError,
    },
    /// The target refuses.
    #[error("the target cannot be written: {0}")]
    Put(#[from] CommitError),
    /// The target is not like the source.
    #[error(
        "{0} in the target differs from the source: the source has changed since the move began, or something else has \
         written to the target; empty the target and move again"
    )]
    Differs(String),
}

/// One of the two stores, to be read.
#[derive(Clone, Copy)]
struct Side<'a> {
    name: &'static str,
    store: &'a dyn Transfer,
}

impl<'a> Side<'a> {
    fn source(store: &'a dyn Transfer) -> Self {
        Self { name: "source", store }
    }

    fn target(store: &'a dyn Transfer) -> Self {
        Self { name: "target", store }
    }

    /// What was read, or that it could not be.
    fn read<T>(&self, read: Result<T, ReadError>) -> Result<T, TransferError> {
        read.map_err(|error| TransferError::Read { side: self.name, error })
    }

    /// A page of the cursors in a topic.
    async fn cursors(
        &self,
        topic: &TopicName,
        after: Option<(String, Partition)>,
    ) -> Result<Vec<(CursorKey, Cursor)>, TransferError> {
        let request = CursorsRequest { topic: topic.clone(), after, limit: AT_ONCE };
        self.read(self.store.cursors(request).await)
    }

    /// How many events and documents there are, about.
    async fn size(&self) -> Result<u64, TransferError> {
        let mut size = 0;
        for topic in self.read(self.store.topics().await)? {
            for partition in 0..topic.config.partitions {
                let kept = self.store.kept(&topic.pinned(), Partition(partition)).await;
                let bounds = self.read(kept)?.bounds;
                size += bounds.next.0 - bounds.first.0;
            }
        }
        let collections = self.read(self.store.collections().await)?;
        Ok(size + collections.iter().map(|state| state.documents).sum::<u64>())
    }
}

/// Counts on the way.
struct Counting<'a> {
    progress: TransferProgress,
    tell: &'a mut (dyn FnMut(TransferProgress) + Send),
}

impl Counting<'_> {
    fn add(&mut self, more: u64) {
        self.progress.done += more;
        (self.tell)(self.progress);
    }
}
