//! Topics that move from one hub to another.

use super::{Cluster, LONG, TTL, leases, until};
use prombus_core::TopicName;
use prombus_engine::homes::Place;
use serde_json::json;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

#[tokio::test]
async fn a_hub_that_joins_gets_its_share_and_one_that_leaves_hands_over_at_once() {
    let mut cluster = Cluster::of(2).await;
    let topics: Vec<String> = (0..30).map(|n| format!("t{n}")).collect();
    for topic in &topics {
        cluster.hubs[0].put(&format!("/v1/topics/{topic}/groups/g"), "{}").await.is(201);
    }
    let before: Vec<usize> = topics.iter().map(|topic| cluster.home_of(topic)).collect();
    cluster.add().await;
    let after: Vec<usize> = topics.iter().map(|topic| cluster.home_of(topic)).collect();
    assert!(
        before.iter().zip(&after).all(|(before, after)| before == after || *after == 2),
        "nothing else moves"
    );
    assert!(after.contains(&2), "it gets something");
    for topic in &topics {
        cluster.hubs[0].get(&format!("/v1/topics/{topic}/groups/g")).await.is(200);
    }
    let claimed = || cluster.hubs.iter().map(|hub| hub.hub().claimed_topics()).sum::<usize>();
    until("each topic has one home", || claimed() == topics.len()).await;
    // It leaves, and serves on as one without topics.
    let begun = Instant::now();
    cluster.hubs[2].hub().leave().await;
    for topic in &topics {
        cluster.hubs[2].get(&format!("/v1/topics/{topic}/groups/g")).await.is(200);
    }
    assert_eq!(cluster.hubs[2].hub().claimed_topics(), 0);
    assert!(begun.elapsed() < TTL * 10, "nobody waits for its time to be over: {:?}", begun.elapsed());
    until("the others know", || cluster.hubs[0].hub().hubs().borrow().len() == 2).await;
}

#[tokio::test]
async fn under_load_a_home_that_leaves_costs_a_redelivery_at_most() {
    let cluster = Cluster::of(2).await;
    let topic = cluster.topic_at(0);
    let group = format!("/v1/topics/{topic}/groups/g");
    cluster.hubs[1].fill(&topic, 300).await;
    let (mut acked, mut left) = (BTreeSet::new(), false);
    let begun = Instant::now();
    while acked.len() < 300 {
        assert!(begun.elapsed() < LONG, "{} were acked", acked.len());
        if acked.len() >= 100 && !left {
            left = true;
            cluster.hubs[0].hub().leave().await;
        }
        let asked = r#"{"from":"earliest","max":7,"waitMs":100,"ordering":"none"}"#;
        let pulled = cluster.hubs[acked.len() % 2].post(&format!("{group}/pull"), asked).await;
        let deliveries = pulled.is(200).json()["deliveries"].as_array().unwrap().clone();
        let ack = json!({"ack": leases(&pulled)}).to_string();
        let done = cluster.hubs[(acked.len() + 1) % 2].post(&format!("{group}/ack"), &ack).await;
        for (one, result) in deliveries.iter().zip(done.is(200).json()["results"].as_array().unwrap()) {
            if result["ok"] == true {
                assert!(acked.insert(one["event"]["offset"].as_u64().unwrap()), "acked never again: {one}");
            }
        }
    }
    assert!(left);
    let shown = cluster.hubs[0].get(&group).await.is(200).json();
    assert_eq!(shown["partitions"][0]["next"], 300, "{shown}");
}

