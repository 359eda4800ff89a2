//! Every route about a topic, asked of a hub that is not its home.

use super::{Cluster, leases};
use crate::common::{as_one_who, guarded, send};
use prombus_server::AuthOptions;
use reqwest::Method;
use serde_json::json;

#[tokio::test]
async fn a_lease_got_from_one_hub_is_settled_through_another() {
    let cluster = Cluster::of(3).await;
    for home in 0..3 {
        let topic = cluster.topic_at(home);
        let [one, other] = [&cluster.hubs[(home + 1) % 3], &cluster.hubs[(home + 2) % 3]];
        one.fill(&topic, 5).await;
        let group = format!("/v1/topics/{topic}/groups/g");
        let pulled = one.post(&format!("{group}/pull"), r#"{"from":"earliest","max":2}"#).await;
        let held = leases(&pulled);
        assert_eq!(held.len(), 2);
        let ack = json!({"ack": [held[0]], "nack": [{"lease": held[1], "delayMs": 60_000}]});
        let done = other.post(&format!("{group}/ack"), &ack.to_string()).await;
        assert!(
            done.is(200).json()["results"].as_array().unwrap().iter().all(|one| one["ok"] == true),
            "{done:?}"
        );
        // What is left is seen alike through all of them.
        for hub in &cluster.hubs {
            let shown = hub.get(&group).await.is(200).json();
            assert_eq!(shown["partitions"][0]["next"], 1, "{shown}");
        }
    }
}

#[tokio::test]
async fn every_route_about_a_topic_is_served_through_another_hub() {
    let cluster = Cluster::of(2).await;
    for home in 0..2 {
        let topic = cluster.topic_at(home);
        let hub = cluster.other_than_home(&topic);
        let path = format!("/v1/topics/{topic}");
        hub.put(&path, r#"{"compaction":true}"#).await.is(201);
        hub.fill(&topic, 20).await;
        let group = format!("{path}/groups/g");
        hub.put(&group, r#"{"from":"earliest","ackTimeoutMs":60000}"#).await.is(201);
        hub.put(&group, r#"{"ackTimeoutMs":1000}"#).await.is_error(409, "group_options");
        let change = hub.request(Method::PATCH, &group).header("content-type", "application/json");
        send(change.body(r#"{"maxAttempts":1}"#)).await.is(200);
        assert_eq!(hub.get(&group).await.is(200).json()["options"]["maxAttempts"], 1);
        assert_eq!(hub.get(&format!("{path}/groups")).await.is(200).json()["groups"][0]["group"], "g");
        assert_eq!(leases(&hub.post(&format!("{group}/pull"), "{}").await).len(), 10, "a key at a time");
        hub.post(&format!("{group}/skip"), r#"{"partition":0,"offset":0}"#).await.is(200);
        hub.get(&format!("{group}/cursor")).await.is(200);
        let reset = r#"{"from":"earliest","dry_run":true}"#;
        assert_eq!(hub.post(&format!("{group}/cursor"), reset).await.is(200).json()["events"], 20);
        hub.put(&format!("{group}/cursor"), r#"{"from":"earliest"}"#).await.is(200);
        // What failed for good, and back again.
        let held = leases(&hub.post(&format!("{group}/pull"), r#"{"max":1}"#).await);
        hub.post(&format!("{group}/ack"), &json!({"nack": [{"lease": held[0]}]}).to_string()).await.is(200);
        let letters = hub.get(&format!("/v1/dlq/{topic}")).await.is(200).json();
        assert_eq!(letters["events"].as_array().map(Vec::len), Some(1), "{letters}");
        let replayed = hub.post(&format!("/v1/dlq/{topic}/replay"), "{}").await.is(200).json();
        assert_eq!(replayed["replayed"], 1, "{replayed}");
        // Cleaning.
        assert!(hub.post(&format!("{path}/clean"), "{}").await.is(200).json()["reclaimed_events"].is_u64());
        hub.post(&format!("{path}/trim"), r#"{"partition":0,"before":2}"#).await.is(200);
        assert_ne!(hub.delete(&format!("{path}/keys/k5")).await.is(200).json()["events"], 0);
        hub.get(&format!("{path}/keys/k5")).await.is_error(404, "not_found");
        hub.delete(&group).await.is(204);
        hub.get(&group).await.is_error(404, "not_found");
        hub.delete(&path).await.is(204);
        for hub in &cluster.hubs {
            hub.get(&path).await.is_error(404, "not_found");
        }
    }
}

#[tokio::test]
async fn projections_run_at_the_home_and_are_seen_from_everywhere() {
    let cluster = Cluster::of(2).await;
    for home in 0..2 {
        let topic = cluster.topic_at(home);
        let hub = cluster.other_than_home(&topic);
        let (name, collection) = (format!("p{home}"), format!("c{home}"));
        let definition = json!({"topic": topic, "collection": collection, "key": "event.key", "map": "{'n': event.payload}"});
        hub.put(&format!("/v1/projections/{name}"), &definition.to_string()).await.is(201);
        hub.fill(&topic, 10).await;
        for hub in &cluster.hubs {
            let seen = hub.get(&format!("/v1/collections/{collection}/snap/k9?min_offset=9")).await;
            assert_eq!(seen.is(200).json()["n"], 9);
            let shown = hub.get(&format!("/v1/projections/{name}")).await.is(200).json();
            assert_eq!((&shown["state"], &shown["lag"]), (&json!("running"), &json!(0)), "{shown}");
        }
        hub.post(&format!("/v1/projections/{name}/rebuild"), "{}").await.is(202);
        hub.delete(&format!("/v1/projections/{name}")).await.is(204);
        hub.get(&format!("/v1/projections/{name}")).await.is_error(404, "not_found");
    }
}

#[tokio::test]
async fn a_commit_settles_what_another_hub_has_delivered() {
    let cluster = Cluster::of(3).await;
    let topic = cluster.topic_at(0);
    let (one, other) = (&cluster.hubs[1], &cluster.hubs[2]);
    one.fill(&topic, 2).await;
    let group = format!("/v1/topics/{topic}/groups/g");
    let held = leases(&one.post(&format!("{group}/pull"), r#"{"from":"earliest"}"#).await);
    let commit = json!({
        "commit_id": "once", "ack": [held[0]], "publish": [{"topic": "out", "payload": 1}],
        "writes": [{"collection": "done", "key": "k", "inc": {"n": 1}}],
    });
    let first = other.post("/v1/commit", &commit.to_string()).await;
    assert_eq!(first.is(200).json()["versions"]["done"]["k"], 1);
    // The same again through yet another hub does nothing.
    let again = one.post("/v1/commit", &commit.to_string()).await;
    assert_eq!(again.is(200).text, first.text);
    assert_eq!(cluster.hubs[0].get("/v1/collections/done/snap/k").await.is(200).json()["n"], 1);
    let spent = json!({"ack": [held[0]], "writes": [{"collection": "done", "key": "k", "inc": {"n": 1}}]});
    other.post("/v1/commit", &spent.to_string()).await.is_error(409, "lease_expired");
    assert_eq!(one.get(&group).await.is(200).json()["partitions"][0]["next"], 1);
}

#[tokio::test]
async fn rights_travel_and_are_no_wider_than_at_the_home() {
    let auth = guarded(&["read:**"]).gateway.auth;
    assert!(!matches!(auth, AuthOptions::None));
    let cluster = Cluster::with(2, auth).await;
    let topic = cluster.topic_at(0);
    let hub = cluster.other_than_home(&topic);
    let post = |path: String, body: String, may: &str| {
        let request = hub.request(Method::POST, &path).header("content-type", "application/json").body(body);
        send(as_one_who(may, request))
    };
    let events = format!("/v1/topics/{topic}/events");
    post(events, r#"{"payload":1}"#.into(), "all").await.is(201);
    let pull = format!("/v1/topics/{topic}/groups/g/pull");
    post(pull.clone(), r#"{"from":"earliest"}"#.into(), "read:**").await.is_error(403, "forbidden");
    send(hub.request(Method::POST, &pull)).await.is_error(401, "unauthorized");
    post(pull.clone(), "{}".into(), "nobody").await.is_error(401, "unauthorized");
    assert_eq!(leases(&post(pull, r#"{"from":"earliest"}"#.into(), "all").await).len(), 1);
}
