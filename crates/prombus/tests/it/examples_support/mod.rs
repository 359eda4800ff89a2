//! Runs the examples as a user does who followed their README, and says what is missing where that cannot be.

pub mod metrics;
pub mod page;

use crate::common::PATIENCE;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;

/// A file or folder of the repository.
pub fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// What `cargo xtask tools` installed; a test that needs it fails without it.
#[track_caller]
pub fn tool(path: &str) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let tool = in_repository("").join(target).join("tools").join(path);
    assert!(tool.exists(), "{} is missing: run `cargo xtask tools`", tool.display());
    tool.canonicalize().unwrap()
}

/// The full path of a program that `cargo xtask tools` installs for the whole machine.
#[track_caller]
pub fn program(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    match std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file()) {
        Some(program) => program,
        None => panic!("{name} is missing: run `cargo xtask tools`, or install it by hand"),
    }
}

/// A folder with the examples and what they need, as it is after the README's installations.
pub fn project() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (script, needs, tool) in [
        ("examples/python/live.py", "examples/python/.venv", tool("python")),
        ("examples/node/live.mjs", "examples/node/node_modules", tool("node/node_modules")),
    ] {
        let place = folder.path().join(script);
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::fs::copy(in_repository(script), place).unwrap();
        std::os::unix::fs::symlink(tool, folder.path().join(needs)).unwrap();
    }
    folder
}

/// A shell script that runs in `folder` and talks to the hub at `url`.
pub fn shell(script: &str, folder: &Path, url: &str) -> Command {
    let mut command = Command::new("bash");
    command.args(["-euo", "pipefail", "-c", script]).current_dir(folder);
    command.env("PROMBUS_URL", url).env_remove("PROMBUS_TOKEN");
    command
}

/// A program that is running, and whose lines are read as they come. It is killed when it is dropped.
pub struct Running {
    pub child: Child,
    lines: Receiver<String>,
    stderr: Option<JoinHandle<String>>,
}

impl Running {
    pub fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let mut stderr = child.stderr.take().unwrap();
        let stderr = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            text
        });
        Self { child, lines, stderr: Some(stderr) }
    }

    /// The next line that it writes to stdout.
    #[track_caller]
    pub fn line(&mut self) -> String {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(error) => panic!("no line ({error}); it said {:?}", self.stop()),
        }
    }

    /// Waits until it ends well, having written nothing more to stdout; what it wrote to stderr.
    #[track_caller]
    pub fn end(mut self) -> String {
        match self.lines.recv_timeout(PATIENCE) {
            Err(mpsc::RecvTimeoutError::Disconnected) => (),
            more => panic!("{more:?} instead of the end; it said {:?}", self.stop()),
        }
        let status = self.child.wait().unwrap();
        let said = self.stop();
        assert!(status.success(), "{status}: {said}");
        said
    }

    /// Kills it; what it wrote to stderr.
    pub fn kill(mut self) -> String {
        self.stop()
    }

    fn stop(&mut self) -> String {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.stderr.take().map(|stderr| stderr.join().unwrap()).unwrap_or_default()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}
