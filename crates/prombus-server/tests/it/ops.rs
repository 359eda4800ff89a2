//! How the hub is doing, and requests that lead nowhere.

use crate::common;
use crate::common::{Setup, as_one_who, send, start, start_closed, start_with};
use prombus_core::EventLog;
use prombus_server::{AuthOptions, GatewayOptions, Policy, Rules, Secret, StaticToken};
use reqwest::Method;
use serde_json::json;

#[tokio::test]
async fn a_gateway_without_a_hub_is_alive_but_not_ready() {
    let hub = start_closed(GatewayOptions { version: "1.2.3", ..GatewayOptions::default() }).await;
    assert_eq!(hub.get("/healthz").await.is(200).json(), json!({"status": "ok"}));
    let not_ready = hub.get("/readyz").await;
    not_ready.is_error(503, "unavailable");
    assert_eq!(not_ready.header("retry-after"), Some("1"));
    assert!(hub.get("/metrics").await.is(200).text.contains("build_info{version=\"1.2.3\"} 1\n"));
    let one = r#"{"payload":1}"#;
    for path in ["/v1/topics", "/v1/topics/t", "/v1/topics/t/events", "/v1/topics/t/keys/k"] {
        hub.get(path).await.is_error(503, "unavailable");
    }
    hub.post("/v1/topics/t/events", one).await.is_error(503, "unavailable");
    hub.post("/v1/topics/t/events", "[{\"payload\":1}]").await.is_error(503, "unavailable");
    hub.lines("/v1/topics/t/events", one).await.is_error(503, "unavailable");
    hub.post("/publish/t", "1").await.is_error(503, "unavailable");
    hub.put("/v1/topics/t", "").await.is_error(503, "unavailable");
    hub.delete("/v1/topics/t").await.is_error(503, "unavailable");
}

