//! Collections: projections over a backlog, documents by key and by filter, and commits.

mod backlog;
mod commits;
mod connection;
mod lists;
mod shape;

use super::context::Context;
use super::hub::Hub;
use super::stats::Unit;
use super::table::{Group, Ledger, Row, Target};

/// How many documents are asked for by key.
const GETS: u64 = 300_000;

/// The group.
pub struct State;

impl Group for State {
    fn name(&self) -> &'static str {
        "state"
    }

    fn needs_hub(&self) -> bool {
        true
    }

    fn round(&mut self, context: &Context, ledger: &mut Ledger) -> Result<(), String> {
        let hub = Hub::start(context, &context.fresh_dir("state")?)?;
        backlog::measure(context, &hub, ledger)?;
        gets(context, &hub, ledger)?;
        hub.stop()?;
        let hub = Hub::start(context, &context.fresh_dir("state")?)?;
        lists::measure(context, &hub, ledger)?;
        commits::measure(context, &hub, ledger)?;
        hub.stop()
    }
}

/// Documents by key, whole and as known.
fn gets(context: &Context, hub: &Hub, ledger: &mut Ledger) -> Result<(), String> {
    let count = context.scaled(GETS).to_string();
    let args = ["--mode", "get", "--collection", "processes", "--connections", "64", "--events", &count];
    let row = |name: &str| Row::of(name, Unit::PerSecond("requests"));
    let whole = "HTTP snapshot by key, 64 connections";
    let load = hub.load(&args)?;
    ledger.record(row(whole).target(Target::AtLeast(6e4)), load.events_per_s);
    let load = hub.load(&[&args[..], &["--conditional"]].concat())?;
    let known = row("HTTP snapshot by key, 64 connections, known by its ETag (304)");
    ledger.record(known.versus(whole).target(Target::Ratio(1.0)), load.events_per_s);
    Ok(())
}

fn parsed<T: serde::de::DeserializeOwned>(what: &str, (status, body): (u16, Vec<u8>)) -> Result<T, String> {
    let text = || String::from_utf8_lossy(&body[..body.len().min(500)]).into_owned();
    if !(200..300).contains(&status) {
        return Err(format!("{what}: {status} {}", text()));
    }
    serde_json::from_slice(&body).map_err(|error| format!("{what}: {error}: {}", text()))
}
