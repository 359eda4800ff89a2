//! Brings collections up to date with a topic, a page at a time: documents and cursor in one commit.
//!
//! While one batch is committed, the next one is read and applied. A batch that is refused for what one of its events
//! wrote is taken apart, until that event is alone and goes to the dead letters.

use super::batch::{Batch, Projector, by_code, by_plan};
use super::stored::cursor_key;
use crate::bus::{Bus, BusError};
use crate::filter::off_the_runtime;
use crate::groups::{Failure, letter_of};
use prombus_core::{
    Append, Clock, Commit, CommitError, CursorMove, CursorTarget, Documents, Epoch, Event, EventLog, Offset,
    Partition, ReadError, ReadRequest, Receipt, TopicName, TopicState,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// So many events are applied in one commit.
const PAGE_EVENTS: usize = 2_000;
/// And about so many bytes of them.
const PAGE_BYTES: usize = 2 << 20;
/// How long to wait for room on the disk, or for topics to be deleted.
const DISK_FULL_PAUSE: Duration = Duration::from_secs(1);
/// How long to wait for a store that cannot be used.
const UNAVAILABLE_PAUSE: Duration = Duration::from_millis(500);
/// How long to wait when others change the same things.
const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// What projections need of the hub.
pub(super) struct Surroundings {
    pub log: Arc<dyn EventLog>,
    pub documents: Arc<dyn Documents>,
    pub bus: Arc<dyn Bus>,
    pub clock: Arc<dyn Clock>,
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
            ReadError::Unavailable(_) => Some(UNAVAILABLE_PAUSE),
            // The topic was deleted a moment ago: the next look at it says what it is now.
            ReadError::TopicNotFound(_) | ReadError::NoSuchPartition { .. } => Some(BUSY_PAUSE),
            ReadError::Gone { .. } | ReadError::BadFind(_) | ReadError::Corrupt(_) => None,
        };
        Self { reason: error.to_string(), pause }
    }
}

impl From<BusError> for Stop {
    fn from(error: BusError) -> Self {
        let pause = match &error {
            BusError::Commit(CommitError::DiskFull) | BusError::TooManyTopics { .. } => Some(DISK_FULL_PAUSE),
            BusError::Commit(CommitError::Unavailable(_)) => Some(UNAVAILABLE_PAUSE),
            // Whoever is in the way is another hub, or someone who changes the topic.
            BusError::Commit(
                CommitError::Busy
                | CommitError::CursorMoved { .. }
                | CommitError::StaleLayout(_)
                | CommitError::TopicNotFound(_),
            ) => Some(BUSY_PAUSE),
            _ => None,
        };
        Self { reason: error.to_string(), pause }
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

/// How events have failed.
#[derive(Debug, Default)]
pub(super) struct Failures {
    pub count: u64,
    pub last: Option<String>,
}

/// Where it is in a partition.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lane {
    /// The version of its cursor.
    pub version: u64,
    /// The first offset that is not done.
    pub next: u64,
    /// The first offset that is not read.
    read: u64,
}

/// A batch that is being committed.
struct Flight {
    answer: JoinHandle<Result<Receipt, BusError>>,
    commit: Arc<Commit>,
    batch: Batch,
    ends: BTreeMap<u32, u64>,
}

/// What is left to do of a batch that was refused.
struct Pieces {
    /// The next one last.
    rest: Vec<Batch>,
    /// Whether that is all of it.
    whole: bool,
}

pub(super) struct Runner {
    hub: Arc<Surroundings>,
    name: String,
    pub projector: Projector,
    pub topic_name: TopicName,
    /// Whether it makes collections anew.
    rebuild: bool,
    topic: Option<TopicState>,
    pub lanes: Vec<Lane>,
    flight: Option<Flight>,
    /// The partition that is read first; each one in turn, so that none is left behind for another.
    turn: usize,
    pub failures: Failures,
}

impl Runner {
    pub fn new(
        hub: Arc<Surroundings>,
        name: &str,
        topic: &TopicName,
        projector: Projector,
        rebuild: bool,
    ) -> Self {
        Self {
            hub,
            name: name.to_owned(),
            projector,
            topic_name: topic.clone(),
            rebuild,
            topic: None,
            lanes: Vec::new(),
            flight: None,
            turn: 0,
            failures: Failures::default(),
        }
    }

    /// The topic that it reads, once it is there.
    pub fn topic(&self) -> Option<&TopicState> {
        self.topic.as_ref()
    }

    /// Does a page, or finds that there is none.
    pub async fn step(&mut self) -> Result<Step, Stop> {
        if !self.look_at_topic().await? {
            return Ok(Step::NoTopic);
        }
        let (events, ends) = self.read().await?;
        // Where events were removed there may be none in a page, and the cursor has to go past that.
        let batch = match ends.is_empty() {
            true => None,
            false => Some(self.apply(events).await),
        };
        let had_flight = self.flight.is_some();
        if !self.land().await? {
            // What was read and applied meanwhile stood on what has not happened.
            return Ok(Step::Worked);
        }
        match batch {
            Some(batch) => {
                self.launch(batch, ends);
                // What a projection in Rust reads must be there.
                if matches!(self.projector, Projector::Code(_)) {
                    self.land().await?;
                }
                Ok(Step::Worked)
            }
            None if had_flight => Ok(Step::Worked),
            None => Ok(Step::Idle),
        }
    }

