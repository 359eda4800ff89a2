//! How two hubs prove to each other that they have the same secret, and that what they say is from them and new.
//!
//! The hub that asks sends a random number, and gets a challenge. Both make a key of the secret, their names and these two.
//! Each request has a number that counts, which is taken once, and a tag by that key; so has each answer. No two clocks are
//! compared: a challenge is as old as the hub says that made it. The secret is never sent, and nothing here does I/O.

use aws_lc_rs::{digest, hmac};
use axum::http::HeaderMap;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A shorter secret can be guessed.
pub(crate) const MIN_SECRET_BYTES: usize = 16;
/// For so long a challenge may be answered for the first time.
const CHALLENGE_TIME: Duration = Duration::from_secs(10);
/// The most hubs, and earlier lives of them, whose keys are kept.
const MAX_SESSIONS: usize = 1_000;
/// So many requests may overtake each other.
const WINDOW: u64 = 4_096;
const NONCE_BYTES: usize = 16;

/// A random number that is used once.
pub(crate) type Nonce = [u8; NONCE_BYTES];

/// What hubs that belong together have in common.
pub(crate) struct Trust {
    secret: hmac::Key,
    /// By what this hub knows its own challenges.
    own: hmac::Key,
    began: Instant,
    sessions: Mutex<HashMap<String, Arc<Accepted>>>,
}

/// A key that two hubs share.
#[derive(Clone)]
pub(crate) struct SessionKey(hmac::Key);

/// What one side says so that the other believes it.
pub(crate) enum Said<'a> {
    /// The hub that was asked for a challenge has the secret.
    Hello,
    Request {
        count: u64,
        method: &'a str,
        target: &'a str,
        digest: &'a str,
        caller: &'a str,
    },
    /// Whose a WebSocket is from now on.
    Caller {
        socket: u64,
        renewal: u64,
        caller: &'a str,
    },
    Answer {
        count: u64,
        status: u16,
        not_begun: &'a str,
    },
}

/// Who asks whom, with what both have added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parties<'a> {
    pub from: &'a str,
    pub to: &'a str,
    pub nonce: &'a str,
    pub challenge: &'a str,
}

/// Why a request is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Distrust {
    /// It was made with another secret, or changed on its way.
    Forged,
    /// The challenge is too old, or from an earlier life of this hub: the other one has to ask for a new one.
    Stale,
    /// Its number was taken already.
    Repeated,
}

/// A hub that has proved that it has the secret.
struct Accepted {
    key: SessionKey,
    taken: Mutex<Taken>,
    used: Mutex<Instant>,
}

/// Which numbers were taken: all before `next - WINDOW` count as taken.
struct Taken {
    next: u64,
    bits: Vec<u64>,
}

impl Taken {
    fn new() -> Self {
        Self { next: 0, bits: vec![0; (WINDOW / 64) as usize] }
    }

    /// Whether it is too long ago to know.
    fn is_past(&self, count: u64) -> bool {
        count.saturating_add(WINDOW) < self.next
    }

    fn take(&mut self, count: u64) -> bool {
        let place = |count: u64| ((count % WINDOW / 64) as usize, 1_u64 << (count % 64));
        if self.is_past(count) || count == u64::MAX {
            return false;
        }
        if count >= self.next {
            if count - self.next >= WINDOW {
                self.bits.fill(0);
            } else {
                for passed in self.next..=count {
                    let (word, bit) = place(passed);
                    self.bits[word] &= !bit;
                }
            }
            self.next = count + 1;
        } else if self.next - count > WINDOW {
            return false;
        }
        let (word, bit) = place(count);
        let is_new = self.bits[word] & bit == 0;
        self.bits[word] |= bit;
        is_new
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?)).collect()
}

/// The digest of what a request carries.
pub(crate) fn digest_of(headers: &HeaderMap, body: &[u8]) -> String {
    let mut lines: Vec<[&[u8]; 2]> =
        headers.iter().map(|(name, value)| [name.as_str().as_bytes(), value.as_bytes()]).collect();
    // Values of one name stay in their order.
    lines.sort_by_key(|[name, _]| *name);
    let parts: Vec<&[u8]> = lines.into_iter().flatten().chain([body]).collect();
    hex(digest::digest(&digest::SHA256, &joined(&parts)).as_ref())
}

