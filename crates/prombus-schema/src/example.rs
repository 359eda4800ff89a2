//! A document that a schema takes.

use crate::{
    check::{BUDGET, linked},
    deep,
    schema::Schema,
    solve::{Claim, Solver},
};
use serde_json::Value;

/// A document that the schema takes, with every property that it names where that is possible; `None` if there is none,
/// or none was found.
pub fn example(schema: &Schema) -> Option<Value> {
    [true, false].into_iter().find_map(|rich| documents(schema, 1, rich).into_iter().next())
}

/// Up to `count` different documents that the schema takes.
pub fn documents(schema: &Schema, count: usize, rich: bool) -> Vec<Value> {
    deep::run(|| found(schema, count, rich))
}

fn found(schema: &Schema, count: usize, rich: bool) -> Vec<Value> {
    let Some((graph, roots)) = linked(&[schema]) else { return Vec::new() };
    let mut solver = Solver::new(graph, BUDGET);
    solver.rich = rich;
    let found = solver.place([Claim::plain(roots[0])], count);
    let values = found.values.iter().filter_map(|value| value.to_value());
    values.filter(|value| schema.validator().is_valid(value)).collect()
}
