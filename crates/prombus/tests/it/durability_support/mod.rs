//! What the durability tests share: a plain HTTP connection, and a record of what was answered.

pub mod trace;

use crate::common::{Said, binary, run};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;

/// One connection to a hub, which knows nothing of HTTP but what is needed here.
pub struct Http(BufReader<TcpStream>);

/// A status and a body.
pub type Answer = (u16, String);

impl Http {
    /// Connects to a hub at `http://host:port`.
    pub fn connect(url: &str) -> Self {
        let stream = TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(BufReader::new(stream))
    }

    /// Sends a request and waits for its answer; a connection that breaks is an error.
    pub fn call(&mut self, method: &str, path: &str, body: &str) -> io::Result<Answer> {
        let head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\naccept: {}\r\n", accept(path));
        let length = body.len();
        let request =
            format!("{head}content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}");
        self.0.get_mut().write_all(request.as_bytes())?;
        let status = self.line()?.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or(io::ErrorKind::InvalidData)?;
        let (mut length, mut chunked) = (0, false);
        loop {
            let header = self.line()?.to_ascii_lowercase();
            match header.split_once(": ") {
                None => break,
                Some(("content-length", value)) => length = value.parse().map_err(io::Error::other)?,
                Some(("transfer-encoding", "chunked")) => chunked = true,
                Some(_) => {}
            }
        }
        let body = if chunked { self.chunks()? } else { self.bytes(length)? };
        Ok((status, String::from_utf8(body).map_err(io::Error::other)?))
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }

    fn bytes(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.0.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut whole = Vec::new();
        loop {
            let length = usize::from_str_radix(&self.line()?, 16).map_err(io::Error::other)?;
            whole.extend(self.bytes(length)?);
            self.line()?;
            if length == 0 {
                return Ok(whole);
            }
        }
    }

    /// The events of a topic, which must be there.
    pub fn export(&mut self, topic: &str) -> Vec<Value> {
        let (status, lines) =
            self.call("GET", &format!("/v1/topics/{topic}/events?from=earliest"), "").unwrap();
        assert_eq!(status, 200, "{lines}");
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// Events are read as lines, everything else as it comes.
fn accept(path: &str) -> &'static str {
    if path.contains("/events?") { "application/x-ndjson" } else { "*/*" }
}

/// What was answered: the payload at each offset of a topic with one partition.
#[derive(Debug, Default)]
pub struct Answered(BTreeMap<u64, String>);

impl Answered {
    /// Takes in the answer to an array of payloads.
    pub fn take(&mut self, payloads: &[String], answer: &str) {
        let answer: Value = serde_json::from_str(answer).unwrap();
        let events = answer["events"].as_array().unwrap();
        assert_eq!(events.len(), payloads.len());
        for (event, payload) in events.iter().zip(payloads) {
            let before = self.0.insert(event["offset"].as_u64().unwrap(), payload.clone());
            assert_eq!(before, None, "an offset was answered twice: {event}");
        }
    }

    /// How many events were answered.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Takes in what someone else was answered.
    pub fn merge(&mut self, other: Self) {
        for (offset, payload) in other.0 {
            assert_eq!(self.0.insert(offset, payload), None, "offset {offset} was answered twice");
        }
    }

    /// Everything that was answered is where the answer said, and offsets have no gap.
    pub fn assert_there(&self, events: &[Value]) {
        for (event, offset) in events.iter().zip(0u64..) {
            assert_eq!(event["offset"], offset, "offsets have no gap and do not repeat");
        }
        for (offset, payload) in &self.0 {
            let event = events.get(usize::try_from(*offset).unwrap());
            let event = event.unwrap_or_else(|| panic!("offset {offset} was answered and is gone"));
            assert_eq!(event["payload"], payload.as_str(), "at offset {offset}");
        }
    }
}

/// The body of an array of these strings.
pub fn array(payloads: &[String]) -> String {
    let events: Vec<Value> =
        payloads.iter().map(|payload| serde_json::json!({ "payload": payload })).collect();
    serde_json::to_string(&events).unwrap()
}

/// Runs `prombus check`.
pub fn check(data: &Path) -> Said {
    let mut command = binary(Path::new("."));
    command.arg("check").arg("--data").arg(data);
    run(command, b"")
}
