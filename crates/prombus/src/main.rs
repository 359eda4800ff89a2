//! The prombus binary: the hub, and the commands that talk to one.
//!
//! stdout carries data and nothing else; all messages go to stderr. The exit code is 0 for success, 1 for failure, and 2
//! for incorrect usage.

mod bench;
mod cli;
mod commands;
mod config;
mod failure;
mod hub;
mod lines;
mod output;
mod progress;
mod schema_folder;
mod serve;
mod snapshots;
mod store;
mod time;
mod visible;

use clap::Parser;
use cli::{Cli, Command};
use failure::Failure;
use std::process::ExitCode;

/// Most of what the hub allocates in one thread is freed in another, which the system's allocator is slow at.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match Cli::try_parse().map(run) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(failure)) => failure.report(),
        Err(error) => failure::misused(&error),
    }
}

fn run(Cli { hub, command }: Cli) -> Result<(), Failure> {
    match command {
        Command::Serve(args) => serve::run(&args),
        Command::Dev(args) => serve::dev::run(&args),
        Command::Pub(args) => commands::publish::run(&hub, args),
        Command::Sub(args) => commands::sub::run(&hub, args),
        Command::Tail(args) => commands::tail::run(&hub, args),
        Command::Topics(args) => commands::topics::run(&hub, args),
        Command::Groups(args) => commands::groups::run(&hub, args),
        Command::Get(args) => commands::get::run(&hub, args),
        Command::At(args) => commands::at::run(&hub, args),
        Command::List(args) => commands::list::run(&hub, args),
        Command::Collections(args) => commands::collections::run(&hub, args),
        Command::Projections(args) => commands::projections::run(&hub, args),
        Command::Commit(args) => commands::commit::run(&hub, &args),
        Command::Snapshots(args) => snapshots::run(&hub, &args),
        Command::Schema(args) => commands::schema::run(&hub, args),
        Command::Dlq(args) => commands::dlq::run(&hub, args),
        Command::Replay(args) => commands::replay::run(&hub, args),
        Command::Export(args) => commands::export::run(&hub, args),
        Command::Import(args) => commands::import::run(&hub, &args),
        Command::Backup(args) => commands::backup::run(&hub, &args),
        Command::Check(args) => commands::check::run(&args),
        Command::Move(args) => commands::moving::run(&args),
        Command::Bench(args) => bench::run(&hub, &args),
        Command::Health(args) => commands::health::run(&hub, &args),
        Command::Completions(args) => commands::completions::run(&args),
    }
}
