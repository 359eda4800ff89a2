//! Temporary refusals: the hub is busy. Requests with an id are retried after a pause.

use super::{Request, Session};
use crate::HubError;
use crate::live::later::later;
use crate::live::options::{Backoff, LiveOptions};
use std::time::Duration;
use tokio::time::Instant;

/// The longest pause, whatever the hub says.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long the hub wants to be left alone, where it says so.
const RETRY_AFTER_MS: &str = "retry_after_ms";

/// How many times in a row something was refused, and since when.
#[derive(Debug, Default)]
pub(crate) struct RetryState {
    refused: Option<(Instant, Backoff)>,
}

impl RetryState {
    /// It was refused once more. Says when to ask again, unless that has gone on for as long as it may.
    pub fn refused(&mut self, error: &HubError, now: Instant, limit: Option<Duration>) -> Option<Instant> {
        let since = self.since(now);
        let left = limit.map_or(LONGEST_PAUSE, |limit| limit.saturating_sub(now.duration_since(since)));
        (!left.is_zero()).then(|| later(now, self.pause(error, now).min(left)))
    }

    /// When it was refused first, which may be now.
    pub fn since(&mut self, now: Instant) -> Instant {
        self.begun(now).0
    }

    /// How long to wait before asking again.
    pub fn pause(&mut self, error: &HubError, now: Instant) -> Duration {
        let said = error.number(RETRY_AFTER_MS).map(Duration::from_millis);
        said.unwrap_or_else(|| self.begun(now).1.next(fastrand::f64())).min(LONGEST_PAUSE)
    }

    fn begun(&mut self, now: Instant) -> &mut (Instant, Backoff) {
        self.refused.get_or_insert_with(|| (now, Backoff::new(&LiveOptions::default())))
    }
}

/// A refused request that is to be retried at this time.
pub(super) struct Delayed {
    pub at: Instant,
    pub request: Request,
}

impl Session {
    /// Makes requests again whose time has come, in the order in which they were refused.
    pub(super) fn ask_delayed(&mut self, now: Instant) {
        let (due, rest) = std::mem::take(&mut self.delayed).into_iter().partition(|one| one.at <= now);
        self.delayed = rest;
        let due: Vec<Delayed> = due;
        for Delayed { request, .. } in due {
            let frame = self.kept_frame(self.requests.next(), &request);
            self.ask(request, now, |_| frame.unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prombus_wire::ErrorCode;

    #[test]
    fn a_pause_is_what_the_hub_says_or_grows_and_patience_has_its_limit() {
        let now = Instant::now();
        let mut error = HubError::of_code(ErrorCode::RateLimited, "m");
        error.details.insert(RETRY_AFTER_MS.into(), 250.into());
        let mut patience = RetryState::default();
        assert_eq!(patience.refused(&error, now, None), Some(now + Duration::from_millis(250)));
        error.details.insert(RETRY_AFTER_MS.into(), u64::MAX.into());
        assert_eq!(patience.refused(&error, now, None), Some(now + LONGEST_PAUSE));
        let plain = HubError::of_code(ErrorCode::Unavailable, "m");
        let pauses: Vec<_> = (0..6).filter_map(|_| patience.refused(&plain, now, None)).collect();
        assert!(pauses.len() == 6 && pauses[5] > pauses[0] + Duration::from_millis(500));
        let limit = Some(Duration::from_secs(1));
        assert!(patience.refused(&error, now, limit).is_some_and(|at| at <= now + Duration::from_secs(1)));
        assert_eq!(patience.refused(&error, now + Duration::from_secs(1), limit), None);
    }
}
