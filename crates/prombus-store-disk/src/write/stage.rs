//! A batch under construction: each commit is checked against the state including all commits before it, and its changes
//! are encoded and applied at once. A commit that fails is rolled back without a trace.

use crate::background::builder::{self, Build};
use crate::background::rewriter::Replacement;
use crate::index::active::{ActiveIndex, Entry};
use crate::index::lookup::{LookupKey, key_hash};
use crate::journal::batch::{self, BATCH_HEAD, MAX_BATCH};
use crate::journal::change;
use crate::journal::part::{Index, Part};
use crate::journal::part_set::PartSet;
use crate::journal::position::PartitionRef;
use crate::journal::record::{self, EventHead, TooLong};
use crate::shared::Shared;
use crate::state::view::{Change, IndexChange, Span, View};
use bytes::Bytes;
use parking_lot::RwLockWriteGuard;
use prombus_core::collection::{Base, Drafted, Drafts, Progress, Written};
use prombus_core::staging::{self, Staging};
use prombus_core::{
    Append, Appended, Bounds, CollectionState, Commit, CommitError, CommitLimits, ConfigChange, Cursor,
    CursorKey, DocumentWrite, Durability, IdMaker, Loss, NewEvent, Offset, Offsets, Partition, Placer,
    ReadError, Receipt, Remembered, ResultBytes, Sequence, TopicName, TopicNumber, TopicRef, TopicState,
    Touched,
};
use prombus_rows::{DocumentRow, IndexStep, Rows};
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use uuid::Uuid;

/// The batch.
pub struct Stage {
    shared: Arc<Shared>,
    ids: IdMaker,
    placer: Placer,
    /// What the clock said when the last commit came, which may be less than what was recorded.
    now_ms: u64,
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
    /// Whether there is something new for the builder of indexes.
    pub has_begun_index: bool,
    /// Whether there is something new for the rewriter of parts.
    pub has_given_up: bool,
    /// What was touched since a state was shown; what was taken back again may be among it.
    pub touched: Touched,
}

/// A state to roll back to.
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
struct Appending<'a> {
    /// The index of the part that is written.
    index: RwLockWriteGuard<'a, ActiveIndex>,
    /// The topic of the event before.
    topic: Option<Arc<TopicState>>,
    /// The partitions that got events, as they are after them.
    spans: Vec<(PartitionRef, Span)>,
    /// Which events have an id that an earlier part may hold.
    suspects: VecDeque<(usize, usize)>,
    /// Where the events are. They are put here one by one, and not handed back: an answer on its way through a
    /// `Result` is read before it has left the processor's store buffer, which then waits for the index's memory.
    appended: Vec<Appended>,
}

impl Appending<'_> {
    /// The offset of the next event of a partition, which counts for `size`.
    fn next_offset(&mut self, partition: PartitionRef, view: &View, size: usize) -> u64 {
        let slot = self.spans.iter().rposition(|(known, _)| *known == partition).unwrap_or_else(|| {
            self.spans.push((partition, view.span(partition)));
            self.spans.len() - 1
        });
        let span = &mut self.spans[slot].1;
        span.next += 1;
        span.bytes += size as u64;
        span.next - 1
    }
}

fn unavailable(error: io::Error) -> CommitError {
    CommitError::Unavailable(error.to_string())
}

fn unreadable(error: ReadError) -> CommitError {
    CommitError::Unavailable(error.to_string())
}

