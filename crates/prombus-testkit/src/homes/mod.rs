//! What [`Homes`] promise, for two hubs that share them.

mod claims;
mod waiting;

pub use claims::*;
pub use waiting::*;

use prombus_core::{Claim, ClaimRequest, Epoch, Homes, HomesError, ManualClock, TopicName};
use std::sync::Arc;

/// Two hubs, and the time that passes for both.
pub struct HomesSubject {
    /// One hub.
    pub one: Arc<dyn Homes>,
    /// Another one.
    pub other: Arc<dyn Homes>,
    /// Their clock.
    pub clock: Arc<ManualClock>,
    /// A hub that says nothing for so long can be taken over from.
    pub ttl_ms: u64,
}

fn topic(name: &str) -> TopicName {
    TopicName::parse(name).expect("a valid name")
}

async fn claim(homes: &Arc<dyn Homes>, topic: &TopicName) -> Result<Claim, HomesError> {
    homes.claim(ClaimRequest { topic: topic.clone(), above: Epoch(0) }).await
}

async fn claimed(homes: &Arc<dyn Homes>, topic: &TopicName) -> Claim {
    claim(homes, topic).await.expect("nobody else has the topic")
}

/// What comes of renewing one claim.
async fn renewed(homes: &Arc<dyn Homes>, claim: &Claim) -> Result<Claim, HomesError> {
    let mut all = homes.renew(std::slice::from_ref(claim)).await.expect("the homes can be asked");
    assert_eq!(all.len(), 1, "one answer for each claim");
    all.remove(0)
}

fn is_elsewhere(answer: Result<Claim, HomesError>) -> bool {
    matches!(answer, Err(HomesError::Elsewhere { .. }))
}
