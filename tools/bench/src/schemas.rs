//! Upcasters: how fast payloads of an old version become payloads of the latest one, on one core.

use super::context::Context;
use super::load;
use super::table::{Group, Ledger, Row};
use prombus_core::Json;
use prombus_engine::schemas::upcast::{Chain, Hop, Upcaster};
use serde_json::{Value, json};
use std::time::Instant;

/// How many payloads are raised.
const EVENTS: u64 = 1_000_000;
/// The largest payload that may be made.
const MOST_BYTES: usize = 2 << 20;

/// The group.
pub struct Schemas;

impl Group for Schemas {
    fn name(&self) -> &'static str {
        "schemas"
    }

    fn needs_hub(&self) -> bool {
        false
    }

    fn round(&mut self, context: &Context, ledger: &mut Ledger) -> Result<(), String> {
        let renamed =
            json!([{"rename": ["mem_mb", "mem_mib"]}, {"set": {"unit": "'MiB'"}}, {"remove": ["old"]}]);
        let computed =
            json!([{"set": {"busy": "payload.cpu_pct > 80.0"}}, {"rename": ["host", "node.name"]}]);
        for (name, second) in [("upcast, two hops", &renamed), ("upcast, two hops, one with CEL", &computed)]
        {
            let first =
                json!([{"rename": ["pid", "process.id"]}, {"set": {"schema": "2", "at": "payload.ts"}}]);
            let rate = measure([&first, second], context.scaled(EVENTS))?;
            ledger.record(Row::events(name), rate);
        }
        Ok(())
    }
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
