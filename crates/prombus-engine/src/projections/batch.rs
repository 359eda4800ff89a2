//! A page of events and what they do, on its way to one commit.

use super::Plan;
use super::runner::ProjectionContext;
use super::stored::shadow;
use super::tx::{Pending, Project, ProjectFailure, Scope, Tx};
use crate::filter::KEEP_TIME;
use crate::groups::not_normalized;
use crate::retry::Backoff;
use crate::schemas::raise::Raiser;
use prombus_core::{Append, Commit, DocumentWrite, Event, Owner, ReadError};
use std::any::Any;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

/// A batch ends when what its events have made takes so many bytes, though there may be more of them.
const MOST_MADE: usize = 4 << 20;
/// The first pause before a projection in Rust is asked again; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// The longest one.
const LONGEST_PAUSE: Duration = Duration::from_millis(10_240);

/// What makes writes of events.
#[derive(Clone)]
pub(super) enum Projector {
    /// A definition.
    Plan(Arc<Plan>),
    /// A projection in Rust.
    Code(Arc<Code>),
    /// What stands still until it is defined anew, and why: this build cannot make anything of its definition, or
    /// what it makes would come back to it.
    Halted(String),
}

/// A projection in Rust, and what it works on.
pub(super) struct Code {
    pub project: Arc<dyn Project>,
    pub owner: Owner,
    pub collections: Vec<Arc<str>>,
    pub retries: u32,
}

impl Projector {
    /// How often an event that fails is tried again.
    pub fn retries(&self) -> u32 {
        match self {
            Self::Plan(plan) => plan.retries,
            Self::Code(code) => code.retries,
            Self::Halted(_) => 0,
        }
    }

    /// Whether what it does takes time and memory that others want as well. What is part of the program is the program's own
    /// affair, and may wait for whatever it likes.
    pub fn needs_slot(&self) -> bool {
        matches!(self, Self::Plan(_))
    }

    /// Whether what it does may take long.
    pub fn is_costly(&self) -> bool {
        matches!(self, Self::Plan(plan) if plan.is_costly())
    }

    /// Why it stands still, if it does.
    pub fn halted(&self) -> Option<String> {
        match self {
            Self::Halted(reason) => Some(reason.clone()),
            Self::Plan(_) | Self::Code(_) => None,
        }
    }
}

/// An event that was applied, and which writes are its own.
pub(super) struct Applied {
    pub event: Event,
    /// Where its writes end.
    pub writes_end: usize,
    /// Where its events end.
    pub publishes_end: usize,
    /// How often the store has refused what it did.
    pub refusals: u32,
    /// Why it was not applied, after how many attempts.
    pub failure: Option<(String, u32)>,
    /// Whether it is about a document with another key than its own.
    pub has_other_key: bool,
}

/// Events that were applied, in order.
#[derive(Default)]
pub(super) struct Batch {
    pub applied: Vec<Applied>,
    pub writes: Vec<DocumentWrite>,
    pub publishes: Vec<Append>,
}

impl Batch {
    fn push(&mut self, event: Event, failure: Option<(String, u32)>, has_other_key: bool) {
        let (writes_end, publishes_end) = (self.writes.len(), self.publishes.len());
        self.applied.push(Applied { event, writes_end, publishes_end, refusals: 0, failure, has_other_key });
    }

    /// Whether an event is about a document with another key than its own.
    pub fn has_other_keys(&self) -> bool {
        self.applied.iter().any(|applied| applied.has_other_key)
    }

    /// Which event a write is of.
    pub fn event_of(&self, write: usize) -> usize {
        self.applied.partition_point(|applied| applied.writes_end <= write)
    }

    /// Which event has published something.
    pub fn publisher_of(&self, publish: usize) -> Option<usize> {
        // What follows are dead letters.
        let is_ours = publish < self.publishes.len();
        is_ours.then(|| self.applied.partition_point(|applied| applied.publishes_end <= publish))
    }

    /// Takes its writes back from a commit that was refused.
    pub fn take_back(&mut self, commit: Arc<Commit>) {
        self.writes = Arc::unwrap_or_clone(commit).documents;
        // What follows are notes of what failed.
        self.writes.truncate(self.applied.last().map_or(0, |last| last.writes_end));
    }

    /// The batch taken apart behind its first `count` events.
    pub fn split(mut self, count: usize) -> (Self, Self) {
        let (writes, publishes) = match count.checked_sub(1).and_then(|last| self.applied.get(last)) {
            Some(last) => (last.writes_end, last.publishes_end),
            None => (0, 0),
        };
        let mut applied = self.applied.split_off(count.min(self.applied.len()));
        for one in &mut applied {
            one.writes_end -= writes;
            one.publishes_end -= publishes;
        }
        let rest = Self {
            applied,
            writes: self.writes.split_off(writes),
            publishes: self.publishes.split_off(publishes),
        };
        (self, rest)
    }

