//! The rules of a commit that are the same in every store: when a change of a cursor, a topic or a collection is made, when
//! an event is, and what becomes of it. A store says what is there; how it reads that is its own affair.

use crate::collection::{CollectionConfig, CollectionState, Owner};
use crate::commit::{Appended, Commit, CursorMove, CursorTarget, Expect, ResultBytes, TopicFence};
use crate::error::CommitError;
use crate::event::{Event, NewEvent};
use crate::ports::{Bounds, Cursor};
use crate::position::{Offset, Partition};
use crate::topic::{MAX_GROWTHS, TopicConfig, TopicName, TopicState};
use std::sync::Arc;
use uuid::Uuid;

impl CursorMove {
    /// What a cursor in this topic becomes; `None` where it goes. Refused where it is not as the mover knows it.
    pub fn moved(&self, topic: &TopicState, old: Option<&Cursor>) -> Result<Option<Cursor>, CommitError> {
        if self.incarnation.is_some_and(|read| read != topic.number) {
            return Err(CommitError::TopicReplaced(topic.name.clone()));
        }
        // Before its version: whoever comes too late is to learn why.
        if old.is_some_and(|old| old.epoch > self.epoch) {
            return Err(CommitError::EpochOver { reader: self.key.reader.clone(), epoch: self.epoch });
        }
        let actual = old.map_or(0, |old| old.version);
        if actual != self.expect_version {
            return Err(CommitError::CursorMoved { reader: self.key.reader.clone(), actual });
        }
        let (version, epoch) = (actual + 1, self.epoch);
        Ok(self.to.clone().map(|CursorTarget { next, detail }| Cursor { version, epoch, next, detail }))
    }
}

impl TopicFence {
    /// A topic as it is seen now.
    pub fn of(name: &TopicName, now: Option<&TopicState>) -> Self {
        Self { name: name.clone(), state: now.map(|topic| (topic.number, topic.revision)) }
    }

    /// Whether the topic is still what it was: the same one, with nothing changed of it. If there was none, one that was
    /// made since and never changed is as good, so that the first events of a topic do not refuse each other.
    pub fn holds(&self, now: Option<&TopicState>) -> bool {
        match (self.state, now) {
            (None, None) => true,
            (None, Some(now)) => now.revision == TopicState::FIRST_REVISION,
            (Some(_), None) => false,
            (Some(seen), Some(now)) => seen == (now.number, now.revision),
        }
    }

    /// Refuses a commit that was made for something else.
    pub fn check(&self, now: Option<&TopicState>) -> Result<(), CommitError> {
        if self.holds(now) { Ok(()) } else { Err(CommitError::Outdated(self.name.clone())) }
    }
}

impl Bounds {
    /// The first offset that is kept once what is below `before` is given up; `None` if nothing is.
    pub fn trimmed(self, before: Offset) -> Option<Offset> {
        let first = before.clamp(self.first, self.next);
        (first != self.first).then_some(first)
    }
}

impl TopicState {
    /// The topic with other settings, which were made from the revision that is expected. `ends` says where its partitions
    /// end, and is asked only where it gets more.
    pub fn altered(
        &self,
        expect_revision: u64,
        config: TopicConfig,
        ends: impl FnOnce() -> Vec<Offset>,
    ) -> Result<Self, CommitError> {
        if self.revision != expect_revision {
            return Err(CommitError::TopicChanged(self.name.clone()));
        }
        let (now, asked) = (self.config.partitions, config.partitions);
        if asked < now {
            return Err(CommitError::PartitionsShrink { topic: self.name.clone(), now, asked });
        }
        if asked > now && self.growths.len() >= MAX_GROWTHS {
            return Err(CommitError::TooManyGrowths { topic: self.name.clone(), limit: MAX_GROWTHS });
        }
        let grown = (asked > now).then(|| ends().into());
        let growths = self.growths.iter().cloned().chain(grown).collect();
        Ok(Self { revision: self.revision + 1, config, growths, ..self.clone() })
    }
}

/// An event whose id came again, as far as a store remembers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remembered {
    /// Where it is, or was.
    pub first: Appended,
    /// When it was recorded.
    pub recorded_ts: u64,
    /// Whether what came again has the same key and payload.
    pub is_repeated: bool,
}

impl NewEvent {
    /// What tells this publish from another one under the same id: a digest of its key and payload.
    pub fn digest(&self) -> u128 {
        publish_digest(self.key.as_deref().map(str::as_bytes), self.payload.as_bytes())
    }
}

