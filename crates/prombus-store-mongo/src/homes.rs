//! Homes of topics in the database: which hubs are alive, and which of them has which topic.
//!
//! Only the documents of hubs beat. A claim stays as it is until it is given up, or taken over from a hub that has not
//! beaten for the time to live that it has chosen; whoever takes over writes to the document of the hub that it takes from,
//! so that this one cannot beat in the same moment and believe that it still has the topic.
//!
//! Time is that of the database, so that the clocks of hubs do not matter. A hub itself counts from before it asked, by
//! its own steady clock, and stops at two thirds of the time.

mod hub;
mod residents;
mod version;

use crate::failure::text;
use crate::shared::Shared;
use async_trait::async_trait;
pub(crate) use hub::Hub;
use hub::{HomesCall, HomesReply};
use mongodb::bson::doc;
use mongodb::options::ReadConcern;
use prombus_core::homes::{Moves, Residence};
use prombus_core::{
    AboutHub, Claim, ClaimRequest, Clock, Epoch, Homes, HomesError, HubId, LiveHub, Sequence, TopicName,
};
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// How many topics one transaction claims, renews or gives up at most.
const TOPICS_AT_ONCE: usize = 1_000;

/// What can be chosen about a hub among others.
#[derive(Clone)]
pub struct HomesOptions {
    /// Its name.
    pub hub: HubId,
    /// After how long a silence it can be taken over from, in milliseconds.
    pub ttl_ms: u64,
    /// Whose time counts.
    pub time: HomesTime,
}

/// Whose time counts between hubs.
#[derive(Clone)]
pub enum HomesTime {
    /// The database's.
    Database,
    /// That of this clock, which all hubs share.
    Shared(Arc<dyn Clock>),
}

/// Homes as one hub sees them.
pub struct MongoHomes {
    hub: Arc<Hub>,
    /// The changes that were heard of.
    version: Arc<watch::Sender<u64>>,
    /// The task that hears of them.
    hears: AbortHandle,
}

impl Drop for MongoHomes {
    fn drop(&mut self) {
        self.hears.abort();
    }
}

fn unavailable(error: mongodb::error::Error) -> HomesError {
    HomesError::Unavailable(text(&error))
}

impl MongoHomes {
    /// A hub comes: it is alive from now on for its time to live, and takes part when it joins.
    pub(crate) async fn open(shared: Arc<Shared>, options: HomesOptions) -> Result<Self, HomesError> {
        let version = Arc::new(watch::Sender::new(0));
        let stream = version::open(&shared).await.map_err(unavailable)?;
        let hears = tokio::spawn(version::follow(shared.clone(), version.clone(), stream)).abort_handle();
        let hub = Arc::new(Hub::come(shared, options).await?);
        Ok(Self { hub, version, hears })
    }

    pub(crate) fn hub(&self) -> Arc<Hub> {
        self.hub.clone()
    }
}

#[async_trait]
impl Homes for MongoHomes {
    fn id(&self) -> &HubId {
        self.hub.id()
    }

    async fn join(&self, about: AboutHub) -> Result<(), HomesError> {
        self.hub.join(about).await
    }

    async fn leave(&self) -> Result<(), HomesError> {
        self.hub.leave().await
    }

