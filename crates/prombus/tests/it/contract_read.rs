//! Pages, cursors, exports, keys and ids: what a reader gets for what it asks.

use crate::contract_support::{Api, Call, Site, encoded, fields, now};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Publishes `count` events with their numbers as payloads.
#[track_caller]
fn fill(api: &Api, topic: &str, count: usize) {
    let lines: String =
        (0..count).map(|n| format!("{{\"payload\":{n},\"key\":\"k{}\"}}\n", n % 10)).collect();
    assert_eq!(api.ndjson(topic, lines.as_bytes()).is(201)["count"], count);
}

/// Publishes one event for each time.
fn at_times(api: &Api, topic: &str, times: &[i64]) {
    let events: Vec<Value> = times.iter().map(|ts| json!({"payload": ts, "ts": ts})).collect();
    api.events(topic, &json!(events).to_string()).is(201);
}

fn payloads(events: &[Value]) -> Vec<i64> {
    events.iter().map(|event| event["payload"].as_i64().unwrap()).collect()
}

#[test]
fn a_page_has_a_thousand_events_unless_a_limit_says_otherwise() {
    let site = Site::start();
    let api = &site.api;
    fill(api, "t", 2500);
    let page = api.page("t", "").is(200);
    assert_eq!(fields(&page), ["count", "events", "next", "topic"]);
    assert_eq!((&page["topic"], &page["count"]), (&json!("t"), &json!(1000)));
    assert_eq!(page["events"].as_array().unwrap().len(), 1000);
    let next = encoded(page["next"].as_str().unwrap());
    let page = api.page("t", &format!("cursor={next}")).is(200);
    assert_eq!(page["events"][0]["payload"], 1000);
    for limit in [1, 7, 999, 1000] {
        let page = api.page("t", &format!("limit={limit}")).is(200);
        assert_eq!(page["count"], limit);
        // A limit may go with a cursor.
        let page = api.page("t", &format!("limit={limit}&cursor={next}")).is(200);
        assert_eq!((&page["count"], &page["events"][0]["payload"]), (&json!(limit), &json!(1000)));
    }
    for bad in ["limit=x", "limit=-1", "limit=1.5", "limit=", "limit=99999999999999999999", "limit=1&limit=2"]
    {
        api.page("t", bad).fails(400, "bad_request");
    }
}

#[test]
fn cursors_lead_through_everything_once_and_in_order() {
    let mut site = Site::start();
    let api = site.api.clone();
    api.make("t", 5);
    fill(&api, "t", 1234);
    for limit in [1_usize, 3, 100, 617, 1233, 1234, 5000] {
        if limit == 1 {
            site.restart();
        }
        let api = &site.api;
        let mut next = None::<String>;
        let (mut seen, mut last) = (BTreeSet::new(), BTreeMap::new());
        let mut pages = 0;
        loop {
            let query = next
                .map_or(format!("limit={limit}"), |next| format!("limit={limit}&cursor={}", encoded(&next)));
            let page = api.page("t", &query).is(200);
            let events = page["events"].as_array().unwrap();
            assert!(events.len() <= limit);
            for event in events {
                let offset = event["offset"].as_i64().unwrap();
                let before = last.insert(event["partition"].as_i64().unwrap(), offset);
                assert_eq!(offset, before.map_or(0, |before| before + 1));
                assert!(seen.insert(event["payload"].as_i64().unwrap()));
            }
            pages += 1;
            match page["next"].as_str() {
                Some(text) => next = Some(text.to_owned()),
                None => break,
            }
        }
        assert_eq!(seen.len(), 1234, "limit {limit}");
        assert!(pages <= 2 * (1234 / limit + 10), "{pages} pages of {limit}");
    }
}

#[test]
fn the_end_has_no_next() {
    let site = Site::start();
    let api = &site.api;
    api.make("empty", 3);
    let page = api.page("empty", "").is(200);
    assert_eq!(page, json!({"topic": "empty", "count": 0, "events": [], "next": null}));
    fill(api, "t", 10);
    assert!(api.page("t", "limit=10").is(200)["next"].is_null() || api.all("t", "limit=10").len() == 10);
    assert!(api.page("t", "limit=11").is(200)["next"].is_null());
    assert!(api.page("t", "").is(200)["next"].is_null());
    assert!(api.page("t", "limit=9").is(200)["next"].is_string());
}

