//! Refuses events that are malformed, too large or too far ahead, before anything else looks at them. Every commit comes
//! here, and what is asked of it goes by its origin:
//!
//! | whose it is | each event | the whole |
//! |---|---|---|
//! | a producer's | all checks, and no topic of the hub's own | at most `limits.commit_bytes` |
//! | derived from users' events | all checks; not the dead letters among them | |
//! | the hub's own | none: a dead letter or a record is larger than the event that it holds | |

use crate::bus::{Bus, BusError, Layer};
use crate::hub::Limits;
use async_trait::async_trait;
use prombus_core::{Append, Clock, Commit, Origin, Ticket};
use std::sync::Arc;

/// Whether anything is asked of an event.
fn is_asked(origin: Origin, append: &Append) -> bool {
    match origin {
        Origin::Producer => true,
        // Nobody but the hub publishes there.
        Origin::Derived => !append.topic.is_internal(),
        Origin::Hub => false,
    }
}

/// The layer.
#[derive(Clone)]
pub struct Checks {
    /// How large things may be.
    pub limits: Limits,
    /// What event times are compared with.
    pub clock: Arc<dyn Clock>,
}

/// Adds up how large a commit gets, so that one that is too large can be refused as soon as that shows.
#[derive(Debug, Clone, Copy)]
pub struct CommitSize {
    bytes: usize,
    limit: usize,
}

impl CommitSize {
    /// Of nothing yet, and of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { bytes: 0, limit }
    }

    /// What was added so far.
    pub fn bytes(self) -> usize {
        self.bytes
    }

    /// Adds an event or a write, by its size.
    pub fn add(&mut self, bytes: usize) -> Result<(), BusError> {
        self.bytes += bytes;
        let Self { bytes, limit } = *self;
        if bytes > limit { Err(BusError::CommitTooLarge { bytes, limit }) } else { Ok(()) }
    }
}

impl Layer for Checks {
    fn wrap(self, inner: Arc<dyn Bus>) -> Arc<dyn Bus> {
        Arc::new(ChecksBus { checks: self, inner })
    }
}

struct ChecksBus {
    checks: Checks,
    inner: Arc<dyn Bus>,
}

#[async_trait]
impl Bus for ChecksBus {
    async fn enqueue(&self, commit: &mut Arc<Commit>) -> Result<Ticket, BusError> {
        self.checks.check(commit)?;
        self.inner.enqueue(commit).await
    }
}

impl Checks {
    /// Refuses what a commit must not bring along.
    pub(crate) fn check(&self, commit: &Commit) -> Result<(), BusError> {
        let latest = self.latest_ts();
        let mut events = commit.events.iter().enumerate().filter(|(_, one)| is_asked(commit.origin, one));
        events.try_for_each(|(index, append)| self.check_event(index, append, latest))?;
        match commit.origin {
            Origin::Producer => CommitSize::new(self.limits.commit_bytes).add(commit.size()),
            // Projections keep to their own measure, and what the hub writes is never too much for itself.
            Origin::Derived | Origin::Hub => Ok(()),
        }
    }

    fn latest_ts(&self) -> u64 {
        self.clock.now_ms().saturating_add(self.limits.future_ts_ms)
    }

    /// What will be said of an event that the code of a projection publishes. It is asked here before it is committed, so
    /// that the code hears of it, and a rebuild, which publishes nothing, fails the same events. Schemas are not asked: by the
    /// time of a rebuild they may refuse what they took, and take what they refused.
    pub(crate) fn foresee(&self, append: &Append) -> Result<(), BusError> {
        self.check_event(0, append, self.latest_ts())
    }

    fn check_event(&self, index: usize, append: &Append, latest: u64) -> Result<(), BusError> {
        let event = &append.event;
        if append.topic.is_internal() {
            return Err(BusError::ReservedTopic(append.topic.clone()));
        }
        event.check().map_err(|error| BusError::BadEvent { index, error })?;
        if append.placement.named().is_some() && event.key.is_some() {
            return Err(BusError::KeyAndPartition { index });
        }
        if append.expect.is_some() && event.key.is_none() {
            return Err(BusError::ExpectWithoutKey { index });
        }
        if let Some(ts) = event.ts
            && ts > latest
        {
            return Err(BusError::FutureTs { index, ts, ahead_ms: self.limits.future_ts_ms });
        }
        let (bytes, limit) = (event.size(), self.limits.event_bytes);
        if bytes > limit {
            return Err(BusError::EventTooLarge { index, bytes, limit });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prombus_core::{Json, NewEvent, SystemClock, TopicName};

    fn append(topic: &str, bytes: usize) -> Append {
        let payload = Json::from_stored(format!("\"{}\"", "x".repeat(bytes)).into());
        Append::new(TopicName::parse(topic).unwrap(), NewEvent::new(payload))
    }

    #[test]
    fn what_is_asked_goes_by_whose_it_is() {
        let limits = Limits { event_bytes: 2_000, commit_bytes: 5_000, ..Limits::default() };
        let checks = Checks { limits, clock: Arc::new(SystemClock) };
        let refused = |origin, events: Vec<Append>| {
            let error = checks.check(&Commit { origin, ..events.into() }).err()?;
            Some((error.index(), error))
        };
        let large = || vec![append("t", 1), append("t", 3_000)];
        let letter = || vec![append("dlq.t", 3_000)];
        let many = || (0..6).map(|_| append("t", 1_500)).collect::<Vec<_>>();
        for origin in [Origin::Producer, Origin::Derived] {
            let error = refused(origin, large());
            assert!(matches!(error, Some((Some(1), BusError::EventTooLarge { .. }))), "{origin:?} {error:?}");
        }
        assert!(matches!(refused(Origin::Producer, letter()), Some((_, BusError::ReservedTopic(_)))));
        assert!(matches!(refused(Origin::Producer, many()), Some((None, BusError::CommitTooLarge { .. }))));
        assert_eq!(refused(Origin::Derived, letter()), None);
        assert_eq!(refused(Origin::Derived, many()), None);
        for events in [large(), letter(), many()] {
            assert_eq!(refused(Origin::Hub, events), None);
        }
    }
}
