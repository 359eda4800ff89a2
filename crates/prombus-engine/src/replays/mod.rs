//! Bulk replays: a range of a topic, copied into another one, or into itself, in order and once.
//!
//! A replay is stored ([`stored`]), and goes on after a restart where its last commit was. Of events of one key, the copies are
//! in the order of the events. A replay works at the home of the topic that it reads, in turns with those who give events up
//! there: what was forgotten, and was not copied before, is not copied afterwards.

mod definition;
mod runner;
mod step;
mod stored;

use crate::bus::{Bus, BusError};
use crate::cleaning::Cleaning;
use crate::filter::FilterError;
use crate::homes::Claims;
use crate::layers::{Checks, SchemaChecks};
use crate::projections::ProjectionError;
use crate::query::QueryError;
use crate::retry::{Tries, pause};
use definition::Recipe;
pub use definition::{Definition, Mapping, REPLAY_HEADER, Source};
use parking_lot::Mutex;
use prombus_core::{Clock, Commit, CommitError, Documents, EventLog, Offset, Partition, ReadError, Sequence};
use runner::{Runner, Signals};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use step::{Making, READ_EVENTS};
use stored::{Record, Stored};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use uuid::Uuid;

/// How many replays work at a time. The others wait for their turn.
const AT_ONCE: usize = 4;
/// How many replays there may be, those that are over included.
const MAX_REPLAYS: usize = 10_000;

/// What a replay does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReplayState {
    /// It copies, or waits for its turn.
    Running,
    /// It goes on once it is told to.
    Paused,
    /// It has copied everything.
    Done,
    /// It was given up by a user.
    Cancelled,
    /// It could not go on.
    Failed,
}

/// What a replay has done, in numbers of events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Looked at.
    pub read: u64,
    /// Copied.
    pub copied: u64,
    /// Wanted, and not copied: they could not be mapped, or the target refuses their copies.
    pub errors: u64,
    /// Offsets that were given up before they were read.
    pub lost: u64,
}

/// Why an event was not copied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayError {
    /// Where the event is.
    pub partition: Partition,
    /// Where the event is.
    pub offset: Offset,
    /// Its id.
    pub id: Uuid,
    /// The reason.
    pub error: String,
}

/// How a replay is doing.
#[derive(Debug, Clone)]
pub struct ReplayStatus {
    /// Its name.
    pub name: String,
    /// What it is.
    pub definition: Definition,
    /// What it does now.
    pub state: ReplayState,
    /// Why it has failed, or waits.
    pub reason: Option<String>,
    /// What it has done.
    pub counts: Counts,
    /// The last events that were not copied.
    pub last_errors: Vec<ReplayError>,
    /// How many offsets are left.
    pub left: u64,
    /// About how long that takes, in milliseconds, where it is known.
    pub left_ms: Option<u64>,
    /// When it was begun, in epoch milliseconds.
    pub began_ms: u64,
    /// When it ended.
    pub ended_ms: Option<u64>,
}

/// What can be asked of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Stop until [`Command::Resume`].
    Pause,
    /// Go on, also after a failure.
    Resume,
    /// Give up.
    Cancel,
}

/// Why something could not be done with a replay.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReplaysError {
    /// There is no such replay.
    #[error("there is no replay {0:?}")]
    NotFound(String),
    /// A name is used once.
    #[error("there is a replay {name:?} already, which is {state}; a name is used once: choose another one")]
    NameUsed {
        /// The name.
        name: String,
        /// What that replay does.
        state: &'static str,
    },
    /// It is not in a state in which that could be done.
    #[error("replay {name:?} is {state}: it cannot be {what}")]
    WrongState {
        /// The name.
        name: String,
        /// What it does.
        state: &'static str,
        /// What was asked for.
        what: &'static str,
    },
    /// There is a limit.
    #[error("there are {MAX_REPLAYS} replays, the maximum; delete some that are over")]
    TooMany,
    /// The definition makes no sense.
    #[error("{0}")]
    Bad(String),
    /// The filter does not compile.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// The map does not compile.
    #[error(transparent)]
    Map(#[from] ProjectionError),
    /// The range makes no sense.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// The store cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The store refused a commit.
    #[error(transparent)]
    Bus(#[from] BusError),
}

impl ReplayState {
    /// As it is told.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Done => "done",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        }
    }

    /// What becomes of it by a command; `None` where that makes no sense.
    fn after(self, command: Command) -> Option<Self> {
        match (command, self) {
            (Command::Pause, Self::Running | Self::Paused) => Some(Self::Paused),
            (Command::Resume, Self::Running | Self::Paused | Self::Failed) => Some(Self::Running),
            (Command::Cancel, Self::Running | Self::Paused | Self::Failed | Self::Cancelled) => {
                Some(Self::Cancelled)
            }
            _ => None,
        }
    }
}

