//! Commits of consumers: acks, writes and publishes in one transaction.

mod early;
mod memory;

use crate::bus::{Bus, BusError};
use crate::groups::{GroupError, GroupName, Groups, LeaseToken};
use crate::hub::Outgoing;
use memory::{Done, Memory, Name};
use prombus_core::collection::{self, MAX_KEY_BYTES};
use prombus_core::{
    Append, Appended, Clock, Commit, DocumentWrite, Documents, Json, ReadError, Receipt, TopicName,
    Versioning, WriteOp,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;

/// The longest id of a commit, in bytes.
pub const MAX_COMMIT_ID_BYTES: usize = 200;
/// The longest name of a caller, in bytes.
pub const MAX_CALLER_BYTES: usize = 200;

/// What a consumer wants to have happen as a whole.
#[derive(Debug, Clone, Default)]
pub struct CommitRequest {
    /// Who asks, by a name that stays the same; `None` is one who has none, like all others without one.
    pub caller: Option<String>,
    /// The same one of the same caller within 24 hours is answered as it was first, and nothing happens; with anything
    /// else in the request it is [`CommitRefused::IdConflict`].
    pub commit_id: Option<String>,
    /// Leases to settle.
    pub acks: Vec<LeaseToken>,
    /// Documents to write.
    pub writes: Vec<CommitWrite>,
    /// Events to publish.
    pub publish: Vec<(TopicName, Outgoing)>,
}

/// One write of a commit.
#[derive(Debug, Clone)]
pub struct CommitWrite {
    /// The collection.
    pub collection: String,
    /// The document's key.
    pub key: String,
    /// What to do: `Set`, `Merge`, `Inc` or `Delete`.
    pub op: WriteOp,
    /// The version that the document must have; 0 where there must be none.
    pub if_version: Option<u64>,
}

/// The group that a lease belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseOf {
    /// The topic.
    pub topic: TopicName,
    /// The group.
    pub group: GroupName,
}

/// Why a commit did not happen. Nothing of it did.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CommitRefused {
    /// The request makes no sense.
    #[error("{0}")]
    Bad(String),
    /// A lease has expired, was settled, or passed on.
    #[error("the lease {0} has expired, was already settled, or was superseded; nothing was committed")]
    LeaseExpired(LeaseToken),
    /// The id stands for another commit.
    #[error("commit_id {0:?} was used for another commit in the last 24 hours; nothing was committed")]
    IdConflict(String),
    /// A group cannot go on.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// The store cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The bus refused it. The index of an error is that of the event in `publish`.
    #[error(transparent)]
    Bus(#[from] BusError),
}

/// What a commit has done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitAnswer {
    /// `{"events": [...], "versions": {collection: {key: version}}}`, as it was answered first.
    pub body: Json,
    /// How many events were published to each topic just now, duplicates not counted.
    pub published: BTreeMap<TopicName, u64>,
    /// Whether it had been done before. Then nothing was done just now.
    pub repeated: bool,
}

/// What comes of a commit that has its place in the order. It goes on whether or not this is awaited.
pub type Pending<T> = Pin<Box<dyn Future<Output = Result<T, CommitRefused>> + Send>>;

/// The commits of consumers.
pub(crate) struct Commits {
    groups: Arc<Groups>,
    bus: Arc<dyn Bus>,
    clock: Arc<dyn Clock>,
    memory: Arc<Memory>,
}

impl Commits {
    pub fn new(
        groups: Arc<Groups>,
        documents: Arc<dyn Documents>,
        bus: Arc<dyn Bus>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let memory = Arc::new(Memory::new(documents, bus.clone(), clock.clone()));
        Self { groups, bus, clock, memory }
    }

