//! Projections that are made, changed and deleted.

use crate::projections::stage::*;
use prombus_core::{Commit, CommitError, DocumentWrite, Documents, EventLogExt, Json, WriteOp, collection};
use prombus_engine::commits::CommitRequest;
use prombus_engine::projections::{ProjectionError, ProjectionState, ProjectionStatus};
use serde_json::{Value, json};
use std::sync::Arc;

fn with(mut definition: Value, field: &str, value: Value) -> Value {
    definition[field] = value;
    definition
}

/// Keeps one field of the payload.
fn fields(names: &[&str]) -> Value {
    with(changelog("t", "c"), "fields", json!(names))
}

fn both(n: u64) -> Value {
    json!({"a": n, "b": n})
}

pub async fn the_same_definition_again_changes_nothing(s: Stage) {
    let topic = s.topic("t", 1).await;
    let definition = serde_json::from_value::<prombus_engine::projections::Definition>(fields(&["a"]));
    let definition = definition.expect("a definition");
    let (_, made) = s.hub.projections().put("p", definition.clone()).await.expect("it can be put");
    assert!(made);
    s.publish(&topic, [("x", both(1))]).await;
    s.caught_up("p").await;
    let before = s.log.collections().await.expect("collections");
    let (status, made) = s.hub.projections().put("p", definition).await.expect("it can be put");
    assert_eq!((made, status.stale, status.errors), (false, false, 0));
    assert_eq!(s.log.collections().await.expect("collections"), before);
}

pub async fn a_changed_definition_is_for_new_events(s: Stage) {
    let topic = s.topic("t", 1).await;
    s.put("p", fields(&["a"])).await;
    s.publish(&topic, [("x", both(1))]).await;
    s.caught_up("p").await;
    assert!(s.put("p", fields(&["b"])).await.stale);
    s.publish(&topic, [("y", both(2))]).await;
    s.caught_up("p").await;
    assert_eq!((s.field("c", "x", "a").await, s.field("c", "x", "b").await), (json!(1), Value::Null));
    assert_eq!((s.field("c", "y", "a").await, s.field("c", "y", "b").await), (Value::Null, json!(2)));
    let s = s.restart().await;
    assert!(s.status("p").await.stale, "it is remembered");
    assert!(!s.rebuilt("p").await.stale);
    assert_eq!((s.field("c", "x", "a").await, s.field("c", "x", "b").await), (Value::Null, json!(1)));
    let s = s.restart().await;
    assert!(!s.status("p").await.stale, "and so is the rebuild");
}

/// A configuration file that has changed is put right after the start, before anything was read.
pub async fn a_definition_that_changed_while_the_hub_was_down_is_noticed(s: Stage) {
    let topic = s.topic("t", 1).await;
    s.put("p", fields(&["a"])).await;
    s.publish(&topic, [("x", both(1))]).await;
    s.caught_up("p").await;
    let s = s.restart().await;
    assert!(s.put("p", fields(&["b"])).await.stale);
}

pub async fn what_has_done_nothing_is_never_stale(s: Stage) {
    let topic = s.topic("t", 1).await;
    s.put("p", fields(&["a"])).await;
    assert!(!s.put("p", fields(&["b"])).await.stale);
    s.publish(&topic, [("x", both(1))]).await;
    s.caught_up("p").await;
    assert_eq!(s.field("c", "x", "b").await, json!(1));
}

pub async fn going_back_is_not_stale_where_nothing_came_between(s: Stage) {
    let topic = s.topic("t", 1).await;
    s.put("p", fields(&["a"])).await;
    s.publish(&topic, [("x", both(1))]).await;
    s.caught_up("p").await;
    assert!(s.put("p", fields(&["b"])).await.stale);
    assert!(!s.put("p", fields(&["a"])).await.stale);
    assert!(s.put("p", fields(&["b"])).await.stale);
    s.publish(&topic, [("y", both(2))]).await;
    s.caught_up("p").await;
    assert!(s.put("p", fields(&["a"])).await.stale, "the other one has written something");
    assert!(!s.rebuilt("p").await.stale);
    assert_eq!(s.field("c", "y", "a").await, json!(2));
}

