//! A hub that can be killed and started again where it was, and a wire to it that can be cut.

pub mod wire;

use crate::common::{PATIENCE, binary};
use prombus_client::{Client, EventRecord, Live, LiveOptions, LiveState, NewEvent, ReadQuery};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::future::Future;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::time::Duration;

/// A hub on disk, at one address for all its lives.
pub struct Spot {
    folder: tempfile::TempDir,
    child: Child,
    args: Vec<String>,
    url: String,
    pub address: String,
}

impl Spot {
    pub fn start() -> Self {
        Self::with(tempfile::tempdir().unwrap(), &[])
    }

    /// A hub in a folder of the test's own, with these arguments.
    pub fn with(folder: tempfile::TempDir, args: &[&str]) -> Self {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let (child, url) = launch(&folder, &args, "127.0.0.1:0");
        let address = url.split_once("://").unwrap().1.to_owned();
        Self { folder, child, args, url, address }
    }

    pub fn url(&self) -> String {
        self.url.clone()
    }

    pub fn client(&self) -> Client {
        Client::new(&self.url(), None).unwrap()
    }

    /// As a power cut would.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.ended();
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until a hub that somebody has killed is gone.
    pub fn ended(&mut self) {
        self.child.wait().unwrap();
    }

    /// As an operator would.
    pub fn stop(&mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
    }

    pub fn start_again(&mut self) {
        let (child, url) = launch(&self.folder, &self.args, &self.address);
        assert_eq!(url, self.url);
        self.child = child;
    }
}

impl Drop for Spot {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn launch(folder: &tempfile::TempDir, args: &[String], listen: &str) -> (Child, String) {
    let mut command = binary(folder.path());
    command.args(["serve", "--listen", listen, "--data", "data"]).args(args);
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let (mut line, mut seen) = (String::new(), String::new());
    while !line.contains("ready") {
        line.clear();
        assert!(stderr.read_line(&mut line).unwrap() > 0, "no hub at {listen}: {seen}");
        seen.push_str(&line);
    }
    // Nobody reads the rest, and a hub must not wait for that.
    std::thread::spawn(move || stderr.read_to_end(&mut Vec::new()));
    let start = line.find("http").unwrap();
    (child, line[start..].split([' ', '"']).next().unwrap().to_owned())
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
