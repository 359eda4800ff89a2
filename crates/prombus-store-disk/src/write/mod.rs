//! The only way to write: commits are staged, written in batches, flushed and made visible.

pub(crate) mod freeze;
pub(crate) mod stage;
pub(crate) mod writer;