pub async fn indexes_changefeeds_and_retries_change_at_once(s: Stage) {
    let topic = s.topic("t", 1).await;
    s.put("p", changelog("t", "c")).await;
    s.publish(&topic, [("x", both(1))]).await;
    s.caught_up("p").await;
    let indexed = with(changelog("t", "c"), "indexes", json!([["a"], ["b", "a"]]));
    let told = with(with(indexed, "changefeed", json!("c.changed")), "retries", json!(7));
    let status = s.put("p", told.clone()).await;
    assert!(!status.stale);
    let state = s.hub.collections().get("c").await.expect("readable").expect("there");
    assert_eq!((state.config.indexes.len(), state.documents), (2, 1));
    s.publish(&topic, [("x", both(2)), ("z", json!(null))]).await;
    s.caught_up("p").await;
    let feed = s.events(&topic_name("c.changed")).await;
    assert_eq!(feed.len(), 1, "what was there before is not told, nor that nothing was deleted");
    assert_eq!(feed[0].payload.to_value().expect("JSON")["a"], json!(2));
    assert_eq!(feed[0].key.as_deref(), Some("x"));
    // An index that the documents do not allow.
    s.publish(&topic, [("y", both(2))]).await;
    s.caught_up("p").await;
    let unique = with(told, "indexes", json!([{"fields": ["a"], "unique": true}]));
    let refused = s.try_put("p", unique).await;
    assert!(matches!(refused, Err(ProjectionError::Bus(_))), "{refused:?}");
    s.publish(&topic, [("y", both(3))]).await;
    assert_eq!(s.caught_up("p").await.state, ProjectionState::Running, "the old one goes on");
    assert_eq!(s.field("c", "y", "a").await, json!(3));
}

/// What must be unique decides which events fail, so what is there may not be what a rebuild gives.
pub async fn another_unique_index_makes_stale(s: Stage) {
    let topic = s.topic("t", 1).await;
    let unique = with(changelog("t", "c"), "indexes", json!([["b"], {"fields": ["a"], "unique": true}]));
    s.put("p", unique.clone()).await;
    s.publish(&topic, [("x", both(1)), ("y", both(1))]).await;
    s.caught_up("p").await;
    assert_eq!((s.document("c", "y").await, s.letters(&topic).await.len()), (None, 1));
    let other = with(unique.clone(), "indexes", json!([{"fields": ["a"], "unique": true}, ["b", "a"]]));
    assert!(!s.put("p", other).await.stale, "the same is unique");
    assert!(s.put("p", changelog("t", "c")).await.stale);
    assert!(!s.rebuilt("p").await.stale);
    assert_eq!(s.field("c", "y", "a").await, json!(1));
    s.publish(&topic, [("y", both(2))]).await;
    s.caught_up("p").await;
    assert!(s.put("p", unique).await.stale, "though it holds now");
    assert!(!s.rebuilt("p").await.stale);
    assert_eq!(s.field("c", "y", "a").await, json!(2));
}

pub async fn another_topic_is_read_from_its_start(s: Stage) {
    let (one, two) = (s.topic("t", 1).await, s.topic("u", 2).await);
    s.publish(&one, [("x", both(1))]).await;
    s.publish(&two, [("y", both(2)), ("z", both(3))]).await;
    s.put("p", changelog("t", "c")).await;
    s.caught_up("p").await;
    let status = s.put("p", changelog("u", "c")).await;
    assert!(status.stale);
    s.caught_up("p").await;
    assert_eq!((s.field("c", "x", "a").await, s.field("c", "z", "a").await), (json!(1), json!(3)));
    assert_eq!(s.hub.topic(&one).await.expect("readable").map(|state| state.name), Some(one.clone()));
    let readers = prombus_core::EventLog::readers(&*s.log, &one, "").await.expect("readers");
    assert!(readers.is_empty(), "{readers:?}");
    assert!(!s.rebuilt("p").await.stale);
    assert_eq!((s.document("c", "x").await, s.field("c", "z", "a").await), (None, json!(3)));
}

