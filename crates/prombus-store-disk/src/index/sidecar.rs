//! The index of a sealed part, in a file next to it.
//!
//! What every lookup needs first (the partitions, where buckets start, the filters) is in memory; the rest is read a page
//! at a time. A hash only locates an event: the caller compares the event itself.

use crate::disk::{Disk, DiskFile, folder_of};
use crate::index::active::ActiveIndex;
use crate::index::bloom::Bloom;
use crate::index::lookup::LookupKey;
use crate::journal::part::{EventAt, PartName};
use crate::journal::position::PartitionRef;
use crate::paged::{PagedFile, PagedWriter, damaged};
use hashbrown::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

const MAGIC: [u8; 8] = *b"PROMBUSX";
/// Indexes of parts whose offsets all follow each other.
const DENSE: u32 = 1;
const VERSION: u32 = 2;
/// One in so many greatest times of a run is kept.
pub const TS_EVERY: usize = 64;
/// The approximate number of entries per bucket.
const BUCKET: usize = 64;
/// A bucket of at most this many entries is read as a whole.
const SMALL: u32 = 256;
/// A hash and a position.
const ENTRY: usize = 12;
/// The description of a run.
const RUN: usize = 64;
/// The same in early indexes.
const DENSE_RUN: usize = 48;
/// Where a header says which rewrite of its part it is of.
const REWRITE_AT: usize = 28 + 16 * 7;

/// Where a header says whether changes in its part may name keys.
const NAMES_AT: usize = REWRITE_AT + 12;
/// What it says where they do not.
const NAMES_NO_KEYS: u8 = 1;

/// The position of a section of the file, in content bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Section {
    at: u64,
    len: u64,
}

/// The events of one partition in the part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealedRun {
    /// The offset of the first.
    pub first: u64,
    /// The first offset behind the last.
    pub end: u64,
    /// How many there are.
    pub count: u64,
    /// The greatest time of all.
    pub max_ts: u64,
    places: u64,
    times: u64,
    /// Where the offsets are; 0 where they follow each other.
    offsets: u64,
}

/// An index by hash: bucket starts and filter in memory, entries in the file.
struct HashIndex {
    starts: Vec<u32>,
    filter: Bloom,
    entries: Section,
}

/// The index of a sealed part.
pub struct Sidecar {
    file: PagedFile,
    runs: HashMap<PartitionRef, SealedRun>,
    ids: HashIndex,
    keys: HashIndex,
    /// The end of the part's last batch.
    pub part_end: u32,
    /// The recorded time of its last event.
    pub last_recorded_ts: u64,
    /// What its events take. Early indexes do not know it, and take the whole part for events.
    pub event_bytes: u64,
    /// Whether changes in the part may name keys. Early indexes do not know it.
    pub names_keys: bool,
}

/// What is known of a part beside its events.
#[derive(Debug, Clone, Copy)]
pub struct PartFacts {
    /// What its files are called by.
    pub name: PartName,
    /// The end of its last batch.
    pub end: u32,
    /// The recorded time of its last event.
    pub last_recorded_ts: u64,
}

/// Writes the index of a part to `path`, under another name first, and makes it durable.
pub fn write(disk: &dyn Disk, path: &Path, index: &ActiveIndex, facts: PartFacts) -> io::Result<()> {
    let tmp = path.with_extension("tmp");
    let mut out = PagedWriter::new(disk.create(&tmp)?);
    let mut header = Vec::new();
    header.extend_from_slice(&MAGIC);
    header.extend_from_slice(&VERSION.to_le_bytes());
    header.extend_from_slice(&facts.name.number.to_le_bytes());
    header.extend_from_slice(&facts.end.to_le_bytes());
    header.extend_from_slice(&facts.last_recorded_ts.to_le_bytes());
    let runs = write_runs(&mut out, index)?;
    let mut sections = vec![section(&mut out, &runs)?];
    sections.extend(write_hashes(&mut out, &index.id_entries())?);
    sections.extend(write_hashes(&mut out, &index.key_entries())?);
    for section in sections {
        header.extend_from_slice(&section.at.to_le_bytes());
        header.extend_from_slice(&section.len.to_le_bytes());
    }
    header.extend_from_slice(&facts.name.rewrite.to_le_bytes());
    header.extend_from_slice(&index.event_bytes().to_le_bytes());
    header.push(if index.names_keys() { 0 } else { NAMES_NO_KEYS });
    out.finish(&header)?;
    disk.rename(&tmp, path)?;
    disk.sync_dir(folder_of(path))
}

