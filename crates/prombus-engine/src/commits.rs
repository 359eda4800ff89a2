//! Commits of consumers: acks, writes and publishes in one transaction.

mod ids;

use crate::bus::{Bus, BusError};
use crate::groups::{CommitLeases, ElsewhereShare, GroupError, GroupName, Groups, LeaseToken};
use crate::room::DocumentRoom;
use ids::{CommitIdStore, CommitKey};
use prombus_core::{
    Append, Appended, Clock, Commit, DocumentWrite, Durability, Owner, ReadError, Receipt, TopicName,
    Versioning,
};
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
    /// Documents to write. Whose they are and when they were written is for the hub to say.
    pub writes: Vec<DocumentWrite>,
    /// Events to publish.
    pub publish: Vec<Append>,
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
    /// Another hub, where a lease belongs, has found that whoever asks may not settle it.
    #[error("this token does not allow subscribe on the topic and group of one of the leases")]
    NotAllowed,
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
    /// Where its events are, in order, each with its topic.
    pub events: Vec<(TopicName, Appended)>,
    /// What was waited for.
    pub durability: Durability,
    /// The versions of the written documents, by collection and key; 0 for a deleted one.
    pub versions: BTreeMap<Arc<str>, BTreeMap<String, u64>>,
    /// Whether it had been done before. Then nothing was done just now.
    pub repeated: bool,
}

impl CommitAnswer {
    /// How many events were published to each topic just now, duplicates not counted.
    pub fn published(&self) -> BTreeMap<&TopicName, u64> {
        let mut published = BTreeMap::new();
        for (topic, _) in self.events.iter().filter(|(_, done)| !self.repeated && !done.duplicate) {
            *published.entry(topic).or_default() += 1;
        }
        published
    }
}

/// What a commit publishes and writes, by name: all that its answer needs beside its receipt.
#[derive(Debug, PartialEq, Eq)]
struct Outline {
    topics: Vec<TopicName>,
    documents: Vec<(Arc<str>, String)>,
}

impl Outline {
    fn of(commit: &Commit) -> Self {
        Self {
            topics: commit.events.iter().map(|append| append.topic.clone()).collect(),
            documents: (commit.documents.iter())
                .map(|write| (write.collection.clone(), write.key.clone()))
                .collect(),
        }
    }

    fn answer(self, receipt: Receipt, repeated: bool) -> CommitAnswer {
        let Receipt { events, versions: counted, durability, .. } = receipt;
        let mut versions: BTreeMap<Arc<str>, BTreeMap<String, u64>> = BTreeMap::new();
        for ((collection, key), version) in self.documents.into_iter().zip(counted) {
            versions.entry(collection).or_default().insert(key, version);
        }
        CommitAnswer { events: self.topics.into_iter().zip(events).collect(), durability, versions, repeated }
    }
}

/// What comes of a commit that has its place in the order. It goes on whether or not this is awaited.
pub type Pending<T> = Pin<Box<dyn Future<Output = Result<T, CommitRefused>> + Send>>;

/// The commits of consumers.
pub(crate) struct Commits {
    groups: Arc<Groups>,
    bus: Arc<dyn Bus>,
    clock: Arc<dyn Clock>,
    ids: Arc<CommitIdStore>,
    room: Arc<DocumentRoom>,
}

impl Commits {
    pub fn new(
        groups: Arc<Groups>,
        room: Arc<DocumentRoom>,
        bus: Arc<dyn Bus>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let ids = Arc::new(CommitIdStore::new(room.documents().clone(), bus.clone(), clock.clone()));
        Self { groups, bus, clock, ids, room }
    }

    /// Lets commits wait no more for room: those that do are refused.
    pub fn stop_waiting(&self) {
        self.room.close();
    }

    async fn enqueue_admitted(
        &self,
        leases: CommitLeases,
        commit: Commit,
    ) -> Result<Pending<Receipt>, CommitRefused> {
        // Before anything of a group is locked, which others wait for.
        let admitted = self.room.admit(commit).await?;
        self.groups.enqueue(leases, admitted, self.bus.clone()).await
    }

    /// Gives a request its place in the order; all of it is done, or none of it. `elsewhere` are those of its leases whose
    /// topics are at home on other hubs.
    pub async fn enqueue(
        &self,
        request: CommitRequest,
        elsewhere: Vec<ElsewhereShare>,
    ) -> Result<Pending<CommitAnswer>, CommitRefused> {
        request.check()?;
        let key = CommitKey::of(&request);
        let (acks, mut commit) = request.into_commit(self.clock.now_ms());
        let is_of = |share: &ElsewhereShare, lease: &LeaseToken| {
            share.leases.first().is_some_and(|one| one.topic() == lease.topic())
        };
        let is_here = |lease: &LeaseToken| !elsewhere.iter().any(|share| is_of(share, lease));
        let leases = CommitLeases { here: acks.into_iter().filter(is_here).collect(), elsewhere };
        let outline = Outline::of(&commit);
        let Some(key) = key else {
            let receipt = self.enqueue_admitted(leases, commit).await?;
            return Ok(Box::pin(async move { Ok(outline.answer(receipt.await?, false)) }));
        };
        let known = self.ids.look_up(&key).await?;
        if let Some(done) = known.done {
            return Ok(Box::pin(ready(Ok(outline.answer(done, true)))));
        }
        commit.documents.push(self.ids.receipt_write(&key, &known).await?);
        let receipt = self.enqueue_admitted(leases, commit).await;
        let ids = self.ids.clone();
        Ok(Box::pin(async move {
            let receipt = async { receipt?.await }.await;
            ids.sweep().await;
            let error = match receipt {
                Ok(receipt) => return Ok(outline.answer(receipt, false)),
                Err(error) => error,
            };
            // The same one may have been under way at the same time, and have taken the leases or been remembered first;
            // and what was answered with an error may have happened all the same.
            match ids.look_up(&key).await?.done {
                Some(done) => Ok(outline.answer(done, true)),
                None => Err(error),
            }
        }))
    }
}

impl CommitRequest {
    /// Refuses a commit that does nothing.
    pub fn check_not_empty(&self) -> Result<(), CommitRefused> {
        match self.acks.is_empty() && self.writes.is_empty() && self.publish.is_empty() {
            true => Err(CommitRefused::Bad("a commit needs something in ack, writes or publish".into())),
            false => Ok(()),
        }
    }

    fn check(&self) -> Result<(), CommitRefused> {
        let bad = |message: String| Err(CommitRefused::Bad(message));
        self.check_not_empty()?;
        if let Some(id) = self.commit_id.as_ref().filter(|id| id.is_empty() || id.len() > MAX_COMMIT_ID_BYTES)
        {
            return bad(format!("commit_id must have 1 to {MAX_COMMIT_ID_BYTES} bytes, not {}", id.len()));
        }
        if let Some(caller) = self.caller.as_ref().filter(|caller| caller.len() > MAX_CALLER_BYTES) {
            let message =
                format!("a caller's name has at most {MAX_CALLER_BYTES} bytes, not {}", caller.len());
            return bad(message);
        }
        self.writes.iter().try_for_each(DocumentWrite::check_names).map_err(CommitRefused::Bad)
    }

    /// The leases to settle, and the commit of all else.
    fn into_commit(self, now_ms: u64) -> (Vec<LeaseToken>, Commit) {
        let documents = self.writes.into_iter().map(|write| DocumentWrite {
            owner: Owner::COMMITS,
            versioning: Versioning::Count,
            ts: now_ms,
            cause: None,
            ..write
        });
        (self.acks, Commit { documents: documents.collect(), ..self.publish.into() })
    }
}