pub async fn a_collection_has_one_owner(s: Stage) {
    let topic = s.topic("t", 1).await;
    s.put("p", changelog("t", "c")).await;
    let refused = s.try_put("q", changelog("t", "c")).await;
    let Err(ProjectionError::NotOwner { collection, owner }) = refused else { panic!("{refused:?}") };
    assert_eq!((collection.as_str(), owner.as_str()), ("c", "projection \"p\""));
    assert!(matches!(s.hub.projections().get("q").await, Err(ProjectionError::NotFound(_))));
    let write = |collection: &str| CommitRequest {
        writes: vec![DocumentWrite::new(collection, "k", WriteOp::Set(Json::from_value(&json!({}))))],
        ..CommitRequest::default()
    };
    s.hub.commit(write("c")).await.expect_err("a projection owns it");
    s.hub.commit(write("mine")).await.expect("nobody owns it yet");
    let refused = s.try_put("q", changelog("t", "mine")).await;
    assert!(
        matches!(&refused, Err(ProjectionError::NotOwner { owner, .. }) if owner == "commits"),
        "{refused:?}"
    );
    // One that is refused leaves the old one running.
    let refused = s.try_put("p", changelog("t", "mine")).await;
    assert!(matches!(refused, Err(ProjectionError::NotOwner { .. })), "{refused:?}");
    s.publish(&topic, [("x", both(1))]).await;
    s.caught_up("p").await;
    assert_eq!(s.field("c", "x", "a").await, json!(1));
}

pub async fn a_deleted_projection_leaves_nothing(s: Stage) {
    let topic = s.topic("t", 2).await;
    s.put("p", changelog("t", "c")).await;
    s.publish(&topic, [("x", both(1)), ("y", both(2))]).await;
    s.caught_up("p").await;
    // What an earlier definition wrote is its own as well.
    s.put("p", changelog("t", "d")).await;
    s.publish(&topic, [("x", both(1))]).await;
    s.caught_up("p").await;
    assert!(s.document("c", "x").await.is_some() && s.document("d", "x").await.is_some());
    s.hub.projections().delete("p").await.expect("it can be deleted");
    assert!(matches!(s.hub.projections().delete("p").await, Err(ProjectionError::NotFound(_))));
    assert_eq!(s.hub.collections().list().await.expect("collections"), []);
    assert!(prombus_core::EventLog::readers(&*s.log, &topic, "").await.expect("readers").is_empty());
    let s = s.restart().await;
    assert!(s.hub.projections().names().is_empty());
    // Another one may have the name and the collection.
    s.put("q", changelog("t", "c")).await;
    let status = s.caught_up("q").await;
    assert_eq!((status.lag, s.all("c").await.len()), (0, 2));
}

pub async fn a_rebuild_removes_what_is_no_longer_written(s: Stage) {
    let topic = s.topic("t", 1).await;
    s.put("p", changelog("t", "c")).await;
    s.publish(&topic, [("x", both(1))]).await;
    s.caught_up("p").await;
    assert!(s.put("p", changelog("t", "d")).await.stale);
    assert!(s.document("c", "x").await.is_some(), "until it is rebuilt");
    s.rebuilt("p").await;
    assert_eq!((s.document("c", "x").await, s.field("d", "x", "a").await), (None, json!(1)));
    s.put("q", changelog("t", "c")).await;
}

pub async fn a_change_that_cannot_be_stored_leaves_all_as_it_was(s: Stage) {
    let topic = s.topic("t", 1).await;
    s.put("p", fields(&["a"])).await;
    s.publish(&topic, [("x", both(1))]).await;
    s.caught_up("p").await;
    let is_stored = |commit: &prombus_core::Commit| {
        commit.documents.iter().any(|write| prombus_core::collection::is_internal(&write.collection))
    };
    s.refuse(is_stored, 2, CommitError::NoRoom);
    s.try_put("p", fields(&["b"])).await.expect_err("the disk is full");
    s.hub.projections().delete("p").await.expect_err("the disk is full");
    s.publish(&topic, [("y", both(2))]).await;
    let status = s.caught_up("p").await;
    assert_eq!((status.state, status.stale), (ProjectionState::Running, false));
    assert_eq!((s.field("c", "y", "a").await, s.field("c", "y", "b").await), (json!(2), Value::Null));
    s.hub.projections().delete("p").await.expect("there is room again");
    assert_eq!(s.document("c", "y").await, None);
}

