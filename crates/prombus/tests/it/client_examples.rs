//! The examples of the Rust client run as they are, against a real hub.

use crate::common::Hub;
use serde_json::Value;
use std::collections::HashMap;
use std::process::Command;

/// Builds the examples, and says where they are.
///
/// All of the workspace is named, as the suite does it: then they are there already. For one package alone, cargo would
/// choose other features for what is below it, and compile nearly all of that again.
pub fn build() -> HashMap<String, String> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["build", "--quiet", "--workspace", "--examples", "--message-format", "json"]);
    let output = command.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let messages = output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let built = messages.filter_map(|line| {
        let message: Value = serde_json::from_slice(line).unwrap();
        Some((message["target"]["name"].as_str()?.to_owned(), message["executable"].as_str()?.to_owned()))
    });
    built.collect()
}

/// Runs an example to its end, and gives what it said.
fn run(hub: &Hub, example: &str, args: &[&str]) -> String {
    let output = Command::new(example).args(args).env("PROMBUS_URL", &hub.url).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{example}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn examples_do_what_they_say() {
    let (examples, hub) = (build(), Hub::start());
    let said = run(&hub, &examples["publish"], &[]);
    assert!(said.contains("offset 0") && said.contains("1000 measurements are in"), "{said}");
    let said = run(&hub, &examples["consume"], &["1000"]);
    assert_eq!(said, "1000 measurements, 24.5 degrees on average\n");
    let mut bills: Vec<String> = run(&hub, &examples["typed"], &[]).lines().map(str::to_owned).collect();
    bills.sort_unstable();
    let expected =
        ["order 1: customer-1 owes 100", "order 2: customer-0 owes 200", "order 3: customer-1 owes 300"];
    assert_eq!(bills, expected);
    for _ in 0..2 {
        assert_eq!(run(&hub, &examples["warm_up"], &[]), "{\"kitchen\": 24.0}\n");
    }
}
