//! What a change of a document, or of a collection's indexes, does to the rows.

use super::indexer::{Indexer, Keys};
use super::rows::{self, Rows};
use super::write::{not_unique, unavailable};
use super::{CollectionConfig, CollectionState, Index};
use crate::error::CommitError;
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::Arc;

/// A row to put, or to remove where there is no value.
pub type RowChange = (Bytes, Option<Bytes>);

/// The row of a document before and after a change. Those of indexes follow from it, when somebody needs them.
#[derive(Debug, Clone)]
pub struct DocumentChange {
    /// The key of the row.
    pub key: Bytes,
    /// The row as it was, where there was one.
    pub old: Option<Bytes>,
    /// The row as it is now, where there is one.
    pub new: Option<Bytes>,
    /// The settings of the collection, which say what its indexes are.
    pub config: Arc<CollectionConfig>,
}

impl DocumentChange {
    /// This change and one that came after it, as one.
    #[must_use]
    pub fn and_then(&self, later: &Self) -> Self {
        Self { old: self.old.clone(), ..later.clone() }
    }

    /// What it does to all rows.
    pub fn rows(&self) -> Vec<RowChange> {
        let mut rows = vec![(self.key.clone(), self.new.clone())];
        IndexChanges::default().tell(self, |key, is_put| {
            rows.push((Bytes::copy_from_slice(key), is_put.then(Bytes::new)));
        });
        rows
    }
}

/// Tells what changes of documents do to the rows of indexes. Neighbours mostly belong to one collection, so what is
/// known of that is kept from one to the next.
#[derive(Debug, Default)]
pub struct IndexChanges {
    of: Option<(u32, Arc<CollectionConfig>, Indexer)>,
    before: Keys,
    after: Keys,
}

impl IndexChanges {
    /// Tells which rows are put and which are removed. Rows that stay are not told of.
    pub fn tell(&mut self, change: &DocumentChange, mut row: impl FnMut(&[u8], bool)) {
        let number = rows::collection_of_row(&change.key).unwrap_or_default();
        let is_same = |(known, config, _): &(u32, Arc<CollectionConfig>, Indexer)| {
            *known == number && Arc::ptr_eq(config, &change.config)
        };
        if !self.of.as_ref().is_some_and(is_same) {
            self.of = None;
        }
        let (_, _, indexer) = self.of.get_or_insert_with(|| {
            (number, change.config.clone(), Indexer::new(number, &change.config.indexes))
        });
        for (content, keys) in [(&change.old, &mut self.before), (&change.new, &mut self.after)] {
            match content.as_ref().and_then(|content| rows::document_of_row(&change.key, content)) {
                Some(document) => indexer.keys(&document, keys),
                None => keys.clear(),
            }
        }
        // Both have the same order, so a row that stays is in the same place.
        let stays = |n: usize| self.before.get(n) == self.after.get(n);
        self.before.iter().enumerate().filter(|(n, _)| !stays(*n)).for_each(|(_, key)| row(key, false));
        self.after.iter().enumerate().filter(|(n, _)| !stays(*n)).for_each(|(_, key)| row(key, true));
    }
}

/// The rows that change when the settings of a collection become those of `after`: indexes that are new are made for
/// all documents, and those that are gone are removed.
pub fn backfill(
    rows: &dyn Rows,
    before: &CollectionState,
    after: &CollectionState,
) -> Result<Vec<RowChange>, CommitError> {
    let mut changes = Vec::new();
    if before.config.indexes == after.config.indexes {
        return Ok(changes);
    }
    let is_new = |index: &&Index| index.unique && !before.config.indexes.contains(index);
    let unique: Vec<&Index> = after.config.indexes.iter().filter(is_new).collect();
    let mut seen: HashMap<Bytes, String> = HashMap::new();
    let indexer = |state: &CollectionState| Indexer::new(state.number, &state.config.indexes);
    let ((is, mut old), (to_be, mut new)) =
        ((indexer(before), Keys::default()), (indexer(after), Keys::default()));
    for row in rows.range(rows::prefixed(rows::document_prefix(before.number)), false) {
        let (key, row) = row.map_err(unavailable)?;
        let Some(document) = rows::document_of_row(&key, &row) else { continue };
        is.keys(&document, &mut old);
        to_be.keys(&document, &mut new);
        let copy = Bytes::copy_from_slice;
        changes.extend(old.iter().filter(|row| !new.contains(row)).map(|row| (copy(row), None)));
        changes
            .extend(new.iter().filter(|row| !old.contains(row)).map(|row| (copy(row), Some(Bytes::new()))));
        for index in &unique {
            let Some(range) = rows::unique_rows(after, index, &document) else { continue };
            if let Some(other) = seen.insert(range.start, document.key.clone()) {
                return Err(not_unique(after, index, 0, (document.key, other)));
            }
        }
    }
    Ok(changes)
}
