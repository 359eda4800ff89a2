//! A pass of the compactor: what has changed since the last one is surveyed, and published in bounded commits.

use super::super::pages::Pages;
use super::super::pass::{Counted, Pace, Pass};
use super::super::{CleanError, Cleaning, CleaningContext};
use super::record::{self, Origin};
use super::series::StoredSeries;
use super::survey::{PartitionRange, Survey};
use crate::retry;
use prombus_core::{
    Append, Commit, ConfigChange, Event, EventLogExt, Offset, Partition, ReadError, TopicName, TopicState,
};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use tokio::sync::OwnedMutexGuard;

/// About how many bytes of records a commit has; the page that it ends with may add nearly as many.
const COMMIT_BYTES: usize = 1 << 20;
/// How many passes may go on at a time: each remembers its share of the keys that a cleaning pass does.
pub(super) const PASSES_AT_ONCE: usize = 4;

/// A pass.
pub(super) struct Compactor<'a> {
    cleaning: &'a Cleaning,
    source: &'a TopicState,
    target: TopicState,
    pace: Pace,
    series: StoredSeries,
    /// Whether no key can have a record yet.
    has_none: bool,
    counted: Counted,
}

/// Records that were not committed yet, under the turn that their events were read in.
struct Batch<'a> {
    _turn: OwnedMutexGuard<()>,
    pass: Pass<'a>,
    /// The partitions that were read.
    read: BTreeSet<u32>,
    records: Vec<Append>,
    bytes: usize,
}

impl<'a> Compactor<'a> {
    /// Goes on where the last commit was; where there was none, begins anew.
    pub async fn open(
        cleaning: &'a Cleaning,
        source: &'a TopicState,
        (name, pace): (&TopicName, Pace),
    ) -> Result<Self, CleanError> {
        let log = &*cleaning.hub.log;
        let mut target = log.topic(name).await?;
        if target.is_none()
            && let Some(change) = make_target(cleaning, source).await?
        {
            let commit = Commit { config: vec![change], ..Commit::by_hub() };
            retry::commit(&*cleaning.hub.bus, &mut Arc::new(commit)).await?;
            target = log.topic(name).await?;
        }
        let target = target.ok_or_else(|| ReadError::TopicGone(name.clone()))?;
        let now_ms = cleaning.hub.clock.now_ms();
        let series = StoredSeries::load(log, (source, &target), now_ms).await?;
        let (has_none, counted) = (!series.goes_on, Counted::default());
        let mut compactor = Self { cleaning, source, target, pace, series, has_none, counted };
        if has_none {
            compactor.begin().await?;
        }
        Ok(compactor)
    }

    /// What was published.
    pub fn counted(&self) -> Counted {
        self.counted
    }

    /// Makes the snapshot topic its own.
    async fn begin(&mut self) -> Result<(), CleanError> {
        let log = &*self.cleaning.hub.log;
        make_target(self.cleaning, self.source).await?;
        let turn = self.cleaning.turn(&self.target.name).await;
        for partition in (0..self.target.config.partitions).map(Partition) {
            let next = log.bounds(&self.target.pinned(), partition).await?.next;
            self.pass_over(&self.target).await?.trim(partition, next).await?;
        }
        drop(turn);
        let batch = self.batch().await?;
        self.commit(batch).await
    }

    /// Publishes all that has changed.
    pub async fn run(&mut self) -> Result<(), CleanError> {
        let ends = self.ends().await?;
        let mut left = VecDeque::new();
        for (partition, bounds) in (0..).map(Partition).zip(&ends) {
            // What was published of a pass that has not ended is surveyed again: the times of events that others have
            // superseded count too.
            let through = self.series.now.through.get(partition.0 as usize).copied().unwrap_or_default();
            let start = through.max(bounds.start).min(bounds.end);
            left.push_back((partition, start..bounds.end));
        }
        if self.series.now.pass > 0 && left.iter().all(|(_, range)| range.is_empty()) {
            return Ok(());
        }
        let most = (self.cleaning.hub.most_keys / PASSES_AT_ONCE).max(1);
        let mut batch = None;
        while !left.is_empty() {
            let mut pass = self.pass_over(self.source).await?;
            let survey = Survey::of(&mut left, &mut pass, most).await?;
            drop(pass);
            for range in &survey.ranges {
                self.publish(range, &survey, &mut batch).await?;
            }
            if !left.is_empty()
                && let Some(batch) = batch.take()
            {
                self.commit(batch).await?;
            }
            self.has_none = false;
        }
        self.series.now.pass += 1;
        self.series.now.through = self.series.now.at.clone();
        let batch = match batch {
            Some(batch) => batch,
            None => self.batch().await?,
        };
        self.commit(batch).await
    }

