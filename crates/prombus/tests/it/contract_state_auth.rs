//! Who may read collections, write them by commit, and define projections; and that a refusal does nothing.

use crate::auth_support::jwt::{Signer, all, policy, scopes};
use crate::auth_support::{Caller, Guarded, SECRET, STRANGER, is_unauthorized, until};
use crate::contract_support::Call;
use crate::state_support;
use crate::state_support::{changelog, list_path, names, projection_path, snap, with, write};
use crate::ws_support::Socket;
use serde_json::{Value, json};

fn token(scopes_of: &[&str]) -> String {
    Signer::secret(SECRET).token(&scopes(scopes_of))
}

fn master() -> String {
    Signer::secret(SECRET).token(&all())
}

/// A hub with documents `open/k` and `other/k` of commits, and `by_log/k` of a projection of `t`.
fn hub() -> (Guarded, String) {
    let hub = Guarded::jwt();
    let master = master();
    let caller = hub.caller(&master);
    let writes = [write("open", "k", "set", json!({"a": 1})), write("other", "k", "set", json!({"a": 1}))];
    caller.post("/v1/commit", &json!({"writes": writes})).is(200);
    let answer = caller.put(&projection_path("p"), &changelog("t", "by_log"));
    assert!(matches!(answer.status, 200 | 201), "{answer:?}");
    publish(caller, "t", &json!({"id": "k", "n": 1}));
    until("the document is there", || caller.get(&snap("by_log", "k")).status == 200);
    (hub, master)
}

#[track_caller]
fn publish(caller: Caller, topic: &str, payload: &Value) {
    caller.post(&format!("/v1/topics/{topic}/events"), &json!({"payload": payload})).is(201);
}

#[track_caller]
fn pull_one(caller: Caller, topic: &str, group: &str) -> String {
    let got = caller.pull(topic, group).is(200);
    got["deliveries"][0]["ctx"]["lease"].as_str().unwrap_or_else(|| panic!("{got}")).to_owned()
}

/// How many events of the group are out.
#[track_caller]
fn in_flight(caller: Caller, topic: &str, group: &str) -> Value {
    caller.get(&format!("/v1/topics/{topic}/groups/{group}")).is(200)["partitions"][0]["in_flight"].clone()
}

/// Every way in to state, and whether it takes a body.
fn ways_in() -> Vec<(&'static str, String, Value)> {
    let commit = json!({"writes": [write("open", "k", "set", json!({"a": 2}))]});
    vec![
        ("GET", "/v1/collections".to_owned(), Value::Null),
        ("GET", "/v1/collections/open".to_owned(), Value::Null),
        ("GET", snap("open", "k"), Value::Null),
        ("HEAD", snap("open", "k"), Value::Null),
        ("GET", list_path("open", ""), Value::Null),
        ("GET", "/v1/projections".to_owned(), Value::Null),
        ("GET", projection_path("p"), Value::Null),
        ("PUT", projection_path("q"), changelog("t", "new")),
        ("POST", format!("{}/rebuild", projection_path("p")), json!({})),
        ("POST", "/v1/commit".to_owned(), commit),
    ]
}

#[test]
fn without_a_good_token_nothing_is_told_and_nothing_is_done() {
    let (hub, master) = hub();
    let expired = Signer::secret(SECRET).token(&json!({"exp": 1000, "scopes": ["*:**"]}));
    let forged = Signer::secret("another secret of another hub, long enough").token(&all());
    for (method, target, body) in ways_in() {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let call =
            Call::new(method, &target).header("content-type", "application/json").body(body.as_bytes());
        let bearers = [STRANGER, &expired, &forged].map(|token| format!("Bearer {token}"));
        let answers = [hub.api.call(&call.clone())]
            .into_iter()
            .chain(bearers.iter().map(|bearer| hub.api.call(&call.clone().header("authorization", bearer))));
        for answer in answers {
            if method == "HEAD" {
                assert_eq!(answer.status, 401, "{target}");
                assert!(answer.header("etag").is_none(), "{answer:?}");
            } else {
                is_unauthorized(&answer);
            }
        }
    }
    let caller = hub.caller(&master);
    assert_eq!(caller.get(&snap("open", "k")).is(200)["_v"], 1);
    caller.get(&projection_path("q")).fails(404, "not_found");
}

