//! Goes through the cases of a place.

use super::{
    Claim, Found, Key, Rest, Solver, Tally, Why,
    cube::{Choice, Cube},
};
use crate::{
    graph::{Atom, Kind, Names, Node},
    json::Json,
};
use std::{collections::HashSet, sync::Arc};

impl Solver {
    /// Values of one kind.
    pub(super) fn search(&mut self, key: &Key, kind: Kind, count: usize) -> Found {
        let mut cube = Cube::new(kind);
        let closing = if kind == Kind::Object { self.closing(key) } else { None };
        if self.claim(&mut cube, key.iter().copied().chain(closing)).is_err() {
            return Found::nothing();
        }
        let mut values = Values { values: Vec::new(), seen: HashSet::new(), count };
        let tally = self.cases(cube, &mut values);
        tally.found(values.values)
    }

    /// That documents have only the properties that are named by what they are drawn from.
    fn closing(&mut self, key: &Key) -> Option<Claim> {
        let drawn: Vec<u32> = key.iter().filter(|claim| claim.drawn).map(|claim| claim.lit.node()).collect();
        let except = self.graph.named(drawn).closed()?;
        self.spend(except.names.len() as u64);
        let names = Names::Except(Arc::new(except));
        Some(Claim::plain(self.graph.atom(Atom::Values(names, crate::graph::FALSE))))
    }

    /// The values of a case. First the choices are left open: if there is no value then, there is none at all, and if the
    /// value happens to satisfy them, nothing has to be chosen. Otherwise one that it does not satisfy is gone through.
    fn cases(&mut self, mut cube: Cube, values: &mut Values) -> Tally {
        let mut tally = Tally::new();
        // The case was copied, and what its atoms say will be.
        if !self.spend(1 + cube.size() + cube.atoms.len() as u64) {
            tally.doubt(Why::Budget);
            return tally;
        }
        if self.simplify(&mut cube).is_err() {
            return tally;
        }
        let wanted = values.count - values.values.len();
        let found = self.values_of(&cube, wanted);
        tally.low = found.low;
        if found.is_empty() || cube.choices.is_empty() {
            tally.rest = found.rest;
            found.values.into_iter().for_each(|value| values.add(value));
            return tally;
        }
        let mut violated = vec![0usize; cube.choices.len()];
        let mut doubtful = false;
        for value in &found.values {
            let fits: Vec<Option<bool>> =
                cube.choices.iter().map(|choice| self.chosen(choice, value)).collect();
            doubtful |= fits.contains(&None);
            for (at, fit) in fits.iter().enumerate() {
                violated[at] += usize::from(*fit != Some(true));
            }
            if fits.iter().all(|fit| *fit == Some(true)) {
                values.add(value.clone());
            }
        }
        if values.is_enough() || (found.rest == Rest::None && !doubtful) {
            tally.rest = if values.is_enough() { Rest::Some } else { Rest::None };
            return tally;
        }
        let every = found.values.is_empty() || violated.iter().all(|count| *count == 0);
        let next = (0..cube.choices.len())
            .filter(|at| every || violated[*at] > 0)
            .min_by_key(|at| cube.choices[*at].size());
        if let Some(next) = next {
            let choice = cube.choices.swap_remove(next);
            self.branch(&cube, &choice, values, &mut tally);
        }
        tally
    }

    fn branch(&mut self, cube: &Cube, choice: &Choice, values: &mut Values, tally: &mut Tally) {
        let mut attempt = |solver: &mut Self, claims: Vec<Claim>, then: Option<Choice>| {
            if values.is_enough() {
                return true;
            }
            let mut case = cube.clone();
            case.choices.extend(then);
            if solver.claim(&mut case, claims).is_ok() {
                let inner = solver.cases(case, values);
                tally.rest(inner.rest);
                tally.low = tally.low.min(inner.low);
            }
            let enough = values.is_enough();
            if enough {
                tally.rest(Rest::Some);
            }
            enough
        };
        let not = |claims: &[Claim]| -> Vec<Claim> {
            claims.iter().map(|claim| claim.with(claim.lit.not())).collect()
        };
        match choice {
            Choice::Any(claims) => {
                for claim in claims.iter() {
                    if attempt(self, vec![*claim], None) {
                        return;
                    }
                }
            }
            Choice::One(claims, true) => {
                for (at, claim) in claims.iter().enumerate() {
                    let mut case = not(&claims[..at]);
                    case.extend(not(&claims[at + 1..]));
                    case.push(*claim);
                    if attempt(self, case, None) {
                        return;
                    }
                }
            }
            Choice::One(claims, false) => {
                for (at, claim) in claims.iter().enumerate() {
                    let mut case = not(&claims[..at]);
                    case.push(*claim);
                    if attempt(self, case, Some(Choice::Any(claims[at + 1..].into()))) {
                        return;
                    }
                }
                attempt(self, not(claims), None);
            }
        }
    }

