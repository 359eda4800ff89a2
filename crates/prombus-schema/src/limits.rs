//! What a schema may be like to be taken: nothing that would cost more memory or stack than there is.

use crate::{
    compiling::{self, TooMuch},
    draft::Draft,
    error::SchemaError,
    json::Json,
    outline::Outline,
    refs::References,
    schema::DEPTH_LIMIT,
};
use serde_json::Value;
use std::collections::HashSet;

/// How long the pointers to all values of a schema may be together, in bytes. A validator keeps them.
const POINTERS_LIMIT: usize = 16 * 1024 * 1024;

/// How long a pattern may be, in bytes.
const PATTERN_LIMIT: usize = 16 * 1024;

/// How many schemas may apply each other to the same value, one through the other.
const CHAIN_LIMIT: u64 = 500;

/// How large a validator may become, about, and how many schemas may be made one inside the other for it.
const VALIDATOR_LIMITS: compiling::Limits =
    compiling::Limits { bytes: 64 * 1024 * 1024, circular_bytes: 1024 * 1024, depth: 3_000 };

fn refused(message: String) -> SchemaError {
    SchemaError::Invalid { path: String::new(), message }
}

/// Whether a value that was read elsewhere is flat enough to be written out.
pub fn of_value(value: &Value) -> Result<(), SchemaError> {
    let mut open = vec![(value, 0)];
    while let Some((value, depth)) = open.pop() {
        if depth > DEPTH_LIMIT {
            return Err(SchemaError::TooDeep { limit: DEPTH_LIMIT });
        }
        match value {
            Value::Array(items) => open.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(members) => open.extend(members.values().map(|value| (value, depth + 1))),
            _ => {}
        }
    }
    Ok(())
}

/// Whether names and patterns are short enough.
pub fn of_text(document: &Json) -> Result<(), SchemaError> {
    let mut text = Text { pointers: 0, patterns: HashSet::new() };
    text.look(document, 0);
    if text.pointers > POINTERS_LIMIT {
        return Err(refused(format!(
            "it has long names with many values inside; the pointers to all its values may have {POINTERS_LIMIT} bytes"
        )));
    }
    if text.patterns.iter().any(|pattern| pattern.len() > PATTERN_LIMIT) {
        return Err(refused(format!("it has a pattern of more than {PATTERN_LIMIT} bytes; split it up")));
    }
    Ok(())
}

/// Whether its schemas can be gone through at all.
pub fn of_outline(outline: &Outline) -> Result<(), SchemaError> {
    if outline.chain > CHAIN_LIMIT {
        return Err(refused(format!(
            "more than {CHAIN_LIMIT} schemas apply each other to the same value, one through the other"
        )));
    }
    Ok(())
}

/// Whether a validator can be made of it, and about how many bytes that has.
pub fn of_validator<'d>(
    document: &'d Json,
    draft: Draft,
    references: &mut References<'d>,
) -> Result<usize, SchemaError> {
    let (place, message) = match compiling::compile(document, draft, references, VALIDATOR_LIMITS) {
        Ok(bytes) => return Ok(bytes),
        Err(TooMuch::Bytes(place)) => (
            place,
            "what checks documents would be too large: references lead here on many ways, through resources with an `$id` or \
             for unevaluated keywords, or large schemas are in one `not` inside the other",
        ),
        Err(TooMuch::Patterns(place)) => (
            place,
            "its patterns are too large together: they repeat parts such as `.` or `\\w` too often, one inside the other",
        ),
        Err(TooMuch::Circular(place)) => (
            place,
            "what checks documents would be too large for a schema in which an unevaluated keyword leads back to where it is",
        ),
        Err(TooMuch::Deep(place)) => {
            (place, "too many schemas are one inside the other on a way that leads here")
        }
    };
    Err(SchemaError::Invalid { path: references.pointer_of(place).to_owned(), message: message.to_owned() })
}

struct Text<'d> {
    pointers: usize,
    patterns: HashSet<&'d str>,
}

impl<'d> Text<'d> {
    fn look(&mut self, value: &'d Json, pointer: usize) {
        self.pointers = self.pointers.saturating_add(pointer);
        match value {
            Json::Array(items) => items.iter().for_each(|item| self.look(item, pointer + 4)),
            Json::Object(members) => {
                for (name, value) in members.iter() {
                    match (&**name, value) {
                        ("pattern", Json::String(pattern)) => {
                            self.patterns.insert(pattern);
                        }
                        ("patternProperties", Json::Object(schemas)) => {
                            self.patterns.extend(schemas.keys().map(|pattern| &**pattern));
                        }
                        _ => {}
                    }
                    self.look(value, pointer + 1 + name.len());
                }
            }
            _ => {}
        }
    }
}
