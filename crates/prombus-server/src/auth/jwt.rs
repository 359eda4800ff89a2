//! JSON Web Tokens: which key verifies a token, and when it is invalid.
//!
//! The key determines the algorithm, never the token: a token that names a different one is refused, which rules out all
//! attacks that rely on the token choosing how it is verified.

use super::bad_claim;
use super::reload::Reloaded;
use super::rules::{Policy, Rules};
use super::verified::{KeyChanges, VerifiedToken};
use super::{Caller, Identity, MAX_SUBJECT_CHARS, Refusal, Secret, TOKEN_EXPIRED, caller_name};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode};
use parking_lot::Mutex;
use serde::Deserialize;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The largest token.
pub(crate) const MAX_TOKEN_BYTES: usize = 16 << 10;
/// A secret shorter than its hash can be guessed with enough patience.
const SAFE_SECRET_BYTES: usize = 32;
/// How far clocks may differ.
const TOLERANCE: Duration = Duration::from_secs(5);
/// Maximum number of tokens that were found good that are remembered, because checking a signature costs more than a
/// request.
const MAX_REMEMBERED: usize = 1_000;

/// The refusal of a policy with an invalid pattern, which is not shown because it is part of the token.
const BAD_PATTERN: &str = "the token's claim policy has a pattern with a wildcard in an odd place: * stands for one whole \
     segment between dots, ** for any number of them";

/// How tokens are verified.
#[derive(Debug, Clone)]
pub struct JwtOptions {
    /// The key that verifies them.
    pub key: JwtKey,
    /// `aud` must name one of these, if there are any.
    pub audience: Vec<String>,
    /// `iss` must be one of these, if there are any.
    pub issuer: Vec<String>,
    /// Whether a token without `exp` is invalid.
    pub require_exp: bool,
}

/// The key that verifies tokens.
#[derive(Debug, Clone)]
pub enum JwtKey {
    /// A shared secret: HS256.
    Secret(Secret),
    /// A PEM file with a public key: RS256, ES256 or EdDSA, depending on the key.
    PublicKeyFile(PathBuf),
    /// A file with a JSON Web Key Set.
    JwksFile(PathBuf),
}

/// A key, and its only algorithm.
struct Key {
    id: Option<String>,
    algorithm: Algorithm,
    key: DecodingKey,
}

/// Verifies tokens.
pub(crate) struct Jwt {
    keys: Reloaded<Vec<Key>>,
    validation: Validation,
    remembered: Mutex<Remembered>,
}

/// Cached valid tokens and their callers, until the keys change.
#[derive(Default)]
struct Remembered {
    keys: Option<Arc<Vec<Key>>>,
    callers: HashMap<String, Caller>,
}

/// The relevant part of a token's header.
#[derive(Deserialize)]
struct Head {
    alg: String,
    kid: Option<String>,
    /// Extensions that a reader must understand; none are supported.
    crit: Option<serde_json::Value>,
}

/// The relevant claims of a token.
#[derive(Deserialize)]
struct Claims {
    exp: Option<f64>,
    /// A single issuer, not a list.
    iss: Option<String>,
    /// A string by the standard, but sometimes a number.
    sub: Option<serde_json::Value>,
    scopes: Option<Scopes>,
    /// OAuth's name for it. A token with both claims has the scopes of both.
    scope: Option<Scopes>,
    policy: Option<Policy>,
}

/// Scopes as an array, or as in OAuth, as one space-separated string. No scope contains a space, so either form is
/// accepted under either name.
#[derive(Deserialize)]
#[serde(untagged)]
enum Scopes {
    List(Vec<String>),
    Line(String),
}

impl Scopes {
    fn each(&self) -> impl Iterator<Item = &str> {
        let lines = match self {
            Self::List(list) => list.as_slice(),
            Self::Line(line) => std::slice::from_ref(line),
        };
        lines.iter().flat_map(|line| line.split_ascii_whitespace())
    }
}

impl Jwt {
    pub fn open(options: JwtOptions) -> Result<Self, String> {
        let mut validation = Validation::new(Algorithm::HS256);
        validation.leeway = TOLERANCE.as_secs();
        validation.validate_nbf = true;
        let mut required = Vec::new();
        if options.require_exp {
            required.push("exp");
        }
        if !options.issuer.is_empty() {
            validation.set_issuer(&options.issuer);
            required.push("iss");
        }
        validation.validate_aud = !options.audience.is_empty();
        if validation.validate_aud {
            validation.set_audience(&options.audience);
            required.push("aud");
        }
        validation.set_required_spec_claims(&required);
        let keys = match options.key {
            JwtKey::Secret(secret) => {
                if secret.expose().len() < SAFE_SECRET_BYTES {
                    tracing::warn!(
                        "auth.secret is short: with fewer than {SAFE_SECRET_BYTES} bytes it can be guessed, and tokens forged; generate one with `openssl rand -hex 32`"
                    );
                }
                let make = move |_: &[Vec<u8>]| Ok(vec![Key::shared(secret.expose().as_bytes())]);
                Reloaded::open(Vec::new(), make)
            }
            JwtKey::PublicKeyFile(file) => {
                let name = file.clone();
                Reloaded::open(vec![file], move |texts| Ok(vec![Key::from_pem(&name, &texts[0])?]))
            }
            JwtKey::JwksFile(file) => {
                let name = file.clone();
                Reloaded::open(vec![file], move |texts| Key::from_set(&name, &texts[0]))
            }
        }?;
        Ok(Self { keys, validation, remembered: Mutex::default() })
    }

