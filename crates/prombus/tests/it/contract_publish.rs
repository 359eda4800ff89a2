//! All ways to publish, and what they promise when something is repeated, conditional, wrong or at once.

use crate::common;
use crate::contract_support::{Answer, Api, Call, Site, column, fields};
use serde_json::{Value, json};
use std::io::{Read, Write};

const ID: &str = "6f2d5a3e-8c1b-4d7f-9a60-1b2c3d4e5f60";
const OTHER: &str = "0198c0de-0000-7000-8000-000000000001";

#[test]
fn the_short_way_takes_the_payload_whatever_the_type_says() {
    let site = Site::start();
    let types =
        ["application/x-www-form-urlencoded", "text/plain", "application/json", "image/png", "nonsense", ""];
    for kind in types {
        let call = Call::new("POST", "/publish/t").header("content-type", kind).body(br#"{"a": 1}"#);
        site.api.call(&call).is(201);
    }
    site.api.call(&Call::new("POST", "/publish/t").body(br#"{"a":1}"#)).is(201);
    // Even an NDJSON type makes no lines of it.
    let call = Call::new("POST", "/publish/t").header("content-type", "application/x-ndjson");
    site.api.call(&call.body(b"{\n\"a\":\n1}")).is(201);
    let events = site.api.all("t", "");
    assert_eq!(column(&events, "payload"), [&json!({"a": 1}); 8]);
    assert!(events.iter().all(|event| event.get("headers").is_none()), "{events:?}");
}

#[test]
fn the_short_way_takes_every_field_from_the_query() {
    let site = Site::start();
    let query = format!(
        "t?key=web1%3Astt%2F%C3%A4&id={ID}&ts=1754683200123&sid=s%201&tag=%23stt&tag=b&caused_by={OTHER}&caused_by={ID}"
    );
    site.api.publish(&query, "[]").is(201);
    let event = &site.api.all("t", "")[0];
    assert_eq!((&event["key"], &event["id"]), (&json!("web1:stt/ä"), &json!(ID)));
    assert_eq!((&event["ts"], &event["sid"]), (&json!(1_754_683_200_123_i64), &json!("s 1")));
    assert_eq!((&event["tags"], &event["caused_by"]), (&json!(["#stt", "b"]), &json!([OTHER, ID])));
    site.api.make("p", 3);
    assert_eq!(site.api.publish("p?partition=2", "1").is(201)["partition"], 2);
}

#[test]
fn the_short_way_refuses_what_it_does_not_know() {
    let site = Site::start();
    for query in [
        "kee=1",
        "Key=1",
        "tags=a",
        "x",
        "expect=1",
        "ts=1&ts=2",
        "id=1",
        "key=%FF",
        "key=%C3%28",
        "tag=%E2%82",
    ] {
        site.api.publish(&format!("t?{query}"), "1").fails(400, "bad_request");
    }
    site.api.get("/v1/topics/t").fails(404, "not_found");
}

#[test]
fn event_headers_come_from_x_event_and_trace_headers_only() {
    let site = Site::start();
    let call = Call::new("POST", "/publish/t")
        .header("X-Event-Foo", "1")
        .header("x-event-schema-thing", "a b")
        .header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
        .header("Tracestate", "rojo=00f067aa0ba902b7")
        .header("x-other", "2")
        .header("authorization", "Bearer secret")
        .header("cookie", "a=b")
        .header("content-type", "text/plain")
        .header("user-agent", "test")
        .body(b"1");
    site.api.call(&call).is(201);
    let expected = json!({
        "x-foo": "1", "x-schema-thing": "a b",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "tracestate": "rojo=00f067aa0ba902b7",
    });
    assert_eq!(site.api.all("t", "")[0]["headers"], expected);
    let call = Call::new("POST", "/publish/t").header("x-event-a_b", "1").body(b"1");
    site.api.call(&call).fails(400, "bad_request");
    // In the long way, only the object counts.
    let call = Call::new("POST", "/v1/topics/u/events").header("content-type", "application/json");
    site.api.call(&call.header("x-event-foo", "1").body(br#"{"payload":1}"#)).is(201);
    assert!(site.api.all("u", "")[0].get("headers").is_none());
}

#[test]
fn a_single_publish_answers_what_it_did() {
    let site = Site::start();
    for (offset, answer) in
        [site.api.publish("t", "1").is(201), site.api.events("t", r#"{"payload":1}"#).is(201)]
            .iter()
            .enumerate()
    {
        assert_eq!(fields(answer), ["duplicate", "durability", "id", "offset", "partition", "topic", "ts"]);
        assert_eq!((&answer["duplicate"], &answer["durability"]), (&json!(false), &json!("sync")));
        let event = site.api.get(&format!("/v1/topics/t/events/{}", answer["id"].as_str().unwrap())).is(200);
        assert_eq!((&answer["offset"], &event["offset"]), (&json!(offset), &json!(offset)));
        assert_eq!((&event["ts"], &event["topic"]), (&answer["ts"], &json!("t")));
    }
}

#[test]
fn an_array_answers_for_each_in_order() {
    let site = Site::start();
    site.api.make("t", 4);
    let batch: Vec<Value> = (0..50).map(|n| json!({"payload": n, "key": format!("k{n}")})).collect();
    let answer = site.api.events("t", &format!(" {} ", json!(batch))).is(201);
    assert_eq!((fields(&answer), &answer["count"]), (vec!["count", "events"], &json!(50)));
    let answers = answer["events"].as_array().unwrap();
    assert_eq!(answers.len(), 50);
    for (n, answer) in answers.iter().enumerate() {
        let event = site.api.get(&format!("/v1/topics/t/events/{}", answer["id"].as_str().unwrap())).is(200);
        assert_eq!(event["payload"], n);
        assert_eq!((&event["partition"], &event["offset"]), (&answer["partition"], &answer["offset"]));
        assert_eq!((&answer["duplicate"], &answer["durability"]), (&json!(false), &json!("sync")));
    }
}

#[test]
fn malformed_json_and_wrong_objects_are_told_apart() {
    let site = Site::start();
    for body in [
        "",
        "{",
        "[",
        "[{\"payload\":1}",
        "{\"payload\":1}}",
        "{\"payload\":1}{\"payload\":2}",
        "nope",
        "{'payload':1}",
    ] {
        site.api.events("t", body).fails(400, "bad_json");
    }
    let wrong = [
        "1",
        "null",
        "\"x\"",
        "{}",
        r#"{"key":"a"}"#,
        r#"{"payload":1,"foo":1}"#,
        r#"{"payload":1,"offset":1}"#,
        r#"{"payload":1,"topic":"t"}"#,
        r#"{"Payload":1}"#,
        r#"{"payload":1,"expect":{"last_id":null}}"#,
        r#"{"payload":1,"expect":1,"key":"k"}"#,
        r#"{"payload":1,"expect":{},"key":"k"}"#,
        r#"{"payload":1,"expect":{"last_id":"x"},"key":"k"}"#,
        r#"{"payload":1,"expect":{"last_id":null,"x":1},"key":"k"}"#,
        "[1]",
        "[[]]",
        "[null]",
        r#"[{"payload":1},{"payload":1,"foo":1}]"#,
        r#"[{"payload":1},{}]"#,
        r#"[[{"payload":1}]]"#,
    ];
    for body in wrong {
        site.api.events("t", body).fails(400, "bad_request");
    }
    site.api.get("/v1/topics/t").fails(404, "not_found");
}

#[test]
fn only_json_and_ndjson_are_taken_by_the_long_way() {
    let site = Site::start();
    let with = |kind: &'static str| {
        Call::new("POST", "/v1/topics/t/events").header("content-type", kind).body(br#"{"payload":1}"#)
    };
    for kind in [
        "text/csv",
        "text/plain",
        "application/json; charset=latin1",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/xml",
        "json",
    ] {
        site.api.call(&with(kind)).fails_as(&[415]);
    }
    for kind in [
        "application/json",
        "application/json; charset=utf-8",
        "Application/JSON",
        "application/x-ndjson; charset=UTF-8",
    ] {
        site.api.call(&with(kind)).is(201);
    }
    site.api.call(&Call::new("POST", "/v1/topics/t/events").body(br#"{"payload":1}"#)).is(201);
    assert_eq!(site.api.all("t", "").len(), 5);
}

#[test]
fn an_array_is_in_as_a_whole_or_not_at_all() {
    let mut site = Site::start();
    let api = site.api.clone();
    api.make("t", 4);
    api.publish(&format!("t?id={ID}&key=k"), "1").is(201);
    let good = r#"{"payload":"half"}"#;
    let bad = [
        (r#"{"payload":1,"ts":99999999999999}"#.to_owned(), 400),
        (r#"{"payload":1,"partition":4}"#.to_owned(), 400),
        (r#"{"payload":1,"headers":{"foo":"1"}}"#.to_owned(), 400),
        (format!(r#"{{"payload":2,"id":"{ID}","key":"k"}}"#), 409),
        (format!(r#"{{"payload":1,"id":"{ID}","key":"other"}}"#), 409),
        (r#"{"payload":1,"key":"k","expect":{"last_id":null}}"#.to_owned(), 412),
        (r#"{"payload":1,"foo":1}"#.to_owned(), 400),
        (format!(r#"{{"payload":"{}"}}"#, "x".repeat(1024 * 1024)), 413),
    ];
    for (bad, status) in &bad {
        for body in
            [format!("[{good},{bad},{good}]"), format!("[{good},{good},{bad}]"), format!("[{bad},{good}]")]
        {
            api.events("t", &body).fails_as(&[*status]);
        }
    }
    assert_eq!(api.all("t", "").len(), 1);
    site.crash();
    assert_eq!(site.api.all("t", "").len(), 1);
}

#[test]
fn an_expectation_sees_the_earlier_events_of_its_array() {
    let site = Site::start();
    let api = &site.api;
    let ids: Vec<String> = (1..=4).map(|n| uuid::Uuid::from_u128(n).to_string()).collect();
    let step =
        |n: usize, last: Value| json!({"payload": n, "key": "k", "id": ids[n], "expect": {"last_id": last}});
    let chain = json!([step(0, Value::Null), step(1, json!(ids[0])), step(2, json!(ids[1]))]);
    api.events("t", &chain.to_string()).is(201);
    assert_eq!(column(&api.all("t", "key=k"), "payload"), [0, 1, 2]);
    // The first of these holds, the second does not any more.
    let fork = json!([step(3, json!(ids[2])), {"payload": 9, "key": "k", "expect": {"last_id": ids[2]}}]);
    let answer = api.events("t", &fork.to_string()).fails(412, "expectation_failed");
    assert!(answer.to_string().contains(&ids[3]), "{answer}");
    assert_eq!(api.all("t", "").len(), 3);
    // The whole chain again is a duplicate as a whole.
    let again = api.events("t", &chain.to_string()).is(200);
    assert_eq!(column(again["events"].as_array().unwrap(), "duplicate"), [true; 3]);
}

#[test]
fn an_id_repeated_within_an_array_is_a_duplicate_of_the_first() {
    let site = Site::start();
    let api = &site.api;
    let event = json!({"payload": {"a": 1}, "id": ID});
    let answer = api.events("t", &json!([event, {"payload": 2}, event]).to_string()).is(201);
    let answers = answer["events"].as_array().unwrap();
    assert_eq!(answer["count"], 3);
    assert_eq!(column(answers, "duplicate"), [false, false, true]);
    assert_eq!(
        (&answers[2]["offset"], &answers[2]["partition"]),
        (&answers[0]["offset"], &answers[0]["partition"])
    );
    assert_eq!(api.all("t", "").len(), 2);
    let conflict = json!([{"payload": 1, "id": OTHER}, {"payload": 2, "id": OTHER}]);
    api.events("t", &conflict.to_string()).fails(409, "id_conflict");
    assert_eq!(api.all("t", "").len(), 2);
    // Offsets go on without a gap.
    assert_eq!(api.publish("t", "1").is(201)["offset"], 2);
}

#[test]
fn a_repeated_id_is_a_duplicate_with_the_firsts_position() {
    let mut site = Site::start();
    let api = site.api.clone();
    let first = api.publish(&format!("t?id={ID}&key=k&ts=1000"), r#"{"a": 1.0, "b": [1, 2]}"#).is(201);
    api.publish("t", "0").is(201);
    for round in 0..3 {
        let api = &site.api;
        let same = |answer: Answer| {
            let answer = answer.is(200);
            assert_eq!(answer["duplicate"], true);
            for name in ["id", "topic", "partition", "offset", "ts"] {
                assert_eq!(answer[name], first[name], "{round} {name}");
            }
        };
        same(api.publish(&format!("t?id={ID}&key=k&ts=1000"), r#"{"a": 1.0, "b": [1, 2]}"#));
        // White space, time, headers, tags and spelling of the id aside.
        same(api.publish(&format!("t?key=k&id={}", ID.to_uppercase()), "{\"a\":1.0,\n\"b\":[1,2]}"));
        let event =
            json!({"id": ID, "key": "k", "tags": ["x"], "headers": {"x-a": "1"}, "sid": "s", "payload": 7});
        same(
            api.events("t", &event.to_string().replace("\"payload\":7", r#""payload":{"a":1.0,"b":[1,2]}"#)),
        );
        for other in [r#"{"a":1.00,"b":[1,2]}"#, r#"{"b":[1,2],"a":1.0}"#, r#"{"a":1,"b":[1,2]}"#, "null"] {
            let told = api.publish(&format!("t?id={ID}&key=k"), other).fails(409, "id_conflict");
            assert_eq!((&told["id"], told.get("index")), (&json!(ID), None));
        }
        api.publish(&format!("t?id={ID}&key=l"), r#"{"a":1.0,"b":[1,2]}"#).fails(409, "id_conflict");
        api.publish(&format!("t?id={ID}"), r#"{"a":1.0,"b":[1,2]}"#).fails(409, "id_conflict");
        assert_eq!(api.all("t", "").len(), 2);
        if round == 0 { site.restart() } else { site.crash() }
    }
    // Ids belong to their topic.
    assert_eq!(site.api.publish(&format!("u?id={ID}"), "5").is(201)["duplicate"], false);
}

#[test]
fn an_id_that_the_hub_made_counts_like_any_other() {
    let site = Site::start();
    let first = site.api.publish("t?key=k", "1").is(201);
    let id = first["id"].as_str().unwrap();
    assert_eq!(site.api.publish(&format!("t?key=k&id={id}"), "1").is(200)["offset"], 0);
    site.api.publish(&format!("t?key=k&id={id}"), "2").fails(409, "id_conflict");
}

#[test]
fn an_array_with_something_new_is_201_and_one_of_duplicates_200() {
    let site = Site::start();
    let (one, two) = (json!({"payload": 1, "id": ID}), json!({"payload": 2, "id": OTHER}));
    site.api.events("t", &json!([one]).to_string()).is(201);
    let mixed = site.api.events("t", &json!([one, two]).to_string()).is(201);
    assert_eq!(column(mixed["events"].as_array().unwrap(), "duplicate"), [true, false]);
    let all = site.api.events("t", &json!([two, one]).to_string()).is(200);
    assert_eq!(all["count"], 2);
    assert_eq!(column(all["events"].as_array().unwrap(), "duplicate"), [true, true]);
    assert_eq!(column(all["events"].as_array().unwrap(), "offset"), [1, 0]);
}

#[test]
fn past_the_window_an_id_is_new_again() {
    let mut site = Site::start();
    site.api.put("/v1/topics/t", r#"{"dedupe_window_ms":1500}"#).is(201);
    site.api.publish(&format!("t?id={ID}"), "1").is(201);
    assert_eq!(site.api.publish(&format!("t?id={ID}"), "1").is(200)["duplicate"], true);
    site.restart();
    let started = std::time::Instant::now();
    while site.api.publish(&format!("t?id={ID}"), "1").status == 200 {
        assert!(started.elapsed() < common::PATIENCE, "still a duplicate");
    }
    let events = site.api.all("t", "");
    assert_eq!(column(&events, "offset"), [0, 1]);
    assert_eq!(column(&events, "id"), [ID, ID]);
    site.api.get(&format!("/v1/topics/t/events/{ID}")).is(200);
}

#[test]
fn the_same_id_from_many_producers_at_once_is_one_event() {
    let mut site = Site::start();
    let api = site.api.clone();
    api.make("t", 4);
    for round in 1..=20_u128 {
        let id = uuid::Uuid::from_u128(round).to_string();
        let single = json!({"payload": 1, "id": id}).to_string();
        let array = json!([{"payload": 0}, {"payload": 1, "id": id}]).to_string();
        let answers: Vec<Value> = at_once(8, |n| {
            let answer = api.events("t", if n % 2 == 0 { &single } else { &array });
            assert!(matches!(answer.status, 200 | 201), "{answer:?}");
            let body = answer.json();
            if n % 2 == 0 { body } else { body["events"][1].clone() }
        });
        let new = answers.iter().filter(|answer| answer["duplicate"] == false).count();
        assert_eq!(new, 1, "{answers:?}");
        assert!(answers.iter().all(|answer| answer["offset"] == answers[0]["offset"]
            && answer["partition"] == answers[0]["partition"]));
        let found = api.all("t", "").iter().filter(|event| event["id"] == id).count();
        assert_eq!(found, 1);
    }
    site.crash();
    let mut ids = column(&site.api.all("t", ""), "id").iter().map(|id| id.to_string()).collect::<Vec<_>>();
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count);
}

#[test]
fn the_same_id_with_other_payloads_at_once_is_one_event_and_conflicts() {
    let site = Site::start();
    let api = &site.api;
    for round in 1..=10_u128 {
        let id = uuid::Uuid::from_u128(round).to_string();
        let statuses = at_once(6, |n| api.publish(&format!("t?id={id}"), &n.to_string()).status);
        assert_eq!(statuses.iter().filter(|status| **status == 201).count(), 1, "{statuses:?}");
        assert_eq!(statuses.iter().filter(|status| **status == 409).count(), 5, "{statuses:?}");
    }
    assert_eq!(api.all("t", "").len(), 10);
}

#[test]
fn a_conditional_publish_goes_by_the_latest_of_its_key() {
    let mut site = Site::start();
    let api = site.api.clone();
    let expecting = |last: Value, payload: i32| {
        json!({"payload": payload, "key": "k", "expect": {"last_id": last}}).to_string()
    };
    let failed = api.events("t", &expecting(json!(OTHER), 0)).fails(412, "expectation_failed");
    assert_eq!(failed["actual"], json!({"last_id": null}));
    let first = api.events("t", &expecting(Value::Null, 1)).is(201)["id"].clone();
    api.publish("t?key=other", "1").is(201);
    let failed = api.events("t", &expecting(Value::Null, 2)).fails(412, "expectation_failed");
    assert_eq!(failed["actual"], json!({"last_id": first}));
    site.crash();
    let api = site.api.clone();
    let second = api.events("t", &expecting(first.clone(), 2)).is(201)["id"].clone();
    let failed = api.events("t", &expecting(first.clone(), 3)).fails(412, "expectation_failed");
    assert_eq!(failed["actual"], json!({"last_id": second}));
    // A tombstone is an event, so the key does not go back to null.
    let grave = json!({"payload": null, "key": "k", "expect": {"last_id": second}}).to_string();
    let third = api.events("t", &grave).is(201)["id"].clone();
    api.events("t", &expecting(Value::Null, 4)).fails(412, "expectation_failed");
    api.events("t", &expecting(third, 4)).is(201);
    assert_eq!(column(&api.all("t", "key=k"), "payload"), [&json!(1), &json!(2), &Value::Null, &json!(4)]);
}

#[test]
fn the_retry_of_a_conditional_publish_that_won_is_a_duplicate() {
    let mut site = Site::start();
    let event = json!({"payload": 1, "key": "k", "id": ID, "expect": {"last_id": null}}).to_string();
    site.api.events("t", &event).is(201);
    for _ in 0..2 {
        assert_eq!(site.api.events("t", &event).is(200)["duplicate"], true);
        site.api.publish("t?key=k", "2").is(201);
        assert_eq!(site.api.events("t", &event).is(200)["duplicate"], true);
        site.crash();
    }
    // The same id with something else is a conflict, not a failed expectation.
    let event = json!({"payload": 2, "key": "k", "id": ID, "expect": {"last_id": null}}).to_string();
    site.api.events("t", &event).fails(409, "id_conflict");
}

#[test]
fn of_conditional_publishes_at_once_exactly_one_wins() {
    let site = Site::start();
    let api = &site.api;
    api.make("t", 3);
    let mut last = Value::Null;
    for round in 0..25 {
        let answers = at_once(8, |n| {
            let event = json!({"payload": [round, n], "key": "k", "expect": {"last_id": last}});
            match n % 3 {
                0 => api.events("t", &event.to_string()),
                1 => api.events("t", &json!([event]).to_string()),
                _ => api
                    .events("t", &json!([{"payload": "beside", "key": format!("b{n}")}, event]).to_string()),
            }
        });
        let won: Vec<&Answer> = answers.iter().filter(|answer| answer.status == 201).collect();
        assert_eq!(won.len(), 1, "{answers:?}");
        for answer in answers.iter().filter(|answer| answer.status != 201) {
            answer.fails(412, "expectation_failed");
        }
        let events = api.all("t", "key=k");
        assert_eq!(events.len(), round + 1);
        last = events[round]["id"].clone();
    }
    // What stood beside a loser is not there.
    let beside = api.all("t", "").iter().filter(|event| event["payload"] == "beside").count();
    let chained =
        api.all("t", "key=k").iter().filter(|event| event["payload"][1].as_i64().unwrap() % 3 == 2).count();
    assert_eq!(beside, chained);
}

#[test]
fn ndjson_takes_any_number_of_lines() {
    let site = Site::start();
    let api = &site.api;
    let lines: String = (0..2500).map(|n| format!("{{\"payload\":{n},\"key\":\"k{}\"}}\n", n % 7)).collect();
    let answer = api.ndjson("t", lines.as_bytes()).is(201);
    assert_eq!(answer["count"], 2500);
    let events = api.all("t", "");
    assert_eq!(events.len(), 2500);
    assert!(events.iter().enumerate().all(|(n, event)| event["payload"] == n && event["offset"] == n));
    // Without a newline at the end, and with the line ends of Windows.
    assert_eq!(api.ndjson("u", b"{\"payload\":1}\r\n{\"payload\":2}\r\n{\"payload\":3}").is(201)["count"], 3);
    assert_eq!(api.all("u", "").len(), 3);
}

#[test]
fn after_a_bad_line_ndjson_says_which_and_what_counted_is_in() {
    let site = Site::start();
    let api = &site.api;
    let bad = [
        ("{\"payl", "bad_json"),
        ("{\"payload\":1,\"foo\":1}", "bad_request"),
        ("{\"payload\":1,\"ts\":99999999999999}", "bad_request"),
        ("[1]", "bad_request"),
        ("{\"payload\":1,\"headers\":{\"foo\":\"1\"}}", "bad_request"),
        ("{\"payload\":\"\u{1}\"}", "bad_json"),
    ];
    for (case, (line, code)) in bad.iter().enumerate() {
        for before in [0_usize, 1, 999, 1000, 1001, 2345] {
            let topic = format!("t{case}-{before}");
            let mut body: String = (0..before).map(|n| format!("{{\"payload\":{n}}}\n")).collect();
            body += line;
            body += "\n{\"payload\":\"after\"}\n";
            let answer = api.ndjson(&topic, body.as_bytes()).fails(400, code);
            assert_eq!(answer["line"], before + 1, "{answer}");
            let count = usize::try_from(answer["count"].as_u64().unwrap()).unwrap();
            assert!(count <= before && count >= before / 1000 * 1000, "{before} {answer}");
            let there = if count == 0 { api.page(&topic, "").status } else { 200 };
            let events = if there == 200 { api.all(&topic, "") } else { Vec::new() };
            assert_eq!(events.len(), count);
            assert!(events.iter().enumerate().all(|(n, event)| event["payload"] == n));
        }
    }
}

#[test]
fn ndjson_lines_may_fail_for_what_is_stored_too() {
    let site = Site::start();
    let api = &site.api;
    api.publish(&format!("t?id={ID}&key=k"), "1").is(201);
    for (line, code) in [
        (format!(r#"{{"payload":2,"id":"{ID}","key":"k"}}"#), "id_conflict"),
        (r#"{"payload":2,"key":"k","expect":{"last_id":null}}"#.to_owned(), "expectation_failed"),
        (format!(r#"{{"payload":"{}"}}"#, "x".repeat(1024 * 1024)), "too_large"),
    ] {
        let before = api.all("t", "").len();
        let body = format!("{{\"payload\":0}}\n{{\"payload\":0}}\n{line}\n{{\"payload\":0}}\n");
        let answer = api.ndjson("t", body.as_bytes());
        let told = answer.fails_as(&[400, 409, 412, 413]);
        assert_eq!(told["error"], code, "{told}");
        assert_eq!(told["line"], 3, "{told}");
        let count = usize::try_from(told["count"].as_u64().unwrap()).unwrap();
        assert!(count <= 2, "{told}");
        assert_eq!(api.all("t", "").len(), before + count);
    }
}

#[test]
fn ndjson_counts_its_lines_also_where_ids_repeat() {
    let site = Site::start();
    let api = &site.api;
    let line = format!("{{\"payload\":1,\"id\":\"{ID}\"}}\n");
    let answer = api.ndjson("t", format!("{line}{line}{{\"payload\":2}}\n").as_bytes());
    assert!(matches!(answer.status, 200 | 201), "{answer:?}");
    assert_eq!(api.all("t", "").len(), 2);
    let again = api.ndjson("t", line.as_bytes());
    assert!(matches!(again.status, 200 | 201), "{again:?}");
    assert_eq!(api.all("t", "").len(), 2);
}

#[test]
fn ndjson_may_be_larger_than_one_commit() {
    let site = Site::start();
    let line = format!("{{\"payload\":\"{}\"}}\n", "x".repeat(900_000));
    let answer = site.api.ndjson("t", line.repeat(30).as_bytes()).is(201);
    assert_eq!(answer["count"], 30);
    assert_eq!(site.api.export("t", "").text().lines().count(), 30);
}

#[test]
fn ndjson_whose_thousand_lines_nearly_fill_a_commit_is_taken() {
    let site = Site::start();
    // A record takes a little more room than its line, whatever that is; the hub has to find its own steps.
    for size in [8280_usize, 8340, 8370, 8385, 8400] {
        let line = format!("{{\"payload\":\"{}\"}}\n", "x".repeat(size - 14));
        let answer = site.api.ndjson("t", line.repeat(1100).as_bytes()).is(201);
        assert_eq!(answer["count"], 1100, "{size}");
    }
    let small = Site::with_file("[limits]\nevent_bytes = 2000\ncommit_bytes = 10000\n");
    let line = format!("{{\"payload\":\"{}\"}}\n", "x".repeat(900));
    assert_eq!(small.api.ndjson("t", line.repeat(300).as_bytes()).is(201)["count"], 300);
    assert_eq!(small.api.all("t", "").len(), 300);
}

#[test]
fn an_expectation_sees_the_earlier_lines_of_its_stream() {
    let site = Site::start();
    let id = |n: u128| uuid::Uuid::from_u128(n + 1).to_string();
    let chain: String = (0..1500_u128)
        .map(|n| {
            let last = if n == 0 { Value::Null } else { json!(id(n - 1)) };
            format!("{}\n", json!({"payload": 1, "key": "k", "id": id(n), "expect": {"last_id": last}}))
        })
        .collect();
    assert_eq!(site.api.ndjson("t", chain.as_bytes()).is(201)["count"], 1500);
    assert_eq!(site.api.all("t", "key=k").len(), 1500);
    // Once more it is a stream of duplicates.
    let again = site.api.ndjson("t", chain.as_bytes());
    assert!(matches!(again.status, 200 | 201), "{again:?}");
    assert_eq!(site.api.all("t", "key=k").len(), 1500);
}

#[test]
fn ndjson_is_streamed_so_full_chunks_are_in_before_the_body_ends() {
    let site = Site::start();
    let mut stream = site.api.connect();
    let head = "POST /v1/topics/t/events HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-ndjson\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let mut send =
        |part: &str| stream.write_all(format!("{:x}\r\n{part}\r\n", part.len()).as_bytes()).unwrap();
    send(&"{\"payload\":1}\n".repeat(1500));
    // A line may come in pieces.
    send("{\"pay");
    let started = std::time::Instant::now();
    while site.api.page("t", "limit=10000").status != 200 || site.api.all("t", "").len() < 1000 {
        assert!(started.elapsed() < common::PATIENCE, "the first chunk never came in");
    }
    assert_eq!(site.api.all("t", "").len(), 1000);
    send("load\":2}\n");
    stream.write_all(b"0\r\n\r\n").unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    assert_eq!(Answer::parse(&bytes, false).unwrap().is(201)["count"], 1501);
    assert_eq!(site.api.all("t", "").len(), 1501);
}

#[test]
fn an_upload_that_breaks_off_leaves_no_half_line() {
    let site = Site::start();
    let api = &site.api;
    for (kind, body) in [
        ("application/x-ndjson", "{\"payload\":1}\n{\"payload\":12"),
        ("application/json", "[{\"payload\":1},{\"payload\":2}]"),
        ("application/json", "{\"payload\":1}"),
    ] {
        let head = format!(
            "POST /v1/topics/t/events HTTP/1.1\r\nhost: localhost\r\ncontent-type: {kind}\r\ncontent-length: 99\r\n\r\n{body}"
        );
        api.raw(head.as_bytes(), true);
    }
    let head = "POST /publish/t HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n12345";
    api.raw(head.as_bytes(), true);
    let answer = api.page("t", "");
    // Whole lines of NDJSON may count; half a body of the others may not.
    let events = if answer.status == 404 { Vec::new() } else { api.all("t", "") };
    assert!(events.len() <= 1 && events.iter().all(|event| event["payload"] == 1), "{events:?}");
}

#[test]
fn a_chunked_body_is_as_good_as_one_with_a_length() {
    let site = Site::start();
    let request = "POST /publish/t HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n3\r\n{\"a\r\n4\r\n\":1}\r\n0\r\n\r\n";
    let bytes = site.api.raw(request.as_bytes(), false);
    Answer::parse(&bytes, false).unwrap().is(201);
    assert_eq!(site.api.all("t", "")[0]["payload"], json!({"a": 1}));
}

#[test]
fn requests_on_one_connection_are_answered_in_order() {
    let api = Site::start();
    let mut requests = String::new();
    for n in 0..50 {
        let close = if n == 49 { "connection: close\r\n" } else { "" };
        let body = n.to_string();
        requests += &format!(
            "POST /publish/t HTTP/1.1\r\nhost: localhost\r\n{close}content-length: {}\r\n\r\n{body}",
            body.len()
        );
    }
    let bytes = api.api.raw(requests.as_bytes(), false);
    let text = String::from_utf8(bytes).unwrap();
    assert_eq!(text.matches("HTTP/1.1 201").count(), 50);
    let events = api.api.all("t", "");
    assert!(events.iter().enumerate().all(|(n, event)| event["payload"] == n));
}

/// Runs the same thing in so many threads that start together.
fn at_once<T: Send>(count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let barrier = std::sync::Barrier::new(count);
    std::thread::scope(|scope| {
        let (work, barrier) = (&work, &barrier);
        let threads: Vec<_> = (0..count)
            .map(|n| {
                scope.spawn(move || {
                    barrier.wait();
                    work(n)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Many small publishes share flushes, and all of them are there.
#[test]
fn concurrent_publishes_of_one_key_are_all_there() {
    let site = Site::start();
    let api: &Api = &site.api;
    at_once(16, |n| {
        for round in 0..10 {
            api.publish("t?key=k", &format!("[{n},{round}]")).is(201);
        }
    });
    let events = api.all("t", "key=k");
    assert_eq!(events.len(), 160);
    for n in 0..16 {
        let own: Vec<i64> = events
            .iter()
            .filter(|event| event["payload"][0] == n)
            .map(|event| event["payload"][1].as_i64().unwrap())
            .collect();
        assert_eq!(own, (0..10).collect::<Vec<i64>>());
    }
}
