//! Thousands of frames that are almost right, mixed with some that are all wrong, over real sockets: every one of them
//! gets an error or a close with a reason, other clients feel nothing, and the hub's memory does not grow with their
//! number.

use crate::common::{Hub, PATIENCE};
use crate::contract_support;
use crate::contract_support::{Api, CODES};
use crate::groups_support::eventually;
use crate::ws_support::{Heard, Socket, bare_frame, frame_head};
use fastrand::Rng;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use serde_json::value::RawValue;
use std::net::Shutdown;

/// How many clients there are at once.
const CLIENTS: u64 = 4;
/// How many connections each of them makes, before the memory is looked at for the first time and after that.
const WARM_UP: usize = 40;
const ROUNDS: usize = 160;
/// Frames of a connection, before the one that ends it.
const FRAMES: usize = 20;
/// What the hub may grow by in all those rounds: the index of what was published, and what the allocator keeps. The
/// buffers of the connections alone would be 80 MiB, if they were not given back.
const GROWTH: u64 = 16 << 20;

const TEXT: u8 = 0x1;
const BINARY: u8 = 0x2;
const PING: u8 = 0x9;
const FINAL: u8 = 0x80;

/// Right frames, to be made wrong. `LEASE` and `ID` stand for those of a delivery.
const RIGHT: &[&str] = &[
    r#"{"op":"PUBLISH","corr":"1","topic":"t","payload":{"n":1.10,"s":"é🦀"},"opts":{"key":"k","ts":1754683200123,"headers":{"x-a":"b"},"tags":["a"],"sid":"s","partition":0}}"#,
    r#"{"op":"PUBLISH","topic":"t","events":[{"payload":1},{"payload":null,"key":"k"},{"payload":[[]],"expect":{"last_id":null}}]}"#,
    r#"{"op":"PUBLISH","topic":"t","payload":1,"opts":{"id":"6f2d5a3e-8c1b-4d7f-9a60-1b2c3d4e5f60"},"corr":"2"}"#,
    r#"{"op":"SUBSCRIBE","corr":"3","topic":"t","group":"h","opts":{"from":"earliest","mode":"shared","ordering":"key","ackTimeoutMs":30000,"maxAttempts":5,"backoffMs":100,"filter":"event.payload.n > 1","batch":true,"batchSize":10,"maxInFlight":20,"member":"m"}}"#,
    r#"{"op":"SUBSCRIBE","topics":["t","u"],"group":"g"}"#,
    r#"{"op":"UNSUBSCRIBE","topic":"t","group":"h","corr":"4"}"#,
    r#"{"op":"ACK","topic":"t","group":"g","ids":["ID"],"corr":"5"}"#,
    r#"{"op":"ACK","topic":"t","group":"g","leases":["LEASE"]}"#,
    r#"{"op":"NACK","topic":"t","group":"g","lease":"LEASE","reason":"no","delay_ms":1000}"#,
    r#"{"op":"MODACK","topic":"t","group":"g","id":"ID","extend_ms":1000,"corr":"6"}"#,
    r#"{"op":"PAUSE","topic":"t","group":"g","corr":"7"}"#,
    r#"{"op":"RESUME","topic":"t","group":"g"}"#,
    r#"{"op":"AUTH","token":"x","corr":"8"}"#,
];

/// Numbers that fit nowhere, or hardly.
const NUMBERS: &[&str] = &[
    "1e999999",
    "-1",
    "-0",
    "1.5",
    "18446744073709551615",
    "18446744073709551616",
    "4294967296",
    "1E400",
    "123456789012345678901234567890123456789012345678901234567890",
    "0.000000000000000000000000000000000000000000000000000001",
];

const KINDS: &[&str] = &[
    "null",
    "true",
    "[]",
    "{}",
    "\"\"",
    "\"\\u0000\"",
    "\"\\ud800\"",
    "[[[]]]",
    "{\"op\":\"AUTH\"}",
    "[\"t\",7]",
];

/// A frame of the hub, as far as it is looked at: what somebody published, or gave as `corr`, may be numbers and texts
/// that no program can hold.
#[derive(Deserialize)]
struct Frame<'a> {
    op: String,
    #[serde(borrow, default)]
    corr: Option<&'a RawValue>,
    code: Option<String>,
    msg: Option<String>,
    event: Option<Event>,
    ctx: Option<Context>,
}

#[derive(Deserialize)]
struct Event {
    id: String,
}

#[derive(Deserialize)]
struct Context {
    lease: String,
}

/// What a client does to the hub, and what it knows of it.
struct Client {
    socket: Socket,
    rng: Rng,
    lease: String,
    id: String,
    probes: u64,
}

impl Client {
    fn open(api: &Api, rng: Rng) -> Self {
        let mut socket = Socket::open(api);
        socket.subscribe("t", "g", json!({"from": "earliest", "maxInFlight": 50}));
        let (lease, id) = ("0".repeat(17), "6f2d5a3e-8c1b-4d7f-9a60-1b2c3d4e5f60".to_owned());
        Self { socket, rng, lease, id, probes: 0 }
    }

