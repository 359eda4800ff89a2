//! One commit for leases of topics that are at home on different hubs.

use super::between::{Between, Mode};
use super::sockets::blocking;
use super::{Cluster, LONG, leases};
use crate::common::{Served, as_one_who, guarded, send};
use prombus_core::{Commit, CommitError, EventLogExt};
use prombus_engine::groups::PledgeOutcome;
use prombus_fixtures::http::Api;
use prombus_fixtures::ws::Socket;
use reqwest::Method;
use serde_json::{Value, json};
use std::sync::Arc;

/// The leases of as many events of a topic as there are, or of `max`.
async fn pull(hub: &Served, topic: &str, max: usize) -> Vec<String> {
    let path = format!("/v1/topics/{topic}/groups/g");
    let options = r#"{"from":"earliest","ordering":"none","ackTimeoutMs":3600000}"#;
    assert!(hub.put(&path, options).await.status.is_success());
    leases(&hub.post(&format!("{path}/pull"), &json!({"max": max}).to_string()).await)
}

/// Where the group of a topic is, and how many of its events are in flight.
async fn group(hub: &Served, topic: &str) -> (u64, u64) {
    let shown = hub.get(&format!("/v1/topics/{topic}/groups/g")).await.is(200).json();
    let of = |name: &str| shown["partitions"][0][name].as_u64().unwrap();
    (of("next"), of("in_flight"))
}

async fn count(hub: &Served) -> Value {
    hub.get("/v1/collections/done/snap/k").await.json()["n"].clone()
}

/// A commit of these leases that counts.
fn commit(acks: &[&String]) -> Value {
    json!({
        "ack": acks, "writes": [{"collection": "done", "key": "k", "inc": {"n": 1}}],
        "publish": [{"topic": "out", "payload": 1}],
    })
}

#[tokio::test]
async fn leases_of_several_homes_are_settled_together() {
    let cluster = Cluster::of(3).await;
    let topics: Vec<String> = (0..3).map(|home| cluster.topic_at(home)).collect();
    let mut held = Vec::new();
    for topic in &topics {
        cluster.hubs[0].fill(topic, 6).await;
        held.push(pull(&cluster.hubs[0], topic, 6).await);
    }
    // Through each of them, with another one that is the home of most.
    for (n, hub) in cluster.hubs.iter().enumerate() {
        let most = (n + 1) % 3;
        let at = 2 * n;
        let acks = [&held[0][at], &held[1][at], &held[2][at], &held[most][at + 1]];
        let mut asked = commit(&acks);
        asked["commit_id"] = json!(format!("c{n}"));
        let first = hub.post("/v1/commit", &asked.to_string()).await;
        assert_eq!(first.is(200).json()["versions"]["done"]["k"], n + 1);
        // The same through another hub does nothing, and so does another one with these leases.
        let other = &cluster.hubs[most];
        assert_eq!(other.post("/v1/commit", &asked.to_string()).await.is(200).text, first.text);
        other.post("/v1/commit", &commit(&acks).to_string()).await.is_error(409, "lease_expired");
        assert_eq!(count(hub).await, n + 1);
    }
    for (n, topic) in topics.iter().enumerate() {
        assert_eq!(group(&cluster.hubs[0], topic).await.1, 2, "of topic {n}, two are left");
    }
}

#[tokio::test]
async fn where_one_part_is_refused_nothing_happens_anywhere() {
    let cluster = Cluster::of(2).await;
    let topics = [cluster.topic_at(0), cluster.topic_at(1)];
    let hub = &cluster.hubs[0];
    let mut held = Vec::new();
    for topic in &topics {
        hub.fill(topic, 3).await;
        held.push(pull(hub, topic, 3).await);
    }
    let ack = json!({"ack": [held[1][0]]}).to_string();
    hub.post(&format!("/v1/topics/{}/groups/g/ack", topics[1]), &ack).await.is(200);
    for first in &cluster.hubs {
        let spent = commit(&[&held[0][0], &held[0][1], &held[1][0]]);
        first.post("/v1/commit", &spent.to_string()).await.is_error(409, "lease_expired");
        let mut conflict = commit(&[&held[0][0], &held[0][1], &held[1][1]]);
        conflict["writes"][0]["if_version"] = json!(7);
        first.post("/v1/commit", &conflict.to_string()).await.is_error(409, "version_conflict");
    }
    assert_eq!(count(hub).await, Value::Null);
    // All of them are as they were.
    let all = commit(&[&held[0][0], &held[0][1], &held[0][2], &held[1][1], &held[1][2]]);
    cluster.hubs[1].post("/v1/commit", &all.to_string()).await.is(200);
    for topic in &topics {
        assert_eq!(group(hub, topic).await, (3, 0));
    }
}

