//! A commit that was checked and not yet applied: the state as it would be, laid over the state as it is.

use crate::collections::Staged;
use crate::state::{At, State, Topic};
use bytestring::ByteString;
use prombus_core::collection::Written;
use prombus_core::{
    Append, Appended, Commit, CommitError, CommitLimits, ConfigChange, Cursor, CursorKey, CursorMove,
    Durability, Event, Offset, Partition, Receipt, ResultBytes, Sequence, TopicConfig, TopicName,
    TopicNumber, TopicState,
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
        bytes.count_events(commit)?;
        for append in &commit.events {
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
        for append in commit.telling(told, |name| stage.topic(state, name).is_some())? {
            stage.append(state, append, commit)?;
        }
        // What changefeeds tell is nobody's answer.
        stage.receipt.events.truncate(commit.events.len());
        bytes.count_cursors(commit)?;
        for cursor in &commit.cursors {
            durability = durability.max(stage.move_cursor(state, cursor)?);
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

    fn existing(&self, state: &State, name: &TopicName) -> Result<TopicState, CommitError> {
        self.topic(state, name).ok_or_else(|| CommitError::TopicNotFound(name.clone()))
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
                let topic = self.existing(state, &name)?;
                let altered = topic.altered(expect_revision, config, || self.ends(state, &topic))?;
                self.topics.insert(name, Some(altered));
            }
            ConfigChange::DeleteTopic { name } => {
                self.existing(state, &name)?;
                self.topics.insert(name, None);
                self.topic_count -= 1;
            }
            ConfigChange::Trim { topic: name, partition, before } => {
                let topic = self.existing(state, &name)?;
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
            let first = match self.ids.get(&(topic.number, id)) {
                Some(staged) => Some(&self.events[*staged]),
                None => old.and_then(|old| old.ids.get(&id)?.last()),
            };
            let answer = |first: &Event| first.answer_to((index, &new), &topic, state.last_recorded_ts);
            if let Some(answer) = first.map(answer).transpose()?.flatten() {
                self.receipt.events.push(answer);
                return Ok(topic.config.durability);
            }
        }
        if let Some(expect) = expect {
            let key = new.key.clone().unwrap_or_default();
            let actual = match self.keys.get(&(topic.number, key.clone())) {
                Some(staged) => Some(self.events[*staged].id),
                None => old.and_then(|old| self.latest(old, &key)).map(|event| event.id),
            };
            expect.check(index, actual)?;
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
        let Event { id, partition, offset, ts, .. } = event;
        self.receipt.events.push(Appended { id, partition, offset, ts, duplicate: false });
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

    fn move_cursor(&mut self, state: &State, change: &CursorMove) -> Result<Durability, CommitError> {
        let key = &change.key;
        let topic = self.existing(state, &key.topic)?;
        let old = match self.cursors.get(key) {
            Some(staged) => staged.as_ref(),
            // A topic that this commit has replaced took its cursors with it.
            None if state.topics.get(&key.topic).is_none_or(|old| old.state.number != topic.number) => None,
            None => state.cursors.get(key),
        };
        let new = change.moved(&topic, old)?;
        self.cursors.insert(key.clone(), new);
        Ok(topic.config.durability)
    }
}
