//! `POST /v1/topics/{topic}/events` with one object or an array.

use crate::common;
use crate::common::{Setup, start, start_with};
use prombus_engine::Limits;
use prombus_wire::{Published, PublishedBatch};
use reqwest::Method;
use serde_json::json;

const EVENTS: &str = "/v1/topics/a.b/events";
const ID: &str = "0198c0de-0000-7000-8000-000000000001";
const OTHER: &str = "0198c0de-0000-7000-8000-000000000002";

#[tokio::test]
async fn one_event_is_answered_with_its_position() {
    let hub = start().await;
    let first = hub.post(EVENTS, r#"{"payload":{"a":1}}"#).await;
    let first: Published = serde_json::from_str(&first.is(201).text).unwrap();
    assert_eq!((first.topic.as_str(), first.partition, first.offset), ("a.b", 0, 0));
    assert_eq!((first.durability.as_str(), first.duplicate), ("sync", false));
    let second = hub.post(EVENTS, r#"{"payload":null}"#).await;
    let second: Published = serde_json::from_str(&second.is(201).text).unwrap();
    assert_eq!(second.offset, 1);
    assert!(second.id > first.id);
}

#[tokio::test]
async fn an_array_is_answered_event_by_event() {
    let hub = start().await;
    let answer = hub.post(EVENTS, r#" [{"payload":1},{"payload":2,"key":"k"},{"payload":3}] "#).await;
    let batch: PublishedBatch = serde_json::from_str(&answer.is(201).text).unwrap();
    assert_eq!(batch.count, 3);
    assert_eq!(batch.events.iter().map(|event| event.offset).collect::<Vec<_>>(), [0, 1, 2]);
}

#[tokio::test]
async fn all_fields_come_back_as_they_were_sent() {
    let hub = start().await;
    let body = format!(
        r#"{{ "payload" : {{ "n" : 1.10 , "big":123456789012345678901234567890, "e":"\u00e9 \/" }},
            "key":"k\u00f6", "id":"{}", "ts":5, "sid":"s", "headers":{{"x-a":"b"}}, "tags":["t", "u"],
            "caused_by":["c"] }}"#,
        ID.to_uppercase()
    );
    hub.post(EVENTS, &body).await.is(201);
    let event = hub.get(&format!("{EVENTS}/{ID}")).await;
    let text = &event.is(200).text;
    assert!(
        text.contains(r#""payload":{"n":1.10,"big":123456789012345678901234567890,"e":"\u00e9 \/"}"#),
        "{text}"
    );
    let event = event.json();
    assert_eq!(event["id"], ID);
    assert_eq!(event["ts"], 5);
    assert!(event["recorded_ts"].as_u64().unwrap() > 5);
    assert_eq!(event["key"], "kö");
    assert_eq!((&event["sid"], &event["headers"]), (&json!("s"), &json!({"x-a": "b"})));
    assert_eq!((&event["tags"], &event["caused_by"]), (&json!(["t", "u"]), &json!(["c"])));
}

#[tokio::test]
async fn absent_fields_stay_absent() {
    let hub = start().await;
    hub.post(EVENTS, r#"{"payload":1,"key":null,"sid":null,"headers":null,"tags":null,"expect":null}"#)
        .await
        .is(201);
    let page = hub.get(EVENTS).await.json();
    let event = page["events"][0].as_object().unwrap();
    let mut names: Vec<&str> = event.keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["id", "offset", "partition", "payload", "topic", "ts"]);
}

#[tokio::test]
async fn the_same_id_again_is_a_duplicate() {
    let hub = start().await;
    let body = format!(r#"{{"payload":{{"a":1}},"id":"{ID}"}}"#);
    let first = hub.post(EVENTS, &body).await.is(201).json();
    let again =
        hub.post(EVENTS, &format!(r#"{{"payload": {{ "a" : 1 }},"id":"{ID}"}}"#)).await.is(200).json();
    assert_eq!(again["duplicate"], true);
    assert_eq!((&again["offset"], &again["ts"]), (&first["offset"], &first["ts"]));
    let conflict = hub.post(EVENTS, &format!(r#"{{"payload":{{"a":2}},"id":"{ID}"}}"#)).await;
    let conflict = conflict.is_error(409, "id_conflict");
    assert_eq!(conflict["id"], ID);
    assert!(conflict.get("index").is_none());
    assert_eq!(hub.get(EVENTS).await.json()["count"], 1);
}

#[tokio::test]
async fn an_array_of_duplicates_is_200_and_a_mixed_one_201() {
    let hub = start().await;
    let both = format!(r#"[{{"payload":1,"id":"{ID}"}},{{"payload":1,"id":"{ID}"}}]"#);
    let first = hub.post(EVENTS, &both).await.is(201).json();
    assert_eq!(
        (&first["events"][0]["duplicate"], &first["events"][1]["duplicate"]),
        (&json!(false), &json!(true))
    );
    hub.post(EVENTS, &both).await.is(200);
    let mixed = format!(r#"[{{"payload":1,"id":"{ID}"}},{{"payload":2}}]"#);
    hub.post(EVENTS, &mixed).await.is(201);
}

#[tokio::test]
async fn expectations() {
    let hub = start().await;
    let publish = |expect: &str| {
        let body = format!(r#"{{"payload":1,"key":"k","expect":{{"last_id":{expect}}}}}"#);
        let hub = &hub;
        async move { hub.post(EVENTS, &body).await }
    };
    let first = publish("null").await.is(201).json()["id"].as_str().unwrap().to_owned();
    let failed = publish("null").await.is_error(412, "expectation_failed");
    assert_eq!(failed["actual"], json!({"last_id": first}));
    publish(&format!("\"{first}\"")).await.is(201);
    publish(&format!("\"{first}\"")).await.is_error(412, "expectation_failed");
    let fresh =
        hub.post(EVENTS, &format!(r#"{{"payload":1,"key":"new","expect":{{"last_id":"{ID}"}}}}"#)).await;
    assert_eq!(fresh.is_error(412, "expectation_failed")["actual"], json!({"last_id": null}));
    hub.post(EVENTS, r#"{"payload":1,"expect":{"last_id":null}}"#).await.is_error(400, "bad_request");
}

#[tokio::test]
async fn an_expectation_sees_the_earlier_events_of_its_array() {
    let hub = start().await;
    let chain = format!(
        r#"[{{"payload":1,"key":"k","id":"{ID}","expect":{{"last_id":null}}}},{{"payload":2,"key":"k","expect":{{"last_id":"{ID}"}}}}]"#
    );
    hub.post(EVENTS, &chain).await.is(201);
}

#[tokio::test]
async fn an_array_is_all_or_nothing_and_names_the_culprit() {
    let hub = start().await;
    hub.post(EVENTS, &format!(r#"{{"payload":0,"id":"{ID}"}}"#)).await.is(201);
    for (bad, status, code) in [
        (format!(r#"{{"payload":9,"id":"{ID}"}}"#), 409, "id_conflict"),
        (format!(r#"{{"payload":9,"key":"k","expect":{{"last_id":"{OTHER}"}}}}"#), 412, "expectation_failed"),
        (r#"{"payload":9,"headers":{"X":"1"}}"#.to_owned(), 400, "bad_request"),
        (r#"{"payload":9,"key":"k","partition":0}"#.to_owned(), 400, "bad_request"),
        (r#"{"payload":9,"partition":1}"#.to_owned(), 400, "bad_request"),
        (r#"{"payload":9,"ts":99999999999999}"#.to_owned(), 400, "bad_request"),
        (r#"{"payload":9,"id":"x"}"#.to_owned(), 400, "bad_request"),
        (r#"{"payload":9,"surprise":1}"#.to_owned(), 400, "bad_request"),
        (r#"{"key":"k"}"#.to_owned(), 400, "bad_request"),
        ("[1]".to_owned(), 400, "bad_request"),
        (format!(r#"{{"payload":"{}"}}"#, "x".repeat(1 << 20)), 413, "too_large"),
    ] {
        let answer = hub.post(EVENTS, &format!(r#"[{{"payload":1}},{{"payload":2}},{bad}]"#)).await;
        assert_eq!(answer.is_error(status, code)["index"], 2, "{bad:.80}");
    }
    assert_eq!(hub.get(EVENTS).await.json()["count"], 1);
}

#[tokio::test]
async fn bad_bodies() {
    let hub = start().await;
    for bad in [
        "",
        " ",
        "{",
        "[",
        "{\"payload\":}",
        "{\"payload\":1} x",
        "[{\"payload\":1},]",
        "nul",
        "{'payload':1}",
    ] {
        hub.post(EVENTS, bad).await.is_error(400, "bad_json");
    }
    for bad in [
        "1",
        "null",
        "\"a\"",
        "{}",
        "[]",
        "[1]",
        "[null]",
        r#"{"payload":1,"payload":2}"#,
        r#"{"payload":1,"ts":-1}"#,
        r#"{"payload":1,"ts":1.5}"#,
        r#"{"payload":1,"ts":"5"}"#,
        r#"{"payload":1,"key":5}"#,
        r#"{"payload":1,"id":5}"#,
        r#"{"payload":1,"id":"0198c0de000070008000000000000001"}"#,
        r#"{"payload":1,"sid":5}"#,
        r#"{"payload":1,"tags":"a"}"#,
        r#"{"payload":1,"tags":[1]}"#,
        r#"{"payload":1,"caused_by":{}}"#,
        r#"{"payload":1,"headers":[]}"#,
        r#"{"payload":1,"headers":{"x-a":1}}"#,
        r#"{"payload":1,"partition":-1}"#,
        r#"{"payload":1,"expect":{}}"#,
        r#"{"payload":1,"expect":5}"#,
        r#"{"payload":1,"key":"k","expect":{"last_id":"x"}}"#,
        r#"{"payload":1,"offset":5}"#,
    ] {
        hub.post(EVENTS, bad).await.is_error(400, "bad_request");
    }
    let not_utf8 = hub.request(Method::POST, EVENTS).body(b"{\"payload\":\"\xff\"}".to_vec());
    common::send(not_utf8).await.is_error(400, "bad_json");
    let not_utf8 = hub.request(Method::POST, EVENTS).body(b"[{\"payload\":\"\xff\"}]".to_vec());
    common::send(not_utf8).await.is_error(400, "bad_json");
    hub.get(EVENTS).await.is_error(404, "not_found");
}

#[tokio::test]
async fn payloads_may_nest_128_deep() {
    let hub = start().await;
    let nested = |depth: usize| format!(r#"{{"payload":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
    hub.post(EVENTS, &nested(128)).await.is(201);
    hub.post(EVENTS, &nested(129)).await.is_error(400, "bad_request");
    hub.post(EVENTS, &nested(100_000)).await.is_error(400, "bad_request");
}

#[tokio::test]
async fn content_types() {
    let hub = start().await;
    let post = |kind: Option<&str>| {
        let request = hub.request(Method::POST, EVENTS).body(r#"{"payload":1}"#);
        common::send(match kind {
            Some(kind) => request.header("content-type", kind),
            None => request,
        })
    };
    post(None).await.is(201);
    post(Some("application/json")).await.is(201);
    post(Some("application/json; charset=utf-8")).await.is(201);
    post(Some("application/x-ndjson")).await.is(201);
    for bad in ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin1"] {
        post(Some(bad)).await.is_error(415, "bad_request");
    }
}

#[tokio::test]
async fn topics_that_cannot_be_published_to() {
    let hub = start().await;
    let body = r#"{"payload":1}"#;
    hub.post("/v1/topics/dlq.a/events", body).await.is_error(403, "forbidden");
    hub.post("/v1/topics/system.a/events", body).await.is_error(403, "forbidden");
    hub.post("/v1/topics/A/events", body).await.is_error(400, "bad_request");
    hub.post("/v1/topics/a..b/events", body).await.is_error(400, "bad_request");
    hub.post("/v1/topics/a%2Fb/events", body).await.is_error(400, "bad_request");
    hub.post("/v1/topics/%ff/events", body).await.is_error(400, "bad_request");
    hub.post(&format!("{EVENTS}?x=1"), body).await.is_error(400, "bad_request");
    let strict = start_with(Setup { auto_create: false, ..Setup::default() }).await;
    strict.post(EVENTS, body).await.is_error(404, "not_found");
}

#[tokio::test]
async fn sizes_are_limited() {
    let limits = Limits { event_bytes: 2_000, commit_bytes: 5_000, topics: 1, ..Limits::default() };
    let hub = start_with(Setup { limits, ..Setup::default() }).await;
    let event = |size: usize| format!(r#"{{"payload":"{}"}}"#, "x".repeat(size));
    hub.post(EVENTS, &event(1_900)).await.is(201);
    let error = hub.post(EVENTS, &event(2_000)).await.is_error(413, "too_large");
    assert_eq!(error["limit"], 2_000);
    let array = |count: usize| format!("[{}]", vec![event(1_000); count].join(","));
    hub.post(EVENTS, &array(4)).await.is(201);
    hub.post(EVENTS, &array(5)).await.is_error(413, "too_large");
    hub.post("/v1/topics/other/events", &event(1)).await.is_error(413, "too_large");
}

#[tokio::test]
async fn the_topic_says_what_is_waited_for() {
    let hub = start().await;
    hub.put("/v1/topics/a.b", r#"{"durability":"interval"}"#).await.is(201);
    assert_eq!(hub.post(EVENTS, r#"{"payload":1}"#).await.json()["durability"], "interval");
    assert_eq!(hub.post(EVENTS, r#"[{"payload":1}]"#).await.json()["events"][0]["durability"], "interval");
}

#[tokio::test]
async fn of_two_conditional_publishes_at_once_one_wins() {
    let hub = start().await;
    hub.post(EVENTS, r#"{"payload":0,"key":"other"}"#).await.is(201);
    let body = r#"{"payload":1,"key":"k","expect":{"last_id":null}}"#;
    let answers = futures::future::join_all((0..16).map(|_| hub.post(EVENTS, body))).await;
    let won = answers.iter().filter(|answer| answer.status == 201).count();
    let lost = answers.iter().filter(|answer| answer.status == 412).count();
    assert_eq!((won, lost), (1, 15));
}

#[tokio::test]
async fn of_the_same_id_at_once_there_is_one_event() {
    let hub = start().await;
    let body = format!(r#"{{"payload":1,"id":"{ID}"}}"#);
    let answers = futures::future::join_all((0..16).map(|_| hub.post(EVENTS, &body))).await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 201).count(), 1);
    assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 15);
    assert_eq!(hub.get(EVENTS).await.json()["count"], 1);
}
