//! A replay at work: while a step is committed, the next one is made.

use super::definition::{Definition, Left, Recipe};
use super::step::{Making, READ_EVENTS, Step};
use super::stored::{self, Record, Stored};
use super::{ReplayContext, ReplayState, ReplaysError};
use crate::bus::BusError;
use crate::cleaning::{CleanError, ReadingTurn};
use crate::homes::Home;
use crate::retry::pause;
use parking_lot::Mutex;
use prombus_core::error::Retry;
use prombus_core::{
    Commit, CommitError, Epoch, HomesError, Origin, ReadError, Sequence, Ticket, TopicName, TopicNumber,
    TopicState,
};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, Semaphore, watch};

/// For how long a replay keeps its turn at the topic that it reads, in which nobody cleans there.
const KEEPS_TURN: Duration = Duration::from_millis(100);
/// With a limit on the rate, a step is what may be copied in one part in so many of a second.
const RATE_STEPS: u64 = 10;

/// What a runner shares with those who ask and tell it something.
#[derive(Debug, Default)]
pub(super) struct Signals {
    /// What is stored of the replay was changed.
    pub changed: Notify,
    /// Why it waits, while it does.
    pub waits: Mutex<Option<String>>,
}

/// A replay that runs on this hub.
pub(super) struct Runner {
    pub hub: Arc<ReplayContext>,
    pub name: String,
    pub signals: Arc<Signals>,
    /// Only a few replays work at a time.
    pub slots: Arc<Semaphore>,
    pub closing: watch::Receiver<bool>,
}

/// Why a replay does not go on, or not now.
enum Stop {
    /// It is over, or not for this hub to go on with.
    Over,
    /// It cannot go on.
    Failed(String),
    /// It looks again at what is stored, after a pause.
    Again(Duration, Option<String>),
}

impl From<ReadError> for Stop {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Unavailable(_) => Self::Again(pause::UNAVAILABLE, Some(error.to_string())),
            error => Self::Failed(error.to_string()),
        }
    }
}

impl From<BusError> for Stop {
    fn from(error: BusError) -> Self {
        match &error {
            // Somebody has told it something.
            BusError::Commit(CommitError::VersionConflict { .. }) => Self::Again(Duration::ZERO, None),
            // What is stored tells whether it happened.
            BusError::Commit(CommitError::Unknown(_)) => {
                Self::Again(pause::UNAVAILABLE, Some(error.to_string()))
            }
            other => match (other.retry(), pause::after(other.retry())) {
                (Retry::Same | Retry::Anew, Some(pause)) => Self::Again(pause, None),
                (_, Some(pause)) => Self::Again(pause, Some(error.to_string())),
                (_, None) => Self::Failed(error.to_string()),
            },
        }
    }
}

impl From<CleanError> for Stop {
    fn from(error: CleanError) -> Self {
        match error {
            CleanError::Read(error) => error.into(),
            CleanError::Bus(error) => error.into(),
            CleanError::Closing => Self::Over,
            error => Self::Again(pause::UNAVAILABLE, Some(error.to_string())),
        }
    }
}

/// A step that is being committed.
struct InFlight {
    ticket: Result<Ticket, BusError>,
    step: Step,
    /// The replay once it is.
    record: Record,
}

/// What a runner has at hand while it keeps its turn.
struct Stretch<'a> {
    turn: ReadingTurn<'a>,
    home: Arc<Home>,
    topic: &'a TopicState,
    recipe: &'a Recipe,
    /// As the last step that was committed has left it.
    stored: Stored,
    /// What is left behind the last step that was made.
    ahead: Vec<Left>,
    in_flight: Option<InFlight>,
    began: Instant,
}

impl Runner {
    /// Works until the replay is over or was paused, or the hub ends.
    pub async fn run(mut self) {
        while !self.is_closing() {
            let pause = match self.go_on().await {
                Ok(pause) => pause,
                Err(Stop::Over) => return,
                Err(Stop::Again(pause, why)) => {
                    self.wait_because(why);
                    pause
                }
                Err(Stop::Failed(reason)) => match self.fail(reason).await {
                    Ok(()) => return,
                    Err(error) => {
                        self.wait_because(Some(error.to_string()));
                        pause::UNAVAILABLE
                    }
                },
            };
            self.rest(pause).await;
        }
    }

