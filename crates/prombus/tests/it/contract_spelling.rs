//! Fields and parameters of requests have two spellings: `delay_ms` is `delayMs`, wherever it is said.

use crate::contract_support::{Answer, Call, Site};
use crate::groups_support::{Group, lease, publish};
use crate::state_support::{doc, projection_path, put};
use crate::ws_support::Socket;
use serde_json::{Value, json};

#[track_caller]
fn call(site: &Site, (method, path): (&str, &str), body: &Value) -> Answer {
    let body = body.to_string();
    site.api.call(&Call::new(method, path).header("content-type", "application/json").body(body.as_bytes()))
}

/// Both at once, wherever they are, are refused with both names.
#[track_caller]
fn names_both(error: &Value, names: [&str; 2]) {
    let message = error["message"].as_str().or(error["msg"].as_str()).unwrap();
    assert!(names.iter().all(|name| message.contains(name)), "{names:?}: {message}");
}

#[test]
fn bodies_take_both_spellings() {
    let site = Site::start();
    publish(&site.api, "t", 0..3);
    let id = site.api.all("t", "")[0]["id"].as_str().unwrap().to_owned();
    for (request, names, value, rest) in [
        (("PUT", "/v1/topics/settings"), ["dedupe_window_ms", "dedupeWindowMs"], json!(5), json!({})),
        (("PUT", "/v1/topics/settings"), ["retention_days", "retentionDays"], json!(0), json!({})),
        (("PUT", "/v1/topics/t/groups/g"), ["ackTimeoutMs", "ack_timeout_ms"], json!(9_000), json!({})),
        (("PUT", "/v1/topics/t/groups/g"), ["afterId", "after_id"], json!(id), json!({"from": "after_id"})),
        (("PATCH", "/v1/topics/t/groups/g"), ["memberTtlMs", "member_ttl_ms"], json!(5), json!({})),
        (("POST", "/v1/topics/t/groups/g/pull"), ["waitMs", "wait_ms"], json!(1), json!({})),
        (("POST", "/v1/topics/t/groups/g/pull"), ["maxInFlight", "max_in_flight"], json!(9), json!({})),
        (
            ("PUT", "/v1/topics/t/groups/g/cursor"),
            ["afterId", "after_id"],
            json!(id),
            json!({"from": "afterId"}),
        ),
        (
            ("PUT", "/v1/topics/t/groups/g/cursor"),
            ["dry_run", "dryRun"],
            json!(true),
            json!({"from": "latest"}),
        ),
        (("POST", "/v1/dlq/t/replay"), ["dry_run", "dryRun"], json!(true), json!({})),
        (("POST", "/v1/topics/t/events"), ["caused_by", "causedBy"], json!([id]), json!({"payload": 1})),
        (
            ("POST", "/v1/commit"),
            ["commit_id", "commitId"],
            json!("c1"),
            json!({"publish": [{"topic": "t", "payload": 1}]}),
        ),
    ] {
        for name in names {
            let mut body = rest.clone();
            body[name] = value.clone();
            let answer = call(&site, request, &body);
            assert!(matches!(answer.status, 200 | 201), "{request:?} {body}: {answer:?}");
        }
        let mut body = rest.clone();
        (body[names[0]], body[names[1]]) = (value.clone(), value);
        names_both(&call(&site, request, &body).fails(400, "bad_request"), names);
    }
    assert_eq!(
        site.api.get("/v1/topics/settings").is(200)["dedupe_window_ms"],
        5,
        "answers stay as they are"
    );
}

#[test]
fn objects_inside_bodies_take_both_spellings() {
    let site = Site::start();
    publish(&site.api, "t", 0..2);
    let group = Group::of(&site, "t", "g");
    group.make(&json!({"from": "earliest"}));
    for (verb, names) in [("nack", ["delayMs", "delay_ms"]), ("extend", ["extend_ms", "extendMs"])] {
        for name in names {
            let one = group.one(json!({}));
            let mut entry = json!({"lease": lease(&one)});
            entry[name] = json!(0);
            assert_eq!(
                group.post("/ack", &json!({verb: [entry]})).is(200)["results"][0]["ok"],
                true,
                "{name}"
            );
            entry[names[0]] = json!(0);
            entry[names[1]] = json!(0);
            names_both(&group.post("/ack", &json!({verb: [entry]})).fails(400, "bad_request"), names);
        }
    }
    for name in ["every_ms", "everyMs"] {
        let body = json!({"snapshot": {"topic": "s", name: 5}});
        let answer = call(&site, ("PUT", "/v1/topics/snapped"), &body);
        assert!(matches!(answer.status, 200 | 201), "{answer:?}");
        assert_eq!(answer.json()["snapshot"]["every_ms"], 5);
    }
    for name in ["if_version", "ifVersion"] {
        let body = json!({"writes": [{"collection": "c", "key": name, "set": {}, name: 0}]});
        call(&site, ("POST", "/v1/commit"), &body).is(200);
        call(&site, ("POST", "/v1/commit"), &body).fails(409, "version_conflict");
    }
    for name in ["last_id", "lastId"] {
        let body = json!({"payload": 1, "key": name, "expect": {name: null}});
        call(&site, ("POST", "/v1/topics/t/events"), &body).is(201);
        call(&site, ("POST", "/v1/topics/t/events"), &body).fails(412, "expectation_failed");
        let publish = json!({"topic": "t", "payload": 1, "key": format!("{name}2"), "expect": {name: null}});
        call(&site, ("POST", "/v1/commit"), &json!({"publish": [publish]})).is(200);
    }
    let both = json!([{"payload": 1, "caused_by": [], "causedBy": []}]);
    names_both(
        &call(&site, ("POST", "/v1/topics/t/events"), &both).fails(400, "bad_request"),
        ["caused_by", "causedBy"],
    );
}

