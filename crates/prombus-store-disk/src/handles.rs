//! A disk that keeps only so many files open, however many there are.
//!
//! Files that are not used are closed, and opened again on demand. That goes by name, so it is done only to files that
//! still have theirs: one that is removed or replaced stays open for whoever reads it. A file that is opened again must be
//! the same as before.

use crate::disk::{Disk, DiskFile, FileId, Lock, is_out_of_handles};
use hashbrown::{HashMap, HashSet};
use parking_lot::{Mutex, RwLock};
use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The store takes no more than one in so many of the files that a process may have open: most are for connections.
const SHARE: u64 = 4;
/// The bounds of that share. The least is what a read and a background thread use at a time.
const LEAST_OPEN: u64 = 8;
const MOST_OPEN: u64 = 4096;

/// How many files a store keeps open by default, in a process that may have so many open; `None` is no limit.
pub fn share_of(limit: Option<u64>) -> usize {
    (limit.unwrap_or(u64::MAX) / SHARE).clamp(LEAST_OPEN, MOST_OPEN) as usize
}

/// A disk of whose files only some are open.
pub struct FewHandles(Arc<Pool>);

struct Pool {
    disk: Arc<dyn Disk>,
    most: usize,
    files: Mutex<Files>,
}

#[derive(Default)]
struct Files {
    /// Those that are open and may be closed, by when they are looked at.
    closable: BTreeMap<u64, Arc<Slot>>,
    next_turn: u64,
    /// Those that somebody has and that are still called so.
    named: HashMap<PathBuf, Vec<Arc<Slot>>>,
    /// Names that go when nobody has their files any more: there was no handle to keep one open without its name.
    doomed: HashSet<PathBuf>,
}

/// A file that is open or not. Whoever locks it and the pool locks the pool first.
struct Slot {
    id: FileId,
    is_to_read: bool,
    /// Whether it was used since it was last looked at.
    is_used: AtomicBool,
    state: RwLock<SlotState>,
}

struct SlotState {
    handle: Option<Arc<dyn DiskFile>>,
    path: PathBuf,
    is_held: bool,
    /// Whether no other file can have its name by now.
    is_named: bool,
    /// Its place among those that may be closed.
    turn: Option<u64>,
}

struct FewHandlesFile {
    pool: Arc<Pool>,
    slot: Arc<Slot>,
}

impl FewHandles {
    /// The same disk, of whose files about `most` are open, and those that are held.
    pub fn new(disk: Arc<dyn Disk>, most: usize) -> Self {
        Self(Arc::new(Pool { disk, most: most.max(1), files: Mutex::default() }))
    }
}

impl Files {
    /// Puts a file among those that may be closed, or takes it out, as its state has it.
    fn settle(&mut self, slot: &Arc<Slot>) {
        let mut state = slot.state.write();
        let is_closable = state.handle.is_some() && state.is_named && !state.is_held;
        match (is_closable, state.turn) {
            (true, None) => {
                state.turn = Some(self.next_turn);
                self.closable.insert(self.next_turn, slot.clone());
                self.next_turn += 1;
            }
            (false, Some(turn)) => {
                state.turn = None;
                self.closable.remove(&turn);
            }
            _ => {}
        }
    }

    /// Closes a file that was not used lately, if any may be closed.
    fn close_one(&mut self) {
        let mut chances = self.closable.len();
        while let Some((_, slot)) = self.closable.pop_first() {
            slot.state.write().turn = None;
            if chances > 0 && slot.is_used.swap(false, Ordering::Relaxed) {
                chances -= 1;
                self.settle(&slot);
            } else {
                slot.state.write().handle = None;
                return;
            }
        }
    }

    fn close_all(&mut self) {
        while let Some((_, slot)) = self.closable.pop_first() {
            let mut state = slot.state.write();
            (state.turn, state.handle) = (None, None);
        }
    }
}

impl Pool {
    /// Opens something; where there are no handles, those that are not needed are given back first.
    fn open_with(
        &self,
        files: &mut Files,
        open: impl Fn() -> io::Result<Arc<dyn DiskFile>>,
    ) -> io::Result<Arc<dyn DiskFile>> {
        while files.closable.len() >= self.most {
            files.close_one();
        }
        match open() {
            Err(error) if is_out_of_handles(&error) && !files.closable.is_empty() => {
                files.close_all();
                open()
            }
            opened => opened,
        }
    }

