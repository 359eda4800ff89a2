//! Whether documents of one schema are taken by another.

use crate::{
    deep,
    graph::{Atom, Graph, Lit, Node, link},
    json::Json,
    schema::Schema,
    solve::{Budget, Claim, Drawn, Rest, Solver, Why},
    validator::TOO_MANY_STEPS,
};
use serde_json::Value;
use std::collections::{HashMap, HashSet, VecDeque};

/// What a check may cost: about a second at most.
pub const BUDGET: Budget = Budget { steps: 2_000_000, kept: 400_000, depth: 96 };

/// How many violations are told.
pub const VIOLATIONS_LIMIT: usize = 20;

/// How many parts of a schema are gone into to tell violations apart.
const PARTS_LIMIT: usize = 400;

/// How large a counterexample may be, in bytes.
const COUNTEREXAMPLE_LIMIT: usize = 64 * 1024;

/// Which documents a proof is held against: those with what has to be there, and those with what may be there.
const HELD_AGAINST: [Drawn; 2] =
    [Drawn { count: 4, rich: false, steps: 50_000 }, Drawn { count: 2, rich: true, steps: 50_000 }];

/// How much of a document is shown in a message, in characters.
const SHOWN_LIMIT: usize = 200;

/// In which direction documents have to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compat {
    /// In none.
    None,
    /// Every document that the old schema takes, the new one takes.
    #[default]
    Backward,
    /// Every document that the new schema takes, the old one takes.
    Forward,
    /// Both.
    Full,
}

/// How properties that a schema does not name are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// Documents drawn from a schema are taken to have only the properties that it names, unless it says something of others.
    #[default]
    Lenient,
    /// By the letter of the specification: what a schema does not forbid is there in some document.
    Strict,
}

/// What is asked: two schemas, in which direction, and how they are read.
#[derive(Debug, Clone, Copy)]
pub struct Comparison<'s> {
    /// The schema that there was.
    pub old: &'s Schema,
    /// The schema that follows it.
    pub new: &'s Schema,
    /// In which direction documents have to be taken.
    pub compat: Compat,
    /// How they are read.
    pub policy: Policy,
}

/// The answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// Every document is taken.
    Proved,
    /// At least one document is not, and these are such documents.
    Refuted(Vec<Violation>),
    /// It could not be decided within the budget; these are the parts that it failed on.
    Unknown(Vec<Violation>),
}

impl Verdict {
    /// Whether it is proved that every document is taken.
    pub fn is_compatible(&self) -> bool {
        *self == Self::Proved
    }

    /// What is wrong, or could not be decided.
    pub fn violations(&self) -> &[Violation] {
        match self {
            Self::Proved => &[],
            Self::Refuted(violations) | Self::Unknown(violations) => violations,
        }
    }
}

/// A place in which one schema refuses what the other one takes.
#[derive(Debug, Clone, PartialEq)]
pub struct Violation {
    /// Where, as a JSON pointer into the document.
    pub path: String,
    /// The keyword that refuses it, or `undecided`.
    pub rule: String,
    /// What is wrong.
    pub message: String,
    /// A document that one schema takes and the other one refuses; both validators were asked. None if it is undecided.
    pub counterexample: Option<Value>,
}

/// Decides whether documents are taken, in each direction that is asked for.
pub fn check(comparison: &Comparison<'_>) -> Verdict {
    check_within(comparison, BUDGET)
}

