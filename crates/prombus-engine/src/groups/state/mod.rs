//! The rules of a group as a state machine without waiting: what is delivered to whom, what an ack or nack means,
//! what happens when a lease ends or a member comes and goes.
//!
//! What changes is staged, written in one commit by whoever drives the machine, and takes effect when that commit
//! is durable: a key is free, and an event is due again, only then. So nobody is ever told something that a crash
//! could take back.

mod commits;
mod moves;
mod pledges;
#[cfg(test)]
mod tests;

pub use commits::{Batch, ChunkMove, LaneMove};
pub use pledges::Pledge;

use super::chunk::Record;
use super::lane::{Hold, Lane, Now, Pause, Rules, Want};
use super::lease::{Lease, LeaseToken, Leases, Verb};
use super::members::Members;
use super::metrics::{GroupMetrics, Tally};
use super::options::{GroupOptions, Mode};
use super::progress::Progress;
use super::pull::MAX_BATCH_BYTES;
use crate::filter::{BadFilter, Filter};
use commits::{Kind, Outcome};
use prombus_core::{CursorMove, Event, Partition, TopicState};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// What is passed over without anybody waiting for it is written when it is so much.
const PASSED_UNWRITTEN: u64 = 10_000;
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
    /// At most so many events.
    pub max: usize,
    /// At most so many open leases.
    pub max_in_flight: usize,
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
pub struct Dying {
    /// Its partition.
    pub lane: usize,
    /// Its offset.
    pub offset: u64,
    /// How often it was delivered.
    pub attempts: u32,
    /// How often it came back from the dead letters.
    pub replays: u32,
    /// Why the last attempt failed.
    pub reason: String,
    key: Option<u64>,
    generation: u64,
    resets: u64,
    version: u64,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: Instant,
    lane: usize,
    generation: u64,
    offset: u64,
}

/// What a lane waits to have read.
#[derive(Debug)]
pub struct LaneWant {
    /// Which lane.
    pub lane: usize,
    /// The generation that it is of.
    pub generation: u64,
    /// What.
    pub want: Want,
}

/// What is delivered. A filter that an earlier build took may not compile any more: then nothing is delivered, and
/// nothing settled, until the group is given another.
pub type GroupFilter = Result<Option<Filter>, BadFilter>;

fn compiled(options: &GroupOptions) -> GroupFilter {
    options.filter.as_deref().map(Filter::compile).transpose()
}

/// The state of a group.
pub struct State {
    /// Its options.
    pub options: Arc<GroupOptions>,
    /// What is delivered.
    pub filter: Arc<GroupFilter>,
    /// Its partitions.
    pub lanes: Vec<Lane>,
    /// Its open leases.
    pub leases: Leases,
    /// Who consumes.
    pub members: Members,
    /// What each lane must wait for after a growth, until it is there.
    gates: Vec<Vec<u64>>,
    due: BinaryHeap<Reverse<Due>>,
    staged: Vec<Outcome>,
    dying: VecDeque<Dying>,
    extras: Vec<CursorMove>,
    version: u64,
    durable: u64,
    turn: usize,
    metrics: GroupMetrics,
    /// Times of handlers that are not in the metrics yet.
    handling: Tally,
    /// Whether there may be more to deliver than those who wait know.
    stirred: bool,
    /// Whether partitions got other owners that nobody was told of.
    moved: bool,
}

impl State {
    /// A group whose partitions are at `lanes`.
    pub fn new(options: Arc<GroupOptions>, lanes: Vec<Lane>, metrics: GroupMetrics) -> Self {
        Self {
            members: Members::new(options.member_ttl()),
            filter: Arc::new(compiled(&options)),
            options,
            gates: vec![Vec::new(); lanes.len()],
            lanes,
            leases: Leases::new(),
            due: BinaryHeap::new(),
            staged: Vec::new(),
            dying: VecDeque::new(),
            extras: Vec::new(),
            version: 0,
            durable: 0,
            turn: 0,
            metrics,
            handling: Tally::default(),
            stirred: false,
            moved: false,
        }
    }

    /// What lanes go by.
    pub fn rules(&self) -> Rules {
        Rules { ordering: self.options.ordering, window: self.options.ack_window }
    }

    /// Counts the changes that were made.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Takes note of the partitions that the topic has. Lanes of new ones start at their beginning, and wait until
    /// the others have passed what was there before them.
    pub fn see_topic(&mut self, topic: &TopicState) {
        let known = self.lanes.len();
        // What was looked up may be older than what others have seen meanwhile.
        if (topic.config.partitions as usize) < known {
            return;
        }
        for _ in known..topic.config.partitions as usize {
            let mut lane = Lane::new(Progress::default(), 0, 0);
            lane.dirty = true;
            self.lanes.push(lane);
        }
        self.gates = (0..topic.config.partitions)
            .map(|partition| topic.before(Partition(partition)).iter().map(|end| end.0).collect())
            .collect();
        if self.lanes.len() > known {
            self.version += 1;
            self.stirred = true;
            self.assign();
        }
    }

