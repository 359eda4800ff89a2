//! A log of requests that were refused with `401` or `403`, so that operators see mistyped tokens, missing rights and
//! attempts to guess tokens. It is rate-limited: a flood of refusals cannot fill the log.

use crate::error::ApiError;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Maximum number of refusals in a row that are logged one by one.
const BURST: u32 = 10;
/// Beyond that, refusals within this time are counted in one line. While there are none, another one may be logged
/// individually after each such time.
const EVERY: Duration = Duration::from_secs(1);
/// The route shown for a request that matches none, or a frame with an unknown operation.
const UNKNOWN: &str = "unknown";
/// The subject shown for anonymous callers.
const NOBODY: &str = "unknown";
/// The operations of frames.
const OPS: [&str; 10] =
    ["AUTH", "PUBLISH", "SUBSCRIBE", "UNSUBSCRIBE", "ACK", "NACK", "MODACK", "PAUSE", "RESUME", "COMMIT"];

/// Why a request was refused, kept with its answer. It never holds the token.
#[derive(Debug, Clone)]
pub(crate) struct Reason(pub String);

/// Logs refusals.
#[derive(Debug, Default)]
pub(crate) struct RefusalLog(Arc<Mutex<Lines>>);

/// A request that was refused.
#[derive(Debug)]
pub(crate) struct Refused<'a> {
    pub method: &'a str,
    pub route: &'a str,
    /// The caller, if known.
    pub subject: Option<&'a str>,
    pub status: u16,
    pub reason: &'a str,
}

impl Refused<'_> {
    fn log(&self) {
        let Self { method, route, subject, status, reason } = *self;
        tracing::warn!(
            method,
            route,
            subject = subject.unwrap_or(NOBODY),
            status,
            reason,
            "a request was refused"
        );
    }
}

/// How many lines may be written.
#[derive(Debug)]
struct Lines {
    left: u32,
    /// Since when there may be more.
    since: Instant,
    /// How many refusals were not logged.
    held: u64,
    /// Whether a summary is pending.
    is_told: bool,
}

impl Default for Lines {
    fn default() -> Self {
        Self { left: BURST, since: Instant::now(), held: 0, is_told: false }
    }
}

/// What to do about a refusal.
#[derive(Debug, PartialEq, Eq)]
enum Take {
    Log,
    /// It is counted, and a summary is to be logged after a while.
    Tell,
    /// It is counted.
    Count,
}

impl Lines {
    fn take(&mut self, now: Instant) -> Take {
        if self.is_told {
            self.held += 1;
            return Take::Count;
        }
        let gained = now.saturating_duration_since(self.since).as_secs() / EVERY.as_secs();
        if gained > 0 {
            self.left = BURST.min(self.left.saturating_add(u32::try_from(gained).unwrap_or(u32::MAX)));
            self.since = now;
        }
        if let Some(left) = self.left.checked_sub(1) {
            self.left = left;
            return Take::Log;
        }
        (self.held, self.is_told) = (self.held + 1, true);
        Take::Tell
    }

    /// The number of unlogged refusals, which is reset by this.
    fn told(&mut self, now: Instant) -> u64 {
        (self.is_told, self.since) = (false, now);
        std::mem::take(&mut self.held)
    }
}

impl RefusalLog {
    /// Logs a refusal, or counts it.
    pub fn note(&self, refused: &Refused<'_>) {
        let take = self.0.lock().take(Instant::now());
        match take {
            Take::Log => refused.log(),
            Take::Count => {}
            Take::Tell => {
                // Without a runtime there are no requests.
                let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
                let lines = self.0.clone();
                runtime.spawn(async move {
                    // Refusals in the meantime share the line.
                    tokio::time::sleep(EVERY).await;
                    let count = lines.lock().told(Instant::now());
                    tracing::warn!(count, "more requests were refused");
                });
            }
        }
    }

    /// Logs an answer if it is a refusal.
    pub fn answer(&self, asked: Asked<'_>, answer: &Response) {
        let status = answer.status();
        if ![StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&status) {
            return;
        }
        let Asked { method, route, subject } = asked;
        let reason = answer.extensions().get::<Reason>().map_or("", |reason| reason.0.as_str());
        let (method, status) = (method.as_str(), status.as_u16());
        self.note(&Refused { method, route: route.unwrap_or(UNKNOWN), subject, status, reason });
    }

    /// Logs the error of a frame if it is a refusal.
    pub fn frame(&self, op: &str, subject: Option<&str>, error: &ApiError) {
        let Some((status, reason)) = error.refusal() else { return };
        let method = OPS.into_iter().find(|known| *known == op).unwrap_or(UNKNOWN);
        self.note(&Refused { method, route: "/ws", subject, status, reason });
    }
}

/// A request, and its caller.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub method: &'a Method,
    /// The pattern of the route: the query may contain secrets, and the reason names what matters of the path.
    pub route: Option<&'a str>,
    pub subject: Option<&'a str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_logged_and_what_comes_after_it_is_counted() {
        let mut lines = Lines::default();
        let mut now = lines.since;
        assert!((0..BURST).all(|_| lines.take(now) == Take::Log));
        // A flood is a line for each while, and nothing else.
        for _ in 0..3 {
            assert_eq!(lines.take(now), Take::Tell);
            assert!((0..100).all(|_| lines.take(now) == Take::Count));
            now += EVERY;
            assert_eq!(lines.take(now), Take::Count, "it goes with those that were not told yet");
            assert_eq!(lines.told(now), 102);
        }
        // Once it is over, one more is logged after a while, and as many as at first after a long one.
        now += EVERY;
        assert_eq!((lines.take(now), lines.take(now), lines.told(now)), (Take::Log, Take::Tell, 1));
        now += EVERY * 1_000;
        assert!((0..BURST).all(|_| lines.take(now) == Take::Log));
        assert_eq!(lines.take(now), Take::Tell);
    }
}
