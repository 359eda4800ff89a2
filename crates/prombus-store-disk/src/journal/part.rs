//! A part of the journal: a file of batches, and the index of its events.
//!
//! The index is in memory while the part is written, and on the disk once it is full; it is in the place of the other only
//! when it is durable. A hash only locates an event: whoever looks one up compares the event itself. A part that was
//! replaced is there for as long as somebody holds it.

use crate::disk::{Disk, DiskFile, folder_of, read_exact, remove_if_there};
use crate::index::active::ActiveIndex;
use crate::index::lookup::LookupKey;
use crate::index::newest::{Backwards, DeadStretches, Verdict};
use crate::index::sidecar::{Sidecar, TS_EVERY};
use crate::journal::batch::Secret;
use crate::journal::position::{PartitionRef, Pos};
use crate::journal::record;
use bytes::Bytes;
use parking_lot::{RwLock, RwLockReadGuard};
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// The head of a part.
pub const PART_HEAD: usize = 64;
const MAGIC: [u8; 8] = *b"PROMBUSJ";
/// A part of early builds, as the writer wrote it.
const WRITTEN: u32 = 1;
/// A part of early builds that was rewritten.
const REWRITTEN: u32 = 2;
/// A part with a secret, rewritten or not.
const VERSION: u32 = 3;
/// How much is read for an event whose length is not known yet, where nothing is known of others either.
const GUESS: usize = 1024;
/// The bounds of that where the mean is known.
const GUESSES: (u64, u64) = (256, 8192);

/// The header of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartHead {
    /// What its files are called by.
    pub name: PartName,
    /// The run of the engine that made it.
    pub epoch: u64,
    /// Where the part before it ended; all of that was flushed before this one was made. Where this one was rewritten,
    /// its own end: it has no neighbours, and was written as a whole.
    pub prev_end: Pos,
    /// Where the checksums of its batches start from; parts of early builds have none.
    pub secret: Option<Secret>,
}

impl PartHead {
    pub fn encode(&self) -> [u8; PART_HEAD] {
        let mut bytes = [0; PART_HEAD];
        bytes[..8].copy_from_slice(&MAGIC);
        let version = match (self.secret, self.name.rewrite) {
            (Some(_), _) => VERSION,
            (None, 0) => WRITTEN,
            (None, _) => REWRITTEN,
        };
        bytes[12..16].copy_from_slice(&version.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.name.number.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.name.rewrite.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.prev_end.pack().to_le_bytes());
        bytes[40..44].copy_from_slice(&self.secret.map_or(0, |secret| secret.0).to_le_bytes());
        let crc = crc32fast::hash(&bytes[12..]);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The head at the start of `bytes`; every bit of it counts.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; PART_HEAD] = bytes.get(..PART_HEAD)?.try_into().ok()?;
        let u32_at = |at: usize| bytes[at..at + 4].try_into().map(u32::from_le_bytes).ok();
        let u64_at = |at: usize| bytes[at..at + 8].try_into().map(u64::from_le_bytes).ok();
        let name = PartName { number: u32_at(16)?, rewrite: u32_at(20)? };
        let secret = if u32_at(12)? == VERSION { Some(Secret(u32_at(40)?)) } else { None };
        let head = Self { name, epoch: u64_at(24)?, prev_end: Pos::unpack(u64_at(32)?), secret };
        (head.encode() == *bytes).then_some(head)
    }
}

/// What the files of a part are called by: its number, and how often it was rewritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartName {
    /// Its number, from 1.
    pub number: u32,
    /// How often it was rewritten: 0 as long as it is what the writer wrote.
    pub rewrite: u32,
}

impl PartName {
    /// A part as the writer writes it.
    pub fn written(number: u32) -> Self {
        Self { number, rewrite: 0 }
    }

    fn parse(stem: &str) -> Option<Self> {
        let (number, rewrite) = stem.split_once('-').unwrap_or((stem, "0"));
        let name = Self { number: number.parse().ok()?, rewrite: rewrite.parse().ok()? };
        (name.number > 0 && name.to_string() == stem).then_some(name)
    }
}

impl fmt::Display for PartName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rewrite {
            0 => write!(f, "{:010}", self.number),
            rewrite => write!(f, "{:010}-{rewrite:010}", self.number),
        }
    }
}

/// The file of a part.
pub fn part_path(dir: &Path, part: PartName) -> PathBuf {
    dir.join("journal").join(format!("{part}.part"))
}

/// The index of a sealed part.
pub fn index_path(dir: &Path, part: PartName) -> PathBuf {
    part_path(dir, part).with_extension("index")
}

/// Removes the files of a part, if they are there: its index first, so that none is ever left without its part.
pub fn remove(disk: &dyn Disk, dir: &Path, part: PartName) -> io::Result<()> {
    remove_if_there(disk, &index_path(dir, part))?;
    remove_if_there(disk, &part_path(dir, part))
}

