//! What all groups together hold of events that were read and not delivered yet.
//!
//! Each partition of each group may hold a few megabytes of them, and there may be thousands of both. Reading ahead only
//! saves reads: whatever is held can be read again. So what groups hold is counted in one account, and a group that is
//! done with a pull keeps nothing while the account is overdrawn.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The account of all groups.
#[derive(Debug)]
pub struct ReadAhead {
    limit: usize,
    held: AtomicUsize,
}

impl ReadAhead {
    /// Groups may hold so many bytes.
    pub fn new(limit: usize) -> Self {
        Self { limit, held: AtomicUsize::new(0) }
    }

    /// How many bytes they hold.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Whether nothing more should be read than what is delivered at once.
    pub(super) fn is_used_up(&self) -> bool {
        self.held() >= self.limit
    }
}

/// What one group holds.
#[derive(Debug)]
pub(super) struct Share {
    account: Arc<ReadAhead>,
    bytes: usize,
}

impl Share {
    pub fn of(account: &Arc<ReadAhead>) -> Self {
        Self { account: account.clone(), bytes: 0 }
    }

    /// The group holds so many bytes now. Says whether that is too much, together with what others hold.
    pub fn set(&mut self, bytes: usize) -> bool {
        if bytes >= self.bytes {
            self.account.held.fetch_add(bytes - self.bytes, Ordering::Relaxed);
        } else {
            self.account.held.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
        bytes > 0 && self.account.held() > self.account.limit
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}
