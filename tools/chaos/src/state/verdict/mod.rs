//! Compares what is stored with what follows from the events in the topic, and with the answers.

use super::ledger::{Commit, Fate, Ledger};
use super::setup::PROJECTIONS;
use super::single::commit_id;
use super::truth::{Change, Document, Documents, Event, FoundState, Letter, Payload, kept};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Debug;
use uuid::Uuid;

/// Refuses what cannot be, and says why.
pub fn judge(found: &FoundState, ledger: &Ledger) -> Result<(), String> {
    publishes(found, ledger)?;
    letters(found)?;
    counts(found)?;
    recent(found)?;
    latest(found)?;
    consumed(found)?;
    commits(found, ledger)?;
    singles(found, ledger)
}

/// Whether projections can take an event.
fn is_good(event: &&Event) -> bool {
    event.payload.v.is_some()
}

fn same<T: PartialEq + Debug>(what: &str, is: &T, should: &T) -> Result<(), String> {
    if is == should { Ok(()) } else { Err(format!("{what} is {is:?} and should be {should:?}")) }
}

/// The same of lists in any order, which may be long.
fn same_list<T: Ord + Debug>(what: &str, mut is: Vec<T>, mut should: Vec<T>) -> Result<(), String> {
    is.sort();
    should.sort();
    let (lengths, mut pairs) = ((is.len(), should.len()), is.iter().zip(&should));
    match pairs.find(|(is, should)| is != should) {
        Some((is, should)) => Err(format!("{what} has {is:?} in the place of {should:?}")),
        None if lengths.0 == lengths.1 => Ok(()),
        None => Err(format!("{what} has {} items in the place of {}", lengths.0, lengths.1)),
    }
}

/// What was answered is in the topic, and everything is there once.
fn publishes(found: &FoundState, ledger: &Ledger) -> Result<(), String> {
    let mut there = BTreeSet::new();
    for Event { payload: Payload { p, n, .. }, partition, offset, .. } in &found.events {
        if !ledger.published.contains_key(&(p.clone(), *n)) {
            return Err(format!("nobody published {p} {n}, which is at {partition}:{offset}"));
        }
        if !there.insert((p.clone(), *n)) {
            return Err(format!("{p} {n} is there twice, the second time at {partition}:{offset}"));
        }
    }
    let missing = ledger.published.iter().find(|(event, answered)| **answered && !there.contains(event));
    missing.map_or(Ok(()), |(event, _)| Err(format!("{event:?} was answered and is gone")))
}

/// Each projection has one dead letter for each event that it cannot take.
fn letters(found: &FoundState) -> Result<(), String> {
    let bad = found.events.iter().filter(|event| !is_good(event));
    let letters = bad.flat_map(|event| PROJECTIONS.map(|of| Letter { of: of.to_owned(), event: event.id }));
    same_list("the list of dead letters", found.letters.clone(), letters.collect())
}

/// Numbers that belong to a key.
type Numbers = BTreeMap<String, Vec<i64>>;

/// The same of numbers, of which only those are named that differ.
fn same_numbers(what: &str, is: &Numbers, should: &Numbers) -> Result<(), String> {
    let keys: BTreeSet<&String> = is.keys().chain(should.keys()).collect();
    match keys.into_iter().find(|key| is.get(*key) != should.get(*key)) {
        None => Ok(()),
        Some(key) => same(&format!("{key} of {what}"), &is.get(key), &should.get(key)),
    }
}

/// Some numbers of each document; those that are not there are -1, which no count is.
fn numbers(documents: &Documents, fields: &[&str]) -> Numbers {
    let of = |document: &Document| fields.iter().map(|field| document.number(field).unwrap_or(-1)).collect();
    documents.iter().map(|(key, document)| (key.clone(), of(document))).collect()
}

fn collection<'a>(found: &'a FoundState, name: &str) -> Result<&'a Documents, String> {
    found.collections.get(name).ok_or_else(|| format!("collection {name} is gone"))
}

