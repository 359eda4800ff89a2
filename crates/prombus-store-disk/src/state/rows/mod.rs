//! Rows: an ordered map of bytes to bytes that may exceed memory.
//!
//! Recent changes are in memory (the active overlay), those being written to a table are still in memory as well (the
//! frozen overlay), and everything else is in immutable tables on disk. Newer sources win over older ones, and a removal is
//! recorded until nothing older is left. What was last written to a table stays in memory a while longer (the kept
//! overlay), because recently changed documents are the ones most likely to change next.

mod block;
mod index;
mod merge;
mod merged;
mod overlay;
mod run;
mod table;
mod tables;
mod write;

#[cfg(test)]
mod tests;

pub use merge::{Merge, pick};
pub use overlay::Overlay;
pub use table::{Table, number_of, path};
pub use tables::Tables;
pub use write::{Target, write_frozen};

use bytes::Bytes;
use merged::Merged;
use prombus_core::ReadError;
use prombus_rows::{DocumentChange, RowChange, RowRange, RowsIter};
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Rows that take no more memory than this are few.
const FEW_BYTES: usize = 256 << 10;

/// A key and its value, or that it is removed.
pub type Row = (Bytes, Option<Bytes>);

/// All rows as of one commit. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Rows {
    tables: Arc<Tables>,
    kept: Overlay,
    frozen: Option<Overlay>,
    active: Overlay,
}

impl Rows {
    /// The row of the document with this key.
    pub fn get(&self, key: &[u8]) -> io::Result<Option<Bytes>> {
        match self.in_memory(key) {
            Some(known) => Ok(known),
            None => Ok(self.tables.get(key)?.flatten()),
        }
    }

    /// Whether tables are read to get it.
    pub fn reads_tables(&self, key: &[u8]) -> bool {
        self.in_memory(key).is_none() && self.tables.list().iter().any(|table| table.may_have(key))
    }

    fn in_memory(&self, key: &[u8]) -> Option<Option<Bytes>> {
        let overlays = [Some(&self.active), self.frozen.as_ref(), Some(&self.kept)];
        overlays.into_iter().flatten().find_map(|overlay| overlay.get(key))
    }

    /// The rows of a range, from its end to its start if `reverse` is set: of documents or of indexes.
    pub fn range(
        &self,
        range: Range<Bytes>,
        reverse: bool,
    ) -> impl Iterator<Item = io::Result<(Bytes, Bytes)>> + use<'_> {
        let mut sources = self.active.ranges(&range, reverse);
        sources.extend(self.frozen.iter().flat_map(|frozen| frozen.ranges(&range, reverse)));
        sources.extend(self.tables.ranges(&range, reverse));
        Merged::new(sources, reverse).filter_map(|row| match row {
            Ok((key, value)) => value.map(|value| Ok((key, value))),
            Err(error) => Some(Err(error)),
        })
    }

    /// Changes a document.
    pub fn change(&mut self, change: DocumentChange) {
        self.active.change(change);
    }

    /// Changes index rows alone, because indexes came or went.
    pub fn change_indexes(&mut self, rows: &[RowChange]) {
        self.active.change_indexes(rows);
    }

    /// What the rows that are in no table take in memory, without those that are being written to one.
    pub fn active_bytes(&self) -> usize {
        self.active.bytes()
    }

    /// Whether none is in a table, and to scan all of them takes no time that matters.
    pub fn are_few_and_in_memory(&self) -> bool {
        let is_kept_here = self.tables.list().is_empty() && self.frozen.is_none();
        is_kept_here && self.active.bytes() <= FEW_BYTES
    }

    /// The rows that are being written to a table.
    pub fn frozen(&self) -> Option<&Overlay> {
        self.frozen.as_ref()
    }

    /// The tables.
    pub fn tables(&self) -> &Arc<Tables> {
        &self.tables
    }

    /// Freezes everything that changed, to be written to a table. What is frozen already must be in one first: where
    /// it is not, nothing happens. Says whether there is something to write that was not there before.
    pub fn freeze(&mut self) -> bool {
        if self.frozen.is_some() || self.active.is_empty() {
            return false;
        }
        self.frozen = Some(std::mem::take(&mut self.active));
        true
    }

    /// Takes a freeze back, as long as nothing changed since.
    pub fn thaw(&mut self) {
        if self.active.is_empty() {
            self.active = self.frozen.take().unwrap_or_default();
        }
    }

    /// Installs tables instead of the current ones and of what was frozen, all of whose rows they hold, and keeps its
    /// documents as `kept` has them. Gives back what nobody needs any more, because it takes a while to let go of it.
    pub fn replace_frozen(&mut self, tables: Arc<Tables>, kept: Overlay) -> [Overlay; 2] {
        self.tables = tables;
        [std::mem::replace(&mut self.kept, kept), self.frozen.take().unwrap_or_default()]
    }

    /// Makes the index rows of what is in no table ahead of time.
    pub fn prepare(&self) {
        self.active.prepare();
    }

    /// Whether there are none to make.
    pub fn is_prepared(&self) -> bool {
        self.active.is_prepared()
    }

    /// Installs tables instead of the current ones, with the same rows.
    pub fn replace_tables(&mut self, tables: Arc<Tables>) {
        self.tables = tables;
    }
}

fn read_error(error: io::Error) -> ReadError {
    match error.kind() {
        io::ErrorKind::InvalidData => ReadError::Corrupt(error.to_string()),
        _ => ReadError::Unavailable(error.to_string()),
    }
}

impl prombus_rows::Rows for Rows {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, ReadError> {
        self.get(key).map_err(read_error)
    }

    fn range(&self, range: RowRange, reverse: bool) -> RowsIter<'_> {
        Box::new(self.range(range, reverse).map(|row| row.map_err(read_error)))
    }
}
