//! The ports: what a store must do. A method's doc is its contract, and `prombus-testkit` tests each sentence.
//!
//! Pages, not streams: whoever follows a topic reads pages and waits with [`EventLog::changed`] in between,
//! so stores stay small and wrappers trivial. No method has a default, so that no wrapper silently skips one.
//! Callers stay on the runtime: a method that would block it for long (pages, histories, searches, lists) leaves it inside the
//! store; one that looks a single thing up need not where that is in memory.

use crate::collection::{CollectionState, Find, FoundDocuments};
use crate::commit::{Commit, CursorKey};
use crate::document::Document;
use crate::error::{CommitError, ReadError};
use crate::event::Event;
use crate::histogram::Histogram;
use crate::position::{Epoch, Offset, Partition, Sequence};
use crate::ticket::Ticket;
use crate::topic::{TopicName, TopicRef, TopicState};
use crate::wakes::Watched;
use async_trait::async_trait;
use bytes::Bytes;
use std::sync::Arc;
use uuid::Uuid;

/// The log: takes commits, and shows events, topics and cursors as of the last visible commit.
///
/// A read that names an incarnation of its topic gives what is of that incarnation, and once it was deleted
/// [`ReadError::TopicGone`], whatever has its name now.
#[async_trait]
pub trait EventLog: Send + Sync {
    /// Gives `commit` its place in the order, and a ticket that says what became of it: all of it happens, or none.
    ///
    /// - When this has returned, the place is fixed: the commit happens after all those that were enqueued before this
    ///   was called, in every partition, and its checks see them.
    /// - The ticket can be awaited anywhere and in any order, or be dropped: the commit goes on all the same.
    /// - This may wait until the store has room for the commit. Dropping it meanwhile does not take the commit back: it
    ///   may still happen.
    /// - An error means that the store takes no commits: [`CommitError::Unavailable`]. What is wrong with the commit
    ///   itself shows when its turn comes, and is the ticket's answer.
    ///
    /// What the ticket stands for:
    ///
    /// - Offsets continue where the partition ends, without gaps; ids that the store makes are UUIDv7 and grow
    ///   within a partition.
    /// - Everything is checked against the state that includes all earlier commits and the earlier parts of
    ///   this one: an expectation sees the earlier events of its commit.
    /// - An event whose id was published to the topic within its `dedupe_window_ms` is not appended again: the
    ///   receipt has the first one's position and `duplicate`. With another key or payload it is
    ///   [`CommitError::IdConflict`]. This is looked at before the expectation is.
    /// - Every event is placed as the topic is at that moment: see [`Placement`](crate::Placement). A named partition
    ///   that the topic does not have is [`CommitError::NoSuchPartition`].
    /// - A topic that does not exist is made just before its first event where the commit
    ///   [`makes`](crate::Commit::makes) topics or the topic is of the hub's own; otherwise it is
    ///   [`CommitError::TopicNotFound`]. Like any change of configuration it is flushed, whatever the topic asks for.
    /// - A change of a document in a collection with a changefeed is told in the changefeed's topic, as an event with its
    ///   key. Topics that do not exist and are not made are [`CommitError::ChangefeedsNotFound`], which names all of them.
    /// - What it comes to is within its [`CommitLimits`](crate::CommitLimits).
    /// - Several writes to one document are one change of it: versions count each of them, and a changefeed tells of
    ///   each, but only what the last one leaves is stored.
    /// - What is refused for a version, the owner of a collection or a cursor of a topic that is there is refused for that,
    ///   before any document is changed: it costs next to nothing, whatever the documents take.
    /// - What it makes is counted by [`ResultBytes`](crate::ResultBytes); beyond the limit of the store it is
    ///   [`CommitError::TooLarge`].
    /// - When the ticket gives a receipt, the commit is as durable as that says, and every later read through this
    ///   store sees it. It becomes visible as a whole, and after every commit with lower offsets in its partitions.
    ///
    /// The commit is shared, so that whoever tries again still has it; once it was refused, the store has let go of it.
    /// [`EventLogExt::commit`](crate::EventLogExt::commit) is both steps at once.
    async fn enqueue(&self, commit: Arc<Commit>) -> Result<Ticket, CommitError>;

    /// Events of one partition in order, from `request.from` or the first kept offset after it that has an event.
    ///
    /// At most `limit` events and about `max_bytes`, but at least one where there is one. `next` of the page is
    /// where to go on; it equals `end` when everything visible was read. Reading from `end` or beyond it gives an
    /// empty page; below the first kept offset, [`ReadError::Gone`].
    async fn read(&self, request: ReadRequest) -> Result<Page, ReadError>;