impl Stage {
    /// An empty batch behind `view`.
    pub fn new(shared: Arc<Shared>, view: View, part: Arc<Part>, mut ids: IdMaker) -> Self {
        ids.resume_after(view.last_hub_id);
        let start = Mark { view: view.clone(), len: BATCH_HEAD, items: 0, pending: 0 };
        Self {
            shared,
            ids,
            placer: Placer::default(),
            now_ms: 0,
            view,
            buffer: Vec::new(),
            items: 0,
            part,
            start,
            has_begun_index: false,
            has_given_up: false,
            touched: Touched::default(),
        }
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

    /// Rolls back everything since `mark`.
    pub fn go_back(&mut self, mark: Mark) {
        self.part.with_active(|index| index.undo_to(mark.pending));
        self.view = mark.view;
        self.buffer.truncate(mark.len);
        self.items = mark.items;
    }

    /// Rolls back the whole batch.
    pub fn go_back_to_start(&mut self) {
        self.go_back(self.start.clone());
    }

    /// Checks a commit and adds it to the batch. After an error, the caller rolls back.
    pub fn commit(&mut self, commit: &Commit) -> Result<Receipt, CommitError> {
        self.now_ms = self.shared.clock.now_ms();
        // Recorded time never runs backwards, whatever the clock does.
        self.view.last_recorded_ts = self.view.last_recorded_ts.max(self.now_ms);
        let items = self.items;
        self.touched.wrote(&commit.documents);
        let receipt = staging::stage(self, commit, self.shared.options.result_bytes)?;
        if self.items > items {
            self.view.sequence += 1;
        }
        Ok(Receipt { sequence: Sequence(self.view.sequence), ..receipt })
    }

    fn change(&mut self, change: Change) -> Result<(), CommitError> {
        self.log(&change)?;
        self.view.apply(change)
    }

    fn log(&mut self, change: &Change) -> Result<(), CommitError> {
        change::write(&mut self.buffer, change)?;
        self.items += 1;
        Ok(())
    }

    fn check_new_collection(&self, name: &str, limits: CommitLimits) -> Result<(), CommitError> {
        let collections = &self.view.collections;
        limits.check_new_collection(name, collections.len(), || collections.keys())
    }

    /// Makes the new indexes of a collection where that is one step each, and leaves the others to the builder.
    fn begin_indexes(&mut self, name: &Arc<str>) -> Result<(), CommitError> {
        let limits = self.shared.step_limits();
        while let Some(state) = self.view.collections.get(name).cloned()
            && let Some(index) = state.building()
        {
            if state.documents > limits.documents as u64 || state.bytes > limits.bytes as u64 {
                self.has_begun_index = true;
                return Ok(());
            }
            let step =
                prombus_rows::build_step(&self.view.rows, &state, index, limits).map_err(unreadable)?;
            step.check_unique(&state, index)?;
            // Nobody has to mend documents before he can start a hub whose configuration has an index.
            if let Progress::Failed(failure) = &step.progress {
                builder::warn_of(&state, index, failure);
            }
            self.advance(&state, index, &step)?;
        }
        Ok(())
    }

    /// Puts a step of building an index into the batch. Where the index is not as it was when the step was prepared,
    /// nothing happens; where only documents changed meanwhile, the step is prepared again.
    pub fn build(&mut self, build: &Build) -> Result<Receipt, CommitError> {
        let Build { state: seen, index, step } = build;
        let now = self.view.collections.get(&seen.name).filter(|now| now.number == seen.number).cloned();
        if let Some(now) = now.filter(|now| now.indexes.get(*index) == seen.indexes.get(*index)) {
            // Every write of a document makes it another one.
            if Arc::ptr_eq(&now, seen) {
                self.advance(&now, *index, step)?;
            } else {
                let limits = self.shared.step_limits();
                let step = prombus_rows::build_step(&self.view.rows, &now, *index, limits);
                self.advance(&now, *index, &step.map_err(unreadable)?)?;
            }
            self.view.sequence += 1;
        }
        Ok(self.empty_receipt(Durability::Interval))
    }

    /// Puts a part in place of others. Nobody waits for that: there is nothing new to be seen.
    pub fn replace(&mut self, replacement: &Replacement) -> Result<Receipt, CommitError> {
        let Replacement { old, new } = replacement;
        let is_old = |part: &Arc<Part>| old.iter().any(|old| Arc::ptr_eq(old, part));
        let new_number = new.as_ref().map(|part| part.number());
        let gone = old.iter().map(|part| part.number()).filter(|number| Some(*number) != new_number);
        let changed = gone.map(|number| (number, None));
        let rewritten = new.iter().map(|part| (part.number(), Some(part.name.rewrite)));
        self.change(Change::Parts(PartSet::new(1, changed.chain(rewritten))))?;
        let mut parts: Vec<_> = self.view.parts.iter().filter(|part| !is_old(part)).cloned().collect();
        parts.extend(new.clone());
        parts.sort_unstable_by_key(|part| part.name);
        self.view.parts = Arc::new(parts);
        Ok(self.empty_receipt(Durability::Sync))
    }

    /// Notes that what was forgotten up to a commit is erased. Nobody waits for that either.
    pub fn erased(&mut self, upto: u64) -> Result<Receipt, CommitError> {
        self.change(Change::Erased(upto))?;
        Ok(self.empty_receipt(Durability::Sync))
    }

    /// What work of the store's own is answered.
    fn empty_receipt(&self, durability: Durability) -> Receipt {
        let (events, versions) = (Vec::new(), Vec::new());
        Receipt { events, versions, durability, sequence: Sequence(self.view.sequence) }
    }

    fn advance(
        &mut self,
        state: &CollectionState,
        index: usize,
        step: &IndexStep,
    ) -> Result<(), CommitError> {
        let (collection, progress) = (state.name.clone(), step.progress.clone());
        self.log(&Change::Index(IndexChange { collection, index, progress }))?;
        self.view.advance(state, index, step);
        Ok(())
    }

    /// Which events have an id that an earlier part may hold, with that part, for each the newest part first.
    /// Part by part, so that each filter is in the cache for all of the events.
    fn suspects(&self, appends: &[Append], active: &ActiveIndex) -> VecDeque<(usize, usize)> {
        let mut hashes: Vec<(usize, LookupKey)> = Vec::new();
        let (mut topic, mut window): (Option<&TopicState>, u64) = (None, 0);
        for (n, append) in appends.iter().enumerate() {
            let Some(id) = append.event.id else { continue };
            // Neighbours mostly go to the same topic.
            if topic.is_none_or(|topic| topic.name != append.topic) {
                topic = self.view.topics.get(&append.topic).map(|topic| &**topic);
            }
            let Some(topic) = topic else { continue };
            window = window.max(topic.config.dedupe_window_ms);
            hashes.push((n, LookupKey::id(topic.number.0, id)));
        }
        if hashes.is_empty() {
            return VecDeque::new();
        }
        active.warm_up(hashes.iter().map(|(_, by)| *by));
        let horizon = self.view.last_recorded_ts.saturating_sub(window);
        let mut suspects = Vec::new();
        for (at, part) in self.view.parts.iter().enumerate().rev().skip(1) {
            match &*part.index() {
                Index::Sealed(sidecar) if sidecar.last_recorded_ts < horizon => break,
                Index::Sealed(sidecar) => {
                    suspects
                        .extend(hashes.iter().filter(|(_, by)| sidecar.may_have(*by)).map(|(n, _)| (*n, at)));
                }
                Index::Active(index) => {
                    let index = index.read();
                    let may_have = |by: LookupKey| index.newest(by, u32::MAX).is_some();
                    suspects.extend(hashes.iter().filter(|(_, by)| may_have(*by)).map(|(n, _)| (*n, at)));
                }
            }
        }
        suspects.sort_unstable_by_key(|(n, at)| (*n, Reverse(*at)));
        suspects.into()
    }

    fn append(&mut self, n: usize, append: &Append, to: &mut Appending<'_>) -> Result<(), CommitError> {
        let Some(topic) = &to.topic else { return Err(CommitError::TopicNotFound(append.topic.clone())) };
        let partition = self.placer.place(n, append, topic.config.partitions)?;
        if let Some(first) = self.first_of(n, topic, &append.event, &to.index, &mut to.suspects)? {
            to.appended.push(first);
            return Ok(());
        }
        let number = topic.number.0;
        if let Some(expect) = append.expect {
            let key = append.event.key.as_deref().unwrap_or_default();
            expect.check(n, self.latest(number, key, &to.index)?)?;
        }
        let partition = PartitionRef { topic: number, partition: partition.0 };
        let offset = to.next_offset(partition, &self.view, append.event.size());
        self.put(partition, offset, &append.event, to)
    }

    /// Puts an event into buffer and index.
    fn put(
        &mut self,
        partition: PartitionRef,
        offset: u64,
        event: &NewEvent,
        to: &mut Appending<'_>,
    ) -> Result<(), CommitError> {
        let recorded_ts = self.view.last_recorded_ts;
        let id = event.id.unwrap_or_else(|| self.ids.next(recorded_ts));
        let ts = event.ts.unwrap_or(self.now_ms);
        let hub_id = event.id.is_none();
        if hub_id {
            self.view.last_hub_id = id;
        }
        let too_long = TooLong { bytes: self.buffer.len(), limit: MAX_BATCH };
        let start = self.buffer.len();
        let at = self.start.view.end.plus(start).ok_or(too_long)?.at;
        let head = EventHead { partition, offset, id, hub_id, ts, recorded_ts };
        record::write_event(&mut self.buffer, &head, event)?;
        self.items += 1;
        let key_hash = event.key.as_ref().map(|key| key_hash(partition.topic, key.as_bytes()));
        // No item is that long.
        let bytes = u32::try_from(self.buffer.len() - start).unwrap_or(u32::MAX);
        to.index.push(Entry { head, key_hash, at, bytes });
        let (partition, offset) = (Partition(partition.partition), Offset(offset));
        to.appended.push(Appended { id, partition, offset, ts, duplicate: false });
        Ok(())
    }

    /// A partition of a pinned topic, of which something is given up.
    fn changed_partition(&mut self, (topic, partition): (&TopicRef, Partition)) -> Option<PartitionRef> {
        let number = topic.incarnation?;
        self.touched.changed(&topic.name);
        self.has_given_up = true;
        Some(PartitionRef { topic: number.0, partition: partition.0 })
    }

    /// Where the batch starts in its part.
    fn base(&self) -> u32 {
        self.start.view.end.at
    }

    /// The event that `new` repeats, if its id was published within the topic's window.
    fn first_of(
        &self,
        n: usize,
        topic: &TopicState,
        new: &NewEvent,
        active: &ActiveIndex,
        suspects: &mut VecDeque<(usize, usize)>,
    ) -> Result<Option<Appended>, CommitError> {
        let Some(id) = new.id else { return Ok(None) };
        let number = topic.number.0;
        let is_same = |item: &[u8]| {
            record::event_head(item).is_some_and(|head| head.id == id && head.partition.topic == number)
        };
        let by = LookupKey::id(number, id);
        let mut found = self.find_active(by, active, is_same)?;
        while let Some((_, part)) = suspects.pop_front_if(|(suspect, _)| *suspect == n) {
            if found.is_none() {
                found = self.find_in(&self.view.parts[part], by, is_same)?;
            }
        }
        let Some((item, head)) = found.and_then(|item| Some((item.clone(), record::event_head(&item)?)))
        else {
            return Ok(None);
        };
        let is_repeated = match record::event(&item, topic.name.clone()) {
            Some(first) => first.is_repeated_by(new),
            None => record::is_repeated(&item, new),
        };
        let EventHead { partition, offset, ts, recorded_ts, .. } = head;
        let (partition, offset) = (Partition(partition.partition), Offset(offset));
        let first = Appended { id, partition, offset, ts, duplicate: true };
        Remembered { first, recorded_ts, is_repeated }.answer(n, topic, self.view.last_recorded_ts)
    }

    /// The id of the latest kept event of a key.
    fn latest(&self, topic: u32, key: &str, active: &ActiveIndex) -> Result<Option<Uuid>, CommitError> {
        let is_kept = |item: &[u8]| {
            record::event_head(item).is_some_and(|head| {
                head.partition.topic == topic
                    && record::event_key(item) == Some(key.as_bytes())
                    && self.view.is_kept(head.partition, head.offset)
            })
        };
        let by = LookupKey::key(topic, key.as_bytes());
        let mut found = self.find_active(by, active, is_kept)?;
        let mut earlier = self.view.parts.iter().rev().skip(1);
        while found.is_none()
            && let Some(part) = earlier.next()
        {
            found = self.find_in(part, by, is_kept)?;
        }
        Ok(found.and_then(|item| record::event_head(&item)).map(|head| head.id))
    }

    /// The last event in the batch, or before it in its part, that `by` points at and that `is_it`.
    fn find_active(
        &self,
        by: LookupKey,
        active: &ActiveIndex,
        is_it: impl Fn(&[u8]) -> bool,
    ) -> Result<Option<Bytes>, CommitError> {
        let mut below = u32::MAX;
        while let Some(at) = active.newest(by, below) {
            let item =
                if at < self.base() { self.part.item(at).map_err(unavailable)? } else { self.staged(at) };
            if is_it(&item) {
                return Ok(Some(item));
            }
            below = at;
        }
        Ok(None)
    }

    /// The last event in an earlier part that `by` points at and that `is_it`.
    fn find_in(
        &self,
        part: &Part,
        by: LookupKey,
        is_it: impl Fn(&[u8]) -> bool,
    ) -> Result<Option<Bytes>, CommitError> {
        let mut below = u32::MAX;
        while let Some(at) = part.newest(by, below).map_err(unavailable)? {
            let item = part.item(at).map_err(unavailable)?;
            if is_it(&item) {
                return Ok(Some(item));
            }
            below = at;
        }
        Ok(None)
    }

    /// An item that is not written yet.
    fn staged(&self, at: u32) -> Bytes {
        let rest = &self.buffer[(at - self.base()) as usize..];
        let len = record::item_len(rest).unwrap_or(rest.len());
        Bytes::copy_from_slice(&rest[..len])
    }
}

impl Staging for Stage {
    type Row = DocumentRow;

