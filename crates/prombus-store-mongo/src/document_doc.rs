//! Documents of collections as MongoDB has them: the fields for users' queries, and beside them, under one name, the text
//! that is the truth and what the hub's own indexes go by.
//!
//! An index of a collection is an index on a string that begins with the values of its fields in an order-preserving
//! encoding. BSON would put some values in another order, and binaries by their length, so each byte of the encoding is a
//! character of the string.

use crate::shadow;
use bytes::Bytes;
use mongodb::bson::raw::{CString, cstr};
use mongodb::bson::{Document as BsonDocument, RawBson, RawDocument, RawDocumentBuf, doc};
use prombus_core::{CollectionState, Document, Json};

/// What the hub keeps in a document beside its fields.
pub const OWN: &str = "_prombus";
/// Names that fields of users cannot have in the database.
const TAKEN: [&str; 5] = ["_id", "_key", "_ts", "_v", OWN];
/// Where in the key of an index row its values begin.
pub const VALUES: usize = prombus_rows::INDEX_PREFIX;

/// The field of the strings of an index, by what the keys of its rows start with.
pub fn row_field(prefix: &[u8]) -> String {
    let name: String = prefix[5..VALUES].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("x{name}")
}

/// The same from the top of a document.
pub fn row_path(prefix: &[u8]) -> String {
    format!("{OWN}.rows.{}", row_field(prefix))
}

/// Bytes as a string of the same order.
pub fn row_text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

/// What [`row_text`] was made of.
pub fn row_bytes(text: &str) -> Option<Vec<u8>> {
    text.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect()
}

/// A document as it is stored.
pub fn to_bson(state: &CollectionState, document: &Document) -> RawDocumentBuf {
    let mut to = RawDocumentBuf::new();
    to.append(cstr!("_id"), document.key.as_str());
    to.append(cstr!("_key"), document.key.as_str());
    to.append(cstr!("_ts"), document.ts as i64);
    if let Some(revision) = document.revision {
        to.append(cstr!("_v"), revision);
    }
    let (fields, is_whole) = shadow::of_fields(&document.body, &TAKEN);
    for (name, field) in fields {
        to.append(name, field);
    }
    let mut own = RawDocumentBuf::new();
    own.append(cstr!("version"), document.version as i64);
    own.append(cstr!("json"), std::str::from_utf8(document.body.as_bytes()).unwrap_or_default());
    own.append(cstr!("partial"), !is_whole);
    let mut rows = RawDocumentBuf::new();
    for row in prombus_rows::index_rows(state, document) {
        if let Ok(field) = CString::try_from(row_field(&row)) {
            rows.append(field, row_text(&row[VALUES..]).as_str());
        }
    }
    own.append(cstr!("rows"), RawBson::Document(rows));
    to.append(cstr!("_prombus"), RawBson::Document(own));
    to
}

/// Leaves out what is only there for users' queries.
pub fn exact_fields() -> BsonDocument {
    doc! { "_ts": 1, "_v": 1, format!("{OWN}.version"): 1, format!("{OWN}.json"): 1 }
}

/// What is stored, as a document.
pub fn of_bson(bson: &RawDocument) -> Option<Document> {
    let own = bson.get_document(OWN).ok()?;
    let body = Json::from_stored(Bytes::copy_from_slice(own.get_str("json").ok()?.as_bytes()));
    let revision = bson.get_i64("_v").ok();
    let (key, ts) = (bson.get_str("_id").ok()?.to_owned(), bson.get_i64("_ts").ok()? as u64);
    Some(Document::new(key, own.get_i64("version").ok()? as u64, revision, ts, body))
}

/// The indexes that MongoDB is to have for those of a collection whose `wanted` says so, each by its name and its field.
pub fn mongo_indexes(state: &CollectionState, wanted: impl Fn(usize) -> bool) -> Vec<BsonDocument> {
    let by_time = prombus_rows::index_prefix(state.number, None);
    let kept = state.indexes.iter().enumerate().filter(|(n, index)| index.is_kept() && wanted(*n));
    let mut own: Vec<Vec<u8>> =
        kept.map(|(_, index)| prombus_rows::index_prefix(state.number, Some(index))).collect();
    // Two of the same fields, one of them unique, have the same rows.
    own.sort_unstable();
    own.dedup();
    std::iter::once(by_time)
        .chain(own)
        .map(|prefix| doc! { "key": { row_path(&prefix): 1 }, "name": row_field(&prefix) })
        .collect()
}
