//! Frames that nobody should send. The hub says what is wrong with each, or closes with a reason, and stays well.

use crate::common;
use crate::contract_support::{Api, Site};
use crate::groups_support::{eventually, since};
use crate::ws_support::{Heard, Socket, bare_frame, frame_head, looks_right};
use fastrand::Rng;
use serde_json::{Value, json};
use std::net::Shutdown;
use std::time::{Duration, Instant};
use tungstenite::Message;

/// How many text frames each of the four threads sends, and how many lines of random bytes.
const FRAMES: usize = 1500;
const LINES: usize = 60;
/// How many frames are sent before their answers are read.
const BURST: usize = 50;

const TEXT: u8 = 0x1;
const BINARY: u8 = 0x2;
const CLOSE: u8 = 0x8;
const PING: u8 = 0x9;
const FINAL: u8 = 0x80;

const PUBLISH: &str = r#"{"op":"PUBLISH","corr":"é","topic":"t","payload":{"s":"é🦀"}}"#;

/// A hub that is well, and a client.
fn hub() -> (Site, Socket) {
    let hub = Site::start();
    let socket = Socket::open(&hub.api);
    (hub, socket)
}

/// A new client can do its work.
#[track_caller]
fn serves(api: &Api) {
    let mut socket = Socket::open(api);
    socket.ok(json!({"op": "PUBLISH", "topic": "well", "payload": 1}));
}

/// The hub answers these bytes with an error, or a close with a reason, and others feel nothing.
#[track_caller]
fn refuses(bytes: &[u8]) -> (u16, String) {
    let (hub, mut socket) = hub();
    socket.bytes(bytes);
    let close = socket.is_closed();
    serves(&hub.api);
    hub.ends_well();
    close
}

