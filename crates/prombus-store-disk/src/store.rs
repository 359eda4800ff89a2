//! The store: opening it, the ports, and closing it.
//!
//! Commits queue up in the order in which they are enqueued, and one thread writes them, so that order is fixed here and
//! nowhere else. Reads take the view as it is and hold up nobody; what may have to come from the disk is read off the runtime.
//! Once the writer has failed, no more commits are taken until the store is opened again; reads go on.

use crate::background::housekeeper::{self, Chore, Chores, Housekeeper, MAX_WAITING};
use crate::background::{builder, rewriter};
use crate::backup::held::HeldFiles;
use crate::disk::{Disk, RealDisk};
use crate::handles::{self, FewHandles};
use crate::read::read_view::{Among, ReadView};
use crate::recovery::recover::{self, OpenError, Opening, Recovered, at_file};
use crate::shared::{Opened, Shared};
use crate::state::rows::Rows;
use crate::write::writer::{Handle, Horizon, Job, Message, Start, Work, Writer};
use async_trait::async_trait;
use parking_lot::Mutex;
use prombus_core::commit::{DEFAULT_RESULT_BYTES, MAX_RESULT_BYTES};
use prombus_core::{
    Clock, CollectionState, Commit, CommitError, Copies, CopyError, Cursor, CursorKey, Document, Documents,
    Event, EventLog, Find, FoundDocuments, HeldCopy, HistoryRequest, IdMaker, Kept, Offset, Page, Partition,
    PreviousRequest, ReadError, ReadRequest, ScanRequest, Sequence, StoreStatus, SystemClock, Ticket,
    TopicName, TopicRef, TopicState, TsRequest, Watched,
};
use rustix::process::Resource;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, oneshot};
use uuid::Uuid;

/// Maximum size of the queue of commits, in KiB; beyond that, callers wait.
const QUEUE_KIB: u32 = 64 << 10;
/// The smallest part that makes sense.
const MIN_PART_BYTES: u64 = 1 << 10;
/// Places in a part are 32 bits wide, and a commit that no part has room for gets one of its own, which may go beyond
/// its size: see [`MAX_BATCH`](crate::journal::batch::MAX_BATCH).
const MAX_PART_BYTES: u64 = 1 << 30;
/// No more room than this is reserved ahead.
const MAX_RESERVE: u64 = 8 << 20;
/// No more room than this is kept back for acks while the disk is full, and again for deletes.
const MAX_HEADROOM: u64 = 256 << 10;
/// What is read and written a second to give space back, unless somebody says otherwise.
const REWRITE_BYTES_PER_S: u64 = 128 << 20;
/// What a commit counts at least, in KiB, so that many small ones are bounded too.
const LEAST_KIB: u32 = 1;

/// Options of a store.
#[derive(Clone)]
pub struct DiskOptions {
    /// The data folder.
    pub dir: PathBuf,
    /// The size of a part of the journal.
    pub part_bytes: u64,
    /// Changed rows of documents and indexes are put into a table when they take more memory than this, in bytes.
    /// About three times as much is used while one is written.
    pub rows_in_memory: usize,
    /// An index over more documents than this is built in the background, this many at a time.
    pub index_step: usize,
    /// An open that takes longer than this is followed by a checkpoint, so that the next one does not.
    pub slow_open: Duration,
    /// What a commit may make, in bytes: see [`ResultBytes`](prombus_core::ResultBytes).
    pub result_bytes: usize,
    /// Whether parts of the journal that are mostly dead are rewritten, and those that are not needed dropped.
    pub reclaims: bool,
    /// How many bytes a second are read and written at most to give space back and to erase what was forgotten; 0 for no
    /// limit. There is none while the disk is full.
    pub rewrite_bytes_per_s: u64,
    /// How many files of the store are open at a time, beside the few that are written. Others are opened on demand.
    pub open_files: usize,
    /// Where the time comes from.
    pub clock: Arc<dyn Clock>,
    /// The seed for ids.
    pub seed: u64,
    /// The name of the store that the folder is filled from with [`Transfer`](prombus_core::Transfer); `None` for one that is used.
    /// It is the same name for as long as the folder is filled.
    pub filled_from: Option<String>,
}

