//! What the driver's errors mean for a commit and for a read.

use crate::primary::PrimaryLost;
use mongodb::error::{Error, ErrorKind, WriteFailure};
use prombus_core::ReadError;

/// What stands in the way of a transaction.
#[derive(Debug)]
pub enum Failure {
    /// Others have changed the same things. It did not happen, and can be tried again.
    Conflict,
    /// It is more than MongoDB takes in one piece.
    TooLarge,
    /// The database cannot be reached, or has no primary, or something else is wrong. It did not happen.
    Down(String),
    /// What is stored cannot be read.
    Read(ReadError),
}

/// Codes by which MongoDB says that a transaction has met another one: a write conflict, a lock that is taken, a
/// transaction or snapshot that is no more, a key that another one has taken.
const CONFLICTS: [i32; 8] = [112, 24, 251, 246, 239, 225, 267, 11000];
/// A document, a command or a transaction that is too large, for MongoDB or for its cache.
const TOO_LARGE: [i32; 6] = [10334, 17280, 17420, 257, 314, 388];

/// What is said where nobody answers.
pub const NO_PRIMARY: &str = "the primary of the replica set was lost, or does not answer";

/// The code of an error that the database has answered.
pub fn code(error: &Error) -> Option<i32> {
    match error.kind.as_ref() {
        ErrorKind::Command(command) => Some(command.code),
        ErrorKind::Write(WriteFailure::WriteError(write)) => Some(write.code),
        ErrorKind::Write(WriteFailure::WriteConcernError(concern)) => Some(concern.code),
        ErrorKind::InsertMany(many) => many.write_errors.as_ref()?.first().map(|error| error.code),
        _ => None,
    }
}

/// Whether something is too large, and therefore has not happened.
pub fn is_too_large(error: &Error) -> bool {
    code(error).is_some_and(|code| TOO_LARGE.contains(&code))
}

/// What an error says in one line.
pub fn text(error: &Error) -> String {
    error.kind.to_string()
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match code(&error) {
            Some(code) if CONFLICTS.contains(&code) => Self::Conflict,
            Some(code) if TOO_LARGE.contains(&code) => Self::TooLarge,
            _ => Self::Down(text(&error)),
        }
    }
}

impl From<PrimaryLost> for Failure {
    fn from(PrimaryLost: PrimaryLost) -> Self {
        Self::Down(NO_PRIMARY.into())
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

/// What an error means for a read.
pub fn unreadable(error: Error) -> ReadError {
    ReadError::Unavailable(text(&error))
}
