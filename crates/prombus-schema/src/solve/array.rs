//! Arrays: what is claimed of each item, how many items are like something, and whether all are different.

use super::{Claim, Found, Rest, Solver, Tally, Why, cube::Cube};
use crate::{graph::Atom, json::Json};
use std::collections::{HashMap, HashSet};

/// How many items an array gets at most.
const ITEMS_LIMIT: u64 = 2_000;

/// How many items in all may have to be like something.
const NEEDS_LIMIT: u64 = 64;

/// What is claimed of an array.
#[derive(Default)]
struct Shape {
    at: HashMap<u64, Vec<Claim>>,
    from: Vec<(u64, Claim)>,
    least: u64,
    most: u64,
    different: bool,
    twins: bool,
    /// So many items from an index on have to be like this.
    needs: Vec<Need>,
    /// No more than so many items may be like this.
    few: Vec<(u64, Claim)>,
    not: HashSet<Json>,
    /// From here on, all items are alike.
    tail: u64,
}

#[derive(Clone, Copy)]
struct Need {
    from: u64,
    claim: Claim,
    count: u64,
}

impl Shape {
    fn add(&mut self, atom: Atom, claim: Claim) {
        let negative = claim.lit.negative();
        match atom {
            Atom::MinItems(least) if negative => self.most = self.most.min(least - 1),
            Atom::MinItems(least) => self.least = self.least.max(least),
            Atom::MaxItems(most) if negative => self.least = self.least.max(most.saturating_add(1)),
            Atom::MaxItems(most) => self.most = self.most.min(most),
            Atom::Unique if negative => self.twins = true,
            Atom::Unique => self.different = true,
            Atom::Item(at, lit) => {
                self.tail = self.tail.max(at + 1);
                if negative {
                    self.least = self.least.max(at + 1);
                }
                self.at.entry(at).or_default().push(claim.with(lit.signed(negative)));
            }
            Atom::Items(from, lit) => {
                self.tail = self.tail.max(from);
                if negative {
                    self.needs.push(Need { from, claim: claim.with(lit.not()), count: 1 });
                } else {
                    self.from.push((from, claim.with(lit)));
                }
            }
            Atom::Some(count, lit) if negative => self.few(count - 1, claim.with(lit)),
            Atom::Some(count, lit) => self.needs.push(Need { from: 0, claim: claim.with(lit), count }),
            Atom::Few(count, lit) if negative => {
                self.needs.push(Need { from: 0, claim: claim.with(lit), count: count.saturating_add(1) });
            }
            Atom::Few(count, lit) => self.few(count, claim.with(lit)),
            Atom::Enum(values) if negative => self.not.extend(values.iter().cloned()),
            _ => {}
        }
    }

    fn few(&mut self, count: u64, claim: Claim) {
        if count == 0 {
            self.from.push((0, claim.with(claim.lit.not())));
        } else {
            self.few.push((count, claim));
        }
    }

    fn claims(&self, at: u64) -> Vec<Claim> {
        let mut claims = self.at.get(&at).cloned().unwrap_or_default();
        claims.extend(self.from.iter().filter(|(from, _)| *from <= at).map(|(_, claim)| *claim));
        claims
    }
}

/// Items that an array gets: what is claimed of each, and for which needs it counts.
#[derive(Clone, Default)]
struct Items {
    claims: Vec<Vec<Claim>>,
    counts_for: Vec<Vec<usize>>,
    /// Two items that are the same.
    twins: Option<(usize, usize)>,
}

type Attempt = Result<Vec<Json>, ()>;

impl Solver {
    pub(super) fn arrays(&mut self, cube: &Cube, count: usize) -> Found {
        let mut shape = Shape { most: u64::MAX, ..Shape::default() };
        for (atom, claim) in self.statements(cube) {
            shape.add(atom, claim);
        }
        let mut tally = Tally::new();
        let values = self.arranged(&shape, count, &mut tally).unwrap_or_default();
        if let (Some(why), false) = (self.opaque(cube), values.is_empty() && tally.rest == Rest::None) {
            tally.doubt(why);
        }
        tally.found(values)
    }

