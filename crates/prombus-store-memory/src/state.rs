//! What the memory store holds, and how a staged commit becomes part of it.

use crate::collections::Collections;
use crate::stage::{Changes, GivenUp, Stage, Which};
use bytestring::ByteString;
use prombus_core::commit::DEFAULT_RESULT_BYTES;
use prombus_core::staging;
use prombus_core::{
    Bounds, ChangedSet, Commit, CommitError, Cursor, CursorKey, Event, IdMaker, Kept, KnownEvent, Loss,
    Offset, Partition, Placer, Receipt, Sequence, TopicName, TopicRef, TopicState,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use uuid::Uuid;

/// Where an event is within its topic.
pub type At = (Partition, Offset);

/// One partition.
#[derive(Debug)]
pub struct Log {
    pub bounds: Bounds,
    pub events: BTreeMap<Offset, Event>,
    bytes: u64,
    horizon_ts: u64,
    has_holes: bool,
}

impl Default for Log {
    fn default() -> Self {
        let bounds = Bounds { first: Offset(0), next: Offset(0) };
        Self { bounds, events: BTreeMap::new(), bytes: 0, horizon_ts: 0, has_holes: false }
    }
}

impl Log {
    pub fn from(&self, offset: Offset) -> impl Iterator<Item = &Event> {
        self.events.range(offset..).map(|(_, event)| event)
    }

    pub fn kept(&self) -> Kept {
        let Self { bounds, bytes, horizon_ts, has_holes, .. } = *self;
        Kept { bounds, bytes, horizon_ts, has_holes }
    }

    /// What is kept of it, by somebody else's word.
    pub fn set_kept(&mut self, kept: Kept) {
        let Kept { bounds, bytes, horizon_ts, has_holes } = kept;
        (self.bounds, self.bytes, self.horizon_ts, self.has_holes) = (bounds, bytes, horizon_ts, has_holes);
    }

    fn push(&mut self, event: Event) {
        self.bounds.next = event.offset.plus(1);
        self.bytes += event.size() as u64;
        self.events.insert(event.offset, event);
    }

    fn give_up(&mut self, which: Which, loss: Loss) {
        match which {
            Which::Below(first) => {
                self.events = self.events.split_off(&first);
                self.bounds.first = first;
            }
            Which::Single(offsets) => {
                offsets.iter().for_each(|offset| drop(self.events.remove(&offset)));
                self.has_holes |= loss.horizon_ts.is_some();
            }
        }
        self.bytes = self.bytes.saturating_sub(loss.bytes);
        self.horizon_ts = self.horizon_ts.max(loss.horizon_ts.unwrap_or(0));
    }
}

#[derive(Debug)]
pub struct Topic {
    pub state: Arc<TopicState>,
    pub logs: Vec<Log>,
    /// A duplicate is recognised also after its first was given up; several of one id where it came again after its
    /// window.
    pub ids: HashMap<Uuid, Vec<KnownEvent>>,
    pub keys: HashMap<ByteString, Vec<At>>,
}

impl Topic {
    fn new(state: Arc<TopicState>) -> Self {
        let mut topic = Self { state, logs: Vec::new(), ids: HashMap::new(), keys: HashMap::new() };
        topic.grow();
        topic
    }

    fn grow(&mut self) {
        self.logs.resize_with(self.state.config.partitions as usize, Log::default);
    }

    /// The event there, unless it was given up.
    pub fn at(&self, (partition, offset): At) -> Option<&Event> {
        self.logs[partition.0 as usize].events.get(&offset)
    }

    pub fn latest(&self, key: &str) -> Option<&Event> {
        self.keys.get(key)?.iter().rev().find_map(|at| self.at(*at))
    }

    /// Of a key, only what is kept is known from now on.
    fn forget(&mut self, key: &str) {
        let Some(mut places) = self.keys.remove(key) else { return };
        places.retain(|at| self.at(*at).is_some());
        if !places.is_empty() {
            self.keys.insert(key.into(), places);
        }
    }

    /// Puts an event at the end of its partition.
    pub fn push(&mut self, event: Event) {
        let at = (event.partition, event.offset);
        self.ids.entry(event.id).or_default().push(KnownEvent::of(&event));
        if let Some(key) = &event.key {
            self.keys.entry(key.clone()).or_default().push(at);
        }
        self.logs[event.partition.0 as usize].push(event);
    }
}

#[derive(Debug)]
pub struct State {
    pub topics: BTreeMap<TopicName, Topic>,
    pub collections: Collections,
    pub cursors: BTreeMap<CursorKey, Cursor>,
    pub ids: IdMaker,
    pub placer: Placer,
    pub next_topic: u32,
    pub last_recorded_ts: u64,
    pub sequence: u64,
    pub closed: bool,
    /// What a commit may make.
    pub result_bytes: usize,
}

impl State {
    pub fn new(ids: IdMaker) -> Self {
        Self {
            topics: BTreeMap::new(),
            collections: Collections::default(),
            cursors: BTreeMap::new(),
            ids,
            placer: Placer::default(),
            next_topic: 0,
            last_recorded_ts: 0,
            sequence: 0,
            closed: false,
            result_bytes: DEFAULT_RESULT_BYTES,
        }
    }

    pub fn commit(&mut self, commit: &Commit, now_ms: u64) -> Result<(Receipt, ChangedSet), CommitError> {
        // Recorded time never runs backwards, whatever the clock does.
        self.last_recorded_ts = self.last_recorded_ts.max(now_ms);
        let result_bytes = self.result_bytes;
        let mut stage = Stage::new(self, now_ms);
        let receipt = staging::stage(&mut stage, commit, result_bytes)?;
        let changes = stage.into_changes();
        let changed_set = self.apply(changes);
        Ok((Receipt { sequence: Sequence(self.sequence), ..receipt }, changed_set))
    }

    fn apply(&mut self, changes: Changes) -> ChangedSet {
        let mut changed_set = ChangedSet::default();
        self.next_topic = changes.next_topic;
        for (name, change) in changes.topics {
            changed_set.changed(&name);
            match change {
                None => self.remove_topic(&name),
                Some(state) => self.put_topic(state),
            }
        }
        for GivenUp { topic: TopicRef { name, incarnation }, partition, which, loss } in changes.given_up {
            let topic = self.topics.get_mut(&name).filter(|topic| Some(topic.state.number) == incarnation);
            if let Some(log) = topic.and_then(|topic| topic.logs.get_mut(partition.0 as usize)) {
                log.give_up(which, loss);
                changed_set.changed(&name);
            }
        }
        for (TopicRef { name, incarnation }, key) in changes.forgotten {
            let topic = self.topics.get_mut(&name).filter(|topic| Some(topic.state.number) == incarnation);
            if let Some(topic) = topic {
                topic.forget(&key);
            }
        }
        for event in changes.events {
            changed_set.appended_to(&event.topic);
            if let Some(topic) = self.topics.get_mut(&event.topic) {
                topic.push(event);
            }
        }
        self.collections.apply(changes.collections);
        for (key, cursor) in changes.cursors {
            match cursor {
                Some(cursor) => self.cursors.insert(key, cursor),
                None => self.cursors.remove(&key),
            };
        }
        self.sequence += 1;
        changed_set
    }

    /// Makes a topic, or changes its settings.
    pub fn put_topic(&mut self, state: Arc<TopicState>) {
        match self.topics.get_mut(&state.name) {
            Some(topic) if topic.state.number == state.number => {
                topic.state = state;
                topic.grow();
            }
            _ => {
                self.remove_topic(&state.name);
                self.topics.insert(state.name.clone(), Topic::new(state));
            }
        }
    }

    fn remove_topic(&mut self, name: &TopicName) {
        self.topics.remove(name);
        self.cursors.retain(|key, _| key.topic != *name);
    }
}
