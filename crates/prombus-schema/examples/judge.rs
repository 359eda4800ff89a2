//! How well the verdicts agree with cases that other people wrote. It ends with 1 if a verdict is wrong, if more than 5 % of
//! what was asked is undecided or could not be asked because a schema is refused, or if an answer took longer than a second.
//!
//! ```text
//! cargo run --release -p prombus-schema --example judge -- pairs FILE      {"tests": [{"id", "original", "updated", "compatibility": "backward|both|none"}]}
//! cargo run --release -p prombus-schema --example judge -- suite FILE      a line each: {"description", "schema", "tests": [{"data", "valid"}]}
//! cargo run --release -p prombus-schema --example judge -- mutated FILE    a line each: {"schema"}
//! cargo run --release -p prombus-schema --example judge -- large           schemas that are made here, as large as they may be
//! ```

use prombus_schema::{
    Comparison, Compat, Policy, Schema, SchemaError, Verdict, WantedDocuments, check, documents, example,
};
use serde_json::{Map, Value, json};
use std::process::ExitCode;
use std::time::{Duration, Instant};

#[path = "../tests/it/mutate.rs"]
mod mutate;

const USAGE: &str = "usage: judge pairs|suite|mutated FILE, or judge large";

/// The share of answers that may be undecided, in percent.
const UNKNOWN_LIMIT: usize = 5;

