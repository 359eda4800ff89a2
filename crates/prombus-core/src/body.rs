//! The body of a document while writes change it.

use crate::document::{self, MAX_BODY_BYTES, MAX_VALUES, WriteError, WriteOp};
use crate::json::Json;
use serde_json::{Map, Number, Value};
use std::io;

/// A text that is written anew takes no more than so many times its bytes: `1e15` becomes `1000000000000000.0`.
const MOST_GROWTH: usize = 8;

/// A JSON object: a text as it was set or stored, or fields once a write has changed some of them. So many writes to
/// one large document cost what they change, and not each the size of the document.
#[derive(Debug, Clone)]
pub struct Body(Form);

#[derive(Debug, Clone)]
enum Form {
    Text(Json),
    Fields(Fields),
}

impl From<Json> for Body {
    fn from(text: Json) -> Self {
        Self(Form::Text(text))
    }
}

impl Body {
    /// What its text takes. Below an eighth of what a document may take this is about right, from there on exact.
    pub fn bytes(&self) -> usize {
        match &self.0 {
            Form::Text(text) => text.len(),
            Form::Fields(fields) => fields.bytes,
        }
    }

    /// What it takes in memory, as far as limits go by that.
    pub fn weight(&self) -> usize {
        match &self.0 {
            Form::Text(text) => text.len(),
            Form::Fields(fields) => document::tree_bytes(fields.bytes, fields.values),
        }
    }

    /// Whether it is there as a text, which is the smallest that it can be in memory.
    pub fn is_text(&self) -> bool {
        self.as_text().is_some()
    }

    /// The text, where it is there as one.
    pub fn as_text(&self) -> Option<&Json> {
        match &self.0 {
            Form::Text(text) => Some(text),
            Form::Fields(_) => None,
        }
    }

    /// The fields, where it is there as those.
    pub fn as_fields(&self) -> Option<&Map<String, Value>> {
        match &self.0 {
            Form::Text(_) => None,
            Form::Fields(fields) => Some(&fields.all),
        }
    }

    /// Its text.
    pub fn to_json(&self) -> Json {
        match &self.0 {
            Form::Text(text) => text.clone(),
            Form::Fields(fields) => Json::from_object(&fields.all),
        }
    }

    /// The body after `op`, or `None` where that removes it.
    pub fn change(before: Option<Self>, op: &WriteOp) -> Result<Option<Self>, WriteError> {
        let mut fields = match op {
            WriteOp::Delete => return Ok(None),
            WriteOp::Set(text) if text.as_bytes().first() == Some(&b'{') => {
                // A value and what stands before the next one take two bytes at least.
                if text.len() > 2 * MAX_VALUES {
                    check_values(text.values())?;
                }
                return Ok(Some(text.clone().into()));
            }
            // Only a store knows what a commit has done: see [`receipt::body`](crate::receipt::body).
            WriteOp::Set(_) | WriteOp::Receipt(_) => return Err(WriteError::NotAnObject),
            WriteOp::Merge(_) | WriteOp::Inc(_) | WriteOp::Update { .. } => match before {
                None => Fields { all: Map::new(), bytes: 2, values: 1, is_exact: true },
                Some(Self(Form::Text(text))) => Fields::of(&text)?,
                Some(Self(Form::Fields(fields))) => fields,
            },
        };
        match op {
            WriteOp::Merge(patch) => {
                fields.values += patch.values();
                merge(&mut fields.all, change(patch)?, &mut fields.bytes);
            }
            WriteOp::Inc(amounts) => fields.add(&change(amounts)?)?,
            WriteOp::Update { set, inc } => {
                fields.add(inc)?;
                fields.values += document::values_in_all(set);
                set.iter().for_each(|(name, value)| fields.put(name, value.clone()));
            }
            WriteOp::Set(_) | WriteOp::Delete | WriteOp::Receipt(_) => {}
        }
        fields.measure()?;
        Ok(Some(Self(Form::Fields(fields))))
    }
}

fn check_values(values: usize) -> Result<(), WriteError> {
    if values > MAX_VALUES { Err(WriteError::TooManyValues(values)) } else { Ok(()) }
}

/// The fields that a write is to change. They are counted before they are made a tree.
fn change(json: &Json) -> Result<Map<String, Value>, WriteError> {
    let fields = fields_of(json, json.values())?;
    document::check_unreserved(&fields)?;
    Ok(fields)
}

/// The fields of an object that holds so many values.
fn fields_of(json: &Json, values: usize) -> Result<Map<String, Value>, WriteError> {
    check_values(values)?;
    match json.to_value() {
        Ok(Value::Object(fields)) => Ok(fields),
        _ => Err(WriteError::NotAnObject),
    }
}

