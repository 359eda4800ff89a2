//! One partition of a group: what is settled, what was read and not delivered yet, and what waits for what.
//!
//! Memory goes by what is in flight and by the window, never by the backlog: a page is read only when it is
//! wanted, an event in flight is known by its offset, and of those that wait for their key only the first few
//! keep their bodies; the others are read again when it is their turn.

use super::options::Ordering;
use super::progress::Progress;
use super::state::PartitionMove;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use prombus_core::{Epoch, Event, Offset, Page};
use roaring::RoaringTreemap;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use xxhash_rust::xxh3::xxh3_64;

/// The bodies of waiting events may take so many bytes.
const PARKED_BYTES: usize = 4 << 20;
/// What an event takes beside its texts, about.
const EVENT_BYTES: usize = 256;
/// How many bodies are read again at once.
const BODIES_AT_ONCE: usize = 256;
/// The key of all events where a whole partition is in order.
const WHOLE_PARTITION: u64 = 0;

/// Both times: leases go by the one that never steps, pauses outlive a restart by the other.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// For deadlines.
    pub instant: Instant,
    /// Epoch milliseconds.
    pub wall_ms: u64,
}

/// What a queue goes by.
#[derive(Debug, Clone, Copy)]
pub struct QueueOptions {
    /// What waits for what.
    pub ordering: Ordering,
    /// How many offsets may be ahead of the oldest unsettled one.
    pub window: u64,
}

impl QueueOptions {
    /// What later events wait for, if they wait for this one. Keys are told apart by their hash: two that
    /// share one wait for each other in vain now and then, and are never out of order.
    fn key_of(self, event: &Event) -> Option<u64> {
        match self.ordering {
            Ordering::None => None,
            Ordering::Partition => Some(WHOLE_PARTITION),
            Ordering::Key => event.key.as_ref().map(|key| xxh3_64(key.as_bytes())),
        }
    }
}

/// An event that is to be delivered next.
#[derive(Debug)]
pub struct Ready {
    /// The event.
    pub event: Event,
    /// The key that it holds.
    pub key: Option<u64>,
}

/// Whether an event has its key already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyHold {
    /// It has, or needs none.
    Key(Option<u64>),
    /// It must be asked for; the key is not even known.
    Nothing,
}

/// What has to be read before a queue can go on.
#[derive(Debug, PartialEq, Eq)]
pub enum ReadNeed {
    /// These single events.
    Bodies(Vec<u64>),
    /// Events from here on.
    Page(u64),
}

/// Why a queue does not go on by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacle {
    /// The window is used up.
    Window,
    /// Everything that was read waits for an event before it.
    Order,
    /// An event waits for its retry.
    Retry,
}

#[derive(Debug)]
struct Parked {
    offset: u64,
    /// Boxed, because most have none.
    event: Option<Box<Event>>,
}

/// An event that starts to wait for its retry, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct Pause {
    /// Its offset.
    pub offset: u64,
    /// How long.
    pub remaining: Duration,
}

