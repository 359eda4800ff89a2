//! The rows that documents have in the indexes of their collection.

use super::rows::index_prefix;
use super::{FieldPath, IndexState, encode};
use crate::document::Document;
use crate::fields::{Field, Fields};

/// Makes the rows of documents of one collection.
#[derive(Debug)]
pub struct Indexer {
    indexes: Vec<Lane>,
}

/// One of the indexes.
#[derive(Debug)]
struct Lane {
    prefix: Vec<u8>,
    fields: Vec<FieldPath>,
}

impl Lane {
    /// Of an index; `None` is the one by time.
    fn of(collection: u32, index: Option<&IndexState>) -> Self {
        let fields = index.map_or(Vec::new(), |state| state.index.fields.clone());
        Self { prefix: index_prefix(collection, index), fields }
    }
}

/// Keys of rows, one behind the other.
#[derive(Debug, Default)]
pub struct Keys {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Keys {
    /// The keys in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.ends.len()).filter_map(|n| self.get(n))
    }

    /// One of them.
    pub fn get(&self, n: usize) -> Option<&[u8]> {
        let end = *self.ends.get(n)?;
        let start = if n == 0 { 0 } else { self.ends[n - 1] };
        self.bytes.get(start..end)
    }

    /// Forgets them.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

impl Indexer {
    /// For the collection with this number: the index by time that every collection has, and then these, as far as
    /// they are kept up.
    pub fn new(collection: u32, indexes: &[IndexState]) -> Self {
        let kept = indexes.iter().filter(|index| index.is_kept()).map(Some);
        Self { indexes: std::iter::once(None).chain(kept).map(|index| Lane::of(collection, index)).collect() }
    }

    /// For one index alone.
    pub fn only(collection: u32, index: &IndexState) -> Self {
        Self { indexes: vec![Lane::of(collection, Some(index))] }
    }

    /// The keys of a document's rows in all indexes, in the place of those that were there. For each document they
    /// come in the same order.
    pub fn keys(&self, document: &Document, keys: &mut Keys) {
        let needs_body = self.indexes.iter().any(|lane| !lane.fields.is_empty());
        let body = needs_body.then(|| Fields::of(&document.body)).flatten();
        keys.clear();
        for Lane { prefix, fields } in &self.indexes {
            keys.bytes.extend_from_slice(prefix);
            for field in fields {
                field_value(&mut keys.bytes, document, field, body.as_ref());
            }
            keys.bytes.extend_from_slice(&document.ts.to_be_bytes());
            keys.bytes.extend_from_slice(document.key.as_bytes());
            keys.ends.push(keys.bytes.len());
        }
    }
}

/// Appends the value of a field, given the fields of the body.
fn field_value(out: &mut Vec<u8>, document: &Document, field: &FieldPath, body: Option<&Fields<'_>>) {
    if let Some(value) = document.reserved(field) {
        return encode::value(out, value.as_ref());
    }
    let known = body.and_then(|body| body.get(&field.segments()[0]));
    match known.and_then(Field::plain_string).filter(|_| field.segments().len() == 1) {
        // Most values are short and plain.
        Some(string) => encode::string(out, string),
        None => {
            let value = known.and_then(|known| known.value().ok());
            encode::value(out, value.and_then(|value| field.below(value)));
        }
    }
}
