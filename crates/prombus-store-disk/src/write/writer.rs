//! The only thread that writes the journal.
//!
//! It takes the commits that have queued up, checks each against the state including all before it, writes the accepted
//! ones in one batch, flushes once, publishes the new view and answers all of them. Nothing is answered or visible before
//! that.

mod roll;

use crate::background::builder::Build;
use crate::background::housekeeper::Chores;
use crate::background::rewriter::Replacement;
use crate::backup::held::Moment;
use crate::disk::is_full;
use crate::journal::batch::{self, BATCH_HEAD, BatchHead, MAX_BATCH, Secret};
use crate::journal::part::{PART_HEAD, Part};
use crate::journal::position::Pos;
use crate::journal::record::TooLong;
use crate::journal::scan::PartBytes;
use crate::paged::damaged;
use crate::shared::Shared;
use crate::state::rows::{Overlay, Tables};
use crate::store::DiskOptions;
use crate::write::stage::Stage;
use parking_lot::Mutex;
use prombus_core::{Commit, CommitError, Durability, IdMaker, Piece, Receipt};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// A batch is written once it has grown to this.
const BATCH_BYTES: usize = 4 << 20;
/// No batch holds more commits than this.
const BATCH_COMMITS: usize = 4096;
/// How long written data may stay unflushed, if the topic allows it.
const FLUSH_WITHIN: Duration = Duration::from_millis(50);
/// After being idle for this long, an empty batch records that everything was flushed.
const COVER_AFTER: Duration = Duration::from_secs(1);

/// Something to write, and who waits for it.
pub struct Job {
    /// What is to be written.
    pub work: Work,
    /// Who waits.
    pub answer: oneshot::Sender<Result<Receipt, CommitError>>,
    /// Since when.
    pub since: Instant,
    /// Its share of the queue; there is never more than one step, so that needs none.
    pub permit: Option<OwnedSemaphorePermit>,
}

/// What is to be written.
pub enum Work {
    /// A commit.
    Commit(Arc<Commit>),
    /// A step of building an index.
    Build(Build),
    /// A part in place of others.
    Replace(Replacement),
    /// That what was forgotten up to this commit is erased.
    Erased(u64),
    /// Something that another store held.
    Put(Piece),
}

impl Work {
    /// What it must leave of the room that is kept back for a disk that is full.
    fn must_leave(&self, options: &DiskOptions) -> u64 {
        match self {
            Self::Commit(commit) if commit.only_removes() => 0,
            Self::Replace(_) | Self::Erased(_) => 0,
            Self::Commit(commit) if commit.events.is_empty() => options.headroom_for_deletes(),
            Self::Commit(_) | Self::Build(_) | Self::Put(_) => options.headroom(),
        }
    }

    /// Whether it changes rows, which take memory until they are in a table.
    pub fn changes_rows(&self) -> bool {
        match self {
            Self::Commit(commit) => !commit.documents.is_empty(),
            Self::Build(_) => true,
            Self::Put(piece) => matches!(piece, Piece::Documents { .. }),
            Self::Replace(_) | Self::Erased(_) => false,
        }
    }
}

/// A message to the writer.
pub enum Message {
    /// Something to commit.
    Commit(Job),
    /// Advance recorded time.
    Horizon(Horizon),
    /// New tables.
    Tables(Handover),
    /// Take a checkpoint that somebody waits for.
    Renew(Renew),
    /// Take another checkpoint.
    Checkpoint,
    /// Tables cannot be written for the time being.
    Stuck(CommitError),
    /// Tell the state of a moment at which everything is flushed.
    Hold(oneshot::Sender<Moment>),
    /// The last message.
    Stop,
}

/// A time that recorded time has to pass, and who is waiting for it.
pub struct Horizon {
    /// The time.
    pub past: u64,
    /// Who waits; told what recorded time is then.
    pub answer: oneshot::Sender<u64>,
}

/// A checkpoint that somebody waits for: nothing earlier is to be left, neither checkpoints nor rows of documents that are
/// gone and whose names were forgotten.
pub struct Renew {
    /// Whether the part that is being written ends before it.
    pub ends_part: bool,
    /// Who waits.
    pub answer: oneshot::Sender<Result<Renewed, CommitError>>,
}

