//! Topics whose events go to a topic of their version, too.

use super::stage::*;
use crate::groups::stage::{Use, group_name};
use prombus_core::*;
use prombus_engine::BusError;
use prombus_engine::commits::CommitRequest;
use prombus_engine::groups::{GroupCall, OptionsPatch, Settle};
use prombus_engine::query::From;
use prombus_engine::schemas::{NewSchema, Policy, Rule};
use serde_json::{Value, json};
use uuid::Uuid;

/// A topic of one version whose events are copied.
async fn copied(s: &Stage, name: &str) -> (TopicName, TopicName) {
    let topic = s.topic(name, 1).await;
    s.version(&topic, &numbers_of(&["a"])).await;
    s.dual_write(&topic, true).await;
    let copies = topic.of_version(1).unwrap();
    (topic, copies)
}

async fn payloads(s: &Stage, topic: &TopicName) -> Vec<Value> {
    s.events(topic).await.iter().map(|event| event.payload.to_value().unwrap()).collect()
}

pub async fn what_is_published_goes_to_its_version_too(s: Stage) {
    let (topic, copies) = copied(&s, "dual").await;
    let patch = TopicPatch { retention_ms: Some(77), ..TopicPatch::default() };
    s.hub.put_topic(&topic, patch).await.unwrap();
    let receipt = s.publish(&topic, [("k", json!({"a": 1})), ("l", json!({"a": 2}))]).await;
    assert_eq!(receipt.len(), 2, "the answer is about what was published");
    let (first, second) = (s.events(&topic).await, s.events(&copies).await);
    assert_eq!(second.len(), 2);
    for (event, copy) in first.iter().zip(&second) {
        assert_eq!((&copy.payload, &copy.key, &copy.headers), (&event.payload, &event.key, &event.headers));
        assert_ne!(copy.id, event.id);
        let cause = copy.caused_by.as_ref().unwrap().to_value().unwrap();
        assert_eq!(cause, json!([event.id.to_string()]));
        assert_eq!(shown(copy).1.as_deref(), Some("1"));
    }
    let settings = s.hub.topic(&copies).await.unwrap().unwrap().config;
    assert_eq!((settings.retention_ms, settings.dual_write), (77, false), "it has the settings of the first");
    s.version(&topic, &numbers_of(&["b"])).await;
    s.publish(&topic, [("k", json!({"b": 3}))]).await;
    assert_eq!(payloads(&s, &topic.of_version(2).unwrap()).await, [json!({"b": 3})]);
    s.dual_write(&topic, false).await;
    s.publish(&topic, [("k", json!({"b": 4}))]).await;
    assert_eq!(payloads(&s, &topic.of_version(2).unwrap()).await.len(), 1);
}

pub async fn a_batch_is_copied_as_a_whole_or_not_at_all(s: Stage) {
    let (topic, copies) = copied(&s, "whole").await;
    let good = || append(&topic, Some("k"), &json!({"a": 1}));
    let bad = append(&topic, Some("k"), &json!({"a": "text"}));
    s.hub.publish(vec![good(), bad]).await.unwrap_err();
    let unexpected = Append { expect: Some(Expect { last_id: Some(Uuid::max()) }), ..good() };
    s.hub.publish(vec![good(), unexpected]).await.unwrap_err();
    assert!(s.hub.topic(&copies).await.unwrap().is_none(), "nothing is made");
    assert!(s.events(&topic).await.is_empty());
}

pub async fn a_duplicate_is_copied_once(s: Stage) {
    let (topic, copies) = copied(&s, "again").await;
    let mut event = append(&topic, Some("k"), &json!({"a": 1}));
    event.event.id = Some(Uuid::from_u128(7));
    for duplicate in [false, true] {
        let receipt = s.hub.publish(vec![event.clone()]).await.unwrap();
        assert_eq!(receipt.events[0].duplicate, duplicate);
    }
    assert_eq!(payloads(&s, &copies).await.len(), 1);
}

pub async fn only_what_has_a_version_is_copied(s: Stage) {
    let topic = s.topic("plain", 1).await;
    s.dual_write(&topic, true).await;
    s.publish(&topic, [("k", json!({"a": 1}))]).await;
    assert_eq!(s.hub.topics().await.unwrap().len(), 1, "without schemas there are no versions");
    s.version(&topic, &numbers_of(&["a"])).await;
    for (mode, copies) in [(SchemaMode::Off, 0), (SchemaMode::Warn, 1)] {
        let patch = TopicPatch { schema: Some(mode), ..TopicPatch::default() };
        s.hub.put_topic(&topic, patch).await.unwrap();
        s.publish(&topic, [("k", json!({"a": 1}))]).await;
        assert_eq!(payloads(&s, &topic.of_version(1).unwrap()).await.len(), copies, "{mode:?}");
    }
}

