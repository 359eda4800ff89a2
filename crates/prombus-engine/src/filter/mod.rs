//! Filters: CEL expressions over `event`, compiled once and asked of many events. Asked again, they say the same.

mod budget;

mod compile;
mod cost;
mod formula;
mod json;
mod known;
mod language;
mod meter;
mod operand;
mod pattern;
mod subject;
mod threads;
mod touched;
mod turn;

use budget::Budget;
pub use budget::MAX_WORK;
pub(crate) use budget::{Allowance, STEP, Spent};
use cel::common::ast::Expr;
use cel::common::types::CelBool;
use cel::common::value::Val;
use cel::{Context, ExecutionError, IdedExpr, Value};
pub(crate) use cost::{KEEP_TIME, Probation, most_time};
pub(crate) use formula::Formula;
pub(crate) use json::to_json;
use known::Text;
use language::language;
pub(crate) use operand::looked_over;
use operand::{Names, Operand};
pub(crate) use pattern::MAX_PATTERN_BYTES;
use pattern::Patterns;
use prombus_core::{Event, Offset, Partition, ReadError};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
pub(crate) use subject::Subject;
use tokio::runtime::{Handle, RuntimeFlavor};
use touched::{Root, Touched};
pub(crate) use turn::Turn;

/// The longest expression, in bytes.
pub const MAX_SOURCE_BYTES: usize = 8 * 1024;
/// How deep an expression may be: it is evaluated by recursion.
pub const MAX_DEPTH: usize = 64;
/// Stands for the function where an error is not one of a function, but of the expression as a whole.
const OWN_ERROR: &str = "expression";
/// The most that is told of why an expression failed, in characters.
const MAX_REASON: usize = 300;

/// An expression that compiles. Cheap to clone; clones count their failures together, others of the same text do not.
#[derive(Clone)]
pub struct Filter {
    text: Arc<Text>,
    failures: Arc<AtomicU64>,
}

/// What an expression is once it is compiled.
struct Compiled {
    root: Root,
    expression: IdedExpr,
    patterns: Arc<Patterns>,
    touched: Touched,
}

/// What it may cost to look at an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cost {
    /// Nothing: there is no expression.
    None,
    /// Little, as far as is known.
    Cheap,
    /// Much.
    Costly,
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

impl BadFilter {
    fn at_start(message: &str) -> Self {
        Self { message: message.to_owned(), line: 1, column: 1 }
    }
}

/// Why a text was not compiled.
#[derive(Debug, Clone, thiserror::Error)]
pub enum FilterError {
    /// It does not compile.
    #[error(transparent)]
    Bad(#[from] BadFilter),
    /// Nothing is known of it, since nobody can compile anything at the moment.
    #[error(transparent)]
    Unavailable(#[from] ReadError),
}

/// Why an expression has no value for an event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    /// It does not fit the event: a field is missing, a type is another.
    #[error("{0}")]
    Unfit(String),
    /// It cannot be said what its value is: it touches a part of the event that has no value itself, or takes more
    /// work than it may.
    #[error("{0}")]
    Unknown(String),
}

impl Filter {
    /// Compiles `source`, and blocks until that is done: for those who have no runtime.
    pub fn compile(source: &str) -> Result<Self, FilterError> {
        wait(Self::compile_in_turn(source))
    }

    /// Compiles `source`, in turn with others: thousands of clients may send something at once.
    pub async fn compile_in_turn(source: &str) -> Result<Self, FilterError> {
        Ok(Self { text: known::text(Root::Event, source).await?, failures: Arc::default() })
    }

    /// The same, where there is something to compile.
    pub async fn compile_any(source: Option<&str>) -> Result<Option<Self>, FilterError> {
        match source {
            Some(source) => Self::compile_in_turn(source).await.map(Some),
            None => Ok(None),
        }
    }

    /// Whether the expression is true of `event`. Where it fails (a missing field, a wrong type, more work than it
    /// may take) the event does not match, and the failure is counted. What has no value counts as missing.
    pub fn matches(&self, event: &Event) -> bool {
        self.text.compiled().is_ok_and(|compiled| self.matches_as(&compiled, event))
    }

    fn matches_as(&self, compiled: &Compiled, event: &Event) -> bool {
        let operand = Operand::of(event, &compiled.touched);
        let answer = compiled.evaluate(&operand, &Arc::default(), |value| {
            value.downcast_ref::<CelBool>().map(|bool| *bool.inner())
        });
        if let Ok(Some(answer)) = answer {
            return answer;
        }
        self.failures.fetch_add(1, Ordering::Relaxed);
        false
    }

