//! What a commit in the making asks of the batch and changes in it: see [`prombus_core::staging`].

use super::Stage;
use crate::index::active::{ActiveIndex, Entry};
use crate::index::lookup::{LookupKey, key_hash};
use crate::index::newest::Verdict;
use crate::journal::batch::MAX_BATCH;
use crate::journal::part::Index;
use crate::journal::position::PartitionRef;
use crate::journal::record::{self, EventHead, TooLong};
use crate::state::rows::Rows;
use crate::state::view::{Change, PartitionExtent, View};
use parking_lot::RwLockWriteGuard;
use prombus_core::collection::Drafted;
use prombus_core::staging::{self, AppendOne, Staging};
use prombus_core::{
    Append, Appended, Bounds, CollectionState, Commit, CommitError, CommitLimits, Cursor, CursorKey,
    DocumentWrite, Durability, Loss, Offset, Offsets, Partition, Placer, Remembered, TopicName, TopicNumber,
    TopicRef, TopicState,
};
use prombus_rows::{DocumentRow, PriorRows};
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;
use uuid::Uuid;

/// What the events of one commit share.
pub struct AppendState<'a> {
    /// The index of the part that is written.
    index: RwLockWriteGuard<'a, ActiveIndex>,
    /// The partitions that got events, as they are after them.
    extents: Vec<(PartitionRef, PartitionExtent)>,
    /// Which events have an id that an earlier part may hold.
    suspects: VecDeque<(usize, usize)>,
    /// Where the events are. They are put here one by one, and not handed back: an answer on its way through a
    /// `Result` is read before it has left the processor's store buffer, which then waits for the index's memory.
    appended: Vec<Appended>,
}

impl AppendState<'_> {
    /// The offset of the next event of a partition, which counts for `size`.
    fn next_offset(&mut self, partition: PartitionRef, view: &View, size: usize) -> u64 {
        let slot = self.extents.iter().rposition(|(known, _)| *known == partition).unwrap_or_else(|| {
            self.extents.push((partition, view.extent(partition)));
            self.extents.len() - 1
        });
        let extent = &mut self.extents[slot].1;
        extent.next += 1;
        extent.bytes += size as u64;
        extent.next - 1
    }
}

impl Extend<Appended> for AppendState<'_> {
    fn extend<I: IntoIterator<Item = Appended>>(&mut self, more: I) {
        self.appended.extend(more);
    }
}

impl Stage {
    /// Which events have an id that an earlier part may hold, with that part, for each the newest part first.
    /// Part by part, so that each filter is in the cache for all of the events.
    fn suspects(&self, appends: &[Append], active: &ActiveIndex) -> VecDeque<(usize, usize)> {
        let mut hashes: Vec<(usize, LookupKey)> = Vec::new();
        let (mut topic, mut window): (Option<&TopicState>, u64) = (None, 0);
        for (n, append) in appends.iter().enumerate() {
            let Some(id) = append.event.id else { continue };
            // Neighbours mostly go to the same topic.
            if topic.is_none_or(|topic| topic.name != append.topic) {
                topic = self.view.topics.get(&append.topic).map(|topic| &**topic);
            }
            let Some(topic) = topic else { continue };
            window = window.max(topic.config.dedupe_window_ms);
            hashes.push((n, LookupKey::id(topic.number.0, id)));
        }
        if hashes.is_empty() {
            return VecDeque::new();
        }
        active.warm_up(hashes.iter().map(|(_, by)| *by));
        let horizon = self.now_ms.saturating_sub(window);
        let mut suspects = Vec::new();
        for (at, part) in self.view.parts.iter().enumerate().rev().skip(1) {
            match &*part.index() {
                Index::Sealed(sidecar) if sidecar.last_recorded_ts < horizon => break,
                Index::Sealed(sidecar) => {
                    suspects
                        .extend(hashes.iter().filter(|(_, by)| sidecar.may_have(*by)).map(|(n, _)| (*n, at)));
                }
                Index::Active(index) => {
                    let index = index.read();
                    let may_have = |by: LookupKey| index.newest(by, u32::MAX).is_some();
                    suspects.extend(hashes.iter().filter(|(_, by)| may_have(*by)).map(|(n, _)| (*n, at)));
                }
            }
        }
        suspects.sort_unstable_by_key(|(n, at)| (*n, Reverse(*at)));
        suspects.into()
    }

    /// A partition of a pinned topic, of which something is given up.
    fn changed_partition(&mut self, (topic, partition): (&TopicRef, Partition)) -> Option<PartitionRef> {
        let number = topic.incarnation?;
        self.changed_set.changed(&topic.name);
        self.has_given_up = true;
        Some(PartitionRef { topic: number.0, partition: partition.0 })
    }
}

impl Staging for Stage {
    type Row = DocumentRow;
    type AppendState<'a> = AppendState<'a>;
    type PriorDocuments<'a> = PriorRows<&'a Rows>;

    fn topic(&self, name: &TopicName) -> Option<&Arc<TopicState>> {
        self.view.topics.get(name)
    }

