//! Reading what was given up: `410` with the place where to go on, and nothing but that.

use crate::common::{self, Answer, Served, payloads, start};
use futures::StreamExt;
use prombus_core::{Commit, ConfigChange, EventLogExt, Loss, Offset, Partition, TopicName};
use prombus_fixtures::http::Api;
use prombus_fixtures::ws::Socket;
use reqwest::Method;
use serde_json::{Value, json};
use std::sync::Arc;

const EVENTS: &str = "/v1/topics/t/events";

fn topic() -> TopicName {
    TopicName::parse("t").unwrap()
}

async fn give_up(hub: &Served, change: ConfigChange) {
    hub.store.commit(Arc::new(Commit { config: vec![change], ..Commit::default() })).await.unwrap();
}

async fn trim(hub: &Served, partition: u32, before: u64) {
    let (partition, before) = (Partition(partition), Offset(before));
    give_up(hub, ConfigChange::Trim { topic: (&topic()).into(), partition, before, loss: Loss::default() })
        .await;
}

async fn discard(hub: &Served, offsets: impl IntoIterator<Item = u64>) {
    let offsets = Arc::new(offsets.into_iter().map(Offset).collect());
    let loss = Loss { bytes: 0, horizon_ts: Some(1) };
    let (topic, partition) = ((&topic()).into(), Partition(0));
    give_up(hub, ConfigChange::Discard { topic, partition, offsets, loss }).await;
}

/// It is gone, and the answer says where to go on.
#[track_caller]
fn says_where(answer: &Answer, partition: u32, first: u64) {
    let gone = answer.is_error(410, "gone");
    assert_eq!((&gone["partition"], &gone["first"]), (&json!(partition), &json!(first)), "{gone}");
    let message = gone["message"].as_str().unwrap();
    assert!(message.contains(&format!("start at offset {first}")), "{gone}");
}

async fn page(hub: &Served, query: &str) -> Answer {
    hub.get(&format!("{EVENTS}?{query}")).await
}

async fn follow(hub: &Served, query: &str, last: Option<&str>) -> reqwest::Response {
    let request =
        hub.request(Method::GET, &format!("{EVENTS}?{query}")).header("accept", "text/event-stream");
    let request = last.into_iter().fold(request, |request, last| request.header("last-event-id", last));
    request.send().await.unwrap()
}

async fn answer_of(response: reqwest::Response) -> Answer {
    let (status, headers) = (response.status(), response.headers().clone());
    Answer { status, headers, text: response.text().await.unwrap() }
}

/// The messages of a stream with data, the first of them.
async fn messages(response: reqwest::Response, count: usize) -> Vec<(String, Value)> {
    assert_eq!(response.status(), 200);
    let (mut body, mut text, mut all) = (response.bytes_stream(), String::new(), Vec::new());
    while all.len() < count {
        text.push_str(std::str::from_utf8(&body.next().await.expect("it goes on").unwrap()).unwrap());
        while let Some((message, rest)) = text.split_once("\n\n") {
            let field = |name: &str| message.lines().find_map(|line| line.strip_prefix(name));
            if let Some(data) = field("data: ") {
                let id = field("id: ").unwrap_or_default().to_owned();
                all.push((id, serde_json::from_str(data).unwrap()));
            }
            text = rest.to_owned();
        }
    }
    all
}

