//! Consumers that settle what they pull by commits.

use super::connection::Connection;
use super::{Context, Hub, Ledger, Row, Unit, parsed};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// How many commits there are.
const COMMITS: u64 = 20_000;
/// Events that one takes.
const PAGE: u64 = 10;
/// How many consumers there are.
const CONSUMERS: usize = 16;
/// How many documents they write.
const DOCUMENTS: u64 = 10_000;
/// How long a pull waits: short, because those who wait for what others have already are measured too.
const WAIT_MS: u64 = 10;
const OUT: &str = "commits.out";

#[derive(Deserialize)]
struct Pulled {
    deliveries: Vec<Delivery>,
}

#[derive(Deserialize)]
struct Delivery {
    event: Event,
    ctx: Lease,
}

#[derive(Deserialize)]
struct Event {
    offset: u64,
}

#[derive(Deserialize)]
struct Lease {
    lease: String,
}

/// Fills a topic, and lets consumers take it.
pub fn measure(context: &Context, hub: &Hub, ledger: &mut Ledger) -> Result<(), String> {
    let events = context.scaled(COMMITS) * PAGE;
    let count = events.to_string();
    hub.load(&["--prefix", "commits", "--events", &count, "--batch", "1000", "--connections", "4"])?;
    let (taken, commits) = (AtomicU64::new(0), AtomicU64::new(0));
    let start = Instant::now();
    std::thread::scope(|scope| {
        let consume = |number| consumer(hub.address(), number, events, (&taken, &commits));
        let consumers: Vec<_> = (0..CONSUMERS).map(|number| scope.spawn(move || consume(number))).collect();
        let ended = |consumer: std::thread::ScopedJoinHandle<'_, Result<(), String>>| {
            consumer.join().unwrap_or_else(|_| Err("a consumer panicked".to_owned()))
        };
        consumers.into_iter().map(ended).collect::<Result<Vec<()>, String>>()
    })?;
    let seconds = start.elapsed().as_secs_f64();
    hub.check_topic(OUT, events)?;
    hub.check_group("commits-0000", "bench")?;
    let row = Row::of(
        "HTTP, pull + commit of 10 acks, 10 writes and 10 publishes, 16 consumers",
        Unit::PerSecond("commits"),
    );
    ledger.record(row, commits.load(Ordering::Relaxed) as f64 / seconds);
    Ok(())
}

/// Pulls and commits until all events are taken.
fn consumer(
    address: &str,
    number: usize,
    events: u64,
    (taken, commits): (&AtomicU64, &AtomicU64),
) -> Result<(), String> {
    let mut connection = Connection::open(address)?;
    let pull = json!({"from": "earliest", "ordering": "none", "member": format!("m{number}"), "max": PAGE,
        "waitMs": WAIT_MS})
    .to_string();
    while taken.load(Ordering::Relaxed) < events {
        let path = "/v1/topics/commits-0000/groups/bench/pull";
        let Pulled { deliveries } = parsed("a pull", connection.call("POST", path, &pull)?)?;
        if deliveries.is_empty() {
            continue;
        }
        let leases: Vec<&str> = deliveries.iter().map(|delivery| delivery.ctx.lease.as_str()).collect();
        let write = |delivery: &Delivery| {
            let key = format!("d{}", delivery.event.offset % DOCUMENTS);
            json!({"collection": "commits", "key": key, "inc": {"seen": 1}})
        };
        let publish = |delivery: &Delivery| json!({"topic": OUT, "payload": {"of": delivery.event.offset}});
        let body = json!({"ack": leases,
            "writes": deliveries.iter().map(write).collect::<Vec<_>>(),
            "publish": deliveries.iter().map(publish).collect::<Vec<_>>()});
        parsed::<Value>("a commit", connection.call("POST", "/v1/commit", &body.to_string())?)?;
        taken.fetch_add(deliveries.len() as u64, Ordering::Relaxed);
        commits.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}
