//! Short ways to consume and to commit, that fail loudly.

use crate::projections::stage::{LONG, Stage, append, topic_name};
use prombus_core::{DocumentWrite, Json, TopicName, WriteOp};
use prombus_engine::commits::{CommitAnswer, CommitRefused, CommitRequest};
use prombus_engine::groups::{
    Delivery, Group, GroupCall, GroupName, LeaseToken, OptionsPatch, Pull, SettleCall, SettleResult,
};
use prombus_engine::query::From;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// When nothing has come for so long, nothing is taken to come.
const QUIET: Duration = Duration::from_millis(300);

/// A group from the first event on.
pub async fn group(s: &Stage, topic: &TopicName, name: &str) -> Arc<Group> {
    group_with(s, topic, name, OptionsPatch::default()).await
}

pub async fn group_with(s: &Stage, topic: &TopicName, name: &str, options: OptionsPatch) -> Arc<Group> {
    let call = GroupCall { from: From::Earliest, options };
    let name = GroupName::parse(name).expect("a name");
    s.hub.group(topic, &name, &call).await.expect("a group can be had").0
}

/// What is there for a member; waits long for the first.
pub async fn take(group: &Arc<Group>, member: &str, max: usize) -> Vec<Delivery> {
    let pull = Pull { member: Some(member.into()), max, wait: LONG, ..Pull::default() };
    let taken = group.pull(&pull).await.expect("a pull has an answer");
    assert!(!taken.is_empty(), "there is something for {member}");
    taken
}

/// Takes `count` events, in as many pulls as it takes.
pub async fn take_all(group: &Arc<Group>, member: &str, count: usize) -> Vec<Delivery> {
    let mut all = Vec::new();
    while all.len() < count {
        all.extend(take(group, member, count - all.len()).await);
    }
    all
}

/// What is there for a member, if something comes soon.
pub async fn take_if_any(group: &Arc<Group>, member: &str) -> Vec<Delivery> {
    let pull = Pull { member: Some(member.into()), max: 1_000, wait: QUIET, ..Pull::default() };
    group.pull(&pull).await.expect("a pull has an answer")
}

pub fn number(delivery: &Delivery) -> u64 {
    delivery.event.payload.to_value().expect("JSON")["n"].as_u64().expect("a number")
}

pub fn numbers(deliveries: &[Delivery]) -> Vec<u64> {
    deliveries.iter().map(number).collect()
}

pub fn leases(deliveries: &[Delivery]) -> Vec<LeaseToken> {
    deliveries.iter().map(|delivery| delivery.lease).collect()
}

/// Whether each lease could be acked.
pub async fn ack(group: &Arc<Group>, leases: &[LeaseToken]) -> Vec<bool> {
    let results = group.settle(SettleCall::acks(leases.iter().copied())).await.expect("acks have an answer");
    results.into_iter().map(SettleResult::is_done).collect()
}

/// Publishes `{"n": number}` under a key.
pub async fn publish(s: &Stage, topic: &TopicName, key: &str, numbers: std::ops::Range<u64>) {
    s.publish(topic, numbers.map(|n| (key, json!({"n": n})))).await;
}

pub fn set(collection: &str, key: &str, body: Value) -> DocumentWrite {
    DocumentWrite::new(collection, key, WriteOp::Set(Json::from_value(&body)))
}

pub fn inc(collection: &str, key: &str, amounts: Value) -> DocumentWrite {
    DocumentWrite::new(collection, key, WriteOp::Inc(Json::from_value(&amounts)))
}

/// What an answer tells, whether it is the first or a repeated one.
pub fn told(answer: &CommitAnswer) -> CommitAnswer {
    CommitAnswer { repeated: false, ..answer.clone() }
}

/// The version that a document got, as an answer has it.
pub fn version(answer: &CommitAnswer, collection: &str, key: &str) -> Option<u64> {
    answer.versions.get(collection)?.get(key).copied()
}

/// A commit of these acks that also counts itself, and tells of it.
pub fn request(acks: &[LeaseToken]) -> CommitRequest {
    CommitRequest {
        caller: None,
        commit_id: None,
        acks: acks.to_vec(),
        writes: vec![inc("done", "all", json!({"n": acks.len()}))],
        publish: vec![append(&topic_name("out"), Some("k"), &json!({"acks": acks.len()}))],
    }
}

/// How many acks were counted, and how many commits were told of.
pub async fn outcome(s: &Stage) -> (u64, usize) {
    let counted = s.field("done", "all", "n").await.as_u64().unwrap_or_default();
    (counted, s.events(&topic_name("out")).await.len())
}

pub fn is_spent(answer: &Result<CommitAnswer, CommitRefused>, lease: LeaseToken) -> bool {
    matches!(answer, Err(CommitRefused::LeaseExpired(spent)) if *spent == lease)
}
