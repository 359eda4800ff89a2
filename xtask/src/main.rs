//! Repository chores: `cargo xtask test`, `tools`, `tidy`, `chaos` and `bench`.

mod bench;
mod chaos;
mod repo;
mod suite;
mod tidy;
mod tools;

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
    /// Kill a hub under load again and again, and check that nothing answered is lost
    Chaos(chaos::Args),
    /// Measure the engine and the hub
    Bench(bench::Args),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Test => suite::run(),
        Command::Tools => tools::install(),
        Command::Tidy => tidy::run(),
        Command::Chaos(args) => chaos::run(args),
        Command::Bench(args) => bench::run(args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}
