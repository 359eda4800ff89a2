//! A blocking WebSocket client, as anyone could write one. Every frame that it reads as JSON must have the form that the
//! public contract gives it.

mod form;
mod raw;

pub use form::looks_right;
pub use raw::{bare_frame, frame_head};

use crate::PATIENCE;
use crate::http::{Answer, Api};
use serde_json::{Value, json};
use std::borrow::Borrow;
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::time::Duration;
use tungstenite::client::IntoClientRequest;
use tungstenite::handshake::HandshakeError;
use tungstenite::http::{HeaderName, HeaderValue};
use tungstenite::protocol::CloseFrame;
use tungstenite::{Error, Message, WebSocket};

/// How long a client listens for what must not arrive.
pub const MOMENT: Duration = Duration::from_millis(150);

/// What a client reads.
#[derive(Debug)]
pub enum Heard {
    /// A text frame.
    Text(String),
    /// The answer to a ping.
    Pong(Vec<u8>),
    /// The hub closed the connection, with a reason.
    Closed(u16, String),
    /// The connection broke without a close.
    Lost(String),
}

/// An open WebSocket.
#[derive(Debug)]
pub struct Socket<S = TcpStream> {
    ws: WebSocket<S>,
    /// Frames that arrived while another one was awaited.
    kept: VecDeque<Value>,
    asked: u64,
}

/// The outcome of an upgrade: a socket, or the HTTP answer that refused it.
pub type Upgraded<S> = Result<Socket<S>, Box<Answer>>;

impl Socket<TcpStream> {
    /// Connects without a token.
    #[track_caller]
    pub fn open(api: &Api) -> Self {
        Self::open_with(api, &[]).unwrap_or_else(|answer| panic!("{answer:?}"))
    }

    /// Connects with a token in the upgrade request.
    #[track_caller]
    pub fn bearer(api: &Api, token: &str) -> Self {
        let value = format!("Bearer {token}");
        Self::open_with(api, &[("authorization", &value)]).unwrap_or_else(|answer| panic!("{answer:?}"))
    }

    /// Connects, and sends a token in the first frame.
    #[track_caller]
    pub fn authed(api: &Api, token: &str) -> Self {
        let mut socket = Self::open(api);
        socket.ok(json!({"op": "AUTH", "token": token}));
        socket
    }

    /// Connects with additional headers.
    #[track_caller]
    pub fn open_with(api: &Api, headers: &[(&str, &str)]) -> Upgraded<TcpStream> {
        let stream = api.connect();
        stream.set_nodelay(true).unwrap_or_else(|error| panic!("{error}"));
        Self::over(stream, &format!("ws://{}/ws", api.address), headers)
    }

    /// The TCP stream below.
    pub fn stream(&self) -> &TcpStream {
        self.ws.get_ref()
    }

    /// Drops the connection with unread bytes in it, which resets it.
    #[track_caller]
    pub fn reset(self) {
        let peeked = self.stream().peek(&mut [0]).unwrap_or_else(|error| panic!("{error}"));
        assert!(peeked > 0, "there has to be something unread");
    }

    /// What arrives next, if anything arrives in time.
    #[track_caller]
    pub fn hear(&mut self, patience: Duration) -> Option<Heard> {
        self.set_read_timeout(patience);
        let heard = self.read();
        self.set_read_timeout(PATIENCE);
        heard
    }

