//! Brings collections up to date with a topic, a run of events at a time: documents and cursor in one commit.
//!
//! While one batch is committed, the next one is read and applied. A batch that is refused for what one of its events
//! wrote is taken apart, until that event is alone and goes to the dead letters. One that makes too much is done in
//! smaller ones, and so is what follows it for a while.

mod recovery;

use super::Plan;
use super::batch::{Batch, Projector, by_code, by_plan};
use super::merged_partitions::{MOST_EVENTS, MergedPartitions, PageRequest, Run};
use super::slots::WorkSlots;
use super::stored::{OTHER_KEYS, cursor_key, failed_key, failures_of, shadow};
use crate::bus::{Bus, BusError};
use crate::filter::{Turn, off_the_runtime};
use crate::groups::{Failure, Reader, letter_of};
use crate::homes::{Claims, Home};
use crate::layers::Checks;
use crate::retry::pause;
use crate::room::{DocumentRoom, MOST_KIB, Room};
use crate::schemas::raise::{Raiser, Raisers};
use prombus_core::{
    Append, Clock, Commit, CommitError, CursorMove, CursorTarget, DocumentWrite, Documents, Epoch, Event,
    EventLog, EventLogExt, HomesError, Json, NewTopics, Offset, Origin, Owner, Page, Partition, ReadError,
    ReadRequest, Ticket, TopicName, TopicRef, TopicState, WriteOp,
};
use recovery::RefusedBatch;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long it takes until the clock has gone on.
const TICK: Duration = Duration::from_millis(1);
/// Recorded time that is so far ahead of the clock, because that was set back, moves on slowly, so that the clock can
/// catch up with it.
const FAR_AHEAD_MS: u64 = 1_000;
/// How slowly: by a millisecond in this time.
const SLOW_TICK: Duration = Duration::from_millis(20);
/// After a batch that made too much, batches are smaller, and grow by half each time that so many were committed.
const GROWS_AFTER: usize = 8;
/// A batch of so many events is a large one.
const LARGE_BATCH: usize = 256;
/// How many large batches are committed at a time.
pub(crate) const LARGE_BATCHES: usize = 4;
/// A batch that makes more than this, in KiB, waits for room: what an event may make alone, or many that change large documents.
const MUCH_KIB: usize = 8 << 10;

/// What projections need of the hub.
pub(crate) struct ProjectionContext {
    pub log: Arc<dyn EventLog>,
    pub documents: Arc<dyn Documents>,
    pub bus: Arc<dyn Bus>,
    pub clock: Arc<dyn Clock>,
    /// The topics that are at home here.
    pub claims: Arc<Claims>,
    /// What raises events to the latest version of their topic's schema.
    pub raisers: Arc<Raisers>,
    /// What is asked of every event that somebody publishes.
    pub checks: Checks,
    /// Turns of large batches. Whoever publishes waits behind no more of them, however many projections have a backlog.
    pub large_batches: Arc<Semaphore>,
    /// Room for batches that make much, which commits of consumers take as well.
    pub room: Arc<DocumentRoom>,
    /// Whether other hubs may change what is stored.
    pub has_others: bool,
    /// The settings of topics that the configuration names.
    pub new_topics: Arc<NewTopics>,
    /// Who works, of all that have something to do.
    pub slots: WorkSlots,
    /// Held by the one that is compiled. Stored projections start one after another, so that clients, who wait in the same lines
    /// for what they have sent, wait for one expression of one of them.
    pub compiling: tokio::sync::Mutex<()>,
}

impl ProjectionContext {
    /// Takes note of an error that says that another hub has the topic.
    pub fn note_lost_home(&self, home: &Arc<Home>, error: &BusError) {
        if matches!(error, BusError::Commit(CommitError::EpochOver { .. })) {
            self.claims.lose(home);
        }
    }
}

/// Why a projection cannot go on.
#[derive(Debug)]
pub(super) struct Stop {
    pub reason: String,
    /// How long to wait until it may go on by itself; for good where absent.
    pub pause: Option<Duration>,
}

