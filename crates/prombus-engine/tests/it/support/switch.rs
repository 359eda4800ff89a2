//! A store that can be told to refuse commits, to hold them up, or to have lost events, and that is gone when its hub
//! has ended.

use async_trait::async_trait;
use parking_lot::Mutex;
use prombus_core::*;
use prombus_engine::Store;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::watch;
use uuid::Uuid;

/// Which commits something is about.
pub type Which = fn(&Commit) -> bool;

/// A way to look at the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    Read,
    History,
    Horizon,
}

/// How commits are refused.
pub struct Refusal {
    pub which: Which,
    /// How many pass before.
    pub after: usize,
    /// How many are refused.
    pub times: usize,
    pub error: CommitError,
    /// Whether they happen all the same, as when an answer is lost.
    pub happens: bool,
}

/// A store with a will of its own.
pub struct Switch {
    /// Gone when the hub has ended, whoever still holds something of it.
    store: Mutex<Option<Store>>,
    refusal: Mutex<Option<Refusal>>,
    /// Which commits wait.
    held: watch::Sender<Option<Which>>,
    /// Who looks waits.
    blind: watch::Sender<Option<Look>>,
    /// How many wait.
    waiting: watch::Sender<usize>,
    /// Events that are removed, by partition and offset.
    holes: Mutex<BTreeSet<(u32, u64)>>,
    /// Whether the end of the hub is the end of the store.
    closes: bool,
    closed: AtomicBool,
    /// How many bytes the cursors of all commits took.
    pub cursor_bytes: AtomicUsize,
    /// How many events were read in pages.
    pub paged: AtomicUsize,
    /// How many keys were looked up.
    pub looked_up: AtomicUsize,
    /// How many commits made too much.
    too_large: AtomicUsize,
    /// Whether documents cannot be read.
    pub is_unreadable: AtomicBool,
    /// What is committed each time that events are read, and the clock that goes on with it.
    feed: tokio::sync::Mutex<Option<(Arc<Commit>, Arc<ManualClock>)>>,
}

impl Switch {
    /// Around a store.
    pub fn new(store: Store, closes: bool) -> Arc<Self> {
        Arc::new(Self {
            store: Mutex::new(Some(store)),
            refusal: Mutex::new(None),
            held: watch::Sender::new(None),
            blind: watch::Sender::new(None),
            waiting: watch::Sender::new(0),
            holes: Mutex::default(),
            closes,
            closed: AtomicBool::new(false),
            cursor_bytes: AtomicUsize::new(0),
            paged: AtomicUsize::new(0),
            looked_up: AtomicUsize::new(0),
            too_large: AtomicUsize::new(0),
            is_unreadable: AtomicBool::new(false),
            feed: tokio::sync::Mutex::new(None),
        })
    }

    /// The hub has ended: whoever still holds something of it has no store any more.
    pub fn end(&self) {
        self.store.lock().take();
    }

    pub fn refuse(&self, refusal: Refusal) {
        *self.refusal.lock() = Some(refusal);
    }

    /// From here on all commits are refused, or none.
    pub fn refuse_all(&self, refuses: bool) {
        let (times, error) =
            (if refuses { usize::MAX } else { 0 }, CommitError::Unavailable("the test says so".into()));
        self.refuse(Refusal { which: |_| true, after: 0, times, error, happens: false });
    }

    /// How many commits are still to be refused.
    pub fn refusals_left(&self) -> usize {
        self.refusal.lock().as_ref().map_or(0, |refusal| refusal.times)
    }

    /// How many commits made too much for the store.
    pub fn too_large(&self) -> usize {
        self.too_large.load(Ordering::SeqCst)
    }

    /// From here on these commits wait.
    pub fn hold(&self, which: Which) {
        self.held.send_replace(Some(which));
    }

    /// From here on whoever looks in this way waits.
    pub fn hold_looks(&self, look: Look) {
        self.blind.send_replace(Some(look));
    }

