//! What tokens allow: scopes and their stars, policies and their denials, groups, and tokens that are written down.

use crate::auth_support;
use crate::auth_support::jwt::{Signer, all, policy, scopes, seconds};
use crate::auth_support::line::{Flow, publish, subscribe};
use crate::auth_support::{Guarded, SECRET, STRANGER, Setup, is_unauthorized};
use crate::contract_support::Answer;
use crate::ws_support::Socket;
use serde_json::{Value, json};

/// Whether claims let a topic be published to, over both ways in.
fn may_publish(hub: &Guarded, claims: &Value, topic: &str) -> bool {
    let token = Signer::secret(SECRET).token(claims);
    let answer = hub.caller(&token).publish(topic);
    let frame = Socket::authed(&hub.api, &token).ask(publish(topic));
    match answer.status {
        201 => assert_eq!(frame["op"], "OK", "{frame}"),
        403 => assert_eq!(frame["code"], "forbidden", "{frame}"),
        _ => panic!("{claims} on {topic}: {answer:?}"),
    }
    answer.status == 201
}

/// A pattern opens these topics, and does not open those.
#[track_caller]
fn opens(hub: &Guarded, pattern: &str, open: &[&str], shut: &[&str]) {
    let claims = scopes(&[&format!("publish:{pattern}")]);
    let rules = policy(&json!([{"effect": "allow", "action": "publish", "topics": [pattern]}]));
    for claims in [claims, rules] {
        for topic in open {
            assert!(may_publish(hub, &claims, topic), "{claims} on {topic}");
        }
        for topic in shut {
            assert!(!may_publish(hub, &claims, topic), "{claims} on {topic}");
        }
    }
}

#[test]
fn a_name_without_stars_opens_just_itself() {
    opens(&Guarded::jwt(), "a.b", &["a.b"], &["a", "a.b.c", "a.bc", "ab", "b", "a.b.v2", "x.a.b"]);
}

#[test]
fn a_star_is_exactly_one_segment() {
    let hub = Guarded::jwt();
    opens(
        &hub,
        "heartbeat.*",
        &["heartbeat.web1", "heartbeat.v2"],
        &["heartbeat", "heartbeat.a.b", "heartbeats.a"],
    );
    opens(&hub, "*", &["a", "heartbeat"], &["a.b"]);
    opens(&hub, "a.*.c", &["a.b.c"], &["a.c", "a.b.b.c", "a.b.d", "a.b"]);
    opens(&hub, "*.*", &["a.b"], &["a", "a.b.c"]);
}

#[test]
fn two_stars_are_any_number_of_segments_also_none() {
    let hub = Guarded::jwt();
    opens(
        &hub,
        "process.**",
        &["process", "process.a", "process.a.b.c"],
        &["processes", "processes.a", "a.process"],
    );
    opens(&hub, "**", &["a", "a.b.c.d"], &[]);
    opens(&hub, "a.**.z", &["a.z", "a.b.z", "a.b.c.z"], &["a", "a.b", "z", "a.z.b"]);
    opens(&hub, "**.z", &["z", "a.z", "a.b.z"], &["z.a", "a.zz"]);
    opens(&hub, "a.**.*", &["a.b", "a.b.c"], &["a", "b.c"]);
}

#[test]
fn a_star_inside_a_segment_is_no_wild_card() {
    let hub = Guarded::jwt();
    for pattern in
        ["publish:dev*", "publish:*ice", "publish:de*ce", "publish:devic?", "publish:dev**", "publish:.*"]
    {
        assert!(!may_publish(&hub, &scopes(&[pattern]), "device"), "{pattern}");
    }
}

#[test]
fn a_pattern_that_could_cost_much_is_judged_at_once() {
    let hub = Guarded::jwt();
    let pattern = format!("publish:{}z", "**.a.".repeat(30));
    let topic = vec!["a"; 95].join(".");
    assert!(!may_publish(&hub, &scopes(&[&pattern]), &topic));
}

#[test]
fn a_star_for_the_action_is_every_action() {
    let hub = Guarded::jwt();
    let token = Signer::secret(SECRET).token(&scopes(&["*:mine.**"]));
    let caller = hub.caller(&token);
    caller.publish("mine.t").is(201);
    caller.read("mine.t").is(200);
    caller.pull("mine.t", "g").is(200);
    assert!(matches!(caller.put("/v1/topics/mine.t", &json!({"partitions": 2})).status, 200 | 201));
    caller.publish("other").fails(403, "forbidden");
}

#[test]
fn several_scopes_add_up() {
    let hub = Guarded::jwt();
    let claims = scopes(&["publish:a", "publish:b.*", "read:c"]);
    assert!(may_publish(&hub, &claims, "a") && may_publish(&hub, &claims, "b.x"));
    assert!(!may_publish(&hub, &claims, "c") && !may_publish(&hub, &claims, "d"));
}

