//! Documents of changelog projections at a time.

use super::stage::*;
use prombus_core::*;
use prombus_engine::TimeTravelError;
use prombus_engine::projections::Definition;
use serde_json::{Value, json};

impl Stage {
    async fn project(&self, name: &str, definition: Value) {
        let definition: Definition = serde_json::from_value(definition).expect("a definition");
        self.hub.projections().put(name, definition).await.expect("a projection can be put");
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
