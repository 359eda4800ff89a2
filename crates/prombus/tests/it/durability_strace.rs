//! No answer leaves before its flush: seen from outside, in the system calls of a real hub.

use crate::common::{PATIENCE, binary};
use crate::durability_support::Http;
use crate::durability_support::trace::{Marked, Trace};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;

/// The calls that write, flush or answer.
const CALLS: &str = "trace=write,writev,pwrite64,pwritev,pwritev2,sendto,sendmsg,sendmmsg,fsync,fdatasync,\
                     sync_file_range,msync,io_uring_enter";
/// How much of what is written is in the trace.
const SHOWN_BYTES: &str = "65536";

/// A hub under strace.
struct TracedHub {
    strace: Child,
    /// The hub itself, until it has ended.
    hub: Option<Pid>,
    url: String,
    trace: PathBuf,
}

impl TracedHub {
    fn start(folder: &Path) -> Self {
        let file = "[topics.sync]\npartitions = 4\n[topics.interval]\ndurability = \"interval\"\n";
        std::fs::write(folder.join("prombus.toml"), file).unwrap();
        let trace = folder.join("trace");
        let hub = binary(folder);
        let mut command = Command::new("strace");
        command
            .args(["-f", "-y", "-s", SHOWN_BYTES, "-e", CALLS, "-o"])
            .arg(&trace)
            .arg("--")
            .arg(hub.get_program());
        command.args(["serve", "--listen", "127.0.0.1:0", "--data", "data"]).current_dir(folder);
        hub.get_envs().for_each(|(name, _)| {
            command.env_remove(name);
        });
        let mut strace =
            command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap_or_else(|error| {
                panic!("strace cannot be run ({error}); this test needs it: apt-get install strace")
            });
        let url = wait_until_ready(&mut strace);
        let hub = Some(child_of(Pid::from_child(&strace)));
        Self { strace, hub, url, trace }
    }

    /// Ends the hub, and says what it did.
    fn stop(mut self) -> String {
        kill_process(self.hub.take().unwrap(), Signal::TERM).unwrap();
        // strace ends when the hub has, with the same code.
        assert_eq!(self.strace.wait().unwrap().code(), Some(0));
        String::from_utf8_lossy(&std::fs::read(&self.trace).unwrap()).into_owned()
    }
}

impl Drop for TracedHub {
    fn drop(&mut self) {
        if let Some(hub) = self.hub {
            // It may have ended by itself.
            let _ = kill_process(hub, Signal::KILL);
            let _ = self.strace.wait();
        }
    }
}

fn wait_until_ready(strace: &mut Child) -> String {
    let stderr = BufReader::new(strace.stderr.take().unwrap());
    let (sender, lines) = mpsc::channel();
    // Reads to the end, so that the hub never writes to a pipe that nobody reads.
    thread::spawn(move || stderr.lines().map_while(Result::ok).for_each(|line| drop(sender.send(line))));
    let mut seen = Vec::new();
    loop {
        let line =
            lines.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("not ready ({error}): {seen:#?}"));
        if let Some((_, after)) = line.split_once("ready").and_then(|(_, after)| after.split_once("http://"))
        {
            let end = after.find([' ', ',', '"']).unwrap_or(after.len());
            return format!("http://{}", &after[..end]);
        }
        seen.push(line);
    }
}

/// The only child of a process.
fn child_of(parent: Pid) -> Pid {
    let parent = parent.as_raw_nonzero();
    let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap();
    Pid::from_raw(children.trim().parse().unwrap()).unwrap()
}

/// Publishes events with ids and payloads that can be found in the trace.
fn publish(url: &str, topic: &str, name: &str) -> Vec<Marked> {
    let mut http = Http::connect(url);
    let mut published = Vec::new();
    for number in 0..10 {
        let id = uuid::Uuid::from_u128(fastrand::u128(..)).to_string();
        let marked = Marked { id, payload: format!("marked-{topic}-{name}-{number}-") };
        let Marked { id, payload } = &marked;
        let body = format!(r#"{{"id":"{id}","payload":"{payload}"}}"#);
        let (status, answer) = http.call("POST", &format!("/v1/topics/{topic}/events"), &body).unwrap();
        assert_eq!(status, 201, "{answer}");
        published.push(marked);
    }
    published
}

#[test]
fn no_answer_leaves_before_its_flush() {
    let folder = tempfile::tempdir().unwrap();
    let hub = TracedHub::start(folder.path());
    let url = &hub.url;
    let one_after_the_other = publish(url, "sync", "alone");
    let at_once: Vec<Marked> = thread::scope(|scope| {
        let names = ["a", "b", "c", "d"];
        let threads: Vec<_> = names.iter().map(|name| scope.spawn(|| publish(url, "sync", name))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let not_flushed = publish(url, "interval", "alone");

    let text = hub.stop();
    let trace = Trace::parse(&text);
    for marked in one_after_the_other.iter().chain(&at_once) {
        trace.assert_flushed_before_answer(marked).unwrap_or_else(|why| panic!("{why}\n{text}"));
    }
    // The other durability shows that the trace would tell: there, answers do not wait.
    let waited = |marked: &Marked| trace.assert_flushed_before_answer(marked).is_ok();
    assert!(!not_flushed.iter().all(waited), "an answer before its flush cannot be seen in the trace");
}
