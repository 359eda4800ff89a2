//! Documents, and what a write makes of one: pure functions that every store shares.

use crate::body::{Body, text_bytes};
use crate::collection::{self, FieldPath, MAX_KEY_BYTES, Owner};
use crate::fields::{Field, Fields};
use crate::json::{self, Json};
use serde_json::{Map, Number, Value};
use std::sync::Arc;
use uuid::Uuid;
use xxhash_rust::xxh3::Xxh3;

/// The largest document, in bytes.
pub const MAX_BODY_BYTES: usize = 4 << 20;
/// How many values a document may hold, itself and those of all depths counted. As a tree, small values take a hundred
/// times the memory of their text.
pub const MAX_VALUES: usize = 1 << 16;
/// A value counts as at least so much where it is there as a tree.
const VALUE_BYTES: usize = 64;

/// What limits count of a tree whose text takes `bytes`.
pub fn tree_bytes(bytes: usize, values: usize) -> usize {
    bytes.max(values.saturating_mul(VALUE_BYTES))
}

/// How many values there are in one, itself included.
pub fn values_in(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(values_in).sum(),
        Value::Object(fields) => values_in_all(fields),
        _ => 0,
    }
}

/// How many values there are in all of these fields.
pub fn values_in_all(fields: &Map<String, Value>) -> usize {
    fields.values().map(values_in).sum()
}
/// Fields that the hub itself sets.
pub const RESERVED: [&str; 3] = ["_key", "_ts", "_v"];

/// A document of a collection.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// Its key in the collection.
    pub key: String,
    /// Counts its writes, from 1; a document that was deleted starts over.
    pub version: u64,
    /// What readers see as `_v`, where it is versioned.
    pub revision: Option<i64>,
    /// The time of what last wrote it, in epoch milliseconds.
    pub ts: u64,
    /// A hash of all that a reader sees of it.
    pub etag: u128,
    /// A JSON object.
    pub body: Json,
}

impl Document {
    /// A document as it is written.
    pub fn new(key: String, version: u64, revision: Option<i64>, ts: u64, body: Json) -> Self {
        let mut hash = Xxh3::new();
        hash.update(&(key.len() as u64).to_le_bytes());
        hash.update(key.as_bytes());
        hash.update(&ts.to_le_bytes());
        hash.update(&[u8::from(revision.is_some())]);
        hash.update(&revision.unwrap_or_default().to_le_bytes());
        hash.update(body.as_bytes());
        Self { key, version, revision, ts, etag: hash.digest128(), body }
    }

    /// How much it takes, about.
    pub fn size(&self) -> usize {
        self.key.len() + self.body.len()
    }

    /// Appends what readers see: the fields that the hub sets, and then those of the body.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        out.reserve(self.body.len() + self.key.len() + 64);
        out.extend_from_slice(b"{\"_key\":");
        json::write_string(out, &self.key);
        out.extend_from_slice(b",\"_ts\":");
        out.extend_from_slice(itoa::Buffer::new().format(self.ts).as_bytes());
        if let Some(revision) = self.revision {
            out.extend_from_slice(b",\"_v\":");
            out.extend_from_slice(itoa::Buffer::new().format(revision).as_bytes());
        }
        match self.body.as_bytes() {
            b"{}" => out.push(b'}'),
            body => {
                out.push(b',');
                out.extend_from_slice(&body[1..]);
            }
        }
    }

    /// What readers see, as one text.
    pub fn to_json(&self) -> Json {
        let mut out = Vec::new();
        self.write_json(&mut out);
        Json::from_stored(out.into())
    }

    /// Those fields of the body that the paths start at.
    pub fn fields<'a>(&self, paths: impl Iterator<Item = &'a FieldPath>) -> Map<String, Value> {
        let mut kept = Map::new();
        let mut fields: Option<Fields<'_>> = None;
        for name in paths.map(|path| &path.segments()[0]) {
            if fields.is_none() {
                fields = Fields::of(&self.body);
            }
            let field = fields.as_ref().and_then(|fields| fields.get(name));
            if let Some(Ok(value)) = field.map(Field::value)
                && !kept.contains_key(name)
            {
                kept.insert(name.clone(), value.clone());
            }
        }
        kept
    }

    /// The value of a field that the hub sets, or that it is not there; `None` where this is no such field.
    pub fn reserved(&self, path: &FieldPath) -> Option<Option<Value>> {
        match path.segments() {
            [name] if name == "_key" => Some(Some(Value::from(self.key.as_str()))),
            [name] if name == "_ts" => Some(Some(Value::from(self.ts))),
            [name] if name == "_v" => Some(self.revision.map(Value::from)),
            _ => None,
        }
    }

    /// The value at a path, given the [`Document::fields`] that it starts at.
    pub fn value(&self, fields: &Map<String, Value>, path: &FieldPath) -> Option<Value> {
        match self.reserved(path) {
            Some(value) => value,
            None => path.below(fields.get(path.segments()[0].as_str())?).cloned(),
        }
    }
}

