//! Short schemas of which a validator would be larger than any memory: they are refused before one is made.

use prombus_schema::{Schema, SchemaError};
use serde_json::{Map, Value, json};

/// So many levels that whoever goes all ways never comes to an end.
const LEVELS: usize = 40;

const DRAFT_7: &str = "http://json-schema.org/draft-07/schema#";
const DRAFT_2019: &str = "https://json-schema.org/draft/2019-09/schema";

/// What is wrong with a schema: where, and what.
fn refused(schema: &Value) -> (String, String) {
    match Schema::from_value(schema) {
        Err(SchemaError::Invalid { path, message }) => (path, message),
        other => panic!("{other:?}\n  {schema}"),
    }
}

#[track_caller]
fn is_too_large(schema: &Value, below: &str) {
    let (path, message) = refused(schema);
    assert!(message.contains("too large"), "{path}: {message}");
    assert!(path.starts_with(below), "{path}: {message}");
}

fn reference(to: &str) -> Value {
    json!({ "$ref": to })
}

/// Definitions of which each refers to the next one.
fn chain(levels: usize, step: &dyn Fn(Value) -> Value) -> Value {
    let mut definitions: Map<String, Value> = (0..levels)
        .map(|level| (format!("d{level}"), step(reference(&format!("#/$defs/d{}", level + 1)))))
        .collect();
    definitions.insert(format!("d{levels}"), json!({"type": "object"}));
    json!({"$ref": "#/$defs/d0", "$defs": definitions})
}

/// Pairs of resources, of which each refers to both of the next level.
fn pairs(levels: usize, more: &Value, step: &dyn Fn([Value; 2]) -> Value) -> Map<String, Value> {
    let resource = |level: usize, side: &str| {
        let next = ["a", "b"].map(|side| reference(&format!("{side}{}", level + 1)));
        let mut resource = if level < levels { step(next) } else { json!({}) };
        let members = resource.as_object_mut().unwrap();
        members.extend(more.as_object().unwrap().clone());
        members.insert("$id".to_owned(), json!(format!("{side}{level}")));
        (format!("{side}{level}"), resource)
    };
    (0..=levels).flat_map(|level| ["a", "b"].map(|side| resource(level, side))).collect()
}

#[test]
fn references_in_one_resource_are_followed_once() {
    let ways: [&dyn Fn(Value) -> Value; 11] = [
        &|next| json!({"allOf": [next, next]}),
        &|next| json!({"anyOf": [next, next]}),
        &|next| json!({"oneOf": [next, next]}),
        &|next| json!({"allOf": [{"not": next}, {"not": next}]}),
        &|next| json!({"if": next, "then": next, "else": next}),
        &|next| json!({"dependentSchemas": {"p": next, "q": next}}),
        &|next| json!({"properties": {"p": next, "q": next}, "additionalProperties": next}),
        &|next| json!({"patternProperties": {"p": next, "q": next}, "propertyNames": next}),
        &|next| json!({"prefixItems": [next, next], "items": next}),
        &|next| json!({"contains": next, "items": next}),
        &|next| json!({"allOf": [next, next], "properties": {"p": reference("#"), "q": next}}),
    ];
    for way in ways {
        let schema = chain(LEVELS, way);
        Schema::from_value(&schema).unwrap_or_else(|error| panic!("{error}\n  {schema}"));
    }
    let definitions: Map<String, Value> = (0..=LEVELS)
        .map(|level| {
            let next = json!({"$dynamicRef": format!("#d{}", (level + 1).min(LEVELS))});
            let all = if level < LEVELS { json!([next, next]) } else { json!([true]) };
            (format!("d{level}"), json!({"$dynamicAnchor": format!("d{level}"), "allOf": all}))
        })
        .collect();
    Schema::from_value(&json!({"$dynamicRef": "#d0", "$defs": definitions})).unwrap();
}

#[test]
fn ways_through_resources_are_counted() {
    let both = |[one, other]: [Value; 2]| json!({"properties": {"p": one, "q": other}});
    let all = |next: [Value; 2]| json!({ "allOf": next });
    let modern = |definitions| json!({"$id": "https://example.com/", "$ref": "a0", "$defs": definitions});
    for step in [&both as &dyn Fn([Value; 2]) -> Value, &all] {
        Schema::from_value(&modern(pairs(8, &json!({}), step))).unwrap();
        is_too_large(&modern(pairs(LEVELS, &json!({}), step)), "/$defs/");
    }
    let old = json!({"$schema": DRAFT_7, "$id": "https://example.com/", "allOf": [reference("a0")], "definitions": pairs(LEVELS, &json!({}), &both)});
    is_too_large(&old, "/definitions/");
}

