//! Groups over the WebSocket: who gets what, and when.

use crate::contract_support::{Site, fields};
use crate::groups_support;
use crate::groups_support::{
    Group, attempt, number, numbered, numbers, publish, publish_keys, publish_spread, since, sorted_numbers,
};
use crate::ws_support::{Heard, MOMENT, Socket};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Instant;

fn site() -> (Site, Socket) {
    let site = Site::start();
    let socket = Socket::open(&site.api);
    (site, socket)
}

fn subscribe(topic: &str, group: &str, opts: Value) -> Value {
    json!({"op": "SUBSCRIBE", "topic": topic, "group": group, "opts": opts})
}

/// One of the frames that have nothing but a group.
fn of_group(op: &str, topic: &str, group: &str) -> Value {
    json!({"op": op, "topic": topic, "group": group})
}

#[test]
fn a_subscriber_gets_what_is_there_and_then_what_comes() {
    let (site, mut socket) = site();
    publish(&site.api, "t", 0..3);
    socket.subscribe("t", "g", json!({"from": "earliest"}));
    assert_eq!(numbers(&socket.events(3)), [0, 1, 2]);
    publish(&site.api, "t", 3..5);
    assert_eq!(numbers(&socket.events(2)), [3, 4]);
    socket.publish("t", 5..6);
    assert_eq!(number(&socket.event()), 5);
    socket.is_quiet();
}

#[test]
fn a_delivery_has_the_event_and_its_lease() {
    let (site, mut socket) = site();
    let body =
        json!({"payload": {"n": 0}, "key": "k", "headers": {"x-a": "b"}, "tags": ["a"], "sid": "s", "ts": 5});
    site.api.events("t", &body.to_string()).is(201);
    let options = json!({"from": "earliest", "maxAttempts": 7, "ackTimeoutMs": 5000});
    socket.subscribe("t", "g", options);
    let frame = socket.event();
    assert_eq!(fields(&frame), ["ctx", "event", "group", "op", "topic"]);
    assert_eq!((&frame["topic"], &frame["group"]), (&json!("t"), &json!("g")));
    assert_eq!(frame["event"], site.api.all("t", "")[0]);
    let ctx = &frame["ctx"];
    assert_eq!((&ctx["attempt"], &ctx["maxAttempts"]), (&json!(1), &json!(7)));
    let left = ctx["ack_deadline_ms"].as_u64().unwrap();
    assert!((1..=5000).contains(&left), "{ctx}");
}

#[test]
fn a_new_group_starts_at_the_latest_unless_told() {
    let (site, mut socket) = site();
    publish(&site.api, "t", 0..3);
    socket.subscribe("t", "g", json!({}));
    socket.ok(json!({"op": "SUBSCRIBE", "topic": "t", "group": "h"}));
    socket.is_quiet();
    publish(&site.api, "t", 3..4);
    let got = socket.events(2);
    assert_eq!(numbers(&got), [3, 3]);
    let groups: BTreeSet<&str> = got.iter().map(|one| one["group"].as_str().unwrap()).collect();
    assert_eq!(groups, BTreeSet::from(["g", "h"]));
}

#[test]
fn a_subscribe_makes_topic_and_group_with_its_options() {
    let (site, mut socket) = site();
    let options = json!({
        "from": "earliest", "mode": "shared", "ordering": "none", "ackTimeoutMs": 1234, "maxAttempts": 3,
        "backoffMs": 7, "filter": "event.payload.n > 0", "ackWindow": 500
    });
    let mut opts = options.clone();
    opts["member"] = json!("me");
    opts["batchSize"] = json!(7);
    opts["maxInFlight"] = json!(9);
    socket.subscribe("t", "g", opts);
    assert_eq!(site.api.get("/v1/topics/t").status, 200);
    let status = Group::of(&site, "t", "g").status();
    for name in ["mode", "ordering", "ackTimeoutMs", "maxAttempts", "backoffMs", "filter", "ackWindow"] {
        assert_eq!(status["options"][name], options[name], "{name} in {status}");
    }
    assert!(status["members"].to_string().contains("\"me\""), "{status}");
    publish(&site.api, "t", 0..3);
    assert_eq!(numbers(&socket.events(2)), [1, 2]);
}

