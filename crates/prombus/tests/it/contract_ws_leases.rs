//! Leases over the WebSocket: how they are settled, and what becomes of them when the line, or the hub, breaks.

use crate::common;
use crate::contract_support::Site;
use crate::groups_support;
use crate::groups_support::{
    Group, acks, attempt, eventually, lease, number, numbered, numbers, publish, since, sorted_numbers,
};
use crate::ws_support;
use crate::ws_support::{Heard, Socket, bare_frame};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// The first byte of a frame that is text, and whole.
const FINAL_TEXT: u8 = 0x81;

/// A site with a connection that holds so many events of `t`, and a second connection.
fn holding(count: u64, mut opts: Value) -> (Site, Socket, Socket, Vec<Value>) {
    let site = Site::start();
    publish(&site.api, "t", 0..count);
    let mut socket = Socket::open(&site.api);
    opts["from"] = json!("earliest");
    socket.subscribe("t", "g", opts);
    let held = socket.events(usize::try_from(count).unwrap());
    let other = Socket::open(&site.api);
    (site, socket, other, held)
}

/// A frame that settles something of the group.
fn settle(op: &str, more: Value) -> Value {
    let mut frame = json!({"op": op, "topic": "t", "group": "g"});
    frame.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    frame
}

fn id(delivery: &Value) -> Value {
    delivery["event"]["id"].clone()
}

fn ids(deliveries: &[Value]) -> Value {
    deliveries.iter().map(id).collect()
}

fn leases(deliveries: &[Value]) -> Value {
    deliveries.iter().map(lease).collect()
}

/// The dead letters of `t`.
fn dead(site: &Site) -> Vec<Value> {
    let answer = site.api.page("dlq.t", "");
    if answer.status == 404 { Vec::new() } else { answer.is(200)["events"].as_array().unwrap().clone() }
}

#[test]
fn acks_settle_by_id_ids_lease_and_leases() {
    let (site, mut socket, mut other, held) = holding(6, json!({}));
    socket.ok(settle("ACK", json!({"id": id(&held[0])})));
    socket.ok(settle("ACK", json!({"ids": ids(&held[1..3])})));
    socket.ok(settle("ACK", json!({"lease": lease(&held[3])})));
    socket.ok(settle("ACK", json!({"leases": leases(&held[4..])})));
    let group = Group::of(&site, "t", "g");
    assert_eq!(
        (group.partition(0)["next"].clone(), group.partition(0)["in_flight"].clone()),
        (json!(6), json!(0))
    );
    other.subscribe("t", "g", json!({}));
    other.is_quiet();
    socket.is_quiet();
}

#[test]
fn acks_settle_what_came_in_a_batch() {
    let site = Site::start();
    publish(&site.api, "t", 0..4);
    let mut socket = Socket::open(&site.api);
    socket.subscribe("t", "g", json!({"from": "earliest", "batch": true}));
    let mut held: Vec<Value> = Vec::new();
    while held.len() < 4 {
        held.extend(socket.next_frame()["deliveries"].as_array().unwrap().iter().cloned());
    }
    socket.ok(settle("ACK", json!({"ids": ids(&held[..2])})));
    socket.ok(settle("ACK", json!({"leases": leases(&held[2..])})));
    Group::of(&site, "t", "g").is_done();
}

/// They go to the group together, and each is answered for itself.
#[test]
fn frames_that_come_at_once_are_answered_each_for_itself() {
    let (site, mut socket, _other, held) = holding(7, json!({"maxAttempts": 5}));
    // Of nobody that is there.
    let spent = "0-1-0-0".to_owned();
    let frames = [
        (settle("ACK", json!({"lease": lease(&held[0])})), "OK"),
        (settle("ACK", json!({"lease": spent})), "ERR"),
        (settle("ACK", json!({"leases": [lease(&held[1]), spent]})), "ERR"),
        (settle("NACK", json!({"lease": lease(&held[2]), "delay_ms": 3_600_000})), "OK"),
        (json!({"op": "ACK", "topic": "t", "group": "other", "lease": lease(&held[3])}), "ERR"),
        (settle("MODACK", json!({"id": id(&held[3]), "extend_ms": 3_600_000})), "OK"),
        (settle("ACK", json!({"ids": ids(&held[4..])})), "OK"),
        (settle("ACK", json!({"id": id(&held[4])})), "ERR"),
        (settle("ACK", json!({"lease": lease(&held[4])})), "OK"),
    ];
    let mut bytes = Vec::new();
    for (n, (frame, _)) in frames.iter().enumerate() {
        let mut frame = frame.clone();
        frame["corr"] = json!(n.to_string());
        bytes.extend(bare_frame(FINAL_TEXT, true, frame.to_string().as_bytes()));
    }
    socket.bytes(&bytes);
    for (n, (frame, expected)) in frames.iter().enumerate() {
        let corr = n.to_string();
        let answer = socket.find(|answer| answer["corr"] == corr);
        assert_eq!(answer["op"], *expected, "{frame}: {answer}");
    }
    let partition = Group::of(&site, "t", "g").partition(0).clone();
    assert_eq!((&partition["next"], &partition["in_flight"]), (&json!(2), &json!(1)), "{partition}");
}

