//! Tokens on a WebSocket and on streams: before AUTH, after it, again, and when the time of a token is over.

use crate::auth_support::jwt::{Signer, all, policy, scopes, seconds, with};
use crate::auth_support::line::{Flow, publish, subscribe};
use crate::auth_support::{Guarded, SECRET, STRANGER, is_unauthorized, until};
use crate::contract_support::{Answer, Call};
use crate::ws_support::Socket;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};

fn token(list: &[&str]) -> String {
    Signer::secret(SECRET).token(&scopes(list))
}

fn root() -> String {
    Signer::secret(SECRET).token(&all())
}

/// A token whose time is over in so many seconds.
fn short(list: &[&str], seconds_left: i64) -> String {
    Signer::secret(SECRET).token(&with(scopes(list), "exp", json!(seconds() + seconds_left)))
}

fn auth(token: &str) -> Value {
    json!({"op": "AUTH", "token": token})
}

/// Every frame that a client may send, but AUTH.
fn frames() -> Vec<Value> {
    let of_group = |op: &str| json!({"op": op, "topic": "t", "group": "g"});
    let mut all = vec![
        publish("t"),
        json!({"op": "PUBLISH", "topic": "t", "events": [{"payload": 1}]}),
        subscribe("t", "g"),
        json!({"op": "SUBSCRIBE", "topics": ["t", "u"], "group": "g"}),
        json!({"op": "ACK", "topic": "t", "group": "g", "id": "6f2d5a3e-8c1b-4d7f-9a60-1b2c3d4e5f60"}),
        json!({"op": "NACK", "topic": "t", "group": "g", "lease": "x"}),
        json!({"op": "MODACK", "topic": "t", "group": "g", "lease": "x", "extend_ms": 1000}),
        json!({"op": "COMMIT", "publish": [{"topic": "t", "payload": 1}]}),
    ];
    all.extend(["UNSUBSCRIBE", "PAUSE", "RESUME"].map(of_group));
    all
}

#[test]
fn every_frame_before_auth_is_unauthorized() {
    let hub = Guarded::jwt();
    for frame in frames() {
        Socket::open(&hub.api).fails(&frame, "unauthorized");
    }
    hub.caller(&root()).read("t").fails(404, "not_found");
}

#[test]
fn a_frame_before_auth_without_corr_is_answered_too() {
    let hub = Guarded::jwt();
    let mut frames = Socket::open(&hub.api);
    frames.send(publish("t"));
    let answer = frames.frame_or_close().unwrap();
    assert_eq!((&answer["op"], &answer["code"]), (&json!("ERR"), &json!("unauthorized")), "{answer}");
}

#[test]
fn auth_after_a_refused_frame_still_works() {
    let hub = Guarded::jwt();
    let mut frames = Socket::open(&hub.api);
    frames.fails(publish("t"), "unauthorized");
    frames.fails(auth(STRANGER), "unauthorized");
    frames.fails(publish("t"), "unauthorized");
    frames.ok(auth(&root()));
    frames.ok(publish("t"));
}

#[test]
fn auth_without_a_string_for_a_token_is_a_bad_request() {
    let hub = Guarded::jwt();
    for bad in [json!(1), json!(null), json!({}), json!([root()]), json!({"token": root()})] {
        let answer = Socket::open(&hub.api).ask(json!({"op": "AUTH", "token": bad}));
        assert_eq!(answer["op"], "ERR", "{answer}");
        assert!(
            ["bad_request", "unauthorized", "bad_json"].contains(&answer["code"].as_str().unwrap()),
            "{answer}"
        );
    }
    let answer = Socket::open(&hub.api).ask(json!({"op": "AUTH"}));
    assert_eq!(answer["op"], "ERR", "{answer}");
}

#[test]
fn a_token_at_the_upgrade_counts_like_auth() {
    let hub = Guarded::jwt();
    let mut frames = Socket::bearer(&hub.api, &token(&["publish:t"]));
    frames.ok(publish("t"));
    frames.fails(publish("u"), "forbidden");
}

#[test]
fn a_bad_token_at_the_upgrade_is_401() {
    let hub = Guarded::jwt();
    let expired = short(&["*:**"], -60);
    for bad in [STRANGER, "", &expired] {
        let value = format!("Bearer {bad}");
        let Err(answer) = Socket::open_with(&hub.api, &[("authorization", &value)]) else {
            panic!("it opened with {bad:?}");
        };
        assert_eq!(answer.status, 401, "{answer:?}");
        assert!(answer.header("www-authenticate").is_some(), "{answer:?}");
    }
}

