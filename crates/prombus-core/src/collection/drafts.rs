//! The documents that a commit writes, from the first of its writes to the last.
//!
//! Each write sees what the ones before it made, and nothing of it is stored before all of them are known: so a
//! document that is written many times is written out and stored once. A changefeed still tells of each write.
//!
//! Writes are taken in two rounds. The first one only looks at them: whose the collection is, whether the versions are
//! those that are expected, and how long the documents are that they change. All of that is known without reading what is
//! in a document, which is what takes long, so a commit that is refused for it costs next to nothing.

#[cfg(test)]
mod tests;

use super::length::Measured;
use super::write::{Written, change_event, not_unique, too_long, unavailable};
use super::{CollectionState, IndexState, MAX_INDEX_VALUE_BYTES, PriorDocuments, Slot, row_bytes};
use crate::body::Body;
use crate::commit::ResultBytes;
use crate::document::{self, Document, DocumentWrite, Versioning, WriteError, WriteOp};
use crate::error::CommitError;
use crate::event::NewEvent;
use crate::receipt;
use crate::topic::TopicName;
use bytes::Bytes;
use std::collections::HashMap;

/// How much of all documents is kept as fields, by their weight: they take many times the memory of their text. One alone
/// always is.
const MOST_AS_FIELDS: usize = document::MAX_BODY_BYTES;

/// The number of a collection, and the key of a document in it.
type DocumentId = (u32, String);

/// All documents that a commit has written so far, and their places.
#[derive(Debug)]
pub struct Drafts<P> {
    /// Whether writes are made, and no longer only looked at.
    is_writing: bool,
    drafts: HashMap<DocumentId, Draft<P>>,
    /// The values in unique indexes that drafts take, and whose they are.
    taken: HashMap<Bytes, String>,
    /// What the drafts take that are there as fields.
    as_fields: usize,
    /// What changefeeds have to tell, in order.
    changes: Vec<(TopicName, NewEvent)>,
}

/// What a write is made on.
pub struct Base<'a, B: PriorDocuments + ?Sized> {
    /// What was there before the commit's writes.
    pub prior: &'a B,
    /// The collection.
    pub state: &'a CollectionState,
    /// What the commit makes.
    pub bytes: &'a mut ResultBytes,
}

/// A document that a commit has written, as it is after the last of its writes.
#[derive(Debug)]
pub struct Drafted<P> {
    /// Which write of the commit was its last.
    pub write: usize,
    /// Where it lies, and what was there before.
    pub slot: Slot<P>,
    /// The document, unless it is gone.
    pub document: Option<Document>,
}

#[derive(Debug)]
struct Draft<P> {
    slot: Slot<P>,
    /// What the writes leave that were looked at so far.
    looked_at: Stamp,
    /// Whether its rows in indexes were measured as they were.
    is_measured: bool,
    /// Its last write, once one has changed it.
    write: Option<usize>,
    now: Option<DraftState>,
    /// The most that was counted of it.
    counted: usize,
    /// The most that was counted of its rows in indexes.
    counted_rows: usize,
    /// The values in unique indexes that it takes.
    takes: Vec<Bytes>,
}

/// A document as it is for the time being.
#[derive(Debug)]
struct DraftState {
    stamp: Stamp,
    ts: u64,
    body: Body,
}

/// What decides whether a write is made; the default stands for a document that is not there.
#[derive(Debug, Clone, Copy, Default)]
struct Stamp {
    version: u64,
    revision: Option<i64>,
}

impl Stamp {
    /// What a write leaves; `None` where it is left out, because the document is as new.
    fn after(self, state: &CollectionState, write: &DocumentWrite) -> Result<Option<Self>, CommitError> {
        let actual = self.version;
        if write.if_version.is_some_and(|expected| expected != actual) {
            let (collection, key) = (state.name.to_string(), write.key.clone());
            return Err(CommitError::VersionConflict { collection, key, actual });
        }
        if let Versioning::Newer(revision) = write.versioning
            && self.revision.is_some_and(|now| now >= revision)
        {
            return Ok(None);
        }
        if matches!(write.op, WriteOp::Delete) {
            return Ok(Some(Self::default()));
        }
        let version = actual + 1;
        let revision = match write.versioning {
            Versioning::None => None,
            Versioning::Count => Some(i64::try_from(version).unwrap_or(i64::MAX)),
            Versioning::Newer(revision) => Some(revision),
        };
        Ok(Some(Self { version, revision }))
    }
}

impl<P> Draft<P> {
    fn of(slot: Slot<P>) -> Self {
        let now = slot.document.as_ref().map(|old| DraftState {
            stamp: Stamp { version: old.version, revision: old.revision },
            ts: old.ts,
            body: old.body.clone().into(),
        });
        let looked_at = now.as_ref().map_or_else(Stamp::default, |now| now.stamp);
        Self {
            slot,
            looked_at,
            is_measured: false,
            write: None,
            now,
            counted: 0,
            counted_rows: 0,
            takes: Vec::new(),
        }
    }

