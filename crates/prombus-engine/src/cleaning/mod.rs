//! Letting events go: by their age and size, because later ones have superseded them, and by hand.
//!
//! A pass over a topic reads what may go, counts it, and tells the store in bounded commits; nothing is given up that was
//! not read, since stores trust what they are told about it. So one cleaner at a time works on a topic: passes, and those
//! who trim by hand, take turns here, and the cursor that every commit moves keeps out other hubs. Each commit leaves the
//! topic as a pass may leave it, so a pass can end anywhere and be begun again.
//!
//! With what goes, a commit says from when on the events that are left still tell what every key was: an event that goes
//! is missed by whoever asks for a time between its own and that of the next event of its key.

mod compaction;
mod forgetting;
mod holds;
mod latest_by_key;
mod losses;
mod pages;
mod pass;
mod positions;
mod reading;
mod retention;
mod rounds;
pub(crate) mod snapshots;

use crate::bus::{Bus, BusError};
use crate::homes::Claims;
use crate::retry::Tries;
use crate::topics::kept_of;
use crate::turns::Turns;
use bytestring::ByteString;
pub(crate) use holds::Hold;
use holds::Holds;
use parking_lot::Mutex;
use pass::{Counted, Pace, Pass};
use prombus_core::{
    Clock, DocumentWrite, EventLog, Histogram, HomesError, Kept, NewTopics, Offset, Partition, ReadError,
    TopicName, TopicState,
};
pub(crate) use reading::ReadingTurn;
pub use snapshots::SnapshotStatus;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedMutexGuard, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// How long a pass that is under way is waited for.
const MAX_HOLD_WAIT: Duration = Duration::from_secs(5);

/// What cleaning needs of the hub.
pub(crate) struct CleaningContext {
    pub log: Arc<dyn EventLog>,
    pub bus: Arc<dyn Bus>,
    pub clock: Arc<dyn Clock>,
    /// The topics that are at home here.
    pub claims: Arc<Claims>,
    /// The most keys that a pass remembers.
    pub most_keys: usize,
    /// The settings of topics that the configuration names.
    pub new_topics: Arc<NewTopics>,
}

/// What came of a pass over a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cleaned {
    /// How many events went.
    pub events: u64,
    /// Their [sizes](prombus_core::Event::size).
    pub bytes: u64,
    /// What is kept of each partition.
    pub kept: Vec<Kept>,
}

/// Why a topic was not cleaned, or not to the end. What went until then is gone.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CleanError {
    /// It could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A commit was refused.
    #[error(transparent)]
    Bus(#[from] BusError),
    /// Another hub does that.
    #[error(transparent)]
    Home(#[from] HomesError),
    /// There is nothing that could be trimmed there.
    #[error(
        "partition {partition} ends at offset {next}: before can be at most that, and {before} was given"
    )]
    BeyondEnd {
        /// The partition.
        partition: Partition,
        /// Its end.
        next: Offset,
        /// What was asked for.
        before: Offset,
    },
    /// The topic that it names cannot take its snapshots.
    #[error("no snapshots can be published: {0}")]
    NoSnapshots(String),
    /// The hub ends.
    #[error("the hub is shutting down")]
    Closing,
    /// The work itself ended in a way that it should not have.
    #[error("cleaning failed: {0}")]
    Failed(String),
}

/// Lets events of topics go.
pub struct Cleaning {
    hub: CleaningContext,
    turns: Turns,
    /// Of those who publish snapshots, which go on beside others for the most part.
    snapshot_turns: Turns,
    holds: Arc<Holds>,
    closing: watch::Sender<bool>,
    rounds: Mutex<Vec<JoinHandle<()>>>,
    durations: Arc<Histogram>,
    snapshot_durations: Arc<Histogram>,
}

/// What is to be done with a topic.
#[derive(Debug)]
enum Task {
    /// All that its settings ask for.
    Clean(Pace),
    /// Everything below an offset of a partition goes.
    Trim(Partition, Offset),
    /// What has changed goes to its snapshot topic.
    Snapshot(Pace),
    /// Everything of a key goes.
    Forget(Forget),
}

/// A key that is to be forgotten.
#[derive(Debug)]
pub(crate) struct Forget {
    pub key: ByteString,
    /// What deletes the documents that were made of it.
    pub documents: Vec<DocumentWrite>,
}

impl Forget {
    /// The same for events alone.
    fn events(&self) -> Self {
        Self { key: self.key.clone(), documents: Vec::new() }
    }
}

impl Cleaning {
    pub(crate) fn new(hub: CleaningContext) -> Arc<Self> {
        Arc::new(Self {
            hub,
            turns: Turns::default(),
            snapshot_turns: Turns::default(),
            holds: Arc::default(),
            closing: watch::Sender::new(false),
            rounds: Mutex::default(),
            durations: Arc::default(),
            snapshot_durations: Arc::default(),
        })
    }

    /// How long passes took.
    pub fn durations(&self) -> &Arc<Histogram> {
        &self.durations
    }

    /// How long passes took that have published snapshots.
    pub fn snapshot_durations(&self) -> &Arc<Histogram> {
        &self.snapshot_durations
    }

