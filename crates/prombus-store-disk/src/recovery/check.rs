//! `prombus check`: every checksum of every file, every index against the journal, every checkpoint with its tables against a
//! replay of the journal, and that every event is there that nobody gave up. It only reads.

use crate::backup::settle::Settled;
use crate::disk::{Disk, DiskFile, Lock, RealDisk};
use crate::folder::{FileKind, folders};
use crate::index::active::ActiveIndex;
use crate::index::sidecar::Sidecar;
use crate::journal::part::{PART_HEAD, PartHead, PartName, index_path, part_path};
use crate::journal::position::{PartitionRef, Pos};
use crate::journal::scan::{PartBytes, Tail};
use crate::paged::PagedFile;
use crate::recovery::compare::{Comparison, is_same};
use crate::recovery::recover::{self, OpenError, at_file, check_format};
use crate::recovery::replay::{BadBatch, Replay};
use crate::state::checkpoint::{self, Checkpoint};
use crate::state::rows::{self, Table, Tables};
use crate::state::view::{PartitionExtent, View};
use hashbrown::HashMap;
use prombus_core::{Offset, Offsets};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How much is read at once of what holds nothing.
const ZEROS: usize = 1 << 20;

/// A problem in a data folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub file: PathBuf,
    /// Where in it.
    pub at: u64,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}: {}", self.file.display(), self.at, self.what)
    }
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// How many files were read.
    pub files: u64,
    /// How many bytes they have.
    pub bytes: u64,
    /// How many events the journal holds.
    pub events: u64,
    /// The problems; empty if there are none.
    pub problems: Vec<Problem>,
    /// Whether the journal is affected, from which everything else is derived.
    pub journal_is_damaged: bool,
}

/// The progress of a check.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// Bytes that were read.
    pub done_bytes: u64,
    /// Total number of bytes.
    pub total_bytes: u64,
}

/// Checks a data folder that no hub uses.
pub fn check(dir: &Path, progress: &mut dyn FnMut(Progress)) -> Result<Report, OpenError> {
    check_on(&RealDisk::new(), dir, progress)
}

/// Checks a data folder on the given disk.
pub fn check_on(
    disk: &dyn Disk,
    dir: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report, OpenError> {
    let _lock = recover::lock(disk, dir, Lock::Shared)?;
    let backup = Settled::new(disk, dir)?;
    let disk = backup.as_ref().map_or(disk, |backup| backup as &dyn Disk);
    check_format(disk, dir, false)?;
    let mut check = Check::new(disk, dir, progress)?;
    if let Some(backup) = &backup {
        for (file, what) in backup.missing()? {
            check.damage(&file, 0, what);
        }
    }
    check.files()?;
    check.journal()?;
    check.advise();
    Ok(Report { journal_is_damaged: !check.is_whole, ..check.report })
}

/// Where the rows of a checkpoint take more than this on disk, the journal is not replayed from its start, which would
/// take as much memory, but from the oldest checkpoint that is there.
const MAX_REPLAYED_BYTES: u64 = 1 << 30;

struct Check<'a> {
    disk: &'a dyn Disk,
    dir: &'a Path,
    /// The places of checkpoints that the journal did not come to yet.
    checkpoints: VecDeque<Pos>,
    progress: &'a mut dyn FnMut(Progress),
    total_bytes: u64,
    /// Files by folder, in order.
    names: Vec<PathBuf>,
    /// Whether nothing is wrong with the journal so far.
    is_whole: bool,
    /// Whether parts of the journal were rewritten or dropped, so that it does not give the whole state any more.
    is_rewritten: bool,
    /// Whether checkpoints count the same bytes of events as the journal from where it is applied.
    counts_bytes: bool,
    /// The offsets that the parts have, by partition.
    held: HashMap<PartitionRef, Offsets>,
    /// What is wrong with files that can be made again, as long as it is.
    remakeable: Vec<Problem>,
    report: Report,
}

