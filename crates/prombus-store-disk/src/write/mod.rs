//! The one way to write: commits are staged, written in batches, flushed and shown.

pub(crate) mod freeze;
pub(crate) mod stage;
pub(crate) mod writer;
