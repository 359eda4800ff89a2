//! What waits for what: the three orderings, the window, and topics that grow.

use crate::contract_support::Site;
use crate::groups_support::{
    Group, LONG, acks, attempt, eventually, number, numbered, numbers, publish, publish_all, publish_keys,
    publish_spread, since, sorted_numbers,
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// The key of a delivery.
fn key(delivery: &Value) -> &str {
    delivery["event"]["key"].as_str().unwrap()
}

fn partition(delivery: &Value) -> u64 {
    delivery["event"]["partition"].as_u64().unwrap()
}

fn offset(delivery: &Value) -> u64 {
    delivery["event"]["offset"].as_u64().unwrap()
}

/// Checks that the numbers of each key only go up.
#[track_caller]
fn in_order_by_key(deliveries: &[Value]) {
    let mut last: BTreeMap<&str, u64> = BTreeMap::new();
    for one in deliveries {
        let before = last.insert(key(one), number(one));
        assert!(before.is_none_or(|before| before < number(one)), "{} of {}", number(one), key(one));
    }
}

#[test]
fn only_one_event_of_a_key_is_in_flight() {
    let site = Site::start();
    publish_keys(&site.api, "t", 0, &["a", "a", "b", "a", "c", "b"]);
    let group = Group::of(&site, "t", "g");
    let first = group.gather(&json!({"from": "earliest", "member": "x"}), 3);
    assert_eq!(sorted_numbers(&first), [0, 2, 4]);
    // It does not matter who asks.
    group.nothing(json!({"member": "x"}));
    group.nothing(json!({"member": "y"}));
    group.ack(&[numbered(&first, 0).clone()]);
    assert_eq!(numbers(&group.gather(&json!({"member": "y"}), 1)), [1]);
    group.ack(&[numbered(&first, 2).clone()]);
    assert_eq!(numbers(&group.gather(&json!({"member": "y"}), 1)), [5]);
    group.nothing(json!({"member": "x"}));
}

#[test]
fn events_without_a_key_wait_for_nobody() {
    let site = Site::start();
    publish_all(
        &site.api,
        "t",
        &[
            json!({"payload": {"n": 0}}),
            json!({"payload": {"n": 1}, "key": "a"}),
            json!({"payload": {"n": 2}}),
            json!({"payload": {"n": 3}, "key": "a"}),
            json!({"payload": {"n": 4}}),
        ],
    );
    let group = Group::of(&site, "t", "g");
    let got = group.gather(&json!({"from": "earliest"}), 4);
    assert_eq!(sorted_numbers(&got), [0, 1, 2, 4]);
    group.nothing(json!({}));
}

#[test]
fn later_events_of_a_key_wait_for_a_retry_and_other_keys_do_not() {
    let site = Site::start();
    publish_keys(&site.api, "t", 0, &["a", "a", "b", "b"]);
    let group = Group::of(&site, "t", "g");
    let first = group.gather(&json!({"from": "earliest"}), 2);
    let started = Instant::now();
    group.nack_for(numbered(&first, 0), 800);
    group.ack(&[numbered(&first, 2).clone()]);
    let other = group.gather(&json!({}), 1);
    assert_eq!(numbers(&other), [3]);
    let retry = group.gather(&json!({}), 1);
    assert!(since(started) >= 790, "{}", since(started));
    assert_eq!((number(&retry[0]), attempt(&retry[0])), (0, 2));
    group.nothing(json!({}));
    group.ack(&retry);
    let last = group.gather(&json!({}), 1);
    assert_eq!((number(&last[0]), attempt(&last[0])), (1, 1));
    group.ack(&[last, other].concat());
    group.is_done();
}

#[test]
fn later_events_of_a_key_wait_for_one_that_expired() {
    let site = Site::start();
    publish_keys(&site.api, "t", 0, &["a", "a"]);
    let group = Group::of(&site, "t", "g");
    let options = json!({"from": "earliest", "ackTimeoutMs": 600});
    let first = group.one(options.clone());
    let again = group.gather(&options, 1);
    assert_eq!((number(&first), number(&again[0]), attempt(&again[0])), (0, 0, 2));
}

#[test]
fn one_hot_key_does_not_hold_up_the_others() {
    let site = Site::start();
    let mut keys = vec!["hot"; 500];
    keys.extend(["a", "b", "c"]);
    publish_keys(&site.api, "t", 0, &keys);
    let group = Group::of(&site, "t", "g");
    let got = group.gather(&json!({"from": "earliest", "max": 50}), 4);
    let seen: BTreeSet<&str> = got.iter().map(key).collect();
    assert_eq!(seen, BTreeSet::from(["a", "b", "c", "hot"]));
    group.ack(&got);
    let next = group.gather(&json!({"max": 50}), 1);
    assert_eq!(numbers(&next), [1]);
    assert!(!group.partition(0)["waiting"].is_null());
}

#[test]
fn keys_stay_in_order_under_many_members_and_failures() {
    const EVENTS: u64 = 120;
    let site = Site::start();
    site.api.make("t", 3);
    let keys: Vec<String> = (0..EVENTS).map(|n| format!("k{}", n * 7 % 9)).collect();
    publish_keys(&site.api, "t", 0, &keys.iter().map(String::as_str).collect::<Vec<_>>());
    let group = Group::of(&site, "t", "g");
    group.make(&json!({"from": "earliest", "backoffMs": 1, "maxAttempts": 50}));
    let done = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let (group, done) = (&group, &done);
            scope.spawn(move || {
                while done.lock().unwrap().len() < usize::try_from(EVENTS).unwrap() {
                    for one in group.pull(&json!({"member": format!("m{worker}"), "max": 4, "waitMs": 100})) {
                        if attempt(&one) == 1 && number(&one).is_multiple_of(3) {
                            group.nack(&one);
                        } else {
                            // Taken down before the ack, as the next of the key may come right after it.
                            done.lock().unwrap().push(one.clone());
                            group.ack(&[one]);
                        }
                    }
                }
            });
        }
    });
    let done = done.into_inner().unwrap();
    assert_eq!(sorted_numbers(&done), (0..EVENTS).collect::<Vec<_>>());
    in_order_by_key(&done);
    group.is_done();
}

