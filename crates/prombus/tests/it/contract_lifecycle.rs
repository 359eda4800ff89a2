//! What stays over restarts, who may open a data folder, and what the commands do with a hub.

use crate::common;
use crate::contract_support;
use crate::contract_support::{Call, Site, column, encoded};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::time::{Duration, Instant};

/// Everything that a reader can ask about a topic.
fn everything(site: &Site, topic: &str) -> Vec<String> {
    let api = &site.api;
    let mut all = vec![
        api.get(&format!("/v1/topics/{topic}")).text().to_owned(),
        api.page(topic, "limit=10000").text().to_owned(),
        api.export(topic, "").text().to_owned(),
        api.export(topic, "from=ts&ts=1700000000050").text().to_owned(),
    ];
    for key in 0..5 {
        all.push(api.get(&format!("/v1/topics/{topic}/keys/k{key}")).text().to_owned());
        all.push(api.page(topic, &format!("key=k{key}")).text().to_owned());
    }
    for event in api.all(topic, "").iter().step_by(13) {
        let id = event["id"].as_str().unwrap();
        all.push(api.get(&format!("/v1/topics/{topic}/events/{id}")).text().to_owned());
    }
    all
}

#[test]
fn everything_is_the_same_after_a_stop_and_after_kill_9() {
    let mut site = Site::start();
    let settings = r#"{"partitions":3,"dedupe_window_ms":100000,"durability":"interval"}"#;
    site.api.put("/v1/topics/t", settings).is(201);
    let events: Vec<Value> = (0..200)
        .map(|n| {
            json!({
                "payload": {"n": n, "text": "x".repeat(n)}, "key": format!("k{}", n % 5), "ts": 1_700_000_000_000_u64 + (n as u64),
                "headers": {"x-n": n.to_string()}, "tags": ["a"], "sid": "s", "caused_by": ["0198c0de-0000-7000-8000-000000000001"],
            })
        })
        .collect();
    site.api.events("t", &json!(events).to_string()).is(201);
    site.api.publish("u", "1").is(201);
    let before = everything(&site, "t");
    site.restart();
    assert_eq!(everything(&site, "t"), before);
    site.crash();
    assert_eq!(everything(&site, "t"), before);
    // And it goes on where it was.
    let next = site.api.get("/v1/topics/t/keys/k0").is(200);
    let answer = site.api.publish("t?key=k0", "1").is(201);
    assert_eq!(answer["partition"], next["partition"]);
    let in_partition = site.api.all("t", &format!("partition={}", answer["partition"]));
    assert_eq!(in_partition.last().unwrap()["id"], answer["id"]);
    assert!(in_partition.iter().enumerate().all(|(offset, event)| event["offset"] == offset));
}

#[test]
fn kill_9_under_load_loses_nothing_that_was_answered() {
    let mut site = Site::start();
    let mut answered: Vec<Value> = Vec::new();
    for _ in 0..4 {
        let api = site.api.clone();
        let stop = std::sync::atomic::AtomicBool::new(false);
        let from_now = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..4)
                .map(|writer| {
                    let (api, stop) = (&api, &stop);
                    scope.spawn(move || publish_until_it_breaks(api, writer, stop))
                })
                .collect();
            // Enough is answered, so it is in the middle of its work.
            while site.api.metric("events_published_total{topic=\"t\"}").unwrap_or(0.0) < 300.0 {}
            site.hub().signal(rustix::process::Signal::KILL);
            stop.store(true, std::sync::atomic::Ordering::Release);
            writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect::<Vec<_>>()
        });
        answered.extend(from_now);
        site.crash();
        let there = site.api.all("t", "limit=10000");
        assert!(there.iter().enumerate().all(|(offset, event)| event["offset"] == offset));
        for answer in &answered {
            let offset = usize::try_from(answer["offset"].as_u64().unwrap()).unwrap();
            assert_eq!(there[offset]["id"], answer["id"]);
        }
    }
    assert!(answered.len() > 300);
}

/// What was answered before the hub was gone.
fn publish_until_it_breaks(
    api: &contract_support::Api,
    writer: usize,
    stop: &std::sync::atomic::AtomicBool,
) -> Vec<Value> {
    let mut answers = Vec::new();
    while !stop.load(std::sync::atomic::Ordering::Acquire) {
        let body = format!("[{{\"payload\":{writer}}},{{\"payload\":{writer}}}]");
        match api.try_call(&Call::json("POST", "/v1/topics/t/events", &body)) {
            Ok(answer) => answers.extend(answer.is(201)["events"].as_array().unwrap().iter().cloned()),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => break,
            Err(_) => {}
        }
    }
    answers
}