/// Counts and sums are those of the events.
fn counts(found: &FoundState) -> Result<(), String> {
    let (mut by_key, mut by_partition, mut pairs) = (Numbers::new(), Numbers::new(), Numbers::new());
    for event in found.events.iter().filter(is_good) {
        let value = event.payload.v.unwrap_or_default();
        let of_key = by_key.entry(event.key.clone()).or_insert_with(|| vec![0; 3]);
        let of_partition = by_partition.entry(format!("p{}", event.partition)).or_insert_with(|| vec![0; 2]);
        for numbers in [&mut *of_key, of_partition] {
            numbers[0] += 1;
            numbers[1] += value;
        }
        of_key[2] = value;
        for side in ["l", "r"] {
            pairs.entry(format!("{side}{}", event.partition)).or_insert_with(|| vec![0])[0] += 1;
        }
    }
    let of = |name: &str, fields: &[&str]| Ok::<_, String>(numbers(collection(found, name)?, fields));
    same_numbers("counts", &of("counts", &["seen", "sum", "last"])?, &by_key)?;
    same_numbers("sums", &of("sums", &["seen", "sum"])?, &by_partition)?;
    same_numbers("pairs", &of("pairs", &["n"])?, &pairs)
}

/// What is there of each value came last in the one order of all partitions.
fn recent(found: &FoundState) -> Result<(), String> {
    let mut events: Vec<&Event> = found.events.iter().filter(is_good).collect();
    events.sort_by_key(|event| (event.ts, event.partition, event.offset));
    let mut should: BTreeMap<String, (i64, &Payload)> = BTreeMap::new();
    for Event { payload, .. } in events {
        let (seen, last) = should.entry(format!("v{}", payload.v.unwrap_or(-1))).or_insert((0, payload));
        (*seen, *last) = (*seen + 1, payload);
    }
    let documents = collection(found, "recent")?;
    let keys = |keys: &mut dyn Iterator<Item = &String>| keys.cloned().collect::<BTreeSet<String>>();
    same("the keys of recent", &keys(&mut documents.keys()), &keys(&mut should.keys()))?;
    for (key, (seen, Payload { p, n, rev, .. })) in should {
        let fields = serde_json::json!({"seen": seen, "n": n, "rev": rev, "p": p});
        same(&format!("{key} of recent"), &Some(&documents[&key].fields), &fields.as_object())?;
    }
    Ok(())
}

/// A change of `latest`: the event, and its version where a document is left.
type Step = (Uuid, Option<i64>);

/// The greatest version of each key is there, and each change was told once.
fn latest(found: &FoundState) -> Result<(), String> {
    let mut documents: BTreeMap<&str, &Event> = BTreeMap::new();
    let mut changes: HashMap<&str, Vec<Step>> = HashMap::new();
    for event in found.events.iter().filter(is_good) {
        let old = documents.get(event.key.as_str()).and_then(|old| old.payload.rev);
        if old >= event.payload.rev {
            continue;
        }
        let changed = if event.payload.gone {
            documents.remove(event.key.as_str()).map(|_| (event.id, None))
        } else {
            documents.insert(&event.key, event);
            Some((event.id, event.payload.rev))
        };
        changes.entry(&event.key).or_default().extend(changed);
    }
    let are = collection(found, "latest")?;
    let keys = |keys: &mut dyn Iterator<Item = &str>| keys.map(str::to_owned).collect::<BTreeSet<String>>();
    same(
        "the keys of latest",
        &keys(&mut are.keys().map(String::as_str)),
        &keys(&mut documents.keys().copied()),
    )?;
    for (key, event) in &documents {
        let what = format!("{key} of latest");
        same(&what, &are[*key].fields, &kept(&event.payload))?;
        same(&format!("the version of {what}"), &are[*key].version, &event.payload.rev)?;
    }
    for (value, keys) in &found.by_value {
        let of_value = documents.iter().filter(|(_, event)| event.payload.v == Some(*value));
        let should = of_value.map(|(key, _)| (*key).to_owned()).collect();
        same(&format!("what the index finds for {value}"), keys, &should)?;
    }
    changes.retain(|_, steps| !steps.is_empty());
    let told = steps_by_key(&found.latest_feed)?;
    for key in changes.keys().chain(told.keys()) {
        same(&format!("the list of changes of {key}"), &told.get(key), &changes.get(key))?;
    }
    Ok(())
}

fn steps_by_key(feed: &[Change]) -> Result<HashMap<&str, Vec<Step>>, String> {
    let mut told: HashMap<&str, Vec<Step>> = HashMap::new();
    for change in feed {
        let [cause] = change.caused_by.as_slice() else {
            return Err(format!("a change does not say what caused it: {change:?}"));
        };
        let version = change.payload.as_ref().and_then(|document| document.version);
        if change.payload.as_ref().is_some_and(|document| document.key != change.key) {
            return Err(format!("a change is of another document than it says: {change:?}"));
        }
        told.entry(&change.key).or_default().push((*cause, version));
    }
    Ok(told)
}