impl From<ReadError> for Stop {
    fn from(error: ReadError) -> Self {
        let pause = match &error {
            // It may be added any time.
            ReadError::Unavailable(_) | ReadError::NoUpcaster { .. } => Some(pause::UNAVAILABLE),
            // The topic was deleted a moment ago: the next look at it says what it is now.
            ReadError::TopicNotFound(_) | ReadError::TopicGone(_) | ReadError::NoSuchPartition { .. } => {
                Some(pause::BUSY)
            }
            ReadError::Gone { .. }
            | ReadError::BadFind(_)
            | ReadError::NotRaised { .. }
            | ReadError::Corrupt(_) => None,
        };
        Self { reason: error.to_string(), pause }
    }
}

impl From<HomesError> for Stop {
    fn from(error: HomesError) -> Self {
        Self { reason: error.to_string(), pause: Some(pause::UNAVAILABLE) }
    }
}

impl From<BusError> for Stop {
    fn from(error: BusError) -> Self {
        Self { reason: error.to_string(), pause: pause::after(error.retry()) }
    }
}

/// What a step has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// There may be more to do.
    Worked,
    /// Everything that there is, is done.
    Idle,
    /// The topic does not exist.
    NoTopic,
}

/// What came of reading.
enum Reading {
    Run(Run),
    NoTopic,
    /// It has more partitions now, and what was read may not come first.
    Grown,
}

/// How events have failed.
#[derive(Debug, Default)]
pub(super) struct Failures {
    pub count: u64,
    pub last: Option<String>,
}

/// A batch that is being committed.
struct InFlightBatch {
    /// An error where it was not even taken.
    ticket: Result<Ticket, BusError>,
    commit: Arc<Commit>,
    batch: Batch,
    ends: BTreeMap<u32, u64>,
}

/// What is left of a run whose first events were enough for a batch.
struct RemainingEvents {
    events: VecDeque<Event>,
    /// Where the run ends.
    ends: BTreeMap<u32, u64>,
}

/// What a runner works for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// It keeps the collections up to date.
    Live,
    /// It makes them anew.
    Rebuild {
        /// Without events that are no longer kept.
        partial: bool,
    },
}

pub(super) struct Runner {
    pub hub: Arc<ProjectionContext>,
    /// What it runs under: its cursors carry the epoch of that.
    pub home: Arc<Home>,
    pub name: String,
    pub projector: Projector,
    pub topic_name: TopicName,
    purpose: Purpose,
    /// Whether it makes collections anew.
    rebuild: bool,
    topic: Option<TopicState>,
    partitions: MergedPartitions,
    /// Taken, and not applied yet.
    remaining: Option<RemainingEvents>,
    in_flight: Option<InFlightBatch>,
    /// Maximum number of events of a batch, as far as is known of what they make.
    most_events: usize,
    /// How many batches of so many were committed.
    full_batches: usize,
    /// How much the last batch made, in KiB.
    last_kib: usize,
    /// Whether it is stored that it has met [`OTHER_KEYS`], as far as it knows.
    has_noted_other_keys: bool,
    pub failures: Failures,
}

impl Runner {
    pub fn new(
        hub: Arc<ProjectionContext>,
        home: Arc<Home>,
        name: &str,
        projector: Projector,
        purpose: Purpose,
    ) -> Self {
        Self {
            hub,
            name: name.to_owned(),
            projector,
            topic_name: home.topic().clone(),
            home,
            purpose,
            rebuild: purpose != Purpose::Live,
            topic: None,
            partitions: MergedPartitions::default(),
            remaining: None,
            in_flight: None,
            most_events: MOST_EVENTS,
            full_batches: 0,
            last_kib: 0,
            has_noted_other_keys: false,
            failures: Failures::default(),
        }
    }

    /// The topic that it reads, once it is there.
    pub fn topic(&self) -> Option<&TopicState> {
        self.topic.as_ref()
    }

    /// The first offset that is not done, by partition.
    pub fn done(&self) -> Vec<u64> {
        self.partitions.done()
    }

    /// The first offset that is neither done nor under way, by partition.
    pub fn taken(&self) -> Vec<u64> {
        self.partitions.taken()
    }

