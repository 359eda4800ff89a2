//! The errors of calls.

use crate::tls;
use prombus_wire::ErrorCode;
use serde_json::{Map, Value};
use std::fmt;

/// The status of a request that arrived too slowly.
const REQUEST_TIMEOUT: u16 = 408;
/// The status of a rate-limited request.
const TOO_MANY: u16 = 429;

/// Why a call failed.
#[derive(thiserror::Error)]
pub enum ClientError {
    /// The URL is not that of a hub.
    #[error("{url:?} is not the address of a hub: {why}")]
    BadUrl {
        /// The given URL.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// No hub answers there.
    #[error("{}", unreached(url, source))]
    Unreachable {
        /// The URL of the hub.
        url: String,
        /// Why the connection failed.
        source: reqwest::Error,
    },
    /// The connection failed during the call.
    #[error("the connection to the hub failed: {}", root_cause(.0))]
    Transport(#[source] reqwest::Error),
    /// The hub refused.
    #[error(transparent)]
    Hub(Box<HubError>),
    /// The answer is not that of a hub.
    #[error("unexpected answer ({0}); is the hub a different version?")]
    BadAnswer(String),
    /// The connection cannot be established.
    #[error("no connection to the hub at {url}: {why}")]
    NoConnection {
        /// The URL of the hub.
        url: String,
        /// The reason.
        why: String,
    },
    /// The token source has none yet.
    #[error("there is no token yet: {0}")]
    NoToken(String),
    /// The connection broke before the hub had answered. The request may have taken effect.
    #[error("the connection to the hub broke before this was answered: {0}")]
    ConnectionLost(String),
    /// A publisher could not publish some events.
    #[error(transparent)]
    NotPublished(Box<FlushError>),
    /// The connection was closed, or the client gave up.
    #[error("the connection to the hub has ended: {0}")]
    Ended(String),
    /// A certificate cannot be used.
    #[error("the certificate cannot be used: {0}; give it as PEM, with its BEGIN and END lines")]
    BadCertificate(String),
    /// A value cannot be serialised to JSON.
    #[error("this cannot be sent as JSON: {0}")]
    BadInput(#[from] serde_json::Error),
    /// A payload or document does not match the requested type.
    #[error("the JSON does not match the requested type: {0}")]
    BadPayload(#[source] serde_json::Error),
    /// A key, or another name, cannot be part of a URL.
    #[error("no URL can name {0:?}; a document with this key can be listed with _key={0}")]
    BadKey(String),
}

/// The same as `Display`, because this is what is shown if `main` returns the error.
impl fmt::Debug for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Events that a publisher could not publish.
#[derive(Debug, thiserror::Error)]
#[error("{} not published; the first: {}", how_many(self), first_of(self))]
pub struct FlushError {
    /// The first 1,000 events that failed, in order.
    pub failed: Vec<FailedEvent>,
    /// How many more failed.
    pub more: u64,
}

/// An event that could not be published.
#[derive(Debug)]
pub struct FailedEvent {
    /// Its id. Publishing it again with that id creates no duplicate.
    pub id: String,
    /// Why it failed.
    pub error: ClientError,
}

impl FlushError {
    /// How many events failed.
    pub fn count(&self) -> u64 {
        self.failed.len() as u64 + self.more
    }
}

impl From<FlushError> for ClientError {
    fn from(error: FlushError) -> Self {
        Self::NotPublished(Box::new(error))
    }
}

fn how_many(error: &FlushError) -> String {
    match error.count() {
        1 => "1 event was".to_owned(),
        count => format!("{count} events were"),
    }
}

fn first_of(error: &FlushError) -> String {
    error.failed.first().map_or_else(String::new, |FailedEvent { id, error }| format!("{id}: {error}"))
}

/// An error returned by the hub.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message} ({code})")]
pub struct HubError {
    /// The HTTP status.
    pub status: u16,
    /// The error code, such as `not_found`.
    pub code: String,
    /// What is wrong and what to do.
    pub message: String,
    /// All other fields of the answer.
    pub details: Map<String, Value>,
}

impl HubError {
    /// A number among the details.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.details.get(name)?.as_u64()
    }

    /// The error for a code of the hub.
    pub(crate) fn of_code(code: ErrorCode, message: impl Into<String>) -> Self {
        let (status, code) = (code.status(), code.as_str().to_owned());
        Self { status, code, message: message.into(), details: Map::new() }
    }

    /// Whether the outcome of the request is unknown.
    pub fn is_outcome_unknown(&self) -> bool {
        self.details.get("outcome").is_some_and(|outcome| outcome == "unknown")
    }

    /// Whether a lease has expired, was already settled, or was superseded.
    pub(crate) fn is_lease_expired(&self) -> bool {
        self.code == ErrorCode::LeaseExpired.as_str()
    }

    /// Whether the same call is likely to succeed shortly, without intervention: see [`ErrorCode::is_retryable`].
    pub fn is_retryable(&self) -> bool {
        ErrorCode::parse(&self.code).is_some_and(ErrorCode::is_retryable)
    }

    /// Whether the same call may succeed later.
    pub fn is_temporary(&self) -> bool {
        self.status >= 500 || [REQUEST_TIMEOUT, TOO_MANY].contains(&self.status)
    }
}

impl ClientError {
    /// The hub's error, if the hub refused; for several events, that of the first.
    pub fn hub(&self) -> Option<&HubError> {
        match self {
            Self::Hub(error) => Some(error),
            Self::NotPublished(error) => error.failed.first()?.error.hub(),
            _ => None,
        }
    }

    /// Whether the hub has refused with this code.
    pub fn is_code(&self, code: ErrorCode) -> bool {
        self.hub().is_some_and(|hub| hub.code == code.as_str())
    }

    /// Whether the same call may succeed later: the hub is down, starting or busy.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::NoConnection { .. } | Self::NoToken(_) | Self::ConnectionLost(_) => true,
            // The wrong scheme, and a certificate that is not trusted, are the same the next time.
            Self::Unreachable { source, .. } => tls::explain(source).is_none(),
            // What cannot even be sent (a token with a line end, say) does not get better.
            Self::Transport(error) => !error.is_builder() && !error.is_redirect(),
            Self::Hub(error) => error.is_temporary(),
            Self::NotPublished(error) => error.failed.iter().all(|failed| failed.error.is_temporary()),
            Self::BadUrl { .. }
            | Self::BadAnswer(_)
            | Self::BadInput(_)
            | Self::BadPayload(_)
            | Self::BadKey(_)
            | Self::Ended(_)
            | Self::BadCertificate(_) => false,
        }
    }

    /// Whether waiting is all that is needed: the hub is down or busy.
    pub fn is_retryable(&self) -> bool {
        self.is_temporary() && self.hub().is_none_or(HubError::is_retryable)
    }

    /// Whether the call may have taken effect despite the error: the hub does not know the outcome, or its answer was
    /// lost. A publish or commit with an id can be repeated safely.
    pub fn is_outcome_unknown(&self) -> bool {
        match self {
            Self::Hub(error) => error.is_outcome_unknown(),
            Self::NotPublished(error) => error.failed.iter().any(|failed| failed.error.is_outcome_unknown()),
            Self::ConnectionLost(_) | Self::Ended(_) | Self::BadAnswer(_) => true,
            // What was never sent has not happened.
            Self::Transport(error) => !error.is_builder() && !error.is_redirect(),
            Self::Unreachable { .. }
            | Self::NoConnection { .. }
            | Self::NoToken(_)
            | Self::BadUrl { .. }
            | Self::BadInput(_)
            | Self::BadPayload(_)
            | Self::BadKey(_)
            | Self::BadCertificate(_) => false,
        }
    }

    /// Whether the hub says that something does not exist.
    pub fn is_not_found(&self) -> bool {
        self.hub().is_some_and(|error| error.status == 404)
    }
}

fn unreached(url: &str, error: &reqwest::Error) -> String {
    match tls::explain(error) {
        Some(why) => format!("no connection to the hub at {url}: {why}"),
        None => format!("no hub answers at {url}: is it running? ({})", root_cause(error)),
    }
}

/// The innermost reason, which is the informative one.
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

/// The error in an answer.
pub(crate) async fn from_response(response: reqwest::Response) -> ClientError {
    let status = response.status().as_u16();
    match response.bytes().await {
        Ok(body) => ClientError::Hub(Box::new(parse(status, &body))),
        Err(error) => ClientError::Transport(error),
    }
}

pub(crate) fn parse(status: u16, body: &[u8]) -> HubError {
    let mut details: Map<String, Value> = serde_json::from_slice(body).unwrap_or_default();
    let mut text = |name: &str| match details.remove(name) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    };
    // Something between us and the hub may answer too, in its own words.
    let code = text("error").unwrap_or_else(|| format!("http_{status}"));
    let message = text("message").unwrap_or_else(|| format!("the hub answered with status {status}"));
    HubError { status, code, message, details }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_hub_keep_code_message_and_details() {
        let error = parse(400, br#"{"error":"bad_json","message":"line 3 is not JSON","count":2,"line":3}"#);
        assert_eq!(error.to_string(), "line 3 is not JSON (bad_json)");
        assert_eq!(
            (error.number("count"), error.number("line"), error.number("x")),
            (Some(2), Some(3), None)
        );
    }

    #[test]
    fn a_main_that_returns_an_error_shows_its_message() {
        let refused = ClientError::Hub(Box::new(parse(404, br#"{"error":"not_found","message":"no"}"#)));
        for error in [refused, ClientError::BadKey("..".into()), ClientError::NoToken("none".into())] {
            assert_eq!(format!("{error:?}"), error.to_string());
        }
    }

    #[test]
    fn what_is_asked_wrongly_does_not_get_better() {
        for (status, temporary) in
            [(400, false), (401, false), (404, false), (408, true), (409, false), (429, true), (503, true)]
        {
            let error = ClientError::Hub(Box::new(parse(status, b"{}")));
            assert_eq!(error.is_temporary(), temporary, "{status}");
        }
        assert!(!ClientError::BadAnswer(String::new()).is_temporary());
    }

    #[test]
    fn only_what_passes_by_itself_is_asked_again() {
        let asked = [ErrorCode::RateLimited, ErrorCode::Unavailable];
        let told = [ErrorCode::DiskFull, ErrorCode::Internal, ErrorCode::BadRequest, ErrorCode::Forbidden];
        let is_retryable =
            |code: &ErrorCode| ClientError::Hub(Box::new(HubError::of_code(*code, "m"))).is_retryable();
        assert!(asked.iter().all(is_retryable) && !told.iter().any(is_retryable));
        assert!(ClientError::ConnectionLost(String::new()).is_retryable());
    }

    #[test]
    fn an_outcome_is_unknown_where_the_hub_says_so_or_its_answer_is_lost() {
        let unknown = br#"{"error":"unavailable","message":"m","outcome":"unknown"}"#;
        for (error, expected) in [
            (ClientError::Hub(Box::new(parse(503, unknown))), true),
            (ClientError::Hub(Box::new(parse(503, br#"{"error":"unavailable","message":"m"}"#))), false),
            (ClientError::ConnectionLost(String::new()), true),
            (ClientError::BadKey(String::new()), false),
        ] {
            assert_eq!(error.is_outcome_unknown(), expected, "{error}");
        }
    }

    #[test]
    fn a_flush_says_how_many_failed_and_why_the_first_did() {
        let refused = || ClientError::Hub(Box::new(HubError::of_code(ErrorCode::DiskFull, "no room")));
        let one = FlushError { failed: vec![FailedEvent { id: "a".into(), error: refused() }], more: 0 };
        assert_eq!(one.to_string(), "1 event was not published; the first: a: no room (disk_full)");
        let many = FlushError { more: 6, ..one };
        let error = ClientError::from(many);
        assert!(error.to_string().starts_with("7 events were not published"), "{error}");
        assert!(error.is_temporary() && !error.is_outcome_unknown());
        assert_eq!(error.hub().unwrap().code, "disk_full");
    }

    #[test]
    fn answers_of_others_are_still_errors() {
        let error = parse(502, b"<html>Bad Gateway</html>");
        assert_eq!(error.to_string(), "the hub answered with status 502 (http_502)");
    }
}
