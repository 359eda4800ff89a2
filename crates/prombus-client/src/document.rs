//! Documents of collections: one by its key, only if it has changed, or once an event of one's own has gone into it.

use crate::{Client, ClientError, Published};
use prombus_wire::ErrorCode;
use reqwest::header::{ETAG, IF_NONE_MATCH};
use reqwest::{Method, RequestBuilder, Response};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

/// The status of an answer that says that nothing has changed.
const NOT_MODIFIED: u16 = 304;

/// A document as it was read.
#[derive(Debug, Clone)]
pub struct Document {
    /// The document as the hub wrote it.
    pub json: Box<RawValue>,
    /// What stands for exactly this state of it, quotes included.
    pub etag: String,
}

impl Document {
    /// The document as a value.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, ClientError> {
        serde_json::from_str(self.json.get()).map_err(ClientError::BadPayload)
    }
}

/// What became of looking for a document.
#[derive(Debug, Clone)]
pub enum Lookup {
    /// It is there.
    Found(Document),
    /// It is there, and still what the ETag stands for.
    Unchanged,
    /// There is none with this key.
    Missing,
}

/// A place in a topic that the projection of a collection must have seen before the collection is read. As text it is
/// `7`, or `3:7` with the partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MinOffset {
    /// The partition; may be absent where the topic has one.
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

/// A text that names no place.
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

/// How a document is read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GetOptions {
    /// Only if it is not what this ETag stands for.
    pub unless: Option<String>,
    /// Only once the projection has seen this place, for which the hub waits up to five seconds.
    pub min_offset: Option<MinOffset>,
}

impl GetOptions {
    /// Only if it is not what this ETag stands for.
    #[must_use]
    pub fn unless(mut self, etag: impl Into<String>) -> Self {
        self.unless = Some(etag.into());
        self
    }

    /// Only once the projection has seen this place, for which the hub waits up to five seconds; past that, the error
    /// is `unavailable`, and the same call may work later.
    #[must_use]
    pub fn after(mut self, place: impl Into<MinOffset>) -> Self {
        self.min_offset = Some(place.into());
        self
    }
}

impl Client {
    /// A document, if there is one.
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

    /// A document, only if it has changed, or only once an event has gone into it.
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
        // An address with such a part is another address, and that is no secret to those in between either.
        if [".", ".."].contains(&key) {
            return Err(ClientError::BadKey(key.to_owned()));
        }
        Ok(self.request(method, &["v1", "collections", collection, "snap", key]))
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
