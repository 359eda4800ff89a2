//! The commands about consumer groups: sub, groups, dlq.

use crate::common::{Hub, Said, binary};
use prombus_client::{AckRequest, Client, NackRequest, PullRequest, Text};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

fn json(line: &str) -> Value {
    serde_json::from_str(line).unwrap()
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(json).collect()
}

fn payloads(text: &str) -> Vec<u64> {
    json_lines(text).iter().map(|event| event["payload"].as_u64().unwrap()).collect()
}

/// A hub with the numbers below `count` in topic `a`.
fn hub_with_numbers(count: u64) -> Hub {
    let hub = Hub::start();
    let lines: String = (0..count).map(|n| format!("{n}\n")).collect();
    hub.run_with(&["pub", "a", "-"], &lines).ok();
    hub
}

/// What group `g` of topic `a` says of its only partition.
fn partition(hub: &Hub) -> Value {
    json(&hub.run(&["groups", "show", "a", "g"]).ok())["partitions"][0].clone()
}

fn spawn(mut command: Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn terminate(child: Child) -> Said {
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    child.wait_with_output().unwrap().into()
}

#[test]
fn what_was_written_is_settled_and_the_next_one_goes_on_behind_it() {
    let hub = hub_with_numbers(5);
    let sub = ["sub", "a", "--group", "g", "--from", "earliest", "--batch", "2", "--max"];
    let said = hub.run(&[&sub[..], &["3"]].concat());
    assert!(said.stderr.contains("3 events of a written for group g"), "{}", said.stderr);
    assert_eq!(payloads(&said.ok()), [0, 1, 2]);
    assert_eq!((&partition(&hub)["next"], &partition(&hub)["lag"]), (&3.into(), &2.into()));
    assert_eq!(payloads(&hub.run(&[&sub[..], &["2"]].concat()).ok()), [3, 4]);
    assert_eq!(partition(&hub)["lag"], 0);
}

#[test]
fn what_is_not_acked_stays_with_the_group() {
    let hub = hub_with_numbers(2);
    let said = hub.run(&["sub", "a", "--group", "g", "--from", "earliest", "--max", "1", "--no-ack"]);
    assert!(said.stderr.contains("nothing is acknowledged"), "{}", said.stderr);
    assert_eq!(payloads(&said.ok()), [0]);
    assert_eq!((&partition(&hub)["next"], &partition(&hub)["in_flight"]), (&0.into(), &1.into()));
}

#[test]
fn lines_can_carry_the_context_and_keep_every_digit() {
    let hub = Hub::start();
    hub.run(&["pub", "a", r#"{"n":1.10,"e":"\u00e9"}"#]).ok();
    let sub = ["sub", "a", "--group", "g", "--from", "earliest", "--max", "1", "--with-ctx"];
    let line = hub.run(&sub).ok();
    assert!(line.contains(r#""payload":{"n":1.10,"e":"\u00e9"}"#), "{line}");
    let ctx = &json(&line)["ctx"];
    assert_eq!(ctx["attempt"], 1);
    assert!(!ctx["lease"].as_str().unwrap().is_empty());
}

#[test]
fn a_signal_ends_it_when_what_was_written_is_settled() {
    let hub = hub_with_numbers(1);
    let mut sub = spawn(hub.command(&["sub", "a", "--group", "g", "--from", "earliest"]));
    let mut line = String::new();
    // Held open, so that it is the signal that ends it.
    let mut stdout = BufReader::new(sub.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    assert_eq!(payloads(&line), [0]);
    terminate(sub).ok();
    assert_eq!(partition(&hub)["next"], 1);
}

#[test]
fn a_waiting_consumer_gets_what_is_published() {
    let hub = hub_with_numbers(1);
    let mut sub = spawn(hub.command(&["sub", "a", "--group", "g", "--from", "earliest", "--max", "2"]));
    let mut lines = BufReader::new(sub.stdout.take().unwrap()).lines();
    assert_eq!(json(&lines.next().unwrap().unwrap())["payload"], 0);
    hub.run(&["pub", "a", "1"]).ok();
    assert_eq!(json(&lines.next().unwrap().unwrap())["payload"], 1);
    assert_eq!(sub.wait().unwrap().code(), Some(0));
}

#[test]
fn a_reader_that_has_enough_ends_it_quietly_and_the_rest_stays() {
    let hub = hub_with_numbers(20_000);
    let mut sub = spawn(hub.command(&["sub", "a", "--group", "g", "--from", "earliest"]));
    let mut line = String::new();
    BufReader::new(sub.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let said = Said::from(sub.wait_with_output().unwrap());
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    assert!(partition(&hub)["lag"].as_u64().unwrap() > 0);
}

#[test]
fn a_slow_reader_keeps_what_it_has_not_read_yet() {
    const EVENTS: usize = 100;
    let lease = Duration::from_millis(1_000);
    let hub = Hub::start();
    // More than a pipe holds, so that the writer waits for its reader.
    let line = format!("\"{}\"\n", "x".repeat(4_000));
    hub.run_with(&["pub", "a", "-"], &line.repeat(EVENTS)).ok();
    let sub = ["sub", "a", "--group", "g", "--from", "earliest", "--max", "100", "--max-attempts", "1"];
    let mut sub = spawn(hub.command(&[&sub[..], &["--ack-timeout-ms", "1000"]].concat()));
    let mut lines = BufReader::new(sub.stdout.take().unwrap()).lines();
    lines.next().unwrap().unwrap();
    // Several leases long: that time passes is the point.
    std::thread::sleep(lease * 3);
    assert_eq!(lines.map(Result::unwrap).count(), EVENTS - 1);
    let said = Said::from(sub.wait_with_output().unwrap());
    assert_eq!(said.stderr, "100 events of a written for group g\n");
    let partition = partition(&hub);
    assert_eq!((&partition["next"], &partition["redelivered"]), (&EVENTS.into(), &0.into()));
    assert_eq!(hub.run(&["dlq", "list", "a"]).ok(), "");
}

#[test]
fn a_hub_that_is_away_is_waited_for_and_said_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = binary(folder.path());
    command.args(["sub", "a", "--group", "g", "--url", "http://127.0.0.1:1"]);
    let mut sub = spawn(command);
    let mut line = String::new();
    let mut stderr = BufReader::new(sub.stderr.take().unwrap());
    stderr.read_line(&mut line).unwrap();
    assert!(line.contains("no hub answers at http://127.0.0.1:1"), "{line}");
    assert!(line.contains("; retrying"), "{line}");
    assert_eq!(terminate(sub).ok(), "");
    let rest: Vec<_> = stderr.lines().map(Result::unwrap).collect();
    assert_eq!(rest, ["0 events of a written for group g"]);
}

#[test]
fn a_topic_that_a_consumer_makes_is_told_of() {
    let hub = Hub::start();
    let mut sub = spawn(hub.command(&["sub", "orders", "--group", "g", "--max", "1"]));
    let mut stderr = BufReader::new(sub.stderr.take().unwrap()).lines();
    let said = stderr.next().unwrap().unwrap();
    assert_eq!(said, "created topic orders, which did not exist; waiting for its first event");
    hub.run(&["pub", "orders", "1"]).ok();
    assert_eq!(payloads(&Said::from(sub.wait_with_output().unwrap()).ok()), [1]);
    assert_eq!(stderr.next().unwrap().unwrap(), "1 event of orders written for group g");

    let strict = Hub::with_file("[topics]\nauto_create = false", &["--store", "memory"]);
    let stderr = strict.run(&["sub", "orders", "--group", "g"]).fails_with(1);
    assert!(stderr.contains("orders") && stderr.contains("(not_found)"), "{stderr}");
    assert!(!stderr.contains("waiting"), "{stderr}");
}

#[test]
fn what_waiting_does_not_mend_is_a_failure() {
    let hub = hub_with_numbers(1);
    let stderr = hub.run(&["sub", "a", "--group", "f", "--filter", "event.payload >"]).fails_with(1);
    assert!(stderr.contains("(bad_filter)"), "{stderr}");
    let sub = ["sub", "a", "--group", "g", "--from", "earliest", "--max", "1", "--ordering"];
    hub.run(&[&sub[..], &["key"]].concat()).ok();
    let stderr = hub.run(&[&sub[..], &["none"]].concat()).fails_with(1);
    assert!(stderr.contains("(group_options)"), "{stderr}");
}

#[test]
fn groups_from_their_making_to_their_end() {
    let hub = hub_with_numbers(4);
    hub.run(&["pub", "b", "1"]).ok();
    for (topic, group) in [("a", "g"), ("a", "h"), ("b", "g")] {
        hub.run(&["sub", topic, "--group", group, "--from", "earliest", "--max", "1"]).ok();
    }
    let names = |args: &[&str]| {
        let listed = json_lines(&hub.run(&[&["groups", "list"], args].concat()).ok());
        let name = |group: &Value| {
            format!("{}/{}", group["topic"].as_str().unwrap(), group["group"].as_str().unwrap())
        };
        listed.iter().map(name).collect::<Vec<_>>()
    };
    assert_eq!(names(&[]), ["a/g", "a/h", "b/g"]);
    assert_eq!(names(&["a"]), ["a/g", "a/h"]);

    for (args, next) in [
        (&["--to", "latest"][..], 4),
        (&["--to", "offset", "--offset", "2", "--partition", "0"], 2),
        (&["--to", "ts", "--ts", "0"], 0),
        (&["--to", "offset:3"], 3),
        (&["--from", "latest"], 4),
        (&["--to", "-1h"], 0),
        (&["--to", "2100-01-01T00:00:00Z"], 4),
        (&["--to", "2026-01-31"], 0),
        (&["--to", "2100-01-01"], 4),
        (&["--to", "earliest"], 0),
    ] {
        let cursor = json(&hub.run(&[&["groups", "reset", "a", "g"], args].concat()).ok());
        assert_eq!(cursor["partitions"][0]["next"], next, "{args:?}");
    }
    let skip = ["groups", "skip", "a", "g", "--partition", "0", "--offset", "0"];
    assert_eq!(json(&hub.run(&skip).ok())["skipped"], true);
    assert_eq!(json(&hub.run(&skip).ok())["skipped"], false);
    assert_eq!(payloads(&hub.run(&["sub", "a", "--group", "g", "--max", "1"]).ok()), [1]);

    hub.run(&["groups", "delete", "a", "g"]).ok();
    assert_eq!(names(&["a"]), ["a/h"]);
    for args in [
        &["groups", "show", "a", "g"][..],
        &["groups", "delete", "a", "g"],
        &["groups", "reset", "a", "g", "--to", "earliest"],
        &["groups", "list", "missing"],
    ] {
        let stderr = hub.run(args).fails_with(1);
        assert!(stderr.contains("(not_found)"), "{args:?}: {stderr}");
    }
}

#[test]
fn a_group_is_changed_and_a_reset_is_tried_first() {
    let hub = hub_with_numbers(4);
    hub.run(&["sub", "a", "--group", "g", "--from", "-1d", "--max", "4"]).ok();
    let alter = |args: &[&str]| hub.run(&[&["groups", "alter", "a", "g"], args].concat());
    let options =
        json(&alter(&["--max-attempts", "9", "--filter", "event.payload > 1"]).ok())["options"].clone();
    assert_eq!((&options["maxAttempts"], &options["filter"]), (&9.into(), &"event.payload > 1".into()));
    let said = hub.run(&["groups", "reset", "a", "g", "--to", "earliest", "--dry-run"]);
    assert!(said.stderr.contains("the group would get 2 events"), "{}", said.stderr);
    let answer = json(&said.ok());
    assert_eq!((&answer["events"], &answer["partitions"][0]["events"]), (&2.into(), &2.into()));
    assert_eq!(partition(&hub)["next"], 4, "nothing has moved");
    assert_eq!(json(&alter(&["--no-filter"]).ok())["options"]["filter"], Value::Null);
    assert!(alter(&[]).fails_with(2).contains("--max-attempts"), "a change says what changes");
    assert!(alter(&["--filter", "event."]).fails_with(1).contains("(bad_filter)"));
}

#[test]
fn a_place_in_one_of_several_partitions_needs_the_option_that_names_it() {
    let hub = Hub::start();
    hub.run(&["topics", "create", "a", "--partitions", "2"]).ok();
    let id = json(&hub.run(&["pub", "a", "1"]).ok())["id"].as_str().unwrap().to_owned();
    hub.run(&["sub", "a", "--group", "g", "--from", "earliest", "--max", "1"]).ok();
    let after = format!("after:{id}");
    for place in ["offset:0", after.as_str()] {
        for args in [&["groups", "reset", "a", "g", "--to", place][..], &["export", "a", "--from", place]] {
            let stderr = hub.run(args).fails_with(1);
            assert!(stderr.contains("2 partitions: name one with --partition"), "{args:?}: {stderr}");
            assert!(stderr.contains("an offset or an event"), "{args:?}: {stderr}");
        }
    }
}

/// Makes a dead letter of the first event of topic `a` that group `g` gets.
async fn fail_one(hub: &Hub) {
    let client = Client::new(&hub.url, None).unwrap();
    let request = PullRequest {
        max: Some(1),
        from: Some("earliest".into()),
        max_attempts: Some(1),
        ..PullRequest::default()
    };
    let pulled = client.pull("a", "g", &request).await.unwrap();
    let lease = Text(pulled.deliveries[0].ctx.lease.as_str().into());
    let nack = vec![NackRequest { lease, reason: Some(Text("broken".into())), delay_ms: None }];
    let results = client.settle("a", "g", &AckRequest { nack, ..AckRequest::default() }).await.unwrap();
    assert!(results[0].ok, "{results:?}");
}

/// What a command writes to a terminal, stdout and stderr alike.
fn on_terminal(hub: &Hub, args: &[&str]) -> String {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "'\\''"));
    let words = [env!("CARGO_BIN_EXE_prombus")].into_iter().chain(args.iter().copied());
    let line = words.map(quoted).collect::<Vec<_>>().join(" ");
    let known = hub.command(&[]);
    let mut terminal = Command::new("script");
    terminal.envs(known.get_envs().filter_map(|(name, value)| Some((name, value?))));
    terminal.args(["--quiet", "--return", "--command", &line, "/dev/null"]).current_dir(hub.folder());
    String::from_utf8(terminal.stdin(Stdio::null()).output().unwrap().stdout).unwrap()
}

#[tokio::test]
async fn a_terminal_is_steered_by_nothing_that_was_published() {
    let hub = Hub::start();
    let (key, payload) = ("\u{1b}[2Jk\u{202e}", "{\"a\u{9b}31m\":\"\u{2066}x\u{7f}\"}");
    hub.run(&["pub", "a", payload, "--key", key]).ok();
    fail_one(&hub).await;
    let write = serde_json::json!({"collection": "c", "key": key, "set": {"b\u{9b}": "\u{200f}y\u{1b}c"}});
    let commit = serde_json::json!({ "writes": [write] }).to_string();
    hub.run_with(&["commit", "-"], &commit).ok();
    let sub = ["sub", "a", "--group", "h", "--from", "earliest", "--max", "1"];
    for (args, seen) in [
        (&["export", "a"][..], r"a\u009b31m"),
        (&sub, r"\u2066x\u007f"),
        (&["dlq", "list", "a"], r"\u001b[2Jk\u202e"),
        (&["list", "c"], r"\u200fy\u001bc"),
        (&["get", "c", key], r"b\u009b"),
        (&["check", "--data", "\u{1b}c\u{9b}"], r"\u001bc\u009b"),
    ] {
        let text = on_terminal(&hub, args);
        let hidden = |c: char| c.is_control() && !matches!(c, '\r' | '\n' | '\t');
        assert!(
            !text.contains(|c| hidden(c) || "\u{202e}\u{2066}\u{200f}".contains(c)),
            "{args:?}: {text:?}"
        );
        assert!(text.contains(seen), "{args:?}: {text:?}");
    }
    assert!(hub.run(&["export", "a"]).ok().contains("a\u{9b}31m"), "for programs, data stays as it is");
    let stderr = hub.run(&["check", "--data", "\u{1b}c\u{9b}"]).stderr;
    assert!(!stderr.contains(['\u{1b}', '\u{9b}']), "{stderr:?}");
}

#[tokio::test]
async fn dead_letters_are_seen_and_replayed_once() {
    let hub = hub_with_numbers(1);
    fail_one(&hub).await;
    let letters = json_lines(&hub.run(&["dlq", "list", "a", "--group", "g"]).ok());
    assert_eq!(letters.len(), 1);
    let (letter, original) = (&letters[0], &letters[0]["payload"]["original"]);
    assert_eq!((&letter["payload"]["group"], &original["payload"]), (&"g".into(), &0.into()));
    assert_eq!(hub.run(&["dlq", "list", "a", "--group", "other"]).ok(), "");
    for id in [&letter["id"], &original["id"]] {
        assert_eq!(&json(&hub.run(&["dlq", "show", "a", id.as_str().unwrap()]).ok()), letter);
    }
    let unknown = "6f1c7a1e-3a52-4c1e-9f0b-1d2e3f405060";
    assert!(hub.run(&["dlq", "show", "a", unknown]).fails_with(1).contains("(not_found)"));

    let replay = |args: &[&str]| {
        let answer = json(&hub.run(&[&["dlq", "replay", "a"], args].concat()).ok());
        (answer["matched"].clone(), answer["replayed"].clone())
    };
    assert_eq!(replay(&["--dry-run"]), (1.into(), 1.into()));
    assert_eq!(json_lines(&hub.run(&["dlq", "list", "a"]).ok()), letters, "a dry run replays nothing");
    assert_eq!(replay(&["--id", letter["id"].as_str().unwrap()]), (1.into(), 1.into()));
    assert_eq!(json(&hub.run(&["dlq", "list", "a"]).ok())["replayed"], true);
    for id in [&letter["id"], &original["id"]] {
        assert_eq!(json(&hub.run(&["dlq", "show", "a", id.as_str().unwrap()]).ok())["replayed"], true);
    }
    let stderr = hub.run(&["dlq", "list", "nowhere"]).fails_with(1);
    assert!(stderr.contains("nowhere") && stderr.contains("(not_found)"), "{stderr}");
    assert_eq!(payloads(&hub.run(&["sub", "a", "--group", "g", "--max", "1"]).ok()), [0]);
    assert_eq!(replay(&[]), (1.into(), 0.into()));
}

#[tokio::test]
async fn a_replay_of_letters_that_are_not_there_fails_unless_there_is_merely_nothing_to_do() {
    let hub = hub_with_numbers(1);
    fail_one(&hub).await;
    hub.run(&["sub", "a", "--group", "idle", "--from", "earliest", "--max", "1"]).ok();
    let unknown = "6f1c7a1e-3a52-4c1e-9f0b-1d2e3f405060";
    let replay = |args: &[&str]| hub.run(&[&["dlq", "replay", "a"], args].concat());
    for (args, told) in [
        (&["--group", "nope"][..], "topic a has no group nope"),
        (&["--group", "nope", "--dry-run"], "topic a has no group nope"),
        (&["--projection", "nope"], "there is no projection nope"),
        (&["--id", unknown], unknown),
        (&["--id", unknown, "--group", "g"], "no dead letter of group g"),
    ] {
        let stderr = replay(args).fails_with(1);
        assert!(stderr.contains(told) && stderr.contains("(not_found)"), "{args:?}: {stderr}");
    }
    for args in [&["--group", "idle"][..], &["--filter", "event.payload.attempts > 7"]] {
        assert_eq!(json(&replay(args).ok())["matched"], 0, "{args:?}");
    }
}