#[test]
fn sigterm_ends_a_busy_hub_with_0_within_10_seconds() {
    let mut site = Site::start();
    site.api.publish("t", "1").is(201);
    // Someone is connected and silent, someone else is in the middle of an upload.
    let idle = site.api.connect();
    let mut slow = site.api.connect();
    slow.write_all(b"POST /v1/topics/t/events HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-ndjson\r\ncontent-length: 99999\r\n\r\n{\"pay").unwrap();
    let mut kept = site.api.connect();
    kept.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut block = [0; 1024];
    assert!(kept.read(&mut block).unwrap() > 0);
    let started = Instant::now();
    site.stop();
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    drop((idle, slow, kept));
}

#[test]
fn a_second_hub_is_kept_off_the_folder() {
    let site = Site::start();
    let mut command = common::binary(site.hub().folder());
    command.args(["serve", "--listen", "127.0.0.1:0", "--data", site.data()]);
    let stderr = common::run(command, b"").fails_with(1);
    assert!(!stderr.is_empty());
    site.api.publish("t", "1").is(201);
}

#[test]
fn a_folder_in_good_order_passes_its_check() {
    let mut site = Site::start();
    site.api.publish("t", "1").is(201);
    site.crash();
    site.api.publish("t", "1").is(201);
    site.stop();
    let mut command = common::binary(std::path::Path::new(site.data()));
    command.args(["check", "--data", site.data()]);
    common::run(command, b"").ok();
}

#[test]
fn what_is_exported_can_be_imported_with_nothing_lost() {
    let site = Site::start();
    let api = &site.api;
    api.make("t", 3);
    let payloads = [
        "1.10",
        "123456789012345678901234567890",
        r#"{"b":1,"a":"\u00e9 é"}"#,
        "null",
        "1e400",
        "-0",
        r#""\/""#,
        r#"{"a":1,"a":2}"#,
    ];
    for (n, payload) in payloads.iter().enumerate() {
        let event = format!(
            r#"{{"payload":{payload},"key":"k{n}","ts":{},"sid":"s{n}","headers":{{"x-a":"{n}"}},"tags":["t"],"caused_by":["0198c0de-0000-7000-8000-000000000001"]}}"#,
            1000 + n
        );
        api.events("t", &event).is(201);
        api.publish("t", payload).is(201);
    }
    let exported = site.hub().run(&["export", "t"]).ok();
    assert_eq!(exported.lines().count(), payloads.len() * 2);
    assert_eq!(exported, api.export("t", "").text());
    api.make("u", 3);
    for _ in 0..2 {
        // The ids go with it, so a second import adds nothing.
        site.hub().run_with(&["import", "u"], &exported).ok();
        let copied = site.hub().run(&["export", "u"]).ok();
        let mut expected: Vec<String> = exported.lines().map(portable).collect();
        let mut found: Vec<String> = copied.lines().map(portable).collect();
        expected.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, expected);
    }
}

/// A line of an export without what is the hub's own: topic, place and the time of taking.
fn portable(line: &str) -> String {
    let fields: std::collections::BTreeMap<String, Box<serde_json::value::RawValue>> =
        serde_json::from_str(line).unwrap();
    let own = ["topic", "partition", "offset", "recorded_ts"];
    fields
        .iter()
        .filter(|(name, _)| !own.contains(&name.as_str()))
        .map(|(name, value)| format!("{name}={value};"))
        .collect()
}

#[test]
fn an_import_that_meets_a_bad_line_fails_and_says_which() {
    let site = Site::start();
    let stderr = site
        .hub()
        .run_with(&["import", "t"], "{\"payload\":1}\n{\"payload\":\n{\"payload\":2}\n")
        .fails_with(1);
    assert!(stderr.contains('2'), "{stderr}");
}

