//! How consumer groups come and go, where they start, what a pull gets, and how they are moved.

use crate::contract_support::{Site, now};
use crate::groups_support::{
    Group, LONG, acks, attempt, eventually, lease, number, numbers, publish, publish_all, publish_keys,
    publish_spread, since, sorted_numbers,
};
use serde_json::{Value, json};
use std::time::Instant;

/// A site whose topic `t` has so many numbered events, and a group of it that reads them all.
fn with_events(count: u64) -> (Site, Group) {
    let site = Site::start();
    publish(&site.api, "t", 0..count);
    let group = Group::of(&site, "t", "g");
    (site, group)
}

#[test]
fn a_group_starts_at_the_end_unless_told() {
    let (site, group) = with_events(3);
    assert_eq!(group.pull(&json!({})), [] as [Value; 0]);
    publish(&site.api, "t", 3..5);
    assert_eq!(numbers(&group.gather(&json!({}), 2)), [3, 4]);
    let told = Group::of(&site, "t", "told");
    told.nothing(json!({"from": "latest"}));
    publish(&site.api, "t", 5..6);
    assert_eq!(numbers(&told.take(json!({}))), [5]);
}

#[test]
fn a_group_can_start_at_the_beginning() {
    let (_site, group) = with_events(5);
    assert_eq!(numbers(&group.gather(&json!({"from": "earliest"}), 5)), [0, 1, 2, 3, 4]);
    group.nothing(json!({}));
}

#[test]
fn a_group_can_start_at_a_time() {
    let site = Site::start();
    let events: Vec<Value> = [1000, 2000, 3000, 2500, 4000]
        .iter()
        .zip(0..)
        .map(|(ts, n)| json!({"payload": {"n": n}, "ts": ts}))
        .collect();
    publish_all(&site.api, "t", &events);
    for (ts, expected) in [(0, vec![0, 1, 2, 3, 4]), (2000, vec![1, 2, 3, 4]), (2001, vec![2, 3, 4])] {
        let group = Group::of(&site, "t", &format!("g{ts}"));
        let got = group.gather(&json!({"from": "ts", "ts": ts}), expected.len());
        assert_eq!(numbers(&got), expected);
    }
    let later = Group::of(&site, "t", "later");
    later.nothing(json!({"from": "ts", "ts": now() + 60_000}));
}

#[test]
fn a_group_can_start_after_an_event() {
    let site = Site::start();
    let published = publish(&site.api, "t", 0..5);
    let group = Group::of(&site, "t", "g");
    let got = group.gather(&json!({"from": "afterId", "afterId": published[1]["id"]}), 3);
    assert_eq!(numbers(&got), [2, 3, 4]);
    let last = Group::of(&site, "t", "last");
    last.nothing(json!({"from": "afterId", "afterId": published[4]["id"]}));
    publish(&site.api, "t", 5..6);
    assert_eq!(numbers(&last.take(json!({}))), [5]);
}

#[test]
fn where_a_group_starts_is_ignored_once_it_exists() {
    let (_site, group) = with_events(4);
    let first = group.one(json!({"from": "earliest"}));
    group.ack(&[first]);
    for start in
        [json!({"from": "latest"}), json!({"from": "earliest"}), json!({"from": "ts", "ts": now() + 9999})]
    {
        let mut body = start.clone();
        body["max"] = json!(1);
        let got = group.take(body);
        assert_eq!(numbers(&got).len(), 1, "{start}");
        group.ack(&got);
    }
    group.is_done();
    // Nor does an id that is not there matter now.
    group.nothing(json!({"from": "afterId", "afterId": "0198c0de-0000-7000-8000-000000000001"}));
}

