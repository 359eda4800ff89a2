//! A hub on a folder of its own, and an HTTP client that hides nothing of what came over the socket.

use crate::common::{Hub, PATIENCE};
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Every code that an error may carry.
pub const CODES: &[&str] = &[
    "bad_json",
    "bad_request",
    "bad_filter",
    "unauthorized",
    "forbidden",
    "not_found",
    "method_not_allowed",
    "too_large",
    "rate_limited",
    "schema_violation",
    "incompatible",
    "id_conflict",
    "expectation_failed",
    "version_conflict",
    "group_options",
    "already_subscribed",
    "not_subscribed",
    "unknown_id",
    "lease_expired",
    "not_owner",
    "gone",
    "disk_full",
    "unavailable",
    "internal",
];

/// Epoch milliseconds.
pub fn now() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

/// Percent-encodes everything that could mean something in a URL.
pub fn encoded(text: &str) -> String {
    use std::fmt::Write;
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            write!(out, "%{byte:02X}").unwrap();
        }
    }
    out
}

/// What the hub answered.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    /// Takes an answer apart; nothing where it is not one.
    pub fn parse(bytes: &[u8], head_only: bool) -> Option<Self> {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
        let head = std::str::from_utf8(&bytes[..end]).ok()?;
        let mut lines = head.split("\r\n");
        let status: u16 = lines.next()?.split(' ').nth(1)?.parse().ok()?;
        if status == 100 {
            return Self::parse(&bytes[end + 4..], head_only);
        }
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let rest = &bytes[end + 4..];
        let mut answer = Self { status, headers, body: Vec::new() };
        answer.body = match answer.header("transfer-encoding") {
            Some(_) if !head_only => unchunked(rest)?,
            _ => rest.to_vec(),
        };
        if let Some(length) = answer.header("content-length")
            && !head_only
        {
            let length: usize = length.parse().unwrap();
            assert!(length <= answer.body.len(), "{answer:?}");
            // A broken request may look like two, and get two answers.
            answer.body.truncate(length);
        }
        Some(answer)
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        match serde_json::from_slice(&self.body) {
            Ok(value) => value,
            Err(error) => panic!("{error} in {} {}", self.status, String::from_utf8_lossy(&self.body)),
        }
    }

    /// The body, if the status is this one.
    #[track_caller]
    pub fn is(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", String::from_utf8_lossy(&self.body));
        if self.body.is_empty() { Value::Null } else { self.json() }
    }

    /// The body of an error with this status and code.
    #[track_caller]
    pub fn fails(&self, status: u16, code: &str) -> Value {
        let body = self.is(status);
        assert_eq!(body["error"], code, "{body}");
        self.is_error();
        body
    }

    /// The body of an error of which only the statuses are known.
    #[track_caller]
    pub fn fails_as(&self, statuses: &[u16]) -> Value {
        assert!(statuses.contains(&self.status), "{} {}", self.status, String::from_utf8_lossy(&self.body));
        self.is_error();
        self.json()
    }

    /// An error as every error has to look.
    #[track_caller]
    pub fn is_error(&self) {
        let body = self.json();
        assert!(self.header("content-type").unwrap_or("").starts_with("application/json"), "{self:?}");
        assert!(CODES.contains(&body["error"].as_str().unwrap_or("")), "{body}");
        assert!(!body["message"].as_str().unwrap_or("").is_empty(), "{body}");
    }

    /// The lines of an NDJSON body.
    #[track_caller]
    pub fn lines(&self) -> Vec<Value> {
        self.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// The bytes of a chunked body, if it is whole.
fn unchunked(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|two| two == b"\r\n")?;
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..end]).ok()?, 16).ok()?;
        rest = &rest[end + 2..];
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(rest.get(..size)?);
        rest = rest.get(size + 2..)?;
    }
}

/// One request, spelled out.
#[derive(Debug, Clone)]
pub struct Call<'a> {
    pub method: &'a str,
    pub target: &'a str,
    pub headers: Vec<(&'a str, &'a str)>,
    pub body: &'a [u8],
}

impl<'a> Call<'a> {
    pub fn new(method: &'a str, target: &'a str) -> Self {
        Self { method, target, headers: Vec::new(), body: b"" }
    }