/// One partition of a group.
pub struct PartitionQueue {
    /// What is settled.
    pub progress: Progress,
    /// What was settled when the cursor was last written.
    pub durable_next: u64,
    /// The version of the cursor.
    pub cursor_version: u64,
    /// The versions of the cursors of its chunks, where there are any.
    pub chunk_versions: BTreeMap<u64, u64>,
    /// The epoch of the last move of its cursor.
    pub cursor_epoch: Epoch,
    /// How many owners it has had, in a partitioned group.
    pub owners: Option<u64>,
    /// Who owns it, in a partitioned group.
    pub owner: Option<Arc<str>>,
    /// Whether the cursor must be written.
    pub dirty: bool,
    /// How many events were settled without anybody waiting for it to be durable.
    pub passed: u64,
    /// Counts fresh starts: what belongs to an earlier one is no longer true.
    pub generation: u64,
    /// Nothing is delivered before so many changes of the group are durable.
    pub barrier: u64,
    /// Counts how often it was set to another place.
    pub resets: u64,
    /// How many leases are open.
    pub in_flight: u64,
    /// How many deliveries were not the first.
    pub redelivered: u64,
    /// How many events were given up by retention before they were settled, ever.
    pub lost: u64,
    /// The first offset that is kept, as far as is known.
    pub first: u64,
    /// Events whose leases a commit is about to settle.
    pub pledged: RoaringTreemap,
    /// Events that were delivered and came back without an attempt, and were not delivered since.
    returned: RoaringTreemap,
    read: u64,
    /// Where the partition ended when it was last read.
    end: u64,
    buffer: VecDeque<Event>,
    /// What the pages take of which there are events in the buffer. Each is let go as a whole.
    buffer_bytes: usize,
    ready: VecDeque<(Event, KeyHold)>,
    ready_bytes: usize,
    cold: VecDeque<(u64, KeyHold)>,
    keys: HashMap<u64, VecDeque<Parked>>,
    retrying: HashMap<u64, Option<u64>>,
    parked: u64,
    parked_bytes: usize,
}

impl PartitionQueue {
    /// A queue that goes on from `progress`.
    pub fn new(progress: Progress, cursor_version: u64, cursor_epoch: Epoch) -> Self {
        let mut queue = Self {
            durable_next: progress.next(),
            read: 0,
            end: 0,
            progress,
            cursor_version,
            chunk_versions: BTreeMap::new(),
            cursor_epoch,
            owners: None,
            owner: None,
            dirty: false,
            passed: 0,
            generation: 0,
            barrier: 0,
            resets: 0,
            in_flight: 0,
            redelivered: 0,
            lost: 0,
            first: 0,
            pledged: RoaringTreemap::new(),
            returned: RoaringTreemap::new(),
            buffer: VecDeque::new(),
            buffer_bytes: 0,
            ready: VecDeque::new(),
            ready_bytes: 0,
            cold: VecDeque::new(),
            keys: HashMap::new(),
            retrying: HashMap::new(),
            parked: 0,
            parked_bytes: 0,
        };
        queue.restart();
        queue
    }

    /// Forgets all deliveries and starts again at the first unsettled event.
    pub fn restart(&mut self) {
        self.generation += 1;
        self.in_flight = 0;
        self.read = self.progress.next();
        self.buffer.clear();
        self.ready.clear();
        self.keys.clear();
        self.retrying.clear();
        (self.parked, self.parked_bytes, self.ready_bytes) = (0, 0, 0);
        self.cold = self.progress.given_back().map(|offset| (offset, KeyHold::Nothing)).collect();
        self.returned.remove_range(..self.progress.next());
    }

    /// A delivery came back without an attempt: the next one of its event is not the first, though nothing else says so.
    pub fn note_returned(&mut self, offset: u64) {
        self.returned.insert(offset);
    }

    /// Whether an event that is delivered now had come back without an attempt.
    pub fn was_returned(&mut self, offset: u64) -> bool {
        !self.returned.is_empty() && self.returned.remove(offset)
    }

    /// Its cursors were written.
    pub fn moved(&mut self, step: &PartitionMove) {
        self.cursor_version += 1;
        for chunk in &step.chunks {
            match &chunk.to {
                Some(_) => self.chunk_versions.insert(chunk.chunk, chunk.expect_version + 1),
                None => self.chunk_versions.remove(&chunk.chunk),
            };
        }
    }

