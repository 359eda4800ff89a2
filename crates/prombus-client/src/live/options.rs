//! How a connection behaves.

use super::later::FAR;
use std::time::Duration;

/// The first pause before a new try.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause between tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// How a connection behaves when the hub is away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveOptions {
    /// How long [`Client::connect`](crate::Client::connect) keeps trying where no hub answers. By default it tries
    /// once, so that a wrong address shows at once.
    pub wait_for_hub: Duration,
    /// How long a connection that broke is tried anew before it is given up; by default for ever. For so long publishes
    /// and commits are also sent again that the hub refuses with `rate_limited` or `unavailable`.
    pub give_up_after: Option<Duration>,
    /// The first pause before a new try (100 ms). It doubles with each one after, and varies by half, so that many
    /// clients do not come back at the same moment.
    pub first_pause: Duration,
    /// The longest pause between tries (10 s).
    pub longest_pause: Duration,
}

impl Default for LiveOptions {
    fn default() -> Self {
        Self {
            wait_for_hub: Duration::ZERO,
            give_up_after: None,
            first_pause: FIRST_PAUSE,
            longest_pause: LONGEST_PAUSE,
        }
    }
}

/// The pauses between tries.
#[derive(Debug)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    tries: u32,
}

impl Backoff {
    pub fn new(options: &LiveOptions) -> Self {
        Self { first: options.first_pause.min(FAR), longest: options.longest_pause.min(FAR), tries: 0 }
    }

    /// How often there was a pause already.
    pub fn tries(&self) -> u32 {
        self.tries
    }

    /// The next pause; `chance` is between 0 and 1.
    pub fn next(&mut self, chance: f64) -> Duration {
        let doubled = self.first.saturating_mul(2_u32.saturating_pow(self.tries)).min(self.longest);
        self.tries = self.tries.saturating_add(1);
        doubled.mul_f64(0.5 + chance.clamp(0.0, 1.0) / 2.0)
    }

    pub fn reset(&mut self) {
        self.tries = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_vary() {
        let mut backoff = Backoff::new(&LiveOptions::default());
        let most: Vec<u128> = (0..9).map(|_| backoff.next(1.0).as_millis()).collect();
        assert_eq!(most, [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
        backoff.reset();
        assert_eq!((backoff.next(0.0).as_millis(), backoff.next(0.5).as_millis()), (50, 150));
        (0..100).for_each(|_| assert!(backoff.next(1.0) <= LONGEST_PAUSE));
        assert_eq!(backoff.next(1.0), LONGEST_PAUSE);
    }

    #[test]
    fn pauses_without_end_are_no_overflow() {
        let (first_pause, longest_pause) = (Duration::MAX, Duration::MAX);
        let mut backoff = Backoff::new(&LiveOptions { first_pause, longest_pause, ..LiveOptions::default() });
        (0..100).for_each(|_| assert!(backoff.next(1.0) <= FAR));
    }
}
