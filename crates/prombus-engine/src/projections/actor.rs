//! The task of one projection: it runs it, makes its collections anew when asked to, and puts them in place.
//!
//! Documents and the cursor that says how far they go move in one commit, and what was made anew takes their place in
//! one, once it has seen what they have. All of that happens under the home of the topic: where another hub
//! has it, the task waits, and what it knew is looked up again. Commands are heard between commits, never in one.

mod rebuilding;
mod setup;
mod switching;

use super::ProjectionError;
use super::ProjectionState;
use super::batch::Projector;
use super::registry::hold::Hold;
use super::replay::{EventToReplay, Outcome};
use super::runner::{Failures, ProjectionContext, Purpose, Runner, Step, Stop};
use super::slots::{LITTLE_BYTES, WorkSlot};
use super::stored::{self, Record};
use crate::homes::Home;
use crate::retry::{Tries, pause};
use parking_lot::Mutex;
use prombus_core::error::Retry;
use prombus_core::{Commit, Epoch, ReadError, Sequence, TopicNumber, Watched};
pub(super) use setup::{COMPILING, Setup};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

/// For each page that the present collections go on by, what is made anew goes on by so many. Were it no faster than they are,
/// it would not meet them before they have done all there is, and where events come as fast as they are done, never.
const REBUILD_STEPS: usize = 2;

/// Where a projection is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Positions {
    /// The incarnation of the topic.
    pub topic: Option<TopicNumber>,
    /// The first offset that it has not seen, by partition.
    pub next: Vec<u64>,
}

/// What others may know of a projection.
pub(super) struct ProjectionCell {
    pub positions: watch::Sender<Positions>,
    pub status: Mutex<ActorStatus>,
}

/// How it is doing.
#[derive(Debug, Clone)]
pub(super) struct ActorStatus {
    pub state: ProjectionState,
    pub errors: u64,
    pub last_error: Option<String>,
    /// Where a rebuild is, and how many events failed in it.
    pub rebuild: Option<(Positions, u64)>,
    /// Why the last rebuild was given up.
    pub rebuild_error: Option<String>,
}

/// What a projection is told.
pub(super) enum Command {
    /// Make the collections anew.
    Rebuild {
        /// Without events that are no longer kept.
        partial: bool,
        /// Whether that has begun.
        answer: oneshot::Sender<Result<(), ProjectionError>>,
    },
    /// Apply an event once more that has failed.
    Replay(EventToReplay, oneshot::Sender<Result<Outcome, ProjectionError>>),
    /// Stand still for a while.
    Hold(Hold),
    /// End, having finished what is under way.
    Stop,
}

impl Command {
    /// Does what it can do at a time when it cannot do anything else, and refuses the rest.
    async fn obey_idly(self, why: &str) {
        let error = ProjectionError::Read(ReadError::Unavailable(why.to_owned()));
        match self {
            // Whoever no longer waits does not want to know.
            Self::Rebuild { answer, .. } => drop(answer.send(Err(error))),
            Self::Replay(_, answer) => drop(answer.send(Err(error))),
            Self::Hold(hold) => hold.stand_still().await,
            Self::Stop => {}
        }
    }
}

pub(super) struct Actor {
    pub hub: Arc<ProjectionContext>,
    pub name: String,
    pub setup: Setup,
    /// That of the setup, once it is known.
    pub projector: Projector,
    pub cell: Arc<ProjectionCell>,
    pub commands: mpsc::Receiver<Command>,
    /// Whether it is stored, or runs for as long as the program does.
    pub is_stored: bool,
    /// Tells the registry what is stored now.
    pub stored: watch::Sender<Record>,
}

/// What an actor works on.
struct Work {
    live: Runner,
    rebuild: Option<Runner>,
    /// Whether it has stopped for good.
    stopped: bool,
    /// Where the topic ended after that, for a rebuild to go to.
    tails: Option<Vec<u64>>,
    /// When it goes on, where it waits for better times.
    resume: Option<Instant>,
    /// Without one it holds little, and reads nothing.
    slot: Option<WorkSlot>,
}

impl Work {
    fn waits(&self) -> bool {
        self.resume.is_some_and(|at| at > Instant::now())
    }

    fn runners(&mut self) -> impl Iterator<Item = &mut Runner> {
        [Some(&mut self.live), self.rebuild.as_mut()].into_iter().flatten()
    }
}

impl Actor {
    /// Works until it is told to stop, wherever its topic is at home here.
    pub async fn run(mut self) {
        let mut failures = Failures::default();
        while let Some(home) = self.move_in().await {
            if !self.compile().await || !self.work_at(home, &mut failures).await {
                return;
            }
        }
    }

