//! The WebSocket of a hub, by a client of its own kind: one test a rule.

use crate::common::{Hub, PATIENCE};
use serde_json::{Value, json};
use std::net::TcpStream;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::{Message, WebSocket};

/// A client that has one connection.
struct Client {
    socket: WebSocket<TcpStream>,
    /// Frames that came while something else was waited for.
    kept: Vec<Value>,
    next_corr: u64,
}

impl Client {
    fn connect(hub: &Hub) -> Self {
        let address = hub.url.strip_prefix("http://").unwrap();
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let (socket, _) = tungstenite::client(format!("ws://{address}/ws"), stream).unwrap();
        Self { socket, kept: Vec::new(), next_corr: 0 }
    }

    fn send(&mut self, frame: Value) {
        self.socket.send(Message::text(frame.to_string())).unwrap();
    }

    fn receive(&mut self) -> Value {
        loop {
            if let Message::Text(text) = self.socket.read().unwrap() {
                return serde_json::from_str(&text).unwrap();
            }
        }
    }

    /// The next frame that `is_it`; others are kept.
    fn wait_for(&mut self, is_it: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.kept.iter().position(&is_it) {
            return self.kept.remove(at);
        }
        loop {
            let frame = self.receive();
            if is_it(&frame) {
                return frame;
            }
            self.kept.push(frame);
        }
    }

    /// Sends a request and gives its answer.
    fn call(&mut self, mut frame: Value) -> Value {
        self.next_corr += 1;
        let corr = json!(self.next_corr.to_string());
        frame["corr"] = corr.clone();
        self.send(frame);
        self.wait_for(|frame| frame["corr"] == corr)
    }

    fn ok(&mut self, frame: Value) -> Value {
        let answer = self.call(frame);
        assert_eq!(answer["op"], "OK", "{answer}");
        answer
    }

    fn err(&mut self, frame: Value, code: &str) -> Value {
        let answer = self.call(frame);
        assert_eq!((&answer["op"], &answer["code"]), (&json!("ERR"), &json!(code)), "{answer}");
        assert!(answer["msg"].is_string(), "{answer}");
        answer
    }

    fn publish(&mut self, topic: &str, payload: Value) -> Value {
        self.ok(json!({"op": "PUBLISH", "topic": topic, "payload": payload}))
    }

    fn subscribe(&mut self, topic: &str, group: &str, opts: Value) {
        self.ok(json!({"op": "SUBSCRIBE", "topic": topic, "group": group, "opts": opts}));
    }

    fn event(&mut self) -> Value {
        self.wait_for(|frame| frame["op"] == "EVENT")
    }

    fn ack(&mut self, delivery: &Value) {
        let lease = &delivery["ctx"]["lease"];
        self.ok(json!({"op": "ACK", "topic": delivery["topic"], "group": delivery["group"], "lease": lease}));
    }

    /// How the hub closes the connection.
    fn closed(&mut self) -> CloseCode {
        loop {
            if let Message::Close(Some(frame)) = self.socket.read().unwrap() {
                assert!(!frame.reason.is_empty(), "a close says why");
                return frame.code;
            }
        }
    }
}

fn earliest() -> Value {
    json!({"from": "earliest"})
}

#[test]
fn what_is_published_is_delivered() {
    let hub = Hub::start();
    let mut client = Client::connect(&hub);
    client.ok(json!({"op": "AUTH", "token": "any"}));
    let opts = json!({"key": "k", "headers": {"x-a": "1"}, "tags": ["#t"]});
    let published = client.ok(json!({"op": "PUBLISH", "topic": "t", "payload": {"n": 1}, "opts": opts}));
    assert_eq!((&published["offset"], &published["duplicate"]), (&json!(0), &json!(false)));
    client.subscribe("t", "g", earliest());
    let delivery = client.event();
    assert_eq!(delivery["event"]["id"], published["id"]);
    assert_eq!(delivery["event"]["payload"], json!({"n": 1}));
    assert_eq!(delivery["event"]["headers"]["x-a"], "1");
    assert_eq!((&delivery["topic"], &delivery["group"]), (&json!("t"), &json!("g")));
    assert_eq!((&delivery["ctx"]["attempt"], &delivery["ctx"]["maxAttempts"]), (&json!(1), &json!(5)));
    client.ok(json!({"op": "ACK", "topic": "t", "group": "g", "id": published["id"]}));
    client.publish("t", json!(2));
    assert_eq!(client.event()["event"]["payload"], 2, "the next one comes by itself");
}

