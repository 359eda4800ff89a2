//! A commit that was checked and not yet written: what would be, laid over what is known.

use crate::changes::{Changes, GivenUp, Which};
use crate::event_doc::NewEvent;
use crate::event_id::made_id;
use crate::facts::{CursorId, Facts};
use crate::head::{Catalog, Head, Part};
use crate::stage_documents::PriorState;
use prombus_core::collection::Drafted;
use prombus_core::staging::{self, AppendOne, Staging};
use prombus_core::{
    Append, Appended, Bounds, CollectionState, Commit, CommitError, CommitLimits, Cursor, CursorKey,
    DocumentWrite, Durability, KnownEvent, Loss, Offset, Offsets, Partition, Placer, Remembered, TopicName,
    TopicNumber, TopicRef, TopicState,
};
use std::sync::Arc;
use uuid::Uuid;

/// A commit, or a change of the hub's own, in the making.
pub struct Stage<'a> {
    pub facts: &'a Facts,
    /// What earlier commits of the same transaction change.
    pub before: &'a Changes,
    pub changes: Changes,
    pub placer: &'a mut Placer,
    pub now_ms: u64,
    /// See [`made_id`].
    pub salt: u32,
}

impl<'a> Stage<'a> {
    fn catalog(&self) -> Catalog {
        self.changes.catalog.or(self.before.catalog).unwrap_or_else(|| self.facts.catalog())
    }

    /// A topic as it was before the transaction, unless that has made or replaced it.
    fn old(&self, topic: &TopicState) -> Option<&'a Arc<Head>> {
        // A number that is yet to be given is of no topic that is there.
        if self.facts.catalog.is_some_and(|catalog| topic.number.0 >= catalog.next_topic) {
            return None;
        }
        self.facts.head(&topic.name).filter(|head| head.state.number == topic.number)
    }

    pub fn part(&self, topic: &TopicState, partition: Partition) -> Part {
        let at = (topic.number.0, partition.0);
        let staged = self.changes.parts.get(&at).or_else(|| self.before.parts.get(&at));
        staged
            .copied()
            .unwrap_or_else(|| self.old(topic).map_or(Part::default(), |old| old.part(partition.0)))
    }

    pub fn put_part(&mut self, topic: &TopicState, partition: Partition, part: Part) {
        self.changes.parts.insert((topic.number.0, partition.0), part);
        self.changes.names.entry(topic.number.0).or_insert_with(|| topic.name.clone());
    }

    fn lose(&mut self, topic: &TopicState, partition: Partition, loss: Loss, change: impl FnOnce(&mut Part)) {
        let mut part = self.part(topic, partition);
        part.bytes = part.bytes.saturating_sub(loss.bytes);
        part.horizon_ts = part.horizon_ts.max(loss.horizon_ts.unwrap_or(0));
        change(&mut part);
        self.put_part(topic, partition, part);
        self.changes.changed_set.changed(&topic.name);
    }

    fn is_left(&self, topic: u32, at: (Partition, Offset)) -> bool {
        let all = self.before.given_up.iter().chain(&self.changes.given_up);
        !all.into_iter().any(|given_up| given_up.has(topic, at))
    }
}

