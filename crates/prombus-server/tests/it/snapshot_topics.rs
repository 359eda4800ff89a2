//! Snapshot topics over HTTP: the setting, who may set it, and what is told of it.

use crate::common::{Served, as_one_who, guarded, send, start, start_with};
use prombus_core::TopicName;
use prombus_engine::Limits;
use reqwest::Method;
use serde_json::{Value, json};

const TOPIC: &str = "/v1/topics/t";
const SETTING: &str = r#"{"snapshot":{"topic":"t.snapshot","every_ms":30000}}"#;

/// A pass of the compactor.
async fn pass(hub: &Served) {
    let topic = TopicName::parse("t").unwrap();
    hub.hub.as_ref().unwrap().cleaning().snapshot(&topic).await.unwrap();
}

async fn snapshot(hub: &Served) -> Value {
    hub.get(TOPIC).await.is(200).json()["snapshot"].clone()
}

#[tokio::test]
async fn changed_keys_go_to_the_snapshot_topic() {
    let hub = start().await;
    let made = hub.put(TOPIC, SETTING).await.is(201).json();
    assert_eq!((&made["snapshot"]["pass"], &made["snapshot"]["through"]), (&json!(0), &json!([0])));
    assert_eq!(hub.get("/v1/topics/t.snapshot").await.is(200).json()["compaction"], true);
    let events = json!([
        {"key": "a", "ts": 5, "payload": {"n": 1}},
        {"key": "b", "ts": 7, "payload": null},
        {"key": "a", "ts": 3, "payload": {"n": 2}},
    ]);
    hub.post("/v1/topics/t/events", &events.to_string()).await.is(201);
    pass(&hub).await;
    let told = snapshot(&hub).await;
    assert_eq!((&told["pass"], &told["through"]), (&json!(1), &json!([3])));
    assert!(told["since"].as_u64().unwrap() > 0);
    let page = hub.get("/v1/topics/t.snapshot/events").await.is(200).json();
    let records: Vec<&Value> =
        page["events"].as_array().unwrap().iter().map(|event| &event["payload"]).collect();
    assert_eq!(
        records,
        [
            &json!({"key": "b", "payload": null, "ts": 7, "partition": 0, "offset": 1, "max_ts": 7}),
            &json!({"key": "a", "payload": {"n": 2}, "ts": 3, "partition": 0, "offset": 2, "max_ts": 5}),
        ]
    );
    assert_eq!(page["events"][0]["key"], "b");
    // What goes back to PUT as it was told is refused: how far it has come is nothing to set.
    let body = json!({"snapshot": told}).to_string();
    hub.put(TOPIC, &body).await.is_error(400, "bad_request");
    assert_eq!(hub.put(TOPIC, r#"{"snapshot":null}"#).await.is(200).json()["snapshot"], Value::Null);
}

#[tokio::test]
async fn a_stream_goes_on_live_from_where_snapshots_end() {
    let hub = start().await;
    hub.put(TOPIC, SETTING).await.is(201);
    hub.put(TOPIC, r#"{"partitions":3}"#).await.is(200);
    hub.fill("t", 5).await;
    pass(&hub).await;
    hub.post("/v1/topics/t/events", r#"{"key":"k","payload":"later"}"#).await.is(201);
    let resume = snapshot(&hub).await["resume"].as_str().unwrap().to_owned();
    let request = hub.request(Method::GET, "/v1/topics/t/events");
    let request = request.header("accept", "text/event-stream").header("last-event-id", resume);
    let mut answer = request.send().await.unwrap();
    let mut text = String::new();
    while !text.contains("data:") {
        text.push_str(&String::from_utf8_lossy(&answer.chunk().await.unwrap().expect("it goes on")));
    }
    assert!(text.contains("\"later\"") && text.matches("data:").count() == 1, "{text}");
}

#[tokio::test]
async fn a_snapshot_is_the_base_of_a_state() {
    let hub = start().await;
    hub.put(TOPIC, SETTING).await.is(201);
    let event = async |ts: u64, n: u64| {
        let event = json!({"key": "k", "ts": ts, "payload": {"n": n}});
        hub.post("/v1/topics/t/events", &event.to_string()).await.is(201);
    };
    event(10, 1).await;
    event(20, 2).await;
    pass(&hub).await;
    event(30, 3).await;
    let at = async |query: &str| {
        hub.get(&format!("/v1/topics/t/state/k?{query}")).await.is(200).text.trim_end().to_owned()
    };
    let base = r#"{"ts":20,"partition":0,"offset":1,"max_ts":20}"#;
    for (query, expected) in [
        ("at=10", r#"{"n":1},"ts":10,"offset":0,"applied":1,"base":null"#.to_owned()),
        ("at=29", format!(r#"{{"n":2}},"ts":20,"offset":1,"applied":0,"base":{base}"#)),
        ("at=30", format!(r#"{{"n":3}},"ts":30,"offset":2,"applied":1,"base":{base}"#)),
        ("at=30&reduce=merge", r#"{"n":3},"ts":30,"offset":2,"applied":3,"base":null"#.to_owned()),
    ] {
        assert_eq!(at(query).await, format!(r#"{{"key":"k","state":{expected}}}"#), "{query}");
    }
}

#[tokio::test]
async fn whoever_sets_it_may_read_the_one_and_write_the_other() {
    let all = "admin:t read:t admin:t.snapshot publish:t.snapshot";
    let lacking: Vec<String> = all
        .split(' ')
        .map(|scope| all.split(' ').filter(|other| *other != scope).collect::<Vec<_>>().join(" "))
        .collect();
    let scopes: Vec<&str> = lacking.iter().map(String::as_str).chain([all]).collect();
    let hub = start_with(guarded(&scopes)).await;
    let put = async |who: &str, body: &'static str| {
        let request = hub.request(Method::PUT, TOPIC).header("content-type", "application/json").body(body);
        send(as_one_who(who, request)).await
    };
    for who in &lacking {
        put(who, SETTING).await.is_error(403, "forbidden");
    }
    put(all, SETTING).await.is(201);
    put("admin:t read:t admin:t.snapshot", r#"{"snapshot":null}"#).await.is(200);
}

#[tokio::test]
async fn what_cannot_be_a_snapshot_topic_is_refused() {
    let limits = Limits { topics: 3, ..Limits::default() };
    let hub = start_with(crate::common::Setup { limits, ..Default::default() }).await;
    hub.put(TOPIC, SETTING).await.is(201);
    for (topic, target) in [("t", "t"), ("t.snapshot", "u"), ("u", "t"), ("u", "t.snapshot"), ("u", "dlq.u")]
    {
        let body = json!({"snapshot": {"topic": target, "every_ms": 1}}).to_string();
        hub.put(&format!("/v1/topics/{topic}"), &body).await.is_error(400, "bad_request");
    }
    let body = r#"{"snapshot":{"topic":"u.snapshot","every_ms":1}}"#;
    hub.put("/v1/topics/u", body).await.is_error(413, "too_large");
    hub.get("/v1/topics/u").await.is(404);
}