    /// Whether a lane has not yet been allowed to start after a growth.
    pub fn is_gated(&self, lane: usize) -> bool {
        let mut before = self.gates[lane].iter().zip(&self.lanes);
        before.any(|(end, before)| before.durable_next < *end || before.progress.is_open_below(*end))
    }

    /// What holds a gate shut may only have to be written.
    fn write_for_gate(&mut self, lane: usize) {
        for (end, before) in self.gates[lane].iter().zip(&mut self.lanes) {
            if before.durable_next < *end && !before.progress.is_open_below(*end) && !before.dirty {
                before.dirty = true;
                self.version += 1;
            }
        }
    }

    fn may_deliver(&mut self, lane: usize, member: &str) -> bool {
        if !self.gates[lane].is_empty() {
            if self.is_gated(lane) {
                self.write_for_gate(lane);
                return false;
            }
            self.gates[lane].clear();
        }
        let mine = match self.options.mode {
            Mode::Shared => true,
            Mode::Partitioned => self.lanes[lane].owner.as_deref() == Some(member),
        };
        mine && self.lanes[lane].barrier <= self.durable
    }

    /// How many leases a member may still get.
    pub fn room(&self, take: &Take) -> usize {
        take.max_in_flight.saturating_sub(self.members.in_flight(&take.member))
    }

    /// Delivers what there is for a member.
    pub fn take(&mut self, take: &Take, now: Now) -> Vec<Delivery> {
        self.tick(now);
        let rules = self.rules();
        let max = take.max.min(self.room(take));
        let first = self.leases.next_number();
        let deadline = now.instant + self.options.ack_timeout();
        let (mut deliveries, mut bytes) = (Vec::new(), 0);
        let mut pauses = Vec::new();
        let mut latencies = Tally::default();
        self.turn = (self.turn + 1) % self.lanes.len().max(1);
        for n in 0..self.lanes.len() {
            let lane_at = (self.turn + n) % self.lanes.len();
            if deliveries.len() >= max || bytes >= MAX_BATCH_BYTES || !self.may_deliver(lane_at, &take.member)
            {
                continue;
            }
            let lane = &mut self.lanes[lane_at];
            while deliveries.len() < max
                && bytes < MAX_BATCH_BYTES
                && let Some(ready) = lane.pop(rules, now, &mut pauses)
            {
                let offset = ready.event.offset.0;
                let attempt = lane.progress.record(offset).map_or(0, |record| record.attempts) + 1;
                let lease = self.leases.open(Lease {
                    partition: lane_at,
                    offset,
                    key: ready.key,
                    member: take.member.clone(),
                    given: now.instant,
                    deadline,
                });
                lane.in_flight += 1;
                if attempt > 1 {
                    lane.redelivered += 1;
                    self.metrics.counters.redelivered.add(1);
                } else {
                    let age = now.wall_ms.saturating_sub(ready.event.recorded_ts);
                    latencies.add(Duration::from_millis(age), &self.metrics.times.latencies);
                }
                bytes += ready.event.payload.len();
                deliveries.push(Delivery { event: ready.event, lease, attempt, deadline });
            }
            let generation = lane.generation;
            for Pause { offset, remaining } in pauses.drain(..) {
                let at = now.instant + remaining;
                self.due.push(Reverse(Due { at, lane: lane_at, generation, offset }));
            }
        }
        latencies.flush(&self.metrics.times.latencies);
        self.leases.opened(first, deadline);
        self.members.gave(&take.member, deliveries.len());
        self.metrics.counters.delivered.add(deliveries.len() as u64);
        deliveries
    }

    /// Whether there is more that someone else may want, as far as is known.
    pub fn has_more(&self) -> bool {
        self.lanes.iter().any(Lane::has_more)
    }

    /// Whether events are due again whose bodies have to be read first.
    pub fn has_cold(&self) -> bool {
        self.lanes.iter().any(Lane::has_cold)
    }

    /// What has to be read before a member can get more; only what is due again where `cold` is set.
    pub fn wants(&mut self, member: &str, cold: bool) -> Vec<LaneWant> {
        let rules = self.rules();
        let mut wants = Vec::new();
        for n in 0..self.lanes.len() {
            // In the order in which they will be served.
            let lane = (self.turn + 1 + n) % self.lanes.len();
            if (cold && !self.lanes[lane].has_cold()) || !self.may_deliver(lane, member) {
                continue;
            }
            let generation = self.lanes[lane].generation;
            wants.extend(self.lanes[lane].want(rules).map(|want| LaneWant { lane, generation, want }));
        }
        wants
    }

    /// The lane, if it is still the one that something was read for.
    pub fn lane_of(&mut self, lane: usize, generation: u64) -> Option<&mut Lane> {
        self.lanes.get_mut(lane).filter(|lane| lane.generation == generation)
    }

    /// Sees to it that what was passed over, or is gone, gets written.
    pub fn note_passed(&mut self, lane: usize) {
        let lane = &mut self.lanes[lane];
        lane.dirty |= lane.passed >= PASSED_UNWRITTEN;
        if lane.dirty {
            self.version += 1;
        }
    }

