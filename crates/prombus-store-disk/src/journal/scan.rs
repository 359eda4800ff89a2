//! Reading a part from front to back: its batches, where they end, and whether what follows is a torn tail or damage.
//!
//! This is the only function that decides between the two, for opening a folder and for `prombus check`.

use crate::disk::{DiskFile, read_exact};
use crate::journal::batch::{self, ALIGN, BatchHead};
use crate::journal::part::{PART_HEAD, PartHead, PartName};
use crate::journal::position::Pos;
use crate::paged::damaged;
use std::fmt;
use std::io;

/// A part in memory.
pub struct PartBytes {
    name: PartName,
    head: Option<PartHead>,
    bytes: Vec<u8>,
}

/// A batch of a part.
pub struct Batch<'a> {
    /// Its head.
    pub head: BatchHead,
    /// Where its items start in the part.
    pub items_at: u32,
    /// Where it ends in the part.
    pub end: u32,
    /// Its items, with the padding behind them.
    pub items: &'a [u8],
}

/// Reads a part one batch at a time, for whoever must not hold more of it in memory.
pub struct BatchReader<'a> {
    file: &'a dyn DiskFile,
    head: PartHead,
    len: u64,
    at: u32,
    buffer: Vec<u8>,
}

impl<'a> BatchReader<'a> {
    /// A reader of a part; nothing where its head is not that of this part.
    pub fn new(file: &'a dyn DiskFile, name: PartName) -> io::Result<Option<Self>> {
        let (at, len) = (PART_HEAD as u32, file.len()?);
        let head = PartBytes::read_head(file, name)?;
        Ok(head.map(|head| Self { file, head, len, at, buffer: Vec::new() }))
    }

    /// Where the next batch starts.
    pub fn at(&self) -> u32 {
        self.at
    }

    /// The next batch, if it is valid.
    pub fn next_batch(&mut self) -> io::Result<Option<Batch<'_>>> {
        let pos = Pos { part: self.head.name.number, at: self.at };
        self.buffer.resize(batch::BATCH_HEAD, 0);
        let got = self.file.read_at(&mut self.buffer, u64::from(self.at))?;
        let Some(head) = batch::head(&self.buffer[..got]) else { return Ok(None) };
        if u64::from(self.at) + u64::from(head.len) > self.len {
            return Ok(None);
        }
        self.buffer.resize(head.len as usize, 0);
        read_exact(self.file, &mut self.buffer, u64::from(self.at))?;
        let Some((head, items)) = batch::parse(&self.buffer, pos, self.head.secret) else { return Ok(None) };
        let (Some(first), Some(end)) = (pos.plus(batch::BATCH_HEAD), head.end()) else { return Ok(None) };
        self.at = end.at;
        Ok(Some(Batch { head, items_at: first.at, end: end.at, items }))
    }
}

/// What follows the last valid batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tail {
    /// Nothing but zeros.
    Clean,
    /// Something that was never completely flushed, or the remains of a failed write; it can be cut off.
    Torn,
    /// Damage: flushed data is missing, and there is evidence that it was there.
    Damaged(FlushEvidence),
}

/// Evidence that a part was flushed further than it can be read, or ended elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlushEvidence {
    /// A batch that is still readable, at this place.
    Batch(Pos),
    /// The next part, which was begun when this one ended at this place.
    NextPart(Pos),
    /// Its own head: it was rewritten, and ended at this place.
    Whole(Pos),
}

impl fmt::Display for FlushEvidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Batch(pos) => write!(f, "it was flushed before the batch at byte {} was written", pos.at),
            Self::Whole(end) => write!(f, "it was written up to byte {}", end.at),
            Self::NextPart(end) => {
                write!(f, "it was flushed up to byte {} before the next part was begun", end.at)
            }
        }
    }
}

impl PartBytes {
    /// Reads the file of a part.
    pub fn read(file: &dyn DiskFile, name: PartName) -> io::Result<Self> {
        let len = file.len()?;
        // Where the places end, so does what can be said of it: least of all that something may be cut off.
        let fits = usize::try_from(len).ok().filter(|_| len <= u64::from(u32::MAX));
        let too_long = || damaged(format!("it has {len} bytes, more than a part of the journal can have"));
        let mut bytes = vec![0; fits.ok_or_else(too_long)?];
        read_exact(file, &mut bytes, 0)?;
        let head = PartHead::parse(&bytes).filter(|head| head.name == name);
        Ok(Self { name, head, bytes })
    }

    /// The head of the file of a part, if it is one of this part.
    pub fn read_head(file: &dyn DiskFile, name: PartName) -> io::Result<Option<PartHead>> {
        let mut bytes = [0; PART_HEAD];
        let len = file.read_at(&mut bytes, 0)?;
        Ok(PartHead::parse(&bytes[..len]).filter(|head| head.name == name))
    }

    /// What the files of the part are called by.
    pub fn name(&self) -> PartName {
        self.name
    }

    /// The head of the part, if it is one of this part.
    pub fn head(&self) -> Option<PartHead> {
        self.head
    }

