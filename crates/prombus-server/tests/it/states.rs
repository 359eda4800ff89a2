//! States at a time over HTTP: of a key, of every key, and of a document.

use crate::common::{Served, start};
use prombus_core::{
    Commit, ConfigChange, EventLog, EventLogExt, Loss, Offset, Partition, TopicName, TopicRef,
};
use serde_json::{Value, json};
use std::sync::Arc;

const EVENTS: &str = "/v1/topics/t/events";
const STATE: &str = "/v1/topics/t/state";

async fn filled() -> Served {
    let hub = start().await;
    let events = json!([
        {"key": "k", "ts": 1000, "payload": {"a": 1, "b": 1}},
        {"key": "k", "ts": 3000, "payload": {"b": null, "c": 3}},
        {"key": "k", "ts": 2000, "payload": {"d": 4}},
        {"key": "k", "ts": 4000, "payload": null},
        {"key": "other", "ts": 2000, "payload": "x"},
    ]);
    hub.post(EVENTS, &events.to_string()).await.is(201);
    hub
}

/// Gives up single events of the topic.
async fn discard(hub: &Served, offsets: &[u64], horizon_ts: u64) {
    let topic = TopicRef::from(&TopicName::parse("t").unwrap());
    let offsets = Arc::new(offsets.iter().copied().map(Offset).collect());
    let loss = Loss { bytes: 0, horizon_ts: Some(horizon_ts) };
    let change = ConfigChange::Discard { topic, partition: Partition(0), offsets, loss };
    hub.store.commit(Arc::new(Commit { config: vec![change], ..Commit::default() })).await.unwrap();
}

