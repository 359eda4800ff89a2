//! What a group has settled in a partition, and how that is written into its cursors.
//!
//! Everything below `next` is settled. Above it, what was settled out of order is kept as bits. What failed before has
//! a record with its attempts; a record below `next` is a dead letter that was given back to the group, and is open
//! again.
//!
//! Bits and records lie in chunks of so many offsets, each with a cursor of its own, so that what a commit writes goes
//! by what changed and not by how much there is.

use super::chunk::{CHUNK, Chunk, Record, place};
use super::options::MAX_DELAY_MS;
use bytes::Bytes;
use roaring::RoaringTreemap;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// In the detail of a cursor: what is beyond `next` is all in it. Older builds wrote this.
const WHOLE: u8 = 1;
/// In the detail of a cursor: what is beyond `next` is in chunks.
const IN_CHUNKS: u8 = 2;
/// A record in [`WHOLE`]: offset, attempts, replays, due.
const OLD_RECORD_BYTES: usize = 8 + 4 + 4 + 8;

/// What is to be written of a partition.
#[derive(Debug)]
pub struct Changes {
    /// The first offset that is not settled.
    pub next: u64,
    /// What goes into the cursor beside it.
    pub detail: Bytes,
    /// The chunks that have changed; `None` is one that is no more.
    pub chunks: Vec<(u64, Option<Bytes>)>,
}

/// What is settled in a partition.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    next: u64,
    /// Shared, so that a commit can try what it would come to.
    chunks: BTreeMap<u64, Arc<Chunk>>,
    /// The chunks that have changed since they were written.
    changed: BTreeSet<u64>,
}

impl Progress {
    /// Everything below `next` is settled.
    pub fn starting_at(next: u64) -> Self {
        Self { next, ..Self::default() }
    }

    /// Starts at another place, and knows nothing of what is beyond it.
    pub fn start_at(&mut self, next: u64) {
        self.changed.extend(self.chunks.keys());
        self.chunks.clear();
        self.next = next;
    }

    /// The first offset that is not settled.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Whether an event is still to be settled.
    pub fn is_open(&self, offset: u64) -> bool {
        let (id, at) = place(offset);
        let chunk = self.chunks.get(&id);
        match offset < self.next {
            true => chunk.is_some_and(|chunk| chunk.records.contains_key(&at)),
            false => chunk.is_none_or(|chunk| !chunk.has(at)),
        }
    }

    /// What is known of an event that failed before.
    pub fn record(&self, offset: u64) -> Option<Record> {
        let (id, at) = place(offset);
        self.chunks.get(&id)?.records.get(&at).copied()
    }

    /// A chunk that is about to change.
    fn chunk_mut(&mut self, id: u64) -> &mut Chunk {
        self.changed.insert(id);
        Arc::make_mut(self.chunks.entry(id).or_default())
    }

    /// Notes what is known of an event. One that was settled is open again.
    pub fn note(&mut self, offset: u64, record: Record) {
        let (id, at) = place(offset);
        let chunk = self.chunk_mut(id);
        chunk.clear(at);
        chunk.records.insert(at, record);
    }

    /// The pause of an event is over. That need not be written: it would be over after a restart, too.
    pub fn is_due(&mut self, offset: u64) {
        let (id, at) = place(offset);
        if self.record(offset).is_some_and(|record| record.due_ms > 0)
            && let Some(record) =
                self.chunks.get_mut(&id).and_then(|chunk| Arc::make_mut(chunk).records.get_mut(&at))
        {
            record.due_ms = 0;
        }
    }

