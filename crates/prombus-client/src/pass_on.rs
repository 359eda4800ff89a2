//! Reads of a collection that are passed on: what was asked goes to the hub as it came, and so does the answer back.

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
pub enum PassedPath<'a> {
    /// The document with this key.
    Document(&'a str),
    /// Documents.
    List,
}

/// A read that somebody else has asked for.
#[derive(Debug, Clone)]
pub struct PassedRead<'a> {
    /// The collection.
    pub collection: &'a str,
    /// What is read of it.
    pub path: PassedPath<'a>,
    /// Whether only the head of the answer is wanted.
    pub head: bool,
    /// The query as it came.
    pub query: Option<&'a str>,
    /// Headers to send along, conditions above all.
    pub headers: Vec<(&'a str, &'a [u8])>,
}

/// What the hub answered, whatever it was.
pub struct PassedAnswer<S> {
    /// The status.
    pub status: u16,
    /// All headers.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The body.
    pub body: S,
}

impl Client {
    /// Passes a read on. An answer that says no is an answer too; an error is where there is none.
    pub async fn pass_on(
        &self,
        read: &PassedRead<'_>,
    ) -> Result<PassedAnswer<impl Stream<Item = Result<Bytes, ClientError>> + Send + use<>>, ClientError>
    {
        let method = if read.head { Method::HEAD } else { Method::GET };
        let request = match read.path {
            PassedPath::Document(key) => self.snapshot(method, read.collection, key)?,
            PassedPath::List => self.request(method, &["v1", "collections", read.collection, "list"]),
        };
        let request = self.with_token(request).await?.headers(headers(&read.headers));
        let mut request = request.build().map_err(ClientError::Transport)?;
        request.url_mut().set_query(read.query);
        let begun = tokio::time::timeout(BEGIN_TIMEOUT, self.http.execute(request)).await;
        let late = || ClientError::ConnectionLost(format!("no answer within {BEGIN_TIMEOUT:?}"));
        let response = begun.map_err(|_| late())?.map_err(|error| self.transport(error))?;
        let headers = response.headers().iter();
        Ok(PassedAnswer {
            status: response.status().as_u16(),
            headers: headers.map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect(),
            body: response.bytes_stream().map_err(ClientError::Transport),
        })
    }
}

/// Those that can be headers; others could not have come.
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