#[test]
fn publish_wants_publish() {
    let hub = Guarded::jwt();
    let mut frames = Socket::authed(&hub.api, &token(&["read:t", "subscribe:t", "admin:t", "publish:u"]));
    frames.fails(publish("t"), "forbidden");
    frames.fails(json!({"op": "PUBLISH", "topic": "t", "events": [{"payload": 1}]}), "forbidden");
    frames.ok(publish("u"));
    hub.caller(&root()).read("t").fails(404, "not_found");
}

#[test]
fn subscribe_wants_subscribe() {
    let hub = Guarded::jwt();
    hub.caller(&root()).publish("t").is(201);
    let mut frames = Socket::authed(&hub.api, &token(&["read:t", "publish:t", "admin:t", "subscribe:u"]));
    frames.fails(subscribe("t", "g"), "forbidden");
    let mut frames = Socket::authed(&hub.api, &token(&["subscribe:t"]));
    frames.ok(subscribe("t", "g"));
    let event = frames.find(|frame| frame["op"] == "EVENT");
    frames.ok(json!({"op": "ACK", "topic": "t", "group": "g", "id": event["event"]["id"]}));
}

#[test]
fn a_list_of_topics_with_a_forbidden_one_subscribes_to_none() {
    let hub = Guarded::jwt();
    for topic in ["mine", "theirs"] {
        hub.caller(&root()).publish(topic).is(201);
    }
    let mut frames = Socket::authed(&hub.api, &token(&["subscribe:mine"]));
    let both =
        json!({"op": "SUBSCRIBE", "topics": ["mine", "theirs"], "group": "g", "opts": {"from": "earliest"}});
    frames.fails(&both, "forbidden");
    frames.fails(json!({"op": "UNSUBSCRIBE", "topic": "mine", "group": "g"}), "not_subscribed");
}

#[test]
fn a_lease_of_another_cannot_be_settled_without_the_right() {
    let hub = Guarded::jwt();
    hub.caller(&root()).publish("t").is(201);
    let mut owner = Socket::authed(&hub.api, &root());
    owner.ok(subscribe("t", "g"));
    let event = owner.find(|frame| frame["op"] == "EVENT");
    let ack = json!({"op": "ACK", "topic": "t", "group": "g", "lease": event["ctx"]["lease"]});
    let other = token(&["subscribe:u", "read:**", "publish:**"]);
    let answer = Socket::authed(&hub.api, &other).ask(&ack);
    assert_eq!(answer["op"], "ERR", "{answer}");
    hub.caller(&other)
        .post("/v1/topics/t/groups/g/ack", &json!({"ack": [event["ctx"]["lease"]]}))
        .fails(403, "forbidden");
    owner.ok(&ack);
}

#[test]
fn a_fresh_token_may_allow_more() {
    let hub = Guarded::jwt();
    let mut frames = Socket::authed(&hub.api, &token(&["publish:a"]));
    frames.fails(publish("b"), "forbidden");
    frames.ok(auth(&token(&["publish:b"])));
    frames.ok(publish("b"));
    frames.fails(publish("a"), "forbidden");
}

#[test]
fn a_fresh_token_ends_the_subscriptions_that_it_does_not_allow() {
    let hub = Guarded::jwt();
    for topic in ["kept", "lost"] {
        hub.caller(&root()).publish(topic).is(201);
    }
    let mut frames = Socket::authed(&hub.api, &token(&["subscribe:kept", "subscribe:lost"]));
    for topic in ["kept", "lost"] {
        frames.ok(subscribe(topic, "g"));
        frames.find(|frame| frame["op"] == "EVENT" && frame["topic"] == topic);
    }
    frames.send(json!({"op": "AUTH", "token": token(&["subscribe:kept"]), "corr": "fresh"}));
    let (mut answered, mut ended) = (false, false);
    while !(answered && ended) {
        let frame = frames.frame_or_close().unwrap();
        answered |= frame["corr"] == "fresh" && frame["op"] == "OK";
        ended |= frame["op"] == "ERR" && frame["code"] == "forbidden" && frame["corr"].is_null();
    }
    // The lease is free for others, and nothing more comes from the topic that was lost.
    let lost = hub.caller(&root()).post("/v1/topics/lost/groups/g/pull", &json!({"waitMs": 10_000})).is(200);
    assert_eq!(lost["deliveries"].as_array().unwrap().len(), 1, "{lost}");
    hub.caller(&root()).publish("lost").is(201);
    hub.caller(&root()).publish("kept").is(201);
    let next = frames.find(|frame| frame["op"] == "EVENT");
    assert_eq!(next["topic"], "kept", "{next}");
    frames.fails(subscribe("lost", "g"), "forbidden");
}