    /// The offsets below `next` that are open again.
    pub fn given_back(&self) -> impl Iterator<Item = u64> + '_ {
        let chunks = self.chunks.range(..=self.next / CHUNK);
        let offsets =
            chunks.flat_map(|(id, chunk)| chunk.records.keys().map(move |at| id * CHUNK + u64::from(*at)));
        offsets.take_while(|offset| *offset < self.next)
    }

    /// Settles one event.
    pub fn settle(&mut self, offset: u64) {
        self.settle_all(offset..offset.saturating_add(1));
    }

    /// Settles a range.
    pub fn settle_all(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        self.forget_records(&range);
        if range.start > self.next {
            self.set_bits(&range);
        } else if range.end > self.next {
            let before = self.next;
            self.next = range.end;
            self.absorb();
            self.tidy(before..self.next.saturating_add(1));
        }
    }

    fn set_bits(&mut self, range: &Range<u64>) {
        for id in range.start / CHUNK..=(range.end - 1) / CHUNK {
            let start = id * CHUNK;
            let (from, end) = (range.start.max(start), range.end.min(start.saturating_add(CHUNK)));
            self.chunk_mut(id).set(from - start, end - start);
        }
    }

    /// Takes back what was said of an event: it is open, and known of it is what was before. Of many, those with the
    /// greatest offsets come first, because what is passed again is looked at.
    pub fn unsettle(&mut self, offset: u64, before: Option<Record>) {
        let was_given_back = before.is_some_and(|record| record.replays > 0);
        if offset < self.next && !was_given_back {
            let passed = offset + 1..self.next;
            let given_back: Vec<u64> = self.given_back().filter(|open| passed.contains(open)).collect();
            self.next = offset;
            if !passed.is_empty() {
                self.set_bits(&passed);
            }
            for (id, at) in given_back.into_iter().map(place) {
                self.chunk_mut(id).clear(at);
            }
        }
        let (id, at) = place(offset);
        let chunk = self.chunk_mut(id);
        chunk.clear(at);
        match before {
            Some(record) => drop(chunk.records.insert(at, record)),
            None => drop(chunk.records.remove(&at)),
        }
        self.tidy(offset..offset + 1);
    }

    fn forget_records(&mut self, range: &Range<u64>) {
        let is_in = |id: u64, at: &u8| range.contains(&(id * CHUNK + u64::from(*at)));
        let chunks = self.chunks.range(range.start / CHUNK..=(range.end - 1) / CHUNK);
        let touched = chunks.filter(|(id, chunk)| chunk.records.keys().any(|at| is_in(**id, at)));
        for id in touched.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.chunk_mut(id).records.retain(|at, _| !is_in(id, at));
            self.tidy(id * CHUNK..id * CHUNK + 1);
        }
    }

    /// Moves `next` over what is settled above it.
    fn absorb(&mut self) {
        while let Some(chunk) = self.chunks.get(&(self.next / CHUNK)) {
            let (start, from) = (self.next - self.next % CHUNK, self.next % CHUNK);
            let end = chunk.first_open(from);
            self.next = start.saturating_add(end);
            if end < CHUNK {
                break;
            }
        }
    }

    /// Drops the chunks of a range that say nothing more.
    fn tidy(&mut self, range: Range<u64>) {
        let ids = range.start / CHUNK..=(range.end - 1) / CHUNK;
        let says_nothing = |id: u64, chunk: &Chunk| {
            let from = self.next.saturating_sub(id * CHUNK).min(CHUNK);
            chunk.records.is_empty() && chunk.count(from, CHUNK) == 0
        };
        let chunks = self.chunks.range(ids).filter(|(id, chunk)| says_nothing(**id, chunk));
        for id in chunks.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.chunks.remove(&id);
            self.changed.insert(id);
        }
    }

    /// How many of the offsets below `tail` are not settled.
    pub fn unsettled(&self, tail: u64) -> u64 {
        let given_back = self.given_back().take_while(|offset| *offset < tail).count() as u64;
        if tail <= self.next {
            return given_back;
        }
        let chunks = self.chunks.range(self.next / CHUNK..=(tail - 1) / CHUNK);
        let settled = chunks.map(|(id, chunk)| {
            let within = |offset: u64| offset.saturating_sub(id * CHUNK).min(CHUNK);
            chunk.count(within(self.next), within(tail))
        });
        tail - self.next - settled.sum::<u64>() + given_back
    }

    /// Whether something below `end` is open.
    pub fn is_open_below(&self, end: u64) -> bool {
        self.next < end || self.given_back().next().is_some_and(|offset| offset < end)
    }

    /// What is to be written, which counts as written from here on.
    pub fn take_changes(&mut self) -> Changes {
        let changed = std::mem::take(&mut self.changed).into_iter();
        let chunks = changed.map(|id| (id, self.chunks.get(&id).map(|chunk| chunk.encode()))).collect();
        let detail = if self.chunks.is_empty() { Bytes::new() } else { Bytes::from_static(&[IN_CHUNKS]) };
        Changes { next: self.next, detail, chunks }
    }

    /// What was written of these chunks is not, or not only, what is known here.
    pub fn touch(&mut self, chunks: impl IntoIterator<Item = u64>) {
        self.changed.extend(chunks);
    }

    /// What a cursor says, without its chunks; `None` where its detail makes no sense.
    pub fn decode(next: u64, detail: &[u8]) -> Option<Self> {
        match detail.split_first() {
            None | Some((&IN_CHUNKS, [])) => Some(Self::starting_at(next)),
            Some((&WHOLE, whole)) => Self::decode_whole(next, whole),
            Some(_) => None,
        }
    }

    /// Adds a chunk as it is stored. `false`: it makes no sense.
    pub fn add_chunk(&mut self, id: u64, bytes: &[u8]) -> bool {
        let in_range = id <= u64::MAX / CHUNK;
        let Some(chunk) = Chunk::decode(bytes).filter(|_| in_range) else { return false };
        self.chunks.insert(id, Arc::new(chunk));
        true
    }

    fn decode_whole(next: u64, whole: &[u8]) -> Option<Self> {
        let (count, rest) = whole.split_first_chunk()?;
        let count = usize::try_from(u32::from_le_bytes(*count)).ok()?;
        let (records, above) = rest.split_at_checked(count.checked_mul(OLD_RECORD_BYTES)?)?;
        let mut progress = Self::starting_at(next);
        for settled in RoaringTreemap::deserialize_from(above).ok()?.iter().filter(|offset| *offset >= next) {
            let (id, at) = place(settled);
            progress.chunk_mut(id).set(at.into(), u64::from(at) + 1);
        }
        for record in records.chunks_exact(OLD_RECORD_BYTES) {
            let (offset, record) = decode_old_record(record)?;
            progress.note(offset, record);
        }
        Some(progress)
    }
}

