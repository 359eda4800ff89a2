//! Changing a group: its options while it is consumed, and what a reset would deliver.

use crate::contract_support::{Answer, Call, Site, fields};
use crate::groups_support::{Group, attempt, eventually, numbers, publish, publish_spread, sorted_numbers};
use crate::ws_support::Socket;
use serde_json::{Value, json};

#[track_caller]
fn patch(group: &Group, change: &Value) -> Answer {
    let (path, body) = (group.path(""), change.to_string());
    let call = Call::new("PATCH", &path).header("content-type", "application/json").body(body.as_bytes());
    group.api.call(&call)
}

#[test]
fn options_change_for_good() {
    let mut site = Site::start();
    publish(&site.api, "t", 0..3);
    let group = Group::of(&site, "t", "g");
    group.make(&json!({"from": "earliest", "maxAttempts": 5}));
    let change = json!({"ackTimeoutMs": 1234, "maxAttempts": 9, "backoffMs": 7, "filter": "event.payload.n > 0",
        "normalize": false, "ackWindow": 50, "memberTtlMs": 777});
    let answer = patch(&group, &change).is(200);
    for (name, value) in change.as_object().unwrap() {
        assert_eq!(&answer["options"][name], value, "{name}: {answer}");
    }
    let status = group.status();
    assert_eq!(
        (&answer["options"], &answer["topic"], &answer["group"]),
        (&status["options"], &json!("t"), &json!("g"))
    );
    assert_eq!(fields(&answer), fields(&status), "it answers as GET does");
    site.crash();
    let group = Group::of(&site, "t", "g");
    assert_eq!(group.status()["options"], answer["options"], "kill -9 takes nothing back");
    let got = group.gather(&json!({}), 2);
    assert_eq!(sorted_numbers(&got), [1, 2]);
    assert!(got.iter().all(|one| one["ctx"]["maxAttempts"] == 9), "{got:?}");
    let both = json!({"max_attempts": 4, "ack_timeout_ms": 2000});
    let answer = patch(&group, &both).is(200);
    assert_eq!(
        (&answer["options"]["maxAttempts"], &answer["options"]["ackTimeoutMs"]),
        (&json!(4), &json!(2000))
    );
    let answer = patch(&group, &json!({"filter": null})).is(200);
    assert_eq!(answer["options"]["filter"], Value::Null);
    assert_eq!(patch(&group, &json!({})).is(200)["options"], answer["options"], "nothing is no change");
}

#[test]
fn what_cannot_be_changed_is_refused_and_changes_nothing() {
    let site = Site::start();
    publish(&site.api, "t", 0..1);
    let group = Group::of(&site, "t", "g");
    group.make(&json!({}));
    let before = group.status()["options"].clone();
    for (name, value) in [
        ("mode", json!("partitioned")),
        ("ordering", json!("none")),
        ("from", json!("earliest")),
        ("nope", json!(1)),
    ] {
        let mut change = json!({"maxAttempts": 9});
        change[name] = value;
        let error = patch(&group, &change).fails(400, "bad_request");
        let message = error["message"].as_str().unwrap();
        assert!(
            message.contains(name) && message.contains("ackTimeoutMs") && message.contains("memberTtlMs"),
            "{message}"
        );
    }
    patch(&group, &json!({"maxAttempts": 9, "filter": "event."})).fails(400, "bad_filter");
    patch(&group, &json!({"maxAttempts": 9, "ackWindow": 0})).fails(400, "bad_request");
    patch(&group, &json!({"maxAttempts": 9, "max_attempts": 9})).fails(400, "bad_request");
    patch(&group, &json!([])).fails(400, "bad_request");
    assert_eq!(group.status()["options"], before);
    patch(&Group::of(&site, "t", "none"), &json!({})).fails(404, "not_found");
    patch(&Group::of(&site, "none", "g"), &json!({})).fails(404, "not_found");
    // Who names options when consuming must name those that there are.
    patch(&group, &json!({"maxAttempts": 9})).is(200);
    group.post("/pull", &json!({"maxAttempts": 5})).fails(409, "group_options");
    group.post("/pull", &json!({"maxAttempts": 9})).is(200);
}

