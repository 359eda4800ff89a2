//! Where behaviours are shown: a hub on a store of some kind, and short ways to use groups that fail loudly.

use crate::switch::Switch;
use async_trait::async_trait;
use prombus_core::memory::MemoryStore;
use prombus_core::*;
use prombus_engine::groups::{
    Delivery, Group, GroupCall, GroupError, GroupName, GroupStatus, LeaseToken, OptionsPatch, Pull, Settle,
    SettleCall,
};
use prombus_engine::query::{From, Query};
use prombus_engine::{Hub, HubOptions, Limits, Outgoing, Store};
use prombus_store_disk::{DiskOptions, DiskStore, OpenError};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use uuid::Uuid;

/// Long enough for what must happen, on any machine.
pub const LONG: Duration = Duration::from_secs(25);

/// When nothing has come for so long, nothing is taken to come.
const QUIET: Duration = Duration::from_millis(400);

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
        let store = match &kind {
            Kind::Memory(store) => Store::new(store.clone()),
            Kind::Disk(dir) => Store::new(opened(dir, &clock).await),
        };
        let log = Switch::new(store);
        let options = HubOptions {
            limits: Limits::default(),
            auto_create: true,
            topics: HashMap::new(),
            clock: clock.clone(),
        };
        Self { hub: Hub::assemble(Store::new(log.clone()), options), clock, log, kind }
    }

    /// Whether the store can be opened again after it was closed.
    pub fn is_durable(&self) -> bool {
        matches!(self.kind, Kind::Disk(_))
    }

    /// The hub ends, and another one starts on what is stored.
    pub async fn restart(self) -> Self {
        let Self { hub, clock, log, kind } = self;
        hub.groups().close();
        if matches!(kind, Kind::Disk(_)) {
            hub.close().await;
        }
        log.end();
        Self::on(clock, kind).await
    }

    pub async fn topic(&self, name: &str, partitions: u32) -> TopicName {
        let name = topic_name(name);
        let patch = TopicPatch { partitions: Some(partitions), ..TopicPatch::default() };
        self.hub.put_topic(&name, patch).await.expect("a topic can be made, or grow");
        name
    }

    /// Publishes `{"n": number}` for each number, with a key or without.
    pub async fn publish(
        &self,
        topic: &TopicName,
        key: Option<&str>,
        numbers: impl IntoIterator<Item = u64>,
    ) -> Vec<Appended> {
        let events = numbers.into_iter().map(|number| outgoing(key, number)).collect();
        self.hub.publish(topic, events).await.expect("events can be published").events
    }

    /// Publishes one event without a key to a partition.
    pub async fn publish_to(&self, topic: &TopicName, partition: u32, number: u64) -> Appended {
        let event = Outgoing { partition: Some(Partition(partition)), ..outgoing(None, number) };
        self.hub.publish(topic, vec![event]).await.expect("events can be published").events[0]
    }

    /// A group from the first event on, made where it does not exist.
    pub async fn group(&self, topic: &TopicName, name: &str, options: OptionsPatch) -> Arc<Group> {
        let call = GroupCall { from: From::Earliest, options };
        self.made(topic, name, call).await.expect("a group can be had").0
    }

    /// A group as it is called for. Says whether it was made.
    pub async fn made(
        &self,
        topic: &TopicName,
        name: &str,
        call: GroupCall,
    ) -> Result<(Arc<Group>, bool), GroupError> {
        self.hub.group(topic, &group_name(name), &call).await
    }

    /// A group that exists.
    pub async fn found(&self, topic: &TopicName, name: &str) -> Arc<Group> {
        self.hub.groups().find(topic, &group_name(name)).await.expect("the group is there")
    }

    /// Gives up the events of partition 0 below an offset.
    pub async fn trim(&self, topic: &TopicName, before: u64) {
        let (partition, before) = (Partition(0), Offset(before));
        let config = vec![ConfigChange::Trim { topic: topic.clone(), partition, before }];
        let commit = Commit { config, ..Commit::default() };
        self.log.commit(Arc::new(commit)).await.expect("a partition can be trimmed");
    }

    /// The dead letters of a topic, as they are in the log.
    pub async fn letters(&self, topic: &TopicName) -> Vec<Event> {
        let name = topic.dead_letters().expect("a valid name");
        let query = Query { from: From::Earliest, partition: None, key: None, to_ts: None, filter: None };
        match self.hub.read(&name, query).await {
            Ok(reader) => reader.up_to_now().next_page(10_000).await.expect("letters can be read").events,
            Err(_) => Vec::new(),
        }
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

pub fn group_name(name: &str) -> GroupName {
    GroupName::parse(name).expect("a valid name")
}

pub fn outgoing(key: Option<&str>, number: u64) -> Outgoing {
    let mut event = NewEvent::new(Json::from_stored(format!("{{\"n\":{number}}}").into()));
    event.key = key.map(Into::into);
    Outgoing { event, partition: None, expect: None }
}

/// The number in the payload of an event.
pub fn number(event: &Event) -> u64 {
    event.payload.to_value().expect("JSON")["n"].as_u64().expect("a number")
}

pub fn numbers(deliveries: &[Delivery]) -> Vec<u64> {
    deliveries.iter().map(|delivery| number(&delivery.event)).collect()
}

pub fn ids(events: &[Appended]) -> Vec<Uuid> {
    events.iter().map(|event| event.id).collect()
}

/// What tests say to a group.
#[async_trait]
pub trait Use {
    /// What is there for a member; waits long for the first.
    async fn take(&self, member: &str, max: usize) -> Vec<Delivery>;
    /// What is there for a member now.
    async fn take_now(&self, member: &str, max: usize) -> Vec<Delivery>;
    /// One event, which must come.
    async fn take_one(&self, member: &str) -> Delivery;
    /// One event with this number at this attempt, which must come.
    async fn take_just(&self, member: &str, number: u64, attempt: u32) -> Delivery;
    async fn say(&self, settle: Settle) -> bool;
    async fn ack(&self, lease: LeaseToken) -> bool;
    async fn nack(&self, lease: LeaseToken, delay: Option<Duration>) -> bool;
    /// Acks what must be acked.
    async fn ack_all(&self, deliveries: &[Delivery]);
    /// The status, once it is as it must become.
    async fn until(&self, what: &str, holds: for<'a> fn(&'a GroupStatus) -> bool) -> GroupStatus;
}