#[test]
fn a_token_that_allows_something_else_is_forbidden() {
    let (hub, master) = hub();
    let token = token(&["read:elsewhere.**", "publish:elsewhere", "subscribe:elsewhere", "admin:elsewhere"]);
    for (method, target, body) in ways_in() {
        if matches!(target.as_str(), "/v1/collections" | "/v1/projections") {
            continue;
        }
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let call =
            Call::new(method, &target).header("content-type", "application/json").body(text.as_bytes());
        let answer = hub.caller(&token).call(call);
        if method == "HEAD" {
            assert_eq!((answer.status, answer.header("etag")), (403, None), "{answer:?}");
        } else {
            answer.fails(403, "forbidden");
        }
    }
    assert_eq!(hub.caller(&master).get(&snap("open", "k")).is(200)["_v"], 1);
    hub.caller(&master).get(&projection_path("q")).fails(404, "not_found");
}

#[test]
fn documents_are_read_by_the_name_of_their_collection() {
    let (hub, _) = hub();
    let token = token(&["read:open"]);
    let caller = hub.caller(&token);
    caller.get(&snap("open", "k")).is(200);
    caller.get(&list_path("open", "a=1")).is(200);
    caller.get("/v1/collections/open").is(200);
    assert_eq!(caller.call(Call::new("HEAD", &snap("open", "k"))).status, 200);
    for shut in ["other", "by_log"] {
        caller.get(&snap(shut, "k")).fails(403, "forbidden");
        caller.get(&list_path(shut, "")).fails(403, "forbidden");
        caller.get(&format!("/v1/collections/{shut}")).fails(403, "forbidden");
    }
    // What is not there is not to be told from what one may not see.
    caller.get(&snap("nowhere", "k")).fails(403, "forbidden");
    caller.get(&snap("open", "none")).fails(404, "not_found");
}

#[test]
fn a_tag_is_no_way_around() {
    let (hub, master) = hub();
    let tag = hub.caller(&master).get(&snap("other", "k")).header("etag").unwrap().to_owned();
    let token = token(&["read:open"]);
    let target = snap("other", "k");
    for value in [tag.as_str(), "*"] {
        let call = Call::new("GET", &target).header("if-none-match", value);
        hub.caller(&token).call(call).fails(403, "forbidden");
    }
}

#[test]
fn the_topic_of_a_projection_opens_not_its_collection_nor_the_other_way() {
    let (hub, _) = hub();
    let by_topic = token(&["read:t", "subscribe:t", "publish:t"]);
    hub.caller(&by_topic).read("t").is(200);
    hub.caller(&by_topic).get(&snap("by_log", "k")).fails(403, "forbidden");
    let by_collection = token(&["read:by_log"]);
    hub.caller(&by_collection).get(&snap("by_log", "k")).is(200);
    hub.caller(&by_collection).read("t").fails(403, "forbidden");
}

#[test]
fn only_read_reads() {
    let (hub, _) = hub();
    for scope in ["publish:**", "subscribe:**"] {
        let token = token(&[scope]);
        hub.caller(&token).get(&snap("open", "k")).fails(403, "forbidden");
        hub.caller(&token).get(&list_path("open", "")).fails(403, "forbidden");
    }
}

#[test]
fn the_list_of_collections_shows_what_one_may_read() {
    let (hub, master) = hub();
    assert_eq!(names(&hub.caller(&master).get("/v1/collections").is(200)), ["by_log", "open", "other"]);
    let token = token(&["read:open"]);
    let answer = hub.caller(&token).get("/v1/collections");
    match answer.status {
        200 => assert_eq!(names(&answer.json()), ["open"]),
        _ => drop(answer.fails(403, "forbidden")),
    }
}

#[test]
fn a_deny_wins() {
    let (hub, _) = hub();
    let rules = json!([
        {"effect": "allow", "action": "*", "topics": ["**"]}, {"effect": "deny", "action": "read", "topics": ["other"]},
        {"effect": "deny", "action": "publish", "topics": ["open"]},
    ]);
    let token = Signer::secret(SECRET).token(&policy(&rules));
    let caller = hub.caller(&token);
    caller.get(&snap("open", "k")).is(200);
    caller.get(&snap("other", "k")).fails(403, "forbidden");
    caller.post("/v1/commit", &json!({"writes": [write("other", "k", "set", json!({}))]})).is(200);
    caller
        .post("/v1/commit", &json!({"writes": [write("open", "k", "set", json!({}))]}))
        .fails(403, "forbidden");
}

