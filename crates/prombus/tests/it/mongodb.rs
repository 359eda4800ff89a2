//! A hub on MongoDB, as its users see it. `cargo xtask test` starts the replica set; one that is not there is a failure.

use crate::common::{Hub, binary, run};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};

const VARIABLE: &str = "PROMBUS_TEST_MONGODB";
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// The URL of a database that nobody else uses.
pub fn database() -> String {
    let Ok(set) = std::env::var(VARIABLE) else {
        panic!("{VARIABLE} is not set: run `cargo xtask test`, or `cargo xtask mongo cargo test ...`")
    };
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    set.replacen("/?", &format!("/hub-{}-{n}?", std::process::id()), 1)
}

fn payloads(hub: &Hub, topic: &str) -> Vec<Value> {
    let lines = hub.run(&["export", topic]).ok();
    let event = |line: &str| serde_json::from_str::<Value>(line).unwrap()["payload"].clone();
    lines.lines().map(event).collect()
}

#[test]
fn what_was_answered_outlives_the_hub() {
    let url = database();
    let mut hub = hub_on(&url);
    for n in 0..5 {
        hub.run(&["pub", "orders", &n.to_string(), "--key", "k"]).ok();
    }
    let taken = hub.run(&["sub", "orders", "--group", "g", "--from", "earliest", "--max", "2"]).ok();
    assert_eq!(taken.lines().count(), 2);
    let before = payloads(&hub, "orders");
    assert_eq!(before, [0, 1, 2, 3, 4]);
    hub.kill();
    hub.start_again();
    assert_eq!(payloads(&hub, "orders"), before, "a hub that was killed has lost nothing");
    let left = hub.run(&["sub", "orders", "--group", "g", "--max", "3"]).ok();
    let left: Vec<Value> = left.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(left.len(), 3, "{left:?}");
    assert!(hub.stop().success());
    let hub = hub_on(&url);
    assert_eq!(payloads(&hub, "orders"), before, "one that was stopped neither");
}

/// What hubs on one database have in common.
const SECRET: &str = "what only these hubs know";
/// A hub that is silent for so long is missed.
const TTL_MS: u64 = 1_500;

pub fn configuration(ttl_ms: u64) -> String {
    format!("[cluster]\nsecret = {SECRET:?}\nhub_ttl_ms = {ttl_ms}\n")
}

fn hub_on(url: &str) -> Hub {
    Hub::with_file(&configuration(TTL_MS), &["--store", url])
}

/// Hubs on one database.
struct Cluster {
    url: String,
    hubs: Vec<Hub>,
}

impl Cluster {
    fn start(count: usize) -> Self {
        Self::with_ttl(count, TTL_MS)
    }

    fn with_ttl(count: usize, ttl_ms: u64) -> Self {
        let url = database();
        let hubs = (0..count).map(|_| Hub::with_file(&configuration(ttl_ms), &["--store", &url])).collect();
        Self { url, hubs }
    }

    fn any(&self, n: usize) -> &Hub {
        &self.hubs[n % self.hubs.len()]
    }

