//! Rows against a plain ordered map, through freezes, tables and merges.

use super::write::{write, write_frozen};
use super::*;
use crate::disk::RealDisk;
use prombus_core::collection::{Index, Progress};
use prombus_core::{CollectionConfig, CollectionState, Document, FieldPath, Json};
use prombus_rows::{INDEX_PREFIX, StepLimits};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;

type Model = BTreeMap<Bytes, Bytes>;

const COLLECTIONS: u32 = 3;

static DISK: RealDisk = RealDisk::new();

#[derive(Debug, Clone)]
enum Step {
    Put(u32, String, Value),
    Remove(u32, String),
    /// What these do is rolled back.
    Fail(Vec<(u32, String, Option<Value>)>, u32, usize),
    /// A collection has other indexes from now on.
    Index(u32, usize),
    /// Index rows are made ahead of time.
    Prepare,
    /// Somebody looks from here, and again at the end.
    Look,
    Freeze,
    WriteTable,
    Merge(usize, usize),
    /// A collection is of no use any more.
    Forget(u32),
    Range(u32, String, bool),
}

/// Few keys, so that they meet; some are the start of others.
fn key() -> impl Strategy<Value = String> {
    "[ab]{0,3}"
}

fn body() -> impl Strategy<Value = Value> {
    let sizes = prop_oneof![8 => 0usize..40, 2 => 2_000usize..5_000, 1 => 9_000usize..20_000];
    let field = prop_oneof![
        (0..4).prop_map(Value::from),
        "[a-c]{0,2}".prop_map(Value::from),
        Just(Value::from("a\\\"\u{e9}")),
        Just(json!({"c": [1, "x"]})),
    ];
    (field.clone(), prop::option::of(field), sizes)
        .prop_map(|(a, b, len)| json!({"a": a, "b": b, "rest": "x".repeat(len)}))
}

fn step() -> impl Strategy<Value = Step> {
    let number = || 0..COLLECTIONS;
    let change = (number(), key(), prop::option::of(body()));
    prop_oneof![
        20 => (number(), key(), body()).prop_map(|(number, key, body)| Step::Put(number, key, body)),
        8 => (number(), key()).prop_map(|(number, key)| Step::Remove(number, key)),
        3 => (prop::collection::vec(change, 0..9), number(), 0usize..3)
            .prop_map(|(changes, number, indexes)| Step::Fail(changes, number, indexes)),
        1 => (number(), 0usize..3).prop_map(|(number, indexes)| Step::Index(number, indexes)),
        2 => Just(Step::Look),
        2 => Just(Step::Prepare),
        3 => Just(Step::Freeze),
        3 => Just(Step::WriteTable),
        2 => (0usize..6, 2usize..5).prop_map(|(from, count)| Step::Merge(from, count)),
        1 => number().prop_map(Step::Forget),
        6 => (number(), key(), any::<bool>())
            .prop_map(|(number, from, reverse)| Step::Range(number, from, reverse)),
    ]
}

fn indexes(which: usize) -> CollectionConfig {
    let index = |fields: &[&str]| Index {
        fields: fields.iter().map(|field| FieldPath::parse(field).unwrap()).collect(),
        unique: false,
    };
    let indexes = match which {
        0 => vec![],
        1 => vec![index(&["a"]), index(&["b", "a"])],
        _ => vec![index(&["b.c.1"]), index(&["_ts", "a"])],
    };
    CollectionConfig { indexes, ..CollectionConfig::default() }
}

struct World<'a> {
    dir: &'a Path,
    next: u64,
    states: Vec<CollectionState>,
    rows: Rows,
    model: Model,
    /// What was seen, and what should be.
    views: Vec<(Rows, Model)>,
}