    /// What is kept of a partition.
    async fn kept(&self, topic: &TopicRef, partition: Partition) -> Result<Kept, ReadError>;

    /// The first kept offset whose event has a `ts` at or after the one asked for; the end where there is none.
    async fn offset_at(&self, request: TsRequest) -> Result<Offset, ReadError>;

    /// The event with this id, if the topic has one that is kept. Where an id came again after its window,
    /// either one may be the answer.
    async fn by_id(&self, topic: &TopicRef, id: Uuid) -> Result<Option<Event>, ReadError>;

    /// The event of this key that was committed last in the topic, if one is kept. For a key that is placed as
    /// [`Placement`](crate::Placement) promises, that is its last event in its highest partition.
    async fn latest_by_key(&self, topic: &TopicRef, key: &str) -> Result<Option<Event>, ReadError>;

    /// For each of the events of the request, the event of its key that was committed last before it, if one is kept. The
    /// cost goes by how many events of the key were given up in between.
    ///
    /// The first ones are answered, up to about `max_bytes` of what is found, and at least one.
    /// [`EventLogExt::event_before`](crate::EventLogExt::event_before) is for a single one.
    async fn previous_by_key(&self, request: PreviousRequest) -> Result<Vec<Option<Event>>, ReadError>;

    /// The kept events of one key in the order in which they were committed, over all partitions; that is
    /// also the order of partition and offset.
    ///
    /// Starts after the event at `request.after`, or at the first one. Where no event of the key is or was there, only those of
    /// that partition are sure to be told.
    /// At most `limit` events and about `max_bytes`; fewer only at the end or for the bytes, and none only at the end.
    async fn history(&self, request: HistoryRequest) -> Result<Vec<Event>, ReadError>;

    /// Erases what was [forgotten](crate::ConfigChange::Forget) before this was called. When it returns, nothing that the
    /// store keeps holds bytes of those events, of the name of their key, or of documents under that name that are gone,
    /// and none of it comes back, whatever happens. Their ids are recognised as before, and everything else is as it was.
    ///
    /// It takes as long as rewriting takes, next to nothing where nothing was forgotten, and goes on when it is dropped. An
    /// error says why it could not be done now ([`CommitError::NoRoom`] where there is no room to rewrite in): it can be
    /// asked for again, also after a restart.
    async fn erase(&self) -> Result<(), CommitError>;

    /// Moves the horizon of a topic past `past` where it is not there yet, and says where it is: a time by which the topic
    /// is complete. Every event that was recorded before it can be read now, and every event to come is recorded at it or
    /// later, in partitions to come too. It never falls while the store is open, and what is committed after it keeps it
    /// for good.
    ///
    /// So this may write: where recorded time is not past `past`, it moves on, whatever the clock says.
    ///
    /// With this, events of several partitions can be put in one order that is the same for everyone: that of
    /// recorded time, then partition, then offset.
    async fn advance_horizon(&self, topic: &TopicName, past: u64) -> Result<u64, ReadError>;

    /// Waits until something of `of` has become visible after `after`, and says up to where: all of it up to there can
    /// be read. May wake for nothing; never misses. Whoever waits for one topic costs commits to others next to nothing.
    /// Sequences count what this open store has seen: they mean nothing to another one, or after a restart.
    async fn changed(&self, of: &Watched, after: Sequence) -> Sequence;

    /// The topic of that name.
    async fn topic(&self, name: &TopicName) -> Result<Option<TopicState>, ReadError>;

    /// All topics, by name.
    async fn topics(&self) -> Result<Vec<TopicState>, ReadError>;

    /// A cursor, if it was ever moved and not removed.
    async fn cursor(&self, key: &CursorKey) -> Result<Option<Cursor>, ReadError>;

    /// Who has a cursor in the topic, of those whose names begin with `prefix`, in the order of their bytes and each
    /// once; none where there is no such topic.
    async fn readers(&self, topic: &TopicName, prefix: &str) -> Result<Vec<String>, ReadError>;

    /// How the store is doing; cheap enough for every scrape.
    fn status(&self) -> StoreStatus;

    /// Takes no more commits, makes everything durable and lets go of what it holds. Reads may fail afterwards.
    /// Closing twice is closing once.
    async fn close(&self);
}

/// Collections of documents; written only by commits.
#[async_trait]
pub trait Documents: Send + Sync {
    /// A document as of the last visible commit.
    async fn document(&self, collection: &str, key: &str) -> Result<Option<Document>, ReadError>;

