//! No answer leaves before its flush: seen from outside, in the system calls of a real hub.

use crate::common::{Hub, binary};
use crate::durability_support::Http;
use crate::durability_support::trace::{Marked, Trace};
use crate::examples_support::program;
use prombus_fixtures::ANY_PORT;
use rustix::process::{Pid, Signal, kill_process};
use std::process::Command;
use std::thread;

/// The calls that write, flush or answer.
const CALLS: &str = "trace=write,writev,pwrite64,pwritev,pwritev2,sendto,sendmsg,sendmmsg,fsync,fdatasync,\
                     sync_file_range,msync,io_uring_enter";
/// How much of what is written is in the trace.
const SHOWN_BYTES: &str = "65536";

/// The file that the trace is in.
const TRACE: &str = "trace";

/// A hub under strace.
struct TracedHub {
    strace: Hub,
    /// The hub itself, until it has ended.
    traced: Option<Pid>,
}

impl TracedHub {
    fn start() -> Self {
        program("strace");
        let folder = tempfile::tempdir().unwrap();
        let file = "[topics.sync]\npartitions = 4\n[topics.interval]\ndurability = \"interval\"\n";
        std::fs::write(folder.path().join("prombus.toml"), file).unwrap();
        let hub = binary(folder.path());
        let mut command = Command::new("strace");
        command.args(["-f", "-y", "-s", SHOWN_BYTES, "-e", CALLS, "-o", TRACE, "--"]).arg(hub.get_program());
        command.args(["serve", "--data", "data"]).current_dir(folder.path());
        hub.get_envs().for_each(|(name, _)| {
            command.env_remove(name);
        });
        command.envs([ANY_PORT]);
        let strace = Hub::running(command, folder);
        let traced = Some(child_of(strace.pid()));
        Self { strace, traced }
    }

    /// Ends the hub, and says what it did.
    fn stop(mut self) -> String {
        kill_process(self.traced.take().unwrap(), Signal::TERM).unwrap();
        // strace ends when the hub has, with the same code.
        assert_eq!(self.strace.wait().code(), Some(0));
        String::from_utf8_lossy(&std::fs::read(self.strace.folder().join(TRACE)).unwrap()).into_owned()
    }
}

impl Drop for TracedHub {
    fn drop(&mut self) {
        if let Some(hub) = self.traced {
            // It may have ended by itself; without strace, it would go on.
            let _ = kill_process(hub, Signal::KILL);
        }
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
    let hub = TracedHub::start();
    let url = &hub.strace.url;
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