    pub fn header(mut self, name: &'a str, value: &'a str) -> Self {
        self.headers.push((name, value));
        self
    }

    pub fn body(mut self, body: &'a [u8]) -> Self {
        self.body = body;
        self
    }

    fn bytes(&self) -> Vec<u8> {
        let mut out =
            format!("{} {} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n", self.method, self.target);
        for (name, value) in &self.headers {
            out += &format!("{name}: {value}\r\n");
        }
        if !self.body.is_empty() || matches!(self.method, "POST" | "PUT") {
            out += &format!("content-length: {}\r\n", self.body.len());
        }
        out += "\r\n";
        let mut out = out.into_bytes();
        out.extend_from_slice(self.body);
        out
    }
}

/// Sends calls to one address; as good from many threads as from one.
#[derive(Debug, Clone)]
pub struct Api {
    pub address: String,
}

impl Api {
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Writes these bytes, and reads until the hub closes. A hub may answer before it has read everything.
    pub fn raw(&self, bytes: &[u8], half_close: bool) -> Vec<u8> {
        let mut stream = self.connect();
        let mut writer = stream.try_clone().unwrap();
        let mut answer = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                if writer.write_all(bytes).is_ok() && half_close {
                    let _ = writer.shutdown(Shutdown::Write);
                }
            });
            let mut block = [0; 65536];
            loop {
                match stream.read(&mut block) {
                    Ok(0) => break,
                    Ok(size) => answer.extend_from_slice(&block[..size]),
                    Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
                    Err(error) => panic!("{error} after {}", String::from_utf8_lossy(&answer)),
                }
            }
            let _ = stream.shutdown(Shutdown::Both);
        });
        answer
    }

    #[track_caller]
    pub fn call(&self, call: &Call) -> Answer {
        let bytes = self.raw(&call.bytes(), false);
        match Answer::parse(&bytes, call.method == "HEAD") {
            Some(answer) => answer,
            None => panic!("{} {}: {:?}", call.method, call.target, String::from_utf8_lossy(&bytes)),
        }
    }

    #[track_caller]
    pub fn get(&self, target: &str) -> Answer {
        self.call(&Call::new("GET", target))
    }

    #[track_caller]
    pub fn delete(&self, target: &str) -> Answer {
        self.call(&Call::new("DELETE", target))
    }

    #[track_caller]
    pub fn put(&self, target: &str, body: &str) -> Answer {
        self.call(&json_call("PUT", target, body.as_bytes()))
    }

    #[track_caller]
    pub fn post(&self, target: &str, body: &str) -> Answer {
        self.call(&json_call("POST", target, body.as_bytes()))
    }

    /// Publishes by the short way.
    #[track_caller]
    pub fn publish(&self, target: &str, payload: &str) -> Answer {
        self.call(&Call::new("POST", &format!("/publish/{target}")).body(payload.as_bytes()))
    }

    /// Publishes one event, or an array.
    #[track_caller]
    pub fn events(&self, topic: &str, body: &str) -> Answer {
        self.post(&format!("/v1/topics/{topic}/events"), body)
    }

    /// Publishes one event a line.
    #[track_caller]
    pub fn ndjson(&self, topic: &str, body: &[u8]) -> Answer {
        let target = format!("/v1/topics/{topic}/events");
        self.call(&Call::new("POST", &target).header("content-type", "application/x-ndjson").body(body))
    }

    /// Makes a topic with so many partitions.
    #[track_caller]
    pub fn make(&self, topic: &str, partitions: u32) {
        let answer = self.put(&format!("/v1/topics/{topic}"), &format!(r#"{{"partitions":{partitions}}}"#));
        assert!(matches!(answer.status, 200 | 201), "{answer:?}");
    }

    /// A page of events.
    #[track_caller]
    pub fn page(&self, topic: &str, query: &str) -> Answer {
        self.get(&format!("/v1/topics/{topic}/events?{query}"))
    }

    /// All events that a query has, page by page.
    #[track_caller]
    pub fn all(&self, topic: &str, query: &str) -> Vec<Value> {
        let mut page = self.page(topic, query).is(200);
        let mut events = Vec::new();
        loop {
            let part = page["events"].as_array().unwrap();
            assert_eq!(page["topic"], topic);
            assert_eq!(page["count"], part.len());
            events.extend(part.iter().cloned());
            match page["next"].as_str() {
                Some(next) => page = self.page(topic, &format!("cursor={}", encoded(next))).is(200),
                None => break,
            }
        }
        assert!(page["next"].is_null(), "{page}");
        events
    }

    /// The whole range as one stream.
    #[track_caller]
    pub fn export(&self, topic: &str, query: &str) -> Answer {
        let target = format!("/v1/topics/{topic}/events?{query}");
        self.call(&Call::new("GET", &target).header("accept", "application/x-ndjson"))
    }

    /// The value of a metric's sample, by its beginning.
    #[track_caller]
    pub fn metric(&self, sample: &str) -> Option<f64> {
        let answer = self.get("/metrics");
        assert_eq!(answer.status, 200);
        answer.metric(sample)
    }
}

impl Answer {
    /// The value of a metric's sample, by its beginning.
    pub fn metric(&self, sample: &str) -> Option<f64> {
        let text = self.text();
        let line = text.lines().find(|line| {
            line.strip_prefix(sample).is_some_and(|rest| rest.starts_with(' ') || rest.starts_with('{'))
        })?;
        line.rsplit(' ').next().unwrap().parse().ok()
    }
}

fn json_call<'a>(method: &'a str, target: &'a str, body: &'a [u8]) -> Call<'a> {
    Call::new(method, target).header("content-type", "application/json").body(body)
}