/// Every event was counted by one commit of a consumer, and told of once.
fn consumed(found: &FoundState) -> Result<(), String> {
    let mut by_key = Numbers::new();
    for event in &found.events {
        by_key.entry(event.key.clone()).or_insert_with(|| vec![0])[0] += 1;
    }
    let total = i64::try_from(found.events.len()).unwrap_or(i64::MAX);
    if total == 0 {
        return same("what consumers published", &found.out, &Vec::new());
    }
    let done = collection(found, "done")?;
    same_numbers("done", &numbers(done, &["n"]), &by_key)?;
    let versions = done.iter().map(|(key, document)| (key.clone(), vec![document.version.unwrap_or(-1)]));
    same_numbers("the versions of done", &versions.collect(), &by_key)?;
    let totals = BTreeMap::from(["left", "right"].map(|side| (side.to_owned(), vec![total])));
    same_numbers("totals", &numbers(collection(found, "totals")?, &["n"]), &totals)?;
    let mut told: BTreeMap<&str, i64> = BTreeMap::new();
    for change in &found.done_feed {
        let version = told.entry(&change.key).or_default();
        *version += 1;
        let is = change.payload.as_ref().and_then(|document| document.version);
        same(&format!("a version of {} in the feed of done", change.key), &is, &Some(*version))?;
        let n = change.payload.as_ref().and_then(|document| document.number("n"));
        same(&format!("a count of {} in the feed of done", change.key), &n, &is)?;
    }
    let told = told.into_iter().map(|(key, version)| (key.to_owned(), vec![version])).collect::<Numbers>();
    same_numbers("the last versions in the feed of done", &told, &by_key)?;
    let taken = found.out.iter().map(|told| told.of).collect();
    let events = found.events.iter().map(|event| Some(event.id)).collect();
    same_list("the list of events that commits have taken", taken, events)
}

/// A commit happened as a whole where that was answered, and not at all where it was refused.
fn commits(found: &FoundState, ledger: &Ledger) -> Result<(), String> {
    let mut by_commit: BTreeMap<&str, BTreeSet<Uuid>> = BTreeMap::new();
    for told in &found.out {
        by_commit.entry(&told.by).or_default().extend(told.of);
    }
    if let Some(unknown) = by_commit.keys().find(|name| !ledger.commits.contains_key(**name)) {
        return Err(format!("nobody made the commit {unknown}"));
    }
    for (name, Commit { takes, fate }) in &ledger.commits {
        let happened = by_commit.get(name.as_str());
        let is_whole = happened.is_some_and(|taken| taken == takes);
        let fits = match fate {
            Fate::Done => is_whole,
            Fate::Refused => happened.is_none(),
            Fate::Unknown => is_whole || happened.is_none(),
        };
        if !fits {
            return Err(format!("commit {name} of {takes:?} is {fate:?}, and {happened:?} of it happened"));
        }
    }
    Ok(())
}

/// Each commit with an id of its own happened once.
fn singles(found: &FoundState, ledger: &Ledger) -> Result<(), String> {
    let all = ledger.singles.iter().flat_map(|(writer, done)| (0..*done).map(|n| commit_id(writer, n)));
    let all: Vec<String> = all.collect();
    let told = found.singles.iter().map(|told| told.by.clone()).collect();
    same_list("the list of commits that were told of", told, all.clone())?;
    if all.is_empty() {
        return Ok(());
    }
    let ids = collection(found, "ids")?.keys().cloned().collect();
    same_list("the list of commits that were noted", ids, all)?;
    let documents = collection(found, "singles")?;
    let written = ledger.singles.iter().filter(|(_, done)| **done > 0);
    let counts: Numbers =
        written.map(|(writer, done)| (writer.clone(), vec![i64::try_from(*done).unwrap_or(-1)])).collect();
    same_numbers("singles", &numbers(documents, &["n"]), &counts)?;
    let versions =
        documents.iter().map(|(key, document)| (key.clone(), vec![document.version.unwrap_or(-1)]));
    same_numbers("the versions of singles", &versions.collect(), &counts)
}

#[cfg(test)]
mod tests;
