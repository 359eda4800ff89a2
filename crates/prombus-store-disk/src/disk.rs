//! The disk as the engine sees it: a few operations, each with a contract about what survives a power cut.
//!
//! It has two implementors: [`RealDisk`], and the simulated disk of the testkit, which loses whatever is not guaranteed.

use crate::folder::LOCK;
use parking_lot::RwLock;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use std::any::Any;
use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file system.
pub trait Disk: Send + Sync {
    /// Creates an empty file, replacing one of that name, and holds it open (see [`DiskFile::hold`]). Its name survives a
    /// power cut after [`Disk::sync_dir`].
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;
    /// Opens a file that exists for reading and writing.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;
    /// Opens a file that exists for reading.
    fn open_to_read(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;
    /// Gives a file another name at once, replacing one of that name. Durable after [`Disk::sync_dir`].
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file. Durable after [`Disk::sync_dir`].
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// The names in a folder, in order.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Creates a folder and its parents if they do not exist, and holds it open: files in it are found through this
    /// handle from then on, even if the folder is renamed, and [`Disk::sync_dir`] needs no new handle, which might not
    /// be available.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;
    /// Makes the names in a folder durable. After a failure, it is unknown which of them are.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Locks a data folder against other processes for as long as the guard lives; `None` if someone else holds the lock.
    /// It is on the folder itself, and beside that on the file `LOCK` in it.
    /// [`io::ErrorKind::Unsupported`] where nothing would keep others out.
    fn lock(&self, dir: &Path, lock: Lock) -> io::Result<Option<Box<dyn Any + Send + Sync>>>;
    /// Locks a folder itself, in the same way: the lock moves with the folder, survives changes to the files in it, and
    /// holds by whichever link the folder is reached. [`io::ErrorKind::Unsupported`] where only files can be locked.
    fn lock_folder(&self, dir: &Path, lock: Lock) -> io::Result<Option<Box<dyn Any + Send + Sync>>>;
    /// How many bytes are free.
    fn free_bytes(&self, dir: &Path) -> io::Result<u64>;
}

/// What a folder is locked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    /// To change it: nobody else may have it.
    Alone,
    /// To read it: others may read it as well. Nothing is changed for that.
    Shared,
}

/// An open file. Positions are explicit, so that readers share it.
#[allow(clippy::len_without_is_empty, reason = "a file's length is asked for its size")]
pub trait DiskFile: Send + Sync {
    /// Fills `buffer` from `at`, as far as the file goes, and says how far that was.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize>;
    /// Writes all of `bytes` at `at`. Survives the process at once, a power cut only after [`DiskFile::sync`].
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()>;
    /// Makes everything that was written durable, with the length of the file.
    fn sync(&self) -> io::Result<()>;
    /// The length of the file.
    fn len(&self) -> io::Result<u64>;
    /// Cuts the file, or lengthens it with zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Reserves space up to `len`, which reads as zeros, so that writing there cannot run out of space.
    fn reserve(&self, from: u64, len: u64) -> io::Result<()>;
    /// Keeps it open from now on, so that nothing that is done to it can fail for lack of handles.
    fn hold(&self) -> io::Result<()>;
    /// It may be closed while nobody uses it, to be opened again on demand. All of it was synced: what is said of a write
    /// that failed later is said to the handle that it went through.
    fn let_go(&self);
    /// Which file it is: another one of the same name is not the same.
    fn id(&self) -> io::Result<FileId>;
}

/// What tells a file from others, whatever they are called: its device, and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileId(pub u64, pub u64);

/// Fills `buffer` from `at`; a file that ends before that is an error.
pub fn read_exact(file: &dyn DiskFile, buffer: &mut [u8], at: u64) -> io::Result<()> {
    if file.read_at(buffer, at)? == buffer.len() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// Removes a file, if it exists.
pub fn remove_if_there(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    match disk.remove(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        answer => answer,
    }
}

/// The folder that a file or folder is in.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."))
}