    /// Takes note of the topic as it is. `false`: there is none.
    async fn look_at_topic(&mut self) -> Result<bool, Stop> {
        let Some(topic) = self.hub.log.topic(&self.topic_name).await? else {
            self.flight = None;
            self.topic = None;
            self.lanes.clear();
            return Ok(false);
        };
        if self.topic.as_ref().is_none_or(|known| known.number != topic.number) {
            self.flight = None;
            self.lanes.clear();
        }
        for partition in self.lanes.len() as u32..topic.config.partitions {
            let key = cursor_key(&self.topic_name, &self.name, self.rebuild, partition);
            let lane = match self.hub.log.cursor(&key).await? {
                Some(cursor) => Lane { version: cursor.version, next: cursor.next.0, read: cursor.next.0 },
                None => {
                    let first = self.hub.log.bounds(&self.topic_name, Partition(partition)).await?.first.0;
                    Lane { version: 0, next: first, read: first }
                }
            };
            self.lanes.push(lane);
        }
        self.topic = Some(topic);
        Ok(true)
    }

    /// Whether a partition that came by growth may be read: what the others held then must be done.
    fn is_open(&self, partition: u32) -> bool {
        let before = self.topic.as_ref().map_or(&[][..], |topic| topic.before(Partition(partition)));
        before.iter().zip(&self.lanes).all(|(end, lane)| lane.next >= end.0)
    }

    /// Reads a page, from as many partitions as go into it, and says where it ends in each.
    async fn read(&mut self) -> Result<(Vec<Event>, BTreeMap<u32, u64>), Stop> {
        let (mut events, mut ends, mut bytes) = (Vec::new(), BTreeMap::new(), 0);
        for n in 0..self.lanes.len() {
            let partition = ((self.turn + n) % self.lanes.len()) as u32;
            if events.len() >= PAGE_EVENTS || bytes >= PAGE_BYTES || !self.is_open(partition) {
                continue;
            }
            let from = self.lanes[partition as usize].read;
            let request = ReadRequest {
                topic: self.topic_name.clone(),
                partition: Partition(partition),
                from: Offset(from),
                limit: PAGE_EVENTS - events.len(),
                max_bytes: PAGE_BYTES - bytes,
            };
            let page = match self.hub.log.read(request).await {
                Ok(page) => page,
                Err(ReadError::Gone { first }) => return Err(gone(partition, from, first)),
                // The next look at the topic says what it is now.
                Err(ReadError::TopicNotFound(_) | ReadError::NoSuchPartition { .. }) => continue,
                Err(error) => return Err(error.into()),
            };
            if page.next.0 > from {
                ends.insert(partition, page.next.0);
            }
            bytes += page.events.iter().map(|event| event.payload.len()).sum::<usize>();
            events.extend(page.events);
        }
        // Only now, because what is read and then dropped for the error of another partition is not read.
        for (partition, end) in &ends {
            self.lanes[*partition as usize].read = *end;
        }
        self.turn = self.turn.wrapping_add(1);
        Ok((events, ends))
    }

    async fn apply(&self, events: Vec<Event>) -> Batch {
        match &self.projector {
            Projector::Plan(plan) => off_the_runtime(|| by_plan(plan, events, self.rebuild)),
            Projector::Code(code) => by_code(code, events, &*self.hub.documents, self.rebuild).await,
        }
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
            expect_version: self.lanes[*partition as usize].version,
            epoch: Epoch(0),
            to: Some(CursorTarget { next: Offset(*next), detail: Default::default() }),
        };
        let cursors = ends.iter().map(cursor).collect();
        Commit { events, documents: std::mem::take(&mut batch.writes), cursors, ..Commit::default() }
    }

    fn letter(&self, event: &Event, reason: &str, attempts: u32) -> Option<Append> {
        // What fails in a rebuild has its letter from when it failed first, or is counted.
        if self.rebuild {
            return None;
        }
        let now_ms = self.hub.clock.now_ms();
        letter_of(event, &Failure { reader: &self.name, reason, attempts, replays: 0, now_ms })
    }

    /// Starts to commit a batch.
    fn launch(&mut self, mut batch: Batch, ends: BTreeMap<u32, u64>) {
        let commit = Arc::new(self.commit(&mut batch, &ends));
        let (bus, sent) = (self.hub.bus.clone(), commit.clone());
        let answer = tokio::spawn(async move { bus.commit(sent).await });
        self.flight = Some(Flight { answer, commit, batch, ends });
    }

