//! A batch in the making: commits are checked one by one against the state with all before them, and what they
//! change is encoded and applied at once. A commit that fails is taken back as if it had never been.

use crate::batch::{self, BATCH_HEAD};
use crate::change;
use crate::part::Part;
use crate::position::PartitionRef;
use crate::record::{self, EventHead};
use crate::replay::{id_hash, key_hash};
use crate::shared::Shared;
use crate::sidecar::By;
use crate::view::{Change, Span, View};
use bytes::Bytes;
use prombus_core::{
    Append, Appended, Commit, CommitError, ConfigChange, Cursor, CursorMove, Document, DocumentWrite,
    Durability, Event, IdMaker, Layout, NewEvent, Offset, Partition, Placement, Receipt, Sequence, TopicName,
    TopicNumber, TopicState, document,
};
use std::io;
use std::sync::Arc;

/// The batch.
pub struct Stage {
    shared: Arc<Shared>,
    ids: IdMaker,
    /// The state with everything that is in the batch.
    pub view: View,
    /// The batch as it will be written.
    pub buffer: Vec<u8>,
    /// How many items it has.
    pub items: u32,
    /// The part that it goes to.
    part: Arc<Part>,
    /// Before anything was put into the batch.
    start: Mark,
}

/// A state to go back to.
#[derive(Clone)]
pub struct Mark {
    view: View,
    len: usize,
    items: u32,
    pending: usize,
}

impl Mark {
    /// How many items the batch had.
    pub fn items(&self) -> u32 {
        self.items
    }
}

/// What the events of one commit share.
#[derive(Default)]
struct Appending {
    /// Topics from this number on are made by the commit.
    first_new_topic: u32,
    topic: Option<Arc<TopicState>>,
    spans: Vec<(PartitionRef, Span)>,
}

impl Stage {
    /// An empty batch behind `view`.
    pub fn new(shared: Arc<Shared>, view: View, mut ids: IdMaker) -> Self {
        ids.resume_after(view.last_hub_id);
        let start = Mark { view: view.clone(), len: BATCH_HEAD, items: 0, pending: 0 };
        let part = shared.last_part();
        Self { shared, ids, view, buffer: Vec::new(), items: 0, part, start }
    }

    /// Starts a batch that goes to `part`, keeping what the one before it changed.
    pub fn begin(&mut self, part: Arc<Part>) {
        self.part.with_active(|index| index.keep());
        self.part = part;
        batch::start(&mut self.buffer);
        self.items = 0;
        self.start = Mark { view: self.view.clone(), len: BATCH_HEAD, items: 0, pending: 0 };
    }

    /// The state as it is now.
    pub fn mark(&self) -> Mark {
        let mut pending = 0;
        self.part.with_active(|index| pending = index.pending());
        Mark { view: self.view.clone(), len: self.buffer.len(), items: self.items, pending }
    }

    /// Takes back everything since `mark`.
    pub fn go_back(&mut self, mark: Mark) {
        self.part.with_active(|index| index.undo_to(mark.pending));
        self.view = mark.view;
        self.buffer.truncate(mark.len);
        self.items = mark.items;
    }

    /// Takes back the whole batch.
    pub fn go_back_to_start(&mut self) {
        self.go_back(self.start.clone());
    }

    /// Checks a commit and puts it into the batch. After an error, the caller goes back.
    pub fn commit(&mut self, commit: &Commit) -> Result<Receipt, CommitError> {
        // Recorded time never runs backwards, whatever the clock does.
        self.view.last_recorded_ts = self.view.last_recorded_ts.max(self.shared.clock.now_ms());
        let items = self.items;
        let mut durability = commit.least_durability();
        let mut appending = Appending { first_new_topic: self.view.next_topic, ..Appending::default() };
        for change in &commit.config {
            self.configure(change)?;
        }
        let mut events = Vec::with_capacity(commit.events.len());
        for (index, append) in commit.events.iter().enumerate() {
            let (appended, asked) = self.append(index, append, &mut appending)?;
            durability = durability.max(asked);
            events.push(appended);
        }
        for (partition, span) in appending.spans {
            self.view.spans.insert(partition, span);
        }
        let mut versions = Vec::with_capacity(commit.documents.len());
        for write in &commit.documents {
            versions.push(self.write(write)?);
        }
        for cursor in &commit.cursors {
            durability = durability.max(self.move_cursor(cursor)?);
        }
        if self.items > items {
            self.view.sequence += 1;
        }
        Ok(Receipt { events, versions, durability, sequence: Sequence(self.view.sequence) })
    }

    fn change(&mut self, change: Change) {
        change::write(&mut self.buffer, &change);
        self.items += 1;
        self.view.apply(change);
    }

    fn topic(&self, name: &TopicName) -> Result<Arc<TopicState>, CommitError> {
        self.view.topics.get(name).cloned().ok_or_else(|| CommitError::TopicNotFound(name.clone()))
    }

