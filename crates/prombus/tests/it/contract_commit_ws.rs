//! The COMMIT frame: the same commit as over HTTP, with the leases that a connection holds.

use crate::common;
use crate::contract_support::{Api, Site};
use crate::groups_support;
use crate::groups_support::{Group, lease, number, publish, publish_keys};
use crate::state_support;
use crate::state_support::{
    changelog, commit, content, counter, define, doc, events_of, exists, is_missing, put, versions, with,
    write,
};
use crate::ws_support;
use crate::ws_support::{Heard, MOMENT, Socket};
use rustix::process::Signal;
use serde_json::{Value, json};

fn site() -> (Site, Socket) {
    let site = Site::start();
    let socket = Socket::open(&site.api);
    (site, socket)
}

/// A frame with this in it.
fn frame(body: Value) -> Value {
    with(body, "op", json!("COMMIT"))
}

/// A frame that acks these, and counts them in one document.
fn settling(deliveries: &[Value]) -> Value {
    let leases: Vec<&str> = deliveries.iter().map(lease).collect();
    frame(json!({"ack": leases, "writes": [write("c", "k", "inc", json!({"n": deliveries.len()}))]}))
}

/// A site with so many events, all delivered to one connection.
fn delivered(count: u64) -> (Site, Socket, Vec<Value>) {
    let (site, mut socket) = site();
    publish(&site.api, "t", 0..count);
    socket.subscribe("t", "g", json!({"from": "earliest"}));
    let got = socket.events(usize::try_from(count).unwrap());
    (site, socket, got)
}

#[test]
fn acks_writes_and_publishes_happen_together() {
    let (site, mut socket, got) = delivered(3);
    let mut body = settling(&got);
    body["publish"] = json!([{"topic": "out", "payload": {"x": 1}, "key": "k"}]);
    let answer = socket.ok(body);
    assert_eq!(versions(&answer), [1], "{answer}");
    let event = &site.api.all("out", "")[0];
    for name in ["id", "partition", "offset", "ts"] {
        assert_eq!(answer["events"][0][name], event[name], "{name} of {answer}");
    }
    assert_eq!((&event["payload"], &event["key"]), (&json!({"x": 1}), &json!("k")));
    assert_eq!(content(&site.api, "c", "k"), json!({"n": 3}));
    Group::of(&site, "t", "g").is_done();
    socket.is_quiet();
    drop(socket);
    Group::of(&site, "t", "g").nothing(json!({}));
}

#[test]
fn what_is_committed_makes_room_for_the_next() {
    let (site, mut socket) = site();
    publish(&site.api, "t", 0..20);
    socket.subscribe("t", "g", json!({"from": "earliest", "maxInFlight": 2}));
    for n in 0..20 {
        let got = socket.event();
        assert_eq!(number(&got), n);
        socket.ok(settling(&[got]));
    }
    assert_eq!(content(&site.api, "c", "k"), json!({"n": 20}));
    Group::of(&site, "t", "g").is_done();
    socket.is_quiet();
}

#[test]
fn the_next_of_a_key_comes_after_the_commit() {
    let (site, mut socket) = site();
    publish_keys(&site.api, "t", 0, &["a", "a", "a"]);
    socket.subscribe("t", "g", json!({"from": "earliest"}));
    for n in 0..3 {
        let got = socket.event();
        assert_eq!(number(&got), n);
        socket.is_quiet();
        socket.ok(settling(&[got]));
    }
}

#[test]
fn batches_are_committed_as_well() {
    let (site, mut socket) = site();
    publish(&site.api, "t", 0..50);
    socket.subscribe("t", "g", json!({"from": "earliest", "batch": true}));
    let mut count = 0;
    while count < 50 {
        let batch = socket.find(|frame| frame["op"] == "EVENTS");
        let deliveries = batch["deliveries"].as_array().unwrap();
        count += deliveries.len();
        socket.ok(settling(deliveries));
    }
    assert_eq!(content(&site.api, "c", "k"), json!({"n": 50}));
    Group::of(&site, "t", "g").is_done();
}

#[test]
fn a_commit_that_fails_does_nothing_and_leaves_the_leases() {
    let (site, mut socket, got) = delivered(1);
    define(&site.api, "p", &changelog("u", "owned"));
    put(&site.api, "c", "old", json!({}));
    let stale = with(write("c", "old", "set", json!({})), "if_version", json!(5));
    site.api.put("/v1/collections/short", &json!({"indexes": [["v"]]}).to_string()).is(201);
    for (bad, code) in [
        (stale, "version_conflict"),
        (write("owned", "k", "set", json!({})), "not_owner"),
        (write("c", "k", "set", json!(1)), "bad_request"),
        (write("short", "k", "set", json!({"v": "x".repeat(5_000)})), "too_large"),
    ] {
        let body = json!({
            "ack": [lease(&got[0])], "writes": [write("c", "new", "set", json!({})), bad],
            "publish": [{"topic": "out", "payload": 1}],
        });
        socket.fails(frame(body), code);
        assert!(!exists(&site.api, "c", "new"));
        assert_eq!(events_of(&site.api, "out"), 0);
    }
    assert_eq!(Group::of(&site, "t", "g").partition(0)["in_flight"], 1);
    socket.ack(&got);
    Group::of(&site, "t", "g").is_done();
}

