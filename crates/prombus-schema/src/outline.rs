//! Which schemas apply which others: how much a document can cost a validator, and how deep its stack can become.
//!
//! A validator follows every reference each time that it meets it. Schemas that apply each other in many ways can be gone
//! through many more times than there are schemas, so that this is reckoned before it is done. For an unevaluated keyword
//! it goes through them once more, to see which of them hold.

use crate::{
    graph::endless::Steps,
    json::Json,
    refs::{Address, place},
    validator::DEPTH_LIMIT,
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// How many pairs of schemas and values are told apart. A document that has more counts as too much.
const PAIRS_LIMIT: usize = 500_000;

/// In how many bytes a pattern is looked for while a validator goes through one schema.
const STEP_BYTES: u64 = 16;

/// How many entries of a list a validator walks past while it goes through one schema.
const STEP_ENTRIES: u64 = 8;

/// As how many entries one counts that has parts, for each of them.
const PART_ENTRIES: u64 = 4;

/// A schema, and those that it applies.
#[derive(Debug, Default)]
struct Applied {
    /// To the same value, once for each time.
    here: Vec<u32>,
    names: BTreeMap<Arc<str>, u32>,
    patterns: Vec<u32>,
    /// To properties that are not named.
    rest: Vec<u32>,
    first: Vec<u32>,
    items: Vec<u32>,
    /// Whether it looks at every name of an object.
    every: bool,
    /// How many patterns and formats it looks for in a text, and in every name of an object.
    texts: u64,
    names_texts: u64,
    /// To the names of an object.
    keys: Vec<u32>,
    /// How many unevaluated keywords it has.
    left_over: u64,
    /// How many entries it walks past, of values that it lists.
    listed: u64,
    /// How many names it looks for in an object: each may be a fault of its own.
    named: u64,
}

impl Applied {
    /// Those that apply to parts of a value, and whether these are named.
    fn inside(&self) -> impl Iterator<Item = (u32, bool)> {
        let named = self.first.iter().chain(self.names.values()).map(|next| (*next, true));
        let others = [&self.patterns, &self.rest, &self.items, &self.keys]
            .into_iter()
            .flatten()
            .map(|next| (*next, false));
        named.chain(others)
    }

    /// What it costs without those that it applies, for an object and for any other value.
    fn alone(&self, is_object: bool) -> Cost {
        let named = if is_object { self.named } else { 0 };
        Cost { taken: 1 + self.listed / STEP_ENTRIES + named, evaluated: 0 }
    }

    fn all(&self) -> Vec<u32> {
        self.here.iter().copied().chain(self.inside().map(|(next, _)| next)).collect()
    }
}

/// How many schemas are gone through: to see whether a value is taken, and to see what of it is evaluated.
#[derive(Debug, Clone, Copy)]
struct Cost {
    taken: u64,
    evaluated: u64,
}

impl Cost {
    const ONE: Self = Self { taken: 1, evaluated: 0 };

    /// Adds a schema that applies to the same value.
    fn here(&mut self, other: Self) {
        self.taken = self.taken.saturating_add(other.taken);
        self.evaluated = self.evaluated.saturating_add(other.taken).saturating_add(other.evaluated);
    }

    /// Adds a schema that applies to a part of it; if that is not named, whether it holds decides what is evaluated.
    fn inside(&mut self, other: Self, named: bool) {
        self.taken = self.taken.saturating_add(other.taken);
        if !named {
            self.evaluated = self.evaluated.saturating_add(other.taken);
        }
    }

    /// With the unevaluated keywords of the schema itself.
    fn with(self, schema: &Applied) -> Self {
        let again = self.evaluated.saturating_mul(schema.left_over);
        Self { taken: self.taken.saturating_add(again), ..self }
    }
}

/// The schemas of a document.
#[derive(Debug)]
pub struct Outline {
    schemas: Vec<Applied>,
    /// What each schema costs for a value without parts, and how many patterns it looks for if that is a text.
    here: Vec<Cost>,
    texts: Vec<u64>,
    /// How many schemas a validator goes through for one value and all that is in it, as long as it does not go in circles.
    pub size: u64,
    /// How many patterns it looks for, for the same.
    patterns: u64,
    /// Whether schemas apply themselves to parts of a value.
    pub circles: bool,
    /// How many schemas apply each other to the same value, one through the other.
    pub chain: u64,
    /// The same for a value and its parts, as long as there are no circles.
    longest: u64,
}

impl Outline {
    /// The outline of schemas, of which the first is that of the whole document.
    pub fn of(schemas: &[&Json], steps: &Steps) -> Self {
        let numbers: HashMap<Address, u32> =
            schemas.iter().enumerate().map(|(at, schema)| (place(schema), at as u32)).collect();
        let schemas: Vec<Applied> = schemas.iter().map(|schema| applied(schema, steps, &numbers)).collect();
        let InPlace { here, texts, chain } = in_place(&schemas);
        let (order, back) = postorder(&schemas, Applied::all);
        let (mut sizes, mut longest) = (vec![Cost::ONE; schemas.len()], vec![1u64; schemas.len()]);
        let mut patterns: Vec<u64> = schemas.iter().map(|schema| schema.texts + schema.names_texts).collect();
        for at in order {
            let mut cost = schemas[at].alone(true);
            for next in schemas[at].all() {
                if !back.get(&at).is_some_and(|back| back.contains(&next)) {
                    patterns[at] = patterns[at].saturating_add(patterns[next as usize]);
                }
            }
            let mut size = |next: u32| {
                let circle = back.get(&at).is_some_and(|back| back.contains(&next));
                let depth = if circle { 1 } else { longest[next as usize] };
                longest[at] = longest[at].max(1 + depth);
                if circle { Cost::ONE } else { sizes[next as usize] }
            };
            schemas[at].here.iter().for_each(|next| cost.here(size(*next)));
            schemas[at].inside().for_each(|(next, named)| cost.inside(size(next), named));
            sizes[at] = cost.with(&schemas[at]);
        }
        let size = sizes.first().map_or(1, |cost| cost.taken);
        let longest = longest.first().copied().unwrap_or(1);
        let patterns = patterns.first().copied().unwrap_or(0);
        let circles = !back.is_empty();
        Self { schemas, here, texts, size, patterns, circles, chain, longest }
    }

    /// How many schemas a validator goes through, about and at most, for documents that hold so many values and bytes
    /// together, as long as it does not go in circles.
    pub fn steps(&self, values: u64, bytes: u64) -> u64 {
        self.size.saturating_mul(values).saturating_add(self.patterns.saturating_mul(bytes / STEP_BYTES))
    }

    /// The same for a document that was read.
    pub fn steps_for(&self, document: &Value) -> u64 {
        let (mut values, mut bytes) = (0, 0);
        extent(document, &mut values, &mut bytes);
        self.steps(values, bytes)
    }

    /// How many schemas there are, each counted once.
    pub fn schemas(&self) -> u64 {
        self.schemas.len() as u64
    }

    /// How many schemas a validator can be inside of at once.
    pub fn depth(&self) -> u64 {
        if self.circles { self.chain.saturating_mul(DEPTH_LIMIT as u64) } else { self.longest }
    }

    /// What a schema costs for a text.
    fn text(&self, at: u32, text: &str) -> Cost {
        let mut cost = self.here[at as usize];
        cost.taken = cost.taken.saturating_add(found(self.texts[at as usize], text));
        cost
    }

    /// How many schemas a validator goes through for a document if nothing lets it stop early.
    pub fn visits(&self, document: &Value) -> u64 {
        let mut counted = Counted { outline: self, known: HashMap::new() };
        if self.schemas.is_empty() { 1 } else { counted.visits(0, document).taken }
    }
}

/// How many values a document holds, and how many bytes its texts have together.
fn extent(document: &Value, values: &mut u64, bytes: &mut u64) {
    *values += 1;
    match document {
        Value::String(text) => *bytes += text.len() as u64,
        Value::Array(items) => items.iter().for_each(|item| extent(item, values, bytes)),
        Value::Object(members) => {
            for (name, value) in members {
                *bytes += name.len() as u64;
                extent(value, values, bytes);
            }
        }
        _ => {}
    }
}

/// What schemas cost for one value, without what is in it.
struct InPlace {
    here: Vec<Cost>,
    texts: Vec<u64>,
    /// How long the longest chain is.
    chain: u64,
}

fn in_place(schemas: &[Applied]) -> InPlace {
    let (order, _) = postorder(schemas, |schema| schema.here.clone());
    let (mut here, mut chains) = (vec![Cost::ONE; schemas.len()], vec![1u64; schemas.len()]);
    let mut texts: Vec<u64> = schemas.iter().map(|schema| schema.texts).collect();
    for at in order {
        let mut cost = schemas[at].alone(false);
        for next in &schemas[at].here {
            cost.here(here[*next as usize]);
            texts[at] = texts[at].saturating_add(texts[*next as usize]);
            chains[at] = chains[at].max(1 + chains[*next as usize]);
        }
        here[at] = cost.with(&schemas[at]);
    }
    InPlace { here, texts, chain: chains.into_iter().max().unwrap_or(1) }
}

struct Counted<'o> {
    outline: &'o Outline,
    known: HashMap<(u32, usize), Cost>,
}

