//! The task of one projection: it runs it, makes its collections anew when asked to, and puts them in place.
//!
//! Documents and the cursor that says how far they go move in one commit, and what was made anew takes their place in
//! one, only where both have seen exactly the same events. All of that happens under the home of the topic: where another hub
//! has it, the task waits, and what it knew is looked up again. Commands are heard between commits, never in one.

use super::batch::Projector;
use super::registry::hold::Hold;
use super::replay::{Again, Outcome};
use super::runner::{Failures, ProjectionContext, Purpose, Runner, Step, Stop};
use super::slots::{LITTLE_BYTES, WorkSlot};
use super::stored::{self, Record, cursor_key, failures_of, shadow};
use super::{Definition, Plan, ProjectionError, ProjectionState};
use crate::homes::Home;
use crate::retry::pause;
use parking_lot::Mutex;
use prombus_core::collection::CollectionConfig;
use prombus_core::{
    Commit, ConfigChange, CursorMove, CursorTarget, Epoch, EventLogExt, Offset, Partition, ReadError,
    Sequence, TopicName, TopicNumber, Watched,
};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{OnceCell, mpsc, oneshot, watch};
use tokio::time::Instant;

/// For each page that the present collections go on by, what is made anew goes on by so many. Were it no faster than they are,
/// it would not meet them before they have done all there is, and where events come as fast as they are done, never.
const REBUILD_STEPS: usize = 2;

/// What a projection is told to wait for that has just been started.
pub(super) const COMPILING: &str = "the expressions of the projection are being compiled";

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
    Again(Again, oneshot::Sender<Result<Outcome, ProjectionError>>),
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
            Self::Again(_, answer) => drop(answer.send(Err(error))),
            Self::Hold(hold) => hold.stand_still().await,
            Self::Stop => {}
        }
    }
}

/// What a projection is at the moment.
#[derive(Clone)]
pub(super) struct Setup {
    pub record: Record,
    /// Unknown until its expressions were compiled, as they are when it starts.
    projector: Arc<OnceCell<Projector>>,
    pub collections: Vec<(Arc<str>, CollectionConfig)>,
}

impl Setup {
    /// A projection whose projector is known, or is what its definition compiles to.
    pub fn new(
        record: Record,
        projector: Option<Projector>,
        collections: Vec<(Arc<str>, CollectionConfig)>,
    ) -> Self {
        Self { record, projector: Arc::new(OnceCell::new_with(projector)), collections }
    }

    /// Why it stands still, if it does as far as is known.
    pub fn halted(&self) -> Option<String> {
        self.projector.get().and_then(Projector::halted)
    }

    /// What it does before it was told or has done anything.
    pub fn first_state(&self) -> ProjectionState {
        match self.projector.get().map(Projector::halted) {
            None => ProjectionState::Starting,
            Some(None) => ProjectionState::Running,
            Some(Some(reason)) => ProjectionState::Stopped(reason),
        }
    }

    /// What makes writes of events, once its expressions are compiled.
    pub async fn projector(&self, hub: &ProjectionContext, name: &str) -> &Projector {
        self.projector.get_or_init(|| compiled(hub, name, &self.record.definition)).await
    }

    fn topic(&self) -> &TopicName {
        &self.record.definition.topic
    }
}

/// What a stored definition compiles to.
async fn compiled(hub: &ProjectionContext, name: &str, definition: &Definition) -> Projector {
    let _turn = hub.compiling.lock().await;
    loop {
        match Plan::compile_in_turn(name, definition).await {
            Ok(plan) => return Projector::Plan(Arc::new(plan)),
            // Nobody tells when there is someone to compile it.
            Err(ProjectionError::Read(_)) => tokio::time::sleep(pause::SWITCH).await,
            // It was fine for the build that stored it. The others are none the worse for it.
            Err(error) => {
                tracing::error!(projection = name, %error, "a projection is not started");
                return Projector::Halted(error.to_string());
            }
        }
    }
}

