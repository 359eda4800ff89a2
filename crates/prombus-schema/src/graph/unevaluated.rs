//! `unevaluatedProperties` and `unevaluatedItems`: what the schemas that apply in the same place leave over.
//!
//! Which of them apply depends on the value, so the formula goes through the cases. Where there are too many, it is opaque.
//! A schema on the way may be one that is just being built, so that all of them are referred to.

use super::{
    Atom, Except, Kind, Lit, Names, TRUE,
    build::{Builder, Members},
    scopes::Destination,
};
use crate::{draft::Draft, error::SchemaError, json::Json};
use std::{rc::Rc, sync::Arc};

/// How many cases are gone through.
const CASES_LIMIT: usize = 256;

/// How many schemas that apply in the same place are looked at.
const SCHEMAS_LIMIT: usize = 2_000;

/// How deep schemas that apply in the same place may be nested.
const NESTING_LIMIT: usize = 64;

/// What schemas that apply in the same place have seen of a value.
#[derive(Clone)]
enum Part {
    Seen(Rc<Seen>),
    /// The list of the branch that holds: one does, by what they are or by what else the schema says.
    Branches(Rc<[Branch]>),
    /// What cannot be known before there is a value.
    Dynamic,
}

/// What is seen if something holds.
type Branch = (Lit, Rc<[Part]>);

/// What is seen: properties, or items.
#[derive(Clone, Default)]
struct Seen {
    everything: bool,
    names: Except,
    /// How many of the first items.
    items: u64,
    /// What one of these holds for is seen, too.
    matching: Vec<Lit>,
}

impl Seen {
    fn size(&self) -> u64 {
        (self.names.names.len() + self.names.patterns.len() + self.matching.len()) as u64
    }

    fn with(&self, other: &Self) -> Self {
        let mut both = self.clone();
        both.everything |= other.everything;
        both.names.names.extend(other.names.names.iter().cloned());
        both.names.patterns.extend(other.names.patterns.iter().copied());
        both.items = both.items.max(other.items);
        both.matching.extend(other.matching.iter().copied());
        both
    }
}

/// One of two lists, by a condition.
fn either(condition: Lit, then: Vec<Part>, or_else: Vec<Part>) -> Part {
    Part::Branches([(condition, then.into()), (condition.not(), or_else.into())].into())
}

/// Parts without their formulas, which are added to a list; `None` if what is seen is not known.
fn described(parts: &[Part], lits: &mut Vec<Lit>) -> Option<Json> {
    let number = |number: u64| Json::Number((number as i64).into());
    let all = |all: Vec<Json>| Json::Array(all.into());
    let mut told = Vec::new();
    for part in parts {
        told.push(match part {
            Part::Seen(seen) => {
                lits.extend(&seen.matching);
                all(vec![
                    Json::Bool(seen.everything),
                    all(seen.names.names.iter().cloned().map(Json::String).collect()),
                    all(seen.names.patterns.iter().map(|pattern| number((*pattern).into())).collect()),
                    number(seen.items),
                    number(seen.matching.len() as u64),
                ])
            }
            Part::Branches(branches) => {
                let branch = |(condition, inside): &Branch| {
                    lits.push(*condition);
                    described(inside, lits)
                };
                // A list of lists, which what is seen is not.
                all(branches.iter().map(branch).collect::<Option<_>>()?)
            }
            Part::Dynamic => return None,
        });
    }
    Some(all(told))
}

/// Which of the two keywords it is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum About {
    Properties,
    Items,
}

