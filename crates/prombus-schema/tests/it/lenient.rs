//! What `lenient` reads differently from the letter of the specification.

use prombus_schema::{Comparison, Compat, Policy, Schema, Verdict, check};
use serde_json::{Value, json};

fn verdicts(old: &Value, new: &Value) -> (Verdict, Verdict) {
    let (old, new) = (Schema::from_value(old).unwrap(), Schema::from_value(new).unwrap());
    let ask = |policy| check(&Comparison { old: &old, new: &new, compat: Compat::Backward, policy });
    (ask(Policy::Lenient), ask(Policy::Strict))
}

/// Leniently compatible, and not by the letter.
fn forgiven(old: Value, new: Value) {
    let (lenient, strict) = verdicts(&old, &new);
    assert_eq!(lenient, Verdict::Proved, "{old} in {new}");
    assert!(matches!(strict, Verdict::Refuted(_)), "{old} in {new}: {strict:?}");
}

/// Not compatible either way.
fn refused(old: Value, new: Value) {
    let (lenient, strict) = verdicts(&old, &new);
    assert!(matches!(lenient, Verdict::Refuted(_)), "{old} in {new}: {lenient:?}");
    assert!(matches!(strict, Verdict::Refuted(_)), "{old} in {new}: {strict:?}");
}

fn object(properties: Value) -> Value {
    json!({"type": "object", "properties": properties})
}

#[test]
fn an_optional_property_may_be_added() {
    forgiven(object(json!({"a": true})), object(json!({"a": true, "b": {"type": "string"}})));
    forgiven(
        json!({"required": ["a"], "type": "object"}),
        json!({"type": "object", "properties": {"b": {"type": "null"}}}),
    );
    let inside = |inner: Value| object(json!({"in": {"type": "array", "items": inner}}));
    forgiven(inside(object(json!({"a": true}))), inside(object(json!({"a": true, "b": {"type": "null"}}))));
}

#[test]
fn the_receiver_takes_what_it_does_not_name_unless_it_closes_itself() {
    let (old, new) = (object(json!({"a": true, "b": true})), object(json!({"a": true})));
    assert_eq!(verdicts(&old, &new).0, Verdict::Proved);
    let mut closed = new.clone();
    closed["additionalProperties"] = json!(false);
    refused(old, closed.clone());
    forgiven(new, closed);
}

#[test]
fn a_schema_that_speaks_of_other_properties_has_them() {
    for (keyword, said) in [
        ("additionalProperties", json!(true)),
        ("propertyNames", json!({"minLength": 1})),
        ("unevaluatedProperties", json!(true)),
    ] {
        let mut old = object(json!({"a": true}));
        old[keyword] = said;
        refused(old, object(json!({"a": true, "b": {"type": "string"}})));
    }
    let mut patterns = object(json!({"a": true}));
    patterns["patternProperties"] = json!({"^x-": true});
    forgiven(patterns.clone(), object(json!({"b": {"type": "string"}})));
    refused(patterns, object(json!({"x-b": {"type": "string"}})));
}

#[test]
fn a_schema_that_names_no_property_is_open() {
    refused(json!({"type": "object"}), json!({"type": "object", "maxProperties": 1}));
    refused(json!({"type": "object", "minProperties": 1}), json!({"type": "object", "minProperties": 2}));
    refused(json!(true), object(json!({"a": {"type": "null"}})));
    let mut more = object(json!({"a": true}));
    more["minProperties"] = json!(3);
    refused(more, json!({"maxProperties": 3}));
}

#[test]
fn names_are_those_of_all_schemas_in_the_same_place() {
    let old = json!({"type": "object", "allOf": [object(json!({"in": object(json!({"a": true}))})), object(json!({"in": {"properties": {"b": true}, "required": ["a", "b"]}}))]});
    refused(old.clone(), object(json!({"in": {"properties": {"b": {"type": "null"}}}})));
    forgiven(old, object(json!({"in": {"properties": {"c": {"type": "null"}}}})));
    let choice = json!({"oneOf": [object(json!({"a": {"type": "null"}})), {"type": "object", "properties": {"b": true}, "required": ["b"], "not": {"properties": {"a": {"type": "null"}}}}]});
    refused(choice.clone(), object(json!({"b": {"type": "null"}})));
    forgiven(choice, object(json!({"c": {"type": "null"}})));
}

#[test]
fn a_required_property_or_another_type_is_a_break() {
    let old = object(json!({"a": {"type": "string"}}));
    let mut required = old.clone();
    required["required"] = json!(["a"]);
    refused(old.clone(), required);
    refused(old, object(json!({"a": {"type": "integer"}})));
}
