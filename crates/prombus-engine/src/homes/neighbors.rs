//! The other hubs that use the same store: which there are, which topics belong to which of them, and handing over.
//!
//! All hubs reckon by the same rules ([`Places`]) from what is stored, so nobody has to be asked where a topic belongs. What they know
//! may differ for a moment: then the claim decides, and whoever was wrong hears of it and looks again.

use super::{Claims, Home};
use parking_lot::{Mutex, RwLock};
use prombus_core::homes::{Handover, Places};
use prombus_core::{AboutHub, Claim, ClaimRequest, Epoch, HomesError, HubId, LiveHub, TopicName};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// Where a topic belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// On this hub.
    Here,
    /// On another one.
    At(LiveHub),
}

/// The hubs that take part, as one of them knows.
pub type HubList = Arc<[LiveHub]>;

/// What a hub knows of those that take part.
pub(super) struct Neighbors {
    places: RwLock<Places>,
    hubs: watch::Sender<HubList>,
    /// How often this hub is heard of, while it takes part.
    beat: Mutex<Option<Duration>>,
    /// Whether it is followed what others have: from when this hub takes part, also once it has left.
    follows: AtomicBool,
}

impl Default for Neighbors {
    fn default() -> Self {
        let hubs = watch::Sender::new(Arc::default());
        Self { places: RwLock::default(), hubs, beat: Mutex::default(), follows: AtomicBool::new(false) }
    }
}

impl Neighbors {
    pub fn beat(&self) -> Option<Duration> {
        *self.beat.lock()
    }

    /// A claim is known here before it was read.
    pub fn note_claim(&self, topic: &TopicName, by: &HubId) {
        if self.follows.load(Ordering::Acquire) {
            self.places.write().moved(topic.clone(), Some(by.clone()));
        }
    }

    pub fn note_release(&self, topic: &TopicName) {
        if self.follows.load(Ordering::Acquire) {
            self.places.write().moved(topic.clone(), None);
        }
    }
}

impl Claims {
    /// Takes part with the other hubs, of which this one is heard every `beat` from now on, until it
    /// [leaves](Self::leave_others).
    pub async fn take_part(self: &Arc<Self>, about: AboutHub, beat: Duration) -> Result<(), HomesError> {
        self.homes.join(about).await?;
        *self.neighbors.beat.lock() = Some(beat);
        self.neighbors.follows.store(true, Ordering::Release);
        self.try_look_around().await?;
        self.keep_renewing();
        self.keep_listening();
        Ok(())
    }

    /// The name of this hub.
    pub fn id(&self) -> &HubId {
        self.homes.id()
    }

    /// Where a topic belongs, for all that is known: here, where no hubs take part.
    pub fn place(&self, topic: &TopicName) -> Place {
        let places = self.neighbors.places.read();
        let Some(home) = places.of(topic).filter(|home| *home != self.id()) else { return Place::Here };
        let hubs = self.neighbors.hubs.borrow();
        hubs.iter().find(|hub| hub.id == *home).map_or(Place::Here, |hub| Place::At(hub.clone()))
    }

    /// Refuses a topic that belongs to another hub.
    pub fn check_place(&self, topic: &TopicName) -> Result<(), HomesError> {
        match self.place(topic) {
            Place::Here => Ok(()),
            Place::At(LiveHub { id: hub, .. }) => Err(HomesError::Elsewhere { topic: topic.clone(), hub }),
        }
    }

    /// The other hubs that take part, as the store has them.
    pub async fn others(&self) -> Result<Vec<LiveHub>, HomesError> {
        let hubs = self.homes.hubs().await?;
        Ok(hubs.into_iter().filter(|hub| hub.id != *self.id()).collect())
    }

    /// The hubs that take part, and word of every change.
    pub fn hubs(&self) -> watch::Receiver<HubList> {
        self.neighbors.hubs.subscribe()
    }

    /// How many topics this hub has claimed.
    pub fn count(&self) -> usize {
        self.held.lock().len()
    }

