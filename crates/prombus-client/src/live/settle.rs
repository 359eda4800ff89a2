//! How a delivery is settled, and the lease that allows it.

use super::failure::Failure;
use super::later::later;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// The longest time by which a hub extends a lease.
const LONGEST_EXTENSION: Duration = Duration::from_secs(24 * 3_600);

/// How to settle a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SettleKind {
    Ack,
    Nack { reason: Option<String>, delay_ms: Option<u64> },
    Extend { ms: u64 },
}

/// The outcome of an ack, nack or extend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// The hub has confirmed it.
    Confirmed,
    /// The lease was lost with its connection before the hub had answered. An event that was acked is remembered as
    /// done: if it is redelivered to this subscription, it is acked without being handed out. One that was nacked, or
    /// that a failed commit was to ack, is redelivered.
    Unconfirmed,
}

/// The token of a lease. Clones share what commits have done with it.
#[derive(Debug, Clone)]
pub(crate) struct LeaseToken(Arc<TokenState>);

#[derive(Debug)]
struct TokenState {
    text: String,
    settled: AtomicBool,
    bound: AtomicBool,
    refused: AtomicBool,
}

impl From<String> for LeaseToken {
    fn from(text: String) -> Self {
        let no = || AtomicBool::new(false);
        Self(Arc::new(TokenState { text, settled: no(), bound: no(), refused: no() }))
    }
}

impl LeaseToken {
    pub fn text(&self) -> &str {
        &self.0.text
    }

    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// A commit has settled it.
    pub fn settle(&self) {
        self.0.settled.store(true, Ordering::SeqCst);
    }

    pub fn is_settled(&self) -> bool {
        self.0.settled.load(Ordering::SeqCst)
    }

    /// A commit is to settle it. From then on, what was done under this lease may hang on that commit, so it says
    /// nothing about another delivery of the event.
    pub fn bind(&self) {
        self.0.bound.store(true, Ordering::SeqCst);
    }

    pub fn is_bound(&self) -> bool {
        self.0.bound.load(Ordering::SeqCst)
    }

    /// A commit that was to settle it was refused, because it or another lease of that commit has expired.
    pub fn refuse(&self) {
        self.0.refused.store(true, Ordering::SeqCst);
    }

    /// What was done under it was in vain, and is done once more: what commits made of that does not count any more.
    pub fn begin_anew(&self) {
        self.0.bound.store(false, Ordering::SeqCst);
        self.0.refused.store(false, Ordering::SeqCst);
    }

    pub fn is_refused(&self) -> bool {
        self.0.refused.load(Ordering::SeqCst)
    }
}

/// The right to settle a delivery. It becomes void when its connection breaks, or the hub ends the subscription.
#[derive(Debug, Clone)]
pub(crate) struct Lease {
    pub token: LeaseToken,
    /// Over which making of its subscription it came.
    pub made: u64,
    pub deadline: Instant,
    /// When its delivery was taken; until then, when it came.
    pub since: Instant,
    /// How long it held when it came.
    pub time: Duration,
    pub feed: Arc<super::feed::Feed>,
}

/// When a lease is extended and for how long, in eighths of the time for which the hub gave it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExtendPolicy {
    /// It is extended when no more than this is left.
    due: u32,
    /// This is what it has then.
    to: u32,
}

impl ExtendPolicy {
    /// For a delivery that nobody has taken yet. Leases are looked at every eighth of their time, so whoever takes it has
    /// the full time for it, as if it had just come.
    pub const WAITING: Self = Self { due: 9, to: 12 };
    /// For a delivery that is in a handler.
    pub const HANDLED: Self = Self { due: 4, to: 8 };

    fn of(time: Duration, eighths: u32) -> Duration {
        time.saturating_mul(eighths) / 8
    }
}

impl Lease {
    /// The word that lets it hold for longer, where it is time for that.
    pub fn extension(&mut self, event: &str, hold: ExtendPolicy, now: Instant) -> Option<Settle> {
        let left = self.deadline.saturating_duration_since(now);
        let to = ExtendPolicy::of(self.time, hold.to).min(LONGEST_EXTENSION);
        let is_due = !left.is_zero() && left <= ExtendPolicy::of(self.time, hold.due) && left < to;
        if !is_due || self.token.is_settled() {
            return None;
        }
        self.deadline = later(now, to);
        let kind = SettleKind::Extend { ms: u64::try_from(to.as_millis()).unwrap_or(u64::MAX) };
        Some(Settle {
            kind,
            token: self.token.clone(),
            made: self.made,
            event: event.to_owned(),
            kept: None,
            done: None,
        })
    }
}

/// A lease that is kept while the hub temporarily refuses its ack or nack.
#[derive(Debug)]
pub(crate) struct KeptLease {
    pub lease: Lease,
    /// How long it is extended.
    pub until: Instant,
}

/// A request to settle a delivery.
#[derive(Debug)]
pub(crate) struct Settle {
    pub kind: SettleKind,
    pub token: LeaseToken,
    /// See [`Lease::made`].
    pub made: u64,
    /// The id of its event.
    pub event: String,
    /// What lets it be said again where nobody waits for it and the hub cannot take it now.
    pub kept: Option<KeptLease>,
    /// Who is waiting for the outcome.
    pub done: Option<oneshot::Sender<Result<Settled, Failure>>>,
}

impl Settle {
    pub fn answer(self, result: Result<Settled, Failure>) {
        if let Some(done) = self.done {
            // Nobody may be waiting any more.
            let _ = done.send(result);
        }
    }
}