#[test]
fn repeating_a_verb_with_its_lease_is_ok_and_another_verb_is_not() {
    let (_site, mut socket, _other, held) = holding(2, json!({}));
    for _ in 0..3 {
        socket.ok(settle("ACK", json!({"lease": lease(&held[0])})));
    }
    socket.fails(settle("NACK", json!({"lease": lease(&held[0])})), "lease_expired");
    socket.fails(settle("MODACK", json!({"lease": lease(&held[0]), "extend_ms": 1000})), "lease_expired");
    let nack = settle("NACK", json!({"lease": lease(&held[1]), "delay_ms": 60000}));
    socket.ok(nack.clone());
    socket.ok(nack);
    socket.fails(settle("ACK", json!({"lease": lease(&held[1])})), "lease_expired");
}

#[test]
fn an_id_that_the_connection_does_not_hold_is_unknown() {
    let (site, mut socket, mut other, held) = holding(1, json!({}));
    let told = publish(&site.api, "u", 0..1);
    other.subscribe("t", "g", json!({}));
    for op in ["ACK", "NACK", "MODACK"] {
        let more = if op == "MODACK" { json!({"extend_ms": 1000}) } else { json!({}) };
        for one in [json!("6f2d5a3e-8c1b-4d7f-9a60-1b2c3d4e5f60"), told[0]["id"].clone()] {
            let mut frame = settle(op, more.clone());
            frame["id"] = one.clone();
            socket.fails(frame, "unknown_id");
            let mut frame = settle(op, more.clone());
            frame["ids"] = json!([one]);
            socket.fails(frame, "unknown_id");
        }
        let mut frame = settle(op, more);
        frame["id"] = id(&held[0]);
        other.fails(frame, "unknown_id");
    }
    socket.ack(&held);
}

#[test]
fn an_id_stands_for_the_lease_that_is_held_now() {
    let (_site, mut socket, _other, held) = holding(1, json!({"backoffMs": 1}));
    socket.ok(settle("NACK", json!({"id": id(&held[0])})));
    let again = socket.event();
    assert_eq!((id(&again), attempt(&again)), (id(&held[0]), 2));
    assert_ne!(lease(&again), lease(&held[0]));
    socket.fails(settle("ACK", json!({"lease": lease(&held[0])})), "lease_expired");
    socket.ok(settle("ACK", json!({"id": id(&held[0])})));
    // That was the second lease.
    socket.ok(settle("ACK", json!({"lease": lease(&again)})));
}

#[test]
fn a_lease_that_is_none_is_expired() {
    let (_site, mut socket, _other, _held) = holding(1, json!({}));
    for (op, more) in [("ACK", json!({})), ("NACK", json!({})), ("MODACK", json!({"extend_ms": 1000}))] {
        for token in ["", "nonsense", "0", "\u{1F980}"] {
            let mut frame = settle(op, more.clone());
            frame["lease"] = json!(token);
            let answer = socket.ask(frame);
            assert!(matches!(answer["code"].as_str(), Some("lease_expired" | "bad_request")), "{answer}");
        }
    }
}

#[test]
fn a_lease_may_be_settled_over_http_and_makes_room() {
    let (site, mut socket, _other, held) = holding(2, json!({"maxInFlight": 2}));
    publish(&site.api, "t", 2..4);
    socket.is_quiet();
    Group::of(&site, "t", "g").ack(&held);
    assert_eq!(numbers(&socket.events(2)), [2, 3]);
}

