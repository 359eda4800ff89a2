//! Which hub a topic is at home on: the one whose groups and projections move its cursors.
//!
//! A hub claims a topic before it does anything on the topic's behalf. A claim has an epoch that every cursor move carries,
//! so a hub that has lost the topic without noticing is refused by the store. Publishes need no claim.

mod memory;

pub use memory::{MemoryHomes, SharedHomes};

use crate::position::{Epoch, Sequence};
use crate::topic::TopicName;
use async_trait::async_trait;
use std::fmt;
use std::sync::Arc;

/// The homes of topics, as one hub sees them. A method's doc is its contract, and `prombus_testkit::homes` tests it.
///
/// Topics are claimed by name: a claim outlives the deletion of its topic, and may be made before there is one.
#[async_trait]
pub trait Homes: Send + Sync {
    /// Claims topics for this hub, all in one step. One answer for each request, in order: what stands in the way of one
    /// of them does not keep the others back.
    ///
    /// - At any moment, one hub at most has a claim that holds. While another one has it, the answer is
    ///   [`HomesError::Elsewhere`].
    /// - The epoch is greater than that of every earlier claim of the topic, by whichever hub, and greater than
    ///   [`above`](ClaimRequest::above).
    /// - A hub that has the claim already gets the same one, with a new end; or one with a later epoch, where the one it
    ///   has is not greater than `above`.
    /// - A hub that has not been heard of for its whole time to live, which it has chosen itself, can be taken over from.
    async fn claim(&self, requests: &[ClaimRequest]) -> Result<Vec<Result<Claim, HomesError>>, HomesError>;

    /// Says that this hub is alive, and moves the ends of its claims. One answer for each claim, in order: the claim with
    /// its new end, or [`HomesError::Lost`] where it was released, or another hub has taken over.
    ///
    /// A claim whose end has passed is renewed like any other, unless somebody has taken over.
    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Result<Claim, HomesError>>, HomesError>;

    /// Gives claims up, all in one step: any hub can have the topics at once. Giving up what was lost already changes
    /// nothing.
    async fn release(&self, claims: &[Claim]) -> Result<(), HomesError>;

    /// The hub that has the topic, and the epoch of its claim; `None` where nobody has it.
    async fn home_of(&self, topic: &TopicName) -> Result<Option<Residence>, HomesError>;

    /// The hubs that are alive, by their ids; this one included.
    async fn hubs(&self) -> Result<Vec<HubId>, HomesError>;

    /// Waits until a topic was claimed, released or lost, or a hub has come or gone, after `after`, and says up to where.
    /// That a hub's time is over wakes nobody by itself: whoever waits for that looks again in time. May wake for nothing;
    /// otherwise never misses.
    async fn changed(&self, after: Sequence) -> Sequence;
}

/// The name of a hub among others.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HubId(pub Arc<str>);

impl fmt::Display for HubId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a hub asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimRequest {
    /// The topic.
    pub topic: TopicName,
    /// The latest epoch that the hub has seen on the topic's cursors. A store may remember more than whoever keeps the
    /// claims: in memory, they begin anew with each process.
    pub above: Epoch,
}

/// That a topic is at home on a hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The topic.
    pub topic: TopicName,
    /// What every cursor move carries.
    pub epoch: Epoch,
    /// When the hub must have renewed it, by its own [steady clock](crate::Clock::steady_ms); `None` where it has no end.
    /// No other hub gets the topic before that, so up to then nothing needs to be asked.
    pub until: Option<u64>,
}

impl Claim {
    /// Whether no other hub can have the topic yet.
    pub fn holds_at(&self, steady_ms: u64) -> bool {
        self.until.is_none_or(|until| steady_ms < until)
    }
}

/// Where a topic is at home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Residence {
    /// The hub.
    pub hub: HubId,
    /// The epoch of its claim.
    pub epoch: Epoch,
}

/// Why a hub has no claim.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HomesError {
    /// Another hub has the topic.
    #[error("topic {topic} is at home on hub {hub}")]
    Elsewhere {
        /// The topic.
        topic: TopicName,
        /// The hub that has it.
        hub: HubId,
    },
    /// The hub had the topic, and has it no more.
    #[error("topic {0} is no longer at home on this hub")]
    Lost(TopicName),
    /// Nobody can be asked at the moment.
    #[error("it cannot be found out where topics are at home: {0}")]
    Unavailable(String),
}
