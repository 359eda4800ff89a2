//! Several sources of rows as one: if a row is in more than one, the newest source wins.

use super::Row;
use super::index::IndexRows;
use std::io;
use std::sync::Arc;

/// Rows in order, from one source.
pub type Source<'a> = Box<dyn Iterator<Item = io::Result<Row>> + 'a>;

/// The rows of several sources in order, each once; removed ones too.
pub struct Merged<'a> {
    /// The newest first.
    sources: Vec<Source<'a>>,
    /// The next row of each source.
    heads: Vec<Option<Row>>,
    reverse: bool,
    /// What went wrong, to be told next.
    failed: Option<io::Error>,
}

impl<'a> Merged<'a> {
    /// Merges `sources`, the newest first, all of which go from end to start if `reverse` is set.
    pub fn new(sources: Vec<Source<'a>>, reverse: bool) -> Self {
        let heads = (0..sources.len()).map(|_| None).collect();
        let mut merged = Self { sources, heads, reverse, failed: None };
        (0..merged.sources.len()).for_each(|source| merged.advance(source));
        merged
    }

    /// Merges index rows, the newest first.
    pub fn of_indexes(indexes: Vec<Arc<IndexRows>>) -> Self {
        let sources = indexes.into_iter().map(|index| Box::new(index.iter().map(Ok)) as Source<'a>);
        Self::new(sources.collect(), false)
    }

    fn advance(&mut self, source: usize) {
        self.heads[source] = match self.sources[source].next() {
            Some(Ok(row)) => Some(row),
            None => None,
            Some(Err(error)) => {
                self.failed = Some(error);
                None
            }
        };
    }

    /// The source whose head is next; the newest of several.
    fn next_source(&self) -> Option<usize> {
        let mut best: Option<(usize, &Row)> = None;
        for (source, head) in self.heads.iter().enumerate() {
            let Some(row) = head else { continue };
            let is_next = |best: &Row| if self.reverse { row.0 > best.0 } else { row.0 < best.0 };
            if best.is_none_or(|(_, best)| is_next(best)) {
                best = Some((source, row));
            }
        }
        best.map(|(source, _)| source)
    }
}

impl Iterator for Merged<'_> {
    type Item = io::Result<Row>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(error) = self.failed.take() {
            // Without one of the sources, what follows might be wrong.
            self.sources.clear();
            self.heads.clear();
            return Some(Err(error));
        }
        let newest = self.next_source()?;
        let row = self.heads[newest].take()?;
        for older in newest + 1..self.heads.len() {
            if self.heads[older].as_ref().is_some_and(|head| head.0 == row.0) {
                self.advance(older);
            }
        }
        self.advance(newest);
        Some(Ok(row))
    }
}