/// A caller that goes away in the middle.
pub async fn a_change_ends_even_if_nobody_waits_for_it(s: Stage) {
    let topic = s.topic("t", 1).await;
    s.put("p", fields(&["a"])).await;
    s.publish(&topic, [("x", both(1))]).await;
    s.caught_up("p").await;
    let is_stored = |commit: &prombus_core::Commit| {
        commit.documents.iter().any(|write| prombus_core::collection::is_internal(&write.collection))
    };
    s.log.hold(is_stored);
    {
        let put = s.try_put("p", fields(&["b"]));
        let mut put = std::pin::pin!(put);
        tokio::select! {
            answer = &mut put => panic!("it cannot be stored: {answer:?}"),
            () = s.log.until_held(1) => {}
        }
    }
    s.log.release();
    // The next change waits for the one before.
    assert!(s.put("p", with(fields(&["b"]), "retries", json!(1))).await.stale);
    s.publish(&topic, [("y", both(2))]).await;
    s.caught_up("p").await;
    assert_eq!(s.field("c", "y", "b").await, json!(2));
}

pub async fn changes_at_once_come_one_after_another(s: Stage) {
    let topic = s.topic("t", 2).await;
    s.put("p", changelog("t", "c")).await;
    s.publish(&topic, (0..100).map(|n| ("x", both(n)))).await;
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..12_u32 {
        let projections = s.hub.projections().clone();
        tasks.spawn(async move {
            let definition = serde_json::from_value(with(changelog("t", "c"), "retries", json!(n % 5)));
            match n % 4 {
                3 => drop(projections.rebuild("p", false).await),
                2 => drop(projections.delete("p").await),
                _ => drop(projections.put("p", definition.expect("a definition")).await),
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("no panic");
    }
    s.put("p", changelog("t", "c")).await;
    s.until("p", "no rebuild is left", |status| status.rebuild.is_none()).await;
    s.caught_up("p").await;
    assert_eq!(s.field("c", "x", "a").await, json!(99));
    let s = s.restart().await;
    assert_eq!(s.status("p").await.collections, ["c"]);
}

pub async fn a_closed_hub_takes_no_projections(s: Stage) {
    s.hub.close().await;
    let refused = s.try_put("p", changelog("t", "c")).await;
    assert!(matches!(refused, Err(ProjectionError::Read(_))), "{refused:?}");
}

/// Puts something else in the place of what is stored of a projection, as an earlier build might have.
pub async fn store(s: &Stage, name: &str, record: &Value) {
    let collection = collection::internal_name("hub", "projections");
    let write = DocumentWrite::new(&collection, name, WriteOp::Set(Json::from_value(record)));
    let commit = Commit { documents: vec![write], ..Commit::default() };
    s.log.commit(Arc::new(commit)).await.expect("it is stored");
}

pub async fn a_definition_that_compiles_no_more_stands_still(s: Stage) {
    let topic = s.topic("t", 1).await;
    s.put("p", changelog("t", "c")).await;
    s.publish(&topic, [("x", both(1))]).await;
    s.caught_up("p").await;
    let old = with(changelog("t", "c"), "key", json!("of_an_earlier.build("));
    store(&s, "p", &json!({"definition": old, "made": changelog("t", "c")})).await;
    let mut s = s.restart().await;
    for round in 0..2 {
        s.publish(&topic, [("y", both(2))]).await;
        let is_stopped = |status: &ProjectionStatus| matches!(&status.state, ProjectionState::Stopped(why) if why.contains("does not compile"));
        let status = s.until("p", "it has stopped", is_stopped).await;
        assert_eq!(
            (status.collections, status.lag),
            (vec!["c".to_owned()], round + 1),
            "nothing is passed over"
        );
        assert!(s.document("c", "x").await.is_some() && s.document("c", "y").await.is_none());
        assert!(s.letters(&topic).await.is_empty());
        if round == 0 {
            s = s.restart().await;
        }
    }
    s.put("p", changelog("t", "c")).await;
    assert_eq!(s.caught_up("p").await.state, ProjectionState::Running);
    assert!(s.document("c", "y").await.is_some(), "it goes on from where it was");
}

pub async fn a_definition_that_cannot_be_read_stands_still_alone(s: Stage) {
    let topic = s.topic("t", 1).await;
    for (name, collection) in [("p", "c"), ("q", "d"), ("r", "e")] {
        s.put(name, changelog("t", collection)).await;
    }
    s.publish(&topic, [("x", both(1))]).await;
    for name in ["p", "q", "r"] {
        s.caught_up(name).await;
    }
    let later = with(changelog("t", "c"), "of_a_later_build", json!(1));
    store(&s, "p", &json!({"definition": later, "made": later})).await;
    store(&s, "r", &json!({"nothing": "of it"})).await;
    let s = s.restart().await;
    s.publish(&topic, [("y", both(2))]).await;
    assert_eq!(s.caught_up("q").await.state, ProjectionState::Running);
    for (name, collection) in [("p", "c"), ("r", "e")] {
        let is_told = |status: &ProjectionStatus| matches!(&status.state, ProjectionState::Stopped(why) if why.contains("this version"));
        let status = s.until(name, "it says why it has stopped", is_told).await;
        assert_eq!(status.collections, [collection]);
        assert!(s.document(collection, "x").await.is_some() && s.document(collection, "y").await.is_none());
    }
    s.hub.projections().delete("r").await.expect("it can be deleted");
    assert!(s.log.collection("e").await.expect("collections").is_none());
    s.put("r", changelog("t", "e")).await;
    s.caught_up("r").await;
    assert!(s.document("e", "x").await.is_some(), "nothing was left of where it had been");
    s.put("p", changelog("t", "c")).await;
    assert_eq!(s.caught_up("p").await.state, ProjectionState::Running);
    assert!(s.document("c", "y").await.is_some(), "it goes on from where it was");
    s.hub.projections().delete("p").await.expect("it can be deleted");
    let s = s.restart().await;
    assert_eq!(s.hub.projections().names().len(), 2);
}

/// However much an event costs, its projection can be told to go, and others go on.
pub async fn a_projection_of_very_many_costly_expressions_holds_nobody_up(s: Stage) {
    let topic = s.topic("t", 1).await;
    let set: serde_json::Map<_, _> = (0..900)
        .map(|n| (format!("f{n}"), json!("event.payload.n.all(a, event.payload.n.all(b, a <= b))")))
        .collect();
    let write = json!({"collection": "bomb", "key": "event.key", "set": set});
    s.put("bomb", json!({"topic": "t", "write": [write], "retries": 0})).await;
    s.publish(&topic, (0..3).map(|_| ("x", json!({"n": vec![1; 300]})))).await;
    assert_eq!(s.caught_up("bomb").await.errors, 3);
    assert_eq!(s.letters(&topic).await.len(), 3);
    s.publish(&topic, (0..30).map(|_| ("x", json!({"n": vec![1; 300]})))).await;
    s.put("p", changelog("t", "c")).await;
    assert_eq!(s.caught_up("p").await.errors, 0);
    tokio::time::timeout(LONG, s.hub.projections().delete("bomb")).await.expect("soon").expect("it goes");
}

pub async fn a_definition_that_compiles_no_more_can_be_deleted(s: Stage) {
    s.topic("t", 1).await;
    s.put("p", changelog("t", "c")).await;
    let old = with(changelog("t", "c"), "tombstone", json!("of_an_earlier.build("));
    store(&s, "p", &json!({"definition": old, "made": old})).await;
    let s = s.restart().await;
    s.hub.projections().delete("p").await.expect("it can be deleted");
    let s = s.restart().await;
    assert!(s.hub.projections().names().is_empty());
    assert!(s.log.collection("c").await.expect("collections").is_none());
}

pub fn fed(topic: &str, collection: &str, feed: &str) -> Value {
    with(changelog(topic, collection), "changefeed", json!(feed))
}

#[track_caller]
pub fn is_circle(refused: Result<ProjectionStatus, ProjectionError>, way: &str) {
    let Err(ProjectionError::Bad(message)) = refused else { panic!("{refused:?}") };
    assert!(message.ends_with(way), "{message}");
}

pub async fn a_circle_of_changefeeds_is_refused(s: Stage) {
    let x = s.topic("x", 1).await;
    s.put("p", fed("x", "c", "y")).await;
    let way = "topic y, projection \"q\", collection d, topic x, projection \"p\", collection c, topic y";
    is_circle(s.try_put("q", fed("y", "d", "x")).await, way);
    assert_eq!(s.hub.collections().get("d").await.expect("readable"), None, "nothing was made");
    s.put("letters", fed("dlq.z", "l", "z")).await;
    let way =
        "topic z, projection \"r\", dead letters, topic dlq.z, projection \"letters\", collection l, topic z";
    is_circle(s.try_put("r", changelog("z", "e")).await, way);
    s.hub.projections().delete("letters").await.expect("it can be deleted");
    s.put("q", fed("y", "d", "z")).await;
    s.put(
        "r",
        json!({"topic": "z", "write": [
            {"collection": "e", "key": "event.key", "inc": {"n": "1"}, "changefeed": "end"},
            {"collection": "f", "key": "event.key", "inc": {"n": "1"}},
        ]}),
    )
    .await;
    let closing = json!({"topic": "z", "write": [
        {"collection": "e", "key": "event.key", "inc": {"n": "1"}, "changefeed": "end"},
        {"collection": "f", "key": "event.key", "inc": {"n": "1"}, "changefeed": "x"},
    ]});
    is_circle(s.try_put("r", closing).await, "collection d, topic z");
    // What was there goes on, to its end.
    s.publish(&x, [("k", json!({"a": 1}))]).await;
    let ended = async {
        while s.events(&topic_name("end")).await.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, ended).await.expect("it comes to the end");
    assert_eq!(s.events(&x).await.len(), 1);
}

pub async fn a_circle_that_is_stored_stands_still(s: Stage) {
    let x = s.topic("x", 1).await;
    s.topic("y", 1).await;
    s.put("p", fed("x", "c", "y")).await;
    s.put("q", changelog("y", "d")).await;
    store(&s, "q", &json!({"definition": fed("y", "d", "x"), "made": fed("y", "d", "x")})).await;
    let s = s.restart().await;
    let status = s.status("q").await;
    let ProjectionState::Stopped(reason) = &status.state else { panic!("{status:?}") };
    assert!(reason.contains("projection \"p\", collection c, topic y"), "{reason}");
    s.publish(&x, [("k", json!({"a": 1}))]).await;
    s.caught_up("p").await;
    assert_eq!((s.events(&x).await.len(), s.status("q").await.lag), (1, 1));
    let refused = s.hub.projections().rebuild("q", false).await;
    assert!(matches!(refused, Err(ProjectionError::Bad(_))), "{refused:?}");
    let same = s.put("q", fed("y", "d", "x")).await;
    assert!(matches!(same.state, ProjectionState::Stopped(_)), "{same:?}");
    // Once the circle is gone, it goes on.
    s.put("p", changelog("x", "c")).await;
    s.put("q", fed("y", "d", "x")).await;
    s.caught_up("q").await;
    assert_eq!((s.field("d", "k", "a").await, s.events(&x).await.len()), (json!(1), 2));
    store(&s, "p", &json!({"definition": fed("x", "c", "y"), "made": fed("x", "c", "y")})).await;
    let s = s.restart().await;
    assert!(matches!(s.status("q").await.state, ProjectionState::Stopped(_)));
    s.hub.projections().delete("q").await.expect("it can be deleted");
}

pub async fn a_change_that_is_too_large_to_be_told_is_a_dead_letter(s: Stage) {
    let topic = s.topic("t", 1).await;
    s.put("p", json!({"topic": "t", "retries": 0, "write": [
        {"collection": "c", "key": "event.payload.k", "merge": "event.payload", "changefeed": "c.changed"},
    ]}))
    .await;
    let large = |k: &str, field: &str| json!({"k": k, field: "x".repeat(600_000)});
    let events = [large("a", "one"), large("b", "one"), large("a", "two"), large("b", "one")];
    for event in events {
        s.publish(&topic, [("key", event)]).await;
    }
    s.publish(&topic, [("key", json!({"k": "a", "three": 3}))]).await;
    s.caught_up("p").await;
    let letters = s.letters(&topic).await;
    let letter = letters[0].payload.to_value().expect("JSON");
    assert!(
        letter["err"].as_str().is_some_and(|err| err.contains("limits.event_bytes")),
        "{}",
        letter["err"]
    );
    assert_eq!((letters.len(), &letter["original"]["offset"]), (1, &json!(2)));
    assert_eq!((s.field("c", "a", "two").await, s.field("c", "a", "three").await), (json!(null), json!(3)));
}