#[test]
fn a_scope_that_is_not_known_is_passed_over() {
    let hub = Guarded::jwt();
    let odd = [
        "openid",
        "profile",
        "",
        ":",
        "fly:a",
        "publish",
        "publish:",
        ":a",
        "PUBLISH:b",
        "publish :b",
        "email:read:b",
    ];
    let mut list = odd.to_vec();
    list.push("publish:a");
    assert!(may_publish(&hub, &scopes(&list), "a"));
    assert!(!may_publish(&hub, &scopes(&list), "b"));
    assert!(!may_publish(&hub, &scopes(&odd), "a"));
}

#[test]
fn no_match_is_a_deny() {
    let hub = Guarded::jwt();
    let nothing = json!({"sub": "tester", "exp": seconds() + 600});
    for claims in [scopes(&[]), policy(&json!([])), nothing] {
        assert!(!may_publish(&hub, &claims, "a"), "{claims}");
    }
}

#[test]
fn a_deny_wins_in_any_order() {
    let hub = Guarded::jwt();
    let allow = json!({"effect": "allow", "action": "*", "topics": ["**"]});
    let deny = json!({"effect": "deny", "action": "publish", "topics": ["secret.**"]});
    let orders = [
        json!([allow, deny]),
        json!([deny, allow]),
        json!([allow, deny, allow]),
        json!([deny, allow, allow]),
    ];
    for rules in orders {
        assert!(may_publish(&hub, &policy(&rules), "open"));
        for topic in ["secret", "secret.a", "secret.a.b"] {
            assert!(!may_publish(&hub, &policy(&rules), topic), "{rules} on {topic}");
        }
        let token = Signer::secret(SECRET).token(&policy(&rules));
        hub.caller(&Signer::secret(SECRET).token(&all())).publish("secret.a").is(201);
        hub.caller(&token).read("secret.a").is(200);
    }
}

#[test]
fn a_deny_of_every_action_shuts_a_topic_wholly() {
    let hub = Guarded::jwt();
    let root = Signer::secret(SECRET).token(&all());
    hub.caller(&root).publish("s").is(201);
    let token = Signer::secret(SECRET).token(&policy(&json!([
        {"effect": "allow", "action": "*", "topics": ["**"]},
        {"effect": "deny", "action": "*", "topics": ["x", "s"]},
    ])));
    let caller = hub.caller(&token);
    for answer in
        [caller.publish("s"), caller.read("s"), caller.pull("s", "g"), caller.delete("/v1/topics/s")]
    {
        answer.fails(403, "forbidden");
    }
    assert!(caller.topics().is_empty());
    caller.publish("open").is(201);
}

#[test]
fn a_deny_of_a_policy_wins_over_a_scope() {
    let hub = Guarded::jwt();
    let mut claims = policy(&json!([{"effect": "deny", "action": "publish", "topics": ["s"]}]));
    claims["scopes"] = json!(["publish:**"]);
    assert!(may_publish(&hub, &claims, "open"));
    assert!(!may_publish(&hub, &claims, "s"));
}

#[test]
fn a_rule_with_groups_holds_for_these_groups_only() {
    let hub = Guarded::jwt();
    hub.caller(&Signer::secret(SECRET).token(&all())).publish("t").is(201);
    let token = Signer::secret(SECRET).token(&policy(&json!([
        {"effect": "allow", "action": "subscribe", "topics": ["t"], "groups": ["audit", "team-a"]},
    ])));
    let caller = hub.caller(&token);
    for group in ["audit", "team-a"] {
        caller.pull("t", group).is(200);
        Socket::authed(&hub.api, &token).ok(subscribe("t", group));
    }
    for group in ["audi", "audit2", "team-b", "g"] {
        caller.pull("t", group).fails(403, "forbidden");
        caller.get(&format!("/v1/topics/t/groups/{group}")).fails(403, "forbidden");
        Socket::authed(&hub.api, &token).fails(subscribe("t", group), "forbidden");
    }
}

#[test]
fn a_deny_of_a_group_leaves_the_others() {
    let hub = Guarded::jwt();
    hub.caller(&Signer::secret(SECRET).token(&all())).publish("t").is(201);
    let token = Signer::secret(SECRET).token(&policy(&json!([
        {"effect": "allow", "action": "subscribe", "topics": ["**"]},
        {"effect": "deny", "action": "subscribe", "topics": ["t"], "groups": ["billing"]},
    ])));
    hub.caller(&token).pull("t", "audit").is(200);
    for path in ["/v1/topics/t/groups/billing", "/v1/topics/t/groups/billing/cursor"] {
        hub.caller(&token).get(path).fails(403, "forbidden");
    }
    hub.caller(&token).pull("t", "billing").fails(403, "forbidden");
    Socket::bearer(&hub.api, &token).fails(subscribe("t", "billing"), "forbidden");
}

