//! What a seed decides before anything happens: the topic, the groups, and how many lives the hub has.

use prombus_engine::groups::{GroupCall, Mode, OptionsPatch, Ordering};
use prombus_engine::query::From;
use std::time::Duration;

/// What a group that filters asks for.
pub fn filter() -> String {
    format!("event.payload.n % {DROPPED_MULTIPLES} != 0")
}

/// Events whose number it divides are dropped by a group that filters.
pub const DROPPED_MULTIPLES: u64 = 3;

/// A group of the simulation.
#[derive(Debug, Clone)]
pub struct GroupPlan {
    pub name: String,
    pub mode: Mode,
    pub ordering: Ordering,
    pub ack_timeout: Duration,
    pub max_attempts: u32,
    pub backoff_ms: u64,
    pub filters: bool,
    pub ack_window: u64,
    pub member_ttl: Duration,
    pub members: usize,
    /// How many of a hundred deliveries are just acked.
    pub good_percent: u32,
}

impl GroupPlan {
    fn new(n: usize, rng: &mut fastrand::Rng) -> Self {
        Self {
            name: format!("g{n}"),
            mode: if rng.bool() { Mode::Shared } else { Mode::Partitioned },
            ordering: match rng.u32(..5) {
                0..3 => Ordering::Key,
                3 => Ordering::Partition,
                _ => Ordering::None,
            },
            ack_timeout: Duration::from_millis(rng.u64(20..300)),
            max_attempts: rng.u32(1..6),
            backoff_ms: rng.u64(0..40),
            filters: rng.u32(..3) == 0,
            ack_window: [1, 2, 5, 20, 100_000][rng.usize(..5)],
            member_ttl: Duration::from_millis(rng.u64(50..800)),
            members: rng.usize(1..5),
            good_percent: [20, 60, 90][rng.usize(..3)],
        }
    }

    /// Whether the group is about the event of this number.
    pub fn wants(&self, number: u64) -> bool {
        !self.filters || !number.is_multiple_of(DROPPED_MULTIPLES)
    }

    pub fn call(&self) -> GroupCall {
        let filter = self.filters.then(filter);
        let options = OptionsPatch {
            mode: Some(self.mode),
            ordering: Some(self.ordering),
            ack_timeout_ms: Some(self.ack_timeout.as_millis() as u64),
            max_attempts: Some(self.max_attempts),
            backoff_ms: Some(self.backoff_ms),
            filter: filter.map(Some),
            normalize: None,
            ack_window: Some(self.ack_window),
            member_ttl_ms: Some(self.member_ttl.as_millis() as u64),
        };
        GroupCall { from: From::Earliest, options }
    }

    /// Whether a partition must have had the same owner all the time, by how often partitions had moved.
    pub fn stayed(&self, before: u64, now: u64) -> bool {
        self.mode == Mode::Shared || before == now
    }

    /// The pause that the group makes by itself after so many failures.
    pub fn backoff(&self, failures: u32) -> Duration {
        match failures {
            0 | 1 => Duration::ZERO,
            more => Duration::from_millis((self.backoff_ms << (more - 2)).min(30_000)),
        }
    }
}

/// Everything that is decided beforehand.
#[derive(Debug, Clone)]
pub struct Plan {
    pub partitions: u32,
    pub groups: Vec<GroupPlan>,
    /// How long each life of the hub lasts, but for the last one, in which everything gets done.
    pub lives: Vec<Duration>,
    pub events: u64,
    pub keys: u32,
    pub store_refuses: bool,
    /// Whether events are given up now and then.
    pub gives_up: bool,
    /// Whether two hubs share the store, each of which stalls now and then; and after how long the other takes over.
    pub hub_ttl: Option<Duration>,
}

impl Plan {
    pub fn new(rng: &mut fastrand::Rng) -> Self {
        let groups = rng.usize(1..3);
        let hub_ttl = (rng.u32(..3) == 0).then(|| Duration::from_millis(rng.u64(30..300)));
        Self {
            partitions: rng.u32(1..4),
            groups: (0..groups).map(|n| GroupPlan::new(n, rng)).collect(),
            lives: (0..rng.usize(1..5)).map(|_| Duration::from_millis(rng.u64(5..1_500))).collect(),
            events: rng.u64(10..90),
            keys: rng.u32(1..8),
            store_refuses: rng.bool(),
            gives_up: rng.bool(),
            hub_ttl,
        }
    }

    /// Two hubs, and members that take their time, so that much is open when one of them takes over.
    pub fn of_two_hubs(rng: &mut fastrand::Rng) -> Self {
        let hub_ttl = Some(Duration::from_millis(rng.u64(30..150)));
        let mut plan = Self { hub_ttl, ..Self::new(rng) };
        for group in &mut plan.groups {
            group.good_percent = 20;
            group.ack_timeout *= 2;
        }
        plan
    }
}
