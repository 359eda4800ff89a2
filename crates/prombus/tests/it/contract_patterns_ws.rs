//! Subscriptions of a WebSocket to all topics that match a pattern.

use crate::contract_support::Site;
use crate::groups_support::publish;
use crate::ws_support::Socket;
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn on(op: &str, topic: &str) -> Value {
    json!({"op": op, "topic": topic, "group": "g"})
}

/// Topic and number of the next deliveries.
#[track_caller]
fn seen(deliveries: &[Value]) -> BTreeSet<(String, u64)> {
    let of = |one: &Value| {
        assert_eq!(one["topic"], one["event"]["topic"]);
        (one["topic"].as_str().unwrap().to_owned(), one["event"]["payload"]["n"].as_u64().unwrap())
    };
    let all: BTreeSet<_> = deliveries.iter().map(of).collect();
    assert_eq!(all.len(), deliveries.len(), "{deliveries:?}");
    all
}

#[test]
fn a_pattern_delivers_of_all_topics_and_of_those_that_are_made_later() {
    let site = Site::start();
    for topic in ["a.x", "a.y", "b"] {
        publish(&site.api, topic, 0..2);
    }
    let mut socket = Socket::open(&site.api);
    socket.subscribe("a.*", "g", json!({"from": "earliest"}));
    let deliveries = socket.events(4);
    assert_eq!(seen(&deliveries).len(), 4);
    socket.ack(&deliveries);
    publish(&site.api, "a.new", 0..2);
    let deliveries = socket.events(2);
    assert_eq!(seen(&deliveries), [("a.new".into(), 0), ("a.new".into(), 1)].into());
    socket.ack(&deliveries);
    socket.is_quiet();
    assert_eq!(site.api.get("/v1/topics/b/groups").is(200)["groups"], json!([]));
}

#[test]
fn the_event_that_makes_a_topic_is_delivered_although_the_group_starts_at_the_latest() {
    let site = Site::start();
    publish(&site.api, "a.old", 0..1);
    let mut socket = Socket::open(&site.api);
    socket.subscribe("a.**", "g", json!({}));
    for n in 0..20 {
        publish(&site.api, &format!("a.new{n}"), n..n + 1);
    }
    let all = seen(&socket.events(20));
    assert_eq!(all, (0..20).map(|n| (format!("a.new{n}"), n)).collect());
    publish(&site.api, "a.old", 1..2);
    assert_eq!(seen(&socket.events(1)), [("a.old".into(), 1)].into());
    socket.is_quiet();
}

#[test]
fn pause_resume_and_unsubscribe_are_about_the_whole_pattern() {
    let site = Site::start();
    publish(&site.api, "a.x", 0..1);
    let mut socket = Socket::open(&site.api);
    socket.subscribe("a.*", "g", json!({"from": "earliest"}));
    socket.events(1);
    socket.fails(on("SUBSCRIBE", "a.*"), "already_subscribed");
    socket.fails(on("SUBSCRIBE", "a.x"), "already_subscribed");
    socket.ok(on("PAUSE", "a.*"));
    publish(&site.api, "a.x", 1..2);
    publish(&site.api, "a.y", 0..1);
    socket.is_quiet();
    socket.ok(on("RESUME", "a.*"));
    assert_eq!(seen(&socket.events(2)), [("a.x".into(), 1), ("a.y".into(), 0)].into());
    socket.ok(on("UNSUBSCRIBE", "a.*"));
    publish(&site.api, "a.z", 0..1);
    publish(&site.api, "a.x", 2..3);
    socket.is_quiet();
    socket.fails(on("UNSUBSCRIBE", "a.*"), "not_subscribed");
    socket.fails(on("PAUSE", "a.x"), "not_subscribed");
    // What was not acknowledged is there for the next one, also through another pattern.
    socket.subscribe("**", "g", json!({}));
    let deliveries = socket.events(4);
    assert_eq!(seen(&deliveries).len(), 4);
}

#[test]
fn a_topic_that_is_deleted_leaves_the_others_and_its_successor_starts_anew() {
    let site = Site::start();
    for topic in ["a.x", "a.y"] {
        publish(&site.api, topic, 0..1);
    }
    let mut socket = Socket::open(&site.api);
    socket.subscribe("a.*", "g", json!({"from": "earliest"}));
    let deliveries = socket.events(2);
    socket.ack(&deliveries);
    site.api.delete("/v1/topics/a.x");
    let told = socket.find(|frame| frame["op"] == "ERR");
    assert_eq!((&told["topic"], &told["group"]), (&json!("a.x"), &json!("g")), "{told}");
    publish(&site.api, "a.x", 5..6);
    publish(&site.api, "a.y", 1..2);
    assert_eq!(seen(&socket.events(2)), [("a.x".into(), 5), ("a.y".into(), 1)].into());
}

#[test]
fn names_and_patterns_go_together_and_fail_together() {
    let site = Site::start();
    publish(&site.api, "a.x", 0..1);
    publish(&site.api, "t", 0..1);
    site.api.put("/v1/topics/a.x/groups/h", r#"{"maxAttempts":9}"#);
    let mut socket = Socket::open(&site.api);
    let both = |group: &str| json!({"op": "SUBSCRIBE", "topics": ["t", "a.*"], "group": group, "opts": {"from": "earliest", "maxAttempts": 3}});
    socket.fails(both("h"), "group_options");
    socket.fails(json!({"op": "UNSUBSCRIBE", "topic": "a.*", "group": "h"}), "not_subscribed");
    socket.fails(json!({"op": "UNSUBSCRIBE", "topic": "t", "group": "h"}), "not_subscribed");
    socket.ok(both("g"));
    assert_eq!(seen(&socket.events(2)), [("a.x".into(), 0), ("t".into(), 0)].into());
}

#[test]
fn a_pattern_that_stands_for_too_many_partitions_makes_no_groups() {
    let site = Site::start();
    for n in 0..20 {
        site.api.put(&format!("/v1/topics/w.t{n}"), r#"{"partitions":1024}"#);
    }
    let mut socket = Socket::open(&site.api);
    socket.fails(on("SUBSCRIBE", "w.*"), "too_large");
    for topic in ["w.t0", "w.t19"] {
        assert_eq!(site.api.get(&format!("/v1/topics/{topic}/groups")).is(200)["groups"], json!([]));
    }
    socket.fails(on("UNSUBSCRIBE", "w.*"), "not_subscribed");
    socket.ok(on("SUBSCRIBE", "*.t0"));
}
