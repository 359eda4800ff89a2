//! Publishing while another topic is cleaned in the background, and while the parts of which little is left are rewritten.

use super::super::context::{self, Context};
use super::super::load::{self, Ids, Maker, Shape, Topic};
use super::super::stats::Unit;
use super::super::table::{Ledger, Row, Target};
use super::fill;
use prombus_core::{EventLog, TopicPatch};
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

/// So much of what there is to clean is given back, in hundredths.
const GIVEN_BACK: u64 = 75;
/// Space that is not given back by then never will be.
const GIVEN_BACK_WITHIN: Duration = Duration::from_secs(120);

const ALONE: &str = "engine, batch 100, nothing is cleaned";
const BESIDE: [&str; 2] =
    ["engine, batch 100, beside a cleaning pass", "engine, batch 100, while parts are rewritten after it"];

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
    let (alone, beside) = runtime.map_err(|error| error.to_string())?.block_on(async {
        let store = load::open_store(&dir, context.part_bytes())?;
        let old = Topic::create(&store, "old").await?;
        let events = context.scaled(EVENTS);
        fill(&store, &old, (events, context.scaled(KEYS))).await?;
        let new = Topic::create(&store, "new").await?;
        context::settle();
        let hub = Hub::assemble(Store::new(store.clone()), HubOptions::default());
        let alone = publish(&store, &new, |sent| sent < least).await?;
        let compacted = TopicPatch { compaction: Some(true), ..TopicPatch::default() };
        hub.put_topic(&old.name, compacted).await.map_err(|error| error.to_string())?;
        let cleaning = hub.cleaning();
        let has_passed = || cleaning.durations().counts().iter().sum::<u64>() > 0;
        cleaning.start(EVERY);
        let pass = publish(&store, &new, |sent| sent < least || !has_passed()).await?;
        let (dead, start) = (events * load::EVENT_BYTES as u64 * GIVEN_BACK / 100, Instant::now());
        let is_given_back = || store.status().extra("reclaimed_bytes") >= dead;
        let goes_on = |sent| sent < least || !is_given_back() && start.elapsed() < GIVEN_BACK_WITHIN;
        let rewriting = publish(&store, &new, goes_on).await?;
        if !is_given_back() {
            return Err("parts of which little is kept are still there".to_owned());
        }
        hub.close().await;
        Ok::<_, String>((alone, [pass, rewriting]))
    })?;
    let p99 = |name: &str| format!("{name}, p99");
    ledger.record(Row::events(ALONE), alone.rate);
    ledger.record(Row::of(p99(ALONE), Unit::Milliseconds), alone.p99);
    for (name, pace) in BESIDE.iter().zip(beside) {
        ledger.record(Row::events(*name).versus(ALONE).target(Target::Ratio(RATE)), pace.rate);
        let row = Row::of(p99(name), Unit::Milliseconds).versus(p99(ALONE));
        ledger.record(row.target(Target::RatioAtMost(P99)), pace.p99);
    }
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
