//! Reading events whose positions are known: adjacent ones in one read, others one by one.

use crate::disk::DiskFile;
use crate::journal::part::{EventAt, Part};
use crate::journal::position::PartitionRef;
use crate::journal::record;
use bytes::Bytes;
use prombus_core::{Event, TopicName};
use std::io;

/// Positions no further apart than this are read together.
const MAX_GAP: u32 = 8 << 10;
/// Maximum size of one read.
const MAX_READ: u32 = 512 << 10;
/// Room for the last event of a read, whose length is not known.
const TAIL: u32 = 1 << 10;

/// What to read of a part.
pub struct Fetch<'a> {
    /// The part.
    pub part: &'a Part,
    /// Whose events.
    pub partition: PartitionRef,
    /// The topic's name.
    pub topic: &'a TopicName,
    /// Where they are.
    pub places: &'a [EventAt],
    /// Stops after about this many bytes of payload, but not before the first event.
    pub max_bytes: usize,
}

impl Fetch<'_> {
    /// Appends the events to `events`, and gives what is left of `max_bytes` (0 where it stopped for them).
    pub fn run(&self, events: &mut Vec<Event>) -> io::Result<usize> {
        let mut left = self.max_bytes;
        let mut done = 0;
        while done < self.places.len() && left > 0 {
            let group = group_len(&self.places[done..], left);
            let (start, last) = (self.places[done].at, self.places[done + group - 1].at);
            let bytes = read(&*self.part.file, start, last - start + TAIL)?;
            for place in &self.places[done..done + group] {
                let event = self.event(&bytes, start, *place)?;
                left = left.saturating_sub(event.payload.len().max(1));
                events.push(event);
                done += 1;
                if left == 0 {
                    break;
                }
            }
        }
        Ok(left)
    }

    /// The event at a place, out of `bytes` that start at `start` where it is whole in there.
    fn event(&self, bytes: &Bytes, start: u32, EventAt { offset, at }: EventAt) -> io::Result<Event> {
        let damaged = || self.part.damaged(at);
        let item = item(self.part, (bytes, start), at)?;
        let event = record::event(&item, self.topic.clone()).ok_or_else(damaged)?;
        let head = record::event_head(&item).ok_or_else(damaged)?;
        if head.partition != self.partition || head.offset != offset {
            return Err(damaged());
        }
        Ok(event)
    }
}

/// The checked items at the first of these places, which are not none: as many as are read together, in one read of about so
/// many bytes.
pub fn items(part: &Part, places: &[EventAt], max_bytes: usize) -> io::Result<Vec<Bytes>> {
    let group = &places[..group_len(places, max_bytes)];
    let (Some(first), Some(last)) = (group.first(), group.last()) else { return Ok(Vec::new()) };
    let bytes = read(&*part.file, first.at, last.at - first.at + TAIL)?;
    group.iter().map(|place| item(part, (&bytes, first.at), place.at)).collect()
}

/// The checked item at a place, out of `bytes` that start at `start` where it is whole in there.
fn item(part: &Part, (bytes, start): (&Bytes, u32), at: u32) -> io::Result<Bytes> {
    let damaged = || part.damaged(at);
    // A part that is shorter than it was ends before the place.
    let skip = (at - start) as usize;
    let rest = if skip < bytes.len() { bytes.slice(skip..) } else { return Err(damaged()) };
    let len = record::item_len(&rest).filter(|len| *len <= record::MAX_ITEM).ok_or_else(damaged)?;
    // The one that reaches further is checked when it is read.
    let Some(item) = (len <= rest.len()).then(|| rest.slice(..len)) else { return part.item(at) };
    record::item(&item).map(|_| item.clone()).ok_or_else(damaged)
}

/// How many of the first places to read together.
fn group_len(places: &[EventAt], max_bytes: usize) -> usize {
    let most = MAX_READ.min(max_bytes.min(MAX_READ as usize) as u32 + TAIL);
    let mut len = 1;
    let gap = |from: usize, to: usize| places[to].at - places[from].at;
    while len < places.len() && gap(len - 1, len) <= MAX_GAP && gap(0, len) <= most {
        len += 1;
    }
    len
}

fn read(file: &dyn DiskFile, at: u32, len: u32) -> io::Result<Bytes> {
    let mut bytes = vec![0; len as usize];
    let got = file.read_at(&mut bytes, u64::from(at))?;
    bytes.truncate(got);
    Ok(Bytes::from(bytes))
}