pub async fn copies_are_of_the_version_that_an_event_names(s: Stage) {
    let (topic, copies) = copied(&s, "named").await;
    s.version(&topic, &numbers_of(&["b"])).await;
    let event = append(&topic, Some("k"), &json!({"a": 1}));
    let headers = Json::from_value(&json!({"x-schema-version": "1"}));
    let old = Append { event: NewEvent { headers: Some(headers.into()), ..event.event }, ..event };
    s.hub.publish(vec![append(&topic, Some("k"), &json!({"b": 1})), old]).await.unwrap();
    assert_eq!(payloads(&s, &copies).await, [json!({"a": 1})]);
    assert_eq!(payloads(&s, &topic.of_version(2).unwrap()).await, [json!({"b": 1})]);
}

pub async fn what_commits_publish_is_copied(s: Stage) {
    let (topic, copies) = copied(&s, "commits").await;
    let publish = vec![append(&topic, Some("k"), &json!({"a": 1}))];
    let answer = s.hub.commit(CommitRequest { publish, ..CommitRequest::default() }).await.unwrap();
    assert_eq!(answer.events.len(), 1);
    assert_eq!(payloads(&s, &copies).await, [json!({"a": 1})]);
}

pub async fn a_name_that_is_too_long_is_refused(s: Stage) {
    let name = "a".repeat(prombus_core::topic::MAX_NAME_BYTES - 1);
    let topic = s.topic(&name, 1).await;
    let patch = TopicPatch { dual_write: Some(true), ..TopicPatch::default() };
    let error = s.hub.put_topic(&topic, patch).await.unwrap_err();
    assert!(error.to_string().contains("too long for dual_write"), "{error}");
}

pub async fn copies_survive_a_crash(s: Stage) {
    let (topic, copies) = copied(&s, "crash").await;
    s.publish(&topic, [("k", json!({"a": 1}))]).await;
    if !s.is_durable() {
        return;
    }
    let s = s.crash().await;
    assert_eq!(payloads(&s, &copies).await, [json!({"a": 1})]);
    s.publish(&topic, [("k", json!({"a": 2}))]).await;
    assert_eq!(payloads(&s, &copies).await, [json!({"a": 1}), json!({"a": 2})], "and it goes on");
}

pub async fn a_key_is_forgotten_in_copies_too(s: Stage) {
    let (topic, copies) = copied(&s, "forgotten").await;
    s.publish(&topic, [("k", json!({"a": 1})), ("l", json!({"a": 2}))]).await;
    s.version(&topic, &numbers_of(&["b"])).await;
    s.publish(&topic, [("k", json!({"b": 3}))]).await;
    s.dual_write(&topic, false).await;
    let call = GroupCall { from: From::Earliest, options: OptionsPatch::default() };
    let (group, _) = s.hub.group(&copies, &group_name("g"), &call).await.unwrap();
    let lease = group.take_one("m").await.lease;
    assert!(group.say(Settle::Bury { lease, reason: "no".into() }).await);
    assert_eq!(s.letters(&copies).await.len(), 1);
    assert_eq!(s.hub.forget(&topic, "k").await.unwrap(), 2, "the events of the topic itself are counted");
    assert_eq!(payloads(&s, &topic).await, [json!({"a": 2})]);
    assert_eq!(payloads(&s, &copies).await, [json!({"a": 2})]);
    assert!(payloads(&s, &topic.of_version(2).unwrap()).await.is_empty());
    assert!(s.letters(&copies).await.is_empty(), "nor is there a dead letter of a copy");
}

pub async fn a_topic_of_copies_has_no_schemas_of_its_own(s: Stage) {
    let (topic, copies) = copied(&s, "dual").await;
    let rule = Rule { demand: "none".parse().unwrap(), policy: Policy::Lenient };
    let new = NewSchema { version: None, rule, compare_from: 0, text: Json::from_value(&json!({})) };
    for version in [1, 2, 99] {
        let of = topic.of_version(version).unwrap();
        let refused = s.hub.schemas().register(&of, &new).await.unwrap_err().to_string();
        assert!(
            refused.contains("gets the copies of topic dual") && refused.contains("turn dual_write off"),
            "{refused}"
        );
    }
    for name in ["dual.v01", "dual.vx", "dual.v1.v2", "other.v1"] {
        s.version(&topic_name(name), &json!({})).await;
    }
    s.dual_write(&topic, false).await;
    s.version(&copies, &json!({})).await;
    let dual = || TopicPatch { dual_write: Some(true), ..TopicPatch::default() };
    for name in ["dual", "other"] {
        let error = s.hub.put_topic(&topic_name(name), dual()).await.unwrap_err();
        let (is_config, error) = (matches!(error, BusError::BadConfig(_)), error.to_string());
        assert!(is_config && error.contains(&format!("topic {name}.v1 has schemas of its own")), "{error}");
    }
    s.hub.delete_topic(&copies).await.unwrap();
    s.dual_write(&topic, true).await;
    s.publish(&topic, [("k", json!({"a": 1}))]).await;
    assert_eq!(payloads(&s, &copies).await, [json!({"a": 1})]);
}
