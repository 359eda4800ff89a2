//! The thread that writes what the writer should not wait for: indexes of full parts, tables of changed rows, checkpoints.
//!
//! It alone decides which tables exist. The order is always the same: a table is durable before a checkpoint refers to it,
//! and the checkpoint is durable before anything that it replaces is deleted.

use crate::background::eraser::{Names, not_erased};
use crate::background::merger::{self, MergeJob, Merged};
use crate::background::refusal;
use crate::disk::{Disk, is_full, is_out_of_handles, remove_if_there};
use crate::index::sidecar::{self, PartFacts, Sidecar};
use crate::journal::part::{Index, Part, index_path};
use crate::shared::Shared;
use crate::state::checkpoint::{self, Checkpoint};
use crate::state::checkpoints::{Checkpoints, KnownCheckpoint, Newest};
use crate::state::rows::{self, Overlay, Rows, Table, Tables};
use crate::state::view::View;
use crate::write::writer::{self, Asked, Handover, Message};
use prombus_core::CommitError;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::thread::JoinHandle;
use std::time::Duration;

/// Maximum number of full parts whose index is still in memory; beyond that, the writer waits.
pub const MAX_WAITING: usize = 2;
/// How long to wait before a failed chore (because the disk is full, for example) is retried.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// A task for the housekeeper.
pub enum Chore {
    /// Write the index of a full part.
    Seal {
        /// The part.
        part: Arc<Part>,
        /// What is needed to write its index.
        facts: PartFacts,
    },
    /// Write a checkpoint of a state that is flushed, and before it the table of what is frozen.
    Checkpoint {
        /// The state.
        view: Box<View>,
        /// The epoch.
        epoch: u64,
        /// The table, once it is written; what comes after it may have to be tried again.
        table: Option<Option<Arc<Table>>>,
        /// Who waits until it is there and nothing older is.
        asked: Vec<Asked>,
    },
    /// Replace tables with the one they were merged into.
    Merged(Merged),
    /// Drop rows that are in a table now.
    LetGo([Overlay; 2]),
    /// Derive index rows ahead of time.
    Prepare(Rows),
    /// The writer is gone.
    Stop,
}

impl Chore {
    /// Tells those who wait for it that it cannot be done yet. They may ask again, and it is tried again anyway.
    fn refuse(&mut self, why: &CommitError) {
        if let Self::Checkpoint { asked, .. } = self {
            writer::refuse(asked, why);
        }
    }
}

/// Where the writer sends chores. When the writer is gone, however that happens, the housekeeper notices.
pub struct Chores(pub SyncSender<Chore>);

impl Drop for Chores {
    fn drop(&mut self) {
        // A housekeeper that is gone needs not be told.
        let _ = self.0.send(Chore::Stop);
    }
}

/// The thread's state.
pub struct Housekeeper {
    shared: Arc<Shared>,
    writer: Sender<Message>,
    /// The tables of the last checkpoint.
    tables: Arc<Tables>,
    kept: Checkpoints,
    /// The last checkpoint of this run, without what it froze.
    last: Option<(View, u64)>,
    merger: Merger,
    /// Whether tables are being merged, or cannot be.
    is_merging: bool,
    /// Why they cannot be.
    merge_failure: Option<CommitError>,
    /// Who waits until nothing older than the last checkpoint is left.
    asked: Vec<Asked>,
}

/// The thread that merges. It ends with its housekeeper, also where that panics: it holds the lock of the folder.
struct Merger {
    jobs: Option<SyncSender<MergeJob>>,
    thread: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
}

impl Drop for Merger {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::Relaxed);
        drop(self.jobs.take());
        // A thread that panicked has said so itself.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// What the housekeeper starts with.
pub struct Start {
    /// What it shares with all.
    pub shared: Arc<Shared>,
    /// Who gets new tables.
    pub writer: Sender<Message>,
    /// The checkpoints that are there.
    pub kept: Checkpoints,
    /// Where its own chores are sent to.
    pub chores: SyncSender<Chore>,
}

impl Housekeeper {
    /// A housekeeper, whose merger runs already.
    pub fn new(start: Start) -> io::Result<Self> {
        let Start { shared, writer, kept, chores } = start;
        let tables = shared.view().rows.tables().clone();
        let newest = kept.newest(&*shared.disk, &shared.options.dir, &tables)?;
        *shared.newest.lock() = newest.map(Arc::new);
        // One at a time: the next is chosen when the last is done.
        let (merges, jobs) = mpsc::sync_channel(1);
        let thread = {
            let shared = shared.clone();
            let thread = std::thread::Builder::new().name("prombus-merger".to_owned());
            thread.spawn(move || merger::run(&shared, &jobs, &chores))?
        };
        let merger = Merger { jobs: Some(merges), thread: Some(thread), shared: shared.clone() };
        Ok(Self {
            shared,
            writer,
            tables,
            kept,
            last: None,
            merger,
            is_merging: false,
            merge_failure: None,
            asked: Vec::new(),
        })
    }