    /// From here on this is committed each time that events are read, each time at another moment.
    pub async fn feed(&self, commit: Commit, clock: &Arc<ManualClock>) {
        *self.feed.lock().await = Some((Arc::new(commit), clock.clone()));
    }

    /// From here on it is not.
    pub async fn end_feed(&self) {
        *self.feed.lock().await = None;
    }

    /// Waits until so many of them wait.
    pub async fn until_held(&self, count: usize) {
        self.waiting.subscribe().wait_for(|waiting| *waiting >= count).await.expect("the switch is there");
    }

    /// How many wait now.
    pub fn held(&self) -> usize {
        *self.waiting.borrow()
    }

    /// Lets all of them go on.
    pub fn release(&self) {
        self.held.send_replace(None);
        self.blind.send_replace(None);
    }

    /// Hides an event from those who read pages, as compaction does.
    pub fn remove(&self, partition: u32, offset: u64) {
        self.holes.lock().insert((partition, offset));
    }

    fn store(&self) -> Result<Store, ReadError> {
        let gone = || ReadError::Unavailable("the hub has ended".into());
        self.store.lock().clone().ok_or_else(gone)
    }

    fn log(&self) -> Result<Arc<dyn EventLog>, ReadError> {
        Ok(self.store()?.log)
    }

    /// What to answer instead, and whether to do it first.
    fn refused(&self, commit: &Commit) -> Option<(CommitError, bool)> {
        let mut refusal = self.refusal.lock();
        let refusal = refusal.as_mut().filter(|refusal| (refusal.which)(commit))?;
        if refusal.after > 0 {
            refusal.after -= 1;
            return None;
        }
        refusal.times = refusal.times.checked_sub(1)?;
        Some((refusal.error.clone(), refusal.happens))
    }

    async fn wait_while<T>(&self, held: &watch::Sender<T>, is_held: impl Fn(&T) -> bool) {
        let mut held = held.subscribe();
        if is_held(&held.borrow()) {
            self.waiting.send_modify(|waiting| *waiting += 1);
            let _ = held.wait_for(|what| !is_held(what)).await;
            self.waiting.send_modify(|waiting| *waiting -= 1);
        }
    }
}

#[async_trait]
impl EventLog for Switch {
    async fn enqueue(&self, commit: Arc<Commit>) -> Result<Ticket, CommitError> {
        let details = commit.cursors.iter().flat_map(|step| &step.to).map(|to| to.detail.len());
        self.cursor_bytes.fetch_add(details.sum(), Ordering::SeqCst);
        self.wait_while(&self.held, |which| which.is_some_and(|which| which(&commit))).await;
        let log = self.log().map_err(|error| CommitError::Unavailable(error.to_string()))?;
        // A store that outlives its hub only looks closed.
        if self.closed.load(Ordering::SeqCst) && !self.closes {
            return Err(CommitError::Unavailable("the store is closed".into()));
        }
        match self.refused(&commit) {
            None => {
                let answer = log.commit(commit).await;
                if matches!(answer, Err(CommitError::TooLarge { .. })) {
                    self.too_large.fetch_add(1, Ordering::SeqCst);
                }
                Ok(Ticket::decided(answer))
            }
            Some((error, happens)) => {
                if happens {
                    log.commit(commit).await?;
                }
                Ok(Ticket::decided(Err(error)))
            }
        }
    }

    async fn read(&self, request: ReadRequest) -> Result<Page, ReadError> {
        self.wait_while(&self.blind, |look| *look == Some(Look::Read)).await;
        let feed = self.feed.lock().await;
        if let Some((commit, clock)) = &*feed {
            clock.advance(1);
            self.log()?.commit(commit.clone()).await.expect("the store takes commits");
        }
        drop(feed);
        let partition = request.partition.0;
        let mut page = self.log()?.read(request).await?;
        self.paged.fetch_add(page.events.len(), Ordering::SeqCst);
        let holes = self.holes.lock();
        page.events.retain(|event| !holes.contains(&(partition, event.offset.0)));
        Ok(page)
    }

