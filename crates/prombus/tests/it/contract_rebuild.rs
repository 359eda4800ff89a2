//! Rebuilds: the same collection again byte for byte, never seen half built, and definitions that changed.

use crate::contract_support::{Api, Site};
use crate::groups_support::publish_all;
use crate::state_support;
use crate::state_support::{
    ask, caught_up, changelog, content, counter, counting, define, doc, emit, emit_all, is_fresh, is_missing,
    letters, list, list_all, list_path, on_both_stores, projection_path, rebuild, snap, start_rebuild,
    status, with,
};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};

/// The same definition in other words, which has to be taken for a change.
fn reworded(definition: &Value) -> Value {
    let mut other = definition.clone();
    let key = if other["key"].is_string() { &mut other["key"] } else { &mut other["write"][0]["key"] };
    let words = format!("({})", key.as_str().unwrap());
    *key = json!(words);
    other
}

/// Everything that a reader can see of a collection, byte for byte.
#[track_caller]
fn seen(api: &Api, collection: &str) -> Vec<(String, Option<String>)> {
    let mut all = Vec::new();
    for query in ["limit=1000", "limit=1000&sort=_key", "limit=1000&status=alive", "limit=1000&sort=-n"] {
        let page = api.get(&list_path(collection, query));
        page.is(200);
        all.push((page.text().to_owned(), None));
    }
    for item in list_all(api, collection, "sort=_key&limit=1000") {
        let answer = ask(api, "GET", &snap(collection, item["_key"].as_str().unwrap()), &[]);
        assert_eq!(answer.is(200), item);
        let headers = ["etag", "last-modified"].map(|name| answer.header(name).unwrap());
        all.push((answer.text().to_owned(), Some(headers.join(" "))));
    }
    all
}

/// Changes, deletes, older versions and events that fail.
fn publish_a_life(api: &Api) {
    let mut events = Vec::new();
    for n in 0_u64..400 {
        let (id, status) = (format!("k{}", (n * 7) % 61), ["alive", "stale"][usize::from(n % 3 == 0)]);
        let payload = json!({"id": id, "n": n, "rev": (n * 31) % 97, "status": status, "x": 0.1, "deep": {"é": [n, null]}});
        events.push(json!({"key": id, "payload": payload, "ts": 1000 + (n * 7919) % 5000}));
        if n % 17 == 0 {
            events.push(json!({"key": id, "payload": null}));
        }
        if n % 29 == 0 {
            events.push(json!({"payload": {"id": format!("k{}", n % 61), "_deleted": true, "rev": 1000}}));
        }
        if n % 40 == 0 {
            events.push(json!({"payload": {"no": "id"}}));
        }
    }
    publish_all(api, "t", &events);
}

#[test]
fn a_rebuild_gives_the_same_byte_for_byte() {
    on_both_stores(|api| {
        let plain = with(changelog("t", "c"), "indexes", json!([["status"], ["n"]]));
        let versioned = with(changelog("t", "v"), "version", json!("event.payload.rev"));
        let counts = with(counting("t", "counts"), "retries", json!(0));
        for (name, definition) in [("p", &plain), ("q", &versioned), ("r", &counts)] {
            define(api, name, definition);
        }
        publish_a_life(api);
        for (name, collection, definition) in
            [("p", "c", &plain), ("q", "v", &versioned), ("r", "counts", &counts)]
        {
            caught_up(api, name);
            let before = seen(api, collection);
            define(api, name, &reworded(definition));
            assert_eq!(status(api, name)["stale"], true);
            assert_eq!(seen(api, collection), before);
            rebuild(api, name);
            assert_eq!(seen(api, collection), before, "{collection}");
        }
    });
}

#[test]
fn a_rebuild_of_what_is_not_stale_changes_nothing_either() {
    let mut site = Site::start();
    define(&site.api, "p", &changelog("t", "c"));
    publish_a_life(&site.api);
    caught_up(&site.api, "p");
    let before = seen(&site.api, "c");
    start_rebuild(&site.api, "p");
    for _ in 0..20 {
        assert_eq!(
            list(&site.api, "c", "limit=1000").to_string(),
            before[0].0.parse::<Value>().unwrap().to_string()
        );
    }
    caught_up(&site.api, "p");
    assert_eq!(seen(&site.api, "c"), before);
    site.crash();
    caught_up(&site.api, "p");
    assert_eq!(seen(&site.api, "c"), before);
}

