//! How topics come, grow and go, and which partition an event gets.

use crate::contract_support::{Call, Site, column, encoded};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// XXH3 (64 bits, seed 0) of keys, as another implementation computes it; one for each way that XXH3 has to
/// deal with a length.
const KEY_HASHES: &[(&str, usize, u64)] = &[
    ("a", 1, 0xe6c6_32b6_1e96_4e1f),
    ("ab", 1, 0xa873_719c_24d5_735c),
    ("web", 1, 0x22fd_8ad0_bcfe_2d1f),
    ("key1", 1, 0x384d_070c_d5d8_29e2),
    ("web1:stt", 1, 0x9568_f02e_6a15_ff5f),
    ("web1:stt:4242", 1, 0xfd7c_3a1c_4308_8f55),
    ("0123456789abcdef", 1, 0x6443_9946_d8fa_212d),
    ("0123456789abcdef0", 1, 0xc92e_2385_daf3_6034),
    ("é", 1, 0xf794_0a00_6cf1_0cb3),
    ("ключ😀", 1, 0xc9fb_46de_541b_66d1),
    ("x", 64, 0x269c_b9f6_acf8_1244),
    ("x", 128, 0x4ca3_7e83_f6cd_dd17),
    ("x", 129, 0xe4f9_7421_08fe_27dc),
    ("x", 240, 0x3e16_ca8a_0c6c_cb68),
    ("x", 241, 0x14da_9e5c_301a_6a1d),
    ("x", 1024, 0xfc56_a7ce_85b3_164a),
];

/// The same of the 16 bytes of ids.
const ID_HASHES: &[(&str, u64)] = &[
    ("6f2d5a3e-8c1b-4d7f-9a60-1b2c3d4e5f60", 0xf25d_0c7a_2f68_a6bc),
    ("0198c0de-0000-7000-8000-000000000001", 0xe3c2_4476_37a5_c227),
    ("c232ab00-9414-11ec-b3c8-9e6bdeced846", 0x46af_7b54_6ee0_c11c),
    ("00000000-0000-0000-0000-000000000001", 0x4152_418f_75dd_93bb),
    ("ffffffff-ffff-4fff-bfff-ffffffffffff", 0xe70a_3b79_875a_0335),
    ("11111111-2222-4333-8444-555555555555", 0x97c9_3f8a_2b83_ae30),
];

/// The loop of the paper of Lamping and Veach, word for word.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "as the paper has it")]
fn jump_hash(mut key: u64, buckets: i64) -> i64 {
    let (mut bucket, mut jump) = (-1_i64, 0_i64);
    while jump < buckets {
        bucket = jump;
        key = key.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        jump = ((bucket + 1) as f64 * ((1_i64 << 31) as f64 / ((key >> 33) + 1) as f64)) as i64;
    }
    bucket
}

fn config(site: &Site, topic: &str) -> Value {
    site.api.get(&format!("/v1/topics/{topic}")).is(200)
}

