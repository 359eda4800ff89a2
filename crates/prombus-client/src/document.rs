//! Reading a document by its key: unconditionally, only if it has changed, or once a projection has processed an event.

use crate::{Client, ClientError, Published};
use prombus_wire::ErrorCode;
use reqwest::header::{ETAG, IF_NONE_MATCH};
use reqwest::{Method, RequestBuilder, Response};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

/// The status of an answer for an unchanged document.
const NOT_MODIFIED: u16 = 304;

/// A document as it was read.
#[derive(Debug, Clone)]
pub struct Document {
    /// The document as the hub wrote it.
    pub json: Box<RawValue>,
    /// Identifies exactly this state of it; with the quotes.
    pub etag: String,
}

impl Document {
    /// The document as a value.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, ClientError> {
        serde_json::from_str(self.json.get()).map_err(ClientError::BadPayload)
    }
}

/// The result of reading a document.
#[derive(Debug, Clone)]
pub enum Lookup {
    /// It exists.
    Found(Document),
    /// It exists, and has not changed since the given ETag.
    Unchanged,
    /// There is no document with this key.
    Missing,
}

/// An offset that a collection's projection must have processed before the collection is read. As text it is `7`, or
/// `3:7` with the partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MinOffset {
    /// The partition; may be omitted if the topic has only one.
    pub partition: Option<u32>,
    /// The offset.
    pub offset: u64,
}

impl From<&Published> for MinOffset {
    fn from(published: &Published) -> Self {
        Self { partition: Some(published.partition), offset: published.offset }
    }
}

impl fmt::Display for MinOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.partition {
            Some(partition) => write!(f, "{partition}:{}", self.offset),
            None => write!(f, "{}", self.offset),
        }
    }
}

/// A text that is not an offset.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an offset: write it as 7, or as 3:7 for offset 7 of partition 3")]
pub struct BadMinOffset(String);

impl FromStr for MinOffset {
    type Err = BadMinOffset;

    fn from_str(text: &str) -> Result<Self, BadMinOffset> {
        let parse = || -> Result<Self, ParseIntError> {
            Ok(match text.split_once(':') {
                Some((partition, offset)) => {
                    Self { partition: Some(partition.parse()?), offset: offset.parse()? }
                }
                None => Self { partition: None, offset: text.parse()? },
            })
        };
        parse().map_err(|_| BadMinOffset(text.to_owned()))
    }
}

/// Conditions for reading a document.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GetOptions {
    /// Only if its ETag is different from this one.
    pub unless: Option<String>,
    /// Only once the projection has processed this offset; the hub waits up to five seconds.
    pub min_offset: Option<MinOffset>,
    /// As it was at this time, in epoch milliseconds.
    pub at: Option<u64>,
}

impl GetOptions {
    /// As it was at this time, in epoch milliseconds: after the last event with that time or an earlier one. Only documents of
    /// changelog projections have a past, where they have the key of their events. The error is `gone` if retention or
    /// compaction has taken events that this needs.
    #[must_use]
    pub fn at(mut self, ts: u64) -> Self {
        self.at = Some(ts);
        self
    }

    /// Only if its ETag is different from this one.
    #[must_use]
    pub fn unless(mut self, etag: impl Into<String>) -> Self {
        self.unless = Some(etag.into());
        self
    }

    /// Only once the projection has processed this offset. The hub waits up to five seconds; after that, the error is
    /// `unavailable`, and the same call may succeed later.
    #[must_use]
    pub fn after(mut self, place: impl Into<MinOffset>) -> Self {
        self.min_offset = Some(place.into());
        self
    }
}

