//! The whole range as lines.

use crate::common;
use crate::common::{Answer, start};
use futures::StreamExt;
use prombus_core::{Commit, ConfigChange, EventLogExt, Loss, Offset, Partition, TopicName};
use reqwest::{Method, RequestBuilder};
use serde_json::Value;
use std::sync::Arc;

const TOPIC: &str = "/v1/topics/t";
const EVENTS: &str = "/v1/topics/t/events";

fn payloads(answer: &Answer) -> Vec<i64> {
    let lines = answer.is(200).text.lines();
    lines.map(|line| serde_json::from_str::<Value>(line).unwrap()["payload"].as_i64().unwrap()).collect()
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

/// Fills the topic with more than all buffers between hub and client can hold.
async fn fill_largely(hub: &common::Served) -> usize {
    let text = "x".repeat(60_000);
    for batch in 0..20 {
        let event = |n| format!(r#"{{"key":"{}","payload":"{text}"}}"#, 100 * batch + n);
        let events: Vec<String> = (0..100).map(event).collect();
        hub.post(EVENTS, &format!("[{}]", events.join(","))).await.is(201);
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
    let trim = ConfigChange::Trim {
        topic: (&topic).into(),
        partition: Partition(0),
        before: Offset(1_999),
        loss: Loss::default(),
    };
    hub.store.commit(Arc::new(Commit { config: vec![trim], ..Commit::default() })).await.unwrap();
    let mut broken = false;
    while let Some(part) = body.next().await {
        broken |= part.is_err();
    }
    assert!(broken, "the client must see that something is missing");
}

/// Deletes the topic and makes it again, as large as it was.
async fn replace(hub: &common::Served) {
    hub.delete(TOPIC).await.is(204);
    hub.put(TOPIC, "{}").await.is(201);
    fill_largely(hub).await;
}

/// The outcome of an answer whose topic is replaced once it has begun, and whether it broke off.
async fn cut_short(hub: &common::Served, request: RequestBuilder) -> (Vec<u8>, bool) {
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), 200);
    let mut body = response.bytes_stream();
    let mut all = body.next().await.unwrap().unwrap().to_vec();
    replace(hub).await;
    loop {
        match body.next().await {
            None => return (all, false),
            Some(Err(_)) => return (all, true),
            Some(Ok(part)) => all.extend_from_slice(&part),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_breaks_off_when_another_topic_takes_the_name() {
    let hub = start().await;
    fill_largely(&hub).await;
    let export = |query: &str| {
        hub.request(Method::GET, &format!("{EVENTS}{query}")).header("accept", "application/x-ndjson")
    };
    let keys = serde_json::json!({ "keys": (0..1_000).map(|n| n.to_string()).collect::<Vec<_>>() });
    let latest = hub.request(Method::POST, "/v1/topics/t/keys").json(&keys);
    for request in [export(""), export("?filter=true"), latest] {
        let (_, broken) = cut_short(&hub, request).await;
        assert!(broken, "the client must see that something is missing");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_when_another_topic_takes_the_name() {
    let hub = start().await;
    fill_largely(&hub).await;
    let follow = || hub.request(Method::GET, EVENTS).header("accept", "text/event-stream");
    let (stream, broken) = cut_short(&hub, follow()).await;
    assert!(!broken, "a stream ends with the reason");
    let stream = String::from_utf8(stream).unwrap();
    let error = stream.rsplit_once("event: error\ndata: ").unwrap().1;
    assert_eq!(serde_json::from_str::<Value>(error).unwrap()["error"], "gone");
    assert!(stream.matches("\ndata: ").count() < 2_001, "nothing of the new topic is in it");
    let last = stream.rsplit_once("id: ").unwrap().1.lines().next().unwrap();
    common::send(follow().header("last-event-id", last)).await.is_error(410, "gone");
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
