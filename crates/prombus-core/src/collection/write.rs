//! A write of a commit: what a changefeed tells of it, and how it is refused.

use super::{CollectionState, Index, TooLong};
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
