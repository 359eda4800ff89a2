//! What is to be done to a backup folder once its manifest is in place, and how it looks to those who only read it.

use crate::backup::manifest::{Listed, Manifest, generation_of, name_in};
use crate::disk::{Disk, DiskFile, Lock};
use crate::folder::{BACKUP, FileKind, folders};
use crate::recovery::recover::{OpenError, at_file};
use std::any::Any;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why a folder into which no backup was finished is no data folder.
const UNFINISHED: &str = "a backup into it was begun and never finished; run `prombus backup` again";

/// What becomes of files that came in for the next generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// They are what an unfinished backup has fetched, and the next one goes on with.
    Stays,
    /// There is no next one.
    Goes,
}

/// Gives all files of the backup their own names, and removes those that are no part of it, durably. It may be
/// interrupted anywhere and done again. What is not of a data folder at all is left alone.
pub fn settle(disk: &dyn Disk, dir: &Path, manifest: &Manifest, next: Next) -> io::Result<()> {
    let is_listed = |name: &str| manifest.files.contains_key(name);
    each_file(disk, dir, |path, name| match generation_of(name) {
        Some((generation, own)) if generation == manifest.generation && is_listed(own) => {
            disk.rename(path, &dir.join(own))
        }
        _ => Ok(()),
    })?;
    each_file(disk, dir, |path, name| {
        let stays = match (generation_of(name), FileKind::of(name)) {
            (Some((generation, _)), _) => next == Next::Stays && generation == manifest.generation + 1,
            (None, Some(FileKind::Unfinished)) => false,
            (None, Some(kind)) => !kind.is_content() || is_listed(name),
            (None, None) => true,
        };
        if stays { Ok(()) } else { disk.remove(path) }
    })
}

/// Does something to each file of the folders, and makes it durable, folder by folder.
fn each_file(
    disk: &dyn Disk,
    dir: &Path,
    mut act: impl FnMut(&Path, &str) -> io::Result<()>,
) -> io::Result<()> {
    for (folder, prefix) in folders(dir) {
        for file in disk.list(&folder)? {
            act(&folder.join(&file), &format!("{prefix}{file}"))?;
        }
        disk.sync_dir(&folder)?;
    }
    Ok(())
}

/// Makes a backup an ordinary data folder, before anything in it is changed. Any other folder stays as it is.
pub fn adopt(disk: &dyn Disk, dir: &Path) -> Result<(), OpenError> {
    let Some(manifest) = read(disk, dir)? else { return Ok(()) };
    if let Some((file, what)) = missing(disk, dir, &manifest)?.into_iter().next() {
        return Err(OpenError::Damaged { file, at: 0, what });
    }
    let path = dir.join(BACKUP);
    settle(disk, dir, &manifest, Next::Goes)
        .and_then(|()| disk.remove(&path))
        .and_then(|()| disk.sync_dir(dir))
        .map_err(at_file(&path))
}

/// The manifest of a folder; `None` where it is no backup.
fn read(disk: &dyn Disk, dir: &Path) -> Result<Option<Manifest>, OpenError> {
    let path = dir.join(BACKUP);
    let manifest = Manifest::read(disk, dir).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => {
            OpenError::Damaged { file: path.clone(), at: 0, what: error.to_string() }
        }
        _ => at_file(&path)(error),
    })?;
    if manifest.as_ref().is_some_and(|manifest| manifest.generation == 0) {
        return Err(OpenError::NotOurs { dir: dir.to_owned(), why: UNFINISHED.to_owned() });
    }
    Ok(manifest)
}

/// The file that a name of a backup stands for: it may not have its own name yet.
fn stored_as(disk: &dyn Disk, dir: &Path, manifest: &Manifest, name: &str) -> io::Result<Option<PathBuf>> {
    for path in [dir.join(name_in(manifest.generation, name)), dir.join(name)] {
        match disk.open_to_read(&path) {
            Ok(_) => return Ok(Some(path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// What is listed and not there, or not as long, as in a copy that was cut off.
fn missing(disk: &dyn Disk, dir: &Path, manifest: &Manifest) -> Result<Vec<(PathBuf, String)>, OpenError> {
    let mut missing = Vec::new();
    for (name, Listed { bytes, .. }) in &manifest.files {
        let path = dir.join(name);
        let stored = stored_as(disk, dir, manifest, name).map_err(at_file(&path))?;
        let len = stored.map(|stored| disk.open_to_read(&stored).and_then(|file| file.len()));
        match len.transpose().map_err(at_file(&path))? {
            None => missing.push((path, "it is missing, and the backup has it".to_owned())),
            Some(len) if len != *bytes => {
                missing.push((path, format!("it has {len} bytes, and {bytes} in the backup")));
            }
            Some(_) => {}
        }
    }
    Ok(missing)
}

/// A backup as it is once it is settled, for those who only read it.
pub struct Settled<'a> {
    disk: &'a dyn Disk,
    dir: PathBuf,
    manifest: Manifest,
}

impl<'a> Settled<'a> {
    /// The backup in a folder; `None` where it is another folder.
    pub fn new(disk: &'a dyn Disk, dir: &Path) -> Result<Option<Self>, OpenError> {
        Ok(read(disk, dir)?.map(|manifest| Self { disk, dir: dir.to_owned(), manifest }))
    }

    /// What is listed and not there, or not as long.
    pub fn missing(&self) -> Result<Vec<(PathBuf, String)>, OpenError> {
        missing(self.disk, &self.dir, &self.manifest)
    }

    fn read_only<T>() -> io::Result<T> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    /// The name of a file in the folder, where it is one of the backup.
    fn listed(&self, path: &Path) -> Option<String> {
        let name = path.strip_prefix(&self.dir).ok()?.to_string_lossy().into_owned();
        self.manifest.files.contains_key(&name).then_some(name)
    }
}

impl Disk for Settled<'_> {
    fn create(&self, _: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Self::read_only()
    }

    fn open(&self, _: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Self::read_only()
    }

    fn open_to_read(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let name = self.listed(path).ok_or(io::ErrorKind::NotFound)?;
        let stored = stored_as(self.disk, &self.dir, &self.manifest, &name)?;
        self.disk.open_to_read(&stored.ok_or(io::ErrorKind::NotFound)?)
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        Self::read_only()
    }

    fn remove(&self, _: &Path) -> io::Result<()> {
        Self::read_only()
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let here = self.manifest.files.keys().filter_map(|name| {
            let path = self.dir.join(name);
            (path.parent() == Some(dir))
                .then(|| path.file_name().map(|file| file.to_string_lossy().into_owned()))
        });
        Ok(here.flatten().collect())
    }

    fn create_dir(&self, _: &Path) -> io::Result<()> {
        Self::read_only()
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Self::read_only()
    }

    fn lock(&self, dir: &Path, lock: Lock) -> io::Result<Option<Box<dyn Any + Send + Sync>>> {
        self.disk.lock(dir, lock)
    }

    fn lock_folder(&self, dir: &Path, lock: Lock) -> io::Result<Option<Box<dyn Any + Send + Sync>>> {
        self.disk.lock_folder(dir, lock)
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        self.disk.free_bytes(dir)
    }
}
