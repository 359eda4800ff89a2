//! All projections of a hub: made, changed, listed, rebuilt, deleted. What is stored decides which there are: a hub runs
//! those of topics that are at home on it, whoever has defined them.

mod handle;
pub(super) mod hold;
mod past;
mod places;
mod ways;

use super::actor::{Actor, COMPILING, Command, Now, Positions, Setup, Shared};
use super::batch::{Code, Projector};
use super::runner::ProjectionContext;
use super::stored::{self, Record, cursor_key, shadow};
use super::{
    DEFAULT_RETRIES, Definition, MAX_WAIT, MinOffset, Plan, Project, ProjectionError, ProjectionPartition,
    ProjectionState, ProjectionStatus, RebuildStatus,
};
use crate::collections::{CollectionSettings, check_indexes};
use crate::retry::Tries;
use crate::topics::rest_after;
use handle::Handle;
use parking_lot::Mutex;
use prombus_core::collection::{self, CollectionConfig};
use prombus_core::{
    Commit, ConfigChange, EventLog, EventLogExt, Offset, Owner, Partition, ReadError, Sequence, TopicName,
    Watched,
};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Instant;
use tokio::sync::{MutexGuard, mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinError};

/// The most projections of a hub.
const MAX_PROJECTIONS: usize = 1_000;
/// The longest name of a projection, in bytes.
const MAX_NAME_BYTES: usize = 200;
/// So many commands may wait for a projection.
const MAX_COMMANDS: usize = 16;

/// A projection that runs no more, and could again.
struct Ended {
    setup: Setup,
    is_stored: bool,
}

/// The projections of a hub.
pub struct Projections {
    hub: Arc<ProjectionContext>,
    running: Mutex<BTreeMap<String, Handle>>,
    /// Held while projections are made, changed or deleted; whether that is over for good.
    changing: tokio::sync::Mutex<bool>,
    /// Ends the task that follows what is stored.
    follower: Mutex<Option<AbortHandle>>,
}

impl Drop for Projections {
    fn drop(&mut self) {
        self.stop_following();
    }
}

/// Has projections run as they are stored, whenever that changes.
async fn follow(log: Arc<dyn EventLog>, projections: Weak<Projections>) {
    let watched = Watched::Collection(stored::collection_name());
    let mut seen = Sequence(0);
    loop {
        let changed = log.changed(&watched, seen).await;
        let began = Instant::now();
        let Some(projections) = projections.upgrade() else { return };
        match projections.catch_up().await {
            Ok(()) => seen = changed,
            Err(error) => tracing::warn!(%error, "projections cannot be followed; trying again"),
        }
        drop(projections);
        // Others may share the bell, and ring it all the time.
        rest_after(began).await;
    }
}

/// A projection in Rust, and what it reads and writes.
pub struct CodeSetup {
    /// The topic whose events it takes.
    pub topic: TopicName,
    /// The collections that it writes.
    pub collections: Vec<(String, CollectionSettings)>,
    /// What it does.
    pub project: Arc<dyn Project>,
}

impl Projections {
    pub(crate) fn new(hub: ProjectionContext) -> Self {
        let (running, follower) = (Mutex::default(), Mutex::default());
        Self { hub: Arc::new(hub), running, changing: tokio::sync::Mutex::default(), follower }
    }

    /// Runs the projections that are stored. Where there are other hubs, it follows what they make, change or delete from
    /// then on.
    pub async fn start(self: &Arc<Self>) -> Result<(), ProjectionError> {
        self.catch_up().await?;
        let mut follower = self.follower.lock();
        if self.hub.has_others && follower.is_none() {
            let (log, this) = (self.hub.log.clone(), Arc::downgrade(self));
            *follower = Some(tokio::spawn(follow(log, this)).abort_handle());
        }
        Ok(())
    }

