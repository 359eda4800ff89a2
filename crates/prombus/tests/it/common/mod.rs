//! Runs the real binary, as a hub and as a command.

pub use prombus_fixtures::PATIENCE;
use prombus_fixtures::http::Api;
use prombus_fixtures::{ANY_PORT, HubError};
use rustix::process::{Pid, Signal, kill_process};
use std::io::Write;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;

/// The binary in `folder`, knowing nothing of the tester's environment.
pub fn binary(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_prombus"));
    command.current_dir(folder);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("PROMBUS_")) {
        command.env_remove(name);
    }
    command
}

/// What a command said and how it ended.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

impl Said {
    /// What it wrote to stdout, if it went well.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.stdout
    }

    /// What it wrote to stderr, if it ended with `code`.
    #[track_caller]
    pub fn fails_with(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{self:?}");
        self.stderr
    }
}

/// Runs a command to its end with `input` on stdin.
pub fn run(mut command: Command, input: &[u8]) -> Said {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = Pid::from_child(&child);
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // A command that fails does not read its input to the end.
    std::thread::spawn(move || drop(stdin.write_all(&input)));
    let (sender, ended) = mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    match ended.recv_timeout(PATIENCE) {
        Ok(output) => output.unwrap().into(),
        Err(error) => {
            let _ = kill_process(pid, Signal::KILL);
            panic!("{command:?} does not end: {error}");
        }
    }
}

/// A hub that is running, in its own folder. It is killed when it is dropped.
pub struct Hub {
    process: prombus_fixtures::Hub,
    folder: tempfile::TempDir,
}

impl Hub {
    /// A hub in memory.
    pub fn start() -> Self {
        Self::with(&["--store", "memory"])
    }

    /// A hub with these arguments beside its address.
    pub fn with(args: &[&str]) -> Self {
        Self::within(tempfile::tempdir().unwrap(), args)
    }

    /// A hub with this configuration file in its folder.
    pub fn with_file(file: &str, args: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("prombus.toml"), file).unwrap();
        Self::within(folder, args)
    }

    /// A hub in a folder where everything lies ready.
    pub fn within(folder: tempfile::TempDir, args: &[&str]) -> Self {
        let mut command = binary(folder.path());
        command.arg("serve").args(args).envs([ANY_PORT]);
        Self::running(command, folder)
    }

    /// A hub in memory with the process example.
    pub fn dev(args: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = binary(folder.path());
        command.args(["dev", "--listen", ANY_PORT.1]).args(args);
        Self::running(command, folder)
    }

    /// Whatever a command serves from its folder.
    pub fn running(command: Command, folder: tempfile::TempDir) -> Self {
        Self { process: well(prombus_fixtures::Hub::start(command)), folder }
    }

    /// Where the hub runs.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A client for its address.
    pub fn api(&self) -> Api {
        Api { address: self.address() }
    }

    /// A command that talks to this hub.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = binary(self.folder.path());
        command.env("PROMBUS_URL", &self.url).args(args);
        command
    }

    pub fn run(&self, args: &[&str]) -> Said {
        run(self.command(args), b"")
    }

    pub fn run_with(&self, args: &[&str], input: &str) -> Said {
        run(self.command(args), input.as_bytes())
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        well(self.process.signal(signal));
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        well(self.process.wait())
    }

    /// As a power cut would.
    pub fn kill(&mut self) {
        well(self.process.kill());
    }

    /// Ends the hub as an operator would.
    pub fn stop(mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait()
    }

    /// Starts it once more, in the same folder.
    pub fn start_again(&mut self) {
        well(self.process.start_again());
    }
}

impl Deref for Hub {
    type Target = prombus_fixtures::Hub;

    fn deref(&self) -> &Self::Target {
        &self.process
    }
}

impl DerefMut for Hub {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.process
    }
}

/// What has to go well.
#[track_caller]
fn well<T>(outcome: Result<T, HubError>) -> T {
    outcome.unwrap_or_else(|error| panic!("{error}"))
}