    /// Runs until the writer is gone and everything is written, or cannot be.
    pub fn run(mut self, first: Vec<Chore>, chores: Receiver<Chore>) {
        let mut waiting: VecDeque<Chore> = first.into();
        let mut open = true;
        while open || !waiting.is_empty() {
            let Some(chore) = waiting.front_mut() else {
                open &= note(chores.recv().unwrap_or(Chore::Stop), &mut waiting);
                continue;
            };
            match self.put_away(chore) {
                Ok(()) => drop(waiting.pop_front()),
                // Nothing is lost: the next start does it again.
                Err(error) if !open => {
                    tracing::warn!(%error, "failed to write state to disk; the next start will do it");
                    break;
                }
                Err(error) => {
                    tracing::warn!(%error, "failed to write state to disk; will retry");
                    let why = refusal("changed rows cannot be written to a table", &error);
                    waiting.iter_mut().for_each(|chore| chore.refuse(&why));
                    self.refuse(&why);
                    // A writer that is gone needs not be told.
                    let _ = self.writer.send(Message::Stuck(why));
                    match chores.recv_timeout(RETRY_AFTER) {
                        Ok(chore) => open &= note(chore, &mut waiting),
                        Err(RecvTimeoutError::Timeout) => {}
                        Err(RecvTimeoutError::Disconnected) => open = false,
                    }
                }
            }
        }
        // The merger, which ends with this, may be about to tell what it has done.
        drop(chores);
    }

    fn put_away(&mut self, chore: &mut Chore) -> io::Result<()> {
        match chore {
            Chore::Seal { part, facts } => seal(&self.shared, part, *facts),
            Chore::Checkpoint { view, epoch, table, asked } => {
                if table.is_none() {
                    let is_alive = view.is_alive();
                    // Without it there is no checkpoint, and without that no part of the journal can go.
                    let target = self.shared.new_table(&self.shared.cleaning_disk);
                    *table = Some(rows::write_frozen(target, &view.rows, &is_alive)?);
                }
                let tables = Arc::new(self.tables.with_newer(table.clone().flatten()));
                let kept = view.rows.frozen().cloned().unwrap_or_default().for_lookups();
                // What was frozen is in a table now, so nobody needs it in memory any more.
                let view = View { rows: Rows::default(), ..(**view).clone() };
                self.checkpoint(view, *epoch, tables)?;
                self.asked.append(asked);
                self.hand_over(Some(kept));
                Ok(())
            }
            Chore::Merged(merged) => self.take_merged(merged),
            Chore::LetGo(rows) => {
                drop(std::mem::take(rows));
                Ok(())
            }
            Chore::Prepare(rows) => {
                rows.prepare();
                self.shared.is_preparing.store(false, Ordering::Relaxed);
                Ok(())
            }
            Chore::Stop => Ok(()),
        }
    }

    /// Installs a merged table, with a checkpoint of the same state as the last one.
    fn take_merged(&mut self, merged: &Merged) -> io::Result<()> {
        match (&merged.result, self.last.clone()) {
            (Ok(table), Some((view, epoch))) => {
                if let Some(tables) = self.tables.with_merged(&merged.tables, table.clone()) {
                    self.checkpoint(view, epoch, Arc::new(tables))?;
                    self.hand_over(None);
                }
            }
            (Err(error), _) if is_full(error) || is_out_of_handles(error) => {
                // The next checkpoint is as good a moment as any to try again.
                tracing::warn!(%error, "failed to merge tables; will retry");
                self.is_merging = false;
                self.refuse(&refusal("tables cannot be merged yet", error));
            }
            (Err(error), _) if error.kind() == io::ErrorKind::Interrupted => {}
            (Err(error), _) => {
                tracing::error!(%error, "failed to merge tables; not trying again before the next start");
                let failure = CommitError::Unavailable(format!("tables cannot be merged: {error}"));
                self.refuse(&failure);
                self.merge_failure = Some(failure);
            }
            (Ok(_), None) => {}
        }
        Ok(())
    }

    /// Writes a checkpoint, and deletes what it replaces.
    fn checkpoint(&mut self, view: View, epoch: u64, tables: Arc<Tables>) -> io::Result<()> {
        let (disk, dir) = (&self.shared.cleaning_disk, &self.shared.options.dir);
        let numbers: Vec<u64> = tables.numbers().collect();
        let checkpoint = Checkpoint { view, epoch, tables: numbers.clone(), with_documents: false };
        let file = checkpoint::write(disk, dir, &checkpoint)?;
        let Checkpoint { view, .. } = checkpoint;
        self.kept.add(KnownCheckpoint {
            pos: view.end,
            tables: numbers,
            has_names: !view.forgotten.is_empty(),
        });
        // Before anything goes that only earlier ones need: whoever holds a copy has this one from now on.
        let newest = Newest { pos: view.end, file, tables: tables.clone() };
        *self.shared.newest.lock() = Some(Arc::new(newest));
        (self.last, self.tables) = (Some((view, epoch)), tables);
        if let Err(error) = self.kept.let_go(disk, dir) {
            tracing::warn!(%error, "failed to remove obsolete files; will retry");
        }
        self.note_kept();
        self.shared.wake_rewriter();
        Ok(())
    }

