//! The signals that end the hub.

use crate::failure::Failure;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM and SIGINT.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Takes the signals over from now on, so that none ends the process in the middle of something.
    pub fn take() -> Result<Self, Failure> {
        let take =
            |kind| signal(kind).map_err(|error| Failure::Failed(format!("cannot take signals: {error}")));
        Ok(Self { terminate: take(SignalKind::terminate())?, interrupt: take(SignalKind::interrupt())? })
    }

    /// Waits for one, and says which.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
