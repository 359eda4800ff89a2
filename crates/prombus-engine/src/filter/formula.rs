//! Expressions over `payload`, which say what a field of it becomes.

use super::known::{self, Text};
use super::touched::Root;
use super::{Failure, FilterError, Subject, to_json};
use serde_json::Value;
use std::sync::Arc;

/// An expression over a payload that compiles. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Formula(Arc<Text>);

impl Formula {
    /// Compiles `source`, in turn with others.
    pub async fn compile_in_turn(source: &str) -> Result<Self, FilterError> {
        Ok(Self(known::text(Root::Payload, source).await?))
    }

    /// What it comes to for a payload.
    pub fn value_of(&self, payload: &Subject<'_>) -> Result<Value, Failure> {
        let compiled = self.0.compiled().map_err(|error| Failure::Unknown(error.to_string()))?;
        to_json(compiled.value(payload)?).map_err(Failure::Unfit)
    }

    /// The path, where it is nothing but `payload.a.b`.
    pub fn as_path(&self) -> Option<Vec<String>> {
        self.0.compiled().ok()?.as_path()
    }

    /// Whether it comes to the same for every payload.
    pub fn is_constant(&self) -> bool {
        self.0.compiled().is_ok_and(|compiled| compiled.touched.is_nothing())
    }

    /// Whether it may take long.
    pub fn is_costly(&self) -> bool {
        self.0.is_written_costly || self.0.probation.is_slow()
    }

    /// What its regular expressions take when they are compiled, in bytes.
    pub fn pattern_bytes(&self) -> usize {
        self.0.pattern_bytes
    }

    /// The text that was compiled.
    pub fn source(&self) -> &str {
        self.0.source()
    }
}
