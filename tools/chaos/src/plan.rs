//! What a round does. It follows from the seed alone, so that a failed round can be repeated.

use fastrand::Rng;
use std::time::Duration;

/// The hub is ended within this after its first answer.
const LONGEST_LOAD: Duration = Duration::from_millis(1_500);
/// A start that is interrupted is so within this; opening the folder takes about as long.
const LONGEST_START: Duration = Duration::from_millis(60);
/// One round in so many ends with SIGTERM under load instead of SIGKILL.
const TERMINATE_ONE_IN: u32 = 10;
/// One start in so many is killed before it is done.
const INTERRUPT_ONE_IN: u32 = 5;
/// Small parts, so that rolling, sealing and checkpoints happen all the time.
const PART_BYTES: [u64; 4] = [64 << 10, 256 << 10, 1 << 20, 4 << 20];
/// After so many rounds parts are twice as large, or a long run would have more files than a process may open.
const DOUBLE_EVERY: u32 = 250;

/// A topic of the load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topic {
    /// Its name.
    pub name: String,
    /// How many partitions it has.
    pub partitions: u32,
    /// What its publishes wait for, as answers say it.
    pub durability: &'static str,
}

/// The topics that are there in all rounds.
pub fn lasting_topics() -> Vec<Topic> {
    let topic = |name: &str, partitions, durability| Topic { name: name.to_owned(), partitions, durability };
    vec![
        topic("sync.one", 1, "sync"),
        topic("sync.four", 4, "sync"),
        topic("interval.one", 1, "interval"),
        topic("interval.four", 4, "interval"),
    ]
}

/// How the hub ends while it is under load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// SIGKILL.
    Kill,
    /// SIGTERM.
    Terminate,
}

/// One round.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Which one, from 1.
    pub round: u32,
    /// Where the randomness of its load comes from.
    pub seed: u64,
    /// How many connections publish at once.
    pub connections: usize,
    /// How long after the first answer the hub is ended.
    pub end_after: Duration,
    /// How it is ended.
    pub end: End,
    /// Starts after that which are killed after so long, before the one that counts.
    pub interrupted_starts: Vec<Duration>,
    /// The part size from then on.
    pub part_bytes: u64,
}

/// What all rounds have in common.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Where all randomness comes from.
    pub seed: u64,
    /// How many connections publish at once.
    pub connections: usize,
    /// The part size, where it is always the same.
    pub part_bytes: Option<u64>,
}

impl Plan {
    /// The plan of a round.
    pub fn new(setting: Setting, round: u32) -> Self {
        let mut rng = Rng::with_seed(setting.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(round));
        let mut within = |longest: Duration| longest.mul_f64(rng.f64());
        let (end_after, first, second) = (within(LONGEST_LOAD), within(LONGEST_START), within(LONGEST_START));
        let end = if rng.u32(..TERMINATE_ONE_IN) == 0 { End::Terminate } else { End::Kill };
        let mut interrupted_starts = vec![first, second];
        interrupted_starts.retain(|_| rng.u32(..INTERRUPT_ONE_IN) == 0);
        let part_bytes = PART_BYTES[rng.usize(..PART_BYTES.len())] << (round / DOUBLE_EVERY).min(4);
        Self {
            round,
            seed: rng.u64(..),
            connections: setting.connections,
            end_after,
            end,
            interrupted_starts,
            part_bytes: setting.part_bytes.unwrap_or(part_bytes),
        }
    }

    /// The topic that is created in this round, by its first publish.
    pub fn fresh_topic(&self) -> Topic {
        Topic { name: fresh_name(self.round), partitions: 1, durability: "sync" }
    }

    /// The topics that are published to.
    pub fn topics(&self) -> Vec<Topic> {
        lasting_topics().into_iter().chain([self.fresh_topic()]).collect()
    }
}

/// Whether a topic is one of these, and not one of another part of the load on the same hubs.
pub fn is_of_log(topic: &str) -> bool {
    lasting_topics().iter().any(|lasting| lasting.name == topic) || topic.starts_with(FRESH)
}

/// What the names of topics begin with that are created in a round.
const FRESH: &str = "fresh.r";

/// The name of the topic that is created in a round.
pub fn fresh_name(round: u32) -> String {
    format!("{FRESH}{round}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_follows_from_the_seed() {
        let setting = Setting { seed: 7, connections: 8, part_bytes: None };
        let text = |setting, round| format!("{:?}", Plan::new(setting, round));
        assert_eq!(text(setting, 3), text(setting, 3));
        assert_ne!(text(setting, 3), text(setting, 4));
        assert_ne!(text(setting, 3), text(Setting { seed: 8, ..setting }, 3));
        assert_eq!(Plan::new(Setting { part_bytes: Some(5), ..setting }, 1).part_bytes, 5);
    }

    #[test]
    fn rounds_differ_in_every_way() {
        let setting = Setting { seed: 1, connections: 8, part_bytes: None };
        let plans: Vec<Plan> = (1..200).map(|round| Plan::new(setting, round)).collect();
        assert!(plans.iter().any(|plan| plan.end == End::Terminate));
        assert!(plans.iter().any(|plan| plan.interrupted_starts.len() == 2));
        assert!(plans.iter().all(|plan| plan.end_after <= LONGEST_LOAD));
        assert!(PART_BYTES.iter().all(|bytes| plans.iter().any(|plan| plan.part_bytes == *bytes)));
    }
}
