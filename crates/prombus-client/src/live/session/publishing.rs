//! Publishes of a session: single events, and streams of them that are sent as they gather.

use super::{Request, Session, frames};
use crate::HubError;
use crate::live::command::{Appended, Entry, Producer};
use crate::live::failure::Failure;
use crate::live::later::later;
use prombus_wire::{ErrorCode, HubFrame, PublishedFrame};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
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

/// A publish that is not answered.
pub(super) struct Publish {
    topic: Arc<str>,
    entries: Vec<Entry>,
    /// Whether the user wants all or none.
    atomic: bool,
    /// The stream that waits for it.
    stream: Option<u64>,
}

impl Publish {
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

/// A publish whose frame the hub does not take.
pub(super) struct TooLarge {
    pub number: u64,
    /// The length of its frame.
    pub bytes: usize,
    pub error: HubError,
}

/// A stream of events.
pub(super) struct Stream {
    producer: Arc<Producer>,
    queue: VecDeque<Entry>,
    /// How many bytes the events of the queue have.
    bytes: usize,
    /// When the oldest event of the queue came.
    since: Instant,
    /// A frame of several events is under way, and the next must not be sent before it is answered: were it refused,
    /// its events would be sent again, and come after later ones.
    waiting: bool,
}

impl Stream {
    /// When what has gathered is sent even if it is not much.
    pub fn deadline(&self) -> Option<Instant> {
        (!self.waiting && !self.queue.is_empty()).then(|| later(self.since, self.producer.linger))
    }

    /// Whether a frame is to be sent now; one that would have more bytes than these is full.
    fn is_due(&self, now: Instant, batch_bytes: usize) -> bool {
        let Producer { linger, batch, flushing, .. } = &*self.producer;
        let full = self.queue.len() >= *batch || self.bytes >= batch_bytes;
        // The session itself holds one: where that is the only one, no more events will come.
        let hurry = || flushing.load(Ordering::SeqCst) > 0 || Arc::strong_count(&self.producer) == 1;
        !self.waiting && (linger.is_zero() || full || later(self.since, *linger) <= now || hurry())
    }

    /// The events of the next frame.
    fn take(&mut self, batch_bytes: usize) -> Vec<Entry> {
        let mut bytes = 0;
        let fitting = self.queue.iter().take(self.producer.batch).take_while(|entry| {
            let fits = bytes == 0 || bytes + entry.bytes() <= batch_bytes;
            bytes += entry.bytes();
            fits
        });
        let count = fitting.count().max(1).min(self.queue.len());
        let entries: Vec<Entry> = self.queue.drain(..count).collect();
        self.bytes -= entries.iter().map(Entry::bytes).sum::<usize>();
        entries
    }

    pub fn fail(self, why: &Failure) {
        self.queue.into_iter().for_each(|entry| drop(entry.answer(Err(why.clone()))));
    }
}

impl Session {
    pub(super) fn publish(&mut self, topic: Arc<str>, entries: Vec<Entry>, atomic: bool, now: Instant) {
        self.send(Publish { topic, entries, atomic, stream: None }, now);
    }

    fn send(&mut self, publish: Publish, now: Instant) {
        let number = self.requests.add(Request::Publish(publish), now);
        // The frame is written only where there is a line, and again for every line.
        if self.connected
            && let Some(Request::Publish(publish)) = self.requests.get(number)
        {
            self.outbox.push_back((number, publish.frame(number)));
        }
    }

    pub(super) fn stream(&mut self, producer: Arc<Producer>, entry: Entry, now: Instant) {
        let number = producer.number;
        let stream = self.streams.entry(number).or_insert_with(|| Stream {
            producer,
            queue: VecDeque::new(),
            bytes: 0,
            since: now,
            waiting: false,
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
                && (stream.is_due(now, self.batch_bytes) || hurry && !stream.waiting)
            {
                let entries = stream.take(self.batch_bytes);
                stream.since = now;
                let ordered = stream.producer.ordered && entries.len() > 1;
                stream.waiting = ordered;
                self.queued -= entries.len();
                let topic = stream.producer.topic.clone();
                let stream = ordered.then_some(*number);
                self.send(Publish { topic, entries, atomic: false, stream }, now);
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

    pub(super) fn published(&mut self, publish: Publish, frame: &HubFrame<'_>) {
        self.go_on(publish.stream);
        let durability = match frame.durability.as_deref() {
            None | Some("sync") => Cow::Borrowed("sync"),
            Some("interval") => Cow::Borrowed("interval"),
            Some(other) => Cow::Owned(other.to_owned()),
        };
        let odd =
            || Failure::from(HubError::of_code(ErrorCode::Internal, "the answer does not say where it is"));
        match &frame.events {
            Some(events) => {
                let mut places = events.iter().map(|event| appended(event, durability.clone()));
                for entry in publish.entries {
                    self.freed.extend(entry.answer(places.next().flatten().ok_or_else(odd)));
                }
            }
            None => {
                let place = single(frame).and_then(|event| appended(&event, durability));
                for entry in publish.entries {
                    self.freed.extend(entry.answer(place.clone().ok_or_else(odd)));
                }
            }
        }
    }

    /// Where one event of several is to blame, they are sent one by one, so that only that one fails.
    pub(super) fn publish_refused(&mut self, publish: Publish, error: HubError, now: Instant) {
        let stream = publish.stream;
        let of_one = ErrorCode::parse(&error.code).is_some_and(|code| OF_ONE_EVENT.contains(&code));
        if of_one && publish.is_divisible() {
            for entry in publish.entries {
                let topic = publish.topic.clone();
                self.send(Publish { topic, entries: vec![entry], atomic: false, stream: None }, now);
            }
        } else {
            publish.fail(&error.into());
        }
        self.go_on(stream);
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
            self.go_on(publish.stream);
            for entry in publish.entries {
                let topic = publish.topic.clone();
                let single = Publish { topic, entries: vec![entry], atomic: false, stream: None };
                self.requests.add(Request::Publish(single), now);
            }
        }
    }

    pub(super) fn sweep_streams(&mut self) {
        // The session itself holds one.
        self.streams.retain(|_, stream| !stream.queue.is_empty() || Arc::strong_count(&stream.producer) > 1);
    }
}

fn single<'a>(frame: &'a HubFrame<'_>) -> Option<PublishedFrame<'a>> {
    let id = prombus_wire::Text(Cow::Borrowed(frame.id.as_deref()?));
    Some(PublishedFrame {
        id,
        partition: frame.partition?,
        offset: frame.offset?,
        ts: frame.ts?,
        duplicate: frame.duplicate?,
    })
}

fn appended(event: &PublishedFrame<'_>, durability: Cow<'static, str>) -> Option<Appended> {
    Some(Appended {
        id: event.id.parse().ok()?,
        partition: event.partition,
        offset: event.offset,
        ts: event.ts,
        duplicate: event.duplicate,
        durability,
    })
}
