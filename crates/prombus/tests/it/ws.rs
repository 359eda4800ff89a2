//! What the WebSocket of this hub does beyond the public contract, which the modules `contract_ws*` test: exact codes, how
//! publishes are gathered into commits, and what happens around a close.

use crate::common::Hub;
use crate::ws_support::{Heard, Socket};
use serde_json::{Value, json};
use tungstenite::Message;

fn connect(hub: &Hub) -> Socket {
    Socket::open(&hub.api())
}

#[track_caller]
fn publish(socket: &mut Socket, payload: Value) -> Value {
    socket.ok(json!({"op": "PUBLISH", "topic": "t", "payload": payload}))
}

/// The next frame, whatever its form: these tests use numbers as `corr`.
#[track_caller]
fn receive(socket: &mut Socket) -> Value {
    serde_json::from_str(&socket.raw()).unwrap()
}

/// Closes, and reads until the hub has, too.
fn close(mut socket: Socket) {
    socket.message(Message::Close(None));
    while !matches!(socket.read(), Some(Heard::Closed(..) | Heard::Lost(_)) | None) {}
}

#[test]
fn codes_that_the_contract_leaves_open() {
    let hub = Hub::start();
    let mut socket = connect(&hub);
    let bad = json!({"op": "PUBLISH", "topic": "t", "events": [{"payload": 3}, {"payload": 4, "key": 5}]});
    assert_eq!(socket.fails(bad, "bad_request")["index"], 1);
    socket.fails(json!({"op": "PUBLISH", "topic": "dlq.t", "payload": 1}), "forbidden");
    let filter = json!({"filter": "event."});
    socket.fails(json!({"op": "SUBSCRIBE", "topic": "t", "group": "g", "opts": filter}), "bad_filter");
    socket.fails(json!({"op": "COMMIT", "writes": []}), "bad_request");
    socket.message(Message::binary(vec![1]));
    assert_eq!(socket.is_closed().0, 1003);
}

#[test]
fn an_ack_right_before_the_end_counts() {
    let hub = Hub::start();
    let mut first = connect(&hub);
    publish(&mut first, json!(1));
    first.subscribe("t", "g", json!({"from": "earliest"}));
    let delivery = first.event();
    let lease = &delivery["ctx"]["lease"];
    first.send(json!({"op": "ACK", "topic": "t", "group": "g", "lease": lease}));
    first.send(json!({"op": "PUBLISH", "topic": "t", "payload": 2}));
    close(first);
    let mut second = connect(&hub);
    second.subscribe("t", "g", json!({}));
    assert_eq!(second.event()["event"]["payload"], 2);
}

#[test]
fn publishes_that_come_together_keep_their_order_and_only_bad_ones_fail() {
    const ALL: u64 = 2_000;
    let hub = Hub::start();
    let mut client = connect(&hub);
    publish(&mut client, json!("first"));
    let frames = (0..ALL).map(|number| {
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
        frame
    });
    client.send_together(frames);
    let mut taken = vec![json!("first")];
    for number in 0..ALL {
        let answer = receive(&mut client);
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
    let mut client = connect(&hub);
    client.send_together((0..ALL).map(|number| {
        let id = format!("0198c0de-0000-7000-8000-{number:012}");
        json!({"op": "PUBLISH", "topic": "t", "payload": 1, "opts": {"id": id}, "corr": number})
    }));
    for number in 0..ALL {
        assert_eq!(receive(&mut client)["corr"], number);
    }
}

#[test]
fn publishes_go_together_only_as_far_as_a_commit_goes() {
    let hub = Hub::with_file("[limits]\nevent_bytes = 8192\ncommit_bytes = 16384\n", &["--store", "memory"]);
    let mut client = connect(&hub);
    publish(&mut client, json!(0));
    client.send_together(
        (0..200).map(
            |number| json!({"op": "PUBLISH", "topic": "t", "payload": "x".repeat(1_000), "corr": number}),
        ),
    );
    for _ in 0..200 {
        let answer = receive(&mut client);
        assert_eq!(answer["op"], "OK", "{answer}");
    }
}

#[test]
fn what_was_sent_before_a_close_still_happens() {
    let hub = Hub::start();
    let mut client = connect(&hub);
    publish(&mut client, json!(0));
    client.send_together([
        json!({"op": "AUTH", "token": "any", "corr": 1}),
        json!({"op": "PUBLISH", "topic": "t", "payload": "last words"}),
    ]);
    close(client);
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
    let [mut stalled, mut reader, mut producer] = [(); 3].map(|()| connect(&hub));
    // Small enough that all of a page waits in the hub's buffer while the next one is looked for.
    let filling = "x".repeat(600);
    for _ in 0..EVENTS / 100 {
        let events: Vec<Value> = (0..100).map(|n| json!({"payload": {"n": n, "filling": filling}})).collect();
        producer.ok(json!({"op": "PUBLISH", "topic": "t", "events": events}));
    }
    let subscribe = |client: &mut Socket, name: &str| {
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
        reader.event();
    }
    // It is still there: the others did not have to wait until it was cut off.
    assert!(held_by(&hub, "stalled") >= held);
}
