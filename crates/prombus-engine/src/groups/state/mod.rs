//! The rules of a group as a state machine without waiting: what is delivered to whom, what an ack or nack means,
//! what happens when a lease ends or a member comes and goes.
//!
//! What changes is staged, written in one commit by whoever drives the machine, and takes effect when that commit
//! is durable: a key is free, and an event is due again, only then. So nobody is ever told something that a crash
//! could take back.

mod commits;
mod losses;
mod moves;
mod pledges;
mod refusals;
#[cfg(test)]
mod tests;

pub use commits::{Batch, ChunkMove, PartitionMove};
pub use pledges::Pledge;
pub use refusals::SettleEffect;

use super::ahead::{ReadAhead, Share};
use super::chunk::Record;
use super::durable::Span;
use super::lease::{Lease, LeaseToken, Leases, Verb};
use super::members::Members;
use super::metrics::{GroupMetrics, Tally};
use super::options::{GroupOptions, Mode};
use super::partition_queue::{KeyHold, PartitionQueue, Pause, QueueOptions, ReadNeed, Times};
use super::progress::Progress;
use super::pull::MAX_BATCH_BYTES;
use crate::filter::{BadFilter, Filter};
use commits::{Kind, Outcome};
use prombus_core::{CursorMove, Event, Partition, TopicState};
use refusals::{Handled, SettleRequest, Stall, UndoableSettle};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// What is passed over without anybody waiting for it is written when it is so much.
const PASSED_UNWRITTEN: u64 = 10_000;
/// There is room for so many deliveries before it is known how many there are.
const ROOM_AT_ONCE: usize = 1_024;
const EXPIRED: &str = "the lease expired";

/// An event on its way to a consumer.
#[derive(Debug)]
pub struct Delivery {
    /// The event.
    pub event: Event,
    /// What settles it.
    pub lease: LeaseToken,
    /// Counts its deliveries, from 1.
    pub attempt: u32,
    /// When the lease ends.
    pub deadline: Instant,
}

/// What a member asks for.
#[derive(Debug, Clone)]
pub struct Take {
    /// Who asks.
    pub member: Arc<str>,
    /// Maximum number of events.
    pub max: usize,
    /// Maximum number of open leases.
    pub max_in_flight: usize,
}

/// Why deliveries go back to their group without being settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GivenBack {
    /// They were not used. That counts for nothing.
    Unused,
    /// The connection that held them was lost, which counts as an attempt for the oldest of them.
    ConnectionLost,
}

/// What a consumer says of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settle {
    /// It is done.
    Ack(LeaseToken),
    /// It failed.
    Nack {
        /// Its lease.
        lease: LeaseToken,
        /// Why.
        reason: Option<Arc<str>>,
        /// When to try again, where the group's own pause is not wanted.
        delay: Option<Duration>,
    },
    /// It failed, and trying again is in vain: it becomes a dead letter.
    Bury {
        /// Its lease.
        lease: LeaseToken,
        /// Why.
        reason: String,
    },
    /// It takes longer.
    Extend {
        /// Its lease.
        lease: LeaseToken,
        /// How long, from now on; as long as a new one where absent.
        by: Option<Duration>,
    },
}

/// An event that has failed for the last time.
#[derive(Debug, Clone)]
pub struct FinalFailure {
    /// Its partition.
    pub partition: usize,
    /// Its offset.
    pub offset: u64,
    /// How often it was delivered.
    pub attempts: u32,
    /// How often it came back from the dead letters.
    pub replays: u32,
    /// Why the last attempt failed.
    pub reason: String,
    /// Whether retention has taken the event, so that there is nothing to put into a letter.
    pub is_lost: bool,
    key: Option<u64>,
    generation: u64,
    resets: u64,
    version: u64,
    /// What was known of it before.
    before: Option<Record>,
    /// What was said of its lease, where it did not just end.
    said: Option<UndoableSettle>,
}

/// A delivery that failed.
struct Failure {
    lease: Lease,
    /// Who said so, where the lease did not just end.
    words: Option<SettleRequest>,
    reason: String,
    /// When to try again, where the group's own pause is not wanted.
    delay: Option<Duration>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: Instant,
    partition: usize,
    generation: u64,
    offset: u64,
}

/// What a partition waits to have read.
#[derive(Debug)]
pub struct PartitionNeed {
    /// Which partition.
    pub partition: usize,
    /// The generation that it is of.
    pub generation: u64,
    /// What.
    pub need: ReadNeed,
}

/// What is delivered. A filter that an earlier build took may not compile any more: then nothing is delivered, and
/// nothing settled, until the group is given another.
pub type GroupFilter = Result<Option<Filter>, BadFilter>;

