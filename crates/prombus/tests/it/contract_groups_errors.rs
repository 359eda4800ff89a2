//! What groups and dead letters do not take, and what they say to it.

use crate::contract_support::{CODES, Call, Site};
use crate::groups_support::{Group, acks, lease, numbers, publish};
use serde_json::{Value, json};

/// A site with a group that holds two events.
fn group() -> (Site, Group, Vec<Value>) {
    let site = Site::start();
    publish(&site.api, "t", 0..2);
    let group = Group::of(&site, "t", "g");
    let held = group.gather(&json!({"from": "earliest"}), 2);
    (site, group, held)
}

#[test]
fn unknown_fields_are_refused() {
    let (site, group, held) = group();
    let token = lease(&held[0]);
    for (rest, body) in [
        ("/pull", json!({"foo": 1})),
        ("/pull", json!({"maxinflight": 1})),
        ("/pull", json!({"wait_Ms": 1})),
        ("/pull", json!({"lease": "x"})),
        ("/ack", json!({"acks": []})),
        ("/ack", json!({"ack": [token], "x": 1})),
        ("/ack", json!({"nack": [{"lease": token, "delay": 1}]})),
        ("/ack", json!({"extend": [{"lease": token, "extend_ms": 1, "x": 1}]})),
        ("/skip", json!({"partition": 0, "offset": 0, "why": "x"})),
    ] {
        group.post(rest, &body).fails(400, "bad_request");
    }
    for body in [json!({"max": 1}), json!({"member": "a"}), json!({"x": 1})] {
        site.api.put(&group.path(""), &body.to_string()).fails(400, "bad_request");
    }
    group.set_cursor(&json!({"from": "earliest", "x": 1})).fails(400, "bad_request");
    site.api.post("/v1/dlq/t/replay", r#"{"dryrun":true}"#).fails(400, "bad_request");
    // Nothing of all that was done.
    group.ack(&held);
}

#[test]
fn one_request_names_only_so_many_leases() {
    const MOST: usize = 10_000;
    let (_site, group, held) = group();
    let token = lease(&held[0]);
    let extend = |count: usize| vec![json!({"lease": token, "extend_ms": 20_000}); count];
    for body in [
        json!({"ack": vec![token; MOST + 1]}),
        json!({"nack": vec![json!({"lease": token, "delay_ms": 1_000}); MOST + 1]}),
        json!({"extend": extend(MOST + 1)}),
        json!({"ack": [token], "nack": [{"lease": token}], "extend": extend(MOST - 1)}),
    ] {
        let answer = group.post("/ack", &body).fails(413, "too_large");
        assert_eq!(answer["limit"], MOST, "{answer}");
    }
    // Nothing of all that was done, and as many as there may be are: the same one over and over, too.
    let body = json!({"extend": extend(MOST - 1), "ack": [token]});
    let expected: Vec<bool> = (0..MOST).map(|n| n == 0).collect();
    assert_eq!(group.accepted(&body), expected, "the ack comes first");
    assert_eq!(
        group.accepted(&json!({"extend": vec![json!({"lease": lease(&held[1])}); MOST]})),
        [true; MOST]
    );
    group.ack(&held[1..]);
}

#[test]
fn wrong_types_are_refused() {
    let (_site, group, held) = group();
    let token = lease(&held[0]);
    for body in [
        json!({"max": "1"}),
        json!({"max": -1}),
        json!({"max": 1.5}),
        json!({"waitMs": "x"}),
        json!({"waitMs": -1}),
        json!({"member": 1}),
        json!({"batchSize": true}),
        json!({"maxInFlight": []}),
        json!({"mode": 1}),
        json!({"ordering": {}}),
        json!({"ackTimeoutMs": "30000"}),
        json!({"ackTimeoutMs": -5}),
        json!({"maxAttempts": 1.5}),
        json!({"backoffMs": []}),
        json!({"filter": 1}),
        json!({"normalize": "yes"}),
        json!({"ackWindow": "x"}),
        json!({"memberTtlMs": "x"}),
        json!([]),
        json!(1),
        json!("x"),
        json!(null),
    ] {
        group.post("/pull", &body).fails(400, "bad_request");
    }
    for body in [
        json!({"ack": token}),
        json!({"ack": [1]}),
        json!({"ack": [null]}),
        json!({"ack": [{"lease": token}]}),
        json!({"nack": [token]}),
        json!({"nack": [{}]}),
        json!({"nack": [{"lease": token, "delayMs": "5"}]}),
        json!({"nack": [{"lease": token, "delayMs": -5}]}),
        json!({"nack": [{"lease": token, "reason": 5}]}),
        json!({"extend": [{"lease": token, "extend_ms": "x"}]}),
        json!({"extend": {"lease": token}}),
        json!([token]),
        json!(token),
    ] {
        group.post("/ack", &body).fails(400, "bad_request");
    }
    for body in [
        json!({}),
        json!({"partition": 0}),
        json!({"offset": 0}),
        json!({"partition": "0", "offset": 0}),
        json!([]),
    ] {
        group.post("/skip", &body).fails(400, "bad_request");
    }
    group.ack(&held);
}

#[test]
fn malformed_json_is_refused() {
    let (site, group, held) = group();
    for body in ["{", "[", "{\"max\":1}}", "nope", "{'max':1}"] {
        for rest in ["/pull", "/ack", "/skip"] {
            site.api.post(&group.path(rest), body).fails(400, "bad_json");
        }
        site.api.put(&group.path(""), body).fails(400, "bad_json");
        site.api.put(&group.path("/cursor"), body).fails(400, "bad_json");
        site.api.post("/v1/dlq/t/replay", body).fails(400, "bad_json");
    }
    let target = group.path("/pull");
    let call = Call::new("POST", &target).header("content-type", "application/json");
    site.api.call(&call.clone().body(b"{\"member\":\"\xff\"}")).fails_as(&[400]);
    let deep = format!("{{\"member\":{}1{}}}", "[".repeat(5000), "]".repeat(5000));
    site.api.call(&call.body(deep.as_bytes())).fails_as(&[400, 413]);
    group.ack(&held);
}

#[test]
fn a_body_of_a_wrong_type_is_415() {
    let (site, group, held) = group();
    for (method, rest) in
        [("POST", "/pull"), ("POST", "/ack"), ("POST", "/skip"), ("PUT", ""), ("PUT", "/cursor")]
    {
        let target = group.path(rest);
        for kind in ["text/csv", "application/xml"] {
            let call = Call::new(method, &target).header("content-type", kind).body(b"{}");
            site.api.call(&call).fails_as(&[415]);
        }
    }
    group.ack(&held);
}

#[test]
fn options_that_mean_nothing_are_refused_and_make_nothing() {
    let site = Site::start();
    publish(&site.api, "t", 0..1);
    let group = Group::of(&site, "t", "g");
    for options in [
        json!({"mode": "exclusive"}),
        json!({"mode": "Shared"}),
        json!({"mode": ""}),
        json!({"ordering": "topic"}),
        json!({"ordering": "KEY"}),
        json!({"from": "now"}),
        json!({"from": ""}),
        json!({"from": "offset"}),
        json!({"from": "ts"}),
        json!({"from": "afterId"}),
        json!({"from": "afterId", "afterId": "nonsense"}),
        json!({"from": "ts", "ts": "yesterday"}),
        json!({"from": "ts", "ts": -1}),
    ] {
        group.post("/pull", &options).fails(400, "bad_request");
        site.api.put(&group.path(""), &options.to_string()).fails(400, "bad_request");
    }
    let unknown = json!({"from": "afterId", "afterId": "0198c0de-0000-7000-8000-000000000001"});
    group.post("/pull", &unknown).fails_as(&[400, 404, 410]);
    site.api.get(&group.path("")).fails(404, "not_found");
}

#[test]
fn a_group_of_nothing_but_zeros_is_refused_or_works() {
    let site = Site::start();
    publish(&site.api, "t", 0..1);
    for name in [
        "maxAttempts",
        "ackTimeoutMs",
        "ackWindow",
        "memberTtlMs",
        "backoffMs",
        "batchSize",
        "maxInFlight",
        "max",
    ] {
        let group = Group::of(&site, "t", &name.to_lowercase());
        let answer = group.post("/pull", &json!({"from": "earliest", name: 0}));
        assert!(matches!(answer.status, 200 | 400), "{name}: {answer:?}");
        if answer.status == 400 {
            answer.is_error();
        }
    }
    site.api.get("/healthz").is(200);
}

#[test]
fn a_filter_that_does_not_compile_is_refused_with_its_position() {
    let site = Site::start();
    publish(&site.api, "t", 0..1);
    let group = Group::of(&site, "t", "g");
    let like_a_read = site.api.page("t", "filter=event.%20%26%26").fails(400, "bad_filter");
    for filter in ["event. &&", "(", "event.payload.n ==", "\"open"] {
        let body = group.post("/pull", &json!({"filter": filter})).fails(400, "bad_filter");
        let known: Vec<&String> = like_a_read.as_object().unwrap().keys().collect();
        assert!(known.iter().all(|name| body.get(name.as_str()).is_some()), "{body} {like_a_read}");
        site.api.put(&group.path(""), &json!({"filter": filter}).to_string()).fails(400, "bad_filter");
        let replay = json!({"filter": filter}).to_string();
        site.api.post("/v1/dlq/t/replay", &replay).fails(400, "bad_filter");
    }
    site.api.get("/v1/dlq/t?filter=%28").fails(400, "bad_filter");
    site.api.get(&group.path("")).fails(404, "not_found");
}

#[test]
fn more_than_the_limits_is_refused() {
    let (site, group, held) = group();
    group.post("/pull", &json!({"waitMs": 30_001})).fails(400, "bad_request");
    group.post("/pull", &json!({"waitMs": u64::MAX})).fails(400, "bad_request");
    let nack = |delay: Value| json!({"nack": [{"lease": lease(&held[0]), "delayMs": delay}]});
    group.post("/ack", &nack(json!(86_400_001))).fails(400, "bad_request");
    group.post("/ack", &nack(json!(u64::MAX))).fails(400, "bad_request");
    for huge in ["99999999999999999999999999", "1e400"] {
        site.api.post(&group.path("/pull"), &format!("{{\"waitMs\":{huge}}}")).fails_as(&[400]);
        site.api.post(&group.path("/pull"), &format!("{{\"max\":{huge}}}")).fails_as(&[400]);
    }
    // Big numbers that are no mistake by themselves must not break anything either.
    for (name, value) in [("max", u64::MAX), ("batchSize", u64::MAX), ("maxInFlight", u64::MAX)] {
        let answer = group.post("/pull", &json!({name: value}));
        assert!(matches!(answer.status, 200 | 400), "{name}: {answer:?}");
    }
    for name in ["ackTimeoutMs", "backoffMs", "ackWindow", "memberTtlMs"] {
        let other = Group::of(&site, "t", &format!("g-{}", name.to_lowercase()));
        let answer = other.post("/pull", &json!({name: u64::MAX, "from": "earliest"}));
        assert!(matches!(answer.status, 200 | 400), "{name}: {answer:?}");
    }
    let extend = json!({"extend": [{"lease": lease(&held[0]), "extend_ms": u64::MAX}]});
    assert!(matches!(group.post("/ack", &extend).status, 200 | 400));
    group.ack(&held);
}

#[test]
fn a_lease_that_is_none_is_not_accepted() {
    let (_site, group, held) = group();
    let token = lease(&held[0]).to_owned();
    let mut changed: Vec<String> = vec![
        String::new(),
        "x".to_owned(),
        "0:0:0".to_owned(),
        "ä😀".to_owned(),
        "x".repeat(100_000),
        format!("{token}x"),
        format!(" {token}"),
        token.to_uppercase() + "Z",
    ];
    // One character cut off or another in its place is another token.
    changed.push(token[..token.len() - 1].to_owned());
    let last = if token.ends_with('0') { "1" } else { "0" };
    changed.push(format!("{}{last}", &token[..token.len() - 1]));
    for bad in changed.iter().filter(|bad| !held.iter().any(|one| lease(one) == bad.as_str())) {
        for body in [
            json!({"ack": [bad]}),
            json!({"nack": [{"lease": bad}]}),
            json!({"extend": [{"lease": bad, "extend_ms": 1000}]}),
        ] {
            let answer = group.post("/ack", &body);
            if answer.status == 200 {
                let result = answer.json()["results"][0].clone();
                assert_eq!(result["ok"], false, "{body}: {result}");
                assert!(CODES.contains(&result["error"].as_str().unwrap()), "{result}");
            } else {
                answer.fails_as(&[400, 413]);
            }
        }
    }
    assert_eq!(group.partition(0)["in_flight"], 2);
    group.ack(&held);
}

#[test]
fn an_unknown_group_or_topic_is_404() {
    let (site, group, held) = group();
    for other in [Group::of(&site, "t", "none"), Group::of(&site, "none", "g")] {
        site.api.get(&other.path("")).fails(404, "not_found");
        site.api.get(&other.path("/cursor")).fails(404, "not_found");
        site.api.delete(&other.path("")).fails(404, "not_found");
        other.set_cursor(&json!({"from": "earliest"})).fails(404, "not_found");
        other.post("/ack", &acks(&held)).fails(404, "not_found");
        other.post("/skip", &json!({"partition": 0, "offset": 0})).fails(404, "not_found");
    }
    site.api.get("/v1/topics/none/groups").fails(404, "not_found");
    site.api.get("/v1/topics/none").fails(404, "not_found");
    group.ack(&held);
}

#[test]
fn names_that_cannot_be_are_refused() {
    let (site, _group, _held) = group();
    for target in [
        "/v1/topics/t/groups/%FF/pull".to_owned(),
        "/v1/topics/UPPER/groups/g/pull".to_owned(),
        "/v1/topics/a..b/groups/g/pull".to_owned(),
        format!("/v1/topics/t/groups/{}/pull", "x".repeat(20_000)),
        "/v1/topics/t/groups//pull".to_owned(),
    ] {
        let answer = site.api.post(&target, "{}");
        assert!((400..500).contains(&answer.status), "{target}: {answer:?}");
    }
    let answer = Group::of(&site, "t", "g").post("/pull", &json!({"member": "x".repeat(2_000_000)}));
    assert!((400..500).contains(&answer.status), "{}", answer.status);
    site.api.get("/healthz").is(200);
}

#[test]
fn a_cursor_that_means_nothing_is_refused() {
    let (_site, group, held) = group();
    for cursor in [
        json!({}),
        json!({"from": "somewhere"}),
        json!({"from": 1}),
        json!({"from": "ts"}),
        json!({"from": "ts", "ts": "x"}),
        json!({"from": "offset"}),
        json!({"from": "offset", "offset": -1}),
        json!({"from": "offset", "offset": "1"}),
        json!({"from": "afterId"}),
        json!({"from": "afterId", "afterId": "nonsense"}),
        json!({"from": "earliest", "partition": "0"}),
        json!({"from": "earliest", "partition": -1}),
        json!([]),
    ] {
        group.set_cursor(&cursor).fails(400, "bad_request");
    }
    group.set_cursor(&json!({"from": "earliest", "partition": 5})).fails_as(&[400, 404]);
    let unknown = json!({"from": "afterId", "afterId": "0198c0de-0000-7000-8000-000000000001"});
    group.set_cursor(&unknown).fails_as(&[400, 404, 410]);
    // The leases are as good as they were.
    group.ack(&held);
}

#[test]
fn the_hubs_own_topics_take_no_publish() {
    let (site, group, held) = group();
    let other = Group::of(&site, "t", "strict");
    other.make(&json!({"from": "earliest", "maxAttempts": 1}));
    other.nack(&other.one(json!({})));
    for topic in ["dlq.t", "dlq.none"] {
        site.api.publish(topic, "1").fails_as(&[400, 403, 409]);
        site.api.events(topic, r#"{"payload":1}"#).fails_as(&[400, 403, 409]);
    }
    assert_eq!(site.api.all("dlq.t", "").len(), 1);
    group.ack(&held);
}

#[test]
fn a_replay_that_means_nothing_is_refused() {
    let (site, group, held) = group();
    let strict = Group::of(&site, "t", "strict");
    strict.make(&json!({"from": "earliest", "maxAttempts": 1}));
    strict.nack(&strict.one(json!({})));
    for body in [
        json!({"to": "everyone"}),
        json!({"to": 1}),
        json!({"ids": "x"}),
        json!({"ids": [1]}),
        json!({"group": 1}),
        json!({"filter": 1}),
        json!({"limit": "x"}),
        json!({"limit": -1}),
        json!({"dry_run": "yes"}),
        json!({"force": 1}),
        json!([]),
    ] {
        site.api.post("/v1/dlq/t/replay", &body.to_string()).fails(400, "bad_request");
    }
    let answer = site.api.post("/v1/dlq/t/replay", r#"{"ids":["nonsense"]}"#);
    assert!(answer.status == 400 || answer.is(200)["replayed"] == 0, "{answer:?}");
    site.api.get("/v1/dlq/t?nonsense=1").fails(400, "bad_request");
    for topic in ["none", "UPPER"] {
        let answer = site.api.post(&format!("/v1/dlq/{topic}/replay"), "{}");
        assert!(matches!(answer.status, 200 | 400 | 404), "{answer:?}");
    }
    assert_eq!(numbers(&strict.gather(&json!({}), 1)), [1]);
    group.ack(&held);
}
