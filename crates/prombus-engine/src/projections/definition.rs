//! What a projection is, as users write it: in the configuration file, or over HTTP.

use super::ProjectionError;
use prombus_core::collection::Index;
use prombus_core::{FieldPath, TopicName};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How often an event that fails is tried again, unless the definition says otherwise.
pub const DEFAULT_RETRIES: u32 = 3;
/// The most retries that a definition may ask for.
pub const MAX_RETRIES: u32 = 100;
/// The most bytes that a definition may take as JSON.
pub const MAX_DEFINITION_BYTES: usize = 256 << 10;

/// A projection: a topic, and what its events do to collections. Either `collection` (changelog) or `write`
/// (transactional).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// The topic whose events it takes.
    pub topic: TopicName,
    /// The collection that a changelog writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collection: Option<String>,
    /// The document's key, as CEL over `event`; a changelog needs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The fields of the payload that are kept; those that the payload lacks are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fields: Option<Vec<String>>,
    /// The document, as CEL over `event`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub map: Option<String>,
    /// When the document is deleted, as CEL over `event`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tombstone: Option<String>,
    /// The document's version, as CEL over `event`: only a greater one is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The indexes of the collection.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub indexes: Vec<IndexDefinition>,
    /// The topic that changes of the collection are published to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changefeed: Option<TopicName>,
    /// What a transactional projection writes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub write: Vec<WriteDefinition>,
    /// Whether it takes events as those of the latest version of the topic's schema.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub normalize: bool,
    /// How often an event that fails is tried again before it goes to the dead letters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<u32>,
}

impl Definition {
    /// The collections that it writes, by name; one may be there several times.
    pub fn collections(&self) -> impl Iterator<Item = &str> {
        let writes = self.write.iter().map(|write| &write.collection);
        self.collection.iter().chain(writes).map(String::as_str)
    }

    /// Its changefeeds: the collections, and the topics that their changes are published to.
    pub fn changefeeds(&self) -> impl Iterator<Item = (&str, &TopicName)> {
        let own = self.collection.as_deref().zip(self.changefeed.as_ref());
        let written = self.write.iter();
        own.into_iter()
            .chain(written.filter_map(|write| Some((write.collection.as_str(), write.changefeed.as_ref()?))))
    }

    /// Refuses one that takes too many bytes.
    pub(super) fn check_size(&self) -> Result<(), ProjectionError> {
        // Its names are texts, so it can be written.
        let bytes = serde_json::to_vec(self).map_or(0, |text| text.len());
        if bytes > MAX_DEFINITION_BYTES { Err(ProjectionError::TooLarge(bytes)) } else { Ok(()) }
    }

    /// Of a projection in Rust, whose code says what it does.
    pub(crate) fn in_code(topic: TopicName) -> Self {
        Self {
            topic,
            collection: None,
            key: None,
            fields: None,
            map: None,
            tombstone: None,
            version: None,
            indexes: Vec::new(),
            changefeed: None,
            write: Vec::new(),
            normalize: false,
            retries: None,
        }
    }
}

/// One write of a transactional projection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteDefinition {
    /// The collection.
    pub collection: String,
    /// The document's key, as CEL over `event`.
    pub key: String,
    /// When this is written at all, as CEL over `event`; always where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// The whole document, or some of its fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<SetDefinition>,
    /// What is merged into the document (RFC 7396), as CEL over `event`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge: Option<String>,
    /// What is added to fields, as CEL over `event`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub inc: BTreeMap<String, String>,
    /// When the document is deleted, as CEL over `event`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delete: Option<String>,
    /// The indexes of the collection.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub indexes: Vec<IndexDefinition>,
    /// The topic that changes of the collection are published to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changefeed: Option<TopicName>,
}

/// What `set` may be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "set is an expression, or a table of fields with an expression each")]
pub enum SetDefinition {
    /// The whole document, as CEL over `event`.
    Whole(String),
    /// Some fields, each as CEL over `event`; the others stay.
    Fields(BTreeMap<String, String>),
}

/// An index: its fields, or those and whether they are unique.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "an index is a list of fields, or a table with such a list as fields, and unique"
)]
pub enum IndexDefinition {
    /// The fields.
    Fields(Vec<FieldPath>),
    /// The fields, and more.
    Full(Index),
}

impl IndexDefinition {
    /// The index that it defines.
    pub fn index(&self) -> Index {
        match self {
            Self::Fields(fields) => Index { fields: fields.clone(), unique: false },
            Self::Full(index) => index.clone(),
        }
    }

    /// Whether no two documents may have the same.
    pub fn is_unique(&self) -> bool {
        matches!(self, Self::Full(index) if index.unique)
    }
}
