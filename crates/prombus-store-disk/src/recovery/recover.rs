//! Opening a data folder: the newest checkpoint, then everything in the journal after it.
//!
//! A torn tail is cut off, damage is not: what is bad below a point that was flushed ends the open with its place, and
//! nothing is changed. Only files that nobody can need are removed: `.tmp` files, tables that no checkpoint refers to, and
//! parts that a commit has replaced. Names that are found are synced before anything is built on them.

use crate::backup::settle;
use crate::disk::{Disk, DiskFile, Lock, folder_of, is_full, remove_if_there};
use crate::folder;
use crate::index::active::ActiveIndex;
use crate::index::sidecar::{PartFacts, Sidecar};
use crate::journal::batch::Secret;
use crate::journal::part::{
    self, CreateError, Index, PART_HEAD, Part, PartHead, PartName, index_part, index_path, part_of, part_path,
};
use crate::journal::position::Pos;
use crate::journal::scan::{FlushEvidence, PartBytes, Tail};
use crate::recovery::count::{CountedPart, count_bytes};
use crate::recovery::replay::{BadBatch, Replay};
use crate::state::checkpoint;
use crate::state::checkpoints::{Checkpoints, KnownCheckpoint};
use crate::state::rows::{self, Overlay, Table, Tables, Target};
use crate::state::view::View;
use crate::transfer;
use std::any::Any;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const FORMAT_TEXT: &str = "prombus data folder, format ";
/// Format 2 has collections and tables, format 3 indexes that are made in steps, format 4 holes in partitions, format 5
/// parts with a secret and keys to be erased; folders of earlier formats become such when they are opened.
const FORMAT: u32 = 5;

/// What to do about a file that can be made again, which is good advice only where the journal is whole.
const REMAKE: &str = "Nothing was changed. Run `prombus check`: where it finds nothing wrong with the journal, it says which files can be moved away and will be rebuilt; otherwise restore the folder from a backup";

/// Why a data folder cannot be opened.
#[derive(thiserror::Error)]
pub enum OpenError {
    /// It is in use by another process.
    #[error(
        "{} is in use by another hub, or is being checked; stop that first, or choose another folder",
        .0.display()
    )]
    Locked(PathBuf),
    /// Nothing would keep another process out.
    #[error(
        "{} cannot be locked, so nothing would keep a second hub out: {error}; choose a folder on a local disk",
        .dir.display()
    )]
    NoLocks {
        /// The folder.
        dir: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// It was written by a newer build.
    #[error("{} has format {found}, and this build knows formats up to {FORMAT}; use a newer prombus", .dir.display())]
    Newer {
        /// The folder.
        dir: PathBuf,
        /// Its format.
        found: u32,
    },
    /// Another store is being moved to it.
    #[error(
        "{} holds an unfinished move from {from}; run that `prombus move` again to finish it, or delete the folder",
        .dir.display()
    )]
    Moving {
        /// The folder.
        dir: PathBuf,
        /// What is being moved.
        from: String,
    },
    /// It is to be filled, and holds something already.
    #[error("{} is not empty; choose a folder that is empty or does not exist", .0.display())]
    NotEmpty(PathBuf),
    /// It is not a data folder.
    #[error("{} is not a prombus data folder: {why}", .dir.display())]
    NotOurs {
        /// The folder.
        dir: PathBuf,
        /// How that shows.
        why: String,
    },
    /// Something that was durable is not what was written.
    #[error(
        "{} is damaged at byte {at}: {what}. Nothing was changed. Restore the folder from a backup, or run `prombus check` to see all of the damage",
        .file.display()
    )]
    Damaged {
        /// The file.
        file: PathBuf,
        /// Where in it.
        at: u64,
        /// What is wrong.
        what: String,
    },
    /// A file that can be made again from the journal is not what was written.
    #[error(
        "{} is damaged: {what}. {REMAKE}",
        .file.display()
    )]
    DamagedView {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// What the journal changes cannot be read, or a table is not what was written.
    #[error(
        "{} is damaged: {what}. {REMAKE}",
        .file.display()
    )]
    DamagedState {
        /// The file or folder.
        file: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// An I/O error.
    #[error("{}: {error}", .file.display())]
    Io {
        /// The file or folder.
        file: PathBuf,
        /// What the system said.
        error: io::Error,
    },
}

