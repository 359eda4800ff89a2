//! A single writer on the engine itself: a commit, its flush, its answer, the next.

use super::context::Context;
use super::load::{self, Ids, Maker, Shape, Topic};
use super::raw;
use super::table::{Group, Ledger, Row, Target};
use prombus_core::EventLog;
use std::time::Instant;

/// How many events each row takes: enough to fill several parts of the journal.
pub const EVENTS: u64 = 1_000_000;
/// The batch sizes.
const BATCHES: [u64; 2] = [100, 1_000];
/// Within twice the time of the raw loop.
const OF_RAW: f64 = 0.5;

const SHAPES: [(&str, Shape); 4] = [
    ("hub ids", Shape { ids: Ids::Hub, keys: false }),
    ("own ids", Shape { ids: Ids::Own, keys: false }),
    ("hub ids, keys", Shape { ids: Ids::Hub, keys: true }),
    ("own ids, keys", Shape { ids: Ids::Own, keys: true }),
];

/// The group.
pub struct Engine;

impl Group for Engine {
    fn name(&self) -> &'static str {
        "engine"
    }

    fn needs_hub(&self) -> bool {
        false
    }

    fn round(&mut self, context: &Context, ledger: &mut Ledger) -> Result<(), String> {
        for batch in BATCHES {
            for (label, shape) in SHAPES {
                let row = Row::events(format!("engine, batch {batch}, {label}"))
                    .versus(raw::row_name(batch))
                    .target(Target::Ratio(OF_RAW));
                raw::record(batch, context, ledger)?;
                ledger.record(row, measure(context, shape, batch)?);
            }
        }
        Ok(())
    }
}

/// Events in a second.
fn measure(context: &Context, shape: Shape, batch: u64) -> Result<f64, String> {
    let dir = context.fresh_dir("engine")?;
    let events = context.scaled(EVENTS);
    load::runtime()?.block_on(async {
        let store = load::open_store(&dir, context.part_bytes())?;
        let topic = Topic::create(&store, "bench").await?;
        let maker = Maker::new(shape)?;
        let commits: Vec<_> = (0..events / batch).map(|_| maker.commit(&topic, batch)).collect();
        let start = Instant::now();
        for commit in commits {
            load::send(&store, commit).await?;
        }
        let seconds = start.elapsed().as_secs_f64();
        topic.check(&store, events).await?;
        store.close().await;
        Ok(events as f64 / seconds)
    })
}
