//! Expressions of definitions: CEL over `event`, with a short way for those that only name a field or a constant.

use super::ProjectionError;
use crate::filter::{self, Failure, Filter, FilterError, STEP, Subject, looked_over, to_json};
use prombus_core::document::{self, MAX_VALUES, WriteError};
use prombus_core::fields::{Field, Fields};
use prombus_core::{Event, Json};
use serde_json::{Number, Value};
use std::cell::OnceCell;

/// A compiled expression.
#[derive(Clone)]
pub struct Expression(Kind);

#[derive(Clone)]
enum Kind {
    Constant(Value),
    /// The fields of the payload on the way; none is the payload itself. The expression says it too, in a longer way.
    Payload(Vec<String>, Filter),
    Key,
    Ts,
    Any(Filter),
}

/// An event, what expressions have already needed to know of it, and what all of them may cost.
pub struct Facts<'a> {
    event: &'a Event,
    subject: Subject<'a>,
    /// The fields of the payload, where it is an object.
    fields: Option<Fields<'a>>,
    payload: OnceCell<Result<Value, String>>,
}

fn unusable(error: serde_json::Error) -> String {
    format!("the payload cannot be used: {error}")
}

impl<'a> Facts<'a> {
    /// Of an event. The values of its fields are nobody's business until they are asked for, but where a name cannot
    /// be read, it might be any: one that marks the document as deleted, say.
    pub fn of(event: &'a Event) -> Result<Self, String> {
        let (subject, fields) = (Subject::event(event), Fields::of(&event.payload));
        let facts = Self { event, subject, fields, payload: OnceCell::new() };
        if facts.fields.is_none() && event.payload.as_bytes().starts_with(b"{") {
            facts.payload()?;
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

    /// Pays for work that is done for the event.
    pub fn charge(&self, work: u64) -> Result<(), Failure> {
        Ok(self.subject.allowance().charge(work)?)
    }

    /// A copy of a value, which is paid for.
    fn copy(&self, value: &Value) -> Result<Value, Failure> {
        self.charge(work_of(value))?;
        Ok(value.clone())
    }

    fn payload(&self) -> Result<&Value, String> {
        let read = || self.event.payload.to_value().map_err(unusable);
        self.payload.get_or_init(read).as_ref().map_err(Clone::clone)
    }
}

/// What it takes to copy a value.
fn work_of(value: &Value) -> u64 {
    STEP + match value {
        Value::String(text) => text.len() as u64,
        Value::Array(items) => items.iter().map(work_of).sum(),
        Value::Object(fields) => fields.iter().map(|(name, value)| name.len() as u64 + work_of(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

/// A document's body with these fields.
pub fn body_of<'a, 'f: 'a>(fields: impl Iterator<Item = &'a Field<'f>>) -> Result<Json, String> {
    document::normal_text(fields).map_err(unusable)
}

/// The most expressions of a projection.
const MAX_EXPRESSIONS: usize = 1_000;
/// The most that they may take together as they are written, in bytes: to compile them takes time whenever their projection starts.
const MAX_SOURCE_BYTES: usize = 128 << 10;
/// A projection of so many expressions is quick, unless one of them is not.
const FEW_EXPRESSIONS: usize = 64;
/// The most that their regular expressions may take together when they are compiled, in bytes.
const MAX_PATTERN_BYTES: usize = 4 * filter::MAX_PATTERN_BYTES;

/// Compiles the expressions of a projection.
#[derive(Debug, Default)]
pub struct Compiler {
    count: usize,
    source_bytes: usize,
    pattern_bytes: usize,
    has_costly: bool,
}

impl Compiler {
    /// Compiles `source`; `place` says where it stands in the definition.
    pub async fn compile(&mut self, place: &str, source: &str) -> Result<Expression, ProjectionError> {
        self.count += 1;
        self.source_bytes += source.len();
        if self.count > MAX_EXPRESSIONS {
            return Err(ProjectionError::Bad(format!(
                "a projection has at most {MAX_EXPRESSIONS} expressions"
            )));
        }
        if self.source_bytes > MAX_SOURCE_BYTES {
            return Err(ProjectionError::Bad(format!(
                "{place}: the expressions of a projection may take {MAX_SOURCE_BYTES} bytes, and with this they are more"
            )));
        }
        let filter = Filter::compile_in_turn(source).await.map_err(|error| match error {
            FilterError::Bad(error) => ProjectionError::BadExpression { place: place.to_owned(), error },
            FilterError::Unavailable(error) => error.into(),
        })?;
        self.pattern_bytes += filter.pattern_bytes();
        self.has_costly |= filter.is_costly();
        if self.pattern_bytes > MAX_PATTERN_BYTES {
            return Err(ProjectionError::Bad(format!(
                "{place}: the regular expressions of a projection may take {MAX_PATTERN_BYTES} bytes when they are compiled, \
                 and with this they are more"
            )));
        }
        Ok(Expression::of(filter))
    }

    /// Whether what was compiled may take long.
    pub fn is_costly(&self) -> bool {
        self.has_costly || self.count > FEW_EXPRESSIONS
    }
}

impl Expression {
    fn of(filter: Filter) -> Self {
        let kind = match filter.as_path() {
            Some(path) => match path.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                ["payload", ..] => Kind::Payload(path[1..].to_vec(), filter),
                ["key"] => Kind::Key,
                ["ts"] => Kind::Ts,
                _ => Kind::Any(filter),
            },
            None => match constant(filter.source().trim()) {
                Some(value) => Kind::Constant(value),
                None => Kind::Any(filter),
            },
        };
        Self(kind)
    }

    /// What it is of an event, or why that cannot be said.
    pub fn value(&self, facts: &Facts<'_>) -> Result<Value, Failure> {
        match &self.0 {
            Kind::Constant(value) => Ok(value.clone()),
            Kind::Payload(path, filter) => match &path[..] {
                [] => {
                    facts.charge(looked_over(facts.event.payload.len()))?;
                    check_values(facts.event.payload.values())?;
                    facts.copy(facts.payload().map_err(Failure::Unknown)?)
                }
                [first, rest @ ..] => {
                    let missing =
                        || Failure::Unfit(format!("event.payload.{}: no such field", path.join(".")));
                    // What is beside the way may be what has no value.
                    let field = facts.field(first).ok_or_else(missing)?;
                    facts.charge(looked_over(field.text().len()))?;
                    check_values(field.values())?;
                    let Ok(value) = field.value() else {
                        return by_cel(filter, facts);
                    };
                    let below = rest.iter().try_fold(value, |value, name| value.get(name.as_str()));
                    facts.copy(below.ok_or_else(missing)?)
                }
            },
            Kind::Key => match &facts.event.key {
                Some(key) => Ok(Value::from(&**key)),
                None => Err(Failure::Unfit("event.key: the event has no key".to_owned())),
            },
            Kind::Ts => Ok(Value::from(facts.event.ts)),
            Kind::Any(filter) => by_cel(filter, facts),
        }
    }

    /// Whether it is the key of the event and nothing else.
    pub fn is_event_key(&self) -> bool {
        matches!(self.0, Kind::Key)
    }

    /// What it is of an event, as the key of a document.
    pub fn key(&self, facts: &Facts<'_>) -> Result<String, String> {
        if let Kind::Payload(path, _) = &self.0
            && let [name] = &path[..]
            && let Some(plain) = facts.field(name).and_then(Field::plain_string)
        {
            return Ok(plain.to_owned());
        }
        match self.value(facts).map_err(|failure| failure.to_string())? {
            Value::String(key) => Ok(key),
            other => Err(format!("the key must be a string, not {other}")),
        }
    }

    /// What it is of an event, as the body of a document.
    pub fn object(&self, facts: &Facts<'_>) -> Result<Json, String> {
        if matches!(&self.0, Kind::Payload(path, _) if path.is_empty()) {
            facts.charge(facts.event.payload.len() as u64).map_err(|failure| failure.to_string())?;
            return body_of(facts.fields()?.iter());
        }
        let value = self.value(facts).map_err(|failure| failure.to_string())?;
        let object = document::normal(value).map_err(|error| error.to_string())?;
        Ok(Json::from_value(&Value::Object(object)))
    }

    /// Whether it is true of an event. One that does not fit the event, or is no boolean, is not; where it cannot be
    /// said, that is told, because documents live and die by it.
    pub fn holds(&self, facts: &Facts<'_>) -> Result<bool, String> {
        match self.value(facts) {
            Err(Failure::Unknown(why)) => Err(why),
            other => Ok(other == Ok(Value::Bool(true))),
        }
    }
}

/// Refuses to make a tree of what no document could hold.
fn check_values(values: usize) -> Result<(), Failure> {
    match values > MAX_VALUES {
        true => Err(Failure::Unknown(WriteError::TooManyValues(values).to_string())),
        false => Ok(()),
    }
}

fn by_cel(filter: &Filter, facts: &Facts<'_>) -> Result<Value, Failure> {
    let told = |why| format!("{}: {why}", filter.source());
    match filter.value_of(&facts.subject) {
        Ok(value) => {
            let value = to_json(value).map_err(Failure::Unfit)?;
            check_values(document::values_in(&value))?;
            Ok(value)
        }
        Err(Failure::Unfit(why)) => Err(Failure::Unfit(told(why))),
        Err(Failure::Unknown(why)) => Err(Failure::Unknown(told(why))),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn compiled(source: &str) -> Result<Expression, ProjectionError> {
        filter::wait(Compiler::default().compile("x", source))
    }
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
        let value = Filter::compile(source).unwrap().value_of(&Subject::event(event)).ok()?;
        let mut value = to_json(value).ok()?;
        document::normalize(&mut value);
        Some(value)
    }

    fn by_expression(source: &str, event: &Event) -> Option<Value> {
        let mut value = compiled(source).unwrap().value(&Facts::of(event).ok()?).ok()?;
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

    fn with_payload(text: &str) -> Event {
        let mut event = event(None, 0, &Value::Null);
        event.payload = Json::parse(text.to_owned().into()).unwrap();
        event
    }

    #[test]
    fn what_is_not_touched_cannot_make_an_expression_fail() {
        for beside in ["1e400", r#""\ud800""#, "[1,[1e400]]", r#"{"x":{"y":1e400}}"#, r#"{"\ud800":1}"#] {
            let event = with_payload(&format!(r#"{{"bad":{beside},"k":1,"o":{{"k":2,"bad":{beside}}}}}"#));
            let facts = Facts::of(&event).unwrap();
            for (source, expected) in [
                ("event.payload.k", 1),
                ("event.payload.k + 1", 2),
                ("event.payload.o.k", 2),
                ("event.payload.o.k * 2", 4),
            ] {
                let value = compiled(source).unwrap().value(&facts);
                assert_eq!(value, Ok(Value::from(expected)), "{source} beside {beside}");
            }
        }
    }

    /// Otherwise an expression that decides over life and death would not hold, and the others would go on.
    #[test]
    fn what_is_touched_and_has_no_value_is_told() {
        for bad in ["1e400", r#""\ud800""#, "[1,[1e400]]", r#"{"x":{"y":1e400}}"#, r#"{"\ud800":1}"#] {
            let event = with_payload(&format!(r#"{{"bad":1,"bad":{bad}}}"#));
            let facts = Facts::of(&event).unwrap();
            for source in [
                "event.payload.bad",
                "event.payload.bad == 7",
                "has(event.payload.bad)",
                "event.payload == 7",
                "event.payload.size() == 1",
                "'bad' in event.payload",
                "true || event.payload.bad == 7",
            ] {
                let expression = compiled(source).unwrap();
                assert!(matches!(expression.value(&facts), Err(Failure::Unknown(_))), "{source} of {bad}");
                assert!(expression.holds(&facts).is_err(), "{source} of {bad}");
            }
            assert!(compiled("event.payload").unwrap().object(&facts).is_err(), "{bad}");
        }
        let nameless = with_payload(r#"{"\ud800":1,"k":1}"#);
        assert!(Facts::of(&nameless).is_err(), "the name might be any");
    }

    #[test]
    fn what_takes_too_much_work_is_told() {
        let event = event(None, 0, &Value::from(vec![1; 2_000]));
        let facts = Facts::of(&event).unwrap();
        let source = "event.payload.all(a, event.payload.all(b, event.payload.all(c, true)))";
        assert!(compiled(source).unwrap().holds(&facts).is_err());
    }

    #[test]
    fn what_fails_or_is_no_boolean_does_not_hold() {
        let event = event(None, 0, &serde_json::json!({"yes": true, "no": false, "text": "true", "one": 1}));
        let holds = |source| compiled(source).unwrap().holds(&Facts::of(&event).unwrap()).unwrap();
        assert!(holds("event.payload.yes") && holds("!event.payload.no") && holds("true"));
        for source in
            ["event.payload.no", "event.payload.text", "event.payload.one", "event.payload.none", "event.key"]
        {
            assert!(!holds(source), "{source}");
        }
    }
}