    /// Does what a consumer says. `false`: the lease has expired or passed on.
    pub fn settle(&mut self, settle: Settle, now: Now) -> bool {
        match settle {
            Settle::Ack(token) => {
                let Some(lease) = self.leases.settle(token, Verb::Ack) else {
                    return self.leases.was(token, Verb::Ack);
                };
                self.closed(&lease, now);
                self.metrics.counters.acked.add(1);
                self.done(&lease);
                true
            }
            Settle::Nack { lease: token, reason, delay } => {
                let Some(lease) = self.leases.settle(token, Verb::Nack) else {
                    return self.leases.was(token, Verb::Nack);
                };
                self.closed(&lease, now);
                self.metrics.counters.nacked.add(1);
                self.failed(lease, reason.as_deref().unwrap_or("nack").to_owned(), delay, now);
                true
            }
            Settle::Bury { lease: token, reason } => {
                let Some(lease) = self.leases.settle(token, Verb::Nack) else {
                    return self.leases.was(token, Verb::Nack);
                };
                self.closed(&lease, now);
                self.metrics.counters.nacked.add(1);
                let record = self.lanes[lease.partition].progress.record(lease.offset).unwrap_or_default();
                self.dies(lease, Record { attempts: record.attempts + 1, ..record }, reason);
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

    fn closed(&mut self, lease: &Lease, now: Now) {
        self.members.took_back(&lease.member);
        self.lanes[lease.partition].in_flight -= 1;
        self.handling.add(now.instant - lease.given, &self.metrics.times.handlers);
    }

    fn done(&mut self, lease: &Lease) {
        let lane = &mut self.lanes[lease.partition];
        lane.progress.settle(lease.offset);
        lane.dirty = true;
        self.stage(lease.partition, lease.offset, Kind::Done(lease.key));
    }

    fn stage(&mut self, lane: usize, offset: u64, kind: Kind) {
        let generation = self.lanes[lane].generation;
        self.staged.push(Outcome { lane, generation, offset, kind });
        self.version += 1;
    }

    fn failed(&mut self, lease: Lease, reason: String, delay: Option<Duration>, now: Now) {
        let lane = &mut self.lanes[lease.partition];
        let mut record = lane.progress.record(lease.offset).unwrap_or_default();
        record.attempts += 1;
        if record.attempts >= self.options.max_attempts {
            self.dies(lease, record, reason);
            return;
        }
        let pause = delay.unwrap_or_else(|| self.options.backoff(record.attempts));
        record.wait(pause, now.wall_ms);
        lane.progress.note(lease.offset, record);
        lane.dirty = true;
        self.stage(lease.partition, lease.offset, Kind::Retry(lease.key, pause));
    }

    fn dies(&mut self, lease: Lease, record: Record, reason: String) {
        self.version += 1;
        self.dying.push_back(Dying {
            lane: lease.partition,
            offset: lease.offset,
            attempts: record.attempts,
            replays: record.replays,
            reason,
            key: lease.key,
            generation: self.lanes[lease.partition].generation,
            resets: self.lanes[lease.partition].resets,
            version: self.version,
        });
    }

    /// Takes deliveries back that their holder cannot settle any more. A lost connection counts as an attempt for
    /// the oldest of them; nothing else does.
    pub fn give_back(&mut self, tokens: &[LeaseToken], lost_connection: bool, now: Now) {
        let mut open: Vec<LeaseToken> =
            tokens.iter().copied().filter(|token| self.leases.get_mut(*token).is_some()).collect();
        open.sort_unstable_by_key(|token| token.number);
        for (n, token) in open.into_iter().enumerate() {
            let Some(lease) = self.leases.close(token.number) else { continue };
            self.members.took_back(&lease.member);
            self.lanes[lease.partition].in_flight -= 1;
            if lost_connection && n == 0 {
                self.failed(lease, "the connection was lost".into(), Some(Duration::ZERO), now);
            } else {
                self.lanes[lease.partition].again(lease.offset, Hold::Key(lease.key));
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
    pub fn tick(&mut self, now: Now) {
        if self.leases.next_ending().is_some_and(|ending| ending <= now.instant) {
            for lease in self.leases.ended(now.instant) {
                self.closed(&lease, now);
                self.failed(lease, EXPIRED.into(), Some(Duration::ZERO), now);
            }
        }
        while let Some(Reverse(due)) = self.due.peek()
            && due.at <= now.instant
        {
            let Some(Reverse(due)) = self.due.pop() else { break };
            let lane = self.lane_of(due.lane, due.generation);
            self.stirred |= lane.is_some_and(|lane| lane.end_of_pause(due.offset));
        }
        if self.options.mode == Mode::Partitioned && self.members.drop_silent(now.instant) {
            self.assign();
        }
    }

    /// When [`State::tick`] has something to do next.
    pub fn next_tick(&self) -> Option<Instant> {
        let silent = match self.options.mode {
            Mode::Shared => None,
            Mode::Partitioned => self.members.next_silent(),
        };
        let due = self.due.peek().map(|Reverse(due)| due.at);
        [self.leases.next_ending(), due, silent].into_iter().flatten().min()
    }
}