#[test]
fn a_cursor_carries_the_whole_query_and_survives_a_restart() {
    let mut site = Site::start();
    let api = site.api.clone();
    api.make("t", 3);
    let base = 1_700_000_000_000_i64;
    let events: Vec<Value> = (0..300)
        .map(|n| json!({"payload": {"n": n}, "key": format!("k{}", n % 3), "ts": base + n}))
        .collect();
    api.events("t", &json!(events).to_string()).is(201);
    let filter = encoded("event.payload.n % 2 == 0");
    let query = format!("key=k1&from=ts&ts={}&toTs={}&filter={filter}", base + 51, base + 249);
    let expected: Vec<i64> = (52..249).filter(|n| n % 2 == 0 && n % 3 == 1).collect();
    let first = api.page("t", &format!("{query}&limit=5")).is(200);
    let numbers = |page: &Value| -> Vec<i64> {
        page["events"]
            .as_array()
            .unwrap()
            .iter()
            .map(|event| event["payload"]["n"].as_i64().unwrap())
            .collect()
    };
    let mut found = numbers(&first);
    assert!(found.len() <= 5);
    site.restart();
    let mut next = first["next"].clone();
    while let Some(text) = next.as_str() {
        let page = site.api.page("t", &format!("limit=7&cursor={}", encoded(text))).is(200);
        assert!(page["count"].as_i64().unwrap() <= 7);
        found.extend(numbers(&page));
        next = page["next"].clone();
    }
    assert_eq!(found, expected);
}

#[test]
fn only_a_limit_goes_with_a_cursor() {
    let site = Site::start();
    let api = &site.api;
    fill(api, "t", 20);
    fill(api, "other", 20);
    let cursor = encoded(api.page("t", "limit=5").is(200)["next"].as_str().unwrap());
    for extra in
        ["from=earliest", "partition=0", "key=k", "filter=true", "toTs=1", "offset=1", "ts=1", "from=latest"]
    {
        api.page("t", &format!("cursor={cursor}&{extra}")).fails(400, "bad_request");
    }
    for bad in ["x", "", "%FF", "AAAA", "null", &cursor[..cursor.len() / 2]] {
        api.page("t", &format!("cursor={bad}")).fails(400, "bad_request");
    }
    // A cursor belongs to its topic.
    api.page("other", &format!("cursor={cursor}")).fails_as(&[400, 410]);
    api.page("none", &format!("cursor={cursor}")).fails(404, "not_found");
}

#[test]
fn what_is_published_after_the_first_page_is_read_too() {
    let site = Site::start();
    let api = &site.api;
    fill(api, "t", 10);
    let next = api.page("t", "limit=5").is(200)["next"].as_str().unwrap().to_owned();
    api.publish("t", "10").is(201);
    let page = api.page("t", &format!("cursor={}", encoded(&next))).is(200);
    assert_eq!(payloads(page["events"].as_array().unwrap()), [5, 6, 7, 8, 9, 10]);
}

#[test]
fn from_is_earliest_unless_told_and_latest_is_the_end() {
    let site = Site::start();
    let api = &site.api;
    fill(api, "t", 10);
    assert_eq!(api.all("t", ""), api.all("t", "from=earliest"));
    assert_eq!(api.all("t", "from=latest"), Vec::<Value>::new());
    assert_eq!(api.export("t", "from=latest").text(), "");
    for bad in [
        "from=x",
        "from=",
        "from=Earliest",
        "from=10",
        "form=earliest",
        "from=ts",
        "from=offset",
        "from=afterId",
    ] {
        api.page("t", bad).fails(400, "bad_request");
    }
}

#[test]
fn from_offset_starts_at_that_offset() {
    let site = Site::start();
    let api = &site.api;
    fill(api, "t", 30);
    for offset in [0_i64, 1, 15, 29] {
        let expected: Vec<i64> = (offset..30).collect();
        assert_eq!(payloads(&api.all("t", &format!("from=offset&offset={offset}"))), expected);
        assert_eq!(payloads(&api.all("t", &format!("from=offset&offset={offset}&limit=4"))), expected);
        assert_eq!(payloads(&api.export("t", &format!("from=offset&offset={offset}")).lines()), expected);
    }
    assert_eq!(api.all("t", "from=offset&offset=30"), Vec::<Value>::new());
    for bad in ["-1", "x", "", "1.0", "99999999999999999999999"] {
        api.page("t", &format!("from=offset&offset={bad}")).fails(400, "bad_request");
    }
    // The largest number is past the end, or refused, and nothing else.
    let answer = api.page("t", "from=offset&offset=18446744073709551615");
    assert!(answer.status == 400 || answer.is(200)["count"] == 0, "{answer:?}");
}

