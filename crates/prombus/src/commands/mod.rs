//! The commands that talk to a hub or look at a data folder.

pub mod check;
pub mod collections;
pub mod commit;
mod definitions;
pub mod dlq;
pub mod export;
pub mod get;
pub mod groups;
pub mod import;
mod input;
pub mod list;
pub mod projections;
pub mod publish;
mod retry;
mod start;
pub mod sub;
pub mod tail;
pub mod topics;
