//! The layout of documents and indexes in rows.
//!
//! A document's row is found by collection and key. An index has a row per document: the values of its fields, the
//! document's time and its key, in an order-preserving encoding.

use crate::encode;
use bytes::Bytes;
use prombus_core::collection::IndexState;
use prombus_core::{CollectionState, Document, Json, ReadError};
use serde_json::Value;
use std::ops::Range;
use xxhash_rust::xxh3::xxh3_64;

/// The first byte of rows of documents. Those of indexes come after them.
pub const DOCUMENT: u8 = 1;
/// The first byte of index rows.
const INDEX: u8 = 2;

/// Rows in the order of the bytes of their keys.
pub trait Rows {
    /// The row with this key.
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, ReadError>;

    /// The rows of a range, from its end to its start if `reverse` is set.
    fn range(&self, range: RowRange, reverse: bool) -> RowsIter<'_>;
}

impl<R: Rows + ?Sized> Rows for &R {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, ReadError> {
        (**self).get(key)
    }

    fn range(&self, range: RowRange, reverse: bool) -> RowsIter<'_> {
        (**self).range(range, reverse)
    }
}

/// Rows, one by one.
pub type RowsIter<'a> = Box<dyn Iterator<Item = Result<(Bytes, Bytes), ReadError>> + 'a>;

/// Keys from the start of the range on, and before its end.
pub type RowRange = Range<Bytes>;

/// All keys that start with `prefix`.
pub fn prefixed(prefix: Vec<u8>) -> RowRange {
    let mut end = prefix.clone();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            break;
        }
    }
    Bytes::from(prefix)..Bytes::from(end)
}

fn prefix(kind: u8, collection: u32) -> Vec<u8> {
    let mut key = Vec::with_capacity(64);
    key.push(kind);
    key.extend_from_slice(&collection.to_be_bytes());
    key
}

/// What the keys of all documents of a collection start with.
pub fn document_prefix(collection: u32) -> Vec<u8> {
    prefix(DOCUMENT, collection)
}

/// The key of a document's row.
pub fn document_row(collection: u32, key: &str) -> Bytes {
    let mut row = prefix(DOCUMENT, collection);
    row.extend_from_slice(key.as_bytes());
    row.into()
}

/// The documents of a collection behind the one with key `after`.
pub fn documents_after(collection: u32, after: Option<&str>) -> RowRange {
    let RowRange { start, end } = prefixed(document_prefix(collection));
    let start = match after {
        None => start,
        Some(after) => {
            let mut next = document_row(collection, after).to_vec();
            // The first key after it.
            next.push(0);
            next.into()
        }
    };
    start..end
}

/// The collection that a row belongs to.
pub fn collection_of_row(row: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(row.get(1..5)?.try_into().ok()?))
}

/// How long that is that the keys of all rows of an index start with.
pub const INDEX_PREFIX: usize = 1 + 4 + 8;

/// What the keys of all rows of an index start with. `None` is the index by time that every collection has.
pub fn index_prefix(collection: u32, index: Option<&IndexState>) -> Vec<u8> {
    let mut key = prefix(INDEX, collection);
    let mut name = Vec::new();
    for field in index.iter().flat_map(|state| &state.index.fields) {
        name.extend_from_slice(field.as_str().as_bytes());
        // No field has this byte in it.
        name.push(0xff);
    }
    // Early builds gave indexes no numbers, and their rows are found as they are.
    if let Some(number) = index.map(|state| state.number).filter(|number| *number > 0) {
        name.extend_from_slice(&number.to_be_bytes());
    }
    key.extend_from_slice(&xxh3_64(&name).to_be_bytes());
    key
}

/// What the rows of a unique index start with that a document's values would clash with; `None` where it lacks one of
/// the fields.
pub fn unique_values(state: &CollectionState, unique: &IndexState, document: &Document) -> Option<Bytes> {
    let fields = &unique.index.fields;
    let body = document.fields(fields.iter());
    let mut row = index_prefix(state.number, Some(unique));
    for field in fields {
        let value: Value = document.value(&body, field)?;
        encode::value(&mut row, Some(&value));
    }
    Some(row.into())
}

/// The key of the document that a row of an index is about.
pub fn key_of_index_row(row: &[u8], values_end: usize) -> Option<&str> {
    std::str::from_utf8(row.get(values_end + size_of::<u64>()..)?).ok()
}

/// The row of a document.
pub fn row_of_document(document: &Document) -> Bytes {
    let mut row = Vec::with_capacity(document.body.len() + 48);
    row.extend_from_slice(&document.version.to_le_bytes());
    row.extend_from_slice(&document.ts.to_le_bytes());
    row.extend_from_slice(&document.etag.to_le_bytes());
    row.push(u8::from(document.revision.is_some()));
    row.extend_from_slice(&document.revision.unwrap_or_default().to_le_bytes());
    row.extend_from_slice(document.body.as_bytes());
    row.into()
}

/// The document of a row; `key` is the row's own.
pub fn document_of_row(key: &[u8], row: &Bytes) -> Option<Document> {
    const HEAD: usize = 8 + 8 + 16 + 1 + 8;
    let head = row.get(..HEAD)?;
    let number = |at: usize| Some(u64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?));
    Some(Document {
        key: std::str::from_utf8(key.get(5..)?).ok()?.to_owned(),
        version: number(0)?,
        ts: number(8)?,
        etag: u128::from_le_bytes(head.get(16..32)?.try_into().ok()?),
        revision: (head[32] == 1).then_some(number(33)? as i64),
        body: Json::from_stored(row.slice(HEAD..)),
    })
}