impl World<'_> {
    fn target(&mut self) -> Target<'_> {
        self.next += 1;
        Target { disk: &DISK, dir: self.dir, number: self.next }
    }

    fn set(&mut self, number: u32, key: &str, body: Option<Value>) {
        let state = &mut self.states[number as usize];
        let slot = prombus_rows::look_up(&self.rows, state, key).unwrap();
        let version = slot.document.as_ref().map_or(1, |old| old.version + 1);
        let new =
            body.map(|body| Document::new(key.into(), version, None, version % 3, Json::from_value(&body)));
        let slot = slot.measured(state, new.as_ref());
        let Some(change) = prombus_rows::replace(state, slot, new.as_ref()) else { return };
        self.put(change.rows());
        self.rows.change(change);
    }

    /// Makes an index in steps, and takes the rows of those that are gone away.
    fn index(&mut self, number: u32, which: usize) {
        let before = self.states[number as usize].clone();
        let mut after = before.with_settings(indexes(which));
        for gone in before.indexes.iter().filter(|gone| !after.indexes.contains(gone)) {
            let changes = prombus_rows::rows_of_index(&self.rows, &before, gone).unwrap();
            self.put(changes.clone());
            self.rows.change_indexes(&changes);
        }
        while let Some(index) = after.building() {
            let limits = StepLimits { documents: 2, bytes: usize::MAX };
            let step = prombus_rows::build_step(&self.rows, &after, index, limits).unwrap();
            let again = prombus_rows::build_to(&self.rows, &after, index, step.progress.clone()).unwrap();
            assert_eq!(step.rows, again.rows, "a step is known by where it ends");
            self.put(step.rows.clone());
            self.rows.change_indexes(&step.rows);
            after = after.with_progress(index, step.progress);
        }
        self.states[number as usize] = after;
    }

    /// Ranges from somewhere within: documents from a key on, and what lies between any two index rows.
    fn compare_some(&self, number: u32, from: &str, reverse: bool) {
        let Range { start, end } = all_of(1, number);
        compare(&self.rows, &self.model, [&start, from.as_bytes()].concat().into()..end, reverse);
        let all = all_of(2, number);
        let keys: Vec<Bytes> = self.model.range(all.clone()).map(|(key, _)| key.clone()).collect();
        let (first, last) = (keys.len() / 3, 2 * keys.len() / 3);
        let bound = |at: usize| keys.get(at).cloned().unwrap_or_else(|| all.end.clone());
        compare(&self.rows, &self.model, all.start.clone()..bound(last), reverse);
        compare(&self.rows, &self.model, bound(first)..bound(last), reverse);
        compare(&self.rows, &self.model, bound(last)..all.end, reverse);
    }

    /// What the model makes of changed rows.
    fn put(&mut self, rows: Vec<RowChange>) {
        for (key, value) in rows {
            match value {
                Some(value) => self.model.insert(key, value),
                None => self.model.remove(&key),
            };
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Put(number, key, body) => self.set(number, &key, Some(body)),
            Step::Remove(number, key) => self.set(number, &key, None),
            Step::Fail(changes, number, which) => {
                let before = (self.rows.clone(), self.model.clone(), self.states.clone());
                let half = changes.len() / 2;
                for (n, (number, key, body)) in changes.into_iter().enumerate() {
                    if n == half {
                        self.index(number, which);
                    }
                    self.set(number, &key, body);
                }
                self.index(number, which);
                (self.rows, self.model, self.states) = before;
            }
            Step::Index(number, which) => self.index(number, which),
            Step::Prepare => {
                self.rows.prepare();
                assert!(self.rows.is_prepared());
            }
            Step::Look => self.views.push((self.rows.clone(), self.model.clone())),
            Step::Freeze => {
                let frozen = self.rows.frozen().is_some();
                let something = !self.rows.active.is_empty();
                assert_eq!(self.rows.freeze(), !frozen && something);
            }
            Step::WriteTable => self.write_table(&|_| true),
            Step::Merge(from, count) => self.merge(from, count, &|_| true),
            Step::Forget(number) => self.forget(number),
            Step::Range(number, from, reverse) => self.compare_some(number, &from, reverse),
        }
    }

    fn write_table(&mut self, keep: &dyn Fn(&[u8]) -> bool) {
        if self.rows.frozen().is_none() {
            return;
        }
        let rows = self.rows.clone();
        let table = write_frozen(self.target(), &rows, keep).unwrap();
        let tables = self.rows.tables().with_newer(table);
        let kept = self.rows.frozen().cloned().unwrap_or_default().for_lookups();
        self.rows.replace_frozen(Arc::new(tables), kept);
        assert!(self.rows.frozen().is_none());
    }

    fn merge(&mut self, from: usize, count: usize, keep: &dyn Fn(&[u8]) -> bool) {
        let tables = self.rows.tables().clone();
        let Some(run) = tables.list().get(from..from + count).filter(|run| !run.is_empty()) else { return };
        let before: u64 = run.iter().map(|table| table.rows()).sum();
        let stop = &AtomicBool::new(false);
        let merged = Merge { tables: run, from_oldest: from == 0, keep, stop }.write(self.target()).unwrap();
        assert!(merged.as_ref().map_or(0, |table| table.rows()) <= before);
        self.rows.replace_tables(Arc::new(tables.with_merged(run, merged).unwrap()));
    }

    /// The rows of a collection that is gone, which nobody asks for any more, go with the next merge. Another one
    /// with that number never comes, so its documents must not be looked up again either.
    fn forget(&mut self, number: u32) {
        let is_kept = move |key: &[u8]| prombus_rows::collection_of_row(key) != Some(number);
        self.write_table(&is_kept);
        self.rows.freeze();
        self.write_table(&is_kept);
        self.merge(0, self.rows.tables().list().len(), &is_kept);
        self.rows.kept = Overlay::default();
        self.model.retain(|key, _| is_kept(key));
        let CollectionState { name, config, .. } = self.states[number as usize].clone();
        self.states[number as usize] = CollectionState::new(name, number, (*config).clone());
    }

    /// The index rows as they follow from the documents alone.
    fn compare_indexes(&self) {
        for state in &self.states {
            // What comes of indexes that are made again; the one by time is always there.
            let made = |index: usize| {
                let begun = state.with_progress(index, Progress::Building { done: 0, of: 0, after: None });
                prombus_rows::build_to(&self.rows, &begun, index, Progress::Ready).unwrap().rows
            };
            let made: Vec<RowChange> = (0..state.indexes.len()).flat_map(made).collect();
            let by_time: Vec<Bytes> = {
                let documents = prombus_rows::scan(&self.rows, state, None, usize::MAX).unwrap();
                let tail = |document: &Document| {
                    [&document.ts.to_be_bytes()[..], document.key.as_bytes()].concat().into()
                };
                documents.iter().map(tail).collect()
            };
            let found: Vec<Bytes> =
                self.rows.range(all_of(2, state.number), false).map(|row| row.unwrap().0).collect();
            assert_eq!(found.len(), made.len() + by_time.len());
            for (row, value) in made {
                assert!(value.is_some() && found.contains(&row));
            }
            for tail in by_time {
                let is_it = |row: &&Bytes| row.len() == INDEX_PREFIX + tail.len() && row.ends_with(&tail);
                assert!(found.iter().any(|row| is_it(&row)));
            }
        }
    }

    fn compare_all(&self) {
        self.compare_indexes();
        let now = (self.rows.clone(), self.model.clone());
        for (rows, model) in self.views.iter().chain([&now]) {
            for (number, reverse) in (0..COLLECTIONS).flat_map(|number| [(number, false), (number, true)]) {
                compare(rows, model, all_of(1, number), reverse);
                compare(rows, model, all_of(2, number), reverse);
            }
            for state in &self.states {
                for key in ["", "a", "b", "ab", "aab", "bbb"] {
                    let found = prombus_rows::get(rows, state, key).unwrap();
                    let row = all_of(1, state.number).start;
                    let expected = model.get(&Bytes::from([&row, key.as_bytes()].concat()));
                    assert_eq!(found.is_some(), expected.is_some());
                    let is_it = |(found, row): (Document, &Bytes)| row.ends_with(found.body.as_bytes());
                    assert!(found.zip(expected).is_none_or(is_it));
                }
            }
        }
        let tables = self.rows.tables();
        for table in tables.list() {
            assert_eq!(table.verify().unwrap(), Ok(()));
            let again = Table::open(&DISK, self.dir, table.number()).unwrap();
            assert_eq!(again.rows(), table.rows());
        }
    }
}

