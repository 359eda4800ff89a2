//! How long to wait before something is tried again, and how often. Nobody tells when the database is back, or when others
//! are through.

use std::time::Duration;
use tokio::time::sleep;

/// How often a transaction that meets others is tried.
pub const TRIES: u32 = 60;
/// The longest pause between two of these tries.
const LONGEST: Duration = Duration::from_millis(50);

/// Waits after the given number of tries that met others: longer from try to try, and each time a random while, so that
/// those who have met do not meet again.
pub async fn after_conflict(tries: u32) {
    let longest = LONGEST.min(Duration::from_micros(500 << tries.min(10)));
    sleep(longest.mul_f64(fastrand::f64())).await;
}

/// Waits before a stream is opened again.
pub async fn before_reopening() {
    sleep(Duration::from_millis(200)).await;
}

/// Waits before a chore is tried again that failed.
pub async fn after_failed_chore() {
    sleep(Duration::from_millis(500)).await;
}
