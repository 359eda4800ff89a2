//! `POST /v1/topics/{topic}/events` with one object or an array.

use crate::common;
use crate::common::{Setup, start, start_with};
use prombus_engine::Limits;
use reqwest::Method;

const EVENTS: &str = "/v1/topics/a.b/events";
const ID: &str = "0198c0de-0000-7000-8000-000000000001";
const OTHER: &str = "0198c0de-0000-7000-8000-000000000002";

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