    /// Has those projections run that are stored, as they are. Those that run already go on.
    async fn catch_up(&self) -> Result<(), ProjectionError> {
        let _changing = self.turn().await?;
        let all = stored::load(&*self.hub.documents).await?;
        for name in self.forgotten(&all) {
            self.end(&name).await;
        }
        let snapshots = self.snapshot_ways().await?;
        for (name, record) in all {
            match self.is_known(&name, &record) {
                true => continue,
                false => self.end(&name).await,
            };
            let setup = match Plan::collections(&Owner::projection(&name), &record.definition) {
                // An earlier build may have let a circle pass. Whatever closes it stands still.
                Ok(collections) => {
                    match self.circle(&name, (&record.definition.topic, &collections), &snapshots) {
                        // Its expressions are compiled when it starts: nobody waits for them here.
                        None => Setup::new(record, None, collections),
                        Some(reason) => halted_setup_of(&name, record, reason),
                    }
                }
                // It was fine for the build that stored it. The others are none the worse for it.
                Err(error) => halted_setup_of(&name, record, error.to_string()),
            };
            if let Some(reason) = setup.halted() {
                tracing::error!(projection = name, reason, "a projection is not started");
            }
            self.run(&name, setup, true);
        }
        Ok(())
    }

    /// Those that run and are stored no more.
    fn forgotten(&self, all: &[(String, Record)]) -> Vec<String> {
        let running = self.running.lock();
        let is_gone = |name: &str| all.iter().all(|(other, _)| other != name);
        let gone = running.iter().filter(|(name, handle)| handle.is_stored && is_gone(name));
        gone.map(|(name, _)| name.clone()).collect()
    }

    /// Whether a projection runs as it is stored, or is part of the program.
    fn is_known(&self, name: &str, stored: &Record) -> bool {
        let running = self.running.lock();
        let is_same = |handle: &Handle| handle.record.borrow().definition == stored.definition;
        running.get(name).is_some_and(|handle| !handle.is_stored || is_same(handle))
    }

