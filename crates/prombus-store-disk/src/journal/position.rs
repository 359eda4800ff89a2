//! Positions in the journal.

use std::fmt;

/// A byte of a part of the journal. Orders as the journal does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Pos {
    /// The number of the part, from 1.
    pub part: u32,
    /// The byte within it.
    pub at: u32,
}

impl Pos {
    /// The position this many bytes after it; `None` if a part cannot be that long.
    pub fn plus(self, bytes: usize) -> Option<Self> {
        let at = self.at.checked_add(u32::try_from(bytes).ok()?)?;
        Some(Self { at, ..self })
    }

    /// One number for both, in the same order.
    pub fn pack(self) -> u64 {
        u64::from(self.part) << 32 | u64::from(self.at)
    }

    /// The inverse of [`Pos::pack`].
    pub fn unpack(packed: u64) -> Self {
        Self { part: (packed >> 32) as u32, at: packed as u32 }
    }
}

impl fmt::Debug for Pos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "part {} byte {}", self.part, self.at)
    }
}

/// A partition of one incarnation of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionRef {
    /// The incarnation of the topic.
    pub topic: u32,
    /// The partition.
    pub partition: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_end_where_a_part_does() {
        let last = Pos { part: 7, at: u32::MAX };
        assert_eq!(Pos { part: 7, at: u32::MAX - 8 }.plus(8), Some(last));
        assert_eq!(last.plus(0), Some(last));
        assert_eq!(last.plus(1), None);
        assert_eq!(Pos { part: 7, at: 64 }.plus(u32::MAX as usize), None);
        assert_eq!(Pos { part: 7, at: 0 }.plus(1 << 32), None);
        assert_eq!(Pos::unpack(last.pack()), last);
    }
}
