//! The commands that talk to a hub: publish, topics, export, import, bench.

use crate::client_support::soon;
use crate::client_support::wire::Wire;
use crate::common::{Hub, run};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

fn json(line: &str) -> Value {
    serde_json::from_str(line).unwrap()
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(json).collect()
}

/// The events of an export without what the hub they are in has set.
fn without_places(export: &str) -> Vec<Value> {
    let mut events = json_lines(export);
    for event in &mut events {
        let event = event.as_object_mut().unwrap();
        event.retain(|name, _| !["topic", "partition", "offset", "recorded_ts"].contains(&name.as_str()));
    }
    events
}

const ID: &str = "6f1c7a1e-3a52-4c1e-9f0b-1d2e3f405060";

#[test]
fn an_event_with_everything_comes_back_as_it_was() {
    let hub = Hub::start();
    let args = [
        "pub",
        "a.b",
        r#"{"n": 1.10, "big": 12345678901234567890123, "e": "\u00e9"}"#,
        "--key",
        "k/1",
        "--header",
        "x-a=b",
        "--header",
        "x-c=d=e",
        "--id",
        ID,
        "--ts",
        "1754683200123",
        "--tag",
        "#t",
        "--tag",
        "u",
        "--caused-by",
        "c",
        "--sid",
        "s",
    ];
    let published = json(&hub.run(&args).ok());
    assert_eq!(
        (&published["id"], &published["offset"], &published["duplicate"]),
        (&ID.into(), &0.into(), &false.into())
    );
    assert_eq!(json(&hub.run(&args).ok())["duplicate"], true);

    let exported = hub.run(&["export", "a.b"]).ok();
    assert_eq!(exported.lines().count(), 1);
    for part in [
        r#""payload":{"n":1.10,"big":12345678901234567890123,"e":"\u00e9"}"#,
        r#""headers":{"x-a":"b","x-c":"d=e"}"#,
        r##""tags":["#t","u"]"##,
        r#""caused_by":["c"]"#,
        r#""sid":"s""#,
        r#""key":"k/1""#,
        r#""ts":1754683200123"#,
    ] {
        assert!(exported.contains(part), "{part} is not in {exported}");
    }
    let stderr = hub.run(&["pub", "a.b", "2", "--key", "k/1", "--id", ID]).fails_with(1);
    assert!(stderr.contains("(id_conflict)"), "{stderr}");
}

#[test]
fn conditional_publishes() {
    let hub = Hub::start();
    let first = json(&hub.run(&["pub", "a", "1", "--key", "k", "--expect-last-id", "none"]).ok());
    let stderr = hub.run(&["pub", "a", "2", "--key", "k", "--expect-last-id", "none"]).fails_with(1);
    assert!(stderr.contains("(expectation_failed)"), "{stderr}");
    hub.run(&["pub", "a", "2", "--key", "k", "--expect-last-id", first["id"].as_str().unwrap()]).ok();
}

