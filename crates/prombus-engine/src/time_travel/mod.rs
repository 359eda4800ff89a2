//! What was it like at a time? The state of a key, of all keys and of a document, as the events with `ts <= at` leave it.
//!
//! Events count in the order of partition and offset, which is the order in which those of one key were committed. Times may
//! run in any order. A [`Reducer`] says what a state is: the last payload, all payloads merged, a document, or whatever [`TimeTravel::reconstruct_at`] is given.
//!
//! An answer is exact, or it is [`TimeTravelError::Gone`]. What was given up is known only by what
//! [`Kept`](prombus_core::Kept) says of a partition: everything below `first` (trimmed), perhaps something between the bounds
//! (`has_holes`), and `horizon_ts`, by which whoever gave something up promises:
//!
//! - An event that is given up while the same key has a later one that is kept raises the horizon of its partition to the time
//!   of the next of those, unless that is no later than its own.
//! - A single event is not given up while it is the last of its key, but for a tombstone of which nothing earlier is left. Of a
//!   key of which a trim takes everything, nothing is left to tell that it was there: it was not. So a trim that takes the last
//!   event of a key takes what is left of it in lower partitions, too.
//! - A key that is forgotten goes as a whole and raises no horizon: it was not there either.
//!
//! So for a key, whose partitions are those that it was placed in as its topic grew ([`lineage`]):
//!
//! 1. The last kept event with `ts <= at` is the last that there was if, in its own partition, `at` is not before the horizon,
//!    or there are no holes (a trim takes only what is earlier); and if `at` is not before the horizons of the later partitions
//!    of the key. It is in any case if no later event of the key is kept: then it is the newest that there was.
//! 2. Where there is no such event, there was none if `at` is before no horizon.
//! 3. A state that the last event alone decides is exact if 1. or 2. holds. `replace` is always like that, so from the
//!    horizon on it is always answered. So is `merge` after a tombstone, or any payload that is not an object.
//! 4. Any other state is exact if nothing is missing from the last event on that decides it alone, or from the beginning:
//!    there are no holes in that event's partition, and nothing is missing in the later ones.
//!
//! A snapshot of the key spares a `replace` the events before the one that it is of ([`base`]), and changes nothing else.
//!
//! `kept` and `history` are several reads. What is given up meanwhile may make a difference only if it shows in what is kept
//! afterwards, so that is looked at before and after; if it has moved, all of it is read again. That a key was forgotten shows
//! in its first event, which is gone then.

mod all_keys;
mod base;
mod document;
mod key_table;
mod lineage;
mod losses;
mod merge;
mod reduce;
mod walk;

pub use all_keys::{AllKeys, KEYS_BYTES};
pub use base::Base;
pub use merge::MAX_STATE_BYTES;
pub use walk::{LastApplied, StateAt};

use crate::cleaning::Cleaning;
use crate::projections::{ProjectionError, Projections};
use merge::Merged;
use prombus_core::{Clock, Document, Event, EventLog, Json, ReadError, TopicName, TopicState};
use reduce::{ByFunction, Merge, Replace};
use std::sync::Arc;

/// What takes more bytes is worked on where no other task waits for it, and little of that at a time.
const MANY_BYTES: usize = 64 << 10;

/// Why there is no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TimeTravelError {
    /// It would need events that were given up.
    #[error("{}", gone_message(.horizon_ts, .at))]
    Gone {
        /// From when on the last event of every key is known.
        horizon_ts: u64,
        /// What was asked for.
        at: u64,
    },
    /// What was asked for makes no sense.
    #[error("{0}")]
    Bad(String),
    /// A state has a limit.
    #[error("the merged state takes more than {MAX_STATE_BYTES} bytes; read the events of the key instead")]
    TooLarge,
    /// The log cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// There is no projection to ask.
    #[error(transparent)]
    Projection(#[from] ProjectionError),
}

