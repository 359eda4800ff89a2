//! A hub as a process of its own, and the load that `prombus bench` puts on it.

use super::context::Context;
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A hub that is not ready by then never will be.
const READY_WITHIN: Duration = Duration::from_secs(120);
/// What a hub has not got done by then it never will.
const SETTLED_WITHIN: Duration = Duration::from_secs(20);
/// How often a hub is asked whether it is ready.
const ASK_EVERY: Duration = Duration::from_millis(1);

/// A hub that runs; it is killed when this is dropped.
pub struct Hub {
    child: Child,
    address: String,
    bin: PathBuf,
    /// How long it took from its start until it was ready, in seconds.
    pub ready_after: f64,
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
        let address = free_address().map_err(|error| format!("no port is free: {error}"))?;
        let start = Instant::now();
        let child = Command::new(&bin)
            .args(["serve", "--listen", &address, "--data"])
            .arg(data)
            .env("PROMBUS_LOG", "warn")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("{} cannot be started: {error}", bin.display()))?;
        let mut hub = Self { child, address, bin, ready_after: 0.0 };
        while !hub.get("/readyz").is_ok_and(|(status, _)| status == 200) {
            if let Ok(Some(status)) = hub.child.try_wait() {
                return Err(format!("the hub ended before it was ready: {status}"));
            }
            if start.elapsed() > READY_WITHIN {
                return Err("the hub does not get ready".to_owned());
            }
            // There is nothing to wait on but the answer itself.
            std::thread::sleep(ASK_EVERY);
        }
        hub.ready_after = start.elapsed().as_secs_f64();
        Ok(hub)
    }

    /// Where it listens.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The number of its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Runs `prombus bench` against it.
    pub fn load(&self, args: &[&str]) -> Result<Load, String> {
        let output = Command::new(&self.bin)
            .args(["bench", "--json", "--url", &format!("http://{}", self.address)])
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

    /// Fails unless a topic holds exactly `events` events.
    pub fn check_topic(&self, topic: &str, events: u64) -> Result<(), String> {
        #[derive(Deserialize)]
        struct Topic {
            events: u64,
        }
        let (status, body) = self.get(&format!("/v1/topics/{topic}"))?;
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
            let (status, body) = self.get(&format!("/v1/topics/{topic}/groups/{group}"))?;
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
            let (_, body) = self.get("/metrics")?;
            if String::from_utf8_lossy(&body).lines().any(|found| found == line) {
                return Ok(());
            }
            if start.elapsed() > SETTLED_WITHIN {
                return Err(format!("it never came about that {line}"));
            }
        }
    }

    /// Ends it as one should.
    pub fn stop(mut self) -> Result<(), String> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).map_err(|error| format!("the hub cannot be stopped: {error}"))?;
        let status = self.child.wait().map_err(|error| error.to_string())?;
        if status.success() { Ok(()) } else { Err(format!("the hub did not end well: {status}")) }
    }

    /// Ends it as a crash does.
    pub fn kill(self) {
        drop(self);
    }

    fn get(&self, path: &str) -> Result<(u16, Vec<u8>), String> {
        let answer = ask(&self.address, "GET", path, "").map_err(|error| format!("GET {path}: {error}"))?;
        parse(&answer).ok_or_else(|| format!("GET {path}: the answer is not HTTP"))
    }

    /// Posts JSON.
    pub fn post(&self, path: &str, body: &str) -> Result<(u16, Vec<u8>), String> {
        let answer =
            ask(&self.address, "POST", path, body).map_err(|error| format!("POST {path}: {error}"))?;
        parse(&answer).ok_or_else(|| format!("POST {path}: the answer is not HTTP"))
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        // One that has ended already cannot be killed, which is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An address that nobody listens on.
pub fn free_address() -> std::io::Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}

fn ask(address: &str, method: &str, path: &str, body: &str) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address)?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}

fn parse(answer: &[u8]) -> Option<(u16, Vec<u8>)> {
    let status = std::str::from_utf8(answer.get(9..12)?).ok()?.parse().ok()?;
    let body = answer.windows(4).position(|end| end == b"\r\n\r\n")? + 4;
    Some((status, answer[body..].to_vec()))
}
