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
    hub.post(&format!("{EVENTS}?x=1"), r#"{"payload":1}"#).await.is_error(400, "bad_request");
    hub.post("/v1/topics/%ff/events", r#"{"payload":1}"#).await.is_error(400, "bad_request");
    hub.get(EVENTS).await.is_error(404, "not_found");
}

#[tokio::test]
async fn a_refusal_for_size_names_the_limit() {
    let limits = Limits { event_bytes: 2_000, commit_bytes: 5_000, ..Limits::default() };
    let hub = start_with(Setup { limits, ..Setup::default() }).await;
    let event = format!(r#"{{"payload":"{}"}}"#, "x".repeat(2_000));
    assert_eq!(hub.post(EVENTS, &event).await.is_error(413, "too_large")["limit"], 2_000);
}
