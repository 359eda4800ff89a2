//! A replica set of MongoDB for as long as something needs it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// What the program answers to a command that it has carried out.
const DONE: &str = "ok";

/// A set of three members. It ends with this, and also where this program is killed: the one that has started it hears
/// then that nobody needs it.
pub struct ReplicaSet {
    /// Its URL, without a database.
    pub url: String,
    process: Child,
    to: Option<ChildStdin>,
    from: Option<BufReader<ChildStdout>>,
}

impl ReplicaSet {
    /// Starts a set by the program for it, and waits until it can be used.
    pub fn start(mut program: Command) -> Result<Self, String> {
        let cannot = |error: std::io::Error| format!("the replica set cannot be started: {error}");
        let mut process = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(cannot)?;
        let (to, from) = (process.stdin.take(), process.stdout.take().map(BufReader::new));
        // Dropped where there is no URL, which ends what was started.
        let mut set = Self { url: String::new(), process, to, from };
        set.url = set.line().map_err(cannot)?;
        if set.url.is_empty() {
            Err("the replica set has not started; why not is said above".into())
        } else {
            Ok(set)
        }
    }

    /// Has something done with a member: see the help of the program.
    pub fn tell(&mut self, verb: &str, member: usize) -> Result<(), String> {
        match self.ask(&format!("{verb} {member}"))?.as_str() {
            DONE => Ok(()),
            other => Err(format!("{verb} {member}: {other}")),
        }
    }

    /// What each member says that it is, in the words of MongoDB; `DOWN` where it says nothing.
    pub fn states(&mut self) -> Result<Vec<String>, String> {
        Ok(self.ask("states")?.split(' ').map(str::to_owned).collect())
    }

    fn ask(&mut self, command: &str) -> Result<String, String> {
        let cannot = |error: std::io::Error| format!("the program of the replica set is gone: {error}");
        if let Some(to) = &mut self.to {
            to.write_all(format!("{command}\n").as_bytes()).map_err(cannot)?;
        }
        self.line().map_err(cannot)
    }

    fn line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        if let Some(from) = &mut self.from {
            from.read_line(&mut line)?;
        }
        Ok(line.trim().to_owned())
    }
}

impl Drop for ReplicaSet {
    fn drop(&mut self) {
        drop(self.to.take());
        // One that cannot be waited for has ended.
        let _ = self.process.wait();
    }
}
