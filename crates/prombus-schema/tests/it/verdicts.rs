//! What the verdict is, keyword by keyword.

use prombus_schema::{Comparison, Compat, Policy, Schema, Verdict, check};
use serde_json::{Value, json};

fn verdict(old: &Value, new: &Value, policy: Policy) -> Verdict {
    let read =
        |schema: &Value| Schema::from_value(schema).unwrap_or_else(|error| panic!("{error}: {schema}"));
    check(&Comparison { old: &read(old), new: &read(new), compat: Compat::Backward, policy })
}

/// The first schema is inside the second one, and not the other way around.
fn narrower(narrow: Value, wide: Value) {
    assert_eq!(verdict(&narrow, &wide, Policy::Strict), Verdict::Proved, "{narrow} in {wide}");
    let back = verdict(&wide, &narrow, Policy::Strict);
    assert!(matches!(back, Verdict::Refuted(_)), "{wide} in {narrow}: {back:?}");
}

/// Both schemas take the same documents.
fn same(one: Value, other: Value) {
    for (old, new) in [(&one, &other), (&other, &one)] {
        assert_eq!(verdict(old, new, Policy::Strict), Verdict::Proved, "{old} in {new}");
    }
}

/// Each schema takes something that the other one refuses.
fn different(one: Value, other: Value) {
    for (old, new) in [(&one, &other), (&other, &one)] {
        let found = verdict(old, new, Policy::Strict);
        assert!(matches!(found, Verdict::Refuted(_)), "{old} in {new}: {found:?}");
    }
}

#[test]
fn types_and_values() {
    narrower(json!({"type": "integer"}), json!({"type": "number"}));
    narrower(json!({"type": "string"}), json!({"type": ["string", "null"]}));
    narrower(json!(false), json!({"type": "null"}));
    narrower(json!({"type": "null"}), json!(true));
    narrower(json!({"const": 1.0}), json!({"type": "integer"}));
    narrower(json!({"enum": ["a", 1]}), json!({"enum": [1.0, "a", null]}));
    same(json!({"enum": [1, "a"]}), json!({"anyOf": [{"const": "a"}, {"const": 1.0}]}));
    same(json!({"type": "boolean"}), json!({"enum": [true, false]}));
    same(json!({"const": {"a": 1, "b": [2.0]}}), json!({"const": {"b": [2], "a": 1.0}}));
    different(json!({"type": "string"}), json!({"type": "integer"}));
}

#[test]
fn numbers_are_exact() {
    narrower(json!({"type": "number", "minimum": 10}), json!({"type": "number", "exclusiveMinimum": 9.9}));
    narrower(json!({"type": "integer", "exclusiveMinimum": 0}), json!({"type": "integer", "minimum": 0}));
    same(json!({"type": "integer", "exclusiveMinimum": 0}), json!({"type": "integer", "minimum": 1}));
    same(json!({"type": "integer", "minimum": 0.5, "maximum": 1.5}), json!({"const": 1}));
    narrower(json!({"type": "number", "multipleOf": 0.3}), json!({"type": "number", "multipleOf": 0.1}));
    narrower(json!({"type": "number", "multipleOf": 10}), json!({"type": "integer"}));
    same(json!({"allOf": [{"multipleOf": 4}, {"multipleOf": 6}]}), json!({"multipleOf": 12}));
    same(json!({"type": "integer"}), json!({"type": "number", "multipleOf": 1}));
    different(json!({"type": "number", "multipleOf": 7}), json!({"type": "number", "multipleOf": 13}));
    narrower(
        json!({"type": "integer", "minimum": 1, "maximum": 3, "not": {"const": 2}}),
        json!({"enum": [1, 2, 3]}),
    );
}

