//! Schemas as people write them, against small changes of themselves.

use crate::{mutate, rewritten::turned_around};
use prombus_schema::{BUDGET, Budget, Comparison, Compat, Policy, Schema, Verdict, check, check_within};
use serde_json::{Map, Value, json};

fn schemas() -> Vec<Value> {
    vec![
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
            "required": ["processId", "host", "status"],
            "properties": {
                "processId": {"type": "string", "minLength": 1, "maxLength": 64}, "host": {"type": "string", "format": "hostname"},
                "pid": {"type": "integer", "minimum": 1}, "cpu_pct": {"type": "number", "minimum": 0, "maximum": 100},
                "status": {"enum": ["alive", "late", "gone"]}, "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "children": {"type": "array", "items": {"$ref": "#"}}
            }
        }),
        json!({
            "$schema": "http://json-schema.org/draft-07/schema#", "definitions": {
                "step": {"oneOf": [
                    {"type": "object", "required": ["run"], "properties": {"run": {"type": "string"}, "shell": {"enum": ["bash", "sh"]}}, "additionalProperties": false},
                    {"type": "object", "required": ["uses"], "properties": {"uses": {"type": "string", "pattern": "^[\\w.-]+/[\\w.-]+@.+$"}, "with": {"type": "object"}}, "additionalProperties": false}
                ]},
                "job": {"type": "object", "required": ["steps"], "properties": {"needs": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "uniqueItems": true, "minItems": 1}]}, "steps": {"type": "array", "items": {"$ref": "#/definitions/step"}, "minItems": 1}, "timeout": {"type": "integer", "minimum": 1, "maximum": 360}}}
            },
            "type": "object", "required": ["jobs"], "properties": {"name": {"type": "string"}, "jobs": {"type": "object", "patternProperties": {"^[a-z_][a-z0-9_-]*$": {"$ref": "#/definitions/job"}}, "additionalProperties": false, "minProperties": 1}}
        }),
        json!({
            "type": "object", "required": ["kind"], "properties": {"kind": {"enum": ["card", "cash", "transfer"]}, "amount": {"type": "number", "exclusiveMinimum": 0, "multipleOf": 0.01}},
            "allOf": [
                {"if": {"properties": {"kind": {"const": "card"}}}, "then": {"required": ["number"], "properties": {"number": {"pattern": "^[0-9]{12,19}$"}}}},
                {"if": {"properties": {"kind": {"const": "transfer"}}}, "then": {"required": ["iban"], "properties": {"iban": {"type": "string", "minLength": 15, "maxLength": 34}}}}
            ],
            "dependentRequired": {"number": ["expires"]}, "unevaluatedProperties": {"type": ["string", "number"]}
        }),
        json!({
            "$ref": "#/$defs/expression", "$defs": {
                "expression": {"anyOf": [{"type": ["number", "string", "boolean", "null"]}, {"$ref": "#/$defs/call"}]},
                "call": {"type": "array", "prefixItems": [{"enum": ["+", "-", "if"]}], "items": {"$ref": "#/$defs/expression"}, "minItems": 2, "maxItems": 4}
            }
        }),
        json!({
            "$id": "https://example.com/page", "$ref": "envelope", "$defs": {
                "body": {"$dynamicAnchor": "body", "type": "object", "required": ["lines"], "properties": {"lines": {"type": "array", "items": {"$ref": "envelope"}, "maxItems": 3}, "note": {"type": "string", "maxLength": 9}}},
                "envelope": {"$id": "envelope", "type": "object", "required": ["id", "body"], "properties": {"id": {"type": "integer"}, "body": {"$dynamicRef": "#body"}}, "$defs": {"any": {"$dynamicAnchor": "body"}}}
            }
        }),
        json!({
            "$schema": "https://json-schema.org/draft/2019-09/schema", "$id": "https://example.com/marked", "$recursiveAnchor": true, "$ref": "tree",
            "required": ["mark"], "properties": {"mark": {"type": "integer", "minimum": 1}}, "$defs": {
                "tree": {"$id": "tree", "$recursiveAnchor": true, "type": "object", "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$recursiveRef": "#"}}}}
            }
        }),
    ]
}

fn verdict(old: &Schema, new: &Schema, policy: Policy) -> Verdict {
    check(&Comparison { old, new, compat: Compat::Backward, policy })
}

#[test]
fn nothing_is_undecided() {
    for document in schemas() {
        let schema = Schema::from_value(&document).unwrap();
        let mutants = mutate::mutations(&document);
        assert!(mutants.len() > 3, "{document}");
        for (kind, mutant) in mutants {
            let changed = Schema::from_value(&mutant).unwrap();
            for policy in [Policy::Lenient, Policy::Strict] {
                let (there, back) = (verdict(&schema, &changed, policy), verdict(&changed, &schema, policy));
                for found in [&there, &back] {
                    assert!(!matches!(found, Verdict::Unknown(_)), "{kind}: {found:?}\n  {mutant}");
                }
                let same = matches!(kind, "same" | "reference inlined");
                assert!(
                    !same || (there.is_compatible() && back.is_compatible()),
                    "{kind}: {there:?} {back:?}\n  {mutant}"
                );
                let grown = kind == "enum grown";
                assert!(!grown || !back.is_compatible(), "{kind}\n  {mutant}");
            }
        }
    }
}

#[test]
fn the_order_of_members_does_not_matter() {
    for document in schemas() {
        let schema = Schema::from_value(&document).unwrap();
        let turned = Schema::parse(&turned_around(&document)).unwrap();
        for (kind, mutant) in mutate::mutations(&document) {
            let changed = Schema::from_value(&mutant).unwrap();
            let changed_and_turned = Schema::parse(&turned_around(&mutant)).unwrap();
            for policy in [Policy::Lenient, Policy::Strict] {
                assert_eq!(
                    verdict(&schema, &changed, policy),
                    verdict(&turned, &changed_and_turned, policy),
                    "{kind}"
                );
            }
        }
    }
}

#[test]
fn two_hundred_properties() {
    let properties = |count: usize, most: usize| -> Map<String, Value> {
        let property = |at: usize| {
            (format!("field_{at}"), json!({"type": ["string", "integer"], "maxLength": most, "minimum": at}))
        };
        (0..count).map(property).collect()
    };
    let object = |count, most| {
        Schema::from_value(
            &json!({"type": "object", "properties": properties(count, most), "required": ["field_7"]}),
        )
        .unwrap()
    };
    let (old, new) = (object(200, 10), object(201, 11));
    // A quarter of what a check may take.
    let few = Budget { steps: BUDGET.steps / 4, ..BUDGET };
    let ask = |old, new| {
        check_within(&Comparison { old, new, compat: Compat::Backward, policy: Policy::Lenient }, few)
    };
    assert_eq!(ask(&old, &new), Verdict::Proved);
    assert!(matches!(ask(&new, &old), Verdict::Refuted(_)));
}
