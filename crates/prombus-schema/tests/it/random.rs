//! Random schemas, small enough that they have something to do with each other, and random documents.

use fastrand::Rng;
use serde_json::{Map, Value, json};

const NAMES: &[&str] = &["a", "b", "ab", "x1"];
const TYPES: &[&str] = &["null", "boolean", "integer", "number", "string", "array", "object"];
const PATTERNS: &[&str] = &["^a", "b$", "^[ab]+$", "^x[0-9]*$", "a|b", "", "^.{2}$", "[^a]", "^(?:a|ab|x1)$"];
const FORMATS: &[&str] = &["date", "ipv4", "uuid", "email", "unknown-format"];

/// A random schema, nested no deeper than `depth`.
pub fn schema(rng: &mut Rng, depth: usize) -> Value {
    match rng.u32(0..14) {
        0 => return json!(true),
        1 if rng.bool() => return json!(false),
        2 if depth > 0 => return crowded(rng, depth - 1),
        _ => {}
    }
    let mut members = Map::new();
    for _ in 0..rng.usize(1..4) {
        let (keyword, value) = keyword(rng, depth);
        members.insert(keyword.to_owned(), value);
    }
    Value::Object(members)
}

/// A random schema with definitions that it refers to, also in circles.
pub fn document(rng: &mut Rng) -> Value {
    let mut schema = schema(rng, 3);
    if let Value::Object(members) = &mut schema {
        let definitions: Map<String, Value> =
            ["p", "q"].iter().map(|name| ((*name).to_owned(), self::schema(rng, 2))).collect();
        members.insert("$defs".to_owned(), Value::Object(definitions));
    }
    schema
}

/// Objects that have to have more than there is room for, unless one property is several of what they have to have.
fn crowded(rng: &mut Rng, depth: usize) -> Value {
    let some = |rng: &mut Rng| {
        let pattern = PATTERNS[rng.usize(..PATTERNS.len())];
        match rng.u32(0..4) {
            0 => json!({"propertyNames": {"pattern": pattern}}),
            1 => json!({"propertyNames": {"maxLength": rng.u32(0..4)}}),
            2 => json!({"additionalProperties": schema(rng, depth), "patternProperties": {pattern: true}}),
            _ => json!({"patternProperties": {pattern: schema(rng, depth)}}),
        }
    };
    let several: Vec<Value> = (0..rng.usize(2..5)).map(|_| json!({ "not": some(rng) })).collect();
    json!({"type": "object", "maxProperties": rng.u32(1..3), "allOf": several})
}

fn schemas(rng: &mut Rng, depth: usize) -> Value {
    let count = rng.usize(1..4);
    Value::Array((0..count).map(|_| schema(rng, depth)).collect())
}

fn named(rng: &mut Rng, names: &[&str], depth: usize) -> Value {
    let count = rng.usize(1..3);
    let member = |rng: &mut Rng| (names[rng.usize(..names.len())].to_owned(), schema(rng, depth));
    Value::Object((0..count).map(|_| member(rng)).collect())
}

fn some_names(rng: &mut Rng) -> Value {
    json!(NAMES.iter().filter(|_| rng.u32(0..3) == 0).collect::<Vec<_>>())
}

fn keyword(rng: &mut Rng, depth: usize) -> (&'static str, Value) {
    let flat = depth == 0;
    match rng.u32(0..if flat { 18 } else { 44 }) {
        0..=2 => ("type", json!(TYPES[rng.usize(..7)])),
        3 => ("type", json!([TYPES[rng.usize(..3)], TYPES[3 + rng.usize(..4)]])),
        4 => ("enum", Value::Array((0..rng.usize(1..5)).map(|_| value(rng, 1)).collect())),
        5 => ("const", value(rng, 2)),
        6 => ("minimum", bound(rng)),
        7 => ("maximum", bound(rng)),
        8 => ("exclusiveMinimum", bound(rng)),
        9 => ("exclusiveMaximum", bound(rng)),
        10 => (
            "multipleOf",
            [json!(1), json!(2), json!(3), json!(0.5), json!(0.1), json!(1.5)][rng.usize(..6)].clone(),
        ),
        11 => ("minLength", json!(rng.u32(0..4))),
        12 => ("maxLength", json!(rng.u32(0..4))),
        13 => ("pattern", json!(PATTERNS[rng.usize(..PATTERNS.len())])),
        14 => ("format", json!(FORMATS[rng.usize(..FORMATS.len())])),
        15 => ("minItems", json!(rng.u32(0..3))),
        16 => ("maxItems", json!(rng.u32(0..3))),
        17 => ("uniqueItems", json!(true)),
        18..=20 => ("properties", named(rng, NAMES, depth - 1)),
        21 => ("patternProperties", named(rng, PATTERNS, depth - 1)),
        22 | 23 => ("additionalProperties", schema(rng, depth - 1)),
        24 => ("propertyNames", schema(rng, depth - 1)),
        25 | 26 => ("required", some_names(rng)),
        27 => ("minProperties", json!(rng.u32(0..3))),
        28 => ("maxProperties", json!(rng.u32(0..3))),
        29 => ("dependentRequired", json!({ NAMES[rng.usize(..4)]: some_names(rng) })),
        30 => ("dependentSchemas", json!({ NAMES[rng.usize(..4)]: schema(rng, depth - 1) })),
        31 => ("items", schema(rng, depth - 1)),
        32 => ("prefixItems", schemas(rng, depth - 1)),
        33 => ("contains", schema(rng, depth - 1)),
        34 => ("minContains", json!(rng.u32(0..3))),
        35 => ("maxContains", json!(rng.u32(0..3))),
        36 => ("allOf", schemas(rng, depth - 1)),
        37 => ("anyOf", schemas(rng, depth - 1)),
        38 => ("oneOf", schemas(rng, depth - 1)),
        39 => ("not", schema(rng, depth - 1)),
        40 => ("if", schema(rng, depth - 1)),
        41 => (["then", "else"][rng.usize(..2)], schema(rng, depth - 1)),
        42 => (["unevaluatedProperties", "unevaluatedItems"][rng.usize(..2)], schema(rng, depth - 1)),
        _ => ("$ref", json!(["#/$defs/p", "#/$defs/q", "#"][rng.usize(..3)])),
    }
}

