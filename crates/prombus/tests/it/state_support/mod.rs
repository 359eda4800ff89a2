//! A user of collections, projections and commits, who has nothing but an HTTP client.

use crate::common::{Hub, PATIENCE};
use crate::contract_support::{Answer, Api, Call, Site, encoded};
use serde_json::{Value, json};
use std::time::Instant;

/// What `Cache-Control` says of a snapshot where nobody has to show a token.
pub const CACHED: &str = "public, max-age=5";

/// Runs a test on a hub with a folder, and on one that keeps everything in memory.
pub fn on_both_stores(test: impl Fn(&Api)) {
    let site = Site::start();
    test(&site.api);
    let hub = Hub::start();
    test(&hub.api());
}

/// Where a document is read.
pub fn snap(collection: &str, key: &str) -> String {
    format!("/v1/collections/{collection}/snap/{}", encoded(key))
}

/// A document that has to be there.
#[track_caller]
pub fn doc(api: &Api, collection: &str, key: &str) -> Value {
    let document = api.get(&snap(collection, key)).is(200);
    assert_eq!(document["_key"], key, "{document}");
    assert!(document["_ts"].is_i64() || document["_ts"].is_u64(), "{document}");
    document
}

/// A document without what the hub adds to it.
#[track_caller]
pub fn content(api: &Api, collection: &str, key: &str) -> Value {
    plain(doc(api, collection, key))
}

/// The same without what the hub adds.
pub fn plain(mut document: Value) -> Value {
    for name in ["_key", "_ts", "_v"] {
        document.as_object_mut().unwrap().remove(name);
    }
    document
}

/// A document that must not be there.
#[track_caller]
pub fn is_missing(api: &Api, collection: &str, key: &str) {
    api.get(&snap(collection, key)).fails(404, "not_found");
}

/// Whether a document is there.
#[track_caller]
pub fn exists(api: &Api, collection: &str, key: &str) -> bool {
    let answer = api.get(&snap(collection, key));
    assert!(matches!(answer.status, 200 | 404), "{answer:?}");
    answer.status == 200
}

/// A whole number in a document; 0 where there is no document.
#[track_caller]
pub fn counter(api: &Api, collection: &str, key: &str, field: &str) -> i64 {
    let answer = api.get(&snap(collection, key));
    match answer.status {
        404 => 0,
        _ => answer.is(200)[field].as_i64().unwrap_or_else(|| panic!("{}", answer.text())),
    }
}

/// Where a collection is listed.
pub fn list_path(collection: &str, query: &str) -> String {
    format!("/v1/collections/{collection}/list?{query}")
}

/// One page, if it looks as it has to.
#[track_caller]
pub fn list(api: &Api, collection: &str, query: &str) -> Value {
    let answer = api.get(&list_path(collection, query));
    let page = answer.is(200);
    assert_eq!(answer.header("cache-control"), Some("no-store"), "{answer:?}");
    let items = page["items"].as_array().unwrap();
    assert_eq!(page["count"], items.len(), "{page}");
    assert!(page["offset"].is_u64() && page["limit"].is_u64(), "{page}");
    assert!(page.get("next").is_some_and(|next| next.is_null() || next.is_u64()), "{page}");
    for item in items {
        assert!(item["_key"].is_string() && item["_ts"].is_number(), "{page}");
    }
    page
}

/// The keys of one page, in its order.
#[track_caller]
pub fn keys(api: &Api, collection: &str, query: &str) -> Vec<String> {
    let page = list(api, collection, query);
    page["items"].as_array().unwrap().iter().map(|item| item["_key"].as_str().unwrap().to_owned()).collect()
}

/// The keys of one page, sorted.
#[track_caller]
pub fn found(api: &Api, collection: &str, query: &str) -> Vec<String> {
    let mut all = keys(api, collection, query);
    all.sort_unstable();
    all
}

