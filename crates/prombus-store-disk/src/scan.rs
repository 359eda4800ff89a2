//! Reading a part from front to back: its batches, where they end, and whether what follows is a torn tail
//! or damage.

use crate::batch::{self, ALIGN, BatchHead};
use crate::disk::{DiskFile, read_exact};
use crate::paged::damaged;
use crate::part::{PART_HEAD, PartHead};
use crate::position::Pos;
use std::io;

/// A part in memory.
pub struct PartBytes {
    part: u32,
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

/// What lies behind the last good batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tail {
    /// Nothing but zeros.
    Clean,
    /// What was never flushed as a whole; it can be cut off.
    Torn,
    /// Something that was flushed before, according to a batch that is still readable at this place.
    Damaged {
        /// The batch that says so.
        witness: Pos,
    },
}

impl PartBytes {
    /// Reads the file of part `part`.
    pub fn read(file: &dyn DiskFile, part: u32) -> io::Result<Self> {
        let len = file.len()?;
        // Where the places end, so does what can be said of it: least of all that something may be cut off.
        let fits = usize::try_from(len).ok().filter(|_| len <= u64::from(u32::MAX));
        let too_long = || damaged(format!("it has {len} bytes, more than a part of the journal can have"));
        let mut bytes = vec![0; fits.ok_or_else(too_long)?];
        read_exact(file, &mut bytes, 0)?;
        Ok(Self { part, bytes })
    }

    /// The number of the part.
    pub fn part(&self) -> u32 {
        self.part
    }

    /// The head of the part, if it is one of this part.
    pub fn head(&self) -> Option<PartHead> {
        PartHead::parse(&self.bytes).filter(|head| head.part == self.part)
    }

    /// The good batches, up to the first that is not.
    pub fn batches(&self) -> impl Iterator<Item = Batch<'_>> {
        self.batches_from(PART_HEAD as u32)
    }

    /// The good batches from `at`, up to the first that is not.
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

    /// What lies at `end`, behind the last good batch.
    pub fn tail(&self, end: u32) -> Tail {
        let rest = &self.bytes[(end as usize).min(self.bytes.len())..];
        if rest.iter().all(|byte| *byte == 0) {
            return Tail::Clean;
        }
        let here = Pos { part: self.part, at: end };
        let mut at = (end as usize).next_multiple_of(ALIGN);
        while at < self.bytes.len() {
            match self.batch_at(at) {
                Some((head, _)) if head.flushed_to > here => return Tail::Damaged { witness: head.pos },
                Some((head, _)) => at += head.len as usize,
                None => at += ALIGN,
            }
        }
        Tail::Torn
    }

    /// Where the next good batch after `at` starts.
    pub fn next_good(&self, at: u32) -> Option<u32> {
        let first = (at as usize + 1).next_multiple_of(ALIGN);
        (first..self.bytes.len()).step_by(ALIGN).find_map(|at| self.batch_at(at)).map(|(head, _)| head.pos.at)
    }

    fn batch_at(&self, at: usize) -> Option<(BatchHead, &[u8])> {
        let pos = Pos { part: self.part, at: 0 }.plus(at)?;
        batch::parse(self.bytes.get(at..)?, pos)
    }
}
