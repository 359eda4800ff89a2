//! Topics whose events go to a topic of their version in the same commit.

use crate::contract_support::{Api, Site};
use crate::durability_support::Http;
use crate::ws_support::Socket;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::BTreeMap;

#[track_caller]
fn dual(api: &Api, topic: &str, partitions: u32) {
    let settings = json!({"partitions": partitions, "dual_write": true}).to_string();
    api.put(&format!("/v1/topics/{topic}"), &settings).is(201);
    let schema =
        json!({"schema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}});
    api.post(&format!("/v1/schemas/{topic}"), &schema.to_string()).is(201);
}

/// The payloads of events by their ids.
fn by_id(events: &[Value]) -> BTreeMap<String, Value> {
    events.iter().map(|event| (event["id"].as_str().unwrap().to_owned(), event["payload"].clone())).collect()
}

/// The payloads of copies by the id of what they are copies of, each of which has one.
#[track_caller]
fn by_cause(copies: &[Value]) -> BTreeMap<String, Value> {
    let cause = |copy: &Value| copy["caused_by"][0].as_str().unwrap().to_owned();
    let all: BTreeMap<String, Value> =
        copies.iter().map(|copy| (cause(copy), copy["payload"].clone())).collect();
    assert_eq!(all.len(), copies.len(), "no event is copied twice");
    all
}

#[test]
fn every_way_in_makes_copies() {
    let site = Site::start();
    let api = &site.api;
    dual(api, "t", 3);
    let one = api.publish("t?key=a", r#"{"n":1}"#).is(201);
    assert_eq!(
        (&one["topic"], one["events"].is_null()),
        (&json!("t"), true),
        "the answer is about the event"
    );
    let array = api.events("t", r#"[{"payload":{"n":2},"key":"b"},{"payload":{"n":3}}]"#).is(201);
    assert_eq!(array["count"], 2);
    assert_eq!(api.ndjson("t", b"{\"payload\":{\"n\":4}}\n{\"payload\":{\"n\":5}}\n").is(201)["count"], 2);
    let commit = json!({"publish": [{"topic": "t", "payload": {"n": 6}}]}).to_string();
    assert_eq!(api.post("/v1/commit", &commit).is(200)["events"].as_array().unwrap().len(), 1);
    let mut socket = Socket::open(api);
    socket.ok(json!({"op": "PUBLISH", "topic": "t", "payload": {"n": 7}}));
    let (first, copies) = (api.all("t", ""), api.all("t.v1", ""));
    assert_eq!(first.len(), 7);
    assert_eq!(by_id(&first), by_cause(&copies));
    assert_eq!(api.get("/v1/topics/t.v1").is(200)["partitions"], 3);
    api.events("t", r#"{"payload":{"n":"text"}}"#).fails(422, "schema_violation");
    assert_eq!(api.all("t.v1", "").len(), 7);
    site.ends_well();
}

#[test]
fn a_key_is_forgotten_in_all_copies() {
    let site = Site::start();
    let api = &site.api;
    dual(api, "t", 1);
    for key in ["alice", "bob"] {
        api.publish(&format!("t?key={key}"), r#"{"n":1}"#).is(201);
    }
    assert_eq!(api.delete("/v1/topics/t/keys/alice").is(200)["events"], 1);
    api.get("/v1/topics/t.v1/keys/alice").fails(404, "not_found");
    assert_eq!(api.all("t.v1", "").len(), 1);
    site.ends_well();
}

#[test]
fn a_name_that_leaves_no_room_for_a_version_is_refused() {
    let site = Site::start();
    let name = "a".repeat(195);
    let error =
        site.api.put(&format!("/v1/topics/{name}"), r#"{"dual_write":true}"#).fails(400, "bad_request");
    assert!(error["message"].as_str().unwrap().contains("too long for dual_write"), "{error}");
}

/// Whatever was answered has its copy, and nothing has a copy that is not there itself.
#[test]
fn an_event_and_its_copy_survive_kill_9_together() {
    let mut site = Site::with_file("[store]\npart_bytes = 65536\n");
    dual(&site.api, "t", 2);
    let mut answered = 0;
    for round in 0..4 {
        let url = format!("http://{}", site.hub().url.trim_start_matches("http://"));
        let (told, heard) = std::sync::mpsc::channel();
        let load: Vec<_> = (0..3)
            .map(|_| {
                let (mut http, told) = (Http::connect(&url), told.clone());
                std::thread::spawn(move || {
                    let mut ids = Vec::new();
                    let body = r#"[{"payload":{"n":1},"key":"a"},{"payload":{"n":2}},{"payload":{"n":3},"key":"b"}]"#;
                    while let Ok((201, answer)) = http.call("POST", "/v1/topics/t/events", body) {
                        let answer: Value = serde_json::from_str(&answer).unwrap();
                        ids.extend(answer["events"].as_array().unwrap().iter().map(|event| event["id"].clone()));
                        // Whoever counts may have enough.
                        let _ = told.send(());
                    }
                    ids
                })
            })
            .collect();
        drop(told);
        assert_eq!(heard.iter().take(20 + round * 17).count(), 20 + round * 17, "the load goes on");
        site.hub().signal(Signal::KILL);
        let ids: Vec<Value> = load.into_iter().flat_map(|one| one.join().unwrap()).collect();
        answered += ids.len();
        site.crash();
        let (first, copies) = (by_id(&site.api.all("t", "")), by_cause(&site.api.all("t.v1", "")));
        assert_eq!(first, copies);
        assert!(first.len() >= answered);
        assert!(ids.iter().all(|id| first.contains_key(id.as_str().unwrap())));
    }
    site.stop();
    let checked = crate::durability_support::check(site.data().as_ref());
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
}
