//! What the hub tells of its groups: status, lists, metrics and `/ops`.

use crate::contract_support::Site;
use crate::groups_support::{
    Group, acks, eventually, metric, nack, numbered, publish, publish_all, publish_keys, publish_spread,
};
use serde_json::{Value, json};
use std::time::Duration;

const PARTITION_FIELDS: &[&str] = &[
    "partition",
    "next",
    "last_id",
    "last_ts",
    "tail",
    "lag",
    "lag_ms",
    "in_flight",
    "redelivered",
    "oldest_unacked_ms",
    "waiting",
    "owner",
    "epoch",
];

#[test]
fn the_status_has_every_field() {
    let site = Site::start();
    site.api.make("t", 2);
    publish_spread(&site.api, "t", 2, 2);
    let group = Group::of(&site, "t", "g");
    group.take(json!({"from": "earliest", "member": "a"}));
    let status = group.status();
    for name in ["topic", "group", "options", "members", "partitions"] {
        assert!(status.get(name).is_some(), "no {name} in {status}");
    }
    assert_eq!((&status["topic"], &status["group"]), (&json!("t"), &json!("g")));
    assert!(status["options"].is_object());
    assert!(status["members"].to_string().contains("\"a\""), "{status}");
    let partitions = status["partitions"].as_array().unwrap();
    assert_eq!(partitions.len(), 2);
    for (number, place) in partitions.iter().enumerate() {
        assert_eq!(place["partition"], number);
        for name in PARTITION_FIELDS {
            assert!(place.get(name).is_some(), "no {name} in {place}");
        }
        for name in ["next", "tail", "lag", "lag_ms", "in_flight", "redelivered", "epoch"] {
            assert!(place[name].is_u64(), "{name} in {place}");
        }
    }
}

#[test]
fn the_options_in_the_status_have_the_names_that_set_them() {
    let site = Site::start();
    publish(&site.api, "t", 0..1);
    let group = Group::of(&site, "t", "g");
    let given = json!({
        "mode": "partitioned", "ordering": "partition", "ackTimeoutMs": 1234, "maxAttempts": 6,
        "backoffMs": 77, "filter": "event.key == 'a'", "normalize": false, "ackWindow": 88, "memberTtlMs": 5678,
    });
    group.make(&given);
    let told = group.status()["options"].clone();
    for (name, value) in given.as_object().unwrap() {
        assert_eq!(&told[name], value, "{name}");
    }
}

#[test]
fn the_place_of_a_group_is_told_as_it_moves() {
    let site = Site::start();
    let published = publish(&site.api, "t", 0..5);
    let group = Group::of(&site, "t", "g");
    group.make(&json!({"from": "earliest"}));
    let place = group.partition(0);
    assert_eq!((&place["next"], &place["tail"], &place["lag"]), (&json!(0), &json!(5), &json!(5)));
    assert!(place["last_id"].is_null() && place["last_ts"].is_null(), "{place}");
    assert_eq!((&place["in_flight"], &place["redelivered"]), (&json!(0), &json!(0)));
    assert!(place["waiting"].is_null() && place["owner"].is_null(), "{place}");
    let got = group.gather(&json!({}), 5);
    assert_eq!(group.partition(0)["in_flight"], 5);
    group.ack(&got[..2]);
    let place = group.partition(0);
    assert_eq!((&place["next"], &place["tail"], &place["lag"]), (&json!(2), &json!(5), &json!(3)));
    assert_eq!((&place["last_id"], &place["last_ts"]), (&published[1]["id"], &published[1]["ts"]));
    assert_eq!(place["in_flight"], 3);
    // An ack ahead of others does not move the place, and the lag by one at most.
    group.ack(&got[4..]);
    let place = group.partition(0);
    assert_eq!((&place["next"], &place["in_flight"]), (&json!(2), &json!(2)));
    assert!(matches!(place["lag"].as_u64(), Some(2 | 3)), "{place}");
    group.ack(&got[2..4]);
    let place = group.partition(0);
    assert_eq!((&place["next"], &place["tail"], &place["lag"]), (&json!(5), &json!(5), &json!(0)));
    assert_eq!((&place["last_id"], &place["lag_ms"]), (&published[4]["id"], &json!(0)));
    assert!(matches!(place["oldest_unacked_ms"].as_u64(), None | Some(0)), "{place}");
}

