//! Opening a data folder, and checking one.

pub(crate) mod check;
pub(crate) mod compare;
pub(crate) mod count;
pub(crate) mod recover;
pub(crate) mod replay;
