//! Batches: the unit that is written to the journal, flushed and checksummed.
//!
//! Under its checksum, a batch carries its own position and the epoch of the run that wrote it, so that a stale one is
//! never mistaken for a new one. It also records how far the journal was flushed when it was written, which distinguishes
//! damage to flushed data from the torn tail that an ordinary power cut leaves. The checksum starts from a secret of the
//! part, so that nothing that a client sends can look like a batch.

use crate::journal::position::Pos;
use crate::journal::record::{self, TooLong};
use std::hash::{BuildHasher, RandomState};

/// The fixed part of a batch.
pub const BATCH_HEAD: usize = 56;
/// Batches start and end at multiples of this.
pub const ALIGN: usize = 8;
/// Maximum length of a batch that is written. A part ends at 1 GiB or with its only batch, so every position in it fits
/// into 32 bits. Early builds have written longer ones, which can still be read.
pub const MAX_BATCH: usize = 1 << 30;
/// What a disk loses as a whole or not at all.
const SECTOR: usize = 512;
const MAGIC: [u8; 4] = *b"PBAT";

/// Where the checksums of a part's batches start from. Nobody outside sees it, or anything made from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Secret(pub u32);

impl Secret {
    /// A new one, which nobody can guess.
    pub fn new() -> Self {
        // Its keys come from the system's source of randomness. 0 would be as if there were none.
        Self((RandomState::new().hash_one(0) as u32).max(1))
    }
}

/// The fixed part of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHead {
    /// Its length with head and padding.
    pub len: u32,
    /// How many items are in it.
    pub items: u32,
    /// Where it starts.
    pub pos: Pos,
    /// Which run of the engine wrote it.
    pub epoch: u64,
    /// Everything before this was flushed when it was written.
    pub flushed_to: Pos,
    /// How many commits there were after it.
    pub sequence: u64,
    /// When it was written, in epoch milliseconds; never decreasing.
    pub recorded_ts: u64,
}

impl BatchHead {
    /// Where the batch ends; `None` where no part can be so long.
    pub fn end(&self) -> Option<Pos> {
        self.pos.plus(self.len as usize)
    }
}

/// Reserves space for the header of a batch.
pub fn start(out: &mut Vec<u8>) {
    out.clear();
    out.resize(BATCH_HEAD, 0);
}

/// How long an empty batch at `at` is whose successor starts a sector; `None` where `at` does so already.
pub fn to_next_sector(at: u32) -> Option<usize> {
    let at = at as usize;
    let behind = (at + BATCH_HEAD).next_multiple_of(SECTOR);
    (!at.is_multiple_of(SECTOR)).then_some(behind - at)
}

/// Completes the batch in `out`: padding, head and checksum. Its `len` is set here.
pub fn finish(out: &mut Vec<u8>, mut head: BatchHead, secret: Option<Secret>) -> Result<BatchHead, TooLong> {
    out.resize(out.len().next_multiple_of(ALIGN), 0);
    let too_long = TooLong { bytes: out.len(), limit: MAX_BATCH };
    head.len = u32::try_from(out.len()).ok().filter(|_| out.len() <= MAX_BATCH).ok_or(too_long)?;
    out[..4].copy_from_slice(&MAGIC);
    out[8..12].copy_from_slice(&head.len.to_le_bytes());
    out[12..16].copy_from_slice(&head.items.to_le_bytes());
    out[16..24].copy_from_slice(&head.pos.pack().to_le_bytes());
    out[24..32].copy_from_slice(&head.epoch.to_le_bytes());
    out[32..40].copy_from_slice(&head.flushed_to.pack().to_le_bytes());
    out[40..48].copy_from_slice(&head.sequence.to_le_bytes());
    out[48..56].copy_from_slice(&head.recorded_ts.to_le_bytes());
    let crc = checksum(out, head.items, secret).unwrap_or_default();
    out[4..8].copy_from_slice(&crc.to_le_bytes());
    Ok(head)
}

