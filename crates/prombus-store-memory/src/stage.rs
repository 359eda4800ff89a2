//! A commit that was checked and not yet applied: the state as it would be, laid over the state as it is.

use crate::collections::Staged;
use crate::state::{At, State, Topic};
use bytestring::ByteString;
use prombus_core::collection::Written;
use prombus_core::{
    Append, Appended, Commit, CommitError, CommitLimits, ConfigChange, Cursor, CursorKey, CursorMove,
    Durability, Event, NewEvent, Offset, Partition, Placement, Receipt, ResultBytes, Sequence, TopicConfig,
    TopicName, TopicNumber, TopicState,
};
use std::collections::{BTreeMap, HashMap};
use uuid::Uuid;

pub struct Stage {
    /// What the clock says, which may be less than what was recorded.
    now_ms: u64,
    pub topics: BTreeMap<TopicName, Option<TopicState>>,
    pub trims: Vec<Trim>,
    pub events: Vec<Event>,
    pub collections: Staged,
    pub cursors: BTreeMap<CursorKey, Option<Cursor>>,
    pub next_topic: u32,
    /// How many topics there are with those of the commit.
    topic_count: usize,
    pub receipt: Receipt,
    ids: HashMap<(TopicNumber, Uuid), usize>,
    keys: HashMap<(TopicNumber, ByteString), usize>,
    ends: HashMap<(TopicNumber, Partition), Offset>,
}

/// Events of one incarnation of a topic that are given up.
pub struct Trim {
    pub name: TopicName,
    pub topic: TopicNumber,
    pub partition: Partition,
    pub before: Offset,
}

impl Stage {
    pub fn of(state: &mut State, commit: &Commit, now_ms: u64) -> Result<Self, CommitError> {
        let receipt = Receipt {
            events: Vec::with_capacity(commit.events.len()),
            versions: Vec::new(),
            durability: Durability::Sync,
            sequence: Sequence(0),
        };
        let mut stage = Self {
            now_ms,
            topics: BTreeMap::new(),
            trims: Vec::new(),
            events: Vec::new(),
            collections: Staged::new(&state.collections),
            cursors: BTreeMap::new(),
            next_topic: state.next_topic,
            topic_count: state.topics.len(),
            receipt,
            ids: HashMap::new(),
            keys: HashMap::new(),
            ends: HashMap::new(),
        };
        let mut durability = commit.least_durability();
        for change in &commit.config {
            stage.configure(state, change.clone(), commit.limits)?;
        }
        let mut bytes = ResultBytes::new(state.result_bytes);
        for append in &commit.events {
            bytes.count(append.event.size())?;
            durability = durability.max(stage.append(state, append.clone(), commit)?);
        }
        // What is made of topics is always flushed.
        if stage.next_topic > state.next_topic {
            durability = Durability::Sync;
        }
        for index in 0..commit.documents.len() {
            let written = Written { commit, index, receipt: &stage.receipt };
            let version = stage.collections.write(&state.collections, written, &mut bytes)?;
            stage.receipt.versions.push(version);
        }
        let told = stage.collections.settle(&state.collections, commit);
        stage.tell(state, told, commit)?;
        // What changefeeds tell is nobody's answer.
        stage.receipt.events.truncate(commit.events.len());
        // A group must be able to go on and to be deleted, however much it has to write.
        let is_cursors_alone = commit.events.is_empty() && commit.documents.is_empty();
        for cursor in &commit.cursors {
            if !is_cursors_alone {
                bytes.count(cursor.size())?;
            }
            durability = durability.max(stage.move_cursor(state, cursor.clone())?);
        }
        let at_most = || {
            let staged = stage.topics.values().flatten();
            let topics = state.topics.values().map(|topic| &topic.state).chain(staged);
            let widest = topics.map(|topic| topic.config.partitions as usize).max().unwrap_or(0);
            widest.saturating_mul(state.cursors.len() + stage.cursors.len())
        };
        let partitions_of =
            |name: &TopicName| stage.topic(state, name).map_or(0, |topic| topic.config.partitions);
        commit.limits.check_readers(at_most, || stage.cursors_after(state), partitions_of)?;
        stage.receipt.durability = durability;
        Ok(stage)
    }

