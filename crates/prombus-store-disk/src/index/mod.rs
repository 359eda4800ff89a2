//! Where the events of a part are: by offset, time, id and key.

pub(crate) mod active;
pub(crate) mod bloom;
pub(crate) mod lookup;
pub(crate) mod newest;
pub(crate) mod sidecar;
