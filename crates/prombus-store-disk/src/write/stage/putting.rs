//! Pieces of what another store held, put into a batch exactly as they are.
//!
//! They are logged as what changes a state is always logged, so a replay knows nothing of where they came from. Where offsets
//! are passed over, the bounds move first, and the holes between are noted as given up.

use crate::index::active::Entry;
use crate::index::lookup::{LookupKey, key_hash};
use crate::index::newest::Verdict;
use crate::journal::batch::MAX_BATCH;
use crate::journal::part::Index;
use crate::journal::position::PartitionRef;
use crate::journal::record::{self, EventHead, TooLong};
use crate::state::view::{Change, HOLES_WITHIN, PartitionExtent};
use crate::write::stage::Stage;
use bytes::Bytes;
use prombus_core::transfer::Counters;
use prombus_core::{
    CollectionConfig, CollectionState, CommitError, Durability, Event, Kept, KnownEvent, NewEvent, Offset,
    Offsets, Partition, Piece, Receipt, TopicConfig, TopicName, TopicNumber, TopicState,
};
use std::sync::Arc;

impl Stage {
    /// Puts a piece into the batch.
    pub fn put(&mut self, piece: &Piece) -> Result<Receipt, CommitError> {
        let items = self.items;
        match piece {
            Piece::Topic(topic) => {
                if self.view.topics.get(&topic.name).is_none_or(|known| **known != *topic) {
                    self.change(Change::Topic(topic.clone()))?;
                }
            }
            Piece::Events(events) => events.iter().try_for_each(|event| self.put_event(event))?,
            Piece::Kept { topic, partition, kept } => self.put_kept(topic, *partition, *kept)?,
            Piece::Remembered(events) => {
                events.iter().try_for_each(|(topic, known)| self.put_known(topic, *known))?;
            }
            Piece::Cursors(cursors) => {
                for (key, cursor) in cursors {
                    if self.view.cursors.get(key).is_none_or(|known| **known != *cursor) {
                        self.change(Change::Cursor(key.clone(), cursor.clone()))?;
                    }
                }
            }
            Piece::Collection(collection) => {
                if self.view.collections.get(&collection.name).is_none_or(|known| **known != *collection) {
                    self.change(Change::Collection(collection.clone()))?;
                }
            }
            Piece::Documents { collection, documents } => {
                for document in documents {
                    self.change(Change::Document(collection.clone(), document.clone()))?;
                }
            }
            Piece::Counters(counters) => self.put_counters(*counters)?,
        }
        if self.items > items {
            self.view.sequence += 1;
        }
        Ok(self.empty_receipt(Durability::Sync))
    }

    fn partition_ref(&self, topic: &TopicName, partition: Partition) -> Result<PartitionRef, CommitError> {
        let known = self.view.topics.get(topic);
        let known = known.ok_or_else(|| CommitError::TopicNotFound(topic.clone()))?;
        Ok(PartitionRef { topic: known.number.0, partition: partition.0 })
    }

    fn put_event(&mut self, event: &Event) -> Result<(), CommitError> {
        let partition = self.partition_ref(&event.topic, event.partition)?;
        let offset = event.offset.0;
        if offset < self.view.extent(partition).next {
            return Ok(());
        }
        self.pass_over(partition, offset)?;
        let Event { id, ts, recorded_ts, .. } = *event;
        let new = NewEvent {
            id: Some(id),
            ts: Some(ts),
            key: event.key.clone(),
            sid: event.sid.clone(),
            headers: event.headers.clone(),
            payload: event.payload.clone(),
            caused_by: event.caused_by.clone(),
            tags: event.tags.clone(),
        };
        // Whoever made the id: only those that this engine makes grow with their places.
        let head = EventHead { partition, offset, id, hub_id: false, ts, recorded_ts };
        let at = self.next_place()?;
        let start = self.buffer.len();
        record::write_event(&mut self.buffer, &head, &new)?;
        self.items += 1;
        let key_hash = event.key.as_ref().map(|key| key_hash(partition.topic, key.as_bytes()));
        // No item is that long.
        let bytes = u32::try_from(self.buffer.len() - start).unwrap_or(u32::MAX);
        self.part.with_active(|index| index.push(Entry { head, key_hash, at, bytes }));
        let extent = self.view.extent(partition);
        let bytes = extent.bytes + event.size() as u64;
        self.view.extents.insert(partition, PartitionExtent { next: offset + 1, bytes, ..extent });
        self.view.last_recorded_ts = self.view.last_recorded_ts.max(recorded_ts);
        Ok(())
    }

