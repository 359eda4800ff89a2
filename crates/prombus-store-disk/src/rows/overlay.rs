//! Rows that changed and are in no table yet, in memory.
//!
//! Every view needs them as of its own commit, and one writer changes them all the time. So all views share one map,
//! in which each row has the values that it had, each with the number of the change that gave it, and a view is the
//! number of the last change that it sees. Nothing is copied when a view is made, and nothing when a row is changed.

use super::{Row, table};
use bytes::Bytes;
use parking_lot::RwLock;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::ops::{Bound, Range};
use std::sync::Arc;

/// What a change takes beside its bytes, roughly: its place in the map and in the list of changes, and the heads of two
/// allocations.
const CHANGE_COST: usize = 224;
/// So many rows are taken from the map at once at first, and at most: a writer must not wait long for a reader.
const FIRST_CHUNK: usize = 8;
const MOST_CHUNK: usize = 256;

/// A value, or that the row is removed, and the number of the change.
type Version = (u64, Option<Bytes>);

/// The values that a row had.
#[derive(Debug)]
struct History {
    newest: Version,
    /// The earlier ones, in order.
    older: Vec<Version>,
}

impl History {
    /// What a view sees that ends with change `seen`; nothing where the row was changed later only.
    fn at(&self, seen: u64) -> Option<&Option<Bytes>> {
        if self.newest.0 <= seen {
            return Some(&self.newest.1);
        }
        let later = self.older.partition_point(|(number, _)| *number <= seen);
        later.checked_sub(1).map(|last| &self.older[last].1)
    }
}

/// So many bytes of a key are compared without going where it lies: enough to get past the number of the collection and
/// the name of the index.
const HEAD: usize = 32;

/// A key with its first bytes at hand. Orders as its bytes do: a key that ends within them goes on with zeros there, and
/// the whole decides where they are the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    head: [u8; HEAD],
    bytes: Bytes,
}

impl Key {
    fn new(bytes: Bytes) -> Self {
        let mut head = [0; HEAD];
        let len = bytes.len().min(HEAD);
        head[..len].copy_from_slice(&bytes[..len]);
        Self { head, bytes }
    }
}

fn cost(key: &Bytes, value: Option<&Bytes>) -> usize {
    CHANGE_COST + key.len() + value.map_or(0, Bytes::len)
}

#[derive(Debug, Default)]
struct Changes {
    rows: BTreeMap<Key, History>,
    /// How many changes cannot be taken back any more.
    settled: u64,
    /// The row of each change after them.
    keys: Vec<Bytes>,
}

impl Changes {
    /// The number of the last change.
    fn last(&self) -> u64 {
        self.settled + self.keys.len() as u64
    }

    /// Makes a change that nobody else sees, instead of what was there; says what that took in memory.
    fn settle(&mut self, key: Bytes, value: Option<Bytes>) -> usize {
        self.settled += 1;
        let version = (self.settled, value);
        match self.rows.entry(Key::new(key)) {
            Entry::Vacant(entry) => {
                entry.insert(History { newest: version, older: Vec::new() });
                0
            }
            Entry::Occupied(mut entry) => {
                let before = entry.insert(History { newest: version, older: Vec::new() });
                let versions = before.older.iter().chain([&before.newest]);
                versions.map(|(_, value)| cost(&entry.key().bytes, value.as_ref())).sum()
            }
        }
    }

    fn set(&mut self, key: Bytes, value: Option<Bytes>) {
        self.keys.push(key.clone());
        let version = (self.last(), value);
        match self.rows.entry(Key::new(key)) {
            Entry::Vacant(entry) => drop(entry.insert(History { newest: version, older: Vec::new() })),
            Entry::Occupied(mut entry) => {
                let history = entry.get_mut();
                history.older.push(std::mem::replace(&mut history.newest, version));
            }
        }
    }

    /// Takes back everything after change `last`.
    fn go_back(&mut self, last: u64) {
        while self.last() > last
            && let Some(key) = self.keys.pop().map(Key::new)
        {
            let Some(history) = self.rows.get_mut(&key) else { continue };
            match history.older.pop() {
                Some(before) => history.newest = before,
                None => drop(self.rows.remove(&key)),
            }
        }
    }
}

