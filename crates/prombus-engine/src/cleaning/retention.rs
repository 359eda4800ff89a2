//! What goes because of its age, its size or by hand: the first events of partitions, up to one that stays.
//!
//! Every event that goes is read, to count its bytes and to know its key. Each key costs a look-up for the first event
//! that is left of it, because that says from when on the state of the key can still be told; it is done in chunks, so
//! that no more than a bounded number of keys is held.

use super::losses::SizedEvent;
use super::pages::Pages;
use super::{CleanError, Pass};
use bytestring::ByteString;
use hashbrown::HashMap;
use prombus_core::{Event, HistoryRequest, Offset, Partition};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Of the keys that a pass may remember, one part in so many is held until it is looked up what is left of them.
const KEYS_SHARE: usize = 8;
/// About how many bytes each takes; where they take more, fewer are held.
const KEY_BYTES: usize = 64;
/// How many events of a key are read at once to find the first that stays, which is nearly always the first one.
const LOOK_EVENTS: usize = 4;
/// And so many bytes.
const LOOK_BYTES: usize = 64 << 10;

/// What is known of an event that may go.
#[derive(Debug)]
struct Candidate {
    place: SizedEvent,
    ts: u64,
    recorded_ts: u64,
    key: Option<ByteString>,
}

impl Candidate {
    fn of(event: &Event) -> Self {
        let Event { partition, offset, ts, recorded_ts, .. } = *event;
        let place = SizedEvent { partition, offset, bytes: event.size() as u64 };
        Self { place, ts, recorded_ts, key: event.key.clone() }
    }

    /// With memory of its own, so that it does not keep the page that it was read with.
    fn detached(event: &Event) -> Self {
        Self { key: event.key.as_deref().map(ByteString::from), ..Self::of(event) }
    }
}

/// What goes of a key in a partition.
#[derive(Debug)]
struct OfKey {
    first: Offset,
    last: Offset,
    earliest_ts: u64,
}

/// The keys of events that go.
#[derive(Debug, Default)]
struct Keys {
    map: HashMap<(u32, ByteString), OfKey>,
    bytes: usize,
}

impl Keys {
    fn add(&mut self, candidate: &Candidate) {
        let Some(key) = &candidate.key else { return };
        let SizedEvent { partition, offset, .. } = candidate.place;
        match self.map.get_mut(&(partition.0, key.clone())) {
            Some(known) => {
                known.last = offset;
                known.earliest_ts = known.earliest_ts.min(candidate.ts);
            }
            None => {
                self.bytes += key.len();
                let of_key = OfKey { first: offset, last: offset, earliest_ts: candidate.ts };
                self.map.insert((partition.0, ByteString::from(&**key)), of_key);
            }
        }
    }

    fn are_many(&self, most: usize) -> bool {
        self.map.len() >= most || self.bytes >= most.saturating_mul(KEY_BYTES)
    }
}

/// Gives up the first events of partitions.
pub(super) struct Trimming<'p, 'a> {
    pass: &'p mut Pass<'a>,
    keys: Keys,
}

impl<'p, 'a> Trimming<'p, 'a> {
    pub fn new(pass: &'p mut Pass<'a>) -> Self {
        Self { pass, keys: Keys::default() }
    }

    /// Events that were recorded too long ago go.
    pub async fn by_time(mut self) -> Result<(), CleanError> {
        let retention = self.pass.topic().config.retention_ms;
        let Some(limit) = self.pass.now().checked_sub(retention).filter(|_| retention > 0) else {
            return Ok(());
        };
        for partition in self.pass.partitions() {
            let bounds = self.pass.kept(partition).await?.bounds;
            let mut pages = Pages::carefully(partition, bounds.first..bounds.next);
            let mut stays = bounds.next;
            while let Some(events) = pages.next(self.pass).await? {
                let old = events.iter().take_while(|event| event.recorded_ts < limit);
                let old: Vec<Candidate> = old.map(Candidate::of).collect();
                let young = events.get(old.len()).map(|event| event.offset);
                for candidate in old {
                    self.take(candidate).await?;
                }
                if let Some(young) = young {
                    stays = young;
                    break;
                }
            }
            self.pass.losses.trim_holes(partition, stays);
        }
        self.finish().await
    }

    /// While all partitions together have too much, the oldest events go.
    pub async fn by_bytes(mut self) -> Result<(), CleanError> {
        let most = self.pass.topic().config.retention_bytes;
        if most == 0 {
            return Ok(());
        }
        let (mut kept, mut all) = (0, Vec::new());
        for partition in self.pass.partitions() {
            let now = self.pass.kept(partition).await?;
            kept += now.bytes;
            all.push((partition, now.bounds));
        }
        let mut excess = kept.saturating_sub(most);
        if excess == 0 {
            return Ok(());
        }
        let ranges = all.len();
        let pages = all
            .into_iter()
            .map(|(partition, bounds)| Pages::carefully(partition, bounds.first..bounds.next).one_of(ranges));
        let mut oldest = OldestFirst::new(self.pass, pages.collect()).await?;
        while excess > 0
            && let Some(candidate) = oldest.next(self.pass).await?
        {
            excess = excess.saturating_sub(candidate.place.bytes);
            self.take(candidate).await?;
        }
        for (partition, first) in oldest.stay() {
            self.pass.losses.trim_holes(partition, first);
        }
        self.finish().await
    }

