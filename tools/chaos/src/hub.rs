//! The hub that is killed: where it is, how it is configured, and how it must end.

use super::plan::lasting_topics;
use prombus_fixtures::{HubError, Log};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A hub that was asked to end does so by then.
const END_WITHIN: Duration = Duration::from_secs(10);

/// Where a hub is and what it works on.
#[derive(Debug, Clone)]
pub struct HubSetup {
    /// The binary.
    pub binary: PathBuf,
    /// The folder that holds the data folder and the configuration.
    pub folder: PathBuf,
    /// Where it listens; a new port each time where that is 0.
    pub listen: String,
}

impl HubSetup {
    /// The data folder.
    pub fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Starts a hub and waits until it is ready.
    ///
    /// This waits without letting other tasks run, as do a hub's ends. The load has threads of its own.
    pub fn start(&self, part_bytes: u64) -> Result<Hub, String> {
        let process = prombus_fixtures::Hub::start(self.command(part_bytes)?).map_err(told)?;
        Ok(Hub { base: process.url.clone(), process })
    }

    /// Starts a hub and kills it after a while, ready or not.
    pub async fn start_in_vain(&self, part_bytes: u64, for_so_long: Duration) -> Result<(), String> {
        let mut command = self.command(part_bytes)?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let binary = self.binary.display();
        let mut child = command.spawn().map_err(|error| format!("{binary} cannot be started: {error}"))?;
        // The moment is the plan's; there is nothing to wait for.
        tokio::time::sleep(for_so_long).await;
        let killed = child.kill().and_then(|()| child.wait());
        killed.map(drop).map_err(|error| format!("the hub cannot be killed: {error}"))
    }

    fn command(&self, part_bytes: u64) -> Result<Command, String> {
        let config = self.folder.join("prombus.toml");
        std::fs::write(&config, configuration(part_bytes))
            .map_err(|error| format!("{} cannot be written: {error}", config.display()))?;
        let mut command = Command::new(&self.binary);
        command.arg("serve").arg("--config").arg(&config).arg("--data").arg(self.data());
        command.args(["--listen", &self.listen]).current_dir(&self.folder);
        Ok(command)
    }

    /// Runs `prombus check` on the data folder, which nobody may have open.
    pub fn check(&self) -> Result<(), String> {
        let mut command = Command::new(&self.binary);
        command.arg("check").arg("--data").arg(self.data());
        let output = command.output().map_err(|error| format!("prombus check cannot be run: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        let said = [output.stderr, output.stdout].concat();
        Err(format!("prombus check ended with {}: {}", output.status, String::from_utf8_lossy(&said)))
    }
}

fn configuration(part_bytes: u64) -> String {
    format!("[store]\npart_bytes = {part_bytes}\n{}", topics_of_the_load())
}

/// The lasting topics, as they are in a configuration.
pub fn topics_of_the_load() -> String {
    let mut text = String::new();
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
    process: prombus_fixtures::Hub,
    /// Where it listens.
    pub base: String,
}

impl Hub {
    /// SIGKILL, and waits until the process is gone.
    pub fn kill(&mut self) -> Result<Log, String> {
        self.process.kill().map_err(told)?;
        Ok(self.log())
    }

    /// SIGTERM, and waits until the process has ended as it should.
    pub fn terminate(&mut self) -> Result<Log, String> {
        let ended = self.process.stop_within(END_WITHIN);
        ended.map_err(|error| format!("after SIGTERM, {error}"))?;
        Ok(self.log())
    }

    /// What it logs.
    pub fn log(&self) -> Log {
        self.process.log()
    }
}

fn told(error: HubError) -> String {
    error.to_string()
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
    fn the_configuration_is_toml() {
        let table: toml::Table = configuration(7).parse().unwrap();
        assert_eq!(table["store"]["part_bytes"].as_integer(), Some(7));
        assert_eq!(table["topics"]["interval.four"]["durability"].as_str(), Some("interval"));
    }
}