    #[track_caller]
    fn set_read_timeout(&self, patience: Duration) {
        self.stream().set_read_timeout(Some(patience)).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Nothing arrives for a moment, and nothing is left over.
    #[track_caller]
    pub fn is_quiet(&mut self) {
        assert!(self.kept.is_empty(), "{:?}", self.kept);
        if let Some(heard) = self.hear(MOMENT) {
            panic!("{heard:?} arrived");
        }
    }
}

impl<S: Read + Write> Socket<S> {
    /// Upgrades a stream.
    #[track_caller]
    pub fn over(stream: S, url: &str, headers: &[(&str, &str)]) -> Upgraded<S> {
        let mut request = url.into_client_request().unwrap_or_else(|error| panic!("{url}: {error}"));
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
            let value = HeaderValue::from_str(value).unwrap_or_else(|error| panic!("{error}"));
            request.headers_mut().insert(name, value);
        }
        match tungstenite::client(request, stream) {
            Ok((ws, answer)) => {
                assert_eq!(answer.status(), 101);
                Ok(Self { ws, kept: VecDeque::new(), asked: 0 })
            }
            Err(HandshakeError::Failure(Error::Http(answer))) => {
                let header = |(name, value): (&HeaderName, &HeaderValue)| {
                    (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
                };
                Err(Box::new(Answer {
                    status: answer.status().as_u16(),
                    headers: answer.headers().iter().map(header).collect(),
                    body: answer.body().clone().unwrap_or_default(),
                }))
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Writes these bytes as they are. The hub may have closed already.
    pub fn bytes(&mut self, bytes: &[u8]) {
        let _ = self.ws.get_mut().write_all(bytes);
    }

    /// Sends a frame.
    #[track_caller]
    pub fn send(&mut self, frame: impl Borrow<Value>) {
        self.text(frame.borrow().to_string());
    }

    /// Sends several frames in as few writes as possible.
    #[track_caller]
    pub fn send_together(&mut self, frames: impl IntoIterator<Item = Value>) {
        self.try_send_together(frames).unwrap_or_else(|error| panic!("{error}"));
    }

    /// The same to a hub that may close before all of them are sent.
    pub fn try_send_together(&mut self, frames: impl IntoIterator<Item = Value>) -> Result<(), Error> {
        for frame in frames {
            self.ws.write(Message::text(frame.to_string()))?;
        }
        self.ws.flush()
    }

    /// Sends any text.
    #[track_caller]
    pub fn text(&mut self, text: impl Into<String>) {
        self.message(Message::text(text.into()));
    }

    /// Sends any message.
    #[track_caller]
    pub fn message(&mut self, message: Message) {
        self.try_message(message).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Sends a message to a hub that may close before all of it is sent.
    pub fn try_message(&mut self, message: Message) -> Result<(), Error> {
        self.ws.send(message)
    }

    /// Closes the connection, and waits until the hub has, too.
    #[track_caller]
    pub fn close(mut self) {
        let frame = CloseFrame { code: 1000.into(), reason: "done".into() };
        self.ws.close(Some(frame)).unwrap_or_else(|error| panic!("{error}"));
        loop {
            match self.read() {
                Some(Heard::Closed(..) | Heard::Lost(_)) => return,
                Some(_) => (),
                None => panic!("the hub does not close"),
            }
        }
    }

    /// What arrives next; nothing after the read timeout.
    #[track_caller]
    pub fn read(&mut self) -> Option<Heard> {
        loop {
            return match self.ws.read() {
                Ok(Message::Text(text)) => Some(Heard::Text(text.to_string())),
                Ok(Message::Pong(bytes)) => Some(Heard::Pong(bytes.to_vec())),
                Ok(Message::Close(Some(frame))) => {
                    assert!(!frame.reason.is_empty(), "no reason: {frame:?}");
                    Some(Heard::Closed(frame.code.into(), frame.reason.to_string()))
                }
                // Only a close that gave no reason may be answered without one.
                Ok(Message::Close(None)) => Some(Heard::Lost("closed without a reason".to_owned())),
                // A hub may check whether the client is alive.
                Ok(Message::Ping(_)) => continue,
                Ok(other) => panic!("{other:?}"),
                Err(Error::Io(error))
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    None
                }
                Err(error) => Some(Heard::Lost(error.to_string())),
            };
        }
    }

    /// The next frame, as text.
    #[track_caller]
    pub fn raw(&mut self) -> String {
        match self.read() {
            Some(Heard::Text(text)) => text,
            other => panic!("{other:?} instead of a frame, after {:?}", self.kept),
        }
    }

    /// The next frame from the wire, or the code and the reason of the close.
    #[track_caller]
    pub fn frame_or_close(&mut self) -> Result<Value, (u16, String)> {
        loop {
            match self.read() {
                Some(Heard::Text(text)) => {
                    let frame = parsed(&text);
                    looks_right(&frame);
                    return Ok(frame);
                }
                Some(Heard::Closed(code, reason)) => return Err((code, reason)),
                Some(Heard::Pong(_)) => (),
                other => panic!("{other:?} instead of a frame, after {:?}", self.kept),
            }
        }
    }

    /// The next frame from the wire.
    #[track_caller]
    fn frame(&mut self) -> Value {
        let frame = parsed(&self.raw());
        looks_right(&frame);
        frame
    }

    /// Frames that arrived while another one was awaited.
    pub fn kept(&self) -> &VecDeque<Value> {
        &self.kept
    }

    /// The next frame.
    #[track_caller]
    pub fn next_frame(&mut self) -> Value {
        match self.kept.pop_front() {
            Some(frame) => frame,
            None => self.frame(),
        }
    }

    /// The next frame that is wanted; others are kept for later.
    #[track_caller]
    pub fn find(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        if let Some(kept) = self.kept.iter().position(&wanted).and_then(|at| self.kept.remove(at)) {
            return kept;
        }
        loop {
            let frame = self.frame();
            if wanted(&frame) {
                return frame;
            }
            self.kept.push_back(frame);
        }
    }

    /// Sends a request, and returns its answer.
    #[track_caller]
    pub fn ask(&mut self, frame: impl Borrow<Value>) -> Value {
        self.asked += 1;
        let corr = format!("ask-{}", self.asked);
        let mut frame = frame.borrow().clone();
        frame["corr"] = json!(corr);
        self.send(frame);
        self.find(|answer| answer["corr"] == corr.as_str())
    }

    /// Sends a request that must succeed.
    #[track_caller]
    pub fn ok(&mut self, frame: impl Borrow<Value>) -> Value {
        let answer = self.ask(frame.borrow());
        assert_eq!(answer["op"], "OK", "{answer} to {}", frame.borrow());
        answer
    }

    /// Sends a request that must fail with this code.
    #[track_caller]
    pub fn fails(&mut self, frame: impl Borrow<Value>, code: &str) -> Value {
        let answer = self.ask(frame.borrow());
        let got = (&answer["op"], &answer["code"]);
        assert_eq!(got, (&json!("ERR"), &json!(code)), "{answer} to {}", frame.borrow());
        answer
    }

    /// Publishes numbered events, in one frame.
    #[track_caller]
    pub fn publish(&mut self, topic: &str, range: Range<u64>) {
        let events: Vec<Value> = range.map(|n| json!({"payload": {"n": n}})).collect();
        self.ok(json!({"op": "PUBLISH", "topic": topic, "events": events}));
    }

    /// Subscribes to a topic.
    #[track_caller]
    pub fn subscribe(&mut self, topic: &str, group: &str, opts: Value) {
        self.ok(json!({"op": "SUBSCRIBE", "topic": topic, "group": group, "opts": opts}));
    }

    /// The next delivery that has its own frame.
    #[track_caller]
    pub fn event(&mut self) -> Value {
        self.find(|frame| frame["op"] == "EVENT")
    }

    /// The next deliveries, in order.
    #[track_caller]
    pub fn events(&mut self, count: usize) -> Vec<Value> {
        (0..count).map(|_| self.event()).collect()
    }

    /// The partitions in the next assignment.
    #[track_caller]
    pub fn assigned(&mut self) -> Vec<u64> {
        let frame = self.find(|frame| frame["op"] == "ASSIGNED");
        let partitions = frame["partitions"].as_array().into_iter().flatten();
        let mut all: Vec<u64> = partitions.filter_map(Value::as_u64).collect();
        all.sort_unstable();
        all
    }

    /// Acks deliveries by the ids of their events.
    #[track_caller]
    pub fn ack(&mut self, deliveries: &[Value]) {
        for one in deliveries {
            let (topic, group, id) = (&one["topic"], &one["group"], &one["event"]["id"]);
            self.ok(json!({"op": "ACK", "topic": topic, "group": group, "id": id}));
        }
    }

    /// The hub closes with a reason, and sends only errors before.
    #[track_caller]
    pub fn is_closed(&mut self) -> (u16, String) {
        loop {
            match self.frame_or_close() {
                Ok(frame) => assert_eq!(frame["op"], "ERR", "{frame}"),
                Err(close) => return close,
            }
        }
    }

    /// The hub closes with a reason, whatever it sends before.
    #[track_caller]
    pub fn closes_eventually(&mut self) -> (u16, String) {
        loop {
            if let Err(close) = self.frame_or_close() {
                return close;
            }
        }
    }
}

#[track_caller]
fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}
