//! A hub on a store of some kind, and short ways to use it that fail loudly.

use super::switch::Switch;
use prombus_core::*;
use prombus_engine::query::{From, Query};
use prombus_engine::{Hub, HubOptions, Limits, Store};
use prombus_store_disk::{DiskOptions, DiskStore, OpenError};
use prombus_store_memory::MemoryStore;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// Long enough for what must happen, on any machine.
pub const LONG: Duration = Duration::from_secs(30);

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
    Disk(Arc<Folder>),
}

/// A data folder, and the size of its parts.
struct Folder {
    dir: TempDir,
    part_bytes: u64,
}

impl Stage {
    pub async fn memory() -> Self {
        let clock = Arc::new(ManualClock::at(1_754_683_200_000));
        let store = Arc::new(MemoryStore::new(clock.clone(), 1));
        Self::on(clock, Kind::Memory(store)).await
    }

    /// In memory, where a commit may make so many bytes.
    pub async fn bounded(result_bytes: usize) -> Self {
        let clock = Arc::new(ManualClock::at(1_754_683_200_000));
        let store = MemoryStore::new(clock.clone(), 1).with_result_bytes(result_bytes);
        Self::on(clock, Kind::Memory(Arc::new(store))).await
    }

    pub async fn disk() -> Self {
        Self::in_parts_of(DiskOptions::new("").part_bytes).await
    }

    /// On a disk, in parts so small that they are full, dropped and rewritten all the time.
    pub async fn small_parts() -> Self {
        Self::in_parts_of(4 << 10).await
    }

    async fn in_parts_of(part_bytes: u64) -> Self {
        let folder = Folder { dir: tempfile::tempdir().expect("a folder"), part_bytes };
        Self::on(Arc::new(ManualClock::at(1_754_683_200_000)), Kind::Disk(Arc::new(folder))).await
    }

    /// In memory, where groups may hold so many bytes of events that they have read ahead.
    pub async fn reading_ahead(read_ahead_bytes: usize) -> Self {
        let clock = Arc::new(ManualClock::at(1_754_683_200_000));
        let store = Arc::new(MemoryStore::new(clock.clone(), 1));
        let limits = Limits { read_ahead_bytes, ..Limits::default() };
        Self::within(limits, clock, Kind::Memory(store)).await
    }

    /// The hub ends, and another one starts on what is stored, which remembers so many keys while it cleans.
    pub async fn remembering(self, cleaning_keys: usize) -> Self {
        let Self { hub, clock, log, kind } = self;
        hub.close().await;
        log.end();
        Self::within(Limits { cleaning_keys, ..Limits::default() }, clock, kind).await
    }

    async fn on(clock: Arc<ManualClock>, kind: Kind) -> Self {
        Self::within(Limits::default(), clock, kind).await
    }

    async fn within(limits: Limits, clock: Arc<ManualClock>, kind: Kind) -> Self {
        Self::assembled(limits, clock, kind, None).await
    }

    /// One of several hubs on a store in memory.
    pub async fn sharing(store: Arc<MemoryStore>, clock: Arc<ManualClock>, homes: Arc<dyn Homes>) -> Self {
        Self::assembled(Limits::default(), clock, Kind::Memory(store), Some(homes)).await
    }

    async fn assembled(
        limits: Limits,
        clock: Arc<ManualClock>,
        kind: Kind,
        homes: Option<Arc<dyn Homes>>,
    ) -> Self {
        let (store, closes) = match &kind {
            Kind::Memory(store) => (Store::new(store.clone()), false),
            Kind::Disk(folder) => (Store::new(opened(folder, &clock).await), true),
        };
        let log = Switch::new(store, closes);
        let options = HubOptions { limits, auto_create: true, topics: HashMap::new(), clock: clock.clone() };
        let hub = Hub::assemble(Store { homes, ..Store::new(log.clone()) }, options);
        hub.projections().start().await.expect("projections start");
        hub.replays().start();
        Self { hub, clock, log, kind }
    }

    /// Whether the store can be opened again after it was closed.
    pub fn is_durable(&self) -> bool {
        matches!(self.kind, Kind::Disk(_))
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

    /// The events of a topic, in order of their partitions.
    pub async fn events(&self, topic: &TopicName) -> Vec<Event> {
        let query = Query::of_all(From::Earliest);
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
        self.give_up(trimmed(topic, before)).await;
    }

    /// Gives up single events of partition 0.
    pub async fn discard(&self, topic: &TopicName, offsets: impl IntoIterator<Item = u64>) {
        self.give_up(discarded(topic, offsets)).await;
    }

    async fn give_up(&self, change: ConfigChange) {
        let mut commit = Arc::new(Commit { config: vec![change], ..Commit::default() });
        let ticket = self.hub.enqueue(&mut commit).await.expect("the hub takes it");
        ticket.await.expect("events can be given up");
    }

    /// Gives up the events of partition 0 below an offset, behind the back of the hub.
    pub async fn trim_unseen(&self, topic: &TopicName, before: u64) {
        let commit = Commit { config: vec![trimmed(topic, before)], ..Commit::default() };
        self.log.commit(Arc::new(commit)).await.expect("a partition can be trimmed");
    }
}

/// The store of a folder. A call that was under way when the last one was closed may hold it a moment longer.
async fn opened(folder: &Folder, clock: &Arc<ManualClock>) -> Arc<DiskStore> {
    let start = tokio::time::Instant::now();
    loop {
        let Folder { dir, part_bytes } = folder;
        let part_bytes = *part_bytes;
        let options =
            DiskOptions { clock: clock.clone(), seed: 1, part_bytes, ..DiskOptions::new(dir.path()) };
        match DiskStore::open(options) {
            Ok(store) => return store,
            Err(OpenError::Locked(_)) if start.elapsed() < LONG => tokio::task::yield_now().await,
            Err(error) => panic!("the store opens, but: {error}"),
        }
    }
}

fn trimmed(topic: &TopicName, before: u64) -> ConfigChange {
    let (partition, before) = (Partition(0), Offset(before));
    ConfigChange::Trim { topic: topic.into(), partition, before, loss: Loss::default() }
}

fn discarded(topic: &TopicName, offsets: impl IntoIterator<Item = u64>) -> ConfigChange {
    let offsets = Arc::new(offsets.into_iter().map(Offset).collect());
    let loss = Loss { bytes: 0, horizon_ts: Some(1) };
    ConfigChange::Discard { topic: topic.into(), partition: Partition(0), offsets, loss }
}

pub fn topic_name(name: &str) -> TopicName {
    TopicName::parse(name).expect("a valid name")
}