impl<'a> Check<'a> {
    fn new(
        disk: &'a dyn Disk,
        dir: &'a Path,
        progress: &'a mut dyn FnMut(Progress),
    ) -> Result<Self, OpenError> {
        let mut names = Vec::new();
        let mut total_bytes = 0;
        for (folder, _) in folders(dir) {
            let listed = match disk.list(&folder) {
                // Whoever followed the advice of an earlier check has moved it away.
                Err(error)
                    if error.kind() == io::ErrorKind::NotFound && folder == checkpoint::folder(dir) =>
                {
                    continue;
                }
                listed => listed.map_err(at_file(&folder))?,
            };
            for name in listed {
                let path = folder.join(&name);
                if path != dir.join("journal") && path != checkpoint::folder(dir) {
                    total_bytes += disk.open_to_read(&path).and_then(|f| f.len()).map_err(at_file(&path))?;
                    names.push(path);
                }
            }
        }
        let checkpoints = match checkpoint::list(disk, dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => VecDeque::new(),
            list => list.map_err(at_file(dir))?.into(),
        };
        let (is_whole, remakeable, report) = (true, Vec::new(), Report::default());
        let (is_rewritten, counts_bytes, held) = (false, false, HashMap::new());
        Ok(Self {
            disk,
            dir,
            checkpoints,
            progress,
            total_bytes,
            names,
            is_whole,
            is_rewritten,
            counts_bytes,
            held,
            remakeable,
            report,
        })
    }

    fn problem(&mut self, file: &Path, at: u64, what: impl Into<String>) {
        self.report.problems.push(Problem { file: file.to_owned(), at, what: what.into() });
    }

    /// Something of the journal is not what was written, or is missing.
    fn damage(&mut self, file: &Path, at: u64, what: impl Into<String>) {
        self.is_whole = false;
        self.problem(file, at, what);
    }

    /// Something is wrong with a file that can be made again; what to do about it is known at the end.
    fn remakeable(&mut self, file: &Path, at: u64, what: impl Into<String>) {
        self.remakeable.push(Problem { file: file.to_owned(), at, what: what.into() });
    }

    /// Says what to do about files that can be made again. Where something is wrong with the journal, they may be all
    /// that is left of what it held, and without them the folder might not open at all.
    fn advise(&mut self) {
        for problem in std::mem::take(&mut self.remakeable) {
            let kind = problem.file.extension().and_then(|ext| ext.to_str()).unwrap_or_default();
            let advice = match (self.is_whole, kind) {
                (true, "index") => {
                    "the journal is intact: move this file away, and the hub rebuilds it at its next start"
                }
                (true, "state") if self.is_rewritten && self.has_another(&problem.file) => {
                    "the journal is intact: move this file away, and the hub opens with the other checkpoint"
                }
                (true, _) if self.is_rewritten => {
                    "leave it where it is, because parts of the journal that it was made from are gone: restore a backup"
                }
                (true, _) => {
                    "the journal is intact: move the folder `state` away, and the hub rebuilds it at its next start"
                }
                (false, _) => "leave it where it is, because the journal is damaged: restore a backup",
            };
            let what = format!("{}; {advice}", problem.what);
            self.report.problems.push(Problem { what, ..problem });
        }
    }

    /// Whether there is a checkpoint, other than this one, that can be read with all of its tables.
    fn has_another(&self, file: &Path) -> bool {
        let places = checkpoint::list(self.disk, self.dir).unwrap_or_default();
        let is_good = |pos: &Pos| {
            let stored = checkpoint::read(self.disk, self.dir, *pos);
            stored.is_ok_and(|stored| {
                let mut tables = stored.tables.iter().map(|number| Table::open(self.disk, self.dir, *number));
                tables.all(|table| {
                    table.and_then(|table| table.verify()).is_ok_and(|verified| verified.is_ok())
                })
            })
        };
        let others = places.iter().filter(|pos| checkpoint::path(self.dir, **pos) != file);
        others.into_iter().any(is_good)
    }

    fn count(&mut self, bytes: u64) {
        self.report.files += 1;
        self.report.bytes += bytes;
        (self.progress)(Progress { done_bytes: self.report.bytes, total_bytes: self.total_bytes });
    }

