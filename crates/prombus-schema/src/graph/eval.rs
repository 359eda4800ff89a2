//! Whether a formula holds for a value: what a validator does, in exact numbers.

use super::{Atom, Graph, Kind, Lit, Node};
use crate::{formats, json::Json};
use std::collections::HashSet;

/// How deep formulas and values are looked into together.
const DEPTH_LIMIT: usize = 600;

impl Graph {
    /// Whether a formula holds for a value; `None` where that is beyond this crate.
    pub fn holds(&mut self, lit: Lit, value: &Json) -> Option<bool> {
        self.facts.judged.clear();
        self.holds_within(lit, value, DEPTH_LIMIT)
    }

    fn holds_within(&mut self, lit: Lit, value: &Json, depth: usize) -> Option<bool> {
        let deeper = depth.checked_sub(1).filter(|_| self.fuel.spend(1))?;
        let truth = match &self.nodes[lit.node() as usize] {
            Node::And(_) | Node::One(_) => self.combined_holds(lit.node(), value, deeper),
            Node::Atom(atom) => {
                let atom = atom.clone();
                self.atom_holds(&atom, value, deeper)
            }
            Node::Ref(_) => None,
        };
        truth.map(|truth| truth != lit.negative())
    }

    /// What is known of a value is not found out again, however many ways lead to it. All values that are asked for live as
    /// long as the question, or share their text with one that does.
    fn combined_holds(&mut self, node: u32, value: &Json, depth: usize) -> Option<bool> {
        let pair = (node, value.address());
        if let Some(known) = self.facts.judged.get(&pair) {
            return Some(*known);
        }
        let truth = match self.nodes[node as usize].clone() {
            Node::And(lits) => self.all(lits.iter().map(|lit| (*lit, value)), depth),
            Node::One(lits) => self.only_one(&lits, value, depth),
            _ => None,
        };
        if let Some(truth) = truth {
            self.facts.judged.insert(pair, truth);
        }
        truth
    }

    /// Whether all hold; one that does not is enough to know.
    fn all<'v>(&mut self, parts: impl Iterator<Item = (Lit, &'v Json)>, depth: usize) -> Option<bool> {
        let mut known = Some(true);
        for (lit, value) in parts {
            match self.holds_within(lit, value, depth) {
                Some(false) => return Some(false),
                Some(true) => {}
                None => known = None,
            }
        }
        known
    }

    fn only_one(&mut self, lits: &[Lit], value: &Json, depth: usize) -> Option<bool> {
        let (mut holding, mut unknown) = (0, false);
        for lit in lits {
            match self.holds_within(*lit, value, depth) {
                Some(true) => holding += 1,
                Some(false) => {}
                None => unknown = true,
            }
            if holding > 1 {
                return Some(false);
            }
        }
        if unknown { None } else { Some(holding == 1) }
    }

    fn atom_holds(&mut self, atom: &Atom, value: &Json, depth: usize) -> Option<bool> {
        match (atom, value) {
            (Atom::Kinds(kinds), value) => Some(kinds & Kind::of(value).bit() != 0),
            (Atom::Enum(values), value) => Some(values.contains(value)),
            (Atom::Opaque(why, ..), _) => {
                self.beyond = Some(why);
                None
            }
            (Atom::AtLeast { bound, exclusive }, Json::Number(number)) => {
                Some(number > bound || (!exclusive && number == bound))
            }
            (Atom::AtMost { bound, exclusive }, Json::Number(number)) => {
                Some(number < bound || (!exclusive && number == bound))
            }
            (Atom::MultipleOf(step), Json::Number(number)) => Some(number.is_multiple_of(step)),
            (Atom::MinLength(least), Json::String(text)) => Some(self.length(text) >= *least),
            (Atom::MaxLength(most), Json::String(text)) => Some(self.length(text) <= *most),
            (Atom::Pattern(pattern), Json::String(text)) => {
                Some(self.patterns.matches(*pattern, text, &mut self.fuel))
            }
            (Atom::Format(format), Json::String(text)) => Some(formats::accepts(format, text)),
            (atom, Json::Array(items)) => self.items_hold(atom, items, depth),
            (atom, Json::Object(_)) => self.properties_hold(atom, value, depth),
            _ => Some(true),
        }
    }

    /// How many code points a text has.
    fn length(&mut self, text: &str) -> u64 {
        self.fuel.spend(text.len() as u64 / 64);
        text.chars().count() as u64
    }

    fn items_hold(&mut self, atom: &Atom, items: &[Json], depth: usize) -> Option<bool> {
        let count = items.len() as u64;
        match atom {
            Atom::MinItems(least) => Some(count >= *least),
            Atom::MaxItems(most) => Some(count <= *most),
            Atom::Unique => {
                self.fuel.spend(count);
                let mut seen = HashSet::new();
                Some(items.iter().all(|item| seen.insert(item)))
            }
            Atom::Item(at, lit) => match items.get(usize::try_from(*at).unwrap_or(usize::MAX)) {
                Some(item) => self.holds_within(*lit, item, depth),
                None => Some(true),
            },
            Atom::Items(from, lit) => {
                let rest = items.get(usize::try_from(*from).unwrap_or(usize::MAX)..).unwrap_or_default();
                self.all(rest.iter().map(|item| (*lit, item)), depth)
            }
            Atom::Some(least, lit) => self.matching(*lit, items, depth).map(|matching| matching >= *least),
            Atom::Few(most, lit) => self.matching(*lit, items, depth).map(|matching| matching <= *most),
            _ => Some(true),
        }
    }

    fn matching(&mut self, lit: Lit, items: &[Json], depth: usize) -> Option<u64> {
        let mut matching = 0;
        for item in items {
            matching += u64::from(self.holds_within(lit, item, depth)?);
        }
        Some(matching)
    }

    fn properties_hold(&mut self, atom: &Atom, value: &Json, depth: usize) -> Option<bool> {
        let members = value.object()?;
        match atom {
            Atom::MinProperties(least) => Some(members.len() as u64 >= *least),
            Atom::MaxProperties(most) => Some(members.len() as u64 <= *most),
            Atom::Has(name) => Some(members.contains_key(name)),
            Atom::Values(super::Names::Exactly(name), lit) => match members.get(name) {
                Some(value) => self.holds_within(*lit, value, depth),
                None => Some(true),
            },
            Atom::Values(names, lit) => {
                self.fuel.spend(members.len() as u64);
                let meant: Vec<&Json> = members
                    .iter()
                    .filter(|(name, _)| self.names(names, name))
                    .map(|(_, value)| value)
                    .collect();
                self.all(meant.into_iter().map(|value| (*lit, value)), depth)
            }
            Atom::Names(lit) => {
                let names: Vec<Json> = members.keys().map(|name| Json::String(name.clone())).collect();
                self.all(names.iter().map(|name| (*lit, name)), depth)
            }
            _ => Some(true),
        }
    }
}
