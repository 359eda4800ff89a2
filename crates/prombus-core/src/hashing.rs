//! Which partition an event goes to, and which member owns a partition: pure functions.

use crate::position::Partition;
use xxhash_rust::xxh3::xxh3_64;

/// Jump consistent hash (Lamping & Veach, 2014): the bucket of `key` among `buckets` (at least 1).
/// When a bucket is added, a key either stays or moves to the new one.
pub fn jump_hash(mut key: u64, buckets: u32) -> u32 {
    let (mut bucket, mut next) = (-1i64, 0i64);
    while next < i64::from(buckets) {
        bucket = next;
        key = key.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        next = ((bucket + 1) as f64 * ((1u64 << 31) as f64 / ((key >> 33) + 1) as f64)) as i64;
    }
    bucket.max(0) as u32
}

/// The partition of `bytes` (a key, or the 16 bytes of a producer's id) in a topic with `partitions`.
pub fn partition_of(bytes: &[u8], partitions: u32) -> Partition {
    Partition(jump_hash(xxh3_64(bytes), partitions))
}

/// Rendezvous hashing: the member that owns `partition`, or none where there are no members.
/// A member that joins or leaves moves only the partitions that it gains or had.
pub fn owner_of<'a>(partition: Partition, members: &[&'a str]) -> Option<&'a str> {
    let what = partition.0.to_le_bytes();
    // The name breaks a tie, so that the order of `members` does not matter.
    members.iter().copied().max_by_key(|member| (weight(&what, member), *member))
}

/// The weight of a member for something: by rendezvous hashing, it belongs to the one with the most.
pub fn weight(what: &[u8], member: &str) -> u64 {
    let mut bytes = Vec::with_capacity(what.len() + member.len());
    bytes.extend_from_slice(what);
    bytes.extend_from_slice(member.as_bytes());
    xxh3_64(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    /// The vectors that implementations of the paper share (Guava, Go, Python ports).
    #[test]
    fn published_jump_hash_vectors() {
        for (key, buckets, expected) in [
            (0, 1, 0),
            (1, 1, 0),
            (0, 60, 0),
            (1, 60, 55),
            (10_863_919_174_838_991, 11, 6),
            (2_016_238_256_797_177_309, 11, 3),
            (1_673_758_223_894_951_030, 11, 5),
            (2, 100_001, 80_343),
            (2_201, 100_001, 22_152),
            (2_202, 100_001, 15_018),
        ] {
            assert_eq!(jump_hash(key, buckets), expected, "key {key}, {buckets} buckets");
        }
    }

    /// The vectors that docs/guide.md prints for clients in other languages.
    #[test]
    fn documented_partition_vectors() {
        for (key, partitions, expected) in VECTORS {
            assert_eq!(
                partition_of(key.as_bytes(), partitions),
                Partition(expected),
                "{key} of {partitions}"
            );
        }
    }

    const VECTORS: [(&str, u32, u32); 12] = [
        ("a", 2, 1),
        ("a", 8, 1),
        ("a", 64, 14),
        ("web1:stt:4242", 2, 0),
        ("web1:stt:4242", 8, 5),
        ("web1:stt:4242", 64, 23),
        ("user-1", 8, 5),
        ("user-1", 1_000, 844),
        ("schlüssel", 8, 0),
        ("schlüssel", 64, 49),
        ("日本", 8, 1),
        ("日本", 64, 36),
    ];

    #[test]
    fn keys_spread_evenly() {
        let mut counts = [0u32; 16];
        for i in 0..160_000 {
            counts[partition_of(format!("key-{i}").as_bytes(), 16).0 as usize] += 1;
        }
        assert!(counts.iter().all(|n| (9_000..11_000).contains(n)), "{counts:?}");
    }

    #[test]
    fn members_share_evenly() {
        let names: Vec<String> = (0..8).map(|i| format!("member-{i}")).collect();
        let members: Vec<&str> = names.iter().map(String::as_str).collect();
        for member in &members {
            let owned = (0..8_000).filter(|p| owner_of(Partition(*p), &members) == Some(member)).count();
            assert!((800..1_200).contains(&owned), "{member} owns {owned}");
        }
    }

    proptest! {
        #[test]
        fn growth_moves_keys_only_to_the_new_partition(key: u64, partitions in 1u32..500) {
            let (before, after) = (jump_hash(key, partitions), jump_hash(key, partitions + 1));
            prop_assert!(after == before || after == partitions);
        }

        #[test]
        fn a_member_moves_only_what_it_must(
            members in prop::collection::hash_set("[a-z]{1,8}", 1..12), joining in "[A-Z]{1,8}", partition in 0u32..256,
        ) {
            let before: Vec<&str> = members.iter().map(String::as_str).collect();
            let after: Vec<&str> = before.iter().rev().copied().chain([joining.as_str()]).collect();
            let (old, new) = (owner_of(Partition(partition), &before), owner_of(Partition(partition), &after));
            prop_assert!(new == old || new == Some(joining.as_str()));
            prop_assert!(before.iter().copied().collect::<HashSet<_>>().contains(old.unwrap()));
        }
    }

    #[test]
    fn no_members_no_owner() {
        assert_eq!(owner_of(Partition(0), &[]), None);
    }
}