    /// Whether the hub ends, or is gone.
    fn is_closing(&self) -> bool {
        *self.closing.borrow() || self.closing.has_changed().is_err()
    }

    fn wait_because(&self, why: Option<String>) {
        if let Some(why) = &why {
            tracing::warn!(replay = self.name, reason = why, "a replay is waiting");
        }
        *self.signals.waits.lock() = why;
    }

    /// Waits, unless what is stored is changed meanwhile.
    async fn rest(&mut self, pause: Duration) {
        if pause.is_zero() {
            tokio::task::yield_now().await;
            return;
        }
        tokio::select! {
            // There is nothing to wait for but the time.
            () = tokio::time::sleep(pause) => {}
            () = self.signals.changed.notified() => {}
            // A sender that is gone means the same.
            _ = self.closing.wait_for(|closing| *closing) => {}
        }
    }

    /// Stores that it cannot go on.
    async fn fail(&self, reason: String) -> Result<(), ReplaysError> {
        tracing::warn!(replay = self.name, reason, "a replay has failed");
        let now = self.hub.clock.now_ms();
        let failed = self.hub.change(&self.name, |record| {
            if record.state == ReplayState::Running {
                record.end(ReplayState::Failed, Some(reason.clone()), now);
            }
            Ok(())
        });
        failed.await.map(drop)
    }

    /// Copies for a while. Says how long to rest.
    async fn go_on(&mut self) -> Result<Duration, Stop> {
        let mut stored = stored::find(&*self.hub.documents, &self.name).await?.ok_or(Stop::Over)?;
        if stored.record.state != ReplayState::Running {
            return Err(Stop::Over);
        }
        let definition = stored.record.definition.clone();
        self.be_at_home(&definition.source.topic).await?;
        let recipe = Recipe::compile(&self.name, &definition).await.map_err(|error| match error {
            ReplaysError::Read(error) => error.into(),
            error => Stop::Failed(error.to_string()),
        })?;
        let slots = self.slots.clone();
        let slot = tokio::select! {
            // It is never closed.
            slot = slots.acquire() => slot.map_err(|_| Stop::Over)?,
            _ = self.closing.wait_for(|closing| *closing) => return Err(Stop::Over),
        };
        let topic = self.hub.log.topic(&definition.source.topic).await?;
        let topic = topic.filter(|topic| topic.number == TopicNumber(stored.record.topic));
        let topic = topic.ok_or_else(|| ReadError::TopicGone(definition.source.topic.clone()))?;
        let target = self.hub.log.topic(&definition.target).await?.map(|target| target.number.0);
        if stored.record.target.is_some() && stored.record.target != target {
            // One of that name is another one, which lacks the copies that were made.
            return Err(ReadError::TopicGone(definition.target.clone()).into());
        }
        stored.record.target = target;
        let hub = self.hub.clone();
        let mut turn = hub.cleaning.reading_turn(&topic).await?;
        let home = turn.home().await?;
        *self.signals.waits.lock() = None;
        let (began, before, ahead) =
            (Instant::now(), stored.record.counts.copied, stored.record.left.clone());
        let mut stretch =
            Stretch { turn, home, topic: &topic, recipe: &recipe, stored, ahead, in_flight: None, began };
        let copied = self.copy(&mut stretch, &definition).await;
        // Whatever became of the next step, the last one is waited for while the turn is kept.
        self.land(&mut stretch).await?;
        copied?;
        drop(slot);
        let copied = stretch.stored.record.counts.copied - before;
        if stretch.stored.record.state != ReplayState::Running {
            return Err(Stop::Over);
        }
        let time = |rate: u64| Duration::from_secs_f64(copied as f64 / rate as f64);
        Ok(definition.rate_per_s.map(time).unwrap_or_default().saturating_sub(began.elapsed()))
    }

    /// Waits until the topic is at home here.
    async fn be_at_home(&mut self, topic: &TopicName) -> Result<(), Stop> {
        let error = match self.hub.claims.home(topic, Epoch(0)).await {
            Ok(_) => return Ok(()),
            Err(error @ HomesError::Unavailable(_)) => {
                return Err(Stop::Again(pause::UNAVAILABLE, Some(error.to_string())));
            }
            Err(error) => error,
        };
        *self.signals.waits.lock() = Some(error.to_string());
        tokio::select! {
            _ = self.hub.claims.changed(Sequence(0)) => {}
            () = self.signals.changed.notified() => {}
            _ = self.closing.wait_for(|closing| *closing) => {}
        }
        // That a hub has fallen silent is told by nobody.
        Err(Stop::Again(pause::UNAVAILABLE, Some(error.to_string())))
    }

