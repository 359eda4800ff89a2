//! Collections as such: which there are, whose they are, what numbers become in them, and the one that is served alone.

use crate::common::Hub;
use crate::contract_support::{Api, Site};
use crate::groups_support;
use crate::groups_support::eventually;
use crate::state_support::{
    ask, caught_up, changelog, commit, committed, content, counting, define, doc, emit, is_missing, list,
    list_all, list_path, names, on_both_stores, put, put_all, snap, wait_for_letters, with, write,
};
use serde_json::{Value, json};

/// Every number in an answer, wherever it stands.
fn numbers(value: &Value) -> Vec<u64> {
    match value {
        Value::Number(number) => number.as_u64().into_iter().collect(),
        Value::Array(all) => all.iter().flat_map(numbers).collect(),
        Value::Object(all) => all.values().flat_map(numbers).collect(),
        _ => Vec::new(),
    }
}

#[track_caller]
fn about(api: &Api, collection: &str) -> Value {
    api.get(&format!("/v1/collections/{collection}")).is(200)
}

#[test]
fn there_are_none_at_first() {
    on_both_stores(|api| {
        assert_eq!(names(&api.get("/v1/collections").is(200)), [""; 0]);
        api.get("/v1/collections/c").fails(404, "not_found");
        is_missing(api, "c", "k");
    });
}

#[test]
fn every_collection_is_listed_whoever_owns_it() {
    on_both_stores(|api| {
        define(api, "p", &changelog("t", "by_log"));
        let two = json!([
            {"collection": "first", "key": "event.payload.id", "set": "event.payload"},
            {"collection": "second", "key": "event.payload.id", "inc": {"n": "1"}},
        ]);
        define(api, "q", &json!({"topic": "t", "write": two}));
        put(api, "by_commit", "k", json!({}));
        emit(api, "t", &json!({"id": "k"}));
        caught_up(api, "p");
        caught_up(api, "q");
        assert_eq!(names(&api.get("/v1/collections").is(200)), ["by_commit", "by_log", "first", "second"]);
    });
}

#[test]
fn a_collection_tells_its_count_and_its_owner() {
    let mut site = Site::start();
    define(
        &site.api,
        "the-owner",
        &with(changelog("t", "c"), "indexes", json!([["host", "name"], ["status"]])),
    );
    for n in 0..17 {
        emit(&site.api, "t", &json!({"id": n.to_string(), "status": "s"}));
    }
    emit(&site.api, "t", &json!({"id": "3", "_deleted": true}));
    emit(&site.api, "t", &json!({"id": "4", "status": "other"}));
    caught_up(&site.api, "the-owner");
    let told = about(&site.api, "c");
    assert_eq!(told["count"], 16, "{told}");
    assert!(told.to_string().contains("\"the-owner\""), "{told}");
    assert!(told.to_string().contains("status") && told.to_string().contains("host"), "{told}");
    site.crash();
    let again = about(&site.api, "c");
    assert_eq!((&again["count"], &again["indexes"]), (&told["count"], &told["indexes"]));
    assert!(again.to_string().contains("\"the-owner\""), "{again}");
}

/// The one index of a collection, once it is not being built any more.
#[track_caller]
fn built(api: &Api, collection: &str) -> Value {
    let mut index = Value::Null;
    eventually("the index is built", || {
        index = about(api, collection)["indexes"][0].clone();
        if index["state"] == "building" {
            assert!(index["done"].as_u64().unwrap() <= index["of"].as_u64().unwrap(), "{index}");
        }
        index["state"] != "building"
    });
    index
}

