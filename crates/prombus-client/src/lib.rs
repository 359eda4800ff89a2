//! A client for a prombus hub: single calls over HTTP with a [`Client`], and a long-lived connection with a [`Live`].
//!
//! The connection publishes and consumes over one WebSocket. It reconnects automatically, without losing or duplicating
//! events: see [`live`].
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

mod backups;
mod collections;
mod commit;
mod dlq;
mod document;
mod drained;
mod error;
mod event;
mod forward;
mod groups;
mod health;
mod list;
pub mod live;
mod macros;
mod options;
mod parse;
mod projections;
mod publish;
mod read;
mod replays;
mod schemas;
mod states;
mod tail;
mod tls;
mod topics;
mod typed;
mod warm_up;

pub use backups::{BackupPiece, IncomingPiece};
pub use collections::CollectionSettings;
pub use commit::{Ack, Commit, CommitError};
pub use dlq::DeadLetterQuery;
pub use document::{BadMinOffset, Document, GetOptions, Lookup, MinOffset};
pub use drained::DrainError;
pub use error::{ClientError, FailedEvent, FlushError, HubError};
pub use event::{Expect, NewEvent};
pub use forward::{ForwardedAnswer, ForwardedPath, ForwardedRead};
pub use groups::RawDelivery;
pub use list::{List, ListPage, ListPages};
#[doc(hidden)]
pub use live::Backoff;
pub use live::{
    ConsumeOptions, Consumer, Delivery, Live, LiveOptions, LiveState, PendingPublish, Publisher,
    PublisherOptions, Settled, SubscribeOptions, Subscription,
};
pub use options::{ClientOptions, Token};
pub use parse::ParseJson;
pub use prombus_wire::{
    AckRequest, BackupAnswer, BackupFile, BulkReplayAnswer, BulkReplayError, BulkReplayMap,
    BulkReplayRequest, BulkReplaySource, BulkReplayState, CleanAnswer, CollectionAnswer, CollectionIndex,
    CollectionOwner, Committed, CursorAnswer, CursorPosition, CursorRequest, DeadLettersPage,
    DeliveryContext, DeliveryRecord, DryRun, Durability, ErrorCode, EventRecord, EventsPage, ExtendRequest,
    ForgetAnswer, GroupAnswer, GroupChangeRequest, GroupMode, GroupOptionsRequest, GroupOrdering,
    GroupPartition, Imported, IndexAnswer, IndexState, LeaseResult, MemberAnswer, NackRequest,
    PartitionBounds, ProjectionAnswer, ProjectionPartition, ProjectionState, Published, PublishedBatch,
    PullRequest, Pulled, RebuildAnswer, ReplayAnswer, ReplayRequest, SchemaAnswer, SchemaChecked, SchemaMode,
    SchemaRegistered, SchemaVersion, SchemaViolation, SkipRequest, Skipped, SkippedLetter, SnapshotAnswer,
    SnapshotRecord, StateAnswer, Text, TopicAnswer, TopicSchemas, TrimRequest, UpcasterAnswer, Waiting,
};
pub use read::{ReadFrom, ReadQuery};
pub use schemas::NewSchema;
#[doc(hidden)]
pub use serde_json;
pub use states::{Reduce, StateQuery};
pub use tail::{Tail, TailEvent, TailQuery};
pub use typed::{HandlerError, Snapshot, Topic, TopicConfig, TypedPublisher, TypedSubscription, TypedTopic};
pub use warm_up::{Change, WarmUp};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::CONTENT_TYPE;
use reqwest::{Method, RequestBuilder, Response, Url};
use std::sync::Arc;
use std::time::Duration;

/// The port of a URL without one.
const DEFAULT_PORT: u16 = 80;
/// How long to wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a call that is not a stream may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// What is escaped in a segment of a path.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// How often an idle connection is probed, so that a stream ends if its hub vanishes.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Talks to one hub. Cheap to clone; clones share their connections.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
    token: Token,
    /// Only if the hub uses TLS.
    tls: Option<Arc<rustls::ClientConfig>>,
}

impl Client {
    /// Creates a client of the hub at `url`. Nothing is sent yet.
    pub fn new(url: &str, token: Option<&str>) -> Result<Self, ClientError> {
        let token = token.map(Token::fixed).unwrap_or_default();
        Self::with_options(url, ClientOptions::default().with_token(token))
    }

    /// Creates a client with options, such as a token source or additional certificates. Nothing is sent yet.
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

    /// The hub's host and port, for callers that open their own connections.
    pub fn host_and_port(&self) -> String {
        let host = self.base.host_str().unwrap_or_default();
        format!("{host}:{}", self.base.port_or_known_default().unwrap_or(DEFAULT_PORT))
    }

    /// The prefix of the path of every call, without a trailing slash.
    pub fn base_path(&self) -> &str {
        self.base.path().trim_end_matches('/')
    }

    /// A request whose path consists of `segments`, each escaped as needed.
    fn request(&self, method: Method, segments: &[&str]) -> Result<RequestBuilder, ClientError> {
        let mut path = self.base_path().to_owned();
        for segment in segments {
            // However they are written, URLs take them for steps within the path.
            if [".", ".."].contains(segment) {
                return Err(ClientError::BadKey((*segment).to_owned()));
            }
            path.push('/');
            // URLs drop tabs and line breaks, so nothing is left to them.
            path.extend(utf8_percent_encode(segment, ESCAPED));
        }
        let mut url = self.base.clone();
        url.set_path(&path);
        Ok(self.http.request(method, url))
    }

