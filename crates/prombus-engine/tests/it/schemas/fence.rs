//! Events and schemas at the same time: what is checked is what is appended.

use super::stage::*;
use prombus_core::*;
use prombus_engine::collections::CollectionSettings;
use prombus_engine::schemas::SchemasError;
use prombus_engine::{BusError, Hub};
use prombus_store_memory::MemoryStore;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What each version takes, from the first: no version takes what another one does.
const KINDS: [(&str, &str); 4] =
    [("integer", "1"), ("string", "\"text\""), ("boolean", "true"), ("null", "null")];

fn sample(kind: usize) -> Value {
    json!({"n": serde_json::from_str::<Value>(KINDS[kind].1).expect("JSON")})
}

pub async fn no_event_is_behind_a_schema_that_refuses_it(s: Stage) {
    let t = s.topic("t", 1).await;
    let ends = Arc::new(AtomicBool::new(false));
    let publishers: Vec<_> = (0..4)
        .map(|publisher| {
            let (hub, t, ends) = (s.hub.clone(), t.clone(), ends.clone());
            tokio::spawn(async move {
                let mut n = publisher;
                while !ends.load(Ordering::SeqCst) {
                    n += 1;
                    match hub.publish(vec![append(&t, None, &sample(n % KINDS.len()))]).await {
                        Ok(_) | Err(BusError::SchemaViolation(_)) => {}
                        Err(error) => panic!("on one hub nothing is outdated, but: {error}"),
                    }
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    for (kind, _) in KINDS {
        s.registered(&t, &typed(kind)).await;
        let before = s.count(&t).await;
        // Some are taken by each version.
        while s.count(&t).await < before + 8 {
            tokio::task::yield_now().await;
        }
    }
    ends.store(true, Ordering::SeqCst);
    for publisher in publishers {
        publisher.await.expect("no panic");
    }
    let all = s.stamps(&t).await;
    let stamps: Vec<u32> = all.iter().map(|(_, version)| version.unwrap_or(0)).collect();
    assert!(stamps.is_sorted(), "who is behind a registration was checked against it: {stamps:?}");
    for (payload, version) in &all {
        if let Some(version) = version {
            assert_eq!(*payload, sample(*version as usize - 1), "what is stamped is what was checked");
        }
    }
    assert_eq!(stamps.last(), Some(&4));
}

fn has_events(commit: &Commit) -> bool {
    !commit.events.is_empty()
}

pub async fn a_registration_waits_for_events_on_their_way(s: Stage) {
    let t = s.topic("t", 1).await;
    s.registered(&t, &typed("integer")).await;
    s.log.hold(has_events);
    let (hub, to) = (s.hub.clone(), t.clone());
    let publish = tokio::spawn(async move { hub.publish(vec![append(&to, None, &sample(0))]).await });
    s.log.until_held(1).await;
    // Other topics are no matter of this one.
    let other = topic_name("other");
    s.registered(&other, &typed("string")).await;
    let new = new_schema(None, "none", &typed("string"));
    let mut registering = Box::pin(s.hub.schemas().register(&t, &new));
    let none = tokio::time::timeout(std::time::Duration::from_millis(50), &mut registering).await;
    assert!(none.is_err(), "it has to wait");
    s.log.release();
    publish.await.expect("no panic").expect("it was checked, and comes first");
    assert_eq!(registering.await.expect("it is registered").version, 2);
    assert_eq!(s.stamps(&t).await, [(sample(0), Some(1))]);
    s.violation_of(vec![append(&t, None, &sample(0))]).await;
}

pub async fn a_topic_that_changes_refuses_no_events(s: Stage) {
    let t = s.topic("t", 1).await;
    s.registered(&t, &typed("integer")).await;
    let ends = Arc::new(AtomicBool::new(false));
    let publisher = tokio::spawn({
        let (hub, t, ends) = (s.hub.clone(), t.clone(), ends.clone());
        async move {
            while !ends.load(Ordering::SeqCst) {
                hub.publish(vec![append(&t, None, &sample(0))]).await.expect("it is as good as before");
                tokio::task::yield_now().await;
            }
        }
    });
    for retention in 1..30 {
        let patch = TopicPatch { retention_ms: Some(retention * 1_000_000), ..TopicPatch::default() };
        s.hub.put_topic(&t, patch).await.expect("it can be changed");
    }
    ends.store(true, Ordering::SeqCst);
    publisher.await.expect("no panic");
}

pub async fn first_events_do_not_refuse_each_other(s: Stage) {
    for round in 0..10 {
        let t = topic_name(&format!("t-{round}"));
        let (t, hub) = (&t, &s.hub);
        let first = (0..6).map(|n| hub.publish(vec![append(t, None, &json!(n))]));
        for answer in futures::future::join_all(first).await {
            answer.expect("whoever makes the topic");
        }
    }
}

fn changes_topics(commit: &Commit) -> bool {
    !commit.config.is_empty()
}

/// Two changes of a topic, neither of which copies anything on its own. The second one cannot slip past the check.
pub async fn whether_copies_may_be_made_is_asked_of_what_is_there_then(s: Stage) {
    let dual = || TopicPatch { dual_write: Some(true), ..TopicPatch::default() };
    let new = new_schema(None, "none", &typed("integer"));
    let moment = std::time::Duration::from_millis(50);

    let t = s.topic("t", 1).await;
    s.log.hold(changes_topics);
    let (hub, to) = (s.hub.clone(), t.clone());
    let setting = tokio::spawn(async move { hub.put_topic(&to, dual()).await });
    s.log.until_held(1).await;
    let no = |copies: &TopicName| Err(SchemasError::Bad(format!("not to {copies}")));
    let mut registering = Box::pin(s.hub.schemas().register_if(&t, &new, no));
    assert!(tokio::time::timeout(moment, &mut registering).await.is_err(), "it has to wait");
    s.log.release();
    setting.await.expect("no panic").expect("there is no version yet");
    assert_eq!(registering.await, Err(SchemasError::Bad("not to t.v1".into())));

    let u = s.topic("u", 1).await;
    s.log.hold(changes_topics);
    let (hub, to, first) = (s.hub.clone(), u.clone(), new.clone());
    let registering = tokio::spawn(async move { hub.schemas().register(&to, &first).await });
    s.log.until_held(1).await;
    let no = |copies: &TopicName| Err(BusError::BadConfig(format!("not to {copies}")));
    let mut setting = Box::pin(s.hub.put_topic_if(&u, dual(), no));
    assert!(tokio::time::timeout(moment, &mut setting).await.is_err(), "it has to wait");
    s.log.release();
    registering.await.expect("no panic").expect("nothing is copied yet");
    let refused = setting.await.expect_err("that would copy");
    assert_eq!(refused, BusError::BadConfig("not to u.v1".into()));
}

/// Another hub registers while an event is on its way: the store notices, and whoever tries again is checked again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_hub_registers_is_noticed() {
    let clock = Arc::new(ManualClock::at(1_754_683_200_000));
    let store = Arc::new(MemoryStore::new(clock.clone(), 1));
    let homes = Arc::new(MemoryHomes::alone(clock.clone()));
    let (a, b) = (
        Stage::sharing(store.clone(), clock.clone(), homes.clone()).await,
        Stage::sharing(store, clock, homes).await,
    );
    let t = a.topic("t", 1).await;
    a.registered(&t, &typed("integer")).await;
    a.log.hold(has_events);
    let (hub, to) = (a.hub.clone(), t.clone());
    let mut commit = Arc::new(Commit::from(vec![append(&to, None, &sample(0))]));
    let place = commit.events.as_ptr();
    let publish = tokio::spawn(async move {
        let ticket = hub.enqueue(&mut commit).await.expect("the hub takes it");
        (ticket.await, commit)
    });
    a.log.until_held(1).await;
    b.registered(&t, &typed("string")).await;
    a.log.release();
    let (answer, mut commit) = publish.await.expect("no panic");
    assert_eq!(commit.events.as_ptr(), place, "nothing was copied");
    assert_eq!(commit.headers_before, [(0, None)], "it was stamped where it stands");
    let outdated = CommitError::Outdated(t.clone());
    assert_eq!(outdated.retry(), prombus_core::error::Retry::Same);
    assert_eq!(answer, Err(outdated));
    assert!(a.events(&t).await.is_empty(), "nothing of it happened");
    let again = a.hub.enqueue(&mut commit).await;
    assert!(matches!(again, Err(BusError::SchemaViolation(_))), "the same commit is held against the latest");
    b.registered(&t, &typed("integer")).await;
    a.hub.enqueue(&mut commit).await.expect("the hub takes it").await.expect("it fits the latest");
    assert_eq!(
        a.stamps(&t).await,
        [(sample(0), Some(3))],
        "not the version that it was stamped with at first"
    );
}

fn feeds(commit: &Commit) -> bool {
    commit.config.iter().any(|change| match change {
        ConfigChange::CreateTopic { config, .. } => config.snapshot.is_some(),
        ConfigChange::PutCollection { config, .. } => config.changefeed.is_some(),
        _ => false,
    })
}

fn registers(commit: &Commit) -> bool {
    !commit.documents.is_empty()
}

/// Makes the hub publish to a topic by itself.
async fn feed(hub: Hub, fed: TopicName, by_snapshots: bool) -> Result<(), String> {
    if by_snapshots {
        let snapshot = Some(Some(SnapshotConfig { topic: fed.clone(), every_ms: 60_000 }));
        let patch = TopicPatch { snapshot, ..TopicPatch::default() };
        let put = hub.put_topic(&topic_name(&format!("source-of-{fed}")), patch).await;
        return put.map(drop).map_err(|error| error.to_string());
    }
    let settings = CollectionSettings { changefeed: Some(fed.clone()), ..CollectionSettings::default() };
    let put = hub.collections().put(&format!("source-of-{fed}"), settings).await;
    put.map(drop).map_err(|error| error.to_string())
}

/// A topic that the hub is told to publish to, and a schema for it: whoever is second is refused.
pub async fn what_begins_to_be_fed_gets_no_schemas_meanwhile(s: Stage) {
    let new = new_schema(None, "none", &typed("integer"));
    let moment = std::time::Duration::from_millis(50);
    for (n, by_snapshots) in [false, true, false, true].into_iter().enumerate() {
        let fed = topic_name(&format!("fed-{n}"));
        if n < 2 {
            s.topic(fed.as_str(), 1).await;
        }
        s.log.hold(feeds);
        let feeding = tokio::spawn(feed(s.hub.clone(), fed.clone(), by_snapshots));
        s.log.until_held(1).await;
        let mut registering = Box::pin(s.hub.schemas().register(&fed, &new));
        let waited = tokio::time::timeout(moment, &mut registering).await;
        assert!(waited.is_err(), "it has to wait, but: {waited:?}");
        s.log.release();
        feeding.await.expect("no panic").expect("there are no schemas yet");
        let refused = registering.await.expect_err("the hub publishes there").to_string();
        assert!(refused.contains("cannot have schemas"), "{refused}");
        assert!(s.hub.schemas().head(&fed).await.is_err());

        let governed = s.topic(&format!("governed-{n}"), 1).await;
        s.log.hold(registers);
        let (hub, to, first) = (s.hub.clone(), governed.clone(), new.clone());
        let registering = tokio::spawn(async move { hub.schemas().register(&to, &first).await });
        s.log.until_held(1).await;
        let mut feeding = Box::pin(feed(s.hub.clone(), governed.clone(), by_snapshots));
        assert!(tokio::time::timeout(moment, &mut feeding).await.is_err(), "it has to wait");
        s.log.release();
        registering.await.expect("no panic").expect("nothing is published there yet");
        let refused = feeding.await.expect_err("it has schemas");
        assert!(refused.contains("has schemas"), "{refused}");
    }
}

/// A topic whose events are to be copied, and a schema for a topic of copies: whoever is second is refused.
pub async fn what_begins_to_be_copied_to_gets_no_schemas_meanwhile(s: Stage) {
    let dual = || TopicPatch { dual_write: Some(true), ..TopicPatch::default() };
    let new = new_schema(None, "none", &typed("integer"));
    let moment = std::time::Duration::from_millis(50);

    let (t, copies) = (s.topic("t", 1).await, s.topic("t.v1", 1).await);
    s.log.hold(changes_topics);
    let (hub, to) = (s.hub.clone(), t.clone());
    let setting = tokio::spawn(async move { hub.put_topic(&to, dual()).await });
    s.log.until_held(1).await;
    let mut registering = Box::pin(s.hub.schemas().register(&copies, &new));
    assert!(tokio::time::timeout(moment, &mut registering).await.is_err(), "it has to wait");
    s.log.release();
    setting.await.expect("no panic").expect("there are no schemas yet");
    let refused = registering.await.expect_err("copies go there").to_string();
    assert!(refused.contains("gets the copies of topic t"), "{refused}");

    let (u, copies) = (s.topic("u", 1).await, s.topic("u.v3", 1).await);
    s.log.hold(registers);
    let (hub, to, first) = (s.hub.clone(), copies.clone(), new.clone());
    let registering = tokio::spawn(async move { hub.schemas().register(&to, &first).await });
    s.log.until_held(1).await;
    let mut setting = Box::pin(s.hub.put_topic(&u, dual()));
    assert!(tokio::time::timeout(moment, &mut setting).await.is_err(), "it has to wait");
    s.log.release();
    registering.await.expect("no panic").expect("nothing is copied there yet");
    let refused = setting.await.expect_err("copies would pass its schemas").to_string();
    assert!(refused.contains("topic u.v3 has schemas of its own"), "{refused}");
}