    /// Everything that is no part of the journal: its name, and its pages.
    fn files(&mut self) -> Result<(), OpenError> {
        for path in self.names.clone() {
            let file = self.disk.open_to_read(&path).map_err(at_file(&path))?;
            let len = file.len().map_err(at_file(&path))?;
            let name = path.strip_prefix(self.dir).unwrap_or(&path).to_string_lossy().into_owned();
            match FileKind::of(&name) {
                Some(FileKind::Part(_)) => continue,
                Some(FileKind::Index(part)) if self.pages(&path, file.clone()) => {
                    self.index(&path, part, file);
                }
                Some(FileKind::State(pos)) if self.pages(&path, file.clone()) => self.state(&path, pos),
                Some(FileKind::Table(number)) if self.pages(&path, file.clone()) => self.table(&path, number),
                // What is wrong with its pages was told.
                Some(FileKind::Index(_) | FileKind::State(_) | FileKind::Table(_)) => {}
                // What a crash left half written; the next open removes it.
                Some(FileKind::Unfinished | FileKind::Format) => {}
                Some(FileKind::Lock) if len == 0 => {}
                Some(FileKind::Reserve) => self.zeros(&path, &*file)?,
                Some(FileKind::Moving) => {
                    let what =
                        "the folder holds an unfinished move; run that `prombus move` again to finish it";
                    self.problem(&path, 0, what);
                }
                Some(FileKind::Lock | FileKind::Backup) | None => {
                    self.problem(&path, 0, "this file does not belong here");
                }
            }
            self.count(len);
        }
        Ok(())
    }

    /// The file that keeps room back: it holds nothing.
    fn zeros(&mut self, path: &Path, file: &dyn DiskFile) -> Result<(), OpenError> {
        let (mut piece, mut at) = (vec![0; ZEROS], 0);
        loop {
            let got = file.read_at(&mut piece, at).map_err(at_file(path))?;
            if let Some(byte) = piece[..got].iter().position(|byte| *byte != 0) {
                self.problem(
                    path,
                    at + byte as u64,
                    "it holds something; it can be removed while no hub runs",
                );
                return Ok(());
            }
            if got < piece.len() {
                return Ok(());
            }
            at += got as u64;
        }
    }

    /// Every page of a file; whether all are good.
    fn pages(&mut self, path: &Path, file: Arc<dyn DiskFile>) -> bool {
        let before = self.remakeable.len();
        match PagedFile::open(file) {
            Err(error) => self.remakeable(path, 0, error.to_string()),
            Ok((paged, _)) => {
                for page in 0..paged.pages() {
                    if let Err(error) = paged.verify(page) {
                        self.remakeable(path, page * crate::paged::PAGE as u64, error.to_string());
                    }
                }
            }
        }
        self.remakeable.len() == before
    }

    /// Whether an index is the one that its name says, as an open judges it.
    fn index(&mut self, path: &Path, part: PartName, file: Arc<dyn DiskFile>) {
        if let Err(error) = Sidecar::open(file, part) {
            self.remakeable(path, 0, error.to_string());
        }
    }

    /// Whether a checkpoint is the one that its name says, as an open judges it.
    fn state(&mut self, path: &Path, pos: Pos) {
        if let Err(error) = checkpoint::read(self.disk, self.dir, pos) {
            self.remakeable(path, 0, error.to_string());
        }
    }

    /// The order of a table's rows, its index and its filter.
    fn table(&mut self, path: &Path, number: u64) {
        let verified = Table::open(self.disk, self.dir, number).and_then(|table| table.verify());
        match verified {
            Ok(Ok(())) => {}
            Ok(Err(what)) => self.remakeable(path, 0, what),
            Err(error) => self.remakeable(path, 0, error.to_string()),
        }
    }

    /// The checkpoint as of a place, with its tables; `None` where it cannot be read, which was told already unless
    /// a table is missing.
    fn stored(&mut self, pos: Pos) -> Option<Checkpoint> {
        let mut stored = checkpoint::read(self.disk, self.dir, pos).ok()?;
        let mut tables = Vec::with_capacity(stored.tables.len());
        for number in &stored.tables {
            match Table::open(self.disk, self.dir, *number) {
                Ok(table) => tables.push(Arc::new(table)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let what = format!("it is missing, and the checkpoint of {pos:?} needs it");
                    self.remakeable(&rows::path(self.dir, *number), 0, what);
                    return None;
                }
                Err(_) => return None,
            }
        }
        stored.view.rows.replace_tables(Arc::new(Tables::new(tables)));
        Some(stored)
    }

