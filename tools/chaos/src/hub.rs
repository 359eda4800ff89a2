//! The hub as a process: started, killed, ended.

use super::plan::lasting_topics;
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStderr, Command};
use tokio::sync::oneshot;

/// A hub that is not ready by then has failed.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// A hub that was asked to end does so by then.
const END_WITHIN: Duration = Duration::from_secs(10);
/// So much of the log is kept for the case that something fails.
const LOG_LINES: usize = 60;
/// The signal that cannot be caught.
const SIGKILL: i32 = 9;
/// What the line says that tells that the hub is ready, and what stands before the address in it.
const READY: (&str, &str) = ("ready", "http://");

/// Where a hub is and what it works on.
#[derive(Debug, Clone)]
pub struct Site {
    /// The binary.
    pub binary: PathBuf,
    /// The folder that holds the data folder and the configuration.
    pub folder: PathBuf,
    /// Where it listens; a new port each time where that is 0.
    pub listen: String,
}

impl Site {
    /// The data folder.
    pub fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Starts a hub and waits until it is ready.
    pub async fn start(&self, part_bytes: u64) -> Result<Hub, String> {
        let (child, log, ready) = self.spawn(part_bytes)?;
        let address = match tokio::time::timeout(READY_WITHIN, ready).await {
            Ok(Ok(address)) => address,
            Ok(Err(_)) => return Err(format!("the hub ended before it was ready:\n{}", log.text())),
            Err(_) => return Err(format!("the hub was not ready within {READY_WITHIN:?}:\n{}", log.text())),
        };
        Ok(Hub { child, log, base: format!("http://{address}") })
    }

    /// Starts a hub and kills it after a while, ready or not.
    pub async fn start_in_vain(&self, part_bytes: u64, for_so_long: Duration) -> Result<(), String> {
        let (mut child, ..) = self.spawn(part_bytes)?;
        // The moment is the plan's; there is nothing to wait for.
        tokio::time::sleep(for_so_long).await;
        child.kill().await.map_err(|error| format!("the hub cannot be killed: {error}"))
    }

    fn spawn(&self, part_bytes: u64) -> Result<(Child, Log, oneshot::Receiver<String>), String> {
        let config = self.folder.join("prombus.toml");
        std::fs::write(&config, configuration(part_bytes))
            .map_err(|error| format!("{} cannot be written: {error}", config.display()))?;
        let mut command = Command::new(&self.binary);
        command.arg("serve").arg("--config").arg(&config).arg("--data").arg(self.data());
        command.args(["--listen", &self.listen]).current_dir(&self.folder);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        let binary = self.binary.display();
        let mut child = command.spawn().map_err(|error| format!("{binary} cannot be started: {error}"))?;
        let (found, ready) = oneshot::channel();
        let log = Log::default();
        if let Some(stderr) = child.stderr.take() {
            tokio::spawn(log.clone().follow(stderr, found));
        }
        Ok((child, log, ready))
    }

