//! The embedded storage engine: one append-only journal for everything, sidecar indexes, checkpoints.
//!
//! - One writer thread takes the commits that have queued up, writes them in one batch and flushes once.
//! - One view is what all readers see; it moves when a batch is durable, for events, documents and cursors alike.
//! - A full part of the journal is where its events stay; an index beside it finds them by offset, time, id and key.
//! - After a crash, the newest checkpoint and the journal behind it give the state back. A torn tail is cut;
//!   damage to what was flushed stops the open and says where.

pub mod disk;

mod active;
mod batch;
mod bloom;
mod builder;
mod change;
mod check;
mod checkpoint;
mod compare;
mod fetch;
mod freeze;
mod housekeeper;
mod kept;
mod lookup;
mod merger;
mod paged;
mod part;
mod position;
mod record;
mod recover;
mod replay;
mod rows;
mod scan;
mod shared;
mod sidecar;
mod snapshot;
mod stage;
mod store;
mod view;
mod writer;

pub use check::{Problem, Progress, Report, check, check_on};
pub use recover::OpenError;
pub use store::{DiskOptions, DiskStore};
