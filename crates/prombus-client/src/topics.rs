//! Topics: listing, creating, changing, cleaning and deleting them.

use crate::{Client, ClientError};
use prombus_wire::{CleanAnswer, ForgetAnswer, PartitionBounds, TopicAnswer, Topics, TrimRequest};
use reqwest::Method;
use reqwest::header::CONTENT_TYPE;
use serde::Serialize;

impl Client {
    /// All topics, by name.
    pub async fn topics(&self) -> Result<Vec<TopicAnswer>, ClientError> {
        let response = self.call(self.request(Method::GET, &["v1", "topics"])?).await?;
        Ok(self.answer::<Topics>(response).await?.topics)
    }

    /// One topic, if it exists.
    pub async fn topic(&self, topic: &str) -> Result<Option<TopicAnswer>, ClientError> {
        self.optional(self.request(Method::GET, &["v1", "topics", topic])?).await
    }

    /// Creates a topic, or changes the settings named in `settings` (a JSON object).
    pub async fn put_topic<S: Serialize>(
        &self,
        topic: &str,
        settings: &S,
    ) -> Result<TopicAnswer, ClientError> {
        let body = serde_json::to_vec(settings)?;
        let request = self.request(Method::PUT, &["v1", "topics", topic])?;
        let response = self.call(request.header(CONTENT_TYPE, "application/json").body(body)).await?;
        self.answer(response).await
    }

    /// Does a cleaning pass over a topic now, and returns when it is done, however long that takes.
    pub async fn clean_topic(&self, topic: &str) -> Result<CleanAnswer, ClientError> {
        let response = self.stream(self.request(Method::POST, &["v1", "topics", topic, "clean"])?).await?;
        self.answer(response).await
    }

    /// Drops the events of a partition below an offset, and says what the partition holds then.
    pub async fn trim_topic(
        &self,
        topic: &str,
        request: &TrimRequest,
    ) -> Result<PartitionBounds, ClientError> {
        let call = self.request(Method::POST, &["v1", "topics", topic, "trim"])?;
        let response = self.stream(Self::with_json(call, request)?).await?;
        self.answer(response).await
    }

    /// Forgets a key of a topic for good, and says how many events that were. The bytes are off the disk after the next
    /// cleaning pass.
    pub async fn forget_key(&self, topic: &str, key: &str) -> Result<ForgetAnswer, ClientError> {
        let response =
            self.stream(self.request(Method::DELETE, &["v1", "topics", topic, "keys", key])?).await?;
        self.answer(response).await
    }

    /// Deletes a topic with its events.
    pub async fn delete_topic(&self, topic: &str) -> Result<(), ClientError> {
        self.call(self.request(Method::DELETE, &["v1", "topics", topic])?).await.map(drop)
    }
}
