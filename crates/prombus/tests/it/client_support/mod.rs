//! A hub that can be killed and started again where it was, and a wire to it that can be cut.

pub mod wire;

use crate::common::{Hub, PATIENCE};
use prombus_client::{Client, EventRecord, Live, LiveOptions, LiveState, NewEvent, ReadQuery};
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use std::future::Future;
use std::time::Duration;

/// A hub on disk, at one address for all its lives.
pub struct Spot {
    hub: Hub,
    pub address: String,
}

impl Spot {
    pub fn start() -> Self {
        Self::with(tempfile::tempdir().unwrap(), &[])
    }

    /// A hub in a folder of the test's own, with these arguments.
    pub fn with(folder: tempfile::TempDir, args: &[&str]) -> Self {
        let mut hub = Hub::within(folder, &[&["--data", "data"], args].concat());
        hub.stay();
        Self { address: hub.address(), hub }
    }

    pub fn url(&self) -> String {
        self.hub.url.clone()
    }

    pub fn client(&self) -> Client {
        Client::new(&self.url(), None).unwrap()
    }

    /// As a power cut would.
    pub fn kill(&mut self) {
        self.hub.kill();
    }

    pub fn pid(&self) -> Pid {
        self.hub.pid()
    }

    /// Waits until a hub that somebody has killed is gone.
    pub fn ended(&mut self) {
        self.hub.wait();
    }

    /// As an operator would.
    pub fn stop(&mut self) {
        self.hub.signal(Signal::TERM);
        assert!(self.hub.wait().success());
    }

    pub fn start_again(&mut self) {
        let url = self.url();
        self.hub.start_again();
        assert_eq!(self.url(), url);
    }
}

/// Options that do not make a test wait.
pub fn quick() -> LiveOptions {
    let pause = Duration::from_millis(20);
    LiveOptions { first_pause: pause, longest_pause: 5 * pause, ..LiveOptions::default() }
}

pub fn numbered(n: u64) -> NewEvent {
    NewEvent::of(&json!({ "n": n })).unwrap()
}

/// The number that an event was published with.
pub fn number(event: &EventRecord) -> u64 {
    let payload: Value = serde_json::from_str(event.payload.get()).unwrap();
    payload["n"].as_u64().unwrap()
}

/// The numbers of all events of a topic with one partition, which must stand at their offsets without a gap.
pub async fn numbers_of(client: &Client, topic: &str) -> Vec<u64> {
    let mut page = client.read(topic, &ReadQuery::default(), 10_000).await.unwrap();
    let mut events = page.events;
    while let Some(next) = page.next {
        page = client.read_next(topic, &next, 10_000).await.unwrap();
        events.extend(page.events);
    }
    for (event, offset) in events.iter().zip(0..) {
        assert_eq!(event.offset, offset, "offsets have no gap");
    }
    events.iter().map(number).collect()
}

/// What must happen, within a test's patience.
pub async fn soon<T>(what: &str, happens: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, happens).await {
        Ok(happened) => happened,
        Err(_) => panic!("it took too long until {what}"),
    }
}

/// Waits for a state of a connection.
pub async fn reaches(live: &Live, wanted: impl Fn(&LiveState) -> bool) -> LiveState {
    let mut state = live.watch();
    let reached = soon("the state is reached", state.wait_for(|state| wanted(state))).await;
    reached.unwrap().clone()
}
