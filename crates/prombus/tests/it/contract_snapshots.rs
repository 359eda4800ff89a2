//! One document by its key: tags, dates, caching, odd keys, and reading what one has just written.

use crate::contract_support::{Answer, Api, Call, Site, encoded, now};
use crate::state_support;
use crate::state_support::{
    CACHED, ask, caught_up, changelog, committed, content, define, doc, emit, emit_as, exists, is_missing,
    on_both_stores, put, snap, with, write,
};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// The time that all the examples of HTTP dates have, and its three spellings.
const TS: i64 = 784_111_777_000;
const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const OLD_DATES: [&str; 2] = ["Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"];
const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
const AFTER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

/// A site whose collection `c` follows topic `t`.
fn site() -> Site {
    let site = Site::start();
    define(&site.api, "p", &changelog("t", "c"));
    site
}

/// Writes document `k` by an event of this time, and waits for it.
#[track_caller]
fn put_at(api: &Api, ts: i64, value: Value) {
    emit_as(api, "t", json!({"payload": {"id": "k", "value": value}, "ts": ts}));
    caught_up(api, "p");
}

#[track_caller]
fn get(api: &Api, headers: &[(&str, &str)]) -> Answer {
    ask(api, "GET", &snap("c", "k"), headers)
}

#[track_caller]
fn tag(answer: &Answer) -> String {
    let tag = answer.header("etag").unwrap_or_else(|| panic!("no tag: {answer:?}"));
    let inner = tag.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let inner = inner.unwrap_or_else(|| panic!("{tag} is not strong"));
    assert!(!inner.is_empty() && !inner.contains('"'), "{tag}");
    tag.to_owned()
}

/// The tag of document `k`.
#[track_caller]
fn tag_now(api: &Api) -> String {
    let answer = get(api, &[]);
    answer.is(200);
    tag(&answer)
}

#[track_caller]
fn is_not_modified(answer: &Answer, wanted: &str) {
    assert_eq!(answer.status, 304, "{answer:?}");
    assert_eq!(tag(answer), wanted);
    assert_eq!(answer.header("cache-control"), Some(CACHED), "{answer:?}");
    assert!(answer.body.is_empty(), "{answer:?}");
}

#[test]
fn a_document_is_the_payload_with_its_key_and_time() {
    on_both_stores(|api| {
        define(api, "p", &changelog("t", "c"));
        put_at(api, TS + 123, json!({"a": [1, null]}));
        let answer = get(api, &[]);
        let document = answer.is(200);
        assert_eq!(document, json!({"id": "k", "value": {"a": [1, null]}, "_key": "k", "_ts": TS + 123}));
        assert!(answer.header("content-type").unwrap().starts_with("application/json"), "{answer:?}");
        assert_eq!(answer.header("cache-control"), Some(CACHED));
        assert_eq!(answer.header("last-modified"), Some(DATE));
        tag(&answer);
    });
}

#[test]
fn head_is_get_without_the_body() {
    on_both_stores(|api| {
        define(api, "p", &changelog("t", "c"));
        put_at(api, TS, json!("ä".repeat(100)));
        let whole = get(api, &[]);
        let head = ask(api, "HEAD", &snap("c", "k"), &[]);
        assert_eq!((head.status, head.body.len()), (200, 0), "{head:?}");
        for name in ["etag", "cache-control", "last-modified", "content-type", "content-length"] {
            assert_eq!(head.header(name), whole.header(name), "{name}");
        }
        assert_eq!(head.header("content-length"), Some(whole.body.len().to_string().as_str()));
        let missing = ask(api, "HEAD", &snap("c", "none"), &[]);
        assert_eq!((missing.status, missing.body.len()), (404, 0), "{missing:?}");
    });
}

#[test]
fn what_is_not_there_is_not_found() {
    let site = site();
    is_missing(&site.api, "c", "k");
    is_missing(&site.api, "nowhere", "k");
    let any = ask(&site.api, "GET", &snap("c", "k"), &[("if-none-match", "*")]);
    any.fails(404, "not_found");
    let since = ask(&site.api, "GET", &snap("c", "k"), &[("if-modified-since", AFTER)]);
    since.fails(404, "not_found");
}

