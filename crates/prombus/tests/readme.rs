//! The tour in the README works when it is pasted.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod common;

use common::Hub;
use std::path::Path;
use std::process::Command;

/// The shell blocks of the tour.
fn blocks() -> Vec<String> {
    let readme =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md")).unwrap();
    let start = readme.find("## A tour in five minutes").unwrap();
    let tour = &readme[start..start + readme[start + 3..].find("\n## ").unwrap()];
    tour.split("```sh\n").skip(1).map(|block| block.split("```").next().unwrap().to_owned()).collect()
}

/// Runs a block as a user would who sits in the project's folder, except that the hub has a port of its own.
fn paste(block: &str, hub: &Hub, folder: &Path) -> String {
    let address = hub.url.strip_prefix("http://").unwrap();
    let script = block.replace("localhost:7070", address);
    // Other tests have hubs too.
    let script = script.replace("pkill -KILL -x prombus", "true");
    let mut command = Command::new("bash");
    command.args(["-euo", "pipefail", "-c", &script]).current_dir(folder).env("PROMBUS_URL", &hub.url);
    common::run(command, b"").ok()
}

#[test]
fn the_tour_works_when_pasted() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let bin = folder.path().join("target/release");
    std::fs::create_dir_all(&bin).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_prombus"), bin.join("prombus")).unwrap();
    let [before, after] = blocks().try_into().unwrap();
    assert!(before.contains("pkill -KILL -x prombus"), "the tour ends with a crash");

    let args = ["--data", data.to_str().unwrap()];
    let hub = Hub::with(&args);
    let said = paste(&before, &hub, folder.path());
    let count = |what: &str| said.matches(what).count();
    assert!(said.contains(r#""cpu_pct":12.50"#), "digit for digit: {said}");
    assert_eq!(count(r#""duplicate":true"#), 1, "one retry is recognised: {said}");
    assert_eq!(count(r#""error":"expectation_failed""#), 1, "one of two writers loses: {said}");
    assert!(said.contains(r#""count":2"#), "an array is published: {said}");
    drop(hub);

    let hub = Hub::with(&args);
    let said = paste(&after, &hub, folder.path());
    assert!(said.contains(r#""count":3"#) && said.contains(r#""cpu_pct":12.50"#), "it is all there: {said}");
}
