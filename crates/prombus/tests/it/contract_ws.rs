//! The WebSocket: how one is opened and closed, how requests are answered, and how events are published.

use crate::contract_support;
use crate::contract_support::{Call, Site, column, now};
use crate::groups_support::{eventually, since};
use crate::ws_support::Socket;
use serde_json::{Value, json};
use std::time::Instant;

const ID: &str = "6f2d5a3e-8c1b-4d7f-9a60-1b2c3d4e5f60";
const OTHER_ID: &str = "6f2d5a3e-8c1b-4d7f-9a60-1b2c3d4e5f61";

fn site() -> (Site, Socket) {
    let site = Site::start();
    let socket = Socket::open(&site.api);
    (site, socket)
}

fn publish(topic: &str, n: u64) -> Value {
    json!({"op": "PUBLISH", "topic": topic, "payload": {"n": n}})
}

fn publish_with(payload: Value, opts: Value) -> Value {
    json!({"op": "PUBLISH", "topic": "t", "payload": payload, "opts": opts})
}

fn publish_events(events: Value) -> Value {
    json!({"op": "PUBLISH", "topic": "t", "events": events})
}

/// The parts of an answer that say where an event is.
fn place(answer: &Value) -> (&Value, &Value, &Value) {
    (&answer["id"], &answer["partition"], &answer["offset"])
}

#[test]
fn a_get_without_upgrade_is_an_error_that_says_so() {
    let site = Site::start();
    let answer = site.api.get("/ws");
    assert!((400..500).contains(&answer.status), "{answer:?}");
    answer.is_error();
}

#[test]
fn a_broken_handshake_is_an_error_that_says_so() {
    let site = Site::start();
    let key = ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
    let upgrade = ("upgrade", "websocket");
    let version = ("sec-websocket-version", "13");
    for headers in [
        vec![upgrade, version],
        vec![upgrade, key],
        vec![version, key],
        vec![upgrade, ("sec-websocket-version", "12"), key],
        vec![("upgrade", "h2c"), version, key],
    ] {
        let mut request = "GET /ws HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade, close\r\n".to_owned();
        for (name, value) in &headers {
            request += &format!("{name}: {value}\r\n");
        }
        let bytes = site.api.raw(format!("{request}\r\n").as_bytes(), false);
        let answer = contract_support::Answer::parse(&bytes, false).unwrap();
        assert!((400..500).contains(&answer.status), "{headers:?}: {answer:?}");
        answer.is_error();
    }
}

#[test]
fn another_method_is_not_allowed() {
    let site = Site::start();
    for method in ["POST", "PUT", "DELETE"] {
        site.api.call(&Call::new(method, "/ws")).fails(405, "method_not_allowed");
    }
}

#[test]
fn a_corr_may_be_any_string() {
    let (_site, mut socket) = site();
    let long = "x".repeat(1000);
    for corr in ["7", "", " ", "\u{0}", "a\n\"b\\", "ü\u{1F980}\u{2028}", "null", &long] {
        socket.send(json!({"op": "PUBLISH", "corr": corr, "topic": "t", "payload": 1}));
        let answer = socket.next_frame();
        assert_eq!((&answer["op"], &answer["corr"]), (&json!("OK"), &json!(corr)), "{answer}");
        socket.send(json!({"op": "PUBLISH", "corr": corr, "topic": "T", "payload": 1}));
        let answer = socket.next_frame();
        assert_eq!((&answer["op"], &answer["corr"]), (&json!("ERR"), &json!(corr)), "{answer}");
    }
}