/// Where such a checkpoint was taken.
#[derive(Debug, Clone, Copy)]
pub struct Renewed {
    /// The part that was being written then.
    pub part: u32,
    /// The last commit before it.
    pub sequence: u64,
}

/// Who waits for a checkpoint, and what to tell them.
pub struct Asked {
    pub answer: oneshot::Sender<Result<Renewed, CommitError>>,
    pub renewed: Renewed,
}

/// Tells those who wait for a checkpoint that there is none yet.
pub fn refuse(asked: &mut Vec<Asked>, why: &CommitError) {
    // Whoever no longer waits does not want to know.
    asked.drain(..).for_each(|asked| drop(asked.answer.send(Err(why.clone()))));
}

/// Tables to put instead of the current ones.
pub struct Handover {
    /// The tables.
    pub tables: Arc<Tables>,
    /// Where they have what was frozen: its documents, to be kept for lookups.
    pub kept: Option<Overlay>,
}

/// The thread's state.
pub struct Writer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) queue: Receiver<Message>,
    pub(crate) chores: Chores,
    pub(crate) builder: SyncSender<()>,
    pub(crate) stage: Stage,
    part: Arc<Part>,
    /// The secret of the part, unless an early build made it.
    secret: Option<Secret>,
    pub(crate) epoch: u64,
    /// How far room is reserved in the part.
    reserved: u64,
    /// Whether the last write found the disk full.
    write_was_full: bool,
    flushed_to: Pos,
    /// Whether a batch on disk, in another sector, says that everything before it was flushed.
    pub(crate) covered: bool,
    /// When unflushed data was written first.
    pub(crate) dirty_since: Option<Instant>,
    /// A commit that did not fit into the part.
    carried: VecDeque<Job>,
    /// Commits that came while something else was waited for.
    pub(crate) arrived: VecDeque<Job>,
    /// Who waits for recorded time to move on, which it does at the end of the batch.
    pub(crate) horizons: Vec<Horizon>,
    /// Checkpoints that are asked for, to be begun at the end of the batch.
    pub(crate) renewals: Vec<Renew>,
    /// Who waits for the next checkpoint.
    pub(crate) asked: Vec<Asked>,
    /// Who waits for a moment at which everything is flushed.
    pub(crate) holders: Vec<oneshot::Sender<Moment>>,
    /// Tables that wait for the end of the batch.
    pub(crate) handover: Option<Handover>,
    /// Whether a checkpoint was asked for that is not there yet. Only then are rows frozen.
    pub(crate) is_checkpointing: bool,
    /// Whether the next open would have much to replay: a part was rolled since a checkpoint was asked for, or this
    /// open took long.
    pub(crate) checkpoint_is_due: bool,
    /// Why the checkpoint that was asked for cannot be written yet.
    pub(crate) stuck: Option<CommitError>,
    pub(crate) is_stopping: bool,
}

/// What the writer starts with.
pub struct Start {
    /// What it shares with readers.
    pub shared: Arc<Shared>,
    /// Where commits come from.
    pub queue: Receiver<Message>,
    /// Where full parts and changed rows go.
    pub chores: Chores,
    /// Wakes the builder of indexes.
    pub builder: SyncSender<()>,
    /// The epoch of this run.
    pub epoch: u64,
    /// Whether the next open would have much to replay.
    pub checkpoint_is_due: bool,
    /// Makes ids.
    pub ids: IdMaker,
}

impl Writer {
    /// A writer that goes on where the view ends.
    pub fn new(start: Start) -> io::Result<Self> {
        let Start { shared, queue, chores, builder, epoch, checkpoint_is_due, ids } = start;
        let view = shared.view();
        let part = view.parts.last().cloned().ok_or_else(|| io::Error::other("a store has a part"))?;
        part.file.hold()?;
        let reserved = part.file.len()?;
        let head = PartBytes::read_head(&*part.file, part.name)?;
        let head = head.ok_or_else(|| damaged(format!("{part:?} has no head any more")))?;
        let stage = Stage::new(shared.clone(), (*view).clone(), part.clone(), ids);
        let mut writer = Self {
            flushed_to: view.end,
            shared,
            queue,
            chores,
            builder,
            stage,
            part,
            secret: head.secret,
            epoch,
            reserved,
            write_was_full: false,
            covered: false,
            dirty_since: None,
            carried: VecDeque::new(),
            arrived: VecDeque::new(),
            horizons: Vec::new(),
            renewals: Vec::new(),
            asked: Vec::new(),
            holders: Vec::new(),
            handover: None,
            is_checkpointing: false,
            checkpoint_is_due,
            stuck: None,
            is_stopping: false,
        };
        writer.begin();
        Ok(writer)
    }

