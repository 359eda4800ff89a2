//! Dead letters: how an event becomes one, how they are listed, and how they are replayed.

use crate::contract_support::{Site, encoded, fields, now};
use crate::groups_support;
use crate::groups_support::{
    Group, attempt, eventually, metric, nack, number, numbered, numbers, publish, publish_all, publish_keys,
    sorted_numbers,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The dead letters of a topic, as any reader of the log sees them.
fn letters(site: &Site, topic: &str) -> Vec<Value> {
    let name = format!("dlq.{topic}");
    if site.api.get(&format!("/v1/topics/{name}")).status == 404 {
        return Vec::new();
    }
    site.api.all(&name, "")
}

/// Waits for so many dead letters.
#[track_caller]
fn wait_for_letters(site: &Site, topic: &str, count: usize) -> Vec<Value> {
    eventually("the dead letters are there", || letters(site, topic).len() >= count);
    let all = letters(site, topic);
    assert_eq!(all.len(), count, "{all:?}");
    all
}

/// The dead letters of a list, whatever the list calls them.
#[track_caller]
fn listed(site: &Site, query: &str) -> Vec<Value> {
    let answer = site.api.get(&format!("/v1/dlq/t{query}")).is(200);
    let arrays = answer.as_object().unwrap().values().filter_map(Value::as_array);
    let all: Vec<&Vec<Value>> = arrays.collect();
    assert_eq!(all.len(), 1, "{answer}");
    all[0].clone()
}

/// A filter for dead letters whose original has this number, whether `event` is the letter or the original.
fn about(n: u64) -> String {
    format!(
        "(event.topic == 'dlq.t' && event.payload.original.payload.n == {n}) || (event.topic == 't' && event.payload.n == {n})"
    )
}

/// What a replay answers.
#[track_caller]
fn replay(site: &Site, body: &Value) -> Value {
    let answer = site.api.post("/v1/dlq/t/replay", &body.to_string()).is(200);
    for name in ["matched", "replayed", "skipped"] {
        assert!(answer.get(name).is_some(), "no {name} in {answer}");
    }
    for skipped in answer["skipped"].as_array().unwrap() {
        assert!(skipped["id"].is_string() && !skipped["why"].as_str().unwrap().is_empty(), "{answer}");
    }
    answer
}

/// The ids of those that were not replayed.
fn skipped(answer: &Value) -> Vec<&Value> {
    answer["skipped"].as_array().unwrap().iter().map(|one| &one["id"]).collect()
}

/// Gives up on everything that comes to the group, until there were so many.
#[track_caller]
fn give_up(group: &Group, count: usize) -> Vec<Value> {
    let mut all = Vec::new();
    while all.len() < count {
        for one in group.take(json!({})) {
            assert_eq!(group.accepted(&nack(&one, &json!({"reason": "boom"}))), [true]);
            all.push(one);
        }
    }
    assert_eq!(all.len(), count);
    all
}

/// A topic with so many events, of which a group that takes one attempt made dead letters.
fn with_letters(count: u64) -> (Site, Group) {
    let site = Site::start();
    publish(&site.api, "t", 0..count);
    let group = Group::of(&site, "t", "g");
    group.make(&json!({"from": "earliest", "maxAttempts": 1}));
    give_up(&group, usize::try_from(count).unwrap());
    wait_for_letters(&site, "t", usize::try_from(count).unwrap());
    (site, group)
}

#[test]
fn after_its_attempts_an_event_is_a_dead_letter_and_the_group_goes_on() {
    let site = Site::start();
    let event = json!({
        "payload": {"n": 0, "deep": {"a": [1, 2]}}, "key": "k", "ts": 1000, "sid": "s", "tags": ["x"],
        "headers": {"x-a": "b"},
    });
    publish_all(&site.api, "t", &[event, json!({"payload": {"n": 1}, "key": "k"})]);
    let group = Group::of(&site, "t", "g");
    group.make(&json!({"from": "earliest", "maxAttempts": 3, "backoffMs": 1}));
    let before = now();
    let mut original = Value::Null;
    for wanted in 1..=3 {
        let got = group.one(json!({}));
        assert_eq!((number(&got), attempt(&got), &got["ctx"]["maxAttempts"]), (0, wanted, &json!(3)));
        let reason = json!({"reason": format!("no disk {wanted}")});
        assert_eq!(group.accepted(&nack(&got, &reason)), [true]);
        original = got["event"].clone();
    }
    // The next one of the key need not wait any more.
    let next = group.one(json!({}));
    assert_eq!((number(&next), attempt(&next)), (1, 1));
    assert_eq!(group.partition(0)["next"], 1);
    let all = wait_for_letters(&site, "t", 1);
    let letter = &all[0];
    assert_eq!((&letter["topic"], &letter["caused_by"]), (&json!("dlq.t"), &json!([original["id"]])));
    let payload = &letter["payload"];
    assert_eq!(fields(payload), ["attempts", "err", "group", "original", "topic", "ts"]);
    assert_eq!((&payload["topic"], &payload["group"]), (&json!("t"), &json!("g")));
    assert_eq!((&payload["attempts"], &payload["original"]), (&json!(3), &original));
    assert!(payload["err"].as_str().unwrap().contains("no disk 3"), "{payload}");
    let ts = payload["ts"].as_i64().unwrap();
    assert!((before - 1000..=now() + 1000).contains(&ts), "{ts}");
    group.ack(&[next]);
    group.is_done();
}

#[test]
fn an_event_that_only_expires_is_a_dead_letter_too() {
    let site = Site::start();
    publish(&site.api, "t", 0..1);
    let group = Group::of(&site, "t", "g");
    group.make(&json!({"from": "earliest", "maxAttempts": 2, "ackTimeoutMs": 250, "backoffMs": 1}));
    assert_eq!(attempt(&group.one(json!({}))), 1);
    let last = group.one(json!({}));
    assert_eq!(attempt(&last), 2);
    // Nobody asks any more, and it happens all the same.
    let all = wait_for_letters(&site, "t", 1);
    assert_eq!(all[0]["payload"]["attempts"], 2);
    assert!(!all[0]["payload"]["err"].as_str().unwrap().is_empty());
    group.is_done();
    let late = json!({"ack": [groups_support::lease(&last)]});
    assert_eq!(group.accepted(&late), [false]);
    group.nothing(json!({}));
}

#[test]
fn an_event_that_is_acked_at_last_is_no_dead_letter() {
    let site = Site::start();
    publish(&site.api, "t", 0..1);
    let group = Group::of(&site, "t", "g");
    group.make(&json!({"from": "earliest", "maxAttempts": 2}));
    group.nack(&group.one(json!({})));
    let last = group.one(json!({}));
    group.ack(&[last]);
    group.is_done();
    assert!(letters(&site, "t").is_empty());
}

#[test]
fn letters_outlive_a_replay_their_group_and_their_topic_and_go_with_their_own() {
    let site = Site::start();
    publish(&site.api, "t", 0..1);
    let group = Group::of(&site, "t", "g");
    group.make(&json!({"from": "earliest", "maxAttempts": 1}));
    group.nack(&group.one(json!({})));
    wait_for_letters(&site, "t", 1);
    assert_eq!(replay(&site, &json!({}))["replayed"], 1);
    group.delete();
    site.api.delete("/v1/topics/t").is(204);
    assert_eq!(letters(&site, "t").len(), 1);
    site.api.delete("/v1/topics/dlq.t").is(204);
    assert!(letters(&site, "t").is_empty());
}

#[test]
fn the_original_is_kept_byte_for_byte() {
    let site = Site::start();
    let payload = r#"{"b":1.10,"a":12345678901234567890123,"c":"\u00e9"}"#;
    site.api.events("t", &format!("{{\"payload\":{payload}}}")).is(201);
    let group = Group::of(&site, "t", "g");
    group.make(&json!({"from": "earliest", "maxAttempts": 1}));
    let answer = group.post("/pull", &json!({"waitMs": 10_000}));
    group.nack(&groups_support::deliveries(&answer)[0]);
    wait_for_letters(&site, "t", 1);
    assert!(site.api.export("dlq.t", "").text().contains(payload));
}

#[test]
fn each_group_fails_for_itself() {
    let (site, _group) = with_letters(2);
    let other = Group::of(&site, "t", "other");
    other.make(&json!({"from": "earliest", "maxAttempts": 1}));
    let got = other.gather(&json!({}), 2);
    other.nack(&got[0]);
    other.ack(&got[1..]);
    let all = wait_for_letters(&site, "t", 3);
    let groups: Vec<&str> = all.iter().map(|one| one["payload"]["group"].as_str().unwrap()).collect();
    assert_eq!(groups.iter().filter(|group| **group == "g").count(), 2);
    assert_eq!(groups.iter().filter(|group| **group == "other").count(), 1);
}

#[test]
fn the_list_has_all_dead_letters() {
    let (site, _group) = with_letters(3);
    let all = listed(&site, "");
    let expected: BTreeSet<String> = letters(&site, "t").iter().map(|one| one["id"].to_string()).collect();
    let found: BTreeSet<String> = all.iter().map(|one| one["id"].to_string()).collect();
    assert_eq!((all.len(), found), (3, expected));
    // Nothing is there for a topic that never failed.
    publish(&site.api, "calm", 0..1);
    let calm = site.api.get("/v1/dlq/calm").is(200);
    assert_eq!((&calm["count"], &calm["events"], &calm["next"]), (&json!(0), &json!([]), &Value::Null));
}

#[test]
fn an_unknown_topic_is_called_so() {
    let site = Site::start();
    for answer in [site.api.get("/v1/dlq/nowhere"), site.api.post("/v1/dlq/nowhere/replay", "{}")] {
        let error = answer.fails(404, "not_found");
        assert!(error["message"].as_str().unwrap().contains("nowhere"), "{error}");
    }
    // The letters of a topic outlive it.
    let (site, _group) = with_letters(1);
    assert_eq!(site.api.delete("/v1/topics/t").status, 204);
    assert_eq!(listed(&site, "").len(), 1);
}

#[test]
fn the_list_says_what_was_replayed() {
    let (mut site, _group) = with_letters(3);
    let page = |site: &Site, query: &str| site.api.get(&format!("/v1/dlq/t{query}")).is(200);
    assert_eq!(page(&site, "")["replayed"], json!({}));
    let second = letters(&site, "t")[1]["id"].as_str().unwrap().to_owned();
    replay(&site, &json!({"ids": [second], "dry_run": true}));
    assert_eq!(page(&site, "")["replayed"], json!({}), "a dry run replays nothing");
    replay(&site, &json!({"ids": [second]}));
    assert_eq!(page(&site, "")["replayed"], json!({second.as_str(): true}));
    site.crash();
    let first = page(&site, "?limit=1");
    assert_eq!(first["replayed"], json!({}), "it is about the letters of the page");
    let next = encoded(first["next"].as_str().unwrap());
    assert_eq!(page(&site, &format!("?limit=1&cursor={next}"))["replayed"], json!({second.as_str(): true}));
    let plain = site.api.page("dlq.t", "").is(200);
    assert!(plain.get("replayed").is_none() && plain["events"] == page(&site, "")["events"], "{plain}");
}

#[test]
fn the_list_can_be_of_one_group_or_filtered() {
    let (site, _group) = with_letters(3);
    let other = Group::of(&site, "t", "other");
    other.make(&json!({"from": "earliest", "maxAttempts": 1}));
    give_up(&other, 3);
    wait_for_letters(&site, "t", 6);
    assert_eq!(listed(&site, "").len(), 6);
    let of_other = listed(&site, "?group=other");
    assert_eq!(of_other.len(), 3);
    assert!(of_other.iter().all(|one| one.to_string().contains("\"group\":\"other\"")), "{of_other:?}");
    assert_eq!(listed(&site, "?group=none").len(), 0);
    assert_eq!(listed(&site, &format!("?filter={}", encoded(&about(1)))).len(), 2);
    assert_eq!(listed(&site, &format!("?group=g&filter={}", encoded(&about(1)))).len(), 1);
    assert_eq!(listed(&site, &format!("?filter={}", encoded(&about(99)))).len(), 0);
}

#[test]
fn a_replay_goes_to_the_group_that_failed_and_to_no_other() {
    let (site, group) = with_letters(2);
    let other = Group::of(&site, "t", "other");
    other.consume(&json!({"from": "earliest"}), 2);
    let originals = site.api.all("t", "");
    let answer = replay(&site, &json!({}));
    assert_eq!((&answer["matched"], &answer["replayed"]), (&json!(2), &json!(2)));
    assert_eq!(answer["skipped"], json!([]));
    let got = group.gather(&json!({}), 2);
    assert_eq!(sorted_numbers(&got), [0, 1]);
    for one in &got {
        assert_eq!(attempt(one), 1);
        assert!(originals.contains(&one["event"]), "{one}");
    }
    other.nothing(json!({}));
    // Nothing was published again.
    assert_eq!(site.api.all("t", "").len(), 2);
    group.ack(&got);
    group.nothing(json!({}));
    group.is_done();
    assert_eq!(letters(&site, "t").len(), 2);
}

#[test]
fn attempts_are_counted_anew_after_a_replay() {
    let site = Site::start();
    publish(&site.api, "t", 0..1);
    let group = Group::of(&site, "t", "g");
    group.make(&json!({"from": "earliest", "maxAttempts": 2, "backoffMs": 1}));
    for round in 1..=2 {
        for wanted in 1..=2 {
            let got = group.one(json!({}));
            assert_eq!(attempt(&got), wanted, "{round}");
            group.nack(&got);
        }
        let all = wait_for_letters(&site, "t", round);
        assert_eq!(all[round - 1]["payload"]["attempts"], 2);
        if round == 1 {
            assert_eq!(replay(&site, &json!({"to": "group"}))["replayed"], 1);
        }
    }
    group.nothing(json!({}));
}

#[test]
fn a_waiting_pull_gets_a_replay() {
    let (site, group) = with_letters(1);
    let waiting = {
        let group = group.clone();
        std::thread::spawn(move || group.pull(&json!({"waitMs": 10_000})))
    };
    replay(&site, &json!({}));
    let got = waiting.join().unwrap();
    assert_eq!(numbers(&got), [0]);
    group.ack(&got);
}

#[test]
fn a_replayed_event_can_be_nacked_and_expire_like_any_other() {
    let site = Site::start();
    publish_keys(&site.api, "t", 0, &["k", "k"]);
    let group = Group::of(&site, "t", "g");
    group.make(&json!({"from": "earliest", "maxAttempts": 2, "backoffMs": 1, "ackTimeoutMs": 1000}));
    for _ in 0..2 {
        group.nack(&group.one(json!({})));
    }
    wait_for_letters(&site, "t", 1);
    let next = group.take(json!({}));
    group.accepted(&groups_support::acks(&next));
    replay(&site, &json!({}));
    // It expires once, and is then done.
    eventually("the replayed one comes a second time, and is acked", || {
        let got = group.pull(&json!({"waitMs": 2000}));
        let second: Vec<Value> =
            got.into_iter().filter(|one| number(one) == 0 && attempt(one) == 2).collect();
        !second.is_empty() && group.accepted(&groups_support::acks(&second)) == [true]
    });
}

#[test]
fn a_replay_to_the_topic_is_for_everyone() {
    let site = Site::start();
    publish_keys(&site.api, "t", 0, &["k"]);
    let group = Group::of(&site, "t", "g");
    group.make(&json!({"from": "earliest", "maxAttempts": 1}));
    let other = Group::of(&site, "t", "other");
    other.consume(&json!({"from": "earliest"}), 1);
    let original = give_up(&group, 1)[0]["event"].clone();
    let letter = wait_for_letters(&site, "t", 1)[0].clone();
    let answer = replay(&site, &json!({"to": "topic"}));
    assert_eq!((&answer["matched"], &answer["replayed"]), (&json!(1), &json!(1)));
    let all = site.api.all("t", "");
    assert_eq!(all.len(), 2, "{all:?}");
    let again = &all[1];
    assert_ne!(again["id"], original["id"]);
    assert_eq!((&again["payload"], &again["key"]), (&original["payload"], &original["key"]));
    let causes = again["caused_by"].as_array().unwrap();
    assert!(causes.contains(&original["id"]) && causes.contains(&letter["id"]), "{again}");
    assert_eq!(again["headers"]["x-dlq-replays"], "1");
    for group in [&group, &other] {
        let got = group.one(json!({}));
        assert_eq!((&got["event"]["id"], attempt(&got)), (&again["id"], 1));
        group.ack(&[got]);
    }
}

#[test]
fn a_replay_to_the_topic_keeps_the_headers_of_the_original() {
    let site = Site::start();
    let event = json!({"payload": {"n": 0}, "headers": {"x-a": "b"}, "tags": ["#x"], "sid": "s"});
    publish_all(&site.api, "t", &[event]);
    let group = Group::of(&site, "t", "g");
    group.make(&json!({"from": "earliest", "maxAttempts": 1}));
    give_up(&group, 1);
    wait_for_letters(&site, "t", 1);
    replay(&site, &json!({"to": "topic"}));
    let again = site.api.all("t", "")[1].clone();
    assert_eq!(again["headers"], json!({"x-a": "b", "x-dlq-replays": "1"}));
}

#[test]
fn a_dry_run_only_tells() {
    let (site, group) = with_letters(3);
    for to in ["group", "topic"] {
        let answer = replay(&site, &json!({"to": to, "dry_run": true}));
        assert_eq!(answer["matched"], 3);
        // It may tell what would be done, or what was done.
        assert!(matches!(answer["replayed"].as_u64(), Some(0 | 3)), "{answer}");
    }
    group.nothing(json!({}));
    assert_eq!(site.api.all("t", "").len(), 3);
    // And all can still be replayed.
    assert_eq!(replay(&site, &json!({}))["replayed"], 3);
    assert_eq!(sorted_numbers(&group.gather(&json!({}), 3)), [0, 1, 2]);
}

#[test]
fn a_replay_can_be_of_some_by_id() {
    let (site, group) = with_letters(4);
    let all = letters(&site, "t");
    let wanted: Vec<&Value> =
        all.iter().filter(|one| one["payload"]["original"]["payload"]["n"] != 0).take(2).collect();
    let ids: Vec<&Value> = wanted.iter().map(|one| &one["id"]).collect();
    let answer = replay(&site, &json!({"ids": ids}));
    assert_eq!((&answer["matched"], &answer["replayed"]), (&json!(2), &json!(2)));
    let mut expected: Vec<u64> =
        wanted.iter().map(|one| one["payload"]["original"]["payload"]["n"].as_u64().unwrap()).collect();
    expected.sort_unstable();
    assert_eq!(sorted_numbers(&group.gather(&json!({}), 2)), expected);
    group.nothing(json!({}));
    let none = replay(&site, &json!({"ids": ["0198c0de-0000-7000-8000-000000000001"]}));
    assert_eq!(none["replayed"], 0);
    assert_eq!(replay(&site, &json!({"ids": []}))["replayed"], 0);
}

#[test]
fn a_replay_can_be_limited_and_goes_on_where_it_was() {
    let (site, group) = with_letters(5);
    assert_eq!(replay(&site, &json!({"limit": 2}))["replayed"], 2);
    let first = group.gather(&json!({}), 2);
    group.nothing(json!({}));
    assert_eq!(replay(&site, &json!({}))["replayed"], 3);
    let rest = group.gather(&json!({}), 3);
    assert_eq!(sorted_numbers(&[first, rest].concat()), [0, 1, 2, 3, 4]);
}

#[test]
fn a_replay_can_be_of_one_group_or_filtered() {
    let (site, group) = with_letters(3);
    let other = Group::of(&site, "t", "other");
    other.make(&json!({"from": "earliest", "maxAttempts": 1}));
    give_up(&other, 3);
    wait_for_letters(&site, "t", 6);
    let answer = replay(&site, &json!({"group": "other", "filter": about(2)}));
    assert_eq!((&answer["matched"], &answer["replayed"]), (&json!(1), &json!(1)));
    assert_eq!(numbers(&other.gather(&json!({}), 1)), [2]);
    group.nothing(json!({}));
    assert_eq!(replay(&site, &json!({"group": "g"}))["replayed"], 3);
    assert_eq!(group.gather(&json!({}), 3).len(), 3);
    other.nothing(json!({}));
    assert_eq!(replay(&site, &json!({"filter": about(77)}))["matched"], 0);
    assert_eq!(replay(&site, &json!({"group": "none"}))["replayed"], 0);
}

#[test]
fn what_was_replayed_is_not_replayed_again_without_force() {
    let (site, group) = with_letters(2);
    let ids: Vec<Value> = letters(&site, "t").iter().map(|one| one["id"].clone()).collect();
    assert_eq!(replay(&site, &json!({"ids": [ids[0]]}))["replayed"], 1);
    let answer = replay(&site, &json!({}));
    assert_eq!(answer["replayed"], 1);
    assert_eq!(skipped(&answer), [&ids[0]]);
    group.consume(&json!({}), 2);
    for to in ["group", "topic"] {
        let again = replay(&site, &json!({"to": to}));
        assert_eq!((&again["replayed"], skipped(&again).len()), (&json!(0), 2));
    }
    group.nothing(json!({}));
    assert_eq!(site.api.all("t", "").len(), 2);
    assert_eq!(replay(&site, &json!({"force": true, "ids": [ids[1]]}))["replayed"], 1);
    assert_eq!(group.consume(&json!({}), 1).len(), 1);
    group.nothing(json!({}));
}

/// Replays what has not been replayed, and lets it fail, until no more is replayed; answers how often it was.
fn replay_until_left_alone(site: &Site, group: &Group, to: &str) -> usize {
    for round in 0..5 {
        let answer = replay(site, &json!({"to": to}));
        if answer["replayed"] == 0 {
            assert!(!skipped(&answer).is_empty(), "{answer}");
            return round;
        }
        assert_eq!(answer["replayed"], 1, "{answer}");
        give_up(group, 1);
        wait_for_letters(site, "t", round + 2);
    }
    panic!("it is replayed for ever");
}

#[test]
fn an_event_that_came_back_three_times_is_left_alone() {
    for to in ["group", "topic"] {
        let (site, group) = with_letters(1);
        let rounds = replay_until_left_alone(&site, &group, to);
        // The first failure may be taken to be the first time that it came back.
        assert!(matches!(rounds, 2 | 3), "{to}: {rounds}");
        group.nothing(json!({}));
        let last = letters(&site, "t").last().unwrap()["id"].clone();
        assert_eq!(replay(&site, &json!({"to": to, "ids": [last]}))["replayed"], 0);
        assert_eq!(replay(&site, &json!({"to": to, "ids": [last], "force": true}))["replayed"], 1);
        group.consume(&json!({}), 1);
        group.is_done();
    }
}

#[test]
fn replays_to_the_topic_are_counted_in_the_header() {
    let (site, group) = with_letters(1);
    for wanted in ["1", "2"] {
        assert_eq!(replay(&site, &json!({"to": "topic"}))["replayed"], 1);
        let got = give_up(&group, 1);
        assert_eq!(got[0]["event"]["headers"]["x-dlq-replays"], wanted);
        wait_for_letters(&site, "t", wanted.parse::<usize>().unwrap() + 1);
    }
}

#[test]
fn a_replay_for_a_group_that_is_gone_is_skipped() {
    let (site, group) = with_letters(1);
    group.delete();
    let answer = replay(&site, &json!({}));
    assert_eq!((&answer["replayed"], skipped(&answer).len()), (&json!(0), 1));
    site.api.get(&group.path("")).fails(404, "not_found");
    // To the topic it can still go.
    assert_eq!(replay(&site, &json!({"to": "topic"}))["replayed"], 1);
    assert_eq!(site.api.all("t", "").len(), 2);
}

#[test]
fn dead_letters_are_counted() {
    let (site, _group) = with_letters(3);
    let labels = [("topic", "t"), ("group", "g")];
    assert_eq!(metric(&site.api, "events_dead_lettered_total", &labels), Some(3.0));
}

#[test]
fn only_what_failed_is_a_dead_letter_in_a_crowd() {
    let site = Site::start();
    publish(&site.api, "t", 0..60);
    let group = Group::of(&site, "t", "g");
    group.make(&json!({"from": "earliest", "maxAttempts": 2, "backoffMs": 1}));
    let got = group.gather(&json!({}), 60);
    let (bad, good): (Vec<Value>, Vec<Value>) = got.into_iter().partition(|one| number(one) % 10 == 3);
    let tokens: Vec<Value> =
        bad.iter().map(|one| json!({"lease": groups_support::lease(one), "reason": "no"})).collect();
    let all = json!({"ack": groups_support::acks(&good)["ack"], "nack": tokens});
    assert!(group.accepted(&all).iter().all(|ok| *ok));
    let again = group.gather(&json!({}), 6);
    // One recovers, the others do not.
    group.ack(&[numbered(&again, 3).clone()]);
    for one in again.iter().filter(|one| number(one) != 3) {
        group.nack(one);
    }
    let dead = wait_for_letters(&site, "t", 5);
    let mut dead: Vec<u64> =
        dead.iter().map(|one| one["payload"]["original"]["payload"]["n"].as_u64().unwrap()).collect();
    dead.sort_unstable();
    assert_eq!(dead, [13, 23, 33, 43, 53]);
    group.is_done();
}

#[test]
fn letters_of_a_projection_are_apart_from_those_of_a_group() {
    let site = Site::start();
    let strict = json!({"topic": "t", "collection": "c", "key": "event.payload.id"});
    site.api.put("/v1/projections/p", &strict.to_string()).is(201);
    let group = Group::of(&site, "t", "p");
    group.make(&json!({"from": "earliest"}));
    publish(&site.api, "t", 0..1);
    group.one(json!({}));
    let letter = wait_for_letters(&site, "t", 1).remove(0);
    assert_eq!(fields(&letter["payload"]), ["attempts", "err", "original", "projection", "topic", "ts"]);
    assert_eq!(letter["payload"]["projection"], "p");
    assert_eq!((listed(&site, "?projection=p").len(), listed(&site, "?group=p").len()), (1, 0));
    site.api.get("/v1/dlq/t?group=p&projection=p").is(400);
    assert_eq!(replay(&site, &json!({"group": "p"}))["matched"], 0);
    let lenient = json!({"topic": "t", "collection": "c", "key": "'none'"});
    site.api.put("/v1/projections/p", &lenient.to_string()).is(200);
    let answer = replay(&site, &json!({"projection": "p"}));
    assert_eq!((&answer["matched"], &answer["replayed"]), (&json!(1), &json!(1)), "{answer}");
    assert_eq!(site.api.get("/v1/collections/c/snap/none").is(200)["n"], 0);
    let answer = replay(&site, &json!({"projection": "p", "force": true}));
    assert_eq!((&answer["replayed"], answer["skipped"].as_array().unwrap().len()), (&json!(0), 1));
}
