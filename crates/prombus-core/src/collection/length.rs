//! How much of a document an index may copy.
//!
//! An index has a row for each document, which holds the values of its fields, whole. A document of a few megabytes with many indexes would be
//! there once for each of them, in memory and on disk. So the values have a longest length: one rule for all stores,
//! which holds when a document is written and when an index is made of what is there. It is not asked on replay, and
//! not of rows that are there, because folders may be older than the rule.

use super::{FieldPath, Index, IndexState};
use crate::body::Body;
use crate::document::Document;
use crate::fields::{Field, Fields};
use crate::json::Json;
use serde_json::{Map, Value};

/// What one row of an index holds of values at most, in bytes of their encoding.
pub const MAX_INDEX_VALUE_BYTES: usize = 4 << 10;

/// What a number takes in a row.
const NUMBER_BYTES: usize = 11;
/// What a row takes beside values and key: which index it is of, and the time of the document.
const BESIDE_VALUES: usize = 21;
/// Rows that take no more than so many times what their document does are little, and are not measured.
const LITTLE: usize = 4;
/// What is kept of a document beside its text, about.
const BESIDE: usize = 200;

/// What the rows take that a document has in indexes, before and after a change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RowBytes {
    /// Those that it had.
    pub old: usize,
    /// Those that it has now.
    pub new: usize,
}

/// What of a document can be in an index.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measured<'a> {
    /// Its key.
    pub key: &'a str,
    /// Whether it has a `_v`.
    pub has_revision: bool,
    /// Its body.
    pub body: &'a Body,
}

/// Values that are too long for an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLong<'a> {
    /// The index.
    pub index: &'a Index,
    /// What they take.
    pub bytes: usize,
}

/// What the rows take that a document has in these indexes, 0 where that is little beside the document; or that its
/// values are too long for one of them. Those that failed are nobody's concern.
pub fn check_length<'a>(document: &Document, indexes: &'a [IndexState]) -> Result<usize, TooLong<'a>> {
    Measured::of(document, &Body::from(document.body.clone())).check(indexes)
}

/// What the rows take that a document has in these indexes, 0 where that is little beside the document.
pub fn row_bytes(document: &Document, indexes: &[IndexState]) -> usize {
    Measured::of(document, &Body::from(document.body.clone())).measure(indexes).0
}

impl<'a> Measured<'a> {
    fn of(document: &'a Document, body: &'a Body) -> Self {
        Self { key: &document.key, has_revision: document.revision.is_some(), body }
    }

    /// As [`check_length`] of a document.
    pub fn check<'i>(&self, indexes: &'i [IndexState]) -> Result<usize, TooLong<'i>> {
        let (bytes, too_long) = self.measure(indexes);
        too_long.map_or(Ok(bytes), Err)
    }

    /// What its rows take, and the first of the indexes that its values are too long for.
    fn measure<'i>(&self, indexes: &'i [IndexState]) -> (usize, Option<TooLong<'i>>) {
        let (mut all, mut too_long) = (0, None);
        let kept = || indexes.iter().filter(|index| index.is_kept()).map(|state| &state.index);
        if self.body.as_text().is_some_and(|text| self.is_little(text, kept())) {
            return (all, too_long);
        }
        let values = Values::of(self.body);
        for index in kept() {
            let bytes = index.fields.iter().map(|field| self.bytes(&values, field)).sum();
            if bytes > MAX_INDEX_VALUE_BYTES {
                too_long = too_long.or(Some(TooLong { index, bytes }));
            }
            all += bytes + self.beside_values();
        }
        (all, too_long)
    }

    /// What a row takes beside its values.
    fn beside_values(&self) -> usize {
        BESIDE_VALUES + self.key.len()
    }

    /// Whether no values in these indexes can be too long, and the rows are little beside the document. So it is with
    /// most documents, and to read the fields of each would be a good part of what a write takes.
    fn is_little<'i>(&self, text: &Json, indexes: impl Iterator<Item = &'i Index>) -> bool {
        let text = text.as_bytes();
        let is_flat = memchr::memchr2(b'[', b'{', text.get(1..).unwrap_or_default()).is_none();
        // A digit and a comma in an array become eleven bytes; a value that is alone is hardly longer than its text.
        let value = if is_flat { text.len() + 12 } else { 6 * (text.len() + 2) };
        let longest = value + 2 * self.key.len();
        let mut all = 0;
        for index in indexes {
            let values = index.fields.len() * longest;
            if values > MAX_INDEX_VALUE_BYTES {
                return false;
            }
            all += values + self.beside_values();
        }
        all <= LITTLE * (BESIDE + self.key.len() + text.len())
    }

    /// What the value at a path takes, or that there is none.
    fn bytes(&self, values: &Values<'_>, path: &FieldPath) -> usize {
        match path.as_str() {
            "_key" => string_bytes(self.key),
            "_ts" => NUMBER_BYTES,
            "_v" if self.has_revision => NUMBER_BYTES,
            "_v" => value_bytes(None),
            _ => values.bytes(path),
        }
    }
}

