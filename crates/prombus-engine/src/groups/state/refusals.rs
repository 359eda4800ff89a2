//! What happens where there is no room to write: nothing has changed, so what was said of leases is taken back and can be
//! said again. What nobody waits for stays as it is until there is room.

use super::commits::{Batch, Kind, Outcome, PartitionMove};
use super::{FinalFailure, Settle, State};
use crate::groups::chunk::Record;
use crate::groups::durable::Span;
use crate::groups::lease::{Lease, LeaseToken, Verb};
use crate::groups::partition_queue::{KeyHold, Times};
use crate::retry::pause;
use std::cmp::Reverse;
use std::time::Duration;
use tokio::time::Instant;

/// What a consumer has said of a delivery, and after how long. It counts once it is durable.
#[derive(Debug, Clone, Copy)]
pub(super) struct Handled {
    pub(super) verb: Verb,
    pub(super) took: Duration,
}

impl Handled {
    pub(super) fn new(verb: Verb, lease: &Lease, now: Times) -> Self {
        Self { verb, took: now.instant - lease.given }
    }
}

/// An ack or nack of a lease.
#[derive(Debug, Clone, Copy)]
pub(super) struct SettleRequest {
    pub(super) token: LeaseToken,
    pub(super) handled: Handled,
}

/// What was said of a lease, as it was before.
#[derive(Debug, Clone)]
pub(super) struct UndoableSettle {
    pub(super) words: SettleRequest,
    pub(super) lease: Lease,
    /// What was known of the event.
    pub(super) before: Option<Record>,
    pub(super) resets: u64,
    /// The change that it was.
    pub(super) version: u64,
}

/// What a group makes of something that is said of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettleEffect {
    /// The lease has expired or passed on.
    Expired,
    /// The lease holds longer, which is not written.
    Extended,
    /// This change, which is to be written.
    Change(u64),
    /// It was said before, with a change that may not be written yet.
    Repeat,
}

/// Nothing is written before there is something new to write, or a while has passed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stall {
    /// What there was to write.
    pub(super) version: u64,
    pub(super) until: Instant,
}

/// An event that is not settled after all.
struct Undo {
    partition: usize,
    offset: u64,
    generation: u64,
    resets: u64,
    before: Option<Record>,
}

impl Batch {
    /// Whether it can be taken back where there is no room for it.
    pub fn can_be_refused(&self) -> bool {
        !self.by_hand && self.extras.is_empty()
    }

    /// Whether there is more to it than dead letters.
    pub fn is_needed(&self) -> bool {
        self.is_needed
    }
}

impl State {
    /// What a call has to wait for that was made after so many changes.
    pub fn span_since(&self, before: u64) -> Span {
        Span { after: before, upto: self.version }
    }

    /// The changes that may still be refused.
    pub fn undecided(&self) -> Span {
        Span { after: self.decided, upto: self.version }
    }

    /// Does what a consumer says, and tells what that depends on.
    pub fn hear(&mut self, settle: Settle, now: Times) -> SettleEffect {
        let (before, extends) = (self.version, matches!(settle, Settle::Extend { .. }));
        match self.settle(settle, now) {
            false => SettleEffect::Expired,
            true if extends => SettleEffect::Extended,
            true if self.version > before => SettleEffect::Change(self.version),
            true => SettleEffect::Repeat,
        }
    }

    /// The dead letters of a batch could not be written for want of room: what is left of it does without them. Gives
    /// the changes that are refused.
    pub fn exhume(&mut self, batch: &mut Batch, dead: &[FinalFailure], now: Times) -> Vec<u64> {
        let is_dead = |o: &Outcome| dead.iter().any(|d| (d.partition, d.offset) == (o.partition, o.offset));
        batch.outcomes.retain(|outcome| !is_dead(outcome));
        let mut refused = Vec::new();
        let mut dead = dead.to_vec();
        dead.sort_unstable_by_key(|dying| Reverse((dying.partition, dying.offset)));
        for dying in dead {
            // It is counted when it is settled.
            self.queues[dying.partition].lost -= u64::from(dying.is_lost);
            match &dying.said {
                Some(said) => {
                    refused.push(said.version);
                    self.take_back(said.clone(), dying.generation);
                }
                None => self.unbury(dying, now),
            }
        }
        self.rewrite(batch);
        refused
    }

