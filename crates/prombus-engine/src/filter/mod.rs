//! Filters: CEL expressions over `event`, compiled once and asked of many events. Asked again, they say the same.

mod compile;
mod language;

use cel::common::ast::Expr;
use cel::objects::{Key, Map};
use cel::{Context, ExecutionError, IdedExpr, Value};
use language::{IN_ORDER, allow_keys, language};
use prombus_core::{Event, Json, Offset, Partition};
use serde_json::Value as JsonValue;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::{Handle, RuntimeFlavor};

/// The longest expression, in bytes.
pub const MAX_SOURCE_BYTES: usize = 8 * 1024;
/// How deep an expression may be: it is evaluated by recursion.
pub const MAX_DEPTH: usize = 64;
/// How often the loops of an expression (`exists`, `map`, ...) may go round for one event, all together.
pub const MAX_ROUNDS: u64 = 50_000;
/// Where a loop also looks at the event as a whole, each round may cost as much as the event is long: rounds
/// times bytes are limited to this.
const MAX_ROUND_BYTES: u64 = 20_000_000;
/// How often loops that make a list (`map`, `filter`) may go round for one event: each round copies the list.
pub const MAX_LIST_ROUNDS: u64 = 1_000;
/// How long a filter may keep a batch at a time.
const KEEP_TIME: Duration = Duration::from_millis(50);
/// What each round of a loop calls, and of one that makes a list; no expression can be written that does.
const TICK: &str = "@tick";
const LIST_TICK: &str = "@list_tick";

/// A compiled expression. Cheap to clone; clones count their failures together.
#[derive(Clone)]
pub struct Filter(Arc<Compiled>);

struct Compiled {
    source: String,
    expression: IdedExpr,
    /// Whether a loop looks at the event as a whole.
    loops_over_event: bool,
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
        let compile::Checked { expression, loops_over_event } = compile::compile(source)?;
        let source = source.to_owned();
        Ok(Self(Arc::new(Compiled { source, expression, loops_over_event, failures: AtomicU64::new(0) })))
    }

    /// Whether the expression is true of `event`. Where it fails (a missing field, a wrong type, a loop without
    /// end) the event does not match, and the failure is counted.
    pub fn matches(&self, event: &Event) -> bool {
        match self.evaluate(event) {
            Some(Value::Bool(answer)) => answer,
            _ => {
                self.0.failures.fetch_add(1, Ordering::Relaxed);
                false
            }
        }
    }

    /// The events of a batch that match. If that takes long, the rest of the batch is left out, and the place of the
    /// last event that was looked at is told.
    pub fn keep(&self, batch: Vec<Event>) -> (Vec<Event>, Option<(Partition, Offset)>) {
        off_the_runtime(|| {
            let start = Instant::now();
            let mut wanted = Vec::new();
            let mut rest = batch.into_iter().peekable();
            while let Some(event) = rest.next() {
                let at = (event.partition, event.offset);
                if self.matches(&event) {
                    wanted.push(event);
                }
                if start.elapsed() > KEEP_TIME && rest.peek().is_some() {
                    return (wanted, Some(at));
                }
            }
            (wanted, None)
        })
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
        self.value_of(&Operand::of(event)?).ok()
    }

    /// What the expression is of an event.
    pub(crate) fn value_of(&self, event: &Operand) -> Result<Value, ExecutionError> {
        let (mut rounds, mut list_rounds) = (MAX_ROUNDS, MAX_LIST_ROUNDS);
        if self.0.loops_over_event {
            let each = MAX_ROUND_BYTES / event.bytes.max(1);
            // A list that is copied in each round may hold the event in each place.
            (rounds, list_rounds) = (rounds.min(each), list_rounds.min(each.isqrt()));
        }
        allow_keys(rounds);
        let mut context = Context::with_env(language());
        context.add_variable_from_value("event", event.value.clone());
        let failed =
            |error: &dyn std::fmt::Debug| ExecutionError::function_error("event", format!("{error:?}"));
        context.add_function(TICK, budget(rounds)).map_err(|error| failed(&error))?;
        context.add_function(LIST_TICK, budget(list_rounds)).map_err(|error| failed(&error))?;
        context.resolve(&self.0.expression)
    }

    /// The path, where the expression is nothing but `event.a.b`.
    pub(crate) fn as_path(&self) -> Option<Vec<String>> {
        let mut names = Vec::new();
        let mut at = &self.0.expression;
        loop {
            match &at.expr {
                Expr::Select(select) if !select.test => {
                    names.push(select.field.clone());
                    at = &select.operand;
                }
                Expr::Ident(name) if name == "event" => break,
                _ => return None,
            }
        }
        names.reverse();
        Some(names)
    }
}

/// An event as expressions see it. What is made once serves any number of expressions.
pub(crate) struct Operand {
    value: Value,
    bytes: u64,
}