#[test]
fn a_bad_token_later_does_not_open_more() {
    let hub = Guarded::jwt();
    let mut frames = Socket::authed(&hub.api, &token(&["publish:a"]));
    frames.fails(auth(STRANGER), "unauthorized");
    let answer = frames.ask(publish("b"));
    assert!(["forbidden", "unauthorized"].contains(&answer["code"].as_str().unwrap()), "{answer}");
}

#[test]
fn one_connection_says_nothing_of_another() {
    let hub = Guarded::jwt();
    let _open = Socket::authed(&hub.api, &root());
    Socket::open(&hub.api).fails(publish("t"), "unauthorized");
}

#[test]
fn without_auth_the_frame_is_ok() {
    let hub = Guarded::start("");
    let mut frames = Socket::open(&hub.api);
    frames.ok(auth(STRANGER));
    frames.ok(publish("t"));
}

#[test]
fn a_connection_whose_token_expires_is_closed_with_a_reason() {
    let hub = Guarded::jwt();
    let by_frame = short(&["publish:t"], 1);
    let mut frames = Socket::authed(&hub.api, &by_frame);
    let by_header = short(&["publish:t"], 1);
    let mut others = Socket::bearer(&hub.api, &by_header);
    frames.ok(publish("t"));
    others.ok(publish("t"));
    for (one, token) in [(&mut frames, by_frame), (&mut others, by_header)] {
        let (code, reason) = one.closes_eventually();
        assert_eq!(code, 1008, "{reason}");
        assert!(!reason.is_empty() && !reason.contains(&token), "{reason}");
    }
}

#[test]
fn a_connection_that_hears_events_all_the_time_is_closed_too() {
    let hub = Guarded::jwt();
    let mut frames = Socket::authed(&hub.api, &short(&["subscribe:t"], 1));
    frames.ok(subscribe("t", "g"));
    let publisher = root();
    let closed = loop {
        hub.caller(&publisher).publish("t").is(201);
        match frames.frame_or_close() {
            Ok(frame) => assert_eq!(frame["op"], "EVENT", "{frame}"),
            Err(close) => break close,
        }
    };
    assert_eq!(closed.0, 1008, "{closed:?}");
}

#[test]
fn the_leases_of_a_connection_whose_token_expires_are_free() {
    let hub = Guarded::jwt();
    hub.caller(&root()).publish("t").is(201);
    let mut frames = Socket::authed(&hub.api, &short(&["subscribe:t"], 1));
    frames.ok(subscribe("t", "g"));
    frames.find(|frame| frame["op"] == "EVENT");
    frames.closes_eventually();
    let got = hub.caller(&root()).post("/v1/topics/t/groups/g/pull", &json!({"waitMs": 10_000})).is(200);
    assert_eq!(got["deliveries"].as_array().unwrap().len(), 1, "{got}");
}

/// The hub ends the connection, so that says nothing about the events: with one attempt each, none becomes a dead letter.
#[test]
fn the_end_of_a_token_counts_as_no_attempt() {
    let hub = Guarded::jwt();
    for _ in 0..3 {
        hub.caller(&root()).publish("t").is(201);
    }
    let once = json!({"op": "SUBSCRIBE", "topic": "t", "group": "g",
        "opts": {"from": "earliest", "ordering": "none", "maxAttempts": 1}});
    let hold_all = |token: &str| {
        let mut frames = Socket::authed(&hub.api, token);
        frames.ok(&once);
        for offset in 0..3 {
            let got = frames.find(|frame| frame["op"] == "EVENT");
            let (at, attempt) = (&got["event"]["offset"], &got["ctx"]["attempt"]);
            assert_eq!((at, attempt), (&json!(offset), &json!(1)), "{got}");
        }
        frames
    };
    assert_eq!(hold_all(&short(&["subscribe:t"], 1)).closes_eventually().0, 1008);
    let _again = hold_all(&root());
    hub.caller(&root()).read("dlq.t").fails(404, "not_found");
}

