//! A replica set of MongoDB for as long as something needs it.

use clap::Args;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};

/// Where programs find its URL.
pub const VARIABLE: &str = "PROMBUS_TEST_MONGODB";

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

/// A command.
#[derive(Debug, Args)]
pub struct Beside {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    words: Vec<OsString>,
}

/// Runs a command beside a replica set.
pub fn run(Beside { words }: &Beside) -> Result<(), String> {
    let set = ReplicaSet::start(repo::cargo(&["run", "--quiet", "--package", "mongo-set"]))?;
    let (program, words) = words.split_first().ok_or("there is no command")?;
    let mut command = Command::new(program);
    command.args(words).env(VARIABLE, &set.url);
    repo::run(command)
}