#[test]
fn a_nack_gives_the_event_back_at_once_the_first_time() {
    let (_site, mut socket, _other, held) = holding(4, json!({"backoffMs": 20000}));
    let started = Instant::now();
    socket.ok(settle("NACK", json!({"id": id(&held[0])})));
    socket.ok(settle("NACK", json!({"ids": ids(&held[1..2])})));
    socket.ok(settle("NACK", json!({"leases": leases(&held[2..])})));
    let again = socket.events(4);
    assert!(since(started) < 5000);
    assert_eq!(sorted_numbers(&again), [0, 1, 2, 3]);
    assert!(again.iter().all(|one| attempt(one) == 2), "{again:?}");
    // Later ones wait for the backoff.
    socket.ok(settle("NACK", json!({"id": id(&again[0])})));
    socket.is_quiet();
}

#[test]
fn a_nack_may_say_when_to_try_again() {
    let (_site, mut socket, _other, held) = holding(2, json!({}));
    let started = Instant::now();
    socket.ok(settle("NACK", json!({"id": id(&held[0]), "delay_ms": 400})));
    socket.ok(settle("NACK", json!({"lease": lease(&held[1]), "delay_ms": 60000})));
    let again = socket.event();
    assert!(since(started) >= 400, "{}", since(started));
    assert_eq!((number(&again), attempt(&again)), (0, 2));
    socket.is_quiet();
    socket.fails(settle("NACK", json!({"id": id(&again), "delay_ms": 86_400_001})), "bad_request");
    socket.ack(&[again]);
}

#[test]
fn the_reason_of_the_last_nack_is_in_the_dead_letter() {
    let (site, mut socket, _other, held) = holding(1, json!({"maxAttempts": 2, "backoffMs": 1}));
    socket.ok(settle("NACK", json!({"id": id(&held[0]), "reason": "first"})));
    let again = socket.event();
    socket.ok(settle("NACK", json!({"id": id(&again), "reason": "the disk is \"on fire\""})));
    eventually("it is dead", || !dead(&site).is_empty());
    let letters = dead(&site);
    assert_eq!(letters.len(), 1);
    let letter = &letters[0]["payload"];
    assert!(letter["err"].to_string().contains("on fire"), "{letter}");
    assert_eq!(
        (&letter["topic"], &letter["group"], &letter["attempts"]),
        (&json!("t"), &json!("g"), &json!(2))
    );
    assert_eq!(letter["original"], held[0]["event"]);
    assert_eq!(letters[0]["caused_by"], json!([id(&held[0])]));
    socket.is_quiet();
    Group::of(&site, "t", "g").is_done();
}

#[test]
fn an_expired_lease_goes_to_another_and_its_token_is_refused() {
    let (_site, mut socket, mut other, held) = holding(1, json!({"ackTimeoutMs": 300}));
    socket.ok(json!({"op": "PAUSE", "topic": "t", "group": "g"}));
    other.subscribe("t", "g", json!({}));
    let got = other.event();
    assert_eq!((number(&got), attempt(&got)), (0, 2));
    let old = json!({"lease": lease(&held[0])});
    socket.fails(settle("ACK", old.clone()), "lease_expired");
    socket.fails(settle("NACK", old.clone()), "lease_expired");
    socket.fails(settle("MODACK", json!({"lease": lease(&held[0]), "extend_ms": 1000})), "lease_expired");
    let answer = socket.ask(settle("ACK", json!({"id": id(&held[0])})));
    assert!(matches!(answer["code"].as_str(), Some("unknown_id" | "lease_expired")), "{answer}");
    other.ack(&[got]);
}

#[test]
fn a_lease_that_is_prolonged_does_not_expire() {
    let (_site, mut socket, mut other, held) = holding(5, json!({"ackTimeoutMs": 700, "ordering": "none"}));
    socket.ok(settle("MODACK", json!({"id": id(&held[0]), "extend_ms": 30000})));
    socket.ok(settle("MODACK", json!({"ids": ids(&held[1..2]), "extend_ms": 30000})));
    socket.ok(settle("MODACK", json!({"lease": lease(&held[2]), "extend_ms": 30000})));
    socket.ok(settle("MODACK", json!({"leases": leases(&held[3..4]), "extend_ms": 30000})));
    socket.ok(json!({"op": "PAUSE", "topic": "t", "group": "g"}));
    other.subscribe("t", "g", json!({}));
    // The one that was not prolonged comes when its time is up; by then the others would have, too.
    assert_eq!(number(&other.event()), 4);
    other.is_quiet();
    socket.ack(&held[..4]);
}

#[test]
fn an_expiry_makes_room_for_others() {
    let (site, mut socket, _other, _held) = holding(2, json!({"maxInFlight": 2, "ackTimeoutMs": 300}));
    publish(&site.api, "t", 2..3);
    // Whatever comes first, something has to: the two slots are free again.
    let got = socket.events(2);
    assert!(got.iter().all(|one| number(one) == 2 || attempt(one) == 2), "{got:?}");
}

