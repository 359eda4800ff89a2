//! Repository chores: `cargo xtask test`, `tools`, `tidy`, `mongo`, `chaos`, `bench` and `cluster`.

mod mongo;
mod suite;
mod tidy;
mod tools;
mod trials;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Chores of this repository
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run everything that must pass: format, tidy, clippy, tests, chaos
    Test,
    /// Install what the tests need besides cargo
    Tools,
    /// Check the rules of the house that no compiler knows
    Tidy,
    /// Run a command beside a replica set of MongoDB, whose URL it finds in PROMBUS_TEST_MONGODB
    Mongo(mongo::Beside),
    #[command(flatten)]
    Trial(trials::Trial),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Test => suite::run(),
        Command::Tools => tools::install(),
        Command::Tidy => tidy::run(),
        Command::Mongo(beside) => mongo::run(&beside),
        Command::Trial(trial) => trials::run(trial),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}
