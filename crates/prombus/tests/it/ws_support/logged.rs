//! A hub whose every word is kept, so that a test can tell in the end whether it panicked.

use crate::common::{PATIENCE, binary};
use crate::contract_support::Api;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;

/// A hub on a folder of its own.
pub struct LoggedHub {
    child: Child,
    log: Option<JoinHandle<Vec<String>>>,
    pub api: Api,
    _folder: tempfile::TempDir,
}

impl LoggedHub {
    pub fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = binary(folder.path());
        command.args(["serve", "--listen", "127.0.0.1:0", "--data", "data"]);
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (sender, ready) = mpsc::channel();
        let log = std::thread::spawn(move || {
            let mut lines = Vec::new();
            for line in stderr.lines().map_while(Result::ok) {
                if let Some((_, url)) = line.split_once("http://") {
                    // Only the first one is waited for.
                    let _ = sender.send(url.split([' ', '"', '/']).next().unwrap().to_owned());
                }
                lines.push(line);
            }
            lines
        });
        let address = ready.recv_timeout(PATIENCE).unwrap();
        Self { child, log: Some(log), api: Api { address }, _folder: folder }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The hub is well, ends as it should, and never panicked.
    #[track_caller]
    pub fn ends_well(mut self) {
        assert_eq!(self.api.get("/healthz").status, 200);
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        let lines = self.log.take().unwrap().join().unwrap();
        let bad: Vec<&String> = lines.iter().filter(|line| line.contains("panic")).collect();
        assert!(bad.is_empty(), "{bad:?}");
    }
}

impl Drop for LoggedHub {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