#[test]
fn an_index_over_many_documents_is_built_beside() {
    let mut site = Site::start();
    let document = |n: usize, v: usize| write("c", &format!("k{n:04}"), "set", json!({"v": v}));
    let all: Vec<Value> = (0..1_500).map(|n| document(n, n % 1_499)).collect();
    for some in all.chunks(500) {
        committed(&site.api, &json!({"writes": some}));
    }
    let put = |api: &Api, unique: bool| {
        let settings = json!({"indexes": [{"fields": ["v"], "unique": unique}]});
        // How far it is by then is up to the machine.
        api.put("/v1/collections/c", &settings.to_string()).is(200);
    };
    put(&site.api, false);
    assert_eq!(list(&site.api, "c", "v=1498")["count"], 1, "lists are answered, with it or without");
    site.crash();
    assert_eq!(built(&site.api, "c"), json!({"fields": ["v"], "unique": false, "state": "ready"}));
    assert_eq!(list(&site.api, "c", "v=0")["count"], 2);
    // The first and the last have the same value, and the last is come to last.
    put(&site.api, true);
    let reason = "\"k0000\" and \"k1499\" have the same values";
    let failed = json!({"fields": ["v"], "unique": true, "state": "failed", "keys": ["k0000", "k1499"],
        "reason": reason});
    assert_eq!(built(&site.api, "c"), failed);
    site.crash();
    assert_eq!(about(&site.api, "c")["indexes"][0], failed, "it stays so until it is put again");
    committed(&site.api, &json!({"writes": [document(1_498, 0)]}));
    committed(&site.api, &json!({"writes": [document(1_498, 1_498), document(1_499, 1_499)]}));
    put(&site.api, true);
    assert_eq!(built(&site.api, "c")["state"], "ready");
    let clash = json!({"writes": [document(1_498, 0)]});
    let refused = commit(&site.api, &clash).fails(409, "version_conflict");
    assert!(refused.to_string().contains("k0000"), "{refused}");
}

/// A string of so many bytes more than an index takes of a document.
fn too_long(more: usize) -> String {
    "x".repeat(4_096 - 3 + more)
}

#[test]
fn what_is_too_long_for_an_index_is_refused_and_told() {
    on_both_stores(|api| {
        let settings = json!({"indexes": [["n"], ["host", "name"]]});
        api.put("/v1/collections/c", &settings.to_string()).is(201);
        let document = |name: String| json!({"host": "", "name": name, "free": too_long(9_000)});
        put(api, "c", "fits", document(too_long(0)[3..].to_owned()));
        let long = json!({"writes": [write("c", "other", "set", json!({})), write("c", "k", "set", document(too_long(7)))]});
        let refused = commit(api, &long).fails(413, "too_large");
        assert_eq!((&refused["collection"], &refused["key"]), (&json!("c"), &json!("k")), "{refused}");
        assert_eq!(refused["fields"], json!(["host", "name"]), "{refused}");
        assert_eq!((&refused["bytes"], &refused["limit"]), (&json!(4_106), &json!(4_096)), "{refused}");
        let message = refused["message"].as_str().unwrap();
        assert!(message.contains("host, name") && message.contains("remove the index"), "{message}");
        is_missing(api, "c", "k");
        is_missing(api, "c", "other");
        for query in ["name=", "host=&name=", "n=", "name[in]=a,", "name[gt]=", "_key=", "_ts="] {
            assert_eq!(list(api, "c", &format!("{query}{}", too_long(1)))["count"], 0, "{query}");
        }
    });
}

