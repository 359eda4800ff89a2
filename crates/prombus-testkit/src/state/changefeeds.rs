//! Changefeeds: what happens to a collection, told in a topic by the same commit.

use super::{collection, commit, delete, inc, put, set, wrote};
use crate::Subject;
use crate::build::{event, json, partitions, producer_id, topic};
use crate::subject::{must, refusal};
use prombus_core::document::WriteError;
use prombus_core::hashing::partition_of;
use prombus_core::{
    CollectionConfig, Commit, CommitError, CommitLimits, ConfigChange, CursorKey, CursorMove, DocumentWrite,
    Epoch, Event, Json, NewTopics, Offset, Partition, TopicName, Versioning, WriteOp,
};
use std::collections::HashMap;
use std::sync::Arc;

async fn feed(s: &Subject, name: &str) -> TopicName {
    let topic = topic(name);
    if !is_there(s, &topic).await {
        s.create(name, partitions(1)).await;
    }
    let config = CollectionConfig { changefeed: Some(topic.clone()), ..CollectionConfig::default() };
    let revision = collection(s, "c").await.map_or(0, |state| state.revision);
    must(s.configure(put("c", revision, config)).await, "a collection can have a changefeed");
    topic
}

/// Everything in a topic, partition by partition.
async fn told(s: &Subject, topic: &TopicName) -> Vec<Event> {
    let mut events = Vec::new();
    for partition in 0..s.topic(topic).await.config.partitions {
        events.extend(s.all(topic, partition).await);
    }
    events
}

async fn is_there(s: &Subject, topic: &TopicName) -> bool {
    must(s.log.topic(topic).await, "topics can be looked up").is_some()
}