#[test]
fn an_export_of_nothing_fails_with_1_and_a_wrong_flag_with_2() {
    let site = Site::start();
    let said = site.hub().run(&["export", "none"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(1), ""));
    assert!(!said.stderr.is_empty());
    site.hub().run(&["export", "none", "--nonsense"]).fails_with(2);
    site.hub().run(&["export"]).fails_with(2);
    site.hub().run(&["nonsense"]).fails_with(2);
    // A payload that is no JSON is a failure or wrong usage, as one likes.
    assert!(matches!(site.hub().run(&["pub", "t", "{"]).code, Some(1 | 2)));
    let mut command = site.hub().command(&["topics", "list"]);
    command.env("PROMBUS_URL", "http://127.0.0.1:1");
    assert!(!common::run(command, b"").fails_with(1).is_empty());
}

#[test]
fn the_commands_publish_and_show_topics() {
    let site = Site::start();
    let answer = site.hub().run(&["pub", "t", r#"{"a": 1.10}"#, "--key", "k", "--header", "x-a=b"]).ok();
    let line: Value = serde_json::from_str(answer.trim()).unwrap();
    assert_eq!((&line["topic"], &line["offset"]), (&json!("t"), &json!(0)));
    site.hub().run_with(&["pub", "t", "-"], "[1]").ok();
    let events = site.api.all("t", "");
    assert_eq!((&events[0]["key"], &events[0]["headers"]), (&json!("k"), &json!({"x-a": "b"})));
    assert_eq!(column(&events, "payload")[1], &json!([1]));
    assert!(site.api.export("t", "").text().contains(r#""payload":{"a":1.10}"#));
    site.hub().run(&["topics", "create", "made", "--partitions", "4"]).ok();
    assert_eq!(site.api.get("/v1/topics/made").is(200)["partitions"], 4);
    site.hub().run(&["topics", "alter", "made", "--partitions", "6"]).ok();
    let shown: Value = serde_json::from_str(&site.hub().run(&["topics", "show", "made"]).ok()).unwrap();
    assert_eq!(shown["partitions"], 6);
    let listed = site.hub().run(&["topics", "list"]).ok();
    let names: Vec<Value> = listed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(names.len(), 2, "{listed}");
    site.hub().run(&["topics", "delete", "made"]).ok();
    site.api.get("/v1/topics/made").fails(404, "not_found");
    site.hub().run(&["topics", "show", "made"]).fails_with(1);
}

#[test]
fn every_command_has_help_with_an_example() {
    let folder = tempfile::tempdir().unwrap();
    for command in ["serve", "pub", "topics", "export", "import", "check", "bench"] {
        let mut help = common::binary(folder.path());
        help.args([command, "--help"]);
        let text = common::run(help, b"").ok();
        assert!(
            text.to_lowercase().contains("example") && text.contains(&format!("prombus {command}")),
            "{text}"
        );
    }
}

#[test]
fn an_unknown_setting_is_named_with_the_nearest_known_one() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("prombus.toml"), "[limits]\nevent_byte = 5\n").unwrap();
    let mut command = common::binary(folder.path());
    command.args(["serve", "--listen", "127.0.0.1:0"]);
    let said = common::run(command, b"");
    assert!(matches!(said.code, Some(1 | 2)), "{said:?}");
    assert!(said.stderr.contains("event_byte") && said.stderr.contains("event_bytes"), "{said:?}");
}

#[test]
fn topics_of_the_configuration_file_have_their_settings() {
    let site = Site::with_file("[topics.\"process.state\"]\npartitions = 8\ncompaction = true\n");
    site.api.publish("process.state?key=a", "1").is(201);
    let shown = site.api.get("/v1/topics/process.state").is(200);
    assert_eq!((&shown["partitions"], &shown["compaction"]), (&json!(8), &json!(true)));
}

#[test]
fn others_are_not_let_in_without_auth() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = common::binary(folder.path());
    command.args(["serve", "--listen", "0.0.0.0:0", "--store", "memory"]);
    let said = common::run(command, b"");
    assert!(matches!(said.code, Some(1 | 2)), "{said:?}");
    assert!(said.stderr.contains("insecure"), "{said:?}");
}

#[test]
fn a_cursor_and_an_id_work_across_growth_and_restart() {
    let mut site = Site::start();
    let lines = "{\"payload\":1}\n".repeat(50);
    site.api.ndjson("t", lines.as_bytes()).is(201);
    let next = site.api.page("t", "limit=10").is(200)["next"].as_str().unwrap().to_owned();
    site.api.make("t", 4);
    site.api.ndjson("t", lines.as_bytes()).is(201);
    site.crash();
    let mut page = site.api.page("t", &format!("cursor={}", encoded(&next))).is(200);
    let mut count = 0;
    loop {
        count += page["events"].as_array().unwrap().len();
        let Some(next) = page["next"].as_str() else { break };
        page = site.api.page("t", &format!("cursor={}", encoded(next))).is(200);
    }
    assert_eq!(count, 90);
}

#[test]
fn a_reader_that_stops_reading_holds_up_nobody() {
    let site = Site::start();
    let line = format!("{{\"payload\":\"{}\"}}\n", "x".repeat(100_000));
    site.api.ndjson("t", line.repeat(300).as_bytes()).is(201);
    let mut readers = Vec::new();
    for _ in 0..6 {
        let mut stream = site.api.connect();
        stream
            .write_all(b"GET /v1/topics/t/events HTTP/1.1\r\nhost: localhost\r\naccept: application/x-ndjson\r\n\r\n")
            .unwrap();
        let mut block = [0; 100];
        assert!(stream.read(&mut block).unwrap() > 0);
        readers.push(stream);
    }
    for _ in 0..20 {
        site.api.publish("t", "1").is(201);
    }
    let call = Call::new("GET", "/v1/topics/t/events?limit=1");
    assert_eq!(site.api.call(&call).is(200)["count"], 1);
}

#[test]
fn a_log_of_many_megabytes_is_still_found_by_id_key_and_time() {
    const BATCHES: u64 = 24;
    const EACH: u64 = 800;
    let mut site = Site::start();
    site.api.make("t", 2);
    let id = |n: u64| {
        uuid::Uuid::from_u128(u128::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835) | 1)
            .to_string()
    };
    let filler = "x".repeat(9000);
    let event = |n: u64| {
        format!(
            r#"{{"payload":{{"n":{n},"x":"{filler}"}},"id":"{}","key":"k{}","ts":{}}}"#,
            id(n),
            n % 1000,
            1_700_000_000_000 + n * 10
        )
    };
    for batch in 0..BATCHES {
        let events: Vec<String> = (batch * EACH..(batch + 1) * EACH).map(event).collect();
        site.api.events("t", &format!("[{}]", events.join(","))).is(201);
    }
    let last = BATCHES * EACH;
    for round in 0..3 {
        let api = &site.api;
        for n in (0..last).step_by(997).chain([last - 1]) {
            let found = api.get(&format!("/v1/topics/t/events/{}", id(n))).is(200);
            assert_eq!(found["payload"]["n"], n, "{round}");
            // Still a duplicate, and still a conflict.
            let again = api.events("t", &event(n)).is(200);
            assert_eq!((&again["offset"], &again["partition"]), (&found["offset"], &found["partition"]));
            api.events("t", &event(n).replace("\"n\"", "\"m\"")).fails(409, "id_conflict");
        }
        for key in (0..1000_u64).step_by(211) {
            let newest = (0..last).rev().find(|n| n % 1000 == key).unwrap();
            assert_eq!(api.get(&format!("/v1/topics/t/keys/k{key}")).is(200)["payload"]["n"], newest);
            let history = api.all("t", &format!("key=k{key}"));
            let expected: Vec<u64> = (0..last).filter(|n| n % 1000 == key).collect();
            let found: Vec<u64> =
                history.iter().map(|event| event["payload"]["n"].as_u64().unwrap()).collect();
            assert_eq!(found, expected);
        }
        for n in (0..last).step_by(3989) {
            let query = format!("from=ts&ts={}&limit=1&partition=0", 1_700_000_000_000 + n * 10 - 3);
            let page = api.page("t", &query).is(200);
            let found = page["events"][0]["payload"]["n"].as_u64();
            let skipped = found.map_or(n..last, |found| n..found);
            assert!(found.is_none_or(|found| found >= n), "{found:?} before {n}");
            for between in skipped {
                let event = api.get(&format!("/v1/topics/t/events/{}", id(between))).is(200);
                assert_eq!(event["partition"], 1, "{between} was passed over");
            }
        }
        if round == 0 { site.restart() } else { site.crash() }
    }
    let exported = site.api.export("t", "");
    assert_eq!(exported.text().lines().count(), usize::try_from(last).unwrap());
}
