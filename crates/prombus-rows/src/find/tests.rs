//! Any query gives what a plain filter and sort over all documents give, and good plans read few rows.

use super::*;
use crate::documents;
use crate::plain;
use crate::rows::{RowRange, RowsIter};
use bytes::Bytes;
use prombus_core::collection::{Condition, Index, MAX_INDEX_VALUE_BYTES, Operand, SortKey, Test};
use prombus_core::{CollectionConfig, Document, FieldPath, Json};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Rows that count how many were read.
#[derive(Default)]
struct Counted {
    rows: BTreeMap<Bytes, Bytes>,
    read: Cell<usize>,
}

impl Rows for Counted {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, ReadError> {
        self.read.set(self.read.get() + 1);
        Ok(self.rows.get(key).cloned())
    }

    fn range(&self, range: RowRange, reverse: bool) -> RowsIter<'_> {
        let read = |(key, row): (&Bytes, &Bytes)| {
            self.read.set(self.read.get() + 1);
            Ok((key.clone(), row.clone()))
        };
        let rows = self.rows.range(range);
        if reverse { Box::new(rows.rev().map(read)) } else { Box::new(rows.map(read)) }
    }
}

fn field(path: &str) -> FieldPath {
    FieldPath::parse(path).unwrap()
}

fn state(indexes: &[(&[&str], bool)]) -> CollectionState {
    let index = |(fields, unique): &(&[&str], bool)| Index {
        fields: fields.iter().map(|path| field(path)).collect(),
        unique: *unique,
    };
    let config = CollectionConfig { indexes: indexes.iter().map(index).collect(), ..Default::default() };
    CollectionState::new("c".into(), 3, config)
}

fn stored(state: &mut CollectionState, documents: &[Document]) -> Counted {
    let mut rows = Counted::default();
    for document in documents {
        let slot = documents::look_up(&rows, state, &document.key).unwrap();
        let change = documents::replace(state, slot, Some(document)).unwrap();
        rows.rows.extend(change.rows().into_iter().map(|(key, row)| (key, row.unwrap())));
    }
    rows.read.set(0);
    rows
}

/// What a test compares with, as it is written.
#[derive(Debug, Clone)]
enum Word {
    Text(&'static str),
    Value(Value),
}

impl Word {
    fn operand(&self) -> Operand {
        match self {
            Self::Text(text) => Operand::text(text),
            Self::Value(value) => Operand::value(value.clone()),
        }
    }

    /// Whether a value compares so with one of the values that the word may stand for.
    fn compares(&self, value: &Value, holds: impl Fn(Ordering) -> bool, of_ordered_types: bool) -> bool {
        let mut meanings = match self {
            Self::Text(text) => vec![Value::from(*text)],
            Self::Value(value) => vec![value.clone()],
        };
        if let Self::Text(text) = self {
            meanings.extend(serde_json::from_str::<Value>(text).ok().filter(|value| !value.is_string()));
        }
        meanings.iter().any(|meaning| {
            let is_same_type = std::mem::discriminant(meaning) == std::mem::discriminant(value);
            let is_ordered = value.is_number() || value.is_string();
            is_same_type
                && (is_ordered || !of_ordered_types)
                && holds(plain::compare(Some(value), Some(meaning)))
        })
    }
}

#[derive(Debug, Clone)]
enum Said {
    Eq(Word),
    Ne(Word),
    Gt(Word),
    Gte(Word),
    Lt(Word),
    Lte(Word),
    In(Vec<Word>),
}

impl Said {
    fn test(&self) -> Test {
        match self {
            Self::Eq(word) => Test::Eq(word.operand()),
            Self::Ne(word) => Test::Ne(word.operand()),
            Self::Gt(word) => Test::Gt(word.operand()),
            Self::Gte(word) => Test::Gte(word.operand()),
            Self::Lt(word) => Test::Lt(word.operand()),
            Self::Lte(word) => Test::Lte(word.operand()),
            Self::In(words) => Test::In(words.iter().map(Word::operand).collect()),
        }
    }

