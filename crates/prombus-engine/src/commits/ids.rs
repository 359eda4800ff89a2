//! What is remembered of commits with an id: a document of the hub's own for each, written by the commit itself.
//!
//! How long that is goes by the time that hubs have run, and not by the clock, which may be set ahead and back: what
//! was done a moment ago must not be forgotten for that. That time lies in the documents themselves: a hub goes on from
//! the latest one, so while it stands still nothing gets older.

use super::{CommitRefused, CommitRequest};
use crate::bus::Bus;
use crate::groups::Session;
use prombus_core::collection::{self, Condition, Operand, SortKey, Test};
use prombus_core::{
    Append, Clock, Commit, Document, DocumentWrite, Documents, FieldPath, Find, FoundDocuments, Json,
    KeptReceipt, ReadError, Receipt, WriteOp,
};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::OnceCell;
use xxhash_rust::xxh3::Xxh3;

/// How long it is remembered what a commit with an id has done.
const REMEMBER_MS: u64 = 24 * 3_600 * 1_000;
/// How often what is older is removed.
const SWEEP_EVERY_MS: u64 = 60_000;
/// How much of it is removed at once.
const SWEEP_AT_ONCE: usize = 100;
/// And about how many bytes.
const SWEEP_BYTES: usize = 8 << 20;

/// Where it is remembered.
fn place() -> Arc<str> {
    collection::internal_name("hub", "commits")
}

/// A commit that can be known again.
#[derive(Debug, Clone)]
pub(super) struct CommitKey {
    id: String,
    /// The key of its document: whose it is, and its id. The length keeps the two apart.
    document: String,
    /// The digest of what it asks for.
    request: u128,
}

impl CommitKey {
    /// The key of a request, where it has an id.
    pub fn of(request: &CommitRequest) -> Option<Self> {
        let id = request.commit_id.clone()?;
        let caller = request.caller.as_deref().unwrap_or_default();
        let document = format!("{}:{caller}{id}", caller.len());
        Some(Self { id, document, request: digest(request) })
    }
}

/// What is known of a commit.
pub(super) struct KnownCommit {
    /// What was done by it.
    pub done: Option<Receipt>,
    /// The version of its document; 0 where there is none.
    version: u64,
}

/// The receipts of commits with an id, and how long they are kept.
pub(super) struct CommitIdStore {
    documents: Arc<dyn Documents>,
    bus: Arc<dyn Bus>,
    clock: Arc<dyn Clock>,
    /// The time at which this hub went on, less the steady time of its clock at that moment.
    ahead_ms: OnceCell<i128>,
    /// When old receipts were last removed.
    swept_ms: AtomicU64,
}

impl CommitIdStore {
    pub fn new(documents: Arc<dyn Documents>, bus: Arc<dyn Bus>, clock: Arc<dyn Clock>) -> Self {
        Self { documents, bus, clock, ahead_ms: OnceCell::new(), swept_ms: AtomicU64::new(0) }
    }

    /// The time that hubs have run until now, on from when the first of them began.
    async fn now_ms(&self) -> Result<u64, ReadError> {
        let ahead = self.ahead_ms.get_or_try_init(|| async {
            let began = self.find(Vec::new(), true, 1).await?.documents.pop().map(|last| last.ts);
            let began = began.unwrap_or_else(|| self.clock.now_ms());
            Ok::<_, ReadError>(i128::from(began) - i128::from(self.clock.steady_ms()))
        });
        let now = ahead.await? + i128::from(self.clock.steady_ms());
        Ok(u64::try_from(now).unwrap_or_default())
    }

    /// What was done under the key of a commit; an error where it stood for another request.
    pub async fn look_up(&self, key: &CommitKey) -> Result<KnownCommit, CommitRefused> {
        let now_ms = self.now_ms().await?;
        let is_fresh = |document: &Document| document.ts.saturating_add(REMEMBER_MS) > now_ms;
        let Some(document) = self.documents.document(&place(), &key.document).await? else {
            return Ok(KnownCommit { done: None, version: 0 });
        };
        if !is_fresh(&document) {
            return Ok(KnownCommit { done: None, version: document.version });
        }
        match KeptReceipt::parse(&document.body) {
            Some(kept) if kept.request == key.request => {
                Ok(KnownCommit { done: Some(kept.receipt), version: document.version })
            }
            _ => Err(CommitRefused::IdConflict(key.id.clone())),
        }
    }