    /// Gives a request its place in the order; all of it is done, or none of it.
    pub async fn enqueue(&self, request: CommitRequest) -> Result<Pending<CommitAnswer>, CommitRefused> {
        request.check()?;
        let name = Name::of(&request);
        let (acks, commit) = request.into_commit(self.clock.now_ms());
        let Some(name) = name else {
            let receipt = self.groups.enqueue(&acks, commit.clone(), self.bus.clone()).await?;
            return Ok(Box::pin(async move { Ok(done(&commit, &receipt.await?)) }));
        };
        let before = self.memory.recall(&name, &commit).await?;
        if let Some(done) = before.done {
            return Ok(Box::pin(ready(Ok(repeated(&commit, done)))));
        }
        let mut kept = commit.clone();
        kept.documents.push(self.memory.keep(&name, &before).await?);
        let receipt = self.groups.enqueue(&acks, kept, self.bus.clone()).await;
        let memory = self.memory.clone();
        Ok(Box::pin(async move {
            let receipt = async { receipt?.await }.await;
            memory.sweep().await;
            let error = match receipt {
                Ok(receipt) => return Ok(done(&commit, &receipt)),
                Err(error) => error,
            };
            // The same one may have been under way at the same time, and have taken the leases or been remembered first;
            // and what was answered with an error may have happened all the same.
            match memory.recall(&name, &commit).await?.done {
                Some(done) => Ok(repeated(&commit, done)),
                None => Err(error),
            }
        }))
    }
}

fn repeated(commit: &Commit, done: Done) -> CommitAnswer {
    let body = match done {
        Done::Receipt(receipt) => body(commit, &receipt),
        Done::Answer(body) => body,
    };
    CommitAnswer { body, published: BTreeMap::new(), repeated: true }
}

fn done(commit: &Commit, receipt: &Receipt) -> CommitAnswer {
    let mut published = BTreeMap::new();
    for (append, _) in commit.events.iter().zip(&receipt.events).filter(|(_, done)| !done.duplicate) {
        *published.entry(append.topic.clone()).or_default() += 1;
    }
    CommitAnswer { body: body(commit, receipt), published, repeated: false }
}

/// What is answered to a commit.
fn body(commit: &Commit, receipt: &Receipt) -> Json {
    let event = |(append, done): (&Append, &Appended)| {
        serde_json::json!({
            "id": done.id, "topic": append.topic, "partition": done.partition, "offset": done.offset,
            "ts": done.ts, "durability": receipt.durability, "duplicate": done.duplicate,
        })
    };
    let events: Vec<Value> = commit.events.iter().zip(&receipt.events).map(event).collect();
    let mut versions: BTreeMap<&str, BTreeMap<&str, u64>> = BTreeMap::new();
    for (write, version) in commit.documents.iter().zip(&receipt.versions) {
        versions.entry(&write.collection).or_default().insert(&write.key, *version);
    }
    Json::from_value(&serde_json::json!({"events": events, "versions": versions}))
}

impl CommitRequest {
    fn check(&self) -> Result<(), CommitRefused> {
        let bad = |message: String| Err(CommitRefused::Bad(message));
        if self.acks.is_empty() && self.writes.is_empty() && self.publish.is_empty() {
            return bad("a commit needs something to do: ack, writes or publish".into());
        }
        if let Some(id) = self.commit_id.as_ref().filter(|id| id.is_empty() || id.len() > MAX_COMMIT_ID_BYTES)
        {
            return bad(format!("commit_id must have 1 to {MAX_COMMIT_ID_BYTES} bytes, not {}", id.len()));
        }
        if let Some(caller) = self.caller.as_ref().filter(|caller| caller.len() > MAX_CALLER_BYTES) {
            let message =
                format!("a caller's name has at most {MAX_CALLER_BYTES} bytes, not {}", caller.len());
            return bad(message);
        }
        for write in &self.writes {
            if let Err(error) = collection::check_name(&write.collection) {
                return bad(error.to_string());
            }
            if write.key.len() > MAX_KEY_BYTES {
                return bad(format!(
                    "the key is {} bytes long; {MAX_KEY_BYTES} are allowed",
                    write.key.len()
                ));
            }
        }
        Ok(())
    }

    /// The leases to settle, and the commit of all else.
    fn into_commit(self, now_ms: u64) -> (Vec<LeaseToken>, Commit) {
        let events = self.publish.into_iter().map(|(topic, outgoing)| outgoing.to(topic));
        let documents = self.writes.into_iter().map(|write| DocumentWrite {
            if_version: write.if_version,
            versioning: Versioning::Count,
            ts: now_ms,
            ..DocumentWrite::new(&write.collection, write.key, write.op)
        });
        let (events, documents) = (events.collect(), documents.collect());
        (self.acks, Commit { events, documents, ..Commit::default() })
    }
}
