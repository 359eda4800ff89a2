//! Reads of a collection that are forwarded to the hub unchanged, with the answer returned as it is.

use crate::{Client, ClientError};
use bytes::Bytes;
use futures::{Stream, TryStreamExt};
use reqwest::Method;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use std::time::Duration;

/// How long the hub may take to begin an answer; it may wait for a projection first.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(30);

/// What is read of a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForwardedPath<'a> {
    /// The document with this key.
    Document(&'a str),
    /// Documents.
    List,
}

/// A read to forward.
#[derive(Debug, Clone)]
pub struct ForwardedRead<'a> {
    /// The collection.
    pub collection: &'a str,
    /// What to read.
    pub path: ForwardedPath<'a>,
    /// Whether it is a `HEAD` request.
    pub head: bool,
    /// The query string, unchanged.
    pub query: Option<&'a str>,
    /// Headers to forward, conditions above all.
    pub headers: Vec<(&'a str, &'a [u8])>,
}

/// The hub's answer, whatever its status.
pub struct ForwardedAnswer<S> {
    /// The status.
    pub status: u16,
    /// All headers.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The body.
    pub body: S,
}

impl Client {
    /// Forwards a read. An error answer of the hub is an answer too; this fails only if there is none.
    pub async fn forward(
        &self,
        read: &ForwardedRead<'_>,
    ) -> Result<ForwardedAnswer<impl Stream<Item = Result<Bytes, ClientError>> + Send + use<>>, ClientError>
    {
        let method = if read.head { Method::HEAD } else { Method::GET };
        let request = match read.path {
            ForwardedPath::Document(key) => self.snapshot(method, read.collection, key)?,
            ForwardedPath::List => self.request(method, &["v1", "collections", read.collection, "list"])?,
        };
        let request = self.with_token(request).await?.headers(headers(&read.headers));
        let mut request = request.build().map_err(ClientError::Transport)?;
        request.url_mut().set_query(read.query);
        let begun = tokio::time::timeout(BEGIN_TIMEOUT, self.http.execute(request)).await;
        let late = || ClientError::ConnectionLost(format!("no answer within {BEGIN_TIMEOUT:?}"));
        let response = begun.map_err(|_| late())?.map_err(|error| self.transport(error))?;
        let headers = response.headers().iter();
        Ok(ForwardedAnswer {
            status: response.status().as_u16(),
            headers: headers.map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect(),
            body: response.bytes_stream().map_err(ClientError::Transport),
        })
    }
}

/// The valid headers; invalid ones cannot occur.
fn headers(given: &[(&str, &[u8])]) -> HeaderMap {
    let header = |(name, value): &(&str, &[u8])| {
        Some((HeaderName::from_bytes(name.as_bytes()).ok()?, HeaderValue::from_bytes(value).ok()?))
    };
    let mut headers = HeaderMap::new();
    for (name, value) in given.iter().filter_map(header) {
        headers.append(name, value);
    }
    headers
}
