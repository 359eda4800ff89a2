//! How long to wait before something is tried again, and how often.

use std::time::Duration;

/// How often a transaction that meets others is tried.
pub const TRIES: u32 = 60;
/// The longest pause between two of these tries.
const LONGEST: Duration = Duration::from_millis(50);

/// Waits after the given number of tries that met others: longer from try to try, and each time a random while, so that
/// those who have met do not meet again.
pub async fn after_conflict(tries: u32) {
    let longest = LONGEST.min(Duration::from_micros(500 << tries.min(10)));
    // None of the others tells when it is through.
    tokio::time::sleep(longest.mul_f64(fastrand::f64())).await;
}

/// Waits before a stream is opened again.
pub async fn before_reopening() {
    // The database cannot be asked to tell when it is back.
    tokio::time::sleep(Duration::from_millis(200)).await;
}

/// Waits before something is read again.
pub async fn before_reading_again() {
    // The same.
    tokio::time::sleep(Duration::from_millis(50)).await;
}

/// Waits before a chore is tried again that failed.
pub async fn after_failed_chore() {
    // Whatever is in the way tells nobody when it is gone.
    tokio::time::sleep(Duration::from_millis(500)).await;
}
