//! Collections as rows: how documents and indexes lie in rows of bytes in order, what a change of a document does to
//! them, and how a query goes over them.
//!
//! This is what stores share that keep rows in the order of their keys. A store says how rows are read ([`Rows`]);
//! nothing here reads or writes anything itself.

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
pub use documents::{Place, get, look_up, replace, scan};
pub use find::find;
pub use rows::{
    DOCUMENT, INDEX_PREFIX, RowRange, Rows, RowsIter, collection_of_row, document_prefix, index_prefix,
    prefixed,
};
