//! A thousand WebSockets with a subscription each, of which fifty do not read: the others get everything that those
//! do not hold, the hub's memory stays bounded, and what they held is free the moment their lines are cut.
//!
//! A binary of its own, so that it runs alone: it raises a limit of its process, and a thousand threads that all have
//! something to do would leave too little to a test beside it that says how soon something must have happened.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[allow(dead_code, reason = "the other binary uses the rest")]
#[path = "it/common/mod.rs"]
mod common;

use common::{Hub, PATIENCE};
use prombus_fixtures::http::Api;
use prombus_fixtures::ws::{Heard, MOMENT, Socket};
use rustix::process::{Resource, getrlimit, setrlimit};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::Instant;

/// Connections in all, and those that do not read.
const CONNECTIONS: usize = 1_000;
const STALLED: usize = 50;
/// Topics, and groups on each.
const TOPICS: usize = 2;
const GROUPS: usize = 10;
/// Large events of a topic and their bytes. The sockets of those who do not read take a few MB each, so that all of
/// them together are full long before a topic is at its end.
const LARGE: u64 = 1_000;
const LARGE_BYTES: usize = 32_000;
/// Small events that follow.
const SMALL: u64 = 1_000;
/// Large events that go into one request.
const LARGE_AT_ONCE: u64 = 100;
/// Nobody is to be stopped by how many leases it may hold, or by the window of its group.
const NO_LIMIT: u64 = 1_000_000;
/// The stack of a reader's thread: there are many, and each parses a frame at a time.
const STACK_BYTES: usize = 512 << 10;

/// What the hub may take: itself with the read-ahead of its groups, a buffer for each connection, and for one that
/// does not read a page of events, the frames made of it, and what waits to be written. A hub that kept all that they
/// are sent and do not read would take 400 MiB more than the 200 that are usual.
const HUB_BYTES: u64 = 160 << 20;
const CONNECTION_BYTES: u64 = 160 << 10;
const STALLED_BYTES: u64 = 2 << 20;
const MEMORY: u64 = HUB_BYTES + CONNECTIONS as u64 * CONNECTION_BYTES + STALLED as u64 * STALLED_BYTES;

/// An event that a reader has got: its group, and the number of the event.
type Got = (usize, u64);

/// Which of the groups of all topics a connection is a member of.
fn group_of(connection: usize) -> usize {
    connection % (TOPICS * GROUPS)
}

fn topic_name(group: usize) -> String {
    format!("t{}", group % TOPICS)
}

fn group_name(group: usize) -> String {
    format!("g{}", group / TOPICS)
}

/// Both this process and the hub, which inherits it, need many sockets.
fn allow_many_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
}

fn publish(api: &Api, topic: &str, range: std::ops::Range<u64>, bytes: usize) {
    let pad = "x".repeat(bytes);
    let events: Vec<Value> = range.map(|n| json!({"payload": {"n": n, "pad": pad}})).collect();
    api.events(topic, &json!(events).to_string()).is(201);
}

fn subscribe(socket: &mut Socket, group: usize, mine: &Value) {
    let mut opts = json!({"from": "earliest", "ackTimeoutMs": 600_000, "ackWindow": NO_LIMIT});
    opts.as_object_mut().unwrap().extend(mine.as_object().unwrap().clone());
    socket.subscribe(&topic_name(group), &group_name(group), opts);
}

/// Connections that subscribe, and never read again.
fn stall(api: &Api) -> Vec<Socket> {
    let stalled = (0..STALLED).map(|number| {
        let mut socket = Socket::open(api);
        subscribe(&mut socket, group_of(number), &json!({"batchSize": 1_000, "maxInFlight": NO_LIMIT}));
        socket
    });
    stalled.collect()
}

/// How many events of each group are not settled, and how many of these somebody holds.
fn left(api: &Api) -> Vec<(u64, u64)> {
    let all = 0..TOPICS * GROUPS;
    all.map(|group| {
        let path = format!("/v1/topics/{}/groups/{}", topic_name(group), group_name(group));
        let partition = &api.get(&path).is(200)["partitions"][0];
        (partition["lag"].as_u64().unwrap(), partition["in_flight"].as_u64().unwrap())
    })
    .collect()
}

