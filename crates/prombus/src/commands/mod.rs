//! The commands that talk to a hub or look at a data folder.

pub mod check;
pub mod export;
pub mod import;
pub mod publish;
pub mod topics;
