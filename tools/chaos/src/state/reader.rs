//! A reader of documents that are written together: within one answer they agree, and they never go back.

use crate::calls::{Caller, RoundContext};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The collections of pairs, and which documents are one: those that start with the first go with the second.
const PAIRS: [(&str, &str, &str); 2] = [("pairs", "l", "r"), ("totals", "left", "right")];

/// The counters that were seen.
pub type Seen = BTreeMap<String, i64>;

#[derive(Deserialize)]
struct Page {
    items: Vec<Item>,
}

#[derive(Debug, Deserialize)]
struct Item {
    #[serde(rename = "_key")]
    key: String,
    n: i64,
}

/// Reads until the hub is gone or everything is over, and says what it saw last.
pub async fn run(stage: RoundContext, mut seen: Seen) -> Result<Seen, String> {
    let caller = Caller::new(stage)?;
    while !caller.stage.trouble.is_over() {
        caller.stage.trouble.pace().await;
        for (collection, left, right) in PAIRS {
            let path = format!("/v1/collections/{collection}/list?limit=1000");
            let Some(answer) = caller.get(&path).await? else {
                if caller.stage.trouble.goes_on() {
                    continue;
                }
                return Ok(seen);
            };
            if answer.is_error(404, "not_found") {
                // Nobody has written to it so far.
                continue;
            }
            let page: Page = answer.parse().map_err(|why| format!("GET {path} was {why}"))?;
            look(collection, (left, right), &page, &mut seen)?;
        }
    }
    Ok(seen)
}

fn look(collection: &str, (left, right): (&str, &str), page: &Page, seen: &mut Seen) -> Result<(), String> {
    let now: BTreeMap<&str, i64> = page.items.iter().map(|item| (item.key.as_str(), item.n)).collect();
    for (key, n) in &now {
        let name = key.strip_prefix(left).map(|rest| format!("{right}{rest}"));
        let other = name.or_else(|| key.strip_prefix(right).map(|rest| format!("{left}{rest}")));
        if other.and_then(|other| now.get(other.as_str()).copied()) != Some(*n) {
            return Err(format!("{collection}: half of a commit was seen: {now:?}"));
        }
        let before = seen.insert(format!("{collection} {key}"), *n);
        if before.is_some_and(|before| before > *n) {
            return Err(format!("{collection}: {key} was {before:?} and is {n}"));
        }
    }
    let of_collection = |name: &&String| name.starts_with(&format!("{collection} "));
    if seen.keys().filter(of_collection).count() != now.len() {
        return Err(format!("{collection}: documents are gone: there are {now:?}, and there were {seen:?}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(items: &[(&str, i64)]) -> Page {
        Page { items: items.iter().map(|(key, n)| Item { key: (*key).to_owned(), n: *n }).collect() }
    }

    fn polls(pages: &[&[(&str, i64)]]) -> Result<(), String> {
        let mut seen = Seen::new();
        pages.iter().try_for_each(|items| look("pairs", ("l", "r"), &page(items), &mut seen))
    }

    #[test]
    fn pairs_that_agree_and_grow_are_fine() {
        assert!(
            polls(&[&[], &[("l0", 1), ("r0", 1)], &[("l0", 1), ("r0", 1), ("l1", 7), ("r1", 7)]]).is_ok()
        );
    }

    #[test]
    fn half_a_commit_and_steps_back_are_found() {
        assert!(polls(&[&[("l0", 1)]]).is_err());
        assert!(polls(&[&[("r0", 1)]]).is_err());
        assert!(polls(&[&[("l0", 2), ("r0", 1)]]).is_err());
        assert!(polls(&[&[("l0", 1), ("r1", 1)]]).is_err());
        assert!(polls(&[&[("l0", 2), ("r0", 2)], &[("l0", 1), ("r0", 1)]]).is_err());
        assert!(polls(&[&[("l0", 2), ("r0", 2)], &[]]).is_err());
    }
}
