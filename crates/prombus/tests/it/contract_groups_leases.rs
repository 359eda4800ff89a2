//! What a lease is good for: acks, nacks, extends, expiry, attempts, and tokens that are too late.

use crate::contract_support::Site;
use crate::groups_support::{
    Group, LONG, acks, attempt, eventually, extend, lease, nack, number, numbered, numbers, publish, since,
    sorted_numbers,
};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// A group with these options that has so many events before it.
fn group_with(count: u64, options: Value) -> (Site, Group) {
    let site = Site::start();
    publish(&site.api, "t", 0..count);
    let group = Group::of(&site, "t", "g");
    let mut options = options;
    options["from"] = json!("earliest");
    group.make(&options);
    (site, group)
}

#[test]
fn an_acked_event_is_never_delivered_again() {
    let (_site, group) = group_with(5, json!({"ackTimeoutMs": 1000}));
    group.consume(&json!({}), 5);
    group.is_done();
    assert_eq!(group.partition(0)["next"], 5);
    // Past the time at which a lease that was not settled would come back.
    std::thread::sleep(Duration::from_millis(1200));
    group.nothing(json!({}));
}

#[test]
fn events_may_be_acked_in_any_order() {
    let (_site, group) = group_with(6, json!({}));
    let got = group.gather(&json!({}), 6);
    for n in [5, 3, 1] {
        group.ack(&[numbered(&got, n).clone()]);
    }
    assert_eq!(group.partition(0)["next"], 0);
    group.ack(&[numbered(&got, 0).clone()]);
    assert_eq!(group.partition(0)["next"], 2);
    group.ack(&[numbered(&got, 4).clone(), numbered(&got, 2).clone()]);
    assert_eq!(group.partition(0)["next"], 6);
    group.is_done();
    group.nothing(json!({}));
}

#[test]
fn every_lease_has_a_token_of_its_own() {
    let (_site, group) = group_with(20, json!({"maxAttempts": 9}));
    let got = group.gather(&json!({}), 20);
    for one in &got {
        group.nack(one);
    }
    let again = group.gather(&json!({}), 20);
    let mut tokens: Vec<&str> = got.iter().chain(&again).map(lease).collect();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 40);
}

#[test]
fn the_answer_to_all_verbs_is_in_the_order_asked() {
    let (_site, group) = group_with(6, json!({}));
    let got = group.gather(&json!({}), 6);
    let token = |n: u64| lease(numbered(&got, n));
    // The helper compares the leases of the answer with those of the request.
    let results = group.accepted(&json!({
        "ack": [token(4), token(0)],
        "nack": [{"lease": token(2), "reason": "no", "delayMs": 60_000}, {"lease": token(1)}],
        "extend": [{"lease": token(5), "extend_ms": 5000}, {"lease": token(3), "extend_ms": 1000}],
    }));
    assert_eq!(results, [true; 6]);
    // The fields may come in another order than they are answered in.
    let body = format!(
        r#"{{"extend":[{{"lease":"{}","extend_ms":1000}}],"ack":["{}","{}"]}}"#,
        token(3),
        token(4),
        token(5)
    );
    let answer = group.api.post(&group.path("/ack"), &body).is(200);
    let told: Vec<&str> =
        answer["results"].as_array().unwrap().iter().map(|one| one["lease"].as_str().unwrap()).collect();
    assert_eq!(told, [token(4), token(5), token(3)]);
    assert!(answer["results"].as_array().unwrap().iter().all(|one| one["ok"] == true), "{answer}");
}

#[test]
fn good_and_bad_leases_in_one_call_are_told_apart() {
    let (_site, group) = group_with(3, json!({}));
    let got = group.gather(&json!({}), 3);
    group.nack_for(&got[1], 60_000);
    let results = group.accepted(&acks(&got));
    assert_eq!(results, [true, false, true]);
    let place = group.partition(0);
    assert_eq!((&place["next"], &place["in_flight"]), (&json!(1), &json!(0)));
}

