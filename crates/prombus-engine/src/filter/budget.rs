//! What evaluations may cost. Everything that an expression makes, copies or looks through is paid for before it
//! happens, so that no expression takes more memory or time than this, whatever it is and whatever event it meets.
//!
//! All expressions that are evaluated over one event by one reader pay from one allowance: a definition may have a thousand of them.

use super::pattern::{Pattern, Patterns};
use cel::ExecutionError;
use cel::common::types::{CelBytes, CelList, CelMap, CelString, Kind, Type};
use cel::common::value::{StaticVal, Val};
use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What all expressions of a reader may cost over one event: a million steps, or 32 MiB made, copied or looked through.
pub const MAX_WORK: u64 = 32 << 20;
/// What a step of a loop costs, and each value beside its bytes.
pub(crate) const STEP: u64 = 32;
/// What it costs to compile a pattern that is not in the expression itself.
const PATTERN_WORK: u64 = MAX_WORK / 32;
/// How long they may compute, should their work take longer than anyone foresaw. The time of the processor
/// counts: a busy or paused machine does not change what an expression says.
pub const MAX_TIME: Duration = Duration::from_secs(2);
/// The clock is looked at each time that so much work is done.
const CLOCK_WORK: u64 = MAX_WORK / 64;

static TYPE: Type = Type::new_unspecified_type("prombus.budget");

/// What all expressions over one event may still cost.
#[derive(Debug)]
pub(crate) struct Allowance {
    left: AtomicU64,
    /// The time of the processor, in nanoseconds, when the clock was first looked at; 0 before that.
    since: AtomicU64,
    /// What it took to read the event for the expression that needs most of it.
    most_read: AtomicU64,
}

/// There is no allowance left.
#[derive(Debug)]
pub(crate) struct Spent;

impl Spent {
    /// In words.
    pub fn told(&self) -> String {
        format!("it takes more work than {MAX_WORK} units, with all that is done for the same event")
    }
}

impl Default for Allowance {
    fn default() -> Self {
        Self { left: AtomicU64::new(MAX_WORK), since: AtomicU64::new(0), most_read: AtomicU64::new(0) }
    }
}

impl Allowance {
    /// Whether nothing is left. It stays so: an expression that goes on after a failure gets nowhere.
    pub fn is_spent(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }

    /// Pays for work.
    pub fn charge(&self, work: u64) -> Result<(), Spent> {
        let left = self.left.load(Ordering::Relaxed);
        let rest = left.saturating_sub(work);
        self.left.store(rest, Ordering::Relaxed);
        if rest / CLOCK_WORK != left / CLOCK_WORK {
            self.look_at_clock(processor_time());
        }
        if self.is_spent() { Err(Spent) } else { Ok(()) }
    }

    /// Pays for reading the event. Once it is free, because events are bounded: what costs is to read it again and again.
    pub fn charge_reading(&self, work: u64) -> Result<(), Spent> {
        let most = self.most_read.fetch_max(work, Ordering::Relaxed);
        self.charge(most.min(work))
    }

    fn look_at_clock(&self, now: Duration) {
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX).max(1);
        match self.since.load(Ordering::Relaxed) {
            0 => self.since.store(now, Ordering::Relaxed),
            since if u128::from(now.saturating_sub(since)) > MAX_TIME.as_nanos() => {
                self.left.store(0, Ordering::Relaxed);
            }
            _ => {}
        }
    }
}

/// The budget of one evaluation. It is a value so that functions of the language can be handed it.
#[derive(Debug)]
pub(super) struct Budget {
    allowance: Arc<Allowance>,
    patterns: Arc<Patterns>,
    /// Patterns that came up on the way. Their work bounds their number.
    made: Mutex<Vec<(String, Arc<Pattern>)>>,
}

impl Budget {
    pub fn new(patterns: Arc<Patterns>, allowance: Arc<Allowance>) -> Self {
        Self { allowance, patterns, made: Mutex::new(Vec::new()) }
    }

    /// Pays for work.
    pub fn charge(&self, work: u64) -> Result<(), ExecutionError> {
        self.allowance.charge(work).map_err(|Spent| too_costly())
    }

