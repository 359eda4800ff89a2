//! Background work, on threads of its own.

pub(crate) mod builder;
pub(crate) mod housekeeper;
pub(crate) mod merger;
