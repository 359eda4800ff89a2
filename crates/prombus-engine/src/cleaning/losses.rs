//! What is about to be given up of a topic: counted by those who have read it, and told to the store in one commit.

use super::pass::Counted;
use prombus_core::{ConfigChange, Loss, Offset, Offsets, Partition, TopicState};
use std::collections::BTreeMap;
use std::sync::Arc;

/// An event, as far as cleaning has to know it.
#[derive(Debug, Clone, Copy)]
pub(super) struct SizedEvent {
    pub partition: Partition,
    pub offset: Offset,
    /// What it counts for.
    pub bytes: u64,
}

/// What goes of a partition.
#[derive(Debug, Default)]
struct OfPartition {
    /// Everything below goes.
    before: Option<Offset>,
    trimmed: Loss,
    trimmed_events: u64,
    /// And these.
    single: Offsets,
    /// What they count for.
    single_bytes: u64,
    /// For these.
    horizon_ts: Option<u64>,
}

/// What goes of a topic.
#[derive(Debug, Default)]
pub(super) struct Losses(BTreeMap<u32, OfPartition>);

impl Losses {
    fn of(&mut self, partition: Partition) -> &mut OfPartition {
        self.0.entry(partition.0).or_default()
    }

    /// The first events of a partition go up to this one, which is the next.
    pub fn trim(&mut self, SizedEvent { partition, offset, bytes }: SizedEvent) {
        let losses = self.of(partition);
        losses.before = Some(offset.plus(1));
        losses.trimmed.bytes += bytes;
        losses.trimmed_events += 1;
    }

    /// Where anything goes up to here already, the holes below `first` go with it.
    pub fn trim_holes(&mut self, partition: Partition, first: Offset) {
        if let Some(losses) = self.0.get_mut(&partition.0) {
            losses.before = losses.before.map(|before| before.max(first));
        }
    }

    /// Everything below `first` goes, whether anything is there or not.
    pub fn trim_to(&mut self, partition: Partition, first: Offset) {
        self.of(partition).before = Some(first);
    }

    /// Whether the event is one of those that are trimmed.
    pub fn trims(&self, partition: Partition, offset: Offset) -> bool {
        self.0.get(&partition.0).and_then(|losses| losses.before).is_some_and(|before| offset < before)
    }

    /// From this time on, what is left of a partition after it is trimmed says what every key was.
    pub fn raise_trim_horizon(&mut self, partition: Partition, ts: u64) {
        let horizon = &mut self.of(partition).trimmed.horizon_ts;
        *horizon = (*horizon).max(Some(ts));
    }

    /// An event in the middle goes. From `horizon_ts` on, nobody misses it; `None` where nobody does at all.
    pub fn discard(&mut self, SizedEvent { partition, offset, bytes }: SizedEvent, horizon_ts: Option<u64>) {
        let losses = self.of(partition);
        // One that was found in two ways is counted once.
        if losses.single.insert(offset) {
            losses.single_bytes += bytes;
        }
        losses.horizon_ts = losses.horizon_ts.max(horizon_ts);
    }

    /// How many events are to be discarded.
    pub fn discards(&self) -> u64 {
        self.0.values().map(|losses| losses.single.len()).sum()
    }

    /// The partitions that something goes of.
    pub fn partitions(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.keys().copied()
    }

    /// What tells the store, and how much that is. Nothing is left to tell.
    pub fn take(&mut self, topic: &TopicState) -> (Vec<ConfigChange>, Counted) {
        let (mut changes, mut counted) = (Vec::new(), Counted::default());
        for (partition, losses) in std::mem::take(&mut self.0) {
            let partition = Partition(partition);
            let OfPartition { before, trimmed, trimmed_events, single, single_bytes: bytes, horizon_ts } =
                losses;
            counted.add(Counted { events: trimmed_events, bytes: trimmed.bytes });
            counted.add(Counted { events: single.len(), bytes });
            if let Some(before) = before {
                let topic = topic.pinned();
                changes.push(ConfigChange::Trim { topic, partition, before, loss: trimmed });
            }
            if !single.is_empty() {
                let (topic, offsets, loss) = (topic.pinned(), Arc::new(single), Loss { bytes, horizon_ts });
                changes.push(ConfigChange::Discard { topic, partition, offsets, loss });
            }
        }
        (changes, counted)
    }
}