#[tokio::test]
async fn the_state_of_a_key() {
    let hub = filled().await;
    let answer = hub.get(&format!("{STATE}/k?at=3500")).await;
    let expected = r#"{"key":"k","state":{"d":4},"ts":2000,"offset":2,"applied":3,"base":null}"#;
    assert_eq!(answer.is(200).text.trim_end(), expected);
    let merged = hub.get(&format!("{STATE}/k?at=3500&reduce=merge")).await.is(200).json();
    assert_eq!(merged["state"], json!({"a": 1, "c": 3, "d": 4}));
    let rfc_3339 = hub.get(&format!("{STATE}/k?at=1970-01-01T00:00:01.5Z&reduce=replace")).await;
    assert_eq!(rfc_3339.is(200).json()["state"], json!({"a": 1, "b": 1}));
    // It is over by now.
    for path in ["k", "k?at=4000", "k?at=999", "nobody", "k?at=4000&reduce=merge", ""] {
        hub.get(&format!("{STATE}/{path}")).await.is_error(404, "not_found");
    }
    assert_eq!(hub.get(&format!("{STATE}/other")).await.is(200).json()["state"], "x");
    hub.post(EVENTS, r#"{"key":"","payload":7}"#).await.is(201);
    assert_eq!(hub.get(&format!("{STATE}/")).await.is(200).json()["state"], 7, "the empty string is a key");
    hub.get("/v1/topics/nobody/state/k").await.is_error(404, "not_found");
}

#[tokio::test]
async fn bad_questions_are_told_what_is_wrong() {
    let hub = filled().await;
    for (path, says) in [
        ("/k?at=yesterday", "RFC 3339"),
        ("/k?at=-15m", "epoch milliseconds"),
        ("/k?at=", "at must be"),
        ("/k?reduce=sum", "replace or merge"),
        ("/k?when=5", "known here: at, reduce"),
        ("/k?at=5&at=6", "only once"),
        ("?reduce=merge", "known here: at"),
        ("?at=x", "RFC 3339"),
    ] {
        let answer = hub.get(&format!("{STATE}{path}")).await;
        let message = answer.is_error(400, "bad_request")["message"].to_string();
        assert!(message.contains(says), "{path}: {message}");
    }
    hub.get("/v1/topics/T/state").await.is_error(400, "bad_request");
    hub.post(&format!("{STATE}/k"), "{}").await.is_error(405, "method_not_allowed");
}

#[tokio::test]
async fn every_key_is_a_line() {
    let hub = filled().await;
    let lines = async |query: &str| {
        let answer = hub.get(&format!("{STATE}{query}")).await;
        assert_eq!(answer.is(200).header("content-type"), Some("application/x-ndjson"));
        let mut lines: Vec<String> = answer.text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let other = r#"{"key":"other","state":"x","ts":2000,"offset":4}"#;
    let k = r#"{"key":"k","state":{"d":4},"ts":2000,"offset":2}"#;
    assert_eq!(lines("?at=3000").await, [k, other]);
    assert_eq!(lines("").await, [other]);
    assert_eq!(lines("?at=0").await, [""; 0]);
    hub.get("/v1/topics/nobody/state").await.is_error(404, "not_found");
}

#[tokio::test]
async fn very_many_keys_are_streamed() {
    let hub = start().await;
    let pad = "x".repeat(100);
    for chunk in 0..20 {
        let event = |n: usize| json!({"key": format!("key-{n}"), "ts": 5, "payload": [n, pad]});
        let events: Vec<Value> = (chunk * 500..(chunk + 1) * 500).map(event).collect();
        hub.post(EVENTS, &Value::from(events).to_string()).await.is(201);
    }
    let answer = hub.get(&format!("{STATE}?at=5")).await;
    let mut found: Vec<u64> = Vec::new();
    for line in answer.is(200).text.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        found.extend(line["state"][0].as_u64());
        assert_eq!(line["key"], format!("key-{}", line["state"][0]));
    }
    found.sort_unstable();
    assert!(found.into_iter().eq(0..10_000));
}

#[tokio::test]
async fn what_was_given_up_is_gone_and_says_from_when_on_it_is_not() {
    let hub = filled().await;
    discard(&hub, &[0, 1, 2], 4000).await;
    for path in ["/k?at=3999", "/nobody?at=3999", "/k?at=3999&reduce=merge", "?at=3999"] {
        let answer = hub.get(&format!("{STATE}{path}")).await;
        assert_eq!(answer.is_error(410, "gone")["horizon_ts"], 4000, "{path}");
    }
    // What is newest is known all the same.
    assert_eq!(hub.get(&format!("{STATE}/other?at=3999")).await.is(200).json()["offset"], 4);
    hub.get(&format!("{STATE}/k?at=4000")).await.is_error(404, "not_found");
    assert_eq!(hub.get(&format!("{STATE}/other?at=4000")).await.is(200).json()["offset"], 4);
    assert_eq!(hub.get(&format!("{STATE}?at=4000")).await.is(200).text.lines().count(), 1);
    hub.post(EVENTS, r#"{"key":"k","ts":5000,"payload":{"e":5}}"#).await.is(201);
    let merged = hub.get(&format!("{STATE}/k?reduce=merge")).await;
    let message = merged.is_error(410, "gone")["message"].to_string();
    assert!(message.contains("reduce=replace"), "{message}");
}

#[tokio::test]
async fn a_document_as_it_was() {
    let hub = start().await;
    let definition =
        json!({"topic": "t", "collection": "docs", "key": "event.payload.id", "fields": ["id", "n"]});
    hub.put("/v1/projections/docs", &definition.to_string()).await.is(201);
    let event = |ts: u64, n: u64| json!({"key": "k", "ts": ts, "payload": {"id": "k", "n": n, "x": 1}});
    let events = json!([event(1000, 1), event(2000, 2), {"key": "k", "ts": 3000, "payload": null}]);
    hub.post(EVENTS, &events.to_string()).await.is(201);
    let path = "/v1/collections/docs/snap/k";
    let answer = hub.get(&format!("{path}?at=1999")).await;
    assert_eq!(answer.is(200).text, r#"{"_key":"k","_ts":1000,"id":"k","n":1}"#);
    let tag = answer.header("etag").unwrap().to_owned();
    let known = hub.get_with(&format!("{path}?at=1500"), &[("if-none-match", &tag)]).await;
    assert_eq!(known.is(304).text, "");
    let later = hub.get_with(&format!("{path}?at=1970-01-01T00:00:02Z"), &[("if-none-match", &tag)]).await;
    assert_eq!(later.is(200).json()["n"], 2);
    hub.get(&format!("{path}?at=3000")).await.is_error(404, "not_found");
    hub.get(&format!("{path}?at=999")).await.is_error(404, "not_found");
    hub.get(&format!("{path}?at=soon")).await.is_error(400, "bad_request");
    hub.get("/v1/collections/nothing/snap/k?at=5").await.is_error(404, "not_found");
    hub.put("/v1/collections/written", "{}").await.is(201);
    let written = hub.get("/v1/collections/written/snap/k?at=5").await;
    assert!(written.is_error(400, "bad_request")["message"].to_string().contains("no projection writes"));
    discard(&hub, &[0], 2000).await;
    let gone = hub.get(&format!("{path}?at=1999")).await;
    assert_eq!(gone.is_error(410, "gone")["horizon_ts"], 2000);
    assert_eq!(gone.header("cache-control"), Some("no-store"));
    assert_eq!(
        hub.store
            .kept(&TopicRef::from(&TopicName::parse("t").unwrap()), Partition(0))
            .await
            .unwrap()
            .horizon_ts,
        2000
    );
    hub.post(EVENTS, r#"{"key":"moved","ts":1000,"payload":{"id":"k","n":4}}"#).await.is(201);
    let moved = hub.get("/v1/collections/docs/snap/moved?at=1000").await;
    let message = moved.is_error(400, "bad_request")["message"].to_string();
    assert!(message.contains("write document \\\"k\\\""), "{message}");
    // It wrote the document behind the tombstone, so what that was at any time does not follow from its own events.
    let written_by_another = hub.get(&format!("{path}?at=3000")).await;
    let message = written_by_another.is_error(400, "bad_request")["message"].to_string();
    assert!(message.contains("events with another key have written"), "{message}");
}
