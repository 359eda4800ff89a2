//! Which schemas are taken, and what is said of the others; documents and examples.

use prombus_schema::{
    BYTES_LIMIT, Comparison, Compat, Draft, Policy, Schema, SchemaError, Verdict, check, example,
};
use serde_json::{Value, json};

fn refusal(schema: &Value) -> SchemaError {
    Schema::from_value(schema).expect_err("it must not be taken")
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    let invalid = refusal(&json!({"properties": {"a": {"type": "text"}}}));
    assert!(
        matches!(&invalid, SchemaError::Invalid { path, .. } if path == "/properties/a/type"),
        "{invalid}"
    );
    let bad_pattern = refusal(&json!({"properties": {"a": {"pattern": "["}}}));
    assert!(
        matches!(&bad_pattern, SchemaError::Invalid { path, .. } if path == "/properties/a/pattern"),
        "{bad_pattern}"
    );
    let elsewhere = refusal(&json!({"items": {"$ref": "https://example.com/other.json#/a"}}));
    assert!(elsewhere.to_string().contains("at `/items` leads to another document"), "{elsewhere}");
    let nowhere = refusal(&json!({"items": {"$ref": "#/$defs/none"}}));
    assert!(nowhere.to_string().contains("leads nowhere"), "{nowhere}");
    let draft = refusal(&json!({"$schema": "https://example.com/my-draft"}));
    assert!(
        draft.to_string().contains("not known; use https://json-schema.org/draft/2020-12/schema"),
        "{draft}"
    );
    assert!(matches!(refusal(&json!(7)), SchemaError::Invalid { .. }));
}

#[test]
fn the_schemas_of_schemas_are_known() {
    let draft7 = json!({
        "$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
        "properties": {"schema": {"$ref": "http://json-schema.org/draft-07/schema#"}}
    });
    let new = json!({"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "properties": {
        "schema": {"$ref": "https://json-schema.org/draft/2020-12/schema"},
        "more": {"$ref": "https://json-schema.org/draft/2020-12/meta/validation"}}});
    let old = json!({"$schema": "https://json-schema.org/draft/2019-09/schema", "type": "object", "properties": {
        "schema": {"$ref": "https://json-schema.org/draft/2019-09/schema"}}});
    for schema in [&draft7, &new, &old] {
        let read = Schema::from_value(schema).unwrap();
        assert!(read.validator().is_valid(&json!({"schema": {"type": "string", "not": {"items": {}}}})));
        assert!(!read.validator().is_valid(&json!({"schema": {"not": {"type": "text"}}})));
        let ask = Comparison { old: &read, new: &read, compat: Compat::Full, policy: Policy::Strict };
        assert_eq!(check(&ask), Verdict::Proved);
    }
    let draft7 = Schema::from_value(&draft7).unwrap();
    let narrow = json!({"type": "object", "properties": {"schema": {"type": ["object", "boolean"]}}});
    let narrow = Schema::from_value(&narrow).unwrap();
    let ask = |old, new| check(&Comparison { old, new, compat: Compat::Backward, policy: Policy::Strict });
    assert_eq!(ask(&draft7, &narrow), Verdict::Proved);
    assert!(matches!(ask(&narrow, &draft7), Verdict::Refuted(_)));
}