#[test]
fn differing_options_are_refused_and_absent_ones_are_not() {
    let (site, mut socket) = site();
    Group::of(&site, "t", "g").make(&json!({"from": "earliest", "maxAttempts": 3, "ordering": "none"}));
    publish(&site.api, "t", 0..1);
    socket.fails(subscribe("t", "g", json!({"maxAttempts": 4})), "group_options");
    socket.fails(subscribe("t", "g", json!({"ordering": "key"})), "group_options");
    socket.fails(subscribe("t", "g", json!({"filter": "true"})), "group_options");
    // A failed call is no subscription.
    socket.fails(of_group("UNSUBSCRIBE", "t", "g"), "not_subscribed");
    // Where it started is of no account any more.
    socket.ok(subscribe("t", "g", json!({"from": "latest", "maxAttempts": 3})));
    assert_eq!(number(&socket.event()), 0);
}

#[test]
fn a_second_subscription_of_a_connection_is_refused() {
    let (site, mut socket) = site();
    socket.subscribe("t", "g", json!({}));
    socket.fails(subscribe("t", "g", json!({})), "already_subscribed");
    socket.fails(json!({"op": "SUBSCRIBE", "topics": ["u", "t"], "group": "g"}), "already_subscribed");
    socket.subscribe("t", "h", json!({}));
    let mut other = Socket::open(&site.api);
    other.subscribe("t", "g", json!({}));
    socket.ok(of_group("UNSUBSCRIBE", "t", "g"));
    socket.subscribe("t", "g", json!({}));
}

#[test]
fn what_needs_a_subscription_is_refused_without_one() {
    let (site, mut socket) = site();
    publish(&site.api, "t", 0..1);
    let mut other = Socket::open(&site.api);
    other.subscribe("t", "g", json!({"from": "earliest"}));
    let held = other.event();
    for op in ["UNSUBSCRIBE", "PAUSE", "RESUME"] {
        socket.fails(of_group(op, "t", "g"), "not_subscribed");
        socket.fails(of_group(op, "none", "g"), "not_subscribed");
    }
    for op in ["ACK", "NACK", "MODACK"] {
        let mut frame = of_group(op, "t", "g");
        frame["id"] = held["event"]["id"].clone();
        if op == "MODACK" {
            frame["extend_ms"] = json!(1000);
        }
        socket.fails(frame, "not_subscribed");
    }
    other.ack(&[held]);
}

#[test]
fn one_call_subscribes_a_group_on_several_topics() {
    let (site, mut socket) = site();
    publish(&site.api, "a", 0..2);
    publish(&site.api, "b", 10..12);
    let opts = json!({"from": "earliest"});
    socket.ok(json!({"op": "SUBSCRIBE", "topics": ["a", "b", "c"], "group": "g", "opts": opts}));
    let got = socket.events(4);
    assert_eq!(sorted_numbers(&got), [0, 1, 10, 11]);
    for one in &got {
        assert_eq!(one["topic"], if number(one) < 10 { "a" } else { "b" }, "{one}");
        assert_eq!(one["group"], "g");
    }
    socket.ack(&got);
    socket.publish("c", 20..21);
    assert_eq!((number(&socket.event()), site.api.get("/v1/topics/c").status), (20, 200));
    // Each is left on its own.
    socket.ok(of_group("UNSUBSCRIBE", "a", "g"));
    publish(&site.api, "a", 2..3);
    publish(&site.api, "b", 12..13);
    assert_eq!(number(&socket.event()), 12);
    socket.is_quiet();
    Group::of(&site, "a", "g").one(json!({}));
}