    fn configure(&mut self, change: &ConfigChange) -> Result<(), CommitError> {
        match change {
            ConfigChange::CreateTopic { name, config } => {
                if self.view.topics.contains_key(name) {
                    return Err(CommitError::TopicExists(name.clone()));
                }
                let number = TopicNumber(self.view.next_topic);
                let config = config.clone();
                self.change(Change::Topic(TopicState { name: name.clone(), number, revision: 1, config }));
            }
            ConfigChange::AlterTopic { name, expect_revision, config } => {
                let topic = self.topic(name)?;
                if topic.revision != *expect_revision {
                    return Err(CommitError::TopicChanged(name.clone()));
                }
                let (now, asked) = (topic.config.partitions, config.partitions);
                if asked < now {
                    return Err(CommitError::PartitionsShrink { topic: name.clone(), now, asked });
                }
                let (revision, config) = (topic.revision + 1, config.clone());
                self.change(Change::Topic(TopicState { revision, config, ..(*topic).clone() }));
            }
            ConfigChange::DeleteTopic { name } => {
                self.topic(name)?;
                self.change(Change::TopicGone(name.clone()));
            }
            ConfigChange::Trim { topic, partition, before } => {
                let topic = self.topic(topic)?;
                let partition = PartitionRef { topic: topic.number.0, partition: partition.0 };
                let span = self.view.span(partition);
                let first = before.0.clamp(span.first, span.next);
                if first != span.first {
                    self.change(Change::Span(partition, Span { first, ..span }));
                }
            }
        }
        Ok(())
    }

    fn append(
        &mut self,
        index: usize,
        append: &Append,
        appending: &mut Appending,
    ) -> Result<(Appended, Durability), CommitError> {
        let topic = match &appending.topic {
            Some(topic) if topic.name == append.topic => topic.clone(),
            _ => self.topic(&append.topic)?,
        };
        let (partition, holds) = match append.placement {
            Placement::Placed(partition, layout) => {
                (partition, layout == Layout { topic: topic.number, partitions: topic.config.partitions })
            }
            Placement::PlacedInNew(partition) => (partition, topic.number.0 >= appending.first_new_topic),
            Placement::Auto | Placement::Named(_) => return Err(CommitError::NotPlaced { index }),
        };
        if !holds {
            return Err(CommitError::StaleLayout(topic.name.clone()));
        }
        if partition.0 >= topic.config.partitions {
            return Err(CommitError::NotPlaced { index });
        }
        let (durability, number) = (topic.config.durability, topic.number.0);
        if let Some(first) = self.first_of(index, &topic, &append.event)? {
            return Ok((first, durability));
        }
        if let Some(expect) = append.expect {
            let actual = self.latest(number, append.event.key.as_deref().unwrap_or_default())?;
            if actual != expect.last_id {
                return Err(CommitError::ExpectationFailed { index, actual });
            }
        }
        appending.topic = Some(topic);
        let partition = PartitionRef { topic: number, partition: partition.0 };
        let slot = match appending.spans.iter().rposition(|(known, _)| *known == partition) {
            Some(slot) => slot,
            None => {
                appending.spans.push((partition, self.view.span(partition)));
                appending.spans.len() - 1
            }
        };
        let span = &mut appending.spans[slot].1;
        let offset = span.next;
        span.next += 1;
        Ok((self.put(partition, offset, &append.event), durability))
    }

    /// Puts an event into buffer and index.
    fn put(&mut self, partition: PartitionRef, offset: u64, event: &NewEvent) -> Appended {
        let recorded_ts = self.view.last_recorded_ts;
        let id = event.id.unwrap_or_else(|| self.ids.next(recorded_ts));
        let ts = event.ts.unwrap_or(recorded_ts);
        let hub_id = event.id.is_none();
        if hub_id {
            self.view.last_hub_id = id;
        }
        let at = self.base() + self.buffer.len() as u32;
        let head = EventHead { partition, offset, id, hub_id, ts, recorded_ts };
        record::write_event(&mut self.buffer, &head, event);
        self.items += 1;
        let entry = crate::active::Entry {
            partition,
            offset,
            ts,
            id_hash: id_hash(partition.topic, id.as_bytes()),
            key_hash: event.key.as_ref().map(|key| key_hash(partition.topic, key.as_bytes())),
            at,
        };
        self.part.with_active(|index| index.push(entry));
        Appended {
            id,
            partition: Partition(partition.partition),
            offset: Offset(offset),
            ts,
            duplicate: false,
        }
    }

    /// Where the batch starts in its part.
    fn base(&self) -> u32 {
        self.start.view.end.at
    }