    /// The right to change projections, until it is dropped.
    async fn turn(&self) -> Result<MutexGuard<'_, bool>, ProjectionError> {
        let changing = self.changing.lock().await;
        match *changing {
            true => Err(ReadError::Unavailable("the hub is closing".into()).into()),
            false => Ok(changing),
        }
    }

    fn stop_following(&self) {
        if let Some(follower) = self.follower.lock().take() {
            follower.abort();
        }
    }

    /// Ends all projections, each after what it has under way.
    pub(crate) async fn close(&self) {
        *self.changing.lock().await = true;
        self.stop_following();
        let running = std::mem::take(&mut *self.running.lock());
        for handle in running.values() {
            // One that has ended already needs no telling.
            let _ = handle.commands.send(Command::Stop).await;
        }
        for (_, handle) in running {
            let _ = handle.task.await;
        }
    }

    fn run(&self, name: &str, setup: Setup, is_stored: bool) {
        let (commands, receiver) = mpsc::channel(MAX_COMMANDS);
        let now = Now {
            state: setup.first_state(),
            errors: 0,
            last_error: None,
            rebuild: None,
            rebuild_error: None,
        };
        let shared =
            Arc::new(Shared { positions: watch::Sender::new(Positions::default()), now: Mutex::new(now) });
        let (stored, record) = watch::channel(setup.record.clone());
        let actor = Actor {
            hub: self.hub.clone(),
            name: name.to_owned(),
            setup: setup.clone(),
            projector: Projector::Halted(COMPILING.to_owned()),
            shared: shared.clone(),
            commands: receiver,
            is_stored,
            stored,
        };
        let task = tokio::spawn(actor.run());
        let handle = Handle { commands, shared, record, setup, is_stored, task };
        self.running.lock().insert(name.to_owned(), handle);
    }

    /// Makes a projection, or changes it. Says whether it was made.
    pub async fn put(
        self: &Arc<Self>,
        name: &str,
        definition: Definition,
    ) -> Result<(ProjectionStatus, bool), ProjectionError> {
        check_name(name)?;
        let plan = Plan::compile_in_turn(name, &definition).await?;
        if definition.normalize
            && let Some(topic) = self.hub.log.topic(&definition.topic).await?
        {
            self.hub.raisers.of(&topic).await?;
        }
        let (this, name) = (self.clone(), name.to_owned());
        to_its_end(async move { this.put_compiled(&name, definition, plan).await }).await
    }

    async fn put_compiled(
        &self,
        name: &str,
        definition: Definition,
        plan: Plan,
    ) -> Result<(ProjectionStatus, bool), ProjectionError> {
        let _changing = self.turn().await?;
        let before = self.record(name);
        let is_halted = self.running.lock().get(name).is_some_and(|handle| handle.setup.halted().is_some());
        let snapshots = self.snapshot_ways().await?;
        let circle = self.circle(name, (&definition.topic, &plan.collections), &snapshots);
        // One that stands still for a circle goes on once that is gone.
        if before.as_ref().is_some_and(|before| before.definition == definition)
            && (!is_halted || circle.is_some())
        {
            return Ok((self.status(name).await?, false));
        }
        if let Some(circle) = circle {
            return Err(ProjectionError::Bad(circle));
        }
        if self.running.lock().get(name).is_some_and(|handle| !handle.is_stored) {
            let message = format!("projection {name:?} is part of the program and cannot be redefined");
            return Err(ProjectionError::Bad(message));
        }
        if before.is_none() && self.running.lock().len() >= MAX_PROJECTIONS {
            let message = format!("there are {MAX_PROJECTIONS} projections, which is the maximum");
            return Err(ProjectionError::Bad(message));
        }
        // Nothing is under way by the old definition when the new one is stored.
        let ended = self.end(name).await;
        match self.redefine(name, ended.as_ref().map(|ended| &ended.setup.record), (definition, &plan)).await
        {
            Ok(record) => {
                self.run(name, setup_of(record, plan), true);
                Ok((self.status(name).await?, before.is_none()))
            }
            Err(error) => {
                if let Some(Ended { setup, is_stored }) = ended {
                    self.run(name, setup, is_stored);
                }
                Err(error)
            }
        }
    }

    /// Stores what a projection is from now on.
    async fn redefine(
        &self,
        name: &str,
        before: Option<&Record>,
        (definition, plan): (Definition, &Plan),
    ) -> Result<Record, ProjectionError> {
        let record = match before {
            None => Record::new(definition),
            Some(before) => {
                let moves = self.moves(&before.definition.topic, name).await?;
                match moves == 0 && self.is_empty(name).await? {
                    true => Record::new(definition),
                    false => before.redefined(definition, moves),
                }
            }
        };
        self.store(name, before, (&record, plan)).await?;
        Ok(record)
    }

    /// How often the cursors of a projection have moved; 0 while it has done nothing.
    async fn moves(&self, topic: &TopicName, name: &str) -> Result<u64, ProjectionError> {
        let moves = stored::without_cursors(&*self.hub.log, topic, name, false).await?;
        Ok(moves.iter().map(|cursor| cursor.expect_version).sum())
    }

    /// Whether no collection of a projection has a document.
    async fn is_empty(&self, name: &str) -> Result<bool, ProjectionError> {
        let all = self.hub.documents.collections().await?;
        let mut owned = all.iter().filter(|state| state.config.owner.as_projection() == Some(name));
        Ok(owned.all(|state| state.documents == 0))
    }

    /// Runs a projection in Rust for as long as this hub does, from where it was when it last ran.
    pub async fn run_code(&self, name: &str, code: CodeSetup) -> Result<(), ProjectionError> {
        check_name(name)?;
        let _changing = self.turn().await?;
        if self.running.lock().contains_key(name) {
            return Err(ProjectionError::Bad(format!("projection {name:?} already exists")));
        }
        let owner = Owner::projection(name);
        let mut collections = Vec::new();
        for (collection, settings) in code.collections {
            let collection = collection::check_name(&collection)
                .map_err(|error| ProjectionError::Bad(error.to_string()))?;
            let CollectionSettings { indexes, changefeed } = settings;
            check_indexes(&indexes).map_err(ProjectionError::Bad)?;
            if let Some(feed) = changefeed.as_ref().filter(|feed| feed.is_internal()) {
                let message = format!("changefeed {feed} is a topic of the hub's own");
                return Err(ProjectionError::Bad(message));
            }
            collections.push((collection, CollectionConfig { owner: owner.clone(), indexes, changefeed }));
        }
        let snapshots = self.snapshot_ways().await?;
        if let Some(circle) = self.circle(name, (&code.topic, &collections), &snapshots) {
            return Err(ProjectionError::Bad(circle));
        }
        // A rebuild does not outlive the program that it was begun by.
        let shadows = collections.iter().map(|(name, _)| name.clone()).chain([stored::failures_of(name)]);
        let shadows = shadows.map(|name| ConfigChange::DropCollection { name: shadow(&name) });
        let cursors = stored::without_cursors(&*self.hub.log, &code.topic, name, true).await?;
        let commit = Commit { config: shadows.collect(), cursors, ..Commit::default() };
        self.commit_collections(&collections, commit).await?;
        let projector = Projector::Code(Arc::new(Code {
            project: code.project,
            owner,
            collections: collections.iter().map(|(name, _)| name.clone()).collect(),
            retries: DEFAULT_RETRIES,
        }));
        let record = Record::new(Definition::in_code(code.topic));
        self.run(name, Setup::new(record, Some(projector), collections), false);
        Ok(())
    }

    /// What a projection is told through, if it runs.
    pub(super) fn commands(&self, name: &str) -> Option<mpsc::Sender<Command>> {
        self.running.lock().get(name).map(|handle| handle.commands.clone())
    }

    /// Whether there is such a projection, and it reads this topic.
    pub(crate) fn reads(&self, name: &str, topic: &TopicName) -> bool {
        self.record(name).is_some_and(|record| record.definition.topic == *topic)
    }

    fn record(&self, name: &str) -> Option<Record> {
        self.running.lock().get(name).map(|handle| handle.record.borrow().clone())
    }

    /// Ends a projection, if it runs, after what it has under way.
    async fn end(&self, name: &str) -> Option<Ended> {
        let handle = self.running.lock().remove(name)?;
        // One that has ended already needs no telling.
        let _ = handle.commands.send(Command::Stop).await;
        let _ = handle.task.await;
        let mut setup = handle.setup;
        setup.record = handle.record.borrow().clone();
        Some(Ended { setup, is_stored: handle.is_stored })
    }

    /// Stores what a projection is, and makes its collections.
    async fn store(
        &self,
        name: &str,
        before: Option<&Record>,
        (record, plan): (&Record, &Plan),
    ) -> Result<(), ProjectionError> {
        let mut commit = Commit { documents: vec![stored::write(name, Some(record))], ..Commit::default() };
        if let Some(before) = before {
            let shadows = collections_of(&before.definition);
            let shadows = shadows.chain([stored::failures_of(name)]);
            commit.config.extend(shadows.map(|name| ConfigChange::DropCollection { name: shadow(&name) }));
            let topic = &before.definition.topic;
            commit.cursors.extend(stored::without_cursors(&*self.hub.log, topic, name, true).await?);
            if *topic != record.definition.topic {
                // What failed there says nothing of what is read from now on.
                commit.config.push(ConfigChange::DropCollection { name: stored::failures_of(name) });
                commit.cursors.extend(stored::without_cursors(&*self.hub.log, topic, name, false).await?);
            }
        }
        self.commit_collections(&plan.collections, commit).await
    }

    /// Makes collections or changes their settings, and whatever else the commit has.
    async fn commit_collections(
        &self,
        collections: &[(Arc<str>, CollectionConfig)],
        commit: Commit,
    ) -> Result<(), ProjectionError> {
        let mut tries = Tries::default();
        loop {
            let mut commit = commit.clone();
            for (name, config) in collections {
                let now = self.hub.documents.collection(name).await?;
                if let Some(now) = now.as_ref().filter(|now| now.config.owner != config.owner) {
                    let owner = match now.config.owner.as_projection() {
                        Some(projection) => format!("projection {projection:?}"),
                        None => "commits".to_owned(),
                    };
                    return Err(ProjectionError::NotOwner { collection: name.to_string(), owner });
                }
                if now.as_ref().is_none_or(|now| *now.config != *config) {
                    let (name, config) = (name.clone(), config.clone());
                    let expect_revision = now.map_or(0, |now| now.revision);
                    commit.config.push(ConfigChange::PutCollection { name, expect_revision, config });
                }
            }
            match self.hub.bus.commit(Arc::new(commit)).await {
                Err(error) => tries.again(error).await?,
                Ok(_) => return Ok(()),
            }
        }
    }

    /// How all projections are doing, by name.
    pub async fn list(&self) -> Result<Vec<ProjectionStatus>, ProjectionError> {
        let names: Vec<String> = self.running.lock().keys().cloned().collect();
        let mut all = Vec::with_capacity(names.len());
        for name in names {
            match self.status(&name).await {
                Ok(status) => all.push(status),
                // It was deleted meanwhile.
                Err(ProjectionError::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }

    /// How a projection is doing.
    pub async fn get(&self, name: &str) -> Result<ProjectionStatus, ProjectionError> {
        self.status(name).await
    }

    async fn status(&self, name: &str) -> Result<ProjectionStatus, ProjectionError> {
        let (record, now, positions, collections) = {
            let running = self.running.lock();
            let handle = running.get(name).ok_or_else(|| ProjectionError::NotFound(name.to_owned()))?;
            // Before how it is doing: why a rebuild was given up is noted before it is stored that it was.
            let record = handle.record.borrow().clone();
            let mut now = handle.shared.now.lock().clone();
            if handle.task.is_finished() {
                now.state = ProjectionState::Stopped("it has ended; the log says why".into());
            }
            let positions = handle.shared.positions.borrow().clone();
            let collections = handle.setup.collections.iter().map(|(name, _)| name.to_string());
            (record, now, positions, collections.collect())
        };
        let partitions = self.partitions(&record.definition.topic, name, false, &positions).await?;
        let rebuild = match record.rebuilding {
            false => None,
            true => {
                let (positions, failed) = now.rebuild.unwrap_or_default();
                let behind = self.partitions(&record.definition.topic, name, true, &positions).await?;
                Some(RebuildStatus { lag: lag_of(&behind), failed })
            }
        };
        Ok(ProjectionStatus {
            name: name.to_owned(),
            collections,
            state: now.state,
            stale: record.is_stale(),
            definition: record.definition,
            lag: lag_of(&partitions),
            partitions,
            errors: now.errors,
            last_error: now.last_error,
            rebuild,
            rebuild_error: now.rebuild_error,
        })
    }

    async fn partitions(
        &self,
        topic: &TopicName,
        name: &str,
        rebuild: bool,
        positions: &Positions,
    ) -> Result<Vec<ProjectionPartition>, ProjectionError> {
        let Some(topic) = self.hub.log.topic(topic).await? else { return Ok(Vec::new()) };
        let mut partitions = Vec::new();
        for partition in 0..topic.config.partitions {
            let bounds = self.hub.log.bounds(&topic.pinned(), Partition(partition)).await?;
            let known =
                positions.next.get(partition as usize).filter(|_| positions.topic == Some(topic.number));
            let next = match known {
                Some(next) => Offset(*next),
                // It has not looked yet.
                None => {
                    let cursor =
                        self.hub.log.cursor(&cursor_key(&topic.name, name, rebuild, partition)).await?;
                    cursor.map_or(bounds.first, |cursor| cursor.next)
                }
            };
            partitions.push(ProjectionPartition { partition: Partition(partition), next, tail: bounds.next });
        }
        Ok(partitions)
    }

    /// Ends a projection and removes its collections.
    pub async fn delete(self: &Arc<Self>, name: &str) -> Result<(), ProjectionError> {
        let (this, name) = (self.clone(), name.to_owned());
        to_its_end(async move { this.delete_now(&name).await }).await
    }

    async fn delete_now(&self, name: &str) -> Result<(), ProjectionError> {
        let _changing = self.turn().await?;
        let ended = self.end(name).await.ok_or_else(|| ProjectionError::NotFound(name.to_owned()))?;
        let forgotten = self.forget(name, &ended.setup.record.definition.topic).await;
        if forgotten.is_err() {
            self.run(name, ended.setup, ended.is_stored);
        }
        forgotten
    }

    /// Removes all that is stored of a projection that does not run.
    async fn forget(&self, name: &str, topic: &TopicName) -> Result<(), ProjectionError> {
        let mut tries = Tries::default();
        loop {
            // Those that an earlier definition wrote, too.
            let owned = stored::owned_by(&*self.hub.documents, name).await?.into_iter();
            let mut cursors = stored::without_cursors(&*self.hub.log, topic, name, false).await?;
            cursors.extend(stored::without_cursors(&*self.hub.log, topic, name, true).await?);
            let commit = Commit {
                config: owned.map(|name| ConfigChange::DropCollection { name }).collect(),
                documents: vec![stored::write(name, None)],
                cursors,
                ..Commit::default()
            };
            match self.hub.bus.commit(Arc::new(commit)).await {
                Err(error) => tries.again(error).await?,
                Ok(_) => return Ok(()),
            }
        }
    }

    /// Starts to make the collections of a projection anew.
    pub async fn rebuild(&self, name: &str, partial: bool) -> Result<ProjectionStatus, ProjectionError> {
        self.until_started(name).await?;
        let _changing = self.turn().await?;
        let record = self.record(name).ok_or_else(|| ProjectionError::NotFound(name.to_owned()))?;
        if record.rebuilding {
            return Err(ProjectionError::Rebuilding(name.to_owned()));
        }
        if let Some(topic) = self.hub.log.topic(&record.definition.topic).await? {
            for partition in (0..topic.config.partitions).map(Partition) {
                let first = self.hub.log.bounds(&topic.pinned(), partition).await?.first;
                if first > Offset(0) && !partial {
                    return Err(ProjectionError::Incomplete { partition, first });
                }
            }
        }
        let halted = self.running.lock().get(name).and_then(|handle| handle.setup.halted());
        if let Some(reason) = halted {
            return Err(ProjectionError::Bad(format!("{reason}; redefine it first")));
        }
        let commands = self.commands(name);
        let ended = || ProjectionError::Bad(format!("projection {name:?} has ended; the log says why"));
        let (answer, answered) = oneshot::channel();
        let commands = commands.ok_or_else(ended)?;
        commands.send(Command::Rebuild { partial, answer }).await.map_err(|_| ended())?;
        answered.await.map_err(|_| ended())??;
        self.status(name).await
    }

    /// Waits until a projection is compiled, for [`MAX_WAIT`] at most.
    pub(super) async fn until_started(&self, name: &str) -> Result<(), ProjectionError> {
        let setup = self.running.lock().get(name).map(|handle| handle.setup.clone());
        let Some(setup) = setup else { return Ok(()) };
        let started = tokio::time::timeout(MAX_WAIT, setup.projector(&self.hub, name)).await;
        Ok(started.map(drop).map_err(|_| ReadError::Unavailable(COMPILING.to_owned()))?)
    }

    /// Waits until the owner of a collection has seen an offset, for [`MAX_WAIT`] at most; whether it has.
    /// A collection that no projection owns, or a place that its topic cannot have, is [`ProjectionError::Bad`].
    pub async fn until_seen(&self, collection: &str, at: MinOffset) -> Result<bool, ProjectionError> {
        let seen = async {
            while !self.until_seen_or_ended(collection, at).await? {
                // Whoever deletes it, or defines it anew, has the turn until that is done.
                drop(self.turn().await?);
            }
            Ok(true)
        };
        tokio::time::timeout(MAX_WAIT, seen).await.unwrap_or(Ok(false))
    }

    /// Waits until the owner of a collection has seen an offset, or does not run any more; whether it has.
    async fn until_seen_or_ended(&self, collection: &str, at: MinOffset) -> Result<bool, ProjectionError> {
        let bad = |message: String| Err(ProjectionError::Bad(message));
        let found = {
            let running = self.running.lock();
            let owner = running.values().find(|handle| handle.writes(collection));
            owner.map(|handle| {
                (handle.shared.positions.subscribe(), handle.record.borrow().definition.topic.clone())
            })
        };
        let Some((mut positions, topic)) = found else {
            return bad(format!(
                "no projection writes collection {collection}, so it has no offset to wait for"
            ));
        };
        let state = self.hub.log.topic(&topic).await?;
        let partitions = state.as_ref().map_or(1, |state| state.config.partitions);
        let partition = match at.partition {
            Some(partition) if partition.0 < partitions => partition.0,
            Some(partition) => return bad(format!("topic {topic} has no partition {partition}")),
            None if partitions == 1 => 0,
            None => {
                return bad(format!(
                    "topic {topic} has {partitions} partitions: name one, as in 0:{}",
                    at.offset
                ));
            }
        };
        let has_seen = |now: &Positions| {
            // What it has seen of a topic that is gone does not count.
            let is_same = state.as_ref().is_none_or(|state| now.topic == Some(state.number));
            is_same && now.next.get(partition as usize).is_some_and(|next| *next > at.offset.0)
        };
        Ok(positions.wait_for(has_seen).await.is_ok())
    }
}

/// Does what must not end half way, even where nobody waits for it any more.
async fn to_its_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, ProjectionError>> + Send + 'static,
) -> Result<T, ProjectionError> {
    let given_up = |error: JoinError| Err(ReadError::Unavailable(error.to_string()).into());
    tokio::spawn(work).await.unwrap_or_else(given_up)
}

pub(super) fn check_name(name: &str) -> Result<(), ProjectionError> {
    let fits = name.len() <= MAX_NAME_BYTES && TopicName::parse(name).is_ok();
    fits.then_some(()).ok_or_else(|| {
        ProjectionError::Bad(format!(
            "{name:?} is not a projection name: use dot-separated segments of a-z, 0-9, _ and -, {MAX_NAME_BYTES} bytes at most"
        ))
    })
}

fn setup_of(record: Record, plan: Plan) -> Setup {
    let collections = plan.collections.clone();
    Setup::new(record, Some(Projector::Plan(Arc::new(plan))), collections)
}

/// A projection that is there to be seen, defined anew or deleted.
fn halted_setup_of(name: &str, record: Record, reason: String) -> Setup {
    let config = CollectionConfig { owner: Owner::projection(name), ..CollectionConfig::default() };
    let collections = collections_of(&record.definition).map(|name| (name, config.clone())).collect();
    Setup::new(record, Some(Projector::Halted(reason)), collections)
}

fn collections_of(definition: &Definition) -> impl Iterator<Item = Arc<str>> {
    definition.collections().map(Arc::from)
}

fn lag_of(partitions: &[ProjectionPartition]) -> u64 {
    partitions.iter().map(|at| at.tail.0.saturating_sub(at.next.0)).sum()
}

#[cfg(test)]
mod tests;
