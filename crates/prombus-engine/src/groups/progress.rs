//! What a group has settled in a partition, and how that is written into its cursor.
//!
//! Everything below `next` is settled. Above it, what was settled out of order is kept as a compressed set.
//! What failed before has a record with its attempts; a record below `next` is a dead letter that was given
//! back to the group, and is open again.

use bytes::Bytes;
use roaring::RoaringTreemap;
use std::collections::BTreeMap;
use std::ops::Range;

const VERSION: u8 = 1;
/// Offset, attempts, replays, due.
const RECORD_BYTES: usize = 8 + 4 + 4 + 8;

/// What is known of an event that is not settled and was delivered before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Record {
    /// How many deliveries failed.
    pub attempts: u32,
    /// How often it came back from the dead letters.
    pub replays: u32,
    /// When it may be delivered again, in epoch milliseconds.
    pub due_ms: u64,
}

/// What is settled in a partition.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Progress {
    next: u64,
    above: RoaringTreemap,
    records: BTreeMap<u64, Record>,
}

impl Progress {
    /// Everything below `next` is settled.
    pub fn starting_at(next: u64) -> Self {
        Self { next, ..Self::default() }
    }

    /// The first offset that is not settled.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Whether an event is still to be settled.
    pub fn is_open(&self, offset: u64) -> bool {
        if offset < self.next { self.records.contains_key(&offset) } else { !self.above.contains(offset) }
    }

    /// What is known of an event that failed before.
    pub fn record(&self, offset: u64) -> Option<Record> {
        self.records.get(&offset).copied()
    }

    /// Notes what is known of an event. One that was settled is open again.
    pub fn note(&mut self, offset: u64, record: Record) {
        self.above.remove(offset);
        self.records.insert(offset, record);
    }

    /// The pause of an event is over.
    pub fn is_due(&mut self, offset: u64) {
        if let Some(record) = self.records.get_mut(&offset) {
            record.due_ms = 0;
        }
    }

    /// The offsets below `next` that are open again.
    pub fn given_back(&self) -> impl Iterator<Item = u64> + '_ {
        self.records.range(..self.next).map(|(offset, _)| *offset)
    }

    /// Settles one event.
    pub fn settle(&mut self, offset: u64) {
        if !self.records.is_empty() {
            self.records.remove(&offset);
        }
        if offset == self.next {
            self.next += 1;
            self.absorb();
        } else if offset > self.next {
            self.above.insert(offset);
        }
    }

    /// Settles a range.
    pub fn settle_all(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let gone: Vec<u64> = self.records.range(range.clone()).map(|(offset, _)| *offset).collect();
        for offset in gone {
            self.records.remove(&offset);
        }
        if range.start <= self.next {
            self.next = self.next.max(range.end);
            self.absorb();
        } else {
            self.above.insert_range(range);
        }
    }

    /// Moves `next` over what is settled above it.
    fn absorb(&mut self) {
        if self.above.is_empty() {
            return;
        }
        self.above.remove_range(..self.next);
        let run = self.above.iter().zip(self.next..).take_while(|(settled, next)| settled == next).count();
        self.next += run as u64;
        self.above.remove_range(..self.next);
    }

    /// How many of the offsets below `tail` are not settled.
    pub fn unsettled(&self, tail: u64) -> u64 {
        let given_back = self.records.range(..tail.min(self.next)).count() as u64;
        if tail <= self.next {
            return given_back;
        }
        tail - self.next - self.above.range_cardinality(self.next..tail) + given_back
    }

    /// Whether something below `end` is open.
    pub fn is_open_below(&self, end: u64) -> bool {
        self.next < end || self.records.range(..end).next().is_some()
    }

    /// What goes into the cursor beside `next`.
    pub fn encode(&mut self) -> Bytes {
        if self.above.is_empty() && self.records.is_empty() {
            return Bytes::new();
        }
        self.above.optimize();
        let size = 5 + RECORD_BYTES * self.records.len() + self.above.serialized_size();
        let mut out = Vec::with_capacity(size);
        out.push(VERSION);
        out.extend_from_slice(&(self.records.len() as u32).to_le_bytes());
        for (offset, record) in &self.records {
            out.extend_from_slice(&offset.to_le_bytes());
            out.extend_from_slice(&record.attempts.to_le_bytes());
            out.extend_from_slice(&record.replays.to_le_bytes());
            out.extend_from_slice(&record.due_ms.to_le_bytes());
        }
        // Writing into memory does not fail.
        let _ = self.above.serialize_into(&mut out);
        out.into()
    }

    /// What a cursor says; `None` where its detail makes no sense.
    pub fn decode(next: u64, detail: &[u8]) -> Option<Self> {
        let Some((version, rest)) = detail.split_first() else { return Some(Self::starting_at(next)) };
        if *version != VERSION {
            return None;
        }
        let (count, rest) = rest.split_first_chunk()?;
        let (records, above) = rest.split_at_checked(u32::from_le_bytes(*count) as usize * RECORD_BYTES)?;
        let records = records.chunks_exact(RECORD_BYTES).map(decode_record).collect::<Option<_>>()?;
        let above = RoaringTreemap::deserialize_from(above).ok()?;
        Some(Self { next, above, records })
    }
}