    /// Notifies of key changes.
    pub fn key_changes(&self) -> &KeyChanges {
        &self.keys.changes
    }

    /// The caller that a token belongs to.
    pub fn caller(self: &Arc<Self>, token: &str) -> Result<Caller, Refusal> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(Refusal::from("the token is too large"));
        }
        // Read before the keys, which may then be newer than this version but never older.
        let version = *self.keys.changes.borrow();
        let keys = self.keys.get();
        if let Some(caller) = self.remembered(token, &keys) {
            return if caller.is_expired() { Err(TOKEN_EXPIRED.into()) } else { Ok(caller) };
        }
        let head = head(token)?;
        let key = choose(&keys, &head)?;
        let mut validation = self.validation.clone();
        validation.algorithms = vec![key.algorithm];
        let claims: Claims =
            decode(token, &key.key, &validation).map_err(|error| refusal(error.kind(), token))?.claims;
        let (name, subject) = (claims.name(), claims.subject());
        let verified = Some(VerifiedToken::new(self, token, version));
        let (rules, until) = (claims.rules()?, claims.until()?);
        let caller = Caller::new(Identity { rules, until, verified, name, subject });
        self.remember(token, &caller, &keys);
        Ok(caller)
    }

    /// As if the files had not been checked for a long time.
    #[cfg(test)]
    pub(super) fn look_now(&self) {
        self.keys.look_now();
    }

    fn remembered(&self, token: &str, keys: &Arc<Vec<Key>>) -> Option<Caller> {
        let mut remembered = self.remembered.lock();
        if !remembered.keys.as_ref().is_some_and(|known| Arc::ptr_eq(known, keys)) {
            *remembered = Remembered { keys: Some(keys.clone()), callers: HashMap::new() };
        }
        remembered.callers.get(token).cloned()
    }

    /// Unless the keys have changed in the meantime: then the token was not verified with the new ones.
    fn remember(&self, token: &str, caller: &Caller, keys: &Arc<Vec<Key>>) {
        let mut remembered = self.remembered.lock();
        if !remembered.keys.as_ref().is_some_and(|known| Arc::ptr_eq(known, keys)) {
            return;
        }
        let callers = &mut remembered.callers;
        if callers.len() >= MAX_REMEMBERED {
            callers.clear();
        }
        callers.insert(token.to_owned(), caller.clone());
    }
}

fn head(token: &str) -> Result<Head, Refusal> {
    const MALFORMED: &str =
        "the token is not a JSON Web Token: expected three parts separated by dots, starting with eyJ";
    let first = token.split('.').next().unwrap_or_default();
    let text = URL_SAFE_NO_PAD.decode(first).map_err(|_| Refusal::from(MALFORMED))?;
    let head: Head = serde_json::from_slice(&text).map_err(|_| Refusal::from(MALFORMED))?;
    if head.crit.is_some() {
        return Err("the token has unsupported extensions (crit)".into());
    }
    Ok(head)
}

/// The key that verifies a token: the one that it names, or the only one of its algorithm.
fn choose<'a>(keys: &'a [Key], head: &Head) -> Result<&'a Key, Refusal> {
    let mut fitting = keys.iter().filter(|key| name_of(key.algorithm) == head.alg);
    let key = match &head.kid {
        // A key file or a secret has no name, so any name matches.
        Some(id) => {
            let named = fitting.clone().find(|key| key.id.as_ref() == Some(id));
            named.or_else(|| fitting.find(|key| key.id.is_none()))
        }
        None => match (fitting.next(), fitting.next()) {
            (Some(_), Some(_)) => {
                return Err("the token has no kid that says which key signed it".into());
            }
            (key, _) => key,
        },
    };
    key.ok_or_else(|| "there is no key for the token's algorithm and kid".into())
}

fn name_of(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::HS256 => "HS256",
        Algorithm::RS256 => "RS256",
        Algorithm::ES256 => "ES256",
        Algorithm::EdDSA => "EdDSA",
        _ => "",
    }
}