impl Counted<'_> {
    fn visits(&mut self, at: u32, value: &Value) -> Cost {
        let outline = self.outline;
        let schema = &outline.schemas[at as usize];
        match value {
            Value::Object(_) | Value::Array(_) => {}
            Value::String(text) => return outline.text(at, text),
            _ => return outline.here[at as usize],
        }
        let pair = (at, std::ptr::from_ref(value) as usize);
        if let Some(known) = self.known.get(&pair) {
            return *known;
        }
        if self.known.len() >= PAIRS_LIMIT {
            return Cost { taken: u64::MAX, evaluated: u64::MAX };
        }
        let mut cost = schema.alone(value.is_object());
        for next in &schema.here {
            cost.here(self.visits(*next, value));
        }
        match value {
            Value::Object(members) => {
                for (name, inner) in members {
                    let looked = u64::from(schema.every).saturating_add(found(schema.names_texts, name));
                    cost.taken = cost.taken.saturating_add(looked);
                    schema.keys.iter().for_each(|next| cost.inside(outline.text(*next, name), true));
                    let named = schema.names.get(name.as_str()).copied();
                    // What a pattern is found in is not one of the rest.
                    let rest = named.is_none() && schema.patterns.is_empty();
                    let others = if rest { &schema.rest } else { &schema.patterns };
                    named.iter().for_each(|next| cost.inside(self.visits(*next, inner), true));
                    others.iter().for_each(|next| cost.inside(self.visits(*next, inner), false));
                }
            }
            Value::Array(items) => {
                for (at, inner) in items.iter().enumerate() {
                    schema
                        .first
                        .get(at)
                        .iter()
                        .for_each(|next| cost.inside(self.visits(**next, inner), true));
                    schema.items.iter().for_each(|next| cost.inside(self.visits(*next, inner), false));
                }
            }
            _ => {}
        }
        let cost = cost.with(schema);
        self.known.insert(pair, cost);
        cost
    }
}