    fn topic_count(&self) -> usize {
        self.view.topics.len()
    }

    fn next_topic(&self) -> TopicNumber {
        TopicNumber(self.view.next_topic)
    }

    fn bounds(&self, topic: &TopicState, partition: Partition) -> Bounds {
        let partition = PartitionRef { topic: topic.number.0, partition: partition.0 };
        self.view.extent(partition).kept().bounds
    }

    // A topic takes its cursors with it, so those that there are belong to this incarnation.
    fn cursor(&self, _topic: &TopicState, key: &CursorKey) -> Option<&Cursor> {
        self.view.cursors.get(key).map(|cursor| &**cursor)
    }

    fn cursors(&self) -> impl Iterator<Item = &CursorKey> {
        self.view.cursors.keys()
    }

    fn at_most(&self) -> (usize, u32) {
        let widest = self.view.topics.values().map(|topic| topic.config.partitions).max();
        (self.view.cursors.len(), widest.unwrap_or(0))
    }

    fn put_topic(&mut self, topic: TopicState) -> Result<(), CommitError> {
        self.changed_set.changed(&topic.name);
        self.change(Change::Topic(topic))
    }

    fn delete_topic(&mut self, name: &TopicName) -> Result<(), CommitError> {
        self.changed_set.changed(name);
        self.has_given_up = true;
        self.change(Change::TopicGone(name.clone()))
    }

    fn trim(&mut self, at: (&TopicRef, Partition), first: Offset, loss: Loss) -> Result<(), CommitError> {
        let Some(partition) = self.changed_partition(at) else { return Ok(()) };
        let extent = self.view.extent(partition).without(loss);
        self.change(Change::Extent(partition, PartitionExtent { first: first.0, ..extent }))
    }

    fn discard(
        &mut self,
        at: (&TopicRef, Partition),
        offsets: &Offsets,
        loss: Loss,
    ) -> Result<(), CommitError> {
        let Some(partition) = self.changed_partition(at) else { return Ok(()) };
        self.change(Change::Holes(partition, offsets.clone()))?;
        let extent = self.view.extent(partition).without(loss);
        let has_holes = extent.has_holes || loss.horizon_ts.is_some();
        self.change(Change::Extent(partition, PartitionExtent { has_holes, ..extent }))
    }

    fn forget(&mut self, topic: &TopicRef, key: &str) -> Result<(), CommitError> {
        let Some(number) = topic.incarnation else { return Ok(()) };
        // This commit is the next one.
        let (topic, sequence) = (number.0, self.view.sequence + 1);
        self.change(Change::Forget { topic, key: key.into(), sequence })
    }

    fn collection(&self, name: &str) -> Option<&CollectionState> {
        self.view.collections.get(name).map(|state| &**state)
    }

    fn next_collection(&self) -> u32 {
        self.view.next_collection
    }

    fn check_new_collection(&self, name: &str, limits: CommitLimits) -> Result<(), CommitError> {
        let collections = &self.view.collections;
        limits.check_new_collection(name, collections.len(), || collections.keys())
    }

    fn put_collection(&mut self, collection: CollectionState) -> Result<(), CommitError> {
        let name = collection.name.clone();
        self.change(Change::Collection(collection))?;
        self.begin_indexes(&name)
    }

    fn delete_collection(&mut self, name: &Arc<str>) -> Result<(), CommitError> {
        self.change(Change::CollectionGone(name.clone()))
    }

    fn rename_collection(&mut self, from: &Arc<str>, renamed: CollectionState) -> Result<(), CommitError> {
        self.change(Change::CollectionSwap(from.clone(), renamed.name))
    }

    fn append_all(
        &mut self,
        appends: &[Append],
        commit: &Commit,
    ) -> Result<(Vec<Appended>, Durability), CommitError> {
        if appends.is_empty() {
            return Ok((Vec::new(), Durability::Interval));
        }
        let part = self.part.clone();
        let index = part.index();
        let Index::Active(index) = &*index else {
            return Err(CommitError::Unavailable("the part that is written has no index in memory".into()));
        };
        // Once for all events: each must be seen by the next, and taking it anew for each costs more than the rest.
        let index = index.write();
        let suspects = self.suspects(appends, &index);
        let appended = Vec::with_capacity(appends.len());
        let mut append_state = AppendState { index, extents: Vec::new(), suspects, appended };
        let durability = staging::append_each(self, appends, commit, &mut append_state)?;
        for of_topic in appends.chunk_by(|one, next| one.topic == next.topic) {
            self.changed_set.appended_to(&of_topic[0].topic);
        }
        for (partition, extent) in append_state.extents {
            self.view.extents.insert(partition, extent);
        }
        Ok((append_state.appended, durability))
    }

    fn placer(&mut self) -> &mut Placer {
        &mut self.placer
    }

    fn now_ms(&self) -> u64 {
        self.now_ms
    }

