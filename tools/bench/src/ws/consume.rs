//! One connection that consumes and acks a backlog.

use super::super::hub::Hub;
use super::super::load;
use super::super::table::Target;
use super::wire::{Wire, check_ok};
use std::time::Instant;

/// How the hub writes the lease of a delivery.
const LEASE: &[u8] = b"\"lease\":\"";
/// Where each event has an ack of its own, every so many are answered, so that the client knows how far it is. It
/// divides every number of events that is consumed.
const ANSWERED_EVERY: u64 = 100;

/// How deliveries are acked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acks {
    /// One frame for all that a frame, or a read, has brought.
    Lists,
    /// One frame for each.
    Single,
}

/// A scenario of consuming.
pub struct Scenario {
    /// The row.
    pub row: &'static str,
    /// The group.
    group: &'static str,
    /// Deliveries in a frame.
    batch: bool,
    acks: Acks,
    /// What it should reach.
    pub target: Option<Target>,
}

/// What is measured.
pub const SCENARIOS: [Scenario; 3] = [
    Scenario {
        row: "WS SUBSCRIBE, 1,000 events a frame, acked in lists, 1 connection",
        group: "batches",
        batch: true,
        acks: Acks::Lists,
        target: Some(Target::AtLeast(5e5)),
    },
    Scenario {
        row: "WS SUBSCRIBE, 1 event a frame, each acked by a frame, 1 connection",
        group: "singles",
        batch: false,
        acks: Acks::Single,
        target: Some(Target::AtLeast(2e5)),
    },
    Scenario {
        row: "WS SUBSCRIBE, 1 event a frame, acked in lists, 1 connection",
        group: "single-lists",
        batch: false,
        acks: Acks::Lists,
        target: None,
    },
];

/// Events in a second, until the last ack is answered.
pub fn rate(hub: &Hub, (topic, events): (&str, u64), scenario: &Scenario) -> Result<f64, String> {
    let seconds = load::runtime()?.block_on(async {
        let mut wire = Wire::open(hub.address())?;
        let mut consumer = Consumer::new(topic, scenario.group, scenario.acks);
        let start = Instant::now();
        let opts = format!(
            r#"{{"from":"earliest","ackTimeoutMs":600000,"batch":{},"batchSize":1000,"maxInFlight":4000}}"#,
            scenario.batch
        );
        wire.ask(&subscribe(topic, scenario.group, &opts)).await?;
        loop {
            consumer.take(&mut wire)?;
            if consumer.acked >= events {
                break;
            }
            wire.receive().await?;
        }
        Ok::<f64, String>(start.elapsed().as_secs_f64())
    })?;
    hub.check_group(topic, scenario.group)?;
    Ok(events as f64 / seconds)
}

/// A SUBSCRIBE frame.
pub fn subscribe(topic: &str, group: &str, opts: &str) -> String {
    format!(r#"{{"op":"SUBSCRIBE","corr":"s","topic":"{topic}","group":"{group}","opts":{opts}}}"#)
}

/// Acks what comes.
pub struct Consumer {
    acks: Acks,
    /// The start of an ACK, up to its lease or leases.
    head: String,
    /// Deliveries that have come.
    pub seen: u64,
    /// Deliveries of which the hub has answered the ack.
    pub acked: u64,
    /// How many each answer stands for that is still to come, the next one first.
    unanswered: std::collections::VecDeque<u64>,
    /// Acks since the last that will be answered.
    silent: u64,
    leases: Vec<u8>,
    listed: u64,
}

impl Consumer {
    /// One that has seen nothing.
    pub fn new(topic: &str, group: &str, acks: Acks) -> Self {
        let head = format!(r#"{{"op":"ACK","topic":"{topic}","group":"{group}","#);
        let (seen, acked, silent, listed) = (0, 0, 0, 0);
        Self { acks, head, seen, acked, unanswered: Default::default(), silent, leases: Vec::new(), listed }
    }

    /// Looks at everything that has come, and acks it with the next write.
    pub fn take(&mut self, wire: &mut Wire) -> Result<(), String> {
        while let Some(text) = wire.next_text()? {
            if !text.starts_with(b"{\"op\":\"EVENT") {
                check_ok(text)?;
                self.acked += self.unanswered.pop_front().ok_or("an answer that nobody asked for")?;
                continue;
            }
            let before = self.listed;
            for at in memchr::memmem::find_iter(text, LEASE) {
                let lease = &text[at + LEASE.len()..];
                let end = memchr::memchr(b'"', lease).ok_or("a lease without an end")?;
                if self.listed > 0 {
                    self.leases.push(b',');
                }
                self.leases.push(b'"');
                self.leases.extend_from_slice(&lease[..end]);
                self.leases.push(b'"');
                self.listed += 1;
            }
            self.seen += self.listed - before;
            if self.listed == before {
                return Err(format!("an event without a lease: {}", String::from_utf8_lossy(text)));
            }
            if self.acks == Acks::Single {
                self.single(wire);
            }
        }
        if self.acks == Acks::Lists && self.listed > 0 {
            self.list(wire);
        }
        Ok(())
    }

    /// Acks all that is listed with one frame.
    fn list(&mut self, wire: &mut Wire) {
        let mut ack = Vec::with_capacity(self.leases.len() + self.head.len() + 32);
        ack.extend_from_slice(self.head.as_bytes());
        ack.extend_from_slice(b"\"corr\":\"a\",\"leases\":[");
        ack.append(&mut self.leases);
        ack.extend_from_slice(b"]}");
        wire.text(&ack);
        self.unanswered.push_back(std::mem::take(&mut self.listed));
    }

    /// Acks the one that is listed.
    fn single(&mut self, wire: &mut Wire) {
        self.silent += 1;
        let mut ack = Vec::with_capacity(self.leases.len() + self.head.len() + 32);
        ack.extend_from_slice(self.head.as_bytes());
        if self.silent == ANSWERED_EVERY {
            ack.extend_from_slice(b"\"corr\":\"a\",");
            self.unanswered.push_back(std::mem::take(&mut self.silent));
        }
        ack.extend_from_slice(b"\"lease\":");
        ack.append(&mut self.leases);
        ack.push(b'}');
        wire.text(&ack);
        self.listed = 0;
    }
}