/// What tells one publish from another one under the same id, where the event itself is not kept.
pub fn publish_digest(key: Option<&[u8]>, payload: &[u8]) -> u128 {
    let mut hash = xxhash_rust::xxh3::Xxh3::new();
    hash.update(&[u8::from(key.is_some())]);
    hash.update(&(key.map_or(0, <[u8]>::len) as u64).to_le_bytes());
    hash.update(key.unwrap_or_default());
    hash.update(payload);
    hash.digest128()
}

/// What is kept of an event so that its id is recognised when it comes again, also once the event is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownEvent {
    /// Where it is, or was.
    pub first: Appended,
    /// When it was recorded.
    pub recorded_ts: u64,
    /// See [`publish_digest`].
    pub digest: u128,
}

impl KnownEvent {
    /// What is kept of this event.
    pub fn of(event: &Event) -> Self {
        let Event { id, partition, offset, ts, recorded_ts, .. } = *event;
        let digest = publish_digest(event.key.as_deref().map(str::as_bytes), event.payload.as_bytes());
        Self { first: Appended { id, partition, offset, ts, duplicate: true }, recorded_ts, digest }
    }

    /// Its partition and offset.
    pub fn at(&self) -> (Partition, Offset) {
        (self.first.partition, self.first.offset)
    }

    /// What a publish of `new` is compared with.
    pub fn remembered(self, new: &NewEvent) -> Remembered {
        let Self { first, recorded_ts, digest } = self;
        Remembered { first, recorded_ts, is_repeated: digest == new.digest() }
    }
}

impl Remembered {
    /// What a publish of the `index`th event of a commit is answered where this one has its id. `None` where that is
    /// longer ago than the window of the topic, so that it is an event of its own. Time goes by the clock as it is: by recorded
    /// time, which is held up, a clock that was ahead for a moment would have ended the window of every id for good.
    pub fn answer(
        self,
        index: usize,
        topic: &TopicState,
        now_ms: u64,
    ) -> Result<Option<Appended>, CommitError> {
        if self.recorded_ts < now_ms.saturating_sub(topic.config.dedupe_window_ms) {
            return Ok(None);
        }
        match self.is_repeated {
            true => Ok(Some(self.first)),
            false => Err(CommitError::IdConflict { index, id: self.first.id }),
        }
    }
}

impl Expect {
    /// Refuses the `index`th event of a commit unless the latest event of its key is the one expected.
    pub fn check(self, index: usize, actual: Option<Uuid>) -> Result<(), CommitError> {
        if actual == self.last_id { Ok(()) } else { Err(CommitError::ExpectationFailed { index, actual }) }
    }
}

impl CollectionConfig {
    /// The settings of a collection that comes into being by its first write.
    pub fn owned_by(owner: &Owner) -> Self {
        Self { owner: owner.clone(), ..Self::default() }
    }
}

impl CollectionState {
    /// Refuses settings for the collection `name` that were not made from it as it is.
    pub fn check_revision(now: Option<&Self>, name: &str, expected: u64) -> Result<(), CommitError> {
        match now.map_or(0, |now| now.revision) == expected {
            true => Ok(()),
            false => Err(CommitError::CollectionChanged(name.to_owned())),
        }
    }

    /// The collection `from` under another name; `None` where it has that already.
    pub fn renamed(now: Option<&Self>, from: &str, to: &Arc<str>) -> Result<Option<Self>, CommitError> {
        let state = now.ok_or_else(|| CommitError::CollectionNotFound(from.to_owned()))?;
        Ok((state.name != *to).then(|| Self { name: to.clone(), ..state.clone() }))
    }
}

impl ResultBytes {
    /// Counts the events that a commit brings along, and their copies.
    pub fn count_events(&mut self, commit: &Commit) -> Result<(), CommitError> {
        commit.event_sizes().try_for_each(|size| self.count(size))
    }

    /// Counts the cursors that a commit moves, unless it does nothing else: a group must be able to go on and to be
    /// deleted, however much it has to write.
    pub fn count_cursors(&mut self, commit: &Commit) -> Result<(), CommitError> {
        if commit.events.is_empty() && commit.documents.is_empty() {
            return Ok(());
        }
        commit.cursors.iter().try_for_each(|cursor| self.count(cursor.size()))
    }
}