#[test]
fn numbers_beyond_doubles_are_compared() {
    let bound =
        |maximum: &str| Schema::parse(&format!(r#"{{"type": "number", "maximum": {maximum}}}"#)).unwrap();
    let one_way = |old: &Schema, new: &Schema| {
        check(&Comparison { old, new, compat: Compat::Backward, policy: Policy::Strict })
    };
    assert_eq!(one_way(&bound("1e400"), &bound("1.0000000001e400")), Verdict::Proved);
    assert_eq!(one_way(&bound("9007199254740992"), &bound("9007199254740993")), Verdict::Proved);
    assert!(matches!(one_way(&bound("1e400"), &bound("1e300")), Verdict::Refuted(_) | Verdict::Unknown(_)));
    // No double is between these two, so that no document can show the difference.
    assert!(matches!(one_way(&bound("1e400"), &bound("9e399")), Verdict::Unknown(_)));
}

#[test]
fn texts() {
    narrower(json!({"type": "string", "minLength": 3}), json!({"type": "string", "minLength": 2}));
    narrower(json!({"type": "string", "maxLength": 2}), json!({"type": "string", "maxLength": 3}));
    narrower(
        json!({"type": "string", "pattern": "^[a-f]{4}$"}),
        json!({"type": "string", "pattern": "^[a-z]+$"}),
    );
    same(json!({"pattern": "^[a-z]{2}$"}), json!({"pattern": "^[a-z]+$", "minLength": 2, "maxLength": 2}));
    same(json!({"pattern": "[a-z]*"}), json!(true));
    same(json!({"type": "string", "pattern": "^(red|green)$"}), json!({"enum": ["red", "green"]}));
    same(json!({"type": "string", "maxLength": 0}), json!({"const": ""}));
    narrower(json!({"type": "string", "format": "date"}), json!({"type": "string"}));
    different(json!({"type": "string", "format": "date"}), json!({"type": "string", "format": "ipv4"}));
    same(json!({"format": "date", "type": "string"}), json!({"type": "string", "format": "date"}));
    same(json!({"format": "colour"}), json!(true));
}

#[test]
fn a_pattern_with_look_around_is_undecided() {
    let verdict = verdict(&json!({"pattern": "^(?=a)b?"}), &json!({"pattern": "^(?=a)"}), Policy::Strict);
    let Verdict::Unknown(why) = verdict else { panic!("{verdict:?}") };
    assert_eq!((why[0].rule.as_str(), &why[0].counterexample), ("undecided", &None));
    assert!(why[0].message.contains("look-around"), "{}", why[0].message);
    same(json!({"pattern": "^(?=a)"}), json!({"pattern": "^(?=a)"}));
}

#[test]
fn arrays() {
    narrower(
        json!({"type": "array", "items": {"minimum": 10}}),
        json!({"type": "array", "items": {"minimum": 5}}),
    );
    narrower(
        json!({"prefixItems": [{"type": "string"}], "items": false}),
        json!({"prefixItems": [{"type": "string"}]}),
    );
    same(json!({"prefixItems": [true, false]}), json!({"maxItems": 1}));
    same(json!({"items": false}), json!({"maxItems": 0}));
    narrower(
        json!({"contains": {"minimum": 10, "type": "integer"}}),
        json!({"contains": {"minimum": 5, "type": "integer"}}),
    );
    same(json!({"contains": true}), json!({"minItems": 1}));
    narrower(json!({"contains": {"const": 1}, "minContains": 2}), json!({"contains": {"const": 1}}));
    narrower(
        json!({"contains": {"const": 1}, "maxContains": 1}),
        json!({"contains": {"const": 1}, "maxContains": 2}),
    );
    same(json!({"contains": {"const": 1}, "minContains": 0}), json!(true));
    narrower(json!({"uniqueItems": true}), json!(true));
    same(
        json!({"type": "array", "items": {"type": "boolean"}, "uniqueItems": true, "minItems": 3}),
        json!(false),
    );
    same(
        json!({"uniqueItems": true, "items": {"type": "null"}}),
        json!({"maxItems": 1, "items": {"type": "null"}}),
    );
}

#[test]
fn what_is_excepted_does_not_make_the_others_known() {
    // The empty array is found first, and nothing refuses it; longer ones are refused. The same goes for objects.
    let excepted = |listed: Value| json!({"anyOf": [{"prefixItems": [{"type": "null"}, {"type": "null"}]}, {"enum": listed}]});
    narrower(excepted(json!([[1]])), json!(true));
    narrower(excepted(json!([[1]])), excepted(json!([[1], [2, 3]])));
    let found_at_random = json!({"anyOf": [
        {"type": "boolean"},
        {"prefixItems": [{"format": "date", "prefixItems": [{"exclusiveMinimum": 10, "type": "array"}, true]}, {"else": {"const": true, "type": "string"}, "minProperties": 0}]},
        {"enum": [11, {}, ["2024-02-29"]], "unevaluatedProperties": {"maxProperties": 2}},
    ]});
    narrower(found_at_random, json!(true));
    let properties = json!({"properties": {"a": {"type": "null"}, "b": {"type": "null"}}});
    narrower(json!({"anyOf": [properties, {"const": {"a": 1}}]}), json!(true));
}

#[test]
fn an_array_that_is_too_large_to_be_shown_may_be_there() {
    // One item is excepted, and the other one is larger than a value that is kept.
    let large = json!(vec![0; 20_000]);
    let one_of =
        json!({"type": "array", "prefixItems": [{"enum": [1, large]}], "minItems": 1, "maxItems": 1});
    let found = verdict(&one_of, &json!({"enum": [[1], [2]]}), Policy::Strict);
    assert!(matches!(found, Verdict::Unknown(_)), "{found:?}");
}

#[test]
fn a_long_array_of_items_that_are_not_known_may_be_there() {
    // Of the format only some texts are known, and none of them has the pattern, though others do.
    let item = json!({"type": "string", "format": "date", "pattern": "^1987-06"});
    for least in [1, 3_000] {
        let old = json!({"type": "array", "minItems": least, "items": item});
        let found = verdict(&old, &json!(false), Policy::Strict);
        assert!(matches!(found, Verdict::Unknown(_)), "{least}: {found:?}");
    }
    same(json!({"type": "array", "minItems": 3_000, "items": false}), json!(false));
}

#[test]
fn objects() {
    narrower(json!({"required": ["a", "b"]}), json!({"required": ["a"]}));
    narrower(
        json!({"properties": {"a": {"type": "integer"}}}),
        json!({"properties": {"a": {"type": "number"}}}),
    );
    narrower(json!({"properties": {"a": true}, "additionalProperties": false}), json!({"maxProperties": 1}));
    same(json!({"additionalProperties": false}), json!({"maxProperties": 0}));
    same(json!({"propertyNames": false}), json!({"maxProperties": 0}));
    narrower(json!({"propertyNames": {"minLength": 3}}), json!({"propertyNames": {"minLength": 2}}));
    same(
        json!({"propertyNames": {"enum": ["a"]}}),
        json!({"properties": {"a": true}, "additionalProperties": false}),
    );
    narrower(
        json!({"patternProperties": {"^a": {"type": "integer"}}}),
        json!({"properties": {"ab": {"type": "number"}}}),
    );
    same(
        json!({"patternProperties": {"": {"type": "null"}}}),
        json!({"additionalProperties": {"type": "null"}}),
    );
    narrower(json!({"dependentRequired": {"a": ["b", "c"]}}), json!({"dependentRequired": {"a": ["b"]}}));
    same(json!({"dependentRequired": {"a": ["b"]}}), json!({"dependentSchemas": {"a": {"required": ["b"]}}}));
    same(json!({"properties": {"a": false}, "required": ["a"]}), json!({"not": {"type": "object"}}));
    narrower(
        json!({"minProperties": 2, "propertyNames": {"enum": ["a", "b"]}}),
        json!({"required": ["a", "b"]}),
    );
    same(json!({"minProperties": 3, "propertyNames": {"enum": ["a", "b"]}, "type": "object"}), json!(false));
}

#[test]
fn combinations() {
    narrower(json!({"allOf": [{"type": "string"}, {"maxLength": 5}]}), json!({"type": "string"}));
    narrower(
        json!({"oneOf": [{"type": "integer"}, {"minimum": 2}]}),
        json!({"anyOf": [{"type": "integer"}, {"minimum": 2}]}),
    );
    same(json!({"not": {"not": {"type": "null"}}}), json!({"type": "null"}));
    same(json!({"if": {"type": "string"}, "then": {"maxLength": 3}}), json!({"maxLength": 3}));
    same(json!({"if": true, "then": {"type": "null"}, "else": {"type": "string"}}), json!({"type": "null"}));
    same(json!({"oneOf": [true, true]}), json!(false));
    narrower(
        json!({"oneOf": [{"properties": {"k": {"const": "a"}}, "required": ["k"]}]}),
        json!({"oneOf": [{"properties": {"k": {"const": "a"}}, "required": ["k"]}, {"type": "object", "properties": {"k": {"const": "b"}}, "required": ["k"]}]}),
    );
}

#[test]
fn what_is_left_over() {
    same(
        json!({"allOf": [{"properties": {"a": true}}], "unevaluatedProperties": false}),
        json!({"properties": {"a": true}, "additionalProperties": false}),
    );
    same(
        json!({"type": "object", "anyOf": [{"required": ["a"], "properties": {"a": true}}, {"required": ["b"], "properties": {"b": true}}], "unevaluatedProperties": false}),
        json!({"type": "object", "properties": {"a": true, "b": true}, "minProperties": 1, "additionalProperties": false}),
    );
    same(json!({"prefixItems": [true], "unevaluatedItems": false}), json!({"maxItems": 1}));
    same(
        json!({"contains": {"type": "string"}, "minContains": 0, "unevaluatedItems": {"type": "null"}}),
        json!({"items": {"type": ["string", "null"]}}),
    );
}

#[test]
fn nothing_depends_on_a_property_of_what_is_no_object() {
    let items = |rest: Value| json!({"dependentSchemas": {"a": {"items": true}}, "unevaluatedItems": rest});
    same(items(json!(false)), json!({"maxItems": 0}));
    narrower(items(json!({"type": "null"})), json!(true));
}

#[test]
fn what_is_left_over_in_a_circle() {
    // The inner schema applies the outer one in the same place, which is still being read then.
    let circle = |rest: Value| json!({"$ref": "#/$defs/y", "$defs": {"y": {"anyOf": [{"properties": {"p": {"$ref": "#/$defs/y", "unevaluatedProperties": rest}}}]}}});
    narrower(circle(json!(false)), circle(json!({"type": "null"})));
    let endless =
        json!({"unevaluatedProperties": false, "if": {"$ref": "#", "unevaluatedProperties": false}});
    assert!(Schema::from_value(&endless).is_err());
}

#[test]
fn references_and_circles() {
    let list = |item: Value| json!({"$ref": "#/$defs/list", "$defs": {"list": {"type": ["object", "null"], "properties": {"next": {"$ref": "#/$defs/list"}, "item": item}}}});
    narrower(list(json!({"type": "integer"})), list(json!({"type": "number"})));
    same(list(json!({"type": "null"})), list(json!({"const": null})));
    let anchored = json!({"$ref": "#here", "$defs": {"x": {"$anchor": "here", "type": "null"}}});
    same(anchored, json!({"type": "null"}));
    let dynamic = json!({"$dynamicRef": "#here", "$defs": {"x": {"$dynamicAnchor": "here", "type": "null"}}});
    same(dynamic, json!({"type": "null"}));
    let bundled =
        json!({"$id": "https://example.com/a/b", "$ref": "c", "$defs": {"x": {"$id": "c", "type": "null"}}});
    same(bundled, json!({"type": "null"}));
    // A list that cannot end: no finite document is in it.
    let endless = json!({"type": "array", "minItems": 1, "items": {"$ref": "#"}});
    same(endless, json!(false));
}

#[test]
fn what_is_proved_of_numbers_that_no_double_holds_is_so_in_publishing() {
    let read = |text: &str| Schema::parse(text).unwrap();
    let (old, new) = (read(r#"{"maximum": 1.7976931348623157e308}"#), read(r#"{"exclusiveMaximum": 1e400}"#));
    let ask = Comparison { old: &old, new: &new, compat: Compat::Backward, policy: Policy::Strict };
    assert_eq!(check(&ask), Verdict::Proved);
    let largest = json!(f64::MAX);
    assert!(old.validator().is_valid(&largest) && new.validator().is_valid(&largest));
}

#[test]
fn one_property_can_be_all_that_there_have_to_be() {
    let some = |members: &[Value], most: u64| {
        let all: Vec<Value> = members.iter().map(|members| json!({ "not": members })).collect();
        json!({"type": "object", "maxProperties": most, "allOf": all})
    };
    let names = |pattern: &str| json!({"propertyNames": {"pattern": pattern}});
    let values = |pattern: &str, kind: &str| json!({"patternProperties": {pattern: {"type": kind}}});
    let taken = |old: Value| {
        let found = verdict(&old, &json!(false), Policy::Strict);
        assert!(matches!(found, Verdict::Refuted(_)), "{old}: {found:?}");
    };
    taken(some(&[names("^[^x]|^$"), names("^.{0,2}$")], 1));
    taken(some(&[values("^x", "string"), values("^.{3,}$", "string")], 1));
    taken(some(&[values("^x", "string"), names("^.{0,2}$"), values("^y", "null"), values("b$", "null")], 2));
    let closed = json!({"additionalProperties": {"type": "null"}, "properties": {"x": {}}});
    taken(some(&[closed, names("^.{0,2}$"), values("^(a|b)", "string")], 1));
    // More ways to share names than are gone through, of which the first serves all.
    taken(some(&(2..20).map(|length| names(&format!("^.{{0,{length}}}$"))).collect::<Vec<_>>(), 2));
    same(some(&[names("^[^x]|^$"), names("^[^y]|^$")], 1), json!(false));
    same(some(&[values("^x", "string"), values("^xy", "null"), values("^z", "null")], 1), json!(false));
    same(
        some(
            &[values("^x", "string"), json!({"patternProperties": {"^xy": {"not": {"type": "string"}}}})],
            1,
        ),
        json!(false),
    );
    // By way of `oneOf` of what is left of three branches, and of what the target asks for.
    let branches =
        json!({"type": "object", "maxProperties": 1, "oneOf": [names("^[^x]|^$"), names("^.{0,2}$"), {}]});
    taken(branches);
    let old = json!({"type": "object", "allOf": [{"not": names("^[^x]|^$")}, {"not": names("^.{0,2}$")}]});
    different(
        json!({"anyOf": [old, {"type": "null"}]}),
        json!({"anyOf": [{"type": "object", "minProperties": 2}, {"type": "array"}]}),
    );
}

#[test]
fn the_draft_does_not_matter() {
    let draft7 = |schema: Value| {
        let mut schema = schema;
        schema["$schema"] = json!("http://json-schema.org/draft-07/schema#");
        schema
    };
    same(
        draft7(json!({"items": [{"type": "null"}], "additionalItems": false})),
        json!({"prefixItems": [{"type": "null"}], "items": false}),
    );
    same(
        draft7(json!({"dependencies": {"a": ["b"], "c": {"maxProperties": 2}}})),
        json!({"dependentRequired": {"a": ["b"]}, "dependentSchemas": {"c": {"maxProperties": 2}}}),
    );
    same(
        draft7(
            json!({"definitions": {"x": {"$id": "#x", "type": "null"}}, "allOf": [{"$ref": "#x", "type": "string"}]}),
        ),
        json!({"type": "null"}),
    );
    same(draft7(json!({"format": "uuid"})), json!({"format": "uuid"}));
    let draft4 = json!({"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 1, "exclusiveMinimum": true, "type": "number"});
    same(draft4, json!({"type": "number", "exclusiveMinimum": 1}));
    let draft2019 = json!({"$schema": "https://json-schema.org/draft/2019-09/schema", "items": [true], "additionalItems": {"type": "null"}});
    same(draft2019, json!({"prefixItems": [true], "items": {"type": "null"}}));
}

#[test]
fn every_reason_is_told_with_a_document() {
    let old = json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "number"}, "c": {"properties": {"d": {"maximum": 5}}}}});
    let new = json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "number", "minimum": 0}, "c": {"properties": {"d": {"maximum": 4}}}}, "required": ["e"]});
    let Verdict::Refuted(violations) = verdict(&old, &new, Policy::Lenient) else { panic!("not refuted") };
    let told: Vec<(&str, &str)> = violations.iter().map(|v| (v.path.as_str(), v.rule.as_str())).collect();
    for expected in [("/a", "type"), ("/b", "minimum"), ("/c/d", "maximum"), ("", "required")] {
        assert!(told.contains(&expected), "{expected:?} in {told:?}");
    }
}

#[test]
fn directions() {
    let read = |schema: Value| Schema::from_value(&schema).unwrap();
    let (narrow, wide) = (read(json!({"type": "integer"})), read(json!({"type": "number"})));
    let ask =
        |old, new, compat| check(&Comparison { old, new, compat, policy: Policy::Strict }).is_compatible();
    assert!(ask(&narrow, &wide, Compat::Backward) && !ask(&wide, &narrow, Compat::Backward));
    assert!(!ask(&narrow, &wide, Compat::Forward) && ask(&wide, &narrow, Compat::Forward));
    assert!(!ask(&narrow, &wide, Compat::Full) && ask(&wide, &wide, Compat::Full));
    assert!(ask(&wide, &narrow, Compat::None));
}