#[test]
fn a_fresh_token_before_the_end_prolongs_a_connection() {
    let hub = Guarded::jwt();
    let mut frames = Socket::authed(&hub.api, &short(&["publish:t"], 1));
    frames.ok(auth(&token(&["publish:t"])));
    // These end later than the first token would have.
    for left in [1, 2] {
        Socket::authed(&hub.api, &short(&["publish:t"], left)).closes_eventually();
    }
    frames.ok(publish("t"));
}

#[test]
fn a_fresh_token_with_less_time_shortens_a_connection() {
    let hub = Guarded::jwt();
    let mut frames = Socket::authed(&hub.api, &root());
    frames.ok(auth(&short(&["publish:t"], 1)));
    assert_eq!(frames.closes_eventually().0, 1008);
}

#[test]
fn a_stream_whose_token_expires_ends() {
    let hub = Guarded::jwt();
    hub.caller(&root()).publish("t").is(201);
    let mut flow = Flow::open(&hub.api, "t", &short(&["subscribe:t"], 1));
    flow.until("\"offset\":0");
    hub.caller(&root()).publish("t").is(201);
    flow.until("\"offset\":1");
    flow.rest();
}

#[test]
fn a_stream_of_a_good_token_outlives_one_that_expires() {
    let hub = Guarded::jwt();
    hub.caller(&root()).publish("t").is(201);
    let mut good = Flow::open(&hub.api, "t", &token(&["subscribe:t"]));
    good.until("\"offset\":0");
    Flow::open(&hub.api, "t", &short(&["subscribe:t"], 1)).rest();
    hub.caller(&root()).publish("t").is(201);
    good.until("\"offset\":1");
}

/// Publishes more than the sockets of a connection hold.
fn fill(hub: &Guarded, topic: &str) {
    let (target, payload) = (format!("/publish/{topic}"), format!("\"{}\"", "x".repeat(1_000_000)));
    for _ in 0..LARGE_EVENTS {
        hub.caller(&root()).call(Call::new("POST", &target).body(payload.as_bytes())).is(201);
    }
}

const LARGE_EVENTS: usize = 40;

#[test]
fn an_export_whose_token_expires_breaks_off() {
    let hub = Guarded::jwt();
    fill(&hub, "t");
    let token = short(&["read:t"], 1);
    let mut line = hub.api.connect();
    let request = format!(
        "GET /v1/topics/t/events HTTP/1.1\r\nhost: localhost\r\naccept: application/x-ndjson\r\n\
         connection: close\r\nauthorization: Bearer {token}\r\n\r\n"
    );
    line.write_all(request.as_bytes()).unwrap();
    let mut bytes = vec![0; 12];
    line.read_exact(&mut bytes).unwrap();
    assert_eq!(bytes, b"HTTP/1.1 200");
    until("the end of the token", || hub.caller(&token).get("/v1/topics/t").status == 401);
    // A reset is an end as well.
    let _ = line.read_to_end(&mut bytes);
    assert!(bytes.len() < LARGE_EVENTS * 1_000_000, "all of it came");
    assert!(!bytes.ends_with(b"0\r\n\r\n"), "the end looks like one");
}

#[test]
fn a_pull_whose_token_expires_ends() {
    let hub = Guarded::jwt();
    hub.caller(&root()).publish("t").is(201);
    let token = short(&["subscribe:t"], 1);
    let body = json!({"from": "latest", "waitMs": 30_000});
    is_unauthorized(&hub.caller(&token).post("/v1/topics/t/groups/g/pull", &body));
}

