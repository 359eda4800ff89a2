//! `prombus tail`: topics as they come, through restarts of the hub.

use crate::auth_support::tls::Identity;
use crate::auth_support::{Guarded, Setup};
use crate::client_support::Spot;
use crate::common::{Hub, PATIENCE, binary, run};
use crate::contract_support::Api;
use crate::groups_support::{publish, publish_keys};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};

/// A tail that runs.
struct Tail {
    child: Child,
    lines: Receiver<String>,
    said: Receiver<String>,
}

impl Tail {
    fn start(spot: &Spot, args: &[&str]) -> Self {
        let mut command = command(spot, args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        Self { child, lines: lines(stdout), said: lines(stderr) }
    }

    /// Topic and number of the next line.
    fn next(&self) -> (String, u64) {
        let line = self.lines.recv_timeout(PATIENCE).unwrap();
        let event: Value = serde_json::from_str(&line).unwrap();
        (event["topic"].as_str().unwrap().to_owned(), event["payload"]["n"].as_u64().unwrap())
    }

    fn wait_for_said(&self, text: &str) {
        while !self.said.recv_timeout(PATIENCE).unwrap().contains(text) {}
    }

    /// Ends it as Ctrl-C does; there is nothing more to say.
    fn stop(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        assert_eq!(self.lines.iter().count(), 0);
        assert_eq!(self.said.iter().filter(|said| said.contains("waiting")).count(), 0);
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines(from: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    let from = BufReader::new(from);
    std::thread::spawn(move || from.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    lines
}

fn command(spot: &Spot, args: &[&str]) -> Command {
    let mut command = binary(&std::env::temp_dir());
    command.env("PROMBUS_URL", spot.url()).arg("tail").args(args);
    command
}

fn api(spot: &Spot) -> Api {
    Api { address: spot.address.clone() }
}

#[test]
fn a_tail_goes_on_through_restarts_without_missing_or_repeating() {
    let mut spot = Spot::start();
    publish(&api(&spot), "a.x", 0..3);
    let tail = Tail::start(&spot, &["a.*,other", "--from", "earliest"]);
    for n in 0..3 {
        assert_eq!(tail.next(), ("a.x".into(), n));
    }
    for round in 1..4 {
        if round == 2 {
            spot.kill();
        } else {
            spot.stop();
        }
        tail.wait_for_said("retrying");
        spot.start_again();
        publish(&api(&spot), "a.x", 10 * round..10 * round + 2);
        publish(&api(&spot), &format!("a.new{round}"), 0..1);
        let mut got = vec![tail.next(), tail.next(), tail.next()];
        got.sort();
        let a = |n| ("a.x".to_owned(), n);
        assert_eq!(got, [(format!("a.new{round}"), 0), a(10 * round), a(10 * round + 1)]);
    }
    tail.stop();
}

#[test]
fn a_tail_says_once_what_is_not_there_yet() {
    for file in ["", "[topics]\nauto_create = false"] {
        let hub = Hub::with_file(file, &["--store", "memory"]);
        hub.run(&["topics", "create", "there.a"]).ok();
        let mut tail = hub.command(&["tail", "orders,there.a,there.*,gone.**"]);
        let mut child = tail.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let tail = Tail { child, lines: lines(stdout), said: lines(stderr) };
        let said = || tail.said.recv_timeout(PATIENCE).unwrap();
        assert_eq!(said(), "waiting for topic orders: it does not exist yet");
        assert_eq!(said(), "waiting for topics that match gone.**: there are none yet");
        hub.run(&["topics", "create", "orders"]).ok();
        hub.run(&["pub", "orders", r#"{"n":7}"#]).ok();
        assert_eq!(tail.next(), ("orders".into(), 7));
        tail.stop();
    }
}

#[test]
fn what_waiting_does_not_mend_ends_a_tail_and_a_sub() {
    let (plain, identity) = (Setup::default().start(), Identity::new());
    let args = ["--tls-cert", "hub.pem", "--tls-key", "hub.key"];
    let secret = Setup { args: &args, beside: &identity.files(), ..Setup::default() }.start();
    let at = |hub: &Guarded, scheme: &str| format!("{scheme}://{}", hub.api.address);
    for (url, told) in [
        (at(&plain, "https"), "use http://"),
        (at(&secret, "http"), "https://"),
        (at(&secret, "https"), "--ca-cert"),
    ] {
        for args in [&["tail", "t"][..], &["sub", "t", "--group", "g"]] {
            let mut command = plain.command(args);
            command.args(["--url", &url]);
            let said = run(command, b"").fails_with(1);
            assert!(said.contains(told) && !said.contains("retrying"), "{args:?} {url}: {said}");
        }
    }
}

#[test]
fn a_tail_goes_by_time_key_and_filter() {
    let spot = Spot::start();
    publish_keys(&api(&spot), "t", 0, &["a", "b", "a", "a"]);
    let args = ["t", "--from", "-10m", "--key", "a", "--filter", "event.payload.n > 1"];
    let tail = Tail::start(&spot, &args);
    assert_eq!([tail.next(), tail.next()], [("t".into(), 2), ("t".into(), 3)]);
    tail.stop();
    let said = run(command(&spot, &["t", "--from", "yesterday"]), b"").fails_with(2);
    assert!(said.contains("RFC 3339"), "{said}");
    let said = run(command(&spot, &["t*"]), b"").fails_with(1);
    assert!(said.contains("pattern"), "{said}");
}
