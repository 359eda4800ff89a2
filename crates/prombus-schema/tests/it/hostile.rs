//! Schemas that are made to cost: whatever is asked of them has an answer, within the budget.

use crate::random;
use fastrand::Rng;
use prombus_schema::{
    Budget, Comparison, Compat, Policy, Schema, SchemaError, Verdict, check, check_within, example,
};
use serde_json::{Map, Value, json};
use std::{process::Command, time::Instant};

/// Asks everything of a schema: reads it, compares it with itself and with others, makes an example, and checks documents
/// against it. Refusing to read it is an answer too.
fn survive(name: &str, schema: &Value) {
    let start = Instant::now();
    let read = match Schema::from_value(schema) {
        Ok(read) => read,
        Err(error @ (SchemaError::Reference { .. } | SchemaError::Json { .. })) => panic!("{name}: {error}"),
        Err(error) => return println!("{name}: {error} ({:?})", start.elapsed()),
    };
    println!("{name}: read in {:?}", start.elapsed());
    let simple = Schema::from_value(&json!({"type": ["object", "array"], "maxProperties": 3})).unwrap();
    let narrower = match schema {
        Value::Object(members) => {
            let mut members = members.clone();
            for keyword in ["maxProperties", "maxItems", "maxLength", "exclusiveMaximum"] {
                members.insert(keyword.to_owned(), json!(9));
            }
            Schema::from_value(&Value::Object(members)).unwrap()
        }
        _ => simple.clone(),
    };
    for (with, other) in [("itself", &read), ("simple", &simple), ("narrower", &narrower)] {
        for policy in [Policy::Lenient, Policy::Strict] {
            let start = Instant::now();
            let verdict = check(&Comparison { old: &read, new: other, compat: Compat::Full, policy });
            assert!(with != "itself" || verdict == Verdict::Proved, "{name}: {verdict:?}");
            let word = match &verdict {
                Verdict::Proved => "proved".to_owned(),
                Verdict::Refuted(violations) => format!("{} violations", violations.len()),
                Verdict::Unknown(why) => why[0].message.clone(),
            };
            println!("{name}: with {with} {policy:?} {:?} {word}", start.elapsed());
        }
    }
    let start = Instant::now();
    if let Some(example) = example(&read) {
        assert!(read.validator().is_valid(&example), "{name}");
    }
    println!("{name}: example in {:?}", start.elapsed());
    for (at, document) in documents().iter().enumerate() {
        let start = Instant::now();
        let faults = read.validator().faults(document);
        assert_eq!(faults.is_empty(), read.validator().is_valid(document), "{name}");
        let took = start.elapsed();
        if took.as_millis() > 100 {
            println!("{name}: document {at} in {took:?}");
        }
    }
}

/// Documents that cost: deep ones, wide ones, and texts that patterns have trouble with.
fn documents() -> Vec<Value> {
    let deep = |step: &dyn Fn(Value) -> Value, end: Value| (0..100).fold(end, |inner, _| step(inner));
    vec![
        json!(7),
        json!("a".repeat(2_000)),
        json!(format!("{}!", "ab".repeat(2_000))),
        json!((0..2_000).collect::<Vec<_>>()),
        deep(&|inner| json!({"x": inner}), json!(7)),
        deep(&|inner| json!({"x": inner, "y": 1}), json!("z")),
        deep(&|inner| json!([inner]), json!({"x": null})),
        Value::Object((0..2_000).map(|n| (format!("p{n}"), json!(n))).collect()),
    ]
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
    survive("very long", &chain(15_000, &|next| json!({"anyOf": [next, {"minLength": 1}]})));
    survive("inside", &chain(2_000, &|next| json!({"properties": {"x": next}, "required": ["x"]})));
    survive(
        "named",
        &chain(900, &|next| json!({"allOf": [next], "properties": {next["$ref"].to_string(): true}})),
    );
}

