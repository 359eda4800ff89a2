//! How a request says that it comes from another hub, for whom, and that this is true; and how an answer does.

use super::trust::{Parties, Said};
use crate::auth::{Caller, ToldCaller};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;

/// Who forwards it, and its tag.
pub(crate) const FORWARD: HeaderName = HeaderName::from_static("x-prombus-forward");
/// For whom.
pub(crate) const CALLER: HeaderName = HeaderName::from_static("x-prombus-caller");
/// The tag of an answer.
pub(crate) const ANSWER: HeaderName = HeaderName::from_static("x-prombus-answer");
/// That the request had no effect, and why: it is to be sent again, there or elsewhere.
pub(crate) const NOT_BEGUN: HeaderName = HeaderName::from_static("x-prombus-not-begun");
/// The hub that answers does not have the topic.
pub(crate) const MOVED: HeaderValue = HeaderValue::from_static("moved");
/// The key is too old.
pub(crate) const STALE: HeaderValue = HeaderValue::from_static("stale");

/// The headers that routes about topics read. Only these are carried, under the tag, so that no other has any effect.
const CARRIED: [HeaderName; 8] = [
    header::ACCEPT,
    header::CONTENT_TYPE,
    header::CONTENT_ENCODING,
    header::IF_MATCH,
    header::IF_NONE_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_UNMODIFIED_SINCE,
    HeaderName::from_static("last-event-id"),
];

/// Those by which a connection becomes a WebSocket. They are the connection's own, and say nothing of what is asked.
const UPGRADE: [HeaderName; 4] =
    [header::CONNECTION, header::UPGRADE, header::SEC_WEBSOCKET_KEY, header::SEC_WEBSOCKET_VERSION];

/// The headers of a request that go with it to another hub.
pub(crate) fn carried(headers: &HeaderMap) -> HeaderMap {
    only(&CARRIED, headers)
}

/// The headers by which a request opens a WebSocket.
pub(crate) fn upgrade_headers(headers: &HeaderMap) -> HeaderMap {
    only(&UPGRADE, headers)
}

fn only(names: &[HeaderName], headers: &HeaderMap) -> HeaderMap {
    let mut some = HeaderMap::new();
    for name in names {
        for value in headers.get_all(name) {
            some.append(name, value.clone());
        }
    }
    some
}

/// What [`FORWARD`] says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Told {
    pub from: String,
    pub nonce: String,
    pub challenge: String,
    pub count: u64,
    pub digest: String,
    pub tag: String,
}

impl Told {
    pub fn parse(headers: &HeaderMap) -> Option<(Self, &str)> {
        let one = |name: HeaderName| {
            let mut values = headers.get_all(name).iter();
            let value = values.next()?.to_str().ok()?;
            values.next().is_none().then_some(value)
        };
        let mut parts = one(FORWARD)?.split(' ');
        let mut next = || parts.next().map(str::to_owned);
        let told = Self {
            from: next()?,
            nonce: next()?,
            challenge: next()?,
            count: next()?.parse().ok()?,
            digest: next()?,
            tag: next()?,
        };
        (parts.next().is_none()).then_some((told, one(CALLER)?))
    }

    pub fn value(&self) -> Option<HeaderValue> {
        let Self { from, nonce, challenge, count, digest, tag } = self;
        HeaderValue::from_str(&format!("{from} {nonce} {challenge} {count} {digest} {tag}")).ok()
    }

    pub fn parties<'a>(&'a self, to: &'a str) -> Parties<'a> {
        Parties { from: &self.from, to, nonce: &self.nonce, challenge: &self.challenge }
    }

    pub fn said<'a>(&'a self, method: &'a str, target: &'a str, caller: &'a str) -> Said<'a> {
        Said::Request { count: self.count, method, target, digest: &self.digest, caller }
    }
}

/// What an answer says that its tag is of.
pub(crate) fn answered(count: u64, (status, headers): (StatusCode, &HeaderMap)) -> Said<'_> {
    let not_begun = headers.get(NOT_BEGUN).and_then(|why| why.to_str().ok()).unwrap_or_default();
    Said::Answer { count, status: status.as_u16(), not_begun }
}

/// A caller as a header's value.
pub(crate) fn write_caller(caller: &Caller) -> String {
    // It has text keys only, so writing it cannot fail.
    STANDARD_NO_PAD.encode(serde_json::to_vec(&caller.told()).unwrap_or_default())
}

pub(crate) fn read_caller(text: &str) -> Option<Caller> {
    let told: Option<ToldCaller> = serde_json::from_slice(&STANDARD_NO_PAD.decode(text).ok()?).ok()?;
    Some(told.map_or_else(Caller::anyone, Caller::from))
}
