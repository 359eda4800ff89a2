//! Commits: acks, writes and publishes that all happen or none, what each write does, and doing it once.

use crate::contract_support::{Answer, Api, Call, Site, now};
use crate::groups_support;
use crate::groups_support::{Group, acks, lease, nack, number, publish, publish_keys};
use crate::state_support;
use crate::state_support::{
    changelog, commit, committed, content, counter, define, doc, events_of, exists, is_missing, list,
    on_both_stores, put, put_all, snap, try_call, versions, with, write,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const ID: &str = "6f2d5a3e-8c1b-4d7f-9a60-1b2c3d4e5f60";

/// A site with so many events in `t`, and a group that has pulled them all.
fn pulled(count: u64) -> (Site, Group, Vec<Value>) {
    let site = Site::start();
    publish(&site.api, "t", 0..count);
    let group = Group::of(&site, "t", "g");
    let got = group.gather(&json!({"from": "earliest"}), usize::try_from(count).unwrap());
    (site, group, got)
}

/// A commit of one write.
#[track_caller]
fn one(api: &Api, write: Value) -> Answer {
    commit(api, &json!({"writes": [write]}))
}

#[test]
fn acks_writes_and_publishes_happen_together() {
    on_both_stores(|api| {
        publish(api, "t", 0..2);
        let group = Group { api: api.clone(), topic: "t".to_owned(), name: "g".to_owned() };
        let got = group.gather(&json!({"from": "earliest"}), 2);
        let mut body = acks(&got);
        body["writes"] =
            json!([write("c", "k", "set", json!({"a": 1})), write("d", "k", "inc", json!({"n": 2}))]);
        body["publish"] = json!([
            {"topic": "out", "payload": {"x": 1}, "key": "k", "ts": 1000, "sid": "s", "headers": {"x-a": "b"}, "tags": ["y"]},
            {"topic": "other", "payload": null},
        ]);
        let answer = committed(api, &body);
        let events = answer["events"].as_array().unwrap();
        assert_eq!(events.len(), 2, "{answer}");
        for (told, topic) in events.iter().zip(["out", "other"]) {
            let event = &api.all(topic, "")[0];
            for name in ["id", "topic", "partition", "offset", "ts"] {
                assert_eq!(told[name], event[name], "{name} of {answer}");
            }
        }
        let event = &api.all("out", "")[0];
        assert_eq!(
            (&event["payload"], &event["key"], &event["ts"]),
            (&json!({"x": 1}), &json!("k"), &json!(1000))
        );
        assert_eq!(
            (&event["headers"]["x-a"], &event["tags"], &event["sid"]),
            (&json!("b"), &json!(["y"]), &json!("s"))
        );
        assert_eq!(versions(&answer), [1, 1]);
        assert_eq!(content(api, "c", "k"), json!({"a": 1}));
        assert_eq!(content(api, "d", "k"), json!({"n": 2}));
        group.is_done();
        group.nothing(json!({}));
    });
}

#[test]
fn each_part_works_alone() {
    let (site, group, got) = pulled(1);
    assert_eq!(committed(&site.api, &acks(&got)), json!({"events": [], "versions": {}}));
    group.is_done();
    let answer = committed(&site.api, &json!({"publish": [{"topic": "out", "payload": 1}]}));
    assert_eq!(answer["events"].as_array().unwrap().len(), 1);
    assert_eq!(versions(&put(&site.api, "c", "k", json!({}))), [1]);
    let empty = commit(&site.api, &json!({}));
    assert!(matches!(empty.status, 200 | 400), "{empty:?}");
    let empty = commit(&site.api, &json!({"ack": [], "writes": [], "publish": []}));
    assert!(matches!(empty.status, 200 | 400), "{empty:?}");
}

/// Tries a commit whose last part is refused, and finds that nothing of it happened.
#[track_caller]
fn fails_whole(bad: &Value, status: u16, code: &str) {
    let (site, group, got) = pulled(2);
    define(&site.api, "p", &changelog("u", "owned"));
    put(&site.api, "c", "old", json!({"a": 1}));
    site.api.events("out", &json!({"payload": "first", "id": ID, "key": "k"}).to_string()).is(201);
    let mut body = acks(&got);
    body["writes"] = json!([
        write("c", "new", "set", json!({})),
        write("c", "old", "delete", json!(true)),
        write("fresh", "k", "set", json!({})),
    ]);
    body["publish"] = json!([{"topic": "out", "payload": 1}, {"topic": "fresh.topic", "payload": 1}]);
    for (part, more) in bad.as_object().unwrap() {
        let all = body[part].as_array_mut().unwrap();
        all.extend(more.as_array().unwrap().iter().cloned());
    }
    commit(&site.api, &body).fails(status, code);
    assert_eq!(doc(&site.api, "c", "old")["_v"], 1, "{bad}");
    assert!(!exists(&site.api, "c", "new") && !exists(&site.api, "fresh", "k"), "{bad}");
    assert_eq!((events_of(&site.api, "out"), events_of(&site.api, "fresh.topic")), (1, 0), "{bad}");
    assert_eq!(group.partition(0)["in_flight"], 2, "{bad}");
    // The leases are as good as before.
    group.ack(&got);
    group.is_done();
}

#[test]
fn a_commit_that_fails_does_nothing_and_leaves_the_leases() {
    let conflict = with(write("c", "old", "set", json!({})), "if_version", json!(7));
    fails_whole(&json!({"writes": [conflict]}), 409, "version_conflict");
    fails_whole(&json!({"writes": [write("owned", "k", "set", json!({}))]}), 409, "not_owner");
    let taken = json!({"topic": "out", "payload": "other", "id": ID});
    fails_whole(&json!({"publish": [taken]}), 409, "id_conflict");
    let expecting = json!({"topic": "out", "payload": 1, "key": "k", "expect": {"last_id": null}});
    fails_whole(&json!({"publish": [expecting]}), 412, "expectation_failed");
    fails_whole(&json!({"publish": [{"topic": "Bad Topic", "payload": 1}]}), 400, "bad_request");
    fails_whole(&json!({"publish": [{"topic": "out"}]}), 400, "bad_request");
    fails_whole(&json!({"writes": [write("c", "x", "set", json!("text"))]}), 400, "bad_request");
}

#[test]
fn a_spent_lease_fails_the_commit() {
    let (site, group, got) = pulled(3);
    group.ack(&got[..1]);
    group.nack_for(&got[1], 60_000);
    for spent in [&got[0], &got[1]] {
        let body =
            json!({"ack": [lease(&got[2]), lease(spent)], "writes": [write("c", "k", "set", json!({}))]});
        commit(&site.api, &body).fails(409, "lease_expired");
        assert!(!exists(&site.api, "c", "k"));
    }
    commit(&site.api, &json!({"ack": ["no such lease"]})).fails_as(&[400, 409]);
    let body = json!({"ack": [lease(&got[2])], "writes": [write("c", "k", "set", json!({}))]});
    committed(&site.api, &body);
    // Repeating it is no success, for it would do the rest again.
    commit(&site.api, &body).fails(409, "lease_expired");
    assert_eq!(doc(&site.api, "c", "k")["_v"], 1);
}

#[test]
fn an_expired_lease_fails_the_commit() {
    let site = Site::start();
    publish(&site.api, "t", 0..1);
    let group = Group::of(&site, "t", "g");
    let old = group.one(json!({"from": "earliest", "ackTimeoutMs": 300, "maxAttempts": 50}));
    let new = group.one(json!({}));
    let body =
        |one: &Value| json!({"ack": [lease(one)], "writes": [write("c", "k", "inc", json!({"n": 1}))]});
    commit(&site.api, &body(&old)).fails(409, "lease_expired");
    assert!(!exists(&site.api, "c", "k"));
    // The new one may have run out meanwhile.
    let mut last = new;
    while commit(&site.api, &body(&last)).status == 409 {
        last = group.one(json!({}));
    }
    assert_eq!(content(&site.api, "c", "k"), json!({"n": 1}));
}

#[test]
fn acks_of_several_groups_and_topics_go_together() {
    let site = Site::start();
    let mut leases = Vec::new();
    let groups = [("t", "g"), ("t", "h"), ("u", "g")].map(|(topic, name)| Group::of(&site, topic, name));
    publish(&site.api, "t", 0..2);
    publish(&site.api, "u", 0..2);
    for group in &groups {
        let got = group.gather(&json!({"from": "earliest"}), 2);
        leases.extend(got.iter().map(|one| lease(one).to_owned()));
    }
    committed(&site.api, &json!({"ack": leases}));
    for group in &groups {
        group.is_done();
        group.nothing(json!({}));
    }
}

#[test]
fn set_replaces_and_versions_count_from_one() {
    on_both_stores(|api| {
        let before = now();
        for (n, document) in
            (1..).zip([json!({"a": 1, "b": 2}), json!({"b": 3}), json!({}), json!({"c": [1]})])
        {
            assert_eq!(versions(&put(api, "c", "k", document.clone())), [n]);
            let stored = doc(api, "c", "k");
            assert_eq!(stored["_v"], n);
            assert!((before - 1000..=now() + 1000).contains(&stored["_ts"].as_i64().unwrap()), "{stored}");
            assert_eq!(content(api, "c", "k"), document);
        }
        put(api, "c", "other", json!({}));
        assert_eq!(doc(api, "c", "other")["_v"], 1);
    });
}

#[test]
fn merge_is_a_merge_patch() {
    let site = Site::start();
    let cases = [
        (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
        (json!({"a": "b"}), json!({"a": null}), json!({})),
        (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
        (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
        (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
        (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
        (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
        (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        (json!({"a": 1}), json!({"a": {"x": 1, "y": null}}), json!({"a": {"x": 1}})),
        (json!({"a": 1}), json!({}), json!({"a": 1})),
    ];
    for (place, (target, patch, result)) in cases.iter().enumerate() {
        let key = place.to_string();
        put(&site.api, "c", &key, target.clone());
        one(&site.api, write("c", &key, "merge", patch.clone())).is(200);
        assert_eq!(&content(&site.api, "c", &key), result, "{target} and {patch}");
        assert_eq!(doc(&site.api, "c", &key)["_v"], 2);
    }
    one(&site.api, write("c", "new", "merge", json!({"a": null, "b": {"c": null, "d": 1}}))).is(200);
    assert_eq!(content(&site.api, "c", "new"), json!({"b": {"d": 1}}));
    assert_eq!(doc(&site.api, "c", "new")["_v"], 1);
}

#[test]
fn inc_adds_and_keeps_the_rest() {
    on_both_stores(|api| {
        let inc = |by: Value| one(api, write("c", "k", "inc", by));
        inc(json!({"n": 5})).is(200);
        assert_eq!(content(api, "c", "k"), json!({"n": 5}));
        inc(json!({"n": -7, "m": 1})).is(200);
        assert_eq!(content(api, "c", "k"), json!({"n": -2, "m": 1}));
        inc(json!({"x": 0.5})).is(200);
        inc(json!({"x": 1.5, "n": 9_007_199_254_740_993_i64})).is(200);
        let document = doc(api, "c", "k");
        assert_eq!((&document["_v"], &document["n"]), (&json!(4), &json!(9_007_199_254_740_991_i64)));
        assert_eq!(document["x"].as_f64(), Some(2.0));
        put(api, "c", "text", json!({"n": "five"}));
        let answer = one(api, write("c", "text", "inc", json!({"n": 1})));
        answer.fails_as(&[400, 409, 422]);
        assert_eq!(doc(api, "c", "text")["_v"], 1);
    });
}

#[test]
fn a_counter_at_its_end_does_not_turn_over() {
    let site = Site::start();
    put(&site.api, "c", "k", json!({"n": i64::MAX}));
    let answer = one(&site.api, write("c", "k", "inc", json!({"n": 1})));
    let now = doc(&site.api, "c", "k")["n"].clone();
    match answer.status {
        200 => assert!(now.as_f64().unwrap() >= 9.2e18, "{now}"),
        _ => {
            answer.fails_as(&[400, 409, 422]);
            assert_eq!(now, i64::MAX);
        }
    }
}

#[test]
fn delete_deletes_and_the_next_is_the_first_again() {
    on_both_stores(|api| {
        put(api, "c", "k", json!({"a": 1}));
        put(api, "c", "k", json!({"a": 2}));
        one(api, write("c", "k", "delete", json!(true))).is(200);
        is_missing(api, "c", "k");
        assert_eq!(list(api, "c", "")["count"], 0);
        one(api, write("c", "k", "delete", json!(true))).is(200);
        put(api, "c", "k", json!({"a": 3}));
        assert_eq!(doc(api, "c", "k")["_v"], 1);
    });
}

#[test]
fn a_version_that_does_not_hold_is_a_conflict() {
    on_both_stores(|api| {
        let set = |version: Value| one(api, with(write("c", "k", "set", json!({})), "if_version", version));
        set(json!(1)).fails(409, "version_conflict");
        is_missing(api, "c", "k");
        set(json!(0)).is(200);
        set(json!(0)).fails(409, "version_conflict");
        set(json!(2)).fails(409, "version_conflict");
        set(json!(1)).is(200);
        set(json!(1)).fails(409, "version_conflict");
        assert_eq!(doc(api, "c", "k")["_v"], 2);
        for verb in [("merge", json!({})), ("inc", json!({"n": 1})), ("delete", json!(true))] {
            let stale = with(write("c", "k", verb.0, verb.1.clone()), "if_version", json!(1));
            one(api, stale).fails(409, "version_conflict");
        }
        one(api, with(write("c", "k", "delete", json!(true)), "if_version", json!(2))).is(200);
        set(json!(2)).fails(409, "version_conflict");
        set(json!(0)).is(200);
        assert_eq!(doc(api, "c", "k")["_v"], 1);
    });
}

#[test]
fn of_many_who_expect_the_same_version_one_wins() {
    let site = Site::start();
    for round in 0..10 {
        let won = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for n in 0..4 {
                let (api, won) = (&site.api, &won);
                scope.spawn(move || {
                    let mine = with(write("c", "k", "set", json!({"by": n})), "if_version", json!(round));
                    match one(api, mine).status {
                        200 => drop(won.fetch_add(1, Ordering::AcqRel)),
                        status => assert_eq!(status, 409),
                    }
                });
            }
        });
        assert_eq!(won.into_inner(), 1);
        assert_eq!(doc(&site.api, "c", "k")["_v"], round + 1);
    }
}

#[test]
fn of_two_commits_with_one_lease_one_wins() {
    let (site, group, got) = pulled(20);
    for delivery in &got {
        let statuses = std::thread::scope(|scope| {
            let both: Vec<_> = (0..2)
                .map(|_| {
                    let body = json!({"ack": [lease(delivery)], "writes": [write("c", "k", "inc", json!({"n": 1}))]});
                    let api = &site.api;
                    scope.spawn(move || commit(api, &body))
                })
                .collect();
            let mut both: Vec<u16> = both.into_iter().map(|one| one.join().unwrap().status).collect();
            both.sort_unstable();
            both
        });
        assert_eq!(statuses, [200, 409]);
    }
    assert_eq!(content(&site.api, "c", "k"), json!({"n": 20}));
    group.is_done();
}

#[test]
fn the_same_commit_id_answers_the_same_and_does_nothing() {
    let (mut site, _, got) = pulled(1);
    let mut body = acks(&got);
    body["commit_id"] = json!("order-7");
    body["writes"] = json!([write("c", "k", "inc", json!({"n": 1}))]);
    body["publish"] = json!([{"topic": "out", "payload": 1}]);
    let first = commit(&site.api, &body);
    first.is(200);
    for round in 0..3 {
        let again = commit(&site.api, &body);
        assert_eq!(again.is(200), first.json(), "{round}");
        assert_eq!(content(&site.api, "c", "k"), json!({"n": 1}));
        assert_eq!(events_of(&site.api, "out"), 1);
        if round == 0 { site.crash() } else { site.restart() }
    }
    body["commit_id"] = json!("order-8");
    commit(&site.api, &body).fails(409, "lease_expired");
    body["ack"] = json!([]);
    committed(&site.api, &body);
    assert_eq!(content(&site.api, "c", "k"), json!({"n": 2}));
}

#[test]
fn of_many_with_one_commit_id_one_does_it_and_all_hear_the_same() {
    let site = Site::start();
    let body = json!({
        "commit_id": "x", "writes": [write("c", "k", "inc", json!({"n": 1}))], "publish": [{"topic": "out", "payload": 1}],
    });
    let answers: Vec<Value> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..6).map(|_| scope.spawn(|| commit(&site.api, &body).is(200))).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert!(answers.iter().all(|one| one == &answers[0]), "{answers:?}");
    assert_eq!((content(&site.api, "c", "k"), events_of(&site.api, "out")), (json!({"n": 1}), 1));
}

#[test]
fn nobody_sees_half_of_a_commit() {
    on_both_stores(|api| {
        let inc = |key: &str| write("c", key, "inc", json!({"n": 1}));
        let body = json!({"writes": [inc("x"), inc("y"), write("d", "z", "inc", json!({"n": 1}))]});
        let go_on = AtomicBool::new(true);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                while go_on.load(Ordering::Acquire) {
                    if !exists(api, "c", "x") {
                        continue;
                    }
                    let items = list(api, "c", "")["items"].as_array().unwrap().clone();
                    assert!(items.len() == 2 && items[0]["n"] == items[1]["n"], "half of it: {items:?}");
                    let (x, z) = (counter(api, "c", "x", "n"), counter(api, "d", "z", "n"));
                    assert!(z >= x, "z had {z} after x had {x}");
                    let (z, x) = (counter(api, "d", "z", "n"), counter(api, "c", "x", "n"));
                    assert!(x >= z, "x had {x} after z had {z}");
                }
            });
            for _ in 0..150 {
                committed(api, &body);
            }
            go_on.store(false, Ordering::Release);
            reader.join().unwrap();
        });
        assert_eq!(counter(api, "d", "z", "n"), 150);
    });
}

#[test]
fn what_was_committed_is_there_after_kill_9() {
    let mut site = Site::start();
    publish(&site.api, "t", 0..10);
    Group::of(&site, "t", "g").make(&json!({"from": "earliest", "ordering": "none"}));
    for n in 0..5_usize {
        let group = Group::of(&site, "t", "g");
        let got = group.one(json!({}));
        let body = json!({
            "ack": [lease(&got)], "writes": [write("c", &number(&got).to_string(), "set", json!({"n": n}))],
            "publish": [{"topic": "out", "payload": n}],
        });
        let told = committed(&site.api, &body);
        site.crash();
        assert_eq!(doc(&site.api, "c", &number(&got).to_string())["n"], n);
        let events = site.api.all("out", "");
        assert_eq!((events.len(), &events[n]["id"]), (n + 1, &told["events"][0]["id"]));
    }
    let group = Group::of(&site, "t", "g");
    let rest = group.gather(&json!({}), 5);
    assert!(rest.iter().all(|one| !exists(&site.api, "c", &number(one).to_string())));
    assert_eq!(group.accepted(&nack(&rest[0], &json!({}))), [true]);
}

/// Pulls and commits until the hub is gone; keeps the commit of which it does not know.
fn work_until_gone(api: &Api, commits: &AtomicU64, unsure: &mut Option<Value>) {
    loop {
        if let Some(body) = unsure.take() {
            // Asked again under the same name, it is known whether it was done.
            match try_call(api, "POST", "/v1/commit", &body.to_string()) {
                Some(answer) => assert!(matches!(answer.status, 200 | 409), "{answer:?}"),
                None => return *unsure = Some(body),
            }
        }
        let Some(answer) = try_call(api, "POST", "/v1/topics/t/groups/g/pull", r#"{"max":7,"waitMs":200}"#)
        else {
            return;
        };
        let got = groups_support::deliveries(&answer);
        if got.is_empty() {
            return;
        }
        let count = commits.fetch_add(1, Ordering::AcqRel);
        let writes: Vec<Value> = got
            .iter()
            .flat_map(|one| {
                let n = number(one);
                [
                    write("seen", &n.to_string(), "inc", json!({"n": 1})),
                    write("sum", &(n % 5).to_string(), "inc", json!({"n": 1})),
                ]
            })
            .collect();
        let mut body = acks(&got);
        body["writes"] = json!(writes);
        body["commit_id"] = json!(format!("{count}-{}", lease(&got[0])));
        body["publish"] = json!([{"topic": "out", "payload": got.len()}]);
        *unsure = Some(body);
    }
}

#[test]
fn a_consumer_that_commits_counts_every_event_exactly_once_through_kills() {
    const EVENTS: u64 = 1000;
    let mut site = Site::start();
    publish(&site.api, "t", 0..EVENTS);
    Group::of(&site, "t", "g").make(&json!({"from": "earliest", "maxAttempts": 100}));
    let mut unsure = [None, None];
    let commits = AtomicU64::new(0);
    for kills in [3, 20, 45, 60, 90] {
        std::thread::scope(|scope| {
            for unsure in &mut unsure {
                let (api, commits) = (&site.api, &commits);
                scope.spawn(move || work_until_gone(api, commits, unsure));
            }
            groups_support::eventually("it is in the middle", || commits.load(Ordering::Acquire) >= kills);
            site.hub().signal(Signal::KILL);
        });
        site.crash();
    }
    for unsure in &mut unsure {
        work_until_gone(&site.api, &commits, unsure);
        assert!(unsure.is_none());
    }
    Group::of(&site, "t", "g").is_done();
    let seen = state_support::list_all(&site.api, "seen", "limit=1000");
    assert!(seen.len() == 1000 && seen.iter().all(|one| one["n"] == 1), "{} are not 1,000 once", seen.len());
    for key in 0..5 {
        assert_eq!(counter(&site.api, "sum", &key.to_string(), "n"), 200);
    }
    let sizes: u64 =
        site.api.all("out", "limit=1000").iter().map(|one| one["payload"].as_u64().unwrap()).sum();
    assert_eq!(sizes, EVENTS);
}

#[test]
fn what_is_wrong_in_a_commit_is_refused() {
    let site = Site::start();
    let good = write("c", "k", "set", json!({}));
    for bad in [
        json!({"write": [good]}),
        json!({"ack": "x"}),
        json!({"ack": [7]}),
        json!({"writes": good}),
        json!({"commit_id": 7, "writes": [good]}),
        json!({"writes": [{"collection": "c", "key": "k"}]}),
        json!({"writes": [{"collection": "c", "set": {}}]}),
        json!({"writes": [{"key": "k", "set": {}}]}),
        json!({"writes": [with(good.clone(), "inc", json!({"n": 1}))]}),
        json!({"writes": [with(good.clone(), "delete", json!(true))]}),
        json!({"writes": [with(good.clone(), "iff_version", json!(1))]}),
        json!({"writes": [with(good.clone(), "if_version", json!(-1))]}),
        json!({"writes": [with(good.clone(), "if_version", json!("1"))]}),
        json!({"writes": [with(good.clone(), "if_version", json!(1.5))]}),
        json!({"writes": [with(good.clone(), "key", json!(7))]}),
        json!({"writes": [with(good.clone(), "key", json!("k".repeat(2000)))]}),
        json!({"writes": [write("c", "k", "set", json!([1]))]}),
        json!({"writes": [write("c", "k", "set", json!(null))]}),
        json!({"writes": [write("c", "k", "merge", json!("x"))]}),
        json!({"writes": [write("c", "k", "inc", json!({"n": "1"}))]}),
        json!({"writes": [write("c", "k", "inc", json!(1))]}),
        json!({"publish": [{"payload": 1}]}),
        json!({"publish": [{"topic": "t", "payload": 1, "colour": "red"}]}),
        json!({"publish": [{"topic": "dlq.t", "payload": 1}]}),
        json!({"publish": [{"topic": "system.x", "payload": 1}]}),
        json!([]),
        json!("x"),
    ] {
        let answer = commit(&site.api, &bad);
        assert!(matches!(answer.status, 400 | 403 | 413), "{bad}: {} {}", answer.status, answer.text());
        answer.is_error();
    }
    site.api.post("/v1/commit", "{").fails(400, "bad_json");
    site.api.call(&Call::new("GET", "/v1/commit")).fails(405, "method_not_allowed");
    site.api.get(&snap("c", "k")).fails(404, "not_found");
    assert_eq!(events_of(&site.api, "t"), 0);
}

#[test]
fn a_commit_that_is_too_large_is_refused_whole() {
    let site = Site::start();
    let text = "x".repeat(900_000);
    let writes: Vec<Value> =
        (0..10).map(|n| write("c", &n.to_string(), "set", json!({"text": text}))).collect();
    commit(&site.api, &json!({"writes": writes})).fails(413, "too_large");
    is_missing(&site.api, "c", "0");
    let publish = vec![json!({"topic": "out", "payload": text}); 10];
    commit(&site.api, &json!({"publish": publish})).fails(413, "too_large");
    assert_eq!(events_of(&site.api, "out"), 0);
    put_all(&site.api, "c", &[("a", json!({"text": text})), ("b", json!({"text": text}))]);
}

#[test]
fn a_repeated_id_in_a_commit_is_a_duplicate() {
    let site = Site::start();
    let told = site.api.events("out", &json!({"payload": 1, "id": ID}).to_string()).is(201);
    let body = json!({"publish": [{"topic": "out", "payload": 1, "id": ID}], "writes": [write("c", "k", "set", json!({}))]});
    let answer = committed(&site.api, &body);
    assert_eq!(
        (&answer["events"][0]["duplicate"], &answer["events"][0]["offset"]),
        (&json!(true), &told["offset"])
    );
    assert_eq!(events_of(&site.api, "out"), 1);
    doc(&site.api, "c", "k");
}

#[test]
fn the_next_of_a_key_comes_after_the_commit() {
    let site = Site::start();
    publish_keys(&site.api, "t", 0, &["a", "a"]);
    let group = Group::of(&site, "t", "g");
    let first = group.one(json!({"from": "earliest"}));
    group.nothing(json!({}));
    committed(&site.api, &acks(&[first]));
    assert_eq!(number(&group.one(json!({}))), 1);
}

/// A document that takes nearly as much as one may.
fn large() -> Value {
    json!({"pad": "x".repeat((4 << 20) - 1_000)})
}

#[test]
fn what_a_commit_makes_is_bounded() {
    let site = Site::with_file("[limits]\nresult_bytes = 16777216\n");
    let keys = ["a", "b", "c", "d", "e"];
    keys.iter().for_each(|key| drop(put(&site.api, "c", key, large())));
    let bump = |key: &&str| write("c", key, "inc", json!({"n": 1}));
    let body = json!({
        "writes": keys.iter().map(bump).collect::<Vec<_>>(),
        "publish": [{"topic": "out", "payload": 1}],
    });
    let told = commit(&site.api, &body).fails(413, "too_large");
    assert_eq!(told["limit"], 16_777_216, "{told}");
    assert!(told["counted"].as_u64().unwrap() > 16_777_216, "{told}");
    assert!(told["message"].as_str().unwrap().contains("limits.result_bytes"), "{told}");
    assert_eq!(events_of(&site.api, "out"), 0, "nothing of it happened");
    let answer = commit(&site.api, &json!({"writes": vec![bump(&"a"); 1_025]}));
    assert_eq!(answer.status, 200, "many writes to one document are one change of it");
    assert_eq!(counter(&site.api, "c", "a", "n"), 1_025);
}

#[test]
fn a_counter_stays_within_64_bits() {
    on_both_stores(|api| {
        put(api, "c", "k", json!({"n": i64::MAX, "m": i64::MIN, "d": 0.5}));
        for (field, amount) in [("n", json!(1)), ("m", json!(-1)), ("n", json!(1_u64 << 63))] {
            let refused = one(api, write("c", "k", "inc", json!({"d": 1, (field): amount})));
            let told = refused.fails(400, "bad_request");
            assert!(told["message"].as_str().unwrap().contains("64-bit integers"), "{told}");
        }
        assert_eq!(content(api, "c", "k"), json!({"n": i64::MAX, "m": i64::MIN, "d": 0.5}));
        assert_eq!(one(api, write("c", "k", "inc", json!({"n": -1, "d": 1}))).status, 200);
        assert_eq!(content(api, "c", "k"), json!({"n": i64::MAX - 1, "m": i64::MIN, "d": 1.5}));
    });
}
