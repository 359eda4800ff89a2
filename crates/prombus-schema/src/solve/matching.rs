//! A different value for each: a matching in the graph of places and values.

use crate::{fuel::Fuel, json::Json};
use std::collections::HashMap;

/// A value for each, all different, if there is such a choice.
pub fn matching(values: &[Vec<Json>], fuel: &mut Fuel) -> Option<Vec<Json>> {
    let mut numbers: HashMap<&Json, usize> = HashMap::new();
    let mut number = |value| {
        let next = numbers.len();
        *numbers.entry(value).or_insert(next)
    };
    let choices: Vec<Vec<usize>> =
        values.iter().map(|values| values.iter().map(&mut number).collect()).collect();
    let mut found = Matching { owner: vec![None; numbers.len()], choices, fuel };
    for at in 0..values.len() {
        if !found.assign(at, &mut vec![false; numbers.len()]) {
            return None;
        }
    }
    let mut chosen: Vec<Option<&Json>> = vec![None; values.len()];
    for (value, number) in &numbers {
        if let Some(at) = found.owner[*number] {
            chosen[at] = Some(value);
        }
    }
    chosen.into_iter().map(|value| value.cloned()).collect()
}

struct Matching<'f> {
    choices: Vec<Vec<usize>>,
    /// Who has each value.
    owner: Vec<Option<usize>>,
    fuel: &'f mut Fuel,
}

impl Matching<'_> {
    /// Finds a value for one, giving others a different one if need be.
    fn assign(&mut self, at: usize, seen: &mut [bool]) -> bool {
        for choice in 0..self.choices[at].len() {
            let value = self.choices[at][choice];
            if seen[value] || !self.fuel.spend(1) {
                continue;
            }
            seen[value] = true;
            let free = match self.owner[value] {
                None => true,
                Some(other) => self.assign(other, seen),
            };
            if free {
                self.owner[value] = Some(at);
                return true;
            }
        }
        false
    }
}