#[test]
fn references_that_double() {
    for keyword in ["allOf", "anyOf", "oneOf"] {
        survive(keyword, &chain(40, &|next| json!({ keyword: [next, next] })));
    }
    survive("or not", &chain(40, &|next| json!({"anyOf": [next, {"not": next}]})));
    survive(
        "two properties",
        &chain(60, &|next| json!({"properties": {"x": next, "y": next}, "required": ["x"]})),
    );
    survive(
        "both properties",
        &chain(60, &|next| json!({"properties": {"x": next, "y": next}, "required": ["x", "y"]})),
    );
    survive(
        "items",
        &chain(60, &|next| json!({"prefixItems": [next, next], "minItems": 2, "type": "array"})),
    );
    let twice = |next: &Value| json!({"allOf": [{"properties": {"x": next}}, {"properties": {"x": next}, "required": ["x"]}]});
    survive("one property twice", &chain(60, &|next| twice(&next)));
    survive("one property of itself twice", &twice(&json!({"$ref": "#"})));
    let thrice = |keyword: &str| json!({ keyword: [{"properties": {"x": {"$ref": "#"}}, "type": "object"}, {"items": {"$ref": "#"}, "additionalProperties": {"$ref": "#"}}, {"type": "string"}]});
    survive("one of itself", &thrice("oneOf"));
    survive("any of itself", &thrice("anyOf"));
}

#[test]
fn exponential_choices() {
    let branch = |number: usize| json!({"properties": {format!("p{}", number % 7): {"minimum": number}}, "required": [format!("p{}", number % 5)]});
    let choices =
        |count: usize, keyword: &str| json!({ keyword: (0..count).map(branch).collect::<Vec<_>>() });
    survive("oneOf", &choices(200, "oneOf"));
    survive("large oneOf", &choices(3_000, "oneOf"));
    survive("not oneOf", &json!({"not": choices(60, "oneOf")}));
    let many = |count: usize, keyword: &str| -> Vec<Value> {
        (0..count).map(|at| json!({ keyword: [branch(at), branch(at + 1), branch(at * 3)]})).collect()
    };
    for keyword in ["oneOf", "anyOf"] {
        survive(keyword, &json!({ "allOf": many(24, keyword) }));
        survive(keyword, &json!({ "allOf": many(1_000, keyword) }));
    }
    let conditions: Vec<Value> =
        (0..24).map(|at| json!({"if": branch(at), "then": branch(at + 2), "else": branch(at + 5)})).collect();
    survive("many conditions", &json!({"allOf": conditions, "unevaluatedProperties": false}));
    let nots: Vec<Value> = (0..600).map(|at| json!({"not": branch(at)})).collect();
    survive("many nots", &json!({ "allOf": nots }));
    let depends: Map<String, Value> = (0..300).map(|at| (format!("p{at}"), branch(at))).collect();
    survive("many dependents", &json!({"dependentSchemas": depends, "minProperties": 200}));
    let nested =
        (0..40).fold(branch(0), |inner, at| json!({"oneOf": [{"not": inner}, branch(at), branch(at + 3)]}));
    survive("nested oneOf", &nested);
}

#[test]
fn what_is_left_over_in_nests() {
    let nested = (0..55).fold(json!({}), |inner, at| json!({"anyOf": [inner, {"properties": {format!("p{at}"): true}}], "unevaluatedProperties": false}));
    survive("nested", &nested);
    let inside = (0..50).fold(json!({}), |inner, at| json!({"properties": {format!("p{at}"): inner}, "allOf": [{"properties": {"x": true}}], "unevaluatedProperties": {"type": "null"}}));
    survive("inside", &inside);
    survive("doubled", &chain(30, &|next| json!({"allOf": [next, next], "unevaluatedProperties": false})));
    survive(
        "chosen",
        &chain(
            30,
            &|next| json!({"oneOf": [next, {"properties": {"x": next}}], "unevaluatedProperties": false, "unevaluatedItems": false}),
        ),
    );
    let names: Map<String, Value> = (0..15_000).map(|at| (format!("p{at}"), json!(true))).collect();
    let many: Vec<Value> = (0..100).map(|at| json!({"anyOf": [{"$ref": "#/$defs/names"}, {"required": [format!("q{at}")]}], "unevaluatedProperties": false})).collect();
    survive("names", &json!({"allOf": many, "$defs": {"names": {"properties": names}}}));
    let wide: Vec<Value> = (0..3_000)
        .map(|at| json!({"$ref": "#/$defs/d", "minProperties": at % 3, "unevaluatedProperties": false}))
        .collect();
    survive(
        "wide",
        &json!({"anyOf": wide, "$defs": {"d": {"anyOf": [{"properties": {"a": true}}, {"properties": {"b": true}}, {"properties": {"c": true}}]}}}),
    );
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
    let long: Map<String, Value> = (0..5_000)
        .map(|at| {
            (
                format!("d{at}"),
                json!({"properties": {"x": {"$ref": format!("#/$defs/d{}", (at + 1) % 5_000)}}}),
            )
        })
        .collect();
    survive("one long circle", &json!({"$ref": "#/$defs/d0", "$defs": long}));
}