/// The same words as the message has: this is what a `main` shows that returns the error.
impl fmt::Debug for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Names the file in an error.
pub fn at_file(file: &Path) -> impl FnOnce(io::Error) -> OpenError {
    let file = file.to_owned();
    move |error| OpenError::Io { file, error }
}

/// What an opened folder holds.
pub struct Recovered {
    /// The state, with the parts of the journal.
    pub view: View,
    /// The epoch of this run.
    pub epoch: u64,
    /// Parts that are full and whose index is not on disk yet.
    pub unsealed: Vec<(Arc<Part>, PartFacts)>,
    /// The checkpoints that are there.
    pub kept: Checkpoints,
    /// The number of the next table.
    pub next_table: u64,
    /// Keeps other processes out.
    pub lock: Box<dyn Any + Send + Sync>,
}

/// How a folder is to be opened.
#[derive(Debug, Clone)]
pub struct Opening {
    /// The room that a new part asks for.
    pub reserve: u64,
    /// Changed rows are written to a table once they take more memory than this.
    pub rows_in_memory: usize,
    /// What it is filled from, if so.
    pub filled_from: Option<String>,
}

/// Opens a folder, or creates it.
pub fn open(disk: &dyn Disk, dir: &Path, opening: Opening) -> Result<Recovered, OpenError> {
    let folders = folder::folders(dir).map(|(folder, _)| folder);
    for folder in &folders {
        disk.create_dir(folder).map_err(at_file(folder))?;
    }
    let lock = lock(disk, dir, Lock::Alone)?;
    transfer::admit(disk, dir, opening.filled_from.as_deref())?;
    settle::adopt(disk, dir)?;
    check_format(disk, dir, true)?;
    remove_unfinished(disk, dir)?;
    // Whoever made these names may have been killed before they were durable, and everything now counts on them.
    for folder in &folders {
        disk.sync_dir(folder).map_err(at_file(folder))?;
    }
    let mut recovery = Recovery::start(disk, dir, opening.rows_in_memory)?;
    let files = list_parts(disk, dir)?;
    let older = recovery.open_older(&files)?;
    recovery.replay_parts(&files)?;
    recovery.settle_older(&files, older)?;
    recovery.count_bytes()?;
    recovery.finish(opening.reserve, lock)
}

/// Locks a data folder and the folders in it, or says which of them someone else has: those in it may be links to the
/// folders of another one.
pub fn lock(disk: &dyn Disk, dir: &Path, lock: Lock) -> Result<Box<dyn Any + Send + Sync>, OpenError> {
    let in_use = |folder: &Path| OpenError::Locked(folder.to_owned());
    let mut held = match disk.lock(dir, lock) {
        Ok(held) => vec![held.ok_or_else(|| in_use(dir))?],
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {
            return Err(OpenError::NoLocks { dir: dir.to_owned(), error });
        }
        Err(error) => return Err(at_file(dir)(error)),
    };
    for (folder, _) in folder::folders(dir).into_iter().filter(|(folder, _)| folder != dir) {
        match disk.lock_folder(&folder, lock) {
            Ok(inner) => held.push(inner.ok_or_else(|| in_use(&folder))?),
            // Then the file in the data folder has to do.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {}
            // A check finds out for itself what is missing.
            Err(error) if error.kind() == io::ErrorKind::NotFound && lock == Lock::Shared => {}
            Err(error) => return Err(at_file(&folder)(error)),
        }
    }
    Ok(Box::new(held))
}

