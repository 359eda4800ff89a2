//! One hub among those that use a database: what it changes there of itself and of its claims, each in one transaction by
//! which it is also heard of.
//!
//! All its transactions are in one session, as those of the writer are in another. Both are in the hub's document before they
//! are used, so that those who take over can end what a hub that is gone has left under way: its locks would be in their way
//! for as long as its sessions outlive it.

use super::residents::{Resident, Residents};
use super::version::{self, VERSION};
use super::{HomesOptions, HomesTime, unavailable};
use crate::failure::{Failure, code};
use crate::names::Names;
use crate::pause;
use crate::shared::Shared;
use mongodb::ClientSession;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, Document, doc};
use mongodb::options::{
    Acknowledgment, ReadConcern, ReadPreference, ReturnDocument, SelectionCriteria, UpdateModifications,
    WriteConcern,
};
use prombus_core::{Claim, ClaimRequest, Epoch, HomesError, HubId};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Mutex;

/// For so long a hub that is gone is remembered.
const REMEMBERED_MS: i64 = 24 * 3_600_000;
/// After how many conflicts it is looked whether it is a dead hub that is in the way.
const CONFLICTS_TILL_BURIAL: u32 = 3;

/// One hub, and how it reaches the others.
pub(crate) struct Hub {
    shared: Arc<Shared>,
    options: HomesOptions,
    has_left: AtomicBool,
    session: Mutex<ClientSession>,
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
pub enum HomesCall<'a> {
    Claim(&'a [ClaimRequest]),
    Renew(&'a [Claim]),
    Release(&'a [Claim]),
    /// It is only heard of.
    Beat,
}

/// What came of it: the claims, without their ends; or which claims still hold.
pub enum HomesReply {
    Claimed { claims: Vec<Result<Claim, HomesError>>, took_over: bool },
    Held(Vec<bool>),
    Done,
}

/// What a transaction knows of the time, and of what others have to hear.
struct Heard {
    now: i64,
    is_news: bool,
}

impl Hub {
    /// A hub comes: it is alive from now on for its time to live.
    pub async fn come(shared: Arc<Shared>, options: HomesOptions) -> Result<Self, HomesError> {
        let session = shared.names.db().client().start_session().await.map_err(unavailable)?;
        shared.is_own(session.id());
        let hub = Self { shared, options, has_left: AtomicBool::new(false), session: Mutex::new(session) };
        // Outside of any session: from here on they can be ended.
        let majority = WriteConcern::builder().w(Acknowledgment::Majority).build();
        let hubs = hub.names().hubs();
        let update =
            hubs.update_one(doc! { "_id": hub.id() }, UpdateModifications::Pipeline(vec![hub.sign()]));
        update.upsert(true).write_concern(majority.clone()).await.map_err(unavailable)?;
        let claims = hub.names().claims();
        let bump = claims.update_one(doc! { "_id": VERSION }, doc! { "$inc": { "n": 1_i64 } });
        bump.upsert(true).write_concern(majority).await.map_err(unavailable)?;
        Ok(hub)
    }

    pub fn names(&self) -> &Names {
        &self.shared.names
    }

    fn id(&self) -> &str {
        &self.options.hub.0
    }

    pub fn ttl_ms(&self) -> u64 {
        self.options.ttl_ms
    }

    pub fn has_left(&self) -> bool {
        self.has_left.load(Ordering::Acquire)
    }

    /// The moment from which the end of a claim is reckoned that is asked for now.
    pub fn asked(&self) -> u64 {
        self.shared.clock.steady_ms()
    }

    /// When a claim ends that was asked for at a moment of the hub's own clock.
    pub fn until(&self, asked: u64) -> Option<u64> {
        Some(asked + self.options.ttl_ms * 2 / 3)
    }

    pub async fn stored_version(&self) -> mongodb::error::Result<u64> {
        version::stored(&self.shared).await
    }

    /// The time, in milliseconds, as the database reckons it.
    fn now(&self) -> Bson {
        match &self.options.time {
            HomesTime::Database => Bson::Document(doc! { "$toLong": "$$NOW" }),
            HomesTime::Shared(clock) => Bson::Int64(clock.steady_ms() as i64),
        }
    }

    /// How long ago a hub was heard of. `of` leads to its fields.
    fn silence(&self, of: &str) -> Document {
        doc! { "$subtract": [self.now(), format!("{of}beat")] }
    }

    /// Hubs that are alive meet this: each has its own time to live.
    pub fn is_alive(&self, of: &str) -> Document {
        doc! { "$lt": [self.silence(of), format!("{of}ttl")] }
    }

    /// What the hub writes to its document whenever it is heard of. All of it, because the document of a hub that was silent for
    /// very long is gone.
    fn sign(&self) -> Document {
        let sessions = self.shared.sessions().into_iter();
        let sessions = sessions.map(|bytes| Bson::Binary(Binary { subtype: BinarySubtype::Uuid, bytes }));
        doc! { "$set": {
            "before": { "$ifNull": ["$beat", i64::MIN] },
            "beat": self.now(),
            "ttl": self.options.ttl_ms as i64,
            "since": { "$ifNull": ["$since", self.now()] },
            "version": env!("CARGO_PKG_VERSION"),
            "sessions": sessions.collect::<Vec<Bson>>(),
        } }
    }

    /// The hub goes: what it has is free at once.
    pub async fn leave(&self) -> Result<(), HomesError> {
        self.has_left.store(true, Ordering::Release);
        // What is under way is over first: it would let the hub be heard of again.
        let _session = self.session.lock().await;
        let hub = self.id();
        self.names().hubs().delete_one(doc! { "_id": hub }).await.map_err(unavailable)?;
        let claims = self.names().claims();
        let free = doc! { "$set": { "hub": null } };
        claims.update_many(doc! { "hub": hub }, free).await.map_err(unavailable)?;
        let bump = claims.update_one(doc! { "_id": VERSION }, doc! { "$inc": { "n": 1_i64 } });
        bump.upsert(true).await.map(drop).map_err(unavailable)
    }

    /// Makes a transaction until it is committed, or refused, or nobody answers for too long.
    pub async fn call(&self, call: HomesCall<'_>) -> Result<HomesReply, HomesError> {
        // Those who have given up waiting leave nothing under way: the next transaction in the session ends it.
        let called = tokio::time::timeout(self.shared.wait, self.try_call(call)).await;
        called.unwrap_or_else(|_| Err(HomesError::Unavailable("the database does not answer".into())))
    }

    async fn try_call(&self, call: HomesCall<'_>) -> Result<HomesReply, HomesError> {
        let mut session = self.session.lock().await;
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
                Failure::Conflict if tries == CONFLICTS_TILL_BURIAL => self.bury().await?,
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
        // Of one whose caller has gone away.
        let _ = session.abort_transaction().await;
        session
            .start_transaction()
            .read_concern(ReadConcern::snapshot())
            .write_concern(WriteConcern::builder().w(Acknowledgment::Majority).build())
            .selection_criteria(SelectionCriteria::ReadPreference(ReadPreference::Primary))
            .await?;
        let mut heard = self.beat(session).await?;
        let reply = match call {
            HomesCall::Beat => HomesReply::Done,
            HomesCall::Claim(requests) => self.claim_in(session, requests, &mut heard).await?,
            HomesCall::Renew(claims) => HomesReply::Held(self.held(session, claims).await?),
            HomesCall::Release(claims) => {
                heard.is_news |= self.release_in(session, claims).await?;
                HomesReply::Done
            }
        };
        if heard.is_news {
            let claims = self.names().claims();
            let update = claims.update_one(doc! { "_id": VERSION }, doc! { "$inc": { "n": 1_i64 } });
            update.upsert(true).session(&mut *session).await?;
        }
        // What became of one that is not answered is found out by asking again: each call says what shall be.
        session.commit_transaction().await?;
        Ok(reply)
    }

    /// The hub is heard of. Gives the time, and whether others will hear that it has come back.
    async fn beat(&self, session: &mut ClientSession) -> Result<Heard, TransactError> {
        if self.has_left() {
            return Err(TransactError::Refused(HomesError::Unavailable("this hub has left".into())));
        }
        let hubs = self.names().hubs();
        let update = hubs
            .find_one_and_update(doc! { "_id": self.id() }, UpdateModifications::Pipeline(vec![self.sign()]));
        let hub = update.upsert(true).return_document(ReturnDocument::After).session(session).await?;
        let hub = hub.unwrap_or_default();
        let int = |field: &str| hub.get_i64(field).unwrap_or_default();
        let (now, before) = (int("beat"), int("before"));
        let is_news = before == i64::MIN || now - before >= self.options.ttl_ms as i64;
        Ok(Heard { now, is_news })
    }

    async fn claim_in(
        &self,
        session: &mut ClientSession,
        requests: &[ClaimRequest],
        heard: &mut Heard,
    ) -> Result<HomesReply, TransactError> {
        let mut residents = Residents::read(self.names(), session, requests).await?;
        let (mut replies, mut updates) = (Vec::with_capacity(requests.len()), Vec::new());
        let mut dead = BTreeSet::new();
        for ClaimRequest { topic, above } in requests {
            let Resident { hub, epoch } = residents.of(topic);
            match hub {
                Some(hub) if *hub == *self.id() && epoch > *above => {
                    replies.push(Ok(Claim { topic: topic.clone(), epoch, until: None }));
                    continue;
                }
                Some(hub) if *hub != *self.id() && residents.is_alive(&hub, heard.now) => {
                    replies.push(Err(HomesError::Elsewhere { topic: topic.clone(), hub: HubId(hub) }));
                    continue;
                }
                Some(hub) if *hub != *self.id() => drop(dead.insert(hub)),
                _ => {}
            }
            let epoch = Epoch(epoch.max(*above).0 + 1);
            let claim = doc! { "_id": topic.as_str(), "hub": self.id(), "epoch": epoch.0 as i64 };
            updates.push(doc! { "q": { "_id": topic.as_str() }, "u": claim, "upsert": true });
            residents.moved(topic, Resident { hub: Some(self.id().into()), epoch });
            replies.push(Ok(Claim { topic: topic.clone(), epoch, until: None }));
        }
        let took_over = !dead.is_empty();
        if took_over {
            // These meet their next beats, if those come in the same moment.
            let which = doc! { "_id": { "$in": dead.iter().map(|hub| &**hub).collect::<Vec<&str>>() } };
            let hubs = self.names().hubs();
            let fence = hubs.update_many(which, doc! { "$inc": { "lost": 1_i64 } });
            fence.session(&mut *session).await?;
        }
        if !updates.is_empty() {
            heard.is_news = true;
            self.update_claims(session, updates).await?;
        }
        Ok(HomesReply::Claimed { claims: replies, took_over })
    }

    async fn release_in(&self, session: &mut ClientSession, claims: &[Claim]) -> Result<bool, TransactError> {
        let freed = |claim: &Claim| {
            let which = doc! { "_id": claim.topic.as_str(), "hub": self.id(), "epoch": claim.epoch.0 as i64 };
            doc! { "q": which, "u": { "$set": { "hub": null } } }
        };
        Ok(self.update_claims(session, claims.iter().map(freed).collect()).await? > 0)
    }

    /// Changes claims, all by one command. Says how many were there to change.
    async fn update_claims(
        &self,
        session: &mut ClientSession,
        updates: Vec<Document>,
    ) -> Result<i32, TransactError> {
        if updates.is_empty() {
            return Ok(0);
        }
        let command = doc! { "update": self.names().name("claims"), "updates": updates };
        let answer = self.names().db().run_command(command).session(session).await?;
        match answer.get_array("writeErrors").ok().and_then(|errors| errors.first()) {
            // Somebody else has made one of them in the same moment.
            Some(_) => Err(TransactError::Failure(Failure::Conflict)),
            None => Ok(answer.get_i32("n").unwrap_or_default()),
        }
    }

    async fn held(&self, session: &mut ClientSession, claims: &[Claim]) -> Result<Vec<bool>, TransactError> {
        let topics: Vec<&str> = claims.iter().map(|claim| claim.topic.as_str()).collect();
        let filter = doc! { "_id": { "$in": topics }, "hub": self.id() };
        let from = self.names().claims();
        let mut found = from.find(filter).session(&mut *session).await?;
        let mut held = HashMap::new();
        while let Some(document) = found.next(session).await {
            let document = document?;
            if let (Ok(topic), Ok(epoch)) = (document.get_str("_id"), document.get_i64("epoch")) {
                held.insert(topic.to_owned(), epoch as u64);
            }
        }
        Ok(claims.iter().map(|claim| held.get(claim.topic.as_str()) == Some(&claim.epoch.0)).collect())
    }

    /// Ends what hubs that are dead have left under way, and forgets those that have been so for long. One that comes back says
    /// again which sessions it has.
    pub async fn bury(&self) -> Result<(), HomesError> {
        let hubs = self.names().hubs();
        let which = doc! { "_id": { "$ne": self.id() }, "$expr": { "$gte": [self.silence("$"), "$ttl"] } };
        let mut found = hubs.find(which).read_concern(ReadConcern::majority()).await.map_err(unavailable)?;
        while found.advance().await.map_err(unavailable)? {
            let hub = found.deserialize_current().map_err(unavailable)?;
            let (Some(id), Some(beat)) = (hub.get("_id"), hub.get("beat")) else { continue };
            let same = doc! { "_id": id, "beat": beat };
            let sessions = hub.get_array("sessions").cloned().unwrap_or_default();
            if !sessions.is_empty() {
                self.end(&sessions).await?;
                let ended = doc! { "$set": { "sessions": [] } };
                hubs.update_one(same.clone(), ended).await.map_err(unavailable)?;
            }
            let is_old = doc! { "$expr": { "$gte": [self.silence("$"), REMEMBERED_MS] } };
            hubs.delete_one(doc! { "$and": [same, is_old] }).await.map_err(unavailable)?;
        }
        Ok(())
    }

    async fn end(&self, sessions: &[Bson]) -> Result<(), HomesError> {
        let ids: Vec<Document> = sessions.iter().map(|id| doc! { "id": id }).collect();
        let ended = self.names().db().run_command(doc! { "killSessions": ids }).await;
        match ended {
            // Where this user may end no sessions but its own, those of other users end by themselves, after a while.
            Err(error) if code(&error) == Some(UNAUTHORIZED) => {
                tracing::warn!(
                    "ending the sessions of a hub that is gone takes the privilege killAnySession"
                );
                Ok(())
            }
            ended => ended.map(drop).map_err(unavailable),
        }
    }
}

/// What MongoDB answers to a user who may not do that.
const UNAUTHORIZED: i32 = 13;