#[test]
fn no_leases_at_all_are_no_mistake() {
    let (_site, group) = group_with(1, json!({}));
    assert!(group.settle(&json!({"ack": [], "nack": [], "extend": []})).is_empty());
    assert!(group.settle(&json!({})).is_empty());
}

#[test]
fn the_deadline_is_what_is_left_of_the_lease() {
    let (_site, group) = group_with(1, json!({"ackTimeoutMs": 5000}));
    let got = group.one(json!({}));
    let left = got["ctx"]["ack_deadline_ms"].as_u64().unwrap();
    assert!((1000..=5000).contains(&left), "{left}");
}

#[test]
fn a_nack_gives_it_back_at_once_the_first_time() {
    // The pause would be longer than the test waits.
    let (_site, group) = group_with(1, json!({"backoffMs": 30_000}));
    let first = group.one(json!({"member": "a"}));
    assert_eq!(attempt(&first), 1);
    group.nack(&first);
    let second = group.one(json!({"member": "b"}));
    assert_eq!((attempt(&second), number(&second)), (2, 0));
    // The second time it is not at once.
    group.nack(&second);
    group.nothing(json!({"member": "a"}));
    assert_eq!(group.partition(0)["lag"], 1);
}

#[test]
fn later_retries_wait_longer_and_longer() {
    let (_site, group) = group_with(1, json!({"backoffMs": 300, "maxAttempts": 10}));
    group.nack(&group.one(json!({})));
    let mut held = group.one(json!({}));
    for (wanted, pause) in [(3, 300), (4, 600), (5, 1200)] {
        let started = Instant::now();
        group.nack(&held);
        held = group.one(json!({}));
        let waited = since(started);
        assert_eq!(attempt(&held), wanted);
        assert!((pause * 9 / 10..pause + 5000).contains(&waited), "{waited} for {pause}");
    }
}

#[test]
fn a_nack_with_a_delay_comes_back_after_it() {
    let (_site, group) = group_with(2, json!({"backoffMs": 60_000}));
    let got = group.gather(&json!({}), 2);
    let started = Instant::now();
    group.nack_for(&got[0], 700);
    group.ack(&got[1..]);
    let back = group.one(json!({}));
    let waited = since(started);
    assert!((690..6000).contains(&waited), "{waited}");
    assert_eq!((number(&back), attempt(&back)), (0, 2));
    // A delay that is given holds also where a backoff would be due, and none is none.
    group.nack_for(&back, 0);
    assert_eq!(attempt(&group.one(json!({}))), 3);
}

#[test]
fn a_delay_may_be_a_day_and_no_longer() {
    let (_site, group) = group_with(2, json!({}));
    let got = group.gather(&json!({}), 2);
    let too_long = nack(&got[0], &json!({"delayMs": 86_400_001_u64}));
    group.post("/ack", &too_long).fails(400, "bad_request");
    group.nack_for(&got[1], 86_400_000);
    // What was refused has changed nothing.
    group.ack(&got[..1]);
    group.nothing(json!({}));
}

#[test]
fn an_expired_lease_goes_to_another_member_and_counts() {
    let (_site, group) = group_with(1, json!({"ackTimeoutMs": 500}));
    let started = Instant::now();
    let first = group.one(json!({"member": "a"}));
    let second = group.one(json!({"member": "b"}));
    let waited = since(started);
    assert!((490..6000).contains(&waited), "{waited}");
    assert_eq!((attempt(&first), attempt(&second)), (1, 2));
    assert_eq!(first["event"], second["event"]);
}

#[test]
fn an_expired_lease_may_go_to_the_same_member() {
    let (_site, group) = group_with(1, json!({"ackTimeoutMs": 300}));
    assert_eq!(attempt(&group.one(json!({"member": "a"}))), 1);
    assert_eq!(attempt(&group.one(json!({"member": "a"}))), 2);
}