#[test]
fn batches_come_as_one_frame() {
    let (site, mut socket) = site();
    publish(&site.api, "t", 0..10);
    socket.subscribe(
        "t",
        "g",
        json!({"from": "earliest", "batch": true, "batchSize": 4, "ordering": "none"}),
    );
    let mut all = Vec::new();
    while all.len() < 10 {
        let frame = socket.next_frame();
        assert_eq!(
            (&frame["op"], &frame["topic"], &frame["group"]),
            (&json!("EVENTS"), &json!("t"), &json!("g"))
        );
        let part = frame["deliveries"].as_array().unwrap().clone();
        assert!(part.len() <= 4, "{frame}");
        all.extend(part);
    }
    assert_eq!(numbers(&all), (0..10).collect::<Vec<_>>());
    assert!(all.iter().all(|one| attempt(one) == 1), "{all:?}");
    let ids: Vec<&Value> = all.iter().map(|one| &one["event"]["id"]).collect();
    socket.ok(json!({"op": "ACK", "topic": "t", "group": "g", "ids": ids}));
    Group::of(&site, "t", "g").is_done();
    // One that comes alone is a batch, too.
    publish(&site.api, "t", 10..11);
    assert_eq!(socket.next_frame()["op"], "EVENTS");
}

#[test]
fn a_filter_drops_what_it_does_not_match() {
    let (site, mut socket) = site();
    publish(&site.api, "t", 0..10);
    socket.fails(subscribe("t", "bad", json!({"filter": "event.payload.n >"})), "bad_filter");
    socket.subscribe("t", "g", json!({"from": "earliest", "filter": "event.payload.n % 3 == 0"}));
    let got = socket.events(4);
    assert_eq!(numbers(&got), [0, 3, 6, 9]);
    socket.ack(&got);
    Group::of(&site, "t", "g").is_done();
}

#[test]
fn a_start_may_be_an_id_or_a_time() {
    let (site, mut socket) = site();
    let events: Vec<Value> = (0..5).map(|n| json!({"payload": {"n": n}, "ts": 1000 + n})).collect();
    let told = groups_support::publish_all(&site.api, "t", &events);
    socket.subscribe("t", "a", json!({"from": "afterId", "afterId": told[2]["id"]}));
    assert_eq!(numbers(&socket.events(2)), [3, 4]);
    socket.subscribe("t", "b", json!({"from": "ts", "ts": 1002}));
    assert_eq!(numbers(&socket.events(3)), [2, 3, 4]);
    socket.is_quiet();
}

#[test]
fn no_more_than_max_in_flight_are_out_until_some_are_acked() {
    let (site, mut socket) = site();
    publish(&site.api, "t", 0..10);
    socket.subscribe("t", "g", json!({"from": "earliest", "maxInFlight": 3}));
    let mut held = socket.events(3);
    assert_eq!(numbers(&held), [0, 1, 2]);
    socket.is_quiet();
    let middle = held.remove(1);
    socket.ack(&[middle]);
    held.push(socket.event());
    assert_eq!(numbers(&held), [0, 2, 3]);
    socket.is_quiet();
    socket.ack(&held);
    assert_eq!(numbers(&socket.events(3)), [4, 5, 6]);
    socket.is_quiet();
}

#[test]
fn max_in_flight_holds_for_batches_too() {
    let (site, mut socket) = site();
    publish(&site.api, "t", 0..10);
    socket.subscribe("t", "g", json!({"from": "earliest", "maxInFlight": 3, "batch": true}));
    let mut held: Vec<Value> = Vec::new();
    while held.len() < 3 {
        held.extend(socket.next_frame()["deliveries"].as_array().unwrap().iter().cloned());
    }
    assert_eq!(numbers(&held), [0, 1, 2]);
    socket.is_quiet();
}

