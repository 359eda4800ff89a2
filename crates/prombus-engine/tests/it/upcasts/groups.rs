//! Groups that normalize.

use super::stage::*;
use crate::groups::stage::{Use, group_name};
use crate::support::switch::Look;
use prombus_core::*;
use prombus_engine::groups::{Delivery, GroupCall, GroupError, OptionsChange, OptionsPatch, Pull};
use prombus_engine::query::{From, QueryError};
use serde_json::{Value, json};

fn normalize() -> OptionsPatch {
    OptionsPatch { normalize: Some(true), backoff_ms: Some(0), ..OptionsPatch::default() }
}

fn all_shown(deliveries: &[Delivery]) -> Vec<(Value, Option<String>)> {
    deliveries.iter().map(|delivery| shown(&delivery.event)).collect()
}

/// Everything that comes for a member, one after another: those of one key wait for each other.
async fn taken(
    group: &std::sync::Arc<prombus_engine::groups::Group>,
    count: usize,
) -> Vec<(Value, Option<String>)> {
    let mut all = Vec::new();
    while all.len() < count {
        let deliveries = group.take("m", 10).await;
        all.extend(all_shown(&deliveries));
        group.ack_all(&deliveries).await;
    }
    all
}

fn missing(error: &GroupError) -> Option<u32> {
    match error {
        GroupError::Query(QueryError::Read(ReadError::NoUpcaster { from, .. })) => Some(*from),
        _ => None,
    }
}

pub async fn a_group_gets_the_latest_version(s: Stage) {
    let topic = s.three_versions("group").await;
    let group = s.group(&topic, "g", normalize()).await;
    assert_eq!(taken(&group, 3).await, three_raised());
    let plain = s.group(&topic, "plain", OptionsPatch::default()).await;
    assert_eq!(taken(&plain, 3).await[0], stamped(json!({"a": 1}), 1), "others get what was published");
}

pub async fn what_cannot_be_raised_becomes_a_dead_letter(s: Stage) {
    let topic = s.three_versions("deadly").await;
    s.upcast(&topic, 2, json!([{"set": {"c": "payload.b == 1 ? payload.missing : 1"}}])).await;
    let group = s.group(&topic, "g", normalize()).await;
    assert_eq!(taken(&group, 2).await, [stamped(json!({"b": 2, "c": 1}), 3), three_raised()[2].clone()]);
    group.until("the letter is written", |status| status.partitions.iter().all(|one| one.lag == 0)).await;
    let letters = s.letters(&topic).await;
    assert_eq!(letters.len(), 1);
    let letter = letters[0].payload.to_value().unwrap();
    assert_eq!((&letter["group"], &letter["original"]["payload"]), (&json!("g"), &json!({"a": 1})));
    let reason = letter["err"].as_str().unwrap();
    assert!(
        reason.starts_with(
            "the event cannot be normalized: it cannot be upgraded from version 2: ops[0]: set c"
        ),
        "{reason}"
    );
    // Once it can be raised, it comes back by a replay.
    s.upcast(&topic, 2, json!([{"set": {"c": "5"}}])).await;
    let replay = prombus_engine::groups::Replay::default();
    assert_eq!(s.hub.replay(&topic, replay).await.unwrap().replayed, 1);
    assert_eq!(taken(&group, 1).await, [stamped(json!({"b": 1, "c": 5}), 3)]);
}

pub async fn a_missing_step_is_refused_at_every_call(s: Stage) {
    let topic = s.three_versions("missing").await;
    let early = s.group(&topic, "early", normalize()).await;
    s.version(&topic, &numbers_of(&["d"])).await;
    let error = early.pull(&Pull::default()).await.unwrap_err();
    assert_eq!(missing(&error), Some(3), "a pull says which: {error}");
    let call = GroupCall { from: From::Earliest, options: normalize() };
    for name in ["early", "late"] {
        let error = s.hub.group(&topic, &group_name(name), &call).await.err().expect("it is refused");
        assert_eq!(missing(&error), Some(3), "{name}: {error}");
    }
    assert!(s.hub.groups().find(&topic, &group_name("late")).await.is_err(), "it is not made");
    let plain = s.group(&topic, "plain", OptionsPatch::default()).await;
    let change = OptionsChange { normalize: Some(true), ..OptionsChange::default() };
    assert_eq!(missing(&plain.alter(change).await.unwrap_err()), Some(3));
    assert!(!plain.options().normalize);
}

pub async fn a_filter_sees_what_is_delivered(s: Stage) {
    let topic = s.three_versions("filtered").await;
    s.upcast(&topic, 1, json!([{"set": {"b": "payload.a == 1 ? payload.missing : 0"}}])).await;
    let options = OptionsPatch { filter: Some(Some("event.payload.c == 20".into())), ..normalize() };
    let group = s.group(&topic, "g", options).await;
    assert_eq!(taken(&group, 1).await, [three_raised()[1].clone()]);
    group.until("all is settled", |status| status.partitions.iter().all(|one| one.lag == 0)).await;
    assert_eq!(s.letters(&topic).await.len(), 1, "what cannot be raised is told, whatever the filter says");
}

