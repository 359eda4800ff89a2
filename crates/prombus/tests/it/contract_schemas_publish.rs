//! What schemas do to events, whichever way these come in.

use crate::contract_support::{Api, Call, Site, fields};
use crate::groups_support::{Group, eventually, lease, metric};
use crate::state_support::{commit, on_both_stores};
use crate::ws_support::Socket;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};

/// Objects with a text `id`, and a number `n` from 0 if there is one.
fn schema() -> Value {
    json!({"type": "object", "required": ["id"], "properties": {
        "id": {"type": "string"}, "n": {"type": "integer", "minimum": 0}
    }})
}

#[track_caller]
fn register(api: &Api, topic: &str, schema: &Value) {
    let body = json!({"schema": schema, "compat": "none"}).to_string();
    api.post(&format!("/v1/schemas/{topic}"), &body).is(201);
}

fn good() -> Value {
    json!({"id": "a", "n": 1})
}

/// It lacks one property, and the other one is wrong.
fn bad() -> Value {
    json!({"n": -1})
}

/// The version that each event of a topic is stamped with.
#[track_caller]
fn stamps(api: &Api, topic: &str) -> Vec<Value> {
    api.all(topic, "").iter().map(|event| event["headers"]["x-schema-version"].clone()).collect()
}

/// A violation at both places of [`bad`].
#[track_caller]
fn is_violation(error: &Value, index: Option<u64>) {
    // A frame has short names.
    let (code, message) = if error["op"] == "ERR" { ("code", "msg") } else { ("error", "message") };
    assert_eq!(error[code], "schema_violation", "{error}");
    assert!(error[message].as_str().unwrap().contains("version 1 of the schema of topic t"), "{error}");
    let violations = error["violations"].as_array().unwrap();
    assert!(violations.iter().all(|one| fields(one) == ["message", "path"]), "{error}");
    let mut paths: Vec<&str> = violations.iter().map(|one| one["path"].as_str().unwrap()).collect();
    paths.sort_unstable();
    assert_eq!(paths, ["", "/n"], "{error}");
    assert_eq!(error.get("index"), index.map(Value::from).as_ref(), "{error}");
}

#[test]
fn an_event_is_checked_and_stamped_however_it_is_published() {
    on_both_stores(|api| {
        register(api, "t", &schema());
        is_violation(&api.publish("t", &bad().to_string()).fails(422, "schema_violation"), None);
        let one = api.events("t", &json!({"payload": bad()}).to_string());
        is_violation(&one.fails(422, "schema_violation"), None);
        let events = json!([{"payload": good()}, {"payload": good()}, {"payload": bad()}, {"payload": 0}]);
        is_violation(&api.events("t", &events.to_string()).fails(422, "schema_violation"), Some(2));
        assert!(api.all("t", "").is_empty(), "all or none");
        api.publish("t", &good().to_string()).is(201);
        let event = json!({"payload": good(), "headers": {"x-a": "b"}});
        api.events("t", &json!([event, {"payload": good()}]).to_string()).is(201);
        assert_eq!(stamps(api, "t"), ["1", "1", "1"]);
        assert_eq!(api.all("t", "")[1]["headers"], json!({"x-a": "b", "x-schema-version": "1"}));
        assert_eq!(metric(api, "schema_violations_total", &[("topic", "t")]), Some(3.0));
    });
}

#[test]
fn of_lines_those_before_the_bad_one_are_in() {
    let site = Site::start();
    register(&site.api, "t", &schema());
    let line = |payload: &Value| json!({"payload": payload}).to_string() + "\n";
    let lines: String = (0..1_500).map(|n| line(&json!({"id": "a", "n": n}))).collect();
    let refused = site.api.ndjson("t", (lines.clone() + &line(&bad()) + &line(&good())).as_bytes());
    let error = refused.fails(400, "schema_violation");
    assert_eq!((&error["count"], &error["line"]), (&json!(1_500), &json!(1_501)), "{error}");
    assert!(error["violations"].as_array().is_some_and(|all| all.len() == 2), "{error}");
    assert_eq!(site.api.all("t", "").len(), 1_500, "what counted is in");
    assert_eq!(site.api.ndjson("t", lines.as_bytes()).is(201)["count"], 1_500);
    assert!(stamps(&site.api, "t").iter().all(|version| version == "1"));
}