    fn topic(&self, name: &TopicName) -> Option<&TopicState> {
        self.view.topics.get(name).map(|topic| &**topic)
    }

    fn topic_count(&self) -> usize {
        self.view.topics.len()
    }

    fn next_topic(&self) -> TopicNumber {
        TopicNumber(self.view.next_topic)
    }

    fn bounds(&self, topic: &TopicState, partition: Partition) -> Bounds {
        let partition = PartitionRef { topic: topic.number.0, partition: partition.0 };
        self.view.span(partition).kept().bounds
    }

    // A topic takes its cursors with it, so those that there are belong to this incarnation.
    fn cursor(&self, _topic: &TopicState, key: &CursorKey) -> Option<&Cursor> {
        self.view.cursors.get(key).map(|cursor| &**cursor)
    }

    fn cursors(&self) -> impl Iterator<Item = &CursorKey> {
        self.view.cursors.keys()
    }

    fn at_most(&self) -> (usize, u32) {
        let widest = self.view.topics.values().map(|topic| topic.config.partitions).max();
        (self.view.cursors.len(), widest.unwrap_or(0))
    }

    fn put_topic(&mut self, topic: TopicState) -> Result<(), CommitError> {
        self.touched.changed(&topic.name);
        self.change(Change::Topic(topic))
    }

