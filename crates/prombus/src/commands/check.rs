//! `prombus check`: verifies a data folder, and repairs nothing.

use crate::failure::Failure;
use crate::output::{self, Record};
use crate::progress;
use crate::say;
use clap::Args;
use prombus_store_disk::{Problem, Progress, Report};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  prombus check --data ./data
  prombus check --data /backup/data > problems.ndjson";

/// What to do about a damaged journal. For other files, each problem has its own advice.
const DAMAGED: &str = ". The journal is damaged: leave everything in place and restore a backup";

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
    let Report { files, bytes, events, problems, journal_is_damaged } =
        report.map_err(|error| Failure::Failed(format!("cannot check the folder: {error}")))?;
    let records = problems.iter().map(record).collect::<Result<Vec<_>, _>>()?;
    if !records.is_empty() {
        output::write_records(&["file", "at", "problem"], &records)?;
    }
    let seen = [(files, "file"), (bytes, "byte"), (events, "event")]
        .map(|(number, thing)| output::counted(number, thing))
        .join(", ");
    if problems.is_empty() {
        say!("{dir} is sound: {seen}");
        return Ok(());
    }
    let problems = output::counted(problems.len() as u64, "problem");
    let advice = if journal_is_damaged { DAMAGED } else { "" };
    Err(Failure::Failed(format!("{dir} has {problems}: {seen}{advice}")))
}

fn record(problem: &Problem) -> Result<Record, Failure> {
    let (file, at) = (problem.file.display().to_string(), problem.at);
    let json = serde_json::json!({"file": file, "at": at, "problem": problem.what});
    Record::of(&json, vec![file, at.to_string(), problem.what.clone()])
}
