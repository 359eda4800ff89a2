//! A hub whose journal has far more parts than the system lets it open files.

use crate::common::{Hub, binary};
use crate::durability_support::{Answered, Http, array, check};
use prombus_fixtures::ANY_PORT;
use std::process::Command;

/// How many files the hub may have open.
const FILES: usize = 96;
const PARTS: usize = 3 * FILES;
/// An array of so many events, of so many bytes each, nearly fills a part.
const LARGE: (usize, usize) = (10, 6_000);

/// A hub that may open few files: the shell lowers the limit, and becomes the hub.
fn limited() -> Hub {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("prombus.toml"), "[store]\npart_bytes = 65536\n[topics.a]\n").unwrap();
    let hub = binary(folder.path());
    let mut command = Command::new("sh");
    command.current_dir(folder.path()).envs([ANY_PORT]).arg("-c");
    // What the tester's environment says must not reach this one either.
    for (name, _) in hub.get_envs().filter(|(_, value)| value.is_none()) {
        command.env_remove(name);
    }
    command.arg(format!("ulimit -n {FILES} && exec \"$0\" serve --data data")).arg(hub.get_program());
    Hub::running(command, folder)
}

#[test]
fn a_hub_that_may_open_few_files_publishes_restarts_and_reads() {
    let mut hub = limited();
    let log = hub.log().text();
    assert!(log.contains("connections are served instead of 10000"), "{log}");
    let mut answered = Answered::default();
    let mut http = Http::connect(&hub.url);
    for number in 0..PARTS {
        let payloads: Vec<String> =
            (0..LARGE.0).map(|index| format!("{number} {index} {}", "x".repeat(LARGE.1))).collect();
        let (status, answer) = http.call("POST", "/v1/topics/a/events", &array(&payloads)).unwrap();
        assert_eq!(status, 201, "{answer}");
        answered.take(&payloads, &answer);
    }
    let journal = hub.folder().join("data/journal");
    let names = std::fs::read_dir(&journal).unwrap().map(|entry| entry.unwrap().path());
    let parts = names.filter(|path| path.extension().is_some_and(|ext| ext == "part")).count();
    assert!(parts > 2 * FILES, "there are only {parts} parts");
    answered.assert_there(&http.export("a"));
    // In the middle of whatever it did, and in peace.
    hub.kill();
    hub.start_again();
    answered.assert_there(&Http::connect(&hub.url).export("a"));
    hub.signal(rustix::process::Signal::TERM);
    assert_eq!(hub.wait().code(), Some(0));
    check(&hub.folder().join("data")).ok();
    hub.start_again();
    answered.assert_there(&Http::connect(&hub.url).export("a"));
    assert_eq!(hub.stop().code(), Some(0));
}
