//! Projections: what each part of a definition does to an event, what fails and where it goes, and what is refused.

use crate::auth_support::Setup;
use crate::contract_support::{Api, Site, encoded, fields, now};
use crate::groups_support;
use crate::groups_support::eventually;
use crate::state_support::{
    caught_up, changelog, commit, content, counter, counting, dead_offsets, define, doc, emit, emit_all,
    emit_as, exists, is_missing, letters, list, list_all, names, on_both_stores, projection_path, put, snap,
    status, wait_for_letters, with, write,
};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};

/// A site with one changelog of `t` in `c`, which has this beside its topic, collection and key.
fn site_with(more: &Value) -> Site {
    let site = Site::start();
    let mut definition = changelog("t", "c");
    for (name, value) in more.as_object().unwrap() {
        definition[name] = value.clone();
    }
    define(&site.api, "p", &definition);
    site
}

#[track_caller]
fn refused(api: &Api, definition: &Value) -> Value {
    let answer = api.put(&projection_path("bad"), &definition.to_string());
    assert_eq!(answer.status, 400, "{definition}: {} {}", answer.status, answer.text());
    answer.is_error();
    api.get(&projection_path("bad")).fails(404, "not_found");
    answer.json()
}

#[test]
fn the_payload_is_the_document() {
    on_both_stores(|api| {
        define(api, "p", &changelog("t", "c"));
        emit_as(api, "t", json!({"payload": {"id": "k", "a": 1, "b": 2}, "ts": 5000}));
        caught_up(api, "p");
        assert_eq!(doc(api, "c", "k"), json!({"_key": "k", "_ts": 5000, "id": "k", "a": 1, "b": 2}));
        // A later one replaces it, and leaves nothing of it.
        emit_as(api, "t", json!({"payload": {"id": "k", "b": 3}, "ts": 4000}));
        caught_up(api, "p");
        assert_eq!(doc(api, "c", "k"), json!({"_key": "k", "_ts": 4000, "id": "k", "b": 3}));
    });
}

#[test]
fn the_key_is_what_its_expression_says() {
    let site = Site::start();
    let key = "event.payload.host + ':' + event.payload.name + ':' + string(event.payload.pid)";
    define(&site.api, "p", &json!({"topic": "t", "collection": "c", "key": key}));
    define(&site.api, "q", &json!({"topic": "t", "collection": "d", "key": "event.key"}));
    emit_as(&site.api, "t", json!({"key": "mine", "payload": {"host": "web1", "name": "stt", "pid": 42}}));
    caught_up(&site.api, "p");
    caught_up(&site.api, "q");
    assert_eq!(content(&site.api, "c", "web1:stt:42")["pid"], 42);
    assert_eq!(content(&site.api, "d", "mine")["pid"], 42);
}

#[test]
fn only_the_named_fields_are_taken() {
    let site = site_with(&json!({"fields": ["id", "a", "b"]}));
    emit(&site.api, "t", &json!({"id": "k", "a": {"x": 1}, "secret": 1}));
    caught_up(&site.api, "p");
    let document = doc(&site.api, "c", "k");
    assert!(document["b"].is_null() && document.get("secret").is_none(), "{document}");
    assert_eq!((&document["id"], &document["a"]), (&json!("k"), &json!({"x": 1})));
}

#[test]
fn a_map_makes_the_document() {
    let map = "{'name': event.payload.name, 'sum': event.payload.a + event.payload.b, 'at': event.ts, 'from': event.topic}";
    let site = site_with(&json!({"map": map}));
    emit_as(&site.api, "t", json!({"payload": {"id": "k", "name": "n", "a": 1, "b": 2}, "ts": 1234}));
    // The sum of text and number is none.
    emit(&site.api, "t", &json!({"id": "bad", "name": "n", "a": 1, "b": "2"}));
    emit(&site.api, "t", &json!({"id": "bad2"}));
    caught_up(&site.api, "p");
    assert_eq!(content(&site.api, "c", "k"), json!({"name": "n", "sum": 3, "at": 1234, "from": "t"}));
    assert_eq!(dead_offsets(&wait_for_letters(&site.api, "t", 2)), [1, 2]);
    assert_eq!(list(&site.api, "c", "")["count"], 1);
}

