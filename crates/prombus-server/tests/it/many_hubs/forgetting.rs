//! Forgetting a key whose copies are in topics at home on several hubs.

use super::{Cluster, LONG};
use prombus_core::TopicName;
use serde_json::json;
use std::time::{Duration, Instant};

#[tokio::test]
async fn a_key_is_forgotten_wherever_its_copies_are_at_home() {
    let cluster = Cluster::of(3).await;
    let copied = |name: &String| cluster.home_of(name) == 0 && cluster.home_of(&format!("{name}.v1")) == 2;
    let topic = (0..).map(|n| format!("people{n}")).find(copied).unwrap();
    let named_so = |name: &String| cluster.home_of(name) == 1;
    let snapshots = (0..).map(|n| format!("latest{n}")).find(named_so).unwrap();
    let versions = format!("{topic}.v1");
    let hub = &cluster.hubs[1];
    let options = json!({"dual_write": true, "snapshot": {"topic": snapshots, "every_ms": 3_600_000}});
    hub.put(&format!("/v1/topics/{topic}"), &options.to_string()).await.is(201);
    let schema = r#"{"version":1,"schema":{"type":"object"}}"#;
    hub.post(&format!("/v1/schemas/{topic}"), schema).await.is(201);
    for key in ["ada", "bob"] {
        let event = json!({"payload": {"n": 1}, "key": key}).to_string();
        hub.post(&format!("/v1/topics/{topic}/events"), &event).await.is(201);
    }
    let name = TopicName::parse(&topic).unwrap();
    cluster.hubs[0].hub().cleaning().snapshot(&name).await.unwrap();
    // The documents of a projection of a copy go, too.
    let definition = json!({"topic": versions, "collection": "c", "key": "event.key"}).to_string();
    hub.put("/v1/projections/p", &definition).await.is(201);
    let everywhere = [
        format!("/v1/topics/{topic}/keys/"),
        format!("/v1/topics/{versions}/keys/"),
        format!("/v1/topics/{snapshots}/keys/"),
        "/v1/collections/c/snap/".to_owned(),
    ];
    let begun = Instant::now();
    for path in &everywhere {
        for key in ["ada", "bob"] {
            while hub.get(&format!("{path}{key}")).await.status != 200 {
                assert!(begun.elapsed() < LONG, "{path}{key}");
                // Nobody tells: it is looked at.
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }
    // Whichever hub is asked.
    let path = format!("/v1/topics/{topic}/keys/ada");
    assert_eq!(cluster.hubs[2].delete(&path).await.is(200).json()["events"], 1);
    for path in &everywhere {
        for hub in &cluster.hubs {
            hub.get(&format!("{path}ada")).await.is_error(404, "not_found");
            hub.get(&format!("{path}bob")).await.is(200);
        }
    }
    assert_eq!(cluster.hubs[1].delete(&path).await.is(200).json()["events"], 0);
}
