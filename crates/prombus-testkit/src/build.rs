//! Short ways to say the commits that the behaviours need.

use bytes::Bytes;
use prombus_core::hashing::partition_of;
use prombus_core::{Expect, Json, NewEvent, Partition, TopicConfig, TopicName};
use uuid::Uuid;

/// An event to publish, before its partition is decided.
#[derive(Debug, Clone)]
pub struct Draft {
    /// The event.
    pub event: NewEvent,
    /// The partition that the producer names. An event with a key goes where the key says.
    pub partition: Option<Partition>,
    /// What must hold for it.
    pub expect: Option<Expect>,
}

/// An event with this payload.
pub fn event(payload: &str) -> Draft {
    Draft { event: NewEvent::new(json(payload)), partition: None, expect: None }
}

/// An event that can be told from others by its number.
pub fn numbered(n: usize) -> Draft {
    event(&format!("{{\"n\":{n}}}"))
}

impl Draft {
    /// With a key.
    #[must_use]
    pub fn key(mut self, key: &str) -> Self {
        self.event.key = Some(key.into());
        self
    }

    /// With the producer's own id.
    #[must_use]
    pub fn id(mut self, id: Uuid) -> Self {
        self.event.id = Some(id);
        self
    }

    /// With the producer's own time.
    #[must_use]
    pub fn ts(mut self, ts: u64) -> Self {
        self.event.ts = Some(ts);
        self
    }

    /// In a partition of the producer's choice.
    #[must_use]
    pub fn in_partition(mut self, partition: u32) -> Self {
        self.partition = Some(Partition(partition));
        self
    }

    /// Only if the latest event of its key has this id, or if there is none.
    #[must_use]
    pub fn expecting(mut self, last_id: Option<Uuid>) -> Self {
        self.expect = Some(Expect { last_id });
        self
    }
}

/// The JSON of `text`, which must be some.
pub fn json(text: &str) -> Json {
    match Json::parse(Bytes::copy_from_slice(text.as_bytes())) {
        Ok(json) => json,
        Err(error) => panic!("{text} is not JSON: {error}"),
    }
}

/// The topic of that name, which must be a valid one.
pub fn topic(name: &str) -> TopicName {
    match TopicName::parse(name) {
        Ok(name) => name,
        Err(error) => panic!("{error}"),
    }
}

/// The default settings with so many partitions.
pub fn partitions(partitions: u32) -> TopicConfig {
    TopicConfig { partitions, ..TopicConfig::default() }
}

/// The `n`th of the ids that producers bring in these tests. They are of version 4, so that they can be told
/// from those that a store makes.
pub fn producer_id(n: u64) -> Uuid {
    Uuid::from_u128(0x0abc_0000_0000_4000_8000_0000_0000_0000 | u128::from(n))
}

/// Keys that lie in partition 0 of a topic with one partition, and elsewhere once it has `partitions`.
pub fn moving_keys(partitions: u32) -> impl Iterator<Item = String> {
    (0..)
        .map(|n: u32| format!("moving-{n}"))
        .filter(move |key| partition_of(key.as_bytes(), partitions) != Partition(0))
}

/// Keys that stay in partition 0 also when the topic has `partitions`.
pub fn staying_keys(partitions: u32) -> impl Iterator<Item = String> {
    (0..)
        .map(|n: u32| format!("staying-{n}"))
        .filter(move |key| partition_of(key.as_bytes(), partitions) == Partition(0))
}
