//! Finds values for which formulas hold, or proves that there are none.
//!
//! A *place* is a conjunction of formulas about one value. [`Solver::place`] goes through the kinds of values, splits the
//! formulas into cases (`search.rs`), and asks what each kind knows (`number.rs`, `string.rs`, `array.rs`, `object.rs`);
//! arrays and objects ask for places of their own. As values are finite, a place that is met again inside itself has no
//! smaller value there than the one that is looked for: it counts as empty on that way. Answers that rest on such an
//! assumption are remembered only as long as it stands.

mod array;
mod cube;
mod items;
mod matching;
mod names;
mod number;
mod object;
mod search;
mod string;

use crate::{
    fuel::Fuel,
    graph::{ALL_KINDS, Graph, KINDS, Kind, Lit, Node},
    json::Json,
};
use std::{collections::HashMap, rc::Rc};

/// What one question may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// How many steps are taken.
    pub steps: u64,
    /// How many places and formulas are kept in memory.
    pub kept: usize,
    /// How deep places are nested.
    pub depth: usize,
}

/// A formula in a place, and whether it comes from the schema that documents are drawn from, read leniently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Claim {
    pub lit: Lit,
    pub drawn: bool,
}

impl Claim {
    pub fn plain(lit: Lit) -> Self {
        Self { lit, drawn: false }
    }

    pub fn with(self, lit: Lit) -> Self {
        Self { lit, ..self }
    }
}

/// Why nothing is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Why {
    /// The budget of steps or memory is used up.
    Budget,
    /// The schemas are nested too deep.
    Depth,
    /// A value would be too large to be shown.
    Size,
    /// The validators do not confirm what was found.
    Unconfirmed,
    /// A pattern with look-around or back-references, or a very large one.
    Pattern,
    /// A format, of which only some texts are known.
    Format,
    /// A number that none of those tried is.
    Number,
    /// Items that have to be different, or counted, in a way that is not gone through.
    Items,
    /// Properties that have to be different, or counted, in a way that is not gone through.
    Properties,
    /// Something that is beyond this crate.
    Opaque(&'static str),
}

/// Whether there are values besides those that were found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// There are no others.
    None,
    /// There may be others.
    Some,
    /// Others were not found, for this reason.
    Unknown(Why),
}

/// Values of a place.
#[derive(Debug, Clone)]
pub struct Found {
    pub values: Vec<Json>,
    pub rest: Rest,
    /// The outermost place that was assumed to be empty on the way.
    low: usize,
}

/// No place was assumed to be empty.
const NO_PLACE: usize = usize::MAX;

impl Found {
    pub fn nothing() -> Self {
        Self { values: Vec::new(), rest: Rest::None, low: NO_PLACE }
    }

    pub fn unknown(why: Why) -> Self {
        Self { values: Vec::new(), rest: Rest::Unknown(why), low: NO_PLACE }
    }

    pub fn some(values: Vec<Json>) -> Self {
        Self { values, rest: Rest::Some, low: NO_PLACE }
    }

    /// Whether it is proved that there is no value.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty() && self.rest == Rest::None
    }

    /// Why nothing was found, if it is not that there is nothing.
    pub fn doubt(&self) -> Option<Why> {
        match self.rest {
            Rest::Unknown(why) => Some(why),
            _ => None,
        }
    }
}

/// What several attempts come to: no others only if all say so.
#[derive(Debug, Clone, Copy)]
pub struct Tally {
    pub rest: Rest,
    pub low: usize,
}

impl Tally {
    pub fn new() -> Self {
        Self { rest: Rest::None, low: NO_PLACE }
    }

    pub fn add(&mut self, found: &Found) {
        self.rest(found.rest);
        self.low = self.low.min(found.low);
    }

    pub fn rest(&mut self, rest: Rest) {
        self.rest = match (self.rest, rest) {
            (Rest::Unknown(why), _) | (_, Rest::Unknown(why)) => Rest::Unknown(why),
            (Rest::Some, _) | (_, Rest::Some) => Rest::Some,
            _ => Rest::None,
        };
    }

    pub fn doubt(&mut self, why: Why) {
        self.rest(Rest::Unknown(why));
    }

    pub fn found(self, values: Vec<Json>) -> Found {
        Found { values, rest: self.rest, low: self.low }
    }
}

/// Which values are wanted.
#[derive(Debug, Clone, Copy)]
pub struct Drawn {
    /// How many, at most.
    pub count: usize,
    /// Whether objects get every property that they may have.
    pub rich: bool,
    /// How many steps may be taken.
    pub steps: u64,
}

/// How large a value may become, in parts of it.
const SIZE_LIMIT: u64 = 16_384;

type Key = Rc<[Claim]>;

struct Remembered {
    found: Rc<Found>,
    asked: usize,
}

/// Finds values.
pub struct Solver {
    pub graph: Graph,
    budget: Budget,
    memory: HashMap<Key, Remembered>,
    /// Places that are being solved, by their depth.
    open: HashMap<Key, usize>,
    /// Places that are empty if the one that is open at this depth is.
    assumed: HashMap<Key, usize>,
    assumed_at: Vec<Vec<Key>>,
    /// Whether objects get every property that they may have.
    pub rich: bool,
}

impl Solver {
    pub fn new(mut graph: Graph, budget: Budget) -> Self {
        graph.fuel = Fuel::new(budget.steps);
        Self {
            graph,
            budget,
            memory: HashMap::new(),
            open: HashMap::new(),
            assumed: HashMap::new(),
            assumed_at: Vec::new(),
            rich: false,
        }
    }