impl DiskOptions {
    /// The default options for a folder.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            part_bytes: 128 << 20,
            rows_in_memory: 64 << 20,
            index_step: 256,
            slow_open: Duration::from_secs(1),
            result_bytes: DEFAULT_RESULT_BYTES,
            reclaims: true,
            rewrite_bytes_per_s: REWRITE_BYTES_PER_S,
            open_files: handles::share_of(rustix::process::getrlimit(Resource::Nofile).current),
            clock: Arc::new(SystemClock),
            seed: fastrand::u64(..),
            filled_from: None,
        }
    }
}

impl DiskOptions {
    /// Room is reserved in steps of this, so that a full disk shows before anything is written.
    pub(crate) fn reserve_step(&self) -> u64 {
        self.part_bytes.min(MAX_RESERVE)
    }

    /// Space that events may not use, so that acks and deletes still work while the disk is full.
    pub(crate) fn headroom(&self) -> u64 {
        2 * self.headroom_for_deletes()
    }

    /// The part of it that acks may not use either, so that deletes always fit. Small parts keep back nearly as much as
    /// large ones: an ack takes the same everywhere.
    pub(crate) fn headroom_for_deletes(&self) -> u64 {
        MAX_HEADROOM.min(self.part_bytes / 2)
    }

    /// Space that only cleaning may use, so that it can make room on a full disk: for what is left of a part that is
    /// mostly dead, and its index.
    pub(crate) fn cleaning_room(&self) -> u64 {
        self.part_bytes / 4 * 3
    }
}

/// The embedded store.
pub struct DiskStore {
    shared: Arc<Shared>,
    queue: Mutex<Option<Sender<Message>>>,
    room: Arc<Semaphore>,
    threads: [Handle; 4],
}

impl DiskStore {
    /// Opens a data folder, or creates it. Blocks while it reads.
    pub fn open(options: DiskOptions) -> Result<Arc<Self>, OpenError> {
        Self::open_on(Arc::new(RealDisk::new()), options)
    }

    /// Opens a data folder on the given disk.
    pub fn open_on(disk: Arc<dyn Disk>, mut options: DiskOptions) -> Result<Arc<Self>, OpenError> {
        options.part_bytes = options.part_bytes.clamp(MIN_PART_BYTES, MAX_PART_BYTES);
        options.result_bytes = options.result_bytes.min(MAX_RESULT_BYTES);
        let disk: Arc<dyn Disk> = Arc::new(FewHandles::new(disk, options.open_files));
        let dir = options.dir.clone();
        let opening = Opening {
            reserve: options.reserve_step(),
            rows_in_memory: options.rows_in_memory,
            filled_from: options.filled_from.clone(),
        };
        let began = Instant::now();
        let Recovered { view, epoch, unsealed, kept, next_table, lock } =
            recover::open(&*disk, &dir, opening)?;
        let checkpoint_is_due = began.elapsed() > options.slow_open;
        let ids = IdMaker::new(options.seed);
        let (rewriter, rewriting) = mpsc::sync_channel(1);
        let (checkpointed_part, has_names) = (kept.oldest_part(), kept.have_names());
        let opened = Opened { view, next_table, checkpointed_part, has_names, rewriter, lock };
        let shared = Arc::new(Shared::new(disk, options, opened));
        shared.keep_room_back();
        let (queue, commits) = mpsc::channel();
        let (chores, housekeeping) = mpsc::sync_channel(MAX_WAITING);
        let start = housekeeper::Start {
            shared: shared.clone(),
            writer: queue.clone(),
            kept,
            chores: chores.clone(),
        };
        let (wake, woken) = mpsc::sync_channel(1);
        let writing = Start {
            shared: shared.clone(),
            queue: commits,
            chores: Chores(chores),
            builder: wake,
            epoch,
            checkpoint_is_due,
            ids,
        };
        // Before any thread runs: nobody would wait for those that were begun by an open that fails.
        let writer = Writer::new(writing).map_err(at_file(&dir))?;
        let housekeeper = Housekeeper::new(start).map_err(at_file(&dir))?;
        let first: Vec<Chore> =
            unsealed.into_iter().map(|(part, facts)| Chore::Seal { part, facts }).collect();
        let alarm = PanicAlarm { shared: shared.clone(), writer: queue.clone() };
        let housekeeper = spawn("prombus-keeper", move || {
            let _alarm = alarm;
            housekeeper.run(first, housekeeping);
        })
        .map_err(at_file(&dir))?;
        let builder = {
            let (shared, writer) = (shared.clone(), queue.clone());
            spawn("prombus-builder", move || builder::run(&shared, &writer, &woken)).map_err(at_file(&dir))?
        };
        let rewriter = {
            let (shared, writer) = (shared.clone(), queue.clone());
            spawn("prombus-rewriter", move || rewriter::run(&shared, &writer, &rewriting))
                .map_err(at_file(&dir))?
        };
        shared.wake_rewriter();
        let guard = Guard(shared.clone());
        let writer = spawn("prombus-writer", move || {
            // Moved in, so that it is dropped however the thread ends.
            let _guard = guard;
            writer.run();
        })
        .map_err(at_file(&dir))?;
        let threads = [writer, housekeeper, builder, rewriter].map(|thread| Mutex::new(Some(thread)));
        let room = Arc::new(Semaphore::new(QUEUE_KIB as usize));
        Ok(Arc::new(Self { shared, queue: Mutex::new(Some(queue)), room, threads }))
    }

