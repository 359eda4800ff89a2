//! Collections: what they are called, who owns them, what can be asked of them, and what a commit's writes make of
//! their documents. How a store keeps those is its own affair: it says how they are read ([`PriorDocuments`]).

mod drafts;
mod failure;
mod field;
mod find;
mod length;
mod prior;
mod write;

pub use drafts::{Base, Drafted, Drafts};
pub use failure::IndexFailure;
pub use field::{BadField, FieldPath};
pub use find::{BadFind, Condition, Find, FoundDocuments, MAX_SORTED, Operand, SortKey, Test};
pub use length::{MAX_INDEX_VALUE_BYTES, RowBytes, TooLong, check_length, row_bytes};
pub use prior::{PriorDocuments, Slot};
pub use write::{Written, not_unique};

use crate::document::Document;
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

/// How far the making of an index is.
///
/// An index over documents that are there already is made beside: the commit that adds it does not wait for that. From
/// that commit on every write keeps it up; what was there before is added step by step, while other commits go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Progress {
    /// It has all documents, and queries use it. Where it is unique, it holds.
    Ready,
    /// It does not have all documents yet, and queries go without it. Where it is unique, a write that clashes may be
    /// refused already, or be taken and make the index fail.
    Building {
        /// How many documents have been gone over.
        done: u64,
        /// How many there were when it was begun, or more where more have been gone over.
        of: u64,
        /// The key up to which that is, where a store goes by keys.
        after: Option<String>,
    },
    /// Documents speak against it. It is neither used nor enforced; it is begun anew when the settings are put again.
    Failed(IndexFailure),
}

/// An index of a collection as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexState {
    /// What it is.
    pub index: Index,
    /// The revision of the settings that it was added to; 0 where it came with the collection. Rows carry it, so that
    /// those of an index that was removed are never taken for those of its successor.
    pub number: u64,
    /// How far it is.
    pub progress: Progress,
}

impl IndexState {
    /// An index that has everything that there is.
    fn ready(index: &Index) -> Self {
        Self { index: index.clone(), number: 0, progress: Progress::Ready }
    }

    /// Whether queries may use it.
    pub fn is_ready(&self) -> bool {
        self.progress == Progress::Ready
    }

    /// Whether it is being made.
    pub fn is_building(&self) -> bool {
        matches!(self.progress, Progress::Building { .. })
    }

    /// Whether writes keep it up.
    pub fn is_kept(&self) -> bool {
        !matches!(self.progress, Progress::Failed(_))
    }

    /// Whether writes are refused that clash with it.
    pub fn is_enforced(&self) -> bool {
        self.index.unique && self.is_kept()
    }
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
    /// Its indexes: one for each of the settings, in the same order.
    pub indexes: Arc<[IndexState]>,
    /// How many documents it has.
    pub documents: u64,
    /// What its documents take, in bytes.
    pub bytes: u64,
}

impl CollectionState {
    /// A new and empty collection.
    pub fn new(name: Arc<str>, number: u32, config: CollectionConfig) -> Self {
        let indexes = config.indexes.iter().map(IndexState::ready).collect();
        Self { name, number, revision: 1, config: Arc::new(config), indexes, documents: 0, bytes: 0 }
    }

    /// The same with other settings. An index that was not there before, or that failed, is to be made of what is
    /// there.
    #[must_use]
    pub fn with_settings(&self, config: CollectionConfig) -> Self {
        let of = self.documents;
        let begun = match of {
            0 => Progress::Ready,
            of => Progress::Building { done: 0, of, after: None },
        };
        // The rows of an index are the same whether it is unique or not, but only for a unique one nothing clashes.
        let goes_on = |index: &Index, before: &IndexState| {
            before.is_kept() && before.index.fields == index.fields && (before.index.unique || !index.unique)
        };
        let index = |index: &Index| match self.indexes.iter().find(|before| goes_on(index, before)) {
            Some(before) => IndexState { index: index.clone(), ..before.clone() },
            None => IndexState { index: index.clone(), number: self.revision, progress: begun.clone() },
        };
        let indexes = config.indexes.iter().map(index).collect();
        Self { revision: self.revision + 1, config: Arc::new(config), indexes, ..self.clone() }
    }

    /// The same with one of its indexes further on; as it is where there is no such index.
    #[must_use]
    pub fn with_progress(&self, index: usize, progress: Progress) -> Self {
        let mut indexes = self.indexes.to_vec();
        if let Some(state) = indexes.get_mut(index) {
            state.progress = progress;
        }
        Self { indexes: indexes.into(), ..self.clone() }
    }

    /// Counts `new` in the place of `old`.
    pub fn count_change(&mut self, old: Option<&Document>, new: Option<&Document>) {
        let bytes = |document: Option<&Document>| document.map_or(0, |document| document.size() as u64);
        let count = |document: Option<&Document>| u64::from(document.is_some());
        self.bytes = (self.bytes + bytes(new)).saturating_sub(bytes(old));
        self.documents = (self.documents + count(new)).saturating_sub(count(old));
    }

    /// Which of its indexes is being made; the first of several.
    pub fn building(&self) -> Option<usize> {
        self.indexes.iter().position(IndexState::is_building)
    }
}
