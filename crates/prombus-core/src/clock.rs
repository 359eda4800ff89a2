//! Where the time comes from: a handle, so that tests can hold the clock.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A source of time: of what the clock on the wall shows, and of how much time passes.
pub trait Clock: Send + Sync {
    /// Epoch milliseconds, now. It may step back or ahead; whoever needs order keeps it.
    fn now_ms(&self) -> u64;

    /// How many milliseconds have passed since some moment of this process. Setting the clock does not change it.
    fn steady_ms(&self) -> u64;
}

/// The moment that steady time is counted from.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The machine's clock.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
    }

    fn steady_ms(&self) -> u64 {
        u64::try_from(START.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// A clock that moves only when told to.
#[derive(Debug)]
pub struct ManualClock {
    now_ms: AtomicU64,
    steady_ms: AtomicU64,
}

impl ManualClock {
    /// A clock that stands at `ms`.
    pub fn at(ms: u64) -> Self {
        Self { now_ms: AtomicU64::new(ms), steady_ms: AtomicU64::new(0) }
    }

    /// Sets the clock to `ms`, forwards or backwards, without any time passing.
    pub fn set(&self, ms: u64) {
        self.now_ms.store(ms, Ordering::SeqCst);
    }

    /// Lets `ms` pass.
    pub fn advance(&self, ms: u64) {
        self.now_ms.fetch_add(ms, Ordering::SeqCst);
        self.steady_ms.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> u64 {
        self.now_ms.load(Ordering::SeqCst)
    }

    fn steady_ms(&self) -> u64 {
        self.steady_ms.load(Ordering::SeqCst)
    }
}
