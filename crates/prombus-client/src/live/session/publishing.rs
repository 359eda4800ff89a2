//! Publishes of a session: single events, and streams of events that are sent in batches.

use super::{Delayed, Request, RetryState, Session, frames};
use crate::live::command::{Entry, Producer};
use crate::live::failure::Failure;
use crate::live::later::later;
use crate::{HubError, Published};
use prombus_wire::{ErrorCode, HubFrame};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::Utf8Bytes;

/// A frame takes no more events once it has so many bytes, unless the hub takes less. Far below what a hub takes in one commit.
pub(super) const MAX_BATCH_BYTES: usize = 1 << 20;

/// Refusals that are about one event, so that the others of its frame may still be taken.
const OF_ONE_EVENT: [ErrorCode; 6] = [
    ErrorCode::BadJson,
    ErrorCode::BadRequest,
    ErrorCode::TooLarge,
    ErrorCode::SchemaViolation,
    ErrorCode::IdConflict,
    ErrorCode::ExpectationFailed,
];

/// An unanswered publish.
pub(super) struct Publish {
    topic: Arc<str>,
    entries: Vec<Entry>,
    /// Whether the user wants all or none.
    atomic: bool,
    /// The stream that waits for it.
    stream: Option<u64>,
    patience: RetryState,
}

impl Publish {
    /// An event that nothing waits for.
    fn single(topic: Arc<str>, entry: Entry) -> Self {
        Self { topic, entries: vec![entry], atomic: false, stream: None, patience: RetryState::default() }
    }

    pub fn frame(&self, number: u64) -> Utf8Bytes {
        match &self.entries[..] {
            [one] if !self.atomic => frames::publish(number, &self.topic, &one.event),
            many => frames::publish_many(number, &self.topic, many.iter().map(|entry| &entry.event)),
        }
    }

    /// Whether its events may as well be sent one by one.
    fn is_divisible(&self) -> bool {
        !self.atomic && self.entries.len() > 1
    }

    pub fn fail(self, why: &Failure) {
        self.entries.into_iter().for_each(|entry| drop(entry.answer(Err(why.clone()))));
    }
}

/// A publish whose frame is too large for the hub.
pub(super) struct TooLarge {
    pub number: u64,
    /// The length of its frame.
    pub bytes: usize,
    pub error: HubError,
}

/// A temporary refusal.
struct Refusal<'a> {
    error: &'a HubError,
    /// How long it may be retried.
    limit: Option<Duration>,
    now: Instant,
}

/// A stream of events.
pub(super) struct Stream {
    producer: Arc<Producer>,
    queue: VecDeque<Entry>,
    /// How many bytes the events of the queue have.
    bytes: usize,
    /// When the oldest event of the queue came.
    since: Instant,
    /// A frame is in flight, and the next must not be sent before it is answered: were it refused, its events would be
    /// sent again, and come after later ones.
    waiting: bool,
    /// How many of the first events of the queue were sent before, and refused.
    again: usize,
    /// Maximum number of events that go in the next frame, where one of those that were refused is to be found.
    limit: usize,
    /// The hub wants no frame before then.
    pause: Option<Instant>,
    patience: RetryState,
}

impl Stream {
    /// When what has gathered is sent even if it is not much.
    pub fn deadline(&self) -> Option<Instant> {
        let due = || self.pause.unwrap_or_else(|| later(self.since, self.producer.linger));
        (!self.waiting && !self.queue.is_empty()).then(due)
    }

    /// Whether the next frame must wait, whatever has gathered.
    fn is_held_back(&self, now: Instant) -> bool {
        self.waiting || self.pause.is_some_and(|until| until > now)
    }

    /// Whether a frame is to be sent now; one that would have more bytes than these is full.
    fn is_due(&self, now: Instant, batch_bytes: usize) -> bool {
        let Producer { linger, batch, flushing, .. } = &*self.producer;
        let full = self.again > 0 || self.queue.len() >= *batch || self.bytes >= batch_bytes;
        // The session itself holds one: where that is the only one, no more events will come.
        let hurry = || flushing.load(Ordering::SeqCst) > 0 || Arc::strong_count(&self.producer) == 1;
        !self.is_held_back(now) && (linger.is_zero() || full || later(self.since, *linger) <= now || hurry())
    }

    /// The events of the next frame.
    fn take(&mut self, batch_bytes: usize) -> Vec<Entry> {
        let mut bytes = 0;
        let fitting = self.queue.iter().take(self.producer.batch.min(self.limit)).take_while(|entry| {
            let fits = bytes == 0 || bytes + entry.bytes() <= batch_bytes;
            bytes += entry.bytes();
            fits
        });
        let count = fitting.count().max(1).min(self.queue.len());
        let entries: Vec<Entry> = self.queue.drain(..count).collect();
        self.bytes -= entries.iter().map(Entry::bytes).sum::<usize>();
        self.again = self.again.saturating_sub(count);
        self.pause = None;
        entries
    }

