//! The history of one key, from its first event to the last with `ts <= at`, and whether that is all of it.

use super::base::{Base, base};
use super::lineage::lineage;
use super::losses::Losses;
use super::reduce::{Effort, Reduced, Reducer};
use super::{MANY_BYTES, TimeTravelError};
use crate::filter::{Turn, off_the_runtime};
use prombus_core::{Event, EventLog, HistoryRequest, Offset, Partition, ReadError, ReadRequest, TopicState};

/// How many events of a key are read at once.
const PAGE_EVENTS: usize = 1_024;
/// How many where each of them has to be evaluated.
const EVALUATED_EVENTS: usize = 64;
/// How many bytes of them.
const PAGE_BYTES: usize = 1 << 20;
/// How often a history is read in the hope that nothing is given up meanwhile.
const TRIES: usize = 3;

/// A state at a time.
#[derive(Debug, Clone, PartialEq)]
pub struct StateAt<S> {
    /// The state.
    pub state: S,
    /// The last event that counts.
    pub last: LastApplied,
    /// How many events were applied, one after the other, on top of the base if there is one.
    pub applied: u64,
    /// The snapshot that it was built on.
    pub base: Option<Base>,
}

impl<S> StateAt<S> {
    /// The same of another state.
    pub fn map<T>(self, make: impl FnOnce(S) -> T) -> StateAt<T> {
        StateAt { state: make(self.state), last: self.last, applied: self.applied, base: self.base }
    }
}

/// The event that a state was last changed by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastApplied {
    /// Its partition.
    pub partition: Partition,
    /// Its offset.
    pub offset: Offset,
    /// Its time.
    pub ts: u64,
}

impl LastApplied {
    /// This event.
    pub(super) fn of(event: &Event) -> Self {
        Self { partition: event.partition, offset: event.offset, ts: event.ts }
    }
}

/// The state that the events of a key with `ts <= at` leave; `None` where they leave none.
pub async fn state_of<R: Reducer>(
    log: &dyn EventLog,
    topic: &TopicState,
    (key, at): (&str, u64),
    reducer: &R,
) -> Result<Option<StateAt<R::State>>, TimeTravelError> {
    let pinned = topic.pinned();
    let partitions = lineage(topic, key);
    let mut before = Losses::look(log, &pinned, &partitions).await?;
    for tries_left in (0..TRIES).rev() {
        let base = match reducer.needs_last_only() {
            true => base(log, topic, (key, at)).await?,
            false => None,
        };
        let mut walk = Walk::new();
        let base = match base {
            None => None,
            Some((base, event)) => {
                walk.apply(&event, reducer)?;
                walk.applied = 0;
                Some(base)
            }
        };
        walk.go(log, topic, (key, at), reducer).await?;
        let after = Losses::look(log, &pinned, &partitions).await?;
        if before == after && walk.is_of_one_life(log, topic).await? {
            return walk.judged(at, &after, base);
        }
        if tries_left == 0 {
            return walk.judged(at, &after.unsettled(), base);
        }
        before = after;
    }
    Err(ReadError::Unavailable("more is given up all the time; try again".into()).into())
}

/// A walk through the events of a key.
struct Walk<S> {
    state: Option<S>,
    last: Option<LastApplied>,
    applied: u64,
    /// Whether the last event alone decides the state.
    is_whole: bool,
    /// The partition of the last event that decides it alone.
    since: Option<Partition>,
    /// Where the first event was that counts.
    first: Option<(Partition, Offset)>,
    /// Whether a later event of the key does not count.
    is_past: bool,
}

impl<S: Send> Walk<S> {
    fn new() -> Self {
        Self {
            state: None,
            last: None,
            applied: 0,
            is_whole: false,
            since: None,
            first: None,
            is_past: false,
        }
    }

    /// Applies all events that count, from where it is.
    async fn go(
        &mut self,
        log: &dyn EventLog,
        topic: &TopicState,
        (key, at): (&str, u64),
        reducer: &impl Reducer<State = S>,
    ) -> Result<(), TimeTravelError> {
        let mut after = self.last.map(|last| (last.partition, last.offset));
        loop {
            // Where expressions are evaluated, what is read waits for nothing but its evaluation.
            let mut turn = match reducer.effort() {
                Effort::Little | Effort::BySize => None,
                Effort::Evaluates { is_costly } => Some(Turn::at_projection(is_costly).await),
            };
            let limit = if turn.is_some() { EVALUATED_EVENTS } else { PAGE_EVENTS };
            let (topic, key) = (topic.pinned(), key.to_owned());
            let events =
                log.history(HistoryRequest { topic, key, after, limit, max_bytes: PAGE_BYTES }).await?;
            let Some(last) = events.last() else { return Ok(()) };
            after = Some((last.partition, last.offset));
            self.is_past = last.ts > at;
            let mut counted = events.iter().filter(|event| event.ts <= at);
            let mut apply = || {
                counted.try_for_each(|event| {
                    self.first.get_or_insert((event.partition, event.offset));
                    self.apply(event, reducer)
                })
            };
            let is_much = || events.iter().map(Event::size).sum::<usize>() > MANY_BYTES;
            if matches!(reducer.effort(), Effort::BySize) && is_much() {
                turn = Some(Turn::at_projection(true).await);
                off_the_runtime(apply)?;
            } else {
                apply()?;
            }
            drop((turn, events));
            tokio::task::yield_now().await;
        }
    }

    /// Whether the first event that counts is still there. A key that is forgotten goes as a whole, which shows nowhere else:
    /// what was read before that and what was read after it do not belong together.
    async fn is_of_one_life(&self, log: &dyn EventLog, topic: &TopicState) -> Result<bool, ReadError> {
        let Some((partition, from)) = self.first else { return Ok(true) };
        let request = ReadRequest { topic: topic.pinned(), partition, from, limit: 1, max_bytes: PAGE_BYTES };
        match log.read(request).await {
            Ok(page) => Ok(page.events.first().is_some_and(|event| event.offset == from)),
            Err(ReadError::Gone { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn apply(&mut self, event: &Event, reducer: &impl Reducer<State = S>) -> Result<(), TimeTravelError> {
        let Reduced { state, is_whole } = reducer.apply(self.state.take(), event)?;
        (self.state, self.is_whole) = (state, is_whole);
        if is_whole {
            self.since = Some(event.partition);
        }
        self.last = Some(LastApplied::of(event));
        self.applied += 1;
        Ok(())
    }

    /// The answer, if what was given up leaves it exact.
    fn judged(
        self,
        at: u64,
        losses: &Losses,
        base: Option<Base>,
    ) -> Result<Option<StateAt<S>>, TimeTravelError> {
        let is_exact = match self.last {
            None => losses.spare_none(at),
            Some(last) => {
                self.is_whole && (!self.is_past || losses.spare_the_last(at, last.partition))
                    || losses.spare_all_since(self.since)
            }
        };
        if !is_exact {
            return Err(TimeTravelError::Gone { horizon_ts: losses.horizon_ts(), at });
        }
        let Self { state, last, applied, .. } = self;
        Ok(state.zip(last).map(|(state, last)| StateAt { state, last, applied, base }))
    }
}
