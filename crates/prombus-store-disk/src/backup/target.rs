//! The folder that a backup is made into.
//!
//! A file that the manifest lists is never changed: new ones come in beside it under the name of the next generation, and are
//! durable before the next manifest is. That manifest is the one step from the old backup to the new one, so at every moment
//! the folder is one of them, as a whole.

use crate::backup::manifest::{Listed, Manifest, name_in};
use crate::backup::settle::{Next, settle};
use crate::disk::{Disk, DiskFile, Lock, RealDisk, folder_of, read_exact};
use crate::folder::{BACKUP, FORMAT, FileKind, LOCK, folders};
use crate::recovery::recover::{self, OpenError, at_file};
use prombus_core::{CopyFile, FileFingerprint};
use std::any::Any;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How much is copied at once within the folder.
const COPY_BYTES: usize = 1 << 20;

/// Why no backup can be made into a folder.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// There is something else in it.
    #[error("{} is not empty and no backup: {why}; choose a new folder, or one that was made by `prombus backup`", .dir.display())]
    NotABackup {
        /// The folder.
        dir: PathBuf,
        /// What it is.
        why: &'static str,
    },
    /// It is in use, or cannot be read.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// What the hub sent is no data folder.
    #[error("the hub lists files that make no backup: {0}")]
    BadList(String),
    /// A file did not come in as a whole.
    #[error("{name} has {bytes} bytes, and {got} came in; run the command again")]
    Incomplete {
        /// The file.
        name: String,
        /// How long it is.
        bytes: u64,
        /// What came.
        got: u64,
    },
    /// A file did not come in at all.
    #[error("{0} did not come in; run the command again")]
    Missing(String),
}

/// What is to be fetched of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedFile {
    /// The file.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// What is there of it already: so many bytes, with this fingerprint. The hub says whether it is the same there.
    pub have: Option<(u64, FileFingerprint)>,
}

impl WantedFile {
    /// How much there is to fetch.
    pub fn missing_bytes(&self) -> u64 {
        self.bytes - self.have.map_or(0, |(bytes, _)| bytes)
    }

    /// The same file, of which nothing that is here can be used.
    #[must_use]
    pub fn from_the_start(self) -> Self {
        Self { have: None, ..self }
    }
}

/// A folder for backups, locked.
pub struct Target {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    /// The backup that is there.
    now: Manifest,
    _lock: Box<dyn Any + Send + Sync>,
}

impl Target {
    /// Opens a folder for a backup, or makes it. Blocks.
    pub fn open(dir: &Path) -> Result<Self, BackupError> {
        Self::open_on(Arc::new(RealDisk::new()), dir)
    }

    /// Opens a folder on the given disk.
    pub fn open_on(disk: Arc<dyn Disk>, dir: &Path) -> Result<Self, BackupError> {
        check_is_ours(&*disk, dir)?;
        for (folder, _) in folders(dir) {
            disk.create_dir(&folder).map_err(at_file(&folder))?;
        }
        let lock = recover::lock(&*disk, dir, Lock::Alone)?;
        let path = dir.join(BACKUP);
        // Somebody may have made it something else until it was locked.
        check_is_ours(&*disk, dir)?;
        let now = match Manifest::read(&*disk, dir).map_err(at_file(&path))? {
            Some(manifest) => manifest,
            None => {
                let none = Manifest::default();
                // The folder is known as ours before there is anything in it.
                disk.sync_dir(folder_of(dir))
                    .and_then(|()| none.write(&*disk, dir))
                    .map_err(at_file(&path))?;
                none
            }
        };
        settle(&*disk, dir, &now, Next::Stays).map_err(at_file(dir))?;
        Ok(Self { disk, dir: dir.to_owned(), now, _lock: lock })
    }

    /// What is to be fetched to have these files.
    pub fn begin(self, files: &[CopyFile]) -> Result<Update, BackupError> {
        let next = Manifest::new(self.now.generation + 1, files).map_err(BackupError::BadList)?;
        let (mut wanted, mut is_same) = (Vec::new(), next.files == self.now.files);
        for (name, listed) in &next.files {
            let came = self.dir.join(name_in(next.generation, name));
            if next.is_listed(&*self.disk, name, &came).map_err(at_file(&came))? {
                is_same = false;
                continue;
            }
            let have = self.have(name)?;
            if have == Some((listed.bytes, listed.fingerprint)) {
                continue;
            }
            // Nothing but a part of the journal grows, and only at its end.
            let grows = matches!(FileKind::of(name), Some(FileKind::Part(_)));
            let have = have.filter(|(bytes, _)| grows && *bytes < listed.bytes);
            wanted.push(WantedFile { name: name.clone(), bytes: listed.bytes, have });
            is_same = false;
        }
        Ok(Update { target: self, next, wanted, is_same })
    }