    /// Takes back what was refused. It goes out before all that is later.
    fn put_back(&mut self, entries: Vec<Entry>) {
        self.again += entries.len();
        self.bytes += entries.iter().map(Entry::bytes).sum::<usize>();
        entries.into_iter().rev().for_each(|entry| self.queue.push_front(entry));
    }

    /// A frame was refused for now. Takes back what is worth another try after a pause, and gives the events that are not:
    /// the hub has refused for as long as it may while they waited. What came later has its own time.
    fn refused(&mut self, entries: Vec<Entry>, refusal: Refusal<'_>) -> Vec<Entry> {
        let Refusal { error, limit, now } = refusal;
        let since = self.patience.since(now);
        let left = |entry: &Entry| {
            let waits = now.duration_since(entry.since.map_or(since, |came| came.max(since)));
            limit.map_or(Duration::MAX, |limit| limit.saturating_sub(waits))
        };
        // They are in the order in which they came.
        let mut given_up = entries;
        let rest = given_up.split_off(given_up.partition_point(|entry| left(entry).is_zero()));
        if let Some(first) = rest.first() {
            let pause = left(first).min(self.patience.pause(error, now));
            self.pause = Some(later(now, pause));
            self.put_back(rest);
        } else if self.queue.is_empty() {
            // What comes next begins again.
            self.patience = RetryState::default();
        }
        given_up
    }

    /// A frame was answered; the next may be larger.
    fn answered(&mut self) {
        self.limit = if self.again == 0 { usize::MAX } else { self.limit.saturating_mul(2) };
        self.patience = RetryState::default();
    }

    pub fn fail(self, why: &Failure) {
        self.queue.into_iter().for_each(|entry| drop(entry.answer(Err(why.clone()))));
    }
}

impl Session {
    pub(super) fn publish(&mut self, topic: Arc<str>, entries: Vec<Entry>, atomic: bool, now: Instant) {
        let patience = RetryState::default();
        self.send(Publish { topic, entries, atomic, stream: None, patience }, now);
    }

    fn send(&mut self, publish: Publish, now: Instant) {
        let number = self.requests.add(Request::Publish(publish), now);
        // The frame is written only while connected, and again for every connection.
        if self.connected
            && let Some(Request::Publish(publish)) = self.requests.get(number)
        {
            self.outbox.push_back((number, publish.frame(number)));
        }
    }

    pub(super) fn stream(&mut self, producer: Arc<Producer>, mut entry: Entry, now: Instant) {
        entry.since = Some(now);
        let number = producer.number;
        let stream = self.streams.entry(number).or_insert_with(|| Stream {
            producer,
            queue: VecDeque::new(),
            bytes: 0,
            since: now,
            waiting: false,
            again: 0,
            limit: usize::MAX,
            pause: None,
            patience: RetryState::default(),
        });
        if stream.queue.is_empty() {
            stream.since = now;
            self.ready.push(number);
        }
        stream.bytes += entry.bytes();
        stream.queue.push_back(entry);
        self.queued += 1;
    }

    pub(super) fn gather_streams(&mut self, now: Instant) {
        let mut ready = std::mem::take(&mut self.ready);
        ready.sort_unstable();
        ready.dedup();
        // Nothing waits to get full where that would keep others out, or nobody comes any more.
        let hurry = self.closing || !self.has_room();
        ready.retain(|number| {
            while let Some(stream) = self.streams.get_mut(number)
                && !stream.queue.is_empty()
                && (stream.is_due(now, self.batch_bytes) || hurry && !stream.is_held_back(now))
            {
                let entries = stream.take(self.batch_bytes);
                stream.since = now;
                let ordered = stream.producer.ordered;
                stream.waiting = ordered;
                self.queued -= entries.len();
                let topic = stream.producer.topic.clone();
                let stream = ordered.then_some(*number);
                let patience = RetryState::default();
                self.send(Publish { topic, entries, atomic: false, stream, patience }, now);
            }
            // A stream that waits for an answer is ready again when that has come.
            self.streams.get(number).is_some_and(|stream| !stream.queue.is_empty() && !stream.waiting)
        });
        self.ready.append(&mut ready);
    }

    /// The stream may send the next frame.
    fn go_on(&mut self, stream: Option<u64>) {
        let Some(number) = stream else { return };
        if let Some(stream) = self.streams.get_mut(&number) {
            stream.waiting = false;
            self.ready.push(number);
        }
    }

