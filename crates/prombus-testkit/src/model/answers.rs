//! Answers to commits, with ids and numbers that are a store's own taken out, so that they can be compared.

use super::Answered;
use super::proposal::Id;
use prombus_core::{Appended, CommitError, Durability};
use uuid::Uuid;

/// What a store answered, in names that all stores share.
#[derive(Debug, PartialEq)]
pub enum Answer {
    /// It was taken.
    Taken { events: Vec<(Id, Appended)>, versions: Vec<u64>, durability: Durability },
    /// It was refused.
    Refused(CommitError),
    /// It was refused for an id.
    Conflict { index: usize, id: Id },
    /// It was refused for an expectation.
    Unexpected { index: usize, actual: Option<Id> },
}

/// The answer with every id named by `name`.
pub fn named(answer: &Answered, name: impl Fn(Uuid) -> Id) -> Answer {
    match answer {
        Ok(receipt) => Answer::Taken {
            events: receipt
                .events
                .iter()
                .map(|appended| (name(appended.id), Appended { id: Uuid::nil(), ..*appended }))
                .collect(),
            versions: receipt.versions.clone(),
            durability: receipt.durability,
        },
        Err(CommitError::IdConflict { index, id }) => Answer::Conflict { index: *index, id: name(*id) },
        Err(CommitError::ExpectationFailed { index, actual }) => {
            Answer::Unexpected { index: *index, actual: actual.map(name) }
        }
        Err(other) => Answer::Refused(other.clone()),
    }
}