/// The file system of the machine.
#[derive(Debug, Default)]
pub struct RealDisk {
    held: RwLock<Held>,
}

/// Folders that are held open, by the names that they had.
type Held = BTreeMap<PathBuf, File>;

/// How a file is found: by its name in a folder that is held, or by its whole path.
fn place<'a>(held: &'a Held, path: &'a Path) -> (BorrowedFd<'a>, &'a Path) {
    match held.get(folder_of(path)).zip(path.file_name()) {
        Some((folder, name)) => (folder.as_fd(), Path::new(name)),
        None => (CWD, path),
    }
}

/// Only the hub's own user may read its folders, because events may be secret.
const PRIVATE: u32 = 0o700;
/// The parents of a folder are as the user's mask has them.
const OPEN: u32 = 0o777;

/// Makes a folder and its parents; the name of each is durable before anything is made in it.
fn make_dir(dir: &Path, mode: u32) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    let parent = folder_of(dir);
    make_dir(parent, OPEN)?;
    match DirBuilder::new().mode(mode).create(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => {}
        made => made?,
    }
    File::open(parent)?.sync_all()
}

/// Locks a file or folder, unless someone else has it; whether it did.
fn try_lock(file: &File, lock: Lock) -> io::Result<bool> {
    let locked = match lock {
        Lock::Alone => file.try_lock(),
        Lock::Shared => file.try_lock_shared(),
    };
    match locked {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(match Errno::from_io_error(&error) {
            Some(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOLCK | Errno::INVAL | Errno::BADF) => {
                io::Error::new(io::ErrorKind::Unsupported, error)
            }
            _ => error,
        }),
    }
}

struct RealFile(File);

impl RealDisk {
    /// A disk that holds no folder yet.
    pub const fn new() -> Self {
        Self { held: RwLock::new(Held::new()) }
    }