/// Puts and deletes are told under the key, as readers see them, with their cause, and are nobody's receipt.
pub async fn a_changefeed_tells_of_puts_and_deletes(s: Subject) {
    let topic = feed(&s, "changes").await;
    let put = DocumentWrite {
        ts: 7,
        cause: Some(producer_id(1)),
        versioning: Versioning::Count,
        ..set("é\0", r#"{"b":1.10,"a":"x"}"#)
    };
    let other = s.create("other", partitions(1)).await;
    let events = s.place(&other, [event("1")]);
    let commit = Commit { events, documents: vec![put.clone()], ..Commit::default() };
    let receipt = must(s.commit(commit).await, "it happens");
    assert_eq!((receipt.events.len(), receipt.versions), (1, vec![1]), "what is told is not in the receipt");
    let bump = DocumentWrite { ts: 8, ..inc("é\0", r#"{"n":1}"#) };
    let gone = DocumentWrite { ts: 9, cause: Some(producer_id(2)), ..delete("é\0") };
    wrote(&s, vec![bump, gone]).await;
    let s = s.reopened().await;
    let told = told(&s, &topic).await;
    let payloads: Vec<Json> = told.iter().map(|event| event.payload.clone()).collect();
    let expected = [
        json(r#"{"_key":"é\u0000","_ts":7,"_v":1,"b":1.10,"a":"x"}"#),
        json(r#"{"_key":"é\u0000","_ts":8,"a":"x","b":1.1,"n":1}"#),
        json("null"),
    ];
    assert_eq!(payloads, expected, "a changefeed tells what readers see");
    assert!(told.iter().all(|event| event.key.as_deref() == Some("é\0")), "under the key");
    assert_eq!(
        told.iter().map(|event| event.ts).collect::<Vec<_>>(),
        [7, 8, 9],
        "with the time of the write"
    );
    let causes: Vec<Option<Json>> = told.iter().map(|event| event.caused_by.as_deref().cloned()).collect();
    let cause = |n| Some(json(&format!("[\"{}\"]", producer_id(n))));
    assert_eq!(causes, [cause(1), None, cause(2)], "with the event that caused it");
    s.assert_holds(&other, 0, &["1"]).await;
}

/// Where a commit makes no topics by itself, those of its changefeeds must be there, and it hears which are needed.
pub async fn a_changefeed_needs_its_topic(s: Subject) {
    let config = |feed| CollectionConfig { changefeed: Some(topic(feed)), ..CollectionConfig::default() };
    must(
        s.configure(put("c", 0, config("changes.c"))).await,
        "a changefeed can be set before its topic is there",
    );
    must(
        s.configure(put("d", 0, config("changes.d"))).await,
        "a changefeed can be set before its topic is there",
    );
    wrote(&s, vec![delete("none")]).await;
    let both = || vec![set("a", "{}"), super::write("d", "a", WriteOp::Set(json("{}"))), set("b", "{}")];
    let error = refusal(commit(&s, both()).await);
    let missing = ["changes.c", "changes.d"].map(topic).to_vec();
    assert_eq!(error, CommitError::ChangefeedsNotFound(missing.clone()), "each is named once");
    assert_eq!(s.document("c", "a").await, None, "nothing has happened");
    let make = |name: &TopicName| ConfigChange::CreateTopic { name: name.clone(), config: partitions(3) };
    let config = missing.iter().map(make).collect();
    let with_topics = Commit { config, documents: both(), ..Commit::default() };
    must(s.commit(with_topics).await, "they can be made by the same commit");
    assert_eq!((told(&s, &missing[0]).await.len(), told(&s, &missing[1]).await.len()), (2, 1));
    s.delete(&missing[1]).await;
    assert_eq!(
        refusal(commit(&s, both()).await),
        CommitError::ChangefeedsNotFound(vec![missing[1].clone()]),
        "a topic that was deleted is not there either"
    );
}

/// A commit that makes topics makes those of its changefeeds, within its limits, and takes them back with itself.
pub async fn a_changefeed_makes_its_topic(s: Subject) {
    let (narrow, wide) = (topic("changes.narrow"), topic("changes.wide"));
    for (name, feed) in [("c", &narrow), ("d", &wide)] {
        let config = CollectionConfig { changefeed: Some(feed.clone()), ..CollectionConfig::default() };
        must(s.configure(put(name, 0, config)).await, "a collection can have a changefeed");
    }
    let configs = HashMap::from([(wide.clone(), partitions(8))]);
    let auto_create = Some(Arc::new(NewTopics { configs }));
    let write = |n| super::write("d", "user-1", WriteOp::Inc(json(&format!("{{\"n\":{n}}}"))));
    let commit = |documents, topics, cursors| {
        let limits = CommitLimits { topics, ..CommitLimits::default() };
        s.commit(Commit { documents, limits, cursors, auto_create: auto_create.clone(), ..Commit::default() })
    };
    let both = || vec![set("a", "{}"), write(1), write(2)];
    let error = refusal(commit(both(), 1, Vec::new()).await);
    assert_eq!(error, CommitError::TooManyTopics { limit: 1 });
    let missing = CursorMove {
        key: CursorKey { topic: topic("missing"), reader: "r".into(), partition: Partition(0) },
        incarnation: None,
        expect_version: 0,
        epoch: Epoch(0),
        to: None,
    };
    let error = refusal(commit(both(), 2, vec![missing]).await);
    assert_eq!(error, CommitError::TopicNotFound(topic("missing")));
    assert!(!is_there(&s, &narrow).await && !is_there(&s, &wide).await, "nothing has happened");
    must(commit(both(), 2, Vec::new()).await, "there is room for both");
    assert_eq!(s.all(&narrow, 0).await.len(), 1);
    assert_eq!(s.all(&wide, 5).await.len(), 2, "it has the settings that it is to have, and goes by the key");
    must(commit(vec![write(3)], 0, Vec::new()).await, "it is there now");
    assert_eq!(s.all(&wide, 5).await.len(), 3);
}

/// What a changefeed tells is no larger than the commit allows, and what does not fit does not happen.
pub async fn a_change_must_fit_into_an_event(s: Subject) {
    const LIMIT: usize = 1_000;
    let topic = feed(&s, "changes.large").await;
    let limits = CommitLimits { event_bytes: LIMIT, ..CommitLimits::default() };
    let write = |key: &str, text: usize| set(key, &format!("{{\"a\":\"{}\"}}", "x".repeat(text)));
    let limited = |documents| s.commit(Commit { documents, limits, ..Commit::default() });
    let error = refusal(limited(vec![write("a", 10), write("b", LIMIT)]).await);
    let CommitError::BadWrite { index, key, error } = error else { panic!("{error}") };
    assert_eq!((index, key.as_str()), (1, "b"));
    assert!(matches!(error, WriteError::ChangeTooLarge { limit: LIMIT, bytes } if bytes > LIMIT), "{error}");
    assert!(
        s.document("c", "a").await.is_none() && told(&s, &topic).await.is_empty(),
        "nothing has happened"
    );
    must(limited(vec![write("a", LIMIT - 200), delete("b")]).await, "what fits happens");
    wrote(&s, vec![write("b", LIMIT)]).await;
    must(limited(vec![delete("b")]).await, "that it is gone always fits");
    assert_eq!(told(&s, &topic).await.len(), 3);
}

/// What changes nothing is not told: a delete of what is not there, an old version, a commit that is refused.
pub async fn a_changefeed_tells_only_of_changes(s: Subject) {
    let topic = feed(&s, "changes.only").await;
    wrote(&s, vec![delete("none")]).await;
    refusal(commit(&s, vec![set("a", "{}"), set("a", "[]")]).await);
    assert!(told(&s, &topic).await.is_empty(), "there is nothing to tell");
    let newer = |revision| DocumentWrite { versioning: Versioning::Newer(revision), ..set("a", "{}") };
    wrote(&s, vec![newer(5), newer(4), newer(5)]).await;
    wrote(&s, vec![delete("a"), delete("a")]).await;
    let s = s.reopened().await;
    let payloads: Vec<String> = told(&s, &topic)
        .await
        .iter()
        .map(|event| String::from_utf8_lossy(event.payload.as_bytes()).into_owned())
        .collect();
    assert_eq!(payloads, [r#"{"_key":"a","_ts":0,"_v":5}"#, "null"]);
    let without = CollectionConfig::default();
    must(s.configure(put("c", 1, without)).await, "a changefeed can be taken away");
    wrote(&s, vec![set("a", "{}")]).await;
    assert_eq!(told(&s, &topic).await.len(), 2, "and tells nothing more");
}

/// A topic that is there is used as it is, after the commit's own events, each key in its partition.
pub async fn a_changefeed_goes_to_the_topic_that_is_there(s: Subject) {
    const PARTITIONS: u32 = 4;
    let topic = s.create("changes.there", partitions(PARTITIONS)).await;
    assert_eq!(feed(&s, "changes.there").await, topic);
    let keys: Vec<String> = (0..20).map(|n| format!("key-{n}")).collect();
    let events = s.place(&topic, keys.iter().map(|key| event("\"own\"").key(key)));
    let documents = keys.iter().map(|key| set(key, r#"{"n":1}"#)).collect();
    let receipt = must(s.commit(Commit { events, documents, ..Commit::default() }).await, "it happens");
    assert_eq!(receipt.events.len(), keys.len());
    let s = s.reopened().await;
    for (key, own) in keys.iter().zip(&receipt.events) {
        let Some(latest) = s.latest(&topic, key).await else { panic!("the change of {key} is told") };
        assert_eq!(latest.partition, partition_of(key.as_bytes(), PARTITIONS), "each key has its partition");
        assert_eq!(own.partition, latest.partition);
        assert!(own.offset < latest.offset, "events of the commit come before what it tells");
        let document = s.document("c", key).await.map(|document| document.to_json());
        assert_eq!(Some(latest.payload), document, "a changefeed tells what readers see");
    }
    assert_eq!(told(&s, &topic).await.len(), 2 * keys.len());
}

/// A change and what is told of it become visible together, and offsets have no gaps.
pub async fn a_change_and_its_telling_are_one(s: Subject) {
    let topic = feed(&s, "changes.one").await;
    for n in 0..20u64 {
        let event_before = s.latest(&topic, "a").await.map(|event| event.offset);
        assert_eq!(event_before, n.checked_sub(1).map(Offset), "each change is told once");
        wrote(&s, vec![super::write("c", "a", WriteOp::Inc(json(r#"{"n":1}"#)))]).await;
        let latest = s.latest(&topic, "a").await.map(|event| event.payload);
        assert_eq!(latest, s.document("c", "a").await.map(|document| document.to_json()));
    }
}