#[test]
fn stars_in_groups_open_groups_like_topics() {
    let hub = Guarded::jwt();
    hub.caller(&Signer::secret(SECRET).token(&all())).publish("t").is(201);
    let token = |groups: Value| {
        Signer::secret(SECRET).token(&policy(&json!([
            {"effect": "allow", "action": "subscribe", "topics": ["t"], "groups": groups},
        ])))
    };
    for groups in [json!(["*"]), json!(["**"]), json!(["x", "*"])] {
        hub.caller(&token(groups)).pull("t", "any").is(200);
    }
    hub.caller(&token(json!([]))).pull("t", "any").fails_as(&[401, 403]);
}

#[test]
fn dead_letters_are_judged_under_both_names() {
    let hub = Guarded::jwt();
    let root = Signer::secret(SECRET).token(&all());
    dead_letter(&hub, &root, "t");
    let read = |denied: &[&str], target: &str| -> Answer {
        let token = Signer::secret(SECRET).token(&policy(&json!([
            {"effect": "allow", "action": "read", "topics": ["**"]},
            {"effect": "deny", "action": "read", "topics": denied},
        ])));
        hub.caller(&token).get(target)
    };
    for target in ["/v1/dlq/t", "/v1/topics/dlq.t/events"] {
        assert!(read(&["other"], target).is(200).to_string().contains("original"));
        for denied in [["t"], ["dlq.t"], ["dlq.**"]] {
            read(&denied, target).fails(403, "forbidden");
        }
    }
}

#[test]
fn a_deny_of_a_topic_shuts_the_stream_and_the_groups_of_its_dead_letters() {
    let hub = Guarded::jwt();
    let root = Signer::secret(SECRET).token(&all());
    dead_letter(&hub, &root, "t");
    for denied in ["t", "dlq.t"] {
        let token = Signer::secret(SECRET).token(&policy(&json!([
            {"effect": "allow", "action": "*", "topics": ["**"]},
            {"effect": "deny", "action": "*", "topics": [denied]},
        ])));
        Flow::open(&hub.api, "dlq.t", &token).refused().fails(403, "forbidden");
        hub.caller(&token).pull("dlq.t", "g").fails(403, "forbidden");
        Socket::authed(&hub.api, &token).fails(subscribe("dlq.t", "g"), "forbidden");
        assert!(!hub.caller(&token).topics().contains(&"dlq.t".to_owned()));
    }
}

#[test]
fn a_deny_of_either_name_forbids_the_replay_of_dead_letters() {
    let hub = Guarded::jwt();
    let root = Signer::secret(SECRET).token(&all());
    dead_letter(&hub, &root, "t");
    for denied in ["t", "dlq.t"] {
        let token = Signer::secret(SECRET).token(&policy(&json!([
            {"effect": "allow", "action": "*", "topics": ["**"]},
            {"effect": "deny", "action": "admin", "topics": [denied]},
        ])));
        hub.caller(&token).post("/v1/dlq/t/replay", &json!({})).fails(403, "forbidden");
    }
}

#[test]
fn why_dead_letters_are_refused_is_told_to_those_who_may_read_the_topic() {
    let hub = Guarded::jwt();
    let root = Signer::secret(SECRET).token(&all());
    dead_letter(&hub, &root, "t");
    let schema = json!({"schema": {"const": "something else"}});
    hub.caller(&root).post("/v1/schemas/t", &schema).is(201);
    let why = |scopes_of: &[&str], dry_run: bool| {
        let token = Signer::secret(SECRET).token(&scopes(scopes_of));
        let replay = json!({"to": "topic", "dry_run": dry_run});
        let answer = hub.caller(&token).post("/v1/dlq/t/replay", &replay).is(200);
        assert_eq!((&answer["matched"], &answer["replayed"]), (&json!(1), &json!(0)), "{answer}");
        answer["skipped"][0]["why"].as_str().unwrap().to_owned()
    };
    for dry_run in [true, false] {
        assert!(why(&["admin:t", "read:t"], dry_run).contains("something else"));
        let hidden = why(&["admin:t"], dry_run);
        assert!(hidden.contains("`read` on t") && !hidden.contains("something else"), "{hidden}");
    }
}

/// Makes one event fail for good.
#[track_caller]
fn dead_letter(hub: &Guarded, root: &str, topic: &str) {
    let caller = hub.caller(root);
    caller.publish(topic).is(201);
    let pull = json!({"from": "earliest", "maxAttempts": 1});
    let got = caller.post(&format!("/v1/topics/{topic}/groups/g/pull"), &pull).is(200);
    let lease = &got["deliveries"][0]["ctx"]["lease"];
    let nack = json!({"nack": [{"lease": lease, "reason": "no"}]});
    caller.post(&format!("/v1/topics/{topic}/groups/g/ack"), &nack).is(200);
    auth_support::until("a dead letter", || {
        caller.get(&format!("/v1/dlq/{topic}")).text().contains("original")
    });
}