/// All rows of a kind of a collection.
fn all_of(kind: u8, number: u32) -> Range<Bytes> {
    let bound = |number: u32| Bytes::from([&[kind][..], &number.to_be_bytes()].concat());
    bound(number)..bound(number + 1)
}

fn compare(rows: &Rows, model: &Model, range: Range<Bytes>, reverse: bool) {
    let found: Vec<(Bytes, Bytes)> = rows.range(range.clone(), reverse).map(Result::unwrap).collect();
    let mut expected: Vec<(Bytes, Bytes)> =
        model.range(range).map(|(key, value)| (key.clone(), value.clone())).collect();
    if reverse {
        expected.reverse();
    }
    assert!(found == expected, "{} rows, not {}", found.len(), expected.len());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn rows_are_an_ordered_map(steps in prop::collection::vec(step(), 0..250)) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("state")).unwrap();
        let state = |number: u32| CollectionState::new("c".into(), number, indexes(number as usize));
        let mut world = World {
            dir: dir.path(),
            next: 0,
            states: (0..COLLECTIONS).map(state).collect(),
            rows: Rows::default(),
            model: Model::new(),
            views: Vec::new(),
        };
        for step in steps {
            world.step(step);
        }
        world.compare_all();
    }
}

fn one_table(dir: &Path, rows: u32) -> Arc<Table> {
    std::fs::create_dir(dir.join("state")).unwrap();
    let row = |n: u32| {
        let mut key = vec![1];
        key.extend_from_slice(&n.to_be_bytes());
        Ok((key.into(), Some(n.to_string().into())))
    };
    let target = Target { disk: &DISK, dir, number: 1 };
    write(target, rows as usize, (0..rows).map(row)).unwrap().unwrap()
}

