//! Projections in Rust: for reducers that read before they write, with the same guarantee.

use crate::layers::Checks;
use async_trait::async_trait;
use prombus_core::{
    Append, DocumentWrite, Documents, Event, Json, Owner, ReadError, Versioning, WriteOp, document,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, OnceLock};

/// A projection in Rust. What it does through the transaction happens together with the move of its cursor, so each
/// event counts exactly once, whatever happens in between.
///
/// It must depend on nothing but the event and what it reads through the transaction: an event whose batch could not
/// be committed is applied again.
#[async_trait]
pub trait Project: Send + Sync + 'static {
    /// Does what `event` asks for. An error is tried again, and then the event goes to the dead letters.
    async fn apply(&self, event: &Event, tx: &mut Tx<'_>) -> Result<(), ProjectFailure>;
}

/// Why an event could not be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ProjectFailure(pub String);

impl ProjectFailure {
    /// A failure that this text tells of.
    pub fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

impl From<&str> for ProjectFailure {
    fn from(reason: &str) -> Self {
        Self::new(reason)
    }
}

impl From<String> for ProjectFailure {
    fn from(reason: String) -> Self {
        Self::new(reason)
    }
}

impl From<serde_json::Error> for ProjectFailure {
    fn from(error: serde_json::Error) -> Self {
        Self(error.to_string())
    }
}

type DocumentId = (Arc<str>, String);

/// What the events of a batch have written so far.
#[derive(Default)]
pub(super) struct Pending {
    pub writes: Vec<DocumentWrite>,
    pub publishes: Vec<Append>,
    /// The bodies of documents as they would be.
    seen: HashMap<DocumentId, Option<Json>>,
    /// How to go back to before the event.
    undo: Vec<(DocumentId, Option<Option<Json>>)>,
    /// Why a document could not be read.
    pub unread: OnceLock<ReadError>,
}

/// What a transaction works on.
pub(super) struct Scope<'a> {
    pub documents: &'a dyn Documents,
    pub owner: &'a Owner,
    pub collections: &'a [Arc<str>],
    /// What is asked of events that are published.
    pub checks: &'a Checks,
    /// Where documents of a collection are read and written, while it is made anew.
    pub target: fn(&str) -> Arc<str>,
    /// Whether events are published at all.
    pub publishes: bool,
}

impl Pending {
    /// Forgets what the last event did.
    pub fn go_back(&mut self, writes: usize, publishes: usize) {
        self.writes.truncate(writes);
        self.publishes.truncate(publishes);
        for (place, before) in self.undo.drain(..).rev() {
            match before {
                Some(before) => self.seen.insert(place, before),
                None => self.seen.remove(&place),
            };
        }
    }

    /// What was made after the first so many writes and events takes.
    pub fn bytes_since(&self, writes: usize, publishes: usize) -> usize {
        let writes = self.writes.iter().skip(writes).map(DocumentWrite::size).sum::<usize>();
        let publishes = self.publishes.iter().skip(publishes).map(|append| append.event.size());
        writes + publishes.sum::<usize>()
    }

    /// Keeps what the last event did.
    pub fn keep(&mut self) {
        self.undo.clear();
    }

    /// A document as it would be, where something was written to it.
    pub fn document(&self, collection: &str, key: &str) -> Option<&Json> {
        self.seen.get(&(Arc::from(collection), key.to_owned()))?.as_ref()
    }

    /// The keys of the documents that there would be, of those that something was written to.
    pub fn keys(&self, collection: &str) -> BTreeSet<&str> {
        let there = self.seen.iter().filter(|((of, _), body)| **of == *collection && body.is_some());
        there.map(|((_, key), _)| key.as_str()).collect()
    }
}

/// The transaction of one event. All of it happens, with the move of the cursor, or none.
pub struct Tx<'a> {
    pub(super) scope: &'a Scope<'a>,
    pub(super) pending: &'a mut Pending,
    pub(super) event: &'a Event,
}

