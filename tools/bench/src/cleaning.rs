//! Compaction of a topic whose keys were updated many times, and again after a few of them were; publishing meanwhile; and
//! retention that takes whole parts.

mod beside;
mod whole_parts;

use super::context::{self, Context};
use super::load::{self, Ids, Maker, Shape, Topic};
use super::stats::Unit;
use super::table::{Group, Ledger, Row, Target};
use prombus_core::{TopicName, TopicPatch};
use prombus_engine::{Hub, HubOptions, Store};
use prombus_store_disk::DiskStore;
use std::sync::Arc;
use std::time::Instant;

/// How many updates there are.
const EVENTS: u64 = 10_000_000;
/// Of so many keys.
const KEYS: u64 = 100_000;
/// One update in so many comes after the first pass.
const CHANGED: u64 = 100;
/// Events in a commit while the store is filled.
const FILL_BATCH: u64 = 1_000;
/// A second pass is so many times as fast.
const SECOND: f64 = 20.0;

const FIRST: &str = "engine, compaction of 10 M updates of 100,000 keys";

/// The group.
pub struct Cleaning;

impl Group for Cleaning {
    fn name(&self) -> &'static str {
        "cleaning"
    }

    fn needs_hub(&self) -> bool {
        false
    }

    fn round(&mut self, context: &Context, ledger: &mut Ledger) -> Result<(), String> {
        let events = context.scaled(EVENTS) as f64;
        let passes = compact(context)?;
        ledger.record(Row::events(FIRST).target(Target::AtLeast(1e6)), events / passes.first);
        ledger.record(Row::of(format!("{FIRST}, memory"), Unit::Mebibytes), passes.grown);
        // By the size of the topic, so that both say how long it takes to have it compacted.
        let row = Row::events("engine, compaction of the same after 1 % more");
        ledger.record(row.versus(FIRST).target(Target::Ratio(SECOND)), events / passes.second);
        beside::record(context, ledger)?;
        whole_parts::record(context, ledger)
    }
}

/// Two passes over a topic.
struct Passes {
    /// How many seconds the first one takes.
    first: f64,
    /// How much memory it takes, in MiB.
    grown: f64,
    /// How many seconds the one after a few updates more takes.
    second: f64,
}

/// Compacts a topic.
fn compact(context: &Context) -> Result<Passes, String> {
    let (events, keys) = (context.scaled(EVENTS), context.scaled(KEYS));
    let dir = context.fresh_dir("cleaning")?;
    load::runtime()?.block_on(async {
        let store = load::open_store(&dir, context.part_bytes())?;
        let topic = Topic::create(&store, "bench").await?;
        fill(&store, &topic, (events, keys)).await?;
        context::settle();
        let hub = Hub::assemble(Store::new(store.clone()), HubOptions::default());
        let compacted = TopicPatch { compaction: Some(true), ..TopicPatch::default() };
        hub.put_topic(&topic.name, compacted).await.map_err(|error| error.to_string())?;
        let ((first, gone), grown) = context::growth_of(pass(&hub, &topic.name)).await?;
        fill(&store, &topic, (events / CHANGED, keys)).await?;
        let (second, also_gone) = pass(&hub, &topic.name).await?;
        let left = events + events / CHANGED - gone - also_gone;
        hub.close().await;
        if left > keys {
            return Err(format!("{left} events of {keys} keys are left"));
        }
        Ok(Passes { first, grown, second })
    })
}

/// Publishes so many updates of so many keys.
async fn fill(store: &DiskStore, topic: &Topic, (events, keys): (u64, u64)) -> Result<(), String> {
    let maker = Maker::new(Shape { ids: Ids::Hub, keys: true })?;
    for _ in 0..events / FILL_BATCH {
        let mut commit = maker.commit(topic, FILL_BATCH);
        let made = Arc::get_mut(&mut commit).ok_or("a new commit is shared already")?;
        for append in &mut made.events {
            append.event.key = Some(load::key(fastrand::u64(..keys) as usize));
        }
        load::send(store, commit).await?;
    }
    Ok(())
}

/// Does a pass: how many seconds it took, and how many events went.
async fn pass(hub: &Hub, topic: &TopicName) -> Result<(f64, u64), String> {
    let start = Instant::now();
    let cleaned = hub.cleaning().clean(topic).await.map_err(|error| error.to_string())?;
    Ok((start.elapsed().as_secs_f64(), cleaned.events))
}
