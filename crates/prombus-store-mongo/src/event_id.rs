//! Where an event lies, as the key of its document, and ids that tell the same.
//!
//! The key is binary and of fixed length, because BSON puts binaries in order by their length first. It begins with a slot, by
//! which topics can be spread over shards, so that all of a topic stays together.
//!
//! An id that a store makes has the time, offset, partition and topic of its event in it: so it grows within a partition,
//! whichever hub makes it, and it is found without an index.

use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson};
use prombus_core::{Offset, Partition};
use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_64;

/// How long the key of an event is.
const KEY_BYTES: usize = 2 + 4 + 4 + 8;
/// The bits of an id that tell offset, partition and topic.
const OFFSET_BITS: u32 = 40;
const PARTITION_BITS: u32 = 10;
const TOPIC_BITS: u32 = 24;

/// Where an event is within its topic.
pub type At = (Partition, Offset);

fn binary(bytes: Vec<u8>) -> Bson {
    Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes })
}

fn start(topic: u32) -> Vec<u8> {
    let mut key = Vec::with_capacity(KEY_BYTES);
    let slot = (xxh3_64(&topic.to_le_bytes()) >> 48) as u16;
    key.extend_from_slice(&slot.to_be_bytes());
    key.extend_from_slice(&topic.to_be_bytes());
    key
}

/// The bytes of the key of an event.
pub fn key_bytes(topic: u32, (partition, offset): At) -> Vec<u8> {
    let mut key = start(topic);
    key.extend_from_slice(&partition.0.to_be_bytes());
    key.extend_from_slice(&offset.0.to_be_bytes());
    key
}

/// The key of an event.
pub fn key(topic: u32, at: At) -> Bson {
    binary(key_bytes(topic, at))
}

/// The key that no event of the topic has, and all come before.
pub fn end_of_topic(topic: u32) -> Bson {
    key(topic, (Partition(u32::MAX), Offset(u64::MAX)))
}

/// Topic, partition and offset of a key.
pub fn parts(key: &[u8]) -> Option<(u32, At)> {
    if key.len() != KEY_BYTES {
        return None;
    }
    let topic = u32::from_be_bytes(key[2..6].try_into().ok()?);
    let partition = u32::from_be_bytes(key[6..10].try_into().ok()?);
    let offset = u64::from_be_bytes(key[10..18].try_into().ok()?);
    Some((topic, (Partition(partition), Offset(offset))))
}

fn topic_bits(topic: u32, salt: u32) -> u128 {
    u128::from((topic ^ salt) & ((1 << TOPIC_BITS) - 1))
}

/// The id of an event that its producer gave none. `salt` tells databases apart.
pub fn made_id(recorded_ts: u64, topic: u32, (partition, offset): At, salt: u32) -> Uuid {
    let offset = u128::from(offset.0 & ((1 << OFFSET_BITS) - 1));
    let partition = u128::from(partition.0 & ((1 << PARTITION_BITS) - 1));
    let rest = offset << (PARTITION_BITS + TOPIC_BITS) | partition << TOPIC_BITS | topic_bits(topic, salt);
    let time = u128::from(recorded_ts & 0xffff_ffff_ffff);
    let (high, low) = (rest >> 62, rest & ((1 << 62) - 1));
    Uuid::from_u128(time << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low)
}

/// Where an event of the topic with this id would be if a store made the id. What lies there may be another one.
pub fn place_of(id: Uuid, topic: u32, salt: u32) -> Option<At> {
    let bits = id.as_u128();
    let is_v7 = bits >> 76 & 0xf == 7 && bits >> 62 & 0b11 == 0b10;
    let rest = (bits >> 64 & 0xfff) << 62 | bits & ((1 << 62) - 1);
    if !is_v7 || rest & ((1 << TOPIC_BITS) - 1) != topic_bits(topic, salt) {
        return None;
    }
    let partition = rest >> TOPIC_BITS & ((1 << PARTITION_BITS) - 1);
    let offset = rest >> (TOPIC_BITS + PARTITION_BITS);
    Some((Partition(partition as u32), Offset(offset as u64)))
}

/// An id as it is stored.
pub fn id_bson(id: Uuid) -> Bson {
    Bson::Binary(Binary { subtype: BinarySubtype::Uuid, bytes: id.as_bytes().to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_made_id_says_where_its_event_is() {
        let places = [(0, 0), (1, 7), (1_023, (1 << OFFSET_BITS) - 1)];
        for (partition, offset) in places {
            let at = (Partition(partition), Offset(offset));
            let id = made_id(1_754_683_200_123, 77, at, 0xabcdef);
            assert_eq!((id.get_version_num(), id.get_variant()), (7, uuid::Variant::RFC4122));
            assert_eq!(id.as_u128() >> 80, 1_754_683_200_123);
            assert_eq!(place_of(id, 77, 0xabcdef), Some(at));
            assert_eq!(place_of(id, 78, 0xabcdef), None, "another topic");
        }
        assert_eq!(place_of(Uuid::from_u128(7), 77, 0), None, "no id of ours");
    }

    #[test]
    fn made_ids_grow_with_time_and_offset() {
        let id = |ts, offset| made_id(ts, 9, (Partition(3), Offset(offset)), 5);
        assert!(id(5, 1) < id(5, 2) && id(5, 255) < id(5, 256) && id(5, 9) < id(6, 10));
    }

    #[test]
    fn keys_have_the_order_of_events() {
        let key = |topic, partition, offset| key_bytes(topic, (Partition(partition), Offset(offset)));
        assert!(key(1, 0, 255) < key(1, 0, 256) && key(1, 0, u64::MAX) < key(1, 1, 0));
        assert_eq!(parts(&key(7, 1, 2)), Some((7, (Partition(1), Offset(2)))));
        assert_eq!(parts(&[0; 5]), None);
    }
}