#[test]
fn each_subscription_has_its_own_max_in_flight() {
    let (site, mut socket) = site();
    publish(&site.api, "t", 0..10);
    socket.subscribe("t", "g", json!({"from": "earliest", "maxInFlight": 2}));
    socket.events(2);
    socket.subscribe("t", "h", json!({"from": "earliest", "maxInFlight": 4}));
    assert_eq!(numbers(&socket.events(4)), [0, 1, 2, 3]);
    socket.is_quiet();
}

#[test]
fn two_connections_share_a_group_and_no_event_goes_to_both() {
    let (site, mut one) = site();
    let mut two = Socket::open(&site.api);
    for socket in [&mut one, &mut two] {
        socket.subscribe("t", "g", json!({"from": "earliest", "maxInFlight": 25, "ordering": "none"}));
    }
    publish(&site.api, "t", 0..50);
    // Each may hold 25, so both have to take part.
    let (first, second) = (one.events(25), two.events(25));
    let all: Vec<Value> = first.iter().chain(&second).cloned().collect();
    assert_eq!(sorted_numbers(&all), (0..50).collect::<Vec<_>>());
    assert!(all.iter().all(|one| attempt(one) == 1));
    one.ack(&first);
    two.ack(&second);
    Group::of(&site, "t", "g").is_done();
    one.is_quiet();
    two.is_quiet();
}

#[test]
fn events_of_a_key_come_one_after_another_over_all_connections() {
    let (site, mut one) = site();
    let mut two = Socket::open(&site.api);
    one.subscribe("t", "g", json!({"from": "earliest", "ordering": "key", "maxInFlight": 1}));
    publish_keys(&site.api, "t", 0, &["a", "a", "b", "a", "b"]);
    let a0 = one.event();
    assert_eq!(number(&a0), 0);
    two.subscribe("t", "g", json!({}));
    let b2 = two.event();
    assert_eq!(number(&b2), 2);
    two.is_quiet();
    two.ack(&[b2]);
    assert_eq!(number(&two.event()), 4);
    two.is_quiet();
    one.ack(&[a0]);
}

#[test]
fn a_key_never_overtakes_itself_on_another_connection() {
    let site = Site::start();
    let keys: Vec<&str> = (0..60).map(|n| ["a", "b", "c"][n % 3]).collect();
    publish_keys(&site.api, "t", 0, &keys);
    Group::of(&site, "t", "g").make(&json!({"from": "earliest", "ordering": "key"}));
    let seen = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut socket = Socket::open(&site.api);
                socket.send(subscribe("t", "g", json!({"maxInFlight": 2})));
                while seen.lock().unwrap().len() < 60 {
                    let Some(Heard::Text(text)) = socket.hear(MOMENT) else { continue };
                    let frame: Value = serde_json::from_str(&text).unwrap();
                    assert_eq!((&frame["op"], attempt(&frame)), (&json!("EVENT"), 1), "{frame}");
                    // The next of its key can come only after this ack, so what is seen is in order.
                    seen.lock().unwrap().push(number(&frame));
                    let id = &frame["event"]["id"];
                    socket.send(json!({"op": "ACK", "topic": "t", "group": "g", "id": id}));
                }
                socket.ok(of_group("UNSUBSCRIBE", "t", "g"));
            });
        }
    });
    let seen = seen.into_inner().unwrap();
    for key in 0..3 {
        let of_key: Vec<u64> = seen.iter().copied().filter(|n| n % 3 == key).collect();
        assert_eq!(of_key, (key..60).step_by(3).collect::<Vec<_>>());
    }
    Group::of(&site, "t", "g").is_done();
}

