//! The journal: the layout of batches in its parts, and where a part ends.

pub(crate) mod batch;
pub(crate) mod change;
pub(crate) mod part;
pub(crate) mod part_set;
pub(crate) mod position;
pub(crate) mod record;
pub(crate) mod scan;