#[test]
fn the_lag_in_time_goes_by_when_the_hub_took_the_event() {
    let site = Site::start();
    publish_all(&site.api, "t", &[json!({"payload": {"n": 0}, "ts": 1000})]);
    let group = Group::of(&site, "t", "g");
    group.make(&json!({"from": "earliest"}));
    // Time has to pass for there to be a lag in time.
    std::thread::sleep(Duration::from_millis(300));
    let lag = group.partition(0)["lag_ms"].as_u64().unwrap();
    assert!((290..60_000).contains(&lag), "{lag}");
    group.consume(&json!({}), 1);
    assert_eq!(group.partition(0)["lag_ms"], 0);
}

#[test]
fn the_oldest_open_lease_is_told() {
    let site = Site::start();
    publish(&site.api, "t", 0..2);
    let group = Group::of(&site, "t", "g");
    let old = group.one(json!({"from": "earliest"}));
    // The age of the lease is what is looked at.
    std::thread::sleep(Duration::from_millis(300));
    let age = group.partition(0)["oldest_unacked_ms"].as_u64().unwrap();
    assert!((290..30_000).contains(&age), "{age}");
    group.ack(&[old]);
    let place = group.partition(0);
    assert!(place["oldest_unacked_ms"].as_u64().is_none_or(|age| age < 30_000), "{place}");
}

#[test]
fn what_was_delivered_again_is_counted() {
    let site = Site::start();
    publish(&site.api, "t", 0..2);
    let group = Group::of(&site, "t", "g");
    let got = group.gather(&json!({"from": "earliest"}), 2);
    assert_eq!(group.partition(0)["redelivered"], 0);
    group.nack(&got[0]);
    let again = group.one(json!({}));
    assert_eq!(group.partition(0)["redelivered"], 1);
    group.ack(&[again, got[1].clone()]);
    group.is_done();
}

#[test]
fn an_owner_is_told_where_partitions_have_one() {
    let site = Site::start();
    publish(&site.api, "t", 0..1);
    let group = Group::of(&site, "t", "g");
    group.take(json!({"from": "earliest", "mode": "partitioned", "member": "me"}));
    let place = group.partition(0);
    assert_eq!(place["owner"], "me");
    let shared = Group::of(&site, "t", "shared");
    shared.take(json!({"from": "earliest", "member": "me"}));
    assert!(shared.partition(0)["owner"].is_null());
}

#[test]
fn what_waits_for_a_retry_is_told() {
    let site = Site::start();
    publish_keys(&site.api, "t", 0, &["a", "a", "b"]);
    let group = Group::of(&site, "t", "g");
    let got = group.gather(&json!({"from": "earliest"}), 2);
    group.ack(&[numbered(&got, 2).clone()]);
    group.nack_for(numbered(&got, 0), 60_000);
    group.nothing(json!({}));
    let place = group.partition(0);
    assert!(!place["waiting"].is_null(), "{place}");
    assert_eq!((&place["in_flight"], &place["next"]), (&json!(0), &json!(0)));
    group.skip(0, 0);
    group.consume(&json!({}), 1);
    group.is_done();
    assert!(group.partition(0)["waiting"].is_null());
}