#[test]
fn an_index_over_what_is_too_long_fails_and_stops_nothing() {
    let mut site = Site::start();
    let document = |n: usize| write("c", &format!("k{n:04}"), "set", json!({"v": n}));
    for some in (0..1_500).map(document).collect::<Vec<Value>>().chunks(500) {
        committed(&site.api, &json!({"writes": some}));
    }
    put(&site.api, "c", "k0700", json!({"v": too_long(4)}));
    put(&site.api, "few", "k", json!({"v": [too_long(4)]}));
    let settings = json!({"indexes": [["v"]]}).to_string();
    let failed = |key: &str, bytes: usize| {
        let reason = format!(
            "the values of \"{key}\" take {bytes} bytes, more than the 4096 that an index takes of a document"
        );
        json!({"fields": ["v"], "unique": false, "state": "failed", "keys": [key], "reason": reason})
    };
    for (collection, key, bytes) in [("c", "k0700", 4_100), ("few", "k", 4_102)] {
        site.api.put(&format!("/v1/collections/{collection}"), &settings).is(200);
        assert_eq!(built(&site.api, collection), failed(key, bytes));
    }
    site.crash();
    assert_eq!(
        about(&site.api, "c")["indexes"][0],
        failed("k0700", 4_100),
        "it stays so until it is put again"
    );
    committed(&site.api, &json!({"writes": [document(1_500)]}));
    assert_eq!(list(&site.api, "c", &format!("v={}", too_long(4)))["count"], 1);
    committed(&site.api, &json!({"writes": [document(700)]}));
    site.api.put("/v1/collections/c", &settings).is(200);
    assert_eq!(built(&site.api, "c")["state"], "ready");
    commit(&site.api, &json!({"writes": [write("c", "k", "set", json!({"v": too_long(4)}))]}))
        .fails(413, "too_large");
}

#[test]
fn an_event_that_is_too_long_for_an_index_is_a_dead_letter() {
    on_both_stores(|api| {
        define(api, "p", &with(changelog("t", "c"), "indexes", json!([["v"]])));
        for (id, v) in [("a", "1".to_owned()), ("b", too_long(1)), ("d", "2".to_owned())] {
            emit(api, "t", &json!({"id": id, "v": v}));
        }
        caught_up(api, "p");
        let letters = wait_for_letters(api, "t", 1);
        let letter = &letters[0]["payload"];
        assert_eq!((&letter["projection"], &letter["original"]["payload"]["id"]), (&json!("p"), &json!("b")));
        assert!(letter["err"].as_str().unwrap().contains("4097 bytes"), "{letter}");
        is_missing(api, "c", "b");
        assert_eq!(content(api, "c", "d"), json!({"id": "d", "v": "2"}), "it goes on");
    });
}

#[test]
fn the_count_follows_commits() {
    on_both_stores(|api| {
        put_all(api, "c", &[("a", json!({})), ("b", json!({})), ("c", json!({}))]);
        assert_eq!(about(api, "c")["count"], 3);
        put(api, "c", "a", json!({"again": 1}));
        assert_eq!(about(api, "c")["count"], 3);
        committed(api, &json!({"writes": [write("c", "b", "delete", json!(true))]}));
        assert_eq!(about(api, "c")["count"], 2);
        // A delete of what is not there takes nothing away.
        committed(api, &json!({"writes": [write("c", "b", "delete", json!(true))]}));
        assert!(numbers(&about(api, "c")).contains(&2));
    });
}

#[test]
fn an_empty_collection_still_is_one() {
    let mut site = Site::start();
    put(&site.api, "c", "k", json!({}));
    committed(&site.api, &json!({"writes": [write("c", "k", "delete", json!(true))]}));
    assert_eq!(list(&site.api, "c", "")["count"], 0);
    is_missing(&site.api, "c", "k");
    define(&site.api, "p", &changelog("t", "mine"));
    site.crash();
    assert_eq!(list(&site.api, "mine", "")["count"], 0);
    // It still belongs to commits.
    site.api.put("/v1/projections/q", &changelog("t", "c").to_string()).fails(409, "not_owner");
}

#[test]
fn whole_numbers_of_64_bits_stay_what_they_are() {
    let site = Site::start();
    define(&site.api, "p", &changelog("t", "c"));
    let numbers = ["0", "1", "-1", "9007199254740993", "9223372036854775807", "-9223372036854775808"];
    for number in numbers {
        site.api.events("t", &format!("{{\"payload\":{{\"id\":\"{number}\",\"v\":{number}}}}}")).is(201);
    }
    caught_up(&site.api, "p");
    for number in numbers {
        let body = site.api.get(&snap("c", number)).text().to_owned();
        assert!(body.contains(&format!("\"v\":{number}")), "{body}");
    }
}

