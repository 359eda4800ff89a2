//! Which hub a topic is at home on: the one whose groups and projections move its cursors.
//!
//! A hub claims a topic before it does anything on the topic's behalf. A claim has an epoch that every cursor move carries,
//! so a hub that has lost the topic without noticing is refused by the store. Publishes need no claim.

mod memory;
mod places;

pub use memory::{MemoryHomes, SharedHomes};
pub use places::{Handover, Places};

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
    /// The name of this hub among the others.
    fn id(&self) -> &HubId;

    /// Takes part: [`hubs`](Self::hubs) lists this hub from now on, for as long as it is heard of. Joining again changes what
    /// the hub says of itself, and not since when it takes part. A hub can also claim topics without taking part.
    async fn join(&self, about: AboutHub) -> Result<(), HomesError>;

    /// Ends taking part: all claims of this hub are given up as by [`release`](Self::release), and `hubs` no longer lists it.
    /// One that has left can join again.
    async fn leave(&self) -> Result<(), HomesError>;

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

    /// Gives claims to another hub, all in one step: it has the topics from then on, under later epochs, and finds out which these
    /// are by claiming them. What was lost already stays where it is.
    async fn hand_over(&self, claims: &[Claim], to: &HubId) -> Result<(), HomesError>;

    /// The hub that has the topic, and the epoch of its claim; `None` where nobody has it.
    async fn home_of(&self, topic: &TopicName) -> Result<Option<Residence>, HomesError>;

    /// Who has the topics that were claimed, handed over or given up after `after`: each as it is now, and up to where that is
    /// all. What dead hubs have is theirs until somebody takes over.
    async fn moves(&self, after: Sequence) -> Result<Moves, HomesError>;

    /// The hubs that take part and are alive, in the order of their ids; this one included, if it does.
    async fn hubs(&self) -> Result<Vec<LiveHub>, HomesError>;

    /// Waits until a topic was claimed, handed over or given up, or a hub has joined or left, after `after`, and says up to where.
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

/// What a hub tells the others of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AboutHub {
    /// Where the others reach it, such as `http://10.0.0.7:7070`.
    pub url: Arc<str>,
    /// Its version.
    pub version: Arc<str>,
    /// By what others see that it has the same secret, without learning it.
    pub mark: Arc<str>,
}

/// A hub that takes part and is alive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveHub {
    /// Its name.
    pub id: HubId,
    /// What it says of itself.
    pub about: AboutHub,
    /// Since when it takes part, in epoch milliseconds of whoever keeps the claims.
    pub since_ms: u64,
}

/// Topics that have changed hands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moves {
    /// Up to where these are all; later ones may be among them.
    pub through: Sequence,
    /// The topics, and who has them now.
    pub topics: Vec<(TopicName, Option<HubId>)>,
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
