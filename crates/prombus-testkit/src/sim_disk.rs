//! A simulated disk under the embedded engine: it keeps what was promised and loses the rest.
//!
//! After a power cut, each sector that was written and not synced is there or not, by chance; a file has its
//! synced length or a later one; names that were not synced may be gone. Any operation can be made to fail, handles to
//! run out, flushes to fail, the disk to be full, and bits to flip. After a kill, everything that was written is there,
//! except that the write under way may be cut short.

use parking_lot::Mutex;
use prombus_store_disk::disk::{Disk, DiskFile, FileId, Lock};
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::ThreadId;

/// What reaches the medium as a whole or not at all.
pub const SECTOR: usize = 512;
/// What the system says to a process that has too many open files.
const EMFILE: i32 = 24;

/// How the machine goes down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// The process dies; what it wrote stays.
    Kill,
    /// The power goes; what was not synced may be lost.
    PowerCut,
}

/// How an operation fails while the machine goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing happens.
    Refused,
    /// It may have happened, as a whole or in part.
    Unclear,
    /// There is no room: what was begun is there in part.
    Full,
    /// From there on, no file or folder can be opened that is not open already.
    NoHandles,
}

/// The disk. Clones are the same disk.
#[derive(Clone, Default)]
pub struct SimDisk(Arc<Mutex<State>>);

#[derive(Default, Clone)]
struct State {
    files: BTreeMap<u64, Content>,
    next_file: u64,
    /// Names as they are now.
    names: BTreeMap<PathBuf, u64>,
    /// Names as they would be after a power cut, and what was done to them since, by folder.
    durable_names: BTreeMap<PathBuf, u64>,
    unsynced: BTreeMap<PathBuf, Vec<NameChange>>,
    folders: BTreeSet<PathBuf>,
    /// Who has which folder, by the number of the guard.
    locked: BTreeMap<u64, (PathBuf, Lock)>,
    next_lock: u64,
    /// Handles of an earlier life are dead.
    life: u64,
    operations: u64,
    /// How many reads each thread has made.
    reads: HashMap<ThreadId, u64>,
    crash_at: Option<(u64, Crash)>,
    fault_at: Option<(u64, Fault)>,
    /// Folders that are open.
    held: BTreeSet<PathBuf>,
    /// How many files are open, how many were at once, and how many may be.
    handles: usize,
    most_handles: usize,
    handle_limit: Option<usize>,
    down: Option<Crash>,
    failing_syncs: bool,
    capacity: Option<u64>,
    cannot_reserve: bool,
    read_only: bool,
    random: Option<fastrand::Rng>,
}

#[derive(Clone)]
enum NameChange {
    Set(PathBuf, u64),
    Gone(PathBuf),
}

#[derive(Default, Clone)]
struct Content {
    now: Vec<u8>,
    durable: Vec<u8>,
    dirty: BTreeSet<usize>,
    reserved: u64,
}

