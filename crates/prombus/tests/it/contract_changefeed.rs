//! Changefeeds: each change of a collection is an event of a topic, in the same commit.

use crate::contract_support::{Api, Site};
use crate::groups_support::{Group, eventually, publish_all};
use crate::state_support::{
    caught_up, changelog, content, counter, counting, define, doc, emit, emit_all, emit_as, is_missing,
    letters, list_all, on_both_stores, projection_path, rebuild, snap, status, try_call, with,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const FEED: &str = "c.changed";

/// A changelog of `t` in `c` whose changes are events.
fn feeding() -> Value {
    with(changelog("t", "c"), "changefeed", json!(FEED))
}

/// The same by the keys of the events.
fn feeding_by_key() -> Value {
    with(feeding(), "key", json!("event.key"))
}

/// The events of the feed.
#[track_caller]
fn fed(api: &Api) -> Vec<Value> {
    if api.get(&format!("/v1/topics/{FEED}")).status == 404 {
        Vec::new()
    } else {
        api.all(FEED, "limit=1000")
    }
}

/// Their keys, in their order.
#[track_caller]
fn fed_keys(api: &Api) -> Vec<String> {
    fed(api)
        .iter()
        .map(|one| one["key"].as_str().unwrap_or_else(|| panic!("no key in {one}")).to_owned())
        .collect()
}

#[test]
fn each_change_is_an_event_under_the_documents_key() {
    on_both_stores(|api| {
        define(api, "p", &feeding());
        for (id, n) in [("a", 1), ("b", 1), ("a", 2)] {
            emit(api, "t", &json!({"id": id, "n": n}));
        }
        caught_up(api, "p");
        assert_eq!(fed_keys(api), ["a", "b", "a"]);
        let all = fed(api);
        assert!(all.iter().all(|one| one["topic"] == FEED), "{all:?}");
        // What has changed can be told from what it says.
        assert_ne!(all[0]["payload"], all[2]["payload"]);
    });
}

#[test]
fn a_delete_is_a_change_and_a_delete_of_nothing_is_none() {
    let site = Site::start();
    define(&site.api, "p", &feeding());
    emit(&site.api, "t", &json!({"id": "a"}));
    emit_as(&site.api, "t", json!({"key": "a", "payload": null}));
    emit_as(&site.api, "t", json!({"key": "never-was", "payload": null}));
    emit(&site.api, "t", &json!({"id": "also-never", "_deleted": true}));
    emit(&site.api, "t", &json!({"id": "b"}));
    caught_up(&site.api, "p");
    is_missing(&site.api, "c", "a");
    assert_eq!(fed_keys(&site.api), ["a", "a", "b"]);
    let all = fed(&site.api);
    assert_ne!(all[0]["payload"], all[1]["payload"], "a delete looks like a write");
}

#[test]
fn what_does_not_change_is_no_event() {
    let site = Site::start();
    define(&site.api, "p", &with(feeding(), "version", json!("event.payload.rev")));
    for rev in [1, 3, 2, 3, 4] {
        emit(&site.api, "t", &json!({"id": "a", "rev": rev}));
    }
    emit(&site.api, "t", &json!({"bad": 1}));
    caught_up(&site.api, "p");
    assert_eq!(fed_keys(&site.api), ["a", "a", "a"]);
    assert_eq!(letters(&site.api, "t").len(), 1);
}

#[test]
fn the_change_is_there_when_the_document_is() {
    let site = Site::start();
    define(&site.api, "p", &feeding_by_key());
    for n in 1..=60 {
        let told = emit_as(&site.api, "t", json!({"key": "k", "payload": {"n": n}}));
        let read = site.api.get(&format!("{}?min_offset={}", snap("c", "k"), told["offset"])).is(200);
        assert_eq!(read["n"], n);
        assert_eq!(fed(&site.api).len(), n, "the change is not in the same commit");
    }
}

#[test]
fn readers_see_document_and_change_together() {
    let site = Site::start();
    define(&site.api, "p", &feeding_by_key());
    let go_on = AtomicBool::new(true);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while go_on.load(Ordering::Acquire) {
                let (document, changes) =
                    (counter(&site.api, "c", "k", "n"), i64::try_from(fed(&site.api).len()).unwrap());
                assert!(changes >= document, "{document} in the document, and then {changes} changes");
                let (changes, document) =
                    (i64::try_from(fed(&site.api).len()).unwrap(), counter(&site.api, "c", "k", "n"));
                assert!(document >= changes, "{changes} changes, and then {document} in the document");
            }
        });
        let numbers: Vec<u64> = (1..=250).collect();
        for part in numbers.chunks(4) {
            let events: Vec<Value> = part.iter().map(|n| json!({"key": "k", "payload": {"n": n}})).collect();
            publish_all(&site.api, "t", &events);
        }
        caught_up(&site.api, "p");
        go_on.store(false, Ordering::Release);
        reader.join().unwrap();
    });
    assert_eq!(counter(&site.api, "c", "k", "n"), i64::try_from(fed(&site.api).len()).unwrap());
}