#[async_trait]
impl Use for Arc<Group> {
    async fn take(&self, member: &str, max: usize) -> Vec<Delivery> {
        let pull = Pull { member: Some(member.into()), max, wait: LONG, ..Pull::default() };
        self.pull(&pull).await.expect("a pull has an answer")
    }

    async fn take_now(&self, member: &str, max: usize) -> Vec<Delivery> {
        let pull = Pull { member: Some(member.into()), max, ..Pull::default() };
        self.pull(&pull).await.expect("a pull has an answer")
    }

    async fn take_one(&self, member: &str) -> Delivery {
        let mut deliveries = self.take(member, 1).await;
        assert_eq!(deliveries.len(), 1, "there is an event for {member}");
        deliveries.remove(0)
    }

    async fn take_just(&self, member: &str, wanted: u64, attempt: u32) -> Delivery {
        let delivery = self.take_one(member).await;
        let found = (number(&delivery.event), delivery.attempt);
        assert_eq!(found, (wanted, attempt), "the number of the event and its attempt");
        delivery
    }

    async fn say(&self, settle: Settle) -> bool {
        let results = self.settle(SettleCall { settles: vec![Some(settle)] }).await;
        results.expect("what is said has an answer")[0]
    }

    async fn ack(&self, lease: LeaseToken) -> bool {
        self.say(Settle::Ack(lease)).await
    }

    async fn nack(&self, lease: LeaseToken, delay: Option<Duration>) -> bool {
        self.say(Settle::Nack { lease, reason: Some("no good".into()), delay }).await
    }

    async fn ack_all(&self, deliveries: &[Delivery]) {
        let leases = deliveries.iter().map(|delivery| delivery.lease);
        let results = self.settle(SettleCall::acks(leases)).await.expect("acks have an answer");
        assert!(results.iter().all(|taken| *taken), "valid leases can be acked: {results:?}");
    }

    async fn until(&self, what: &str, holds: for<'a> fn(&'a GroupStatus) -> bool) -> GroupStatus {
        let looked = async {
            loop {
                let status = self.status().await.expect("a group has a status");
                if holds(&status) {
                    return status;
                }
                tokio::task::yield_now().await;
            }
        };
        match tokio::time::timeout(LONG, looked).await {
            Ok(status) => status,
            Err(_) => panic!("{what}, but: {:#?}", self.status().await),
        }
    }
}

/// All that there is for a member, one batch after another, acked.
pub async fn drain(group: &Arc<Group>, member: &str) -> Vec<u64> {
    let mut all = Vec::new();
    loop {
        let mut deliveries = group.take_now(member, 100).await;
        if deliveries.is_empty() {
            let status = group.status().await.expect("a group has a status");
            if status.lanes.iter().all(|lane| lane.lag == 0) {
                return all;
            }
            // A pull that does not wait may give up the search on a slow machine.
            let pull = Pull { member: Some(member.into()), wait: QUIET, ..Pull::default() };
            deliveries = group.pull(&pull).await.expect("a pull has an answer");
        }
        if deliveries.is_empty() {
            return all;
        }
        all.extend(numbers(&deliveries));
        group.ack_all(&deliveries).await;
    }
}
