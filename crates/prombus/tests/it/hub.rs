//! `prombus serve`: starting, refusing to start, and ending.

use crate::common::{Hub, Said, binary, run};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

fn serve(file: &str, args: &[&str]) -> Said {
    let folder = tempfile::tempdir().unwrap();
    if !file.is_empty() {
        std::fs::write(folder.path().join("prombus.toml"), file).unwrap();
    }
    let mut command = binary(folder.path());
    command.arg("serve").args(args);
    run(command, b"")
}

#[test]
fn the_ready_line_names_the_real_port_and_the_store() {
    let hub = Hub::start();
    assert!(hub.ready.contains("store=memory"), "{}", hub.ready);
    assert!(!hub.url.ends_with(":0"), "{}", hub.url);
    assert_eq!(hub.run(&["topics", "list"]).ok(), "");
}

#[test]
fn logs_can_be_json() {
    let hub = Hub::with(&["--store", "memory", "--log-format", "json"]);
    let line: serde_json::Value = serde_json::from_str(&hub.ready).unwrap();
    assert_eq!(line["level"], "INFO");
    assert_eq!((line["message"].as_str(), line["url"].as_str()), (Some("ready"), Some(hub.url.as_str())));
}

#[test]
fn sigterm_and_sigint_end_it_with_0() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut hub = Hub::start();
        hub.signal(signal);
        assert_eq!(hub.wait().code(), Some(0));
        hub.wait_for("stopped");
    }
}

#[test]
fn a_request_under_way_is_answered_before_the_end() {
    let mut hub = Hub::start();
    let mut stream = hub.api().connect();
    stream
        .write_all(b"POST /publish/a HTTP/1.1\r\nhost: localhost\r\ncontent-length: 8\r\n\r\n{\"a\"")
        .unwrap();
    // An answer on another connection shows that the hub has had time to take the first request up.
    hub.run(&["pub", "b", "1"]).ok();
    hub.signal(Signal::TERM);
    hub.wait_for("SIGTERM");
    stream.write_all(b":1} ").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    assert_eq!(hub.wait().code(), Some(0));
}

#[test]
fn a_client_that_stands_still_does_not_keep_it_from_ending() {
    let mut hub = Hub::start();
    let mut stream = hub.api().connect();
    stream.write_all(b"POST /publish/a HTTP/1.1\r\nhost: localhost\r\ncontent-length: 8\r\n\r\n{").unwrap();
    hub.run(&["pub", "b", "1"]).ok();
    let told = Instant::now();
    hub.signal(Signal::TERM);
    assert_eq!(hub.wait().code(), Some(0));
    assert!(told.elapsed() < Duration::from_secs(10), "{:?}", told.elapsed());
}

#[test]
fn it_does_not_listen_where_others_can_reach_it() {
    for address in ["0.0.0.0:0", ":0", "[::]:0"] {
        let stderr = serve("", &["--store", "memory", "--listen", address]).fails_with(2);
        assert!(stderr.contains("--insecure"), "{address}: {stderr}");
    }
    let mut hub = Hub::with(&["--store", "memory", "--insecure"]);
    hub.signal(Signal::TERM);
    assert_eq!(hub.wait().code(), Some(0));
}

#[test]
fn an_address_that_is_taken_or_wrong_is_told() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let stderr = serve("", &["--store", "memory", "--listen", &address]).fails_with(1);
    assert!(stderr.contains(&address), "{stderr}");
    let stderr = serve("", &["--store", "memory", "--listen", "7070"]).fails_with(2);
    assert!(stderr.contains("host:port"), "{stderr}");
}

#[test]
fn mistakes_in_the_file_are_named() {
    for (file, hint) in [
        (
            "[server]\nlissten = \"127.0.0.1:0\"",
            "line 2: unknown key server.lissten; the nearest known one is server.listen",
        ),
        ("[auth]\nmode = \"jwt\"", "needs one of secret"),
        ("[topics.\"a\"]\npartitions = \"many\"", "line 2"),
        ("[server", "line 1"),
    ] {
        let stderr = serve(file, &["--store", "memory"]).fails_with(2);
        assert!(stderr.contains(hint), "{file}: {stderr}");
        assert!(stderr.contains("prombus.toml"), "{file}: {stderr}");
    }
    let stderr = serve("", &["--config", "missing.toml"]).fails_with(2);
    assert!(stderr.contains("missing.toml"), "{stderr}");
    let stderr = serve("", &["--store", "redis://h/db"]).fails_with(2);
    assert!(stderr.contains("is not a store"), "{stderr}");
}

#[test]
fn topics_of_the_file_are_there_from_the_start() {
    let file = "[store]\nmemory = true\n[topics]\nauto_create = false\n[topics.\"process.state\"]\npartitions = 8\ncompaction = true";
    let hub = Hub::with_file(file, &[]);
    let shown: serde_json::Value =
        serde_json::from_str(&hub.run(&["topics", "show", "process.state"]).ok()).unwrap();
    assert_eq!((&shown["partitions"], &shown["compaction"]), (&8.into(), &true.into()));
    let stderr = hub.run(&["pub", "other", "1"]).fails_with(1);
    assert!(stderr.contains("(not_found)"), "{stderr}");
}

#[test]
fn limits_of_the_file_hold() {
    let hub = Hub::with_file("[limits]\nevent_bytes = 100\n[store]\nmemory = true", &[]);
    hub.run(&["pub", "a", "1"]).ok();
    let long = format!("\"{}\"", "x".repeat(100));
    let stderr = hub.run(&["pub", "a", &long]).fails_with(1);
    assert!(stderr.contains("limits.event_bytes = 100 (too_large)"), "{stderr}");
}
