//! All groups of a hub: found, made, listed, deleted. A group is loaded when it is first asked for, under the home of its
//! topic, and goes with that.

use super::ahead::ReadAhead;
use super::group::{Group, GroupContext, Loaded};
use super::lease::{Leases, Session};
use super::metrics::GroupTimes;
use super::options::{GroupName, GroupOptions, OptionsPatch};
use super::seats::Seats;
use super::{GroupError, places, stored};
use crate::homes::{Home, HomeObserver};
use crate::layers::{RemovalObserver, RemovedEvents};
use crate::query::From;
use crate::retry::Tries;
use crate::turns::Turns;
use prombus_core::{
    Commit, CommitLimits, ConfigChange, Epoch, HomesError, MadeFor, NewTopics, ReadError, TopicName,
    TopicState,
};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// Maximum number of groups of a topic.
const MAX_GROUPS: usize = 10_000;

/// What a caller says of a group that may have to be made.
#[derive(Debug, Clone)]
pub struct GroupCall {
    /// Where a new group starts.
    pub from: From,
    /// What it wants the group to be.
    pub options: OptionsPatch,
}

impl Default for GroupCall {
    fn default() -> Self {
        Self { from: From::Latest, options: OptionsPatch::default() }
    }
}

/// All groups of a hub.
pub struct Groups {
    pub(super) hub: Arc<GroupContext>,
    /// How topics come into being by their first group; `None` where they don't.
    auto_create: Option<Arc<NewTopics>>,
    seats: Seats,
    /// Replays of a topic are one after another, because each must know what the others have replayed.
    replaying: Turns,
}

impl Groups {
    /// The groups of a store.
    pub fn new(hub: GroupContext, auto_create: Option<Arc<NewTopics>>) -> Arc<Self> {
        let groups = Arc::new(Self {
            hub: Arc::new(hub),
            auto_create,
            seats: Seats::default(),
            replaying: Turns::default(),
        });
        let observer: Weak<Self> = Arc::downgrade(&groups);
        groups.hub.claims.add_observer(observer);
        groups
    }

    /// What all groups together hold of events that were read and not delivered yet.
    pub fn read_ahead(&self) -> &ReadAhead {
        &self.hub.read_ahead
    }

    /// What is measured of all groups together.
    pub fn times(&self) -> &Arc<GroupTimes> {
        self.seats.times()
    }

    /// The group whose leases name this session.
    pub(super) fn with_session(&self, session: Session) -> Option<Arc<Group>> {
        self.seats.with_session(session)
    }

    /// The next time that a group is loaded, its topic gets a later epoch than any of its cursors has.
    pub(super) fn is_ours_no_more(&self, group: &Group) {
        // Where there is another topic of that name, this group is no more, and neither are its cursors.
        if let Ok(slot) = self.seats.slot(&group.topic, &group.name) {
            slot.is_ours.store(false, Ordering::Release);
        }
    }

    /// A group that exists.
    pub async fn find(&self, topic: &TopicName, name: &GroupName) -> Result<Arc<Group>, GroupError> {
        let state = self.hub.log.topic(topic).await?;
        let state = state.ok_or_else(|| ReadError::TopicNotFound(topic.clone()))?;
        match self.load(&state, name).await? {
            Some(group) => Ok(group),
            None => {
                self.seats.forget(topic, name);
                Err(GroupError::NotFound { topic: topic.to_string(), group: name.to_string() })
            }
        }
    }

