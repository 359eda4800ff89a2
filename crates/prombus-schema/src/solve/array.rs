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
pub(super) struct Shape {
    at: HashMap<u64, Vec<Claim>>,
    from: Vec<(u64, Claim)>,
    least: u64,
    most: u64,
    pub(super) different: bool,
    pub(super) twins: bool,
    /// What some items have to be like, how many of them, and from which index on.
    pub(super) needs: Vec<Need>,
    /// No more than so many items may be like this.
    pub(super) few: Vec<(u64, Claim)>,
    pub(super) not: HashSet<Json>,
    /// From here on, all items are alike.
    tail: u64,
}

#[derive(Clone, Copy)]
pub(super) struct Need {
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
            Atom::Enum(values) if negative => self.not.extend(values.values().iter().cloned()),
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
pub(super) struct Items {
    pub(super) claims: Vec<Vec<Claim>>,
    counts_for: Vec<Vec<usize>>,
    /// Two items that are the same.
    pub(super) twins: Option<(usize, usize)>,
}

impl Items {
    /// What a copy of them costs.
    fn size(&self) -> u64 {
        self.claims.iter().map(|claims| 1 + claims.len() as u64).sum()
    }
}

pub(super) type Attempt = Result<Vec<Json>, ()>;

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
                if !self.spend(items.size()) {
                    tally.doubt(Why::Budget);
                    return Err(());
                }
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
            tally.rest(last.rest);
            tally.low = tally.low.min(last.low);
            return Err(());
        }
        tally.doubt(Why::Size);
        Err(())
    }

    /// Whether there is a value for an item. A doubt counts as no, and is noted.
    pub(super) fn has_item(&mut self, claims: &[Claim], tally: &mut Tally) -> bool {
        let found = self.place(claims.iter().copied(), 1);
        tally.low = tally.low.min(found.low);
        if found.values.is_empty() {
            tally.rest(found.rest);
        }
        !found.values.is_empty()
    }

    /// Makes an array longer, if the items that it gets are possible.
    pub(super) fn extend(
        &mut self,
        shape: &Shape,
        items: &mut Items,
        length: u64,
        tally: &mut Tally,
    ) -> bool {
        if length > shape.most {
            return false;
        }
        while (items.claims.len() as u64) < length {
            if !self.spend(1 + shape.from.len() as u64) {
                tally.doubt(Why::Budget);
                return false;
            }
            let claims = shape.claims(items.claims.len() as u64);
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
            if !self.spend(1 + items.size()) {
                tally.doubt(Why::Budget);
                return Err(());
            }
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
}
