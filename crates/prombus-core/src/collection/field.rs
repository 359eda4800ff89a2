//! Paths to fields of documents: dots reach inside, and a backslash takes the meaning from what follows it.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use std::sync::Arc;

/// The longest path, in bytes.
pub const MAX_PATH_BYTES: usize = 1024;

/// A path to a field: `host`, `cpu.load`, `a\.b` for a field whose name has a dot in it. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FieldPath {
    text: Arc<str>,
    segments: Arc<[String]>,
}

/// A text that is no path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a field: use names separated by dots, with \\. for a dot and \\\\ for a backslash in a name, {MAX_PATH_BYTES} bytes at most"
)]
pub struct BadField(String);

impl FieldPath {
    /// Checks `text`.
    pub fn parse(text: &str) -> Result<Self, BadField> {
        let bad = || BadField(text.chars().take(80).collect());
        if text.len() > MAX_PATH_BYTES {
            return Err(bad());
        }
        let mut segments = vec![String::new()];
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            let last = segments.len() - 1;
            match c {
                '.' => segments.push(String::new()),
                '\\' => match chars.next() {
                    Some(escaped @ ('.' | '\\')) => segments[last].push(escaped),
                    _ => return Err(bad()),
                },
                other => segments[last].push(other),
            }
        }
        if segments.iter().any(String::is_empty) {
            return Err(bad());
        }
        Ok(Self { text: text.into(), segments: segments.into() })
    }

    /// The path as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The names on the way, at least one.
    pub fn segments(&self) -> &[String] {
        &self.segments
    }

    /// What lies at the end of the path, below the value of its first name. Arrays are reached into by number.
    pub fn below<'a>(&self, first: &'a Value) -> Option<&'a Value> {
        self.segments[1..].iter().try_fold(first, |value, name| match value {
            Value::Object(fields) => fields.get(name),
            Value::Array(items) => items.get(name.parse::<usize>().ok()?),
            _ => None,
        })
    }
}

impl fmt::Debug for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.text, f)
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl TryFrom<String> for FieldPath {
    type Error = BadField;

    fn try_from(text: String) -> Result<Self, BadField> {
        Self::parse(&text)
    }
}

impl From<FieldPath> for String {
    fn from(path: FieldPath) -> Self {
        path.text.as_ref().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn dots_reach_inside_and_escapes_do_not() {
        let value = json!({"b": {"c.d": [1, {"e": 2}]}, "$x": 3, "_y": 4});
        let at = |path: &str| FieldPath::parse(path).unwrap().below(&value).cloned();
        assert_eq!(at("a.b.c\\.d.1.e"), Some(json!(2)));
        assert_eq!(at("a.$x"), Some(json!(3)));
        assert_eq!(at("a._y"), Some(json!(4)));
        assert_eq!(at("a.b.c.d"), None);
        assert_eq!(at("a.b.c\\.d.7"), None);
        assert_eq!(FieldPath::parse("a\\\\b").unwrap().segments(), ["a\\b"]);
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for bad in ["", ".", "a.", ".a", "a..b", "a\\", "a\\b", &"a".repeat(MAX_PATH_BYTES + 1)] {
            assert!(FieldPath::parse(bad).is_err(), "{bad:?}");
        }
    }
}