/// What documents take in memory is counted: as they are, and as they were where nobody else has that.
#[test]
fn what_is_in_memory_is_counted() {
    const SIZE: usize = 100_000;
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("state")).unwrap();
    let states = vec![CollectionState::new("c".into(), 0, indexes(1))];
    let (rows, model, views) = (Rows::default(), Model::new(), Vec::new());
    let mut world = World { dir: dir.path(), next: 0, states, rows, model, views };
    let large = || Some(json!({"a": 1, "rest": "x".repeat(SIZE)}));
    let key = |n: usize| format!("k{n}");
    let is_about = |bytes: usize, count: usize| (count * SIZE..count * SIZE + SIZE).contains(&bytes);
    (0..10).for_each(|n| world.set(0, &key(n), large()));
    assert!(is_about(world.rows.active_bytes(), 10), "{}", world.rows.active_bytes());
    (0..10).for_each(|n| world.set(0, &key(n), Some(json!({"a": 2}))));
    assert!(is_about(world.rows.active_bytes(), 0), "what is replaced here is gone");
    (0..10).for_each(|n| world.set(0, &key(n), large()));
    world.rows.freeze();
    world.write_table(&|_| true);
    assert_eq!(world.rows.active_bytes(), 0);
    (0..4).for_each(|n| world.set(0, &key(n), None));
    assert!(is_about(world.rows.active_bytes(), 0), "what was there is kept anyway");
    world.rows.kept = Overlay::default();
    (4..10).for_each(|n| world.set(0, &key(n), None));
    assert!(is_about(world.rows.active_bytes(), 6), "what was there was read for this");
    world.compare_all();
}

/// Index rows that take much more than their documents count before they are made, also those to be removed.
#[test]
fn rows_of_indexes_are_counted_before_they_are_made() {
    const DOCUMENTS: usize = 20;
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("state")).unwrap();
    let states = vec![CollectionState::new("c".into(), 0, indexes(1))];
    let (rows, model, views) = (Rows::default(), Model::new(), Vec::new());
    let mut world = World { dir: dir.path(), next: 0, states, rows, model, views };
    // Eleven bytes in each of the two indexes for each digit.
    let of_indexes = 2 * 11 * 300 * DOCUMENTS;
    let is_about = |bytes: usize| (of_indexes..of_indexes + of_indexes / 4).contains(&bytes);
    (0..DOCUMENTS).for_each(|n| world.set(0, &format!("k{n}"), Some(json!({"a": vec![1; 300]}))));
    assert!(is_about(world.rows.active_bytes()), "{}", world.rows.active_bytes());
    (0..DOCUMENTS).for_each(|n| world.set(0, &format!("k{n}"), Some(json!({"a": 1}))));
    // Of a document that is in two runs, the later one removes what the earlier one has put.
    assert!(world.rows.active_bytes() < of_indexes / 2, "{}", world.rows.active_bytes());
    (0..DOCUMENTS).for_each(|n| world.set(0, &format!("k{n}"), Some(json!({"a": vec![1; 300]}))));
    world.rows.freeze();
    world.write_table(&|_| true);
    assert_eq!(world.rows.active_bytes(), 0);
    (0..DOCUMENTS).for_each(|n| world.set(0, &format!("k{n}"), None));
    assert!(is_about(world.rows.active_bytes()), "{}", world.rows.active_bytes());
    world.compare_all();
}

