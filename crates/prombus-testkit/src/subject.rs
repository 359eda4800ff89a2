//! What is tested: a fresh, empty store, with short ways to use it that fail loudly.

use crate::build::{self, Draft};
use prombus_core::{
    Append, Appended, Bounds, Commit, CommitError, ConfigChange, Cursor, CursorKey, Document, Documents,
    Event, EventLog, EventLogExt, HistoryRequest, Kept, Loss, ManualClock, Offset, Partition, Placement,
    ReadError, ReadRequest, Receipt, TopicConfig, TopicName, TopicState, TsRequest,
};
use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;
use uuid::Uuid;

/// How many events the helpers read at once.
const PAGE_EVENTS: usize = 100;
/// About how many bytes the helpers read at once.
pub(crate) const PAGE_BYTES: usize = 1 << 20;

/// How often a commit is tried again when the store is busy.
const MAX_TRIES: usize = 1_000;

/// A fresh, empty store under test.
pub struct Subject {
    /// The log.
    pub log: Arc<dyn EventLog>,
    /// The documents of the same store; the `state` suite needs them.
    pub documents: Option<Arc<dyn Documents>>,
    /// The clock that the store goes by; the `log_exact` suite needs it.
    pub clock: Option<Arc<ManualClock>>,
    /// What must live as long as the store: a folder, a server. A [`Reopen`] can open it again.
    pub keep: Box<dyn Any + Send + Sync>,
}

/// Kept by a [`Subject`] whose store can be opened again once it was closed.
pub struct Reopen {
    /// What must live as long as the store.
    pub keep: Box<dyn Any + Send + Sync>,
    /// Opens the same store.
    pub open: Box<dyn Fn() -> Subject + Send + Sync>,
}

