//! The embedded storage engine: one append-only journal for everything, sidecar indexes, checkpoints.
//!
//! - One writer thread takes the commits that have queued up, writes them in one batch and flushes once.
//! - One view is what all readers see; it moves when a batch is durable, for events, documents and cursors alike.
//! - A full part of the journal is where its events stay; an index beside it finds them by offset, time, id and key.
//! - After a crash, the newest checkpoint and the journal behind it give the state back. A torn tail is cut;
//!   damage to what was flushed stops the open and says where.

pub mod disk;

mod background;
mod index;
mod journal;
mod paged;
mod read;
mod recovery;
mod shared;
mod state;
mod store;
mod write;

pub use recovery::check::{Problem, Progress, Report, check, check_on};
pub use recovery::recover::OpenError;
pub use store::{DiskOptions, DiskStore};
