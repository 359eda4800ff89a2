//! Homes of topics in the database: which hubs are alive, and which of them has which topic.
//!
//! Only the documents of hubs beat. A claim stays as it is until it is given up, or taken over from a hub that has not
//! beaten for its whole time to live; whoever takes over writes to the document of the hub that it takes from, so that
//! this one cannot beat in the same moment and believe that it still has the topic.
//!
//! Time is that of the database, so that the clocks of hubs do not matter. A hub itself counts from before it asked, by
//! its own steady clock, and stops at two thirds of the time.

use crate::failure::{Failure, text};
use crate::pause;
use crate::shared::Shared;
use async_trait::async_trait;
use futures::StreamExt;
use mongodb::ClientSession;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, Document, doc};
use mongodb::change_stream::ChangeStream;
use mongodb::options::{
    Acknowledgment, ReadConcern, ReadPreference, ReturnDocument, SelectionCriteria, UpdateModifications,
    WriteConcern,
};
use prombus_core::homes::Residence;
use prombus_core::{Claim, ClaimRequest, Clock, Epoch, Homes, HomesError, HubId, Sequence, TopicName};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// How often a hub says that it is alive within its time to live.
const BEATS: u64 = 5;
/// The document among claims that counts their changes; no topic is called so.
const VERSION: &str = "~version";

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

/// Homes as one hub sees them. Where the time is the database's, it beats by itself.
pub struct MongoHomes {
    hub: Arc<Hub>,
    /// The changes that were heard of.
    version: Arc<watch::Sender<u64>>,
    tasks: Vec<AbortHandle>,
}