    /// Does a pass over a topic now, as fast as it can. What was forgotten, in whichever topic, is erased then.
    pub async fn clean(self: &Arc<Self>, topic: &TopicName) -> Result<Cleaned, CleanError> {
        let cleaned = self.clone().to_the_end(topic.clone(), Task::Clean(Pace::Full)).await?;
        self.erase().await?;
        Ok(cleaned)
    }

    /// Has the store erase what was forgotten. When the hub ends, that goes on after the next start.
    async fn erase(&self) -> Result<(), CleanError> {
        let mut closing = self.closing.subscribe();
        tokio::select! {
            erased = self.hub.log.erase() => Ok(erased.map_err(BusError::from)?),
            // A sender that is gone means the same.
            _ = closing.wait_for(|closing| *closing) => Err(CleanError::Closing),
        }
    }

    /// Gives up all events of a partition below `before`, and says what is kept of it. In a topic that has grown, what
    /// these events have superseded in lower partitions goes with them.
    pub async fn trim(
        self: &Arc<Self>,
        topic: &TopicName,
        partition: Partition,
        before: Offset,
    ) -> Result<Kept, CleanError> {
        let cleaned = self.clone().to_the_end(topic.clone(), Task::Trim(partition, before)).await?;
        let kept = cleaned.kept.get(partition.0 as usize);
        kept.copied().ok_or_else(|| CleanError::Failed(format!("partition {partition} is not there")))
    }

    /// The turn at a topic: until it is let go of, nobody else cleans there.
    pub(crate) async fn turn(&self, topic: &TopicName) -> OwnedMutexGuard<()> {
        self.turns.of(topic).lock_owned().await
    }

    /// Has background passes leave a topic alone until the hold is dropped, though not for ever. One that is under way is
    /// waited for, within reason. What is asked for by hand is done.
    pub(crate) async fn hold(&self, topic: &TopicName) -> Hold {
        let hold = self.holds.hold(topic);
        // Where it takes too long, its commits may disturb whoever holds the topic, who finds out by itself.
        let _ = tokio::time::timeout(MAX_HOLD_WAIT, self.turn(topic)).await;
        hold
    }

    /// Gives up all events of a key that the topic has now, together with the documents that were made of it, and says how
    /// many events went. The caller has the turn, and keeps it until this is done.
    pub(crate) async fn forget_in_turn(&self, topic: &TopicName, forget: Forget) -> Result<u64, CleanError> {
        Ok(self.work_in_turn(topic, &Task::Forget(forget)).await?.events)
    }

    /// Works in a task of its own: whoever has the turn must not be dropped while a commit is under way.
    async fn to_the_end(self: Arc<Self>, topic: TopicName, task: Task) -> Result<Cleaned, CleanError> {
        let work = tokio::spawn(async move { self.work(&topic, &task).await });
        work.await.unwrap_or_else(|error| Err(CleanError::Failed(error.to_string())))
    }

    async fn work(&self, topic: &TopicName, task: &Task) -> Result<Cleaned, CleanError> {
        let turns = match task {
            Task::Clean(_) | Task::Trim(..) | Task::Forget(_) => &self.turns,
            Task::Snapshot(_) => &self.snapshot_turns,
        };
        let _turn = turns.of(topic).lock_owned().await;
        self.work_in_turn(topic, task).await
    }

    async fn work_in_turn(&self, topic: &TopicName, task: &Task) -> Result<Cleaned, CleanError> {
        let began = Instant::now();
        let (mut counted, mut tries) = (Counted::default(), Tries::default());
        let state = loop {
            let state = self.hub.log.topic(topic).await?;
            let state = state.ok_or_else(|| ReadError::TopicNotFound(topic.clone()))?;
            match self.try_once(&state, task, &mut counted).await {
                Ok(()) => break state,
                Err(CleanError::Bus(error)) => tries.again(error).await?,
                // Somebody else has given it up meanwhile.
                Err(CleanError::Read(ReadError::Gone { .. })) => tries.look_again().await?,
                Err(error) => return Err(error),
            }
        };
        match task {
            Task::Clean(_) if state.config.lets_events_go() => self.durations.observe(began.elapsed()),
            Task::Snapshot(_) if counted.events > 0 => self.snapshot_durations.observe(began.elapsed()),
            _ => {}
        }
        let kept = kept_of(&*self.hub.log, &state).await?;
        Ok(Cleaned { events: counted.events, bytes: counted.bytes, kept })
    }

    async fn try_once(
        &self,
        topic: &TopicState,
        task: &Task,
        counted: &mut Counted,
    ) -> Result<(), CleanError> {
        let begin = |pace| Pass::begin(&self.hub, topic, (pace, self.closing.subscribe()));
        let (went, done) = match task {
            Task::Clean(pace) => {
                let mut pass = begin(*pace).await?;
                let done = pass.clean().await;
                (pass.counted(), done)
            }
            Task::Trim(partition, before) => {
                let mut pass = begin(Pace::Full).await?;
                let done = pass.trim(*partition, *before).await;
                (pass.counted(), done)
            }
            Task::Forget(forget) => {
                let mut pass = begin(Pace::Full).await?;
                let done = pass.forget(forget).await;
                (pass.counted(), done)
            }
            Task::Snapshot(pace) => self.snapshot_once(topic, *pace).await?,
        };
        // Whatever came of it, this much is done.
        counted.add(went);
        done
    }
}