    /// What there is of a file.
    fn have(&self, name: &str) -> Result<Option<(u64, FileFingerprint)>, BackupError> {
        let Some(Listed { bytes, fingerprint }) = self.now.files.get(name) else { return Ok(None) };
        let path = self.dir.join(name);
        match self.disk.open_to_read(&path).and_then(|file| file.len()) {
            Ok(len) if len == *bytes => Ok(Some((*bytes, *fingerprint))),
            // Somebody has changed it: it is fetched again.
            Ok(_) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(at_file(&path)(error).into()),
        }
    }
}

/// Whether a folder is empty, or a backup.
fn check_is_ours(disk: &dyn Disk, dir: &Path) -> Result<(), BackupError> {
    let names = match disk.list(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        names => names.map_err(at_file(dir))?,
    };
    if Manifest::read(disk, dir).map_err(at_file(&dir.join(BACKUP)))?.is_some() {
        return Ok(());
    }
    let not_ours = |why| Err(BackupError::NotABackup { dir: dir.to_owned(), why });
    if names.iter().any(|name| name == FORMAT) {
        return not_ours("it is the data folder of a hub");
    }
    let mut empty = vec![LOCK.to_owned(), format!("{BACKUP}.tmp")];
    for (folder, prefix) in &folders(dir)[1..] {
        // What another attempt has made before it knew what the folder is.
        if disk.list(folder).is_ok_and(|names| names.is_empty()) {
            empty.push(prefix.trim_end_matches('/').to_owned());
        }
    }
    match names.iter().all(|name| empty.contains(name)) {
        true => Ok(()),
        false => not_ours("it has other files"),
    }
}

/// A backup that is being made.
pub struct Update {
    target: Target,
    next: Manifest,
    wanted: Vec<WantedFile>,
    /// Whether all of it is there already, and nothing else.
    is_same: bool,
}

impl Update {
    /// What is to be fetched.
    pub fn wanted(&self) -> &[WantedFile] {
        &self.wanted
    }

    /// Begins to write a file.
    pub fn receive(&self, wanted: WantedFile) -> Result<Incoming, BackupError> {
        let Target { disk, dir, .. } = &self.target;
        let path = dir.join(format!("{}.tmp", wanted.name));
        let file = disk.create(&path).map_err(at_file(&path))?;
        let came = dir.join(name_in(self.next.generation, &wanted.name));
        let mut incoming = Incoming { disk: disk.clone(), file, path, came, at: 0, wanted };
        if let Some((bytes, _)) = incoming.wanted.have {
            let old = dir.join(&incoming.wanted.name);
            let old = disk.open_to_read(&old).map_err(at_file(&old))?;
            incoming.copy(&*old, bytes)?;
        }
        Ok(incoming)
    }

    /// Makes what came in the backup, in one step. The one before is there until then; after it, what it does not
    /// have is removed.
    pub fn finish(self) -> Result<(), BackupError> {
        let Self { target: Target { disk, dir, now: _, _lock }, next, wanted, is_same } = self;
        let disk = &*disk;
        for WantedFile { name, .. } in wanted {
            let came = dir.join(name_in(next.generation, &name));
            if !next.is_listed(disk, &name, &came).map_err(at_file(&came))? {
                return Err(BackupError::Missing(name));
            }
        }
        if is_same {
            return Ok(());
        }
        for (folder, _) in folders(&dir) {
            disk.sync_dir(&folder).map_err(at_file(&folder))?;
        }
        next.write(disk, &dir).map_err(at_file(&dir.join(BACKUP)))?;
        settle(disk, &dir, &next, Next::Goes).map_err(at_file(&dir))?;
        Ok(())
    }
}

/// A file that is coming in.
pub struct Incoming {
    disk: Arc<dyn Disk>,
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    came: PathBuf,
    at: u64,
    wanted: WantedFile,
}

impl Incoming {
    /// Where the bytes that come next belong.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Appends what came.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), BackupError> {
        self.file.write_at(bytes, self.at).map_err(at_file(&self.path))?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    fn copy(&mut self, from: &dyn DiskFile, bytes: u64) -> Result<(), BackupError> {
        let mut buffer = vec![0; COPY_BYTES];
        while self.at < bytes {
            let len = COPY_BYTES.min((bytes - self.at) as usize);
            read_exact(from, &mut buffer[..len], self.at).map_err(at_file(&self.path))?;
            self.write(&buffer[..len])?;
        }
        Ok(())
    }

    /// Keeps the file: it is durable, whole, and waits for the others.
    pub fn finish(self) -> Result<(), BackupError> {
        let WantedFile { name, bytes, .. } = self.wanted;
        if self.at != bytes {
            return Err(BackupError::Incomplete { name, bytes, got: self.at });
        }
        let kept = self.file.sync().and_then(|()| self.disk.rename(&self.path, &self.came));
        Ok(kept.map_err(at_file(&self.path))?)
    }
}