#[test]
fn an_event_that_expires_does_not_hold_up_a_waiting_pull() {
    let (site, group) = group_with(1, json!({"ackTimeoutMs": 400}));
    group.one(json!({"member": "a"}));
    let waiting = {
        let group = group.clone();
        std::thread::spawn(move || group.pull(&json!({"member": "b", "waitMs": LONG})))
    };
    publish(&site.api, "t", 1..2);
    let got = waiting.join().unwrap();
    assert!(!got.is_empty());
}

#[test]
fn a_late_token_never_settles_a_later_attempt() {
    let (_site, group) = group_with(1, json!({"ackTimeoutMs": 700, "maxAttempts": 50}));
    let first = group.one(json!({"member": "a"}));
    let second = group.one(json!({"member": "b"}));
    for body in [acks(std::slice::from_ref(&first)), nack(&first, &json!({})), extend(&first, 9000)] {
        assert_eq!(group.accepted(&body), [false], "{body}");
    }
    let place = group.partition(0);
    assert_eq!((&place["next"], &place["lag"]), (&json!(0), &json!(1)));
    // The second may have run out while all that was asked; whoever holds it now can ack.
    if group.accepted(&acks(&[second])) == [false] {
        eventually("one ack is in time", || group.accepted(&acks(&[group.one(json!({}))])) == [true]);
    }
    group.is_done();
    assert_eq!(group.accepted(&acks(&[first])), [false]);
}

#[test]
fn a_token_is_refused_once_its_time_is_over() {
    let (_site, group) = group_with(3, json!({"ackTimeoutMs": 300, "maxAttempts": 50}));
    let got = group.gather(&json!({}), 3);
    // Nobody else asks, so it is only the time that ends the leases.
    std::thread::sleep(Duration::from_millis(900));
    assert_eq!(group.accepted(&acks(&got[..1])), [false]);
    assert_eq!(group.accepted(&nack(&got[1], &json!({}))), [false]);
    assert_eq!(group.accepted(&extend(&got[2], 5000)), [false]);
    assert_eq!(group.partition(0)["next"], 0);
}

#[test]
fn a_repeated_verb_is_ok() {
    let (_site, group) = group_with(3, json!({"backoffMs": 60_000}));
    let got = group.gather(&json!({}), 3);
    for _ in 0..3 {
        group.ack(&got[..1]);
        assert_eq!(group.accepted(&nack(&got[1], &json!({}))), [true]);
        assert_eq!(group.accepted(&extend(&got[2], 30_000)), [true]);
    }
    let again = group.one(json!({}));
    // However often it was said, it counted once.
    assert_eq!((number(&again), attempt(&again)), (1, 2));
    // And it is still ok when someone else has the event; it takes nothing from them.
    assert_eq!(group.accepted(&nack(&got[1], &json!({}))), [true]);
    group.ack(&[again, got[2].clone()]);
    group.is_done();
}

#[test]
fn a_verb_repeated_within_a_call_is_ok() {
    let (_site, group) = group_with(1, json!({}));
    let got = group.one(json!({}));
    let token = lease(&got);
    assert_eq!(group.accepted(&json!({"ack": [token, token]})), [true, true]);
    group.is_done();
}

#[test]
fn another_verb_after_the_first_is_refused() {
    let (_site, group) = group_with(2, json!({}));
    let got = group.gather(&json!({}), 2);
    group.nack_for(&got[0], 60_000);
    assert_eq!(group.accepted(&acks(&got[..1])), [false]);
    assert_eq!(group.accepted(&extend(&got[0], 1000)), [false]);
    group.ack(&got[1..]);
    assert_eq!(group.accepted(&nack(&got[1], &json!({}))), [false]);
    assert_eq!(group.accepted(&extend(&got[1], 1000)), [false]);
    assert_eq!(group.partition(0)["lag"], 1);
    // Within one call the first one that is answered wins.
    group.move_to(&json!({"from": "earliest"}));
    let got = group.one(json!({}));
    let token = lease(&got);
    assert_eq!(group.accepted(&json!({"nack": [{"lease": token}], "ack": [token]})), [true, false]);
}

