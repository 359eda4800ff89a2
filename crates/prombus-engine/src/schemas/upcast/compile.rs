//! From what users write to what can be applied: paths are read, expressions compiled, and what could not work is refused.

use super::UpcastError;
use super::ops::{MAX_PATHS, Op, Upcaster};
use super::path::{Path, Step};
use crate::filter::{self, FilterError, Formula, Subject};
use bytes::Bytes;
use bytestring::ByteString;
use prombus_core::Json;
use std::sync::Arc;

/// The most operations of an upcaster.
const MAX_OPS: usize = 200;
/// The most that its expressions may take together as they are written, in bytes.
const MAX_SOURCE_BYTES: usize = 64 << 10;
/// The most that their regular expressions may take together when they are compiled, in bytes.
const MAX_PATTERN_BYTES: usize = 2 * filter::MAX_PATTERN_BYTES;

/// An operation that can be applied.
pub(super) enum Change {
    /// Within every element that the first `each` steps of both paths lead to, a field goes from one place to another.
    Rename {
        each: Vec<Step>,
        from: Vec<String>,
        to: Vec<String>,
        place: String,
    },
    Set(Vec<(Path, Source)>),
    Remove(Vec<Path>),
}

/// Where a value comes from.
pub(super) enum Source {
    /// It is always the same.
    Constant(ByteString),
    /// Another place of the payload, byte for byte.
    Place(Vec<String>),
    Formula(Formula),
}

impl Source {
    pub fn is_costly(&self) -> bool {
        matches!(self, Self::Formula(formula) if formula.is_costly())
    }
}

/// Compiles all operations.
pub(super) async fn compile(upcaster: &Upcaster) -> Result<Vec<Change>, UpcastError> {
    let mut compiler = Compiler::default();
    if upcaster.ops.len() > MAX_OPS {
        return Err(UpcastError::Bad(format!(
            "an upcaster has at most {MAX_OPS} operations, not {}",
            upcaster.ops.len()
        )));
    }
    let mut changes = Vec::with_capacity(upcaster.ops.len());
    for (n, op) in upcaster.ops.iter().enumerate() {
        changes.push(compiler.change(n, op).await?);
    }
    Ok(changes)
}

#[derive(Default)]
struct Compiler {
    paths: usize,
    source_bytes: usize,
    pattern_bytes: usize,
}

impl Compiler {
    async fn change(&mut self, n: usize, op: &Op) -> Result<Change, UpcastError> {
        match op {
            Op::Rename([from, to]) => {
                let place = format!("ops[{n}].rename");
                rename(&self.path(&place, from)?, &self.path(&place, to)?)
                    .map_err(|why| UpcastError::Bad(format!("{place}: {why}")))
            }
            Op::Set(values) => {
                let mut sets: Vec<(Path, Source)> = Vec::with_capacity(values.0.len());
                for (path, source) in &values.0 {
                    let place = format!("ops[{n}].set");
                    let path = self.path(&place, path)?;
                    if let Some((other, _)) = sets.iter().find(|(other, _)| other.overlaps(&path)) {
                        return Err(UpcastError::Bad(format!(
                            "{place}: {other} and {path} are parts of each other; set them one after another, in two operations"
                        )));
                    }
                    let source = self.source(&format!("{place}.{path}"), source).await?;
                    sets.push((path, source));
                }
                Ok(Change::Set(sets))
            }
            Op::Remove(paths) => {
                let place = format!("ops[{n}].remove");
                let paths = paths.iter().map(|path| self.path(&place, path)).collect::<Result<_, _>>()?;
                Ok(Change::Remove(paths))
            }
        }
    }

    fn path(&mut self, place: &str, text: &str) -> Result<Path, UpcastError> {
        self.paths += 1;
        if self.paths > MAX_PATHS {
            return Err(UpcastError::Bad(format!("{place}: an upcaster has at most {MAX_PATHS} paths")));
        }
        Path::parse(text).map_err(|why| UpcastError::Bad(format!("{place}: {why}")))
    }

    async fn source(&mut self, place: &str, source: &str) -> Result<Source, UpcastError> {
        self.source_bytes += source.len();
        if self.source_bytes > MAX_SOURCE_BYTES {
            return Err(UpcastError::Bad(format!(
                "{place}: the expressions of an upcaster may take {MAX_SOURCE_BYTES} bytes, and with this they are more"
            )));
        }
        let formula = Formula::compile_in_turn(source).await.map_err(|error| match error {
            FilterError::Bad(error) => UpcastError::BadExpression { place: place.to_owned(), error },
            FilterError::Unavailable(error) => UpcastError::Unavailable(error),
        })?;
        self.pattern_bytes += formula.pattern_bytes();
        if self.pattern_bytes > MAX_PATTERN_BYTES {
            return Err(UpcastError::Bad(format!(
                "{place}: the regular expressions of an upcaster may take {MAX_PATTERN_BYTES} bytes when they are compiled, \
                 and with this they are more"
            )));
        }
        if let Some(path) = formula.as_path() {
            return Ok(Source::Place(path));
        }
        if formula.is_constant() {
            let null = Json::from_stored(Bytes::from_static(b"null"));
            let value = formula.value_of(&Subject::payload(&null, &Arc::default()));
            let value = value.map_err(|why| UpcastError::Bad(format!("{place}: {why}")))?;
            return Ok(Source::Constant(value.to_string().into()));
        }
        Ok(Source::Formula(formula))
    }
}

fn rename(from: &Path, to: &Path) -> Result<Change, String> {
    let each = from.each_steps().max(to.each_steps());
    if from.steps().get(..each) != to.steps().get(..each) {
        return Err(format!("{from} and {to} must go through the same arrays"));
    }
    if from.overlaps(to) {
        return Err(format!("{from} and {to} are parts of each other, or the same"));
    }
    let names = |path: &Path| -> Vec<String> {
        let name = |step: &Step| match step {
            Step::Field(name) => Some(name.clone()),
            Step::Each => None,
        };
        path.steps().iter().skip(each).filter_map(name).collect()
    };
    let each = from.steps().iter().take(each).cloned().collect();
    Ok(Change::Rename { each, from: names(from), to: names(to), place: format!("{from} to {to}") })
}

impl Change {
    /// Whether it may take long.
    pub fn is_costly(&self) -> bool {
        matches!(self, Self::Set(sets) if sets.iter().any(|(_, source)| source.is_costly()))
    }
}
