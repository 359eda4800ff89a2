//! A batch under construction: each commit is checked against the state including all commits before it, and its changes
//! are encoded and applied at once. A commit that fails is rolled back without a trace.

mod putting;
mod staging;

use crate::background::builder::{self, Build};
use crate::background::rewriter::Replacement;
use crate::index::active::ActiveIndex;
use crate::index::lookup::LookupKey;
use crate::index::newest::{Backwards, Verdict};
use crate::journal::batch::{self, BATCH_HEAD};
use crate::journal::change;
use crate::journal::part::Part;
use crate::journal::part_set::PartSet;
use crate::journal::record;
use crate::shared::Shared;
use crate::state::view::{Change, IndexChange, View};
use bytes::Bytes;
use prombus_core::collection::Progress;
use prombus_core::{
    ChangedSet, CollectionState, Commit, CommitError, Durability, IdMaker, Placer, ReadError, Receipt,
    Sequence,
};
use prombus_rows::IndexStep;
use std::io;
use std::sync::Arc;

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
    start: Savepoint,
    /// Whether there is something new for the builder of indexes.
    pub has_begun_index: bool,
    /// Whether there is something new for the rewriter of parts.
    pub has_given_up: bool,
    /// What was changed since a state was shown; what was taken back again may be among it.
    pub changed_set: ChangedSet,
}

/// A state to roll back to.
#[derive(Clone)]
pub struct Savepoint {
    view: View,
    len: usize,
    items: u32,
    pending: usize,
}

impl Savepoint {
    /// How many items the batch had.
    pub fn items(&self) -> u32 {
        self.items
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
        let start = Savepoint { view: view.clone(), len: BATCH_HEAD, items: 0, pending: 0 };
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
            changed_set: ChangedSet::default(),
        }
    }

    /// Starts a batch that goes to `part`, keeping what the one before it changed.
    pub fn begin(&mut self, part: Arc<Part>) {
        self.part.with_active(|index| index.keep());
        self.part = part;
        batch::start(&mut self.buffer);
        self.items = 0;
        self.start = Savepoint { view: self.view.clone(), len: BATCH_HEAD, items: 0, pending: 0 };
    }

    /// The state as it is now.
    pub fn savepoint(&self) -> Savepoint {
        let mut pending = 0;
        self.part.with_active(|index| pending = index.pending());
        Savepoint { view: self.view.clone(), len: self.buffer.len(), items: self.items, pending }
    }

    /// Rolls back everything since `savepoint`.
    pub fn roll_back_to(&mut self, savepoint: Savepoint) {
        self.part.with_active(|index| index.undo_to(savepoint.pending));
        self.view = savepoint.view;
        self.buffer.truncate(savepoint.len);
        self.items = savepoint.items;
    }

    /// Rolls back the whole batch.
    pub fn roll_back_batch(&mut self) {
        self.roll_back_to(self.start.clone());
    }

    /// Checks a commit and adds it to the batch. After an error, the caller rolls back.
    pub fn commit(&mut self, commit: &Commit) -> Result<Receipt, CommitError> {
        self.now_ms = self.shared.clock.now_ms();
        // Recorded time never runs backwards, whatever the clock does.
        self.view.last_recorded_ts = self.view.last_recorded_ts.max(self.now_ms);
        let items = self.items;
        self.changed_set.wrote(&commit.documents);
        let receipt = prombus_core::staging::stage(self, commit, self.shared.options.result_bytes)?;
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
        if change.may_name_keys() {
            self.part.with_active(ActiveIndex::note_keys);
        }
        Ok(())
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

    /// Where the batch starts in its part.
    fn base(&self) -> u32 {
        self.start.view.end.at
    }

    /// The last event in the batch, or before it in its part, that `by` points at and that is the one.
    fn find_active(
        &self,
        by: LookupKey,
        active: &ActiveIndex,
        judge: impl Fn(&[u8]) -> Verdict,
    ) -> Result<Option<Bytes>, CommitError> {
        let places = |below, limit| Ok(active.latest(by, below, limit));
        let item = |at| if at < self.base() { self.part.item(at) } else { Ok(self.staged(at)) };
        let backwards = Backwards { by, dead: &self.part.dead, as_of: self.start.view.end, places, item };
        backwards.find(u32::MAX, judge).map_err(unavailable)
    }

    /// The last event in an earlier part that `by` points at and that is the one.
    fn find_in(
        &self,
        part: &Part,
        by: LookupKey,
        judge: impl Fn(&[u8]) -> Verdict,
    ) -> Result<Option<Bytes>, CommitError> {
        part.newest(by, (u32::MAX, self.start.view.end), judge).map_err(unavailable)
    }

    /// An item that is not written yet.
    fn staged(&self, at: u32) -> Bytes {
        let rest = &self.buffer[(at - self.base()) as usize..];
        let len = record::item_len(rest).unwrap_or(rest.len());
        Bytes::copy_from_slice(&rest[..len])
    }
}
