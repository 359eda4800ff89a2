//! All groups of a hub: found, made, listed, deleted. A group is loaded when it is first asked for.

use super::ahead::ReadAhead;
use super::group::{Group, Surroundings};
use super::metrics::{GroupMetrics, GroupTimes};
use super::options::{GroupName, GroupOptions, OptionsPatch};
use super::replay::Turns;
use super::{GroupError, places, stored};
use crate::filter::Filter;
use crate::query::From;
use crate::retry::Tries;
use parking_lot::Mutex;
use prombus_core::{Commit, CommitLimits, ConfigChange, NewTopics, ReadError, TopicName, TopicState};
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// At most so many groups has a topic.
const MAX_GROUPS: usize = 10_000;

/// So many sessions of groups that are gone may be known.
const SPARE_SESSIONS: usize = 64;

type Key = (TopicName, GroupName);

/// The place of a group, loaded or not.
#[derive(Default)]
struct Slot {
    /// Held while the group is loaded or deleted, so that no group is there twice.
    busy: tokio::sync::Mutex<()>,
    group: Mutex<Option<Arc<Group>>>,
    metrics: GroupMetrics,
}

impl Slot {
    /// The group, if it is loaded and works.
    fn loaded(&self) -> Option<Arc<Group>> {
        self.group.lock().clone().filter(|group| !group.has_failed())
    }
}

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
    pub(super) hub: Arc<Surroundings>,
    /// How topics come into being by their first group; `None` where they don't.
    makes: Option<Arc<NewTopics>>,
    slots: Mutex<HashMap<Key, Arc<Slot>>>,
    /// The groups that are loaded, by the session that their leases name.
    sessions: Mutex<HashMap<u64, Weak<Group>>>,
    times: Arc<GroupTimes>,
    /// Replays of a topic are one after another, because each must know what the others have replayed.
    pub(super) replaying: Turns,
}

impl Groups {
    /// The groups of a store.
    pub fn new(hub: Surroundings, makes: Option<Arc<NewTopics>>) -> Self {
        Self {
            hub: Arc::new(hub),
            makes,
            slots: Mutex::default(),
            sessions: Mutex::default(),
            times: Arc::default(),
            replaying: Turns::default(),
        }
    }

    /// What all groups together hold of events that were read and not delivered yet.
    pub fn read_ahead(&self) -> &ReadAhead {
        &self.hub.read_ahead
    }

    /// What is measured of all groups together.
    pub fn times(&self) -> &Arc<GroupTimes> {
        &self.times
    }

    fn slot(&self, topic: &TopicName, name: &GroupName) -> Arc<Slot> {
        let mut slots = self.slots.lock();
        let slot = slots.entry((topic.clone(), name.clone())).or_insert_with(|| {
            let metrics = GroupMetrics { counters: Arc::default(), times: self.times.clone() };
            Arc::new(Slot { metrics, ..Slot::default() })
        });
        slot.clone()
    }

    /// The group whose leases are of this session.
    pub(super) fn with_session(&self, session: u64) -> Option<Arc<Group>> {
        let group = self.sessions.lock().get(&session)?.upgrade()?;
        (!group.has_failed()).then_some(group)
    }

    /// Lets a group be found by its leases.
    fn note_session(&self, group: &Arc<Group>) {
        let session = group.locked().leases.session();
        let loaded = self.slots.lock().len();
        let mut sessions = self.sessions.lock();
        sessions.insert(session, Arc::downgrade(group));
        // Those of groups that are gone are dropped when they are as many as the others, so rarely.
        if sessions.len() > 2 * loaded + SPARE_SESSIONS {
            sessions.retain(|_, group| group.strong_count() > 0);
        }
    }

    /// Forgets the place of a group that does not exist, unless someone uses it.
    fn forget(&self, topic: &TopicName, name: &GroupName) {
        let mut slots = self.slots.lock();
        let key = (topic.clone(), name.clone());
        // Whoever else has the slot is about to load the group into it.
        let unused = |slot: &Arc<Slot>| Arc::strong_count(slot) == 1 && slot.loaded().is_none();
        if slots.get(&key).is_some_and(unused) {
            slots.remove(&key);
        }
    }

    /// A group that exists.
    pub async fn find(&self, topic: &TopicName, name: &GroupName) -> Result<Arc<Group>, GroupError> {
        let state = self.hub.log.topic(topic).await?;
        let state = state.ok_or_else(|| ReadError::TopicNotFound(topic.clone()))?;
        match self.load(&state, name).await? {
            Some(group) => Ok(group),
            None => {
                self.forget(topic, name);
                Err(GroupError::NotFound { topic: topic.to_string(), group: name.to_string() })
            }
        }
    }

