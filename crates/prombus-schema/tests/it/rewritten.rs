//! The verdict is about what schemas mean: not about the order of their members, whether parts are in place or referred to,
//! or which draft they are written in.

use crate::{pairs::wanted, random};
use fastrand::Rng;
use prombus_schema::{Comparison, Compat, Policy, Schema, Verdict, check};
use serde_json::{Map, Value, json};

/// How many random pairs are rewritten; `PROMBUS_SCHEMA_PAIRS` asks for more.
const PAIRS: u64 = 250;

fn verdict(old: &Schema, new: &Schema, policy: Policy) -> Verdict {
    check(&Comparison { old, new, compat: Compat::Backward, policy })
}

fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Proved => "proved",
        Verdict::Refuted(_) => "refuted",
        Verdict::Unknown(_) => "unknown",
    }
}

/// Changes every object of a schema. Random schemas have no property that is called like a keyword.
fn everywhere(value: &Value, change: &dyn Fn(Map<String, Value>) -> Map<String, Value>) -> Value {
    match value {
        Value::Object(members) => {
            let inside = members.iter().map(|(name, value)| (name.clone(), everywhere(value, change)));
            Value::Object(change(inside.collect()))
        }
        Value::Array(items) => items.iter().map(|item| everywhere(item, change)).collect(),
        other => other.clone(),
    }
}

/// The whole schema and every property as a definition that is referred to.
fn referred(document: &Value) -> Value {
    let Value::Object(_) = document else {
        return json!({"$ref": "#/$defs/whole", "$defs": {"whole": document}});
    };
    let moved = std::cell::RefCell::new(Map::new());
    let whole = everywhere(document, &|mut members| {
        if members.get("$ref") == Some(&json!("#")) {
            members.insert("$ref".to_owned(), json!("#/$defs/whole"));
        }
        if let Some(Value::Object(properties)) = members.get_mut("properties") {
            for schema in properties.values_mut() {
                let name = format!("moved{}", moved.borrow().len());
                let reference = json!({"$ref": format!("#/$defs/{name}")});
                moved.borrow_mut().insert(name, std::mem::replace(schema, reference));
            }
        }
        members
    });
    let Value::Object(mut whole) = whole else { return Value::Null };
    let mut definitions = moved.into_inner();
    if let Some(Value::Object(inner)) = whole.remove("$defs") {
        definitions.extend(inner);
    }
    definitions.insert("whole".to_owned(), Value::Object(whole));
    json!({"$ref": "#/$defs/whole", "$defs": definitions})
}

/// The same in draft 2019-09.
fn in_2019(document: &Value) -> Value {
    let mut older = everywhere(document, &|mut members| {
        if let Some(tuple) = members.remove("prefixItems") {
            let rest = members.insert("items".to_owned(), tuple);
            members.extend(rest.map(|rest| ("additionalItems".to_owned(), rest)));
        }
        members
    });
    named(&mut older, "https://json-schema.org/draft/2019-09/schema");
    older
}

/// The same in draft 7, in which a reference has no siblings.
fn in_7(document: &Value) -> Value {
    let mut older = everywhere(&in_2019(document), &|mut members| {
        members.remove("$schema");
        let mut all = match members.remove("allOf") {
            Some(Value::Array(all)) => all,
            _ => Vec::new(),
        };
        for keyword in ["dependentRequired", "dependentSchemas"] {
            all.extend(members.remove(keyword).map(|dependencies| json!({ "dependencies": dependencies })));
        }
        all.extend(members.remove("$ref").map(|reference| json!({ "$ref": reference })));
        if !all.is_empty() {
            members.insert("allOf".to_owned(), all.into());
        }
        members
    });
    named(&mut older, "http://json-schema.org/draft-07/schema#");
    older
}

fn named(schema: &mut Value, draft: &str) {
    if let Value::Object(members) = schema {
        members.insert("$schema".to_owned(), json!(draft));
    }
}

/// The same with its members in another order, which `serde_json` would sort: so it is written by hand.
pub fn turned_around(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let members: Vec<String> = members
                .iter()
                .rev()
                .map(|(name, value)| format!("{}: {}", json!(name), turned_around(value)))
                .collect();
            format!("{{{}}}", members.join(", "))
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(turned_around).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

/// A way to write a document, and its name.
type Way = (&'static str, fn(&Value) -> String);

/// Ways to write a document, by what the drafts have.
fn ways(documents: [&Value; 2]) -> Vec<Way> {
    let mut ways: Vec<Way> =
        vec![("turned around", turned_around), ("referred", |document| referred(document).to_string())];
    let text = format!("{} {}", documents[0], documents[1]);
    let says = |keyword: &str| text.contains(&format!("\"{keyword}\""));
    // In 2019-09, `contains` leaves everything over.
    if !says("unevaluatedItems") {
        ways.push(("2019-09", |document| in_2019(document).to_string()));
        if !["unevaluatedProperties", "minContains", "maxContains"].into_iter().any(says) {
            ways.push(("draft 7", |document| in_7(document).to_string()));
        }
    }
    ways
}

#[test]
fn random_pairs_mean_the_same_however_they_are_written() {
    let mut compared = 0;
    for seed in 0..wanted(PAIRS) {
        let mut rng = Rng::with_seed(seed);
        let (first, second) = {
            let first = random::document(&mut rng);
            let second = random::changed(&mut rng, &first);
            (first, second)
        };
        let (Ok(old), Ok(new)) = (Schema::from_value(&first), Schema::from_value(&second)) else { continue };
        for policy in [Policy::Strict, Policy::Lenient] {
            let plain = verdict(&old, &new, policy);
            for (way, rewrite) in ways([&first, &second]) {
                let texts = (rewrite(&first), rewrite(&second));
                let other_old =
                    Schema::parse(&texts.0).unwrap_or_else(|error| panic!("{way}: {error}\n{}", texts.0));
                let other_new =
                    Schema::parse(&texts.1).unwrap_or_else(|error| panic!("{way}: {error}\n{}", texts.1));
                let rewritten = verdict(&other_old, &other_new, policy);
                assert_eq!(
                    word(&plain),
                    word(&rewritten),
                    "{way} {policy:?}: {plain:?} {rewritten:?}\n  {first}\n  {second}\n  {}\n  {}",
                    texts.0,
                    texts.1
                );
                for (one, other) in [(&old, &other_old), (&other_old, &old)] {
                    let same = verdict(one, other, Policy::Strict);
                    assert!(same.is_compatible(), "{way}: {same:?}\n  {first}\n  {}", texts.0);
                }
                compared += 1;
            }
        }
    }
    println!("{compared} compared");
    assert!(compared > wanted(PAIRS) * 4, "{compared}");
}