    /// Does a run of events, or finds that there is none. Goes no further than `limit`, where another runner is.
    pub async fn step(&mut self, limit: Option<&[u64]>) -> Result<Step, Stop> {
        let RemainingEvents { events, ends } = match self.remaining.take() {
            Some(remaining) => remaining,
            None => match self.read(limit).await? {
                Some(Run { events, ends, .. }) => RemainingEvents { events: events.into(), ends },
                None => return Ok(Step::NoTopic),
            },
        };
        // What comes after a batch that made much probably makes as much, which nobody needs before there is room for it.
        let room = if ends.is_empty() { None } else { self.room_for(self.last_kib).await };
        // Where events were removed there may be none, and the cursor has to go past that.
        let batch = match ends.is_empty() {
            true => None,
            false => Some(self.apply(events, ends).await?),
        };
        // While the last one is being committed.
        let kib = match &batch {
            Some((batch, _)) => self.kib_of(batch).await,
            None => 0,
        };
        let was_in_flight = self.in_flight.is_some();
        if let Some(refused) = self.decided().await {
            // What is done instead needs room itself, and waits for it.
            drop(room);
            self.make_up_for(refused).await?;
            // What was read and applied meanwhile stood on what has not happened.
            return Ok(Step::Worked);
        }
        match batch {
            Some((batch, ends)) => {
                self.launch((batch, kib), ends, room).await;
                // What a projection in Rust reads must be there.
                if matches!(self.projector, Projector::Code(_)) {
                    self.land().await?;
                }
                Ok(Step::Worked)
            }
            None if was_in_flight => Ok(Step::Worked),
            None => Ok(Step::Idle),
        }
    }

    /// Takes note of the topic as it is, if there is one.
    async fn look_at_topic(&mut self) -> Result<Option<TopicRef>, Stop> {
        let Some(topic) = self.hub.log.topic(&self.topic_name).await? else {
            self.in_flight = None;
            self.topic = None;
            self.forget_partitions();
            return Ok(None);
        };
        if self.topic.as_ref().is_none_or(|known| known.number != topic.number) {
            self.in_flight = None;
            self.forget_partitions();
        }
        for partition in self.partitions.count()..topic.config.partitions {
            let key = cursor_key(&self.topic_name, &self.name, self.rebuild, partition);
            match self.hub.log.cursor(&key).await? {
                Some(cursor) => {
                    self.be_later_than(cursor.epoch).await?;
                    self.partitions.add(cursor.version, cursor.next.0);
                }
                // It needs all of it.
                None if self.purpose == (Purpose::Rebuild { partial: false }) => self.partitions.add(0, 0),
                None => {
                    let bounds = self.hub.log.bounds(&topic.pinned(), Partition(partition)).await?;
                    self.partitions.add(0, bounds.first.0);
                }
            }
        }
        Ok(Some(self.topic.insert(topic).pinned()))
    }

    /// Sees to it that a cursor of this epoch can be moved. Where another hub has moved it, the topic is lost.
    async fn be_later_than(&self, epoch: Epoch) -> Result<(), Stop> {
        if epoch <= self.home.epoch() {
            return Ok(());
        }
        let above = Epoch(epoch.0.saturating_sub(1));
        let home = self.hub.claims.home(&self.topic_name, above).await?;
        match Arc::ptr_eq(&home, &self.home) {
            true => Ok(()),
            false => Err(HomesError::Lost(self.topic_name.clone()).into()),
        }
    }

    /// Reads what comes next in the topic. `None`: there is no such topic.
    async fn read(&mut self, limit: Option<&[u64]>) -> Result<Option<Run>, Stop> {
        let mut past = 0;
        loop {
            let run = match self.read_past(past, limit).await? {
                Reading::Run(run) => run,
                Reading::NoTopic => return Ok(None),
                Reading::Grown => continue,
            };
            match self.partitions.first_ahead(limit) {
                // What is being committed is waited for first.
                Some(recorded) if run.ends.is_empty() && self.in_flight.is_none() => {
                    // Below a limit, nothing more can come.
                    if limit.is_none() {
                        self.let_pass(recorded).await;
                    }
                    past = recorded;
                }
                _ => return Ok(Some(run)),
            }
        }
    }

