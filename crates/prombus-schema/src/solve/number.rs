//! Numbers: bounds, multiples and exceptions, in exact arithmetic.

use super::{Found, Rest, Solver, Why, cube::Cube};
use crate::{
    decimal::{Decimal, one},
    graph::{Atom, Kind},
    json::Json,
};
use num_bigint::BigInt;
use std::collections::HashSet;

/// How many numbers are tried.
const TRIES: usize = 4_096;

#[derive(Default)]
struct WantedNumber {
    least: Option<(Decimal, bool)>,
    most: Option<(Decimal, bool)>,
    steps: Vec<Decimal>,
    not_steps: Vec<Decimal>,
    not: HashSet<Decimal>,
}

impl WantedNumber {
    fn at_least(&mut self, bound: Decimal, exclusive: bool) {
        let tighter = self.least.as_ref().is_none_or(|(old, old_exclusive)| {
            bound > *old || (bound == *old && exclusive && !old_exclusive)
        });
        if tighter {
            self.least = Some((bound, exclusive));
        }
    }

    fn at_most(&mut self, bound: Decimal, exclusive: bool) {
        let tighter = self.most.as_ref().is_none_or(|(old, old_exclusive)| {
            bound < *old || (bound == *old && exclusive && !old_exclusive)
        });
        if tighter {
            self.most = Some((bound, exclusive));
        }
    }

    /// What it costs to look at one number: large ones are divided slowly.
    fn cost(&self) -> u64 {
        let bounds = self.least.iter().chain(&self.most).map(|(bound, _)| bound);
        let largest = bounds.chain(&self.steps).chain(&self.not_steps).map(Decimal::weight).max();
        (1 + self.not_steps.len() as u64) * largest.unwrap_or(1)
    }

    fn fits(&self, number: &Decimal) -> bool {
        let above = self
            .least
            .as_ref()
            .is_none_or(|(bound, exclusive)| number > bound || (!exclusive && number == bound));
        let below = self
            .most
            .as_ref()
            .is_none_or(|(bound, exclusive)| number < bound || (!exclusive && number == bound));
        above
            && below
            && !self.not.contains(number)
            && !self.not_steps.iter().any(|step| number.is_multiple_of(step))
    }
}

impl Solver {
    pub(super) fn numbers(&mut self, cube: &Cube, count: usize) -> Found {
        let mut wanted = WantedNumber::default();
        for (atom, claim) in self.statements(cube) {
            let negative = claim.lit.negative();
            match atom {
                Atom::AtLeast { bound, exclusive } if negative => wanted.at_most(bound, !exclusive),
                Atom::AtLeast { bound, exclusive } => wanted.at_least(bound, exclusive),
                Atom::AtMost { bound, exclusive } if negative => wanted.at_least(bound, !exclusive),
                Atom::AtMost { bound, exclusive } => wanted.at_most(bound, exclusive),
                Atom::MultipleOf(step) if negative => wanted.not_steps.push(step),
                Atom::MultipleOf(step) => wanted.steps.push(step),
                Atom::Enum(values) if negative => {
                    wanted.not.extend(values.values().iter().filter_map(Json::number).cloned())
                }
                _ => {}
            }
        }
        match cube.kind {
            Kind::Integer => wanted.steps.push(1.into()),
            _ => wanted.not_steps.push(1.into()),
        }
        self.spend(wanted.cost() * (wanted.steps.len() + 1) as u64);
        let mut found =
            if wanted.steps.is_empty() { self.dense(&wanted, count) } else { self.sparse(&wanted, count) };
        if let Some(why) = self.opaque(cube) {
            found.rest = if found.is_empty() { Rest::None } else { Rest::Unknown(why) };
        }
        found
    }

