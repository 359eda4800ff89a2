//! Files of checksummed pages: every byte is covered, and every page is verified when it is first read.
//!
//! Page 0 is the file's header and is written last, so a file without it was never completed. It ends with a random id, so
//! that no two files are the same that were written at different times, whatever they hold.

use crate::disk::{DiskFile, read_exact};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A page on disk: content and checksum.
pub const PAGE: usize = 4096;
/// The content of a page.
pub const CONTENT: usize = PAGE - 4;
/// The random id at the end of page 0. Early files have zeros there.
const ID: usize = 16;
/// How many pages are read at once.
const READ_PAGES: usize = 4;
/// How much is gathered before it is written.
const WRITE_BYTES: usize = 1 << 20;

fn checksum(page: u64, content: &[u8]) -> u32 {
    // The number of the page is covered, so that a page in the wrong place is found too.
    let mut crc = crc32fast::Hasher::new();
    crc.update(&page.to_le_bytes());
    crc.update(content);
    crc.finalize()
}

/// Writes a paged file from front to back.
pub struct PagedWriter {
    file: Arc<dyn DiskFile>,
    buffer: Vec<u8>,
    /// Pages that are written or full in the buffer.
    pages: u64,
    written: u64,
    /// Content of the page that is being filled.
    open: Vec<u8>,
}

impl PagedWriter {
    /// A writer that leaves page 0 for the header.
    pub fn new(file: Arc<dyn DiskFile>) -> Self {
        Self {
            file,
            buffer: Vec::with_capacity(WRITE_BYTES + PAGE),
            pages: 1,
            written: 1,
            open: Vec::with_capacity(CONTENT),
        }
    }

    /// Where the next byte goes, counted in content from the start of page 1.
    pub fn position(&self) -> u64 {
        (self.pages - 1) * CONTENT as u64 + self.open.len() as u64
    }

    /// Appends content.
    pub fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let take = bytes.len().min(CONTENT - self.open.len());
            self.open.extend_from_slice(&bytes[..take]);
            bytes = &bytes[take..];
            if self.open.len() == CONTENT {
                self.close_page()?;
            }
        }
        Ok(())
    }

    /// Fills up the last page, writes the header and makes the file durable.
    pub fn finish(mut self, header: &[u8]) -> io::Result<()> {
        if !self.open.is_empty() {
            self.open.resize(CONTENT, 0);
            self.close_page()?;
        }
        self.flush()?;
        let mut page = header.to_vec();
        page.resize(CONTENT - ID, 0);
        page.extend_from_slice(&fastrand::u128(..).to_le_bytes());
        page.extend_from_slice(&checksum(0, &page).to_le_bytes());
        self.file.write_at(&page, 0)?;
        self.file.sync()
    }

    fn close_page(&mut self) -> io::Result<()> {
        self.buffer.extend_from_slice(&self.open);
        self.buffer.extend_from_slice(&checksum(self.pages, &self.open).to_le_bytes());
        self.open.clear();
        self.pages += 1;
        if self.buffer.len() >= WRITE_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_at(&self.buffer, self.written * PAGE as u64)?;
        self.written = self.pages;
        self.buffer.clear();
        Ok(())
    }
}

/// Reads a paged file.
pub struct PagedFile {
    file: Arc<dyn DiskFile>,
    pages: u64,
    /// One bit a page that was verified since the file was opened.
    verified: Vec<AtomicU64>,
}

