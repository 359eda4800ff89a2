//! Whether a token that was valid still is: its key may be removed while a connection that uses it is open.

use super::Secret;
use super::jwt::Jwt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use tokio::sync::watch;

/// A token whose signature was checked, and the keys that it was checked with.
#[derive(Debug)]
pub(super) struct VerifiedToken {
    /// Who checks tokens remembers callers, so a caller does not keep it.
    jwt: Weak<Jwt>,
    token: Secret,
    /// The newest version of the keys with which it was found good.
    version: AtomicU64,
}

impl VerifiedToken {
    pub fn new(jwt: &Arc<Jwt>, token: &str, version: u64) -> Self {
        Self { jwt: Arc::downgrade(jwt), token: Secret::new(token), version: AtomicU64::new(version) }
    }

    /// Whether the token would be taken today. It is checked again only where there are other keys than before.
    pub fn holds(&self) -> bool {
        // Where nobody checks tokens any more, the hub is about to end.
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

    /// Tells of changes of the keys.
    pub fn key_changes(&self) -> KeyChanges {
        self.jwt.upgrade().map_or_else(never, |jwt| jwt.key_changes().clone())
    }
}

/// Tells of changes of keys: how many there were.
pub(crate) type KeyChanges = watch::Receiver<u64>;

/// Keys that do not change.
pub(super) fn never() -> KeyChanges {
    watch::channel(0).1
}

/// Waits for the next change; those before it, at first, count as one.
pub(crate) async fn next_change(keys: &mut KeyChanges) {
    if keys.changed().await.is_err() {
        // No more will come.
        std::future::pending().await
    }
}