    /// Everything below an offset of a partition goes.
    pub async fn below(mut self, partition: Partition, before: Offset) -> Result<(), CleanError> {
        let first = self.pass.kept(partition).await?.bounds.first;
        if before <= first {
            return Ok(());
        }
        let mut pages = Pages::all(partition, first..before);
        while let Some(events) = pages.next(self.pass).await? {
            for event in &events {
                self.take(Candidate::of(event)).await?;
            }
        }
        self.pass.losses.trim_to(partition, before);
        self.finish().await
    }

    async fn take(&mut self, candidate: Candidate) -> Result<(), CleanError> {
        self.pass.losses.trim(candidate.place);
        self.keys.add(&candidate);
        if self.keys.are_many(self.pass.most_keys() / KEYS_SHARE) {
            self.finish().await?;
        }
        Ok(())
    }

    /// Gives up what was taken.
    async fn finish(&mut self) -> Result<(), CleanError> {
        for ((partition, key), of_key) in std::mem::take(&mut self.keys).map {
            let partition = Partition(partition);
            match self.first_left((partition, of_key.last), &key).await? {
                // Between these times, only what goes says what the key was.
                Some(left) if of_key.earliest_ts < left.ts => {
                    self.pass.losses.raise_trim_horizon(partition, left.ts);
                }
                Some(_) => {}
                None => self.discard_earlier((partition, of_key.first), &key).await?,
            }
        }
        self.pass.commit().await
    }

    /// The first event of a key after `last` that stays.
    async fn first_left(
        &mut self,
        last: (Partition, Offset),
        key: &ByteString,
    ) -> Result<Option<Event>, CleanError> {
        let mut after = last;
        loop {
            let request = HistoryRequest {
                topic: self.pass.topic_ref(),
                key: key.to_string(),
                after: Some(after),
                limit: LOOK_EVENTS,
                max_bytes: LOOK_BYTES,
            };
            self.pass.look_up().await?;
            let later = self.pass.log().history(request).await?;
            let Some(end) = later.last().map(|event| (event.partition, event.offset)) else {
                return Ok(None);
            };
            let stays = |event: &Event| !self.pass.losses.trims(event.partition, event.offset);
            if let Some(left) = later.into_iter().find(stays) {
                return Ok(Some(left));
            }
            after = end;
        }
    }

    /// A topic that has grown may have events of the key in lower partitions, which the ones that go have superseded. They
    /// must not become the latest again. Only who trims a single partition by hand leaves any.
    async fn discard_earlier(
        &mut self,
        first: (Partition, Offset),
        key: &ByteString,
    ) -> Result<(), CleanError> {
        if first.0 == Partition(0) || self.pass.topic().growths.is_empty() {
            return Ok(());
        }
        let mut before = first;
        while let Some(earlier) = self.pass.previous(key, before).await? {
            before = (earlier.partition, earlier.offset);
            if !self.pass.losses.trims(earlier.partition, earlier.offset) {
                // Nothing is left of the key: nobody asks what it was.
                self.pass.losses.discard(Candidate::of(&earlier).place, None);
            }
        }
        Ok(())
    }
}

/// The events of all partitions by when they were recorded. Where that is the same, lower partitions come first, so that
/// the events of a key are in their order.
struct OldestFirst {
    partitions: Vec<(Pages, VecDeque<Candidate>)>,
    heads: BinaryHeap<Reverse<(u64, usize)>>,
}

impl OldestFirst {
    async fn new(pass: &mut Pass<'_>, pages: Vec<Pages>) -> Result<Self, CleanError> {
        let partitions = pages.into_iter().map(|pages| (pages, VecDeque::new())).collect();
        let mut oldest = Self { partitions, heads: BinaryHeap::new() };
        for index in 0..oldest.partitions.len() {
            oldest.look_at(pass, index).await?;
        }
        Ok(oldest)
    }

    /// Takes note of the first event of a partition, if it has one.
    async fn look_at(&mut self, pass: &mut Pass<'_>, index: usize) -> Result<(), CleanError> {
        let (pages, waiting) = &mut self.partitions[index];
        if waiting.is_empty()
            && let Some(events) = pages.next(pass).await?
        {
            waiting.extend(events.iter().map(Candidate::detached));
        }
        self.heads.extend(waiting.front().map(|head| Reverse((head.recorded_ts, index))));
        Ok(())
    }

    async fn next(&mut self, pass: &mut Pass<'_>) -> Result<Option<Candidate>, CleanError> {
        let Some(Reverse((_, index))) = self.heads.pop() else { return Ok(None) };
        let candidate = self.partitions[index].1.pop_front();
        self.look_at(pass, index).await?;
        Ok(candidate)
    }

    /// The first offset of each partition that stays.
    fn stay(&self) -> impl Iterator<Item = (Partition, Offset)> + '_ {
        let first = |(pages, waiting): &(Pages, VecDeque<Candidate>)| {
            waiting.front().map_or(pages.end(), |head| head.place.offset)
        };
        (0..).map(Partition).zip(self.partitions.iter().map(first))
    }
}