fn section(out: &mut PagedWriter, bytes: &[u8]) -> io::Result<Section> {
    let at = out.position();
    out.write(bytes)?;
    Ok(Section { at, len: bytes.len() as u64 })
}

/// Writes places and times of all runs, and gives what is told of each.
fn write_runs(out: &mut PagedWriter, index: &ActiveIndex) -> io::Result<Vec<u8>> {
    let mut told = Vec::new();
    for run in index.runs.iter().filter(|run| !run.ats.is_empty()) {
        let places = out.position();
        for at in &run.ats {
            out.write(&at.to_le_bytes())?;
        }
        let times = out.position();
        for chunk in run.max_ts.chunks(TS_EVERY) {
            out.write(&chunk[chunk.len() - 1].to_le_bytes())?;
        }
        let offsets = if run.sparse().is_some() { out.position() } else { 0 };
        for offset in run.sparse().unwrap_or_default() {
            out.write(&offset.to_le_bytes())?;
        }
        let max_ts = run.max_ts.last().copied().unwrap_or(0);
        told.extend_from_slice(&run.partition.topic.to_le_bytes());
        told.extend_from_slice(&run.partition.partition.to_le_bytes());
        for number in [run.first, run.ats.len() as u64, max_ts, places, times, run.end(), offsets] {
            told.extend_from_slice(&number.to_le_bytes());
        }
    }
    Ok(told)
}

/// Writes entries, bucket starts and filter.
fn write_hashes(out: &mut PagedWriter, sorted: &[(u64, u32)]) -> io::Result<[Section; 3]> {
    let mut filter = Bloom::for_entries(sorted.len());
    let bits = bucket_bits(sorted.len());
    let mut starts: Vec<u32> = Vec::with_capacity((1 << bits) + 1);
    let entries_at = out.position();
    for (i, (hash, at)) in sorted.iter().enumerate() {
        filter.insert(*hash);
        while starts.len() <= bucket(*hash, bits) {
            starts.push(i as u32);
        }
        out.write(&hash.to_le_bytes())?;
        out.write(&at.to_le_bytes())?;
    }
    starts.resize((1 << bits) + 1, sorted.len() as u32);
    let entries = Section { at: entries_at, len: (sorted.len() * ENTRY) as u64 };
    let starts: Vec<u8> = starts.iter().flat_map(|start| start.to_le_bytes()).collect();
    let filter: Vec<u8> = filter.words().iter().flat_map(|word| word.to_le_bytes()).collect();
    Ok([entries, section(out, &starts)?, section(out, &filter)?])
}

fn bucket_bits(entries: usize) -> u32 {
    (entries / BUCKET).max(1).ilog2()
}

fn bucket(hash: u64, bits: u32) -> usize {
    (u128::from(hash) >> (64 - bits)) as usize
}

