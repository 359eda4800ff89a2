//! A reader of server-sent events over a plain socket.

use crate::common::PATIENCE;
use crate::contract_support::{Answer, Api, Call};
use serde_json::Value;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// One message of a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sent {
    pub id: String,
    pub kind: String,
    pub data: String,
}

impl Sent {
    #[track_caller]
    pub fn event(&self) -> Value {
        serde_json::from_str(&self.data).unwrap()
    }

    /// The number that the event was published with.
    #[track_caller]
    pub fn number(&self) -> u64 {
        self.event()["payload"]["n"].as_u64().unwrap()
    }
}

/// What a stream may say.
#[derive(Debug)]
pub enum Line {
    Sent(Sent),
    Comment(#[allow(dead_code, reason = "a test that fails shows it")] String),
    End,
    /// Nothing in time.
    Quiet,
}

/// A stream that is open.
pub struct Stream {
    body: BufReader<Chunked>,
    pub head: Answer,
    partial: Vec<u8>,
    message: Sent,
    /// The token of where it begins, where the hub says so.
    pub begin: String,
}

impl Stream {
    /// Opens one that has to open.
    #[track_caller]
    pub fn open(api: &Api, topic: &str, query: &str) -> Self {
        Self::ask(api, topic, query, None).unwrap_or_else(|answer| panic!("{answer:?}"))
    }

    /// Makes the topic, and opens one on it.
    #[track_caller]
    pub fn open_made(api: &Api, topic: &str) -> Self {
        api.make(topic, 1);
        Self::open(api, topic, "")
    }

    /// Goes on after a token.
    #[track_caller]
    pub fn after(api: &Api, topic: &str, query: &str, token: &str) -> Self {
        Self::ask(api, topic, query, Some(token)).unwrap_or_else(|answer| panic!("{answer:?}"))
    }

    /// The refusal of one that must not open.
    #[track_caller]
    pub fn refused(api: &Api, topic: &str, query: &str, token: Option<&str>) -> Answer {
        match Self::ask(api, topic, query, token) {
            Ok(stream) => panic!("it opened: {:?}", stream.head),
            Err(answer) => answer,
        }
    }

    /// Opens one on all topics that match.
    #[track_caller]
    pub fn of_topics(api: &Api, query: &str, token: Option<&str>) -> Self {
        Self::try_topics(api, query, token).unwrap_or_else(|answer| panic!("{answer:?}"))
    }

    pub fn try_topics(api: &Api, query: &str, token: Option<&str>) -> Result<Self, Answer> {
        Self::ask_for(api, &format!("/v1/events?{query}"), token.map(|token| ("last-event-id", token)))
    }

    /// Opens one with a token of access.
    pub fn as_caller(api: &Api, target: &str, token: &str) -> Result<Self, Answer> {
        Self::ask_for(api, target, Some(("authorization", &format!("Bearer {token}"))))
    }

    fn ask(api: &Api, topic: &str, query: &str, token: Option<&str>) -> Result<Self, Answer> {
        let target = format!("/v1/topics/{topic}/events?{query}");
        Self::ask_for(api, &target, token.map(|token| ("last-event-id", token)))
    }

    fn ask_for(api: &Api, target: &str, header: Option<(&str, &str)>) -> Result<Self, Answer> {
        let mut line = api.connect();
        let mut call = Call::new("GET", target).header("accept", "text/event-stream");
        call.headers.extend(header);
        line.write_all(&call.bytes()).unwrap();
        let mut reader = BufReader::new(line);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(reader.read_line(&mut head).unwrap() > 0, "{head}");
        }
        let mut answer = Answer::parse(head.replace("content-length", "length").as_bytes(), true).unwrap();
        if answer.status == 200 {
            assert_eq!(answer.header("transfer-encoding"), Some("chunked"), "{answer:?}");
            let body = BufReader::new(Chunked { line: reader, left: 0 });
            return Ok(Self {
                body,
                head: answer,
                partial: Vec::new(),
                message: Sent::default(),
                begin: String::new(),
            });
        }
        let length = answer.header("length").unwrap().parse().unwrap();
        answer.body = vec![0; length];
        reader.read_exact(&mut answer.body).unwrap();
        Err(answer)
    }

