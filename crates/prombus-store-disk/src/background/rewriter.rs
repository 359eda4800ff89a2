//! The thread that gives space back: it drops parts of the journal of which nothing is needed any more, and rewrites
//! those that are mostly dead.
//!
//! What a part changed beside its events is in the checkpoints, so a part is left alone until the oldest checkpoint is of
//! a later one. A rewritten part is durable, with its index, before the commit that puts it in place of others, and those
//! are deleted once that commit is. Readers that still hold them read on: a deleted file stays until it is closed.

use crate::background::eraser;
use crate::background::failures::Failures;
use crate::background::pace::Pace;
use crate::background::refusal;
use crate::background::worth::{Search, Worth, is_over, is_worth_a_checkpoint, live, windows, worth_it};
use crate::disk::{Disk, folder_of, remove_if_there};
use crate::index::active::{ActiveIndex, Entry};
use crate::index::lookup::key_hash;
use crate::index::sidecar::{self, PartFacts, Sidecar};
use crate::journal::batch::{self, BATCH_HEAD, BatchHead, Secret};
use crate::journal::part::{
    self, EventAt, Index, PART_HEAD, Part, PartHead, PartName, index_path, part_path,
};
use crate::journal::position::{PartitionRef, Pos};
use crate::journal::record::{self, EVENT};
use crate::read::fetch;
use crate::shared::Shared;
use crate::state::view::View;
use crate::write::writer::{Job, Message, Renew, Renewed, Work};
use hashbrown::HashMap;
use prombus_core::{CommitError, Receipt};
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// A batch of a rewritten part is written once it has grown to this.
const BATCH_BYTES: usize = 1 << 20;
/// Once so much was written, it is synced.
const SYNC_BYTES: usize = 1 << 20;
/// How many events of a partition are looked up at a time.
const PLACES: u64 = 1024;
/// How much is read at a time.
const READ_BYTES: usize = 64 << 10;
/// How long to wait before what could not be given back (because the disk is full, for example) is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// A part in place of others, or none.
pub struct Replacement {
    /// The parts that go.
    pub old: Vec<Arc<Part>>,
    /// What is left of them.
    pub new: Option<Arc<Part>>,
}

/// Ends with the thread, however that ends: nobody waits for it any more.
struct End<'a>(&'a Shared);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.end_erasures();
    }
}

/// Runs until nobody wakes it any more.
pub fn run(shared: &Shared, writer: &Sender<Message>, woken: &Receiver<()>) {
    let _end = End(shared);
    let mut rewriter = Rewriter {
        shared,
        writer,
        failures: Failures::default(),
        has_failed: false,
        pace: Pace::new(shared),
    };
    while rewriter.is_woken(woken) {
        rewriter.work();
    }
}

/// The thread's state.
pub struct Rewriter<'a> {
    /// What it shares with all.
    pub shared: &'a Shared,
    writer: &'a Sender<Message>,
    failures: Failures,
    /// Whether something could not be done that is due to no part, like for want of room.
    has_failed: bool,
    /// How fast it reads and writes.
    pub pace: Pace<'a>,
}

/// Why parts are as they were.
pub struct NotRewritten {
    /// Those that it is due to, or all that were to be rewritten.
    parts: Vec<PartName>,
    /// The reason.
    pub error: CommitError,
}