/// How many steps it takes to look for patterns in a text.
fn found(patterns: u64, text: &str) -> u64 {
    patterns.saturating_mul(text.len() as u64 / STEP_BYTES)
}

fn applied(schema: &Json, steps: &Steps, numbers: &HashMap<Address, u32>) -> Applied {
    let number = |schema: &Json| numbers.get(&place(schema)).copied();
    let mut applied = Applied::default();
    let here = steps.get(&place(schema)).into_iter().flatten();
    applied.here.extend(here.filter_map(|place| numbers.get(place).copied()));
    for (keyword, value) in schema.object().into_iter().flatten() {
        applied.left_over += u64::from(keyword.starts_with("unevaluated"));
        applied.every |= matches!(
            &**keyword,
            "patternProperties" | "additionalProperties" | "unevaluatedProperties" | "propertyNames"
        );
        match (&**keyword, value) {
            ("properties", Json::Object(schemas)) => {
                applied.names = schemas
                    .iter()
                    .filter_map(|(name, schema)| Some((name.clone(), number(schema)?)))
                    .collect();
            }
            ("pattern" | "format", Json::String(_)) => applied.texts += 1,
            ("enum", Json::Array(values)) => applied.listed += listed(values),
            ("const", value) => applied.listed += listed(std::slice::from_ref(value)),
            ("required", Json::Array(names)) => applied.named += names.len() as u64,
            ("dependentRequired" | "dependentSchemas" | "dependencies", Json::Object(members)) => {
                let names = members.values().map(|names| 1 + names.array().map_or(0, <[Json]>::len) as u64);
                applied.named += names.sum::<u64>();
            }
            ("propertyNames", schema) => applied.keys.extend(number(schema)),
            ("patternProperties", Json::Object(schemas)) => {
                applied.names_texts += schemas.len() as u64;
                applied.patterns = schemas.values().filter_map(number).collect()
            }
            ("additionalProperties" | "unevaluatedProperties", schema) => applied.rest.extend(number(schema)),
            ("prefixItems" | "items", Json::Array(schemas)) => {
                applied.first = schemas.iter().filter_map(number).collect()
            }
            ("items" | "additionalItems" | "contains" | "unevaluatedItems", schema) => {
                applied.items.extend(number(schema))
            }
            _ => {}
        }
    }
    applied
}

/// How many entries are walked past where values are listed. Texts are looked up if there is nothing else but `null`.
fn listed(values: &[Json]) -> u64 {
    let entries = |value: &Json| match value {
        Json::Array(_) | Json::Object(_) => PART_ENTRIES.saturating_mul(value.size(u64::MAX)),
        _ => 1,
    };
    match values.iter().all(|value| matches!(value, Json::String(_) | Json::Null)) {
        true => 0,
        false => values.iter().map(entries).sum(),
    }
}

/// The schemas, each after those that it applies, and for each the ones that it applies in a circle.
fn postorder(
    schemas: &[Applied],
    next: impl Fn(&Applied) -> Vec<u32>,
) -> (Vec<usize>, HashMap<usize, Vec<u32>>) {
    #[derive(Clone, Copy, PartialEq)]
    enum Seen {
        No,
        Open,
        Done,
    }
    let (mut order, mut back): (Vec<usize>, HashMap<usize, Vec<u32>>) = (Vec::new(), HashMap::new());
    let mut seen = vec![Seen::No; schemas.len()];
    for start in 0..schemas.len() {
        let mut walk: Vec<(usize, Vec<u32>)> = Vec::new();
        if seen[start] == Seen::No {
            seen[start] = Seen::Open;
            walk.push((start, next(&schemas[start])));
        }
        while let Some((at, left)) = walk.last_mut() {
            let Some(to) = left.pop() else {
                seen[*at] = Seen::Done;
                order.push(*at);
                walk.pop();
                continue;
            };
            match seen[to as usize] {
                Seen::Done => {}
                Seen::Open => back.entry(*at).or_default().push(to),
                Seen::No => {
                    seen[to as usize] = Seen::Open;
                    walk.push((to as usize, next(&schemas[to as usize])));
                }
            }
        }
    }
    (order, back)
}