/// The checksum of a batch: over its head, and over length and checksum of each item, which covers the rest.
/// `None` where something but zeros follows the items.
fn checksum(batch: &[u8], items: u32, secret: Option<Secret>) -> Option<u32> {
    let mut crc = crc32fast::Hasher::new_with_initial(secret.map_or(0, |secret| secret.0));
    crc.update(&batch[8..BATCH_HEAD]);
    let mut rest = &batch[BATCH_HEAD..];
    for _ in 0..items {
        crc.update(rest.get(..8)?);
        rest = rest.get(record::item_len(rest)?..)?;
    }
    rest.iter().all(|byte| *byte == 0).then(|| crc.finalize())
}

/// The batch at the start of `bytes`, which is at `pos`: its header and items, if it is complete and belongs there.
pub fn parse(bytes: &[u8], pos: Pos, secret: Option<Secret>) -> Option<(BatchHead, &[u8])> {
    let head = head(bytes)?;
    head.end()?;
    let batch = bytes.get(..head.len as usize)?;
    let crc = u32::from_le_bytes(batch[4..8].try_into().ok()?);
    if head.pos != pos || checksum(batch, head.items, secret)? != crc {
        return None;
    }
    let mut rest = &batch[BATCH_HEAD..];
    for _ in 0..head.items {
        record::item(rest)?;
        rest = &rest[record::item_len(rest)?..];
    }
    Some((head, &batch[BATCH_HEAD..]))
}

/// The head at the start of `bytes`, of which nothing is verified yet.
pub fn head(bytes: &[u8]) -> Option<BatchHead> {
    let fixed = bytes.get(..BATCH_HEAD)?;
    let u32_at = |at: usize| fixed[at..at + 4].try_into().map(u32::from_le_bytes).ok();
    let u64_at = |at: usize| fixed[at..at + 8].try_into().map(u64::from_le_bytes).ok();
    let len = u32_at(8)?;
    if fixed[..4] != MAGIC || (len as usize) < BATCH_HEAD || !(len as usize).is_multiple_of(ALIGN) {
        return None;
    }
    Some(BatchHead {
        len,
        items: u32_at(12)?,
        pos: Pos::unpack(u64_at(16)?),
        epoch: u64_at(24)?,
        flushed_to: Pos::unpack(u64_at(32)?),
        sequence: u64_at(40)?,
        recorded_ts: u64_at(48)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECRET: Option<Secret> = Some(Secret(7));

    fn sample() -> (Vec<u8>, BatchHead) {
        let mut out = Vec::new();
        start(&mut out);
        for content in [&b"items"[..], b"that do not end", b"at a multiple of eight"] {
            record::write_item(&mut out, 7, |out| out.extend_from_slice(content)).unwrap();
        }
        let pos = Pos { part: 2, at: 64 };
        let head =
            BatchHead { len: 0, items: 3, pos, epoch: 4, flushed_to: pos, sequence: 9, recorded_ts: 10 };
        let head = finish(&mut out, head, SECRET).unwrap();
        (out, head)
    }

    #[test]
    fn a_batch_is_found_only_where_it_was_written() {
        let (out, head) = sample();
        assert_eq!(parse(&out, head.pos, SECRET).unwrap().0, head);
        assert_eq!(parse(&out, Pos { part: 2, at: 72 }, SECRET), None);
        assert_eq!(parse(&out, Pos { part: 3, at: 64 }, SECRET), None);
        assert_eq!(parse(&out[..out.len() - 1], head.pos, SECRET), None);
        assert_eq!(parse(&out, head.pos, None), None);
        assert_eq!(parse(&out, head.pos, Some(Secret(8))), None);
    }

    #[test]
    fn an_empty_batch_reaches_to_the_next_sector() {
        assert_eq!(to_next_sector(1024), None);
        assert_eq!(to_next_sector(64), Some(448));
        assert_eq!(to_next_sector(1024 - BATCH_HEAD as u32), Some(BATCH_HEAD));
        assert_eq!(to_next_sector(1024 - 8), Some(520));
    }

    #[test]
    fn no_two_secrets_are_the_same() {
        assert_ne!([Secret::new(), Secret::new()], [Secret::new(), Secret::new()]);
    }

    proptest! {
        #[test]
        fn a_flipped_bit_is_found(bit in 0usize..8 * 136) {
            let (mut out, head) = sample();
            let bit = bit % (out.len() * 8);
            out[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(parse(&out, head.pos, SECRET).is_none());
        }

        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes, Pos { part: 1, at: 0 }, None);
        }
    }
}