/// A change of one document.
#[derive(Debug, Clone, PartialEq)]
pub struct DocumentWrite {
    /// The collection. One that does not exist comes into being with its first write, and belongs to the writer.
    pub collection: Arc<str>,
    /// Who writes; must be the owner of the collection.
    pub owner: Owner,
    /// The document's key.
    pub key: String,
    /// What to do.
    pub op: WriteOp,
    /// What its `_v` is to be.
    pub versioning: Versioning,
    /// The version that it must have now; 0 where there must be none.
    pub if_version: Option<u64>,
    /// The time of what writes it.
    pub ts: u64,
    /// The event that writes it.
    pub cause: Option<Uuid>,
}

impl DocumentWrite {
    /// A write by a commit, without a condition and without `_v`.
    pub fn new(collection: &str, key: impl Into<String>, op: WriteOp) -> Self {
        Self {
            collection: collection.into(),
            owner: Owner::COMMITS,
            key: key.into(),
            op,
            versioning: Versioning::None,
            if_version: None,
            ts: 0,
            cause: None,
        }
    }

    /// Refuses a collection that users cannot have, or a key that is too long, with what is wrong.
    pub fn check_names(&self) -> Result<(), String> {
        collection::check_name(&self.collection).map_err(|error| error.to_string())?;
        match self.key.len() {
            bytes if bytes > MAX_KEY_BYTES => {
                Err(format!("the key takes {bytes} bytes, more than the {MAX_KEY_BYTES} that it may"))
            }
            _ => Ok(()),
        }
    }

    /// The size that limits go by, about.
    pub fn size(&self) -> usize {
        let content = match &self.op {
            WriteOp::Set(json) | WriteOp::Merge(json) | WriteOp::Inc(json) => json.len(),
            WriteOp::Update { set, inc } => {
                tree_bytes(text_bytes(set), values_in_all(set)) + tree_bytes(text_bytes(inc), inc.len())
            }
            WriteOp::Delete | WriteOp::Receipt(_) => 0,
        };
        self.collection.len() + self.key.len() + content
    }
}

/// What readers see as the `_v` of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Versioning {
    /// There is none.
    None,
    /// The count of its writes.
    Count,
    /// This one; the write is left out where the document has one as great.
    Newer(i64),
}

/// What a write does. A store logs its result and not the operation, so that replay cannot count twice; of several
/// writes of a commit to one document, only the last result.
#[derive(Debug, Clone, PartialEq)]
pub enum WriteOp {
    /// Replaces the document. The text is taken as it is: see [`normal`].
    Set(Json),
    /// Merges into it (RFC 7396).
    Merge(Json),
    /// Adds to numbers in it; fields that are absent count as 0. A sum of integers that leaves 64 bits is refused.
    Inc(Json),
    /// Sets some fields, leaving the others, and adds to numbers.
    Update {
        /// Fields to set.
        set: Map<String, Value>,
        /// Numbers to add.
        inc: Map<String, Value>,
    },
    /// Removes it.
    Delete,
    /// Replaces it with what this commit has done, beside this digest of what was asked: see
    /// [`KeptReceipt`](crate::KeptReceipt). The limit of documents does not hold for it.
    Receipt(u128),
}

impl WriteOp {
    /// Replaces a document with this object: see [`normal`].
    pub fn set(object: Value) -> Result<Self, WriteError> {
        Ok(Self::Set(Json::from_object(&normal(object)?)))
    }

    /// Merges this object into a document.
    pub fn merge(patch: Value) -> Result<Self, WriteError> {
        patch.as_object().map_or(Ok(()), check_unreserved)?;
        Ok(Self::Merge(Json::from_object(&normal(patch)?)))
    }

    /// Adds these numbers to those of a document. An integer that is too great for a document is still added as one, or
    /// refused.
    pub fn inc(amounts: Value) -> Result<Self, WriteError> {
        let Value::Object(amounts) = amounts else { return Err(WriteError::NotAnObject) };
        check_unreserved(&amounts)?;
        match amounts.iter().find(|(_, amount)| !amount.is_number()) {
            Some((field, _)) => Err(WriteError::NotANumber(field.clone())),
            None => Ok(Self::Inc(Json::from_object(&amounts))),
        }
    }
}

/// Refuses fields that the hub sets.
pub(crate) fn check_unreserved(fields: &Map<String, Value>) -> Result<(), WriteError> {
    match RESERVED.iter().find(|name| fields.contains_key(**name)) {
        Some(name) => Err(WriteError::Reserved((*name).to_owned())),
        None => Ok(()),
    }
}

