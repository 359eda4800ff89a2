//! How many projections work at once.
//!
//! What a projection reads and makes takes some megabytes until it is committed, and a thousand of them may have a backlog at
//! the same time. So only those read that have a slot, for a while if others wait for one, and whoever holds much gives it back
//! only after having let go of that. Costly projections have slots of their own, so that the others do not wait for them.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// How many projections work at once, and how many costly ones.
const SLOTS: usize = 8;
/// How long a projection may work while others wait.
const SLOT_TIME: Duration = Duration::from_millis(200);
/// A projection that holds no more than this needs no slot until it reads again: others need not wait for its flush.
pub(super) const LITTLE_BYTES: usize = 64 << 10;

/// The slots of a hub.
#[derive(Debug, Default)]
pub(crate) struct WorkSlots {
    cheap: Arc<Slots>,
    costly: Arc<Slots>,
}

#[derive(Debug)]
struct Slots {
    free: Arc<Semaphore>,
    waiting: AtomicUsize,
}

impl Default for Slots {
    fn default() -> Self {
        Self { free: Arc::new(Semaphore::new(SLOTS)), waiting: AtomicUsize::new(0) }
    }
}

impl WorkSlots {
    /// Waits for a slot, first come, first served.
    pub fn take(&self, is_costly: bool) -> impl Future<Output = WorkSlot> + Send + use<> {
        let slots = if is_costly { &self.costly } else { &self.cheap };
        let waiting = Waiting::new(slots.clone());
        async move {
            // Nobody closes it.
            let permit = waiting.0.free.clone().acquire_owned().await.ok();
            WorkSlot { slots: waiting.0.clone(), permit, taken: Instant::now() }
        }
    }
}

/// Somebody waits for a slot, until this is dropped.
struct Waiting(Arc<Slots>);

impl Waiting {
    fn new(slots: Arc<Slots>) -> Self {
        slots.waiting.fetch_add(1, Ordering::Relaxed);
        Self(slots)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Lets a projection work. Others may wait for it.
#[derive(Debug)]
pub(crate) struct WorkSlot {
    slots: Arc<Slots>,
    #[expect(dead_code, reason = "it is there to be dropped")]
    permit: Option<OwnedSemaphorePermit>,
    taken: Instant,
}

impl WorkSlot {
    /// Whether others wait for it.
    pub fn is_wanted(&self) -> bool {
        self.slots.waiting.load(Ordering::Relaxed) > 0
    }

    /// Whether it is time to let others work.
    pub fn is_over(&self) -> bool {
        self.is_wanted() && self.taken.elapsed() > SLOT_TIME
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::timeout;

    #[tokio::test(start_paused = true)]
    async fn those_who_wait_have_their_turn() {
        let slots = WorkSlots::default();
        let mut held = Vec::new();
        for _ in 0..SLOTS {
            held.push(slots.take(false).await);
        }
        tokio::time::advance(2 * SLOT_TIME).await;
        assert!(!held.iter().any(WorkSlot::is_over), "nobody waits");
        let mut next = Box::pin(slots.take(false));
        assert!(timeout(Duration::from_millis(1), next.as_mut()).await.is_err());
        assert!(held.iter().all(WorkSlot::is_over));
        assert!(!slots.take(true).await.is_wanted(), "costly ones have slots of their own");
        held.pop();
        assert!(!next.await.is_over(), "not at once");
        assert!(!held.iter().any(WorkSlot::is_wanted));
    }
}
