//! The last place of every key, as many as memory allows: keys beyond that are left for another round.
//!
//! Keys are taken by ranges of their hashes. Where those of a range take too much, its upper half is left for later rounds; so
//! each key belongs to one round, and memory has a limit however many keys there are.

use hashbrown::HashTable;
use prombus_core::{Offset, Partition};
use std::ops::RangeInclusive;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// How many bits of a place are its offset.
const OFFSET_BITS: u32 = 52;
/// What an entry takes in the table, which has room to spare.
const ENTRY_BYTES: usize = size_of::<Entry>() + 1;
/// How many bytes before a key say how long it is.
const LENGTH_BYTES: usize = size_of::<u16>();

/// Where an event is, in the order of partitions and offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventPlace(u64);

impl EventPlace {
    /// Where the last event of a key is that ended with it.
    pub const NOWHERE: Self = Self(u64::MAX);

    /// An event's place. A partition does not live to see as many events as do not fit.
    pub fn new(partition: Partition, offset: Offset) -> Self {
        Self(u64::from(partition.0) << OFFSET_BITS | offset.0)
    }

    /// The partition.
    pub fn partition(self) -> Partition {
        Partition((self.0 >> OFFSET_BITS) as u32)
    }

    /// The offset.
    pub fn offset(self) -> Offset {
        Offset(self.0 & ((1 << OFFSET_BITS) - 1))
    }
}

struct Entry {
    /// Enough of the hash to find its place in the table again.
    hash: u32,
    /// Where the key is.
    key_at: u32,
    place: EventPlace,
}

/// The last places of the keys of a range.
pub struct KeyTable {
    entries: HashTable<Entry>,
    /// Keys, each after its length.
    keys: Vec<u8>,
    range: RangeInclusive<u64>,
    max_bytes: usize,
    /// Nobody can choose keys that meet in the table.
    seed: u64,
}

fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl KeyTable {
    /// A table for all keys from a hash on, or as many of them as fit.
    pub fn new(from: u64, max_bytes: usize, seed: u64) -> Self {
        Self { entries: HashTable::new(), keys: Vec::new(), range: from..=u64::MAX, max_bytes, seed }
    }

    /// Where keys begin that were left for another round, if any were.
    pub fn rest(&self) -> Option<u64> {
        self.range.end().checked_add(1)
    }

    /// Says where the last event of a key is, so far.
    pub fn put(&mut self, key: &str, place: EventPlace) {
        let hash = xxh3_64_with_seed(key.as_bytes(), self.seed);
        if !self.range.contains(&hash) {
            return;
        }
        let short = hash as u32;
        let keys = &self.keys;
        let is_it = |entry: &Entry| entry.hash == short && key_at(keys, entry.key_at) == key.as_bytes();
        if let Some(entry) = self.entries.find_mut(spread(short), is_it) {
            entry.place = place;
            return;
        }
        let entry = Entry { hash: short, key_at: self.keys.len() as u32, place };
        self.entries.insert_unique(spread(short), entry, |entry| spread(entry.hash));
        // A key is at most a few times a hundred bytes long.
        self.keys.extend_from_slice(&(key.len() as u16).to_le_bytes());
        self.keys.extend_from_slice(key.as_bytes());
        while self.bytes() > self.max_bytes && self.range.start() < self.range.end() {
            self.halve();
        }
    }

    fn bytes(&self) -> usize {
        self.entries.capacity() * ENTRY_BYTES + self.keys.len()
    }

    /// Leaves the upper half of the range for another round.
    fn halve(&mut self) {
        let (start, end) = (*self.range.start(), *self.range.end());
        self.range = start..=start + (end - start) / 2;
        let old = std::mem::take(&mut self.keys);
        self.entries.retain(|entry| {
            let key = key_at(&old, entry.key_at);
            let stays = self.range.contains(&xxh3_64_with_seed(key, self.seed));
            if stays {
                entry.key_at = self.keys.len() as u32;
                self.keys.extend_from_slice(&(key.len() as u16).to_le_bytes());
                self.keys.extend_from_slice(key);
            }
            stays
        });
        self.entries.shrink_to_fit(|entry| spread(entry.hash));
    }

    /// The places of the last events, in order.
    pub fn into_places(self) -> Vec<EventPlace> {
        let there =
            self.entries.iter().map(|entry| entry.place).filter(|place| *place != EventPlace::NOWHERE);
        let mut places: Vec<EventPlace> = there.collect();
        drop(self);
        places.shrink_to_fit();
        places.sort_unstable();
        places
    }
}

fn key_at(keys: &[u8], at: u32) -> &[u8] {
    let rest = &keys[at as usize..];
    let length = u16::from_le_bytes([rest[0], rest[1]]);
    &rest[LENGTH_BYTES..LENGTH_BYTES + usize::from(length)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn place(n: u64) -> EventPlace {
        EventPlace::new(Partition((n % 3) as u32), Offset(n))
    }

    impl KeyTable {
        /// All keys that have a last event, and where it is.
        pub fn iter(&self) -> impl Iterator<Item = (&str, EventPlace)> {
            let there = self.entries.iter().filter(|entry| entry.place != EventPlace::NOWHERE);
            there.map(|entry| {
                (std::str::from_utf8(key_at(&self.keys, entry.key_at)).unwrap_or_default(), entry.place)
            })
        }
    }

    #[test]
    fn places_are_in_the_order_of_partitions_and_offsets() {
        let last = EventPlace::new(Partition(1_023), Offset((1 << 52) - 1));
        assert_eq!((last.partition(), last.offset()), (Partition(1_023), Offset((1 << 52) - 1)));
        assert!(EventPlace::new(Partition(1), Offset(9)) < EventPlace::new(Partition(2), Offset(0)));
        assert!(last < EventPlace::NOWHERE);
    }

    #[test]
    fn every_key_has_its_round_and_none_takes_more_than_it_may() {
        let keys: Vec<String> = (0..5_000).map(|n| format!("key-{n}")).collect();
        for max_bytes in [usize::MAX, 100_000, 10_000] {
            let (mut found, mut from, mut rounds) = (BTreeMap::new(), Some(0), 0);
            while let Some(start) = from {
                let mut table = KeyTable::new(start, max_bytes, 7);
                for n in 0..15_000 {
                    table.put(&keys[n as usize % keys.len()], place(n));
                    assert!(table.bytes() <= max_bytes);
                }
                keys.iter().step_by(5).for_each(|key| table.put(key, EventPlace::NOWHERE));
                for (key, place) in table.iter() {
                    assert_eq!(found.insert(key.to_owned(), place), None, "{key} is in one round only");
                }
                (from, rounds) = (table.rest(), rounds + 1);
                assert!(table.into_places().is_sorted());
            }
            let left = (0..5_000).filter(|n| n % 5 != 0);
            let expected = left.map(|n| (keys[n].clone(), place(10_000 + n as u64))).collect();
            assert_eq!(found, expected);
            assert_eq!(rounds > 1, max_bytes < usize::MAX, "{rounds} rounds");
        }
    }

    #[test]
    fn a_table_that_is_too_small_for_one_key_still_holds_one() {
        let mut table = KeyTable::new(0, 1, 7);
        table.put("k", place(1));
        let mut from = table.rest();
        let mut found = table.into_places();
        while let Some(start) = from {
            let mut table = KeyTable::new(start, 1, 7);
            table.put("k", place(1));
            from = table.rest();
            found.extend(table.into_places());
        }
        assert_eq!(found, [place(1)]);
    }
}