#[test]
fn the_tag_stays_while_the_document_does() {
    let site = site();
    put_at(&site.api, TS, json!(1));
    let first = get(&site.api, &[]);
    for _ in 0..20 {
        let again = get(&site.api, &[]);
        assert_eq!((tag(&again), &again.body), (tag(&first), &first.body));
    }
    // Other documents are no matter of this one.
    emit(&site.api, "t", &json!({"id": "other"}));
    caught_up(&site.api, "p");
    assert_eq!(tag_now(&site.api), tag(&first));
    // The same event once more leaves the same document.
    put_at(&site.api, TS, json!(1));
    assert_eq!(get(&site.api, &[]).body, first.body);
    assert_eq!(tag_now(&site.api), tag(&first));
}

#[test]
fn every_change_changes_the_tag_and_the_way_back_brings_it_back() {
    let site = site();
    let values =
        [json!(1), json!(2), json!("1"), json!(null), json!([1]), json!({"a": 1}), json!(1.5), json!("")];
    let mut tags = Vec::new();
    for value in &values {
        put_at(&site.api, TS, value.clone());
        tags.push(tag_now(&site.api));
    }
    let mut distinct = tags.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), values.len(), "{tags:?}");
    put_at(&site.api, TS, json!(1));
    assert_eq!(tag_now(&site.api), tags[0]);
    // The time is a part of the document.
    put_at(&site.api, TS + 1, json!(1));
    assert!(!tags.contains(&tag_now(&site.api)));
}

#[test]
fn a_document_that_went_and_came_again_has_its_tag_again() {
    let site = site();
    put_at(&site.api, TS, json!(1));
    let first = tag_now(&site.api);
    emit_as(&site.api, "t", json!({"payload": null, "key": "k"}));
    caught_up(&site.api, "p");
    let gone = get(&site.api, &[("if-none-match", &first)]);
    gone.fails(404, "not_found");
    put_at(&site.api, TS, json!(1));
    assert_eq!(tag_now(&site.api), first);
}

#[test]
fn the_tag_survives_kill_9_and_a_restart() {
    let mut site = site();
    put_at(&site.api, TS, json!({"deep": [1.5, "é"]}));
    put(&site.api, "mine", "k", json!({"a": 1}));
    let read = |api: &Api| [get(api, &[]), ask(api, "GET", &snap("mine", "k"), &[])];
    let before = read(&site.api);
    for end in [Site::crash, Site::restart, Site::crash] {
        end(&mut site);
        for (now, then) in read(&site.api).iter().zip(&before) {
            assert_eq!((tag(now), &now.body), (tag(then), &then.body));
            assert_eq!(now.header("last-modified"), then.header("last-modified"));
        }
    }
}

#[test]
fn if_none_match_with_the_tag_is_304_for_get_and_head() {
    on_both_stores(|api| {
        define(api, "p", &changelog("t", "c"));
        put_at(api, TS, json!(1));
        let tag = tag_now(api);
        is_not_modified(&get(api, &[("if-none-match", &tag)]), &tag);
        is_not_modified(&ask(api, "HEAD", &snap("c", "k"), &[("if-none-match", &tag)]), &tag);
        put_at(api, TS, json!(2));
        let answer = get(api, &[("if-none-match", &tag)]);
        assert_eq!(answer.is(200)["value"], 2);
    });
}

#[test]
fn if_none_match_takes_lists_weak_tags_and_a_star() {
    let site = site();
    put_at(&site.api, TS, json!(1));
    let tag = tag_now(&site.api);
    for value in [
        format!("W/{tag}"),
        format!("\"x\", {tag}"),
        format!("\"x\",{tag},\"y\""),
        format!("W/\"x\" ,  W/{tag} , \"\""),
        format!("\"a, b\", {tag}"),
        format!(", {tag},"),
        "*".to_owned(),
    ] {
        is_not_modified(&get(&site.api, &[("if-none-match", &value)]), &tag);
        is_not_modified(&ask(&site.api, "HEAD", &snap("c", "k"), &[("if-none-match", &value)]), &tag);
    }
}

#[test]
fn if_none_match_takes_several_headers() {
    let site = site();
    put_at(&site.api, TS, json!(1));
    let tag = tag_now(&site.api);
    let two = [("if-none-match", "\"x\""), ("if-none-match", tag.as_str())];
    is_not_modified(&get(&site.api, &two), &tag);
    let two = [("If-None-Match", tag.as_str()), ("IF-NONE-MATCH", "\"x\", \"y\"")];
    is_not_modified(&get(&site.api, &two), &tag);
    let none = [("if-none-match", "\"x\""), ("if-none-match", "\"y\"")];
    get(&site.api, &none).is(200);
}

