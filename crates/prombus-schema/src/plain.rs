//! Schemas of plain keywords, which take a document while it is read.
//!
//! Most schemas say little more than which members a document has, and what these are. Such a document need not become a tree:
//! it is gone through once, and nothing of it is kept. Whatever is taken here is taken by the validator of the crate
//! `jsonschema`, too. What is not (because it is wrong, or because a number is too close to a bound) has to be asked there.

use crate::{
    decimal::Decimal,
    formats,
    json::Json,
    pattern::{bytes_of, is_regular},
};
use jsonschema::Validator;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt,
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
        let mut reader = serde_json::Deserializer::from_slice(document);
        Walk(self.rule.as_ref()).deserialize(&mut reader).is_ok() && reader.end().is_ok()
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
    let takes_itself = is_inclusive && number.is_integer() && at.abs() <= EXACT as f64;
    Some(Bound { at, is_lower, takes_itself })
}

fn count(keywords: &Keywords, least: &str, most: &str) -> Option<Count> {
    let read = |name: &str, other| {
        keywords.get(name).map_or(Some(other), |count| count.number().and_then(Decimal::to_u64))
    };
    Some(Count { least: read(least, 0)?, most: read(most, u64::MAX)? })
}

/// Reads a value, and fails unless it is certainly taken. Without a rule it is read all the same: what could not be read as a
/// tree is not taken here.
struct Walk<'r>(Option<&'r Rule>);