impl SimDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty disk whose file system cannot reserve room.
    pub fn without_reserve() -> Self {
        Self(Arc::new(Mutex::new(State { cannot_reserve: true, ..State::default() })))
    }

    /// Another disk with the same content. It has not been started, and nobody uses it.
    pub fn copy(&self) -> Self {
        let state = self.0.lock().clone();
        Self(Arc::new(Mutex::new(State { locked: BTreeMap::new(), handles: 0, most_handles: 0, ..state })))
    }

    /// How many operations that change something there were since the last start.
    pub fn operations(&self) -> u64 {
        self.0.lock().operations
    }

    /// How many reads the calling thread has made itself.
    pub fn reads_of_this_thread(&self) -> u64 {
        self.0.lock().reads.get(&std::thread::current().id()).copied().unwrap_or_default()
    }

    /// How many reads there were of files.
    pub fn reads(&self) -> u64 {
        self.0.lock().reads.values().sum()
    }

    /// Lets the machine go down in the middle of operation `number` (counted from the last start).
    pub fn crash_at(&self, number: u64, crash: Crash) {
        let mut state = self.0.lock();
        state.crash_at = Some((number, crash));
    }

    /// Makes operation `number` fail (counted from the last start).
    pub fn fail_at(&self, number: u64, fault: Fault) {
        self.0.lock().fault_at = Some((number, fault));
    }

    /// Lets the machine go down now.
    pub fn crash(&self, crash: Crash) {
        self.0.lock().down.get_or_insert(crash);
    }

    /// Whether the machine is down.
    pub fn is_down(&self) -> bool {
        self.0.lock().down.is_some()
    }

    /// Starts the machine again; chance, from `seed`, decides what is left of what was not promised.
    pub fn restart(&self, seed: u64) {
        let mut state = self.0.lock();
        let mut random = fastrand::Rng::with_seed(seed);
        if state.down.take() == Some(Crash::PowerCut) {
            state.lose(&mut random);
        }
        state.life += 1;
        state.operations = 0;
        state.crash_at = None;
        state.fault_at = None;
        state.held.clear();
        state.handles = 0;
        state.failing_syncs = false;
        state.locked.clear();
        state.random = Some(random);
    }

    /// Makes flushes fail (or work again).
    pub fn fail_syncs(&self, fail: bool) {
        self.0.lock().failing_syncs = fail;
    }

    /// Limits the disk to so many bytes.
    pub fn limit(&self, capacity: Option<u64>) {
        self.0.lock().capacity = capacity;
    }

    /// Lets no more than so many files be open at once.
    pub fn limit_handles(&self, most: Option<usize>) {
        self.0.lock().handle_limit = most;
    }

    /// How many files were open at once at most since this was last asked.
    pub fn most_handles(&self) -> usize {
        let mut state = self.0.lock();
        let now = state.handles;
        std::mem::replace(&mut state.most_handles, now)
    }

    /// Refuses every change (or none any more).
    pub fn set_read_only(&self, read_only: bool) {
        self.0.lock().read_only = read_only;
    }

    /// What is used of it.
    pub fn used(&self) -> u64 {
        self.0.lock().used()
    }

    /// All files with their lengths, in the order of their names.
    pub fn files(&self) -> Vec<(PathBuf, usize)> {
        let state = self.0.lock();
        state.names.iter().map(|(path, file)| (path.clone(), state.files[file].now.len())).collect()
    }

    /// The files that hold these bytes, now or after a power cut.
    pub fn holding(&self, bytes: &[u8]) -> Vec<PathBuf> {
        let state = self.0.lock();
        let has = |content: &[u8]| content.windows(bytes.len()).any(|window| window == bytes);
        let holds = |file: &u64| has(&state.files[file].now) || has(&state.files[file].durable);
        state.names.iter().filter(|(_, file)| holds(file)).map(|(path, _)| path.clone()).collect()
    }

    /// What a file has.
    pub fn bytes(&self, path: &Path) -> Vec<u8> {
        let state = self.0.lock();
        state.names.get(path).map(|file| state.files[file].now.clone()).unwrap_or_default()
    }

    /// Changes some bytes of a file, also of what was synced.
    pub fn damage(&self, path: &Path, range: Range<usize>, change: impl Fn(u8) -> u8) {
        let mut state = self.0.lock();
        let Some(file) = state.names.get(path).copied() else { return };
        if let Some(content) = state.files.get_mut(&file) {
            for bytes in [&mut content.now, &mut content.durable] {
                let end = range.end.min(bytes.len());
                for byte in bytes.get_mut(range.start..end).unwrap_or_default() {
                    *byte = change(*byte);
                }
            }
        }
    }

    /// Flips a bit of a file, also of what was synced.
    pub fn flip(&self, path: &Path, bit: usize) {
        self.damage(path, bit / 8..bit / 8 + 1, |byte| byte ^ 1 << (bit % 8));
    }

    fn change<T>(&self, life: u64, act: impl FnOnce(&mut State, bool) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.0.lock();
        state.alive(life)?;
        state.writable()?;
        state.operations += 1;
        let now = state.operations;
        match (state.crash_at, state.fault_at) {
            (Some((at, crash)), _) if now >= at => {
                // What was under way is done in part.
                let _ = act(&mut state, true);
                state.down = Some(crash);
                Err(State::off())
            }
            (_, Some((at, Fault::Refused))) if now == at => Err(State::broken()),
            (_, Some((at, Fault::Unclear))) if now == at => {
                let in_part = state.random.get_or_insert_default().bool();
                let _ = act(&mut state, in_part);
                Err(State::broken())
            }
            (_, Some((at, Fault::Full))) if now == at => {
                let _ = act(&mut state, true);
                Err(io::ErrorKind::StorageFull.into())
            }
            _ => act(&mut state, false),
        }
    }

    fn look<T>(&self, life: u64, act: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.0.lock();
        state.alive(life)?;
        act(&mut state)
    }

    fn life(&self) -> u64 {
        self.0.lock().life
    }

    fn handle(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.0.lock();
        let life = state.life;
        state.alive(life)?;
        state.take_handle()?;
        let file = state.names.get(path).copied().ok_or(io::ErrorKind::NotFound)?;
        state.handles += 1;
        state.most_handles = state.most_handles.max(state.handles);
        Ok(Arc::new(SimFile { disk: self.clone(), file, life }))
    }
}