    /// The data folder.
    pub fn dir(&self) -> &Path {
        &self.shared.options.dir
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    fn read_view(&self) -> ReadView {
        ReadView(self.shared.view())
    }

    /// Scans the rows of a collection, if there is one of that name: on its own thread where that reads tables or may
    /// take long, so that other tasks go on meanwhile. What was begun there is done to its end, also where nobody waits
    /// for it any more.
    async fn scan_rows<T: Default + Send + 'static>(
        &self,
        collection: &str,
        look: impl FnOnce(&Rows, &CollectionState) -> Result<T, ReadError> + Send + 'static,
    ) -> Result<T, ReadError> {
        let view = self.shared.view();
        let Some(state) = view.collections.get(collection).cloned() else { return Ok(T::default()) };
        if view.rows.are_few_and_in_memory() {
            return look(&view.rows, &state);
        }
        on_blocking_thread(move || look(&view.rows, &state)).await
    }

    /// Reads events: on a thread of its own where that reaches back to parts that are full, because those may have to
    /// come from the disk first, and a slow one must not keep other tasks waiting.
    async fn read_events<T: Send + 'static>(
        &self,
        reaches_back: impl FnOnce(&ReadView) -> bool,
        look: impl FnOnce(&ReadView) -> Result<T, ReadError> + Send + 'static,
    ) -> Result<T, ReadError> {
        let view = self.read_view();
        if reaches_back(&view) { on_blocking_thread(move || look(&view)).await } else { look(&view) }
    }

    /// Looks for a single event: at once where its index is in memory. Only what is not there is looked for in full parts,
    /// on a thread of its own: there may be many of them, and a look into each index may be a read from the disk.
    async fn look_up(
        &self,
        look: impl Fn(&ReadView, Among) -> Result<Option<Event>, ReadError> + Send + 'static,
    ) -> Result<Option<Event>, ReadError> {
        let view = self.read_view();
        match look(&view, Among::Open)? {
            None if view.has_full_parts() => on_blocking_thread(move || look(&view, Among::Full)).await,
            found => Ok(found),
        }
    }

    fn unavailable(&self) -> CommitError {
        CommitError::Unavailable(self.shared.failure())
    }

    /// Sends the writer something; whether it is still there to take it. One that has stopped has answered all, so who
    /// gets no answer although it was there knows that it panicked.
    pub(crate) fn send(&self, message: Message) -> bool {
        self.queue.lock().as_ref().is_some_and(|queue| queue.send(message).is_ok())
    }

    /// Notifies the writer, and through it the others, that nothing more follows.
    fn send_stop(&self) {
        if let Some(queue) = self.queue.lock().take() {
            // A writer that is gone needs not be told.
            let _ = queue.send(Message::Stop);
        }
        self.shared.close();
    }

    /// Stops all threads. The writer flushes everything before it ends.
    fn stop(&self) {
        self.send_stop();
        for thread in &self.threads {
            if let Some(thread) = thread.lock().take() {
                // A thread that panicked has said so itself.
                let _ = thread.join();
            }
        }
    }
}

/// Reads on a thread that may block, to the end even if nobody waits for it any more.
pub(crate) async fn on_blocking_thread<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, ReadError> + Send + 'static,
) -> Result<T, ReadError> {
    let read = tokio::task::spawn_blocking(read).await;
    read.unwrap_or_else(|error| Err(ReadError::Unavailable(error.to_string())))
}

/// Says that the store accepts no more commits when the writer is gone, for whatever reason.
struct Guard(Arc<Shared>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.fail("the writer has stopped; restart the hub");
    }
}

