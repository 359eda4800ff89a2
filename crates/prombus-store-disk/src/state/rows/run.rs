//! A run: changed documents in memory, each once. It is immutable, so all views that contain it can share it.
//!
//! Documents are looked up far more often than they are listed. So at first a run only has them by hash; their order, and
//! the index rows derived from them, are built on demand. A merged run uses the index rows of the runs it was merged from,
//! until those are merged too.

use super::Row;
use super::index::{Gathered, IndexRows};
use bytes::Bytes;
use hashbrown::HashTable;
use parking_lot::Mutex;
use prombus_core::collection::RowBytes;
use prombus_rows::{DocumentChange, IndexChanges, RowChange};
use std::ops::Range;
use std::sync::{Arc, LazyLock, OnceLock};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// What a change takes beside the bytes of its rows, roughly: itself, its slots, and the heads of its allocations.
const CHANGE_COST: usize = 200;
/// Maximum number of sets of index rows that a lookup in one run searches; beyond that, they are merged.
const FEW_PARTS: usize = 8;
/// Merging runs does not wait for that, up to this many sets.
const MOST_PARTS: usize = 64;
/// Index rows that are needed only once are made for so many documents at a time, because it takes memory.
const PIECE: usize = 16 << 10;
/// And for so many bytes of them, where they are large.
const PIECE_BYTES: usize = 8 << 20;

/// The hash that documents are looked up by. It is seeded, so that nobody can craft collisions.
pub fn hash(key: &[u8]) -> u64 {
    static SEED: LazyLock<u64> = LazyLock::new(|| fastrand::u64(..));
    xxh3_64_with_seed(key, *SEED)
}

/// A document that changed.
#[derive(Debug)]
pub struct Changed {
    hash: u64,
    change: DocumentChange,
    /// What the row that was there before takes, where nobody else has it.
    old_bytes: usize,
}

impl Changed {
    pub fn new(change: DocumentChange) -> Self {
        let old_bytes = change.old.as_ref().filter(|old| old.is_unique()).map_or(0, Bytes::len);
        Self { hash: hash(&change.key), change, old_bytes }
    }

    pub fn change(&self) -> &DocumentChange {
        &self.change
    }

    pub fn row(&self) -> Row {
        (self.change.key.clone(), self.change.new.clone())
    }

    /// This and a later change of the same document.
    #[must_use]
    pub fn and_then(&self, later: &DocumentChange) -> Self {
        Self { hash: self.hash, change: self.change.and_then(later), old_bytes: self.old_bytes }
    }

    /// What it takes in memory, roughly, or what its index rows will: they are not there yet, and a list or a table
    /// needs all of them at once.
    pub fn bytes(&self) -> usize {
        let new_bytes = self.change.new.as_ref().map_or(0, Bytes::len);
        let RowBytes { old, new } = self.change.row_bytes;
        (CHANGE_COST + self.change.key.len() + new_bytes + self.old_bytes).max(old + new)
    }
}

fn make_index(documents: &[Arc<Changed>]) -> Arc<IndexRows> {
    let (mut changes, mut gathered) = (IndexChanges::default(), Gathered::default());
    for changed in documents {
        changes.tell(&changed.change, |key, is_put| gathered.push(key, is_put));
    }
    Arc::new(gathered.in_order())
}

/// The half of a document's hash that the table does not go by, and where the document is.
type HashSlot = (u32, u32);

fn hash_slot(hash: u64, at: usize) -> HashSlot {
    (hash as u32, at as u32)
}

/// Changed documents, each once.
#[derive(Debug, Default)]
pub struct Run {
    documents: Vec<Arc<Changed>>,
    slots: HashTable<HashSlot>,
    in_order: OnceLock<Vec<u32>>,
    index: OnceLock<Arc<IndexRows>>,
    /// The runs that have the index rows, the oldest first, as long as there is no index. They must not be made of the
    /// documents where there are any: rows may be among them that do not follow from documents.
    parts: Mutex<Vec<Arc<Run>>>,
    bytes: usize,
}

impl Run {
    /// Of documents that are there once each.
    pub fn new(documents: Vec<Arc<Changed>>) -> Self {
        let mut run = Self::with_capacity(documents.len());
        documents.into_iter().for_each(|changed| run.push(changed));
        run
    }

    /// Of index rows alone.
    pub fn of_index_rows(rows: &[RowChange]) -> Self {
        let mut gathered = Gathered::default();
        rows.iter().for_each(|(key, value)| gathered.push(key, value.is_some()));
        Self { index: OnceLock::from(Arc::new(gathered.in_order())), ..Self::default() }
    }

    fn with_capacity(documents: usize) -> Self {
        Self {
            documents: Vec::with_capacity(documents),
            slots: HashTable::with_capacity(documents),
            ..Self::default()
        }
    }

    fn push(&mut self, changed: Arc<Changed>) {
        let (hash, at) = (changed.hash, self.documents.len());
        self.bytes += changed.bytes();
        self.documents.push(changed);
        let documents = &self.documents;
        self.slots.insert_unique(hash, hash_slot(hash, at), |(_, at)| documents[*at as usize].hash);
    }

    /// The documents of several neighbours, the oldest first. Of one that is in more than one of them, what it was
    /// before the first is kept, and what it is after the last.
    pub fn of_documents(runs: &[Arc<Self>]) -> Self {
        let mut merged = Self::with_capacity(runs.iter().map(|run| run.documents.len()).sum());
        for run in runs.iter().rev() {
            for older in &run.documents {
                match merged.find(older.hash, &older.change.key) {
                    None => merged.push(older.clone()),
                    Some(at) => {
                        let both = Arc::new(older.and_then(&merged.documents[at].change));
                        merged.bytes = merged.bytes + both.bytes() - merged.documents[at].bytes();
                        merged.documents[at] = both;
                    }
                }
            }
        }
        merged
    }

