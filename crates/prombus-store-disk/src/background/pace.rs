//! How fast parts are read and written in the background: within a budget of bytes a second, and slowly enough that those who
//! publish meanwhile lose no more than a fifth by it.
//!
//! Work and rest take turns. How long commits take while somebody works, compared with how long they take while he rests,
//! says what the work costs, and so how large its share of the time may be.

use crate::shared::Shared;
use parking_lot::Mutex;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// After so much work there is a rest. Whoever publishes meanwhile may have to wait for the processor until then, so it is
/// no longer than a commit takes.
const SLICE: Duration = Duration::from_micros(200);
/// A rest is so many times as long as the work before it at least, for the sake of those who read.
const LEAST_REST: f64 = 2.0;
/// And so many times at most on account of those who publish: some progress is always made.
const MOST_REST: f64 = 20.0;
/// Publishers may lose one part in so many.
const LOSS: f64 = 5.0;
/// While it rests, it looks this often whether there is a reason not to.
const NAP: Duration = Duration::from_millis(20);

/// How long commits take, from when they are enqueued until they are answered: while somebody works in the background, and
/// while nobody does.
#[derive(Default)]
pub struct Waits {
    beside_work: Mean,
    alone: Mean,
    is_working: AtomicBool,
    /// When somebody ended who worked.
    worked_until: Mutex<Option<Instant>>,
}

/// The mean of what came lately, in nanoseconds; 0 where nothing came.
#[derive(Default)]
struct Mean(AtomicU64);

impl Mean {
    /// The weight of all before a new value.
    const MEMORY: u64 = 15;

    fn add(&self, value: Duration) {
        let value = u64::try_from(value.as_nanos()).unwrap_or(u64::MAX).max(1);
        let mean = match self.0.load(Ordering::Relaxed) {
            0 => value,
            before => (before / (Self::MEMORY + 1) * Self::MEMORY).saturating_add(value / (Self::MEMORY + 1)),
        };
        // Only the writer adds to it, and where a value is lost, others follow.
        self.0.store(mean.max(1), Ordering::Relaxed);
    }

    fn forget(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    fn take(&self) -> Option<f64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|mean| *mean > 0).map(|mean| mean as f64)
    }
}

impl Waits {
    /// Notes that a commit which was enqueued then is answered now.
    pub fn note(&self, since: Instant) {
        let is_beside = self.is_working.load(Ordering::Relaxed)
            || self.worked_until.lock().is_some_and(|until| until > since);
        let mean = if is_beside { &self.beside_work } else { &self.alone };
        mean.add(since.elapsed());
    }

    fn begin(&self) {
        self.is_working.store(true, Ordering::Relaxed);
    }

    fn end(&self) {
        *self.worked_until.lock() = Some(Instant::now());
        self.is_working.store(false, Ordering::Relaxed);
    }

    /// How much longer commits take beside the work: 0.5 for half as long again.
    fn slowdown(&self) -> f64 {
        match (self.beside_work.take(), self.alone.take()) {
            (Some(beside), Some(alone)) => (beside / alone - 1.0).max(0.0),
            _ => 0.0,
        }
    }
}

/// A piece of work that was done.
#[derive(Debug, Clone, Copy)]
struct Done {
    took: Duration,
    bytes: u64,
}

impl Done {
    /// How long to rest after it. Of a budget of 0 there is no end.
    fn rest(self, bytes_per_s: u64, slowdown: f64) -> Duration {
        // With a share of 1 / (1 + times), publishers lose slowdown / (1 + times).
        let times = (slowdown * LOSS - 1.0).clamp(LEAST_REST, MOST_REST);
        let for_others = self.took.mul_f64(times);
        let for_budget = match bytes_per_s {
            0 => Duration::ZERO,
            budget => Duration::from_secs_f64(self.bytes as f64 / budget as f64).saturating_sub(self.took),
        };
        for_others.max(for_budget)
    }
}

