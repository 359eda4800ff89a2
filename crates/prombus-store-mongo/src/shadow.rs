//! JSON as BSON, for users' own queries. It is lossy: big numbers are rounded, and what does not fit is left out; the text
//! beside is the truth.

use mongodb::bson::raw::CString;
use mongodb::bson::{RawArrayBuf, RawBson, RawDocumentBuf};
use prombus_core::Json;
use serde_json::{Map, Number, Value};

/// A text that is longer has no shadow: as BSON it would take many times that.
const MAX_TEXT_BYTES: usize = 256 << 10;
/// How deep it nests: MongoDB takes 100 levels, of which a document needs a few.
const MAX_DEPTH: usize = 80;

/// A value as BSON; `None` where it does not fit.
pub fn of_json(json: &Json) -> Option<RawBson> {
    if json.len() > MAX_TEXT_BYTES {
        return None;
    }
    value(&json.to_value().ok()?, 0)
}

/// The fields of an object that fit, and whether all of them do. Those with `taken` names do not.
pub fn of_fields(json: &Json, taken: &[&str]) -> (Vec<(CString, RawBson)>, bool) {
    let fields = (json.len() <= MAX_TEXT_BYTES).then(|| json.to_value().ok()).flatten();
    let Some(Value::Object(fields)) = fields else { return (Vec::new(), false) };
    let fits = |(name, field): (&String, &Value)| {
        if taken.contains(&name.as_str()) {
            return None;
        }
        Some((field_name(name)?, value(field, 1)?))
    };
    let fitting: Vec<_> = fields.iter().filter_map(fits).collect();
    let is_whole = fitting.len() == fields.len();
    (fitting, is_whole)
}

/// A name that MongoDB takes without seeing an operator in it.
fn field_name(name: &str) -> Option<CString> {
    match name.is_empty() || name.starts_with('$') {
        true => None,
        false => CString::try_from(name).ok(),
    }
}

fn value(json: &Value, depth: usize) -> Option<RawBson> {
    if depth > MAX_DEPTH {
        return None;
    }
    Some(match json {
        Value::Null => RawBson::Null,
        Value::Bool(bool) => RawBson::Boolean(*bool),
        Value::Number(n) => number(n),
        Value::String(text) => RawBson::String(text.clone()),
        Value::Array(items) => {
            let mut array = RawArrayBuf::new();
            for item in items {
                array.push(value(item, depth + 1)?);
            }
            RawBson::Array(array)
        }
        Value::Object(fields) => RawBson::Document(object(fields, depth)?),
    })
}

fn object(fields: &Map<String, Value>, depth: usize) -> Option<RawDocumentBuf> {
    let mut document = RawDocumentBuf::new();
    for (name, field) in fields {
        document.append(field_name(name)?, value(field, depth + 1)?);
    }
    Some(document)
}

fn number(n: &Number) -> RawBson {
    match n.as_i64() {
        Some(int) => i32::try_from(int).map_or(RawBson::Int64(int), RawBson::Int32),
        None => RawBson::Double(n.as_f64().unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mongodb::bson::{Bson, bson};
    use serde_json::json;

    fn shadow(json: Value) -> Option<Bson> {
        of_json(&Json::from_value(&json)).map(|raw| Bson::try_from(raw).unwrap())
    }

    #[test]
    fn plain_json_is_plain_bson() {
        let json = json!({"a": [1, null, true, "x"], "b": {"c": 5_000_000_000u64, "d": 1.5}});
        let bson = bson!({"a": [1, null, true, "x"], "b": {"c": 5_000_000_000i64, "d": 1.5}});
        assert_eq!(shadow(json), Some(bson));
        assert_eq!(shadow(json!(u64::MAX)), Some(Bson::Double(u64::MAX as f64)), "big numbers are rounded");
    }

    #[test]
    fn what_does_not_fit_has_no_shadow() {
        let deep = (0..90).fold(json!(1), |inner, _| json!([inner]));
        for odd in [json!({"$a": 1}), json!({"a": {"b\u{0}": 1}}), deep, json!("x".repeat(MAX_TEXT_BYTES))] {
            assert_eq!(shadow(odd), None);
        }
        let (fields, is_whole) = of_fields(&Json::from_value(&json!({"a": 1, "$b": 2, "_id": 3})), &["_id"]);
        assert_eq!((fields.len(), is_whole), (1, false));
    }
}
