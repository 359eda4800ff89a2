//! Raising payloads: hops from one version to the next, one after another.

use super::compile::{self, Change, Source};
use super::ops::Upcaster;
use super::tree::{self, Node, PayloadBudget};
use super::{NotRaised, UpcastError};
use crate::filter::{Allowance, Subject, looked_over};
use bytes::Bytes;
use prombus_core::Json;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A function that raises a payload.
pub type RaiseFn = Arc<dyn Fn(&Json) -> Result<Json, String> + Send + Sync>;

/// Raises payloads of one version to the next. Cheap to clone.
#[derive(Clone)]
pub struct Hop(Kind);

#[derive(Clone)]
enum Kind {
    Changes(Arc<[Change]>),
    Function(RaiseFn),
}

impl Hop {
    /// Compiles an upcaster.
    pub async fn compile(upcaster: &Upcaster) -> Result<Self, UpcastError> {
        Ok(Self(Kind::Changes(compile::compile(upcaster).await?.into())))
    }

    /// By a function.
    pub fn function(raise: impl Fn(&Json) -> Result<Json, String> + Send + Sync + 'static) -> Self {
        Self(Kind::Function(Arc::new(raise)))
    }

    /// Whether it may take long. Nobody knows what a function does.
    pub fn is_costly(&self) -> bool {
        match &self.0 {
            Kind::Changes(changes) => changes.iter().any(Change::is_costly),
            Kind::Function(_) => true,
        }
    }
}

/// A hop with the version that it starts from.
type HopFrom = (u32, Hop);

/// Hops in order: the way from a version to the latest.
#[derive(Clone)]
pub struct Chain {
    hops: Vec<HopFrom>,
    /// The largest payload that it may make, in bytes.
    most_bytes: usize,
}

impl Chain {
    /// Of these hops, each with the version that it starts from.
    pub fn new(hops: Vec<HopFrom>, most_bytes: usize) -> Self {
        Self { hops, most_bytes }
    }

    /// Whether it may take long.
    pub fn is_costly(&self) -> bool {
        self.hops.iter().any(|(_, hop)| hop.is_costly())
    }

    /// A payload of version `from` as one of the latest. All hops together may cost what one expression may.
    pub fn raise(&self, from: u32, payload: &Json) -> Result<Json, NotRaised> {
        let first = self.hops.partition_point(|(version, _)| *version < from);
        let mut hops = self.hops.get(first..).unwrap_or_default();
        let mut payload = payload.clone();
        let allowance = Arc::default();
        while let [(version, hop), rest @ ..] = hops {
            let failed = |why| NotRaised { from: *version, why };
            match &hop.0 {
                Kind::Function(raise) => {
                    payload = call(raise, &payload).map_err(failed)?;
                    self.check_size(payload.len()).map_err(failed)?;
                    hops = rest;
                }
                Kind::Changes(_) => {
                    let (raised, rest) = self.change(&payload, hops, &allowance)?;
                    (payload, hops) = (raised, rest);
                }
            }
        }
        Ok(payload)
    }

    fn check_size(&self, bytes: usize) -> Result<(), String> {
        match bytes > self.most_bytes {
            true => Err(format!("its payload would take {bytes} bytes, more than {}", self.most_bytes)),
            false => Ok(()),
        }
    }

    /// Applies all hops up to the next function, and gives those that are left.
    fn change<'h>(
        &self,
        payload: &Json,
        mut hops: &'h [HopFrom],
        allowance: &Arc<Allowance>,
    ) -> Result<(Json, &'h [HopFrom]), NotRaised> {
        let budget = PayloadBudget { bytes: self.most_bytes, allowance: allowance.clone() };
        let mut raising = Raising { payload, tree: None, budget };
        while let [(from, Hop(Kind::Changes(changes))), rest @ ..] = hops {
            for (n, change) in changes.iter().enumerate() {
                let failed = |why| NotRaised { from: *from, why: format!("ops[{n}]: {why}") };
                raising.apply(change).map_err(failed)?;
            }
            let failed = |why| NotRaised { from: *from, why };
            let bytes = raising.tree.as_ref().map_or(payload.len(), Node::len);
            self.check_size(bytes).map_err(failed)?;
            raising.budget.charge(looked_over(bytes)).map_err(failed)?;
            hops = rest;
        }
        Ok((raising.text(), hops))
    }
}

/// Whatever a function does, only this payload is not raised.
fn call(raise: &RaiseFn, payload: &Json) -> Result<Json, String> {
    let raised = catch_unwind(AssertUnwindSafe(|| raise(payload)));
    raised.unwrap_or_else(|_| Err("the function panicked".to_owned()))
}

