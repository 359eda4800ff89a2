//! The layers change nothing about what the log promises: the suite runs through all of them, over memory.
#![deny(clippy::missing_trait_methods, reason = "a wrapper that skips a method tests nothing")]

use async_trait::async_trait;
use prombus_core::*;
use prombus_engine::bus::LogBus;
use prombus_engine::layers::{Checks, Rules};
use prombus_engine::{Bus, BusError, Layer, Limits};
use prombus_store_memory::MemoryStore;
use prombus_testkit::Subject;
use std::sync::Arc;
use uuid::Uuid;

/// A log whose commits go through the layers.
struct Layered {
    bus: Arc<dyn Bus>,
    log: Arc<MemoryStore>,
}

#[async_trait]
impl EventLog for Layered {
    async fn enqueue(&self, mut commit: Arc<Commit>) -> Result<Ticket, CommitError> {
        match self.bus.enqueue(&mut commit).await {
            Ok(ticket) => Ok(ticket),
            Err(BusError::Commit(error)) => Err(error),
            Err(other) => panic!("a layer refused what the log would have taken: {other}"),
        }
    }

    async fn read(&self, request: ReadRequest) -> Result<Page, ReadError> {
        self.log.read(request).await
    }

    async fn kept(&self, topic: &TopicRef, partition: Partition) -> Result<Kept, ReadError> {
        self.log.kept(topic, partition).await
    }

    async fn offset_at(&self, request: TsRequest) -> Result<Offset, ReadError> {
        self.log.offset_at(request).await
    }

    async fn by_id(&self, topic: &TopicRef, id: Uuid) -> Result<Option<Event>, ReadError> {
        self.log.by_id(topic, id).await
    }

    async fn latest_by_key(&self, topic: &TopicRef, key: &str) -> Result<Option<Event>, ReadError> {
        self.log.latest_by_key(topic, key).await
    }

    async fn previous_by_key(
        &self,
        topic: &TopicRef,
        key: &str,
        before: (Partition, Offset),
    ) -> Result<Option<Event>, ReadError> {
        self.log.previous_by_key(topic, key, before).await
    }

    async fn history(&self, request: HistoryRequest) -> Result<Vec<Event>, ReadError> {
        self.log.history(request).await
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

async fn layered() -> Subject {
    let clock = Arc::new(ManualClock::at(1_754_683_200_000));
    let log = Arc::new(MemoryStore::new(clock.clone(), 1));
    let bus: Arc<dyn Bus> = Arc::new(LogBus(log.clone()));
    let bus = Rules { limits: CommitLimits::default(), makes: None }.wrap(bus);
    let bus = Checks { limits: Limits::default(), clock: clock.clone() }.wrap(bus);
    let documents = log.clone();
    let log: Arc<dyn EventLog> = Arc::new(Layered { bus, log });
    Subject { log, documents: Some(documents), clock: Some(clock), keep: Box::new(()) }
}

prombus_testkit::log_conformance!(layered);
prombus_testkit::state_conformance!(layered);
