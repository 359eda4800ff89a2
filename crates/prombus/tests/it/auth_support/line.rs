//! Frames, and a stream of server-sent events, for callers with a token, over any connection.

use crate::common::PATIENCE;
use crate::contract_support::{Answer, Api};
use serde_json::{Value, json};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

/// A publish of one event.
pub fn publish(topic: &str) -> Value {
    json!({"op": "PUBLISH", "topic": topic, "payload": 1})
}

/// A subscription from the start.
pub fn subscribe(topic: &str, group: &str) -> Value {
    json!({"op": "SUBSCRIBE", "topic": topic, "group": group, "opts": {"from": "earliest"}})
}

/// A stream of server-sent events unchanged over the line.
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
