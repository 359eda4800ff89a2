//! What one commit writes, and what takes effect when it is durable.

use super::refusals::{Handled, UndoableSettle};
use super::{Due, FinalFailure, State};
use crate::groups::partition_queue::{KeyHold, PartitionQueue, Times};
use crate::groups::progress::Changes;
use crate::groups::stored;
use prombus_core::CursorMove;
use std::cmp::Reverse;
use std::time::Duration;

/// What takes effect when a commit is durable.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) partition: usize,
    pub(super) generation: u64,
    pub(super) offset: u64,
    pub(super) kind: Kind,
    /// What was said of a lease, where somebody waits to hear whether it holds. Boxed, because it is large and hardly ever
    /// looked at, and outcomes are moved often.
    pub(super) said: Option<Box<UndoableSettle>>,
    /// What is counted then.
    pub(super) handled: Option<Handled>,
}

/// How an event goes on.
#[derive(Debug)]
pub(super) enum Kind {
    /// The event is settled, and its key is free.
    Done(Option<u64>),
    /// It is to be delivered again after a pause, and keeps its key.
    Retry(Option<u64>, Duration),
    /// It is open again.
    Reopened,
}

/// What one commit writes.
#[derive(Debug)]
pub struct Batch {
    /// Changes up to this one are durable with it.
    pub(super) version: u64,
    pub(super) outcomes: Vec<Outcome>,
    /// Whether there is more to it than dead letters.
    pub(super) is_needed: bool,
    /// Whether a hand has set a cursor or an event: that cannot be taken back one by one.
    pub(super) by_hand: bool,
    /// The partitions whose cursors move.
    pub moves: Vec<PartitionMove>,
    /// What others want to have happen with it.
    pub extras: Vec<CursorMove>,
}

/// The cursor of a partition, to be written with the chunks of it that have changed.
#[derive(Debug)]
pub struct PartitionMove {
    /// Which partition.
    pub partition: usize,
    /// The version that the cursor has now.
    pub expect_version: u64,
    /// The first offset that is not settled.
    pub next: u64,
    /// What is said beside it.
    pub detail: bytes::Bytes,
    /// What is settled beyond it, and what failed.
    pub chunks: Vec<ChunkMove>,
}

/// The cursor of a chunk, to be written.
#[derive(Debug)]
pub struct ChunkMove {
    /// Which chunk.
    pub chunk: u64,
    /// The version that its cursor has now; 0 where there is none.
    pub expect_version: u64,
    /// What it says then; `None` removes it.
    pub to: Option<bytes::Bytes>,
}

impl PartitionMove {
    /// What writes changes of a partition.
    pub(super) fn new(partition: usize, queue: &PartitionQueue, changes: Changes) -> Self {
        let Changes { next, detail, chunks } = changes;
        let detail = stored::cursor_detail(detail, queue.owners, queue.lost);
        let stored = chunks.into_iter().filter_map(|(chunk, to)| {
            let expect_version = queue.chunk_versions.get(&chunk).copied().unwrap_or(0);
            // One that came and went in between was never written.
            (expect_version > 0 || to.is_some()).then_some(ChunkMove { chunk, expect_version, to })
        });
        Self { partition, expect_version: queue.cursor_version, next, detail, chunks: stored.collect() }
    }
}

impl State {
    /// Has something happen with the next commit.
    pub fn also(&mut self, extra: CursorMove) {
        self.extras.push(extra);
        self.version += 1;
    }

    /// Whether there is something to write.
    pub fn needs_commit(&self) -> bool {
        let is_stalled = self.stall.is_some_and(|stall| stall.version == self.version);
        !is_stalled && (!self.dying.is_empty() || self.has_changes())
    }

    fn has_changes(&self) -> bool {
        !self.extras.is_empty() || self.queues.iter().any(|queue| queue.dirty)
    }

    /// Events that have failed for the last time, the first `max` of them.
    pub fn dying(&self, max: usize) -> Vec<FinalFailure> {
        self.dying.iter().take(max).cloned().collect()
    }

    /// Starts a commit. `dead` are events that [`State::dying`] gave and whose dead letters are part of it; those
    /// that are no longer open by now are left out, and what is left is given back.
    pub fn begin(&mut self, dead: Vec<FinalFailure>) -> (Batch, Vec<FinalFailure>) {
        let is_needed = self.has_changes();
        let mut buried = Vec::new();
        for FinalFailure { partition, offset, is_lost, .. } in dead {
            let at =
                self.dying.iter().position(|dying| (dying.partition, dying.offset) == (partition, offset));
            // It may have died anew, since it was looked at.
            let Some(mut dying) = at.and_then(|at| self.dying.remove(at)) else { continue };
            dying.is_lost = is_lost;
            let FinalFailure { partition, offset, generation, key, .. } = dying;
            let handled = dying.said.as_ref().map(|said| said.words.handled);
            let kind = Kind::Done(key);
            self.staged.push(Outcome { partition, generation, offset, kind, said: None, handled });
            let queue = &mut self.queues[partition];
            queue.dirty = true;
            if queue.progress.is_open(offset) {
                queue.progress.settle(offset);
                queue.lost += u64::from(is_lost);
                buried.push(dying);
            }
        }
        let version = self.dying.front().map_or(self.version, |dying| dying.version - 1);
        let dirty = self.queues.iter_mut().enumerate().filter(|(_, queue)| queue.dirty);
        let moves = dirty
            .map(|(n, queue)| {
                (queue.dirty, queue.passed) = (false, 0);
                let changes = queue.progress.take_changes();
                PartitionMove::new(n, queue, changes)
            })
            .collect();
        let (outcomes, extras) = (std::mem::take(&mut self.staged), std::mem::take(&mut self.extras));
        let by_hand = std::mem::take(&mut self.by_hand);
        (Batch { version, outcomes, is_needed, by_hand, moves, extras }, buried)
    }

    /// The commit of a batch is durable. Gives how many changes are.
    pub fn committed(&mut self, batch: Batch, now: Times) -> u64 {
        self.durable = self.durable.max(batch.version);
        self.decided = self.decided.max(batch.version);
        self.stirred = true;
        for step in batch.moves {
            let queue = &mut self.queues[step.partition];
            queue.moved(&step);
            queue.durable_next = step.next.min(queue.progress.next());
        }
        for Outcome { partition, generation, offset, kind, said: _, handled } in batch.outcomes {
            handled.into_iter().for_each(|handled| self.count(handled));
            let Some(queue) = self.queue_of(partition, generation) else { continue };
            match kind {
                Kind::Done(key) => queue.release(key),
                Kind::Reopened if queue.is_past(offset) => queue.requeue(offset, KeyHold::Nothing),
                // It is met on the way.
                Kind::Reopened => {}
                // There is nothing to wait for where it is gone meanwhile.
                Kind::Retry(key, pause) if pause.is_zero() || offset < queue.first => {
                    queue.requeue(offset, KeyHold::Key(key));
                }
                Kind::Retry(key, pause) => {
                    queue.wait_for_retry(offset, key);
                    let at = now.instant + pause;
                    self.due.push(Reverse(Due { at, partition, generation, offset }));
                }
            }
        }
        self.flush_times();
        self.durable
    }
}
