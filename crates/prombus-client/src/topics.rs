//! Topics: listing, creating, changing and deleting them.

use crate::{Client, ClientError};
use prombus_wire::{TopicAnswer, Topics};
use reqwest::Method;
use reqwest::header::CONTENT_TYPE;
use serde::Serialize;

impl Client {
    /// All topics, by name.
    pub async fn topics(&self) -> Result<Vec<TopicAnswer>, ClientError> {
        let response = self.call(self.request(Method::GET, &["v1", "topics"])).await?;
        Ok(self.answer::<Topics>(response).await?.topics)
    }

    /// One topic, if it exists.
    pub async fn topic(&self, topic: &str) -> Result<Option<TopicAnswer>, ClientError> {
        self.optional(self.request(Method::GET, &["v1", "topics", topic])).await
    }

    /// Creates a topic, or changes the settings named in `settings` (a JSON object).
    pub async fn put_topic<S: Serialize>(
        &self,
        topic: &str,
        settings: &S,
    ) -> Result<TopicAnswer, ClientError> {
        let body = serde_json::to_vec(settings)?;
        let request = self.request(Method::PUT, &["v1", "topics", topic]);
        let response = self.call(request.header(CONTENT_TYPE, "application/json").body(body)).await?;
        self.answer(response).await
    }

    /// Deletes a topic with its events.
    pub async fn delete_topic(&self, topic: &str) -> Result<(), ClientError> {
        self.call(self.request(Method::DELETE, &["v1", "topics", topic])).await.map(drop)
    }
}
