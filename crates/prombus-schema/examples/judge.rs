//! How well the verdicts agree with cases that other people wrote.
//!
//! ```text
//! cargo run --release -p prombus-schema --example judge -- pairs FILE      {"tests": [{"id", "original", "updated", "compatibility": "backward|both|none"}]}
//! cargo run --release -p prombus-schema --example judge -- suite FILE      a line each: {"description", "schema", "tests": [{"data", "valid"}]}
//! cargo run --release -p prombus-schema --example judge -- mutated FILE    a line each: {"schema"}
//! cargo run --release -p prombus-schema --example judge -- large           schemas that are made here, as large as they may be
//! ```

use prombus_schema::{Comparison, Compat, Policy, Schema, Verdict, check, example};
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant};

#[path = "../tests/it/mutate.rs"]
mod mutate;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments == ["large"] {
        return large();
    }
    let [mode, file] = arguments.as_slice() else {
        eprintln!("usage: judge pairs|suite|mutated FILE, or judge large");
        std::process::exit(2);
    };
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) => {
            eprintln!("{file} cannot be read: {error}");
            std::process::exit(1);
        }
    };
    match mode.as_str() {
        "pairs" => pairs(&text),
        "suite" => suite(&lines(&text)),
        "mutated" => mutated(&lines(&text)),
        _ => eprintln!("usage: judge pairs|suite|mutated FILE"),
    }
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// A schema, with the draft that its line names if it does not name one.
fn dated(case: &Value) -> Value {
    let mut schema = case["schema"].clone();
    if let (Some(members), "draft7") = (schema.as_object_mut(), case["draft"].as_str().unwrap_or_default()) {
        members.entry("$schema").or_insert_with(|| json!("http://json-schema.org/draft-07/schema#"));
    }
    schema
}

fn one_way(old: &Schema, new: &Schema) -> Verdict {
    check(&Comparison { old, new, compat: Compat::Backward, policy: Policy::Strict })
}

/// Pairs of schemas with the verdict of someone else, by the letter of the specification.
fn pairs(text: &str) {
    let cases: Value = serde_json::from_str(text).unwrap_or_default();
    let (mut agree, mut all) = (0, 0);
    for case in cases["tests"].as_array().into_iter().flatten() {
        all += 1;
        let (old, new) = (Schema::from_value(&case["original"]), Schema::from_value(&case["updated"]));
        let (Ok(old), Ok(new)) = (&old, &new) else {
            println!("refused   {} {:?} {:?}", case["id"], old.err(), new.err());
            continue;
        };
        let (there, back) = (one_way(old, new), one_way(new, old));
        let ours = match (there.is_compatible(), back.is_compatible()) {
            (true, true) => "both",
            (true, false) => "backward",
            (false, true) => "forward",
            (false, false) => "none",
        };
        if case["compatibility"] == ours
            && !matches!(there, Verdict::Unknown(_))
            && !matches!(back, Verdict::Unknown(_))
        {
            agree += 1;
        } else {
            println!("different {} theirs {} ours {ours}", case["id"], case["compatibility"]);
            println!("    {} -> {}", case["original"], case["updated"]);
            for violation in there.violations().iter().chain(back.violations()) {
                println!(
                    "    {} {}: {} {:?}",
                    violation.path,
                    violation.rule,
                    violation.message,
                    violation.counterexample.as_ref().map(Value::to_string)
                );
            }
        }
    }
    println!("{agree} of {all} agree");
}

/// Instances with the word of someone else on whether a schema takes them: the validator and containment have to say the same.
fn suite(groups: &[Value]) {
    let (mut all, mut wrong, mut unknown, mut refused, mut other) = (0, 0, 0, 0, 0);
    for group in groups {
        let schema = match Schema::from_value(&dated(group)) {
            Ok(schema) => schema,
            Err(error) => {
                refused += 1;
                println!("refused   {} {} {}: {error}", group["draft"], group["file"], group["description"]);
                continue;
            }
        };
        for test in group["tests"].as_array().into_iter().flatten() {
            all += 1;
            let valid = schema.validator().is_valid(&test["data"]);
            if test["valid"] != valid {
                other += 1;
                println!(
                    "validator {} {} {} says {valid}",
                    group["file"], group["description"], test["data"]
                );
            }
            let Ok(only) = Schema::from_value(&json!({ "const": test["data"] })) else { continue };
            match one_way(&only, &schema) {
                Verdict::Proved if valid => {}
                Verdict::Refuted(_) if !valid => {}
                Verdict::Unknown(why) => {
                    unknown += 1;
                    println!(
                        "unknown   {} {} {}: {}",
                        group["file"], group["description"], test["data"], why[0].message
                    );
                }
                verdict => {
                    wrong += 1;
                    println!(
                        "WRONG     {} {} {} {}: {verdict:?} validator {valid}",
                        group["draft"], group["file"], group["schema"], test["data"]
                    );
                }
            }
        }
    }
    println!(
        "{all} instances: {wrong} wrong, {unknown} unknown; {other} times the validator differs from the suite; {refused} schemas refused"
    );
}