#[test]
fn options_are_fixed_when_the_group_is_made_by_a_pull() {
    let (_site, group) = with_events(2);
    let options = json!({
        "from": "earliest", "mode": "shared", "ordering": "none", "ackTimeoutMs": 20000, "maxAttempts": 7,
        "backoffMs": 50, "filter": "event.payload.n >= 0", "normalize": false, "ackWindow": 500,
        "memberTtlMs": 9000,
    });
    group.gather(&options, 2);
    // The same again, a part of it, and none of it are all fine.
    group.pull(&options);
    group.pull(&json!({"ordering": "none", "maxAttempts": 7}));
    group.pull(&json!({}));
    for other in [
        json!({"mode": "partitioned"}),
        json!({"ordering": "key"}),
        json!({"ackTimeoutMs": 20001}),
        json!({"maxAttempts": 8}),
        json!({"backoffMs": 51}),
        json!({"filter": "event.payload.n >= 1"}),
        json!({"normalize": true}),
        json!({"ackWindow": 501}),
        json!({"memberTtlMs": 9001}),
    ] {
        group.post("/pull", &other).fails(409, "group_options");
        group.api.put(&group.path(""), &other.to_string()).fails(409, "group_options");
    }
    let told = group.status()["options"].clone();
    for name in ["mode", "ordering", "ackTimeoutMs", "maxAttempts", "backoffMs", "filter", "ackWindow"] {
        assert_eq!(told[name], options[name], "{name}");
    }
}