    fn holds(&self, value: Option<&Value>) -> bool {
        let equals = |word: &Word| value.is_some_and(|value| word.compares(value, Ordering::is_eq, false));
        let ordered = |word: &Word, holds: fn(Ordering) -> bool| {
            value.is_some_and(|value| word.compares(value, holds, true))
        };
        match self {
            Self::Eq(word) => equals(word),
            Self::Ne(word) => !equals(word),
            Self::Gt(word) => ordered(word, Ordering::is_gt),
            Self::Gte(word) => ordered(word, Ordering::is_ge),
            Self::Lt(word) => ordered(word, Ordering::is_lt),
            Self::Lte(word) => ordered(word, Ordering::is_le),
            Self::In(words) => words.iter().any(equals),
        }
    }
}

/// What readers see at a path.
fn plain_value<'a>(document: &'a Value, path: &str) -> Option<&'a Value> {
    // Names with dots are spelled out here, so that nothing but the test says what a path means.
    let names: Vec<&str> = if path == "p\\.q" { vec!["p.q"] } else { path.split('.').collect() };
    names.into_iter().try_fold(document, |value, name| match value {
        Value::Array(items) => items.get(name.parse::<usize>().ok()?),
        value => value.get(name),
    })
}

/// A query, as the test says it.
#[derive(Debug, Clone)]
struct Asked {
    conditions: Vec<(&'static str, Said)>,
    sort: Vec<(&'static str, bool)>,
    offset: usize,
    limit: usize,
}

impl Asked {
    fn find(&self) -> Find {
        let condition = |(path, said): &(&str, Said)| Condition { field: field(path), test: said.test() };
        let key = |(path, descending): &(&str, bool)| SortKey { field: field(path), descending: *descending };
        Find {
            collection: "c".into(),
            conditions: self.conditions.iter().map(condition).collect(),
            sort: self.sort.iter().map(key).collect(),
            offset: self.offset,
            limit: self.limit,
            max_bytes: usize::MAX,
            sort_bytes: usize::MAX,
        }
    }

    /// The keys of the page, and whether there are more, by looking at everything.
    fn plain(&self, documents: &[Document]) -> (Vec<String>, bool) {
        let seen = documents.iter().map(|document| document.to_json().to_value().unwrap());
        let holds = |document: &Value| {
            self.conditions.iter().all(|(path, said)| said.holds(plain_value(document, path)))
        };
        let mut found: Vec<Value> = seen.filter(holds).collect();
        let mut keys = self.sort.clone();
        let last = keys.last().is_none_or(|(_, descending)| *descending);
        keys.extend([("_ts", last), ("_key", last)]);
        found.sort_by(|a, b| {
            let by = |(path, descending): &(&str, bool)| {
                let order = plain::compare(plain_value(a, path), plain_value(b, path));
                if *descending { order.reverse() } else { order }
            };
            keys.iter().map(by).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
        });
        let more = found.len() > self.offset + self.limit;
        let page = found.iter().skip(self.offset).take(self.limit);
        (page.map(|document| document["_key"].as_str().unwrap().to_owned()).collect(), more)
    }
}

const PATHS: [&str; 11] = ["a", "b", "é", "o.x", "o.y", "p\\.q", "l.0", "a.x", "_key", "_ts", "_v"];
const KEYS: [&str; 12] = ["", "\0", "a", "a\0", "a\0b", "ab", "b", "80", "é", "\u{ffff}", "😀", "null"];
const TEXTS: [&str; 14] = [
    "",
    "a",
    "a\0",
    "ab",
    "80",
    "1",
    "1.0",
    "-0",
    "null",
    "true",
    "[1]",
    "{\"x\":1}",
    "é",
    "9007199254740993",
];

fn values() -> impl Strategy<Value = Value> {
    let values = vec![
        json!(null),
        json!(false),
        json!(true),
        json!(0),
        json!(-0.0),
        json!(1),
        json!(1.0),
        json!(1.5),
        json!(80),
        json!(-3),
        json!(9_007_199_254_740_992_i64),
        json!(9_007_199_254_740_992.0),
        json!(9_007_199_254_740_993_i64),
        json!(i64::MAX),
        json!(""),
        json!("a"),
        json!("a\0"),
        json!("80"),
        json!("é"),
        json!("😀"),
        json!("null"),
        json!([]),
        json!([1]),
        json!([1, "a"]),
        json!({}),
        json!({"x": 1}),
        json!({"x": "a", "y": null}),
    ];
    prop::sample::select(values)
}

/// Few values, so that many documents have the same ones.
fn few_values() -> impl Strategy<Value = Value> {
    prop_oneof![prop::sample::select(vec![json!("a"), json!(1), json!(80)]), values()]
}

fn times() -> impl Strategy<Value = u64> {
    prop_oneof![0..4u64, Just(1_754_683_200_000), u64::MAX - 3..=u64::MAX, (1 << 63) - 2..(1u64 << 63) + 2]
}

fn bodies() -> impl Strategy<Value = Value> {
    let maybe = || prop::option::weighted(0.8, few_values());
    (maybe(), maybe(), maybe(), maybe(), maybe(), maybe(), maybe()).prop_map(|(a, b, e, x, y, pq, l)| {
        let object = |fields: Vec<(&str, Option<Value>)>| {
            let there = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
            Value::Object(there.collect())
        };
        let o = object(vec![("x", x), ("y", y)]);
        let l = l.map(|value| json!([value, 1]));
        object(vec![("a", a), ("b", b), ("é", e), ("o", Some(o)), ("p.q", pq), ("l", l)])
    })
}

fn documents() -> impl Strategy<Value = Vec<Document>> {
    let one = (bodies(), times(), prop::option::of(-2..3i64));
    let keyed = prop::sample::subsequence(KEYS.to_vec(), 0..=KEYS.len());
    (keyed, prop::collection::vec(one, KEYS.len())).prop_map(|(keys, bodies)| {
        let document = |(key, (body, ts, revision)): (&str, (Value, u64, Option<i64>))| {
            Document::new(key.to_owned(), 1, revision, ts, Json::from_value(&body))
        };
        keys.into_iter().zip(bodies).map(document).collect()
    })
}

fn paths() -> impl Strategy<Value = &'static str> {
    // The first ones more often, so that indexes fit.
    prop_oneof![prop::sample::select(&PATHS[..3]), prop::sample::select(&PATHS[..])]
}

fn indexes() -> impl Strategy<Value = Vec<Vec<&'static str>>> {
    prop::collection::vec(prop::collection::vec(paths(), 1..4), 0..4)
}