    async fn load(&self, topic: &TopicState, name: &GroupName) -> Result<Option<Arc<Group>>, GroupError> {
        let slot = self.seats.slot(topic, name)?;
        if let Some(group) = slot.loaded()
            && group.follow().await?
        {
            return Ok(Some(group));
        }
        let _busy = slot.busy.lock().await;
        if let Some(group) = slot.loaded() {
            return Ok(Some(group));
        }
        let Some(stored) = stored::load(&*self.hub.log, topic, name).await? else { return Ok(None) };
        // Leases of an earlier life of the hub must not be those of this one.
        let is_ours = slot.is_ours.load(Ordering::Acquire);
        let above = Epoch(stored.epoch.0.saturating_sub(u64::from(is_ours)));
        let home = self.hub.claims.home(&topic.name, above).await?;
        slot.is_ours.store(true, Ordering::Release);
        let session = Session { topic: topic.number, epoch: home.epoch(), seat: slot.seat };
        // One that was loaded before gives no more leases, and none that it has given is valid.
        let next = slot.group.lock().as_ref().map_or(0, |before| before.locked().leases.next_number());
        let (options_version, metrics) = (stored.options_version, slot.metrics.clone());
        let state = stored.into_state(topic, Leases::new(session, next), metrics.clone());
        let (topic, name) = (topic.clone(), name.clone());
        let loaded = Loaded { topic, name, home, options_version, state, metrics };
        let group = Arc::new(Group::new(self.hub.clone(), loaded));
        // Partitions that came since are not stored yet.
        group.wake_keeper();
        *slot.group.lock() = Some(group.clone());
        // From here on it is told of what is given up.
        group.look_what_is_kept().await;
        Ok(Some(group))
    }

    /// A group, made where it does not exist. Says whether it was.
    pub async fn get_or_make(
        &self,
        topic: &TopicName,
        name: &GroupName,
        call: &GroupCall,
    ) -> Result<(Arc<Group>, bool), GroupError> {
        let mut tries = Tries::default();
        loop {
            let state = self.hub.log.topic(topic).await?;
            if let Some(state) = &state
                && let Some(group) = self.load(state, name).await?
            {
                call.options.agrees_with(&group.options())?;
                group.raiser(state).await?;
                return Ok((group, false));
            }
            let again = match self.make(topic, state, name, call).await {
                Ok(()) => {
                    let state = self.hub.log.topic(topic).await?;
                    if let Some(state) = state
                        && let Some(group) = self.load(&state, name).await?
                    {
                        return Ok((group, true));
                    }
                    tries.look_again().await
                }
                Err(GroupError::Bus(error)) => tries.again(error).await,
                Err(error) => {
                    self.seats.forget(topic, name);
                    return Err(error);
                }
            };
            again.inspect_err(|_| self.seats.forget(topic, name))?;
        }
    }

    /// The group of a consumer that had it before: with the options that it has by now, which may have been changed
    /// since, and made anew where it is gone.
    pub async fn rejoin(
        &self,
        topic: &TopicName,
        name: &GroupName,
        call: &GroupCall,
    ) -> Result<Arc<Group>, GroupError> {
        match self.find(topic, name).await {
            Err(GroupError::NotFound { .. } | GroupError::Query(_)) => {
                Ok(self.get_or_make(topic, name, call).await?.0)
            }
            found => found,
        }
    }