    async fn load(&self, topic: &TopicState, name: &GroupName) -> Result<Option<Arc<Group>>, GroupError> {
        let slot = self.slot(&topic.name, name);
        let right = |group: &Arc<Group>| group.topic.number == topic.number;
        if let Some(group) = slot.loaded().filter(right) {
            return Ok(Some(group));
        }
        let _busy = slot.busy.lock().await;
        if let Some(group) = slot.loaded().filter(right) {
            return Ok(Some(group));
        }
        let metrics = slot.metrics.clone();
        let Some(state) = stored::load(&*self.hub.log, topic, name, metrics.clone()).await? else {
            return Ok(None);
        };
        let group = Arc::new(Group::new(self.hub.clone(), topic.clone(), name.clone(), state, metrics));
        self.note_session(&group);
        // Partitions that came since are not stored yet.
        group.keep();
        let before = slot.group.lock().replace(group.clone());
        if let Some(before) = before {
            before.fail(ReadError::TopicNotFound(topic.name.clone()).into());
        }
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
                    self.forget(topic, name);
                    return Err(error);
                }
            };
            again.inspect_err(|_| self.forget(topic, name))?;
        }
    }

    /// The group of a consumer that had it before: with the options that it has by now, which may have been changed
    /// since, and made anew where it is gone.
    pub async fn again(
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
        Filter::compile_in_turn(options.filter.as_deref()).await?;
        options.validate()?;
        let (config, starts) = match &state {
            Some(state) => {
                if stored::group_names(&*self.hub.log, topic).await?.len() >= MAX_GROUPS {
                    let message = format!("topic {topic} has {MAX_GROUPS} groups, as many as it may have");
                    return Err(GroupError::BadOption(message));
                }
                (Vec::new(), places::starts(&*self.hub.log, state, call.from).await?)
            }
            None => {
                let missing = || ReadError::TopicNotFound(topic.clone());
                let makes = self.makes.as_ref().filter(|_| !topic.is_internal()).ok_or_else(missing)?;
                let config = makes.config_of(topic);
                let starts = vec![0; config.partitions as usize];
                (vec![ConfigChange::CreateTopic { name: topic.clone(), config }], starts)
            }
        };
        let cursors = match &state {
            Some(state) => stored::creation(state, name, &options, &starts),
            None => stored::creation_in_new(topic, name, &options, &starts),
        };
        let limits = CommitLimits {
            reader_partitions: Some(stored::partitions(self.hub.most_partitions)),
            ..CommitLimits::default()
        };
        self.hub.bus.commit(Arc::new(Commit { config, cursors, limits, ..Commit::default() })).await?;
        Ok(())
    }

    /// All groups of a topic, by name. One that cannot be read is left out, and the log says why.
    pub async fn list(&self, topic: &TopicState) -> Vec<Arc<Group>> {
        let mut groups = Vec::new();
        for name in stored::group_names(&*self.hub.log, &topic.name).await.unwrap_or_default() {
            match self.load(topic, &name).await {
                Ok(group) => groups.extend(group),
                Err(error) => {
                    tracing::warn!(topic = %topic.name, group = %name, %error, "a group is left out")
                }
            }
        }
        groups
    }

    fn loaded(&self) -> Vec<Arc<Group>> {
        self.slots.lock().values().filter_map(|slot| slot.loaded()).collect()
    }

    /// Forgets a group with everything that is stored of it.
    pub async fn delete(&self, topic: &TopicName, name: &GroupName) -> Result<(), GroupError> {
        let group = match self.find(topic, name).await {
            // What cannot be read can be deleted all the same.
            Err(GroupError::Failed(_)) => None,
            found => Some(found?),
        };
        let slot = self.slot(topic, name);
        // Nobody loads it again before it is gone.
        let busy = slot.busy.lock().await;
        let gone = || GroupError::NotFound { topic: topic.to_string(), group: name.to_string() };
        if let Some(group) = &group {
            // Those who wait for a commit that is under way hear what came of it.
            let writing = group.writing.lock().await;
            group.fail(gone());
            drop(writing);
            group.until_unkept().await;
        }
        // A commit that settles leases of it ends first: it must not meet a group that is made anew.
        let _writing = match &group {
            Some(group) => Some(group.writing.lock().await),
            None => None,
        };
        let mut tries = Tries::default();
        let outcome = loop {
            let Some(state) = self.hub.log.topic(topic).await? else { return Err(gone()) };
            let cursors = stored::removal(&*self.hub.log, &state, name).await?;
            if cursors.is_empty() {
                return Err(gone());
            }
            match self.hub.bus.commit(Arc::new(Commit { cursors, ..Commit::default() })).await {
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
        self.forget(topic, name);
        outcome
    }

    /// The topic is gone, and its groups with it.
    pub fn forget_topic(&self, topic: &TopicName) {
        let mut slots = self.slots.lock();
        for group in slots.iter().filter(|((name, _), _)| name == topic).filter_map(|(_, slot)| slot.loaded())
        {
            group.fail(ReadError::TopicNotFound(topic.clone()).into());
        }
        slots.retain(|(name, _), slot| name != topic || Arc::strong_count(slot) > 1);
    }

    /// Lets pulls wait no more, so that those who wait get their answer before the hub ends.
    pub fn stop_waiting(&self) {
        self.hub.closing.store(true, Ordering::Release);
        self.loaded().iter().for_each(|group| group.more.notify_waiters());
    }

    /// Whether pulls wait no more.
    pub(super) fn is_closing(&self) -> bool {
        self.hub.closing.load(Ordering::Acquire)
    }

    /// Ends all groups: those who wait hear of it.
    pub fn close(&self) {
        self.stop_waiting();
        for group in self.loaded() {
            group.fail(GroupError::Failed("the hub is closing".into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bus::LogBus;
    use parking_lot::MutexGuard;
    use prombus_core::ManualClock;
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
        Arc::new(Groups::new(
            Surroundings { log, bus, clock, read_ahead, most_partitions: usize::MAX, closing },
            Some(Arc::default()),
        ))
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
        let known: Vec<u64> = all.iter().map(|group| group.locked().leases.session()).collect();
        let made_up = known.iter().fold(1, |sum: u64, session| sum.wrapping_add(*session));
        let (sessions, (tell, told)) = ([&known[..], &[made_up]].concat(), mpsc::channel());
        let held: Vec<MutexGuard<'_, _>> = all.iter().map(|group| group.locked()).collect();
        std::thread::spawn(move || {
            sessions.iter().for_each(|session| drop(tell.send(groups.with_session(*session))));
        });
        let found = || told.recv_timeout(LONG).expect("no group is waited for");
        for group in &all {
            assert!(Arc::ptr_eq(&found().expect("its session is known"), group));
        }
        assert!(found().is_none(), "nobody has a session that is made up");
        drop(held);
    }
}
