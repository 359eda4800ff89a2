//! Bytes that arrive piece by piece and are needed as a whole.
//!
//! They are kept in pieces, so a partial message takes what has arrived plus at most one piece. A single growing buffer
//! would take up to twice as much, and three times as much while it is reallocated.

use bytes::{Bytes, BytesMut};

/// Maximum size of a piece. Anything up to this size is copied only once.
const PIECE_BYTES: usize = 64 << 10;

/// What has arrived so far.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    full: Vec<BytesMut>,
    last: BytesMut,
    len: usize,
}

impl Gathered {
    /// Empty, with this many bytes expected.
    pub fn expecting(bytes: usize) -> Self {
        Self { last: BytesMut::with_capacity(bytes.min(PIECE_BYTES)), ..Self::default() }
    }

    /// How many bytes have arrived.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Appends what has arrived next. It is copied, so that its buffer can be reused.
    pub fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let free = self.last.capacity() - self.last.len();
            if free == 0 {
                // Pieces grow with the total, so that small messages stay small.
                let next = bytes.len().max(self.len).min(PIECE_BYTES);
                let full = std::mem::replace(&mut self.last, BytesMut::with_capacity(next));
                self.full.extend((!full.is_empty()).then_some(full));
                continue;
            }
            let (now, later) = bytes.split_at(free.min(bytes.len()));
            self.last.extend_from_slice(now);
            self.len += now.len();
            bytes = later;
        }
    }

    /// All of it in one buffer. Each piece is freed as soon as it is copied.
    pub fn take(&mut self) -> Bytes {
        let Self { full, last, len } = std::mem::take(self);
        if full.is_empty() {
            return last.freeze();
        }
        let mut whole = BytesMut::with_capacity(len);
        for piece in full.into_iter().chain([last]) {
            whole.extend_from_slice(&piece);
        }
        whole.freeze()
    }

    #[cfg(test)]
    fn capacity(&self) -> usize {
        self.full.iter().map(BytesMut::capacity).sum::<usize>() + self.last.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_half_there_takes_little_more_than_has_come() {
        for (expected, part) in [(0, 1), (0, 700), (16 << 20, 8 << 10), (16 << 20, 60_000), (0, 300_000)] {
            let (mut gathered, mut came) = (Gathered::expecting(expected), Vec::new());
            while came.len() < 1 << 20 {
                let bytes: Vec<u8> = (0..part).map(|at| (came.len() + at) as u8).collect();
                gathered.push(&bytes);
                came.extend(bytes);
                let (taken, most) = (gathered.capacity(), came.len() + PIECE_BYTES);
                assert!(taken <= most, "{taken} bytes for {} in parts of {part}", came.len());
            }
            assert_eq!(gathered.len(), came.len());
            assert!(gathered.take() == came, "in parts of {part}");
            assert_eq!((gathered.len(), gathered.take().len()), (0, 0));
        }
    }
}