    /// The events of a batch that match. If that takes long, the rest of the batch is left out, and the place of the
    /// last event that was looked at is told. Whoever has a turn reads the batch after it has come, and lets it go then.
    pub(crate) fn keep(&self, batch: Vec<Event>, _: Turn) -> (Vec<Event>, Option<(Partition, Offset)>) {
        let events = batch.len();
        let most = most_time(self.is_costly());
        off_the_runtime(|| {
            let compiled = wait(self.text.compile());
            let start = Instant::now();
            self.text.probation.time(|| {
                let mut wanted = Vec::new();
                let mut rest = batch.into_iter().peekable();
                while let Some(event) = rest.next() {
                    let at = (event.partition, event.offset);
                    if compiled.as_ref().is_ok_and(|compiled| self.matches_as(compiled, &event)) {
                        wanted.push(event);
                    }
                    if start.elapsed() > most && rest.peek().is_some() {
                        return ((wanted, Some(at)), events - rest.len());
                    }
                }
                ((wanted, None), events)
            })
        })
    }

    /// Whether it may take long, by what it does or by how long it has taken. Then others do not wait for it.
    pub fn is_costly(&self) -> bool {
        self.text.is_written_costly || self.text.probation.is_slow()
    }

    /// What it may cost to look at an event, where there is a filter.
    pub fn cost_of(filter: Option<&Self>) -> Cost {
        match filter {
            None => Cost::None,
            Some(filter) if filter.is_costly() => Cost::Costly,
            Some(_) => Cost::Cheap,
        }
    }

    /// What its regular expressions take when they are compiled, in bytes.
    pub(crate) fn pattern_bytes(&self) -> usize {
        self.text.pattern_bytes
    }

    /// The text that was compiled.
    pub fn source(&self) -> &str {
        self.text.source()
    }

    /// How many events the expression failed on.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// What the expression is of an event.
    pub(crate) fn value_of(&self, event: &Subject<'_>) -> Result<Value, Failure> {
        let compiled = self.text.compiled().map_err(|error| Failure::Unknown(error.to_string()))?;
        compiled.value(event)
    }

    /// The path, where the expression is nothing but `event.a.b`.
    pub(crate) fn as_path(&self) -> Option<Vec<String>> {
        self.text.compiled().ok()?.as_path()
    }
}

impl Compiled {
    fn evaluate<T>(
        &self,
        operand: &Operand<'_>,
        allowance: &Arc<Allowance>,
        answer: impl FnOnce(&dyn Val) -> T,
    ) -> Result<T, Failure> {
        let budget = Budget::new(self.patterns.clone(), allowance.clone());
        let names = Names { root: self.root, operand, budget: &budget };
        let mut context = Context::with_env(language());
        context.set_variable_resolver(&names);
        let value = Value::resolve_val(&self.expression, &context);
        // An expression may have gone on without what failed (`failed || true`).
        if allowance.is_spent() {
            return Err(Spent.into());
        }
        match value {
            Ok(value) => Ok(answer(value.as_ref())),
            Err(error) => Err(Failure::Unfit(reason(&error))),
        }
    }

    fn value(self: &Arc<Self>, subject: &Subject<'_>) -> Result<Value, Failure> {
        let operand = subject.operand(self)?;
        if operand.has_gaps {
            return Err(Failure::Unknown(
                "it touches a number that is neither a 64-bit integer nor a double, or a string that ends in half \
                 a character"
                    .to_owned(),
            ));
        }
        self.evaluate(&operand, subject.allowance(), |value| Value::try_from(value))?
            .map_err(|error| Failure::Unfit(reason(&error)))
    }

    fn as_path(&self) -> Option<Vec<String>> {
        let mut names = Vec::new();
        let mut at = &self.expression;
        loop {
            match &at.expr {
                Expr::Select(select) if !select.test => {
                    names.push(select.field.clone());
                    at = &select.operand;
                }
                Expr::Ident(name) if name == self.root.name() => break,
                _ => return None,
            }
        }
        names.reverse();
        Some(names)
    }
}

/// Runs what may take long so that other tasks of the runtime go on meanwhile.
pub(crate) fn off_the_runtime<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

/// Waits on the present thread, which others may want.
pub(crate) fn wait<T>(work: impl Future<Output = T>) -> T {
    // Whatever the present task has done before, it does not come to an end here by giving way to others.
    let work = tokio::task::unconstrained(work);
    off_the_runtime(|| futures::executor::block_on(work))
}

/// What went wrong, in few words: an error of the library may carry whole values.
fn reason(error: &ExecutionError) -> String {
    use ExecutionError as Error;
    let text = match error {
        Error::UnsupportedBinaryOperator(operator, a, b) => {
            format!("{operator} cannot be applied to {} and {}", a.type_of(), b.type_of())
        }
        Error::Overflow(operator, ..) => format!("{operator} overflows"),
        Error::DivisionByZero(_) | Error::RemainderByZero(_) => "division by zero".to_owned(),
        Error::IndexOutOfBounds(_) => "the index is out of bounds".to_owned(),
        Error::DuplicateKey(_) => "a map has a key twice".to_owned(),
        Error::FunctionError { function, message } if function == OWN_ERROR => message.clone(),
        Error::UnexpectedType { .. }
        | Error::NoSuchKey(_)
        | Error::NoSuchOverload(_)
        | Error::UndeclaredReference(_)
        | Error::FunctionError { .. } => error.to_string(),
        _ => "it cannot be applied to these values".to_owned(),
    };
    text.chars().take(MAX_REASON).collect()
}

#[cfg(test)]
mod tests;