/// The part whose file has that name.
pub fn part_of(name: &str) -> Option<PartName> {
    PartName::parse(name.strip_suffix(".part")?)
}

/// The part whose index has that name.
pub fn index_part(name: &str) -> Option<PartName> {
    PartName::parse(name.strip_suffix(".index")?)
}

/// Why a part was not created.
#[derive(Debug)]
pub enum CreateError {
    /// It does not exist, and will not.
    Surely(io::Error),
    /// It may exist, now or after a power cut. The previous part must not grow any more, because a part records where
    /// the previous one ended.
    Perhaps(io::Error),
}

/// Creates the file of a part under another name first, so that an existing part always has a complete header.
pub fn create(
    disk: &dyn Disk,
    dir: &Path,
    head: PartHead,
    reserve: u64,
) -> Result<Arc<dyn DiskFile>, CreateError> {
    let path = part_path(dir, head.name);
    let tmp = path.with_extension("tmp");
    let file = disk.create(&tmp).map_err(CreateError::Surely)?;
    let filled =
        file.reserve(0, reserve).and_then(|()| file.write_at(&head.encode(), 0)).and_then(|()| file.sync());
    if let Err(error) = filled {
        // Gives back what was reserved. What cannot be removed now is removed at the next open.
        let _ = disk.remove(&tmp);
        return Err(CreateError::Surely(error));
    }
    if let Err(error) = disk.rename(&tmp, &path) {
        // Not every file system that says so has left both names alone.
        let taken_back = remove_if_there(disk, &path)
            .and_then(|()| remove_if_there(disk, &tmp))
            .and_then(|()| disk.sync_dir(folder_of(&path)));
        return Err(match taken_back {
            Ok(()) => CreateError::Surely(error),
            Err(_) => CreateError::Perhaps(error),
        });
    }
    disk.sync_dir(folder_of(&path)).map_err(CreateError::Perhaps)?;
    Ok(file)
}

/// How the events of a part are found.
pub enum Index {
    /// In memory: the part is being written, or its index is not on disk yet.
    Active(RwLock<ActiveIndex>),
    /// On disk.
    Sealed(Sidecar),
}

/// Where an event of a partition is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventAt {
    /// Its offset.
    pub offset: u64,
    /// Its position in the part.
    pub at: u32,
}

/// A part of the journal.
pub struct Part {
    /// What its files are called by.
    pub name: PartName,
    /// Its file.
    pub file: Arc<dyn DiskFile>,
    index: RwLock<Index>,
    /// Where it ends; not while it is being written.
    end: OnceLock<u32>,
    /// How much is read for an event whose length is not known yet, once it has an index on disk.
    guess: OnceLock<usize>,
    /// What of it need not be gone over by those who look for the latest event of a key.
    pub dead: DeadStretches,
}

/// As much as nearly all events take, where all are about the same.
fn guess_by(sidecar: &Sidecar) -> usize {
    let events: u64 = sidecar.runs().map(|(_, run)| run.count).sum();
    match sidecar.event_bytes.checked_div(events) {
        Some(mean) => (mean + mean / 4).clamp(GUESSES.0, GUESSES.1) as usize,
        None => GUESS,
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "part {}", self.name)
    }
}

impl Part {
    /// A part with an index in memory.
    pub fn active(name: PartName, file: Arc<dyn DiskFile>, index: ActiveIndex) -> Self {
        let (end, guess, dead) = Default::default();
        Self { name, file, index: RwLock::new(Index::Active(RwLock::new(index))), end, guess, dead }
    }

    /// A part with its index on disk.
    pub fn sealed(name: PartName, file: Arc<dyn DiskFile>, sidecar: Sidecar) -> Self {
        let (end, guess) = (sidecar.part_end.into(), guess_by(&sidecar).into());
        let dead = DeadStretches::default();
        Self { name, file, end, guess, dead, index: RwLock::new(Index::Sealed(sidecar)) }
    }

    /// Notes that it is full, and where it ends.
    pub fn ends_at(&self, end: u32) {
        // It ends once.
        let _ = self.end.set(end);
    }

    /// Where it ends; `None` while it is being written.
    pub fn end(&self) -> Option<u32> {
        self.end.get().copied()
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.name.number
    }

    /// The index as it is now. It is only ever replaced once, when the part is sealed.
    pub fn index(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read()
    }

    /// Replaces the index in memory by the one on disk.
    pub fn seal(&self, sidecar: Sidecar) {
        // It is sealed once.
        let _ = self.guess.set(guess_by(&sidecar));
        *self.index.write() = Index::Sealed(sidecar);
    }

    /// Runs `change` on the index in memory, where the part has one.
    pub fn with_active(&self, change: impl FnOnce(&mut ActiveIndex)) {
        if let Index::Active(index) = &*self.index() {
            change(&mut index.write());
        }
    }

    /// The end of its last batch, once it is sealed.
    pub fn sealed_end(&self) -> Option<u32> {
        match &*self.index() {
            Index::Active(_) => None,
            Index::Sealed(sidecar) => Some(sidecar.part_end),
        }
    }

