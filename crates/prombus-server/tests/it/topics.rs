//! Topics: list, show, make, change, delete.

use crate::common;
use crate::common::start;
use prombus_wire::{TopicAnswer, Topics};
use reqwest::Method;
use serde_json::json;

const TOPIC: &str = "/v1/topics/a.b";

#[tokio::test]
async fn a_topic_is_made_with_what_is_given_and_defaults() {
    let hub = start().await;
    hub.get(TOPIC).await.is_error(404, "not_found");
    let made = hub.put(TOPIC, r#"{"partitions":2,"durability":"interval"}"#).await.is(201).json();
    assert_eq!(
        made,
        json!({
            "topic": "a.b", "partitions": 2, "retention_ms": 0, "retention_bytes": 0, "compaction": false,
            "min_compaction_lag_ms": 0, "tombstone_retention_ms": 86_400_000, "dedupe_window_ms": 86_400_000,
            "snapshot": null, "durability": "interval", "schema": "enforce", "dual_write": false,
            "bounds": [
                {"partition": 0, "first": 0, "next": 0, "horizon_ts": 0},
                {"partition": 1, "first": 0, "next": 0, "horizon_ts": 0},
            ],
            "events": 0,
        })
    );
    assert_eq!(hub.get(TOPIC).await.is(200).json(), made);
}

#[tokio::test]
async fn an_empty_body_makes_the_default_topic() {
    let hub = start().await;
    let made = common::send(hub.request(Method::PUT, TOPIC)).await;
    assert_eq!(made.is(201).json()["partitions"], 1);
    common::send(hub.request(Method::PUT, TOPIC)).await.is(200);
}

#[tokio::test]
async fn a_change_leaves_the_rest() {
    let hub = start().await;
    hub.put(TOPIC, r#"{"partitions":2,"compaction":true}"#).await.is(201);
    let changed =
        hub.put(TOPIC, r#"{"partitions":4,"snapshot":{"topic":"s","every_ms":5}}"#).await.is(200).json();
    assert_eq!((&changed["partitions"], &changed["compaction"]), (&json!(4), &json!(true)));
    let snapshot = &changed["snapshot"];
    assert_eq!((&snapshot["topic"], &snapshot["every_ms"]), (&json!("s"), &json!(5)));
    assert_eq!(changed["bounds"].as_array().unwrap().len(), 4);
}

#[tokio::test]
async fn bad_settings() {
    let hub = start().await;
    hub.put(TOPIC, r#"{"partitions":4}"#).await.is(201);
    for bad in [
        r#"{"partitions":3}"#,
        r#"{"partitions":0}"#,
        r#"{"partitions":1025}"#,
        r#"{"partitions":-1}"#,
        r#"{"partitions":"4"}"#,
        r#"{"partition":4}"#,
        r#"{"durability":"never"}"#,
        r#"{"snapshot":{"topic":"BAD","every_ms":5}}"#,
        r#"{"snapshot":{"topic":"s","every_ms":0}}"#,
        "[]",
        "null",
        "4",
    ] {
        hub.put(TOPIC, bad).await.is_error(400, "bad_request");
    }
    hub.put(TOPIC, "{").await.is_error(400, "bad_json");
    hub.put("/v1/topics/BAD", "{}").await.is_error(400, "bad_request");
    hub.put("/v1/topics/system.x", "{}").await.is_error(403, "forbidden");
    hub.put(&format!("{TOPIC}?x=1"), "{}").await.is_error(400, "bad_request");
    let form = hub.request(Method::PUT, TOPIC).header("content-type", "text/plain").body("{}");
    common::send(form).await.is_error(415, "bad_request");
    assert_eq!(hub.get(TOPIC).await.json()["partitions"], 4);
}

#[tokio::test]
async fn bounds_and_events_are_counted() {
    let hub = start().await;
    hub.fill("a.b", 12).await;
    let topic: TopicAnswer = serde_json::from_str(&hub.get(TOPIC).await.is(200).text).unwrap();
    assert_eq!((topic.events, topic.bounds[0].next), (12, 12));
    assert_eq!(topic.config["partitions"], 1);
}

#[tokio::test]
async fn the_list_has_all_topics_by_name() {
    let hub = start().await;
    assert_eq!(hub.get("/v1/topics").await.is(200).json(), json!({"topics": []}));
    for name in ["b", "a.c", "a.b"] {
        hub.put(&format!("/v1/topics/{name}"), "").await.is(201);
    }
    let list: Topics = serde_json::from_str(&hub.get("/v1/topics").await.text).unwrap();
    assert_eq!(list.topics.iter().map(|topic| topic.topic.as_str()).collect::<Vec<_>>(), ["a.b", "a.c", "b"]);
    hub.get("/v1/topics?x=1").await.is_error(400, "bad_request");
}