    /// The store has refused what the first event did. After so many retries that is taken back, and the event has
    /// failed. `false`: it had failed already.
    pub fn blame_first(&mut self, reason: &str, retries: u32) -> bool {
        let Some(first) = self.applied.first_mut().filter(|first| first.failure.is_none()) else {
            return false;
        };
        first.refusals += 1;
        if first.refusals <= retries {
            return true;
        }
        let (writes, publishes) = (first.writes_end, first.publishes_end);
        first.failure = Some((reason.to_owned(), first.refusals));
        self.writes.drain(..writes);
        self.publishes.drain(..publishes);
        for applied in &mut self.applied {
            applied.writes_end -= writes;
            applied.publishes_end -= publishes;
        }
        true
    }
}

/// What a panic says.
fn told(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("it panicked: {}", text.unwrap_or("for an unknown reason"))
}

/// What a definition makes of an event. One that it cannot take must not end the projection.
fn planned(plan: &Plan, event: &Event) -> Result<Vec<DocumentWrite>, String> {
    let applied = catch_unwind(AssertUnwindSafe(|| plan.apply(event)));
    applied.unwrap_or_else(|panic| Err(told(&*panic)))
}

/// Whether an event is about a document with another key than its own. Where the key cannot be told, it writes none.
fn is_about_other_key(plan: &Plan, event: &Event, writes: Option<&[DocumentWrite]>) -> bool {
    catch_unwind(AssertUnwindSafe(|| plan.is_about_other_key(event, writes))).unwrap_or(false)
}

/// What a projection in Rust comes to; a panic in it is a failure like others.
pub(super) async fn caught(
    work: impl Future<Output = Result<(), ProjectFailure>>,
) -> Result<(), ProjectFailure> {
    let mut work = pin!(work);
    poll_fn(|context| {
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context)));
        polled.unwrap_or_else(|panic| Poll::Ready(Err(ProjectFailure(told(&*panic)))))
    })
    .await
}

/// Applies events by a definition, as many as go into a batch, and leaves the others. Trying again would give the
/// same, so what fails has failed as often as it may.
pub(super) fn by_plan(
    plan: &Plan,
    events: &mut VecDeque<Event>,
    raiser: Option<&Raiser>,
    rebuild: bool,
) -> Batch {
    let mut batch = Batch::default();
    let mut made = 0;
    let start = Instant::now();
    // The first event in any case; after that, expressions that take long must not hold up the end of the hub.
    while made < MOST_MADE
        && (batch.applied.is_empty() || start.elapsed() < KEEP_TIME)
        && let Some(event) = events.pop_front()
    {
        let done = match raiser.map(|raiser| raiser.raise(&event)) {
            None => planned(plan, &event),
            Some(Ok(raised)) => planned(plan, &raised),
            Some(Err(why)) => Err(not_normalized(&why)),
        };
        let has_other_key = is_about_other_key(plan, &event, done.as_deref().ok());
        let failure = match done {
            Ok(writes) => {
                made += writes.iter().map(DocumentWrite::size).sum::<usize>();
                batch.writes.extend(writes.into_iter().map(|write| match rebuild {
                    true => DocumentWrite { collection: shadow(&write.collection), ..write },
                    false => write,
                }));
                None
            }
            Err(reason) => {
                // What is made of it is its letter, which has all of it.
                made += event.payload.len();
                Some((reason, plan.retries + 1))
            }
        };
        batch.push(event, failure, has_other_key);
    }
    batch
}

/// Applies events by a projection in Rust, as many as go into a batch, and leaves the others. Where documents cannot be
/// read, that is no event's fault.
pub(super) async fn by_code(
    code: &Code,
    events: &mut VecDeque<Event>,
    hub: &ProjectionContext,
    rebuild: bool,
) -> Result<Batch, ReadError> {
    let scope = Scope {
        documents: &*hub.documents,
        checks: &hub.checks,
        owner: &code.owner,
        collections: &code.collections,
        target: if rebuild { shadow } else { |name| name.into() },
        publishes: !rebuild,
    };
    let mut pending = Pending::default();
    let mut ends = Vec::new();
    let mut made = 0;
    while made < MOST_MADE
        && let Some(event) = events.pop_front()
    {
        let (writes, publishes) = (pending.writes.len(), pending.publishes.len());
        let (mut attempts, mut backoff) = (0, Backoff::new(FIRST_PAUSE, LONGEST_PAUSE));
        let failure = loop {
            let mut tx = Tx { scope: &scope, pending: &mut pending, event: &event };
            let answer = caught(code.project.apply(&event, &mut tx)).await;
            if let Some(error) = pending.unread.take() {
                return Err(error);
            }
            let Err(error) = answer else { break None };
            pending.go_back(writes, publishes);
            attempts += 1;
            if attempts > code.retries {
                break Some((error.to_string(), attempts));
            }
            // What it waits for is the projection's own affair; it may be there a moment later.
            backoff.pause().await;
        };
        pending.keep();
        made += pending.bytes_since(writes, publishes);
        made += failure.as_ref().map_or(0, |_| event.payload.len());
        ends.push((event, pending.writes.len(), pending.publishes.len(), failure));
    }
    let applied = ends.into_iter().map(|(event, writes_end, publishes_end, failure)| Applied {
        event,
        writes_end,
        publishes_end,
        refusals: 0,
        failure,
        has_other_key: false,
    });
    Ok(Batch { applied: applied.collect(), writes: pending.writes, publishes: pending.publishes })
}
