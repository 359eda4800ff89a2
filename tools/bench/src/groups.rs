//! Consumer groups: pull and ack in the library and over HTTP, many members in one group, and the latency to a waiting
//! consumer.

use super::context::Context;
use super::hub::Hub as HubProcess;
use super::load::{self, Ids, Maker, Shape, Topic};
use super::stats::Unit;
use super::table::{Group as Rows, Ledger, Row, Target};
use prombus_core::{Append, EventLog, Json, NewEvent, SystemClock, TopicName};
use prombus_engine::groups::{Group, GroupCall, GroupName, Pull, SettleCall};
use prombus_engine::{From, Hub, HubOptions, Limits, Store};
use prombus_fixtures::http::Answer;
use prombus_store_disk::DiskStore;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How many events are consumed.
const EVENTS: u64 = 1_000_000;
/// Events in a commit while the topic is filled.
const FILL_BATCH: u64 = 1_000;
/// How many groups are on one topic at once.
const GROUPS: u64 = 1_000;
/// How many members share the work where pages are large.
const MEMBERS: usize = 4;
/// How many events are published one by one to a waiting consumer.
const SINGLES: u64 = 3_000;
/// How long a pull waits.
const WAIT: Duration = Duration::from_millis(200);
/// How long the one that is measured waits: longer than any publish takes.
const LATENCY_WAIT: Duration = Duration::from_secs(20);

/// The group of rows.
pub struct Groups;

/// A scenario of consuming.
struct Scenario {
    row: &'static str,
    keys: bool,
    members: usize,
    page: usize,
    target: Option<Target>,
}

const SCENARIOS: [Scenario; 3] = [
    Scenario {
        row: "library, pull + ack of 1,000, no keys",
        keys: false,
        members: MEMBERS,
        page: 1_000,
        target: Some(Target::AtLeast(1e6)),
    },
    Scenario {
        row: "library, pull + ack of 1,000, order by key, 10,000 keys",
        keys: true,
        members: MEMBERS,
        page: 1_000,
        target: None,
    },
    Scenario {
        row: "library, 64 members, pull + ack of 100, order by key, 10,000 keys",
        keys: true,
        members: 64,
        page: 100,
        target: Some(Target::AtLeast(2e5)),
    },
];

impl Rows for Groups {
    fn name(&self) -> &'static str {
        "groups"
    }

    fn needs_hub(&self) -> bool {
        true
    }

    fn round(&mut self, context: &Context, ledger: &mut Ledger) -> Result<(), String> {
        for scenario in &SCENARIOS {
            let row = Row::events(scenario.row).target(scenario.target);
            ledger.record(row, consume(context, scenario)?);
        }
        over_http(context, ledger)?;
        memory(context, ledger)?;
        let Latencies { flush, answered, delivered } = latencies(context)?;
        let row = |name: &str| Row::of(name, Unit::Microseconds);
        ledger.record(row("library, one publish at a time: its flush, mean"), flush);
        ledger.record(row("library, one publish at a time: to its answer, p50"), answered);
        ledger.record(row("library, one publish at a time: to a waiting consumer, p50"), delivered);
        let row = row("library, one publish at a time: to a waiting consumer beyond the flush, p50");
        ledger.record(row.target(Target::AtMost(100.0)), delivered - flush);
        Ok(())
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, String> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| error.to_string())
}