    /// The event that `new` repeats, if its id was published within the topic's window.
    fn first_of(
        &self,
        index: usize,
        topic: &TopicState,
        new: &NewEvent,
    ) -> Result<Option<Appended>, CommitError> {
        let Some(id) = new.id else { return Ok(None) };
        let number = topic.number.0;
        let horizon = self.view.last_recorded_ts.saturating_sub(topic.config.dedupe_window_ms);
        let is_same = |item: &[u8]| {
            record::event_head(item).is_some_and(|head| head.id == id && head.partition.topic == number)
        };
        let hash = id_hash(number, id.as_bytes());
        let Some(item) = self.find(By::Id, hash, horizon, is_same)? else { return Ok(None) };
        let Some(first) = record::event(&item, topic.name.clone()) else { return Ok(None) };
        if first.recorded_ts < horizon {
            return Ok(None);
        }
        if !first.is_repeated_by(new) {
            return Err(CommitError::IdConflict { index, id });
        }
        let Event { id, partition, offset, ts, .. } = first;
        Ok(Some(Appended { id, partition, offset, ts, duplicate: true }))
    }

    /// The id of the latest kept event of a key.
    fn latest(&self, topic: u32, key: &str) -> Result<Option<uuid::Uuid>, CommitError> {
        let is_kept = |item: &[u8]| {
            record::event_head(item).is_some_and(|head| {
                head.partition.topic == topic
                    && record::event_key(item) == Some(key.as_bytes())
                    && head.offset >= self.view.span(head.partition).first
            })
        };
        let item = self.find(By::Key, key_hash(topic, key.as_bytes()), 0, is_kept)?;
        Ok(item.and_then(|item| record::event_head(&item)).map(|head| head.id))
    }

    /// The last event with this hash that `is_it`, in the batch or in a part that is not all older than `horizon`.
    fn find(
        &self,
        by: By,
        hash: u64,
        horizon: u64,
        is_it: impl Fn(&[u8]) -> bool,
    ) -> Result<Option<Bytes>, CommitError> {
        let search = || -> io::Result<Option<Bytes>> {
            for part in self.shared.parts().iter().rev() {
                if part.last_recorded_ts().is_some_and(|last| last < horizon) {
                    return Ok(None);
                }
                let mut below = u32::MAX;
                while let Some(at) = part.newest(by, hash, below)? {
                    let item = self.item(part, at)?;
                    if is_it(&item) {
                        return Ok(Some(item));
                    }
                    below = at;
                }
            }
            Ok(None)
        };
        search().map_err(|error| CommitError::Unavailable(error.to_string()))
    }

    /// The item there, which may not have been written yet.
    fn item(&self, part: &Part, at: u32) -> io::Result<Bytes> {
        if part.number != self.part.number || at < self.base() {
            return part.item(at);
        }
        let rest = &self.buffer[(at - self.base()) as usize..];
        let len = record::item_len(rest).unwrap_or(rest.len());
        Ok(Bytes::copy_from_slice(&rest[..len]))
    }

    fn write(&mut self, write: &DocumentWrite) -> Result<u64, CommitError> {
        let DocumentWrite { collection, key, op, if_version, ts } = write;
        let old = self.view.documents.get(&(collection.clone(), key.clone())).cloned();
        let actual = old.as_ref().map_or(0, |old| old.version);
        if if_version.is_some_and(|expected| expected != actual) {
            return Err(CommitError::VersionConflict {
                collection: collection.clone(),
                key: key.clone(),
                actual,
            });
        }
        let body = document::apply(old.as_ref().map(|old| &old.body), op)
            .map_err(|error| CommitError::BadWrite { key: key.clone(), error })?;
        Ok(match body {
            Some(body) => {
                let version = actual + 1;
                let document = Document { key: key.clone(), version, ts: *ts, body };
                self.change(Change::Document(collection.clone(), document));
                version
            }
            None => {
                self.change(Change::DocumentGone(collection.clone(), key.clone()));
                0
            }
        })
    }

    fn move_cursor(&mut self, change: &CursorMove) -> Result<Durability, CommitError> {
        let CursorMove { key, incarnation, expect_version, epoch, to } = change;
        let topic = self.topic(&key.topic)?;
        if incarnation.is_some_and(|read| read != topic.number) {
            return Err(CommitError::StaleLayout(key.topic.clone()));
        }
        let old = self.view.cursors.get(key);
        let actual = old.map_or(0, |old| old.version);
        if actual != *expect_version || old.is_some_and(|old| old.epoch > *epoch) {
            return Err(CommitError::CursorMoved { reader: key.reader.clone(), actual });
        }
        self.change(match to {
            Some(to) => {
                let detail = to.detail.clone();
                Change::Cursor(
                    key.clone(),
                    Cursor { version: actual + 1, epoch: *epoch, next: to.next, detail },
                )
            }
            None => Change::CursorGone(key.clone()),
        });
        Ok(topic.config.durability)
    }
}
