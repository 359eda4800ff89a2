//! Changed documents that are not in a table yet, in memory.
//!
//! Every view needs them as of its own commit, while a single writer keeps changing them. So they are kept in immutable
//! runs, from the oldest to the newest, and changes after the last run are in a small persistent map: a view shares all of
//! it. Runs are merged as tables are, so that there are never many.

use super::Row;
use super::merged::Source;
use super::run::{Changed, Run, hash};
use bytes::Bytes;
use imbl::OrdMap;
use prombus_rows::{DOCUMENT, DocumentChange, IndexChanges, RowChange, collection_of_row};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// How many changed documents make a run. In debug builds it is few, so that tests see many runs.
const RUN: usize = if cfg!(debug_assertions) { 4 } else { 256 };
/// A run is merged into its elder as long as that is less than so many times as large.
const RATIO: usize = 4;

/// A document that changed lately, and its index rows once somebody has asked for them.
#[derive(Debug)]
struct Recent {
    changed: Arc<Changed>,
    rows: OnceLock<Box<[RowChange]>>,
}

/// Changed documents as of one commit. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Overlay {
    /// The oldest first.
    runs: Arc<Vec<Arc<Run>>>,
    /// By the keys of their rows.
    recent: OrdMap<Bytes, Arc<Recent>>,
    recent_bytes: usize,
}

impl Overlay {
    /// What it takes in memory, roughly.
    pub fn bytes(&self) -> usize {
        self.recent_bytes + self.runs.iter().map(|run| run.bytes()).sum::<usize>()
    }

    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.recent.is_empty() && self.runs.is_empty()
    }

    /// Changes a document.
    pub fn change(&mut self, change: DocumentChange) {
        let key = change.key.clone();
        let changed = match self.recent.get(&key) {
            None => Changed::new(change),
            Some(before) => {
                self.recent_bytes -= before.changed.bytes();
                before.changed.and_then(&change)
            }
        };
        self.recent_bytes += changed.bytes();
        self.recent.insert(key, Arc::new(Recent { changed: Arc::new(changed), rows: OnceLock::new() }));
        if self.recent.len() >= RUN {
            self.end_run();
        }
    }

    /// Changes index rows alone, because indexes came or went.
    pub fn change_indexes(&mut self, rows: &[RowChange]) {
        self.end_run();
        self.push(Run::of_index_rows(rows));
    }

    /// Makes a run of what changed lately.
    fn end_run(&mut self) {
        if self.recent.is_empty() {
            return;
        }
        let recent = std::mem::take(&mut self.recent);
        self.recent_bytes = 0;
        self.push(Run::new(recent.values().map(|recent| recent.changed.clone()).collect()));
    }

    fn push(&mut self, run: Run) {
        let runs = Arc::make_mut(&mut self.runs);
        runs.push(Arc::new(run));
        let mut first = runs.len() - 1;
        let mut weight = runs[first].weight();
        while first > 0 && runs[first - 1].weight() < RATIO * weight {
            first -= 1;
            weight += runs[first].weight();
        }
        if first + 1 < runs.len() {
            let merged = Run::merge(&runs[first..]);
            runs.truncate(first);
            runs.push(Arc::new(merged));
        }
    }

    /// What is known of the row of a document: nothing, that it is removed, or its value.
    pub fn get(&self, key: &[u8]) -> Option<Option<Bytes>> {
        if let Some(recent) = self.recent.get(key) {
            return Some(recent.changed.change().new.clone());
        }
        if self.runs.is_empty() {
            return None;
        }
        let hash = hash(key);
        self.runs.iter().rev().find_map(|run| run.get(hash, key))
    }

    /// The rows of a range, removed ones too: those of each source in order, the newest source first. A range is about
    /// one collection, and has rows of its documents or of its indexes.
    pub fn ranges<'a>(&'a self, range: &Range<Bytes>, reverse: bool) -> Vec<Source<'a>> {
        if self.is_empty() || range.start >= range.end {
            return Vec::new();
        }
        let mut sources = Vec::with_capacity(1 + self.runs.len());
        if range.start.first() == Some(&DOCUMENT) {
            sources.push(directed(self.recent_documents(range).into_iter(), reverse));
            let of_run = |run: &'a Arc<Run>| directed(run.document_range(range), reverse);
            sources.extend(self.runs.iter().rev().map(of_run));
        } else {
            sources.push(directed(self.recent_index(range).into_iter(), reverse));
            let indexes = self.runs.iter().rev().flat_map(|run| run.indexes());
            sources.extend(indexes.map(|index| directed(index.range(range), reverse)));
        }
        sources
    }

    fn recent_documents(&self, range: &Range<Bytes>) -> Vec<Row> {
        self.recent.range(range.clone()).map(|(_, recent)| recent.changed.row()).collect()
    }

    fn recent_index(&self, range: &Range<Bytes>) -> Vec<Row> {
        let mut rows: Vec<Row> = Vec::new();
        let mut changes = IndexChanges::default();
        let collection = collection_of_row(&range.start);
        for recent in self.recent.values() {
            if collection_of_row(&recent.changed.change().key) != collection {
                continue;
            }
            let all = recent.rows.get_or_init(|| {
                let mut all: Vec<Row> = Vec::new();
                let row = |key: &[u8], is_put: bool| (Bytes::copy_from_slice(key), is_put.then(Bytes::new));
                changes.tell(recent.changed.change(), |key, is_put| all.push(row(key, is_put)));
                all.into()
            });
            rows.extend(all.iter().filter(|(key, _)| range.contains(key)).cloned());
        }
        rows.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        rows
    }

    /// The same documents in one run, without index rows: for lookups alone.
    pub fn for_lookups(mut self) -> Self {
        self.end_run();
        let run = Run::of_documents(&self.runs);
        Self { runs: Arc::new(vec![Arc::new(run)]), ..Self::default() }
    }

    /// Everything in one run.
    pub fn merged(mut self) -> Run {
        self.end_run();
        Run::merge(&self.runs)
    }

    /// Makes the index rows of all runs ahead of time.
    pub fn prepare(&self) {
        self.runs.iter().for_each(|run| run.prepare());
    }

    /// Whether the index rows of all runs are there.
    pub fn is_prepared(&self) -> bool {
        self.runs.iter().all(|run| run.is_prepared())
    }
}

fn directed<'a>(rows: impl DoubleEndedIterator<Item = Row> + 'a, reverse: bool) -> Source<'a> {
    if reverse { Box::new(rows.rev().map(Ok)) } else { Box::new(rows.map(Ok)) }
}