    /// Documents of a collection in the order of the bytes of their keys, from the first key after
    /// `request.after`. At most `limit`; fewer only at the end.
    async fn scan(&self, request: ScanRequest) -> Result<Vec<Document>, ReadError>;

    /// The documents of a collection that meet all conditions, in the order asked for, as of one commit. Ties go by
    /// time and then by key, in the direction of the last sort key. None where there is no such collection. Which
    /// indexes there are, and how far they are made, changes how fast that is, never what is found.
    async fn find(&self, request: Find) -> Result<FoundDocuments, ReadError>;

    /// The collection of that name. An index that is being made is ready or has failed sooner or later, also after a
    /// restart, and [`EventLog::changed`] wakes whoever waits for it.
    async fn collection(&self, name: &str) -> Result<Option<CollectionState>, ReadError>;

    /// All collections, by name.
    async fn collections(&self) -> Result<Vec<CollectionState>, ReadError>;
}

/// What to read of a partition.
#[derive(Debug, Clone)]
pub struct ReadRequest {
    /// The topic.
    pub topic: TopicRef,
    /// The partition.
    pub partition: Partition,
    /// The first offset wanted.
    pub from: Offset,
    /// Maximum number of events; at least 1.
    pub limit: usize,
    /// About so many bytes.
    pub max_bytes: usize,
}

/// A page of a partition.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// The events.
    pub events: Vec<Event>,
    /// The first offset behind the events that has one, or the end.
    pub next: Offset,
    /// The first offset that was not visible when the page was read.
    pub end: Offset,
}

/// What a partition holds: `first <= offset < next`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The first offset that is kept.
    pub first: Offset,
    /// The first offset that is not visible yet.
    pub next: Offset,
}

/// What is kept of a partition, and what was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    /// The offsets between which events are kept.
    pub bounds: Bounds,
    /// The [sizes](Event::size) of the events that are kept.
    pub bytes: u64,
    /// The time from which on the events that are kept say what every key was.
    pub horizon_ts: u64,
    /// Whether events between the bounds were given up that somebody might ask for.
    pub has_holes: bool,
}

/// A place in a partition by time.
#[derive(Debug, Clone)]
pub struct TsRequest {
    /// The topic.
    pub topic: TopicRef,
    /// The partition.
    pub partition: Partition,
    /// Epoch milliseconds.
    pub ts: u64,
}

/// What to read of a key.
#[derive(Debug, Clone)]
pub struct HistoryRequest {
    /// The topic.
    pub topic: TopicRef,
    /// The key.
    pub key: String,
    /// The event after which to go on.
    pub after: Option<(Partition, Offset)>,
    /// Maximum number of events; at least 1.
    pub limit: usize,
    /// About so many bytes.
    pub max_bytes: usize,
}

/// Events, to find the one before each of them of its key.
#[derive(Debug, Clone)]
pub struct PreviousRequest {
    /// The topic.
    pub topic: TopicRef,
    /// Kept events, each by its key and its place.
    pub events: Vec<(String, (Partition, Offset))>,
    /// About so many bytes.
    pub max_bytes: usize,
}

/// What to read of a collection.
#[derive(Debug, Clone)]
pub struct ScanRequest {
    /// The collection.
    pub collection: String,
    /// The key after which to go on.
    pub after: Option<String>,
    /// Maximum number of documents; at least 1.
    pub limit: usize,
}

/// A reader's position as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// Counts its moves, from 1.
    pub version: u64,
    /// The epoch of the last move.
    pub epoch: Epoch,
    /// The first offset that is not settled.
    pub next: Offset,
    /// What the reader keeps beside.
    pub detail: Bytes,
}

/// How a store is doing.
#[derive(Debug, Clone)]
pub struct StoreStatus {
    /// What kind of store it is.
    pub kind: &'static str,
    /// Why it takes no commits, if it does not.
    pub failed: Option<String>,
    /// Whether publishes are refused for want of room.
    pub is_full: bool,
    /// What only a store of its kind can say, by name.
    pub extra: Vec<(&'static str, u64)>,
    /// How long it took to make commits durable, each time that it waited for that.
    pub flushes: Arc<Histogram>,
}

impl StoreStatus {
    /// One of the extra values; 0 where the store has none of that name.
    pub fn extra(&self, name: &str) -> u64 {
        self.extra.iter().find(|(known, _)| *known == name).map_or(0, |(_, value)| *value)
    }
}
