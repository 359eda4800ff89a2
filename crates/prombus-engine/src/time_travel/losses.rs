//! What may be missing of a key, and what is exact all the same: the rules of the module's head, as pure functions.

use prombus_core::{EventLog, Kept, Offset, Partition, ReadError, TopicRef};

/// What was given up of one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Loss {
    partition: Partition,
    is_trimmed: bool,
    has_holes: bool,
    horizon_ts: u64,
}

impl Loss {
    fn is_none(&self) -> bool {
        !self.is_trimmed && !self.has_holes
    }
}

/// What was given up of some partitions, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Losses(Vec<Loss>);

impl Losses {
    /// What is known of it now.
    pub async fn look(
        log: &dyn EventLog,
        topic: &TopicRef,
        partitions: &[Partition],
    ) -> Result<Self, ReadError> {
        let mut all = Vec::with_capacity(partitions.len());
        for partition in partitions {
            all.push((*partition, log.kept(topic, *partition).await?));
        }
        Ok(Self::of(all))
    }

    /// What is known of it by what is kept.
    pub fn of(kept: impl IntoIterator<Item = (Partition, Kept)>) -> Self {
        let loss = |(partition, kept): (Partition, Kept)| Loss {
            partition,
            is_trimmed: kept.bounds.first > Offset(0),
            has_holes: kept.has_holes,
            horizon_ts: kept.horizon_ts,
        };
        Self(kept.into_iter().map(loss).collect())
    }

    /// The same for one who has read while more was given up all the time: there may have been holes for a moment.
    pub fn unsettled(mut self) -> Self {
        self.0.iter_mut().for_each(|loss| loss.has_holes = true);
        self
    }

    /// From when on the last event of every key is known.
    pub fn horizon_ts(&self) -> u64 {
        self.0.iter().map(|loss| loss.horizon_ts).max().unwrap_or(0)
    }

    /// Rule 1: whether the last event that is kept, which is in this partition, is the last that there was.
    pub fn spare_the_last(&self, at: u64, last: Partition) -> bool {
        self.0.iter().all(|loss| match loss.partition {
            partition if partition < last => true,
            partition if partition == last && !loss.has_holes => true,
            _ => at >= loss.horizon_ts,
        })
    }

    /// Rule 2: whether there was no event, where none is kept.
    pub fn spare_none(&self, at: u64) -> bool {
        at >= self.horizon_ts()
    }

    /// Rule 4: whether nothing is missing from an event in this partition on, or from the beginning.
    pub fn spare_all_since(&self, first: Option<Partition>) -> bool {
        self.0.iter().all(|loss| match first {
            Some(first) if loss.partition < first => true,
            Some(first) if loss.partition == first => !loss.has_holes,
            _ => loss.is_none(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prombus_core::Bounds;

    fn kept(first: u64, horizon_ts: u64, has_holes: bool) -> Kept {
        Kept { bounds: Bounds { first: Offset(first), next: Offset(100) }, bytes: 0, horizon_ts, has_holes }
    }

    fn losses(kept: &[Kept]) -> Losses {
        Losses::of((0..).map(Partition).zip(kept.iter().copied()))
    }

    #[test]
    fn where_nothing_was_given_up_everything_is_exact() {
        let none = losses(&[kept(0, 0, false), kept(0, 0, false)]);
        assert!(none.spare_none(0) && none.spare_all_since(None));
        assert!(none.spare_the_last(0, Partition(0)) && none.spare_the_last(0, Partition(1)));
    }

    #[test]
    fn a_trim_leaves_what_follows() {
        let trimmed = losses(&[kept(5, 100, false)]);
        assert!(trimmed.spare_the_last(0, Partition(0)), "what is kept is the last, before the horizon too");
        assert!(!trimmed.spare_none(99) && trimmed.spare_none(100));
        assert!(!trimmed.spare_all_since(None) && trimmed.spare_all_since(Some(Partition(0))));
    }

    #[test]
    fn holes_spare_the_last_from_the_horizon_on() {
        let holes = losses(&[kept(0, 100, true)]);
        assert!(!holes.spare_the_last(99, Partition(0)) && holes.spare_the_last(100, Partition(0)));
        assert!(!holes.spare_all_since(None) && !holes.spare_all_since(Some(Partition(0))));
    }

    #[test]
    fn later_partitions_may_hide_a_later_event_before_their_horizon_and_earlier_ones_may_not() {
        let later = losses(&[kept(0, 0, false), kept(5, 100, false)]);
        assert!(!later.spare_the_last(99, Partition(0)), "a trim may have taken a later event there");
        assert!(later.spare_the_last(100, Partition(0)), "had it taken the last one, none would be left");
        assert!(later.spare_the_last(0, Partition(1)));
        let earlier = losses(&[kept(5, 100, true), kept(0, 0, false)]);
        assert!(earlier.spare_the_last(0, Partition(1)) && earlier.spare_all_since(Some(Partition(1))));
        assert!(!earlier.spare_all_since(Some(Partition(0))));
    }
}
