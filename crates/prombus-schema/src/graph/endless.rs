//! Finds schemas that are defined by themselves, without a step into a property or an item on the way.
//!
//! This goes by the document and not by its formulas, as a validator follows every reference that it meets.

use super::build::{Builder, Members};
use crate::{
    draft::Draft,
    json::Json,
    refs::{Address, place},
};
use std::collections::HashMap;

/// From each schema to those that apply to the same value.
pub type Steps = HashMap<Address, Vec<Address>>;

/// A place from which a walk comes back to where it was.
pub fn endless(steps: &Steps) -> Option<Address> {
    #[derive(Clone, Copy, PartialEq)]
    enum Seen {
        Open,
        Done,
    }
    let mut seen: HashMap<Address, Seen> = HashMap::new();
    for start in steps.keys() {
        let mut walk = vec![(*start, 0)];
        while let Some((at, step)) = walk.pop() {
            if step == 0 && seen.get(&at) == Some(&Seen::Done) {
                continue;
            }
            let Some(next) = steps.get(&at).and_then(|steps| steps.get(step)) else {
                seen.insert(at, Seen::Done);
                continue;
            };
            seen.insert(at, Seen::Open);
            walk.push((at, step + 1));
            match seen.get(next) {
                Some(Seen::Open) => return Some(*next),
                Some(Seen::Done) => {}
                None => walk.push((*next, 0)),
            }
        }
    }
    None
}

impl<'d> Builder<'d, '_> {
    /// Notes which schemas apply to the same value as this one, besides those that it refers to.
    pub(super) fn note_steps(&mut self, schema: &'d Json, members: &'d Members) {
        let mut steps = Vec::new();
        let conditional = self.draft == Draft::Draft7 && members.contains_key("$ref");
        for (keyword, value) in members.iter().filter(|_| !conditional) {
            match (&**keyword, value) {
                ("allOf" | "anyOf" | "oneOf", Json::Array(schemas)) => {
                    steps.extend(schemas.iter().map(place))
                }
                ("not" | "if", schema) => steps.push(place(schema)),
                ("then" | "else", schema) if members.contains_key("if") => steps.push(place(schema)),
                ("dependentSchemas" | "dependencies", Json::Object(schemas)) => {
                    steps.extend(schemas.values().filter(|schema| schema.array().is_none()).map(place));
                }
                _ => {}
            }
        }
        self.steps.entry(place(schema)).or_default().extend(steps);
    }
}