    /// What keeps the receipt of a commit, provided that it was not done meanwhile.
    pub async fn receipt_write(
        &self,
        key: &CommitKey,
        known: &KnownCommit,
    ) -> Result<DocumentWrite, ReadError> {
        Ok(DocumentWrite {
            if_version: Some(known.version),
            ts: self.now_ms().await?,
            ..DocumentWrite::new(&place(), key.document.clone(), WriteOp::Receipt(key.request))
        })
    }

    /// Removes what need not be remembered any longer, now and then.
    pub async fn sweep(self: &Arc<Self>) {
        let Ok(now_ms) = self.now_ms().await else { return };
        let swept = self.swept_ms.load(Ordering::Relaxed);
        let due = now_ms >= swept.saturating_add(SWEEP_EVERY_MS);
        let mine =
            || self.swept_ms.compare_exchange(swept, now_ms, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if due && mine() {
            let store = self.clone();
            tokio::spawn(async move {
                if let Err(error) = store.forget_before(now_ms.saturating_sub(REMEMBER_MS)).await {
                    tracing::warn!(%error, "failed to remove receipts of old commits");
                }
            });
        }
    }

    async fn forget_before(&self, horizon_ms: u64) -> Result<(), CommitRefused> {
        loop {
            let old = Test::Lt(Operand::value(Value::from(horizon_ms)));
            let found = self.find(vec![old], false, SWEEP_AT_ONCE).await?;
            let forget = |document: Document| DocumentWrite {
                if_version: Some(document.version),
                ..DocumentWrite::new(&place(), document.key, WriteOp::Delete)
            };
            let documents: Vec<DocumentWrite> = found.documents.into_iter().map(forget).collect();
            if documents.is_empty() {
                return Ok(());
            }
            self.bus.commit(Arc::new(Commit { documents, ..Commit::default() })).await?;
            if !found.more {
                return Ok(());
            }
        }
    }

    /// Receipts whose time passes the tests, in the order of time.
    async fn find(
        &self,
        tests: Vec<Test>,
        descending: bool,
        limit: usize,
    ) -> Result<FoundDocuments, ReadError> {
        let time = FieldPath::parse("_ts").map_err(|error| ReadError::Corrupt(error.to_string()))?;
        let conditions = tests.into_iter().map(|test| Condition { field: time.clone(), test }).collect();
        let sort = vec![SortKey { field: time, descending }];
        let request = Find {
            collection: place().to_string(),
            conditions,
            sort,
            offset: 0,
            limit,
            max_bytes: SWEEP_BYTES,
            sort_bytes: SWEEP_BYTES,
        };
        self.documents.find(request).await
    }
}

/// What tells requests apart, whatever their texts looked like. A build that makes another one of the same request
/// would refuse what was begun with an earlier build.
fn digest(request: &CommitRequest) -> u128 {
    let mut digest = Digest(Xxh3::new());
    digest.number(request.acks.len() as u64);
    for lease in &request.acks {
        let Session { topic, epoch, seat } = lease.session;
        [topic.0.into(), epoch.0, seat.into()].into_iter().for_each(|number| digest.number(number));
        digest.number(lease.number);
    }
    digest.number(request.writes.len() as u64);
    for write in &request.writes {
        digest.text(write.collection.as_bytes());
        digest.text(write.key.as_bytes());
        digest.op(&write.op);
        digest.optional(write.if_version.map(u64::to_le_bytes));
    }
    digest.number(request.publish.len() as u64);
    for Append { topic, placement, expect, event } in &request.publish {
        digest.text(topic.as_str().as_bytes());
        digest.optional(placement.named().map(|partition| partition.0.to_le_bytes()));
        digest.number(expect.is_some().into());
        digest.optional(expect.and_then(|expect| expect.last_id).map(|id| *id.as_bytes()));
        digest.optional(event.id.map(|id| *id.as_bytes()));
        digest.optional(event.ts.map(u64::to_le_bytes));
        digest.optional(event.key.as_deref());
        digest.text(event.payload.as_bytes());
        for json in [&event.sid, &event.headers, &event.caused_by, &event.tags] {
            digest.optional(json.as_deref().map(Json::as_bytes));
        }
    }
    digest.0.digest128()
}

/// A digest of parts, each with its length, so that none can pass for another.
struct Digest(Xxh3);

impl Digest {
    fn number(&mut self, number: u64) {
        self.0.update(&number.to_le_bytes());
    }

    fn text(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.update(bytes);
    }

    fn optional(&mut self, part: Option<impl AsRef<[u8]>>) {
        self.number(part.is_some().into());
        if let Some(part) = part {
            self.text(part.as_ref());
        }
    }