    /// A right frame, with the delivery that came last.
    fn right(&mut self) -> String {
        self.rng.choice(RIGHT).unwrap().replace("LEASE", &self.lease).replace("ID", &self.id)
    }

    /// A text that is wrong, or nearly right; and whether it is surely wrong.
    fn wrong_text(&mut self) -> (Vec<u8>, bool) {
        let right = self.right();
        let (text, surely) = match self.rng.u8(..10) {
            0..4 => (self.with_slips(right.into_bytes()), false),
            4 => (right[..floor(&right, self.rng.usize(..right.len()))].into(), true),
            5 => (self.with_depth(&right), true),
            6 => (self.with_value(&right, NUMBERS), false),
            7 => (self.with_value(&right, KINDS), false),
            8 => (right.replacen("\"op\":\"", "\"op\":\"X", 1).into_bytes(), true),
            _ => (right.replacen('{', "{\"unknown\":1,", 1).into_bytes(), true),
        };
        let surely =
            surely || text.first() != Some(&b'{') || serde_json::from_slice::<IgnoredAny>(&text).is_err();
        (text, surely)
    }

    /// Bytes that were changed, left out, or doubled.
    fn with_slips(&mut self, mut text: Vec<u8>) -> Vec<u8> {
        for _ in 0..self.rng.usize(1..4) {
            let place = self.rng.usize(..text.len());
            match self.rng.u8(..4) {
                0 => text[place] = self.rng.u8(b' '..b'~'),
                1 => drop(text.remove(place)),
                2 => text.insert(place, *self.rng.choice(b"{}[]\",:\\0e-").unwrap()),
                _ => {
                    let end = (place + self.rng.usize(1..30)).min(text.len());
                    text.extend_from_within(place..end);
                }
            }
        }
        text
    }

    /// A value so deep that a parser which calls itself would not come back.
    fn with_depth(&mut self, right: &str) -> Vec<u8> {
        let depth = self.rng.usize(200..20_000);
        let (open, close) = if self.rng.bool() { ("[", "]") } else { ("{\"a\":", "}") };
        let deep = format!(",\"payload\":{}1{}}}", open.repeat(depth), close.repeat(depth));
        format!("{}{deep}", right.strip_suffix('}').unwrap()).into_bytes()
    }

    /// Another value behind one of the colons.
    fn with_value(&mut self, right: &str, values: &[&str]) -> Vec<u8> {
        let colons: Vec<usize> = right.match_indices("\":").map(|(place, _)| place + 2).collect();
        let start = *self.rng.choice(&colons).unwrap();
        let end = start + right[start..].find([',', '}']).unwrap();
        format!("{}{}{}", &right[..start], self.rng.choice(values).unwrap(), &right[end..]).into_bytes()
    }

    /// Sends a text in one piece or in many, with pings in between, and hears the outcome.
    fn provoke(&mut self) {
        let (text, surely) = self.wrong_text();
        // Bytes that are no text are for the end, because they are one.
        if std::str::from_utf8(&text).is_err() {
            return;
        }
        let ping = if self.rng.u8(..4) == 0 {
            self.send_in_pieces(&text)
        } else {
            self.socket.bytes(&bare_frame(FINAL | TEXT, true, &text));
            None
        };
        self.probes += 1;
        let corr = format!("probe-{}", self.probes);
        self.socket.send(json!({"op": "AUTH", "token": "x", "corr": corr}));
        self.hear_all(&corr, ping, surely.then_some(&text));
    }

    /// Sends a text in pieces; gives back what was in the last ping in between.
    fn send_in_pieces(&mut self, text: &[u8]) -> Option<Vec<u8>> {
        let (mut rest, mut first, mut ping) = (text, TEXT, None);
        while rest.len() > 1 && self.rng.u8(..5) > 0 {
            let (piece, after) = rest.split_at(self.rng.usize(..rest.len()));
            self.socket.bytes(&bare_frame(first, true, piece));
            (rest, first) = (after, 0);
            if self.rng.bool() {
                let bytes: Vec<u8> = (0..self.rng.usize(..=125)).map(|_| self.rng.u8(..)).collect();
                self.socket.bytes(&bare_frame(FINAL | PING, true, &bytes));
                ping = Some(bytes);
            }
        }
        self.socket.bytes(&bare_frame(FINAL | first, true, rest));
        ping
    }

    /// Hears everything up to the answer to a probe. A ping is answered, and so is a text that is surely wrong.
    fn hear_all(&mut self, corr: &str, mut ping: Option<Vec<u8>>, wrong: Option<&Vec<u8>>) {
        let (mut errors, mut answered) = (0, false);
        let probe = json!(corr).to_string();
        while !answered || ping.is_some() {
            match self.socket.hear(PATIENCE) {
                Some(Heard::Text(text)) => {
                    let frame: Frame<'_> = serde_json::from_str(&text).unwrap();
                    self.check(&frame, &text);
                    errors += u32::from(frame.op == "ERR" && !answered);
                    answered |= frame.corr.is_some_and(|given| given.get() == probe);
                }
                // Those that were overtaken by another need no answer.
                Some(Heard::Pong(bytes)) => ping = ping.filter(|ping| *ping != bytes),
                other => panic!("{other:?} after {wrong:?}"),
            }
        }
        if let Some(text) = wrong {
            assert!(errors > 0, "no word about {}", String::from_utf8_lossy(text));
        }
    }