/// Sixteen bytes that nobody can foretell.
pub(crate) fn nonce() -> Result<Nonce, String> {
    let mut nonce = [0; NONCE_BYTES];
    aws_lc_rs::rand::fill(&mut nonce).map_err(|_| "the system has no random numbers".to_owned())?;
    Ok(nonce)
}

/// Parts that cannot be shifted against each other.
fn joined(parts: &[&[u8]]) -> Vec<u8> {
    let mut text = Vec::new();
    for part in parts {
        text.extend_from_slice(&(part.len() as u64).to_le_bytes());
        text.extend_from_slice(part);
    }
    text
}

impl SessionKey {
    fn text(said: &Said<'_>) -> Vec<u8> {
        match said {
            Said::Hello => joined(&[b"hello"]),
            Said::Request { count, method, target, digest, caller } => joined(&[
                b"request",
                &count.to_le_bytes(),
                method.as_bytes(),
                target.as_bytes(),
                digest.as_bytes(),
                caller.as_bytes(),
            ]),
            Said::Caller { socket, renewal, caller } => {
                joined(&[b"caller", &socket.to_le_bytes(), &renewal.to_le_bytes(), caller.as_bytes()])
            }
            Said::Answer { count, status, not_begun } => {
                joined(&[b"answer", &count.to_le_bytes(), &status.to_le_bytes(), not_begun.as_bytes()])
            }
        }
    }

    pub fn tag(&self, said: &Said<'_>) -> String {
        hex(hmac::sign(&self.0, &Self::text(said)).as_ref())
    }

    /// Whether `tag` is that of what was said. The comparison takes as long whatever it finds.
    pub fn believes(&self, said: &Said<'_>, tag: &str) -> bool {
        let tag = unhex(tag).unwrap_or_default();
        hmac::verify(&self.0, &Self::text(said), &tag).is_ok()
    }
}