    /// The valid batches, up to the first invalid one.
    pub fn batches(&self) -> impl Iterator<Item = Batch<'_>> {
        self.batches_from(PART_HEAD as u32)
    }

    /// The valid batches from `at`, up to the first invalid one.
    pub fn batches_from(&self, at: u32) -> impl Iterator<Item = Batch<'_>> {
        let mut at = at as usize;
        let mut epoch = 0;
        std::iter::from_fn(move || {
            let (head, items) = self.batch_at(at)?;
            // One of an earlier run, behind one of a later run, is a leftover.
            if head.epoch < epoch {
                return None;
            }
            epoch = head.epoch;
            let items_at = head.pos.plus(batch::BATCH_HEAD)?.at;
            let end = head.end()?.at;
            at = end as usize;
            Some(Batch { head, items_at, end, items })
        })
    }

    /// What lies at `end`, behind the last good batch; `next` is the head of the part after this one, which says nothing
    /// of this one where either was rewritten.
    pub fn tail(&self, end: u32, next: Option<PartHead>) -> Tail {
        let here = Pos { part: self.name.number, at: end };
        if self.name.rewrite > 0 {
            // It was written as a whole, under another name first.
            return match self.head() {
                Some(head) if head.prev_end == here && end as usize == self.bytes.len() => Tail::Clean,
                head => Tail::Damaged(FlushEvidence::Whole(head.map_or(here, |head| head.prev_end))),
            };
        }
        let next = next.filter(|next| next.name.rewrite == 0);
        let rest = &self.bytes[(end as usize).min(self.bytes.len())..];
        let is_clean = rest.iter().all(|byte| *byte == 0);
        match next {
            Some(next) if next.prev_end != here => Tail::Damaged(FlushEvidence::NextPart(next.prev_end)),
            _ if is_clean => Tail::Clean,
            // The journal went on elsewhere, so that whatever follows was of no account then.
            Some(_) => Tail::Torn,
            None => self.evidence_behind(here).map_or(Tail::Torn, Tail::Damaged),
        }
    }

    /// A batch behind `here` that was written when more than that was flushed.
    fn evidence_behind(&self, here: Pos) -> Option<FlushEvidence> {
        let mut at = (here.at as usize).next_multiple_of(ALIGN);
        while at < self.bytes.len() {
            match self.batch_at(at) {
                Some((head, _)) if head.flushed_to > here => return Some(FlushEvidence::Batch(head.pos)),
                Some((head, _)) => at += head.len as usize,
                None => at += ALIGN,
            }
        }
        None
    }

    /// Where the next good batch after `at` starts.
    pub fn next_good(&self, at: u32) -> Option<u32> {
        let first = (at as usize + 1).next_multiple_of(ALIGN);
        (first..self.bytes.len()).step_by(ALIGN).find_map(|at| self.batch_at(at)).map(|(head, _)| head.pos.at)
    }

    fn batch_at(&self, at: usize) -> Option<(BatchHead, &[u8])> {
        let pos = Pos { part: self.name.number, at: 0 }.plus(at)?;
        batch::parse(self.bytes.get(at..)?, pos, self.head?.secret)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Disk, RealDisk};
    use crate::journal::batch::Secret;

    /// A part with batches of these many items, as the writer writes it.
    fn part_of(batches: &[u32]) -> Vec<u8> {
        let (name, secret) = (PartName::written(1), Some(Secret(9)));
        let mut bytes = PartHead { name, epoch: 1, prev_end: Pos::default(), secret }.encode().to_vec();
        for items in batches {
            let mut out = Vec::new();
            batch::start(&mut out);
            for _ in 0..*items {
                crate::journal::record::write_item(&mut out, 7, |out| out.extend_from_slice(b"content"))
                    .unwrap();
            }
            let pos = Pos { part: 1, at: bytes.len() as u32 };
            let head = BatchHead {
                len: 0,
                items: *items,
                pos,
                epoch: 1,
                flushed_to: pos,
                sequence: 1,
                recorded_ts: 1,
            };
            batch::finish(&mut out, head, secret).unwrap();
            bytes.extend(out);
        }
        bytes
    }

    #[test]
    fn batches_are_the_same_one_by_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("part");
        let whole = part_of(&[3, 0, 1_000, 1]);
        let mut found = Vec::new();
        for (cut, flipped) in [(0, 0), (1, 0), (0, 10_000), (0, 70), (0, 10)] {
            let mut bytes = whole[..whole.len() - cut].to_vec();
            if flipped > 0 {
                bytes[flipped] ^= 1;
            }
            std::fs::write(&path, &bytes).unwrap();
            let file = RealDisk::new().open_to_read(&path).unwrap();
            let all = PartBytes::read(&*file, PartName::written(1)).unwrap();
            let expected: Vec<_> =
                all.batches().map(|batch| (batch.head, batch.end, batch.items.to_vec())).collect();
            let mut one_by_one = Vec::new();
            if let Some(mut reader) = BatchReader::new(&*file, PartName::written(1)).unwrap() {
                while let Some(batch) = reader.next_batch().unwrap() {
                    one_by_one.push((batch.head, batch.end, batch.items.to_vec()));
                }
            }
            assert_eq!(one_by_one, expected, "cut by {cut}, flipped at {flipped}");
            found.push(one_by_one.len());
        }
        assert_eq!(found, [4, 3, 2, 0, 0]);
    }
}