/// The code that a frame is refused with; one that closes does so with a reason.
#[track_caller]
fn refused(socket: &mut Socket) -> String {
    match socket.hear(common::PATIENCE) {
        Some(Heard::Text(text)) => {
            let frame: Value = serde_json::from_str(&text).unwrap();
            looks_right(&frame);
            assert_eq!(frame["op"], "ERR", "{frame}");
            frame["code"].as_str().unwrap().to_owned()
        }
        Some(Heard::Closed(code, _)) => code.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_text_in_many_fragments_is_one_text() {
    let (hub, mut socket) = hub();
    // Single bytes, so that characters are torn, too.
    let bytes = PUBLISH.as_bytes();
    for (place, byte) in bytes.iter().enumerate() {
        let first = if place == 0 { TEXT } else { 0 };
        let last = if place + 1 == bytes.len() { FINAL } else { 0 };
        socket.bytes(&bare_frame(first | last, true, &[*byte]));
    }
    let answer = socket.next_frame();
    assert_eq!((&answer["op"], &answer["corr"]), (&json!("OK"), &json!("é")));
    assert_eq!(hub.api.all("t", "")[0]["payload"], json!({"s": "é🦀"}));
    hub.ends_well();
}

#[test]
fn a_ping_between_fragments_is_answered() {
    let (hub, mut socket) = hub();
    let (start, end) = PUBLISH.as_bytes().split_at(20);
    socket.bytes(&bare_frame(TEXT, true, start));
    socket.bytes(&bare_frame(FINAL | PING, true, b"there?"));
    assert!(matches!(socket.hear(common::PATIENCE), Some(Heard::Pong(bytes)) if bytes == b"there?"));
    socket.bytes(&bare_frame(0, true, b""));
    socket.bytes(&bare_frame(FINAL, true, end));
    assert_eq!(socket.next_frame()["op"], "OK");
    hub.ends_well();
}

#[test]
fn pings_are_answered_and_pongs_are_not() {
    let (hub, mut socket) = hub();
    for bytes in [&b""[..], b"a", &[255; 125]] {
        socket.message(Message::Ping(bytes.to_vec().into()));
        assert!(matches!(socket.hear(common::PATIENCE), Some(Heard::Pong(answer)) if answer == bytes));
    }
    socket.message(Message::Pong(b"unasked".to_vec().into()));
    socket.is_quiet();
    socket.ok(json!({"op": "AUTH", "token": "x"}));
    hub.ends_well();
}

#[test]
fn a_binary_frame_is_refused() {
    let (hub, mut socket) = hub();
    socket.bytes(&bare_frame(FINAL | BINARY, true, PUBLISH.as_bytes()));
    let code = refused(&mut socket);
    assert!(matches!(code.as_str(), "bad_request" | "bad_json" | "1003"), "{code}");
    hub.api.get("/v1/topics/t").fails(404, "not_found");
    serves(&hub.api);
    hub.ends_well();
}

#[test]
fn bad_utf8_is_refused() {
    for bad in
        [&b"{\"op\":\"\xff\"}"[..], b"\xc3\x28", b"\xed\xa0\x80", b"{\"op\":\"AUTH\",\"token\":\"\xf0\x9f\"}"]
    {
        let (hub, mut socket) = hub();
        socket.bytes(&bare_frame(FINAL | TEXT, true, bad));
        let code = refused(&mut socket);
        assert!(matches!(code.as_str(), "bad_json" | "bad_request" | "1007" | "1002"), "{code}");
        serves(&hub.api);
        hub.ends_well();
    }
}

#[test]
fn a_frame_without_a_mask_is_refused() {
    assert_eq!(refuses(&bare_frame(FINAL | TEXT, false, PUBLISH.as_bytes())).0, 1002);
}

#[test]
fn reserved_bits_are_refused() {
    for bit in [0x10, 0x20, 0x40] {
        assert_eq!(refuses(&bare_frame(FINAL | bit | TEXT, true, PUBLISH.as_bytes())).0, 1002);
    }
}

#[test]
fn reserved_kinds_are_refused() {
    for kind in [0x3, 0x7, 0xB, 0xF] {
        assert_eq!(refuses(&bare_frame(FINAL | kind, true, b"x")).0, 1002);
    }
}

#[test]
fn control_frames_must_be_short_and_whole() {
    assert!(matches!(refuses(&bare_frame(FINAL | PING, true, &[0; 126])).0, 1002 | 1009));
    assert_eq!(refuses(&bare_frame(PING, true, b"x")).0, 1002);
}

#[test]
fn fragments_out_of_turn_are_refused() {
    assert_eq!(refuses(&bare_frame(FINAL, true, b"x")).0, 1002);
    let mut two = bare_frame(TEXT, true, b"{");
    two.extend(bare_frame(TEXT, true, b"}"));
    assert_eq!(refuses(&two).0, 1002);
}

#[test]
fn a_bad_goodbye_does_no_harm() {
    for payload in [&b"\x03"[..], b"\x00\x00", b"\x03\xed", b"\xff\xff", b"\x03\xe8\xff\xfe", b""] {
        let (hub, mut socket) = hub();
        socket.bytes(&bare_frame(FINAL | CLOSE, true, payload));
        match socket.hear(common::PATIENCE) {
            Some(Heard::Closed(..)) => (),
            // An empty goodbye may come back as it is.
            Some(Heard::Lost(_)) if payload.is_empty() => (),
            other => panic!("{other:?} to {payload:?}"),
        }
        serves(&hub.api);
        hub.ends_well();
    }
}

#[test]
fn a_frame_that_claims_to_be_huge_is_refused_at_once() {
    for length in [64 << 20, 1 << 40, u64::MAX >> 1, u64::MAX] {
        let (hub, mut socket) = hub();
        let mut bytes = frame_head(FINAL | TEXT, true, length);
        bytes.extend_from_slice(&[0; 4]);
        socket.bytes(&bytes);
        let code = refused(&mut socket);
        assert!(matches!(code.as_str(), "too_large" | "1009" | "1002"), "{code}");
        serves(&hub.api);
        hub.ends_well();
    }
}

#[test]
fn fragments_without_end_are_refused() {
    let (hub, mut socket) = hub();
    let line = socket.stream().try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut line = line;
            let part = bare_frame(0, true, &[b'x'; 100_000]);
            let mut sent = std::io::Write::write_all(&mut line, &bare_frame(TEXT, true, b"\"")).is_ok();
            let mut count = 0;
            while sent && count < 2000 {
                sent = std::io::Write::write_all(&mut line, &part).is_ok();
                count += 1;
            }
            assert!(!sent, "the hub took 200 MB as one text");
        });
        let code = refused(&mut socket);
        assert!(matches!(code.as_str(), "too_large" | "1009"), "{code}");
        let _ = socket.stream().shutdown(Shutdown::Both);
    });
    serves(&hub.api);
    hub.ends_well();
}

