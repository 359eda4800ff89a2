//! WebSockets at a hub, for topics that are at home on others.

use super::{Cluster, LONG};
use crate::common::Served;
use prombus_fixtures::http::Api;
use prombus_fixtures::ws::Socket;
use serde_json::{Value, json};

fn subscribe(topic: &str, more: Value) -> Value {
    let mut opts = json!({"from": "earliest"});
    opts.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"op": "SUBSCRIBE", "topic": topic, "group": "g", "opts": opts})
}

fn api(hub: &Served) -> Api {
    Api { address: hub.address.to_string() }
}

/// Does what blocks on a thread of its own.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::time::timeout(LONG * 2, tokio::task::spawn_blocking(work)).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_come_from_the_home_and_what_is_said_of_them_goes_there() {
    let cluster = Cluster::of(2).await;
    let topic = cluster.topic_at(0);
    let hub = cluster.other_than_home(&topic);
    let api = api(hub);
    let payload = r#"{"big":123456789012345678901234567890,"one":1.10}"#;
    let event = format!(r#"{{"payload":{payload},"key":"k","headers":{{"x-a":"b"}},"tags":["t"]}}"#);
    hub.post(&format!("/v1/topics/{topic}/events"), &event).await.is(201);
    let name = topic.clone();
    let text = blocking(move || {
        let mut socket = Socket::open(&api);
        socket.ok(subscribe(&name, json!({})));
        let first = socket.event();
        assert_eq!((&first["topic"], &first["group"]), (&json!(name), &json!("g")));
        socket.ok(json!({"op": "MODACK", "topic": name, "group": "g", "id": first["event"]["id"], "extend_ms": 60_000}));
        socket.ok(json!({"op": "NACK", "topic": name, "group": "g", "id": first["event"]["id"]}));
        let again = socket.event();
        assert_eq!((&again["event"], &again["ctx"]["attempt"]), (&first["event"], &json!(2)));
        socket.ok(json!({"op": "PAUSE", "topic": name, "group": "g"}));
        socket.ok(json!({"op": "ACK", "topic": name, "group": "g", "lease": again["ctx"]["lease"]}));
        let spent = json!({"op": "ACK", "topic": name, "group": "g", "lease": first["ctx"]["lease"]});
        socket.fails(spent, "lease_expired");
        socket.ok(json!({"op": "PUBLISH", "topic": name, "payload": 2}));
        socket.ok(json!({"op": "RESUME", "topic": name, "group": "g"}));
        let second = socket.event();
        assert_eq!(second["event"]["payload"], 2);
        let commit = json!({"op": "COMMIT", "ack": [second["ctx"]["lease"]], "publish": [{"topic": "out", "payload": 3}]});
        assert_eq!(socket.ok(commit)["events"][0]["topic"], "out");
        let gone = json!({"op": "ACK", "topic": name, "group": "g", "id": second["event"]["id"]});
        socket.fails(gone, "unknown_id");
        socket.ok(json!({"op": "UNSUBSCRIBE", "topic": name, "group": "g"}));
        first["event"]["payload"].to_string()
    });
    assert!(text.await.contains("big"));
    let shown = cluster.hubs[0].get(&format!("/v1/topics/{topic}/groups/g")).await.is(200).json();
    assert_eq!(
        (&shown["partitions"][0]["next"], &shown["partitions"][0]["in_flight"]),
        (&json!(2), &json!(0))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_lost_client_held_is_free_again_at_once() {
    let cluster = Cluster::of(2).await;
    let topic = cluster.topic_at(0);
    let hub = cluster.other_than_home(&topic);
    hub.fill(&topic, 1).await;
    let (api, name) = (api(hub), topic.clone());
    blocking(move || {
        let mut lost = Socket::open(&api);
        lost.ok(subscribe(&name, json!({"ackTimeoutMs": 3_600_000})));
        let first = lost.event();
        drop(lost);
        let mut next = Socket::open(&api);
        next.ok(subscribe(&name, json!({})));
        assert_eq!(next.event()["event"], first["event"]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_are_assigned_across_hubs() {
    let cluster = Cluster::of(2).await;
    let topic = cluster.topic_at(0);
    cluster.hubs[0].put(&format!("/v1/topics/{topic}"), r#"{"partitions":16}"#).await.is(201);
    let apis = [api(&cluster.hubs[0]), api(&cluster.hubs[1])];
    blocking(move || {
        let mut sockets = apis.each_ref().map(Socket::open);
        sockets[1].ok(subscribe(&topic, json!({"mode": "partitioned", "member": "far"})));
        let mut far = sockets[1].assigned().len();
        assert_eq!(far, 16);
        sockets[0].ok(subscribe(&topic, json!({"mode": "partitioned", "member": "near"})));
        let near = sockets[0].assigned().len();
        while far + near != 16 {
            far = sockets[1].assigned().len();
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_notices_nothing_but_redelivery_when_the_home_moves() {
    let cluster = Cluster::of(3).await;
    let topic = cluster.topic_at(0);
    cluster.hubs[1].fill(&topic, 3).await;
    // One at the home itself, which gets nothing while the other one holds all.
    let api = api(&cluster.hubs[1]);
    let name = topic.clone();
    let (hold, held) = tokio::sync::oneshot::channel();
    let (go, going) = std::sync::mpsc::channel();
    let client = tokio::task::spawn_blocking(move || {
        let mut socket = Socket::open(&api);
        socket.ok(subscribe(&name, json!({"ackTimeoutMs": 3_600_000, "ordering": "none"})));
        let first: Vec<Value> = (0..3).map(|_| socket.event()).collect();
        hold.send(()).unwrap();
        going.recv().unwrap();
        let mut acked = 0;
        while acked < 3 {
            let event = socket.event();
            assert!(first.iter().any(|one| one["event"] == event["event"]));
            socket.ok(json!({"op": "ACK", "topic": name, "group": "g", "lease": event["ctx"]["lease"]}));
            acked += 1;
        }
        let old = json!({"op": "ACK", "topic": name, "group": "g", "lease": first[0]["ctx"]["lease"]});
        socket.fails(old, "lease_expired");
    });
    held.await.unwrap();
    cluster.hubs[0].hub().leave().await;
    go.send(()).unwrap();
    tokio::time::timeout(LONG, client).await.unwrap().unwrap();
}