#[test]
fn several_events_are_published_as_one() {
    let hub = Hub::start();
    let mut client = Client::connect(&hub);
    let answer =
        client.ok(json!({"op": "PUBLISH", "topic": "t", "events": [{"payload": 1}, {"payload": null}]}));
    let offsets: Vec<&Value> = answer["events"].as_array().unwrap().iter().map(|e| &e["offset"]).collect();
    assert_eq!(offsets, [&json!(0), &json!(1)]);
    let bad = json!({"op": "PUBLISH", "topic": "t", "events": [{"payload": 3}, {"payload": 4, "key": 5}]});
    assert_eq!(client.err(bad, "bad_request")["index"], 1);
    assert_eq!(client.publish("t", json!(3))["offset"], 2, "nothing of the bad one is there");
}

#[test]
fn publishes_keep_their_order() {
    let hub = Hub::start();
    let mut client = Client::connect(&hub);
    for n in 0..500 {
        client.send(json!({"op": "PUBLISH", "topic": "t", "payload": n, "corr": n}));
    }
    for _ in 0..500 {
        let answer = client.receive();
        assert_eq!(answer["offset"], answer["corr"], "{answer}");
    }
}

#[test]
fn without_corr_only_failures_are_answered() {
    let hub = Hub::start();
    let mut client = Client::connect(&hub);
    client.send(json!({"op": "PUBLISH", "topic": "t", "payload": 1}));
    client.send(json!({"op": "PUBLISH", "topic": "T", "payload": 1}));
    let answer = client.receive();
    assert_eq!((&answer["op"], &answer["code"]), (&json!("ERR"), &json!("bad_request")));
    assert_eq!(answer.get("corr"), None);
    assert_eq!(client.publish("t", json!(2))["offset"], 1);
}

#[test]
fn batches_come_in_one_frame() {
    let hub = Hub::start();
    let mut client = Client::connect(&hub);
    client.ok(
        json!({"op": "PUBLISH", "topic": "t", "events": [{"payload": 1}, {"payload": 2}, {"payload": 3}]}),
    );
    client.subscribe("t", "g", json!({"from": "earliest", "batch": true, "batchSize": 2}));
    let first = client.wait_for(|frame| frame["op"] == "EVENTS");
    let second = client.wait_for(|frame| frame["op"] == "EVENTS");
    let payloads = |frame: &Value| -> Vec<Value> {
        frame["deliveries"].as_array().unwrap().iter().map(|d| d["event"]["payload"].clone()).collect()
    };
    assert_eq!([payloads(&first), payloads(&second)], [vec![json!(1), json!(2)], vec![json!(3)]]);
    let leases: Vec<&Value> =
        first["deliveries"].as_array().unwrap().iter().map(|d| &d["ctx"]["lease"]).collect();
    client.ok(json!({"op": "ACK", "topic": "t", "group": "g", "leases": leases}));
}