    fn delete_topic(&mut self, name: &TopicName) -> Result<(), CommitError> {
        self.touched.changed(name);
        self.has_given_up = true;
        self.change(Change::TopicGone(name.clone()))
    }

    fn trim(&mut self, at: (&TopicRef, Partition), first: Offset, loss: Loss) -> Result<(), CommitError> {
        let Some(partition) = self.changed_partition(at) else { return Ok(()) };
        let span = self.view.span(partition).without(loss);
        self.change(Change::Span(partition, Span { first: first.0, ..span }))
    }

    fn discard(
        &mut self,
        at: (&TopicRef, Partition),
        offsets: &Offsets,
        loss: Loss,
    ) -> Result<(), CommitError> {
        let Some(partition) = self.changed_partition(at) else { return Ok(()) };
        self.change(Change::Holes(partition, offsets.clone()))?;
        let span = self.view.span(partition).without(loss);
        let has_holes = span.has_holes || loss.horizon_ts.is_some();
        self.change(Change::Span(partition, Span { has_holes, ..span }))
    }

    fn forget(&mut self, topic: &TopicRef, key: &str) -> Result<(), CommitError> {
        let Some(number) = topic.incarnation else { return Ok(()) };
        // This commit is the next one.
        let (topic, sequence) = (number.0, self.view.sequence + 1);
        self.change(Change::Forget { topic, key: key.into(), sequence })
    }