    /// Copies until the turn is over, or what may be copied at once is.
    async fn copy(&self, stretch: &mut Stretch<'_>, definition: &Definition) -> Result<(), Stop> {
        let rate = definition.rate_per_s;
        let most = rate.map_or(READ_EVENTS, |rate| usize::try_from(rate / RATE_STEPS).unwrap_or(READ_EVENTS));
        let making = Making {
            log: &*self.hub.log,
            topic: stretch.topic,
            target: &definition.target,
            recipe: stretch.recipe,
            most: most.clamp(1, READ_EVENTS),
        };
        let worked_ms = stretch.stored.record.worked_ms;
        loop {
            let step = making.step(&mut stretch.ahead).await?;
            let is_last = step.partition.is_none();
            self.land(stretch).await?;
            let worked_ms = worked_ms + stretch.began.elapsed().as_millis() as u64;
            let record = stretch.stored.record.after(&step, (worked_ms, self.hub.clock.now_ms()));
            self.launch(stretch, step, record).await;
            if is_last || rate.is_some() || stretch.began.elapsed() >= KEEPS_TURN {
                return Ok(());
            }
        }
    }

    /// Starts to commit a step.
    async fn launch(&self, stretch: &mut Stretch<'_>, step: Step, record: Record) {
        let epoch = stretch.home.epoch();
        let cursor = step.partition.map(|partition| stretch.turn.fence(partition, epoch));
        let commit = Commit {
            events: step.copies.clone(),
            documents: vec![record.write(&self.name, stretch.stored.version)],
            cursors: cursor.into_iter().collect(),
            origin: Origin::Derived,
            ..Commit::default()
        };
        let ticket = self.hub.bus.enqueue(&mut Arc::new(commit)).await;
        stretch.in_flight = Some(InFlight { ticket, step, record });
    }

    /// Waits for the step that is being committed, if there is one. Copies that the topic refuses are left out of it.
    async fn land(&self, stretch: &mut Stretch<'_>) -> Result<(), Stop> {
        while let Some(InFlight { ticket, mut step, record }) = stretch.in_flight.take() {
            let answer = match ticket {
                Ok(ticket) => ticket.await.map(drop).map_err(BusError::from),
                Err(error) => Err(error),
            };
            let Err(error) = answer else {
                let epoch = stretch.home.epoch();
                step.partition.iter().for_each(|partition| stretch.turn.fenced(*partition, epoch));
                stretch.stored = Stored { record, version: stretch.stored.version + 1 };
                return Ok(());
            };
            if let BusError::Commit(CommitError::EpochOver { .. }) = error {
                self.hub.claims.lose(&stretch.home);
            }
            match error.index() {
                Some(index) if index < step.copies.len() => {
                    let refusals = self.refusals(&step, (index, &error)).await?;
                    step.leave_out(refusals);
                    let times = (record.worked_ms, self.hub.clock.now_ms());
                    let record = stretch.stored.record.after(&step, times);
                    self.launch(stretch, step, record).await;
                }
                _ => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Why copies are refused, for each of a step, of which one is known to be.
    async fn refusals(
        &self,
        step: &Step,
        (culprit, error): (usize, &BusError),
    ) -> Result<Vec<Option<String>>, Stop> {
        let mut refusals = Vec::with_capacity(step.copies.len());
        for (at, copy) in step.copies.iter().enumerate() {
            if at == culprit {
                refusals.push(Some(error.to_string()));
                continue;
            }
            let alone = Commit { events: vec![copy.clone()], origin: Origin::Derived, ..Commit::default() };
            let judged = match self.hub.checks.check(&alone) {
                Ok(()) => self.hub.schema_checks.foresee(&alone).await,
                refused => refused,
            };
            refusals.push(match judged {
                Ok(()) => None,
                Err(error) if error.index().is_some() => Some(error.to_string()),
                Err(error) => return Err(error.into()),
            });
        }
        Ok(refusals)
    }
}
