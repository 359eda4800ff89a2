//! A client for a prombus hub: single calls over HTTP with a [`Client`], and a connection that stays with a [`Live`].
//!
//! The connection publishes and consumes over one WebSocket. It is made anew when it breaks, and nothing is lost or
//! doubled by that: see [`live`].
//!
//! ```no_run
//! # async fn example() -> Result<(), prombus_client::ClientError> {
//! use prombus_client::{Client, NewEvent};
//!
//! let client = Client::new("http://127.0.0.1:7070", None)?;
//! let event = NewEvent::of(&serde_json::json!({"status": "alive"}))?.with_key("web1");
//! let published = client.publish("process.state", &event).await?;
//! println!("{} is at offset {}", published.id, published.offset);
//! # Ok(())
//! # }
//! ```

mod collections;
mod commit;
mod dlq;
mod document;
mod drained;
mod error;
mod event;
mod groups;
mod health;
mod list;
pub mod live;
mod macros;
mod options;
mod parse;
mod pass_on;
mod projections;
mod publish;
mod read;
mod tail;
mod tls;
mod topics;
mod typed;

pub use collections::CollectionSettings;
pub use commit::{Ack, Commit, CommitError, Committed, CommittedEvent};
pub use dlq::DeadLetterQuery;
pub use document::{BadMinOffset, Document, GetOptions, Lookup, MinOffset};
pub use drained::DrainError;
pub use error::{ClientError, FailedEvent, FlushError, HubError};
pub use event::{Expect, NewEvent};
pub use groups::RawDelivery;
pub use list::{List, ListPage, ListPages};
pub use live::{
    ConsumeOptions, Consumer, Delivery, Live, LiveOptions, LiveState, Publisher, PublisherOptions, Receipt,
    Settled, SubscribeOptions, Subscription,
};
pub use options::{ClientOptions, Token};
pub use parse::ParseJson;
pub use pass_on::{PassedAnswer, PassedPath, PassedRead};
pub use prombus_wire::{
    AckRequest, CollectionAnswer, CollectionIndex, CollectionOwner, CursorAnswer, CursorPosition,
    CursorRequest, DeadLettersPage, DeliveryContext, DeliveryRecord, DryRun, EventRecord, EventsPage,
    ExtendRequest, GroupAnswer, GroupChangeRequest, GroupOptionsRequest, GroupPartition, IndexAnswer,
    IndexState, LeaseResult, MemberAnswer, NackRequest, PartitionBounds, ProjectionAnswer,
    ProjectionPartition, ProjectionState, Published, PublishedBatch, PullRequest, Pulled, RebuildAnswer,
    ReplayAnswer, ReplayRequest, SkipRequest, Skipped, SkippedLetter, Text, TopicAnswer, Waiting,
};
pub use read::{ReadFrom, ReadQuery};
#[doc(hidden)]
pub use serde_json;
pub use tail::{Tail, TailEvent, TailQuery};
pub use typed::{
    Durability, HandlerError, SchemaMode, Snapshot, Topic, TopicConfig, TypedPublisher, TypedSubscription,
    TypedTopic,
};

use reqwest::header::CONTENT_TYPE;
use reqwest::{Method, RequestBuilder, Response, Url};
use std::sync::Arc;
use std::time::Duration;

/// The port of an address that names none.
const DEFAULT_PORT: u16 = 80;
/// How long to wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a call that is not a stream may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// How often an idle connection is probed, so that a stream from a hub that vanished comes to an end.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Talks to one hub. Cheap to clone; clones share their connections.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
    token: Token,
    /// Only where the hub speaks TLS.
    tls: Option<Arc<rustls::ClientConfig>>,
}

impl Client {
    /// A client of the hub at `url`. Nothing is sent yet.
    pub fn new(url: &str, token: Option<&str>) -> Result<Self, ClientError> {
        let token = token.map(Token::fixed).unwrap_or_default();
        Self::with_options(url, ClientOptions::default().with_token(token))
    }

