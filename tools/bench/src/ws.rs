//! The WebSocket gateway, as users see it: publishing, consuming, latency between two clients, and a crowd of clients of
//! which some do not read.
//!
//! The client shares the machine with the hub, so it does as little as it can: see [`wire`].

mod consume;
mod crowd;
mod frames;
mod latency;
mod publish;
mod wire;

use super::context::Context;
use super::hub::Hub;
use super::load;
use super::raw;
use super::redis;
use super::stats::Unit;
use super::table::{Group, Ledger, Row, Target};

/// How many events are published, and how many are consumed.
const EVENTS: u64 = 1_000_000;
/// Events that are in flight where each is a frame, here and in the peer.
const WINDOW: u64 = 1_000;

/// The group of rows.
pub struct Ws;

impl Group for Ws {
    fn name(&self) -> &'static str {
        "ws"
    }

    fn needs_hub(&self) -> bool {
        true
    }

    fn round(&mut self, context: &Context, ledger: &mut Ledger) -> Result<(), String> {
        publishing(context, ledger)?;
        consuming(context, ledger)?;
        end_to_end(context, ledger)?;
        crowded(context, ledger)
    }
}

fn publishing(context: &Context, ledger: &mut Ledger) -> Result<(), String> {
    let peer = "Redis streams, XADD, window of 1,000, 1 connection, flushed";
    match redis::windowed(context, WINDOW)? {
        Some(rate) => ledger.record(Row::events(peer), rate),
        None => ledger.note(redis::MISSING.to_owned()),
    }
    let hub = Hub::start(context, &context.fresh_dir("ws-publish")?)?;
    let events = context.scaled(EVENTS);
    let singles = publish::Load { topic: "singles", events, batch: 1, window: WINDOW };
    let row = Row::events("WS PUBLISH, 1 event a frame, window of 1,000, 1 connection");
    ledger.record(row.versus(peer).target(Target::AtLeast(3e5)), publish::rate(&hub, &singles)?);
    raw::record(100, context, ledger)?;
    let arrays = publish::Load { topic: "arrays", events, batch: 100, window: 100 };
    let row = Row::events("WS PUBLISH, 100 events a frame, window of 100 frames, 1 connection");
    let row = row.versus(raw::row_name(100)).target(Target::AtLeast(6e5));
    ledger.record(row, publish::rate(&hub, &arrays)?);
    hub.stop()
}

fn consuming(context: &Context, ledger: &mut Ledger) -> Result<(), String> {
    let hub = Hub::start(context, &context.fresh_dir("ws-consume")?)?;
    let events = context.scaled(EVENTS);
    let count = events.to_string();
    hub.load(&["--prefix", "plain", "--events", &count, "--batch", "1000", "--connections", "4"])?;
    for scenario in &consume::SCENARIOS {
        let row = Row::events(scenario.row).target(scenario.target);
        ledger.record(row, consume::rate(&hub, ("plain-0000", events), scenario)?);
    }
    hub.stop()
}

fn end_to_end(context: &Context, ledger: &mut Ledger) -> Result<(), String> {
    let hub = Hub::start(context, &context.fresh_dir("ws-latency")?)?;
    let latency::Times { p50, p99 } = latency::measure(&hub, context)?;
    let row = |name: &str| Row::of(name, Unit::Microseconds);
    let name = "WS, 10,000 events/s, from before PUBLISH is written to EVENT received, p50";
    ledger.record(row(name).target(Target::AtMost(500.0)), p50);
    let name = "WS, 10,000 events/s, from before PUBLISH is written to EVENT received, p99";
    ledger.record(row(name).target(Target::AtMost(2_000.0)), p99);
    hub.stop()
}

fn crowded(context: &Context, ledger: &mut Ledger) -> Result<(), String> {
    let hub = Hub::start(context, &context.fresh_dir("ws-crowd")?)?;
    let crowd = crowd::Crowd::prepare(&hub, context.scaled(EVENTS))?;
    let alone = "WS, 950 connections consume";
    ledger.record(Row::events(alone), crowd.rate(crowd::Stalled::None)?);
    let row = Row::events("WS, 950 connections consume beside 50 that do not read");
    ledger.record(row.versus(alone).target(Target::Ratio(0.9)), crowd.rate(crowd::Stalled::Fifty)?);
    hub.stop()
}

/// A payload of the usual size with a number of seven digits.
fn payload(number: u64) -> String {
    let start = format!("{{\"n\":{},\"pad\":\"", FIRST_NUMBER + number);
    let pad = "x".repeat(load::EVENT_BYTES.saturating_sub(start.len() + 2));
    format!("{start}{pad}\"}}")
}

/// Numbers start here, so that all have as many digits.
const FIRST_NUMBER: u64 = 1_000_000;
