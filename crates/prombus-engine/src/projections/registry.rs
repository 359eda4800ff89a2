//! All projections of a hub: made, changed, listed, rebuilt, deleted. What is stored decides which there are: a hub runs
//! those of topics that are at home on it, whoever has defined them.

mod definitions;
mod flows;
mod handle;
pub(super) mod hold;
mod past;
mod places;
mod rebuild;
mod status;
mod waiting;

pub(super) use definitions::check_name;
pub use definitions::{CodeSetup, Holdings};

use super::actor::{Actor, ActorStatus, COMPILING, Command, Positions, ProjectionCell, Setup};
use super::batch::Projector;
use super::runner::ProjectionContext;
use super::stored::{self, Record, Stored};
use super::{Definition, Plan, ProjectionError};
use crate::topics::rest_after;
use handle::Handle;
use parking_lot::Mutex;
use prombus_core::collection::{self, CollectionConfig};
use prombus_core::{EventLog, Owner, ReadError, Sequence, TopicName, Watched};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Instant;
use tokio::sync::{MutexGuard, mpsc, watch};
use tokio::task::AbortHandle;

/// How many commands may wait for a projection.
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
            Err(error) => tracing::warn!(%error, "failed to watch projections; will retry"),
        }
        drop(projections);
        // Others may share the slot, and mark it all the time.
        rest_after(began).await;
    }
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
        let snapshots = self.snapshot_flows().await?;
        for Stored { name, record, unreadable } in all {
            match self.is_known(&name, &record) {
                true => continue,
                false => self.end(&name).await,
            };
            if let Some(reason) = unreadable {
                tracing::error!(projection = name, reason, "failed to start a projection");
                let setup = self.unreadable_setup_of(&name, record, reason).await?;
                self.run(&name, setup, true);
                continue;
            }
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
                tracing::error!(projection = name, reason, "failed to start a projection");
            }
            self.run(&name, setup, true);
        }
        Ok(())
    }

    /// One that is there with the collections that it has made, to be defined anew or deleted.
    async fn unreadable_setup_of(
        &self,
        name: &str,
        record: Record,
        reason: String,
    ) -> Result<Setup, ReadError> {
        let config = CollectionConfig { owner: Owner::projection(name), ..CollectionConfig::default() };
        let owned = stored::owned_by(&*self.hub.documents, name).await?.into_iter();
        let owned = owned.filter(|name| !collection::is_internal(name)).map(|name| (name, config.clone()));
        Ok(Setup::new(record, Some(Projector::Halted(reason)), owned.collect()))
    }

    /// Those that run and are stored no more.
    fn forgotten(&self, all: &[Stored]) -> Vec<String> {
        let running = self.running.lock();
        let is_gone = |name: &str| all.iter().all(|stored| stored.name != name);
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
        let status = ActorStatus {
            state: setup.first_state(),
            errors: 0,
            last_error: None,
            rebuild: None,
            rebuild_error: None,
        };
        let cell = Arc::new(ProjectionCell {
            positions: watch::Sender::new(Positions::default()),
            status: Mutex::new(status),
        });
        let (stored, record) = watch::channel(setup.record.clone());
        let actor = Actor {
            hub: self.hub.clone(),
            name: name.to_owned(),
            setup: setup.clone(),
            projector: Projector::Halted(COMPILING.to_owned()),
            cell: cell.clone(),
            commands: receiver,
            is_stored,
            stored,
        };
        let task = tokio::spawn(actor.run());
        let handle = Handle { commands, cell, record, setup, is_stored, task };
        self.running.lock().insert(name.to_owned(), handle);
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

#[cfg(test)]
mod tests;