#[test]
fn with_auth_on_caches_are_private() {
    let (hub, master) = hub();
    let caller = hub.caller(&master);
    let answer = caller.get(&snap("open", "k"));
    assert_eq!(answer.header("cache-control"), Some("private, max-age=5"));
    let bearer = format!("Bearer {master}");
    let headers = [("authorization", bearer.as_str()), ("if-none-match", answer.header("etag").unwrap())];
    let same = state_support::ask(&hub.api, "GET", &snap("open", "k"), &headers);
    assert_eq!((same.status, same.header("cache-control")), (304, Some("private, max-age=5")));
    assert_eq!(caller.get(&list_path("open", "")).header("cache-control"), Some("no-store"));
}

#[test]
fn commits_write_by_the_name_of_the_collection() {
    let (hub, master) = hub();
    let token = token(&["publish:open", "read:**"]);
    let caller = hub.caller(&token);
    caller.post("/v1/commit", &json!({"writes": [write("open", "new", "set", json!({}))]})).is(200);
    for (verb, value) in
        [("set", json!({})), ("merge", json!({})), ("inc", json!({"n": 1})), ("delete", json!(true))]
    {
        let body =
            json!({"writes": [write("open", "k", "set", json!({"b": 1})), write("other", "k", verb, value)]});
        caller.post("/v1/commit", &body).fails(403, "forbidden");
    }
    let master = hub.caller(&master);
    assert_eq!(master.get(&snap("open", "k")).is(200)["_v"], 1);
    assert_eq!(master.get(&snap("other", "k")).is(200)["_v"], 1);
    master.get(&snap("open", "new")).is(200);
}

#[test]
fn reading_and_subscribing_do_not_write() {
    let (hub, master) = hub();
    for scope in ["read:**", "subscribe:**"] {
        let token = token(&[scope]);
        let body = json!({"writes": [write("open", "k", "set", json!({}))]});
        hub.caller(&token).post("/v1/commit", &body).fails(403, "forbidden");
        let body = json!({"publish": [{"topic": "out", "payload": 1}]});
        hub.caller(&token).post("/v1/commit", &body).fails(403, "forbidden");
    }
    assert_eq!(hub.caller(&master).get(&snap("open", "k")).is(200)["_v"], 1);
    hub.caller(&master).read("out").fails(404, "not_found");
}

#[test]
fn each_part_of_a_commit_has_to_be_allowed_and_a_refusal_does_nothing() {
    let (hub, master) = hub();
    let master = hub.caller(&master);
    publish(master, "in", &json!(1));
    let lease = pull_one(master, "in", "g");
    let body = json!({
        "ack": [lease], "writes": [write("open", "k", "inc", json!({"a": 1}))], "publish": [{"topic": "out", "payload": 1}],
    });
    for lacking in [
        &["publish:open", "publish:out"][..],
        &["subscribe:in", "publish:open"],
        &["subscribe:in", "publish:out"],
        &["subscribe:out", "publish:open", "publish:out"],
        &["subscribe:in", "publish:in", "read:**"],
        &["subscribe:in", "publish:in", "admin:**"],
    ] {
        let token = token(lacking);
        hub.caller(&token).post("/v1/commit", &body).fails(403, "forbidden");
        assert_eq!(master.get(&snap("open", "k")).is(200)["_v"], 1, "{lacking:?}");
        master.read("out").fails(404, "not_found");
        assert_eq!(in_flight(master, "in", "g"), 1, "{lacking:?}");
    }
    let token = token(&["subscribe:in", "publish:open", "publish:out"]);
    hub.caller(&token).post("/v1/commit", &body).is(200);
    assert_eq!(master.get(&snap("open", "k")).is(200)["a"], 2);
    assert_eq!(in_flight(master, "in", "g"), 0);
}

#[test]
fn acks_go_by_the_group_too() {
    let (hub, master) = hub();
    let master = hub.caller(&master);
    publish(master, "in", &json!(1));
    let lease = pull_one(master, "in", "theirs");
    let rules = json!([{"effect": "allow", "action": "subscribe", "topics": ["in"], "groups": ["mine"]}]);
    let token = Signer::secret(SECRET).token(&policy(&rules));
    hub.caller(&token).post("/v1/commit", &json!({"ack": [lease]})).fails(403, "forbidden");
    assert_eq!(in_flight(master, "in", "theirs"), 1);
    let mine = pull_one(hub.caller(&token), "in", "mine");
    hub.caller(&token).post("/v1/commit", &json!({"ack": [mine]})).is(200);
}

