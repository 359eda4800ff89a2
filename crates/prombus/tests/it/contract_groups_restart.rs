//! What a group still knows after its hub was ended, or killed.

use crate::contract_support::{Answer, Call, Site};
use crate::groups_support;
use crate::groups_support::{
    Group, acks, attempt, eventually, lease, nack, number, numbered, numbers, publish, publish_keys,
    publish_spread, since, sorted_numbers,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

/// Runs the test with both ways to end a hub.
fn both_ways(test: impl Fn(&mut Site, &dyn Fn(&mut Site))) {
    test(&mut Site::start(), &|site| site.crash());
    test(&mut Site::start(), &|site| site.restart());
}

#[test]
fn acked_events_never_come_again_and_unacked_ones_do() {
    both_ways(|site, end| {
        publish(&site.api, "t", 0..10);
        let group = Group::of(site, "t", "g");
        let got = group.gather(&json!({"from": "earliest"}), 10);
        let odd: Vec<Value> = got.iter().filter(|one| number(one) % 2 == 1).cloned().collect();
        group.ack(&odd);
        end(site);
        let group = Group::of(site, "t", "g");
        let again = group.gather(&json!({}), 5);
        assert_eq!(sorted_numbers(&again), [0, 2, 4, 6, 8]);
        group.ack(&again);
        group.is_done();
        end(site);
        let group = Group::of(site, "t", "g");
        group.nothing(json!({}));
        assert_eq!(group.partition(0)["next"], 10);
    });
}

#[test]
fn open_leases_are_void_and_were_no_attempt() {
    both_ways(|site, end| {
        publish(&site.api, "t", 0..3);
        let group = Group::of(site, "t", "g");
        let old = group.gather(&json!({"from": "earliest"}), 3);
        end(site);
        let group = Group::of(site, "t", "g");
        assert_eq!(group.partition(0)["in_flight"], 0);
        assert_eq!(group.accepted(&acks(&old)), [false, false, false]);
        assert_eq!(group.accepted(&nack(&old[0], &json!({}))), [false]);
        let new = group.gather(&json!({}), 3);
        assert!(new.iter().all(|one| attempt(one) == 1), "{new:?}");
        // Not even now do the old tokens mean anything.
        assert_eq!(group.accepted(&acks(&old)), [false, false, false]);
        let tokens: BTreeSet<&str> = old.iter().chain(&new).map(lease).collect();
        assert_eq!(tokens.len(), 6);
        group.ack(&new);
        group.is_done();
    });
}

#[test]
fn attempts_stay_counted() {
    both_ways(|site, end| {
        publish(&site.api, "t", 0..1);
        let group = Group::of(site, "t", "g");
        let options = json!({"from": "earliest", "maxAttempts": 3, "backoffMs": 1});
        group.nack(&group.one(options));
        assert_eq!(attempt(&group.one(json!({}))), 2);
        end(site);
        let group = Group::of(site, "t", "g");
        let second = group.one(json!({}));
        assert_eq!(attempt(&second), 2);
        group.nack(&second);
        end(site);
        let group = Group::of(site, "t", "g");
        let third = group.one(json!({}));
        assert_eq!(attempt(&third), 3);
        group.nack(&third);
        eventually("it is a dead letter", || site.api.get("/v1/topics/dlq.t").status == 200);
        assert_eq!(site.api.all("dlq.t", "")[0]["payload"]["attempts"], 3);
        group.is_done();
    });
}

#[test]
fn expiries_that_were_counted_stay_counted() {
    let mut site = Site::start();
    publish(&site.api, "t", 0..1);
    let group = Group::of(&site, "t", "g");
    group.one(json!({"from": "earliest", "ackTimeoutMs": 300, "maxAttempts": 100}));
    assert_eq!(attempt(&group.one(json!({}))), 2);
    site.crash();
    let group = Group::of(&site, "t", "g");
    let again = attempt(&group.one(json!({})));
    // The second lease may have run out just before the end.
    assert!(matches!(again, 2 | 3), "{again}");
}

/// Has an event wait for its retry while the hub is ended in this way.
fn delay_over(end: impl Fn(&mut Site)) {
    const DELAY: u64 = 3000;
    let mut site = Site::start();
    publish_keys(&site.api, "t", 0, &["a", "a", "b"]);
    let group = Group::of(&site, "t", "g");
    let got = group.gather(&json!({"from": "earliest"}), 2);
    let started = Instant::now();
    group.nack_for(numbered(&got, 0), DELAY);
    end(&mut site);
    let group = Group::of(&site, "t", "g");
    // The later one of its key waits for it still, the other key does not.
    assert_eq!(numbers(&group.gather(&json!({}), 1)), [2]);
    let back = group.gather(&json!({}), 1);
    let waited = since(started);
    assert!((u128::from(DELAY) - 50..u128::from(DELAY) + 8000).contains(&waited), "{waited}");
    assert_eq!((number(&back[0]), attempt(&back[0])), (0, 2));
}

#[test]
fn a_delayed_retry_stays_delayed_over_kill_9() {
    delay_over(Site::crash);
}

#[test]
fn a_delayed_retry_stays_delayed_over_a_stop() {
    delay_over(Site::restart);
}

#[test]
fn a_group_keeps_its_options_and_where_it_started() {
    both_ways(|site, end| {
        publish(&site.api, "t", 0..3);
        let group = Group::of(site, "t", "g");
        group.nothing(json!({"maxAttempts": 9, "ordering": "none", "filter": "event.payload.n != 4"}));
        let made = Group::of(site, "t", "made");
        made.make(&json!({"mode": "partitioned", "memberTtlMs": 4000}));
        publish(&site.api, "t", 3..6);
        let options = group.status()["options"].clone();
        end(site);
        let group = Group::of(site, "t", "g");
        assert_eq!(group.status()["options"], options);
        group.post("/pull", &json!({"maxAttempts": 8})).fails(409, "group_options");
        group.post("/pull", &json!({"filter": "event.payload.n != 5"})).fails(409, "group_options");
        assert_eq!(numbers(&group.gather(&json!({"maxAttempts": 9, "from": "earliest"}), 2)), [3, 5]);
        let made = Group::of(site, "t", "made");
        assert_eq!(made.status()["options"]["memberTtlMs"], 4000);
        assert_eq!(numbers(&made.gather(&json!({"member": "a"}), 3)), [3, 4, 5]);
    });
}

#[test]
fn moves_skips_and_deletions_stay() {
    both_ways(|site, end| {
        publish(&site.api, "t", 0..6);
        let (moved, skipped, deleted) =
            (Group::of(site, "t", "moved"), Group::of(site, "t", "skipped"), Group::of(site, "t", "deleted"));
        for group in [&moved, &skipped, &deleted] {
            group.consume(&json!({"from": "earliest"}), 6);
        }
        moved.move_to(&json!({"from": "offset", "offset": 4}));
        skipped.move_to(&json!({"from": "earliest"}));
        skipped.skip(0, 1);
        deleted.delete();
        end(site);
        assert_eq!(numbers(&Group::of(site, "t", "moved").gather(&json!({}), 2)), [4, 5]);
        assert_eq!(numbers(&Group::of(site, "t", "skipped").gather(&json!({}), 5)), [0, 2, 3, 4, 5]);
        site.api.get(&deleted.path("")).fails(404, "not_found");
    });
}

#[test]
fn a_deleted_topic_does_not_bring_its_groups_back() {
    both_ways(|site, end| {
        publish(&site.api, "t", 0..3);
        let group = Group::of(site, "t", "g");
        group.consume(&json!({"from": "earliest"}), 3);
        assert!(matches!(site.api.delete("/v1/topics/t").status, 200 | 204));
        publish(&site.api, "t", 10..12);
        end(site);
        let group = Group::of(site, "t", "g");
        site.api.get(&group.path("")).fails(404, "not_found");
        assert_eq!(numbers(&group.gather(&json!({"from": "earliest"}), 2)), [10, 11]);
    });
}

#[test]
fn a_dead_letter_is_there_once_and_its_event_gone() {
    both_ways(|site, end| {
        publish(&site.api, "t", 0..3);
        let group = Group::of(site, "t", "g");
        let got = group.gather(&json!({"from": "earliest", "maxAttempts": 1}), 3);
        group.nack(&got[1]);
        // Right after the answer, as the dead letter is part of what was answered.
        end(site);
        let letters = site.api.all("dlq.t", "");
        assert_eq!(letters.len(), 1, "{letters:?}");
        assert_eq!(letters[0]["payload"]["original"], got[1]["event"]);
        let group = Group::of(site, "t", "g");
        assert_eq!(numbers(&group.consume(&json!({}), 2)), [0, 2]);
        group.is_done();
    });
}

#[test]
fn a_replay_stays_done_and_its_event_still_comes() {
    both_ways(|site, end| {
        publish(&site.api, "t", 0..1);
        let group = Group::of(site, "t", "g");
        group.nack(&group.one(json!({"from": "earliest", "maxAttempts": 1})));
        let replayed = site.api.post("/v1/dlq/t/replay", "{}").is(200);
        assert_eq!((&replayed["matched"], &replayed["replayed"]), (&json!(1), &json!(1)));
        end(site);
        let group = Group::of(site, "t", "g");
        let got = group.one(json!({}));
        assert_eq!((number(&got), attempt(&got)), (0, 1));
        let again = site.api.post("/v1/dlq/t/replay", "{}").is(200);
        assert_eq!(again["replayed"], 0, "{again}");
        group.ack(&[got]);
        end(site);
        Group::of(site, "t", "g").nothing(json!({}));
    });
}

#[test]
fn a_new_partition_still_waits_for_the_old_ones() {
    both_ways(|site, end| {
        let keys: Vec<String> = (0..12).map(|n| format!("k{n}")).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        publish_keys(&site.api, "t", 0, &keys);
        let group = Group::of(site, "t", "g");
        let old = group.gather(&json!({"from": "earliest"}), 12);
        group.ack(&old[1..]);
        site.api.make("t", 4);
        publish_keys(&site.api, "t", 100, &keys);
        end(site);
        let group = Group::of(site, "t", "g");
        let mut got = Vec::new();
        while !numbers(&got).contains(&number(&old[0])) {
            got.extend(group.take(json!({})));
        }
        got.extend(group.pull(&json!({"waitMs": 150})));
        assert!(got.iter().all(|one| one["event"]["partition"] == 0), "{got:?}");
        group.ack(&got);
        got.extend(group.consume(&json!({}), 13 - got.len()));
        assert!(got.iter().any(|one| one["event"]["partition"] != 0), "{got:?}");
        group.is_done();
    });
}

#[test]
fn a_partitioned_group_finds_its_members_again() {
    let mut site = Site::start();
    site.api.make("t", 6);
    publish_spread(&site.api, "t", 6, 2);
    let group = Group::of(&site, "t", "g");
    let got = group.gather(&json!({"from": "earliest", "mode": "partitioned", "member": "a", "max": 6}), 6);
    group.ack(&got);
    let left: Vec<u64> = (0..12).filter(|n| !numbers(&got).contains(n)).collect();
    site.crash();
    let group = Group::of(&site, "t", "g");
    let again = group.gather(&json!({"member": "b"}), 6);
    assert_eq!(sorted_numbers(&again), left);
    assert_eq!(group.owners(), vec![json!("b"); 6]);
    group.ack(&again);
    group.is_done();
}

#[test]
fn acks_by_an_interval_topic_survive_kill_9() {
    let mut site = Site::start();
    site.api.put("/v1/topics/t", r#"{"durability":"interval"}"#).is(201);
    publish(&site.api, "t", 0..20);
    let group = Group::of(&site, "t", "g");
    let got = group.gather(&json!({"from": "earliest"}), 20);
    group.ack(&got[..13]);
    site.crash();
    let group = Group::of(&site, "t", "g");
    assert_eq!(sorted_numbers(&group.gather(&json!({}), 7)), (13..20).collect::<Vec<_>>());
}

/// What an ack came to: the numbers for which it was answered, and those for which nobody knows.
#[derive(Default)]
struct Worked {
    acked: Vec<u64>,
    unknown: Vec<u64>,
}

/// Posts a body; nothing where the hub is gone.
fn try_post(group: &Group, rest: &str, body: &Value) -> Option<Answer> {
    group.api.try_call(&Call::json("POST", &group.path(rest), &body.to_string())).ok()
}

/// Pulls and acks until the hub is gone.
fn work_until_it_breaks(group: &Group, count: &AtomicUsize, stop: &AtomicBool) -> Worked {
    let mut worked = Worked::default();
    while !stop.load(Ordering::Acquire) {
        let Some(answer) = try_post(group, "/pull", &json!({"max": 5, "waitMs": 50})) else { continue };
        let got = groups_support::deliveries(&answer);
        match try_post(group, "/ack", &acks(&got)) {
            Some(answer) => {
                let results = answer.is(200)["results"].as_array().unwrap().clone();
                let ok = got.iter().zip(&results).filter(|(_, result)| result["ok"] == true);
                worked.acked.extend(ok.map(|(one, _)| number(one)));
                count.fetch_add(got.len(), Ordering::AcqRel);
            }
            None => worked.unknown.extend(numbers(&got)),
        }
    }
    worked
}

#[test]
fn kill_9_under_load_loses_no_event_and_no_answered_ack() {
    const EVENTS: u64 = 600;
    let mut site = Site::start();
    publish(&site.api, "t", 0..EVENTS);
    Group::of(&site, "t", "g").make(&json!({"from": "earliest"}));
    let mut acked: Vec<u64> = Vec::new();
    let mut unknown: BTreeSet<u64> = BTreeSet::new();
    for _ in 0..3 {
        let group = Group::of(&site, "t", "g");
        let (count, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let worked = std::thread::scope(|scope| {
            let workers: Vec<_> =
                (0..3).map(|_| scope.spawn(|| work_until_it_breaks(&group, &count, &stop))).collect();
            eventually("enough is acked to be in the middle", || count.load(Ordering::Acquire) >= 100);
            site.hub().signal(rustix::process::Signal::KILL);
            stop.store(true, Ordering::Release);
            workers.into_iter().map(|worker| worker.join().unwrap()).collect::<Vec<_>>()
        });
        for one in worked {
            acked.extend(one.acked);
            unknown.extend(one.unknown);
        }
        site.crash();
    }
    let group = Group::of(&site, "t", "g");
    let mut rest: Vec<u64> = Vec::new();
    loop {
        let got = group.pull(&json!({"waitMs": 300}));
        if got.is_empty() {
            break;
        }
        group.ack(&got);
        rest.extend(numbers(&got));
    }
    group.is_done();
    // Whatever was answered came once; whatever was not came again, or its ack was in time.
    let all: Vec<u64> = acked.iter().chain(&rest).copied().collect();
    let distinct: BTreeSet<u64> = all.iter().copied().collect();
    assert_eq!(distinct.len(), all.len(), "some came again after their ack");
    for missing in (0..EVENTS).filter(|n| !distinct.contains(n)) {
        assert!(unknown.contains(&missing), "{missing} is lost");
    }
}