#[test]
fn offset_and_after_id_need_a_partition_where_there_are_several() {
    let site = Site::start();
    let api = &site.api;
    api.make("t", 3);
    fill(api, "t", 60);
    let events = api.all("t", "partition=1");
    let (some, last) = (&events[2], &events[events.len() - 1]);
    let id = some["id"].as_str().unwrap();
    api.page("t", "from=offset&offset=1").fails(400, "bad_request");
    api.page("t", &format!("from=afterId&afterId={id}")).fails(400, "bad_request");
    api.export("t", "from=offset&offset=1").fails(400, "bad_request");
    assert_eq!(api.all("t", "from=offset&offset=3&partition=1"), events[3..]);
    assert_eq!(api.all("t", &format!("from=afterId&afterId={id}&partition=1")), events[3..]);
    let end = format!("from=afterId&afterId={}&partition=1", last["id"].as_str().unwrap());
    assert_eq!(api.all("t", &end), Vec::<Value>::new());
    // The id is of another partition.
    api.page("t", &format!("from=afterId&afterId={id}&partition=0")).fails_as(&[400, 404, 410]);
}

#[test]
fn after_id_starts_behind_that_event() {
    let site = Site::start();
    let api = &site.api;
    fill(api, "t", 20);
    let events = api.all("t", "");
    for n in [0, 7, 19] {
        let id = events[n]["id"].as_str().unwrap();
        assert_eq!(api.all("t", &format!("from=afterId&afterId={id}")), events[n + 1..]);
        assert_eq!(api.all("t", &format!("from=afterId&afterId={id}&limit=2")), events[n + 1..]);
    }
    api.page("t", "from=afterId&afterId=x").fails(400, "bad_request");
    api.page("t", "from=afterId&afterId=6f2d5a3e-8c1b-4d7f-9a60-1b2c3d4e5f60").fails_as(&[404, 410]);
}

#[test]
fn parameters_of_another_from_are_not_silently_ignored() {
    let site = Site::start();
    fill(&site.api, "t", 5);
    for odd in
        ["ts=1", "offset=1", "from=latest&offset=1", "from=offset&offset=1&ts=1", "from=earliest&afterId=x"]
    {
        site.api.page("t", odd).fails(400, "bad_request");
    }
}

#[test]
fn from_ts_starts_at_the_first_offset_whose_ts_is_at_or_after() {
    let mut site = Site::start();
    // Time runs backwards more than once.
    let times = [100, 200, 300, 150, 50, 400, 350, 400, 10, 500, 20];
    at_times(&site.api, "t", &times);
    for round in 0..2 {
        let api = &site.api;
        for ts in [0, 10, 50, 99, 100, 101, 150, 200, 250, 300, 301, 350, 400, 401, 500] {
            let start = times.iter().position(|time| *time >= ts).unwrap();
            let found = api.all("t", &format!("from=ts&ts={ts}"));
            assert_eq!(payloads(&found), times[start..], "{round} from {ts}");
            assert_eq!(payloads(&api.all("t", &format!("from=ts&ts={ts}&limit=2"))), times[start..]);
            assert_eq!(payloads(&api.export("t", &format!("from=ts&ts={ts}")).lines()), times[start..]);
        }
        assert_eq!(api.all("t", "from=ts&ts=501"), Vec::<Value>::new());
        assert_eq!(api.all("t", &format!("from=ts&ts={}", now() + 9_999_999)), Vec::<Value>::new());
        site.crash();
    }
    for bad in ["x", "", "1.5", "99999999999999999999"] {
        site.api.page("t", &format!("from=ts&ts={bad}")).fails(400, "bad_request");
    }
}