    /// Pays for a copy of a value, or a look at all of it.
    pub fn charge_value(&self, value: &dyn Val) -> Result<(), ExecutionError> {
        let mut work = 0;
        weigh(value, self.allowance.left.load(Ordering::Relaxed), &mut work);
        self.charge(work)
    }

    /// Pays for what a function reads: text, but not what is in a list.
    pub fn charge_text(&self, value: &dyn Val) -> Result<(), ExecutionError> {
        self.charge(STEP + text_bytes(value))
    }

    /// A pattern of the expression.
    pub fn pattern(&self, index: i64) -> Option<&Pattern> {
        self.patterns.get(usize::try_from(index).ok()?)
    }

    /// A pattern that an evaluation came up with.
    pub fn pattern_of(&self, source: &str) -> Result<Arc<Pattern>, ExecutionError> {
        self.charge(source.len() as u64)?;
        let mut made = self.made.lock();
        if let Some((_, pattern)) = made.iter().find(|(known, _)| known == source) {
            return Ok(pattern.clone());
        }
        self.charge(PATTERN_WORK)?;
        let pattern =
            Pattern::compile(source).map_err(|error| ExecutionError::function_error("matches", error))?;
        let pattern = Arc::new(pattern);
        made.push((source.to_owned(), pattern.clone()));
        Ok(pattern)
    }
}

/// Adds what all of a value costs to `work`, and stops where that is more than `most`.
fn weigh(value: &dyn Val, most: u64, work: &mut u64) {
    *work += STEP;
    match value.get_type().kind() {
        Kind::String | Kind::Bytes => *work += text_bytes(value),
        Kind::List => {
            for item in value.downcast_ref::<CelList<'_>>().into_iter().flat_map(|list| list.iter()) {
                weigh(item.as_ref(), most, work);
                if *work > most {
                    return;
                }
            }
        }
        Kind::Map => {
            for (name, value) in value.downcast_ref::<CelMap<'_>>().into_iter().flat_map(|map| map.iter()) {
                weigh(name.inner(), most, work);
                weigh(value.as_ref(), most, work);
                if *work > most {
                    return;
                }
            }
        }
        _ => {}
    }
}

/// The bytes of a text.
fn text_bytes(value: &dyn Val) -> u64 {
    if let Some(text) = value.downcast_ref::<CelString<'_>>() {
        text.inner().len() as u64
    } else if let Some(bytes) = value.downcast_ref::<CelBytes<'_>>() {
        bytes.inner().len() as u64
    } else {
        0
    }
}

pub(super) fn processor_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

fn too_costly() -> ExecutionError {
    ExecutionError::function_error(super::OWN_ERROR, "it takes more work than an expression may")
}

impl Val for Budget {
    fn get_type(&self) -> &Type {
        <Self as Val>::cel_type()
    }

    fn cel_type() -> &'static Type {
        &TYPE
    }

    /// Nothing copies a budget; the copy would have nothing to spend.
    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
        let spent = Allowance { left: AtomicU64::new(0), ..Allowance::default() };
        Box::new(Self::new(self.patterns.clone(), Arc::new(spent)))
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl StaticVal for Budget {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_spent_stays_spent() {
        let allowance = Allowance::default();
        assert!(allowance.charge(MAX_WORK - 1).is_ok() && !allowance.is_spent());
        assert!(allowance.charge(1).is_err() && allowance.is_spent());
        assert!(allowance.charge(0).is_err());
    }

    #[test]
    fn the_largest_reading_is_free() {
        let allowance = Allowance::default();
        for _ in 0..2 {
            assert!(allowance.charge_reading(MAX_WORK / 2).is_ok());
        }
        assert!(allowance.charge_reading(MAX_WORK).is_err());
    }

    #[test]
    fn time_ends_an_evaluation_whatever_work_is_left() {
        let allowance = Allowance::default();
        let start = Duration::from_secs(7);
        allowance.look_at_clock(start);
        allowance.look_at_clock(start + MAX_TIME);
        assert!(allowance.charge(1).is_ok());
        allowance.look_at_clock(start + MAX_TIME + Duration::from_nanos(1));
        assert!(allowance.charge(1).is_err());
    }
}
