//! A hub by its address, and the calls that most tests make.

use super::{Answer, Call, Connection};
use crate::PATIENCE;
use serde_json::Value;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};

/// Sends calls to one address, each over a connection of its own; as good from many threads as from one.
#[derive(Debug, Clone)]
pub struct Api {
    /// The host and the port.
    pub address: String,
}

impl Api {
    /// A connection to write anything to.
    #[track_caller]
    pub fn connect(&self) -> TcpStream {
        let connect = || {
            let stream = TcpStream::connect(&self.address)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            io::Result::Ok(stream)
        };
        connect().unwrap_or_else(|error| panic!("{}: {error}", self.address))
    }

    /// Writes these bytes, and reads until the hub closes. A hub may answer before it has read everything.
    pub fn raw(&self, bytes: &[u8], half_close: bool) -> Vec<u8> {
        let mut stream = self.connect();
        let mut writer = stream.try_clone().unwrap_or_else(|error| panic!("{error}"));
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
                    Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break,
                    Err(error) => panic!("{error} after {}", String::from_utf8_lossy(&answer)),
                }
            }
            let _ = stream.shutdown(Shutdown::Both);
        });
        answer
    }

    /// One call, whose answer must be one.
    #[track_caller]
    pub fn call(&self, call: &Call) -> Answer {
        let bytes = self.raw(&call.and_close().bytes(), false);
        match Answer::parse(&bytes, call.method == "HEAD") {
            Some(answer) => answer,
            None => panic!("{} {}: {:?}", call.method, call.target, String::from_utf8_lossy(&bytes)),
        }
    }

    /// One call to a hub that may be gone before it has answered.
    pub fn try_call(&self, call: &Call) -> io::Result<Answer> {
        Connection::open(&self.address)?.call(&call.and_close())
    }

    /// Gets something.
    #[track_caller]
    pub fn get(&self, target: &str) -> Answer {
        self.call(&Call::new("GET", target))
    }

    /// Deletes something.
    #[track_caller]
    pub fn delete(&self, target: &str) -> Answer {
        self.call(&Call::new("DELETE", target))
    }

    /// Puts JSON.
    #[track_caller]
    pub fn put(&self, target: &str, body: &str) -> Answer {
        self.call(&Call::json("PUT", target, body))
    }

    /// Posts JSON.
    #[track_caller]
    pub fn post(&self, target: &str, body: &str) -> Answer {
        self.call(&Call::json("POST", target, body))
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
            let part = page["events"].as_array().unwrap_or_else(|| panic!("no events in {page}"));
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

/// Percent-encodes everything that could mean something in a URL.
pub fn encoded(text: &str) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(byte);
    let encode =
        |byte: u8| if is_plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(encode).collect()
}