/// Checks the format of a folder; with `make`, marks a new one.
pub fn check_format(disk: &dyn Disk, dir: &Path, make: bool) -> Result<(), OpenError> {
    let path = dir.join(folder::FORMAT);
    let names = disk.list(dir).map_err(at_file(dir))?;
    let not_ours = |why: &str| OpenError::NotOurs { dir: dir.to_owned(), why: why.to_owned() };
    if !names.iter().any(|name| name == folder::FORMAT) {
        if !make {
            return Err(not_ours("it has no file FORMAT"));
        }
        let journal = disk.list(&dir.join("journal")).map_err(at_file(dir))?;
        if journal.iter().any(|name| name.ends_with(".part")) {
            return Err(not_ours("it has a journal, and no file FORMAT that says which one"));
        }
        // The folder itself is new, too. Its name comes first: a folder that is marked is durable.
        return disk.sync_dir(folder_of(dir)).and_then(|()| mark(disk, dir)).map_err(at_file(&path));
    }
    let file = disk.open_to_read(&path).map_err(at_file(&path))?;
    let mut text = vec![0; 256];
    let len = file.read_at(&mut text, 0).map_err(at_file(&path))?;
    let text = String::from_utf8_lossy(&text[..len]).into_owned();
    match text.strip_prefix(FORMAT_TEXT).and_then(|rest| rest.strip_suffix('\n')?.parse::<u32>().ok()) {
        Some(FORMAT) => Ok(()),
        Some(1..FORMAT) if make => mark(disk, dir).map_err(at_file(&path)),
        Some(1..FORMAT) => Ok(()),
        Some(found) if found > FORMAT => Err(OpenError::Newer { dir: dir.to_owned(), found }),
        _ => Err(not_ours("its file FORMAT does not say so")),
    }
}

/// Opens the tables of a checkpoint.
fn open_tables(disk: &dyn Disk, dir: &Path, numbers: &[u64]) -> Result<Tables, OpenError> {
    let open = |number: &u64| {
        let damaged = |error: io::Error| OpenError::DamagedState {
            file: rows::path(dir, *number),
            what: match error.kind() {
                io::ErrorKind::NotFound => "it is missing".to_owned(),
                _ => error.to_string(),
            },
        };
        Table::open(disk, dir, *number).map(Arc::new).map_err(damaged)
    };
    Ok(Tables::new(numbers.iter().map(open).collect::<Result<_, _>>()?))
}

/// Removes tables that no checkpoint names: the machine went down before one did, or before they were removed. Where
/// not all checkpoints are known, none is removed. Gives a number that no table has.
fn remove_unnamed(
    disk: &dyn Disk,
    dir: &Path,
    kept: &Checkpoints,
    all_known: bool,
) -> Result<u64, OpenError> {
    let folder = checkpoint::folder(dir);
    let mut next = 1;
    for name in disk.list(&folder).map_err(at_file(&folder))? {
        let Some(number) = rows::number_of(&name) else { continue };
        next = next.max(number.saturating_add(1));
        if all_known && !kept.names(number) {
            let path = folder.join(name);
            disk.remove(&path).map_err(at_file(&path))?;
        }
    }
    Ok(next)
}

/// Removes half-written `.tmp` files.
fn remove_unfinished(disk: &dyn Disk, dir: &Path) -> Result<(), OpenError> {
    for (folder, _) in folder::folders(dir) {
        for name in disk.list(&folder).map_err(at_file(&folder))? {
            if name.ends_with(folder::UNFINISHED) {
                let path = folder.join(name);
                disk.remove(&path).map_err(at_file(&path))?;
            }
        }
    }
    Ok(())
}

/// Marks a folder with the current format.
fn mark(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    let tmp = dir.join("FORMAT.tmp");
    let file = disk.create(&tmp)?;
    file.write_at(format!("{FORMAT_TEXT}{FORMAT}\n").as_bytes(), 0)?;
    file.sync()?;
    disk.rename(&tmp, &dir.join(folder::FORMAT))?;
    disk.sync_dir(dir)
}

/// The parts whose files are there, in order.
pub fn list_parts(disk: &dyn Disk, dir: &Path) -> Result<Vec<PartName>, OpenError> {
    list_journal(disk, dir, part_of)
}

/// The parts whose indexes are there, in order.
pub fn list_indexes(disk: &dyn Disk, dir: &Path) -> Result<Vec<PartName>, OpenError> {
    list_journal(disk, dir, index_part)
}

