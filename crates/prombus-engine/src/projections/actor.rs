//! The task of one projection: it runs it, makes its collections anew when asked to, and puts them in place.

use super::batch::Projector;
use super::runner::{Runner, Step, Stop, Surroundings};
use super::stored::{self, Record, cursor_key, shadow};
use super::{ProjectionError, ProjectionState};
use parking_lot::Mutex;
use prombus_core::collection::CollectionConfig;
use prombus_core::{
    Commit, ConfigChange, CursorMove, CursorTarget, Epoch, Offset, Sequence, TopicName, TopicNumber,
};
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot, watch};

/// Where a projection is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Positions {
    /// The incarnation of the topic.
    pub topic: Option<TopicNumber>,
    /// The first offset that it has not seen, by partition.
    pub next: Vec<u64>,
}

/// What others may know of a projection.
pub(super) struct Shared {
    pub positions: watch::Sender<Positions>,
    pub now: Mutex<Now>,
}

/// How it is doing.
#[derive(Debug, Clone)]
pub(super) struct Now {
    pub state: ProjectionState,
    pub errors: u64,
    pub last_error: Option<String>,
    /// Where a rebuild is, and how many events failed in it.
    pub rebuild: Option<(Positions, u64)>,
}

/// What a projection is told.
pub(super) enum Command {
    /// Make the collections anew.
    Rebuild(oneshot::Sender<Result<(), ProjectionError>>),
    /// End, having finished what is under way.
    Stop,
}

/// What a projection is at the moment.
#[derive(Clone)]
pub(super) struct Setup {
    pub record: Record,
    pub projector: Projector,
    pub collections: Vec<(Arc<str>, CollectionConfig)>,
}

impl Setup {
    fn topic(&self) -> &TopicName {
        &self.record.definition.topic
    }
}

pub(super) struct Actor {
    pub hub: Arc<Surroundings>,
    pub name: String,
    pub setup: Setup,
    pub shared: Arc<Shared>,
    pub commands: mpsc::Receiver<Command>,
    /// Whether it is stored, or runs for as long as the program does.
    pub is_stored: bool,
    /// Tells the registry what is stored now.
    pub stored: watch::Sender<Record>,
}

impl Actor {
    /// Works until it is told to stop.
    pub async fn run(mut self) {
        let mut live = self.runner(false);
        let mut rebuild = self.setup.record.rebuilding.then(|| self.runner(true));
        let mut stopped = false;
        let mut seen = Sequence(0);
        loop {
            while let Ok(command) = self.commands.try_recv() {
                if !self.obey(command, &mut live, &mut rebuild, &mut stopped).await {
                    return;
                }
            }
            let step = if stopped { Ok(Step::Idle) } else { live.step().await };
            let mut worked = self.note(&step, &live, &mut stopped);
            if let Some(runner) = &mut rebuild {
                match runner.step().await {
                    Ok(Step::Worked) => worked = true,
                    Ok(Step::Idle | Step::NoTopic) if is_behind(runner, &live) => worked = true,
                    Ok(Step::Idle | Step::NoTopic) => {
                        // Nothing of the present collections is under way when others take their place.
                        let landed = live.land().await;
                        match landed {
                            Ok(_) if is_behind(runner, &live) => worked = true,
                            Ok(_) => match self.switch(runner, &live).await {
                                Ok(()) => {
                                    (rebuild, stopped, worked) = (None, false, true);
                                    live = self.runner(false);
                                }
                                Err(error) => {
                                    tracing::warn!(projection = self.name, %error, "the rebuild has to wait");
                                    // The commit was refused for what another one did; look again.
                                    live = self.runner(false);
                                    worked = true;
                                    tokio::task::yield_now().await;
                                }
                            },
                            Err(Stop(reason)) => self.stop(reason, &mut stopped),
                        }
                    }
                    Err(Stop(reason)) => {
                        tracing::warn!(projection = self.name, reason, "a rebuild was given up");
                        self.give_up_rebuild().await;
                        rebuild = None;
                    }
                }
            }
            self.note_rebuild(rebuild.as_ref());
            if worked {
                continue;
            }
            tokio::select! {
                biased;
                command = self.commands.recv() => {
                    let Some(command) = command else { return };
                    if !self.obey(command, &mut live, &mut rebuild, &mut stopped).await {
                        return;
                    }
                }
                now = self.hub.log.changed(seen) => seen = now,
            }
        }
    }

    fn runner(&self, rebuild: bool) -> Runner {
        Runner::new(self.hub.clone(), &self.name, self.setup.topic(), self.setup.projector.clone(), rebuild)
    }

    fn stop(&self, reason: String, stopped: &mut bool) {
        tracing::warn!(projection = self.name, reason, "a projection has stopped");
        self.shared.now.lock().state = ProjectionState::Stopped(reason);
        *stopped = true;
    }

    /// Tells others what a step has done. Whether there may be more to do.
    fn note(&self, step: &Result<Step, Stop>, live: &Runner, stopped: &mut bool) -> bool {
        if *stopped {
            return false;
        }
        match step {
            Err(Stop(reason)) => self.stop(reason.clone(), stopped),
            Ok(step) => {
                let mut now = self.shared.now.lock();
                now.state = match step {
                    Step::NoTopic => ProjectionState::Waiting(live.topic_name.clone()),
                    Step::Worked | Step::Idle => ProjectionState::Running,
                };
                (now.errors, now.last_error) = (live.failures.count, live.failures.last.clone());
            }
        }
        let positions = positions_of(live);
        self.shared.positions.send_if_modified(|known| {
            let changed = *known != positions;
            *known = positions;
            changed
        });
        matches!(step, Ok(Step::Worked))
    }