#[test]
fn a_tag_that_is_not_the_one_gets_the_document() {
    let site = site();
    put_at(&site.api, TS, json!(1));
    let tag = tag_now(&site.api);
    let inner = tag.trim_matches('"');
    let cut = format!("\"{}\"", &inner[..inner.len() - 1]);
    let longer = format!("\"{inner}0\"");
    let inside = format!("\"x, {inner}, y\"");
    for value in ["\"\"", "\"x\"", "W/\"x\"", "\"*\"", "", &cut, &longer, &inside] {
        let answer = get(&site.api, &[("if-none-match", value)]);
        assert_eq!(answer.is(200)["value"], 1, "{value}");
    }
    // What is no list of tags at all is never a reason for an error.
    for value in [inner, "\"", "w/", "W/", "\"x", "***", "\u{fffd}"] {
        let answer = get(&site.api, &[("if-none-match", value)]);
        assert!(matches!(answer.status, 200 | 304 | 400), "{value}: {answer:?}");
    }
}

/// An event may come at any time, with any time: a date says nothing about which version a client has.
#[test]
fn if_modified_since_never_spares_an_answer() {
    let site = site();
    put_at(&site.api, TS + 100, json!(1));
    assert_eq!(get(&site.api, &[]).header("last-modified"), Some(DATE));
    put_at(&site.api, TS + 50, json!(2));
    let dates = [DATE, OLD_DATES[0], OLD_DATES[1], BEFORE, AFTER, "yesterday", "", "784111777"];
    for date in dates {
        assert_eq!(get(&site.api, &[("if-modified-since", date)]).is(200)["value"], 2, "{date}");
        assert_eq!(ask(&site.api, "HEAD", &snap("c", "k"), &[("if-modified-since", date)]).status, 200);
    }
}

#[test]
fn a_client_with_a_later_version_than_the_one_that_is_there_gets_it() {
    let site = site();
    put_at(&site.api, TS + 60_000, json!(1));
    let later = get(&site.api, &[]).header("last-modified").unwrap().to_owned();
    // Events come in the order of their offsets, whatever their time.
    put_at(&site.api, TS, json!(2));
    let answer = get(&site.api, &[("if-modified-since", &later)]);
    assert_eq!((answer.header("last-modified"), &answer.is(200)["_ts"]), (Some(DATE), &json!(TS)));
}

#[test]
fn if_modified_since_counts_only_without_if_none_match() {
    let site = site();
    put_at(&site.api, TS, json!(1));
    let tag = tag_now(&site.api);
    let other = [("if-none-match", "\"x\""), ("if-modified-since", AFTER)];
    get(&site.api, &other).is(200);
    let same = [("if-modified-since", BEFORE), ("if-none-match", tag.as_str())];
    is_not_modified(&get(&site.api, &same), &tag);
}

#[test]
fn last_modified_is_the_time_of_the_document() {
    let site = site();
    for (ts, date) in [
        (TS, DATE),
        (TS + 1, DATE),
        (TS + 1000, AFTER),
        (1, "Thu, 01 Jan 1970 00:00:00 GMT"),
        (951_782_400_000, "Tue, 29 Feb 2000 00:00:00 GMT"),
        (1_735_689_599_999, "Tue, 31 Dec 2024 23:59:59 GMT"),
    ] {
        put_at(&site.api, ts, json!(1));
        let answer = get(&site.api, &[]);
        assert_eq!((answer.header("last-modified"), &answer.is(200)["_ts"]), (Some(date), &json!(ts)));
    }
}

#[test]
fn a_committed_document_has_tag_and_date_too() {
    on_both_stores(|api| {
        let before = now();
        put(api, "mine", "k", json!({"a": 1}));
        let answer = ask(api, "GET", &snap("mine", "k"), &[]);
        let document = answer.is(200);
        let ts = document["_ts"].as_i64().unwrap();
        assert!((before - 1000..=now() + 1000).contains(&ts), "{document}");
        assert_eq!((&document["_key"], &document["_v"], &document["a"]), (&json!("k"), &json!(1), &json!(1)));
        assert!(answer.header("last-modified").is_some());
        let first = tag(&answer);
        let same = ask(api, "GET", &snap("mine", "k"), &[("if-none-match", &first)]);
        is_not_modified(&same, &first);
        committed(api, &json!({"writes": [write("mine", "k", "inc", json!({"a": 1}))]}));
        let next = ask(api, "GET", &snap("mine", "k"), &[("if-none-match", &first)]);
        assert_eq!(next.is(200)["a"], 2);
        assert_ne!(tag(&next), first);
    });
}

