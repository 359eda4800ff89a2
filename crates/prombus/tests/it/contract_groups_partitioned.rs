//! Groups in which each partition has one member: joining, leaving, moving and fencing.

use crate::contract_support::Site;
use crate::groups_support::{
    Group, LONG, accepted_by_partition, acks, attempt, eventually, lease, nack, publish_all, publish_spread,
    sorted_numbers,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// So many that chance leaves no member without one.
const PARTITIONS: u32 = 32;

/// The same, for what is counted.
const ALL: usize = 32;

/// A topic of many partitions with so many events in each, and a group of it.
fn partitioned(each: u64, options: Value) -> (Site, Group) {
    let site = Site::start();
    site.api.make("t", PARTITIONS);
    if each > 0 {
        publish_spread(&site.api, "t", u64::from(PARTITIONS), each);
    }
    let group = Group::of(&site, "t", "g");
    let mut options = options;
    options["from"] = json!("earliest");
    options["mode"] = json!("partitioned");
    group.make(&options);
    (site, group)
}

/// A sign of life, on a topic that has nothing to give.
fn beat(group: &Group, member: &str) -> Vec<Value> {
    group.pull(&json!({"member": member}))
}

/// Lets these members live until each partition is owned by one of them, and each of them owns some.
#[track_caller]
fn settled(group: &Group, members: &[&str]) -> Vec<String> {
    let mut owners = Vec::new();
    eventually("all partitions are owned by all members", || {
        for member in members {
            beat(group, member);
        }
        owners = group.owners().iter().map(|owner| owner.as_str().unwrap_or("").to_owned()).collect();
        let now: BTreeSet<&str> = owners.iter().map(String::as_str).collect();
        now == members.iter().copied().collect()
    });
    owners
}

fn partition(delivery: &Value) -> usize {
    usize::try_from(delivery["event"]["partition"].as_u64().unwrap()).unwrap()
}

#[test]
fn one_member_owns_everything() {
    let (_site, group) = partitioned(2, json!({}));
    let got = group.gather(&json!({"member": "a"}), 2 * ALL);
    assert_eq!(sorted_numbers(&got), (0..64).collect::<Vec<_>>());
    assert_eq!(group.owners(), vec![json!("a"); ALL]);
    group.ack(&got);
    group.is_done();
}

#[test]
fn each_partition_has_one_owner_and_only_it_gets_the_events() {
    let (site, group) = partitioned(0, json!({}));
    let owners = settled(&group, &["a", "b", "c"]);
    publish_spread(&site.api, "t", u64::from(PARTITIONS), 3);
    for member in ["a", "b", "c"] {
        let own = owners.iter().filter(|owner| *owner == member).count();
        let got = group.gather(&json!({"member": member}), own * 3);
        assert!(got.iter().all(|one| owners[partition(one)] == member), "{got:?}");
        group.nothing(json!({"member": member}));
        group.ack(&got);
    }
    group.is_done();
    let members = group.status()["members"].as_array().unwrap().clone();
    assert_eq!(members.len(), 3, "{members:?}");
}

#[test]
fn a_join_moves_partitions_only_to_the_one_that_joins() {
    let (_site, group) = partitioned(0, json!({}));
    let mut before = settled(&group, &["a"]);
    let mut members = vec!["a"];
    for newcomer in ["b", "c", "d"] {
        members.push(newcomer);
        let after = settled(&group, &members);
        let moved: Vec<&String> =
            before.iter().zip(&after).filter(|(old, new)| old != new).map(|(_, new)| new).collect();
        assert!(moved.iter().all(|owner| *owner == newcomer), "{before:?} {after:?}");
        assert!(!moved.is_empty() && moved.len() < before.len(), "{before:?} {after:?}");
        before = after;
    }
    // Nothing moves while nobody comes or goes.
    assert_eq!(settled(&group, &members), before);
}

#[test]
fn a_silent_member_is_dropped_and_only_its_partitions_move() {
    let (_site, group) = partitioned(0, json!({"memberTtlMs": 1500}));
    let before = settled(&group, &["a", "b", "c"]);
    let started = Instant::now();
    let after = settled(&group, &["a", "b"]);
    assert!(started.elapsed() >= Duration::from_millis(1000), "{:?}", started.elapsed());
    for (old, new) in before.iter().zip(&after) {
        assert!(old == new || old == "c", "{before:?} {after:?}");
    }
    assert!(!group.status()["members"].to_string().contains("\"c\""));
    // It may come back, and gets what it had.
    assert_eq!(settled(&group, &["a", "b", "c"]), before);
}

#[test]
fn the_time_after_which_a_member_is_dropped_is_an_option_of_the_group() {
    let (_site, group) = partitioned(0, json!({"memberTtlMs": 1500}));
    assert_eq!(group.status()["options"]["memberTtlMs"], 1500);
    group.post("/pull", &json!({"memberTtlMs": 1501, "member": "a"})).fails(409, "group_options");
    let usual = Group { name: "usual".to_owned(), ..group.clone() };
    usual.make(&json!({"mode": "partitioned"}));
    usual.pull(&json!({"memberTtlMs": 15_000, "member": "a"}));
}

#[test]
fn a_move_fences_the_old_owner_and_counts_no_attempt() {
    let (_site, group) = partitioned(1, json!({}));
    let held = group.gather(&json!({"member": "a"}), ALL);
    // Someone joins, and at once has what is now theirs.
    let mut theirs = Vec::new();
    eventually("b gets events", || {
        theirs = group.pull(&json!({"member": "b", "waitMs": 200}));
        !theirs.is_empty()
    });
    let owners = group.owners();
    let moved: BTreeSet<usize> = (0..ALL).filter(|partition| owners[*partition] == "b").collect();
    assert!(!moved.is_empty() && moved.len() < ALL, "{owners:?}");
    assert!(theirs.iter().all(|one| attempt(one) == 1 && moved.contains(&partition(one))), "{theirs:?}");
    // What a still owns it can settle, and nothing else.
    for (place, ok) in accepted_by_partition(&group, &held) {
        assert_eq!(ok, !moved.contains(&place), "{place} in {moved:?}");
    }
    let missing = moved.len() - theirs.len();
    theirs.extend(group.gather(&json!({"member": "b"}), missing));
    assert!(theirs.iter().all(|one| attempt(one) == 1), "{theirs:?}");
    group.ack(&theirs);
    group.is_done();
}

#[test]
fn a_fenced_owner_can_neither_nack_nor_extend() {
    let (_site, group) = partitioned(1, json!({}));
    let held = group.gather(&json!({"member": "a"}), ALL);
    settled_by_others(&group, "b");
    let owners = group.owners();
    let lost: Vec<&Value> = held.iter().filter(|one| owners[partition(one)] == "b").collect();
    assert!(!lost.is_empty());
    for one in lost {
        assert_eq!(group.accepted(&nack(one, &json!({}))), [false]);
        let extend = json!({"extend": [{"lease": lease(one), "extend_ms": 1000}]});
        assert_eq!(group.accepted(&extend), [false]);
        assert_eq!(group.accepted(&acks(std::slice::from_ref(one))), [false]);
    }
}

/// Lets a newcomer join without room for any event, until it owns something.
fn settled_by_others(group: &Group, newcomer: &str) {
    eventually("the newcomer owns something", || {
        group.pull(&json!({"member": newcomer, "max": 1, "maxInFlight": 1}));
        group.owners().iter().any(|owner| owner == newcomer)
    });
}

#[test]
fn the_new_owner_starts_at_the_cursor() {
    let (_site, group) = partitioned(3, json!({"ordering": "partition"}));
    // One of each partition is done, the second is in hand.
    let first = group.gather(&json!({"member": "a"}), ALL);
    group.ack(&first);
    let second = group.gather(&json!({"member": "a"}), ALL);
    assert!(second.iter().all(|one| one["event"]["offset"] == 1), "{second:?}");
    let got = group.take(json!({"member": "b"}));
    assert!(got.iter().all(|one| one["event"]["offset"] == 1 && attempt(one) == 1), "{got:?}");
}

#[test]
fn attempts_that_were_counted_before_a_move_stay_counted() {
    let (_site, group) = partitioned(1, json!({"backoffMs": 1}));
    let first = group.gather(&json!({"member": "a"}), ALL);
    for one in &first {
        group.nack(one);
    }
    let second = group.gather(&json!({"member": "a"}), ALL);
    assert!(second.iter().all(|one| attempt(one) == 2), "{second:?}");
    let moved = group.take(json!({"member": "b"}));
    assert!(moved.iter().all(|one| attempt(one) == 2), "{moved:?}");
}

#[test]
fn each_move_has_a_greater_epoch() {
    let (_site, group) = partitioned(0, json!({}));
    settled(&group, &["a"]);
    let epochs = |group: &Group| -> Vec<u64> {
        let status = group.status();
        let mut partitions = status["partitions"].as_array().unwrap().clone();
        partitions.sort_by_key(|one| one["partition"].as_u64());
        partitions.iter().map(|one| one["epoch"].as_u64().unwrap()).collect()
    };
    let before = epochs(&group);
    let owners = settled(&group, &["a", "b"]);
    for (partition, after) in epochs(&group).into_iter().enumerate() {
        if owners[partition] == "b" {
            assert!(after > before[partition], "{partition}: {} {after}", before[partition]);
        } else {
            assert!(after >= before[partition], "{partition}: {} {after}", before[partition]);
        }
    }
}

#[test]
fn a_waiting_pull_gets_what_moves_to_it() {
    let (_site, group) = partitioned(1, json!({"memberTtlMs": 1000}));
    let held = group.gather(&json!({"member": "a"}), ALL);
    // Nobody hears of a any more, so it is b that gets all in the end, without asking again each time.
    let mut all: Vec<Value> = Vec::new();
    while all.len() < ALL {
        let got = group.pull(&json!({"member": "b", "waitMs": LONG}));
        assert!(!got.is_empty(), "{}", group.status());
        group.ack(&got);
        all.extend(got);
    }
    assert_eq!(sorted_numbers(&all), (0..32).collect::<Vec<_>>());
    assert_eq!(group.accepted(&acks(&held)), [false; ALL]);
    group.is_done();
}

#[test]
fn a_member_that_waits_is_not_silent() {
    let (site, group) = partitioned(0, json!({"memberTtlMs": 600}));
    let waiting = {
        let group = group.clone();
        std::thread::spawn(move || group.pull(&json!({"member": "a", "waitMs": LONG})))
    };
    eventually("a owns everything", || group.owners().iter().all(|owner| owner == "a"));
    // Longer than a member may be silent, which is what is tested.
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(group.owners(), vec![json!("a"); ALL]);
    publish_all(&site.api, "t", &[json!({"payload": {"n": 1}, "partition": 7})]);
    let got = waiting.join().unwrap();
    assert_eq!(sorted_numbers(&got), [1]);
    group.ack(&got);
}

#[test]
fn pulls_without_a_name_are_one_owner() {
    let (_site, group) = partitioned(2, json!({}));
    let mut got = group.gather(&json!({"max": 5}), 5);
    got.extend(group.gather(&json!({"max": 100}), 2 * ALL - 5));
    assert_eq!(sorted_numbers(&got), (0..64).collect::<Vec<_>>());
    assert!(group.status()["members"].as_array().unwrap().len() == 1);
    group.ack(&got);
    group.is_done();
}

#[test]
fn more_members_than_partitions_leave_some_with_nothing() {
    let site = Site::start();
    site.api.make("t", 2);
    let group = Group::of(&site, "t", "g");
    group.make(&json!({"from": "earliest", "mode": "partitioned"}));
    for round in 0..3 {
        for member in 0..6 {
            assert!(group.pull(&json!({"member": format!("m{member}")})).is_empty(), "{round}");
        }
    }
    publish_spread(&site.api, "t", 2, 2);
    let owners = group.owners();
    let mut all = Vec::new();
    for member in 0..6 {
        let name = format!("m{member}");
        let got = group.pull(&json!({"member": name, "waitMs": 100}));
        assert!(got.iter().all(|one| owners[partition(one)] == name.as_str()), "{got:?} {owners:?}");
        all.extend(got);
    }
    assert_eq!(sorted_numbers(&all), [0, 1, 2, 3]);
    group.ack(&all);
}

#[test]
fn a_partition_that_is_added_gets_an_owner_and_moves_no_other() {
    let (site, group) = partitioned(0, json!({}));
    let before = settled(&group, &["a", "b"]);
    site.api.make("t", PARTITIONS + 4);
    let after = settled(&group, &["a", "b"]);
    assert_eq!((after.len(), &after[..ALL]), (ALL + 4, &before[..]));
    publish_spread(&site.api, "t", u64::from(PARTITIONS) + 4, 1);
    for member in ["a", "b"] {
        let own = after.iter().filter(|owner| *owner == member).count();
        let got = group.consume(&json!({"member": member}), own);
        assert!(got.iter().all(|one| after[partition(one)] == member), "{got:?}");
    }
    group.is_done();
}

#[test]
fn members_that_come_and_go_lose_nothing_and_never_hold_the_same() {
    const EACH: u64 = 3;
    let (_site, group) = partitioned(EACH, json!({"memberTtlMs": 1000, "maxAttempts": 100}));
    let total = usize::try_from(u64::from(PARTITIONS) * EACH).unwrap();
    let done = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let (group, done) = (&group, &done);
            scope.spawn(move || {
                let mut turn = 0;
                while done.lock().unwrap().len() < total {
                    turn += 1;
                    let body = json!({"member": format!("m{worker}"), "max": 3, "waitMs": 300});
                    let got = group.pull(&body);
                    if worker == 3 && turn == 2 {
                        // This one goes and leaves what it has to the others.
                        return;
                    }
                    let results = group.accepted(&acks(&got));
                    let settled = got.into_iter().zip(results).filter(|(_, ok)| *ok).map(|(one, _)| one);
                    done.lock().unwrap().extend(settled);
                }
            });
        }
    });
    let done = done.into_inner().unwrap();
    assert_eq!(sorted_numbers(&done), (0..u64::try_from(total).unwrap()).collect::<Vec<_>>());
    assert!(done.iter().all(|one| attempt(one) == 1), "{done:?}");
    group.is_done();
}
