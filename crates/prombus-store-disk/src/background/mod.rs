//! Background work, on its own threads.

pub(crate) mod builder;
pub(crate) mod eraser;
pub(crate) mod housekeeper;
pub(crate) mod merger;
pub(crate) mod rewriter;
