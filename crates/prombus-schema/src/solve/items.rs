//! Values for the items of an array: which of them count, whether all are different, and what other arrays there are.

use super::{
    Rest, Solver, Tally, Why,
    array::{Attempt, Items, Shape},
    matching::matching,
};
use crate::json::Json;
use std::collections::HashSet;

/// How many values are made for one item.
const VALUES_LIMIT: usize = 256;

impl Solver {
    /// Decides for every item whether it is like something of which there may be few.
    pub(super) fn counted(
        &mut self,
        shape: &Shape,
        items: &Items,
        count: usize,
        tally: &mut Tally,
    ) -> Attempt {
        if shape.few.is_empty() {
            return self.distinct(shape, items, count, tally);
        }
        let mut left: Vec<u64> = shape.few.iter().map(|(most, _)| *most).collect();
        let mut decided = items.clone();
        let ways = 1usize << shape.few.len().min(4);
        for at in 0..items.claims.len() {
            // As few as possible, so that as many as possible are left for later items.
            let mut order: Vec<usize> = (0..ways).collect();
            order.sort_by_key(|way| way.count_ones());
            let mut placed = false;
            for way in order {
                let like = |number: usize| way >> number & 1 == 1;
                if (0..shape.few.len()).any(|number| like(number) && left[number] == 0) {
                    continue;
                }
                self.spend((items.claims[at].len() + shape.few.len()) as u64);
                let mut claims = items.claims[at].clone();
                claims.extend(
                    shape
                        .few
                        .iter()
                        .enumerate()
                        .map(|(number, (_, claim))| claim.with(claim.lit.signed(!like(number)))),
                );
                let mut attempt = Tally::new();
                if self.has_item(&claims, &mut attempt) {
                    (0..shape.few.len()).filter(|number| like(*number)).for_each(|number| left[number] -= 1);
                    decided.claims[at] = claims;
                    placed = true;
                    break;
                }
                tally.rest(attempt.rest);
                tally.low = tally.low.min(attempt.low);
            }
            if !placed {
                // With one thing to be counted the first way is the best one; with several another might have worked.
                if shape.few.len() > 1 {
                    tally.doubt(Why::Items);
                }
                return Err(());
            }
        }
        let made = self.distinct(shape, &decided, count, tally);
        if made.is_err() && shape.different {
            tally.doubt(Why::Items);
        }
        made
    }

    /// Values for the items, all different if they have to be.
    fn distinct(&mut self, shape: &Shape, items: &Items, count: usize, tally: &mut Tally) -> Attempt {
        let length = items.claims.len();
        let wanted = count + shape.not.len();
        let each = if shape.different { length.max(wanted) } else { wanted }.min(VALUES_LIMIT);
        let mut values: Vec<Vec<Json>> = Vec::new();
        let (mut known, mut complete) = (true, true);
        for claims in &items.claims {
            let found = self.place(claims.iter().copied(), each);
            tally.low = tally.low.min(found.low);
            known &= found.rest == Rest::None || found.values.len() >= length;
            complete &= found.rest == Rest::None;
            self.spend(found.values.len() as u64);
            values.push(found.values.clone());
        }
        if let Some((first, second)) = items.twins {
            values[second] = values[first].clone();
        }
        let first: Vec<Json> = if shape.different {
            let Some(first) = matching(&values, &mut self.graph.fuel) else {
                if !known {
                    tally.doubt(Why::Items);
                }
                return Err(());
            };
            first
        } else {
            values.iter().filter_map(|values| values.first().cloned()).collect()
        };
        let mut made = Vec::new();
        let array = Json::Array(first.clone().into());
        if !self.is_small(&array) {
            tally.doubt(Why::Size);
            return Err(());
        }
        if !shape.not.contains(&array) {
            made.push(array);
        }
        // Where enough are found at once, nobody has checked whether there are others.
        let looked = made.len() < count && self.others(shape, items, (&first, &values), count, &mut made);
        let sure = looked && complete && shape.needs.is_empty() && shape.few.is_empty() && !shape.twins;
        if made.is_empty() && !sure {
            tally.doubt(Why::Items);
            return Err(());
        }
        tally.rest(if sure { Rest::None } else { Rest::Some });
        if made.is_empty() { Err(()) } else { Ok(made) }
    }

    /// Arrays with another item, or one more, and whether these are all there are.
    fn others(
        &mut self,
        shape: &Shape,
        items: &Items,
        (first, values): (&[Json], &[Vec<Json>]),
        count: usize,
        made: &mut Vec<Json>,
    ) -> bool {
        let mut too_large = false;
        // Says whether more are wanted.
        let mut add = |solver: &mut Self, items: Vec<Json>| {
            let array = Json::Array(items.clone().into());
            if !solver.is_small(&array) {
                too_large = true;
                return !solver.is_spent();
            }
            let distinct = !shape.different || items.iter().collect::<HashSet<_>>().len() == items.len();
            if distinct && made.len() < count && !shape.not.contains(&array) && !made.contains(&array) {
                made.push(array);
            }
            made.len() < count
        };
        for at in
            (0..first.len()).filter(|at| items.twins.is_none_or(|(one, other)| *at != one && *at != other))
        {
            for value in &values[at] {
                let mut array = first.to_vec();
                array[at] = value.clone();
                if !add(self, array) {
                    return false;
                }
            }
        }
        let mut longer = items.clone();
        let mut doubt = Tally::new();
        let mut array = first.to_vec();
        if !shape.few.is_empty() {
            return false;
        }
        for _ in 0..count + shape.not.len() {
            let next = array.len() as u64 + 1;
            if !self.extend(shape, &mut longer, next, &mut doubt) {
                let ended = doubt.rest == Rest::None && doubt.low == super::NO_PLACE;
                return ended && !too_large && array.len() == first.len() && first.len() <= 1;
            }
            let claims = longer.claims.last().cloned().unwrap_or_default();
            let found = self.place(claims, array.len() + 1 + shape.not.len());
            self.spend((array.len() + found.values.len()) as u64);
            let fresh = found.values.iter().find(|value| !shape.different || !array.contains(value));
            let Some(fresh) = fresh.cloned() else { break };
            for value in &found.values {
                if !add(self, array.iter().cloned().chain([value.clone()]).collect()) {
                    return false;
                }
            }
            array.push(fresh);
        }
        false
    }
}