#[test]
fn what_users_store_keeps_its_names() {
    let site = Site::start();
    let odd = json!({"delay_ms": 1, "delayMs": 2, "caused_by": 3, "ifVersion": 4});
    site.api.events("t", &json!({"payload": odd}).to_string()).is(201);
    assert_eq!(site.api.all("t", "")[0]["payload"], odd);
    put(&site.api, "c", "k", odd.clone());
    let stored = doc(&site.api, "c", "k");
    assert!(odd.as_object().unwrap().iter().all(|(name, value)| stored[name] == *value), "{stored}");
    for (query, count) in
        [("delay_ms=1", 1), ("delayMs=2", 1), ("delay_ms=2", 0), ("delay_ms=1&delayMs=2", 1)]
    {
        let found = site.api.get(&format!("/v1/collections/c/list?{query}")).is(200);
        assert_eq!(found["count"], count, "{query}");
    }
    // Names in a projection's tables are those of documents.
    let definition =
        json!({"topic": "t", "write": [{"collection": "d", "key": "'k'", "set": {"a_b": "1", "aB": "2"}}]});
    let answer = call(&site, ("PUT", &projection_path("p")), &definition);
    assert!(matches!(answer.status, 200 | 201), "{answer:?}");
    assert_eq!(answer.json()["definition"]["write"][0]["set"], json!({"a_b": "1", "aB": "2"}));
}

#[test]
fn parameters_take_both_spellings() {
    let site = Site::start();
    publish(&site.api, "t", 0..3);
    let id = site.api.all("t", "")[0]["id"].as_str().unwrap().to_owned();
    for (one, other) in [
        ("from=afterId&afterId=ID".to_owned(), "from=after_id&after_id=ID".to_owned()),
        ("toTs=1".to_owned(), "to_ts=1".to_owned()),
    ] {
        let page = |query: &str| site.api.page("t", &query.replace("ID", &id)).is(200);
        assert_eq!(page(&one), page(&other));
    }
    names_both(&site.api.page("t", "toTs=1&to_ts=1").fails(400, "bad_request"), ["toTs", "to_ts"]);
    site.api.publish("t?causedBy=a&causedBy=b", "1").is(201);
    assert_eq!(site.api.all("t", "").last().unwrap()["caused_by"], json!(["a", "b"]));
    let both = site.api.publish("t?causedBy=a&caused_by=b", "1").fails(400, "bad_request");
    names_both(&both, ["caused_by", "causedBy"]);
    put(&site.api, "c", "k", json!({}));
    let of = |query: &str| site.api.get(&format!("/v1/collections/c/snap/k?{query}"));
    assert_eq!(of("min_offset=0").status, of("minOffset=0").status);
    assert_eq!(of("minOffset=x").fails(400, "bad_request"), of("min_offset=x").fails(400, "bad_request"));
    names_both(&of("min_offset=0&minOffset=0").fails(400, "bad_request"), ["min_offset", "minOffset"]);
    site.api.page("t", "to_Ts=1").fails(400, "bad_request");
}

#[test]
fn frames_take_both_spellings() {
    let site = Site::start();
    let mut line = Socket::open(&site.api);
    line.subscribe(
        "t",
        "g",
        json!({"from": "earliest", "max_in_flight": 1, "ack_timeout_ms": 9000, "backoffMs": 0}),
    );
    publish(&site.api, "t", 0..1);
    for name in ["delay_ms", "delayMs"] {
        let one = line.event();
        let id = &one["event"]["id"];
        line.ok(json!({"op": "NACK", "topic": "t", "group": "g", "id": id, name: 0}));
    }
    let one = line.event();
    let id = &one["event"]["id"];
    for name in ["extend_ms", "extendMs"] {
        line.ok(json!({"op": "MODACK", "topic": "t", "group": "g", "id": id, name: 60_000}));
    }
    let both = json!({"op": "MODACK", "topic": "t", "group": "g", "id": id, "extend_ms": 1, "extendMs": 1});
    names_both(&line.fails(both, "bad_request"), ["extend_ms", "extendMs"]);
    line.ok(json!({"op": "PUBLISH", "topic": "u", "payload": {"causedBy": 1}, "opts": {"causedBy": ["x"]}}));
    line.ok(json!({"op": "PUBLISH", "topic": "u", "events": [{"payload": 1, "causedBy": ["y"]}]}));
    let published = site.api.all("u", "");
    assert_eq!(
        (&published[0]["caused_by"], &published[0]["payload"]),
        (&json!(["x"]), &json!({"causedBy": 1}))
    );
    assert_eq!(published[1]["caused_by"], json!(["y"]));
    line.ok(json!({"op": "COMMIT", "commitId": "c", "ack": [one["ctx"]["lease"]]}));
}
