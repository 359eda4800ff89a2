//! A commit that was checked and not yet applied: the state as it would be, laid over the state as it is.

use crate::collections::{self, Over};
use crate::state::{At, State, Topic};
use bytestring::ByteString;
use prombus_core::collection::Drafted;
use prombus_core::staging::{self, AppendOne, Staging};
use prombus_core::{
    Append, Appended, Bounds, CollectionState, Commit, CommitError, CommitLimits, Cursor, CursorKey,
    DocumentWrite, Durability, Event, KnownEvent, Loss, Offset, Offsets, Partition, Placer, Remembered,
    TopicName, TopicNumber, TopicRef, TopicState,
};
use prombus_rows::{DocumentRow, PriorRows};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use uuid::Uuid;

/// What a commit changes.
#[derive(Default)]
pub struct Changes {
    pub topics: BTreeMap<TopicName, Option<Arc<TopicState>>>,
    pub given_up: Vec<GivenUp>,
    pub forgotten: Vec<(TopicRef, ByteString)>,
    pub events: Vec<Event>,
    pub collections: collections::Staged,
    pub cursors: BTreeMap<CursorKey, Option<Cursor>>,
    pub next_topic: u32,
}

/// Events of one incarnation of a topic that are given up.
pub struct GivenUp {
    pub topic: TopicRef,
    pub partition: Partition,
    pub which: Which,
    pub loss: Loss,
}

/// Which events of a partition.
pub enum Which {
    /// Those below an offset, which becomes the first.
    Below(Offset),
    /// Single ones.
    Single(Offsets),
}

impl GivenUp {
    fn has(&self, topic: &Topic, (partition, offset): At) -> bool {
        let is_one = match &self.which {
            Which::Below(first) => offset < *first,
            Which::Single(offsets) => offsets.contains(offset),
        };
        is_one && self.partition == partition && self.topic == topic.state.pinned()
    }
}

pub struct Stage<'a> {
    state: &'a mut State,
    /// What the clock says, which may be less than what was recorded.
    now_ms: u64,
    changes: Changes,
    /// How many topics there are with those of the commit.
    topic_count: usize,
    ids: HashMap<(TopicNumber, Uuid), usize>,
    keys: HashMap<(TopicNumber, ByteString), usize>,
    ends: HashMap<(TopicNumber, Partition), Offset>,
}

impl<'a> Stage<'a> {
    pub fn new(state: &'a mut State, now_ms: u64) -> Self {
        let changes = Changes {
            collections: collections::Staged::new(&state.collections),
            next_topic: state.next_topic,
            ..Changes::default()
        };
        let topic_count = state.topics.len();
        let (ids, keys, ends) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { state, now_ms, changes, topic_count, ids, keys, ends }
    }

    pub fn into_changes(self) -> Changes {
        self.changes
    }

    /// A topic as it was before the commit, unless the commit has replaced it.
    fn before(&self, topic: &TopicState) -> Option<&Topic> {
        self.state.topics.get(&topic.name).filter(|old| old.state.number == topic.number)
    }

    /// The latest event of a key among what this commit leaves.
    fn latest<'t>(&self, old: &'t Topic, key: &str) -> Option<&'t Event> {
        let is_left = |at: &&At| !self.changes.given_up.iter().any(|given_up| given_up.has(old, **at));
        old.keys.get(key)?.iter().rev().filter(is_left).find_map(|at| old.at(*at))
    }
}