    fn note_kept(&self) {
        self.shared.checkpointed_part.store(self.kept.oldest_part(), Ordering::Relaxed);
        self.shared.has_names.store(self.kept.have_names(), Ordering::Relaxed);
    }

    /// Gives the tables to the writer, and finds out whether some are to be merged.
    fn hand_over(&mut self, kept: Option<Overlay>) {
        let is_merged = kept.is_none();
        let handover = Handover { tables: self.tables.clone(), kept };
        // A writer that is gone has no use for them.
        let _ = self.writer.send(Message::Tables(handover));
        if is_merged {
            self.is_merging = false;
        }
        self.serve_asked();
        self.merge();
    }

    /// Leaves nothing behind that is older than the last checkpoint, for those who wait for that. Where tables have rows of
    /// documents that are gone and whose names were forgotten, all of them are merged first.
    fn serve_asked(&mut self) {
        let Some((view, _)) = self.last.as_ref().filter(|_| !self.asked.is_empty()) else { return };
        if let Some(failure) = self.merge_failure.clone() {
            return self.refuse(&failure);
        }
        if self.is_merging {
            return;
        }
        let names = Names::of(view);
        let is_done = match self.tables.have_gone(&names, &view.is_alive()) {
            Ok(false) => self.remove_older().map(|()| true),
            Ok(true) => {
                let (tables, keep) = (self.tables.list().to_vec(), Box::new(view.is_alive()));
                let job = MergeJob { tables, from_oldest: true, keep };
                self.is_merging = self.merger.jobs.as_ref().is_some_and(|jobs| jobs.try_send(job).is_ok());
                if self.is_merging { Ok(false) } else { Err(io::Error::other("the merger is gone")) }
            }
            Err(error) => Err(error),
        };
        match is_done {
            Ok(false) => {}
            Ok(true) => {
                // Whoever no longer waits does not want to know.
                self.asked.drain(..).for_each(|Asked { answer, renewed }| drop(answer.send(Ok(renewed))));
            }
            Err(error) => self.refuse(&not_erased(error)),
        }
    }

    /// Removes checkpoints before the last one, and what is left of checkpoints that could not be written.
    fn remove_older(&mut self) -> io::Result<()> {
        let (disk, dir) = (&*self.shared.disk, &self.shared.options.dir);
        self.kept.let_go_of_older(disk, dir)?;
        self.note_kept();
        let folder = checkpoint::folder(dir);
        let left = |name: &String| name.ends_with(".tmp") && !name.ends_with(".table.tmp");
        disk.list(&folder)?
            .into_iter()
            .filter(left)
            .try_for_each(|name| remove_if_there(disk, &folder.join(name)))
    }

    fn refuse(&mut self, why: &CommitError) {
        writer::refuse(&mut self.asked, why);
    }

    fn merge(&mut self) {
        let Some((view, _)) = self.last.as_ref().filter(|_| !self.is_merging) else { return };
        let list = self.tables.list();
        let sizes: Vec<u64> = list.iter().map(|table| table.disk_bytes()).collect();
        let Some(run) = rows::pick(&sizes) else { return };
        let (from_oldest, keep) = (run.start == 0, Box::new(view.is_alive()));
        let job = MergeJob { tables: list[run].to_vec(), from_oldest, keep };
        self.is_merging = self.merger.jobs.as_ref().is_some_and(|jobs| jobs.try_send(job).is_ok());
    }
}

/// Puts a chore behind the others; whether the writer is still there.
fn note(chore: Chore, waiting: &mut VecDeque<Chore>) -> bool {
    match chore {
        Chore::Stop => return false,
        chore => waiting.push_back(chore),
    }
    true
}

fn seal(shared: &Shared, part: &Part, facts: PartFacts) -> io::Result<()> {
    let (disk, dir) = (&shared.cleaning_disk, &shared.options.dir);
    let path = index_path(dir, facts.name);
    let unsealed = match &*part.index() {
        Index::Sealed(_) => false,
        Index::Active(index) => {
            // Gives back what was reserved and not used, through one handle.
            part.file.hold()?;
            part.file.set_len(u64::from(facts.end))?;
            part.file.sync()?;
            part.file.let_go();
            sidecar::write(disk, &path, &index.read(), facts)?;
            true
        }
    };
    if unsealed {
        part.seal(Sidecar::open(disk.open_to_read(&path)?, facts.name)?);
    }
    Ok(())
}
