//! Expressions of definitions: CEL over `event`, with a short way for those that only name a field or a constant.

use super::ProjectionError;
use crate::filter::{Filter, Operand};
use cel::Value as Cel;
use cel::objects::Key;
use prombus_core::document::{self, WriteError};
use prombus_core::fields::{Field, Fields};
use prombus_core::{Event, Json};
use serde_json::{Map, Number, Value};
use std::cell::OnceCell;

/// A compiled expression.
#[derive(Clone)]
pub struct Expression(Kind);

#[derive(Clone)]
enum Kind {
    Constant(Value),
    /// The fields of the payload on the way; none is the payload itself.
    Payload(Vec<String>),
    Key,
    Ts,
    Any(Filter),
}

/// An event, and what expressions have already needed to know of it.
pub struct Facts<'a> {
    event: &'a Event,
    /// The fields of the payload, where it is an object.
    fields: Option<Fields<'a>>,
    payload: OnceCell<Result<Value, String>>,
    operand: OnceCell<Option<Operand>>,
}

fn unusable(error: serde_json::Error) -> String {
    format!("the payload cannot be used: {error}")
}

const TOO_BIG: &str =
    "the payload cannot be used: a number is neither a 64-bit integer nor a double, or it is nested too deep";

impl<'a> Facts<'a> {
    /// Of an event, whose payload must have a value.
    pub fn of(event: &'a Event) -> Result<Self, String> {
        let fields = Fields::of(&event.payload);
        let facts = Self { event, fields, payload: OnceCell::new(), operand: OnceCell::new() };
        match &facts.fields {
            Some(fields) if !fields.has_repeats() => {
                // Even of what no expression asks for: an event is usable as a whole, or not at all.
                for field in fields.iter().filter(|field| !field.is_normal()) {
                    field.value().map_err(unusable)?;
                }
            }
            _ => drop(facts.payload()?),
        }
        Ok(facts)
    }

    /// The event.
    pub fn event(&self) -> &'a Event {
        self.event
    }

    /// A field of the payload.
    pub fn field(&self, name: &str) -> Option<&Field<'a>> {
        self.fields.as_ref()?.get(name)
    }

    /// The fields of the payload, which must be an object.
    pub fn fields(&self) -> Result<&Fields<'a>, String> {
        self.fields.as_ref().ok_or_else(|| WriteError::NotAnObject.to_string())
    }

    fn payload(&self) -> Result<&Value, String> {
        let read = || self.event.payload.to_value().map_err(unusable);
        self.payload.get_or_init(read).as_ref().map_err(Clone::clone)
    }

    fn operand(&self) -> Result<&Operand, String> {
        self.operand.get_or_init(|| Operand::of(self.event)).as_ref().ok_or_else(|| TOO_BIG.into())
    }
}

/// A document's body with these fields.
pub fn body_of<'a, 'f: 'a>(fields: impl Iterator<Item = &'a Field<'f>>) -> Result<Json, String> {
    document::normal_text(fields).map_err(unusable)
}

impl Expression {
    /// Compiles `source`; `place` says where it stands in the definition.
    pub fn compile(place: &str, source: &str) -> Result<Self, ProjectionError> {
        let bad = |error| ProjectionError::BadExpression { place: place.to_owned(), error };
        let filter = Filter::compile(source).map_err(bad)?;
        let kind = match filter.as_path() {
            Some(path) => match path.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                ["payload", ..] => Kind::Payload(path[1..].to_vec()),
                ["key"] => Kind::Key,
                ["ts"] => Kind::Ts,
                _ => Kind::Any(filter),
            },
            None => constant(source.trim()).map_or(Kind::Any(filter), Kind::Constant),
        };
        Ok(Self(kind))
    }

    /// What it is of an event, or why that cannot be said.
    pub fn value(&self, facts: &Facts<'_>) -> Result<Value, String> {
        match &self.0 {
            Kind::Constant(value) => Ok(value.clone()),
            Kind::Payload(path) => match &path[..] {
                [] => facts.payload().cloned(),
                [first, rest @ ..] => {
                    let missing = || format!("event.payload.{}: no such field", path.join("."));
                    let value = facts.field(first).ok_or_else(missing)?.value().map_err(unusable)?;
                    let below = rest.iter().try_fold(value, |value, name| value.get(name.as_str()));
                    below.cloned().ok_or_else(missing)
                }
            },
            Kind::Key => match &facts.event.key {
                Some(key) => Ok(Value::from(&**key)),
                None => Err("event.key: the event has no key".into()),
            },
            Kind::Ts => Ok(Value::from(facts.event.ts)),
            Kind::Any(filter) => {
                let value = filter.value_of(facts.operand()?);
                to_json(value.map_err(|error| format!("{}: {error}", filter.source()))?)
            }
        }
    }

    /// What it is of an event, as the key of a document.
    pub fn key(&self, facts: &Facts<'_>) -> Result<String, String> {
        if let Kind::Payload(path) = &self.0
            && let [name] = &path[..]
            && let Some(plain) = facts.field(name).and_then(Field::plain_string)
        {
            return Ok(plain.to_owned());
        }
        match self.value(facts)? {
            Value::String(key) => Ok(key),
            other => Err(format!("the key must be a string, not {other}")),
        }
    }

    /// What it is of an event, as the body of a document.
    pub fn object(&self, facts: &Facts<'_>) -> Result<Json, String> {
        if matches!(&self.0, Kind::Payload(path) if path.is_empty()) {
            return body_of(facts.fields()?.iter());
        }
        let object = document::normal(self.value(facts)?).map_err(|error| error.to_string())?;
        Ok(Json::from_value(&Value::Object(object)))
    }

    /// Whether it is true of an event; one that fails, or is no boolean, is not.
    pub fn holds(&self, facts: &Facts<'_>) -> bool {
        self.value(facts) == Ok(Value::Bool(true))
    }
}

