//! Upcasters over HTTP and the WebSocket: how they are set, and who reads events by them.

use crate::contract_support::{Api, Call, Site, encoded};
use crate::groups_support::Group;
use crate::state_support::{caught_up, define, doc};
use crate::ws_support::Socket;
use crate::ws_support::stream::Stream;
use serde_json::{Value, json};

/// The schema of objects with these numbers.
fn numbers_of(names: &[&str]) -> Value {
    let properties: serde_json::Map<String, Value> =
        names.iter().map(|name| ((*name).to_owned(), json!({"type": "number"}))).collect();
    json!({"type": "object", "properties": properties, "required": names})
}

#[track_caller]
fn register(api: &Api, topic: &str, schema: &Value) {
    let body = json!({"compat": "none", "schema": schema}).to_string();
    api.post(&format!("/v1/schemas/{topic}"), &body).is(201);
}

fn upcaster(topic: &str, from: u32) -> String {
    format!("/v1/schemas/{topic}/upcasters/{from}")
}

#[track_caller]
fn upcast(api: &Api, topic: &str, from: u32, ops: &Value) {
    let answer = api.put(&upcaster(topic, from), &json!({ "ops": ops }).to_string());
    assert!(matches!(answer.status, 200 | 201), "{answer:?}");
}

#[track_caller]
fn publish(api: &Api, topic: &str, payload: &Value) -> Value {
    api.events(topic, &json!({"key": "k", "payload": payload}).to_string()).is(201)
}

/// A topic with an event of each of two versions, and what raises the first.
#[track_caller]
fn two_versions(api: &Api, topic: &str) {
    register(api, topic, &numbers_of(&["mem_mb"]));
    api.events(topic, r#"{"key":"k","payload":{"mem_mb":1.50,"old":true}}"#).is(201);
    register(api, topic, &numbers_of(&["mem_mib"]));
    publish(api, topic, &json!({"mem_mib": 2, "unit": "MiB"}));
    let ops = json!([{"rename": ["mem_mb", "mem_mib"]}, {"set": {"unit": "'MiB'"}}, {"remove": ["old"]}]);
    upcast(api, topic, 1, &ops);
}

/// The payloads of events, which must be stamped with the second version.
#[track_caller]
fn raised<'a>(events: impl IntoIterator<Item = &'a Value>) -> Vec<Value> {
    let raised = |event: &'a Value| {
        assert_eq!(event["headers"]["x-schema-version"], "2", "{event}");
        event["payload"].clone()
    };
    events.into_iter().map(raised).collect()
}

fn both() -> [Value; 2] {
    [json!({"mem_mib": 1.5, "unit": "MiB"}), json!({"mem_mib": 2, "unit": "MiB"})]
}

#[test]
fn an_upcaster_is_put_shown_changed_and_deleted() {
    let site = Site::start();
    let api = &site.api;
    register(api, "t", &numbers_of(&["a"]));
    let ops = json!([{"set": {"z": "1", "a": "payload.b"}}, {"rename": ["a", "b"]}, {"remove": ["c[].d"]}]);
    let body = json!({"ops": ops}).to_string();
    let made = api.put(&upcaster("t", 1), &body).is(201);
    assert_eq!(made, json!({"topic": "t", "from": 1, "to": null, "ops": ops}));
    let again = api.put(&upcaster("t", 1), &body).is(200);
    assert_eq!(again, made);
    register(api, "t", &numbers_of(&["b"]));
    let shown = api.get(&upcaster("t", 1)).is(200);
    assert_eq!((&shown["to"], &shown["ops"]), (&json!(2), &ops));
    assert_eq!(api.get("/v1/schemas/t").is(200)["upcasters"], json!([1]));
    assert_eq!(api.delete(&upcaster("t", 1)).status, 204);
    api.get(&upcaster("t", 1)).fails(404, "not_found");
    api.delete(&upcaster("t", 1)).fails(404, "not_found");
    site.ends_well();
}

