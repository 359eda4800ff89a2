//! A commit in two steps: first it gets its place in the order, then what comes of it is waited for.

use crate::commit::{Commit, Receipt};
use crate::error::CommitError;
use crate::ports::EventLog;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// What comes of a commit: awaited, it says what became of one that [`EventLog::enqueue`] has given its place.
pub struct Ticket(Pin<Box<dyn Future<Output = Result<Receipt, CommitError>> + Send + Sync>>);

impl Ticket {
    /// A ticket that waits with `answer`, which may do no more than that: the commit must not depend on being awaited.
    pub fn new(answer: impl Future<Output = Result<Receipt, CommitError>> + Send + Sync + 'static) -> Self {
        Self(Box::pin(answer))
    }

    /// The ticket of a commit of which it is known already what became of it.
    pub fn decided(answer: Result<Receipt, CommitError>) -> Self {
        Self::new(ready(answer))
    }
}

impl Future for Ticket {
    type Output = Result<Receipt, CommitError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

/// Both steps at once, for those who have nothing to do in between.
pub trait EventLogExt: EventLog {
    /// Enqueues a commit, and waits for what comes of it.
    fn commit(&self, commit: Arc<Commit>) -> impl Future<Output = Result<Receipt, CommitError>> + Send;
}

impl<L: EventLog + ?Sized> EventLogExt for L {
    async fn commit(&self, commit: Arc<Commit>) -> Result<Receipt, CommitError> {
        self.enqueue(commit).await?.await
    }
}
