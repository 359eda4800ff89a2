//! Commits of consumers: acks, writes and publishes in one transaction.

use crate::bus::{Bus, BusError};
use crate::groups::{GroupError, GroupName, Groups, LeaseToken};
use crate::hub::Outgoing;
use prombus_core::collection::{self, Condition, MAX_KEY_BYTES, Operand, SortKey, Test};
use prombus_core::document::receipt_body;
use prombus_core::{
    Append, Clock, Commit, Document, DocumentWrite, Documents, FieldPath, Find, Json, Placement, ReadError,
    TopicName, Versioning, WriteOp,
};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The longest id of a commit, in bytes.
pub const MAX_COMMIT_ID_BYTES: usize = 200;

/// What a consumer wants to have happen as a whole.
#[derive(Debug, Clone, Default)]
pub struct CommitRequest {
    /// The same one within 24 hours is answered as it was first, and nothing happens.
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
    #[error("the lease {0} has expired, was settled already, or passed on; nothing was committed")]
    LeaseExpired(LeaseToken),
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

/// What a commit has done: `{"events": [...], "versions": {collection: {key: version}}}`, as it was answered first.
pub type CommitAnswer = Json;

/// How long it is remembered what a commit with an id has done.
const REMEMBER_MS: u64 = 24 * 3_600 * 1_000;
/// How often what is older is removed.
const SWEEP_EVERY_MS: u64 = 60_000;
/// So much of it is removed at once.
const SWEEP_AT_ONCE: usize = 1_000;
/// And not much more than so many bytes, because what is removed counts as what a commit makes.
const SWEEP_BYTES: usize = 4 << 20;

/// The commits of consumers.
pub(crate) struct Commits {
    pub groups: Arc<Groups>,
    pub documents: Arc<dyn Documents>,
    pub bus: Arc<dyn Bus>,
    pub clock: Arc<dyn Clock>,
    /// When old answers were last removed.
    pub swept_ms: AtomicU64,
}

/// Where it is remembered what commits with an id have done.
fn memory() -> Arc<str> {
    collection::internal_name("hub", "commits")
}

impl Commits {
    /// Does all of a request, or none of it.
    pub async fn commit(self: &Arc<Self>, request: CommitRequest) -> Result<CommitAnswer, CommitRefused> {
        request.check()?;
        let now_ms = self.clock.now_ms();
        let CommitRequest { commit_id, acks, writes, publish } = request;
        let events = publish.into_iter().map(|(topic, Outgoing { event, partition, expect })| Append {
            topic,
            placement: partition.map_or(Placement::Auto, Placement::Named),
            expect,
            event,
        });
        let documents = writes.into_iter().map(|write| DocumentWrite {
            if_version: write.if_version,
            versioning: Versioning::Count,
            ts: now_ms,
            ..DocumentWrite::new(&write.collection, write.key, write.op)
        });
        let mut commit =
            Commit { events: events.collect(), documents: documents.collect(), ..Commit::default() };
        let Some(id) = commit_id else {
            let receipt = self.groups.commit(&acks, commit.clone(), self.bus.clone()).await?;
            return Ok(receipt_body(&commit, &receipt));
        };
        let before = self.documents.document(&memory(), &id).await?;
        if let Some(answer) = before.as_ref().and_then(|before| answer_of(before, now_ms)) {
            return Ok(answer);
        }
        commit.documents.push(DocumentWrite {
            if_version: Some(before.map_or(0, |before| before.version)),
            ts: now_ms,
            ..DocumentWrite::new(&memory(), id.clone(), WriteOp::Receipt)
        });
        let done = self.groups.commit(&acks, commit, self.bus.clone()).await;
        self.sweep(now_ms);
        // The same one was under way at the same time, and has taken the leases or was remembered first.
        let after = self.documents.document(&memory(), &id).await?;
        match (done, after.and_then(|after| answer_of(&after, now_ms))) {
            (_, Some(answer)) => Ok(answer),
            (Err(error), None) => Err(error),
            (Ok(_), None) => {
                Err(ReadError::Corrupt("what the commit has done was not remembered".into()).into())
            }
        }
    }

    /// Removes what need not be remembered any longer, now and then.
    fn sweep(self: &Arc<Self>, now_ms: u64) {
        let swept = self.swept_ms.load(Ordering::Relaxed);
        let due = now_ms >= swept.saturating_add(SWEEP_EVERY_MS);
        let mine =
            || self.swept_ms.compare_exchange(swept, now_ms, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if due && mine() {
            let commits = self.clone();
            tokio::spawn(async move {
                if let Err(error) = commits.forget_before(now_ms.saturating_sub(REMEMBER_MS)).await {
                    tracing::warn!(%error, "answers of old commits could not be removed");
                }
            });
        }
    }

    async fn forget_before(&self, horizon_ms: u64) -> Result<(), CommitRefused> {
        let Ok(ts) = FieldPath::parse("_ts") else { return Ok(()) };
        loop {
            let old = Test::Lt(Operand::value(Value::from(horizon_ms)));
            let request = Find {
                collection: memory().to_string(),
                conditions: vec![Condition { field: ts.clone(), test: old }],
                sort: vec![SortKey { field: ts.clone(), descending: false }],
                offset: 0,
                limit: SWEEP_AT_ONCE,
            };
            let found = self.documents.find(request).await?;
            let forget = |document: Document| DocumentWrite {
                if_version: Some(document.version),
                ..DocumentWrite::new(&memory(), document.key, WriteOp::Delete)
            };
            let (count, mut bytes) = (found.documents.len(), 0);
            let fits = |document: &Document| {
                let is_room = bytes < SWEEP_BYTES;
                bytes += document.body.len();
                is_room
            };
            let documents: Vec<DocumentWrite> =
                found.documents.into_iter().take_while(fits).map(forget).collect();
            if documents.is_empty() {
                return Ok(());
            }
            let more = found.more || documents.len() < count;
            self.bus.commit(Arc::new(Commit { documents, ..Commit::default() })).await?;
            if !more {
                return Ok(());
            }
        }
    }
}

/// What a commit has answered, if that is still to be remembered.
fn answer_of(document: &Document, now_ms: u64) -> Option<CommitAnswer> {
    (document.ts.saturating_add(REMEMBER_MS) > now_ms).then(|| document.body.clone())
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
}
