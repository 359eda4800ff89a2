//! Schemas of plain keywords, which take a document while it is read.
//!
//! Most schemas say little more than which members a document has, and what these are. Such a document need not become a tree:
//! it is gone through once, and nothing of it is kept. Whatever is taken here is taken by the validator of the crate
//! `jsonschema`, too. What is not (because it is wrong, or because a number is too close to a bound) has to be asked there.

mod walk;

use crate::{
    decimal::Decimal,
    formats,
    json::Json,
    pattern::{bytes_of, is_regular},
};
use jsonschema::Validator;
use serde_json::{Map, Value};
use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
};

/// How many schemas may be one of these together. Those of larger ones are not held twice.
const SCHEMAS_LIMIT: usize = 4096;

/// How many bytes may be taken for the patterns and formats of all of them, about.
const TEXTS_LIMIT: usize = 256 * 1024;

/// How many bytes one format takes, about.
const FORMAT_BYTES: usize = 1024;

/// How many bytes a pattern may take: searching for a large one takes long.
const PATTERN_LIMIT: usize = 32 * 1024;

/// How many members may be required of an object: as many as a mask has bits.
const REQUIRED_LIMIT: usize = 64;

/// How many values may be listed: each of them is looked at.
const LISTED_LIMIT: usize = 64;

/// Up to which integer a double is exact.
const EXACT: u64 = 1 << 53;

const NULL: u8 = 1;
const BOOL: u8 = 2;
const INTEGER: u8 = 4;
/// A number that is written with a fraction or an exponent.
const FRACTION: u8 = 8;
const STRING: u8 = 16;
const ARRAY: u8 = 32;
const OBJECT: u8 = 64;
const ALL: u8 = 127;

/// A schema of plain keywords.
#[derive(Debug)]
pub struct Plain {
    /// Nothing if it takes everything.
    rule: Option<Rule>,
    bytes: usize,
}

impl Plain {
    /// Makes it if there is nothing else in the schema. `texts` makes validators for patterns and formats.
    pub fn of(schema: &Json, texts: &dyn Fn(&Value) -> Option<Validator>) -> Option<Self> {
        let mut building = Building { texts, schemas: SCHEMAS_LIMIT, texts_bytes: TEXTS_LIMIT, bytes: 0 };
        let rule = building.rule(schema, true)?;
        let bytes = building.bytes + TEXTS_LIMIT - building.texts_bytes;
        Some(Self { rule, bytes })
    }

    /// How many bytes it takes, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a document is certainly taken.
    pub fn takes(&self, document: &[u8]) -> bool {
        walk::takes(self.rule.as_ref(), document)
    }
}

/// What a value has to be.
#[derive(Debug)]
struct Rule {
    types: u8,
    one_of: Option<Box<[Scalar]>>,
    bounds: Vec<Bound>,
    text: Option<Box<TextRule>>,
    array: Option<Box<ArrayRule>>,
    object: Option<Box<ObjectRule>>,
}

#[derive(Debug, PartialEq)]
enum Scalar {
    Null,
    Bool(bool),
    Integer(i64),
    Text(Arc<str>),
}

/// A bound of numbers.
#[derive(Debug)]
struct Bound {
    at: f64,
    is_lower: bool,
    /// Whether an integer that is just there is certainly taken.
    takes_itself: bool,
}

impl Bound {
    /// Rounding keeps order, so that a number beyond the rounded bound is beyond the bound.
    fn takes(&self, number: f64, is_exact: bool) -> bool {
        let beyond = if self.is_lower { number > self.at } else { number < self.at };
        beyond || (is_exact && self.takes_itself && number == self.at)
    }
}

#[derive(Debug)]
struct TextRule {
    chars: Count,
    /// For its pattern and its format.
    form: Option<Validator>,
}

#[derive(Debug)]
struct ArrayRule {
    count: Count,
    items: Option<Rule>,
}

/// How many there may be.
#[derive(Debug)]
struct Count {
    least: u64,
    most: u64,
}

impl Count {
    fn takes(&self, count: usize) -> bool {
        (self.least..=self.most).contains(&(count as u64))
    }
}