#[derive(Debug, Clone)]
struct Fields {
    all: Map<String, Value>,
    /// What they take as a text.
    bytes: usize,
    /// How many values they are at most.
    values: usize,
    /// Whether the bytes were counted, and not taken from the text that they came from.
    is_exact: bool,
}

impl Fields {
    fn of(text: &Json) -> Result<Self, WriteError> {
        let values = text.values();
        Ok(Self { all: fields_of(text, values)?, bytes: text.len(), values, is_exact: false })
    }

    /// Counts what they take where that may matter, and refuses too many.
    fn measure(&mut self) -> Result<(), WriteError> {
        if self.values > MAX_VALUES {
            // Some may have taken the place of others.
            self.values = 1 + document::values_in_all(&self.all);
            check_values(self.values)?;
        }
        if !self.is_exact && self.bytes > MAX_BODY_BYTES / MOST_GROWTH {
            (self.bytes, self.is_exact) = (text_bytes(&self.all), true);
        }
        Ok(())
    }

    fn put(&mut self, name: &str, value: Value) {
        put(&mut self.all, name.to_owned(), value, &mut self.bytes);
    }

    fn add(&mut self, amounts: &Map<String, Value>) -> Result<(), WriteError> {
        self.values += amounts.len();
        for (name, amount) in amounts {
            let sum = sum(name, self.all.get(name), amount)?;
            self.put(name, Value::Number(sum));
        }
        Ok(())
    }
}

/// Merges by RFC 7396, and keeps count of the `bytes` of the text that `target` is part of.
fn merge(target: &mut Map<String, Value>, patch: Map<String, Value>, bytes: &mut usize) {
    for (name, change) in patch {
        match change {
            Value::Null => remove(target, &name, bytes),
            Value::Object(inner) => {
                if !target.get(&name).is_some_and(Value::is_object) {
                    put(target, name.clone(), Value::Object(Map::new()), bytes);
                }
                if let Some(Value::Object(old)) = target.get_mut(&name) {
                    merge(old, inner, bytes);
                }
            }
            other => put(target, name, other, bytes),
        }
    }
}

fn put(target: &mut Map<String, Value>, name: String, value: Value, bytes: &mut usize) {
    *bytes += text_bytes(&value);
    let others = target.len();
    let new = text_bytes(&name) + ":".len() + if others > 0 { ",".len() } else { 0 };
    match target.insert(name, value) {
        Some(old) => *bytes = bytes.saturating_sub(text_bytes(&old)),
        None => *bytes += new,
    }
}

fn remove(target: &mut Map<String, Value>, name: &str, bytes: &mut usize) {
    if let Some(old) = target.remove(name) {
        let others = target.len();
        let gone = text_bytes(name) + ":".len() + text_bytes(&old) + if others > 0 { ",".len() } else { 0 };
        *bytes = bytes.saturating_sub(gone);
    }
}