    /// Values for which the atoms of a case hold, whatever its choices say.
    fn values_of(&mut self, cube: &Cube, count: usize) -> Found {
        if let Some(listed) = self.listed(cube) {
            return self.among(cube, listed, Rest::None);
        }
        match cube.kind {
            Kind::Null => self.among(cube, vec![Json::Null], Rest::None),
            Kind::Bool => self.among(cube, vec![Json::Bool(false), Json::Bool(true)], Rest::None),
            Kind::Integer | Kind::Fraction => self.numbers(cube, count),
            Kind::String => self.strings(cube, count),
            Kind::Array => self.arrays(cube, count),
            Kind::Object => self.objects(cube, count),
        }
    }

    /// The values of the shortest list that has to have the value.
    fn listed(&mut self, cube: &Cube) -> Option<Vec<Json>> {
        let lists = cube.atoms.iter().filter(|claim| !claim.lit.negative()).filter_map(|claim| {
            match self.node(*claim) {
                Node::Atom(Atom::Enum(listed)) => Some(listed.values()),
                _ => None,
            }
        });
        let shortest = lists.min_by_key(|values| values.len())?;
        Some(shortest.iter().filter(|value| Kind::of(value) == cube.kind).cloned().collect())
    }

    /// Those of some values for which the atoms hold.
    pub(super) fn among(&mut self, cube: &Cube, values: Vec<Json>, rest: Rest) -> Found {
        let mut tally = Tally { rest, ..Tally::new() };
        let mut fitting = Vec::new();
        for value in values {
            if !self.spend(1) {
                tally.doubt(Why::Budget);
                break;
            }
            match self.fits(cube, &value) {
                Some(true) => fitting.push(value),
                Some(false) => {}
                None => {
                    tally.doubt(self.opaque(cube).unwrap_or_else(|| self.beyond()));
                    fitting.push(value);
                }
            }
        }
        tally.found(fitting)
    }

    /// Whether all atoms of a case hold for a value.
    pub(super) fn fits(&mut self, cube: &Cube, value: &Json) -> Option<bool> {
        self.spend(cube.atoms.len() as u64);
        let mut known = Some(true);
        for claim in &cube.atoms {
            match self.graph.holds(claim.lit, value) {
                Some(false) => return Some(false),
                Some(true) => {}
                None => known = None,
            }
        }
        known
    }

    /// Why a value could not be judged.
    pub(super) fn beyond(&self) -> Why {
        self.graph.beyond.map_or(Why::Depth, Why::Opaque)
    }

    /// Why a case is beyond this crate, if it is.
    pub(super) fn opaque(&self, cube: &Cube) -> Option<Why> {
        cube.atoms.iter().find_map(|claim| match self.node(*claim) {
            Node::Atom(Atom::Opaque(why, ..)) => Some(Why::Opaque(why)),
            _ => None,
        })
    }

    /// The statements of a case, and whether each is denied.
    pub(super) fn statements(&self, cube: &Cube) -> Vec<(Atom, Claim)> {
        let statement = |claim: &Claim| match self.node(*claim) {
            Node::Atom(atom) => Some((atom.clone(), *claim)),
            _ => None,
        };
        cube.atoms.iter().filter_map(statement).collect()
    }
}

/// Values that were found, each once.
struct Values {
    values: Vec<Json>,
    seen: HashSet<Json>,
    count: usize,
}

impl Values {
    fn add(&mut self, value: Json) {
        if !self.is_enough() && self.seen.insert(value.clone()) {
            self.values.push(value);
        }
    }

    fn is_enough(&self) -> bool {
        self.values.len() >= self.count
    }
}