#[test]
fn a_nack_brings_an_event_back_and_a_spent_lease_is_refused() {
    let hub = Hub::start();
    let mut client = Client::connect(&hub);
    client.publish("t", json!(1));
    client.subscribe("t", "g", earliest());
    let first = client.event();
    let nack = json!({"op": "NACK", "topic": "t", "group": "g", "id": first["event"]["id"], "reason": "no"});
    client.ok(nack.clone());
    let second = client.event();
    assert_eq!(second["ctx"]["attempt"], 2);
    client.err(
        json!({"op": "ACK", "topic": "t", "group": "g", "lease": first["ctx"]["lease"]}),
        "lease_expired",
    );
    client.ok(
        json!({"op": "MODACK", "topic": "t", "group": "g", "id": second["event"]["id"], "extend_ms": 60_000}),
    );
    client.ack(&second);
    client.err(nack, "unknown_id");
}

#[test]
fn the_rules_of_subscriptions() {
    let hub = Hub::start();
    let mut client = Client::connect(&hub);
    let subscribe = json!({"op": "SUBSCRIBE", "topic": "t", "group": "g", "opts": {"maxAttempts": 3}});
    client.ok(subscribe.clone());
    client.err(subscribe, "already_subscribed");
    client.err(json!({"op": "ACK", "topic": "t", "group": "other", "lease": "a"}), "not_subscribed");
    client.err(json!({"op": "PAUSE", "topic": "u", "group": "g"}), "not_subscribed");
    client.err(json!({"op": "ACK", "topic": "t", "group": "g"}), "bad_request");
    client.err(
        json!({"op": "ACK", "topic": "t", "group": "g", "id": "0198c0de-0000-7000-8000-000000000001"}),
        "unknown_id",
    );
    client.err(json!({"op": "ACK", "topic": "t", "group": "g", "lease": "nonsense"}), "lease_expired");
    client.ok(json!({"op": "UNSUBSCRIBE", "topic": "t", "group": "g"}));
    let other = json!({"op": "SUBSCRIBE", "topic": "t", "group": "g", "opts": {"maxAttempts": 4}});
    client.err(other, "group_options");
    client.ok(json!({"op": "SUBSCRIBE", "topics": ["a", "b"], "group": "g"}));
    for topic in ["a", "b"] {
        client.publish(topic, json!(topic));
        assert_eq!(client.event()["topic"], topic);
    }
}

#[test]
fn a_pause_holds_events_back() {
    let hub = Hub::start();
    let mut client = Client::connect(&hub);
    client.subscribe("t", "g", earliest());
    client.ok(json!({"op": "PAUSE", "topic": "t", "group": "g"}));
    client.publish("t", json!(1));
    // Had it been delivered, it would have come before this answer.
    client.publish("u", json!(1));
    assert!(client.kept.is_empty(), "{:?}", client.kept);
    client.ok(json!({"op": "RESUME", "topic": "t", "group": "g"}));
    assert_eq!(client.event()["event"]["payload"], 1);
}

#[test]
fn leases_of_a_lost_connection_are_free_at_once() {
    let hub = Hub::start();
    let mut other = Client::connect(&hub);
    other.ok(json!({"op": "PUBLISH", "topic": "t", "events": [{"payload": 1}, {"payload": 2}]}));
    let mut lost = Client::connect(&hub);
    lost.subscribe("t", "g", json!({"from": "earliest", "ackTimeoutMs": 600_000}));
    let held = [lost.event(), lost.event()];
    assert_eq!(held.map(|delivery| delivery["ctx"]["attempt"].clone()), [json!(1), json!(1)]);
    drop(lost);
    other.subscribe("t", "g", json!({}));
    let mut again = [other.event(), other.event()];
    again.sort_by_key(|delivery| delivery["event"]["offset"].as_u64());
    let attempts = again.map(|delivery| delivery["ctx"]["attempt"].clone());
    assert_eq!(attempts, [json!(2), json!(1)], "only the oldest counts");
}