/// The state of a group.
pub struct State {
    /// Its options.
    pub options: Arc<GroupOptions>,
    /// What is delivered.
    pub filter: Arc<GroupFilter>,
    /// Its partitions.
    pub queues: Vec<PartitionQueue>,
    /// Its open leases.
    pub leases: Leases,
    /// Who consumes.
    pub members: Members,
    /// What it holds of events that were read and not delivered, where that is counted.
    ahead: Option<Share>,
    /// What each partition must wait for after a growth, until it is there.
    gates: Vec<Vec<u64>>,
    due: BinaryHeap<Reverse<Due>>,
    staged: Vec<Outcome>,
    dying: VecDeque<FinalFailure>,
    /// Those of them that wait until there is room for their letters.
    unburied: Vec<FinalFailure>,
    /// Changes that have come to nothing, until somebody is told.
    lapsed: Vec<u64>,
    /// When that is tried again.
    bury_at: Option<Instant>,
    extras: Vec<CursorMove>,
    /// Whether a hand has set a cursor or an event since the last commit began.
    by_hand: bool,
    version: u64,
    durable: u64,
    /// The change that has all cursors carry the epoch of the group.
    secured: u64,
    /// Changes up to this one are durable, refused, or nobody waits for them.
    decided: u64,
    stall: Option<Stall>,
    turn: usize,
    metrics: GroupMetrics,
    /// Times of handlers that are not in the metrics yet.
    handling: Tally,
    /// Counts how often events were given up: what was read before may be of them.
    given_up: u64,
    /// Whether there may be more to deliver than those who wait know.
    stirred: bool,
    /// Whether partitions got other owners that nobody was told of.
    moved: bool,
}

impl State {
    /// A group whose partitions are at `queues`.
    pub fn new(
        (options, filter): (Arc<GroupOptions>, GroupFilter),
        queues: Vec<PartitionQueue>,
        leases: Leases,
        metrics: GroupMetrics,
    ) -> Self {
        Self {
            members: Members::new(options.member_ttl()),
            ahead: None,
            filter: Arc::new(filter),
            options,
            gates: vec![Vec::new(); queues.len()],
            queues,
            leases,
            due: BinaryHeap::new(),
            staged: Vec::new(),
            dying: VecDeque::new(),
            unburied: Vec::new(),
            lapsed: Vec::new(),
            bury_at: None,
            extras: Vec::new(),
            by_hand: false,
            version: 0,
            durable: 0,
            secured: 0,
            decided: 0,
            stall: None,
            turn: 0,
            metrics,
            handling: Tally::default(),
            given_up: 0,
            stirred: false,
            moved: false,
        }
    }

    /// What queues go by.
    pub fn queue_options(&self) -> QueueOptions {
        QueueOptions { ordering: self.options.ordering, window: self.options.ack_window }
    }

    /// Counts the changes that were made.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Takes note of the partitions that the topic has. Queues of new ones start at their beginning, and wait until
    /// the others have passed what was there before them.
    pub fn see_topic(&mut self, topic: &TopicState) {
        let known = self.queues.len();
        // What was looked up may be older than what others have seen meanwhile.
        if (topic.config.partitions as usize) < known {
            return;
        }
        for _ in known..topic.config.partitions as usize {
            let mut queue = PartitionQueue::new(Progress::default(), 0, self.leases.session().epoch);
            queue.owners = (self.options.mode == Mode::Partitioned).then_some(0);
            queue.dirty = true;
            // Whoever had the topic before may still write to it, until this has.
            queue.barrier = self.version + 1;
            self.queues.push(queue);
        }
        self.gates = (0..topic.config.partitions)
            .map(|partition| topic.before(Partition(partition)).iter().map(|end| end.0).collect())
            .collect();
        if self.queues.len() > known {
            self.version += 1;
            self.stirred = true;
            self.assign(None);
        }
    }

    /// Has all cursors carry the epoch of the group before anything is delivered: whoever had the topic before can settle
    /// nothing from then on, and what it has settled is known, or this commit is refused. Gives what to wait for.
    pub fn secure(&mut self) -> Span {
        let epoch = self.leases.session().epoch;
        if self.queues.iter().any(|queue| queue.cursor_epoch < epoch) {
            self.version += 1;
            self.secured = self.version;
            for queue in self.queues.iter_mut().filter(|queue| queue.cursor_epoch < epoch) {
                (queue.cursor_epoch, queue.dirty, queue.barrier) = (epoch, true, self.version);
            }
        }
        Span { after: self.secured.saturating_sub(1), upto: self.secured }
    }

