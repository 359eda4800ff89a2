//! `cargo xtask chaos`, `cargo xtask bench` and `cargo xtask cluster`, which are separate programs.
//!
//! They are built on the hub's own crates and, to put load on a hub, in release mode. More frequent chores should not wait
//! for that, so they are compiled only on demand.

use clap::{Args, Subcommand};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;

/// A program, and what it is to be told.
#[derive(Debug, Subcommand)]
pub enum Trial {
    /// Kill a hub under load again and again, and check that nothing answered is lost
    #[command(disable_help_flag = true)]
    Chaos(Words),
    /// Measure the engine and the hub
    #[command(disable_help_flag = true)]
    Bench(Words),
    /// Start three hubs on a MongoDB replica set behind a load balancer, until Ctrl-C
    #[command(disable_help_flag = true)]
    Cluster(Words),
}

/// Arguments that are not looked at here.
#[derive(Debug, Args)]
pub struct Words {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// Becomes the program, so that its exit code and the signals it gets are nobody else's. Returns only to say why not.
pub fn run(trial: Trial) -> Result<(), String> {
    let (package, Words { words }) = match trial {
        Trial::Chaos(words) => ("prombus-chaos", words),
        Trial::Bench(words) => ("prombus-bench", words),
        Trial::Cluster(words) => ("prombus-cluster", words),
    };
    let mut command = repo::cargo(&["run", "--quiet", "--release", "--package", package, "--"]);
    let error = command.args(words).exec();
    Err(format!("cargo cannot be run: {error}"))
}