#[test]
fn other_numbers_are_the_nearest_double() {
    let site = Site::start();
    define(&site.api, "p", &changelog("t", "c"));
    let numbers = [
        ("1.10", 1.1),
        ("1e2", 100.0),
        ("1e308", 1e308),
        ("-1.5e-7", -1.5e-7),
        ("5e-324", 5e-324),
        ("0.1", 0.1),
        ("1e23", 1e23),
        ("12345678901234567890123", 12_345_678_901_234_567_890_123.0),
        ("1.7976931348623157e308", f64::MAX),
    ];
    for (text, _) in numbers {
        site.api.events("t", &format!("{{\"payload\":{{\"id\":\"{text}\",\"v\":{text}}}}}")).is(201);
    }
    caught_up(&site.api, "p");
    for (text, number) in numbers {
        let body = site.api.get(&snap("c", text)).text().to_owned();
        let got = body.split("\"v\":").nth(1).unwrap().split([',', '}']).next().unwrap();
        let got: f64 = got.trim().parse().unwrap();
        assert_eq!(got.to_bits(), number.to_bits(), "{text} is {got}");
    }
}

#[test]
fn a_number_that_no_double_holds_stops_nothing() {
    let site = Site::start();
    define(&site.api, "p", &changelog("t", "c"));
    let told = site.api.events("t", r#"{"payload":{"id":"huge","v":1e999}}"#);
    assert!(matches!(told.status, 201 | 400), "{told:?}");
    emit(&site.api, "t", &json!({"id": "next"}));
    caught_up(&site.api, "p");
    doc(&site.api, "c", "next");
    let answer = site.api.get(&snap("c", "huge"));
    assert!(matches!(answer.status, 200 | 404), "{answer:?}");
    answer.json();
}

#[test]
fn text_of_any_kind_comes_back_as_it_went_in() {
    let document = json!({
        "id": "k", "zero": "\u{0}", "quote": "\"\\/", "lines": "a\nb\r\t", "wide": "日本 é e\u{301} 👩‍👩‍👧 \u{ffff}",
        "": "no name", "nested": {"": {"": []}}, "list": [[], {}, [[null]], ""],
    });
    on_both_stores(|api| {
        define(api, "p", &changelog("t", "c"));
        emit(api, "t", &document);
        put(api, "mine", "k", document.clone());
        caught_up(api, "p");
        assert_eq!(content(api, "c", "k"), document);
        assert_eq!(content(api, "mine", "k"), document);
    });
}

#[test]
fn a_document_may_be_as_deep_as_an_event() {
    let site = Site::start();
    define(&site.api, "p", &changelog("t", "c"));
    let deep = format!("{}1{}", "[".repeat(120), "]".repeat(120));
    site.api.events("t", &format!("{{\"payload\":{{\"id\":\"k\",\"v\":{deep}}}}}")).is(201);
    emit(&site.api, "t", &json!({"id": "next"}));
    caught_up(&site.api, "p");
    doc(&site.api, "c", "next");
    assert!(site.api.get(&snap("c", "k")).text().contains(&deep));
}

#[test]
fn a_name_that_is_none_is_refused() {
    let site = Site::start();
    for name in ["", " ", "a b", "a/b", "../x", ".", "..", "a\u{0}", "A B", "é/", &"x".repeat(2000)] {
        let body = json!({"writes": [write(name, "k", "set", json!({}))]});
        commit(&site.api, &body).fails_as(&[400, 413]);
        let definition = changelog("t", name).to_string();
        site.api.put("/v1/projections/p", &definition).fails_as(&[400, 413]);
    }
    assert_eq!(names(&site.api.get("/v1/collections").is(200)), [""; 0]);
    site.api.get("/v1/projections/p").fails(404, "not_found");
}

#[test]
fn collections_do_not_mix() {
    on_both_stores(|api| {
        for (collection, value) in [("a", 1), ("ab", 2), ("a_b", 3), ("b", 4)] {
            put(api, collection, "k", json!({"v": value}));
            put(api, collection, &format!("only-{collection}"), json!({"v": value}));
        }
        for (collection, value) in [("a", 1), ("ab", 2), ("a_b", 3), ("b", 4)] {
            assert_eq!(content(api, collection, "k")["v"], value);
            let all = list_all(api, collection, "");
            assert!(all.len() == 2 && all.iter().all(|one| one["v"] == value), "{all:?}");
        }
        // Nor do a key and a name that run together alike.
        put(api, "x", "yz", json!({"v": "x.yz"}));
        put(api, "xy", "z", json!({"v": "xy.z"}));
        assert_eq!(content(api, "x", "yz")["v"], "x.yz");
        assert_eq!(content(api, "xy", "z")["v"], "xy.z");
        is_missing(api, "x", "z");
    });
}

#[test]
fn metrics_and_ops_tell_of_projections() {
    let site = Site::start();
    define(&site.api, "the-counter", &counting("t", "c"));
    for n in 0..10 {
        site.api.publish(&format!("t?key=k{n}"), "1").is(201);
    }
    caught_up(&site.api, "the-counter");
    let lag = groups_support::metric(&site.api, "projection_lag_events", &[("projection", "the-counter")]);
    assert_eq!(lag, Some(0.0));
    let ops = site.api.get("/ops").is(200);
    let told = ops.get("projections").unwrap_or_else(|| panic!("{ops}"));
    assert!(told.to_string().contains("the-counter"), "{told}");
}

/// Two collections of the same events, the first without indexes.
fn site_with_indexes() -> Site {
    let site = Site::start();
    define(&site.api, "plain", &changelog("t", "plain"));
    let indexes = json!([["host", "name"], ["status"], ["n"], ["deep.x"], ["_ts"], ["mixed"]]);
    define(&site.api, "indexed", &with(changelog("t", "indexed"), "indexes", indexes));
    let mixed =
        [json!(1), json!("1"), json!(null), json!(1.5), json!(true), json!([1]), json!("é"), json!(-3)];
    let names = ["a", "ab", "b", "é", "日本"];
    let events: Vec<Value> = (0_usize..300)
        .map(|n| {
            let mut payload = json!({
                "id": format!("k{n}"), "host": format!("web{}", n % 4), "name": names[n % 5],
                "status": if n % 3 == 0 { "alive" } else { "stale" }, "deep": {"x": n % 11}, "mixed": mixed[n % 8].clone(),
            });
            if n % 6 != 0 {
                payload["n"] = if n % 2 == 0 { json!(n / 10) } else { json!(f64::from(u32::try_from(n).unwrap()) / 10.0) };
            }
            json!({"payload": payload, "ts": 1000 + (n * 7919) % 50})
        })
        .collect();
    site.api.events("t", &json!(events).to_string()).is(201);
    // Changes and deletes have to reach the indexes too.
    for n in (0..300).step_by(9) {
        emit(
            &site.api,
            "t",
            &json!({"id": format!("k{n}"), "status": "new", "host": "db1", "name": "b", "n": n}),
        );
    }
    for n in (0..300).step_by(13) {
        emit(&site.api, "t", &json!({"id": format!("k{n}"), "_deleted": true}));
    }
    caught_up(&site.api, "plain");
    caught_up(&site.api, "indexed");
    site
}

#[test]
fn an_index_changes_no_answer() {
    let mut site = site_with_indexes();
    let same = |api: &Api| {
        for query in [
            "",
            "host=web1",
            "host=web1&name=a",
            "host=web1&name[gte]=b",
            "host[gte]=web2&name=b",
            "host[gt]=db",
            "name=ab",
            "status=alive",
            "status=new",
            "status[ne]=alive",
            "status[in]=alive,new",
            "status[in]=none",
            "n[gte]=10",
            "n=12",
            "n[gt]=9.5&n[lte]=20",
            "n[in]=1,2.5,3",
            "n[ne]=4",
            "deep.x=7",
            "deep.x[lt]=3",
            "_ts[gte]=1020&_ts[lt]=1030",
            "_ts=1007",
            "mixed=1",
            "mixed[gt]=1",
            "mixed[lt]=a",
            "mixed[ne]=1",
            "mixed=null",
            "mixed=true",
            "mixed[in]=1,true",
            "host=web2&status=stale&n[gt]=3",
            "host[in]=web1,web3&name[in]=a,b",
            "name=%C3%A9&host=web3",
        ] {
            for sort in [
                "",
                "&sort=n",
                "&sort=-n",
                "&sort=-status",
                "&sort=host",
                "&sort=mixed",
                "&sort=-_ts",
                "&sort=_key",
            ] {
                let query = format!("{query}{sort}");
                let plain = list(api, "plain", &format!("{query}&limit=1000"));
                let indexed = list(api, "indexed", &format!("{query}&limit=1000"));
                assert_eq!(plain, indexed, "{query}");
                let pages = list_all(api, "indexed", &format!("{query}&limit=150"));
                assert_eq!(plain["items"].as_array().unwrap(), &pages, "{query}");
            }
        }
    };
    same(&site.api);
    site.crash();
    same(&site.api);
}

/// `prombus snapshots` of one collection of a hub.
fn snapshots_of(hub: &Hub, collection: &str) -> Hub {
    let command = hub.command(&["snapshots", "--collection", collection, "--listen", "127.0.0.1:0"]);
    Hub::running(command, tempfile::tempdir().unwrap())
}

#[test]
fn one_collection_can_be_served_alone() {
    let site = Site::start();
    define(&site.api, "p", &changelog("t", "c"));
    emit(&site.api, "t", &json!({"id": "a/b", "n": 1}));
    emit(&site.api, "t", &json!({"id": "k", "n": 2}));
    put(&site.api, "secret", "s", json!({}));
    caught_up(&site.api, "p");
    let process = snapshots_of(site.hub(), "c");
    let served = process.api();
    for (there, here) in [("/snap/a%2Fb", snap("c", "a/b")), ("/snap/k", snap("c", "k"))] {
        let (through, direct) = (ask(&served, "GET", there, &[]), ask(&site.api, "GET", &here, &[]));
        assert_eq!((through.status, &through.body), (200, &direct.body));
        for name in ["etag", "cache-control", "last-modified"] {
            assert_eq!(through.header(name), direct.header(name), "{name}");
        }
        let tag = direct.header("etag").unwrap();
        let same = ask(&served, "GET", there, &[("if-none-match", tag)]);
        assert_eq!((same.status, same.body.len(), same.header("etag")), (304, 0, Some(tag)));
        let head = ask(&served, "HEAD", there, &[]);
        assert_eq!((head.status, head.body.len(), head.header("etag")), (200, 0, Some(tag)));
    }
    let page = served.get("/list?n[gte]=2");
    assert_eq!(page.is(200), site.api.get(&list_path("c", "n[gte]=2")).is(200));
    served.get("/list?limit=0").fails(400, "bad_request");
    served.get("/snap/none").fails(404, "not_found");
    for other in
        ["/v1/collections/secret/snap/s", "/snap/../secret/s", "/v1/topics", "/publish/t", "/metrics"]
    {
        assert_eq!(served.get(other).status, 404, "{other}");
    }
    // It follows the hub.
    let offset = emit(&site.api, "t", &json!({"id": "k", "n": 3}))["offset"].clone();
    assert_eq!(served.get(&format!("/snap/k?min_offset={offset}")).is(200)["n"], 3);
    eventually("the list shows it", || served.get("/list?n=3").is(200)["count"] == 1);
}
