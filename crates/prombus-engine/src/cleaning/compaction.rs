//! Of each key, the latest event stays. Those that it has superseded go once they are old enough, and a tombstone that is
//! the last of its key goes when its own time is over. Events without a key stay, and so does what a snapshot topic has yet to
//! record.
//!
//! A pass costs by what has changed since the last one:
//!
//! 1. What has become old enough is read again ([`Position::judged`]): it goes where a later event of its key is there.
//! 2. What is new is read ([`Position::seen`]): each event supersedes the one before it of its key. That one was read just
//!    before, or is looked up, once for each key that has something new.
//! 3. What has become old enough for tombstones to go is read, as far as it is left ([`Position::buried`]).
//!
//! The latest event of each key that was read is remembered, up to a limit; beyond that all are forgotten, and keys that
//! come again are looked up. A first pass looks nothing up while it remembers all.
//!
//! Events of a key go to higher partitions when a topic grows, never to lower ones, so partitions in their order have the
//! events of each key in theirs.
//!
//! [`Position::judged`]: super::positions::Position::judged
//! [`Position::seen`]: super::positions::Position::seen
//! [`Position::buried`]: super::positions::Position::buried

use super::latest_by_key::LatestByKey;
use super::losses::SizedEvent;
use super::pages::Pages;
use super::{CleanError, Pass, snapshots};
use bytestring::ByteString;
use hashbrown::HashMap;
use prombus_core::{Event, HistoryRequest, Offset, Partition};

/// The latest event of a key, as far as it was read.
#[derive(Debug, Clone, Copy)]
struct Latest {
    place: SizedEvent,
    ts: u64,
    is_old: bool,
}

/// Compacts a topic.
pub(super) struct Compaction<'p, 'a> {
    pass: &'p mut Pass<'a>,
    /// What was recorded up to then is old enough to go, once it is superseded; `None` where nothing is.
    cutoff: Option<u64>,
    /// By partition, below which offset the records of a snapshot topic go, if there is one. It would miss what goes before:
    /// keys that have ended would live on there, and it would not know the greatest time of a key.
    recorded: Option<Vec<Offset>>,
    latest: LatestByKey<Latest>,
    /// Whether a key that is not remembered has no earlier event.
    remembers_all: bool,
}

impl<'p, 'a> Compaction<'p, 'a> {
    pub fn new(pass: &'p mut Pass<'a>) -> Self {
        let cutoff = pass.now().checked_sub(pass.topic().config.min_compaction_lag_ms);
        Self { pass, cutoff, recorded: None, latest: LatestByKey::default(), remembers_all: false }
    }

    pub async fn run(mut self) -> Result<(), CleanError> {
        self.recorded = snapshots::recorded(self.pass.log(), self.pass.topic()).await?;
        let mut ends = Vec::new();
        self.remembers_all = true;
        for partition in self.pass.partitions() {
            let bounds = self.pass.kept(partition).await?.bounds;
            self.remembers_all &= self.pass.position(partition).seen <= bounds.first;
            ends.push((partition, bounds.next));
        }
        for (partition, _) in &ends {
            self.judge_again(*partition).await?;
        }
        for (partition, end) in &ends {
            self.look_at_new(*partition, *end).await?;
        }
        // What is left is read from here on.
        self.pass.commit().await?;
        for (partition, _) in &ends {
            self.bury(*partition).await?;
        }
        self.pass.commit().await
    }

    /// Whether it may go once it is superseded, or ends its key for good.
    fn is_old(&self, event: &Event) -> bool {
        let end =
            |recorded: &Vec<Offset>| recorded.get(event.partition.0 as usize).copied().unwrap_or_default();
        self.cutoff.is_some_and(|cutoff| event.recorded_ts <= cutoff)
            && self.recorded.as_ref().map(end).is_none_or(|end| event.offset < end)
    }

    /// Events that were too young when they were read.
    async fn judge_again(&mut self, partition: Partition) -> Result<(), CleanError> {
        let position = self.pass.position(partition);
        let mut pages = Pages::carefully(partition, position.judged..position.seen);
        let mut recent = LatestByKey::default();
        let mut judged = position.seen;
        while let Some(events) = pages.next(self.pass).await? {
            let old = events.iter().take_while(|event| self.is_old(event)).count();
            for event in &events[..old] {
                let Some(key) = &event.key else { continue };
                if let Some(before) = recent.put(key, latest(event, true)) {
                    self.supersede(before, event.ts);
                }
            }
            if let Some(young) = events.get(old) {
                judged = young.offset;
                break;
            }
            if recent.is_full(self.pass.most_keys()) {
                let behind = events.last().map_or(position.judged, |event| event.offset.plus(1));
                self.judge(std::mem::take(&mut recent)).await?;
                self.pass.position_mut(partition).judged = behind;
            }
            self.commit_many().await?;
        }
        self.judge(recent).await?;
        self.pass.position_mut(partition).judged = judged;
        self.commit_many().await
    }

    /// The last events of keys in a range go where there are later ones behind it.
    async fn judge(&mut self, recent: LatestByKey<Latest>) -> Result<(), CleanError> {
        for (key, last) in recent {
            let request = HistoryRequest {
                topic: self.pass.topic_ref(),
                key: key.into(),
                after: Some((last.place.partition, last.place.offset)),
                limit: 1,
                max_bytes: 1,
            };
            self.pass.look_up().await?;
            if let Some(next) = self.pass.log().history(request).await?.first() {
                self.supersede(last, next.ts);
            }
        }
        Ok(())
    }

