//! The hub: the stack put together, and all that a gateway may ask of it.
//!
//! There is one way in: everything that changes anything is a commit on the bus, and passes the layers that
//! [`Hub::assemble`] puts around the log, in the order in which they stand there. A layer never reaches around the bus to a
//! store, and whoever calls the hub never sees one. The log alone fixes the order of commits.

mod assembly;

use crate::backups::Backups;
use crate::bus::{Bus, BusError};
use crate::cleaning::{CleanError, Cleaning, SnapshotStatus, snapshots};
use crate::collections::Collections;
use crate::commits::{CommitAnswer, CommitRefused, CommitRequest, Commits, LeaseOf, Pending};
use crate::follow::{Follower, Resume, RoundsResume, TopicsFollower, TopicsQuery};
use crate::forgetting::{Forgetting, Forgotten};
use crate::groups::{
    Consumer, ConsumerOptions, Dedupe, ElsewhereShare, Group, GroupCall, GroupError, GroupName, Groups,
    Handler, LeaseToken, PledgedLeases, Replay, Replayed, ReplayedLetters, Subscription, growth_limit,
};
use crate::homes::{Claims, HubList, Place};
use crate::projections::{ProjectionError, Projections};
use crate::query::{Query, QueryError, QueryPosition, Reader, Token};
use crate::replays::Replays;
use crate::retry::Tries;
use crate::schemas::Schemas;
use crate::time_travel::TimeTravel;
use crate::topics::{self, NumberedTopic, TopicNumbers, TopicsWatch, kept_of};
pub use assembly::{HubOptions, Limits, Store};
use parking_lot::Mutex;
use prombus_core::{
    AboutHub, Append, Bounds, Clock, Commit, CommitError, CommitLimits, ConfigChange, Event, EventLog,
    HomesError, HubId, Kept, LiveHub, MadeFor, NewTopics, ReadError, Receipt, Sequence, StoreStatus, Ticket,
    TopicConfig, TopicName, TopicNumber, TopicPatch, TopicRef, TopicState, Watched,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{MutexGuard, watch};
use uuid::Uuid;

/// The stack put together. Cheap to clone.
#[derive(Clone)]
pub struct Hub {
    bus: Arc<dyn Bus>,
    store: Store,
    limits: Limits,
    claims: Arc<Claims>,
    groups: Arc<Groups>,
    collections: Arc<Collections>,
    projections: Arc<Projections>,
    commits: Arc<Commits>,
    cleaning: Arc<Cleaning>,
    replays: Arc<Replays>,
    backups: Arc<Backups>,
    schemas: Arc<Schemas>,
    /// The log as normalizing readers see it.
    normal_log: Arc<dyn EventLog>,
    clock: Arc<dyn Clock>,
    auto_create: bool,
    /// The settings of topics that the configuration names.
    new_topics: Arc<NewTopics>,
    topics: Arc<TopicsWatch>,
    /// The topics of leases, as far as they were looked up.
    known_topics: Arc<Mutex<TopicNumbers>>,
}

impl Hub {
    /// How large things may be.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Publishes events, all or none.
    pub async fn publish(&self, events: Vec<Append>) -> Result<Receipt, BusError> {
        self.bus.commit(Arc::new(events.into())).await
    }

    /// Gives a commit of events its place in the order: see [`Bus::enqueue`].
    pub async fn enqueue(&self, commit: &mut Arc<Commit>) -> Result<Ticket, BusError> {
        self.bus.enqueue(commit).await
    }

    /// The topic of that name.
    pub async fn topic(&self, name: &TopicName) -> Result<Option<TopicState>, ReadError> {
        self.store.log.topic(name).await
    }

    /// All topics, by name.
    pub async fn topics(&self) -> Result<Vec<TopicState>, ReadError> {
        self.store.log.topics().await
    }

    /// All topics, in the order in which they were made.
    pub async fn topic_numbers(&self) -> Result<TopicNumbers, ReadError> {
        topics::numbers(&*self.store.log).await
    }

    /// Tells when there are new topics. What it tells at first may be old.
    pub fn watch_topics(&self) -> watch::Receiver<TopicNumbers> {
        self.topics.subscribe()
    }

    /// What is kept of each partition of a topic.
    pub async fn kept(&self, topic: &TopicState) -> Result<Vec<Kept>, ReadError> {
        kept_of(&*self.store.log, topic).await
    }

    /// The first kept and the first unwritten offset of each partition of a topic.
    pub async fn bounds(&self, topic: &TopicState) -> Result<Vec<Bounds>, ReadError> {
        Ok(self.kept(topic).await?.into_iter().map(|kept| kept.bounds).collect())
    }

    /// Makes a topic, or changes the settings that `patch` names. Says whether it was made.
    pub async fn put_topic(
        &self,
        name: &TopicName,
        patch: TopicPatch,
    ) -> Result<(TopicState, bool), BusError> {
        self.put_topic_if(name, patch, |_| Ok(())).await
    }

    /// The same, if `may_copy` takes every topic that events of this one are copied to from then on (`dual_write`).
    pub async fn put_topic_if<E: From<BusError> + From<CommitError>>(
        &self,
        name: &TopicName,
        patch: TopicPatch,
        may_copy: impl Fn(&TopicName) -> Result<(), E> + Send + Sync,
    ) -> Result<(TopicState, bool), E> {
        let unavailable = |error: ReadError| CommitError::Unavailable(error.to_string());
        let mut tries = Tries::default();
        loop {
            let now = self.store.log.topic(name).await.map_err(unavailable)?;
            let made = now.is_none();
            let mut limits = CommitLimits::default();
            let before = now.as_ref().map(|now| now.config.clone());
            let before = before.unwrap_or_else(|| self.new_topics.config_of(name, MadeFor::Events));
            let config = patch.clone().apply(before);
            check_copies(name, &config)?;
            let keeps_snapshots = now.as_ref().is_some_and(|now| now.config.snapshot == config.snapshot);
            let change = match now {
                None => creation(name, config.clone())?,
                Some(state) => {
                    config.validate().map_err(BusError::BadConfig)?;
                    if name.is_internal() && config.partitions != state.config.partitions {
                        let message = "the hub's own topics always have one partition";
                        return Err(BusError::BadConfig(message.into()).into());
                    }
                    if config == state.config {
                        return Ok((state, false));
                    }
                    if config.dual_write && !state.config.dual_write {
                        // Whatever is registered meanwhile is another revision.
                        let copies = self.schemas.copies_of(&state).await.map_err(unavailable)?;
                        copies.iter().try_for_each(&may_copy)?;
                    }
                    if config.partitions > state.config.partitions {
                        let most = self.limits.group_partitions;
                        let limit = growth_limit(&*self.store.log, name, most).await;
                        limits.reader_partitions = limit.map_err(unavailable)?;
                    }
                    let (name, config) = (name.clone(), config.clone());
                    ConfigChange::AlterTopic { name, expect_revision: state.revision, config }
                }
            };
            // A snapshot topic that it has already was checked then, and is checked again by each pass that writes to it.
            let is_new = config.snapshot.is_some() && !keeps_snapshots;
            let allowed = if is_new { Some(self.allow_snapshots(name, &config).await?) } else { None };
            let snapshots = match &allowed {
                None => Ok(None),
                Some((_, topics)) => {
                    let topics = (&topics[..], &*self.new_topics);
                    let made = snapshots::make_target(&*self.store.log, topics, (name, &config)).await;
                    made.map_err(unavailable)?
                }
            };
            let snapshots = snapshots.map_err(BusError::BadConfig)?;
            let changes = [change].into_iter().chain(snapshots).collect();
            let commit = Commit { config: changes, limits, ..Commit::default() };
            match self.bus.commit(Arc::new(commit)).await {
                Err(error) => tries.again(error).await?,
                Ok(_) => match self.store.log.topic(name).await.map_err(unavailable)? {
                    Some(state) => return Ok((state, made)),
                    None => tries.look_again().await?,
                },
            }
        }
    }

    /// Refuses settings whose snapshots would lead back to their topic through projections. None is made or changed until
    /// what this gives is dropped. Gives all topics, too.
    async fn allow_snapshots(
        &self,
        name: &TopicName,
        config: &TopicConfig,
    ) -> Result<(MutexGuard<'_, bool>, Vec<TopicState>), BusError> {
        self.projections.allow_snapshots(name, config).await.map_err(|error| match error {
            ProjectionError::Bad(circle) => BusError::BadConfig(circle),
            error => CommitError::Unavailable(error.to_string()).into(),
        })
    }

    /// How far the snapshots of a topic have come, of which this much is [kept](Self::kept); `None` where it has none.
    pub async fn snapshots(
        &self,
        topic: &TopicState,
        kept: &[Kept],
    ) -> Result<Option<SnapshotStatus>, ReadError> {
        snapshots::status(&*self.store.log, topic, kept).await
    }

    /// Deletes a topic with its events and its schemas.
    pub async fn delete_topic(&self, name: &TopicName) -> Result<(), BusError> {
        let unavailable = |error: ReadError| CommitError::Unavailable(error.to_string());
        let mut tries = Tries::default();
        loop {
            let change = ConfigChange::DeleteTopic { name: name.clone() };
            let documents = self.schemas.removal(name).await.map_err(unavailable)?;
            let commit = Commit { config: vec![change], documents, ..Commit::default() };
            match self.bus.commit(Arc::new(commit)).await {
                Ok(_) => break,
                // There is nothing to delete.
                Err(error @ BusError::Commit(CommitError::TopicNotFound(_))) => return Err(error),
                // A schema was registered since, which is a change of the topic.
                Err(BusError::Commit(CommitError::VersionConflict { .. })) => {
                    tries.again(CommitError::TopicChanged(name.clone()).into()).await?;
                }
                Err(error) => tries.again(error).await?,
            }
        }
        self.schemas.forget_topic(name);
        self.groups.forget_topic(name);
        self.claims.give_up(name).await;
        Ok(())
    }

    /// The consumer groups.
    pub fn groups(&self) -> &Arc<Groups> {
        &self.groups
    }

    /// Sends dead letters of a topic back: to the groups and projections that failed them, or to the topic. Goes on when
    /// the caller gives up: what is under way must be known to the next one.
    pub async fn replay(&self, topic: &TopicName, replay: Replay) -> Result<Replayed, GroupError> {
        self.groups.replay(topic, replay, self.projections.clone()).await
    }

    /// Which of the dead letters in this topic, whose name starts with `dlq.`, were replayed.
    pub async fn replayed_letters(&self, letters: &TopicState) -> Result<ReplayedLetters, GroupError> {
        self.groups.replayed_letters(letters).await
    }

    /// The collections.
    pub fn collections(&self) -> &Arc<Collections> {
        &self.collections
    }

    /// The schemas.
    pub fn schemas(&self) -> &Arc<Schemas> {
        &self.schemas
    }

    /// The projections.
    pub fn projections(&self) -> &Arc<Projections> {
        &self.projections
    }

    /// What lets events of topics go.
    pub fn cleaning(&self) -> &Arc<Cleaning> {
        &self.cleaning
    }

    /// The bulk replays.
    pub fn replays(&self) -> &Arc<Replays> {
        &self.replays
    }

    /// Forgets a key: when this returns, none of the events that the topic had of it can be read in any way, nor their dead
    /// letters and snapshots, and the documents of that key are deleted that projections of the topic have made. Says how
    /// many events of the topic went. The key may be published again.
    ///
    /// Where other hubs have topics with copies, it is for whoever asks to go on there: see [`Self::forget_here`].
    pub async fn forget(&self, topic: &TopicName, key: &str) -> Result<u64, CleanError> {
        let forgotten = self.forget_here(topic, key, BTreeSet::new()).await?;
        forgotten.elsewhere.iter().try_for_each(|copies| self.claims.check_place(copies))?;
        Ok(forgotten.events)
    }

    /// Forgets a key in a topic that is at home here, and in those with its copies that are. Others are only named, and those where
    /// that was `done` already are passed over.
    pub async fn forget_here(
        &self,
        topic: &TopicName,
        key: &str,
        done: BTreeSet<TopicName>,
    ) -> Result<Forgotten, CleanError> {
        let forgetting = Forgetting {
            log: self.store.log.clone(),
            cleaning: self.cleaning.clone(),
            groups: self.groups.clone(),
            projections: self.projections.clone(),
            schemas: self.schemas.clone(),
            claims: self.claims.clone(),
        };
        forgetting.forget(topic, key, done).await
    }

    /// The topics with copies of events of a topic (`dual_write`) that [`Self::forget`] reaches.
    pub async fn topics_of_copies(&self, topic: &TopicName) -> Result<Vec<TopicName>, ReadError> {
        let mut waiting: Vec<TopicState> = self.topic(topic).await?.into_iter().collect();
        let mut found = Vec::new();
        while let Some(topic) = waiting.pop() {
            for name in self.schemas.copies_of(&topic).await? {
                if let Some(copies) = self.topic(&name).await? {
                    waiting.push(copies);
                    found.push(name);
                }
            }
        }
        Ok(found)
    }

    /// Copies of the store that are being made.
    pub fn backups(&self) -> &Arc<Backups> {
        &self.backups
    }

    /// The groups that leases belong to, in order; a lease that is none of this hub is
    /// [`CommitRefused::LeaseExpired`].
    pub fn leases(&self, leases: &[LeaseToken]) -> Result<Vec<LeaseOf>, CommitRefused> {
        self.groups.leases(leases)
    }

    /// Does all that a consumer asks for, or none of it.
    pub async fn commit(&self, request: CommitRequest) -> Result<CommitAnswer, CommitRefused> {
        self.enqueue_commit(request).await?.await
    }

    /// Gives all that a consumer asks for its place in the order.
    pub async fn enqueue_commit(
        &self,
        request: CommitRequest,
    ) -> Result<Pending<CommitAnswer>, CommitRefused> {
        self.enqueue_commit_across(request, Vec::new()).await
    }

    /// The same for a commit some of whose leases are of topics at home on other hubs.
    pub async fn enqueue_commit_across(
        &self,
        request: CommitRequest,
        elsewhere: Vec<ElsewhereShare>,
    ) -> Result<Pending<CommitAnswer>, CommitRefused> {
        self.commits.enqueue(request, elsewhere).await
    }

    /// Pledges leases to a commit that is done on another hub, all of them or none.
    pub async fn pledge(&self, leases: &[LeaseToken]) -> Result<PledgedLeases, CommitRefused> {
        self.groups.pledge(leases).await
    }

    /// A group of a topic, made where it does not exist. Says whether it was.
    pub async fn group(
        &self,
        topic: &TopicName,
        name: &GroupName,
        call: &GroupCall,
    ) -> Result<(Arc<Group>, bool), GroupError> {
        self.groups.get_or_make(topic, name, call).await
    }

    /// Has `handler` consume the events of a group, until the subscription is ended.
    pub async fn subscribe<H: Handler>(
        &self,
        topic: &TopicName,
        group: &GroupName,
        handler: H,
        options: ConsumerOptions,
    ) -> Result<Subscription, GroupError> {
        Consumer::new(self.groups.clone(), topic.clone(), group.clone(), handler, options).start().await
    }

    /// A handler that does no event twice, however often it is delivered. What was done is noted in `collection`.
    pub fn deduped<H: Handler>(&self, handler: H, collection: &str) -> Dedupe<H> {
        Dedupe::new(handler, collection.to_owned(), self.store.documents.clone(), self.bus.clone())
    }

    /// A reader of `topic` by `query`.
    pub async fn read(&self, topic: &TopicName, query: Query) -> Result<Reader, QueryError> {
        let state = self.existing(topic).await?;
        let log = self.log_for(&state, query.normalize).await?;
        Reader::new(log, state, query, QueryPosition::START)
    }

    /// A reader that goes on where a token says.
    pub async fn resume(&self, topic: &TopicName, token: &str) -> Result<Reader, QueryError> {
        let state = self.existing(topic).await?;
        let (query, place) = Token::decode(&state, token).await?;
        let log = self.log_for(&state, query.normalize).await?;
        Reader::new(log, state, query, place)
    }

    /// Follows `topic` from where `query` starts, or where `resume` says.
    pub async fn follow(
        &self,
        topic: &TopicName,
        query: Query,
        resume: Option<Resume>,
    ) -> Result<Follower, QueryError> {
        let state = self.existing(topic).await?;
        let log = self.log_for(&state, query.normalize).await?;
        Follower::new(log, state, query, resume).await
    }

    /// Follows all topics that match from where `query` starts, or where `resume` says.
    pub async fn follow_topics(
        &self,
        query: TopicsQuery,
        resume: Option<RoundsResume>,
    ) -> Result<TopicsFollower, QueryError> {
        let log = if query.normalize { &self.normal_log } else { &self.store.log };
        TopicsFollower::new((log.clone(), self.clock.clone()), query, resume).await
    }

    /// Whether topics come into being by their first publish.
    pub fn auto_create(&self) -> bool {
        self.auto_create
    }

    /// The log that a reader of a topic reads. One that normalizes is refused where it could not get through.
    async fn log_for(&self, topic: &TopicState, normalize: bool) -> Result<Arc<dyn EventLog>, ReadError> {
        if !normalize {
            return Ok(self.store.log.clone());
        }
        self.schemas.check_raising(topic).await?;
        Ok(self.normal_log.clone())
    }

    /// The same hub, whose reads by id and key give events as those of the latest version of their topic's schema.
    #[must_use]
    pub fn normalized(&self) -> Self {
        Self { store: Store { log: self.normal_log.clone(), ..self.store.clone() }, ..self.clone() }
    }

    async fn existing(&self, topic: &TopicName) -> Result<TopicState, ReadError> {
        self.store.log.topic(topic).await?.ok_or_else(|| ReadError::TopicNotFound(topic.clone()))
    }

    /// What was at a time.
    pub fn time_travel(&self) -> TimeTravel {
        let (log, clock) = (self.store.log.clone(), self.clock.clone());
        TimeTravel::new(log, self.projections.clone(), self.cleaning.clone(), clock)
    }

    /// The event with this id.
    pub async fn by_id(&self, topic: &TopicName, id: Uuid) -> Result<Option<Event>, ReadError> {
        self.store.log.by_id(&topic.into(), id).await
    }

    /// The latest event of a key.
    pub async fn latest_by_key(&self, topic: &TopicRef, key: &str) -> Result<Option<Event>, ReadError> {
        self.store.log.latest_by_key(topic, key).await
    }

    /// Waits until something of `of` has become visible after `after`, and says up to where.
    pub async fn changed(&self, of: &Watched, after: Sequence) -> Sequence {
        self.store.log.changed(of, after).await
    }

    /// Takes part with the other hubs that use the same store, of which this one is heard every `beat`.
    pub async fn take_part(&self, about: AboutHub, beat: Duration) -> Result<(), HomesError> {
        self.claims.take_part(about, beat).await
    }

    /// The other hubs that take part, whether or not this one does.
    pub async fn other_hubs(&self) -> Result<Vec<LiveHub>, HomesError> {
        self.claims.others().await
    }

    /// Hands all topics over to the other hubs, and has no more of them; what is asked of this hub goes on.
    pub async fn leave(&self) {
        self.claims.leave_others().await;
    }

    /// The name of this hub among others.
    pub fn id(&self) -> &HubId {
        self.claims.id()
    }

    /// Where a topic belongs.
    pub fn place(&self, topic: &TopicName) -> Place {
        self.claims.place(topic)
    }

    /// The hubs that take part, and word of every change; none where this one is alone.
    pub fn hubs(&self) -> watch::Receiver<HubList> {
        self.claims.hubs()
    }

    /// How many topics are claimed by this hub.
    pub fn claimed_topics(&self) -> usize {
        self.claims.count()
    }

    /// The topics whose leases these are, each once; of those that are gone, nothing.
    pub async fn topics_of(&self, leases: &[LeaseToken]) -> Result<Vec<NumberedTopic>, ReadError> {
        let mut numbers: Vec<TopicNumber> = leases.iter().map(LeaseToken::topic).collect();
        numbers.sort_unstable();
        numbers.dedup();
        if numbers.is_empty() {
            return Ok(Vec::new());
        }
        let known = self.known_topics.lock().clone();
        let name = |topics: &TopicNumbers, number: &TopicNumber| {
            let at = topics.binary_search_by_key(number, |topic| topic.number).ok()?;
            Some(topics[at].clone())
        };
        let names: Vec<NumberedTopic> = numbers.iter().filter_map(|number| name(&known, number)).collect();
        if names.len() == numbers.len() {
            return Ok(names);
        }
        // A topic that is made anew has another number, so what was known stays true.
        let now = self.topic_numbers().await?;
        *self.known_topics.lock() = now.clone();
        Ok(numbers.iter().filter_map(|number| name(&now, number)).collect())
    }

    /// How the store is doing.
    pub fn status(&self) -> StoreStatus {
        self.store.log.status()
    }

    /// Lets nothing wait any more that has no place in the order yet, so that whoever waits is answered before the hub
    /// ends: pulls with what there is, commits over large documents with [`CommitError::Unavailable`].
    pub fn stop_waiting(&self) {
        self.groups.stop_waiting();
        self.commits.stop_waiting();
    }

    /// Takes no more commits and makes everything durable.
    pub async fn close(&self) {
        self.stop_waiting();
        self.groups.close();
        self.backups.close();
        self.replays.close().await;
        self.cleaning.close().await;
        self.projections.close().await;
        self.claims.close().await;
        self.store.log.close().await;
    }
}

/// Refuses a topic whose events cannot be copied although they are to be.
fn check_copies(name: &TopicName, config: &TopicConfig) -> Result<(), BusError> {
    if config.dual_write && name.of_version(u32::MAX).is_none() {
        return Err(BusError::BadConfig(format!(
            "the name of topic {name} is too long for dual_write: copies of its events go to topics with .v and a version added to it"
        )));
    }
    Ok(())
}

fn creation(name: &TopicName, config: TopicConfig) -> Result<ConfigChange, BusError> {
    if name.is_internal() {
        return Err(BusError::ReservedTopic(name.clone()));
    }
    config.validate().map_err(BusError::BadConfig)?;
    Ok(ConfigChange::CreateTopic { name: name.clone(), config })
}
