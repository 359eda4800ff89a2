//! Rows that changed and are in no table yet, in memory.

use super::{Row, table};
use bytes::Bytes;
use imbl::OrdMap;
use std::ops::Range;

/// What a row takes beside its bytes, roughly: its place in the map, and the heads of two allocations.
const ROW_COST: usize = 128;

/// Changed rows in order. Cheap to clone, because every view holds one.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Overlay {
    rows: OrdMap<Bytes, Option<Bytes>>,
    bytes: usize,
}

fn cost(key: &Bytes, value: Option<&Bytes>) -> usize {
    ROW_COST + key.len() + value.map_or(0, Bytes::len)
}

impl Overlay {
    /// What it takes in memory, roughly.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Puts a row, or notes that it is removed.
    pub fn set(&mut self, key: Bytes, value: Option<Bytes>) {
        let more = cost(&key, value.as_ref());
        let len = key.len();
        // The key that is there stays when a value is replaced, and has the same length.
        let less = self.rows.insert(key, value).map_or(0, |old| ROW_COST + len + old.map_or(0, |v| v.len()));
        self.bytes = (self.bytes + more).saturating_sub(less);
    }

    /// What is known of a row: nothing, that it is removed, or its value.
    pub fn get(&self, key: &[u8]) -> Option<Option<Bytes>> {
        self.rows.get(key).cloned()
    }

    /// The rows of a range, removed ones too.
    pub fn range(&self, range: &Range<Bytes>, reverse: bool) -> Box<dyn Iterator<Item = Row> + '_> {
        if range.start >= range.end {
            return Box::new(std::iter::empty());
        }
        let owned = |(key, value): (&Bytes, &Option<Bytes>)| (key.clone(), value.clone());
        let rows = self.rows.range::<_, Bytes>(range.start.clone()..range.end.clone());
        if reverse { Box::new(rows.rev().map(owned)) } else { Box::new(rows.map(owned)) }
    }

    /// How many of its rows are looked up one by one.
    pub fn filtered(&self) -> usize {
        self.rows.keys().filter(|key| table::is_filtered(key)).count()
    }

    /// All rows, removed ones too.
    pub fn iter(&self) -> impl Iterator<Item = Row> + '_ {
        self.rows.iter().map(|(key, value)| (key.clone(), value.clone()))
    }
}