#[test]
fn from_ts_goes_by_each_partition() {
    let site = Site::start();
    let api = &site.api;
    api.make("t", 2);
    for (partition, times) in [(0, [10_i64, 50, 20, 60]), (1, [70, 5, 40, 90])] {
        for ts in times {
            api.publish(&format!("t?partition={partition}&ts={ts}"), &ts.to_string()).is(201);
        }
    }
    let found = api.all("t", "from=ts&ts=45");
    let of = |partition: i64| {
        payloads(&found.iter().filter(|event| event["partition"] == partition).cloned().collect::<Vec<_>>())
    };
    assert_eq!(of(0), [50, 20, 60]);
    assert_eq!(of(1), [70, 5, 40, 90]);
    assert_eq!(payloads(&api.all("t", "from=ts&ts=65&partition=0")), Vec::<i64>::new());
}

#[test]
fn from_ts_holds_over_many_events_and_restarts() {
    let mut site = Site::start();
    let mut random = fastrand::Rng::with_seed(7);
    let base = 1_700_000_000_000_i64;
    let times: Vec<i64> = (0..3000).map(|n| base + n * 10 + random.i64(-2000..2000)).collect();
    for part in times.chunks(500) {
        at_times(&site.api, "t", part);
    }
    site.crash();
    for _ in 0..40 {
        let ts = base + random.i64(-3000..33_000);
        let start = times.iter().position(|time| *time >= ts).unwrap_or(times.len());
        let page = site.api.page("t", &format!("from=ts&ts={ts}&limit=3")).is(200);
        let end = (start + 3).min(times.len());
        assert_eq!(payloads(page["events"].as_array().unwrap()), times[start..end]);
    }
}

#[test]
fn to_ts_leaves_out_what_is_later() {
    let site = Site::start();
    let api = &site.api;
    at_times(api, "t", &[100, 200, 300, 400, 500]);
    assert_eq!(payloads(&api.all("t", "toTs=250")), [100, 200]);
    assert_eq!(payloads(&api.all("t", "toTs=250&limit=1")), [100, 200]);
    assert_eq!(payloads(&api.all("t", "from=ts&ts=150&toTs=450")), [200, 300, 400]);
    assert_eq!(payloads(&api.export("t", "from=ts&ts=150&toTs=450").lines()), [200, 300, 400]);
    assert_eq!(payloads(&api.all("t", "toTs=99")), Vec::<i64>::new());
    assert_eq!(payloads(&api.all("t", "toTs=600")), [100, 200, 300, 400, 500]);
    // Time may run backwards: whether it ends there or goes on, nothing later than asked is given.
    at_times(api, "t", &[50]);
    let found = payloads(&api.all("t", "toTs=250"));
    assert!(found == [100, 200, 50] || found == [100, 200], "{found:?}");
    for bad in ["x", "", "1.5"] {
        api.page("t", &format!("toTs={bad}")).fails(400, "bad_request");
    }
}

#[test]
fn a_partition_and_a_key_narrow_the_range() {
    let site = Site::start();
    let api = &site.api;
    api.make("t", 4);
    fill(api, "t", 200);
    let all = api.all("t", "");
    for partition in 0..4 {
        let expected: Vec<Value> =
            all.iter().filter(|event| event["partition"] == partition).cloned().collect();
        assert_eq!(api.all("t", &format!("partition={partition}")), expected);
        assert_eq!(api.all("t", &format!("partition={partition}&limit=3")), expected);
        assert_eq!(api.export("t", &format!("partition={partition}")).lines(), expected);
    }
    for n in 0..10 {
        let expected: Vec<i64> = (0..200).filter(|number| number % 10 == n).collect();
        assert_eq!(payloads(&api.all("t", &format!("key=k{n}"))), expected);
        assert_eq!(payloads(&api.all("t", &format!("key=k{n}&limit=3"))), expected);
        assert_eq!(payloads(&api.export("t", &format!("key=k{n}")).lines()), expected);
    }
    assert_eq!(api.all("t", "key=none"), Vec::<Value>::new());
    let first = &api.all("t", "key=k3")[0];
    let home = first["partition"].as_i64().unwrap();
    assert_eq!(api.all("t", &format!("key=k3&partition={home}")).len(), 20);
    assert_eq!(api.all("t", &format!("key=k3&partition={}", (home + 1) % 4)).len(), 0);
    let second = api.all("t", "key=k3")[1]["offset"].as_i64().unwrap();
    let query = format!("key=k3&partition={home}&from=offset&offset={second}");
    assert_eq!(payloads(&api.all("t", &query))[0], 13);
    for bad in ["4", "-1", "x", "", "4294967296"] {
        api.page("t", &format!("partition={bad}")).fails_as(&[400, 404]);
    }
}