    /// A client of the hub at `url` with a token source, or certificates of its own. Nothing is sent yet.
    ///
    /// ```no_run
    /// # fn renewed() -> String { String::new() }
    /// # fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use prombus_client::{Client, ClientOptions, Token};
    ///
    /// let options = ClientOptions::default()
    ///     .with_token(Token::source(renewed))
    ///     .with_extra_ca(std::fs::read("ca.pem")?);
    /// let client = Client::with_options("https://hub.example:7070", options)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_options(url: &str, options: ClientOptions) -> Result<Self, ClientError> {
        let base = parse_base(url)?;
        let mut http = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_keepalive(KEEPALIVE)
            .tcp_nodelay(true);
        if is_loopback(&base) {
            // A proxy that the environment names would look for the hub on its own machine.
            http = http.no_proxy();
        }
        let mut tls = None;
        if base.scheme() == "https" {
            let config = tls::config(options.extra_ca.as_deref())?;
            http = http.tls_backend_preconfigured(config.clone());
            tls = Some(Arc::new(config));
        }
        let http = http.build().map_err(ClientError::Transport)?;
        Ok(Self { http, base, token: options.token, tls })
    }

    /// The hub's address.
    pub fn url(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// The hub's host and port, for those who want to make connections of their own.
    pub fn host_and_port(&self) -> String {
        let host = self.base.host_str().unwrap_or_default();
        format!("{host}:{}", self.base.port_or_known_default().unwrap_or(DEFAULT_PORT))
    }

    /// What comes before the path of every call, without a slash at its end.
    pub fn base_path(&self) -> &str {
        self.base.path().trim_end_matches('/')
    }

    /// A request whose path is made of `segments`, each of them escaped as needed.
    fn request(&self, method: Method, segments: &[&str]) -> RequestBuilder {
        let mut url = self.base.clone();
        // Only addresses that cannot have a path refuse, and those were refused at the start.
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        self.http.request(method, url)
    }

    /// The request with the token as it is now.
    async fn with_token(&self, request: RequestBuilder) -> Result<RequestBuilder, ClientError> {
        Ok(match self.token.now().await? {
            Some(token) => request.bearer_auth(token),
            None => request,
        })
    }

    /// The request with `body` as JSON.
    fn with_json<B: serde::Serialize + ?Sized>(
        request: RequestBuilder,
        body: &B,
    ) -> Result<RequestBuilder, ClientError> {
        Ok(request.header(CONTENT_TYPE, "application/json").body(serde_json::to_vec(body)?))
    }

    /// Sends a call that is answered in one piece.
    async fn call(&self, request: RequestBuilder) -> Result<Response, ClientError> {
        self.stream(request.timeout(CALL_TIMEOUT)).await
    }

    /// Sends a call that may take as long as its stream.
    async fn stream(&self, request: RequestBuilder) -> Result<Response, ClientError> {
        let request = self.with_token(request).await?;
        let response = request.send().await.map_err(|error| self.transport(error))?;
        if response.status().is_success() { Ok(response) } else { Err(error::from_response(response).await) }
    }

    /// The answer of a call that went well.
    async fn answer<A: serde::de::DeserializeOwned>(&self, response: Response) -> Result<A, ClientError> {
        let body = response.bytes().await.map_err(ClientError::Transport)?;
        serde_json::from_slice(&body).map_err(|error| ClientError::BadAnswer(error.to_string()))
    }

    fn transport(&self, error: reqwest::Error) -> ClientError {
        if error.is_connect() {
            ClientError::Unreachable { url: self.url().to_owned(), source: error }
        } else {
            ClientError::Transport(error)
        }
    }
}

fn parse_base(text: &str) -> Result<Url, ClientError> {
    let bad = |why: String| ClientError::BadUrl { url: text.to_owned(), why };
    let url = Url::parse(text).map_err(|error| bad(error.to_string()))?;
    match url.scheme() {
        "http" | "https" if !url.username().is_empty() || url.password().is_some() => {
            // The address must not be shown as it was given.
            let bare = format!("{}://{}", url.scheme(), url.host_str().unwrap_or_default());
            let why = "it has a user name or a password, which a hub does not know: give a token instead";
            Err(ClientError::BadUrl { url: bare, why: why.into() })
        }
        "http" | "https" if url.has_host() => Ok(url),
        "http" | "https" => Err(bad("it names no host".into())),
        other => Err(bad(format!("{other}: is neither http: nor https:"))),
    }
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_cannot_be_a_hub_are_refused() {
        for bad in ["", "127.0.0.1:7070", "localhost:7070", "ftp://hub", "http://", "https://", "unix:/x"] {
            assert!(matches!(Client::new(bad, None), Err(ClientError::BadUrl { .. })), "{bad}");
        }
        assert_eq!(Client::new("http://127.0.0.1:7070/", None).unwrap().url(), "http://127.0.0.1:7070");
        let secure = Client::new("https://hub", None).unwrap();
        assert_eq!((secure.url(), secure.host_and_port().as_str()), ("https://hub", "hub:443"));
        let behind = Client::new("http://hub/behind/", None).unwrap();
        assert_eq!(behind.url(), "http://hub/behind");
        assert_eq!((behind.host_and_port().as_str(), behind.base_path()), ("hub:80", "/behind"));
    }

    #[test]
    fn addresses_with_passwords_are_refused_and_not_shown() {
        for bad in ["http://user:secret@hub", "https://secret@hub:7070/x", "http://:secret@hub"] {
            let error = Client::new(bad, None).unwrap_err();
            assert!(error.to_string().contains("give a token"), "{error}");
            assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
        }
    }

    #[test]
    fn path_segments_are_escaped() {
        let client = Client::new("http://hub/behind", None).unwrap();
        let request =
            client.request(Method::GET, &["v1", "topics", "a", "keys", "x/y ?#%ö"]).build().unwrap();
        assert_eq!(request.url().path(), "/behind/v1/topics/a/keys/x%2Fy%20%3F%23%25%C3%B6");
    }

    #[test]
    fn loopback_is_known() {
        for (url, expected) in [
            ("http://127.0.0.1:1", true),
            ("http://[::1]:1", true),
            ("http://localhost", true),
            ("http://hub", false),
        ] {
            assert_eq!(is_loopback(&Url::parse(url).unwrap()), expected, "{url}");
        }
    }
}