#[test]
fn polling_and_connected_members_share_a_group() {
    let (site, mut socket) = site();
    let group = Group::of(&site, "t", "g");
    publish(&site.api, "t", 0..20);
    socket.subscribe("t", "g", json!({"from": "earliest", "maxInFlight": 5, "ordering": "none"}));
    let held = socket.events(5);
    let pulled = group.gather(&json!({"member": "poller", "max": 15}), 15);
    let all: Vec<Value> = held.iter().chain(&pulled).cloned().collect();
    assert_eq!(sorted_numbers(&all), (0..20).collect::<Vec<_>>());
    assert_eq!(group.partition(0)["in_flight"], 20);
    socket.ack(&held);
    group.ack(&pulled);
    group.is_done();
    socket.is_quiet();
}

#[test]
fn a_paused_subscription_gets_nothing_and_keeps_what_it_holds() {
    let (site, mut socket) = site();
    socket.subscribe("t", "g", json!({"from": "earliest", "ackTimeoutMs": 30000}));
    socket.publish("t", 0..1);
    let held = socket.event();
    socket.ok(of_group("PAUSE", "t", "g"));
    socket.ok(of_group("PAUSE", "t", "g"));
    socket.publish("t", 1..4);
    socket.is_quiet();
    socket.ack(&[held]);
    socket.is_quiet();
    // Others get it meanwhile.
    let mut other = Socket::open(&site.api);
    other.subscribe("t", "g", json!({"maxInFlight": 2}));
    let taken = other.events(2);
    assert_eq!(numbers(&taken), [1, 2]);
    socket.ok(of_group("RESUME", "t", "g"));
    assert_eq!(number(&socket.event()), 3);
    socket.ok(of_group("RESUME", "t", "g"));
    other.ack(&taken);
    socket.publish("t", 4..5);
}

#[test]
fn a_pause_is_of_one_subscription_only() {
    let (site, mut socket) = site();
    for group in ["g", "h"] {
        socket.subscribe("t", group, json!({}));
    }
    socket.ok(of_group("PAUSE", "t", "g"));
    publish(&site.api, "t", 0..2);
    assert!(socket.events(2).iter().all(|one| one["group"] == "h"));
    socket.is_quiet();
}

#[test]
fn a_subscription_that_ends_frees_its_leases_and_counts_nothing() {
    let (site, mut socket) = site();
    publish(&site.api, "t", 0..5);
    socket.subscribe("t", "g", json!({"from": "earliest", "ackTimeoutMs": 30000}));
    let held = socket.events(5);
    socket.ack(&held[1..2]);
    let started = Instant::now();
    socket.ok(of_group("UNSUBSCRIBE", "t", "g"));
    let mut other = Socket::open(&site.api);
    other.subscribe("t", "g", json!({}));
    let got = other.events(4);
    assert!(since(started) < 3000, "{}", since(started));
    assert_eq!(sorted_numbers(&got), [0, 2, 3, 4]);
    assert!(got.iter().all(|one| attempt(one) == 1), "{got:?}");
    publish(&site.api, "t", 5..6);
    assert_eq!(number(&other.event()), 5);
    socket.is_quiet();
    // What it held is no longer its own.
    let old = Group::of(&site, "t", "g").accepted(&groups_support::acks(&held[..1]));
    assert_eq!(old, [false]);
    other.ack(&got);
}

