//! All tables of a state, from the oldest to the newest.

use super::merged::Source;
use super::table::Table;
use bytes::Bytes;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Tables from the oldest to the newest. Newer ones take precedence.
#[derive(Debug, Clone, Default)]
pub struct Tables {
    list: Vec<Arc<Table>>,
}

impl PartialEq for Tables {
    /// Tables never change, so the same numbers are the same rows.
    fn eq(&self, other: &Self) -> bool {
        self.numbers().eq(other.numbers())
    }
}

impl Tables {
    /// These tables, the oldest first.
    pub fn new(list: Vec<Arc<Table>>) -> Self {
        Self { list }
    }

    /// The tables, the oldest first.
    pub fn list(&self) -> &[Arc<Table>] {
        &self.list
    }

    /// Their numbers, the oldest first.
    pub fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        self.list.iter().map(|table| table.number())
    }

    /// What they take on disk.
    pub fn disk_bytes(&self) -> u64 {
        self.list.iter().map(|table| table.disk_bytes()).sum()
    }

    /// These and a newer one.
    #[must_use]
    pub fn with_newer(&self, newest: Option<Arc<Table>>) -> Self {
        Self { list: self.list.iter().cloned().chain(newest).collect() }
    }

    /// These with `merged` in the place of `old`, which are neighbours; `None` where they are not there.
    pub fn with_merged(&self, old: &[Arc<Table>], merged: Option<Arc<Table>>) -> Option<Self> {
        let same = |window: &[Arc<Table>]| window.iter().zip(old).all(|(a, b)| a.number() == b.number());
        let at = self.list.windows(old.len().max(1)).position(same)?;
        let mut list = self.list.clone();
        list.splice(at..at + old.len(), merged);
        Some(Self { list })
    }

    /// The newest that is known of a row.
    pub fn get(&self, key: &[u8]) -> io::Result<Option<Option<Bytes>>> {
        for table in self.list.iter().rev() {
            if let Some(known) = table.get(key)? {
                return Ok(Some(known));
            }
        }
        Ok(None)
    }

    /// The rows of a range of each table, the newest first.
    pub fn ranges<'a>(&'a self, range: &Range<Bytes>, reverse: bool) -> impl Iterator<Item = Source<'a>> {
        let range = range.clone();
        let scan = move |table: &'a Arc<Table>| Box::new(table.range(range.clone(), reverse)) as Source<'a>;
        self.list.iter().rev().map(scan)
    }
}
