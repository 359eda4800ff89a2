//! One hub among those that use a database: what it changes there of itself and of its claims, each in one transaction by
//! which it is also heard of.
//!
//! All its transactions are in one session, as those of the writer are in another. Both are in the hub's document before they
//! are used, so that those who take over can end what a hub that is gone has left under way: its locks would be in their way
//! for as long as its sessions outlive it.

use super::residents::{Resident, Residents};
use super::version::{self, VERSION};
use super::{HomesOptions, HomesTime, unavailable};
use crate::failure::{Failure, NO_PRIMARY, code};
use crate::names::Names;
use crate::pause;
use crate::primary::PrimaryLost;
use crate::shared::Shared;
use mongodb::ClientSession;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, Document, doc};
use mongodb::options::{
    Acknowledgment, ReadConcern, ReadPreference, ReturnDocument, SelectionCriteria, UpdateModifications,
    WriteConcern,
};
use prombus_core::{AboutHub, Claim, ClaimRequest, Epoch, HomesError, HubId, LiveHub, TopicName};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use tokio::sync::Mutex;

/// For so long a hub that is gone is remembered.
const REMEMBERED_MS: i64 = 24 * 3_600_000;
/// After how many conflicts it is looked whether it is a dead hub that is in the way.
const CONFLICTS_TILL_BURIAL: u32 = 3;

/// One hub, and how it reaches the others.
pub(crate) struct Hub {
    shared: Arc<Shared>,
    options: HomesOptions,
    /// What it says of itself, once it takes part.
    about: parking_lot::Mutex<Option<AboutHub>>,
    session: Mutex<ClientSession>,
}

