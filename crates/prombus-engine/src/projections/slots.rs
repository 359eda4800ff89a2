//! How many projections work at once.
//!
//! What a projection reads and makes takes some megabytes until it is committed, and a thousand of them may have a backlog at
//! the same time. So only those work that have a slot, for a while if others wait for one, and whoever gives it back lets go of
//! what it has read. Costly projections have slots of their own, so that the others do not wait for them.

use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// So many projections work at once, and as many costly ones.
const SLOTS: usize = 8;
/// How long a projection may work while others wait.
const SLOT_TIME: Duration = Duration::from_millis(200);

/// The slots of a hub.
#[derive(Debug)]
pub(crate) struct WorkSlots {
    cheap: Arc<Semaphore>,
    costly: Arc<Semaphore>,
}

impl Default for WorkSlots {
    fn default() -> Self {
        let slots = || Arc::new(Semaphore::new(SLOTS));
        Self { cheap: slots(), costly: slots() }
    }
}

impl WorkSlots {
    /// Waits for a slot, first come, first served.
    pub async fn take(&self, is_costly: bool) -> WorkSlot {
        let slots = if is_costly { &self.costly } else { &self.cheap };
        // Nobody closes it.
        let permit = slots.clone().acquire_owned().await.ok();
        WorkSlot { slots: slots.clone(), permit, taken: Instant::now() }
    }
}

/// Lets a projection work. Others may wait for it.
#[derive(Debug)]
pub(crate) struct WorkSlot {
    slots: Arc<Semaphore>,
    #[expect(dead_code, reason = "it is there to be dropped")]
    permit: Option<OwnedSemaphorePermit>,
    taken: Instant,
}

impl WorkSlot {
    /// Whether it is time to let others work.
    pub fn is_over(&self) -> bool {
        self.slots.available_permits() == 0 && self.taken.elapsed() > SLOT_TIME
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn those_who_wait_have_their_turn() {
        let slots = WorkSlots::default();
        let mut held = Vec::new();
        for _ in 0..SLOTS {
            assert!(!held.iter().any(WorkSlot::is_over));
            held.push(slots.take(false).await);
        }
        assert!(!held.iter().any(WorkSlot::is_over), "not at once");
        tokio::time::advance(2 * SLOT_TIME).await;
        assert!(held.iter().all(WorkSlot::is_over));
        slots.take(true).await;
        held.pop();
        assert!(!held.iter().any(WorkSlot::is_over), "nobody has to wait");
    }
}
