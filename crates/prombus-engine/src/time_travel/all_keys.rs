//! The state of every key at a time, as of one visible position, in memory that does not go by how many events there are.
//!
//! A round goes over all events twice: first to find the last one of each key, then to hand those out. Keys that a round has
//! no room for are left for the next one.
//!
//! What is visible when it begins is the position that all of it is about. Where events are given up after that, a key that
//! changes meanwhile could be missing: its last event up to the position may be gone. So each round checks whether single
//! events were given up since, in a partition where that happens. The first round then begins anew; later, when something was
//! handed out already, the rest is refused. So that this is rare, compaction and retention leave the topic alone meanwhile.

use super::TimeTravelError;
use super::key_table::{EventPlace, KeyTable};
use crate::cleaning::Hold;
use crate::topics::kept_of;
use prombus_core::{Event, EventLog, Kept, Offset, Page, Partition, ReadError, ReadRequest, TopicState};
use std::sync::Arc;

/// What the places of keys may take, in bytes: about a million of them.
pub const KEYS_BYTES: usize = 64 << 20;
/// How many events are read at once.
const PAGE_EVENTS: usize = 4_096;
/// How many bytes of them.
const PAGE_BYTES: usize = 256 << 10;
/// How often the ends of all partitions are read in the hope that nothing is committed meanwhile.
const END_TRIES: usize = 1_000;
/// How often the first round begins anew.
const ROUND_TRIES: usize = 3;

/// The states of all keys, page by page.
pub struct AllKeys {
    log: Arc<dyn EventLog>,
    topic: TopicState,
    at: u64,
    /// What was kept of each partition at the position.
    position: Vec<Kept>,
    keys_bytes: usize,
    seed: u64,
    /// Where the keys of the next round begin.
    rest: Option<u64>,
    /// The places of the events that this round hands out, of which so many are done.
    places: Vec<EventPlace>,
    done: usize,
    /// Until the end.
    hold: Option<Hold>,
}

impl AllKeys {
    /// All keys as of what is visible now.
    pub(super) async fn new(
        log: Arc<dyn EventLog>,
        topic: TopicState,
        (at, hold): (u64, Hold),
    ) -> Result<Self, TimeTravelError> {
        let (position, places) = (Vec::new(), Vec::new());
        let (keys_bytes, seed) = (KEYS_BYTES, fastrand::u64(..));
        let (rest, hold) = (Some(0), Some(hold));
        Ok(Self { log, topic, at, position, keys_bytes, seed, rest, places, done: 0, hold })
    }

    /// Lets the places of keys take so many bytes.
    #[must_use]
    pub fn within(mut self, keys_bytes: usize) -> Self {
        self.keys_bytes = keys_bytes;
        self
    }

    /// Does the first round, so that what cannot be answered is known before anything is handed out.
    pub async fn begin(&mut self) -> Result<(), TimeTravelError> {
        for _ in 0..ROUND_TRIES {
            self.position = self.visible().await?;
            self.check()?;
            match self.round(0).await {
                Err(Disturbed::Moved) => continue,
                Err(Disturbed::Failed(error)) => return Err(error),
                Ok(()) => return Ok(()),
            }
        }
        Err(moved())
    }

