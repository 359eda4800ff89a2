//! Runs the real binary, as a hub and as a command.

use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

/// How long anything may take before a test is given up.
pub const PATIENCE: Duration = Duration::from_secs(60);

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

/// A hub that is running. It is killed when it is dropped.
pub struct Hub {
    child: Child,
    log: Receiver<String>,
    pub url: String,
    pub ready: String,
    folder: tempfile::TempDir,
}

impl Hub {
    /// A hub in memory.
    pub fn start() -> Self {
        Self::with(&["--store", "memory"])
    }

    /// A hub with these arguments beside its address.
    pub fn with(args: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let command = binary(folder.path());
        Self::spawn(command, args, folder)
    }

    /// A hub with this configuration file in its folder.
    pub fn with_file(file: &str, args: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("prombus.toml"), file).unwrap();
        let command = binary(folder.path());
        Self::spawn(command, args, folder)
    }

    /// A hub in memory with the process example.
    pub fn dev(args: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = binary(folder.path());
        command.args(["dev", "--listen", "127.0.0.1:0"]).args(args);
        Self::started(command, folder)
    }

    fn spawn(mut command: Command, args: &[&str], folder: tempfile::TempDir) -> Self {
        command.args(["serve", "--listen", "127.0.0.1:0"]).args(args);
        Self::started(command, folder)
    }

    fn started(mut command: Command, folder: tempfile::TempDir) -> Self {
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (sender, log) = mpsc::channel();
        std::thread::spawn(move || {
            stderr.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let ready = wait_for(&log, "ready");
        let start = ready.find("http://").unwrap();
        let url = ready[start..].split([' ', '"']).next().unwrap().to_owned();
        Self { child, log, url, ready, folder }
    }

    /// Where the hub runs.
    pub fn folder(&self) -> &Path {
        self.folder.path()
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

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// The next line of the log that contains `text`.
    pub fn wait_for(&self, text: &str) -> String {
        wait_for(&self.log, text)
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// Ends the hub as an operator would.
    pub fn stop(mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait()
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait_for(log: &Receiver<String>, text: &str) -> String {
    let mut seen = Vec::new();
    loop {
        match log.recv_timeout(PATIENCE) {
            Ok(line) if line.contains(text) => return line,
            Ok(line) => seen.push(line),
            Err(error) => panic!("no line with {text:?} ({error}) after {seen:#?}"),
        }
    }
}