    /// What is kept of each partition. Those of higher partitions are looked at first: where a key was placed in a higher
    /// one as the topic grew, its events in lower ones were committed before.
    async fn ends(&self) -> Result<Vec<std::ops::Range<Offset>>, ReadError> {
        let mut ends = Vec::with_capacity(self.source.config.partitions as usize);
        for partition in (0..self.source.config.partitions).rev().map(Partition) {
            let bounds = self.cleaning.hub.log.bounds(&self.source.pinned(), partition).await?;
            ends.push(bounds.first..bounds.next);
        }
        ends.reverse();
        Ok(ends)
    }

    /// Publishes the latest events of their keys that are in a range and not published yet.
    async fn publish(
        &mut self,
        (partition, range): &PartitionRange,
        survey: &Survey,
        batch: &mut Option<Batch<'a>>,
    ) -> Result<(), CleanError> {
        let start = range.start.max(self.series.now.at(*partition)).min(range.end);
        let mut pages = Pages::all(*partition, start..range.end);
        loop {
            let reading = match batch {
                Some(batch) => batch,
                None => batch.insert(self.batch().await?),
            };
            let Some(events) = pages.next(&mut reading.pass).await? else { break };
            reading.read.insert(partition.0);
            for event in &events {
                if let Some(max_ts) = survey.max_ts(event) {
                    self.add(reading, event, max_ts).await?;
                }
            }
            if let Some(last) = events.last() {
                self.series.now.advance(*partition, last.offset.plus(1));
            }
            if reading.bytes >= COMMIT_BYTES
                && let Some(batch) = batch.take()
            {
                self.commit(batch).await?;
            }
        }
        self.series.now.advance(*partition, range.end);
        Ok(())
    }

    /// Adds the record of an event. The times of earlier events of its key are known by the record before.
    async fn add(&self, batch: &mut Batch<'a>, event: &Event, max_ts: u64) -> Result<(), CleanError> {
        let key = event.key.as_deref().unwrap_or_default();
        let before = match self.has_none {
            true => None,
            false => {
                batch.pass.look_up().await?;
                self.cleaning.hub.log.latest_by_key(&self.target.pinned(), key).await?
            }
        };
        let before = before.as_ref().and_then(Origin::of).map_or(0, |origin| origin.max_ts);
        let record = record::of(event, max_ts.max(before), &self.target.name);
        batch.bytes += record.event.size();
        batch.records.push(record);
        Ok(())
    }

    async fn pass_over(&self, topic: &TopicState) -> Result<Pass<'a>, CleanError> {
        Pass::begin(&self.cleaning.hub, topic, (self.pace, self.cleaning.closing.subscribe())).await
    }

    async fn batch(&self) -> Result<Batch<'a>, CleanError> {
        let turn = self.cleaning.turn(&self.source.name).await;
        let pass = self.pass_over(self.source).await?;
        Ok(Batch { _turn: turn, pass, read: BTreeSet::new(), records: Vec::new(), bytes: 0 })
    }

    /// Publishes records, and stores how far that is.
    async fn commit(&mut self, mut batch: Batch<'a>) -> Result<(), CleanError> {
        let home = batch.pass.home(self.series.epoch).await?;
        let epoch = home.epoch();
        let fences = batch.read.iter().map(|partition| batch.pass.fence(Partition(*partition), epoch));
        let steps = self.series.steps((self.source, &self.target), epoch);
        let cursors = steps.into_iter().chain(fences).collect();
        let counted = Counted { events: batch.records.len() as u64, bytes: batch.bytes as u64 };
        batch.pass.send(&home, Commit { events: batch.records, cursors, ..Commit::by_hub() }).await?;
        self.series.stepped(epoch);
        self.counted.add(counted);
        Ok(())
    }
}

/// What makes the snapshot topic, where it is not there. Refuses what the hub would not let a user set.
async fn make_target(cleaning: &Cleaning, source: &TopicState) -> Result<Option<ConfigChange>, CleanError> {
    let CleaningContext { log, new_topics, .. } = &cleaning.hub;
    let topics = log.topics().await?;
    let all = (&topics[..], &**new_topics);
    let change = super::make_target(&**log, all, (&source.name, &source.config)).await?;
    change.map_err(CleanError::NoSnapshots)
}
