//! A table: an immutable file of rows in order.
//!
//! It consists of blocks of rows, then the first key and the position of each block, then a filter of the keys that are
//! looked up one by one; page 0 says where they are. Index and filter are in memory while the table is open, blocks are
//! read on demand, and every page is verified when it is first read.

use super::Row;
use super::block::{self, Rest};
use crate::disk::{Disk, DiskFile};
use crate::index::bloom::Bloom;
use crate::paged::{CONTENT, PAGE, PagedFile, damaged};
use crate::state::checkpoint;
use bytes::Bytes;
use prombus_rows::DOCUMENT;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// How a table's header starts.
pub const MAGIC: [u8; 8] = *b"PROMBUST";
/// The version of the format.
pub const VERSION: u32 = 1;

/// The file of a table.
pub fn path(dir: &Path, number: u64) -> PathBuf {
    checkpoint::folder(dir).join(format!("{number:010}.table"))
}

/// The number of the table with this file name.
pub fn number_of(name: &str) -> Option<u64> {
    name.strip_suffix(".table")?.parse().ok()
}

/// The hash of a key that is in the filter.
pub fn filter_hash(key: &[u8]) -> Option<u64> {
    (key.first() == Some(&DOCUMENT)).then(|| xxh3_64(key))
}

/// What the header says, as numbers in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Header {
    /// The table's number, so that a file under a wrong name is found.
    pub number: u64,
    /// How many rows it has, with those that note a removal.
    pub rows: u64,
    /// How many of them are in the filter.
    pub filtered: u64,
    /// How many blocks there are.
    pub blocks: u64,
    /// Where the index of the blocks starts, in content bytes; the blocks end there.
    pub index_at: u64,
    /// Where the filter starts; the index ends there.
    pub filter_at: u64,
    /// Where the filter ends.
    pub end: u64,
}

const FIELDS: usize = 7;

impl Header {
    /// As bytes.
    pub fn to_bytes(self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&VERSION.to_le_bytes());
        let Self { number, rows, filtered, blocks, index_at, filter_at, end } = self;
        for field in [number, rows, filtered, blocks, index_at, filter_at, end] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(&MAGIC)?.strip_prefix(&VERSION.to_le_bytes())?;
        let mut fields = [0; FIELDS];
        for (field, bytes) in fields.iter_mut().zip(rest.chunks_exact(8)) {
            *field = u64::from_le_bytes(bytes.try_into().ok()?);
        }
        let [number, rows, filtered, blocks, index_at, filter_at, end] = fields;
        Some(Self { number, rows, filtered, blocks, index_at, filter_at, end })
    }
}

/// Where a block lies, and where its first key ends in the list of keys.
#[derive(Debug, Clone, Copy)]
struct BlockPosition {
    at: u64,
    len: u32,
    key_end: usize,
}

/// First keys and positions of all blocks, in little memory.
#[derive(Debug, Default)]
struct BlockIndex {
    keys: Vec<u8>,
    positions: Vec<BlockPosition>,
}

/// What an entry of the index has beside the key: place, length, and the key's length.
const PLACE: usize = 16;

/// Appends an entry to an index under construction.
pub fn push_place(index: &mut Vec<u8>, key: &[u8], block: Range<u64>) {
    index.extend_from_slice(&block.start.to_le_bytes());
    index.extend_from_slice(&((block.end - block.start) as u32).to_le_bytes());
    index.extend_from_slice(&(key.len() as u32).to_le_bytes());
    index.extend_from_slice(key);
}

impl BlockIndex {
    fn parse(mut bytes: &[u8]) -> Option<Self> {
        let mut index = Self::default();
        while !bytes.is_empty() {
            let (head, rest) = bytes.split_at_checked(PLACE)?;
            let at = u64::from_le_bytes(head[..8].try_into().ok()?);
            let len = u32::from_le_bytes(head[8..12].try_into().ok()?);
            let key_len = u32::from_le_bytes(head[12..].try_into().ok()?);
            let (key, rest) = rest.split_at_checked(key_len as usize)?;
            index.keys.extend_from_slice(key);
            index.positions.push(BlockPosition { at, len, key_end: index.keys.len() });
            bytes = rest;
        }
        Some(index)
    }

    fn key(&self, block: usize) -> &[u8] {
        let start = if block == 0 { 0 } else { self.positions[block - 1].key_end };
        &self.keys[start..self.positions[block].key_end]
    }

    /// How many blocks start with a key for which `is_before` holds; it holds for the first ones only.
    fn count(&self, is_before: impl Fn(&[u8]) -> bool) -> usize {
        let (mut low, mut high) = (0, self.positions.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if is_before(self.key(middle)) { low = middle + 1 } else { high = middle }
        }
        low
    }
}

/// An open table.
pub struct Table {
    header: Header,
    file: PagedFile,
    index: BlockIndex,
    filter: Bloom,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Table").field(&self.header).finish()
    }
}

