//! The process example: heartbeats of processes become their live state.
//!
//! - `heartbeat.received`: what processes say of themselves, one event a beat.
//! - [`Projector`]: a consumer that makes `process.state` of it, keyed `host:name:pid`: `alive`, and `stale` after
//!   15 seconds without a beat. What it knows of each process is in the collection `process_beats`; the ack of a beat,
//!   the document and the event are one commit, so a restart forgets nothing and counts nothing twice.
//! - [`process_at`]: what a process was like yesterday at 14:03.
//! - [`projections`]: `processes` (a changelog of `process.state`), and `proc_live` with `host_stats` (transactional).

mod beat;
mod projector;
mod sample;

pub use beat::{Heartbeat, ProcessState, Status};
pub use projector::{Projector, ProjectorOptions};
pub use sample::beat_forever;

use prombus_client::{Client, ClientError, CollectionSettings, StateQuery};
use serde_json::{Value, json};

/// Where heartbeats come in.
pub const HEARTBEATS: &str = "heartbeat.received";
/// Where the state of processes goes out.
pub const STATES: &str = "process.state";
/// What the projector knows of each process.
pub const BEATS: &str = "process_beats";

/// The projections of the example, by name.
pub fn projections() -> [(&'static str, Value); 2] {
    let fields = ["processId", "name", "host", "pid", "sid", "cpu_pct", "mem_mb", "status", "last_seen_ts"];
    [
        (
            "processes",
            json!({
                "topic": STATES,
                "collection": "processes",
                "key": "event.payload.processId",
                "fields": fields,
                "tombstone": "event.payload.gone",
                "indexes": [["host", "name"], ["status"]],
            }),
        ),
        (
            "processes-txn",
            json!({
                "topic": STATES,
                "write": [
                    {"collection": "proc_live", "key": "event.payload.processId", "set": "event.payload"},
                    {
                        "collection": "host_stats",
                        "key": "event.payload.host",
                        "inc": {"seen": "1"},
                        "set": {"last_ts": "event.ts"},
                    },
                ],
            }),
        ),
    ]
}

/// Makes everything that the example needs on a hub. What is there already stays.
pub async fn set_up(client: &Client) -> Result<(), ClientError> {
    // The projector looks for processes that were not heard of for a while.
    client
        .put_collection(BEATS, &CollectionSettings::default().with_index(["status", "last_seen_ts"]))
        .await?;
    for (name, definition) in projections() {
        client.put_projection(name, &definition).await?;
    }
    Ok(())
}

/// The state of a process as it was at a time, in epoch milliseconds: what the last event up to then says of it. `None` if
/// nobody knew of it yet. The error is `gone` if the topic does not reach back that far.
pub async fn process_at(
    client: &Client,
    process_id: &str,
    at: u64,
) -> Result<Option<ProcessState>, ClientError> {
    let state = client.state_at(STATES, process_id, &StateQuery::at(at)).await?;
    let parse = |text: &str| serde_json::from_str(text).map_err(ClientError::BadPayload);
    state.map(|state| parse(state.state.get())).transpose()
}
