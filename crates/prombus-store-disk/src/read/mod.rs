//! Reading events as of one view.

pub(crate) mod fetch;
pub(crate) mod read_view;