impl Rewriter<'_> {
    /// Waits until there may be something to do, which there is after a while where something could not be done; whether
    /// anybody is left who says so.
    fn is_woken(&self, woken: &Receiver<()>) -> bool {
        match if self.has_failed { Some(RETRY_AFTER) } else { self.failures.pause() } {
            None => woken.recv().is_ok(),
            Some(pause) => woken.recv_timeout(pause) != Err(RecvTimeoutError::Disconnected),
        }
    }

    /// Does all that there is to do.
    fn work(&mut self) {
        let shared = self.shared;
        loop {
            let erasures = shared.take_erasures();
            if !erasures.is_empty() {
                let erased = eraser::erase(self);
                // Whoever no longer waits does not want to know.
                erasures.into_iter().for_each(|erasure| drop(erasure.send(erased.clone())));
            }
            if shared.closing.load(Ordering::Relaxed) || shared.failed().is_some() {
                break;
            }
            shared.keep_room_back();
            let began = Instant::now();
            let reclaimed = self.reclaim_some();
            self.has_failed = reclaimed.is_err();
            if shared.closing.load(Ordering::Relaxed) {
                break;
            }
            if reclaimed == Ok(false) {
                self.failures.forget_due(began);
            }
            self.failures.keep(&shared.view().parts);
            shared.set_reclaiming_stuck(reclaimed.as_ref().err().or(self.failures.error()));
            if reclaimed != Ok(true) {
                break;
            }
        }
    }

    /// Rewrites or drops some neighbours that are worth it, or finds out that they cannot be; whether there were any.
    fn reclaim_some(&mut self) -> Result<bool, CommitError> {
        match self.reclaim_first() {
            // What is left of one part takes the least room, and makes room for the next.
            Err(CommitError::NoRoom) => {
                self.reclaim(0, |groups| groups.into_iter().min_by_key(|group| live(group)))
            }
            Ok(false) => self.free_recent(),
            done => done,
        }
    }

    fn reclaim_first(&mut self) -> Result<bool, CommitError> {
        self.reclaim(self.shared.options.part_bytes, |groups| groups.into_iter().next())
    }

    /// Has a checkpoint taken behind the part that is being written, and that part ended, if those that wait for it are
    /// worth it; whether they were.
    fn free_recent(&mut self) -> Result<bool, CommitError> {
        let view = self.shared.view();
        if !self.shared.options.reclaims || !is_worth_a_checkpoint(self.shared, &view) {
            return Ok(false);
        }
        drop(view);
        self.renew(true)?;
        let reclaimed = self.reclaim_first();
        // There are two again, in case one is damaged.
        self.send(Message::Checkpoint)?;
        reclaimed
    }

    fn reclaim(
        &mut self,
        most_live: u64,
        pick: impl FnOnce(Vec<Vec<Worth>>) -> Option<Vec<Worth>>,
    ) -> Result<bool, CommitError> {
        let (shared, view) = (self.shared, self.shared.view());
        self.pace.begin();
        let groups = worth_it(Search { shared, view: &view, failures: &self.failures, most_live });
        // Whoever gives up a few events at a time has all parts looked at each time.
        let goes_on = self.pace.spend(0).is_ok();
        self.pace.end();
        let Some(group) = pick(groups).filter(|_| goes_on) else { return Ok(false) };
        let old = group.into_iter().map(|worth| worth.part).collect();
        match self.rewrite(view, old).map_err(|failure| *failure) {
            Err(NotRewritten { error: CommitError::NoRoom, .. }) => Err(CommitError::NoRoom),
            Err(NotRewritten { parts, error }) => {
                // The others do not wait for these.
                self.failures.note(parts, &error);
                Ok(true)
            }
            Ok(()) => Ok(true),
        }
    }

    fn closed(&self) -> CommitError {
        CommitError::Unavailable(self.shared.failure())
    }

    fn send(&self, message: Message) -> Result<(), CommitError> {
        self.writer.send(message).map_err(|_| self.closed())
    }

    /// Has something committed, and waits until it is.
    pub fn answer_of(&self, work: Work) -> Result<Receipt, CommitError> {
        let (answer, answered) = oneshot::channel();
        self.send(Message::Commit(Job { work, answer, since: Instant::now(), permit: None }))?;
        answered.blocking_recv().unwrap_or_else(|_| Err(self.closed()))
    }

    /// Has a checkpoint taken, of a new part where `ends_part`, and waits until nothing older is left.
    pub fn renew(&self, ends_part: bool) -> Result<Renewed, CommitError> {
        let (answer, answered) = oneshot::channel();
        self.send(Message::Renew(Renew { ends_part, answer }))?;
        answered.blocking_recv().unwrap_or_else(|_| Err(self.closed()))
    }

    /// Puts what is left of neighbours in their place, and removes them.
    pub fn rewrite(&mut self, view: Arc<View>, old: Vec<Arc<Part>>) -> Result<(), Box<NotRewritten>> {
        let shared = self.shared;
        let before: u64 = old.iter().map(|part| part.disk_bytes()).sum();
        let names: Vec<PartName> = old.iter().map(|part| part.name).collect();
        let failed = |error| Box::new(NotRewritten { parts: names.clone(), error });
        let rewrite = Rewrite::new(shared, (&*view, &old[..]), &mut self.pace);
        let mut rewrite = rewrite.map_err(|error| failed(not_rewritten(error)))?;
        let name = rewrite.name;
        rewrite.pace.begin();
        let new = rewrite.run();
        rewrite.pace.end();
        let new = new.map_err(|error| {
            give_up(shared, name);
            let parts = rewrite.at_fault.map_or_else(|| names.clone(), |part| vec![part]);
            Box::new(NotRewritten { parts, error: not_rewritten(error) })
        })?;
        drop(rewrite);
        let after = new.as_ref().map_or(0, |part| part.disk_bytes());
        self.answer_of(Work::Replace(Replacement { old: old.clone(), new })).map_err(|error| {
            if error == CommitError::NoRoom {
                give_up(shared, name);
            }
            failed(error)
        })?;
        shared.reclaimed_bytes.fetch_add(before.saturating_sub(after), Ordering::Relaxed);
        shared.rewritten_bytes.fetch_add(after, Ordering::Relaxed);
        drop(view);
        let mut removed = Ok(());
        for part in old {
            let name = part.name;
            // Files that somebody still has must stay open when they are removed.
            drop(part);
            // Where that fails, the next open does it; the others go now.
            removed = removed.and(part::remove(&*shared.disk, &shared.options.dir, name));
        }
        removed.map_err(|error| failed(not_rewritten(error)))
    }
}