fn gone_message(horizon_ts: &u64, at: &u64) -> String {
    if at < horizon_ts {
        return format!(
            "events that this needs are no longer kept: retention or compaction has taken them; ask for a time at or after {horizon_ts}"
        );
    }
    format!(
        "this needs all earlier events of the key, and retention or compaction may have taken some of them; only the last payload (reduce=replace) is known from {horizon_ts} on"
    )
}

/// How a state follows from payloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reduce {
    /// It is the last one.
    #[default]
    Replace,
    /// They are merged in order (RFC 7396).
    Merge,
}

/// Asks a hub what was at a time.
#[derive(Clone)]
pub struct TimeTravel {
    log: Arc<dyn EventLog>,
    projections: Arc<Projections>,
    cleaning: Arc<Cleaning>,
    clock: Arc<dyn Clock>,
}

impl TimeTravel {
    pub(crate) fn new(
        log: Arc<dyn EventLog>,
        projections: Arc<Projections>,
        cleaning: Arc<Cleaning>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { log, projections, cleaning, clock }
    }

    /// The state of a key as its events with `ts <= at` leave it; `None` where there was none. Costs as much as the key has
    /// events.
    pub async fn state_at(
        &self,
        topic: &TopicName,
        key: &str,
        (at, reduce): (u64, Reduce),
    ) -> Result<Option<StateAt<Json>>, TimeTravelError> {
        let topic = self.existing(topic).await?;
        match reduce {
            Reduce::Replace => walk::state_of(&*self.log, &topic, (key, at), &Replace).await,
            Reduce::Merge => {
                let merged = walk::state_of(&*self.log, &topic, (key, at), &Merge).await?;
                Ok(merged.map(|state| state.map(Merged::into_json)))
            }
        }
    }

    /// What `reduce` makes of the events of a key with `ts <= at`, in order; `None` where that is nothing. A tombstone ends the
    /// entity: `reduce` is not asked about it, and begins anew with the next event. It may be asked about the same events again,
    /// from the first one on.
    ///
    /// It is exact, so it is [`TimeTravelError::Gone`] as soon as an event may be missing since the last tombstone.
    pub async fn reconstruct_at<S: Send>(
        &self,
        topic: &TopicName,
        (key, at): (&str, u64),
        reduce: impl Fn(Option<S>, &Event) -> Option<S> + Sync,
    ) -> Result<Option<StateAt<S>>, TimeTravelError> {
        let topic = self.existing(topic).await?;
        walk::state_of(&*self.log, &topic, (key, at), &ByFunction::new(reduce)).await
    }

    /// The states of all keys, as [`Reduce::Replace`] says, of what is visible now. Until all of them are read, or these are
    /// dropped, the topic is not cleaned in the background, for ten minutes at most.
    pub async fn all_at(&self, topic: &TopicName, at: u64) -> Result<AllKeys, TimeTravelError> {
        let state = self.existing(topic).await?;
        let hold = self.cleaning.hold(topic).await;
        AllKeys::new(self.log.clone(), state, (at, hold)).await
    }

    /// The document of a changelog projection as the events of its key with `ts <= at` leave it; `None` where there was none.
    /// It is [`ProjectionError::Bad`] where events of other keys may have written documents.
    pub async fn document_at(
        &self,
        collection: &str,
        (key, at): (&str, u64),
    ) -> Result<Option<Document>, TimeTravelError> {
        let changelog = self.projections.changelog_of(collection).await?;
        let Some(topic) = self.log.topic(&changelog.topic).await? else { return Ok(None) };
        let plan = changelog.plan.clone();
        let document = document::document_of(&*self.log, &topic, (key, at), plan).await?;
        // Afterwards, so that all events that were read have been compared.
        self.projections.check_keys(&changelog, &topic).await?;
        Ok(document)
    }

    /// What time it is.
    pub fn now(&self) -> u64 {
        self.clock.now_ms()
    }

    async fn existing(&self, topic: &TopicName) -> Result<TopicState, ReadError> {
        self.log.topic(topic).await?.ok_or_else(|| ReadError::TopicNotFound(topic.clone()))
    }
}
