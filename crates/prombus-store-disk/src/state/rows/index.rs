//! Changed index rows, packed and in order.

use super::Row;
use super::merged::Merged;
use bytes::Bytes;
use hashbrown::HashMap;
use prombus_rows::INDEX_PREFIX;
use std::ops::Range;
use std::sync::Arc;

/// How many bytes of a key are compared without going where it lies: enough for a short value and a time.
const HEAD: usize = 24;

/// Index rows, each put or removed. They have no values, so their keys are all there is.
#[derive(Debug, Default)]
pub struct IndexRows {
    /// The keys, one behind the other.
    keys: Bytes,
    /// Where each key ends, doubled, and one more where the row is put.
    ends: Vec<u64>,
}

/// Rows in no order yet.
#[derive(Debug, Default)]
pub struct Gathered {
    keys: Vec<u8>,
    /// By what their keys start with, because all rows of an index start with the same.
    groups: HashMap<Vec<u8>, Vec<KeyPosition>>,
}

/// Where a key lies, and the bytes of it that come after what its group starts with.
#[derive(Debug)]
struct KeyPosition {
    head: [u8; HEAD],
    len: u32,
    is_put: bool,
    start: usize,
}

impl KeyPosition {
    fn key<'a>(&self, keys: &'a [u8]) -> &'a [u8] {
        &keys[self.start..self.start + self.len as usize]
    }
}

impl Gathered {
    /// Adds a row.
    pub fn push(&mut self, key: &[u8], is_put: bool) {
        let (group, rest) = key.split_at(key.len().min(INDEX_PREFIX));
        // A key that ends within the head goes on with zeros there, and the whole decides where heads are the same.
        let mut head = [0; HEAD];
        let len = rest.len().min(HEAD);
        head[..len].copy_from_slice(&rest[..len]);
        let place = KeyPosition { head, len: key.len() as u32, is_put, start: self.keys.len() };
        self.groups.entry_ref(group).or_default().push(place);
        self.keys.extend_from_slice(key);
    }

    /// Puts them in order, each once.
    pub fn in_order(self) -> IndexRows {
        let Self { keys, groups } = self;
        let mut packed = Packer::with_capacity(groups.values().map(Vec::len).sum(), keys.len());
        let mut groups: Vec<(Vec<u8>, Vec<KeyPosition>)> = groups.into_iter().collect();
        groups.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        for (_, mut places) in groups {
            let order = |a: &KeyPosition, b: &KeyPosition| {
                a.head.cmp(&b.head).then_with(|| a.key(&keys).cmp(b.key(&keys)))
            };
            places.sort_unstable_by(order);
            places.dedup_by(|a, b| a.key(&keys) == b.key(&keys));
            places.iter().for_each(|place| packed.push(place.key(&keys), place.is_put));
        }
        packed.finish()
    }
}

impl IndexRows {
    /// The rows of all of `sources`, the newest first; if a row is in more than one, the newest wins.
    pub fn merge(sources: Vec<Arc<Self>>) -> Self {
        let size = |(rows, bytes): (usize, usize), source: &Arc<Self>| {
            (rows + source.len(), bytes + source.keys.len())
        };
        let (rows, bytes) = sources.iter().fold((0, 0), size);
        let mut packed = Packer::with_capacity(rows, bytes);
        // Nothing can go wrong with rows in memory.
        for (key, value) in Merged::of_indexes(sources).flatten() {
            packed.push(&key, value.is_some());
        }
        packed.finish()
    }

    fn place(&self, at: usize) -> Range<usize> {
        let start = if at == 0 { 0 } else { self.ends[at - 1] >> 1 };
        start as usize..(self.ends[at] >> 1) as usize
    }

    fn key(&self, at: usize) -> &[u8] {
        &self.keys[self.place(at)]
    }

    fn row(&self, at: usize) -> Row {
        let is_put = self.ends[at] & 1 == 1;
        (self.keys.slice(self.place(at)), is_put.then(Bytes::new))
    }

    /// What it takes in memory.
    pub fn bytes(&self) -> usize {
        self.keys.len() + size_of_val(&self.ends[..])
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// All rows in order.
    pub fn iter(self: Arc<Self>) -> impl DoubleEndedIterator<Item = Row> {
        (0..self.ends.len()).map(move |at| self.row(at))
    }

    /// The rows of a range in order.
    pub fn range(self: Arc<Self>, range: &Range<Bytes>) -> impl DoubleEndedIterator<Item = Row> + use<> {
        let before = |bound: &[u8]| {
            let (mut low, mut high) = (0, self.ends.len());
            while low < high {
                let middle = low + (high - low) / 2;
                if self.key(middle) < bound { low = middle + 1 } else { high = middle }
            }
            low
        };
        let start = before(&range.start);
        let end = before(&range.end).max(start);
        (start..end).map(move |at| self.row(at))
    }
}

/// Packs rows that come in order.
struct Packer {
    keys: Vec<u8>,
    ends: Vec<u64>,
}

impl Packer {
    fn with_capacity(rows: usize, bytes: usize) -> Self {
        Self { keys: Vec::with_capacity(bytes), ends: Vec::with_capacity(rows) }
    }

    fn push(&mut self, key: &[u8], is_put: bool) {
        self.keys.extend_from_slice(key);
        self.ends.push(2 * self.keys.len() as u64 + u64::from(is_put));
    }

    fn finish(self) -> IndexRows {
        IndexRows { keys: self.keys.into(), ends: self.ends }
    }
}
