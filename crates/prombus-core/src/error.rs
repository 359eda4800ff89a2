//! What can go wrong with a commit and with a read.

use crate::collection::{BadFind, MAX_INDEX_VALUE_BYTES};
use crate::document::WriteError;
use crate::position::{Epoch, Offset, Partition};
use crate::topic::TopicName;
use uuid::Uuid;

/// Why a commit did not happen. Nothing of it did, except where that is [not known](CommitError::Unknown).
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CommitError {
    /// A topic of the commit does not exist.
    #[error("topic {0} does not exist")]
    TopicNotFound(TopicName),
    /// A topic to be made exists already.
    #[error("topic {0} already exists")]
    TopicExists(TopicName),
    /// The topic was altered since its settings were read.
    #[error("topic {0} was changed by someone else; read it again")]
    TopicChanged(TopicName),
    /// A topic was altered, deleted or made anew since its events were checked.
    #[error("topic {0} was changed while events were on their way to it; try again")]
    Outdated(TopicName),
    /// Partitions can only grow.
    #[error("topic {topic} has {now} partitions and cannot be reduced to {asked}")]
    PartitionsShrink {
        /// The topic.
        topic: TopicName,
        /// How many it has.
        now: u32,
        /// How many were asked for.
        asked: u32,
    },
    /// A topic got more partitions as often as it may.
    #[error(
        "topic {topic} was given more partitions {limit} times, which is the maximum; grow topics in larger steps"
    )]
    TooManyGrowths {
        /// The topic.
        topic: TopicName,
        /// How often it may.
        limit: usize,
    },
    /// A cursor was to move in an incarnation of its topic that is no more.
    #[error("topic {0} was deleted and recreated since it was read")]
    TopicReplaced(TopicName),
    /// The topic has no such partition.
    #[error("partition {partition} does not exist: topic {topic} has {partitions}, numbered from 0")]
    NoSuchPartition {
        /// Which event of the commit.
        index: usize,
        /// The topic.
        topic: TopicName,
        /// The partition that was named.
        partition: Partition,
        /// How many there are.
        partitions: u32,
    },
    /// The id was used for something else.
    #[error("id {id} was already published to this topic with another payload or key")]
    IdConflict {
        /// Which event of the commit.
        index: usize,
        /// The id.
        id: Uuid,
    },
    /// An event was to be taken only [as a duplicate](crate::Commit::only_duplicates), and is none.
    #[error("event {index} of the commit is not a duplicate of one that was published before")]
    NotDuplicate {
        /// Which event of the commit.
        index: usize,
    },
    /// The latest event of the key is not the expected one.
    #[error("the latest event of this key is {}, not the expected one", .actual.map_or("none".to_owned(), |id| id.to_string()))]
    ExpectationFailed {
        /// Which event of the commit.
        index: usize,
        /// The id of the latest event of the key.
        actual: Option<Uuid>,
    },
    /// A document has another version.
    #[error("document {key:?} of collection {collection} has version {actual}")]
    VersionConflict {
        /// The collection.
        collection: String,
        /// The document's key.
        key: String,
        /// The version that it has; 0 where it does not exist.
        actual: u64,
    },
    /// A document write makes no sense.
    #[error("document {key:?}: {error}")]
    BadWrite {
        /// Which document write of the commit.
        index: usize,
        /// The document's key.
        key: String,
        /// Why.
        error: WriteError,
    },
    /// Another document has the same values in a unique index.
    #[error("document {key:?} of collection {collection} has the same {} as {other:?}, and they must be unique", .fields.join(", "))]
    NotUnique {
        /// Which document write of the commit.
        index: usize,
        /// The collection.
        collection: String,
        /// The document's key.
        key: String,
        /// The key of the document that has these values.
        other: String,
        /// The fields of the index.
        fields: Vec<String>,
    },
    /// A document has values that are longer than an index takes.
    #[error(
        "the values that document {key:?} of collection {collection} has in the index on {} take {bytes} bytes, more than the {MAX_INDEX_VALUE_BYTES} that an index takes of a document; shorten them, index a field that is shorter (a hash of them, say), or remove the index",
        .fields.join(", ")
    )]
    IndexValueTooLong {
        /// Which document write of the commit.
        index: usize,
        /// The collection.
        collection: String,
        /// The document's key.
        key: String,
        /// The fields of the index.
        fields: Vec<String>,
        /// What the values take.
        bytes: usize,
    },
    /// The collection belongs to someone else.
    #[error("collection {collection} is written by {}, and by nothing else", .owner.as_ref().map_or("commits".to_owned(), |name| format!("projection {name:?}")))]
    NotOwner {
        /// The collection.
        collection: String,
        /// The projection that owns it, unless commits do.
        owner: Option<String>,
    },
    /// Topics that changefeeds of the commit publish to do not exist.
    #[error("a changefeed publishes to a topic that does not exist: {}", .0.iter().map(TopicName::as_str).collect::<Vec<_>>().join(", "))]
    ChangefeedsNotFound(Vec<TopicName>),
    /// There are as many topics as may be.
    #[error("limits.topics is reached: there are {limit} topics already")]
    TooManyTopics {
        /// The limit.
        limit: usize,
    },
    /// There are as many collections as may be.
    #[error("limits.collections is reached: there are {limit} collections already")]
    TooManyCollections {
        /// The limit.
        limit: usize,
    },
    /// Readers have as many partitions as they may.
    #[error(
        "there would be more than {limit} partitions of consumer groups, as many as limits.group_partitions allows; \
         delete groups that nobody uses"
    )]
    TooManyReaderPartitions {
        /// The limit.
        limit: usize,
    },
    /// A collection of the commit does not exist.
    #[error("collection {0} does not exist")]
    CollectionNotFound(String),
    /// The collection was altered since its settings were read.
    #[error("collection {0} was changed by someone else; read it again")]
    CollectionChanged(String),
    /// The mover's epoch is over: a hub that has the topic since has moved the cursor.
    #[error("cursor of {reader} was moved in a later epoch than {epoch}: another hub has the topic now")]
    EpochOver {
        /// Whose cursor.
        reader: String,
        /// The mover's epoch.
        epoch: Epoch,
    },
    /// A cursor was moved by someone else.
    #[error("cursor of {reader} was moved by someone else")]
    CursorMoved {
        /// Whose cursor.
        reader: String,
        /// The version that it has; 0 where it does not exist.
        actual: u64,
    },
    /// The commit makes more than the store takes in one piece: see [`ResultBytes`](crate::ResultBytes).
    #[error(
        "what the commit makes was counted up to {bytes} bytes, more than the {limit} that it may (limits.result_bytes, or what the store takes in one piece); do less in one commit"
    )]
    TooLarge {
        /// What was counted when it was refused.
        bytes: usize,
        /// What is possible.
        limit: usize,
    },
    /// There is no room for more events. Reads go on, and so do changes that make room.
    #[error("the store has no room left; once there is some, the same commit can be made")]
    NoRoom,
    /// Others change the same things at the same time. Nothing happened: try again.
    #[error("too many conflicting commits; try again")]
    Busy,
    /// The store takes no commits now, and has not taken this one.
    #[error("the store takes no commits: {0}")]
    Unavailable(String),
    /// The store failed while this one was under way: it has happened as a whole, or not at all. It is not seen before
    /// the store is opened again, if it is then.
    #[error("it is not known whether this was committed: {0}; what has an id can be repeated safely")]
    Unknown(String),
}

