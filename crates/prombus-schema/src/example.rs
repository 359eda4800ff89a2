//! A document that a schema takes.

use crate::{
    check::{BUDGET, Policy, linked},
    deep,
    schema::Schema,
    solve::{Claim, Solver},
};
use serde_json::Value;

/// Which documents of a schema are wanted.
#[derive(Debug, Clone, Copy)]
pub struct WantedDocuments {
    /// How many different ones, at most.
    pub count: usize,
    /// How properties are read that the schema does not name.
    pub policy: Policy,
    /// With every property that they may have.
    pub rich: bool,
}

/// A document that the schema takes, with every property that it names where that is possible; `None` if there is none,
/// or none was found.
pub fn example(schema: &Schema) -> Option<Value> {
    let wanted = |rich| WantedDocuments { count: 1, policy: Policy::Strict, rich };
    [true, false].into_iter().find_map(|rich| documents(schema, wanted(rich)).into_iter().next())
}

/// Documents that the schema takes, as far as they are found.
pub fn documents(schema: &Schema, wanted: WantedDocuments) -> Vec<Value> {
    deep::run(|| found(schema, wanted)).unwrap_or_default()
}

fn found(schema: &Schema, wanted: WantedDocuments) -> Vec<Value> {
    let Some((graph, roots)) = linked(&[schema]) else { return Vec::new() };
    let mut solver = Solver::new(graph, BUDGET);
    solver.rich = wanted.rich;
    let drawn = Claim { lit: roots[0], drawn: wanted.policy == Policy::Lenient };
    let found = solver.place([drawn], wanted.count);
    let values = found.values.iter().filter_map(|value| value.to_value());
    values.filter(|value| schema.validator().is_valid(value)).collect()
}
