//! `POST /publish/{topic}`: the body is the payload.

use crate::common;
use crate::common::{Answer, Served, start, start_with};
use reqwest::Method;

async fn publish(hub: &Served, path: &str, body: &str) -> Answer {
    common::send(hub.request(Method::POST, path).body(body.to_owned())).await
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