    /// Runs until it is told to stop and everything sent before that is done.
    pub fn run(mut self) {
        self.leave_early_part();
        while let Some(first) = self.wait() {
            self.work(first);
        }
        self.rest();
    }

    /// Waits for work, doing meanwhile what is due.
    fn wait(&mut self) -> Option<Job> {
        loop {
            self.between_batches();
            self.wait_for_memory();
            if let Some(job) = self.next_now() {
                return Some(job);
            }
            if self.is_stopping {
                return None;
            }
            if self.has_noted() {
                continue;
            }
            let patience = match self.dirty_since {
                _ if self.shared.failed().is_some() => None,
                Some(since) => Some(FLUSH_WITHIN.saturating_sub(since.elapsed())),
                None => (!self.covered).then_some(COVER_AFTER),
            };
            let message = match patience {
                None => self.queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(patience) => self.queue.recv_timeout(patience),
            };
            match message {
                Ok(message) => self.note(message),
                Err(RecvTimeoutError::Disconnected) => self.is_stopping = true,
                Err(RecvTimeoutError::Timeout) if self.dirty_since.is_some() => {
                    self.flush();
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.cover();
                    // Nothing happens: as good a moment as any.
                    self.prepare();
                }
            }
        }
    }

    /// The next commit, if one is there already.
    fn next_now(&mut self) -> Option<Job> {
        if let Some(job) = self.carried.pop_front().or_else(|| self.arrived.pop_front()) {
            return Some(job);
        }
        while let Ok(message) = self.queue.try_recv() {
            match message {
                Message::Commit(job) => return Some(job),
                other => self.note(other),
            }
        }
        None
    }

    /// Before it ends: flushes everything, and writes a batch that records it.
    fn rest(&mut self) {
        if self.shared.failed().is_none() && (self.dirty_since.is_none() || self.flush()) && !self.covered {
            self.cover();
        }
        self.shared.fail("the store is closed");
    }

    /// Commits `first` and what has queued up behind it.
    fn work(&mut self, first: Job) {
        let mut waiting = Vec::new();
        let mut next = Some(first);
        while let Some(job) = next.take() {
            match self.take(&job.work) {
                Taken::Done(answer) => waiting.push((job, answer)),
                Taken::PartFull => {
                    self.carried.push_front(job);
                    break;
                }
            }
            let is_full = self.stage.buffer.len() >= BATCH_BYTES || waiting.len() >= BATCH_COMMITS;
            if is_full || self.is_too_much() {
                break;
            }
            next = self.next_now();
        }
        let shown = self.write_and_show(&waiting);
        // The first of them waited longest.
        let first = waiting.first().map(|(job, _)| job).filter(|job| matches!(job.work, Work::Commit(_)));
        if let Some(job) = first {
            self.shared.waits.note(job.since);
        }
        let mut done = Vec::with_capacity(waiting.len());
        for (Job { work, answer, permit, .. }, result) in waiting {
            let result = match (&shown, result) {
                (Ok(()), result) => result,
                // It was refused over what others did in the same batch, which nobody may know; itself it did nothing.
                (Err(CommitError::Unknown(failure)), Err(_)) => {
                    Err(CommitError::Unavailable(failure.clone()))
                }
                (Err(error), _) => Err(error.clone()),
            };
            // What happened is let go of only when all are answered, because that takes a while for many events. Whoever
            // tries again has what was refused for himself.
            done.push((result.is_ok().then_some(work), permit));
            // Whoever no longer waits does not want to know.
            let _ = answer.send(result);
        }
        drop(done);
        if !self.carried.is_empty() {
            self.roll_or_refuse();
        }
    }

