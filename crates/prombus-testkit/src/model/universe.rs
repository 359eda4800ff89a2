//! The few names that random commits are made of: few, so that they meet.

use crate::build::{self, producer_id};
use prombus_core::{CursorKey, Partition, TopicName};
use uuid::Uuid;

/// How long the topics remember ids.
pub const WINDOW_MS: u64 = 4_000;
/// A topic grows to so many partitions.
pub const MAX_PARTITIONS: u32 = 4;
/// The keys of events.
pub const KEYS: [&str; 7] = ["k0", "k1", "k2", "k3", "k4", "ключ", ""];
/// The collections.
pub const COLLECTIONS: [&str; 2] = ["c0", "c1"];
/// The keys of documents.
pub const DOCUMENTS: [&str; 4] = ["d0", "d1", "d10", "é"];
/// Who has cursors.
pub const READERS: [&str; 2] = ["r0", "r1"];
/// How many ids producers bring.
const OWN_IDS: u64 = 16;

/// The topics.
pub fn topics() -> [TopicName; 3] {
    ["m.a", "m.b", "m.c"].map(build::topic)
}

/// The ids that producers bring.
pub fn own_ids() -> impl Iterator<Item = Uuid> {
    (0..OWN_IDS).map(producer_id)
}

/// One of the ids that producers bring.
pub fn own_id(rng: &mut fastrand::Rng) -> Uuid {
    producer_id(rng.u64(0..OWN_IDS))
}

/// Whether a producer brought this id, and no store made it.
pub fn is_own(id: Uuid) -> bool {
    own_ids().any(|own| own == id)
}

/// All cursors that there can be.
pub fn cursors() -> impl Iterator<Item = CursorKey> {
    let of_topic = |topic: TopicName| {
        READERS.into_iter().flat_map(move |reader| {
            let topic = topic.clone();
            (0..MAX_PARTITIONS).map(move |partition| CursorKey {
                topic: topic.clone(),
                reader: reader.to_owned(),
                partition: Partition(partition),
            })
        })
    };
    topics().into_iter().flat_map(of_topic)
}