#[test]
fn lines_of_stdin_are_published_in_order_and_counted() {
    let hub = Hub::start();
    let input: String = (0..2_500).map(|n| format!("{{\"n\":{n}}}\n")).collect();
    let said = hub.run_with(&["pub", "a", "-", "--key", "k"], &input);
    assert!(said.stderr.contains("2500 events published to a"), "{}", said.stderr);
    let receipts = json_lines(&said.ok());
    assert_eq!(receipts.len(), 2_500);
    assert_eq!(receipts[2_499]["offset"], 2_499);
    let exported = json_lines(&hub.run(&["export", "a"]).ok());
    assert!(exported.iter().enumerate().all(|(n, event)| event["payload"]["n"] == n && event["key"] == "k"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_whose_answer_was_lost_are_sent_again_and_are_in_once() {
    let hub = Hub::start();
    let wire = Wire::to(hub.url.split_once("://").unwrap().1).await;
    wire.lose_answers();
    let mut command = hub.command(&["pub", "a", "-"]);
    command.env("PROMBUS_URL", wire.url());
    let publishing = tokio::task::spawn_blocking(move || run(command, b"1\n"));
    soon("the answer is lost", wire.an_answer_was_lost()).await;
    wire.cut();
    let said = soon("it ends", publishing).await.unwrap();
    assert!(said.stderr.contains("; retrying"), "{}", said.stderr);
    assert!(said.stderr.contains("1 event published to a"), "{}", said.stderr);
    assert_eq!(json(&said.ok())["duplicate"], true, "the first time had worked");
    let exported = tokio::task::block_in_place(|| hub.run(&["export", "a"])).ok();
    assert_eq!(json_lines(&exported).len(), 1);

    // Where nobody is there from the start, waiting is not worth while.
    let mut command = hub.command(&["pub", "a", "-"]);
    command.env("PROMBUS_URL", "http://127.0.0.1:1");
    let stderr = tokio::task::block_in_place(|| run(command, b"1\n")).fails_with(1);
    assert!(stderr.contains("lines 1 to 1 were not published"), "{stderr}");
}

#[test]
fn a_bad_line_of_stdin_is_named_and_the_lines_before_it_are_in() {
    let hub = Hub::start();
    let said = hub.run_with(&["pub", "a", "-"], "1\n\n2\n{oops\n3\n");
    assert!(said.stderr.contains("2 events published to a"), "{}", said.stderr);
    assert!(said.stderr.contains("line 4: not JSON"), "{}", said.stderr);
    said.fails_with(1);
    assert_eq!(hub.run(&["export", "a"]).ok().lines().count(), 2);
}

#[test]
fn topics_from_their_making_to_their_end() {
    let hub = Hub::start();
    let made =
        json(&hub.run(&["topics", "create", "a.b", "--partitions", "3", "--durability", "interval"]).ok());
    assert_eq!(
        (&made["topic"], &made["partitions"], &made["durability"]),
        (&"a.b".into(), &3.into(), &"interval".into())
    );
    let stderr = hub.run(&["topics", "create", "a.b"]).fails_with(1);
    assert!(stderr.contains("topics alter a.b"), "{stderr}");
    let altered = json(&hub.run(&["topics", "alter", "a.b", "--retention-days", "3", "--compaction"]).ok());
    assert_eq!(
        (&altered["retention_ms"], &altered["compaction"], &altered["partitions"]),
        (&259_200_000.into(), &true.into(), &3.into())
    );
    let stderr = hub.run(&["topics", "alter", "a.b", "--partitions", "2"]).fails_with(1);
    assert!(stderr.contains("(bad_request)"), "{stderr}");
    let stderr = hub.run(&["topics", "alter", "missing", "--partitions", "2"]).fails_with(1);
    assert!(stderr.contains("topic missing does not exist"), "{stderr}");
    hub.run(&["pub", "c", "1"]).ok();
    let names: Vec<_> = json_lines(&hub.run(&["topics", "list"]).ok());
    assert_eq!(names.iter().map(|topic| topic["topic"].as_str().unwrap()).collect::<Vec<_>>(), ["a.b", "c"]);
    assert_eq!(json(&hub.run(&["topics", "show", "c"]).ok())["events"], 1);
    hub.run(&["topics", "delete", "a.b"]).ok();
    for args in [&["topics", "show", "a.b"][..], &["topics", "delete", "a.b"], &["export", "a.b"]] {
        let stderr = hub.run(args).fails_with(1);
        assert!(stderr.contains("(not_found)"), "{args:?}: {stderr}");
    }
}

#[test]
fn exports_can_be_narrowed() {
    let hub = Hub::start();
    hub.run(&["topics", "create", "a", "--partitions", "2"]).ok();
    let lines: String =
        (0..10).map(|n| format!("{{\"payload\":{n},\"key\":\"k{}\",\"ts\":{}}}\n", n % 2, 100 + n)).collect();
    hub.run_with(&["import", "a"], &lines).ok();
    let payloads = |args: &[&str]| {
        let exported = hub.run(&[&["export", "a"], args].concat()).ok();
        let mut payloads: Vec<_> =
            json_lines(&exported).iter().map(|e| e["payload"].as_u64().unwrap()).collect();
        payloads.sort_unstable();
        payloads
    };
    assert_eq!(payloads(&[]), (0..10).collect::<Vec<_>>());
    assert_eq!(payloads(&["--key", "k1"]), [1, 3, 5, 7, 9]);
    assert_eq!(payloads(&["--from-ts", "103", "--to-ts", "105"]), [3, 4, 5]);
    assert_eq!(payloads(&["--from", "103", "--to", "1970-01-01T00:00:00.105Z"]), [3, 4, 5]);
    assert_eq!(payloads(&["--from", "offset:0", "--partition", "0"]), payloads(&["--partition", "0"]));
    assert_eq!(payloads(&["--from", "latest"]), [0; 0]);
    assert_eq!(payloads(&["--filter", "event.payload > 7"]), [8, 9]);
    let split = payloads(&["--partition", "0"]).len() + payloads(&["--partition", "1"]).len();
    assert_eq!(split, 10);
    let stderr = hub.run(&["export", "a", "--filter", "event.payload >"]).fails_with(1);
    assert!(stderr.contains("(bad_filter)"), "{stderr}");
}

#[test]
fn export_and_import_make_a_copy_digit_for_digit_and_only_once() {
    let hub = Hub::start();
    let plain: String = [
        r#"{"payload":{"n":1.10,"b":12345678901234567890123,"s":"\u00e9\n"},"key":"k\"ö","tags":["t"]}"#,
        r#"{"payload":null,"key":"gone","headers":{"x-a":"b"},"ts":5}"#,
        r#"{"payload":[1e400,-0.0],"sid":"s","caused_by":["c"]}"#,
        r#"{"payload":"text","id":"6f1c7a1e-3a52-4c1e-9f0b-1d2e3f405060"}"#,
    ]
    .map(|line| format!("{line}\n"))
    .concat();
    let said = hub.run_with(&["import", "first"], &plain);
    assert!(said.stderr.contains("4 events imported into first"), "{}", said.stderr);
    assert_eq!(said.ok(), "");
    let first = hub.run(&["export", "first"]).ok();
    assert!(first.contains(r#"{"n":1.10,"b":12345678901234567890123,"s":"\u00e9\n"}"#), "{first}");
    assert!(first.contains("[1e400,-0.0]"), "{first}");

    let again = |topic| {
        hub.run_with(&["import", topic], &first).ok();
        hub.run(&["export", topic]).ok()
    };
    let second = again("second");
    // Texts are compared, since parsing would lose the digits that this is about.
    let payload = |line: &str| line[line.find("\"payload\":").unwrap()..].to_owned();
    let id = |line: &str| line[..line.find(",\"ts\"").unwrap()].to_owned();
    let seen = |text: &str| text.lines().map(|line| (id(line), payload(line))).collect::<Vec<_>>();
    assert_eq!(seen(&second), seen(&first));
    assert_eq!(again("second"), second, "ids are kept, so a second import adds nothing");

    let new = "{\"payload\":1}\n{\"payload\":2}\n";
    for (input, told) in [
        (first.clone(), "0 events imported into second; 4 already existed\n"),
        (format!("{first}{new}"), "2 events imported into second; 4 already existed\n"),
        (format!("{new}{first}nonsense\n"), "2 events imported into second; 4 already existed\n"),
        // What the hub refuses ends a request in which some already existed.
        (
            format!("{new}{first}{{\"payload\":1,\"id\":\"nope\"}}\n"),
            "2 events imported into second; 4 already existed\n",
        ),
        (new.to_owned(), "2 events imported into second\n"),
    ] {
        let said = hub.run_with(&["import", "second"], &input);
        assert!(said.stderr.contains(told), "{}", said.stderr);
    }
}

#[test]
fn a_large_copy_goes_through_in_one_pipe() {
    let hub = Hub::start();
    hub.run(&["bench", "--events", "20000", "--keys", "100", "--topics", "1", "--json"]).ok();
    let mut export =
        hub.command(&["export", "bench-0000"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let import =
        hub.command(&["import", "copy"]).stdin(export.stdout.take().unwrap()).stderr(Stdio::piped()).output();
    let stderr = String::from_utf8(import.unwrap().stderr).unwrap();
    assert!(stderr.contains("20000 events imported into copy"), "{stderr}");
    assert!(export.wait().unwrap().success());
    let (original, copy) = (hub.run(&["export", "bench-0000"]).ok(), hub.run(&["export", "copy"]).ok());
    assert_eq!(without_places(&original), without_places(&copy));
}

#[test]
fn an_import_says_at_which_line_it_failed() {
    let hub = Hub::start();
    for (name, bad, what) in [
        ("syntax", r#"{"payload":1"#, "not an event"),
        ("unknown", r#"{"payload":1,"x":1}"#, "unknown field"),
        ("hub", r#"{"payload":1,"headers":{"X":"1"}}"#, "(bad_request)"),
        ("id", r#"{"payload":1,"id":"nope"}"#, "(bad_request)"),
    ] {
        let input = format!("{{\"payload\":1}}\n\n{{\"payload\":2}}\n{bad}\n{{\"payload\":3}}\n");
        let said = hub.run_with(&["import", name], &input);
        assert_eq!(said.stderr.matches("line 4: ").count(), 1, "{name}: {}", said.stderr);
        assert!(said.stderr.contains(what), "{name}: {}", said.stderr);
        assert!(said.stderr.contains(&format!("2 events imported into {name}")), "{}", said.stderr);
        said.fails_with(1);
        assert_eq!(hub.run(&["export", name]).ok().lines().count(), 2);
    }
}

#[test]
fn a_reader_that_has_enough_ends_an_export_quietly() {
    let hub = Hub::start();
    hub.run(&["bench", "--events", "20000"]).ok();
    let mut export =
        hub.command(&["export", "bench-0000"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(export.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("{\"id\""), "{line}");
    let output = export.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8(output.stderr).unwrap().as_str()), (Some(0), ""));
}

#[test]
fn bench_reports_each_mode_in_one_line() {
    let hub = Hub::start();
    for (args, mode) in [
        (&["--events", "1050", "--batch", "100", "--topics", "3", "--own-ids", "--keys", "7"][..], "publish"),
        (&["--mode", "read", "--events", "2000", "--topics", "3"], "read"),
        (&["--mode", "export", "--events", "2000", "--topics", "3"], "export"),
    ] {
        let report = json(&hub.run(&[&["bench", "--connections", "4"], args].concat()).ok());
        assert_eq!(report["mode"], mode);
        assert!(
            report["events"].as_u64().unwrap() >= 1050 && report["events_per_s"].as_f64().unwrap() > 0.0,
            "{report}"
        );
        assert!(report["p50_us"].as_u64().unwrap() <= report["p99_us"].as_u64().unwrap(), "{report}");
    }
    let topics = json_lines(&hub.run(&["topics", "list"]).ok());
    assert_eq!(topics.iter().map(|topic| topic["events"].as_u64().unwrap()).sum::<u64>(), 1050);
    let event = hub.run(&["export", "bench-0000"]).ok();
    assert_eq!(json(event.lines().next().unwrap())["payload"].to_string().len(), 250);
    let stderr = hub.run(&["bench", "--mode", "read", "--prefix", "none"]).fails_with(1);
    assert!(stderr.contains("404"), "{stderr}");
}