impl Subject {
    /// A store that goes by `clock` and needs nothing kept alive.
    pub fn new<S: EventLog + Documents + 'static>(store: Arc<S>, clock: Arc<ManualClock>) -> Self {
        Self { log: store.clone(), documents: Some(store), clock: Some(clock), keep: Box::new(()) }
    }

    /// The store after it was closed and opened again; a store that cannot be goes on as it is.
    #[must_use]
    pub async fn reopened(self) -> Self {
        let Self { log, documents, clock, keep } = self;
        let keep: Box<Reopen> = match keep.downcast() {
            Ok(reopen) => reopen,
            Err(keep) => return Self { log, documents, clock, keep },
        };
        log.close().await;
        drop((log, documents));
        let opened = (keep.open)();
        Self { keep, clock, ..opened }
    }

    /// The clock. Panics where the test cannot hold it.
    pub fn clock(&self) -> &ManualClock {
        match &self.clock {
            Some(clock) => clock,
            None => panic!("this suite needs a subject with a manual clock"),
        }
    }

    /// The documents. Panics where there are none.
    pub fn documents(&self) -> &dyn Documents {
        match &self.documents {
            Some(documents) => documents.as_ref(),
            None => panic!("this suite needs a subject with documents"),
        }
    }

    /// Commits. Tries again where others get in the way, as anyone has to.
    pub async fn commit(&self, commit: Commit) -> Result<Receipt, CommitError> {
        let commit = Arc::new(commit);
        for _ in 0..MAX_TRIES {
            match self.log.commit(commit.clone()).await {
                Err(CommitError::Busy) => tokio::task::yield_now().await,
                answer => return answer,
            }
        }
        Err(CommitError::Busy)
    }

    /// Commits one change of topics.
    pub async fn configure(&self, change: ConfigChange) -> Result<Receipt, CommitError> {
        self.commit(Commit { config: vec![change], ..Commit::default() }).await
    }

    /// Makes a topic.
    pub async fn create(&self, name: &str, config: TopicConfig) -> TopicName {
        let name = build::topic(name);
        let change = ConfigChange::CreateTopic { name: name.clone(), config };
        must(self.configure(change).await, "a topic that does not exist can be made");
        name
    }

    /// Deletes a topic.
    pub async fn delete(&self, name: &TopicName) {
        let change = ConfigChange::DeleteTopic { name: name.clone() };
        must(self.configure(change).await, "a topic that exists can be deleted");
    }

    /// Changes the settings of a topic.
    pub async fn alter(
        &self,
        name: &TopicName,
        change: impl FnOnce(&mut TopicConfig),
    ) -> Result<Receipt, CommitError> {
        let TopicState { revision, mut config, .. } = self.topic(name).await;
        change(&mut config);
        let name = name.clone();
        self.configure(ConfigChange::AlterTopic { name, expect_revision: revision, config }).await
    }

    /// Makes a topic grow.
    pub async fn grow(&self, name: &TopicName, partitions: u32) {
        must(self.alter(name, |config| config.partitions = partitions).await, "partitions can grow");
    }

    /// Gives up the events of a partition below an offset.
    pub async fn trim(&self, topic: &TopicName, partition: u32, before: u64) {
        let (partition, before) = (Partition(partition), Offset(before));
        let change = ConfigChange::Trim { topic: topic.into(), partition, before, loss: Loss::default() };
        must(self.configure(change).await, "a partition can be trimmed");
    }

    /// Gives up single events of a partition.
    pub async fn discard(&self, topic: &TopicName, partition: u32, offsets: &[u64]) {
        let change = ConfigChange::Discard {
            topic: topic.into(),
            partition: Partition(partition),
            offsets: Arc::new(offsets.iter().copied().map(Offset).collect()),
            loss: Loss::default(),
        };
        must(self.configure(change).await, "single events can be given up");
    }

    /// Events for a topic: by the key, or in the partition that the producer named, or else in 0, so that a test knows
    /// where they are.
    pub fn place(&self, topic: &TopicName, drafts: impl IntoIterator<Item = Draft>) -> Vec<Append> {
        let place = |Draft { event, partition, expect }| {
            let placement = match &event.key {
                Some(_) => Placement::Auto,
                None => Placement::Named(partition.unwrap_or_default()),
            };
            Append { topic: topic.clone(), placement, expect, event }
        };
        drafts.into_iter().map(place).collect()
    }

    /// Publishes events to one topic, all or none.
    pub async fn publish(
        &self,
        topic: &TopicName,
        drafts: impl IntoIterator<Item = Draft>,
    ) -> Result<Receipt, CommitError> {
        let events = self.place(topic, drafts);
        self.commit(Commit { events, ..Commit::default() }).await
    }

    /// Publishes events that nothing speaks against.
    pub async fn published(
        &self,
        topic: &TopicName,
        drafts: impl IntoIterator<Item = Draft>,
    ) -> Vec<Appended> {
        let receipt = must(self.publish(topic, drafts).await, "a commit that nothing speaks against happens");
        receipt.events
    }

    /// Publishes one event that nothing speaks against.
    pub async fn published_one(&self, topic: &TopicName, draft: Draft) -> Appended {
        match self.published(topic, [draft]).await[..] {
            [appended] => appended,
            ref other => panic!("a receipt has one entry for each event of the commit: {other:?}"),
        }
    }

    /// Publishes events that must be refused.
    pub async fn refused(&self, topic: &TopicName, drafts: impl IntoIterator<Item = Draft>) -> CommitError {
        refusal(self.publish(topic, drafts).await)
    }

    /// A topic that must exist.
    pub async fn topic(&self, name: &TopicName) -> TopicState {
        match must(self.log.topic(name).await, "a topic can be looked up") {
            Some(state) => state,
            None => panic!("topic {name} was made and not deleted, so it exists"),
        }
    }

    /// Everything that a partition holds, read page by page.
    pub async fn all(&self, topic: &TopicName, partition: u32) -> Vec<Event> {
        let first = self.bounds(topic, partition).await.first;
        let (mut events, mut from) = (Vec::new(), first);
        loop {
            let request = self.page(topic, partition, from);
            let page = must(self.log.read(request).await, "a kept offset can be read");
            if page.events.is_empty() {
                return events;
            }
            assert!(page.next > from, "the next page lies after this one");
            events.extend(page.events);
            from = page.next;
        }
    }

    /// A request for a page of a usual size.
    pub fn page(&self, topic: &TopicName, partition: u32, from: Offset) -> ReadRequest {
        let (topic, partition) = (topic.into(), Partition(partition));
        ReadRequest { topic, partition, from, limit: PAGE_EVENTS, max_bytes: PAGE_BYTES }
    }

    /// What is kept of a partition.
    pub async fn kept(&self, topic: &TopicName, partition: u32) -> Kept {
        must(self.log.kept(&topic.into(), Partition(partition)).await, "a partition says what it keeps")
    }

    /// The bounds of a partition that must exist.
    pub async fn bounds(&self, topic: &TopicName, partition: u32) -> Bounds {
        must(self.log.bounds(&topic.into(), Partition(partition)).await, "a partition has bounds")
    }

    /// The event with this id.
    pub async fn by_id(&self, topic: &TopicName, id: Uuid) -> Option<Event> {
        must(self.log.by_id(&topic.into(), id).await, "events can be looked up by id")
    }

    /// The latest event of a key.
    pub async fn latest(&self, topic: &TopicName, key: &str) -> Option<Event> {
        must(self.log.latest_by_key(&topic.into(), key).await, "events can be looked up by key")
    }

    /// The whole history of a key, read in pages of `limit`.
    pub async fn history(&self, topic: &TopicName, key: &str, limit: usize) -> Vec<Event> {
        let mut events: Vec<Event> = Vec::new();
        loop {
            let after = events.last().map(|event| (event.partition, event.offset));
            let (topic, key) = (topic.into(), key.to_owned());
            let request = HistoryRequest { topic, key, after, limit, max_bytes: PAGE_BYTES };
            let page = must(self.log.history(request).await, "the history of a key can be read");
            assert!(page.len() <= limit, "a page of history has at most `limit` events");
            if page.is_empty() {
                return events;
            }
            events.extend(page);
        }
    }

    /// The first kept offset with a `ts` at or after this one.
    pub async fn offset_at(&self, topic: &TopicName, partition: u32, ts: u64) -> Offset {
        let request = TsRequest { topic: topic.into(), partition: Partition(partition), ts };
        must(self.log.offset_at(request).await, "a place can be found by time")
    }

    /// A cursor.
    pub async fn cursor(&self, key: &CursorKey) -> Option<Cursor> {
        must(self.log.cursor(key).await, "a cursor can be looked up")
    }

    /// Who has a cursor in a topic.
    pub async fn readers(&self, topic: &TopicName, prefix: &str) -> Vec<String> {
        must(self.log.readers(topic, prefix).await, "readers can be looked up")
    }

    /// A document.
    pub async fn document(&self, collection: &str, key: &str) -> Option<Document> {
        must(self.documents().document(collection, key).await, "a document can be looked up")
    }

    /// Fails unless a partition holds just what these payloads say, from offset 0.
    pub async fn assert_holds(&self, topic: &TopicName, partition: u32, payloads: &[&str]) {
        let events = self.all(topic, partition).await;
        let found: Vec<&[u8]> = events.iter().map(|event| event.payload.as_bytes()).collect();
        let wanted: Vec<&[u8]> = payloads.iter().map(|payload| payload.as_bytes()).collect();
        assert_eq!(found, wanted, "{topic} holds what was committed and nothing else");
        let next = Offset(payloads.len() as u64);
        assert_eq!(self.bounds(topic, partition).await, Bounds { first: Offset(0), next });
    }
}

