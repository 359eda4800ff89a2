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
pub(crate) use rules::AccessRequest;
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

/// The message for an expired token.
pub(crate) const TOKEN_EXPIRED: &str = "the token has expired";
/// The message for a token that is no longer accepted because the keys have changed.
pub(crate) const TOKEN_WITHDRAWN: &str =
    "the token is not valid with the current keys: its key was withdrawn, or is ambiguous";

/// Maximum number of characters of a subject in the log.
const MAX_SUBJECT_CHARS: usize = 200;

/// How callers are authenticated.
#[derive(Debug, Clone, Default)]
pub enum AuthOptions {
    /// Not at all: anyone may do anything.
    #[default]
    None,
    /// By static tokens.
    Tokens(Vec<StaticToken>),
    /// By signed tokens.
    Jwt(JwtOptions),
}

/// A static token, and what it allows.
#[derive(Debug, Clone)]
pub struct StaticToken {
    /// The token.
    pub token: Secret,
    /// What it allows.
    pub rules: Rules,
}

/// A value that must not be shown.
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

/// Authenticates callers by their tokens.
pub(crate) struct Auth {
    kind: Kind,
    /// The log of refused callers.
    pub log: RefusalLog,
}

enum Kind {
    None,
    Tokens(Vec<(Secret, Caller)>),
    Jwt(Arc<Jwt>),
}

/// Why a token is refused. It reveals nothing of the token's contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal(Cow<'static, str>);

impl From<&'static str> for Refusal {
    fn from(why: &'static str) -> Self {
        Self(Cow::Borrowed(why))
    }
}

impl Auth {
    /// Reads the keys, if they are in files.
    pub fn open(options: AuthOptions) -> Result<Self, String> {
        let kind = match options {
            AuthOptions::None => Kind::None,
            AuthOptions::Tokens(tokens) => {
                let caller = |(index, known): (usize, StaticToken)| {
                    let name = caller_name("token", [known.token.expose()]);
                    // Its position in the configuration reveals nothing about it.
                    let subject = Some(format!("auth.tokens[{index}]"));
                    let known_as = Identity {
                        rules: known.rules,
                        until: None,
                        verified: None,
                        name: Some(name),
                        subject,
                    };
                    (known.token, Caller::new(known_as))
                };
                Kind::Tokens(tokens.into_iter().enumerate().map(caller).collect())
            }
            AuthOptions::Jwt(options) => Kind::Jwt(Arc::new(Jwt::open(options)?)),
        };
        Ok(Self { kind, log: RefusalLog::default() })
    }

    /// Whether callers must authenticate.
    pub fn is_on(&self) -> bool {
        !matches!(self.kind, Kind::None)
    }

    /// Notifies when the rights of callers may have changed.
    pub fn key_changes(&self) -> KeyChanges {
        match &self.kind {
            Kind::Jwt(jwt) => jwt.key_changes().clone(),
            // Static tokens are read once.
            Kind::None | Kind::Tokens(_) => verified::never(),
        }
    }

    /// The caller that a token belongs to; `None` if there is no token.
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

/// Compares all tokens in full, so that timing reveals nothing.
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

/// The caller of a request.
#[derive(Debug, Clone)]
pub(crate) struct Caller(Option<Arc<Identity>>);

/// What is known about a caller.
#[derive(Debug)]
struct Identity {
    rules: Rules,
    until: Option<SystemTime>,
    /// What else must hold, if keys may change.
    verified: Option<VerifiedToken>,
    /// See [`Caller::name`].
    name: Option<String>,
    /// See [`Caller::subject`].
    subject: Option<String>,
}

/// A caller as one hub tells it to another, which takes its word for it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToldCaller {
    policy: Policy,
    name: Option<String>,
    subject: Option<String>,
    /// For how many milliseconds it is valid; the clocks of hubs may differ.
    left_ms: Option<u64>,
}

impl From<ToldCaller> for Caller {
    fn from(told: ToldCaller) -> Self {
        let ToldCaller { policy, name, subject, left_ms } = told;
        let mut rules = Rules::default();
        // Rules that make no sense here, as those of a later version may, allow nothing.
        if rules.add_policy(policy).is_err() {
            rules = Rules::default();
        }
        let until = left_ms.map(|ms| SystemTime::now() + Duration::from_millis(ms));
        Self::new(Identity { rules, until, verified: None, name, subject })
    }
}