    /// Takes what was recorded before a time that is after `past`.
    async fn read_past(&mut self, past: u64, limit: Option<&[u64]>) -> Result<Reading, Stop> {
        // Before the topic is looked at: what a partition holds that it gets later was recorded later.
        let horizon = match self.hub.log.advance_horizon(&self.topic_name, past).await {
            Err(ReadError::TopicNotFound(_)) => 0,
            horizon => horizon?,
        };
        let Some(topic) = self.look_at_topic().await? else { return Ok(Reading::NoTopic) };
        // A partition that is alone has none to wait for.
        let is_alone = self.partitions.count() == 1;
        let is_new: Vec<bool> =
            (0..self.partitions.count()).map(|partition| self.partitions.is_new(partition)).collect();
        let mut taking = self.partitions.take_before(if is_alone { u64::MAX } else { horizon }, limit);
        while let Some(wanted) = taking.go_on() {
            let starts_there = match self.purpose {
                Purpose::Live => is_new[wanted.partition as usize],
                Purpose::Rebuild { partial } => partial,
            };
            match page(&*self.hub.log, &topic, wanted).await? {
                PageOutcome::Page(page) => taking.read(Some(page)),
                PageOutcome::Nothing => taking.read(None),
                PageOutcome::Gone(first) if starts_there => taking.skip_to(first.0),
                PageOutcome::Gone(first) => return Err(gone(wanted, first)),
            }
        }
        if is_alone {
            let topic = self.hub.log.topic(&self.topic_name).await?;
            if topic.is_some_and(|topic| topic.config.partitions > 1) {
                return Ok(Reading::Grown);
            }
        }
        Ok(Reading::Run(taking.done()))
    }

    /// Other events of the same millisecond may still come and belong before those that were read: waits until the
    /// clock has gone on.
    async fn let_pass(&self, recorded: u64) {
        let pause = match (recorded + 1).saturating_sub(self.hub.clock.now_ms()) {
            0 => return,
            1..=FAR_AHEAD_MS => TICK,
            _ => SLOW_TICK,
        };
        // There is nothing else to wait for.
        tokio::time::sleep(pause).await;
    }

    /// Makes a batch of the first events of a run, and says where it ends. What is left is kept for the next.
    async fn apply(
        &mut self,
        mut events: VecDeque<Event>,
        ends: BTreeMap<u32, u64>,
    ) -> Result<(Batch, BTreeMap<u32, u64>), Stop> {
        let mut later = events.split_off(self.most_events.min(events.len()));
        let batch = self.batch_of(&mut events).await;
        events.append(&mut later);
        let batch = match batch {
            Ok(batch) => batch,
            Err(stop) => {
                // A definition has not begun with them. What it waits for may come.
                if matches!(self.projector, Projector::Plan(_)) {
                    self.remaining = Some(RemainingEvents { events, ends });
                }
                return Err(stop);
            }
        };
        if events.is_empty() {
            return Ok((batch, ends));
        }
        let batch_ends = ends_of(&batch);
        self.remaining = Some(RemainingEvents { events, ends });
        Ok((batch, batch_ends))
    }

    /// Makes a batch of the first of these events, and leaves the others.
    pub async fn batch_of(&mut self, events: &mut VecDeque<Event>) -> Result<Batch, Stop> {
        match &self.projector {
            Projector::Halted(reason) => Err(Stop { reason: reason.clone(), pause: None }),
            Projector::Plan(plan) => {
                let raiser = self.raiser(plan).await?;
                let is_costly = plan.is_costly() || raiser.as_ref().is_some_and(|raiser| raiser.is_costly());
                let _turn = Turn::at_projection(is_costly).await;
                let work = || {
                    let batch = by_plan(plan, events, raiser.as_deref(), self.rebuild);
                    let applied = batch.applied.len();
                    (batch, applied)
                };
                Ok(off_the_runtime(|| plan.time(work)))
            }
            Projector::Code(code) => {
                let batch = by_code(code, events, &self.hub, self.rebuild).await;
                batch.map_err(|error| {
                    // Of what was taken, nothing is under way.
                    self.go_back();
                    error.into()
                })
            }
        }
    }

    /// What raises events, where the definition wants them so. What is missing for that may be added any time.
    async fn raiser(&self, plan: &Plan) -> Result<Option<Arc<Raiser>>, ReadError> {
        match self.hub.log.topic(&self.topic_name).await? {
            Some(topic) if plan.normalize => self.hub.raisers.of(&topic).await,
            _ => Ok(None),
        }
    }

    /// What it holds of events that are not done, in bytes, about.
    pub fn held_bytes(&self) -> usize {
        let under_way = self.in_flight.iter().flat_map(|it| &it.batch.applied).map(|applied| &applied.event);
        let taken = self.remaining.iter().flat_map(|remaining| &remaining.events);
        under_way.chain(taken).chain(self.partitions.ahead()).map(|event| event.payload.len()).sum()
    }

    /// Takes back everything that is not done. Nothing may be under way.
    pub fn go_back(&mut self) {
        self.remaining = None;
        self.partitions.go_back();
    }

