//! What is known to be stored after all rounds so far, kept small: a digest and a few facts per partition.

use super::draft::Draft;
use super::plan::Topic;
use super::reader::ReaderStart;
use super::request::Position;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use uuid::Uuid;
use xxhash_rust::xxh3::Xxh3;

/// Maximum number of old events that are kept to be repeated and looked up later.
const MAX_OLDS: usize = 400;

/// A key of a topic.
pub type ChainKey = (String, String);

/// An event of an earlier round.
#[derive(Debug, Clone)]
pub struct Old {
    /// Its topic.
    pub topic: Arc<Topic>,
    /// What was sent.
    pub draft: Arc<Draft>,
    /// Where it is.
    pub place: Position,
}

/// What is known of a partition.
#[derive(Default)]
pub struct PartitionFacts {
    /// How many events it has.
    pub next: u64,
    /// Everything that an export of it says, so far.
    pub digest: Xxh3,
    /// The last id that the hub made.
    pub last_hub_id: Option<Uuid>,
    /// When its last event was taken.
    pub last_recorded_ts: u64,
}

/// What is known.
#[derive(Default)]
pub struct Ledger {
    /// The partitions of each topic.
    pub topics: BTreeMap<String, Vec<PartitionFacts>>,
    /// The last event of each chain.
    pub heads: HashMap<ChainKey, Uuid>,
    /// Which partition a key goes to.
    pub key_partitions: HashMap<ChainKey, u32>,
    /// Some old events with ids of their own.
    pub olds: Vec<Old>,
    /// How many events there were in all.
    pub events: u64,
}

impl Ledger {
    /// The partitions of a topic, which is taken in if it is new.
    pub fn partitions(&mut self, topic: &Topic) -> &mut Vec<PartitionFacts> {
        let partitions = self.topics.entry(topic.name.clone()).or_default();
        partitions.resize_with(topic.partitions as usize, PartitionFacts::default);
        partitions
    }

    /// Remembers an event; one of those before makes place.
    pub fn remember(&mut self, old: Old, rng: &mut fastrand::Rng) {
        if self.olds.len() < MAX_OLDS {
            self.olds.push(old);
        } else {
            let place = rng.usize(..MAX_OLDS);
            self.olds[place] = old;
        }
    }

    /// Forgets a topic that was deleted.
    pub fn forget(&mut self, topic: &str) {
        self.topics.remove(topic);
        self.olds.retain(|old| old.topic.name != topic);
        self.key_partitions.retain(|(name, _), _| name != topic);
    }

    /// Where a reader of these topics goes on.
    pub fn reader_starts(&self, topics: Vec<Topic>) -> Vec<ReaderStart> {
        let next = |topic: &Topic| match self.topics.get(&topic.name) {
            Some(partitions) => partitions.iter().map(|partition| partition.next).collect(),
            None => vec![0; topic.partitions as usize],
        };
        topics.into_iter().map(|topic| ReaderStart { next: next(&topic), topic }).collect()
    }
}