impl Drop for MongoHomes {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

/// One hub, and how it reaches the others.
pub(crate) struct Hub {
    shared: Arc<Shared>,
    options: HomesOptions,
    has_left: AtomicBool,
}

fn unavailable(error: mongodb::error::Error) -> HomesError {
    HomesError::Unavailable(text(&error))
}

/// Why something was not done.
enum TransactError {
    /// It may be tried again.
    Failure(Failure),
    Refused(HomesError),
}

impl From<mongodb::error::Error> for TransactError {
    fn from(error: mongodb::error::Error) -> Self {
        Self::Failure(error.into())
    }
}

/// What a hub does in one transaction, after it was heard of.
enum HomesCall<'a> {
    Claim(&'a ClaimRequest),
    Renew(&'a [Claim]),
    Release(&'a Claim),
    Beat,
}

/// What came of it: the claim, or which claims still hold.
enum HomesReply {
    Claimed(Epoch, Option<HubId>),
    Held(Vec<bool>),
    Done,
}

impl MongoHomes {
    /// A hub comes: it is alive from now on for its time to live.
    pub(crate) async fn join(shared: Arc<Shared>, options: HomesOptions) -> Result<Self, HomesError> {
        let version = Arc::new(watch::Sender::new(0));
        let stream = open(&shared).await.map_err(unavailable)?;
        let hears = tokio::spawn(follow(shared.clone(), version.clone(), stream)).abort_handle();
        let is_real = matches!(options.time, HomesTime::Database);
        let hub = Arc::new(Hub { shared, options, has_left: AtomicBool::new(false) });
        let mut homes = Self { hub: hub.clone(), version, tasks: vec![hears] };
        hub.call(HomesCall::Beat).await?;
        if is_real {
            homes.tasks.push(tokio::spawn(beat(hub)).abort_handle());
        }
        Ok(homes)
    }

    /// The hub goes: what it has is free at once.
    pub async fn leave(&self) -> Result<(), HomesError> {
        self.hub.leave().await
    }

    pub(crate) fn hub(&self) -> Arc<Hub> {
        self.hub.clone()
    }
}

/// Says again and again that a hub is alive.
async fn beat(hub: Arc<Hub>) {
    let pause = Duration::from_millis(hub.options.ttl_ms / BEATS);
    loop {
        // It is time that has to pass.
        tokio::time::sleep(pause).await;
        if hub.has_left.load(Ordering::Acquire) {
            return;
        }
        if let Err(error) = hub.call(HomesCall::Beat).await {
            tracing::warn!(%error, "failed to send a heartbeat to the database; will retry");
        }
    }
}

impl Hub {
    pub(crate) async fn leave(&self) -> Result<(), HomesError> {
        self.has_left.store(true, Ordering::Release);
        let hub = &*self.options.hub.0;
        let names = &self.shared.names;
        names.hubs().delete_one(doc! { "_id": hub }).await.map_err(unavailable)?;
        let free = doc! { "$set": { "hub": null } };
        names.claims().update_many(doc! { "hub": hub }, free).await.map_err(unavailable)?;
        self.bump().await
    }

    async fn bump(&self) -> Result<(), HomesError> {
        let update = doc! { "$inc": { "n": 1_i64 } };
        let claims = self.shared.names.claims();
        claims.update_one(doc! { "_id": VERSION }, update).upsert(true).await.map(drop).map_err(unavailable)
    }

    /// The time, in milliseconds, as the database reckons it.
    fn now(&self) -> Bson {
        match &self.options.time {
            HomesTime::Database => Bson::Document(doc! { "$toLong": "$$NOW" }),
            HomesTime::Shared(clock) => Bson::Int64(clock.steady_ms() as i64),
        }
    }

    fn ttl(&self) -> i64 {
        self.options.ttl_ms as i64
    }

    /// When a claim ends that was asked for at a moment of the hub's own clock.
    fn until(&self, asked: u64) -> Option<u64> {
        Some(asked + self.options.ttl_ms * 2 / 3)
    }

    async fn call(&self, call: HomesCall<'_>) -> Result<HomesReply, HomesError> {
        let client = self.shared.names.db().client();
        let mut session = client.start_session().await.map_err(unavailable)?;
        for tries in 0..pause::TRIES {
            let failure = match self.attempt(&mut session, &call).await {
                Ok(reply) => return Ok(reply),
                Err(TransactError::Refused(error)) => {
                    let _ = session.abort_transaction().await;
                    return Err(error);
                }
                Err(TransactError::Failure(failure)) => failure,
            };
            let _ = session.abort_transaction().await;
            match failure {
                Failure::Conflict => pause::after_conflict(tries).await,
                Failure::Down(why) => return Err(HomesError::Unavailable(why)),
                failure => return Err(HomesError::Unavailable(format!("{failure:?}"))),
            }
        }
        Err(HomesError::Unavailable("too many conflicts with other hubs".into()))
    }

    async fn attempt(
        &self,
        session: &mut ClientSession,
        call: &HomesCall<'_>,
    ) -> Result<HomesReply, TransactError> {
        session
            .start_transaction()
            .read_concern(ReadConcern::snapshot())
            .write_concern(WriteConcern::builder().w(Acknowledgment::Majority).build())
            .selection_criteria(SelectionCriteria::ReadPreference(ReadPreference::Primary))
            .await?;
        let (now, mut is_news) = self.beat(session).await?;
        let reply = match call {
            HomesCall::Beat => HomesReply::Done,
            HomesCall::Claim(request) => self.claim_in(session, request, (now, &mut is_news)).await?,
            HomesCall::Renew(claims) => HomesReply::Held(self.held(session, claims).await?),
            HomesCall::Release(claim) => {
                let which = doc! {
                    "_id": claim.topic.as_str(), "hub": &*self.options.hub.0, "epoch": claim.epoch.0 as i64,
                };
                let claims = self.shared.names.claims();
                let update = claims.update_one(which, doc! { "$set": { "hub": null } });
                is_news |= update.session(&mut *session).await?.modified_count > 0;
                HomesReply::Done
            }
        };
        if is_news {
            let claims = self.shared.names.claims();
            let update = claims.update_one(doc! { "_id": VERSION }, doc! { "$inc": { "n": 1_i64 } });
            update.upsert(true).session(&mut *session).await?;
        }
        // What became of one that is not answered is found out by asking again: each call says what shall be.
        session.commit_transaction().await?;
        Ok(reply)
    }

    /// The hub is heard of. Gives the time, and whether others will hear that it has come, or come back.
    async fn beat(&self, session: &mut ClientSession) -> Result<(i64, bool), TransactError> {
        let sessions = self.shared.sessions().into_iter();
        let sessions = sessions.map(|bytes| Bson::Binary(Binary { subtype: BinarySubtype::Uuid, bytes }));
        let set = doc! { "$set": {
            "before": { "$ifNull": ["$beat", i64::MIN] },
            "beat": self.now(),
            "ttl": self.ttl(),
            "since": { "$ifNull": ["$since", self.now()] },
            "version": env!("CARGO_PKG_VERSION"),
            "sessions": sessions.collect::<Vec<Bson>>(),
        } };
        let hubs = self.shared.names.hubs();
        let update = hubs.find_one_and_update(
            doc! { "_id": &*self.options.hub.0 },
            UpdateModifications::Pipeline(vec![set]),
        );
        let hub = update.upsert(true).return_document(ReturnDocument::After).session(session).await?;
        let hub = hub.unwrap_or_default();
        let int = |field: &str| hub.get_i64(field).unwrap_or_default();
        let (beat, before) = (int("beat"), int("before"));
        Ok((beat, before == i64::MIN || beat - before >= self.ttl()))
    }

    async fn claim_in(
        &self,
        session: &mut ClientSession,
        ClaimRequest { topic, above }: &ClaimRequest,
        (now, is_news): (i64, &mut bool),
    ) -> Result<HomesReply, TransactError> {
        let names = &self.shared.names;
        let me = &*self.options.hub.0;
        let claims = names.claims();
        let known = claims.find_one(doc! { "_id": topic.as_str() }).session(&mut *session).await?;
        let epoch = known.as_ref().and_then(|known| known.get_i64("epoch").ok()).unwrap_or_default() as u64;
        let has = known.as_ref().and_then(|known| known.get_str("hub").ok()).map(str::to_owned);
        let mut from = None;
        match has.as_deref() {
            Some(hub) if hub == me && Epoch(epoch) > *above => {
                return Ok(HomesReply::Claimed(Epoch(epoch), None));
            }
            Some(hub) if hub != me => {
                let hubs = names.hubs();
                let other = hubs.find_one(doc! { "_id": hub }).session(&mut *session).await?;
                let beat = other.as_ref().and_then(|other| other.get_i64("beat").ok());
                if beat.is_some_and(|beat| now - beat < self.ttl()) {
                    let hub = HubId(hub.into());
                    return Err(TransactError::Refused(HomesError::Elsewhere { topic: topic.clone(), hub }));
                }
                // This meets its next beat, if that comes in the same moment.
                let fence = hubs.update_one(doc! { "_id": hub }, doc! { "$inc": { "lost": 1_i64 } });
                fence.session(&mut *session).await?;
                from = Some(HubId(hub.into()));
            }
            _ => {}
        }
        let epoch = Epoch(epoch.max(above.0) + 1);
        let claim = doc! { "_id": topic.as_str(), "hub": me, "epoch": epoch.0 as i64 };
        let replace = claims.replace_one(doc! { "_id": topic.as_str() }, claim);
        replace.upsert(true).session(session).await?;
        *is_news = true;
        Ok(HomesReply::Claimed(epoch, from))
    }

    async fn held(&self, session: &mut ClientSession, claims: &[Claim]) -> Result<Vec<bool>, TransactError> {
        let topics: Vec<&str> = claims.iter().map(|claim| claim.topic.as_str()).collect();
        let filter = doc! { "_id": { "$in": topics }, "hub": &*self.options.hub.0 };
        let from = self.shared.names.claims();
        let mut found = from.find(filter).session(&mut *session).await?;
        let mut held = std::collections::HashMap::new();
        while let Some(document) = found.next(session).await {
            let document = document?;
            if let (Ok(topic), Ok(epoch)) = (document.get_str("_id"), document.get_i64("epoch")) {
                held.insert(topic.to_owned(), epoch as u64);
            }
        }
        Ok(claims.iter().map(|claim| held.get(claim.topic.as_str()) == Some(&claim.epoch.0)).collect())
    }

    /// Ends what a hub that was taken over from has under way: its transactions would be in the way for as long as its
    /// sessions outlive it.
    async fn end_sessions(&self, hub: &HubId) -> mongodb::error::Result<()> {
        let found = self.shared.names.hubs().find_one(doc! { "_id": &*hub.0 }).await?;
        let sessions = found.as_ref().and_then(|hub| hub.get_array("sessions").ok()).cloned();
        let ids: Vec<Bson> =
            sessions.unwrap_or_default().into_iter().map(|id| Bson::Document(doc! { "id": id })).collect();
        if !ids.is_empty() {
            self.shared.names.db().run_command(doc! { "killSessions": ids }).await?;
        }
        Ok(())
    }

    /// The version as it is stored.
    async fn stored_version(&self) -> mongodb::error::Result<u64> {
        version(&self.shared).await
    }

    /// Hubs that are alive meet this.
    fn is_alive(&self, beat: &str) -> Document {
        doc! { "$lt": [{ "$subtract": [self.now(), beat] }, self.ttl()] }
    }
}

async fn version(shared: &Shared) -> mongodb::error::Result<u64> {
    let claims = shared.names.claims();
    let found = claims.find_one(doc! { "_id": VERSION }).read_concern(ReadConcern::majority()).await?;
    Ok(found.and_then(|found| found.get_i64("n").ok()).unwrap_or_default() as u64)
}

async fn open(shared: &Shared) -> mongodb::error::Result<ChangeStream<Document>> {
    let pipeline = [doc! { "$match": { "documentKey._id": VERSION } }];
    let claims = shared.names.claims();
    Ok(claims.watch().pipeline(pipeline).await?.with_type::<Document>())
}

/// Hears of changes for as long as the hub takes part.
async fn follow(shared: Arc<Shared>, to: Arc<watch::Sender<u64>>, mut stream: ChangeStream<Document>) {
    let heard = |version: u64| {
        to.send_if_modified(|known| {
            let is_later = version > *known;
            *known = version.max(*known);
            is_later
        })
    };
    loop {
        while let Some(Ok(_)) = stream.next().await {
            if let Ok(version) = version(&shared).await {
                heard(version);
            }
        }
        stream = loop {
            match open(&shared).await {
                Ok(stream) => break stream,
                Err(_) => pause::before_reopening().await,
            }
        };
        if let Ok(version) = version(&shared).await {
            heard(version);
        }
    }
}

#[async_trait]
impl Homes for MongoHomes {
    async fn claim(&self, request: ClaimRequest) -> Result<Claim, HomesError> {
        let asked = self.hub.shared.clock.steady_ms();
        match self.hub.call(HomesCall::Claim(&request)).await? {
            HomesReply::Claimed(epoch, from) => {
                if let Some(from) = from
                    && let Err(error) = self.hub.end_sessions(&from).await
                {
                    tracing::warn!(hub = %from, error = %text(&error), "the sessions of a hub that is gone cannot be ended");
                }
                Ok(Claim { topic: request.topic, epoch, until: self.hub.until(asked) })
            }
            HomesReply::Held(_) | HomesReply::Done => Err(HomesError::Lost(request.topic)),
        }
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Result<Claim, HomesError>>, HomesError> {
        let asked = self.hub.shared.clock.steady_ms();
        let HomesReply::Held(held) = self.hub.call(HomesCall::Renew(claims)).await? else {
            return Ok(Vec::new());
        };
        let renewed = |(claim, held): (&Claim, bool)| match held {
            true => Ok(Claim { until: self.hub.until(asked), ..claim.clone() }),
            false => Err(HomesError::Lost(claim.topic.clone())),
        };
        Ok(claims.iter().zip(held).map(renewed).collect())
    }

    async fn release(&self, claim: &Claim) -> Result<(), HomesError> {
        self.hub.call(HomesCall::Release(claim)).await.map(drop)
    }

    async fn home_of(&self, topic: &TopicName) -> Result<Option<Residence>, HomesError> {
        let names = &self.hub.shared.names;
        let pipeline = [
            doc! { "$match": { "_id": topic.as_str() } },
            doc! { "$lookup": { "from": names.name("hubs"), "localField": "hub", "foreignField": "_id", "as": "at" } },
            doc! { "$unwind": "$at" },
            doc! { "$match": { "$expr": self.hub.is_alive("$at.beat") } },
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

    async fn hubs(&self) -> Result<Vec<HubId>, HomesError> {
        let hubs = self.hub.shared.names.hubs();
        let find = hubs.find(doc! { "$expr": self.hub.is_alive("$beat") }).sort(doc! { "_id": 1 });
        let mut found = find.read_concern(ReadConcern::majority()).await.map_err(unavailable)?;
        let mut alive = Vec::new();
        while found.advance().await.map_err(unavailable)? {
            let hub = found.deserialize_current().map_err(unavailable)?;
            alive.extend(hub.get_str("_id").ok().map(|id| HubId(id.into())));
        }
        Ok(alive)
    }

    async fn changed(&self, after: Sequence) -> Sequence {
        let mut heard = self.version.subscribe();
        // What was changed before this was called, whether it was heard of yet or not.
        if let Ok(now) = self.hub.stored_version().await
            && now > after.0
        {
            return Sequence(now);
        }
        heard.wait_for(|version| *version > after.0).await.map_or(after, |version| Sequence(*version))
    }
}
