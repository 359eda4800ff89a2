//! What [`Homes`] promise, for two hubs that share them.

mod claims;
mod waiting;

pub use claims::*;
pub use waiting::*;

use crate::build;
use crate::subject::must;
use prombus_core::{AboutHub, Claim, ClaimRequest, Epoch, Homes, HomesError, ManualClock, TopicName};
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
    build::topic(name)
}

/// What a hub says of itself.
fn about(name: &str) -> AboutHub {
    let url = format!("http://{name}:7070").into();
    AboutHub { url, version: "1".into(), mark: name.into() }
}

/// A request for a topic of which nothing was seen.
fn wanted(topic: &TopicName) -> ClaimRequest {
    ClaimRequest { topic: topic.clone(), above: Epoch(0) }
}

/// What comes of one request.
async fn claim_as(homes: &Arc<dyn Homes>, request: ClaimRequest) -> Result<Claim, HomesError> {
    let mut all = homes.claim(&[request]).await?;
    assert_eq!(all.len(), 1, "one answer for each request");
    all.remove(0)
}

async fn claim(homes: &Arc<dyn Homes>, topic: &TopicName) -> Result<Claim, HomesError> {
    claim_as(homes, wanted(topic)).await
}

/// Gives a claim up.
async fn release(homes: &Arc<dyn Homes>, claim: &Claim) {
    must(homes.release(std::slice::from_ref(claim)).await, "a claim can be given up");
}

async fn claimed(homes: &Arc<dyn Homes>, topic: &TopicName) -> Claim {
    must(claim(homes, topic).await, "a topic that nobody else has can be claimed")
}

/// What comes of renewing one claim.
async fn renewed(homes: &Arc<dyn Homes>, claim: &Claim) -> Result<Claim, HomesError> {
    let mut all = must(homes.renew(std::slice::from_ref(claim)).await, "claims can be renewed");
    assert_eq!(all.len(), 1, "one answer for each claim");
    all.remove(0)
}

fn is_elsewhere(answer: Result<Claim, HomesError>) -> bool {
    matches!(answer, Err(HomesError::Elsewhere { .. }))
}
