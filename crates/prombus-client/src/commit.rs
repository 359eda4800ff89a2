//! Commits: acks, document writes and publishes in one transaction.

use crate::live::settle::Lease;
use crate::{
    Client, ClientError, Committed, Delivery, DeliveryContext, DeliveryRecord, HubError, NewEvent,
    RawDelivery, Topic,
};
use prombus_wire::{CommitEventRequest, CommitRequest, ErrorCode, Object, Text, WriteRequest};
use reqwest::Method;
use reqwest::header::CONTENT_TYPE;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

/// A transaction: all of it happens, or none.
///
/// ```no_run
/// # async fn example(live: prombus_client::Live, delivery: prombus_client::Delivery)
/// # -> Result<(), prombus_client::ClientError> {
/// use prombus_client::{Commit, CommitError, NewEvent};
/// use serde_json::json;
///
/// let commit = Commit::new()
///     .ack(&delivery)
///     .set("orders", "o-17", &json!({"state": "paid"}))
///     .if_version(3)
///     .inc("totals", "2025-08", &json!({"paid": 1, "cents": 1990}))
///     .publish("orders.paid", NewEvent::of(&json!({"order": "o-17"}))?.with_key("o-17"));
/// match live.commit(&commit).await {
///     Ok(done) => println!("version {:?}", done.version("orders", "o-17")),
///     Err(CommitError::VersionConflict(why)) => println!("somebody was faster: {why}"),
///     Err(other) => return Err(other.into()),
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing happens before it is sent"]
#[derive(Debug, Clone, Default)]
pub struct Commit {
    id: Option<String>,
    acks: Vec<Ack>,
    writes: Vec<Write>,
    publish: Vec<(String, NewEvent)>,
    /// The first error while it was built.
    bad: Option<String>,
}

/// A lease that a commit settles: that of a delivery, or a lease token.
#[derive(Debug, Clone)]
pub struct Ack {
    token: String,
    /// Set if a connection of this process holds it.
    held: Option<Lease>,
}

impl From<&Delivery> for Ack {
    fn from(delivery: &Delivery) -> Self {
        let lease = delivery.lease.clone();
        Self { token: lease.token.text().to_owned(), held: Some(lease) }
    }
}

impl From<&str> for Ack {
    fn from(token: &str) -> Self {
        Self { token: token.to_owned(), held: None }
    }
}

impl From<String> for Ack {
    fn from(token: String) -> Self {
        Self { token, held: None }
    }
}

impl From<&DeliveryContext> for Ack {
    fn from(ctx: &DeliveryContext) -> Self {
        ctx.lease.as_str().into()
    }
}

impl From<&DeliveryRecord> for Ack {
    fn from(delivery: &DeliveryRecord) -> Self {
        (&delivery.ctx).into()
    }
}

impl From<&RawDelivery> for Ack {
    fn from(delivery: &RawDelivery) -> Self {
        (&delivery.ctx).into()
    }
}

#[derive(Debug, Clone)]
struct Write {
    collection: String,
    key: String,
    op: WriteOp,
    value: Box<RawValue>,
    if_version: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriteOp {
    Set,
    Merge,
    Inc,
    Delete,
}

impl Write {
    fn request(&self) -> WriteRequest<'_> {
        let value = |op| (self.op == op).then_some(&*self.value);
        WriteRequest {
            collection: self.collection.as_str().into(),
            key: self.key.as_str().into(),
            set: value(WriteOp::Set),
            merge: value(WriteOp::Merge),
            inc: value(WriteOp::Inc),
            delete: value(WriteOp::Delete),
            if_version: self.if_version,
        }
    }
}

impl Commit {
    /// An empty commit.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the commit idempotent: repeating it with the same id within 24 hours returns the first answer and does
    /// nothing else, so it can be retried if the answer was lost. A different commit with that id is refused.
    pub fn commit_id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Acks a delivery. If its lease has expired, nothing of the commit happens.
    pub fn ack(mut self, delivery: impl Into<Ack>) -> Self {
        self.acks.push(delivery.into());
        self
    }

    /// Replaces the document.
    pub fn set<D: Serialize + ?Sized>(self, collection: &str, key: &str, document: &D) -> Self {
        self.write(WriteOp::Set, (collection, key), document)
    }

    /// Merges into the document (RFC 7396): `null` removes a field.
    pub fn merge<D: Serialize + ?Sized>(self, collection: &str, key: &str, changes: &D) -> Self {
        self.write(WriteOp::Merge, (collection, key), changes)
    }

    /// Adds the numbers in this object to the fields of the document.
    pub fn inc<D: Serialize + ?Sized>(self, collection: &str, key: &str, amounts: &D) -> Self {
        self.write(WriteOp::Inc, (collection, key), amounts)
    }

    /// Deletes the document.
    pub fn delete(self, collection: &str, key: &str) -> Self {
        self.write(WriteOp::Delete, (collection, key), &true)
    }

