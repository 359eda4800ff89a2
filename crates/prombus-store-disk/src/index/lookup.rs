//! What events are looked up by: hashes of their ids and keys, seeded by topic.

use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// What an event is looked up by. A hash only locates events: the caller compares the event itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookupKey {
    /// Its id as a number, with the hash of that.
    Id(u128, u64),
    /// The hash of its key.
    Key(u64),
}

impl LookupKey {
    /// By an id of a topic.
    pub fn id(topic: u32, id: Uuid) -> Self {
        Self::Id(id.as_u128(), id_hash(topic, id))
    }

    /// By a key of a topic.
    pub fn key(topic: u32, key: &[u8]) -> Self {
        Self::Key(key_hash(topic, key))
    }
}

/// The hash that ids of a topic are indexed by.
pub fn id_hash(topic: u32, id: Uuid) -> u64 {
    xxh3_64_with_seed(id.as_bytes(), u64::from(topic))
}

/// The hash that keys of a topic are indexed by.
pub fn key_hash(topic: u32, key: &[u8]) -> u64 {
    xxh3_64_with_seed(key, u64::from(topic))
}