pub async fn a_group_begins_to_normalize(s: Stage) {
    let topic = s.three_versions("begins").await;
    let group = s.group(&topic, "g", OptionsPatch { backoff_ms: Some(0), ..OptionsPatch::default() }).await;
    let first = group.take_one("m").await;
    assert_eq!(shown(&first.event), stamped(json!({"a": 1}), 1));
    let change = OptionsChange { normalize: Some(true), ..OptionsChange::default() };
    group.alter(change).await.unwrap();
    assert!(group.nack(first.lease, None).await);
    assert_eq!(taken(&group, 3).await, three_raised(), "what is delivered from then on is raised");
}

pub async fn a_group_goes_on_when_a_step_is_added(s: Stage) {
    let topic = s.three_versions("goes-on").await;
    let group = s.group(&topic, "g", normalize()).await;
    let held = group.take_one("m").await;
    s.version(&topic, &numbers_of(&["d"])).await;
    assert!(group.pull(&Pull::default()).await.is_err());
    group.ack_all(&[held]).await;
    s.upcast(&topic, 3, json!([{"rename": ["b", "d"]}])).await;
    assert_eq!(
        taken(&group, 2).await,
        [stamped(json!({"d": 2, "c": 20}), 4), stamped(json!({"d": 3, "c": 0}), 4)]
    );
}

/// A group that has the three versions behind it, and a pull of it that reads once the test says so.
async fn reading(
    s: &Stage,
    topic: &TopicName,
    options: OptionsPatch,
) -> tokio::task::JoinHandle<Result<Vec<Delivery>, GroupError>> {
    let call = GroupCall { from: From::Latest, options };
    let (group, _) = s.made(topic, "g", call).await.unwrap();
    s.publish(topic, [("k", json!({"b": 5, "c": 0}))]).await;
    s.log.hold_looks(Look::Read);
    let pull = Pull { wait: LONG, ..Pull::default() };
    let pulling = tokio::spawn(async move { group.pull(&pull).await });
    s.log.until_held(1).await;
    pulling
}

pub async fn a_version_that_comes_during_a_pull_is_delivered(s: Stage) {
    let topic = s.three_versions("meanwhile").await;
    let pulling = reading(&s, &topic, normalize()).await;
    s.fourth_version(&topic, json!({"d": 7})).await;
    s.log.release();
    let first = pulling.await.unwrap().unwrap();
    let group = s.found(&topic, "g").await;
    group.ack_all(&first).await;
    let mut all = all_shown(&first);
    all.extend(taken(&group, 2 - all.len()).await);
    assert_eq!(all[1], stamped(json!({"d": 7}), 4));
    group.until("all is settled", |status| status.partitions.iter().all(|one| one.lag == 0)).await;
    assert!(s.letters(&topic).await.is_empty());
}

pub async fn a_filter_sees_a_version_that_comes_during_a_pull(s: Stage) {
    let topic = s.three_versions("filtered-meanwhile").await;
    let options = OptionsPatch { filter: Some(Some("event.payload.d == 8".into())), ..normalize() };
    let pulling = reading(&s, &topic, options).await;
    s.fourth_version(&topic, json!({"d": 7})).await;
    s.publish(&topic, [("k", json!({"d": 8}))]).await;
    s.log.release();
    assert_eq!(all_shown(&pulling.await.unwrap().unwrap()), [stamped(json!({"d": 8}), 4)]);
    assert!(s.letters(&topic).await.is_empty());
}

pub async fn a_version_that_is_not_there_becomes_a_dead_letter(s: Stage) {
    let topic = s.three_versions("unknown").await;
    let patch = TopicPatch { schema: Some(SchemaMode::Warn), ..TopicPatch::default() };
    s.hub.put_topic(&topic, patch).await.unwrap();
    let headers = Json::from_value(&json!({"x-schema-version": "9"}));
    for n in 0..5 {
        let event = append(&topic, (n % 2 == 0).then_some("k"), &json!({"b": n}));
        let event =
            Append { event: NewEvent { headers: Some(headers.clone().into()), ..event.event }, ..event };
        s.hub.publish(vec![event]).await.unwrap();
    }
    s.publish(&topic, [("k", json!({"b": 4, "c": 0}))]).await;
    let group = s.group(&topic, "g", normalize()).await;
    assert_eq!(taken(&group, 4).await[3], stamped(json!({"b": 4, "c": 0}), 3));
    group.until("all is settled", |status| status.partitions.iter().all(|one| one.lag == 0)).await;
    let letters = s.letters(&topic).await;
    let reasons: Vec<_> =
        letters.iter().map(|letter| letter.payload.to_value().unwrap()["err"].clone()).collect();
    assert_eq!(reasons.len(), 5);
    assert!(reasons.iter().all(|reason| reason.as_str().unwrap().contains("no such version is registered")));
}
