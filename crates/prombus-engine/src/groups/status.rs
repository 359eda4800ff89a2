//! How a group is doing, for those who look after it.

use super::GroupError;
use super::group::Group;
use super::options::GroupOptions;
use super::partition_queue::Obstacle;
use crate::filter::BadFilter;
use prombus_core::{Bounds, Event, EventLogExt, Offset, Partition, ReadError, ReadRequest, TopicState};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use uuid::Uuid;

/// How many partitions of a group are read, those first that are furthest behind, to say how old its oldest unsettled
/// event is.
const MAX_AGED: usize = 64;

/// A group as it is now.
#[derive(Debug, Clone)]
pub struct GroupStatus {
    /// Its options.
    pub options: Arc<GroupOptions>,
    /// Why its filter does not compile, which keeps it from delivering anything.
    pub bad_filter: Option<BadFilter>,
    /// Why the first event that is not settled cannot be read, which keeps the group from going on in its partition.
    /// The first reason where there are several.
    pub error: Option<ReadError>,
    /// How many events the filter failed on, since the hub started.
    pub filter_errors: u64,
    /// Who consumes, by name.
    pub members: Vec<MemberStatus>,
    /// Its partitions.
    pub partitions: Vec<PartitionStatus>,
}

/// A member as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberStatus {
    /// Its name; empty for those who gave none.
    pub name: Arc<str>,
    /// How many leases it holds.
    pub in_flight: u64,
    /// The partitions that it owns.
    pub partitions: Vec<Partition>,
}

/// Why a partition waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// The window is used up.
    AckWindow,
    /// Events wait for an earlier one.
    Ordering,
    /// An event waits for its retry.
    Retry,
    /// The partitions that were there before must be done first.
    Growth,
}

impl Wait {
    /// The reason as users see it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AckWindow => "ack_window",
            Self::Ordering => "ordering",
            Self::Retry => "retry",
            Self::Growth => "growth",
        }
    }
}

/// A partition of a group as it is now.
#[derive(Debug, Clone)]
pub struct PartitionStatus {
    /// The first offset that is not settled.
    pub next: u64,
    /// The event before it, where it is kept: its id and `ts`.
    pub last: Option<(Uuid, u64)>,
    /// The first offset that is not written.
    pub tail: u64,
    /// How many events are not settled.
    pub lag: u64,
    /// How long ago the oldest of them was taken.
    pub lag_ms: u64,
    /// How many leases are open.
    pub in_flight: u64,
    /// How many deliveries were not the first.
    pub redelivered: u64,
    /// How many events retention took before they were settled, ever.
    pub lost: u64,
    /// How long ago the oldest open lease was given.
    pub oldest_unacked_ms: Option<u64>,
    /// What holds events back, and how many of those that were read.
    pub waiting: Option<(Wait, u64)>,
    /// Who owns it.
    pub owner: Option<Arc<str>>,
    /// Counts the owners.
    pub epoch: u64,
}

impl Group {
    /// How the group is doing.
    pub async fn status(self: &Arc<Self>) -> Result<GroupStatus, GroupError> {
        let topic = self.current_topic().await?;
        let bounds = self.bounds_of(&topic).await?;
        let mut status = self.outline(&bounds);
        for (index, partition) in (0..).map(Partition).zip(&mut status.partitions) {
            match self.look_up(index, partition).await {
                Err(error @ ReadError::Corrupt(_)) => {
                    status.error.get_or_insert(error);
                }
                looked_up => looked_up?,
            }
        }
        Ok(status)
    }

    async fn bounds_of(&self, topic: &TopicState) -> Result<Vec<Bounds>, ReadError> {
        let mut bounds = Vec::new();
        for partition in (0..topic.config.partitions).map(Partition) {
            bounds.push(self.hub.log.bounds(&topic.pinned(), partition).await?);
        }
        Ok(bounds)
    }

    /// Looks what is kept of the topic, and moves up to it. Where that cannot be seen now, whoever reads finds out.
    pub(super) async fn look_what_is_kept(self: &Arc<Self>) {
        if let Ok(bounds) = self.bounds_of(&self.topic).await {
            self.keep_to(&bounds);
        }
    }

    /// How the group is doing as far as that is known without reading events, given what the partitions of its topic
    /// hold: without `last` and `lag_ms`, which take a read for each partition.
    pub fn outline(self: &Arc<Self>, bounds: &[Bounds]) -> GroupStatus {
        self.keep_to(bounds);
        let status = self.status_now(bounds);
        self.wake_keeper();
        status
    }