/// The first key of each block is in memory, so blocks of long keys are larger.
#[test]
fn few_of_the_keys_of_a_table_are_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("state")).unwrap();
    for (number, len, most) in [(1, 4_000, 1_000 / 15), (2, 60, 1_000 / 70), (3, 100_000, 1_000)] {
        let key = |n: u32| Bytes::from([&[2][..], &n.to_be_bytes(), &vec![0; len]].concat());
        let target = Target { disk: &DISK, dir: dir.path(), number };
        let table = write(target, 0, (0..1_000).map(|n| Ok((key(n), Some(Bytes::new()))))).unwrap().unwrap();
        assert!(table.blocks() <= most, "{} blocks of keys of {len} bytes", table.blocks());
        assert_eq!(table.verify().unwrap(), Ok(()));
        for n in [0, 1, 499, 999] {
            assert_eq!(table.get(&key(n)).unwrap(), Some(Some(Bytes::new())));
            let two = table.range(key(n)..key(n + 2), n % 2 == 1).map(|row| row.unwrap().0);
            let mut expected = vec![key(n), key(n + 1)];
            expected.truncate(1_000 - n as usize);
            if n % 2 == 1 {
                expected.reverse();
            }
            assert_eq!(two.collect::<Vec<_>>(), expected);
        }
    }
}

#[test]
fn rows_out_of_order_are_refused_and_nothing_is_left_of_them() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("state")).unwrap();
    let row = |key: &'static [u8]| Ok((Bytes::from_static(key), None));
    let target = Target { disk: &DISK, dir: dir.path(), number: 1 };
    for rows in [vec![row(b"b"), row(b"a")], vec![row(b"a"), Err(io::Error::other("no"))], vec![]] {
        let is_empty = rows.is_empty();
        let written = write(target, 0, rows.into_iter());
        assert_eq!(written.is_ok(), is_empty);
        assert_eq!(std::fs::read_dir(dir.path().join("state")).unwrap().count(), 0);
    }
}

/// Damage is told by whoever comes across it, and never taken for rows.
#[test]
fn a_flipped_bit_is_found_in_every_page() {
    let dir = tempfile::tempdir().unwrap();
    let table = one_table(dir.path(), 6_000);
    let file = path(dir.path(), 1);
    let good = std::fs::read(&file).unwrap();
    assert!(table.disk_bytes() == good.len() as u64 && good.len() > 15 * 4096);
    for byte in (0..good.len()).step_by(509) {
        let mut bad = good.clone();
        bad[byte] ^= 1 << (byte % 8);
        std::fs::write(&file, &bad).unwrap();
        let Ok(table) = Table::open(&DISK, dir.path(), 1) else { continue };
        assert!(table.verify().is_err(), "byte {byte}");
        let mut expected = 0u32;
        for row in table.iter() {
            let Ok((_, value)) = row else { break };
            assert_eq!(value.unwrap(), expected.to_string());
            expected += 1;
        }
        assert!(expected < 6_000, "byte {byte}");
    }
    std::fs::rename(&file, path(dir.path(), 2)).unwrap();
    assert!(Table::open(&DISK, dir.path(), 2).is_err(), "a table under a wrong name");
}

/// A table of many rows, of which one is special, as a backup tells it from others.
fn fingerprint_with(special: u32) -> prombus_core::FileFingerprint {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("state")).unwrap();
    let target = Target { disk: &DISK, dir: dir.path(), number: 1 };
    let value = |n| Bytes::from(vec![u8::from(n == special); 200]);
    let rows = (0..10_000u32).map(|n| Ok((Bytes::copy_from_slice(&n.to_be_bytes()), Some(value(n)))));
    let table = write(target, 0, rows).unwrap().unwrap();
    let bytes = table.disk_bytes();
    assert!(bytes > 64 << 10, "it is read as a whole");
    crate::backup::fingerprint::fingerprint_of(&*table.handle(), bytes).unwrap()
}

/// A hub that was restored and went another way writes a table of the same number and length, with other rows.
#[test]
fn tables_that_differ_in_one_row_have_different_marks() {
    let fingerprints = [1_111, 3_333, 5_555, 7_777].map(fingerprint_with);
    for (n, fingerprint) in fingerprints.iter().enumerate() {
        assert!(!fingerprints[..n].contains(fingerprint), "table {n} passes for another one");
    }
}