fn words() -> impl Strategy<Value = Word> {
    prop_oneof![
        prop::sample::select(&TEXTS[..]).prop_map(Word::Text),
        prop::sample::select(&KEYS[..]).prop_map(Word::Text),
        few_values().prop_map(Word::Value),
        times().prop_map(|ts| Word::Value(Value::from(ts))),
    ]
}

fn said() -> impl Strategy<Value = Said> {
    prop_oneof![
        4 => words().prop_map(Said::Eq),
        1 => words().prop_map(Said::Ne),
        1 => words().prop_map(Said::Gt),
        1 => words().prop_map(Said::Gte),
        1 => words().prop_map(Said::Lt),
        1 => words().prop_map(Said::Lte),
        2 => prop::collection::vec(words(), 0..5).prop_map(Said::In),
    ]
}

fn asked() -> impl Strategy<Value = Asked> {
    let conditions = prop::collection::vec((paths(), said()), 0..4);
    let sort = prop::collection::vec((paths(), any::<bool>()), 0..4);
    (conditions, sort, 0..4usize, 1..6usize).prop_map(|(conditions, sort, offset, limit)| Asked {
        conditions,
        sort,
        offset,
        limit,
    })
}

fn keys(found: &FoundDocuments) -> Vec<&str> {
    found.documents.iter().map(|document| document.key.as_str()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn any_plan_gives_what_a_plain_search_gives(
        documents in documents(), indexes in indexes(), asked in asked()
    ) {
        let indexes: Vec<(&[&str], bool)> = indexes.iter().map(|fields| (&fields[..], false)).collect();
        let mut state = state(&indexes);
        let rows = stored(&mut state, &documents);
        let found = find(&rows, &state, &asked.find()).unwrap();
        let (expected, more) = asked.plain(&documents);
        prop_assert_eq!(keys(&found), expected);
        prop_assert_eq!(found.more, more);
        for document in &found.documents {
            prop_assert!(documents.contains(document), "documents are given as they are");
        }
    }
}

/// Strings get a beginning that no index takes of a new document, but that rows of earlier builds may have.
fn lengthened(value: &Value) -> Value {
    match value {
        Value::String(text) if !text.is_empty() => Value::from("x".repeat(MAX_INDEX_VALUE_BYTES - 2) + text),
        Value::Object(fields) => {
            fields.iter().map(|(name, field)| (name.clone(), lengthened(field))).collect()
        }
        Value::Array(items) => items.iter().map(lengthened).collect(),
        other => other.clone(),
    }
}

impl Word {
    fn lengthened(self) -> Self {
        match self {
            Self::Text(text) => Self::Value(lengthened(&Value::from(text))),
            Self::Value(value) => Self::Value(lengthened(&value)),
        }
    }
}

impl Said {
    fn lengthened(self) -> Self {
        match self {
            Self::Eq(word) => Self::Eq(word.lengthened()),
            Self::Ne(word) => Self::Ne(word.lengthened()),
            Self::Gt(word) => Self::Gt(word.lengthened()),
            Self::Gte(word) => Self::Gte(word.lengthened()),
            Self::Lt(word) => Self::Lt(word.lengthened()),
            Self::Lte(word) => Self::Lte(word.lengthened()),
            Self::In(words) => Self::In(words.into_iter().map(Word::lengthened).collect()),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn values_that_are_too_long_for_an_index_are_found_where_they_are(
        documents in documents(), indexes in indexes(), asked in asked(), which in any::<u32>()
    ) {
        let lengthen = |n: usize, document: Document| match which >> (n % 32) & 1 {
            0 => document,
            _ => {
                let Document { key, version, revision, ts, body, .. } = document;
                Document::new(key, version, revision, ts, Json::from_value(&lengthened(&body.to_value().unwrap())))
            }
        };
        let documents: Vec<Document> =
            documents.into_iter().enumerate().map(|(n, document)| lengthen(n, document)).collect();
        let conditions = asked.conditions.into_iter().enumerate().map(|(n, (path, said))| {
            (path, if which >> (n + 16) & 1 == 0 { said } else { said.lengthened() })
        });
        let asked = Asked { conditions: conditions.collect(), ..asked };
        let indexes: Vec<(&[&str], bool)> = indexes.iter().map(|fields| (&fields[..], false)).collect();
        let mut state = state(&indexes);
        let rows = stored(&mut state, &documents);
        let found = find(&rows, &state, &asked.find()).unwrap();
        let (expected, more) = asked.plain(&documents);
        prop_assert_eq!((keys(&found), found.more), (expected.iter().map(String::as_str).collect(), more));
    }
}

#[test]
fn long_values_make_no_long_ranges() {
    let rows = many(&[(&["kind", "text"], false), (&["kind"], false)]);
    let long = |tail: &str| Word::Value(Value::from("x".repeat(60_000) + tail));
    let kinds = || Said::In((0..1_000).map(|n| Word::Value(json!(format!("k{n}")))).collect());
    let attacks = [
        ask(&[("kind", kinds()), ("text", Said::Eq(long("")))], &[]),
        ask(&[("kind", kinds()), ("text", Said::In(vec![long("a"), long("b"), Word::Text("5")]))], &[]),
        ask(&[("kind", kinds()), ("text", Said::Gt(long("")))], &[]),
        ask(&[("kind", kinds()), ("_ts", eq("1000")), ("_key", Said::Lt(long("")))], &[]),
        ask(&[("_key", Said::In(vec![long("a"), long("b")]))], &[]),
    ];
    for asked in attacks {
        let find = asked.find();
        let query = super::query::Query::of(&find).unwrap();
        let plan = super::plan::plan(&rows.1, &query);
        let longest = plan.ranges.iter().map(|range| range.rows.start.len().max(range.rows.end.len())).max();
        assert!(longest < Some(MAX_INDEX_VALUE_BYTES + 64), "{longest:?} bytes");
        let found = super::find(&rows.0, &rows.1, &find).unwrap();
        assert_eq!(keys(&found), asked.plain(&all(&rows.0)).0);
    }
}

#[test]
fn a_value_that_is_too_long_is_looked_for_where_it_would_be() {
    let (rows, state) = many(&[(&["text"], true), (&["kind", "text"], false)]);
    for conditions in [&[][..], &[("kind", eq("k3"))]] {
        let long = Said::Eq(Word::Value(Value::from("x".repeat(60_000))));
        let asked = ask(&[conditions, &[("text", long)]].concat(), &[]);
        rows.read.set(0);
        assert_eq!(find(&rows, &state, &asked.find()).unwrap(), FoundDocuments::default());
        assert!(rows.read.get() <= 1, "{} rows", rows.read.get());
    }
}

const MANY: u64 = 10_000;

/// Many documents of ten kinds: `kind` goes round, `n` counts, and `back` counts down.
fn many(indexes: &[(&[&str], bool)]) -> (Counted, CollectionState) {
    let document = |n: u64| {
        let body = json!({"kind": format!("k{}", n % 10), "n": n, "back": MANY - n, "text": n.to_string()});
        Document::new(format!("d{n:05}"), 1, None, 1_000 + n, Json::from_value(&body))
    };
    let documents: Vec<Document> = (0..MANY).map(document).collect();
    let mut state = state(indexes);
    let rows = stored(&mut state, &documents);
    (rows, state)
}

/// All documents.
fn all(rows: &Counted) -> Vec<Document> {
    let documents = rows.rows.iter().filter(|(key, _)| key[0] == 1);
    documents.map(|(key, row)| super::super::rows::document_of_row(key, row).unwrap()).collect()
}

/// Asks, and fails unless the page is the right one and took no more rows than that.
#[track_caller]
fn assert_reads(most: usize, (rows, state): &(Counted, CollectionState), asked: &Asked) {
    rows.read.set(0);
    let found = find(rows, state, &asked.find()).unwrap();
    let read = rows.read.get();
    let (expected, more) = asked.plain(&all(rows));
    assert!(!expected.is_empty(), "a search that finds nothing shows nothing");
    assert_eq!((keys(&found), found.more), (expected.iter().map(String::as_str).collect(), more));
    assert!(read <= most, "{asked:?} read {read} rows, more than {most}");
}

fn ask(conditions: &[(&'static str, Said)], sort: &[(&'static str, bool)]) -> Asked {
    Asked { conditions: conditions.to_vec(), sort: sort.to_vec(), offset: 0, limit: 10 }
}

fn eq(text: &'static str) -> Said {
    Said::Eq(Word::Text(text))
}

#[test]
fn an_index_of_known_values_gives_the_newest_at_once() {
    let rows = many(&[(&["kind"], false)]);
    assert_reads(21, &rows, &ask(&[("kind", eq("k3"))], &[]));
    assert_reads(21, &rows, &ask(&[("kind", eq("k3"))], &[("_ts", false)]));
    assert_reads(21, &rows, &ask(&[("kind", eq("k3"))], &[("kind", true)]));
    let some = Said::In(vec![Word::Text("k3"), Word::Text("k4"), Word::Text("none")]);
    assert_reads(23, &rows, &ask(&[("kind", some.clone())], &[]));
    assert_reads(23, &rows, &ask(&[("kind", some)], &[("kind", false)]));
    // What is passed over costs a row of the index and no document.
    assert_reads(121, &rows, &Asked { offset: 100, ..ask(&[("kind", eq("k3"))], &[]) });
    // A page of what an index alone cannot tell: one in a hundred, of which every tenth is of the kind.
    let late = Said::Gte(Word::Value(json!(1_000 + MANY - 50)));
    assert_reads(15, &rows, &ask(&[("kind", eq("k3")), ("_ts", late)], &[]));
}

#[test]
fn a_compound_index_takes_a_range_in_its_next_field() {
    let rows = many(&[(&["kind", "n"], false)]);
    let high = Said::Gte(Word::Text("9000"));
    assert_reads(22, &rows, &ask(&[("kind", eq("k3")), ("n", high.clone())], &[("n", false)]));
    assert_reads(22, &rows, &ask(&[("kind", eq("k3")), ("n", high.clone())], &[("n", true)]));
    // Another order has to be made, from the rows of the range.
    assert_reads(110, &rows, &ask(&[("kind", eq("k3")), ("n", high)], &[]));
    assert_reads(22, &rows, &ask(&[("kind", eq("k3")), ("n", eq("103"))], &[]));
}

#[test]
fn an_index_gives_its_order_in_both_directions() {
    let rows = many(&[(&["back"], false), (&["kind", "back"], false)]);
    assert_reads(21, &rows, &ask(&[], &[("back", false)]));
    assert_reads(21, &rows, &ask(&[], &[("back", true)]));
    assert_reads(21, &rows, &ask(&[], &[("kind", true), ("back", true)]));
    assert_reads(21, &rows, &ask(&[("kind", eq("k7"))], &[("back", true)]));
    let low = Said::Lt(Word::Value(json!(500)));
    assert_reads(21, &rows, &ask(&[("back", low)], &[("back", true)]));
    // Directions that differ are sorted, by what the index shows.
    assert_reads(MANY as usize + 10, &rows, &ask(&[], &[("kind", false), ("back", true)]));
}

#[test]
fn keys_and_times_need_no_index() {
    let rows = many(&[(&["kind"], false)]);
    assert_reads(2, &rows, &ask(&[("_key", eq("d00042"))], &[]));
    assert_reads(2, &rows, &ask(&[("_key", eq("d00042")), ("kind", eq("k2"))], &[("n", true)]));
    assert_reads(11, &rows, &ask(&[], &[("_key", false)]));
    assert_reads(11, &rows, &ask(&[], &[("_key", true)]));
    assert_reads(11, &rows, &ask(&[("_key", Said::Gt(Word::Text("d00500")))], &[("_key", false)]));
    assert_reads(21, &rows, &ask(&[], &[]));
    assert_reads(21, &rows, &ask(&[], &[("_ts", false)]));
    assert_reads(21, &rows, &ask(&[("_ts", Said::Lt(Word::Text("6000")))], &[]));
    assert_reads(2, &rows, &ask(&[("_ts", eq("6000"))], &[]));
}

#[test]
fn a_known_value_is_better_than_an_order() {
    let rows = many(&[(&["n"], false), (&["text"], true)]);
    assert_reads(3, &rows, &ask(&[("text", eq("77")), ("n", Said::Gt(Word::Text("3")))], &[("n", true)]));
    assert_reads(3, &rows, &ask(&[("text", Said::Eq(Word::Value(json!("77"))))], &[("back", true)]));
}

#[test]
fn conditions_that_no_document_meets_read_nothing() {
    let (rows, state) = many(&[(&["kind"], false)]);
    let nothing = [
        ask(&[("kind", Said::In(Vec::new()))], &[]),
        ask(&[("kind", eq("k1")), ("kind", eq("k2"))], &[]),
        ask(&[("n", Said::Gt(Word::Value(json!(5)))), ("n", Said::Lt(Word::Value(json!(5))))], &[]),
        ask(&[("n", Said::Gt(Word::Value(json!(null))))], &[]),
        ask(&[("_ts", eq("soon"))], &[]),
        ask(&[("_key", Said::Eq(Word::Value(json!(1))))], &[]),
    ];
    for asked in nothing {
        let found = find(&rows, &state, &asked.find()).unwrap();
        assert_eq!((found, rows.read.get()), (FoundDocuments::default(), 0), "{asked:?}");
    }
}

#[test]
fn more_values_than_ranges_are_still_found() {
    let rows = many(&[(&["n"], false), (&["kind", "n"], false)]);
    let most = Said::In((0..3_000).map(|n| Word::Value(json!(n * 2))).collect());
    assert_reads(40_000, &rows, &ask(&[("n", most.clone())], &[("n", true)]));
    assert_reads(40_000, &rows, &ask(&[("kind", eq("k4")), ("n", most.clone())], &[]));
    let keys = Said::Ne(Word::Text("d00001"));
    assert_reads(40_000, &rows, &ask(&[("_key", keys), ("n", most)], &[("text", false)]));
}

#[test]
fn damage_and_failures_are_told() {
    struct Failing;
    impl Rows for Failing {
        fn get(&self, _: &[u8]) -> Result<Option<Bytes>, ReadError> {
            Err(ReadError::Unavailable("gone".into()))
        }

        fn range(&self, _: RowRange, _: bool) -> RowsIter<'_> {
            Box::new(std::iter::once(Err(ReadError::Unavailable("gone".into()))))
        }
    }
    let (mut rows, state) = many(&[(&["kind"], false)]);
    let queries = [
        ask(&[], &[]),
        ask(&[("_key", eq("d00001"))], &[]),
        ask(&[("kind", Said::In(vec![Word::Text("k1"), Word::Text("k2")]))], &[]),
        ask(&[], &[("n", true)]),
    ];
    for asked in &queries {
        let error = find(&Failing, &state, &asked.find()).unwrap_err();
        assert_eq!(error, ReadError::Unavailable("gone".into()));
    }
    // The index rows stay, and the documents go.
    rows.rows.retain(|key, _| key[0] == 2);
    for asked in [&queries[0], &queries[2]] {
        assert!(matches!(find(&rows, &state, &asked.find()), Err(ReadError::Corrupt(_))));
    }
    rows.rows = rows.rows.keys().map(|key| (key.slice(..13), Bytes::new())).collect();
    assert!(matches!(find(&rows, &state, &queries[0].find()), Err(ReadError::Corrupt(_))));
}