    /// How long ago the oldest unsettled event was taken, among the partitions that are furthest behind. One that is
    /// damaged does not count.
    pub async fn lag_ms(&self, outline: &GroupStatus) -> Result<u64, GroupError> {
        let mut behind: Vec<(Partition, &PartitionStatus)> = (0..)
            .map(Partition)
            .zip(&outline.partitions)
            .filter(|(_, partition)| partition.lag > 0)
            .collect();
        behind.sort_by_key(|(_, partition)| Reverse(partition.lag));
        let mut oldest = 0;
        for (index, partition) in behind.into_iter().take(MAX_AGED) {
            let mut partition = partition.clone();
            match self.look_up(index, &mut partition).await {
                Err(ReadError::Corrupt(_)) => {}
                looked_up => looked_up?,
            }
            oldest = oldest.max(partition.lag_ms);
        }
        Ok(oldest)
    }

    fn status_now(&self, bounds: &[Bounds]) -> GroupStatus {
        let now = self.now();
        let mut state = self.locked();
        state.tick(now);
        state.flush_times();
        let options = state.queue_options();
        let mut oldest = vec![None; state.queues.len()];
        for (_, lease) in state.leases.iter() {
            let age = (now.instant - lease.given).as_millis() as u64;
            let slot = &mut oldest[lease.partition];
            *slot = Some(slot.map_or(age, |known: u64| known.max(age)));
        }
        let partitions = state.queues.iter().zip(bounds).enumerate().map(|(n, (queue, bounds))| {
            let tail = bounds.next.0;
            let obstacle = match queue.obstacle(options, tail) {
                _ if state.is_gated(n) => Some(Wait::Growth),
                Some(Obstacle::Window) => Some(Wait::AckWindow),
                Some(Obstacle::Order) => Some(Wait::Ordering),
                Some(Obstacle::Retry) => Some(Wait::Retry),
                None => None,
            };
            PartitionStatus {
                next: queue.progress.next(),
                last: None,
                tail,
                lag: queue.progress.unsettled(tail),
                lag_ms: 0,
                in_flight: queue.in_flight,
                redelivered: queue.redelivered,
                lost: queue.lost,
                oldest_unacked_ms: oldest[n],
                waiting: obstacle.map(|why| (why, queue.held_back())),
                owner: queue.owner.clone(),
                epoch: queue.owners.unwrap_or(0),
            }
        });
        let partitions: Vec<PartitionStatus> = partitions.collect();
        let mut owned: HashMap<&Arc<str>, Vec<Partition>> = HashMap::new();
        for (index, partition) in (0..).map(Partition).zip(&partitions) {
            if let Some(owner) = &partition.owner {
                owned.entry(owner).or_default().push(index);
            }
        }
        let members = state.members.list(now.instant).into_iter();
        let members = members
            .map(|(name, held)| {
                let partitions = owned.remove(&name).unwrap_or_default();
                MemberStatus { name, in_flight: held as u64, partitions }
            })
            .collect();
        GroupStatus {
            options: state.options.clone(),
            bad_filter: state.filter.as_ref().as_ref().err().cloned(),
            error: None,
            filter_errors: self.counters.filter_errors.get(),
            members,
            partitions,
        }
    }

    /// What has to be read: the last settled event, and the oldest one that is not. What is known stands in
    /// `partition`, also after an error.
    async fn look_up(&self, index: Partition, partition: &mut PartitionStatus) -> Result<(), ReadError> {
        let (last, next) = (Offset(partition.next.saturating_sub(1)), Offset(partition.next));
        let mut events = match self.events_at(index, last, 2).await {
            // What is settled need not be readable.
            Err(ReadError::Corrupt(_)) => Vec::new(),
            Err(ReadError::Gone { first }) => match self.events_at(index, first.max(next), 2).await {
                Err(ReadError::Gone { .. }) => return Ok(()),
                events => events?,
            },
            events => events?,
        };
        let mut read = Ok(());
        if partition.lag > 0 && events.iter().all(|event| event.offset < next) {
            // A page ends before what cannot be read, and only who starts there learns why.
            read = match self.events_at(index, next, 1).await {
                Ok(oldest) => {
                    events.extend(oldest);
                    Ok(())
                }
                // What is delivered may be gone, with all that came after it.
                Err(ReadError::Gone { .. }) => Ok(()),
                Err(error) => Err(error),
            };
        }
        let is_before = |event: &&Event| event.offset < next;
        partition.last = events.iter().find(is_before).map(|event| (event.id, event.ts));
        if partition.lag > 0
            && let Some(oldest) = events.iter().find(|event| !is_before(event))
        {
            partition.lag_ms = self.hub.clock.now_ms().saturating_sub(oldest.recorded_ts);
        }
        read
    }

    async fn events_at(
        &self,
        partition: Partition,
        from: Offset,
        limit: usize,
    ) -> Result<Vec<Event>, ReadError> {
        let topic = self.topic.pinned();
        let request = ReadRequest { topic, partition, from, limit, max_bytes: usize::MAX };
        self.hub.log.read(request).await.map(|page| page.events)
    }
}