fn list_journal(
    disk: &dyn Disk,
    dir: &Path,
    part: fn(&str) -> Option<PartName>,
) -> Result<Vec<PartName>, OpenError> {
    let folder = dir.join("journal");
    let names = disk.list(&folder).map_err(at_file(&folder))?;
    let mut parts: Vec<PartName> = names.iter().filter_map(|name| part(name)).collect();
    parts.sort_unstable();
    Ok(parts)
}

fn is_missing(dir: &Path, part: PartName) -> OpenError {
    OpenError::Damaged { file: part_path(dir, part), at: 0, what: "it is missing".into() }
}

fn no_head(path: &Path) -> OpenError {
    let what = "it does not start like a part of the journal".to_owned();
    OpenError::Damaged { file: path.to_owned(), at: 0, what }
}

struct Recovery<'a> {
    disk: &'a dyn Disk,
    dir: &'a Path,
    rows_in_memory: usize,
    replay: Replay,
    epoch: u64,
    kept: Checkpoints,
    next_table: u64,
    parts: Vec<Arc<Part>>,
    unsealed: Vec<(Arc<Part>, PartFacts)>,
    /// Where the last part ends.
    end: Option<Pos>,
}

impl<'a> Recovery<'a> {
    fn start(disk: &'a dyn Disk, dir: &'a Path, rows_in_memory: usize) -> Result<Self, OpenError> {
        let mut places = checkpoint::list(disk, dir).map_err(at_file(dir))?;
        let newest = places.pop();
        let read = |pos: Pos| {
            checkpoint::read(disk, dir, pos).map_err(|error| OpenError::DamagedView {
                file: checkpoint::path(dir, pos),
                what: error.to_string(),
            })
        };
        let mut kept = Checkpoints::default();
        let mut all_known = true;
        for pos in places {
            // One that nobody can read is no reason not to open, but nobody knows what it names.
            let older = read(pos);
            all_known &= older.is_ok();
            let has_names = older.as_ref().map_or(true, |older| !older.view.forgotten.is_empty());
            let tables = older.map(|older| older.tables).unwrap_or_default();
            kept.add(KnownCheckpoint { pos, tables, has_names });
        }
        let (mut view, mut epoch) = (View::default(), 0);
        if let Some(pos) = newest {
            let newest = read(pos)?;
            let tables = open_tables(disk, dir, &newest.tables)?;
            let has_names = !newest.view.forgotten.is_empty();
            kept.add(KnownCheckpoint { pos, tables: newest.tables, has_names });
            (view, epoch) = (newest.view, newest.epoch);
            view.rows.replace_tables(Arc::new(tables));
        }
        let next_table = remove_unnamed(disk, dir, &kept, all_known)?;
        let replay = Replay { view, from: newest.unwrap_or_default() };
        let (parts, unsealed, end) = (Vec::new(), Vec::new(), None);
        Ok(Self { disk, dir, rows_in_memory, replay, epoch, kept, next_table, parts, unsealed, end })
    }

    /// Puts the rows that were changed into a table where they take too much memory. No checkpoint names it until
    /// the next one is written, so nothing comes of it when the machine goes down before.
    fn put_rows_away(&mut self) {
        let view = &mut self.replay.view;
        if view.rows.active_bytes() <= self.rows_in_memory || !view.rows.freeze() {
            return;
        }
        let target = Target { disk: self.disk, dir: self.dir, number: self.next_table };
        self.next_table += 1;
        let is_alive = view.is_alive();
        match rows::write_frozen(target, &view.rows, &is_alive) {
            Ok(table) => {
                let tables = Arc::new(view.rows.tables().with_newer(table));
                drop(view.rows.replace_frozen(tables, Overlay::default()));
            }
            Err(error) => {
                // Without room, the hub still opens as long as memory lasts. Once tried is enough.
                self.rows_in_memory = usize::MAX;
                tracing::warn!(%error, "keeping rows in memory: failed to write a table");
                view.rows.thaw();
            }
        }
    }

