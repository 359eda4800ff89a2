//! The rows that documents have in the indexes of their collection.

use super::rows::index_prefix;
use super::{FieldPath, Index, encode};
use crate::document::Document;
use serde_json::value::RawValue;

/// Makes the rows of documents of one collection.
#[derive(Debug)]
pub struct Indexer {
    /// The index by time that every collection has, and then the others.
    indexes: Vec<Lane>,
    /// The names that fields of the body start with, each once.
    names: Vec<String>,
}

/// One of the indexes.
#[derive(Debug)]
struct Lane {
    prefix: Vec<u8>,
    /// Its fields, each with the place of its name.
    fields: Vec<(FieldPath, usize)>,
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

    /// Whether this is one of them.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.iter().any(|known| known == key)
    }

    /// Forgets them.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

impl Indexer {
    /// For the collection with this number and these indexes.
    pub fn new(collection: u32, indexes: &[Index]) -> Self {
        let mut names: Vec<String> = Vec::new();
        let mut place = |field: &FieldPath| {
            let name = &field.segments()[0];
            names.iter().position(|known| known == name).unwrap_or_else(|| {
                names.push(name.clone());
                names.len() - 1
            })
        };
        let mut lane = |index: Option<&Index>| {
            let fields = index.iter().flat_map(|index| &index.fields);
            Lane {
                prefix: index_prefix(collection, index),
                fields: fields.map(|field| (field.clone(), place(field))).collect(),
            }
        };
        let indexes = std::iter::once(None).chain(indexes.iter().map(Some)).map(&mut lane).collect();
        Self { indexes, names }
    }

    /// The keys of a document's rows in all indexes, in the place of those that were there. For each document they
    /// come in the same order.
    pub fn keys(&self, document: &Document, keys: &mut Keys) {
        let body = document.raw_fields(&self.names);
        keys.clear();
        for Lane { prefix, fields } in &self.indexes {
            keys.bytes.extend_from_slice(prefix);
            for (field, name) in fields {
                field_value(&mut keys.bytes, document, field, body[*name]);
            }
            keys.bytes.extend_from_slice(&document.ts.to_be_bytes());
            keys.bytes.extend_from_slice(document.key.as_bytes());
            keys.ends.push(keys.bytes.len());
        }
    }
}

/// Appends the value of a field, given the text of what its name stands for in the body.
fn field_value(out: &mut Vec<u8>, document: &Document, field: &FieldPath, text: Option<&RawValue>) {
    if let Some(value) = document.reserved(field) {
        return encode::value(out, value.as_ref());
    }
    match text.map(RawValue::get) {
        // Most values are short and plain texts.
        Some(text) if field.segments().len() == 1 && is_plain_string(text) => {
            encode::string(out, &text[1..text.len() - 1]);
        }
        text => {
            let value = text.and_then(|text| serde_json::from_str(text).ok());
            encode::value(out, value.as_ref().and_then(|value| field.below(value)));
        }
    }
}

/// Whether a JSON text is a string that stands for itself.
fn is_plain_string(text: &str) -> bool {
    text.starts_with('"') && memchr::memchr(b'\\', text.as_bytes()).is_none()
}