/// Why a write makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// Documents are objects.
    #[error("a document must be a JSON object")]
    NotAnObject,
    /// Only numbers can be added.
    #[error("field {0:?} is not a number, or the sum is out of range")]
    NotANumber(String),
    /// Integers are added exactly, or not at all.
    #[error("field {0:?} would leave the 64-bit integers; add a double (such as 1.0) where rounding is fine")]
    SumOutOfRange(String),
    /// Integers are added exactly, or not at all.
    #[error(
        "field {0:?} is a double of 2^53 or more, which an integer may not change; add a double (such as 1.0) where rounding is fine, or set the field to a 64-bit integer first"
    )]
    InexactSum(String),
    /// A number that neither 64 bits nor a double can hold.
    #[error("a number in it is neither a 64-bit integer nor a double")]
    NumberOutOfRange,
    /// There is a limit.
    #[error("the document takes {0} bytes, more than the {MAX_BODY_BYTES} that it may")]
    TooLarge(usize),
    /// There is a limit.
    #[error(
        "the document has {0} values, with those inside of others, more than the {MAX_VALUES} that it may"
    )]
    TooManyValues(usize),
    /// What a changefeed tells of it must fit into an event.
    #[error(
        "the collection has a changefeed, and the event of this change takes {bytes} bytes, more than limits.event_bytes = {limit}"
    )]
    ChangeTooLarge {
        /// The size of the event.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// Some fields are the hub's own.
    #[error("field {0:?} is set by the hub itself")]
    Reserved(String),
}

/// An object as a document holds it: numbers are 64-bit integers or doubles, and the fields that the hub sets are
/// left out.
pub fn normal(object: Value) -> Result<Map<String, Value>, WriteError> {
    let Value::Object(mut fields) = object else { return Err(WriteError::NotAnObject) };
    RESERVED.iter().for_each(|name| drop(fields.remove(*name)));
    fields.values_mut().for_each(normalize);
    Ok(fields)
}

/// The text of an object with these fields, as [`normal`] makes it of them. They come in the order of their names.
pub fn normal_text<'a, 'f: 'a>(
    fields: impl Iterator<Item = &'a Field<'f>>,
) -> Result<Json, serde_json::Error> {
    let mut out = Vec::with_capacity(256);
    out.push(b'{');
    for field in fields.filter(|field| !RESERVED.contains(&field.name())) {
        if out.len() > 1 {
            out.push(b',');
        }
        json::write_string(&mut out, field.name());
        out.push(b':');
        if field.is_normal() {
            out.extend_from_slice(field.text().as_bytes());
        } else {
            let mut value = field.value()?.clone();
            normalize(&mut value);
            serde_json::to_writer(&mut out, &value)?;
        }
    }
    out.push(b'}');
    Ok(Json::from_stored(out.into()))
}

/// Makes numbers of a value 64-bit integers or doubles.
pub fn normalize(value: &mut Value) {
    match value {
        Value::Number(n) if n.as_i64().is_none() => {
            let double = n.as_f64().unwrap_or_default();
            *value = Number::from_f64(double).map_or(Value::Null, Value::Number);
        }
        Value::Array(items) => items.iter_mut().for_each(normalize),
        Value::Object(fields) => fields.values_mut().for_each(normalize),
        _ => {}
    }
}