#[tokio::test]
async fn pages_and_exports_below_the_first_offset_say_where_to_go_on() {
    let hub = start().await;
    hub.put("/v1/topics/t", r#"{"partitions":2}"#).await.is(201);
    hub.fill("t", 40).await;
    let next = page(&hub, "limit=2&partition=1").await.json()["next"].as_str().unwrap().to_owned();
    let of_key = hub.get(&format!("{EVENTS}?partition=1")).await.json()["events"][0]["key"].clone();
    let of_key = format!("partition=1&key={}", of_key.as_str().unwrap());
    let next_of_key =
        page(&hub, &format!("{of_key}&limit=1")).await.json()["next"].as_str().unwrap().to_owned();
    trim(&hub, 1, 5).await;
    for query in [
        "partition=1&from=offset&offset=4".to_owned(),
        format!("{of_key}&from=offset&offset=4"),
        "partition=1&from=offset&offset=0&filter=true".to_owned(),
        format!("cursor={next}"),
        format!("cursor={next_of_key}"),
    ] {
        says_where(&page(&hub, &query).await, 1, 5);
        says_where(&hub.export(&format!("{EVENTS}?{query}")).await, 1, 5);
    }
    for query in ["partition=1", "partition=1&from=ts&ts=0", "partition=1&from=offset&offset=5"] {
        let page = page(&hub, query).await.is(200).json();
        assert_eq!(page["events"][0]["offset"], 5, "{query}");
    }
    page(&hub, "partition=0&from=offset&offset=0").await.is(200);
    assert_eq!(page(&hub, &of_key).await.is(200).json()["next"], Value::Null);
}

#[tokio::test]
async fn a_reader_that_is_not_overtaken_notices_nothing() {
    let hub = start().await;
    hub.fill("t", 40).await;
    let first = page(&hub, "limit=20").await.json();
    let of_key = page(&hub, "limit=2&key=k9").await.json();
    trim(&hub, 0, 20).await;
    discard(&hub, 21..39).await;
    let next = |page: &Value| format!("cursor={}", page["next"].as_str().unwrap());
    assert_eq!(payloads(&page(&hub, &next(&first)).await.is(200).json()), [20, 39]);
    assert_eq!(payloads(&page(&hub, &next(&of_key)).await.is(200).json()), [39]);
    assert_eq!(payloads(&page(&hub, "from=offset&offset=25").await.is(200).json()), [39], "a hole is no end");
    let lines = hub.export(EVENTS).await;
    assert_eq!(lines.is(200).text.lines().count(), 2);
}

#[tokio::test]
async fn after_an_event_that_is_gone() {
    let hub = start().await;
    hub.fill("t", 10).await;
    let all = page(&hub, "").await.json();
    let after = |n: usize| format!("from=afterId&afterId={}", all["events"][n]["id"].as_str().unwrap());
    let never = "from=afterId&afterId=0198c0de-0000-7000-8000-000000000001";
    page(&hub, never).await.is_error(404, "not_found");
    discard(&hub, [8]).await;
    says_where(&page(&hub, &after(8)).await, 0, 0);
    trim(&hub, 0, 5).await;
    for query in [after(3), format!("{}&partition=0", after(3)), format!("{}&key=k3", after(3))] {
        says_where(&page(&hub, &query).await, 0, 5);
    }
    says_where(&answer_of(follow(&hub, &after(3), None).await).await, 0, 5);
    assert_eq!(payloads(&page(&hub, &after(5)).await.is(200).json()), [6, 7, 9]);
    let id = all["events"][3]["id"].as_str().unwrap();
    let from = format!(r#"{{"from":"afterId","afterId":"{id}"}}"#);
    says_where(&hub.put("/v1/topics/t/groups/g", &from).await, 0, 5);
    hub.put("/v1/topics/t/groups/g", r#"{"from":"earliest"}"#).await.is(201);
    says_where(&hub.put("/v1/topics/t/groups/g/cursor", &from).await, 0, 5);
    hub.get(&format!("{EVENTS}/{id}")).await.is_error(404, "not_found");
}

#[tokio::test]
async fn a_stream_that_is_resumed_where_nothing_is_kept() {
    let hub = start().await;
    hub.fill("t", 10).await;
    let seen = messages(follow(&hub, "", None).await, 3).await;
    trim(&hub, 0, 5).await;
    for query in ["", "from=earliest", "from=latest", "from=ts&ts=0"] {
        says_where(&answer_of(follow(&hub, query, Some(&seen[1].0)).await).await, 0, 5);
    }
    for query in ["", "from=ts&ts=0", "from=offset&offset=5"] {
        assert_eq!(messages(follow(&hub, query, None).await, 1).await[0].1["payload"], 5, "{query}");
    }
    says_where(&answer_of(follow(&hub, "from=offset&offset=4", None).await).await, 0, 5);
    let topics = |last: &str| {
        let request = hub.request(Method::GET, "/v1/events?topics=t&from=earliest");
        request.header("accept", "text/event-stream").header("last-event-id", last.to_owned())
    };
    let fresh = topics("").send().await.unwrap();
    let seen = messages(fresh, 1).await;
    trim(&hub, 0, 8).await;
    says_where(&common::send(topics(&seen[0].0)).await, 0, 8);
}

#[tokio::test]
async fn a_stream_that_is_overtaken_ends_with_the_reason() {
    let hub = start().await;
    // More than the stream takes before its client reads.
    let large = format!(r#"{{"payload":"{}"}}"#, "x".repeat(900_000));
    for _ in 0..40 {
        hub.post(EVENTS, &large).await.is(201);
    }
    let stream = follow(&hub, "", None).await;
    trim(&hub, 0, 39).await;
    let text = answer_of(stream).await.text;
    let error: Value = serde_json::from_str(text.rsplit_once("event: error\ndata: ").unwrap().1).unwrap();
    assert_eq!(
        (&error["error"], &error["partition"], &error["first"]),
        (&json!("gone"), &json!(0), &json!(39))
    );
}

#[tokio::test]
async fn the_status_of_a_group_and_the_metrics_say_what_it_lost() {
    let hub = start().await;
    hub.fill("t", 10).await;
    hub.put("/v1/topics/t/groups/g", r#"{"from":"earliest"}"#).await.is(201);
    trim(&hub, 0, 4).await;
    let status = hub.get("/v1/topics/t/groups/g").await.is(200).json();
    assert_eq!((&status["lost"], &status["partitions"][0]["lost"]), (&json!(4), &json!(4)), "{status}");
    assert_eq!(status["partitions"][0]["next"], 4);
    let metrics = hub.get("/metrics").await.text;
    let line = r#"events_lost_to_retention_total{topic="t",group="g"} 4"#;
    assert!(metrics.lines().any(|one| one == line), "{metrics}");
}

#[tokio::test]
async fn a_rebuild_that_lacks_history_is_a_conflict() {
    let hub = start().await;
    hub.fill("t", 10).await;
    hub.put(
        "/v1/projections/p",
        r#"{"topic":"t","collection":"c","key":"event.key","map":"{'n': event.payload}"}"#,
    )
    .await
    .is(201);
    trim(&hub, 0, 4).await;
    let refused = hub.post("/v1/projections/p/rebuild", "").await.is_error(409, "gone");
    assert_eq!((&refused["partition"], &refused["first"]), (&json!(0), &json!(4)));
    assert!(refused["message"].as_str().unwrap().contains("partial"), "{refused}");
    hub.post("/v1/projections/p/rebuild", r#"{"partial":true}"#).await.is(202);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_after_an_event_that_is_gone_says_where_to_go_on() {
    let hub = start().await;
    hub.fill("t", 10).await;
    let id = page(&hub, "").await.json()["events"][3]["id"].clone();
    trim(&hub, 0, 5).await;
    let address = hub.address.to_string();
    let talk = tokio::task::spawn_blocking(move || {
        let mut socket = Socket::open(&Api { address });
        let subscribe = |from: Value| json!({"op": "SUBSCRIBE", "topic": "t", "group": "g", "opts": from});
        let gone = socket.fails(subscribe(json!({"from": "afterId", "afterId": id})), "gone");
        assert_eq!((&gone["partition"], &gone["first"]), (&json!(0), &json!(5)), "{gone}");
        assert_eq!(socket.ask(subscribe(json!({"from": "ts", "ts": 0})))["op"], "OK");
        assert_eq!(socket.next_frame()["event"]["offset"], 5, "a time before it starts at what is kept");
    });
    talk.await.unwrap();
}
