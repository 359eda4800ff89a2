//! The groups that exist in all rounds, and what their members do in each.

use crate::plan::Plan;
use fastrand::Rng;
use serde_json::{Value, json};
use std::time::Duration;

/// How many partitions a topic has at first, and at most.
pub const PARTITIONS: (u32, u32) = (2, 8);
/// The first pause between attempts that fail.
const BACKOFF_MS: u64 = 30;
/// A topic grows in one round of so many.
const GROW_ONE_IN: u32 = 3;
/// Members hang up on pulls in one round of so many.
const HANG_UPS_ONE_IN: u32 = 3;
/// What a group with a filter gets, as the hub is told it.
const FILTER: &str = "event.payload.n % 3 != 0";

/// A topic that groups are on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Topic {
    /// Its name.
    pub name: &'static str,
    /// What publishes and acks wait for.
    pub durability: &'static str,
}

/// The topics.
pub const TOPICS: [Topic; 2] = [
    Topic { name: "jobs.sync", durability: "sync" },
    Topic { name: "jobs.interval", durability: "interval" },
];

/// What waits for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ordering {
    /// Later events of a key wait for earlier ones.
    Key,
    /// Nothing waits.
    None,
    /// Everything in a partition waits.
    Partition,
}

/// A group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spec {
    /// Its topic.
    pub topic: &'static str,
    /// Its name.
    pub group: &'static str,
    /// Whether each partition has one member.
    pub partitioned: bool,
    /// What waits for what.
    pub ordering: Ordering,
    /// How long a lease holds.
    pub ack_timeout_ms: u64,
    /// After how many attempts an event is a dead letter.
    pub max_attempts: u32,
    /// How far it may be ahead of its oldest unsettled event.
    pub ack_window: u64,
    /// Whether it has a filter.
    pub filtered: bool,
    /// How many members it has at once.
    pub members: u32,
    /// Of so many deliveries, one is not simply acked. It is large where one stuck event holds up all others.
    pub trouble_one_in: u32,
}

const BASE: Spec = Spec {
    topic: "jobs.sync",
    group: "by-key",
    partitioned: false,
    ordering: Ordering::Key,
    ack_timeout_ms: 400,
    max_attempts: 3,
    ack_window: 100_000,
    filtered: false,
    members: 4,
    trouble_one_in: 3,
};

/// The groups.
pub const SPECS: [Spec; 8] = [
    BASE,
    Spec { group: "any", ordering: Ordering::None, ack_timeout_ms: 300, members: 3, ..BASE },
    Spec { group: "strict", ordering: Ordering::Partition, ack_timeout_ms: 300, trouble_one_in: 30, ..BASE },
    Spec { group: "owned", partitioned: true, ack_timeout_ms: 500, ..BASE },
    Spec { group: "some", filtered: true, ack_timeout_ms: 800, max_attempts: 2, members: 3, ..BASE },
    Spec { topic: "jobs.interval", group: "by-key", ack_window: 40, max_attempts: 4, ..BASE },
    Spec { topic: "jobs.interval", group: "any", ordering: Ordering::None, max_attempts: 1, ..BASE },
    Spec {
        topic: "jobs.interval",
        group: "owned",
        partitioned: true,
        ordering: Ordering::Partition,
        trouble_one_in: 30,
        members: 3,
        ..BASE
    },
];

impl Spec {
    /// Its options, as the hub is told them.
    pub fn options(&self) -> Value {
        json!({
            "from": "earliest",
            "mode": if self.partitioned { "partitioned" } else { "shared" },
            "ordering": match self.ordering {
                Ordering::Key => "key",
                Ordering::None => "none",
                Ordering::Partition => "partition",
            },
            "ackTimeoutMs": self.ack_timeout_ms,
            "maxAttempts": self.max_attempts,
            "backoffMs": BACKOFF_MS,
            "ackWindow": self.ack_window,
            "filter": self.filtered.then_some(FILTER),
            "memberTtlMs": 400,
        })
    }

    /// Whether an event with this number is for the group. It says the same as [`FILTER`].
    pub fn wants(&self, number: u64) -> bool {
        !self.filtered || !number.is_multiple_of(3)
    }

    /// The pause after an attempt that failed, in microseconds: none the first time, then longer and longer.
    pub fn backoff_us(attempt: u32) -> u64 {
        attempt.checked_sub(2).map_or(0, |doublings| (BACKOFF_MS * 1_000) << doublings)
    }

    /// How long a lease holds, in microseconds.
    pub fn lease_us(&self) -> u64 {
        self.ack_timeout_ms * 1_000
    }
}

/// When a topic gets more partitions.
#[derive(Debug, Clone, Copy)]
pub struct Growth {
    /// The topic.
    pub topic: Topic,
    /// How many more.
    pub by: u32,
    /// How long after the start of the load.
    pub after: Duration,
}

/// What a round does with groups. It follows from the plan of the round.
#[derive(Debug, Clone)]
pub struct GroupsPlan {
    /// When and how the hub ends, and how often it is started in vain.
    pub base: Plan,
    /// Which topic grows, if one does.
    pub growth: Option<Growth>,
    /// Whether members hang up on pulls.
    pub hang_ups: bool,
}

impl GroupsPlan {
    /// What goes with a plan.
    pub fn new(base: Plan) -> Self {
        let mut rng = Rng::with_seed(base.seed ^ 0x6772_6f75_7073);
        let topic = TOPICS[rng.usize(..TOPICS.len())];
        let growth = Growth { topic, by: rng.u32(1..=2), after: base.end_after.mul_f64(rng.f64()) };
        let grows = rng.u32(..GROW_ONE_IN) == 0;
        let hang_ups = rng.u32(..HANG_UPS_ONE_IN) == 0;
        Self { base, growth: grows.then_some(growth), hang_ups }
    }

    /// A source of randomness for one of the tasks of the round.
    pub fn rng(&self, task: &str) -> Rng {
        Rng::with_seed(self.base.seed ^ xxhash_rust::xxh3::xxh3_64(task.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Setting;

    #[test]
    fn rounds_follow_from_the_seed_and_differ() {
        let setting = Setting { seed: 7, connections: 1, part_bytes: None };
        let plan = |round| GroupsPlan::new(Plan::new(setting, round));
        assert_eq!(format!("{:?}", plan(3)), format!("{:?}", plan(3)));
        assert_ne!(plan(3).rng("a").u64(..), plan(3).rng("b").u64(..));
        let growths: Vec<Growth> = (1..100).filter_map(|round| plan(round).growth).collect();
        assert!(growths.len() > 10 && growths.len() < 90);
        assert!(TOPICS.iter().all(|topic| growths.iter().any(|growth| growth.topic == *topic)));
    }

    #[test]
    fn groups_have_names_of_their_own() {
        for (n, spec) in SPECS.iter().enumerate() {
            assert!(TOPICS.iter().any(|topic| topic.name == spec.topic));
            assert!(SPECS[..n].iter().all(|other| (other.topic, other.group) != (spec.topic, spec.group)));
        }
    }
}
