//! Background work, on its own threads.

pub(crate) mod builder;
pub(crate) mod eraser;
mod failures;
pub(crate) mod housekeeper;
pub(crate) mod merger;
pub(crate) mod pace;
pub(crate) mod rewriter;
pub(crate) mod worth;

use crate::disk::is_full;
use prombus_core::CommitError;
use std::io;

/// What an I/O error means for who waits for something that cannot be done for it.
fn refusal(what: &str, error: &io::Error) -> CommitError {
    match is_full(error) {
        true => CommitError::NoRoom,
        false => CommitError::Unavailable(format!("{what}: {error}")),
    }
}