/// The same with another budget.
pub fn check_within(comparison: &Comparison<'_>, budget: Budget) -> Verdict {
    let Comparison { old, new, compat, policy } = *comparison;
    let backward = Direction {
        source: old,
        target: new,
        words: "the new schema refuses what the old one takes",
        policy,
    };
    let forward = Direction {
        source: new,
        target: old,
        words: "the old schema refuses what the new one takes",
        policy,
    };
    let directions = match compat {
        Compat::None => Vec::new(),
        Compat::Backward => vec![backward],
        Compat::Forward => vec![forward],
        Compat::Full => vec![backward, forward],
    };
    let budget = Budget { steps: budget.steps / directions.len().max(1) as u64, ..budget };
    let (mut refuted, mut undecided) = (Vec::new(), Vec::new());
    for direction in &directions {
        let decided = deep::run(|| direction.decide(budget))
            .unwrap_or_else(|_| Verdict::Unknown(vec![direction.undecided(String::new(), deep::NO_STACK)]));
        match decided {
            Verdict::Proved => {}
            Verdict::Refuted(violations) => refuted.extend(violations),
            Verdict::Unknown(violations) => undecided.extend(violations),
        }
    }
    match (refuted.is_empty(), undecided.is_empty()) {
        (false, _) => Verdict::Refuted(refuted),
        (true, false) => Verdict::Unknown(undecided),
        (true, true) => Verdict::Proved,
    }
}

/// One direction: documents are drawn from the source, and the target has to take them.
struct Direction<'s> {
    source: &'s Schema,
    target: &'s Schema,
    words: &'static str,
    policy: Policy,
}

/// The formulas of two schemas in one graph.
pub(crate) fn linked(schemas: &[&Schema]) -> Option<(Graph, Vec<Lit>)> {
    let mut graph = Graph::new();
    let mut built = HashMap::new();
    let roots: Result<Vec<Lit>, _> =
        schemas.iter().map(|schema| schema.build(&mut graph, &mut built)).collect();
    Some(link::link(graph, &built, &roots.ok()?))
}

impl Direction<'_> {
    fn decide(&self, budget: Budget) -> Verdict {
        let Some((graph, roots)) = linked(&[self.source, self.target]) else {
            return Verdict::Unknown(vec![
                self.undecided(String::new(), "a schema that was taken cannot be read again"),
            ]);
        };
        self.decide_on(graph, (roots[0], roots[1]), budget)
    }

    /// The same for the formulas of the source and of the target.
    fn decide_on(&self, graph: Graph, (source, target): (Lit, Lit), budget: Budget) -> Verdict {
        let source = Claim { lit: source, drawn: self.policy == Policy::Lenient };
        let mut hunt = Hunt {
            direction: self,
            solver: Solver::new(graph, budget),
            source,
            refuted: Vec::new(),
            undecided: Vec::new(),
            told: HashSet::new(),
        };
        hunt.go(target);
        if hunt.refuted.is_empty() && hunt.undecided.is_empty() {
            let contradiction = hunt.contradiction();
            hunt.undecided.extend(contradiction);
        }
        match (hunt.refuted.is_empty(), hunt.undecided.is_empty()) {
            (false, _) => Verdict::Refuted(hunt.refuted),
            (true, false) => Verdict::Unknown(hunt.undecided),
            (true, true) => Verdict::Proved,
        }
    }

    fn undecided(&self, path: String, why: &str) -> Violation {
        let message = format!("it could not be decided whether {}: {why}", self.words);
        Violation { path, rule: "undecided".to_owned(), message, counterexample: None }
    }
}

/// A part of what the target claims, and where in a document it claims it.
#[derive(Clone)]
struct Part {
    lit: Lit,
    path: String,
}

/// The hunt for documents that the target refuses.
struct Hunt<'d, 's> {
    direction: &'d Direction<'s>,
    solver: Solver,
    source: Claim,
    refuted: Vec<Violation>,
    undecided: Vec<Violation>,
    told: HashSet<(String, String)>,
}

impl Hunt<'_, '_> {
    /// Goes through the parts of the target. One that is refused is gone into, so that each reason is told.
    fn go(&mut self, target: Lit) {
        let whole = |lit| Part { lit, path: String::new() };
        let said: HashSet<Lit> = self.conjuncts(whole(self.source.lit)).iter().map(|part| part.lit).collect();
        let mut open = self.conjuncts(whole(target));
        // What the source says in the same words needs no proof, however hard its parts would be to prove.
        open.retain(|part| !said.contains(&part.lit));
        let mut open = match open.as_slice() {
            [only] => VecDeque::from(self.parts(&only.clone())),
            _ => VecDeque::from(open),
        };
        let mut solved = 0;
        while let Some(part) = open.pop_front() {
            if self.refuted.len() >= VIOLATIONS_LIMIT || (solved >= PARTS_LIMIT && !self.refuted.is_empty()) {
                return;
            }
            solved += 1;
            match self.refutation(part.lit) {
                Ok(None) => {}
                Ok(Some(counterexample)) => {
                    let inside = self.parts(&part);
                    if inside.len() > 1 && solved + open.len() < PARTS_LIMIT {
                        open.extend(inside);
                    }
                    self.tell(counterexample);
                }
                Err(why) => {
                    let violation = self.direction.undecided(part.path, &explained(why));
                    if self.undecided.len() < VIOLATIONS_LIMIT {
                        self.undecided.push(violation);
                    }
                }
            }
        }
    }