#[test]
fn a_payload_that_is_no_object_stops_nothing() {
    for map in [None, Some("event.payload.v")] {
        let site = Site::start();
        let mut definition = json!({"topic": "t", "collection": "c", "key": "event.key"});
        if let Some(map) = map {
            definition["map"] = json!(map);
        }
        define(&site.api, "p", &definition);
        for payload in
            [json!(1), json!("text"), json!([1]), json!(true), json!({"v": 5}), json!({"v": {"x": 1}})]
        {
            emit_as(&site.api, "t", json!({"key": "k", "payload": payload}));
        }
        caught_up(&site.api, "p");
        doc(&site.api, "c", "k");
    }
}

#[test]
fn a_null_payload_deletes_the_events_key() {
    on_both_stores(|api| {
        define(api, "p", &changelog("t", "c"));
        emit_as(api, "t", json!({"key": "other", "payload": {"id": "k"}}));
        emit_as(api, "t", json!({"key": "k", "payload": {"id": "stays"}}));
        caught_up(api, "p");
        emit_as(api, "t", json!({"key": "k", "payload": null}));
        emit_as(api, "t", json!({"key": "never-was", "payload": null}));
        caught_up(api, "p");
        is_missing(api, "c", "k");
        doc(api, "c", "stays");
        assert!(letters(api, "t").is_empty());
        // What came after is there again.
        emit(api, "t", &json!({"id": "k"}));
        caught_up(api, "p");
        doc(api, "c", "k");
    });
}

#[test]
fn a_null_payload_without_a_key_stops_nothing() {
    let site = site_with(&json!({}));
    emit(&site.api, "t", &json!({"id": "a"}));
    emit(&site.api, "t", &json!(null));
    emit(&site.api, "t", &json!({"id": "b"}));
    caught_up(&site.api, "p");
    assert_eq!(list(&site.api, "c", "")["count"], 2);
}

#[test]
fn a_payload_that_says_it_is_deleted_is() {
    let site = site_with(&json!({}));
    for id in ["a", "b", "c", "d"] {
        emit(&site.api, "t", &json!({"id": id}));
    }
    emit(&site.api, "t", &json!({"id": "a", "_deleted": true}));
    for (id, value) in [("b", json!(false)), ("c", json!("true")), ("d", json!(1))] {
        emit(&site.api, "t", &json!({"id": id, "_deleted": value, "still": "here"}));
    }
    caught_up(&site.api, "p");
    is_missing(&site.api, "c", "a");
    for id in ["b", "c", "d"] {
        assert_eq!(doc(&site.api, "c", id)["still"], "here");
    }
}

#[test]
fn a_tombstone_expression_deletes_where_it_holds() {
    let site = site_with(&json!({"tombstone": "event.payload.gone"}));
    for id in ["a", "b", "c", "d"] {
        emit(&site.api, "t", &json!({"id": id, "gone": false}));
    }
    emit(&site.api, "t", &json!({"id": "a", "gone": true}));
    // One without the field is not gone.
    emit(&site.api, "t", &json!({"id": "b", "n": 1}));
    emit(&site.api, "t", &json!({"id": "c", "_deleted": true}));
    emit_as(&site.api, "t", json!({"key": "d", "payload": null}));
    caught_up(&site.api, "p");
    for id in ["a", "c", "d"] {
        is_missing(&site.api, "c", id);
    }
    assert_eq!(content(&site.api, "c", "b"), json!({"id": "b", "n": 1}));
    assert!(letters(&site.api, "t").is_empty());
}

#[test]
fn only_a_greater_version_is_written() {
    on_both_stores(|api| {
        define(api, "p", &with(changelog("t", "c"), "version", json!("event.payload.rev")));
        let send = |rev: i64, n: i64| {
            emit_as(api, "t", json!({"payload": {"id": "k", "rev": rev, "n": n}, "ts": n * 1000}));
            caught_up(api, "p");
            let document = doc(api, "c", "k");
            (
                document["_v"].as_i64().unwrap(),
                document["n"].as_i64().unwrap(),
                document["_ts"].as_i64().unwrap(),
            )
        };
        assert_eq!(send(5, 1), (5, 1, 1000));
        assert_eq!(send(4, 2), (5, 1, 1000));
        assert_eq!(send(5, 3), (5, 1, 1000));
        assert_eq!(send(6, 4), (6, 4, 4000));
        assert_eq!(send(-1, 5), (6, 4, 4000));
        assert_eq!(send(9_007_199_254_740_993, 6), (9_007_199_254_740_993, 6, 6000));
        assert_eq!(send(9_007_199_254_740_992, 7), (9_007_199_254_740_993, 6, 6000));
        assert!(letters(api, "t").is_empty());
    });
}