    /// What it takes where it is there as fields.
    fn as_fields(&self) -> usize {
        self.now.as_ref().map_or(0, |now| if now.body.is_text() { 0 } else { now.body.weight() })
    }

    fn document(&self, key: String) -> Option<Document> {
        let DraftState { stamp, ts, body } = self.now.as_ref()?;
        Some(Document::new(key, stamp.version, stamp.revision, *ts, body.to_json()))
    }

    /// Looks at a write, as if those before it had been made. Gives the version after it.
    fn look_at(&mut self, state: &CollectionState, write: &DocumentWrite) -> Result<u64, CommitError> {
        self.looked_at = self.looked_at.after(state, write)?.unwrap_or(self.looked_at);
        Ok(self.looked_at.version)
    }

    /// Makes a write. Gives the version after it.
    fn change(
        &mut self,
        state: &CollectionState,
        written: Written<'_>,
        bytes: &mut ResultBytes,
    ) -> Result<u64, CommitError> {
        let write: &DocumentWrite = &written.commit.documents[written.index];
        let stamp = self.now.as_ref().map_or_else(Stamp::default, |now| now.stamp);
        let Some(stamp) = stamp.after(state, write)? else { return Ok(stamp.version) };
        let bad =
            |error: WriteError| CommitError::BadWrite { index: written.index, key: write.key.clone(), error };
        let before = self.now.take().map(|now| now.body);
        // A text of the commit's own that has to be read once more.
        let again = before.as_ref().is_some_and(|body| self.write.is_some() && body.is_text());
        let body = match &write.op {
            WriteOp::Receipt(request) => Some(receipt::body(*request, written.receipt).into()),
            op => Body::change(before, op).map_err(bad)?,
        };
        self.write = Some(written.index);
        self.now = body.map(|body| DraftState { stamp, ts: write.ts, body });
        let size = self.size();
        // A receipt is as long as its commit has made it.
        if size > document::MAX_BODY_BYTES && !matches!(write.op, WriteOp::Receipt(_)) {
            return Err(bad(WriteError::TooLarge(size)));
        }
        let is_read_again = again && self.now.as_ref().is_some_and(|now| !now.body.is_text());
        self.count(if is_read_again { self.weight() } else { 0 }, bytes)?;
        Ok(stamp.version)
    }

    /// Measures its rows in indexes as they were, once, which are to be removed. Those of early builds may be longer than
    /// what a commit may make: then it must still be possible to be rid of them.
    fn count_old_rows(
        &mut self,
        state: &CollectionState,
        bytes: &mut ResultBytes,
    ) -> Result<(), CommitError> {
        if std::mem::replace(&mut self.is_measured, true) {
            return Ok(());
        }
        let Some(old) = &self.slot.document else { return Ok(()) };
        self.slot.row_bytes.old = row_bytes(old, &state.indexes);
        let most = state.indexes.len() * (MAX_INDEX_VALUE_BYTES + old.key.len());
        bytes.count_more(self.slot.row_bytes.old.min(most))
    }

    /// Measures its rows in indexes as they are now, and refuses values that are too long for one.
    fn count_new_rows(
        &mut self,
        state: &CollectionState,
        written: Written<'_>,
        bytes: &mut ResultBytes,
    ) -> Result<(), CommitError> {
        let rows = match &self.now {
            None => 0,
            Some(now) => {
                let key = &written.commit.documents[written.index].key;
                let measured = Measured { key, has_revision: now.stamp.revision.is_some(), body: &now.body };
                measured.check(&state.indexes).map_err(|long| too_long(state, written, long))?
            }
        };
        let more = rows.saturating_sub(self.counted_rows);
        self.counted_rows = self.counted_rows.max(rows);
        self.slot.row_bytes.new = rows;
        bytes.count_more(more)
    }

    fn size(&self) -> usize {
        self.now.as_ref().map_or(0, |now| now.body.bytes())
    }

    fn weight(&self) -> usize {
        self.now.as_ref().map_or(0, |now| now.body.weight())
    }

    /// Counts the document as large as it is now, as far as it was not counted so large already, and what it takes to
    /// read or write it once more.
    fn count(&mut self, again: usize, bytes: &mut ResultBytes) -> Result<(), CommitError> {
        let weight = self.weight();
        let more = weight.saturating_sub(self.counted);
        self.counted = self.counted.max(weight);
        bytes.count_more(more.saturating_add(again))
    }
}

impl<P> Default for Drafts<P> {
    fn default() -> Self {
        let (drafts, taken, changes) = (HashMap::new(), HashMap::new(), Vec::new());
        Self { is_writing: false, drafts, taken, as_fields: 0, changes }
    }
}

impl<P> Drafts<P> {
    /// From now on writes are made, from the first one on, and no longer only looked at. Whoever sees nothing to be gained by
    /// looking may begin with this.
    pub fn begin_writing(&mut self) {
        self.is_writing = true;
    }

