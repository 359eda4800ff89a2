//! Collections as rows: the layout of documents and indexes in ordered rows of bytes, what a change to a document does to
//! them, and how a query scans them.
//!
//! It is shared by stores that keep rows in key order. A store provides access to its rows ([`Rows`]); nothing here does
//! any I/O.

mod build;
mod change;
mod documents;
mod encode;
mod find;
mod indexer;
#[cfg(test)]
mod plain;
mod rows;

pub use build::{IndexStep, StepLimits, backfill, build_step, build_to, rows_of_index};
pub use change::{DocumentChange, IndexChanges, RowChange};
pub use documents::{DocumentRow, PriorRows, get, look_up, replace, scan};
pub use find::find;
pub use indexer::index_rows;
pub use rows::{
    DOCUMENT, INDEX_PREFIX, RowRange, Rows, RowsIter, collection_of_row, document_prefix, document_row,
    index_prefix, prefixed, row_of_document, unique_values,
};