#[test]
fn an_older_version_leaves_the_tag_alone() {
    let site = site_with(&json!({"version": "event.payload.rev"}));
    emit(&site.api, "t", &json!({"id": "k", "rev": 2}));
    caught_up(&site.api, "p");
    let before = site.api.get(&snap("c", "k"));
    emit(&site.api, "t", &json!({"id": "k", "rev": 1, "late": true}));
    caught_up(&site.api, "p");
    let after = site.api.get(&snap("c", "k"));
    assert_eq!((after.header("etag"), &after.body), (before.header("etag"), &before.body));
}

#[test]
fn an_event_without_a_key_is_a_dead_letter_and_the_projection_goes_on() {
    on_both_stores(|api| {
        define(api, "the-name", &changelog("t", "c"));
        let before = now();
        let bad = json!({"payload": {"no": "id"}, "key": "x", "headers": {"x-a": "b"}, "tags": ["y"]});
        emit_as(api, "t", bad);
        for payload in [json!({"id": 5}), json!({"id": null}), json!({"id": ["a"]}), json!("text"), json!(7)]
        {
            emit(api, "t", &payload);
        }
        emit(api, "t", &json!({"id": "good"}));
        caught_up(api, "the-name");
        doc(api, "c", "good");
        assert_eq!(list(api, "c", "")["count"], 1);
        let all = wait_for_letters(api, "t", 6);
        assert_eq!(dead_offsets(&all), [0, 1, 2, 3, 4, 5]);
        let originals = api.all("t", "");
        for letter in &all {
            let payload = &letter["payload"];
            assert_eq!(fields(payload), ["attempts", "err", "original", "projection", "topic", "ts"]);
            assert_eq!((&letter["topic"], &payload["topic"]), (&json!("dlq.t"), &json!("t")));
            let original =
                &originals[usize::try_from(payload["original"]["offset"].as_u64().unwrap()).unwrap()];
            assert_eq!((&payload["original"], &letter["caused_by"]), (original, &json!([original["id"]])));
            assert_eq!(payload["projection"], "the-name");
            assert!(payload["attempts"].as_u64().unwrap() >= 1, "{letter}");
            assert!(!payload["err"].as_str().unwrap().is_empty(), "{letter}");
            let ts = payload["ts"].as_i64().unwrap();
            assert!((before - 1000..=now() + 1000).contains(&ts), "{letter}");
        }
    });
}

#[test]
fn errors_are_counted_in_the_status() {
    let site = site_with(&json!({}));
    let errors = || match &status(&site.api, "p")["errors"] {
        Value::Number(number) => number.as_u64().unwrap(),
        Value::Array(all) => all.len() as u64,
        Value::Null => 0,
        other => panic!("{other}"),
    };
    emit(&site.api, "t", &json!({"id": "k"}));
    caught_up(&site.api, "p");
    assert_eq!(errors(), 0);
    emit(&site.api, "t", &json!({}));
    caught_up(&site.api, "p");
    assert!(errors() > 0, "{}", status(&site.api, "p"));
    let dead = groups_support::metric(&site.api, "events_dead_lettered_total", &[("topic", "t")]);
    assert_eq!(dead, Some(1.0));
}

#[test]
fn two_projections_on_one_topic_do_not_disturb_each_other() {
    let site = Site::start();
    define(&site.api, "p", &changelog("t", "c"));
    define(&site.api, "q", &json!({"topic": "t", "collection": "d", "key": "event.payload.other"}));
    define(&site.api, "r", &counting("t", "counts"));
    for n in 0..30 {
        let mut payload = json!({"n": n});
        payload[["id", "other"][n % 2]] = json!(n.to_string());
        emit_as(&site.api, "t", json!({"key": "all", "payload": payload}));
    }
    for name in ["p", "q", "r"] {
        caught_up(&site.api, name);
    }
    assert_eq!(list(&site.api, "c", "")["count"], 15);
    assert_eq!(list(&site.api, "d", "")["count"], 15);
    assert_eq!(content(&site.api, "counts", "all"), json!({"n": 30}));
    let all = wait_for_letters(&site.api, "t", 30);
    assert_eq!(dead_offsets(&all), (0..30).collect::<Vec<_>>());
}

#[test]
fn an_event_that_fails_twice_is_two_dead_letters() {
    let site = Site::start();
    define(&site.api, "p", &changelog("t", "c"));
    define(&site.api, "q", &changelog("t", "d"));
    emit(&site.api, "t", &json!({}));
    let all = wait_for_letters(&site.api, "t", 2);
    let mut names: Vec<&Value> = all.iter().map(|one| &one["payload"]["projection"]).collect();
    names.sort_by_key(|name| name.to_string());
    assert_eq!(names, ["p", "q"], "{all:?}");
}

