//! Reading events as of one view: by offset, time, id and key.
//!
//! A read view holds its parts, so nothing that it refers to goes away while it is in use.

use crate::index::lookup::{LookupKey, key_hash};
use crate::index::newest::Verdict;
use crate::journal::part::{EventAt, Part};
use crate::journal::position::{PartitionRef, Pos};
use crate::journal::record;
use crate::read::fetch::Fetch;
use crate::state::view::{PartitionExtent, View};
use bytes::Bytes;
use prombus_core::{
    Event, HistoryRequest, Kept, Offset, Offsets, Page, Partition, PreviousRequest, ReadError, ReadRequest,
    TopicRef, TopicState, TsRequest,
};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use uuid::Uuid;

/// How many events are read at a time when searching by time.
const SEARCH_EVENTS: u64 = 128;

/// A view, and how events are read from its parts.
pub struct ReadView(pub Arc<View>);

/// Which parts to look into for a single event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Among {
    /// The one that is being written, whose index is in memory.
    Open,
    /// Those that are full, whose indexes are on the disk.
    Full,
    /// All.
    All,
}

/// A partition that exists.
struct PartitionView<'a> {
    topic: &'a TopicState,
    partition: PartitionRef,
    extent: PartitionExtent,
    holes: Option<&'a Offsets>,
}

impl PartitionView<'_> {
    /// The first offset from `offset` on that has an event, or the end.
    fn past_holes(&self, offset: u64) -> u64 {
        let kept = self.holes.map_or(offset, |holes| holes.next_absent(Offset(offset)).0);
        kept.min(self.extent.next)
    }

    /// Where a part has the next events of the partition: `wanted` of them at most, and those only that are kept. The
    /// first of `offsets` is one that has an event, so that there are none only where the part has no more.
    fn places(&self, part: &Part, offsets: Range<u64>, wanted: u64) -> io::Result<Vec<EventAt>> {
        let mut places = part.places(self.partition, offsets.start, wanted)?;
        places.retain(|place| {
            place.offset < offsets.end && self.holes.is_none_or(|holes| !holes.contains(Offset(place.offset)))
        });
        Ok(places)
    }

    fn fetch<'f>(&'f self, part: &'f Part, places: &'f [EventAt], max_bytes: usize) -> Fetch<'f> {
        Fetch { part, partition: self.partition, topic: &self.topic.name, places, max_bytes }
    }
}

fn failed(error: io::Error) -> ReadError {
    match error.kind() {
        io::ErrorKind::InvalidData => ReadError::Corrupt(error.to_string()),
        _ => ReadError::Unavailable(error.to_string()),
    }
}

impl ReadView {
    fn topic(&self, asked: &TopicRef) -> Result<&TopicState, ReadError> {
        asked.pick(self.0.topics.get(&asked.name).map(|topic| &**topic), |topic| topic.number)
    }