    /// The next event to deliver. Those that start to wait for their retry on the way go to `pauses`.
    pub fn pop(&mut self, options: QueueOptions, now: Times, pauses: &mut Vec<Pause>) -> Option<Ready> {
        loop {
            let (event, hold) = match self.ready.pop_front() {
                Some(ready) => {
                    self.ready_bytes -= size_of(&ready.0);
                    ready
                }
                None => (self.next_in_window(options)?, KeyHold::Nothing),
            };
            let offset = event.offset.0;
            let open = self.progress.is_open(offset);
            let key = match hold {
                KeyHold::Key(key) if open => key,
                KeyHold::Key(key) => {
                    self.was_returned(offset);
                    self.release(key);
                    continue;
                }
                KeyHold::Nothing if !open => {
                    self.was_returned(offset);
                    continue;
                }
                KeyHold::Nothing => match options.key_of(&event) {
                    None => None,
                    Some(key) => match self.keys.entry(key) {
                        Entry::Vacant(free) => {
                            free.insert(VecDeque::new());
                            Some(key)
                        }
                        Entry::Occupied(_) => {
                            self.park(key, event);
                            continue;
                        }
                    },
                },
            };
            let remaining = self.progress.record(offset).unwrap_or_default().remaining(now.wall_ms);
            if remaining.is_zero() {
                return Some(Ready { event, key });
            }
            self.retrying.insert(offset, key);
            pauses.push(Pause { offset, remaining });
        }
    }

    fn next_in_window(&mut self, options: QueueOptions) -> Option<Event> {
        let offset = self.buffer.front()?.offset.0;
        let blocked = options.ordering == Ordering::Partition && !self.keys.is_empty();
        if blocked || offset >= self.progress.next().saturating_add(options.window) {
            return None;
        }
        let event = self.buffer.pop_front();
        if self.buffer.is_empty() {
            // Its own room would stay otherwise, which for a large page of small events is more than they take.
            self.buffer = VecDeque::new();
        }
        event
    }

    fn park(&mut self, key: u64, event: Event) {
        let offset = event.offset.0;
        let bytes = size_of(&event);
        let fits = self.parked_bytes + bytes <= PARKED_BYTES;
        if fits {
            self.parked_bytes += bytes;
        }
        self.parked += 1;
        let event = fits.then(|| Box::new(event.detached()));
        self.keys.entry(key).or_default().push_back(Parked { offset, event });
    }

    /// What is held of events that were read and not delivered.
    pub fn held_bytes(&self) -> usize {
        let buffered = if self.buffer.is_empty() { 0 } else { self.buffer_bytes };
        buffered + self.ready_bytes + self.parked_bytes
    }

    /// Lets go of everything that was read and not delivered, to read it again when it is wanted: because the filter is
    /// another one now, or to save memory. What was passed over stays settled.
    pub fn forget_bodies(&mut self) {
        if let Some(first) = self.buffer.front() {
            self.read = first.offset.0;
            self.buffer = VecDeque::new();
        }
        // They are ahead of those that wait for their bodies already.
        for (event, hold) in self.ready.drain(..).rev() {
            self.cold.push_front((event.offset.0, hold));
        }
        for parked in self.keys.values_mut().flatten() {
            parked.event = None;
        }
        (self.parked_bytes, self.ready_bytes) = (0, 0);
    }

    /// Lets go of a key: the next event that waits for it has it then.
    pub fn release(&mut self, key: Option<u64>) {
        let Some(key) = key else { return };
        let Entry::Occupied(mut waiting) = self.keys.entry(key) else { return };
        match waiting.get_mut().pop_front() {
            None => {
                waiting.remove();
            }
            Some(Parked { offset, event }) => {
                self.parked -= 1;
                match event {
                    Some(event) => {
                        let bytes = size_of(&event);
                        self.parked_bytes -= bytes;
                        self.ready_bytes += bytes;
                        self.ready.push_back((*event, KeyHold::Key(Some(key))));
                    }
                    None => self.cold.push_back((offset, KeyHold::Key(Some(key)))),
                }
            }
        }
    }

    /// An event is to be delivered again, once its body was read.
    pub fn requeue(&mut self, offset: u64, hold: KeyHold) {
        self.cold.push_back((offset, hold));
    }

    /// An event waits for its retry.
    pub fn wait_for_retry(&mut self, offset: u64, key: Option<u64>) {
        self.retrying.insert(offset, key);
    }

