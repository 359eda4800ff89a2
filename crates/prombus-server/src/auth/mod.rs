//! Who is calling, and what they may do. Every route, frame and stream goes through [`Caller::check`].

mod bad_claim;
mod guard;
mod host;
mod jwt;
mod need;
mod origin;
mod refusals;
pub(crate) mod reload;
mod rules;
#[cfg(test)]
mod tests;
mod verified;

pub(crate) use guard::guard;
pub use host::Hosts;
pub use jwt::{JwtKey, JwtOptions};
pub(crate) use need::Need;
pub(crate) use origin::Origins;
pub(crate) use refusals::Reason;
pub(crate) use rules::Ask;
pub use rules::{Action, BadRules, Policy, Rules};
pub(crate) use verified::{KeyChanges, next_change};

use crate::error::ApiError;
use aws_lc_rs::digest;
use jwt::{Jwt, MAX_TOKEN_BYTES};
use prombus_core::TopicName;
use refusals::RefusalLog;
use serde::{Deserialize, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use subtle::ConstantTimeEq;
use verified::VerifiedToken;

/// What is said of a token that was good once.
pub(crate) const TOKEN_EXPIRED: &str = "the token has expired";
/// What is said of a token that is taken no longer, because the keys have changed.
pub(crate) const TOKEN_WITHDRAWN: &str =
    "the token is not valid with the current keys: its key was removed, or is ambiguous";

/// The most characters of a subject that are logged.
const MAX_SUBJECT_CHARS: usize = 200;

/// How callers are known.
#[derive(Debug, Clone, Default)]
pub enum AuthOptions {
    /// Not at all: everyone may do everything.
    #[default]
    None,
    /// By tokens that are written down.
    Tokens(Vec<StaticToken>),
    /// By tokens that somebody signs.
    Jwt(JwtOptions),
}

/// A token that is written down, and what its holder may do.
#[derive(Debug, Clone)]
pub struct StaticToken {
    /// The token.
    pub token: Secret,
    /// What it is good for.
    pub rules: Rules,
}

/// Something that must not be shown.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("..")
    }
}

impl Secret {
    /// Keeps `text` from being shown by accident.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The secret itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Knows callers by their tokens.
pub(crate) struct Auth {
    kind: Kind,
    /// What was refused because of who asked.
    pub log: RefusalLog,
}

enum Kind {
    None,
    Tokens(Vec<(Secret, Caller)>),
    Jwt(Arc<Jwt>),
}

/// Why a token is not taken. It says nothing of what the token holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal(Cow<'static, str>);

impl From<&'static str> for Refusal {
    fn from(why: &'static str) -> Self {
        Self(Cow::Borrowed(why))
    }
}

impl Auth {
    /// Reads the keys, where they are in files.
    pub fn open(options: AuthOptions) -> Result<Self, String> {
        let kind = match options {
            AuthOptions::None => Kind::None,
            AuthOptions::Tokens(tokens) => {
                let caller = |(index, known): (usize, StaticToken)| {
                    let name = caller_name("token", [known.token.expose()]);
                    // Where it stands in the configuration tells nothing of what it is.
                    let subject = Some(format!("auth.tokens[{index}]"));
                    let known_as =
                        Known { rules: known.rules, until: None, verified: None, name: Some(name), subject };
                    (known.token, Caller::new(known_as))
                };
                Kind::Tokens(tokens.into_iter().enumerate().map(caller).collect())
            }
            AuthOptions::Jwt(options) => Kind::Jwt(Arc::new(Jwt::open(options)?)),
        };
        Ok(Self { kind, log: RefusalLog::default() })
    }

    /// Whether callers must say who they are.
    pub fn is_on(&self) -> bool {
        !matches!(self.kind, Kind::None)
    }

    /// Tells when callers may have become others than they were.
    pub fn key_changes(&self) -> KeyChanges {
        match &self.kind {
            Kind::Jwt(jwt) => jwt.key_changes().clone(),
            // Tokens that are written down are read once.
            Kind::None | Kind::Tokens(_) => verified::never(),
        }
    }

    /// Whose the token is; `None` says that there was none.
    pub fn caller(&self, token: Option<&str>) -> Result<Caller, ApiError> {
        let found = match (&self.kind, token) {
            (Kind::None, _) => return Ok(Caller::anyone()),
            (_, None) => {
                return Err(ApiError::unauthorized(
                    "this hub requires a token: send it as Authorization: Bearer, or in an AUTH frame first",
                ));
            }
            (Kind::Tokens(known), Some(token)) => find(known, token),
            (Kind::Jwt(jwt), Some(token)) => jwt.caller(token),
        };
        found.map_err(|Refusal(why)| ApiError::unauthorized(why))
    }
}

/// Looks at every token that there is, and at all of each, so that the time it takes tells nothing.
fn find(known: &[(Secret, Caller)], token: &str) -> Result<Caller, Refusal> {
    if token.len() > MAX_TOKEN_BYTES {
        return Err(Refusal::from("the token is too large"));
    }
    let mut found = None;
    for (secret, caller) in known {
        if bool::from(secret.expose().as_bytes().ct_eq(token.as_bytes())) {
            found = Some(caller.clone());
        }
    }
    found.ok_or_else(|| Refusal::from("the token is not known"))
}

/// Somebody who asks for something.
#[derive(Debug, Clone)]
pub(crate) struct Caller(Option<Arc<Known>>);

