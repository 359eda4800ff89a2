//! Opening a data folder: the newest checkpoint, then everything that the journal has after it.

use crate::active::ActiveIndex;
use crate::checkpoint;
use crate::disk::{Disk, DiskFile};
use crate::part::{self, PART_HEAD, Part, PartHead, index_path, part_path};
use crate::position::Pos;
use crate::replay::Replay;
use crate::scan::{PartBytes, Tail};
use crate::sidecar::{PartFacts, Sidecar};
use crate::view::View;
use std::any::Any;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const FORMAT_FILE: &str = "FORMAT";
const FORMAT_TEXT: &str = "prombus data folder, format ";
const FORMAT: u32 = 1;

/// Why a data folder cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error("{} is in use by another hub; stop that one first, or choose another folder with --data", .0.display())]
    Locked(PathBuf),
    /// It was written by a newer build.
    #[error("{} has format {found}, and this build knows formats up to {FORMAT}; use a newer prombus", .dir.display())]
    Newer {
        /// The folder.
        dir: PathBuf,
        /// Its format.
        found: u32,
    },
    /// It is not a data folder.
    #[error("{} is not a data folder of prombus: {why}", .dir.display())]
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
    /// A file that can be made anew from the journal is not what was written.
    #[error(
        "{} is damaged: {what}. It can be made anew from the journal: move it away and start again",
        .file.display()
    )]
    DamagedView {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The disk does not answer.
    #[error("{}: {error}", .file.display())]
    Io {
        /// The file or folder.
        file: PathBuf,
        /// What the system said.
        error: io::Error,
    },
}

/// Names the file in an error.
pub fn at_file(file: &Path) -> impl FnOnce(io::Error) -> OpenError {
    let file = file.to_owned();
    move |error| OpenError::Io { file, error }
}

/// What an opened folder holds.
pub struct Recovered {
    /// All parts; the last one is being written.
    pub parts: Vec<Arc<Part>>,
    /// The state.
    pub view: View,
    /// The epoch of this run.
    pub epoch: u64,
    /// Parts that are full and whose index is not on disk yet.
    pub unsealed: Vec<(Arc<Part>, PartFacts)>,
    /// Keeps other processes out.
    pub lock: Box<dyn Any + Send + Sync>,
}

/// Opens a folder, or makes it. `reserve` is the room that a new part asks for.
pub fn open(disk: &dyn Disk, dir: &Path, reserve: u64) -> Result<Recovered, OpenError> {
    for folder in [dir.to_owned(), dir.join("journal"), checkpoint::folder(dir)] {
        disk.create_dir(&folder).map_err(at_file(&folder))?;
    }
    let lock_path = dir.join("LOCK");
    let lock = disk.lock(&lock_path).map_err(at_file(&lock_path))?;
    let lock = lock.ok_or_else(|| OpenError::Locked(dir.to_owned()))?;
    check_format(disk, dir, true)?;
    remove_unfinished(disk, dir)?;
    let mut recovery = Recovery::start(disk, dir)?;
    let numbers = list_parts(disk, dir)?;
    for number in &numbers {
        recovery.take_part(*number, Some(number) == numbers.last())?;
    }
    recovery.finish(reserve, lock)
}

/// Checks the format of a folder; with `make`, marks a new one.
pub fn check_format(disk: &dyn Disk, dir: &Path, make: bool) -> Result<(), OpenError> {
    let path = dir.join(FORMAT_FILE);
    let names = disk.list(dir).map_err(at_file(dir))?;
    let not_ours = |why: &str| OpenError::NotOurs { dir: dir.to_owned(), why: why.to_owned() };
    if !names.iter().any(|name| name == FORMAT_FILE) {
        if !make {
            return Err(not_ours("it has no file FORMAT"));
        }
        let journal = disk.list(&dir.join("journal")).map_err(at_file(dir))?;
        if journal.iter().any(|name| name.ends_with(".part")) {
            return Err(not_ours("it has a journal, and no file FORMAT that says which one"));
        }
        let tmp = dir.join("FORMAT.tmp");
        let made = disk.create(&tmp).and_then(|file| {
            file.write_at(format!("{FORMAT_TEXT}{FORMAT}\n").as_bytes(), 0)?;
            file.sync()?;
            disk.rename(&tmp, &path)?;
            disk.sync_dir(dir)?;
            // The folder itself is new, too.
            disk.sync_dir(dir.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new(".")))
        });
        return made.map_err(at_file(&path));
    }
    let file = disk.open_to_read(&path).map_err(at_file(&path))?;
    let mut text = vec![0; 256];
    let len = file.read_at(&mut text, 0).map_err(at_file(&path))?;
    let text = String::from_utf8_lossy(&text[..len]).into_owned();
    match text.strip_prefix(FORMAT_TEXT).and_then(|rest| rest.strip_suffix('\n')?.parse::<u32>().ok()) {
        Some(FORMAT) => Ok(()),
        Some(found) if found > FORMAT => Err(OpenError::Newer { dir: dir.to_owned(), found }),
        _ => Err(not_ours("its file FORMAT does not say so")),
    }
}

