//! Schemas of topics: how they are registered, checked, listed and shown, and who may do that.

use crate::auth_support::jwt::{Signer, all, policy, scopes};
use crate::auth_support::{Guarded, SECRET, is_unauthorized};
use crate::contract_support::{Answer, Api, Site, fields, now};
use crate::state_support::on_both_stores;
use serde_json::{Value, json};

/// Objects in which `n` is of this type.
fn typed(kind: &str) -> Value {
    json!({"type": "object", "properties": {"n": {"type": kind}}, "required": ["n"]})
}

fn post(api: &Api, topic: &str, body: &Value) -> Answer {
    api.post(&format!("/v1/schemas/{topic}"), &body.to_string())
}

#[track_caller]
fn register(api: &Api, topic: &str, schema: &Value) -> Value {
    post(api, topic, &json!({"schema": schema, "compat": "none"})).is(201)["version"].clone()
}

#[test]
fn a_schema_is_registered_under_the_next_version_or_the_one_that_is_named() {
    on_both_stores(|api| {
        let answer = post(api, "t", &json!({"schema": typed("integer")}));
        assert_eq!(answer.is(201), json!({"topic": "t", "version": 1}));
        let answer = post(api, "t", &json!({"schema": typed("number"), "version": 5}));
        assert_eq!(answer.is(201), json!({"topic": "t", "version": 5}));
        assert_eq!(register(api, "t", &typed("string")), 6);
        let answer = post(api, "t", &json!({"schema": typed("number"), "version": 5}));
        assert_eq!(answer.is(200), json!({"topic": "t", "version": 5}), "it is there already");
        for (version, schema) in [(5, typed("integer")), (2, typed("string")), (6, typed("number"))] {
            let answer = post(api, "t", &json!({"schema": schema, "version": version, "compat": "none"}));
            assert_eq!(answer.fails(409, "version_conflict")["latest"], 6);
        }
        // It has made the topic.
        api.get("/v1/topics/t").is(200);
    });
}