impl State {
    fn off() -> io::Error {
        io::Error::other("the machine is down")
    }

    fn broken() -> io::Error {
        io::Error::other("the medium does not answer")
    }

    /// Whether something that is not open yet can be opened.
    fn take_handle(&self) -> io::Result<()> {
        let has_ended = matches!(self.fault_at, Some((at, Fault::NoHandles)) if self.operations >= at);
        if has_ended || self.handle_limit.is_some_and(|most| self.handles >= most) {
            return Err(io::Error::from_raw_os_error(EMFILE));
        }
        Ok(())
    }

    fn writable(&self) -> io::Result<()> {
        if self.read_only { Err(io::ErrorKind::ReadOnlyFilesystem.into()) } else { Ok(()) }
    }

    fn alive(&self, life: u64) -> io::Result<()> {
        if self.down.is_some() || life != self.life { Err(Self::off()) } else { Ok(()) }
    }

    fn used(&self) -> u64 {
        self.names.values().map(|file| self.files[file].reserved.max(self.files[file].now.len() as u64)).sum()
    }

    /// Whether a file may grow to `len`.
    fn grow(&self, file: u64, len: u64) -> io::Result<()> {
        let content = &self.files[&file];
        let more = len.saturating_sub(content.reserved.max(content.now.len() as u64));
        match self.capacity {
            Some(capacity) if more > 0 && self.used() + more > capacity => {
                Err(io::ErrorKind::StorageFull.into())
            }
            _ => Ok(()),
        }
    }

    /// How many of `len` bytes at `at` of a file there is room for.
    fn fitting(&self, file: u64, at: u64, len: usize) -> usize {
        let Some(capacity) = self.capacity else { return len };
        let content = &self.files[&file];
        let has = content.reserved.max(content.now.len() as u64);
        let most = (has + capacity.saturating_sub(self.used())).saturating_sub(at);
        len.min(most as usize)
    }

    fn rename_entry(&mut self, change: NameChange) {
        let path = match &change {
            NameChange::Set(path, file) => {
                self.names.insert(path.clone(), *file);
                path
            }
            NameChange::Gone(path) => {
                self.names.remove(path);
                path
            }
        };
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        self.unsynced.entry(folder).or_default().push(change);
    }