    /// Gives up the offsets of a partition from its end up to `next`.
    fn pass_over(&mut self, partition: PartitionRef, next: u64) -> Result<(), CommitError> {
        let extent = self.view.extent(partition);
        if next <= extent.next {
            return Ok(());
        }
        let mut holes = Offsets::default();
        holes.insert_all(Offset(extent.next), Offset(next));
        self.change(Change::Extent(partition, PartitionExtent { next, ..extent }))?;
        holes
            .pieces(HOLES_WITHIN)
            .into_iter()
            .try_for_each(|some| self.change(Change::Holes(partition, some)))
    }

    fn put_kept(&mut self, topic: &TopicName, partition: Partition, kept: Kept) -> Result<(), CommitError> {
        let partition = self.partition_ref(topic, partition)?;
        let (before, after) = (self.view.extent(partition), PartitionExtent::from(kept));
        if before == after {
            return Ok(());
        }
        if before.next < after.first {
            // What lies below is not kept anyway, and no hole.
            let begun = PartitionExtent { first: after.first, next: after.first, ..before };
            self.change(Change::Extent(partition, begun))?;
        }
        self.pass_over(partition, after.next)?;
        self.change(Change::Extent(partition, after))
    }

    fn put_known(&mut self, topic: &TopicName, known: KnownEvent) -> Result<(), CommitError> {
        let first = known.first;
        let partition = self.partition_ref(topic, first.partition)?;
        let (id, ts, offset, recorded_ts) = (first.id, first.ts, first.offset.0, known.recorded_ts);
        let head = EventHead { partition, offset, id, hub_id: false, ts, recorded_ts };
        let newest = self.newest_of_id(LookupKey::id(partition.topic, id), |item| {
            let found = record::event_head(item);
            found.is_some_and(|found| found.id == id && found.partition.topic == partition.topic)
        })?;
        if newest.and_then(|item| record::event_head(&item)) == Some(head) {
            return Ok(());
        }
        let at = self.next_place()?;
        record::write_known(&mut self.buffer, &head, known.digest)?;
        self.items += 1;
        self.part.with_active(|index| index.push_gone(&head, at));
        self.view.last_recorded_ts = self.view.last_recorded_ts.max(recorded_ts);
        Ok(())
    }

    /// The last event with an id, or what is left of it.
    fn newest_of_id(
        &self,
        by: LookupKey,
        is_one: impl Fn(&[u8]) -> bool + Copy,
    ) -> Result<Option<Bytes>, CommitError> {
        let judge = |item: &[u8]| if is_one(item) { Verdict::Found } else { Verdict::Other };
        let mut found = match &*self.part.index() {
            Index::Active(index) => self.find_active(by, &index.read(), judge)?,
            Index::Sealed(_) => None,
        };
        let mut earlier = self.view.parts.iter().rev().skip(1);
        while found.is_none()
            && let Some(part) = earlier.next()
        {
            found = self.find_in(part, by, judge)?;
        }
        Ok(found)
    }

    /// Where the next item will be in its part.
    fn next_place(&self) -> Result<u32, CommitError> {
        let too_long = TooLong { bytes: self.buffer.len(), limit: MAX_BATCH };
        Ok(self.start.view.end.plus(self.buffer.len()).ok_or(too_long)?.at)
    }

    /// No number is given twice, also not one of a topic or collection that was gone before the move: one that is made and goes
    /// at once says so to whoever replays the journal.
    fn put_counters(&mut self, counters: Counters) -> Result<(), CommitError> {
        let Counters { next_topic, next_collection, recorded_ts } = counters;
        if next_topic.0 == 0 && next_collection == 0 {
            return Ok(());
        }
        self.view.last_recorded_ts = self.view.last_recorded_ts.max(recorded_ts);
        let free = |n: u32| TopicName::parse(&format!("gone.{n}")).ok();
        let is_free = |name: &TopicName| !self.view.topics.contains_key(name);
        let name = (0..).filter_map(free).find(is_free);
        let name = name.ok_or_else(|| CommitError::Unavailable("no name is free".into()))?;
        if self.view.next_topic < next_topic.0 {
            let (number, config) = (TopicNumber(next_topic.0 - 1), TopicConfig::default());
            self.change(Change::Topic(TopicState::new(name.clone(), number, config)))?;
        }
        // Also where it was not made: it carries the recorded time.
        self.change(Change::TopicGone(name))?;
        if self.view.next_collection < next_collection {
            let is_free = |name: &Arc<str>| !self.view.collections.contains_key(name);
            let name = (0..).map(|n| Arc::from(format!("gone.{n}"))).find(is_free);
            let name: Arc<str> = name.ok_or_else(|| CommitError::Unavailable("no name is free".into()))?;
            let config = CollectionConfig::default();
            let gone = CollectionState::new(name.clone(), next_collection - 1, config);
            self.change(Change::Collection(gone))?;
            self.change(Change::CollectionGone(name))?;
        }
        Ok(())
    }
}
