//! A run: changed documents in memory, each once. It never changes, so every view that has it can share it.
//!
//! Documents are looked up far more often than they are listed. So a run only has them by hash at first; their order,
//! and the rows of indexes that follow from them, are made when somebody asks for them.

use super::Row;
use super::index::{Gathered, IndexRows};
use bytes::Bytes;
use hashbrown::HashTable;
use prombus_core::collection::{DocumentChange, IndexChanges, RowChange};
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use xxhash_rust::xxh3::xxh3_64;

/// What a change takes beside the bytes of its rows, roughly: itself, its places, and the heads of its allocations.
const CHANGE_COST: usize = 200;

/// The hash that documents are found by.
pub fn hash(key: &[u8]) -> u64 {
    xxh3_64(key)
}

/// A document that changed.
#[derive(Debug)]
pub struct Changed {
    hash: u64,
    change: DocumentChange,
}

impl Changed {
    pub fn new(change: DocumentChange) -> Self {
        Self { hash: hash(&change.key), change }
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
        Self { hash: self.hash, change: self.change.and_then(later) }
    }

    /// What it takes in memory, roughly. What was there before mostly belongs to an older run.
    pub fn bytes(&self) -> usize {
        CHANGE_COST + self.change.key.len() + self.change.new.as_ref().map_or(0, Bytes::len)
    }
}

/// Where a document is, and the half of its hash that the table does not go by.
type Place = (u32, u32);

fn place(hash: u64, at: usize) -> Place {
    (hash as u32, at as u32)
}

/// Changed documents, each once.
#[derive(Debug, Default)]
pub struct Run {
    documents: Vec<Arc<Changed>>,
    places: HashTable<Place>,
    in_order: OnceLock<Vec<u32>>,
    index: OnceLock<Arc<IndexRows>>,
    /// Whether there are rows of indexes that do not follow from its documents.
    has_other_rows: bool,
    bytes: usize,
}

impl Run {
    /// Of documents that are there once each.
    pub fn new(documents: Vec<Arc<Changed>>) -> Self {
        let mut run = Self::with_capacity(documents.len());
        for changed in documents {
            run.push(changed);
        }
        run
    }

    /// Of rows of indexes alone.
    pub fn of_index_rows(rows: Vec<RowChange>) -> Self {
        let mut gathered = Gathered::default();
        rows.iter().for_each(|(key, value)| gathered.push(key, value.is_some()));
        let index = OnceLock::from(Arc::new(gathered.in_order()));
        Self { index, has_other_rows: true, ..Self::default() }
    }

    fn with_capacity(documents: usize) -> Self {
        Self {
            documents: Vec::with_capacity(documents),
            places: HashTable::with_capacity(documents),
            ..Self::default()
        }
    }

    fn push(&mut self, changed: Arc<Changed>) {
        let (hash, at) = (changed.hash, self.documents.len());
        self.bytes += changed.bytes();
        self.documents.push(changed);
        let documents = &self.documents;
        self.places.insert_unique(hash, place(hash, at), |(_, at)| documents[*at as usize].hash);
    }

    /// One run of several neighbours, the oldest first. Of a document that is in more than one, what it was before the
    /// first is kept, and what it is after the last.
    pub fn merge(runs: &[Arc<Self>]) -> Self {
        let mut merged = Self::with_capacity(runs.iter().map(|run| run.len()).sum());
        for run in runs.iter().rev() {
            for older in &run.documents {
                match merged.find(older.hash, &older.change.key) {
                    None => merged.push(older.clone()),
                    Some(at) => {
                        let both = older.and_then(&merged.documents[at].change);
                        merged.documents[at] = Arc::new(both);
                    }
                }
            }
        }
        // Rows that do not follow from documents must be kept. Otherwise whoever asked for the rows of the largest run
        // will ask again, and to merge them costs less than to make them anew.
        merged.has_other_rows = runs.iter().any(|run| run.has_other_rows);
        let largest = runs.iter().max_by_key(|run| run.len());
        if merged.has_other_rows || largest.is_some_and(|run| run.index.get().is_some()) {
            let rows: Vec<&IndexRows> = runs.iter().rev().map(|run| run.index()).collect();
            merged.index = Arc::new(IndexRows::merge(&rows)).into();
        }
        merged
    }

    /// How many documents it has.
    pub fn len(&self) -> usize {
        self.documents.len()
    }

    /// What it takes in memory, roughly.
    pub fn bytes(&self) -> usize {
        self.bytes + self.index.get().map_or(0, |index| index.bytes())
    }

    fn find(&self, hash: u64, key: &[u8]) -> Option<usize> {
        let is_it =
            |(half, at): &Place| *half == hash as u32 && self.documents[*at as usize].change.key == key;
        self.places.find(hash, is_it).map(|(_, at)| *at as usize)
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

    /// The rows of indexes. Whoever asked will ask again, so they are kept.
    pub fn index(&self) -> &IndexRows {
        self.index.get_or_init(|| self.make_index())
    }

    /// The rows of indexes, for one time.
    pub fn index_once(&self) -> Arc<IndexRows> {
        self.index.get().cloned().unwrap_or_else(|| self.make_index())
    }

    fn make_index(&self) -> Arc<IndexRows> {
        let (mut changes, mut gathered) = (IndexChanges::default(), Gathered::default());
        for changed in &self.documents {
            changes.tell(&changed.change, |key, is_put| gathered.push(key, is_put));
        }
        Arc::new(gathered.in_order())
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
}
