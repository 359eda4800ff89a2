//! A replica set of MongoDB, as a program of its own.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};

/// A set of three members. It ends with this, and also where this program is killed: the one that has started it hears
/// then that nobody needs it.
pub struct ReplicaSet {
    /// Its URL, without a database.
    pub url: String,
    process: Child,
    open: Option<ChildStdin>,
}

impl ReplicaSet {
    /// Starts a set by the program for it, and waits until it can be used.
    pub fn start(mut program: Command) -> Result<Self, String> {
        let cannot = |error: std::io::Error| format!("the replica set cannot be started: {error}");
        let mut process = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(cannot)?;
        let (open, said) = (process.stdin.take(), process.stdout.take());
        let mut line = String::new();
        if let Some(said) = said {
            BufReader::new(said).read_line(&mut line).map_err(cannot)?;
        }
        let url = line.trim().to_owned();
        // Dropped where there is none, which ends what was started.
        let set = Self { url, process, open };
        if set.url.is_empty() {
            Err("the replica set has not started; why not is said above".into())
        } else {
            Ok(set)
        }
    }
}

impl Drop for ReplicaSet {
    fn drop(&mut self) {
        drop(self.open.take());
        // One that cannot be waited for has ended.
        let _ = self.process.wait();
    }
}