/// Says so when the housekeeper panics. Nothing is put away then, and a writer that waits for it must not wait forever.
struct PanicAlarm {
    shared: Arc<Shared>,
    writer: mpsc::Sender<Message>,
}

impl Drop for PanicAlarm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            const REASON: &str = "the housekeeper has panicked; restart the hub";
            self.shared.fail(REASON);
            // A writer that is gone needs not be told.
            let _ = self.writer.send(Message::Stuck(CommitError::Unavailable(REASON.into())));
        }
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<std::thread::JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run)
}

impl Drop for DiskStore {
    fn drop(&mut self) {
        self.stop();
    }
}

#[async_trait]
impl EventLog for DiskStore {
    async fn enqueue(&self, commit: Arc<Commit>) -> Result<Ticket, CommitError> {
        let share = u32::try_from(commit.size() / 1024).unwrap_or(QUEUE_KIB).clamp(LEAST_KIB, QUEUE_KIB);
        let permit = self.room.clone().acquire_many_owned(share).await.map_err(|_| self.unavailable())?;
        let (answer, answered) = oneshot::channel();
        let (work, since) = (Work::Commit(commit), Instant::now());
        if !self.send(Message::Commit(Job { work, answer, since, permit: Some(permit) })) {
            return Err(self.unavailable());
        }
        let shared = self.shared.clone();
        Ok(Ticket::new(async move {
            answered.await.unwrap_or_else(|_| Err(CommitError::Unknown(shared.failure())))
        }))
    }

    async fn read(&self, request: ReadRequest) -> Result<Page, ReadError> {
        let (topic, at) = (request.topic.clone(), (request.partition, request.from));
        self.read_events(|view| view.reaches_back(&topic, at), move |view| view.read(&request)).await
    }

    async fn kept(&self, topic: &TopicRef, partition: Partition) -> Result<Kept, ReadError> {
        self.read_view().kept(topic, partition)
    }

    async fn offset_at(&self, request: TsRequest) -> Result<Offset, ReadError> {
        self.read_events(ReadView::has_full_parts, move |view| view.offset_at(&request)).await
    }

    async fn by_id(&self, topic: &TopicRef, id: Uuid) -> Result<Option<Event>, ReadError> {
        let topic = topic.clone();
        self.look_up(move |view, among| view.by_id(&topic, id, among)).await
    }

    async fn latest_by_key(&self, topic: &TopicRef, key: &str) -> Result<Option<Event>, ReadError> {
        let (topic, key) = (topic.clone(), key.to_owned());
        self.look_up(move |view, among| view.latest_by_key(&topic, &key, among)).await
    }

    async fn previous_by_key(&self, request: PreviousRequest) -> Result<Vec<Option<Event>>, ReadError> {
        self.read_events(ReadView::has_full_parts, move |view| view.previous_by_key(&request)).await
    }

    async fn history(&self, request: HistoryRequest) -> Result<Vec<Event>, ReadError> {
        self.read_events(ReadView::has_full_parts, move |view| view.history(&request)).await
    }

    async fn erase(&self) -> Result<(), CommitError> {
        if !self.shared.has_forgotten() {
            return Ok(());
        }
        let (answer, answered) = oneshot::channel();
        self.shared.ask_to_erase(answer);
        answered.await.unwrap_or_else(|_| Err(self.unavailable()))
    }

    async fn advance_horizon(&self, topic: &TopicName, past: u64) -> Result<u64, ReadError> {
        let view = self.shared.view();
        if !view.topics.contains_key(topic) {
            return Err(ReadError::TopicNotFound(topic.clone()));
        }
        if view.last_recorded_ts > past {
            return Ok(view.last_recorded_ts);
        }
        let (answer, answered) = oneshot::channel();
        let unavailable = |_| ReadError::Unavailable(self.shared.failure());
        self.send(Message::Horizon(Horizon { past, answer }));
        answered.await.map_err(unavailable)
    }

    async fn changed(&self, of: &Watched, after: Sequence) -> Sequence {
        self.shared.wakes.changed(of, after).await
    }

    async fn topic(&self, name: &TopicName) -> Result<Option<TopicState>, ReadError> {
        Ok(self.shared.view().topics.get(name).map(|topic| (**topic).clone()))
    }

    async fn topics(&self) -> Result<Vec<TopicState>, ReadError> {
        Ok(self.shared.view().topics.values().map(|topic| (**topic).clone()).collect())
    }