#[test]
fn a_commit_id_of_someone_else_tells_nothing() {
    let (hub, master) = hub();
    let body = json!({"commit_id": "x", "writes": [write("other", "k", "inc", json!({"a": 1}))]});
    hub.caller(&master).post("/v1/commit", &body).is(200);
    let token = token(&["publish:open"]);
    hub.caller(&token).post("/v1/commit", &body).fails(403, "forbidden");
    assert_eq!(hub.caller(&master).get(&snap("other", "k")).is(200)["a"], 2);
}

#[test]
fn a_commit_id_belongs_to_the_subject_of_the_token() {
    let (hub, master) = hub();
    let of = |claims: Value| Signer::secret(SECRET).token(&with(claims, "scopes", json!(["publish:other"])));
    let body = json!({"commit_id": "x", "writes": [write("other", "k", "inc", json!({"a": 1}))]});
    let commit =
        |claims: Value| hub.caller(&of(claims)).post("/v1/commit", &body).is(200)["versions"].clone();
    let first = commit(json!({"sub": "ann", "jti": "1"}));
    assert_eq!(commit(json!({"sub": "ann", "jti": "2"})), first, "a later token of the same subject");
    let others = [
        json!({"sub": "ben"}),
        json!({}),
        json!({"sub": ""}),
        json!({"sub": 7}),
        json!({"sub": "7"}),
        json!({"sub": "ann", "iss": "elsewhere"}),
    ];
    for other in &others {
        assert_ne!(commit(other.clone()), first, "{other}");
    }
    // They, too, are known again.
    others.into_iter().for_each(|other| drop(commit(other)));
    assert_eq!(hub.caller(&master).get(&snap("other", "k")).is(200)["a"], 8);
}

#[test]
fn projections_are_for_admins() {
    let (hub, master) = hub();
    let token = token(&["read:**", "publish:**", "subscribe:**"]);
    let caller = hub.caller(&token);
    caller.put(&projection_path("q"), &changelog("t", "new")).fails(403, "forbidden");
    caller
        .put(&projection_path("p"), &with(changelog("t", "by_log"), "fields", json!(["id"])))
        .fails(403, "forbidden");
    caller.post(&format!("{}/rebuild", projection_path("p")), &json!({})).fails(403, "forbidden");
    let master = hub.caller(&master);
    master.get(&projection_path("q")).fails(404, "not_found");
    assert_ne!(master.get(&projection_path("p")).is(200)["stale"], true);
    master.get("/v1/collections/new").fails(404, "not_found");
    let admin = self::token(&["admin:**", "read:t", "publish:new"]);
    let admin = hub.caller(&admin);
    assert!(matches!(admin.put(&projection_path("q"), &changelog("t", "new")).status, 200 | 201));
    admin.get(&projection_path("q")).is(200);
    assert_eq!(names(&admin.get("/v1/projections").is(200)), ["p", "q"]);
}

#[test]
fn what_an_earlier_definition_wrote_is_removed_by_its_admins_only() {
    let (hub, master) = hub();
    let master = hub.caller(&master);
    master.put(&projection_path("p"), &changelog("t", "later")).is(200);
    let (path, rebuild) = (projection_path("p"), format!("{}/rebuild", projection_path("p")));
    let scopes = ["admin:t", "read:t", "admin:later", "publish:later"];
    let others = token(&scopes);
    hub.caller(&others).delete(&path).fails(403, "forbidden");
    hub.caller(&others).post(&rebuild, &json!({})).fails(403, "forbidden");
    assert_eq!(master.get(&snap("by_log", "k")).is(200)["n"], 1);
    let all = token(&[&scopes[..], &["admin:by_log"]].concat());
    hub.caller(&all).post(&rebuild, &json!({})).is(202);
    assert_eq!(hub.caller(&all).delete(&path).status, 204);
    master.get(&snap("by_log", "k")).fails(404, "not_found");
}

