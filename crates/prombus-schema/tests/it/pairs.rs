//! Random pairs of schemas: what is proved is not refuted by any document, and what is refuted is.

use crate::random;
use fastrand::Rng;
use prombus_schema::{
    Comparison, Compat, Policy, Schema, Verdict, Violation, WantedDocuments, check, documents,
};
use serde_json::Value;

/// How many pairs are tried; `PROMBUS_SCHEMA_PAIRS` asks for more.
const PAIRS: u64 = 1_500;

/// The share of pairs that may be undecided, in a thousand.
const UNKNOWN_LIMIT: u64 = 20;

fn one_way(old: &Schema, new: &Schema, policy: Policy) -> Verdict {
    check(&Comparison { old, new, compat: Compat::Backward, policy })
}

/// How many pairs were asked for.
pub fn wanted(usual: u64) -> u64 {
    std::env::var("PROMBUS_SCHEMA_PAIRS").ok().and_then(|count| count.parse().ok()).unwrap_or(usual)
}

/// The seed of the first pair; `PROMBUS_SCHEMA_SEED` names another one.
fn first_seed() -> u64 {
    std::env::var("PROMBUS_SCHEMA_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0)
}

/// Documents that a schema takes, as the policy reads it: some that the solver makes, and random ones.
fn taken(rng: &mut Rng, schema: &Schema, policy: Policy) -> Vec<Value> {
    let mut all = documents(schema, WantedDocuments { count: 6, policy, rich: false });
    all.extend(documents(schema, WantedDocuments { count: 2, policy, rich: true }));
    if policy == Policy::Strict {
        let random = (0..40).map(|_| random::value(rng, 3));
        all.extend(random.filter(|value| schema.validator().is_valid(value)));
    }
    all
}

#[derive(Default, Debug)]
struct Counts {
    pairs: u64,
    /// How many documents what is proved was held against.
    documents: u64,
    strict: Verdicts,
    lenient: Verdicts,
}

#[derive(Default, Debug)]
struct Verdicts {
    proved: u64,
    refuted: u64,
    unknown: u64,
}

impl Verdicts {
    fn count(&mut self, verdict: &Verdict) {
        match verdict {
            Verdict::Proved => self.proved += 1,
            Verdict::Refuted(_) => self.refuted += 1,
            Verdict::Unknown(_) => self.unknown += 1,
        }
    }
}

/// Checks the verdicts of both policies against documents, counts them, and answers the strict one.
fn agree(rng: &mut Rng, pair: (&Value, &Value), schemas: (&Schema, &Schema), counts: &mut Counts) -> Verdict {
    let (old, new) = schemas;
    counts.pairs += 1;
    let [strict, lenient] = [Policy::Strict, Policy::Lenient].map(|policy| {
        let verdict = one_way(old, new, policy);
        match &verdict {
            Verdict::Proved => {
                for document in taken(rng, old, policy) {
                    counts.documents += 1;
                    assert!(
                        new.validator().is_valid(&document),
                        "proved {policy:?}, but {document}\n  {}\n  {}",
                        pair.0,
                        pair.1
                    );
                }
            }
            Verdict::Refuted(violations) => confirmed(pair, schemas, violations),
            Verdict::Unknown(why) if std::env::var("PROMBUS_SCHEMA_PAIRS").is_ok() => {
                let Violation { path, message, .. } = &why[0];
                println!("unknown {policy:?}: {path} {message}\n  {}\n  {}", pair.0, pair.1);
            }
            Verdict::Unknown(_) => {}
        }
        verdict
    });
    assert!(
        !(strict.is_compatible() && matches!(lenient, Verdict::Refuted(_))),
        "strictly proved, but {lenient:?}\n  {}\n  {}",
        pair.0,
        pair.1
    );
    counts.strict.count(&strict);
    counts.lenient.count(&lenient);
    strict
}

/// Every violation has a document that the one schema takes and the other one refuses.
fn confirmed(pair: (&Value, &Value), (old, new): (&Schema, &Schema), violations: &[Violation]) {
    for violation in violations {
        let document = violation.counterexample.as_ref().unwrap();
        assert!(old.validator().is_valid(document), "{document}\n  {}\n  {}", pair.0, pair.1);
        assert!(!new.validator().is_valid(document), "{document}\n  {}\n  {}", pair.0, pair.1);
    }
}

/// Checks random schemas, changed ones, and chains of three; skips those that are refused.
fn on_pairs(count: u64, document: fn(&mut Rng) -> Value, changed: fn(&mut Rng, &Value) -> Value) -> Counts {
    let mut counts = Counts::default();
    for seed in first_seed()..first_seed() + count {
        let mut rng = Rng::with_seed(seed);
        let first = document(&mut rng);
        let second = if rng.u32(0..3) == 0 { document(&mut rng) } else { changed(&mut rng, &first) };
        let third = changed(&mut rng, &second);
        let parsed = [&first, &second, &third].map(Schema::from_value);
        let [Ok(a), Ok(b), Ok(c)] = &parsed else { continue };
        for policy in [Policy::Strict, Policy::Lenient] {
            let itself = one_way(a, a, policy);
            assert!(itself.is_compatible(), "not like itself: {itself:?}\n  {first}");
        }
        let there = agree(&mut rng, (&first, &second), (a, b), &mut counts);
        agree(&mut rng, (&second, &first), (b, a), &mut counts);
        let on = agree(&mut rng, (&second, &third), (b, c), &mut counts);
        if there.is_compatible() && on.is_compatible() {
            let whole = one_way(a, c, Policy::Strict);
            assert!(
                !matches!(whole, Verdict::Refuted(_)),
                "not transitive: {whole:?}\n  {first}\n  {second}\n  {third}"
            );
        }
    }
    println!("{counts:?}");
    counts
}

#[test]
fn verdicts_on_random_pairs_agree_with_documents() {
    let counts = on_pairs(wanted(PAIRS), random::document, random::changed);
    assert!(counts.pairs > wanted(PAIRS), "too few schemas could be read: {counts:?}");
    for verdicts in [&counts.strict, &counts.lenient] {
        let often = verdicts.proved.min(verdicts.refuted);
        assert!(often > counts.pairs / 10, "{counts:?}");
        assert!(
            verdicts.unknown * 1_000 <= counts.pairs * UNKNOWN_LIMIT,
            "too much is undecided: {counts:?}"
        );
    }
}

#[test]
fn verdicts_on_random_pairs_with_dynamic_references_agree_with_documents() {
    let counts = on_pairs(wanted(PAIRS), random::scoped, random::replaced);
    assert!(counts.pairs > wanted(PAIRS) / 2, "too few schemas could be read: {counts:?}");
    assert!(counts.strict.proved.min(counts.strict.refuted) > counts.pairs / 20, "{counts:?}");
}

#[test]
fn verdicts_on_random_pairs_with_too_many_cases_agree_with_documents() {
    let counts = on_pairs(wanted(PAIRS) / 10, random::left_over, random::replaced);
    assert!(counts.pairs > wanted(PAIRS) / 10, "too few schemas could be read: {counts:?}");
}

#[test]
fn what_is_taken_while_it_is_read_is_valid() {
    let (mut taken_so, mut valid) = (0, 0);
    for seed in first_seed()..first_seed() + wanted(PAIRS) * 4 {
        let mut rng = Rng::with_seed(seed);
        let document = random::schema(&mut rng, 2);
        let Ok(schema) = Schema::from_value(&document) else { continue };
        let validator = schema.validator();
        let mut values = documents(&schema, WantedDocuments { count: 6, policy: Policy::Strict, rich: true });
        values.extend((0..40).map(|_| random::value(&mut rng, 3)));
        for value in values {
            let is_taken_so = validator.takes_plainly(value.to_string().as_bytes());
            let is_valid = validator.is_valid(&value);
            assert!(is_valid || !is_taken_so, "{value}\n  {document}");
            taken_so += u64::from(is_taken_so);
            valid += u64::from(is_valid);
        }
    }
    println!("{taken_so} of {valid}");
    assert!(taken_so > valid / 10, "too few schemas are plain: {taken_so} of {valid}");
}
