//! The topics, projections, groups and collections that the hub gets, and their names.

use crate::api::Api;
use serde_json::{Value, json};

/// The topic that everything counts.
pub const IN: &str = "state.in";
/// How many partitions it has.
pub const PARTITIONS: u32 = 3;
/// The topic that consumers publish to, an event for each that they took.
pub const OUT: &str = "state.out";
/// The topic that commits with a `commit_id` publish to.
pub const SINGLES: &str = "state.singles";
/// What changed in `latest`.
pub const LATEST_FEED: &str = "latest.changed";
/// What changed in `done`.
pub const DONE_FEED: &str = "done.changed";
/// The group whose members commit.
pub const GROUP: &str = "work";
/// The projections.
pub const PROJECTIONS: [&str; 2] = ["counting", "latest"];
/// The collections that projections own.
pub const PROJECTED: [&str; 5] = ["counts", "sums", "pairs", "recent", "latest"];
/// The fields of `latest`.
pub const FIELDS: [&str; 4] = ["p", "n", "v", "rev"];
/// Leases end after this, so that what a member keeps to itself comes back within a round.
const ACK_TIMEOUT_MS: u64 = 1_000;
/// No event is abandoned: a hub that is killed again and again is not its fault.
const MAX_ATTEMPTS: u32 = 1_000;

/// Counts by key and by partition, twice the same in a pair, and what came last over all partitions, all of it in one
/// commit.
fn counting() -> Value {
    let add = json!({"seen": "1", "sum": "event.payload.v"});
    let of_partition = |name: &str| format!("\"{name}\" + string(event.partition)");
    json!({"topic": IN, "retries": 1, "write": [
        {"collection": "counts", "key": "event.key", "inc": add, "set": {"last": "event.payload.v"}},
        {"collection": "sums", "key": of_partition("p"), "inc": add},
        {"collection": "pairs", "key": of_partition("l"), "inc": {"n": "1"}},
        {"collection": "pairs", "key": of_partition("r"), "inc": {"n": "1"}},
        {"collection": "recent", "key": "\"v\" + string(event.payload.v)", "inc": {"seen": "1"},
         "set": {"n": "event.payload.n", "rev": "event.payload.rev", "p": "event.payload.p"}},
    ]})
}

/// The greatest version of each key.
fn latest() -> Value {
    json!({"topic": IN, "retries": 1, "collection": "latest", "key": "event.key", "fields": FIELDS,
        "tombstone": "event.payload.gone", "version": "event.payload.rev", "indexes": [["v"], ["p", "n"]],
        "changefeed": LATEST_FEED})
}

/// Makes everything.
pub async fn make(api: &Api) -> Result<(), String> {
    let topics = [(IN, PARTITIONS, "sync"), (OUT, 1, "interval"), (SINGLES, 1, "sync")];
    for (topic, partitions, durability) in topics {
        let body = json!({"partitions": partitions, "durability": durability});
        api.put(&format!("/v1/topics/{topic}"), &body).await?;
    }
    let group = json!({"from": "earliest", "ordering": "none", "ackTimeoutMs": ACK_TIMEOUT_MS,
        "maxAttempts": MAX_ATTEMPTS, "backoffMs": 1});
    api.put(&format!("/v1/topics/{IN}/groups/{GROUP}"), &group).await?;
    api.put("/v1/collections/done", &json!({"changefeed": DONE_FEED, "indexes": [["n"]]})).await?;
    api.put("/v1/projections/counting", &counting()).await?;
    api.put("/v1/projections/latest", &latest()).await.map(drop)
}
