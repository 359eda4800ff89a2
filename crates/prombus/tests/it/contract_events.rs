//! What an event record looks like to those who send and read it.

use crate::contract_support;
use crate::contract_support::{Call, Site, fields, now};
use serde_json::{Value, json};
use std::collections::HashMap;
use uuid::{Uuid, Variant};

const HOUR: i64 = 3_600_000;
const OWN_ID: &str = "6f2d5a3e-8c1b-4d7f-9a60-1b2c3d4e5f60";

#[test]
fn a_full_event_comes_back_with_all_of_its_fields() {
    let site = Site::start();
    let sent = json!({
        "payload": {"any": "json"}, "key": "web1:stt:4242", "id": OWN_ID, "ts": 1_754_683_200_123_i64,
        "sid": "0198c0de-0000-7000-8000-000000000001", "headers": {"x-a": "1", "content-type": "a/b"},
        "tags": ["#stt", "ä"], "caused_by": ["0198c0de-0000-7000-8000-000000000002"],
    });
    site.api.events("process.state", &sent.to_string()).is(201);
    let event = site.api.page("process.state", "").is(200)["events"][0].clone();
    let mut expected = sent;
    expected["topic"] = json!("process.state");
    expected["partition"] = json!(0);
    expected["offset"] = json!(0);
    expected["recorded_ts"] = event["recorded_ts"].clone();
    assert!((event["recorded_ts"].as_i64().unwrap() - now()).abs() < 60_000, "{event}");
    assert_eq!(event, expected);
}

#[test]
fn fields_that_were_not_given_are_absent() {
    let site = Site::start();
    let api = &site.api;
    api.publish("t", "1").is(201);
    api.events("t", r#"{"payload":1}"#).is(201);
    let null = r#"{"payload":1,"key":null,"sid":null,"headers":null,"tags":null,"expect":null}"#;
    api.events("t", null).is(201);
    for event in api.all("t", "") {
        assert_eq!(fields(&event), ["id", "offset", "partition", "payload", "topic", "ts"]);
    }
    for line in api.export("t", "").lines() {
        assert_eq!(fields(&line), ["id", "offset", "partition", "payload", "topic", "ts"]);
    }
}

#[test]
fn ids_of_the_hub_are_version_7_and_strictly_increase_within_a_partition() {
    let mut site = Site::start();
    let api = site.api.clone();
    api.make("t", 3);
    let body = format!("[{}]", vec![r#"{"payload":0}"#; 200].join(","));
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for _ in 0..10 {
                    api.events("t", &body).is(201);
                    api.publish("t?key=a", "1").is(201);
                }
            });
        }
    });
    site.restart();
    site.api.events("t", &body).is(201);
    let mut last: HashMap<i64, Uuid> = HashMap::new();
    let events = site.api.all("t", "");
    assert_eq!(events.len(), 6 * 10 * 201 + 200);
    for event in events {
        let id: Uuid = event["id"].as_str().unwrap().parse().unwrap();
        assert_eq!((id.get_version_num(), id.get_variant()), (7, Variant::RFC4122), "{event}");
        let millis = i64::try_from(id.as_u128() >> 80).unwrap();
        assert!((millis - now()).abs() < 60_000, "{event}");
        if let Some(before) = last.insert(event["partition"].as_i64().unwrap(), id) {
            assert!(before < id, "{before} {id}");
        }
    }
}

