//! What the writer, the housekeeper and all readers share.
//!
//! The view is replaced as a whole, and only by what was flushed as its topics require, so whoever reads sees commits whole and
//! nothing that could be lost. Waiters are woken after that. The first failure stays: it is what everybody is told from then on.

use crate::background::pace::Waits;
use crate::disk::Disk;
use crate::reserve::{CleaningDisk, Reserve};
use crate::state::checkpoints::Newest;
use crate::state::rows::Target;
use crate::state::view::View;
use crate::store::DiskOptions;
use parking_lot::{Mutex, RwLock};
use prombus_core::{ChangedSet, Clock, CommitError, Histogram, Wakes};
use prombus_rows::StepLimits;
use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Callers that request a list usually do so again within this time.
const ASKED_LATELY: Duration = Duration::from_secs(10);

/// A step of building an index processes about this many bytes of documents at most.
const STEP_BYTES: usize = 1 << 20;

/// The shared state of an open store.
pub struct Shared {
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// The same for what makes room, or is needed for that: it may use what is kept back.
    pub cleaning_disk: CleaningDisk,
    /// The options.
    pub options: DiskOptions,
    /// Where the time comes from.
    pub clock: Arc<dyn Clock>,
    disk_full: AtomicBool,
    /// How long flushes took.
    pub flushes: Arc<Histogram>,
    /// How long commits take beside work in the background, and without it.
    pub waits: Waits,
    /// Those who are waiting for commits.
    pub wakes: Wakes,
    view: RwLock<Arc<View>>,
    failed: OnceLock<String>,
    next_table: AtomicU64,
    /// The newest checkpoint.
    pub newest: Mutex<Option<Arc<Newest>>>,
    /// The part that the oldest checkpoint is of: what those before it changed is in all checkpoints.
    pub checkpointed_part: AtomicU32,
    /// How much space was given back since the store was opened.
    pub reclaimed_bytes: AtomicU64,
    /// How much was written for that.
    pub rewritten_bytes: AtomicU64,
    /// What of the journal is dead, as of when the rewriter last looked.
    pub dead_bytes: AtomicU64,
    /// Whether space of dead events cannot be given back.
    pub is_reclaiming_stuck: AtomicBool,
    /// Wakes the rewriter.
    rewriter: Mutex<Option<SyncSender<()>>>,
    /// Who waits until what was forgotten is erased; absent once nobody does that any more.
    erasures: Mutex<Option<Vec<Erasure>>>,
    /// Whether a checkpoint names keys that are to be erased.
    pub has_names: AtomicBool,
    /// Whether the store closes, so that nothing long is begun or gone on with.
    pub closing: AtomicBool,
    /// Whether index rows are being made.
    pub is_preparing: AtomicBool,
    opened: Instant,
    /// When a list was last asked for, in milliseconds after the store was opened; 0 for never.
    asked_ms: AtomicU64,
    /// Keeps other processes out for as long as anyone works here.
    _lock: Box<dyn Any + Send + Sync>,
}

/// Who is told when what was forgotten is erased.
pub type Erasure = oneshot::Sender<Result<(), CommitError>>;

/// What a store that was just opened has.
pub struct Opened {
    /// The state.
    pub view: View,
    /// The number of the next table.
    pub next_table: u64,
    /// The part that the oldest checkpoint is of; 0 where there is none.
    pub checkpointed_part: u32,
    /// Whether a checkpoint names keys that are to be erased.
    pub has_names: bool,
    /// Wakes the rewriter.
    pub rewriter: SyncSender<()>,
    /// Keeps other processes out.
    pub lock: Box<dyn Any + Send + Sync>,
}

impl Shared {
    /// The state of a store that was just opened.
    pub fn new(disk: Arc<dyn Disk>, options: DiskOptions, opened: Opened) -> Self {
        let Opened { view, next_table, checkpointed_part, has_names, rewriter, lock } = opened;
        let reserve = Arc::new(Reserve::open(disk.clone(), &options.dir));
        Self {
            disk,
            cleaning_disk: CleaningDisk(reserve),
            clock: options.clock.clone(),
            options,
            disk_full: AtomicBool::new(false),
            flushes: Arc::default(),
            waits: Waits::default(),
            wakes: Wakes::new(view.sequence),
            view: RwLock::new(Arc::new(view)),
            failed: OnceLock::new(),
            next_table: AtomicU64::new(next_table),
            newest: Mutex::new(None),
            checkpointed_part: AtomicU32::new(checkpointed_part),
            reclaimed_bytes: AtomicU64::new(0),
            rewritten_bytes: AtomicU64::new(0),
            dead_bytes: AtomicU64::new(0),
            is_reclaiming_stuck: AtomicBool::new(false),
            rewriter: Mutex::new(Some(rewriter)),
            erasures: Mutex::new(Some(Vec::new())),
            has_names: AtomicBool::new(has_names),
            closing: AtomicBool::new(false),
            is_preparing: AtomicBool::new(false),
            opened: Instant::now(),
            asked_ms: AtomicU64::new(0),
            _lock: lock,
        }
    }

