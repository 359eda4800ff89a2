//! Schemas: how long a check takes, how fast payloads of an old version become payloads of the latest one, both on one core,
//! and what publishing costs where a topic has a schema.

use super::context::Context;
use super::hub::Hub;
use super::load;
use super::stats::Unit;
use super::table::{Group, Ledger, Row, Target};
use prombus_core::Json;
use prombus_engine::schemas::upcast::{Chain, Hop, Upcaster};
use prombus_schema::{Comparison, Compat, Policy, Schema, check};
use serde_json::{Map, Value, json};
use std::time::Instant;

/// How many payloads are raised, and published to either topic.
const EVENTS: u64 = 1_000_000;
/// How many checks are made of two large schemas.
const CHECKS: u64 = 50;
/// How many properties each of them has.
const PROPERTIES: usize = 200;
/// The largest payload that may be made.
const MOST_BYTES: usize = 2 << 20;

/// How many other topics have schemas.
const OTHERS: usize = 100;

/// Publishing where no topic has a schema, where others have some, and to one that has one.
const ALONE: &str = "HTTP arrays of 100, 16 connections, 10 fields, no schemas";
const PLAIN: &str = "HTTP arrays of 100, 16 connections, 10 fields, schemas of 100 other topics";
const CHECKED: &str = "HTTP arrays of 100, 16 connections, 10-field schema";

/// The group.
pub struct Schemas;

impl Group for Schemas {
    fn name(&self) -> &'static str {
        "schemas"
    }

    fn needs_hub(&self) -> bool {
        true
    }

    fn round(&mut self, context: &Context, ledger: &mut Ledger) -> Result<(), String> {
        let row = Row::of("two schemas of 200 properties, read and compared", Unit::Milliseconds);
        ledger.record(row.target(Target::AtMost(50.0)), compared(context.scaled(CHECKS))?);
        let renamed =
            json!([{"rename": ["mem_mb", "mem_mib"]}, {"set": {"unit": "'MiB'"}}, {"remove": ["old"]}]);
        let computed =
            json!([{"set": {"busy": "payload.cpu_pct > 80.0"}}, {"rename": ["host", "node.name"]}]);
        for (name, second) in [("upcast, two hops", &renamed), ("upcast, two hops, one with CEL", &computed)]
        {
            let first =
                json!([{"rename": ["pid", "process.id"]}, {"set": {"schema": "2", "at": "payload.ts"}}]);
            let rate = measure([&first, second], context.scaled(EVENTS))?;
            ledger.record(Row::events(name).target(Target::AtLeast(2e5)), rate);
        }
        published(context, ledger)
    }
}

/// How long it takes to read two large schemas and to prove that the second one follows, in milliseconds.
fn compared(checks: u64) -> Result<f64, String> {
    let text = |more: usize| {
        let property = |at: usize| {
            (
                format!("field_{at}"),
                json!({"type": "string", "maxLength": 20 + more, "pattern": "^[a-z0-9.-]*$"}),
            )
        };
        let properties: Map<String, Value> = (0..PROPERTIES + more).map(property).collect();
        json!({"type": "object", "required": ["field_7"], "properties": properties}).to_string()
    };
    let (old, new) = (text(0), text(1));
    let start = Instant::now();
    for _ in 0..checks {
        let read = |text: &str| Schema::parse(text).map_err(|error| error.to_string());
        let (old, new) = (read(&old)?, read(&new)?);
        let comparison =
            Comparison { old: &old, new: &new, compat: Compat::Backward, policy: Policy::Lenient };
        if !check(&comparison).is_compatible() {
            return Err("a schema of one property more was found to be incompatible".to_owned());
        }
    }
    Ok(start.elapsed().as_secs_f64() * 1e3 / checks as f64)
}

/// Publishes the same payloads to topics without and to one with a schema.
fn published(context: &Context, ledger: &mut Ledger) -> Result<(), String> {
    let publish = |hub: &Hub, prefix: &str| {
        let (events, count) = (context.scaled(EVENTS), context.scaled(EVENTS).to_string());
        let batches = ["--batch", "100", "--connections", "16", "--fields"];
        let load = hub.load(&[&["--events", &count, "--prefix", prefix], &batches[..]].concat())?;
        hub.check_topic(&format!("{prefix}-0000"), events)?;
        Ok::<_, String>(load.events_per_s)
    };
    let hub = Hub::start(context, &context.fresh_dir("no-schemas")?)?;
    ledger.record(Row::events(ALONE), publish(&hub, "alone")?);
    hub.stop()?;
    let hub = Hub::start(context, &context.fresh_dir("schemas")?)?;
    let schema = json!({
        "type": "object", "required": ["n", "host", "kind", "status"], "properties": {
            "n": {"type": "integer", "minimum": 0}, "host": {"type": "string", "minLength": 1, "maxLength": 253},
            "kind": {"type": "string", "pattern": "^[a-z]+$"}, "status": {"enum": ["alive", "late", "gone"]},
            "ok": {"type": "boolean"}, "pid": {"type": "integer", "minimum": 1},
            "cpu_pct": {"type": "number", "minimum": 0, "maximum": 100}, "mem_mib": {"type": "number", "minimum": 0},
            "labels": {"type": "array", "items": {"type": "string"}, "maxItems": 16}, "pad": {"type": "string"}
        }
    });
    let body = json!({ "schema": schema }).to_string();
    for topic in (0..OTHERS).map(|other| format!("other-{other}")).chain(["checked-0000".to_owned()]) {
        let answer = hub.post(&format!("/v1/schemas/{topic}"), &body)?;
        if answer.status != 201 {
            return Err(format!("the schema of {topic} was not registered: {}", answer.status));
        }
    }
    let rows = [
        ("plain", Row::events(PLAIN).versus(ALONE).target(Target::Ratio(0.97))),
        ("checked", Row::events(CHECKED).versus(PLAIN).target(Target::Ratio(0.7))),
    ];
    for (prefix, row) in rows {
        ledger.record(row, publish(&hub, prefix)?);
    }
    hub.stop()
}

/// Payloads raised in a second.
fn measure(hops: [&Value; 2], events: u64) -> Result<f64, String> {
    let mut compiled = Vec::new();
    for (from, ops) in (1..).zip(hops) {
        let upcaster: Upcaster =
            serde_json::from_value(json!({ "ops": ops })).map_err(|error| error.to_string())?;
        let hop = load::runtime()?.block_on(Hop::compile(&upcaster)).map_err(|error| error.to_string())?;
        compiled.push((from, hop));
    }
    let chain = Chain::new(compiled, MOST_BYTES);
    let payload = Json::from_value(&json!({
        "processId": "web1:stt:4242", "name": "stt", "host": "web1", "pid": 4242, "sid": "0198c0de-aaaa",
        "cpu_pct": 81.5, "mem_mb": 512.25, "status": "alive", "ts": 1_754_683_200_123_u64, "old": true,
    }));
    let start = Instant::now();
    for _ in 0..events {
        std::hint::black_box(
            chain.raise(1, std::hint::black_box(&payload)).map_err(|error| error.to_string())?,
        );
    }
    Ok(events as f64 / start.elapsed().as_secs_f64())
}
