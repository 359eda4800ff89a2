//! `cargo xtask test`: everything that must pass before a change is accepted.
//!
//! A failing step does not keep the next ones from running, so that one run reports everything.
//!
//! Everything is compiled once, as one build of the whole workspace, by clippy: it is the compiler with more lints, and were it
//! run by itself, it would go through everything once more. The jobs that follow wait as much as they compute, so they run in
//! parallel.

mod artifacts;
mod jobs;

use crate::mongo;
use crate::tidy;
use artifacts::{Artifacts, TestBinary};
use jobs::{Job, Outcome};
use repo::ReplicaSet;
use std::process::Command;
use std::thread::available_parallelism;
use std::time::Instant;

/// How often the suite kills a hub.
const CHAOS_ROUNDS: &str = "20";

const FORMAT: &[&str] = &["fmt", "--all", "--check"];
const BUILD: &[&str] = &["build", "--workspace", "--all-targets", "--message-format", "json"];
const DOC_TESTS: &[&str] = &["test", "--workspace", "--doc", "--no-fail-fast"];

/// What takes longest, and therefore begins first.
const LONGEST: &[&str] = &[
    "tests: prombus tests/it/main.rs",
    "chaos",
    "tests: prombus-store-disk tests/it/main.rs",
    "tests: prombus-store-mongo tests/it/main.rs",
    "tests: prombus-engine tests/it/main.rs",
];

/// How many jobs more than there are cores run at a time: chaos waits for most of its time.
const MORE_JOBS: usize = 1;

/// How many tests of a program run at a time for each core: most wait more than they compute.
const TESTS_PER_CORE: usize = 2;

/// Runs all steps and says which failed.
pub fn run() -> Result<(), String> {
    let start = Instant::now();
    let mut outcomes = Vec::new();
    let artifacts = std::thread::scope(|scope| {
        // Mostly waits for the network, and only the tests need it.
        let tools = scope.spawn(|| jobs::run(tools(), 1));
        outcomes.push(timed("format", || repo::run(repo::cargo(FORMAT))));
        outcomes.push(timed("tidy", tidy::run));
        let (mut artifacts, mut findings) = (None, Vec::new());
        outcomes.push(timed("build", || {
            let (messages, built) = repo::stdout(linted(repo::cargo(BUILD)))?;
            findings = artifacts::findings(&messages)?;
            built?;
            artifacts = Some(Artifacts::read(&messages)?);
            Ok(())
        }));
        outcomes.push(timed("clippy", || {
            findings.iter().for_each(|finding| eprintln!("{}", finding.rendered));
            if findings.is_empty() { Ok(()) } else { Err(format!("{} findings", findings.len())) }
        }));
        outcomes.extend(tools.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        artifacts
    });
    // It ends with this function, whatever comes of the tests.
    let mut set = None;
    if let Some(built) = &artifacts {
        outcomes.push(timed("mongodb", || {
            set = Some(ReplicaSet::start(Command::new(&built.mongo_set))?);
            Ok(())
        }));
    }
    // Those that need it fail without it.
    let url = set.as_ref().map(|set| set.url.as_str());
    outcomes.extend(jobs::run(checks(artifacts, url), cores() + MORE_JOBS));
    summary(start, &outcomes)
}

fn cores() -> usize {
    available_parallelism().map_or(1, usize::from)
}

fn timed(name: &str, step: impl FnOnce() -> Result<(), String>) -> Outcome {
    eprintln!("\n== {name}");
    let start = Instant::now();
    let result = step();
    if let Err(why) = &result {
        eprintln!("{why}");
    }
    eprintln!("== {name} took {:.1?}", start.elapsed());
    Outcome { name: name.to_owned(), took: start.elapsed(), result, log: None }
}

fn tools() -> Vec<Job> {
    // The name it was started by is no help: cargo puts another file there while this one runs.
    let mut command = Command::new("/proc/self/exe");
    command.arg("tools").current_dir(repo::root());
    vec![Job { name: "tools".into(), command }]
}

/// A command that finds clippy as the compiler of the workspace. Tests that run cargo need it too, or they build everything anew.
fn linted(mut command: Command) -> Command {
    command.env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver");
    command
}

/// What a build is put through.
fn checks(built: Option<Artifacts>, mongodb: Option<&str>) -> Vec<Job> {
    let Some(built) = built else { return Vec::new() };
    let mut jobs =
        vec![Job { name: "tests: docs".into(), command: linted(repo::cargo(DOC_TESTS)) }, chaos(&built)];
    jobs.extend(built.tests.iter().map(|binary| tests(binary, mongodb)));
    jobs.sort_by_key(|job| LONGEST.iter().position(|name| *name == job.name).unwrap_or(LONGEST.len()));
    jobs
}

/// The build that the tests have, too: its own checks are on, and it costs no other one.
fn chaos(built: &Artifacts) -> Job {
    let mut command = Command::new(&built.chaos);
    command.args(["--rounds", CHAOS_ROUNDS, "--bin"]).arg(&built.hub).current_dir(repo::root());
    Job { name: "chaos".into(), command }
}

/// A program with tests, started as cargo does it.
fn tests(binary: &TestBinary, mongodb: Option<&str>) -> Job {
    let mut command = Command::new(&binary.program);
    command.current_dir(&binary.folder).env("CARGO_MANIFEST_DIR", &binary.folder);
    command.env("RUST_TEST_THREADS", (cores() * TESTS_PER_CORE).to_string());
    if let Some(url) = mongodb {
        command.env(mongo::VARIABLE, url);
    }
    Job { name: format!("tests: {}", binary.name), command: linted(command) }
}

fn summary(start: Instant, outcomes: &[Outcome]) -> Result<(), String> {
    // At the end once more, because whoever sees only a part of the output sees the end of it.
    outcomes.iter().filter_map(Outcome::last_words).for_each(|words| eprintln!("{words}"));
    eprintln!("\n== summary, after {:.0?}", start.elapsed());
    for Outcome { name, took, result, .. } in outcomes {
        let verdict = if result.is_ok() { "passed" } else { "FAILED" };
        eprintln!("{took:>8.1?}  {verdict}  {name}");
    }
    let failed: Vec<&str> =
        outcomes.iter().filter(|one| one.result.is_err()).map(|one| one.name.as_str()).collect();
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", "))) }
}