    /// Makes the preceding write, and so the whole commit, conditional on the document having this version; 0 means
    /// that it must not exist.
    pub fn if_version(mut self, version: u64) -> Self {
        match self.writes.last_mut() {
            Some(write) => write.if_version = Some(version),
            None => self.blame("if_version comes after the write that it is about"),
        }
        self
    }

    /// Publishes an event.
    pub fn publish(mut self, topic: impl Into<String>, event: NewEvent) -> Self {
        self.publish.push((topic.into(), event));
        self
    }

    /// Publishes this payload to a typed topic, with its key.
    pub fn publish_to<T: Serialize>(mut self, topic: &Topic<T>, payload: &T) -> Self {
        match topic.event(payload) {
            Ok(event) => self.publish(topic.name(), event),
            Err(error) => {
                self.blame(&format!("{}: {error}", topic.name()));
                self
            }
        }
    }

    fn write<D: Serialize + ?Sized>(
        mut self,
        op: WriteOp,
        (collection, key): (&str, &str),
        value: &D,
    ) -> Self {
        match serde_json::value::to_raw_value(value) {
            Ok(value) => {
                let (collection, key) = (collection.to_owned(), key.to_owned());
                self.writes.push(Write { collection, key, op, value, if_version: None });
            }
            Err(error) => self.blame(&format!("{collection} {key}: {error}")),
        }
        self
    }

    fn blame(&mut self, what: &str) {
        self.bad.get_or_insert_with(|| what.to_owned());
    }

    /// The request body, with `id` unless the commit has its own.
    pub(crate) fn to_json(&self, id: Option<&str>) -> Result<String, ClientError> {
        if let Some(bad) = &self.bad {
            return Err(ClientError::BadInput(serde::ser::Error::custom(bad)));
        }
        Ok(serde_json::to_string(&CommitRequest {
            commit_id: self.id.as_deref().or(id).map(Text::from),
            ack: all(&self.acks, |ack| ack.token.as_str().into()),
            writes: all(&self.writes, |write| Object(write.request())),
            publish: all(&self.publish, |(topic, event)| {
                Object(CommitEventRequest::new(topic.as_str().into(), &event.payload, event.options()))
            }),
        })?)
    }

    /// The leases that connections of this process hold.
    pub(crate) fn held(&self) -> impl Iterator<Item = &Lease> {
        self.acks.iter().filter_map(|ack| ack.held.as_ref())
    }
}

/// What is sent of a list, unless it is empty.
fn all<'a, T, U>(list: &'a [T], request: impl Fn(&'a T) -> U) -> Option<Vec<U>> {
    (!list.is_empty()).then(|| list.iter().map(request).collect())
}

/// Why a commit failed. Nothing of it happened, unless its [outcome is unknown](CommitError::is_outcome_unknown).
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// A lease has expired, was already settled, or was superseded.
    #[error(transparent)]
    LeaseExpired(Box<HubError>),
    /// A document has a different version.
    #[error(transparent)]
    VersionConflict(Box<HubError>),
    /// The collection is owned by a projection.
    #[error(transparent)]
    NotOwner(Box<HubError>),
    /// Any other error of a call.
    #[error(transparent)]
    Other(ClientError),
}

impl CommitError {
    /// The hub's error, if the hub refused.
    pub fn hub(&self) -> Option<&HubError> {
        match self {
            Self::LeaseExpired(error) | Self::VersionConflict(error) | Self::NotOwner(error) => Some(error),
            Self::Other(error) => error.hub(),
        }
    }

    /// Whether it may have happened despite the error. Repeating it with its `commit_id` is safe.
    pub fn is_outcome_unknown(&self) -> bool {
        matches!(self, Self::Other(error) if error.is_outcome_unknown())
    }
}

impl From<ClientError> for CommitError {
    fn from(error: ClientError) -> Self {
        let ClientError::Hub(error) = error else { return Self::Other(error) };
        match ErrorCode::parse(&error.code) {
            Some(ErrorCode::LeaseExpired) => Self::LeaseExpired(error),
            Some(ErrorCode::VersionConflict) => Self::VersionConflict(error),
            Some(ErrorCode::NotOwner) => Self::NotOwner(error),
            _ => Self::Other(ClientError::Hub(error)),
        }
    }
}

impl From<CommitError> for ClientError {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::LeaseExpired(error)
            | CommitError::VersionConflict(error)
            | CommitError::NotOwner(error) => Self::Hub(error),
            CommitError::Other(error) => error,
        }
    }
}

impl Client {
    /// Commits acks, writes and publishes in one transaction. Give it an id if you may have to retry it.
    pub async fn commit(&self, commit: &Commit) -> Result<Committed, CommitError> {
        let body = commit.to_json(None)?;
        commit.held().for_each(|lease| lease.token.bind());
        let result: Result<Committed, CommitError> = self.post_commit(body).await.map_err(CommitError::from);
        match &result {
            Ok(_) => commit.held().for_each(|lease| lease.token.settle()),
            Err(CommitError::LeaseExpired(_)) => commit.held().for_each(|lease| lease.token.refuse()),
            // What was done may hang on it; where the lease holds, it can still be settled.
            Err(_) => {}
        }
        result
    }