#[test]
fn a_rebuild_is_what_one_gets_from_nothing() {
    let site = Site::start();
    define(&site.api, "old", &with(changelog("t", "c"), "fields", json!(["id"])));
    publish_a_life(&site.api);
    caught_up(&site.api, "old");
    let definition =
        with(changelog("t", "c"), "map", json!("{'n': event.payload.n, 'status': event.payload.status}"));
    define(&site.api, "old", &definition);
    rebuild(&site.api, "old");
    define(&site.api, "new", &with(definition, "collection", json!("d")));
    caught_up(&site.api, "new");
    assert_eq!(seen(&site.api, "c"), seen(&site.api, "d"));
}

#[test]
fn a_definition_that_changed_goes_for_new_events_and_is_stale() {
    on_both_stores(|api| {
        define(api, "p", &with(changelog("t", "c"), "fields", json!(["id", "a"])));
        emit(api, "t", &json!({"id": "old", "a": 1, "b": 2}));
        caught_up(api, "p");
        assert_ne!(status(api, "p")["stale"], true);
        define(api, "p", &with(changelog("t", "c"), "fields", json!(["id", "b"])));
        assert_eq!(status(api, "p")["stale"], true);
        emit(api, "t", &json!({"id": "new", "a": 1, "b": 2}));
        caught_up(api, "p");
        assert_eq!(status(api, "p")["stale"], true);
        assert_eq!(content(api, "c", "old"), json!({"id": "old", "a": 1}));
        assert_eq!(content(api, "c", "new"), json!({"id": "new", "b": 2}));
        rebuild(api, "p");
        assert_eq!(content(api, "c", "old"), json!({"id": "old", "b": 2}));
        assert_eq!(content(api, "c", "new"), json!({"id": "new", "b": 2}));
    });
}

#[test]
fn stale_survives_until_the_rebuild_and_the_rebuild_survives() {
    let mut site = Site::start();
    define(&site.api, "p", &with(changelog("t", "c"), "fields", json!(["a"])));
    emit(&site.api, "t", &json!({"id": "k", "a": 1, "b": 2}));
    caught_up(&site.api, "p");
    define(&site.api, "p", &with(changelog("t", "c"), "fields", json!(["b"])));
    for end in [Site::crash, Site::restart] {
        end(&mut site);
        assert_eq!(status(&site.api, "p")["stale"], true);
        assert_eq!(content(&site.api, "c", "k"), json!({"a": 1}));
    }
    rebuild(&site.api, "p");
    for end in [Site::crash, Site::restart] {
        end(&mut site);
        assert_ne!(status(&site.api, "p")["stale"], true);
        assert_eq!(content(&site.api, "c", "k"), json!({"b": 2}));
    }
}

#[test]
fn a_changed_key_leaves_no_old_documents_after_the_rebuild() {
    let site = Site::start();
    define(&site.api, "p", &changelog("t", "c"));
    emit_all(&site.api, "t", &[json!({"id": "a", "other": "x"}), json!({"id": "b", "other": "y"})]);
    caught_up(&site.api, "p");
    define(&site.api, "p", &with(changelog("t", "c"), "key", json!("event.payload.other")));
    rebuild(&site.api, "p");
    for old in ["a", "b"] {
        is_missing(&site.api, "c", old);
    }
    assert_eq!(state_support::found(&site.api, "c", ""), ["x", "y"]);
    assert_eq!(site.api.get("/v1/collections/c").is(200)["count"], 2);
}

#[test]
fn an_index_that_is_added_answers_after_the_rebuild() {
    let site = Site::start();
    define(&site.api, "p", &changelog("t", "c"));
    publish_a_life(&site.api);
    caught_up(&site.api, "p");
    let before = seen(&site.api, "c");
    define(&site.api, "p", &with(changelog("t", "c"), "indexes", json!([["status", "n"], ["deep.é"]])));
    assert_eq!(seen(&site.api, "c"), before);
    start_rebuild(&site.api, "p");
    is_fresh(&site.api, "p");
    caught_up(&site.api, "p");
    assert_eq!(seen(&site.api, "c"), before);
}