    /// Whoever opened a file has it from now on.
    fn take(
        self: &Arc<Self>,
        files: &mut Files,
        handle: Arc<dyn DiskFile>,
        path: &Path,
        kind: Kind,
    ) -> io::Result<Arc<dyn DiskFile>> {
        let state = SlotState {
            path: path.to_owned(),
            is_held: kind == Kind::Created,
            is_named: true,
            turn: None,
            handle: Some(handle.clone()),
        };
        let slot = Arc::new(Slot {
            id: handle.id()?,
            is_to_read: kind == Kind::ToRead,
            is_used: AtomicBool::new(false),
            state: RwLock::new(state),
        });
        files.named.entry(path.to_owned()).or_default().push(slot.clone());
        files.settle(&slot);
        Ok(Arc::new(FewHandlesFile { pool: self.clone(), slot }))
    }

    fn open(self: &Arc<Self>, path: &Path, kind: Kind) -> io::Result<Arc<dyn DiskFile>> {
        let mut files = self.files.lock();
        let handle = self.open_with(&mut files, || self.open_file(path, kind == Kind::ToRead))?;
        self.take(&mut files, handle, path, kind)
    }

    fn open_file(&self, path: &Path, is_to_read: bool) -> io::Result<Arc<dyn DiskFile>> {
        if is_to_read { self.disk.open_to_read(path) } else { self.disk.open(path) }
    }

    /// The handle of a file, which is opened if it is closed.
    fn opened(&self, files: &mut Files, slot: &Arc<Slot>) -> io::Result<Arc<dyn DiskFile>> {
        let path = {
            let state = slot.state.read();
            if let Some(handle) = &state.handle {
                return Ok(handle.clone());
            }
            state.path.clone()
        };
        let handle = self.open_with(files, || self.open_file(&path, slot.is_to_read))?;
        if handle.id()? != slot.id {
            let what = format!("{} was replaced by another file; restart the hub", path.display());
            return Err(io::Error::other(what));
        }
        slot.state.write().handle = Some(handle.clone());
        files.settle(slot);
        Ok(handle)
    }

    /// Opens the files of a name, which is about to go, so that whoever has them can go on reading.
    fn pin(&self, files: &mut Files, path: &Path) -> io::Result<()> {
        for slot in files.named.get(path).cloned().unwrap_or_default() {
            self.opened(files, &slot)?;
            slot.state.write().is_named = false;
            files.settle(&slot);
        }
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Created,
    ToWrite,
    ToRead,
}

impl Disk for FewHandles {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let pool = &self.0;
        let created = match pool.disk.create(path) {
            Err(error) if is_out_of_handles(&error) => {
                pool.files.lock().close_all();
                pool.disk.create(path)
            }
            created => created,
        };
        let mut files = pool.files.lock();
        pool.take(&mut files, created?, path, Kind::Created)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.0.open(path, Kind::ToWrite)
    }

