//! Documents in rows: looking them up, scanning them, and replacing them.

use crate::change::DocumentChange;
use crate::rows::{self, Rows};
use bytes::Bytes;
use prombus_core::collection::{IndexState, PriorDocuments, RowBytes, Slot};
use prombus_core::{CollectionState, Document, ReadError};

/// The row of a document.
#[derive(Debug)]
pub struct DocumentRow {
    key: Bytes,
    row: Option<Bytes>,
}

/// What was there before a commit, in rows.
#[derive(Debug)]
pub struct PriorRows<R>(pub R);

impl<R: Rows> PriorDocuments for PriorRows<R> {
    type Row = DocumentRow;

    fn look_up(&self, state: &CollectionState, key: &str) -> Result<Slot<DocumentRow>, ReadError> {
        look_up(&self.0, state, key)
    }

    fn unique_values(
        &self,
        state: &CollectionState,
        unique: &IndexState,
        document: &Document,
    ) -> Option<Bytes> {
        rows::unique_values(state, unique, document)
    }

    fn holder(&self, values: Bytes, counts: &dyn Fn(&str) -> bool) -> Result<Option<String>, ReadError> {
        let values_end = values.len();
        for row in self.0.range(rows::prefixed(values.into()), false) {
            let (row, _) = row?;
            let key = rows::key_of_index_row(&row, values_end).unwrap_or_default();
            if counts(key) {
                return Ok(Some(key.to_owned()));
            }
        }
        Ok(None)
    }
}

/// Looks a document up.
pub fn look_up(rows: &dyn Rows, state: &CollectionState, key: &str) -> Result<Slot<DocumentRow>, ReadError> {
    let row_key = rows::document_row(state.number, key);
    let row = rows.get(&row_key)?;
    let document = match &row {
        None => None,
        Some(row) => {
            let document = rows::document_of_row(&row_key, row);
            let damaged = || ReadError::Corrupt(format!("document {key:?} of {} cannot be read", state.name));
            Some(document.ok_or_else(damaged)?)
        }
    };
    Ok(Slot { place: DocumentRow { key: row_key, row }, document, row_bytes: RowBytes::default() })
}

/// The document with this key.
pub fn get(rows: &dyn Rows, state: &CollectionState, key: &str) -> Result<Option<Document>, ReadError> {
    look_up(rows, state, key).map(|slot| slot.document)
}

/// The change that replaces the contents of a slot with `new`; updates the counts and the size of the collection.
pub fn replace(
    state: &mut CollectionState,
    old: Slot<DocumentRow>,
    new: Option<&Document>,
) -> Option<DocumentChange> {
    let Slot { place: DocumentRow { key, row }, document, row_bytes } = old;
    state.count_change(document.as_ref(), new);
    let (new, indexes) = (new.map(rows::row_of_document), state.indexes.clone());
    let change = DocumentChange { key, old: row, new, indexes, row_bytes };
    (change.old.is_some() || change.new.is_some()).then_some(change)
}

/// Documents in the order of the bytes of their keys, after the one with key `after`.
pub fn scan(
    rows: &dyn Rows,
    state: &CollectionState,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<Document>, ReadError> {
    documents(rows, state, after).take(limit).collect()
}

/// The same as an iterator without a limit.
pub fn documents<'a>(
    rows: &'a dyn Rows,
    state: &'a CollectionState,
    after: Option<&str>,
) -> impl Iterator<Item = Result<Document, ReadError>> + use<'a> {
    rows.range(rows::documents_after(state.number, after), false).map(|row| {
        let (key, row) = row?;
        let damaged = || ReadError::Corrupt(format!("a document of {} cannot be read", state.name));
        rows::document_of_row(&key, &row).ok_or_else(damaged)
    })
}