    fn op(&mut self, op: &WriteOp) {
        let (kind, json) = match op {
            WriteOp::Set(json) => (0, Some(json.clone())),
            WriteOp::Merge(json) => (1, Some(json.clone())),
            WriteOp::Inc(json) => (2, Some(json.clone())),
            WriteOp::Update { set, inc } => {
                (3, Some(Json::from_value(&serde_json::json!({"set": set, "inc": inc}))))
            }
            WriteOp::Delete => (4, None),
            WriteOp::Receipt(request) => (5, Some(Json::from_value(&Value::from(request.to_string())))),
        };
        self.number(kind);
        self.optional(json.as_ref().map(Json::as_bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups::LeaseToken;
    use prombus_core::{Epoch, Expect, NewEvent, Partition, Placement, TopicName, TopicNumber};
    use std::collections::HashSet;
    use uuid::Uuid;

    fn json(text: &str) -> Json {
        Json::parse(text.to_owned().into()).unwrap()
    }

    fn write(collection: &str, key: &str, op: WriteOp, if_version: Option<u64>) -> CommitRequest {
        let write = DocumentWrite { if_version, ..DocumentWrite::new(collection, key, op) };
        CommitRequest { writes: vec![write], ..CommitRequest::default() }
    }

    fn publish(topic: &str, change: impl FnOnce(&mut Append)) -> CommitRequest {
        let mut append = Append::new(TopicName::parse(topic).unwrap(), NewEvent::new(json("[1]")));
        change(&mut append);
        CommitRequest { publish: vec![append], ..CommitRequest::default() }
    }

    #[test]
    fn whatever_differs_makes_another_digest() {
        let set = |text| WriteOp::Set(json(text));
        let session = |epoch| Session { topic: TopicNumber(1), epoch: Epoch(epoch), seat: 1 };
        let lease = |epoch, number| LeaseToken { session: session(epoch), number };
        let acks = |acks: &[LeaseToken]| CommitRequest { acks: acks.to_vec(), ..CommitRequest::default() };
        let nil = Uuid::nil();
        let requests = [
            acks(&[lease(1, 2)]),
            acks(&[lease(2, 1)]),
            acks(&[lease(1, 2), lease(2, 1)]),
            acks(&[lease(2, 1), lease(1, 2)]),
            write("a", "bc", set("{}"), None),
            write("ab", "c", set("{}"), None),
            write("a", "bc", set("{}"), Some(0)),
            write("a", "bc", set("{}"), Some(1)),
            write("a", "bc", set(r#"{"a":1}"#), None),
            write("a", "bc", WriteOp::Merge(json("{}")), None),
            write("a", "bc", WriteOp::Inc(json("{}")), None),
            write("a", "bc", WriteOp::Delete, None),
            publish("t", |_| {}),
            publish("u", |_| {}),
            publish("t", |event| event.placement = Placement::Named(Partition(0))),
            publish("t", |event| event.placement = Placement::Named(Partition(1))),
            publish("t", |event| event.expect = Some(Expect { last_id: None })),
            publish("t", |event| event.expect = Some(Expect { last_id: Some(nil) })),
            publish("t", |event| event.event.id = Some(nil)),
            publish("t", |event| event.event.ts = Some(0)),
            publish("t", |event| event.event.key = Some("".into())),
            publish("t", |event| event.event.key = Some("k".into())),
            publish("t", |event| event.event.payload = json("[2]")),
            publish("t", |event| event.event.sid = Some(json("\"s\"").into())),
            publish("t", |event| event.event.headers = Some(json("{}").into())),
            publish("t", |event| event.event.caused_by = Some(json("[]").into())),
            publish("t", |event| event.event.tags = Some(json("[]").into())),
        ];
        let digests: HashSet<u128> = requests.iter().map(digest).collect();
        assert_eq!(digests.len(), requests.len());
        assert!(requests.iter().all(|request| digest(&request.clone()) == digest(request)));
    }

    #[test]
    fn callers_and_ids_are_kept_apart() {
        let key = |caller: Option<&str>, id: &str| {
            let (caller, commit_id) = (caller.map(str::to_owned), Some(id.to_owned()));
            CommitKey::of(&CommitRequest { caller, commit_id, ..CommitRequest::default() }).unwrap().document
        };
        let keys = [key(None, "ab"), key(Some("a"), "b"), key(Some("ab"), "c"), key(Some("a"), "bc")];
        assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len(), "{keys:?}");
    }
}