/// Schemas against mutations of themselves, in both directions and by both policies.
fn mutated(cases: &[Value]) {
    let (mut checks, mut unknown, mut refused, mut examples) = (0, 0, 0, 0);
    let mut slowest = Duration::ZERO;
    let mut total = Duration::ZERO;
    let mut counts = [0; 3];
    for case in cases {
        let name = if case["name"].is_null() { &case["description"] } else { &case["name"] };
        let document = dated(case);
        let schema = match Schema::from_value(&document) {
            Ok(schema) => schema,
            Err(error) => {
                refused += 1;
                println!("refused   {name}: {error}");
                continue;
            }
        };
        examples += usize::from(example(&schema).is_some());
        for (kind, mutant) in mutate::mutations(&document) {
            let Ok(mutant) = Schema::from_value(&mutant) else { continue };
            for (old, new) in [(&schema, &mutant), (&mutant, &schema)] {
                for policy in [Policy::Lenient, Policy::Strict] {
                    let start = Instant::now();
                    let verdict = check(&Comparison { old, new, compat: Compat::Backward, policy });
                    let took = start.elapsed();
                    (checks, total) = (checks + 1, total + took);
                    if took > slowest {
                        slowest = took;
                        println!("slowest   {name} {kind} {policy:?} {took:?}");
                    }
                    match verdict {
                        Verdict::Proved => counts[0] += 1,
                        Verdict::Refuted(_) => counts[1] += 1,
                        Verdict::Unknown(why) => {
                            counts[2] += 1;
                            unknown += 1;
                            println!(
                                "unknown   {name} {kind} {policy:?} {}: {}",
                                why[0].path, why[0].message
                            );
                        }
                    }
                }
            }
        }
    }
    println!("{} schemas, {refused} refused, {examples} with an example", cases.len());
    println!(
        "{checks} checks: {counts:?} proved, refuted, unknown; {unknown} unknown; slowest {slowest:?}, {total:?} in all"
    );
}

/// How many branches a large schema has.
const BRANCHES: usize = 16_000;

/// How long large schemas take against themselves and against one with a change at the end.
fn large() {
    let property = |at: usize| (format!("p{at}"), json!({"type": "string", "maxLength": at % 50 + 1}));
    let properties = |count: usize| json!({"type": "object", "properties": (0..count).map(property).collect::<Map<_, _>>()});
    timed("200 properties", &properties(200), &properties(201));
    timed("properties", &properties(BRANCHES), &properties(BRANCHES + 1));
    type Branch = fn(usize) -> Value;
    let branches: [(&str, Branch); 6] = [
        ("constants", |at| json!({ "const": at })),
        ("texts", |at| json!({"pattern": format!("^a{}$", at)})),
        ("ranges", |at| json!({"minimum": at * 3, "maximum": at * 3 + 1})),
        ("required", |at| json!({"required": [format!("p{at}")]})),
        ("kinds", |at| json!({"properties": {"k": {"const": at}}, "required": ["k"]})),
        ("references", |at| json!({"$ref": format!("#/$defs/d{}", at % 100)})),
    ];
    let definitions: Map<String, Value> =
        (0..100).map(|at| (format!("d{at}"), json!({"minProperties": at, "type": "object"}))).collect();
    for (name, branch) in branches {
        for keyword in ["anyOf", "oneOf", "allOf"] {
            let of = |count: usize| {
                let all: Vec<Value> = (0..count).map(branch).collect();
                json!({ keyword: all, "$defs": definitions })
            };
            timed(&format!("{keyword} {name}"), &of(BRANCHES), &of(BRANCHES + 1));
        }
    }
}

fn timed(name: &str, old: &Value, new: &Value) {
    let start = Instant::now();
    let (old, new) = match (Schema::from_value(old), Schema::from_value(new)) {
        (Ok(old), Ok(new)) => (old, new),
        (old, new) => {
            let why = old.err().or(new.err()).map(|error| error.to_string()).unwrap_or_default();
            return println!(
                "{name}: refused in {:?}: {}",
                start.elapsed(),
                why.chars().take(100).collect::<String>()
            );
        }
    };
    println!("{name}: both read in {:?}", start.elapsed());
    for (way, old, new) in [("itself", &old, &old), ("grown", &old, &new), ("shrunk", &new, &old)] {
        for policy in [Policy::Strict, Policy::Lenient] {
            let start = Instant::now();
            let verdict = check(&Comparison { old, new, compat: Compat::Backward, policy });
            let word = match &verdict {
                Verdict::Proved => "proved",
                Verdict::Refuted(_) => "refuted",
                Verdict::Unknown(why) => &why[0].message,
            };
            let took = start.elapsed();
            let slow = if took > Duration::from_secs(1) { "SLOW " } else { "" };
            println!("  {slow}{way} {policy:?} {took:?} {word}");
        }
    }
    let start = Instant::now();
    let made = example(&old).is_some();
    println!("  example {made} in {:?}", start.elapsed());
}