#[test]
fn a_feed_is_a_topic_like_any_other() {
    let site = Site::start();
    site.api.make(FEED, 4);
    define(&site.api, "p", &feeding());
    let group = Group::of(&site, FEED, "g");
    group.make(&json!({"from": "earliest"}));
    let payloads: Vec<Value> = (0..40).map(|n| json!({"id": format!("k{}", n % 8), "n": n})).collect();
    emit_all(&site.api, "t", &payloads);
    let got = group.consume(&json!({}), 40);
    let mut by_key: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for one in &got {
        by_key.entry(one["event"]["key"].as_str().unwrap()).or_default().push(&one["event"]["partition"]);
    }
    // A key is always in the same place.
    assert!(
        by_key.len() == 8
            && by_key.values().all(|all| all.len() == 5 && all.iter().all(|one| one == &all[0]))
    );
    let latest = site.api.get(&format!("/v1/topics/{FEED}/keys/k3")).is(200);
    assert_eq!(latest["key"], "k3");
}

#[test]
fn a_projection_can_follow_a_feed() {
    let site = Site::start();
    define(&site.api, "p", &feeding());
    define(&site.api, "q", &counting(FEED, "changes"));
    for n in 0..30 {
        emit(&site.api, "t", &json!({"id": format!("k{}", n % 3), "n": n}));
    }
    caught_up(&site.api, "p");
    caught_up(&site.api, "q");
    for key in ["k0", "k1", "k2"] {
        assert_eq!(content(&site.api, "changes", key), json!({"n": 10}));
    }
}

#[test]
fn other_projections_of_the_topic_feed_nothing() {
    let site = Site::start();
    define(&site.api, "p", &feeding());
    define(&site.api, "q", &changelog("t", "d"));
    emit(&site.api, "t", &json!({"id": "a"}));
    caught_up(&site.api, "p");
    caught_up(&site.api, "q");
    assert_eq!(fed_keys(&site.api), ["a"]);
}

#[test]
fn the_config_file_has_it_too() {
    let file = format!(
        "[[projection]]\nname = \"p\"\ntopic = \"t\"\ncollection = \"c\"\nkey = \"event.payload.id\"\nchangefeed = \"{FEED}\"\n"
    );
    let mut site = Site::with_file(&file);
    emit(&site.api, "t", &json!({"id": "a"}));
    caught_up(&site.api, "p");
    site.crash();
    emit(&site.api, "t", &json!({"id": "b"}));
    caught_up(&site.api, "p");
    assert_eq!(fed_keys(&site.api), ["a", "b"]);
}

#[test]
fn a_feed_with_a_bad_name_is_refused() {
    let site = Site::start();
    for bad in [json!("Bad Topic"), json!(""), json!("dlq.t"), json!("system.x"), json!(7), json!("t")] {
        let definition = with(changelog("t", "c"), "changefeed", bad.clone());
        let answer = site.api.put(&projection_path("p"), &definition.to_string());
        // One that feeds itself never comes to an end.
        assert_eq!(answer.status, 400, "{bad}: {answer:?}");
        answer.is_error();
    }
    site.api.get(&projection_path("p")).fails(404, "not_found");
}

#[test]
fn a_rebuild_gives_the_same_documents() {
    let site = Site::start();
    define(&site.api, "p", &feeding());
    for n in 0..20 {
        emit(&site.api, "t", &json!({"id": format!("k{}", n % 4), "n": n}));
    }
    caught_up(&site.api, "p");
    let before = list_all(&site.api, "c", "");
    define(&site.api, "p", &with(feeding(), "key", json!("(event.payload.id)")));
    assert_eq!(status(&site.api, "p")["stale"], true);
    rebuild(&site.api, "p");
    assert_eq!(list_all(&site.api, "c", ""), before);
    emit(&site.api, "t", &json!({"id": "k0", "n": 99}));
    caught_up(&site.api, "p");
    assert_eq!(fed_keys(&site.api).last().map(String::as_str), Some("k0"));
    assert_eq!(doc(&site.api, "c", "k0")["n"], 99);
}

#[test]
fn every_change_is_fed_exactly_once_through_kills() {
    let mut site = Site::start();
    site.api.make("t", 2);
    define(&site.api, "p", &feeding_by_key());
    for answers in [2, 25, 9, 40] {
        let count = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0_usize.. {
                    let events: Vec<Value> = (0..=n % 20)
                        .map(|m| json!({"key": format!("k{}", (n + m) % 7), "payload": {"n": n, "m": m}}))
                        .collect();
                    let body = json!(events).to_string();
                    match try_call(&site.api, "POST", "/v1/topics/t/events", &body) {
                        Some(answer) if answer.status == 201 => drop(count.fetch_add(1, Ordering::AcqRel)),
                        _ => return,
                    }
                }
            });
            eventually("it is in the middle", || count.load(Ordering::Acquire) >= answers);
            site.hub().signal(Signal::KILL);
        });
        site.crash();
    }
    caught_up(&site.api, "p");
    let count = |topic: &str| {
        let mut sums: BTreeMap<String, i64> = BTreeMap::new();
        for line in site.api.export(topic, "").lines() {
            *sums.entry(line["key"].as_str().unwrap().to_owned()).or_default() += 1;
        }
        sums
    };
    let events = count("t");
    assert_eq!(events.len(), 7);
    assert_eq!(count(FEED), events);
}