/// What the text of a value takes.
pub(crate) fn text_bytes<T: serde::Serialize + ?Sized>(value: &T) -> usize {
    struct Count(usize);
    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Values have no names but texts, and counting does not fail.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

/// From here on, not every integer is a double.
const END_OF_EXACT_DOUBLES: f64 = 9_007_199_254_740_992.0;

/// The sum of integers is a 64-bit integer, or refused; where one of them is a double, it is a finite double. An integer is not
/// added to a double that may be too large to change by it.
fn sum(name: &str, old: Option<&Value>, amount: &Value) -> Result<Number, WriteError> {
    let not_a_number = || WriteError::NotANumber(name.to_owned());
    let zero = Value::from(0);
    let old = old.unwrap_or(&zero);
    if let (Some(a), Some(b)) = (integer(old), integer(amount)) {
        let sum = i64::try_from(a + b).map_err(|_| WriteError::SumOutOfRange(name.to_owned()))?;
        return Ok(sum.into());
    }
    let (Some(a), Some(b)) = (old.as_f64(), amount.as_f64()) else { return Err(not_a_number()) };
    if integer(amount).is_some_and(|amount| amount != 0) && a.abs() >= END_OF_EXACT_DOUBLES {
        return Err(WriteError::InexactSum(name.to_owned()));
    }
    Number::from_f64(a + b).ok_or_else(not_a_number)
}

fn integer(value: &Value) -> Option<i128> {
    // JSON's `-0` is an integer, which is read as a double. To add it as one would make doubles of integers.
    let zero = || value.as_f64().filter(|double| *double == 0.0 && double.is_sign_negative()).map(|_| 0);
    value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from)).or_else(zero)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn json(text: &str) -> Json {
        Json::parse(text.to_owned().into()).unwrap()
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 20, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::hash_map("[ab\"\u{e9}]{0,2}", inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    fn fields() -> impl Strategy<Value = Map<String, Value>> {
        prop::collection::hash_map("[ab\"\u{e9}]{0,2}", value(), 0..4)
            .prop_map(|fields| fields.into_iter().collect())
    }

    /// RFC 7396, as it is written there.
    fn merge_patch(target: Option<Value>, patch: &Value) -> Value {
        let Value::Object(patch) = patch else { return patch.clone() };
        let mut target = match target {
            Some(Value::Object(target)) => target,
            _ => Map::new(),
        };
        for (name, change) in patch {
            let old = target.remove(name);
            if !change.is_null() {
                target.insert(name.clone(), merge_patch(old, change));
            }
        }
        Value::Object(target)
    }

    proptest! {
        #[test]
        fn the_count_of_bytes_is_exact(
            start in fields(),
            patches in prop::collection::vec((fields(), any::<bool>()), 0..6),
        ) {
            let start = Value::Object(start);
            let mut model = start.clone();
            let mut body = Some(Body::from(Json::from_value(&start)));
            for (patch, is_merge) in patches {
                let op = match is_merge {
                    true => {
                        model = merge_patch(Some(model), &Value::Object(patch.clone()));
                        WriteOp::Merge(Json::from_value(&Value::Object(patch)))
                    }
                    false => {
                        model.as_object_mut().unwrap().extend(patch.clone());
                        WriteOp::Update { set: patch, inc: Map::new() }
                    }
                };
                body = Body::change(body, &op).unwrap();
                let body = body.as_ref().unwrap();
                prop_assert_eq!(body.to_json(), Json::from_value(&model));
                prop_assert_eq!(body.bytes(), body.to_json().len());
            }
        }
    }

    #[test]
    fn a_text_that_grows_when_it_is_written_anew_is_counted() {
        let numbers = vec!["1e15"; MAX_VALUES / 2].join(",");
        let pad = "x".repeat(MAX_BODY_BYTES - numbers.len() - 100);
        let body = Body::from(json(&format!("{{\"a\":[{numbers}],\"pad\":\"{pad}\"}}")));
        assert!(body.bytes() < MAX_BODY_BYTES);
        let body = Body::change(Some(body), &WriteOp::Merge(json(r#"{"b":1}"#))).unwrap().unwrap();
        assert!(body.bytes() > MAX_BODY_BYTES);
        assert_eq!(body.bytes(), body.to_json().len());
    }

    #[test]
    fn sums_of_integers_stay_in_64_bits() {
        let sum = |a: &str, b: &str| {
            let [a, b] = [a, b].map(|text| serde_json::from_str::<Value>(text).unwrap());
            sum("n", Some(&a), &b).map(|sum| sum.to_string())
        };
        let refused = Err(WriteError::SumOutOfRange("n".into()));
        assert_eq!(sum("9223372036854775806", "1"), Ok("9223372036854775807".into()));
        assert_eq!(sum("9223372036854775807", "1"), refused);
        assert_eq!(sum("-9223372036854775807", "-1"), Ok("-9223372036854775808".into()));
        assert_eq!(sum("-9223372036854775808", "-1"), refused);
        assert_eq!(sum("0", "9223372036854775808"), refused);
        assert_eq!(sum("18446744073709551615", "-1"), refused);
        assert_eq!(sum("18446744073709551615", "-9223372036854775808"), Ok(i64::MAX.to_string()));
        assert_eq!(sum("-1", "9223372036854775808"), Ok("9223372036854775807".into()));
        assert_eq!(sum("9223372036854775807", "1.0"), Ok("9.223372036854776e+18".into()));
        assert_eq!(sum("1.5", "1"), Ok("2.5".into()));
        assert_eq!(sum("9007199254740993", "-0"), Ok("9007199254740993".into()));
        assert_eq!(sum("-0", "9007199254740993"), Ok("9007199254740993".into()));
        assert_eq!((sum("-0", "-0"), sum("0.5", "-0")), (Ok("0".into()), Ok("0.5".into())));
        let inexact = Err(WriteError::InexactSum("n".into()));
        assert_eq!(sum("9007199254740992.0", "1"), inexact);
        assert_eq!(sum("-1e300", "-1"), inexact);
        assert_eq!(sum("9007199254740991.0", "1"), Ok("9007199254740992.0".into()));
        assert_eq!(sum("9007199254740992.0", "1.0"), Ok("9007199254740992.0".into()));
        assert_eq!(sum("1e300", "0"), Ok("1e+300".into()));
        assert_eq!(sum("1e308", "1e308"), Err(WriteError::NotANumber("n".into())));
        assert_eq!(sum("\"1\"", "1"), Err(WriteError::NotANumber("n".into())));
    }
}
