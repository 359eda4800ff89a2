//! How long events stay, and how they go by hand.

use crate::auth_support::until;
use crate::common::Hub;
use crate::contract_support::{Call, Site, encoded, fields};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Publishes so many events of a key.
fn publish(site: &Site, topic: &str, key: &str, count: usize) {
    for number in 0..count {
        site.api.publish(&format!("{topic}?key={key}"), &number.to_string()).is(201);
    }
}

fn offsets(site: &Site, topic: &str) -> Vec<u64> {
    site.api.all(topic, "").iter().map(|event| event["offset"].as_u64().unwrap()).collect()
}

#[test]
fn a_pass_by_hand_says_what_it_did() {
    let site = Site::start();
    site.api.put("/v1/topics/t", r#"{"compaction":true,"partitions":2}"#).is(201);
    publish(&site, "t", "a", 5);
    let answer = site.api.post("/v1/topics/t/clean", "").is(200);
    assert_eq!(fields(&answer), ["partitions", "reclaimed_bytes", "reclaimed_events"]);
    assert_eq!((&answer["reclaimed_events"], offsets(&site, "t")), (&json!(4), vec![4]));
    assert!(answer["reclaimed_bytes"].as_u64().unwrap() > 4 * 64);
    let partitions = answer["partitions"].as_array().unwrap();
    assert_eq!(partitions.len(), 2);
    assert_eq!(fields(&partitions[0]), ["first", "horizon_ts", "next", "partition"]);
    let shown = site.api.get("/v1/topics/t").is(200);
    assert_eq!(shown["bounds"], answer["partitions"]);
    let again = site.api.post("/v1/topics/t/clean", "{}").is(200);
    assert_eq!((&again["reclaimed_events"], &again["reclaimed_bytes"]), (&json!(0), &json!(0)));
    site.api.post("/v1/topics/t/clean", r#"{"deep":true}"#).fails(400, "bad_request");
    site.api.post("/v1/topics/t/clean?deep=true", "").fails(400, "bad_request");
    site.api.post("/v1/topics/none/clean", "").fails(404, "not_found");
    let groups = site.api.get("/v1/topics/t/groups").is(200);
    assert_eq!(groups["groups"], json!([]), "whoever cleans is no group");
}

#[test]
fn a_partition_is_trimmed_by_hand() {
    let mut site = Site::start();
    publish(&site, "t", "a", 5);
    let bounds =
        |answer: &Value| (answer["partition"].clone(), answer["first"].clone(), answer["next"].clone());
    let answer = site.api.post("/v1/topics/t/trim", r#"{"partition":0,"before":3}"#).is(200);
    assert_eq!(bounds(&answer), (json!(0), json!(3), json!(5)));
    assert!(answer["horizon_ts"].as_u64().unwrap() > 0, "what the key was before is not told any more");
    assert_eq!(offsets(&site, "t"), [3, 4]);
    site.api.get("/v1/topics/t/events?from=offset&offset=1").fails(410, "gone");
    let before = |before: u64| {
        site.api.post("/v1/topics/t/trim", &json!({"partition": 0, "before": before}).to_string())
    };
    assert_eq!(before(1).is(200), answer, "what is gone may be asked for");
    let error = before(6).fails(400, "bad_request");
    assert_eq!(error["next"], 5);
    assert!(error["message"].as_str().unwrap().contains("ends at offset 5"), "{error}");
    for bad in [
        "",
        "{}",
        r#"{"partition":0}"#,
        r#"{"before":0}"#,
        r#"{"partition":0,"before":-1}"#,
        r#"{"partition":0,"before":"3"}"#,
        r#"{"partition":1,"before":0}"#,
        r#"{"partition":0,"before":0,"after":1}"#,
    ] {
        site.api.post("/v1/topics/t/trim", bad).fails_as(&[400]);
    }
    site.api.post("/v1/topics/none/trim", r#"{"partition":0,"before":0}"#).fails(404, "not_found");
    before(5).is(200);
    site.restart();
    assert!(offsets(&site, "t").is_empty());
    site.api.publish("t?key=a", "1").is(201);
    assert_eq!(offsets(&site, "t"), [5]);
}

#[test]
fn retention_is_said_in_one_way() {
    let site = Site::start();
    site.api.put("/v1/topics/t", r#"{"retention_days":3}"#).is(201);
    assert_eq!(site.api.get("/v1/topics/t").is(200)["retention_ms"], 259_200_000);
    site.api.put("/v1/topics/t", r#"{"retention_ms":5}"#).is(200);
    assert_eq!(site.api.get("/v1/topics/t").is(200)["retention_ms"], 5);
    let error =
        site.api.put("/v1/topics/t", r#"{"retention_ms":5,"retentionDays":1}"#).fails(400, "bad_request");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("retention_ms") && message.contains("retention_days"), "{message}");
}

#[test]
fn topics_are_cleaned_by_themselves() {
    let site = Site::with_file(
        "[store]\nclean_every_ms = 20\n[topics.aged]\nretention_ms = 1\n[topics.sized]\nretention_bytes = 140\n[topics.keyed]\ncompaction = true\n",
    );
    for topic in ["aged", "sized", "keyed", "kept"] {
        publish(&site, topic, "k", 10);
    }
    until("what is too old is gone", || offsets(&site, "aged").is_empty());
    until("what does not fit is gone", || offsets(&site, "sized") == [8, 9]);
    until("only the latest is left", || offsets(&site, "keyed") == [9]);
    assert_eq!(offsets(&site, "kept").len(), 10);
    let metric = |name: &str| site.api.metric(name);
    until("passes are counted", || metric("cleaning_duration_ms_count").is_some_and(|count| count >= 3.0));
    assert_eq!(metric(r#"topic_first_offset{topic="aged",partition="0"}"#), Some(10.0));
    assert_eq!(metric(r#"topic_first_offset{topic="keyed",partition="0"}"#), Some(0.0));
    assert!(metric(r#"topic_horizon_ts{topic="keyed",partition="0"}"#).is_some_and(|ts| ts > 0.0));
    assert_eq!(metric(r#"topic_first_offset{topic="kept",partition="0"}"#), None, "nothing goes there");
    site.api.post("/v1/topics/kept/trim", r#"{"partition":0,"before":3}"#).is(200);
    assert_eq!(metric(r#"topic_first_offset{topic="kept",partition="0"}"#), Some(3.0), "this went by hand");
    site.ends_well();
}

#[test]
fn dead_letters_can_be_let_go() {
    let site = Site::start();
    publish(&site, "t", "k", 2);
    let group = crate::groups_support::Group::of(&site, "t", "g");
    group.make(&json!({"from": "earliest", "maxAttempts": 1, "ordering": "none"}));
    for delivery in group.gather(&json!({"max": 2}), 2) {
        group.nack(&delivery);
    }
    until("they are there", || {
        site.api.get("/v1/topics/dlq.t").status == 200 && offsets(&site, "dlq.t").len() == 2
    });
    site.api.post("/v1/topics/dlq.t/trim", r#"{"partition":0,"before":1}"#).is(200);
    assert_eq!(offsets(&site, "dlq.t"), [1]);
    site.api.put("/v1/topics/dlq.t", r#"{"retention_bytes":1}"#).is(200);
    assert_eq!(site.api.post("/v1/topics/dlq.t/clean", "").is(200)["reclaimed_events"], 1);
}

#[test]
fn snapshot_passes_are_shown() {
    let site = Site::with_file("[topics.t]\nsnapshot = { topic = \"t.snapshot\", every_ms = 20 }\n");
    publish(&site, "t", "k", 10);
    let lag = || site.api.metric(r#"snapshot_lag_events{topic="t"}"#);
    until("the pass is over", || lag() == Some(0.0) && !offsets(&site, "t.snapshot").is_empty());
    let passes = || site.api.metric("snapshot_duration_ms_count");
    until("it is counted", || passes().is_some_and(|passes| passes >= 1.0));
    assert_eq!(site.api.metric(r#"snapshot_lag_events{topic="t.snapshot"}"#), None);
    let ops = site.api.get("/ops?topic=t").is(200);
    let shown = &ops["topics"][0]["snapshot"];
    assert_eq!((&shown["topic"], &shown["lag"]), (&json!("t.snapshot"), &json!(0)));
    assert!(["pass", "since"].iter().all(|field| shown[field].as_u64() > Some(0)), "{shown}");
    assert_eq!(site.api.get("/ops?topic=t.snapshot").is(200)["topics"][0]["snapshot"], Value::Null);
    site.ends_well();
}

#[test]
fn a_key_is_forgotten() {
    let mut site = Site::start();
    site.api.put("/v1/topics/t", r#"{"partitions":3}"#).is(201);
    let keys = ["web1:stt:4242", "a/b c?%ä", ""];
    for key in keys {
        publish(&site, "t", &encoded(key), 3);
    }
    publish(&site, "t", "other", 2);
    let forget = |site: &Site, key: &str| {
        site.api.call(&Call::new("DELETE", &format!("/v1/topics/t/keys/{}", encoded(key))))
    };
    for key in keys {
        let ids: Vec<Value> = site
            .api
            .all("t", &format!("key={}", encoded(key)))
            .into_iter()
            .map(|mut event| event["id"].take())
            .collect();
        assert_eq!((ids.len(), forget(&site, key).is(200)), (3, json!({"events": 3})));
        assert_eq!(forget(&site, key).is(200), json!({"events": 0}));
        site.api.get(&format!("/v1/topics/t/keys/{}", encoded(key))).fails(404, "not_found");
        site.api
            .get(&format!("/v1/topics/t/state/{}?at=9999999999999", encoded(key)))
            .fails(404, "not_found");
        for id in ids {
            site.api.get(&format!("/v1/topics/t/events/{}", id.as_str().unwrap())).fails(404, "not_found");
        }
    }
    assert_eq!(offsets(&site, "t").len(), 2);
    site.restart();
    assert_eq!(offsets(&site, "t").len(), 2);
    site.api.publish(&format!("t?key={}", encoded(keys[0])), "1").is(201);
    assert_eq!(site.api.get(&format!("/v1/topics/t/keys/{}", encoded(keys[0]))).is(200)["payload"], 1);
    site.api.call(&Call::new("DELETE", "/v1/topics/none/keys/k")).fails(404, "not_found");
    site.api.call(&Call::new("DELETE", "/v1/topics/t/keys/k?now=true")).fails(400, "bad_request");
    site.ends_well();
}

/// The files below a folder that hold some bytes.
fn files_with(folder: &Path, bytes: &[u8]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files_with(&path, bytes));
        } else if std::fs::read(&path).unwrap_or_default().windows(bytes.len()).any(|window| window == bytes)
        {
            found.push(path);
        }
    }
    found
}

#[test]
fn after_a_pass_no_file_has_anything_of_a_forgotten_key() {
    let mut site = Site::with_file("[store]\nclean_every_ms = 3600000\n");
    let definition = json!({"topic": "t", "collection": "people", "key": "event.key", "indexes": [["said"]]});
    site.api.put("/v1/projections/people", &definition.to_string()).is(201);
    let said = |what: &str, n: u64| json!({"said": what, "n": n}).to_string();
    for n in 0..40 {
        site.api.publish("t?key=ada%40example.org", &said("in confidence", n)).is(201);
        site.api.publish("t?key=bob%40example.org", &said("nothing", n)).is(201);
    }
    let group = crate::groups_support::Group::of(&site, "t", "g");
    group.make(&json!({"from": "earliest", "maxAttempts": 1, "ordering": "none"}));
    for delivery in group.gather(&json!({"max": 20}), 20) {
        group.nack(&delivery);
    }
    until("they are dead letters", || {
        site.api.get("/v1/topics/dlq.t").status == 200 && offsets(&site, "dlq.t").len() == 20
    });
    site.api.get("/v1/collections/people/snap/ada%40example.org?min_offset=78").is(200);
    // One more is out, and others were read ahead.
    let out = group.gather(&json!({"max": 2}), 2);
    let answer = site.api.call(&Call::new("DELETE", "/v1/topics/t/keys/ada%40example.org")).is(200);
    assert_eq!(answer, json!({"events": 40}));
    site.api.get("/v1/collections/people/snap/ada%40example.org").fails(404, "not_found");
    site.api.get("/v1/topics/t/state/ada%40example.org?at=9999999999999").fails(404, "not_found");
    assert_eq!((offsets(&site, "t").len(), offsets(&site, "dlq.t").len()), (40, 10));
    for delivery in &out {
        group.nack(delivery);
    }
    site.api.post("/v1/topics/t/clean", "").is(200);
    let data = PathBuf::from(site.data());
    let is_erased = |when: &str| {
        for bytes in ["ada@example.org", "in confidence"] {
            assert_eq!(files_with(&data, bytes.as_bytes()), [""; 0].map(PathBuf::from), "{when}: {bytes}");
        }
    };
    is_erased("after a pass");
    assert!(!files_with(&data, b"bob@example.org").is_empty());
    site.crash();
    is_erased("after a crash");
    assert_eq!(offsets(&site, "t").len(), 40);
    let document = site.api.get("/v1/collections/people/snap/bob%40example.org").is(200);
    assert_eq!(document["n"], 39);
    // What was forgotten before a crash is erased by the first pass after it.
    site.api.publish("t?key=ada%40example.org", &said("in confidence", 99)).is(201);
    site.api.get("/v1/collections/people/snap/ada%40example.org?min_offset=80").is(200);
    site.api.call(&Call::new("DELETE", "/v1/topics/t/keys/ada%40example.org")).is(200);
    site.crash();
    site.api.post("/v1/topics/t/clean", "").is(200);
    is_erased("after a crash in between");
    site.ends_well();
}

#[test]
fn commands_clean_and_trim() {
    let hub = Hub::start();
    for _ in 0..3 {
        hub.run(&["pub", "t", "1", "--key", "k"]).ok();
    }
    hub.run(&["topics", "alter", "t", "--compaction", "--retention-days", "1"]).ok();
    let answer: Value = serde_json::from_str(&hub.run(&["topics", "clean", "t"]).ok()).unwrap();
    assert_eq!((&answer["reclaimed_events"], &answer["partitions"][0]["next"]), (&json!(2), &json!(3)));
    let answer: Value =
        serde_json::from_str(&hub.run(&["topics", "trim", "t", "--partition", "0", "--before", "3"]).ok())
            .unwrap();
    assert_eq!((&answer["partition"], &answer["first"]), (&json!(0), &json!(3)));
    let stderr = hub.run(&["topics", "trim", "t", "--partition", "0", "--before", "4"]).fails_with(1);
    assert!(stderr.contains("ends at offset 3"), "{stderr}");
    hub.run(&["topics", "trim", "t", "--before", "4"]).fails_with(2);
    hub.run(&["topics", "alter", "t", "--retention-days", "1", "--retention-ms", "1"]).fails_with(2);
    hub.run(&["pub", "t", "1", "--key", "k"]).ok();
    assert_eq!(hub.run(&["topics", "forget", "t", "k"]).ok(), "{\"events\":1}\n");
    for key in ["ab", "a\nb", "a\tb", "a\rb"] {
        hub.run(&["pub", "t", "1", "--key", key]).ok();
    }
    for key in ["a\nb", "a\tb", "a\rb"] {
        assert_eq!(hub.run(&["topics", "forget", "t", key]).ok(), "{\"events\":1}\n");
        assert_eq!(hub.run(&["topics", "forget", "t", key]).ok(), "{\"events\":0}\n", "it was another key");
    }
    assert!(hub.run(&["topics", "forget", "t", ".."]).fails_with(1).contains("no URL can name"));
    assert_eq!(hub.run(&["topics", "forget", "t", "ab"]).ok(), "{\"events\":1}\n");
    assert!(hub.run(&["topics", "forget", "none", "k"]).fails_with(1).contains("not_found"));
    assert!(hub.run(&["topics", "clean", "none"]).fails_with(1).contains("not_found"));
}
