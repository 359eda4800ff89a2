//! Schemas as formulas: a graph of conjunctions over statements on values of one kind.
//!
//! Every keyword becomes an [`Atom`], which says something about values of one kind and nothing about others. What
//! combines schemas becomes [`Node::And`] and [`Node::One`] over signed [`Lit`]erals; a disjunction is a negated
//! conjunction. References are edges, so that a recursive schema is a cycle; equal parts, cycles included, are one node
//! (`link.rs`), whichever of the two documents they come from and however they are written.

pub mod build;
pub mod endless;
pub mod eval;
pub mod facts;
pub mod link;
mod listed;
pub mod scopes;
pub mod unevaluated;

pub use listed::Listed;

use crate::{
    decimal::Decimal,
    fuel::Fuel,
    json::Json,
    pattern::{Ask, Patterns, Strings},
};
use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

/// The kinds of values. Whole numbers are a kind of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Null,
    Bool,
    Integer,
    Fraction,
    String,
    Array,
    Object,
}

/// Every kind, the simplest first.
pub const KINDS: [Kind; 7] =
    [Kind::Null, Kind::Bool, Kind::Integer, Kind::Fraction, Kind::String, Kind::Array, Kind::Object];

/// A set of kinds.
pub type Kinds = u8;

/// All kinds.
pub const ALL_KINDS: Kinds = 0x7f;

/// Both kinds of numbers.
pub const NUMBERS: Kinds = (1 << Kind::Integer as u8) | (1 << Kind::Fraction as u8);

impl Kind {
    pub fn bit(self) -> Kinds {
        1 << self as u8
    }

    pub fn of(value: &Json) -> Self {
        match value {
            Json::Null => Self::Null,
            Json::Bool(_) => Self::Bool,
            Json::Number(number) if number.is_integer() => Self::Integer,
            Json::Number(_) => Self::Fraction,
            Json::String(_) => Self::String,
            Json::Array(_) => Self::Array,
            Json::Object(_) => Self::Object,
        }
    }
}

/// A node, or its opposite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lit(u32);

impl Lit {
    pub fn new(node: u32, negative: bool) -> Self {
        Self(node << 1 | u32::from(negative))
    }

    pub fn node(self) -> u32 {
        self.0 >> 1
    }

    pub fn negative(self) -> bool {
        self.0 & 1 == 1
    }

    pub fn not(self) -> Self {
        Self(self.0 ^ 1)
    }

    /// Turned around if asked.
    pub fn signed(self, negative: bool) -> Self {
        Self(self.0 ^ u32::from(negative))
    }
}

/// What is always so. [`Graph`] has it first.
pub const TRUE: Lit = Lit(0);
/// What is never so.
pub const FALSE: Lit = Lit(1);

/// A formula.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Node {
    /// All of them.
    And(Box<[Lit]>),
    /// Exactly one of them.
    One(Box<[Lit]>),
    Atom(Atom),
    /// The schema in a place of a document, reached on a certain way; there is none left in a graph that is linked.
    Ref(u32),
}

/// Names of properties.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Names {
    Exactly(Arc<str>),
    /// Those in which the pattern is found.
    Matching(u32),
    /// Those that are not listed, and in which none of the patterns is found.
    Except(Arc<Except>),
}

/// What [`Names::Except`] leaves out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Except {
    pub names: BTreeSet<Arc<str>>,
    pub patterns: BTreeSet<u32>,
}

/// A statement on values of one kind, which is true of every value of another kind. Its opposite is true of values
/// of that kind alone.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Atom {
    /// The only one that is about every kind, with `Enum` and `Opaque`.
    Kinds(Kinds),
    Enum(Arc<Listed>),
    AtLeast {
        bound: Decimal,
        exclusive: bool,
    },
    AtMost {
        bound: Decimal,
        exclusive: bool,
    },
    MultipleOf(Decimal),
    MinLength(u64),
    MaxLength(u64),
    Pattern(u32),
    Format(Arc<str>),
    MinItems(u64),
    MaxItems(u64),
    Unique,
    /// The item at this index, if there is one.
    Item(u64, Lit),
    /// Every item from this index on.
    Items(u64, Lit),
    /// At least so many items.
    Some(u64, Lit),
    /// Maximum number of items.
    Few(u64, Lit),
    MinProperties(u64),
    MaxProperties(u64),
    Has(Arc<str>),
    /// Every property with such a name.
    Values(Names, Lit),
    /// Every name.
    Names(Lit),
    /// Something that is beyond this crate: why, and what. It is equal to what says the same of equal formulas.
    Opaque(&'static str, Arc<Json>, Box<[Lit]>),
}

