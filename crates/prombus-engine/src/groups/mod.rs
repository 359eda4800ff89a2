//! Consumer groups: durable readers of a topic that share its events, each event under a lease until it is settled.
//!
//! [`State`](state::State) has the rules and never waits. [`Group`] drives it: it reads what is wanted from the log,
//! writes what has changed, and lets pulls wait. [`Groups`] knows all groups of the hub. A group is stored as cursors
//! of its topic: one for its options, one for each partition, and some for what is settled out of order or has failed
//! in it. So it goes when the topic goes.
//!
//! A group is loaded under the home of its topic and goes with it. Its cursors carry the epoch of that home before anything
//! is delivered, so whoever had the topic before can neither settle anything from then on, nor have settled anything that
//! is not known here.

mod ahead;
mod alter;
mod chunk;
mod commit;
mod consumer;
mod count;
mod dead;
mod durable;
mod group;
mod handler;
mod keeper;
mod kept;
mod lease;
mod members;
mod metrics;
mod normal;
mod options;
mod partition_queue;
mod places;
mod pledged;
mod progress;
mod pull;
mod registry;
mod replay;
mod seats;
mod settling;
mod state;
mod status;
mod stored;

pub use ahead::ReadAhead;
pub(crate) use commit::CommitLeases;
pub use commit::{ElsewhereShare, LeasesElsewhere};
pub use consumer::{Acks, Consumer, ConsumerOptions, Rebalance, Received, Subscription};
pub use count::{Preview, PreviewPartition};
pub use dead::{DeadLetter, FailedBy};
pub(crate) use dead::{Failure, Reader, letter_of};
pub use group::{Group, GroupContext};
pub use handler::{Dedupe, Handler, HandlerError, Retry, ToDeadLetters};
pub use lease::{LeaseToken, Session};
pub use metrics::{GroupCounters, GroupTimes};
pub(crate) use normal::not_normalized;
pub use options::{
    GroupName, GroupOptions, MAX_ACK_TIMEOUT_MS, MAX_DELAY_MS, Mode, OptionsChange, OptionsPatch, Ordering,
};
pub use pledged::{PledgeOutcome, PledgedLeases};
pub use pull::{InTurn, MAX_BATCH, Present, Pull, PullTurns, Turn};
pub use registry::{GroupCall, Groups};
pub use replay::{LETTER_BYTES_AT_ONCE, Replay, ReplayTo, Replayed, ReplayedLetters};
pub use settling::{SettleCall, SettleResult};
pub use state::{Delivery, GivenBack, Settle};
pub use status::{GroupStatus, MemberStatus, PartitionStatus, Wait};
pub(crate) use stored::growth_limit;

use crate::bus::BusError;
use crate::filter::{BadFilter, FilterError};
use crate::query::QueryError;
use prombus_core::{CommitError, HomesError, ReadError};

/// Why a group did not do what it was asked to.
#[derive(Debug, Clone, thiserror::Error)]
pub enum GroupError {
    /// There is no such group.
    #[error("topic {topic} has no group {group:?}")]
    NotFound {
        /// The topic.
        topic: String,
        /// The group.
        group: String,
    },
    /// An option or a name makes no sense.
    #[error("{0}")]
    BadOption(String),
    /// The filter does not compile.
    #[error(transparent)]
    BadFilter(#[from] BadFilter),
    /// The group has other options.
    #[error("the group exists with other options; PATCH it to change those that can be changed: {}", serde_json::Value::Object(.actual.clone()))]
    Options {
        /// Those that differ, as they are.
        actual: serde_json::Map<String, serde_json::Value>,
    },
    /// The group has as many members as it may have.
    #[error(
        "the group has {limit} members, as many as a group of its mode may have; reuse the names of members"
    )]
    TooManyMembers {
        /// The most.
        limit: usize,
    },
    /// The place to start at is not there.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// The log refused a commit.
    #[error(transparent)]
    Bus(#[from] BusError),
    /// The topic is at home on another hub, or was on this one until now: open leases are void, and no attempt is counted.
    #[error(transparent)]
    Home(#[from] HomesError),
    /// Only the hub itself knows why; everything that was answered holds, and a new call starts afresh.
    #[error("the group cannot continue: {0}")]
    Failed(String),
}

impl From<FilterError> for GroupError {
    fn from(error: FilterError) -> Self {
        match error {
            FilterError::Bad(bad) => Self::BadFilter(bad),
            FilterError::Unavailable(error) => error.into(),
        }
    }
}

impl From<ReadError> for GroupError {
    fn from(error: ReadError) -> Self {
        Self::Query(match error {
            // A group goes with its topic.
            ReadError::TopicGone(topic) => ReadError::TopicNotFound(topic).into(),
            error => error.into(),
        })
    }
}

impl From<CommitError> for GroupError {
    fn from(error: CommitError) -> Self {
        Self::Bus(error.into())
    }
}