#[test]
fn a_policy_that_makes_no_sense_makes_the_token_a_bad_one() {
    let hub = Guarded::jwt();
    hub.caller(&Signer::secret(SECRET).token(&all())).publish("t").is(201);
    let rule = |name: &str, value: Value| {
        let mut rule = json!({"effect": "allow", "action": "read", "topics": ["**"]});
        rule[name] = value;
        json!({"rules": [rule]})
    };
    let senseless = [
        json!("allow all"),
        json!([]),
        json!(7),
        json!({"rules": "all"}),
        json!({"rules": {"effect": "allow"}}),
        json!({"rules": ["allow"]}),
        json!({"rules": [{}]}),
        json!({"rules": [{"effect": "allow", "topics": ["**"]}]}),
        json!({"rules": [{"action": "read", "topics": ["**"]}]}),
        json!({"rules": [{"effect": "deny", "action": "read"}]}),
        rule("effect", json!("permit")),
        rule("effect", json!(true)),
        rule("action", json!("write")),
        rule("action", json!(1)),
        rule("topics", json!("**")),
        rule("topics", json!([1])),
        rule("topics", json!(null)),
        rule("groups", json!("g")),
        rule("groups", json!([{}])),
    ];
    for policy in senseless {
        let mut claims = scopes(&["read:**"]);
        claims["policy"] = policy;
        let token = Signer::secret(SECRET).token(&claims);
        println!("{claims}");
        is_unauthorized(&hub.caller(&token).read("t"));
        Socket::open(&hub.api).fails(json!({"op": "AUTH", "token": token}), "unauthorized");
    }
}

/// Three tokens: everything, one by scopes, one by a policy.
const WRITTEN: &str = r#"
[auth]
mode = "token"
tokens = [
  { token_env = "OPS_TOKEN", scopes = ["*:**"] },
  { token = "reader-9f8e7d6c5b4a3210", scopes = ["read:a.*"] },
  { token = "picky-0123456789abcdef", policy = { rules = [
      { effect = "allow", action = "*", topics = ["**"] },
      { effect = "deny", action = "*", topics = ["secret.**"] } ] } },
]
"#;

const OPS: &str = "ops-token-from-the-environment-42";

fn written() -> Guarded {
    Setup { file: WRITTEN, env: &[("OPS_TOKEN", OPS)], ..Setup::default() }.start()
}

#[test]
fn a_written_token_allows_what_its_scopes_say() {
    let hub = written();
    hub.caller(OPS).publish("a.t").is(201);
    hub.caller("reader-9f8e7d6c5b4a3210").read("a.t").is(200);
    hub.caller("reader-9f8e7d6c5b4a3210").publish("a.t").fails(403, "forbidden");
    let mut frames = Socket::authed(&hub.api, "reader-9f8e7d6c5b4a3210");
    frames.fails(publish("a.t"), "forbidden");
}

#[test]
fn a_written_token_allows_what_its_policy_says() {
    let hub = written();
    let picky = hub.caller("picky-0123456789abcdef");
    picky.publish("open").is(201);
    picky.publish("secret.a").fails(403, "forbidden");
    Socket::bearer(&hub.api, picky.token).fails(publish("secret"), "forbidden");
}

#[test]
fn a_token_from_the_environment_counts_by_its_value_and_not_by_its_name() {
    let hub = written();
    hub.caller(OPS).get("/ops").is(200);
    is_unauthorized(&hub.caller("OPS_TOKEN").get("/ops"));
}

#[test]
fn what_is_nearly_a_written_token_is_none() {
    let hub = written();
    hub.caller(OPS).publish("a.t").is(201);
    let token = "reader-9f8e7d6c5b4a3210";
    let upper = token.to_uppercase();
    let doubled = format!("{token}{token}");
    let longer = format!("{token}0");
    let nearly = [&token[..22], &token[1..], &upper, &doubled, &longer, "reader-9f8e7d6c5b4a3211", STRANGER];
    for bad in nearly {
        is_unauthorized(&hub.caller(bad).read("a.t"));
        Socket::open(&hub.api).fails(json!({"op": "AUTH", "token": bad}), "unauthorized");
    }
}

#[test]
fn a_jwt_is_nothing_to_a_hub_with_written_tokens() {
    let hub = written();
    for signer in [Signer::secret(SECRET), Signer::secret(OPS), Signer::secret("")] {
        is_unauthorized(&hub.caller(&signer.token(&all())).get("/v1/topics"));
    }
}