#[test]
fn a_key_may_be_any_string() {
    let long = "k".repeat(1024);
    let wide = "é".repeat(512);
    let odd = [
        "a/b",
        "/",
        "//",
        "a//b/",
        ".",
        "..",
        "../x",
        "%",
        "%2F",
        "%00",
        "a%20b",
        "a b",
        " ",
        "+",
        "a+b",
        "?",
        "a?b=c",
        "#",
        "&",
        "a;b",
        "\"",
        "'",
        "\\",
        "ключ",
        "日本語",
        "👩‍👩‍👧",
        "e\u{301}",
        "é",
        "\u{0}",
        "\n\t",
        "snap",
        "list",
        "null",
        "0",
        &long,
        &wide,
    ];
    on_both_stores(|api| {
        define(api, "p", &changelog("t", "c"));
        for key in odd {
            emit(api, "t", &json!({"id": key, "key_is": key}));
        }
        caught_up(api, "p");
        for key in odd {
            assert_eq!(content(api, "c", key), json!({"id": key, "key_is": key}), "{key:?}");
            let found = state_support::keys(api, "c", &format!("_key={}", encoded(key)));
            assert_eq!(found, [key]);
        }
        assert_eq!(state_support::list_all(api, "c", "limit=10").len(), odd.len());
    });
}

#[test]
fn the_empty_key_is_a_key_or_a_dead_letter() {
    let site = site();
    emit(&site.api, "t", &json!({"id": ""}));
    emit(&site.api, "t", &json!({"id": "next"}));
    caught_up(&site.api, "p");
    doc(&site.api, "c", "next");
    let answer = site.api.get("/v1/collections/c/snap/");
    if state_support::letters(&site.api, "t").is_empty() {
        assert_eq!(answer.is(200)["_key"], "");
    } else {
        answer.fails_as(&[400, 404]);
        assert_eq!(state_support::found(&site.api, "c", ""), ["next"]);
    }
}

#[test]
fn a_key_that_is_no_text_is_a_bad_request() {
    let site = site();
    for key in ["%FF", "%C3%28", "%", "%4", "%zz"] {
        site.api.get(&format!("/v1/collections/c/snap/{key}")).fails_as(&[400]);
    }
}

#[test]
fn other_methods_are_not_allowed() {
    let site = site();
    put_at(&site.api, TS, json!(1));
    for method in ["POST", "PUT", "DELETE", "PATCH"] {
        for path in ["/v1/collections/c/snap/k", "/v1/collections/c/list", "/v1/collections"] {
            site.api.call(&Call::new(method, path)).fails(405, "method_not_allowed");
        }
    }
    assert_eq!(doc(&site.api, "c", "k")["value"], 1);
}

#[test]
fn a_publisher_reads_its_own_write() {
    on_both_stores(|api| {
        define(api, "p", &changelog("t", "c"));
        for n in 0..200 {
            let key = format!("k{}", n % 7);
            let offset = emit(api, "t", &json!({"id": key, "n": n}))["offset"].as_u64().unwrap();
            let read = api.get(&format!("{}?min_offset={offset}", snap("c", &key))).is(200);
            assert_eq!(read["n"], n);
        }
    });
}

#[test]
fn a_publisher_reads_its_own_write_from_any_partition() {
    let site = Site::start();
    site.api.make("t", 4);
    define(&site.api, "p", &json!({"topic": "t", "collection": "c", "key": "event.key"}));
    for n in 0..100 {
        let key = format!("k{}", n % 11);
        let told = emit_as(&site.api, "t", json!({"key": key, "payload": {"n": n}}));
        let target = format!("{}?min_offset={}:{}", snap("c", &key), told["partition"], told["offset"]);
        assert_eq!(site.api.get(&target).is(200)["n"], n);
    }
}

