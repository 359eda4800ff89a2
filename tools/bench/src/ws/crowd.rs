//! Many connections with a subscription each, and what those that do not read cost the others.

use super::super::hub::Hub;
use super::super::load;
use super::consume::{Acks, Consumer, subscribe};
use super::wire::Wire;
use rustix::process::{Resource, getrlimit, setrlimit};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;
use tokio::task::JoinSet;

/// Topics, each with one group.
const TOPICS: u64 = 10;
/// Those who read.
const READERS: usize = 950;
/// Those who do not.
const STALLED: usize = 50;
/// What one who does not read holds at most: several MB, which is more than its socket takes.
const STALLED_IN_FLIGHT: u64 = 2_000;
const TOPIC: &str = "crowd";
/// The window is wider than a topic: what is held by those who do not read stops nobody, as is the contract of the
/// window itself.
const GROUP_OPTIONS: &str = r#""from":"earliest","ackTimeoutMs":600000,"ackWindow":1000000"#;

/// Who is there beside the readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stalled {
    /// Nobody.
    None,
    /// Members of the same groups that subscribe, and never read.
    Fifty,
}

/// A hub with a backlog.
pub struct Crowd<'a> {
    hub: &'a Hub,
    /// How many events the readers get, whatever the others hold.
    goal: u64,
}

impl<'a> Crowd<'a> {
    /// Fills the topics.
    pub fn prepare(hub: &'a Hub, events: u64) -> Result<Self, String> {
        allow_many_files()?;
        let held = STALLED as u64 * STALLED_IN_FLIGHT;
        let (count, topics) = ((events + held).to_string(), TOPICS.to_string());
        let args = ["--prefix", TOPIC, "--events", &count, "--topics", &topics, "--batch", "1000"];
        hub.load(&[&args[..], &["--connections", "4"]].concat())?;
        Ok(Self { hub, goal: events })
    }

    /// Events in a second that the readers get and ack together, until they have all that the others cannot hold.
    pub fn rate(&self, stalled: Stalled) -> Result<f64, String> {
        let group = match stalled {
            Stalled::None => "alone",
            Stalled::Fifty => "beside",
        };
        let rate = load::runtime()?.block_on(async {
            let mut silent = Vec::new();
            for number in 0..if stalled == Stalled::Fifty { STALLED } else { 0 } {
                silent.push(self.stall(number, group).await?);
            }
            let acked = Rc::new(Cell::new(0));
            let mut wires = Vec::new();
            for _ in 0..READERS {
                wires.push(Wire::open(self.hub.address())?);
            }
            let start = Instant::now();
            tokio::task::LocalSet::new()
                .run_until(async {
                    let mut readers = JoinSet::new();
                    for (number, wire) in wires.into_iter().enumerate() {
                        let consumer = Consumer::new(&topic_of(number), group, Acks::Lists);
                        let reader = Reader { wire, consumer, acked: acked.clone(), goal: self.goal };
                        readers.spawn_local(reader.run(topic_of(number), group));
                    }
                    // The first that sees the goal reached ends it for all.
                    match readers.join_next().await {
                        Some(Ok(result)) => result,
                        Some(Err(error)) => Err(error.to_string()),
                        None => Err("there are no readers".to_owned()),
                    }
                })
                .await?;
            Ok::<f64, String>(acked.get() as f64 / start.elapsed().as_secs_f64())
        })?;
        // What the hub does about those who went is not to disturb what is measured next.
        self.hub.wait_for_sockets(0)?;
        Ok(rate)
    }

    /// One that subscribes, and never reads again.
    async fn stall(&self, number: usize, group: &str) -> Result<Wire, String> {
        let mut wire = Wire::open(self.hub.address())?;
        let opts = format!(r#"{{{GROUP_OPTIONS},"batchSize":1000,"maxInFlight":{STALLED_IN_FLIGHT}}}"#);
        wire.ask(&subscribe(&topic_of(number), group, &opts)).await?;
        Ok(wire)
    }
}

/// Each connection is a file. The hub sees to this by itself.
fn allow_many_files() -> Result<(), String> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).map_err(|error| format!("the limit of open files: {error}"))
}

fn topic_of(member: usize) -> String {
    format!("{TOPIC}-{:04}", member as u64 % TOPICS)
}

/// One that reads and acks.
struct Reader {
    wire: Wire,
    consumer: Consumer,
    /// What all of them have acked.
    acked: Rc<Cell<u64>>,
    goal: u64,
}

impl Reader {
    async fn run(mut self, topic: String, group: &'static str) -> Result<(), String> {
        let opts = format!(r#"{{{GROUP_OPTIONS},"batch":true,"batchSize":100,"maxInFlight":200}}"#);
        self.wire.ask(&subscribe(&topic, group, &opts)).await?;
        loop {
            let before = self.consumer.acked;
            self.consumer.take(&mut self.wire)?;
            self.acked.set(self.acked.get() + self.consumer.acked - before);
            if self.acked.get() >= self.goal {
                return Ok(());
            }
            self.wire.receive().await?;
        }
    }
}
