//! A hub as a separate process, and the load that `prombus bench` puts on it.

use super::context::Context;
use prombus_fixtures::http::{Answer, Api, Call};
use prombus_fixtures::{ANY_PORT, HubError};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The variable for the log, and what it says: nothing but warnings, and that the hub is ready.
const LOG: (&str, &str) = ("PROMBUS_LOG", "warn,prombus=info");
/// A hub that has not ended by then never will.
const STOPPED_WITHIN: Duration = Duration::from_secs(600);
/// What a hub has not got done by then it never will.
const SETTLED_WITHIN: Duration = Duration::from_secs(20);

/// A hub that runs; it is killed when this is dropped.
pub struct Hub {
    process: prombus_fixtures::Hub,
    api: Api,
    bin: PathBuf,
}

/// What `prombus bench` reports.
#[derive(Debug, Deserialize)]
pub struct Load {
    /// How many events it sent or saw.
    pub events: u64,
    /// How many that were in a second.
    pub events_per_s: f64,
}

impl Hub {
    /// Starts a hub on a data folder, and waits until it is ready.
    pub fn start(context: &Context, data: &Path) -> Result<Self, String> {
        let bin = context.hub()?.to_owned();
        let mut command = Command::new(&bin);
        command.arg("serve").arg("--data").arg(data).envs([ANY_PORT, LOG]);
        let process = prombus_fixtures::Hub::start(command).map_err(told)?;
        Ok(Self { api: Api { address: process.address() }, process, bin })
    }

    /// How long it took from its start until it was ready, in seconds.
    pub fn ready_after(&self) -> f64 {
        self.process.ready_after.as_secs_f64()
    }

    /// Where it listens.
    pub fn address(&self) -> &str {
        &self.api.address
    }

    /// How much memory it has, in MiB.
    pub fn mebibytes(&self) -> Result<f64, String> {
        mebibytes(self.process.usage().memory())
    }

    /// How much memory it had at most, in MiB.
    pub fn peak_mebibytes(&self) -> Result<f64, String> {
        mebibytes(self.process.usage().peak_memory())
    }

    /// How long it has computed so far, in seconds.
    pub fn cpu_seconds(&self) -> Result<f64, String> {
        let time = self.process.usage().cpu_time();
        time.map(|time| time.as_secs_f64()).map_err(|error| format!("the time of the hub: {error}"))
    }

    /// Runs `prombus bench` against it.
    pub fn load(&self, args: &[&str]) -> Result<Load, String> {
        let output = Command::new(&self.bin)
            .args(["bench", "--json", "--url", &self.process.url])
            .args(args)
            .stderr(Stdio::piped())
            .output()
            .map_err(|error| format!("prombus bench cannot be run: {error}"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("prombus bench {} failed: {said}", args.join(" ")));
        }
        serde_json::from_slice(&output.stdout)
            .map_err(|error| format!("the report of prombus bench: {error}"))
    }

    /// Backs it up into a folder.
    pub fn backup(&self, dir: &Path) -> Result<(), String> {
        let output = Command::new(&self.bin)
            .args(["backup", "--url", &self.process.url])
            .arg(dir)
            .output()
            .map_err(|error| format!("prombus backup cannot be run: {error}"))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(format!("prombus backup failed: {}", String::from_utf8_lossy(&output.stderr))),
        }
    }

    /// Fails unless a topic holds exactly `events` events.
    pub fn check_topic(&self, topic: &str, events: u64) -> Result<(), String> {
        #[derive(Deserialize)]
        struct Topic {
            events: u64,
        }
        let Answer { status, body, .. } = self.get(&format!("/v1/topics/{topic}"))?;
        let found: Topic =
            serde_json::from_slice(&body).map_err(|error| format!("{topic}, {status}: {error}"))?;
        if found.events == events {
            return Ok(());
        }
        Err(format!("{events} events went into {topic}, but {} are there", found.events))
    }

    /// Waits until a group has nothing left to do.
    pub fn check_group(&self, topic: &str, group: &str) -> Result<(), String> {
        #[derive(Deserialize)]
        struct Status {
            partitions: Vec<Partition>,
        }
        #[derive(Deserialize)]
        struct Partition {
            lag: u64,
        }
        let start = Instant::now();
        loop {
            let Answer { status, body, .. } = self.get(&format!("/v1/topics/{topic}/groups/{group}"))?;
            let found: Status =
                serde_json::from_slice(&body).map_err(|error| format!("{group}, {status}: {error}"))?;
            let lag: u64 = found.partitions.iter().map(|partition| partition.lag).sum();
            match lag {
                0 => return Ok(()),
                lag if start.elapsed() > SETTLED_WITHIN => {
                    return Err(format!("{lag} events of {topic} are left to {group}"));
                }
                _ => {}
            }
        }
    }

    /// Waits until so many WebSockets are open.
    pub fn wait_for_sockets(&self, count: usize) -> Result<(), String> {
        let start = Instant::now();
        let line = format!("ws_connections {count}");
        loop {
            let metrics = self.get("/metrics")?;
            if metrics.text().lines().any(|found| found == line) {
                return Ok(());
            }
            if start.elapsed() > SETTLED_WITHIN {
                return Err(format!("it never came about that {line}"));
            }
        }
    }

    /// Ends it as one should.
    pub fn stop(mut self) -> Result<(), String> {
        self.process.stop_within(STOPPED_WITHIN).map_err(told)
    }

    /// Ends it as a crash does.
    pub fn kill(mut self) -> Result<(), String> {
        self.process.kill().map_err(told)
    }

    fn get(&self, path: &str) -> Result<Answer, String> {
        self.api.try_call(&Call::new("GET", path)).map_err(|error| format!("GET {path}: {error}"))
    }

    /// Posts JSON.
    pub fn post(&self, path: &str, body: &str) -> Result<Answer, String> {
        self.api.try_call(&Call::json("POST", path, body)).map_err(|error| format!("POST {path}: {error}"))
    }
}

fn mebibytes(bytes: std::io::Result<u64>) -> Result<f64, String> {
    let mebibytes = bytes.map(|bytes| bytes as f64 / f64::from(1 << 20));
    mebibytes.map_err(|error| format!("the memory of the hub: {error}"))
}

fn told(error: HubError) -> String {
    error.to_string()
}