#[derive(Debug)]
struct ObjectRule {
    /// In the order of their names.
    members: Vec<Member>,
    /// For all others.
    rest: Option<Rule>,
    /// The bits of those that have to be there.
    required: u64,
}

#[derive(Debug)]
struct Member {
    name: Arc<str>,
    rule: Option<Rule>,
    /// A bit of its own if it has to be there.
    required: u64,
}

struct Building<'t> {
    texts: &'t dyn Fn(&Value) -> Option<Validator>,
    /// How many schemas more there may be, and how many bytes more for texts.
    schemas: usize,
    texts_bytes: usize,
    bytes: usize,
}

impl Building<'_> {
    /// The rule of a schema, which takes everything if there is none; `None` if it is not plain.
    fn rule(&mut self, schema: &Json, is_root: bool) -> Option<Option<Rule>> {
        self.schemas = self.schemas.checked_sub(1)?;
        self.bytes += size_of::<Member>();
        let keywords = match schema {
            Json::Bool(true) => return Some(None),
            Json::Bool(false) => return Some(Some(Rule::of(0))),
            Json::Object(keywords) => keywords,
            _ => return None,
        };
        let mut rule = Rule::of(ALL);
        for (keyword, value) in keywords.iter() {
            match &**keyword {
                "title" | "description" | "$comment" | "default" | "examples" | "deprecated" | "readOnly"
                | "writeOnly" | "$defs" | "definitions" => {}
                "$schema" | "$id" if is_root => {}
                "type" => rule.types = types(value)?,
                "const" => rule.one_of = Some(both(rule.one_of, [scalar(value)?].into())?),
                "enum" => {
                    let values = value.array().filter(|values| values.len() <= LISTED_LIMIT)?;
                    let scalars = values.iter().map(scalar).collect::<Option<_>>()?;
                    rule.one_of = Some(both(rule.one_of, scalars)?);
                }
                "minimum" => rule.bounds.push(bound(value, true, true)?),
                "maximum" => rule.bounds.push(bound(value, false, true)?),
                "exclusiveMinimum" => rule.bounds.push(bound(value, true, false)?),
                "exclusiveMaximum" => rule.bounds.push(bound(value, false, false)?),
                "minLength" | "maxLength" | "pattern" | "format" if rule.text.is_none() => {
                    rule.text = Some(Box::new(self.text(keywords)?));
                }
                "minItems" | "maxItems" | "items" if rule.array.is_none() => {
                    rule.array = Some(Box::new(self.array(keywords)?));
                }
                "properties" | "required" | "additionalProperties" if rule.object.is_none() => {
                    rule.object = Some(Box::new(self.object(keywords)?));
                }
                "minLength"
                | "maxLength"
                | "pattern"
                | "format"
                | "minItems"
                | "maxItems"
                | "items"
                | "properties"
                | "required"
                | "additionalProperties" => {}
                remark if remark.starts_with("x-") => {}
                _ => return None,
            }
        }
        self.bytes += rule.bounds.len() * size_of::<Bound>();
        self.bytes += rule.one_of.as_ref().map_or(0, |scalars| scalars.len() * size_of::<Scalar>());
        Some(Some(rule))
    }

    fn text(&mut self, keywords: &Keywords) -> Option<TextRule> {
        let mut form = Map::new();
        if let Some(pattern) = keywords.get("pattern") {
            let pattern = pattern.text()?;
            let bytes = bytes_of(pattern);
            if bytes > PATTERN_LIMIT || !is_regular(pattern) {
                return None;
            }
            self.texts_bytes = self.texts_bytes.checked_sub(bytes)?;
            form.insert("pattern".to_owned(), Value::String(pattern.to_string()));
        }
        if let Some(format) = keywords.get("format") {
            let format = format.text()?;
            if formats::is_known(format) {
                self.texts_bytes = self.texts_bytes.checked_sub(FORMAT_BYTES)?;
                form.insert("format".to_owned(), Value::String(format.to_string()));
            }
        }
        self.bytes += size_of::<TextRule>();
        let form = if form.is_empty() { None } else { Some((self.texts)(&Value::Object(form))?) };
        Some(TextRule { chars: count(keywords, "minLength", "maxLength")?, form })
    }

    fn array(&mut self, keywords: &Keywords) -> Option<ArrayRule> {
        self.bytes += size_of::<ArrayRule>();
        let items = keywords.get("items").map_or(Some(None), |items| self.rule(items, false))?;
        Some(ArrayRule { count: count(keywords, "minItems", "maxItems")?, items })
    }

    fn object(&mut self, keywords: &Keywords) -> Option<ObjectRule> {
        self.bytes += size_of::<ObjectRule>();
        let mut members = BTreeMap::new();
        if let Some(properties) = keywords.get("properties") {
            for (name, schema) in properties.object()? {
                members.insert(name.clone(), (self.rule(schema, false)?, 0));
            }
        }
        let rest = keywords.get("additionalProperties").map_or(Some(None), |rest| self.rule(rest, false))?;
        let mut mask = 0;
        if let Some(required) = keywords.get("required") {
            let required = required.array()?;
            if required.len() > REQUIRED_LIMIT {
                return None;
            }
            for (bit, name) in required.iter().enumerate() {
                // One that is required and not described is one of the rest, of which each would need a rule of its own.
                let (_, required) = match members.entry(name.text()?.clone()) {
                    Entry::Occupied(member) => member.into_mut(),
                    Entry::Vacant(_) if rest.is_some() => return None,
                    Entry::Vacant(member) => member.insert((None, 0)),
                };
                *required |= 1 << bit;
                mask |= 1 << bit;
            }
        }
        let member = |(name, (rule, required))| Member { name, rule, required };
        self.bytes += members.keys().map(|name| name.len() + 2 * size_of::<usize>()).sum::<usize>();
        Some(ObjectRule { members: members.into_iter().map(member).collect(), rest, required: mask })
    }
}