    /// What the journal is applied to: nothing, or the oldest checkpoint where parts before it were rewritten, or where
    /// there are too many rows.
    fn start(&mut self, files: &[PartName]) -> Replay {
        let stored = self.checkpoints.front().copied().and_then(|pos| self.stored(pos));
        let is_rewritten = files.iter().any(|file| file.rewrite > 0) || self.was_rewritten();
        // One that was dropped after the checkpoint: the journal behind it says so.
        let may_be_dropped = !files.iter().copied().eq((1..).map(PartName::written).take(files.len()));
        match stored {
            Some(stored)
                if is_rewritten
                    || may_be_dropped
                    || stored.view.rows.tables().disk_bytes() > MAX_REPLAYED_BYTES =>
            {
                self.checkpoints.pop_front();
                self.counts_bytes = true;
                Replay { from: stored.view.end, view: stored.view }
            }
            None if is_rewritten && !self.checkpoints.is_empty() => {
                // Nothing can be said of the one that cannot be read; the next one may do.
                self.checkpoints.pop_front();
                self.start(files)
            }
            None if is_rewritten => {
                let what =
                    "there is no checkpoint, and parts of the journal were rewritten since it was begun";
                self.damage(&checkpoint::folder(self.dir), 0, what);
                Replay { view: View::default(), from: Pos::default() }
            }
            _ => Replay { view: View::default(), from: Pos::default() },
        }
    }

    /// Whether a checkpoint says that parts were rewritten or dropped.
    fn was_rewritten(&self) -> bool {
        let read = |pos: &Pos| checkpoint::read(self.disk, self.dir, *pos).ok();
        self.checkpoints.iter().filter_map(read).any(|stored| !stored.view.part_set.is_untouched())
    }

    /// The journal from front to back, with indexes and checkpoints on the way.
    fn journal(&mut self) -> Result<(), OpenError> {
        let files = recover::list_parts(self.disk, self.dir)?;
        let mut replay = self.start(&files);
        let mut whole = true;
        let last = files.last().map_or(0, |file| file.number);
        // Parts that may have been rewritten are seen when it is known which.
        let first = replay.from.part.max(1);
        for number in first..=last {
            let next = self.next_head(number, last)?;
            let applied = Applied { replay: &mut replay, whole, next };
            whole &= self.one_part(PartName::written(number), number == last, applied)?;
        }
        if whole {
            for pos in std::mem::take(&mut self.checkpoints) {
                self.damage(&checkpoint::path(self.dir, pos), 0, "the journal ends before its place");
            }
        }
        let part_set = replay.view.part_set.clone();
        self.is_rewritten = !part_set.is_untouched();
        for name in (part_set.first()..first).filter_map(|number| part_set.name(number)) {
            let next = self.next_head(name.number, last)?;
            let applied = Applied { replay: &mut replay, whole, next };
            whole &= self.one_part(name, false, applied)?;
        }
        if whole {
            self.kept_events(&replay.view);
        }
        self.lone_indexes(&files)
    }

    fn note_held(&mut self, index: &ActiveIndex) {
        for run in &index.runs {
            let held = self.held.entry(run.partition).or_default();
            for n in 0..run.ats.len() {
                held.insert(Offset(run.offset(n)));
            }
        }
    }

    /// That every event is in some part that was written and not given up.
    fn kept_events(&mut self, view: &View) {
        let mut held = std::mem::take(&mut self.held);
        for (partition, PartitionExtent { first, next, .. }) in &view.extents {
            let (first, next) = (Offset(*first), Offset(*next));
            let mut told = held.remove(partition).unwrap_or_default();
            if let Some(holes) = view.holes.get(partition) {
                told.add_within(holes, first, next);
            }
            let missing = next.0.saturating_sub(first.0) - told.count_within(first, next);
            if missing == 0 {
                continue;
            }
            let topic = view.topics.values().find(|topic| topic.number.0 == partition.topic);
            let name = topic.map(|topic| topic.name.to_string()).unwrap_or_default();
            let what = format!(
                "{missing} events of topic {name}, partition {}, that nobody gave up are in no part; the first has offset {}",
                partition.partition,
                told.next_absent(first).0
            );
            self.damage(&self.dir.join("journal"), 0, what);
        }
    }

