//! The log as normalizing readers see it: every event is one of the latest version of its topic's schema.
//!
//! Whoever reads does as with any log. What can be read up to an event that cannot be raised is given, and the read that
//! would start with that event is refused and names it, so that nothing is passed over in silence.

use super::raise::{Raiser, Raisers};
use async_trait::async_trait;
use prombus_core::{
    Commit, CommitError, Cursor, CursorKey, Event, EventLog, HistoryRequest, Kept, Offset, Page, Partition,
    PreviousRequest, ReadError, ReadRequest, Sequence, StoreStatus, Ticket, TopicName, TopicRef, TopicState,
    TsRequest, Watched,
};
use std::sync::Arc;
use uuid::Uuid;

/// The log.
pub(crate) struct NormalLog {
    log: Arc<dyn EventLog>,
    raisers: Arc<Raisers>,
}

impl NormalLog {
    /// Over a log as it is.
    pub fn new(log: Arc<dyn EventLog>, raisers: Arc<Raisers>) -> Self {
        Self { log, raisers }
    }

    /// What raises the events of a topic, if it has schemas. It is looked up after they were read, so that it knows every
    /// version that they are of.
    async fn raiser(&self, topic: &TopicRef) -> Result<Option<Arc<Raiser>>, ReadError> {
        let state = topic.pick(self.log.topic(&topic.name).await?, |state| state.number)?;
        self.raisers.of(&state).await
    }

    async fn one(&self, topic: &TopicRef, event: Option<Event>) -> Result<Option<Event>, ReadError> {
        let Some(event) = event else { return Ok(None) };
        Ok(match self.raiser(topic).await? {
            Some(raiser) => raised(&raiser, vec![event]).await?.0.into_iter().next(),
            None => Some(event),
        })
    }
}

/// Events as those of the latest version, at least one of them, and the first one that is left.
async fn raised(raiser: &Raiser, events: Vec<Event>) -> Result<(Vec<Event>, Option<Event>), ReadError> {
    let turn = raiser.turn().await;
    let mut done = Vec::with_capacity(events.len());
    let mut failed = None;
    let rest = raiser.raise_some(events, turn, |raiser, event| match raiser.raise(event) {
        Ok(event) => {
            done.push(event);
            true
        }
        Err(why) => {
            failed = Some(why);
            false
        }
    });
    let left = rest.into_iter().next();
    match (failed, &left) {
        (Some(why), Some(event)) if done.is_empty() => {
            let (topic, id) = (event.topic.clone(), event.id);
            Err(ReadError::NotRaised { topic, partition: event.partition, offset: event.offset, id, why })
        }
        _ => Ok((done, left)),
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl EventLog for NormalLog {
    async fn enqueue(&self, commit: Arc<Commit>) -> Result<Ticket, CommitError> {
        self.log.enqueue(commit).await
    }

    async fn read(&self, request: ReadRequest) -> Result<Page, ReadError> {
        let topic = request.topic.clone();
        let Page { events, next, end } = self.log.read(request).await?;
        match self.raiser(&topic).await? {
            Some(raiser) if !events.is_empty() => {
                let (events, left) = raised(&raiser, events).await?;
                Ok(Page { events, next: left.map_or(next, |event| event.offset), end })
            }
            _ => Ok(Page { events, next, end }),
        }
    }

    async fn kept(&self, topic: &TopicRef, partition: Partition) -> Result<Kept, ReadError> {
        self.log.kept(topic, partition).await
    }

    async fn offset_at(&self, request: TsRequest) -> Result<Offset, ReadError> {
        self.log.offset_at(request).await
    }

    async fn by_id(&self, topic: &TopicRef, id: Uuid) -> Result<Option<Event>, ReadError> {
        self.one(topic, self.log.by_id(topic, id).await?).await
    }

    async fn latest_by_key(&self, topic: &TopicRef, key: &str) -> Result<Option<Event>, ReadError> {
        self.one(topic, self.log.latest_by_key(topic, key).await?).await
    }

    async fn previous_by_key(&self, request: PreviousRequest) -> Result<Vec<Option<Event>>, ReadError> {
        let topic = request.topic.clone();
        let mut found = Vec::new();
        for event in self.log.previous_by_key(request).await? {
            found.push(self.one(&topic, event).await?);
        }
        Ok(found)
    }

    async fn history(&self, request: HistoryRequest) -> Result<Vec<Event>, ReadError> {
        let topic = request.topic.clone();
        let events = self.log.history(request).await?;
        match self.raiser(&topic).await? {
            Some(raiser) if !events.is_empty() => Ok(raised(&raiser, events).await?.0),
            _ => Ok(events),
        }
    }

    async fn erase(&self) -> Result<(), CommitError> {
        self.log.erase().await
    }

    async fn advance_horizon(&self, topic: &TopicName, past: u64) -> Result<u64, ReadError> {
        self.log.advance_horizon(topic, past).await
    }

    async fn changed(&self, of: &Watched, after: Sequence) -> Sequence {
        self.log.changed(of, after).await
    }

    async fn topic(&self, name: &TopicName) -> Result<Option<TopicState>, ReadError> {
        self.log.topic(name).await
    }

    async fn topics(&self) -> Result<Vec<TopicState>, ReadError> {
        self.log.topics().await
    }

    async fn cursor(&self, key: &CursorKey) -> Result<Option<Cursor>, ReadError> {
        self.log.cursor(key).await
    }

    async fn readers(&self, topic: &TopicName, prefix: &str) -> Result<Vec<String>, ReadError> {
        self.log.readers(topic, prefix).await
    }

    fn status(&self) -> StoreStatus {
        self.log.status()
    }

    async fn close(&self) {
        self.log.close().await;
    }
}