    async fn make(
        &self,
        topic: &TopicName,
        state: Option<TopicState>,
        name: &GroupName,
        call: &GroupCall,
    ) -> Result<(), GroupError> {
        let options = call.options.apply(&GroupOptions::default());
        options.validate().await?;
        let (config, starts) = match &state {
            Some(state) => {
                if options.normalize {
                    self.hub.raisers.of(state).await?;
                }
                if stored::group_names(&*self.hub.log, topic).await?.len() >= MAX_GROUPS {
                    let message = format!("topic {topic} has {MAX_GROUPS} groups, which is the maximum");
                    return Err(GroupError::BadOption(message));
                }
                (Vec::new(), places::starts(&*self.hub.log, state, call.from).await?)
            }
            None => {
                let missing = || ReadError::TopicNotFound(topic.clone());
                let new_topics =
                    self.auto_create.as_ref().filter(|_| !topic.is_internal()).ok_or_else(missing)?;
                let config = new_topics.config_of(topic, MadeFor::Events);
                let starts = vec![0; config.partitions as usize];
                (vec![ConfigChange::CreateTopic { name: topic.clone(), config }], starts)
            }
        };
        let epoch = self.hub.claims.home(topic, Epoch(0)).await?.epoch();
        let incarnation = state.as_ref().map(|state| state.number);
        let new = stored::NewGroup { topic, incarnation, group: name, epoch };
        let cursors = stored::creation(&new, &options, &starts);
        let limits = CommitLimits {
            reader_partitions: Some(stored::partitions(self.hub.most_partitions)),
            ..CommitLimits::default()
        };
        let made =
            self.hub.bus.commit(Arc::new(Commit { config, cursors, limits, ..Commit::by_hub() })).await;
        if made.is_err() && state.is_none() {
            // Nobody else asks for a topic that does not exist, and there may be any number of them.
            self.hub.claims.give_up(topic).await;
        }
        made?;
        if let Some(state) = self.hub.log.topic(topic).await? {
            // Its cursors have the epoch that its leases will have: nobody else has given any.
            self.seats.slot(&state, name)?.is_ours.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// All groups of a topic, by name. One that cannot be read is left out, and the log says why.
    pub async fn list(&self, topic: &TopicState) -> Vec<Arc<Group>> {
        let mut groups = Vec::new();
        for name in stored::group_names(&*self.hub.log, &topic.name).await.unwrap_or_default() {
            match self.load(topic, &name).await {
                Ok(group) => groups.extend(group),
                Err(error) => {
                    tracing::warn!(topic = %topic.name, group = %name, %error, "skipping a group that cannot be loaded")
                }
            }
        }
        groups
    }

    /// Forgets a group with everything that is stored of it.
    pub async fn delete(&self, topic: &TopicName, name: &GroupName) -> Result<(), GroupError> {
        let group = match self.find(topic, name).await {
            // What cannot be read can be deleted all the same.
            Err(GroupError::Failed(_)) => None,
            found => Some(found?),
        };
        let state =
            self.hub.log.topic(topic).await?.ok_or_else(|| ReadError::TopicNotFound(topic.clone()))?;
        let slot = self.seats.slot(&state, name)?;
        // Nobody loads it again before it is gone.
        let busy = slot.busy.lock().await;
        let gone = || GroupError::NotFound { topic: topic.to_string(), group: name.to_string() };
        if let Some(group) = &group {
            // Those who wait for a commit that is under way hear what came of it.
            let writing = group.writing.lock().await;
            group.fail(gone());
            drop(writing);
            group.until_keeper_ended().await;
        }
        // A commit that settles leases of it ends first: it must not meet a group that is made anew.
        let _writing = match &group {
            Some(group) => Some(group.writing.lock().await),
            None => None,
        };
        let mut tries = Tries::default();
        let outcome = loop {
            let Some(state) = self.hub.log.topic(topic).await? else { return Err(gone()) };
            let mut cursors = stored::removal(&*self.hub.log, &state, name).await?;
            let Some(latest) = cursors.iter().map(|step| step.epoch.0).max() else { return Err(gone()) };
            let epoch = self.hub.claims.home(topic, Epoch(latest.saturating_sub(1))).await?.epoch();
            cursors.iter_mut().for_each(|step| step.epoch = epoch);
            match self.hub.bus.commit(Arc::new(Commit { cursors, ..Commit::by_hub() })).await {
                Ok(_) => break Ok(()),
                Err(error) => {
                    if let Err(error) = tries.again(error).await {
                        break Err(error.into());
                    }
                }
            }
        };
        drop(busy);
        drop(slot);
        self.seats.forget(topic, name);
        outcome
    }

    /// The turn at replays of a topic's dead letters: none goes back while it is held.
    pub(crate) async fn replaying_turn(&self, topic: &TopicName) -> tokio::sync::OwnedMutexGuard<()> {
        self.replaying.of(topic).lock_owned().await
    }

    /// Waits until the groups of a topic have written what they are writing: dead letters of events that were given up
    /// before this was called are there then, or never will be.
    pub(crate) async fn until_written(&self, topic: &TopicName) {
        for group in self.seats.loaded_of(topic) {
            drop(group.writing.lock().await);
        }
    }

    /// The topic is gone, and its groups with it.
    pub fn forget_topic(&self, topic: &TopicName) {
        for group in self.seats.forget_topic(topic) {
            group.fail(ReadError::TopicNotFound(topic.clone()).into());
        }
    }

    /// Lets pulls wait no more, so that those who wait get their answer before the hub ends.
    pub fn stop_waiting(&self) {
        self.hub.closing.store(true, Ordering::Release);
        self.seats.loaded().iter().for_each(|group| group.more.notify_waiters());
    }

    /// Whether pulls wait no more.
    pub(super) fn is_closing(&self) -> bool {
        self.hub.closing.load(Ordering::Acquire)
    }

    /// Ends all groups: those who wait hear of it.
    pub fn close(&self) {
        self.stop_waiting();
        for group in self.seats.loaded() {
            group.fail(GroupError::Failed("the hub is closing".into()));
        }
    }
}

impl RemovalObserver for Groups {
    fn events_removed(&self, events: &RemovedEvents) {
        self.seats.loaded_of(&events.topic).iter().for_each(|group| group.events_removed(events));
    }
}

impl HomeObserver for Groups {
    fn evict(&self, home: &Arc<Home>) {
        for group in self.seats.loaded_of(home.topic()) {
            if Arc::ptr_eq(&group.home, home) {
                group.fail(HomesError::Lost(home.topic().clone()).into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bus::LogBus;
    use crate::homes::Claims;
    use crate::hub::Limits;
    use crate::layers::{Checks, SchemaChecks};
    use parking_lot::MutexGuard;
    use prombus_core::{ManualClock, MemoryHomes, TopicNumber};
    use prombus_store_memory::MemoryStore;
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc;
    use std::time::Duration;

    /// Long enough for what must happen, on any machine.
    const LONG: Duration = Duration::from_secs(25);

    fn groups() -> Arc<Groups> {
        let clock = Arc::new(ManualClock::at(1_754_683_200_000));
        let log = Arc::new(MemoryStore::new(clock.clone(), 1));
        let (bus, closing) = (Arc::new(LogBus(log.clone())), AtomicBool::new(false));
        let read_ahead = Arc::new(ReadAhead::new(0));
        let claims = Claims::new(Arc::new(MemoryHomes::alone(clock.clone())), clock.clone());
        let schemas = crate::schemas::Shared::new(log.clone(), log.clone(), usize::MAX);
        let schema_checks = SchemaChecks::new(&schemas, Arc::default());
        let raisers = schemas.raisers;
        let checks = Checks { limits: Limits::default(), clock: clock.clone() };
        let most_partitions = usize::MAX;
        Groups::new(
            GroupContext {
                log,
                bus,
                clock,
                claims,
                read_ahead,
                checks,
                schema_checks,
                most_partitions,
                raisers,
                closing,
            },
            Some(Arc::default()),
        )
    }

    /// A lease names its session, so no group is asked whose it is: all of them are held here, and one that is made up
    /// is refused all the same.
    #[tokio::test]
    async fn a_lease_is_asked_of_no_group() {
        let (groups, topic) = (groups(), TopicName::parse("t").unwrap());
        let mut all = Vec::new();
        for name in ["a", "b", "c"] {
            let name = GroupName::parse(name).unwrap();
            all.push(groups.get_or_make(&topic, &name, &GroupCall::default()).await.unwrap().0);
        }
        let known: Vec<Session> = all.iter().map(|group| group.locked().leases.session()).collect();
        let mut sessions = known.clone();
        let [seat, epoch, number] = [known[0]; 3];
        sessions.push(Session { seat: 99, ..seat });
        sessions.push(Session { epoch: Epoch(epoch.epoch.0 + 1), ..epoch });
        sessions.push(Session { topic: TopicNumber(99), ..number });
        let (tell, told) = mpsc::channel();
        let held: Vec<MutexGuard<'_, _>> = all.iter().map(|group| group.locked()).collect();
        std::thread::spawn(move || {
            sessions.iter().for_each(|session| drop(tell.send(groups.with_session(*session))));
        });
        let found = || told.recv_timeout(LONG).expect("no group is waited for");
        for group in &all {
            assert!(Arc::ptr_eq(&found().expect("its session is known"), group));
        }
        for what in ["seat", "epoch", "topic"] {
            assert!(found().is_none(), "nobody has a {what} that is made up");
        }
        drop(held);
    }
}
