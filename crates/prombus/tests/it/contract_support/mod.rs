//! A hub on a folder of its own, and an HTTP client that hides nothing of what came over the socket.

use crate::common::Hub;
pub use prombus_fixtures::http::{Answer, Api, CODES, Call, Connection, encoded};
use rustix::process::Signal;
use serde_json::Value;
use std::time::{SystemTime, UNIX_EPOCH};

/// Epoch milliseconds.
pub fn now() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

/// A hub, its folder and a way to talk to it.
pub struct Site {
    hub: Hub,
    data: tempfile::TempDir,
    pub api: Api,
}

impl Site {
    pub fn start() -> Self {
        Self::with_file("")
    }

    /// A site whose hub has this configuration.
    pub fn with_file(file: &str) -> Self {
        let data = tempfile::tempdir().unwrap();
        let hub = Hub::with_file(file, &["--data", data.path().to_str().unwrap()]);
        Self { api: hub.api(), hub, data }
    }

    pub fn hub(&self) -> &Hub {
        &self.hub
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
        assert_eq!(self.hub.wait().code(), Some(0));
        self.relaunch();
    }

    /// Ends the hub the hard way, and starts it again.
    pub fn crash(&mut self) {
        self.hub.signal(Signal::KILL);
        self.hub.wait();
        self.relaunch();
    }

    /// The hub is well, ends as it should, and never panicked.
    #[track_caller]
    pub fn ends_well(mut self) {
        assert_eq!(self.api.get("/healthz").status, 200);
        self.stop();
        let said = self.hub.log().text();
        assert!(!said.contains("panic"), "{said}");
    }

    /// Ends the hub, and leaves the folder.
    pub fn stop(&mut self) {
        self.hub.signal(Signal::TERM);
        assert_eq!(self.hub.wait().code(), Some(0));
    }

    fn relaunch(&mut self) {
        self.hub.start_again();
        self.api = self.hub.api();
    }
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
