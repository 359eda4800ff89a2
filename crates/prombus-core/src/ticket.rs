//! A commit in two steps: first it gets its place in the order, then what comes of it is waited for.

use crate::commit::{Commit, Receipt};
use crate::error::{CommitError, ReadError};
use crate::event::Event;
use crate::ports::{Bounds, EventLog, PreviousRequest};
use crate::position::{Offset, Partition};
use crate::topic::TopicRef;
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

/// What follows from the methods of the port.
pub trait EventLogExt: EventLog {
    /// Enqueues a commit, and waits for what comes of it.
    fn commit(&self, commit: Arc<Commit>) -> impl Future<Output = Result<Receipt, CommitError>> + Send;

    /// The first kept and the first unwritten offset of a partition.
    fn bounds(
        &self,
        topic: &TopicRef,
        partition: Partition,
    ) -> impl Future<Output = Result<Bounds, ReadError>> + Send;

    /// The event of a key before a kept one of its events, if one is kept.
    fn event_before(
        &self,
        topic: &TopicRef,
        key: &str,
        place: (Partition, Offset),
    ) -> impl Future<Output = Result<Option<Event>, ReadError>> + Send;
}

impl<L: EventLog + ?Sized> EventLogExt for L {
    async fn commit(&self, commit: Arc<Commit>) -> Result<Receipt, CommitError> {
        self.enqueue(commit).await?.await
    }

    async fn bounds(&self, topic: &TopicRef, partition: Partition) -> Result<Bounds, ReadError> {
        Ok(self.kept(topic, partition).await?.bounds)
    }

    async fn event_before(
        &self,
        topic: &TopicRef,
        key: &str,
        place: (Partition, Offset),
    ) -> Result<Option<Event>, ReadError> {
        let request =
            PreviousRequest { topic: topic.clone(), events: vec![(key.to_owned(), place)], max_bytes: 1 };
        Ok(self.previous_by_key(request).await?.into_iter().flatten().next())
    }
}
