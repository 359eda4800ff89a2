//! Building an index over existing documents, step by step.
//!
//! Documents are processed in key order. From the moment an index is added, every write maintains it, so a step only adds
//! what its documents contain at that moment: rows that already exist are the same.

use crate::change::RowChange;
use crate::documents::{PriorRows, documents};
use crate::indexer::{Indexer, Keys};
use crate::rows::{self, Rows, index_prefix};
use bytes::Bytes;
use prombus_core::collection::{
    IndexFailure, IndexState, PriorDocuments, Progress, TooLong, check_length, not_unique,
};
use prombus_core::{CollectionState, CommitError, Document, ReadError};
use std::collections::{BTreeMap, HashMap};
use std::slice;

/// How much one step processes: at least one document, and no more once one of these is reached.
#[derive(Debug, Clone, Copy)]
pub struct StepLimits {
    /// Number of documents.
    pub documents: usize,
    /// Their total size in bytes.
    pub bytes: usize,
}

/// A step of building an index.
#[derive(Debug)]
pub struct IndexStep {
    /// The rows that it adds.
    pub rows: Vec<RowChange>,
    /// The progress of the index after this step.
    pub progress: Progress,
}

impl IndexStep {
    /// Refuses settings whose unique index cannot be built, because two documents have the same values.
    pub fn check_unique(&self, state: &CollectionState, index: usize) -> Result<(), CommitError> {
        match (&self.progress, state.indexes.get(index)) {
            (Progress::Failed(IndexFailure::SameValues { keys: [other, key] }), Some(unique)) => {
                Err(not_unique(state, &unique.index, 0, (key.clone(), other.clone())))
            }
            _ => Ok(()),
        }
    }
}

/// The next step of an index that is being built; `None` if it is not.
pub fn build_step(
    rows: &dyn Rows,
    state: &CollectionState,
    index: usize,
    limits: StepLimits,
) -> Result<IndexStep, ReadError> {
    let Some((building, mut done, of, mut after)) = place(state, index) else {
        let progress = state.indexes.get(index).map_or(Progress::Ready, |index| index.progress.clone());
        return Ok(IndexStep { rows: Vec::new(), progress });
    };
    let mut adding = Adding::new(state, building);
    let (mut left, mut bytes) = (limits.documents.max(1), 0);
    for document in documents(rows, state, after.clone().as_deref()) {
        if left == 0 || bytes >= limits.bytes {
            let progress = Progress::Building { done, of: of.max(done), after };
            return Ok(IndexStep { rows: adding.rows, progress });
        }
        let document = document?;
        if let Some(failure) = adding.failure(rows, state, &document)? {
            return Ok(IndexStep { rows: Vec::new(), progress: Progress::Failed(failure) });
        }
        adding.add(&document);
        left -= 1;
        done += 1;
        bytes += document.body.len();
        after = Some(document.key);
    }
    Ok(IndexStep { rows: adding.rows, progress: Progress::Ready })
}

/// The step that brought an index to the recorded progress; it was checked when it was first applied.
pub fn build_to(
    rows: &dyn Rows,
    state: &CollectionState,
    index: usize,
    progress: Progress,
) -> Result<IndexStep, ReadError> {
    let last = match &progress {
        Progress::Failed(_) => return Ok(IndexStep { rows: Vec::new(), progress }),
        Progress::Ready => None,
        Progress::Building { after, .. } => after.as_deref(),
    };
    let Some((building, _, _, after)) = place(state, index) else {
        return Ok(IndexStep { rows: Vec::new(), progress });
    };
    let mut adding = Adding::new(state, building);
    for document in documents(rows, state, after.as_deref()) {
        let document = document?;
        if last.is_some_and(|last| *document.key > *last) {
            break;
        }
        adding.add(&document);
    }
    Ok(IndexStep { rows: adding.rows, progress })
}

/// The progress of an index that is being built.
fn place(state: &CollectionState, index: usize) -> Option<(&IndexState, u64, u64, Option<String>)> {
    let index = state.indexes.get(index)?;
    match &index.progress {
        Progress::Building { done, of, after } => Some((index, *done, *of, after.clone())),
        Progress::Ready | Progress::Failed(_) => None,
    }
}

/// What removes all rows of an index.
pub fn rows_of_index(
    rows: &dyn Rows,
    state: &CollectionState,
    index: &IndexState,
) -> Result<Vec<RowChange>, ReadError> {
    let all = rows.range(rows::prefixed(index_prefix(state.number, Some(index))), false);
    all.map(|row| row.map(|(key, _)| (key, None))).collect()
}

/// The rows that change when a collection becomes as `after` has it, where that has new indexes without a number. Early
/// builds made those, at once and of all documents; an index may find rows of one that was removed.
pub fn backfill(
    rows: &dyn Rows,
    before: &CollectionState,
    after: &CollectionState,
) -> Result<Vec<RowChange>, ReadError> {
    let mut changes: BTreeMap<Bytes, Option<Bytes>> = BTreeMap::new();
    let is_same = |known: &IndexState, index: &IndexState| {
        known.number == 0 && known.index.fields == index.index.fields
    };
    let is_new = |index: &&IndexState| !before.indexes.iter().any(|known| is_same(known, index));
    for index in after.indexes.iter().filter(|index| index.number == 0).filter(is_new) {
        changes.extend(rows_of_index(rows, after, index)?);
        let mut adding = Adding::new(after, index);
        for document in documents(rows, after, None) {
            adding.add(&document?);
        }
        changes.extend(adding.rows);
    }
    Ok(changes.into_iter().collect())
}

/// Adds documents to an index.
struct Adding<'a> {
    index: &'a IndexState,
    indexer: Indexer,
    keys: Keys,
    rows: Vec<RowChange>,
    /// Which document has which values, of those that were added; used only for unique indexes.
    holders: HashMap<Bytes, String>,
}

impl<'a> Adding<'a> {
    fn new(state: &CollectionState, index: &'a IndexState) -> Self {
        let indexer = Indexer::only(state.number, index);
        Self { index, indexer, keys: Keys::default(), rows: Vec::new(), holders: HashMap::new() }
    }

    fn add(&mut self, document: &Document) {
        self.indexer.keys(document, &mut self.keys);
        let rows = self.keys.iter().map(|key| (Bytes::copy_from_slice(key), Some(Bytes::new())));
        self.rows.extend(rows);
    }

    /// Why a document cannot be added.
    fn failure(
        &mut self,
        rows: &dyn Rows,
        state: &CollectionState,
        document: &Document,
    ) -> Result<Option<IndexFailure>, ReadError> {
        if let Err(TooLong { bytes, .. }) = check_length(document, slice::from_ref(self.index)) {
            return Ok(Some(IndexFailure::TooLong { key: document.key.clone(), bytes }));
        }
        let other = self.clash(rows, state, document)?;
        Ok(other.map(|other| IndexFailure::SameValues { keys: [other, document.key.clone()] }))
    }

    /// The key of another document that has the values of this one, which must be unique.
    fn clash(
        &mut self,
        rows: &dyn Rows,
        state: &CollectionState,
        document: &Document,
    ) -> Result<Option<String>, ReadError> {
        if !self.index.index.unique {
            return Ok(None);
        }
        let Some(values) = rows::unique_values(state, self.index, document) else { return Ok(None) };
        match self.holders.insert(values.clone(), document.key.clone()) {
            Some(other) => Ok(Some(other)),
            None => PriorRows(rows).holder(values, &|other| other != document.key),
        }
    }
}
