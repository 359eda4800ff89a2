//! What was there before the writes of a commit, however a store keeps it.

use super::{CollectionState, IndexState, RowBytes, row_bytes};
use crate::document::Document;
use crate::error::ReadError;
use bytes::Bytes;

/// How a store reads what was there before the writes of a commit.
pub trait PriorDocuments {
    /// Where a document lies. The store gets it back with what has become of the document.
    type Row;

    /// The document with this key, and its place, also where there is none.
    fn look_up(&self, state: &CollectionState, key: &str) -> Result<Slot<Self::Row>, ReadError>;

    /// The values of a document in a unique index, as bytes: the same for equal values of the same index, and for
    /// nothing else. `None` where it lacks one of the fields.
    fn unique_values(
        &self,
        state: &CollectionState,
        unique: &IndexState,
        document: &Document,
    ) -> Option<Bytes>;

    /// The key of a document that has these values, among those whose keys count.
    fn holder(&self, values: Bytes, counts: &dyn Fn(&str) -> bool) -> Result<Option<String>, ReadError>;
}

/// The place of a document, and what is there.
#[derive(Debug)]
pub struct Slot<P> {
    /// The place.
    pub place: P,
    /// The document.
    pub document: Option<Document>,
    /// What the rows take that it has in indexes, and that what replaces it has; once somebody has measured them.
    pub row_bytes: RowBytes,
}

impl<P> Slot<P> {
    /// With the rows of indexes measured that follow when `new` is in it.
    #[must_use]
    pub fn measured(self, state: &CollectionState, new: Option<&Document>) -> Self {
        let bytes = |document: Option<&Document>| document.map_or(0, |it| row_bytes(it, &state.indexes));
        let row_bytes = RowBytes { old: bytes(self.document.as_ref()), new: bytes(new) };
        Self { row_bytes, ..self }
    }
}