    /// Applies the parts from the one that the checkpoint is of, or from the first one where there is none.
    fn replay_parts(&mut self, files: &[PartName]) -> Result<(), OpenError> {
        let first = self.replay.from.part.max(1);
        let last = files.last().map_or(0, |last| last.number);
        if self.replay.from == Pos::default() && files.iter().any(|file| file.rewrite > 0) {
            let what = "there is no checkpoint, and parts of the journal were rewritten since it was begun";
            return Err(OpenError::DamagedState { file: checkpoint::folder(self.dir), what: what.into() });
        }
        for number in first..=last {
            let name = PartName::written(number);
            if files.binary_search(&name).is_err() {
                return Err(is_missing(self.dir, name));
            }
            let is_last = number == last;
            let path = part_path(self.dir, name);
            let file = self.disk.open(&path).map_err(at_file(&path))?;
            let sidecar = self.open_sidecar(name)?;
            if is_last && sidecar.is_some() {
                // An index is only written once the next part is there.
                return Err(is_missing(self.dir, PartName::written(number + 1)));
            }
            let next = if is_last { None } else { Some(self.head_of(PartName::written(number + 1))?) };
            let (index, facts) = self.read_part(name, &*file, next)?;
            self.end = Some(Pos { part: number, at: facts.end });
            let part = match sidecar {
                Some(sidecar) => Arc::new(Part::sealed(name, file, sidecar)),
                None => {
                    let part = Arc::new(Part::active(name, file, index));
                    self.unsealed.push((part.clone(), facts));
                    part
                }
            };
            self.parts.push(part);
        }
        Ok(())
    }

    /// Opens the parts before those, as the checkpoint knows them: whatever is wrong with them is told before anything is
    /// written. Those that were rewritten since have other names by now.
    fn open_older(&mut self, files: &[PartName]) -> Result<Vec<Arc<Part>>, OpenError> {
        let part_set = self.replay.view.part_set.clone();
        let names = (part_set.first()..self.replay.from.part).filter_map(|number| part_set.name(number));
        names.filter(|name| files.binary_search(name).is_ok()).map(|name| self.open_part(name)).collect()
    }

    /// Puts the older parts before those that were read, as the journal says that they are now. Files that it does not
    /// count on any more are what an unfinished rewrite has left.
    fn settle_older(&mut self, files: &[PartName], mut opened: Vec<Arc<Part>>) -> Result<(), OpenError> {
        let part_set = self.replay.view.part_set.clone();
        let mut older = Vec::new();
        for name in (part_set.first()..self.replay.from.part).filter_map(|number| part_set.name(number)) {
            let known = opened.iter().position(|part| part.name == name);
            older.push(match known {
                Some(known) => opened.remove(known),
                None if files.binary_search(&name).is_ok() => self.open_part(name)?,
                None => return Err(is_missing(self.dir, name)),
            });
        }
        self.unsealed.retain(|(part, _)| !opened.iter().any(|gone| Arc::ptr_eq(gone, part)));
        // That the first part that was read goes on where the one before it ended.
        if let (Some(before), Some(after)) = (older.last(), self.parts.first())
            && before.name.rewrite == 0
            && before.number() + 1 == after.number()
        {
            let (head, end) = (self.head_of(after.name)?, self.end_of(before)?);
            if head.prev_end.at != end {
                let file = part_path(self.dir, before.name);
                let what = FlushEvidence::NextPart(head.prev_end).to_string();
                return Err(OpenError::Damaged { file, at: u64::from(end), what });
            }
        }
        self.parts.splice(..0, older);
        self.remove_lone_indexes()?;
        self.remove_superseded(files)
    }