    /// A topic with a group, and the hub that it is at home on.
    fn topic(&self) -> (String, usize) {
        let topic = "orders".to_owned();
        self.any(0).run(&["topics", "create", &topic]).ok();
        self.any(0).api().put(&format!("/v1/topics/{topic}/groups/g"), r#"{"from":"earliest"}"#).is(201);
        let ops = self.any(0).api().get("/ops").is(200);
        let home =
            ops["topics"].as_array().unwrap().iter().find(|one| one["topic"] == *topic).unwrap()["home"]
                .clone();
        let url =
            ops["hubs"].as_array().unwrap().iter().find(|hub| hub["id"] == home).unwrap()["url"].clone();
        let at = self.hubs.iter().position(|hub| hub.url == *url.as_str().unwrap());
        (topic, at.unwrap_or_else(|| panic!("no hub is at {url}")))
    }
}

/// Says what became of a delivery.
fn acked(hub: &Hub, topic: &str, delivery: &Value) -> Value {
    let ack = json!({ "ack": [delivery["ctx"]["lease"]] }).to_string();
    let answer = hub.api().post(&format!("/v1/topics/{topic}/groups/g/ack"), &ack).is(200);
    answer["results"][0].clone()
}

/// What is there; waits until there is something.
fn pulled(hub: &Hub, topic: &str) -> Vec<Value> {
    let pull = json!({ "max": 10, "waitMs": 20_000, "from": "earliest" }).to_string();
    let answer = hub.api().post(&format!("/v1/topics/{topic}/groups/g/pull"), &pull).is(200);
    answer["deliveries"].as_array().unwrap().clone()
}

#[test]
fn three_hubs_are_one() {
    let cluster = Cluster::start(3);
    let topics: Vec<String> = (0..9).map(|n| format!("orders{n}")).collect();
    for (n, topic) in topics.iter().enumerate() {
        for payload in 0..3 {
            cluster.any(n).run(&["pub", topic, &payload.to_string(), "--key", &payload.to_string()]).ok();
        }
        let taken = pulled(cluster.any(n + 1), topic);
        assert_eq!(taken.len(), 3);
        for (at, delivery) in taken.iter().enumerate() {
            assert_eq!(acked(cluster.any(at), topic, delivery)["ok"], true);
        }
        // A subscription by WebSocket, through whichever hub.
        cluster.any(n).run(&["pub", topic, "3"]).ok();
        let left = cluster.any(n + 2).run(&["sub", topic, "--group", "g", "--max", "1"]).ok();
        assert_eq!(serde_json::from_str::<Value>(&left).unwrap()["payload"], 3);
    }
    for hub in &cluster.hubs {
        let ops = hub.api().get("/ops").is(200);
        let hubs = ops["hubs"].as_array().unwrap();
        assert_eq!(hubs.len(), 3, "{ops}");
        let counted: u64 = hubs.iter().map(|hub| hub["topics"].as_u64().unwrap()).sum();
        assert!(counted >= 9, "{ops}");
        let names: Vec<&Value> = hubs.iter().map(|hub| &hub["id"]).collect();
        assert!(
            ops["topics"].as_array().unwrap().iter().all(|topic| names.contains(&&topic["home"])),
            "{ops}"
        );
        assert_eq!(ops["groups"].as_array().unwrap().len(), 9, "{ops}");
        assert_eq!(hub.api().metric("cluster_hubs"), Some(3.0));
        hub.api().get("/readyz").is(200);
    }
}

#[test]
fn a_hub_that_is_told_to_end_hands_over_at_once() {
    // Nobody is missed while this test runs.
    let mut cluster = Cluster::with_ttl(3, 3_600_000);
    let (topic, home) = cluster.topic();
    for payload in 0..3 {
        cluster.any(home).run(&["pub", &topic, &payload.to_string(), "--key", &payload.to_string()]).ok();
    }
    let before = pulled(cluster.any(home + 1), &topic);
    assert_eq!(before.len(), 3);
    assert!(cluster.hubs.remove(home).stop().success());
    assert_eq!(acked(cluster.any(0), &topic, &before[0])["error"], "lease_expired");
    let after = pulled(cluster.any(1), &topic);
    assert_eq!(after.len(), 3, "{after:?}");
    assert_eq!(after[0]["ctx"]["attempt"], 1, "nothing was tried");
    assert_eq!(acked(cluster.any(0), &topic, &after[0])["ok"], true);
}

#[test]
fn a_hub_that_is_killed_is_missed_in_time() {
    let mut cluster = Cluster::start(3);
    let (topic, home) = cluster.topic();
    cluster.any(home + 1).run(&["pub", &topic, "1"]).ok();
    assert_eq!(pulled(cluster.any(home + 1), &topic).len(), 1);
    cluster.hubs[home].kill();
    cluster.hubs.remove(home);
    let after = pulled(cluster.any(0), &topic);
    assert_eq!(after.len(), 1, "{after:?}");
    assert_eq!(acked(cluster.any(1), &topic, &after[0])["ok"], true);
}

#[test]
fn a_hub_that_stalled_knows_what_it_has_lost() {
    let cluster = Cluster::start(2);
    let (topic, home) = cluster.topic();
    let (stalled, other) = (cluster.any(home), cluster.any(home + 1));
    for n in 0..3 {
        other.run(&["pub", &topic, &n.to_string(), "--key", &n.to_string()]).ok();
    }
    let before = pulled(stalled, &topic);
    assert_eq!(before.len(), 3);
    stalled.signal(Signal::STOP);
    // It is missed meanwhile.
    let after = pulled(other, &topic);
    assert_eq!(after.len(), 3, "its leases are void: {after:?}");
    stalled.signal(Signal::CONT);
    assert_eq!(acked(stalled, &topic, &before[0])["error"], "lease_expired");
    for (delivery, hub) in after.iter().zip([stalled, other, stalled]) {
        assert_eq!(acked(hub, &topic, delivery)["ok"], true);
    }
    stalled.run(&["pub", &topic, "3"]).ok();
    let left = pulled(stalled, &topic);
    assert_eq!(left.len(), 1, "it takes part again, and nothing is doubled: {left:?}");
    assert_eq!(left[0]["event"]["payload"], 3);
}

#[test]
fn a_hub_with_another_secret_does_not_start() {
    let cluster = Cluster::start(1);
    for (file, why) in
        [("[cluster]\nsecret = \"another secret than theirs\"", "cluster.secret"), ("", "cluster.secret")]
    {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("prombus.toml"), file).unwrap();
        let mut second = binary(folder.path());
        second.args(["serve", "--listen", "127.0.0.1:0", "--store", &cluster.url]);
        let said = run(second, b"");
        assert!(said.stderr.contains(why), "{said:?}");
        assert_ne!(said.code, Some(0));
    }
}

#[test]
fn what_is_no_database_is_explained() {
    for (url, why) in [
        ("mongodb://127.0.0.1:1/db?serverSelectionTimeoutMS=100", "cannot be used"),
        ("mongodb://127.0.0.1:1/", "names no database"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("prombus.toml"), configuration(TTL_MS)).unwrap();
        let mut serve = binary(folder.path());
        serve.args(["serve", "--listen", "127.0.0.1:0", "--store", url]);
        let stderr = run(serve, b"").fails_with(1);
        assert!(stderr.contains(why), "{stderr}");
    }
}
