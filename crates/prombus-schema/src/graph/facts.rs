//! What can be said of a formula without solving it: which kinds of values it may take, and which properties it names.

use super::{ALL_KINDS, Atom, Except, Graph, Kind, Kinds, Lit, Names, Node};
use crate::json::Json;
use std::{collections::HashMap, sync::Arc};

/// How deep formulas are looked into.
const DEPTH_LIMIT: usize = 400;

/// What is known already.
#[derive(Default)]
pub struct Facts {
    kinds: HashMap<Lit, Kinds>,
    named: HashMap<u32, Arc<Named>>,
}

/// The properties that a schema speaks of, in one place of a document.
#[derive(Debug, Clone, Default)]
pub struct Named {
    pub except: Except,
    /// Whether it says something of all others.
    pub open: bool,
    /// The most properties that it asks for.
    pub least: u64,
}

impl Named {
    fn add(&mut self, other: &Self) {
        self.except.names.extend(other.except.names.iter().cloned());
        self.except.patterns.extend(other.except.patterns.iter().copied());
        self.open |= other.open;
        self.least = self.least.max(other.least);
    }

    /// The names that documents drawn from it have, if it says anything of names at all.
    pub fn closed(&self) -> Option<Except> {
        let (names, patterns) = (self.except.names.len(), self.except.patterns.len());
        let enough = patterns > 0 || names as u64 >= self.least;
        (!self.open && names + patterns > 0 && enough).then(|| self.except.clone())
    }
}

impl Graph {
    /// The kinds that values of a formula may have, at most.
    pub fn kinds(&mut self, lit: Lit) -> Kinds {
        self.kinds_within(lit, DEPTH_LIMIT)
    }

    fn kinds_within(&mut self, lit: Lit, depth: usize) -> Kinds {
        if let Some(known) = self.facts.kinds.get(&lit) {
            return *known;
        }
        let Some(deeper) = depth.checked_sub(1) else { return ALL_KINDS };
        let negative = lit.negative();
        let kinds = match self.nodes[lit.node() as usize].clone() {
            Node::And(lits) if negative => {
                lits.iter().fold(0, |kinds, lit| kinds | self.kinds_within(lit.not(), deeper))
            }
            Node::And(lits) => {
                lits.iter().fold(ALL_KINDS, |kinds, lit| kinds & self.kinds_within(*lit, deeper))
            }
            Node::One(lits) if !negative => {
                lits.iter().fold(0, |kinds, lit| kinds | self.kinds_within(*lit, deeper))
            }
            Node::Atom(Atom::Kinds(kinds)) if negative => ALL_KINDS & !kinds,
            Node::Atom(Atom::Kinds(kinds)) => kinds,
            Node::Atom(Atom::Enum(values)) if !negative => {
                values.iter().fold(0, |kinds, value| kinds | Kind::of(value).bit())
            }
            Node::Atom(atom) if negative => atom.about(),
            _ => ALL_KINDS,
        };
        self.facts.kinds.insert(lit, kinds);
        kinds
    }

    /// The properties of which a node speaks, in the same place.
    pub fn named(&mut self, node: u32) -> Arc<Named> {
        self.named_within(node, DEPTH_LIMIT)
    }

    fn named_within(&mut self, node: u32, depth: usize) -> Arc<Named> {
        if let Some(known) = self.facts.named.get(&node) {
            return known.clone();
        }
        let Some(deeper) = depth.checked_sub(1) else {
            return Arc::new(Named { open: true, ..Named::default() });
        };
        let mut named = Named::default();
        match self.nodes[node as usize].clone() {
            Node::And(lits) | Node::One(lits) => {
                for lit in &lits {
                    named.add(&self.named_within(lit.node(), deeper));
                }
            }
            Node::Atom(atom) => named_by(&atom, &mut named),
            Node::Ref(_) => {}
        }
        let named = Arc::new(named);
        self.facts.named.insert(node, named.clone());
        named
    }

    /// The properties of which several nodes speak.
    pub fn named_by_all(&mut self, nodes: impl IntoIterator<Item = u32>) -> Named {
        let mut named = Named::default();
        for node in nodes {
            named.add(&self.named(node));
        }
        named
    }
}

fn named_by(atom: &Atom, named: &mut Named) {
    match atom {
        Atom::Has(name) | Atom::Values(Names::Exactly(name), _) => {
            named.except.names.insert(name.clone());
        }
        Atom::Values(Names::Matching(pattern), _) => {
            named.except.patterns.insert(*pattern);
        }
        Atom::Values(Names::Except(_), _) | Atom::Names(_) | Atom::Opaque(..) => named.open = true,
        Atom::MinProperties(least) => named.least = *least,
        Atom::Enum(values) => {
            let names = values.iter().filter_map(Json::object).flat_map(|members| members.keys().cloned());
            named.except.names.extend(names);
        }
        _ => {}
    }
}