/// What an expression is that is nothing but a number or a boolean.
fn constant(source: &str) -> Option<Value> {
    match serde_json::from_str::<Value>(source).ok()? {
        Value::Number(int) if int.is_i64() => Some(Value::Number(int)),
        // To the last digit, as CEL reads it.
        Value::Number(_) if source.contains('.') => Number::from_f64(source.parse().ok()?).map(Value::Number),
        bool @ Value::Bool(_) => Some(bool),
        _ => None,
    }
}

/// A value of CEL as JSON.
fn to_json(value: Cel) -> Result<Value, String> {
    Ok(match value {
        Cel::Null => Value::Null,
        Cel::Bool(bool) => Value::Bool(bool),
        Cel::Int(int) => Value::from(int),
        Cel::UInt(int) => Value::from(int),
        Cel::Float(double) => match Number::from_f64(double) {
            Some(number) => Value::Number(number),
            None => return Err(format!("{double} is no JSON number")),
        },
        Cel::String(text) => Value::from(text.as_str()),
        Cel::Timestamp(time) => Value::from(time.to_rfc3339()),
        Cel::List(items) => Value::Array(items.iter().cloned().map(to_json).collect::<Result<_, _>>()?),
        Cel::Map(map) => {
            let mut object = Map::new();
            for (key, value) in map.map.iter() {
                let Key::String(name) = key else { return Err("the names of fields are strings".into()) };
                object.insert(name.to_string(), to_json(value.clone())?);
            }
            Value::Object(object)
        }
        other => return Err(format!("{:?} cannot be part of a document", other.type_of())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use prombus_core::{Offset, Partition, TopicName};
    use proptest::prelude::*;

    fn event(key: Option<&str>, ts: u64, payload: &Value) -> Event {
        Event {
            id: uuid::Uuid::nil(),
            ts,
            recorded_ts: ts,
            topic: TopicName::parse("t").unwrap(),
            key: key.map(Into::into),
            partition: Partition(0),
            offset: Offset(0),
            sid: None,
            headers: None,
            payload: Json::from_value(payload),
            caused_by: None,
            tags: None,
        }
    }

    /// What CEL itself makes of an expression, as a document holds it.
    fn by_cel(source: &str, event: &Event) -> Option<Value> {
        let value = Filter::compile(source).unwrap().value_of(&Operand::of(event)?).ok()?;
        let mut value = to_json(value).ok()?;
        document::normalize(&mut value);
        Some(value)
    }

    fn by_expression(source: &str, event: &Event) -> Option<Value> {
        let mut value = Expression::compile("x", source).unwrap().value(&Facts::of(event).ok()?).ok()?;
        document::normalize(&mut value);
        Some(value)
    }

    fn json() -> impl Strategy<Value = Value> {
        let number = prop_oneof![
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(|double| Number::from_f64(double).map_or(Value::Null, Value::Number)),
        ];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Bool),
            number,
            "\\PC{0,8}".prop_map(Value::from)
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
                prop::collection::btree_map("[abc]", inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// The short ways give what the long one does.
        #[test]
        fn a_path_is_what_cel_says_it_is(
            payload in json(),
            path in prop::collection::vec("[abc]", 0..4),
            key in proptest::option::of("\\PC{0,8}"),
            ts in 0..i64::MAX as u64,
        ) {
            let event = event(key.as_deref(), ts, &payload);
            let path: String = path.iter().map(|name| format!(".{name}")).collect();
            for source in [format!("event.payload{path}"), "event.key".into(), "event.ts".into()] {
                prop_assert_eq!(by_expression(&source, &event), by_cel(&source, &event), "{}", source);
            }
        }

        #[test]
        fn a_constant_is_what_cel_says_it_is(int: i64, double: f64, text in "[-0-9.e+xu]{1,6}") {
            let event = event(None, 0, &Value::Null);
            for source in [int.to_string(), format!("{double:?}"), text, "true".into(), "false".into()] {
                if Filter::compile(&source).is_ok() {
                    prop_assert_eq!(by_expression(&source, &event), by_cel(&source, &event), "{}", source);
                }
            }
        }
    }

    /// Otherwise an expression that decides over life and death would not hold, and the others would go on.
    #[test]
    fn a_payload_is_usable_as_a_whole_or_not_at_all() {
        for bad in [
            r#"{"k":1,"junk":1e400}"#,
            r#"{"k":1,"_ts":[1e400]}"#,
            r#"{"k":"\ud800"}"#,
            r#"{"k":1e400,"k":1}"#,
            "[1e400]",
        ] {
            let mut event = event(None, 0, &Value::Null);
            event.payload = Json::parse(bad.into()).unwrap();
            let error = Facts::of(&event).err().unwrap_or_default();
            assert!(error.starts_with("the payload cannot be used"), "{bad}: {error}");
        }
    }

    #[test]
    fn what_fails_or_is_no_boolean_does_not_hold() {
        let event = event(None, 0, &serde_json::json!({"yes": true, "no": false, "text": "true", "one": 1}));
        let holds = |source| Expression::compile("x", source).unwrap().holds(&Facts::of(&event).unwrap());
        assert!(holds("event.payload.yes") && holds("!event.payload.no") && holds("true"));
        for source in
            ["event.payload.no", "event.payload.text", "event.payload.one", "event.payload.none", "event.key"]
        {
            assert!(!holds(source), "{source}");
        }
    }
}
