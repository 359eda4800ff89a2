//! The collections of the memory store, and what a commit makes of them.

use bytes::Bytes;
use prombus_core::collection::{Drafted, IndexState};
use prombus_core::{CollectionState, CommitError, CommitLimits, Document, DocumentWrite, ReadError};
use prombus_rows::{DocumentRow, IndexStep, PriorRows, RowRange, Rows, RowsIter, StepLimits};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Collections by name, and their rows.
#[derive(Debug, Default)]
pub struct Collections {
    pub states: BTreeMap<Arc<str>, CollectionState>,
    pub rows: BTreeMap<Bytes, Bytes>,
    pub next_number: u32,
}

impl Rows for Collections {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, ReadError> {
        Ok(self.rows.get(key).cloned())
    }

    fn range(&self, range: RowRange, reverse: bool) -> RowsIter<'_> {
        let rows = self.rows.range(range).map(|(key, row)| Ok((key.clone(), row.clone())));
        if reverse { Box::new(rows.rev()) } else { Box::new(rows) }
    }
}

impl Collections {
    /// Puts a document as it is.
    pub fn put_document(&mut self, collection: &str, document: &Document) -> Result<(), ReadError> {
        let Some(mut state) = self.states.get(collection).cloned() else { return Ok(()) };
        let old = prombus_rows::look_up(&*self, &state, &document.key)?;
        if let Some(change) = prombus_rows::replace(&mut state, old, Some(document)) {
            self.put_rows(change.rows());
        }
        self.states.insert(state.name.clone(), state);
        Ok(())
    }

    fn put_rows(&mut self, rows: impl IntoIterator<Item = (Bytes, Option<Bytes>)>) {
        for (key, row) in rows {
            match row {
                Some(row) => self.rows.insert(key, row),
                None => self.rows.remove(&key),
            };
        }
    }

    /// Makes a staged change.
    pub fn apply(&mut self, staged: Staged) {
        self.next_number = staged.next_number;
        for (name, state) in staged.states {
            match state {
                Some(state) => self.states.insert(name, state),
                None => self.states.remove(&name),
            };
        }
        self.put_rows(staged.rows);
        for number in staged.dropped {
            self.rows.retain(|key, _| prombus_rows::collection_of_row(key) != Some(number));
        }
    }
}

/// What a commit changes, laid over what is there.
#[derive(Debug, Default)]
pub struct Staged {
    states: BTreeMap<Arc<str>, Option<CollectionState>>,
    rows: BTreeMap<Bytes, Option<Bytes>>,
    dropped: Vec<u32>,
    pub next_number: u32,
}

/// The rows as they would be.
pub struct Over<'a>(&'a Collections, &'a BTreeMap<Bytes, Option<Bytes>>);

impl Rows for Over<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, ReadError> {
        match self.1.get(key) {
            Some(staged) => Ok(staged.clone()),
            None => self.0.get(key),
        }
    }

    fn range(&self, range: RowRange, reverse: bool) -> RowsIter<'_> {
        let old = self.0.rows.range(range.clone()).map(|(key, row)| (key.clone(), Some(row.clone())));
        let new = self.1.range(range).map(|(key, row)| (key.clone(), row.clone()));
        let merged: BTreeMap<Bytes, Option<Bytes>> = old.chain(new).collect();
        let rows = merged.into_iter().filter_map(|(key, row)| Some(Ok((key, row?))));
        if reverse { Box::new(rows.rev()) } else { Box::new(rows) }
    }
}

impl Staged {
    pub fn new(collections: &Collections) -> Self {
        Self { next_number: collections.next_number, ..Self::default() }
    }

    /// The collection of that name, as it would be.
    pub fn state<'a>(&'a self, old: &'a Collections, name: &str) -> Option<&'a CollectionState> {
        match self.states.get(name) {
            Some(staged) => staged.as_ref(),
            None => old.states.get(name),
        }
    }

    pub fn check_new(&self, old: &Collections, name: &str, limits: CommitLimits) -> Result<(), CommitError> {
        let is_left = |name: &&Arc<str>| !self.states.contains_key(*name);
        let staged = self.states.iter().filter(|(_, state)| state.is_some()).map(|(name, _)| name);
        let all = || old.states.keys().filter(is_left).chain(staged);
        limits.check_new_collection(name, old.states.len() + self.states.len(), all)
    }

    /// Makes a collection, or replaces its settings.
    pub fn put(&mut self, old: &Collections, after: CollectionState) -> Result<(), CommitError> {
        let after = match self.state(old, &after.name).cloned() {
            Some(before) => self.settle_indexes(old, &before, after)?,
            None => {
                self.next_number += 1;
                after
            }
        };
        self.states.insert(after.name.clone(), Some(after));
        Ok(())
    }

    pub fn delete(&mut self, old: &Collections, name: &Arc<str>) {
        let number = self.state(old, name).map(|state| state.number);
        self.dropped.extend(number);
        self.states.insert(name.clone(), None);
    }

    pub fn rename(&mut self, old: &Collections, from: &Arc<str>, renamed: CollectionState) {
        self.delete(old, &renamed.name);
        self.states.insert(from.clone(), None);
        self.states.insert(renamed.name.clone(), Some(renamed));
    }

    /// Makes new indexes at once, and removes the rows of those that are gone.
    fn settle_indexes(
        &mut self,
        old: &Collections,
        before: &CollectionState,
        mut after: CollectionState,
    ) -> Result<CollectionState, CommitError> {
        let unavailable = |error: ReadError| CommitError::Unavailable(error.to_string());
        let is_gone = |index: &&IndexState| {
            let is_same =
                |kept: &IndexState| (kept.number, &kept.index.fields) == (index.number, &index.index.fields);
            !after.indexes.iter().any(is_same)
        };
        for index in before.indexes.iter().filter(is_gone) {
            let gone = prombus_rows::rows_of_index(&Over(old, &self.rows), before, index);
            self.rows.extend(gone.map_err(unavailable)?);
        }
        while let Some(index) = after.building() {
            let everything = StepLimits { documents: usize::MAX, bytes: usize::MAX };
            let step = prombus_rows::build_step(&Over(old, &self.rows), &after, index, everything);
            let step = step.map_err(unavailable)?;
            step.check_unique(&after, index)?;
            let IndexStep { rows, progress } = step;
            self.rows.extend(rows);
            after = after.with_progress(index, progress);
        }
        Ok(after)
    }

    /// The rows as they are before the documents of the commit.
    pub fn prior<'a>(&'a self, old: &'a Collections) -> PriorRows<Over<'a>> {
        PriorRows(Over(old, &self.rows))
    }

    /// Puts what all writes to a document have made of it into the rows.
    pub fn put_document(&mut self, old: &Collections, write: &DocumentWrite, drafted: Drafted<DocumentRow>) {
        let Some(mut state) = self.state(old, &write.collection).cloned() else { return };
        if let Some(change) = prombus_rows::replace(&mut state, drafted.slot, drafted.document.as_ref()) {
            self.rows.extend(change.rows());
        }
        self.states.insert(write.collection.clone(), Some(state));
    }
}