    /// Checks one commit and adds it to the batch.
    fn take(&mut self, work: &Work) -> Taken {
        if let Some(failure) = self.shared.failed() {
            return Taken::Done(Err(CommitError::Unavailable(failure)));
        }
        if let Some(error) = self.no_memory_for(work) {
            return Taken::Done(Err(error));
        }
        let savepoint = self.stage.savepoint();
        let taken = match work {
            Work::Commit(commit) => self.stage.commit(commit),
            Work::Build(build) => self.stage.build(build),
            Work::Replace(replacement) => self.stage.replace(replacement),
            Work::Erased(upto) => self.stage.erased(*upto),
            Work::Put(piece) => self.stage.put(piece),
        };
        let taken = taken.and_then(|receipt| {
            let (bytes, limit) = (self.stage.buffer.len(), MAX_BATCH);
            if bytes > limit { Err(CommitError::TooLarge { bytes, limit }) } else { Ok(receipt) }
        });
        let receipt = match taken {
            Ok(receipt) => receipt,
            Err(error) => {
                self.stage.roll_back_to(savepoint);
                return Taken::Done(Err(error));
            }
        };
        if self.stage.items == savepoint.items() {
            // Nothing but duplicates: nothing to write, and no room needed.
            return Taken::Done(Ok(receipt));
        }
        let end = self.end_of_batch();
        // A commit that no part has room for gets one of its own.
        let alone = self.at() as usize == PART_HEAD && savepoint.items() == 0;
        let options = &self.shared.options;
        let (headroom, left) = (options.headroom(), work.must_leave(options));
        // What is kept back for commits without events is also there when no new part can be made.
        if end + left > options.part_bytes + headroom && !alone {
            self.stage.roll_back_to(savepoint);
            return Taken::PartFull;
        }
        let has_room = match self.make_room(end + headroom) {
            Ok(has_room) => has_room,
            Err(error) => {
                self.stage.roll_back_to(savepoint);
                let failure = format!("space for the journal cannot be reserved: {error}");
                return Taken::Done(Err(CommitError::Unavailable(failure)));
            }
        };
        if !has_room {
            self.shared.set_disk_full(true);
        }
        if !has_room && end + left > self.reserved {
            self.stage.roll_back_to(savepoint);
            return Taken::Done(Err(CommitError::NoRoom));
        }
        Taken::Done(Ok(receipt))
    }

    /// Makes the state visible that the batches so far have left.
    pub(crate) fn show(&mut self) {
        self.shared.show(self.stage.view.clone(), std::mem::take(&mut self.stage.changed_set));
    }

    /// Where the batch would end if it were written now.
    fn end_of_batch(&self) -> u64 {
        u64::from(self.at()) + self.stage.buffer.len().next_multiple_of(batch::ALIGN) as u64
    }

    fn at(&self) -> u32 {
        self.stage.view.end.at
    }

