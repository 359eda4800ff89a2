//! The signals that stop the hub, and one that must not.

use crate::failure::Failure;
use rustix::process::Signal as Number;
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
            |kind| signal(kind).map_err(|error| Failure::Failed(format!("cannot handle signals: {error}")));
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

/// A file that would grow beyond a limit of the system (`ulimit -f`) ends a process that says nothing else. Once the signal
/// is taken, for which nobody has to wait for it, the write fails instead, which is the same as a full disk.
pub fn survive_file_limits() {
    if let Err(error) = signal(SignalKind::from_raw(Number::XFSZ.as_raw())) {
        tracing::warn!(%error, "failed to ignore SIGXFSZ: a file size limit would kill the hub");
    }
}