type Keywords = BTreeMap<Arc<str>, Json>;

impl Rule {
    fn of(types: u8) -> Self {
        Self { types, one_of: None, bounds: Vec::new(), text: None, array: None, object: None }
    }

    /// Whether a value is taken that can be listed in an `enum`.
    fn lists(&self, value: impl Fn(&Scalar) -> bool) -> bool {
        self.one_of.as_ref().is_none_or(|scalars| scalars.iter().any(value))
    }
}

fn types(value: &Json) -> Option<u8> {
    let one = |name: &Json| {
        Some(match &**name.text()? {
            "null" => NULL,
            "boolean" => BOOL,
            "integer" => INTEGER,
            "number" => INTEGER | FRACTION,
            "string" => STRING,
            "array" => ARRAY,
            "object" => OBJECT,
            _ => return None,
        })
    };
    match value {
        Json::Array(names) => names.iter().try_fold(0, |types, name| Some(types | one(name)?)),
        name => one(name),
    }
}

fn scalar(value: &Json) -> Option<Scalar> {
    Some(match value {
        Json::Null => Scalar::Null,
        Json::Bool(truth) => Scalar::Bool(*truth),
        Json::String(text) => Scalar::Text(text.clone()),
        Json::Number(number) => Scalar::Integer(i64::try_from(number.to_u64()?).ok()?),
        Json::Array(_) | Json::Object(_) => return None,
    })
}

/// `const` beside `enum`: nobody writes that, and it need not be plain.
fn both(one: Option<Box<[Scalar]>>, other: Box<[Scalar]>) -> Option<Box<[Scalar]>> {
    one.is_none().then_some(other)
}

fn bound(value: &Json, is_lower: bool, is_inclusive: bool) -> Option<Bound> {
    let number = value.number()?;
    let at = number.to_nearest().as_f64()?;
    // What rounds to the last exact integer may be the one behind it.
    let takes_itself = is_inclusive && number.is_integer() && at.abs() < EXACT as f64;
    Some(Bound { at, is_lower, takes_itself })
}

fn count(keywords: &Keywords, least: &str, most: &str) -> Option<Count> {
    let read = |name: &str, other| {
        keywords.get(name).map_or(Some(other), |count| count.number().and_then(Decimal::to_u64))
    };
    Some(Count { least: read(least, 0)?, most: read(most, u64::MAX)? })
}

#[cfg(test)]
mod tests;