/// A counter of `keys` keys with so many events each, and the definition that is to be rebuilt.
fn counted(site: &Site, keys: usize, each: usize) -> Value {
    let definition = counting("t", "c");
    define(&site.api, "p", &definition);
    for _ in 0..each {
        let events: Vec<Value> = (0..keys).map(|n| json!({"key": format!("k{n}"), "payload": n})).collect();
        publish_all(&site.api, "t", &events);
    }
    caught_up(&site.api, "p");
    reworded(&definition)
}

/// Reads while `go_on` says so: there is never less than there was.
fn watch(api: &Api, keys: usize, go_on: &AtomicBool) {
    let mut least = vec![0; keys];
    while go_on.load(Ordering::Acquire) {
        let page = list(api, "c", "limit=1000");
        assert_eq!(page["count"], keys, "half of it is to be seen");
        for item in page["items"].as_array().unwrap() {
            let place: usize = item["_key"].as_str().unwrap()[1..].parse().unwrap();
            let n = item["n"].as_i64().unwrap();
            assert!(n >= least[place], "{item} after {}", least[place]);
            least[place] = n;
        }
        let one = counter(api, "c", "k0", "n");
        assert!(one >= least[0], "{one} after {}", least[0]);
    }
}

#[test]
fn nobody_sees_it_half_built() {
    const KEYS: usize = 50;
    let site = Site::start();
    let definition = counted(&site, KEYS, 100);
    define(&site.api, "p", &definition);
    let go_on = AtomicBool::new(true);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2).map(|_| scope.spawn(|| watch(&site.api, KEYS, &go_on))).collect();
        rebuild(&site.api, "p");
        go_on.store(false, Ordering::Release);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
    let all = list_all(&site.api, "c", "limit=1000");
    assert!(all.len() == KEYS && all.iter().all(|one| one["n"] == 100), "{all:?}");
}

#[test]
fn events_that_come_meanwhile_count_once() {
    const KEYS: usize = 20;
    let site = Site::start();
    let definition = counted(&site, KEYS, 100);
    define(&site.api, "p", &definition);
    let go_on = AtomicBool::new(true);
    let more = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut rounds = 0;
            while go_on.load(Ordering::Acquire) {
                let events: Vec<Value> =
                    (0..KEYS).map(|n| json!({"key": format!("k{n}"), "payload": n})).collect();
                publish_all(&site.api, "t", &events);
                rounds += 1;
            }
            rounds
        });
        let reader = scope.spawn(|| watch(&site.api, KEYS, &go_on));
        start_rebuild(&site.api, "p");
        is_fresh(&site.api, "p");
        go_on.store(false, Ordering::Release);
        reader.join().unwrap();
        writer.join().unwrap()
    });
    caught_up(&site.api, "p");
    let all = list_all(&site.api, "c", "");
    assert!(all.len() == KEYS && all.iter().all(|one| one["n"] == 100 + more), "{more} more: {all:?}");
}

#[test]
fn a_write_is_read_by_its_publisher_also_during_a_rebuild() {
    let site = Site::start();
    let definition = counted(&site, 10, 100);
    define(&site.api, "p", &definition);
    start_rebuild(&site.api, "p");
    for n in 1..=30 {
        let told = publish_all(&site.api, "t", &[json!({"key": "k0", "payload": 1})]);
        let target = format!("{}?min_offset={}", snap("c", "k0"), told[0]["offset"]);
        assert_eq!(site.api.get(&target).is(200)["n"], 100 + n);
    }
    is_fresh(&site.api, "p");
    caught_up(&site.api, "p");
    assert_eq!(counter(&site.api, "c", "k0", "n"), 130);
}

#[test]
fn a_hub_that_dies_during_a_rebuild_has_a_whole_collection() {
    let mut site = Site::start();
    let definition = counted(&site, 30, 60);
    define(&site.api, "p", &definition);
    for _ in 0..4 {
        // The one of before may go on after the end.
        let answer = site.api.post("/v1/projections/p/rebuild", "{}");
        assert!(matches!(answer.status, 200 | 202 | 409), "{answer:?}");
        site.crash();
        let all = list_all(&site.api, "c", "");
        assert!(all.len() == 30 && all.iter().all(|one| one["n"] == 60), "{all:?}");
    }
    caught_up(&site.api, "p");
    let now = status(&site.api, "p");
    if now["stale"] == true && now["rebuild"].is_null() {
        rebuild(&site.api, "p");
    }
    is_fresh(&site.api, "p");
    publish_all(&site.api, "t", &[json!({"key": "k1", "payload": 1})]);
    caught_up(&site.api, "p");
    assert_eq!(counter(&site.api, "c", "k1", "n"), 61);
    assert_eq!(counter(&site.api, "c", "k2", "n"), 60);
}

