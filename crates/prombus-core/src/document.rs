//! Documents, and what a write makes of one: a pure function that every store shares.

use crate::json::Json;
use serde_json::{Map, Number, Value};

/// A document of a collection.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// Its key in the collection.
    pub key: String,
    /// Counts its writes, from 1; a document that was deleted starts over.
    pub version: u64,
    /// The time of what last wrote it, in epoch milliseconds.
    pub ts: u64,
    /// A JSON object.
    pub body: Json,
}

/// A change of one document.
#[derive(Debug, Clone, PartialEq)]
pub struct DocumentWrite {
    /// The collection.
    pub collection: String,
    /// The document's key.
    pub key: String,
    /// What to do.
    pub op: WriteOp,
    /// The version that it must have now; 0 where there must be none.
    pub if_version: Option<u64>,
    /// The time of what writes it.
    pub ts: u64,
}

/// What a write does. A store logs its result and not the operation, so that replay cannot count twice.
#[derive(Debug, Clone, PartialEq)]
pub enum WriteOp {
    /// Replaces the document.
    Set(Json),
    /// Merges into it (RFC 7396).
    Merge(Json),
    /// Adds to numbers in it; fields that are absent count as 0.
    Inc(Json),
    /// Removes it.
    Delete,
}

/// Why a write makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// Documents are objects.
    #[error("a document must be a JSON object")]
    NotAnObject,
    /// Only numbers can be added.
    #[error("field {0:?} is not a number, or the sum does not fit one")]
    NotANumber(String),
}

/// The document's body after `op`, or `None` where that removes it.
pub fn apply(before: Option<&Json>, op: &WriteOp) -> Result<Option<Json>, WriteError> {
    let object = |json: &Json| match json.to_value() {
        Ok(Value::Object(map)) => Ok(map),
        _ => Err(WriteError::NotAnObject),
    };
    let old = || before.map_or(Ok(Map::new()), object);
    let new = match op {
        WriteOp::Delete => return Ok(None),
        WriteOp::Set(body) => return object(body).map(|_| Some(body.clone())),
        WriteOp::Merge(patch) => merged(old()?, object(patch)?),
        WriteOp::Inc(amounts) => incremented(old()?, object(amounts)?)?,
    };
    Ok(Some(Json::from_value(&Value::Object(new))))
}

fn merged(mut target: Map<String, Value>, patch: Map<String, Value>) -> Map<String, Value> {
    for (field, change) in patch {
        match change {
            Value::Null => {
                target.remove(&field);
            }
            Value::Object(inner) => {
                let old = match target.remove(&field) {
                    Some(Value::Object(old)) => old,
                    _ => Map::new(),
                };
                target.insert(field, Value::Object(merged(old, inner)));
            }
            other => {
                target.insert(field, other);
            }
        }
    }
    target
}

fn incremented(
    mut target: Map<String, Value>,
    amounts: Map<String, Value>,
) -> Result<Map<String, Value>, WriteError> {
    for (field, amount) in amounts {
        let sum = sum(target.get(&field).unwrap_or(&Value::from(0)), &amount);
        let sum = sum.ok_or_else(|| WriteError::NotANumber(field.clone()))?;
        target.insert(field, Value::Number(sum));
    }
    Ok(target)
}

/// Integers stay integers as long as the sum fits; anything else is a finite double.
fn sum(a: &Value, b: &Value) -> Option<Number> {
    if let (Some(a), Some(b)) = (a.as_i64(), b.as_i64())
        && let Some(sum) = a.checked_add(b)
    {
        return Some(sum.into());
    }
    Number::from_f64(a.as_f64()? + b.as_f64()?)
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn delete_removes() {
        assert_eq!(after(Some("{}"), WriteOp::Delete).unwrap(), None);
    }
}
