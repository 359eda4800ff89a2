//! Short ways to use groups that fail loudly.

pub use crate::support::stage::*;
use async_trait::async_trait;
use prombus_core::*;
use prombus_engine::groups::{
    Delivery, Group, GroupCall, GroupError, GroupName, GroupStatus, LeaseToken, OptionsPatch, Pull, Settle,
    SettleCall,
};
use prombus_engine::query::From;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use uuid::Uuid;

/// When nothing has come for so long, nothing is taken to come.
const QUIET: Duration = Duration::from_millis(400);

impl Stage {
    /// Publishes `{"n": number}` for each number, with a key or without.
    pub async fn publish_numbers(
        &self,
        topic: &TopicName,
        key: Option<&str>,
        numbers: impl IntoIterator<Item = u64>,
    ) -> Vec<Appended> {
        let events = numbers.into_iter().map(|number| append(topic, key, number)).collect();
        self.hub.publish(events).await.expect("events can be published").events
    }

    /// Publishes one event without a key to a partition.
    pub async fn publish_to(&self, topic: &TopicName, partition: u32, number: u64) -> Appended {
        let placement = Placement::Named(Partition(partition));
        let event = Append { placement, ..append(topic, None, number) };
        self.hub.publish(vec![event]).await.expect("events can be published").events[0]
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
}

pub fn group_name(name: &str) -> GroupName {
    GroupName::parse(name).expect("a valid name")
}

pub fn append(topic: &TopicName, key: Option<&str>, number: u64) -> Append {
    let mut event = NewEvent::new(Json::from_stored(format!("{{\"n\":{number}}}").into()));
    event.key = key.map(Into::into);
    Append::new(topic.clone(), event)
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
        results.expect("what is said has an answer")[0].is_done()
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
        assert!(results.iter().all(|result| result.is_done()), "valid leases can be acked: {results:?}");
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
            if status.partitions.iter().all(|partition| partition.lag == 0) {
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

/// Begins something, which then waits.
pub async fn begins_to_wait<T>(mut work: Pin<&mut impl Future<Output = T>>) {
    assert!(poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx).is_pending())).await, "it waits");
}