#[test]
fn a_projection_that_comes_late_sees_everything() {
    on_both_stores(|api| {
        let payloads: Vec<Value> =
            (0..2500).map(|n| json!({"id": format!("k{}", n % 100), "n": n})).collect();
        for part in payloads.chunks(500) {
            emit_all(api, "t", part);
        }
        define(api, "p", &changelog("t", "c"));
        caught_up(api, "p");
        let all = list_all(api, "c", "sort=n&limit=1000");
        let numbers: Vec<u64> = all.iter().map(|one| one["n"].as_u64().unwrap()).collect();
        assert_eq!(numbers, (2400..2500).collect::<Vec<_>>());
    });
}

#[test]
fn all_partitions_are_read_also_those_that_come_later() {
    let site = Site::start();
    site.api.make("t", 3);
    define(&site.api, "p", &counting("t", "c"));
    let send = || {
        let events: Vec<Value> =
            (0..200).map(|n| json!({"key": format!("k{}", n % 20), "payload": n})).collect();
        groups_support::publish_all(&site.api, "t", &events)
    };
    assert!(send().iter().any(|told| told["partition"] == 2));
    caught_up(&site.api, "p");
    site.api.make("t", 8);
    assert!(send().iter().any(|told| told["partition"].as_u64().unwrap() > 2));
    caught_up(&site.api, "p");
    let all = list_all(&site.api, "c", "");
    assert!(all.len() == 20 && all.iter().all(|one| one["n"] == 20), "{all:?}");
    // The status tells of each of them.
    assert_eq!(status(&site.api, "p")["partitions"].as_array().unwrap().len(), 8);
}

#[test]
fn the_events_of_a_key_are_taken_in_their_order() {
    let site = Site::start();
    site.api.make("t", 4);
    define(&site.api, "p", &json!({"topic": "t", "collection": "c", "key": "event.key"}));
    for round in 0..20 {
        let events: Vec<Value> = (0..40)
            .map(|n| json!({"key": format!("k{}", n % 8), "payload": {"n": round * 40 + n}}))
            .collect();
        groups_support::publish_all(&site.api, "t", &events);
    }
    caught_up(&site.api, "p");
    for n in 0..8 {
        assert_eq!(content(&site.api, "c", &format!("k{n}"))["n"], 792 + n);
    }
}

#[test]
fn a_write_set_writes_all_its_collections() {
    on_both_stores(|api| {
        let writes = json!([
            {"collection": "live", "key": "event.payload.id", "set": "event.payload"},
            {"collection": "hosts", "key": "event.payload.host", "inc": {"seen": "1", "cpu": "event.payload.cpu"}, "set": {"last": "event.ts"}},
        ]);
        define(api, "p", &json!({"topic": "t", "write": writes}));
        for (id, cpu, ts) in [("a", 1.5, 1000), ("b", 2.0, 2000), ("a", 3.0, 3000)] {
            emit_as(api, "t", json!({"payload": {"id": id, "host": "web1", "cpu": cpu}, "ts": ts}));
        }
        caught_up(api, "p");
        assert_eq!(content(api, "live", "a"), json!({"id": "a", "host": "web1", "cpu": 3.0}));
        let host = doc(api, "hosts", "web1");
        assert_eq!((&host["seen"], &host["last"], &host["_ts"]), (&json!(3), &json!(3000), &json!(3000)));
        assert_eq!(host["cpu"].as_f64(), Some(6.5));
    });
}

#[test]
fn a_write_set_that_fails_in_part_writes_nothing() {
    let site = Site::start();
    let writes = json!([
        {"collection": "first", "key": "event.payload.id", "inc": {"n": "1"}},
        {"collection": "second", "key": "event.payload.host", "inc": {"n": "event.payload.by"}},
    ]);
    define(&site.api, "p", &json!({"topic": "t", "write": writes}));
    emit_all(
        &site.api,
        "t",
        &[
            json!({"id": "a", "host": "h", "by": 1}),
            json!({"id": "a", "by": 1}),
            json!({"id": "a", "host": "h"}),
            json!({"host": "h", "by": 1}),
            json!({"id": "a", "host": "h", "by": "x"}),
            json!({"id": "a", "host": "h", "by": 5}),
        ],
    );
    caught_up(&site.api, "p");
    assert_eq!(dead_offsets(&wait_for_letters(&site.api, "t", 4)), [1, 2, 3, 4]);
    assert_eq!(content(&site.api, "first", "a"), json!({"n": 2}));
    assert_eq!(content(&site.api, "second", "h"), json!({"n": 6}));
}

