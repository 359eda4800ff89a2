//! What the durability tests share: a plain HTTP connection, and a record of what was answered.

pub mod trace;

use crate::common::{Said, binary, run};
use crate::contract_support::{Call, Connection};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// One connection to a hub, with answers as a status and a body.
pub struct Http(Connection);

impl Http {
    /// Connects to a hub at `http://host:port`.
    pub fn connect(url: &str) -> Self {
        Self(Connection::open(url.strip_prefix("http://").unwrap()).unwrap())
    }

    /// Sends a request and waits for its answer; a connection that breaks is an error.
    pub fn call(&mut self, method: &str, path: &str, body: &str) -> io::Result<(u16, String)> {
        let answer = self.0.call(&Call::json(method, path, body))?;
        Ok((answer.status, answer.text().to_owned()))
    }

    /// The events of a topic, which must be there.
    pub fn export(&mut self, topic: &str) -> Vec<Value> {
        let target = format!("/v1/topics/{topic}/events?from=earliest");
        let answer =
            self.0.call(&Call::new("GET", &target).header("accept", "application/x-ndjson")).unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.lines()
    }
}

/// What was answered: the payload at each offset of a topic with one partition.
#[derive(Debug, Clone, Default)]
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