#[test]
fn a_subscriber_goes_on_by_the_new_options() {
    let site = Site::start();
    let group = Group::of(&site, "t", "g");
    let mut line = Socket::open(&site.api);
    line.subscribe("t", "g", json!({"from": "earliest", "maxAttempts": 3, "filter": "event.payload.n < 2"}));
    publish(&site.api, "t", 0..2);
    let first = line.events(2);
    patch(&group, &json!({"maxAttempts": 7, "filter": "event.payload.n > 3"})).is(200);
    line.ack(&first);
    publish(&site.api, "t", 2..6);
    let later = line.events(2);
    assert_eq!(numbers(&later), [4, 5]);
    assert!(later.iter().all(|one| one["ctx"]["maxAttempts"] == 7), "{later:?}");
    line.ack(&later);
    group.is_done();
}

#[test]
fn fewer_attempts_count_from_the_next_failure_on() {
    let site = Site::start();
    publish(&site.api, "t", 0..1);
    let group = Group::of(&site, "t", "g");
    group.make(&json!({"from": "earliest", "maxAttempts": 10, "backoffMs": 0}));
    for _ in 0..3 {
        group.nack(&group.one(json!({})));
    }
    patch(&group, &json!({"maxAttempts": 2})).is(200);
    let last = group.one(json!({}));
    assert_eq!(attempt(&last), 4);
    group.nack(&last);
    eventually("it is a dead letter", || site.api.get("/v1/dlq/t").is(200)["count"] == 1);
}

#[test]
fn a_dry_run_tells_what_a_reset_would_deliver() {
    let site = Site::start();
    site.api.make("t", 2);
    publish_spread(&site.api, "t", 2, 5);
    let group = Group::of(&site, "t", "g");
    group.make(&json!({"from": "earliest"}));
    group.consume(&json!({}), 10);
    let before = site.api.get(&group.path("/cursor")).is(200);
    let events = |answer: &Value| -> Vec<(u64, u64)> {
        let of = |one: &Value| (one["partition"].as_u64().unwrap(), one["events"].as_u64().unwrap());
        answer["partitions"].as_array().unwrap().iter().map(of).collect()
    };
    for (mut body, expected) in [
        (json!({"from": "earliest"}), vec![(0, 5), (1, 5)]),
        (json!({"from": "latest"}), vec![(0, 0), (1, 0)]),
        (json!({"from": "offset", "offset": 2, "partition": 1}), vec![(1, 3)]),
        (json!({"from": "ts", "ts": 0}), vec![(0, 5), (1, 5)]),
    ] {
        for name in ["dry_run", "dryRun"] {
            body[name] = json!(true);
            let put = group.set_cursor(&body).is(200);
            assert_eq!(events(&put), expected, "{put}");
            assert_eq!(put["events"], json!(expected.iter().map(|(_, events)| events).sum::<u64>()));
            assert_eq!((&put["dry_run"], &put["exact"]), (&json!(true), &json!(true)));
            assert_eq!(group.post("/cursor", &body).is(200), put, "POST says the same");
            body.as_object_mut().unwrap().remove(name);
        }
    }
    assert_eq!(site.api.get(&group.path("/cursor")).is(200), before, "nothing has changed");
    patch(&group, &json!({"filter": "event.payload.n < 3"})).is(200);
    let told = group.post("/cursor", &json!({"from": "earliest", "dry_run": true})).is(200);
    group.post("/cursor", &json!({"from": "earliest"})).is(200);
    let count = usize::try_from(told["events"].as_u64().unwrap()).unwrap();
    assert_eq!(sorted_numbers(&group.consume(&json!({}), count)), [0, 1, 2], "{told}");
    group.is_done();
    group
        .set_cursor(&json!({"from": "offset", "offset": 99, "partition": 0, "dry_run": true}))
        .fails(400, "bad_request");
}
