//! Documents of changelog projections at a time.

use super::stage::*;
use prombus_core::*;
use prombus_engine::TimeTravelError;
use prombus_engine::projections::{Definition, ProjectionError};
use serde_json::{Value, json};

impl Stage {
    async fn project(&self, name: &str, definition: Value) {
        let definition: Definition = serde_json::from_value(definition).expect("a definition");
        self.hub.projections().put(name, definition).await.expect("a projection can be put");
    }

    /// Makes the collection of a projection anew, and waits until it is there.
    async fn project_anew(&self, name: &str) {
        let projections = self.hub.projections();
        projections.rebuild(name, false).await.expect("a rebuild can be begun");
        let rebuilt = async {
            while projections.get(name).await.expect("a status").rebuild.is_some() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(LONG, rebuilt).await.expect("the rebuild ends");
    }

    /// What readers see of a document.
    async fn document_at(&self, collection: &str, key: &str, at: u64) -> Option<Value> {
        let document = self.hub.time_travel().document_at(collection, (key, at)).await.expect("it is known");
        document.map(|document| document.to_json().to_value().expect("an object"))
    }

    async fn refused(&self, collection: &str, key: &str, at: u64) -> TimeTravelError {
        self.hub.time_travel().document_at(collection, (key, at)).await.expect_err("there is no answer")
    }
}

pub async fn a_document_is_what_its_events_left(s: Stage) {
    let topic = s.topic("process.state", 2).await;
    s.project(
        "processes",
        json!({"topic": "process.state", "collection": "processes", "key": "event.payload.id",
               "fields": ["id", "cpu"], "tombstone": "event.payload.gone == true"}),
    )
    .await;
    let payload = |cpu: u32, gone: bool| json!({"id": "p", "cpu": cpu, "gone": gone, "more": 1}).to_string();
    let (one, two, gone, late) = (payload(1, false), payload(2, false), payload(3, true), payload(4, false));
    s.push(&topic, "p", &[(10, &one), (20, &two), (30, &gone), (40, &late), (25, &one), (50, "null")]).await;
    let document = |ts: u64, cpu: u32| Some(json!({"_key": "p", "_ts": ts, "id": "p", "cpu": cpu}));
    for (at, expected) in [
        (9, None),
        (10, document(10, 1)),
        (20, document(20, 2)),
        // The one with ts 25 was written after all others but the last.
        (25, document(25, 1)),
        (45, document(25, 1)),
        (50, None),
    ] {
        assert_eq!(s.document_at("processes", "p", at).await, expected, "at {at}");
    }
    assert_eq!(s.document_at("processes", "q", 50).await, None);
}

pub async fn versions_and_marks_are_heeded(s: Stage) {
    let topic = s.topic("versions", 1).await;
    s.project(
        "versions",
        json!({"topic": "versions", "collection": "versions", "key": "event.key", "version": "event.payload.rev"}),
    )
    .await;
    let events = [
        (10, r#"{"rev":5}"#),
        (20, r#"{"rev":4}"#),
        (30, r#"{"rev":6}"#),
        (40, r#"{"_deleted":true,"rev":6}"#),
        (50, r#"{"_deleted":true}"#),
        (60, r#"{"rev":1}"#),
    ];
    s.push(&topic, "k", &events).await;
    let document = |ts: u64, rev: i64| Some(json!({"_key": "k", "_ts": ts, "_v": rev, "rev": rev}));
    for (at, expected) in [
        (10, document(10, 5)),
        (20, document(10, 5)),
        (30, document(30, 6)),
        (40, document(30, 6)),
        (50, None),
        (60, document(60, 1)),
    ] {
        assert_eq!(s.document_at("versions", "k", at).await, expected, "at {at}");
    }
    let now = s.hub.time_travel().document_at("versions", ("k", 60)).await.unwrap();
    let at = prombus_engine::projections::MinOffset { partition: None, offset: Offset(5) };
    assert!(s.hub.projections().until_seen("versions", at).await.unwrap());
    let stored = s.hub.collections().document("versions", "k").await.unwrap();
    assert_eq!(now, stored, "what was made of all events is what is stored, to its tag");
}

pub async fn an_event_that_fails_writes_nothing(s: Stage) {
    let topic = s.topic("failing", 1).await;
    s.project("failing", json!({"topic": "failing", "collection": "failing", "key": "event.payload.id"}))
        .await;
    s.push(&topic, "k", &[(10, r#"{"id":"k","n":1}"#), (20, r#"{"n":2}"#), (30, "7")]).await;
    for at in [10, 20, 30] {
        assert_eq!(s.document_at("failing", "k", at).await.unwrap()["n"], 1, "at {at}");
    }
}

pub async fn what_has_no_history_is_told_why(s: Stage) {
    let topic = s.topic("hosts", 1).await;
    let bad = |error: TimeTravelError, says: &str| assert!(error.to_string().contains(says), "{error}");
    bad(s.refused("nothing", "k", 5).await, "no projection writes collection nothing");
    s.project("hosts", json!({"topic": "hosts", "collection": "hosts", "key": "event.payload.host"})).await;
    s.push(&topic, "process-1", &[(10, r#"{"host":"web1"}"#)]).await;
    bad(s.refused("hosts", "process-1", 10).await, "write document \"web1\"");
    let write = json!({"collection": "counts", "key": "event.key", "inc": {"n": "1"}});
    s.project("counts", json!({"topic": "hosts", "write": [write]})).await;
    bad(s.refused("counts", "process-1", 10).await, "not filled by a changelog");
}

pub async fn documents_are_exact_or_gone(s: Stage) {
    let topic = s.topic("lost", 1).await;
    s.project("lost", json!({"topic": "lost", "collection": "lost", "key": "event.payload.id"})).await;
    let good = |n: u32| format!("{{\"id\":\"k\",\"n\":{n}}}");
    s.push(&topic, "k", &[(10, &good(1)), (20, &good(2)), (30, "7"), (40, &good(4))]).await;
    s.discard_of(&topic, &[0], Some(20)).await;
    assert!(matches!(s.refused("lost", "k", 19).await, TimeTravelError::Gone { horizon_ts: 20, .. }));
    assert_eq!(s.document_at("lost", "k", 20).await.unwrap()["n"], 2);
    // The last event up to then wrote nothing, so an earlier one decides, and more of those may be missing.
    assert!(matches!(s.refused("lost", "k", 30).await, TimeTravelError::Gone { .. }));
    assert_eq!(s.document_at("lost", "k", 40).await.unwrap()["n"], 4);
}

pub async fn documents_that_other_keys_write_have_no_past(s: Stage) {
    let moves = s.topic("moves", 1).await;
    let keyless = s.topic("keyless", 1).await;
    let tombs = s.topic("tombs", 1).await;
    for name in ["moves", "keyless", "tombs"] {
        s.project(name, json!({"topic": name, "collection": name, "key": "event.payload.id"})).await;
    }
    let bad = |error: TimeTravelError| {
        assert!(matches!(error, TimeTravelError::Projection(ProjectionError::Bad(_))), "{error:?}");
        assert!(error.to_string().contains("events with another key have written"), "{error}");
    };
    s.push(&moves, "a", &[(10, r#"{"id":"a","v":1}"#)]).await;
    assert_eq!(s.document_at("moves", "a", 10).await.unwrap()["v"], 1);
    s.push(&moves, "b", &[(20, r#"{"id":"a","v":2}"#)]).await;
    bad(s.refused("moves", "a", 20).await);
    bad(s.refused("moves", "nobody", 20).await);
    let event = NewEvent { ts: Some(10), ..NewEvent::new(prombus_testkit::build::json(r#"{"id":"a"}"#)) };
    s.hub.publish(vec![Append::new(keyless.clone(), event)]).await.expect("an event can be published");
    bad(s.refused("keyless", "a", 10).await);
    // A tombstone is about its own key, whatever the definition says.
    s.push(&tombs, "a", &[(10, r#"{"id":"a"}"#), (20, "null")]).await;
    s.push(&tombs, "b", &[(30, "null")]).await;
    assert_eq!(s.document_at("tombs", "a", 40).await, None);
    assert!(s.document_at("tombs", "a", 10).await.is_some());
    // It is stored, and a rebuild finds it again.
    let s = s.restart().await;
    s.project_anew("moves").await;
    bad(s.refused("moves", "a", 20).await);
    assert!(s.document_at("tombs", "a", 10).await.is_some(), "known before and after a restart");
}

pub async fn another_definition_of_the_key_knows_no_past_until_it_is_rebuilt(s: Stage) {
    let topic = s.topic("redefined", 1).await;
    let definition = |key: &str, fields: Value| json!({"topic": "redefined", "collection": "redefined", "key": key, "fields": fields});
    s.project("redefined", definition("event.payload.other", json!(["id"]))).await;
    s.push(&topic, "a", &[(10, r#"{"id":"a","other":"a","n":1}"#)]).await;
    assert!(s.document_at("redefined", "a", 10).await.is_some());
    s.project("redefined", definition("event.payload.id", json!(["id"]))).await;
    let error = s.refused("redefined", "a", 10).await;
    assert!(error.to_string().contains("rebuild projection redefined"), "{error}");
    s.project("redefined", definition("event.key", json!(["id"]))).await;
    assert!(s.document_at("redefined", "a", 10).await.is_some(), "the key says it all");
    s.project("redefined", definition("event.payload.id", json!(["id"]))).await;
    s.project_anew("redefined").await;
    assert!(s.document_at("redefined", "a", 10).await.is_some());
    // What is kept of events has nothing to do with keys.
    s.project("redefined", definition("event.payload.id", json!(["n"]))).await;
    assert_eq!(s.document_at("redefined", "a", 10).await.unwrap()["n"], 1);
}

pub async fn an_event_that_failed_counts_by_its_key(s: Stage) {
    let topic = s.topic("failed", 1).await;
    let definition = |version: &str| json!({"topic": "failed", "collection": "failed", "key": "event.payload.id", "version": version});
    s.project("failed", definition("event.payload.missing")).await;
    s.push(&topic, "b", &[(10, r#"{"id":"a","rev":1}"#)]).await;
    let at = prombus_engine::projections::MinOffset { partition: None, offset: Offset(0) };
    assert!(s.hub.projections().until_seen("failed", at).await.unwrap());
    // By this one it would have written the document of another key.
    s.project("failed", definition("event.payload.rev")).await;
    let error = s.refused("failed", "a", 10).await;
    assert!(error.to_string().contains("events with another key have written"), "{error}");
}

pub async fn documents_with_a_unique_index_have_no_past(s: Stage) {
    let topic = s.topic("mails", 1).await;
    let indexes = json!([{"fields": ["mail"], "unique": true}]);
    let definition = json!({"topic": "mails", "collection": "mails", "key": "event.key", "indexes": indexes});
    s.project("mails", definition).await;
    s.push(&topic, "a", &[(10, r#"{"mail":"x"}"#)]).await;
    s.push(&topic, "b", &[(20, r#"{"mail":"x"}"#)]).await;
    let error = s.refused("mails", "b", 20).await;
    assert!(error.to_string().contains("has a unique index"), "{error}");
}
