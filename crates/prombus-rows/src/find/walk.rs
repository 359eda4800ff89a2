//! Scanning the ranges of a plan: one after the other, or merged if their rows have to come in one order.

use super::plan::{Order, WalkRange};
use crate::rows::{Rows, RowsIter};
use bytes::Bytes;
use prombus_core::ReadError;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// The rows of the ranges, in the order that they are walked for.
pub fn walk<'a>(rows: &'a dyn Rows, ranges: &'a [WalkRange], order: Order) -> RowsIter<'a> {
    let is_backwards = order == Order::Backwards;
    match ranges {
        [range] => open(rows, range, is_backwards),
        _ if order == Order::None => Box::new(ranges.iter().flat_map(move |range| open(rows, range, false))),
        _ => Box::new(Merge::new(rows, ranges, is_backwards)),
    }
}

fn open<'a>(rows: &'a dyn Rows, range: &WalkRange, is_backwards: bool) -> RowsIter<'a> {
    if !range.is_row {
        return rows.range(range.rows.clone(), is_backwards);
    }
    let key = range.rows.start.clone();
    let row = rows.get(&key).transpose().map(|row| row.map(|row| (key, row)));
    Box::new(row.into_iter())
}

/// Several walks as one.
struct Merge<'a> {
    walks: Vec<(RowsIter<'a>, usize)>,
    heads: BinaryHeap<Head>,
    /// The walks that have no head now.
    to_advance: Vec<usize>,
    is_backwards: bool,
}

/// The next row of a walk.
struct Head {
    key: Bytes,
    row: Bytes,
    /// What follows so many bytes of the key is in order.
    ordered_from: usize,
    walk: usize,
    is_backwards: bool,
}

impl<'a> Merge<'a> {
    fn new(rows: &'a dyn Rows, ranges: &[WalkRange], is_backwards: bool) -> Self {
        let open = |range: &WalkRange| (open(rows, range, is_backwards), range.ordered_from);
        let walks: Vec<_> = ranges.iter().map(open).collect();
        Self { to_advance: (0..walks.len()).collect(), heads: BinaryHeap::new(), walks, is_backwards }
    }

    fn advance(&mut self) -> Result<(), ReadError> {
        while let Some(walk) = self.to_advance.pop() {
            let Some((rows, ordered_from)) = self.walks.get_mut(walk) else { continue };
            if let Some(next) = rows.next() {
                let (key, row) = next?;
                let (ordered_from, is_backwards) = (*ordered_from, self.is_backwards);
                self.heads.push(Head { key, row, ordered_from, walk, is_backwards });
            }
        }
        Ok(())
    }
}

impl Iterator for Merge<'_> {
    type Item = Result<(Bytes, Bytes), ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Err(error) = self.advance() {
            return Some(Err(error));
        }
        let head = self.heads.pop()?;
        self.to_advance.push(head.walk);
        Some(Ok((head.key, head.row)))
    }
}

impl Head {
    fn ordered(&self) -> &[u8] {
        self.key.get(self.ordered_from..).unwrap_or_default()
    }
}

/// The greatest head is the one that comes next.
impl Ord for Head {
    fn cmp(&self, other: &Self) -> Ordering {
        let forwards = other.ordered().cmp(self.ordered());
        if self.is_backwards { forwards.reverse() } else { forwards }
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Head {}
