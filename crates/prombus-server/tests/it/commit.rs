//! Commits over HTTP and WebSocket.

use crate::common;
use crate::common::{
    Answer, Served, Setup, as_one_who, document, guarded, send, start, start_closed, start_with,
};
use prombus_core::SystemClock;
use prombus_engine::{Hub, HubOptions, Store};
use prombus_fixtures::http::Api;
use prombus_fixtures::ws::Socket;
use prombus_store_disk::{DiskOptions, DiskStore};
use prombus_testkit::SimDisk;
use prombus_testkit::sim_disk::Crash;
use prombus_wire::Committed;
use reqwest::Method;
use serde_json::{Value, json};
use std::sync::Arc;

const COMMIT: &str = "/v1/commit";

async fn commit(hub: &Served, body: &Value) -> Answer {
    hub.post(COMMIT, &body.to_string()).await
}

fn write(fields: Value) -> Value {
    let mut write = json!({"collection": "c", "key": "k"});
    write.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    json!({ "writes": [write] })
}

/// A lease of group `g` on the next event of topic `t`.
async fn lease(hub: &Served) -> String {
    let pulled = hub.post("/v1/topics/t/groups/g/pull", r#"{"from":"earliest","max":1}"#).await;
    pulled.is(200).json()["deliveries"][0]["ctx"]["lease"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn what_makes_no_sense() {
    let hub = start().await;
    for bad in [
        json!({}),
        json!({"commit_id": "c"}),
        json!({"ack": [], "writes": [], "publish": []}),
        json!({"acks": ["x"]}),
        json!({"ack": "x"}),
        write(json!({})),
        write(json!({"set": {}, "merge": {}})),
        write(json!({"set": 1})),
        write(json!({"delete": false})),
        write(json!({"inc": {"n": "x"}})),
        write(json!({"merge": {"_v": 1}})),
        write(json!({"set": {}, "if_version": -1})),
        write(json!({"set": {}, "unless": 1})),
        json!({"writes": [{"collection": "C", "key": "k", "delete": true}]}),
        json!({"publish": [{"topic": "T", "payload": 1}]}),
        json!({"publish": [{"topic": "t"}]}),
        json!({"publish": [{"topic": "t", "payload": 1, "id": "x"}]}),
        json!([]),
    ] {
        commit(&hub, &bad).await.is_error(400, "bad_request");
    }
    let huge = r#"{"writes":[{"collection":"c","key":"k","set":{"n":1e400}}]}"#;
    hub.post(COMMIT, huge).await.is_error(400, "bad_request");
    // Written as an integer, an amount that no 64 bits hold would make a double of a counter.
    for amount in ["18446744073709551616", "-9223372036854775809"] {
        let inc = format!(r#"{{"writes":[{{"collection":"c","key":"k","inc":{{"n":{amount}}}}}]}}"#);
        hub.post(COMMIT, &inc).await.is_error(400, "bad_request");
    }
    hub.post(COMMIT, "").await.is_error(400, "bad_json");
    hub.post(COMMIT, "{").await.is_error(400, "bad_json");
    hub.lines(COMMIT, "{}").await.is_error(415, "bad_request");
    hub.post("/v1/commit?x=1", "{}").await.is_error(400, "bad_request");
    hub.get(COMMIT).await.is_error(405, "method_not_allowed");
    hub.get("/v1/collections/c").await.is_error(404, "not_found");
}

#[tokio::test]
async fn leases_that_are_none() {
    let hub = start().await;
    for lease in ["nonsense", "", "00000000000000011", "ffffffffffffffffff", "1-1-0-0"] {
        let error = commit(&hub, &json!({"ack": [lease]})).await.is_error(409, "lease_expired");
        assert_eq!(error["lease"], lease);
    }
}

#[tokio::test]
async fn all_of_it_happens() {
    let hub = start().await;
    hub.fill("t", 2).await;
    let lease = lease(&hub).await;
    let body = json!({
        "ack": [lease],
        "writes": [{"collection": "c", "key": "k", "set": {"n": 1}}, {"collection": "c", "key": "l", "inc": {"n": 2}}],
        "publish": [{"topic": "out", "payload": {"x": 1.10}, "key": "a"}],
    });
    let done = commit(&hub, &body).await;
    let told: Committed = serde_json::from_str(&done.is(200).text).unwrap();
    assert_eq!((&*told.events[0].topic, told.events[0].offset), ("out", 0));
    assert_eq!(json!(told.versions), json!({"c": {"k": 1, "l": 1}}));
    let document = hub.get("/v1/collections/c/snap/k").await.is(200).json();
    assert_eq!((&document["n"], &document["_v"]), (&json!(1), &json!(1)));
    assert_eq!(hub.get("/v1/topics/out/events").await.is(200).json()["count"], 1);
    let group = hub.get("/v1/topics/t/groups/g").await.is(200).json();
    assert_eq!(group["partitions"][0]["next"], 1, "{group}");
    let metrics = hub.get("/metrics").await;
    assert!(metrics.text.contains("events_published_total{topic=\"out\"} 1\n"), "{}", metrics.text);
    let spent = commit(&hub, &body).await.is_error(409, "lease_expired");
    assert_eq!(spent["lease"], lease);
    let stale = write(json!({"set": {}, "if_version": 0}));
    let conflict = commit(&hub, &stale).await.is_error(409, "version_conflict");
    assert_eq!(
        (&conflict["actual"], &conflict["collection"], &conflict["key"]),
        (&json!(1), &json!("c"), &json!("k"))
    );
}

#[tokio::test]
async fn an_id_is_its_callers_own_and_stands_for_one_request() {
    let (one, other) = ("publish:c publish:t", "publish:c publish:t publish:d");
    let hub = start_with(guarded(&[one, other])).await;
    let ask = |may: &str, body: &str| {
        let request = as_one_who(may, hub.request(Method::POST, COMMIT));
        send(request.header("content-type", "application/json").body(body.to_owned()))
    };
    let body = r#"{"commit_id":"once","writes":[{"collection":"c","key":"k","inc":{"n":1,"m":2}}],
        "publish":[{"topic":"t","payload":[1, 2],"key":"a"}]}"#;
    let first = ask(one, body).await;
    assert_eq!(first.is(200).json()["versions"], json!({"c": {"k": 1}}));
    assert_eq!(ask(one, body).await.is(200).text, first.text);
    let spaced = r#" { "publish" : [{"key":"a", "payload":[1,2],"topic":"t"}],
        "writes":[{"inc":{"m":2,"n":1},"key":"k","collection":"c"}], "commit_id" :"once"}"#;
    assert_eq!(ask(one, spaced).await.is(200).text, first.text, "the text does not matter");
    for differing in [body.replace("[1, 2]", "[1, 3]"), body.replace("\"m\":2", "\"m\":3")] {
        let refused = ask(one, &differing).await;
        assert_eq!(refused.is_error(409, "id_conflict")["commit_id"], "once");
        assert!(!refused.text.contains("versions"), "{refused:?}");
    }
    let own = ask(other, body).await;
    assert_eq!(own.is(200).json()["versions"], json!({"c": {"k": 2}}), "somebody else has ids of their own");
    let metrics = send(as_one_who(one, hub.request(Method::GET, "/metrics"))).await;
    assert!(metrics.text.contains("events_published_total{topic=\"t\"} 2\n"), "{}", metrics.text);
}

#[tokio::test]
async fn a_repeated_commit_takes_nothing_from_the_rate() {
    let mut setup = common::Setup::default();
    setup.gateway.topic_events_per_s = 2;
    let hub = start_with(setup).await;
    let body = json!({"commit_id": "once", "publish": [{"topic": "t", "payload": 1}]});
    let first = commit(&hub, &body).await;
    for _ in 0..10 {
        assert_eq!(commit(&hub, &body).await.is(200).text, first.is(200).text);
    }
}

#[tokio::test]
async fn commits_count_as_publishes() {
    let mut setup = common::Setup::default();
    setup.gateway.topic_events_per_s = 2;
    let hub = start_with(setup).await;
    let event = json!({"topic": "t", "payload": 1});
    let refused = json!({"publish": [event], "writes": [{"collection": "c", "key": "k", "delete": true, "if_version": 7}]});
    for _ in 0..5 {
        commit(&hub, &refused).await.is_error(409, "version_conflict");
    }
    commit(&hub, &json!({"publish": [event, event, event, event, event, event]})).await.is(200);
    let limited = commit(&hub, &json!({"publish": [event]})).await;
    limited.is_error(429, "rate_limited");
    assert!(limited.header("retry-after").is_some());
    commit(&hub, &json!({"publish": [{"topic": "u", "payload": 1}]})).await.is(200);
    commit(&hub, &write(json!({"set": {}}))).await.is(200);
}

#[tokio::test]
async fn rights_come_before_everything() {
    let hub =
        start_with(guarded(&["publish:c", "publish:c publish:t", "subscribe:u", "read:** admin:**"])).await;
    hub.write(vec![document("c", "k", 1, &json!({}))]).await;
    let ask = |may: &str, body: Value| {
        let request = as_one_who(may, hub.request(Method::POST, COMMIT));
        send(request.header("content-type", "application/json").body(body.to_string()))
    };
    let set = write(json!({"set": {}}));
    let mut both = set.clone();
    both["publish"] = json!([{"topic": "t", "payload": 1}]);
    for (may, body) in [
        ("read:** admin:**", set),
        ("publish:c", both),
        ("publish:c publish:t", json!({"ack": ["nonsense"]})),
        ("subscribe:u", json!({"ack": ["nonsense"], "publish": [{"topic": "t", "payload": 1}]})),
    ] {
        ask(may, body.clone()).await.is_error(403, "forbidden");
    }
    ask("subscribe:u", json!({"ack": ["nonsense"]})).await.is_error(409, "lease_expired");
    hub.post(COMMIT, "{}").await.is_error(401, "unauthorized");
}

fn connect(address: std::net::SocketAddr) -> Socket {
    Socket::open(&Api { address: address.to_string() })
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_are_refused_alike() {
    let hub = start().await;
    let address = hub.address;
    let talk = tokio::task::spawn_blocking(move || {
        let mut socket = connect(address);
        socket.fails(json!({"op": "COMMIT"}), "bad_request");
        let refused = socket.ask(json!({"op": "COMMIT", "ack": ["nonsense"]}));
        assert_eq!((&refused["code"], &refused["lease"]), (&json!("lease_expired"), &json!("nonsense")));
        let refused = socket.ask(json!({"op": "COMMIT", "ack": ["00000000000000011"]}));
        assert_eq!(refused["code"], "lease_expired");
        let named = |n: u64| {
            let write = json!({"collection": "c", "key": "k", "set": {"n": n}});
            json!({"op": "COMMIT", "commit_id": "once", "writes": [write]})
        };
        assert_eq!(socket.ask(named(1))["versions"], json!({"c": {"k": 1}}));
        let refused = socket.ask(named(2));
        assert_eq!((&refused["code"], &refused["commit_id"]), (&json!("id_conflict"), &json!("once")));
        assert_eq!(socket.ask(named(1))["versions"], json!({"c": {"k": 1}}));
    });
    talk.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_settles_what_its_connection_holds() {
    let hub = start().await;
    hub.fill("t", 2).await;
    let address = hub.address;
    let talk = tokio::task::spawn_blocking(move || {
        let mut socket = connect(address);
        let subscribe = json!({"op": "SUBSCRIBE", "topic": "t", "group": "g",
            "opts": {"from": "earliest", "ordering": "partition", "maxInFlight": 1}});
        assert_eq!(socket.ask(subscribe)["op"], "OK");
        let inc = json!([{"collection": "c", "key": "k", "inc": {"n": 1}}]);
        let first = socket.next_frame();
        let commit = json!({"op": "COMMIT", "corr": "2", "ack": [first["ctx"]["lease"]], "writes": inc});
        socket.send(commit);
        // The next event comes once the first is settled, before or after that is told.
        let (one, other) = (socket.next_frame(), socket.next_frame());
        let (done, second) = if one["op"] == "OK" { (one, other) } else { (other, one) };
        assert_eq!(done, json!({"op": "OK", "corr": "2", "events": [], "versions": {"c": {"k": 1}}}));
        assert_eq!(second["event"]["offset"], 1);
        let ack = json!({"op": "ACK", "topic": "t", "group": "g", "id": first["event"]["id"]});
        assert_eq!(socket.ask(ack)["code"], "unknown_id", "it is no longer held");
        let done = socket.ask(json!({"op": "COMMIT", "ack": [second["ctx"]["lease"]]}));
        assert_eq!(done["op"], "OK");
    });
    talk.await.unwrap();
    let group = hub.get("/v1/topics/t/groups/g").await.is(200).json();
    assert_eq!(
        (&group["partitions"][0]["next"], &group["partitions"][0]["in_flight"]),
        (&json!(2), &json!(0))
    );
}

/// A hub on a disk whose flushes can be made to fail.
async fn start_on(disk: &SimDisk) -> Served {
    let Setup { auto_create, limits, gateway } = Setup::default();
    let served = start_closed(gateway).await;
    let store = DiskStore::open_on(Arc::new(disk.clone()), DiskOptions::new("/data")).unwrap();
    let topics = std::collections::HashMap::new();
    let options = HubOptions { limits, auto_create, topics, clock: Arc::new(SystemClock) };
    served.gateway.open(Hub::assemble(Store::new(store), options));
    served
}

const ID: &str = "0198c0de-0000-7000-8000-000000000001";

/// What adding an amount to a field makes of a document that was set to have it.
async fn added(start: &str, amount: &str) -> Answer {
    let hub = common::start().await;
    let write = |what: &str, value: &str| {
        let body = format!(r#"{{"writes":[{{"collection":"c","key":"k","{what}":{{"n":{value}}}}}]}}"#);
        let hub = &hub;
        async move { hub.post(COMMIT, &body).await }
    };
    write("set", start).await.is(200);
    match write("inc", amount).await {
        refused if refused.status != 200 => refused,
        _ => hub.get("/v1/collections/c/snap/k").await,
    }
}

#[tokio::test]
async fn an_integer_is_added_exactly_or_not_at_all() {
    for (start, amount, sum) in [
        ("9007199254740993", "-0", "9007199254740993"),
        ("9007199254740993", "-1", "9007199254740992"),
        ("-0", "1", "1"),
        ("0.5", "-0", "0.5"),
        ("1.5", "1", "2.5"),
        ("9007199254740991.0", "1", "9007199254740992.0"),
        ("9223372036854775808", "1.0", "9.223372036854775808e18"),
    ] {
        let document = added(start, amount).await.is(200).json();
        let expected: Value = serde_json::from_str(sum).unwrap();
        assert_eq!(document["n"], expected, "{start} and {amount}");
    }
    for (start, amount) in [
        ("9223372036854775808", "1"),
        ("9007199254740992.0", "1"),
        ("-9007199254740992.0", "1"),
        ("1e300", "-1"),
    ] {
        let error = added(start, amount).await.is_error(400, "bad_request");
        assert!(error["message"].as_str().unwrap().contains("2^53"), "{start} and {amount}: {error}");
    }
}

/// A request that changes something, over HTTP or as a frame; `LEASE` stands for a lease of the group.
#[derive(Clone, Copy)]
enum Change {
    Http { path: &'static str, content_type: &'static str, body: &'static str },
    Frame(&'static str),
}

const CHANGES: [Change; 8] = [
    http("/v1/topics/t/events", r#"{"payload":1,"id":"ID"}"#),
    http("/v1/topics/t/events", r#"[{"payload":1,"id":"ID"}]"#),
    Change::Http {
        path: "/v1/topics/t/events",
        content_type: "application/x-ndjson",
        body: r#"{"payload":1,"id":"ID"}"#,
    },
    http("/publish/t?id=ID", "1"),
    http(COMMIT, r#"{"ack":["LEASE"],"publish":[{"topic":"t","payload":1,"id":"ID"}]}"#),
    http("/v1/topics/t/groups/g/ack", r#"{"ack":["LEASE"]}"#),
    Change::Frame(r#"{"op":"PUBLISH","corr":"1","topic":"t","events":[{"payload":1,"id":"ID"}]}"#),
    Change::Frame(r#"{"op":"COMMIT","corr":"1","publish":[{"topic":"t","payload":1,"id":"ID"}]}"#),
];

const fn http(path: &'static str, body: &'static str) -> Change {
    Change::Http { path, content_type: "application/json", body }
}

impl Change {
    fn publishes(self) -> bool {
        let (Self::Http { path: text, .. } | Self::Frame(text)) = self;
        !text.ends_with("/ack")
    }

    /// The answer of the hub.
    async fn ask(self, hub: &Served, lease: &str) -> Value {
        let fill = |text: &str| text.replace("ID", ID).replace("LEASE", lease);
        match self {
            Self::Http { path, content_type, body } => {
                let request = hub.request(Method::POST, &fill(path)).header("content-type", content_type);
                send(request.body(fill(body))).await.json()
            }
            Self::Frame(frame) => {
                let (address, frame): (_, Value) = (hub.address, serde_json::from_str(&fill(frame)).unwrap());
                tokio::task::spawn_blocking(move || connect(address).ask(frame)).await.unwrap()
            }
        }
    }
}

async fn count(hub: &Served) -> Value {
    hub.get("/v1/topics/t/events").await.is(200).json()["count"].clone()
}

/// What was written when its flush failed may be there after a restart, so nobody is told that it is not.
#[tokio::test(flavor = "multi_thread")]
async fn a_flush_that_fails_leaves_an_outcome_unknown() {
    for change in CHANGES {
        let disk = SimDisk::new();
        let hub = start_on(&disk).await;
        hub.post("/v1/topics/t/events", r#"{"payload":0}"#).await.is(201);
        let lease = lease(&hub).await;
        disk.fail_syncs(true);
        let unknown = change.ask(&hub, &lease).await;
        let code = |answer: &Value| answer.get("error").or(answer.get("code")).cloned();
        assert_eq!(
            (code(&unknown), &unknown["outcome"]),
            (Some(json!("unavailable")), &json!("unknown")),
            "{unknown}"
        );
        // From here on nothing is even tried.
        let refused = hub.post("/v1/topics/t/events", r#"{"payload":2}"#).await;
        assert_eq!(refused.is_error(503, "unavailable").get("outcome"), None);
        hub.get("/readyz").await.is_error(503, "unavailable");

        disk.crash(Crash::Kill);
        disk.restart(1);
        let hub = start_on(&disk).await;
        if change.publishes() {
            assert_eq!(count(&hub).await, 2, "it was written, {unknown}");
            hub.post("/v1/topics/t/events", &format!(r#"{{"payload":1,"id":"{ID}"}}"#)).await.is(200);
            assert_eq!(count(&hub).await, 2, "and repeating it is safe");
        } else {
            let pulled = hub.post("/v1/topics/t/groups/g/pull", "{}").await.is(200).json();
            assert_eq!(pulled["deliveries"], json!([]), "the ack was written");
        }
    }
}