    /// The cursors that there are with those of the commit.
    fn cursors_after<'a>(&'a self, state: &'a State) -> impl Iterator<Item = &'a CursorKey> {
        let number = |name: &TopicName| state.topics.get(name).map(|topic| topic.state.number);
        // A topic that this commit deletes or replaces takes its cursors with it.
        let goes = move |key: &CursorKey| {
            let staged = self.topics.get(&key.topic);
            staged.is_some_and(|topic| topic.as_ref().map(|topic| topic.number) != number(&key.topic))
        };
        let stay = state.cursors.keys().filter(move |key| !goes(key) && !self.cursors.contains_key(*key));
        stay.chain(self.cursors.iter().filter(|(_, cursor)| cursor.is_some()).map(|(key, _)| key))
    }

    fn topic(&self, state: &State, name: &TopicName) -> Option<TopicState> {
        match self.topics.get(name) {
            Some(staged) => staged.clone(),
            None => state.topics.get(name).map(|topic| topic.state.clone()),
        }
    }

    /// Where the partitions of a topic end. Events are staged after all changes of topics.
    fn ends(&self, state: &State, topic: &TopicState) -> Vec<Offset> {
        let log = state.topics.get(&topic.name).filter(|old| old.state.number == topic.number);
        let end = |partition: u32| log.and_then(|log| log.logs.get(partition as usize));
        (0..topic.config.partitions).map(|p| end(p).map_or(Offset(0), |log| log.next())).collect()
    }

    fn configure(
        &mut self,
        state: &State,
        change: ConfigChange,
        limits: CommitLimits,
    ) -> Result<(), CommitError> {
        match change {
            ConfigChange::CreateTopic { name, config } => {
                if self.topic(state, &name).is_some() {
                    return Err(CommitError::TopicExists(name));
                }
                self.create(name, config, limits)?;
            }
            ConfigChange::AlterTopic { name, expect_revision, config } => {
                let Some(mut topic) = self.topic(state, &name) else {
                    return Err(CommitError::TopicNotFound(name));
                };
                if topic.revision != expect_revision {
                    return Err(CommitError::TopicChanged(name));
                }
                let (now, asked) = (topic.config.partitions, config.partitions);
                if asked < now {
                    return Err(CommitError::PartitionsShrink { topic: name, now, asked });
                }
                if asked > now {
                    topic.growths.push(self.ends(state, &topic));
                }
                topic.revision += 1;
                topic.config = config;
                self.topics.insert(name, Some(topic));
            }
            ConfigChange::DeleteTopic { name } => {
                if self.topic(state, &name).is_none() {
                    return Err(CommitError::TopicNotFound(name));
                }
                self.topics.insert(name, None);
                self.topic_count -= 1;
            }
            ConfigChange::Trim { topic: name, partition, before } => {
                let Some(topic) = self.topic(state, &name) else {
                    return Err(CommitError::TopicNotFound(name));
                };
                let old = state.topics.get(&name).filter(|old| old.state.number == topic.number);
                // Only what was there before this commit can be trimmed by it.
                if let Some(log) = old.and_then(|old| old.logs.get(partition.0 as usize)) {
                    let before = before.min(log.next());
                    self.trims.push(Trim { name, topic: topic.number, partition, before });
                }
            }
            change => self.collections.configure(&state.collections, change, limits)?,
        }
        Ok(())
    }

    /// Makes a topic that does not exist.
    fn create(
        &mut self,
        name: TopicName,
        config: TopicConfig,
        limits: CommitLimits,
    ) -> Result<TopicState, CommitError> {
        limits.check_new_topic(&name, self.topic_count)?;
        let topic = TopicState::new(name.clone(), TopicNumber(self.next_topic), config);
        self.topics.insert(name, Some(topic.clone()));
        self.next_topic += 1;
        self.topic_count += 1;
        Ok(topic)
    }

