//! A large data folder: how long the hub takes to open it, how much memory an export of all of it takes, and what an idle
//! hub costs.

use super::context::{self, Context};
use super::hub::Hub;
use super::load::{self, Ids, Maker, Shape, Topic};
use super::stats::Unit;
use super::table::{Group, Ledger, Row, Target};
use prombus_core::EventLog;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How many events the folder holds.
const EVENTS: u64 = 10_000_000;
/// Events in a commit while it is filled.
const FILL_BATCH: u64 = 1_000;
/// How many are published right before the hub is killed.
const BEFORE_KILL: u64 = 50_000;
/// What is left to do after the start is done by then.
const CALM_DOWN: Duration = Duration::from_secs(2);
/// How long an idle hub is watched.
const WATCH: Duration = Duration::from_secs(5);
/// The topic that `prombus bench --prefix large` reads.
const TOPIC: &str = "large-0000";

/// The group.
#[derive(Default)]
pub struct Open {
    data: Option<PathBuf>,
}

impl Group for Open {
    fn name(&self) -> &'static str {
        "open"
    }

    fn needs_hub(&self) -> bool {
        true
    }

    fn round(&mut self, context: &Context, ledger: &mut Ledger) -> Result<(), String> {
        let data = match &self.data {
            Some(data) => data,
            None => self.data.insert(fill(context)?),
        };
        let events = context.scaled(EVENTS);
        let named =
            |what: &str, unit: Unit| Row::of(format!("{} M events: {what}", events / 1_000_000), unit);
        let hub = Hub::start(context, data)?;
        ledger.record(
            named("open after a clean stop", Unit::Seconds).target(Target::AtMost(1.2)),
            hub.ready_after(),
        );
        hub.check_topic(TOPIC, events)?;
        let idle = watch_idle(&hub)?;
        ledger.record(named("idle hub", Unit::Percent).target(Target::AtMost(0.2)), idle);
        let before = hub.peak_mebibytes()?;
        ledger.record(named("memory after opening", Unit::Mebibytes), before);
        let count = events.to_string();
        let load =
            hub.load(&["--mode", "export", "--connections", "1", "--prefix", "large", "--events", &count])?;
        ledger.record(named("NDJSON export of all", Unit::PerSecond("events")), load.events_per_s);
        let grown = hub.peak_mebibytes()? - before;
        ledger.record(named("growth by exporting all", Unit::Mebibytes).target(Target::AtMost(64.0)), grown);
        kill_and_open(context, data, hub, ledger)
    }
}

fn kill_and_open(context: &Context, data: &Path, hub: Hub, ledger: &mut Ledger) -> Result<(), String> {
    let events = context.scaled(EVENTS);
    let more = context.scaled(BEFORE_KILL).to_string();
    hub.load(&["--prefix", "more", "--events", &more, "--own-ids"])?;
    hub.kill()?;
    let hub = Hub::start(context, data)?;
    let name = format!("{} M events: open after kill -9", events / 1_000_000);
    ledger.record(Row::of(name, Unit::Seconds).target(Target::AtMost(1.5)), hub.ready_after());
    hub.check_topic(TOPIC, events)?;
    hub.stop()
}

/// What part of a core the hub uses while nobody asks it for anything, in hundredths.
fn watch_idle(hub: &Hub) -> Result<f64, String> {
    // Time passing is what is measured here.
    std::thread::sleep(CALM_DOWN);
    let before = hub.cpu_seconds()?;
    // Time passing is what is measured here.
    std::thread::sleep(WATCH);
    Ok((hub.cpu_seconds()? - before) / WATCH.as_secs_f64() * 100.0)
}

fn fill(context: &Context) -> Result<PathBuf, String> {
    let dir = context.fresh_dir("open")?;
    let events = context.scaled(EVENTS);
    load::runtime()?.block_on(async {
        let store = load::open_store(&dir, context.part_bytes())?;
        let topic = Topic::create(&store, TOPIC).await?;
        let maker = Maker::new(Shape { ids: Ids::Hub, keys: true })?;
        for _ in 0..events / FILL_BATCH {
            load::send(&store, maker.commit(&topic, FILL_BATCH)).await?;
        }
        store.close().await;
        Ok::<_, String>(())
    })?;
    context::settle();
    Ok(dir)
}