    pub(super) async fn look_around(&self) {
        if let Err(error) = self.try_look_around().await {
            tracing::warn!(%error, "failed to find out which hubs there are and what they have; will retry");
        }
    }

    /// Looks which hubs take part and what they have, and gives up what belongs to others now.
    async fn try_look_around(&self) -> Result<(), HomesError> {
        // No claim is made meanwhile that is not known here yet.
        let mut seen = self.changing.lock().await;
        if !self.neighbors.follows.load(Ordering::Acquire) {
            return Ok(());
        }
        let hubs: HubList = self.homes.hubs().await?.into();
        let moves = self.homes.moves(*seen).await?;
        *seen = moves.through;
        {
            let mut places = self.neighbors.places.write();
            places.set_hubs(hubs.iter().map(|hub| hub.id.clone()));
            moves.topics.into_iter().for_each(|(topic, to)| places.moved(topic, to));
            // In one step with the places, which name hubs of this list.
            self.neighbors.hubs.send_if_modified(|known| {
                let is_news = *known != hubs;
                *known = hubs;
                is_news
            });
        }
        match self.neighbors.beat() {
            Some(_) => self.give_way().await,
            None => Ok(()),
        }
    }

    /// Hands over what is too much, and gives up what others have, with all that follows it.
    async fn give_way(&self) -> Result<(), HomesError> {
        let handovers = self.neighbors.places.read().surplus(self.id());
        for handover in handovers {
            self.hand_over(handover).await?;
        }
        let gone: Vec<Arc<Home>> = {
            let places = self.neighbors.places.read();
            let is_elsewhere =
                |home: &Arc<Home>| places.resident(home.topic()).is_some_and(|hub| hub != self.id());
            self.all_held().into_iter().filter(is_elsewhere).collect()
        };
        if gone.is_empty() {
            return Ok(());
        }
        tracing::info!(topics = gone.len(), "topics are at home on other hubs");
        for home in &gone {
            self.end(home);
        }
        let claims: Vec<Claim> = gone.iter().map(|home| home.claim()).collect();
        // What another hub has claimed stays there, and letters follow their topic.
        self.homes.release(&claims).await
    }

    async fn hand_over(&self, Handover { to, topics }: Handover) -> Result<(), HomesError> {
        tracing::info!(topics = topics.len(), hub = %to, "topics move to another hub");
        // Some may have been given to this hub before, and never been needed here.
        let requests: Vec<ClaimRequest> =
            topics.into_iter().map(|topic| ClaimRequest { topic, above: Epoch(0) }).collect();
        let claims = self.homes.claim(&requests).await?.into_iter();
        let claims: Vec<Claim> = claims.filter_map(Result::ok).collect();
        for claim in &claims {
            if let Some(home) = self.held(&claim.topic) {
                self.end(&home);
            }
        }
        self.homes.hand_over(&claims, &to).await?;
        let mut places = self.neighbors.places.write();
        claims.into_iter().for_each(|claim| places.moved(claim.topic, Some(to.clone())));
        Ok(())
    }

    /// Takes part no more: all topics are given up at once, and what is asked of them is for other hubs.
    pub async fn leave_others(&self) {
        let _changing = self.changing.lock().await;
        if self.neighbors.beat.lock().take().is_none() {
            return;
        }
        {
            // Nothing is claimed here from now on, unless there is no other hub.
            let mut places = self.neighbors.places.write();
            let hubs = self.neighbors.hubs.borrow().clone();
            let others: HubList = hubs.iter().filter(|hub| hub.id != *self.id()).cloned().collect();
            places.set_hubs(others.iter().map(|hub| hub.id.clone()));
            self.neighbors.hubs.send_replace(others);
        }
        for home in self.all_held() {
            self.end(&home);
        }
        if let Err(error) = self.homes.leave().await {
            tracing::warn!(%error, "this hub could not take its leave; the others have to wait for its topics");
        }
    }
}

#[cfg(test)]
mod tests;
