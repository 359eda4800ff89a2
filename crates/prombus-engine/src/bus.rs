//! The bus: the one way in. Layers have its shape, so each can be put around any other.

use crate::schemas::SchemaViolation;
use async_trait::async_trait;
use prombus_core::error::Retry;
use prombus_core::event::BadEvent;
use prombus_core::{Commit, CommitError, EventLog, Receipt, Ticket, TopicName};
use std::sync::Arc;

/// Takes commits.
#[async_trait]
pub trait Bus: Send + Sync {
    /// Gives `commit` its place in the order of the log, as [`EventLog::enqueue`] does, after the checks of all layers:
    /// what they refuse has no place, and what the log refuses is the ticket's answer.
    ///
    /// The place is fixed when this has returned, and not before: of two calls that overlap, either may come first, so
    /// whoever wants an order enqueues one after the other. One layer waits on the way: that of the schemas, for a topic
    /// that is being changed to be so, and for large events to be checked.
    ///
    /// What a layer wants changed in a commit, it changes on the way (`Arc::make_mut` copies only what someone else still
    /// holds), and whoever tries again has it as it is then.
    async fn enqueue(&self, commit: &mut Arc<Commit>) -> Result<Ticket, BusError>;
}

impl dyn Bus {
    /// Enqueues a commit, and waits for what comes of it.
    pub async fn commit(&self, mut commit: Arc<Commit>) -> Result<Receipt, BusError> {
        Ok(self.enqueue(&mut commit).await?.await?)
    }
}

/// Something that happens to every commit on its way to the log.
pub trait Layer {
    /// The bus with this layer around it.
    fn wrap(self, inner: Arc<dyn Bus>) -> Arc<dyn Bus>;
}

/// The innermost bus: the log itself.
pub struct LogBus(pub Arc<dyn EventLog>);

#[async_trait]
impl Bus for LogBus {
    async fn enqueue(&self, commit: &mut Arc<Commit>) -> Result<Ticket, BusError> {
        Ok(self.0.enqueue(commit.clone()).await?)
    }
}

/// Why a commit did not happen.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BusError {
    /// The log refused it.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// The topic is the hub's own.
    #[error(
        "topic {0} belongs to the hub itself; publish to a name that does not start with dlq. or system."
    )]
    ReservedTopic(TopicName),
    /// The settings of a topic make no sense.
    #[error("{0}")]
    BadConfig(String),
    /// An event is not well formed.
    #[error("{error}")]
    BadEvent {
        /// Which event of the commit.
        index: usize,
        /// What is wrong with it.
        error: BadEvent,
    },
    /// A key and a partition cannot go together.
    #[error("an event has either a key or a partition, not both: the key decides the partition")]
    KeyAndPartition {
        /// Which event of the commit.
        index: usize,
    },
    /// An expectation is about a key.
    #[error("expect needs a key: it is about the latest event of that key")]
    ExpectWithoutKey {
        /// Which event of the commit.
        index: usize,
    },
    /// The event's time lies too far ahead.
    #[error("ts {ts} is more than {ahead_ms} ms ahead of the hub's clock (limits.future_ts_ms)")]
    FutureTs {
        /// Which event of the commit.
        index: usize,
        /// Its time.
        ts: u64,
        /// How far ahead is allowed.
        ahead_ms: u64,
    },
    /// An event is larger than allowed.
    #[error("the event takes {bytes} bytes, more than limits.event_bytes = {limit}")]
    EventTooLarge {
        /// Which event of the commit.
        index: usize,
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// An event is not what the schema of its topic allows.
    #[error("{0}")]
    SchemaViolation(Box<SchemaViolation>),
    /// The commit is larger than allowed.
    #[error(
        "the commit takes {bytes} bytes, more than limits.commit_bytes = {limit}; send it in smaller pieces"
    )]
    CommitTooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
}

impl BusError {
    /// What helps against this error: see [`CommitError::retry`]. What the hub itself refuses stays refused.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Commit(error) => error.retry(),
            _ => Retry::Never,
        }
    }

    /// Which event of the commit is to blame, where one is.
    pub fn index(&self) -> Option<usize> {
        match self {
            Self::BadEvent { index, .. }
            | Self::KeyAndPartition { index }
            | Self::ExpectWithoutKey { index }
            | Self::FutureTs { index, .. }
            | Self::EventTooLarge { index, .. }
            | Self::Commit(
                CommitError::NoSuchPartition { index, .. }
                | CommitError::IdConflict { index, .. }
                | CommitError::ExpectationFailed { index, .. },
            ) => Some(*index),
            Self::SchemaViolation(violation) => Some(violation.index),
            _ => None,
        }
    }
}