/// What is known of a caller, where that matters.
#[derive(Debug)]
struct Known {
    rules: Rules,
    until: Option<SystemTime>,
    /// What has to hold besides, where keys may change.
    verified: Option<VerifiedToken>,
    /// See [`Caller::name`].
    name: Option<String>,
    /// See [`Caller::subject`].
    subject: Option<String>,
}

/// A name for whoever these parts tell of: the same after a restart, and nothing of the parts can be read from it.
fn caller_name<'a>(kind: &str, parts: impl IntoIterator<Item = &'a str>) -> String {
    let mut hash = digest::Context::new(&digest::SHA256);
    for part in parts {
        hash.update(&(part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    hash.finish().as_ref().iter().fold(format!("{kind}:"), |name, byte| format!("{name}{byte:02x}"))
}

impl Caller {
    /// Anyone, who may do everything.
    pub fn anyone() -> Self {
        Self(None)
    }

    fn new(known: Known) -> Self {
        Self(Some(Arc::new(known)))
    }

    /// What tells callers apart: the subject of a token, or the token itself where it is written down. `None` is
    /// anyone who did not say.
    pub fn name(&self) -> Option<&str> {
        self.0.as_ref()?.name.as_deref()
    }

    /// Who that is for those who read the log: the subject of a token, or where the token is written down.
    pub fn subject(&self) -> Option<&str> {
        self.0.as_ref()?.subject.as_deref()
    }

    pub fn may(&self, ask: Ask<'_>) -> bool {
        self.0.as_ref().is_none_or(|known| known.rules.allow(ask))
    }

    /// Whether a rule keeps the caller from it, whatever others allow.
    pub fn is_denied(&self, ask: Ask<'_>) -> bool {
        self.0.as_ref().is_some_and(|known| known.rules.deny(ask))
    }

    /// Whether the caller may do that anywhere.
    pub fn may_somewhere(&self, action: Action) -> bool {
        self.0.as_ref().is_none_or(|known| known.rules.allow_somewhere(action))
    }

    /// Refuses what the caller may not do.
    pub fn check(&self, ask: Ask<'_>) -> Result<(), ApiError> {
        if self.may(ask) {
            return Ok(());
        }
        let Ask { action, topic, group } = ask;
        let group = group.map(|group| format!(" as group {group}")).unwrap_or_default();
        let action = action.as_str();
        // What holds for a topic holds for its dead letters too.
        let scopes = match topic.strip_prefix("dlq.") {
            Some(of) => format!("{action}:{of}, or {action}:{topic} for its dead letters alone"),
            None => format!("{action}:{topic}"),
        };
        Err(ApiError::forbidden(format!(
            "this token does not allow {action} on {topic}{group}: it needs a scope such as {scopes}, and no rule that denies it"
        )))
    }

    /// Refuses an action that the caller may do nowhere.
    pub fn check_somewhere(&self, action: Action) -> Result<(), ApiError> {
        if self.may_somewhere(action) {
            return Ok(());
        }
        let action = action.as_str();
        Err(ApiError::forbidden(format!(
            "this token does not allow {action} on any topic: it needs a scope such as {action}:orders.*, for the topics in question"
        )))
    }

    /// Whether the caller may know of a topic and how it is set up.
    pub fn may_see(&self, topic: &TopicName) -> bool {
        let ask = |action| Ask { action, topic: topic.as_str(), group: None };
        self.may(ask(Action::Read)) || self.may(ask(Action::Admin))
    }

    /// Whether there may be groups of the topic that the caller may consume as.
    pub fn may_as_some_group(&self, topic: &TopicName) -> bool {
        self.0.as_ref().is_none_or(|known| known.rules.allow_some_group(topic.as_str()))
    }

    /// Whether the time of the caller's token is over.
    fn is_expired(&self) -> bool {
        self.time_left() == Some(Duration::ZERO)
    }

    /// Why the caller's token would be refused by now, if so. Whatever stays open asks this.
    pub fn ended(&self) -> Option<&'static str> {
        let verified = self.0.as_ref()?.verified.as_ref();
        match self.is_expired() {
            true => Some(TOKEN_EXPIRED),
            false => verified.is_some_and(|verified| !verified.holds()).then_some(TOKEN_WITHDRAWN),
        }
    }

    /// For how long the caller is good; `None` where there is no end.
    pub fn time_left(&self) -> Option<Duration> {
        let until = self.0.as_ref()?.until?;
        Some(until.duration_since(SystemTime::now()).unwrap_or(Duration::ZERO))
    }

    /// Waits until the caller's token would be refused, and says why.
    pub async fn end(&self) -> &'static str {
        /// The clock may be set meanwhile, so it is looked at now and then.
        const LOOK_EVERY: Duration = Duration::from_secs(30);
        let Some(known) = &self.0 else { return std::future::pending().await };
        let mut keys = known.verified.as_ref().map_or_else(verified::never, VerifiedToken::key_changes);
        loop {
            if let Some(why) = self.ended() {
                return why;
            }
            let over = async {
                match self.time_left() {
                    None => std::future::pending().await,
                    // The clock is what is waited for.
                    Some(left) => tokio::time::sleep(left.min(LOOK_EVERY)).await,
                }
            };
            tokio::select! {
                () = over => {}
                () = next_change(&mut keys) => {}
            }
        }
    }
}
