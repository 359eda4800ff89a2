//! A hub on MongoDB, as its users see it. `cargo xtask test` starts the replica set; one that is not there is a failure.

use crate::common::{Hub, binary, run};
use serde_json::Value;
use std::sync::atomic::{AtomicUsize, Ordering};

const VARIABLE: &str = "PROMBUS_TEST_MONGODB";
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// The URL of a database that nobody else uses.
fn database() -> String {
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
    let mut hub = Hub::with(&["--store", &url]);
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
    let hub = Hub::with(&["--store", &url]);
    assert_eq!(payloads(&hub, "orders"), before, "one that was stopped neither");
}

#[test]
fn one_hub_has_a_database_at_a_time() {
    let url = database();
    let hub = Hub::with(&["--store", &url]);
    let folder = tempfile::tempdir().unwrap();
    let mut second = binary(folder.path());
    second.args(["serve", "--listen", "127.0.0.1:0", "--store", &url]);
    let stderr = run(second, b"").fails_with(1);
    assert!(stderr.contains("uses this database"), "{stderr}");
    hub.run(&["pub", "orders", "1"]).ok();
}

#[test]
fn what_is_no_database_is_explained() {
    for (url, why) in [
        ("mongodb://127.0.0.1:1/db?serverSelectionTimeoutMS=100", "cannot be used"),
        ("mongodb://127.0.0.1:1/", "names no database"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let mut serve = binary(folder.path());
        serve.args(["serve", "--listen", "127.0.0.1:0", "--store", url]);
        let stderr = run(serve, b"").fails_with(1);
        assert!(stderr.contains(why), "{stderr}");
    }
}