#[test]
fn a_validator_knows_its_size() {
    let both = |[one, other]: [Value; 2]| json!({"properties": {"p": one, "q": other}});
    let bytes = |levels| {
        let schema =
            json!({"$id": "https://example.com/", "$ref": "a0", "$defs": pairs(levels, &json!({}), &both)});
        Schema::from_value(&schema).unwrap().validator().bytes()
    };
    let (small, large) = (bytes(2), bytes(8));
    assert!(small < 20_000 && large > 50 * small, "{small} {large}");
}

#[test]
fn ways_to_dynamic_anchors_are_counted() {
    let steps = |last: Value| move |[one, other]: [Value; 2]| json!({"properties": {"p": one, "q": other, "r": last}});
    let dynamic = pairs(LEVELS, &json!({"$dynamicAnchor": "n"}), &steps(json!({"$dynamicRef": "#n"})));
    is_too_large(&json!({"$id": "https://example.com/", "$ref": "a0", "$defs": dynamic}), "/$defs/");
    let recursive = pairs(LEVELS, &json!({"$recursiveAnchor": true}), &steps(json!({"$recursiveRef": "#"})));
    let recursive = json!({"$schema": DRAFT_2019, "$id": "https://example.com/", "$recursiveAnchor": true, "$ref": "a0", "$defs": recursive});
    is_too_large(&recursive, "/$defs/");
}

/// A circle is left where it closes, but there are as many ways around as orders.
#[test]
fn ways_in_circles_are_counted() {
    let circles = |count: usize, id: bool, step: &dyn Fn(Vec<Value>) -> Value| {
        let definition = |at: usize| {
            let to = |next| if id { format!("d{next}") } else { format!("#/$defs/d{next}") };
            let mut definition = step((0..count).map(|next| reference(&to(next))).collect());
            if id {
                definition.as_object_mut().unwrap().insert("$id".to_owned(), json!(format!("d{at}")));
            }
            (format!("d{at}"), definition)
        };
        let first = if id { "d0" } else { "#/$defs/d0" };
        json!({"$id": "https://example.com/", "$ref": first, "$defs": (0..count).map(definition).collect::<Map<_, _>>()})
    };
    let tuple = |all: Vec<Value>| json!({ "prefixItems": all });
    Schema::from_value(&circles(5, true, &tuple)).unwrap();
    Schema::from_value(&circles(50, false, &tuple)).unwrap();
    is_too_large(&circles(15, true, &tuple), "/$defs/d");
    let left_over =
        |all: Vec<Value>| json!({"additionalProperties": {"allOf": all, "unevaluatedProperties": false}});
    Schema::from_value(&circles(2, false, &left_over)).unwrap();
    is_too_large(&circles(15, false, &left_over), "/$defs/d");
}

#[test]
fn ways_of_unevaluated_keywords_are_counted() {
    let properties = |next: Value| json!({"additionalProperties": {"allOf": [next, next], "unevaluatedProperties": false}});
    let items = |next: Value| json!({"contains": {"anyOf": [next, next], "unevaluatedItems": false}});
    let matching = |next: Value| json!({"patternProperties": {"^p": {"if": next, "then": next, "unevaluatedProperties": true}}});
    let dependent = |next: Value| json!({"additionalProperties": {"dependentSchemas": {"p": next, "q": next}, "unevaluatedProperties": true}});
    let ways: [&dyn Fn(Value) -> Value; 4] = [&properties, &items, &matching, &dependent];
    for way in ways {
        Schema::from_value(&chain(6, way)).unwrap();
        is_too_large(&chain(LEVELS, way), "/$defs/d");
    }
    let alone = |next: Value| json!({"allOf": [next, next], "unevaluatedProperties": false});
    is_too_large(&chain(LEVELS, &alone), "/$defs/d");
    let large: Vec<Value> = (0..5_000).map(|at| json!({ "minimum": at })).collect();
    let many: Vec<Value> = (0..500)
        .map(|at| json!({"anyOf": [reference("#/$defs/d")], "minProperties": at, "unevaluatedProperties": false}))
        .collect();
    is_too_large(
        &json!({"anyOf": many, "$defs": {"d": {"additionalProperties": {"allOf": large}}}}),
        "/$defs/d",
    );
}