#[tokio::test]
async fn rights_on_leases_elsewhere_are_asked_for_there() {
    const ON_A: &str = "subscribe:a.* publish:** admin:**";
    let cluster = Cluster::with(2, guarded(&[ON_A]).gateway.auth).await;
    let named = |prefix: &str, home: usize| {
        (0..).map(|n| format!("{prefix}.n{n}")).find(|name| cluster.home_of(name) == home).unwrap()
    };
    let topics = [named("a", 0), named("b", 1)];
    let post = async |may: &str, path: String, body: Value| {
        let request = cluster.hubs[0].request(Method::POST, &path).header("content-type", "application/json");
        send(as_one_who(may, request.body(body.to_string()))).await
    };
    let mut held = Vec::new();
    for topic in &topics {
        post("all", format!("/v1/topics/{topic}/events"), json!([{"payload": 1}, {"payload": 2}]))
            .await
            .is(201);
        let asked = json!({"from": "earliest"});
        held.extend(leases(&post("all", format!("/v1/topics/{topic}/groups/g/pull"), asked).await));
    }
    let asked = json!({"ack": [held[0], held[1], held[2]]});
    post(ON_A, "/v1/commit".into(), asked.clone()).await.is_error(403, "forbidden");
    post("all", "/v1/commit".into(), asked).await.is(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_of_the_same_groups_through_all_hubs_do_not_wait_for_each_other_for_ever() {
    const COUNT: usize = 40;
    let cluster = Cluster::of(2).await;
    let topics = [cluster.topic_at(0), cluster.topic_at(1)];
    let mut held = Vec::new();
    for topic in &topics {
        cluster.hubs[0].fill(topic, 2 * COUNT).await;
        held.push(pull(&cluster.hubs[0], topic, 2 * COUNT).await);
    }
    // Each is done by another hub than the one before.
    let commits = (0..COUNT).map(|n| {
        let (most, least) = (&held[n % 2], &held[1 - n % 2]);
        let asked = commit(&[&most[2 * n], &most[2 * n + 1], &least[2 * n]]).to_string();
        let hub = &cluster.hubs[n / 2 % 2];
        async move { hub.post("/v1/commit", &asked).await }
    });
    let all = tokio::time::timeout(LONG, futures::future::join_all(commits)).await.unwrap();
    for answer in &all {
        answer.is(200);
    }
    assert_eq!(count(&cluster.hubs[0]).await, COUNT);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frame_settles_leases_of_several_homes() {
    let cluster = Cluster::of(2).await;
    let topics = [cluster.topic_at(0), cluster.topic_at(1)];
    for topic in &topics {
        cluster.hubs[0].fill(topic, 1).await;
    }
    let (api, names) = (Api { address: cluster.hubs[0].address.to_string() }, topics.clone());
    let client = blocking(move || {
        let mut socket = Socket::open(&api);
        let mut held = Vec::new();
        for name in &names {
            let opts = json!({"from": "earliest"});
            socket.ok(json!({"op": "SUBSCRIBE", "topic": name, "group": "g", "opts": opts}));
            held.push(socket.event()["ctx"]["lease"].clone());
        }
        let commit = json!({"op": "COMMIT", "ack": held, "publish": [{"topic": "out", "payload": 3}]});
        assert_eq!(socket.ok(commit.clone())["events"][0]["topic"], "out");
        socket.fails(commit, "lease_expired");
    });
    client.await;
    for topic in &topics {
        assert_eq!(group(&cluster.hubs[1], topic).await, (1, 0));
    }
}

#[tokio::test]
async fn a_home_that_cannot_say_what_it_has_pledged_is_told_that_nothing_happened() {
    let cluster = Cluster::of(2).await;
    let topics = [cluster.topic_at(0), cluster.topic_at(1)];
    let hub = &cluster.hubs[0];
    let between = Between::before(cluster.hubs[1].address).await;
    cluster.advertise(1, between.address).await;
    let mut held = Vec::new();
    for topic in &topics {
        hub.fill(topic, 2).await;
        held.push(pull(hub, topic, 2).await);
    }
    between.set(Mode::LoseAnswers);
    let asked = commit(&[&held[0][0], &held[0][1], &held[1][0]]).to_string();
    let refused = hub.post("/v1/commit", &asked).await.is_error(503, "unavailable");
    assert_eq!(refused.get("outcome"), None, "it is known");
    between.set(Mode::Pass);
    assert_eq!(count(hub).await, Value::Null);
    hub.post("/v1/commit", &asked).await.is(200);
    assert_eq!((group(hub, &topics[0]).await, group(hub, &topics[1]).await), ((2, 0), (1, 1)));
}

/// A hub that pledges, and the lease of the first of two events, as it is told by nobody what came of the commit.
async fn pledged(cluster: &Cluster) -> (String, prombus_engine::groups::PledgedLeases) {
    let topic = cluster.topic_at(1);
    cluster.hubs[0].fill(&topic, 2).await;
    let held = pull(&cluster.hubs[0], &topic, 1).await;
    let pledged = cluster.hubs[1].hub().pledge(&[held[0].parse().unwrap()]).await.unwrap();
    (topic, pledged)
}

fn moves(pledged: &prombus_engine::groups::PledgedLeases) -> Arc<Commit> {
    Arc::new(Commit { cursors: pledged.moves(), ..Commit::by_hub() })
}

#[tokio::test]
async fn what_was_committed_is_known_to_a_home_that_is_not_told() {
    // Before it gives up waiting, and after.
    for is_late in [false, true] {
        let cluster = Cluster::of(2).await;
        let (topic, pledged) = pledged(&cluster).await;
        let commit = moves(&pledged);
        if !is_late {
            cluster.store().commit(commit.clone()).await.unwrap();
        }
        pledged.settle(PledgeOutcome::Unknown);
        if is_late {
            cluster.store().commit(commit).await.unwrap();
        }
        let again = pull(&cluster.hubs[0], &topic, 2).await;
        assert_eq!(again.len(), 1, "the first one is settled");
        assert_eq!(group(&cluster.hubs[0], &topic).await, (1, 1));
    }
}

#[tokio::test]
async fn what_was_not_committed_cannot_happen_once_it_is_delivered_again() {
    let cluster = Cluster::of(2).await;
    let (topic, pledged) = pledged(&cluster).await;
    let commit = moves(&pledged);
    // Dropped is as good as never told.
    drop(pledged);
    assert_eq!(pull(&cluster.hubs[0], &topic, 2).await.len(), 2, "it is delivered again");
    let refused = cluster.store().commit(commit).await.unwrap_err();
    assert!(matches!(refused, CommitError::EpochOver { .. }), "{refused:?}");
}
