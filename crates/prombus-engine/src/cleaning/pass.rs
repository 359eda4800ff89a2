//! A pass over a topic: what it has to know, how fast it goes, and how it commits.

use super::compaction::Compaction;
use super::losses::Losses;
use super::positions::{Position, Stored};
use super::retention::Trimming;
use super::{CleanError, CleaningContext, Forget};
use crate::bus::BusError;
use crate::homes::Home;
use crate::retry;
use bytestring::ByteString;
use prombus_core::error::Retry;
use prombus_core::{
    Commit, CommitError, ConfigChange, CursorMove, Epoch, Event, EventLog, EventLogExt, Kept, Offset,
    Partition, PreviousRequest, ReadError, TopicRef, TopicState,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Once there are as many events to go as one part in so many of the keys that are remembered, they are given up: so many
/// fit into a commit easily.
const COMMIT_SHARE: usize = 4;
/// A pass that nobody waits for rests after it has worked for so long. Whoever publishes meanwhile may have to wait for the
/// processor until then, so it takes no longer than a commit.
const SLICE: Duration = Duration::from_micros(200);
/// It rests so many times as long as it has worked.
const REST: u32 = 4;
/// But no longer than this: a page from a slow disk is not its fault.
const LONGEST_REST: Duration = Duration::from_millis(20);
/// A pass that takes longer than this rests less and less: however much is published meanwhile, it comes to its end.
const PATIENCE: Duration = Duration::from_secs(60);

/// How fast a pass goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    /// As fast as it can: somebody waits for it.
    Full,
    /// In small steps with rests, so that publishers hardly notice; since then.
    Gentle(Instant),
}

/// How much a pass does at once: in between, others have their turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    /// How many bytes it reads, about.
    pub bytes: usize,
    /// How many keys it looks up.
    pub look_ups: usize,
    /// How many single events it gives up in a commit, at most. While that is made and written, commits of others wait.
    discards: u64,
}

impl Pace {
    /// That of a pass that begins now, and that nobody waits for.
    pub fn gentle() -> Self {
        Self::Gentle(Instant::now())
    }

    fn step(self) -> Step {
        match self {
            Self::Full => Step { bytes: 1 << 20, look_ups: 256, discards: u64::MAX },
            Self::Gentle(_) => Step { bytes: 64 << 10, look_ups: 32, discards: 1 << 14 },
        }
    }
}

/// How long a pass rests that has worked for so long, and goes on for so long already.
fn rest(worked: Duration, goes_on: Duration) -> Duration {
    let patience = PATIENCE.as_secs_f64() / goes_on.max(PATIENCE).as_secs_f64();
    (worked * REST).mul_f64(patience).min(LONGEST_REST)
}

/// What has gone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counted {
    pub events: u64,
    pub bytes: u64,
}

impl Counted {
    pub fn add(&mut self, other: Self) {
        self.events += other.events;
        self.bytes += other.bytes;
    }
}

/// A pass that is under way.
pub(super) struct Pass<'a> {
    hub: &'a CleaningContext,
    topic: TopicState,
    now: u64,
    /// By partition.
    positions: Vec<Stored>,
    /// What it commits under; claimed when there is something to commit.
    home: Option<Arc<Home>>,
    /// What goes with the next commit.
    pub losses: Losses,
    counted: Counted,
    looked_up: usize,
    pace: Pace,
    /// When it has rested last.
    rested: Instant,
    closing: watch::Receiver<bool>,
}

impl<'a> Pass<'a> {
    pub async fn begin(
        hub: &'a CleaningContext,
        topic: &TopicState,
        (pace, closing): (Pace, watch::Receiver<bool>),
    ) -> Result<Self, CleanError> {
        let mut positions = Vec::with_capacity(topic.config.partitions as usize);
        for partition in (0..topic.config.partitions).map(Partition) {
            let first = hub.log.kept(&topic.pinned(), partition).await?.bounds.first;
            positions.push(Stored::load(&*hub.log, topic, partition, first).await?);
        }
        Ok(Self {
            hub,
            topic: topic.clone(),
            now: hub.clock.now_ms(),
            positions,
            home: None,
            losses: Losses::default(),
            counted: Counted::default(),
            looked_up: 0,
            pace,
            rested: Instant::now(),
            closing,
        })
    }