/// A hub, its folder and a way to talk to it.
pub struct Site {
    hub: Option<Hub>,
    data: tempfile::TempDir,
    file: String,
    pub api: Api,
}

impl Site {
    pub fn start() -> Self {
        Self::with_file("")
    }

    /// A site whose hub has this configuration.
    pub fn with_file(file: &str) -> Self {
        let data = tempfile::tempdir().unwrap();
        let hub = launch(&data, file);
        let api = Api { address: address(&hub) };
        Self { hub: Some(hub), data, file: file.to_owned(), api }
    }

    pub fn hub(&self) -> &Hub {
        self.hub.as_ref().unwrap()
    }

    pub fn data(&self) -> &str {
        self.data.path().to_str().unwrap()
    }

    /// Ends the hub the way an operator does, and starts it again.
    pub fn restart(&mut self) {
        self.stop();
        self.relaunch();
    }

    /// Waits for the end of a hub that was told to end, and starts it again.
    pub fn restart_after_the_end(&mut self) {
        assert_eq!(self.hub.take().unwrap().wait().code(), Some(0));
        self.relaunch();
    }

    /// Ends the hub the hard way, and starts it again.
    pub fn crash(&mut self) {
        let mut hub = self.hub.take().unwrap();
        hub.signal(Signal::KILL);
        hub.wait();
        self.relaunch();
    }

    /// Ends the hub, and leaves the folder.
    pub fn stop(&mut self) {
        let hub = self.hub.take().unwrap();
        let pid = hub.pid();
        let (ended, end) = mpsc::channel::<()>();
        // One that does not end would hold the test for ever.
        let guard = std::thread::spawn(move || {
            if end.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
                let _ = kill_process(pid, Signal::KILL);
            }
        });
        let status = hub.stop();
        drop(ended);
        guard.join().unwrap();
        assert_eq!(status.code(), Some(0));
    }

    fn relaunch(&mut self) {
        let hub = launch(&self.data, &self.file);
        self.api.address = address(&hub);
        self.hub = Some(hub);
    }
}

fn launch(data: &tempfile::TempDir, file: &str) -> Hub {
    Hub::with_file(file, &["--data", data.path().to_str().unwrap()])
}

fn address(hub: &Hub) -> String {
    hub.url.trim_start_matches("http://").trim_end_matches('/').to_owned()
}

/// The names of an object's fields, sorted.
#[track_caller]
pub fn fields(value: &Value) -> Vec<&str> {
    let mut names: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}

/// One field of each event.
pub fn column<'a>(events: &'a [Value], name: &str) -> Vec<&'a Value> {
    events.iter().map(|event| &event[name]).collect()
}