    async fn kept(&self, topic: &TopicRef, partition: Partition) -> Result<Kept, ReadError> {
        self.log()?.kept(topic, partition).await
    }

    async fn offset_at(&self, request: TsRequest) -> Result<Offset, ReadError> {
        self.log()?.offset_at(request).await
    }

    async fn by_id(&self, topic: &TopicRef, id: Uuid) -> Result<Option<Event>, ReadError> {
        self.log()?.by_id(topic, id).await
    }

    async fn latest_by_key(&self, topic: &TopicRef, key: &str) -> Result<Option<Event>, ReadError> {
        self.looked_up.fetch_add(1, Ordering::SeqCst);
        self.log()?.latest_by_key(topic, key).await
    }

    async fn previous_by_key(&self, request: PreviousRequest) -> Result<Vec<Option<Event>>, ReadError> {
        self.looked_up.fetch_add(request.events.len(), Ordering::SeqCst);
        self.log()?.previous_by_key(request).await
    }

    async fn history(&self, request: HistoryRequest) -> Result<Vec<Event>, ReadError> {
        self.wait_while(&self.blind, |look| *look == Some(Look::History)).await;
        self.looked_up.fetch_add(1, Ordering::SeqCst);
        self.log()?.history(request).await
    }

    async fn erase(&self) -> Result<(), CommitError> {
        let log = self.log().map_err(|error| CommitError::Unavailable(error.to_string()))?;
        log.erase().await
    }

    async fn advance_horizon(&self, topic: &TopicName, past: u64) -> Result<u64, ReadError> {
        self.wait_while(&self.blind, |look| *look == Some(Look::Horizon)).await;
        self.log()?.advance_horizon(topic, past).await
    }

    async fn changed(&self, of: &Watched, after: Sequence) -> Sequence {
        match self.log() {
            Ok(log) => log.changed(of, after).await,
            Err(_) => std::future::pending().await,
        }
    }

    async fn topic(&self, name: &TopicName) -> Result<Option<TopicState>, ReadError> {
        self.log()?.topic(name).await
    }

    async fn topics(&self) -> Result<Vec<TopicState>, ReadError> {
        self.log()?.topics().await
    }

    async fn cursor(&self, key: &CursorKey) -> Result<Option<Cursor>, ReadError> {
        self.log()?.cursor(key).await
    }

    async fn readers(&self, topic: &TopicName, prefix: &str) -> Result<Vec<String>, ReadError> {
        self.log()?.readers(topic, prefix).await
    }

    fn status(&self) -> StoreStatus {
        self.log().expect("the hub is there").status()
    }

    async fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        if let Ok(log) = self.log()
            && self.closes
        {
            log.close().await;
        }
    }
}

#[async_trait]
impl Documents for Switch {
    async fn document(&self, collection: &str, key: &str) -> Result<Option<Document>, ReadError> {
        if self.is_unreadable.load(Ordering::SeqCst) {
            return Err(ReadError::Unavailable("the test says so".into()));
        }
        self.store()?.documents.document(collection, key).await
    }

    async fn scan(&self, request: ScanRequest) -> Result<Vec<Document>, ReadError> {
        self.store()?.documents.scan(request).await
    }

    async fn find(&self, request: Find) -> Result<FoundDocuments, ReadError> {
        self.store()?.documents.find(request).await
    }

    async fn collection(&self, name: &str) -> Result<Option<CollectionState>, ReadError> {
        self.store()?.documents.collection(name).await
    }

    async fn collections(&self) -> Result<Vec<CollectionState>, ReadError> {
        self.store()?.documents.collections().await
    }
}

#[async_trait]
impl Copies for Switch {
    async fn hold(&self) -> Result<Arc<dyn HeldCopy>, CopyError> {
        let gone = |error: ReadError| CopyError::Unavailable(error.to_string());
        self.store().map_err(gone)?.copies.hold().await
    }
}