pub(super) struct Actor {
    pub hub: Arc<ProjectionContext>,
    pub name: String,
    pub setup: Setup,
    /// That of the setup, once it is known.
    pub projector: Projector,
    pub shared: Arc<Shared>,
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
        self.shared.now.lock().state = setup.first_state();
        let mut compiling = pin!(setup.projector(&self.hub, &self.name));
        loop {
            tokio::select! {
                // What it is told after that it can do.
                biased;
                projector = &mut compiling => {
                    self.projector = projector.clone();
                    self.shared.now.lock().state = setup.first_state();
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
            self.shared.now.lock().state = ProjectionState::Stopped(error.to_string());
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

    async fn advance_rebuild(&mut self, work: &mut Work) -> bool {
        let goal = match self.goal(work).await {
            Ok(goal) => goal,
            Err(error) => return self.stop_rebuild(error.into(), work).await,
        };
        let home = work.live.home.clone();
        let Some(runner) = &mut work.rebuild else { return false };
        // Beyond what the present collections have, it would do in silence what is to be told of.
        let limit = (!work.stopped).then_some(goal.as_slice());
        let stepped = match runner.step(limit).await {
            Ok(stepped) => stepped,
            Err(stop) => return self.stop_rebuild(stop, work).await,
        };
        let (topic, began) = (runner.topic().map(|topic| topic.number.0), self.setup.record.rebuilt_from);
        match began {
            _ if topic == began => {}
            // It was of nothing until there was a topic.
            None => {
                let record = Record { rebuilt_from: topic, ..self.setup.record.clone() };
                if let Err(error) = self.store(&home, record, Commit::by_hub()).await {
                    self.wait(&format!("the rebuild has to wait: {error}"), pause::SWITCH, work);
                    return false;
                }
            }
            Some(_) => {
                let stop = Stop { reason: "the topic was deleted meanwhile".to_owned(), pause: None };
                return self.stop_rebuild(stop, work).await;
            }
        }
        if stepped == Step::Worked && !covers(&runner.taken(), &goal) {
            return true;
        }
        if let Err(stop) = runner.land().await {
            return self.stop_rebuild(stop, work).await;
        }
        // Nothing is under way when one takes the place of the other.
        if let Err(stop) = work.live.land().await {
            self.stop(stop, work);
            return false;
        }
        match &work.rebuild {
            Some(runner) if !is_there(runner, work, &goal) => return true,
            Some(runner) => {
                if let Err(error) = self.switch(runner).await {
                    self.wait(&format!("the rebuild has to wait: {error}"), pause::SWITCH, work);
                    return false;
                }
            }
            None => return false,
        }
        let failures = std::mem::take(&mut work.live.failures);
        let live = self.runner(&work.live.home, Purpose::Live);
        let slot = work.slot.take();
        *work = Work { live, rebuild: None, stopped: false, tails: None, resume: None, slot };
        work.live.failures = failures;
        true
    }

    /// Where a rebuild is to go: to where the present collections are; where those stay behind for good, to where the
    /// topic ended when that was first asked.
    async fn goal(&self, work: &mut Work) -> Result<Vec<u64>, ReadError> {
        if !work.stopped {
            return Ok(work.live.taken());
        }
        if let Some(tails) = &work.tails {
            return Ok(tails.clone());
        }
        let mut tails = Vec::new();
        if let Some(topic) = self.hub.log.topic(self.setup.topic()).await? {
            for partition in 0..topic.config.partitions {
                tails.push(self.hub.log.bounds(&topic.pinned(), Partition(partition)).await?.next.0);
            }
        }
        Ok(work.tails.insert(tails).clone())
    }

    /// A rebuild cannot go on: it is given up, or waits. Whether there may be more to do.
    async fn stop_rebuild(&mut self, stop: Stop, work: &mut Work) -> bool {
        let Stop { reason, pause } = stop;
        if let Some(pause) = pause {
            self.wait(&reason, pause, work);
            return false;
        }
        tracing::warn!(projection = self.name, reason, "a rebuild was given up");
        work.live.failures.last = Some(format!("the rebuild was given up: {reason}"));
        // Before anyone is told that it is over.
        {
            let mut now = self.shared.now.lock();
            now.last_error.clone_from(&work.live.failures.last);
            now.rebuild_error = Some(reason);
        }
        if let Some(runner) = &mut work.rebuild {
            // Whatever comes of it: only then nothing is under way.
            let _ = runner.land().await;
        }
        let home = work.live.home.clone();
        if let Err(error) = self.give_up_rebuild(&home).await {
            self.wait(&format!("the rebuild cannot be given up yet: {error}"), pause::SWITCH, work);
            return false;
        }
        (work.rebuild, work.tails) = (None, None);
        true
    }

    fn runner(&self, home: &Arc<Home>, purpose: Purpose) -> Runner {
        Runner::new(self.hub.clone(), home.clone(), &self.name, self.projector.clone(), purpose)
    }

    /// What makes the collections anew.
    fn rebuilder(&self, home: &Arc<Home>) -> Runner {
        self.runner(home, Purpose::Rebuild { partial: self.setup.record.partial })
    }

    /// It cannot go on: for good, or for now.
    fn stop(&self, stop: Stop, work: &mut Work) {
        let Stop { reason, pause } = stop;
        match pause {
            Some(pause) => self.wait(&reason, pause, work),
            None => {
                tracing::warn!(projection = self.name, reason, "a projection has stopped");
                self.shared.now.lock().state = ProjectionState::Stopped(reason);
                work.stopped = true;
            }
        }
    }

    /// It goes on after a pause. Until then this is what it says.
    fn wait(&self, reason: &str, pause: Duration, work: &mut Work) {
        let mut now = self.shared.now.lock();
        if now.last_error.as_deref() != Some(reason) {
            tracing::warn!(projection = self.name, reason, "a projection has to wait");
            now.last_error = Some(reason.to_owned());
        }
        work.resume = Some(Instant::now() + pause);
    }

    /// Tells others what a step has done.
    fn note(&self, step: Step, live: &Runner) {
        {
            let mut now = self.shared.now.lock();
            now.state = match step {
                Step::NoTopic => ProjectionState::Waiting(live.topic_name.clone()),
                Step::Worked | Step::Idle => ProjectionState::Running,
            };
            (now.errors, now.last_error) = (live.failures.count, live.failures.last.clone());
        }
        let positions = positions_of(live);
        self.shared.positions.send_if_modified(|known| {
            let changed = *known != positions;
            *known = positions;
            changed
        });
    }

    fn note_rebuild(&self, rebuild: Option<&Runner>) {
        self.shared.now.lock().rebuild = rebuild.map(|runner| (positions_of(runner), runner.failures.count));
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
                self.shared.now.lock().last_error = None;
                hold.stand_still().await;
            }
            Command::Rebuild { partial, answer } => {
                let begun = self.begin_rebuild(&work.live.home, partial).await;
                if begun.is_ok() {
                    self.shared.now.lock().rebuild_error = None;
                    (work.rebuild, work.tails) = (Some(self.rebuilder(&work.live.home)), None);
                    self.note_rebuild(work.rebuild.as_ref());
                }
                // Whoever no longer waits does not want to know.
                let _ = answer.send(begun);
            }
            Command::Again(again, answer) => {
                let done = match self.setup.record.rebuilding {
                    // What takes the place of the collections would lack it, or have it twice.
                    true => {
                        let why = "the projection is being rebuilt, which applies all events again";
                        Ok(Outcome::Refused(why.into()))
                    }
                    false => work.live.apply_again(again).await,
                };
                {
                    let mut now = self.shared.now.lock();
                    (now.errors, now.last_error) =
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
        let stored = self.hub.bus.commit(Arc::new(commit)).await;
        stored.inspect_err(|error| self.hub.heard(home, error))?;
        self.setup.record = record.clone();
        self.stored.send_replace(record);
        Ok(())
    }

    /// What removes the cursors of a rebuild.
    async fn without_rebuild_cursors(&self) -> Result<Vec<CursorMove>, ReadError> {
        stored::without_cursors(&*self.hub.log, self.setup.topic(), &self.name, true).await
    }

    /// Empty shadows of all collections, and nothing done yet.
    async fn begin_rebuild(&mut self, home: &Arc<Home>, partial: bool) -> Result<(), ProjectionError> {
        let mut config = vec![ConfigChange::DropCollection { name: shadow(&failures_of(&self.name)) }];
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
        let rebuilt_from = self.hub.log.topic(self.setup.topic()).await?.map(|topic| topic.number.0);
        let record = Record { rebuilding: true, partial, rebuilt_from, ..self.setup.record.clone() };
        self.store(home, record, Commit { config, cursors, ..Commit::by_hub() }).await
    }

    async fn give_up_rebuild(&mut self, home: &Arc<Home>) -> Result<(), ProjectionError> {
        let collections = self.setup.collections.iter().map(|(name, _)| name.clone());
        let collections = collections.chain([failures_of(&self.name)]);
        let config = collections.map(|name| ConfigChange::DropCollection { name: shadow(&name) }).collect();
        let cursors = self.without_rebuild_cursors().await?;
        let record = Record { rebuilding: false, ..self.setup.record.clone() };
        self.store(home, record, Commit { config, cursors, ..Commit::by_hub() }).await
    }

    /// Puts what was made anew in the place of what is there, and goes on from where it is: in one commit.
    async fn switch(&mut self, rebuild: &Runner) -> Result<(), ProjectionError> {
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
        config.extend(self.switch_failures().await?);
        config.extend(self.left_behind().await?);
        let mut cursors = self.without_rebuild_cursors().await?;
        for (partition, next) in (0..).zip(rebuild.done()) {
            let key = cursor_key(self.setup.topic(), &self.name, false, partition);
            // Nobody else moves it, and nothing is under way.
            let expect_version = self.hub.log.cursor(&key).await?.map_or(0, |cursor| cursor.version);
            cursors.push(CursorMove {
                key,
                incarnation: rebuild.topic().map(|topic| topic.number),
                expect_version,
                epoch: rebuild.home.epoch(),
                to: Some(CursorTarget { next: Offset(next), detail: Default::default() }),
            });
        }
        let made = self.setup.record.definition.clone();
        let record = Record { made, mixed: false, rebuilding: false, ..self.setup.record.clone() };
        self.store(&rebuild.home, record, Commit { config, cursors, ..Commit::by_hub() }).await
    }

    /// What failed in a rebuild is what the collections lack from then on, and nothing else.
    async fn switch_failures(&self) -> Result<Vec<ConfigChange>, ReadError> {
        let to = failures_of(&self.name);
        let from = shadow(&to);
        let made = self.hub.documents.collection(&from).await?;
        Ok(match made.is_some_and(|made| made.documents > 0) {
            true => vec![ConfigChange::SwapCollection { from, to }],
            false => [from, to].map(|name| ConfigChange::DropCollection { name }).into(),
        })
    }

    /// What removes the collections that an earlier definition wrote and this one does not.
    async fn left_behind(&self) -> Result<Vec<ConfigChange>, ProjectionError> {
        let owned = super::stored::owned_by(&*self.hub.documents, &self.name).await?;
        let failures = failures_of(&self.name);
        let is_ours = |name: &Arc<str>| {
            let known = self.setup.collections.iter().map(|(known, _)| known).chain([&failures]);
            known.into_iter().any(|known| *known == *name || shadow(known) == *name)
        };
        let left = owned.into_iter().filter(|name| !is_ours(name));
        Ok(left.map(|name| ConfigChange::DropCollection { name }).collect())
    }
}

/// Whether a place in all partitions is not before another one.
fn covers(places: &[u64], others: &[u64]) -> bool {
    places.len() >= others.len() && places.iter().zip(others).all(|(place, other)| place >= other)
}

/// Whether a rebuild is where it is to go: exactly where the present collections are, so that nothing is skipped that
/// those would have told of.
fn is_there(rebuild: &Runner, work: &Work, goal: &[u64]) -> bool {
    let number = |runner: &Runner| runner.topic().map(|topic| topic.number);
    match work.stopped {
        true => covers(&rebuild.done(), goal),
        false => number(rebuild) == number(&work.live) && rebuild.done() == work.live.done(),
    }
}

fn positions_of(runner: &Runner) -> Positions {
    Positions { topic: runner.topic().map(|topic| topic.number), next: runner.done() }
}