/// Reads one counter and then the other, both ways, while `go_on` says so.
fn watch(api: &Api, go_on: &AtomicBool) {
    while go_on.load(Ordering::Acquire) {
        let (a, b) = (counter(api, "a", "k", "n"), counter(api, "b", "k", "n"));
        assert!(b >= a, "b had {b} after a had {a}");
        let (b, a) = (counter(api, "b", "k", "n"), counter(api, "a", "k", "n"));
        assert!(a >= b, "a had {a} after b had {b}");
        let both = list(api, "both", "")["items"].as_array().unwrap().clone();
        assert!(both.is_empty() || (both.len() == 2 && both[0]["n"] == both[1]["n"]), "half of it: {both:?}");
    }
}

#[test]
fn nobody_sees_half_of_a_write_set() {
    on_both_stores(|api| {
        let one =
            |collection: &str, key: &str| json!({"collection": collection, "key": key, "inc": {"n": "1"}});
        let writes = [one("a", "'k'"), one("b", "'k'"), one("both", "'x'"), one("both", "'y'")];
        define(api, "p", &json!({"topic": "t", "write": writes}));
        let go_on = AtomicBool::new(true);
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..2).map(|_| scope.spawn(|| watch(api, &go_on))).collect();
            for n in 0..150 {
                emit_all(api, "t", &vec![json!(n); 1 + n % 13]);
            }
            caught_up(api, "p");
            go_on.store(false, Ordering::Release);
            readers.into_iter().for_each(|reader| reader.join().unwrap());
        });
        let sum: i64 = (0..150).map(|n| 1 + n % 13).sum();
        assert_eq!([counter(api, "a", "k", "n"), counter(api, "both", "y", "n")], [sum, sum]);
    });
}

#[test]
fn the_lag_is_what_is_not_yet_seen() {
    let site = site_with(&json!({}));
    assert_eq!(status(&site.api, "p")["lag"], 0);
    for part in 0..4 {
        let payloads: Vec<Value> = (0..500).map(|n| json!({"id": format!("{part}-{n}")})).collect();
        emit_all(&site.api, "t", &payloads);
    }
    eventually("the lag falls to nothing", || {
        let (lag, count) =
            (status(&site.api, "p")["lag"].as_u64().unwrap(), list(&site.api, "c", "")["count"].clone());
        assert!(lag <= 2000);
        lag == 0 && count == 100
    });
    assert_eq!(list_all(&site.api, "c", "limit=1000").len(), 2000);
}

#[test]
fn projections_are_listed_and_told() {
    let site = Site::start();
    assert_eq!(names(&site.api.get("/v1/projections").is(200)), [""; 0]);
    define(&site.api, "one", &changelog("t", "c"));
    define(&site.api, "two", &counting("t", "d"));
    assert_eq!(names(&site.api.get("/v1/projections").is(200)), ["one", "two"]);
    let told = status(&site.api, "one");
    assert!(told["lag"].is_u64() && told["stale"] != true, "{told}");
    assert!(told.to_string().contains("event.payload.id"), "{told}");
    site.api.get("/v1/projections/none").fails(404, "not_found");
}

#[test]
fn an_expression_that_does_not_compile_is_refused_with_its_place() {
    let site = Site::start();
    for part in ["key", "map", "tombstone", "version"] {
        for (text, column) in [
            ("event.payload.id +", 18),
            ("event.payload..id", 15),
            ("nope(event)", 1),
            ("", 1),
            ("evnt.ts", 1),
        ] {
            let told = refused(&site.api, &with(changelog("t", "c"), part, json!(text)));
            assert!(["bad_filter", "bad_request"].contains(&told["error"].as_str().unwrap()), "{told}");
            let place = told["column"].as_i64();
            assert!(place.is_some_and(|place| (place - column).abs() <= 3), "{part} {text}: {told}");
        }
    }
    for (name, value) in [
        ("key", json!("event..x")),
        ("set", json!("event..x")),
        ("set", json!({"a": "event..x"})),
        ("inc", json!({"n": "1 +"})),
    ] {
        let mut one = json!({"collection": "c", "key": "event.key", "inc": {"m": "1"}});
        one[name] = value;
        let told = refused(&site.api, &json!({"topic": "t", "write": [one]}));
        assert!(told["column"].is_u64(), "{told}");
    }
}