#[tokio::test]
async fn a_pull_that_waits_goes_on_at_the_next_home() {
    let cluster = Cluster::of(2).await;
    let topic = cluster.topic_at(0);
    let path = format!("/v1/topics/{topic}/groups/g/pull");
    cluster.hubs[1].post(&path, "{}").await.is(200);
    let hub = &cluster.hubs[1];
    let waiting = hub.post(&path, r#"{"waitMs":20000}"#);
    let moves = async {
        let name = TopicName::parse(&topic).unwrap();
        let waits = || cluster.hubs[0].hub().claimed_topics() == 1;
        until("it waits at the home", waits).await;
        cluster.hubs[0].hub().leave().await;
        until("the other hub knows", || hub.hub().place(&name) == Place::Here).await;
        hub.fill(&topic, 1).await;
    };
    let (pulled, ()) = tokio::time::timeout(LONG, async { tokio::join!(waiting, moves) }).await.unwrap();
    // Where it had waited for a while, it may end without anything, and the next one gets it.
    let held = leases(&pulled);
    let held = if held.is_empty() { leases(&hub.post(&path, r#"{"waitMs":20000}"#).await) } else { held };
    assert_eq!(held.len(), 1);
}

#[tokio::test]
async fn a_hub_that_is_gone_is_missed_in_time() {
    let mut cluster = Cluster::of(2).await;
    let topic = cluster.topic_at(0);
    cluster.hubs[1].fill(&topic, 3).await;
    let path = format!("/v1/topics/{topic}/groups/g/pull");
    let before = leases(&cluster.hubs[1].post(&path, r#"{"from":"earliest","max":1}"#).await);
    // It is not heard of any more, and nobody is told.
    cluster.stalls[0].set(true);
    cluster.hubs.remove(0).kill();
    let begun = Instant::now();
    let after = cluster.hubs[0].post(&path, r#"{"max":1,"waitMs":10000}"#).await;
    assert_eq!(leases(&after).len(), 1, "{after:?}");
    assert!(begun.elapsed() < TTL + Duration::from_secs(8), "{:?}", begun.elapsed());
    let spent = json!({"ack": before}).to_string();
    let answer = cluster.hubs[0].post(&format!("/v1/topics/{topic}/groups/g/ack"), &spent).await;
    assert_eq!(answer.is(200).json()["results"][0]["error"], "lease_expired");
}

#[tokio::test]
async fn a_home_that_stalls_and_comes_back_answers_nothing_for_the_topic() {
    let cluster = Cluster::of(2).await;
    let topic = cluster.topic_at(0);
    let [home, other] = [&cluster.hubs[0], &cluster.hubs[1]];
    other.fill(&topic, 3).await;
    let group = format!("/v1/topics/{topic}/groups/g");
    let before = leases(&other.post(&format!("{group}/pull"), r#"{"from":"earliest","max":1}"#).await);
    cluster.stalls[0].set(true);
    let pull = format!("{group}/pull");
    // One that is asked through each of them gets the next home's answer, or waits for it.
    let (there, here) = tokio::join!(other.post(&pull, r#"{"max":1,"waitMs":10000}"#), async {
        let name = TopicName::parse(&topic).unwrap();
        until("it is missed", || other.hub().place(&name) == Place::Here).await;
        let waiting = home.post(&pull, r#"{"max":1,"waitMs":10000}"#);
        let comes_back = async {
            other.get(&group).await.is(200);
            cluster.stalls[0].set(false);
        };
        tokio::join!(waiting, comes_back).0
    });
    let (there, here) = (there.is(200).json(), here.is(200).json());
    // It is back, and the topic with it, or not yet: of each event there is one lease that holds.
    let ack = json!({"ack": before}).to_string();
    let answer = home.post(&format!("{group}/ack"), &ack).await;
    assert_eq!(answer.is(200).json()["results"][0]["error"], "lease_expired");
    assert!(there["deliveries"].is_array() && here["deliveries"].is_array(), "{there} {here}");
    // And everything is delivered in the end.
    let mut seen = BTreeSet::new();
    let begun = Instant::now();
    while seen.len() < 3 {
        assert!(begun.elapsed() < LONG, "{seen:?}");
        home.put(&format!("{group}/cursor"), r#"{"from":"earliest"}"#).await.is(200);
        let pulled = home.post(&format!("{group}/pull"), r#"{"waitMs":100}"#).await;
        let deliveries = pulled.is(200).json()["deliveries"].as_array().unwrap().clone();
        seen.extend(deliveries.iter().map(|one| one["event"]["offset"].as_u64().unwrap()));
    }
}