#[test]
fn what_moves_data_needs_to_read_it_here_and_to_write_it_there() {
    let (hub, master) = hub();
    let needed = ["admin:t", "read:t", "admin:new", "publish:new", "publish:new.changed"];
    let definition = with(changelog("t", "new"), "changefeed", json!("new.changed"));
    let without =
        |lacking: &str| -> Vec<&str> { needed.into_iter().filter(|scope| *scope != lacking).collect() };
    let put = |scopes_of: &[&str]| hub.caller(&token(scopes_of)).put(&projection_path("q"), &definition);
    for lacking in needed {
        put(&without(lacking)).fails(403, "forbidden");
        hub.caller(&master).get(&projection_path("q")).fails(404, "not_found");
    }
    assert_eq!(put(&needed).status, 201);
    let rebuild = format!("{}/rebuild", projection_path("q"));
    for lacking in needed {
        put(&without(lacking)).fails(403, "forbidden");
        hub.caller(&token(&without(lacking))).post(&rebuild, &json!({})).fails(403, "forbidden");
    }
    hub.caller(&token(&needed)).post(&rebuild, &json!({})).is(202);
    let needed = ["admin:open", "read:open", "publish:open.changed"];
    let without =
        |lacking: &str| -> Vec<&str> { needed.into_iter().filter(|scope| *scope != lacking).collect() };
    let feed = json!({"changefeed": "open.changed"});
    let put = |scopes_of: &[&str]| hub.caller(&token(scopes_of)).put("/v1/collections/open", &feed);
    for lacking in needed {
        put(&without(lacking)).fails(403, "forbidden");
    }
    put(&needed).is(200);
    hub.caller(&token(&["admin:open"])).put("/v1/collections/open", &json!({})).is(200);
}

#[test]
fn why_an_index_cannot_be_made_is_told_to_those_who_may_read_the_collection() {
    let (hub, master) = hub();
    let long = write("open", "secret", "set", json!({"a": "x".repeat(5_000)}));
    hub.caller(&master).post("/v1/commit", &json!({"writes": [long]})).is(200);
    let put = |scopes_of: &[&str]| {
        let token = token(scopes_of);
        hub.caller(&token).put("/v1/collections/open", &json!({"indexes": [["a"]]})).is(200)["indexes"][0]
            .clone()
    };
    until("it has failed", || put(&["admin:open", "read:open"])["keys"] == json!(["secret"]));
    let hidden = put(&["admin:open"]);
    assert_eq!((&hidden["state"], &hidden["keys"]), (&json!("failed"), &json!([])));
    assert_eq!(hidden["reason"], "shown to those who have `read` on open");
}

#[test]
fn collections_are_deleted_by_admins() {
    let (hub, master) = hub();
    for lacking in [&["read:open", "publish:open"][..], &["admin:other"], &["subscribe:open"]] {
        hub.caller(&token(lacking)).delete("/v1/collections/open").fails(403, "forbidden");
    }
    hub.caller(&master).get(&snap("open", "k")).is(200);
    assert_eq!(hub.caller(&token(&["admin:open"])).delete("/v1/collections/open").status, 204);
    hub.caller(&master).get(&snap("open", "k")).fails(404, "not_found");
}

#[test]
fn a_refusal_comes_before_a_look_at_the_state() {
    let (hub, _) = hub();
    let token = token(&["publish:open"]);
    let caller = hub.caller(&token);
    // Neither the version nor the owner of what one may not write is told.
    for bad in [
        with(write("other", "k", "set", json!({})), "if_version", json!(77)),
        write("by_log", "k", "set", json!({})),
    ] {
        caller.post("/v1/commit", &json!({"writes": [bad]})).fails(403, "forbidden");
    }
    caller.get(&format!("{}?min_offset=1000000", snap("by_log", "k"))).fails(403, "forbidden");
}

#[test]
fn frames_are_judged_alike() {
    let (hub, master) = hub();
    let caller = hub.caller(&master);
    publish(caller, "in", &json!(1));
    let lease = pull_one(caller, "in", "g");
    let body = json!({
        "op": "COMMIT", "ack": [lease], "writes": [write("open", "k", "inc", json!({"a": 1}))],
        "publish": [{"topic": "out", "payload": 1}],
    });
    Socket::open(&hub.api).fails(&body, "unauthorized");
    for lacking in [
        &["publish:open", "publish:out"][..],
        &["subscribe:in", "publish:open"],
        &["subscribe:in", "publish:out"],
        &["read:**", "admin:**"],
    ] {
        Socket::bearer(&hub.api, &token(lacking)).fails(&body, "forbidden");
        Socket::authed(&hub.api, &token(lacking)).fails(&body, "forbidden");
        assert_eq!(caller.get(&snap("open", "k")).is(200)["_v"], 1, "{lacking:?}");
        assert_eq!(in_flight(caller, "in", "g"), 1);
    }
    caller.read("out").fails(404, "not_found");
    let mut allowed = Socket::authed(&hub.api, &token(&["subscribe:in", "publish:open", "publish:out"]));
    allowed.ok(&body);
    assert_eq!(caller.get(&snap("open", "k")).is(200)["a"], 2);
    assert_eq!(in_flight(caller, "in", "g"), 0);
}

