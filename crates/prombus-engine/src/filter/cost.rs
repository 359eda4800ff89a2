//! How long expressions have taken, which decides whose turns they wait for.
//!
//! What is cheap as it is written may be costly for some events. So whoever evaluates a batch notes what it took, and a slow
//! batch makes its expressions costly until many quick ones have followed.

use super::budget::processor_time;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// How long costly expressions may take for a batch before others have their turn.
pub(crate) const KEEP_TIME: Duration = Duration::from_millis(50);
/// How long others may take. Nobody knows what a text costs that was never evaluated, and whoever sends a new one with each
/// request must not keep those waiting whose filters are cheap indeed.
const SHORT_KEEP_TIME: Duration = Duration::from_millis(10);
/// A batch is slow if it takes longer than this for each event.
const COSTLY_TIME: Duration = Duration::from_millis(2);
/// A batch that keeps others waiting for more than [`SHORT_KEEP_TIME`] is slow if it takes longer than this for each event. Less is
/// merely a large batch.
const LASTING_TIME: Duration = Duration::from_micros(50);
/// A slow batch counts until this many quick ones have followed it. With fewer, an expression that is slow for an event now and
/// then would return to the turns of cheap ones after each, and stall them again.
const PROBATION_BATCHES: u32 = 100;

/// How long expressions may take for a batch before others have their turn.
pub(crate) fn most_time(is_costly: bool) -> Duration {
    if is_costly { KEEP_TIME } else { SHORT_KEEP_TIME }
}

/// Whether expressions have been slow lately.
#[derive(Debug, Default)]
pub(crate) struct Probation {
    /// How many quick batches must still follow.
    left: AtomicU32,
}

impl Probation {
    /// Whether a batch was slow, and not enough quick ones have followed.
    pub fn is_slow(&self) -> bool {
        self.left.load(Ordering::Relaxed) > 0
    }

    /// Evaluates a batch, and takes note of how long that took. `work` also says how many events it has looked at.
    pub fn time<T>(&self, work: impl FnOnce() -> (T, usize)) -> T {
        let since = processor_time();
        let (made, events) = work();
        self.note(processor_time() - since, events);
        made
    }

    fn note(&self, took: Duration, events: usize) {
        // Nothing was evaluated, so nothing is known: what was asked for besides the filter has left no event.
        if events == 0 {
            return;
        }
        let events = u32::try_from(events).unwrap_or(u32::MAX);
        if took > COSTLY_TIME * events || took > SHORT_KEEP_TIME.max(LASTING_TIME * events) {
            self.left.store(PROBATION_BATCHES, Ordering::Relaxed);
        } else {
            let count_down = |left: u32| left.checked_sub(1);
            let _ = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count_down);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_slow_is_costly_until_it_was_quick_for_long() {
        let probation = Probation::default();
        for (quick, events) in [(COSTLY_TIME, 0), (COSTLY_TIME, 1), (SHORT_KEEP_TIME, 10), (KEEP_TIME, 1_000)]
        {
            probation.note(quick, events);
            assert!(!probation.is_slow());
        }
        for (slow, events) in [(COSTLY_TIME * 2, 1), (SHORT_KEEP_TIME * 2, 100)] {
            probation.note(slow, events);
            for _ in 1..PROBATION_BATCHES {
                probation.note(Duration::ZERO, 1);
                probation.note(Duration::ZERO, 0);
                assert!(probation.is_slow());
            }
        }
        for _ in 0..2 {
            probation.note(Duration::ZERO, 1);
            assert!(!probation.is_slow());
        }
    }
}