#[test]
fn a_tag_of_before_the_write_is_no_excuse() {
    let site = site();
    put_at(&site.api, TS, json!(0));
    for n in 1..50 {
        let tag = tag_now(&site.api);
        let told = emit_as(&site.api, "t", json!({"payload": {"id": "k", "value": n}, "ts": TS}));
        let target = format!("{}?min_offset={}", snap("c", "k"), told["offset"]);
        let answer = ask(&site.api, "GET", &target, &[("if-none-match", &tag)]);
        assert_eq!(answer.is(200)["value"], n);
    }
}

#[test]
fn a_delete_is_read_by_its_publisher() {
    let site = site();
    for _ in 0..20 {
        emit(&site.api, "t", &json!({"id": "k"}));
        let told = emit_as(&site.api, "t", json!({"payload": null, "key": "k"}));
        let target = format!("{}?min_offset={}", snap("c", "k"), told["offset"]);
        site.api.get(&target).fails(404, "not_found");
    }
}

#[test]
fn an_event_that_writes_nothing_is_seen_all_the_same() {
    let site = site();
    emit(&site.api, "t", &json!({"id": "k"}));
    let told = emit(&site.api, "t", &json!({"no": "key"}));
    let target = format!("{}?min_offset={}", snap("c", "k"), told["offset"]);
    site.api.get(&target).is(200);
}

#[test]
fn an_offset_that_does_not_come_is_unavailable_after_a_wait() {
    let site = site();
    put_at(&site.api, TS, json!(1));
    let asked = Instant::now();
    let answer = site.api.get(&format!("{}?min_offset=1000", snap("c", "k")));
    answer.fails(503, "unavailable");
    assert!(asked.elapsed() >= Duration::from_millis(4500), "{:?}", asked.elapsed());
    let after: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!(after > 0, "{answer:?}");
    // One that comes meanwhile ends the wait.
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| site.api.get(&format!("{}?min_offset=1", snap("c", "k"))).is(200));
        emit(&site.api, "t", &json!({"id": "k", "value": 2}));
        assert_eq!(reader.join().unwrap()["value"], 2);
    });
}

#[test]
fn a_malformed_offset_is_a_bad_request() {
    let site = site();
    put_at(&site.api, TS, json!(1));
    for bad in [
        "",
        "x",
        "-1",
        "1.5",
        "0:",
        ":0",
        "a:0",
        "0:b",
        "0:0:0",
        "-1:0",
        "0:-1",
        "99999999999999999999",
        "+1",
        "%20",
    ] {
        let answer = site.api.get(&format!("{}?min_offset={bad}", snap("c", "k")));
        answer.fails(400, "bad_request");
    }
    let other = site.api.get(&format!("{}?min_ofset=0", snap("c", "k")));
    // A parameter with a slip of the pen must not look like a promise that was kept.
    other.fails(400, "bad_request");
}

#[test]
fn a_partition_that_is_not_there_is_no_promise() {
    let site = site();
    put_at(&site.api, TS, json!(1));
    site.api.get(&format!("{}?min_offset=7:0", snap("c", "k"))).fails_as(&[400, 503]);
}

#[test]
fn a_document_as_large_as_an_event_may_be_is_read() {
    let site = site();
    let text = "x".repeat(1_000_000);
    put_at(&site.api, TS, json!(text));
    let answer = get(&site.api, &[]);
    assert_eq!(answer.is(200)["value"], text.as_str());
    is_not_modified(&get(&site.api, &[("if-none-match", &tag(&answer))]), &tag(&answer));
}

#[test]
fn what_the_hub_adds_is_not_for_the_producer_to_say() {
    let site = Site::start();
    define(&site.api, "p", &with(changelog("t", "c"), "key", json!("event.payload.id")));
    let event = json!({"payload": {"id": "k", "_key": "evil", "_ts": 7, "_own": 1}, "ts": TS});
    emit_as(&site.api, "t", event);
    caught_up(&site.api, "p");
    // Either it is written under its own name and time, or not at all.
    if exists(&site.api, "c", "k") {
        let document = doc(&site.api, "c", "k");
        assert_eq!((&document["_ts"], &document["_own"]), (&json!(TS), &json!(1)));
    } else {
        assert_eq!(state_support::wait_for_letters(&site.api, "t", 1).len(), 1);
    }
    is_missing(&site.api, "c", "evil");
}