    /// A frame of the hub has a kind, errors say what is wrong, and none of them is the hub's own fault.
    fn check(&mut self, frame: &Frame<'_>, text: &str) {
        match &*frame.op {
            "OK" | "EVENTS" | "ASSIGNED" => {}
            "EVENT" => {
                let (event, ctx) = (frame.event.as_ref().unwrap(), frame.ctx.as_ref().unwrap());
                self.id.clone_from(&event.id);
                self.lease.clone_from(&ctx.lease);
            }
            "ERR" => {
                let code = frame.code.as_deref().unwrap();
                assert!(CODES.contains(&code) && !["internal", "unavailable"].contains(&code), "{text}");
                assert!(frame.msg.as_ref().is_some_and(|msg| !msg.is_empty()), "{text}");
            }
            _ => panic!("what is {text}?"),
        }
    }

    /// Does something that ends the connection.
    fn end(mut self) {
        let text = self.right().into_bytes();
        let whole = bare_frame(FINAL | TEXT, true, &text);
        let part = self.rng.usize(..whole.len());
        let fatal = match self.rng.u8(..9) {
            0 => bare_frame(FINAL | BINARY, true, &text),
            1 => bare_frame(FINAL | TEXT, true, &[&text[..5], b"\xff\xfe"].concat()),
            2 => bare_frame(FINAL | self.rng.u8(3..8), true, &text),
            3 => bare_frame(FINAL | TEXT | 1 << self.rng.u8(4..7), true, &text),
            4 => bare_frame(FINAL | TEXT, false, &text),
            5 => [frame_head(FINAL | TEXT, true, 1 << self.rng.u8(26..63)), vec![0; 4]].concat(),
            6 => bare_frame(FINAL | PING, true, &[7; 126]),
            7 => {
                // Half a frame, and then nothing: there is no more to say, but more to hear.
                self.socket.bytes(&whole[..part]);
                self.socket.stream().shutdown(Shutdown::Write).unwrap();
                while let Some(Heard::Text(_)) = self.socket.hear(PATIENCE) {}
                return;
            }
            _ => {
                self.socket.bytes(&whole[..part]);
                return;
            }
        };
        self.socket.bytes(&fatal);
        loop {
            match self.socket.hear(PATIENCE) {
                Some(Heard::Text(_) | Heard::Pong(_)) => {}
                // That it has a reason is checked where it is heard.
                Some(Heard::Closed(code, _)) => {
                    assert!([1002, 1003, 1007, 1009].contains(&code), "{code} after {fatal:?}");
                    return;
                }
                other => panic!("{other:?} after {fatal:?}"),
            }
        }
    }
}

/// The nearest place before that is not within a character.
fn floor(text: &str, place: usize) -> usize {
    (0..=place).rev().find(|place| text.is_char_boundary(*place)).unwrap_or(0)
}

/// Lets all clients make so many connections.
fn harass(api: &Api, connections: usize, first_seed: u64) {
    std::thread::scope(|scope| {
        for seed in first_seed..first_seed + CLIENTS {
            scope.spawn(move || {
                let mut seeds = Rng::with_seed(seed);
                for _ in 0..connections {
                    let mut client = Client::open(api, seeds.fork());
                    for _ in 0..FRAMES {
                        client.provoke();
                    }
                    client.end();
                }
            });
        }
    });
    eventually("all are gone", || api.metric("ws_connections") == Some(0.0));
    // Groups with odd names are there because they were asked for, and no leak.
    for topic in ["t", "u"] {
        let groups = api.get(&format!("/v1/topics/{topic}/groups")).is(200);
        for group in groups["groups"].as_array().unwrap() {
            let name = contract_support::encoded(group["group"].as_str().unwrap());
            assert_eq!(api.delete(&format!("/v1/topics/{topic}/groups/{name}")).status, 204);
        }
    }
}

#[test]
fn wrong_frames_are_answered_and_leave_nothing_behind() {
    let hub = Hub::with_file("[topics]\nauto_create = false\n[topics.t]\n[topics.u]\n", &["--data", "data"]);
    let api = hub.api();
    let mut bystander = Socket::open(&api);
    bystander.publish("t", 0..100);
    bystander.close();
    harass(&api, WARM_UP, 0);
    let before = hub.usage().memory().unwrap();
    harass(&api, ROUNDS, CLIENTS);
    let after = hub.usage().memory().unwrap();
    assert!(after < before + GROWTH, "the hub has grown from {} to {} MiB", before >> 20, after >> 20);
    let mut bystander = Socket::open(&api);
    bystander.ok(json!({"op": "PUBLISH", "topic": "t", "payload": 1}));
    bystander.close();
    // A task that panicked would have dropped its line without a word, and its client would have told.
    assert_eq!(api.get("/healthz").status, 200);
    assert_eq!(hub.stop().code(), Some(0));
}
