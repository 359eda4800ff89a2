//! `prombus dev`: sample heartbeats go in, live state comes out, and it ends cleanly.

use crate::common::Hub;
use serde_json::Value;

/// What a command prints, once it prints what is wanted.
fn until(hub: &Hub, args: &[&str], wanted: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    loop {
        let said = hub.run(args);
        let lines: Vec<Value> =
            said.stdout.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        if said.code == Some(0) && wanted(&lines) {
            return lines;
        }
    }
}

#[test]
fn sample_processes_are_there_and_beat() {
    let hub = Hub::dev(&[]);
    let processes = until(&hub, &["list", "processes", "status=alive"], |all| all.len() == 9);
    assert!(processes.iter().all(|process| process["_key"] == process["processId"]), "{processes:?}");
    until(&hub, &["get", "host_stats", "web1"], |all| all[0]["seen"].as_u64() > Some(3));
    assert_eq!(hub.stop().code(), Some(0));
}

#[test]
fn without_samples_only_ones_own_processes_are_there() {
    let hub = Hub::dev(&["--no-sample"]);
    let beat = r#"{"host":"here","name":"mine","pid":7,"cpu_pct":1.5,"mem_mb":8}"#;
    hub.run(&["pub", "heartbeat.received", beat, "--key", "here:mine:7"]).ok();
    let mine = until(&hub, &["get", "processes", "here:mine:7"], |all| !all.is_empty());
    assert_eq!(mine[0]["status"], "alive");
    assert_eq!(until(&hub, &["list", "processes"], |_| true).len(), 1);
    assert_eq!(hub.stop().code(), Some(0));
}