    /// Whether a partition has not yet been allowed to start after a growth.
    pub fn is_gated(&self, partition: usize) -> bool {
        let mut before = self.gates[partition].iter().zip(&self.queues);
        before.any(|(end, before)| before.durable_next < *end || before.progress.is_open_below(*end))
    }

    /// What holds a gate shut may only have to be written.
    fn write_for_gate(&mut self, partition: usize) {
        for (end, before) in self.gates[partition].iter().zip(&mut self.queues) {
            if before.durable_next < *end && !before.progress.is_open_below(*end) && !before.dirty {
                before.dirty = true;
                self.version += 1;
            }
        }
    }

    fn may_deliver(&mut self, partition: usize, member: &str) -> bool {
        if !self.gates[partition].is_empty() {
            if self.is_gated(partition) {
                self.write_for_gate(partition);
                return false;
            }
            self.gates[partition].clear();
        }
        let mine = match self.options.mode {
            Mode::Shared => true,
            Mode::Partitioned => self.queues[partition].owner.as_deref() == Some(member),
        };
        mine && self.queues[partition].barrier <= self.durable
    }

    /// How many leases a member may still get.
    pub fn room(&self, take: &Take) -> usize {
        take.max_in_flight.saturating_sub(self.members.in_flight(&take.member))
    }

    /// Delivers what there is for a member.
    pub fn take(&mut self, take: &Take, now: Times) -> Vec<Delivery> {
        self.tick(now);
        let options = self.queue_options();
        let max = take.max.min(self.room(take));
        let first = self.leases.next_number();
        let deadline = now.instant + self.options.ack_timeout();
        // Deliveries are large: a list that grows would move each of them several times.
        let known = self.queues.iter().map(PartitionQueue::at_hand).sum::<usize>();
        let (mut deliveries, mut bytes) = (Vec::with_capacity(max.min(known).min(ROOM_AT_ONCE)), 0);
        let mut pauses = Vec::new();
        let mut latencies = Tally::default();
        self.turn = (self.turn + 1) % self.queues.len().max(1);
        for n in 0..self.queues.len() {
            let partition = (self.turn + n) % self.queues.len();
            if deliveries.len() >= max
                || bytes >= MAX_BATCH_BYTES
                || !self.may_deliver(partition, &take.member)
            {
                continue;
            }
            let queue = &mut self.queues[partition];
            while deliveries.len() < max
                && bytes < MAX_BATCH_BYTES
                && let Some(ready) = queue.pop(options, now, &mut pauses)
            {
                let offset = ready.event.offset.0;
                let record = queue.progress.record(offset).unwrap_or_default();
                let attempt = record.attempts + 1;
                let lease = self.leases.open(Lease {
                    partition,
                    offset,
                    key: ready.key,
                    member: take.member.clone(),
                    given: now.instant,
                    deadline,
                });
                queue.in_flight += 1;
                if queue.was_returned(offset) || attempt > 1 || record.replays > 0 {
                    queue.redelivered += 1;
                    self.metrics.counters.redelivered.add(1);
                } else {
                    let age = now.wall_ms.saturating_sub(ready.event.recorded_ts);
                    latencies.add(Duration::from_millis(age), &self.metrics.times.latencies);
                }
                bytes += ready.event.payload.len();
                deliveries.push(Delivery { event: ready.event, lease, attempt, deadline });
            }
            let generation = queue.generation;
            for Pause { offset, remaining } in pauses.drain(..) {
                let at = now.instant + remaining;
                self.due.push(Reverse(Due { at, partition, generation, offset }));
            }
        }
        latencies.flush(&self.metrics.times.latencies);
        self.leases.opened(first, deadline);
        self.members.gave(&take.member, deliveries.len());
        self.metrics.counters.delivered.add(deliveries.len() as u64);
        deliveries
    }

    /// Counts what it holds in this account from now on.
    pub fn count_in(&mut self, account: &Arc<ReadAhead>) {
        self.ahead = Some(Share::of(account));
    }

    /// Counts what was read and not delivered, and lets go of it where groups hold too much.
    pub fn trim(&mut self) {
        let held = self.queues.iter().map(PartitionQueue::held_bytes).sum();
        if self.ahead.as_mut().is_some_and(|share| share.set(held)) {
            self.forget_ahead();
        }
    }

    /// Lets go of what was read and not delivered: it can be read again.
    pub fn forget_ahead(&mut self) {
        self.queues.iter_mut().for_each(PartitionQueue::forget_bodies);
        if let Some(share) = &mut self.ahead {
            share.set(0);
        }
    }

