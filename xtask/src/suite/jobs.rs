//! Commands that run in parallel, each with its output in one piece.

use std::fs::File;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How much of the output of a failed job is repeated at the end.
const LAST_LINES: usize = 80;

/// Something to run.
pub struct Job {
    /// What it is called.
    pub name: String,
    /// How it is run.
    pub command: Command,
}

/// How something went.
pub struct Outcome {
    /// What it is called.
    pub name: String,
    /// How long it took.
    pub took: Duration,
    /// Whether it passed, or why not.
    pub result: Result<(), String>,
    /// Where its output is, if it has a file of its own.
    pub log: Option<PathBuf>,
}

impl Outcome {
    /// The last lines that something that failed has printed, among them why.
    pub fn last_words(&self) -> Option<String> {
        let why = self.result.as_ref().err()?;
        let said = self.log.as_ref().and_then(|log| std::fs::read(log).ok()).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        // A test program lists what has passed, too.
        let lines: Vec<&str> = said.lines().filter(|line| !line.ends_with(" ... ok")).collect();
        let last = lines[lines.len().saturating_sub(LAST_LINES)..].join("\n");
        Some(format!("\n== {} failed: {why}\n{last}", self.name))
    }
}

/// Runs all jobs, `at_once` of them at a time, those at the head of the list first.
pub fn run(jobs: Vec<Job>, at_once: usize) -> Vec<Outcome> {
    let queue = Mutex::new(jobs.into_iter());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    let worker = || std::iter::from_fn(next).map(one).collect::<Vec<Outcome>>();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..at_once).map(|_| scope.spawn(worker)).collect();
        let ended =
            workers.into_iter().map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)));
        ended.flatten().collect()
    })
}

fn one(job: Job) -> Outcome {
    let log = log_of(&job.name);
    eprintln!("== {} begins; its output goes to {} first", job.name, log.display());
    let start = Instant::now();
    let result = into_log(job.command, &log);
    let took = start.elapsed();
    let said = std::fs::read(&log).unwrap_or_default();
    let why = result.as_ref().err().map(|why| format!("{why}\n")).unwrap_or_default();
    // In one call, so that nothing comes between the lines.
    eprint!("\n== {}\n{}{why}== {} took {took:.1?}\n", job.name, String::from_utf8_lossy(&said), job.name);
    Outcome { name: job.name, took, result, log: Some(log) }
}

fn log_of(name: &str) -> PathBuf {
    let plain = |letter: char| if letter.is_alphanumeric() { letter } else { '-' };
    repo::target_dir().join("suite").join(format!("{}.log", name.chars().map(plain).collect::<String>()))
}

/// Runs a command with its output in a file.
///
/// The end of a pipe is only seen when the last process has closed it, and a test that fails may leave some behind.
fn into_log(mut command: Command, log: &Path) -> Result<(), String> {
    let cannot = |error: std::io::Error| format!("{}: {error}", log.display());
    log.parent().map_or(Ok(()), std::fs::create_dir_all).map_err(cannot)?;
    let file = File::create(log).map_err(cannot)?;
    command.stdin(Stdio::null()).stdout(file.try_clone().map_err(cannot)?).stderr(file);
    repo::run(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(name: &str, script: &str) -> Job {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Job { name: name.to_owned(), command }
    }

    #[test]
    fn each_job_has_its_outcome_and_its_output() {
        let jobs = vec![
            shell("jobs test/well", "echo out; echo err >&2"),
            shell("jobs test/ill", "echo 'test it ... ok'; echo why; exit 3"),
            shell("jobs test/leaves a process behind", "sleep 600 & echo $!"),
        ];
        let mut outcomes = run(jobs, 2);
        outcomes.sort_by(|one, other| one.name.cmp(&other.name));
        let [ill, leaves, well] = outcomes.try_into().ok().unwrap();
        let last_words = ill.last_words().unwrap();
        assert!(last_words.contains("exit status: 3") && last_words.ends_with("\nwhy"), "{last_words}");
        assert_eq!(well.last_words(), None);
        assert_eq!((well.result, leaves.result), (Ok(()), Ok(())));
        assert_eq!(std::fs::read_to_string(log_of("jobs test/well")).unwrap(), "out\nerr\n");
        let left = std::fs::read_to_string(log_of("jobs test/leaves a process behind")).unwrap();
        Command::new("kill").arg(left.trim()).status().unwrap();
    }

    #[test]
    fn jobs_run_beside_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"].map(|name| folder.path().join(name).display().to_string());
        // A pipe with a name is opened by both sides or by none.
        Command::new("mkfifo").args([&a, &b]).status().unwrap();
        let jobs = vec![
            shell("jobs test/one", &format!("echo > {a}; read word < {b}")),
            shell("jobs test/other", &format!("read word < {a}; echo > {b}")),
        ];
        assert!(run(jobs, 2).iter().all(|outcome| outcome.result.is_ok()));
    }
}