#[test]
fn without_order_nothing_waits() {
    let site = Site::start();
    publish_keys(&site.api, "t", 0, &["a", "a", "a", "b"]);
    let group = Group::of(&site, "t", "g");
    let got = group.gather(&json!({"from": "earliest", "ordering": "none"}), 4);
    assert_eq!(sorted_numbers(&got), [0, 1, 2, 3]);
    group.nack_for(numbered(&got, 0), 60_000);
    publish_keys(&site.api, "t", 4, &["a"]);
    assert_eq!(numbers(&group.gather(&json!({}), 1)), [4]);
}

#[test]
fn by_partition_they_come_strictly_one_after_another() {
    let site = Site::start();
    site.api.make("t", 2);
    publish_spread(&site.api, "t", 2, 3);
    let group = Group::of(&site, "t", "g");
    group.make(&json!({"from": "earliest", "ordering": "partition", "backoffMs": 1}));
    for round in 0..3 {
        let got = group.gather(&json!({}), 2);
        let places: BTreeSet<(u64, u64)> = got.iter().map(|one| (partition(one), offset(one))).collect();
        assert_eq!(places, BTreeSet::from([(0, round), (1, round)]));
        group.nothing(json!({"member": "other"}));
        // A failure does not let the next one pass.
        group.nack(&got[0]);
        let again = group.gather(&json!({}), 1);
        assert_eq!((offset(&again[0]), attempt(&again[0])), (round, 2));
        assert_eq!(partition(&again[0]), partition(&got[0]));
        group.nothing(json!({}));
        group.ack(&[again[0].clone(), got[1].clone()]);
    }
    group.is_done();
}

#[test]
fn by_partition_the_others_go_on_while_one_waits() {
    let site = Site::start();
    site.api.make("t", 2);
    publish_spread(&site.api, "t", 2, 3);
    let group = Group::of(&site, "t", "g");
    let first = group.gather(&json!({"from": "earliest", "ordering": "partition"}), 2);
    let (stuck, free) = if partition(&first[0]) == 0 { (0, 1) } else { (1, 0) };
    group.nack_for(&first[stuck], 60_000);
    group.ack(&first[free..=free]);
    let rest = group.consume(&json!({}), 2);
    assert_eq!(rest.iter().map(|one| (partition(one), offset(one))).collect::<Vec<_>>(), [(1, 1), (1, 2)]);
    group.nothing(json!({}));
    assert!(!group.partition(0)["waiting"].is_null());
}

