//! Objects: which properties there have to be, may be and cannot be, and what is claimed of each.

use super::{Claim, Found, Rest, Solver, Tally, Why, cube::Cube};
use crate::{
    graph::{Atom, Names},
    json::Json,
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

/// How many properties an object gets at most.
const PROPERTIES_LIMIT: u64 = 300;

/// How many combinations of values are gone through to find different objects.
const COMBINATIONS_LIMIT: usize = 512;

/// What is claimed of an object.
#[derive(Default)]
pub(super) struct Shape {
    exact: HashMap<Arc<str>, Vec<Claim>>,
    pub(super) general: Vec<(Names, Claim)>,
    /// Of every name.
    pub(super) names: Vec<Claim>,
    must: BTreeMap<Arc<str>, Vec<Claim>>,
    never: HashSet<Arc<str>>,
    pub(super) some: Vec<WantedProperty>,
    least: u64,
    most: u64,
    not: HashSet<Json>,
    /// Every name that is written somewhere.
    pub(super) mentioned: BTreeSet<Arc<str>>,
}

/// That there is a property with such a name and such a value.
pub(super) struct WantedProperty {
    pub names: Option<Names>,
    pub name: Option<Claim>,
    pub value: Option<Claim>,
}

/// Properties that an object gets, with what is claimed of each.
type Chosen = BTreeMap<Arc<str>, Vec<Claim>>;

impl Shape {
    fn add(&mut self, atom: Atom, claim: Claim) {
        let negative = claim.lit.negative();
        match atom {
            Atom::MinProperties(least) if negative => self.most = self.most.min(least - 1),
            Atom::MinProperties(least) => self.least = self.least.max(least),
            Atom::MaxProperties(most) if negative => self.least = self.least.max(most.saturating_add(1)),
            Atom::MaxProperties(most) => self.most = self.most.min(most),
            Atom::Has(name) => {
                self.mentioned.insert(name.clone());
                if negative {
                    self.never.insert(name);
                } else {
                    self.must.entry(name).or_default();
                }
            }
            Atom::Values(Names::Exactly(name), lit) => {
                self.mentioned.insert(name.clone());
                if negative {
                    self.must.entry(name).or_default().push(claim.with(lit.not()));
                } else {
                    self.exact.entry(name).or_default().push(claim.with(lit));
                }
            }
            Atom::Values(names, lit) => {
                if let Names::Except(except) = &names {
                    self.mentioned.extend(except.names.iter().cloned());
                }
                if negative {
                    self.some.push(WantedProperty {
                        names: Some(names),
                        name: None,
                        value: Some(claim.with(lit.not())),
                    });
                } else {
                    self.general.push((names, claim.with(lit)));
                }
            }
            Atom::Names(lit) if negative => {
                self.some.push(WantedProperty {
                    names: None,
                    name: Some(Claim::plain(lit.not())),
                    value: None,
                });
            }
            Atom::Names(lit) => self.names.push(Claim::plain(lit)),
            Atom::Enum(values) if negative => self.not.extend(values.values().iter().cloned()),
            _ => {}
        }
    }
}

/// How an attempt ended: with objects, or with how sure it is that there are none.
type Attempt = Result<Vec<Json>, ()>;

impl Solver {
    pub(super) fn objects(&mut self, cube: &Cube, count: usize) -> Found {
        let mut shape = Shape { most: u64::MAX, ..Shape::default() };
        for (atom, claim) in self.statements(cube) {
            shape.add(atom, claim);
        }
        let mut tally = Tally::new();
        let values = self.shaped(&shape, count, &mut tally).unwrap_or_default();
        if let (Some(why), false) = (self.opaque(cube), values.is_empty() && tally.rest == Rest::None) {
            tally.doubt(why);
        }
        tally.found(values)
    }

    fn shaped(&mut self, shape: &Shape, count: usize, tally: &mut Tally) -> Attempt {
        if shape.least > shape.most || shape.must.len() as u64 > shape.most {
            return Err(());
        }
        let mut chosen = Chosen::new();
        for (name, claims) in &shape.must {
            let mut all = self.claims_of(shape, name);
            all.extend(claims);
            if !self.may_be(shape, name, tally) || !self.has_value(&all, tally) {
                // A doubt elsewhere does not matter where one property is impossible.
                tally.rest = Rest::None;
                return Err(());
            }
            chosen.insert(name.clone(), all);
        }
        if tally.rest != Rest::None {
            return Err(());
        }
        self.with_some(shape, &chosen, 0, count, tally)
    }

    /// What is claimed of the value of a property.
    pub(super) fn claims_of(&mut self, shape: &Shape, name: &Arc<str>) -> Vec<Claim> {
        self.spend(1 + shape.general.len() as u64);
        let mut claims = shape.exact.get(name).cloned().unwrap_or_default();
        for (names, claim) in &shape.general {
            if self.graph.names(names, name) {
                claims.push(*claim);
            }
        }
        claims
    }

    /// Whether there may be a property of this name; a doubt counts as yes, and is noted.
    fn may_be(&mut self, shape: &Shape, name: &Arc<str>, tally: &mut Tally) -> bool {
        let text = Json::String(name.clone());
        if shape.never.contains(name) {
            return false;
        }
        shape.names.iter().all(|claim| {
            let holds = self.graph.holds(claim.lit, &text);
            if holds.is_none() {
                tally.doubt(self.beyond());
            }
            holds != Some(false)
        })
    }

    /// Whether there is a value; a doubt counts as yes, and is noted.
    fn has_value(&mut self, claims: &[Claim], tally: &mut Tally) -> bool {
        let found = self.place(claims.iter().copied(), 1);
        tally.low = tally.low.min(found.low);
        if found.is_empty() {
            return false;
        }
        if found.values.is_empty() {
            tally.doubt(found.doubt().unwrap_or(Why::Properties));
        }
        true
    }

    /// Chooses a property for each that there has to be some of, from the one at `at` on.
    fn with_some(
        &mut self,
        shape: &Shape,
        chosen: &Chosen,
        at: usize,
        count: usize,
        tally: &mut Tally,
    ) -> Attempt {
        let Some(some) = shape.some.get(at) else { return self.filled(shape, chosen, count, tally) };
        if !self.spend(1 + chosen.len() as u64) {
            tally.doubt(Why::Budget);
            return Err(());
        }
        let room = shape.most.saturating_sub(chosen.len() as u64);
        let fresh = self.fresh_for_some(shape, at, room, tally);
        let candidates = chosen.keys().chain(&fresh).chain(&shape.mentioned);
        let mut seen = HashSet::new();
        let candidates: Vec<Arc<str>> =
            candidates.filter(|name| seen.insert((*name).clone())).cloned().collect();
        for name in candidates {
            if !self.spend(1 + chosen.len() as u64) {
                tally.doubt(Why::Budget);
                return Err(());
            }
            let named = some.names.as_ref().is_none_or(|names| self.graph.names(names, &name));
            let said = |claim: Claim| self.graph.holds(claim.lit, &Json::String(name.clone())) != Some(false);
            if !named || !some.name.is_none_or(said) {
                continue;
            }
            let is_new = !chosen.contains_key(&name);
            if is_new && chosen.len() as u64 >= shape.most {
                continue;
            }
            let mut attempt = Tally::new();
            if is_new && !self.may_be(shape, &name, &mut attempt) {
                continue;
            }
            let mut claims = chosen.get(&name).cloned().unwrap_or_else(|| self.claims_of(shape, &name));
            claims.extend(some.value);
            if self.has_value(&claims, &mut attempt) && attempt.rest == Rest::None {
                let mut more = chosen.clone();
                more.insert(name, claims);
                if let Ok(values) = self.with_some(shape, &more, at + 1, count, &mut attempt) {
                    tally.rest(Rest::Some);
                    return Ok(values);
                }
            }
            tally.rest(attempt.rest);
            tally.low = tally.low.min(attempt.low);
        }
        Err(())
    }

    /// Adds properties until there are enough.
    fn filled(&mut self, shape: &Shape, chosen: &Chosen, count: usize, tally: &mut Tally) -> Attempt {
        let mut chosen = chosen.clone();
        if shape.least > PROPERTIES_LIMIT {
            tally.doubt(Why::Size);
            return Err(());
        }
        let rich = self.rich && self.depth() < 6;
        let enough = if rich { PROPERTIES_LIMIT.min(shape.most) } else { shape.least };
        let mut optional = Tally::new();
        if (chosen.len() as u64) < enough {
            for name in &shape.mentioned {
                if chosen.len() as u64 >= enough {
                    break;
                }
                let claims = self.optional(shape, &chosen, name, &mut optional);
                chosen.extend(claims.map(|claims| (name.clone(), claims)));
            }
        }
        let missing = shape.least.saturating_sub(chosen.len() as u64) as usize;
        if missing > 0 {
            for name in self.fresh(shape, &[], missing + chosen.len(), &mut optional) {
                if chosen.len() as u64 >= shape.least {
                    break;
                }
                let claims = self.optional(shape, &chosen, &name, &mut optional);
                chosen.extend(claims.map(|claims| (name, claims)));
            }
        }
        if (chosen.len() as u64) < shape.least {
            tally.rest(optional.rest);
            tally.low = tally.low.min(optional.low);
            return Err(());
        }
        self.different(shape, &chosen, count, tally)
    }

    /// What is claimed of a property that may be added, if it may.
    fn optional(
        &mut self,
        shape: &Shape,
        chosen: &Chosen,
        name: &Arc<str>,
        tally: &mut Tally,
    ) -> Option<Vec<Claim>> {
        if chosen.contains_key(name) || !self.may_be(shape, name, tally) {
            return None;
        }
        let claims = self.claims_of(shape, name);
        let found = self.place(claims.iter().copied(), 1);
        tally.low = tally.low.min(found.low);
        if found.values.is_empty() {
            tally.rest(found.rest);
            return None;
        }
        Some(claims)
    }

    /// Different objects with the chosen properties, and with one more.
    fn different(&mut self, shape: &Shape, chosen: &Chosen, count: usize, tally: &mut Tally) -> Attempt {
        let wanted = count + shape.not.len();
        let mut choices: Vec<(Arc<str>, Vec<Json>)> = Vec::new();
        let mut complete = shape.some.is_empty();
        for (name, claims) in chosen {
            let found = self.place(claims.iter().copied(), if wanted > 1 { wanted.min(64) } else { 1 });
            complete &= found.rest == Rest::None;
            if found.values.is_empty() {
                tally.doubt(found.doubt().unwrap_or(Why::Properties));
                return Err(());
            }
            choices.push((name.clone(), found.values.clone()));
        }
        let mut objects = Objects {
            made: Vec::new(),
            seen: HashSet::new(),
            not: &shape.not,
            wanted: count,
            too_large: false,
        };
        complete &= self.combinations(&choices, &mut objects);
        if objects.made.len() < count || (wanted > 1 && complete) {
            complete &= self.one_more(shape, chosen, &choices, &mut objects);
        }
        if objects.made.is_empty() && !complete {
            tally.doubt(if objects.too_large { Why::Size } else { Why::Properties });
            return Err(());
        }
        tally.rest(if complete && wanted > 1 { Rest::None } else { Rest::Some });
        if objects.made.is_empty() { Err(()) } else { Ok(objects.made) }
    }

    /// Adds one property more to objects, and says whether that is impossible.
    fn one_more(
        &mut self,
        shape: &Shape,
        chosen: &Chosen,
        choices: &[(Arc<str>, Vec<Json>)],
        objects: &mut Objects<'_>,
    ) -> bool {
        if chosen.len() as u64 >= shape.most {
            return shape.must.len() == chosen.len();
        }
        let mut doubt = Tally::new();
        let fresh = self.fresh(shape, &[], objects.wanted + objects.not.len(), &mut doubt);
        let names = shape.mentioned.iter().cloned().chain(fresh);
        let mut impossible = true;
        for name in names.collect::<Vec<_>>() {
            let Some(claims) = self.optional(shape, chosen, &name, &mut doubt) else { continue };
            impossible = false;
            let values = self.place(claims, objects.wanted.min(16)).values.clone();
            if !self.spend(choices.iter().map(|(_, values)| 1 + values.len() as u64).sum()) {
                return false;
            }
            let mut more = choices.to_vec();
            more.push((name, values));
            self.combinations(&more, objects);
            if objects.made.len() >= objects.wanted {
                break;
            }
        }
        impossible
            && doubt.rest == Rest::None
            && doubt.low == super::NO_PLACE
            && shape.must.len() == chosen.len()
    }
}

/// Objects that were made, each once.
struct Objects<'s> {
    made: Vec<Json>,
    seen: HashSet<Json>,
    not: &'s HashSet<Json>,
    wanted: usize,
    /// Whether one was too large to be kept.
    too_large: bool,
}

/// Objects of all combinations of values, and whether there are no others.
impl Solver {
    fn combinations(&mut self, choices: &[(Arc<str>, Vec<Json>)], objects: &mut Objects<'_>) -> bool {
        let total = choices.iter().try_fold(1usize, |total, (_, values)| total.checked_mul(values.len()));
        let limit = total.unwrap_or(usize::MAX).min(COMBINATIONS_LIMIT);
        for number in 0..limit {
            if objects.made.len() >= objects.wanted || !self.spend(choices.len() as u64) {
                return false;
            }
            let mut rest = number;
            let mut members = BTreeMap::new();
            for (name, values) in choices {
                members.insert(name.clone(), values[rest % values.len()].clone());
                rest /= values.len();
            }
            let object = Json::Object(Arc::new(members));
            if !self.is_small(&object) {
                objects.too_large = true;
                return false;
            }
            if !objects.not.contains(&object) && objects.seen.insert(object.clone()) {
                objects.made.push(object);
            }
        }
        total == Some(limit)
    }
}
