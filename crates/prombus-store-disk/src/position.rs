//! Places in the journal.

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
    /// One number for both, in the same order.
    pub fn pack(self) -> u64 {
        u64::from(self.part) << 32 | u64::from(self.at)
    }

    /// What [`Pos::pack`] made one number of.
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
