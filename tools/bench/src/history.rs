//! The past: the state of a key at a time among few and many events, and the states of all keys.

use super::context::{self, Context};
use super::load::{self, Ids, Maker, Shape, Topic};
use super::stats::Unit;
use super::table::{Group, Ledger, Row, Target};
use prombus_core::EventLog;
use prombus_engine::{Hub, HubOptions, Reduce, Store};
use std::path::Path;
use std::time::Instant;
use std::{fs, io};

/// How many events the topics hold whose keys are asked for.
const SIZES: [(u64, &str); 2] = [(1_000_000, "1 million"), (10_000_000, "10 million")];
/// How many events a key has, evenly spread over its topic.
const VERSIONS: u64 = 100;
/// How many keys the topic has of which all are asked for, and how many events each.
const KEYS: u64 = 1_000_000;
const VERSIONS_OF_ALL: u64 = 2;
/// The topics of which all keys are asked for.
const ALL: [&str; 2] = ["100,000 keys of 100 versions", "1 million keys of 2 versions"];
/// Events in a commit while a topic is filled.
const FILL_BATCH: u64 = 1_000;
/// The time of the first event; each is a millisecond later than the one before.
const FIRST_TS: u64 = 1_700_000_000_000;
/// How many states are asked for.
const LOOKUPS: u64 = 2_000;

/// The group.
#[derive(Default)]
pub struct History {
    filled: Vec<Filled>,
}

/// A hub with a topic whose keys have so many versions each.
struct Filled {
    hub: Hub,
    topic: Topic,
    keys: u64,
    events: u64,
}

impl Group for History {
    fn name(&self) -> &'static str {
        "history"
    }

    fn needs_hub(&self) -> bool {
        false
    }

    fn round(&mut self, context: &Context, ledger: &mut Ledger) -> Result<(), String> {
        if self.filled.is_empty() {
            for (events, _) in SIZES {
                let events = context.scaled(events);
                self.filled.push(fill(context, (events / VERSIONS, VERSIONS))?);
            }
            self.filled.push(fill(context, (context.scaled(KEYS), VERSIONS_OF_ALL))?);
        }
        let runtime = load::runtime()?;
        // Pages of indexes are verified when they are read for the first time, which is not what is measured.
        for filled in self.filled.iter().take(SIZES.len()) {
            runtime.block_on(state_of_a_key(context, filled, Reduce::Replace))?;
        }
        for (reduce, name) in [(Reduce::Replace, "last payload"), (Reduce::Merge, "merged")] {
            let named = |size: &str| {
                format!("engine, state of a key at a time, 100 versions among {size}, {name}, p50")
            };
            for ((_, size), filled) in SIZES.iter().zip(&self.filled) {
                let row = Row::of(named(size), Unit::Microseconds).target(Target::AtMost(1_000.0));
                let row = match *size == SIZES[0].1 {
                    true => row,
                    false => row.versus(named(SIZES[0].1)).target(Target::RatioAtMost(1.5)),
                };
                ledger.record(row, runtime.block_on(state_of_a_key(context, filled, reduce))?);
            }
        }
        // The last two: the memory that a reader takes does not go by the number of keys.
        for (filled, keys) in self.filled.iter().skip(1).zip(ALL) {
            let (rate, grown) = runtime.block_on(context::growth_of(states_of_all(filled)))?;
            let row = format!("engine, states of all keys at a time, {keys}");
            let target = (filled.keys == context.scaled(KEYS)).then_some(Target::AtLeast(5e5));
            ledger.record(Row::of(row.clone(), Unit::PerSecond("keys")).target(target), rate);
            ledger.record(Row::of(row + ", memory", Unit::Mebibytes), grown);
        }
        Ok(())
    }
}

fn fill(context: &Context, (keys, versions): (u64, u64)) -> Result<Filled, String> {
    let dir = context.fresh_dir(&format!("history-{keys}-{versions}"))?;
    let events = keys * versions;
    load::runtime()?.block_on(async {
        let store = load::open_store(&dir, context.part_bytes())?;
        let topic = Topic::create(&store, "bench").await?;
        let maker = Maker::new(Shape { ids: Ids::Hub, keys: false })?;
        for number in 0..events / FILL_BATCH {
            let mut commit = maker.commit(&topic, FILL_BATCH);
            let made = std::sync::Arc::get_mut(&mut commit).ok_or("a new commit is shared already")?;
            for (append, offset) in made.events.iter_mut().zip(number * FILL_BATCH..) {
                append.event.ts = Some(FIRST_TS + offset);
                append.event.key = Some(load::key((offset % keys) as usize));
            }
            load::send(&store, commit).await?;
        }
        topic.check(&store, events).await?;
        // Opened again, so that all full parts are read from their indexes on disk.
        store.close().await;
        drop(store);
        context::settle();
        read_all(&dir.join("journal"))?;
        let store = load::open_store(&dir, context.part_bytes())?;
        let hub = Hub::assemble(Store::new(store), HubOptions::default());
        Ok(Filled { hub, topic, keys, events })
    })
}

/// Reads all files of a folder, so that the figures do not depend on which of them the system has dropped from its memory.
fn read_all(dir: &Path) -> Result<(), String> {
    let failed = |error| format!("{}: {error}", dir.display());
    for entry in fs::read_dir(dir).map_err(failed)?.flatten() {
        let mut file = fs::File::open(entry.path()).map_err(failed)?;
        io::copy(&mut file, &mut io::sink()).map_err(failed)?;
    }
    Ok(())
}

/// How long it takes to tell the state of a key, in microseconds.
async fn state_of_a_key(context: &Context, filled: &Filled, reduce: Reduce) -> Result<f64, String> {
    let (travel, mut took) = (filled.hub.time_travel(), Vec::new());
    for _ in 0..context.scaled(LOOKUPS) {
        let key = fastrand::u64(..filled.keys);
        // The last event of the topic counts in all of them.
        let at = FIRST_TS + filled.events;
        let start = Instant::now();
        let state = travel.state_at(&filled.topic.name, &load::key(key as usize), (at, reduce)).await;
        took.push(start.elapsed().as_secs_f64() * 1e6);
        let state = state.map_err(|error| error.to_string())?.ok_or("a key has no state")?;
        if state.applied != VERSIONS || state.last.offset.0 != filled.events - filled.keys + key {
            return Err(format!("the state of key {key} is not its last"));
        }
    }
    took.sort_by(f64::total_cmp);
    took.get(took.len() / 2).copied().ok_or_else(|| "nothing was measured".to_owned())
}

/// How many keys are told in a second, at a time when half of the events were there.
async fn states_of_all(filled: &Filled) -> Result<f64, String> {
    let (at, start) = (FIRST_TS + filled.events / 2 - 1, Instant::now());
    let all = filled.hub.time_travel().all_at(&filled.topic.name, at).await;
    let mut all = all.map_err(|error| error.to_string())?;
    let mut found = 0;
    while let Some(page) = all.next_page().await.map_err(|error| error.to_string())? {
        found += page.len() as u64;
    }
    match found == filled.keys {
        true => Ok(found as f64 / start.elapsed().as_secs_f64()),
        false => Err(format!("{found} of {} keys have a state", filled.keys)),
    }
}