    /// Indexes of parts that are not there, and that nothing else misses.
    fn lone_indexes(&mut self, files: &[PartName]) -> Result<(), OpenError> {
        let last = files.last().map_or(0, |file| file.number);
        for name in recover::list_indexes(self.disk, self.dir)? {
            let path = part_path(self.dir, name);
            if files.binary_search(&name).is_ok() || self.report.problems.iter().any(|told| told.file == path)
            {
                continue;
            }
            if name.number > last {
                self.damage(&path, 0, "it is missing: its index is there");
            } else {
                let what = "it is the index of a part that is gone; the next open removes it";
                self.problem(&index_path(self.dir, name), 0, what);
            }
        }
        Ok(())
    }

    /// A part and its index; whether nothing is wrong with it.
    fn one_part(&mut self, name: PartName, is_last: bool, applied: Applied<'_>) -> Result<bool, OpenError> {
        let path = part_path(self.dir, name);
        let file = match self.disk.open_to_read(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.damage(&path, 0, "it is missing");
                return Ok(false);
            }
            Err(error) => return Err(at_file(&path)(error)),
        };
        let bytes = match PartBytes::read(&*file, name) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                self.damage(&path, 0, error.to_string());
                return Ok(false);
            }
            Err(error) => return Err(at_file(&path)(error)),
        };
        match bytes.head() {
            // Without its head, nothing can be said of its batches.
            None => {
                self.damage(&path, 0, "it does not start like this part of the journal");
                return Ok(false);
            }
            // That the part before this one ended there was seen when it was read, unless there is none.
            Some(head) if name == PartName::written(1) && head.prev_end != Pos::default() => {
                self.damage(&path, 0, "it is the first part, and says that there was one before it");
            }
            // A folder that was new when parts had secrets has always counted them.
            Some(head) if name == PartName::written(1) => self.counts_bytes |= head.secret.is_some(),
            Some(_) => {}
        }
        let (index, part_end, good) = self.part(&bytes, &path, applied);
        if good {
            self.sidecar(name, part_end, &index, is_last);
            self.note_held(&index);
        }
        self.count(file.len().map_err(at_file(&path))?);
        Ok(good)
    }

    /// The head of the part after `number`, where there is a readable one. That there is none is told when its turn
    /// comes.
    fn next_head(&self, number: u32, parts: u32) -> Result<Option<PartHead>, OpenError> {
        if number == parts {
            return Ok(None);
        }
        let next = PartName::written(number + 1);
        let path = part_path(self.dir, next);
        match self.disk.open_to_read(&path).and_then(|file| PartBytes::read_head(&*file, next)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            head => head.map_err(at_file(&path)),
        }
    }

    /// All batches of a part, also those behind damage. Says whether there was none.
    fn part(&mut self, bytes: &PartBytes, path: &Path, applied: Applied<'_>) -> (ActiveIndex, u32, bool) {
        let Applied { replay, whole, next } = applied;
        let mut index = ActiveIndex::default();
        let (mut at, mut good) = (PART_HEAD as u32, true);
        loop {
            for batch in bytes.batches_from(at) {
                let before = index.len();
                if good && whole {
                    self.checkpoints_to(batch.head.pos, replay);
                }
                if good && let Err(bad) = replay.take(&batch, &mut index) {
                    match bad {
                        // Behind a batch that was not applied, nothing can be said of what follows.
                        BadBatch::Item(_) if !whole => {}
                        BadBatch::Item(at) => {
                            self.damage(path, u64::from(at), "an item of a good batch cannot be read");
                        }
                        BadBatch::Rows(error) => {
                            let what = format!("what it changes cannot be read: {error}");
                            self.problem(path, u64::from(batch.head.pos.at), what);
                        }
                    }
                    good = false;
                }
                self.report.events += (index.len() - before) as u64;
                at = batch.end;
            }
            let evidence = match bytes.tail(at, next) {
                Tail::Clean => break,
                Tail::Torn => {
                    let is_sealed = self.names.contains(&index_path(self.dir, bytes.name()));
                    let what = match is_sealed {
                        true => "what follows does not belong to the journal, and can be ignored",
                        false => "what follows was never flushed as a whole; the next open cuts it off",
                    };
                    self.problem(path, u64::from(at), what);
                    break;
                }
                Tail::Damaged(evidence) => evidence,
            };
            good = false;
            let Some(next_good) = bytes.next_good(at) else {
                self.damage(path, u64::from(at), evidence.to_string());
                break;
            };
            let what = format!("a batch is damaged; the next good one is at byte {next_good}");
            self.damage(path, u64::from(at), what);
            at = next_good;
        }
        if good && whole {
            self.checkpoints_to(Pos { part: bytes.name().number, at }, replay);
        }
        (index, at, good)
    }

    /// Compares the checkpoints up to `pos`, to which the journal is applied.
    fn checkpoints_to(&mut self, pos: Pos, replay: &mut Replay) {
        while let Some(place) = self.checkpoints.pop_front_if(|place| *place <= pos) {
            if place == pos {
                replay.view.end = pos;
                self.checkpoint(pos, &replay.view);
            } else {
                self.damage(
                    &checkpoint::path(self.dir, place),
                    0,
                    "no batch of the journal starts at its place",
                );
            }
        }
    }

    /// The index of a part against the part.
    fn sidecar(&mut self, name: PartName, part_end: u32, index: &ActiveIndex, is_last: bool) {
        let path = index_path(self.dir, name);
        let file = match self.disk.open_to_read(&path) {
            Ok(_) if is_last => {
                let missing = part_path(self.dir, PartName::written(name.number + 1));
                return self.damage(&missing, 0, "it is missing: an index of the part before it is there");
            }
            Ok(file) => file,
            // One that is not there yet is made at the next open.
            Err(_) => return,
        };
        let same = Sidecar::open(file, name).and_then(|sidecar| same_index(&sidecar, index, part_end));
        match same {
            Ok(SameIndex::Yes) => {}
            Ok(SameIndex::No) => self.remakeable(&path, 0, "it does not say what the part holds"),
            Ok(SameIndex::EndsAt(end)) => {
                let what = format!("it ends here, and its index says that it was written up to byte {end}");
                self.damage(&part_path(self.dir, name), u64::from(part_end), what);
            }
            // What keeps it from being read was told already.
            Err(_) => {}
        }
    }

    /// The checkpoint as of a place against what the journal gave so far.
    fn checkpoint(&mut self, pos: Pos, view: &View) {
        // What keeps it from being read was told already.
        let Some(stored) = self.stored(pos) else { return };
        let counts_bytes = self.counts_bytes && !stored.view.lacks_bytes && !view.lacks_bytes;
        let comparison = Comparison { stored: &stored, replayed: view, counts_bytes };
        if let Ok(false) = is_same(comparison) {
            let what = "it does not hold what the journal gives";
            self.remakeable(&checkpoint::path(self.dir, pos), 0, what);
        }
    }
}

