//! A WebSocket and a stream of server-sent events for callers with a token, over any line.

use crate::common::PATIENCE;
use crate::contract_support::{Answer, Api, CODES};
use serde_json::{Value, json};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use tungstenite::client::IntoClientRequest;
use tungstenite::handshake::HandshakeError;
use tungstenite::http::{HeaderName, HeaderValue};
use tungstenite::{Error, Message, WebSocket};

/// A WebSocket that is open.
pub struct Frames<S = TcpStream> {
    ws: WebSocket<S>,
    asked: u64,
}

/// A WebSocket and its fate.
pub type Opened<S> = Result<Frames<S>, Box<Answer>>;

impl Frames<TcpStream> {
    /// One without a token.
    #[track_caller]
    pub fn open(api: &Api) -> Self {
        Self::open_with(api, &[]).unwrap_or_else(|answer| panic!("{answer:?}"))
    }

    /// One that shows its token at the upgrade.
    #[track_caller]
    pub fn bearer(api: &Api, token: &str) -> Self {
        let value = format!("Bearer {token}");
        Self::open_with(api, &[("authorization", &value)]).unwrap_or_else(|answer| panic!("{answer:?}"))
    }

    /// One that shows its token in a frame.
    #[track_caller]
    pub fn authed(api: &Api, token: &str) -> Self {
        let mut frames = Self::open(api);
        frames.ok(&json!({"op": "AUTH", "token": token}));
        frames
    }

    #[track_caller]
    pub fn open_with(api: &Api, headers: &[(&str, &str)]) -> Opened<TcpStream> {
        let stream = api.connect();
        stream.set_nodelay(true).unwrap();
        Self::over(stream, &format!("ws://{}/ws", api.address), headers)
    }
}

impl<S: Read + Write> Frames<S> {
    #[track_caller]
    pub fn over(stream: S, url: &str, headers: &[(&str, &str)]) -> Opened<S> {
        let mut request = url.into_client_request().unwrap();
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            request.headers_mut().insert(name, HeaderValue::from_str(value).unwrap());
        }
        match tungstenite::client(request, stream) {
            Ok((ws, _)) => Ok(Self { ws, asked: 0 }),
            Err(HandshakeError::Failure(Error::Http(answer))) => Err(Box::new(Answer {
                status: answer.status().as_u16(),
                headers: answer
                    .headers()
                    .iter()
                    .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
                    .collect(),
                body: answer.body().clone().unwrap_or_default(),
            })),
            Err(error) => panic!("{error}"),
        }
    }

    #[track_caller]
    pub fn send(&mut self, frame: &Value) {
        self.ws.send(Message::text(frame.to_string())).unwrap();
    }

    #[track_caller]
    pub fn text(&mut self, text: &str) {
        self.ws.send(Message::text(text.to_owned())).unwrap();
    }

    /// The next frame, or the code and reason of the close.
    #[track_caller]
    pub fn hear(&mut self) -> Result<Value, (u16, String)> {
        loop {
            match self.ws.read() {
                Ok(Message::Text(text)) => return Ok(serde_json::from_str(&text).unwrap()),
                Ok(Message::Close(Some(close))) => return Err((close.code.into(), close.reason.to_string())),
                Ok(Message::Ping(_) | Message::Pong(_)) => (),
                other => panic!("{other:?}"),
            }
        }
    }

    /// The next frame that is wanted; others are passed over.
    #[track_caller]
    pub fn find(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let frame = self.hear().unwrap();
            if wanted(&frame) {
                return frame;
            }
        }
    }

    #[track_caller]
    pub fn ask(&mut self, frame: &Value) -> Value {
        self.asked += 1;
        let corr = format!("ask-{}", self.asked);
        let mut frame = frame.clone();
        frame["corr"] = json!(corr);
        self.send(&frame);
        self.find(|answer| answer["corr"] == corr.as_str())
    }

    #[track_caller]
    pub fn ok(&mut self, frame: &Value) -> Value {
        let answer = self.ask(frame);
        assert_eq!(answer["op"], "OK", "{answer} to {frame}");
        answer
    }

    #[track_caller]
    pub fn fails(&mut self, frame: &Value, code: &str) -> Value {
        let answer = self.ask(frame);
        assert_eq!((&answer["op"], &answer["code"]), (&json!("ERR"), &json!(code)), "{answer} to {frame}");
        assert!(CODES.contains(&code) && !answer["msg"].as_str().unwrap().is_empty(), "{answer}");
        answer
    }

    /// The hub closes; tells the code and the reason.
    #[track_caller]
    pub fn is_closed(&mut self) -> (u16, String) {
        loop {
            if let Err(close) = self.hear() {
                return close;
            }
        }
    }
}

/// A publish of one event.
pub fn publish(topic: &str) -> Value {
    json!({"op": "PUBLISH", "topic": topic, "payload": 1})
}

/// A subscription from the start.
pub fn subscribe(topic: &str, group: &str) -> Value {
    json!({"op": "SUBSCRIBE", "topic": topic, "group": group, "opts": {"from": "earliest"}})
}

/// A stream of server-sent events as it came over the line.
pub struct Flow<S = TcpStream> {
    line: S,
    seen: String,
}

impl Flow<TcpStream> {
    /// Asks for the stream of a topic; without a token where it is empty.
    pub fn open(api: &Api, topic: &str, token: &str) -> Self {
        let line = api.connect();
        line.set_read_timeout(Some(PATIENCE)).unwrap();
        Flow::over(line, topic, token)
    }
}

impl<S: Read + Write> Flow<S> {
    pub fn over(mut line: S, topic: &str, token: &str) -> Self {
        let mut request = format!(
            "GET /v1/topics/{topic}/events HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\nconnection: close\r\n"
        );
        if !token.is_empty() {
            request += &format!("authorization: Bearer {token}\r\n");
        }
        line.write_all(format!("{request}\r\n").as_bytes()).unwrap();
        Self { line, seen: String::new() }
    }

    /// Reads on; nothing where the stream has ended.
    #[track_caller]
    fn more(&mut self) -> Option<()> {
        let mut block = [0; 4096];
        match self.line.read(&mut block) {
            Ok(0) => None,
            Ok(size) => {
                self.seen.push_str(std::str::from_utf8(&block[..size]).unwrap());
                Some(())
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => None,
            Err(error) => panic!("{error} after {}", self.seen),
        }
    }

    /// Reads until this has come.
    #[track_caller]
    pub fn until(&mut self, text: &str) -> &mut Self {
        while !self.seen.contains(text) {
            assert!(self.more().is_some(), "ended without {text:?}: {}", self.seen);
        }
        self
    }

    /// Whether this has come already.
    pub fn has(&self, text: &str) -> bool {
        self.seen.contains(text)
    }

    /// Reads to the end, and tells everything that came.
    #[track_caller]
    pub fn rest(mut self) -> String {
        while self.more().is_some() {}
        self.seen
    }

    /// The answer of a stream that is none.
    #[track_caller]
    pub fn refused(self) -> Answer {
        let text = self.rest();
        Answer::parse(text.as_bytes(), false).unwrap_or_else(|| panic!("{text}"))
    }
}