#[test]
fn an_event_may_name_its_version() {
    let site = Site::start();
    let api = &site.api;
    register(api, "t", &json!({"type": "integer"}));
    register(api, "t", &json!({"type": "string"}));
    let publish = |version: &str, payload: &str| {
        let call = Call::new("POST", "/publish/t").header("x-event-schema-version", version);
        api.call(&call.body(payload.as_bytes()))
    };
    publish("1", "1").is(201);
    publish("2", "\"text\"").is(201);
    publish("1", "\"text\"").fails(422, "schema_violation");
    api.publish("t", "1").fails(422, "schema_violation");
    for unknown in ["3", "0", "01", "latest"] {
        let error = publish(unknown, "1").fails(422, "schema_violation");
        let only = &error["violations"].as_array().unwrap()[..];
        assert_eq!((only.len(), &only[0]["path"]), (1, &json!("")), "{error}");
        assert!(only[0]["message"].as_str().unwrap().contains(&format!("{unknown:?}")), "{error}");
    }
    assert_eq!(stamps(api, "t"), ["1", "2"]);
}

#[test]
fn a_topic_says_what_its_schema_does() {
    on_both_stores(|api| {
        register(api, "t", &schema());
        let set = |mode: &str| {
            let answer = api.put("/v1/topics/t", &json!({"schema": mode}).to_string()).is(200);
            assert_eq!(answer["schema"], mode, "{answer}");
        };
        set("warn");
        api.publish("t", &bad().to_string()).is(201);
        api.publish("t", &good().to_string()).is(201);
        assert_eq!(metric(api, "schema_violations_total", &[("topic", "t")]), Some(1.0));
        set("off");
        api.publish("t", &bad().to_string()).is(201);
        set("enforce");
        api.publish("t", &bad().to_string()).fails(422, "schema_violation");
        assert_eq!(stamps(api, "t"), [json!("1"), json!("1"), Value::Null]);
        assert_eq!(metric(api, "schema_violations_total", &[("topic", "t")]), Some(2.0));
        // No schema: anything goes.
        api.publish("free", &bad().to_string()).is(201);
        assert_eq!(stamps(api, "free"), [Value::Null]);
        let call = Call::new("POST", "/publish/free").header("x-event-schema-version", "7");
        api.call(&call.body(b"0")).is(201);
    });
}

#[test]
fn what_was_there_before_the_schema_stays_as_it_is() {
    let site = Site::start();
    site.api.publish("t", &bad().to_string()).is(201);
    register(&site.api, "t", &schema());
    site.api.publish("t", &good().to_string()).is(201);
    assert_eq!(stamps(&site.api, "t"), [Value::Null, json!("1")]);
    assert_eq!(site.api.all("t", "")[0]["payload"], bad());
}

