//! The state that results from the journal: topics, cursors and collections in memory, documents and their indexes in
//! rows, and checkpoints of all of it.

pub(crate) mod checkpoint;
pub(crate) mod checkpoints;
pub(crate) mod rows;
pub(crate) mod view;