    /// What comes next within so long.
    #[track_caller]
    pub fn hear(&mut self, patience: Duration) -> Line {
        self.body.get_ref().line.get_ref().set_read_timeout(Some(patience)).unwrap();
        loop {
            match self.body.read_until(b'\n', &mut self.partial) {
                Ok(0) => return Line::End,
                Ok(_) => (),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Line::Quiet;
                }
                Err(error) => panic!("{error}"),
            }
            let line = String::from_utf8(std::mem::take(&mut self.partial)).unwrap();
            let line = line.trim_end_matches(['\r', '\n']);
            if let Some(comment) = line.strip_prefix(':') {
                return Line::Comment(comment.to_owned());
            }
            if line.is_empty() {
                if self.message.data.is_empty() && !self.message.id.is_empty() {
                    self.begin = std::mem::take(&mut self.message).id;
                    continue;
                }
                if self.message != Sent::default() {
                    return Line::Sent(std::mem::take(&mut self.message));
                }
                continue;
            }
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match name {
                "id" => value.clone_into(&mut self.message.id),
                "event" => value.clone_into(&mut self.message.kind),
                "data" => {
                    assert!(self.message.data.is_empty(), "an event has one line");
                    value.clone_into(&mut self.message.data);
                }
                "retry" => assert!(value.parse::<u64>().is_ok(), "{line}"),
                _ => panic!("{line}"),
            }
        }
    }

    /// The next message.
    #[track_caller]
    pub fn next(&mut self) -> Sent {
        loop {
            match self.hear(PATIENCE) {
                Line::Sent(sent) => {
                    assert!(!sent.id.is_empty() && !sent.data.is_empty(), "{sent:?}");
                    return sent;
                }
                Line::Comment(_) => (),
                other => panic!("{other:?} instead of an event"),
            }
        }
    }

    #[track_caller]
    pub fn take(&mut self, count: usize) -> Vec<Sent> {
        (0..count).map(|_| self.next()).collect()
    }

    #[track_caller]
    pub fn numbers(&mut self, count: usize) -> Vec<u64> {
        self.take(count).iter().map(Sent::number).collect()
    }

    /// Nothing comes for a moment.
    #[track_caller]
    pub fn is_quiet(&mut self) {
        loop {
            match self.hear(super::MOMENT) {
                Line::Comment(_) => (),
                Line::Quiet => return,
                other => panic!("{other:?} came"),
            }
        }
    }

    /// The stream ends; gives back what it said before.
    #[track_caller]
    pub fn rest(&mut self) -> Vec<Sent> {
        let mut all = Vec::new();
        loop {
            match self.hear(PATIENCE) {
                Line::Sent(sent) => all.push(sent),
                Line::Comment(_) => (),
                Line::End => return all,
                Line::Quiet => panic!("it does not end"),
            }
        }
    }
}

/// The body of a chunked answer as it comes.
struct Chunked {
    line: BufReader<TcpStream>,
    left: usize,
}

impl Read for Chunked {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        if self.left == 0 {
            // A size is a few bytes: waiting for its first one, and then for the rest, loses nothing.
            if self.line.fill_buf()?.is_empty() {
                return Ok(0);
            }
            let mut size = String::new();
            self.line.read_line(&mut size)?;
            self.left = usize::from_str_radix(size.trim(), 16).map_err(std::io::Error::other)?;
            if self.left == 0 {
                return Ok(0);
            }
        }
        let most = into.len().min(self.left);
        let size = self.line.read(&mut into[..most])?;
        self.left -= size;
        if self.left == 0 {
            let mut end = String::new();
            self.line.read_line(&mut end)?;
        }
        Ok(size)
    }
}
