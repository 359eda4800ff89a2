//! Where behaviours are shown: a hub on a store of some kind, and short ways to use it that fail loudly.
#![allow(dead_code, reason = "several tests share it, and not each needs all of it")]

use crate::switch::{Refusal, Switch, Which};
use prombus_core::memory::MemoryStore;
use prombus_core::*;
use prombus_engine::projections::{Definition, MinOffset, ProjectionError, ProjectionStatus};
use prombus_engine::query::{From, Query};
use prombus_engine::{Hub, HubOptions, Limits, Outgoing, Store};
use prombus_store_disk::{DiskOptions, DiskStore, OpenError};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// Long enough for what must happen, on any machine.
pub const LONG: Duration = Duration::from_secs(25);

/// A hub on a store.
pub struct Stage {
    pub hub: Hub,
    pub clock: Arc<ManualClock>,
    pub log: Arc<Switch>,
    kind: Kind,
}

#[derive(Clone)]
enum Kind {
    Memory(Arc<MemoryStore>),
    Disk(Arc<TempDir>),
}

impl Stage {
    pub async fn memory() -> Self {
        let clock = Arc::new(ManualClock::at(1_754_683_200_000));
        let store = Arc::new(MemoryStore::new(clock.clone(), 1));
        Self::on(clock, Kind::Memory(store)).await
    }

    pub async fn disk() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        Self::on(Arc::new(ManualClock::at(1_754_683_200_000)), Kind::Disk(Arc::new(dir))).await
    }

    async fn on(clock: Arc<ManualClock>, kind: Kind) -> Self {
        let (store, closes) = match &kind {
            Kind::Memory(store) => (Store::new(store.clone()), false),
            Kind::Disk(dir) => (Store::new(opened(dir, &clock).await), true),
        };
        let log = Switch::new(store, closes);
        let options = HubOptions {
            limits: Limits::default(),
            auto_create: true,
            topics: HashMap::new(),
            clock: clock.clone(),
        };
        let hub = Hub::assemble(Store::new(log.clone()), options);
        hub.projections().start().await.expect("projections start");
        Self { hub, clock, log, kind }
    }

    /// The hub ends, and another one starts on what is stored.
    pub async fn restart(self) -> Self {
        let Self { hub, clock, log, kind } = self;
        hub.close().await;
        log.end();
        Self::on(clock, kind).await
    }

    /// The hub is gone from one moment to the next, and another one starts on what is stored.
    pub async fn crash(self) -> Self {
        let Self { hub, clock, log, kind } = self;
        log.end();
        hub.groups().close();
        drop(hub);
        Self::on(clock, kind).await
    }

    pub async fn topic(&self, name: &str, partitions: u32) -> TopicName {
        let name = topic_name(name);
        let patch = TopicPatch { partitions: Some(partitions), ..TopicPatch::default() };
        self.hub.put_topic(&name, patch).await.expect("a topic can be made, or grow");
        name
    }

    /// Publishes payloads, with a key or without.
    pub async fn publish(
        &self,
        topic: &TopicName,
        events: impl IntoIterator<Item = (&str, Value)>,
    ) -> Vec<Appended> {
        let events: Vec<Outgoing> =
            events.into_iter().map(|(key, payload)| outgoing(Some(key), &payload)).collect();
        self.hub.publish(topic, events).await.expect("events can be published").events
    }

    pub async fn put(&self, name: &str, definition: Value) -> ProjectionStatus {
        self.try_put(name, definition).await.expect("a projection can be put")
    }

    pub async fn try_put(&self, name: &str, definition: Value) -> Result<ProjectionStatus, ProjectionError> {
        let definition: Definition = serde_json::from_value(definition).expect("a definition");
        self.hub.projections().put(name, definition).await.map(|(status, _)| status)
    }

    pub async fn status(&self, name: &str) -> ProjectionStatus {
        self.hub.projections().get(name).await.expect("a projection has a status")
    }

    /// The status, once it is as it must become.
    pub async fn until(
        &self,
        name: &str,
        what: &str,
        holds: impl Fn(&ProjectionStatus) -> bool,
    ) -> ProjectionStatus {
        let looked = async {
            loop {
                let status = self.status(name).await;
                if holds(&status) {
                    return status;
                }
                tokio::task::yield_now().await;
            }
        };
        match tokio::time::timeout(LONG, looked).await {
            Ok(status) => status,
            Err(_) => panic!("{what}, but: {:#?}", self.status(name).await),
        }
    }

    /// Waits until a projection has seen all that there is of its topic.
    pub async fn caught_up(&self, name: &str) -> ProjectionStatus {
        let status = self.status(name).await;
        for at in status.partitions.iter().filter(|at| at.tail.0 > 0) {
            let wanted = MinOffset { partition: Some(at.partition), offset: Offset(at.tail.0 - 1) };
            let looked = async {
                while !self
                    .hub
                    .projections()
                    .until_seen(&status.collections[0], wanted)
                    .await
                    .expect("a place")
                {}
            };
            if tokio::time::timeout(LONG, looked).await.is_err() {
                panic!("{name} does not get there: {:#?}", self.status(name).await);
            }
        }
        self.status(name).await
    }

    /// Makes the collections of a projection anew, and waits until they are there.
    pub async fn rebuilt(&self, name: &str) -> ProjectionStatus {
        self.hub.projections().rebuild(name, false).await.expect("a rebuild can be begun");
        self.until(name, "the rebuild ends", |status| status.rebuild.is_none()).await
    }

    /// What readers see of a document.
    pub async fn document(&self, collection: &str, key: &str) -> Option<Value> {
        let found = self.hub.collections().document(collection, key).await.expect("documents can be read");
        found.map(|document| document.to_json().to_value().expect("JSON"))
    }

    /// A field of a document, `null` where there is none.
    pub async fn field(&self, collection: &str, key: &str, field: &str) -> Value {
        self.document(collection, key).await.map_or(Value::Null, |document| document[field].clone())
    }

    /// All documents of a collection, as readers see them and with their tags.
    pub async fn all(&self, collection: &str) -> Vec<(String, u128)> {
        let request = ScanRequest { collection: collection.into(), after: None, limit: usize::MAX };
        let found = self.log.scan(request).await.expect("documents can be read");
        let seen = |document: Document| (format!("{:?}", document.to_json()), document.etag);
        found.into_iter().map(seen).collect()
    }

    /// The events of a topic, in order of their partitions.
    pub async fn events(&self, topic: &TopicName) -> Vec<Event> {
        let query = Query { from: From::Earliest, partition: None, key: None, to_ts: None, filter: None };
        match self.hub.read(topic, query).await {
            Ok(reader) => reader.up_to_now().next_page(10_000).await.expect("events can be read").events,
            Err(_) => Vec::new(),
        }
    }

    /// The dead letters of a topic.
    pub async fn letters(&self, topic: &TopicName) -> Vec<Event> {
        self.events(&topic.dead_letters().expect("a valid name")).await
    }

    /// Gives up the events of partition 0 below an offset.
    pub async fn trim(&self, topic: &TopicName, before: u64) {
        let (partition, before) = (Partition(0), Offset(before));
        let config = vec![ConfigChange::Trim { topic: topic.clone(), partition, before }];
        let commit = Commit { config, ..Commit::default() };
        self.log.commit(Arc::new(commit)).await.expect("a partition can be trimmed");
    }

    /// Refuses some commits.
    pub fn refuse(&self, which: Which, times: usize, error: CommitError) {
        self.log.refuse(Refusal { which, after: 0, times, error, happens: false });
    }
}