impl<'d> Builder<'d, '_> {
    pub(super) fn unevaluated(
        &mut self,
        schema: &'d Json,
        members: &'d Members,
        parts: &mut Vec<Lit>,
    ) -> Result<(), SchemaError> {
        if self.draft == Draft::Draft7 {
            return Ok(());
        }
        for (keyword, about) in
            [("unevaluatedProperties", About::Properties), ("unevaluatedItems", About::Items)]
        {
            let Some(rest) = members.get(keyword) else { continue };
            let rest_lit = self.schema(rest)?;
            let mut seen = Vec::new();
            self.looked_at = 0;
            self.seen(schema, about, NESTING_LIMIT, &mut seen)?;
            let mut cases = CASES_LIMIT;
            let lit = self.cases(&seen, &Seen::default(), (about, rest_lit), &mut cases);
            parts.push(lit.unwrap_or_else(|| self.left_over(&seen, (about, rest_lit))));
        }
        Ok(())
    }

    /// That there are too many cases. It is equal to the same over equal formulas.
    fn left_over(&mut self, parts: &[Part], (about, rest): (About, Lit)) -> Lit {
        let why =
            "an unevaluated keyword over too many combinations of branches, or over a dynamic reference";
        let mut lits = vec![rest];
        let Some(seen) = described(parts, &mut lits) else { return self.unknown(why) };
        let what = Json::Array([Json::Bool(about == About::Items), seen].into());
        self.graph.atom(Atom::Opaque(why, Arc::new(what), lits.into()))
    }

    /// What is left for each case must hold for the rest; `None` if there are too many.
    fn cases(&mut self, parts: &[Part], seen: &Seen, rest: (About, Lit), cases: &mut usize) -> Option<Lit> {
        if seen.everything {
            return Some(TRUE);
        }
        let Some((first, others)) = parts.split_first() else {
            *cases = cases.checked_sub(1)?;
            return Some(self.rest(seen, rest));
        };
        match first {
            Part::Seen(more) => {
                let steps = 1 + seen.size() + more.size();
                self.graph.fuel.spend(steps).then_some(())?;
                self.cases(others, &seen.with(more), rest, cases)
            }
            Part::Branches(branches) => self.branches(branches, others, seen, rest, cases),
            Part::Dynamic => None,
        }
    }

    fn branches(
        &mut self,
        branches: &[Branch],
        others: &[Part],
        seen: &Seen,
        rest: (About, Lit),
        cases: &mut usize,
    ) -> Option<Lit> {
        let mut all = Vec::new();
        for (condition, inside) in branches {
            let steps = 1 + inside.len() + others.len();
            self.graph.fuel.spend(steps as u64).then_some(())?;
            let parts: Vec<Part> = inside.iter().chain(others).cloned().collect();
            let then = self.cases(&parts, seen, rest, cases)?;
            all.push(self.graph.and([*condition, then]));
        }
        Some(self.graph.or(all))
    }

    fn rest(&mut self, seen: &Seen, (about, rest): (About, Lit)) -> Lit {
        match about {
            About::Properties => {
                self.graph.atom(Atom::Values(Names::Except(Arc::new(seen.names.clone())), rest))
            }
            About::Items => {
                let either = self.graph.or(seen.matching.iter().copied().chain([rest]));
                self.graph.atom(Atom::Items(seen.items, either))
            }
        }
    }

    /// What a schema sees, besides its own unevaluated keyword if it is the outermost one.
    fn seen(
        &mut self,
        schema: &'d Json,
        about: About,
        depth: usize,
        parts: &mut Vec<Part>,
    ) -> Result<(), SchemaError> {
        match self.scope_of(schema) {
            Some(scope) => self.within(scope, |builder| builder.seen_here(schema, about, depth, parts)),
            None => {
                parts.push(Part::Dynamic);
                Ok(())
            }
        }
    }

    fn seen_here(
        &mut self,
        schema: &'d Json,
        about: About,
        depth: usize,
        parts: &mut Vec<Part>,
    ) -> Result<(), SchemaError> {
        let Some(members) = schema.object() else { return Ok(()) };
        self.looked_at += 1;
        let Some(deeper) =
            depth.checked_sub(1).filter(|_| self.looked_at < SCHEMAS_LIMIT && self.graph.fuel.spend(1))
        else {
            parts.push(Part::Dynamic);
            return Ok(());
        };
        let inner = depth < NESTING_LIMIT;
        let own = self.seen_by_keywords(members, about, inner)?;
        self.graph.fuel.spend(own.size());
        parts.push(Part::Seen(Rc::new(own)));
        self.seen_by_references(schema, members, about, deeper, parts)?;
        for schema in members.get("allOf").and_then(Json::array).into_iter().flatten() {
            self.seen(schema, about, deeper, parts)?;
        }
        for branch in members.get("anyOf").and_then(Json::array).into_iter().flatten() {
            let condition = self.reference(branch);
            let inside = self.seen_inside(branch, about, deeper)?;
            parts.push(either(condition, inside, Vec::new()));
        }
        if let Some(Json::Array(branches)) = members.get("oneOf") {
            let mut only = Vec::new();
            for branch in branches.iter() {
                only.push((self.reference(branch), self.seen_inside(branch, about, deeper)?.into()));
            }
            parts.push(Part::Branches(only.into()));
        }
        if let Some(condition) = members.get("if") {
            let mut then = self.seen_inside(condition, about, deeper)?;
            let mut or_else = Vec::new();
            for (keyword, list) in [("then", &mut then), ("else", &mut or_else)] {
                if let Some(branch) = members.get(keyword) {
                    self.seen(branch, about, deeper, list)?;
                }
            }
            parts.push(either(self.reference(condition), then, or_else));
        }
        for (name, dependent) in members.get("dependentSchemas").and_then(Json::object).into_iter().flatten()
        {
            // What is no object has no property, so that nothing depends on it.
            let (object, has) = (self.kinds(Kind::Object.bit()), self.graph.atom(Atom::Has(name.clone())));
            let condition = self.graph.and([object, has]);
            let inside = self.seen_inside(dependent, about, deeper)?;
            parts.push(either(condition, inside, Vec::new()));
        }
        Ok(())
    }

    fn seen_inside(
        &mut self,
        schema: &'d Json,
        about: About,
        depth: usize,
    ) -> Result<Vec<Part>, SchemaError> {
        let mut parts = Vec::new();
        self.seen(schema, about, depth, &mut parts)?;
        Ok(parts)
    }

    fn seen_by_references(
        &mut self,
        schema: &'d Json,
        members: &'d Members,
        about: About,
        depth: usize,
        parts: &mut Vec<Part>,
    ) -> Result<(), SchemaError> {
        let text = |keyword: &str| members.get(keyword).and_then(Json::text);
        let dynamic = if self.draft == Draft::Draft202012 { "$dynamicRef" } else { "$recursiveRef" };
        for keyword in ["$ref", dynamic] {
            let Some(reference) = text(keyword) else { continue };
            let meaning = self.references.meaning(schema, keyword, reference)?;
            match self.destination(schema, &meaning) {
                Some(Destination { target, scope }) => {
                    self.within(scope, |builder| builder.seen(target, about, depth, parts))?;
                }
                None => parts.push(Part::Dynamic),
            }
        }
        Ok(())
    }

    fn seen_by_keywords(
        &mut self,
        members: &'d Members,
        about: About,
        inner: bool,
    ) -> Result<Seen, SchemaError> {
        if about == About::Properties {
            let everything = members.contains_key("additionalProperties")
                || (inner && members.contains_key("unevaluatedProperties"));
            return Ok(Seen { everything, names: self.named(members), ..Seen::default() });
        }
        let (tuple, rest) = self.tuple(members);
        let everything = rest.is_some() || (inner && members.contains_key("unevaluatedItems"));
        let mut seen = Seen { everything, items: tuple.len() as u64, ..Seen::default() };
        if let (Draft::Draft202012, Some(contains)) = (self.draft, members.get("contains")) {
            seen.matching.push(self.reference(contains));
        }
        Ok(seen)
    }
}