    fn arranged(&mut self, shape: &Shape, count: usize, tally: &mut Tally) -> Attempt {
        if shape.least > shape.most || (shape.different && shape.twins) {
            return Err(());
        }
        let needed = shape.needs.iter().map(|need| need.count).fold(0u64, u64::saturating_add);
        if shape.least > ITEMS_LIMIT || shape.tail > ITEMS_LIMIT || needed > NEEDS_LIMIT {
            return self.too_long(shape, tally);
        }
        let mut items = Items::default();
        if !self.extend(shape, &mut items, shape.least, tally) {
            return Err(());
        }
        if !shape.twins {
            return self.with_needs(shape, &items, 0, 0, count, tally);
        }
        let reach = (shape.tail + 2).max(shape.least).min(shape.most).min(64) as usize;
        for second in 1..reach {
            for first in 0..second {
                let mut attempt = Tally::new();
                let mut pair = items.clone();
                if self.extend(shape, &mut pair, second as u64 + 1, &mut attempt) {
                    let both: Vec<Claim> =
                        pair.claims[first].iter().chain(&pair.claims[second]).copied().collect();
                    pair.twins = Some((first, second));
                    (pair.claims[first], pair.claims[second]) = (both.clone(), both.clone());
                    if self.has_item(&both, &mut attempt)
                        && let Ok(values) = self.with_needs(shape, &pair, 0, 0, count, &mut attempt)
                    {
                        tally.rest(Rest::Some);
                        return Ok(values);
                    }
                }
                tally.rest(attempt.rest);
                tally.low = tally.low.min(attempt.low);
            }
        }
        if !shape.few.is_empty() || reach == 64 {
            tally.doubt(Why::Items);
        }
        Err(())
    }

    /// An array that is not written out: only whether its items are impossible.
    fn too_long(&mut self, shape: &Shape, tally: &mut Tally) -> Attempt {
        let mut last = Tally::new();
        if shape.least > 0 && !self.has_item(&shape.claims(shape.least - 1), &mut last) {
            tally.low = tally.low.min(last.low);
            return Err(());
        }
        tally.doubt(Why::Size);
        Err(())
    }

    /// Whether there is a value for an item. A doubt counts as no, and is noted.
    fn has_item(&mut self, claims: &[Claim], tally: &mut Tally) -> bool {
        let found = self.place(claims.iter().copied(), 1);
        tally.low = tally.low.min(found.low);
        if found.values.is_empty() {
            tally.rest(found.rest);
        }
        !found.values.is_empty()
    }

    /// Makes an array longer, if the items that it gets are possible.
    fn extend(&mut self, shape: &Shape, items: &mut Items, length: u64, tally: &mut Tally) -> bool {
        if length > shape.most {
            return false;
        }
        while (items.claims.len() as u64) < length {
            let claims = shape.claims(items.claims.len() as u64);
            if !self.spend(1 + claims.len() as u64) {
                tally.doubt(Why::Budget);
                return false;
            }
            if !self.has_item(&claims, tally) {
                return false;
            }
            items.claims.push(claims);
            items.counts_for.push(Vec::new());
        }
        true
    }

    /// Chooses items for the needs, from the one at `at` on, of which `done` are chosen.
    fn with_needs(
        &mut self,
        shape: &Shape,
        items: &Items,
        at: usize,
        done: u64,
        count: usize,
        tally: &mut Tally,
    ) -> Attempt {
        let Some(need) = shape.needs.get(at).copied() else {
            return self.counted(shape, items, count, tally);
        };
        if done >= need.count {
            return self.with_needs(shape, items, at + 1, 0, count, tally);
        }
        if !self.spend(1 + items.claims.len() as u64) {
            tally.doubt(Why::Budget);
            return Err(());
        }
        let length = items.claims.len() as u64;
        let next = length.max(need.from);
        // Every item of the tuple that is not there yet is different; behind it, the first stands for all.
        let last = next.max(shape.tail);
        let mut tried: HashSet<Vec<Claim>> = HashSet::new();
        for position in need.from..=last {
            let taken = items.counts_for.get(position as usize);
            if taken.is_some_and(|needs| needs.contains(&at)) {
                continue;
            }
            if let Some(claims) = items.claims.get(position as usize)
                && position >= shape.tail
                && !tried.insert(claims.clone())
            {
                continue;
            }
            let mut attempt = Tally::new();
            let mut more = items.clone();
            if self.extend(shape, &mut more, position + 1, &mut attempt) {
                more.claims[position as usize].push(need.claim);
                more.counts_for[position as usize].push(at);
                let both = more.twins.filter(|(one, other)| [*one, *other].contains(&(position as usize)));
                for same in both
                    .into_iter()
                    .flat_map(|(one, other)| [one, other])
                    .filter(|same| *same != position as usize)
                {
                    more.claims[same].push(need.claim);
                }
                if self.has_item(&more.claims[position as usize].clone(), &mut attempt)
                    && let Ok(values) = self.with_needs(shape, &more, at, done + 1, count, &mut attempt)
                {
                    tally.rest(Rest::Some);
                    return Ok(values);
                }
            }
            tally.rest(attempt.rest);
            tally.low = tally.low.min(attempt.low);
        }
        Err(())
    }