#[test]
fn partitions_are_told_on_every_rebalance() {
    let (site, mut one) = site();
    site.api.make("t", 8);
    let all: Vec<u64> = (0..8).collect();
    one.subscribe("t", "g", json!({"mode": "partitioned", "from": "earliest", "member": "one"}));
    assert_eq!(one.assigned(), all);
    let mut two = Socket::open(&site.api);
    two.subscribe("t", "g", json!({"member": "two"}));
    let (first, second) = (one.assigned(), two.assigned());
    let mut both: Vec<u64> = first.iter().chain(&second).copied().collect();
    both.sort_unstable();
    assert_eq!(both, all, "{first:?} {second:?}");
    assert!(!first.is_empty() && !second.is_empty(), "{first:?} {second:?}");
    let owners = Group::of(&site, "t", "g").owners();
    for (partition, owner) in owners.iter().enumerate() {
        let of_first = first.contains(&(partition as u64));
        assert_eq!(owner, if of_first { "one" } else { "two" }, "{owners:?}");
    }
    publish_spread(&site.api, "t", 8, 2);
    for (socket, own) in [(&mut one, &first), (&mut two, &second)] {
        let got = socket.events(own.len() * 2);
        assert!(got.iter().all(|one| own.contains(&one["event"]["partition"].as_u64().unwrap())), "{got:?}");
        socket.ack(&got);
    }
    two.close();
    assert_eq!(one.assigned(), all);
    let mut three = Socket::open(&site.api);
    three.subscribe("t", "g", json!({"member": "three"}));
    let (first, third) = (one.assigned(), three.assigned());
    assert_eq!(first.len() + third.len(), 8);
    three.ok(of_group("UNSUBSCRIBE", "t", "g"));
    assert_eq!(one.assigned(), all);
    one.is_quiet();
}

#[test]
fn a_member_stays_as_long_as_one_of_its_connections_does() {
    let (site, mut old) = site();
    site.api.make("t", 4);
    let opts = json!({"mode": "partitioned", "from": "earliest", "member": "m", "maxInFlight": 1});
    old.subscribe("t", "g", opts);
    assert_eq!(old.assigned(), [0, 1, 2, 3]);
    publish_spread(&site.api, "t", 4, 1);
    let lost = old.event();
    let mut new = Socket::open(&site.api);
    new.subscribe("t", "g", json!({"member": "m", "maxInFlight": 2}));
    assert_eq!(new.assigned(), [0, 1, 2, 3], "it is the same member");
    let kept = new.event();
    new.is_quiet();
    old.close();
    // The other one keeps its partitions and what it has, and there is room for one more.
    let more = new.event();
    new.is_quiet();
    assert_eq!(Group::of(&site, "t", "g").owners(), ["m"; 4]);
    new.ack(&[kept.clone(), more.clone()]);
    let rest = new.events(2);
    new.ack(&rest);
    let all: Vec<Value> = [kept, more].into_iter().chain(rest).collect();
    let attempts = |one: &Value| (one["event"]["id"] == lost["event"]["id"], attempt(one));
    let mut seen: Vec<(bool, u64)> = all.iter().map(attempts).collect();
    seen.sort_unstable();
    assert_eq!(seen, [(false, 1), (false, 1), (false, 1), (true, 2)], "{all:?}");
    Group::of(&site, "t", "g").is_done();
    new.is_quiet();
}

#[test]
fn partitions_of_connections_without_a_name_are_shared_out_too() {
    let (site, mut one) = site();
    site.api.make("t", 32);
    one.subscribe("t", "g", json!({"mode": "partitioned"}));
    assert_eq!(one.assigned().len(), 32);
    let mut two = Socket::open(&site.api);
    two.subscribe("t", "g", json!({}));
    let (first, second) = (one.assigned(), two.assigned());
    assert_eq!(first.len() + second.len(), 32);
    assert!(!first.is_empty() && !second.is_empty());
    drop(two);
    assert_eq!(one.assigned().len(), 32);
}

#[test]
fn a_shared_group_hears_of_no_partitions() {
    let (site, mut one) = site();
    site.api.make("t", 4);
    one.subscribe("t", "g", json!({}));
    let mut two = Socket::open(&site.api);
    two.subscribe("t", "g", json!({}));
    one.is_quiet();
    two.is_quiet();
}

