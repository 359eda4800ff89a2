//! What the journal has left so far: topics, cursors and collections in memory, documents and their indexes in rows, and
//! checkpoints of all of it.

pub(crate) mod checkpoint;
pub(crate) mod kept;
pub(crate) mod rows;
pub(crate) mod view;