#[test]
fn references_to_other_documents_are_compared_by_name() {
    let read = |schema: Value| Schema::parse_to_compare(&schema.to_string()).unwrap();
    let with = |reference: &str, more: Value| {
        read(json!({"type": "object", "properties": {"at": {"$ref": reference}, "more": more}}))
    };
    let ask = |old: &Schema, new: &Schema, policy| {
        check(&Comparison { old, new, compat: Compat::Backward, policy })
    };
    for policy in [Policy::Strict, Policy::Lenient] {
        let (old, new) =
            (with("base.json", json!({"type": "integer"})), with("./base.json#", json!({"type": "number"})));
        assert_eq!(ask(&old, &new, policy), Verdict::Proved);
        let Verdict::Refuted(violations) = ask(&new, &old, policy) else { panic!("not refuted") };
        assert_eq!(violations[0].counterexample, Some(json!({"more": 0.5})));
        assert_eq!(violations[0].path, "/more");
        let other = with("base.json#/definitions/a", json!({"type": "integer"}));
        for (one, another) in [(&old, &other), (&other, &old)] {
            let found = ask(one, another, policy);
            assert!(
                matches!(&found, Verdict::Unknown(why) if why[0].message.contains("another document")),
                "{found:?}"
            );
        }
    }
    let denied = read(json!({"not": {"$ref": "base.json"}, "allOf": [{"$ref": "base.json"}]}));
    assert_eq!(ask(&denied, &read(json!(false)), Policy::Strict), Verdict::Proved);
    // Not everything can be said of documents.
    let old = with("base.json", json!({"type": "integer"}));
    assert!(old.validator().is_valid(&json!({"more": 1})));
    assert_eq!(old.validator().faults(&json!({"more": "x", "at": 1}))[0].path, "/more");
    assert!(!old.validator().is_valid(&json!({"at": 1})));
    assert!(Schema::parse(r#"{"$dynamicRef": "base.json"}"#).is_err());
}

#[test]
fn a_schema_that_never_comes_to_an_end_is_refused() {
    for endless in [
        json!({"$ref": "#"}),
        json!({"allOf": [{"$ref": "#"}]}),
        json!({"not": {"$ref": "#"}}),
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a"}}}),
        json!({"if": {"$ref": "#"}, "then": true}),
    ] {
        assert!(matches!(refusal(&endless), SchemaError::Endless { .. }), "{endless}");
    }
    assert!(Schema::from_value(&json!({"properties": {"a": {"$ref": "#"}}})).is_ok());
}

#[test]
fn limits_are_told() {
    let text = format!(r#"{{"title": "{}"}}"#, "x".repeat(BYTES_LIMIT));
    assert!(matches!(Schema::parse(&text), Err(SchemaError::TooLarge { .. })));
    let deep = format!("{}true{}", r#"{"not":"#.repeat(5_000), "}".repeat(5_000));
    assert!(matches!(Schema::parse(&deep), Err(SchemaError::TooDeep { .. })));
    assert!(matches!(Schema::parse(r#"{"minimum": 1e99999}"#), Err(SchemaError::Number { .. })));
    assert!(matches!(Schema::parse(r#"{"minimum": 1, "minimum": 2}"#), Err(SchemaError::Twice { .. })));
    assert!(matches!(Schema::parse(r#"{"minimum": }"#), Err(SchemaError::Json { at: 12, .. })));
}

#[test]
fn drafts_are_told_apart() {
    assert_eq!(Schema::from_value(&json!({})).unwrap().draft(), Draft::Draft202012);
    let dated = |name: &str| Schema::from_value(&json!({ "$schema": name })).unwrap().draft();
    assert_eq!(dated("http://json-schema.org/draft-07/schema"), Draft::Draft7);
    assert_eq!(dated("https://json-schema.org/draft/2019-09/schema"), Draft::Draft201909);
}

#[test]
fn every_failing_place_of_a_document_is_told() {
    let schema = Schema::from_value(&json!({
        "type": "object", "required": ["id"], "additionalProperties": false,
        "properties": {"id": {"type": "string"}, "at": {"format": "date-time"}, "list": {"items": {"maximum": 3}}}
    }))
    .unwrap();
    assert!(schema.validator().faults(&json!({"id": "x"})).is_empty());
    let faults = schema.validator().faults(&json!({"at": "noon", "list": [1, 9, 8], "more": 1}));
    let told: Vec<(&str, &str)> =
        faults.iter().map(|fault| (fault.path.as_str(), fault.rule.as_str())).collect();
    for expected in [
        ("", "required"),
        ("/at", "format"),
        ("/list/1", "maximum"),
        ("/list/2", "maximum"),
        ("", "additionalProperties"),
    ] {
        assert!(told.contains(&expected), "{expected:?} in {told:?}");
    }
}

#[test]
fn documents_are_checked_as_they_were_sent() {
    let schema = Schema::parse(r#"{"type": "number", "maximum": 1e400}"#).unwrap();
    let validator = schema.validator();
    assert!(validator.faults_in(b"12").is_empty());
    assert!(validator.faults_in(b"1e390").is_empty());
    assert_eq!(validator.faults_in(b"\"x\"").len(), 1);
    assert_eq!(validator.faults_in(b"{")[0].rule, "json");
    let small = Schema::parse(r#"{"type": "integer", "maximum": 5}"#).unwrap();
    assert_eq!(small.validator().faults_in(b"1e400")[0].rule, "maximum");
    assert!(small.validator().faults_in(b"1.0").is_empty());
    let below = Schema::parse(r#"{"exclusiveMaximum": 1e400}"#).unwrap();
    assert!(below.validator().faults_in(b"1.7976931348623157e308").is_empty());
    assert!(below.validator().faults_in(b"9e399").is_empty());
    assert_eq!(below.validator().faults_in(b"[1e400]").len(), 0);
    assert_eq!(below.validator().faults_in(b"1e400").len(), 1);
    let step = Schema::parse(r#"{"items": {"multipleOf": 0.1}, "uniqueItems": true}"#).unwrap();
    assert!(step.validator().faults_in(b"[0.3000000000000000000]").is_empty());
    assert_eq!(step.validator().faults_in(b"[0.30000000000000000001]").len(), 1);
    assert!(step.validator().faults_in(b"[18446744073709551616, 18446744073709551617]").is_empty());
    let never = Schema::parse(r#"{"const": 0.12345678901234567890}"#).unwrap();
    assert!(never.validator().faults_in(b"0.1234567890123456789").is_empty());
    assert_eq!(never.validator().faults_in(b"0.12345678901234568").len(), 1);
    let exact = Schema::parse(r#"{"maximum": 9007199254740992}"#).unwrap();
    assert_eq!(exact.validator().faults_in(b"9007199254740993").len(), 1);
    for (document, is_valid) in [("9007199254740992", true), ("9007199254740993", false), ("{", false)] {
        assert_eq!(exact.validator().is_valid_in(document.as_bytes()), is_valid, "{document}");
    }
}

#[test]
fn making_formulas_counts_until_they_are_made() {
    let schema = Schema::parse(r#"{"items": {"maximum": 1e400}}"#).unwrap();
    let validator = schema.validator();
    let before = validator.steps_for(1, 1);
    assert!(validator.is_valid_in(b"1"));
    assert!(validator.steps_for(1, 1) + 100 < before);
}

#[test]
fn examples_are_taken_and_show_every_property() {
    let schema = json!({
        "type": "object", "required": ["id"],
        "properties": {
            "id": {"type": "string", "format": "uuid"}, "cpu": {"type": "number", "minimum": 0, "maximum": 100},
            "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 1, "uniqueItems": true},
            "parent": {"$ref": "#"}, "name": {"type": "string", "pattern": "^[A-Z][a-z]{3,9}$"}
        }
    });
    let schema = Schema::from_value(&schema).unwrap();
    let example = example(&schema).unwrap();
    assert!(schema.validator().is_valid(&example));
    for name in ["id", "cpu", "tags", "name"] {
        assert!(example.get(name).is_some(), "{name} in {example}");
    }
    assert_eq!(prombus_schema::example(&Schema::from_value(&json!(false)).unwrap()), None);
}
