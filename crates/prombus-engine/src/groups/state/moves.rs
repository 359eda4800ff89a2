//! What changes who gets what: members that come and go, and hands that set a cursor, change options, skip or reopen an
//! event.

use super::commits::Kind;
use super::{FinalFailure, GroupFilter, State};
use crate::groups::GroupError;
use crate::groups::chunk::Record;
use crate::groups::options::{GroupOptions, Mode};
use crate::groups::partition_queue::PartitionQueue;
use prombus_core::TopicState;
use prombus_core::topic::MAX_PARTITIONS;
use std::cmp::Reverse;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use tokio::time::Instant;

/// Maximum number of members of a partitioned group. More would have nothing to do, however many partitions there are.
const MAX_MEMBERS: usize = MAX_PARTITIONS as usize;
/// Maximum number of members of a shared group: each is listed, and takes memory.
const MAX_SHARED_MEMBERS: usize = 16_384;

impl State {
    /// A connection or call of a member starts. A partitioned group takes no more members than a topic may have
    /// partitions, because what a rebalance costs goes by them; a shared one takes more, and is bounded too.
    pub fn join(&mut self, member: &Arc<str>, now: Instant) -> Result<(), GroupError> {
        if self.members.is_new(member) {
            self.make_room_for_member(now)?;
        }
        if self.members.enter(member, now) {
            self.assign(Some(member));
        }
        Ok(())
    }

    /// Forgets members that are not there where there are as many as can be. Those of a shared group that hold nothing
    /// lose nothing by that, however briefly they were silent.
    fn make_room_for_member(&mut self, now: Instant) -> Result<(), GroupError> {
        let limit = match self.options.mode {
            Mode::Partitioned => MAX_MEMBERS,
            Mode::Shared => MAX_SHARED_MEMBERS,
        };
        if self.members.len() >= limit {
            match self.options.mode {
                Mode::Partitioned if self.members.drop_silent(now) => self.assign(None),
                Mode::Partitioned => {}
                Mode::Shared => self.members.forget_idle(),
            }
        }
        if self.members.len() >= limit { Err(GroupError::TooManyMembers { limit }) } else { Ok(()) }
    }

    /// A connection of a member is over, and the member gone where nothing else of it is there. One that may still
    /// settle what it holds is counted until it has, so that it gets no more than its share when it comes back.
    pub fn leave(&mut self, member: &str, now: Instant) {
        let keeps = self.options.mode == Mode::Shared && self.members.in_flight(member) > 0;
        if self.members.end_connection(member, now) && !keeps {
            self.members.remove(member);
            self.assign(None);
            if self.members.len() == 0 {
                // Nobody is there to deliver it to.
                self.queues.iter_mut().for_each(PartitionQueue::forget_bodies);
            }
        }
    }

    /// Gives each partition its owner, after some members went or one has `joined`. One that moves starts again at its
    /// cursor: the leases of the owner before are void, and no attempt is counted.
    pub(super) fn assign(&mut self, joined: Option<&Arc<str>>) {
        if self.options.mode != Mode::Partitioned {
            return;
        }
        let owners = self.members.owners(self.queues.iter().map(|queue| queue.owner.as_ref()), joined);
        let moved: Vec<usize> =
            (0..self.queues.len()).filter(|n| self.queues[*n].owner != owners[*n]).collect();
        self.restart(&moved);
        for n in moved {
            let queue = &mut self.queues[n];
            queue.owner = owners[n].clone();
            if queue.owner.is_some() {
                queue.owners = Some(queue.owners.unwrap_or(0) + 1);
                queue.dirty = true;
                self.version += 1;
                // What was settled just now must be durable before others of its key are delivered.
                queue.barrier = self.version;
            }
            (self.moved, self.stirred) = (true, true);
        }
    }

    /// Partitions start again at their cursors, and leases on their events are void.
    fn restart(&mut self, partitions: &[usize]) {
        let mut restarts = vec![false; self.queues.len()];
        partitions.iter().for_each(|partition| restarts[*partition] = true);
        let open = self.leases.iter().filter(|(_, lease)| restarts[lease.partition]);
        let void: Vec<u64> = open.map(|(number, _)| number).collect();
        for number in void {
            if let Some(lease) = self.leases.close(number) {
                self.members.took_back(&lease.member);
                self.queues[lease.partition].note_returned(lease.offset);
            }
        }
        partitions.iter().for_each(|partition| self.queues[*partition].restart());
        let current = &self.queues;
        self.due.retain(|Reverse(due)| current[due.partition].generation == due.generation);
    }