    /// Decides for every item whether it is like something of which there may be few.
    fn counted(&mut self, shape: &Shape, items: &Items, count: usize, tally: &mut Tally) -> Attempt {
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
        let each = if shape.different { length.max(wanted) } else { wanted }.min(256);
        let mut values: Vec<Vec<Json>> = Vec::new();
        let (mut known, mut complete) = (true, true);
        for claims in &items.claims {
            let found = self.place(claims.iter().copied(), each);
            tally.low = tally.low.min(found.low);
            known &= found.rest == Rest::None || found.values.len() >= length;
            complete &= found.rest == Rest::None;
            values.push(found.values.clone());
        }
        if let Some((first, second)) = items.twins {
            values[second] = values[first].clone();
        }
        let first: Vec<Json> = if shape.different {
            let Some(first) = matching(&values) else {
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
        if !shape.not.contains(&Json::Array(first.clone().into())) {
            made.push(Json::Array(first.clone().into()));
        }
        if made.len() < count {
            complete &= self.others(shape, items, (&first, &values), count, &mut made);
        }
        let sure = complete && shape.needs.is_empty() && shape.few.is_empty() && !shape.twins && wanted > 1;
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
        let mut add = |array: Vec<Json>| {
            let distinct = !shape.different || array.iter().collect::<HashSet<_>>().len() == array.len();
            let array = Json::Array(array.into());
            if distinct && made.len() < count && !shape.not.contains(&array) && !made.contains(&array) {
                made.push(array);
            }
        };
        for at in
            (0..first.len()).filter(|at| items.twins.is_none_or(|(one, other)| *at != one && *at != other))
        {
            for value in &values[at] {
                let mut array = first.to_vec();
                array[at] = value.clone();
                add(array);
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
                return ended && array.len() == first.len() && first.len() <= 1;
            }
            let claims = longer.claims.last().cloned().unwrap_or_default();
            let found = self.place(claims, array.len() + 1 + shape.not.len());
            let fresh = found.values.iter().find(|value| !shape.different || !array.contains(value));
            let Some(fresh) = fresh.cloned() else { break };
            for value in &found.values {
                add(array.iter().cloned().chain([value.clone()]).collect());
            }
            array.push(fresh);
        }
        false
    }
}

/// A value for each, all different, if there is such a choice.
fn matching(values: &[Vec<Json>]) -> Option<Vec<Json>> {
    let mut owner: HashMap<&Json, usize> = HashMap::new();
    for at in 0..values.len() {
        if !assign(at, values, &mut owner, &mut HashSet::new()) {
            return None;
        }
    }
    let mut chosen: Vec<Option<&Json>> = vec![None; values.len()];
    for (value, at) in owner {
        chosen[at] = Some(value);
    }
    chosen.into_iter().map(|value| value.cloned()).collect()
}

/// Finds a value for one, giving others a different one if need be.
fn assign<'v>(
    at: usize,
    values: &'v [Vec<Json>],
    owner: &mut HashMap<&'v Json, usize>,
    seen: &mut HashSet<&'v Json>,
) -> bool {
    for value in &values[at] {
        if seen.insert(value) {
            let free = match owner.get(value).copied() {
                None => true,
                Some(other) => assign(other, values, owner, seen),
            };
            if free {
                owner.insert(value, at);
                return true;
            }
        }
    }
    false
}