    /// Whether there is more that someone else may want, as far as is known.
    pub fn has_more(&self) -> bool {
        self.queues.iter().any(PartitionQueue::has_more)
    }

    /// Whether events are due again whose bodies have to be read first.
    pub fn has_cold(&self) -> bool {
        self.queues.iter().any(PartitionQueue::has_cold)
    }

    /// What has to be read before a member can get more; only what is due again where `cold` is set.
    pub fn read_needs(&mut self, member: &str, cold: bool) -> Vec<PartitionNeed> {
        let options = self.queue_options();
        let mut needs = Vec::new();
        for n in 0..self.queues.len() {
            // In the order in which they will be served.
            let partition = (self.turn + 1 + n) % self.queues.len();
            if (cold && !self.queues[partition].has_cold()) || !self.may_deliver(partition, member) {
                continue;
            }
            let generation = self.queues[partition].generation;
            needs.extend(self.queues[partition].read_need(options).map(|need| PartitionNeed {
                partition,
                generation,
                need,
            }));
        }
        needs
    }

    /// The queue, if it is still the one that something was read for.
    pub fn queue_of(&mut self, partition: usize, generation: u64) -> Option<&mut PartitionQueue> {
        self.queues.get_mut(partition).filter(|queue| queue.generation == generation)
    }

    /// Sees to it that what was passed over, or is gone, gets written.
    pub fn note_passed(&mut self, partition: usize) {
        let queue = &mut self.queues[partition];
        queue.dirty |= queue.passed >= PASSED_UNWRITTEN;
        if queue.dirty {
            self.version += 1;
        }
    }

    /// Does what a consumer says. `false`: the lease has expired or was superseded.
    pub fn settle(&mut self, settle: Settle, now: Times) -> bool {
        match settle {
            Settle::Ack(token) => {
                let Some(lease) = self.leases.settle(token, Verb::Ack) else {
                    return self.leases.was(token, Verb::Ack);
                };
                self.closed(&lease);
                let handled = Handled::new(Verb::Ack, &lease, now);
                self.done(SettleRequest { token, handled }, lease);
                true
            }
            Settle::Nack { lease: token, reason, delay } => {
                let Some(lease) = self.leases.settle(token, Verb::Nack) else {
                    return self.leases.was(token, Verb::Nack);
                };
                self.closed(&lease);
                let words = Some(SettleRequest { token, handled: Handled::new(Verb::Nack, &lease, now) });
                let reason = reason.as_deref().unwrap_or("nack").to_owned();
                self.failed(Failure { lease, words, reason, delay }, now);
                true
            }
            Settle::Bury { lease: token, reason } => {
                let Some(lease) = self.leases.settle(token, Verb::Nack) else {
                    return self.leases.was(token, Verb::Nack);
                };
                self.closed(&lease);
                let words = Some(SettleRequest { token, handled: Handled::new(Verb::Nack, &lease, now) });
                self.dies(Failure { lease, words, reason, delay: None });
                true
            }
            Settle::Extend { lease, by } => {
                let by = by.unwrap_or_else(|| self.options.ack_timeout());
                self.leases.extend(lease, now.instant + by)
            }
        }
    }

    /// Brings the metrics up to date.
    pub fn flush_times(&mut self) {
        self.handling.flush(&self.metrics.times.handlers);
    }

    fn closed(&mut self, lease: &Lease) {
        self.members.took_back(&lease.member);
        self.queues[lease.partition].in_flight -= 1;
    }

    /// Counts what was said of a delivery, once it is durable.
    fn count(&mut self, handled: Handled) {
        match handled.verb {
            Verb::Ack => self.metrics.counters.acked.add(1),
            Verb::Nack => self.metrics.counters.nacked.add(1),
        }
        self.handling.add(handled.took, &self.metrics.times.handlers);
    }

    fn done(&mut self, words: SettleRequest, lease: Lease) {
        let (partition, offset, key) = (lease.partition, lease.offset, lease.key);
        let said = self.said(words, lease);
        let queue = &mut self.queues[partition];
        queue.progress.settle(offset);
        queue.dirty = true;
        self.stage(partition, offset, Kind::Done(key), Some(said));
    }

    /// What is said of a lease with the next change.
    fn said(&self, words: SettleRequest, lease: Lease) -> UndoableSettle {
        let queue = &self.queues[lease.partition];
        let (before, resets) = (queue.progress.record(lease.offset), queue.resets);
        UndoableSettle { words, lease, before, resets, version: self.version + 1 }
    }