fn decode_old_record(bytes: &[u8]) -> Option<(u64, Record)> {
    let (offset, rest) = bytes.split_first_chunk()?;
    let (attempts, rest) = rest.split_first_chunk()?;
    let (replays, rest) = rest.split_first_chunk()?;
    let record = Record {
        attempts: u32::from_le_bytes(*attempts),
        replays: u32::from_le_bytes(*replays),
        due_ms: u64::from_le_bytes(rest.try_into().ok()?),
        // It is not known any more how long it was to wait.
        pause_ms: u32::try_from(MAX_DELAY_MS).unwrap_or(u32::MAX),
    };
    Some((u64::from_le_bytes(*offset), record))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What is stored of a partition, as commits have left it.
    #[derive(Default)]
    struct Stored {
        next: u64,
        detail: Bytes,
        chunks: BTreeMap<u64, Bytes>,
    }

    impl Stored {
        /// Writes what has changed, and says how many bytes that is.
        fn write(&mut self, progress: &mut Progress) -> usize {
            let Changes { next, detail, chunks } = progress.take_changes();
            let bytes = detail.len() + chunks.iter().flat_map(|(_, to)| to).map(Bytes::len).sum::<usize>();
            (self.next, self.detail) = (next, detail);
            for (id, to) in chunks {
                match to {
                    Some(to) => drop(self.chunks.insert(id, to)),
                    None => drop(self.chunks.remove(&id)),
                }
            }
            assert_eq!(self.detail.first() == Some(&IN_CHUNKS), !self.chunks.is_empty());
            bytes
        }

        fn read(&self) -> Progress {
            let mut progress = Progress::decode(self.next, &self.detail).unwrap();
            for (id, bytes) in &self.chunks {
                assert!(progress.add_chunk(*id, bytes));
            }
            progress
        }
    }

    fn failed(attempts: u32) -> Record {
        Record { attempts, ..Record::default() }
    }

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
    fn what_is_written_goes_by_what_changed() {
        let (mut progress, mut stored) = (Progress::default(), Stored::default());
        (0..60_000).filter(|offset| offset % 100 > 0).for_each(|offset| progress.note(offset, failed(1)));
        (60_001..100_000).step_by(2).for_each(|offset| progress.settle(offset));
        stored.write(&mut progress);
        for settled in [30_000, 30_001, 59_999, 60_000, 99_998, 0] {
            progress.settle(settled);
            let bytes = stored.write(&mut progress);
            assert!(bytes < 6_000, "{bytes} bytes for {settled}");
        }
        progress.settle_all(0..100_000);
        stored.write(&mut progress);
        assert!(stored.chunks.is_empty(), "nothing is left of what was passed");
    }

    #[test]
    fn a_new_start_leaves_nothing_behind() {
        let (mut progress, mut stored) = (Progress::default(), Stored::default());
        progress.settle_all(300..900);
        progress.note(100, failed(2));
        stored.write(&mut progress);
        progress.start_at(50);
        stored.write(&mut progress);
        let read = stored.read();
        assert!(stored.chunks.is_empty() && read.next() == 50 && read.is_open(400));
    }

    #[test]
    fn a_retry_that_is_not_done_after_all_is_not_passed() {
        let mut progress = Progress::default();
        progress.note(1, failed(2));
        progress.note(3, Record { replays: 1, ..failed(1) });
        progress.settle_all(0..5);
        progress.unsettle(3, Some(Record { replays: 1, ..failed(1) }));
        assert_eq!((progress.next(), progress.unsettled(5)), (5, 1), "it was given back");
        progress.unsettle(1, Some(failed(2)));
        let mut stored = Stored::default();
        stored.write(&mut progress);
        for progress in [progress, stored.read()] {
            assert_eq!((progress.next(), progress.unsettled(5)), (1, 2));
            let open = [0, 1, 2, 3, 4, 5].map(|offset| progress.is_open(offset));
            assert_eq!(open, [false, true, false, true, false, true]);
            assert_eq!(progress.record(1), Some(failed(2)));
        }
    }

    /// As older builds wrote it.
    fn whole(above: &[u64], records: &[(u64, u32, u32, u64)]) -> Vec<u8> {
        let mut out = vec![WHOLE];
        out.extend_from_slice(&u32::try_from(records.len()).unwrap().to_le_bytes());
        for (offset, attempts, replays, due_ms) in records {
            out.extend_from_slice(&offset.to_le_bytes());
            out.extend_from_slice(&attempts.to_le_bytes());
            out.extend_from_slice(&replays.to_le_bytes());
            out.extend_from_slice(&due_ms.to_le_bytes());
        }
        RoaringTreemap::from_iter(above.iter().copied()).serialize_into(&mut out).unwrap();
        out
    }

    #[test]
    fn what_older_builds_wrote_is_read_and_written_anew() {
        let old = whole(&[12, 13, 700], &[(3, 0, 1, 0), (11, 2, 0, 99)]);
        let mut progress = Progress::decode(10, &old).unwrap();
        let mut stored = Stored::default();
        stored.write(&mut progress);
        for progress in [progress, stored.read()] {
            assert_eq!((progress.next(), progress.unsettled(701)), (10, 689));
            let open = [3, 4, 10, 11, 12, 13, 14, 700].map(|offset| progress.is_open(offset));
            assert_eq!(open, [true, false, true, true, false, false, true, false]);
            let record = progress.record(11).unwrap();
            assert_eq!((record.attempts, record.due_ms), (2, 99));
        }
    }

    proptest! {
        #[test]
        fn it_is_what_a_plain_set_says(
            steps in prop::collection::vec((0u64..700, 1u64..300, 0u8..4), 0..60),
        ) {
            let (mut progress, mut stored) = (Progress::default(), Stored::default());
            let (mut settled, mut records) = (BTreeSet::new(), BTreeMap::new());
            for (offset, len, what) in steps {
                match what {
                    0 => {
                        progress.settle(offset);
                        settled.insert(offset);
                        records.remove(&offset);
                    }
                    1 => {
                        progress.settle_all(offset..offset + len);
                        settled.extend(offset..offset + len);
                        records.retain(|known, _| !(offset..offset + len).contains(known));
                    }
                    2 => {
                        progress.note(offset, failed(1));
                        settled.remove(&offset);
                        records.insert(offset, failed(1));
                    }
                    _ => {
                        stored.write(&mut progress);
                        progress = stored.read();
                    }
                }
            }
            for offset in 0..1_000 {
                prop_assert_eq!(progress.is_open(offset), !settled.contains(&offset), "{}", offset);
                prop_assert_eq!(progress.record(offset), records.get(&offset).copied());
            }
            for tail in (0..1_000).step_by(7) {
                prop_assert_eq!(progress.unsettled(tail), tail - settled.range(..tail).count() as u64);
                let open = (0..tail).any(|offset| !settled.contains(&offset));
                prop_assert_eq!(progress.is_open_below(tail), open);
            }
        }

        #[test]
        fn damaged_cursors_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..80), id: u64) {
            let _ = Progress::decode(3, &bytes);
            let _ = Progress::decode(3, &[&[WHOLE], &bytes[..]].concat());
            let mut progress = Progress::starting_at(3);
            if progress.add_chunk(id, &[&[crate::groups::chunk::VERSION], &bytes[..]].concat()) {
                progress.settle(3);
                let _ = progress.unsettled(u64::MAX);
            }
        }
    }
}
