//! The whole range as lines.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should panic")]

mod common;

use common::{Answer, start};
use futures::StreamExt;
use prombus_core::{Commit, ConfigChange, EventLog, Offset, Partition, TopicName};
use reqwest::Method;
use serde_json::Value;
use std::sync::Arc;

const EVENTS: &str = "/v1/topics/t/events";

fn payloads(answer: &Answer) -> Vec<i64> {
    let lines = answer.is(200).text.lines();
    lines.map(|line| serde_json::from_str::<Value>(line).unwrap()["payload"].as_i64().unwrap()).collect()
}

#[tokio::test]
async fn everything_comes_a_line_each() {
    let hub = start().await;
    hub.fill("t", 20_000).await;
    let answer = hub.export(EVENTS).await;
    assert_eq!(answer.header("content-type"), Some("application/x-ndjson"));
    assert!(answer.text.ends_with("}\n"));
    assert_eq!(payloads(&answer), (0..20_000).collect::<Vec<i64>>());
}

#[tokio::test]
async fn the_query_holds_here_too() {
    let hub = start().await;
    hub.fill("t", 3_000).await;
    assert_eq!(payloads(&hub.export(&format!("{EVENTS}?limit=5")).await), [0, 1, 2, 3, 4]);
    assert_eq!(payloads(&hub.export(&format!("{EVENTS}?limit=2500")).await).len(), 2_500);
    assert_eq!(payloads(&hub.export(&format!("{EVENTS}?limit=50000")).await).len(), 3_000);
    assert_eq!(payloads(&hub.export(&format!("{EVENTS}?key=k7")).await).len(), 300);
    assert_eq!(payloads(&hub.export(&format!("{EVENTS}?from=offset&offset=2999")).await), [2_999]);
    let filtered = hub.export(&format!("{EVENTS}?filter=event.payload+%3C+3&limit=2")).await;
    assert_eq!(payloads(&filtered), [0, 1]);
    assert_eq!(hub.export(&format!("{EVENTS}?from=latest")).await.is(200).text, "");
    let next = hub.get(&format!("{EVENTS}?limit=2990")).await.json()["next"].as_str().unwrap().to_owned();
    assert_eq!(payloads(&hub.export(&format!("{EVENTS}?cursor={next}")).await).len(), 10);
}

#[tokio::test]
async fn errors_that_come_first_are_answers() {
    let hub = start().await;
    hub.fill("t", 3).await;
    hub.export("/v1/topics/nobody/events").await.is_error(404, "not_found");
    hub.export(&format!("{EVENTS}?limit=0")).await.is_error(400, "bad_request");
    hub.export(&format!("{EVENTS}?filter=x")).await.is_error(400, "bad_filter");
    hub.export(&format!("{EVENTS}?from=afterId&afterId=0198c0de-0000-7000-8000-000000000001"))
        .await
        .is_error(404, "not_found");
}

#[tokio::test]
async fn all_partitions_are_exported() {
    let hub = start().await;
    hub.put("/v1/topics/t", r#"{"partitions":8}"#).await.is(201);
    hub.fill("t", 5_000).await;
    let mut all = payloads(&hub.export(EVENTS).await);
    all.sort_unstable();
    assert_eq!(all, (0..5_000).collect::<Vec<i64>>());
}

/// Fills the topic with more than all buffers between hub and client can hold.
async fn fill_largely(hub: &common::Served) -> usize {
    let event = format!(r#"{{"payload":"{}"}}"#, "x".repeat(60_000));
    let array = format!("[{}]", vec![event; 100].join(","));
    for _ in 0..20 {
        hub.post(EVENTS, &array).await.is(201);
    }
    20 * 100 * 60_000
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_that_cannot_be_finished_breaks_off() {
    let hub = start().await;
    fill_largely(&hub).await;
    let request = hub.request(Method::GET, EVENTS).header("accept", "application/x-ndjson");
    let mut body = request.send().await.unwrap().bytes_stream();
    body.next().await.unwrap().unwrap();
    let topic = TopicName::parse("t").unwrap();
    let trim = ConfigChange::Trim { topic, partition: Partition(0), before: Offset(1_999) };
    hub.store.commit(Arc::new(Commit { config: vec![trim], ..Commit::default() })).await.unwrap();
    let mut broken = false;
    while let Some(part) = body.next().await {
        broken |= part.is_err();
    }
    assert!(broken, "the client must see that something is missing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_costs_nothing_and_one_that_stays_gets_all() {
    let hub = start().await;
    let size = fill_largely(&hub).await;
    let request = || hub.request(Method::GET, EVENTS).header("accept", "application/x-ndjson");
    drop(request().send().await.unwrap());
    let answer = common::send(request()).await;
    assert!(answer.is(200).text.len() > size);
    assert_eq!(answer.text.lines().count(), 2_000);
    hub.stop().await;
}
