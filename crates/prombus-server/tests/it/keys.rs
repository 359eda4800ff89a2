//! The latest event of a key, and of many.

use crate::common::start;
use prombus_wire::KeyEvents;
use serde_json::json;

const EVENTS: &str = "/v1/topics/t/events";
const KEYS: &str = "/v1/topics/t/keys";

#[tokio::test]
async fn keys_of_any_kind() {
    let hub = start().await;
    for (key, path) in [
        ("a/b", "a%2Fb"),
        ("ö ü", "%C3%B6%20%C3%BC"),
        ("100%", "100%25"),
        ("a+b", "a+b"),
        ("..", "%2E%2E%2F"),
        ("?&#", "%3F%26%23"),
        ("\u{1F980}", "%F0%9F%A6%80"),
        ("", ""),
        ("\"\\\n", "%22%5C%0A"),
    ] {
        // A client may take dots for a way up; with a slash behind they are a key like any other.
        let key = if key == ".." { "../" } else { key };
        let event = json!({"payload": key, "key": key});
        hub.post(EVENTS, &event.to_string()).await.is(201);
        assert_eq!(hub.get(&format!("{KEYS}/{path}")).await.is(200).json()["key"], key, "{path}");
    }
    hub.get(&format!("{KEYS}/%ff")).await.is_error(400, "bad_request");
}

#[tokio::test]
async fn many_keys_at_once() {
    let hub = start().await;
    hub.fill("t", 25).await;
    let answer = hub.post(KEYS, r#"{"keys":["k4","nobody","k5","k4"]}"#).await;
    let events: KeyEvents = serde_json::from_str(&answer.is(200).text).unwrap();
    assert_eq!(events.events.len(), 2);
    assert_eq!(events.events["k4"].payload.get(), "24");
    assert_eq!(events.events["k5"].payload.get(), "15");
    assert_eq!(answer.text.matches("\"k4\":").count(), 1);
    assert_eq!(hub.post(KEYS, r#"{"keys":[]}"#).await.is(200).json(), json!({"events": {}}));
}

#[tokio::test]
async fn at_most_a_thousand_keys() {
    let hub = start().await;
    hub.fill("t", 10).await;
    let keys = |count: usize| json!({"keys": vec!["k1"; count]}).to_string();
    hub.post(KEYS, &keys(1_000)).await.is(200);
    hub.post(KEYS, &keys(1_001)).await.is_error(400, "bad_request");
}

#[tokio::test]
async fn large_events_of_many_keys_are_streamed() {
    let hub = start().await;
    let keys: Vec<String> = (0..40).map(|n| format!("k{n}")).collect();
    for key in &keys {
        let event = json!({"payload": "x".repeat(100_000), "key": key});
        hub.post(EVENTS, &event.to_string()).await.is(201);
    }
    let answer = hub.post(KEYS, &json!({ "keys": keys }).to_string()).await;
    assert_eq!(answer.header("content-length"), None);
    let events: KeyEvents = serde_json::from_str(&answer.is(200).text).unwrap();
    assert_eq!(events.events.len(), 40);
}

#[tokio::test]
async fn bad_requests() {
    let hub = start().await;
    hub.fill("t", 10).await;
    for bad in
        ["{}", "[]", "null", r#"{"keys":"a"}"#, r#"{"keys":[1]}"#, r#"{"keys":[],"x":1}"#, r#"[["a"]]"#]
    {
        hub.post(KEYS, bad).await.is_error(400, "bad_request");
    }
    for bad in ["", "{", r#"{"keys":["a"]"#] {
        hub.post(KEYS, bad).await.is_error(400, "bad_json");
    }
    hub.post("/v1/topics/nobody/keys", r#"{"keys":[]}"#).await.is_error(404, "not_found");
    hub.get(&format!("{KEYS}/k1?x=1")).await.is_error(400, "bad_request");
    hub.lines(KEYS, r#"{"keys":[]}"#).await.is_error(415, "bad_request");
}
