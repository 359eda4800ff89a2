//! What a change to a document does to the rows.

use crate::indexer::{Indexer, Keys};
use crate::rows;
use bytes::Bytes;
use prombus_core::collection::{IndexState, RowBytes};
use std::sync::Arc;

/// A row to put, or to remove if there is no value.
pub type RowChange = (Bytes, Option<Bytes>);

/// The row of a document before and after a change. Index rows are derived from it on demand.
#[derive(Debug, Clone)]
pub struct DocumentChange {
    /// The key of the row.
    pub key: Bytes,
    /// The previous row, if any.
    pub old: Option<Bytes>,
    /// The current row, if any.
    pub new: Option<Bytes>,
    /// The indexes of the collection.
    pub indexes: Arc<[IndexState]>,
    /// The size of the index rows derived from it.
    pub row_bytes: RowBytes,
}

impl DocumentChange {
    /// Combines this change with a later one.
    #[must_use]
    pub fn and_then(&self, later: &Self) -> Self {
        let row_bytes = RowBytes { old: self.row_bytes.old, new: later.row_bytes.new };
        Self { old: self.old.clone(), row_bytes, ..later.clone() }
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

/// Derives index rows from changes of documents. Consecutive changes mostly belong to one collection, so its layout is
/// cached.
#[derive(Debug, Default)]
pub struct IndexChanges {
    of: Option<(u32, Arc<[IndexState]>, Indexer)>,
    before: Keys,
    after: Keys,
}

impl IndexChanges {
    /// Reports which rows are put and which are removed, but not those that stay.
    pub fn tell(&mut self, change: &DocumentChange, mut row: impl FnMut(&[u8], bool)) {
        let number = rows::collection_of_row(&change.key).unwrap_or_default();
        let is_same = |(known, indexes, _): &(u32, Arc<[IndexState]>, Indexer)| {
            *known == number && Arc::ptr_eq(indexes, &change.indexes)
        };
        if !self.of.as_ref().is_some_and(is_same) {
            self.of = None;
        }
        let (_, _, indexer) = self
            .of
            .get_or_insert_with(|| (number, change.indexes.clone(), Indexer::new(number, &change.indexes)));
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
