//! What becomes of a delivery.

use super::failure::Failure;
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// What is to become of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verb {
    Ack,
    Nack { reason: Option<String>, delay_ms: Option<u64> },
    Extend { ms: u64 },
}

/// The right to settle a delivery. It is void when the line breaks over which it came.
#[derive(Debug, Clone)]
pub(crate) struct Lease {
    pub token: String,
    /// The line over which it came.
    pub line: u64,
    pub deadline: Instant,
    pub feed: Arc<super::feed::Feed>,
}

/// A delivery that is to be settled.
#[derive(Debug)]
pub(crate) struct Settle {
    pub verb: Verb,
    pub token: String,
    pub line: u64,
    /// The id of its event.
    pub event: String,
    /// Who wants to know what came of it.
    pub done: Option<oneshot::Sender<Result<(), Failure>>>,
}

impl Settle {
    pub fn answer(self, result: Result<(), Failure>) {
        if let Some(done) = self.done {
            // Nobody may be waiting any more.
            let _ = done.send(result);
        }
    }
}