fn decode_record(bytes: &[u8]) -> Option<(u64, Record)> {
    let (offset, rest) = bytes.split_first_chunk()?;
    let (attempts, rest) = rest.split_first_chunk()?;
    let (replays, rest) = rest.split_first_chunk()?;
    let record = Record {
        attempts: u32::from_le_bytes(*attempts),
        replays: u32::from_le_bytes(*replays),
        due_ms: u64::from_le_bytes(rest.try_into().ok()?),
    };
    Some((u64::from_le_bytes(*offset), record))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_settled_run_is_passed_at_once() {
        let mut progress = Progress::starting_at(5);
        [7, 8, 6, 10].into_iter().for_each(|offset| progress.settle(offset));
        assert_eq!((progress.next(), progress.unsettled(12)), (5, 3));
        progress.settle(5);
        assert_eq!((progress.next(), progress.unsettled(12)), (9, 2));
        progress.settle_all(9..10);
        assert_eq!((progress.next(), progress.unsettled(12)), (11, 1));
    }

    #[test]
    fn what_is_given_back_is_open_again() {
        let mut progress = Progress::starting_at(5);
        progress.settle(7);
        for offset in [2, 7] {
            assert!(!progress.is_open(offset));
            progress.note(offset, Record { replays: 1, ..Record::default() });
            assert!(progress.is_open(offset));
        }
        assert_eq!((progress.unsettled(8), progress.given_back().collect::<Vec<_>>()), (4, vec![2]));
        assert_eq!([2, 3, 6].map(|tail| progress.unsettled(tail)), [0, 1, 2]);
        assert!(progress.is_open_below(3) && !progress.is_open_below(2));
        progress.settle(2);
        assert!(!progress.is_open(2));
        assert_eq!(progress.next(), 5);
    }

    #[test]
    fn a_window_of_alternating_acks_stays_small() {
        let mut progress = Progress::default();
        (1..100_000).step_by(2).for_each(|offset| progress.settle(offset));
        assert!(progress.encode().len() < 20_000, "{}", progress.encode().len());
    }

    proptest! {
        #[test]
        fn it_is_what_a_plain_set_says(
            steps in prop::collection::vec((0u64..60, 1u64..6, any::<bool>()), 0..80),
        ) {
            let (mut progress, mut settled) = (Progress::default(), BTreeSet::new());
            for (offset, len, one) in steps {
                if one {
                    progress.settle(offset);
                    settled.insert(offset);
                } else {
                    progress.settle_all(offset..offset + len);
                    settled.extend(offset..offset + len);
                }
                let next = (0..).find(|offset| !settled.contains(offset)).unwrap();
                prop_assert_eq!(progress.next(), next);
            }
            for offset in 0..70 {
                prop_assert_eq!(progress.is_open(offset), !settled.contains(&offset));
            }
            for tail in 0..70 {
                prop_assert_eq!(progress.unsettled(tail), tail - settled.range(..tail).count() as u64);
            }
        }

        #[test]
        fn a_cursor_keeps_all_of_it(
            next in 0u64..1_000, above in prop::collection::btree_set(0u64..200_000, 0..50),
            records in prop::collection::btree_map(0u64..5_000, any::<(u32, u32, u64)>(), 0..20),
        ) {
            let mut progress = Progress::starting_at(next);
            above.iter().for_each(|offset| progress.settle(*offset));
            for (offset, (attempts, replays, due_ms)) in records {
                progress.note(offset, Record { attempts, replays, due_ms });
            }
            let detail = progress.encode();
            prop_assert_eq!(Progress::decode(progress.next(), &detail), Some(progress));
        }

        #[test]
        fn damaged_cursors_never_panic(detail in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = Progress::decode(3, &detail);
            let _ = Progress::decode(3, &[&[VERSION], &detail[..]].concat());
        }
    }
}