    /// Forgets where it is in the topic.
    fn forget_partitions(&mut self) {
        self.remaining = None;
        self.partitions.clear();
    }

    /// What makes a batch happen.
    fn commit(&self, batch: &mut Batch, ends: &BTreeMap<u32, u64>) -> Commit {
        let letters = batch.applied.iter().filter_map(|applied| {
            let (reason, attempts) = applied.failure.as_ref()?;
            self.letter(&applied.event, reason, *attempts)
        });
        let events = batch.publishes.iter().cloned().chain(letters).collect();
        let incarnation = self.topic.as_ref().map(|topic| topic.number);
        let cursor = |(partition, next): (&u32, &u64)| CursorMove {
            key: cursor_key(&self.topic_name, &self.name, self.rebuild, *partition),
            incarnation,
            expect_version: self.partitions.version(*partition),
            epoch: self.home.epoch(),
            to: Some(CursorTarget { next: Offset(*next), detail: Default::default() }),
        };
        let cursors = ends.iter().map(cursor).collect();
        let mut documents = std::mem::take(&mut batch.writes);
        let failed = batch.applied.iter().filter(|applied| applied.failure.is_some());
        documents.extend(failed.map(|applied| self.failed_note(&applied.event)));
        if batch.has_other_keys() && !self.has_noted_other_keys {
            documents.push(self.other_keys_note());
        }
        Commit { events, documents, cursors, origin: Origin::Derived, ..Commit::default() }
    }

    /// Notes that the collections lack what an event does.
    fn failed_note(&self, event: &Event) -> DocumentWrite {
        let topic = self.topic.as_ref().map_or(0, |topic| topic.number.0);
        let body = Json::from_stored(format!("{{\"id\":\"{}\",\"topic\":{topic}}}", event.id).into());
        let key = failed_key(event.partition.0, event.offset.0);
        DocumentWrite { ts: event.ts, ..self.note(key, body) }
    }

    /// Notes that which events a document comes from cannot be told by its key.
    fn other_keys_note(&self) -> DocumentWrite {
        self.note(OTHER_KEYS.to_owned(), Json::from_stored("{}".into()))
    }

    fn note(&self, key: String, body: Json) -> DocumentWrite {
        let live = failures_of(&self.name);
        let collection = if self.rebuild { shadow(&live) } else { live };
        let owner = Owner::projection(&self.name);
        DocumentWrite { owner, ..DocumentWrite::new(&collection, key, WriteOp::Set(body)) }
    }

    fn letter(&self, event: &Event, reason: &str, attempts: u32) -> Option<Append> {
        // What fails in a rebuild has its letter from when it failed first, or is counted.
        if self.rebuild {
            return None;
        }
        let now_ms = self.hub.clock.now_ms();
        let reader = Reader::Projection(&self.name);
        letter_of(event, &Failure { reader, reason, attempts, replays: 0, now_ms })
    }

    /// Waits for room where so much needs some.
    async fn room_for(&self, kib: usize) -> Option<Room> {
        // None is left when the hub is ending: what is committed then may as well be.
        if kib > MUCH_KIB { self.hub.room.take(kib).await } else { None }
    }

    /// How much room a batch takes, in KiB: by what it asks for, and by the documents that it changes.
    pub async fn kib_of(&self, batch: &Batch) -> usize {
        let publishes = batch.publishes.iter().map(|append| append.event.size()).sum::<usize>() / 1024;
        match self.hub.room.kib(&batch.writes).await {
            Ok(kib) => kib + publishes,
            // It will hardly be committed.
            Err(_) => MOST_KIB,
        }
    }

    /// Starts to commit a batch.
    async fn launch(
        &mut self,
        (mut batch, kib): (Batch, usize),
        ends: BTreeMap<u32, u64>,
        room: Option<Room>,
    ) {
        self.last_kib = kib;
        if self.last_kib >= MOST_KIB {
            // Fewer make less.
            (self.most_events, self.full_batches) = ((batch.applied.len() / 2).max(1), 0);
        }
        let room = match room {
            None => self.room_for(self.last_kib).await,
            room => room,
        };
        let turn = match batch.applied.len() >= LARGE_BATCH {
            // They are never closed.
            true => self.hub.large_batches.clone().acquire_owned().await.ok(),
            false => None,
        };
        let mut commit = Arc::new(self.commit(&mut batch, &ends));
        let ticket = self.hub.bus.enqueue(&mut commit).await.map(|ticket| in_turn(ticket, (turn, room)));
        self.in_flight = Some(InFlightBatch { ticket, commit, batch, ends });
    }

