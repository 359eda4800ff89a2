//! A snapshot to build on: where the walk through the history of a key may begin.
//!
//! A record of a snapshot topic says at which event the key was when it was published. The event itself is read again: it
//! is what the answer is built on, and the record only tells where it is. So an answer is the same with a snapshot as
//! without it, whoever has published there, and it never needs an event that is no longer kept.

use super::walk::LastApplied;
use crate::cleaning::snapshots::record::Origin;
use prombus_core::{Event, EventLog, EventLogExt, Partition, ReadError, ReadRequest, TopicRef, TopicState};

/// How many records of a key are looked at, the latest first. A snapshot topic that is compacted has one, or a few.
const MAX_RECORDS: usize = 8;

/// A snapshot that a state was built on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Base {
    /// The event that it is of.
    pub event: LastApplied,
    /// The greatest time of all that went into it.
    pub max_ts: u64,
}

/// The latest snapshot of a key into which nothing after `at` went, with its event, if that is kept.
pub async fn base(
    log: &dyn EventLog,
    topic: &TopicState,
    (key, at): (&str, u64),
) -> Result<Option<(Base, Event)>, ReadError> {
    let Some(snapshot) = &topic.config.snapshot else { return Ok(None) };
    let records = TopicRef::from(&snapshot.topic);
    let mut next = match log.latest_by_key(&records, key).await {
        // It was not made yet, or is gone.
        Err(ReadError::TopicNotFound(_)) => return Ok(None),
        next => next?,
    };
    for _ in 0..MAX_RECORDS {
        let Some(record) = next else { return Ok(None) };
        match Origin::of(&record) {
            Some(origin) if origin.max_ts <= at => {
                let event = event_of(log, topic, (key, origin)).await?;
                let built_on = |event: Event| {
                    let base = Base { event: LastApplied::of(&event), max_ts: origin.max_ts };
                    (base, event)
                };
                return Ok(event.filter(|event| event.ts <= at).map(built_on));
            }
            _ => {}
        }
        let before = (record.partition, record.offset);
        // One that was given up meanwhile has none before it. What else may be wrong, the walk will tell.
        next = log.event_before(&records, key, before).await.unwrap_or_default();
    }
    Ok(None)
}

/// The event that a record is of, if it is kept and is one of the key's.
async fn event_of(
    log: &dyn EventLog,
    topic: &TopicState,
    (key, origin): (&str, Origin),
) -> Result<Option<Event>, ReadError> {
    let (partition, from) = origin.place();
    if partition >= Partition(topic.config.partitions) {
        return Ok(None);
    }
    let request = ReadRequest { topic: topic.pinned(), partition, from, limit: 1, max_bytes: 1 };
    match log.read(request).await {
        Ok(page) => {
            let event = page.events.into_iter().next();
            Ok(event.filter(|event| event.offset == from && event.key.as_deref() == Some(key)))
        }
        // It is no longer kept.
        Err(ReadError::Gone { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
