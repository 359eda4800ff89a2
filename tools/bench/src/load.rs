//! Commits for the engine, built before the clock starts.

use bytes::Bytes;
use bytestring::ByteString;
use prombus_core::{
    Append, Commit, ConfigChange, EventLogExt, Json, NewEvent, Partition, Placement, TopicConfig, TopicName,
};
use prombus_store_disk::{DiskOptions, DiskStore};
use std::path::Path;
use std::sync::Arc;
use uuid::Uuid;

/// Payload and key of an event together.
pub const EVENT_BYTES: usize = 250;
/// How many different keys there are.
pub const KEYS: usize = 10_000;
/// How many different payloads there are; more would only cost memory.
const PAYLOADS: usize = 1_000;
const KEY_BYTES: usize = 9;

/// Who makes the ids of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ids {
    /// The engine.
    Hub,
    /// The producer, at random, so that the engine has to look each up.
    Own,
}

/// What events look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Who makes ids.
    pub ids: Ids,
    /// Whether events have keys.
    pub keys: bool,
}

/// Makes commits of one shape.
pub struct Maker {
    shape: Shape,
    payloads: Vec<Json>,
    keys: Vec<ByteString>,
}

impl Maker {
    /// A maker.
    pub fn new(shape: Shape) -> Result<Self, String> {
        let payload_bytes = if shape.keys { EVENT_BYTES - KEY_BYTES } else { EVENT_BYTES };
        let payloads = (0..PAYLOADS).map(|n| payload(n, payload_bytes)).collect::<Result<_, _>>()?;
        let keys = if shape.keys { (0..KEYS).map(key).collect() } else { Vec::new() };
        Ok(Self { shape, payloads, keys })
    }

    /// A commit of `batch` events to one partition.
    pub fn commit(&self, topic: &Topic, batch: u64) -> Arc<Commit> {
        let events = (0..batch).map(|_| topic.append(self.event())).collect();
        Arc::new(Commit { events, ..Commit::default() })
    }

    /// One event.
    pub fn event(&self) -> NewEvent {
        let payload = self.payloads[fastrand::usize(..self.payloads.len())].clone();
        let mut event = NewEvent::new(payload);
        event.id = (self.shape.ids == Ids::Own).then(random_id);
        if !self.keys.is_empty() {
            event.key = Some(self.keys[fastrand::usize(..self.keys.len())].clone());
        }
        event
    }
}

/// The key of that number.
pub fn key(number: usize) -> ByteString {
    format!("k{number:08}").into()
}

fn random_id() -> Uuid {
    uuid::Builder::from_random_bytes(fastrand::u128(..).to_ne_bytes()).into_uuid()
}

fn payload(number: usize, bytes: usize) -> Result<Json, String> {
    let start = format!("{{\"n\":{},\"pad\":\"", number + PAYLOADS);
    let pad = "x".repeat(bytes.saturating_sub(start.len() + 2));
    Json::parse(Bytes::from(format!("{start}{pad}\"}}"))).map_err(|error| error.to_string())
}

/// A topic with one partition.
#[derive(Clone)]
pub struct Topic {
    /// Its name.
    pub name: TopicName,
}

impl Topic {
    /// An event for it.
    pub fn append(&self, event: NewEvent) -> Append {
        Append { topic: self.name.clone(), placement: Placement::Auto, expect: None, event }
    }

    /// Makes a topic in a store.
    pub async fn create(store: &DiskStore, name: &str) -> Result<Self, String> {
        let name = TopicName::parse(name).map_err(|error| error.to_string())?;
        let change = ConfigChange::CreateTopic { name: name.clone(), config: TopicConfig::default() };
        let commit = Commit { config: vec![change], ..Commit::default() };
        store.commit(Arc::new(commit)).await.map_err(|error| error.to_string())?;
        Ok(Self { name })
    }

    /// Fails unless the topic holds exactly `events` events.
    pub async fn check(&self, store: &DiskStore, events: u64) -> Result<(), String> {
        let bounds =
            store.bounds(&(&self.name).into(), Partition(0)).await.map_err(|error| error.to_string())?;
        if bounds.next.0 == events {
            return Ok(());
        }
        Err(format!("{} events went into {}, but {} are there", events, self.name, bounds.next))
    }
}

/// Opens a store for measuring.
pub fn open_store(dir: &Path, part_bytes: u64) -> Result<Arc<DiskStore>, String> {
    let options = DiskOptions { part_bytes, ..DiskOptions::new(dir) };
    DiskStore::open(options).map_err(|error| error.to_string())
}

/// Sends a commit and checks that all of its events are new.
pub async fn send(store: &DiskStore, commit: Arc<Commit>) -> Result<(), String> {
    let sent = commit.events.len();
    let receipt = store.commit(commit).await.map_err(|error| error.to_string())?;
    if receipt.events.len() == sent && !receipt.events.iter().any(|event| event.duplicate) {
        return Ok(());
    }
    Err(format!("a commit of {sent} events was not answered as such"))
}

/// A runtime on this thread: the writer has its own.
pub fn runtime() -> Result<tokio::runtime::Runtime, String> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())
}