    pub(super) fn published(&mut self, publish: Publish, mut frame: HubFrame<'_>) {
        if let Some(stream) = publish.stream.and_then(|number| self.streams.get_mut(&number)) {
            stream.answered();
        }
        self.go_on(publish.stream);
        let durability = match frame.durability.as_deref() {
            None | Some("sync") => Cow::Borrowed("sync"),
            Some("interval") => Cow::Borrowed("interval"),
            Some(other) => Cow::Owned(other.to_owned()),
        };
        let odd = || Failure::from(HubError::of_code(ErrorCode::Internal, "the answer has no position"));
        let several = frame.events.take();
        let mut events = several.unwrap_or_else(|| Vec::from_iter(single(&frame))).into_iter();
        for entry in publish.entries {
            let published = events.next().map(|event| Published {
                topic: publish.topic.clone(),
                durability: durability.clone(),
                ..event
            });
            self.freed.extend(entry.answer(published.ok_or_else(odd)));
        }
    }

    /// What passes is waited for. Where one event of several is to blame, they are sent in smaller frames, so that only
    /// that one fails.
    pub(super) fn publish_refused(&mut self, publish: Publish, error: HubError, now: Instant) {
        let number = publish.stream;
        let of_one = ErrorCode::parse(&error.code).is_some_and(|code| OF_ONE_EVENT.contains(&code));
        if error.is_retryable() {
            self.publish_later(publish, error, now);
        } else if of_one && publish.is_divisible() {
            let half = publish.entries.len() / 2;
            match self.stream_of(&publish) {
                Some(stream) => {
                    stream.limit = half;
                    self.put_back(publish);
                }
                None => {
                    for entry in publish.entries {
                        self.send(Publish::single(publish.topic.clone(), entry), now);
                    }
                }
            }
        } else {
            if let Some(stream) = self.stream_of(&publish) {
                stream.answered();
            }
            publish.fail(&error.into());
        }
        self.go_on(number);
    }

    /// The stream that waits for a frame, unless its publisher has left.
    fn stream_of(&mut self, publish: &Publish) -> Option<&mut Stream> {
        self.streams.get_mut(&publish.stream?)
    }

    /// Puts the events of a frame back where they came from.
    fn put_back(&mut self, publish: Publish) {
        let count = publish.entries.len();
        if let Some(stream) = publish.stream.and_then(|number| self.streams.get_mut(&number)) {
            stream.put_back(publish.entries);
            self.queued += count;
        }
    }

    /// Sends it again after a pause, unless that has gone on for too long. Its events have ids, so nothing is doubled
    /// where the hub does not know the outcome of the first time.
    fn publish_later(&mut self, mut publish: Publish, error: HubError, now: Instant) {
        let limit = self.options.give_up_after;
        if let Some(stream) = self.stream_of(&publish) {
            let entries = std::mem::take(&mut publish.entries);
            let count = entries.len();
            publish.entries = stream.refused(entries, Refusal { error: &error, limit, now });
            self.queued += count - publish.entries.len();
            return publish.fail(&error.into());
        }
        match publish.patience.refused(&error, now, limit) {
            None => publish.fail(&error.into()),
            Some(at) => self.delayed.push(Delayed { at, request: Request::Publish(publish) }),
        }
    }

    /// The hub takes no frame that large. One event fails; of several, none may be too large by itself, so later frames
    /// have fewer, and those that wait for an answer are sent again one by one.
    pub(super) fn publish_too_large(&mut self, large: TooLarge, now: Instant) {
        if !matches!(self.requests.get(large.number), Some(Request::Publish(one)) if one.is_divisible()) {
            if let Some(Request::Publish(publish)) = self.requests.take(large.number) {
                self.go_on(publish.stream);
                publish.fail(&large.error.into());
            }
            return;
        }
        self.batch_bytes = (large.bytes / 2).max(1);
        let all = self.requests.iter().filter(|(_, request)| matches!(request, Request::Publish(_)));
        let numbers: Vec<u64> = all.map(|(number, _)| number).collect();
        for number in numbers {
            let Some(Request::Publish(publish)) = self.requests.take(number) else { continue };
            if !publish.is_divisible() || publish.frame(number).len() <= self.batch_bytes {
                // Added again all the same, so that all keep their order.
                self.requests.add(Request::Publish(publish), now);
                continue;
            }
            let stream = publish.stream;
            if self.stream_of(&publish).is_some() {
                self.put_back(publish);
            } else {
                for entry in publish.entries {
                    let single = Publish::single(publish.topic.clone(), entry);
                    self.requests.add(Request::Publish(single), now);
                }
            }
            self.go_on(stream);
        }
    }

    pub(super) fn sweep_streams(&mut self) {
        // The session itself holds one.
        self.streams.retain(|_, stream| !stream.queue.is_empty() || Arc::strong_count(&stream.producer) > 1);
    }
}

fn single(frame: &HubFrame<'_>) -> Option<Published> {
    Some(Published {
        id: frame.id.as_deref()?.to_owned(),
        topic: Arc::default(),
        partition: frame.partition?,
        offset: frame.offset?,
        ts: frame.ts?,
        duplicate: frame.duplicate?,
        durability: Cow::Borrowed(""),
    })
}
