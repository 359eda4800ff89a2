//! Each program runs in a process and a folder of its own, as it would for whoever pasted it.

use crate::{PROGRAMS, Program};
use prombus_client::{Client, NewEvent, ReadQuery};
use prombus_testkit::Harness;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio, Termination};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

/// How long anything may take before a test is given up.
const PATIENCE: Duration = Duration::from_secs(60);

/// The variable that tells a program where to listen, which the documents have at `127.0.0.1:7070`.
const ADDRESS: &str = "PROMBUS_DOCS_ADDRESS";

/// The variable that tells a program where its hub is, which the documents have at `http://127.0.0.1:7070`.
const HUB: &str = "PROMBUS_DOCS_HUB";

/// Where the program of this process listens.
pub fn address() -> String {
    std::env::var(ADDRESS).unwrap_or_default()
}

/// Where the program of this process finds a hub.
pub fn hub() -> String {
    std::env::var(HUB).unwrap_or_default()
}

/// Runs a program where this process was started for it. Otherwise some test below starts one.
pub fn in_a_process_of_its_own<T: Termination>(main: fn() -> T) {
    if std::env::var_os(ADDRESS).is_some() {
        assert!(main().report() == ExitCode::SUCCESS, "it fails");
    }
}

/// A program that is running. It is killed when it is dropped.
struct Running {
    child: Child,
    lines: Receiver<String>,
}

impl Running {
    fn start(program: &Program, folder: &Path, address: &str) -> Self {
        Self::start_with(program, folder, &[(ADDRESS, address)])
    }

    fn start_with(program: &Program, folder: &Path, env: &[(&str, &str)]) -> Self {
        // Each program is in this binary, as a test that does nothing unless it is told where to listen.
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([&format!("{}::program", program.name), "--exact", "--nocapture"]);
        command.current_dir(folder).envs(env.iter().copied()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Self { child, lines }
    }

    /// What comes after `text` on the next line that has it.
    #[track_caller]
    fn wait_for(&self, text: &str) -> String {
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => match line.split_once(text) {
                    Some((_, rest)) => return rest.to_owned(),
                    None => continue,
                },
                Err(error) => panic!("no line with {text:?}: {error}"),
            }
        }
    }

    /// Waits until it has ended.
    #[track_caller]
    fn end(mut self) -> ExitStatus {
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(_) => continue,
                Err(mpsc::RecvTimeoutError::Disconnected) => return self.child.wait().unwrap(),
                Err(mpsc::RecvTimeoutError::Timeout) => panic!("it does not end"),
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_run_to_their_end() {
    let ending: Vec<&Program> = PROGRAMS.iter().filter(|program| !program.serves).collect();
    assert!(!ending.is_empty());
    for program in ending {
        let (folder, hub) = (tempfile::tempdir().unwrap(), Harness::start_bare().await.unwrap());
        let url = hub.url();
        let env = [(ADDRESS, "127.0.0.1:0"), (HUB, url.as_str())];
        let running = Running::start_with(program, folder.path(), &env);
        for line in program.prints {
            assert_eq!(running.wait_for(line), "", "{}", program.place);
        }
        let status = running.end();
        assert!(status.success(), "{}: {status}", program.place);
        hub.stop().await;
    }
}

/// It says where it listens, keeps what it is given through a crash, and ends by Ctrl-C and by SIGTERM.
#[tokio::test]
async fn programs_that_serve_keep_what_they_are_given() {
    let serving: Vec<&Program> = PROGRAMS.iter().filter(|program| program.serves).collect();
    assert!(!serving.is_empty());
    for program in serving {
        let folder = tempfile::tempdir().unwrap();
        let first = Running::start(program, folder.path(), "127.0.0.1:0");
        let address = first.wait_for("listening on ");
        let client = || Client::new(&format!("http://{address}"), None).unwrap();
        client().publish("orders", &NewEvent::of(&17).unwrap()).await.unwrap();
        drop(first);

        for signal in [Signal::INT, Signal::TERM] {
            let again = Running::start(program, folder.path(), &address);
            assert_eq!(again.wait_for("listening on "), address, "{}", program.place);
            let page = client().read("orders", &ReadQuery::default(), 10).await.unwrap();
            assert_eq!(page.events.iter().map(|event| event.payload.get()).collect::<Vec<_>>(), ["17"]);
            kill_process(Pid::from_child(&again.child), signal).unwrap();
            assert!(again.end().success(), "{}: {signal:?}", program.place);
        }
    }
}
