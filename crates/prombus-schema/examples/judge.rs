//! How well the verdicts agree with cases that other people wrote.
//!
//! ```text
//! cargo run --release -p prombus-schema --example judge -- pairs FILE      {"tests": [{"id", "original", "updated", "compatibility": "backward|both|none"}]}
//! cargo run --release -p prombus-schema --example judge -- suite FILE      a line each: {"description", "schema", "tests": [{"data", "valid"}]}
//! cargo run --release -p prombus-schema --example judge -- mutated FILE    a line each: {"schema"}
//! ```

use prombus_schema::{Comparison, Compat, Policy, Schema, Verdict, check, example};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

#[path = "../tests/it/mutate.rs"]
mod mutate;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [mode, file] = arguments.as_slice() else {
        eprintln!("usage: judge pairs|suite|mutated FILE");
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