    fn note_rebuild(&self, rebuild: Option<&Runner>) {
        self.shared.now.lock().rebuild = rebuild.map(|runner| (positions_of(runner), runner.failures.count));
    }

    /// Does what it is told. `false`: that was to end.
    async fn obey(
        &mut self,
        command: Command,
        live: &mut Runner,
        rebuild: &mut Option<Runner>,
        stopped: &mut bool,
    ) -> bool {
        // What is under way is finished by the rules that it was begun with.
        if let Err(Stop(reason)) = live.land().await {
            self.stop(reason, stopped);
        }
        if let Some(runner) = rebuild {
            let _ = runner.land().await;
        }
        match command {
            Command::Stop => return false,
            Command::Rebuild(answer) => {
                let begun = self.begin_rebuild().await;
                if begun.is_ok() {
                    *rebuild = Some(self.runner(true));
                    self.note_rebuild(rebuild.as_ref());
                }
                // Whoever no longer waits does not want to know.
                let _ = answer.send(begun);
            }
        }
        true
    }

    /// Stores what it is now, together with other changes.
    async fn store(&mut self, record: Record, mut commit: Commit) -> Result<(), ProjectionError> {
        if self.is_stored {
            commit.documents.push(stored::write(&self.name, Some(&record)));
        }
        self.hub.bus.commit(Arc::new(commit)).await?;
        self.setup.record = record.clone();
        self.stored.send_replace(record);
        Ok(())
    }

    /// What removes the cursors of a rebuild.
    async fn without_rebuild_cursors(&self) -> Result<Vec<CursorMove>, ProjectionError> {
        let Some(topic) = self.hub.log.topic(self.setup.topic()).await? else { return Ok(Vec::new()) };
        let mut moves = Vec::new();
        for partition in 0..topic.config.partitions {
            let key = cursor_key(&topic.name, &self.name, true, partition);
            if let Some(cursor) = self.hub.log.cursor(&key).await? {
                let (expect_version, epoch) = (cursor.version, cursor.epoch);
                let incarnation = Some(topic.number);
                moves.push(CursorMove { key, incarnation, expect_version, epoch, to: None });
            }
        }
        Ok(moves)
    }

    /// Empty shadows of all collections, and nothing done yet.
    async fn begin_rebuild(&mut self) -> Result<(), ProjectionError> {
        let mut config = Vec::new();
        for (name, settings) in &self.setup.collections {
            config.push(ConfigChange::DropCollection { name: shadow(name) });
            // What is made anew is told to nobody.
            let settings = CollectionConfig { changefeed: None, ..settings.clone() };
            config.push(ConfigChange::PutCollection {
                name: shadow(name),
                expect_revision: 0,
                config: settings,
            });
        }
        let cursors = self.without_rebuild_cursors().await?;
        let record = Record { rebuilding: true, ..self.setup.record.clone() };
        self.store(record, Commit { config, cursors, ..Commit::default() }).await
    }

    async fn give_up_rebuild(&mut self) {
        let collections = self.setup.collections.iter();
        let config =
            collections.map(|(name, _)| ConfigChange::DropCollection { name: shadow(name) }).collect();
        let cursors = self.without_rebuild_cursors().await.unwrap_or_default();
        let record = Record { rebuilding: false, ..self.setup.record.clone() };
        if let Err(error) = self.store(record, Commit { config, cursors, ..Commit::default() }).await {
            tracing::warn!(projection = self.name, %error, "a rebuild that was given up is tried again at the next start");
        }
    }

    /// Puts what was made anew in the place of what is there, and goes on from where it is: in one commit.
    async fn switch(&mut self, rebuild: &Runner, live: &Runner) -> Result<(), ProjectionError> {
        let mut config = Vec::new();
        for (name, settings) in &self.setup.collections {
            config.push(ConfigChange::SwapCollection { from: shadow(name), to: name.clone() });
            if settings.changefeed.is_some() {
                let config_now = settings.clone();
                config.push(ConfigChange::PutCollection {
                    name: name.clone(),
                    expect_revision: 1,
                    config: config_now,
                });
            }
        }
        let mut cursors = self.without_rebuild_cursors().await?;
        for (partition, lane) in (0..).zip(&rebuild.lanes) {
            let expect_version = live.lanes.get(partition as usize).map_or(0, |lane| lane.version);
            cursors.push(CursorMove {
                key: cursor_key(self.setup.topic(), &self.name, false, partition),
                incarnation: rebuild.topic().map(|topic| topic.number),
                expect_version,
                epoch: Epoch(0),
                to: Some(CursorTarget { next: Offset(lane.next), detail: Default::default() }),
            });
        }
        let made = self.setup.record.definition.clone();
        let record = Record { made: made.clone(), definition: made, rebuilding: false };
        self.store(record, Commit { config, cursors, ..Commit::default() }).await
    }
}

/// Whether a rebuild has not seen what the present collections have.
fn is_behind(rebuild: &Runner, live: &Runner) -> bool {
    rebuild.lanes.len() < live.lanes.len()
        || rebuild.lanes.iter().zip(&live.lanes).any(|(rebuilt, live)| rebuilt.next < live.next)
}

fn positions_of(runner: &Runner) -> Positions {
    Positions {
        topic: runner.topic().map(|topic| topic.number),
        next: runner.lanes.iter().map(|lane| lane.next).collect(),
    }
}
