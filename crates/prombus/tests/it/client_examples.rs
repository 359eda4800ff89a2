//! The examples of the Rust client run as they are, against a real hub.

use crate::common::Hub;
use std::process::Command;

/// Runs an example to its end, and gives what it said.
fn run(hub: &Hub, name: &str, args: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO"));
    command.args(["run", "--quiet", "--package", "prombus-client", "--example", name, "--"]).args(args);
    command.current_dir(env!("CARGO_MANIFEST_DIR")).env("PROMBUS_URL", &hub.url);
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn examples_do_what_they_say() {
    let hub = Hub::start();
    let said = run(&hub, "publish", &[]);
    assert!(said.contains("offset 0") && said.contains("1000 measurements are in"), "{said}");
    let said = run(&hub, "consume", &["1000"]);
    assert_eq!(said, "1000 measurements, 24.5 degrees on average\n");
    let mut bills: Vec<String> = run(&hub, "typed", &[]).lines().map(str::to_owned).collect();
    bills.sort_unstable();
    let expected =
        ["order 1: customer-1 owes 100", "order 2: customer-0 owes 200", "order 3: customer-1 owes 300"];
    assert_eq!(bills, expected);
}