#[test]
fn what_is_made_one_inside_the_other_is_counted() {
    let inside = |next: Value| {
        let nested = (0..100).fold(
            json!({"allOf": [next], "unevaluatedProperties": false}),
            |inner, _| json!({ "items": inner }),
        );
        json!({ "additionalProperties": nested })
    };
    let (path, message) = refused(&chain(80, &inside));
    assert!(path.starts_with("/$defs/d") && message.contains("one inside the other"), "{path}: {message}");
}

#[test]
fn what_is_kept_many_times_is_counted() {
    let large: Vec<Value> = (0..20_000).map(|at| json!({ "minimum": at })).collect();
    let nested = |levels| (0..levels).fold(json!({ "allOf": large }), |inner, _| json!({ "not": inner }));
    Schema::from_value(&nested(2)).unwrap();
    is_too_large(&nested(60), "");
    let values: Vec<Value> = (0..100_000).map(Value::from).collect();
    for keyword in ["enum", "examples"] {
        let mut schema = chain(
            8,
            &|next| json!({"additionalProperties": {"allOf": [next, next], "unevaluatedProperties": false}}),
        );
        schema["$defs"]["d8"] = json!({"additionalProperties": {keyword: values}});
        is_too_large(&schema, "/$defs/d");
    }
    // References that wait to be followed know all those that they are inside of.
    let count = 9_007;
    let mut wide = chain(count, &|next| json!({ "items": next }));
    let others = |at: usize| (format!("e{at}"), json!({}));
    let all: Vec<Value> = (0..count).map(|at| reference(&format!("#/$defs/e{at}"))).collect();
    let definitions = wide["$defs"].as_object_mut().unwrap();
    definitions.extend((0..count).map(others));
    definitions.insert(format!("d{count}"), json!({ "prefixItems": all }));
    is_too_large(&wide, "/$defs/");
}

#[test]
fn identifiers_and_anchors_are_counted() {
    let long = json!({"$id": format!("https://example.com/{}", "a".repeat(3_000)), "$ref": "#/$defs/d", "$defs": {"d": {}}});
    assert!(refused(&long).1.contains("`$id` is longer than"));
    let nested =
        (0..100).fold(json!({}), |inner, _| json!({"$id": format!("{}/", "a".repeat(50)), "items": inner}));
    let (path, message) = refused(&nested);
    assert!(
        path.starts_with("/items/items") && message.contains("`$id` is longer than"),
        "{path}: {message}"
    );
    let anchors: Vec<Value> = (0..12_000).map(|at| json!({"$anchor": format!("a{at}")})).collect();
    let resources = (0..60).fold(
        json!({ "allOf": anchors }),
        |inner, at| json!({"$id": format!("r{at}"), "$anchor": "n", "items": inner}),
    );
    let all: Vec<Value> = (0..60).map(|at| reference(&format!("r{at}#n"))).chain([resources]).collect();
    is_too_large(&json!({"$id": "https://example.com/", "allOf": all}), "");
}

#[test]
fn patterns_are_counted_by_what_they_take_when_they_are_compiled() {
    let of = |count: usize| {
        let named = |at: usize| (format!("p{at}"), json!({"pattern": format!("(.{{0,60}}a{at}){{1,8}}$")}));
        json!({"properties": (0..count).map(named).collect::<Map<_, _>>()})
    };
    let some = Schema::from_value(&of(30)).unwrap();
    assert!(some.validator().bytes() > 15_000_000, "{}", some.validator().bytes());
    let (path, message) = refused(&of(300));
    assert!(path.is_empty() && message.contains("patterns are too large"), "{path}: {message}");
    let shared: Vec<Value> =
        (0..300).map(|at| json!({"pattern": "(.{0,60}a){1,8}$", "minLength": at})).collect();
    Schema::from_value(&json!({"anyOf": shared})).unwrap();
    let (_, message) = refused(&json!({"pattern": "(.{0,100}a){1,50}$"}));
    assert!(message.contains("regex"), "{message}");
}
