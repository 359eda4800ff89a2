//! `prombus move`: a hub goes from a folder to MongoDB and back, and nobody who uses it can tell.

use crate::common::{Hub, binary, run};
use crate::mongodb::{configuration, database};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const TTL_MS: u64 = 1_500;
/// What comes true comes true sooner.
const PATIENCE: Duration = Duration::from_secs(60);

fn moving(folder: &Path, from: &str, to: &str) -> Command {
    let mut command = binary(folder);
    command.args(["move", "--from", from, "--to", to]);
    command
}

fn serving(folder: &Path, args: &[&str]) -> Command {
    let mut command = binary(folder);
    command.args(["serve", "--listen", "127.0.0.1:0"]).args(args);
    command
}

/// Counts by what was moved.
fn counted(said: &str, what: &str) -> u64 {
    let lines = said.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut counts = lines.filter(|line| line["what"] == what);
    counts.next().unwrap()["count"].as_u64().unwrap()
}

/// What is there, as users see it: events with all of their fields, and a document with its ETag.
fn seen(hub: &Hub) -> (String, Value, Option<String>) {
    let answer = hub.api().get("/v1/collections/totals/snap/all");
    let etag = answer.header("etag").map(str::to_owned);
    (hub.run(&["export", "orders"]).ok(), answer.is(200), etag)
}

/// What the next two deliveries of a group are, which are acked.
fn taken(hub: &Hub) -> Vec<u64> {
    let lines = hub.run(&["sub", "orders", "--group", "g", "--from", "earliest", "--max", "2"]).ok();
    let payload = |line: &str| serde_json::from_str::<Value>(line).unwrap()["payload"].as_u64().unwrap();
    lines.lines().map(payload).collect()
}

#[test]
fn a_hub_moves_to_mongodb_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    std::fs::write(dir.join("cluster.toml"), configuration(TTL_MS)).unwrap();
    let started = |args: &[&str]| Hub::running(serving(dir, args), tempfile::tempdir().unwrap());
    let hub = started(&["--data", "first"]);
    for n in 0..5 {
        hub.run(&["pub", "orders", &n.to_string(), "--key", "k"]).ok();
    }
    let own = json!({ "id": "0198c0de-0000-7000-8000-000000000001", "payload": 5 }).to_string();
    let publish = |hub: &Hub| hub.api().post("/v1/topics/orders/events", &own);
    publish(&hub).is(201);
    let taken = taken(&hub);
    let left: Vec<u64> = (0..6).filter(|payload| !taken.contains(payload)).collect();
    assert_eq!(left.len(), 4);
    let write = json!({ "writes": [{ "collection": "totals", "key": "all", "set": { "n": 6 } }] });
    hub.api().post("/v1/commit", &write.to_string()).is(200);
    let before = seen(&hub);
    // Neither side may be in use.
    let url = database();
    let refused = run(moving(dir, "first", &url), b"").fails_with(1);
    assert!(refused.contains("in use by another hub"), "{refused}");
    assert!(hub.stop().success());

    let said = run(moving(dir, "first", &url), b"").ok();
    assert!(counted(&said, "events") >= 6 && counted(&said, "documents") >= 1, "{said}");
    let again = run(moving(dir, "first", &url), b"").fails_with(1);
    assert!(again.contains("holds topics or collections"), "{again}");
    let hub = started(&["--store", &url, "--config", "cluster.toml"]);
    assert_eq!(seen(&hub), before);
    assert_eq!(publish(&hub).is(200)["duplicate"], true, "its id is recognised");
    assert_eq!(self::taken(&hub), left[..2], "the group goes on");
    let refused = run(moving(dir, &url, "second"), b"").fails_with(1);
    assert!(refused.contains("hubs use the database"), "{refused}");
    assert!(hub.stop().success());

    // Killed at some moment; then the folder is nobody's, until the move was finished.
    let mut killed = moving(dir, &url, "second").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    while !dir.join("second/MOVING").exists() {
        assert!(begun.elapsed() < PATIENCE, "the move has not begun");
        // Nobody tells when it does.
        std::thread::sleep(Duration::from_millis(1));
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    let refused = run(serving(dir, &["--data", "second"]), b"").fails_with(1);
    assert!(refused.contains("unfinished move"), "{refused}");
    let begun = Instant::now();
    loop {
        let said = run(moving(dir, &url, "second"), b"");
        if said.code == Some(0) {
            break;
        }
        assert!(said.stderr.contains("`prombus move` uses the database"), "{said:?}");
        assert!(begun.elapsed() < PATIENCE, "{said:?}");
    }
    let hub = started(&["--data", "second"]);
    assert_eq!(seen(&hub), before);
    assert_eq!(publish(&hub).is(200)["duplicate"], true);
    assert_eq!(self::taken(&hub), left[2..], "the group goes on");
    assert!(hub.stop().success());
    let mut check = binary(dir);
    check.args(["check", "--data", "second"]);
    run(check, b"").ok();
}