#[test]
fn a_commit_that_is_too_large_is_refused() {
    let (hub, mut socket) = hub();
    let events: Vec<Value> = (0..9).map(|_| json!({"payload": "x".repeat(1_000_000)})).collect();
    socket.bytes(&bare_frame(
        FINAL | TEXT,
        true,
        json!({"op": "PUBLISH", "corr": "1", "topic": "t", "events": events}).to_string().as_bytes(),
    ));
    let code = refused(&mut socket);
    assert!(matches!(code.as_str(), "too_large" | "1009"), "{code}");
    hub.api.get("/v1/topics/t").fails(404, "not_found");
    serves(&hub.api);
    hub.ends_well();
}

#[test]
fn a_commit_that_just_fits_is_taken() {
    let (hub, mut socket) = hub();
    let events: Vec<Value> = (0..8).map(|_| json!({"payload": "x".repeat(1_000_000)})).collect();
    socket.ok(json!({"op": "PUBLISH", "topic": "t", "events": events}));
    hub.ends_well();
}

#[test]
fn json_that_is_nested_too_deep_is_refused() {
    let (hub, mut socket) = hub();
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        for depth in [129, 1000, 100_000] {
            let deep = format!("{}1{}", open.repeat(depth), close.repeat(depth));
            for text in [
                format!(r#"{{"op":"PUBLISH","topic":"t","payload":{deep}}}"#),
                format!(r#"{{"op":"PUBLISH","topic":"t","events":[{{"payload":{deep}}}]}}"#),
                format!(r#"{{"op":"AUTH","token":{deep}}}"#),
                deep.clone(),
            ] {
                socket.text(text);
                let code = refused(&mut socket);
                assert!(matches!(code.as_str(), "bad_request" | "bad_json"), "{code}");
            }
        }
    }
    let fits = format!("{}1{}", "[".repeat(127), "]".repeat(127));
    socket.text(format!(r#"{{"op":"PUBLISH","corr":"1","topic":"t","payload":{fits}}}"#));
    assert_eq!(socket.next_frame()["op"], "OK");
    hub.ends_well();
}

#[test]
fn a_line_that_ends_within_a_frame_does_no_harm() {
    let (hub, _socket) = hub();
    let whole = bare_frame(FINAL | TEXT, true, PUBLISH.as_bytes());
    for end in 0..whole.len() {
        let mut socket = Socket::open(&hub.api);
        socket.bytes(&whole[..end]);
    }
    eventually("only one is left", || hub.api.metric("ws_connections") == Some(1.0));
    hub.api.get("/v1/topics/t").fails(404, "not_found");
    hub.ends_well();
}

#[test]
fn hundreds_of_idle_connections_cost_the_others_nothing() {
    let (hub, mut socket) = hub();
    let mut idle: Vec<Socket> = (0..300).map(|_| Socket::open(&hub.api)).collect();
    for (number, one) in idle.iter_mut().enumerate() {
        one.send(json!({"op": "SUBSCRIBE", "topic": "t", "group": format!("g-{}", number % 10)}));
    }
    let started = Instant::now();
    socket.ok(json!({"op": "PUBLISH", "topic": "u", "payload": 1}));
    assert!(since(started) < 1000);
    drop(idle);
    eventually("only one is left", || hub.api.metric("ws_connections") == Some(1.0));
    hub.ends_well();
}

#[test]
fn subscribing_again_and_again_leaves_nothing_behind() {
    let (hub, mut socket) = hub();
    for _ in 0..100 {
        socket.subscribe("t", "g", json!({"from": "earliest"}));
        socket.ok(json!({"op": "UNSUBSCRIBE", "topic": "t", "group": "g"}));
    }
    let status = hub.api.get("/v1/topics/t/groups/g").is(200);
    assert_eq!(status["members"].as_array().map(Vec::len), Some(0), "{status}");
    hub.ends_well();
}

/// A value that may be right for some field.
fn value(rng: &mut Rng, depth: u32) -> Value {
    match rng.u8(..16) {
        0 => Value::Null,
        1 => json!(rng.bool()),
        2 => json!(rng.i64(..)),
        3 => json!(rng.f64() * 1e300),
        4 => json!(rng.u32(..100)),
        5..=7 => {
            json!(*rng.choice(&["t", "u", "T", "g", "h", "", "earliest", "a.b", "dlq.t", "x\u{0}y"]).unwrap())
        }
        8 => json!("6f2d5a3e-8c1b-4d7f-9a60-1b2c3d4e5f60"),
        9 => json!("x".repeat(rng.usize(..3000))),
        10 => json!("event.payload.n > 1"),
        11 | 12 if depth < 4 => (0..rng.usize(..4)).map(|_| value(rng, depth + 1)).collect(),
        13.. if depth < 4 => object(rng, depth + 1),
        _ => json!({}),
    }
}

const NAMES: &[&str] = &[
    "topic",
    "topics",
    "group",
    "payload",
    "opts",
    "events",
    "id",
    "ids",
    "lease",
    "leases",
    "reason",
    "delay_ms",
    "extend_ms",
    "token",
    "key",
    "ts",
    "headers",
    "tags",
    "caused_by",
    "sid",
    "partition",
    "expect",
    "last_id",
    "from",
    "mode",
    "ordering",
    "ackTimeoutMs",
    "maxAttempts",
    "backoffMs",
    "filter",
    "ackWindow",
    "member",
    "batchSize",
    "maxInFlight",
    "batch",
    "normalize",
    "afterId",
    "memberTtlMs",
    "foo",
    "",
    "commit_id",
    "writes",
];

fn object(rng: &mut Rng, depth: u32) -> Value {
    (0..rng.usize(..5)).map(|_| ((*rng.choice(NAMES).unwrap()).to_owned(), value(rng, depth))).collect()
}

/// A frame that is more or less right.
fn random_text(rng: &mut Rng) -> String {
    let ops = [
        "PUBLISH",
        "SUBSCRIBE",
        "UNSUBSCRIBE",
        "ACK",
        "NACK",
        "MODACK",
        "PAUSE",
        "RESUME",
        "AUTH",
        "COMMIT",
        "OK",
        "EVENT",
        "publish",
        "",
    ];
    let mut frame = object(rng, 0);
    frame["op"] = if rng.u8(..20) == 0 { value(rng, 2) } else { json!(*rng.choice(ops).unwrap()) };
    for (name, right) in [("topic", "t"), ("group", "g")] {
        if rng.u8(..4) > 0 {
            frame[name] = json!(right);
        }
    }
    if rng.u8(..3) == 0 {
        frame["opts"] = object(rng, 2);
    }
    let mut text = frame.to_string();
    if rng.u8(..5) == 0 {
        let place =
            (0..text.len()).filter(|place| text.is_char_boundary(*place)).nth(rng.usize(..text.len()));
        text.truncate(place.unwrap_or(0));
    }
    text
}

/// Sends a burst, and reads until the last answer of it; says whether the line still stands.
fn burst(socket: &mut Socket, rng: &mut Rng, name: &str) -> bool {
    for _ in 0..BURST {
        socket.text(random_text(rng));
    }
    socket.send(json!({"op": "AUTH", "token": "x", "corr": name}));
    loop {
        match socket.hear(common::PATIENCE) {
            Some(Heard::Text(text)) => {
                let frame: Value = serde_json::from_str(&text).unwrap();
                looks_right(&frame);
                assert_ne!(frame["code"], "internal", "{frame}");
                if frame["corr"] == name {
                    assert_eq!(frame["op"], "OK");
                    return true;
                }
            }
            Some(Heard::Closed(..)) => return false,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn thousands_of_random_texts_are_answered() {
    let hub = Site::start();
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let api = &hub.api;
            scope.spawn(move || {
                let mut rng = Rng::with_seed(seed);
                let mut socket = Socket::open(api);
                for round in 0..FRAMES / BURST {
                    if !burst(&mut socket, &mut rng, &format!("last-{round}")) {
                        socket = Socket::open(api);
                    }
                }
            });
        }
    });
    serves(&hub.api);
    hub.ends_well();
}

/// Random frames, often with something wrong in their heads.
fn random_bytes(rng: &mut Rng) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..rng.usize(1..20) {
        let first = match rng.u8(..4) {
            0 => rng.u8(..),
            1 => FINAL | *rng.choice(&[BINARY, PING, 0xA]).unwrap(),
            _ => FINAL | TEXT,
        };
        let payload: Vec<u8> = if rng.bool() {
            random_text(rng).into_bytes()
        } else {
            (0..rng.usize(..200)).map(|_| rng.u8(..)).collect()
        };
        let masked = rng.u8(..10) > 0;
        out.extend(bare_frame(first, masked, &payload));
    }
    if rng.u8(..3) == 0 {
        out.truncate(rng.usize(..=out.len()));
    }
    out
}

#[test]
fn thousands_of_random_frames_do_no_harm() {
    let hub = Site::start();
    std::thread::scope(|scope| {
        for seed in 10..14 {
            let api = &hub.api;
            scope.spawn(move || {
                let mut rng = Rng::with_seed(seed);
                for _ in 0..LINES {
                    let mut socket = Socket::open(api);
                    socket.bytes(&random_bytes(&mut rng));
                    let _ = socket.stream().shutdown(Shutdown::Write);
                    // Closes are checked for their reason as they are heard.
                    while let Some(Heard::Text(text)) = socket.hear(Duration::from_secs(10)) {
                        let frame: Value = serde_json::from_str(&text).unwrap();
                        looks_right(&frame);
                        assert_ne!(frame["code"], "internal", "{frame}");
                    }
                }
            });
        }
    });
    serves(&hub.api);
    eventually("all are gone", || hub.api.metric("ws_connections") == Some(0.0));
    hub.ends_well();
}

#[test]
fn what_comes_while_a_client_does_not_read_reaches_it_as_soon_as_it_does() {
    /// Less than until the hub checks whether anybody is there, which would wake the connection up.
    const SOON: Duration = Duration::from_secs(20);
    // One frame that no socket takes at once, so that the hub waits for it to leave.
    let hub = Site::with_file("[limits]\nevent_bytes = 16000000\ncommit_bytes = 32000000\n");
    let mut socket = Socket::open(&hub.api);
    hub.api.publish("large", &format!("\"{}\"", "x".repeat(15_000_000))).is(201);
    socket.subscribe("late", "g", json!({}));
    socket.subscribe("large", "g", json!({"from": "earliest"}));
    eventually("the large one is on its way", || {
        hub.api.get("/v1/topics/large/groups/g").is(200)["partitions"][0]["in_flight"] == 1
    });
    hub.api.publish("late", "1").is(201);
    eventually("the late one, too", || {
        hub.api.get("/v1/topics/late/groups/g").is(200)["partitions"][0]["in_flight"] == 1
    });
    for topic in ["large", "late"] {
        let Some(Heard::Text(text)) = socket.hear(SOON) else { panic!("nothing of {topic}") };
        let frame: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&frame["op"], &frame["topic"]), (&json!("EVENT"), &json!(topic)));
    }
}

#[test]
fn what_a_client_has_sent_and_read_is_not_held_any_more() {
    const PINGS: usize = 2_000;
    let (hub, mut socket) = hub();
    socket.ok(json!({"op": "PUBLISH", "topic": "t", "payload": "x".repeat(500_000)}));
    socket.subscribe("t", "g", json!({"from": "earliest"}));
    socket.event();
    for _ in 0..PINGS {
        socket.message(Message::Ping(vec![7; 125].into()));
        assert!(matches!(socket.hear(common::PATIENCE), Some(Heard::Pong(_))));
    }
    // What asks for it is held, too.
    eventually("nothing is held", || hub.api.metric("connection_buffer_bytes") < Some(4096.0));
    hub.ends_well();
}

#[test]
fn frames_that_are_only_announced_take_little_memory() {
    const CLIENTS: usize = 100;
    const MOST_OF_EACH: u64 = 512 << 10;
    let (hub, _) = hub();
    let resident = || hub.hub().usage().memory().unwrap();
    let before = resident();
    let announcing: Vec<Socket> = (0..CLIENTS)
        .map(|_| {
            let mut socket = Socket::open(&hub.api);
            // An answered ping shows that what comes before it was taken; here it is the frame that has begun.
            socket.bytes(&bare_frame(TEXT, true, b"\"begun"));
            socket.message(Message::Ping(b"there?".to_vec().into()));
            assert!(matches!(socket.hear(common::PATIENCE), Some(Heard::Pong(_))));
            socket.bytes(&frame_head(FINAL, true, 15_000_000));
            socket.bytes(b"\0\0\0\0x");
            socket
        })
        .collect();
    // Those that come later are served after those before them.
    serves(&hub.api);
    let grown = resident().saturating_sub(before);
    assert!(grown < CLIENTS as u64 * MOST_OF_EACH, "{} clients took {grown} bytes", announcing.len());
    hub.ends_well();
}