impl Command {
    fn done(self) -> &'static str {
        match self {
            Self::Pause => "paused",
            Self::Resume => "resumed",
            Self::Cancel => "cancelled",
        }
    }
}

/// What replays need of the hub.
pub(crate) struct ReplayContext {
    pub log: Arc<dyn EventLog>,
    pub documents: Arc<dyn Documents>,
    pub bus: Arc<dyn Bus>,
    pub clock: Arc<dyn Clock>,
    pub claims: Arc<Claims>,
    pub cleaning: Arc<Cleaning>,
    pub checks: Checks,
    pub schema_checks: SchemaChecks,
    /// Whether copies may make the topic that they go to.
    pub auto_create: bool,
}

impl ReplayContext {
    /// Changes what is stored of a replay. Gives it as it is then.
    async fn change(
        &self,
        name: &str,
        change: impl Fn(&mut Record) -> Result<(), ReplaysError> + Send + Sync,
    ) -> Result<Stored, ReplaysError> {
        let mut tries = Tries::default();
        loop {
            let found = stored::find(&*self.documents, name).await?;
            let before = found.ok_or_else(|| ReplaysError::NotFound(name.to_owned()))?;
            let mut record = before.record.clone();
            change(&mut record)?;
            if record == before.record {
                return Ok(before);
            }
            let documents = vec![record.write(name, before.version)];
            match self.bus.commit(Arc::new(Commit { documents, ..Commit::by_hub() })).await {
                Ok(_) => return Ok(Stored { record, version: before.version + 1 }),
                // It has gone on meanwhile.
                Err(BusError::Commit(CommitError::VersionConflict { .. })) => tries.look_again().await?,
                Err(error) => tries.again(error).await?,
            }
        }
    }
}

/// The replays of a hub.
pub struct Replays {
    hub: Arc<ReplayContext>,
    /// Those that run here, or wait to.
    running: Mutex<HashMap<String, Arc<Signals>>>,
    /// There may be others to run.
    wake: Arc<Notify>,
    slots: Arc<Semaphore>,
    closing: watch::Sender<bool>,
    follower: Mutex<Option<JoinHandle<()>>>,
}

/// Is among those that run for as long as this is kept.
struct Running {
    replays: Weak<Replays>,
    name: String,
    signals: Arc<Signals>,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(replays) = self.replays.upgrade() {
            replays.running.lock().remove(&self.name);
            // It may have been told to go on in the last moment.
            replays.wake.notify_one();
        }
    }
}

impl Replays {
    pub(crate) fn new(hub: ReplayContext) -> Arc<Self> {
        Arc::new(Self {
            hub: Arc::new(hub),
            running: Mutex::default(),
            wake: Arc::default(),
            slots: Arc::new(Semaphore::new(AT_ONCE)),
            closing: watch::Sender::new(false),
            follower: Mutex::default(),
        })
    }

    /// Goes on with all replays that are not over, for as long as the hub is there.
    pub fn start(self: &Arc<Self>) {
        let mut follower = self.follower.lock();
        if follower.is_none() {
            *follower = Some(tokio::spawn(follow(Arc::downgrade(self), self.closing.subscribe())));
        }
    }

    /// Stops all work. What was committed is waited for.
    pub(crate) async fn close(&self) {
        self.closing.send_replace(true);
        let follower = self.follower.lock().take();
        if let Some(follower) = follower {
            // One that panicked has said so.
            let _ = follower.await;
        }
    }