/// Says what is wrong, without revealing the token's contents.
fn refusal(error: &jsonwebtoken::errors::ErrorKind, token: &str) -> Refusal {
    use jsonwebtoken::errors::ErrorKind as E;
    let why = match error {
        E::ExpiredSignature => TOKEN_EXPIRED,
        E::ImmatureSignature => "the token is not valid yet (nbf)",
        E::InvalidAudience => "the token is for another service: its aud is not in auth.audience",
        E::InvalidIssuer => "the token is from another issuer: its iss is not in auth.issuer",
        E::MissingRequiredClaim(claim) => match claim.as_str() {
            "exp" => "the token has no exp, which auth.require_exp requires",
            // Anything else counts as missing.
            "aud" => "the token has no aud, which must be a string or an array of strings",
            _ => "the token has no iss",
        },
        E::InvalidSignature => "the token's signature is invalid",
        E::InvalidClaimFormat(claim) => return bad_claim::of_path(claim),
        E::Json(_) => return bad_claim::of_token::<Claims>(token),
        _ => "the token is not a valid JSON Web Token",
    };
    why.into()
}

impl Claims {
    /// What distinguishes subjects, which are scoped to their issuer.
    fn name(&self) -> Option<String> {
        let subject = self.sub.as_ref()?.to_string();
        Some(caller_name("sub", [self.iss.as_deref().unwrap_or_default(), &subject]))
    }

    /// The subject, for the log.
    fn subject(&self) -> Option<String> {
        let subject = self.sub.as_ref()?;
        let text = subject.as_str().map_or_else(|| subject.to_string(), str::to_owned);
        Some(text.chars().take(MAX_SUBJECT_CHARS).collect())
    }

    fn rules(&self) -> Result<Rules, Refusal> {
        let mut rules = Rules::default();
        for scope in self.scopes.iter().chain(&self.scope).flat_map(Scopes::each) {
            // Tokens carry scopes for other services too. A scope can only allow, so ignoring one is safe.
            let _ = rules.add_scope(scope);
        }
        if let Some(policy) = &self.policy {
            rules.add_policy(policy.clone()).map_err(|_| Refusal::from(BAD_PATTERN))?;
        }
        Ok(rules)
    }

    fn until(&self) -> Result<Option<SystemTime>, Refusal> {
        let Some(exp) = self.exp else { return Ok(None) };
        let since = Duration::try_from_secs_f64(exp).map_err(|_| bad_claim::of_path("exp"))?;
        // A time beyond the range of clocks never comes.
        Ok(UNIX_EPOCH.checked_add(since).and_then(|time| time.checked_add(TOLERANCE)))
    }
}

impl Key {
    fn shared(secret: &[u8]) -> Self {
        Self { id: None, algorithm: Algorithm::HS256, key: DecodingKey::from_secret(secret) }
    }

    fn from_pem(file: &Path, text: &[u8]) -> Result<Self, String> {
        let key = |algorithm, key| Self { id: None, algorithm, key };
        DecodingKey::from_rsa_pem(text)
            .map(|rsa| key(Algorithm::RS256, rsa))
            .or_else(|_| DecodingKey::from_ec_pem(text).map(|ec| key(Algorithm::ES256, ec)))
            .or_else(|_| DecodingKey::from_ed_pem(text).map(|ed| key(Algorithm::EdDSA, ed)))
            .map_err(|_| {
                format!("{} contains no RSA, P-256 or Ed25519 public key in PEM format", file.display())
            })
    }

    fn from_set(file: &Path, text: &[u8]) -> Result<Vec<Self>, String> {
        let set: JwkSet = serde_json::from_slice(text)
            // The error is not shown, because the file may contain secrets.
            .map_err(|_| format!("{} is not a JSON Web Key Set", file.display()))?;
        let keys: Vec<Self> = set.keys.iter().filter_map(Self::from_jwk).collect();
        if keys.is_empty() {
            return Err(format!("{} has no key for HS256, RS256, ES256 or EdDSA", file.display()));
        }
        Ok(keys)
    }

    /// A key of a set, if it is for signatures and for a supported algorithm.
    fn from_jwk(jwk: &Jwk) -> Option<Self> {
        let algorithm = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => Algorithm::RS256,
            AlgorithmParameters::EllipticCurve(ec) if ec.curve == EllipticCurve::P256 => Algorithm::ES256,
            AlgorithmParameters::OctetKeyPair(pair) if pair.curve == EllipticCurve::Ed25519 => {
                Algorithm::EdDSA
            }
            // An empty secret is not a secret.
            AlgorithmParameters::OctetKey(shared) if !shared.value.is_empty() => Algorithm::HS256,
            _ => return None,
        };
        let said = jwk.common.key_algorithm.as_ref().map(ToString::to_string);
        let for_others = matches!(&jwk.common.public_key_use, Some(of) if *of != PublicKeyUse::Signature)
            || said.is_some_and(|said| said != name_of(algorithm));
        let key = DecodingKey::from_jwk(jwk).ok()?;
        (!for_others).then(|| Self { id: jwk.common.key_id.clone(), algorithm, key })
    }
}