    /// Takes steps from the budget, and says whether there were enough.
    fn spend(&mut self, steps: u64) -> bool {
        let kept = self.graph.nodes.len() + self.memory.len() + self.assumed.len();
        if kept > self.budget.kept {
            self.graph.fuel = Fuel::default();
        }
        self.graph.fuel.spend(steps)
    }

    /// Whether the budget is used up. Nothing that is found to be empty after that is a proof.
    pub fn is_spent(&self) -> bool {
        self.graph.fuel.is_empty()
    }

    /// Whether a value that was made may be kept. Parts of it may be shared many times over, so that it has to be known
    /// before it is compared or written out.
    fn is_small(&mut self, value: &Json) -> bool {
        let size = value.size(SIZE_LIMIT);
        self.spend(1 + size / 4) && size < SIZE_LIMIT
    }

    /// Values for which a claim holds, as far as they are found with some of the steps that are left.
    pub fn drawn(&mut self, claim: Claim, wanted: &Drawn) -> Vec<Json> {
        let mut left = std::mem::take(&mut self.graph.fuel);
        self.graph.fuel = left.portion(wanted.steps);
        // What is remembered was made the other way.
        self.memory.clear();
        let outer = std::mem::replace(&mut self.rich, wanted.rich);
        let found = self.place([claim], wanted.count);
        self.rich = outer;
        self.memory.clear();
        self.graph.fuel = left;
        found.values.clone()
    }

    fn depth(&self) -> usize {
        self.assumed_at.len()
    }

    /// Up to `count` values for which all claims hold.
    pub fn place(&mut self, claims: impl IntoIterator<Item = Claim>, count: usize) -> Rc<Found> {
        let Some(key) = normal(claims) else { return Rc::new(Found::nothing()) };
        if let Some(known) = self.memory.get(&key)
            && (known.found.rest == Rest::None || known.found.values.len() >= count || known.asked >= count)
        {
            return known.found.clone();
        }
        let assumed = self.open.get(&key).or_else(|| self.assumed.get(&key));
        if let Some(low) = assumed {
            return Rc::new(Found { low: *low, ..Found::nothing() });
        }
        if self.depth() >= self.budget.depth {
            return Rc::new(Found::unknown(Why::Depth));
        }
        if !self.spend(1 + key.len() as u64) {
            return Rc::new(Found::unknown(Why::Budget));
        }
        let depth = self.depth();
        self.open.insert(key.clone(), depth);
        self.assumed_at.push(Vec::new());
        let mut found = self.solve(&key, count);
        self.open.remove(&key);
        let rested = self.assumed_at.pop().unwrap_or_default();
        self.settle(&key, depth, &mut found, rested);
        let found = Rc::new(found);
        if found.low == NO_PLACE {
            self.memory.insert(key, Remembered { found: found.clone(), asked: count });
        }
        found
    }

    /// Decides what becomes of answers that rested on this place being empty.
    fn settle(&mut self, key: &Key, depth: usize, found: &mut Found, rested: Vec<Key>) {
        if !found.is_empty() {
            for key in rested {
                self.assumed.remove(&key);
            }
            if found.low != NO_PLACE {
                // The values are there all the same, but there may be others.
                found.rest = if found.rest == Rest::None { Rest::Some } else { found.rest };
                found.low = NO_PLACE;
            }
            return;
        }
        if found.low < depth {
            // Empty if the place further out is.
            let low = found.low;
            for key in rested.into_iter().chain([key.clone()]) {
                self.assumed.insert(key.clone(), low);
                self.assumed_at[low].push(key);
            }
            return;
        }
        found.low = NO_PLACE;
        for key in rested {
            self.assumed.remove(&key);
            self.memory.insert(key, Remembered { found: Rc::new(Found::nothing()), asked: usize::MAX });
        }
    }

    fn solve(&mut self, key: &Key, count: usize) -> Found {
        let kinds = key.iter().fold(ALL_KINDS, |kinds, claim| kinds & self.graph.kinds(claim.lit));
        let mut tally = Tally::new();
        let mut values = Vec::new();
        for kind in self.order().into_iter().filter(|kind| kinds & kind.bit() != 0) {
            let found = self.search(key, kind, count - values.len());
            tally.add(&found);
            values.extend(found.values);
            if values.len() >= count {
                tally.rest(Rest::Some);
                break;
            }
        }
        tally.found(values)
    }

    /// The kinds in the order in which they are tried.
    fn order(&self) -> [Kind; 7] {
        let mut kinds = KINDS;
        if self.rich {
            kinds.reverse();
        }
        kinds
    }
}

/// The claims in order, each once; `None` if two contradict each other.
fn normal(claims: impl IntoIterator<Item = Claim>) -> Option<Key> {
    let mut all: Vec<Claim> = claims.into_iter().filter(|claim| claim.lit != crate::graph::TRUE).collect();
    all.sort_unstable();
    // The one that is drawn stands for both.
    all.dedup_by(|next, kept| {
        let same = next.lit == kept.lit;
        kept.drawn |= same && next.drawn;
        same
    });
    let contradiction = all.windows(2).any(|pair| pair[0].lit == pair[1].lit.not());
    let never = all.first().is_some_and(|claim| claim.lit == crate::graph::FALSE);
    (!contradiction && !never).then(|| all.into())
}

impl Solver {
    /// The node of a claim.
    fn node(&self, claim: Claim) -> &Node {
        &self.graph.nodes[claim.lit.node() as usize]
    }
}
