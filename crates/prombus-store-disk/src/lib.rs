//! The embedded storage engine: one append-only journal for everything, sidecar indexes, checkpoints.
//!
//! - A single writer thread takes the commits that have queued up, writes them in one batch and flushes once.
//! - All readers see one view; it advances when a batch is durable, for events, documents and cursors alike.
//! - A full part of the journal is where its events stay; an index next to it finds them by offset, time, id and key.
//! - After a crash, the newest checkpoint and the journal after it restore the state. A torn tail is cut off; damage to
//!   flushed data aborts the open with its location.

pub mod disk;
pub mod handles;

mod background;
mod backup;
mod folder;
mod index;
mod journal;
mod paged;
mod read;
mod recovery;
mod reserve;
mod shared;
mod state;
mod store;
mod transfer;
mod write;

pub use backup::target::{BackupError, Incoming, Target, Update, WantedFile};
pub use recovery::check::{Problem, Progress, Report, check, check_on};
pub use recovery::recover::OpenError;
pub use store::{DiskOptions, DiskStore};
