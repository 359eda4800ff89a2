//! Rows against a plain ordered map, through freezes, tables and merges.

use super::write::write;
use super::*;
use crate::disk::RealDisk;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;

type Model = BTreeMap<Bytes, Bytes>;

#[derive(Debug, Clone)]
enum Step {
    Put(Bytes, Bytes),
    Remove(Bytes),
    /// What these do is taken back.
    Fail(Vec<(Bytes, Option<Bytes>)>),
    Freeze,
    WriteTable,
    Merge(usize, usize),
    /// Everything from a key on, with this second byte, is of no use any more.
    Forget(u8),
    Range(Bytes, Bytes, bool),
}

/// Few keys, so that they meet; of both kinds, and some that are the start of others.
fn key() -> impl Strategy<Value = Bytes> {
    (1u8..3, 0u8..4, prop::collection::vec(0u8..3, 0..4)).prop_map(|(kind, collection, rest)| {
        let mut key = vec![kind, collection];
        key.extend(rest);
        key.into()
    })
}

fn value() -> impl Strategy<Value = Bytes> {
    let sizes = prop_oneof![8 => 0usize..40, 2 => 2_000usize..5_000, 1 => 9_000usize..20_000];
    (any::<u8>(), sizes).prop_map(|(byte, len)| vec![byte; len].into())
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (key(), value()).prop_map(|(key, value)| Step::Put(key, value)),
        8 => key().prop_map(Step::Remove),
        3 => prop::collection::vec((key(), prop::option::of(value())), 0..9).prop_map(Step::Fail),
        3 => Just(Step::Freeze),
        3 => Just(Step::WriteTable),
        2 => (0usize..6, 2usize..5).prop_map(|(from, count)| Step::Merge(from, count)),
        1 => (0u8..4).prop_map(Step::Forget),
        6 => (key(), key(), any::<bool>()).prop_map(|(a, b, reverse)| Step::Range(a, b, reverse)),
    ]
}

struct World<'a> {
    dir: &'a Path,
    next: u64,
    rows: Rows,
    model: Model,
}

impl World<'_> {
    fn target(&mut self) -> Target<'_> {
        self.next += 1;
        Target { disk: &RealDisk, dir: self.dir, number: self.next }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Put(key, value) => {
                self.rows.change(vec![(key.clone(), Some(value.clone()))]);
                self.model.insert(key, value);
            }
            Step::Remove(key) => {
                self.rows.change(vec![(key.clone(), None)]);
                self.model.remove(&key);
            }
            Step::Fail(changes) => {
                let before = self.rows.clone();
                self.rows.change(changes);
                self.rows = before;
            }
            Step::Freeze => {
                let frozen = self.rows.frozen().is_some();
                let something = self.rows.active_bytes() > 0;
                assert_eq!(self.rows.freeze(), !frozen && something);
            }
            Step::WriteTable => self.write_table(),
            Step::Merge(from, count) => self.merge(from, count, &|_| true),
            Step::Forget(collection) => self.forget(collection),
            Step::Range(a, b, reverse) => self.compare(a..b, reverse),
        }
    }

    fn write_table(&mut self) {
        let Some(frozen) = self.rows.frozen().cloned() else { return };
        let table = write(self.target(), frozen.filtered(), frozen.iter().map(Ok)).unwrap();
        assert!(table.is_some(), "what is frozen is not empty");
        let tables = self.rows.tables().with_newer(table);
        let frozen = self.rows.replace_frozen(Arc::new(tables));
        assert!(frozen.is_some());
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

    /// The rows of a collection that is gone, which nobody asks for any more, go with the next merge.
    fn forget(&mut self, collection: u8) {
        self.model.retain(|key, _| key[1] != collection);
        self.write_table();
        self.rows.freeze();
        self.write_table();
        self.merge(0, self.rows.tables().list().len(), &|key| key[1] != collection);
        assert!(
            self.rows
                .range(vec![1, collection].into()..vec![1, collection + 1].into(), false)
                .next()
                .is_none()
        );
    }

    fn compare(&self, range: Range<Bytes>, reverse: bool) {
        let found: Vec<(Bytes, Bytes)> =
            self.rows.range(range.clone(), reverse).map(Result::unwrap).collect();
        let mut expected: Vec<(Bytes, Bytes)> = if range.start < range.end {
            self.model.range(range).map(|(key, value)| (key.clone(), value.clone())).collect()
        } else {
            Vec::new()
        };
        if reverse {
            expected.reverse();
        }
        assert!(found == expected, "{} rows, not {}", found.len(), expected.len());
    }

    fn compare_all(&self) {
        for reverse in [false, true] {
            self.compare(Bytes::new()..Bytes::from_static(&[9]), reverse);
        }
        for kind in 1..3 {
            for collection in 0..4 {
                for last in 0..3 {
                    for key in [vec![kind, collection], vec![kind, collection, last, 1]] {
                        let found = self.rows.get(&key).unwrap();
                        assert!(found == self.model.get(&key[..]).cloned());
                    }
                }
            }
        }
        let tables = self.rows.tables();
        for table in tables.list() {
            assert_eq!(table.verify().unwrap(), Ok(()));
            let again = Table::open(&RealDisk, self.dir, table.number()).unwrap();
            assert_eq!(again.rows(), table.rows());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn rows_are_an_ordered_map(steps in prop::collection::vec(step(), 0..250)) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("state")).unwrap();
        let mut world = World { dir: dir.path(), next: 0, rows: Rows::default(), model: Model::new() };
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
    let target = Target { disk: &RealDisk, dir, number: 1 };
    write(target, rows as usize, (0..rows).map(row)).unwrap().unwrap()
}

#[test]
fn a_view_is_left_alone_by_what_happens_after_it() {
    let one = || Some(Bytes::from_static(b"1"));
    let (a, b) = (Bytes::from_static(b"\x01a"), Bytes::from_static(b"\x01b"));
    let all = || Bytes::from_static(b"\x01")..Bytes::from_static(b"\x02");
    let list = |rows: &Rows| rows.range(all(), true).map(|row| row.unwrap().0).collect::<Vec<_>>();
    let mut rows = Rows::default();
    rows.change(vec![(a.clone(), one())]);
    let before = rows.clone();
    rows.change(vec![(a.clone(), None), (b.clone(), one())]);
    assert_eq!((list(&before), list(&rows)), (vec![a.clone()], vec![b.clone()]));
    // A commit that fails is taken back, and another one comes.
    rows = before.clone();
    assert_eq!(list(&rows), vec![a.clone()]);
    let other = Bytes::from_static(b"\x01c");
    rows.change(vec![(other.clone(), one())]);
    let bytes = rows.active_bytes();
    rows.freeze();
    assert_eq!(rows.get(&b).unwrap(), None);
    assert_eq!((list(&before), list(&rows)), (vec![a.clone()], vec![other, a.clone()]));
    assert_eq!((rows.active_bytes(), rows.frozen().unwrap().bytes()), (0, bytes));
    assert_eq!(before.get(&a).unwrap(), one());
}

#[test]
fn rows_out_of_order_are_refused_and_nothing_is_left_of_them() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("state")).unwrap();
    let row = |key: &'static [u8]| Ok((Bytes::from_static(key), None));
    let target = Target { disk: &RealDisk, dir: dir.path(), number: 1 };
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
        let Ok(table) = Table::open(&RealDisk, dir.path(), 1) else { continue };
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
    assert!(Table::open(&RealDisk, dir.path(), 2).is_err(), "a table under a wrong name");
}
