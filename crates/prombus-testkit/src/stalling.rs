//! Homes that do not answer while their hub is stalled, so that nothing is heard of it.

use async_trait::async_trait;
use prombus_core::homes::{Moves, Residence};
use prombus_core::*;
use std::sync::Arc;
use tokio::sync::watch;

/// Whether a hub is stalled. Whatever asks meanwhile waits until it is not.
pub struct Stall(watch::Sender<bool>);

impl Stall {
    /// One that is not.
    pub fn new() -> Arc<Self> {
        Arc::new(Self(watch::Sender::new(false)))
    }

    /// Stalls the hub, or lets it go on.
    pub fn set(&self, stalled: bool) {
        self.0.send_replace(stalled);
    }

    /// Waits while it is stalled.
    pub async fn until_over(&self) {
        if *self.0.borrow() {
            // It fails only once nobody can stall it any more.
            let _ = self.0.subscribe().wait_for(|stalled| !stalled).await;
        }
    }
}

/// The homes of a hub that can be stalled.
pub struct StallingHomes {
    /// What answers.
    pub inner: MemoryHomes,
    /// Whether it does.
    pub stall: Arc<Stall>,
}

#[async_trait]
impl Homes for StallingHomes {
    fn id(&self) -> &HubId {
        self.inner.id()
    }

    async fn join(&self, about: AboutHub) -> Result<(), HomesError> {
        self.stall.until_over().await;
        self.inner.join(about).await
    }

    async fn leave(&self) -> Result<(), HomesError> {
        self.stall.until_over().await;
        self.inner.leave().await
    }

    async fn claim(&self, requests: &[ClaimRequest]) -> Result<Vec<Result<Claim, HomesError>>, HomesError> {
        self.stall.until_over().await;
        self.inner.claim(requests).await
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Result<Claim, HomesError>>, HomesError> {
        self.stall.until_over().await;
        self.inner.renew(claims).await
    }

    async fn release(&self, claims: &[Claim]) -> Result<(), HomesError> {
        self.stall.until_over().await;
        self.inner.release(claims).await
    }

    async fn home_of(&self, topic: &TopicName) -> Result<Option<Residence>, HomesError> {
        self.stall.until_over().await;
        self.inner.home_of(topic).await
    }

    async fn hand_over(&self, claims: &[Claim], to: &HubId) -> Result<(), HomesError> {
        self.stall.until_over().await;
        self.inner.hand_over(claims, to).await
    }

    async fn moves(&self, after: Sequence) -> Result<Moves, HomesError> {
        self.stall.until_over().await;
        self.inner.moves(after).await
    }

    async fn hubs(&self) -> Result<Vec<LiveHub>, HomesError> {
        self.stall.until_over().await;
        self.inner.hubs().await
    }

    async fn changed(&self, after: Sequence) -> Sequence {
        let now = self.inner.changed(after).await;
        self.stall.until_over().await;
        now
    }
}