fn hub_on(store: Arc<DiskStore>) -> Hub {
    let (limits, topics, clock) = (Limits::default(), HashMap::new(), Arc::new(SystemClock));
    Hub::assemble(Store::new(store), HubOptions { limits, auto_create: true, topics, clock })
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

async fn group_of(hub: &Hub, topic: &TopicName) -> Result<Arc<Group>, String> {
    let name = GroupName::parse("bench").map_err(text)?;
    let call = GroupCall { from: From::Earliest, ..GroupCall::default() };
    Ok(hub.group(topic, &name, &call).await.map_err(text)?.0)
}

/// Events in a second that the members of one group pull and ack.
fn consume(context: &Context, scenario: &Scenario) -> Result<f64, String> {
    let dir = context.fresh_dir("groups")?;
    let events = context.scaled(EVENTS);
    runtime()?.block_on(async {
        let store = load::open_store(&dir, context.part_bytes())?;
        let topic = Topic::create(&store, "bench").await?;
        let maker = Maker::new(Shape { ids: Ids::Hub, keys: scenario.keys })?;
        for _ in 0..events / FILL_BATCH {
            load::send(&store, maker.commit(&topic, FILL_BATCH)).await?;
        }
        let hub = hub_on(store);
        let group = group_of(&hub, &topic.name).await?;
        let seen = Arc::new(AtomicU64::new(0));
        let start = Instant::now();
        let members: Vec<_> = (0..scenario.members)
            .map(|number| tokio::spawn(member(group.clone(), number, scenario.page, (seen.clone(), events))))
            .collect();
        let mut last_ack = start;
        for member in members {
            last_ack = last_ack.max(member.await.map_err(text)??);
        }
        // Those who wait for more when there is none are not measured.
        let seconds = (last_ack - start).as_secs_f64();
        let lag: u64 =
            group.status().await.map_err(text)?.partitions.iter().map(|partition| partition.lag).sum();
        if lag != 0 || seen.load(Ordering::Relaxed) != events {
            return Err(format!("{lag} of {events} events are left"));
        }
        hub.close().await;
        Ok(events as f64 / seconds)
    })
}

/// Pulls and acks until all events are seen, and says when the last ack was answered.
async fn member(
    group: Arc<Group>,
    number: usize,
    page: usize,
    (seen, events): (Arc<AtomicU64>, u64),
) -> Result<Instant, String> {
    let pull = Pull { member: Some(format!("m{number}")), max: page, wait: WAIT, max_in_flight: page };
    let mut last_ack = Instant::now();
    while seen.load(Ordering::Relaxed) < events {
        let deliveries = group.pull(&pull).await.map_err(text)?;
        let leases: Vec<_> = deliveries.iter().map(|delivery| delivery.lease).collect();
        let results = group.settle(SettleCall::acks(leases)).await.map_err(text)?;
        if !results.iter().all(|result| result.is_done()) {
            return Err("a lease was refused".to_owned());
        }
        seen.fetch_add(results.len() as u64, Ordering::Relaxed);
        if !results.is_empty() {
            last_ack = Instant::now();
        }
    }
    Ok(last_ack)
}

fn over_http(context: &Context, ledger: &mut Ledger) -> Result<(), String> {
    let hub = HubProcess::start(context, &context.fresh_dir("groups-http")?)?;
    let events = context.scaled(EVENTS).to_string();
    hub.load(&["--prefix", "plain", "--events", &events, "--batch", "1000", "--connections", "4"])?;
    let args = ["--prefix", "plain", "--mode", "consume", "--events", &events, "--batch", "1000"];
    let load = hub.load(&[&args[..], &["--connections", "4"]].concat())?;
    let row = Row::events("HTTP, pull + ack of 1,000, 4 members");
    ledger.record(row.target(Target::AtLeast(3e5)), load.events_per_s);
    hub.stop()
}

/// How much the hub grows with a backlog that it cannot deliver, and with many groups that are far behind.
fn memory(context: &Context, ledger: &mut Ledger) -> Result<(), String> {
    let dir = context.fresh_dir("groups-memory")?;
    let hub = HubProcess::start(context, &dir)?;
    let events = context.scaled(EVENTS).to_string();
    hub.load(&["--prefix", "hot", "--events", &events, "--batch", "1000", "--keys", "1"])?;
    hub.stop()?;
    let hub = HubProcess::start(context, &dir)?;
    let pull = |group: &str, max: usize| {
        let pull = format!(r#"{{"from":"earliest","ackTimeoutMs":600000,"max":{max}}}"#);
        let path = format!("/v1/topics/hot-0000/groups/{group}/pull");
        let Answer { status, body, .. } = hub.post(&path, &pull)?;
        let deliveries = body.windows(8).filter(|w| w == b"\"lease\":").count();
        if status == 200 { Ok(deliveries) } else { Err(format!("a pull was answered with {status}")) }
    };
    let before = hub.mebibytes()?;
    // The first event is never acked, and all others are of the same key.
    let delivered = pull("stuck", 1)? + pull("stuck", 1_000)?;
    let stuck = hub.mebibytes()? - before;
    let groups = context.scaled(GROUPS);
    for group in 0..groups {
        pull(&format!("g{group}"), 1)?;
    }
    let many = hub.mebibytes()? - before - stuck;
    if delivered != 1 {
        return Err(format!("{delivered} events of one key were delivered at once"));
    }
    let row = Row::of("hub grows by: a stuck event, 1 M events of its key behind it", Unit::Mebibytes);
    ledger.record(row, stuck);
    let row = Row::of("hub grows by: 1,000 groups with 1 M events behind each", Unit::Mebibytes);
    ledger.record(row, many);
    hub.stop()
}

/// Times in microseconds.
struct Latencies {
    /// What a flush takes, on average.
    flush: f64,
    /// From a publish to its answer, the one in the middle.
    answered: f64,
    /// From a publish to a consumer that waits for it, the one in the middle.
    delivered: f64,
}

fn latencies(context: &Context) -> Result<Latencies, String> {
    let dir = context.fresh_dir("groups-latency")?;
    let singles = context.scaled(SINGLES);
    runtime()?.block_on(async {
        let store = load::open_store(&dir, context.part_bytes())?;
        let topic = Topic::create(&store, "bench").await?;
        let flushes = store.status().flushes;
        let hub = hub_on(store);
        let group = group_of(&hub, &topic.name).await?;
        let (told, mut tells) = tokio::sync::mpsc::unbounded_channel();
        let (acked, mut acks) = tokio::sync::mpsc::unbounded_channel();
        let consumer = tokio::spawn(async move {
            let pull = Pull { wait: LATENCY_WAIT, ..Pull::default() };
            for _ in 0..singles {
                let deliveries = group.pull(&pull).await.map_err(text)?;
                // Whoever measures may have given up.
                let _ = told.send(Instant::now());
                let leases = deliveries.iter().map(|delivery| delivery.lease);
                group.settle(SettleCall::acks(leases)).await.map_err(text)?;
                let _ = acked.send(());
            }
            Ok::<(), String>(())
        });
        let payload = Json::parse(format!("\"{}\"", "x".repeat(load::EVENT_BYTES)).into()).map_err(text)?;
        let (mut answers, mut deliveries) = (Vec::new(), Vec::new());
        for _ in 0..singles {
            let event = Append::new(topic.name.clone(), NewEvent::new(payload.clone()));
            let start = Instant::now();
            hub.publish(vec![event]).await.map_err(text)?;
            answers.push(start.elapsed().as_secs_f64() * 1e6);
            let delivered = tells.recv().await.ok_or("the consumer has gone")?;
            deliveries.push(delivered.saturating_duration_since(start).as_secs_f64() * 1e6);
            // From here on the consumer waits again, long before the next event is flushed.
            acks.recv().await.ok_or("the consumer has gone")?;
        }
        consumer.await.map_err(text)??;
        hub.close().await;
        let median = |mut values: Vec<f64>| {
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        let flush = flushes.sum_us() as f64 / flushes.counts().iter().sum::<u64>() as f64;
        Ok(Latencies { flush, answered: median(answers), delivered: median(deliveries) })
    })
}
