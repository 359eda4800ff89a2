//! A group at work: the state machine with the log behind it and pulls waiting before it.
//!
//! It reveals nothing that a crash could undo: a key is free, and an event is due again, only once the ack or nack before is
//! durable. All of its cursors carry the epoch of its home before anything is delivered, and a group whose topic was lost
//! delivers nothing and counts no attempt. What it holds goes by what is in flight and by its window, never by the backlog.

use super::ahead::ReadAhead;
use super::durable::Durable;
use super::lease::LeaseToken;
use super::metrics::GroupCounters;
use super::options::{GroupName, GroupOptions};
use super::partition_queue::Times;
use super::state::{GivenBack, State};
use super::{GroupError, places};
use crate::bus::{Bus, BusError};
use crate::homes::{Claims, Home};
use crate::layers::{Checks, SchemaChecks};
use crate::query::From;
use crate::schemas::raise::Raisers;
use parking_lot::{Mutex, MutexGuard};
use prombus_core::{
    Clock, CommitError, Epoch, EventLog, EventLogExt, HomesError, Offset, Partition, ReadError, TopicState,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// What groups need of the hub.
pub struct GroupContext {
    /// Where events and cursors are read.
    pub log: Arc<dyn EventLog>,
    /// Where commits go.
    pub bus: Arc<dyn Bus>,
    /// What pauses that outlive a restart go by.
    pub clock: Arc<dyn Clock>,
    /// The topics that are at home here.
    pub claims: Arc<Claims>,
    /// What groups hold of events that were read and not delivered.
    pub read_ahead: Arc<ReadAhead>,
    /// What producers are under, and so is what goes back to a topic.
    pub checks: Checks,
    /// Asked beforehand, too, where it is only told what would go back.
    pub schema_checks: SchemaChecks,
    /// The most partitions of all groups together.
    pub most_partitions: usize,
    /// What raises events to the latest version of their topic's schema.
    pub(crate) raisers: Arc<Raisers>,
    /// Whether pulls wait no more.
    pub closing: AtomicBool,
}

/// What was read of a group, to be set to work.
pub(super) struct Loaded {
    pub topic: TopicState,
    pub name: GroupName,
    pub home: Arc<Home>,
    pub options_version: u64,
    pub state: State,
    pub metrics: super::metrics::GroupMetrics,
}

/// One group. Cheap to share.
pub struct Group {
    pub(super) hub: Arc<GroupContext>,
    pub(super) topic: TopicState,
    pub(super) name: GroupName,
    /// What it is loaded under.
    pub(super) home: Arc<Home>,
    /// What its cursors carry: the epoch of its home when it was loaded.
    pub(super) epoch: Epoch,
    /// The version of the cursor with its options, as far as is known here.
    pub(super) options_version: AtomicU64,
    pub(super) counters: Arc<GroupCounters>,
    pub(super) times: Arc<super::GroupTimes>,
    pub(super) state: Mutex<State>,
    /// How far what was said is durable.
    pub(super) durable: Durable,
    /// Wakes pulls that wait, when there may be more for them.
    pub(super) more: Notify,
    /// One pull at a time waits for new events; the others wait for what it finds.
    pub(super) watching: tokio::sync::Mutex<()>,
    /// Held while events are read.
    pub(super) fetching: tokio::sync::Mutex<()>,
    /// The sequence of the log up to which was looked.
    pub(super) seen: AtomicU64,
    /// Held while the group's cursors are written: by its keeper, or by a commit that settles leases.
    pub(super) writing: Arc<tokio::sync::Mutex<()>>,
    /// Wakes the keeper.
    pub(super) kick: Notify,
    /// When the keeper wakes by itself; `None` while there is none.
    pub(super) keeper: Mutex<Option<Instant>>,
    /// Tells that the keeper has ended.
    pub(super) keeper_ended: Notify,
    /// Counts how often partitions got other owners.
    pub(super) assignments: watch::Sender<u64>,
}

impl Group {
    pub(super) fn new(hub: Arc<GroupContext>, loaded: Loaded) -> Self {
        let Loaded { topic, name, home, options_version, mut state, metrics } = loaded;
        state.count_in(&hub.read_ahead);
        Self {
            hub,
            topic,
            name,
            home,
            epoch: state.leases.session().epoch,
            options_version: AtomicU64::new(options_version),
            counters: metrics.counters,
            times: metrics.times,
            state: Mutex::new(state),
            durable: Durable::default(),
            more: Notify::new(),
            watching: tokio::sync::Mutex::default(),
            fetching: tokio::sync::Mutex::default(),
            seen: AtomicU64::new(0),
            writing: Arc::default(),
            kick: Notify::new(),
            keeper: Mutex::new(None),
            keeper_ended: Notify::new(),
            assignments: watch::channel(0).0,
        }
    }

    /// Its name.
    pub fn name(&self) -> &GroupName {
        &self.name
    }

    /// Its topic, as it was when the group was looked up.
    pub fn topic(&self) -> &TopicState {
        &self.topic
    }

    /// The epoch of the home that it was loaded under.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Its options.
    pub fn options(&self) -> Arc<GroupOptions> {
        self.state.lock().options.clone()
    }

    /// What is counted of it.
    pub fn counters(&self) -> &Arc<GroupCounters> {
        &self.counters
    }

    pub(super) fn now(&self) -> Times {
        Times { instant: Instant::now(), wall_ms: self.hub.clock.now_ms() }
    }

    /// Takes deliveries back that their holder cannot settle any more.
    pub fn give_back(self: &Arc<Self>, leases: &[LeaseToken], why: GivenBack) {
        self.state.lock().give_back(leases, why, self.now());
        self.wake_keeper();
    }

    /// Tells when partitions get other owners.
    pub fn assignments(&self) -> watch::Receiver<u64> {
        self.assignments.subscribe()
    }

    /// The first offset of each partition that is not settled.
    pub fn cursor(&self) -> Vec<Offset> {
        self.state.lock().queues.iter().map(|queue| Offset(queue.progress.next())).collect()
    }

    /// The partitions that a member owns.
    pub fn owned_by(&self, member: &str) -> Vec<Partition> {
        let state = self.state.lock();
        let owned = (0..).zip(&state.queues).filter(|(_, queue)| queue.owner.as_deref() == Some(member));
        owned.map(|(partition, _)| Partition(partition)).collect()
    }

    /// Sets the group to another place, in one partition or all. Open leases are void.
    pub async fn set_cursor(
        self: &Arc<Self>,
        from: From,
        partition: Option<Partition>,
    ) -> Result<(), GroupError> {
        let topic = self.current_topic().await?;
        let targets = places::targets(&*self.hub.log, &topic, from, partition).await?;
        let span = {
            let mut state = self.state.lock();
            let before = state.version();
            state.reset(&targets, &topic);
            self.durable.lapse(state.take_lapsed());
            state.span_since(before)
        };
        self.wake_keeper();
        self.until_durable(span).await
    }

    /// Settles one event, whoever has it. Says whether it was still to be settled.
    pub async fn skip(self: &Arc<Self>, partition: Partition, offset: u64) -> Result<bool, GroupError> {
        let topic = self.current_topic().await?;
        let bounds = self.hub.log.bounds(&topic.pinned(), partition).await?;
        self.keep_partition_to(partition.0 as usize, bounds.first);
        if offset >= bounds.next.0 {
            return Err(GroupError::BadOption(format!(
                "partition {partition} ends at offset {}: there is nothing at {offset} to skip",
                bounds.next
            )));
        }
        let (skipped, span) = {
            // A commit that is under way may be about to settle it.
            let _writing = self.writing.lock().await;
            if let Some(error) = self.durable.failure() {
                return Err(error);
            }
            let mut state = self.state.lock();
            state.see_topic(&topic);
            let before = state.version();
            let skipped = state.skip(partition.0 as usize, offset);
            self.durable.lapse(state.take_lapsed());
            (skipped, state.span_since(before))
        };
        self.wake_keeper();
        if skipped {
            self.until_durable(span).await?;
        }
        Ok(skipped)
    }

    /// The topic as it is now, if it is still the one that the group belongs to.
    pub(super) async fn current_topic(self: &Arc<Self>) -> Result<TopicState, GroupError> {
        let topic = self.hub.log.topic(&self.topic.name).await?;
        if let Some(error) = self.durable.failure() {
            return Err(error);
        }
        match topic {
            Some(topic) if topic.number == self.topic.number => {
                let grown = {
                    let mut state = self.state.lock();
                    let grown = state.queues.len() < topic.config.partitions as usize;
                    if grown {
                        state.see_topic(&topic);
                    }
                    grown
                };
                if grown {
                    self.wake_keeper();
                }
                Ok(topic)
            }
            _ => {
                let error = GroupError::from(ReadError::TopicNotFound(self.topic.name.clone()));
                self.fail(error.clone());
                Err(error)
            }
        }
    }

    /// Ends the group in memory: everyone who waits hears why, and the next call starts from what is stored.
    pub(super) fn fail(&self, error: GroupError) {
        {
            // Whoever has the state now is done with it before anyone reads the group anew.
            let mut state = self.state.lock();
            self.durable.fail(error);
            state.forget_ahead();
        }
        self.kick.notify_one();
        self.more.notify_waiters();
    }

    /// Ends the group because of what the store has answered. Where that says that another hub has the topic, everything
    /// of the topic goes. Where only a cursor was moved, a commit that was under way when the group was loaded has come after that: the
    /// last one of the home before this one, or one whose outcome nobody knew. The group is loaded again, with that.
    pub(super) fn fail_for(&self, error: GroupError) {
        let is_over = match &error {
            GroupError::Bus(BusError::Commit(CommitError::EpochOver { .. })) => true,
            GroupError::Bus(BusError::Commit(CommitError::CursorMoved { .. })) => false,
            _ => return self.fail(error),
        };
        self.fail(HomesError::Lost(self.topic.name.clone()).into());
        if is_over {
            self.hub.claims.lose(&self.home);
        }
    }

    /// Makes sure that no other hub can have the topic at this moment.
    pub(super) async fn check_home(&self) -> Result<(), GroupError> {
        match self.hub.claims.check(&self.home).await {
            // Whatever is told of the group is about this: those who have it are told by those who know first.
            Err(error @ HomesError::Lost(_)) => Err(self.durable.failure().unwrap_or_else(|| error.into())),
            checked => Ok(checked?),
        }
    }

    /// Whether calls can go to it: it has not ended, and its topic is at home here.
    pub(super) fn is_usable(&self) -> bool {
        !self.has_failed() && !self.home.is_lost()
    }

    /// Whether the group has ended.
    pub(super) fn has_failed(&self) -> bool {
        self.durable.has_failed()
    }

    pub(super) fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}