    /// Looks at a write or makes it, on what those before it have left. Gives the version of the document; 0 where it is
    /// gone.
    pub fn take(
        &mut self,
        base: Base<'_, impl PriorDocuments<Row = P> + ?Sized>,
        written: Written<'_>,
    ) -> Result<u64, CommitError> {
        let Base { prior, state, bytes } = base;
        let write: &DocumentWrite = &written.commit.documents[written.index];
        if write.owner != state.config.owner {
            let owner = state.config.owner.as_projection().map(str::to_owned);
            return Err(CommitError::NotOwner { collection: state.name.to_string(), owner });
        }
        let id: DocumentId = (state.number, write.key.clone());
        // Nothing of a commit that fails is used, so it need not be put back then.
        let mut draft = match self.drafts.remove(&id) {
            Some(draft) => draft,
            None => {
                bytes.count(state.name.len() + write.key.len())?;
                let mut draft = Draft::of(prior.look_up(state, &write.key).map_err(unavailable)?);
                // What was read is kept until the commit is done, also where a write leaves it as it is.
                draft.count(0, bytes)?;
                draft
            }
        };
        if !self.is_writing {
            let version = draft.look_at(state, write)?;
            self.drafts.insert(id, draft);
            return Ok(version);
        }
        draft.count_old_rows(state, bytes)?;
        self.as_fields = self.as_fields.saturating_sub(draft.as_fields());
        let was_there = draft.now.is_some();
        let version = draft.change(state, written, bytes)?;
        let is_written = draft.write == Some(written.index);
        if is_written {
            // Each time and not once for all writes, so that the one is named that is to blame.
            draft.count_new_rows(state, written, bytes)?;
        }
        if state.indexes.iter().any(IndexState::is_enforced) && is_written {
            // It is written out each time, to be compared.
            draft.count(draft.size(), bytes)?;
            self.take_unique(prior, state, &mut draft, written)?;
        }
        let is_change = is_written && (was_there || draft.now.is_some());
        if is_change && state.config.changefeed.is_some() {
            let document = draft.document(write.key.clone());
            let changes = change_event(state, write, document.as_ref(), bytes)?;
            changes
                .iter()
                .try_for_each(|(_, event)| written.commit.limits.check_change(written.index, event))?;
            self.changes.extend(changes);
        }
        self.as_fields += draft.as_fields();
        self.drafts.insert(id, draft);
        if self.as_fields > MOST_AS_FIELDS {
            self.write_out();
        }
        Ok(version)
    }

    /// Takes the values in unique indexes for a document as it is now, in the place of those that it had.
    fn take_unique(
        &mut self,
        prior: &(impl PriorDocuments<Row = P> + ?Sized),
        state: &CollectionState,
        draft: &mut Draft<P>,
        written: Written<'_>,
    ) -> Result<(), CommitError> {
        draft.takes.drain(..).for_each(|values| drop(self.taken.remove(&values)));
        let key = &written.commit.documents[written.index].key;
        let Some(document) = draft.document(key.clone()) else { return Ok(()) };
        // A document of the commit holds what it takes now, and not what it had.
        let counts = |other: &str| {
            let drafted = || self.drafts.get(&(state.number, other.to_owned()));
            other != key && drafted().is_none_or(|draft| draft.write.is_none())
        };
        let mut taken = Vec::new();
        for unique in state.indexes.iter().filter(|index| index.is_enforced()) {
            let Some(values) = prior.unique_values(state, unique, &document) else { continue };
            let other = match self.taken.get(&values).filter(|other| *other != key) {
                Some(other) => Some(other.clone()),
                None => prior.holder(values.clone(), &counts).map_err(unavailable)?,
            };
            if let Some(other) = other {
                return Err(not_unique(state, &unique.index, written.index, (key.clone(), other)));
            }
            taken.push(values);
        }
        self.taken.extend(taken.iter().map(|values| (values.clone(), key.clone())));
        draft.takes = taken;
        Ok(())
    }

    /// Makes texts of all that is there as fields.
    fn write_out(&mut self) {
        for now in self.drafts.values_mut().filter_map(|draft| draft.now.as_mut()) {
            if !now.body.is_text() {
                now.body = now.body.to_json().into();
            }
        }
        self.as_fields = 0;
    }

    /// Each document that was written, in the order of their last writes, and what changefeeds have to tell of them.
    pub fn finish(self) -> (Vec<Drafted<P>>, Vec<(TopicName, NewEvent)>) {
        let drafted = |((_, key), draft): (DocumentId, Draft<P>)| {
            let write = draft.write?;
            Some(Drafted { write, document: draft.document(key), slot: draft.slot })
        };
        let mut drafted: Vec<Drafted<P>> = self.drafts.into_iter().filter_map(drafted).collect();
        drafted.sort_unstable_by_key(|drafted| drafted.write);
        (drafted, self.changes)
    }
}