/// The values of a body by the names of its fields.
enum Values<'a> {
    /// A text; `None` where it cannot be read.
    Text(Option<Fields<'a>>),
    Fields(&'a Map<String, Value>),
}

impl<'a> Values<'a> {
    fn of(body: &'a Body) -> Self {
        match body.as_fields() {
            Some(fields) => Self::Fields(fields),
            None => Self::Text(body.as_text().and_then(Fields::of)),
        }
    }

    fn bytes(&self, path: &FieldPath) -> usize {
        let name = path.segments()[0].as_str();
        let first = match self {
            Self::Fields(fields) => fields.get(name),
            Self::Text(fields) => {
                let field = fields.as_ref().and_then(|fields| fields.get(name));
                if let Some(string) = field.and_then(Field::plain_string) {
                    // Nothing lies below it, and a long one need not be copied.
                    return if path.segments().len() == 1 { string_bytes(string) } else { value_bytes(None) };
                }
                field.and_then(|field| field.value().ok())
            }
        };
        value_bytes(first.and_then(|first| path.below(first)))
    }
}

/// What a value takes in a row, or that there is none.
fn value_bytes(value: Option<&Value>) -> usize {
    match value {
        None | Some(Value::Null | Value::Bool(_)) => 1,
        Some(Value::Number(_)) => NUMBER_BYTES,
        Some(Value::String(s)) => string_bytes(s),
        Some(Value::Array(items)) => 2 + items.iter().map(|item| value_bytes(Some(item))).sum::<usize>(),
        Some(Value::Object(fields)) => {
            let field = |(name, field): (&String, &Value)| string_bytes(name) + value_bytes(Some(field));
            2 + fields.iter().map(field).sum::<usize>()
        }
    }
}

/// What a string takes in a row.
fn string_bytes(string: &str) -> usize {
    1 + string.len() + memchr::memchr_iter(0, string.as_bytes()).count() + 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collection::{CollectionConfig, CollectionState, IndexFailure, Progress};
    use crate::document::WriteOp;
    use serde_json::json;

    fn state(indexes: &[&[&str]]) -> CollectionState {
        let path = |field: &&str| FieldPath::parse(field).unwrap();
        let index = |fields: &&[&str]| Index { fields: fields.iter().map(path).collect(), unique: false };
        let config = CollectionConfig { indexes: indexes.iter().map(index).collect(), ..Default::default() };
        CollectionState::new("c".into(), 1, config)
    }

    /// What is too long, asked of a body as a text and as fields.
    fn too_long(state: &CollectionState, key: &str, body: &Value) -> Option<(Vec<String>, usize)> {
        let text = Body::from(Json::from_value(body));
        let fields = Body::change(Some(text.clone()), &WriteOp::Merge(Json::from_value(&json!({}))));
        let asked = [text, fields.unwrap().unwrap()].map(|body| {
            let checked = Measured { key, has_revision: true, body: &body }.check(&state.indexes);
            let names = |index: &Index| index.fields.iter().map(ToString::to_string).collect();
            checked.err().map(|TooLong { index, bytes }| (names(index), bytes))
        });
        assert_eq!(asked[0], asked[1], "the form of a body makes no difference");
        asked.into_iter().next().flatten()
    }

    /// A string whose encoding takes so many bytes.
    fn taking(bytes: usize) -> String {
        "x".repeat(bytes - string_bytes(""))
    }

    #[test]
    fn values_of_one_row_count_together() {
        let state = state(&[&["n"], &["a", "o.b"]]);
        let (half, most) = (MAX_INDEX_VALUE_BYTES / 2, MAX_INDEX_VALUE_BYTES);
        let body = |a: usize, b: usize| json!({"a": taking(a), "o": {"b": taking(b)}, "n": taking(half + 1)});
        assert_eq!(too_long(&state, "k", &body(half, half)), None);
        let both = Some((vec!["a".into(), "o.b".into()], most + 1));
        assert_eq!(too_long(&state, "k", &body(half, half + 1)), both);
        let alone = json!({"n": taking(most + 1), "a": taking(most + 1)});
        assert_eq!(too_long(&state, "k", &alone), Some((vec!["n".into()], most + 1)), "the first is named");
        assert_eq!(too_long(&state, "k", &json!({"free": taking(9 * most)})), None);
    }

    #[test]
    fn values_of_any_type_count_as_they_are_encoded() {
        let state = state(&[&["v"]]);
        let most = MAX_INDEX_VALUE_BYTES;
        let ones = |count: usize| json!({"v": vec![1; count]});
        let fits = (most - 2) / NUMBER_BYTES;
        assert_eq!(too_long(&state, "k", &ones(fits)), None);
        let bytes = |body: Value| too_long(&state, "k", &body).unwrap().1;
        assert_eq!(bytes(ones(fits + 1)), 2 + (fits + 1) * NUMBER_BYTES);
        assert_eq!(bytes(json!({"v": "\u{0}".repeat(most / 2)})), most + 3, "zeros take two bytes");
        assert_eq!(bytes(json!({"v": {taking(most): null}})), most + 3);
        assert_eq!(bytes(json!({"v": [taking(most)]})), most + 2);
    }

    #[test]
    fn what_the_hub_sets_counts_and_what_failed_does_not() {
        let key = "k".repeat(1_000);
        let state = state(&[&["_key", "_ts", "_v", "v"]]);
        let of_hub = string_bytes(&key) + 2 * NUMBER_BYTES;
        let room = MAX_INDEX_VALUE_BYTES - of_hub;
        assert_eq!(too_long(&state, &key, &json!({"v": taking(room)})), None);
        let long = json!({"v": taking(room + 1)});
        assert_eq!(too_long(&state, &key, &long).unwrap().1, MAX_INDEX_VALUE_BYTES + 1);
        let failure = IndexFailure::TooLong { key: "k".into(), bytes: 1 };
        assert_eq!(too_long(&state.with_progress(0, Progress::Failed(failure)), &key, &long), None);
    }

    #[test]
    fn what_a_body_took_before_a_write_hides_nothing() {
        let state = state(&[&["v"]]);
        let before = format!("{{\"v\":[{}]}}", vec!["1e15"; 2_000].join(","));
        let before = Body::from(Json::parse(before.into()).unwrap());
        let set = WriteOp::Merge(Json::from_value(&json!({"v": taking(MAX_INDEX_VALUE_BYTES + 1)})));
        let body = Body::change(Some(before), &set).unwrap().unwrap();
        let checked = Measured { key: "k", has_revision: false, body: &body }.check(&state.indexes);
        assert_eq!(checked.unwrap_err().bytes, MAX_INDEX_VALUE_BYTES + 1);
    }
}