    fn remembered(
        &self,
        one: &AppendOne<'_>,
        to: &mut AppendState<'_>,
    ) -> Result<Option<Remembered>, CommitError> {
        let (topic, new) = (one.topic, &one.append.event);
        let Some(id) = new.id else { return Ok(None) };
        let number = topic.number.0;
        let is_same = |item: &[u8]| match record::event_head(item) {
            Some(head) if head.id == id && head.partition.topic == number => Verdict::Found,
            _ => Verdict::Other,
        };
        let by = LookupKey::id(number, id);
        let mut found = self.find_active(by, &to.index, is_same)?;
        while let Some((_, part)) = to.suspects.pop_front_if(|(suspect, _)| *suspect == one.index) {
            if found.is_none() {
                found = self.find_in(&self.view.parts[part], by, is_same)?;
            }
        }
        let Some((item, head)) = found.and_then(|item| Some((item.clone(), record::event_head(&item)?)))
        else {
            return Ok(None);
        };
        let is_repeated = match record::event(&item, topic.name.clone()) {
            Some(first) => first.is_repeated_by(new),
            None => record::is_repeated(&item, new),
        };
        let EventHead { partition, offset, ts, recorded_ts, .. } = head;
        let (partition, offset) = (Partition(partition.partition), Offset(offset));
        let first = Appended { id, partition, offset, ts, duplicate: true };
        Ok(Some(Remembered { first, recorded_ts, is_repeated }))
    }

    fn latest_id(
        &self,
        topic: &TopicState,
        key: &str,
        to: &AppendState<'_>,
    ) -> Result<Option<Uuid>, CommitError> {
        let topic = topic.number.0;
        let is_latest = |item: &[u8]| {
            let Some(head) = record::event_head(item) else { return Verdict::Other };
            // What this batch gives up is kept again if the batch cannot be written.
            if !self.start.view.is_kept(head.partition, head.offset) {
                return Verdict::Dead;
            }
            let is_of_key = head.partition.topic == topic && record::event_key(item) == Some(key.as_bytes());
            match is_of_key && self.view.is_kept(head.partition, head.offset) {
                true => Verdict::Found,
                false => Verdict::Other,
            }
        };
        let by = LookupKey::key(topic, key.as_bytes());
        let mut found = self.find_active(by, &to.index, is_latest)?;
        let mut earlier = self.view.parts.iter().rev().skip(1);
        while found.is_none()
            && let Some(part) = earlier.next()
        {
            found = self.find_in(part, by, is_latest)?;
        }
        Ok(found.and_then(|item| record::event_head(&item)).map(|head| head.id))
    }

    /// Puts the event into buffer and index.
    fn push(
        &mut self,
        one: &AppendOne<'_>,
        partition: Partition,
        to: &mut AppendState<'_>,
    ) -> Result<(), CommitError> {
        let event = &one.append.event;
        let partition = PartitionRef { topic: one.topic.number.0, partition: partition.0 };
        let offset = to.next_offset(partition, &self.view, event.size());
        let recorded_ts = self.view.last_recorded_ts;
        let id = event.id.unwrap_or_else(|| self.ids.next(recorded_ts));
        let ts = event.ts.unwrap_or(self.now_ms);
        let hub_id = event.id.is_none();
        if hub_id {
            self.view.last_hub_id = id;
        }
        let too_long = TooLong { bytes: self.buffer.len(), limit: MAX_BATCH };
        let start = self.buffer.len();
        let at = self.start.view.end.plus(start).ok_or(too_long)?.at;
        let head = EventHead { partition, offset, id, hub_id, ts, recorded_ts };
        record::write_event(&mut self.buffer, &head, event)?;
        self.items += 1;
        let key_hash = event.key.as_ref().map(|key| key_hash(partition.topic, key.as_bytes()));
        // No item is that long.
        let bytes = u32::try_from(self.buffer.len() - start).unwrap_or(u32::MAX);
        to.index.push(Entry { head, key_hash, at, bytes });
        let (partition, offset) = (Partition(partition.partition), Offset(offset));
        to.appended.push(Appended { id, partition, offset, ts, duplicate: false });
        Ok(())
    }

    fn prior_documents(&self) -> PriorRows<&Rows> {
        PriorRows(&self.view.rows)
    }

    fn put_document(
        &mut self,
        write: &DocumentWrite,
        drafted: Drafted<DocumentRow>,
    ) -> Result<(), CommitError> {
        let Drafted { slot, document, .. } = drafted;
        let mut state = self.view.collection(&write.collection, &write.owner);
        if let Some(change) = prombus_rows::replace(Arc::make_mut(&mut state), slot, document.as_ref()) {
            self.view.rows.change(change);
        }
        self.view.collections.insert(write.collection.clone(), state);
        self.log(&match document {
            Some(document) => Change::Document(write.collection.clone(), document),
            None => Change::DocumentGone(write.collection.clone(), write.key.clone()),
        })
    }

    fn put_cursor(&mut self, key: &CursorKey, cursor: Option<Cursor>) -> Result<(), CommitError> {
        self.change(match cursor {
            Some(cursor) => Change::Cursor(key.clone(), cursor),
            None => Change::CursorGone(key.clone()),
        })
    }
}