#[test]
fn a_group_never_runs_further_ahead_than_its_window() {
    let site = Site::start();
    publish(&site.api, "t", 0..20);
    let group = Group::of(&site, "t", "g");
    let options = json!({"from": "earliest", "ordering": "none", "ackWindow": 5});
    let mut held = group.take(options.clone());
    held.extend(group.pull(&options));
    // Five ahead of offset 0 may be taken to have the fifth in it, or not.
    assert!(matches!(held.len(), 5 | 6), "{held:?}");
    let oldest = numbered(&held, 0).clone();
    let others: Vec<Value> = held.iter().filter(|one| number(one) != 0).cloned().collect();
    group.ack(&others);
    group.nothing(json!({}));
    let place = group.partition(0);
    assert!(!place["waiting"].is_null(), "{place}");
    assert_eq!((&place["next"], &place["in_flight"]), (&json!(0), &json!(1)));
    // A pull that waits goes on as soon as the oldest is settled.
    let waiting = {
        let group = group.clone();
        std::thread::spawn(move || group.pull(&json!({"waitMs": LONG})))
    };
    group.ack(&[oldest]);
    let started = Instant::now();
    let mut got = waiting.join().unwrap();
    assert!(since(started) < 5000);
    group.ack(&got);
    let done = 1 + others.len() + got.len();
    got.extend(group.consume(&json!({}), 20 - done));
    let all = [held, got].concat();
    assert_eq!(sorted_numbers(&all), (0..20).collect::<Vec<_>>());
    group.is_done();
    assert!(group.partition(0)["waiting"].is_null());
}

#[test]
fn the_window_is_each_partitions_own() {
    let site = Site::start();
    site.api.make("t", 2);
    publish_spread(&site.api, "t", 2, 10);
    let group = Group::of(&site, "t", "g");
    let options = json!({"from": "earliest", "ordering": "none", "ackWindow": 3, "max": 100});
    let mut stuck = None;
    let mut free = 0;
    while free < 10 {
        for one in group.take(options.clone()) {
            if partition(&one) == 1 {
                free += 1;
                group.ack(&[one]);
            } else if offset(&one) == 0 {
                stuck = Some(one);
            } else {
                assert!(offset(&one) <= 3, "{one}");
                group.ack(&[one]);
            }
        }
    }
    assert_eq!(group.partition(1)["next"], 10);
    assert!(group.partition(1)["waiting"].is_null());
    assert!(!group.partition(0)["waiting"].is_null());
    group.ack(&[stuck.unwrap()]);
    eventually("the rest comes", || {
        group.ack(&group.pull(&json!({"waitMs": 500})));
        group.partition(0)["next"] == 10
    });
}

#[test]
fn a_delayed_retry_does_not_make_room_in_the_window() {
    let site = Site::start();
    publish(&site.api, "t", 0..12);
    let group = Group::of(&site, "t", "g");
    let options = json!({"from": "earliest", "ackWindow": 4});
    let first = group.one(options.clone());
    group.nack_for(&first, 60_000);
    let mut passed = 0;
    loop {
        let got = group.pull(&json!({"waitMs": 150}));
        if got.is_empty() {
            break;
        }
        passed += got.len();
        group.ack(&got);
    }
    assert!(matches!(passed, 3 | 4), "{passed}");
    assert!(!group.partition(0)["waiting"].is_null());
    group.skip(0, 0);
    group.consume(&json!({}), 11 - passed);
    group.is_done();
}

/// Keys of which a topic of four partitions has some in each.
const KEYS: &[&str] = &["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p"];