    fn configure_collection(
        &mut self,
        change: &ConfigChange,
        limits: CommitLimits,
    ) -> Result<(), CommitError> {
        match change {
            ConfigChange::PutCollection { name, expect_revision, config } => {
                let before = self.view.collections.get(name);
                CollectionState::check_revision(before.map(|before| &**before), name, *expect_revision)?;
                let config = config.clone();
                if before.is_none() {
                    self.check_new_collection(name, limits)?;
                }
                let after = match before {
                    None => CollectionState::new(name.clone(), self.view.next_collection, config),
                    Some(before) => before.with_settings(config),
                };
                self.change(Change::Collection(after))?;
                self.begin_indexes(name)
            }
            ConfigChange::DropCollection { name } if self.view.collections.contains_key(name) => {
                self.change(Change::CollectionGone(name.clone()))
            }
            ConfigChange::SwapCollection { from, to } => {
                let state = self.view.collections.get(from).map(|state| &**state);
                match CollectionState::renamed(state, from, to)? {
                    Some(_) => self.change(Change::CollectionSwap(from.clone(), to.clone())),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    fn append_all(
        &mut self,
        appends: &[Append],
        commit: &Commit,
    ) -> Result<(Vec<Appended>, Durability), CommitError> {
        let mut durability = Durability::Interval;
        if appends.is_empty() {
            return Ok((Vec::new(), durability));
        }
        let part = self.part.clone();
        let index = part.index();
        let Index::Active(index) = &*index else {
            return Err(CommitError::Unavailable("the part that is written has no index in memory".into()));
        };
        // Once for all events: each must be seen by the next, and taking it anew for each costs more than the rest.
        let index = index.write();
        let suspects = self.suspects(appends, &index);
        let appended = Vec::with_capacity(appends.len());
        let mut appending = Appending { index, topic: None, spans: Vec::new(), suspects, appended };
        for (n, append) in appends.iter().enumerate() {
            if appending.topic.as_ref().is_none_or(|topic| topic.name != append.topic) {
                staging::make_missing(self, &append.topic, commit)?;
                appending.topic = self.view.topics.get(&append.topic).cloned();
                self.touched.appended_to(&append.topic);
            }
            self.append(n, append, &mut appending)?;
            durability = durability.max(appending.topic.as_ref().map_or(durability, |t| t.config.durability));
        }
        for (partition, span) in appending.spans {
            self.view.spans.insert(partition, span);
        }
        Ok((appending.appended, durability))
    }

    fn draft(
        &mut self,
        written: Written<'_>,
        drafts: &mut Drafts<DocumentRow>,
        bytes: &mut ResultBytes,
    ) -> Result<u64, CommitError> {
        let write = &written.commit.documents[written.index];
        let is_new = !self.view.collections.contains_key(&write.collection);
        if is_new {
            self.check_new_collection(&write.collection, written.commit.limits)?;
        }
        let state = self.view.collection(&write.collection, &write.owner);
        if is_new {
            // Here, so that it has the same number when this is applied again.
            self.log(&Change::Collection((*state).clone()))?;
        }
        let before: &dyn Rows = &self.view.rows;
        drafts.take(Base { before, state: &state, bytes }, written)
    }

    fn put_document(
        &mut self,
        write: &DocumentWrite,
        drafted: Drafted<DocumentRow>,
    ) -> Result<(), CommitError> {
        let Drafted { slot, document, .. } = drafted;
        let mut state = self.view.collection(&write.collection, &write.owner);
        if let Some(change) = prombus_rows::replace(Arc::make_mut(&mut state), slot, document.as_ref()) {
            self.view.rows.change(change);
        }
        self.view.collections.insert(write.collection.clone(), state);
        self.log(&match document {
            Some(document) => Change::Document(write.collection.clone(), document),
            None => Change::DocumentGone(write.collection.clone(), write.key.clone()),
        })
    }

    fn put_cursor(&mut self, key: &CursorKey, cursor: Option<Cursor>) -> Result<(), CommitError> {
        self.change(match cursor {
            Some(cursor) => Change::Cursor(key.clone(), cursor),
            None => Change::CursorGone(key.clone()),
        })
    }
}