#[test]
fn a_topic_comes_with_its_first_publish() {
    let site = Site::start();
    let api = &site.api;
    assert_eq!(api.get("/v1/topics").is(200)["topics"], json!([]));
    api.get("/v1/topics/one").fails(404, "not_found");
    api.publish("one", "1").is(201);
    api.events("two", r#"{"payload":1}"#).is(201);
    api.events("three", r#"[{"payload":1}]"#).is(201);
    api.ndjson("four", b"{\"payload\":1}\n").is(201);
    for topic in ["one", "two", "three", "four"] {
        let config = config(&site, topic);
        assert_eq!((&config["partitions"], &config["durability"]), (&json!(1), &json!("sync")));
        assert_eq!((&config["compaction"], &config["dedupe_window_ms"]), (&json!(false), &json!(86_400_000)));
        assert_eq!((&config["schema"], &config["dual_write"]), (&json!("enforce"), &json!(false)));
        assert!(api.get("/v1/topics").text().contains(&format!("\"{topic}\"")));
    }
}

#[test]
fn a_publish_that_is_refused_makes_no_topic() {
    let site = Site::start();
    let api = &site.api;
    api.publish("t", "{").fails(400, "bad_json");
    api.publish("t?partition=1", "1").fails(400, "bad_request");
    api.events("t", r#"{"payload":1,"key":"k","expect":{"last_id":"6f2d5a3e-8c1b-4d7f-9a60-1b2c3d4e5f60"}}"#)
        .fails(412, "expectation_failed");
    api.ndjson("t", b"{\n").fails(400, "bad_json");
    api.get("/v1/topics/t").fails(404, "not_found");
}

#[test]
fn without_auto_create_only_put_makes_topics() {
    let site = Site::with_file("[topics]\nauto_create = false\n");
    let api = &site.api;
    api.publish("t", "1").fails(404, "not_found");
    api.events("t", r#"{"payload":1}"#).fails(404, "not_found");
    api.events("t", r#"[{"payload":1}]"#).fails(404, "not_found");
    api.ndjson("t", b"{\"payload\":1}\n").fails_as(&[400, 404]);
    api.make("t", 1);
    api.publish("t", "1").is(201);
}

#[test]
fn a_topic_of_the_configuration_is_made_anew_as_that_says_by_whatever_way() {
    let site = Site::with_file("[topics.t]\npartitions = 4\ncompaction = true\n");
    let api = &site.api;
    let ways: [&dyn Fn(); 4] = [
        &|| drop(api.publish("t", "1").is(201)),
        &|| drop(api.put("/v1/topics/t", "{}").is(201)),
        &|| drop(api.post("/v1/topics/t/groups/g/pull", "{}").is(200)),
        &|| drop(api.post("/v1/schemas/t", r#"{"schema":true}"#).is(201)),
    ];
    for (n, way) in ways.iter().enumerate() {
        api.delete("/v1/topics/t").is(204);
        way();
        let config = config(&site, "t");
        assert_eq!((&config["partitions"], &config["compaction"]), (&json!(4), &json!(true)), "way {n}");
    }
}

#[test]
fn there_are_as_many_topics_as_the_limit_says() {
    let mut site = Site::with_file("[limits]\ntopics = 3\n");
    site.api.publish("a", "1").is(201);
    site.api.make("b", 1);
    site.api.publish("c", "1").is(201);
    site.restart();
    let api = &site.api;
    api.publish("d", "1").fails(413, "too_large");
    api.put("/v1/topics/e", "{}").fails(413, "too_large");
    api.post("/v1/topics/f/groups/g/pull", "{}").fails(413, "too_large");
    api.publish("a", "1").is(201);
    api.put("/v1/topics/b", r#"{"partitions":2}"#).is(200);
    assert!(matches!(api.delete("/v1/topics/b").status, 200 | 204));
    api.publish("d", "1").is(201);
}

#[test]
fn put_takes_all_settings_and_get_shows_them() {
    let mut site = Site::start();
    let all = json!({
        "partitions": 8, "retention_ms": 259_200_000, "retention_bytes": 1000, "compaction": true, "dedupe_window_ms": 1000,
        "snapshot": {"topic": "process.state.snapshot", "every_ms": 30000},
        "durability": "interval", "schema": "warn", "dual_write": true,
    });
    let answer = site.api.put("/v1/topics/process.state", &all.to_string());
    assert!(matches!(answer.status, 200 | 201), "{answer:?}");
    for _ in 0..2 {
        let mut shown = config(&site, "process.state");
        // How far snapshots have come is shown beside what was set.
        shown["snapshot"]
            .as_object_mut()
            .unwrap()
            .retain(|name, _| ["topic", "every_ms"].contains(&name.as_str()));
        for (name, value) in all.as_object().unwrap() {
            assert_eq!(&shown[name], value, "{name}");
        }
        site.restart();
    }
    // The same again changes nothing.
    site.api.put("/v1/topics/process.state", &all.to_string()).is(200);
    assert_eq!(config(&site, "process.state")["durability"], "interval");
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let site = Site::start();
    let bad = [
        r#"{"partitons":8}"#,
        r#"{"partitions":0}"#,
        r#"{"partitions":-1}"#,
        r#"{"partitions":1.5}"#,
        r#"{"partitions":"8"}"#,
        r#"{"partitions":4294967297}"#,
        r#"{"partitions":1000000000}"#,
        r#"{"durability":"never"}"#,
        r#"{"durability":1}"#,
        r#"{"schema":"x"}"#,
        r#"{"compaction":1}"#,
        r#"{"dedupe_window_ms":-1}"#,
        r#"{"snapshot":{"topic":"Bad Name","every_ms":1}}"#,
        r#"{"snapshot":{"topic":"a","every_ms":1,"x":1}}"#,
        r#"{"snapshot":7}"#,
        "[]",
        "1",
        r#""x""#,
    ];
    for body in bad {
        site.api.put("/v1/topics/t", body).fails(400, "bad_request");
    }
    for body in ["{", "x", r#"{"partitions":}"#, r#"{"partitions":1}}"#] {
        site.api.put("/v1/topics/t", body).fails(400, "bad_json");
    }
    site.api.get("/v1/topics/t").fails(404, "not_found");
}

#[test]
fn partitions_grow_so_often_and_no_more() {
    let site = Site::start();
    site.api.make("t", 1);
    let grow = |partitions: u32| site.api.put("/v1/topics/t", &json!({"partitions": partitions}).to_string());
    for partitions in 2..=65 {
        grow(partitions).is(200);
    }
    let error = grow(66).fails(400, "bad_request");
    assert!(error["message"].as_str().unwrap().contains("64 times"), "{error}");
    site.api.put("/v1/topics/t", r#"{"retention_ms":5}"#).is(200);
    assert_eq!(config(&site, "t")["partitions"], 65);
}

#[test]
fn partitions_only_grow() {
    let site = Site::start();
    site.api.make("t", 4);
    site.api.put("/v1/topics/t", r#"{"partitions":3}"#).fails_as(&[400, 409]);
    assert_eq!(config(&site, "t")["partitions"], 4);
    site.api.make("t", 5);
    assert_eq!(config(&site, "t")["partitions"], 5);
    // What a later call does not speak of stays.
    site.api.put("/v1/topics/t", r#"{"durability":"interval"}"#).is(200);
    assert_eq!(config(&site, "t")["partitions"], 5);
}

#[test]
fn a_key_decides_the_partition_by_jump_hash_of_xxh3() {
    let site = Site::start();
    let api = &site.api;
    for partitions in [1_u32, 2, 3, 8, 64] {
        let topic = format!("p{partitions}");
        api.make(&topic, partitions);
        let mut lines = String::new();
        for (text, times, hash) in KEY_HASHES {
            let key = text.repeat(*times);
            let expected = jump_hash(*hash, i64::from(partitions));
            let answer = api.publish(&format!("{topic}?key={}", encoded(&key)), "1").is(201);
            assert_eq!(answer["partition"], expected, "{key}");
            // A producer's id does not matter where there is a key.
            let id = uuid::Uuid::from_u128(u128::from(*hash)).to_string();
            let event = json!({"payload": 1, "key": key, "id": id});
            let answer = api.events(&topic, &event.to_string()).is(201);
            assert_eq!(answer["partition"], expected, "{key}");
            lines += &format!("{}\n", json!({"payload": 2, "key": key}));
        }
        api.ndjson(&topic, lines.as_bytes()).is(201);
        for (text, times, hash) in KEY_HASHES {
            let found = api.all(&topic, &format!("key={}", encoded(&text.repeat(*times))));
            let expected = jump_hash(*hash, i64::from(partitions));
            assert_eq!(column(&found, "partition"), [&json!(expected); 3]);
        }
    }
}

#[test]
fn without_a_key_the_producers_id_decides() {
    let site = Site::start();
    for partitions in [2_u32, 3, 8, 64] {
        let topic = format!("p{partitions}");
        site.api.make(&topic, partitions);
        for (id, hash) in ID_HASHES {
            let answer = site.api.publish(&format!("{topic}?id={id}"), "1").is(201);
            assert_eq!(answer["partition"], jump_hash(*hash, i64::from(partitions)), "{id}");
        }
    }
}

#[test]
fn without_either_it_is_round_robin() {
    let site = Site::start();
    site.api.make("t", 4);
    let mut counts = BTreeMap::new();
    for _ in 0..40 {
        let answer = site.api.publish("t", "1").is(201);
        *counts.entry(answer["partition"].as_i64().unwrap()).or_insert(0) += 1;
    }
    assert_eq!(counts, (0..4).map(|partition| (partition, 10)).collect());
    // Batches use all partitions too, in whichever steps.
    let batch = format!("[{}]", [r#"{"payload":1}"#; 10].join(","));
    for _ in 0..40 {
        site.api.events("t", &batch).is(201);
    }
    for partition in 0..4 {
        let count = site.api.all("t", &format!("partition={partition}")).len();
        assert!((80..=140).contains(&count), "{partition}: {count}");
    }
}

#[test]
fn a_producer_may_name_the_partition_but_not_together_with_a_key() {
    let site = Site::start();
    let api = &site.api;
    api.make("t", 8);
    for partition in 0..8_u32 {
        assert_eq!(api.publish(&format!("t?partition={partition}"), "1").is(201)["partition"], partition);
        let id = uuid::Uuid::from_u128(u128::from(partition) + 1).to_string();
        let event = json!({"payload": 1, "partition": partition, "id": id});
        assert_eq!(api.events("t", &event.to_string()).is(201)["partition"], partition);
    }
    api.publish("t?partition=1&key=a", "1").fails(400, "bad_request");
    api.events("t", r#"{"payload":1,"partition":1,"key":"a"}"#).fails(400, "bad_request");
    for bad in ["8", "-1", "1.5", "4294967296", "99999999999999999999", "x", ""] {
        api.publish(&format!("t?partition={bad}"), "1").fails(400, "bad_request");
    }
    for bad in ["8", "-1", "1.5", "4294967296", "\"1\"", "[]"] {
        api.events("t", &format!(r#"{{"payload":1,"partition":{bad}}}"#)).fails(400, "bad_request");
    }
    assert_eq!(api.all("t", "").len(), 16);
}

#[test]
fn the_latest_of_a_key_is_the_latest_in_the_topic_also_after_it_grew() {
    let mut site = Site::start();
    let api = site.api.clone();
    api.make("t", 1);
    let key = |n: usize| format!("key{n}");
    for n in 0..40 {
        api.publish(&format!("t?key={}", key(n)), "\"old\"").is(201);
        api.publish(&format!("t?key={}", key(n)), "\"newer\"").is(201);
    }
    let before = api.all("t", "");
    api.make("t", 8);
    // What is there stays where it is.
    assert_eq!(api.all("t", "partition=0"), before);
    for n in 0..40 {
        let found = api.get(&format!("/v1/topics/t/keys/{}", key(n))).is(200);
        assert_eq!(found["payload"], "newer");
        // The condition too goes by the topic, not by the partition.
        let wrong = json!({"payload": 0, "key": key(n), "expect": {"last_id": null}});
        let actual = api.events("t", &wrong.to_string()).fails(412, "expectation_failed");
        assert!(actual.to_string().contains(found["id"].as_str().unwrap()), "{actual}");
        let right = json!({"payload": "newest", "key": key(n), "expect": {"last_id": found["id"]}});
        let answer = api.events("t", &right.to_string()).is(201);
        assert_ne!(answer["id"], found["id"]);
    }
    let moved = api.all("t", "").iter().filter(|event| event["partition"] != 0).count();
    assert!(moved > 20, "{moved} events in the new partitions");
    for _ in 0..2 {
        let keys: Vec<String> = (0..40).map(key).collect();
        let asked = site.api.post("/v1/topics/t/keys", &json!({"keys": keys}).to_string()).is(200);
        for key in &keys {
            assert_eq!(asked["events"][key]["payload"], "newest");
            assert_eq!(site.api.get(&format!("/v1/topics/t/keys/{key}")).is(200)["payload"], "newest");
            let mut payloads = column(&site.api.all("t", &format!("key={key}")), "payload").len();
            assert_eq!(payloads, 3);
            payloads = site.api.all("t", &format!("key={key}&limit=1")).len();
            assert_eq!(payloads, 3);
        }
        site.crash();
    }
}

#[test]
fn a_duplicate_is_found_although_the_topic_grew_meanwhile() {
    let site = Site::start();
    let api = &site.api;
    for (id, _) in ID_HASHES {
        api.publish(&format!("t?id={id}"), "1").is(201);
    }
    let first = api.all("t", "");
    api.make("t", 16);
    for (index, (id, _)) in ID_HASHES.iter().enumerate() {
        let answer = api.publish(&format!("t?id={id}"), "1").is(200);
        assert_eq!((&answer["duplicate"], &answer["partition"]), (&json!(true), &json!(0)));
        assert_eq!(answer["offset"], index);
        api.publish(&format!("t?id={id}"), "2").fails(409, "id_conflict");
    }
    assert_eq!(api.all("t", ""), first);
}

#[test]
fn the_answer_says_which_durability_held() {
    let site = Site::start();
    let api = &site.api;
    api.put("/v1/topics/fast", r#"{"durability":"interval"}"#).is(201);
    assert_eq!(api.publish("fast", "1").is(201)["durability"], "interval");
    assert_eq!(api.publish("safe", "1").is(201)["durability"], "sync");
    let answer = api.events("fast", r#"[{"payload":1},{"payload":2}]"#).is(201);
    assert_eq!(column(answer["events"].as_array().unwrap(), "durability"), ["interval", "interval"]);
    api.put("/v1/topics/fast", r#"{"durability":"sync"}"#).is(200);
    assert_eq!(api.publish("fast", "1").is(201)["durability"], "sync");
}

#[test]
fn what_was_answered_survives_kill_9_in_either_durability() {
    let mut site = Site::start();
    site.api.put("/v1/topics/fast", r#"{"durability":"interval"}"#).is(201);
    for round in 1..=3_usize {
        let api = site.api.clone();
        for _ in 0..20 {
            api.publish("fast?key=a", "1").is(201);
            api.publish("safe?key=a", "1").is(201);
        }
        site.crash();
        for topic in ["fast", "safe"] {
            let events = site.api.all(topic, "");
            assert_eq!(events.len(), round * 20, "{topic}");
            assert!(events.iter().enumerate().all(|(offset, event)| event["offset"] == offset));
        }
    }
}

#[test]
fn a_deleted_topic_is_gone() {
    let mut site = Site::start();
    let api = site.api.clone();
    api.delete("/v1/topics/t").fails(404, "not_found");
    let id = api.publish("t?key=k", "1").is(201)["id"].as_str().unwrap().to_owned();
    api.publish("other", "1").is(201);
    assert!(matches!(api.delete("/v1/topics/t").status, 200 | 204));
    for _ in 0..2 {
        let api = &site.api;
        api.get("/v1/topics/t").fails(404, "not_found");
        api.page("t", "").fails(404, "not_found");
        api.export("t", "").fails(404, "not_found");
        api.get("/v1/topics/t/keys/k").fails(404, "not_found");
        api.post("/v1/topics/t/keys", r#"{"keys":["k"]}"#).fails(404, "not_found");
        api.get(&format!("/v1/topics/t/events/{id}")).fails(404, "not_found");
        api.delete("/v1/topics/t").fails(404, "not_found");
        assert!(!api.get("/v1/topics").text().contains("\"t\""));
        assert_eq!(api.all("other", "").len(), 1);
        site.crash();
    }
}

#[test]
fn a_topic_made_again_is_another_topic() {
    const ID: &str = "6f2d5a3e-8c1b-4d7f-9a60-1b2c3d4e5f60";
    let mut site = Site::start();
    let api = site.api.clone();
    api.make("t", 3);
    api.publish(&format!("t?key=k&id={ID}"), "1").is(201);
    for _ in 0..9 {
        api.publish("t", "\"old\"").is(201);
    }
    let cursor = api.page("t", "limit=2").is(200)["next"].as_str().unwrap().to_owned();
    let old = api.page("t", &format!("limit=1&cursor={}", encoded(&cursor))).is(200)["events"][0].clone();
    assert!(matches!(api.delete("/v1/topics/t").status, 200 | 204));
    api.page("t", &format!("cursor={}", encoded(&cursor))).fails_as(&[404, 410]);
    // Its settings do not come back, nor its events, ids and keys.
    let answer = api.publish(&format!("t?id={ID}"), "\"another\"").is(201);
    assert_eq!(
        (&answer["partition"], &answer["offset"], &answer["duplicate"]),
        (&json!(0), &json!(0), &json!(false))
    );
    let conditional = json!({"payload": 1, "key": "k", "expect": {"last_id": null}});
    api.events("t", &conditional.to_string()).is(201);
    for _ in 0..2 {
        let api = &site.api;
        assert_eq!(config(&site, "t")["partitions"], 1);
        assert_eq!(column(&api.all("t", ""), "payload"), [&json!("another"), &json!(1)]);
        let gone = api.page("t", &format!("cursor={}", encoded(&cursor)));
        gone.fails(410, "gone");
        let target = format!("/v1/topics/t/events?cursor={}", encoded(&cursor));
        api.call(&Call::new("GET", &target).header("accept", "application/x-ndjson")).fails(410, "gone");
        let old_id = old["id"].as_str().unwrap();
        api.get(&format!("/v1/topics/t/events/{old_id}")).fails(404, "not_found");
        api.page("t", &format!("from=afterId&afterId={old_id}")).fails_as(&[404, 410]);
        assert_eq!(api.get(&format!("/v1/topics/t/events/{ID}")).is(200)["payload"], "another");
        site.crash();
    }
}

#[test]
fn topics_of_the_hub_take_no_publish() {
    let site = Site::start();
    let api = &site.api;
    for topic in ["dlq.a", "system.a", "dlq.a.b.c"] {
        api.publish(topic, "1").fails(403, "forbidden");
        api.events(topic, r#"{"payload":1}"#).fails(403, "forbidden");
        api.events(topic, r#"[{"payload":1}]"#).fails(403, "forbidden");
        api.ndjson(topic, b"{\"payload\":1}\n").fails_as(&[400, 403]);
        api.get(&format!("/v1/topics/{topic}")).fails(404, "not_found");
    }
    // Only what starts with them.
    api.publish("dlqs.a", "1").is(201);
    api.publish("my.dlq.a", "1").is(201);
    api.publish("systems", "1").is(201);
}

#[test]
fn topics_are_listed_with_their_names() {
    let site = Site::start();
    for topic in ["b", "a", "c.d"] {
        site.api.publish(topic, "1").is(201);
    }
    let answer = site.api.get("/v1/topics").is(200);
    let topics = answer["topics"].as_array().unwrap();
    let mut names: Vec<&str> =
        topics.iter().map(|topic| topic.as_str().or(topic["topic"].as_str()).unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["a", "b", "c.d"]);
}

#[test]
fn making_a_topic_from_many_sides_at_once_makes_one() {
    let site = Site::start();
    let api = &site.api;
    std::thread::scope(|scope| {
        for n in 0..12 {
            scope.spawn(move || {
                if n % 3 == 0 {
                    let answer = api.put("/v1/topics/t", "{}");
                    assert!(matches!(answer.status, 200 | 201), "{answer:?}");
                } else {
                    api.publish("t", &n.to_string()).is(201);
                }
            });
        }
    });
    let events = api.all("t", "");
    assert_eq!(events.len(), 8);
    assert!(events.iter().enumerate().all(|(offset, event)| event["offset"] == offset));
}

#[test]
fn deleting_under_load_neither_hangs_nor_mixes_lives() {
    let site = Site::start();
    let api = &site.api;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(move || {
                for n in 0..60 {
                    let answer = api.publish(&format!("t?key={}", n % 5), "1");
                    assert!(matches!(answer.status, 201 | 404 | 409 | 410 | 503), "{answer:?}");
                }
            });
        }
        scope.spawn(move || {
            for _ in 0..20 {
                let answer = api.delete("/v1/topics/t");
                assert!(matches!(answer.status, 200 | 204 | 404), "{answer:?}");
            }
        });
    });
    api.publish("t", "1").is(201);
    let events = api.all("t", "");
    assert!(events.iter().enumerate().all(|(offset, event)| event["offset"] == offset), "{events:?}");
    let shown = config(&site, "t");
    assert_eq!(shown["partitions"], 1);
}

#[test]
fn while_a_topic_grows_conditions_and_ids_still_have_one_winner() {
    let site = Site::start();
    let api = &site.api;
    for round in 0..8_u128 {
        let topic = format!("t{round}");
        api.make(&topic, 1);
        let first: Vec<Value> =
            (0..20).map(|n| api.publish(&format!("{topic}?key=k{n}"), "0").is(201)["id"].clone()).collect();
        let (topic, first) = (&topic, &first);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for partitions in 2..20 {
                    api.make(topic, partitions);
                }
            });
            for thread in 0..4 {
                scope.spawn(move || {
                    for (n, last) in first.iter().enumerate() {
                        let id = uuid::Uuid::from_u128(u128::try_from(n).unwrap() + 1).to_string();
                        let event =
                            json!({"payload": thread, "key": format!("k{n}"), "expect": {"last_id": last}});
                        let answer = api.events(topic, &event.to_string());
                        assert!(matches!(answer.status, 201 | 412), "{answer:?}");
                        let answer = api.publish(&format!("{topic}?id={id}"), "1");
                        assert!(matches!(answer.status, 200 | 201), "{answer:?}");
                    }
                });
            }
        });
        for n in 0..20 {
            assert_eq!(api.all(topic, &format!("key=k{n}")).len(), 2, "k{n} was won more than once");
        }
        assert_eq!(api.all(topic, "").len(), 20 + 20 + 20);
        assert_eq!(config(&site, topic)["partitions"], 19);
    }
}
