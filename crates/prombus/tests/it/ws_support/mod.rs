//! A WebSocket client and a reader of server-sent events, as anyone could write them, that check what they hear.

pub mod stream;

use crate::common::PATIENCE;
use crate::contract_support::{Api, CODES, fields};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::time::Duration;
use tungstenite::protocol::CloseFrame;
use tungstenite::{Error, Message, WebSocket};

/// How long a client listens for what must not come.
pub const MOMENT: Duration = Duration::from_millis(150);

/// What a client hears.
#[derive(Debug)]
pub enum Heard {
    /// A text frame.
    Text(String),
    /// The answer to a ping.
    Pong(Vec<u8>),
    /// The hub closed, and said why.
    Closed(u16, String),
    /// The line broke without a word.
    Lost(#[allow(dead_code, reason = "a test that fails shows it")] String),
}

/// A client that is connected.
pub struct Socket {
    ws: WebSocket<TcpStream>,
    kept: VecDeque<Value>,
    asked: u64,
}

impl Socket {
    #[track_caller]
    pub fn open(api: &Api) -> Self {
        let stream = api.connect();
        stream.set_nodelay(true).unwrap();
        let (ws, answer) = tungstenite::client(format!("ws://{}/ws", api.address), stream).unwrap();
        assert_eq!(answer.status(), 101);
        Self { ws, kept: VecDeque::new(), asked: 0 }
    }

    /// The socket below, to write what no client should.
    pub fn line(&self) -> &TcpStream {
        self.ws.get_ref()
    }

    /// Writes these bytes as they are. The hub may have closed already.
    pub fn bytes(&mut self, bytes: &[u8]) {
        let _ = self.ws.get_mut().write_all(bytes);
    }

    #[track_caller]
    pub fn send(&mut self, frame: &Value) {
        self.text(frame.to_string());
    }

    #[track_caller]
    pub fn text(&mut self, text: String) {
        self.ws.send(Message::text(text)).unwrap();
    }

    #[track_caller]
    pub fn message(&mut self, message: Message) {
        self.ws.send(message).unwrap();
    }

    /// Says goodbye, and waits until the hub has, too.
    #[track_caller]
    pub fn close(mut self) {
        self.ws.close(Some(CloseFrame { code: 1000.into(), reason: "done".into() })).unwrap();
        loop {
            match self.hear(PATIENCE) {
                Some(Heard::Closed(..) | Heard::Lost(_)) => return,
                Some(_) => (),
                None => panic!("the hub does not close"),
            }
        }
    }

    /// Drops the line with unread bytes in it, which resets it.
    pub fn reset(self) {
        let line = self.ws.get_ref();
        assert!(line.peek(&mut [0]).unwrap() > 0, "there has to be something unread");
    }

    /// What comes next, if anything comes in time.
    #[track_caller]
    pub fn hear(&mut self, patience: Duration) -> Option<Heard> {
        self.ws.get_ref().set_read_timeout(Some(patience)).unwrap();
        match self.ws.read() {
            Ok(Message::Text(text)) => Some(Heard::Text(text.to_string())),
            Ok(Message::Pong(bytes)) => Some(Heard::Pong(bytes.to_vec())),
            Ok(Message::Close(Some(frame))) => {
                assert!(!frame.reason.is_empty(), "no reason: {frame:?}");
                Some(Heard::Closed(frame.code.into(), frame.reason.to_string()))
            }
            // Only a goodbye that gave no reason may come back without one.
            Ok(Message::Close(None)) => Some(Heard::Lost("closed without a reason".to_owned())),
            // A hub may look whether anybody is there.
            Ok(Message::Ping(_)) => self.hear(patience),
            Ok(other) => panic!("{other:?}"),
            Err(Error::Io(error)) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                None
            }
            Err(error) => Some(Heard::Lost(error.to_string())),
        }
    }

    /// The next frame, word by word.
    #[track_caller]
    pub fn raw(&mut self) -> String {
        match self.hear(PATIENCE) {
            Some(Heard::Text(text)) => text,
            other => panic!("{other:?} instead of a frame, after {:?}", self.kept),
        }
    }

    /// The next frame from the line.
    #[track_caller]
    fn frame(&mut self) -> Value {
        let text = self.raw();
        let frame = serde_json::from_str(&text).unwrap();
        looks_right(&frame);
        frame
    }

    /// The next frame.
    #[track_caller]
    pub fn next(&mut self) -> Value {
        match self.kept.pop_front() {
            Some(frame) => frame,
            None => self.frame(),
        }
    }

    /// The next frame that is wanted; others are kept for later.
    #[track_caller]
    pub fn find(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        if let Some(place) = self.kept.iter().position(&wanted) {
            return self.kept.remove(place).unwrap();
        }
        loop {
            let frame = self.frame();
            if wanted(&frame) {
                return frame;
            }
            self.kept.push_back(frame);
        }
    }

    /// The answer to a request.
    #[track_caller]
    pub fn ask(&mut self, mut frame: Value) -> Value {
        self.asked += 1;
        let corr = format!("ask-{}", self.asked);
        frame["corr"] = json!(corr);
        self.send(&frame);
        self.find(|answer| answer["corr"] == corr.as_str())
    }

    #[track_caller]
    pub fn ok(&mut self, frame: Value) -> Value {
        let answer = self.ask(frame.clone());
        assert_eq!(answer["op"], "OK", "{answer} to {frame}");
        answer
    }

    #[track_caller]
    pub fn fails(&mut self, frame: Value, code: &str) -> Value {
        let answer = self.ask(frame.clone());
        assert_eq!((&answer["op"], &answer["code"]), (&json!("ERR"), &json!(code)), "{answer} to {frame}");
        answer
    }