    /// Waits for the batch that is being committed. `false`: it was refused, and what could be done of it was done
    /// another way.
    pub async fn land(&mut self) -> Result<bool, Stop> {
        match self.decided().await {
            None => Ok(true),
            Some(refused) => self.make_up_for(refused).await.map(|()| false),
        }
    }

    /// Waits for the batch that is being committed, if there is one. What was refused of it is left to the caller.
    async fn decided(&mut self) -> Option<RefusedBatch> {
        let InFlightBatch { ticket, commit, mut batch, ends } = self.in_flight.take()?;
        match outcome(ticket).await {
            Ok(()) => {
                self.landed(&batch, &ends);
                None
            }
            Err(error) => {
                batch.take_back(commit);
                Some(RefusedBatch { batch, ends, error })
            }
        }
    }

    fn landed(&mut self, batch: &Batch, ends: &BTreeMap<u32, u64>) {
        self.partitions.land(ends);
        self.has_noted_other_keys |= batch.has_other_keys();
        if batch.applied.len() >= self.most_events {
            self.full_batches += 1;
        }
        if self.full_batches >= GROWS_AFTER {
            self.full_batches = 0;
            self.most_events = (self.most_events + self.most_events.div_ceil(2)).min(MOST_EVENTS);
        }
        self.count_failures(batch);
    }

    /// Counts the events of a batch that have failed.
    pub fn count_failures(&mut self, batch: &Batch) {
        for (reason, _) in batch.applied.iter().filter_map(|applied| applied.failure.as_ref()) {
            self.failures.count += 1;
            self.failures.last = Some(reason.clone());
        }
    }
}

/// What becomes of a commit that was enqueued, or was not.
async fn outcome(ticket: Result<Ticket, BusError>) -> Result<(), BusError> {
    Ok(ticket?.await.map(drop)?)
}

/// The ticket of a commit that has its turn and its room until it is decided. It does not go by who awaits the ticket, and
/// when: a projection may wait for a turn of its rebuild first.
fn in_turn(ticket: Ticket, held: (Option<OwnedSemaphorePermit>, Option<Room>)) -> Ticket {
    let (turn, room) = held;
    if turn.is_none() && room.is_none() {
        return ticket;
    }
    let decided = tokio::spawn(async move {
        let answer = ticket.await;
        drop(turn);
        if let Some(room) = room {
            room.give_back();
        }
        answer
    });
    let given_up = |_| Err(CommitError::Unknown("the commit was given up".into()));
    Ticket::new(async move { decided.await.unwrap_or_else(given_up) })
}

/// Where the events of a batch end in each partition.
fn ends_of(batch: &Batch) -> BTreeMap<u32, u64> {
    batch.applied.iter().map(|applied| (applied.event.partition.0, applied.event.offset.0 + 1)).collect()
}

/// What there is of a partition.
pub(super) enum PageOutcome {
    Page(Page),
    /// It is gone, as the next look at the topic will tell.
    Nothing,
    /// What was wanted is no longer kept; this is the first that is.
    Gone(Offset),
}

pub(super) async fn page(
    log: &dyn EventLog,
    topic: &TopicRef,
    wanted: PageRequest,
) -> Result<PageOutcome, Stop> {
    let PageRequest { partition, from, limit, max_bytes } = wanted;
    let request = ReadRequest {
        topic: topic.clone(),
        partition: Partition(partition),
        from: Offset(from),
        limit,
        max_bytes,
    };
    match log.read(request).await {
        Ok(page) => Ok(PageOutcome::Page(page)),
        Err(ReadError::Gone { first }) => Ok(PageOutcome::Gone(first)),
        Err(ReadError::TopicGone(_) | ReadError::NoSuchPartition { .. }) => Ok(PageOutcome::Nothing),
        Err(error) => Err(error.into()),
    }
}

fn gone(PageRequest { partition, from, .. }: PageRequest, first: Offset) -> Stop {
    let reason = format!(
        "offsets {from} to {} of partition {partition} were removed before they were seen; rebuild it with {{\"partial\": true}}",
        first.0.saturating_sub(1)
    );
    Stop { reason, pause: None }
}
