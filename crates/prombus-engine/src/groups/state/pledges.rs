//! Leases that a commit is to settle together with other things: out of reach until it is decided, and then settled
//! or as they were.

use super::{PartitionMove, State};
use crate::groups::lease::{Lease, LeaseToken};
use crate::groups::partition_queue::Times;
use hashbrown::HashSet;
use std::collections::BTreeSet;

/// Leases that a commit is to settle. They do not expire and nobody else can settle them.
#[derive(Debug)]
pub struct Pledge {
    leases: Vec<Pledged>,
    /// The cursors that settle them.
    pub moves: Vec<PartitionMove>,
}

#[derive(Debug)]
struct Pledged {
    token: LeaseToken,
    lease: Lease,
    generation: u64,
    resets: u64,
}

impl State {
    /// Takes leases out for a commit: all of them, or none and the first that is not open.
    pub fn pledge(&mut self, tokens: &[LeaseToken]) -> Result<Pledge, LeaseToken> {
        let mut once = BTreeSet::new();
        for token in tokens {
            if !once.insert(token.number) || self.leases.get_mut(*token).is_none() {
                return Err(*token);
            }
        }
        let mut leases = Vec::with_capacity(tokens.len());
        for token in tokens {
            let Some(lease) = self.leases.close(token.number) else { continue };
            let queue = &mut self.queues[lease.partition];
            queue.pledged.insert(lease.offset);
            let (generation, resets) = (queue.generation, queue.resets);
            leases.push(Pledged { token: *token, lease, generation, resets });
        }
        let touched: BTreeSet<usize> = leases.iter().map(|pledged| pledged.lease.partition).collect();
        let partition_move = |n: usize| {
            let queue = &self.queues[n];
            let mut progress = queue.progress.clone();
            let mine = leases.iter().filter(|pledged| pledged.lease.partition == n);
            mine.for_each(|pledged| progress.settle(pledged.lease.offset));
            PartitionMove::new(n, queue, progress.take_changes())
        };
        let moves = touched.into_iter().map(partition_move).collect();
        Ok(Pledge { leases, moves })
    }

    /// The commit has happened.
    pub fn redeem(&mut self, pledge: Pledge, now: Times) {
        for step in &pledge.moves {
            let queue = &mut self.queues[step.partition];
            queue.moved(step);
            // Where the cursor was set anew meanwhile, what was written is not so any more.
            queue.progress.touch(step.chunks.iter().map(|chunk| chunk.chunk));
        }
        let mut moved = HashSet::new();
        for Pledged { token, lease, generation, resets } in pledge.leases {
            self.queues[lease.partition].pledged.remove(lease.offset);
            self.leases.note_acked(token);
            self.members.took_back(&lease.member);
            self.metrics.counters.acked.add(1);
            self.handling.add(now.instant - lease.given, &self.metrics.times.handlers);
            // Where the cursor was set anew meanwhile, that has decided about the event.
            if self.queues[lease.partition].resets != resets {
                continue;
            }
            self.queues[lease.partition].progress.settle(lease.offset);
            if self.queues[lease.partition].generation == generation {
                let queue = &mut self.queues[lease.partition];
                queue.in_flight -= 1;
                queue.release(lease.key);
            } else {
                moved.insert((lease.partition, lease.offset));
            }
        }
        // The partition has moved and its new owner got the event again: it is done, whoever has it.
        for other in self.leases.on_any(&moved) {
            let Some(other) = self.leases.close(other) else { continue };
            self.members.took_back(&other.member);
            self.queues[other.partition].in_flight -= 1;
            self.queues[other.partition].release(other.key);
        }
        for PartitionMove { partition, next, .. } in pledge.moves {
            let queue = &mut self.queues[partition];
            // It is only ever looked at together with what is still open, so it may be too great for a moment.
            queue.durable_next = next.min(queue.progress.next()).max(queue.durable_next);
        }
        self.stirred = true;
    }

    /// The commit has not happened: the leases are as they were.
    pub fn unpledge(&mut self, pledge: Pledge) {
        for Pledged { token, lease, generation, .. } in pledge.leases {
            let (partition, queue) = (lease.partition, &mut self.queues[lease.partition]);
            queue.pledged.remove(lease.offset);
            if queue.generation == generation && queue.progress.is_open(lease.offset) {
                self.leases.reopen(token, lease);
                continue;
            }
            self.members.took_back(&lease.member);
            // Someone has settled the event meanwhile: there is nothing to give back.
            if queue.generation == generation {
                queue.in_flight -= 1;
                queue.release(lease.key);
                self.stirred = true;
            }
            // A queue that has started again may be past it.
            let first = queue.first;
            self.move_up(partition, first);
        }
    }
}
