//! All tables of a state, from the oldest to the newest.

use super::merged::Source;
use super::table::Table;
use crate::background::eraser::Names;
use bytes::Bytes;
use prombus_rows::DOCUMENT;
use std::collections::BTreeSet;
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

    /// Whether they have rows of documents under these names that are gone or were changed since. Rows that are not of a
    /// collection any more are gone, too.
    pub fn have_gone(&self, names: &Names, is_alive: &dyn Fn(&[u8]) -> bool) -> io::Result<bool> {
        let collections = self.collections()?;
        for name in names.iter() {
            for collection in &collections {
                let row = prombus_rows::document_row(*collection, name);
                let mut has_newer = !is_alive(&row);
                for table in self.list.iter().rev() {
                    match table.get(&row)? {
                        Some(Some(_)) if !has_newer => has_newer = true,
                        Some(_) => return Ok(true),
                        None => {}
                    }
                }
            }
        }
        Ok(false)
    }

    /// The collections of whose documents they have rows. It costs as much as there are of those, however many rows each
    /// has, and however many there ever were.
    fn collections(&self) -> io::Result<BTreeSet<u32>> {
        let mut found = BTreeSet::new();
        let end = prombus_rows::prefixed(vec![DOCUMENT]).end;
        for table in &self.list {
            let mut next = Some(0);
            while let Some(from) = next {
                let rest = prombus_rows::document_row(from, "")..end.clone();
                let first = table.range(rest, false).next().transpose()?;
                let collection = first.and_then(|(row, _)| prombus_rows::collection_of_row(&row));
                found.extend(collection);
                next = collection.and_then(|collection| collection.checked_add(1));
            }
        }
        Ok(found)
    }

    /// The rows of a range of each table, the newest first.
    pub fn ranges<'a>(&'a self, range: &Range<Bytes>, reverse: bool) -> impl Iterator<Item = Source<'a>> {
        let range = range.clone();
        let scan = move |table: &'a Arc<Table>| Box::new(table.range(range.clone(), reverse)) as Source<'a>;
        self.list.iter().rev().map(scan)
    }
}