/// Removes what there is of a part that is not put in the place of others: on a full disk, it must not take the room that
/// it was to make. What cannot be removed now is removed at the next open.
fn give_up(shared: &Shared, name: PartName) {
    let (disk, dir) = (&*shared.disk, &shared.options.dir);
    let _ = remove_if_there(disk, &part_path(dir, name).with_extension("tmp"));
    let _ = part::remove(disk, dir, name);
}

/// What an I/O error means for who waits.
fn not_rewritten(error: io::Error) -> CommitError {
    refusal("parts of the journal cannot be rewritten yet", &error)
}

/// The rewriting of some neighbours.
struct Rewrite<'a, 's> {
    shared: &'a Shared,
    pace: &'a mut Pace<'s>,
    view: &'a View,
    old: &'a [Arc<Part>],
    windows: HashMap<u32, u64>,
    now_ms: u64,
    name: PartName,
    last_recorded_ts: u64,
    file: Option<Arc<dyn crate::disk::DiskFile>>,
    end: u32,
    buffer: Vec<u8>,
    items: u32,
    index: ActiveIndex,
    secret: Secret,
    /// How much was written since it was last synced.
    unsynced: usize,
    /// The part that could not be read.
    at_fault: Option<PartName>,
}

impl<'a, 's> Rewrite<'a, 's> {
    fn new(
        shared: &'a Shared,
        (view, old): (&'a View, &'a [Arc<Part>]),
        pace: &'a mut Pace<'s>,
    ) -> io::Result<Self> {
        let last = old.last().ok_or_else(|| io::Error::other("there is nothing to rewrite"))?;
        if old.iter().any(|part| part.sealed_end().is_none()) {
            // Nothing would be found of what it holds.
            return Err(io::Error::other("a part without an index on disk cannot be rewritten"));
        }
        let recorded = |part: &Arc<Part>| match &*part.index() {
            Index::Sealed(sidecar) => sidecar.last_recorded_ts,
            Index::Active(_) => 0,
        };
        let mut buffer = Vec::new();
        batch::start(&mut buffer);
        Ok(Self {
            shared,
            pace,
            view,
            old,
            windows: windows(view),
            now_ms: shared.clock.now_ms(),
            // The last number, so that the order of parts stays that of their events.
            name: PartName { rewrite: last.name.rewrite + 1, ..last.name },
            last_recorded_ts: old.iter().map(recorded).max().unwrap_or(0),
            file: None,
            end: PART_HEAD as u32,
            buffer,
            items: 0,
            index: ActiveIndex::default(),
            secret: Secret::new(),
            unsynced: 0,
            at_fault: None,
        })
    }

