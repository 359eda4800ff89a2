//! `cargo xtask test`: everything that must pass before a change is taken, in one order.
//!
//! A step that fails does not keep the next ones from running, so that one run tells everything.

use crate::{chaos, repo, tidy, tools};
use std::time::{Duration, Instant};

/// How often the suite kills a hub.
const CHAOS_ROUNDS: u32 = 20;

struct Step {
    name: &'static str,
    run: fn() -> Result<(), String>,
}

const STEPS: &[Step] = &[
    Step { name: "tools", run: tools::install },
    Step { name: "format", run: || repo::run(repo::cargo(&["fmt", "--all", "--check"])) },
    Step { name: "tidy", run: tidy::run },
    Step { name: "clippy", run: || repo::run(repo::cargo(CLIPPY)) },
    Step { name: "tests", run: || repo::run(repo::cargo(&["test", "--workspace", "--no-fail-fast"])) },
    Step {
        name: "chaos",
        run: || chaos::run(chaos::Args { rounds: CHAOS_ROUNDS, ..chaos::Args::default() }),
    },
];

const CLIPPY: &[&str] = &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];

/// Runs all steps and says which failed.
pub fn run() -> Result<(), String> {
    let start = Instant::now();
    let results: Vec<(&str, Duration, Result<(), String>)> = STEPS.iter().map(timed).collect();
    eprintln!("\n== summary, after {:.0?}", start.elapsed());
    for (name, took, result) in &results {
        let verdict = if result.is_ok() { "passed" } else { "FAILED" };
        eprintln!("{name:>8}  {verdict}  {took:>8.1?}");
    }
    let failed: Vec<&str> =
        results.iter().filter(|(.., result)| result.is_err()).map(|(name, ..)| *name).collect();
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", "))) }
}

fn timed(step: &Step) -> (&'static str, Duration, Result<(), String>) {
    eprintln!("\n== {}", step.name);
    let start = Instant::now();
    let result = (step.run)();
    if let Err(why) = &result {
        eprintln!("{why}");
    }
    eprintln!("== {} took {:.1?}", step.name, start.elapsed());
    (step.name, start.elapsed(), result)
}