/// What a hub does in one transaction, after it was heard of.
pub enum HomesCall<'a> {
    Claim(&'a [ClaimRequest]),
    Renew(&'a [Claim]),
    /// To another hub, or to nobody.
    Give(&'a [Claim], Option<&'a HubId>),
    /// Others hear that it takes part.
    Join,
    /// It is heard of no more.
    Leave,
}

/// What came of it: the claims, without their ends; or which claims still hold.
pub enum HomesReply {
    Claimed { claims: Vec<Result<Claim, HomesError>>, took_over: bool },
    Held(Vec<bool>),
    Done,
}

/// What a transaction knows of the time, and of what others have to hear.
#[derive(Default)]
struct Heard {
    now: i64,
    is_news: bool,
    /// The version that it makes, where it is news.
    version: Option<i64>,
}

impl Hub {
    /// A hub comes: it is alive from now on for its time to live.
    pub async fn come(shared: Arc<Shared>, options: HomesOptions) -> Result<Self, HomesError> {
        let session = shared.names.db().client().start_session().await.map_err(unavailable)?;
        shared.is_own(session.id());
        let about = parking_lot::Mutex::default();
        let hub = Self { shared, options, about, session: Mutex::new(session) };
        // Outside of any session: from here on they can be ended.
        let majority = WriteConcern::builder().w(Acknowledgment::Majority).build();
        let hubs = hub.names().hubs();
        let update =
            hubs.update_one(doc! { "_id": hub.name() }, UpdateModifications::Pipeline(vec![hub.sign()]));
        update.upsert(true).write_concern(majority.clone()).await.map_err(unavailable)?;
        let claims = hub.names().claims();
        let bump = claims.update_one(doc! { "_id": VERSION }, doc! { "$inc": { "n": 1_i64 } });
        bump.upsert(true).write_concern(majority).await.map_err(unavailable)?;
        Ok(hub)
    }

    pub fn names(&self) -> &Names {
        &self.shared.names
    }

    pub fn id(&self) -> &HubId {
        &self.options.hub
    }

    fn name(&self) -> &str {
        &self.options.hub.0
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
        let about = self.about.lock().as_ref().map_or(Bson::Null, |AboutHub { url, version, mark }| {
            let said = doc! { "url": &**url, "version": &**version, "mark": &**mark };
            Bson::Document(doc! { "$literal": said })
        });
        // One whose time was over comes anew.
        let was_there = doc! { "$and": [
            { "$eq": [{ "$type": "$about" }, "object"] },
            { "$lt": [self.silence("$"), self.options.ttl_ms as i64] },
        ] };
        doc! { "$set": {
            "before": { "$ifNull": ["$beat", i64::MIN] },
            "beat": self.now(),
            "ttl": self.options.ttl_ms as i64,
            "since": { "$cond": [was_there, "$since", self.now()] },
            "about": about,
            "sessions": sessions.collect::<Vec<Bson>>(),
        } }
    }

    /// The hub takes part, or says something else of itself.
    pub async fn join(&self, about: AboutHub) -> Result<(), HomesError> {
        *self.about.lock() = Some(about);
        self.call(HomesCall::Join).await.map(drop)
    }

    /// The hub goes: what it has is free at once, and it takes part no more, also where it is heard of once again.
    pub async fn leave(&self) -> Result<(), HomesError> {
        *self.about.lock() = None;
        self.call(HomesCall::Leave).await.map(drop)
    }

    async fn leave_in(&self, session: &mut ClientSession) -> Result<(), Failure> {
        let at = self.bump(session).await?;
        let claims = self.names().claims();
        let free = doc! { "$set": { "hub": null, "at": at } };
        claims.update_many(doc! { "hub": self.name() }, free).session(&mut *session).await?;
        self.names().hubs().delete_one(doc! { "_id": self.name() }).session(session).await?;
        Ok(())
    }

    /// One change more, of which others hear. Everything that changes hands carries its number.
    async fn bump(&self, session: &mut ClientSession) -> Result<i64, Failure> {
        let claims = self.names().claims();
        let update = claims.find_one_and_update(doc! { "_id": VERSION }, doc! { "$inc": { "n": 1_i64 } });
        let bumped = update.upsert(true).return_document(ReturnDocument::After).session(session).await?;
        Ok(bumped.and_then(|bumped| bumped.get_i64("n").ok()).unwrap_or_default())
    }

    /// The number of this change.
    async fn version(&self, session: &mut ClientSession, heard: &mut Heard) -> Result<i64, Failure> {
        let version = match heard.version {
            Some(version) => version,
            None => self.bump(session).await?,
        };
        heard.version = Some(version);
        Ok(version)
    }

    /// Makes a transaction until it is committed, or refused, or nobody answers for too long.
    pub async fn call(&self, call: HomesCall<'_>) -> Result<HomesReply, HomesError> {
        // Those who have given up waiting leave nothing under way: the next transaction in the session ends it.
        self.answer(self.try_call(call)).await
    }

    /// What the database answers, unless that takes too long or its primary is lost meanwhile.
    pub async fn answer<T>(
        &self,
        asked: impl Future<Output = Result<T, HomesError>>,
    ) -> Result<T, HomesError> {
        let answer = self.shared.primary.unless_lost(None, asked);
        match tokio::time::timeout(self.shared.wait, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(PrimaryLost)) | Err(_) => Err(HomesError::Unavailable(NO_PRIMARY.into())),
        }
    }

    async fn try_call(&self, call: HomesCall<'_>) -> Result<HomesReply, HomesError> {
        // One after another, so that what is under way when the hub leaves does not come after that.
        let mut session = self.session.lock().await;
        for tries in 0..pause::TRIES {
            let failure = match self.attempt(&mut session, &call).await {
                Ok(reply) => return Ok(reply),
                Err(failure) => failure,
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

    async fn begin(&self, session: &mut ClientSession) -> Result<(), Failure> {
        // One whose caller has gone away may be under way.
        let _ = session.abort_transaction().await;
        let started = session
            .start_transaction()
            .read_concern(ReadConcern::snapshot())
            .write_concern(WriteConcern::builder().w(Acknowledgment::Majority).build())
            .selection_criteria(SelectionCriteria::ReadPreference(ReadPreference::Primary));
        Ok(started.await?)
    }

    async fn attempt(
        &self,
        session: &mut ClientSession,
        call: &HomesCall<'_>,
    ) -> Result<HomesReply, Failure> {
        self.begin(session).await?;
        let mut heard = match call {
            HomesCall::Leave => Heard::default(),
            _ => self.beat(session).await?,
        };
        let reply = match call {
            HomesCall::Leave => {
                self.leave_in(session).await?;
                HomesReply::Done
            }
            HomesCall::Join => {
                heard.is_news = true;
                HomesReply::Done
            }
            HomesCall::Claim(requests) => self.claim_in(session, requests, &mut heard).await?,
            HomesCall::Renew(claims) => {
                let held = self.held(session, claims).await?;
                HomesReply::Held(claims.iter().map(|claim| held.contains(&claim.topic)).collect())
            }
            HomesCall::Give(claims, to) => {
                self.give_in(session, (claims, *to), &mut heard).await?;
                HomesReply::Done
            }
        };
        if heard.is_news {
            self.version(session, &mut heard).await?;
        }
        // What became of one that is not answered is found out by asking again: each call says what shall be.
        session.commit_transaction().await?;
        Ok(reply)
    }

    /// The hub is heard of. Gives the time, and whether others will hear that it has come back.
    async fn beat(&self, session: &mut ClientSession) -> Result<Heard, Failure> {
        let hubs = self.names().hubs();
        let update = hubs.find_one_and_update(
            doc! { "_id": self.name() },
            UpdateModifications::Pipeline(vec![self.sign()]),
        );
        let hub = update.upsert(true).return_document(ReturnDocument::After).session(session).await?;
        let hub = hub.unwrap_or_default();
        let int = |field: &str| hub.get_i64(field).unwrap_or_default();
        let (now, before) = (int("beat"), int("before"));
        let is_news = before == i64::MIN || now - before >= self.options.ttl_ms as i64;
        Ok(Heard { now, is_news, version: None })
    }

    async fn claim_in(
        &self,
        session: &mut ClientSession,
        requests: &[ClaimRequest],
        heard: &mut Heard,
    ) -> Result<HomesReply, Failure> {
        let mut residents = Residents::read(self.names(), session, requests).await?;
        let (mut replies, mut claimed) = (Vec::with_capacity(requests.len()), Vec::new());
        let mut dead = BTreeSet::new();
        for ClaimRequest { topic, above } in requests {
            let Resident { hub, epoch } = residents.of(topic);
            match hub {
                Some(hub) if *hub == *self.name() && epoch > *above => {
                    replies.push(Ok(Claim { topic: topic.clone(), epoch, until: None }));
                    continue;
                }
                Some(hub) if *hub != *self.name() && residents.is_alive(&hub, heard.now) => {
                    replies.push(Err(HomesError::Elsewhere { topic: topic.clone(), hub: HubId(hub) }));
                    continue;
                }
                Some(hub) if *hub != *self.name() => drop(dead.insert(hub)),
                _ => {}
            }
            let epoch = Epoch(epoch.max(*above).0 + 1);
            claimed.push((topic, epoch));
            residents.moved(topic, Resident { hub: Some(self.name().into()), epoch });
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
        if !claimed.is_empty() {
            let at = self.version(session, heard).await?;
            let update = |(topic, epoch): (&TopicName, Epoch)| {
                let claim =
                    doc! { "_id": topic.as_str(), "hub": self.name(), "epoch": epoch.0 as i64, "at": at };
                doc! { "q": { "_id": topic.as_str() }, "u": claim, "upsert": true }
            };
            self.update_claims(session, claimed.into_iter().map(update).collect()).await?;
        }
        Ok(HomesReply::Claimed { claims: replies, took_over })
    }

    /// Gives away what the hub still has of these.
    async fn give_in(
        &self,
        session: &mut ClientSession,
        (claims, to): (&[Claim], Option<&HubId>),
        heard: &mut Heard,
    ) -> Result<(), Failure> {
        let held = self.held(session, claims).await?;
        if held.is_empty() {
            return Ok(());
        }
        let (at, to) = (self.version(session, heard).await?, to.map(|to| &*to.0));
        let given = |claim: &&Claim| held.contains(&claim.topic);
        let update = |claim: &Claim| {
            // Whoever gets it is another home.
            let epoch = claim.epoch.0 as i64 + i64::from(to.is_some());
            let set = doc! { "hub": to, "epoch": epoch, "at": at };
            doc! { "q": { "_id": claim.topic.as_str() }, "u": { "$set": set } }
        };
        self.update_claims(session, claims.iter().filter(given).map(update).collect()).await
    }

    /// Changes claims, all by one command.
    async fn update_claims(
        &self,
        session: &mut ClientSession,
        updates: Vec<Document>,
    ) -> Result<(), Failure> {
        let command = doc! { "update": self.names().name("claims"), "updates": updates };
        let answer = self.names().db().run_command(command).session(session).await?;
        match answer.get_array("writeErrors").ok().and_then(|errors| errors.first()) {
            // Somebody else has made one of them in the same moment.
            Some(_) => Err(Failure::Conflict),
            None => Ok(()),
        }
    }

    /// Which of the claims the hub still has.
    async fn held(
        &self,
        session: &mut ClientSession,
        claims: &[Claim],
    ) -> Result<HashSet<TopicName>, Failure> {
        let epochs: HashMap<&str, u64> =
            claims.iter().map(|claim| (claim.topic.as_str(), claim.epoch.0)).collect();
        let topics: Vec<&str> = epochs.keys().copied().collect();
        let from = self.names().claims();
        let find = from.find(doc! { "_id": { "$in": topics }, "hub": self.name() });
        let mut found = find.session(&mut *session).await?;
        let mut held = HashSet::new();
        while let Some(document) = found.next(session).await {
            let document = document?;
            let (Ok(topic), Ok(epoch)) = (document.get_str("_id"), document.get_i64("epoch")) else {
                continue;
            };
            if epochs.get(topic) == Some(&(epoch as u64)) {
                held.extend(TopicName::parse(topic).ok());
            }
        }
        Ok(held)
    }

    /// Ends what hubs that are dead have left under way, and forgets those that have been so for long. One that comes back says
    /// again which sessions it has.
    pub async fn bury(&self) -> Result<(), HomesError> {
        let hubs = self.names().hubs();
        let which = doc! { "_id": { "$ne": self.name() }, "$expr": { "$gte": [self.silence("$"), "$ttl"] } };
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

/// The hub of a document.
pub fn live_hub(of: &Document) -> Option<LiveHub> {
    let about = of.get_document("about").ok()?;
    let said = |field: &str| about.get_str(field).ok().map(Arc::from);
    let about = AboutHub { url: said("url")?, version: said("version")?, mark: said("mark")? };
    let since_ms = of.get_i64("since").ok()?.try_into().ok()?;
    Some(LiveHub { id: HubId(of.get_str("_id").ok()?.into()), about, since_ms })
}
