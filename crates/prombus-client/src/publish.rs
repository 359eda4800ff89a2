//! Publishing over HTTP: one event, an atomic batch, or a stream of lines.

use crate::{Client, ClientError, NewEvent};
use bytes::Bytes;
use futures::Stream;
use prombus_wire::{Imported, Published, PublishedBatch};
use reqwest::Method;
use reqwest::header::CONTENT_TYPE;
use serde::de::DeserializeOwned;

impl Client {
    /// Publishes one event.
    pub async fn publish(&self, topic: &str, event: &NewEvent) -> Result<Published, ClientError> {
        self.post_events(topic, serde_json::to_vec(event)?.into()).await
    }

    /// Publishes several events, all or none.
    pub async fn publish_batch(
        &self,
        topic: &str,
        events: &[NewEvent],
    ) -> Result<PublishedBatch, ClientError> {
        self.post_events(topic, serde_json::to_vec(events)?.into()).await
    }

    async fn post_events<A: DeserializeOwned>(&self, topic: &str, body: Bytes) -> Result<A, ClientError> {
        let request = self.request(Method::POST, &["v1", "topics", topic, "events"])?;
        let response = self.call(request.header(CONTENT_TYPE, "application/json").body(body)).await?;
        self.answer(response).await
    }

    /// Publishes a stream of lines, each a JSON object with `payload` and optional fields of an event, and returns how
    /// many are stored, and how many of them are duplicates. It is atomic only in pieces: if a line is refused, those
    /// before it may be stored, and the error's details `count` and `line` say how many are and which line it was.
    pub async fn import<S>(&self, topic: &str, lines: S) -> Result<Imported, ClientError>
    where
        S: Stream<Item = std::io::Result<Bytes>> + Send + 'static,
    {
        let request = self.request(Method::POST, &["v1", "topics", topic, "events"])?;
        let body = reqwest::Body::wrap_stream(lines);
        let response = self.stream(request.header(CONTENT_TYPE, "application/x-ndjson").body(body)).await?;
        self.answer(response).await
    }
}
