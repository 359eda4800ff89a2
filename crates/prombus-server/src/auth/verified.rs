//! Whether a token that was valid still is: its key may be removed while a connection that uses it is open.

use super::Secret;
use super::jwt::Jwt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use tokio::sync::watch;

/// A token whose signature was checked, and the keys that it was checked with.
#[derive(Debug)]
pub(super) struct VerifiedToken {
    /// A weak reference, because the verifier caches callers.
    jwt: Weak<Jwt>,
    token: Secret,
    /// The newest version of the keys that has verified it.
    version: AtomicU64,
}

impl VerifiedToken {
    pub fn new(jwt: &Arc<Jwt>, token: &str, version: u64) -> Self {
        Self { jwt: Arc::downgrade(jwt), token: Secret::new(token), version: AtomicU64::new(version) }
    }

    /// Whether the token is still valid. It is verified again only if the keys have changed.
    pub fn holds(&self) -> bool {
        // If the verifier is gone, the hub is shutting down.
        let Some(jwt) = self.jwt.upgrade() else { return true };
        let now = *jwt.key_changes().borrow();
        if self.version.load(Ordering::Acquire) == now {
            return true;
        }
        let holds = jwt.caller(self.token.expose()).is_ok();
        if holds {
            self.version.store(now, Ordering::Release);
        }
        holds
    }

    /// Notifies of key changes.
    pub fn key_changes(&self) -> KeyChanges {
        self.jwt.upgrade().map_or_else(never, |jwt| jwt.key_changes().clone())
    }
}

/// Notifies of key changes, by counting them.
pub(crate) type KeyChanges = watch::Receiver<u64>;

/// Keys that do not change.
pub(super) fn never() -> KeyChanges {
    watch::channel(0).1
}

/// Waits for the next change; earlier unseen ones count as one.
pub(crate) async fn next_change(keys: &mut KeyChanges) {
    if keys.changed().await.is_err() {
        // No more will come.
        std::future::pending().await
    }
}