impl Client {
    /// Reads a document, if it exists.
    ///
    /// ```no_run
    /// # async fn example(client: prombus_client::Client) -> Result<(), prombus_client::ClientError> {
    /// if let Some(document) = client.get("processes", "web1:stt:4242").await? {
    ///     let process: serde_json::Value = document.parse()?;
    ///     println!("{} ({})", process["status"], document.etag);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn get(&self, collection: &str, key: &str) -> Result<Option<Document>, ClientError> {
        match self.get_with(collection, key, &GetOptions::default()).await? {
            Lookup::Found(document) => Ok(Some(document)),
            Lookup::Unchanged | Lookup::Missing => Ok(None),
        }
    }

    /// Reads a document, only if it has changed, or only once the projection has processed an event.
    ///
    /// ```no_run
    /// # async fn example(client: prombus_client::Client) -> Result<(), prombus_client::ClientError> {
    /// use prombus_client::{GetOptions, Lookup, NewEvent};
    ///
    /// let event = NewEvent::of(&serde_json::json!({"processId": "web1", "status": "alive"}))?.with_key("web1");
    /// let published = client.publish("process.state", &event).await?;
    /// let seen = GetOptions::default().after(&published);
    /// if let Lookup::Found(document) = client.get_with("processes", "web1", &seen).await? {
    ///     let again = GetOptions::default().unless(document.etag);
    ///     match client.get_with("processes", "web1", &again).await? {
    ///         Lookup::Found(newer) => println!("now {}", newer.json),
    ///         Lookup::Unchanged => println!("as it was"),
    ///         Lookup::Missing => println!("gone"),
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn get_with(
        &self,
        collection: &str,
        key: &str,
        options: &GetOptions,
    ) -> Result<Lookup, ClientError> {
        let mut request = self.snapshot(Method::GET, collection, key)?;
        if let Some(place) = options.min_offset {
            request = request.query(&[("min_offset", place.to_string())]);
        }
        if let Some(at) = options.at {
            request = request.query(&[("at", at)]);
        }
        if let Some(etag) = &options.unless {
            request = request.header(IF_NONE_MATCH, etag);
        }
        match self.call(request).await {
            Ok(response) => self.document(response).await.map(Lookup::Found),
            Err(error) => match error.hub() {
                Some(hub) if hub.status == NOT_MODIFIED => Ok(Lookup::Unchanged),
                Some(hub) if hub.code == ErrorCode::NotFound.as_str() => Ok(Lookup::Missing),
                _ => Err(error),
            },
        }
    }

    /// A request for a document.
    pub(crate) fn snapshot(
        &self,
        method: Method,
        collection: &str,
        key: &str,
    ) -> Result<RequestBuilder, ClientError> {
        self.request(method, &["v1", "collections", collection, "snap", key])
    }

    async fn document(&self, response: Response) -> Result<Document, ClientError> {
        let etag = response.headers().get(ETAG).and_then(|etag| etag.to_str().ok()).map(str::to_owned);
        let etag = etag.ok_or_else(|| ClientError::BadAnswer("a document without an ETag".into()))?;
        Ok(Document { json: self.answer(response).await?, etag })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_written_as_they_are_read() {
        for (text, partition, offset) in [("7", None, 7), ("3:7", Some(3), 7), ("0:0", Some(0), 0)] {
            let place: MinOffset = text.parse().unwrap();
            assert_eq!(place, MinOffset { partition, offset });
            assert_eq!(place.to_string(), text);
        }
        for bad in ["", "x", "-1", ":7", "3:", "3:7:1", "4294967296:1", "18446744073709551616"] {
            let error = bad.parse::<MinOffset>().unwrap_err();
            assert!(error.to_string().contains("3:7"), "{error}");
        }
    }

    #[test]
    fn keys_are_escaped_and_those_that_cannot_be_are_told() {
        let client = Client::new("http://hub", None).unwrap();
        let path = |key: &str| {
            let request = client.snapshot(Method::GET, "c", key).unwrap().build().unwrap();
            request.url().path().to_owned()
        };
        assert_eq!(path("a/b\\c ?%ö"), "/v1/collections/c/snap/a%2Fb%5Cc%20%3F%25%C3%B6");
        assert_eq!(path(""), "/v1/collections/c/snap/");
        for key in [".", ".."] {
            let error = client.snapshot(Method::GET, "c", key).unwrap_err();
            assert!(error.to_string().contains("_key"), "{error}");
        }
    }
}
