//! The commands that talk to a hub or look at a data folder.

pub mod check;
pub mod dlq;
pub mod export;
pub mod groups;
pub mod import;
pub mod publish;
mod start;
pub mod sub;
pub mod topics;
