//! Collections: what they are called, who owns them, and how their documents and indexes lie in ordered rows.
//!
//! A store keeps collections as rows of bytes in order: one row for each document, and one for each index of it. What
//! a write does to the rows, and how a query goes over them, is the same for every store and is here.

mod change;
mod drafts;
mod encode;
mod field;
mod find;
mod indexer;
#[cfg(test)]
mod plain;
mod rows;
mod write;

pub use change::{DocumentChange, IndexChanges, RowChange, backfill};
pub use drafts::{Base, Drafted, Drafts};
pub use field::{BadField, FieldPath};
pub use find::{BadFind, Condition, Find, Found, MAX_SORTED, Operand, SortKey, Test, find};
pub use rows::{DOCUMENT, INDEX_PREFIX, RowRange, Rows, RowsIter, collection_of_row};
pub use write::{Slot, Written, get, look_up, replace, scan};

use crate::topic::TopicName;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The longest name of a collection, in bytes.
pub const MAX_NAME_BYTES: usize = 200;
/// The longest key of a document, in bytes.
pub const MAX_KEY_BYTES: usize = 1024;
/// The most indexes of a collection.
pub const MAX_INDEXES: usize = 16;
/// The most fields of an index.
pub const MAX_INDEX_FIELDS: usize = 8;
/// What the name of a collection of the hub's own has in it, and no other.
const INTERNAL: char = '~';

/// A name that no collection can have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a collection name: use dot-separated segments of a-z, 0-9, _ and -, each starting with a letter or digit, {MAX_NAME_BYTES} bytes at most"
)]
pub struct BadCollectionName(String);

/// Checks the name of a collection; it has the form of a topic's.
pub fn check_name(name: &str) -> Result<Arc<str>, BadCollectionName> {
    let bad = || BadCollectionName(name.chars().take(MAX_NAME_BYTES).collect());
    if name.len() > MAX_NAME_BYTES {
        return Err(bad());
    }
    TopicName::parse(name).map(|_| name.into()).map_err(|_| bad())
}

/// The name of a collection of the hub's own, which users neither see nor write.
pub fn internal_name(of: &str, what: &str) -> Arc<str> {
    format!("{of}{INTERNAL}{what}").into()
}

/// Whether a collection is the hub's own.
pub fn is_internal(name: &str) -> bool {
    name.contains(INTERNAL)
}

/// Who may write a collection: one projection, or commits. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Owner(Option<Arc<str>>);

impl Owner {
    /// Commits own it.
    pub const COMMITS: Self = Self(None);

    /// A projection owns it.
    pub fn projection(name: &str) -> Self {
        Self(Some(name.into()))
    }

    /// The projection that owns it, unless commits do.
    pub fn as_projection(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

/// What can be set on a collection.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CollectionConfig {
    /// Who writes it.
    pub owner: Owner,
    /// Its indexes, beside the one by time that every collection has.
    pub indexes: Vec<Index>,
    /// The topic that its changes are published to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changefeed: Option<TopicName>,
}

/// An index of a collection. Its rows go by the fields, then by time, then by key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Index {
    /// The fields, in order.
    pub fields: Vec<FieldPath>,
    /// Whether no two documents may have the same values in all of the fields. Documents that lack one of them do
    /// not count.
    #[serde(default)]
    pub unique: bool,
}

/// A collection as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectionState {
    /// Its name.
    pub name: Arc<str>,
    /// One incarnation of it; no number is used twice.
    pub number: u32,
    /// Counts the changes of its settings, from 1.
    pub revision: u64,
    /// Its settings, shared by whatever still needs them as they were.
    pub config: Arc<CollectionConfig>,
    /// How many documents it has.
    pub documents: u64,
    /// What its documents take, in bytes.
    pub bytes: u64,
}

impl CollectionState {
    /// A new and empty collection.
    pub fn new(name: Arc<str>, number: u32, config: CollectionConfig) -> Self {
        Self { name, number, revision: 1, config: Arc::new(config), documents: 0, bytes: 0 }
    }
}