    /// Does what the settings of the topic ask for. What is too old need not be compacted, and what compaction takes need
    /// not make room.
    pub async fn clean(&mut self) -> Result<(), CleanError> {
        Trimming::new(self).by_time().await?;
        if self.topic.config.compaction {
            Compaction::new(self).run().await?;
        }
        Trimming::new(self).by_bytes().await
    }

    /// Gives up everything below an offset of a partition.
    pub async fn trim(&mut self, partition: Partition, before: Offset) -> Result<(), CleanError> {
        let next = self.kept(partition).await?.bounds.next;
        if before > next {
            return Err(CleanError::BeyondEnd { partition, next, before });
        }
        Trimming::new(self).below(partition, before).await
    }

    /// What has gone so far.
    pub fn counted(&self) -> Counted {
        self.counted
    }

    pub fn log(&self) -> &'a dyn EventLog {
        &*self.hub.log
    }

    pub fn topic(&self) -> &TopicState {
        &self.topic
    }

    pub fn topic_ref(&self) -> TopicRef {
        self.topic.pinned()
    }

    /// The most keys that it remembers. Whatever else it holds goes by that too.
    pub fn most_keys(&self) -> usize {
        self.hub.most_keys
    }

    /// The time that ages are told by.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// The partitions that the topic had when the pass began.
    pub fn partitions(&self) -> impl Iterator<Item = Partition> + use<> {
        (0..self.topic.config.partitions).map(Partition)
    }

    pub async fn kept(&self, partition: Partition) -> Result<Kept, ReadError> {
        self.hub.log.kept(&self.topic.pinned(), partition).await
    }

    /// How far cleaning has come in a partition.
    pub fn position(&self, partition: Partition) -> Position {
        self.positions[partition.0 as usize].now
    }

    pub fn position_mut(&mut self, partition: Partition) -> &mut Position {
        &mut self.positions[partition.0 as usize].now
    }

    /// The event of a key before one of its events.
    pub async fn previous(
        &mut self,
        key: &str,
        before: (Partition, Offset),
    ) -> Result<Option<Event>, CleanError> {
        self.look_up().await?;
        Ok(self.hub.log.event_before(&self.topic.pinned(), key, before).await?)
    }

    /// The events before some events of keys, for as many of the first ones as are looked up at once.
    pub async fn previous_of(
        &mut self,
        events: &[(&ByteString, (Partition, Offset))],
    ) -> Result<Vec<Option<Event>>, CleanError> {
        self.breathe().await?;
        let some = events.iter().take(self.step().look_ups);
        let request = PreviousRequest {
            topic: self.topic.pinned(),
            events: some.map(|(key, place)| (key.to_string(), *place)).collect(),
            max_bytes: self.step().bytes,
        };
        Ok(self.hub.log.previous_by_key(request).await?)
    }

    /// A key is about to be looked up: after many of them, others have their turn.
    pub async fn look_up(&mut self) -> Result<(), CleanError> {
        self.looked_up += 1;
        if self.looked_up.is_multiple_of(self.step().look_ups) { self.breathe().await } else { Ok(()) }
    }

    /// Lets others have their turn, and ends with the hub.
    pub async fn breathe(&mut self) -> Result<(), CleanError> {
        if *self.closing.borrow() {
            return Err(CleanError::Closing);
        }
        let worked = self.rested.elapsed();
        match self.pace {
            Pace::Gentle(since) if worked >= SLICE => {
                // Nobody waits for this pass, and others may need the processor.
                tokio::time::sleep(rest(worked, since.elapsed())).await;
                self.rested = Instant::now();
            }
            Pace::Gentle(_) | Pace::Full => tokio::task::yield_now().await,
        }
        Ok(())
    }

    /// How much it does at once.
    pub fn step(&self) -> Step {
        self.pace.step()
    }

    /// Whether so many single events are to go that they are better given up now.
    pub fn is_commit_due(&self) -> bool {
        self.losses.discards() >= self.step().discards.min((self.most_keys() / COMMIT_SHARE) as u64)
    }

    /// Gives up what is to go, and stores how far cleaning has come.
    pub async fn commit(&mut self) -> Result<(), CleanError> {
        self.commit_with(None).await
    }

    /// The same, with what else forgets a key. Where there is only room for what removes events, those go, and if there
    /// is more to do, this is an error.
    pub async fn commit_with(&mut self, forget: Option<&Forget>) -> Result<(), CleanError> {
        let documents = forget.map_or(&[][..], |forget| &forget.documents);
        let moved = (0..).zip(&self.positions).filter(|(_, position)| position.has_moved());
        let mut partitions: Vec<u32> =
            moved.map(|(partition, _)| partition).chain(self.losses.partitions()).collect();
        partitions.sort_unstable();
        partitions.dedup();
        if partitions.is_empty() && forget.is_none() {
            return Ok(());
        }
        let home = self.home(Epoch(0)).await?;
        let epoch = home.epoch();
        let step = |partition: &u32| {
            self.positions[*partition as usize].step(&self.topic, Partition(*partition), epoch)
        };
        let cursors = partitions.iter().map(step).collect();
        let (mut config, counted) = self.losses.take(&self.topic);
        let note =
            |forget: &Forget| ConfigChange::Forget { topic: self.topic.pinned(), key: forget.key.clone() };
        config.extend(forget.map(note));
        let commit =
            Commit { config: config.clone(), documents: documents.to_vec(), cursors, ..Commit::by_hub() };
        match self.send(&home, commit).await {
            Ok(()) => partitions.into_iter().for_each(|partition| {
                self.positions[partition as usize].stepped(epoch);
            }),
            // What only removes always finds room. How far this was is not stored, so it is looked at again.
            Err(error) if error.retry() == Retry::WithRoom && config.is_empty() => {}
            Err(error) if error.retry() == Retry::WithRoom => {
                self.send(&home, Commit { config, ..Commit::by_hub() }).await?;
                if !documents.is_empty() {
                    self.counted.add(counted);
                    return Err(error.into());
                }
            }
            Err(error) => return Err(error.into()),
        }
        self.counted.add(counted);
        Ok(())
    }

    /// Makes a commit under a home, which is lost if another hub has moved a cursor since.
    pub async fn send(&self, home: &Arc<Home>, commit: Commit) -> Result<(), BusError> {
        let sent = retry::commit(&*self.hub.bus, &mut Arc::new(commit)).await.map(drop);
        if let Err(BusError::Commit(CommitError::EpochOver { .. })) = sent {
            self.hub.claims.lose(home);
        }
        sent
    }

    /// Moves the position of a partition to where it is: whoever has read the partition in this pass commits this too, so
    /// that the commit is refused if anything was given up there since the pass began.
    pub fn fence(&self, partition: Partition, epoch: Epoch) -> CursorMove {
        self.positions[partition.0 as usize].step(&self.topic, partition, epoch)
    }

    /// Takes note that a [fence](Self::fence) was committed.
    pub fn fenced(&mut self, partition: Partition, epoch: Epoch) {
        self.positions[partition.0 as usize].stepped(epoch);
    }

    /// The home of the topic on this hub, in an epoch in which all its positions can be moved, and cursors of an epoch.
    pub async fn home(&mut self, of: Epoch) -> Result<Arc<Home>, CleanError> {
        let home = match &self.home {
            Some(home) => home.clone(),
            None => {
                let latest = self.positions.iter().map(|position| position.epoch.0).max().unwrap_or(0);
                let above = Epoch(latest.max(of.0).saturating_sub(1));
                self.home.insert(self.hub.claims.home(&self.topic.name, above).await?).clone()
            }
        };
        self.hub.claims.check(&home).await?;
        Ok(home)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_that_takes_long_rests_less_and_less() {
        let rest_after = |secs| rest(Duration::from_millis(1), Duration::from_secs(secs));
        assert_eq!([0, 60].map(rest_after), [Duration::from_millis(4); 2]);
        assert_eq!([120, 600].map(rest_after), [2_000, 400].map(Duration::from_micros));
        assert_eq!(rest(Duration::from_secs(9), Duration::ZERO), LONGEST_REST);
    }
}