    async fn claim(&self, requests: &[ClaimRequest]) -> Result<Vec<Result<Claim, HomesError>>, HomesError> {
        let mut answers = Vec::with_capacity(requests.len());
        for some in requests.chunks(TOPICS_AT_ONCE) {
            let asked = self.hub.asked();
            let HomesReply::Claimed { claims, took_over } = self.hub.call(HomesCall::Claim(some)).await?
            else {
                return Err(HomesError::Unavailable("the claims have no answer".into()));
            };
            if took_over && let Err(error) = self.hub.answer(self.hub.bury()).await {
                tracing::warn!(%error, "the sessions of a hub that is gone cannot be ended");
            }
            answers
                .extend(claims.into_iter().map(|claim| Ok(Claim { until: self.hub.until(asked), ..claim? })));
        }
        Ok(answers)
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Result<Claim, HomesError>>, HomesError> {
        let mut answers = Vec::with_capacity(claims.len());
        // Whoever is heard of looks after those who are not: one may be in the way of this.
        if let Err(error) = self.hub.answer(self.hub.bury()).await {
            tracing::warn!(%error, "the sessions of hubs that are gone cannot be ended; will retry");
        }
        // A hub without claims is heard of, too.
        let nothing: &[Claim] = &[];
        let chunks = claims.chunks(TOPICS_AT_ONCE).chain(claims.is_empty().then_some(nothing));
        for some in chunks {
            let asked = self.hub.asked();
            let HomesReply::Held(held) = self.hub.call(HomesCall::Renew(some)).await? else {
                return Err(HomesError::Unavailable("the claims have no answer".into()));
            };
            let renewed = |(claim, held): (&Claim, bool)| match held {
                true => Ok(Claim { until: self.hub.until(asked), ..claim.clone() }),
                false => Err(HomesError::Lost(claim.topic.clone())),
            };
            answers.extend(some.iter().zip(held).map(renewed));
        }
        Ok(answers)
    }

    async fn release(&self, claims: &[Claim]) -> Result<(), HomesError> {
        for some in claims.chunks(TOPICS_AT_ONCE) {
            self.hub.call(HomesCall::Give(some, None)).await?;
        }
        Ok(())
    }

    async fn hand_over(&self, claims: &[Claim], to: &HubId) -> Result<(), HomesError> {
        for some in claims.chunks(TOPICS_AT_ONCE) {
            self.hub.call(HomesCall::Give(some, Some(to))).await?;
        }
        Ok(())
    }

    async fn moves(&self, after: Sequence) -> Result<Moves, HomesError> {
        self.hub.answer(self.moved_after(after)).await
    }

    async fn home_of(&self, topic: &TopicName) -> Result<Option<Residence>, HomesError> {
        self.hub.answer(self.residence(topic)).await
    }

    async fn hubs(&self) -> Result<Vec<LiveHub>, HomesError> {
        self.hub.answer(self.alive()).await
    }

    async fn changed(&self, after: Sequence) -> Sequence {
        let mut heard = self.version.subscribe();
        // What was changed before this was called, whether it was heard of yet or not.
        let stored = async { self.hub.stored_version().await.map_err(unavailable) };
        if let Ok(now) = self.hub.answer(stored).await
            && now > after.0
        {
            return Sequence(now);
        }
        heard.wait_for(|version| *version > after.0).await.map_or(after, |version| Sequence(*version))
    }
}

impl MongoHomes {
    async fn moved_after(&self, after: Sequence) -> Result<Moves, HomesError> {
        // Before the topics are read, so that none is missed.
        let through = Sequence(self.hub.stored_version().await.map_err(unavailable)?);
        let claims = self.hub.names().claims();
        let later = doc! { "at": { "$gt": after.0 as i64 } };
        let mut found =
            claims.find(later).read_concern(ReadConcern::majority()).await.map_err(unavailable)?;
        let mut topics = Vec::new();
        while found.advance().await.map_err(unavailable)? {
            let claim = found.deserialize_current().map_err(unavailable)?;
            let topic = claim.get_str("_id").ok().and_then(|name| TopicName::parse(name).ok());
            let hub = claim.get_str("hub").ok().map(|hub| HubId(hub.into()));
            topics.extend(topic.map(|topic| (topic, hub)));
        }
        Ok(Moves { through, topics })
    }

    async fn residence(&self, topic: &TopicName) -> Result<Option<Residence>, HomesError> {
        let names = self.hub.names();
        let pipeline = [
            doc! { "$match": { "_id": topic.as_str() } },
            doc! { "$lookup": { "from": names.name("hubs"), "localField": "hub", "foreignField": "_id", "as": "at" } },
            doc! { "$unwind": "$at" },
            doc! { "$match": { "$expr": self.hub.is_alive("$at.") } },
        ];
        let claims = names.claims();
        let find = claims.aggregate(pipeline).read_concern(ReadConcern::majority());
        let mut found = find.await.map_err(unavailable)?;
        if !found.advance().await.map_err(unavailable)? {
            return Ok(None);
        }
        let claim = found.deserialize_current().map_err(unavailable)?;
        let (hub, epoch) = (claim.get_str("hub").ok(), claim.get_i64("epoch").ok());
        Ok(hub
            .zip(epoch)
            .map(|(hub, epoch)| Residence { hub: HubId(hub.into()), epoch: Epoch(epoch as u64) }))
    }

    async fn alive(&self) -> Result<Vec<LiveHub>, HomesError> {
        let hubs = self.hub.names().hubs();
        let which = doc! { "about": { "$type": "object" }, "$expr": self.hub.is_alive("$") };
        let find = hubs.find(which).sort(doc! { "_id": 1 }).read_concern(ReadConcern::majority());
        let mut found = find.await.map_err(unavailable)?;
        let mut alive = Vec::new();
        while found.advance().await.map_err(unavailable)? {
            alive.extend(hub::live_hub(&found.deserialize_current().map_err(unavailable)?));
        }
        Ok(alive)
    }
}
