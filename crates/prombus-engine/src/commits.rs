//! Commits of consumers: acks, writes and publishes in one transaction.

use crate::bus::BusError;
use crate::groups::{GroupError, GroupName, LeaseToken};
use crate::hub::Outgoing;
use prombus_core::{Json, ReadError, TopicName, WriteOp};

/// The longest id of a commit, in bytes.
pub const MAX_COMMIT_ID_BYTES: usize = 200;

/// What a consumer wants to have happen as a whole.
#[derive(Debug, Clone, Default)]
pub struct CommitRequest {
    /// The same one within 24 hours is answered as it was first, and nothing happens.
    pub commit_id: Option<String>,
    /// Leases to settle.
    pub acks: Vec<LeaseToken>,
    /// Documents to write.
    pub writes: Vec<CommitWrite>,
    /// Events to publish.
    pub publish: Vec<(TopicName, Outgoing)>,
}

/// One write of a commit.
#[derive(Debug, Clone)]
pub struct CommitWrite {
    /// The collection.
    pub collection: String,
    /// The document's key.
    pub key: String,
    /// What to do: `Set`, `Merge`, `Inc` or `Delete`.
    pub op: WriteOp,
    /// The version that the document must have; 0 where there must be none.
    pub if_version: Option<u64>,
}

/// The group that a lease belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseOf {
    /// The topic.
    pub topic: TopicName,
    /// The group.
    pub group: GroupName,
}

/// Why a commit did not happen. Nothing of it did.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CommitRefused {
    /// The request makes no sense.
    #[error("{0}")]
    Bad(String),
    /// A lease has expired, was settled, or passed on.
    #[error("the lease {0} has expired, was settled already, or passed on; nothing was committed")]
    LeaseExpired(LeaseToken),
    /// A group cannot go on.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// The store cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The bus refused it. The index of an error is that of the event in `publish`.
    #[error(transparent)]
    Bus(#[from] BusError),
}

/// What a commit has done: `{"events": [...], "versions": {collection: {key: version}}}`, as it was answered first.
pub type CommitAnswer = Json;
