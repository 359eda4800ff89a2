//! Parts that could not be rewritten, and when that is tried again: later each time, because one that is damaged stays so.

use crate::journal::part::{Part, PartName};
use hashbrown::HashMap;
use prombus_core::CommitError;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the first pause is; each is twice as long as the one before it.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
/// No pause is longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// The parts that failed.
#[derive(Default)]
pub struct Failures(HashMap<PartName, Failure>);

struct Failure {
    error: CommitError,
    pause: Duration,
    until: Instant,
}

impl Failures {
    /// Notes why these could not be rewritten.
    pub fn note(&mut self, parts: Vec<PartName>, error: &CommitError) {
        for part in parts {
            let before = self.0.get(&part).map(|failure| failure.pause);
            let pause = before.map_or(FIRST_PAUSE, |before| (2 * before).min(LONGEST_PAUSE));
            self.0.insert(part, Failure { error: error.clone(), pause, until: Instant::now() + pause });
        }
    }

    /// Whether a part is to be left alone for now.
    pub fn is_paused(&self, part: PartName) -> bool {
        self.0.get(&part).is_some_and(|failure| Instant::now() < failure.until)
    }

    /// Those that were due to be tried again by then were not, because that is of no use any more.
    pub fn forget_due(&mut self, by: Instant) {
        self.0.retain(|_, failure| failure.until > by);
    }

    /// Parts that are gone do not fail any more.
    pub fn keep(&mut self, parts: &[Arc<Part>]) {
        self.0.retain(|name, _| parts.iter().any(|part| part.name == *name));
    }

    /// Why some part cannot be rewritten, if so.
    pub fn error(&self) -> Option<&CommitError> {
        self.0.values().map(|failure| &failure.error).next()
    }

    /// How long until the next one is to be tried again; nothing where none has failed.
    pub fn pause(&self) -> Option<Duration> {
        let now = Instant::now();
        self.0.values().map(|failure| failure.until.saturating_duration_since(now)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_limit() {
        let (mut failures, part) = (Failures::default(), PartName::written(7));
        assert!(failures.pause().is_none() && !failures.is_paused(part));
        let mut last = Duration::ZERO;
        for _ in 0..20 {
            failures.note(vec![part], &CommitError::NoRoom);
            assert!(failures.is_paused(part) && failures.0[&part].pause >= last);
            last = failures.0[&part].pause;
        }
        assert_eq!(last, LONGEST_PAUSE);
        failures.keep(&[]);
        assert!(failures.error().is_none() && !failures.is_paused(part));
    }
}