#[test]
fn a_repeated_publish_is_a_duplicate_whatever_is_registered_or_gone() {
    on_both_stores(|api| {
        let id = "0198c0de-0000-7000-8000-000000000001";
        let event = json!({"payload": bad(), "id": id, "key": "k"}).to_string();
        let first = api.events("t", &event).is(201);
        register(api, "t", &schema());
        let is_duplicate = || {
            let again = api.events("t", &event).is(200);
            assert_eq!((&again["duplicate"], &again["offset"]), (&json!(true), &first["offset"]));
        };
        is_duplicate();
        api.post("/v1/topics/t/trim", r#"{"partition": 0, "before": 1}"#).is(200);
        is_duplicate();
        let mut other = json!({"payload": bad(), "id": id, "key": "other"});
        api.events("t", &other.to_string()).fails(409, "id_conflict");
        other["id"] = json!("0198c0de-0000-7000-8000-000000000002");
        other["expect"] = json!({"last_id": id});
        is_violation(&api.events("t", &other.to_string()).fails(422, "schema_violation"), None);
        assert!(api.all("t", "").is_empty());
    });
}

#[test]
fn what_no_schema_can_be_held_against_is_refused_where_there_is_one() {
    on_both_stores(|api| {
        let odd = [r#""\ud800""#, "1e5000"];
        odd.iter().for_each(|payload| _ = api.publish("free", payload).is(201));
        register(api, "t", &json!(true));
        for payload in odd {
            let refused = api.publish("t", payload).fails(422, "schema_violation");
            assert!(refused["message"].as_str().unwrap().contains("can be checked"), "{refused}");
        }
        api.publish("t", "1e400").is(201);
    });
}

#[test]
fn a_tombstone_ends_a_key_whatever_the_schema_is() {
    let site = Site::start();
    register(&site.api, "t", &schema());
    site.api.publish("t?key=k", "null").fails(422, "schema_violation");
    site.api.put("/v1/topics/t", r#"{"compaction":true}"#).is(200);
    site.api.publish("t", "null").fails(422, "schema_violation");
    site.api.publish("t?key=k", "null").is(201);
}

#[test]
fn a_socket_is_told_of_the_event_that_is_to_blame_and_of_no_other() {
    let site = Site::start();
    register(&site.api, "t", &schema());
    let mut socket = Socket::open(&site.api);
    let publish = |corr: u32, payload: &Value| json!({"op": "PUBLISH", "corr": corr.to_string(), "topic": "t", "payload": payload});
    // They come together, so they may go into one commit.
    let frames: Vec<Value> = (0..20).map(|n| publish(n, &if n % 5 == 3 { bad() } else { good() })).collect();
    socket.send_together(frames);
    for n in 0..20 {
        let corr = n.to_string();
        let answer = socket.find(|frame| frame["corr"] == corr.as_str());
        if n % 5 == 3 {
            assert_eq!(answer["op"], "ERR", "{answer}");
            is_violation(&answer, None);
        } else {
            assert_eq!(answer["op"], "OK", "{answer}");
        }
    }
    let events = json!([{"payload": good()}, {"payload": bad()}]);
    let error = socket.fails(json!({"op": "PUBLISH", "topic": "t", "events": events}), "schema_violation");
    is_violation(&error, Some(1));
    assert_eq!(stamps(&site.api, "t"), vec![json!("1"); 16]);
}

#[test]
fn a_commit_is_checked_as_a_whole() {
    let site = Site::start();
    register(&site.api, "t", &schema());
    site.api.publish("in", "0").is(201);
    let group = Group::of(&site, "in", "g");
    group.make(&json!({"from": "earliest"}));
    let got = group.one(json!({}));
    let body = |payload: Value| {
        json!({
            "ack": [lease(&got)],
            "writes": [{"collection": "c", "key": "k", "set": {"a": 1}}],
            "publish": [{"topic": "free", "payload": 0}, {"topic": "t", "payload": payload}],
        })
    };
    is_violation(&commit(&site.api, &body(bad())).fails(422, "schema_violation"), Some(1));
    site.api.get("/v1/topics/free").fails(404, "not_found");
    site.api.get("/v1/collections/c/snap/k").fails(404, "not_found");
    commit(&site.api, &body(good())).is(200);
    assert_eq!(stamps(&site.api, "t"), ["1"]);
    let mut socket = Socket::open(&site.api);
    let frame = json!({"op": "COMMIT", "publish": [{"topic": "t", "payload": bad()}]});
    is_violation(&socket.fails(frame, "schema_violation"), Some(0));
}

#[test]
fn an_import_is_checked_too() {
    let site = Site::start();
    site.api.publish("from", &good().to_string()).is(201);
    site.api.publish("from", &bad().to_string()).is(201);
    let lines = site.hub().run(&["export", "from"]).ok();
    register(&site.api, "t", &schema());
    let said = site.hub().run_with(&["import", "t"], &lines).fails_with(1);
    assert!(said.contains("violates version 1 of the schema of topic t"), "{said}");
}

/// Ends publishers, also where a test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Someone registers and someone publishes at the same time, over HTTP.
#[test]
fn no_event_is_behind_a_schema_that_refuses_it() {
    let site = Site::start();
    let (kinds, payloads) = (["integer", "string", "boolean", "null"], ["1", "\"a\"", "true", "null"]);
    let (api, ended) = (&site.api, &AtomicBool::new(false));
    api.make("t", 1);
    let count = || api.get("/v1/topics/t").is(200)["bounds"][0]["next"].as_u64().unwrap();
    std::thread::scope(|scope| {
        let _ends = Ends(ended);
        for publisher in 0..3 {
            scope.spawn(move || {
                let mut n = publisher;
                while !ended.load(Ordering::SeqCst) {
                    n += 1;
                    let answer = api.publish("t", payloads[n % 4]);
                    assert!(matches!(answer.status, 201 | 422), "{answer:?}");
                }
            });
        }
        for kind in kinds {
            register(api, "t", &json!({"type": kind}));
            let before = count();
            eventually("some are taken by each version", || count() >= before + 5);
        }
    });
    let mut last = 0;
    for event in api.all("t", "") {
        let version = event["headers"]["x-schema-version"].as_str().map_or(0, |text| text.parse().unwrap());
        assert!(version >= last, "{event}");
        last = version;
        if version > 0 {
            assert_eq!(event["payload"].to_string(), payloads[version - 1]);
        }
    }
    assert_eq!(last, 4);
}
