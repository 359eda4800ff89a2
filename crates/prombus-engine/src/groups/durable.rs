//! How far what was said to a group is durable, and who waits for that.

use super::GroupError;
use parking_lot::Mutex;
use std::pin::pin;
use tokio::sync::Notify;

/// How far what was said to a group is durable. Those who wait go on in the order in which they came.
#[derive(Debug, Default)]
pub struct Durable {
    now: Mutex<Known>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Known {
    /// So many changes are.
    version: u64,
    /// Why there will be no more.
    failed: Option<GroupError>,
}

impl Durable {
    /// So many changes are durable now.
    pub fn reached(&self, version: u64) {
        self.now.lock().version = version;
        self.changed.notify_waiters();
    }

    /// There will be no more.
    pub fn fail(&self, error: GroupError) {
        self.now.lock().failed = Some(error);
        self.changed.notify_waiters();
    }

    /// Why there will be no more, if that is so.
    pub fn failure(&self) -> Option<GroupError> {
        self.now.lock().failed.clone()
    }

    /// Whether there will be no more.
    pub fn has_failed(&self) -> bool {
        self.now.lock().failed.is_some()
    }

    /// Waits until so many changes are durable.
    pub async fn until(&self, version: u64) -> Result<(), GroupError> {
        loop {
            let mut changed = pin!(self.changed.notified());
            // From here on no change is missed.
            changed.as_mut().enable();
            {
                let now = self.now.lock();
                if now.version >= version {
                    return Ok(());
                }
                if let Some(error) = &now.failed {
                    return Err(error.clone());
                }
            }
            changed.await;
        }
    }
}