    fn sync_names(&mut self, folder: &Path, count: usize) {
        let changes = self.unsynced.remove(folder).unwrap_or_default();
        for change in changes.into_iter().take(count) {
            match change {
                NameChange::Set(path, file) => self.durable_names.insert(path, file),
                NameChange::Gone(path) => self.durable_names.remove(&path),
            };
        }
    }

    /// The power was cut.
    fn lose(&mut self, random: &mut fastrand::Rng) {
        let folders: Vec<PathBuf> = self.unsynced.keys().cloned().collect();
        for folder in folders {
            let changes = self.unsynced[&folder].len();
            self.sync_names(&folder, random.usize(0..=changes));
        }
        self.names = self.durable_names.clone();
        for content in self.files.values_mut() {
            content.lose(random);
        }
    }
}

impl Content {
    fn write(&mut self, bytes: &[u8], at: usize) {
        let end = at + bytes.len();
        if self.now.len() < end {
            self.now.resize(end, 0);
        }
        self.now[at..end].copy_from_slice(bytes);
        self.dirty.extend(at / SECTOR..end.div_ceil(SECTOR));
    }

    fn sync(&mut self) {
        self.durable.resize(self.now.len(), 0);
        for sector in std::mem::take(&mut self.dirty) {
            self.copy_sector(sector);
        }
    }

    /// Makes a sector durable as it is now, as far as the durable length goes.
    fn copy_sector(&mut self, sector: usize) {
        let start = sector * SECTOR;
        let end = (start + SECTOR).min(self.now.len()).min(self.durable.len());
        if start < end {
            self.durable[start..end].copy_from_slice(&self.now[start..end]);
        }
    }

    fn set_len(&mut self, len: usize) {
        let longest = self.now.len().max(len);
        self.now.resize(len, 0);
        // What is cut off may come back after a power cut, also where the file has grown again since.
        self.dirty.extend(len / SECTOR..longest.div_ceil(SECTOR));
    }

    fn lose(&mut self, random: &mut fastrand::Rng) {
        if random.bool() {
            self.durable.resize(self.now.len(), 0);
        }
        let odds = random.u8(..);
        for sector in std::mem::take(&mut self.dirty) {
            if random.u8(..) >= odds {
                self.copy_sector(sector);
            }
        }
        self.now = self.durable.clone();
        self.reserved = 0;
    }
}

impl Disk for SimDisk {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let life = self.life();
        self.change(life, |state, _| {
            state.take_handle()?;
            let folder = path.parent().unwrap_or(Path::new(""));
            if !state.folders.contains(folder) {
                return Err(io::ErrorKind::NotFound.into());
            }
            let file = state.next_file;
            state.next_file += 1;
            state.files.insert(file, Content::default());
            state.rename_entry(NameChange::Set(path.to_owned(), file));
            Ok(())
        })?;
        self.handle(path)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.look(self.life(), |state| state.writable())?;
        self.handle(path)
    }

    fn open_to_read(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.handle(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change(self.life(), |state, _| {
            let file = state.names.get(from).copied().ok_or(io::ErrorKind::NotFound)?;
            state.rename_entry(NameChange::Set(to.to_owned(), file));
            state.rename_entry(NameChange::Gone(from.to_owned()));
            Ok(())
        })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.change(self.life(), |state, _| {
            state.rename_entry(NameChange::Gone(path.to_owned()));
            Ok(())
        })
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.look(self.life(), |state| {
            let name = |path: &PathBuf| Some(path.file_name()?.to_string_lossy().into_owned());
            let files = state.names.keys().filter(|path| path.parent() == Some(dir)).filter_map(name);
            let folders = state.folders.iter().filter(|path| path.parent() == Some(dir)).filter_map(name);
            let mut names: Vec<String> = files.chain(folders).collect();
            names.sort();
            Ok(names)
        })
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.0.lock();
        state.alive(state.life)?;
        state.take_handle()?;
        state.folders.insert(dir.to_owned());
        state.held.insert(dir.to_owned());
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.change(self.life(), |state, in_part| {
            if !state.held.contains(dir) {
                state.take_handle()?;
            }
            if !in_part {
                state.sync_names(dir, usize::MAX);
            }
            Ok(())
        })
    }

    fn lock(&self, dir: &Path, lock: Lock) -> io::Result<Option<Box<dyn Any + Send + Sync>>> {
        let mut state = self.0.lock();
        state.alive(state.life)?;
        if lock == Lock::Alone {
            state.writable()?;
        }
        let mut others = state.locked.values().filter(|(locked, _)| locked == dir);
        if others.any(|(_, other)| lock == Lock::Alone || *other == Lock::Alone) {
            return Ok(None);
        }
        let number = state.next_lock;
        state.next_lock += 1;
        state.locked.insert(number, (dir.to_owned(), lock));
        Ok(Some(Box::new(SimLock { disk: self.clone(), number })))
    }

    /// A folder has one name here, and nothing in it is locked.
    fn lock_folder(&self, dir: &Path, lock: Lock) -> io::Result<Option<Box<dyn Any + Send + Sync>>> {
        self.lock(dir, lock)
    }

    fn free_bytes(&self, _: &Path) -> io::Result<u64> {
        self.look(self.life(), |state| {
            Ok(state.capacity.map_or(u64::MAX, |all| all.saturating_sub(state.used())))
        })
    }
}