fn bound(rng: &mut Rng) -> Value {
    [json!(-1), json!(0), json!(1), json!(2), json!(2.5), json!(0.1), json!(10)][rng.usize(..7)].clone()
}

/// A random document, nested no deeper than `depth`.
pub fn value(rng: &mut Rng, depth: usize) -> Value {
    match rng.u32(0..if depth == 0 { 9 } else { 14 }) {
        0 => Value::Null,
        1 => json!(rng.bool()),
        2 | 3 => json!(rng.i32(-2..12)),
        4 => json!(f64::from(rng.i32(-4..30)) / 10.0),
        5..=7 => text(rng),
        8 => [json!("2024-02-29"), json!("192.0.2.1"), json!("ann@example.com"), json!(0), json!("")]
            [rng.usize(..5)]
        .clone(),
        9..=10 => Value::Array((0..rng.usize(..4)).map(|_| value(rng, depth - 1)).collect()),
        _ => {
            let member = |rng: &mut Rng| (NAMES[rng.usize(..4)].to_owned(), value(rng, depth - 1));
            Value::Object((0..rng.usize(..4)).map(|_| member(rng)).collect())
        }
    }
}

fn text(rng: &mut Rng) -> Value {
    let length = rng.usize(..4);
    json!((0..length).map(|_| ['a', 'b', 'x', '1', '\u{e9}'][rng.usize(..5)]).collect::<String>())
}

/// A schema with something in it replaced, added or taken away.
pub fn changed(rng: &mut Rng, schema: &Value) -> Value {
    let mut changed = schema.clone();
    change(rng, &mut changed, 3);
    changed
}

fn change(rng: &mut Rng, schema: &mut Value, depth: usize) {
    let Value::Object(members) = schema else {
        *schema = self::schema(rng, 1);
        return;
    };
    let keys: Vec<String> = members.keys().cloned().collect();
    let inner: Vec<&String> = keys
        .iter()
        .filter(|key| {
            matches!(key.as_str(), "not" | "items" | "contains" | "if" | "then" | "additionalProperties")
        })
        .collect();
    if depth > 0 && !inner.is_empty() && rng.bool() {
        let key = inner[rng.usize(..inner.len())].clone();
        return change(rng, &mut members[&key], depth - 1);
    }
    let nested: Vec<&String> =
        keys.iter().filter(|key| matches!(key.as_str(), "properties" | "$defs")).collect();
    if depth > 0 && !nested.is_empty() && rng.bool() {
        let key = nested[rng.usize(..nested.len())].clone();
        if let Value::Object(map) = &mut members[&key]
            && let Some(inner) = map.values_mut().next()
        {
            return change(rng, inner, depth - 1);
        }
    }
    let removable: Vec<&String> = keys.iter().filter(|key| *key != "$defs").collect();
    if rng.bool() && !removable.is_empty() {
        members.remove(removable[rng.usize(..removable.len())]);
    } else {
        let (keyword, value) = keyword(rng, depth);
        members.insert(keyword.to_owned(), value);
    }
}

/// A random document of several resources, in which references mean different things by the way on which they are reached.
pub fn scoped(rng: &mut Rng) -> Value {
    let recursive = rng.u32(0..3) == 0;
    let mut document = resource(rng, "https://example.com/root", recursive);
    let inner: Vec<(String, Value)> =
        RESOURCES.iter().map(|name| ((*name).to_owned(), resource(rng, name, recursive))).collect();
    if let Some(definitions) = document["$defs"].as_object_mut() {
        definitions.extend(inner);
    }
    if recursive {
        document["$schema"] = json!("https://json-schema.org/draft/2019-09/schema");
    }
    document
}

