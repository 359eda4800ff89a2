//! Adds user-supplied durations to instants without overflow.

use std::time::Duration;
use tokio::time::Instant;

/// Nobody waits for longer, and clocks can count so far.
pub(crate) const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// The moment that is `time` after `now`, or one that nobody lives to see.
pub(crate) fn later(now: Instant, time: Duration) -> Instant {
    now + time.min(FAR)
}