impl Staging for Stage<'_> {
    type Row = DocumentRow;
    type AppendState<'b> = Vec<Appended>;
    type PriorDocuments<'b>
        = PriorRows<Over<'b>>
    where
        Self: 'b;

    fn topic(&self, name: &TopicName) -> Option<&Arc<TopicState>> {
        match self.changes.topics.get(name) {
            Some(staged) => staged.as_ref(),
            None => self.state.topics.get(name).map(|topic| &topic.state),
        }
    }

    fn topic_count(&self) -> usize {
        self.topic_count
    }

    fn next_topic(&self) -> TopicNumber {
        TopicNumber(self.changes.next_topic)
    }

    fn bounds(&self, topic: &TopicState, partition: Partition) -> Bounds {
        let log = self.before(topic).and_then(|old| old.logs.get(partition.0 as usize));
        log.map_or(Bounds { first: Offset(0), next: Offset(0) }, |log| log.bounds)
    }

    fn cursor(&self, topic: &TopicState, key: &CursorKey) -> Option<&Cursor> {
        match self.changes.cursors.get(key) {
            Some(staged) => staged.as_ref(),
            // A topic that this commit has replaced took its cursors with it.
            None => self.before(topic).and_then(|_| self.state.cursors.get(key)),
        }
    }

    fn cursors(&self) -> impl Iterator<Item = &CursorKey> {
        let number = |name: &TopicName| self.state.topics.get(name).map(|topic| topic.state.number);
        // A topic that this commit deletes or replaces takes its cursors with it.
        let goes = move |key: &CursorKey| {
            let staged = self.changes.topics.get(&key.topic);
            staged.is_some_and(|topic| topic.as_ref().map(|topic| topic.number) != number(&key.topic))
        };
        let staged = &self.changes.cursors;
        let stay = self.state.cursors.keys().filter(move |key| !goes(key) && !staged.contains_key(*key));
        stay.chain(staged.iter().filter(|(_, cursor)| cursor.is_some()).map(|(key, _)| key))
    }

    fn at_most(&self) -> (usize, u32) {
        let topics = self.state.topics.values().map(|topic| &topic.state);
        let topics = topics.chain(self.changes.topics.values().flatten());
        let widest = topics.map(|topic| topic.config.partitions).max().unwrap_or(0);
        (self.state.cursors.len() + self.changes.cursors.len(), widest)
    }

    fn put_topic(&mut self, topic: TopicState) -> Result<(), CommitError> {
        if topic.number.0 == self.changes.next_topic {
            self.changes.next_topic += 1;
            self.topic_count += 1;
        }
        self.changes.topics.insert(topic.name.clone(), Some(Arc::new(topic)));
        Ok(())
    }

    fn delete_topic(&mut self, name: &TopicName) -> Result<(), CommitError> {
        self.changes.topics.insert(name.clone(), None);
        self.topic_count -= 1;
        Ok(())
    }

    fn trim(
        &mut self,
        (topic, partition): (&TopicRef, Partition),
        first: Offset,
        loss: Loss,
    ) -> Result<(), CommitError> {
        let which = Which::Below(first);
        self.changes.given_up.push(GivenUp { topic: topic.clone(), partition, which, loss });
        Ok(())
    }

    fn discard(
        &mut self,
        (topic, partition): (&TopicRef, Partition),
        offsets: &Offsets,
        loss: Loss,
    ) -> Result<(), CommitError> {
        let which = Which::Single(offsets.clone());
        self.changes.given_up.push(GivenUp { topic: topic.clone(), partition, which, loss });
        Ok(())
    }

    fn forget(&mut self, topic: &TopicRef, key: &str) -> Result<(), CommitError> {
        self.changes.forgotten.push((topic.clone(), key.into()));
        Ok(())
    }

    fn collection(&self, name: &str) -> Option<&CollectionState> {
        self.changes.collections.state(&self.state.collections, name)
    }

    fn next_collection(&self) -> u32 {
        self.changes.collections.next_number
    }

    fn check_new_collection(&self, name: &str, limits: CommitLimits) -> Result<(), CommitError> {
        self.changes.collections.check_new(&self.state.collections, name, limits)
    }

    fn put_collection(&mut self, collection: CollectionState) -> Result<(), CommitError> {
        self.changes.collections.put(&self.state.collections, collection)
    }

    fn delete_collection(&mut self, name: &Arc<str>) -> Result<(), CommitError> {
        self.changes.collections.delete(&self.state.collections, name);
        Ok(())
    }

    fn rename_collection(&mut self, from: &Arc<str>, renamed: CollectionState) -> Result<(), CommitError> {
        self.changes.collections.rename(&self.state.collections, from, renamed);
        Ok(())
    }

    fn append_all(
        &mut self,
        appends: &[Append],
        commit: &Commit,
    ) -> Result<(Vec<Appended>, Durability), CommitError> {
        let mut all = Vec::with_capacity(appends.len());
        let durability = staging::append_each(self, appends, commit, &mut all)?;
        Ok((all, durability))
    }

    fn placer(&mut self) -> &mut Placer {
        &mut self.state.placer
    }

    fn now_ms(&self) -> u64 {
        self.now_ms
    }

    fn remembered(
        &self,
        one: &AppendOne<'_>,
        _to: &mut Vec<Appended>,
    ) -> Result<Option<Remembered>, CommitError> {
        let (topic, new) = (one.topic, &one.append.event);
        let Some(id) = new.id else { return Ok(None) };
        let first = match self.ids.get(&(topic.number, id)) {
            Some(staged) => Some(KnownEvent::of(&self.changes.events[*staged])),
            None => self.before(topic).and_then(|old| old.ids.get(&id)?.last().copied()),
        };
        Ok(first.map(|first| first.remembered(new)))
    }

    fn latest_id(
        &self,
        topic: &TopicState,
        key: &str,
        _to: &Vec<Appended>,
    ) -> Result<Option<Uuid>, CommitError> {
        Ok(match self.keys.get(&(topic.number, key.into())) {
            Some(staged) => Some(self.changes.events[*staged].id),
            None => self.before(topic).and_then(|old| self.latest(old, key)).map(|event| event.id),
        })
    }

    fn push(
        &mut self,
        one: &AppendOne<'_>,
        partition: Partition,
        to: &mut Vec<Appended>,
    ) -> Result<(), CommitError> {
        let topic = one.topic;
        let written = self.bounds(topic, partition).next;
        let next = self.ends.entry((topic.number, partition)).or_insert(written);
        let offset = *next;
        *next = offset.plus(1);
        let recorded_ts = self.state.last_recorded_ts;
        let new = &one.append.event;
        let id = new.id.unwrap_or_else(|| self.state.ids.next(recorded_ts));
        let ts = new.ts.unwrap_or(self.now_ms);
        let appended = Appended { id, partition, offset, ts, duplicate: false };
        let event = new.appended(&topic.name, appended, recorded_ts).detached();
        let at = self.changes.events.len();
        self.ids.insert((topic.number, event.id), at);
        if let Some(key) = &event.key {
            self.keys.insert((topic.number, key.clone()), at);
        }
        to.push(appended);
        self.changes.events.push(event);
        Ok(())
    }

    fn prior_documents(&self) -> PriorRows<Over<'_>> {
        self.changes.collections.prior(&self.state.collections)
    }

    fn put_document(
        &mut self,
        write: &DocumentWrite,
        drafted: Drafted<DocumentRow>,
    ) -> Result<(), CommitError> {
        self.changes.collections.put_document(&self.state.collections, write, drafted);
        Ok(())
    }

    fn put_cursor(&mut self, key: &CursorKey, cursor: Option<Cursor>) -> Result<(), CommitError> {
        self.changes.cursors.insert(key.clone(), cursor);
        Ok(())
    }
}