    /// Moves partitions to other places: everything before counts as settled, everything after does not, and no lease
    /// on their events holds.
    pub fn reset(&mut self, targets: &[(usize, u64)], topic: &TopicState) {
        self.see_topic(topic);
        self.version += 1;
        let targeted: BTreeSet<usize> = targets.iter().map(|(partition, _)| *partition).collect();
        self.by_hand = true;
        let dying = std::mem::take(&mut self.dying);
        let (void, rest): (VecDeque<_>, _) =
            dying.into_iter().partition(|dying| targeted.contains(&dying.partition));
        self.dying = rest;
        void.iter().for_each(|dying| self.lapse(dying));
        self.unburied.retain(|dying| !targeted.contains(&dying.partition));
        for (partition, next) in targets {
            let queue = &mut self.queues[*partition];
            queue.progress.start_at(*next);
            queue.durable_next = queue.durable_next.min(*next);
            queue.dirty = true;
            queue.resets += 1;
            queue.barrier = self.version;
        }
        self.restart(&targets.iter().map(|(partition, _)| *partition).collect::<Vec<_>>());
        self.stirred = true;
    }

    /// Goes by other options from now on. Leases that are open end as they were given; what was read ahead is read again,
    /// so that the filter judges all that is delivered after this.
    pub fn alter(&mut self, options: GroupOptions, filter: GroupFilter) {
        // Also where the filter is the same: it sees other events if only now they are raised.
        let normalizes = options.normalize != self.options.normalize;
        if options.filter != self.options.filter || normalizes || self.filter.is_err() {
            self.filter = Arc::new(filter);
            self.queues.iter_mut().for_each(PartitionQueue::forget_bodies);
        }
        self.members.set_ttl(options.member_ttl());
        self.options = Arc::new(options);
        // A wider window, or another filter, may have more for those who wait.
        self.stirred = true;
    }

    /// Settles one event, whoever has it. Says whether it was open.
    pub fn skip(&mut self, partition: usize, offset: u64) -> bool {
        if !self.queues[partition].progress.is_open(offset) {
            return false;
        }
        let key = match self.leases.on(partition, offset).and_then(|number| self.leases.close(number)) {
            Some(lease) => {
                self.members.took_back(&lease.member);
                self.queues[partition].in_flight -= 1;
                lease.key
            }
            None => self.queues[partition].forget_retry(offset).flatten(),
        };
        let is_it = |dying: &FinalFailure| (dying.partition, dying.offset) == (partition, offset);
        let dying = self.dying.iter().position(is_it).and_then(|at| self.dying.remove(at));
        let unburied = self.unburied.iter().position(is_it).map(|at| self.unburied.remove(at));
        dying.iter().for_each(|dying| self.lapse(dying));
        let key = key.or_else(|| dying.or(unburied)?.key);
        self.by_hand = true;
        self.queues[partition].progress.settle(offset);
        self.queues[partition].step_over();
        self.queues[partition].dirty = true;
        self.stage(partition, offset, Kind::Done(key), None);
        // One that waits to be delivered lets go of its key when it is met, which must not be before this is durable.
        self.queues[partition].barrier = self.version;
        true
    }

    /// A last nack that is not written yet: a hand has decided about its event, so that there will be no dead letter.
    fn lapse(&mut self, dying: &FinalFailure) {
        if let Some(said) = &dying.said {
            self.leases.take_back(said.words.token);
            self.lapsed.push(said.version);
        }
    }

    /// The changes that have come to nothing since this was last asked.
    pub fn take_lapsed(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.lapsed)
    }

    /// Opens a settled event again, attempts counted anew. `false`: it is not settled.
    pub fn reopen(&mut self, partition: usize, offset: u64, replays: u32) -> bool {
        let progress = &mut self.queues[partition].progress;
        if progress.is_open(offset) {
            return false;
        }
        progress.note(offset, Record { replays, ..Record::default() });
        self.by_hand = true;
        self.queues[partition].dirty = true;
        self.stage(partition, offset, Kind::Reopened, None);
        true
    }
}
