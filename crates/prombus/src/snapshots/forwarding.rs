//! How a request is forwarded to the hub, and its answer returned.

use bytes::Bytes;
use futures::TryStreamExt;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use percent_encoding::percent_decode_str;
use prombus_client::{Client, ClientError, ForwardedPath, ForwardedRead};
use prombus_server::Hosts;
use prombus_wire::{ErrorBody, ErrorCode};
use serde_json::Map;

/// Headers of a request that the hub gets to see: what an answer depends on.
const ASKED: [HeaderName; 6] = [
    header::IF_NONE_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_MATCH,
    header::IF_UNMODIFIED_SINCE,
    header::ACCEPT,
    header::ORIGIN,
];
/// Headers of an answer that are about the connection that it came over.
const OF_THE_LINE: [HeaderName; 7] = [
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::TE,
    header::TRAILER,
    header::UPGRADE,
    header::PROXY_AUTHENTICATE,
    HeaderName::from_static("keep-alive"),
];
const ALLOWED: HeaderValue = HeaderValue::from_static("GET, HEAD");
/// When to come again where the hub is away, in seconds.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

type Answer = Response<UnsyncBoxBody<Bytes, ClientError>>;

/// The collection that is served, and the hub that has it.
pub struct Forwarder {
    pub client: Client,
    pub collection: String,
    /// The hosts that requests may be for.
    pub hosts: Hosts,
}

/// What a path stands for.
#[derive(Debug, PartialEq, Eq)]
enum Target {
    Document(String),
    List,
    /// A key that is no text.
    BadKey,
    Nothing,
}

fn target(path: &str) -> Target {
    if path == "/list" {
        return Target::List;
    }
    match path.strip_prefix("/snap/") {
        Some(key) if !key.contains('/') => match percent_decode_str(key).decode_utf8() {
            Ok(key) => Target::Document(key.into_owned()),
            Err(_) => Target::BadKey,
        },
        _ => Target::Nothing,
    }
}

impl Forwarder {
    /// Answers a request.
    pub async fn answer<B>(&self, request: &Request<B>) -> Answer {
        if let Err(message) = self.hosts.check(request.uri(), request.headers()) {
            return refusal(ErrorCode::Forbidden, message);
        }
        let path = request.uri().path();
        let target = target(path);
        if target == Target::Nothing {
            let message = format!("there is no {path} here, only /snap/{{key}} and /list");
            return refusal(ErrorCode::NotFound, message);
        }
        if ![Method::GET, Method::HEAD].contains(request.method()) {
            let message = format!("{} is not supported here: use GET or HEAD", request.method());
            let mut answer = refusal(ErrorCode::MethodNotAllowed, message);
            answer.headers_mut().insert(header::ALLOW, ALLOWED);
            return answer;
        }
        let path = match &target {
            Target::Document(key) => ForwardedPath::Document(key),
            Target::List => ForwardedPath::List,
            Target::BadKey | Target::Nothing => {
                return refusal(ErrorCode::BadRequest, "the key is not UTF-8".into());
            }
        };
        self.forward(request, path).await
    }

    async fn forward<B>(&self, request: &Request<B>, path: ForwardedPath<'_>) -> Answer {
        let asked = ASKED.iter().flat_map(|name| {
            let values = request.headers().get_all(name).iter();
            values.map(move |value| (name.as_str(), value.as_bytes()))
        });
        let read = ForwardedRead {
            collection: &self.collection,
            path,
            head: request.method() == Method::HEAD,
            query: request.uri().query(),
            headers: asked.collect(),
        };
        let answer = match self.client.forward(&read).await {
            Ok(answer) => answer,
            Err(error @ ClientError::BadKey(_)) => return refusal(ErrorCode::BadRequest, error.to_string()),
            Err(error) => return unavailable(&error),
        };
        let mut response = Response::new(StreamBody::new(answer.body.map_ok(Frame::data)).boxed_unsync());
        match StatusCode::from_u16(answer.status) {
            Ok(status) => *response.status_mut() = status,
            Err(_) => return unavailable(&ClientError::BadAnswer(format!("status {}", answer.status))),
        }
        for (name, value) in &answer.headers {
            // They came as headers, and so they can be.
            if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_bytes(value))
                && !OF_THE_LINE.contains(&name)
            {
                response.headers_mut().append(name, value);
            }
        }
        response
    }
}

fn unavailable(error: &ClientError) -> Answer {
    tracing::warn!(%error, "failed to forward a request");
    let mut answer = refusal(ErrorCode::Unavailable, error.to_string());
    answer.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
    answer
}

/// An error in the form that the hub's have.
fn refusal(error: ErrorCode, message: String) -> Answer {
    let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut body = serde_json::to_vec(&ErrorBody { error, message, details: Map::new() }).unwrap_or_default();
    body.push(b'\n');
    let body = Full::new(Bytes::from(body)).map_err(|never| match never {}).boxed_unsync();
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_documents_or_the_list_and_nothing_else() {
        let document = |key: &str| Target::Document(key.into());
        for (path, expected) in [
            ("/list", Target::List),
            ("/snap/a", document("a")),
            ("/snap/", document("")),
            ("/snap/a%2Fb%20%C3%B6", document("a/b ö")),
            ("/snap/..", document("..")),
            ("/snap/%FF", Target::BadKey),
            ("/snap/a/b", Target::Nothing),
            ("/snap/../list", Target::Nothing),
            ("/snap", Target::Nothing),
            ("/list/", Target::Nothing),
            ("/", Target::Nothing),
            ("/v1/topics", Target::Nothing),
        ] {
            assert_eq!(target(path), expected, "{path}");
        }
    }
}