const RESOURCES: &[&str] = &["a", "b", "c"];

/// A schema with a name of its own, with an anchor that others have, too.
fn resource(rng: &mut Rng, id: &str, recursive: bool) -> Value {
    let mut schema = node(rng, 2, recursive);
    schema["$id"] = json!(id);
    let mut anchored = node(rng, 1, recursive);
    if recursive {
        if rng.u32(0..4) > 0 {
            schema["$recursiveAnchor"] = json!(rng.u32(0..4) > 0);
        }
    } else if rng.bool() {
        schema["$dynamicAnchor"] = json!("n");
    } else {
        let keyword = if rng.u32(0..6) == 0 { "$anchor" } else { "$dynamicAnchor" };
        anchored[keyword] = json!("n");
    }
    schema["$defs"] = json!({ "n": anchored });
    schema
}

/// A schema that mostly leads to others.
fn node(rng: &mut Rng, depth: usize, recursive: bool) -> Value {
    let inner = |rng: &mut Rng| node(rng, depth - 1, recursive);
    match rng.u32(0..if depth == 0 { 7 } else { 15 }) {
        0..=2 => json!({ "type": TYPES[rng.usize(2..7)] }),
        3 | 4 if recursive => json!({"$recursiveRef": "#"}),
        3 | 4 => json!({"$dynamicRef": "#n"}),
        5 if !recursive => json!({ "$ref": (["#n", "a#n", "#/$defs/n"][rng.usize(..3)]) }),
        5 | 6 => json!({ "$ref": RESOURCES[rng.usize(..3)] }),
        7 | 8 => {
            json!({"type": "object", "properties": { NAMES[rng.usize(..2)]: inner(rng), NAMES[rng.usize(..2)]: inner(rng) }})
        }
        9 | 10 => json!({"type": ["array", "string"], "items": inner(rng)}),
        11 => json!({"anyOf": [inner(rng), inner(rng)]}),
        12 => json!({"oneOf": [inner(rng), inner(rng)]}),
        13 => json!({"allOf": [inner(rng)], "unevaluatedProperties": inner(rng)}),
        _ => json!({"allOf": [inner(rng), {"not": inner(rng)}]}),
    }
}

/// A random document in which more cases decide what is left over than are gone through.
pub fn left_over(rng: &mut Rng) -> Value {
    let mut all: Vec<Value> = (0..9)
        .map(|at| {
            let name = format!("k{at}");
            json!({"anyOf": [{"properties": {&name: {"type": "string"}}}, {"properties": {&name: {"type": "null"}}}]})
        })
        .collect();
    all.push(json!({"$ref": "#/$defs/p"}));
    let seen = |rng: &mut Rng| json!({ "properties": named(rng, &NAMES[..2], 0) });
    let p = if rng.bool() { json!({"$ref": "#/$defs/q"}) } else { seen(rng) };
    json!({
        "type": "object", "$ref": "#/$defs/whole",
        "$defs": {"p": p, "q": seen(rng), "whole": {"allOf": all, "unevaluatedProperties": schema(rng, 0)}}
    })
}

/// A document with one of the schemas in it replaced.
pub fn replaced(rng: &mut Rng, document: &Value) -> Value {
    let mut places = Vec::new();
    inside(document, String::new(), &mut places);
    let mut replaced = document.clone();
    if !places.is_empty()
        && let Some(place) = replaced.pointer_mut(&places[rng.usize(..places.len())])
        && let Value::Object(members) = place
    {
        let anchors = ["$id", "$defs", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$schema"];
        members.retain(|keyword, _| anchors.contains(&keyword.as_str()));
        let recursive = document.get("$schema").is_some();
        // Only where there are resources can something lead to them.
        let new = if document.get("$id").is_some() { node(rng, 1, recursive) } else { schema(rng, 1) };
        if let Value::Object(new) = new {
            members.extend(new);
        }
    }
    replaced
}

/// Where the schemas in a document are.
fn inside(value: &Value, at: String, places: &mut Vec<String>) {
    let Value::Object(members) = value else { return };
    places.push(at.clone());
    for (keyword, inner) in members {
        match inner {
            Value::Object(schemas) if matches!(keyword.as_str(), "properties" | "$defs") => {
                schemas
                    .iter()
                    .for_each(|(name, schema)| inside(schema, format!("{at}/{keyword}/{name}"), places));
            }
            Value::Array(schemas) if keyword != "type" => {
                for (number, schema) in schemas.iter().enumerate() {
                    inside(schema, format!("{at}/{keyword}/{number}"), places);
                }
            }
            inner => inside(inner, format!("{at}/{keyword}"), places),
        }
    }
}