impl<'r> Walk<'r> {
    /// What a value of a type has to be besides.
    fn rule<E: de::Error>(&self, types: u8) -> Result<Option<&'r Rule>, E> {
        match self.0 {
            Some(rule) if rule.types & types == 0 => Err(not_certain()),
            rule => Ok(rule),
        }
    }

    fn scalar<E: de::Error>(&self, types: u8, value: impl Fn(&Scalar) -> bool) -> Result<(), E> {
        certain(self.rule(types)?.is_none_or(|rule| rule.lists(value)))
    }

    /// An integer, or nothing if it does not fit where it is listed.
    fn integer<E: de::Error>(&self, size: u64, listed: Option<i64>, number: f64) -> Result<(), E> {
        let Some(rule) = self.rule(INTEGER)? else { return Ok(()) };
        let is_listed = rule.lists(|scalar| listed.is_some_and(|number| *scalar == Scalar::Integer(number)));
        certain(is_listed && rule.bounds.iter().all(|bound| bound.takes(number, size <= EXACT)))
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        self.scalar(NULL, |scalar| *scalar == Scalar::Null)
    }

    fn visit_bool<E: de::Error>(self, truth: bool) -> Result<(), E> {
        self.scalar(BOOL, |scalar| *scalar == Scalar::Bool(truth))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<(), E> {
        self.integer(number.unsigned_abs(), Some(number), number as f64)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<(), E> {
        self.integer(number, i64::try_from(number).ok(), number as f64)
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<(), E> {
        let Some(rule) = self.rule(FRACTION)? else { return Ok(()) };
        certain(rule.one_of.is_none() && rule.bounds.iter().all(|bound| bound.takes(number, false)))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<(), E> {
        let Some(rule) = self.rule(STRING)? else { return Ok(()) };
        certain(rule.lists(|scalar| matches!(scalar, Scalar::Text(listed) if **listed == *text)))?;
        let Some(TextRule { chars, form }) = rule.text.as_deref() else { return Ok(()) };
        let has_form = |form: &Validator| form.is_valid(&Value::String(text.to_owned()));
        certain(chars.takes(text.chars().count()) && form.as_ref().is_none_or(has_form))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let rule = self.rule(ARRAY)?;
        certain(rule.is_none_or(|rule| rule.one_of.is_none()))?;
        let array = rule.and_then(|rule| rule.array.as_deref());
        let mut count = 0;
        while items.next_element_seed(Walk(array.and_then(|array| array.items.as_ref())))?.is_some() {
            count += 1;
        }
        certain(array.is_none_or(|array| array.count.takes(count)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let rule = self.rule(OBJECT)?;
        certain(rule.is_none_or(|rule| rule.one_of.is_none()))?;
        let Some(object) = rule.and_then(|rule| rule.object.as_deref()) else {
            while members.next_entry_seed(Name(&[]), Walk(None))?.is_some() {}
            return Ok(());
        };
        // A name that comes twice counts once, with its last value; here each of its values has to be taken.
        let mut there = 0;
        while let Some(member) = members.next_key_seed(Name(&object.members))? {
            there |= member.map_or(0, |member| member.required);
            members.next_value_seed(Walk(match member {
                Some(member) => member.rule.as_ref(),
                None => object.rest.as_ref(),
            }))?;
        }
        certain(there & object.required == object.required)
    }
}

/// Reads a name, and finds its member.
struct Name<'r>(&'r [Member]);

impl<'de, 'r> DeserializeSeed<'de> for Name<'r> {
    type Value = Option<&'r Member>;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        reader.deserialize_str(self)
    }
}

impl<'r> Visitor<'_> for Name<'r> {
    type Value = Option<&'r Member>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.binary_search_by(|member| (*member.name).cmp(name)).ok().map(|at| &self.0[at]))
    }
}

fn certain<E: de::Error>(is_certain: bool) -> Result<(), E> {
    if is_certain { Ok(()) } else { Err(not_certain()) }
}

fn not_certain<E: de::Error>() -> E {
    E::custom("not certainly taken")
}

#[cfg(test)]
mod tests {
    use crate::Schema;

    /// What a schema takes at once.
    fn takes(schema: &str, documents: &[&str]) -> Vec<bool> {
        let schema = Schema::parse(schema).unwrap();
        let taken = |document: &&str| {
            let taken = schema.validator().takes_plainly(document.as_bytes());
            let value = serde_json::from_str(document);
            assert!(!taken || schema.validator().faults(&value.unwrap()).is_empty(), "{document}");
            taken
        };
        documents.iter().map(taken).collect()
    }

    #[test]
    fn what_is_taken_at_once() {
        let schema = r#"{"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "title": "a",
            "x-unit": "s", "required": ["n", "other"], "properties": {
                "n": {"type": "integer", "minimum": 0, "exclusiveMaximum": 10}, "kind": {"type": "string", "pattern": "^[a-z]+$"},
                "x": {"type": "number", "maximum": 1.5}, "status": {"enum": ["on", 1, true, null]}, "no": false,
                "host": {"minLength": 1, "maxLength": 2}, "at": {"type": "string", "format": "date"},
                "list": {"type": "array", "items": {"type": ["null", "boolean"]}, "minItems": 1, "maxItems": 2}}}"#;
        let sure = [
            r#"{"n": 0, "other": [{"any": "\u00e9"}]}"#,
            r#"{"other": 1, "n": 9, "kind": "abc", "x": 1.25, "status": "on", "host": "éé", "at": "2024-02-29"}"#,
            r#"{"other": 1, "n": 5, "n": 6, "list": [null, true], "status": 1}"#,
            r#"{"other": 1, "n": 5, "list": [true], "status": null, "host": 5, "x": -1e300}"#,
        ];
        assert_eq!(takes(schema, &sure), [true; 4]);
        // Some of these are wrong, some are right and have to be asked for.
        let others = [
            "[]",
            r#"{"n": 1}"#,
            r#"{"n": -1, "other": 1}"#,
            r#"{"n": 10, "other": 1}"#,
            r#"{"n": 1.0, "other": 1}"#,
            r#"{"n": 1, "other": 1e999}"#,
            r#"{"n": 1, "other": "\ud800"}"#,
            r#"{"n": 1, "other": 1} x"#,
            r#"{"n": 1, "other": 1, "n": "a"}"#,
            r#"{"n": 1, "other": 1, "x": 1.5}"#,
            r#"{"n": 1, "other": 1, "x": 1.50000000000000000000000000001}"#,
            r#"{"n": 1, "other": 1, "kind": "A"}"#,
            r#"{"n": 1, "other": 1, "no": 1}"#,
            r#"{"n": 1, "other": 1, "host": ""}"#,
            r#"{"n": 1, "other": 1, "host": "ééé"}"#,
            r#"{"n": 1, "other": 1, "at": "2023-02-29"}"#,
            r#"{"n": 1, "other": 1, "list": []}"#,
            r#"{"n": 1, "other": 1, "list": [1]}"#,
            r#"{"n": 1, "other": 1, "list": [null, null, null]}"#,
            r#"{"n": 1, "other": 1, "status": 1.0}"#,
            r#"{"n": 1, "other": 1, "status": []}"#,
            r#"{"n": 1, "other": 1, "status": {}}"#,
            r#"{"n": 1, "other": 1, "status": false}"#,
        ];
        for document in others {
            let schema = Schema::parse(schema).unwrap();
            assert!(!schema.validator().takes_plainly(document.as_bytes()), "{document}");
        }
    }

    #[test]
    fn bounds_are_exact() {
        let least = r#"{"minimum": 9007199254740992}"#;
        let numbers =
            ["9007199254740991", "9007199254740992", "9007199254740993", "9007199254740994", "1e300"];
        assert_eq!(takes(least, &numbers), [false, true, false, true, true]);
        assert_eq!(
            takes(r#"{"exclusiveMinimum": 0.1}"#, &["0.1", "0.2", "1", "0"]),
            [false, true, true, false]
        );
        assert_eq!(takes(r#"{"maximum": 0}"#, &["-1e-400", "0", "0.0", "-1"]), [false, true, false, true]);
    }

    #[test]
    fn other_keywords_are_not_plain() {
        for schema in [
            r##"{"$ref": "#/$defs/a", "$defs": {"a": {}}}"##,
            r#"{"properties": {"a": {"not": {}}}}"#,
            r#"{"prefixItems": [true], "items": true}"#,
            r#"{"uniqueItems": true}"#,
            r#"{"pattern": "(?!a)b"}"#,
            r#"{"required": ["a"], "additionalProperties": {"type": "string"}}"#,
            r#"{"const": 0.5}"#,
            r#"{"unit": "s"}"#,
        ] {
            assert_eq!(takes(schema, &["1", "[]", "{}", r#""b""#]), [false; 4], "{schema}");
        }
        assert_eq!(takes("true", &["1", "{"]), [true, false]);
        assert_eq!(takes("false", &["1"]), [false]);
    }
}
