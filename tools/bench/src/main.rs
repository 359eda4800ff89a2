//! `cargo xtask bench`: how fast the engine and the hub are on this machine, compared with what its disk can do.
//!
//! Everything is measured in rounds, and a round measures each row once, so that whatever disturbs the machine affects all
//! rows alike. A ratio always compares two adjacent measurements. Every answer is checked; no figure is asserted.

mod backup;
mod cleaning;
mod context;
mod docs;
mod engine;
mod groups;
mod history;
mod http;
mod hub;
mod load;
mod open;
mod raw;
mod reads;
mod redis;
mod schemas;
mod state;
mod stats;
mod table;
mod topics;
mod ws;

use clap::Parser;
use context::Context;
use std::path::PathBuf;
use std::process::ExitCode;
use table::{Group, Ledger, Table};

/// Measure the engine and the hub
#[derive(Debug, Clone, Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench")]
struct Args {
    /// A tenth of the events, for a first look; parts of the journal are smaller, so that they still fill up
    #[arg(long)]
    quick: bool,
    /// Only these groups: engine, topics, reads, cleaning, history, backup, http, groups, redis, ws, state, schemas, open
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Folder for the data; it must be on a real disk [default: target/bench]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// How many rounds
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// A prombus binary to measure, instead of building one
    #[arg(long, value_name = "FILE")]
    bin: Option<PathBuf>,
    /// Also write the table to this file
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Also put the tables into docs/benchmarks.md; those of groups that are not measured stay as they are
    #[arg(long)]
    write_docs: bool,
}

fn main() -> ExitCode {
    match run(Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Measures, and prints the table to stdout.
fn run(args: Args) -> Result<(), String> {
    if cfg!(debug_assertions) {
        return Err("figures of an unoptimised build mean nothing: use cargo run --release".to_owned());
    }
    let mut groups = chosen_groups(&args.only)?;
    let needs_hub = groups.iter().any(|group| group.needs_hub());
    let context = Context::new(&args, needs_hub)?;
    let mut ledger = Ledger::default();
    for round in 1..=args.runs {
        for group in &mut groups {
            eprintln!("round {round} of {}: {}", args.runs, group.name());
            ledger.begin(group.name());
            group.round(&context, &mut ledger)?;
        }
    }
    let names: Vec<&str> = groups.iter().map(|group| group.name()).collect();
    drop(groups);
    context.clean_up()?;
    let table = Table { rows: &ledger, args: &args };
    let tables: Vec<(&str, String)> = names.into_iter().map(|name| (name, table.of_group(name))).collect();
    let text = tables.iter().map(|(name, table)| format!("### {name}\n\n{table}\n")).collect::<String>();
    print!("{text}");
    if let Some(file) = &args.markdown {
        std::fs::write(file, &text).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    if args.write_docs {
        docs::replace_tables(&tables)?;
    }
    Ok(())
}

/// The groups of rows, in the order in which a round measures them.
fn all_groups() -> Vec<Box<dyn Group>> {
    vec![
        Box::new(engine::Engine),
        Box::new(topics::Topics),
        Box::new(reads::Reads::default()),
        Box::new(cleaning::Cleaning),
        Box::new(history::History::default()),
        Box::new(backup::Backup::default()),
        Box::new(http::Http),
        Box::new(groups::Groups),
        Box::new(redis::Redis),
        Box::new(ws::Ws),
        Box::new(state::State),
        Box::new(schemas::Schemas),
        Box::new(open::Open::default()),
    ]
}

fn chosen_groups(only: &[String]) -> Result<Vec<Box<dyn Group>>, String> {
    let mut groups = all_groups();
    let names: Vec<&str> = groups.iter().map(|group| group.name()).collect();
    if let Some(unknown) = only.iter().find(|name| !names.contains(&name.as_str())) {
        return Err(format!("there is no group {unknown}; there are {}", names.join(", ")));
    }
    groups.retain(|group| only.is_empty() || only.iter().any(|name| name == group.name()));
    Ok(groups)
}