#[test]
fn a_spent_lease_fails_the_commit() {
    let (site, mut socket, got) = delivered(3);
    socket.ack(&got[..1]);
    socket.fails(settling(&got), "lease_expired");
    is_missing(&site.api, "c", "k");
    socket.ok(settling(&got[1..2]));
    socket.fails(settling(&got[1..2]), "lease_expired");
    socket.fails(settling(&got[1..]), "lease_expired");
    socket.ok(settling(&got[2..]));
    assert_eq!(content(&site.api, "c", "k"), json!({"n": 2}));
    Group::of(&site, "t", "g").is_done();
}

#[test]
fn a_lost_connection_takes_its_leases_with_it() {
    let (site, socket, got) = delivered(1);
    socket.close();
    let group = Group::of(&site, "t", "g");
    let again = group.one(json!({}));
    let body =
        |one: &Value| json!({"ack": [lease(one)], "writes": [write("c", "k", "inc", json!({"n": 1}))]});
    commit(&site.api, &body(&got[0])).fails(409, "lease_expired");
    is_missing(&site.api, "c", "k");
    commit(&site.api, &body(&again)).is(200);
    assert_eq!(content(&site.api, "c", "k"), json!({"n": 1}));
}

#[test]
fn a_lease_is_good_whoever_commits_it() {
    let (site, mut socket, got) = delivered(3);
    let mut other = Socket::open(&site.api);
    other.ok(settling(&got[..1]));
    let leases = json!({"ack": [lease(&got[1])]});
    commit(&site.api, &leases).is(200);
    socket.ok(settling(&got[2..]));
    let pulled = Group::of(&site, "t", "h");
    let got = pulled.gather(&json!({"from": "earliest"}), 3);
    other.ok(settling(&got));
    pulled.is_done();
    Group::of(&site, "t", "g").is_done();
    assert_eq!(content(&site.api, "c", "k"), json!({"n": 5}));
    socket.is_quiet();
}

#[test]
fn a_commit_id_is_known_on_both_ways_in() {
    let (mut site, mut socket, got) = delivered(1);
    let mut body = settling(&got);
    body["commit_id"] = json!("once");
    body["publish"] = json!([{"topic": "out", "payload": 1}]);
    let first = socket.ok(body.clone());
    let again = socket.ok(body.clone());
    assert_eq!((&again["events"], &again["versions"]), (&first["events"], &first["versions"]));
    site.crash();
    let mut socket = Socket::open(&site.api);
    let later = socket.ok(body.clone());
    assert_eq!((&later["events"], &later["versions"]), (&first["events"], &first["versions"]));
    body.as_object_mut().unwrap().remove("op");
    let over_http = commit(&site.api, &body).is(200);
    assert_eq!((&over_http["events"], &over_http["versions"]), (&first["events"], &first["versions"]));
    assert_eq!((content(&site.api, "c", "k"), events_of(&site.api, "out")), (json!({"n": 1}), 1));
}

#[test]
fn without_corr_only_a_failure_is_answered() {
    let (site, mut socket) = site();
    socket.send(frame(json!({"writes": [write("c", "k", "set", json!({"a": 1}))]})));
    groups_support::eventually("it is done", || exists(&site.api, "c", "k"));
    assert!(!matches!(socket.hear(MOMENT), Some(Heard::Text(_))));
    socket.send(frame(json!({"ack": ["nothing"]})));
    let told = socket.next_frame();
    assert_eq!((&told["op"], told.get("corr")), (&json!("ERR"), None), "{told}");
}

#[test]
fn frames_are_done_in_their_order() {
    let (site, mut socket) = site();
    for n in 0..50 {
        socket.send(frame(json!({"writes": [write("c", "k", "set", json!({"n": n}))]})));
    }
    let last = with(write("c", "k", "set", json!({"n": "last"})), "if_version", json!(50));
    socket.ok(frame(json!({"writes": [last]})));
    assert_eq!(doc(&site.api, "c", "k")["_v"], 51);
}

