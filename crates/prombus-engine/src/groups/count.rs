//! What setting a cursor would deliver, counted without setting it.

use super::group::Group;
use super::{GroupError, places};
use crate::filter::{Filter, Turn};
use crate::query::From;
use prombus_core::{Bounds, Kept, Offset, Partition, ReadError};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// Maximum number of events that are asked whether the filter matches them.
const MAX_JUDGED: u64 = 100_000;
/// How many are looked at in any case.
const FEW: u64 = 10_000;
/// And for so long, whatever the filter costs.
const MAX_TIME: Duration = Duration::from_secs(5);
/// How many are read at once.
const READ_AT_ONCE: usize = 1_000;

/// What a reset would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preview {
    /// The partitions that it would set.
    pub partitions: Vec<PreviewPartition>,
    /// Whether the counts are exact. Where the filter has too much to look at, the rest counts as if it matched.
    pub exact: bool,
}

/// What a reset would do to one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreviewPartition {
    /// The partition.
    pub partition: Partition,
    /// The first offset that would not be settled.
    pub next: u64,
    /// The event before it, where it is kept: its id and `ts`.
    pub last: Option<(Uuid, u64)>,
    /// How many events would be delivered.
    pub events: u64,
}

/// How much may still be looked at.
struct Allowance {
    events: u64,
    until: Instant,
    used_up: bool,
}

impl Group {
    /// What [`Group::set_cursor`] would do.
    pub async fn preview_cursor(
        self: &Arc<Self>,
        from: From,
        partition: Option<Partition>,
    ) -> Result<Preview, GroupError> {
        let topic = self.current_topic().await?;
        let targets = places::targets(&*self.hub.log, &topic, from, partition).await?;
        // One of its own, so that what it fails on here is not counted as the group's.
        let filter: Option<Filter> = Filter::compile_any(self.options().filter.as_deref()).await?;
        let until = Instant::now() + MAX_TIME;
        let mut left = Allowance { events: MAX_JUDGED, until, used_up: false };
        let mut partitions = Vec::new();
        for (index, next) in targets {
            let partition = Partition(index as u32);
            let Kept { bounds: Bounds { first, next: tail }, has_holes, .. } =
                self.hub.log.kept(&topic.pinned(), partition).await?;
            let start = next.max(first.0);
            let count = tail.0.saturating_sub(start);
            let events = match has_holes || filter.is_some() || count <= FEW {
                true => self.matching((index, start, tail.0), filter.as_ref(), &mut left).await?,
                // All are there, but for what was forgotten by hand.
                false => count,
            };
            let before = match next.checked_sub(1) {
                Some(before) => self.body(index, before).await?.event(),
                None => None,
            };
            let last = before.map(|event| (event.id, event.ts));
            partitions.push(PreviewPartition { partition, next, last, events });
        }
        Ok(Preview { partitions, exact: !left.used_up })
    }

    /// How many events of a partition there are, from an offset up to another, that the filter matches.
    async fn matching(
        &self,
        (partition, mut from, tail): (usize, u64, u64),
        filter: Option<&Filter>,
        left: &mut Allowance,
    ) -> Result<u64, GroupError> {
        let mut count = 0;
        while from < tail {
            if left.events == 0 || Instant::now() >= left.until {
                left.used_up = true;
                return Ok(count + (tail - from));
            }
            let limit = READ_AT_ONCE.min(left.events as usize);
            let turn = Turn::at(filter).await;
            let page = match self.hub.log.read(self.request(partition, from, limit)).await {
                Err(ReadError::Gone { first: Offset(first) }) if first > from => {
                    from = first;
                    continue;
                }
                page => page?,
            };
            if page.next.0 <= from {
                break;
            }
            let mut events = page.events;
            events.retain(|event| event.offset.0 < tail);
            left.events = left.events.saturating_sub(events.len() as u64);
            let (kept, stopped) = match filter.zip(turn) {
                None => (events, None),
                Some((filter, turn)) => filter.keep(events, turn),
            };
            count += kept.len() as u64;
            from = stopped.map_or(page.next.0, |(_, offset)| offset.0 + 1);
        }
        Ok(count)
    }
}
