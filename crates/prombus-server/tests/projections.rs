//! Projections over HTTP.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should panic")]

mod common;

use common::{as_one_who, guarded, send, start, start_with};
use reqwest::Method;
use serde_json::json;

const P: &str = "/v1/projections/p";

#[tokio::test]
async fn where_there_are_none() {
    let hub = start().await;
    assert_eq!(hub.get("/v1/projections").await.is(200).json(), json!({"projections": []}));
    hub.get(P).await.is_error(404, "not_found");
    hub.delete(P).await.is_error(404, "not_found");
    hub.post(&format!("{P}/rebuild"), "").await.is_error(404, "not_found");
    assert_eq!(hub.get("/ops").await.is(200).json()["projections"], json!([]));
    let metrics = hub.get("/metrics").await;
    assert!(metrics.text.contains("# TYPE projection_lag_events gauge\n"), "{}", metrics.text);
}

#[tokio::test]
async fn definitions_that_make_no_sense() {
    let hub = start().await;
    for (body, named) in [
        (r#"{"collection":"c"}"#, "topic"),
        (r#"{"topic":"t","collection":"c","feilds":["a"]}"#, "feilds"),
        (r#"{"topic":"t","collection":["c"]}"#, "collection: "),
        (r#"{"topic":"t","write":[{"collection":"c","key":"k","inc":{"n":1}}]}"#, "write[0].inc.n: "),
        (r#"{"topic":"t","collection":"c","name":"q"}"#, "name: "),
        (r#"{"topic":"t","topic":"t","collection":"c"}"#, "topic"),
        (r#"[]"#, "object"),
    ] {
        let error = hub.put(P, body).await.is_error(400, "bad_request");
        assert!(error["message"].as_str().unwrap().contains(named), "{body}: {error}");
    }
    hub.put(P, "").await.is_error(400, "bad_json");
    hub.put(P, "{").await.is_error(400, "bad_json");
    hub.put(&format!("{P}?x=1"), r#"{"topic":"t","collection":"c"}"#).await.is_error(400, "bad_request");
    hub.post(&format!("{P}/rebuild"), r#"{"partly":true}"#).await.is_error(400, "bad_request");
    hub.post(&format!("{P}/rebuild"), r#"{"partial":1}"#).await.is_error(400, "bad_request");
}

#[tokio::test]
async fn they_are_set_up_by_those_who_may() {
    let hub =
        start_with(guarded(&["read:** publish:** subscribe:**", "admin:t", "admin:c", "admin:*"])).await;
    let ask = |may: &str, method: Method, path: &str| {
        let body = r#"{"topic":"t","collection":"c","changefeed":"feed"}"#;
        let request =
            as_one_who(may, hub.request(method.clone(), path)).header("content-type", "application/json");
        send(if method == Method::PUT { request.body(body) } else { request })
    };
    let nobody = "read:** publish:** subscribe:**";
    for (method, path) in [
        (Method::GET, "/v1/projections"),
        (Method::GET, P),
        (Method::PUT, P),
        (Method::DELETE, P),
        (Method::POST, "/v1/projections/p/rebuild"),
    ] {
        ask(nobody, method.clone(), path).await.is_error(403, "forbidden");
        send(hub.request(method, path)).await.is_error(401, "unauthorized");
    }
    ask("admin:t", Method::PUT, P).await.is_error(403, "forbidden");
    ask("admin:c", Method::PUT, P).await.is_error(403, "forbidden");
    let feed = ask("admin:*", Method::PUT, P).await.is_error(403, "forbidden");
    assert!(feed["message"].as_str().unwrap().contains("publish on feed"), "{feed}");
    ask("admin:t", Method::GET, "/v1/projections").await.is(200);
}