/// A payload that is being raised.
struct Raising<'a> {
    payload: &'a Json,
    /// As it is by now, once something was looked at.
    tree: Option<Node<'a>>,
    budget: PayloadBudget,
}

impl<'a> Raising<'a> {
    fn tree(&mut self) -> (&mut Node<'a>, &mut PayloadBudget) {
        let payload = self.payload;
        // What is JSON is UTF-8.
        let open = || Node::of(std::str::from_utf8(payload.as_bytes()).unwrap_or("null"));
        (self.tree.get_or_insert_with(open), &mut self.budget)
    }

    fn text(&self) -> Json {
        match &self.tree {
            None => self.payload.clone(),
            Some(tree) => {
                let mut out = Vec::with_capacity(tree.len());
                tree.write(&mut out);
                Json::from_stored(Bytes::from(out))
            }
        }
    }

    fn apply(&mut self, change: &Change) -> Result<(), String> {
        match change {
            Change::Remove(paths) => {
                let (tree, budget) = self.tree();
                paths.iter().try_for_each(|path| tree.remove(path.steps(), budget))
            }
            Change::Set(sets) => {
                let values = self.values(sets)?;
                let (tree, budget) = self.tree();
                for ((path, _), value) in sets.iter().zip(&values) {
                    let put = value.check_depth(path.steps().len(), budget);
                    put.and_then(|()| tree.set(path.steps(), value, budget))
                        .map_err(|why| format!("set {path}: {why}"))?;
                }
                Ok(())
            }
            Change::Rename { each, from, to, place } => {
                let (tree, budget) = self.tree();
                let depth = each.len() + to.len();
                let mut rename =
                    |node: &mut Node<'a>, budget: &mut PayloadBudget| rename(node, (from, to), depth, budget);
                tree.each(each, budget, &mut rename).map_err(|why| format!("rename {place}: {why}"))
            }
        }
    }

    /// The values of all that is set, before any of it is.
    fn values(&mut self, sets: &[(super::path::Path, Source)]) -> Result<Vec<Node<'a>>, String> {
        let has_formula = sets.iter().any(|(_, source)| matches!(source, Source::Formula(_)));
        let text = if has_formula { self.text() } else { Json::from_stored(Bytes::new()) };
        if has_formula {
            self.budget.charge(looked_over(text.len()))?;
        }
        let subject = Subject::payload(&text, &self.budget.allowance.clone());
        let mut values = Vec::with_capacity(sets.len());
        for (path, source) in sets {
            let failed = |why: String| format!("set {path}: {why}");
            values.push(match source {
                Source::Constant(text) => Node::made(text.clone()),
                Source::Place(names) => {
                    let missing = || failed(format!("payload.{}: no such field", names.join(".")));
                    let (tree, budget) = self.tree();
                    let value = tree.get(names, budget).map_err(failed)?.ok_or_else(missing)?;
                    budget.charge(looked_over(value.len())).map_err(failed)?;
                    value.clone()
                }
                Source::Formula(formula) => {
                    let value = formula.value_of(&subject);
                    let value = value.map_err(|why| failed(format!("{}: {why}", formula.source())))?;
                    Node::made(value.to_string().into())
                }
            });
        }
        Ok(values)
    }
}

fn rename<'a>(
    node: &mut Node<'a>,
    (from, to): (&[String], &[String]),
    depth: usize,
    budget: &mut PayloadBudget,
) -> Result<(), String> {
    if let ([way @ .., old], [to_way @ .., new]) = (from, to)
        && way == to_way
    {
        return match node.get(way, budget)? {
            Some(parent) => parent.rename(old, new, budget),
            None => Ok(()),
        };
    }
    let Some(value) = node.take(from, budget)? else { return Ok(()) };
    if node.get(to, budget)?.is_some() {
        return Err(tree::both(&from.join("."), &to.join(".")));
    }
    value.check_depth(depth, budget)?;
    let steps: Vec<_> = to.iter().cloned().map(super::path::Step::Field).collect();
    node.set(&steps, &value, budget)
}

/// An object with another value of a field, or with one more.
pub(crate) fn with_field(object: &Json, name: &str, value: &str) -> Json {
    let budget = PayloadBudget { bytes: usize::MAX, allowance: Arc::default() };
    let mut raising = Raising { payload: object, tree: None, budget };
    let (tree, budget) = raising.tree();
    let steps = [super::path::Step::Field(name.to_owned())];
    // What is no object stays what it is.
    let _ = tree.set(&steps, &Node::made(value.to_owned().into()), budget);
    raising.text()
}