#[test]
fn an_ack_right_before_the_end_counts() {
    let hub = Hub::start();
    let mut first = Client::connect(&hub);
    first.publish("t", json!(1));
    first.subscribe("t", "g", earliest());
    let delivery = first.event();
    let lease = &delivery["ctx"]["lease"];
    first.send(json!({"op": "ACK", "topic": "t", "group": "g", "lease": lease}));
    first.send(json!({"op": "PUBLISH", "topic": "t", "payload": 2}));
    first.socket.close(None).unwrap();
    while first.socket.read().is_ok() {}
    let mut second = Client::connect(&hub);
    second.subscribe("t", "g", json!({}));
    assert_eq!(second.event()["event"]["payload"], 2);
}

#[test]
fn members_of_a_partitioned_group_are_told_their_partitions() {
    let hub = Hub::start();
    hub.run(&["topics", "create", "t", "--partitions", "8"]).ok();
    let mut first = Client::connect(&hub);
    first.subscribe("t", "g", json!({"mode": "partitioned", "member": "a"}));
    let assigned = |frame: &Value| frame["op"] == "ASSIGNED";
    let mine = first.wait_for(|frame| assigned(frame) && frame["partitions"].as_array().unwrap().len() == 8);
    assert_eq!((&mine["topic"], &mine["group"]), (&json!("t"), &json!("g")));
    let mut second = Client::connect(&hub);
    second.subscribe("t", "g", json!({"mode": "partitioned", "member": "b"}));
    let fewer = first.wait_for(|frame| assigned(frame) && frame["partitions"].as_array().unwrap().len() < 8);
    let others =
        second.wait_for(|frame| assigned(frame) && !frame["partitions"].as_array().unwrap().is_empty());
    let all = [fewer, others].map(|frame| frame["partitions"].as_array().unwrap().clone()).concat();
    assert_eq!(all.len(), 8, "each partition has one member: {all:?}");
    drop(second);
    first.wait_for(|frame| assigned(frame) && frame["partitions"].as_array().unwrap().len() == 8);
}

