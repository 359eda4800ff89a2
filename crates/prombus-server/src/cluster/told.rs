//! How a request says that it comes from another hub, for whom, and that this is true; and how an answer does.

use super::trust::{Parties, Said};
use crate::auth::{Caller, ToldCaller};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
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

/// A caller as a header's value.
pub(crate) fn write_caller(caller: &Caller) -> String {
    // It has text keys only, so writing it cannot fail.
    STANDARD_NO_PAD.encode(serde_json::to_vec(&caller.told()).unwrap_or_default())
}

pub(crate) fn read_caller(text: &str) -> Option<Caller> {
    let told: Option<ToldCaller> = serde_json::from_slice(&STANDARD_NO_PAD.decode(text).ok()?).ok()?;
    Some(told.map_or_else(Caller::anyone, Caller::from))
}
