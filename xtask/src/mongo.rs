//! A replica set of MongoDB for as long as something needs it.

use clap::Args;
use repo::ReplicaSet;
use std::ffi::OsString;
use std::process::Command;

/// Where programs find its URL.
pub const VARIABLE: &str = "PROMBUS_TEST_MONGODB";

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