#[test]
fn all_groups_of_a_topic_are_listed() {
    let site = Site::start();
    publish(&site.api, "t", 0..3);
    publish(&site.api, "other", 0..1);
    let empty = site.api.get("/v1/topics/t/groups").is(200);
    assert_eq!(empty["groups"], json!([]), "{empty}");
    for name in ["one", "two", "three"] {
        Group::of(&site, "t", name).take(json!({"from": "earliest"}));
    }
    Group::of(&site, "other", "elsewhere").take(json!({"from": "earliest"}));
    let listed = site.api.get("/v1/topics/t/groups").is(200);
    let mut names: Vec<&str> =
        listed["groups"].as_array().unwrap().iter().map(|group| group["group"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["one", "three", "two"]);
    assert!(listed["groups"].as_array().unwrap().iter().all(|group| group["topic"] == "t"), "{listed}");
    assert_eq!(listed["groups"][0]["partitions"][0]["in_flight"], 3);
}

#[test]
fn looking_at_a_group_does_not_make_it() {
    let site = Site::start();
    publish(&site.api, "t", 0..1);
    let group = Group::of(&site, "t", "g");
    for rest in ["", "/cursor"] {
        site.api.get(&group.path(rest)).fails(404, "not_found");
    }
    assert_eq!(site.api.get("/v1/topics/t/groups").is(200)["groups"], json!([]));
}

const LABELS: &[(&str, &str)] = &[("topic", "t"), ("group", "g")];

#[test]
fn the_metrics_of_a_group_move() {
    let site = Site::start();
    publish(&site.api, "t", 0..6);
    let group = Group::of(&site, "t", "g");
    group.make(&json!({"from": "earliest", "maxAttempts": 2}));
    let value = |name: &str| metric(&site.api, name, LABELS);
    let got = group.gather(&json!({}), 6);
    assert_eq!(value("events_delivered_total"), Some(6.0));
    assert_eq!(value("events_inflight"), Some(6.0));
    group.ack(&got[1..4]);
    assert_eq!(value("events_acked_total"), Some(3.0));
    assert_eq!(value("events_inflight"), Some(3.0));
    group.nack(&got[0]);
    assert_eq!(value("events_nacked_total"), Some(1.0));
    let again = group.one(json!({}));
    assert_eq!(value("events_redelivered_total"), Some(1.0));
    assert_eq!(value("events_delivered_total"), Some(7.0));
    group.nack(&again);
    eventually("the dead letter is counted", || value("events_dead_lettered_total") == Some(1.0));
    assert_eq!(value("events_nacked_total"), Some(2.0));
    assert_eq!(value("group_lag_events"), Some(2.0));
    group.ack(&got[4..]);
    eventually("the lag is gone", || value("group_lag_events") == Some(0.0));
    assert_eq!(value("events_inflight"), Some(0.0));
    assert_eq!(value("group_lag_ms"), Some(0.0));
    // What is repeated or refused does not count again.
    group.ack(&got[4..]);
    group.accepted(&acks(&got[..1]));
    assert_eq!(value("events_acked_total"), Some(5.0));
}

#[test]
fn times_of_deliveries_are_measured() {
    let site = Site::start();
    publish(&site.api, "t", 0..4);
    let group = Group::of(&site, "t", "g");
    group.consume(&json!({"from": "earliest"}), 4);
    for name in ["delivery_latency_ms", "subscribe_poll_duration_ms", "delivery_handler_duration_ms"] {
        let count = metric(&site.api, &format!("{name}_count"), &[]);
        assert!(count.is_some_and(|count| count >= 1.0), "{name}: {count:?}");
        assert!(metric(&site.api, &format!("{name}_bucket"), &[("le", "+Inf")]).is_some(), "{name}");
        assert!(metric(&site.api, &format!("{name}_sum"), &[]).is_some(), "{name}");
    }
    let text = site.api.get("/metrics").text().to_owned();
    for (name, kind) in [
        ("events_delivered_total", "counter"),
        ("events_inflight", "gauge"),
        ("events_acked_total", "counter"),
        ("group_lag_events", "gauge"),
        ("group_lag_ms", "gauge"),
        ("delivery_latency_ms", "histogram"),
    ] {
        assert!(text.contains(&format!("# TYPE {name} {kind}")), "{name}");
    }
}

#[test]
fn the_metrics_of_a_group_that_is_gone_are_gone() {
    let site = Site::start();
    publish(&site.api, "t", 0..2);
    let group = Group::of(&site, "t", "g");
    group.gather(&json!({"from": "earliest"}), 2);
    group.delete();
    for name in ["events_inflight", "group_lag_events"] {
        let value = metric(&site.api, name, LABELS);
        assert!(value.is_none_or(|value| value == 0.0), "{name}: {value:?}");
    }
}

/// The object in which a field has this value, wherever it is.
fn find<'a>(value: &'a Value, name: &str, wanted: &str) -> Option<&'a Value> {
    match value {
        Value::Object(fields) if fields.get(name).is_some_and(|field| field == wanted) => Some(value),
        Value::Object(fields) => fields.values().find_map(|field| find(field, name, wanted)),
        Value::Array(items) => items.iter().find_map(|item| find(item, name, wanted)),
        _ => None,
    }
}

#[test]
fn ops_tells_of_groups_with_lag_members_and_assignments() {
    let site = Site::start();
    site.api.make("t", 3);
    publish_spread(&site.api, "t", 3, 2);
    let group = Group::of(&site, "t", "consumers");
    let got = group.gather(&json!({"from": "earliest", "mode": "partitioned", "member": "worker-1"}), 6);
    group.ack(&got[..1]);
    let ops = site.api.get("/ops").is(200);
    for name in ["topics", "groups", "store"] {
        assert!(!ops[name].is_null(), "no {name} in {ops}");
    }
    let found = find(&ops["groups"], "group", "consumers").unwrap_or_else(|| panic!("no group in {ops}"));
    let text = found.to_string();
    assert!(text.contains("\"lag\"") && text.contains("\"members\"") && text.contains("worker-1"), "{text}");
    assert!(ops["topics"].to_string().contains("\"t\""), "{ops}");
    // What is settled meanwhile shows.
    group.ack(&got);
    group.accepted(&nack(&got[0], &json!({})));
    assert!(site.api.get("/ops").is(200)["groups"].to_string().contains("\"lag\":0"));
}
