//! What can be said of a formula without solving it: which kinds of values it may take, and which properties it names.

use super::{ALL_KINDS, Atom, Except, Graph, Kinds, Lit, Names, Node};
use crate::json::Json;
use std::collections::{HashMap, HashSet};

/// How deep formulas are looked into.
const DEPTH_LIMIT: usize = 400;

/// What is known already.
#[derive(Default)]
pub struct Facts {
    kinds: HashMap<Lit, Kinds>,
    /// Whether a node holds for a value, while one question is answered.
    pub(super) judged: HashMap<(u32, usize), bool>,
}

/// The properties that schemas speak of, in one place of a document.
#[derive(Debug, Clone, Default)]
pub struct Named {
    except: Except,
    /// Whether something is said of all others.
    open: bool,
    /// The most properties that are asked for.
    least: u64,
}

impl Named {
    /// The names that documents drawn from it have, if it says anything of names at all.
    pub fn closed(self) -> Option<Except> {
        let (names, patterns) = (self.except.names.len(), self.except.patterns.len());
        let enough = patterns > 0 || names as u64 >= self.least;
        (!self.open && names + patterns > 0 && enough).then_some(self.except)
    }

    /// Adds what a statement names, and answers in how many steps.
    fn add(&mut self, atom: &Atom) -> u64 {
        match atom {
            Atom::Has(name) | Atom::Values(Names::Exactly(name), _) => {
                self.except.names.insert(name.clone());
            }
            Atom::Values(Names::Matching(pattern), _) => {
                self.except.patterns.insert(*pattern);
            }
            Atom::Values(Names::Except(_), _) | Atom::Names(_) | Atom::Opaque(..) => self.open = true,
            Atom::MinProperties(least) => self.least = self.least.max(*least),
            Atom::Enum(listed) => {
                let objects = listed.values().iter().filter_map(Json::object);
                self.except.names.extend(objects.flat_map(|members| members.keys().cloned()));
                return listed.values().len() as u64;
            }
            _ => {}
        }
        1
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
            Node::Atom(Atom::Enum(listed)) if !negative => listed.kinds(),
            Node::Atom(atom) if negative => atom.about(),
            _ => ALL_KINDS,
        };
        self.facts.kinds.insert(lit, kinds);
        kinds
    }

    /// The properties of which nodes speak, in the same place.
    pub fn named(&mut self, nodes: Vec<u32>) -> Named {
        let mut named = Named::default();
        let (mut open, mut seen) = (nodes, HashSet::new());
        while let Some(node) = open.pop() {
            if !seen.insert(node) {
                continue;
            }
            let steps = match &self.nodes[node as usize] {
                Node::And(lits) | Node::One(lits) => {
                    open.extend(lits.iter().map(|lit| lit.node()));
                    lits.len() as u64
                }
                Node::Atom(atom) => named.add(atom),
                Node::Ref(_) => 1,
            };
            self.fuel.spend(steps);
        }
        named
    }
}