/// A half-written `.tmp` is the only thing that is removed unasked.
fn remove_unfinished(disk: &dyn Disk, dir: &Path) -> Result<(), OpenError> {
    for folder in [dir.to_owned(), dir.join("journal"), checkpoint::folder(dir)] {
        for name in disk.list(&folder).map_err(at_file(&folder))? {
            if name.ends_with(".tmp") {
                let path = folder.join(name);
                disk.remove(&path).map_err(at_file(&path))?;
            }
        }
    }
    Ok(())
}

/// The numbers of the parts; one that is missing in between is damage.
pub fn list_parts(disk: &dyn Disk, dir: &Path) -> Result<Vec<u32>, OpenError> {
    let folder = dir.join("journal");
    let names = disk.list(&folder).map_err(at_file(&folder))?;
    let parts: Vec<u32> = names.iter().filter_map(|name| name.strip_suffix(".part")?.parse().ok()).collect();
    for (expected, found) in (1..).zip(&parts) {
        if expected != *found {
            return Err(OpenError::Damaged {
                file: part_path(dir, expected),
                at: 0,
                what: "it is missing".into(),
            });
        }
    }
    Ok(parts)
}

struct Recovery<'a> {
    disk: &'a dyn Disk,
    dir: &'a Path,
    replay: Replay,
    epoch: u64,
    parts: Vec<Arc<Part>>,
    unsealed: Vec<(Arc<Part>, PartFacts)>,
    /// Where the last part that was taken ends.
    end: Pos,
}

impl<'a> Recovery<'a> {
    fn start(disk: &'a dyn Disk, dir: &'a Path) -> Result<Self, OpenError> {
        let newest = checkpoint::list(disk, dir).map_err(at_file(dir))?.pop();
        let (view, epoch) = match newest {
            None => (View::default(), 0),
            Some(part) => checkpoint::read(disk, dir, part).map_err(|error| OpenError::DamagedView {
                file: checkpoint::path(dir, part),
                what: error.to_string(),
            })?,
        };
        let replay = Replay { view, from_part: newest.unwrap_or(1) };
        Ok(Self { disk, dir, replay, epoch, parts: Vec::new(), unsealed: Vec::new(), end: Pos::default() })
    }

    fn take_part(&mut self, number: u32, is_last: bool) -> Result<(), OpenError> {
        let path = part_path(self.dir, number);
        let file = self.disk.open(&path).map_err(at_file(&path))?;
        let sidecar = self.open_sidecar(number)?;
        if is_last && sidecar.is_some() {
            // An index is only written once the next part is there.
            let file = part_path(self.dir, number + 1);
            return Err(OpenError::Damaged { file, at: 0, what: "it is missing".into() });
        }
        let part = match sidecar {
            Some(sidecar) if number < self.replay.from_part => {
                self.end = Pos { part: number, at: sidecar.part_end };
                Arc::new(Part::sealed(number, file, sidecar))
            }
            sidecar => {
                let (index, facts) = self.read_part(number, &*file, is_last)?;
                self.end = Pos { part: number, at: facts.end };
                match sidecar {
                    Some(sidecar) => Arc::new(Part::sealed(number, file, sidecar)),
                    None => {
                        let part = Arc::new(Part::active(number, file, index));
                        self.unsealed.push((part.clone(), facts));
                        part
                    }
                }
            }
        };
        self.parts.push(part);
        Ok(())
    }

