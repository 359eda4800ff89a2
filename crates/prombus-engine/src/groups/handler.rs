//! Handlers of events, and what can be put around one: retries, dead letters, and each event only once.

use super::consumer::Received;
use crate::bus::{Bus, BusError};
use crate::retry;
use async_trait::async_trait;
use prombus_core::{Commit, CommitError, DocumentWrite, Documents, Json, WriteOp};
use std::sync::Arc;
use std::time::Duration;

/// Why a handler could not do its work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct HandlerError {
    /// What went wrong; it stands in the dead letter.
    pub reason: String,
    /// When to try again, where the group's own pause is not wanted.
    pub delay: Option<Duration>,
    /// Whether trying again is in vain: the event becomes a dead letter now.
    pub hopeless: bool,
}

impl HandlerError {
    /// A failure that may pass.
    pub fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), delay: None, hopeless: false }
    }

    /// A failure that will not pass.
    pub fn hopeless(reason: impl Into<String>) -> Self {
        Self { hopeless: true, ..Self::new(reason) }
    }
}

impl From<&str> for HandlerError {
    fn from(reason: &str) -> Self {
        Self::new(reason)
    }
}

impl From<String> for HandlerError {
    fn from(reason: String) -> Self {
        Self::new(reason)
    }
}

impl From<serde_json::Error> for HandlerError {
    fn from(error: serde_json::Error) -> Self {
        Self::new(error.to_string())
    }
}

/// Does something with events. A function that takes a [`Received`] and answers in the future is one.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Does it for one event.
    async fn handle(&self, received: Received) -> Result<(), HandlerError>;
}

#[async_trait]
impl<F, A> Handler for F
where
    F: Fn(Received) -> A + Send + Sync + 'static,
    A: Future<Output = Result<(), HandlerError>> + Send,
{
    async fn handle(&self, received: Received) -> Result<(), HandlerError> {
        self(received).await
    }
}

/// Tries a handler again at once, before the group hears of a failure.
pub struct Retry<H> {
    /// The handler.
    pub handler: H,
    /// How often it is tried again.
    pub times: u32,
    /// The pause before that; it doubles each time.
    pub pause: Duration,
}

#[async_trait]
impl<H: Handler> Handler for Retry<H> {
    async fn handle(&self, received: Received) -> Result<(), HandlerError> {
        let mut pause = self.pause;
        for _ in 0..self.times {
            match self.handler.handle(received.clone()).await {
                Err(error) if !error.hopeless => {
                    // The pause is what the caller asked for.
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
                done => return done,
            }
        }
        self.handler.handle(received).await
    }
}

/// Makes every failure of a handler the last one: the event becomes a dead letter.
pub struct ToDeadLetters<H>(pub H);

#[async_trait]
impl<H: Handler> Handler for ToDeadLetters<H> {
    async fn handle(&self, received: Received) -> Result<(), HandlerError> {
        let done = self.0.handle(received).await;
        done.map_err(|error| HandlerError { hopeless: true, ..error })
    }
}

/// Keeps a handler from doing the same event twice, however often it is delivered: what was done is noted in a
/// collection, by the event's id. Only a crash between the handler's end and that note lets it be done again.
pub struct Dedupe<H> {
    handler: H,
    collection: String,
    documents: Arc<dyn Documents>,
    bus: Arc<dyn Bus>,
}

impl<H: Handler> Dedupe<H> {
    /// Around `handler`, with notes in `collection`.
    pub(crate) fn new(
        handler: H,
        collection: String,
        documents: Arc<dyn Documents>,
        bus: Arc<dyn Bus>,
    ) -> Self {
        Self { handler, collection, documents, bus }
    }

    async fn note(&self, key: String, ts: u64) -> Result<(), HandlerError> {
        let op = WriteOp::Set(Json::from_stored("{}".into()));
        let collection = self.collection.clone();
        let write = DocumentWrite { if_version: Some(0), ts, ..DocumentWrite::new(&collection, key, op) };
        let mut commit = Arc::new(Commit { documents: vec![write], ..Commit::default() });
        match retry::commit(&*self.bus, &mut commit).await {
            // Someone else was faster, with the same event.
            Ok(_) | Err(BusError::Commit(CommitError::VersionConflict { .. })) => Ok(()),
            Err(error) => Err(HandlerError::new(error.to_string())),
        }
    }
}

#[async_trait]
impl<H: Handler> Handler for Dedupe<H> {
    async fn handle(&self, received: Received) -> Result<(), HandlerError> {
        let (key, ts) = (received.event().id.to_string(), received.event().ts);
        let known = self.documents.document(&self.collection, &key).await;
        match known {
            Ok(Some(_)) => Ok(()),
            Ok(None) => {
                self.handler.handle(received).await?;
                self.note(key, ts).await
            }
            Err(error) => Err(HandlerError::new(error.to_string())),
        }
    }
}