    /// Notes that a list is asked for.
    pub fn note_list(&self) {
        let now = self.opened.elapsed().as_millis() as u64;
        self.asked_ms.store(now.max(1), Ordering::Relaxed);
    }

    /// Whether lists are asked for at this time.
    pub fn lists_are_asked_for(&self) -> bool {
        let asked = self.asked_ms.load(Ordering::Relaxed);
        asked > 0 && self.opened.elapsed() < Duration::from_millis(asked) + ASKED_LATELY
    }

    /// Has the rewriter check whether there is space to be given back.
    pub fn wake_rewriter(&self) {
        // Where it was woken already, it sees this too.
        let _ = self.rewriter.lock().as_ref().map(|rewriter| rewriter.try_send(()));
    }

    /// Whether anything of what was forgotten may still be there.
    pub fn has_forgotten(&self) -> bool {
        self.has_names.load(Ordering::Relaxed) || !self.view().forgotten.is_empty()
    }

    /// Has what was forgotten erased. Where nobody does that any more, `erasure` is dropped.
    pub fn ask_to_erase(&self, erasure: Erasure) {
        if let Some(waiting) = &mut *self.erasures.lock() {
            waiting.push(erasure);
        }
        self.wake_rewriter();
    }

    /// Those who wait for it, in one go.
    pub fn take_erasures(&self) -> Vec<Erasure> {
        self.erasures.lock().as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// From now on nobody erases anything.
    pub fn end_erasures(&self) {
        drop(self.erasures.lock().take());
    }

    /// Nothing long is begun or gone on with from now on.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
        drop(self.rewriter.lock().take());
    }

    /// The last visible state.
    pub fn view(&self) -> Arc<View> {
        self.view.read().clone()
    }

    /// Makes a state visible, and wakes whoever waits for what was changed since the last one.
    pub fn show(&self, view: View, changed_set: ChangedSet) {
        let sequence = view.sequence;
        *self.view.write() = Arc::new(view);
        self.wakes.wake(sequence, &changed_set);
    }

    /// Whether events are refused because the disk is full.
    pub fn is_disk_full(&self) -> bool {
        self.disk_full.load(Ordering::Relaxed)
    }

    /// Records whether events are refused because the disk is full; changes are logged.
    pub fn set_disk_full(&self, full: bool) {
        if self.disk_full.swap(full, Ordering::Relaxed) == full {
            return;
        }
        match full {
            true => tracing::error!("the disk is full: refusing events until there is space again"),
            false => tracing::info!("there is disk space again: accepting events"),
        }
    }

    /// Keeps room back for cleaning, as far as there is some.
    pub fn keep_room_back(&self) {
        let journal = self.view().parts.iter().map(|part| part.disk_bytes()).sum::<u64>();
        let most = self.options.cleaning_room().min(journal);
        if let Err(error) = self.cleaning_disk.0.top_up(journal, most) {
            tracing::debug!(%error, "failed to reserve disk space for cleaning");
        }
    }

    /// Records why space of dead events cannot be given back, if so; changes are logged.
    pub fn set_reclaiming_stuck(&self, why: Option<&CommitError>) {
        if self.is_reclaiming_stuck.swap(why.is_some(), Ordering::Relaxed) == why.is_some() {
            return;
        }
        match why {
            Some(CommitError::NoRoom) => tracing::error!(
                "the disk is so full that not even the space of removed events can be reclaimed: free some space"
            ),
            Some(error) => {
                tracing::warn!(%error, "failed to reclaim the space of removed events; will retry")
            }
            None => tracing::info!("reclaiming the space of removed events again"),
        }
    }

    /// How much one step under construction of an index scans.
    pub fn step_limits(&self) -> StepLimits {
        StepLimits { documents: self.options.index_step.max(1), bytes: STEP_BYTES }
    }

    /// Where the next table goes on a disk, under a number that no other has.
    pub fn new_table<'a>(&'a self, disk: &'a dyn Disk) -> Target<'a> {
        let number = self.next_table.fetch_add(1, Ordering::Relaxed);
        Target { disk, dir: &self.options.dir, number }
    }

    /// Why the store accepts no commits, if so.
    pub fn failed(&self) -> Option<String> {
        self.failed.get().cloned()
    }

    /// Why there is no answer to a commit, or to a question, once the writer is gone.
    pub fn failure(&self) -> String {
        self.failed().unwrap_or_else(|| "the store is closed".to_owned())
    }

    /// Stops accepting commits; the first reason counts.
    pub fn fail(&self, reason: &str) {
        if self.failed.set(reason.to_owned()).is_ok() && reason != "the store is closed" {
            tracing::error!(reason, "the store no longer accepts commits");
        }
    }
}