    fn open_sidecar(&self, number: u32) -> Result<Option<Sidecar>, OpenError> {
        let path = index_path(self.dir, number);
        match self.disk.open_to_read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(at_file(&path)(error)),
            Ok(file) => Sidecar::open(file, number)
                .map(Some)
                .map_err(|error| OpenError::DamagedView { file: path, what: error.to_string() }),
        }
    }

    /// Reads a part, applies what the checkpoint does not hold yet, and gives its index.
    fn read_part(
        &mut self,
        number: u32,
        file: &dyn DiskFile,
        is_last: bool,
    ) -> Result<(ActiveIndex, PartFacts), OpenError> {
        let path = part_path(self.dir, number);
        let damaged =
            |at: u32, what: String| OpenError::Damaged { file: path.clone(), at: u64::from(at), what };
        let bytes = PartBytes::read(file, number).map_err(at_file(&path))?;
        let head =
            bytes.head().ok_or_else(|| damaged(0, "it does not start like a part of the journal".into()))?;
        if head.prev_end != self.end {
            let what =
                format!("it was flushed up to byte {} before the next part was begun", head.prev_end.at);
            let file = part_path(self.dir, head.prev_end.part);
            return Err(OpenError::Damaged { file, at: u64::from(self.end.at), what });
        }
        self.epoch = self.epoch.max(head.epoch);
        let mut index = ActiveIndex::default();
        let mut facts = PartFacts { part: number, end: PART_HEAD as u32, last_recorded_ts: 0 };
        for batch in bytes.batches() {
            self.replay
                .take(&batch, &mut index)
                .map_err(|at| damaged(at, "an item of a good batch cannot be read".into()))?;
            self.epoch = self.epoch.max(batch.head.epoch);
            facts.end = batch.head.pos.at + batch.head.len;
            facts.last_recorded_ts = batch.head.recorded_ts;
        }
        match bytes.tail(facts.end) {
            Tail::Clean => {}
            Tail::Torn if is_last => {
                tracing::warn!(
                    part = number,
                    at = facts.end,
                    "cutting off a torn tail, which was never flushed"
                );
                file.set_len(u64::from(facts.end)).and_then(|()| file.sync()).map_err(at_file(&path))?;
            }
            Tail::Torn => {
                return Err(damaged(facts.end, "it was flushed before the next part was begun".into()));
            }
            Tail::Damaged { witness } => {
                let what = format!("it was flushed before the batch at byte {} was written", witness.at);
                return Err(damaged(facts.end, what));
            }
        }
        Ok((index, facts))
    }

    fn finish(mut self, reserve: u64, lock: Box<dyn Any + Send + Sync>) -> Result<Recovered, OpenError> {
        let last = self.parts.last().map_or(0, |part| part.number);
        if self.replay.from_part > last.max(1) {
            let file = part_path(self.dir, self.replay.from_part);
            return Err(OpenError::Damaged { file, at: 0, what: "it is missing".into() });
        }
        let epoch = self.epoch + 1;
        self.replay.view.end = self.end;
        match self.parts.last() {
            // What is visible from now on must be there after a power cut, so it is flushed first.
            Some(part) => part.file.sync().map_err(at_file(&part_path(self.dir, part.number)))?,
            None => {
                let head = PartHead { part: 1, epoch, prev_end: Pos::default() };
                let path = part_path(self.dir, 1);
                // Without room, the hub still opens: it says so when something is published.
                let file = match part::create(self.disk, self.dir, head, reserve) {
                    Err(error) if crate::disk::is_full(&error) => {
                        part::create(self.disk, self.dir, head, PART_HEAD as u64).map_err(at_file(&path))?
                    }
                    made => made.map_err(at_file(&path))?,
                };
                self.replay.view.end = Pos { part: 1, at: PART_HEAD as u32 };
                self.parts.push(Arc::new(Part::active(1, file, ActiveIndex::default())));
            }
        }
        let unsealed = self.unsealed.into_iter().filter(|(part, _)| part.number < last).collect();
        Ok(Recovered { parts: self.parts, view: self.replay.view, epoch, unsealed, lock })
    }
}
