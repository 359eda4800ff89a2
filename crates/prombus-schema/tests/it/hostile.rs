//! Schemas that are made to cost: each check comes to an answer within its budget.

use prombus_schema::{Comparison, Compat, Policy, Schema, SchemaError, check, example};
use serde_json::{Map, Value, json};

/// Reads a schema, compares it with itself and another one, and makes an example. Refusing to read it is an answer too.
fn survive(name: &str, schema: &Value) {
    let read = match Schema::from_value(schema) {
        Ok(read) => read,
        Err(
            error
            @ (SchemaError::TooDeep { .. } | SchemaError::TooLarge { .. } | SchemaError::Endless { .. }),
        ) => {
            println!("{name}: {error}");
            return;
        }
        Err(error) => panic!("{name}: {error}"),
    };
    let other = Schema::from_value(&json!({"type": ["object", "array"], "maxProperties": 3})).unwrap();
    for (old, new) in [(&read, &read), (&read, &other), (&other, &read)] {
        for policy in [Policy::Lenient, Policy::Strict] {
            let start = std::time::Instant::now();
            let verdict = check(&Comparison { old, new, compat: Compat::Full, policy });
            println!("{name}: {} violations in {:?}", verdict.violations().len(), start.elapsed());
        }
    }
    if let Some(example) = example(&read) {
        assert!(read.validator().is_valid(&example), "{name}");
    }
}

fn chain(count: usize, step: &dyn Fn(Value) -> Value) -> Value {
    let mut definitions = Map::new();
    for number in 0..count {
        definitions.insert(format!("d{number}"), step(json!({"$ref": format!("#/$defs/d{}", number + 1)})));
    }
    definitions.insert(format!("d{count}"), json!({"type": "null"}));
    json!({"$ref": "#/$defs/d0", "$defs": definitions})
}

#[test]
fn long_chains_of_references() {
    survive("plain", &chain(2_000, &|next| next));
    survive("in place", &chain(2_000, &|next| json!({"allOf": [next, {"minLength": 1}]})));
    survive("inside", &chain(2_000, &|next| json!({"properties": {"x": next}, "required": ["x"]})));
    survive("doubled", &chain(60, &|next| json!({"properties": {"x": next, "y": next}, "required": ["x"]})));
    survive("doubled in place", &chain(40, &|next| json!({"anyOf": [next, {"not": next}]})));
}

#[test]
fn exponential_choices() {
    let branch = |number: usize| json!({"properties": {format!("p{}", number % 7): {"minimum": number}}, "required": [format!("p{}", number % 5)]});
    let choices =
        |count: usize, keyword: &str| json!({ keyword: (0..count).map(branch).collect::<Vec<_>>() });
    survive("oneOf", &choices(200, "oneOf"));
    survive("not oneOf", &json!({"not": choices(60, "oneOf")}));
    let many: Vec<Value> =
        (0..24).map(|at| json!({"oneOf": [branch(at), branch(at + 1), branch(at * 3)]})).collect();
    survive("all of many oneOf", &json!({ "allOf": many }));
    let conditions: Vec<Value> =
        (0..24).map(|at| json!({"if": branch(at), "then": branch(at + 2), "else": branch(at + 5)})).collect();
    survive("many conditions", &json!({"allOf": conditions, "unevaluatedProperties": false}));
}

#[test]
fn circles() {
    survive(
        "tree",
        &json!({"items": {"$ref": "#"}, "additionalProperties": {"$ref": "#"}, "minItems": 1, "type": ["array", "object"]}),
    );
    let mut definitions = Map::new();
    for number in 0..30 {
        let next = |by: usize| json!({"$ref": format!("#/$defs/d{}", (number + by) % 30)});
        definitions.insert(format!("d{number}"), json!({"properties": {"a": next(1), "b": {"anyOf": [next(7), next(11)]}, "c": {"not": next(13)}}, "minProperties": 1, "type": "object"}));
    }
    survive("everything in circles", &json!({"$ref": "#/$defs/d0", "$defs": definitions}));
}

#[test]
fn large_numbers_of_everything() {
    survive(
        "counts",
        &json!({"minItems": 4_000_000_000u64, "minLength": 9_000_000_000u64, "minProperties": 1_000_000}),
    );
    survive(
        "contains",
        &json!({"contains": {"const": 1}, "minContains": 100_000, "uniqueItems": true, "type": "array"}),
    );
    survive(
        "unique",
        &json!({"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 1_500}, "uniqueItems": true, "minItems": 1_500}),
    );
    survive("pattern", &json!({"pattern": "^(a|b)*a(a|b){18}$", "minLength": 400}));
    survive(
        "patterns",
        &json!({"patternProperties": (0..40).map(|n| (format!("^.{{{n}}}a"), json!({"minimum": n}))).collect::<Map<_, _>>(), "additionalProperties": false}),
    );
    survive(
        "names",
        &json!({"properties": (0..5_000).map(|n| (format!("p{n}"), json!({"type": "string"}))).collect::<Map<_, _>>(), "minProperties": 250}),
    );
    let primes = [97, 101, 103, 107, 109, 113, 127, 131, 137, 139];
    let multiples: Vec<Value> =
        primes.iter().map(|n| json!({"multipleOf": f64::from(*n) / 1000.0})).collect();
    survive("multiples", &json!({"allOf": multiples, "type": "number", "minimum": 1}));
}

#[test]
fn hostile_text() {
    for text in [
        "",
        "{",
        "nul",
        "\u{0}",
        r#"{"$ref": 7, "properties": 7, "allOf": {}, "enum": 1}"#,
        r#"{"$id": "::::", "$ref": "%%%#/%zz"}"#,
    ] {
        assert!(Schema::parse(text).is_err(), "{text}");
    }
    let nested = format!("{}{}", r#"{"items":"#.repeat(126), "{}".to_owned() + &"}".repeat(126));
    let schema: Value = serde_json::from_str(&nested).unwrap();
    survive("nested", &schema);
}
