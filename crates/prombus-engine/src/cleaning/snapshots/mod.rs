//! Snapshot topics: the latest event of each key of a topic, as records in another one.
//!
//! A pass publishes a record for each key that has changed since the last one, and costs by what has changed: it reads
//! the new events once to see which ones are the latest of their keys ([`survey`]), and once more to publish those
//! ([`compactor`]). What it remembers is bounded: where there are too many keys it does so range by range, and a key that
//! changes in several ranges has a record in each.
//!
//! - Records and the place up to which the topic was read are one commit ([`series`]), so a pass goes on after a crash
//!   where it was, without a gap and without a record that is there twice.
//! - The records of a key are in the order of its events: of partitions, the lower ones are read first, and their ends
//!   are looked at last. So whoever sees an event of a key in one partition sees all of its earlier ones in lower ones.
//! - Nothing is published that was given up: what is read and the commit that publishes it are one turn at the topic, and
//!   the commit moves the cleaner's position in each partition that was read, so that it is refused where another hub has
//!   given something up since.
//! - One topic has the snapshot topic for itself: each commit moves a cursor in it ([`series::SnapshotOwner`]) that says
//!   whose it is, and that it was not deleted and made again.
//!
//! A topic that was made again, or whose snapshot topic was, begins anew: what is left of the earlier records is trimmed.

mod compactor;
pub(crate) mod record;
mod rounds;
mod series;
mod survey;

pub(super) use rounds::keep_snapshots;

use super::pass::{Counted, Pace};
use super::{CleanError, Cleaning, Task};
use compactor::Compactor;
use prombus_core::{
    ConfigChange, EventLog, EventLogExt, Kept, MadeFor, NewTopics, Offset, Partition, ReadError, TopicConfig,
    TopicName, TopicState, check_snapshot,
};
use series::{Series, SnapshotOwner};
use std::sync::Arc;

/// How far the snapshots of a topic have come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotStatus {
    /// How many passes have ended.
    pub pass: u64,
    /// By partition: every key whose last event lies below has its record.
    pub through: Vec<Offset>,
    /// When the first pass began, in epoch milliseconds. It changes when the records are begun anew, and is 0 until then:
    /// whatever the snapshot topic holds is not of this topic.
    pub since: u64,
}

impl Cleaning {
    /// Does a pass over a topic now that publishes the keys that have changed to its snapshot topic, if it has one. Says
    /// how many records that made.
    pub async fn snapshot(self: &Arc<Self>, topic: &TopicName) -> Result<u64, CleanError> {
        Ok(self.clone().to_the_end(topic.clone(), Task::Snapshot(Pace::Full)).await?.events)
    }

    /// What was published, and what came of the pass.
    pub(super) async fn snapshot_once(
        &self,
        topic: &TopicState,
        pace: Pace,
    ) -> Result<(Counted, Result<(), CleanError>), CleanError> {
        let Some(config) = &topic.config.snapshot else { return Ok((Counted::default(), Ok(()))) };
        let mut compactor = Compactor::open(self, topic, (&config.topic, pace)).await?;
        let done = compactor.run().await;
        Ok((compactor.counted(), done))
    }
}

/// How far the snapshots of a topic have come, of which this much is kept; `None` where it has none.
pub(crate) async fn status(
    log: &dyn EventLog,
    topic: &TopicState,
    kept: &[Kept],
) -> Result<Option<SnapshotStatus>, ReadError> {
    if topic.config.snapshot.is_none() {
        return Ok(None);
    }
    let Series { pass, through, since, .. } = series_of(log, topic).await?.unwrap_or_default();
    // Of what was given up before it was read, no key is left that could have a record.
    let first_or = |(partition, kept): (usize, &Kept)| {
        kept.bounds.first.max(through.get(partition).copied().unwrap_or_default())
    };
    Ok(Some(SnapshotStatus { pass, through: kept.iter().enumerate().map(first_or).collect(), since }))
}

/// By partition, below which offset each key has its record, a key that has ended as well; none before the first pass, which
/// would miss what is gone by then. `None` where there are to be no records.
pub(super) async fn recorded(
    log: &dyn EventLog,
    topic: &TopicState,
) -> Result<Option<Vec<Offset>>, ReadError> {
    if topic.config.snapshot.is_none() {
        return Ok(None);
    }
    Ok(Some(series_of(log, topic).await?.map(|series| series.through).unwrap_or_default()))
}

/// The records of a topic in the snapshot topic that it has now, if they were begun.
async fn series_of(log: &dyn EventLog, topic: &TopicState) -> Result<Option<Series>, ReadError> {
    let Some(config) = &topic.config.snapshot else { return Ok(None) };
    let target = log.topic(&config.topic).await?;
    let series = Series::load(log, topic).await?.0;
    Ok(series.filter(|series| target.is_some_and(|target| series.is_of(topic, &target))))
}

/// The topics that hold snapshots of a topic, also where its settings named them before and do not any more.
pub(crate) async fn holders_of(
    log: &dyn EventLog,
    source: &TopicState,
) -> Result<Vec<TopicState>, ReadError> {
    let mut holders = Vec::new();
    for topic in log.topics().await? {
        if SnapshotOwner::load(log, &topic).await?.0.is_some_and(|owner| owner.topic == source.name) {
            holders.push(topic);
        }
    }
    Ok(holders)
}

/// What makes the snapshot topic of one with these settings, where it is not there among all topics. The inner error says why that topic
/// cannot be one, wherever the settings came from.
pub(crate) async fn make_target(
    log: &dyn EventLog,
    (topics, new_topics): (&[TopicState], &NewTopics),
    (source, config): (&TopicName, &TopicConfig),
) -> Result<Result<Option<ConfigChange>, String>, ReadError> {
    let Some(snapshot) = &config.snapshot else { return Ok(Ok(None)) };
    let others = topics.iter().map(|topic| (&topic.name, &topic.config));
    if let Err(why) = check_snapshot((source, config), others) {
        return Ok(Err(why));
    }
    if let Some(target) = topics.iter().find(|topic| topic.name == snapshot.topic) {
        return Ok(check_target(log, source, target).await?.map(|()| None));
    }
    let name = snapshot.topic.clone();
    let config = new_topics.config_of(&name, MadeFor::SnapshotsOf(config));
    Ok(Ok(Some(ConfigChange::CreateTopic { name, config })))
}

/// Refuses a snapshot topic that holds anything but records of the topic of this name: they would be trimmed.
async fn check_target(
    log: &dyn EventLog,
    source: &TopicName,
    target: &TopicState,
) -> Result<Result<(), String>, ReadError> {
    let name = &target.name;
    match SnapshotOwner::load(log, target).await?.0 {
        Some(owner) if owner.topic == *source => return Ok(Ok(())),
        Some(owner) if !is_empty(log, target).await? => {
            let whose = owner.topic;
            return Ok(Err(format!(
                "topic {name} holds snapshots of topic {whose}; delete it first, or name another topic for these snapshots"
            )));
        }
        None if !is_empty(log, target).await? => {
            return Ok(Err(format!(
                "topic {name} holds events that are not snapshots of topic {source}; name a topic that is new or empty"
            )));
        }
        _ => {}
    }
    Ok(Ok(()))
}

async fn is_empty(log: &dyn EventLog, topic: &TopicState) -> Result<bool, ReadError> {
    for partition in (0..topic.config.partitions).map(Partition) {
        let bounds = log.bounds(&topic.pinned(), partition).await?;
        if bounds.first < bounds.next {
            return Ok(false);
        }
    }
    Ok(true)
}