#[test]
fn a_dead_letter_and_a_feed_of_the_hub_need_nobodys_leave() {
    let (hub, master) = hub();
    let caller = hub.caller(&master);
    let definition = with(changelog("u", "fed"), "changefeed", json!("fed.changed"));
    assert!(matches!(caller.put(&projection_path("r"), &definition).status, 200 | 201));
    let token = token(&["publish:u"]);
    publish(hub.caller(&token), "u", &json!({"id": "k"}));
    publish(hub.caller(&token), "u", &json!({"bad": 1}));
    until("both are there", || {
        caller.read("fed.changed").status == 200 && caller.read("dlq.u").status == 200
    });
    // Whoever may publish to the topic may still not read the outcome.
    hub.caller(&token).read("fed.changed").fails(403, "forbidden");
    hub.caller(&token).get(&snap("fed", "k")).fails(403, "forbidden");
}

#[test]
fn a_conflict_names_no_document_to_those_who_may_not_read_it() {
    let (hub, master) = hub();
    let unique = json!({"indexes": [{"fields": ["mail"], "unique": true}]});
    let answer = hub.caller(&master).put("/v1/collections/people", &unique);
    assert!(matches!(answer.status, 200 | 201), "{answer:?}");
    let commit = |key: &str| json!({"writes": [write("people", key, "set", json!({"mail": "m"}))]});
    hub.caller(&master).post("/v1/commit", &commit("hidden")).is(200);
    let refused = |scopes: &[&str]| {
        let token = token(scopes);
        hub.caller(&token).post("/v1/commit", &commit("mine")).is(409).to_string()
    };
    assert!(!refused(&["publish:people"]).contains("hidden"));
    assert!(refused(&["publish:people", "read:people"]).contains("hidden"));
}

#[test]
fn a_unique_index_tells_nothing_to_those_who_may_not_read() {
    let (hub, master) = hub();
    for key in ["alice", "bob"] {
        let commit = json!({"writes": [write("people", key, "set", json!({"salary": 7}))]});
        hub.caller(&master).post("/v1/commit", &commit).is(200);
    }
    let unique = json!({"indexes": [{"fields": ["salary"], "unique": true}]});
    let admin = token(&["admin:**"]);
    let told = hub.caller(&admin).put("/v1/collections/people", &unique).is(403).to_string();
    assert!(!told.contains("alice") && !told.contains("bob"), "{told}");
    hub.caller(&token(&["admin:**", "read:people"])).put("/v1/collections/people", &unique).is(409);
}

#[test]
fn what_a_projection_fails_on_is_told_to_those_who_may_read_it() {
    let (hub, master) = hub();
    let definition = with(changelog("u", "counted"), "key", json!("event.payload[event.payload.name]"));
    let made = hub.caller(&master).put(&projection_path("r"), &definition);
    assert!(matches!(made.status, 200 | 201), "{made:?}");
    publish(hub.caller(&master), "u", &json!({"id": "k", "name": "TOPSECRET"}));
    let status = |token: &str| hub.caller(token).get(&projection_path("r")).is(200);
    until("it fails", || status(&master)["last_error"].as_str().is_some());
    assert!(status(&master)["last_error"].to_string().contains("TOPSECRET"));
    let admin = token(&["admin:**"]);
    assert!(!status(&admin).to_string().contains("TOPSECRET"));
    assert!(status(&admin)["last_error"].to_string().contains("read"));
    assert!(!hub.caller(&admin).get("/v1/projections").is(200).to_string().contains("TOPSECRET"));
    assert!(!hub.caller(&admin).get("/ops").is(200).to_string().contains("TOPSECRET"));
}

#[test]
fn a_lease_of_others_does_not_tell_whose_it_is() {
    let (hub, master) = hub();
    publish(hub.caller(&master), "secret.topic", &json!(1));
    let group = "/v1/topics/secret.topic/groups/hidden-group";
    let answer = hub.caller(&master).put(group, &json!({"from": "earliest"}));
    assert!(matches!(answer.status, 200 | 201), "{answer:?}");
    let lease = pull_one(hub.caller(&master), "secret.topic", "hidden-group");
    let token = token(&["subscribe:own", "publish:own"]);
    let told = hub.caller(&token).post("/v1/commit", &json!({"ack": [lease]})).is(403).to_string();
    assert!(!told.contains("secret") && !told.contains("hidden"), "{told}");
    assert_eq!(in_flight(hub.caller(&master), "secret.topic", "hidden-group"), 1);
}