    /// Writes what is left of the parts, durably; `None` where that is nothing.
    fn run(&mut self) -> io::Result<Option<Arc<Part>>> {
        let (shared, view, old) = (self.shared, self.view, self.old);
        // Of a part of which nothing is needed, nothing has to be read, whatever has become of it.
        let needed: Vec<&Arc<Part>> = old.iter().filter(|part| !is_over(shared, view, part)).collect();
        let mut partitions = BTreeSet::new();
        for part in &needed {
            if let Index::Sealed(sidecar) = &*part.index() {
                partitions.extend(sidecar.runs().map(|(partition, _)| partition));
            }
        }
        for partition in partitions {
            for part in &needed {
                self.take_run(part, partition)?;
            }
        }
        for part in &needed {
            self.take_gone(part)?;
        }
        self.finish()
    }

    /// Notes which part it is that cannot be read.
    fn read<T>(&mut self, part: &Part, read: io::Result<T>) -> io::Result<T> {
        if read.is_err() {
            self.at_fault = Some(part.name);
        }
        read
    }

    /// Takes over what is needed of a partition's events in a part.
    fn take_run(&mut self, part: &Part, partition: PartitionRef) -> io::Result<()> {
        let is_topic_there = self.windows.contains_key(&partition.topic);
        let mut next = 0;
        loop {
            let places = self.read(part, part.places(partition, next, PLACES))?;
            let Some(last) = places.last() else { return Ok(()) };
            next = last.offset + 1;
            let mut left = &places[..];
            while !left.is_empty() {
                let items = self.read(part, fetch::items(part, left, READ_BYTES))?;
                self.pace.spend(items.iter().map(|item| item.len() as u64).sum())?;
                let (read, rest) = left.split_at(items.len());
                for (EventAt { offset, .. }, item) in read.iter().zip(&items) {
                    if is_topic_there && self.view.is_kept(partition, *offset) {
                        self.keep(item)?;
                    } else {
                        self.remember(item)?;
                    }
                }
                left = rest;
            }
        }
    }

    /// Takes over what is left of events that were given up before. That is in parts that were rewritten, and in those that were
    /// filled with what another store held: they have more ids than events.
    fn take_gone(&mut self, part: &Part) -> io::Result<()> {
        let entries = match &*part.index() {
            Index::Sealed(sidecar) if sidecar.ids() > sidecar.runs().map(|(_, run)| run.count).sum() => {
                let [ids, _] = self.read(part, sidecar.all_entries())?;
                ids
            }
            _ => return Ok(()),
        };
        let places: BTreeSet<u32> = entries.into_iter().map(|(_, at)| at).collect();
        for at in places {
            let item = self.read(part, part.item(at))?;
            self.pace.spend(item.len() as u64)?;
            if item[8] != EVENT {
                self.remember(&item)?;
            }
        }
        Ok(())
    }

    fn keep(&mut self, item: &[u8]) -> io::Result<()> {
        let damaged = || crate::paged::damaged("an event of the journal cannot be read".into());
        let head = record::event_head(item).ok_or_else(damaged)?;
        let at = self.put(|out| {
            out.extend_from_slice(item);
            Ok(())
        })?;
        let key_hash = record::event_key(item).map(|key| key_hash(head.partition.topic, key));
        let bytes = u32::try_from(item.len()).unwrap_or(u32::MAX);
        self.index.push(Entry { head, key_hash, at, bytes });
        self.index.keep();
        Ok(())
    }

