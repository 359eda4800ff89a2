//! `POST /publish/{topic}`: the body is the payload.

use crate::common;
use crate::common::{Answer, Served, start, start_with};
use reqwest::Method;
use serde_json::json;

const ID: &str = "0198c0de-0000-7000-8000-000000000001";

async fn publish(hub: &Served, path: &str, body: &str) -> Answer {
    common::send(hub.request(Method::POST, path).body(body.to_owned())).await
}

async fn only_event(hub: &Served) -> serde_json::Value {
    let page = hub.get("/v1/topics/t/events").await.is(200).json();
    assert_eq!(page["count"], 1);
    page["events"][0].clone()
}

#[tokio::test]
async fn any_content_type_will_do() {
    let hub = start().await;
    for kind in ["application/x-www-form-urlencoded", "text/plain", "application/octet-stream"] {
        let request = hub.request(Method::POST, "/publish/t").header("content-type", kind).body(r#"{"a":1}"#);
        common::send(request).await.is(201);
    }
    publish(&hub, "/publish/t", " null ").await.is(201);
}

#[tokio::test]
async fn the_query_sets_the_fields() {
    let hub = start().await;
    let path = format!("/publish/t?key=k%2F%C3%B6+x&id={ID}&ts=7&sid=s%22&tag=%23a&tag=b&caused_by=c");
    publish(&hub, &path, "{\"n\": 1.10}").await.is(201);
    let event = only_event(&hub).await;
    assert_eq!((&event["key"], &event["id"], &event["ts"]), (&json!("k/ö x"), &json!(ID), &json!(7)));
    assert_eq!((&event["sid"], &event["tags"]), (&json!("s\""), &json!(["#a", "b"])));
    assert_eq!(event["caused_by"], json!(["c"]));
    assert_eq!(publish(&hub, &path, "{\"n\":1.10}").await.is(200).json()["duplicate"], true);
    publish(&hub, &path, "2").await.is_error(409, "id_conflict");
}

#[tokio::test]
async fn a_partition_can_be_named() {
    let hub = start().await;
    hub.put("/v1/topics/t", r#"{"partitions":4}"#).await.is(201);
    assert_eq!(publish(&hub, "/publish/t?partition=3", "1").await.is(201).json()["partition"], 3);
    publish(&hub, "/publish/t?partition=4", "1").await.is_error(400, "bad_request");
    publish(&hub, "/publish/t?partition=1&key=k", "1").await.is_error(400, "bad_request");
}

#[tokio::test]
async fn headers_become_event_headers() {
    let hub = start().await;
    let request = hub
        .request(Method::POST, "/publish/t")
        .header("X-Event-Schema-Version", "2")
        .header("traceparent", "00-a-b-01")
        .header("tracestate", "x=1")
        .header("x-other", "no")
        .header("content-type", "text/plain")
        .body("1");
    common::send(request).await.is(201);
    let headers = only_event(&hub).await["headers"].clone();
    assert_eq!(headers, json!({"x-schema-version": "2", "traceparent": "00-a-b-01", "tracestate": "x=1"}));
    let bad = hub.request(Method::POST, "/publish/t").header("x-event-a_b", "2").body("1");
    common::send(bad).await.is_error(400, "bad_request");
}

#[tokio::test]
async fn no_headers_make_no_headers() {
    let hub = start().await;
    publish(&hub, "/publish/t", "1").await.is(201);
    assert!(only_event(&hub).await.get("headers").is_none());
}

#[tokio::test]
async fn bad_payloads() {
    let hub = start().await;
    for bad in ["", "  ", "{", "hello", "1 2", "a=1"] {
        publish(&hub, "/publish/t", bad).await.is_error(400, "bad_json");
    }
    let not_utf8 = hub.request(Method::POST, "/publish/t").body(b"\"\xff\"".to_vec());
    common::send(not_utf8).await.is_error(400, "bad_json");
}

#[tokio::test]
async fn bad_parameters() {
    let hub = start().await;
    for bad in [
        "x=1",
        "key=a&key=b",
        "id=1",
        "id=",
        "ts=-1",
        "ts=x",
        "ts=",
        "partition=x",
        "partition=99999999999",
        "key=%ff",
        "Key=a",
        "payload=1",
    ] {
        publish(&hub, &format!("/publish/t?{bad}"), "1").await.is_error(400, "bad_request");
    }
    let named = publish(&hub, "/publish/t?wrong=1", "1").await.is_error(400, "bad_request");
    assert!(named["message"].as_str().unwrap().contains("wrong"), "{named}");
    publish(&hub, &format!("/publish/t?key={}", "k".repeat(1025)), "1").await.is_error(400, "bad_request");
    publish(&hub, "/publish/dlq.t", "1").await.is_error(403, "forbidden");
    publish(&hub, "/publish/T", "1").await.is_error(400, "bad_request");
}

#[tokio::test]
async fn a_body_may_not_be_too_large() {
    let mut setup = common::Setup::default();
    setup.gateway.max_body_bytes = 100_000;
    let hub = start_with(setup).await;
    let body = |size: usize| format!("\"{}\"", "x".repeat(size - 2));
    publish(&hub, "/publish/t", &body(100_000)).await.is(201);
    let error = publish(&hub, "/publish/t", &body(100_001)).await.is_error(413, "too_large");
    assert_eq!(error["limit"], 100_000);
    // Far more than the sockets hold: the answer must come through all the same.
    publish(&hub, "/publish/t", &body(20 << 20)).await.is_error(413, "too_large");
    // And without a length that could be looked at first.
    for (count, size) in [(40, 10_000), (1, 100_001)] {
        send_in_parts(&hub, count, size).await.is_error(413, "too_large");
    }
}

#[tokio::test]
async fn a_small_body_may_be_too_large_too() {
    let mut setup = common::Setup::default();
    setup.gateway.max_body_bytes = 100;
    let hub = start_with(setup).await;
    send_in_parts(&hub, 1, 100).await.is(201);
    send_in_parts(&hub, 10, 10).await.is(201);
    send_in_parts(&hub, 1, 101).await.is_error(413, "too_large");
    send_in_parts(&hub, 2, 51).await.is_error(413, "too_large");
}

/// Sends a number in parts, without saying how long it is.
async fn send_in_parts(hub: &Served, count: usize, size: usize) -> Answer {
    let parts = (0..count).map(move |_| Ok::<_, std::io::Error>(vec![b'1'; size]));
    let body = reqwest::Body::wrap_stream(futures::stream::iter(parts));
    common::send(hub.request(Method::POST, "/publish/t").body(body)).await
}
