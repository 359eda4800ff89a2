//! What becomes of a delivery.

use super::failure::Failure;
use super::later::later;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// What is to become of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verb {
    Ack,
    Nack { reason: Option<String>, delay_ms: Option<u64> },
    Extend { ms: u64 },
}

/// What names a lease. Clones know of each other whether a commit has settled it.
#[derive(Debug, Clone)]
pub(crate) struct LeaseToken(Arc<TokenState>);

#[derive(Debug)]
struct TokenState {
    text: String,
    settled: AtomicBool,
}

impl From<String> for LeaseToken {
    fn from(text: String) -> Self {
        Self(Arc::new(TokenState { text, settled: AtomicBool::new(false) }))
    }
}

impl LeaseToken {
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// A commit has settled it.
    pub fn settle(&self) {
        self.0.settled.store(true, Ordering::SeqCst);
    }

    pub fn is_settled(&self) -> bool {
        self.0.settled.load(Ordering::SeqCst)
    }
}

/// The right to settle a delivery. It is void when the line breaks over which it came.
#[derive(Debug, Clone)]
pub(crate) struct Lease {
    pub token: LeaseToken,
    /// The line over which it came.
    pub line: u64,
    pub deadline: Instant,
    /// When it came.
    pub since: Instant,
    /// How long it held when it came.
    pub time: Duration,
    pub feed: Arc<super::feed::Feed>,
}

impl Lease {
    /// The word that lets it hold for as long again, where it is time for that and it came less than `up_to` ago.
    pub fn extension(&mut self, event: &str, up_to: Duration, now: Instant) -> Option<Settle> {
        let left = self.deadline.saturating_duration_since(now);
        let is_due = !left.is_zero() && left <= self.time / 2 && now.duration_since(self.since) <= up_to;
        if !is_due || self.token.is_settled() {
            return None;
        }
        self.deadline = later(now, self.time);
        let verb = Verb::Extend { ms: u64::try_from(self.time.as_millis()).unwrap_or(u64::MAX) };
        Some(Settle { verb, token: self.token.clone(), line: self.line, event: event.to_owned(), done: None })
    }
}

/// A delivery that is to be settled.
#[derive(Debug)]
pub(crate) struct Settle {
    pub verb: Verb,
    pub token: LeaseToken,
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