    fn partition_view(&self, asked: &TopicRef, partition: Partition) -> Result<PartitionView<'_>, ReadError> {
        let topic = self.topic(asked)?;
        let partitions = topic.config.partitions;
        if partition.0 >= partitions {
            return Err(ReadError::NoSuchPartition { topic: asked.name.clone(), partitions });
        }
        let partition = PartitionRef { topic: topic.number.0, partition: partition.0 };
        let holes = self.0.holes.get(&partition).map(|holes| &**holes);
        Ok(PartitionView { topic, partition, extent: self.0.extent(partition), holes })
    }

    fn parts(&self) -> &[Arc<Part>] {
        &self.0.parts
    }

    /// The first byte of a part that is not visible.
    fn visible_end(&self, part: &Part) -> u32 {
        if part.number() == self.0.end.part { self.0.end.at } else { u32::MAX }
    }

    /// Whether there are parts besides the one that is being written.
    pub fn has_full_parts(&self) -> bool {
        self.parts().len() > 1
    }

    /// Whether what begins there in a partition begins in a part that is full.
    pub fn reaches_back(&self, topic: &TopicRef, (partition, from): (Partition, Offset)) -> bool {
        let Ok(partition_view) = self.partition_view(topic, partition) else { return false };
        from.0 < partition_view.extent.next
            && self.part_with(partition_view.partition, from.0) + 1 < self.parts().len()
    }

    /// What is kept of a partition.
    pub fn kept(&self, topic: &TopicRef, partition: Partition) -> Result<Kept, ReadError> {
        Ok(self.partition_view(topic, partition)?.extent.kept())
    }

    /// A page of a partition. It ends before anything that cannot be read; continuing from there returns the error.
    pub fn read(&self, request: &ReadRequest) -> Result<Page, ReadError> {
        let partition_view = self.partition_view(&request.topic, request.partition)?;
        let PartitionExtent { first, next: end, .. } = partition_view.extent;
        if request.from.0 < first {
            return Err(ReadError::Gone { first: Offset(first) });
        }
        let mut events = Vec::new();
        let mut next = partition_view.past_holes(request.from.0);
        let mut left = request.max_bytes.max(1);
        let start = self.part_with(partition_view.partition, next);
        for part in &self.parts()[start..] {
            // Where there are holes, it takes several rounds to find as many events as are wanted.
            while next < end && events.len() < request.limit && left > 0 {
                let wanted = (request.limit - events.len()) as u64;
                let places = match partition_view.places(part, next..end, wanted) {
                    Err(_) if !events.is_empty() => {
                        left = 0;
                        break;
                    }
                    places => places.map_err(failed)?,
                };
                let Some(last) = places.last() else { break };
                let behind = partition_view.past_holes(last.offset + 1);
                events.reserve(places.len());
                left = match partition_view.fetch(part, &places, left).run(&mut events) {
                    Err(error) if events.is_empty() => return Err(failed(error)),
                    read => read.unwrap_or(0),
                };
                next = match events.last() {
                    Some(read) if read.offset.0 == last.offset => behind,
                    read => partition_view.past_holes(read.map_or(next, |read| read.offset.0 + 1)),
                };
            }
        }
        Ok(Page { events, next: Offset(next), end: Offset(end) })
    }

    /// The index of the part that holds an offset of a partition, or of the last one before it.
    fn part_with(&self, partition: PartitionRef, offset: u64) -> usize {
        let holds = |part: &Arc<Part>| part.extent(partition).is_some_and(|extent| extent.start <= offset);
        self.parts().iter().rposition(holds).unwrap_or(0)
    }

    /// The first retained offset whose event has at least the requested time.
    pub fn offset_at(&self, request: &TsRequest) -> Result<Offset, ReadError> {
        let partition_view = self.partition_view(&request.topic, request.partition)?;
        let PartitionExtent { first, next: end, .. } = partition_view.extent;
        for part in self.parts() {
            let Some(extent) = part.extent(partition_view.partition) else { continue };
            let part_end = extent.end.min(end);
            if part_end <= first {
                continue;
            }
            let near = part.offset_near(partition_view.partition, request.ts).map_err(failed)?;
            let Some(near) = near.map(|near| near.max(first)).filter(|near| *near < part_end) else {
                continue;
            };
            if let Some(found) =
                self.search(&partition_view, part, near..part_end, request.ts).map_err(failed)?
            {
                return Ok(Offset(found));
            }
        }
        Ok(Offset(end))
    }

    fn search(
        &self,
        partition_view: &PartitionView<'_>,
        part: &Part,
        offsets: std::ops::Range<u64>,
        ts: u64,
    ) -> io::Result<Option<u64>> {
        let mut next = partition_view.past_holes(offsets.start);
        let mut events = Vec::new();
        while next < offsets.end {
            let places = partition_view.places(part, next..offsets.end, SEARCH_EVENTS)?;
            let Some(last) = places.last() else { return Ok(None) };
            next = partition_view.past_holes(last.offset + 1);
            events.clear();
            partition_view.fetch(part, &places, usize::MAX).run(&mut events)?;
            if let Some(found) = events.iter().find(|event| event.ts >= ts) {
                return Ok(Some(found.offset.0));
            }
        }
        Ok(None)
    }

    fn among(&self, among: Among) -> &[Arc<Part>] {
        let full = self.parts().len().saturating_sub(1);
        match among {
            Among::Open => &self.parts()[full..],
            Among::Full => &self.parts()[..full],
            Among::All => self.parts(),
        }
    }

    /// The event with an id.
    pub fn by_id(&self, topic: &TopicRef, id: Uuid, among: Among) -> Result<Option<Event>, ReadError> {
        let topic = self.topic(topic)?;
        self.newest(LookupKey::id(topic.number.0, id), topic, (among, None), |item| {
            record::event_head(item).is_some_and(|head| head.id == id)
        })
    }

    /// The latest event of a key.
    pub fn latest_by_key(
        &self,
        topic: &TopicRef,
        key: &str,
        among: Among,
    ) -> Result<Option<Event>, ReadError> {
        self.newest_of_key(self.topic(topic)?, key, (among, None))
    }

    /// The last event of a key before one of its events, for several of them.
    pub fn previous_by_key(&self, request: &PreviousRequest) -> Result<Vec<Option<Event>>, ReadError> {
        let PreviousRequest { topic, events, max_bytes } = request;
        let topic = self.topic(topic)?;
        let (mut found, mut bytes) = (Vec::with_capacity(events.len()), 0);
        for (key, (partition, offset)) in events {
            let before = self.position_of(topic, *partition, *offset)?;
            let event = self.newest_of_key(topic, key, (Among::All, Some(before)))?;
            bytes += event.as_ref().map_or(0, |event| event.payload.len());
            found.push(event);
            if bytes >= *max_bytes {
                break;
            }
        }
        Ok(found)
    }

    fn newest_of_key(
        &self,
        topic: &TopicState,
        key: &str,
        range: (Among, Option<Pos>),
    ) -> Result<Option<Event>, ReadError> {
        let by = LookupKey::key(topic.number.0, key.as_bytes());
        self.newest(by, topic, range, |item| record::event_key(item) == Some(key.as_bytes()))
    }

    fn newest(
        &self,
        by: LookupKey,
        topic: &TopicState,
        (among, before): (Among, Option<Pos>),
        is_it: impl Fn(&[u8]) -> bool,
    ) -> Result<Option<Event>, ReadError> {
        let before = before.unwrap_or(self.0.end);
        for part in self.among(among).iter().rev().filter(|part| part.number() <= before.part) {
            let below = if part.number() == before.part { before.at } else { u32::MAX };
            let found = part.newest(by, (below, self.0.end), |item| match record::event_head(item) {
                Some(head) if !self.0.is_kept(head.partition, head.offset) => Verdict::Dead,
                Some(head) if head.partition.topic == topic.number.0 && is_it(item) => Verdict::Found,
                _ => Verdict::Other,
            });
            if let Some(item) = found.map_err(failed)? {
                return Ok(record::event(&item, topic.name.clone()));
            }
        }
        Ok(None)
    }

    fn is_kept(&self, item: &Bytes, topic: &TopicState) -> bool {
        record::event_head(item).is_some_and(|head| {
            head.partition.topic == topic.number.0 && self.0.is_kept(head.partition, head.offset)
        })
    }

    /// The events of a key, in the order of the journal.
    pub fn history(&self, request: &HistoryRequest) -> Result<Vec<Event>, ReadError> {
        let topic = self.topic(&request.topic)?;
        let hash = key_hash(topic.number.0, request.key.as_bytes());
        let start = match request.after {
            None => Pos::default(),
            Some((partition, offset)) => self.position_of(topic, partition, offset)?,
        };
        // Where it starts is only as good as what is left of the part there.
        let is_behind = |item: &[u8]| match (request.after, record::event_head(item)) {
            (Some((partition, offset)), Some(head)) => {
                (head.partition.partition, head.offset) > (partition.0, offset.0)
            }
            (None, Some(_)) => true,
            (_, None) => false,
        };
        let mut events = Vec::new();
        let mut left = request.max_bytes.max(1);
        for part in self.parts().iter().filter(|part| part.number() >= start.part) {
            let mut from = if part.number() == start.part { start.at } else { 0 };
            let end = self.visible_end(part);
            loop {
                let wanted = request.limit - events.len();
                let places = part.of_key(hash, from..end, wanted).map_err(failed)?;
                for at in &places {
                    let item = part.item(*at).map_err(failed)?;
                    let is_it = record::event_key(&item) == Some(request.key.as_bytes());
                    if is_it && self.is_kept(&item, topic) && is_behind(&item) {
                        left = left.saturating_sub(item.len());
                        events.extend(record::event(&item, topic.name.clone()));
                    }
                    if left == 0 || events.len() == request.limit {
                        return Ok(events);
                    }
                }
                match places.last() {
                    Some(last) if places.len() == wanted => from = last + 1,
                    _ => break,
                }
            }
        }
        Ok(events)
    }

    /// The place of an event; where it is gone, one at or before that of the next event of its key.
    fn position_of(
        &self,
        topic: &TopicState,
        partition: Partition,
        offset: Offset,
    ) -> Result<Pos, ReadError> {
        let partition = PartitionRef { topic: topic.number.0, partition: partition.0 };
        let Some(part) = self.parts().get(self.part_with(partition, offset.0)) else {
            return Ok(Pos::default());
        };
        let place = part.places(partition, offset.0, 1).map_err(failed)?;
        Ok(place.first().map_or(Pos::default(), |place| Pos { part: part.number(), at: place.at }))
    }
}
