//! A document's place in the rows, and what a change of it does there and to a changefeed.

use super::rows::{self, Rows};
use super::{CollectionState, DocumentChange, Index, IndexState, RowBytes, TooLong, row_bytes};
use crate::commit::{Commit, Receipt, ResultBytes};
use crate::document::{Document, DocumentWrite};
use crate::error::{CommitError, ReadError};
use crate::event::NewEvent;
use crate::json::Json;
use crate::topic::TopicName;
use bytes::Bytes;

/// A write, and what it is part of.
#[derive(Debug, Clone, Copy)]
pub struct Written<'a> {
    /// The commit.
    pub commit: &'a Commit,
    /// Which of its document writes this is.
    pub index: usize,
    /// What the commit has given so far.
    pub receipt: &'a Receipt,
}

pub(super) fn unavailable(error: ReadError) -> CommitError {
    CommitError::Unavailable(error.to_string())
}

/// A document's place in the rows, and what is there.
#[derive(Debug)]
pub struct Slot {
    key: Bytes,
    row: Option<Bytes>,
    /// The document.
    pub document: Option<Document>,
    /// What the rows take that it has in indexes, and that what replaces it has; once somebody has measured them.
    pub row_bytes: RowBytes,
}

impl Slot {
    /// With the rows of indexes measured that follow when `new` is in it.
    #[must_use]
    pub fn measured(self, state: &CollectionState, new: Option<&Document>) -> Self {
        let bytes = |document: Option<&Document>| document.map_or(0, |it| row_bytes(it, &state.indexes));
        let row_bytes = RowBytes { old: bytes(self.document.as_ref()), new: bytes(new) };
        Self { row_bytes, ..self }
    }
}

/// Looks a document up.
pub fn look_up(rows: &dyn Rows, state: &CollectionState, key: &str) -> Result<Slot, ReadError> {
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
    Ok(Slot { key: row_key, row, document, row_bytes: RowBytes::default() })
}

/// The document with this key.
pub fn get(rows: &dyn Rows, state: &CollectionState, key: &str) -> Result<Option<Document>, ReadError> {
    look_up(rows, state, key).map(|slot| slot.document)
}

/// The key of another document that has a document's values in a unique index.
pub(super) fn holder_of_values(
    rows: &dyn Rows,
    state: &CollectionState,
    unique: &IndexState,
    document: &Document,
) -> Result<Option<String>, ReadError> {
    let Some(range) = rows::unique_rows(state, unique, document) else { return Ok(None) };
    let values_end = range.start.len();
    for row in rows.range(range, false) {
        let (row, _) = row?;
        let other = rows::key_of_index_row(&row, values_end).unwrap_or_default();
        if other != document.key {
            return Ok(Some(other.to_owned()));
        }
    }
    Ok(None)
}

/// What is to change when what is in a slot becomes `new`; counts and size of the collection are brought up to date.
pub fn replace(state: &mut CollectionState, old: Slot, new: Option<&Document>) -> Option<DocumentChange> {
    let Slot { key, row, document, row_bytes } = old;
    let size = |document: Option<&Document>| document.map_or(0, |d| (d.key.len() + d.body.len()) as u64);
    state.bytes = (state.bytes + size(new)).saturating_sub(size(document.as_ref()));
    state.documents =
        (state.documents + u64::from(new.is_some())).saturating_sub(u64::from(document.is_some()));
    let (new, indexes) = (new.map(rows::row_of_document), state.indexes.clone());
    let change = DocumentChange { key, old: row, new, indexes, row_bytes };
    (change.old.is_some() || change.new.is_some()).then_some(change)
}

/// The event that tells of a change, where the collection has a changefeed: the document under its key, or a tombstone.
/// It is part of what the commit makes.
pub(super) fn change_event(
    state: &CollectionState,
    write: &DocumentWrite,
    new: Option<&Document>,
    bytes: &mut ResultBytes,
) -> Result<Option<(TopicName, NewEvent)>, CommitError> {
    let Some(topic) = state.config.changefeed.clone() else { return Ok(None) };
    let payload = new.map_or_else(|| Json::from_stored(Bytes::from_static(b"null")), Document::to_json);
    let mut event = NewEvent::new(payload);
    event.key = Some(write.key.as_str().into());
    event.ts = Some(write.ts);
    event.caused_by = write.cause.map(|id| Json::from_stored(format!("[\"{id}\"]").into()).into());
    bytes.count(event.size())?;
    Ok(Some((topic, event)))
}

/// The refusal of a write, or of a unique index over what is there, because two documents have the same values.
pub fn not_unique(
    state: &CollectionState,
    unique: &Index,
    index: usize,
    (key, other): (String, String),
) -> CommitError {
    let fields = unique.fields.iter().map(|field| field.as_str().to_owned()).collect();
    CommitError::NotUnique { index, collection: state.name.to_string(), key, other, fields }
}

/// The refusal of a write because values of its document are too long for an index.
pub(super) fn too_long(
    state: &CollectionState,
    written: Written<'_>,
    TooLong { index, bytes }: TooLong<'_>,
) -> CommitError {
    CommitError::IndexValueTooLong {
        index: written.index,
        collection: state.name.to_string(),
        key: written.commit.documents[written.index].key.clone(),
        fields: index.fields.iter().map(ToString::to_string).collect(),
        bytes,
    }
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

/// The same, one by one and without an end of their own.
pub(super) fn documents<'a>(
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
