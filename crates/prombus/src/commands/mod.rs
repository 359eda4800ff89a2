//! The commands that talk to a hub, check a data folder, or help a shell.

pub mod at;
pub mod backup;
pub mod check;
pub mod collections;
pub mod commit;
pub mod completions;
mod definitions;
pub mod dlq;
pub mod export;
mod flags;
pub mod get;
mod group_options;
pub mod groups;
pub mod health;
pub mod import;
mod input;
pub mod list;
pub mod moving;
pub mod projections;
pub mod publish;
mod retry;
pub mod schema;
mod start;
pub mod sub;
pub mod tail;
pub mod topics;
mod waiting;