    /// One run of several neighbours, the oldest first.
    pub fn merge(runs: &[Arc<Self>]) -> Self {
        let mut merged = Self::of_documents(runs);
        if runs.iter().any(|run| run.has_rows_of_indexes()) {
            *merged.parts.get_mut() = runs.iter().flat_map(Self::places_of_rows).collect();
            if merged.parts.get_mut().len() > MOST_PARTS {
                merged.prepare();
            }
        }
        merged
    }

    fn has_rows_of_indexes(&self) -> bool {
        self.index.get().is_some() || !self.parts.lock().is_empty()
    }

    /// The runs that have its index rows, or make them of their documents; the oldest first.
    fn places_of_rows(self: &Arc<Self>) -> Vec<Arc<Self>> {
        let parts = self.parts.lock().clone();
        if self.index.get().is_some() || parts.is_empty() { vec![self.clone()] } else { parts }
    }

    /// How much work it is to merge it.
    pub fn weight(&self) -> usize {
        // Rows without documents must be merged too, and so must runs that are all but empty.
        let rows =
            if self.documents.is_empty() { self.index.get().map_or(0, |index| index.len()) } else { 0 };
        1 + self.documents.len() + rows
    }

    /// How many documents it has.
    pub fn len(&self) -> usize {
        self.documents.len()
    }

    /// What it takes in memory, roughly.
    pub fn bytes(&self) -> usize {
        let own = self.index.get().map_or(0, |index| index.bytes());
        let of_parts = |part: &Arc<Self>| part.index.get().map_or(0, |index| index.bytes());
        self.bytes + own + self.parts.lock().iter().map(of_parts).sum::<usize>()
    }

    fn find(&self, hash: u64, key: &[u8]) -> Option<usize> {
        let is_it =
            |(half, at): &HashSlot| *half == hash as u32 && self.documents[*at as usize].change.key == key;
        self.slots.find(hash, is_it).map(|(_, at)| *at as usize)
    }

    /// What is known of the row of a document: nothing, that it is removed, or its value.
    pub fn get(&self, hash: u64, key: &[u8]) -> Option<Option<Bytes>> {
        self.find(hash, key).map(|at| self.documents[at].change.new.clone())
    }

    fn in_order(&self) -> &[u32] {
        self.in_order.get_or_init(|| {
            let mut order: Vec<u32> = (0..self.documents.len() as u32).collect();
            order.sort_unstable_by_key(|at| &self.documents[*at as usize].change.key);
            order
        })
    }

    /// The rows of all documents in order.
    pub fn documents(&self) -> impl DoubleEndedIterator<Item = Row> + '_ {
        self.rows(self.in_order())
    }

    /// The rows of documents of a range in order.
    pub fn document_range(&self, range: &Range<Bytes>) -> impl DoubleEndedIterator<Item = Row> + use<'_> {
        let order = self.in_order();
        let before =
            |bound: &Bytes| order.partition_point(|at| self.documents[*at as usize].change.key < *bound);
        let start = before(&range.start);
        self.rows(&order[start..before(&range.end).max(start)])
    }

    fn rows<'a>(&'a self, order: &'a [u32]) -> impl DoubleEndedIterator<Item = Row> + use<'a> {
        order.iter().map(|at| self.documents[*at as usize].row())
    }

    fn own_index(&self) -> Arc<IndexRows> {
        self.index.get_or_init(|| make_index(&self.documents)).clone()
    }

    /// The index rows, the newest first. Who asked will ask again, so those that had to be made are kept.
    pub fn indexes(&self) -> Vec<Arc<IndexRows>> {
        let parts = if self.index.get().is_some() { Vec::new() } else { self.parts.lock().clone() };
        // Where the parts were merged a moment ago there is an index, and it is not made of documents.
        if parts.is_empty() {
            return vec![self.own_index()];
        }
        parts.iter().rev().map(|part| part.own_index()).collect()
    }

    /// The index rows, the newest first, for one time.
    pub fn indexes_once(&self) -> Vec<Arc<IndexRows>> {
        if self.has_rows_of_indexes() {
            return self.indexes();
        }
        let mut bytes = 0;
        let goes_on = |_: &Arc<Changed>, next: &Arc<Changed>| {
            bytes += next.bytes();
            let fits = bytes <= PIECE_BYTES;
            bytes = if fits { bytes } else { 0 };
            fits
        };
        let pieces = self.documents.chunk_by(goes_on).flat_map(|piece| piece.chunks(PIECE));
        pieces.map(make_index).collect()
    }

    /// Makes the index rows ahead of time.
    pub fn prepare(&self) {
        let rows = self.indexes();
        if rows.len() > FEW_PARTS {
            // Someone else may have done so meanwhile.
            let _ = self.index.set(Arc::new(IndexRows::merge(rows)));
            drop(std::mem::take(&mut *self.parts.lock()));
        }
    }

    /// Whether the index rows are there.
    pub fn is_prepared(&self) -> bool {
        let parts = self.parts.lock();
        let is_made = |part: &Arc<Self>| part.index.get().is_some();
        self.index.get().is_some()
            || (!parts.is_empty() && parts.len() <= FEW_PARTS && parts.iter().all(is_made))
    }
}
