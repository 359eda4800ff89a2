//! What can be asked of a collection: conditions, order and paging.

use super::{BadField, FieldPath};
use crate::document::Document;
use serde_json::Value;

/// Maximum number of documents that are put in order where no index has the order asked for.
pub const MAX_SORTED: usize = 1_000_000;

/// What to find.
#[derive(Debug, Clone, PartialEq)]
pub struct Find {
    /// The collection.
    pub collection: String,
    /// What must hold, all of it.
    pub conditions: Vec<Condition>,
    /// The order; newest first where there is none.
    pub sort: Vec<SortKey>,
    /// How many are passed over.
    pub offset: usize,
    /// The maximum number; at least 1.
    pub limit: usize,
    /// No more are added once they take so many bytes; so there is always one, where there is any.
    pub max_bytes: usize,
    /// What has to be put in order without an index may take so many bytes; more is [`BadFind::TooMany`].
    pub sort_bytes: usize,
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FoundDocuments {
    /// The documents.
    pub documents: Vec<Document>,
    /// Whether there are more after them.
    pub more: bool,
}

/// A query that makes no sense, or asks for too much.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadFind {
    /// A field is none.
    #[error(transparent)]
    Field(#[from] BadField),
    /// Too much would have to be put in order.
    #[error(
        "this would sort more than {MAX_SORTED} documents, or more than fits into memory, in an order that no index has; add an index or a condition"
    )]
    TooMany,
}

/// What must hold of a field.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    /// The field; `_key`, `_ts` and `_v` are fields too.
    pub field: FieldPath,
    /// What must hold of it.
    pub test: Test,
}

/// A comparison. Values of different types are never equal, and neither is less than the other.
#[derive(Debug, Clone, PartialEq)]
pub enum Test {
    /// Is this.
    Eq(Operand),
    /// Is not this, or is not there.
    Ne(Operand),
    /// Is greater.
    Gt(Operand),
    /// Is as great or greater.
    Gte(Operand),
    /// Is less.
    Lt(Operand),
    /// Is as great or less.
    Lte(Operand),
    /// Is one of these.
    In(Vec<Operand>),
}

/// What a field is compared with: one value, or a text that means whatever type the field has.
#[derive(Debug, Clone, PartialEq)]
pub struct Operand(Vec<Value>);

impl Operand {
    /// This value.
    pub fn value(value: Value) -> Self {
        Self(vec![value])
    }

    /// The string, and whatever else the text may stand for: a number, a boolean, null, an array or an object.
    pub fn text(text: &str) -> Self {
        let mut values = vec![Value::from(text)];
        if let Ok(mut value) = serde_json::from_str::<Value>(text)
            && !value.is_string()
        {
            crate::document::normalize(&mut value);
            values.push(value);
        }
        Self(values)
    }

    /// What it may stand for; values of different types.
    pub fn values(&self) -> &[Value] {
        &self.0
    }
}

/// One field to sort by.
#[derive(Debug, Clone, PartialEq)]
pub struct SortKey {
    /// The field.
    pub field: FieldPath,
    /// Whether the greatest comes first.
    pub descending: bool,
}