    /// Adds the current token to the request.
    async fn with_token(&self, request: RequestBuilder) -> Result<RequestBuilder, ClientError> {
        Ok(match self.token.now().await? {
            Some(token) => request.bearer_auth(token),
            None => request,
        })
    }

    /// Adds `body` to the request, as JSON.
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

    /// Sends a call that may take as long as its stream lasts.
    async fn stream(&self, request: RequestBuilder) -> Result<Response, ClientError> {
        let request = self.with_token(request).await?;
        let response = request.send().await.map_err(|error| self.transport(error))?;
        if response.status().is_success() { Ok(response) } else { Err(error::from_response(response).await) }
    }

    /// The answer of a successful call.
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
    let text = text.trim();
    // A user name or a password must not be shown as it was given.
    let shown = text.rsplit_once('@').map_or(text, |(_, host)| host);
    let bad = |why: String| Err(ClientError::BadUrl { url: shown.to_owned(), why });
    let scheme = text.split_once("://").map_or("", |(scheme, _)| scheme);
    match scheme.to_ascii_lowercase().as_str() {
        "http" | "https" => {}
        "ws" => return bad(format!("write http://{}", without_ws(shown))),
        "wss" => return bad(format!("write https://{}", without_ws(shown))),
        "" if is_host(shown) => {
            let port = if has_port(shown) { "" } else { ":7070" };
            return bad(format!("write http://{shown}{port}, or https://{shown}{port} for a hub with TLS"));
        }
        "" => return bad(LIKE_THIS.to_owned()),
        other => return bad(format!("{other}:// is neither http:// nor https://; {LIKE_THIS}")),
    }
    let url = match Url::parse(text) {
        Ok(url) if url.has_host() => url,
        Ok(_) => return bad(format!("it has no host; {LIKE_THIS}")),
        Err(error) => return bad(format!("{error}; {LIKE_THIS}")),
    };
    if !url.username().is_empty() || url.password().is_some() {
        return bad("it has a user name or password, which hubs do not use: pass a token instead".into());
    }
    Ok(url)
}

/// What a URL should look like, if nothing more specific is known.
const LIKE_THIS: &str = "write something like http://127.0.0.1:7070";

/// Host and port of a WebSocket URL, whose path is not part of the hub's URL.
fn without_ws(address: &str) -> &str {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest).trim_end_matches('/');
    rest.strip_suffix("/ws").unwrap_or(rest)
}

/// Whether a host is followed by a port, or by a path, as behind a proxy.
fn has_port(host: &str) -> bool {
    host.rsplit(']').next().is_some_and(|rest| rest.contains([':', '/']))
}

/// Whether a URL lacks only its scheme, and possibly a port.
fn is_host(text: &str) -> bool {
    !text.is_empty() && Url::parse(&format!("http://{text}")).is_ok()
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
    fn an_address_that_is_nearly_right_is_told_how_to_write_it() {
        for (given, told) in [
            ("ws://hub:7070/ws", "write http://hub:7070"),
            ("WSS://hub/behind/ws", "write https://hub/behind"),
            ("wss://hub:7070/", "write https://hub:7070"),
            ("localhost:7070", "write http://localhost:7070, or https://localhost:7070"),
            ("127.0.0.1:7070", "write http://127.0.0.1:7070, or https"),
            ("hub.example", "write http://hub.example:7070, or https"),
            ("hub.example/behind", "write http://hub.example/behind, or https"),
            ("[::1]", "write http://[::1]:7070, or https"),
            ("[::1]:7070", "write http://[::1]:7070, or https"),
            (
                "ftp://hub",
                "ftp:// is neither http:// nor https://; write something like http://127.0.0.1:7070",
            ),
            ("", "write something like http://127.0.0.1:7070"),
            ("not a host", "write something like http://127.0.0.1:7070"),
            ("http://", "write something like http://127.0.0.1:7070"),
        ] {
            let error = Client::new(given, None).unwrap_err().to_string();
            assert!(error.contains(&format!("{given:?}")) && error.contains(told), "{error}");
        }
        assert_eq!(Client::new(" http://hub:7070\n", None).unwrap().url(), "http://hub:7070");
    }

    #[test]
    fn addresses_with_passwords_are_refused_and_not_shown() {
        for bad in
            ["ws://user:secret@hub/ws", "user:secret@hub", "ftp://user:secret@hub", "http://user:secret@:x"]
        {
            let error = Client::new(bad, None).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
        }
        for bad in ["http://user:secret@hub", "https://secret@hub:7070/x", "http://:secret@hub"] {
            let error = Client::new(bad, None).unwrap_err();
            assert!(error.to_string().contains("pass a token"), "{error}");
            assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
        }
    }

    #[test]
    fn path_segments_are_escaped() {
        let client = Client::new("http://hub/behind", None).unwrap();
        let request = client
            .request(Method::GET, &["v1", "topics", "a", "keys", "x/y ?#%ö\n\t\\"])
            .unwrap()
            .build()
            .unwrap();
        assert_eq!(request.url().path(), "/behind/v1/topics/a/keys/x%2Fy%20%3F%23%25%C3%B6%0A%09%5C");
        let refused = client.request(Method::GET, &["v1", "topics", "a", "keys", ".."]).unwrap_err();
        assert!(refused.to_string().contains("no URL can name"), "{refused}");
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