    /// Begins a replay.
    pub async fn begin(&self, name: &str, definition: Definition) -> Result<ReplayStatus, ReplaysError> {
        definition::check_name(name)?;
        if let Some(known) = stored::find(&*self.hub.documents, name).await? {
            return Err(used(name, &known));
        }
        let (topic, left) = self.prepared(name, &definition).await?;
        if self.count().await? >= MAX_REPLAYS {
            return Err(ReplaysError::TooMany);
        }
        let record = Record::begun(definition, (topic, left), self.hub.clock.now_ms());
        let commit = Commit { documents: vec![record.write(name, 0)], ..Commit::by_hub() };
        match self.hub.bus.commit(Arc::new(commit)).await {
            Ok(_) => {}
            Err(error @ BusError::Commit(CommitError::VersionConflict { .. })) => {
                let known = stored::find(&*self.hub.documents, name).await?;
                return Err(known.map_or_else(|| error.into(), |known| used(name, &known)));
            }
            Err(error) => return Err(error.into()),
        }
        self.wake.notify_one();
        Ok(self.status(name, Stored { record, version: 1 }))
    }

    /// What a replay would copy: nothing is published or stored.
    pub async fn rehearse(&self, name: &str, definition: Definition) -> Result<ReplayStatus, ReplaysError> {
        definition::check_name(name)?;
        let (number, left) = self.prepared(name, &definition).await?;
        let recipe = Recipe::compile(name, &definition).await?;
        let topic = self.hub.log.topic(&definition.source.topic).await?;
        let topic = topic.ok_or_else(|| ReadError::TopicNotFound(definition.source.topic.clone()))?;
        let target = definition.target.clone();
        let making = Making {
            log: &*self.hub.log,
            topic: &topic,
            target: &target,
            recipe: &recipe,
            most: READ_EVENTS,
        };
        let mut ahead = left.clone();
        let mut record = Record::begun(definition, (number, left), self.hub.clock.now_ms());
        while record.state == ReplayState::Running {
            let step = making.step(&mut ahead).await?;
            record = record.after(&step, (0, self.hub.clock.now_ms()));
            tokio::task::yield_now().await;
        }
        Ok(self.status(name, Stored { record, version: 0 }))
    }

    /// Checks a definition, and finds its range. Gives the number of the topic, too.
    async fn prepared(
        &self,
        name: &str,
        definition: &Definition,
    ) -> Result<(u32, Vec<definition::Left>), ReplaysError> {
        definition.check()?;
        Recipe::compile(name, definition).await?;
        let source = &definition.source.topic;
        let topic = self.hub.log.topic(source).await?;
        let topic = topic.ok_or_else(|| ReadError::TopicNotFound(source.clone()))?;
        if !self.hub.auto_create && self.hub.log.topic(&definition.target).await?.is_none() {
            return Err(ReadError::TopicNotFound(definition.target.clone()).into());
        }
        Ok((topic.number.0, definition.range(&self.hub.log, &topic).await?))
    }

    async fn count(&self) -> Result<usize, ReadError> {
        let collection = self.hub.documents.collection(&stored::collection_name()).await?;
        Ok(collection.map_or(0, |state| usize::try_from(state.documents).unwrap_or(usize::MAX)))
    }

    /// How a replay is doing.
    pub async fn get(&self, name: &str) -> Result<ReplayStatus, ReplaysError> {
        let found = stored::find(&*self.hub.documents, name).await?;
        let stored = found.ok_or_else(|| ReplaysError::NotFound(name.to_owned()))?;
        Ok(self.status(name, stored))
    }

    /// Some replays behind `after`, by name; none at the end.
    pub async fn page(&self, after: Option<String>) -> Result<Vec<ReplayStatus>, ReplaysError> {
        let page = stored::page(&*self.hub.documents, after).await?;
        Ok(page.into_iter().map(|(name, stored)| self.status(&name, stored)).collect())
    }

    /// Tells a replay something. When this returns, it publishes nothing more unless it is to go on.
    pub async fn command(&self, name: &str, command: Command) -> Result<ReplayStatus, ReplaysError> {
        let now = self.hub.clock.now_ms();
        let stored = self
            .hub
            .change(name, |record| {
                let (name, state, what) = (name.to_owned(), record.state.as_str(), command.done());
                let after =
                    record.state.after(command).ok_or(ReplaysError::WrongState { name, state, what })?;
                if after != record.state {
                    (record.state, record.reason) = (after, None);
                    record.ended_ms = (after == ReplayState::Cancelled).then_some(now);
                }
                Ok(())
            })
            .await?;
        let signals = self.running.lock().get(name).cloned();
        signals.iter().for_each(|signals| signals.changed.notify_one());
        self.wake.notify_one();
        Ok(self.status(name, stored))
    }

