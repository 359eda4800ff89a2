//! A journal that is damaged while the hub runs.

use crate::common::{Served, start_closed};
use prombus_core::SystemClock;
use prombus_engine::{Hub, HubOptions, Limits, Store};
use prombus_server::GatewayOptions;
use prombus_store_disk::{DiskOptions, DiskStore};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

const GROUP: &str = "/v1/topics/t/groups/g";

async fn on_disk(dir: &Path) -> Served {
    let served = start_closed(GatewayOptions { version: "test", ..GatewayOptions::default() }).await;
    let store = DiskStore::open(DiskOptions::new(dir)).unwrap();
    let (limits, clock) = (Limits::default(), Arc::new(SystemClock));
    let options = HubOptions { limits, auto_create: true, topics: HashMap::new(), clock };
    served.gateway.open(Hub::assemble(Store::new(store), options));
    served
}

/// Changes one byte of a text in the journal.
fn damage(dir: &Path, text: &str) {
    let part = dir.join("journal/0000000001.part");
    let bytes = std::fs::read(&part).unwrap();
    let at = bytes.windows(text.len()).position(|window| window == text.as_bytes()).unwrap();
    let file = std::fs::File::options().write(true).open(&part).unwrap();
    file.write_all_at(&[bytes[at] ^ 1], at as u64).unwrap();
}

#[tokio::test]
async fn a_group_that_stands_at_a_damaged_event_is_shown_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let hub = on_disk(dir.path()).await;
    let events: Vec<Value> = (0..10).map(|n| json!({"payload": format!("event {n}")})).collect();
    hub.post("/v1/topics/t/events", &json!(events).to_string()).await.is(201);
    hub.put("/v1/topics/t/groups/whole", r#"{"from":"latest"}"#).await.is(201);
    hub.put(GROUP, r#"{"from":"earliest"}"#).await.is(201);
    damage(dir.path(), "event 4");
    damage(dir.path(), "event 7");

    // What comes before it is delivered.
    let pulled = hub.post(&format!("{GROUP}/pull"), r#"{"max":100}"#).await.is(200).json();
    let leases: Vec<&Value> =
        pulled["deliveries"].as_array().unwrap().iter().map(|d| &d["ctx"]["lease"]).collect();
    assert_eq!(leases.len(), 4, "{pulled}");
    hub.post(&format!("{GROUP}/ack"), &json!({"ack": leases}).to_string()).await.is(200);
    let refused = hub.post(&format!("{GROUP}/pull"), "{}").await.is_error(500, "internal");
    assert!(refused["message"].as_str().unwrap().contains("part 1 is damaged at byte"), "{refused}");

    let is_told = |group: &Value, lag: u64| {
        assert_eq!(
            (&group["group"], &group["partitions"][0]["next"]),
            (&json!("g"), &json!(10 - lag)),
            "{group}"
        );
        assert_eq!(group["partitions"][0]["lag"], lag, "{group}");
        assert!(group["partitions"][0]["last_id"].is_string(), "the last one before it: {group}");
        let error = group["error"].as_str().unwrap_or_else(|| panic!("{group}"));
        assert!(error.contains("part 1 is damaged at byte"), "{error}");
    };
    let listed = hub.get("/v1/topics/t/groups").await.is(200).json();
    is_told(&listed["groups"][0], 6);
    assert_eq!((&listed["groups"][1]["group"], listed["groups"][1].get("error")), (&json!("whole"), None));
    is_told(&hub.get("/ops").await.is(200).json()["groups"][0], 6);
    is_told(&hub.get(GROUP).await.is(200).json(), 6);
    let metrics = hub.get("/metrics").await.is(200).text.clone();
    assert!(metrics.contains("group_lag_events{topic=\"t\",group=\"g\"} 6\n"), "{metrics}");
    let cursor = hub.get(&format!("{GROUP}/cursor")).await.is(200).json();
    assert_eq!(cursor["partitions"][0]["next"], 4);

    // It goes on behind it, and then nothing is wrong with it any more.
    for offset in [4, 7] {
        let skip = json!({"partition": 0, "offset": offset}).to_string();
        hub.post(&format!("{GROUP}/skip"), &skip).await.is(200);
    }
    let status = hub.get(GROUP).await.is(200).json();
    assert_eq!((&status["partitions"][0]["next"], status.get("error")), (&json!(5), None), "{status}");
    for expected in [["event 5", "event 6"], ["event 8", "event 9"]] {
        let pulled = hub.post(&format!("{GROUP}/pull"), r#"{"max":100}"#).await.is(200).json();
        let deliveries = pulled["deliveries"].as_array().unwrap();
        let payloads: Vec<&Value> = deliveries.iter().map(|delivery| &delivery["event"]["payload"]).collect();
        assert_eq!(payloads, expected);
    }
}