impl Atom {
    /// The kinds about which it says something.
    pub fn about(&self) -> Kinds {
        match self {
            Self::Kinds(_) | Self::Enum(_) | Self::Opaque(..) => ALL_KINDS,
            Self::AtLeast { .. } | Self::AtMost { .. } | Self::MultipleOf(_) => NUMBERS,
            Self::MinLength(_) | Self::MaxLength(_) | Self::Pattern(_) | Self::Format(_) => {
                Kind::String.bit()
            }
            Self::MinItems(_) | Self::MaxItems(_) | Self::Unique => Kind::Array.bit(),
            Self::Item(..) | Self::Items(..) | Self::Some(..) | Self::Few(..) => Kind::Array.bit(),
            Self::MinProperties(_) | Self::MaxProperties(_) | Self::Has(_) => Kind::Object.bit(),
            Self::Values(..) | Self::Names(_) => Kind::Object.bit(),
        }
    }

    /// The formula that it has for parts of a value.
    pub fn inner(&self) -> Option<Lit> {
        match self {
            Self::Item(_, lit) | Self::Items(_, lit) | Self::Some(_, lit) | Self::Few(_, lit) => Some(*lit),
            Self::Values(_, lit) | Self::Names(lit) => Some(*lit),
            _ => None,
        }
    }

    /// The same about another formula.
    pub fn with_inner(&self, lit: Lit) -> Self {
        let mut atom = self.clone();
        if let Self::Item(_, inner) | Self::Items(_, inner) | Self::Some(_, inner) | Self::Few(_, inner) =
            &mut atom
        {
            *inner = lit;
        }
        if let Self::Values(_, inner) | Self::Names(inner) = &mut atom {
            *inner = lit;
        }
        atom
    }
}

/// The formulas of the documents that are compared.
#[derive(Default)]
pub struct Graph {
    pub nodes: Vec<Node>,
    index: HashMap<Node, u32>,
    pub patterns: Patterns,
    /// What is known about nodes, filled as it is asked for.
    pub facts: facts::Facts,
    /// Why a value could last not be judged.
    pub beyond: Option<&'static str>,
    /// What building and asking may still cost.
    pub fuel: Fuel,
    /// How many places were numbered for [`Node::Ref`].
    sites: u32,
    /// The documents with something that is equal only to itself.
    documents: Vec<Json>,
}

impl Graph {
    pub fn new() -> Self {
        let mut graph = Self::default();
        graph.add(Node::And(Box::default()));
        graph
    }

    /// The node, which there is once.
    pub fn add(&mut self, node: Node) -> Lit {
        if let Some(known) = self.index.get(&node) {
            return Lit::new(*known, false);
        }
        let id = self.nodes.len() as u32;
        self.nodes.push(node.clone());
        self.index.insert(node, id);
        Lit::new(id, false)
    }

    /// The number of a document, the same for equal ones.
    fn number_of(&mut self, document: &Json) -> i64 {
        let known = self.documents.iter().position(|known| known == document);
        let number = known.unwrap_or(self.documents.len());
        if known.is_none() {
            self.documents.push(document.clone());
        }
        number as i64
    }

    pub fn atom(&mut self, atom: Atom) -> Lit {
        self.add(Node::Atom(atom))
    }

    pub fn and(&mut self, lits: impl IntoIterator<Item = Lit>) -> Lit {
        let mut all: Vec<Lit> = lits.into_iter().filter(|lit| *lit != TRUE).collect();
        all.sort_unstable();
        all.dedup();
        let unique: HashSet<Lit> = all.iter().copied().collect();
        if all.iter().any(|lit| *lit == FALSE || unique.contains(&lit.not())) {
            return FALSE;
        }
        match all.as_slice() {
            [] => TRUE,
            [only] => *only,
            _ => self.add(Node::And(all.into())),
        }
    }

    pub fn or(&mut self, lits: impl IntoIterator<Item = Lit>) -> Lit {
        let negated: Vec<Lit> = lits.into_iter().map(Lit::not).collect();
        self.and(negated).not()
    }

    pub fn one(&mut self, lits: impl IntoIterator<Item = Lit>) -> Lit {
        let mut all: Vec<Lit> = lits.into_iter().filter(|lit| *lit != FALSE).collect();
        all.sort_unstable();
        match all.as_slice() {
            [] => FALSE,
            [only] => *only,
            _ => self.add(Node::One(all.into())),
        }
    }

    /// Whether inclusion of a pattern can be decided.
    pub fn is_regular(&mut self, pattern: u32) -> bool {
        self.patterns.is_regular(pattern, &mut self.fuel)
    }

    /// Texts in which patterns are found, or not.
    pub fn strings(&mut self, ask: &Ask) -> Strings {
        self.patterns.strings(ask, &mut self.fuel)
    }

    /// Whether a property of this name is meant. Nothing is a proof once the fuel is used up, so that the answer does not
    /// matter then.
    pub fn names(&mut self, names: &Names, name: &str) -> bool {
        match names {
            Names::Exactly(exact) => **exact == *name,
            Names::Matching(pattern) => self.patterns.matches(*pattern, name, &mut self.fuel),
            Names::Except(except) => {
                let Self { patterns, fuel, .. } = self;
                !except.names.contains(name)
                    && !except.patterns.iter().any(|p| patterns.matches(*p, name, fuel))
            }
        }
    }
}
