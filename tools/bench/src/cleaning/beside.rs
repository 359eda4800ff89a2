//! Publishing while another topic is cleaned in the background.

use super::super::context::{self, Context};
use super::super::load::{self, Ids, Maker, Shape, Topic};
use super::super::stats::Unit;
use super::super::table::{Ledger, Row, Target};
use super::fill;
use prombus_core::TopicPatch;
use prombus_engine::{Hub, HubOptions, Store};
use prombus_store_disk::DiskStore;
use std::time::{Duration, Instant};

/// How many updates of how many keys there are to clean.
const EVENTS: u64 = 5_000_000;
const KEYS: u64 = 100_000;
/// How many commits are published at least, and of how many events each.
const COMMITS: u64 = 5_000;
const BATCH: u64 = 100;
/// Background passes follow each other at once.
const EVERY: Duration = Duration::from_millis(1);
/// What is left of the rate.
const RATE: f64 = 0.8;
/// How much longer the slowest take.
const P99: f64 = 1.5;

const ALONE: [&str; 2] =
    ["engine, batch 100, nothing is cleaned", "engine, batch 100, nothing is cleaned, p99"];
const BESIDE: [&str; 2] =
    ["engine, batch 100, beside a cleaning pass", "engine, batch 100, beside a cleaning pass, p99"];

/// How fast commits were.
struct Pace {
    /// Events in a second.
    rate: f64,
    /// In milliseconds.
    p99: f64,
}

/// Measures the rows.
pub fn record(context: &Context, ledger: &mut Ledger) -> Result<(), String> {
    let dir = context.fresh_dir("beside")?;
    let least = context.scaled(COMMITS);
    // As in a hub, whoever cleans has another thread than whoever publishes.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let [alone, beside] = runtime.map_err(|error| error.to_string())?.block_on(async {
        let store = load::open_store(&dir, context.part_bytes())?;
        let old = Topic::create(&store, "old").await?;
        fill(&store, &old, (context.scaled(EVENTS), context.scaled(KEYS))).await?;
        let new = Topic::create(&store, "new").await?;
        context::settle();
        let hub = Hub::assemble(Store::new(store.clone()), HubOptions::default());
        let alone = publish(&store, &new, |sent| sent < least).await?;
        let compacted = TopicPatch { compaction: Some(true), ..TopicPatch::default() };
        hub.put_topic(&old.name, compacted).await.map_err(|error| error.to_string())?;
        let cleaning = hub.cleaning();
        let has_passed = || cleaning.durations().counts().iter().sum::<u64>() > 0;
        cleaning.start(EVERY);
        let beside = publish(&store, &new, |sent| sent < least || !has_passed()).await?;
        hub.close().await;
        Ok::<_, String>([alone, beside])
    })?;
    let ms = Unit::Milliseconds;
    ledger.record(Row::events(ALONE[0]), alone.rate);
    ledger.record(Row::of(ALONE[1], ms), alone.p99);
    ledger.record(Row::events(BESIDE[0]).versus(ALONE[0]).target(Target::Ratio(RATE)), beside.rate);
    ledger.record(Row::of(BESIDE[1], ms).versus(ALONE[1]).target(Target::RatioAtMost(P99)), beside.p99);
    Ok(())
}

/// Publishes one commit after the other, as long as there is to be another after so many.
async fn publish(store: &DiskStore, topic: &Topic, goes_on: impl Fn(u64) -> bool) -> Result<Pace, String> {
    let maker = Maker::new(Shape { ids: Ids::Hub, keys: true })?;
    let mut took = Vec::new();
    while goes_on(took.len() as u64) {
        let commit = maker.commit(topic, BATCH);
        let start = Instant::now();
        load::send(store, commit).await?;
        took.push(start.elapsed().as_secs_f64());
    }
    let rate = (took.len() as u64 * BATCH) as f64 / took.iter().sum::<f64>();
    took.sort_by(f64::total_cmp);
    let p99 = took.get(took.len() * 99 / 100).ok_or("nothing was published")? * 1e3;
    Ok(Pace { rate, p99 })
}
