//! The rows that documents have in the indexes of their collection.

use crate::encode;
use crate::rows::index_prefix;
use bytes::Bytes;
use prombus_core::collection::IndexState;
use prombus_core::fields::{Field, Fields};
use prombus_core::{CollectionState, Document, FieldPath};

/// Derives the index rows of documents of one collection.
#[derive(Debug)]
pub struct Indexer {
    indexes: Vec<IndexLayout>,
}

/// The layout of one index.
#[derive(Debug)]
struct IndexLayout {
    prefix: Vec<u8>,
    fields: Vec<FieldPath>,
}

impl IndexLayout {
    /// Of an index; `None` is the one by time.
    fn of(collection: u32, index: Option<&IndexState>) -> Self {
        let fields = index.map_or(Vec::new(), |state| state.index.fields.clone());
        Self { prefix: index_prefix(collection, index), fields }
    }
}

/// Keys of rows, concatenated.
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
        Self {
            indexes: std::iter::once(None)
                .chain(kept)
                .map(|index| IndexLayout::of(collection, index))
                .collect(),
        }
    }

    /// For one index alone.
    pub fn only(collection: u32, index: &IndexState) -> Self {
        Self { indexes: vec![IndexLayout::of(collection, Some(index))] }
    }

    /// The keys of a document's rows in all indexes, in the place of those that were there. For each document they
    /// come in the same order.
    pub fn keys(&self, document: &Document, keys: &mut Keys) {
        let needs_body = self.indexes.iter().any(|index| !index.fields.is_empty());
        let body = needs_body.then(|| Fields::of(&document.body)).flatten();
        keys.clear();
        for IndexLayout { prefix, fields } in &self.indexes {
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

/// The keys of all rows that a document has in the indexes of its collection, the one by time first.
pub fn index_rows(state: &CollectionState, document: &Document) -> Vec<Bytes> {
    let mut keys = Keys::default();
    Indexer::new(state.number, &state.indexes).keys(document, &mut keys);
    keys.iter().map(Bytes::copy_from_slice).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::INDEX_PREFIX;
    use prombus_core::collection::{Index, MAX_INDEX_VALUE_BYTES, check_length, row_bytes};
    use prombus_core::{CollectionConfig, Json};
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn state(indexes: &[&[&str]]) -> CollectionState {
        let path = |field: &&str| FieldPath::parse(field).unwrap();
        let index = |fields: &&[&str]| Index { fields: fields.iter().map(path).collect(), unique: false };
        let config = CollectionConfig { indexes: indexes.iter().map(index).collect(), ..Default::default() };
        CollectionState::new("c".into(), 1, config)
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            (0..10u8).prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "[a\u{0}é\"\\\\]{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 60, 12, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..12).prop_map(Value::from),
                prop::collection::btree_map("[ab\u{0}]{0,2}", inner, 0..6)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_measured_is_what_rows_hold(a in values(), b in values(), key in "[k\u{0}]{1,5}") {
            let body = json!({"a": a, "b": {"a": b}});
            let state = state(&[&["a"], &["b.a", "b", "_key", "x", "_v", "_ts"], &["a", "a.1", "b.a.b"]]);
            let document = Document::new(key.clone(), 1, Some(7), 9, Json::from_value(&body));
            let mut rows = Keys::default();
            Indexer::new(1, &state.indexes).keys(&document, &mut rows);
            let held = rows.iter().skip(1).map(<[u8]>::len).sum::<usize>();
            let little = 4 * (200 + key.len() + document.body.len());
            match row_bytes(&document, &state.indexes) {
                0 => prop_assert!(held <= little, "{held} bytes are not little beside {little}"),
                bytes => prop_assert_eq!(bytes, held),
            }
            // What is not looked at is short enough.
            let values = |row: &[u8]| row.len() - INDEX_PREFIX - 8 - key.len();
            let is_short = rows.iter().skip(1).all(|row| values(row) <= MAX_INDEX_VALUE_BYTES);
            prop_assert_eq!(check_length(&document, &state.indexes).is_ok(), is_short);
        }
    }
}