    /// Waits until its expressions are compiled. `false`: it was told to stop.
    async fn compile(&mut self) -> bool {
        let setup = self.setup.clone();
        self.cell.status.lock().state = setup.first_state();
        let mut compiling = pin!(setup.projector(&self.hub, &self.name));
        loop {
            tokio::select! {
                // What it is told after that it can do.
                biased;
                projector = &mut compiling => {
                    self.projector = projector.clone();
                    self.cell.status.lock().state = setup.first_state();
                    return true;
                }
                command = self.commands.recv() => match command {
                    None | Some(Command::Stop) => return false,
                    Some(command) => command.obey_idly(COMPILING).await,
                },
            }
        }
    }

    /// Waits until the topic is at home here. `None`: it was told to stop.
    async fn move_in(&mut self) -> Option<Arc<Home>> {
        let mut seen = Sequence(0);
        loop {
            let error = match self.hub.claims.home(self.setup.topic(), Epoch(0)).await {
                Ok(home) => return Some(home),
                Err(error) => error,
            };
            self.cell.status.lock().state = ProjectionState::Stopped(error.to_string());
            tokio::select! {
                biased;
                command = self.commands.recv() => match command {
                    None | Some(Command::Stop) => return None,
                    Some(command) => command.obey_idly(&error.to_string()).await,
                },
                now = self.hub.claims.changed(seen) => seen = now,
                // That a hub has fallen silent is told by nobody.
                () = tokio::time::sleep(pause::UNAVAILABLE) => {}
            }
        }
    }

    /// Works until the topic is lost. `false`: until it was told to stop.
    async fn work_at(&mut self, home: Arc<Home>, failures: &mut Failures) -> bool {
        let stopped = self.projector.halted().is_some();
        let rebuild = (self.setup.record.rebuilding && !stopped).then(|| self.rebuilder(&home));
        let live = self.runner(&home, Purpose::Live);
        let mut work = Work { live, rebuild, stopped, tails: None, resume: None, slot: None };
        std::mem::swap(&mut work.live.failures, failures);
        let (mut seen, mut in_line) = (Sequence(0), None);
        // What another hub has done of it is not known here.
        while !home.is_lost() {
            loop {
                match self.commands.try_recv() {
                    Ok(command) => {
                        if !self.obey(command, &mut work).await {
                            return false;
                        }
                    }
                    Err(TryRecvError::Empty) => break,
                    // The hub is gone.
                    Err(TryRecvError::Disconnected) => return false,
                }
            }
            if let Err(error) = self.hub.claims.check(&home).await {
                self.wait(&error.to_string(), pause::UNAVAILABLE, &mut work);
            }
            let may_work = !work.waits();
            if may_work && work.slot.is_none() && self.projector.needs_slot() {
                let take = || Box::pin(self.hub.slots.take(self.projector.is_costly()));
                // Whatever it is told meanwhile, it keeps its place in line.
                let taking = in_line.get_or_insert_with(take);
                tokio::select! {
                    biased;
                    command = self.commands.recv() => {
                        let Some(command) = command else { return false };
                        if !self.obey(command, &mut work).await {
                            return false;
                        }
                        continue;
                    }
                    () = home.until_lost() => continue,
                    slot = taking => (work.slot, in_line) = (Some(slot), None),
                }
            }
            let worked = may_work && self.advance(&mut work).await;
            self.give_slot_back(worked, &mut work).await;
            if worked {
                continue;
            }
            let resume = work.resume;
            let watched = Watched::Topic(self.setup.topic().clone());
            tokio::select! {
                biased;
                command = self.commands.recv() => {
                    let Some(command) = command else { return false };
                    if !self.obey(command, &mut work).await {
                        return false;
                    }
                }
                () = home.until_lost() => {}
                // Nobody tells when a store is well again, or has room.
                () = tokio::time::sleep_until(resume.unwrap_or_else(Instant::now)), if resume.is_some() => {}
                now = self.hub.log.changed(&watched, seen), if resume.is_none() => seen = now,
            }
        }
        std::mem::swap(&mut work.live.failures, failures);
        true
    }

    /// Goes on by a page, both with the collections and with what is made anew. Whether there may be more to do.
    async fn advance(&mut self, work: &mut Work) -> bool {
        work.resume = None;
        let mut worked = false;
        if !work.stopped {
            match work.live.step(None).await {
                Ok(step) => {
                    self.note(step, &work.live);
                    worked = step == Step::Worked;
                }
                Err(stop) => self.stop(stop, work),
            }
        }
        for _ in 0..REBUILD_STEPS {
            // While the present collections wait for better times, so does what must not go past them.
            if work.rebuild.is_some() && work.resume.is_none() {
                worked |= self.advance_rebuild(work).await;
            }
        }
        self.note_rebuild(work.rebuild.as_ref());
        worked && work.resume.is_none()
    }

    fn runner(&self, home: &Arc<Home>, purpose: Purpose) -> Runner {
        Runner::new(self.hub.clone(), home.clone(), &self.name, self.projector.clone(), purpose)
    }