#[test]
fn white_space_makes_no_other_schema_and_numbers_keep_their_digits() {
    let site = Site::start();
    let text = r#"{"maximum": 1e400, "minimum": 0.10, "const": 12345678901234567890123}"#;
    site.api.post("/v1/schemas/t", &format!(r#"{{"schema": {text}}}"#)).is(201);
    let spread = text.replace(", ", " ,\n\t");
    let again = site.api.post("/v1/schemas/t", &format!(r#"{{"version":1,"schema":{spread}}}"#));
    assert_eq!(again.is(200)["version"], 1);
    // The tester's own parser does not take such numbers.
    let shown = site.api.get("/v1/schemas/t/versions/1");
    assert_eq!(shown.status, 200);
    assert!(shown.text().contains(&text.replace(": ", ":").replace(", ", ",")), "{}", shown.text());
}

#[test]
fn what_makes_no_sense_is_refused_and_makes_nothing() {
    let site = Site::start();
    for (body, code) in [
        ("", "bad_json"),
        ("{", "bad_json"),
        ("[]", "bad_request"),
        ("{}", "bad_request"),
        (r#"{"schema":{},"versoin":1}"#, "bad_request"),
        (r#"{"schema":{},"version":0}"#, "bad_request"),
        (r#"{"schema":{},"version":-1}"#, "bad_request"),
        (r#"{"schema":{},"version":4294967296}"#, "bad_request"),
        (r#"{"schema":{},"compat":"sideways"}"#, "bad_request"),
        (r#"{"schema":{},"policy":"loose"}"#, "bad_request"),
        (r#"{"schema":"text"}"#, "bad_request"),
        (r#"{"schema":{"type":"text"}}"#, "bad_request"),
        (r##"{"schema":{"$ref":"#"}}"##, "bad_request"),
        (r#"{"schema":{"$ref":"https://elsewhere.example/s.json"}}"#, "bad_request"),
        (r#"{"schema":{"a":1,"a":2}}"#, "bad_request"),
    ] {
        site.api.post("/v1/schemas/t", body).fails(400, code);
        site.api.post("/v1/schemas/t/check", body).fails(400, code);
    }
    site.api.get("/v1/topics/t").fails(404, "not_found");
    let long = json!({"schema": {"title": "x".repeat(1 << 20)}}).to_string();
    site.api.post("/v1/schemas/t", &long).fails(400, "bad_request");
    // Who goes through these in every order never comes to an end.
    let all: Vec<Value> = (0..15).map(|n| json!({"$ref": format!("d{n}")})).collect();
    let resource = |n| (format!("d{n}"), json!({"$id": format!("d{n}"), "prefixItems": all}));
    let resources: serde_json::Map<String, Value> = (0..15).map(resource).collect();
    let endless =
        json!({"schema": {"$id": "https://example.com/", "$ref": "d0", "$defs": resources}}).to_string();
    for path in ["/v1/schemas/t", "/v1/schemas/t/check"] {
        let refused = site.api.post(path, &endless).fails(400, "bad_request");
        let message = refused["message"].as_str().unwrap();
        assert!(message.contains("`/$defs/d") && message.contains("too large"), "{message}");
    }
    post(&site.api, "dlq.t", &json!({"schema": {}})).fails(403, "forbidden");
    post(&site.api, "Bad-Name", &json!({"schema": {}})).fails(400, "bad_request");
    for path in ["/v1/schemas/t", "/v1/schemas/t/versions/1", "/v1/schemas/t/versions/latest/example"] {
        site.api.get(path).fails(404, "not_found");
    }
    site.ends_well();
}

#[test]
fn a_schema_that_does_not_follow_is_refused_with_a_document_that_shows_it() {
    on_both_stores(|api| {
        register(api, "t", &typed("number"));
        let answer = post(api, "t", &json!({"schema": typed("integer")})).fails(409, "incompatible");
        let violations = answer["violations"].as_array().unwrap();
        assert_eq!(fields(&violations[0]), ["counterexample", "message", "path", "rule"]);
        assert_eq!((&violations[0]["path"], &violations[0]["rule"]), (&json!("/n"), &json!("type")));
        let shown = &violations[0]["counterexample"];
        assert!(shown["n"].is_number() && shown["n"].as_f64().unwrap().fract() != 0.0, "{shown}");
        // The hub itself says that the one takes it and the other does not.
        api.events("t", &json!({"payload": shown}).to_string()).is(201);
        register(api, "t", &typed("integer"));
        api.events("t", &json!({"payload": shown}).to_string()).fails(422, "schema_violation");
    });
}

#[test]
fn a_check_refuses_what_registering_refuses() {
    let site = Site::start();
    let api = &site.api;
    for kind in ["integer", "number"] {
        register(api, "t", &typed(kind));
    }
    let check =
        |topic: &str, body: &Value| api.post(&format!("/v1/schemas/{topic}/check"), &body.to_string());
    for (version, kind) in [(1, "number"), (2, "integer")] {
        let taken = json!({"version": version, "schema": typed(kind), "compat": "none"});
        let refused = check("t", &taken).fails(409, "version_conflict");
        assert_eq!(refused["latest"], 2);
        assert_eq!(refused, post(api, "t", &taken).fails(409, "version_conflict"));
    }
    let there = json!({"version": 1, "schema": typed("integer")});
    assert_eq!(check("t", &there).is(200)["compatible"], true, "it is registered, whatever came after it");
    let later = json!({"version": 7, "schema": typed("integer")});
    assert_eq!(check("t", &later).is(200)["compatible"], false);
    api.put("/v1/collections/c", r#"{"changefeed": "c.changed"}"#).is(201);
    for path in ["/v1/schemas/c.changed", "/v1/schemas/c.changed/check"] {
        let refused = api.post(path, r#"{"schema": {}}"#).fails(400, "bad_request");
        let message = refused["message"].as_str().unwrap();
        assert!(message.contains("topic c.changed") && message.contains("cannot have schemas"), "{message}");
    }
    site.ends_well();
}

#[test]
fn each_compatibility_is_what_it_says() {
    let site = Site::start();
    let api = &site.api;
    for kind in ["integer", "number"] {
        register(api, "t", &typed(kind));
    }
    let closed = json!({"type": "object", "properties": {"n": {"type": "number"}, "b": {"type": "string"}}, "required": ["n"]});
    for (schema, compat, policy, compatible) in [
        (typed("integer"), "none", "lenient", true),
        (typed("integer"), "backward", "lenient", false),
        (typed("integer"), "forward", "lenient", true),
        (typed("integer"), "full", "lenient", false),
        (typed("number"), "full", "strict", true),
        (typed("number"), "backward_transitive", "lenient", true),
        // The first version refuses what is no integer.
        (typed("number"), "forward", "lenient", true),
        (typed("number"), "forward_transitive", "lenient", false),
        (typed("number"), "full_transitive", "lenient", false),
        (closed.clone(), "backward", "lenient", true),
        (closed.clone(), "backward", "strict", false),
    ] {
        let body = json!({"schema": schema, "compat": compat, "policy": policy});
        let answer = api.post("/v1/schemas/t/check", &body.to_string()).is(200);
        assert_eq!(fields(&answer), ["compatible", "violations"]);
        assert_eq!(answer["compatible"], compatible, "{compat} {policy}: {answer}");
        assert_eq!(answer["violations"].as_array().unwrap().is_empty(), compatible, "{answer}");
    }
    assert_eq!(post(api, "t", &json!({"schema": closed})).is(201)["version"], 3, "that is the usual");
    // What cannot be decided is a refusal that says so.
    register(api, "u", &json!({"pattern": "^(?=a)b?"}));
    let unknown = post(api, "u", &json!({"schema": {"pattern": "^(?=a)"}})).fails(409, "incompatible");
    let first = &unknown["violations"][0];
    assert_eq!((&first["rule"], &first["counterexample"]), (&json!("undecided"), &Value::Null));
    // There is nothing to follow.
    let body = json!({"schema": typed("integer"), "compat": "full"}).to_string();
    assert_eq!(api.post("/v1/schemas/new/check", &body).is(200)["compatible"], true);
    api.get("/v1/topics/new").fails(404, "not_found");
}

#[test]
fn schemas_are_listed_and_shown() {
    let site = Site::start();
    let before = now();
    assert_eq!(site.api.get("/v1/schemas").is(200), json!({"schemas": []}));
    register(&site.api, "b", &typed("integer"));
    register(&site.api, "a", &json!(true));
    register(&site.api, "b", &typed("string"));
    let list = site.api.get("/v1/schemas").is(200);
    let topics: Vec<&Value> = list["schemas"].as_array().unwrap().iter().map(|one| &one["topic"]).collect();
    assert_eq!(topics, ["a", "b"]);
    let shown = site.api.get("/v1/schemas/b").is(200);
    assert_eq!((&shown, fields(&shown)), (&list["schemas"][1], vec!["topic", "upcasters", "versions"]));
    let versions = shown["versions"].as_array().unwrap();
    assert_eq!((&versions[0]["version"], &versions[1]["version"]), (&json!(1), &json!(2)));
    assert!(versions[0]["registered_ts"].as_i64().unwrap() >= before);
    for (asked, version, kind) in [("1", 1, "integer"), ("2", 2, "string"), ("latest", 2, "string")] {
        let one = site.api.get(&format!("/v1/schemas/b/versions/{asked}")).is(200);
        assert_eq!((&one["topic"], &one["version"]), (&json!("b"), &json!(version)));
        assert_eq!(one["schema"], typed(kind));
        let example = site.api.get(&format!("/v1/schemas/b/versions/{asked}/example")).is(200);
        let named = [("x-event-schema-version", one["version"].to_string())];
        let call = crate::contract_support::Call::new("POST", "/publish/b").header(named[0].0, &named[0].1);
        site.api.call(&call.body(example.to_string().as_bytes())).is(201);
    }
    site.api.get("/v1/schemas/b/versions/3").fails(404, "not_found");
    for bad in ["0x1", "-1", "first", "1.0"] {
        site.api.get(&format!("/v1/schemas/b/versions/{bad}")).fails(400, "bad_request");
    }
    register(&site.api, "nothing", &json!(false));
    site.api.get("/v1/schemas/nothing/versions/1/example").fails(404, "not_found");
    site.api.delete("/v1/schemas/b").fails(405, "method_not_allowed");
}

#[test]
fn a_topic_and_its_schemas_go_together() {
    on_both_stores(|api| {
        register(api, "t", &typed("integer"));
        assert_eq!(api.delete("/v1/topics/t").status, 204);
        api.get("/v1/schemas/t").fails(404, "not_found");
        assert_eq!(api.get("/v1/schemas").is(200), json!({"schemas": []}));
        api.publish("t", "\"anything\"").is(201);
        assert_eq!(register(api, "t", &typed("string")), 1, "it is another topic");
    });
}

#[test]
fn what_the_hub_itself_publishes_to_has_no_schemas() {
    let site = Site::start();
    let api = &site.api;
    let snapshot = |topic: &str| json!({"snapshot": {"topic": topic, "every_ms": 60000}}).to_string();
    let changefeed = |topic: &str| json!({"changefeed": topic}).to_string();
    api.put("/v1/topics/t", &snapshot("t.snapshot")).is(201);
    api.put("/v1/collections/c", &changefeed("c.changes")).is(201);
    let told = post(api, "t.snapshot", &json!({"schema": {}})).fails(400, "bad_request");
    assert!(told["message"].as_str().unwrap().contains("holds the snapshots of t"), "{told}");
    let told = post(api, "c.changes", &json!({"schema": {}})).fails(400, "bad_request");
    assert!(told["message"].as_str().unwrap().contains("changefeed of collection c"), "{told}");
    register(api, "strict", &json!({}));
    for answer in [
        api.put("/v1/topics/u", &snapshot("strict")),
        api.put("/v1/topics/t", &snapshot("strict")),
        api.put("/v1/collections/d", &changefeed("strict")),
        api.put("/v1/collections/c", &changefeed("strict")),
    ] {
        let told = answer.fails(400, "bad_request");
        assert!(told["message"].as_str().unwrap().contains("topic strict has schemas"), "{told}");
    }
    let definition = json!({"topic": "t", "collection": "p", "key": "event.key", "changefeed": "strict"});
    api.put("/v1/projections/p", &definition.to_string()).fails(400, "bad_request");
}

#[test]
fn to_register_needs_admin_and_to_look_needs_read_or_admin() {
    let hub = Guarded::jwt();
    let signer = Signer::secret(SECRET);
    let master = signer.token(&all());
    let body = json!({"schema": typed("integer")});
    for topic in ["a", "b"] {
        hub.caller(&master).post(&format!("/v1/schemas/{topic}"), &body).is(201);
    }
    let looks = ["/v1/schemas/a", "/v1/schemas/a/versions/latest", "/v1/schemas/a/versions/1/example"];
    is_unauthorized(&hub.api.get("/v1/schemas"));
    for (scope, may_look, may_register) in [
        ("read:a", true, false),
        ("admin:a", true, true),
        ("publish:a", false, false),
        ("subscribe:a", false, false),
        ("admin:b", false, false),
    ] {
        let token = signer.token(&scopes(&[scope]));
        let caller = hub.caller(&token);
        for path in looks {
            is_unauthorized(&hub.api.get(path));
            let answer = caller.get(path);
            if may_look {
                answer.is(200)
            } else {
                answer.fails(403, "forbidden")
            };
        }
        let check = caller.post("/v1/schemas/a/check", &body);
        if may_look {
            check.is(200)
        } else {
            check.fails(403, "forbidden")
        };
        let answer = caller.post("/v1/schemas/a", &body);
        if may_register {
            answer.is(201)
        } else {
            answer.fails(403, "forbidden")
        };
        let seen = caller.get("/v1/schemas").is(200);
        let seen: Vec<&Value> = seen["schemas"].as_array().unwrap().iter().map(|one| &one["topic"]).collect();
        let expected = match scope {
            "admin:b" => vec!["b"],
            _ if may_look => vec!["a"],
            _ => vec![],
        };
        assert_eq!(seen, expected, "{scope}");
    }
    let deny = json!([{"effect": "allow", "action": "*", "topics": ["**"]}, {"effect": "deny", "action": "*", "topics": ["a"]}]);
    let token = signer.token(&policy(&deny));
    hub.caller(&token).get("/v1/schemas/a").fails(403, "forbidden");
    hub.caller(&token).post("/v1/schemas/a", &body).fails(403, "forbidden");
}