/// What helps after a commit was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// Nothing: it would be refused again.
    Never,
    /// The same commit, a moment later: others were in the way.
    Same,
    /// A new commit, made from what is there now: what this one was made from has changed since.
    Anew,
    /// The same commit, once somebody has made room for it, or has made what it needs.
    WithRoom,
    /// The same commit, once the store takes commits again.
    Later,
}

impl CommitError {
    /// What helps against this error. The one list for everybody who tries again.
    pub fn retry(&self) -> Retry {
        match self {
            // Whatever looks at topics on the way in looks again.
            Self::Busy | Self::Outdated(_) => Retry::Same,
            Self::TopicNotFound(_)
            | Self::TopicExists(_)
            | Self::TopicChanged(_)
            | Self::TopicReplaced(_)
            | Self::CollectionChanged(_)
            | Self::EpochOver { .. }
            | Self::CursorMoved { .. } => Retry::Anew,
            Self::NoRoom
            | Self::ChangefeedsNotFound(_)
            | Self::TooManyTopics { .. }
            | Self::TooManyCollections { .. } => Retry::WithRoom,
            Self::Unavailable(_) | Self::Unknown(_) => Retry::Later,
            Self::PartitionsShrink { .. }
            | Self::TooManyGrowths { .. }
            | Self::NoSuchPartition { .. }
            | Self::IdConflict { .. }
            | Self::NotDuplicate { .. }
            | Self::ExpectationFailed { .. }
            | Self::VersionConflict { .. }
            | Self::BadWrite { .. }
            | Self::NotUnique { .. }
            | Self::IndexValueTooLong { .. }
            | Self::NotOwner { .. }
            | Self::TooManyReaderPartitions { .. }
            | Self::CollectionNotFound(_)
            | Self::TooLarge { .. } => Retry::Never,
        }
    }
}

/// Why a read has no answer.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ReadError {
    /// The topic does not exist.
    #[error("topic {0} does not exist")]
    TopicNotFound(TopicName),
    /// The incarnation of the topic that was asked for was deleted.
    #[error(
        "topic {0} was deleted in the meantime; if one of that name exists now, it is a different one: start over"
    )]
    TopicGone(TopicName),
    /// The topic has no such partition.
    #[error("topic {topic} has {partitions} partitions, numbered from 0")]
    NoSuchPartition {
        /// The topic.
        topic: TopicName,
        /// How many it has.
        partitions: u32,
    },
    /// What was asked for is no longer kept.
    #[error("offsets below {first} are no longer kept")]
    Gone {
        /// The first offset that is.
        first: Offset,
    },
    /// The query makes no sense, or asks for too much.
    #[error(transparent)]
    BadFind(#[from] BadFind),
    /// Events are to be read as those of the latest schema version, and nothing raises those of one version to the next.
    #[error(
        "events of topic {topic} cannot be normalized: there is no upcaster from version {from}; add one with PUT /v1/schemas/{topic}/upcasters/{from}"
    )]
    NoUpcaster {
        /// The topic.
        topic: TopicName,
        /// The version that nothing leads on from.
        from: u32,
    },
    /// An event is to be read as one of the latest schema version, and cannot be.
    #[error(
        "event {id} of topic {topic} (partition {partition}, offset {offset}) cannot be normalized: {why}"
    )]
    NotRaised {
        /// The topic.
        topic: TopicName,
        /// Its partition.
        partition: Partition,
        /// Its offset.
        offset: Offset,
        /// Its id.
        id: Uuid,
        /// Why not.
        why: String,
    },
    /// The stored bytes are not what was written.
    #[error("the store is damaged: {0}")]
    Corrupt(String),
    /// The store cannot be read now.
    #[error("the store cannot be read: {0}")]
    Unavailable(String),
}