    /// Deletes one that is over. Its name may be used again.
    pub async fn delete(&self, name: &str) -> Result<(), ReplaysError> {
        let found = stored::find(&*self.hub.documents, name).await?;
        let Stored { record, version } = found.ok_or_else(|| ReplaysError::NotFound(name.to_owned()))?;
        if matches!(record.state, ReplayState::Running | ReplayState::Paused) {
            let (name, state) = (name.to_owned(), record.state.as_str());
            return Err(ReplaysError::WrongState { name, state, what: "deleted; cancel it first" });
        }
        let documents = vec![stored::removal(name, version)];
        self.hub.bus.commit(Arc::new(Commit { documents, ..Commit::by_hub() })).await?;
        Ok(())
    }

    fn status(&self, name: &str, Stored { record, .. }: Stored) -> ReplayStatus {
        let left = record.left();
        let Record { definition, state, reason, counts, last_errors, began_ms, ended_ms, worked_ms, .. } =
            record;
        let waits = || self.running.lock().get(name).and_then(|signals| signals.waits.lock().clone());
        ReplayStatus {
            name: name.to_owned(),
            left_ms: left_ms((left, counts), worked_ms, definition.rate_per_s),
            definition,
            state,
            reason: reason.or_else(|| (state == ReplayState::Running).then(waits).flatten()),
            counts,
            last_errors,
            left,
            began_ms,
            ended_ms,
        }
    }

    /// Has those run that are to. Those that run already go on.
    async fn run_all(self: &Arc<Self>, tasks: &mut JoinSet<()>) -> Result<(), ReadError> {
        let mut after = None;
        loop {
            let page = stored::page(&*self.hub.documents, after).await?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            after = Some(last.clone());
            for (name, Stored { record, .. }) in page {
                if record.state == ReplayState::Running
                    && let Some(running) = self.enter(&name)
                {
                    let runner = Runner {
                        hub: self.hub.clone(),
                        name,
                        signals: running.signals.clone(),
                        slots: self.slots.clone(),
                        closing: self.closing.subscribe(),
                    };
                    tasks.spawn(async move {
                        let _running = running;
                        runner.run().await;
                    });
                }
            }
        }
    }

    /// Takes a replay in, unless it runs already.
    fn enter(self: &Arc<Self>, name: &str) -> Option<Running> {
        let mut running = self.running.lock();
        if running.contains_key(name) {
            return None;
        }
        let signals = Arc::<Signals>::default();
        running.insert(name.to_owned(), signals.clone());
        Some(Running { replays: Arc::downgrade(self), name: name.to_owned(), signals })
    }
}

fn used(name: &str, known: &Stored) -> ReplaysError {
    ReplaysError::NameUsed { name: name.to_owned(), state: known.record.state.as_str() }
}

/// How long it takes to copy what is left, judging by what was done.
fn left_ms((left, counts): (u64, Counts), worked_ms: u64, rate: Option<u64>) -> Option<u64> {
    if counts.read == 0 {
        return None;
    }
    let of_left = |what: u64| what as f64 * left as f64 / counts.read as f64;
    let limited = rate.map_or(0.0, |rate| of_left(counts.copied) * 1_000.0 / rate as f64);
    Some(of_left(worked_ms).max(limited) as u64)
}

/// Has replays run whenever there may be some to.
async fn follow(replays: Weak<Replays>, mut closing: watch::Receiver<bool>) {
    let (mut tasks, mut seen) = (JoinSet::new(), Sequence(0));
    while let Some(strong) = replays.upgrade() {
        let (wake, claims) = (strong.wake.clone(), strong.hub.claims.clone());
        let looked = strong.run_all(&mut tasks).await;
        drop(strong);
        if let Err(error) = &looked {
            tracing::warn!(%error, "failed to look for replays; will retry");
        }
        tokio::select! {
            () = wake.notified() => {}
            // Another hub has begun some, and its topics are here now.
            now = claims.changed(seen) => seen = now,
            // One that panicked has said so itself.
            Some(_) = tasks.join_next(), if !tasks.is_empty() => {}
            // Nobody tells when a store can be read again.
            () = tokio::time::sleep(pause::UNAVAILABLE), if looked.is_err() => {}
            // A sender that is gone means the same.
            _ = closing.wait_for(|closing| *closing) => break,
        }
    }
    while tasks.join_next().await.is_some() {}
}