    /// Keeps what recognises the id of an event that is given up, as long as its topic asks for it.
    fn remember(&mut self, item: &[u8]) -> io::Result<()> {
        let Some(head) = record::event_head(item) else { return Ok(()) };
        let Some(window) = self.windows.get(&head.partition.topic) else { return Ok(()) };
        if head.hub_id || head.recorded_ts < self.now_ms.saturating_sub(*window) {
            return Ok(());
        }
        let at = self.put(|out| match item[8] {
            EVENT => record::write_gone(out, item).map_err(io::Error::from),
            _ => {
                out.extend_from_slice(item);
                Ok(())
            }
        })?;
        self.index.push_gone(&head, at);
        self.index.keep();
        Ok(())
    }

    /// Appends an item to the batch; where it is.
    fn put(&mut self, fill: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> io::Result<u32> {
        if self.buffer.len() >= BATCH_BYTES {
            self.write_batch()?;
        }
        let too_long = || io::Error::other("the rewritten part would be too long");
        let start = u32::try_from(self.buffer.len()).map_err(|_| too_long())?;
        let at = self.end.checked_add(start).ok_or_else(too_long)?;
        fill(&mut self.buffer)?;
        self.items += 1;
        Ok(at)
    }

    fn write_batch(&mut self) -> io::Result<()> {
        if self.items == 0 {
            return Ok(());
        }
        let pos = Pos { part: self.name.number, at: self.end };
        let head = BatchHead {
            len: 0,
            items: self.items,
            pos,
            epoch: 0,
            flushed_to: pos,
            sequence: 0,
            recorded_ts: self.last_recorded_ts,
        };
        let head = batch::finish(&mut self.buffer, head, Some(self.secret))?;
        let file = match &self.file {
            Some(file) => file.clone(),
            None => {
                let path = part_path(&self.shared.options.dir, self.name).with_extension("tmp");
                let file = self.shared.cleaning_disk.create(&path)?;
                self.file = Some(file.clone());
                file
            }
        };
        file.write_at(&self.buffer, u64::from(self.end))?;
        self.unsynced += self.buffer.len();
        if self.unsynced >= SYNC_BYTES {
            // Flushes of the journal would wait for all of it.
            file.sync()?;
            self.unsynced = 0;
        }
        self.pace.spend(self.buffer.len() as u64)?;
        self.end = head.end().ok_or_else(|| io::Error::other("the rewritten part would be too long"))?.at;
        batch::start(&mut self.buffer);
        debug_assert_eq!(self.buffer.len(), BATCH_HEAD);
        self.items = 0;
        Ok(())
    }

    fn finish(&mut self) -> io::Result<Option<Arc<Part>>> {
        self.write_batch()?;
        let Some(file) = self.file.take() else { return Ok(None) };
        let (disk, dir) = (&self.shared.cleaning_disk, &self.shared.options.dir);
        let end = Pos { part: self.name.number, at: self.end };
        let head = PartHead { name: self.name, epoch: 0, prev_end: end, secret: Some(self.secret) };
        file.write_at(&head.encode(), 0)?;
        file.sync()?;
        let path = part_path(dir, self.name);
        disk.rename(&path.with_extension("tmp"), &path)?;
        disk.sync_dir(folder_of(&path))?;
        let facts = PartFacts { name: self.name, end: self.end, last_recorded_ts: self.last_recorded_ts };
        let index = index_path(dir, self.name);
        sidecar::write(disk, &index, &self.index, facts)?;
        let sidecar = Sidecar::open(disk.open_to_read(&index)?, self.name)?;
        self.pace.spend(sidecar.file().pages() * crate::paged::PAGE as u64)?;
        file.let_go();
        Ok(Some(Arc::new(Part::sealed(self.name, file, sidecar))))
    }
}