/// The value, or a panic that names the broken promise.
#[track_caller]
pub(crate) fn must<T, E: Debug>(result: Result<T, E>, promise: &str) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{promise}, but: {error:?}"),
    }
}

/// The error, or a panic because there is none.
#[track_caller]
pub(crate) fn refusal(result: Result<Receipt, CommitError>) -> CommitError {
    match result {
        Ok(receipt) => panic!("this commit must be refused, but: {receipt:?}"),
        Err(error) => error,
    }
}

/// Fails unless an answer says that the topic does not exist.
#[track_caller]
pub(crate) fn assert_no_topic<T: Debug>(answer: Result<T, ReadError>, topic: &TopicName) {
    match answer {
        Err(ReadError::TopicNotFound(name)) if name == *topic => {}
        other => panic!("a read of topic {topic}, which does not exist, must say so, but: {other:?}"),
    }
}

/// Fails unless `event` is the one that the receipt speaks of.
#[track_caller]
pub(crate) fn assert_is(event: Option<&Event>, appended: &Appended) {
    let found = event.map(|event| (event.id, event.partition, event.offset, event.ts));
    let wanted = (appended.id, appended.partition, appended.offset, appended.ts);
    assert_eq!(found, Some(wanted), "an event is where its receipt says, with the id and ts that it says");
}
