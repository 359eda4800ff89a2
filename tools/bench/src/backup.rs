//! A backup of a running hub against a plain copy of its folder, and a second one of what has not changed.

use super::context::{self, Context};
use super::hub::Hub;
use super::load::{self, Ids, Maker, Shape, Topic};
use super::stats::Unit;
use super::table::{Group, Ledger, Row, Target};
use prombus_core::EventLog;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// How many events the folder holds.
const EVENTS: u64 = 5_000_000;
/// Events in a commit while it is filled.
const FILL_BATCH: u64 = 1_000;
const TOPIC: &str = "bench";

const COPY: &str = "cp -r of a data folder, and sync";

/// The group.
#[derive(Default)]
pub struct Backup {
    data: Option<PathBuf>,
}

impl Group for Backup {
    fn name(&self) -> &'static str {
        "backup"
    }

    fn needs_hub(&self) -> bool {
        true
    }

    fn round(&mut self, context: &Context, ledger: &mut Ledger) -> Result<(), String> {
        let data = match &self.data {
            Some(data) => data,
            None => self.data.insert(filled(context)?),
        };
        let hub = Hub::start(context, data)?;
        let copy = context.fresh_dir("copy")?.join("data");
        let start = Instant::now();
        run(Command::new("cp").arg("-r").arg(data).arg(&copy))?;
        // A backup is durable when it is done.
        context::settle();
        let seconds = start.elapsed().as_secs_f64();
        ledger.record(Row::of(COPY, Unit::PerSecond("MiB")), mebibytes(&copy)? / seconds);

        let backup = context.fresh_dir("backup")?.join("data");
        let start = Instant::now();
        hub.backup(&backup)?;
        let seconds = start.elapsed().as_secs_f64();
        let row = Row::of("backup of a running hub", Unit::PerSecond("MiB"));
        ledger.record(row.versus(COPY).target(Target::Ratio(0.5)), mebibytes(&backup)? / seconds);

        let start = Instant::now();
        hub.backup(&backup)?;
        let row = Row::of("backup of a running hub, again with nothing new", Unit::Seconds);
        ledger.record(row.target(Target::AtMost(1.0)), start.elapsed().as_secs_f64());
        hub.stop()?;
        let restored = Hub::start(context, &backup)?;
        restored.check_topic(TOPIC, context.scaled(EVENTS))?;
        restored.stop()?;
        for dir in ["copy", "backup"] {
            context.fresh_dir(dir)?;
        }
        Ok(())
    }
}

fn filled(context: &Context) -> Result<PathBuf, String> {
    let dir = context.fresh_dir("backed-up")?;
    load::runtime()?.block_on(async {
        let store = load::open_store(&dir, context.part_bytes())?;
        let topic = Topic::create(&store, TOPIC).await?;
        let maker = Maker::new(Shape { ids: Ids::Hub, keys: true })?;
        for _ in 0..context.scaled(EVENTS) / FILL_BATCH {
            load::send(&store, maker.commit(&topic, FILL_BATCH)).await?;
        }
        store.close().await;
        Ok::<_, String>(())
    })?;
    context::settle();
    Ok(dir)
}

fn run(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("{command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}")) }
}

/// What the files of a folder have, in MiB.
fn mebibytes(dir: &Path) -> Result<f64, String> {
    let failed = |error| format!("{}: {error}", dir.display());
    let mut bytes = 0.0;
    for entry in fs::read_dir(dir).map_err(failed)?.flatten() {
        let found = entry.metadata().map_err(failed)?;
        bytes +=
            if found.is_dir() { mebibytes(&entry.path())? } else { found.len() as f64 / f64::from(1 << 20) };
    }
    Ok(bytes)
}