impl Tx<'_> {
    fn place(&self, collection: &str, key: &str) -> Result<DocumentId, ProjectFailure> {
        if !self.scope.collections.iter().any(|known| **known == *collection) {
            return Err(ProjectFailure(format!(
                "collection {collection:?} does not belong to this projection"
            )));
        }
        Ok(((self.scope.target)(collection), key.to_owned()))
    }

    async fn body(&self, place: &DocumentId) -> Result<Option<Json>, ProjectFailure> {
        if let Some(seen) = self.pending.seen.get(place) {
            return Ok(seen.clone());
        }
        match self.scope.documents.document(&place.0, &place.1).await {
            Ok(found) => Ok(found.map(|document| document.body)),
            Err(error) => {
                let failure = ProjectFailure(error.to_string());
                // The first one counts.
                let _ = self.pending.unread.set(error);
                Err(failure)
            }
        }
    }

    /// A document of this projection, with everything that earlier events have written.
    pub async fn get<T: DeserializeOwned>(
        &self,
        collection: &str,
        key: &str,
    ) -> Result<Option<T>, ProjectFailure> {
        let body = self.body(&self.place(collection, key)?).await?;
        Ok(body.map(|body| serde_json::from_slice(body.as_bytes())).transpose()?)
    }

    async fn write(&mut self, collection: &str, key: &str, op: WriteOp) -> Result<(), ProjectFailure> {
        let place = self.place(collection, key)?;
        let before = self.body(&place).await?;
        let after =
            document::apply(before.as_ref(), &op).map_err(|error| ProjectFailure(error.to_string()))?;
        let known = self.pending.seen.insert(place.clone(), after);
        self.pending.undo.push((place.clone(), known));
        self.pending.writes.push(DocumentWrite {
            collection: place.0,
            owner: self.scope.owner.clone(),
            key: place.1,
            op,
            versioning: Versioning::None,
            if_version: None,
            ts: self.event.ts,
            cause: Some(self.event.id),
        });
        Ok(())
    }

    /// Replaces a document.
    pub async fn put(
        &mut self,
        collection: &str,
        key: &str,
        body: &impl Serialize,
    ) -> Result<(), ProjectFailure> {
        let object = document::normal(serde_json::to_value(body)?);
        let object = object.map_err(|error| ProjectFailure(error.to_string()))?;
        let op = WriteOp::Set(Json::from_value(&Value::Object(object)));
        self.write(collection, key, op).await
    }

    /// Adds to a number in a document; a document or field that is not there counts as 0.
    pub async fn inc(
        &mut self,
        collection: &str,
        key: &str,
        field: &str,
        by: impl Into<Value>,
    ) -> Result<(), ProjectFailure> {
        let inc = [(field.to_owned(), by.into())].into_iter().collect();
        self.write(collection, key, WriteOp::Update { set: Default::default(), inc }).await
    }

    /// Removes a document.
    pub async fn delete(&mut self, collection: &str, key: &str) -> Result<(), ProjectFailure> {
        self.write(collection, key, WriteOp::Delete).await
    }

    /// Publishes an event, caused by the one that is applied. It is checked as every publish is: a topic of the hub's
    /// own, an event over `limits.event_bytes`, or a partition beside a key is a failure. A rebuild publishes nothing.
    ///
    /// A projection that publishes to the topic that it reads, by itself or through others, never comes to an end: the
    /// hub refuses circles of changefeeds, and cannot see this one.
    pub fn publish(&mut self, mut append: Append) -> Result<(), ProjectFailure> {
        let cause = || Json::from_stored(format!("[\"{}\"]", self.event.id).into()).into();
        append.event.caused_by.get_or_insert_with(cause);
        self.scope.checks.foresee(&append).map_err(|error| ProjectFailure(error.to_string()))?;
        if self.scope.publishes {
            self.pending.publishes.push(append);
        }
        Ok(())
    }
}

/// A projection in Rust, in short: a name for it, and what it does with each event.
///
/// ```
/// prombus_engine::projection! {
///     /// Counts the events of each key.
///     pub struct Counts;
///     async fn apply(event, tx) {
///         let key = event.key.as_deref().unwrap_or("none");
///         tx.inc("counts", key, "n", 1).await
///     }
/// }
///
/// #[derive(serde::Deserialize)]
/// struct Order {
///     customer: String,
///     cents: u64,
/// }
///
/// prombus_engine::projection! {
///     /// Adds up what each customer owes.
///     pub struct Debts;
///     async fn apply(event, tx) {
///         let order: Order = event.payload.parse()?;
///         if order.customer.is_empty() {
///             return Err("an order of nobody".into());
///         }
///         tx.inc("debts", &order.customer, "cents", order.cents).await
///     }
/// }
/// ```
#[macro_export]
macro_rules! projection {
    (
        $(#[$meta:meta])* $vis:vis struct $name:ident;
        async fn apply($event:ident, $tx:ident) $body:block
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, Default)]
        $vis struct $name;

        #[$crate::projections::async_trait]
        impl $crate::projections::Project for $name {
            async fn apply(
                &self,
                $event: &$crate::projections::Event,
                $tx: &mut $crate::projections::Tx<'_>,
            ) -> Result<(), $crate::projections::ProjectFailure> {
                // For `event.payload.parse()?`.
                #[allow(unused_imports, reason = "not every projection looks into its events")]
                use $crate::projections::ParseJson as _;
                $body
            }
        }
    };
}