    /// Waits for the batch that is being committed. `false`: it was refused, and what could be done of it was done
    /// another way.
    pub async fn land(&mut self) -> Result<bool, Stop> {
        let Some(Flight { answer, commit, mut batch, ends }) = self.flight.take() else { return Ok(true) };
        let given_up = |_| Err(CommitError::Unavailable("the commit was given up".into()).into());
        match answer.await.unwrap_or_else(given_up) {
            Ok(_) => {
                self.landed(&batch, &ends);
                Ok(true)
            }
            Err(error) => {
                batch.writes = commit.documents.clone();
                let done = self.recover(batch, ends, error).await;
                if matches!(&done, Err(stop) if stop.pause.is_some()) {
                    // Look again at everything: someone else may have been here, or the commit has happened after all.
                    self.topic = None;
                    self.lanes.clear();
                }
                self.lanes.iter_mut().for_each(|lane| lane.read = lane.next);
                done.map(|()| false)
            }
        }
    }

    fn landed(&mut self, batch: &Batch, ends: &BTreeMap<u32, u64>) {
        for (partition, next) in ends {
            let lane = &mut self.lanes[*partition as usize];
            lane.version += 1;
            lane.next = *next;
        }
        for (reason, _) in batch.applied.iter().filter_map(|applied| applied.failure.as_ref()) {
            self.failures.count += 1;
            self.failures.last = Some(reason.clone());
        }
    }

    /// Does a batch that was refused in pieces, so that only what is to blame is left out.
    async fn recover(&mut self, batch: Batch, ends: BTreeMap<u32, u64>, error: BusError) -> Result<(), Stop> {
        let mut pieces = Pieces { rest: Vec::new(), whole: true };
        self.take_apart(batch, error, &mut pieces)?;
        while let Some(mut piece) = pieces.rest.pop() {
            // Behind its last event a page may go on over what was removed.
            let is_last = pieces.whole && pieces.rest.is_empty();
            let ends = if is_last { ends.clone() } else { ends_of(&piece) };
            if let Err(error) = self.commit_now(&mut piece, &ends).await {
                self.take_apart(piece, error, &mut pieces)?;
            }
        }
        Ok(())
    }

    /// What to do instead of a batch that was refused.
    fn take_apart(&self, batch: Batch, error: BusError, pieces: &mut Pieces) -> Result<(), Stop> {
        let count = batch.applied.len();
        if matches!(error, BusError::Commit(CommitError::TooLarge { .. })) && count > 1 {
            let (first, rest) = batch.split(count / 2);
            pieces.rest.extend([rest, first]);
            return Ok(());
        }
        let Some(at) = self.culprit(&batch, &error) else { return Err(error.into()) };
        let (before, rest) = batch.split(at);
        let (mut alone, after) = rest.split(1);
        if !alone.blame_first(&error.to_string(), self.projector.retries()) {
            return Err(error.into());
        }
        match self.projector {
            Projector::Plan(_) => pieces.rest.push(after),
            // What it did after this event may rest on what it has read of it: that is done again.
            Projector::Code(_) if !after.applied.is_empty() || !pieces.rest.is_empty() => {
                (pieces.rest, pieces.whole) = (Vec::new(), false);
            }
            Projector::Code(_) => {}
        }
        pieces.rest.extend([alone, before]);
        pieces.rest.retain(|piece| !piece.applied.is_empty());
        Ok(())
    }

    /// Which event of a batch is to blame for an error, if one is.
    fn culprit(&self, batch: &Batch, error: &BusError) -> Option<usize> {
        match error {
            BusError::Commit(CommitError::BadWrite { index, .. } | CommitError::NotUnique { index, .. }) => {
                Some(batch.event_of(*index))
            }
            BusError::Commit(CommitError::TooLarge { .. }) => Some(0),
            BusError::Commit(CommitError::TopicNotFound(topic)) if *topic != self.topic_name => {
                let publish = batch.publishes.iter().position(|append| append.topic == *topic)?;
                batch.publisher_of(publish)
            }
            error => batch.publisher_of(error.index()?),
        }
        .filter(|at| *at < batch.applied.len())
    }

    async fn commit_now(&mut self, batch: &mut Batch, ends: &BTreeMap<u32, u64>) -> Result<(), BusError> {
        let commit = Arc::new(self.commit(batch, ends));
        let answer = self.hub.bus.commit(commit.clone()).await;
        match answer {
            Ok(_) => {
                self.landed(batch, ends);
                Ok(())
            }
            Err(error) => {
                batch.writes = commit.documents.clone();
                Err(error)
            }
        }
    }
}

/// Where the events of a batch end in each partition.
fn ends_of(batch: &Batch) -> BTreeMap<u32, u64> {
    batch.applied.iter().map(|applied| (applied.event.partition.0, applied.event.offset.0 + 1)).collect()
}

fn gone(partition: u32, from: u64, first: Offset) -> Stop {
    let reason = format!(
        "offsets {from} to {} of partition {partition} were removed before they were seen; rebuild it with {{\"partial\": true}}",
        first.0.saturating_sub(1)
    );
    Stop { reason, pause: None }
}