#[test]
fn large_numbers_of_everything() {
    survive(
        "counts",
        &json!({"minItems": 4_000_000_000u64, "minLength": 9_000_000_000u64, "minProperties": 1_000_000}),
    );
    survive(
        "many items",
        &json!({"type": "array", "minItems": 1_900, "items": {"type": ["string", "number"]}, "contains": {"minLength": 3}, "minContains": 60}),
    );
    survive(
        "contains",
        &json!({"contains": {"const": 1}, "minContains": 100_000, "uniqueItems": true, "type": "array"}),
    );
    survive(
        "unique",
        &json!({"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 1_500}, "uniqueItems": true, "minItems": 1_500}),
    );
    let tuple: Vec<Value> = (0..1_500).map(|at| json!({"enum": [at % 40, at % 41, at % 43]})).collect();
    survive("tuple", &json!({"type": "array", "prefixItems": tuple, "uniqueItems": true, "minItems": 1_500}));
    survive(
        "names",
        &json!({"properties": (0..5_000).map(|n| (format!("p{n}"), json!({"type": "string"}))).collect::<Map<_, _>>(), "minProperties": 250}),
    );
    let names: Vec<String> = (0..5_000).map(|n| format!("p{n}")).collect();
    survive(
        "required",
        &json!({"required": names, "additionalProperties": {"minimum": 3}, "patternProperties": {"1$": {"maximum": 5}, "2": {"type": "integer"}}}),
    );
    survive(
        "a large enum",
        &json!({"enum": (0..40_000).map(|n| json!([n, format!("x{n}")])).collect::<Vec<_>>()}),
    );
    survive(
        "not a large enum",
        &json!({"not": {"enum": (0..40_000).map(|n| json!(format!("x{n}"))).collect::<Vec<_>>()}}),
    );
    let long = "n".repeat(300_000);
    let many: Map<String, Value> = (0..20_000).map(|n| (format!("p{n}"), json!({}))).collect();
    survive("a long name", &json!({"properties": {long: {"properties": many}}}));
}

#[test]
fn numbers() {
    let primes = [97, 101, 103, 107, 109, 113, 127, 131, 137, 139];
    let multiples: Vec<Value> =
        primes.iter().map(|n| json!({"multipleOf": f64::from(*n) / 1000.0})).collect();
    survive("multiples", &json!({"allOf": multiples, "type": "number", "minimum": 1}));
    let not: Vec<Value> = (2..4_000).map(|n| json!({"not": {"multipleOf": n}})).collect();
    survive("not multiples", &json!({"allOf": not, "type": "integer", "minimum": 2, "maximum": 1_000_000}));
    let digits = |seed: usize| {
        format!("0.{}", (0..900).map(|at| char::from(b'1' + (at * seed % 9) as u8)).collect::<String>())
    };
    let parts: Vec<String> = (1..400)
        .map(|seed| {
            format!(
                r#"{{"not": {{"multipleOf": {}}}}}, {{"minimum": -{}e{seed}}}"#,
                digits(seed),
                digits(seed)
            )
        })
        .collect();
    let schema = Schema::parse(&format!(r#"{{"type": "number", "allOf": [{}]}}"#, parts.join(", "))).unwrap();
    let other = Schema::parse(r#"{"multipleOf": 1e-300, "maximum": 1e900}"#).unwrap();
    for (old, new) in [(&schema, &other), (&other, &schema)] {
        check(&Comparison { old, new, compat: Compat::Full, policy: Policy::Strict });
    }
    assert!(matches!(Schema::parse(r#"{"maximum": 1e999999999}"#), Err(SchemaError::Number { .. })));
    assert!(matches!(Schema::parse(r#"{"multipleOf": 1e-999999999}"#), Err(SchemaError::Number { .. })));
}

#[test]
fn patterns() {
    survive("pattern", &json!({"pattern": "^(a|b)*a(a|b){18}$", "minLength": 400}));
    survive("not found", &json!({"not": {"pattern": "(a|b)*a(a|b){60}c"}, "pattern": "^(a|b)*b(a|b){50}c"}));
    survive(
        "patterns",
        &json!({"patternProperties": (0..40).map(|n| (format!("^.{{{n}}}a"), json!({"minimum": n}))).collect::<Map<_, _>>(), "additionalProperties": false}),
    );
    survive(
        "eight",
        &json!({"patternProperties": (0..9).map(|n| (format!("^(a|b)*a(a|b){{{n}}}$"), json!({"minimum": n}))).collect::<Map<_, _>>(), "minProperties": 90}),
    );
    survive("optional", &json!({"pattern": format!("^{}{}$", "a?".repeat(400), "a".repeat(400))}));
    survive("classes of letters", &json!({"pattern": "^\\p{L}{900}$"}));
    survive("letters", &json!({"pattern": "^\\w{900}\\d{900}$"}));
    survive(
        "many letters",
        &json!({"properties": (0..200).map(|n| (format!("p{n}"), json!({"pattern": format!("^\\w{{{}}}$", 500 + n)}))).collect::<Map<_, _>>()}),
    );
    survive(
        "long",
        &json!({"pattern": format!("^({})$", (0..20_000).map(|n| format!("w{n}")).collect::<Vec<_>>().join("|"))}),
    );
    survive("classes", &json!({"pattern": "\\w".repeat(100_000)}));
    survive("repeated", &json!({"pattern": "((((a{90}){90}){90}){90}){90}"}));
    survive("brackets", &json!({"pattern": format!("{}a{}", "(".repeat(5_000), ")".repeat(5_000))}));
    survive("back", &json!({"pattern": "^(a|aa)+\\1$", "minLength": 3}));
    survive("ahead", &json!({"pattern": "^(?=(a+)+b)(a|b|ab)*c$"}));
    survive(
        "many ahead",
        &json!({"allOf": (0..300).map(|n| json!({"pattern": format!("^(?!(a|ab|b)*{n}$)(a+)+$")})).collect::<Vec<_>>()}),
    );
    survive("expressions", &json!({"format": "regex", "minLength": 5}));
    let brackets = json!("(".repeat(200_000));
    let schema = Schema::from_value(&json!({"format": "regex"})).unwrap();
    assert!(!schema.validator().is_valid(&brackets));
}

#[test]
fn patterns_in_long_texts() {
    let many = Schema::from_value(&json!({
        "allOf": (0..2_500).map(|n| json!({"pattern": format!("^(?:[a-y]*z?)*[^{n}]*$")})).collect::<Vec<_>>()
    }))
    .unwrap();
    let names = Schema::from_value(&json!({
        "patternProperties": (0..1_000).map(|n| (format!("{n}$"), json!({"type": "null"}))).collect::<Map<_, _>>(),
        "propertyNames": {"not": {"anyOf": (0..1_500).map(|n| json!({"pattern": format!("x{n}$")})).collect::<Vec<_>>()}}
    }))
    .unwrap();
    let (text, name) = (json!("a".repeat(500_000)), json!({"a".repeat(500_000): 1}));
    for (schema, document) in [(&many, &text), (&names, &name)] {
        let validator = schema.validator();
        // It is valid, but who would find out?
        for faults in [validator.faults(document), validator.faults_in(document.to_string().as_bytes())] {
            assert!(faults.len() == 1 && faults[0].is_unchecked(), "{faults:?}");
            assert_eq!(
                faults[0].message,
                "the document could not be checked: more steps than a check may take"
            );
        }
        assert!(!validator.is_valid(document));
        assert!(validator.steps_for(1, 500_000) > 50_000_000, "{}", validator.steps_for(1, 500_000));
        let few = validator.steps_for(1, 10);
        assert!(few < 20_000, "{few}");
    }
    assert!(many.validator().is_valid(&json!("a")) && !names.validator().is_valid(&json!({"ax7": null})));
    assert!(names.validator().faults(&json!({"a7": 7})).iter().all(|fault| !fault.is_unchecked()));
}

#[test]
fn long_documents_are_checked_within_steps() {
    let numbers = json!((0..200_000).collect::<Vec<_>>());
    let records = json!(
        (0..20_000).map(|n| json!({"id": n, "name": "x", "at": 1.5, "tags": ["a", "b"]})).collect::<Vec<_>>()
    );
    let plain = Schema::from_value(
        &json!({"items": {"anyOf": [{"type": "integer"}, {"type": "object", "properties": {
        "id": {"type": "integer"}, "name": {"pattern": "^x"}, "tags": {"items": {"enum": ["a", "b"]}}}}]}}),
    );
    let plain = plain.unwrap();
    let costly: Vec<Value> = (0..2_000).map(|n| json!({"not": {"const": -1 - n}})).collect();
    let costly = Schema::from_value(&json!({"items": {"allOf": costly}})).unwrap();
    for document in [&numbers, &records] {
        assert!(plain.validator().is_valid(document));
        assert!(costly.validator().faults(document)[0].is_unchecked());
    }
}

#[test]
fn lists_are_walked_within_steps() {
    let numbers: Vec<Value> = (0..20_000).map(Value::from).collect();
    let names: Vec<Value> = (0..20_000).map(|n| json!(format!("n{n}"))).collect();
    let of_one = |value: Value, count: usize| Value::Array(vec![value; count]);
    let with_a_number = [&names[..], &[json!(1)]].concat();
    let costly = [
        (json!({"items": {"enum": numbers}}), of_one(json!(-1), 100_000)),
        (json!({"items": {"enum": [numbers]}}), of_one(json!(numbers[..19_999]), 50)),
        (
            json!({"items": {"enum": names.iter().map(|n| json!([n])).collect::<Vec<_>>()}}),
            of_one(json!(["n"]), 50_000),
        ),
        (json!({"items": {"required": names}}), of_one(json!({}), 100_000)),
        (json!({"items": {"dependentRequired": {"b": names}}}), of_one(json!({"b": 1}), 50_000)),
        (
            json!({"propertyNames": {"enum": with_a_number}}),
            (0..50_000).map(|n| (format!("z{n}"), json!(1))).collect::<Map<_, _>>().into(),
        ),
    ];
    for (schema, document) in costly {
        let schema = Schema::from_value(&schema).unwrap();
        let text = document.to_string();
        assert!(!schema.validator().takes_plainly(text.as_bytes()));
        let faults = schema.validator().faults_in(text.as_bytes());
        assert!(faults.len() == 1 && (faults[0].is_unchecked() || faults[0].rule == "schema"), "{faults:?}");
    }
    // Names alone are looked up.
    let names = Schema::from_value(&json!({"items": {"enum": names}})).unwrap();
    assert!(names.validator().is_valid(&of_one(json!("n7"), 100_000)));
}

/// Texts that were schemas before some of their bytes were changed.
#[test]
fn texts_with_changed_bytes() {
    let mut taken = 0;
    for seed in 0..4_000 {
        let mut rng = Rng::with_seed(seed);
        let mut text = random::document(&mut rng).to_string().into_bytes();
        for _ in 0..rng.usize(1..4) {
            let at = rng.usize(..text.len());
            match rng.u32(0..5) {
                0 => text[at] = rng.u8(..),
                1 => text.truncate(at.max(1)),
                2 => text.insert(at, b"{}[]\",:\\0-.e#/ "[rng.usize(..15)]),
                3 => {
                    let copied = text[at..].to_vec();
                    text.splice(at..at, copied);
                }
                _ => {
                    text.remove(at);
                    text.push(b' ');
                }
            }
        }
        let Ok(text) = std::str::from_utf8(&text) else { continue };
        match Schema::parse(text) {
            Ok(schema) => {
                taken += 1;
                let comparison =
                    Comparison { old: &schema, new: &schema, compat: Compat::Full, policy: Policy::Strict };
                let verdict = check_within(&comparison, Budget { steps: 20_000, ..prombus_schema::BUDGET });
                assert!(!matches!(verdict, Verdict::Refuted(_)), "{verdict:?}\n  {text}");
                schema.validator().faults_in(text.as_bytes());
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    assert!(taken > 100, "{taken}");
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
    let nested =
        |levels: usize| format!("{}{}", r#"{"items":"#.repeat(levels), "{}".to_owned() + &"}".repeat(levels));
    survive("nested", &serde_json::from_str(&nested(126)).unwrap());
    assert!(matches!(Schema::parse(&nested(10_000)), Err(SchemaError::TooDeep { .. })));
    assert!(matches!(Schema::parse(&"[".repeat(500_000)), Err(SchemaError::TooDeep { .. })));
    let inside = |inner, _| Value::Object([("not".to_owned(), inner)].into_iter().collect());
    let mut deep = (0..10_000).fold(json!({}), inside);
    assert!(matches!(Schema::from_value(&deep), Err(SchemaError::TooDeep { .. })));
    // A value that deep is taken apart from the outside, as it would be dropped by recursion.
    while let Some(inner) = deep.get_mut("not").map(Value::take) {
        deep = inner;
    }
}

#[test]
fn a_document_is_checked_however_many_ways_lead_to_its_parts() {
    let twice = |next: &Value| json!({"allOf": [{"properties": {"x": next}}, {"properties": {"x": next}, "required": ["x"]}]});
    let ended = |end: Value, levels: usize| (0..levels).fold(end, |inner, _| json!({ "x": inner }));
    let circle = json!({"anyOf": [{"type": "null"}, {"type": "object", "allOf": [{"properties": {"x": {"$ref": "#"}}}, {"properties": {"x": {"$ref": "#"}}}]}]});
    for (schema, levels) in [(chain(60, &|next| twice(&next)), 60), (circle, 100)] {
        let validator = Schema::from_value(&schema).unwrap().validator().clone();
        assert!(validator.is_valid(&ended(Value::Null, levels)));
        assert!(validator.faults(&ended(Value::Null, levels)).is_empty());
        let faults = validator.faults(&ended(json!("end"), levels));
        assert_eq!((faults.len(), faults[0].rule.as_str()), (1, "schema"), "{faults:?}");
    }
}

#[test]
fn documents_are_checked_on_small_stacks() {
    let nested =
        (0..10).fold(json!({"additionalProperties": {"$ref": "#"}}), |inner, _| json!({ "allOf": [inner] }));
    let schemas = [
        nested,
        chain(240, &|next| json!({"allOf": [next]})),
        chain(1_400, &|next| json!({"properties": {"x": next}})),
        chain(
            100,
            &|next| json!({"anyOf": [next, {"properties": {"x": {"$ref": "#"}}}], "unevaluatedProperties": true}),
        ),
    ];
    for schema in schemas {
        let validator = Schema::from_value(&schema).unwrap().validator().clone();
        let ask = move || documents().iter().filter(|document| validator.faults(document).is_empty()).count();
        let small = std::thread::Builder::new().stack_size(1024 * 1024).spawn(ask);
        small.unwrap().join().unwrap();
    }
}

#[test]
fn a_schema_takes_its_own_documents_whatever_its_parts_cost() {
    let hard = json!({"oneOf": [{"maxProperties": 3}, {"minProperties": 2}, {"required": ["a"]}]});
    for keyword in ["items", "contains", "unevaluatedItems", "additionalProperties", "propertyNames", "not"] {
        let schema = Schema::from_value(&json!({keyword: hard})).unwrap();
        for policy in [Policy::Lenient, Policy::Strict] {
            let comparison = Comparison { old: &schema, new: &schema, compat: Compat::Full, policy };
            let verdict = check_within(&comparison, Budget { steps: 0, ..prombus_schema::BUDGET });
            assert_eq!(verdict, Verdict::Proved, "{keyword} {policy:?}");
        }
    }
}

#[test]
fn the_budget_is_of_steps_and_what_it_cuts_off_is_not_proved() {
    let mut cut = 0;
    for seed in 0..120 {
        let mut rng = Rng::with_seed(seed);
        let first = random::document(&mut rng);
        let second = random::changed(&mut rng, &first);
        let (Ok(old), Ok(new)) = (Schema::from_value(&first), Schema::from_value(&second)) else { continue };
        let comparison =
            Comparison { old: &old, new: &new, compat: Compat::Backward, policy: Policy::Strict };
        let whole = check(&comparison);
        for steps in [0, 1, 5, 20, 60, 200, 1_000] {
            let budget = Budget { steps, ..prombus_schema::BUDGET };
            let verdict = check_within(&comparison, budget);
            assert_eq!(verdict, check_within(&comparison, budget), "{steps} steps\n  {first}\n  {second}");
            let proved = verdict.is_compatible() && !whole.is_compatible();
            assert!(!proved, "proved in {steps} steps, but {whole:?}\n  {first}\n  {second}");
            cut += u32::from(matches!(verdict, Verdict::Unknown(_)));
        }
    }
    assert!(cut > 50, "{cut}");
}

/// Set in a process that has less memory than the stack takes on which schemas are read.
const SMALL: &str = "PROMBUS_SCHEMA_SMALL";

#[test]
#[cfg(target_os = "linux")]
fn without_memory_for_the_stack_nothing_is_read() {
    if std::env::var_os(SMALL).is_some() {
        let nested = format!("{}{}", r#"{"not":"#.repeat(100), "{}") + &"}".repeat(100);
        assert_eq!(Schema::parse(&nested).unwrap_err(), SchemaError::NoStack);
        return;
    }
    let name = "hostile::without_memory_for_the_stack_nothing_is_read";
    let limited = r#"ulimit -v 230000 && exec "$0" "$@""#;
    let status = Command::new("sh")
        .args(["-c", limited])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--test-threads=1"])
        .env(SMALL, "1")
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
}
