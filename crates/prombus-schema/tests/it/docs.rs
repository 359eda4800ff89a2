//! The verdicts in `docs/schemas.md` are those that are given.

use prombus_schema::{Comparison, Compat, Policy, Schema, Verdict, check};
use serde_json::Value;

const DOCUMENT: &str = include_str!("../../../../docs/schemas.md");

fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Proved => "proved",
        Verdict::Refuted(_) => "refuted",
        Verdict::Unknown(_) => "unknown",
    }
}

#[test]
fn the_document_says_what_is_so() {
    let blocks: Vec<&str> =
        DOCUMENT.split("```json\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(blocks.len() > 10, "the document has its pairs");
    for block in blocks {
        let case: Value = serde_json::from_str(block).unwrap();
        let (old, new) =
            (Schema::from_value(&case["old"]).unwrap(), Schema::from_value(&case["new"]).unwrap());
        let ask = |old, new, policy| check(&Comparison { old, new, compat: Compat::Backward, policy });
        let mut told = 0;
        for (name, verdict) in [
            ("strict", ask(&old, &new, Policy::Strict)),
            ("lenient", ask(&old, &new, Policy::Lenient)),
            ("back", ask(&new, &old, Policy::Strict)),
        ] {
            if let Some(said) = case.get(name) {
                told += 1;
                assert_eq!(said, word(&verdict), "{name}: {block}");
            }
        }
        assert!(told > 0, "a pair has a verdict: {block}");
        if let Some(document) = case.get("counterexample") {
            assert!(old.validator().is_valid(document) && !new.validator().is_valid(document), "{block}");
        }
    }
}
