//! References that mean different things by the way on which they are reached.

use prombus_schema::{Comparison, Compat, Policy, Schema, Verdict, check, example};
use serde_json::{Value, json};

fn read(schema: &Value) -> Schema {
    Schema::from_value(schema).unwrap_or_else(|error| panic!("{error}: {schema}"))
}

fn verdict(old: &Value, new: &Value) -> Verdict {
    check(&Comparison { old: &read(old), new: &read(new), compat: Compat::Backward, policy: Policy::Strict })
}

/// Each schema takes something that the other one refuses.
fn different(one: &Value, other: &Value) {
    for (old, new) in [(one, other), (other, one)] {
        let found = verdict(old, new);
        assert!(matches!(found, Verdict::Refuted(_)), "{old} in {new}: {found:?}");
    }
}

/// Both schemas take the same documents.
fn same(one: &Value, other: &Value) {
    for (old, new) in [(one, other), (other, one)] {
        assert_eq!(verdict(old, new), Verdict::Proved, "{old} in {new}");
    }
}

/// A list whose items are what the schema that refers to it says.
fn list() -> Value {
    json!({
        "$id": "list", "type": "array", "items": {"$dynamicRef": "#items"},
        "$defs": {"items": {"$dynamicAnchor": "items"}}
    })
}

fn list_of(kind: &str) -> Value {
    json!({
        "$id": "https://example.com/root", "$ref": "list",
        "$defs": {"item": {"$dynamicAnchor": "items", "type": kind}, "list": list()}
    })
}

#[test]
fn what_a_dynamic_reference_leads_to_is_compared() {
    different(&list_of("string"), &list_of("integer"));
    same(&list_of("string"), &json!({"type": "array", "items": {"type": "string"}}));
    same(&list_of("string"), &list_of("string"));
}

#[test]
fn one_place_has_a_meaning_for_each_way_to_it() {
    let of = |name: &str, kind: &str| json!({"$id": name, "$ref": "list", "$defs": {"item": {"$dynamicAnchor": "items", "type": kind}}});
    let either = json!({
        "$id": "https://example.com/root", "oneOf": [{"$ref": "a"}, {"$ref": "b"}],
        "$defs": {"a": of("a", "string"), "b": of("b", "integer"), "list": list()}
    });
    assert!(matches!(verdict(&either, &json!({"type": "string"})), Verdict::Refuted(_)));
    assert!(matches!(verdict(&either, &json!({"type": "array", "minItems": 1})), Verdict::Proved));
    let example = example(&read(&either)).unwrap();
    assert!(read(&either).validator().is_valid(&example), "{example}");
}

#[test]
fn a_tree_can_be_extended() {
    let tree = |strict: Value, data: Value| {
        json!({
            "$id": "https://example.com/strict", "$dynamicAnchor": "node", "$ref": "tree",
            "unevaluatedProperties": strict,
            "$defs": {"tree": {
                "$id": "tree", "$dynamicAnchor": "node", "type": "object",
                "properties": {"data": data, "children": {"type": "array", "items": {"$dynamicRef": "#node"}}}
            }}
        })
    };
    let (strict, open) = (tree(json!(false), json!(true)), tree(json!(true), json!(true)));
    assert_eq!(verdict(&strict, &open), Verdict::Proved);
    assert!(matches!(verdict(&open, &strict), Verdict::Refuted(_)));
    let plain = |data: Value| {
        json!({
            "type": "object", "additionalProperties": false,
            "properties": {"data": data, "children": {"type": "array", "items": {"$ref": "#"}}}
        })
    };
    same(&strict, &plain(json!(true)));
    different(
        &tree(json!(false), json!({"type": "string"})),
        &tree(json!(false), json!({"type": "integer"})),
    );
}

#[test]
fn what_a_recursive_reference_leads_to_is_compared() {
    let tree = |rest: Value| {
        json!({
            "$schema": "https://json-schema.org/draft/2019-09/schema", "$id": "https://example.com/strict",
            "$recursiveAnchor": true, "$ref": "tree", "required": ["a"], "properties": {"a": rest},
            "$defs": {"tree": {
                "$id": "tree", "$recursiveAnchor": true, "type": "object",
                "properties": {"children": {"type": "array", "items": {"$recursiveRef": "#"}}}
            }}
        })
    };
    different(&tree(json!({"type": "string"})), &tree(json!({"type": "integer"})));
    let plain = json!({
        "type": "object", "required": ["a"],
        "properties": {"a": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#"}}}
    });
    same(&tree(json!({"type": "string"})), &plain);
}

#[test]
fn a_schema_of_schemas_can_be_narrowed() {
    let metaschema = json!({"$ref": "https://json-schema.org/draft/2020-12/schema"});
    let narrower = json!({
        "$id": "https://example.com/narrow", "$dynamicAnchor": "meta",
        "$ref": "https://json-schema.org/draft/2020-12/schema", "not": {"required": ["$comment"]}
    });
    assert_eq!(verdict(&narrower, &metaschema), Verdict::Proved);
    let back = verdict(&metaschema, &narrower);
    assert!(matches!(back, Verdict::Refuted(_)), "{back:?}");
    // Only the schemas inside differ.
    let outside = json!({"allOf": [metaschema, {"not": {"type": "object", "required": ["$comment"]}}]});
    let found = verdict(&outside, &narrower);
    assert!(matches!(found, Verdict::Refuted(_)), "{found:?}");
}

/// More cases of what is left over than are gone through, of which one reference decides.
fn many_cases(base: Value) -> Value {
    let case = |at: usize| json!({"anyOf": [{"properties": {format!("k{at}"): {"type": "string"}}}, {"properties": {format!("k{at}"): {"type": "null"}}}]});
    let mut all = vec![json!({"$ref": "#/$defs/base"})];
    all.extend((0..9).map(case));
    json!({
        "$ref": "#/$defs/main",
        "$defs": {"base": base, "main": {"allOf": all, "unevaluatedProperties": false}}
    })
}

#[test]
fn what_is_left_over_is_compared_by_what_references_mean() {
    let (old, new) = (many_cases(json!({"properties": {"a": {"type": "string"}}})), many_cases(json!({})));
    let document = json!({"a": "x"});
    assert!(read(&old).validator().is_valid(&document) && !read(&new).validator().is_valid(&document));
    assert_ne!(verdict(&old, &new), Verdict::Proved);
    same(&old, &old);
    // The same in other words.
    let renamed = old.to_string().replace("base", "ground").replace("main", "whole");
    same(&old, &serde_json::from_str(&renamed).unwrap());
}
