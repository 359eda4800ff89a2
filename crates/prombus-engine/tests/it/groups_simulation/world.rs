//! The world around the hub: a clock that is stepped, and a store that takes its time and refuses now and then.

use async_trait::async_trait;
use parking_lot::Mutex;
use prombus_core::*;
use prombus_store_memory::MemoryStore;
use prombus_testkit::stalling::Stall;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

const START_MS: i64 = 1_754_683_200_000;

/// Lets simulated time pass.
pub async fn pass(time: Duration) {
    // Nobody really waits: the clock of the runtime jumps as soon as everyone does.
    tokio::time::sleep(time).await;
}

/// Time in the simulation, which never steps. Each life of the hub has a runtime with its own instants.
#[derive(Debug, Clone, Copy)]
struct Life {
    started: Instant,
    before: Duration,
}

/// The wall clock: simulated time plus what it was stepped by.
pub struct WallClock {
    life: Mutex<Option<Life>>,
    stepped_ms: Mutex<i64>,
}

impl WallClock {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { life: Mutex::new(None), stepped_ms: Mutex::new(0) })
    }

    /// A life of the hub starts, `before` after the beginning of time.
    pub fn start_life(&self, before: Duration) {
        *self.life.lock() = Some(Life { started: Instant::now(), before });
    }

    /// When this was, from the beginning of time.
    pub fn since_start(&self, instant: Instant) -> Duration {
        let life = self.life.lock().expect("a life has started");
        life.before + instant.saturating_duration_since(life.started)
    }

    /// How long it is since the beginning of time.
    pub fn elapsed(&self) -> Duration {
        self.since_start(Instant::now())
    }

    /// Steps the wall clock, forwards or backwards.
    pub fn step(&self, ms: i64) {
        *self.stepped_ms.lock() += ms;
    }
}

impl Clock for WallClock {
    fn now_ms(&self) -> u64 {
        (START_MS + *self.stepped_ms.lock() + self.elapsed().as_millis() as i64) as u64
    }

    fn steady_ms(&self) -> u64 {
        self.elapsed().as_millis() as u64
    }
}

/// A store whose calls take time, so that everything can happen in between, and that refuses some.
pub struct SlowStore {
    inner: Arc<MemoryStore>,
    rng: Mutex<fastrand::Rng>,
    refuses: AtomicBool,
    tide: Arc<Tide>,
    pub stall: Arc<Stall>,
    /// The same for those who say where topics are at home.
    pub homes_stall: Arc<Stall>,
}

/// How far the store below is visible, to all who use it.
#[derive(Default)]
pub struct Tide {
    seen: AtomicU64,
    grown: Notify,
}

impl SlowStore {
    pub fn new(inner: Arc<MemoryStore>, tide: Arc<Tide>, rng: fastrand::Rng) -> Arc<Self> {
        Arc::new(Self {
            inner,
            rng: Mutex::new(rng),
            refuses: AtomicBool::new(false),
            tide,
            stall: Stall::new(),
            homes_stall: Stall::new(),
        })
    }

    /// From here on, or no longer, some calls are refused.
    pub fn refuse_some(&self, refuses: bool) {
        self.refuses.store(refuses, Ordering::Relaxed);
    }

    async fn take_time(&self) {
        self.stall.until_over().await;
        let dice = self.rng.lock().u32(..20);
        match dice {
            0..13 => {}
            13..16 => tokio::task::yield_now().await,
            ms => pass(Duration::from_millis(u64::from(ms - 15))).await,
        }
    }

    fn one_in(&self, n: u32) -> bool {
        let dice = self.rng.lock().u32(..n);
        dice == 0 && self.refuses.load(Ordering::Relaxed)
    }

    async fn before_read(&self) -> Result<(), ReadError> {
        self.take_time().await;
        if self.one_in(400) {
            return Err(ReadError::Unavailable("the simulation says so".into()));
        }
        Ok(())
    }
}

prombus_testkit::forward_log! { SlowStore => inner after before_read:
    kept offset_at by_id latest_by_key previous_by_key history erase advance_horizon topics cursor
    readers status close;

    async fn enqueue(&self, commit: Arc<Commit>) -> Result<Ticket, CommitError> {
        self.take_time().await;
        if self.one_in(20) {
            return Ok(Ticket::decided(Err(CommitError::Busy)));
        }
        if self.one_in(150) {
            return Err(CommitError::Unavailable("the simulation says so".into()));
        }
        let receipt = self.inner.commit(commit).await;
        if let Ok(receipt) = &receipt {
            self.tide.seen.fetch_max(receipt.sequence.0, Ordering::Relaxed);
            self.tide.grown.notify_waiters();
        }
        self.take_time().await;
        Ok(Ticket::decided(receipt))
    }

    async fn read(&self, request: ReadRequest) -> Result<Page, ReadError> {
        self.before_read().await?;
        let page = self.inner.read(request).await;
        self.take_time().await;
        page
    }

    async fn changed(&self, _of: &Watched, after: Sequence) -> Sequence {
        // Not by the store below: it wakes those who wait in an order that no seed decides.
        loop {
            let mut grown = pin!(self.tide.grown.notified());
            grown.as_mut().enable();
            let seen = self.tide.seen.load(Ordering::Relaxed);
            if seen > after.0 {
                self.take_time().await;
                return Sequence(seen);
            }
            grown.await;
        }
    }

    async fn topic(&self, name: &TopicName) -> Result<Option<TopicState>, ReadError> {
        self.before_read().await?;
        let state = self.inner.topic(name).await;
        self.take_time().await;
        state
    }
}

#[async_trait]
impl Documents for SlowStore {
    async fn document(&self, collection: &str, key: &str) -> Result<Option<Document>, ReadError> {
        self.inner.document(collection, key).await
    }

    async fn scan(&self, request: ScanRequest) -> Result<Vec<Document>, ReadError> {
        self.inner.scan(request).await
    }

    async fn find(&self, request: Find) -> Result<FoundDocuments, ReadError> {
        self.inner.find(request).await
    }

    async fn collection(&self, name: &str) -> Result<Option<CollectionState>, ReadError> {
        self.inner.collection(name).await
    }

    async fn collections(&self) -> Result<Vec<CollectionState>, ReadError> {
        self.inner.collections().await
    }
}

#[async_trait]
impl Copies for SlowStore {
    async fn hold(&self) -> Result<Arc<dyn HeldCopy>, CopyError> {
        self.inner.hold().await
    }
}