#[test]
fn a_bad_upcaster_is_refused_and_says_why() {
    let site = Site::start();
    let api = &site.api;
    api.put(&upcaster("nothing", 1), r#"{"ops":[]}"#).fails(404, "not_found");
    register(api, "t", &numbers_of(&["a"]));
    api.put(&upcaster("t", 2), r#"{"ops":[]}"#).fails(404, "not_found");
    api.put("/v1/schemas/t/upcasters/one", r#"{"ops":[]}"#).fails(400, "bad_request");
    for bad in [
        "{}",
        "[]",
        r#"{"ops":[{"drop":["a"]}]}"#,
        r#"{"ops":[{"rename":["a"]}]}"#,
        r#"{"ops":[],"more":1}"#,
        r#"{"ops":[{"rename":["a","a.b"]}]}"#,
        r#"{"ops":[{"remove":["a[0]"]}]}"#,
        r#"{"ops":[{"set":{"a":"1","a.b":"2"}}]}"#,
    ] {
        api.put(&upcaster("t", 1), bad).fails(400, "bad_request");
    }
    api.put(&upcaster("t", 1), "{").fails(400, "bad_json");
    let error =
        api.put(&upcaster("t", 1), r#"{"ops":[{"set":{"a":"payload.x +"}}]}"#).fails(400, "bad_filter");
    assert!(error["message"].as_str().unwrap().starts_with("ops[0].set.a: "), "{error}");
    assert!(error["line"].is_number() && error["column"].is_number(), "{error}");
    api.get(&upcaster("t", 1)).fails(404, "not_found");
    site.ends_well();
}

#[test]
fn every_read_takes_normalize() {
    let site = Site::start();
    let api = &site.api;
    two_versions(api, "t");
    let plain = api.all("t", "");
    assert_eq!(
        plain[0]["payload"],
        json!({"mem_mb": 1.5, "old": true}),
        "who does not ask gets what was sent"
    );
    let page = api.page("t", "normalize=true").is(200);
    assert_eq!(raised(page["events"].as_array().unwrap()), both());
    assert!(api.page("t", "normalize=true").text().contains(r#""mem_mib":1.50"#), "numbers keep their text");
    let first = api.page("t", "normalize=true&limit=1").is(200);
    let cursor = encoded(first["next"].as_str().unwrap());
    let rest = api.page("t", &format!("cursor={cursor}")).is(200);
    assert_eq!(raised(rest["events"].as_array().unwrap()), both()[1..], "a cursor goes on as it began");
    assert_eq!(raised(&api.export("t", "normalize=true").lines()), both());
    let filter = encoded("event.payload.mem_mib < 2");
    assert_eq!(raised(&api.export("t", &format!("normalize=true&filter={filter}")).lines()), both()[..1]);
    let id = plain[0]["id"].as_str().unwrap();
    let one = api.get(&format!("/v1/topics/t/events/{id}?normalize=true")).is(200);
    assert_eq!(raised([&one]), both()[..1]);
    let latest = api.get("/v1/topics/t/keys/k?normalize=true").is(200);
    assert_eq!(raised([&latest]), both()[1..]);
    let many = api.post("/v1/topics/t/keys?normalize=true", r#"{"keys":["k"]}"#).is(200);
    assert_eq!(raised([&many["events"]["k"]]), both()[1..]);
    for target in ["t/events?normalize=yes", "t/keys/k?normalize=1", "t/keys/k?normalize=true&normalize=true"]
    {
        api.get(&format!("/v1/topics/{target}")).fails(400, "bad_request");
    }
    site.ends_well();
}

#[test]
fn streams_take_normalize() {
    let site = Site::start();
    let api = &site.api;
    two_versions(api, "t");
    let mut stream = Stream::open(api, "t", "normalize=true");
    let sent = stream.take(2);
    let events: Vec<Value> = sent.iter().map(|one| one.event()).collect();
    assert_eq!(raised(&events), both());
    let mut again = Stream::after(api, "t", "normalize=true", &sent[0].id);
    assert_eq!(raised([&again.next().event()]), both()[1..]);
    publish(api, "t", &json!({"mem_mib": 3}));
    assert_eq!(raised([&stream.next().event()]), [json!({"mem_mib": 3})]);
    let mut all = Stream::of_topics(api, "topics=*&from=earliest&normalize=true", None);
    assert_eq!(raised([&all.next().event()]), both()[..1]);
}

#[test]
fn a_missing_step_is_refused_wherever_it_is_asked_for() {
    let site = Site::start();
    let api = &site.api;
    two_versions(api, "t");
    let mut socket = Socket::open(api);
    socket.subscribe("t", "live", json!({"from": "earliest", "normalize": true}));
    socket.events(1);
    register(api, "t", &numbers_of(&["bytes"]));
    let refused = |error: Value| {
        assert_eq!(error["version"], 2, "{error}");
        assert!(error["message"].as_str().unwrap().contains("upcasters/2"), "{error}");
    };
    refused(api.page("t", "normalize=true").fails(409, "incompatible"));
    refused(api.export("t", "normalize=true").fails(409, "incompatible"));
    refused(Stream::refused(api, "t", "normalize=true", None).fails(409, "incompatible"));
    refused(api.get("/v1/topics/t/keys/k?normalize=true").fails(409, "incompatible"));
    let group = Group::of(&site, "t", "g");
    refused(group.post("/pull", &json!({"normalize": true})).fails(409, "incompatible"));
    refused(api.put(&group.path(""), r#"{"normalize":true}"#).fails(409, "incompatible"));
    let definition = json!({"topic": "t", "collection": "c", "key": "event.key", "normalize": true});
    refused(api.put("/v1/projections/p", &definition.to_string()).fails(409, "incompatible"));
    let subscribe = json!({"op": "SUBSCRIBE", "topic": "t", "group": "w", "opts": {"normalize": true}});
    assert_eq!(socket.fails(subscribe, "incompatible")["version"], 2);
    // One that runs hears it with the next event.
    publish(api, "t", &json!({"bytes": 1}));
    let lost = socket.find(|frame| frame["op"] == "ERR");
    assert_eq!((&lost["code"], &lost["version"]), (&json!("incompatible"), &json!(2)), "{lost}");
    upcast(api, "t", 2, &json!([{"set": {"bytes": "payload.mem_mib * 1048576"}}]));
    api.page("t", "normalize=true").fails(422, "schema_violation");
    upcast(api, "t", 2, &json!([{"set": {"bytes": "double(payload.mem_mib) * 1048576.0"}}]));
    let page = api.page("t", "normalize=true").is(200);
    assert_eq!(page["events"][1]["payload"]["bytes"], 2_097_152.0);
    site.ends_well();
}

#[test]
fn an_event_that_cannot_be_raised_is_named() {
    let site = Site::start();
    let api = &site.api;
    two_versions(api, "t");
    upcast(api, "t", 1, &json!([{"set": {"mem_mib": "payload.missing"}}]));
    let id = api.all("t", "")[0]["id"].clone();
    let error = api.page("t", "normalize=true").fails(422, "schema_violation");
    assert_eq!((&error["id"], &error["partition"], &error["offset"]), (&id, &json!(0), &json!(0)));
    assert!(error["message"].as_str().unwrap().contains("payload.missing: no such field"), "{error}");
    // What is behind it can be read.
    let rest = api.page("t", "normalize=true&from=offset&offset=1").is(200);
    assert_eq!(rest["count"], 1);
    site.ends_well();
}

#[test]
fn groups_and_projections_take_normalize() {
    let mut site = Site::start();
    two_versions(&site.api, "t");
    let group = Group::of(&site, "t", "g");
    let deliveries = group.consume(&json!({"from": "earliest", "normalize": true}), 2);
    assert_eq!(raised(deliveries.iter().map(|one| &one["event"])), both());
    let mut socket = Socket::open(&site.api);
    socket.subscribe("t", "ws", json!({"from": "earliest", "normalize": true, "ordering": "none"}));
    assert_eq!(raised(socket.events(2).iter().map(|one| &one["event"])), both());
    let definition = json!({"topic": "t", "normalize": true, "write": [
        {"collection": "c", "key": "event.key", "inc": {"sum": "event.payload.mem_mib"}}]});
    define(&site.api, "p", &definition);
    caught_up(&site.api, "p");
    assert_eq!(doc(&site.api, "c", "k")["sum"], 3.5);
    assert_eq!(site.api.get("/v1/projections/p").is(200)["definition"]["normalize"], true);
    // All of it is there after kill -9.
    site.crash();
    let page = site.api.page("t", "normalize=true").is(200);
    assert_eq!(raised(page["events"].as_array().unwrap()), both());
    publish(&site.api, "t", &json!({"mem_mib": 4}));
    caught_up(&site.api, "p");
    assert_eq!(doc(&site.api, "c", "k")["sum"], 7.5);
    let group = Group::of(&site, "t", "g");
    let next = group.one(json!({}));
    assert_eq!(raised([&next["event"]]), [json!({"mem_mib": 4})]);
    site.ends_well();
}

#[test]
fn a_dead_letter_says_why_an_event_could_not_be_raised() {
    let site = Site::start();
    let api = &site.api;
    two_versions(api, "t");
    upcast(api, "t", 1, &json!([{"rename": ["mem_mb", "mem_mib"]}, {"set": {"mem_mib": "'text'"}}]));
    let group = Group::of(&site, "t", "g");
    let deliveries = group.consume(&json!({"from": "earliest", "normalize": true}), 1);
    assert_eq!(raised(deliveries.iter().map(|one| &one["event"])), both()[1..]);
    let letters = crate::state_support::wait_for_letters(api, "t", 1);
    let letter = &letters[0]["payload"];
    assert_eq!(letter["original"]["payload"], json!({"mem_mb": 1.5, "old": true}), "as it was published");
    let reason = letter["err"].as_str().unwrap();
    assert!(reason.contains("cannot be normalized: it violates version 2: /mem_mib"), "{reason}");
}

#[test]
fn only_an_admin_sets_upcasters() {
    let file = r#"
        [auth]
        mode = "token"
        tokens = [
            { token = "admin-token-0123456789", scopes = ["admin:t", "publish:t"] },
            { token = "reader-token-0123456789", scopes = ["read:t"] },
            { token = "other-token-0123456789", scopes = ["*:u"] },
        ]
    "#;
    let site = Site::with_file(file);
    let call = |method: &str, target: &str, token: &str, body: &str| {
        let bearer = format!("Bearer {token}-token-0123456789");
        site.api.call(&Call::json(method, target, body).header("authorization", &bearer))
    };
    let schema = json!({"schema": numbers_of(&["a"])}).to_string();
    call("POST", "/v1/schemas/t", "admin", &schema).is(201);
    let target = upcaster("t", 1);
    for token in ["reader", "other"] {
        call("PUT", &target, token, r#"{"ops":[]}"#).fails(403, "forbidden");
        call("DELETE", &target, token, "").fails(403, "forbidden");
    }
    call("PUT", &target, "admin", r#"{"ops":[]}"#).is(201);
    call("GET", &target, "reader", "").is(200);
    call("GET", &target, "other", "").fails(403, "forbidden");
    assert_eq!(call("DELETE", &target, "admin", "").status, 204);
}