#[test]
fn publishes_and_commits_are_done_in_the_order_of_their_frames() {
    let (site, mut socket, got) = delivered(30);
    let said = |n: u64| json!({"topic": "out", "payload": {"n": n}});
    let mut frames = Vec::new();
    for (n, delivery) in (0..).step_by(4).zip(&got) {
        frames.extend([
            with(said(n), "op", json!("PUBLISH")),
            frame(json!({"ack": [lease(delivery)], "publish": [said(n + 1)]})),
            with(said(n + 2), "op", json!("PUBLISH")),
            frame(json!({"publish": [said(n + 3)]})),
        ]);
    }
    let count = frames.len();
    for (n, frame) in frames.into_iter().enumerate() {
        socket.send(with(frame, "corr", json!(n.to_string())));
    }
    for _ in 0..count {
        let answer = socket.next_frame();
        assert_eq!(answer["op"], "OK", "{answer}");
    }
    let events = site.api.all("out", "");
    let found: Vec<u64> = events.iter().map(|event| event["payload"]["n"].as_u64().unwrap()).collect();
    assert_eq!(found, (0..count as u64).collect::<Vec<_>>());
    Group::of(&site, "t", "g").is_done();
}

#[test]
fn what_is_wrong_in_a_frame_is_refused_and_the_line_stays() {
    let (site, mut socket) = site();
    let good = write("c", "k", "set", json!({}));
    for bad in [
        json!({"write": [good]}),
        json!({"ack": "x"}),
        json!({"ack": [7]}),
        json!({"commit_id": 7, "writes": [good]}),
        json!({"writes": [{"collection": "c", "key": "k"}]}),
        json!({"writes": [with(good.clone(), "inc", json!({"n": 1}))]}),
        json!({"writes": [with(good.clone(), "if_version", json!(-1))]}),
        json!({"writes": [with(good.clone(), "colour", json!("red"))]}),
        json!({"publish": [{"payload": 1}]}),
        json!({"publish": [{"topic": "Bad Topic", "payload": 1}]}),
        json!({"writes": [good], "topic": "t"}),
    ] {
        let answer = socket.ask(frame(bad.clone()));
        assert_eq!(answer["op"], "ERR", "{bad}");
        assert!(["bad_request", "bad_json"].contains(&answer["code"].as_str().unwrap()), "{bad}: {answer}");
    }
    is_missing(&site.api, "c", "k");
    socket.ok(frame(json!({"writes": [good]})));
}

#[test]
fn several_connections_lose_no_count() {
    let site = Site::start();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut socket = Socket::open(&site.api);
                for _ in 0..50 {
                    socket.ok(frame(json!({"writes": [write("c", "k", "inc", json!({"n": 1}))]})));
                }
            });
        }
    });
    assert_eq!(
        (content(&site.api, "c", "k"), doc(&site.api, "c", "k")["_v"].clone()),
        (json!({"n": 200}), json!(200))
    );
}

/// Commits what comes until the line is lost; tells how many were answered.
fn work_until_lost(api: &Api, enough: i64, kill: impl Fn()) -> i64 {
    let mut socket = Socket::open(api);
    socket.subscribe("t", "g", json!({"from": "earliest", "maxInFlight": 20}));
    let mut answered = 0;
    while let Some(Heard::Text(text)) = socket.hear(common::PATIENCE) {
        let told: Value = serde_json::from_str(&text).unwrap();
        match told["op"].as_str().unwrap() {
            "EVENT" => {
                let body = json!({
                    "ack": [lease(&told)], "writes": [write("seen", &number(&told).to_string(), "inc", json!({"n": 1}))],
                });
                let body = with(frame(body), "corr", json!("c"));
                // The hub may be gone while this is said.
                socket.bytes(&ws_support::bare_frame(0x81, true, body.to_string().as_bytes()));
            }
            "OK" => {
                answered += 1;
                if answered == enough {
                    kill();
                }
            }
            _ => panic!("{told}"),
        }
    }
    answered
}

#[test]
fn every_event_is_counted_exactly_once_through_kills() {
    const EVENTS: u64 = 600;
    let mut site = Site::start();
    publish(&site.api, "t", 0..EVENTS);
    let mut answered = 0;
    for enough in [1, 80, 150] {
        answered += work_until_lost(&site.api, enough, || site.hub().signal(Signal::KILL));
        site.crash();
        let seen = state_support::list_all(&site.api, "seen", "limit=1000");
        assert!(seen.iter().all(|one| one["n"] == 1), "{seen:?}");
        assert!(
            i64::try_from(seen.len()).unwrap() >= answered,
            "{answered} were answered, {} are there",
            seen.len()
        );
    }
    let group = Group::of(&site, "t", "g");
    let left =
        usize::try_from(EVENTS).unwrap() - state_support::list_all(&site.api, "seen", "limit=1000").len();
    for one in group.gather(&json!({"max": 1000}), left) {
        let key = number(&one).to_string();
        assert_eq!(counter(&site.api, "seen", &key, "n"), 0, "{key} came again after its commit");
    }
    group.nothing(json!({}));
}
