//! Consumer groups: pulling and settling deliveries, status, cursors, and deleting groups.

use crate::{CALL_TIMEOUT, Client, ClientError};
use prombus_wire::{
    AckAnswer, AckRequest, CursorAnswer, CursorRequest, DeliveryContext, GroupAnswer, GroupChangeRequest,
    GroupOptionsRequest, Groups, LeaseResult, PullRequest, Pulled, SkipRequest, Skipped, Text,
};
use reqwest::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::time::Duration;

/// A delivery whose event is the JSON text that the hub sent, for callers that only pass it on.
#[derive(Debug, Clone, Deserialize)]
pub struct RawDelivery {
    /// The event.
    pub event: Box<RawValue>,
    /// The context of the delivery.
    pub ctx: DeliveryContext,
}

#[derive(Deserialize)]
struct RawPulled {
    deliveries: Vec<RawDelivery>,
}

impl Client {
    /// Pulls events as a member of a group, which is created if it does not exist. Each delivery is a lease: an event
    /// that is not settled in time is redelivered.
    pub async fn pull(&self, topic: &str, group: &str, request: &PullRequest) -> Result<Pulled, ClientError> {
        self.pull_as(topic, group, request).await
    }

    /// The same as [`Client::pull`], with the events as text.
    pub async fn pull_raw(
        &self,
        topic: &str,
        group: &str,
        request: &PullRequest,
    ) -> Result<Vec<RawDelivery>, ClientError> {
        Ok(self.pull_as::<RawPulled>(topic, group, request).await?.deliveries)
    }

    async fn pull_as<A: DeserializeOwned>(
        &self,
        topic: &str,
        group: &str,
        request: &PullRequest,
    ) -> Result<A, ClientError> {
        // The hub may take all the time that it was given before it even starts to answer.
        let waits = Duration::from_millis(request.wait_ms.unwrap_or(0));
        let call = self.request(Method::POST, &["v1", "topics", topic, "groups", group, "pull"])?;
        let call = Self::with_json(call, request)?.timeout(CALL_TIMEOUT.saturating_add(waits));
        let response = self.stream(call).await?;
        self.answer(response).await
    }

    /// Acks, nacks and extends leases. The results are in the order given: acks, then nacks, then extends.
    pub async fn settle(
        &self,
        topic: &str,
        group: &str,
        request: &AckRequest<'_>,
    ) -> Result<Vec<LeaseResult>, ClientError> {
        let call = self.request(Method::POST, &["v1", "topics", topic, "groups", group, "ack"])?;
        let response = self.call(Self::with_json(call, request)?).await?;
        Ok(self.answer::<AckAnswer>(response).await?.results)
    }

    /// Acks leases. It is safe to repeat if the answer was lost.
    pub async fn ack<'l>(
        &self,
        topic: &str,
        group: &str,
        leases: impl IntoIterator<Item = &'l str>,
    ) -> Result<Vec<LeaseResult>, ClientError> {
        let ack = leases.into_iter().map(|lease| Text(Cow::Borrowed(lease))).collect();
        self.settle(topic, group, &AckRequest { ack, ..AckRequest::default() }).await
    }

    /// All groups of a topic, by name.
    pub async fn groups(&self, topic: &str) -> Result<Vec<GroupAnswer>, ClientError> {
        let response = self.call(self.request(Method::GET, &["v1", "topics", topic, "groups"])?).await?;
        Ok(self.answer::<Groups>(response).await?.groups)
    }

    /// One group, if it exists.
    pub async fn group(&self, topic: &str, group: &str) -> Result<Option<GroupAnswer>, ClientError> {
        self.optional(self.request(Method::GET, &["v1", "topics", topic, "groups", group])?).await
    }

    /// Creates a group. If it exists, it must have the same options.
    pub async fn put_group(
        &self,
        topic: &str,
        group: &str,
        options: &GroupOptionsRequest,
    ) -> Result<GroupAnswer, ClientError> {
        let call = self.request(Method::PUT, &["v1", "topics", topic, "groups", group])?;
        let response = self.call(Self::with_json(call, options)?).await?;
        self.answer(response).await
    }

    /// Changes options of a group for all later deliveries; omitted options stay as they are. Consumers stay connected.
    pub async fn alter_group(
        &self,
        topic: &str,
        group: &str,
        change: &GroupChangeRequest,
    ) -> Result<GroupAnswer, ClientError> {
        let call = self.request(Method::PATCH, &["v1", "topics", topic, "groups", group])?;
        let response = self.call(Self::with_json(call, change)?).await?;
        self.answer(response).await
    }

    /// Deletes a group and its position.
    pub async fn delete_group(&self, topic: &str, group: &str) -> Result<(), ClientError> {
        self.call(self.request(Method::DELETE, &["v1", "topics", topic, "groups", group])?).await.map(drop)
    }

    /// The position of a group.
    pub async fn cursor(&self, topic: &str, group: &str) -> Result<CursorAnswer, ClientError> {
        let call = self.request(Method::GET, &["v1", "topics", topic, "groups", group, "cursor"])?;
        let response = self.call(call).await?;
        self.answer(response).await
    }

    /// Resets the position of a group, and returns the new one. Its open leases become void. In a dry run nothing
    /// changes, and the answer says what would be delivered.
    pub async fn set_cursor(
        &self,
        topic: &str,
        group: &str,
        request: &CursorRequest,
    ) -> Result<CursorAnswer, ClientError> {
        let call = self.request(Method::PUT, &["v1", "topics", topic, "groups", group, "cursor"])?;
        let response = self.call(Self::with_json(call, request)?).await?;
        self.answer(response).await
    }

    /// Settles one stuck event.
    pub async fn skip(
        &self,
        topic: &str,
        group: &str,
        request: &SkipRequest,
    ) -> Result<Skipped, ClientError> {
        let call = self.request(Method::POST, &["v1", "topics", topic, "groups", group, "skip"])?;
        let response = self.call(Self::with_json(call, request)?).await?;
        self.answer(response).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_events_keep_every_byte() {
        let event = r#"{"id":"i","new":1,"payload":{"n":1.10,"b":12345678901234567890123,"e":"\u00e9"}}"#;
        let ctx = r#"{"attempt":2,"maxAttempts":5,"ack_deadline_ms":30000,"lease":"l"}"#;
        let text = format!(r#"{{"deliveries":[{{"event":{event},"ctx":{ctx}}}]}}"#);
        let pulled: RawPulled = serde_json::from_str(&text).unwrap();
        assert_eq!(pulled.deliveries[0].event.get(), event);
        assert_eq!(serde_json::to_string(&pulled.deliveries[0].ctx).unwrap(), ctx);
    }
}
