//! The journal: how batches of commits lie in its parts, and where one ends.

pub(crate) mod batch;
pub(crate) mod change;
pub(crate) mod part;
pub(crate) mod position;
pub(crate) mod record;
pub(crate) mod scan;
