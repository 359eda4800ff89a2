//! Options of a connection.

use super::later::FAR;
use std::time::Duration;

/// The first pause before a reconnect.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause between reconnects.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// A connection that lasted this long resets the backoff.
const GOOD_LINE: Duration = Duration::from_secs(5);

/// How a connection behaves while the hub is unreachable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveOptions {
    /// How long [`Client::connect`](crate::Client::connect) keeps trying if no hub answers. By default it tries once,
    /// so that a wrong address fails immediately.
    pub wait_for_hub: Duration,
    /// How long a broken connection is retried before the client gives up; by default forever. It also limits how long
    /// publishes and commits that the hub refuses with `rate_limited` or `unavailable` are retried.
    pub give_up_after: Option<Duration>,
    /// The first pause before a reconnect (100 ms). It doubles with each further one, with up to 50 % jitter, so that
    /// many clients do not return at the same moment. Any connection resets it, unless several in a row last less than
    /// 5 s.
    pub first_pause: Duration,
    /// The longest pause between reconnects (10 s).
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

/// The pauses between reconnects: they double, and vary.
#[derive(Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    tries: u32,
    /// The number of short-lived connections in a row.
    short_lines: u32,
}

impl Backoff {
    /// As long as the options say.
    pub fn new(options: &LiveOptions) -> Self {
        let (first, longest) = (options.first_pause.min(FAR), options.longest_pause.min(FAR));
        Self { first, longest, tries: 0, short_lines: 0 }
    }

    /// Whether there was no pause yet, or none since a connection.
    pub fn is_fresh(&self) -> bool {
        self.tries == 0
    }

    /// Waits; the next time twice as long.
    pub async fn pause(&mut self) {
        // A hub that is down tells nobody when it is back.
        tokio::time::sleep(self.next(fastrand::f64())).await;
    }

    /// The next pause; `chance` is between 0 and 1.
    pub(crate) fn next(&mut self, chance: f64) -> Duration {
        let doubled = self.first.saturating_mul(2_u32.saturating_pow(self.tries)).min(self.longest);
        self.tries = self.tries.saturating_add(1);
        doubled.mul_f64(0.5 + chance.clamp(0.0, 1.0) / 2.0)
    }

    /// A connection has lasted this long. However long it took to establish, the next pause is the first one again,
    /// unless a hub keeps accepting connections only to drop them.
    pub(crate) fn after_line(&mut self, held: Duration) {
        self.short_lines = if held >= GOOD_LINE { 0 } else { self.short_lines.saturating_add(1) };
        self.tries = self.short_lines.saturating_sub(1);
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
        backoff.after_line(GOOD_LINE);
        assert_eq!((backoff.next(0.0).as_millis(), backoff.next(0.5).as_millis()), (50, 150));
        (0..100).for_each(|_| assert!(backoff.next(1.0) <= LONGEST_PAUSE));
        assert_eq!(backoff.next(1.0), LONGEST_PAUSE);
    }

    #[test]
    fn a_line_makes_the_next_pause_short_unless_several_in_a_row_were_short() {
        let mut backoff = Backoff::new(&LiveOptions::default());
        let short = Duration::from_millis(1);
        (0..9).for_each(|_| assert!(backoff.next(1.0) > Duration::ZERO));
        let mut after = |held| {
            backoff.after_line(held);
            backoff.next(1.0).as_millis()
        };
        assert_eq!([short, short, short].map(&mut after), [100, 200, 400]);
        assert_eq!([GOOD_LINE, short, short].map(&mut after), [100, 100, 200]);
    }

    #[test]
    fn pauses_without_end_are_no_overflow() {
        let (first_pause, longest_pause) = (Duration::MAX, Duration::MAX);
        let mut backoff = Backoff::new(&LiveOptions { first_pause, longest_pause, ..LiveOptions::default() });
        (0..100).for_each(|_| assert!(backoff.next(1.0) <= FAR));
    }
}