#[test]
fn unknown_and_broken_parameters_are_refused() {
    let site = Site::start();
    fill(&site.api, "t", 3);
    for bad in
        ["foo=1", "Limit=1", "key=%FF", "key=%C3%28", "filter=%FF", "%FF=1", "afterid=x", "key=a&key=b"]
    {
        site.api.page("t", bad).fails(400, "bad_request");
        site.api.export("t", bad).fails(400, "bad_request");
    }
}

#[test]
fn a_topic_that_does_not_exist_is_404_for_every_reader() {
    let site = Site::start();
    let api = &site.api;
    for query in
        ["", "from=latest", "from=ts&ts=1", "from=offset&offset=0", "key=a", "partition=0", "filter=true"]
    {
        api.page("none", query).fails(404, "not_found");
        api.export("none", query).fails(404, "not_found");
    }
    api.get("/v1/topics/none/keys/a").fails(404, "not_found");
    api.post("/v1/topics/none/keys", r#"{"keys":["a"]}"#).fails(404, "not_found");
    api.get("/v1/topics/none/events/6f2d5a3e-8c1b-4d7f-9a60-1b2c3d4e5f60").fails(404, "not_found");
    assert_eq!(api.get("/v1/topics").is(200)["topics"], json!([]));
}

#[test]
fn the_accept_header_chooses_between_pages_and_lines() {
    let site = Site::start();
    fill(&site.api, "t", 3);
    let with = |accept: &'static str| {
        site.api.call(&Call::new("GET", "/v1/topics/t/events").header("accept", accept))
    };
    for accept in [
        "application/json",
        "*/*",
        "application/*",
        "application/json, text/plain;q=0.5",
        "text/html, */*;q=0.1",
    ] {
        let answer = with(accept);
        assert!(answer.header("content-type").unwrap().starts_with("application/json"), "{accept}");
        assert_eq!(answer.is(200)["count"], 3);
    }
    for accept in
        ["application/x-ndjson", "Application/X-NDJSON", "application/x-ndjson, application/json;q=0.1"]
    {
        let answer = with(accept);
        assert!(
            answer.header("content-type").unwrap().starts_with("application/x-ndjson"),
            "{accept} {answer:?}"
        );
        assert_eq!(answer.lines().len(), 3);
    }
    assert_eq!(site.api.get("/v1/topics/t/events").is(200)["count"], 3);
}

#[test]
fn an_export_has_the_whole_range_line_by_line() {
    let site = Site::start();
    let api = &site.api;
    api.make("t", 3);
    fill(api, "t", 25_000);
    let export = api.export("t", "");
    assert_eq!(export.status, 200);
    assert!(export.text().ends_with('\n'));
    let lines = export.lines();
    assert_eq!(lines.len(), 25_000);
    assert_eq!(lines, api.all("t", "limit=10000"));
    let filter = encoded("event.payload < 100");
    assert_eq!(api.export("t", &format!("filter={filter}")).lines().len(), 100);
}