#[test]
fn a_producer_may_bring_any_uuid_and_nothing_else() {
    let site = Site::start();
    let api = &site.api;
    for id in [OWN_ID, "0198c0de-1111-7000-8000-000000000000", "c232ab00-9414-11ec-b3c8-9e6bdeced846"] {
        assert_eq!(api.publish(&format!("t?id={id}"), "1").is(201)["id"], id);
        assert_eq!(api.get(&format!("/v1/topics/t/events/{id}")).is(200)["id"], id);
    }
    for id in ["1", "", "6f2d5a3e-8c1b-4d7f-9a60-1b2c3d4e5f6", "6f2d5a3e-8c1b-4d7f-9a60-1b2c3d4e5f6g"] {
        api.publish(&format!("t?id={id}"), "1").fails(400, "bad_request");
        api.events("t", &json!({"payload": 1, "id": id}).to_string()).fails(400, "bad_request");
    }
    api.events("t", r#"{"payload":1,"id":7}"#).fails_as(&[400]);
    assert_eq!(api.all("t", "").len(), 3);
}

#[test]
fn ts_is_the_hubs_clock_unless_given() {
    let site = Site::start();
    let before = now();
    let answer = site.api.publish("t", "1").is(201);
    let ts = answer["ts"].as_i64().unwrap();
    assert!(before <= ts && ts <= now(), "{answer}");
    for given in [0_i64, 1, 1_754_683_200_123, now() - 5] {
        let answer = site.api.events("t", &json!({"payload": 1, "ts": given}).to_string()).is(201);
        assert_eq!(answer["ts"], given);
    }
    assert_eq!(site.api.publish("t?ts=1234", "1").is(201)["ts"], 1234);
}

#[test]
fn a_ts_more_than_an_hour_ahead_is_refused() {
    let site = Site::start();
    let api = &site.api;
    for ahead in [HOUR + 60_000, 1000 * HOUR, i64::MAX / 2] {
        let ts = now().saturating_add(ahead);
        api.publish(&format!("t?ts={ts}"), "1").fails(400, "bad_request");
        api.events("t", &format!(r#"[{{"payload":1}},{{"payload":1,"ts":{ts}}}]"#)).fails(400, "bad_request");
    }
    api.page("t", "").fails_as(&[404]);
    api.publish(&format!("t?ts={}", now() + HOUR - 60_000), "1").is(201);
}

#[test]
fn how_far_ahead_a_ts_may_be_is_a_setting() {
    let site = Site::with_file("[limits]\nfuture_ts_ms = 5000\n");
    site.api.publish(&format!("t?ts={}", now() + 60_000), "1").fails(400, "bad_request");
    site.api.publish(&format!("t?ts={}", now() + 1000), "1").is(201);
}

#[test]
fn a_ts_that_is_no_number_of_milliseconds_is_refused() {
    let site = Site::start();
    for ts in [r#""1""#, "1.5", "1e30", "99999999999999999999", "true", "{}"] {
        site.api.events("t", &format!(r#"{{"payload":1,"ts":{ts}}}"#)).fails_as(&[400]);
    }
    for ts in ["", "x", "1.5", "1e3", "99999999999999999999", "%20"] {
        site.api.publish(&format!("t?ts={ts}"), "1").fails(400, "bad_request");
    }
}

#[test]
fn recorded_ts_is_there_only_where_it_differs_and_never_decreases() {
    let site = Site::start();
    let api = &site.api;
    let started = now();
    for index in 0..60_i64 {
        match index % 3 {
            0 => api.publish("t", "1").is(201),
            1 => api.publish(&format!("t?ts={}", index * 1000), "1").is(201),
            _ => api.publish(&format!("t?ts={}", now() + 1_000_000), "1").is(201),
        };
    }
    let mut last = started;
    for (index, event) in api.all("t", "").iter().enumerate() {
        let recorded = match event.get("recorded_ts") {
            Some(recorded) => {
                assert_ne!(recorded, &event["ts"], "{event}");
                recorded.as_i64().unwrap()
            }
            None => event["ts"].as_i64().unwrap(),
        };
        assert_eq!(event.get("recorded_ts").is_some(), index % 3 != 0, "{event}");
        assert!(last <= recorded && recorded <= now(), "{event}");
        last = recorded;
    }
}

#[test]
fn topic_names_are_held_to_their_rule() {
    let site = Site::start();
    let api = &site.api;
    let longest = "a".repeat(200);
    for good in ["a", "0", "a.b.c", "process.state", "a-b_c.9", "foo.bar.v12", "v1", longest.as_str()] {
        assert_eq!(api.publish(good, "1").is(201)["topic"], good);
        assert_eq!(api.page(good, "").is(200)["count"], 1);
    }
    let too_long = "a".repeat(201);
    let bad = [
        "A", "a..b", ".a", "a.", "-a", "_a", "a.-b", "a.B", "a%20b", "a%2Fb", "%C3%A4", "a*", "a%00",
        &too_long,
    ];
    for bad in bad {
        api.publish(bad, "1").fails(400, "bad_request");
        api.events(bad, r#"{"payload":1}"#).fails(400, "bad_request");
        api.put(&format!("/v1/topics/{bad}"), "{}").fails(400, "bad_request");
    }
    assert_eq!(api.get("/v1/topics").is(200)["topics"].as_array().unwrap().len(), 8);
}

#[test]
fn a_key_has_1024_bytes_at_most() {
    let site = Site::start();
    let api = &site.api;
    for key in ["k".repeat(1024), "é".repeat(512)] {
        api.events("t", &json!({"payload": 1, "key": key}).to_string()).is(201);
        let found = api.get(&format!("/v1/topics/t/keys/{}", contract_support::encoded(&key))).is(200);
        assert_eq!(found["key"], key.as_str());
    }
    for key in ["k".repeat(1025), "é".repeat(513)] {
        api.events("t", &json!({"payload": 1, "key": key}).to_string()).fails_as(&[400, 413]);
        let target = format!("t?key={}", contract_support::encoded(&key));
        api.publish(&target, "1").fails_as(&[400, 413]);
    }
    for key in ["1", "[]", "{}", "true"] {
        api.events("t", &format!(r#"{{"payload":1,"key":{key}}}"#)).fails_as(&[400]);
    }
    assert_eq!(api.all("t", "").len(), 2);
}

#[test]
fn keys_are_any_text() {
    let site = Site::start();
    let api = &site.api;
    let keys = ["a/b", "a b", "ä€😀", "%41", "a+b", "a?b#c&d=e", "..", ".", "\"\\", "\u{1}\n", "a\u{0}b"];
    for (index, key) in keys.iter().enumerate() {
        let answer = api.publish(&format!("t?key={}", contract_support::encoded(key)), &index.to_string());
        answer.is(201);
    }
    for (index, key) in keys.iter().enumerate() {
        let found = api.get(&format!("/v1/topics/t/keys/{}", contract_support::encoded(key))).is(200);
        assert_eq!((&found["key"], &found["payload"]), (&json!(key), &json!(index)));
        let listed = api.all("t", &format!("key={}", contract_support::encoded(key)));
        assert_eq!(listed.len(), 1, "{key:?}");
    }
    let asked = api.post("/v1/topics/t/keys", &json!({"keys": keys}).to_string()).is(200);
    for (index, key) in keys.iter().enumerate() {
        assert_eq!(asked["events"][key]["payload"], index);
    }
}

#[test]
fn offsets_start_at_0_and_have_no_gaps_whoever_writes() {
    let site = Site::start();
    let api = &site.api;
    api.make("t", 4);
    let answers: Vec<Value> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..8)
            .map(|writer| {
                scope.spawn(move || {
                    let mut answers = Vec::new();
                    for round in 0..15 {
                        let event = |n| json!({"payload": n, "key": format!("{writer}-{n}")});
                        let batch: Vec<Value> = (0..20).map(event).collect();
                        let answer = api.events("t", &json!(batch).to_string()).is(201);
                        answers.extend(answer["events"].as_array().unwrap().iter().cloned());
                        answers.push(api.publish(&format!("t?key=s{round}"), "1").is(201));
                        // One that fails takes no offset.
                        api.events(
                            "t",
                            r#"[{"payload":1,"key":"a"},{"payload":1,"key":"a","expect":{"last_id":null}}]"#,
                        )
                        .fails(412, "expectation_failed");
                    }
                    answers
                })
            })
            .collect();
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
    });
    assert_eq!(answers.len(), 8 * 15 * 21);
    let mut by_id = HashMap::new();
    for answer in &answers {
        by_id.insert(answer["id"].clone(), (answer["partition"].clone(), answer["offset"].clone()));
    }
    let mut seen = 0;
    for partition in 0..4 {
        for (offset, event) in api.all("t", &format!("partition={partition}")).iter().enumerate() {
            assert_eq!((&event["partition"], &event["offset"]), (&json!(partition), &json!(offset)));
            assert_eq!(by_id[&event["id"]], (json!(partition), json!(offset)));
            seen += 1;
        }
    }
    assert_eq!(seen, answers.len());
}

#[test]
fn a_reader_never_sees_a_gap_nor_half_a_batch_nor_what_was_not_answered_out_of_order() {
    const BATCH: usize = 25;
    let site = Site::start();
    let api = &site.api;
    api.make("t", 1);
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                scope.spawn(move || {
                    for round in 0..40 {
                        let batch = vec![json!({"payload": [writer, round]}); BATCH];
                        let answer = api.events("t", &json!(batch).to_string()).is(201);
                        let last = &answer["events"][BATCH - 1];
                        // What was answered is visible.
                        let target = format!("/v1/topics/t/events/{}", last["id"].as_str().unwrap());
                        assert_eq!(api.get(&target).is(200)["offset"], last["offset"]);
                    }
                })
            })
            .collect();
        let done = &done;
        scope.spawn(move || {
            while !done.load(std::sync::atomic::Ordering::Acquire) {
                let page = api.page("t", "limit=10000").is(200);
                let events = page["events"].as_array().unwrap();
                assert_eq!(events.len() % BATCH, 0, "half a batch is visible");
                for (offset, event) in events.iter().enumerate() {
                    assert_eq!(event["offset"], offset);
                }
                for batch in events.chunks(BATCH) {
                    assert!(batch.iter().all(|event| event["payload"] == batch[0]["payload"]));
                }
            }
        });
        let results: Vec<_> = writers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        done.store(true, std::sync::atomic::Ordering::Release);
        assert!(results.iter().all(Result::is_ok));
    });
    assert_eq!(api.all("t", "").len(), 4 * 40 * BATCH);
}

#[test]
fn header_names_and_values_are_held_to_their_rule() {
    let site = Site::start();
    let api = &site.api;
    let good = json!({"x-a": "1", "x-schema-like-9": "", "content-type": "t/p", "traceparent": "00-1", "tracestate": "ä=\"\n"});
    api.events("t", &json!({"payload": 1, "headers": good}).to_string()).is(201);
    assert_eq!(api.all("t", "")[0]["headers"], good);
    for name in [
        "X-A",
        "x-",
        "x_a",
        "x-a_b",
        "x-ä",
        "foo",
        "authorization",
        "Content-Type",
        "x-A",
        "x-a b",
        "",
        "xx-a",
    ] {
        api.events("t", &json!({"payload": 1, "headers": {name: "1"}}).to_string()).fails(400, "bad_request");
    }
    for value in ["1", "null", "true", "[]", "{}"] {
        api.events("t", &format!(r#"{{"payload":1,"headers":{{"x-a":{value}}}}}"#)).fails_as(&[400]);
    }
    for headers in ["1", "[]", r#""x""#] {
        api.events("t", &format!(r#"{{"payload":1,"headers":{headers}}}"#)).fails_as(&[400]);
    }
    assert_eq!(api.all("t", "").len(), 1);
}

#[test]
fn headers_have_16_kib_in_all() {
    let site = Site::start();
    let api = &site.api;
    let with = |bytes: usize| json!({"payload": 1, "headers": {"x-a": "a".repeat(bytes / 2), "x-b": "b".repeat(bytes / 2)}});
    api.events("t", &with(16 * 1024 - 100).to_string()).is(201);
    assert_eq!(api.all("t", "")[0]["headers"], with(16 * 1024 - 100)["headers"]);
    api.events("t", &with(16 * 1024 + 100).to_string()).fails_as(&[400, 413]);
}

/// Payloads as producers spell them, and what of it is significant.
const SPELLINGS: &[(&str, &str)] = &[
    ("null", "null"),
    ("true", "true"),
    (" false\r\n", "false"),
    ("0", "0"),
    ("-0", "-0"),
    ("-0.0", "-0.0"),
    ("1.10", "1.10"),
    ("1E+02", "1E+02"),
    ("1e400", "1e400"),
    ("-1e-400", "-1e-400"),
    (
        "123456789012345678901234567890123456789012345678901234567890",
        "123456789012345678901234567890123456789012345678901234567890",
    ),
    (
        "0.1000000000000000055511151231257827021181583404541015625",
        "0.1000000000000000055511151231257827021181583404541015625",
    ),
    ("18446744073709551616", "18446744073709551616"),
    (r#""""#, r#""""#),
    (
        r#""a  b\tc \" \\ \/ / \u00e9 é \uD83D\uDE00 😀 \u0000""#,
        r#""a  b\tc \" \\ \/ / \u00e9 é \uD83D\uDE00 😀 \u0000""#,
    ),
    ("{ }", "{}"),
    ("[\n]", "[]"),
    ("{\"z\" : 1 ,\t\"a\":\r\n[ 1 , 2.50 ] , \"m\" : \" { } \" }", r#"{"z":1,"a":[1,2.50],"m":" { } "}"#),
    (r#"{"a":1,"a":2,"\u0061":3}"#, r#"{"a":1,"a":2,"\u0061":3}"#),
    (
        r#"{"":"","payload":{"payload":null},"$serde_json::private::RawValue":"1"}"#,
        r#"{"":"","payload":{"payload":null},"$serde_json::private::RawValue":"1"}"#,
    ),
    (r#"{"$serde_json::private::Number":"1"}"#, r#"{"$serde_json::private::Number":"1"}"#),
    ("\"\u{7f}\u{2028}\u{feff}\"", "\"\u{7f}\u{2028}\u{feff}\""),
];

#[test]
fn payloads_pass_byte_for_byte_by_every_way_in_and_out() {
    let mut site = Site::start();
    let api = site.api.clone();
    for (index, (sent, _)) in SPELLINGS.iter().enumerate() {
        api.publish(&format!("short?key={index}"), sent).is(201);
        api.events("single", &format!(r#"{{"payload":{sent},"key":"{index}"}}"#)).is(201);
        api.events("single", &format!(r#"{{"key":"after","payload":  {sent}  ,"tags":["t"]}}"#)).is(201);
    }
    let all: Vec<String> = SPELLINGS
        .iter()
        .enumerate()
        .map(|(index, (sent, _))| format!(r#"{{"payload":{sent},"key":"{index}"}}"#))
        .collect();
    api.events("array", &format!("[{}]", all.join(" , "))).is(201);
    let lines: Vec<String> = all.iter().map(|line| line.replace(['\n', '\r'], " ")).collect();
    api.ndjson("lines", lines.join("\n").as_bytes()).is(201);
    for round in 0..2 {
        let api = &site.api;
        for topic in ["short", "single", "array", "lines"] {
            let page = api.page(topic, "");
            let export = api.export(topic, "");
            for (index, (_, kept)) in SPELLINGS.iter().enumerate() {
                let part = format!(r#""payload":{kept}"#);
                let by_key = api.get(&format!("/v1/topics/{topic}/keys/{index}"));
                // Not every parser takes all of these spellings, so the answer is not parsed.
                let id = by_key.text().split('"').nth(3).unwrap().to_owned();
                let by_id = api.get(&format!("/v1/topics/{topic}/events/{id}"));
                let by_keys =
                    api.post(&format!("/v1/topics/{topic}/keys"), &format!(r#"{{"keys":["{index}"]}}"#));
                for answer in [&page, &export, &by_key, &by_id, &by_keys] {
                    assert!(answer.text().contains(&part), "{topic} {round} {part} not in {}", answer.text());
                }
            }
        }
        site.crash();
    }
}

#[test]
fn what_is_not_json_is_no_payload() {
    let site = Site::start();
    let api = &site.api;
    let bad: &[&[u8]] = &[
        b"",
        b" ",
        b"hello",
        b"{",
        b"[1,]",
        b"{\"a\":1,}",
        b"01",
        b"1.",
        b".5",
        b"+1",
        b"NaN",
        b"'a'",
        b"\"\n\"",
        b"\"\\x\"",
        b"\"\\u12\"",
        b"1 2",
        b"{\"a\" 1}",
        b"[1}",
        b"nul",
        b"\"\xff\"",
        b"\"\xc3\"",
        b"\xff",
        b"1\0",
        b"\"\xed\xa0\x80\"",
        b"{a:1}",
        b"// x\n1",
        b"1e",
        b"-",
        b"\"",
    ];
    for payload in bad {
        let answer = api.call(&Call::new("POST", "/publish/t").body(payload));
        answer.fails(400, "bad_json");
        let body = [b"{\"payload\":", *payload, b"}"].concat();
        let call = Call::new("POST", "/v1/topics/t/events").header("content-type", "application/json");
        api.call(&call.clone().body(&body)).fails(400, "bad_json");
        let body = [b"[{\"payload\":1},{\"payload\":", *payload, b"}]"].concat();
        api.call(&call.body(&body)).fails(400, "bad_json");
    }
    api.get("/v1/topics/t").fails(404, "not_found");
}

#[test]
fn payloads_are_nested_128_deep_at_most() {
    let site = Site::start();
    let api = &site.api;
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let objects = |depth: usize| format!("{}1{}", r#"{"a":"#.repeat(depth), "}".repeat(depth));
    for good in [nested(128), objects(128)] {
        api.publish("t", &good).is(201);
        api.events("t", &format!(r#"{{"payload":{good}}}"#)).is(201);
        api.events("t", &format!(r#"[{{"payload":{good}}}]"#)).is(201);
        api.ndjson("t", format!(r#"{{"payload":{good}}}"#).as_bytes()).is(201);
    }
    let whole = |depth: &str| api.export("t", "").text().matches(depth).count();
    assert_eq!((whole(&nested(128)), whole(&objects(128))), (4, 4));
    api.publish("t", &nested(129)).fails(400, "bad_request");
    for bad in [nested(129), objects(129), nested(100_000), "[".repeat(500_000), objects(20_000)] {
        api.publish("t", &bad).fails_as(&[400]);
        api.events("t", &format!(r#"{{"payload":{bad}}}"#)).fails_as(&[400]);
        api.events("t", &format!(r#"[{{"payload":{bad}}}]"#)).fails_as(&[400]);
        api.ndjson("t", format!(r#"{{"payload":{bad}}}"#).as_bytes()).fails_as(&[400]);
    }
    assert_eq!(api.export("t", "").text().lines().count(), 8);
}

#[test]
fn sid_caused_by_and_tags_are_carried_as_given() {
    let site = Site::start();
    let api = &site.api;
    let ids = ["0198c0de-0000-7000-8000-000000000002", "0198c0de-0000-7000-8000-000000000001"];
    let sent = json!({"payload": 1, "sid": "ß 1", "tags": ["b", "a", "b", ""], "caused_by": ids});
    api.events("t", &sent.to_string()).is(201);
    let event = &api.all("t", "")[0];
    for name in ["sid", "tags", "caused_by"] {
        assert_eq!(event[name], sent[name]);
    }
    for bad in [
        r#""sid":1"#,
        r#""sid":[]"#,
        r#""tags":"a""#,
        r#""tags":[1]"#,
        r#""caused_by":{}"#,
        r#""caused_by":[1]"#,
    ] {
        api.events("t", &format!(r#"{{"payload":1,{bad}}}"#)).fails_as(&[400]);
    }
}

#[test]
fn an_event_over_1_mib_is_refused_and_one_below_is_not() {
    let site = Site::start();
    let api = &site.api;
    let text = |size: usize| format!("\"{}\"", "x".repeat(size - 2));
    api.publish("t", &text(1024 * 1024 - 512)).is(201);
    api.events("t", &format!(r#"{{"payload":{}}}"#, text(1024 * 1024 - 512))).is(201);
    let over = text(1024 * 1024 + 1);
    api.publish("t", &over).fails(413, "too_large");
    api.events("t", &format!(r#"{{"payload":{over}}}"#)).fails(413, "too_large");
    api.events("t", &format!(r#"[{{"payload":1}},{{"payload":{over}}}]"#)).fails(413, "too_large");
    // Not only the payload counts.
    api.events("t", &format!(r#"{{"payload":1,"sid":{over}}}"#)).fails_as(&[400, 413]);
    api.events("t", &format!(r#"{{"payload":1,"tags":[{over}]}}"#)).fails_as(&[400, 413]);
    assert_eq!(api.all("t", "").len(), 2);
}

#[test]
fn a_commit_over_8_mib_is_refused_as_a_whole() {
    let site = Site::start();
    let api = &site.api;
    let event = format!(r#"{{"payload":"{}"}}"#, "x".repeat(1_000_000));
    let array = |count| format!("[{}]", vec![event.as_str(); count].join(","));
    api.events("t", &array(8)).is(201);
    assert_eq!(api.all("t", "").len(), 8);
    api.events("t", &array(9)).fails(413, "too_large");
    api.events("t", &array(40)).fails(413, "too_large");
    assert_eq!(api.all("t", "").len(), 8);
}

#[test]
fn limits_of_size_are_settings() {
    let site = Site::with_file("[limits]\nevent_bytes = 2000\ncommit_bytes = 10000\n");
    let api = &site.api;
    let text = |size: usize| format!("\"{}\"", "x".repeat(size - 2));
    api.publish("t", &text(1500)).is(201);
    api.publish("t", &text(2001)).fails(413, "too_large");
    let event = format!(r#"{{"payload":{}}}"#, text(1500));
    api.events("t", &format!("[{}]", [event.as_str(); 5].join(","))).is(201);
    api.events("t", &format!("[{}]", [event.as_str(); 8].join(","))).fails(413, "too_large");
    assert_eq!(api.all("t", "").len(), 6);
}

#[test]
fn a_body_far_over_the_limit_is_told_so_also_when_the_client_asks_first() {
    let site = Site::start();
    let api = &site.api;
    let body = "x".repeat(40 * 1024 * 1024);
    api.publish("t", &body).fails(413, "too_large");
    let head = "POST /publish/t HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\nconnection: close\r\ncontent-length: 99999999999\r\n\r\n";
    let bytes = api.raw(head.as_bytes(), false);
    contract_support::Answer::parse(&bytes, false).unwrap().fails(413, "too_large");
}
