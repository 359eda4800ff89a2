//! Extends leases automatically: those of deliveries that are buffered, and of those that are being handled.

use super::command::Command;
use super::feed::Feed;
use super::settle::Settle;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// For how long leases are extended by default: so long a handler may work on an event, and so long a user may take
/// nothing of what waits.
pub(super) const EXTEND_UP_TO: Duration = Duration::from_secs(600);
/// How often leases are looked at while one holds.
const LOOKS_PER_LEASE: u32 = 8;
/// They are looked at no more often than this.
const MIN_LOOK: Duration = Duration::from_millis(10);
/// And no less often.
const MAX_LOOK: Duration = Duration::from_secs(5);

/// Extends leases of deliveries that wait in the feed for up to a time, and what `more` says.
pub(super) async fn extend_leases(feed: Arc<Feed>, up_to: Duration, more: impl Fn(Instant) -> Vec<Settle>) {
    loop {
        let pause = feed.lease_time().await / LOOKS_PER_LEASE;
        // Leases run out by the clock, and that is what is waited for.
        tokio::time::sleep(pause.clamp(MIN_LOOK, MAX_LOOK)).await;
        let now = Instant::now();
        let mut extensions = feed.extensions(up_to, now);
        extensions.extend(more(now));
        if extensions.is_empty() {
            continue;
        }
        if feed.tell(Command::Extend { feed: feed.number, extensions }).await.is_err() {
            return;
        }
    }
}