#[test]
fn a_definition_with_something_wrong_is_refused() {
    let site = Site::start();
    let good = changelog("t", "c");
    let without = |name: &str| {
        let mut definition = good.clone();
        definition.as_object_mut().unwrap().remove(name);
        definition
    };
    let one = json!({"collection": "d", "key": "event.key", "inc": {"n": "1"}});
    for bad in [
        without("topic"),
        without("collection"),
        without("key"),
        json!({}),
        with(good.clone(), "colection", json!("c")),
        with(good.clone(), "write", json!([one])),
        with(with(good.clone(), "map", json!("event.payload")), "fields", json!(["a"])),
        with(good.clone(), "topic", json!("Bad Topic")),
        with(good.clone(), "topic", json!(7)),
        with(good.clone(), "key", json!(7)),
        with(good.clone(), "fields", json!("id")),
        with(good.clone(), "indexes", json!(["id"])),
        with(good.clone(), "indexes", json!([[]])),
        with(good.clone(), "retries", json!(-1)),
        with(good.clone(), "retries", json!("3")),
        json!({"topic": "t", "write": []}),
        json!({"topic": "t", "write": [{"collection": "d", "key": "event.key"}]}),
        json!({"topic": "t", "write": [{"collection": "d", "inc": {"n": "1"}}]}),
        json!({"topic": "t", "write": [{"key": "event.key", "inc": {"n": "1"}}]}),
        json!({"topic": "t", "write": [with(one.clone(), "sett", json!("event.payload"))]}),
        json!({"topic": "t", "write": [one], "key": "event.key"}),
        json!([]),
        json!("x"),
    ] {
        refused(&site.api, &bad);
    }
    site.api.put(&projection_path("bad"), "{").fails(400, "bad_json");
    for name in ["a b", "a/b", "..", "\u{0}"] {
        site.api.put(&projection_path(&encoded(name)), &good.to_string()).fails_as(&[400, 404]);
    }
    assert_eq!(names(&site.api.get("/v1/collections").is(200)), [""; 0]);
}

#[test]
fn a_collection_has_one_owner() {
    on_both_stores(|api| {
        define(api, "p", &changelog("t", "c"));
        put(api, "mine", "k", json!({"a": 1}));
        for taken in ["c", "mine"] {
            api.put(&projection_path("q"), &changelog("u", taken).to_string()).fails(409, "not_owner");
            let writes = json!([
                {"collection": "free", "key": "event.key", "inc": {"n": "1"}},
                {"collection": taken, "key": "event.key", "inc": {"n": "1"}},
            ]);
            let definition = json!({"topic": "u", "write": writes});
            api.put(&projection_path("q"), &definition.to_string()).fails(409, "not_owner");
        }
        api.get(&projection_path("q")).fails(404, "not_found");
        commit(api, &json!({"writes": [write("c", "k", "set", json!({}))]})).fails(409, "not_owner");
        assert!(!exists(api, "c", "k"));
        // What was refused took nothing.
        put(api, "free", "k", json!({}));
    });
}

#[test]
fn the_same_definition_again_changes_nothing() {
    let site = site_with(&json!({}));
    emit(&site.api, "t", &json!({"id": "k"}));
    caught_up(&site.api, "p");
    define(&site.api, "p", &changelog("t", "c"));
    assert_ne!(status(&site.api, "p")["stale"], true);
    doc(&site.api, "c", "k");
}

#[test]
fn a_config_with_a_mistake_does_not_start() {
    let file = |lines: &str| format!("[[projection]]\nname = \"p\"\ntopic = \"t\"\n{lines}\n");
    for (lines, named) in [
        ("collection = \"c\"\nkey = \"event.key\"\ncolection = \"x\"", "colection"),
        ("collection = \"c\"\nkey = \"event..key\"", "key"),
        ("collection = \"c\"", "key"),
        ("key = \"event.key\"", "collection"),
    ] {
        let said = Setup { file: &file(lines), ..Setup::default() }.gives_up();
        assert!(matches!(said.code, Some(1 | 2)) && said.stderr.contains(named), "{said:?}");
    }
    let twice = file("collection = \"c\"\nkey = \"event.key\"").repeat(2);
    let said = Setup { file: &twice, ..Setup::default() }.gives_up();
    assert!(matches!(said.code, Some(1 | 2)), "{said:?}");
}
