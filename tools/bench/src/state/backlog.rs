//! Projections that start on a topic full of events.

use super::connection::Connection;
use super::shape::{HOSTS, array};
use super::{Context, Hub, Ledger, Row, Target, parsed};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// How many events there are.
const EVENTS: u64 = 1_000_000;
/// How many processes they are about.
const PROCESSES: u64 = 100_000;
/// Events in an array.
const BATCH: u64 = 1_000;
/// Processes are told of in an order that jumps by this, which no number of them can be divided by.
const STRIDE: u64 = 7_919;
/// How often a projection is asked how far it is; more often would be measured too.
const ASK_EVERY: Duration = Duration::from_millis(20);
/// A projection that has not caught up by then never will.
const CAUGHT_UP_WITHIN: Duration = Duration::from_secs(300);
const TOPIC: &str = "process.state";

#[derive(Debug, Deserialize)]
struct Status {
    state: String,
    lag: u64,
    errors: u64,
    partitions: Vec<Partition>,
}

#[derive(Debug, Deserialize)]
struct Partition {
    next: u64,
}

#[derive(Deserialize)]
struct Collection {
    count: u64,
}

#[derive(Deserialize)]
struct Page {
    items: Vec<HostStats>,
}

#[derive(Deserialize)]
struct HostStats {
    seen: u64,
}

fn changelog() -> Value {
    json!({"topic": TOPIC, "collection": "processes", "key": "event.payload.processId",
        "fields": ["processId", "name", "host", "pid", "sid", "cpu_pct", "mem_mb", "status", "last_seen_ts"],
        "indexes": [["host", "name"], ["status"]]})
}

fn transactional() -> Value {
    json!({"topic": TOPIC, "write": [
        {"collection": "proc_live", "key": "event.payload.processId", "set": "event.payload"},
        {"collection": "host_stats", "key": "event.payload.host", "inc": {"seen": "1"},
            "set": {"last_ts": "event.ts"}},
    ]})
}

/// Fills the topic, and lets one projection after the other catch up.
pub fn measure(context: &Context, hub: &Hub, ledger: &mut Ledger) -> Result<(), String> {
    let (events, processes) = (context.scaled(EVENTS), context.scaled(PROCESSES));
    let mut connection = Connection::open(hub.address())?;
    for first in (0..events).step_by(BATCH as usize) {
        let body = array((first..first + BATCH).map(|n| (n * STRIDE % processes, n / processes)));
        parsed::<Value>("an import", connection.call("POST", &format!("/v1/topics/{TOPIC}/events"), &body)?)?;
    }
    hub.check_topic(TOPIC, events)?;
    let rate = catch_up(&mut connection, ("processes", &changelog()), events)?;
    ledger.record(
        Row::events("changelog over a backlog, 9 fields, 2 indexes").target(Target::AtLeast(1.5e5)),
        rate,
    );
    let rate = catch_up(&mut connection, ("processes-txn", &transactional()), events)?;
    ledger.record(Row::events("transactional over a backlog, 2 writes").target(Target::AtLeast(8e4)), rate);
    for (name, should) in [("processes", processes), ("proc_live", processes), ("host_stats", HOSTS)] {
        let path = format!("/v1/collections/{name}");
        let Collection { count } = parsed(name, connection.call("GET", &path, "")?)?;
        if count != should {
            return Err(format!("{name} has {count} documents, and not {should}"));
        }
    }
    let path = "/v1/collections/host_stats/list?limit=1000";
    let Page { items } = parsed("host_stats", connection.call("GET", path, "")?)?;
    let seen: u64 = items.iter().map(|host| host.seen).sum();
    if seen == events { Ok(()) } else { Err(format!("{events} events were counted as {seen}")) }
}

/// Events in a second, from the definition until nothing is left.
fn catch_up(
    connection: &mut Connection,
    (name, definition): (&str, &Value),
    events: u64,
) -> Result<f64, String> {
    let path = format!("/v1/projections/{name}");
    let start = Instant::now();
    parsed::<Value>(name, connection.call("PUT", &path, &definition.to_string())?)?;
    loop {
        let status: Status = parsed(name, connection.call("GET", &path, "")?)?;
        if status.lag == 0 && status.partitions.iter().map(|partition| partition.next).sum::<u64>() == events
        {
            let seconds = start.elapsed().as_secs_f64();
            return if status.errors == 0 { Ok(events as f64 / seconds) } else { Err(format!("{status:?}")) };
        }
        if status.state == "stopped" || start.elapsed() > CAUGHT_UP_WITHIN {
            return Err(format!("projection {name} does not catch up: {status:?}"));
        }
        // A projection tells nobody when it has caught up.
        std::thread::sleep(ASK_EVERY);
    }
}