/// All documents that a query has, page by page.
#[track_caller]
pub fn list_all(api: &Api, collection: &str, query: &str) -> Vec<Value> {
    let mut items = Vec::new();
    let mut offset = 0;
    loop {
        let page = list(api, collection, &format!("{query}&offset={offset}"));
        assert_eq!(page["offset"], offset, "{page}");
        items.extend(page["items"].as_array().unwrap().iter().cloned());
        match page["next"].as_u64() {
            Some(next) => {
                assert!(next > offset, "{page}");
                offset = next;
            }
            None => return items,
        }
    }
}

/// One request with these headers; what comes after the head of a 304 is its body.
#[track_caller]
pub fn ask(api: &Api, method: &str, target: &str, headers: &[(&str, &str)]) -> Answer {
    let call = Call { headers: headers.to_vec(), ..Call::new(method, target) };
    let bytes = api.raw(&call.and_close().bytes(), false);
    let bare = Answer::parse(&bytes, true).unwrap_or_else(|| panic!("{target}: {bytes:?}"));
    if bare.status == 304 || method == "HEAD" {
        return bare;
    }
    Answer::parse(&bytes, false).unwrap()
}

/// Where the projection is told about.
pub fn projection_path(name: &str) -> String {
    format!("/v1/projections/{name}")
}

/// Makes or changes a projection.
#[track_caller]
pub fn define(api: &Api, name: &str, definition: &Value) {
    let answer = api.put(&projection_path(name), &definition.to_string());
    assert!(
        matches!(answer.status, 200 | 201),
        "{} {}",
        answer.status,
        String::from_utf8_lossy(&answer.body)
    );
}

/// A changelog of `topic` in `collection`, by the `id` of the payload.
pub fn changelog(topic: &str, collection: &str) -> Value {
    json!({"topic": topic, "collection": collection, "key": "event.payload.id"})
}

/// The same definition with one thing more.
pub fn with(mut definition: Value, name: &str, value: Value) -> Value {
    definition[name] = value;
    definition
}

/// A projection that counts the events of `topic` by their event keys.
pub fn counting(topic: &str, collection: &str) -> Value {
    json!({"topic": topic, "write": [{"collection": collection, "key": "event.key", "inc": {"n": "1"}}]})
}

#[track_caller]
pub fn status(api: &Api, name: &str) -> Value {
    api.get(&projection_path(name)).is(200)
}

/// Waits until a projection has seen everything that there is.
#[track_caller]
pub fn caught_up(api: &Api, name: &str) {
    let started = Instant::now();
    loop {
        let status = status(api, name);
        if status["lag"].as_u64().unwrap_or_else(|| panic!("no lag in {status}")) == 0 {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "it does not catch up: {status}");
    }
}

/// Waits until a projection is what its definition says.
#[track_caller]
pub fn is_fresh(api: &Api, name: &str) {
    let started = Instant::now();
    while status(api, name)["stale"] == true {
        assert!(started.elapsed() < PATIENCE, "it stays stale: {}", status(api, name));
    }
}

/// Asks for a rebuild, and waits for nothing.
#[track_caller]
pub fn start_rebuild(api: &Api, name: &str) {
    let answer = api.post(&format!("{}/rebuild", projection_path(name)), "{}");
    assert!(matches!(answer.status, 200 | 202), "{answer:?}");
}

/// Rebuilds a projection that is stale, and waits for the end of it.
#[track_caller]
pub fn rebuild(api: &Api, name: &str) {
    start_rebuild(api, name);
    is_fresh(api, name);
    caught_up(api, name);
}

/// Publishes one payload, and gives back where it is.
#[track_caller]
pub fn emit(api: &Api, topic: &str, payload: &Value) -> Value {
    emit_as(api, topic, json!({"payload": payload}))
}

/// Publishes one event, and gives back where it is.
#[track_caller]
pub fn emit_as(api: &Api, topic: &str, event: Value) -> Value {
    let answer = api.events(topic, &event.to_string());
    assert!(matches!(answer.status, 200 | 201), "{answer:?}");
    answer.json()
}

/// Publishes these payloads at once.
#[track_caller]
pub fn emit_all(api: &Api, topic: &str, payloads: &[Value]) {
    let events: Vec<Value> = payloads.iter().map(|payload| json!({"payload": payload})).collect();
    api.events(topic, &json!(events).to_string()).is(201);
}