    /// Counts the bytes of events where earlier builds did not. The next checkpoint has them.
    fn count_bytes(&mut self) -> Result<(), OpenError> {
        if !self.replay.view.lacks_bytes {
            return Ok(());
        }
        tracing::info!(
            "counting the bytes of all events, which earlier versions did not; the next start has them"
        );
        let mut parts = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            parts.push(CountedPart { part: part.clone(), end: self.end_of(part)? });
        }
        count_bytes(&mut self.replay.view, &parts);
        Ok(())
    }

    /// Opens a part of which the checkpoint has everything but the events.
    fn open_part(&mut self, name: PartName) -> Result<Arc<Part>, OpenError> {
        let path = part_path(self.dir, name);
        let file = self.disk.open(&path).map_err(at_file(&path))?;
        let Some(sidecar) = self.open_sidecar(name)? else {
            // The part behind it may have been rewritten, or be gone, and then it says nothing of this one.
            let next = self.head_if_there(PartName::written(name.number + 1))?;
            let (index, facts) = self.read_part(name, &*file, next)?;
            let part = Arc::new(Part::active(name, file, index));
            self.unsealed.push((part.clone(), facts));
            return Ok(part);
        };
        // Nothing of it is read here, but its length costs nothing to look at.
        let len = file.len().map_err(at_file(&path))?;
        if len < u64::from(sidecar.part_end) {
            let what = format!("it ends there, and its index goes up to byte {}", sidecar.part_end);
            return Err(OpenError::Damaged { file: path, at: len, what });
        }
        Ok(Arc::new(Part::sealed(name, file, sidecar)))
    }

    /// Where an older part ends.
    fn end_of(&self, part: &Arc<Part>) -> Result<u32, OpenError> {
        let unsealed = self.unsealed.iter().find(|(unsealed, _)| Arc::ptr_eq(unsealed, part));
        Ok(match (unsealed, &*part.index()) {
            (Some((_, facts)), _) => facts.end,
            (None, Index::Sealed(sidecar)) => sidecar.part_end,
            (None, Index::Active(_)) => PART_HEAD as u32,
        })
    }

    /// Removes the files of parts in a form that they do not have any more, or never came to have.
    fn remove_superseded(&self, files: &[PartName]) -> Result<(), OpenError> {
        let is_counted_on = |name: &&PartName| self.parts.iter().any(|part| part.name == **name);
        for name in files.iter().filter(|name| !is_counted_on(name)) {
            part::remove(self.disk, self.dir, *name).map_err(at_file(&part_path(self.dir, *name)))?;
        }
        Ok(())
    }

    /// Removes indexes of parts that went without them, as earlier builds may have left them. One of a part behind the
    /// last one says that parts are missing, because it was written when there was another one behind that.
    fn remove_lone_indexes(&self) -> Result<(), OpenError> {
        let indexes = list_indexes(self.disk, self.dir)?;
        let last = self.parts.last().map_or(0, |part| part.number());
        if let Some(behind) = indexes.iter().find(|name| name.number > last) {
            return Err(is_missing(self.dir, *behind));
        }
        let is_counted_on = |name: &&PartName| self.parts.iter().any(|part| part.name == **name);
        for name in indexes.iter().filter(|name| !is_counted_on(name)) {
            let path = index_path(self.dir, *name);
            remove_if_there(self.disk, &path).map_err(at_file(&path))?;
        }
        Ok(())
    }

    fn open_sidecar(&self, name: PartName) -> Result<Option<Sidecar>, OpenError> {
        let path = index_path(self.dir, name);
        match self.disk.open_to_read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(at_file(&path)(error)),
            Ok(file) => Sidecar::open(file, name)
                .map(Some)
                .map_err(|error| OpenError::DamagedView { file: path, what: error.to_string() }),
        }
    }

    fn head_of(&self, name: PartName) -> Result<PartHead, OpenError> {
        let path = part_path(self.dir, name);
        let file = self.disk.open_to_read(&path).map_err(at_file(&path))?;
        let head = PartBytes::read_head(&*file, name).map_err(at_file(&path))?;
        head.ok_or_else(|| no_head(&path))
    }

    fn head_if_there(&self, name: PartName) -> Result<Option<PartHead>, OpenError> {
        match self.head_of(name) {
            Err(OpenError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            head => head.map(Some),
        }
    }

    /// Reads a part, applies what the checkpoint does not hold yet, and gives its index.
    fn read_part(
        &mut self,
        name: PartName,
        file: &dyn DiskFile,
        next: Option<PartHead>,
    ) -> Result<(ActiveIndex, PartFacts), OpenError> {
        let number = name.number;
        let path = part_path(self.dir, name);
        let damaged =
            |at: u32, what: String| OpenError::Damaged { file: path.clone(), at: u64::from(at), what };
        let bytes = PartBytes::read(file, name).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => damaged(0, error.to_string()),
            _ => at_file(&path)(error),
        })?;
        let head = bytes.head().ok_or_else(|| no_head(&path))?;
        // Where the part before this one was read, that was seen already.
        if number == 1 && name.rewrite == 0 && head.prev_end != Pos::default() {
            let what = "it is the first part, and says that there was one before it".to_owned();
            return Err(damaged(0, what));
        }
        self.epoch = self.epoch.max(head.epoch);
        let mut index = ActiveIndex::default();
        let mut facts = PartFacts { name, end: PART_HEAD as u32, last_recorded_ts: 0 };
        for batch in bytes.batches() {
            self.replay.take(&batch, &mut index).map_err(|bad| match bad {
                BadBatch::Item(at) => damaged(at, "an item of a good batch cannot be read".into()),
                BadBatch::Rows(error) => {
                    OpenError::DamagedState { file: checkpoint::folder(self.dir), what: error.to_string() }
                }
            })?;
            self.put_rows_away();
            self.epoch = self.epoch.max(batch.head.epoch);
            facts.end = batch.end;
            facts.last_recorded_ts = batch.head.recorded_ts;
        }
        let from = self.replay.from;
        if from.part == number && facts.end < from.at {
            let what =
                format!("it was flushed up to byte {} before the checkpoint there was written", from.at);
            return Err(damaged(facts.end, what));
        }
        match bytes.tail(facts.end, next) {
            Tail::Clean => {}
            Tail::Torn => {
                tracing::warn!(
                    part = number,
                    at = facts.end,
                    "cutting off a torn tail, as a crash in the middle of a write leaves it; after a clean stop, or in a restored copy, it \
                     means that the file is incomplete"
                );
                file.set_len(u64::from(facts.end)).and_then(|()| file.sync()).map_err(at_file(&path))?;
            }
            Tail::Damaged(evidence) => return Err(damaged(facts.end, evidence.to_string())),
        }
        Ok((index, facts))
    }

    fn finish(mut self, reserve: u64, lock: Box<dyn Any + Send + Sync>) -> Result<Recovered, OpenError> {
        let last = self.parts.last().map_or(0, |part| part.number());
        if self.replay.from.part > last {
            return Err(is_missing(self.dir, PartName::written(self.replay.from.part)));
        }
        let epoch = self.epoch + 1;
        self.replay.view.end = self.end.unwrap_or_default();
        match self.parts.last() {
            // What is visible from now on must be there after a power cut, so it is flushed first.
            Some(part) => part.file.sync().map_err(at_file(&part_path(self.dir, part.name)))?,
            None => {
                let name = PartName::written(1);
                let head = PartHead { name, epoch, prev_end: Pos::default(), secret: Some(Secret::new()) };
                let path = part_path(self.dir, name);
                let create = |reserve| match part::create(self.disk, self.dir, head, reserve) {
                    Err(CreateError::Surely(error) | CreateError::Perhaps(error)) => Err(error),
                    Ok(file) => Ok(file),
                };
                // Without room, the hub still opens: it says so when something is published.
                let made = match create(reserve) {
                    Err(error) if is_full(&error) => create(PART_HEAD as u64),
                    made => made,
                };
                let file = made.map_err(at_file(&path))?;
                self.replay.view.end = Pos { part: 1, at: PART_HEAD as u32 };
                self.parts.push(Arc::new(Part::active(name, file, ActiveIndex::default())));
            }
        }
        let unsealed: Vec<_> = self.unsealed.into_iter().filter(|(part, _)| part.number() < last).collect();
        for (part, facts) in &unsealed {
            part.ends_at(facts.end);
        }
        let Self { parts, kept, next_table, mut replay, .. } = self;
        replay.view.parts = Arc::new(parts);
        Ok(Recovered { view: replay.view, epoch, unsealed, kept, next_table, lock })
    }
}