    /// Events that came since the last pass.
    async fn look_at_new(&mut self, partition: Partition, end: Offset) -> Result<(), CleanError> {
        let position = self.pass.position(partition);
        // Where something was too young already, all that follows is.
        let mut all_old = position.judged >= position.seen;
        let mut pages = Pages::all(partition, position.seen..end);
        while let Some(events) = pages.next(self.pass).await? {
            let mut before = self.before(&events).await?;
            for event in &events {
                let is_old = self.is_old(event);
                all_old &= is_old;
                let position = self.pass.position_mut(partition);
                position.seen = event.offset.plus(1);
                if all_old {
                    position.judged = position.seen;
                }
                self.look_at(event, is_old, &mut before);
            }
            if self.latest.is_full(self.pass.most_keys()) {
                self.latest = LatestByKey::default();
                self.remembers_all = false;
            }
            self.commit_many().await?;
        }
        let position = self.pass.position_mut(partition);
        position.seen = position.seen.max(end);
        if all_old {
            position.judged = position.seen;
        }
        Ok(())
    }

    /// What the first event of each key in a page supersedes, where that is not remembered.
    async fn before(&mut self, page: &[Event]) -> Result<HashMap<ByteString, Latest>, CleanError> {
        let mut before = HashMap::new();
        if self.remembers_all {
            return Ok(before);
        }
        let mut unknown = HashMap::new();
        for event in page {
            let key = event.key.as_ref().filter(|key| self.latest.get(key).is_none());
            if let Some(key) = key {
                unknown.entry(key).or_insert((event.partition, event.offset));
            }
        }
        let mut unknown: Vec<_> = unknown.into_iter().collect();
        while !unknown.is_empty() {
            let found = self.pass.previous_of(&unknown).await?;
            for ((key, _), found) in unknown.drain(..found.len()).zip(found) {
                before.extend(found.map(|event| (key.clone(), latest(&event, self.is_old(&event)))));
            }
        }
        Ok(before)
    }

    /// The event that this one supersedes goes, if it is old enough.
    fn look_at(&mut self, event: &Event, is_old: bool, before: &mut HashMap<ByteString, Latest>) {
        let Some(key) = &event.key else { return };
        match self.latest.put(key, latest(event, is_old)).or_else(|| before.remove(key)) {
            Some(before) if before.is_old => self.supersede(before, event.ts),
            Some(Latest { place, .. }) => {
                // It is judged again when it is old enough, also where it was judged under other settings.
                let judged = &mut self.pass.position_mut(place.partition).judged;
                *judged = place.offset.min(*judged);
            }
            None => {}
        }
    }

    /// Gives up an event whose key has another one next, with this time.
    fn supersede(&mut self, event: Latest, next_ts: u64) {
        // Between the two times, only the first one says what the key was.
        let horizon = if event.ts < next_ts { next_ts } else { 0 };
        self.pass.losses.discard(event.place, Some(horizon));
    }

    /// Tombstones whose time is over, with what they have superseded.
    async fn bury(&mut self, partition: Partition) -> Result<(), CleanError> {
        // What they have superseded must go first, and that may take longer.
        let retention = self.pass.topic().config.tombstone_retention_ms;
        let retention = retention.max(self.pass.topic().config.min_compaction_lag_ms);
        let Some(cutoff) = self.pass.now().checked_sub(retention) else { return Ok(()) };
        let position = self.pass.position(partition);
        let mut pages = Pages::carefully(partition, position.buried..position.judged);
        let mut buried = position.judged.max(position.buried);
        while let Some(events) = pages.next(self.pass).await? {
            let old = events.iter().take_while(|event| event.recorded_ts <= cutoff).count();
            for event in events[..old].iter().filter(|event| event.payload.is_null()) {
                self.bury_one(event).await?;
            }
            if let Some(young) = events.get(old) {
                buried = young.offset;
                break;
            }
            if let Some(last) = events.last() {
                self.pass.position_mut(partition).buried = last.offset.plus(1);
            }
            self.commit_many().await?;
        }
        self.pass.position_mut(partition).buried = buried;
        Ok(())
    }

    async fn bury_one(&mut self, tombstone: &Event) -> Result<(), CleanError> {
        let Some(key) = &tombstone.key else { return Ok(()) };
        self.pass.look_up().await?;
        let last = self.pass.log().latest_by_key(&self.pass.topic_ref(), key).await?;
        if last.is_none_or(|last| last.id != tombstone.id) {
            return Ok(());
        }
        // Nothing was there before it and nothing is there after it: that is what it said, so nobody misses it.
        self.pass.losses.discard(latest(tombstone, true).place, None);
        let mut before = (tombstone.partition, tombstone.offset);
        // There are none, as long as the clocks of hubs agree.
        while let Some(earlier) = self.pass.previous(key, before).await? {
            before = (earlier.partition, earlier.offset);
            self.supersede(latest(&earlier, true), tombstone.ts);
        }
        Ok(())
    }

    async fn commit_many(&mut self) -> Result<(), CleanError> {
        if self.pass.is_commit_due() { self.pass.commit().await } else { Ok(()) }
    }
}

fn latest(event: &Event, is_old: bool) -> Latest {
    let Event { partition, offset, ts, .. } = *event;
    Latest { place: SizedEvent { partition, offset, bytes: event.size() as u64 }, ts, is_old }
}