    /// Publishes numbered events, in one frame.
    #[track_caller]
    pub fn publish(&mut self, topic: &str, range: std::ops::Range<u64>) {
        let events: Vec<Value> = range.map(|n| json!({"payload": {"n": n}})).collect();
        self.ok(json!({"op": "PUBLISH", "topic": topic, "events": events}));
    }

    #[track_caller]
    pub fn subscribe(&mut self, topic: &str, group: &str, opts: Value) {
        self.ok(json!({"op": "SUBSCRIBE", "topic": topic, "group": group, "opts": opts}));
    }

    /// The next delivery that comes as a frame of its own.
    #[track_caller]
    pub fn event(&mut self) -> Value {
        self.find(|frame| frame["op"] == "EVENT")
    }

    /// The next deliveries, in their order.
    #[track_caller]
    pub fn events(&mut self, count: usize) -> Vec<Value> {
        (0..count).map(|_| self.event()).collect()
    }

    /// The partitions that the connection is told next.
    #[track_caller]
    pub fn assigned(&mut self) -> Vec<u64> {
        let frame = self.find(|frame| frame["op"] == "ASSIGNED");
        let mut all: Vec<u64> =
            frame["partitions"].as_array().unwrap().iter().map(|one| one.as_u64().unwrap()).collect();
        all.sort_unstable();
        all
    }

    /// Settles by the ids that the deliveries have.
    #[track_caller]
    pub fn ack(&mut self, deliveries: &[Value]) {
        for one in deliveries {
            let (topic, group, id) = (&one["topic"], &one["group"], &one["event"]["id"]);
            self.ok(json!({"op": "ACK", "topic": topic, "group": group, "id": id}));
        }
    }

    /// Nothing comes for a moment, and nothing is left over.
    #[track_caller]
    pub fn is_quiet(&mut self) {
        assert!(self.kept.is_empty(), "{:?}", self.kept);
        if let Some(heard) = self.hear(MOMENT) {
            panic!("{heard:?} came");
        }
    }

    /// The hub closes with a reason, and sends only errors before.
    #[track_caller]
    pub fn is_closed(&mut self) -> (u16, String) {
        loop {
            match self.hear(PATIENCE) {
                Some(Heard::Closed(code, reason)) => return (code, reason),
                Some(Heard::Text(text)) => {
                    let frame: Value = serde_json::from_str(&text).unwrap();
                    assert_eq!(frame["op"], "ERR", "{frame}");
                    looks_right(&frame);
                }
                other => panic!("{other:?} instead of a close"),
            }
        }
    }
}

/// Checks a frame of the hub as far as it can be without knowing what was asked.
#[track_caller]
pub fn looks_right(frame: &Value) {
    match frame["op"].as_str().unwrap_or("") {
        "OK" => assert!(frame["corr"].is_string(), "{frame}"),
        "ERR" => {
            assert!(CODES.contains(&frame["code"].as_str().unwrap_or("")), "{frame}");
            assert!(!frame["msg"].as_str().unwrap_or("").is_empty(), "{frame}");
            assert!(frame.get("corr").is_none_or(Value::is_string), "{frame}");
        }
        "EVENT" => {
            assert_eq!(fields(frame), ["ctx", "event", "group", "op", "topic"], "{frame}");
            is_delivery(frame, &frame["topic"]);
        }
        "EVENTS" => {
            assert_eq!(fields(frame), ["deliveries", "group", "op", "topic"], "{frame}");
            let all = frame["deliveries"].as_array().unwrap();
            assert!(!all.is_empty(), "{frame}");
            for one in all {
                assert_eq!(fields(one), ["ctx", "event"], "{frame}");
                is_delivery(one, &frame["topic"]);
            }
        }
        "ASSIGNED" => assert_eq!(fields(frame), ["group", "op", "partitions", "topic"], "{frame}"),
        _ => panic!("what is {frame}?"),
    }
}

#[track_caller]
fn is_delivery(one: &Value, topic: &Value) {
    let (event, ctx) = (&one["event"], &one["ctx"]);
    for name in ["id", "ts", "partition", "offset", "payload"] {
        assert!(event.get(name).is_some(), "no {name} in {one}");
    }
    assert_eq!(&event["topic"], topic, "{one}");
    assert_eq!(fields(ctx), ["ack_deadline_ms", "attempt", "lease", "maxAttempts"], "{one}");
    assert!(ctx["attempt"].as_u64().unwrap() >= 1 && ctx["maxAttempts"].is_u64(), "{one}");
    assert!(ctx["ack_deadline_ms"].is_u64() && !ctx["lease"].as_str().unwrap().is_empty(), "{one}");
}

/// One frame as bytes, masked unless it should not be.
pub fn bare_frame(first: u8, masked: bool, payload: &[u8]) -> Vec<u8> {
    let mut out = frame_head(first, masked, payload.len() as u64);
    if masked {
        let mask = [7, 77, 177, 27];
        out.extend_from_slice(&mask);
        out.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    } else {
        out.extend_from_slice(payload);
    }
    out
}

/// The first bytes of a frame, up to its length.
pub fn frame_head(first: u8, masked: bool, length: u64) -> Vec<u8> {
    let mask = if masked { 0x80 } else { 0 };
    let mut out = vec![first];
    if let Ok(short) = u8::try_from(length)
        && short < 126
    {
        out.push(mask | short);
    } else if let Ok(middle) = u16::try_from(length) {
        out.push(mask | 126);
        out.extend_from_slice(&middle.to_be_bytes());
    } else {
        out.push(mask | 127);
        out.extend_from_slice(&length.to_be_bytes());
    }
    out
}
