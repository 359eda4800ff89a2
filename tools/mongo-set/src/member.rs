//! One member: how it is started, killed, stopped, and started again.

use super::NAME;
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// One member; it ends with this.
pub struct Member {
    mongod: PathBuf,
    folder: PathBuf,
    /// Where it listens.
    pub port: u16,
    process: Child,
}

impl Drop for Member {
    fn drop(&mut self) {
        // One that has ended by itself is as good.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Member {
    /// Starts it, with its data and its log in `data`.
    pub fn start(mongod: &Path, data: &Path, (n, port): (usize, u16)) -> Result<Self, String> {
        let folder = data.join(format!("member{n}"));
        std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let process = run(mongod, &folder, port)?;
        Ok(Self { mongod: mongod.to_owned(), folder, port, process })
    }

    /// Where it listens.
    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// How it is reached, and none of the others.
    pub fn url(&self) -> String {
        format!("mongodb://{}/?directConnection=true", self.host())
    }

    /// SIGKILL, and waits until the process is gone.
    pub fn kill(&mut self) -> Result<(), String> {
        let ended = self.process.kill().and_then(|()| self.process.wait());
        ended.map(drop).map_err(|error| error.to_string())
    }

    /// Starts it once more, on what it has.
    pub fn start_again(&mut self) -> Result<(), String> {
        self.kill()?;
        self.process = run(&self.mongod, &self.folder, self.port)?;
        Ok(())
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> Result<(), String> {
        kill_process(Pid::from_child(&self.process), signal).map_err(|error| error.to_string())
    }
}

fn run(mongod: &Path, folder: &Path, port: u16) -> Result<Child, String> {
    let mut command = Command::new(mongod);
    command
        .args(["--replSet", NAME, "--bind_ip", "127.0.0.1", "--quiet", "--port", &port.to_string()])
        .args(["--wiredTigerCacheSizeGB", "1", "--oplogSize", "512"])
        .args(["--setParameter", "diagnosticDataCollectionEnabled=false"])
        .arg("--logappend")
        .arg("--logpath")
        .arg(folder.with_extension("log"))
        .arg("--dbpath")
        .arg(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().map_err(|error| {
        format!("{} cannot be run: {error}; `cargo xtask tools` installs it", mongod.display())
    })
}