    /// Some more events, each the last one of its key; `None` at the end. Keys that ended are left out. A page may be empty.
    pub async fn next_page(&mut self) -> Result<Option<Vec<Event>>, TimeTravelError> {
        if self.position.is_empty() {
            self.begin().await?;
        }
        while self.is_round_over() {
            self.next_round().await?;
        }
        if self.done == self.places.len() {
            self.hold = None;
            return Ok(None);
        }
        let place = self.places[self.done];
        let mut events = match self.read(place.partition(), place.offset()).await {
            Ok(page) => page.events,
            Err(ReadError::Gone { .. }) => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        let Some(last) = events.last().map(|last| EventPlace::new(last.partition, last.offset)) else {
            // Nothing is left from there on, so this one is gone.
            self.may_be_gone(place).await?;
            self.done += 1;
            return Ok(Some(events));
        };
        let mut wanted =
            self.places[self.done..].iter().copied().take_while(|place| *place <= last).peekable();
        let mut gone = None;
        let mut is_wanted = |event: &Event| {
            let at = EventPlace::new(event.partition, event.offset);
            while let Some(missing) = wanted.next_if(|place| *place < at) {
                gone = Some(missing);
                self.done += 1;
            }
            let is_it = wanted.next_if_eq(&at).is_some();
            self.done += usize::from(is_it);
            is_it
        };
        events.retain(&mut is_wanted);
        if let Some(gone) = gone {
            self.may_be_gone(gone).await?;
        }
        Ok(Some(events))
    }

    /// Whether everything that was found is handed out, and there is more to look for.
    pub fn is_round_over(&self) -> bool {
        self.done == self.places.len() && self.rest.is_some()
    }

    /// Looks for the next keys, after which pages are handed out again. This takes [`KEYS_BYTES`] until it is done.
    pub async fn next_round(&mut self) -> Result<(), TimeTravelError> {
        let Some(from) = self.rest else { return Ok(()) };
        // What was handed out takes no room beside what is found now.
        (self.places, self.done) = (Vec::new(), 0);
        self.round(from).await.map_err(|disturbed| match disturbed {
            Disturbed::Moved => moved(),
            Disturbed::Failed(error) => error,
        })
    }

    /// What is held until the next round, in bytes.
    pub fn bytes(&self) -> usize {
        self.places.capacity() * size_of::<EventPlace>()
    }

    /// What is kept of all partitions at one moment: what is the same when it is read twice was so in between.
    async fn visible(&self) -> Result<Vec<Kept>, TimeTravelError> {
        let mut before = kept_of(&*self.log, &self.topic).await?;
        for _ in 0..END_TRIES {
            if before.len() == 1 {
                return Ok(before);
            }
            let after = kept_of(&*self.log, &self.topic).await?;
            if before == after {
                return Ok(after);
            }
            before = after;
        }
        let message = "too much is published at the same time to see all partitions at one moment; try again";
        Err(ReadError::Unavailable(message.into()).into())
    }

    /// Refuses a time of which something was given up.
    fn check(&self) -> Result<(), TimeTravelError> {
        refuse_before_horizon(self.at, &self.position)
    }

    /// Finds the last events of the keys from a hash on, as many as there is room for.
    async fn round(&mut self, from: u64) -> Result<(), Disturbed> {
        let mut table = KeyTable::new(from, self.keys_bytes, self.seed);
        for (partition, kept) in (0..).map(Partition).zip(self.position.clone()) {
            self.scan(partition, kept, &mut table).await?;
        }
        self.check_given_up().await?;
        self.rest = table.rest();
        (self.places, self.done) = (table.into_places(), 0);
        Ok(())
    }

    async fn scan(&self, partition: Partition, kept: Kept, table: &mut KeyTable) -> Result<(), Disturbed> {
        let (mut from, end) = (kept.bounds.first, kept.bounds.next);
        while from < end {
            let page = match self.read(partition, from).await {
                Ok(page) => page,
                // Those before are gone, with what they were the last events of.
                Err(ReadError::Gone { first }) => {
                    from = first;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            for event in page.events.iter().filter(|event| event.ts <= self.at && event.offset < end) {
                if let Some(key) = &event.key {
                    let place = EventPlace::new(partition, event.offset);
                    table.put(key, if event.payload.is_null() { EventPlace::NOWHERE } else { place });
                }
            }
            from = page.next;
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    async fn read(&self, partition: Partition, from: Offset) -> Result<Page, ReadError> {
        let topic = self.topic.pinned();
        let request = ReadRequest { topic, partition, from, limit: PAGE_EVENTS, max_bytes: PAGE_BYTES };
        self.log.read(request).await
    }

    /// Whether what was given up since the position may have been the last event of a key up to there.
    async fn check_given_up(&self) -> Result<(), Disturbed> {
        let now = kept_of(&*self.log, &self.topic).await?;
        refuse_before_horizon(self.at, &now)?;
        for (partition, (then, now)) in (0..).map(Partition).zip(self.position.iter().zip(&now)) {
            if !now.has_holes {
                continue;
            }
            if !then.has_holes || then.bounds.first != now.bounds.first {
                return Err(Disturbed::Moved);
            }
            // Nothing was given up if it has grown by just what was added.
            let (mut from, mut bytes) = (then.bounds.next, then.bytes);
            while from < now.bounds.next {
                let page = self.read(partition, from).await?;
                let new = page.events.iter().filter(|event| event.offset < now.bounds.next);
                bytes += new.map(|event| event.size() as u64).sum::<u64>();
                from = page.next;
            }
            if bytes != now.bytes {
                return Err(Disturbed::Moved);
            }
        }
        Ok(())
    }

    /// The event at a place is gone since it was found there. That is all right where the key was forgotten: nobody may have
    /// it any more. What a trim has taken was there at the position, so the rest is refused.
    async fn may_be_gone(&self, place: EventPlace) -> Result<(), TimeTravelError> {
        let now = self.log.kept(&self.topic.pinned(), place.partition()).await?;
        refuse_before_horizon(self.at, &[now])?;
        let is_trimmed = place.offset() < now.bounds.first;
        if is_trimmed || now.has_holes { Err(moved()) } else { Ok(()) }
    }
}

fn refuse_before_horizon(at: u64, kept: &[Kept]) -> Result<(), TimeTravelError> {
    let horizon_ts = kept.iter().map(|kept| kept.horizon_ts).max().unwrap_or(0);
    match at < horizon_ts {
        true => Err(TimeTravelError::Gone { horizon_ts, at }),
        false => Ok(()),
    }
}

fn moved() -> TimeTravelError {
    ReadError::Unavailable("events were given up while they were read; try again".into()).into()
}

/// Why a round did not come to its end.
enum Disturbed {
    /// Something was given up meanwhile: it could begin anew.
    Moved,
    Failed(TimeTravelError),
}

impl<E: Into<TimeTravelError>> From<E> for Disturbed {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}
