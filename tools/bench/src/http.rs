//! The hub over HTTP, as users see it: the load generator shares the machine with it.

use super::context::Context;
use super::hub::Hub;
use super::raw;
use super::table::{Group, Ledger, Row, Target};

/// How many events arrays carry in all, and how many are read back.
const EVENTS: u64 = 1_000_000;
/// How many events are published one by one.
const SINGLES: u64 = 200_000;
/// Events in an array.
const BATCH: u64 = 100;

/// The group.
pub struct Http;

/// One publishing load: its row, the topic, and how it is asked for.
struct Publish {
    row: Row,
    batch: u64,
    prefix: &'static str,
    events: u64,
    args: &'static [&'static str],
}

impl Group for Http {
    fn name(&self) -> &'static str {
        "http"
    }

    fn needs_hub(&self) -> bool {
        true
    }

    fn round(&mut self, context: &Context, ledger: &mut Ledger) -> Result<(), String> {
        let hub = Hub::start(context, &context.fresh_dir("http")?)?;
        let events = context.scaled(EVENTS);
        for Publish { row, batch, prefix, events, args } in publishes(context) {
            raw::record(batch, context, ledger)?;
            let count = events.to_string();
            let load = hub.load(&[&["--events", &count, "--prefix", prefix], args].concat())?;
            hub.check_topic(&format!("{prefix}-0000"), events)?;
            ledger.record(row.versus(raw::row_name(batch)), load.events_per_s);
        }
        for (row, args) in reads() {
            let count = events.to_string();
            let load = hub.load(&[&["--events", &count, "--prefix", "hub-ids"], args].concat())?;
            if load.events < events {
                return Err(format!("{events} events were to be read, but only {} were", load.events));
            }
            ledger.record(row, load.events_per_s);
        }
        hub.stop()
    }
}

fn publishes(context: &Context) -> [Publish; 3] {
    let fast = Target::AtLeast(4e5);
    [
        Publish {
            row: Row::events("HTTP arrays of 100, 16 connections, hub ids").target(fast),
            batch: BATCH,
            prefix: "hub-ids",
            events: context.scaled(EVENTS),
            args: &["--batch", "100", "--connections", "16"],
        },
        Publish {
            row: Row::events("HTTP arrays of 100, 16 connections, own ids").target(fast),
            batch: BATCH,
            prefix: "own-ids",
            events: context.scaled(EVENTS),
            args: &["--batch", "100", "--connections", "16", "--own-ids"],
        },
        Publish {
            row: Row::events("HTTP single events, 64 connections"),
            batch: 1,
            prefix: "singles",
            events: context.scaled(SINGLES),
            args: &["--batch", "1", "--connections", "64"],
        },
    ]
}

fn reads() -> [(Row, &'static [&'static str]); 2] {
    [
        (
            Row::events("HTTP NDJSON export, 1 connection").target(Target::AtLeast(1e6)),
            &["--mode", "export", "--connections", "1"],
        ),
        (
            Row::events("HTTP pages of 1,000, 2 connections"),
            &["--mode", "read", "--batch", "1000", "--connections", "2"],
        ),
    ]
}