    fn append(
        &mut self,
        state: &mut State,
        append: Append,
        commit: &Commit,
    ) -> Result<Durability, CommitError> {
        let index = self.receipt.events.len();
        let topic = match self.topic(state, &append.topic) {
            Some(topic) => topic,
            None => self.create(append.topic.clone(), commit.new_topic(&append.topic)?, commit.limits)?,
        };
        let partition = state.placer.place(index, &append, topic.config.partitions)?;
        let Append { topic: name, placement: _, expect, event: new } = append;
        let old = state.topics.get(&name).filter(|old| old.state.number == topic.number);
        if let Some(id) = new.id {
            let horizon = state.last_recorded_ts.saturating_sub(topic.config.dedupe_window_ms);
            let first = match self.ids.get(&(topic.number, id)) {
                Some(staged) => Some(&self.events[*staged]),
                None => {
                    old.and_then(|old| old.ids.get(&id)?.last()).filter(|first| first.recorded_ts >= horizon)
                }
            };
            if let Some(first) = first {
                if !first.is_repeated_by(&new) {
                    return Err(CommitError::IdConflict { index, id });
                }
                self.receipt.events.push(appended(first, true));
                return Ok(topic.config.durability);
            }
        }
        if let Some(expect) = expect {
            let key = new.key.clone().unwrap_or_default();
            let actual = match self.keys.get(&(topic.number, key.clone())) {
                Some(staged) => Some(self.events[*staged].id),
                None => old.and_then(|old| self.latest(old, &key)).map(|event| event.id),
            };
            if actual != expect.last_id {
                return Err(CommitError::ExpectationFailed { index, actual });
            }
        }
        let written =
            old.and_then(|old| old.logs.get(partition.0 as usize)).map_or(Offset(0), |log| log.next());
        let next = self.ends.entry((topic.number, partition)).or_insert(written);
        let offset = *next;
        *next = offset.plus(1);
        let recorded_ts = state.last_recorded_ts;
        let event = Event {
            id: new.id.unwrap_or_else(|| state.ids.next(recorded_ts)),
            ts: new.ts.unwrap_or(self.now_ms),
            recorded_ts,
            topic: name,
            key: new.key,
            partition,
            offset,
            sid: new.sid,
            headers: new.headers,
            payload: new.payload,
            caused_by: new.caused_by,
            tags: new.tags,
        }
        .detached();
        self.ids.insert((topic.number, event.id), self.events.len());
        if let Some(key) = &event.key {
            self.keys.insert((topic.number, key.clone()), self.events.len());
        }
        self.receipt.events.push(appended(&event, false));
        self.events.push(event);
        Ok(topic.config.durability)
    }

    /// The latest event of a key among what the trims of this commit leave.
    fn latest<'a>(&self, old: &'a Topic, key: &str) -> Option<&'a Event> {
        let is_left = |(partition, offset): &&At| {
            !self.trims.iter().any(|trim| {
                trim.topic == old.state.number && trim.partition == *partition && *offset < trim.before
            })
        };
        old.keys.get(key)?.iter().rev().filter(is_left).find_map(|at| old.at(*at))
    }

    /// Publishes changes of documents.
    fn tell(
        &mut self,
        state: &mut State,
        told: Vec<(TopicName, NewEvent)>,
        commit: &Commit,
    ) -> Result<(), CommitError> {
        commit.check_told(&told, |name| self.topic(state, name).is_some())?;
        for (topic, event) in told {
            let append = Append { topic, placement: Placement::Auto, expect: None, event };
            self.append(state, append, commit)?;
        }
        Ok(())
    }

    fn move_cursor(&mut self, state: &State, change: CursorMove) -> Result<Durability, CommitError> {
        let CursorMove { key, incarnation, expect_version, epoch, to } = change;
        let Some(topic) = self.topic(state, &key.topic) else {
            return Err(CommitError::TopicNotFound(key.topic));
        };
        if incarnation.is_some_and(|read| read != topic.number) {
            return Err(CommitError::TopicReplaced(key.topic));
        }
        let old = match self.cursors.get(&key) {
            Some(staged) => staged.as_ref(),
            // A topic that this commit has replaced took its cursors with it.
            None if state.topics.get(&key.topic).is_none_or(|old| old.state.number != topic.number) => None,
            None => state.cursors.get(&key),
        };
        let actual = old.map_or(0, |old| old.version);
        if actual != expect_version || old.is_some_and(|old| old.epoch > epoch) {
            return Err(CommitError::CursorMoved { reader: key.reader, actual });
        }
        let new = to.map(|to| Cursor { version: actual + 1, epoch, next: to.next, detail: to.detail });
        self.cursors.insert(key, new);
        Ok(topic.config.durability)
    }
}

fn appended(event: &Event, duplicate: bool) -> Appended {
    Appended { id: event.id, partition: event.partition, offset: event.offset, ts: event.ts, duplicate }
}