impl Staging for Stage<'_> {
    type Row = ();
    type AppendState<'b> = Vec<Appended>;
    type PriorDocuments<'b>
        = PriorState<'b>
    where
        Self: 'b;

    fn topic(&self, name: &TopicName) -> Option<&Arc<TopicState>> {
        match self.changes.topics.get(name).or_else(|| self.before.topics.get(name)) {
            Some(staged) => staged.as_ref(),
            None => self.facts.head(name).map(|head| &head.state),
        }
    }

    fn topic_count(&self) -> usize {
        self.catalog().topics
    }

    fn next_topic(&self) -> TopicNumber {
        // Asked of every commit, to see whether it has made a topic: not worth reading the catalog for.
        let known = self.changes.catalog.or(self.before.catalog).or(self.facts.catalog);
        TopicNumber(known.unwrap_or_default().next_topic)
    }

    fn bounds(&self, topic: &TopicState, partition: Partition) -> Bounds {
        self.part(topic, partition).bounds()
    }

    fn cursor(&self, topic: &TopicState, key: &CursorKey) -> Option<&Cursor> {
        let id = CursorId::new(topic.number.0, key);
        match self.changes.cursors.get(&id).or_else(|| self.before.cursors.get(&id)) {
            Some((_, staged)) => staged.as_ref(),
            None => self.old(topic).and_then(|_| self.facts.cursor(&id)),
        }
    }

    fn cursors(&self) -> impl Iterator<Item = &CursorKey> {
        let (mine, before) = (&self.changes.cursors, &self.before.cursors);
        let known = self.facts.all_cursors().iter();
        let known = known.filter(|(id, _)| !mine.contains_key(id) && !before.contains_key(id));
        let earlier = before.iter().filter(|(id, _)| !mine.contains_key(*id));
        let staged = mine.iter().chain(earlier).filter(|(_, (_, cursor))| cursor.is_some());
        let all = known.map(|(id, key)| (id, key)).chain(staged.map(|(id, (key, _))| (id, key)));
        let is_there = |(id, key): &(&CursorId, &CursorKey)| {
            self.topic(&key.topic).is_some_and(|topic| topic.number.0 == id.topic)
        };
        all.filter(is_there).map(|(_, key)| key)
    }

    fn at_most(&self) -> (usize, u32) {
        // To know better would take as long as to look at all.
        (usize::MAX, u32::MAX)
    }

    fn put_topic(&mut self, topic: TopicState) -> Result<(), CommitError> {
        let mut catalog = self.catalog();
        let known = self.topic(&topic.name).filter(|known| known.number == topic.number).cloned();
        match known {
            None => {
                catalog.next_topic = topic.number.0 + 1;
                catalog.topics += 1;
                self.changes.catalog = Some(catalog);
            }
            Some(known) => {
                // What is recorded in a new partition comes after any time that the topic is complete up to.
                let parts = 0..known.config.partitions;
                let recorded = parts.map(|n| self.part(&known, Partition(n)).recorded_ts).max().unwrap_or(0);
                for partition in known.config.partitions..topic.config.partitions {
                    let part = Part { recorded_ts: recorded, ..Part::default() };
                    self.put_part(&topic, Partition(partition), part);
                }
            }
        }
        self.changes.changed_set.changed(&topic.name);
        self.changes.topics.insert(topic.name.clone(), Some(Arc::new(topic)));
        Ok(())
    }

    fn delete_topic(&mut self, name: &TopicName) -> Result<(), CommitError> {
        let number = self.topic(name).map(|topic| topic.number.0);
        let mut catalog = self.catalog();
        catalog.topics = catalog.topics.saturating_sub(1);
        self.changes.catalog = Some(catalog);
        self.changes.dropped_topics.extend(number);
        self.changes.changed_set.changed(name);
        self.changes.topics.insert(name.clone(), None);
        Ok(())
    }

    fn trim(
        &mut self,
        (topic, partition): (&TopicRef, Partition),
        first: Offset,
        loss: Loss,
    ) -> Result<(), CommitError> {
        let Some(topic) = self.topic(&topic.name).cloned() else { return Ok(()) };
        let which = Which::Below(self.part(&topic, partition).bounds().first, first);
        self.changes.given_up.push(GivenUp { topic: topic.number.0, partition, which });
        self.lose(&topic, partition, loss, |part| part.first = first.0);
        Ok(())
    }

    fn discard(
        &mut self,
        (topic, partition): (&TopicRef, Partition),
        offsets: &Offsets,
        loss: Loss,
    ) -> Result<(), CommitError> {
        let Some(topic) = self.topic(&topic.name).cloned() else { return Ok(()) };
        if partition.0 >= topic.config.partitions {
            return Ok(());
        }
        let bounds = self.part(&topic, partition).bounds();
        let mut within = Offsets::default();
        within.add_within(offsets, bounds.first, bounds.next);
        // Their ids go on being recognised.
        if self.old(&topic).is_some() {
            let all: Vec<u64> = within.iter().map(|offset| offset.0).collect();
            let gone = self.facts.given_up(topic.number.0, partition, &all);
            let recorded_ts = self.now_ms.saturating_sub(topic.config.dedupe_window_ms);
            let remembered = gone.into_iter().filter(|gone| gone.recorded_ts >= recorded_ts);
            self.changes.remembered.extend(remembered.map(|gone| ((topic.number.0, gone.first.id), gone)));
        }
        self.changes.given_up.push(GivenUp {
            topic: topic.number.0,
            partition,
            which: Which::Single(within),
        });
        self.lose(&topic, partition, loss, |part| part.has_holes |= loss.horizon_ts.is_some());
        Ok(())
    }

    fn forget(&mut self, _topic: &TopicRef, _key: &str) -> Result<(), CommitError> {
        // What is given up is deleted, and of what is remembered by its id there is a digest.
        Ok(())
    }

    fn collection(&self, name: &str) -> Option<&CollectionState> {
        match self.changes.collections.get(name).or_else(|| self.before.collections.get(name)) {
            Some(staged) => staged.as_ref(),
            None => self.facts.collection(name).map(|head| &head.state),
        }
    }

    fn next_collection(&self) -> u32 {
        self.catalog().next_collection
    }

    fn check_new_collection(&self, name: &str, limits: CommitLimits) -> Result<(), CommitError> {
        let layers = || self.changes.collections.iter().chain(&self.before.collections);
        let all = || {
            let is_staged = |name: &&Arc<str>| {
                self.changes.collections.contains_key(*name) || self.before.collections.contains_key(*name)
            };
            let known = self.facts.collection_names().iter().filter(move |name| !is_staged(name));
            let earlier = self.before.collections.iter();
            let earlier = earlier.filter(|(name, _)| !self.changes.collections.contains_key(*name));
            let staged = self.changes.collections.iter().chain(earlier);
            known.chain(staged.filter(|(_, state)| state.is_some()).map(|(name, _)| name))
        };
        limits.check_new_collection(name, self.catalog().collections + layers().count(), all)
    }

    fn put_collection(&mut self, collection: CollectionState) -> Result<(), CommitError> {
        let is_new = self.collection(&collection.name).is_none();
        if is_new {
            let mut catalog = self.catalog();
            catalog.next_collection = collection.number + 1;
            catalog.collections += 1;
            self.changes.catalog = Some(catalog);
        }
        self.changes.collections.insert(collection.name.clone(), Some(collection));
        Ok(())
    }

    fn delete_collection(&mut self, name: &Arc<str>) -> Result<(), CommitError> {
        let number = self.collection(name).map(|state| state.number);
        if number.is_some() {
            let mut catalog = self.catalog();
            catalog.collections = catalog.collections.saturating_sub(1);
            self.changes.catalog = Some(catalog);
        }
        self.changes.dropped_collections.extend(number);
        self.changes.collections.insert(name.clone(), None);
        Ok(())
    }

    fn rename_collection(&mut self, from: &Arc<str>, renamed: CollectionState) -> Result<(), CommitError> {
        self.delete_collection(&renamed.name)?;
        self.changes.collections.insert(from.clone(), None);
        self.changes.collections.insert(renamed.name.clone(), Some(renamed));
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
        self.placer
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
        let at = (topic.number.0, id);
        let staged = self.changes.ids.get(&at).or_else(|| self.before.ids.get(&at)).copied();
        let first = staged.or_else(|| self.old(topic).and_then(|_| self.facts.published(topic.number.0, id)));
        Ok(first.map(|first| first.remembered(new)))
    }

    fn latest_id(
        &self,
        topic: &TopicState,
        key: &str,
        _to: &Vec<Appended>,
    ) -> Result<Option<Uuid>, CommitError> {
        let at = (topic.number.0, key.to_owned());
        let staged = self.changes.keys.get(&at).or_else(|| self.before.keys.get(&at)).copied();
        let known = || {
            self.old(topic)?;
            self.facts.latest(&topic.name, key, |at| self.is_left(topic.number.0, at))
        };
        Ok(staged.or_else(known))
    }

    fn push(
        &mut self,
        one: &AppendOne<'_>,
        partition: Partition,
        to: &mut Vec<Appended>,
    ) -> Result<(), CommitError> {
        let (topic, new) = (one.topic, &one.append.event);
        let mut part = self.part(topic, partition);
        let offset = Offset(part.next);
        let recorded_ts = part.recorded_ts.max(self.now_ms);
        let made = || made_id(recorded_ts, topic.number.0, (partition, offset), self.salt);
        let (id, ts) = (new.id.unwrap_or_else(made), new.ts.unwrap_or(self.now_ms));
        let appended = Appended { id, partition, offset, ts, duplicate: false };
        let event = new.appended(&topic.name, appended, recorded_ts);
        part.next += 1;
        part.recorded_ts = recorded_ts;
        part.max_ts = part.max_ts.max(event.ts);
        part.bytes += event.size() as u64;
        self.put_part(topic, partition, part);
        if let Some(key) = &event.key {
            self.changes.keys.insert((topic.number.0, key.to_string()), event.id);
        }
        to.push(appended);
        let event = NewEvent {
            topic: topic.number.0,
            is_own_id: new.id.is_some(),
            max_ts: part.max_ts,
            known: KnownEvent::of(&event),
            event,
        };
        self.changes.ids.insert((event.topic, event.event.id), event.known);
        self.changes.changed_set.appended_to(&topic.name);
        self.changes.events.push(event);
        Ok(())
    }

    fn prior_documents(&self) -> PriorState<'_> {
        PriorState { facts: self.facts, before: self.before }
    }

    fn put_document(&mut self, write: &DocumentWrite, drafted: Drafted<()>) -> Result<(), CommitError> {
        let Some(mut state) = self.collection(&write.collection).cloned() else { return Ok(()) };
        let (old, new) = (drafted.slot.document, drafted.document);
        state.count_change(old.as_ref(), new.as_ref());
        if old.is_some() || new.is_some() {
            if let Some(new) = &new {
                for values in PriorState::held(&state, new) {
                    self.changes.holders.entry(values).or_default().push(new.key.clone());
                }
            }
            self.changes.documents.insert((state.number, write.key.clone()), new);
        }
        self.changes.collections.insert(write.collection.clone(), Some(state));
        Ok(())
    }

    fn put_cursor(&mut self, key: &CursorKey, cursor: Option<Cursor>) -> Result<(), CommitError> {
        if let Some(topic) = self.topic(&key.topic) {
            let id = CursorId::new(topic.number.0, key);
            self.changes.cursors.insert(id, (key.clone(), cursor));
        }
        Ok(())
    }
}