/// Changed rows in order, as of one change. Cheap to clone. Only one of all clones is ever changed, and a change that
/// it does not have is seen by no other: the others are views of it.
#[derive(Debug, Clone, Default)]
pub struct Overlay {
    changes: Arc<RwLock<Changes>>,
    /// The number of the last change that is seen.
    seen: u64,
    bytes: usize,
}

impl Overlay {
    /// What it takes in memory, roughly, with earlier values.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.seen == 0
    }

    /// Puts rows, or notes that they are removed.
    pub fn change(&mut self, rows: Vec<Row>) {
        self.bytes += rows.iter().map(|(key, value)| cost(key, value.as_ref())).sum::<usize>();
        // While the journal is applied again there are no views, and what rows were before is of no use to anyone.
        if let Some(changes) = Arc::get_mut(&mut self.changes) {
            let changes = changes.get_mut();
            changes.go_back(self.seen);
            (changes.settled, changes.keys) = (self.seen, Vec::new());
            let replaced: usize = rows.into_iter().map(|(key, value)| changes.settle(key, value)).sum();
            self.bytes = self.bytes.saturating_sub(replaced);
            self.seen = changes.last();
            return;
        }
        let mut changes = self.changes.write();
        // What was taken back is still there.
        changes.go_back(self.seen);
        rows.into_iter().for_each(|(key, value)| changes.set(key, value));
        self.seen = changes.last();
    }

    /// What is known of a row: nothing, that it is removed, or its value.
    pub fn get(&self, key: &[u8]) -> Option<Option<Bytes>> {
        if self.is_empty() {
            return None;
        }
        let key = Key::new(Bytes::copy_from_slice(key));
        self.changes.read().rows.get(&key)?.at(self.seen).cloned()
    }

    /// The rows of a range, removed ones too.
    pub fn range(&self, range: &Range<Bytes>, reverse: bool) -> Scan<'_> {
        let key = |bound: &Bytes| Key::new(bound.clone());
        let left = (Bound::Included(key(&range.start)), Bound::Excluded(key(&range.end)));
        let left = (range.start < range.end).then_some(left);
        Scan { overlay: self, left, reverse, chunk: FIRST_CHUNK, rows: VecDeque::new() }
    }

    /// All rows, removed ones too.
    pub fn iter(&self) -> Scan<'_> {
        let left = Some((Bound::Unbounded, Bound::Unbounded));
        Scan { overlay: self, left, reverse: false, chunk: MOST_CHUNK, rows: VecDeque::new() }
    }

    /// How many of its rows are looked up one by one, at most.
    pub fn filtered(&self) -> usize {
        self.changes.read().rows.keys().filter(|key| table::is_filtered(&key.bytes)).count()
    }
}

/// Rows of an overlay, one by one.
pub struct Scan<'a> {
    overlay: &'a Overlay,
    /// What was not taken from the map yet.
    left: Option<(Bound<Key>, Bound<Key>)>,
    reverse: bool,
    /// How many to take the next time.
    chunk: usize,
    rows: VecDeque<Row>,
}

impl Scan<'_> {
    /// Takes the next rows from the map.
    fn fill(&mut self) {
        let Some((start, end)) = self.left.take() else { return };
        let changes = self.overlay.changes.read();
        let rows = changes.rows.range((start.clone(), end.clone()));
        let mut rows: Box<dyn Iterator<Item = _>> =
            if self.reverse { Box::new(rows.rev()) } else { Box::new(rows) };
        for (key, history) in rows.by_ref() {
            if let Some(value) = history.at(self.overlay.seen) {
                self.rows.push_back((key.bytes.clone(), value.clone()));
            }
            if self.rows.len() == self.chunk {
                let next = Bound::Excluded(key.clone());
                self.left = Some(if self.reverse { (start, next) } else { (next, end) });
                break;
            }
        }
        self.chunk = (2 * self.chunk).min(MOST_CHUNK);
    }
}

impl Iterator for Scan<'_> {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        if self.rows.is_empty() {
            self.fill();
        }
        self.rows.pop_front()
    }
}