/// The store of a folder. A call that was under way when the last one was closed may hold it a moment longer.
async fn opened(dir: &TempDir, clock: &Arc<ManualClock>) -> Arc<DiskStore> {
    let start = tokio::time::Instant::now();
    loop {
        let options = DiskOptions { clock: clock.clone(), seed: 1, ..DiskOptions::new(dir.path()) };
        match DiskStore::open(options) {
            Ok(store) => return store,
            Err(OpenError::Locked(_)) if start.elapsed() < LONG => tokio::task::yield_now().await,
            Err(error) => panic!("the store opens, but: {error}"),
        }
    }
}

pub fn topic_name(name: &str) -> TopicName {
    TopicName::parse(name).expect("a valid name")
}

pub fn outgoing(key: Option<&str>, payload: &Value) -> Outgoing {
    let mut event = NewEvent::new(Json::from_value(payload));
    event.key = key.map(Into::into);
    Outgoing { event, partition: None, expect: None }
}

/// A commit that moves the cursors of something.
pub fn moves_cursors(commit: &Commit) -> bool {
    !commit.cursors.is_empty()
}

/// A transactional projection that counts events, by the field `k` of their payload.
pub fn counter(topic: &str, collection: &str) -> Value {
    json!({"topic": topic, "write": [
        {"collection": collection, "key": "event.payload.k", "inc": {"n": "1", "sum": "event.payload.v"}},
    ]})
}

/// A changelog of payloads under the keys of their events.
pub fn changelog(topic: &str, collection: &str) -> Value {
    json!({"topic": topic, "collection": collection, "key": "event.key"})
}