#[tokio::test]
async fn a_store_that_has_failed_is_not_ready_but_readable() {
    let hub = start().await;
    hub.fill("t", 3).await;
    assert_eq!(hub.get("/readyz").await.is(200).json(), json!({"status": "ready"}));
    hub.store.close().await;
    let error = hub.get("/readyz").await.is_error(503, "unavailable");
    assert!(error["message"].as_str().unwrap().contains("closed"), "{error}");
    let refused = hub.post("/v1/topics/t/events", r#"{"payload":1}"#).await;
    refused.is_error(503, "unavailable");
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(hub.get("/v1/topics/t/events").await.is(200).json()["count"], 3);
    hub.get("/healthz").await.is(200);
}

#[tokio::test]
async fn what_is_counted() {
    let hub = start().await;
    hub.fill("t", 25).await;
    let id = r#"{"payload":1,"id":"0198c0de-0000-7000-8000-000000000001"}"#;
    hub.post("/v1/topics/u/events", id).await.is(201);
    hub.post("/v1/topics/u/events", id).await.is(200);
    hub.post("/v1/topics/u/events", "{").await.is(400);
    hub.lines("/v1/topics/u/events", "{\"payload\":1}\n{\"payload\":2}\n").await.is(201);
    common::send(hub.request(Method::POST, "/publish/u").body("1")).await.is(201);
    hub.get("/nowhere").await.is(404);
    let metrics = hub.get("/metrics").await;
    assert!(metrics.header("content-type").unwrap().starts_with("text/plain; version=0.0.4"));
    for line in [
        "events_published_total{topic=\"t\"} 25",
        "events_published_total{topic=\"u\"} 4",
        "http_requests_total{route=\"/v1/topics/{topic}/events\",status=\"2xx\"} 4",
        "http_requests_total{route=\"/v1/topics/{topic}/events\",status=\"4xx\"} 1",
        "http_requests_total{route=\"/publish/{topic}\",status=\"2xx\"} 1",
        "http_requests_total{route=\"none\",status=\"4xx\"} 1",
        "# TYPE store_flush_duration_ms histogram",
        "store_disk_free_bytes 0",
    ] {
        assert!(metrics.text.lines().any(|l| l == line), "{line}\n{}", metrics.text);
    }
    hub.delete("/v1/topics/u").await.is(204);
    assert!(!hub.get("/metrics").await.text.contains("topic=\"u\""));
}

#[tokio::test]
async fn what_the_hub_publishes_itself_does_not_count_as_published() {
    let hub = start().await;
    hub.put("/v1/collections/c", r#"{"changefeed":"c.changed"}"#).await.is(201);
    let commit =
        r#"{"writes":[{"collection":"c","key":"k","set":{}}],"publish":[{"topic":"t","payload":1}]}"#;
    hub.post("/v1/commit", commit).await.is(200);
    let pull = r#"{"from":"earliest","maxAttempts":1}"#;
    let pulled = hub.post("/v1/topics/t/groups/g/pull", pull).await.is(200).json();
    let lease = pulled["deliveries"][0]["ctx"]["lease"].as_str().unwrap();
    let nack = json!({"nack": [{"lease": lease, "reason": "broken"}]}).to_string();
    hub.post("/v1/topics/t/groups/g/ack", &nack).await.is(200);
    assert_eq!(hub.get("/v1/topics/dlq.t/events").await.is(200).json()["count"], 1);
    assert_eq!(hub.get("/v1/topics/c.changed/events").await.is(200).json()["count"], 1);
    let metrics = hub.get("/metrics").await.text;
    let published: Vec<_> = metrics.lines().filter(|line| line.contains("events_published_total")).collect();
    let help = "# HELP events_published_total Events published by clients, excluding duplicates.";
    let kind = "# TYPE events_published_total counter";
    assert_eq!(published, [help, kind, "events_published_total{topic=\"t\"} 1"], "{metrics}");
    assert!(metrics.contains("events_dead_lettered_total{topic=\"t\",group=\"g\"} 1"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_told_of_many_groups_is_bounded() {
    const GROUPS: usize = 12;
    let hub = start().await;
    hub.put("/v1/topics/wide", r#"{"partitions":1024}"#).await.is(201);
    for group in 0..GROUPS {
        let options = r#"{"from":"earliest"}"#;
        hub.put(&format!("/v1/topics/wide/groups/g{group:02}"), options).await.is(201);
    }
    hub.put("/v1/topics/narrow/groups/g00", "{}").await.is(201);
    hub.fill("wide", 3_000).await;
    let pulled =
        hub.post("/v1/topics/wide/groups/g11/pull", r#"{"max":7,"member":"m"}"#).await.is(200).json();
    let held = json!(pulled["deliveries"].as_array().unwrap().len());

    let ops = hub.get("/ops").await.is(200).json();
    let groups = ops["groups"].as_array().unwrap();
    assert_eq!(groups.len(), GROUPS + 1);
    let rows: usize = groups.iter().filter_map(|group| group["partitions"].as_array()).map(Vec::len).sum();
    assert!((1_024..=4_096).contains(&rows), "{rows} partitions are shown");
    assert_eq!(groups[0]["group"], "g00");
    assert_eq!(groups[0]["topic"], "narrow");
    for group in &groups[1..] {
        assert_eq!(group["lag"], 3_000, "{}", group["group"]);
        assert_eq!(group["truncated"] == true, group["partitions"].is_null());
    }
    let last = &groups[GROUPS];
    assert_eq!((&last["truncated"], &last["in_flight"]), (&json!(true), &held));
    assert_eq!((&last["member_count"], last.get("members")), (&json!(1), None));

    let narrowed = hub.get("/ops?topic=wide&group=g11").await.is(200).json();
    assert_eq!(narrowed["topics"].as_array().unwrap().len(), 1);
    let groups = narrowed["groups"].as_array().unwrap();
    assert_eq!(groups.len(), 1);
    assert_eq!(groups[0]["partitions"].as_array().unwrap().len(), 1_024);
    assert!(groups[0].get("truncated").is_none());
    assert_eq!(hub.get("/ops?group=g00").await.is(200).json()["groups"].as_array().unwrap().len(), 2);
    hub.get("/ops?partition=1").await.is_error(400, "bad_request");

    let list = hub.get("/v1/topics/wide/groups").await.is(200).json();
    let list = list["groups"].as_array().unwrap();
    assert_eq!(list.len(), GROUPS, "the groups of one topic are all told whole");
    assert!(list.iter().all(|group| group["partitions"].as_array().unwrap().len() == 1_024));
    assert_eq!(hub.get("/v1/topics/wide/groups").await.header("content-type"), Some("application/json"));
    let metrics = hub.get("/metrics").await.text;
    assert!(metrics.contains("group_lag_events{topic=\"wide\",group=\"g11\"} 3000\n"), "{metrics}");
}

#[tokio::test]
async fn a_group_that_is_denied_is_not_shown() {
    let token = |token: &str, policy: serde_json::Value| {
        let (mut rules, policy): (_, Policy) = (Rules::default(), serde_json::from_value(policy).unwrap());
        rules.add_policy(policy).unwrap();
        StaticToken { token: Secret::new(token), rules }
    };
    let all = json!({"effect": "allow", "action": "*", "topics": ["**"]});
    let but = json!({"effect": "deny", "action": "subscribe", "topics": ["**"], "groups": ["secret"]});
    let admin = json!({"effect": "allow", "action": "admin", "topics": ["**"]});
    let mut setup = Setup::default();
    setup.gateway.auth = AuthOptions::Tokens(vec![
        token("all", json!({"rules": [all]})),
        token("all but one", json!({"rules": [all, but]})),
        token("admin", json!({"rules": [admin]})),
    ]);
    let hub = start_with(setup).await;
    for group in ["open", "secret"] {
        let put = hub.request(Method::PUT, &format!("/v1/topics/t/groups/{group}"));
        send(as_one_who("all", put)).await.is(201);
    }
    let shown = async |who: &str, path: &str| {
        let told = send(as_one_who(who, hub.request(Method::GET, path))).await.is(200).json();
        let groups = told["groups"].as_array().unwrap().clone();
        groups.iter().map(|group| group["group"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    for path in ["/ops", "/v1/topics/t/groups"] {
        assert_eq!(shown("all", path).await, ["open", "secret"], "{path}");
        assert_eq!(shown("all but one", path).await, ["open"], "{path}");
    }
    assert_eq!(shown("all but one", "/ops?topic=t&group=secret").await, [""; 0]);
    assert_eq!(shown("admin", "/ops").await, ["open", "secret"], "who administers all sees all");
}
