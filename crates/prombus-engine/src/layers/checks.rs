//! Refuses events that are malformed, too large or too far ahead, before anything else looks at them.

use crate::bus::{Bus, BusError, Layer};
use crate::hub::Limits;
use async_trait::async_trait;
use prombus_core::{Append, Clock, Commit, Ticket};
use std::sync::Arc;

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
        Arc::new(Checked { checks: self, inner })
    }
}

struct Checked {
    checks: Checks,
    inner: Arc<dyn Bus>,
}

#[async_trait]
impl Bus for Checked {
    async fn enqueue(&self, commit: &mut Arc<Commit>) -> Result<Ticket, BusError> {
        self.checks.check(commit)?;
        self.inner.enqueue(commit).await
    }
}

impl Checks {
    fn check(&self, commit: &Commit) -> Result<(), BusError> {
        let latest = self.latest_ts();
        let mut events = commit.events.iter().enumerate();
        events.try_for_each(|(index, append)| self.check_event(index, append, latest))?;
        CommitSize::new(self.limits.commit_bytes).add(commit.size())
    }

    fn latest_ts(&self) -> u64 {
        self.clock.now_ms().saturating_add(self.limits.future_ts_ms)
    }

    /// Refuses an event that is to be part of a commit.
    pub(crate) fn check_one(&self, append: &Append) -> Result<(), BusError> {
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
