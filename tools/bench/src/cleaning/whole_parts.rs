//! Retention that takes everything from whole parts of the journal.

use super::super::context::{self, Context};
use super::super::load::{self, Ids, Maker, Shape, Topic};
use super::super::stats::Unit;
use super::super::table::{Ledger, Row, Target};
use prombus_core::{EventLog, TopicPatch};
use prombus_engine::{Hub, HubOptions, Store};
use std::path::Path;
use std::time::{Duration, Instant};

/// How many parts are filled with what goes.
const PARTS: usize = 5;
/// Events in a commit while the store is filled.
const FILL_BATCH: u64 = 1_000;
/// Of what stays, one part in so many is filled at least.
const STAYS: u64 = 2;
/// Space that is not given back by then never will be.
const GIVEN_BACK_WITHIN: Duration = Duration::from_secs(120);

/// Measures the rows.
pub fn record(context: &Context, ledger: &mut Ledger) -> Result<(), String> {
    let dir = context.fresh_dir("whole-parts")?;
    let (seconds, rewritten) = load::runtime()?.block_on(async {
        let store = load::open_store(&dir, context.part_bytes())?;
        let maker = Maker::new(Shape { ids: Ids::Hub, keys: true })?;
        let (goes, stays) = (Topic::create(&store, "goes").await?, Topic::create(&store, "stays").await?);
        while parts(&dir)? <= PARTS {
            load::send(&store, maker.commit(&goes, FILL_BATCH)).await?;
        }
        for _ in 0..context.part_bytes() / STAYS / (FILL_BATCH * load::EVENT_BYTES as u64) {
            load::send(&store, maker.commit(&stays, FILL_BATCH)).await?;
        }
        context::settle();
        let hub = Hub::assemble(Store::new(store.clone()), HubOptions::default());
        let start = Instant::now();
        let nothing = TopicPatch { retention_ms: Some(1), ..TopicPatch::default() };
        hub.put_topic(&goes.name, nothing).await.map_err(|error| error.to_string())?;
        hub.cleaning().clean(&goes.name).await.map_err(|error| error.to_string())?;
        while store.status().extra("reclaimed_bytes") < PARTS as u64 * context.part_bytes() {
            if start.elapsed() > GIVEN_BACK_WITHIN {
                return Err("parts of which nothing is kept are still there".to_owned());
            }
            // The store works beside, and does not tell when it is done.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let rewritten = store.status().extra("rewritten_bytes");
        let seconds = start.elapsed().as_secs_f64();
        hub.close().await;
        Ok((seconds, rewritten))
    })?;
    let row = Row::of("engine, retention takes 5 whole parts, until their space is back", Unit::Seconds);
    ledger.record(row, seconds);
    let row = Row::of("engine, retention takes 5 whole parts, rewritten", Unit::Mebibytes);
    ledger.record(row.target(Target::AtMost(0.0)), rewritten as f64 / f64::from(1 << 20));
    Ok(())
}

/// How many parts the journal has.
fn parts(dir: &Path) -> Result<usize, String> {
    let files = std::fs::read_dir(dir.join("journal")).map_err(|error| error.to_string())?;
    let is_part = |path: &Path| path.extension().is_some_and(|kind| kind == "part");
    Ok(files.flatten().filter(|file| is_part(&file.path())).count())
}