#[test]
fn a_corr_that_is_no_string_comes_back_as_it_is_or_is_refused() {
    let (_site, mut socket) = site();
    for corr in ["7", "{\"a\":1}", "[\"7\"]", "true", "1.50", "123456789012345678901234567890"] {
        socket.text(format!(r#"{{"op":"PUBLISH","corr":{corr},"topic":"t","payload":1}}"#));
        let answer = socket.raw();
        if answer.contains(r#""op":"OK""#) {
            assert!(answer.contains(&format!(r#""corr":{corr}"#)), "{answer}");
        } else {
            let answer: Value = serde_json::from_str(&answer).unwrap();
            assert_eq!((&answer["op"], &answer["code"]), (&json!("ERR"), &json!("bad_request")), "{answer}");
        }
    }
}

#[test]
fn two_requests_with_one_corr_are_two_answers() {
    let (_site, mut socket) = site();
    for n in 0..2 {
        socket.send(json!({"op": "PUBLISH", "corr": "same", "topic": "t", "payload": n}));
    }
    for n in 0..2 {
        let answer = socket.next_frame();
        assert_eq!((&answer["corr"], &answer["offset"]), (&json!("same"), &json!(n)));
    }
}

#[test]
fn a_request_without_corr_is_answered_only_if_it_fails() {
    let (site, mut socket) = site();
    socket.send(publish("t", 0));
    socket.send(publish("not a topic", 1));
    socket.send(publish("t", 2));
    let answer = socket.next_frame();
    assert_eq!((&answer["op"], &answer["code"]), (&json!("ERR"), &json!("bad_request")), "{answer}");
    assert!(answer.get("corr").is_none(), "{answer}");
    assert_eq!(socket.ok(publish("t", 3))["offset"], 2);
    socket.send(json!({"op": "SUBSCRIBE", "topic": "t", "group": "g"}));
    socket.send(json!({"op": "PAUSE", "topic": "t", "group": "g"}));
    socket.send(json!({"op": "RESUME", "topic": "t", "group": "g"}));
    socket.send(json!({"op": "UNSUBSCRIBE", "topic": "t", "group": "g"}));
    socket.send(json!({"op": "AUTH", "token": "x"}));
    socket.fails(json!({"op": "UNSUBSCRIBE", "topic": "t", "group": "g"}), "not_subscribed");
    socket.is_quiet();
    assert_eq!(site.api.all("t", "").len(), 3);
}

#[test]
fn auth_is_ok_where_auth_is_off() {
    let (site, mut socket) = site();
    socket.ok(json!({"op": "AUTH", "token": "anything"}));
    socket.ok(json!({"op": "AUTH", "token": ""}));
    socket.ok(publish("t", 0));
    let answer = site.api.call(&Call::new("GET", "/healthz").header("authorization", "Bearer x"));
    assert_eq!(answer.status, 200);
}

#[test]
fn a_publish_is_answered_with_its_place() {
    let (site, mut socket) = site();
    let before = now();
    for n in 0..3 {
        let answer = socket.ok(publish("t", n));
        for name in ["corr", "duplicate", "id", "offset", "partition", "ts"] {
            assert!(answer.get(name).is_some(), "no {name} in {answer}");
        }
        assert_eq!((&answer["partition"], &answer["offset"]), (&json!(0), &json!(n)));
        assert_eq!(answer["duplicate"], false);
        let ts = answer["ts"].as_i64().unwrap();
        assert!((before..=now()).contains(&ts), "{answer}");
        let event = site.api.get(&format!("/v1/topics/t/events/{}", answer["id"].as_str().unwrap())).is(200);
        assert_eq!((&event["offset"], &event["ts"]), (&json!(n), &json!(ts)));
        assert_eq!(event["payload"], json!({"n": n}));
    }
}

#[test]
fn a_publish_answer_says_which_durability_held() {
    let (site, mut socket) = site();
    assert_eq!(socket.ok(publish("t", 0))["durability"], "sync");
    site.api.put("/v1/topics/u", r#"{"durability":"interval"}"#);
    assert_eq!(socket.ok(publish("u", 0))["durability"], "interval");
}

#[test]
fn every_option_of_a_publish_reaches_the_event() {
    let (site, mut socket) = site();
    let opts = json!({
        "id": ID, "ts": 1_754_683_200_123_u64, "key": "k:1", "headers": {"x-a": "b", "content-type": "text/plain"},
        "tags": ["#a", "b"], "caused_by": [OTHER_ID], "sid": "s-1", "expect": {"last_id": null}
    });
    let answer = socket.ok(publish_with(json!({"any": [1, null]}), opts.clone()));
    assert_eq!((&answer["id"], &answer["ts"]), (&json!(ID), &opts["ts"]));
    let event = site.api.get(&format!("/v1/topics/t/events/{ID}")).is(200);
    for name in ["id", "ts", "key", "headers", "tags", "caused_by", "sid"] {
        assert_eq!(event[name], opts[name], "{name} in {event}");
    }
    assert_eq!(event["payload"], json!({"any": [1, null]}));
}

#[test]
fn a_publish_without_options_leaves_them_absent() {
    let (site, mut socket) = site();
    socket.ok(publish("t", 0));
    socket.ok(publish_with(json!(null), json!({})));
    let events = site.api.all("t", "");
    for event in &events {
        for name in ["key", "headers", "tags", "caused_by", "sid", "recorded_ts"] {
            assert!(event.get(name).is_none(), "{name} in {event}");
        }
    }
    assert_eq!(column(&events, "payload"), [&json!({"n": 0}), &json!(null)]);
}

#[test]
fn a_repeated_id_is_a_duplicate_and_with_another_payload_or_key_a_conflict() {
    let (site, mut socket) = site();
    let first = socket.ok(publish_with(json!({"n": 1}), json!({"id": ID, "key": "k"})));
    assert_eq!(first["duplicate"], false);
    socket.ok(publish("t", 2));
    let again = socket.ok(publish_with(json!({"n": 1}), json!({"id": ID, "key": "k"})));
    assert_eq!(again["duplicate"], true);
    assert_eq!(place(&again), place(&first));
    socket.fails(publish_with(json!({"n": 2}), json!({"id": ID, "key": "k"})), "id_conflict");
    socket.fails(publish_with(json!({"n": 1}), json!({"id": ID, "key": "l"})), "id_conflict");
    socket.fails(publish_with(json!({"n": 1}), json!({"id": ID})), "id_conflict");
    // The same event over HTTP is the same event.
    let body = json!({"payload": {"n": 1}, "id": ID, "key": "k"});
    assert_eq!(site.api.events("t", &body.to_string()).is(200)["duplicate"], true);
    assert_eq!(site.api.all("t", "").len(), 2);
}

#[test]
fn an_expectation_that_does_not_hold_is_refused() {
    let (site, mut socket) = site();
    let expecting = |last: Value| json!({"key": "k", "expect": {"last_id": last}});
    let first = socket.ok(publish_with(json!(1), expecting(Value::Null)));
    let failed = socket.fails(publish_with(json!(2), expecting(Value::Null)), "expectation_failed");
    assert!(failed.to_string().contains(first["id"].as_str().unwrap()), "it names the actual one: {failed}");
    socket.fails(publish_with(json!(2), expecting(json!(ID))), "expectation_failed");
    let mut opts = expecting(first["id"].clone());
    opts["id"] = json!(ID);
    let won = socket.ok(publish_with(json!(2), opts.clone()));
    // The retry of a publish that won is a duplicate, not a failure.
    let retried = socket.ok(publish_with(json!(2), opts));
    assert_eq!((&retried["duplicate"], place(&retried)), (&json!(true), place(&won)));
    assert_eq!(site.api.all("t", "").len(), 2);
}

#[test]
fn a_partition_may_be_named_but_not_with_a_key() {
    let (site, mut socket) = site();
    site.api.make("t", 4);
    for partition in [3, 0, 3] {
        let answer = socket.ok(publish_with(json!(1), json!({"partition": partition})));
        assert_eq!(answer["partition"], partition);
    }
    socket.fails(publish_with(json!(1), json!({"partition": 1, "key": "k"})), "bad_request");
    socket.fails(publish_with(json!(1), json!({"partition": 4})), "bad_request");
    socket.fails(publish_with(json!(1), json!({"partition": -1})), "bad_request");
    assert_eq!(site.api.all("t", "").len(), 3);
}

#[test]
fn a_key_goes_where_it_goes_over_http() {
    let (site, mut socket) = site();
    site.api.make("t", 8);
    for n in 0..20 {
        let key = format!("key-{n}");
        let here = socket.ok(publish_with(json!(1), json!({"key": key})))["partition"].clone();
        let there = site.api.publish(&format!("t?key={key}"), "1").is(201)["partition"].clone();
        assert_eq!(here, there);
    }
}

#[test]
fn a_time_far_ahead_is_refused() {
    let (site, mut socket) = site();
    socket.ok(publish_with(json!(1), json!({"ts": now() + 3_000_000})));
    socket.fails(publish_with(json!(1), json!({"ts": now() + 4_000_000})), "bad_request");
    socket.ok(publish_with(json!(1), json!({"ts": 0})));
    assert_eq!(site.api.all("t", "").len(), 2);
}

#[test]
fn bad_publishes_are_refused_and_leave_nothing() {
    let (site, mut socket) = site();
    for frame in [
        json!({"op": "PUBLISH"}),
        json!({"op": "PUBLISH", "topic": "t"}),
        json!({"op": "PUBLISH", "payload": 1}),
        json!({"op": "PUBLISH", "topic": 1, "payload": 1}),
        json!({"op": "PUBLISH", "topic": "t", "payload": 1, "events": [{"payload": 1}]}),
        json!({"op": "PUBLISH", "topic": "t", "events": {}}),
        json!({"op": "PUBLISH", "topic": "t", "events": [{"key": "k"}]}),
        json!({"op": "PUBLISH", "topic": "t", "events": [{"payload": 1, "opts": {"key": "k"}}]}),
        json!({"op": "PUBLISH", "topic": "t", "events": [1]}),
        json!({"op": "PUBLISH", "topic": "t", "payload": 1, "key": "k"}),
        json!({"op": "PUBLISH", "topic": "t", "payload": 1, "group": "g"}),
        json!({"op": "PUBLISH", "topic": "t", "payload": 1, "foo": 1}),
        publish_with(json!(1), json!({"foo": 1})),
        publish_with(json!(1), json!([])),
        publish_with(json!(1), json!({"payload": 1})),
        publish_with(json!(1), json!({"id": "no uuid"})),
        publish_with(json!(1), json!({"id": 1})),
        publish_with(json!(1), json!({"ts": "now"})),
        publish_with(json!(1), json!({"key": 1})),
        publish_with(json!(1), json!({"key": "k".repeat(1025)})),
        publish_with(json!(1), json!({"headers": {"foo": "b"}})),
        publish_with(json!(1), json!({"headers": {"x-a": 1}})),
        publish_with(json!(1), json!({"tags": "a"})),
        publish_with(json!(1), json!({"caused_by": [1]})),
        publish_with(json!(1), json!({"sid": 1})),
        publish_with(json!(1), json!({"expect": {"last": 1}})),
        publish_with(json!(1), json!({"partition": "0"})),
    ] {
        let answer = socket.ask(frame.clone());
        assert_eq!(answer["op"], "ERR", "{frame}: {answer}");
        assert!(matches!(answer["code"].as_str(), Some("bad_request" | "too_large")), "{frame}: {answer}");
    }
    for topic in ["", "T", "a b", "dlq.a", "system.a", &"a".repeat(201)] {
        let answer = socket.ask(publish(topic, 1));
        assert!(matches!(answer["code"].as_str(), Some("bad_request" | "forbidden")), "{topic}: {answer}");
    }
    assert_eq!(site.api.get("/v1/topics").is(200)["topics"].as_array().map_or(0, Vec::len), 0);
    assert_eq!(socket.ok(publish("t", 0))["offset"], 0);
}

#[test]
fn an_event_that_is_too_large_is_refused_and_the_connection_goes_on() {
    let (site, mut socket) = site();
    socket.fails(publish_with(json!("x".repeat(1_100_000)), json!({})), "too_large");
    socket.fails(publish_events(json!([{"payload": 1}, {"payload": "x".repeat(1_100_000)}])), "too_large");
    assert_eq!(socket.ok(publish_with(json!("x".repeat(1_000_000)), json!({})))["offset"], 0);
    assert_eq!(site.api.all("t", "").len(), 1);
}

#[test]
fn events_are_published_together() {
    let (site, mut socket) = site();
    site.api.make("t", 2);
    let answer = socket.ok(publish_events(json!([
        {"payload": {"n": 0}, "partition": 1, "headers": {"x-a": "b"}},
        {"payload": {"n": 1}, "partition": 0, "tags": ["x"], "sid": "s"},
        {"payload": null, "partition": 1, "id": ID, "ts": 5, "caused_by": [OTHER_ID]},
    ])));
    let told = answer["events"].as_array().unwrap();
    assert_eq!(told.len(), 3);
    for one in told {
        for name in ["id", "partition", "offset", "ts", "duplicate"] {
            assert!(one.get(name).is_some(), "no {name} in {one}");
        }
        let event = site.api.get(&format!("/v1/topics/t/events/{}", one["id"].as_str().unwrap())).is(200);
        assert_eq!(place(&event), place(one));
    }
    assert_eq!(column(told, "partition"), [1, 0, 1]);
    assert_eq!(column(told, "offset"), [0, 0, 1]);
    assert_eq!((&told[2]["id"], &told[2]["ts"]), (&json!(ID), &json!(5)));
    let event = site.api.get(&format!("/v1/topics/t/events/{ID}")).is(200);
    assert_eq!((&event["payload"], &event["caused_by"]), (&Value::Null, &json!([OTHER_ID])));
}

#[test]
fn events_are_all_or_none() {
    let (site, mut socket) = site();
    let first = socket.ok(publish_with(json!(1), json!({"id": ID, "key": "k"})));
    for (bad, code) in [
        (json!({"payload": 2, "id": ID}), "id_conflict"),
        (json!({"payload": 2, "key": "k", "expect": {"last_id": null}}), "expectation_failed"),
        (json!({"payload": 2, "partition": 9}), "bad_request"),
        (json!({"payload": 2, "headers": {"bad name": "x"}}), "bad_request"),
        (json!({"payload": 2, "unknown": 1}), "bad_request"),
    ] {
        socket.fails(publish_events(json!([{"payload": 0}, {"payload": 0}, bad])), code);
        socket.fails(publish_events(json!([bad, {"payload": 0}])), code);
    }
    assert_eq!(site.api.all("t", "").len(), 1);
    // An expectation sees the earlier events of its array, and a repeated id is a duplicate of the first.
    let answer = socket.ok(publish_events(json!([
        {"payload": 2, "key": "k", "id": OTHER_ID, "expect": {"last_id": first["id"]}},
        {"payload": 3, "key": "k", "expect": {"last_id": OTHER_ID}},
        {"payload": 2, "key": "k", "id": OTHER_ID},
    ])));
    let told = answer["events"].as_array().unwrap();
    assert_eq!(column(told, "duplicate"), [false, false, true]);
    assert_eq!(place(&told[2]), place(&told[0]));
    assert_eq!(site.api.all("t", "").len(), 3);
}

#[test]
fn every_byte_of_a_payload_survives() {
    let (site, mut socket) = site();
    let payload =
        r#"{"z":123456789012345678901234567890,"a":1.10,"e":1E+2,"s":"\u00e9\/\u2028é","d":{"d":-0}}"#;
    let spread = payload.replace(',', " ,\n\t").replace(':', " : ");
    socket.text(format!(r#"{{"op":"PUBLISH","topic":"t","payload":{spread},"corr":"1"}}"#));
    assert_eq!(socket.next_frame()["op"], "OK");
    socket.text(format!(r#"{{"op":"PUBLISH","topic":"t","events":[{{"payload":{spread}}}],"corr":"2"}}"#));
    assert_eq!(socket.next_frame()["op"], "OK");
    let page = site.api.page("t", "");
    assert_eq!(page.text().matches(payload).count(), 2, "{}", page.text());
    socket.subscribe("t", "g", json!({"from": "earliest"}));
    for batch in [false, true] {
        let group = format!("g-{batch}");
        let opts = json!({"from": "earliest", "batch": batch});
        let mut other = Socket::open(&site.api);
        other.send(json!({"op": "SUBSCRIBE", "topic": "t", "group": group, "opts": opts}));
        let mut heard = String::new();
        while heard.matches(payload).count() < 2 {
            heard += &other.raw();
        }
    }
}

#[test]
fn publishes_of_a_connection_keep_their_order() {
    let (site, mut socket) = site();
    for n in 0..500 {
        let mut frame = publish("t", n);
        if n % 2 == 0 {
            frame["corr"] = json!(n.to_string());
        }
        socket.send(&frame);
    }
    for n in (0..500).step_by(2) {
        let answer = socket.next_frame();
        assert_eq!((&answer["corr"], &answer["offset"]), (&json!(n.to_string()), &json!(n)), "{answer}");
    }
    socket.ok(publish("t", 500));
    let events = site.api.all("t", "");
    assert!(events.iter().zip(0..).all(|(event, n)| event["payload"]["n"] == n), "{events:?}");
    assert_eq!(events.len(), 501);
}

#[test]
fn a_publish_that_is_refused_lets_no_later_one_pass() {
    const COUNT: u64 = 2_000;
    let (site, mut socket) = site();
    socket.ok(publish("t", 0));
    // So few that most of those that come together are good.
    let is_bad = |n: u64| n % 100 == 50;
    for n in 1..COUNT {
        let mut frame = publish("t", n);
        frame["corr"] = json!(n.to_string());
        match is_bad(n) {
            true if n % 200 == 50 => frame["opts"] = json!({"partition": 9}),
            true => frame["opts"] = json!({"ts": u64::MAX}),
            false => {}
        }
        socket.send(&frame);
    }
    for n in 1..COUNT {
        let answer = socket.next_frame();
        let op = if is_bad(n) { "ERR" } else { "OK" };
        assert_eq!((&answer["corr"], &answer["op"]), (&json!(n.to_string()), &json!(op)), "{answer}");
    }
    let events = site.api.all("t", "");
    let found: Vec<u64> = events.iter().map(|event| event["payload"]["n"].as_u64().unwrap()).collect();
    let wanted: Vec<u64> = (0..COUNT).filter(|n| !is_bad(*n)).collect();
    assert_eq!(found, wanted);
}

#[test]
fn what_was_answered_survives_a_crash() {
    let (mut site, mut socket) = site();
    for n in 0..20 {
        socket.ok(publish("t", n));
    }
    site.crash();
    assert_eq!(site.api.all("t", "").len(), 20);
    let mut socket = Socket::open(&site.api);
    assert_eq!(socket.ok(publish("t", 20))["offset"], 20);
}

#[test]
fn frames_that_mean_nothing_are_refused() {
    let (_site, mut socket) = site();
    for (text, code) in [
        ("", "bad_json"),
        ("{", "bad_json"),
        ("{\"op\":\"PUBLISH\",}", "bad_json"),
        ("{} {}", "bad_json"),
        ("nope", "bad_json"),
        ("[]", "bad_request"),
        ("1", "bad_request"),
        ("null", "bad_request"),
        ("\"PUBLISH\"", "bad_request"),
        ("{}", "bad_request"),
        (r#"{"op":1}"#, "bad_request"),
        (r#"{"op":null}"#, "bad_request"),
        (r#"{"op":""}"#, "bad_request"),
        (r#"{"op":"publish","topic":"t","payload":1}"#, "bad_request"),
        (r#"{"op":"NOPE"}"#, "bad_request"),
        (r#"{"op":"EVENT"}"#, "bad_request"),
    ] {
        socket.text(text.to_owned());
        let answer = socket.next_frame();
        assert_eq!((&answer["op"], &answer["code"]), (&json!("ERR"), &json!(code)), "{answer} to {text}");
        assert!(answer.get("corr").is_none(), "{answer}");
    }
    let answer = socket.ask(json!({"op": "NOPE"}));
    assert_eq!(answer["code"], "bad_request");
    socket.ok(publish("t", 0));
}

#[test]
fn unknown_fields_and_wrong_types_are_refused() {
    let (_site, mut socket) = site();
    socket.subscribe("t", "g", json!({}));
    for frame in [
        json!({"op": "AUTH", "token": 1}),
        json!({"op": "AUTH", "token": "x", "topic": "t"}),
        json!({"op": "SUBSCRIBE", "topic": "t"}),
        json!({"op": "SUBSCRIBE", "group": "g"}),
        json!({"op": "SUBSCRIBE", "topic": "t", "topics": ["u"], "group": "h"}),
        json!({"op": "SUBSCRIBE", "topics": "t", "group": "h"}),
        json!({"op": "SUBSCRIBE", "topics": [1], "group": "h"}),
        json!({"op": "SUBSCRIBE", "topic": "t", "group": 1}),
        json!({"op": "SUBSCRIBE", "topic": "t", "group": "h", "from": "earliest"}),
        json!({"op": "SUBSCRIBE", "topic": "t", "group": "h", "opts": {"foo": 1}}),
        json!({"op": "SUBSCRIBE", "topic": "t", "group": "h", "opts": {"from": "nowhere"}}),
        json!({"op": "SUBSCRIBE", "topic": "t", "group": "h", "opts": {"batch": 1}}),
        json!({"op": "SUBSCRIBE", "topic": "t", "group": "h", "opts": {"maxInFlight": "1"}}),
        json!({"op": "SUBSCRIBE", "topic": "t", "group": "h", "opts": {"maxInFlight": -1}}),
        json!({"op": "SUBSCRIBE", "topic": "t", "group": "h", "opts": {"mode": "x"}}),
        json!({"op": "SUBSCRIBE", "topic": "T", "group": "h"}),
        json!({"op": "UNSUBSCRIBE", "topic": "t"}),
        json!({"op": "UNSUBSCRIBE", "topic": "t", "group": "g", "id": ID}),
        json!({"op": "PAUSE", "topic": "t", "group": "g", "x": 1}),
        json!({"op": "RESUME", "group": "g"}),
        json!({"op": "ACK", "topic": "t", "group": "g"}),
        json!({"op": "ACK", "topic": "t", "group": "g", "id": 1}),
        json!({"op": "ACK", "topic": "t", "group": "g", "ids": ID}),
        json!({"op": "ACK", "topic": "t", "group": "g", "lease": 1}),
        json!({"op": "ACK", "topic": "t", "group": "g", "leases": "x"}),
        json!({"op": "ACK", "topic": "t", "group": "g", "id": ID, "foo": 1}),
        json!({"op": "NACK", "topic": "t", "group": "g", "id": ID, "delay_ms": "1"}),
        json!({"op": "NACK", "topic": "t", "group": "g", "id": ID, "delay_ms": -1}),
        json!({"op": "NACK", "topic": "t", "group": "g", "id": ID, "delay_ms": 1, "delayMs": 1}),
        json!({"op": "NACK", "topic": "t", "group": "g", "id": ID, "reason": 1}),
        json!({"op": "MODACK", "topic": "t", "group": "g", "id": ID, "extend_ms": "1"}),
    ] {
        socket.fails(frame, "bad_request");
    }
    socket.ok(json!({"op": "UNSUBSCRIBE", "topic": "t", "group": "g"}));
}

#[test]
fn open_connections_are_counted() {
    let site = Site::start();
    let count = || site.api.metric("ws_connections").unwrap();
    assert!(count() == 0.0);
    let mut sockets: Vec<Socket> = (0..5).map(|_| Socket::open(&site.api)).collect();
    for socket in &mut sockets {
        socket.ok(publish("t", 0));
    }
    assert!(count() == 5.0, "{}", count());
    sockets.pop().unwrap().close();
    sockets.pop();
    eventually("two are gone", || count() == 3.0);
    drop(sockets);
    eventually("all are gone", || count() == 0.0);
}

#[test]
fn a_goodbye_is_answered_with_a_close_that_has_a_reason() {
    let (_site, mut socket) = site();
    socket.ok(publish("t", 0));
    socket.message(tungstenite::Message::Close(Some(tungstenite::protocol::CloseFrame {
        code: 1000.into(),
        reason: "done".into(),
    })));
    assert_eq!(socket.is_closed().0, 1000);
}

#[test]
fn a_hub_that_ends_says_goodbye_with_a_reason() {
    let (mut site, mut socket) = site();
    let mut reader = Socket::open(&site.api);
    reader.subscribe("t", "g", json!({}));
    socket.ok(publish("t", 0));
    reader.event();
    let started = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| site.stop());
        assert_ne!(socket.is_closed().0, 1000);
        assert_ne!(reader.is_closed().0, 1000);
    });
    assert!(since(started) < 10_000);
}

#[test]
fn many_connections_publish_at_once() {
    let site = Site::start();
    std::thread::scope(|scope| {
        for client in 0..20 {
            let api = &site.api;
            scope.spawn(move || {
                let mut socket = Socket::open(api);
                for n in 0..20 {
                    socket.ok(publish("t", client * 100 + n));
                }
            });
        }
    });
    let events = site.api.all("t", "");
    assert_eq!(events.len(), 400);
    for client in 0..20 {
        let numbers = events.iter().map(|event| event["payload"]["n"].as_u64().unwrap());
        let own: Vec<u64> = numbers.filter(|n| n / 100 == client).collect();
        assert!(own.is_sorted() && own.len() == 20, "{own:?}");
    }
}