struct SimLock {
    disk: SimDisk,
    number: u64,
}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.disk.0.lock().locked.remove(&self.number);
    }
}

struct SimFile {
    disk: SimDisk,
    file: u64,
    life: u64,
}

impl DiskFile for SimFile {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        self.disk.look(self.life, |state| {
            *state.reads.entry(std::thread::current().id()).or_default() += 1;
            let now = &state.files[&self.file].now;
            let start = (at as usize).min(now.len());
            let len = buffer.len().min(now.len() - start);
            buffer[..len].copy_from_slice(&now[start..start + len]);
            Ok(len)
        })
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.disk.change(self.life, |state, in_part| {
            let fitting = state.fitting(self.file, at, bytes.len());
            let cut = match &mut state.random {
                Some(random) if in_part => random.usize(0..=fitting),
                _ => fitting,
            };
            if let Some(content) = state.files.get_mut(&self.file) {
                content.write(&bytes[..cut], at as usize);
            }
            if fitting < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.change(self.life, |state, in_part| {
            if state.failing_syncs {
                return Err(State::broken());
            }
            match state.files.get_mut(&self.file) {
                Some(content) if !in_part => content.sync(),
                _ => {}
            }
            Ok(())
        })
    }

    fn len(&self) -> io::Result<u64> {
        self.disk.look(self.life, |state| Ok(state.files[&self.file].now.len() as u64))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk.change(self.life, |state, _| {
            state.grow(self.file, len)?;
            if let Some(content) = state.files.get_mut(&self.file) {
                content.set_len(len as usize);
                content.reserved = content.reserved.min(len);
            }
            Ok(())
        })
    }

    fn reserve(&self, _: u64, len: u64) -> io::Result<()> {
        self.disk.change(self.life, |state, _| {
            if state.cannot_reserve {
                return Ok(());
            }
            state.grow(self.file, len)?;
            if let Some(content) = state.files.get_mut(&self.file) {
                content.reserved = content.reserved.max(len);
                if content.now.len() < len as usize {
                    content.now.resize(len as usize, 0);
                }
            }
            Ok(())
        })
    }

    fn hold(&self) -> io::Result<()> {
        Ok(())
    }

    fn let_go(&self) {}

    fn id(&self) -> io::Result<FileId> {
        Ok(FileId(0, self.file))
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let mut state = self.disk.0.lock();
        if state.life == self.life {
            state.handles -= 1;
        }
    }
}
