//! Writing a table, from front to back, from rows in order.

use super::merged::Merged;
use super::table::{self, Header, Table};
use super::{Row, Rows, block};
use crate::disk::Disk;
use crate::index::bloom::Bloom;
use crate::paged::{PagedWriter, damaged};
use crate::state::checkpoint;
use bytes::Bytes;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// A block is closed once it has grown to this.
const BLOCK_BYTES: usize = 6 << 10;
/// Or to so many times its first key, because that is in memory as long as the table is open.
const LEAST_KEYS: usize = 16;
/// But no later than at this, because a block is read in one piece.
const MAX_BLOCK_BYTES: usize = 128 << 10;

/// Where a table goes.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    /// The disk.
    pub disk: &'a dyn Disk,
    /// The data folder.
    pub dir: &'a Path,
    /// The number of the table; no table ever had it.
    pub number: u64,
}

/// Writes a table, makes it durable and opens it; `None` where there are no rows. At most `filtered` of the rows are
/// looked up one by one. What is half written when something fails is removed again, because it takes room.
pub fn write(
    target: Target<'_>,
    filtered: usize,
    rows: impl Iterator<Item = io::Result<Row>>,
) -> io::Result<Option<Arc<Table>>> {
    let Target { disk, dir, number } = target;
    let path = table::path(dir, number);
    // A name of its own: the checkpoint of a part may be written at the same time.
    let tmp = path.with_extension("table.tmp");
    let written = fill(target, &tmp, filtered, rows).and_then(|has_rows| {
        if !has_rows {
            return Ok(None);
        }
        disk.rename(&tmp, &path)?;
        disk.sync_dir(&checkpoint::folder(dir))?;
        Table::open(disk, dir, number).map(|table| Some(Arc::new(table)))
    });
    if !matches!(written, Ok(Some(_))) {
        // The next attempt has another number. What is left of this one is removed at the next open at the latest.
        let _ = disk.remove(&tmp);
        let _ = disk.remove(&path);
    }
    written
}

/// Writes the table of what is frozen of `rows`, leaving out rows that are of no use to anyone.
pub fn write_frozen(
    target: Target<'_>,
    rows: &Rows,
    keep: &dyn Fn(&[u8]) -> bool,
) -> io::Result<Option<Arc<Table>>> {
    let Some(frozen) = rows.frozen() else { return Ok(None) };
    let is_oldest = rows.tables().list().is_empty();
    let run = frozen.clone().merged();
    let rows = run.documents().map(Ok).chain(Merged::of_indexes(run.indexes_once()));
    let rows = rows.filter(|row| match row {
        Ok((key, value)) => (value.is_some() || !is_oldest) && keep(key),
        Err(_) => true,
    });
    write(target, run.len(), rows)
}

/// Writes all rows to `tmp`; whether there were any.
fn fill(
    target: Target<'_>,
    tmp: &Path,
    filtered: usize,
    rows: impl Iterator<Item = io::Result<Row>>,
) -> io::Result<bool> {
    let mut rows = rows.peekable();
    if rows.peek().is_none() {
        return Ok(false);
    }
    let mut out = Builder::new(PagedWriter::new(target.disk.create(tmp)?), filtered);
    out.header.number = target.number;
    for row in rows {
        let (key, value) = row?;
        out.push(key, value.as_deref())?;
    }
    out.finish()?;
    Ok(true)
}

struct Builder {
    out: PagedWriter,
    header: Header,
    block: Vec<u8>,
    first: Bytes,
    last: Bytes,
    index: Vec<u8>,
    filter: Bloom,
}

impl Builder {
    fn new(out: PagedWriter, filtered: usize) -> Self {
        Self {
            out,
            header: Header::default(),
            block: Vec::with_capacity(2 * BLOCK_BYTES),
            first: Bytes::new(),
            last: Bytes::new(),
            index: Vec::new(),
            filter: Bloom::for_entries(filtered),
        }
    }

    fn push(&mut self, key: Bytes, value: Option<&[u8]>) -> io::Result<()> {
        if self.header.rows > 0 && key <= self.last {
            return Err(damaged("rows for a table are not in order".into()));
        }
        if self.block.is_empty() {
            self.first = key.clone();
        }
        if let Some(hash) = table::filter_hash(&key) {
            self.filter.insert(hash);
            self.header.filtered += 1;
        }
        block::push(&mut self.block, &key, value)?;
        self.last = key;
        self.header.rows += 1;
        let enough = BLOCK_BYTES.max(LEAST_KEYS * self.first.len()).min(MAX_BLOCK_BYTES);
        if self.block.len() >= enough { self.close_block() } else { Ok(()) }
    }

    fn close_block(&mut self) -> io::Result<()> {
        let start = self.out.position();
        self.out.write(&self.block)?;
        table::push_place(&mut self.index, &self.first, start..self.out.position());
        self.block.clear();
        self.header.blocks += 1;
        Ok(())
    }

    fn finish(mut self) -> io::Result<()> {
        if !self.block.is_empty() {
            self.close_block()?;
        }
        self.header.index_at = self.out.position();
        self.out.write(&self.index)?;
        self.header.filter_at = self.out.position();
        for word in self.filter.words() {
            self.out.write(&word.to_le_bytes())?;
        }
        self.header.end = self.out.position();
        self.out.finish(&self.header.to_bytes())
    }
}
