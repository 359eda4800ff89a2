//! Room that is kept back for cleaning, because it takes room to make room.
//!
//! A file of zeros takes it. What cleaning writes and finds no room for gets as much of that file, right before it is
//! written again. So does the part that the journal goes on in while an older one is cleaned. Events never get any of it.

use crate::disk::{Disk, DiskFile, Lock, is_full};
use crate::folder::RESERVE;
use parking_lot::Mutex;
use std::any::Any;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// It is given away in steps of this: a file takes a little more than what is in it.
const STEP: u64 = 64 << 10;
/// No more is kept back than one in so many bytes that the store has or could have.
const SHARE: u64 = 8;

/// The room that is kept back.
pub struct Reserve {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    kept: Mutex<Option<Kept>>,
}

struct Kept {
    file: Arc<dyn DiskFile>,
    len: u64,
}

impl Reserve {
    /// What an earlier run has kept back, if anything.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path) -> Self {
        let kept = Kept::open(&*disk, &dir.join(RESERVE)).ok();
        Self { disk, dir: dir.to_owned(), kept: Mutex::new(kept) }
    }

    /// Keeps `most` bytes back, or what can be spared, for a journal of so many bytes. What others need just as much is
    /// left to them: at most half of what is free is taken at a time.
    pub fn top_up(&self, journal: u64, most: u64) -> io::Result<()> {
        let mut kept = self.kept.lock();
        let len = kept.as_ref().map_or(0, |kept| kept.len);
        if len >= most {
            return Ok(());
        }
        let free = self.disk.free_bytes(&self.dir)?;
        let all = journal.saturating_add(len).saturating_add(free);
        let wanted = most.min(all / SHARE).min(len.saturating_add(free / 2));
        if wanted <= len {
            return Ok(());
        }
        if kept.is_none() {
            let file = self.disk.create(&self.dir.join(RESERVE))?;
            file.let_go();
            *kept = Some(Kept { file, len: 0 });
        }
        kept.as_mut().map_or(Ok(()), |kept| kept.grow(wanted))
    }

    /// How much is kept back.
    pub fn kept_bytes(&self) -> u64 {
        self.kept.lock().as_ref().map_or(0, |kept| kept.len)
    }

    /// Gives back room for so many bytes; whether there was any left.
    pub fn give(&self, bytes: u64) -> bool {
        let mut kept = self.kept.lock();
        let Some(kept) = kept.as_mut().filter(|kept| kept.len > 0) else { return false };
        let left = kept.len.saturating_sub(bytes.max(1).next_multiple_of(STEP));
        let is_given = kept.file.set_len(left).is_ok();
        if is_given {
            kept.len = left;
        }
        is_given
    }

    /// Does something that takes so many bytes, with what is kept back if it has to be.
    fn with_room<T>(&self, bytes: u64, act: impl Fn() -> io::Result<T>) -> io::Result<T> {
        loop {
            match act() {
                Err(error) if is_full(&error) && self.give(bytes) => {}
                done => return done,
            }
        }
    }
}

impl Kept {
    fn open(disk: &dyn Disk, path: &Path) -> io::Result<Self> {
        let file = disk.open(path)?;
        let mut kept = Self { len: file.len()?, file };
        // A file that was copied, or whose disk lost power, may be long and take no room.
        if kept.len > 0 && kept.file.reserve(0, kept.len).is_err() {
            kept.file.set_len(0)?;
            kept.len = 0;
        }
        Ok(kept)
    }

    fn grow(&mut self, to: u64) -> io::Result<()> {
        match self.file.reserve(self.len, to) {
            // Where room cannot be reserved, the file is as long as it was, and nothing is kept back.
            Ok(()) => self.len = self.file.len()?,
            Err(_) => self.file.set_len(self.len)?,
        }
        Ok(())
    }
}

/// The disk for cleaning: what is written to files that are created here may use what is kept back.
pub struct CleaningDisk(pub Arc<Reserve>);

struct CleaningFile {
    file: Arc<dyn DiskFile>,
    reserve: Arc<Reserve>,
}

impl Disk for CleaningDisk {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.0.with_room(STEP, || self.0.disk.create(path))?;
        Ok(Arc::new(CleaningFile { file, reserve: self.0.clone() }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.0.disk.open(path)
    }

    fn open_to_read(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.0.disk.open_to_read(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.with_room(STEP, || self.0.disk.rename(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.disk.remove(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.0.disk.list(dir)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.0.disk.create_dir(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.0.disk.sync_dir(dir)
    }

    fn lock(&self, dir: &Path, lock: Lock) -> io::Result<Option<Box<dyn Any + Send + Sync>>> {
        self.0.disk.lock(dir, lock)
    }

    fn lock_folder(&self, dir: &Path, lock: Lock) -> io::Result<Option<Box<dyn Any + Send + Sync>>> {
        self.0.disk.lock_folder(dir, lock)
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        self.0.disk.free_bytes(dir)
    }
}

impl DiskFile for CleaningFile {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        self.file.read_at(buffer, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.reserve.with_room(bytes.len() as u64, || self.file.write_at(bytes, at))
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn reserve(&self, from: u64, len: u64) -> io::Result<()> {
        self.reserve.with_room(len - from, || self.file.reserve(from, len))
    }

    fn hold(&self) -> io::Result<()> {
        self.file.hold()
    }

    fn let_go(&self) {
        self.file.let_go();
    }

    fn id(&self) -> io::Result<crate::disk::FileId> {
        self.file.id()
    }
}