    /// Multiples of one number, from the one that is nearest to zero outwards.
    fn sparse(&mut self, wanted: &WantedNumber, count: usize) -> Found {
        let step = wanted.steps.iter().try_fold(Decimal::from(0), |all, step| {
            if all == Decimal::from(0) { Some(step.clone()) } else { all.common_multiple(step) }
        });
        let Some(step) = step else { return Found::unknown(Why::Number) };
        if wanted.not_steps.iter().any(|other| step.is_multiple_of(other)) {
            return Found::nothing();
        }
        let first = wanted.least.as_ref().map(|(bound, exclusive)| {
            let (times, exact) = bound.divided(&step);
            if exact && !exclusive { times } else { times + one() }
        });
        let last = wanted.most.as_ref().map(|(bound, exclusive)| {
            let (times, exact) = bound.divided(&step);
            if exact && *exclusive { times - one() } else { times }
        });
        let mut start = BigInt::from(0);
        if let Some(first) = &first {
            start = start.max(first.clone());
        }
        if let Some(last) = &last {
            start = start.min(last.clone());
        }
        let inside = |times: &BigInt| {
            first.as_ref().is_none_or(|f| times >= f) && last.as_ref().is_none_or(|l| times <= l)
        };
        let (mut values, cost) = (Vec::new(), wanted.cost());
        let mut tries = 0;
        for away in 0.. {
            let both = [&start + BigInt::from(away), &start - BigInt::from(away)];
            let within: Vec<&BigInt> =
                both.iter().take(if away == 0 { 1 } else { 2 }).filter(|times| inside(times)).collect();
            if within.is_empty() {
                return Found { rest: Rest::None, ..Found::some(values) };
            }
            for times in within {
                let number = step.times(times);
                if wanted.fits(&number) {
                    values.push(Json::Number(number));
                }
                tries += 1;
            }
            if values.len() >= count {
                values.truncate(count);
                return Found::some(values);
            }
            if tries > TRIES + wanted.not.len() || !self.spend(cost) {
                break;
            }
        }
        let rest = if values.is_empty() { Rest::Unknown(Why::Number) } else { Rest::Some };
        Found { rest, ..Found::some(values) }
    }
}

impl Solver {
    /// Numbers with a fraction, of which there are some in every interval.
    fn dense(&mut self, wanted: &WantedNumber, count: usize) -> Found {
        let bounds =
            (wanted.least.as_ref().map(|(bound, _)| bound), wanted.most.as_ref().map(|(bound, _)| bound));
        let (start, room) = match bounds {
            (Some(least), Some(most)) if least > most => return Found::nothing(),
            (Some(least), Some(most)) if least == most => {
                let values = if wanted.fits(least) { vec![Json::Number(least.clone())] } else { Vec::new() };
                return Found { rest: Rest::None, ..Found::some(values) };
            }
            (Some(least), Some(most)) => (least.clone(), Some(most.minus(least))),
            (Some(least), None) => (least.clone(), None),
            (None, Some(most)) => (most.minus(&Decimal::from(1_000_000)), None),
            (None, None) => (Decimal::from(0), None),
        };
        // Steps of a power of ten that is well below the room there is, begun on a round number.
        let finest = room.map_or(0, |room| (room.magnitude() - 2).min(0));
        let (mut values, cost) = (Vec::new(), wanted.cost());
        for finer in 1..=6 {
            let unit = Decimal::from(1).shifted(finest - finer);
            let (begin, _) = start.divided(&unit);
            for offset in [5i64, 25, 1, 2, 3, 7, 9, 11, 13, 17, 4, 6, 8, 10, 12, 14, 15, 19, 21, 33, 50, 75] {
                for turn in 0..(count + wanted.not.len()).min(64) as i64 {
                    let number = unit.times(&(&begin + BigInt::from(offset + turn * 10)));
                    if !self.spend(cost) {
                        return Found::unknown(Why::Budget);
                    }
                    if wanted.fits(&number) && !values.contains(&Json::Number(number.clone())) {
                        values.push(Json::Number(number));
                        if values.len() >= count {
                            return Found::some(values);
                        }
                    }
                }
            }
        }
        if values.is_empty() { Found::unknown(Why::Number) } else { Found::some(values) }
    }
}
