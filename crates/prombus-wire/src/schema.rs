//! Schemas: what is asked of them, and what they answer.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// The body of `POST /v1/schemas/{topic}` and `POST /v1/schemas/{topic}/check`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SchemaRequest<'a> {
    /// The version that it shall have; the next one if it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// In which direction it has to fit earlier versions, such as `backward` or `full_transitive`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub compat: Option<Cow<'a, str>>,
    /// How properties are read that a schema does not name: `lenient` or `strict`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Cow<'a, str>>,
    /// The schema, as the bytes that were sent.
    #[serde(borrow)]
    pub schema: &'a RawValue,
}

/// The answer of `POST /v1/schemas/{topic}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchemaRegistered {
    /// The topic.
    pub topic: String,
    /// The version that the schema has.
    pub version: u32,
}

/// The answer of `POST /v1/schemas/{topic}/check`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SchemaChecked {
    /// Whether the schema could be registered.
    pub compatible: bool,
    /// Why it could not.
    pub violations: Vec<SchemaViolation>,
}

/// A place in which one schema refuses what the other one takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SchemaViolation {
    /// Where, as a JSON pointer into the document.
    pub path: String,
    /// The keyword that refuses it, or `undecided`.
    pub rule: String,
    /// What is wrong.
    pub message: String,
    /// A document that one schema takes and the other one refuses; `null` if that is undecided.
    pub counterexample: Option<Value>,
}

/// The answer of `GET /v1/schemas`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SchemasAnswer {
    /// The topics that have schemas, by name.
    pub schemas: Vec<TopicSchemas>,
}

/// The answer of `GET /v1/schemas/{topic}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TopicSchemas {
    /// The topic.
    pub topic: String,
    /// Its versions, from the lowest.
    pub versions: Vec<SchemaVersion>,
    /// The versions that have an upcaster to the next one.
    pub upcasters: Vec<u32>,
}

/// A version of a topic's schema, without the schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchemaVersion {
    /// The version.
    pub version: u32,
    /// When it was registered, in epoch milliseconds.
    pub registered_ts: u64,
}

/// The answer of `GET /v1/schemas/{topic}/versions/{version}`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SchemaAnswer {
    /// The topic.
    pub topic: String,
    /// The version.
    pub version: u32,
    /// When it was registered, in epoch milliseconds.
    pub registered_ts: u64,
    /// The schema.
    pub schema: Box<RawValue>,
}

/// The answer of `GET /v1/schemas/{topic}/upcasters/{from}`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct UpcasterAnswer {
    /// The topic.
    pub topic: String,
    /// The version that it raises payloads of.
    pub from: u32,
    /// The version that it raises them to; `null` until that is registered.
    pub to: Option<u32>,
    /// Its operations, in the order in which they were given.
    pub ops: Box<RawValue>,
}