#[test]
fn an_import_whose_token_expires_ends() {
    let hub = Guarded::jwt();
    let token = short(&["publish:t"], 1);
    let mut line = hub.api.connect();
    let request = format!(
        "POST /v1/topics/t/events HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-ndjson\r\n\
         connection: close\r\ntransfer-encoding: chunked\r\nauthorization: Bearer {token}\r\n\r\n"
    );
    line.write_all(request.as_bytes()).unwrap();
    line.write_all(b"e\r\n{\"payload\":1}\n\r\n").unwrap();
    until("the end of the token", || hub.caller(&token).publish("t").status == 401);
    line.write_all(b"e\r\n{\"payload\":2}\n\r\n0\r\n\r\n").unwrap();
    let mut bytes = Vec::new();
    line.read_to_end(&mut bytes).unwrap();
    let answer = Answer::parse(&bytes, false).unwrap();
    is_unauthorized(&answer);
    // The first line was not stored yet, so it is where to go on.
    let told = answer.json();
    assert_eq!((&told["count"], &told["line"]), (&json!(0), &json!(1)), "{told}");
}

/// The body of a request comes so slowly that the token is over before it is complete.
#[test]
fn nothing_is_done_for_a_token_that_expires_while_the_body_comes() {
    let hub = Guarded::jwt();
    let root = root();
    let of_root = hub.caller(&root);
    of_root.publish("t").is(201);
    let token = short(&["*:**"], 1);
    let definition = r#"{"topic":"t","collection":"made","key":"event.key"}"#;
    let requests = [
        ("POST /v1/commit", r#"{"writes":[{"collection":"made","key":"k","set":{}}]}"#),
        ("POST /publish/made", "1"),
        ("POST /v1/topics/made/events", r#"[{"payload":1}]"#),
        ("POST /v1/topics/made/events", r#"{"payload":1}"#),
        ("PUT /v1/topics/made", "{}"),
        ("POST /v1/topics/t/trim", r#"{"partition":0,"before":1}"#),
        ("POST /v1/topics/t/clean", "{}"),
        ("POST /v1/topics/t/keys", r#"{"keys":["k"]}"#),
        ("POST /v1/topics/t/groups/made/pull", "{}"),
        ("PUT /v1/topics/t/groups/made", "{}"),
        ("PUT /v1/collections/made", "{}"),
        ("PUT /v1/projections/made", definition),
        ("POST /v1/backups", "{}"),
    ];
    let begun = requests.map(|(request, body)| {
        let (first, rest) = body.split_at(1);
        let mut line = BufReader::new(hub.api.connect());
        let head = format!(
            "{request} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nexpect: 100-continue\r\n\
             authorization: Bearer {token}\r\ntransfer-encoding: chunked\r\n\r\n"
        );
        line.get_mut().write_all(head.as_bytes()).unwrap();
        // The hub asks for the body of a request that it has let in.
        let mut told = String::new();
        line.read_line(&mut told).unwrap();
        assert!(told.contains(" 100 "), "{request}: {told}");
        line.read_line(&mut told).unwrap();
        line.get_mut().write_all(format!("1\r\n{first}\r\n").as_bytes()).unwrap();
        (request, line, rest)
    });
    until("the end of the token", || hub.caller(&token).get("/v1/topics").status == 401);
    for (request, mut line, rest) in begun {
        let rest = match rest {
            "" => String::new(),
            rest => format!("{:x}\r\n{rest}\r\n", rest.len()),
        };
        line.get_mut().write_all(format!("{rest}0\r\n\r\n").as_bytes()).unwrap();
        let answer = Answer::read(&mut line).unwrap_or_else(|error| panic!("{request}: {error}"));
        assert_eq!(answer.status, 401, "{request}: {answer:?}");
        is_unauthorized(&answer);
    }
    for made in ["topics/made", "topics/t/groups/made", "collections/made", "projections/made"] {
        of_root.get(&format!("/v1/{made}")).is(404);
    }
    assert_eq!(of_root.get("/v1/topics/t").is(200)["bounds"][0]["first"], 0);
}

#[test]
fn an_expired_token_opens_no_stream() {
    let hub = Guarded::jwt();
    hub.caller(&root()).publish("t").is(201);
    is_unauthorized(&Flow::open(&hub.api, "t", &short(&["subscribe:t"], -60)).refused());
}

#[test]
fn a_stream_is_shut_by_a_deny() {
    let hub = Guarded::jwt();
    hub.caller(&root()).publish("t").is(201);
    let denied = Signer::secret(SECRET).token(&policy(&json!([
        {"effect": "deny", "action": "subscribe", "topics": ["t"]},
        {"effect": "allow", "action": "*", "topics": ["**"]},
    ])));
    Flow::open(&hub.api, "t", &denied).refused().fails(403, "forbidden");
}