    /// Another handle of a folder.
    fn open_dir(&self, dir: &Path) -> io::Result<File> {
        let held = self.held.read();
        let (folder, name) = match held.get(dir) {
            Some(folder) => (folder.as_fd(), Path::new(".")),
            None => (CWD, dir),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::io::retry_on_intr(|| rustix::fs::openat(folder, name, flags, Mode::empty()))?;
        Ok(opened.into())
    }

    fn open_as(&self, path: &Path, flags: OFlags) -> io::Result<File> {
        let held = self.held.read();
        let (folder, name) = place(&held, path);
        let (flags, mode) = (flags | OFlags::CLOEXEC, Mode::from_raw_mode(0o666));
        let opened = rustix::io::retry_on_intr(|| rustix::fs::openat(folder, name, flags, mode))?;
        Ok(opened.into())
    }
}

impl Disk for RealDisk {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC;
        Ok(Arc::new(RealFile(self.open_as(path, flags)?)))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(RealFile(self.open_as(path, OFlags::RDWR)?)))
    }

    fn open_to_read(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(RealFile(self.open_as(path, OFlags::RDONLY)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let held = self.held.read();
        let ((from_folder, from), (to_folder, to)) = (place(&held, from), place(&held, to));
        Ok(rustix::fs::renameat(from_folder, from, to_folder, to)?)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let held = self.held.read();
        let (folder, name) = place(&held, path);
        Ok(rustix::fs::unlinkat(folder, name, AtFlags::empty())?)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let held = self.held.read();
        let entries = match held.get(dir) {
            Some(folder) => rustix::fs::Dir::read_from(folder)?,
            None => rustix::fs::Dir::read_from(File::open(dir)?)?,
        };
        let mut names = Vec::new();
        for entry in entries {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.retain(|name| name != "." && name != "..");
        names.sort();
        Ok(names)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        make_dir(dir, PRIVATE)?;
        self.held.write().insert(dir.to_owned(), File::open(dir)?);
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        match self.held.read().get(dir) {
            Some(folder) => folder.sync_all(),
            None => File::open(dir)?.sync_all(),
        }
    }

    fn lock(&self, dir: &Path, lock: Lock) -> io::Result<Option<Box<dyn Any + Send + Sync>>> {
        let folder = match self.lock_folder(dir, lock) {
            Ok(None) => return Ok(None),
            // Some network file systems only lock files.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => None,
            locked => locked?,
        };
        // For builds that do not lock the folder itself.
        let path = dir.join(LOCK);
        let file = match lock {
            Lock::Alone => self.open_as(&path, OFlags::RDWR | OFlags::CREATE)?,
            Lock::Shared => match self.open_as(&path, OFlags::RDONLY) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Some(Box::new(folder))),
                opened => opened?,
            },
        };
        match try_lock(&file, lock) {
            Ok(false) => Ok(None),
            // No hub can have a folder that cannot be locked.
            Err(error) if error.kind() == io::ErrorKind::Unsupported && lock == Lock::Shared => {
                Ok(Some(Box::new(folder)))
            }
            locked => locked.map(|_| Some(Box::new((folder, file)) as Box<dyn Any + Send + Sync>)),
        }
    }

    fn lock_folder(&self, dir: &Path, lock: Lock) -> io::Result<Option<Box<dyn Any + Send + Sync>>> {
        let folder = self.open_dir(dir)?;
        Ok(try_lock(&folder, lock)?.then(|| Box::new(folder) as _))
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        let stat = match self.held.read().get(dir) {
            Some(folder) => rustix::fs::fstatvfs(folder)?,
            None => rustix::fs::statvfs(dir)?,
        };
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

impl DiskFile for RealFile {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match self.0.read_at(&mut buffer[done..], at + done as u64) {
                Ok(0) => break,
                Ok(more) => done += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, at)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn reserve(&self, from: u64, len: u64) -> io::Result<()> {
        match rustix::fs::fallocate(&self.0, rustix::fs::FallocateFlags::empty(), from, len - from) {
            // A file system that cannot reserve still grows; there, a full disk shows in the write.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            answer => Ok(answer?),
        }
    }

    /// It is open as long as it is there.
    fn hold(&self) -> io::Result<()> {
        Ok(())
    }

    fn let_go(&self) {}

    fn id(&self) -> io::Result<FileId> {
        let metadata = self.0.metadata()?;
        Ok(FileId(metadata.dev(), metadata.ino()))
    }
}

/// Whether an error means that the disk is full.
pub fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

/// Whether an error means that the process, or the system, has too many open files.
pub fn is_out_of_handles(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_private_and_its_parents_are_as_usual() {
        use std::os::unix::fs::PermissionsExt;
        let root = tempfile::tempdir().unwrap();
        let (usual, dir) = (root.path().join("usual"), root.path().join("a/b"));
        std::fs::create_dir(&usual).unwrap();
        RealDisk::new().create_dir(&dir).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&dir), 0o700);
        assert_eq!(mode(&root.path().join("a")), mode(&usual));
    }

    #[test]
    fn a_folder_that_is_held_needs_neither_its_name_nor_another_handle() {
        let root = tempfile::tempdir().unwrap();
        let (dir, moved) = (root.path().join("a/b"), root.path().join("moved"));
        let disk = RealDisk::new();
        disk.create_dir(&dir).unwrap();
        std::fs::rename(&dir, &moved).unwrap();
        disk.create(&dir.join("1.tmp")).unwrap().write_at(b"here", 0).unwrap();
        disk.rename(&dir.join("1.tmp"), &dir.join("1")).unwrap();
        disk.sync_dir(&dir).unwrap();
        assert_eq!(std::fs::read(moved.join("1")).unwrap(), b"here");
        // A folder that took its name is another one.
        std::fs::create_dir(&dir).unwrap();
        assert_eq!(disk.list(&dir).unwrap(), ["1"]);
        disk.remove(&dir.join("1")).unwrap();
        assert_eq!(disk.list(&dir).unwrap(), [""; 0]);
    }
}
