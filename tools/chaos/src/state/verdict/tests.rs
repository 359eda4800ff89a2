//! Made-up histories: a valid one, and the violations after each of many changes to it.

use super::*;
use crate::state::truth::ConfirmedCommit;
use serde_json::{Value, json};

const A: &str = "a";
const B: &str = "b";

fn id(n: u128) -> Uuid {
    Uuid::from_u128(n)
}

/// Key, value, version and whether it deletes; a value of `None` is an event that projections cannot take.
type Sketch = (&'static str, Option<i64>, i64, bool);

const EVENTS: [Sketch; 7] = [
    (A, Some(5), 1, false),
    (B, Some(7), 3, false),
    // An old version, a bad event, a delete, a delete of nothing, and a document that comes back.
    (A, Some(2), 1, false),
    (A, None, 0, false),
    (B, Some(1), 4, true),
    (B, Some(1), 5, true),
    (B, Some(4), 2, false),
];

fn document(key: &str, version: Option<i64>, fields: &Value) -> Document {
    let fields = fields.as_object().cloned().unwrap_or_default();
    Document { key: key.to_owned(), version, ts: 1, fields }
}

fn documents<const N: usize>(all: [(&str, Option<i64>, Value); N]) -> Documents {
    all.map(|(key, version, fields)| (key.to_owned(), document(key, version, &fields))).into()
}

fn change(key: &str, cause: Option<u128>, after: Option<(i64, Value)>) -> Change {
    let payload = after.map(|(version, fields)| document(key, Some(version), &fields));
    Change { key: key.to_owned(), payload, caused_by: cause.map(id).into_iter().collect() }
}

fn event(n: usize) -> Event {
    let (key, v, rev, gone) = EVENTS[n];
    let payload = Payload { p: "p".to_owned(), n: n as u64, v, rev: v.map(|_| rev), gone };
    Event {
        id: id(n as u128),
        partition: 0,
        offset: n as u64,
        ts: n as u64 / 2,
        key: key.to_owned(),
        payload,
    }
}

fn told(by: &str, of: Option<u128>) -> ConfirmedCommit {
    ConfirmedCommit { by: by.to_owned(), of: of.map(id) }
}

fn commit(takes: &[u128], fate: Fate) -> Commit {
    Commit { takes: takes.iter().copied().map(id).collect(), fate }
}

fn right() -> (FoundState, Ledger) {
    let kept = |n: usize| Value::Object(kept(&event(n).payload));
    let collections = [
        (
            "counts",
            documents([
                (A, None, json!({"seen": 2, "sum": 7, "last": 2})),
                (B, None, json!({"seen": 4, "sum": 13, "last": 4})),
            ]),
        ),
        ("sums", documents([("p0", None, json!({"seen": 6, "sum": 20}))])),
        ("pairs", documents([("l0", None, json!({"n": 6})), ("r0", None, json!({"n": 6}))])),
        (
            "recent",
            documents([
                ("v1", None, json!({"seen": 2, "n": 5, "rev": 5, "p": "p"})),
                ("v2", None, json!({"seen": 1, "n": 2, "rev": 1, "p": "p"})),
                ("v4", None, json!({"seen": 1, "n": 6, "rev": 2, "p": "p"})),
                ("v5", None, json!({"seen": 1, "n": 0, "rev": 1, "p": "p"})),
                ("v7", None, json!({"seen": 1, "n": 1, "rev": 3, "p": "p"})),
            ]),
        ),
        ("latest", documents([(A, Some(1), kept(0)), (B, Some(2), kept(6))])),
        ("done", documents([(A, Some(3), json!({"n": 3})), (B, Some(4), json!({"n": 4}))])),
        ("totals", documents([("left", Some(2), json!({"n": 7})), ("right", Some(2), json!({"n": 7}))])),
        ("singles", documents([("w0", Some(2), json!({"n": 2}))])),
        ("ids", documents([("w0-0", Some(1), json!({})), ("w0-1", Some(1), json!({}))])),
    ];
    let counted = |key, versions: std::ops::RangeInclusive<i64>| {
        versions.map(move |version| change(key, None, Some((version, json!({"n": version})))))
    };
    let letter = |of: &str| Letter { of: of.to_owned(), event: id(3) };
    let found = FoundState {
        events: (0..EVENTS.len()).map(event).collect(),
        letters: vec![letter("latest"), letter("counting")],
        collections: collections.map(|(name, documents)| (name.to_owned(), documents)).into(),
        by_value: [(5, [A.to_owned()].into()), (4, [B.to_owned()].into()), (7, BTreeSet::new())].into(),
        latest_feed: vec![
            change(A, Some(0), Some((1, kept(0)))),
            change(B, Some(1), Some((3, kept(1)))),
            change(B, Some(4), None),
            change(B, Some(6), Some((2, kept(6)))),
        ],
        done_feed: counted(A, 1..=3).chain(counted(B, 1..=4)).collect(),
        out: (0..7).map(|n| told(if n < 3 { "c.0" } else { "c.2" }, Some(n))).collect(),
        singles: vec![told("w0-1", None), told("w0-0", None)],
    };
    let published = (0..8).map(|n| (("p".to_owned(), n), n != 6 && n != 7)).collect();
    let commits = [
        ("c.0".to_owned(), commit(&[0, 1, 2], Fate::Done)),
        ("c.1".to_owned(), commit(&[3, 4], Fate::Refused)),
        ("c.2".to_owned(), commit(&[3, 4, 5, 6], Fate::Unknown)),
        ("c.3".to_owned(), commit(&[3], Fate::Unknown)),
    ]
    .into();
    let singles = [("w0".to_owned(), 2), ("w1".to_owned(), 0)].into();
    (found, Ledger { published, commits, singles, ..Ledger::default() })
}

/// What is said of the right history after a change.
fn after(change: impl FnOnce(&mut FoundState, &mut Ledger)) -> Result<(), String> {
    let (mut found, mut ledger) = right();
    change(&mut found, &mut ledger);
    judge(&found, &ledger)
}

fn field(found: &mut FoundState, (collection, key): (&str, &str), name: &str, value: i64) {
    let document = found.collections.get_mut(collection).and_then(|of| of.get_mut(key)).unwrap();
    document.fields.insert(name.to_owned(), json!(value));
}

#[test]
fn what_is_right_is_taken() {
    after(|_, _| ()).unwrap();
    judge(&FoundState { collections: empty(), ..FoundState::default() }, &Ledger::default()).unwrap();
}

fn empty() -> BTreeMap<String, Documents> {
    ["counts", "sums", "pairs", "recent", "latest"].map(|name| (name.to_owned(), Documents::new())).into()
}

#[test]
fn publishes_that_are_lost_doubled_or_nobodys_are_refused() {
    let lost = after(|_, ledger| ledger.published.extend([(("p".to_owned(), 7), true)]));
    assert!(lost.unwrap_err().contains("gone"));
    assert!(after(|_, ledger| ledger.published.retain(|(_, n), _| *n != 2)).is_err());
    assert!(after(|found, _| found.events.push(event(6))).unwrap_err().contains("twice"));
}

#[test]
fn counts_and_sums_that_are_off_by_one_are_refused() {
    for (collection, key, name) in [
        ("counts", A, "seen"),
        ("counts", B, "sum"),
        ("counts", B, "last"),
        ("sums", "p0", "seen"),
        ("sums", "p0", "sum"),
        ("pairs", "r0", "n"),
        ("recent", "v1", "seen"),
        ("recent", "v1", "n"),
        ("recent", "v7", "rev"),
        ("done", A, "n"),
        ("totals", "left", "n"),
        ("singles", "w0", "n"),
    ] {
        let (found, _) = right();
        let value = found.collections[collection][key].number(name).unwrap();
        for wrong in [value - 1, value + 1] {
            let judged = after(|found, _| field(found, (collection, key), name, wrong));
            assert!(judged.is_err(), "{collection} {key} {name} {wrong}");
        }
    }
}

/// Two partitions with an event each, of which the first comes last where it is later.
#[test]
fn what_came_last_goes_by_time_and_then_by_partition() {
    let of = |partition: u32, ts: u64| Event { partition, ts, ..event(4 + partition as usize) };
    for (times, last) in [((1, 2), 5), ((2, 1), 4), ((1, 1), 5)] {
        for n in [4, 5] {
            let document = json!({"seen": 2, "n": n, "rev": n, "p": "p"});
            let recent = documents([("v1", None, document)]);
            let found = FoundState {
                events: vec![of(0, times.0), of(1, times.1)],
                collections: [("recent".to_owned(), recent)].into(),
                ..FoundState::default()
            };
            assert_eq!(super::recent(&found).is_ok(), n == last, "{times:?}");
        }
    }
}

#[test]
fn documents_that_are_missing_or_too_many_are_refused() {
    for collection in ["counts", "sums", "pairs", "recent", "latest", "done", "totals", "singles", "ids"] {
        let gone = after(|found, _| drop(found.collections.get_mut(collection).unwrap().pop_first()));
        assert!(gone.is_err(), "{collection}");
        let more = after(|found, _| {
            let documents = found.collections.get_mut(collection).unwrap();
            documents.extend(super::tests::documents([("zz", Some(1), json!({"n": 1}))]));
        });
        assert!(more.is_err(), "{collection}");
        assert!(after(|found, _| drop(found.collections.remove(collection))).is_err(), "{collection}");
    }
}

#[test]
fn a_changelog_that_is_not_the_last_version_is_refused() {
    let latest = |found: &mut FoundState, key: &str, n: usize, version| {
        let fields = Value::Object(kept(&event(n).payload));
        found.collections.get_mut("latest").unwrap().extend(documents([(key, Some(version), fields)]));
    };
    assert!(after(|found, _| latest(found, A, 0, 1)).is_ok());
    assert!(after(|found, _| latest(found, A, 2, 1)).is_err(), "an old version was taken");
    assert!(after(|found, _| latest(found, B, 1, 3)).is_err(), "a delete was lost");
    assert!(after(|found, _| latest(found, A, 0, 2)).is_err(), "the version is wrong");
    assert!(after(|found, _| drop(found.by_value.insert(7, [A.to_owned()].into()))).is_err());
    assert!(after(|found, _| drop(found.by_value.insert(5, BTreeSet::new()))).is_err());
}

#[test]
fn a_feed_of_a_changelog_with_gaps_or_repeats_is_refused() {
    for n in 0..4 {
        assert!(after(|found, _| drop(found.latest_feed.remove(n))).is_err(), "{n} is missing");
        assert!(
            after(|found, _| found.latest_feed.insert(n, found.latest_feed[n].clone())).is_err(),
            "{n} twice"
        );
    }
    assert!(after(|found, _| found.latest_feed.swap(1, 2)).is_err(), "out of order");
    assert!(after(|found, _| found.latest_feed.swap(0, 1)).is_ok(), "keys have no order among them");
    assert!(after(|found, _| found.latest_feed[0].caused_by.clear()).is_err());
    assert!(after(|found, _| found.latest_feed[0].key = "zz".to_owned()).is_err());
}

#[test]
fn versions_with_a_gap_are_refused() {
    assert!(after(|found, _| drop(found.done_feed.remove(0))).is_err());
    assert!(after(|found, _| drop(found.done_feed.pop())).is_err());
    assert!(after(|found, _| found.done_feed.push(found.done_feed[6].clone())).is_err());
    assert!(after(|found, _| found.done_feed.swap(0, 1)).is_err());
    for (collection, key) in [("done", A), ("singles", "w0")] {
        let gap = after(|found, _| {
            let document = found.collections.get_mut(collection).and_then(|of| of.get_mut(key)).unwrap();
            document.version = document.version.map(|version| version + 1);
        });
        assert!(gap.is_err(), "{collection}");
    }
}

#[test]
fn dead_letters_that_are_missing_doubled_or_wrong_are_refused() {
    assert!(after(|found, _| drop(found.letters.pop())).is_err());
    assert!(after(|found, _| found.letters.push(found.letters[0].clone())).is_err());
    assert!(after(|found, _| found.letters[0].event = id(0)).is_err());
    assert!(after(|found, _| found.letters[0].of = "counting".to_owned()).is_err());
}

#[test]
fn commits_that_happened_in_part_or_twice_are_refused() {
    assert!(after(|found, _| drop(found.out.pop())).is_err(), "an event was taken by nobody");
    assert!(after(|found, _| found.out.push(found.out[0].clone())).is_err(), "an event was taken twice");
    let fates = |done: &'static str, fate| after(|_, ledger| ledger.settle(done, fate));
    assert!(fates("c.2", Fate::Done).is_ok() && fates("c.3", Fate::Refused).is_ok());
    assert!(fates("c.3", Fate::Done).is_err(), "what was answered did not happen");
    assert!(fates("c.2", Fate::Refused).is_err(), "what was refused happened");
    let half = after(|_, ledger| {
        drop(ledger.commits.insert("c.2".to_owned(), commit(&[3, 4, 5, 6, 9], Fate::Unknown)))
    });
    assert!(half.is_err(), "half of a commit happened");
    assert!(after(|_, ledger| drop(ledger.commits.remove("c.2"))).is_err(), "a commit that nobody made");
}

#[test]
fn commits_with_an_id_that_are_lost_or_doubled_are_refused() {
    assert!(after(|found, _| drop(found.singles.pop())).is_err());
    assert!(after(|found, _| found.singles.push(told("w0-1", None))).is_err());
    for (writer, done) in [("w0", 3), ("w0", 1), ("w1", 1)] {
        let wrong = after(|_, ledger| ledger.singles.extend([(writer.to_owned(), done)]));
        assert!(wrong.is_err(), "{writer} {done}");
    }
}