    async fn cursor(&self, key: &CursorKey) -> Result<Option<Cursor>, ReadError> {
        Ok(self.shared.view().cursors.get(key).map(|cursor| (**cursor).clone()))
    }

    async fn readers(&self, topic: &TopicName, prefix: &str) -> Result<Vec<String>, ReadError> {
        let view = self.shared.view();
        let first = CursorKey { topic: topic.clone(), reader: prefix.to_owned(), partition: Partition(0) };
        let keys = view.cursors.range(first..).map(|(key, _)| key);
        let is_meant = |key: &&CursorKey| key.topic == *topic && key.reader.starts_with(prefix);
        let mut readers: Vec<String> = keys.take_while(is_meant).map(|key| key.reader.clone()).collect();
        readers.dedup();
        Ok(readers)
    }

    fn status(&self) -> StoreStatus {
        let parts = self.shared.view().parts.iter().map(|part| part.disk_bytes()).sum::<u64>();
        let tables = self.shared.view().rows.tables().disk_bytes();
        let free = self.shared.disk.free_bytes(self.dir()).unwrap_or(0);
        StoreStatus {
            kind: "disk",
            failed: self.shared.failed(),
            is_full: self.shared.is_disk_full(),
            extra: vec![
                ("disk_bytes", parts + tables),
                ("disk_free_bytes", free),
                ("reclaimed_bytes", self.shared.reclaimed_bytes.load(Ordering::Relaxed)),
                ("rewritten_bytes", self.shared.rewritten_bytes.load(Ordering::Relaxed)),
                ("dead_bytes", self.shared.dead_bytes.load(Ordering::Relaxed)),
                ("reclaiming_stuck", self.shared.is_reclaiming_stuck.load(Ordering::Relaxed).into()),
            ],
            flushes: self.shared.flushes.clone(),
        }
    }

    async fn close(&self) {
        // Off the runtime, because flushing and putting away parts blocks.
        self.send_stop();
        let threads: Vec<_> = self.threads.iter().filter_map(|thread| thread.lock().take()).collect();
        let joined =
            tokio::task::spawn_blocking(move || threads.into_iter().for_each(|thread| drop(thread.join())));
        let _ = joined.await;
    }
}

#[async_trait]
impl Copies for DiskStore {
    async fn hold(&self) -> Result<Arc<dyn HeldCopy>, CopyError> {
        let (holder, told) = oneshot::channel();
        self.send(Message::Hold(holder));
        let unavailable = |_| CopyError::Unavailable(self.shared.failure());
        let moment = told.await.map_err(unavailable)?;
        let shared = self.shared.clone();
        let held = tokio::task::spawn_blocking(move || HeldFiles::new(&shared, moment)).await;
        let held = held.map_err(|error| CopyError::Unavailable(error.to_string()))??;
        Ok(Arc::new(held))
    }
}

#[async_trait]
impl Documents for DiskStore {
    async fn document(&self, collection: &str, key: &str) -> Result<Option<Document>, ReadError> {
        let view = self.shared.view();
        let Some(state) = view.collections.get(collection) else { return Ok(None) };
        if !view.rows.reads_tables(&prombus_rows::document_row(state.number, key)) {
            return prombus_rows::get(&view.rows, state, key);
        }
        // On a thread of its own, because tables may have to come from the disk first.
        let (state, key) = (state.clone(), key.to_owned());
        on_blocking_thread(move || prombus_rows::get(&view.rows, &state, &key)).await
    }

    async fn scan(&self, request: ScanRequest) -> Result<Vec<Document>, ReadError> {
        let ScanRequest { collection, after, limit } = request;
        self.scan_rows(&collection, move |rows, state| {
            prombus_rows::scan(rows, state, after.as_deref(), limit)
        })
        .await
    }

    async fn find(&self, request: Find) -> Result<FoundDocuments, ReadError> {
        self.shared.note_list();
        let collection = request.collection.clone();
        self.scan_rows(&collection, move |rows, state| prombus_rows::find(rows, state, &request)).await
    }

    async fn collection(&self, name: &str) -> Result<Option<CollectionState>, ReadError> {
        Ok(self.shared.view().collections.get(name).map(|state| (**state).clone()))
    }

    async fn collections(&self) -> Result<Vec<CollectionState>, ReadError> {
        Ok(self.shared.view().collections.values().map(|state| (**state).clone()).collect())
    }
}
