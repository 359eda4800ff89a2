//! Reading: pages, the whole range as a stream, and single events.

use crate::{Client, ClientError};
use bytes::Bytes;
use futures::{Stream, TryStreamExt};
use prombus_wire::{EventRecord, EventsPage};
use reqwest::header::ACCEPT;
use reqwest::{Method, RequestBuilder};
use serde::de::DeserializeOwned;

/// Where to start reading.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ReadFrom {
    /// At the earliest event.
    #[default]
    Earliest,
    /// After the last event.
    Latest,
    /// At the first event of each partition whose `ts` is at or after this.
    Ts(u64),
    /// After the event with this id.
    AfterId(String),
    /// At this offset.
    Offset(u64),
}

/// What to read of a topic.
#[derive(Debug, Clone, Default)]
pub struct ReadQuery {
    /// Where to start.
    pub from: ReadFrom,
    /// Only this partition.
    pub partition: Option<u32>,
    /// Only events of this key.
    pub key: Option<String>,
    /// Only events whose `ts` is at or before this.
    pub to_ts: Option<u64>,
    /// Only events that match this CEL expression.
    pub filter: Option<String>,
}

impl ReadFrom {
    pub(crate) fn parameters(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Earliest => vec![("from", "earliest".into())],
            Self::Latest => vec![("from", "latest".into())],
            Self::Ts(ts) => vec![("from", "ts".into()), ("ts", ts.to_string())],
            Self::AfterId(id) => vec![("from", "afterId".into()), ("afterId", id.clone())],
            Self::Offset(offset) => vec![("from", "offset".into()), ("offset", offset.to_string())],
        }
    }
}

impl ReadQuery {
    pub(crate) fn parameters(&self) -> Vec<(&'static str, String)> {
        let mut parameters = self.from.parameters();
        let mut add = |name, value: Option<String>| parameters.extend(value.map(|value| (name, value)));
        add("partition", self.partition.map(|partition| partition.to_string()));
        add("key", self.key.clone());
        add("toTs", self.to_ts.map(|ts| ts.to_string()));
        add("filter", self.filter.clone());
        parameters
    }
}

impl Client {
    /// The first page of the results of `query`.
    pub async fn read(
        &self,
        topic: &str,
        query: &ReadQuery,
        limit: usize,
    ) -> Result<EventsPage, ClientError> {
        let request = self.events(topic)?.query(&query.parameters()).query(&[("limit", limit)]);
        let response = self.call(request).await?;
        self.answer(response).await
    }

    /// The page at the `next` of the previous one.
    pub async fn read_next(&self, topic: &str, next: &str, limit: usize) -> Result<EventsPage, ClientError> {
        let request = self.events(topic)?.query(&[("cursor", next)]).query(&[("limit", limit)]);
        let response = self.call(request).await?;
        self.answer(response).await
    }

    /// All results of `query`, as a stream of NDJSON in arbitrary pieces.
    pub async fn export(
        &self,
        topic: &str,
        query: &ReadQuery,
    ) -> Result<impl Stream<Item = Result<Bytes, ClientError>> + use<>, ClientError> {
        let request = self.events(topic)?.query(&query.parameters()).header(ACCEPT, "application/x-ndjson");
        let response = self.stream(request).await?;
        Ok(response.bytes_stream().map_err(ClientError::Transport))
    }

    /// The event with this id, if there is one.
    pub async fn by_id(&self, topic: &str, id: &str) -> Result<Option<EventRecord>, ClientError> {
        self.optional(self.request(Method::GET, &["v1", "topics", topic, "events", id])?).await
    }

    /// The latest event of this key, if there is one.
    pub async fn latest(&self, topic: &str, key: &str) -> Result<Option<EventRecord>, ClientError> {
        self.optional(self.request(Method::GET, &["v1", "topics", topic, "keys", key])?).await
    }

    pub(crate) fn events(&self, topic: &str) -> Result<RequestBuilder, ClientError> {
        self.request(Method::GET, &["v1", "topics", topic, "events"])
    }

    pub(crate) async fn optional<A: DeserializeOwned>(
        &self,
        request: RequestBuilder,
    ) -> Result<Option<A>, ClientError> {
        match self.call(request).await {
            Ok(response) => self.answer(response).await.map(Some),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }
}