    fn stage(&mut self, partition: usize, offset: u64, kind: Kind, said: Option<UndoableSettle>) {
        let generation = self.queues[partition].generation;
        let handled = said.as_ref().map(|said| said.words.handled);
        let said = said.map(Box::new);
        self.staged.push(Outcome { partition, generation, offset, kind, said, handled });
        self.version += 1;
    }

    fn failed(&mut self, failure: Failure, now: Times) {
        let (partition, offset, key) = (failure.lease.partition, failure.lease.offset, failure.lease.key);
        let mut record = self.queues[partition].progress.record(offset).unwrap_or_default();
        record.attempts += 1;
        if record.attempts >= self.options.max_attempts {
            self.dies(failure);
            return;
        }
        let Failure { lease, words, reason: _, delay } = failure;
        let said = words.map(|words| self.said(words, lease));
        let pause = delay.unwrap_or_else(|| self.options.backoff(record.attempts));
        record.wait(pause, now.wall_ms);
        let queue = &mut self.queues[partition];
        queue.progress.note(offset, record);
        queue.dirty = true;
        self.stage(partition, offset, Kind::Retry(key, pause), said);
    }

    fn dies(&mut self, failure: Failure) {
        let Failure { lease, words, reason, delay: _ } = failure;
        let (partition, offset, key) = (lease.partition, lease.offset, lease.key);
        let said = words.map(|words| self.said(words, lease));
        let queue = &self.queues[partition];
        let before = queue.progress.record(offset);
        let record = before.unwrap_or_default();
        self.version += 1;
        self.dying.push_back(FinalFailure {
            partition,
            offset,
            attempts: record.attempts + 1,
            replays: record.replays,
            reason,
            is_lost: false,
            key,
            generation: queue.generation,
            resets: queue.resets,
            version: self.version,
            before,
            said,
        });
    }

    /// Takes deliveries back that their holder cannot settle any more.
    pub fn give_back(&mut self, tokens: &[LeaseToken], why: GivenBack, now: Times) {
        let mut open: Vec<LeaseToken> =
            tokens.iter().copied().filter(|token| self.leases.get_mut(*token).is_some()).collect();
        open.sort_unstable_by_key(|token| token.number);
        for (n, token) in open.into_iter().enumerate() {
            let Some(lease) = self.leases.close(token.number) else { continue };
            self.members.took_back(&lease.member);
            self.queues[lease.partition].in_flight -= 1;
            if why == GivenBack::ConnectionLost && n == 0 {
                let reason = "the connection was lost".into();
                self.failed(Failure { lease, words: None, reason, delay: Some(Duration::ZERO) }, now);
            } else {
                let queue = &mut self.queues[lease.partition];
                queue.note_returned(lease.offset);
                queue.requeue(lease.offset, KeyHold::Key(lease.key));
                self.stirred = true;
            }
        }
    }

    /// Whether those who wait should look again, since this was last asked.
    pub fn was_stirred(&mut self) -> bool {
        std::mem::take(&mut self.stirred)
    }

    /// Whether partitions got other owners, since this was last asked.
    pub fn was_moved(&mut self) -> bool {
        std::mem::take(&mut self.moved)
    }

    /// Does what is due: leases end, pauses are over, silent members are dropped.
    pub fn tick(&mut self, now: Times) {
        if self.leases.next_ending().is_some_and(|ending| ending <= now.instant) {
            for lease in self.leases.ended(now.instant) {
                self.closed(&lease);
                self.handling.add(now.instant - lease.given, &self.metrics.times.handlers);
                let (reason, delay) = (EXPIRED.into(), Some(Duration::ZERO));
                self.failed(Failure { lease, words: None, reason, delay }, now);
            }
        }
        self.end_of_stall(now.instant);
        while let Some(Reverse(due)) = self.due.peek()
            && due.at <= now.instant
        {
            let Some(Reverse(due)) = self.due.pop() else { break };
            let queue = self.queue_of(due.partition, due.generation);
            self.stirred |= queue.is_some_and(|queue| queue.end_of_pause(due.offset));
        }
        if self.options.mode == Mode::Partitioned && self.members.drop_silent(now.instant) {
            self.assign(None);
        }
    }

    /// When [`State::tick`] has something to do next.
    pub fn next_tick(&self) -> Option<Instant> {
        let silent = match self.options.mode {
            Mode::Shared => None,
            Mode::Partitioned => self.members.next_silent(),
        };
        let due = self.due.peek().map(|Reverse(due)| due.at);
        let stall = self.stall.map(|stall| stall.until);
        [self.leases.next_ending(), due, silent, stall, self.bury_at].into_iter().flatten().min()
    }
}