/// Waits until those who do not read get nothing more, though there is more.
fn wait_until_full(api: &Api) {
    let start = Instant::now();
    let mut before = left(api);
    loop {
        // Only that nothing happens for a moment tells that a socket takes no more.
        std::thread::sleep(MOMENT);
        let now = left(api);
        if now == before && now.iter().all(|(_, held)| *held > 0) {
            assert!(now.iter().all(|(_, held)| *held < LARGE), "the sockets are not full: {now:?}");
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{now:?}");
        before = now;
    }
}

/// Members that get and ack what there is, until their lines are cut.
struct Readers {
    threads: Vec<JoinHandle<()>>,
    lines: Vec<TcpStream>,
    got: Receiver<Got>,
    seen: Vec<HashSet<u64>>,
}

impl Readers {
    fn start(api: &Api) -> Self {
        let (sender, got) = mpsc::channel();
        let (mut threads, mut lines) = (Vec::new(), Vec::new());
        for number in STALLED..CONNECTIONS {
            let (group, sender) = (group_of(number), sender.clone());
            let mut socket = Socket::open(api);
            lines.push(socket.stream().try_clone().unwrap());
            subscribe(&mut socket, group, &json!({"batch": true, "batchSize": 10, "maxInFlight": 20}));
            let builder = std::thread::Builder::new().stack_size(STACK_BYTES);
            threads.push(builder.spawn(move || read(socket, group, &sender)).unwrap());
        }
        Self { threads, lines, got, seen: vec![HashSet::new(); TOPICS * GROUPS] }
    }

    /// Takes note until every group has settled all that nobody holds; `done` says what else must be so.
    fn until(&mut self, api: &Api, done: impl Fn(&[(u64, u64)]) -> bool) {
        let mut last = Instant::now();
        loop {
            while let Ok((group, number)) = self.got.recv_timeout(MOMENT) {
                assert!(self.seen[group].insert(number), "{number} came to a reader of {group} twice");
                last = Instant::now();
            }
            let left = left(api);
            let complete = |(seen, (lag, held)): (&HashSet<u64>, &(u64, u64))| {
                lag == held && seen.len() as u64 + held == LARGE + SMALL
            };
            if self.seen.iter().zip(&left).all(complete) && done(&left) {
                return;
            }
            let counts: Vec<usize> = self.seen.iter().map(HashSet::len).collect();
            assert!(last.elapsed() < PATIENCE, "nothing comes any more: got {counts:?}, left {left:?}");
        }
    }

    /// Cuts their lines, and sees that all went well.
    fn end(self) {
        for line in &self.lines {
            line.shutdown(Shutdown::Both).unwrap();
        }
        for thread in self.threads {
            thread.join().unwrap();
        }
    }
}

fn read(mut socket: Socket, group: usize, got: &Sender<Got>) {
    loop {
        // A reader may wait long, while others get what there is.
        match socket.hear(10 * PATIENCE) {
            Some(Heard::Text(text)) => {
                let frame: Value = serde_json::from_str(&text).unwrap();
                assert_eq!(frame["op"], "EVENTS", "{text}");
                let deliveries = frame["deliveries"].as_array().unwrap();
                let leases: Vec<&Value> = deliveries.iter().map(|one| &one["ctx"]["lease"]).collect();
                let (topic, name) = (&frame["topic"], &frame["group"]);
                socket.send(json!({"op": "ACK", "topic": topic, "group": name, "leases": leases}));
                for one in deliveries {
                    got.send((group, one["event"]["payload"]["n"].as_u64().unwrap())).unwrap();
                }
            }
            Some(Heard::Lost(_)) => return,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn those_who_do_not_read_cost_the_others_nothing() {
    allow_many_files();
    let hub = Hub::with(&["--data", "data"]);
    let api = hub.api();
    let stalled = stall(&api);
    for topic in 0..TOPICS {
        for first in (0..LARGE).step_by(LARGE_AT_ONCE as usize) {
            publish(&api, &topic_name(topic), first..first + LARGE_AT_ONCE, LARGE_BYTES);
        }
    }
    wait_until_full(&api);
    let mut readers = Readers::start(&api);
    assert_eq!(api.metric("ws_connections"), Some(CONNECTIONS as f64));
    for topic in 0..TOPICS {
        publish(&api, &topic_name(topic), LARGE..LARGE + SMALL, 10);
    }
    readers.until(&api, |_| true);
    let taken = hub.usage().memory().unwrap();
    assert!(taken < MEMORY, "the hub takes {} MiB", taken >> 20);

    drop(stalled);
    readers.until(&api, |left| left.iter().all(|(lag, _)| *lag == 0));
    readers.end();
    assert_eq!(hub.stop().code(), Some(0));
}