/// How long an answer may take.
const TIME_LIMIT: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments == ["large"] {
        return large().end();
    }
    let [mode, file] = arguments.as_slice() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) => {
            eprintln!("{file} cannot be read: {error}");
            return ExitCode::from(2);
        }
    };
    match mode.as_str() {
        "pairs" => pairs(&text).end(),
        "suite" => suite(&lines(&text)).end(),
        "mutated" => mutated(&lines(&text)).end(),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// What the answers come to.
#[derive(Default)]
struct Sum {
    proved: usize,
    refuted: usize,
    unknown: usize,
    /// Could not be asked, as a schema is refused.
    refused: usize,
    wrong: usize,
    slowest: Duration,
    total: Duration,
}

impl Sum {
    /// Asks, and counts the answer. A counterexample that the validators do not confirm is a wrong one.
    fn ask(&mut self, name: &str, old: &Schema, new: &Schema, policy: Policy) -> Verdict {
        let start = Instant::now();
        let verdict = check(&Comparison { old, new, compat: Compat::Backward, policy });
        let took = start.elapsed();
        self.total += took;
        if took > self.slowest {
            self.slowest = took;
            println!("slowest   {name} {policy:?} {took:?}");
        }
        match &verdict {
            Verdict::Proved => self.proved += 1,
            Verdict::Refuted(violations) => {
                self.refuted += 1;
                for document in violations.iter().filter_map(|violation| violation.counterexample.as_ref()) {
                    if !old.validator().is_valid(document) || new.validator().is_valid(document) {
                        self.wrong(name, &format!("{document} is no counterexample"));
                    }
                }
            }
            Verdict::Unknown(why) => {
                self.unknown += 1;
                println!("unknown   {name} {policy:?} {}: {}", why[0].path, why[0].message);
            }
        }
        verdict
    }

    fn refused(&mut self, name: &str, checks: usize, why: &dyn std::fmt::Display) {
        self.refused += checks;
        println!("refused   {name}: {why}");
    }

    fn wrong(&mut self, name: &str, why: &str) {
        self.wrong += 1;
        println!("WRONG     {name}: {why}");
    }

    fn end(&self) -> ExitCode {
        let Self { proved, refuted, unknown, refused, wrong, slowest, total } = self;
        let all = proved + refuted + unknown + refused;
        let undecided = unknown + refused;
        println!(
            "{all} checks: {proved} proved, {refuted} refuted, {unknown} unknown, {refused} refused ({:.2} % undecided); \
             {wrong} wrong; slowest {slowest:?}, {total:?} in all",
            100.0 * undecided as f64 / all.max(1) as f64
        );
        let good = *wrong == 0 && undecided * 100 <= all * UNKNOWN_LIMIT && *slowest <= TIME_LIMIT;
        if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
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

/// Pairs of schemas with the verdict of someone else, by the letter of the specification.
fn pairs(text: &str) -> Sum {
    let cases: Value = serde_json::from_str(text).unwrap_or_default();
    let (mut agree, mut all, mut sum) = (0, 0, Sum::default());
    for case in cases["tests"].as_array().into_iter().flatten() {
        all += 1;
        let name = case["id"].to_string();
        let (old, new) = (Schema::from_value(&case["original"]), Schema::from_value(&case["updated"]));
        let (Ok(old), Ok(new)) = (&old, &new) else {
            let why = old.err().or(new.err()).map(|error| error.to_string()).unwrap_or_default();
            sum.refused(&name, 2, &why);
            continue;
        };
        let there = sum.ask(&name, old, new, Policy::Strict);
        let back = sum.ask(&name, new, old, Policy::Strict);
        let ours = match (there.is_compatible(), back.is_compatible()) {
            (true, true) => "both",
            (true, false) => "backward",
            (false, true) => "forward",
            (false, false) => "none",
        };
        let decided = [&there, &back].iter().all(|verdict| !matches!(verdict, Verdict::Unknown(_)));
        if case["compatibility"] == ours && decided {
            agree += 1;
            continue;
        }
        println!("different {name} theirs {} ours {ours}", case["compatibility"]);
        println!("    {} -> {}", case["original"], case["updated"]);
        for violation in there.violations().iter().chain(back.violations()) {
            let document = violation.counterexample.as_ref().map(Value::to_string);
            println!("    {} {}: {} {document:?}", violation.path, violation.rule, violation.message);
        }
    }
    println!("{agree} of {all} agree");
    sum
}

/// Instances with the word of someone else on whether a schema takes them: the validator and containment have to say the same.
fn suite(groups: &[Value]) -> Sum {
    let (mut all, mut other, mut sum) = (0, 0, Sum::default());
    for group in groups {
        let name = format!("{} {} {}", group["draft"], group["file"], group["description"]);
        let tests = group["tests"].as_array().map(Vec::as_slice).unwrap_or_default();
        all += tests.len();
        let schema = match Schema::from_value(&dated(group)) {
            Ok(schema) => schema,
            Err(error) => {
                sum.refused(&name, tests.len(), &error);
                continue;
            }
        };
        for test in tests {
            let name = format!("{name} {}", test["data"]);
            let valid = schema.validator().is_valid(&test["data"]);
            let is_taken_so = schema.validator().takes_plainly(test["data"].to_string().as_bytes());
            if test["valid"] != valid || (is_taken_so && !valid) {
                other += 1;
                println!("validator {name} says {valid}");
            }
            let only = match Schema::from_value(&json!({ "const": test["data"] })) {
                Ok(only) => only,
                Err(error) => {
                    sum.refused(&name, 1, &error);
                    continue;
                }
            };
            match sum.ask(&name, &only, &schema, Policy::Strict) {
                Verdict::Proved if !valid => sum.wrong(&name, "proved, but the validator refuses it"),
                Verdict::Refuted(_) if valid => sum.wrong(&name, "refuted, but the validator takes it"),
                _ => {}
            }
        }
    }
    println!(
        "{all} instances of {} schemas; {other} times the validator differs from the suite",
        groups.len()
    );
    sum
}

/// A schema that is only compared: it may refer to other documents.
fn compared(schema: &Value) -> Result<Schema, SchemaError> {
    Schema::parse_to_compare(&schema.to_string())
}

/// A schema, with documents as each policy reads it.
struct Read {
    schema: Schema,
    documents: [Vec<Value>; 2],
}

const POLICIES: [Policy; 2] = [Policy::Lenient, Policy::Strict];

impl Read {
    fn new(schema: Schema) -> Self {
        let wanted = |policy| {
            [true, false].into_iter().flat_map(move |rich| [WantedDocuments { count: 4, policy, rich }])
        };
        let documents =
            POLICIES.map(|policy| wanted(policy).flat_map(|wanted| documents(&schema, wanted)).collect());
        Self { schema, documents }
    }
}

/// Schemas against mutations of themselves, in both directions and by both policies. What is proved is held against documents.
fn mutated(cases: &[Value]) -> Sum {
    let (mut examples, mut refused, mut held, mut sum) = (0, 0, 0, Sum::default());
    for case in cases {
        let name = if case["name"].is_null() { &case["description"] } else { &case["name"] };
        let document = dated(case);
        let mutations = mutate::mutations(&document);
        let checks = 2 * POLICIES.len();
        let schema = match compared(&document) {
            Ok(schema) => Read::new(schema),
            Err(error) => {
                refused += 1;
                sum.refused(&name.to_string(), checks * mutations.len(), &error);
                continue;
            }
        };
        examples += usize::from(example(&schema.schema).is_some());
        for (kind, mutant) in mutations {
            let name = format!("{name} {kind}");
            let mutant = match compared(&mutant) {
                Ok(mutant) => Read::new(mutant),
                Err(error) => {
                    sum.refused(&name, checks, &error);
                    continue;
                }
            };
            for (old, new) in [(&schema, &mutant), (&mutant, &schema)] {
                for (policy, documents) in POLICIES.into_iter().zip(&old.documents) {
                    let verdict = sum.ask(&name, &old.schema, &new.schema, policy);
                    if matches!(kind, "same" | "reference inlined") && matches!(verdict, Verdict::Refuted(_))
                    {
                        sum.wrong(&name, "refuted, but both schemas say the same");
                    }
                    for document in documents.iter().filter(|_| verdict.is_compatible()) {
                        held += 1;
                        if !new.schema.validator().is_valid(document) {
                            sum.wrong(&name, &format!("proved {policy:?}, but {document} is refused"));
                        }
                    }
                }
            }
        }
    }
    println!("{} schemas, {refused} refused, {examples} with an example", cases.len());
    println!("what is proved was held against {held} documents");
    sum
}

/// How many branches a large schema has.
const BRANCHES: usize = 16_000;

/// How long large schemas take against themselves and against one with a change at the end.
fn large() -> Sum {
    let mut sum = Sum::default();
    let property = |at: usize| (format!("p{at}"), json!({"type": "string", "maxLength": at % 50 + 1}));
    let properties = |count: usize| json!({"type": "object", "properties": (0..count).map(property).collect::<Map<_, _>>()});
    timed(&mut sum, "200 properties", &properties(200), &properties(201));
    timed(&mut sum, "properties", &properties(BRANCHES), &properties(BRANCHES + 1));
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
            timed(&mut sum, &format!("{keyword} {name}"), &of(BRANCHES), &of(BRANCHES + 1));
        }
    }
    // They are made to cost, so that only the time counts.
    Sum { unknown: 0, refused: 0, ..sum }
}

fn timed(sum: &mut Sum, name: &str, old: &Value, new: &Value) {
    let start = Instant::now();
    let (old, new) = match (Schema::from_value(old), Schema::from_value(new)) {
        (Ok(old), Ok(new)) => (old, new),
        (old, new) => {
            let why = old.err().or(new.err()).map(|error| error.to_string()).unwrap_or_default();
            let why: String = why.chars().take(100).collect();
            return sum.refused(name, 0, &format!("in {:?}: {why}", start.elapsed()));
        }
    };
    println!("{name}: both read in {:?}", start.elapsed());
    for (way, old, new) in [("itself", &old, &old), ("grown", &old, &new), ("shrunk", &new, &old)] {
        for policy in POLICIES {
            let start = Instant::now();
            let verdict = sum.ask(&format!("{name} {way}"), old, new, policy);
            let word = match &verdict {
                Verdict::Proved => "proved",
                Verdict::Refuted(_) => "refuted",
                Verdict::Unknown(_) => "unknown",
            };
            println!("  {way} {policy:?} {:?} {word}", start.elapsed());
        }
    }
    let start = Instant::now();
    let made = example(&old).is_some();
    println!("  example {made} in {:?}", start.elapsed());
}