    /// The same as [`Client::commit`], with the commit and the answer as JSON text.
    pub async fn commit_json(&self, commit: &RawValue) -> Result<Box<RawValue>, CommitError> {
        Ok(self.post_commit(commit.get().to_owned()).await?)
    }

    async fn post_commit<A: DeserializeOwned>(&self, body: String) -> Result<A, ClientError> {
        let call = self.request(Method::POST, &["v1", "commit"])?;
        let response = self.call(call.header(CONTENT_TYPE, "application/json").body(body)).await?;
        self.answer(response).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::collections::BTreeMap;

    fn sent(commit: &Commit) -> Value {
        serde_json::from_str(&commit.to_json(None).unwrap()).unwrap()
    }

    #[test]
    fn everything_that_was_said_is_sent() {
        let commit = Commit::new()
            .commit_id("i")
            .ack("l1")
            .ack("l2".to_owned())
            .set("a", "k1", &json!({"n": 1}))
            .if_version(0)
            .merge("a", "k2", &json!({"n": null}))
            .inc("b", "k3", &json!({"n": -2.5}))
            .delete("b", "k4")
            .if_version(7)
            .publish("t", NewEvent::of(&json!(1)).unwrap().with_key("k").with_id("e"));
        let expected = json!({"commit_id": "i", "ack": ["l1", "l2"], "writes": [
            {"collection": "a", "key": "k1", "set": {"n": 1}, "if_version": 0},
            {"collection": "a", "key": "k2", "merge": {"n": null}},
            {"collection": "b", "key": "k3", "inc": {"n": -2.5}},
            {"collection": "b", "key": "k4", "delete": true, "if_version": 7}],
            "publish": [{"topic": "t", "payload": 1, "key": "k", "id": "e"}]});
        assert_eq!(sent(&commit), expected);
        assert_eq!(sent(&Commit::new()), json!({}));
        assert_eq!(Commit::new().to_json(Some("x")).unwrap(), r#"{"commit_id":"x"}"#);
        assert_eq!(commit.to_json(Some("x")).unwrap(), commit.to_json(None).unwrap());
    }

    #[test]
    fn typed_topics_give_their_events_a_key() {
        const NUMBERS: Topic<u64> = Topic::new("numbers").keyed_by(|number| format!("k{number}"));
        let expected = json!({"publish": [{"topic": "numbers", "key": "k7", "payload": 7}]});
        assert_eq!(sent(&Commit::new().publish_to(&NUMBERS, &7)), expected);
        const ODD: Topic<BTreeMap<(u8, u8), u8>> = Topic::new("odd");
        let odd = Commit::new().publish_to(&ODD, &[((1, 2), 3)].into());
        assert!(matches!(odd.to_json(None), Err(ClientError::BadInput(_))));
    }

    #[test]
    fn documents_and_payloads_keep_their_digits() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let commit = Commit::new()
            .set("c", "k", &raw(r#"{"n":1.10}"#))
            .publish("t", NewEvent::new(raw("12345678901234567890123")));
        let expected = r#"{"writes":[{"collection":"c","key":"k","set":{"n":1.10}}],"publish":[{"topic":"t","payload":12345678901234567890123}]}"#;
        assert_eq!(commit.to_json(None).unwrap(), expected);
    }

    #[test]
    fn what_cannot_be_sent_is_told_when_it_is() {
        let odd: BTreeMap<(u8, u8), u8> = [((1, 2), 3)].into();
        for commit in [Commit::new().set("c", "k", &odd), Commit::new().if_version(1).delete("c", "k")] {
            assert!(matches!(commit.to_json(None), Err(ClientError::BadInput(_))));
        }
    }

    #[test]
    fn refusals_have_their_kinds_and_stay_what_they_are() {
        let refusal = |code| ClientError::Hub(Box::new(HubError::of_code(code, "m")));
        assert!(matches!(refusal(ErrorCode::LeaseExpired).into(), CommitError::LeaseExpired(_)));
        assert!(matches!(refusal(ErrorCode::VersionConflict).into(), CommitError::VersionConflict(_)));
        assert!(matches!(refusal(ErrorCode::NotOwner).into(), CommitError::NotOwner(_)));
        let other = CommitError::from(refusal(ErrorCode::Forbidden));
        assert!(matches!(&other, CommitError::Other(error) if error.hub().unwrap().status == 403));
        let back = ClientError::from(CommitError::from(refusal(ErrorCode::NotOwner)));
        assert_eq!(back.hub().unwrap().code, "not_owner");
    }

    #[test]
    fn answers_are_understood_and_what_is_new_in_them_passed_over() {
        let text = r#"{"events":[{"id":"e","topic":"t","partition":1,"offset":2,"ts":3,"durability":"sync","duplicate":false,"new":1}],
            "versions":{"c":{"k":4}},"op":"OK"}"#;
        let committed: Committed = serde_json::from_str(text).unwrap();
        assert_eq!((committed.events[0].offset, committed.version("c", "k")), (2, Some(4)));
        assert_eq!((committed.version("c", "x"), committed.version("x", "k")), (None, None));
    }
}
