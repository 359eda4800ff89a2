//! Why a schema does not fit another one, as it is told.

use crate::failure::Failure;
use crate::output::{self, Record};
use prombus_client::SchemaViolation;
use prombus_schema::Violation;
use serde_json::{Value, json};

/// The most that is shown of a counterexample to a person, in characters. Programs get all of it.
const MAX_SHOWN: usize = 200;

const COLUMNS: [&str; 4] = ["path", "rule", "message", "counterexample"];

/// Writes each violation to stdout.
pub fn write(violations: &[SchemaViolation]) -> Result<(), Failure> {
    if violations.is_empty() {
        return Ok(());
    }
    let record = |violation: &SchemaViolation| {
        let SchemaViolation { path, rule, message, counterexample } = violation;
        let example = counterexample.as_ref().map(shown).unwrap_or_default();
        // The document itself has the empty path.
        let path = if path.is_empty() { "(document)" } else { path };
        Record::of(violation, vec![path.to_owned(), rule.clone(), message.clone(), example])
    };
    output::write_records(&COLUMNS, &violations.iter().map(record).collect::<Result<Vec<_>, _>>()?)
}

/// A violation that was found here, in the words of the hub.
pub fn of_check(violation: &Violation) -> SchemaViolation {
    let Violation { path, rule, message, counterexample } = violation.clone();
    SchemaViolation { path, rule, message, counterexample }
}

/// The same as JSON.
pub fn as_json(violation: &Violation) -> Value {
    let Violation { path, rule, message, counterexample } = violation;
    json!({"path": path, "rule": rule, "message": message, "counterexample": counterexample})
}

/// A document, as much of it as fits beside a message.
pub fn shown(document: &Value) -> String {
    let text = document.to_string();
    match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
