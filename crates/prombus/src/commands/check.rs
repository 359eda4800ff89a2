//! `prombus check`: verifies a data folder, and repairs nothing.

use crate::failure::Failure;
use crate::output::{self, Record};
use crate::progress;
use clap::Args;
use prombus_store_disk::{Problem, Progress, Report};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  prombus check --data ./data
  prombus check --data /backup/data > problems.ndjson";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CheckArgs {
    /// Data folder to verify; no hub may have it open
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
}

pub fn run(args: &CheckArgs) -> Result<(), Failure> {
    let progress = progress::bar(0, "bytes");
    let report = prombus_store_disk::check(&args.data, &mut |Progress { done_bytes, total_bytes }| {
        progress.set_length(total_bytes);
        progress.set_position(done_bytes);
    });
    progress.finish_and_clear();
    let dir = args.data.display();
    let Report { files, bytes, events, problems } =
        report.map_err(|error| Failure::Failed(format!("cannot check {dir}: {error}")))?;
    let records = problems.iter().map(record).collect::<Result<Vec<_>, _>>()?;
    if !records.is_empty() {
        output::write_records(&["file", "at", "problem"], &records)?;
    }
    let seen = format!("{files} files, {bytes} bytes, {events} events");
    match problems.len() {
        0 => {
            eprintln!("{dir} is sound: {seen}");
            Ok(())
        }
        1 => Err(Failure::Failed(format!("{dir} has a problem: {seen}"))),
        count => Err(Failure::Failed(format!("{dir} has {count} problems: {seen}"))),
    }
}

fn record(problem: &Problem) -> Result<Record, Failure> {
    let (file, at) = (problem.file.display().to_string(), problem.at);
    let json = serde_json::json!({"file": file, "at": at, "problem": problem.what});
    Record::of(&json, vec![file, at.to_string(), problem.what.clone()])
}