    /// A document of the source for which the part does not hold; `None` if there is none.
    fn refutation(&mut self, part: Lit) -> Result<Option<Value>, Why> {
        let claims = [self.source, Claim::plain(part.not())];
        let mut doubt = Why::Unconfirmed;
        for count in [1, 6] {
            let found = self.solver.place(claims, count);
            if let Some(confirmed) = found.values.iter().find_map(|value| self.confirmed(value)) {
                return Ok(Some(confirmed));
            }
            doubt = found.values.iter().find_map(|value| self.beyond(value)).unwrap_or(doubt);
            match found.rest {
                // What is not found because there were no steps left to find it may be there all the same.
                _ if self.solver.is_spent() => return Err(Why::Budget),
                Rest::None if found.values.is_empty() => return Ok(None),
                Rest::Unknown(why) => doubt = why,
                _ => {}
            }
            if found.values.is_empty() {
                break;
            }
        }
        Err(doubt)
    }

    /// Holds a proof against documents of the source. One that the validators say the target refuses is reason to doubt it:
    /// then the checker and the validators do not read the schemas in the same way.
    fn contradiction(&mut self) -> Option<Violation> {
        let source = self.source;
        let refused = HELD_AGAINST.iter().find_map(|wanted| {
            let documents = self.solver.drawn(source, wanted);
            documents
                .iter()
                .filter(|document| self.is_cheap(document))
                .find_map(|document| self.confirmed(document))
        })?;
        let mut shown: String = refused.to_string();
        if let Some((end, _)) = shown.char_indices().nth(SHOWN_LIMIT) {
            shown.truncate(end);
            shown.push('…');
        }
        let why = format!("by the checker there is no such document, by the validators there is {shown}");
        Some(self.direction.undecided(String::new(), &why))
    }

    /// Whether both validators can be asked about a document without much ado.
    fn is_cheap(&self, document: &Json) -> bool {
        let Direction { source, target, .. } = self.direction;
        let cheap =
            |document: &Value| [source, target].iter().all(|schema| schema.validator().is_cheap(document));
        document.to_value().is_some_and(|document| cheap(&document))
    }

    /// The document, if the validators say that the source takes it and the target does not.
    fn confirmed(&self, document: &Json) -> Option<Value> {
        let document = document.to_value()?;
        let Direction { source, target, .. } = self.direction;
        let taken = source.validator().takes(&document) == Ok(true);
        let refused = taken && target.validator().takes(&document) == Ok(false);
        (refused && document.to_string().len() <= COUNTEREXAMPLE_LIMIT).then_some(document)
    }

    /// What of a schema keeps the validators from confirming a document.
    fn beyond(&self, document: &Json) -> Option<Why> {
        let document = document.to_value()?;
        let Direction { source, target, .. } = self.direction;
        let why = [source, target].iter().find_map(|schema| schema.validator().takes(&document).err())?;
        Some(if why == TOO_MANY_STEPS { Why::Budget } else { Why::Opaque(why) })
    }

    /// Tells why the target refuses a document, unless that was told.
    fn tell(&mut self, counterexample: Value) {
        for fault in self.direction.target.validator().faults(&counterexample) {
            if self.told.insert((fault.path.clone(), fault.rule.clone())) {
                let message = format!("{}: {}", self.direction.words, fault.message);
                let counterexample = Some(counterexample.clone());
                self.refuted.push(Violation { path: fault.path, rule: fault.rule, message, counterexample });
            }
        }
    }