    fn open_to_read(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.0.open(path, Kind::ToRead)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut files = self.0.files.lock();
        self.0.pin(&mut files, to)?;
        // After a failure, it is unknown which file has which name.
        self.0.disk.rename(from, to)?;
        files.named.remove(to);
        files.doomed.remove(to);
        if let Some(slots) = files.named.remove(from) {
            for slot in &slots {
                slot.state.write().path = to.to_owned();
            }
            files.named.insert(to.to_owned(), slots);
        }
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut files = self.0.files.lock();
        if let Err(error) = self.0.pin(&mut files, path) {
            files.doomed.insert(path.to_owned());
            return Err(error);
        }
        self.0.disk.remove(path)?;
        files.named.remove(path);
        files.doomed.remove(path);
        Ok(())
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

impl FewHandlesFile {
    fn handle(&self) -> io::Result<Arc<dyn DiskFile>> {
        if let Some(handle) = &self.slot.state.read().handle {
            // Written only where it changes, because all readers of the file come by here.
            if !self.slot.is_used.load(Ordering::Relaxed) {
                self.slot.is_used.store(true, Ordering::Relaxed);
            }
            return Ok(handle.clone());
        }
        self.pool.opened(&mut self.pool.files.lock(), &self.slot)
    }
}

impl DiskFile for FewHandlesFile {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        self.handle()?.read_at(buffer, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.handle()?.write_at(bytes, at)
    }

    fn sync(&self) -> io::Result<()> {
        self.handle()?.sync()
    }

    fn len(&self) -> io::Result<u64> {
        self.handle()?.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.handle()?.set_len(len)
    }

    fn reserve(&self, from: u64, len: u64) -> io::Result<()> {
        self.handle()?.reserve(from, len)
    }

    fn hold(&self) -> io::Result<()> {
        let mut files = self.pool.files.lock();
        self.pool.opened(&mut files, &self.slot)?;
        self.slot.state.write().is_held = true;
        files.settle(&self.slot);
        Ok(())
    }

    fn let_go(&self) {
        let mut files = self.pool.files.lock();
        self.slot.state.write().is_held = false;
        files.settle(&self.slot);
        while files.closable.len() > self.pool.most {
            files.close_one();
        }
    }

    fn id(&self) -> io::Result<FileId> {
        Ok(self.slot.id)
    }
}

impl Drop for FewHandlesFile {
    fn drop(&mut self) {
        let mut files = self.pool.files.lock();
        let mut state = self.slot.state.write();
        if let Some(turn) = state.turn.take() {
            files.closable.remove(&turn);
        }
        // The name may be another file's by now.
        if let Some(slots) = files.named.get_mut(&state.path) {
            slots.retain(|slot| !Arc::ptr_eq(slot, &self.slot));
            if slots.is_empty() {
                files.named.remove(&state.path);
                if files.doomed.remove(&state.path) {
                    // Who wanted it gone was told that it is not. Where this fails too, the next open does it.
                    let _ = self.pool.disk.remove(&state.path);
                }
            }
        }
        let handle = state.handle.take();
        drop((state, files));
        // To close the last handle of a file that is gone may take a while.
        drop(handle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::RealDisk;

    fn folder() -> (tempfile::TempDir, Arc<FewHandles>) {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c"] {
            std::fs::write(dir.path().join(name), name).unwrap();
        }
        (dir, Arc::new(FewHandles::new(Arc::new(RealDisk::new()), 1)))
    }

    fn content(file: &dyn DiskFile) -> String {
        let mut bytes = [0; 16];
        let len = file.read_at(&mut bytes, 0).unwrap();
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    }

    /// How many handles of files in the folder this process has.
    fn open_in(dir: &Path) -> usize {
        let handles = std::fs::read_dir("/proc/self/fd").unwrap();
        handles
            .filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok())
            .filter(|to| to.starts_with(dir))
            .count()
    }

    #[test]
    fn files_are_closed_and_opened_again() {
        let (dir, disk) = folder();
        let files: Vec<_> =
            ["a", "b", "c"].map(|name| disk.open_to_read(&dir.path().join(name)).unwrap()).into();
        for _ in 0..3 {
            assert_eq!(files.iter().map(|file| content(&**file)).collect::<String>(), "abc");
            assert_eq!(open_in(dir.path()), 1);
        }
        drop(files);
        assert_eq!(open_in(dir.path()), 0);
        assert!(disk.0.files.lock().named.is_empty());
    }

    #[test]
    fn a_file_that_is_removed_or_replaced_stays_open_for_those_who_have_it() {
        let (dir, disk) = folder();
        let path = |name: &str| dir.path().join(name);
        let files: Vec<_> = ["a", "b", "c"].map(|name| disk.open_to_read(&path(name)).unwrap()).into();
        disk.remove(&path("a")).unwrap();
        disk.rename(&path("c"), &path("b")).unwrap();
        let other = disk.create(&path("a")).unwrap();
        other.write_at(b"other", 0).unwrap();
        for _ in 0..3 {
            assert_eq!(files.iter().map(|file| content(&**file)).collect::<String>(), "abc");
            let again = disk.open_to_read(&path("b")).unwrap();
            assert_eq!(content(&*again), "c");
            assert_eq!(open_in(dir.path()), 4, "the gone ones, the one that was created, and one more");
        }
        drop(files);
        other.let_go();
        assert_eq!(content(&*disk.open_to_read(&path("b")).unwrap()), "c");
        assert_eq!(open_in(dir.path()), 0);
        assert_eq!(content(&*other), "other");
    }

    #[test]
    fn a_file_that_is_held_stays_open() {
        let (dir, disk) = folder();
        let held = disk.open(&dir.path().join("a")).unwrap();
        held.hold().unwrap();
        let others = ["b", "c"].map(|name| disk.open_to_read(&dir.path().join(name)).unwrap());
        assert_eq!(open_in(dir.path()), 2);
        std::fs::remove_file(dir.path().join("a")).unwrap();
        held.write_at(b"here", 0).unwrap();
        assert_eq!(content(&*held), "here");
        drop(others);
    }

    #[test]
    fn another_file_of_the_same_name_is_not_taken_for_it() {
        let (dir, disk) = folder();
        let first = disk.open_to_read(&dir.path().join("a")).unwrap();
        let _second = disk.open_to_read(&dir.path().join("b")).unwrap();
        std::fs::rename(dir.path().join("c"), dir.path().join("a")).unwrap();
        let error = first.len().unwrap_err();
        assert!(error.to_string().contains("was replaced by another file"), "{error}");
        assert_ne!(error.kind(), io::ErrorKind::InvalidData, "what it held is not damaged");
    }
}