/// A name derived from these parts: stable across restarts, and not reversible.
fn caller_name<'a>(kind: &str, parts: impl IntoIterator<Item = &'a str>) -> String {
    let mut hash = digest::Context::new(&digest::SHA256);
    for part in parts {
        hash.update(&(part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    hash.finish().as_ref().iter().fold(format!("{kind}:"), |name, byte| format!("{name}{byte:02x}"))
}

impl Caller {
    /// Anyone, with all rights.
    pub fn anyone() -> Self {
        Self(None)
    }

    /// One without any rights.
    pub fn nobody() -> Self {
        let rules = Rules::default();
        Self::new(Identity { rules, until: None, verified: None, name: None, subject: None })
    }

    /// Whether both were known by the same token, shown at the same time.
    pub fn is_same(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        }
    }

    fn new(identity: Identity) -> Self {
        Self(Some(Arc::new(identity)))
    }

    /// What distinguishes callers: the subject of a token, or the static token itself. `None` for anonymous callers.
    pub fn name(&self) -> Option<&str> {
        self.0.as_ref()?.name.as_deref()
    }

    /// The caller as shown in the log: the subject of a token, or the position of a static one.
    pub fn subject(&self) -> Option<&str> {
        self.0.as_ref()?.subject.as_deref()
    }

    /// What another hub has to know of it; `None` for one who may do anything because nobody is asked.
    pub fn told(&self) -> Option<ToldCaller> {
        let identity = self.0.as_ref()?;
        Some(ToldCaller {
            policy: identity.rules.to_policy(),
            name: identity.name.clone(),
            subject: identity.subject.clone(),
            left_ms: self.time_left().map(|left| left.as_millis() as u64),
        })
    }

    /// Whether it is one who may do anything because nobody is asked for a token.
    pub fn is_anyone(&self) -> bool {
        self.0.is_none()
    }

    pub fn may(&self, request: AccessRequest<'_>) -> bool {
        self.0.as_ref().is_none_or(|identity| identity.rules.allow(request))
    }

    /// Whether a rule denies it to the caller.
    pub fn is_denied(&self, request: AccessRequest<'_>) -> bool {
        self.0.as_ref().is_some_and(|identity| identity.rules.deny(request))
    }

    /// Whether the caller may do that on any topic.
    pub fn may_somewhere(&self, action: Action) -> bool {
        self.0.as_ref().is_none_or(|identity| identity.rules.allow_somewhere(action))
    }

    /// Refuses what the caller may not do.
    pub fn check(&self, request: AccessRequest<'_>) -> Result<(), ApiError> {
        if self.may(request) {
            return Ok(());
        }
        let AccessRequest { action, topic, group } = request;
        let group = group.map(|group| format!(" as group {group}")).unwrap_or_default();
        let action = action.as_str();
        // The rights on a topic also cover its dead letters.
        let scopes = match topic.strip_prefix("dlq.") {
            Some(of) => format!("{action}:{of}, or {action}:{topic} for its dead letters alone"),
            None => format!("{action}:{topic}"),
        };
        Err(ApiError::forbidden(format!(
            "this token does not allow {action} on {topic}{group}: it needs a scope such as {scopes}, and no rule that denies it"
        )))
    }

    /// Refuses to copy events of a topic to another one on behalf of the caller, who must therefore be allowed to read the
    /// one, and to administer and write the other.
    pub fn check_copies(&self, from: &TopicName, to: &TopicName) -> Result<(), ApiError> {
        let on = |topic: &TopicName, action| self.check(AccessRequest::on(action, topic.as_str()));
        on(from, Action::Read)?;
        on(to, Action::Admin)?;
        on(to, Action::Publish)
    }

    /// Refuses an action that the caller may not do on everything.
    pub fn check_everywhere(&self, action: Action) -> Result<(), ApiError> {
        if self.0.as_ref().is_none_or(|identity| identity.rules.allow_everywhere(action)) {
            return Ok(());
        }
        let action = action.as_str();
        Err(ApiError::forbidden(format!(
            "this token does not allow {action} on everything: it needs the scope {action}:**, and no rule that denies {action} on anything"
        )))
    }

    /// Refuses an action that the caller may not do on any topic.
    pub fn check_somewhere(&self, action: Action) -> Result<(), ApiError> {
        if self.may_somewhere(action) {
            return Ok(());
        }
        let action = action.as_str();
        Err(ApiError::forbidden(format!(
            "this token does not allow {action} on any topic: it needs a scope such as {action}:orders.*, for the topics in question"
        )))
    }

    /// Whether the caller may see a topic and its settings.
    pub fn may_see(&self, topic: &TopicName) -> bool {
        let access = |action| AccessRequest::on(action, topic.as_str());
        self.may(access(Action::Read)) || self.may(access(Action::Admin))
    }

    /// Whether there may be groups of the topic that the caller may consume as.
    pub fn may_as_some_group(&self, topic: &TopicName) -> bool {
        self.0.as_ref().is_none_or(|identity| identity.rules.allow_some_group(topic.as_str()))
    }

    /// Whether the caller's token has expired.
    fn is_expired(&self) -> bool {
        self.time_left() == Some(Duration::ZERO)
    }

    /// Why the caller's token would be refused by now, if so. Long-lived requests check this.
    pub fn ended(&self) -> Option<&'static str> {
        let verified = self.0.as_ref()?.verified.as_ref();
        match self.is_expired() {
            true => Some(TOKEN_EXPIRED),
            false => verified.is_some_and(|verified| !verified.holds()).then_some(TOKEN_WITHDRAWN),
        }
    }

    /// How long the caller's token is valid; `None` if it does not expire.
    pub fn time_left(&self) -> Option<Duration> {
        let until = self.0.as_ref()?.until?;
        Some(until.duration_since(SystemTime::now()).unwrap_or(Duration::ZERO))
    }

    /// Does something that may take long, and gives it up when the caller's token would be refused.
    pub async fn while_valid<T, E>(&self, work: impl Future<Output = Result<T, E>>) -> Result<T, ApiError>
    where
        ApiError: From<E>,
    {
        tokio::select! {
            done = work => Ok(done?),
            why = self.end() => Err(ApiError::unauthorized(why)),
        }
    }

    /// Waits until the caller's token would be refused, and says why.
    pub async fn end(&self) -> &'static str {
        /// The clock may be changed in the meantime, so it is checked now and then.
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
                    // This waits for the clock.
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