#[test]
fn an_extended_lease_holds_longer() {
    let (_site, group) = group_with(1, json!({"ackTimeoutMs": 1000}));
    let got = group.one(json!({"member": "a"}));
    assert_eq!(group.accepted(&extend(&got, 10_000)), [true]);
    // Past the time for which it was first given.
    std::thread::sleep(Duration::from_millis(1300));
    group.nothing(json!({"member": "b"}));
    group.ack(&[got]);
    group.is_done();
}

#[test]
fn an_extended_lease_still_expires() {
    let (_site, group) = group_with(1, json!({"ackTimeoutMs": 20_000}));
    let got = group.one(json!({"member": "a"}));
    let started = Instant::now();
    // From now on, so it can also be made shorter.
    assert_eq!(group.accepted(&extend(&got, 600)), [true]);
    let again = group.one(json!({"member": "b"}));
    assert_eq!(attempt(&again), 2);
    assert!(since(started) >= 590, "{}", since(started));
    assert_eq!(group.accepted(&acks(&[got])), [false]);
}

#[test]
fn nacks_and_expiries_count_alike() {
    let (site, group) = group_with(1, json!({"ackTimeoutMs": 400, "backoffMs": 1, "maxAttempts": 4}));
    let mut seen = Vec::new();
    for round in 0..4 {
        let got = group.one(json!({}));
        seen.push(attempt(&got));
        if round % 2 == 0 {
            // One that comes too late has expired, which counts the same.
            group.settle(&nack(&got, &json!({"reason": "no"})));
        }
    }
    assert_eq!(seen, [1, 2, 3, 4]);
    eventually("it is a dead letter", || site.api.get("/v1/topics/dlq.t").status == 200);
    let letters = site.api.all("dlq.t", "");
    assert_eq!((letters.len(), &letters[0]["payload"]["attempts"]), (1, &json!(4)));
    group.is_done();
}

#[test]
fn an_empty_pull_and_an_extend_count_nothing() {
    let (_site, group) = group_with(1, json!({}));
    let got = group.one(json!({}));
    for _ in 0..5 {
        assert_eq!(group.accepted(&extend(&got, 20_000)), [true]);
        assert!(group.pull(&json!({})).is_empty());
    }
    group.nack(&got);
    assert_eq!(attempt(&group.one(json!({}))), 2);
}

#[test]
fn members_that_race_never_hold_the_same_event_at_once() {
    const EVENTS: u64 = 300;
    let (_site, group) = group_with(EVENTS, json!({"ordering": "none"}));
    let workers: Vec<_> = (0..6)
        .map(|worker| {
            let group = group.clone();
            std::thread::spawn(move || {
                let mut all = Vec::new();
                loop {
                    let got = group.pull(&json!({"member": format!("m{worker}"), "max": 7, "waitMs": 200}));
                    if got.is_empty() {
                        return all;
                    }
                    group.ack(&got);
                    all.extend(got);
                }
            })
        })
        .collect();
    let all: Vec<Value> = workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect();
    assert_eq!(sorted_numbers(&all), (0..EVENTS).collect::<Vec<_>>());
    assert!(all.iter().all(|one| attempt(one) == 1));
    group.is_done();
}

#[test]
fn an_unacked_event_comes_again_and_again() {
    let (_site, group) = group_with(3, json!({"ackTimeoutMs": 250, "backoffMs": 1, "maxAttempts": 100}));
    let mut attempts = 0;
    while attempts < 4 {
        let got = group.take(json!({}));
        assert!(numbers(&got).iter().all(|n| *n < 3), "{got:?}");
        attempts = got.iter().map(attempt).max().unwrap();
    }
    assert_eq!(group.partition(0)["next"], 0);
}
