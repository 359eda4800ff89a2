//! A few offsets of a partition: which of them are settled, and what is known of those that failed.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;

/// How many offsets a chunk has: as many as a byte can tell apart.
pub(super) const CHUNK: u64 = 1 << u8::BITS;
const WORDS: usize = 4;
/// The first byte of a stored chunk.
pub(super) const VERSION: u8 = 1;
/// A stored record: place, attempts, replays, due, pause.
const RECORD_BYTES: usize = 1 + 4 + 4 + 8 + 4;

/// What is known of an event that is not settled and was delivered before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Record {
    /// How many deliveries failed.
    pub attempts: u32,
    /// How often it came back from the dead letters.
    pub replays: u32,
    /// When it may be delivered again, in epoch milliseconds.
    pub due_ms: u64,
    /// How long it was to wait for that, in milliseconds. Where the clock was set back, it waits no longer.
    pub pause_ms: u32,
}

impl Record {
    /// It may be delivered again after a pause.
    pub fn wait(&mut self, pause: Duration, now_ms: u64) {
        self.pause_ms = u32::try_from(pause.as_millis()).unwrap_or(u32::MAX);
        self.due_ms = if pause.is_zero() { 0 } else { now_ms.saturating_add(self.pause_ms.into()) };
    }

    /// How long it still has to wait.
    pub fn remaining(&self, now_ms: u64) -> Duration {
        Duration::from_millis(self.due_ms.saturating_sub(now_ms).min(self.pause_ms.into()))
    }
}

/// The chunk of an offset, and the place in it.
pub(super) fn place(offset: u64) -> (u64, u8) {
    (offset / CHUNK, offset.to_le_bytes()[0])
}

/// What is known of the offsets of a chunk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Chunk {
    /// A bit for each offset that is settled. Those below the partition's `next` mean nothing.
    settled: [u64; WORDS],
    pub records: BTreeMap<u8, Record>,
}

impl Chunk {
    /// The bits from `from` on, up to `end`.
    fn bits(from: u64, end: u64) -> [u64; WORDS] {
        let below = |end: u64, word: u64| match end.saturating_sub(64 * word) {
            bits @ 0..64 => (1 << bits) - 1,
            _ => u64::MAX,
        };
        [0, 1, 2, 3].map(|word| below(end, word) & !below(from, word))
    }

    /// Whether an offset is settled.
    pub fn has(&self, at: u8) -> bool {
        self.settled[usize::from(at / 64)] >> (at % 64) & 1 == 1
    }

    /// How many of the offsets from `from` on, up to `end`, are settled.
    pub fn count(&self, from: u64, end: u64) -> u64 {
        let masks = Self::bits(from, end);
        self.settled.iter().zip(masks).map(|(bits, mask)| u64::from((bits & mask).count_ones())).sum()
    }

    /// The first offset from `from` on that is not settled, or the end.
    pub fn first_open(&self, from: u64) -> u64 {
        let masks = Self::bits(from, CHUNK);
        for (word, (bits, mask)) in (0..).zip(self.settled.iter().zip(masks)) {
            let open = !bits & mask;
            if open != 0 {
                return 64 * word + u64::from(open.trailing_zeros());
            }
        }
        CHUNK
    }

    /// Settles the offsets from `from` on, up to `end`.
    pub fn set(&mut self, from: u64, end: u64) {
        let masks = Self::bits(from, end);
        self.settled.iter_mut().zip(masks).for_each(|(bits, mask)| *bits |= mask);
    }

    /// An offset is not settled any more.
    pub fn clear(&mut self, at: u8) {
        self.settled[usize::from(at / 64)] &= !(1 << (at % 64));
    }

    /// The chunk as it is stored.
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(1 + 8 * WORDS + RECORD_BYTES * self.records.len());
        out.push(VERSION);
        self.settled.iter().for_each(|bits| out.extend_from_slice(&bits.to_le_bytes()));
        for (at, record) in &self.records {
            out.push(*at);
            out.extend_from_slice(&record.attempts.to_le_bytes());
            out.extend_from_slice(&record.replays.to_le_bytes());
            out.extend_from_slice(&record.due_ms.to_le_bytes());
            out.extend_from_slice(&record.pause_ms.to_le_bytes());
        }
        out.into()
    }

    /// What a stored chunk says; `None` where it makes no sense.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (version, rest) = bytes.split_first()?;
        let (settled, records) = rest.split_at_checked(8 * WORDS)?;
        if *version != VERSION || records.len() % RECORD_BYTES != 0 {
            return None;
        }
        let mut chunk = Self::default();
        for (word, bits) in chunk.settled.iter_mut().zip(settled.chunks_exact(8)) {
            *word = u64::from_le_bytes(bits.try_into().ok()?);
        }
        for record in records.chunks_exact(RECORD_BYTES) {
            let (at, rest) = record.split_first()?;
            let (attempts, rest) = rest.split_first_chunk()?;
            let (replays, rest) = rest.split_first_chunk()?;
            let (due_ms, pause_ms) = rest.split_first_chunk()?;
            let record = Record {
                attempts: u32::from_le_bytes(*attempts),
                replays: u32::from_le_bytes(*replays),
                due_ms: u64::from_le_bytes(*due_ms),
                pause_ms: u32::from_le_bytes(pause_ms.try_into().ok()?),
            };
            chunk.records.insert(*at, record);
        }
        Some(chunk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_never_longer_than_it_was_to_be() {
        let mut record = Record::default();
        record.wait(Duration::from_secs(5), 1_000_000);
        assert_eq!(record.remaining(1_002_000), Duration::from_secs(3));
        assert_eq!(record.remaining(0), Duration::from_secs(5), "the clock was set back");
        assert_eq!(record.remaining(2_000_000), Duration::ZERO);
    }
}