#[test]
fn nonsense_is_answered_and_the_connection_lives_on() {
    let hub = Hub::start();
    let mut client = Client::connect(&hub);
    for (frame, code) in [
        ("", "bad_json"),
        ("{", "bad_json"),
        ("[]", "bad_request"),
        ("{}", "bad_request"),
        (r#"{"op":"NONE"}"#, "bad_request"),
        (r#"{"op":1}"#, "bad_request"),
        (r#"{"op":"PUBLISH"}"#, "bad_request"),
        (r#"{"op":"PUBLISH","topic":"t"}"#, "bad_request"),
        (r#"{"op":"PUBLISH","topic":"t","payload":1,"events":[]}"#, "bad_request"),
        (r#"{"op":"PUBLISH","topic":"t","payload":1,"x":1}"#, "bad_request"),
        (r#"{"op":"PUBLISH","topic":"dlq.t","payload":1}"#, "forbidden"),
        (r#"{"op":"SUBSCRIBE","topic":"t"}"#, "bad_request"),
        (r#"{"op":"SUBSCRIBE","topic":"t","group":"g","opts":{"filter":"event."}}"#, "bad_filter"),
        (r#"{"op":"SUBSCRIBE","topic":"t","group":"g","opts":{"mode":"x"}}"#, "bad_request"),
        (r#"{"op":"COMMIT","writes":[]}"#, "bad_request"),
    ] {
        client.socket.send(Message::text(frame)).unwrap();
        let answer = client.receive();
        assert_eq!((&answer["op"], &answer["code"]), (&json!("ERR"), &json!(code)), "{frame}: {answer}");
    }
    client.publish("t", json!(1));
}

#[test]
fn binary_frames_and_oversize_frames_close_the_connection() {
    let hub = Hub::start();
    let mut client = Client::connect(&hub);
    client.socket.send(Message::binary(vec![1])).unwrap();
    assert_eq!(client.closed(), CloseCode::Unsupported);
    let mut client = Client::connect(&hub);
    // The hub may close before all of it is sent.
    let _ = client.socket.send(Message::text("x".repeat(40 << 20)));
    // What was not read of it may turn the close into a reset on its way.
    if let Ok(message) = client.socket.read() {
        assert!(message.is_close(), "{message:?}");
    }
    let mut client = Client::connect(&hub);
    client.socket.send(Message::Ping(vec![7].into())).unwrap();
    assert_eq!(client.socket.read().unwrap(), Message::Pong(vec![7].into()));
}

#[test]
fn the_end_of_the_hub_closes_connections_with_a_reason() {
    let hub = Hub::start();
    let mut client = Client::connect(&hub);
    client.subscribe("t", "g", earliest());
    hub.signal(rustix::process::Signal::TERM);
    assert_eq!(client.closed(), CloseCode::Away);
    assert!(hub.stop().success());
}

#[test]
fn publishes_that_come_together_keep_their_order_and_only_bad_ones_fail() {
    const ALL: u64 = 2_000;
    let hub = Hub::start();
    let mut client = Client::connect(&hub);
    client.publish("t", json!("first"));
    for number in 0..ALL {
        let opts = match number % 50 {
            // Far ahead of the clock: refused for what it is.
            7 => json!({"ts": u64::MAX}),
            // The same id with another payload: refused for what is there.
            13 | 14 => json!({"id": format!("0198c0de-0000-7000-8000-{:012}", number / 50)}),
            21 => json!({"partition": 9}),
            30 => json!({"key": "k", "expect": {"last_id": null}}),
            _ => json!({}),
        };
        let mut frame = json!({"op": "PUBLISH", "topic": "t", "corr": number.to_string()});
        if number % 50 == 40 {
            // An array is all or none, whatever it goes together with.
            let ts = if number % 100 == 40 { 1 } else { u64::MAX };
            frame["events"] = json!([{"payload": "a"}, {"payload": "b", "ts": ts}]);
        } else {
            (frame["payload"], frame["opts"]) = (json!(number), opts);
        }
        client.socket.write(Message::text(frame.to_string())).unwrap();
    }
    client.socket.flush().unwrap();
    let mut taken = vec![json!("first")];
    for number in 0..ALL {
        let answer = client.receive();
        assert_eq!(answer["corr"], number.to_string(), "answers come in the order of the publishes");
        let code = match number {
            _ if number % 100 == 40 => {
                assert_eq!(answer["events"][0]["offset"], taken.len(), "{answer}");
                taken.extend([json!("a"), json!("b")]);
                continue;
            }
            _ if number % 100 == 90 => {
                assert_eq!(
                    (&answer["code"], &answer["index"]),
                    (&json!("bad_request"), &json!(1)),
                    "{answer}"
                );
                continue;
            }
            _ if number % 50 == 7 || number % 50 == 21 => "bad_request",
            _ if number % 50 == 14 => "id_conflict",
            _ if number % 50 == 30 && number > 50 => "expectation_failed",
            _ => {
                assert_eq!(
                    (&answer["op"], &answer["offset"]),
                    (&json!("OK"), &json!(taken.len())),
                    "{answer}"
                );
                taken.push(json!(number));
                continue;
            }
        };
        assert_eq!((&answer["op"], &answer["code"]), (&json!("ERR"), &json!(code)), "{answer}");
        assert!(answer.get("index").is_none(), "it was no array: {answer}");
    }
    let exported = hub.run(&["export", "t"]).ok();
    let payloads: Vec<Value> = exported
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["payload"].clone())
        .collect();
    assert_eq!(payloads, taken);
}

#[test]
fn every_publish_is_answered_however_many_come_at_once() {
    const ALL: u64 = 3_000;
    let hub = Hub::start();
    let mut client = Client::connect(&hub);
    for number in 0..ALL {
        let id = format!("0198c0de-0000-7000-8000-{number:012}");
        let frame = json!({"op": "PUBLISH", "topic": "t", "payload": 1, "opts": {"id": id}, "corr": number});
        client.socket.write(Message::text(frame.to_string())).unwrap();
    }
    client.socket.flush().unwrap();
    for number in 0..ALL {
        assert_eq!(client.receive()["corr"], number);
    }
}

#[test]
fn publishes_go_together_only_as_far_as_a_commit_goes() {
    let hub = Hub::with_file("[limits]\nevent_bytes = 8192\ncommit_bytes = 16384\n", &["--store", "memory"]);
    let mut client = Client::connect(&hub);
    client.publish("t", json!(0));
    for number in 0..200 {
        let frame = json!({"op": "PUBLISH", "topic": "t", "payload": "x".repeat(1_000), "corr": number});
        client.socket.write(Message::text(frame.to_string())).unwrap();
    }
    client.socket.flush().unwrap();
    for _ in 0..200 {
        let answer = client.receive();
        assert_eq!(answer["op"], "OK", "{answer}");
    }
}

#[test]
fn what_was_sent_before_a_close_still_happens() {
    let hub = Hub::start();
    let mut client = Client::connect(&hub);
    client.publish("t", json!(0));
    for frame in [
        json!({"op": "AUTH", "token": "any", "corr": 1}),
        json!({"op": "PUBLISH", "topic": "t", "payload": "last words"}),
    ] {
        client.socket.write(Message::text(frame.to_string())).unwrap();
    }
    client.socket.close(None).unwrap();
    client.socket.flush().unwrap();
    while client.socket.read().is_ok() {}
    // A consumer that waits for it sees it.
    let said = hub.run(&["sub", "t", "--group", "g", "--from", "earliest", "--max", "2"]).ok();
    assert!(said.contains("last words"), "{said}");
}

/// How many leases a member holds.
fn held_by(hub: &Hub, member: &str) -> usize {
    let status: Value = serde_json::from_str(&hub.run(&["groups", "show", "t", "g"]).ok()).unwrap();
    let members = status["members"].as_array().unwrap();
    let held = members
        .iter()
        .find(|one| one["member"] == member)
        .map_or(0, |one| one["in_flight"].as_u64().unwrap());
    held as usize
}

#[test]
fn a_member_that_does_not_read_leaves_the_rest_to_the_others() {
    const EVENTS: usize = 24_000;
    const BATCH: usize = 10;
    let hub = Hub::start();
    let [mut stalled, mut reader, mut producer] = [(); 3].map(|()| Client::connect(&hub));
    // Small enough that all of a page waits in the hub's buffer while the next one is looked for.
    let filling = "x".repeat(600);
    for _ in 0..EVENTS / 100 {
        let events: Vec<Value> = (0..100).map(|n| json!({"payload": {"n": n, "filling": filling}})).collect();
        producer.ok(json!({"op": "PUBLISH", "topic": "t", "events": events}));
    }
    let subscribe = |client: &mut Client, name: &str| {
        let opts = json!({"from": "earliest", "filter": "event.payload.n >= 0", "ordering": "none",
            "ackTimeoutMs": 600_000, "maxInFlight": 100_000, "batchSize": BATCH, "member": name});
        client.ok(json!({"op": "SUBSCRIBE", "topic": "t", "group": "g", "opts": opts}));
    };
    subscribe(&mut stalled, "stalled");
    // Its socket takes a few megabytes, and then nothing more: the same count, several looks in a row.
    let (mut held, mut looks) = (0, 0);
    while looks < 8 {
        let now = held_by(&hub, "stalled");
        looks = if now > 0 && now == held { looks + 1 } else { 0 };
        held = now;
    }
    assert!(held + 100 * BATCH < EVENTS, "there is something left: {held}");
    subscribe(&mut reader, "reader");
    for _ in 0..EVENTS - held - 2 * BATCH {
        reader.wait_for(|frame| frame["op"] == "EVENT");
    }
    // It is still there: the others did not have to wait until it was cut off.
    assert!(held_by(&hub, "stalled") >= held);
}