/// The dead letters of a topic.
#[track_caller]
pub fn letters(api: &Api, topic: &str) -> Vec<Value> {
    let dead = format!("dlq.{topic}");
    if api.get(&format!("/v1/topics/{dead}")).status == 404 {
        return Vec::new();
    }
    api.all(&dead, "")
}

/// Waits for so many dead letters; more is wrong.
#[track_caller]
pub fn wait_for_letters(api: &Api, topic: &str, count: usize) -> Vec<Value> {
    let started = Instant::now();
    while letters(api, topic).len() < count {
        assert!(started.elapsed() < PATIENCE, "no {count} dead letters: {:?}", letters(api, topic));
    }
    let all = letters(api, topic);
    assert_eq!(all.len(), count, "{all:?}");
    all
}

/// The offset of each dead letter's original, sorted.
pub fn dead_offsets(letters: &[Value]) -> Vec<u64> {
    let mut all: Vec<u64> =
        letters.iter().map(|one| one["payload"]["original"]["offset"].as_u64().unwrap()).collect();
    all.sort_unstable();
    all
}

#[track_caller]
pub fn commit(api: &Api, body: &Value) -> Answer {
    api.post("/v1/commit", &body.to_string())
}

/// A commit that has to be made.
#[track_caller]
pub fn committed(api: &Api, body: &Value) -> Value {
    let answer = commit(api, body).is(200);
    assert!(answer["events"].is_array() && answer["versions"].is_object(), "{answer}");
    answer
}

/// One write of a commit.
pub fn write(collection: &str, key: &str, verb: &str, value: Value) -> Value {
    json!({"collection": collection, "key": key, verb: value})
}

/// Commits one write.
#[track_caller]
pub fn put(api: &Api, collection: &str, key: &str, document: Value) -> Value {
    committed(api, &json!({"writes": [write(collection, key, "set", document)]}))
}

/// Commits documents, each a key and what it holds.
#[track_caller]
pub fn put_all(api: &Api, collection: &str, documents: &[(&str, Value)]) {
    let writes: Vec<Value> =
        documents.iter().map(|(key, document)| write(collection, key, "set", document.clone())).collect();
    committed(api, &json!({"writes": writes}));
}

/// Every number in an answer's `versions`, however they are arranged.
pub fn versions(answer: &Value) -> Vec<u64> {
    fn numbers(value: &Value, into: &mut Vec<u64>) {
        match value {
            Value::Number(number) => into.extend(number.as_u64()),
            Value::Array(all) => all.iter().for_each(|one| numbers(one, into)),
            Value::Object(all) => all.values().for_each(|one| numbers(one, into)),
            _ => (),
        }
    }
    let mut all = Vec::new();
    numbers(&answer["versions"], &mut all);
    all.sort_unstable();
    all
}

/// Sends a JSON body; nothing where the hub is gone before it has answered.
pub fn try_call(api: &Api, method: &str, target: &str, body: &str) -> Option<Answer> {
    api.try_call(&Call::json(method, target, body)).ok()
}

/// The names that a list of things shows, whether they are all of it or a field.
#[track_caller]
pub fn names(answer: &Value) -> Vec<String> {
    let all = match answer {
        Value::Array(all) => all,
        other => {
            let arrays: Vec<&Vec<Value>> =
                other.as_object().unwrap().values().filter_map(Value::as_array).collect();
            assert_eq!(arrays.len(), 1, "{other}");
            arrays[0]
        }
    };
    let mut names: Vec<String> = all.iter().map(name).collect();
    names.sort_unstable();
    names
}

fn name(one: &Value) -> String {
    let fields = ["name", "collection", "projection"];
    let name = one.as_str().or_else(|| fields.iter().find_map(|field| one[*field].as_str()));
    name.unwrap_or_else(|| panic!("no name in {one}")).to_owned()
}

/// How many events a topic has.
#[track_caller]
pub fn events_of(api: &Api, topic: &str) -> usize {
    if api.get(&format!("/v1/topics/{topic}")).status == 404 { 0 } else { api.all(topic, "").len() }
}