/// Breaks the line of a member that holds five events, and looks at what the next one gets.
fn breaks(end: impl FnOnce(&Site, Socket)) {
    let (site, socket, mut other, held) = holding(5, json!({"ackTimeoutMs": 30000}));
    assert_eq!(numbers(&held), [0, 1, 2, 3, 4]);
    other.subscribe("t", "g", json!({}));
    let started = Instant::now();
    end(&site, socket);
    let got = other.events(5);
    assert!(since(started) < 3000, "{}", since(started));
    assert_eq!(sorted_numbers(&got), [0, 1, 2, 3, 4]);
    assert_eq!(attempt(numbered(&got, 0)), 2, "the oldest counts: {got:?}");
    for n in 1..5 {
        assert_eq!(attempt(numbered(&got, n)), 1, "only the oldest counts: {got:?}");
    }
    assert_eq!(Group::of(&site, "t", "g").accepted(&acks(&held)), [false; 5]);
    other.ack(&got);
    Group::of(&site, "t", "g").is_done();
}

#[test]
fn a_line_that_is_reset_frees_its_leases_at_once() {
    breaks(|_, mut socket| {
        // What is left unread resets the line when it is dropped.
        socket.send(json!({"op": "AUTH", "token": "x", "corr": "unread"}));
        socket.reset();
    });
}

#[test]
fn a_line_that_is_closed_without_a_word_frees_its_leases_at_once() {
    breaks(|_, socket| drop(socket));
}

#[test]
fn a_goodbye_frees_the_leases_at_once() {
    breaks(|_, socket| socket.close());
}

#[test]
fn a_protocol_error_frees_the_leases_at_once() {
    breaks(|_, mut socket| {
        socket.bytes(&[0xFF; 64]);
        socket.is_closed();
    });
}

#[test]
fn an_event_that_breaks_every_line_is_dead_in_the_end() {
    let site = Site::start();
    publish(&site.api, "t", 0..1);
    for attempts in 1..=2 {
        let mut socket = Socket::open(&site.api);
        socket.subscribe("t", "g", json!({"from": "earliest", "maxAttempts": 2, "backoffMs": 1}));
        let got = socket.event();
        assert_eq!((number(&got), attempt(&got)), (0, attempts));
    }
    eventually("it is dead", || dead(&site).len() == 1);
    assert_eq!(dead(&site)[0]["payload"]["original"]["payload"]["n"], 0);
    publish(&site.api, "t", 1..2);
    let mut socket = Socket::open(&site.api);
    socket.subscribe("t", "g", json!({}));
    assert_eq!(number(&socket.event()), 1);
}

#[test]
fn a_lost_line_counts_for_the_oldest_that_was_not_settled() {
    let (_site, mut socket, mut other, held) = holding(3, json!({}));
    socket.ack(&held[..1]);
    drop(socket);
    other.subscribe("t", "g", json!({}));
    let got = other.events(2);
    assert_eq!((attempt(numbered(&got, 1)), attempt(numbered(&got, 2))), (2, 1), "{got:?}");
}

#[test]
fn after_a_crash_acked_events_never_come_again_and_others_do() {
    let (mut site, mut socket, _other, held) = holding(10, json!({"backoffMs": 1}));
    for one in held.iter().filter(|one| number(one).is_multiple_of(2)) {
        socket.ack(std::slice::from_ref(one));
    }
    socket.ok(settle("NACK", json!({"id": id(&held[1]), "delay_ms": 60000})));
    site.crash();
    assert!(matches!(socket.hear(common::PATIENCE), Some(Heard::Lost(_))));
    let mut socket = Socket::open(&site.api);
    socket.subscribe("t", "g", json!({}));
    let got = socket.events(4);
    assert_eq!(sorted_numbers(&got), [3, 5, 7, 9]);
    // A restart voids leases, and counts nothing.
    assert!(got.iter().all(|one| attempt(one) == 1), "{got:?}");
    let old = &held[3];
    socket.fails(settle("ACK", json!({"lease": lease(old)})), "lease_expired");
    socket.ack(&got);
    socket.is_quiet();
    site.crash();
    let mut socket = Socket::open(&site.api);
    socket.subscribe("t", "g", json!({}));
    socket.is_quiet();
}