#[test]
fn put_makes_a_group_with_its_options() {
    let (_site, group) = with_events(3);
    group.make(&json!({"from": "earliest", "ordering": "none", "maxAttempts": 3}));
    group.make(&json!({"ordering": "none", "maxAttempts": 3}));
    group.make(&json!({}));
    group.api.put(&group.path(""), r#"{"maxAttempts":4}"#).fails(409, "group_options");
    group.post("/pull", &json!({"maxAttempts": 5})).fails(409, "group_options");
    let got = group.gather(&json!({}), 3);
    assert_eq!(numbers(&got), [0, 1, 2]);
    assert!(got.iter().all(|one| one["ctx"]["maxAttempts"] == 3), "{got:?}");
}

#[test]
fn options_that_were_not_given_have_their_defaults() {
    let (_site, group) = with_events(1);
    let got = group.one(json!({"from": "earliest"}));
    assert_eq!(got["ctx"]["maxAttempts"], 5);
    let left = got["ctx"]["ack_deadline_ms"].as_u64().unwrap();
    assert!((15_000..=30_000).contains(&left), "{left}");
    let options = group.status()["options"].clone();
    assert_eq!((&options["mode"], &options["ordering"]), (&json!("shared"), &json!("key")));
    assert_eq!((&options["ackTimeoutMs"], &options["maxAttempts"]), (&json!(30_000), &json!(5)));
    assert_eq!((&options["backoffMs"], &options["ackWindow"]), (&json!(100), &json!(100_000)));
    assert!(options["filter"].is_null(), "{options}");
    // What a default says can also be said.
    group.pull(&json!({"mode": "shared", "ordering": "key", "ackTimeoutMs": 30_000, "maxAttempts": 5,
        "backoffMs": 100, "normalize": false, "ackWindow": 100_000, "memberTtlMs": 15_000,
        "from": "latest", "ts": null, "afterId": null}));
}

#[test]
fn what_belongs_to_a_member_may_differ_from_pull_to_pull() {
    let (_site, group) = with_events(9);
    assert_eq!(group.take(json!({"from": "earliest", "batchSize": 2, "maxInFlight": 50})).len(), 2);
    assert_eq!(group.take(json!({"batchSize": 3, "maxInFlight": 60})).len(), 3);
    assert_eq!(group.take(json!({"batchSize": 4, "maxInFlight": 70, "member": "b"})).len(), 4);
}

#[test]
fn the_first_pull_makes_the_topic() {
    let site = Site::start();
    let group = Group::of(&site, "new.topic", "g");
    site.api.get("/v1/topics/new.topic").fails(404, "not_found");
    group.nothing(json!({}));
    site.api.get("/v1/topics/new.topic").is(200);
    publish(&site.api, "new.topic", 0..2);
    assert_eq!(numbers(&group.gather(&json!({}), 2)), [0, 1]);
}

#[test]
fn without_auto_create_a_pull_makes_no_topic() {
    let site = Site::with_file("[topics]\nauto_create = false\n");
    let group = Group::of(&site, "t", "g");
    group.post("/pull", &json!({})).fails(404, "not_found");
    site.api.get("/v1/topics/t").fails(404, "not_found");
    site.api.make("t", 1);
    group.nothing(json!({}));
}

#[test]
fn a_pull_gets_the_bytes_of_the_event_as_they_were_published() {
    let site = Site::start();
    let group = Group::of(&site, "t", "g");
    group.nothing(json!({}));
    let event = r#"{"payload":{"b":1.10,"a":12345678901234567890123,"c":"\u00e9"},"key":"k","ts":1000,"sid":"s","headers":{"x-a":"b"},"tags":["t"]}"#;
    site.api.events("t", event).is(201);
    let answer = group.post("/pull", &json!({"waitMs": LONG}));
    assert!(answer.text().contains(r#""payload":{"b":1.10,"a":12345678901234567890123,"c":"\u00e9"}"#));
    let read = site.api.page("t", "").is(200)["events"][0].clone();
    assert_eq!(answer.is(200)["deliveries"][0]["event"], read);
}

#[test]
fn a_pull_gets_as_many_as_it_asks_for() {
    let (_site, group) = with_events(150);
    assert_eq!(group.take(json!({"from": "earliest"})).len(), 100);
    assert_eq!(group.take(json!({"batchSize": 7})).len(), 7);
    assert_eq!(group.take(json!({"batchSize": 50, "max": 5})).len(), 5);
    assert_eq!(group.take(json!({"max": 1})).len(), 1);
    assert_eq!(group.take(json!({"max": 1000})).len(), 37);
}

#[test]
fn a_pull_without_wait_gets_what_is_there_at_once() {
    let (_site, group) = with_events(2);
    assert_eq!(numbers(&group.pull(&json!({"from": "earliest"}))), [0, 1]);
    let started = Instant::now();
    assert!(group.pull(&json!({})).is_empty());
    assert!(since(started) < 5000);
}

#[test]
fn a_pull_waits_as_long_as_it_was_told() {
    let site = Site::start();
    let group = Group::of(&site, "t", "g");
    group.begin();
    let started = Instant::now();
    assert!(group.pull(&json!({"waitMs": 400})).is_empty());
    let waited = since(started);
    assert!((390..5000).contains(&waited), "{waited}");
}

#[test]
fn a_waiting_pull_gets_an_event_as_soon_as_it_is_published() {
    let site = Site::start();
    let group = Group::of(&site, "t", "g");
    let waiting = {
        let group = group.clone();
        std::thread::spawn(move || (group.pull(&json!({"waitMs": 20_000})), Instant::now()))
    };
    // The group is there as soon as the pull has begun.
    eventually("the group is made", || site.api.get(&group.path("")).status == 200);
    publish(&site.api, "t", 0..1);
    let published = Instant::now();
    let (got, arrived) = waiting.join().unwrap();
    assert_eq!(numbers(&got), [0]);
    let late = arrived.saturating_duration_since(published).as_millis();
    assert!(late < 2000, "{late}");
}

#[test]
fn many_waiting_pulls_get_each_event_once() {
    let site = Site::start();
    let group = Group::of(&site, "t", "g");
    group.begin();
    let waiting: Vec<_> = (0..8)
        .map(|member| {
            let group = group.clone();
            std::thread::spawn(move || {
                group.pull(&json!({"waitMs": 2500, "max": 1, "member": format!("m{member}")}))
            })
        })
        .collect();
    for n in 0..8 {
        publish(&site.api, "t", n..n + 1);
    }
    let mut got: Vec<Value> = waiting.into_iter().flat_map(|pull| pull.join().unwrap()).collect();
    if got.len() < 8 {
        // A pull that began too late to wait for its own leaves it to the next one.
        got.extend(group.gather(&json!({}), 8 - got.len()));
    }
    assert_eq!(sorted_numbers(&got), (0..8).collect::<Vec<_>>());
    assert!(got.iter().all(|one| attempt(one) == 1), "{got:?}");
}

#[test]
fn members_share_what_there_is_and_groups_do_not() {
    let (site, group) = with_events(6);
    let mut all = group.take(json!({"from": "earliest", "member": "a", "max": 3}));
    all.extend(group.take(json!({"member": "b", "max": 10})));
    assert_eq!(sorted_numbers(&all), [0, 1, 2, 3, 4, 5]);
    let other = Group::of(&site, "t", "other");
    let got = other.gather(&json!({"from": "earliest"}), 6);
    // A token of one group is none of another.
    let foreign = json!({"ack": [lease(&got[0])]});
    let answer = group.post("/ack", &foreign);
    assert!(answer.status == 400 || answer.is(200)["results"][0]["ok"] == false, "{answer:?}");
    group.ack(&all);
    group.is_done();
    assert_eq!(other.partition(0)["lag"], 6);
    other.ack(&got);
}

#[test]
fn no_member_holds_more_than_it_may() {
    let (_site, group) = with_events(10);
    let a = json!({"from": "earliest", "member": "a", "maxInFlight": 3, "max": 10});
    let held = group.gather(&a, 3);
    group.nothing(a.clone());
    group.ack(&held[1..2]);
    assert_eq!(group.gather(&a, 1).len(), 1);
    group.nothing(a.clone());
    // A nack makes room too, and what comes may be the same event.
    group.nack(&held[0]);
    assert_eq!(group.gather(&a, 1).len(), 1);
    // Another member has its own allowance.
    assert_eq!(group.gather(&json!({"member": "b", "maxInFlight": 100}), 6).len(), 6);
}

#[test]
fn a_pull_that_waits_for_room_goes_on_when_there_is_some() {
    let (_site, group) = with_events(3);
    let body = json!({"from": "earliest", "maxInFlight": 1, "waitMs": 20_000});
    let first = group.one(body.clone());
    let waiting = {
        let group = group.clone();
        std::thread::spawn(move || group.pull(&body))
    };
    group.ack(&[first]);
    let started = Instant::now();
    assert_eq!(numbers(&waiting.join().unwrap()), [1]);
    assert!(since(started) < 5000);
}

#[test]
fn pulls_without_a_name_are_one_member() {
    let (_site, group) = with_events(6);
    let body = json!({"from": "earliest", "maxInFlight": 4, "max": 2});
    assert_eq!(group.gather(&body, 2).len(), 2);
    assert_eq!(group.gather(&body, 2).len(), 2);
    group.nothing(body.clone());
    assert_eq!(group.gather(&json!({"member": "named"}), 2).len(), 2);
    assert_eq!(group.status()["members"].as_array().unwrap().len(), 2);
}

#[test]
fn what_the_filter_drops_is_settled_as_it_is_passed() {
    let (site, group) = with_events(10);
    let body = json!({"from": "earliest", "filter": "event.payload.n % 2 == 1"});
    let got = group.gather(&body, 5);
    assert_eq!(numbers(&got), [1, 3, 5, 7, 9]);
    // Nothing but the first odd one stands in the way.
    assert_eq!(group.partition(0)["next"], 1);
    group.ack(&got);
    group.is_done();
    assert_eq!(group.partition(0)["next"], 10);
    // A tail that has nothing for the group does not hold it back either.
    for n in [10, 12, 14] {
        publish(&site.api, "t", n..n + 1);
    }
    eventually("the dropped ones are passed", || {
        group.nothing(json!({}));
        group.partition(0)["next"] == 13
    });
    assert_eq!(group.partition(0)["lag"], 0);
}

#[test]
fn an_event_on_which_the_filter_fails_is_dropped() {
    let site = Site::start();
    let events =
        [json!({"payload": {"n": 0}}), json!({"payload": 7}), json!({"payload": {"n": 1, "cpu": 90}})];
    publish_all(&site.api, "t", &events);
    let group = Group::of(&site, "t", "g");
    let got = group.gather(&json!({"from": "earliest", "filter": "event.payload.cpu > 80"}), 1);
    assert_eq!(numbers(&got), [1]);
    group.ack(&got);
    group.is_done();
}

#[test]
fn a_cursor_can_be_read() {
    let (site, group) = with_events(4);
    let got = group.gather(&json!({"from": "earliest"}), 4);
    group.ack(&got[..2]);
    let cursor = site.api.get(&group.path("/cursor")).is(200);
    assert_eq!((&cursor["topic"], &cursor["group"]), (&json!("t"), &json!("g")));
    let place = &cursor["partitions"][0];
    assert_eq!((&place["partition"], &place["next"]), (&json!(0), &json!(2)));
    assert_eq!(place["last_id"], got[1]["event"]["id"]);
}

#[test]
fn a_cursor_can_be_set_to_each_kind_of_place() {
    let site = Site::start();
    let events: Vec<Value> = (0..5).map(|n| json!({"payload": {"n": n}, "ts": 1000 + n})).collect();
    let published = publish_all(&site.api, "t", &events);
    let group = Group::of(&site, "t", "g");
    group.consume(&json!({"from": "earliest"}), 5);
    for (cursor, expected) in [
        (json!({"from": "earliest"}), vec![0, 1, 2, 3, 4]),
        (json!({"from": "ts", "ts": 1003}), vec![3, 4]),
        (json!({"from": "afterId", "afterId": published[0]["id"]}), vec![1, 2, 3, 4]),
        (json!({"from": "offset", "offset": 2}), vec![2, 3, 4]),
        (json!({"from": "offset", "offset": 4, "partition": 0}), vec![4]),
        (json!({"from": "earliest", "partition": 0}), vec![0, 1, 2, 3, 4]),
    ] {
        group.move_to(&cursor);
        assert_eq!(group.partition(0)["next"], expected[0], "{cursor}");
        let got = group.consume(&json!({}), expected.len());
        assert_eq!(numbers(&got), expected, "{cursor}");
        group.nothing(json!({}));
    }
    group.move_to(&json!({"from": "earliest"}));
    group.move_to(&json!({"from": "latest"}));
    group.nothing(json!({}));
    assert_eq!(group.partition(0)["next"], 5);
    publish(&site.api, "t", 5..6);
    assert_eq!(numbers(&group.take(json!({}))), [5]);
}

#[test]
fn setting_the_cursor_voids_open_leases() {
    let (_site, group) = with_events(3);
    let old = group.gather(&json!({"from": "earliest"}), 3);
    group.move_to(&json!({"from": "offset", "offset": 1}));
    assert_eq!(group.accepted(&acks(&old)), [false, false, false]);
    assert_eq!(group.partition(0)["in_flight"], 0);
    let new = group.gather(&json!({}), 2);
    assert_eq!(numbers(&new), [1, 2]);
    assert_eq!(group.accepted(&acks(&old)), [false, false, false]);
    group.ack(&new);
    group.is_done();
}

#[test]
fn on_several_partitions_a_place_needs_its_partition() {
    let site = Site::start();
    site.api.make("t", 3);
    let published = publish_spread(&site.api, "t", 3, 3);
    let group = Group::of(&site, "t", "g");
    group.consume(&json!({"from": "earliest"}), 9);
    group.set_cursor(&json!({"from": "offset", "offset": 1})).fails(400, "bad_request");
    let in_second: Vec<&Value> = published.iter().filter(|one| one["partition"] == 1).collect();
    let id = &in_second[0]["id"];
    group.set_cursor(&json!({"from": "afterId", "afterId": id})).fails(400, "bad_request");
    group.nothing(json!({}));
    group.move_to(&json!({"from": "offset", "offset": 2, "partition": 2}));
    let got = group.consume(&json!({}), 1);
    assert_eq!((&got[0]["event"]["partition"], &got[0]["event"]["offset"]), (&json!(2), &json!(2)));
    group.move_to(&json!({"from": "afterId", "afterId": id, "partition": 1}));
    let got = group.consume(&json!({}), 2);
    assert!(got.iter().all(|one| one["event"]["partition"] == 1 && one["event"]["offset"] != 0), "{got:?}");
    group.set_cursor(&json!({"from": "offset", "offset": 0, "partition": 3})).fails_as(&[400, 404]);
    group.move_to(&json!({"from": "earliest"}));
    group.consume(&json!({}), 9);
}

#[test]
fn skip_settles_one_event_that_is_stuck() {
    let site = Site::start();
    publish_keys(&site.api, "t", 0, &["a", "a", "b"]);
    let group = Group::of(&site, "t", "g");
    let stuck = group.one(json!({"from": "earliest"}));
    group.nack_for(&stuck, 3_600_000);
    let other = group.gather(&json!({}), 1);
    assert_eq!(numbers(&other), [2]);
    group.skip(0, 0);
    // Whoever waited for it goes on.
    let freed = group.gather(&json!({}), 1);
    assert_eq!(numbers(&freed), [1]);
    assert_eq!(group.partition(0)["next"], 1);
    group.ack(&[other, freed].concat());
    group.is_done();
    group.move_to(&json!({"from": "earliest"}));
    // Also one that nobody has seen yet, or that someone has in hand.
    group.skip(0, 2);
    let held = group.one(json!({}));
    group.skip(0, 0);
    let next = group.gather(&json!({}), 1);
    assert_eq!((number(&held), number(&next[0])), (0, 1));
    group.ack(&next);
    group.is_done();
    group.nothing(json!({}));
    // Once more changes nothing, whatever it is called.
    let again = group.post("/skip", &json!({"partition": 0, "offset": 0}));
    assert!(again.status < 500, "{again:?}");
    for nowhere in [json!({"partition": 0, "offset": 99}), json!({"partition": 7, "offset": 0})] {
        group.post("/skip", &nowhere).fails_as(&[400, 404, 409]);
    }
    assert_eq!(group.partition(0)["next"], 3);
}

#[test]
fn a_deleted_group_is_forgotten() {
    let (site, group) = with_events(3);
    let old = group.gather(&json!({"from": "earliest", "maxAttempts": 3}), 3);
    group.ack(&old[..1]);
    group.delete();
    site.api.get(&group.path("")).fails(404, "not_found");
    group.post("/ack", &acks(&old[1..])).fails(404, "not_found");
    site.api.delete(&group.path("")).fails(404, "not_found");
    assert!(!site.api.get("/v1/topics/t/groups").text().contains("\"g\""));
    // The name is free for another with other options.
    let new = group.gather(&json!({"from": "earliest", "maxAttempts": 9}), 3);
    assert_eq!(numbers(&new), [0, 1, 2]);
    assert!(new.iter().all(|one| attempt(one) == 1), "{new:?}");
    let results = group.post("/ack", &acks(&old[1..])).is(200);
    assert!(results["results"].as_array().unwrap().iter().all(|one| one["ok"] == false), "{results}");
    group.ack(&new);
}

#[test]
fn a_pull_that_waits_on_a_group_that_is_deleted_ends() {
    let site = Site::start();
    let group = Group::of(&site, "t", "g");
    let waiting = {
        let group = group.clone();
        std::thread::spawn(move || group.post("/pull", &json!({"waitMs": 2000})))
    };
    eventually("the group is made", || site.api.get(&group.path("")).status == 200);
    group.delete();
    let answer = waiting.join().unwrap();
    assert!(matches!(answer.status, 200 | 404 | 410), "{answer:?}");
    site.api.get(&group.path("")).fails(404, "not_found");
}

#[test]
fn groups_go_with_their_topic() {
    let (site, group) = with_events(3);
    let old = group.gather(&json!({"from": "earliest"}), 3);
    assert!(matches!(site.api.delete("/v1/topics/t").status, 200 | 204));
    site.api.get(&group.path("")).fails(404, "not_found");
    site.api.get("/v1/topics/t/groups").fails(404, "not_found");
    publish(&site.api, "t", 10..12);
    site.api.get(&group.path("")).fails(404, "not_found");
    assert!(!site.api.get("/v1/topics/t/groups").text().contains("\"g\""));
    group.post("/ack", &acks(&old)).fails(404, "not_found");
    let new = group.gather(&json!({"from": "earliest"}), 2);
    assert_eq!(numbers(&new), [10, 11]);
    group.ack(&new);
}

impl Group {
    /// Makes the topic and the group, which starts at the end of nothing.
    fn begin(&self) {
        assert!(self.pull(&json!({})).is_empty());
    }
}
