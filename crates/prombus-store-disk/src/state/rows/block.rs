//! A block of a table: some rows in order, read in one piece.
//!
//! A row consists of the length of its key, the length of its value (or a marker that it is removed), and both.

use super::Row;
use crate::paged::damaged;
use bytes::Bytes;
use std::io;
use std::ops::Range;

/// Stands for the length of the value of a removed row.
const REMOVED: u32 = u32::MAX;
/// The two lengths.
const ROW_HEAD: usize = 8;

/// Appends a row to a block under construction.
pub fn push(block: &mut Vec<u8>, key: &[u8], value: Option<&[u8]>) -> io::Result<()> {
    let len = |bytes: &[u8]| u32::try_from(bytes.len()).ok().filter(|len| *len != REMOVED);
    let lengths = (len(key), value.map_or(Some(REMOVED), len));
    let (Some(key_len), Some(value_len)) = lengths else {
        return Err(io::Error::other("a row of more than 4 GiB fits into no table"));
    };
    block.extend_from_slice(&key_len.to_le_bytes());
    block.extend_from_slice(&value_len.to_le_bytes());
    block.extend_from_slice(key);
    block.extend_from_slice(value.unwrap_or_default());
    Ok(())
}

/// Where a row lies in its block.
#[derive(Debug, Clone)]
struct Slot {
    key: Range<usize>,
    value: Option<Range<usize>>,
    end: usize,
}

fn slot_at(block: &[u8], at: usize) -> Option<Slot> {
    let head = block.get(at..at.checked_add(ROW_HEAD)?)?;
    let key_len = u32::from_le_bytes(head[..4].try_into().ok()?) as usize;
    let value_len = u32::from_le_bytes(head[4..].try_into().ok()?);
    let key = at + ROW_HEAD..(at + ROW_HEAD).checked_add(key_len)?;
    let value = match value_len {
        REMOVED => None,
        len => Some(key.end..key.end.checked_add(len as usize)?),
    };
    let end = value.as_ref().map_or(key.end, |value| value.end);
    (end <= block.len()).then_some(Slot { key, value, end })
}

fn broken() -> io::Error {
    damaged("a block of rows cannot be read".into())
}

/// Looks up one row, ignoring the others.
pub fn find(block: &Bytes, key: &[u8]) -> io::Result<Option<Option<Bytes>>> {
    let mut at = 0;
    while at < block.len() {
        let slot = slot_at(block, at).ok_or_else(broken)?;
        match block[slot.key].cmp(key) {
            std::cmp::Ordering::Less => at = slot.end,
            std::cmp::Ordering::Equal => return Ok(Some(slot.value.map(|value| block.slice(value)))),
            std::cmp::Ordering::Greater => break,
        }
    }
    Ok(None)
}

/// The rows of a block that are asked for, taken from either end.
#[derive(Debug, Default)]
pub struct Rest {
    block: Bytes,
    slots: Vec<Slot>,
    /// Those that were not taken yet.
    left: Range<usize>,
}

impl Rest {
    /// The rows of `block` that lie in `range`, or all of them. Keeps its memory from block to block.
    pub fn fill(&mut self, block: Bytes, range: Option<&Range<Bytes>>) -> io::Result<()> {
        self.slots.clear();
        self.left = 0..0;
        let mut at = 0;
        while at < block.len() {
            let slot = slot_at(&block, at).ok_or_else(broken)?;
            at = slot.end;
            self.slots.push(slot);
        }
        let before = |bound: &Bytes| self.slots.partition_point(|slot| block[slot.key.clone()] < **bound);
        self.left = match range {
            None => 0..self.slots.len(),
            Some(range) => before(&range.start)..before(&range.end),
        };
        self.block = block;
        Ok(())
    }

    /// Takes the first row that is left, or the last.
    pub fn take(&mut self, reverse: bool) -> Option<Row> {
        let at = if reverse { self.left.next_back()? } else { self.left.next()? };
        let slot = self.slots.get(at)?;
        let value = slot.value.clone().map(|value| self.block.slice(value));
        Some((self.block.slice(slot.key.clone()), value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let block = Bytes::from(bytes);
            let _ = find(&block, b"key");
            let all = Bytes::new()..Bytes::from_static(&[0xff; 9]);
            let _ = Rest::default().fill(block.clone(), Some(&all));
            let _ = Rest::default().fill(block, None);
        }
    }
}