    /// The pause of an event is over. Says whether that was still true.
    pub fn end_of_pause(&mut self, offset: u64) -> bool {
        let Some(key) = self.retrying.remove(&offset) else { return false };
        self.progress.is_due(offset);
        self.requeue(offset, KeyHold::Key(key));
        true
    }

    /// The pauses of these events are over.
    pub fn end_pauses(&mut self, which: impl Fn(u64) -> bool) {
        let over: Vec<u64> = self.retrying.keys().copied().filter(|offset| which(*offset)).collect();
        for offset in over {
            self.end_of_pause(offset);
        }
    }

    /// An event no longer waits for its retry; gives the key that it held.
    pub fn forget_retry(&mut self, offset: u64) -> Option<Option<u64>> {
        self.retrying.remove(&offset)
    }

    /// Whether bodies have to be read before what is due can be delivered.
    pub fn has_cold(&self) -> bool {
        !self.cold.is_empty()
    }

    /// How many events were read and may be delivered next.
    pub fn at_hand(&self) -> usize {
        self.ready.len() + self.buffer.len()
    }

    /// Whether there is more to deliver, as far as is known.
    pub fn has_more(&self) -> bool {
        !self.ready.is_empty() || !self.cold.is_empty() || !self.buffer.is_empty() || self.read < self.end
    }

    /// Whether the event was read, so that it will not be met again on the way.
    pub fn is_past(&self, offset: u64) -> bool {
        offset < self.buffer.front().map_or(self.read, |event| event.offset.0)
    }

    /// What has to be read before the queue can go on.
    pub fn read_need(&self, options: QueueOptions) -> Option<ReadNeed> {
        if !self.ready.is_empty() {
            return None;
        }
        if !self.cold.is_empty() {
            return Some(ReadNeed::Bodies(
                self.cold.iter().take(BODIES_AT_ONCE).map(|(at, _)| *at).collect(),
            ));
        }
        let blocked = options.ordering == Ordering::Partition && !self.keys.is_empty();
        let in_window = self.read < self.progress.next().saturating_add(options.window);
        (self.buffer.is_empty() && in_window && !blocked).then_some(ReadNeed::Page(self.read))
    }

    /// Takes events that were read from `from` on. The page's `next` is the first offset that was not looked at; what
    /// is not among its events below that is gone or not wanted, and so is settled.
    pub fn offer_page(&mut self, from: u64, page: Page) -> bool {
        let Page { events, next: Offset(next), end } = page;
        self.end = end.0;
        if from != self.read || next <= from {
            return false;
        }
        let mut expected = from;
        for event in &events {
            self.pass(expected..event.offset.0);
            expected = event.offset.0 + 1;
        }
        self.pass(expected..next);
        self.read = next;
        self.step_over();
        let bytes = events.iter().map(size_of).sum::<usize>();
        if self.buffer.is_empty() {
            (self.buffer, self.buffer_bytes) = (events.into(), bytes);
        } else {
            self.buffer_bytes += bytes;
            self.buffer.extend(events);
        }
        true
    }

    /// Goes on behind what is settled where it would be read next: that may be something that cannot be read.
    pub fn step_over(&mut self) {
        while !self.progress.is_open(self.read) {
            self.read += 1;
        }
    }

    fn pass(&mut self, range: std::ops::Range<u64>) {
        if !range.is_empty() {
            self.passed += range.end - range.start;
            self.returned.remove_range(range.clone());
            self.progress.settle_all(range);
        }
    }

    /// Takes an event that was read again.
    pub fn offer_body(&mut self, event: Event) {
        if let Some(hold) = self.take_cold(event.offset.0) {
            self.ready_bytes += size_of(&event);
            self.ready.push_back((event, hold));
        }
    }

    /// Settles an event that was to be delivered again: there is nothing left to deliver, or the filter does not match it
    /// any more.
    pub fn drop_body(&mut self, offset: u64) {
        let Some(hold) = self.take_cold(offset) else { return };
        self.progress.settle(offset);
        self.was_returned(offset);
        self.dirty = true;
        if let KeyHold::Key(key) = hold {
            self.release(key);
        }
    }