    /// Reserves room up to `end`, and some more where there is; whether there is.
    ///
    /// Only a whole step shows that the disk is not full any more: something small may always fit.
    fn make_room(&mut self, end: u64) -> io::Result<bool> {
        if end <= self.reserved {
            return Ok(true);
        }
        let step = end.next_multiple_of(self.shared.options.reserve_step());
        for target in [step, end] {
            match self.part.file.reserve(self.reserved, target) {
                Ok(()) => {
                    self.reserved = target;
                    if target == step {
                        self.shared.set_disk_full(false);
                    }
                    // The larger the journal, the more room is kept back for cleaning it.
                    self.shared.wake_rewriter();
                    return Ok(true);
                }
                Err(error) if is_full(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    pub(crate) fn begin(&mut self) {
        self.stage.begin(self.part.clone());
    }

    /// Writes the batch, flushes it if anyone asked for that, and shows the new view.
    fn write_and_show(&mut self, waiting: &[(Job, Result<Receipt, CommitError>)]) -> Result<(), CommitError> {
        if let Some(failure) = self.shared.failed() {
            return Err(CommitError::Unavailable(failure));
        }
        let durability =
            waiting.iter().filter_map(|(_, answer)| answer.as_ref().ok()).map(|receipt| receipt.durability);
        let durability = durability.max().unwrap_or(Durability::Interval);
        if self.stage.items > 0
            && let Err(error) = self.write()
        {
            self.stage.roll_back_batch();
            return Err(error);
        }
        let due = |since: Instant| durability == Durability::Sync || since.elapsed() >= FLUSH_WITHIN;
        if self.dirty_since.is_some_and(due) {
            self.flush();
        }
        match self.shared.failed() {
            // It is written, and may be found at the next open.
            Some(failure) => Err(CommitError::Unknown(failure)),
            None => {
                self.show();
                self.begin();
                if std::mem::take(&mut self.stage.has_begun_index) {
                    self.wake_builder();
                }
                if std::mem::take(&mut self.stage.has_given_up) {
                    self.shared.wake_rewriter();
                }
                Ok(())
            }
        }
    }

    /// Appends the batch. If there is no room, nothing of it is left; after any other failure, it is unknown what was
    /// written, so the engine is poisoned.
    fn write(&mut self) -> Result<(), CommitError> {
        let pos = self.stage.view.end;
        let head = BatchHead {
            len: 0,
            items: self.stage.items,
            pos,
            epoch: self.epoch,
            flushed_to: self.flushed_to,
            sequence: self.stage.view.sequence,
            recorded_ts: self.stage.view.last_recorded_ts,
        };
        let head = batch::finish(&mut self.stage.buffer, head, self.secret)?;
        let end = head.end().ok_or(TooLong { bytes: self.stage.buffer.len(), limit: MAX_BATCH })?;
        if let Err(error) = self.part.file.write_at(&self.stage.buffer, u64::from(pos.at)) {
            return Err(match self.cut_back() {
                Ok(()) if is_full(&error) => {
                    self.shared.set_disk_full(true);
                    self.write_was_full = true;
                    CommitError::NoRoom
                }
                _ => {
                    let failure = format!("writing the journal failed ({error}); restart the hub");
                    self.shared.fail(&failure);
                    CommitError::Unknown(failure)
                }
            });
        }
        if std::mem::take(&mut self.write_was_full) {
            // Where room cannot be reserved, this is what shows that there is some again.
            self.shared.set_disk_full(false);
        }
        self.stage.view.end = end;
        self.dirty_since.get_or_insert_with(Instant::now);
        self.covered = false;
        Ok(())
    }

    /// Takes back what a failed write has left behind the end: a part that was not flushed up to its end looks damaged.
    fn cut_back(&mut self) -> io::Result<()> {
        let (end, reserved) = (u64::from(self.at()), self.reserved);
        self.part.file.set_len(end)?;
        self.reserved = end;
        // The room that was reserved went with it. Where it cannot be had again, a full disk shows in the next commit.
        self.make_room(reserved).map(|_| ())
    }

    /// Flushes the journal. If that fails, it is unknown what is on disk, so the engine is poisoned.
    pub(crate) fn flush(&mut self) -> bool {
        let start = Instant::now();
        match self.part.file.sync() {
            Ok(()) => {
                self.shared.flushes.observe(start.elapsed());
                self.flushed_to = self.stage.view.end;
                self.dirty_since = None;
                true
            }
            Err(error) => {
                self.shared.fail(&format!("flushing the journal failed ({error}); restart the hub"));
                false
            }
        }
    }

    /// Writes an empty batch, which says that everything before it was flushed. Deletes need their room more.
    ///
    /// It starts a sector: the loss of one must not take data and what says that they were there. Another empty batch
    /// fills the sector that data end in.
    pub(crate) fn cover(&mut self) {
        self.begin();
        let filler = batch::to_next_sector(self.at());
        let bytes = filler.unwrap_or(0) + BATCH_HEAD;
        let left = self.shared.options.headroom_for_deletes();
        let room = self.make_room(u64::from(self.at()) + bytes as u64 + left);
        if room.is_ok_and(|has_room| has_room) && self.write_cover(filler).is_ok() && self.flush() {
            self.show();
        }
        // Without room, trying again would be of no use either.
        self.covered = true;
        self.begin();
    }

    fn write_cover(&mut self, filler: Option<usize>) -> Result<(), CommitError> {
        if let Some(filler) = filler {
            self.stage.buffer.resize(filler, 0);
            self.write()?;
            self.begin();
        }
        self.write()
    }
}

/// The outcome of staging a commit.
enum Taken {
    /// It is in the batch, or was refused.
    Done(Result<Receipt, CommitError>),
    /// It has to go into the next part.
    PartFull,
}

/// A handle for joining a thread.
pub type Handle = Mutex<Option<std::thread::JoinHandle<()>>>;