#[test]
fn the_latest_of_a_key_is_the_bare_event() {
    let mut site = Site::start();
    let api = site.api.clone();
    api.make("t", 3);
    for n in 0..30 {
        api.publish(&format!("t?key=k{}&tag=x", n % 3), &n.to_string()).is(201);
    }
    for n in 0..2 {
        let api = &site.api;
        for key in 0..3 {
            let event = api.get(&format!("/v1/topics/t/keys/k{key}")).is(200);
            assert_eq!(event["payload"], 27 + key);
            assert_eq!(
                fields(&event),
                ["id", "key", "offset", "partition", "payload", "tags", "topic", "ts"]
            );
            assert_eq!(&event, api.all("t", &format!("key=k{key}")).last().unwrap());
        }
        api.get("/v1/topics/t/keys/none").fails(404, "not_found");
        let asked = api.post("/v1/topics/t/keys", r#"{"keys":["k0","none","k2","k0"]}"#).is(200);
        assert_eq!(fields(&asked), ["events"]);
        assert_eq!(asked["events"]["k0"], api.get("/v1/topics/t/keys/k0").is(200));
        assert_eq!(asked["events"]["k2"]["payload"], 29);
        assert!(asked["events"].get("none").is_none_or(Value::is_null), "{asked}");
        assert_eq!(api.post("/v1/topics/t/keys", r#"{"keys":[]}"#).is(200), json!({"events": {}}));
        if n == 0 {
            site.crash();
        }
    }
    for bad in [r#"{"keys":[1]}"#, r#"{"keys":"k0"}"#, "{}", r#"{"keys":[],"x":1}"#, "[]", r#"{"key":["a"]}"#]
    {
        site.api.post("/v1/topics/t/keys", bad).fails(400, "bad_request");
    }
    site.api.post("/v1/topics/t/keys", "{").fails(400, "bad_json");
}

#[test]
fn the_latest_of_a_key_is_the_last_committed_and_not_the_one_with_the_highest_ts() {
    let site = Site::start();
    site.api.publish("t?key=k&ts=2000", "\"first\"").is(201);
    site.api.publish("t?key=k&ts=1000", "\"second\"").is(201);
    assert_eq!(site.api.get("/v1/topics/t/keys/k").is(200)["payload"], "second");
}

#[test]
fn a_tombstone_is_an_event() {
    let site = Site::start();
    let api = &site.api;
    api.publish("t?key=k", "1").is(201);
    let id = api.publish("t?key=k", "null").is(201)["id"].as_str().unwrap().to_owned();
    for event in [
        api.get("/v1/topics/t/keys/k").is(200),
        api.get(&format!("/v1/topics/t/events/{id}")).is(200),
        api.post("/v1/topics/t/keys", r#"{"keys":["k"]}"#).is(200)["events"]["k"].clone(),
        api.all("t", "")[1].clone(),
    ] {
        assert_eq!(event["id"], id);
        assert!(event.as_object().unwrap().contains_key("payload") && event["payload"].is_null(), "{event}");
    }
}

#[test]
fn one_event_is_found_by_its_id() {
    let mut site = Site::start();
    let api = site.api.clone();
    api.make("t", 3);
    fill(&api, "t", 300);
    api.publish("t?id=6f2d5a3e-8c1b-4d7f-9a60-1b2c3d4e5f60", "\"own\"").is(201);
    let events = api.all("t", "");
    for _ in 0..2 {
        for event in events.iter().step_by(7).chain(events.last()) {
            let id = event["id"].as_str().unwrap();
            assert_eq!(&site.api.get(&format!("/v1/topics/t/events/{id}")).is(200), event);
            assert_eq!(&site.api.get(&format!("/v1/topics/t/events/{}", id.to_uppercase())).is(200), event);
        }
        site.crash();
    }
    site.api.get("/v1/topics/t/events/00000000-0000-7000-8000-000000000000").fails(404, "not_found");
    site.api.get("/v1/topics/t/events/xyz").fails_as(&[400, 404]);
    site.api.get("/v1/topics/t/events/%FF").fails_as(&[400, 404]);
}

#[test]
fn head_answers_like_get_without_a_body() {
    let site = Site::start();
    let api = &site.api;
    fill(api, "t", 3);
    let id = api.all("t", "")[0]["id"].as_str().unwrap().to_owned();
    let by_id = format!("/v1/topics/t/events/{id}");
    for target in [
        "/healthz",
        "/readyz",
        "/metrics",
        "/v1/topics",
        "/v1/topics/t",
        "/v1/topics/t/events",
        "/v1/topics/t/keys/k1",
        &by_id,
    ] {
        let head = api.call(&Call::new("HEAD", target));
        assert_eq!((head.status, head.body.len()), (200, 0), "{target}");
        assert_eq!(head.header("content-type"), api.get(target).header("content-type"), "{target}");
    }
    assert_eq!(api.call(&Call::new("HEAD", "/v1/topics/none")).status, 404);
    let call = Call::new("HEAD", "/v1/topics/t/events").header("accept", "application/x-ndjson");
    let head = api.call(&call);
    assert_eq!((head.status, head.body.len()), (200, 0));
}