impl Trust {
    pub fn new(secret: &str) -> Result<Self, String> {
        Ok(Self {
            secret: hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()),
            own: hmac::Key::new(hmac::HMAC_SHA256, &nonce()?),
            began: Instant::now(),
            sessions: Mutex::default(),
        })
    }

    /// By what others see that a hub of this name has the secret, and how it asks callers who they are.
    pub fn mark(&self, hub: &str, auth: &str) -> String {
        hex(hmac::sign(&self.secret, &Self::mark_text(hub, auth)).as_ref())
    }

    /// Whether a hub of this name has the secret and asks callers in this way, by its mark.
    pub fn knows(&self, hub: &str, auth: &str, mark: &str) -> bool {
        let mark = unhex(mark).unwrap_or_default();
        hmac::verify(&self.secret, &Self::mark_text(hub, auth), &mark).is_ok()
    }

    fn mark_text(hub: &str, auth: &str) -> Vec<u8> {
        joined(&[b"prombus mark 1", hub.as_bytes(), auth.as_bytes()])
    }

    pub fn key(&self, of: &Parties<'_>) -> SessionKey {
        let Parties { from, to, nonce, challenge } = of;
        let text = joined(&[
            b"prombus session 1",
            from.as_bytes(),
            to.as_bytes(),
            nonce.as_bytes(),
            challenge.as_bytes(),
        ]);
        let key = hmac::sign(&self.secret, &text);
        SessionKey(hmac::Key::new(hmac::HMAC_SHA256, key.as_ref()))
    }

    fn age(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    /// A challenge for `from`, which is remembered nowhere.
    pub fn challenge(&self, from: &str, nonce: &str) -> Result<String, String> {
        let mut challenge = self.age().to_le_bytes().to_vec();
        challenge.extend_from_slice(&self::nonce()?);
        let tag = self.challenge_tag(&challenge, from, nonce);
        challenge.extend_from_slice(tag.as_ref());
        Ok(hex(&challenge))
    }

    fn challenge_tag(&self, random: &[u8], from: &str, nonce: &str) -> hmac::Tag {
        hmac::sign(&self.own, &joined(&[random, from.as_bytes(), nonce.as_bytes()]))
    }

    /// Whether a challenge is one of this hub, and not too old to be answered.
    fn is_fresh(&self, of: &Parties<'_>) -> bool {
        let Some(challenge) = unhex(of.challenge) else { return false };
        let Some((random, tag)) = challenge.split_at_checked(8 + NONCE_BYTES) else { return false };
        let text = joined(&[random, of.from.as_bytes(), of.nonce.as_bytes()]);
        let Some(made) = random.first_chunk().map(|made| u64::from_le_bytes(*made)) else { return false };
        let age = self.age().saturating_sub(made);
        hmac::verify(&self.own, &text, tag).is_ok() && u128::from(age) <= CHALLENGE_TIME.as_millis()
    }

    /// The key of a request that is believed, which is taken note of, so that it is believed once.
    pub fn accept(&self, of: &Parties<'_>, said: &Said<'_>, tag: &str) -> Result<SessionKey, Distrust> {
        let Said::Request { count, .. } = said else { return Err(Distrust::Forged) };
        let known = self.sessions.lock().get(of.challenge).cloned();
        let accepted = match known {
            Some(accepted) => {
                if !accepted.key.believes(said, tag) {
                    return Err(Distrust::Forged);
                }
                accepted
            }
            None => {
                let key = self.key(of);
                if !key.believes(said, tag) {
                    return Err(Distrust::Forged);
                }
                if !self.is_fresh(of) {
                    return Err(Distrust::Stale);
                }
                self.admit(of.challenge, key)?
            }
        };
        *accepted.used.lock() = Instant::now();
        let mut taken = accepted.taken.lock();
        match taken.take(*count) {
            true => Ok(accepted.key.clone()),
            // Nobody remembers whether it was taken: it is not, and they greet each other again.
            false if taken.is_past(*count) => Err(Distrust::Stale),
            false => Err(Distrust::Repeated),
        }
    }

    /// Keeps a key. That of a challenge which could be answered again must stay, or its requests could be repeated.
    fn admit(&self, challenge: &str, key: SessionKey) -> Result<Arc<Accepted>, Distrust> {
        let now = Instant::now();
        let mut sessions = self.sessions.lock();
        if sessions.len() >= MAX_SESSIONS && !sessions.contains_key(challenge) {
            let oldest = sessions.iter().min_by_key(|(_, one)| *one.used.lock());
            let oldest = oldest.filter(|(_, one)| now.duration_since(*one.used.lock()) > CHALLENGE_TIME);
            let oldest = oldest.map(|(challenge, _)| challenge.clone()).ok_or(Distrust::Stale)?;
            sessions.remove(&oldest);
        }
        let new = || Arc::new(Accepted { key, taken: Mutex::new(Taken::new()), used: Mutex::new(now) });
        Ok(sessions.entry(challenge.to_owned()).or_insert_with(new).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "correct horse battery staple";

    fn request(count: u64) -> Said<'static> {
        Said::Request { count, method: "POST", target: "/v1/commit", digest: "d", caller: "c" }
    }

    /// The parties of a request from `one` to `trust`, which is `other`.
    fn meet(trust: &Trust) -> [String; 2] {
        let nonce = hex(&nonce().unwrap());
        let challenge = trust.challenge("one", &nonce).unwrap();
        [nonce, challenge]
    }

    fn parties([nonce, challenge]: &[String; 2]) -> Parties<'_> {
        Parties { from: "one", to: "other", nonce, challenge }
    }

    #[test]
    fn who_has_the_secret_is_believed_once() {
        let (one, other) = (Trust::new(SECRET).unwrap(), Trust::new(SECRET).unwrap());
        let met = meet(&other);
        let of = parties(&met);
        let key = one.key(&of);
        let hello = other.key(&of).tag(&Said::Hello);
        assert!(key.believes(&Said::Hello, &hello));
        let tag = key.tag(&request(0));
        let answered = other.accept(&of, &request(0), &tag).ok().unwrap();
        let answer = Said::Answer { count: 0, status: 200, not_begun: "" };
        assert!(key.believes(&answer, &answered.tag(&answer)));
        for changed in [
            Said::Answer { count: 0, status: 204, not_begun: "" },
            Said::Answer { count: 1, status: 200, not_begun: "" },
            // Whoever is in between cannot have it sent again.
            Said::Answer { count: 0, status: 200, not_begun: "moved" },
        ] {
            assert!(!key.believes(&changed, &answered.tag(&answer)));
        }
        assert_eq!(other.accept(&of, &request(0), &tag).err(), Some(Distrust::Repeated));
        assert!(other.accept(&of, &request(1), &key.tag(&request(1))).is_ok());
    }

    #[test]
    fn whatever_is_changed_is_not_believed() {
        let other = Trust::new(SECRET).unwrap();
        let met = meet(&other);
        let of = parties(&met);
        let key = Trust::new(SECRET).unwrap().key(&of);
        let tag = key.tag(&request(0));
        for changed in [
            request(1),
            Said::Request { count: 0, method: "PUT", target: "/v1/commit", digest: "d", caller: "c" },
            Said::Request { count: 0, method: "POST", target: "/v1/commits", digest: "d", caller: "c" },
            Said::Request { count: 0, method: "POST", target: "/v1/commit", digest: "e", caller: "c" },
            Said::Request { count: 0, method: "POST", target: "/v1/commit", digest: "d", caller: "*" },
            // Nothing moves from one part to the next.
            Said::Request { count: 0, method: "POST", target: "/v1/commitd", digest: "", caller: "c" },
        ] {
            assert_eq!(other.accept(&of, &changed, &tag).err(), Some(Distrust::Forged));
        }
        let as_other = Parties { from: "else", ..of.clone() };
        assert_eq!(other.accept(&as_other, &request(0), &tag).err(), Some(Distrust::Forged));
        for bad in ["", "00", "zz", &tag[2..]] {
            assert_eq!(other.accept(&of, &request(0), bad).err(), Some(Distrust::Forged));
        }
        let stranger = Trust::new("another secret than that one").unwrap().key(&of);
        assert_eq!(other.accept(&of, &request(0), &stranger.tag(&request(0))).err(), Some(Distrust::Forged));
        assert!(!stranger.believes(&Said::Hello, &key.tag(&Said::Hello)));
        assert!(other.accept(&of, &request(0), &tag).is_ok(), "it was fine itself");
    }

    #[test]
    fn a_challenge_of_another_life_is_stale() {
        let (before, now) = (Trust::new(SECRET).unwrap(), Trust::new(SECRET).unwrap());
        let met = meet(&before);
        let of = parties(&met);
        let tag = now.key(&of).tag(&request(0));
        assert_eq!(now.accept(&of, &request(0), &tag).err(), Some(Distrust::Stale));
    }

    #[test]
    fn a_challenge_that_is_too_old_is_stale() {
        let trust = Trust { began: Instant::now() - CHALLENGE_TIME * 2, ..Trust::new(SECRET).unwrap() };
        let [nonce, _] = meet(&trust);
        let mut old = 0_u64.to_le_bytes().to_vec();
        old.extend_from_slice(&[7; NONCE_BYTES]);
        let tag = trust.challenge_tag(&old, "one", &nonce);
        old.extend_from_slice(tag.as_ref());
        let met = [nonce, hex(&old)];
        let of = parties(&met);
        let tag = trust.key(&of).tag(&request(0));
        assert_eq!(trust.accept(&of, &request(0), &tag).err(), Some(Distrust::Stale));
    }

    #[test]
    fn numbers_are_taken_once_in_any_order() {
        let mut taken = Taken::new();
        for count in [0, 2, 1, 5_000, 4_999, 999] {
            assert!(taken.take(count), "{count}");
            assert!(!taken.take(count), "{count} again");
        }
        assert!(!taken.take(10), "too long ago to know");
        assert!(taken.take(u64::MAX - 1) && !taken.take(u64::MAX) && !taken.take(5_001));
    }

    #[test]
    fn a_mark_is_that_of_one_hub_and_one_secret() {
        let trust = Trust::new(SECRET).unwrap();
        let mark = trust.mark("one", "jwt");
        assert!(Trust::new(SECRET).unwrap().knows("one", "jwt", &mark));
        assert!(!trust.knows("one", "none", &mark));
        assert!(!trust.knows("other", "jwt", &mark) && !Trust::new("x").unwrap().knows("one", "jwt", &mark));
    }
}