impl Table {
    /// Opens table `number` of a data folder.
    pub fn open(disk: &dyn Disk, dir: &Path, number: u64) -> io::Result<Self> {
        let (file, header) = PagedFile::open(disk.open_to_read(&path(dir, number))?)?;
        let header = Header::parse(&header).filter(|header| header.number == number);
        let header = header.ok_or_else(|| damaged(format!("it is not table {number}")))?;
        let Header { index_at, filter_at, end, .. } = header;
        let content = (file.pages() - 1) * CONTENT as u64;
        if !(index_at <= filter_at && filter_at <= end && end <= content) {
            return Err(damaged(format!("it ends before byte {end} of its content")));
        }
        let index = BlockIndex::parse(&file.read(index_at, (filter_at - index_at) as usize)?);
        let index = index.filter(|index| index.positions.len() as u64 == header.blocks);
        let index = index.ok_or_else(|| damaged("its index of blocks cannot be read".into()))?;
        let words = file.read(filter_at, (end - filter_at) as usize)?;
        let words = words.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()));
        Ok(Self { header, file, index, filter: Bloom::from_words(words.collect()) })
    }

    /// Its number, which names its file.
    pub fn number(&self) -> u64 {
        self.header.number
    }

    /// How many rows it has, with those that note a removal.
    #[cfg(test)]
    pub fn rows(&self) -> u64 {
        self.header.rows
    }

    /// How many blocks it has.
    #[cfg(test)]
    pub fn blocks(&self) -> usize {
        self.index.positions.len()
    }

    /// How many of its keys are in the filter.
    pub fn filtered(&self) -> u64 {
        self.header.filtered
    }

    /// Its file.
    pub fn handle(&self) -> Arc<dyn DiskFile> {
        self.file.handle()
    }

    /// What it takes on disk.
    pub fn disk_bytes(&self) -> u64 {
        self.file.pages() * PAGE as u64
    }

    fn block(&self, block: usize) -> io::Result<Bytes> {
        let BlockPosition { at, len, .. } = self.index.positions[block];
        let content = self.file.read(at, len as usize).map_err(|error| {
            let number = self.header.number;
            let what =
                format!("table {number} of the state: {error}; run `prombus check` on the data folder");
            io::Error::new(error.kind(), what)
        });
        Ok(content?.into())
    }

    /// Whether it may know something of a row. Nothing is read for that.
    pub fn may_have(&self, key: &[u8]) -> bool {
        filter_hash(key).is_none_or(|hash| self.filter.may_contain(hash))
    }

    /// What it knows of a row: nothing, that it is removed, or its value.
    pub fn get(&self, key: &[u8]) -> io::Result<Option<Option<Bytes>>> {
        if !self.may_have(key) {
            return Ok(None);
        }
        match self.index.count(|first| first <= key) {
            0 => Ok(None),
            blocks => {
                let found = block::find(&self.block(blocks - 1)?, key)?;
                // By itself: a document may be kept for long, and the block would be with it.
                Ok(found.map(|value| value.map(|value| Bytes::copy_from_slice(&value))))
            }
        }
    }

    /// The rows of a range, removed ones too; a block is read at a time.
    pub fn range(&self, range: Range<Bytes>, reverse: bool) -> Scan<'_> {
        let first = self.index.count(|key| *key <= *range.start).saturating_sub(1);
        let end = self.index.count(|key| *key < *range.end);
        let blocks = first..end.max(first);
        Scan { table: self, blocks, range: Some(range), reverse, rest: Rest::default() }
    }

    /// All rows, removed ones too.
    pub fn iter(&self) -> Scan<'_> {
        let blocks = 0..self.index.positions.len();
        Scan { table: self, blocks, range: None, reverse: false, rest: Rest::default() }
    }

    /// Whether the file is what its writer makes of its rows: their order and number, where the blocks start, and
    /// that the filter has every key. Says what is not so.
    pub fn verify(&self) -> io::Result<Result<(), &'static str>> {
        let mut rest = Rest::default();
        let mut last: Option<Bytes> = None;
        let mut rows = 0;
        for block in 0..self.index.positions.len() {
            rest.fill(self.block(block)?, None)?;
            let mut is_first = true;
            while let Some((key, _)) = rest.take(false) {
                if last.is_some_and(|last| last >= key) {
                    return Ok(Err("its rows are not in order"));
                }
                if is_first && *key != *self.index.key(block) {
                    return Ok(Err("its index of blocks does not fit its rows"));
                }
                if filter_hash(&key).is_some_and(|hash| !self.filter.may_contain(hash)) {
                    return Ok(Err("its filter lacks a row"));
                }
                (is_first, last) = (false, Some(key));
                rows += 1;
            }
        }
        Ok(if rows == self.header.rows { Ok(()) } else { Err("its number of rows is wrong") })
    }
}

/// Rows of a table, one by one.
pub struct Scan<'a> {
    table: &'a Table,
    /// The blocks that were not read yet.
    blocks: Range<usize>,
    /// What is asked for; everything if there is none.
    range: Option<Range<Bytes>>,
    reverse: bool,
    rest: Rest,
}

impl Iterator for Scan<'_> {
    type Item = io::Result<Row>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(row) = self.rest.take(self.reverse) {
                return Some(Ok(row));
            }
            let block = if self.reverse { self.blocks.next_back()? } else { self.blocks.next()? };
            let filled = self.table.block(block).and_then(|block| self.rest.fill(block, self.range.as_ref()));
            if let Err(error) = filled {
                // Nothing after a hole: who goes on would get rows as if there were none.
                self.blocks = 0..0;
                return Some(Err(error));
            }
        }
    }
}