#[test]
fn a_new_partition_is_read_only_after_what_the_old_ones_held() {
    let site = Site::start();
    publish_keys(&site.api, "t", 0, KEYS);
    let group = Group::of(&site, "t", "g");
    group.make(&json!({"from": "earliest"}));
    site.api.make("t", 4);
    let published = publish_keys(&site.api, "t", 100, KEYS);
    assert!(published.iter().any(|one| one["partition"] != 0));
    let old = group.gather(&json!({}), KEYS.len());
    assert!(old.iter().all(|one| number(one) < 100 && partition(one) == 0), "{old:?}");
    // Even with only one of them left, no new partition is read.
    group.ack(&old[1..]);
    let mut later = Vec::new();
    for _ in 0..2 {
        later.extend(group.pull(&json!({"waitMs": 150})));
    }
    assert!(later.iter().all(|one| partition(one) == 0), "{later:?}");
    group.ack(&old[..1]);
    let mut rest = group.gather(&json!({}), KEYS.len() - later.len());
    assert!(rest.iter().any(|one| partition(one) != 0), "{rest:?}");
    rest.extend(later);
    assert_eq!(sorted_numbers(&rest), (100..100 + u64::try_from(KEYS.len()).unwrap()).collect::<Vec<_>>());
    group.ack(&rest);
    group.is_done();
}

#[test]
fn without_order_too_a_new_partition_waits_for_the_old_ones() {
    let site = Site::start();
    publish_keys(&site.api, "t", 0, KEYS);
    let group = Group::of(&site, "t", "g");
    group.make(&json!({"from": "earliest", "ordering": "none"}));
    site.api.make("t", 4);
    publish_keys(&site.api, "t", 100, KEYS);
    let mut got = Vec::new();
    loop {
        let more = group.pull(&json!({"waitMs": 150}));
        if more.is_empty() {
            break;
        }
        got.extend(more);
    }
    assert!(got.iter().all(|one| partition(one) == 0), "{got:?}");
    group.ack(&got);
    group.consume(&json!({}), 2 * KEYS.len() - got.len());
    group.is_done();
}

#[test]
fn order_by_key_survives_growth_after_growth() {
    let site = Site::start();
    let early = Group::of(&site, "t", "early");
    publish_keys(&site.api, "t", 0, KEYS);
    early.make(&json!({"from": "earliest"}));
    for (partitions, first) in [(2, 100), (5, 200), (8, 300)] {
        site.api.make("t", partitions);
        publish_keys(&site.api, "t", first, KEYS);
        publish_keys(&site.api, "t", first + 50, KEYS);
    }
    let count = 7 * KEYS.len();
    in_order_by_key(&early.consume(&json!({"max": 5}), count));
    early.is_done();
    // It also holds for a group that is made afterwards and reads it all.
    let late = Group::of(&site, "t", "late");
    in_order_by_key(&late.consume(&json!({"from": "earliest", "max": 5}), count));
    late.is_done();
}

#[test]
fn a_group_that_has_passed_the_old_ones_reads_a_new_partition_at_once() {
    let site = Site::start();
    publish_keys(&site.api, "t", 0, KEYS);
    let group = Group::of(&site, "t", "g");
    group.consume(&json!({"from": "earliest"}), KEYS.len());
    site.api.make("t", 3);
    let published = publish_all(
        &site.api,
        "t",
        &[json!({"payload": {"n": 100}, "partition": 2}), json!({"payload": {"n": 101}, "partition": 1})],
    );
    assert_eq!(published.len(), 2);
    assert_eq!(sorted_numbers(&group.gather(&json!({}), 2)), [100, 101]);
    // So does one that starts at the end.
    let latest = Group::of(&site, "t", "latest");
    latest.nothing(json!({}));
    publish_all(&site.api, "t", &[json!({"payload": {"n": 102}, "partition": 2})]);
    assert_eq!(numbers(&latest.take(json!({}))), [102]);
}

#[test]
fn a_pull_that_waits_while_the_topic_grows_gets_what_comes_to_a_new_partition() {
    let site = Site::start();
    let group = Group::of(&site, "t", "g");
    assert!(group.pull(&json!({})).is_empty());
    let waiting = {
        let group = group.clone();
        std::thread::spawn(move || group.pull(&json!({"waitMs": LONG})))
    };
    site.api.make("t", 3);
    publish_all(&site.api, "t", &[json!({"payload": {"n": 1}, "partition": 2})]);
    let got = waiting.join().unwrap();
    assert_eq!(numbers(&got), [1]);
    assert_eq!(group.accepted(&acks(&got)), [true]);
    assert_eq!(group.status()["partitions"].as_array().unwrap().len(), 3);
}