    /// Whether changes in it may name keys that may be forgotten. What was rewritten has nothing but events.
    pub fn may_name_keys(&self) -> bool {
        self.name.rewrite == 0
            && match &*self.index() {
                Index::Active(index) => index.read().names_keys(),
                Index::Sealed(sidecar) => sidecar.names_keys,
            }
    }

    /// The disk space used by the part and its index.
    pub fn disk_bytes(&self) -> u64 {
        match &*self.index() {
            Index::Active(_) => self.file.len().unwrap_or(0),
            // What is known of it without its file, which may have to be opened for that.
            Index::Sealed(sidecar) => {
                u64::from(sidecar.part_end) + sidecar.file().pages() * crate::paged::PAGE as u64
            }
        }
    }

    /// The last event below `below` that `by` points at and that `judge` says is the one. What it says is dead must be so for all
    /// who know the journal up to `as_of`.
    pub fn newest(
        &self,
        by: LookupKey,
        (below, as_of): (u32, Pos),
        judge: impl Fn(&[u8]) -> Verdict,
    ) -> io::Result<Option<Bytes>> {
        let places = |below, limit| match &*self.index() {
            Index::Active(index) => Ok(index.read().latest(by, below, limit)),
            Index::Sealed(sidecar) => sidecar.latest(by, below, limit),
        };
        let item = |at| self.item(at);
        Backwards { by, dead: &self.dead, as_of, places, item }.find(below, judge)
    }

    /// At most `limit` places of a key in a range, in the order of the journal.
    pub fn of_key(&self, hash: u64, within: std::ops::Range<u32>, limit: usize) -> io::Result<Vec<u32>> {
        match &*self.index() {
            Index::Active(index) => Ok(index.read().of_key(hash, within, limit)),
            // A part is only sealed when all of it is visible.
            Index::Sealed(sidecar) => sidecar.of_key(hash, within.start, limit),
        }
    }

    /// The offsets of a partition in this part: from the first to behind the last. A part that was rewritten does not
    /// have all of them.
    pub fn extent(&self, partition: PartitionRef) -> Option<Range<u64>> {
        match &*self.index() {
            Index::Active(index) => index.read().run(partition).map(|run| run.first..run.end()),
            Index::Sealed(sidecar) => sidecar.run(partition).map(|run| run.first..run.end),
        }
    }

    /// Where the events of a partition are, from offset `from`, at most `limit` of them.
    pub fn places(&self, partition: PartitionRef, from: u64, limit: u64) -> io::Result<Vec<EventAt>> {
        match &*self.index() {
            Index::Active(index) => {
                Ok(index.read().run(partition).map_or(Vec::new(), |run| run.places(from, limit)))
            }
            Index::Sealed(sidecar) => match sidecar.run(partition) {
                Some(run) => sidecar.places(&run, from, limit),
                None => Ok(Vec::new()),
            },
        }
    }

    /// An offset of the partition at or before the first one here whose event is as late as `ts`, and at most
    /// [`TS_EVERY`] before it; `None` where no event here is as late.
    pub fn offset_near(&self, partition: PartitionRef, ts: u64) -> io::Result<Option<u64>> {
        match &*self.index() {
            Index::Active(index) => {
                let index = index.read();
                let Some(run) = index.run(partition) else { return Ok(None) };
                let earlier = run.max_ts.partition_point(|max| *max < ts);
                Ok((earlier < run.ats.len()).then(|| run.offset(earlier)))
            }
            Index::Sealed(sidecar) => {
                let Some(run) = sidecar.run(partition) else { return Ok(None) };
                if run.max_ts < ts {
                    return Ok(None);
                }
                let block = sidecar.block_at(&run, ts)? * TS_EVERY as u64;
                sidecar.offset(&run, block).map(Some)
            }
        }
    }

    /// The checked item at `at`.
    pub fn item(&self, at: u32) -> io::Result<Bytes> {
        let mut bytes = vec![0; self.guess.get().copied().unwrap_or(GUESS)];
        let got = self.file.read_at(&mut bytes, u64::from(at))?;
        let len = record::item_len(&bytes[..got]).ok_or_else(|| self.damaged(at))?;
        if len > record::MAX_ITEM {
            return Err(self.damaged(at));
        }
        if len > got {
            bytes.resize(len, 0);
            let read = read_exact(&*self.file, &mut bytes, u64::from(at));
            read.map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => self.damaged(at),
                _ => error,
            })?;
        }
        let item = Bytes::from(bytes).slice(..len);
        record::item(&item).map(|_| item.clone()).ok_or_else(|| self.damaged(at))
    }

    /// The error for an item that is not what was written.
    pub fn damaged(&self, at: u32) -> io::Error {
        crate::paged::damaged(format!(
            "journal part {} is damaged at byte {at}: run `prombus check` on the data folder",
            self.name.number
        ))
    }
}