/// The document's body after `op`, or `None` where that removes it.
pub fn apply(before: Option<&Json>, op: &WriteOp) -> Result<Option<Json>, WriteError> {
    let body = Body::change(before.cloned().map(Body::from), op)?;
    Ok(body.map(|body| body.to_json()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn json(text: &str) -> Json {
        Json::parse(text.to_owned().into()).unwrap()
    }

    fn after(before: Option<&str>, op: WriteOp) -> Result<Option<String>, WriteError> {
        let body = apply(before.map(json).as_ref(), &op)?;
        Ok(body.map(|body| String::from_utf8(body.as_bytes().to_vec()).unwrap()))
    }

    #[test]
    fn set_keeps_the_text() {
        assert_eq!(
            after(None, WriteOp::Set(json(r#"{"b":1.10,"a":2}"#))).unwrap().unwrap(),
            r#"{"b":1.10,"a":2}"#
        );
        assert_eq!(after(None, WriteOp::Set(json("[1]"))), Err(WriteError::NotAnObject));
    }

    #[test]
    fn merge_follows_rfc_7396() {
        let merge = |patch| WriteOp::Merge(json(patch));
        assert_eq!(
            after(Some(r#"{"a":{"b":1,"c":2}}"#), merge(r#"{"a":{"b":null,"d":3}}"#)).unwrap().unwrap(),
            r#"{"a":{"c":2,"d":3}}"#
        );
        assert_eq!(
            after(Some(r#"{"a":[1]}"#), merge(r#"{"a":{"b":{"c":null}}}"#)).unwrap().unwrap(),
            r#"{"a":{"b":{}}}"#
        );
        assert_eq!(after(None, merge(r#"{"a":1}"#)).unwrap().unwrap(), r#"{"a":1}"#);
    }

    #[test]
    fn inc_adds_integers_exactly_and_doubles_as_doubles() {
        let inc = |amounts| WriteOp::Inc(json(amounts));
        assert_eq!(
            after(Some(r#"{"n":9007199254740993}"#), inc(r#"{"n":1,"m":-2}"#)).unwrap().unwrap(),
            r#"{"m":-2,"n":9007199254740994}"#
        );
        assert_eq!(after(Some(r#"{"n":1}"#), inc(r#"{"n":0.5}"#)).unwrap().unwrap(), r#"{"n":1.5}"#);
        assert_eq!(after(Some(r#"{"n":"x"}"#), inc(r#"{"n":1}"#)), Err(WriteError::NotANumber("n".into())));
    }

    #[test]
    fn whoever_makes_a_write_the_fields_of_the_hub_are_not_changed() {
        for name in RESERVED {
            let reserved = WriteError::Reserved(name.into());
            let fields = serde_json::json!({name: 1});
            assert_eq!(WriteOp::merge(fields.clone()), Err(reserved.clone()));
            assert_eq!(WriteOp::inc(fields.clone()), Err(reserved.clone()));
            let text = Json::from_value(&fields);
            for op in [WriteOp::Merge(text.clone()), WriteOp::Inc(text)] {
                assert_eq!(after(Some("{}"), op), Err(reserved.clone()));
            }
        }
        assert_eq!(WriteOp::inc(serde_json::json!({"n": "1"})), Err(WriteError::NotANumber("n".into())));
    }

    #[test]
    fn fields_of_the_deepest_document_are_read() {
        let deep = json::MAX_DEPTH - 1;
        let text = format!(r#"{{"a":{}1{},"b":2}}"#, "[".repeat(deep), "]".repeat(deep));
        let document = Document::new("k".into(), 1, None, 0, json(&text));
        let paths = ["a", "b", "c"].map(|path| FieldPath::parse(path).unwrap());
        let fields = document.fields(paths.iter());
        assert_eq!(document.value(&fields, &paths[1]), Some(Value::from(2)));
        assert!(document.value(&fields, &paths[0]).is_some_and(|value| value.is_array()));
        assert_eq!(document.value(&fields, &paths[2]), None);
    }

    proptest! {
        #[test]
        fn texts_are_made_normal_as_values_are(
            fields in prop::collection::vec(("[ab_\"\\\\\u{e9}]{0,2}|_ts|_key", raw()), 0..6)
        ) {
            let fields = fields.iter().map(|(name, text)| format!("{}:{text}", Value::from(name.as_str())));
            let json = json(&format!("{{{}}}", fields.collect::<Vec<_>>().join(",")));
            let by_text = normal_text(Fields::of(&json).unwrap().iter());
            match json.to_value() {
                Ok(value) => {
                    let by_value = Json::from_value(&Value::Object(normal(value).unwrap()));
                    prop_assert_eq!(by_text.unwrap(), by_value);
                }
                // A number that nothing can hold. It may be in a field that is left out.
                Err(_) => {
                    let fields = Fields::of(&json).unwrap();
                    prop_assert!(fields.has_repeats() || fields.iter().any(|field| field.value().is_err()));
                }
            }
        }
    }

    /// Texts of values, in all the ways that they may be written.
    fn raw() -> impl Strategy<Value = String> {
        let number = "-?(0|[1-9][0-9]{0,20})([.][0-9]{1,4})?([eE][+-]?[0-9]{1,3})?";
        let leaf = prop_oneof![
            number.prop_map(String::from),
            prop::sample::select(vec![
                "null",
                "true",
                "false",
                "-0",
                "0",
                "9223372036854775807",
                "9223372036854775808",
                "-9223372036854775808",
                "18446744073709551616",
                "1e2",
                "[]",
                "{}",
            ])
            .prop_map(String::from),
            any::<String>().prop_map(|text| Value::from(text).to_string()),
            "[a-z]{0,3}".prop_map(|text| format!(r#""{text}\u00e9\/""#)),
        ];
        leaf.prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(|items| format!("[{}]", items.join(","))),
                (inner.clone(), inner).prop_map(|(b, a)| format!(r#"{{"b":{b},"a":{a}}}"#)),
            ]
        })
    }

    #[test]
    fn delete_removes() {
        assert_eq!(after(Some("{}"), WriteOp::Delete).unwrap(), None);
    }
}