#[test]
fn several_rebuilds_at_once_end_well() {
    let site = Site::start();
    let definition = counted(&site, 10, 50);
    define(&site.api, "p", &definition);
    let path = format!("{}/rebuild", projection_path("p"));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let answer = site.api.post(&path, "{}");
                assert!(matches!(answer.status, 200 | 202 | 409), "{answer:?}");
            });
        }
    });
    is_fresh(&site.api, "p");
    caught_up(&site.api, "p");
    let all = list_all(&site.api, "c", "");
    assert!(all.len() == 10 && all.iter().all(|one| one["n"] == 50), "{all:?}");
}

#[test]
fn a_rebuild_of_several_collections_swaps_them_together() {
    let site = Site::start();
    let one = |collection: &str, by: &str| json!({"collection": collection, "key": "'k'", "inc": {"n": by}});
    define(&site.api, "p", &json!({"topic": "t", "write": [one("a", "1"), one("b", "1")]}));
    emit_all(&site.api, "t", &vec![json!(1); 500]);
    caught_up(&site.api, "p");
    define(&site.api, "p", &json!({"topic": "t", "write": [one("a", "1000"), one("b", "1000")]}));
    let go_on = AtomicBool::new(true);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while go_on.load(Ordering::Acquire) {
                let (a, b) = (counter(&site.api, "a", "k", "n"), counter(&site.api, "b", "k", "n"));
                assert!([500, 500_000].contains(&a) && b >= a, "{a} and then {b}");
                let (b, a) = (counter(&site.api, "b", "k", "n"), counter(&site.api, "a", "k", "n"));
                assert!([500, 500_000].contains(&b) && a >= b, "{b} and then {a}");
            }
        });
        rebuild(&site.api, "p");
        go_on.store(false, Ordering::Release);
        reader.join().unwrap();
    });
    assert_eq!(["a", "b"].map(|one| counter(&site.api, one, "k", "n")), [500_000, 500_000]);
}

#[test]
fn a_rebuild_does_not_touch_other_projections() {
    let site = Site::start();
    define(&site.api, "other", &counting("t", "d"));
    let definition = counted(&site, 10, 20);
    caught_up(&site.api, "other");
    let before = seen(&site.api, "d");
    define(&site.api, "p", &definition);
    rebuild(&site.api, "p");
    assert_eq!(seen(&site.api, "d"), before);
    assert_eq!(status(&site.api, "other")["lag"], 0);
}

#[test]
fn an_event_that_fails_again_does_not_stop_a_rebuild() {
    let site = Site::start();
    let definition = changelog("t", "c");
    define(&site.api, "p", &definition);
    emit_all(&site.api, "t", &[json!({"id": "a"}), json!({"bad": 1}), json!({"id": "b"})]);
    caught_up(&site.api, "p");
    define(&site.api, "p", &reworded(&definition));
    rebuild(&site.api, "p");
    assert_eq!(list(&site.api, "c", "")["count"], 2);
    assert!(!letters(&site.api, "t").is_empty());
    emit(&site.api, "t", &json!({"id": "c"}));
    caught_up(&site.api, "p");
    doc(&site.api, "c", "c");
}

#[test]
fn a_rebuild_that_cannot_be_is_refused() {
    let site = Site::start();
    site.api.post("/v1/projections/none/rebuild", "{}").fails(404, "not_found");
    define(&site.api, "p", &changelog("t", "c"));
    for bad in [r#"{"partal":true}"#, r#"{"partial":"yes"}"#, "[]", "{"] {
        site.api.post("/v1/projections/p/rebuild", bad).fails_as(&[400]);
    }
    site.api.get("/v1/projections/p/rebuild").fails(405, "method_not_allowed");
    // Nothing is to be rebuilt, and there is no topic: that is no mistake.
    start_rebuild(&site.api, "p");
    let without_body = site.api.post("/v1/projections/p/rebuild", "");
    assert!(matches!(without_body.status, 200 | 202 | 409), "{without_body:?}");
}