#[test]
fn acks_under_way_when_the_hub_is_killed_hold_if_they_were_answered() {
    let mut site = Site::start();
    publish(&site.api, "t", 0..300);
    let mut socket = Socket::open(&site.api);
    socket.subscribe("t", "g", json!({"from": "earliest"}));
    let held = socket.events(300);
    for one in &held {
        socket.send(settle("ACK", json!({"id": id(one), "corr": number(one).to_string()})));
    }
    let mut settled: Vec<u64> = (0..50)
        .map(|_| socket.find(|frame| frame["op"] == "OK")["corr"].as_str().unwrap().parse().unwrap())
        .collect();
    site.crash();
    while let Some(Heard::Text(text)) = socket.hear(common::PATIENCE) {
        let frame: Value = serde_json::from_str(&text).unwrap();
        settled.push(frame["corr"].as_str().unwrap().parse().unwrap());
    }
    let mut socket = Socket::open(&site.api);
    socket.subscribe("t", "g", json!({"maxInFlight": 1000}));
    publish(&site.api, "t", 300..301);
    let mut again = Vec::new();
    while again.last() != Some(&300) {
        again.push(number(&socket.event()));
    }
    assert!(settled.iter().all(|n| !again.contains(n)), "acked and delivered again");
    let lost = (0..300).filter(|n| !settled.contains(n) && !again.contains(n)).count();
    // An ack may have held without its answer having arrived, but only one that was sent.
    assert!(lost + settled.len() + again.len() == 301, "{lost} {} {}", settled.len(), again.len());
}

#[test]
fn a_client_that_does_not_read_costs_others_nothing_and_loses_nothing() {
    let site = Site::start();
    let filler = "x".repeat(60_000);
    let events: Vec<Value> = (0..100).map(|n| json!({"payload": {"n": n, "x": filler}})).collect();
    let mut slow = Socket::open(&site.api);
    slow.subscribe("t", "slow", json!({"from": "earliest", "ackTimeoutMs": 60000}));
    for _ in 0..2 {
        groups_support::publish_all(&site.api, "t", &events);
    }
    let mut quick = Socket::open(&site.api);
    let started = Instant::now();
    quick.subscribe("t", "quick", json!({"from": "earliest"}));
    for part in 0..2 {
        assert_eq!(numbers(&quick.events(100)), (0..100).collect::<Vec<_>>(), "{part}");
    }
    quick.publish("t", 100..101);
    assert_eq!(number(&quick.event()), 100);
    assert!(since(started) < 5000, "{}", since(started));
    let got = slow.events(201);
    let wanted: Vec<u64> = (0..100).chain(0..101).collect();
    assert_eq!(numbers(&got), wanted);
    assert!(got.iter().all(|one| attempt(one) == 1));
    let all = leases(&got);
    slow.ok(json!({"op": "ACK", "topic": "t", "group": "slow", "leases": all}));
    Group::of(&site, "t", "slow").is_done();
}

#[test]
fn a_client_that_does_not_read_leaves_its_group_to_the_others() {
    let site = Site::start();
    let mut slow = Socket::open(&site.api);
    slow.subscribe("t", "g", json!({"from": "earliest", "maxInFlight": 5, "ordering": "none"}));
    let mut quick = Socket::open(&site.api);
    quick.subscribe("t", "g", json!({}));
    publish(&site.api, "t", 0..100);
    let started = Instant::now();
    let got = quick.events(95);
    assert!(since(started) < 5000);
    quick.ok(settle("ACK", json!({"leases": leases(&got)})));
    let rest = slow.events(5);
    let all: Vec<Value> = got.iter().chain(&rest).cloned().collect();
    assert_eq!(sorted_numbers(&all), (0..100).collect::<Vec<_>>());
}

#[test]
fn a_client_that_asks_and_does_not_read_is_held_back_by_its_socket() {
    let site = Site::start();
    let mut flood = Socket::open(&site.api);
    flood.stream().set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let corr = "c".repeat(1000);
    let frame = json!({"op": "UNSUBSCRIBE", "topic": "t", "group": "g", "corr": corr}).to_string();
    let bytes = ws_support::bare_frame(0x81, true, frame.as_bytes());
    let mut line = flood.stream().try_clone().unwrap();
    // Each answer is as long as its request; what fits into no buffer must stop the sender.
    let held_back = (0..60_000).any(|_| std::io::Write::write_all(&mut line, &bytes).is_err());
    assert!(held_back, "the hub took 60 MB of requests though no answer was read");
    let mut other = Socket::open(&site.api);
    let started = Instant::now();
    other.publish("t", 0..1);
    assert!(since(started) < 2000);
    assert!(matches!(flood.hear(common::PATIENCE), Some(Heard::Text(_) | Heard::Closed(..))));
}