    /// The parts that a part is a conjunction of, in the value itself and in its properties and items.
    fn parts(&mut self, part: &Part) -> Vec<Part> {
        let parts = self.conjuncts(part.clone());
        if let [only] = parts.as_slice() {
            return self.parts_inside(&only.clone()).unwrap_or(parts);
        }
        parts
    }

    /// The parts that a part is a conjunction of, in the value itself.
    fn conjuncts(&self, part: Part) -> Vec<Part> {
        let mut parts = Vec::new();
        let mut open = vec![part];
        let mut atoms = HashSet::new();
        while let Some(part) = open.pop() {
            match self.solver.graph.nodes[part.lit.node() as usize].clone() {
                Node::And(lits) if !part.lit.negative() => {
                    open.extend(lits.iter().rev().map(|lit| Part { lit: *lit, path: part.path.clone() }));
                }
                _ if atoms.insert(part.lit) => parts.push(part),
                _ => {}
            }
        }
        parts
    }

    /// What is claimed of a part of a value, as several claims.
    fn parts_inside(&mut self, part: &Part) -> Option<Vec<Part>> {
        let Node::Atom(atom) = self.solver.graph.nodes[part.lit.node() as usize].clone() else { return None };
        let inner = atom.inner().filter(|_| !part.lit.negative())?;
        let step = match &atom {
            Atom::Values(crate::graph::Names::Exactly(name), _) => {
                format!("/{}", name.replace('~', "~0").replace('/', "~1"))
            }
            Atom::Item(at, _) => format!("/{at}"),
            Atom::Values(..) | Atom::Items(..) => "/*".to_owned(),
            _ => return None,
        };
        let Node::And(lits) = self.solver.graph.nodes[inner.node() as usize].clone() else { return None };
        if inner.negative() {
            return None;
        }
        let path = format!("{}{step}", part.path);
        let one = |lit: &Lit| Part { lit: self.solver.graph.atom(atom.with_inner(*lit)), path: path.clone() };
        Some(lits.iter().map(one).collect())
    }
}

/// Why something is undecided, in words.
fn explained(why: Why) -> String {
    match why {
        Why::Budget => "it needs more steps than a check may take".to_owned(),
        Why::Depth => "it is nested too deep".to_owned(),
        Why::Size => "a document that shows it would be too large".to_owned(),
        Why::Unconfirmed => {
            "a document that shows it has numbers that no double holds, or is too large".to_owned()
        }
        Why::Pattern => "a `pattern` has look-around or back-references, or is too large".to_owned(),
        Why::Format => "of a `format` only some texts are known".to_owned(),
        Why::Number => "no number was found that has all these multiples and bounds".to_owned(),
        Why::Items => "there are too many ways to make the items different or to count them".to_owned(),
        Why::Properties => "there are too many ways to choose the properties".to_owned(),
        Why::Opaque(what) => format!("the schema has {what}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_proof_that_the_validators_contradict_is_none() {
        let read = |schema: Value| Schema::from_value(&schema).unwrap();
        let old = read(json!({"type": "object", "properties": {"a": {"type": "integer"}}}));
        let new = read(json!({"type": "object", "properties": {"a": {"type": "string"}}}));
        for policy in [Policy::Lenient, Policy::Strict] {
            let direction = Direction { source: &old, target: &new, words: "it differs", policy };
            let (graph, roots) = linked(&[&old, &new]).unwrap();
            // As if the formula of the new schema said what the old one says.
            let verdict = direction.decide_on(graph, (roots[0], roots[0]), BUDGET);
            let Verdict::Unknown(why) = verdict else { panic!("{policy:?}: {verdict:?}") };
            assert_eq!((why[0].rule.as_str(), &why[0].counterexample), ("undecided", &None));
            assert!(why[0].message.contains(r#"{"a":"#), "{}", why[0].message);
            let itself = Direction { target: &old, ..direction };
            assert_eq!(itself.decide(BUDGET), Verdict::Proved);
        }
    }
}