impl Sidecar {
    /// Opens the index of part `part`.
    pub fn open(file: Arc<dyn DiskFile>, name: PartName) -> io::Result<Self> {
        let (file, header) = PagedFile::open(file)?;
        let u32_at = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap_or_default());
        let u64_at = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().unwrap_or_default());
        let version = u32_at(8);
        let rewrite = if version == DENSE { 0 } else { u32_at(REWRITE_AT) };
        let is_known = (DENSE..=VERSION).contains(&version);
        if header[..8] != MAGIC || !is_known || name != (PartName { number: u32_at(12), rewrite }) {
            return Err(damaged(format!("it is not the index of part {name}")));
        }
        let sections: Vec<Section> =
            (0..7).map(|i| Section { at: u64_at(28 + 16 * i), len: u64_at(36 + 16 * i) }).collect();
        let runs = parse_runs(&file.read(sections[0].at, sections[0].len as usize)?, version);
        let ids = HashIndex::open(&file, &sections[1..4])?;
        let keys = HashIndex::open(&file, &sections[4..7])?;
        let part_end = u32_at(16);
        let event_bytes = if version == DENSE { u64::from(part_end) } else { u64_at(REWRITE_AT + 4) };
        let (last_recorded_ts, names_keys) = (u64_at(20), header[NAMES_AT] != NAMES_NO_KEYS);
        Ok(Self { runs, ids, keys, part_end, last_recorded_ts, event_bytes, names_keys, file })
    }

    /// The events of a partition, if there are any.
    pub fn run(&self, partition: PartitionRef) -> Option<SealedRun> {
        self.runs.get(&partition).copied()
    }

    /// All partitions with events in the part.
    pub fn runs(&self) -> impl Iterator<Item = (PartitionRef, SealedRun)> + '_ {
        self.runs.iter().map(|(partition, run)| (*partition, *run))
    }

    /// Where at most `limit` events of a run lie, from offset `from`.
    pub fn places(&self, run: &SealedRun, from: u64, limit: u64) -> io::Result<Vec<EventAt>> {
        let start = self.nth_from(run, from)?;
        let len = limit.min(run.count - start);
        let bytes = self.file.read(run.places + 4 * start, 4 * len as usize)?;
        let ats = bytes.chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().unwrap_or_default()));
        if run.offsets == 0 {
            return Ok((run.first + start..).zip(ats).map(|(offset, at)| EventAt { offset, at }).collect());
        }
        let offsets = self.file.read(run.offsets + 8 * start, 8 * len as usize)?;
        let offsets = offsets.chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().unwrap_or_default()));
        Ok(offsets.zip(ats).map(|(offset, at)| EventAt { offset, at }).collect())
    }

    /// How many events of a run lie before offset `from`.
    fn nth_from(&self, run: &SealedRun, from: u64) -> io::Result<u64> {
        if run.offsets == 0 || from <= run.first {
            return Ok(from.saturating_sub(run.first).min(run.count));
        }
        let (mut low, mut high) = (0, run.count);
        while low < high {
            let middle = (low + high) / 2;
            if self.offset(run, middle)? < from {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// The offset of the nth event of a run.
    pub fn offset(&self, run: &SealedRun, n: u64) -> io::Result<u64> {
        if run.offsets == 0 {
            return Ok(run.first + n);
        }
        let bytes = self.file.read(run.offsets + 8 * n, 8)?;
        Ok(u64::from_le_bytes(bytes.try_into().unwrap_or_default()))
    }

    /// The first block of [`TS_EVERY`] events by whose end a time of at least `ts` was seen.
    pub fn block_at(&self, run: &SealedRun, ts: u64) -> io::Result<u64> {
        let blocks = run.count.div_ceil(TS_EVERY as u64);
        let (mut low, mut high) = (0, blocks);
        while low < high {
            let middle = (low + high) / 2;
            let bytes = self.file.read(run.times + 8 * middle, 8)?;
            if u64::from_le_bytes(bytes.try_into().unwrap_or_default()) < ts {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// At most `limit` places below `below` that `by` points at, the last one first.
    pub fn latest(&self, by: LookupKey, below: u32, limit: usize) -> io::Result<Vec<u32>> {
        match by {
            LookupKey::Id(_, hash) => self.ids.latest(&self.file, (hash, below), limit),
            LookupKey::Key(hash) => self.keys.latest(&self.file, (hash, below), limit),
        }
    }

    /// At most `limit` places of a key that lie at `from` or after it, in the order of the journal.
    pub fn of_key(&self, hash: u64, from: u32, limit: usize) -> io::Result<Vec<u32>> {
        self.keys.oldest(&self.file, hash, from, limit)
    }

    /// Whether `by` may point at an event; `false` is certain.
    pub fn may_have(&self, by: LookupKey) -> bool {
        match by {
            LookupKey::Id(_, hash) => self.ids.filter.may_contain(hash),
            LookupKey::Key(hash) => self.keys.filter.may_contain(hash),
        }
    }

    /// How many ids it finds: those of events, and of what is left of some.
    pub fn ids(&self) -> u64 {
        self.ids.entries.len / ENTRY as u64
    }

    /// All entries, by id and by key, for checking them against the part.
    pub fn all_entries(&self) -> io::Result<[Vec<(u64, u32)>; 2]> {
        Ok([self.ids.all(&self.file)?, self.keys.all(&self.file)?])
    }

    /// The file, for verifying its pages.
    pub fn file(&self) -> &PagedFile {
        &self.file
    }
}

fn parse_runs(bytes: &[u8], version: u32) -> HashMap<PartitionRef, SealedRun> {
    let is_dense = version == DENSE;
    let parse = |run: &[u8]| {
        let u32_at = |at: usize| u32::from_le_bytes(run[at..at + 4].try_into().unwrap_or_default());
        let u64_at = |at: usize| u64::from_le_bytes(run[at..at + 8].try_into().unwrap_or_default());
        let partition = PartitionRef { topic: u32_at(0), partition: u32_at(4) };
        let (first, count) = (u64_at(8), u64_at(16));
        let run = SealedRun {
            first,
            end: if is_dense { first + count } else { u64_at(48) },
            count,
            max_ts: u64_at(24),
            places: u64_at(32),
            times: u64_at(40),
            offsets: if is_dense { 0 } else { u64_at(56) },
        };
        (partition, run)
    };
    bytes.chunks_exact(if is_dense { DENSE_RUN } else { RUN }).map(parse).collect()
}

impl HashIndex {
    fn open(file: &PagedFile, sections: &[Section]) -> io::Result<Self> {
        let starts = file.read(sections[1].at, sections[1].len as usize)?;
        let filter = file.read(sections[2].at, sections[2].len as usize)?;
        let starts: Vec<u32> =
            starts.chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().unwrap_or_default())).collect();
        let words =
            filter.chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().unwrap_or_default())).collect();
        if starts.len() < 2 || !(starts.len() - 1).is_power_of_two() {
            return Err(damaged("its buckets are invalid".into()));
        }
        Ok(Self { starts, filter: Bloom::from_words(words), entries: sections[0] })
    }

    /// The bucket that entries of this hash lie in; empty if there are none for certain.
    fn bucket(&self, hash: u64) -> (u32, u32) {
        if self.entries.len == 0 || !self.filter.may_contain(hash) {
            return (0, 0);
        }
        let bucket = bucket(hash, (self.starts.len() - 1).ilog2());
        (self.starts[bucket], self.starts[bucket + 1])
    }

    /// The index of the first entry that is not before `(hash, at)`.
    fn lower_bound(&self, file: &PagedFile, hash: u64, at: u32) -> io::Result<u32> {
        let (mut low, mut high) = self.bucket(hash);
        while high - low > SMALL {
            let middle = low + (high - low) / 2;
            if self.read(file, middle, middle + 1)?.get(0) < (hash, at) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let entries = self.read(file, low, high)?;
        Ok(low + entries.lower_bound((hash, at)) as u32)
    }

    fn latest(&self, file: &PagedFile, (hash, below): (u64, u32), limit: usize) -> io::Result<Vec<u32>> {
        let (from, to) = self.bucket(hash);
        let (entries, end) = if to - from <= SMALL {
            // The usual case: one read for the whole bucket.
            let entries = self.read(file, from, to)?;
            let end = entries.lower_bound((hash, below));
            (entries, end)
        } else {
            let end = self.lower_bound(file, hash, below)?;
            let start = from.max(end.saturating_sub(limit.min(u32::MAX as usize) as u32));
            (self.read(file, start, end)?, (end - start) as usize)
        };
        let found = (0..end).rev().map(|n| entries.get(n)).take_while(|(found, _)| *found == hash);
        Ok(found.map(|(_, at)| at).take(limit).collect())
    }

    fn oldest(&self, file: &PagedFile, hash: u64, from: u32, limit: usize) -> io::Result<Vec<u32>> {
        let (first, end) = self.bucket(hash);
        let (entries, skipped) = if end - first <= SMALL {
            // The usual case: one read for the whole bucket.
            let entries = self.read(file, first, end)?;
            let skipped = entries.lower_bound((hash, from));
            (entries, skipped)
        } else {
            let start = self.lower_bound(file, hash, from)?;
            let stop = end.min(start.saturating_add(limit.min(u32::MAX as usize) as u32));
            (self.read(file, start, stop)?, 0)
        };
        let found = entries.iter().skip(skipped).take(limit).take_while(|(found, _)| *found == hash);
        Ok(found.map(|(_, at)| at).collect())
    }

    fn all(&self, file: &PagedFile) -> io::Result<Vec<(u64, u32)>> {
        Ok(self.read(file, 0, (self.entries.len / ENTRY as u64) as u32)?.iter().collect())
    }

    fn read(&self, file: &PagedFile, from: u32, to: u32) -> io::Result<Entries> {
        let len = to.saturating_sub(from) as usize * ENTRY;
        file.read(self.entries.at + u64::from(from) * ENTRY as u64, len).map(Entries)
    }
}

/// Entries as stored in the file, sorted.
struct Entries(Vec<u8>);

impl Entries {
    fn get(&self, n: usize) -> (u64, u32) {
        let entry = &self.0[n * ENTRY..][..ENTRY];
        let hash = u64::from_le_bytes(entry[..8].try_into().unwrap_or_default());
        (hash, u32::from_le_bytes(entry[8..].try_into().unwrap_or_default()))
    }

    fn iter(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        (0..self.0.len() / ENTRY).map(|n| self.get(n))
    }

    /// The index of the first entry that is not before `wanted`.
    fn lower_bound(&self, wanted: (u64, u32)) -> usize {
        let (mut low, mut high) = (0, self.0.len() / ENTRY);
        while low < high {
            let middle = (low + high) / 2;
            if self.get(middle) < wanted { low = middle + 1 } else { high = middle }
        }
        low
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::RealDisk;
    use crate::index::active::Entry;
    use crate::journal::record::EventHead;
    use uuid::Uuid;
    use xxhash_rust::xxh3::xxh3_64;

    fn id(i: u32) -> Uuid {
        Uuid::from_u128(u128::from(i) + 1)
    }

    fn sealed(events: u32) -> (tempfile::TempDir, Sidecar) {
        let mut index = ActiveIndex::default();
        for i in 0..events {
            let head = EventHead {
                partition: PartitionRef { topic: 1, partition: i % 3 },
                offset: u64::from(i / 3) + 5,
                id: id(i),
                hub_id: i % 5 < 3,
                ts: u64::from(i ^ 1),
                recorded_ts: 0,
            };
            let key_hash = (i % 2 == 0).then(|| xxh3_64(&(i % 10).to_le_bytes()));
            index.push(Entry { head, key_hash, at: i * 100, bytes: 100 });
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1.index");
        write(
            &RealDisk::new(),
            &path,
            &index,
            PartFacts { name: PartName::written(9), end: 77, last_recorded_ts: 88 },
        )
        .unwrap();
        let sidecar =
            Sidecar::open(RealDisk::new().open_to_read(&path).unwrap(), PartName::written(9)).unwrap();
        (dir, sidecar)
    }

    #[test]
    fn everything_is_found_again() {
        for events in [1, 2, 100, 30_000] {
            let (_dir, sidecar) = sealed(events);
            assert_eq!((sidecar.part_end, sidecar.last_recorded_ts), (77, 88));
            for i in 0..events {
                let by = LookupKey::id(1, id(i));
                assert_eq!(sidecar.latest(by, u32::MAX, 9).unwrap(), [i * 100]);
                assert_eq!(sidecar.latest(by, i * 100, 9).unwrap(), [0; 0]);
            }
            assert_eq!(sidecar.latest(LookupKey::id(1, id(events)), u32::MAX, 9).unwrap(), [0; 0]);
            let of_key: Vec<u32> = (0..events).filter(|i| i % 10 == 4).map(|i| i * 100).collect();
            let hash = xxh3_64(&4u32.to_le_bytes());
            assert_eq!(sidecar.of_key(hash, 0, usize::MAX).unwrap(), of_key);
            let backwards: Vec<u32> = of_key.iter().rev().copied().collect();
            for limit in [1, 9, 1000] {
                let latest = sidecar.latest(LookupKey::Key(hash), u32::MAX, limit).unwrap();
                assert_eq!(latest, backwards[..limit.min(backwards.len())]);
            }
            if of_key.len() > 9 {
                assert_eq!(sidecar.of_key(hash, of_key[3], 5).unwrap(), of_key[3..8]);
                assert_eq!(sidecar.latest(LookupKey::Key(hash), of_key[7], 1).unwrap(), [of_key[6]]);
            }
            let run = sidecar.run(PartitionRef { topic: 1, partition: 0 }).unwrap();
            assert_eq!((run.first, run.count), (5, u64::from(events.div_ceil(3))));
            let last = run.count - 1;
            assert_eq!(
                sidecar.places(&run, run.first + last, 1).unwrap(),
                [EventAt { offset: run.first + last, at: last as u32 * 300 }]
            );
            assert!(sidecar.run(PartitionRef { topic: 2, partition: 0 }).is_none());
        }
    }

    #[test]
    fn blocks_are_found_by_time() {
        let (_dir, sidecar) = sealed(3_000);
        let run = sidecar.run(PartitionRef { topic: 1, partition: 0 }).unwrap();
        assert_eq!(sidecar.block_at(&run, 0).unwrap(), 0);
        assert_eq!(sidecar.block_at(&run, run.max_ts).unwrap(), run.count.div_ceil(64) - 1);
        assert_eq!(sidecar.block_at(&run, run.max_ts + 1).unwrap(), run.count.div_ceil(64));
    }

    #[test]
    fn another_parts_index_is_refused() {
        let (dir, _) = sealed(10);
        assert!(
            Sidecar::open(
                RealDisk::new().open_to_read(&dir.path().join("1.index")).unwrap(),
                PartName::written(8)
            )
            .is_err()
        );
    }
}