    /// There was no room for a batch. Gives the changes that are refused, and how many nobody has to wait for any more.
    pub fn refused(&mut self, mut batch: Batch, now: Times) -> (Vec<u64>, u64) {
        self.decided = self.decided.max(batch.version);
        for step in &batch.moves {
            let queue = &mut self.queues[step.partition];
            queue.progress.touch(step.chunks.iter().map(|chunk| chunk.chunk));
            queue.dirty |= batch.is_needed;
        }
        batch.outcomes.sort_by_key(|outcome| Reverse((outcome.partition, outcome.offset)));
        let (mut refused, mut kept) = (Vec::new(), Vec::new());
        for mut outcome in batch.outcomes {
            let is_open = self.queues[outcome.partition].progress.is_open(outcome.offset);
            match outcome.said.take() {
                // It was to be delivered again, and is gone by now: that has decided about it.
                Some(said) if matches!(outcome.kind, Kind::Retry(..)) && !is_open => {
                    refused.push(said.version);
                    self.leases.take_back(said.words.token);
                    self.queues[outcome.partition].dirty = true;
                    outcome.handled = None;
                    kept.push(outcome);
                }
                Some(said) => {
                    refused.push(said.version);
                    self.take_back(*said, outcome.generation);
                }
                None => {
                    self.queues[outcome.partition].dirty = true;
                    kept.push(outcome);
                }
            }
        }
        kept.reverse();
        kept.append(&mut self.staged);
        self.staged = kept;
        self.stall = Some(Stall { version: self.version, until: now.instant + pause::NO_ROOM });
        (refused, self.decided)
    }

    /// What was said of a lease was not accepted, and the lease is open as it was before, unless its partition has moved.
    fn take_back(&mut self, said: UndoableSettle, generation: u64) {
        let UndoableSettle { words: SettleRequest { token, .. }, lease, before, resets, version: _ } = said;
        let (partition, offset) = (lease.partition, lease.offset);
        self.leases.take_back(token);
        if self.undo(Undo { partition, offset, generation, resets, before }) {
            self.queues[partition].in_flight += 1;
            self.members.gave(&lease.member, 1);
            self.leases.reopen(token, lease);
        }
    }

    /// An event has failed for the last time without anybody saying so: it waits for its letter.
    fn unbury(&mut self, dying: FinalFailure, now: Times) {
        let FinalFailure { partition, offset, generation, resets, before, .. } = dying;
        if self.undo(Undo { partition, offset, generation, resets, before }) {
            self.unburied.push(dying);
            self.bury_at = Some(now.instant + pause::NO_ROOM);
        }
    }

    /// An event is not settled. Whether its queue still is as it was when that was said.
    fn undo(&mut self, undo: Undo) -> bool {
        let queue = &mut self.queues[undo.partition];
        // Where the cursor was set anew meanwhile, that has decided about the event.
        if queue.resets != undo.resets {
            return false;
        }
        queue.progress.unsettle(undo.offset, undo.before);
        let same = queue.generation == undo.generation;
        // A queue that has started again took it for settled.
        if !same && queue.is_past(undo.offset) {
            queue.note_returned(undo.offset);
            queue.requeue(undo.offset, KeyHold::Nothing);
            self.stirred = true;
        }
        same
    }

    /// What a batch writes, after it has changed. Nothing of it was written yet.
    fn rewrite(&mut self, batch: &mut Batch) {
        for step in &mut batch.moves {
            let queue = &mut self.queues[step.partition];
            queue.progress.touch(step.chunks.iter().map(|chunk| chunk.chunk));
            let changes = queue.progress.take_changes();
            *step = PartitionMove::new(step.partition, queue, changes);
        }
    }

    /// Tries again what there was no room for, once it is time.
    pub(super) fn end_of_stall(&mut self, now: Instant) {
        self.stall = self.stall.filter(|stall| now < stall.until);
        if self.bury_at.is_none_or(|at| now < at) {
            return;
        }
        self.bury_at = None;
        for mut dying in std::mem::take(&mut self.unburied) {
            let queue = &self.queues[dying.partition];
            // A queue that has started again has met the event, and delivers it.
            if queue.generation == dying.generation && queue.progress.is_open(dying.offset) {
                self.version += 1;
                dying.version = self.version;
                self.dying.push_back(dying);
            }
        }
    }
}
