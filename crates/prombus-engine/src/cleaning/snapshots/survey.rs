//! Which of the new events of a topic are the latest of their keys.

use super::super::latest_by_key::LatestByKey;
use super::super::pages::Pages;
use super::super::{CleanError, Pass};
use prombus_core::{Event, Offset, Partition};
use std::collections::VecDeque;
use std::ops::Range;

/// A range of a partition.
pub(super) type PartitionRange = (Partition, Range<Offset>);

/// The latest event of a key within what was surveyed.
#[derive(Debug, Clone, Copy)]
struct Latest {
    place: (Partition, Offset),
    max_ts: u64,
}

/// What was seen of ranges of partitions, in their order.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// What was surveyed.
    pub ranges: Vec<PartitionRange>,
    latest: LatestByKey<Latest>,
}

impl Survey {
    /// Surveys ranges from the first one on, as far as `most` keys go, and takes what was surveyed off them.
    pub async fn of(
        left: &mut VecDeque<PartitionRange>,
        pass: &mut Pass<'_>,
        most: usize,
    ) -> Result<Self, CleanError> {
        let mut survey = Self::default();
        while let Some((partition, range)) = left.front_mut() {
            let (partition, start) = (*partition, range.start);
            let mut pages = Pages::all(partition, range.clone());
            while range.start < range.end && !survey.latest.is_full(most) {
                let events = pages.next(pass).await?;
                range.start = match events.as_deref() {
                    None => range.end,
                    Some(events) => survey.see(events).unwrap_or(range.end),
                };
            }
            survey.ranges.push((partition, start..range.start));
            if range.start < range.end {
                break;
            }
            left.pop_front();
        }
        Ok(survey)
    }

    /// Sees events of a page, and says where it ends.
    fn see(&mut self, events: &[Event]) -> Option<Offset> {
        for event in events {
            let Some(key) = &event.key else { continue };
            let max_ts = self.latest.get(key).map_or(event.ts, |before| before.max_ts.max(event.ts));
            self.latest.put(key, Latest { place: (event.partition, event.offset), max_ts });
        }
        events.last().map(|last| last.offset.plus(1))
    }

    /// For an event that is the latest of its key, the greatest time of those that were seen of the key.
    pub fn max_ts(&self, event: &Event) -> Option<u64> {
        let latest = self.latest.get(event.key.as_ref()?)?;
        (latest.place == (event.partition, event.offset)).then_some(latest.max_ts)
    }
}