    /// Runs `prombus check` on the data folder, which nobody may have open.
    pub async fn check(&self) -> Result<(), String> {
        let mut command = Command::new(&self.binary);
        command.arg("check").arg("--data").arg(self.data());
        let output =
            command.output().await.map_err(|error| format!("prombus check cannot be run: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        let said = [output.stderr, output.stdout].concat();
        Err(format!("prombus check ended with {}: {}", output.status, String::from_utf8_lossy(&said)))
    }
}

fn configuration(part_bytes: u64) -> String {
    let mut text = format!("[store]\npart_bytes = {part_bytes}\n");
    for topic in lasting_topics() {
        let (name, partitions, durability) = (topic.name, topic.partitions, topic.durability);
        // Writing to a string cannot fail.
        let _ =
            writeln!(text, "[topics.\"{name}\"]\npartitions = {partitions}\ndurability = \"{durability}\"");
    }
    text
}

/// A hub that runs. It is killed when it is dropped.
pub struct Hub {
    child: Child,
    log: Log,
    /// Where it listens.
    pub base: String,
}

impl Hub {
    /// SIGKILL, and waits until the process is gone.
    pub async fn kill(&mut self) -> Result<Log, String> {
        self.child.start_kill().map_err(|error| format!("the hub cannot be killed: {error}"))?;
        let status = self.child.wait().await.map_err(|error| error.to_string())?;
        match status.signal() {
            Some(SIGKILL) => Ok(self.log()),
            _ => Err(format!("the hub had ended by itself with {status}:\n{}", self.log.text())),
        }
    }

    /// SIGTERM, and waits until the process has ended as it should.
    pub async fn terminate(&mut self) -> Result<Log, String> {
        let pid = self.child.id().and_then(|id| rustix::process::Pid::from_raw(id.cast_signed()));
        let pid = pid.ok_or_else(|| format!("the hub had ended by itself:\n{}", self.log.text()))?;
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)
            .map_err(|error| format!("SIGTERM cannot be sent: {error}"))?;
        let ended = tokio::time::timeout(END_WITHIN, self.child.wait()).await;
        let wrong = |what: String| Err(format!("after SIGTERM, the hub {what}:\n{}", self.log.text()));
        match ended {
            Err(_) => wrong(format!("had not ended within {END_WITHIN:?}")),
            Ok(Err(error)) => wrong(format!("cannot be waited for: {error}")),
            Ok(Ok(status)) if status.success() => Ok(self.log()),
            Ok(Ok(status)) => wrong(format!("ended with {status}")),
        }
    }

    /// The last lines of its log.
    pub fn log(&self) -> Log {
        self.log.clone()
    }
}

/// The last lines that a hub wrote to stderr.
#[derive(Debug, Clone, Default)]
pub struct Log(Arc<Mutex<VecDeque<String>>>);

impl Log {
    async fn follow(self, stderr: ChildStderr, found: oneshot::Sender<String>) {
        let mut found = Some(found);
        let mut lines = BufReader::new(stderr).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            if let Some(address) = address_in(&line)
                && let Some(found) = found.take()
            {
                // Whoever no longer waits does not want to know.
                let _ = found.send(address.to_owned());
            }
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            kept.push_back(line);
            if kept.len() > LOG_LINES {
                kept.pop_front();
            }
        }
    }

    /// The lines as one text.
    pub fn text(&self) -> String {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().map(|line| format!("  | {line}\n")).collect()
    }

    /// A thread that panicked is a failure, even where the hub goes on.
    pub fn no_panic(&self) -> Result<(), String> {
        let text = self.text();
        if text.contains("panicked at") { Err(format!("the hub panicked:\n{text}")) } else { Ok(()) }
    }
}

fn address_in(line: &str) -> Option<&str> {
    let (word, scheme) = READY;
    let (_, after) = line.split_once(word)?.1.split_once(scheme)?;
    let end = after.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == ':')).unwrap_or(after.len());
    Some(&after[..end])
}

/// How much room the files of a folder take.
pub fn folder_bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(data) if data.is_dir() => folder_bytes(&entry.path()),
        Ok(data) => data.len(),
        Err(_) => 0,
    };
    entries.map(size).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_found_in_the_log() {
        let line = "2025-01-01T00:00:00Z  INFO prombus: ready url=http://127.0.0.1:4321 store=x";
        assert_eq!(address_in(line), Some("127.0.0.1:4321"));
        assert_eq!(address_in("ready, listening on http://127.0.0.1:1"), Some("127.0.0.1:1"));
        assert_eq!(address_in("opening http://127.0.0.1:1"), None);
    }

    #[test]
    fn the_configuration_is_toml() {
        let table: toml::Table = configuration(7).parse().unwrap();
        assert_eq!(table["store"]["part_bytes"].as_integer(), Some(7));
        assert_eq!(table["topics"]["interval.four"]["durability"].as_str(), Some("interval"));
    }
}