impl Operand {
    /// An event; `None` where its numbers are beyond all bounds.
    pub fn of(event: &Event) -> Option<Self> {
        let mut text = Vec::with_capacity(event.payload.len() + 256);
        event.write_json(&mut text);
        let bytes = text.len() as u64;
        let json = Json::from_stored(text.into()).to_value().ok()?;
        Some(Self { value: to_cel(json), bytes })
    }
}

/// Runs what may take long so that other tasks of the runtime go on meanwhile.
pub(crate) fn off_the_runtime<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

/// A function that can be called so many times, and then fails.
fn budget(calls: u64) -> impl Fn() -> Result<bool, ExecutionError> + Send + Sync {
    let left = AtomicU64::new(calls);
    move || match left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)) {
        Ok(_) => Ok(true),
        Err(_) => Err(too_often()),
    }
}

fn too_often() -> ExecutionError {
    ExecutionError::function_error("filter", "its loops go round too often")
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
    fn loops_work_and_come_to_an_end() {
        assert!(matches("event.payload.exists(x, x == 3)", "[1,2,3]"));
        assert!(matches(
            "event.payload.all(i, i.tags.exists(t, t == event.key))",
            r#"[{"tags":["web1:a"]}]"#
        ));
        assert!(matches("event.payload.map(x, x * 2).filter(y, y > 2) == [4]", "[1,2]"));
        let ten = "[1,2,3,4,5,6,7,8,9,10]";
        let nested = (0..9).fold("true".to_owned(), |inner, i| format!("{ten}.all(x{i}, {inner})"));
        let filter = Filter::compile(&nested).unwrap();
        assert!(!filter.matches(&event("1")));
        assert_eq!(filter.failures(), 1, "it was given up");
        let long = format!("[{}1]", "1,".repeat(100_000));
        let filter = Filter::compile("event.payload.all(x, x in event.payload)").unwrap();
        assert!(!filter.matches(&event(&long)));
        let shorter = format!("[{}1]", "1,".repeat(40_000));
        assert!(matches("event.payload.all(x, x == 1)", &shorter), "a loop over much is fine");
    }

    /// The library goes over the fields of an object in another order each time.
    #[test]
    fn loops_over_objects_go_by_the_order_of_names() {
        let names = ["z", "a", "ü", "m", "B", "aa", ""];
        let fields: Vec<String> = names.iter().map(|name| format!("{name:?}:1")).collect();
        let payload = format!("{{{}}}", fields.join(","));
        for _ in 0..10 {
            assert!(matches("event.payload.map(k, k) == ['', 'B', 'a', 'aa', 'm', 'z', 'ü']", &payload));
            assert!(matches("event.payload.filter(k, k > 'B')[0] == 'a'", &payload));
            assert!(matches("{2: 'b', 1: 'a'}.map(k, k) == [1, 2]", "1"));
        }
        assert!(matches("event.payload.all(k, event.payload[k] == 1)", &payload));
        let filter =
            Filter::compile("[event.payload].all(x, [1,2,3,4,5].all(t, x.exists(k, true)))").unwrap();
        let fields: Vec<String> = (0..20_000).map(|n| format!("\"k{n}\":1")).collect();
        assert!(!filter.matches(&event(&format!("{{{}}}", fields.join(",")))), "names count as rounds");
    }

    #[test]
    fn expressions_that_are_too_deep_are_refused() {
        for (start, link, end) in
            [("event", "[0]", ""), ("1", "+1", " > 0"), ("event", ".a", ""), ("event.key", ".size()", "")]
        {
            let long = format!("{start}{}{end}", link.repeat(1_500));
            let error = Filter::compile(&long[..long.len().min(MAX_SOURCE_BYTES)]).err().unwrap();
            assert!(error.message.contains("deep"), "{link}: {error}");
        }
        let alternatives = vec!["event.payload == 7"; 60].join(" || ");
        assert!(matches(&alternatives, "7"), "many alternatives are not deep");
    }

    #[test]
    fn unknown_names_are_refused() {
        for (source, column) in
            [("foo(1)", 1), ("event.key.startWith('web')", 1), ("y == 1", 1), ("[1].all(x, y)", 12)]
        {
            let error = Filter::compile(source).err().unwrap();
            assert!(error.message.contains("not known"), "{error}");
            assert!(error.line == 1 && error.column >= column, "{source}: {error}");
        }
        for source in [
            "size(event.payload) > 0",
            "event.key.matches('a+')",
            "int(event.ts) > 0",
            "has(event.payload.a)",
            "timestamp('2026-01-01T00:00:00Z') < timestamp(event.payload)",
            "type(event.ts) == int",
            "'a' in event.payload",
        ] {
            assert!(Filter::compile(source).is_ok(), "{source}: {:?}", Filter::compile(source).err());
        }
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