#[test]
fn a_partition_that_moves_is_fenced_and_counts_nothing() {
    let (site, mut one) = site();
    site.api.make("t", 16);
    one.subscribe("t", "g", json!({"mode": "partitioned", "from": "earliest"}));
    assert_eq!(one.assigned().len(), 16);
    publish_spread(&site.api, "t", 16, 1);
    let held = one.events(16);
    let mut two = Socket::open(&site.api);
    two.subscribe("t", "g", json!({}));
    let (kept, moved) = (one.assigned(), two.assigned());
    let got = two.events(moved.len());
    assert!(got.iter().all(|one| attempt(one) == 1), "{got:?}");
    for partition in moved {
        let old = numbered(&held, partition);
        let frame = json!({"op": "ACK", "topic": "t", "group": "g", "lease": groups_support::lease(old)});
        one.fails(frame, "lease_expired");
        let answer = one.ask(json!({"op": "ACK", "topic": "t", "group": "g", "id": old["event"]["id"]}));
        assert!(matches!(answer["code"].as_str(), Some("unknown_id" | "lease_expired")), "{answer}");
    }
    for partition in kept {
        one.ack(std::slice::from_ref(numbered(&held, partition)));
    }
    two.ack(&got);
    Group::of(&site, "t", "g").is_done();
}

#[test]
fn a_waiting_subscriber_gets_an_event_at_once() {
    let (site, mut socket) = site();
    socket.subscribe("t", "g", json!({}));
    let mut times: Vec<u128> = (0..11)
        .map(|n| {
            let started = Instant::now();
            publish(&site.api, "t", n..n + 1);
            assert_eq!(number(&socket.event()), n);
            since(started)
        })
        .collect();
    times.sort_unstable();
    // A hub that polled would take far longer.
    assert!(times[5] < 150, "{times:?}");
}

#[test]
fn deliveries_and_redeliveries_are_counted() {
    let (site, mut socket) = site();
    publish(&site.api, "t", 0..3);
    socket.subscribe("t", "g", json!({"from": "earliest"}));
    let got = socket.events(3);
    socket.ack(&got[..2]);
    socket.ok(json!({"op": "NACK", "topic": "t", "group": "g", "id": got[2]["event"]["id"]}));
    let again = socket.event();
    socket.ack(&[again]);
    let count = |name| groups_support::metric(&site.api, name, &[("topic", "t"), ("group", "g")]);
    assert_eq!(count("events_delivered_total"), Some(4.0));
    assert_eq!(count("events_acked_total"), Some(3.0));
    assert_eq!(count("events_nacked_total"), Some(1.0));
    assert_eq!(count("events_redelivered_total"), Some(1.0));
}

#[test]
fn events_that_are_given_back_count_as_redelivered_and_not_as_late() {
    let (site, mut socket) = site();
    publish(&site.api, "t", 0..1);
    for _ in 0..3 {
        socket.subscribe("t", "g", json!({"from": "earliest"}));
        assert_eq!(socket.event()["ctx"]["attempt"], 1, "giving it back costs no attempt");
        socket.ok(of_group("UNSUBSCRIBE", "t", "g"));
    }
    let count = |name| groups_support::metric(&site.api, name, &[("topic", "t"), ("group", "g")]);
    assert_eq!(count("events_delivered_total"), Some(3.0));
    assert_eq!(count("events_redelivered_total"), Some(2.0));
    let latencies = groups_support::metric(&site.api, "delivery_latency_ms_count", &[]);
    assert_eq!(latencies, Some(1.0), "only the first delivery has a latency");
}

#[test]
fn a_deleted_group_or_topic_tells_its_subscribers() {
    let (site, mut socket) = site();
    for topic in ["t", "u"] {
        socket.subscribe(topic, "g", json!({}));
    }
    Group::of(&site, "t", "g").delete();
    site.api.delete("/v1/topics/u");
    let mut told = BTreeSet::new();
    // Each is told by an error, not by silence.
    for _ in 0..2 {
        let frame = socket.find(|frame| frame["op"] == "ERR");
        assert!(frame.get("corr").is_none(), "{frame}");
        told.insert(frame["code"].as_str().unwrap().to_owned());
    }
    assert!(told.iter().all(|code| matches!(code.as_str(), "not_found" | "gone")), "{told:?}");
}