/// How the journal is applied.
struct Applied<'a> {
    replay: &'a mut Replay,
    /// Whether all parts before it were good.
    whole: bool,
    /// The head of the next part.
    next: Option<PartHead>,
}

/// Whether an index says what its part holds.
enum SameIndex {
    Yes,
    No,
    /// It says that the part was written further than it goes.
    EndsAt(u32),
}

fn same_index(sidecar: &Sidecar, index: &ActiveIndex, part_end: u32) -> io::Result<SameIndex> {
    if sidecar.part_end > part_end {
        return Ok(SameIndex::EndsAt(sidecar.part_end));
    }
    // What may have been noted of a change that was taken back does no harm.
    if index.names_keys() && !sidecar.names_keys {
        return Ok(SameIndex::No);
    }
    if sidecar.part_end < part_end || sidecar.all_entries()? != [index.id_entries(), index.key_entries()] {
        return Ok(SameIndex::No);
    }
    let runs = index.runs.iter().filter(|run| !run.ats.is_empty());
    if runs.clone().count() != sidecar.runs().count() {
        return Ok(SameIndex::No);
    }
    for run in runs {
        let Some(sealed) = sidecar.run(run.partition) else { return Ok(SameIndex::No) };
        let same = sealed.first == run.first
            && Some(sealed.max_ts) == run.max_ts.last().copied()
            && sidecar.places(&sealed, 0, sealed.count)? == run.places(0, sealed.count);
        if !same {
            return Ok(SameIndex::No);
        }
    }
    Ok(SameIndex::Yes)
}
