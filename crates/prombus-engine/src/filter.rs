//! Filters: CEL expressions over `event`, compiled once and asked of many events.

use cel::objects::{Key, Map};
use cel::{Context, Program, Value};
use prombus_core::Event;
use serde_json::Value as JsonValue;
use std::collections::HashMap;
use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The longest expression, in bytes.
pub const MAX_SOURCE_BYTES: usize = 8 * 1024;

/// A compiled expression. Cheap to clone; clones count their failures together.
#[derive(Clone)]
pub struct Filter(Arc<Compiled>);

struct Compiled {
    source: String,
    program: Program,
    failures: AtomicU64,
}

/// An expression that does not compile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the filter does not compile: {message} (line {line}, column {column})")]
pub struct BadFilter {
    /// What is wrong.
    pub message: String,
    /// The line of the mistake, from 1.
    pub line: usize,
    /// The column of the mistake, from 1.
    pub column: usize,
}

impl Filter {
    /// Compiles `source`.
    pub fn compile(source: &str) -> Result<Self, BadFilter> {
        let bad = |message: String, line, column| BadFilter { message, line, column };
        if source.len() > MAX_SOURCE_BYTES {
            return Err(bad(format!("it is longer than {MAX_SOURCE_BYTES} bytes"), 1, 1));
        }
        // The parser is generated code that meets whatever a client sends; should it give up, only this
        // filter must.
        let compiled = catch_unwind(|| Program::compile(source));
        let program = match compiled {
            Ok(Ok(program)) => program,
            Ok(Err(errors)) => {
                let (message, (line, column)) = errors
                    .errors
                    .first()
                    .map_or_else(|| ("it is not CEL".to_owned(), (1, 1)), |e| (e.msg.clone(), e.pos));
                return Err(bad(message, line.max(1) as usize, column.max(0) as usize + 1));
            }
            Err(_) => return Err(bad("the parser gave up on it".into(), 1, 1)),
        };
        if let Some(unknown) = program.references().variables().into_iter().find(|name| *name != "event") {
            let at = source.find(unknown).unwrap_or(0);
            let message = format!(
                "{unknown:?} is not known; an event's fields are reached as event.payload, event.key, ..."
            );
            return Err(bad(
                message,
                1 + source[..at].matches('\n').count(),
                1 + at - source[..at].rfind('\n').map_or(0, |n| n + 1),
            ));
        }
        Ok(Self(Arc::new(Compiled { source: source.to_owned(), program, failures: AtomicU64::new(0) })))
    }

    /// Whether the expression is true of `event`. Where it fails (a missing field, a wrong type) the event
    /// does not match, and the failure is counted.
    pub fn matches(&self, event: &Event) -> bool {
        match self.evaluate(event) {
            Some(Value::Bool(answer)) => answer,
            _ => {
                self.0.failures.fetch_add(1, Ordering::Relaxed);
                false
            }
        }
    }

    /// The text that was compiled.
    pub fn source(&self) -> &str {
        &self.0.source
    }

    /// How many events the expression failed on.
    pub fn failures(&self) -> u64 {
        self.0.failures.load(Ordering::Relaxed)
    }

    fn evaluate(&self, event: &Event) -> Option<Value> {
        let mut text = Vec::with_capacity(event.payload.len() + 256);
        event.write_json(&mut text);
        let json: JsonValue = serde_json::from_slice(&text).ok()?;
        let mut context = Context::default();
        context.add_variable_from_value("event", to_cel(json));
        self.0.program.execute(&context).ok()
    }
}

/// JSON integers that fit are CEL ints, other numbers doubles.
fn to_cel(json: JsonValue) -> Value {
    match json {
        JsonValue::Null => Value::Null,
        JsonValue::Bool(b) => Value::Bool(b),
        JsonValue::Number(n) => match n.as_i64() {
            Some(int) => Value::Int(int),
            None => Value::Float(n.as_f64().unwrap_or(f64::NAN)),
        },
        JsonValue::String(s) => Value::String(Arc::new(s)),
        JsonValue::Array(items) => Value::List(Arc::new(items.into_iter().map(to_cel).collect())),
        JsonValue::Object(fields) => {
            let map: HashMap<Key, Value> = fields
                .into_iter()
                .map(|(name, value)| (Key::String(Arc::new(name)), to_cel(value)))
                .collect();
            Value::Map(Map { map: Arc::new(map) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prombus_core::{Json, Offset, Partition, TopicName};
    use proptest::prelude::*;

    fn event(payload: &str) -> Event {
        Event {
            id: uuid::Uuid::nil(),
            ts: 1,
            recorded_ts: 1,
            topic: TopicName::parse("t").unwrap(),
            key: Some("web1:a".into()),
            partition: Partition(0),
            offset: Offset(0),
            sid: None,
            headers: None,
            payload: Json::parse(payload.to_owned().into()).unwrap(),
            caused_by: None,
            tags: None,
        }
    }

    fn matches(filter: &str, payload: &str) -> bool {
        Filter::compile(filter).unwrap().matches(&event(payload))
    }

    #[test]
    fn the_example_of_the_guide() {
        let filter = r#"event.payload.cpu_pct > 80 && event.key.startsWith("web")"#;
        assert!(matches(filter, r#"{"cpu_pct":81}"#));
        assert!(!matches(filter, r#"{"cpu_pct":80}"#));
    }

    #[test]
    fn numbers_are_ints_where_they_fit() {
        assert!(matches("event.payload == 9223372036854775807", "9223372036854775807"));
        assert!(matches("event.payload > 9.2e18", "9223372036854775808"));
        assert!(matches("event.payload == 1.5", "1.5"));
    }

    #[test]
    fn a_failure_does_not_match_and_is_counted() {
        let filter = Filter::compile("event.payload.missing == 1").unwrap();
        assert!(!filter.matches(&event("{}")));
        assert!(!filter.matches(&event("3")));
        assert!(!Filter::compile("1 + 1").unwrap().matches(&event("3")));
        assert_eq!(filter.failures(), 2);
    }

    #[test]
    fn a_mistake_is_told_with_its_place() {
        let error = Filter::compile("event.payload.a ==").err().unwrap();
        assert_eq!(error.line, 1);
        assert!(error.column >= 17, "{error}");
        let error = Filter::compile("true &&\n payload.a == 1").err().unwrap();
        assert_eq!((error.line, error.column), (2, 2), "{error}");
    }

    proptest! {
        #[test]
        fn compiling_never_panics(source in "\\PC{0,40}") {
            let _ = Filter::compile(&source);
        }
    }
}