/// The pace of a thread.
pub struct Pace<'a> {
    shared: &'a Shared,
    began: Instant,
    bytes: u64,
}

impl<'a> Pace<'a> {
    /// That of a thread that does nothing yet.
    pub fn new(shared: &'a Shared) -> Self {
        Self { shared, began: Instant::now(), bytes: 0 }
    }

    /// Work begins, after whatever was waited for.
    pub fn begin(&mut self) {
        // What it cost the last time says nothing of those who publish now.
        self.shared.waits.beside_work.forget();
        self.go_on();
    }

    fn go_on(&mut self) {
        (self.began, self.bytes) = (Instant::now(), 0);
        self.shared.waits.begin();
    }

    /// Work ends.
    pub fn end(&self) {
        self.shared.waits.end();
    }

    /// Counts bytes that were read or written, and rests where it is time to. Fails when the store closes.
    pub fn spend(&mut self, bytes: u64) -> io::Result<()> {
        self.bytes += bytes;
        let done = Done { took: self.began.elapsed(), bytes: self.bytes };
        let budget = self.budget();
        let is_ahead = budget > 0 && done.bytes > budget.div_ceil(100);
        if done.took >= SLICE || is_ahead {
            self.end();
            let rests = Instant::now();
            while let Some(left) =
                self.rest_of(done).checked_sub(rests.elapsed()).filter(|left| !left.is_zero())
                && !self.shared.closing.load(Ordering::Relaxed)
            {
                // There is nothing to wait for but time: this is the rest that publishers are given.
                std::thread::sleep(left.min(NAP));
            }
            self.go_on();
        }
        match self.shared.closing.load(Ordering::Relaxed) {
            true => Err(io::ErrorKind::Interrupted.into()),
            false => Ok(()),
        }
    }

    /// A full disk must not wait for its room, and those who publish cannot anyway.
    fn budget(&self) -> u64 {
        if self.shared.is_disk_full() { 0 } else { self.shared.options.rewrite_bytes_per_s }
    }

    fn rest_of(&self, done: Done) -> Duration {
        let slowdown = if self.shared.is_disk_full() { 0.0 } else { self.shared.waits.slowdown() };
        done.rest(self.budget(), slowdown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORK: Done = Done { took: Duration::from_millis(10), bytes: 1_000_000 };

    #[test]
    fn the_budget_is_kept_to() {
        assert_eq!(WORK.rest(0, 0.0), Duration::from_millis(20), "without one, it rests all the same");
        assert_eq!(WORK.rest(1_000_000, 0.0), Duration::from_millis(990));
        assert_eq!(WORK.rest(1_000_000_000, 0.0), Duration::from_millis(20));
    }

    /// Whatever the work costs while it goes on, rests leave no more than a fifth of it.
    #[test]
    fn publishers_lose_no_more_than_a_fifth() {
        for slowdown in [0.1, 0.5, 1.0, 2.0, 4.0] {
            let rest = WORK.rest(0, slowdown).as_secs_f64();
            let share = 0.01 / (0.01 + rest);
            assert!(share * slowdown <= 0.2 + 1e-9, "{slowdown}: {share}");
        }
        assert!(WORK.rest(0, 1e9) <= Duration::from_millis(200), "some progress is made");
    }

    #[test]
    fn commits_beside_the_work_are_compared_with_others() {
        let (waits, long_ago) = (Waits::default(), Duration::from_secs(1));
        let note = |took| waits.note(Instant::now().checked_sub(took).unwrap());
        note(long_ago);
        assert_eq!(waits.slowdown(), 0.0);
        waits.begin();
        note(3 * long_ago);
        assert!((waits.slowdown() - 2.0).abs() < 0.01, "{}", waits.slowdown());
        waits.end();
        // One that began before that was beside it for some of its time.
        (0..100).for_each(|_| note(4 * long_ago));
        assert!((waits.slowdown() - 3.0).abs() < 0.1, "{}", waits.slowdown());
    }
}