    /// An event that was to be delivered again is not: whoever has it may still settle it.
    pub fn let_go(&mut self, offset: u64) {
        if let Some(KeyHold::Key(key)) = self.take_cold(offset) {
            self.release(key);
        }
    }

    fn take_cold(&mut self, offset: u64) -> Option<KeyHold> {
        let at = self.cold.iter().position(|(cold, _)| *cold == offset)?;
        self.cold.remove(at).map(|(_, hold)| hold)
    }

    /// Moves up to the first event that is kept, and says how many unsettled ones are lost by that. Those that are `held`
    /// are for their holders to settle, and are lost only if they don't.
    pub fn move_up(&mut self, first: u64, held: &RoaringTreemap) -> u64 {
        self.first = self.first.max(first);
        let lost = match self.progress.is_open_below(first) {
            true => self.give_up(first, held),
            false => 0,
        };
        let unread = self.buffer.front().map_or(self.read, |event| event.offset.0);
        if lost > 0 || unread < first {
            self.drop_settled(first);
        }
        lost
    }

    fn give_up(&mut self, first: u64, held: &RoaringTreemap) -> u64 {
        let held = held.iter().take_while(|offset| *offset < first);
        let held: Vec<u64> = held.filter(|offset| self.progress.is_open(*offset)).collect();
        let lost = self.progress.unsettled(first) - held.len() as u64;
        let mut from = 0;
        for end in held.into_iter().chain([first]) {
            self.progress.settle_all(from..end);
            from = end + 1;
        }
        self.lost += lost;
        self.dirty |= lost > 0;
        lost
    }

    /// Lets go of everything below `first` that is settled by now, and of the keys that it held.
    fn drop_settled(&mut self, first: u64) {
        self.forget_bodies();
        self.returned.remove_range(..first);
        self.read = self.read.max(first);
        self.step_over();
        let progress = &self.progress;
        let is_over = |offset: u64| offset < first && !progress.is_open(offset);
        let (over, cold): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.cold).into_iter().partition(|(offset, _)| is_over(*offset));
        let mut keys: Vec<u64> = Vec::new();
        self.retrying.retain(|offset, key| {
            let is_over = is_over(*offset);
            keys.extend(key.filter(|_| is_over));
            !is_over
        });
        keys.extend(over.into_iter().filter_map(|(_, hold)| match hold {
            KeyHold::Key(key) => key,
            KeyHold::Nothing => None,
        }));
        self.cold = cold;
        keys.into_iter().for_each(|key| self.release_from(key, first));
    }

    /// Lets go of a key, past those that wait for it and are settled themselves, below `first`.
    fn release_from(&mut self, key: u64, first: u64) {
        loop {
            let known = self.cold.len();
            self.release(Some(key));
            let next = self.cold.back().filter(|_| self.cold.len() > known).map(|(offset, _)| *offset);
            if next.is_none_or(|next| next >= first || self.progress.is_open(next)) {
                return;
            }
            self.cold.pop_back();
        }
    }

    /// What keeps the queue from going on by itself, if something does.
    pub fn obstacle(&self, options: QueueOptions, tail: u64) -> Option<Obstacle> {
        let end = self.progress.next().saturating_add(options.window);
        let first_unread = self.buffer.front().map_or(self.read, |event| event.offset.0);
        if first_unread >= end && first_unread < tail {
            return Some(Obstacle::Window);
        }
        if self.parked > 0 || (options.ordering == Ordering::Partition && !self.keys.is_empty()) {
            return Some(Obstacle::Order);
        }
        (!self.retrying.is_empty()).then_some(Obstacle::Retry)
    }

    /// How many events were looked at and wait for their key or their retry.
    pub fn held_back(&self) -> u64 {
        self.parked + self.retrying.len() as u64
    }
}

/// What an event takes, about.
fn size_of(event: &Event) -> usize {
    EVENT_BYTES + event.text_bytes()
}