    /// It cannot go on: for good, or for now.
    fn stop(&self, stop: Stop, work: &mut Work) {
        let Stop { reason, pause } = stop;
        match pause {
            Some(pause) => self.wait(&reason, pause, work),
            None => {
                tracing::warn!(projection = self.name, reason, "a projection has stopped");
                self.cell.status.lock().state = ProjectionState::Stopped(reason);
                work.stopped = true;
            }
        }
    }

    /// It goes on after a pause. Until then this is what it says.
    fn wait(&self, reason: &str, pause: Duration, work: &mut Work) {
        let mut status = self.cell.status.lock();
        if status.last_error.as_deref() != Some(reason) {
            tracing::warn!(projection = self.name, reason, "a projection is waiting");
            status.last_error = Some(reason.to_owned());
        }
        work.resume = Some(Instant::now() + pause);
    }

    /// Tells others what a step has done.
    fn note(&self, step: Step, live: &Runner) {
        {
            let mut status = self.cell.status.lock();
            status.state = match step {
                Step::NoTopic => ProjectionState::Waiting(live.topic_name.clone()),
                Step::Worked | Step::Idle => ProjectionState::Running,
            };
            (status.errors, status.last_error) = (live.failures.count, live.failures.last.clone());
        }
        let positions = positions_of(live);
        self.cell.positions.send_if_modified(|known| {
            let changed = *known != positions;
            *known = positions;
            changed
        });
    }

    fn note_rebuild(&self, rebuild: Option<&Runner>) {
        self.cell.status.lock().rebuild = rebuild.map(|runner| (positions_of(runner), runner.failures.count));
    }

    /// Finishes what is under way.
    async fn land(&self, work: &mut Work) {
        if let Err(stop) = work.live.land().await {
            self.stop(stop, work);
        }
        if let Some(runner) = &mut work.rebuild {
            // Should it have failed, the next step finds that out.
            let _ = runner.land().await;
        }
    }

    /// Lets others work, where it has nothing more to do for now, or they have waited for long. What it still holds then is
    /// little.
    async fn give_slot_back(&self, worked: bool, work: &mut Work) {
        let held: usize = work.runners().map(|runner| runner.held_bytes()).sum();
        let Some(slot) = &work.slot else { return };
        if worked && held <= LITTLE_BYTES && slot.is_wanted() {
            work.slot = None;
        } else if !worked || slot.is_over() {
            self.land(work).await;
            work.runners().for_each(Runner::go_back);
            if worked {
                self.note(Step::Worked, &work.live);
            }
            work.slot = None;
        }
    }

    /// Does what it is told. `false`: that was to end.
    async fn obey(&mut self, command: Command, work: &mut Work) -> bool {
        // What is under way is finished by the rules that it was begun with.
        self.land(work).await;
        match command {
            Command::Stop => return false,
            Command::Hold(hold) => {
                // What was read may be gone afterwards, and what it failed with may quote it.
                work.runners().for_each(Runner::go_back);
                work.live.failures.last = None;
                self.cell.status.lock().last_error = None;
                hold.stand_still().await;
            }
            Command::Rebuild { partial, answer } => {
                let begun = self.begin_rebuild(&work.live.home, partial).await;
                if begun.is_ok() {
                    self.cell.status.lock().rebuild_error = None;
                    (work.rebuild, work.tails) = (Some(self.rebuilder(&work.live.home)), None);
                    self.note_rebuild(work.rebuild.as_ref());
                }
                // Whoever no longer waits does not want to know.
                let _ = answer.send(begun);
            }
            Command::Replay(replay, answer) => {
                let done = match self.setup.record.rebuilding {
                    // What takes the place of the collections would lack it, or have it twice.
                    true => {
                        let why = "the projection is being rebuilt, which applies all events again";
                        Ok(Outcome::Refused(why.into()))
                    }
                    false => work.live.apply_again(replay).await,
                };
                {
                    let mut status = self.cell.status.lock();
                    (status.errors, status.last_error) =
                        (work.live.failures.count, work.live.failures.last.clone());
                }
                let _ = answer.send(done);
            }
        }
        true
    }

    /// Stores what it is now, together with other changes.
    async fn store(
        &mut self,
        home: &Arc<Home>,
        record: Record,
        mut commit: Commit,
    ) -> Result<(), ProjectionError> {
        if self.is_stored {
            commit.documents.push(stored::write(&self.name, Some(&record)));
        }
        commit.cursors.iter_mut().for_each(|step| step.epoch = home.epoch());
        let (commit, mut tries) = (Arc::new(commit), Tries::default());
        // Not for as long as others are in the way: commands wait meanwhile, also the one to stop.
        while let Err(error) = self.hub.bus.commit(commit.clone()).await {
            self.hub.note_lost_home(home, &error);
            match error.retry() {
                Retry::Same => tries.again(error).await?,
                _ => return Err(error.into()),
            }
        }
        self.setup.record = record.clone();
        self.stored.send_replace(record);
        Ok(())
    }
}

fn positions_of(runner: &Runner) -> Positions {
    Positions { topic: runner.topic().map(|topic| topic.number), next: runner.done() }
}