impl PagedFile {
    /// Opens a finished file; also gives the content of its header.
    pub fn open(file: Arc<dyn DiskFile>) -> io::Result<(Self, Vec<u8>)> {
        let len = file.len()?;
        if len == 0 || !len.is_multiple_of(PAGE as u64) {
            return Err(damaged(format!("its length {len} is not a whole number of pages")));
        }
        let pages = len / PAGE as u64;
        let verified = (0..pages.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        let paged = Self { file, pages, verified };
        let mut header = vec![0; PAGE];
        paged.read_pages(0, &mut header)?;
        header.truncate(CONTENT);
        Ok((paged, header))
    }

    /// The file itself.
    pub fn handle(&self) -> Arc<dyn DiskFile> {
        self.file.clone()
    }

    /// How many pages there are, with the header.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// `len` bytes of content from `at`.
    pub fn read(&self, at: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut content = Vec::with_capacity(len);
        let mut bytes = Vec::new();
        while content.len() < len {
            let next = at + content.len() as u64;
            let (page, skip) = (next / CONTENT as u64 + 1, (next % CONTENT as u64) as usize);
            let left = len - content.len();
            let pages = (skip + left).div_ceil(CONTENT).min(READ_PAGES);
            // Of pages that were verified before, only what is asked for is read. The last one ends where that does.
            let is_verified = (page..page + pages as u64).all(|page| self.is_verified(page));
            let range = match is_verified {
                true => skip..PAGE * (pages - 1) + (skip + left - CONTENT * (pages - 1)).min(CONTENT),
                false => 0..PAGE * pages,
            };
            if is_verified && pages == 1 {
                let (start, at) = (content.len(), page * PAGE as u64 + range.start as u64);
                content.resize(start + range.len(), 0);
                read_exact(&*self.file, &mut content[start..], at)?;
                continue;
            }
            bytes.resize(range.len(), 0);
            if is_verified {
                read_exact(&*self.file, &mut bytes, page * PAGE as u64 + range.start as u64)?;
            } else {
                self.read_pages(page, &mut bytes)?;
            }
            for n in 0..pages {
                let from = if n == 0 { skip } else { 0 };
                let to = CONTENT.min(from + len - content.len());
                content.extend_from_slice(&bytes[PAGE * n + from - range.start..PAGE * n + to - range.start]);
            }
        }
        Ok(content)
    }

    fn is_verified(&self, page: u64) -> bool {
        let word = self.verified.get((page / 64) as usize);
        word.is_some_and(|word| word.load(Ordering::Relaxed) & 1 << (page % 64) != 0)
    }

    /// Verifies one page, whether or not it was verified before.
    pub fn verify(&self, page: u64) -> io::Result<()> {
        let mut bytes = [0; PAGE];
        read_exact(&*self.file, &mut bytes, page * PAGE as u64)?;
        check(page, &bytes)
    }

    /// Fills `pages` from page `first` on, and verifies those that were not verified before.
    fn read_pages(&self, first: u64, pages: &mut [u8]) -> io::Result<()> {
        let end = first + (pages.len() / PAGE) as u64;
        if end > self.pages {
            return Err(damaged(format!("it ends before page {end}")));
        }
        read_exact(&*self.file, pages, first * PAGE as u64)?;
        for (page, bytes) in (first..).zip(pages.chunks_exact(PAGE)) {
            if !self.is_verified(page) {
                check(page, bytes)?;
                self.verified[(page / 64) as usize].fetch_or(1 << (page % 64), Ordering::Relaxed);
            }
        }
        Ok(())
    }
}

fn check(page: u64, bytes: &[u8]) -> io::Result<()> {
    let (content, stored) = bytes.split_at(CONTENT);
    if checksum(page, content).to_le_bytes() == stored {
        Ok(())
    } else {
        Err(damaged(format!("the checksum of the page at byte {} is wrong", page * PAGE as u64)))
    }
}

/// An error about content that is not what was written.
pub fn damaged(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Disk, RealDisk};

    /// Wherever a read starts and ends, and whether its pages were verified before or not.
    #[test]
    fn every_range_is_what_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("paged");
        let written: Vec<u8> = (0..6 * CONTENT).map(|n| (n % 251) as u8).collect();
        let mut out = PagedWriter::new(RealDisk::new().create(&path).unwrap());
        out.write(&written).unwrap();
        out.finish(b"head").unwrap();
        let places = (0..=6).flat_map(|page| {
            [-1, 0, 1, 2000]
                .map(|at| (page * CONTENT as isize + at).clamp(0, written.len() as isize) as usize)
        });
        let places: Vec<usize> = places.collect();
        let open = || PagedFile::open(RealDisk::new().open_to_read(&path).unwrap()).unwrap().0;
        let warm = open();
        for from in &places {
            for to in places.iter().filter(|to| *to >= from) {
                for file in [&warm, &warm, &open()] {
                    let read = file.read(*from as u64, to - from).unwrap();
                    assert!(read == written[*from..*to], "{from}..{to}");
                }
            }
        }
        assert!(warm.read(written.len() as u64, 1).is_err(), "there is nothing behind the end");
    }
}
